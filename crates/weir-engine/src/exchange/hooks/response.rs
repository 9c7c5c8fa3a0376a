//! Runs an exchange's filters on the response.

use super::super::sent::Attempt;
use super::super::{Exchange, Phase, Stop, unless_gone};
use super::Due;
use crate::autopsy::body;
use crate::respond::{self, LocalResponse};
use crate::snapshot::Instance;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use weir_filter::filter::{Answer, Body, BodyUse, Flow, Hooks, Refusal};
use weir_filter::phrases::neutral;
use weir_h1::{BodyKind, Method, ResponseHead};

/// An upstream's response that its filters replaced or hid, or that not all of them have seen yet.
pub(in crate::exchange) struct Unfiltered<'a> {
    pub(in crate::exchange) reply: Reply<'a>,
    /// The filter that must wait, by its place among those that ran, and for what.
    pub(in crate::exchange) due: Option<(usize, Due)>,
}

/// A response as its filters see it: our own, or an upstream's whose body is still arriving.
#[allow(clippy::large_enum_variant)] // lives only while filters see it
pub(in crate::exchange) enum Reply<'a> {
    Local(LocalResponse),
    /// `None` once its body was gathered or another response replaced it.
    Upstream(&'a mut Option<Attempt>),
}

impl Exchange<'_> {
    /// Runs `on_response` of every filter that saw the request, in reverse. A filter may replace the response; the
    /// remaining filters see the new one.
    pub(in crate::exchange) async fn filter_response(&mut self, reply: &mut Reply<'_>) -> Result<(), Stop> {
        let due = self.filter_response_on(reply);
        self.filter_response_rest(reply, due).await
    }

    /// The same for an upstream's response, without a future. `None` if all filters are done and the response is to be
    /// transferred: nearly always.
    pub(in crate::exchange) fn filter_at_hand<'a>(
        &mut self,
        attempt: &'a mut Option<Attempt>,
    ) -> Option<Box<Unfiltered<'a>>> {
        let head = &mut *attempt.as_mut()?.response;
        let stopped = match self.begin_response(head.status()) {
            true => self.filter_heads_below(head, true, self.ran.len()),
            false => None,
        };
        if stopped.is_none() && self.cx.as_ref().is_none_or(|cx| !cx.hides_body) {
            return None;
        }
        self.filter_others(attempt, stopped)
    }

    /// Continues [`Self::filter_at_hand`] at the filter that made a decision or needs more than the head. If none did,
    /// a filter hides the body.
    #[inline(never)]
    fn filter_others<'a>(
        &mut self,
        attempt: &'a mut Option<Attempt>,
        stopped: Option<(usize, Option<Flow>)>,
    ) -> Option<Box<Unfiltered<'a>>> {
        let mut reply = Reply::Upstream(attempt);
        let due = stopped.and_then(|stopped| self.filter_response_from(&mut reply, stopped));
        let is_hidden = self.cx.as_ref().is_some_and(|cx| cx.hides_body);
        if due.is_none() && !is_hidden && matches!(reply, Reply::Upstream(_)) {
            return None;
        }
        Some(Box::new(Unfiltered { reply, due }))
    }

    /// Runs the filters up to the first one that must wait.
    fn filter_response_on(&mut self, reply: &mut Reply<'_>) -> Option<(usize, Due)> {
        let status = reply.head().map_or(0, |head| head.status());
        if self.begin_response(status) { self.filter_response_below(reply, self.ran.len()) } else { None }
    }

    /// Prepares a response for its filters. Returns whether any has a hook for it.
    #[inline(always)] // as `filter_heads_below`
    fn begin_response(&mut self, status: u16) -> bool {
        self.phase = Phase::Filtered;
        if let Some(cx) = &mut self.cx {
            cx.whole = None; // a request's body that was answered early
        }
        if !self.hooks.has_any(Hooks::RESPONSE | Hooks::RESPONSE_BODY) {
            return false;
        }
        if self.local.snapshot.reads.upstream
            && let (Some(cx), Some(upstream)) = (&mut self.cx, self.record.upstream)
        {
            cx.tell_upstream(Arc::clone(&self.local.snapshot.upstreams[upstream].name));
        }
        if status >= 400 && self.cx.as_ref().is_some_and(|cx| cx.failure.is_none()) {
            let failure = self.failure(None, neutral(status).to_owned());
            if let Some(cx) = &mut self.cx {
                cx.failure = Some(failure);
            }
        }
        true
    }

    /// Waits for the filter that must, then runs the others.
    pub(in crate::exchange) async fn filter_response_rest(
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
    fn filter_response_below(&mut self, reply: &mut Reply<'_>, end: usize) -> Option<(usize, Due)> {
        let is_relayed = matches!(reply, Reply::Upstream(_));
        let stopped = self.filter_heads_below(reply.head()?, is_relayed, end)?;
        self.filter_response_from(reply, stopped)
    }

    /// Runs the response filters from the one where [`Self::filter_heads_below`] stopped, up to one that must wait.
    fn filter_response_from(
        &mut self,
        reply: &mut Reply<'_>,
        mut stopped: (usize, Option<Flow>),
    ) -> Option<(usize, Due)> {
        loop {
            let (at, decided) = stopped;
            let due = match decided {
                Some(decided) => self.decided(reply, decided),
                None => self.filter_response_one(reply, self.ran[at]),
            };
            if let Some(due) = due {
                return Some((at, due));
            }
            let is_relayed = matches!(reply, Reply::Upstream(_));
            stopped = self.filter_heads_below(reply.head()?, is_relayed, at)?;
        }
    }

    /// Runs the response filters before index `end`, as long as they need only the head of an upstream's response.
    /// Stops at the first filter that makes a decision, and returns it, or at the first that needs more than the head.
    #[inline(always)] // for nearly every response, it is all that happens
    fn filter_heads_below(
        &mut self,
        head: &mut ResponseHead,
        is_relayed: bool,
        end: usize,
    ) -> Option<(usize, Option<Flow>)> {
        let cx = self.cx.as_mut()?;
        let (filters, ran) = (&*self.local.snapshot.filters, self.ran.get(..end)?);
        for (at, &index) in ran.iter().enumerate().rev() {
            let Instance { filter, hooks, .. } = &*filters[index as usize];
            if !hooks.has_any(Hooks::RESPONSE | Hooks::RESPONSE_BODY) {
                continue;
            }
            if !is_relayed || hooks.has(Hooks::RESPONSE_BODY) {
                return Some((at, None));
            }
            (cx.filter, cx.is_relayed) = (index, true);
            match filter.on_response(head, cx) {
                Flow::Continue => {} // nearly always
                decided => return Some((at, Some(decided))),
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
