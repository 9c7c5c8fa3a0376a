//! Why the gateway itself answered: causes, and the errors that carry one.
//!
//! A [`Cause`] is a stable code with its status, its meaning and the key that would change it. These texts generate
//! `docs/reference/causes.md`. A filter's causes are in the filter's file.

use std::fmt;
use weir_telemetry::Attempt as Outcome;

/// Why the gateway itself answered or cut an exchange short.
#[derive(Debug)]
pub struct Cause {
    /// Stable code: in the access log, in `weir_causes_total`, and in `x-weir-cause` if `expose_causes` is on.
    pub code: &'static str,
    /// Status of the answer. 0 if there is no answer, because the response had begun or the client has left.
    pub status: u16,
    /// What happened, in one sentence. The client sees it as `detail` if `expose_causes` is on.
    pub meaning: &'static str,
    /// The config key that would change it, or what else to do. For the operator only.
    pub change: &'static str,
    /// The limit that was reached, if metrics count it.
    pub limit: Option<Limit>,
    /// How an attempt that ended so is counted.
    pub outcome: Outcome,
    /// The request carried no credentials at all, as opposed to wrong ones.
    pub no_credentials: bool,
    /// Whether something failed, or the request was refused. Only failures count against a change on trial.
    pub nature: Nature,
}

/// Whether a cause reports a failure or refuses the request.
///
/// Clients can provoke refusals at will, so the guard never reverts a change because of them. A cause is a refusal
/// unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// The gateway or an upstream failed to do what the config says.
    Failure,
    /// The request is not allowed, or the client is at fault.
    Refusal,
}

/// A limit that `weir_limits_hit_total` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The size of a request body.
    BodyBytes,
    /// Concurrent requests, in the filter `concurrency`.
    Concurrency,
    /// Connections of clients.
    Connections,
    /// The size of a request head.
    HeaderBytes,
    /// The number of header fields.
    Headers,
    /// The filter `rate_limit`, including quotas.
    Rate,
    /// The length of a request target.
    TargetBytes,
    /// Connections to an upstream.
    UpstreamConnections,
    /// Requests that wait for a connection to an upstream.
    UpstreamPending,
}

impl Cause {
    /// The defaults of most causes, for causes declared by a filter: `Cause { code: .., ..Cause::USUAL }`.
    pub const USUAL: Self = Self {
        code: "",
        status: 0,
        meaning: "",
        change: "",
        limit: None,
        outcome: Outcome::Reset,
        no_credentials: false,
        nature: Nature::Refusal,
    };

    /// See [`Nature`].
    #[inline]
    pub fn is_failure(&self) -> bool {
        self.nature == Nature::Failure
    }
}

impl Limit {
    /// The label values, in the order of the variants.
    pub const NAMES: &[&str] = &[
        "body_bytes",
        "concurrency",
        "connections",
        "header_bytes",
        "headers",
        "rate",
        "target_bytes",
        "upstream_connections",
        "upstream_pending",
    ];
}

