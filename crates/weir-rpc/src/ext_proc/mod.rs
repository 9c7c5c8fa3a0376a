//! `ext_proc`: lets an external processor of Envoy see and change requests and responses.
//!
//! `session` holds the conversation, `messages` its bytes, `mutation` applies changes to heads.
//!
//! Source: envoy/service/ext_proc/v3/external_processor.proto, and Envoy's documentation of its filter
//! `envoy.filters.http.ext_proc`.

mod messages;
mod mutation;
mod phases;
mod session;
mod settings;

use super::prelude::*;
use messages::{Immediate, Override, Pair, Phase};
use session::{Fault, Place, Session, Shared};
use settings::{BodyMode, ExtProcSettings, Without};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_filter::grpc;
use weir_h1::FieldName;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<ExtProcSettings>("ext_proc")
    .with_causes(&[&EXT_PROC_ANSWERED, &EXT_PROC_UNAVAILABLE]);

causes! {
    EXT_PROC_ANSWERED "ext_proc_answered" 502
        "The processor answered the request itself while a body was under way."
        "the processor that the filter ext_proc names"
    EXT_PROC_UNAVAILABLE "ext_proc_unavailable" 503
        "The processor did not answer, not in time, or not as asked."
        "the upstream, `timeout` or `without` of the filter ext_proc; the detail says what the processor did"
}

/// Most bytes of an answer besides a body.
const BESIDE_BODY: usize = 64 * 1024;

/// Most bytes of a whole body that are sent at once if it is streamed.
const PIECE: usize = 64 * 1024;

struct ExtProc {
    settings: ExtProcSettings,
    modes: Modes,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    ignored: AtomicU64,
}

/// How one message is processed.
#[derive(Clone, Copy, Debug)]
struct Side {
    headers: bool,
    body: BodyMode,
    trailers: bool,
}

#[derive(Clone, Copy, Debug)]
struct Modes {
    request: Side,
    response: Side,
}

/// What one exchange knows.
#[derive(Default)]
struct Known {
    session: Option<Shared>,
    modes: Option<Modes>,
    request: Step,
    response: Step,
    /// A body that replaces the message's as soon as that is read.
    replacement: Option<Vec<u8>>,
    is_grpc: bool,
    /// This filter refused the request or answered it.
    is_done: bool,
}

/// How far a message has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// Its head is next.
    #[default]
    Head,
    /// Its body is next.
    Body,
}

/// The exchange's note: the request has a body.
const REQUEST_BODY: u64 = 1;
/// The response has a body.
const RESPONSE_BODY: u64 = 2;

static ANSWERED: Figure =
    Figure::counter("answered", "weir_ext_proc_answered", "Requests that the processor answered itself.");
static FAILED: Figure =
    Figure::counter("failed", "weir_ext_proc_failed", "Exchanges in which the processor failed.");
static IGNORED: Figure = Figure::counter(
    "ignored",
    "weir_ext_proc_ignored",
    "Changes of fields that were ignored, because a processor may not make them.",
);

impl Filter for ExtProc {
    fn hooks(&self) -> Hooks {
        Hooks::ALL
    }

