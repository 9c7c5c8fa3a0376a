//! Phases 2 and 5: runs an exchange's filters on heads and bodies.
//!
//! Few filters wait or want a whole body, so the common ones run without a future of their own. This file has the
//! request and whole bodies, `attempts` what filters are told of attempts, and `response` the response.

mod attempts;
mod response;

pub(super) use response::{Reply, Unfiltered};

use super::bodies::{Direction, poll_pending, run_body_hooks};
use super::{Exchange, Stop, unless};
use crate::client::Departure;
use crate::core::Local;
use crate::snapshot::{Handling, Instance, Snapshot};
use crate::to_run::ToRun;
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;
use weir_filter::filter::{BodyUse, Flow, Hooks, Waiting};
use weir_filter::grpc;
use weir_h1::BodyKind;
use weir_upstream::error::{self, Cause};
use weir_wire::relay::{Mark, Seen};
use weir_wire::time;

/// What a filter must wait for before the next one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The whole body, up to this size. Then its hook runs, and the filter uses what is left of the body so.
    Gather(usize, BodyUse),
    /// Nothing: the filters of this list of its own run next.
    Run(usize),
    /// Its own `wait`.
    Wait,
}

/// The request filters that have not run yet, because one of them must wait.
pub(super) struct Unrun<'l> {
    snapshot: &'l Snapshot,
    handling: &'l Handling,
    to_run: ToRun<'l>,
    /// The filter that must wait, and for what.
    due: (u32, Due),
}

