//! Phases 2 and 5: runs an exchange's filters on heads and bodies.
//!
//! Few filters wait or want a whole body, so the common ones run without a future of their own.

use super::bodies::{Direction, poll_pending, run_body_hooks};
use super::sent::Attempt;
use super::{Exchange, Phase, Stop, unless, unless_gone};
use crate::autopsy::body;
use crate::client::Departure;
use crate::core::Local;
use crate::forward;
use crate::respond::{self, LocalResponse};
use crate::snapshot::{Handling, Instance, Snapshot};
use crate::to_run::ToRun;
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use weir_filter::filter::{self, Answer, Body, BodyUse, Flow, GrpcStatus, Hooks, Refusal, Waiting};
use weir_filter::grpc;
use weir_filter::phrases::neutral;
use weir_h1::{BodyKind, Method, ResponseHead};
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::{LocalEndpoint, LocalUpstream};
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

/// An upstream's response that its filters replaced or hid, or that not all of them have seen yet.
pub(super) struct Unfiltered<'a> {
    pub(super) reply: Reply<'a>,
    /// The filter that must wait, by its place among those that ran, and for what.
    pub(super) due: Option<(usize, Due)>,
}

/// A response as its filters see it: our own, or an upstream's whose body is still arriving.
#[allow(clippy::large_enum_variant)] // lives only while filters see it
pub(super) enum Reply<'a> {
    Local(LocalResponse),
    /// `None` once its body was gathered or another response replaced it.
    Upstream(&'a mut Option<Attempt>),
}