    fn request_body(&self, _: &RequestHead, cx: &mut Cx) -> BodyUse {
        *cx.note() |= REQUEST_BODY;
        BodyUse::Pass // it is asked for after the head was answered
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        self.identify(head, cx);
        let is_grpc = grpc::is_grpc(&head.headers);
        if head.upgrade().is_some() {
            *cx.note() &= !REQUEST_BODY; // what follows is no body
        }
        let known = cx.state::<Known>();
        known.is_grpc = is_grpc;
        known.modes = Some(self.modes);
        known.session = Some(Rc::new(RefCell::new(Session::new(self.longest(), self.trace(head)))));
        if self.modes.request.is_idle() { Flow::Continue } else { Flow::Wait }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let flow = self.request(head, cx).await;
            self.decided(flow, cx)
        })
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        self.later(Phase::RequestBody, piece, cx);
        Ok(())
    }

    fn response_body(&self, _: &ResponseHead, cx: &mut Cx) -> BodyUse {
        *cx.note() |= RESPONSE_BODY;
        BodyUse::Pass // as above
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let has_body = *cx.note() & RESPONSE_BODY != 0;
        let known = cx.state::<Known>();
        let is_grpc = known.is_grpc;
        let Some(session) = known.session.clone() else { return Flow::Continue };
        if let Some(answer) = session.borrow_mut().immediate.take() {
            // Given while the request's body was under way.
            known.is_done = true;
            return match self.answer(&answer, is_grpc) {
                Ok(answer) => Flow::Answer(Box::new(answer)),
                Err(why) => self.refuse(why),
            };
        }
        let side = known.modes.unwrap_or(self.modes).response;
        let sees = side.headers || (has_body && !side.is_idle());
        if known.is_done || session.borrow().is_closed() || !sees || head.status() == 101 {
            return Flow::Continue;
        }
        Flow::Wait
    }

    fn wait_response<'a>(&'a self, head: &'a mut ResponseHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let flow = self.response(head, cx).await;
            self.decided(flow, cx)
        })
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        self.later(Phase::ResponseBody, piece, cx);
        Ok(())
    }

    fn readings(&self) -> Vec<Reading> {
        let Counts { answered, failed, ignored } = &*self.counts;
        vec![
            Reading::one(&ANSWERED, answered.load(Relaxed)),
            Reading::one(&FAILED, failed.load(Relaxed)),
            Reading::one(&IGNORED, ignored.load(Relaxed)),
        ]
    }

    fn on_end(&self, _: &End, cx: &mut Cx) {
        let place = self.place(cx);
        if let Some(session) = cx.state::<Known>().session.take() {
            session::end(&session, &place);
        }
    }
}

impl Side {
    fn is_idle(self) -> bool {
        !self.headers && !self.trailers && self.body == BodyMode::None
    }

    /// How a body is processed: the trailers of gRPC would be lost if it were read whole.
    fn body(self, is_grpc: bool) -> BodyMode {
        match self.body {
            BodyMode::Buffered if is_grpc => BodyMode::Streamed,
            body => body,
        }
    }
}

impl Modes {
    fn follow(&mut self, wish: Override) -> Result<(), Fault> {
        let body = |mode: Option<u64>, before: BodyMode| match mode {
            None => Ok(before),
            Some(0) => Ok(BodyMode::None),
            Some(1) => Ok(BodyMode::Streamed),
            Some(2 | 3) => Ok(BodyMode::Buffered),
            Some(_) => Err(Fault::Failed("it asked for a body mode that is not supported")),
        };
        let (of_request, of_response) =
            (body(wish.request_body, self.request.body)?, body(wish.response_body, self.response.body)?);
        (self.request.body, self.response.body) = (of_request, of_response);
        self.request.trailers = wish.request_trailers.unwrap_or(self.request.trailers);
        self.response.headers = wish.response_headers.unwrap_or(self.response.headers);
        self.response.trailers = wish.response_trailers.unwrap_or(self.response.trailers);
        Ok(())
    }
}

impl ExtProc {
    /// The longest message from the processor.
    fn longest(&self) -> usize {
        self.settings.limit.as_usize().saturating_add(BESIDE_BODY)
    }

    fn place(&self, cx: &Cx) -> Place {
        Place {
            upstream: self.settings.upstream.as_str().into(),
            core: cx.core().clone(),
            timeout: self.settings.timeout.get(),
        }
    }

    /// A processor may decide by anything that it sees, so a stored response serves only requests with the same fields.
    fn identify(&self, head: &RequestHead, cx: &mut Cx) {
        let mut who = Vec::new();
        for (name, value) in self.shown(head.headers.iter()) {
            for part in [name, value] {
                who.extend_from_slice(&part.len().to_le_bytes()); // different lists of parts give different bytes
                who.extend_from_slice(part);
            }
        }
        cx.restricts();
        cx.identify("ext_proc", &who);
    }

