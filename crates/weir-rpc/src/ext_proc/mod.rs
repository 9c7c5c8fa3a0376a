//! `ext_proc`: lets an external processor of Envoy see and change requests and responses.
//!
//! `session` holds the conversation, `messages` its bytes, `mutation` applies changes to heads.
//!
//! Source: envoy/service/ext_proc/v3/external_processor.proto, and Envoy's documentation of its filter
//! `envoy.filters.http.ext_proc`.

mod messages;
mod mutation;
mod session;

use super::prelude::*;
use messages::{Common, Immediate, Override, Pair, Phase};
use session::{Fault, Place, Session, Shared, ask};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_filter::filter::Made;
use weir_filter::grpc;
use weir_h1::{BodyKind, FieldName, Method};

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

/// Lets an external processor see and change requests and responses: the client of Envoy's external processing v3
/// (`envoy.service.ext_proc.v3.ExternalProcessor/Process`), so that processors written for Envoy run unchanged.
///
/// Each exchange is one gRPC stream. The processor gets the request's head, and, as configured, bodies, trailers and
/// the response's head; the exchange waits for each answer. It may change fields and bodies, replace a body
/// (`CONTINUE_AND_REPLACE`) or answer the request itself (`immediate_response`). If it ends the stream with OK,
/// everything else passes.
///
/// **Bodies.** `buffered` reads a body whole, up to `limit`, and sends it as one message; a longer request gets 413, a
/// longer response becomes 502. Changes of the head in the answer apply. `streamed` sends each piece as it arrives
/// (at most 64 KiB), waits for its answer and sends it on; the length is unknown then. gRPC messages are streamed also
/// where the mode says `buffered`, because their trailers follow. Trailers are sent with a body that is streamed or
/// not processed, if there are any. With `body: none` and `trailers: send`, a body of HTTP/1 with a `Content-Length`
/// keeps it, because no trailers follow it; one of HTTP/2 loses it, because some might.
///
/// **Fields.** The processor sees all fields of the head as this filter finds them, in lower case, values in
/// `raw_value`; also `:method`, `:scheme`, `:authority` and `:path`, or `:status`. **Credentials are among them**
/// (`authorization`, `cookie`): put filters that hide them before it, or name them under `withhold`. It may set `:path`
/// (the route stays) and `:status`, and all fields but `host`, `x-envoy-*`, `content-length` and those that frame the
/// message or belong to one connection; changes of these are ignored and counted. A field is overwritten unless
/// `append` or `append_action` says otherwise. A field that cannot be sent counts as a failure.
///
/// **Failures.** If the processor cannot be reached, does not answer within `timeout`, answers what was not asked,
/// sends too much or breaks off, `without` decides: `refuse` answers 503, or cuts a response that has begun;
/// `pass` goes on without it. An answer of its own that cannot be sent is always 503, because it meant to stop the
/// request. `weir_ext_proc_failed_total` counts failures.
///
/// **Traces.** The call carries the request's `traceparent` and `tracestate`, unless `withhold` names them.
///
/// **Not done.** Attributes and metadata are not sent; dynamic metadata, `clear_route_cache`, trailers added to a body
/// and `override_message_timeout` are ignored. `BUFFERED_PARTIAL` counts as `buffered`; the duplex and gRPC body modes
/// and observability mode are not supported.
///
/// The upstream must speak HTTP/2: `protocol: h2c`. Its connect timeouts, limits and `retry` apply until the first
/// answer begins; without `retry`, a call that met the end of a connection is repeated, for at most 20 % of calls.
/// **Caches:** what passed a processor is kept only for requests with the same fields as the processor saw.
///
/// ```yaml
/// - ext_proc: { upstream: processor }
/// - ext_proc: { upstream: processor, timeout: 1s, request: { body: buffered }, response: { headers: send, body: streamed } }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExtProcSettings {
    /// Name of the upstream that is the processor.
    upstream: String,
    /// How long each answer may take; the first also includes connecting. Default `200ms`, as in Envoy.
    #[serde(default = "timeout")]
    timeout: Duration,
    /// What happens without an answer: `refuse` the request, or `pass` it on. Default `refuse`.
    #[serde(default)]
    without: Without,
    /// What the processor sees of requests. Default: the head.
    #[serde(default)]
    request: OfRequest,
    /// What the processor sees of responses. Default: the head.
    #[serde(default)]
    response: OfResponse,
    /// Whether the processor's answers to heads may change how the rest of the exchange is processed
    /// (`mode_override`). Default `false`.
    #[serde(default)]
    mode_override: bool,
    /// Longest body that is `buffered` or replaced, and beside 64 KiB the longest answer. Default `1MiB`.
    #[serde(default = "limit")]
    limit: ByteSize,
    /// Fields of requests and responses that the processor does not see. Default none.
    #[serde(default)]
    withhold: Vec<HeaderName>,
}