// === The request ===

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
        self.ran.push(index);
        self.hooks = self.hooks | instance.hooks;
        self.head.headers.remove_twins(&instance.guards.request);
        if instance.hooks.has_any(Hooks::REQUEST_BODY | Hooks::READS_BODY)
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

    // === Attempts ===

    /// Shows a new attempt to the filters that ask for it. Returns whether one must wait (`attempt_waits`).
    #[inline]
    pub(super) fn attempt_begins(
        &mut self,
        upstream: &LocalUpstream,
        at: &LocalEndpoint,
        began: Instant,
    ) -> Result<bool, Stop> {
        if self.hooks.has(Hooks::ATTEMPT) { self.show_attempt(upstream, at, began) } else { Ok(false) }
    }

    fn show_attempt(
        &mut self,
        upstream: &LocalUpstream,
        at: &LocalEndpoint,
        began: Instant,
    ) -> Result<bool, Stop> {
        let mut waits = false;
        let Some(cx) = &mut self.cx else { return Ok(waits) };
        let filters = &self.local.snapshot.filters;
        let number = self.attempts;
        let (name, label) = (&upstream.spec.name, &at.endpoint.label);
        for &index in self.ran.iter().filter(|&&f| filters[f as usize].hooks.has(Hooks::ATTEMPT)) {
            cx.filter = index;
            if cx.attempt.is_none() {
                cx.attempt = Some((began, number, Arc::clone(name), Arc::clone(label)));
            }
            let host = forward::host_for(&self.head, &upstream.spec.host, &at.endpoint);
            let tls = upstream.spec.tls.is_some();
            let attempt = filter::Attempt { upstream: name, endpoint: label, number, host, tls };
            let checked = filters[index as usize].filter.on_attempt(&mut self.head, &attempt, cx);
            if let Err(refusal) = checked {
                self.record.stopped_by = Some(index);
                self.attempt_ends(0, None); // no endpoint was asked
                return Err(Stop::Refuse(refusal));
            }
            waits |= filters[index as usize].hooks.has(Hooks::ATTEMPT_WAIT);
        }
        Ok(waits)
    }

    /// Waits for the filters that must wait before an attempt continues.
    pub(super) async fn attempt_waits(
        &mut self,
        upstream: &LocalUpstream,
        at: &LocalEndpoint,
    ) -> Result<(), Stop> {
        let local = Rc::clone(&self.local);
        let filters = &local.snapshot.filters;
        let (name, label) = (&upstream.spec.name, &at.endpoint.label);
        for at_index in 0..self.ran.len() {
            let index = self.ran[at_index];
            let instance = &filters[index as usize];
            let Some(cx) = self.cx.as_mut().filter(|_| instance.hooks.has(Hooks::ATTEMPT_WAIT)) else {
                continue;
            };
            cx.filter = index;
            let host = forward::host_for(&self.head, &upstream.spec.host, &at.endpoint);
            let (tls, number) = (upstream.spec.tls.is_some(), self.attempts);
            let attempt = filter::Attempt { upstream: name, endpoint: label, number, host, tls };
            let waited = instance.filter.wait_attempt(&mut self.head, &attempt, cx);
            let (stop, cause) = match unless_gone(self.client, pin!(waited)).await {
                Ok(Ok(())) => continue,
                Ok(Err(refusal)) => {
                    self.record.stopped_by = Some(index);
                    (Stop::Refuse(refusal), None) // no endpoint was asked
                }
                Err(gone) => {
                    let cause = gone.cause();
                    (gone, Some(cause))
                }
            };
            self.attempt_ends(0, cause);
            return Err(stop);
        }
        Ok(())
    }

    /// The same when the attempt ends with an answer.
    pub(super) fn attempt_answered(&mut self, head: &ResponseHead) {
        if !self.hooks.has(Hooks::ATTEMPT) {
            return;
        }
        let grpc = self.grpc.then(|| grpc::status_of(&head.headers));
        let grpc = grpc.map(|told| told.map_or(GrpcStatus::ToCome, GrpcStatus::Received));
        self.attempt_ended((head.status(), Some(head)), grpc, None);
    }

    /// The same when it ends without an answer, or with one that nobody will see.
    pub(super) fn attempt_ends(&mut self, status: u16, cause: Option<&'static Cause>) {
        self.attempt_ended((status, None), None, cause);
    }

    fn attempt_ended(
        &mut self,
        (status, head): (u16, Option<&ResponseHead>),
        grpc: Option<GrpcStatus>,
        cause: Option<&'static Cause>,
    ) {
        let Some(cx) = &mut self.cx else { return };
        let Some((began, number, upstream, endpoint)) = cx.attempt.take() else { return };
        let attempt =
            filter::Attempt { upstream: &upstream, endpoint: &endpoint, number, host: None, tls: false };
        let at = Instant::now();
        let took = at.saturating_duration_since(began);
        let end = filter::AttemptEnd { attempt, status, head, grpc, cause, took, at };
        let filters = &self.local.snapshot.filters;
        for &index in self.ran.iter().rev().filter(|&&f| filters[f as usize].hooks.has(Hooks::ATTEMPT)) {
            cx.filter = index;
            filters[index as usize].filter.on_attempt_end(&end, cx);
        }
    }

    // === The response ===

    /// Runs `on_response` of every filter that saw the request, in reverse. A filter may replace the response; the
    /// remaining filters see the new one.
    pub(super) async fn filter_response(&mut self, reply: &mut Reply<'_>) -> Result<(), Stop> {
        let due = self.filter_response_on(reply);
        self.filter_response_rest(reply, due).await
    }

    /// The same for an upstream's response, without a future. `None` if all filters are done and the response is to be
    /// transferred: nearly always.
    pub(super) fn filter_at_hand<'a>(
        &mut self,
        attempt: &'a mut Option<Attempt>,
    ) -> Option<Box<Unfiltered<'a>>> {
        let mut reply = Reply::Upstream(attempt);
        let due = self.filter_response_on(&mut reply);
        let is_hidden = self.cx.as_ref().is_some_and(|cx| cx.hides_body);
        if due.is_none() && !is_hidden && matches!(reply, Reply::Upstream(_)) {
            return None;
        }
        Some(Box::new(Unfiltered { reply, due }))
    }

    /// Runs the filters up to the first one that must wait.
    fn filter_response_on(&mut self, reply: &mut Reply<'_>) -> Option<(usize, Due)> {
        self.phase = Phase::Filtered;
        if let Some(cx) = &mut self.cx {
            cx.whole = None; // a request's body that was answered early
        }
        if !self.hooks.has_any(Hooks::RESPONSE | Hooks::RESPONSE_BODY) {
            return None;
        }
        if self.local.snapshot.reads.upstream
            && let (Some(cx), Some(upstream)) = (&mut self.cx, self.record.upstream)
        {
            cx.tell_upstream(Arc::clone(&self.local.snapshot.upstreams[upstream].name));
        }
        let status = reply.head().map_or(0, |head| head.status());
        if status >= 400 && self.cx.as_ref().is_some_and(|cx| cx.failure.is_none()) {
            let failure = self.failure(None, neutral(status).to_owned());
            if let Some(cx) = &mut self.cx {
                cx.failure = Some(failure);
            }
        }
        self.filter_response_below(reply, self.ran.len())
    }

    /// Waits for the filter that must, then runs the others.
    pub(super) async fn filter_response_rest(
        &mut self,
        reply: &mut Reply<'_>,
        mut due: Option<(usize, Due)>,
    ) -> Result<(), Stop> {
        while let Some((at, what)) = due {
            Box::pin(self.filter_response_wait(reply, self.ran[at], what)).await?;
            due = self.filter_response_below(reply, at);
        }
        if let Reply::Local(local) = reply {
            self.settle_whole_response().await?;
            if let Some(whole) = self.cx.as_mut().and_then(|cx| cx.whole.take()) {
                local.body = Body::Bytes(whole);
            }
        }
        Ok(())
    }

    /// Runs the response filters before place `end`, the last first, up to one that must wait.
    #[inline(always)] // for nearly every response, it is all that happens
    fn filter_response_below(&mut self, reply: &mut Reply<'_>, end: usize) -> Option<(usize, Due)> {
        for at in (0..end).rev() {
            let index = self.ran[at];
            let hooks = self.local.snapshot.filters[index as usize].hooks;
            if !hooks.has_any(Hooks::RESPONSE | Hooks::RESPONSE_BODY) {
                continue;
            }
            let is_head_alone = matches!(reply, Reply::Upstream(_)) && !hooks.has(Hooks::RESPONSE_BODY);
            let due = match is_head_alone {
                true => self.on_response(reply, index),
                false => self.filter_response_one(reply, index),
            };
            if let Some(due) = due {
                return Some((at, due));
            }
        }
        None
    }

    /// Runs a filter on a response of our own, or one whose body it may want.
    fn filter_response_one(&mut self, reply: &mut Reply<'_>, index: u32) -> Option<Due> {
        let instance = &self.local.snapshot.filters[index as usize];
        if let (Reply::Local(local), Some(cx)) = (&*reply, &mut self.cx) {
            cx.own_length = local.body.length();
        }
        let is_bare = self.answers_head() && matches!(reply, Reply::Local(_));
        let is_hidden = self.cx.as_ref().is_some_and(|cx| cx.hides_body);
        if instance.hooks.has(Hooks::RESPONSE_BODY)
            && !is_bare
            && !is_hidden
            && reply.has_body(self.head.method())
        {
            let (cx, head) = (self.cx.as_mut()?, reply.head()?);
            cx.filter = index;
            match instance.filter.response_body(head, cx) {
                BodyUse::Whole(limit) | BodyUse::WholeWatched(limit) => {
                    return Some(Due::Gather(limit, BodyUse::Pass));
                }
                body => cx.response_bodies.add(index, body),
            }
        }
        self.on_response(reply, index)
    }

    #[inline(always)] // as `ask`
    fn on_response(&mut self, reply: &mut Reply<'_>, index: u32) -> Option<Due> {
        let instance = &self.local.snapshot.filters[index as usize];
        if !instance.hooks.has(Hooks::RESPONSE) {
            return None;
        }
        let is_relayed = matches!(reply, Reply::Upstream(_));
        let (cx, head) = (self.cx.as_mut()?, reply.head()?);
        (cx.filter, cx.is_relayed) = (index, is_relayed);
        match instance.filter.on_response(head, cx) {
            Flow::Continue => None, // nearly always
            decided => self.decided(reply, decided),
        }
    }

    /// What follows a filter's decision about the response.
    fn decided(&mut self, reply: &mut Reply<'_>, flow: Flow) -> Option<Due> {
        match flow {
            Flow::Continue | Flow::Run(_) => None,
            Flow::Gather(limit) => Some(Due::Gather(limit, BodyUse::Pass)),
            Flow::Wait => Some(Due::Wait),
            Flow::Answer(answer) => {
                self.replace(reply, Ok(answer));
                None
            }
            Flow::Refuse(refusal) => {
                self.replace(reply, Err(refusal));
                None
            }
        }
    }

    async fn filter_response_wait(
        &mut self,
        reply: &mut Reply<'_>,
        index: u32,
        due: Due,
    ) -> Result<(), Stop> {
        let began = self.client.core.autopsies.is_on().then(Instant::now);
        let waited = self.filter_response_waited(reply, index, due).await;
        self.waited(self.local.snapshot.filters[index as usize].name, began);
        waited
    }

    async fn filter_response_waited(
        &mut self,
        reply: &mut Reply<'_>,
        index: u32,
        due: Due,
    ) -> Result<(), Stop> {
        if let Due::Gather(limit, _) = due {
            match self.gather_reply(reply, limit).await {
                Ok(()) => {}
                Err(Stop::Refuse(refusal)) => self.replace(reply, Err(refusal)),
                Err(stop) => return Err(stop),
            }
            if self.on_response(reply, index).is_none() {
                return Ok(());
            }
        }
        if let Some(limit) = self.filter_response_wait_once(reply, index).await? {
            match self.gather_reply(reply, limit).await {
                Ok(()) => {
                    self.filter_response_wait_once(reply, index).await?;
                }
                Err(Stop::Refuse(refusal)) => self.replace(reply, Err(refusal)),
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    /// Returns the limit of the body if the filter needs it whole first.
    async fn filter_response_wait_once(
        &mut self,
        reply: &mut Reply<'_>,
        index: u32,
    ) -> Result<Option<usize>, Stop> {
        let local = Rc::clone(&self.local);
        let is_relayed = matches!(reply, Reply::Upstream(_));
        let (Some(cx), Some(head)) = (&mut self.cx, reply.head()) else { return Ok(None) };
        (cx.filter, cx.is_relayed) = (index, is_relayed);
        let filter = &local.snapshot.filters[index as usize];
        let waited = filter.filter.wait_response(head, cx);
        let began = self.record.trace.as_ref().map(|_| Instant::now());
        let flow = unless_gone(self.client, pin!(waited)).await;
        self.trace_wait(filter.name, began);
        match flow? {
            Flow::Gather(limit) => return Ok(Some(limit)),
            Flow::Continue | Flow::Run(_) | Flow::Wait => {}
            Flow::Answer(answer) => self.replace(reply, Ok(answer)),
            Flow::Refuse(refusal) => self.replace(reply, Err(refusal)),
        }
        Ok(None)
    }

    /// Gathers a response's body before its filter sees the head.
    async fn gather_reply(&mut self, reply: &mut Reply<'_>, limit: usize) -> Result<(), Stop> {
        match reply {
            Reply::Upstream(attempt) => {
                let Some(attempt) = attempt.take() else { return Ok(()) };
                let (head, body) = self.gather_response(attempt, limit).await?;
                *reply = Reply::Local(LocalResponse { head: *head, body: Body::default() });
                if let Some(cx) = &mut self.cx {
                    cx.response_bodies.clear(); // they have seen it
                    cx.whole = Some(body);
                }
                Ok(())
            }
            Reply::Local(local) => {
                if self.cx.as_ref().is_some_and(|cx| cx.whole.is_none()) {
                    let body = self.gather_local(std::mem::take(&mut local.body), limit).await?;
                    if let Some(cx) = &mut self.cx {
                        cx.whole = Some(body);
                    }
                }
                self.settle_whole_response().await
            }
        }
    }

    /// Replaces the response that filters have seen so far. None of that one has been sent.
    fn replace(&mut self, reply: &mut Reply<'_>, by: Result<Box<Answer>, Box<Refusal>>) {
        if let Reply::Upstream(attempt) = reply
            && let Some(attempt) = attempt.take()
        {
            self.let_go(attempt);
        }
        if let Some(cx) = &mut self.cx {
            cx.response_bodies.clear();
            cx.whole = None;
            cx.hides_body = false;
            (cx.pending, cx.held) = (None, None);
            self.record.stopped_by.get_or_insert(cx.filter); // a page in place of a refusal is none of its own
        }
        *reply = Reply::Local(match by {
            Ok(answer) => {
                if answer.status >= 400 && self.calls_grpc() && self.client.core.autopsies.is_on() {
                    self.hear(&answer.body); // the service's error, as the filter puts it
                }
                let mut response = respond::answer(*answer);
                self.name_cause(&mut response);
                response
            }
            Err(refusal) => self.refused(&refusal),
        });
    }
}

impl Exchange<'_> {
    /// Keeps the text of an error that a filter has made from an upstream's.
    #[cold]
    fn hear(&mut self, made: &Body) {
        if let Body::Bytes(made) = made {
            let part = made.get(..made.len().min(body::HEARD_BYTES)).unwrap_or_default();
            self.record.hear(part.to_vec());
        }
    }
}

impl Reply<'_> {
    fn head(&mut self) -> Option<&mut ResponseHead> {
        match self {
            Self::Local(local) => Some(&mut local.head),
            Self::Upstream(attempt) => (**attempt).as_mut().map(|attempt| &mut *attempt.response),
        }
    }

    fn has_body(&self, method: Method) -> bool {
        match self {
            Self::Local(local) => method != Method::Head && !matches!(local.head.status(), 204 | 304),
            Self::Upstream(attempt) => (**attempt).as_ref().is_some_and(|attempt| {
                attempt.response.status() != 101 && attempt.response.body(method) != BodyKind::Empty
            }),
        }
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