    /// The request's trace context (W3C Trace Context), so that the processor's work shows in the request's trace.
    fn trace(&self, head: &RequestHead) -> Vec<(FieldName, Vec<u8>)> {
        let of = |name: &'static str| head.headers.get_all(name).map(move |value| (name.as_bytes(), value));
        let found = self.shown(["traceparent", "tracestate"].into_iter().flat_map(of));
        let owned = |(name, value): Pair<'_>| {
            let name = std::str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok());
            Some((name?, value.to_vec()))
        };
        found.into_iter().filter_map(owned).collect()
    }

    /// The fields that the processor sees.
    fn shown<'a>(&self, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<Pair<'a>> {
        let hidden = |name: &[u8]| {
            self.settings.withhold.iter().any(|hidden| hidden.as_str().as_bytes().eq_ignore_ascii_case(name))
        };
        fields.filter(|(name, _)| !hidden(name)).collect()
    }

    /// The flow after a phase: its own, the answer of the processor, or what `without` says about a failure.
    fn decided(&self, flow: Result<Flow, Fault>, cx: &mut Cx) -> Flow {
        let known = cx.state::<Known>();
        let is_grpc = known.is_grpc;
        let Some(session) = known.session.clone() else { return Flow::Continue };
        match flow {
            Ok(flow) => flow,
            Err(Fault::Answered) => {
                known.is_done = true;
                let answer = session.borrow_mut().immediate.take().unwrap_or_default();
                match self.answer(&answer, is_grpc) {
                    Ok(answer) => Flow::Answer(Box::new(answer)),
                    // The processor meant to stop the request, so it must not pass.
                    Err(why) => self.refuse(why),
                }
            }
            Err(Fault::Failed(_)) if self.settings.without == Without::Pass => {
                self.counts.failed.fetch_add(1, Relaxed);
                session.borrow_mut().pass();
                Flow::Continue
            }
            Err(Fault::Failed(why)) => {
                known.is_done = true;
                self.refuse(why)
            }
        }
    }

    fn refuse(&self, why: &str) -> Flow {
        self.counts.failed.fetch_add(1, Relaxed);
        let mut refusal = Refusal::new(&EXT_PROC_UNAVAILABLE);
        refusal.detail = Some(format!("The processor failed: {why}."));
        Flow::Refuse(refusal)
    }

    /// The processor's own answer.
    fn answer(&self, answer: &Immediate, is_grpc: bool) -> Result<Answer, &'static str> {
        let status = u16::try_from(answer.status).ok().filter(|status| (200..=599).contains(status));
        let status = status.ok_or("it answered with an invalid status")?;
        let mut head = ResponseHead::made(if is_grpc { 200 } else { status });
        let ignored = mutation::of_response(&answer.mutation, &mut head)?;
        self.counts.ignored.fetch_add(ignored, Relaxed);
        self.counts.answered.fetch_add(1, Relaxed);
        let mut headers = Vec::new();
        for (name, value) in head.headers.iter() {
            let name = std::str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok());
            headers.extend(name.map(|name| (name, value.to_vec())));
        }
        if !is_grpc {
            return Ok(Answer { status: head.status(), headers, body: answer.body.clone().into() });
        }
        // A gRPC client reads its status from a field (Envoy does the same).
        let code = answer.grpc_status.unwrap_or_else(|| weir_transcode::of_http(status).into());
        let message = grpc::escape(&String::from_utf8_lossy(&answer.body));
        for (name, value) in [
            ("content-type", "application/grpc".to_owned()),
            ("grpc-status", code.to_string()),
            ("grpc-message", message),
        ] {
            headers.retain(|(known, _)| !known.as_str().eq_ignore_ascii_case(name));
            headers.extend(FieldName::new(name).ok().map(|name| (name, value.into_bytes())));
        }
        Ok(Answer { status: 200, headers, body: Body::default() })
    }

    /// Adopts the `mode_override` of an answer to a head.
    fn follow_wish(&self, session: &Shared, cx: &mut Cx) -> Result<(), Fault> {
        let wish = session.borrow_mut().wish.take();
        match (wish.filter(|_| self.settings.mode_override), &mut cx.state::<Known>().modes) {
            (Some(wish), Some(modes)) => modes.follow(wish),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