/// What the processor sees of requests.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct OfRequest {
    /// `send` the head, or `skip` it. Default `send`.
    headers: Sends,
    /// `none`, `buffered` or `streamed`. Default `none`.
    body: BodyMode,
    /// `send` trailers, or `skip` them. Default `skip`.
    trailers: Skips,
}

/// What the processor sees of responses.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct OfResponse {
    /// `send` the head, or `skip` it. Default `send`.
    headers: Sends,
    /// `none`, `buffered` or `streamed`. Default `none`.
    body: BodyMode,
    /// `send` trailers, or `skip` them. Default `skip`.
    trailers: Skips,
}

/// Whether a part is sent, by default.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Sends {
    /// It is sent.
    #[default]
    Send,
    /// It is not.
    Skip,
}

/// The same, not by default.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Skips {
    /// It is sent.
    Send,
    /// It is not.
    #[default]
    Skip,
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum BodyMode {
    /// Whole, in one message.
    Buffered,
    /// Not at all.
    #[default]
    None,
    /// In pieces.
    Streamed,
}

/// What happens without an answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Without {
    /// The exchange goes on.
    Pass,
    /// It is refused.
    #[default]
    Refuse,
}

const fn timeout() -> Duration {
    Duration(std::time::Duration::from_millis(200))
}

const fn limit() -> ByteSize {
    ByteSize(1024 * 1024)
}

/// Longest body that may be held.
const MAX_LIMIT: u64 = 64 * 1024 * 1024;

/// What an answer may have beside a body, in bytes.
const BESIDE_BODY: usize = 64 * 1024;

/// How much of a whole body is sent at once if it is streamed, in bytes.
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

/// Where a message is.
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

impl IntoFilter for ExtProcSettings {
    type Filter = ExtProc;