impl Exchange<'_> {
    /// Runs the route's filters up to the first that must wait, so that most requests need no future. When one names
    /// the consumer, the filters of the consumer's plan follow it. `None` if all filters have run.
    pub(super) fn filter_request<'l>(
        &mut self,
        local: &'l Local,
        route: usize,
    ) -> Result<Option<Box<Unrun<'l>>>, Stop> {
        let handling = &*local.routes[route].handling;
        let mut to_run = match &self.resumed {
            None => ToRun::new(&handling.chain),
            Some(resumed) => ToRun::of_rest(&resumed.rest),
        };
        match self.filter_on(&local.snapshot, handling, &mut to_run) {
            Ok(None) => self.filters_ran().map(|()| None),
            Ok(Some(due)) => Ok(Some(Box::new(Unrun { snapshot: &local.snapshot, handling, to_run, due }))),
            Err(stop) => {
                self.leave_rest(&to_run);
                Err(stop)
            }
        }
    }

    /// Waits for the filter that must, then runs the others.
    pub(super) async fn filter_request_rest(&mut self, unrun: Box<Unrun<'_>>) -> Result<(), Stop> {
        let Unrun { snapshot, handling, mut to_run, mut due } = *unrun;
        loop {
            let (filter, what) = due;
            let ran = match self.filter_wait(snapshot, filter, what).await {
                Ok(list) => {
                    if let Some(list) = list {
                        to_run.choose(snapshot, handling, (filter, list));
                    }
                    self.filter_on(snapshot, handling, &mut to_run)
                }
                Err(stop) => Err(stop),
            };
            match ran {
                Ok(None) => return self.filters_ran(),
                Ok(Some(next)) => due = next,
                Err(stop) => {
                    self.leave_rest(&to_run);
                    return Err(stop);
                }
            }
        }
    }

    /// If the request continues in the background after its answer, leaves it the filters that have not run.
    fn leave_rest(&mut self, to_run: &ToRun<'_>) {
        if let Some(cx) = self.cx.as_mut().filter(|cx| cx.continues_in_background()) {
            cx.continue_with(to_run.rest());
        }
    }

    /// Runs the remaining filters up to the first that must wait.
    #[inline(always)] // as `filter_one`
    fn filter_on(
        &mut self,
        snapshot: &Snapshot,
        handling: &Handling,
        to_run: &mut ToRun<'_>,
    ) -> Result<Option<(u32, Due)>, Stop> {
        loop {
            let Some(filter) = to_run.next(snapshot, handling, self.cx.as_ref()) else { return Ok(None) };
            match self.filter_one(snapshot, filter)? {
                None => {}
                Some(Due::Run(list)) => to_run.choose(snapshot, handling, (filter, list)),
                Some(due) => return Ok(Some((filter, due))),
            }
        }
    }

    /// Adopts the filters' changes to the request.
    #[inline]
    fn filters_ran(&mut self) -> Result<(), Stop> {
        self.adopt_whole_request()?;
        if let Some(cx) = &mut self.cx {
            cx.waits(); // the upstream is waited for in any case
            if cx.calls_grpc {
                self.becomes_grpc();
            }
        }
        self.time_filters();
        Ok(())
    }

    #[cold]
    fn becomes_grpc(&mut self) {
        self.grpc = true;
        self.grpc_timeout = grpc::timeout(&self.head.headers);
    }

    /// Runs the filters for requests without a route, which do not wait.
    pub(super) fn filter_at_once(&mut self) -> Result<(), Stop> {
        let local = Rc::clone(&self.local);
        let snapshot = &local.snapshot;
        let mut next: Vec<u32> = snapshot.unrouted.iter().rev().copied().collect();
        while let Some(filter) = next.pop() {
            let due = match self.filter_one(snapshot, filter)? {
                // Bodies without a route are not read: for expressions they have no value.
                Some(Due::Gather(..)) => self.on_request(snapshot, filter)?,
                due => due,
            };
            if let Some(Due::Run(list)) = due {
                let chosen = snapshot.list_of(filter, list).iter().rev();
                let runs = |&&filter: &&u32| snapshot.filters[filter as usize].hooks.has(Hooks::UNROUTED);
                next.extend(chosen.filter(runs));
            }
        }
        Ok(())
    }

    /// Runs one filter, or returns what it needs first.
    #[inline(always)] // its result stays in registers: 50 instructions for each filter (count filters)
    fn filter_one(&mut self, snapshot: &Snapshot, index: u32) -> Result<Option<Due>, Stop> {
        let instance = &snapshot.filters[index as usize];
        let hooks = instance.hooks;
        self.ran.push(index);
        self.hooks = self.hooks | hooks;
        self.head.headers.remove_twins(&instance.guards.request);
        if hooks.has_any(Hooks::REQUEST_BODY | Hooks::READS_BODY)
            && self.head.body() != BodyKind::Empty
            && let Some(due) = self.body_first(snapshot, index)
        {
            return Ok(Some(due));
        }
        self.ask(instance, index)
    }

    /// What a filter needs of the body before it sees the head, if anything.
    fn body_first(&mut self, snapshot: &Snapshot, index: u32) -> Option<Due> {
        let instance = &snapshot.filters[index as usize];
        let cx = self.cx.as_mut()?;
        cx.filter = index;
        let body = match instance.hooks.has(Hooks::REQUEST_BODY) {
            true => instance.filter.request_body(&self.head, cx),
            false => BodyUse::Pass,
        };
        let reads = instance.hooks.has(Hooks::READS_BODY) && cx.expects_json(&self.head);
        match body {
            BodyUse::Whole(limit) => Some(Due::Gather(limit, BodyUse::Pass)),
            BodyUse::WholeWatched(limit) => {
                cx.request_bodies.add(index, BodyUse::Watch); // until it is whole
                Some(Due::Gather(limit, BodyUse::Pass))
            }
            _ if reads && !cx.has_read_body() => Some(Due::Gather(snapshot.expression_body, body)),
            _ => {
                cx.request_bodies.add(index, body);
                None
            }
        }
    }

    fn on_request(&mut self, snapshot: &Snapshot, index: u32) -> Result<Option<Due>, Stop> {
        self.ask(&snapshot.filters[index as usize], index)
    }

    /// Asks a filter about the request.
    #[inline(always)] // as above
    fn ask(&mut self, instance: &Instance, index: u32) -> Result<Option<Due>, Stop> {
        let Some(cx) = self.cx.as_mut().filter(|_| instance.hooks.has(Hooks::REQUEST)) else {
            return Ok(None);
        };
        cx.filter = index;
        match instance.filter.on_request(&mut self.head, cx) {
            Flow::Continue => Ok(None), // nearly always
            decided => go_on(decided),
        }
    }

    /// Waits for a filter. Returns the list that it chose, if it has any.
    async fn filter_wait(
        &mut self,
        snapshot: &Snapshot,
        index: u32,
        due: Due,
    ) -> Result<Option<usize>, Stop> {
        self.has_waited = true;
        if let Some(cx) = &mut self.cx {
            cx.waits();
        }
        let began = self.client.core.autopsies.is_on().then(Instant::now);
        let waited = self.filter_waited(snapshot, index, due).await;
        self.waited(snapshot.filters[index as usize].name, began);
        waited
    }

    async fn filter_waited(
        &mut self,
        snapshot: &Snapshot,
        index: u32,
        due: Due,
    ) -> Result<Option<usize>, Stop> {
        if let Due::Gather(limit, then) = due {
            let instance = &snapshot.filters[index as usize];
            let longest = snapshot.expression_body;
            let reads = instance.hooks.has(Hooks::READS_BODY)
                && self.cx.as_mut().is_some_and(|cx| cx.expects_json(&self.head));
            let is_too_long = self.head.declared_size().is_some_and(|size| size > longest as u64);
            if reads && is_too_long && !self.request_over {
                return Err(Stop::refuse(&error::BODY_TOO_LARGE)); // a client that waits to go on is told at once
            }
            Box::pin(self.gather_request(limit, instance.filter.spooling())).await?;
            if let Some(cx) = &mut self.cx {
                if reads {
                    cx.read_body(&self.head, longest).map_err(Stop::Refuse)?;
                }
                cx.request_bodies.add(index, then);
            }
            match self.on_request(snapshot, index)? {
                None => return Ok(None),
                Some(Due::Run(list)) => return Ok(Some(list)),
                Some(Due::Gather(..) | Due::Wait) => {}
            }
        }
        match go_on(self.filter_wait_once(snapshot, index).await?)? {
            None => return Ok(None),
            Some(Due::Gather(limit, _)) => Box::pin(self.gather_request(limit, None)).await?,
            Some(Due::Run(_) | Due::Wait) => return Err(Stop::refuse(&error::INTERNAL)),
        }
        match go_on(self.filter_wait_once(snapshot, index).await?)? {
            None => Ok(None),
            // After its wait a filter must decide: if it asks again and is ignored, everybody would pass.
            Some(_) => Err(Stop::refuse(&error::INTERNAL)),
        }
    }

    async fn filter_wait_once(&mut self, snapshot: &Snapshot, index: u32) -> Result<Flow, Stop> {
        let Some(cx) = &mut self.cx else { return Ok(Flow::Continue) };
        cx.filter = index;
        let end = cx.limits.exchange.and_then(|limit| self.started.checked_add(limit));
        let filter = &snapshot.filters[index as usize].filter;
        let by = if filter.is_queue() { Departure::Queue } else { Departure::Reset };
        let waited = filter.wait(&mut self.head, cx);
        let waited = match end {
            Some(end) => in_time(end, waited),
            None => waited,
        };
        let began = self.record.trace.as_ref().map(|_| Instant::now());
        let waited = unless(self.client, pin!(waited), by).await;
        self.trace_wait(snapshot.filters[index as usize].name, began);
        waited
    }

    /// After a filter had the body whole, it continues as the filters left it, with its new length.
    #[inline]
    pub(super) fn adopt_whole_request(&mut self) -> Result<(), Stop> {
        if self.cx.as_ref().is_some_and(|cx| cx.whole.is_some()) { self.adopt_whole() } else { Ok(()) }
    }

    fn adopt_whole(&mut self) -> Result<(), Stop> {
        self.settle_whole(Direction::Request)?;
        let Some(cx) = &mut self.cx else { return Ok(()) };
        cx.forget_body();
        (cx.request_whole, cx.request_spool) = (cx.whole.take(), None);
        self.head.set_whole_body(cx.request_whole.as_ref().map_or(0, Bytes::len) as u64);
        Ok(())
    }

    /// Passes a whole body through the filters that have seen its head since it was gathered.
    pub(super) fn settle_whole(&mut self, direction: Direction) -> Result<(), Stop> {
        let Some(cx) = &mut self.cx else { return Ok(()) };
        let Some(whole) = cx.whole.take() else { return Ok(()) };
        let seen = Seen { data: &whole, mark: Mark::Last, trailers: None };
        let changed = run_body_hooks(&self.local, cx, direction, seen).map_err(Stop::Refuse)?;
        cx.held = None; // all of it has arrived
        cx.whole = Some(changed.map_or(whole, Bytes::from));
        match direction {
            Direction::Request if cx.request_pending.is_some() => {} // as below
            Direction::Request => cx.request_bodies.clear(),
            Direction::Response if cx.pending.is_some() => {} // its other filters have yet to see it
            Direction::Response => cx.response_bodies.clear(),
        }
        Ok(())
    }

    /// The same for a response. A filter may produce its replacement asynchronously.
    async fn settle_whole_response(&mut self) -> Result<(), Stop> {
        self.settle_whole(Direction::Response)?;
        if self.has_pending() {
            let made = Box::pin(self.pending_piece()).await.map_err(Stop::refuse)?;
            if let Some(cx) = &mut self.cx {
                cx.whole = Some(made.into());
                cx.response_bodies.clear();
            }
        }
        Ok(())
    }

    /// Whether a filter has promised a piece of the response.
    pub(super) fn has_pending(&self) -> bool {
        self.cx.as_ref().is_some_and(|cx| cx.pending.is_some())
    }

    /// Waits for room if a filter holds the response's body back.
    pub(super) async fn held(&mut self) {
        if let Some(mut hold) = self.cx.as_mut().and_then(|cx| cx.held.take()) {
            hold.0.as_mut().await;
        }
    }

    /// Waits for the promised piece.
    pub(super) async fn pending_piece(&mut self) -> Result<Vec<u8>, &'static Cause> {
        let mut made = Vec::new();
        while let Some(cx) = self.cx.as_mut().filter(|cx| cx.pending.is_some()) {
            let next = poll_fn(|task| poll_pending(&self.local, cx, Direction::Response, task, None)).await;
            made = next.map_err(|refusal| refusal.cause)?.unwrap_or_default();
        }
        Ok(made)
    }
}

/// Limits a filter's wait to the exchange's time.
fn in_time(end: Instant, waited: Waiting<'_>) -> Waiting<'_> {
    Box::pin(async move {
        let done = time::timeout_at(end, waited).await;
        done.unwrap_or_else(|_| Flow::refuse(&error::EXCHANGE_TIMEOUT))
    })
}

/// Splits a filter's decision about the request.
fn go_on(flow: Flow) -> Result<Option<Due>, Stop> {
    match flow {
        Flow::Continue => Ok(None),
        Flow::Gather(limit) => Ok(Some(Due::Gather(limit, BodyUse::Pass))),
        Flow::Run(list) => Ok(Some(Due::Run(list))),
        Flow::Wait => Ok(Some(Due::Wait)),
        Flow::Answer(answer) => Err(Stop::Answer(answer)),
        Flow::Refuse(refusal) => Err(Stop::Refuse(refusal)),
    }
}
