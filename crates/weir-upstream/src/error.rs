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
    /// Connections of one client address.
    ClientConnections,
    /// TLS handshakes of one client address.
    ClientHandshakes,
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
        "client_connections",
        "client_handshakes",
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
    ADDRESS_REFUSED "address_refused" 0 "The listener does not accept connections from the client's address." "listeners.*.ip";
    AMBIGUOUS_PATH "ambiguous_path" 400 "The request path can be read in two ways, and they match different routes." "listeners.*.escaped_slashes or routes.*.escaped_slashes: `weir explain METHOD URL` shows both readings";
    BAD_CHUNK "bad_chunk" 400 "The request body's chunks are malformed." "nothing: the client is at fault (RFC 9112 §7.1)";
    BAD_FRAMING "bad_framing" 400 "The request's Content-Length or Transfer-Encoding is ambiguous." "nothing: the client is at fault (RFC 9112 §6)";
    BAD_HEAD "bad_head" 400 "The request head is malformed." "nothing: the client is at fault (RFC 9112 §2 to §5)";
    BAD_HOST "bad_host" 400 "The request's Host is missing, repeated, malformed or differs from its target." "nothing: the client is at fault (RFC 9112 §3.2)";
    BAD_PATH "bad_path" 400 "The request path has no canonical form." "nothing: docs/reference/routing.md lists the paths that Weir refuses";
    BAD_RESPONSE "bad_response" 502 "The upstream's response is malformed or ambiguous." "nothing: the upstream is at fault; the log line names the broken rule", outcome: Outcome::ProtocolError, nature: Nature::Failure;
    BAD_TARGET "bad_target" 400 "The request target is malformed." "nothing: the client is at fault (RFC 9112 §3.2)";
    BLOCKING_LIMIT "blocking_limit" 503 "The queue for blocking work is full." "nothing: the queue holds 1,024 jobs; find the filter that fills it";
    BODY_NOT_JSON "body_not_json" 400 "The request body says that it is JSON, and filters whose expressions name request.body cannot read it as such." "the client's body, Content-Type or Content-Encoding";
    BODY_TIMEOUT "body_timeout" 408 "The request body stopped arriving." "listeners.*.timeouts.body";
    BODY_TOO_LARGE "body_too_large" 413 "The request body is larger than allowed." "limits.body_bytes, limits.expression_body_bytes, routes.*.fastcgi.buffer, or the filters body_limit and buffer", limit: Some(Limit::BodyBytes);
    BODY_TOO_SLOW "body_too_slow" 408 "The request body arrived too slowly." "listeners.*.timeouts.rate";
    BUFFER_DISK "buffer_disk" 503 "A body that should be held on disk could not be: bodies take as much space as they may, or the file system failed." "`disk_total` and `folder` of the filter buffer; the log has errors of the file system", nature: Nature::Failure;
    CLIENT_CLOSED "client_closed" 0 "The client closed the connection before the response was complete." "nothing: the client left";
    CLIENT_CONNECTIONS "client_connections" 429 "The client's address has reached its limit of connections." "limits.per_client.connections", limit: Some(Limit::ClientConnections);
    CLIENT_HANDSHAKES "client_handshakes" 0 "The client's address began more TLS handshakes than its limit." "limits.per_client.handshakes", limit: Some(Limit::ClientHandshakes);
    CLIENT_TOO_SLOW "client_too_slow" 0 "The client stopped reading the response." "nothing: the limit is 60 s without reading a byte";
    CONNECT_FAILED "connect_failed" 502 "Connecting to the upstream failed." "upstreams.*.endpoints", outcome: Outcome::ConnectFailed, nature: Nature::Failure;
    CONNECT_REFUSED "connect_refused" 502 "The upstream refused the connection." "upstreams.*.endpoints: is the service running?", outcome: Outcome::ConnectFailed, nature: Nature::Failure;
    CONNECT_TIMEOUT "connect_timeout" 504 "Connecting to the upstream took too long." "upstreams.*.timeouts.connect", outcome: Outcome::ConnectTimeout, nature: Nature::Failure;
    CONNECTION_LIMIT "connection_limit" 503 "The gateway, or the listener, has reached its limit of connections." "limits.connections or listeners.*.limits.connections", limit: Some(Limit::Connections);
    EXCHANGE_TIMEOUT "exchange_timeout" 504 "The exchange took longer than its total time limit." "upstreams.*.timeouts.exchange, routes.*.timeouts.exchange, or the filter timeout", outcome: Outcome::ResponseTimeout, nature: Nature::Failure;
    EXPECTATION_FAILED "expectation_failed" 417 "The request expects something other than 100-continue." "nothing: the client is at fault (RFC 9110 §10.1.1)";
    FASTCGI_NO_SCRIPT "fastcgi_no_script" 404 "There is no script for the request." "routes.*.fastcgi.root, or routes.*.fastcgi.index: the file must be below that root";
    FILES_BY_HEADER "files_by_header" 502 "The upstream names a file in a field of its response, but in none of the folders that the route allows, or by an impossible path." "the service, or routes.*.files_by_header: the prefixes of its paths", nature: Nature::Failure;
    FILES_CHANGED "files_changed" 412 "The file is not the version that the request asks for (If-Match, If-Unmodified-Since)." "nothing: the file has changed since the client saw it";
    FILES_DENIED "files_denied" 403 "The gateway has no permission to read the file." "the file's permissions, or the user that Weir runs as";
    FILES_FAILED "files_failed" 500 "The file could not be opened or read." "nothing: the disk or its file system is at fault", nature: Nature::Failure;
    FILES_HIDDEN "files_hidden" 404 "The path names something that begins with a dot." "routes.*.files.hidden";
    FILES_METHOD "files_method" 405 "Files can only be requested with GET and HEAD." "the client's method, or another route for it";
    FILES_MISSING "files_missing" 404 "There is no such file." "routes.*.files.root, or routes.*.files.fallback";
    FILES_NO_INDEX "files_no_index" 404 "The folder has no index, and listings are off." "routes.*.files.index, or routes.*.files.browse";
    FILES_OUTSIDE "files_outside" 404 "A symlink is absolute or leads out of the folder that the route serves." "the symlink: make it relative, with a target below routes.*.files.root";
    FILES_RANGE "files_range" 416 "The file has no such range." "nothing: the client asked for bytes after the end of the file";
    FILES_ROOT "files_root" 500 "The folder that the route serves cannot be opened." "routes.*.files.root: the folder existed when Weir read the config", nature: Nature::Failure;
    GRPC_TIMEOUT "grpc_timeout" 504 "The client's deadline (grpc-timeout) has passed." "nothing: the client set the deadline", outcome: Outcome::ResponseTimeout;
    H2_CONTINUATION_FLOOD "h2_continuation_flood" 0 "The client sent an HTTP/2 head in too many CONTINUATION frames." "limits.h2.continuations";
    H2_DATA_FLOOD "h2_data_flood" 0 "The client sent too many empty or nearly empty HTTP/2 DATA frames." "limits.h2.empty_data";
    H2_ERROR_FLOOD "h2_error_flood" 0 "The client's errors caused too many HTTP/2 stream resets." "limits.h2.errors";
    H2_PING_FLOOD "h2_ping_flood" 0 "The client sent too many HTTP/2 PING frames." "limits.h2.pings";
    H2_PING_TIMEOUT "h2_ping_timeout" 0 "The client did not answer a PING on an idle HTTP/2 connection." "nothing: Weir sends a PING after 10 s of silence and closes the connection 10 s later";
    H2_PRIORITY_FLOOD "h2_priority_flood" 0 "The client sent too many HTTP/2 PRIORITY or unknown frames." "limits.h2.priorities";
    H2_PROTOCOL "h2_protocol" 0 "The client broke a rule of HTTP/2." "nothing: the client is at fault (RFC 9113)";
    H2_RESET_FLOOD "h2_reset_flood" 0 "The client canceled too many HTTP/2 requests (RST_STREAM)." "limits.h2.resets";
    H2_SETTINGS_FLOOD "h2_settings_flood" 0 "The client sent too many HTTP/2 SETTINGS frames." "limits.h2.settings";
    H2_WINDOW_FLOOD "h2_window_flood" 0 "The client sent too many HTTP/2 WINDOW_UPDATE frames." "limits.h2.window_updates";
    H3_DATA_FLOOD "h3_data_flood" 0 "The client sent too many empty HTTP/3 DATA frames." "limits.h2.empty_data";
    H3_ERROR_FLOOD "h3_error_flood" 0 "The client's errors caused too many HTTP/3 stream resets." "limits.h2.errors";
    H3_INSERT_FLOOD "h3_insert_flood" 0 "The client changed the table of compressed HTTP/3 fields too often (QPACK)." "nothing: the limit is 1,000 changes a second, and each request earns 32 more";
    H3_PACKET_FLOOD "h3_packet_flood" 0 "The client sent too many QUIC frames that carry nothing, such as PING." "nothing: the limit is 1,000 a second, and each frame with data earns 4 more";
    H3_PRIORITY_FLOOD "h3_priority_flood" 0 "The client sent too many HTTP/3 PRIORITY_UPDATE or unknown frames." "limits.h2.priorities";
    H3_PROTOCOL "h3_protocol" 0 "The client broke a rule of HTTP/3." "nothing: the client is at fault (RFC 9114)";
    H3_PUSH_FLOOD "h3_push_flood" 0 "The client sent too many HTTP/3 frames about server push or the connection's end (CANCEL_PUSH, MAX_PUSH_ID, GOAWAY)." "limits.h2.settings";
    H3_RESET_FLOOD "h3_reset_flood" 0 "The client canceled too many HTTP/3 requests." "limits.h2.resets";
    H3_STREAM_FLOOD "h3_stream_flood" 0 "The client opened too many HTTP/3 streams of unknown types." "nothing: the limit is 50 a second";
    HANDSHAKE_FAILED "handshake_failed" 0 "The client's TLS handshake failed." "listeners.*.tls";
    HANDSHAKE_TIMEOUT "handshake_timeout" 0 "The client's TLS handshake took too long." "listeners.*.timeouts.handshake";
    HEAD_TIMEOUT "head_timeout" 408 "The request head took too long." "listeners.*.timeouts.head";
    HEADER_TOO_LARGE "header_too_large" 431 "The request head is larger than allowed." "limits.header_bytes", limit: Some(Limit::HeaderBytes);
    INTERNAL "internal" 500 "The gateway failed." "nothing: report this as a bug, with the log line", nature: Nature::Failure;
    METHOD_REFUSED "method_refused" 501 "The gateway refuses CONNECT, because it is not a forward proxy, and TRACE, because the response would reveal headers added for the upstream." "nothing";
    MISDIRECTED "misdirected" 421 "The listener sends clients that ask for this host elsewhere, so it is not served on this connection." "listeners.*.sni: the client used a connection for another host";
    NO_ENDPOINT "no_endpoint" 503 "The upstream has no endpoint to try." "upstreams.*.endpoints, its DNS name, or the registry under `discover`: `weir status` shows what they report", nature: Nature::Failure;
    NO_HEALTHY_ENDPOINT "no_healthy_endpoint" 503 "Every endpoint of the upstream is out of rotation, and each was tried a moment ago." "upstreams.*.endpoints: `weir status` shows why each is out", nature: Nature::Failure;
    NO_ROUTE "no_route" 404 "No route matches the request." "routes: `weir explain METHOD URL` shows why each route did not match";
    OUT_OF_DESCRIPTORS "out_of_descriptors" 503 "The gateway has no file descriptor left for a connection to the upstream." "the limit of open files (ulimit -n, LimitNOFILE=), or limits.connections", nature: Nature::Failure;
    PENDING_LIMIT "pending_limit" 503 "Too many requests are waiting for a connection to the upstream." "upstreams.*.limits.pending", limit: Some(Limit::UpstreamPending), nature: Nature::Failure;
    PENDING_TIMEOUT "pending_timeout" 503 "No connection to the upstream became free in time." "upstreams.*.limits.connections, or upstreams.*.timeouts.connect", limit: Some(Limit::UpstreamConnections), nature: Nature::Failure;
    PLAIN_HTTP "plain_http" 400 "This port speaks only TLS: use https:// instead." "the client's URL; or listeners.*.tls, if the port is meant for plain HTTP";
    PROXY_HEADER "proxy_header" 0 "The PROXY header is missing, malformed, or from an address that is not trusted." "trusted_proxies, or listeners.*.proxy_protocol";
    RESPONSE_TIMEOUT "response_timeout" 504 "The upstream took too long to answer." "upstreams.*.timeouts.response, routes.*.timeouts.response, or the filter timeout", outcome: Outcome::ResponseTimeout, nature: Nature::Failure;
    RESPONSE_TOO_LARGE "response_too_large" 502 "The response is too large for a filter that must buffer it whole." "the filter that buffers responses", nature: Nature::Failure;
    SHUTDOWN "shutdown" 0 "The gateway stopped before the exchange was complete." "shutdown.drain";
    SNI_UNKNOWN "sni_unknown" 0 "The client asked for no name that the listener knows, or spoke no TLS." "listeners.*.sni or listeners.*.otherwise";
    SOURCE_FAILED "source_failed" 0 "The body of a response from Weir itself could not be read to its end." "the file or filter that produces the body", nature: Nature::Failure;
    TARGET_TOO_LONG "target_too_long" 414 "The request target is longer than allowed." "nothing: 8 KiB is the limit", limit: Some(Limit::TargetBytes);
    TCP_IDLE "tcp_idle" 0 "The connection carried no bytes for too long." "listeners.*.tcp.idle, or upstreams.*.timeouts.tunnel";
    TOO_MANY_HEADERS "too_many_headers" 431 "The request has more fields than allowed." "limits.headers", limit: Some(Limit::Headers);
    TRUNCATED "truncated" 0 "The upstream's response ended before it was complete." "nothing: the upstream is at fault", nature: Nature::Failure;
    TUNNEL_TIMEOUT "tunnel_timeout" 0 "The tunnel was idle for too long." "upstreams.*.timeouts.tunnel";
    UNEXPECTED_TLS "unexpected_tls" 400 "The client speaks TLS, but this port does not: use http:// instead." "the client's URL; or listeners.*.tls, if the port is meant for TLS";
    UPGRADE_REFUSED "upgrade_refused" 502 "The upstream switched to a protocol that the client did not request." "nothing: the upstream is at fault", nature: Nature::Failure;
    UPSTREAM_BODY_TIMEOUT "upstream_body_timeout" 0 "The upstream stopped sending its response." "upstreams.*.timeouts.body", nature: Nature::Failure;
    UPSTREAM_CLOSED "upstream_closed" 502 "The upstream closed the connection without an answer." "nothing: the upstream is at fault; see its log", nature: Nature::Failure;
    UPSTREAM_NO_STREAMS "upstream_no_streams" 503 "The upstream currently accepts no requests on its HTTP/2 connection (SETTINGS_MAX_CONCURRENT_STREAMS is 0)." "nothing: the upstream set the limit, perhaps because it is overloaded or shutting down", outcome: Outcome::ConnectFailed, nature: Nature::Failure;
    UPSTREAM_OVERLOADED "upstream_overloaded" 503 "The FastCGI server has no room for the request (FCGI_OVERLOADED)." "nothing: give the server more processes, or add an endpoint", nature: Nature::Failure;
    UPSTREAM_PROTOCOL "upstream_protocol" 502 "The upstream does not speak HTTP/2, or does not accept WebSockets over it." "upstreams.*.protocol", outcome: Outcome::ProtocolError, nature: Nature::Failure;
    UPSTREAM_RESET "upstream_reset" 502 "The upstream reset the connection." "nothing: the upstream is at fault; see its log", nature: Nature::Failure;
    UPSTREAM_TLS "upstream_tls" 502 "TLS with the upstream failed." "upstreams.*.tls", outcome: Outcome::TlsFailed, nature: Nature::Failure;
    VERSION "version" 505 "The request's HTTP version is not supported." "listeners.*.protocols";
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