    fn into_filter(self, build: &mut Build<'_>) -> Option<ExtProc> {
        let before = build.mistakes.len();
        build.needs_upstream("upstream", &self.upstream);
        if self.timeout.get().is_zero() {
            build.refuse("timeout", "leaves no time for an answer", Some("write 200ms".into()));
        }
        if !(1..=MAX_LIMIT).contains(&self.limit.get()) {
            let message = format!("{} cannot be held; expected at most 64MiB", self.limit);
            build.refuse("limit", message, Some("write 1MiB".into()));
        }
        let modes = Modes {
            request: Side {
                headers: self.request.headers == Sends::Send,
                body: self.request.body,
                trailers: self.request.trailers == Skips::Send,
            },
            response: Side {
                headers: self.response.headers == Sends::Send,
                body: self.response.body,
                trailers: self.response.trailers == Skips::Send,
            },
        };
        if modes.request.is_idle() && modes.response.is_idle() {
            let hint = "leave out one of the `skip`";
            build.refuse("", "sends the processor nothing", Some(hint.into()));
        }
        (build.mistakes.len() == before).then(|| ExtProc {
            settings: self,
            modes,
            counts: build.keep_for("counts", |_| true, |_| Counts::default()),
        })
    }
}

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

    /// A processor decides by anything that it sees, so answers belong to requests that look the same.
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

    /// What follows from a phase that went wrong, if any did.
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
                    // It meant to stop the request, so that this one does not pass.
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

    /// Adopts the wish of an answer about a head.
    fn follow_wish(&self, session: &Shared, cx: &mut Cx) -> Result<(), Fault> {
        let wish = session.borrow_mut().wish.take();
        match (wish.filter(|_| self.settings.mode_override), &mut cx.state::<Known>().modes) {
            (Some(wish), Some(modes)) => modes.follow(wish),
            _ => Ok(()),
        }
    }

    async fn request(&self, head: &mut RequestHead, cx: &mut Cx) -> Result<Flow, Fault> {
        let Some(session) = cx.state::<Known>().session.clone() else { return Ok(Flow::Continue) };
        let place = self.place(cx);
        let has_body = *cx.note() & REQUEST_BODY != 0 || !cx.whole().is_empty();
        if cx.state::<Known>().request == Step::Head {
            cx.state::<Known>().request = Step::Body;
            if self.modes.request.headers {
                let mut path = head.path().to_vec();
                if let Some(query) = head.query() {
                    path.push(b'?');
                    path.extend_from_slice(query);
                }
                let scheme: &[u8] = if cx.tls { b"https" } else { b"http" };
                let mut fields: Vec<Pair<'_>> = vec![
                    (&b":method"[..], head.method_name()),
                    (&b":scheme"[..], scheme),
                    (&b":authority"[..], head.authority()),
                    (&b":path"[..], &path[..]),
                ];
                let others = head.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(b"host"));
                fields.extend(self.shown(others));
                let message = messages::headers(Phase::RequestHeaders, &fields, !has_body);
                let Some(common) = ask(&session, &place, Phase::RequestHeaders, message).await? else {
                    return Ok(Flow::Continue);
                };
                if common.replaces {
                    self.fits(&common)?;
                }
                self.follow_wish(&session, cx)?;
                self.change_request(&common, head)?;
                if common.replaces {
                    cx.state::<Known>().replacement = Some(common.body.unwrap_or_default());
                }
            }
        }
        if let Some(body) = cx.state::<Known>().replacement.take() {
            if has_body && !cx.has_whole() {
                cx.state::<Known>().replacement = Some(body);
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            cx.give_whole(body);
            return Ok(Flow::Continue);
        }
        let known = cx.state::<Known>();
        let side = known.modes.unwrap_or(self.modes).request;
        let body = side.body(known.is_grpc);
        if !has_body || (body == BodyMode::None && !side.trailers) {
            return Ok(Flow::Continue);
        }
        match body {
            BodyMode::Buffered if !cx.has_whole() => {
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            BodyMode::Buffered => {
                let message = messages::body(Phase::RequestBody, cx.whole(), true);
                if let Some(common) = ask(&session, &place, Phase::RequestBody, message).await? {
                    self.fits(&common)?;
                    self.change_request(&common, head)?;
                    if let Some(body) = common.body {
                        cx.set_whole(body);
                    }
                }
            }
            BodyMode::Streamed if cx.has_whole() => {
                let body = self.stream(&session, &place, Phase::RequestBody, cx.share_whole()).await?;
                cx.set_whole(body);
            }
            // No trailers follow it. Changed later, it would lose its length.
            BodyMode::None if cx.has_whole() || matches!(head.body(), BodyKind::Length(_)) => {}
            BodyMode::None | BodyMode::Streamed => cx.see_request_body(BodyUse::Change),
        }
        Ok(Flow::Continue)
    }

    async fn response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Result<Flow, Fault> {
        let has_body = *cx.note() & RESPONSE_BODY != 0;
        let place = self.place(cx);
        let known = cx.state::<Known>();
        let Some(session) = known.session.clone() else { return Ok(Flow::Continue) };
        let sends_head = known.modes.unwrap_or(self.modes).response.headers;
        let is_first = std::mem::replace(&mut known.response, Step::Body) == Step::Head;
        if is_first {
            known.replacement = None;
        }
        if is_first && sends_head {
            let status = head.status().to_string();
            let mut fields: Vec<Pair<'_>> = vec![(&b":status"[..], status.as_bytes())];
            fields.extend(self.shown(head.headers.iter()));
            let message = messages::headers(Phase::ResponseHeaders, &fields, !has_body);
            let Some(common) = ask(&session, &place, Phase::ResponseHeaders, message).await? else {
                return Ok(Flow::Continue);
            };
            let replaces = common.replaces && has_body;
            if replaces {
                self.fits(&common)?;
            }
            self.follow_wish(&session, cx)?;
            self.change_response(&common, head)?;
            if replaces {
                cx.state::<Known>().replacement = Some(common.body.unwrap_or_default());
            }
        }
        if let Some(body) = cx.state::<Known>().replacement.take() {
            if !cx.has_whole() {
                cx.state::<Known>().replacement = Some(body);
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            cx.set_whole(body);
            return Ok(Flow::Continue);
        }
        let known = cx.state::<Known>();
        let side = known.modes.unwrap_or(self.modes).response;
        let body = side.body(known.is_grpc || grpc::is_grpc(&head.headers));
        if !has_body || (body == BodyMode::None && !side.trailers) {
            return Ok(Flow::Continue);
        }
        match body {
            BodyMode::Buffered if !cx.has_whole() => {
                return Ok(Flow::Gather(self.settings.limit.as_usize()));
            }
            BodyMode::Buffered => {
                let message = messages::body(Phase::ResponseBody, cx.whole(), true);
                if let Some(common) = ask(&session, &place, Phase::ResponseBody, message).await? {
                    self.fits(&common)?;
                    self.change_response(&common, head)?;
                    if let Some(body) = common.body {
                        cx.set_whole(body);
                    }
                }
            }
            BodyMode::Streamed if cx.has_whole() => {
                let body = self.stream(&session, &place, Phase::ResponseBody, cx.share_whole()).await?;
                cx.set_whole(body);
            }
            BodyMode::None if cx.has_whole() || matches!(head.body(Method::Get), BodyKind::Length(_)) => {}
            BodyMode::None | BodyMode::Streamed => cx.see_response_body(BodyUse::Change),
        }
        Ok(Flow::Continue)
    }

    fn change_request(&self, common: &Common, head: &mut RequestHead) -> Result<(), Fault> {
        let ignored = mutation::of_request(&common.mutation, head).map_err(Fault::Failed)?;
        self.counts.ignored.fetch_add(ignored, Relaxed);
        Ok(())
    }

    fn change_response(&self, common: &Common, head: &mut ResponseHead) -> Result<(), Fault> {
        let ignored = mutation::of_response(&common.mutation, head).map_err(Fault::Failed)?;
        self.counts.ignored.fetch_add(ignored, Relaxed);
        Ok(())
    }

    /// Whether its body may be that long. Asked before anything else of an answer applies, so that all of it does.
    fn fits(&self, common: &Common) -> Result<(), Fault> {
        match &common.body {
            Some(body) if body.len() > self.settings.limit.as_usize() => {
                Err(Fault::Failed("its body is too long"))
            }
            _ => Ok(()),
        }
    }

    /// Sends a whole body in pieces.
    async fn stream(
        &self,
        session: &Shared,
        place: &Place,
        phase: Phase,
        whole: Bytes,
    ) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::with_capacity(whole.len());
        let pieces = whole.len().div_ceil(PIECE);
        for (at, piece) in whole.chunks(PIECE).enumerate() {
            let message = messages::body(phase, piece, at + 1 == pieces);
            let common = ask(session, place, phase, message).await?;
            out.extend_from_slice(common.and_then(|common| common.body).as_deref().unwrap_or(piece));
        }
        Ok(out)
    }

    /// Has the processor change a piece that is under way, and the trailers behind the last.
    fn later(&self, phase: Phase, piece: &mut Piece<'_>, cx: &mut Cx) {
        if piece.is_pause() || (piece.data().is_empty() && !piece.is_last()) {
            return;
        }
        let place = self.place(cx);
        let known = cx.state::<Known>();
        let (Some(session), Some(modes)) = (known.session.clone(), known.modes) else { return };
        let (side, of_trailers) = match phase {
            Phase::RequestBody => (modes.request, Phase::RequestTrailers),
            _ => (modes.response, Phase::ResponseTrailers),
        };
        if session.borrow().is_over() {
            return;
        }
        let mut trailers = Vec::new();
        if side.trailers && piece.is_last() {
            for (name, value) in piece.trailers() {
                trailers.extend_from_slice(name);
                trailers.extend_from_slice(b": ");
                trailers.extend_from_slice(value);
                trailers.extend_from_slice(b"\r\n");
            }
        }
        let streams = side.body != BodyMode::None;
        if !streams && trailers.is_empty() {
            return;
        }
        let ends = piece.is_last() && trailers.is_empty();
        let (data, counts) = (piece.data().to_vec(), Arc::clone(&self.counts));
        let passes = self.settings.without == Without::Pass;
        let withhold = self.settings.withhold.clone();
        piece.make_later(async move {
            let mut made = Made { data, trailers: None };
            let work = async {
                if streams && (ends || !made.data.is_empty()) {
                    let message = messages::body(phase, &made.data, ends);
                    if let Some(body) =
                        ask(&session, &place, phase, message).await?.and_then(|common| common.body)
                    {
                        made.data = body;
                    }
                }
                if !trailers.is_empty() {
                    let fields = trailers.split(|&b| b == b'\n').filter_map(|line| {
                        let colon = line.iter().position(|&b| b == b':')?;
                        Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
                    });
                    let hidden = |name: &[u8]| {
                        withhold.iter().any(|hidden| hidden.as_str().as_bytes().eq_ignore_ascii_case(name))
                    };
                    let fields: Vec<Pair<'_>> = fields.filter(|(name, _)| !hidden(name)).collect();
                    let message = messages::trailers(of_trailers, &fields);
                    if let Some(common) = ask(&session, &place, of_trailers, message).await? {
                        let (changed, ignored) =
                            mutation::of_trailers(&common.mutation, &trailers).map_err(Fault::Failed)?;
                        counts.ignored.fetch_add(ignored, Relaxed);
                        made.trailers = Some(changed);
                    }
                }
                Ok::<(), Fault>(())
            };
            match work.await {
                Ok(()) => Ok(made),
                Err(Fault::Answered) => Err(&EXT_PROC_ANSWERED),
                Err(Fault::Failed(_)) => {
                    counts.failed.fetch_add(1, Relaxed);
                    if passes {
                        session.borrow_mut().pass();
                        return Ok(made);
                    }
                    Err(&EXT_PROC_UNAVAILABLE)
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