impl PartialEq for Cause {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl Eq for Cause {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

/// Declares the causes of the gateway's own code, and their list.
macro_rules! causes {
    ($($name:ident $code:literal $status:literal $meaning:literal $change:literal $(, $key:ident: $value:expr)*;)*) => {
        $(#[doc = $meaning] pub static $name: Cause = Cause {
            code: $code,
            status: $status,
            meaning: $meaning,
            change: $change,
            $($key: $value,)*
            ..Cause::USUAL
        };)*
        /// The causes of the gateway's own code, without those of filters, sorted by code.
        pub static CAUSES: &[&Cause] = &[$(&$name),*];
    };
}

causes! {
    AMBIGUOUS_PATH "ambiguous_path" 400 "The request path can be read as another one, which takes another route." "listeners.*.escaped_slashes or routes.*.escaped_slashes: `weir explain METHOD URL` tells the reading";
    BAD_CHUNK "bad_chunk" 400 "The request body's chunks are malformed." "nothing: the client is at fault (RFC 9112 §7.1)";
    BAD_FRAMING "bad_framing" 400 "The request's Content-Length or Transfer-Encoding is ambiguous." "nothing: the client is at fault (RFC 9112 §6)";
    BAD_HEAD "bad_head" 400 "The request head is malformed." "nothing: the client is at fault (RFC 9112 §2 to §5)";
    BAD_HOST "bad_host" 400 "The request's Host is missing, doubled, malformed or disagrees with its target." "nothing: the client is at fault (RFC 9112 §3.2)";
    BAD_PATH "bad_path" 400 "The request path has no canonical form." "nothing: see docs/reference/routing.md for what is refused";
    BAD_RESPONSE "bad_response" 502 "The upstream's response is malformed or ambiguous." "nothing: the upstream is at fault; the log line names the rule", outcome: Outcome::ProtocolError, nature: Nature::Failure;
    BAD_TARGET "bad_target" 400 "The request target is malformed." "nothing: the client is at fault (RFC 9112 §3.2)";
    BLOCKING_LIMIT "blocking_limit" 503 "Too much work waits for the threads that may block." "nothing: 1,024 jobs is the limit; see which filter gives them so much to do";
    BODY_TIMEOUT "body_timeout" 408 "The request body stopped arriving." "listeners.*.timeouts.body";
    BODY_TOO_LARGE "body_too_large" 413 "The request body is larger than allowed." "limits.body_bytes, or the filter body_limit", limit: Some(Limit::BodyBytes);
    BODY_TOO_SLOW "body_too_slow" 408 "The request body arrived too slowly." "listeners.*.timeouts.rate";
    CLIENT_CLOSED "client_closed" 0 "The client went away before the response was complete." "nothing: the client left";
    CLIENT_TOO_SLOW "client_too_slow" 0 "The client stopped reading the response." "nothing: 60 s without taking a byte is the limit";
    CONNECT_FAILED "connect_failed" 502 "No connection to the upstream could be made." "upstreams.*.endpoints", outcome: Outcome::ConnectFailed, nature: Nature::Failure;
    CONNECT_REFUSED "connect_refused" 502 "The upstream refused the connection." "upstreams.*.endpoints: is the service running?", outcome: Outcome::ConnectFailed, nature: Nature::Failure;
    CONNECT_TIMEOUT "connect_timeout" 504 "Connecting to the upstream took too long." "upstreams.*.timeouts.connect", outcome: Outcome::ConnectTimeout, nature: Nature::Failure;
    CONNECTION_LIMIT "connection_limit" 503 "The gateway holds as many connections as it may." "limits.connections", limit: Some(Limit::Connections);
    EXCHANGE_TIMEOUT "exchange_timeout" 504 "The exchange took longer than it may in all." "upstreams.*.timeouts.exchange, routes.*.timeouts.exchange, or the filter timeout", outcome: Outcome::ResponseTimeout, nature: Nature::Failure;
    EXPECTATION_FAILED "expectation_failed" 417 "The request expects something other than 100-continue." "nothing: the client is at fault (RFC 9110 §10.1.1)";
    FILES_CHANGED "files_changed" 412 "The file is not the one that the request asks for (If-Match, If-Unmodified-Since)." "nothing: the file has changed since the client saw it";
    FILES_DENIED "files_denied" 403 "The gateway may not read the file." "the file's permissions, or the user that Weir runs as";
    FILES_FAILED "files_failed" 500 "The file could not be opened or read." "nothing: the disk or its file system is at fault", nature: Nature::Failure;
    FILES_HIDDEN "files_hidden" 404 "The path names something that begins with a dot." "routes.*.files.hidden";
    FILES_METHOD "files_method" 405 "Files are answered to GET and HEAD only." "the client's method; or another route for it";
    FILES_MISSING "files_missing" 404 "There is no such file." "routes.*.files.root, or routes.*.files.fallback";
    FILES_NO_INDEX "files_no_index" 404 "The folder has no index, and is not listed." "routes.*.files.index, or routes.*.files.browse";
    FILES_OUTSIDE "files_outside" 404 "A link leads out of the folder that the route serves, or is absolute." "the link: relative, and to something below routes.*.files.root";
    FILES_RANGE "files_range" 416 "The file has no such range." "nothing: the client asked for what is behind its end";
    FILES_ROOT "files_root" 500 "The folder that the route serves cannot be opened." "routes.*.files.root: the folder was there when the config was read", nature: Nature::Failure;
    GRPC_TIMEOUT "grpc_timeout" 504 "The deadline that the client set (grpc-timeout) has passed." "nothing: the client set it", outcome: Outcome::ResponseTimeout;
    H2_CONTINUATION_FLOOD "h2_continuation_flood" 0 "A head of HTTP/2 came in too many CONTINUATION frames." "limits.h2.continuations";
    H2_DATA_FLOOD "h2_data_flood" 0 "Too many DATA frames of HTTP/2 held nothing or next to nothing." "limits.h2.empty_data";
    H2_ERROR_FLOOD "h2_error_flood" 0 "Too many HTTP/2 streams had to be reset for what the client did." "limits.h2.errors";
    H2_PING_FLOOD "h2_ping_flood" 0 "Too many PING frames of HTTP/2 came." "limits.h2.pings";
    H2_PING_TIMEOUT "h2_ping_timeout" 0 "The client gave no sign of life on an HTTP/2 connection." "nothing: after 10 s of silence a PING was sent, and 10 s later nothing had come";
    H2_PRIORITY_FLOOD "h2_priority_flood" 0 "Too many PRIORITY or unknown frames of HTTP/2 came." "limits.h2.priorities";
    H2_PROTOCOL "h2_protocol" 0 "The client broke a rule of HTTP/2." "nothing: the client is at fault (RFC 9113)";
    H2_RESET_FLOOD "h2_reset_flood" 0 "Too many HTTP/2 requests were canceled (RST_STREAM)." "limits.h2.resets";
    H2_SETTINGS_FLOOD "h2_settings_flood" 0 "Too many SETTINGS frames of HTTP/2 came." "limits.h2.settings";
    H2_WINDOW_FLOOD "h2_window_flood" 0 "Too many WINDOW_UPDATE frames of HTTP/2 came." "limits.h2.window_updates";
    HANDSHAKE_FAILED "handshake_failed" 0 "The client's TLS handshake failed." "listeners.*.tls";
    HANDSHAKE_TIMEOUT "handshake_timeout" 0 "The client's TLS handshake took too long." "listeners.*.timeouts.handshake";
    HEAD_TIMEOUT "head_timeout" 408 "The request head took too long." "listeners.*.timeouts.head";
    HEADER_TOO_LARGE "header_too_large" 431 "The request head is larger than allowed." "limits.header_bytes", limit: Some(Limit::HeaderBytes);
    INTERNAL "internal" 500 "The gateway failed." "nothing: please report it with the log line", nature: Nature::Failure;
    METHOD_REFUSED "method_refused" 501 "The gateway passes on neither CONNECT, as it is no forward proxy, nor TRACE, which would show what was added for the upstream." "nothing";
    NO_ENDPOINT "no_endpoint" 503 "The upstream has no endpoint that could be tried." "upstreams.*.endpoints, the DNS name in it, or the registry under `discover`: `weir status` tells what it says", nature: Nature::Failure;
    NO_HEALTHY_ENDPOINT "no_healthy_endpoint" 503 "Every endpoint of the upstream is out of rotation, and each was tried a moment ago." "upstreams.*.endpoints: `weir status` tells why each is out", nature: Nature::Failure;
    NO_ROUTE "no_route" 404 "No route matches the request." "routes: `weir explain METHOD URL` tells why each did not";
    OUT_OF_DESCRIPTORS "out_of_descriptors" 503 "The gateway has no file descriptor left for a connection to the upstream." "the limit of open files (ulimit -n, LimitNOFILE=), or limits.connections", nature: Nature::Failure;
    PENDING_LIMIT "pending_limit" 503 "Too many requests wait for a connection to the upstream." "upstreams.*.limits.pending", limit: Some(Limit::UpstreamPending), nature: Nature::Failure;
    PENDING_TIMEOUT "pending_timeout" 503 "No connection to the upstream became free in time." "upstreams.*.limits.connections, or upstreams.*.timeouts.connect", limit: Some(Limit::UpstreamConnections), nature: Nature::Failure;
    PLAIN_HTTP "plain_http" 400 "This port speaks TLS only: ask for https:// instead." "the client's URL; or listeners.*.tls, if the port is meant for plain HTTP";
    PROXY_HEADER "proxy_header" 0 "The PROXY header is missing, malformed, or from an address that is not trusted." "trusted_proxies, or listeners.*.proxy_protocol";
    RESPONSE_TIMEOUT "response_timeout" 504 "The upstream took too long to answer." "upstreams.*.timeouts.response, routes.*.timeouts.response, or the filter timeout", outcome: Outcome::ResponseTimeout, nature: Nature::Failure;
    RESPONSE_TOO_LARGE "response_too_large" 502 "The response is larger than a filter can hold that needs all of it." "the filter that reads responses whole", nature: Nature::Failure;
    SHUTDOWN "shutdown" 0 "The gateway ended before the exchange was over." "shutdown.drain";
    SOURCE_FAILED "source_failed" 0 "The body of an answer of our own could not be read to its end." "the file or the filter that it comes from", nature: Nature::Failure;
    TARGET_TOO_LONG "target_too_long" 414 "The request target is longer than allowed." "nothing: 8 KiB is the limit", limit: Some(Limit::TargetBytes);
    TOO_MANY_HEADERS "too_many_headers" 431 "The request has more fields than allowed." "limits.headers", limit: Some(Limit::Headers);
    TRUNCATED "truncated" 0 "The upstream's response ended before it was complete." "nothing: the upstream is at fault", nature: Nature::Failure;
    TUNNEL_TIMEOUT "tunnel_timeout" 0 "The tunnel was idle for too long." "upstreams.*.timeouts.tunnel";
    UPGRADE_REFUSED "upgrade_refused" 502 "The upstream switched to a protocol that nobody asked for." "nothing: the upstream is at fault", nature: Nature::Failure;
    UPSTREAM_BODY_TIMEOUT "upstream_body_timeout" 0 "The upstream stopped sending its response." "upstreams.*.timeouts.body", nature: Nature::Failure;
    UPSTREAM_CLOSED "upstream_closed" 502 "The upstream closed the connection without an answer." "nothing: the upstream is at fault; see its log", nature: Nature::Failure;
    UPSTREAM_NO_STREAMS "upstream_no_streams" 503 "The upstream takes no requests on its HTTP/2 connection for now (SETTINGS_MAX_CONCURRENT_STREAMS is 0)." "nothing: the upstream asks for it; see what it does when it is overloaded or stops", outcome: Outcome::ConnectFailed, nature: Nature::Failure;
    UPSTREAM_PROTOCOL "upstream_protocol" 502 "The upstream does not speak HTTP/2, or takes no WebSocket by it." "upstreams.*.protocol", outcome: Outcome::ProtocolError, nature: Nature::Failure;
    UPSTREAM_RESET "upstream_reset" 502 "The upstream reset the connection." "nothing: the upstream is at fault; see its log", nature: Nature::Failure;
    UPSTREAM_TLS "upstream_tls" 502 "TLS with the upstream failed." "upstreams.*.tls", outcome: Outcome::TlsFailed, nature: Nature::Failure;
    VERSION "version" 505 "The request's HTTP version is not spoken here." "listeners.*.protocols";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_sorted_and_complete() {
        for pair in CAUSES.windows(2) {
            assert!(pair[0].code < pair[1].code, "{} before {}", pair[0].code, pair[1].code);
        }
        for cause in CAUSES {
            assert!(cause.status == 0 || (400..600).contains(&cause.status), "{cause}");
            assert!(!cause.meaning.is_empty() && !cause.change.is_empty(), "{cause}");
        }
    }

    /// A failure is answered with 5xx or cuts a response that has begun. An answer of 4xx is a refusal.
    #[test]
    fn failures_are_no_refusals() {
        for cause in CAUSES.iter().filter(|cause| cause.is_failure()) {
            assert!(cause.status == 0 || cause.status >= 500, "{cause}");
        }
        assert!(!Cause::USUAL.is_failure(), "in doubt it refuses");
    }

    #[test]
    fn a_limit_has_the_name_of_its_variant() {
        for (number, name) in [
            (Limit::BodyBytes as usize, "body_bytes"),
            (Limit::Headers as usize, "headers"),
            (Limit::UpstreamPending as usize, "upstream_pending"),
        ] {
            assert_eq!(Limit::NAMES.get(number), Some(&name));
        }
        assert_eq!(Limit::NAMES.len(), Limit::UpstreamPending as usize + 1);
    }
}
