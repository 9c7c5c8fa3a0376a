//! Settings of `ext_proc`.

use super::{Counts, ExtProc, Modes, Side};
use crate::prelude::*;

/// Lets an external processor see and change requests and responses: the client of Envoy's external processing v3
/// (`envoy.service.ext_proc.v3.ExternalProcessor/Process`), so that processors written for Envoy run unchanged.
///
/// Each exchange is one gRPC stream. The processor gets the request's head, and, as configured, bodies, trailers and
/// the response's head; the exchange waits for each answer. It may change fields and bodies, replace a body
/// (`CONTINUE_AND_REPLACE`) or answer the request itself (`immediate_response`). If it ends the stream with OK,
/// everything else passes.
///
/// **Bodies.** `buffered` reads a body whole, up to `limit`, and sends it as one message; a longer request gets 413, a
/// longer response becomes 502. Changes of the head in the answer apply. `streamed` sends each piece as it arrives (at
/// most 64 KiB), waits for its answer and sends it on; the length is unknown then. Messages of gRPC are streamed even
/// if the mode says `buffered`, because their trailers follow. Trailers are sent with a body that is streamed or not
/// processed, if there are any. With `body: none` and `trailers: send`, a body of HTTP/1 with a `Content-Length` keeps
/// it, because no trailers follow it; one of HTTP/2 loses it, because some might.
///
/// **Fields.** The processor sees all fields of the head as this filter finds them, in lower case, with values in
/// `raw_value`. It also sees `:method`, `:scheme`, `:authority` and `:path`, or `:status`. **Credentials are among
/// them** (`authorization`, `cookie`): put filters that hide them before it, or name them under `withhold`. It may set
/// `:path` (the route stays) and `:status`, and all fields but `host`, `x-envoy-*`, `content-length` and those that
/// frame the message or belong to one connection; changes of these are ignored and counted. A field is overwritten
/// unless `append` or `append_action` says otherwise. A field that cannot be sent counts as a failure.
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
pub(super) struct ExtProcSettings {
    /// Name of the upstream that is the processor.
    pub(super) upstream: String,
    /// How long each answer may take; the first also includes connecting. Default `200ms`, as in Envoy.
    #[serde(default = "timeout")]
    pub(super) timeout: Duration,
    /// What happens without an answer: `refuse` the request, or `pass` it on. Default `refuse`.
    #[serde(default)]
    pub(super) without: Without,
    /// What the processor sees of requests. Default: the head.
    #[serde(default)]
    request: OfRequest,
    /// What the processor sees of responses. Default: the head.
    #[serde(default)]
    response: OfResponse,
    /// Whether the processor's answers to heads may change how the rest of the exchange is processed
    /// (`mode_override`). Default `false`.
    #[serde(default)]
    pub(super) mode_override: bool,
    /// Longest body that is `buffered` or replaced, and beside 64 KiB the longest answer. Default `1MiB`.
    #[serde(default = "limit")]
    pub(super) limit: ByteSize,
    /// Fields of requests and responses that the processor does not see. Default none.
    #[serde(default)]
    pub(super) withhold: Vec<HeaderName>,
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
pub(super) enum BodyMode {
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
pub(super) enum Without {
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
