//! The fields of an exchange that the access log can write, and their names.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most bytes of a path, query, Referer or User-Agent in a line, before escaping.
pub const LONG_FIELD_BYTES: usize = 2048;

/// Most bytes of any other text in a line, before escaping.
pub const SHORT_FIELD_BYTES: usize = 512;

/// One exchange, as the access log writes it. Borrowed: only the core's buffer receives a copy.
///
/// Texts from a peer are arbitrary bytes. An empty text, a zero or a `None` means "absent": JSON omits it, a template
/// shows `-`. Only `bytes_in`, `bytes_out` and `total` always appear.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// When the request began.
    pub time: SystemTime,
    /// The id of the request, to find its line.
    pub request_id: &'a [u8],
    /// Its trace id, in digits, if exchanges are traced.
    pub trace_id: &'a [u8],
    /// Its span id in that trace.
    pub span_id: &'a [u8],
    /// The client's address, after trusted forwarding headers were applied.
    pub client: Option<IpAddr>,
    /// The other end of the socket. `None` on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The name of the listener.
    pub listener: &'a str,
    /// The method, as received.
    pub method: &'a [u8],
    /// The host, as received.
    pub host: &'a [u8],
    /// The path, as received.
    pub path: &'a [u8],
    /// The query without its `?`. Logged as part of `uri`.
    pub query: &'a [u8],
    /// The protocol: `HTTP/1.1`.
    pub protocol: &'a str,
    /// The name of the route.
    pub route: &'a str,
    /// The arm that the request took of the route's split, if the arms have filters.
    pub arm: &'a str,
    /// The name of the upstream.
    pub upstream: &'a str,
    /// The address of the endpoint that the last attempt went to.
    pub endpoint: &'a str,
    /// How many attempts were made.
    pub attempts: u32,
    /// The attempts that failed: endpoint, cause or status, and time of each.
    pub failed_attempts: &'a str,
    /// The status sent to the client; 0 if none was.
    pub status: u16,
    /// Why the gateway itself answered the request.
    pub cause: &'a str,
    /// Bytes of the request received: head and body.
    pub bytes_in: u64,
    /// Bytes of the response sent: head and body.
    pub bytes_out: u64,
    /// Bytes of the response's body.
    pub body_bytes_out: u64,
    /// The consumer that a filter named.
    pub consumer: &'a str,
    /// The consumer's credential: the first digits of its hash.
    pub credential: &'a [u8],
    /// The Referer, as received.
    pub referer: &'a [u8],
    /// The User-Agent, as received.
    pub user_agent: &'a [u8],
    /// The version of TLS with the client: `TLSv1.3`.
    pub tls_version: &'a str,
    /// The cipher suite with the client.
    pub tls_cipher: &'a str,
    /// The subject of the client's certificate.
    pub tls_client_subject: &'a str,
    /// The alternative names in the client's certificate.
    pub tls_client_san: &'a str,
    /// The SHA-256 of the client's certificate.
    pub tls_client_fingerprint: &'a str,
    /// Whether the exchange became a tunnel (WebSocket, upgrade).
    pub tunnel: bool,
    /// Where the time went.
    pub timing: Timing,
    /// The values of the fields that the format requests, in the order of [`super::AccessLog::headers`].
    pub headers: &'a [&'a [u8]],
    /// What the format's expressions came to, in their order. Those that are missing are absent.
    pub computed: &'a [Computed<'a>],
    /// The request as received; only for the format `replay`.
    pub request: Option<&'a RequestCopy<'a>>,
}

/// A request as received, for the format `replay`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCopy<'a> {
    /// Whether it came over TLS.
    pub is_tls: bool,
    /// Its header fields in order; values of secrets are `***`.
    pub fields: &'a [(&'a [u8], &'a [u8])],
    /// What was recorded of its body; `None` for nothing.
    pub body: Option<&'a [u8]>,
    /// Whether the body was longer.
    pub is_body_cut: bool,
    /// Whether a filter had changed the body before it was recorded.
    pub is_body_changed: bool,
}

/// What an expression of the format came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computed<'a> {
    /// Its value as text. Empty for none.
    pub text: &'a [u8],
    /// Whether it is a number, `true` or `false`, which JSON writes without quotes.
    pub is_bare: bool,
}

/// Where the time of an exchange went. Zero means "did not happen" or "less than a microsecond".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From the first byte of the request to the end of its head.
    pub head: Duration,
    /// In filters, before the upstream.
    pub filters: Duration,
    /// Waiting for a connection to the endpoint: the pool's queue, the name, the connect. Of the last attempt.
    pub connect: Duration,
    /// In the TLS handshake with the endpoint. Of the last attempt.
    pub tls: Duration,
    /// From the last byte of the request to the first byte of the response; if the response came earlier, from the
    /// first byte of the request. Of the last attempt.
    pub first_byte: Duration,
    /// From the first byte of the request to the last byte of the response.
    pub total: Duration,
}

impl Default for Entry<'_> {
    fn default() -> Self {
        Self {
            time: UNIX_EPOCH,
            request_id: b"",
            trace_id: b"",
            span_id: b"",
            client: None,
            peer: None,
            listener: "",
            method: b"",
            host: b"",
            path: b"",
            query: b"",
            protocol: "",
            route: "",
            arm: "",
            upstream: "",
            endpoint: "",
            attempts: 0,
            failed_attempts: "",
            status: 0,
            cause: "",
            bytes_in: 0,
            bytes_out: 0,
            body_bytes_out: 0,
            consumer: "",
            credential: b"",
            referer: b"",
            user_agent: b"",
            tls_version: "",
            tls_cipher: "",
            tls_client_subject: "",
            tls_client_san: "",
            tls_client_fingerprint: "",
            tunnel: false,
            timing: Timing::default(),
            headers: &[],
            computed: &[],
            request: None,
        }
    }
}

/// A field of the log: a key in JSON, `{name}` in a template.
///
/// The text of a variant is its row in docs/reference/access-log.md: unit or form, a colon, the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// RFC 3339, UTC, milliseconds: when the request began.
    Time,
    /// `01/Mar/2026:12:00:00 +0000`: templates only: the same in the Common Log Format.
    TimeClf,
    /// text: from the filter `request_id`; else 32 hexadecimal digits, as in the body of the gateway's errors.
    RequestId,
    /// hexadecimal: the trace, with `tracing`, sampled or not.
    TraceId,
    /// hexadecimal: the exchange's span.
    SpanId,
    /// IP address: the client, after `trusted_proxies`.
    Client,
    /// IP address and port: the connection's other end; absent on a Unix socket.
    Peer,
    /// name: the listener.
    Listener,
    /// text: as received.
    Method,
    /// text: as received; of a connection passed on by `sni`, the name asked for.
    Host,
    /// text: path and query, as received.
    Uri,
    /// text: templates only: `uri` without its query.
    Path,
    /// text: templates only: the query, without `?`.
    Query,
    /// text: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, `HTTP/3`; `TCP` of a connection whose bytes are passed on.
    Protocol,
    /// name: the route that won.
    Route,
    /// name: the arm of the route's split; absent if its arms have no filters.
    Arm,
    /// name: the upstream; absent if the route responds itself.
    Upstream,
    /// address: of the last attempt.
    Endpoint,
    /// number: attempts made; an endpoint skipped as unreachable is none.
    Attempts,
    /// text: endpoint, cause or status, and time of each failed attempt.
    FailedAttempts,
    /// number: sent to the client; 499 with the cause `client_closed` if it left first.
    Status,
    /// cause: why the gateway itself answered.
    Cause,
    /// bytes: request received, head and body; of a head refused early, what came.
    BytesIn,
    /// bytes: response sent, head and body.
    BytesOut,
    /// bytes: templates only: the response's body alone.
    BodyBytesOut,
    /// name: the caller, as a filter found out.
    Consumer,
    /// text: first 8 digits of the SHA-256 of the consumer's key or certificate.
    Credential,
    /// text: Referer; keys that `key_auth` reads from paths and queries are `***`.
    Referer,
    /// text: User-Agent, as received.
    UserAgent,
    /// text: with the client.
    TlsVersion,
    /// text: cipher suite with the client.
    TlsCipher,
    /// text: subject of the client certificate (RFC 4514): `CN=shop,O=Example`.
    TlsClientSubject,
    /// text: its alternative names: `dns:shop.internal,uri:spiffe://a/b`.
    TlsClientSan,
    /// hexadecimal: its SHA-256.
    TlsClientFingerprint,
    /// `true`: the exchange became a tunnel (WebSocket, upgrade), or it is a connection of `tcp` or `sni`.
    Tunnel,
    /// microseconds: first byte of the request to the end of its head.
    HeadUs,
    /// microseconds: in filters, before the upstream.
    FiltersUs,
    /// microseconds: last attempt: wait in the pool, name, connect.
    ConnectUs,
    /// microseconds: last attempt: TLS handshake with the endpoint.
    TlsUs,
    /// microseconds: last attempt: last byte of the request, or the first if the answer came earlier, to the first
    /// byte of the answer.
    FirstByteUs,
    /// microseconds: first byte of the request to the last byte of the response.
    TotalUs,
}

impl Field {
    /// Every field, in the order of a JSON line. JSON has no `path` and no `query`, because `uri` is both. It also
    /// lacks `time_clf` and `body_bytes_out`, which exist for the preset `combined`.
    pub const ALL: [(Self, &'static str); 41] = [
        (Self::Time, "time"),
        (Self::TimeClf, "time_clf"),
        (Self::RequestId, "request_id"),
        (Self::TraceId, "trace_id"),
        (Self::SpanId, "span_id"),
        (Self::Client, "client"),
        (Self::Peer, "peer"),
        (Self::Listener, "listener"),
        (Self::Method, "method"),
        (Self::Host, "host"),
        (Self::Uri, "uri"),
        (Self::Path, "path"),
        (Self::Query, "query"),
        (Self::Protocol, "protocol"),
        (Self::Route, "route"),
        (Self::Arm, "arm"),
        (Self::Upstream, "upstream"),
        (Self::Endpoint, "endpoint"),
        (Self::Attempts, "attempts"),
        (Self::FailedAttempts, "failed_attempts"),
        (Self::Status, "status"),
        (Self::Cause, "cause"),
        (Self::BytesIn, "bytes_in"),
        (Self::BytesOut, "bytes_out"),
        (Self::BodyBytesOut, "body_bytes_out"),
        (Self::Consumer, "consumer"),
        (Self::Credential, "credential"),
        (Self::Referer, "referer"),
        (Self::UserAgent, "user_agent"),
        (Self::TlsVersion, "tls_version"),
        (Self::TlsCipher, "tls_cipher"),
        (Self::TlsClientSubject, "tls_client_subject"),
        (Self::TlsClientSan, "tls_client_san"),
        (Self::TlsClientFingerprint, "tls_client_fingerprint"),
        (Self::Tunnel, "tunnel"),
        (Self::HeadUs, "head_us"),
        (Self::FiltersUs, "filters_us"),
        (Self::ConnectUs, "connect_us"),
        (Self::TlsUs, "tls_us"),
        (Self::FirstByteUs, "first_byte_us"),
        (Self::TotalUs, "total_us"),
    ];
}

/// The value of a field in one entry.
pub(super) enum Value<'a> {
    Absent,
    Address(IpAddr, Option<u16>),
    /// Text that tends to be long.
    Long(&'a [u8]),
    Number(u64),
    /// Short text from a config or from us.
    Text(&'a [u8]),
    Time(SystemTime),
    TimeClf(SystemTime),
    True,
    /// A path, a query, or both.
    Uri(&'a [u8], &'a [u8]),
}

impl Entry<'_> {
    #[inline]
    pub(super) fn value(&self, field: Field) -> Value<'_> {
        match field {
            Field::Time => Value::Time(self.time),
            Field::TimeClf => Value::TimeClf(self.time),
            Field::RequestId => text(self.request_id),
            Field::TraceId => text(self.trace_id),
            Field::SpanId => text(self.span_id),
            Field::Client => self.client.map_or(Value::Absent, |ip| Value::Address(ip, None)),
            Field::Peer => {
                self.peer.map_or(Value::Absent, |peer| Value::Address(peer.ip(), Some(peer.port())))
            }
            Field::Listener => text(self.listener.as_bytes()),
            Field::Method => text(self.method),
            Field::Host => text(self.host),
            Field::Uri => uri(self.path, self.query),
            Field::Path => uri(self.path, b""),
            Field::Query => uri(self.query, b""),
            Field::Protocol => text(self.protocol.as_bytes()),
            Field::Route => text(self.route.as_bytes()),
            Field::Arm => text(self.arm.as_bytes()),
            Field::Upstream => text(self.upstream.as_bytes()),
            Field::Endpoint => text(self.endpoint.as_bytes()),
            Field::Attempts => some(self.attempts.into()),
            Field::FailedAttempts => text(self.failed_attempts.as_bytes()),
            Field::Status => some(self.status.into()),
            Field::Cause => text(self.cause.as_bytes()),
            Field::BytesIn => Value::Number(self.bytes_in),
            Field::BytesOut => Value::Number(self.bytes_out),
            Field::BodyBytesOut => Value::Number(self.body_bytes_out),
            Field::Consumer => text(self.consumer.as_bytes()),
            Field::Credential => text(self.credential),
            Field::Referer => long(self.referer),
            Field::UserAgent => long(self.user_agent),
            Field::TlsVersion => text(self.tls_version.as_bytes()),
            Field::TlsCipher => text(self.tls_cipher.as_bytes()),
            Field::TlsClientSubject => text(self.tls_client_subject.as_bytes()),
            Field::TlsClientSan => text(self.tls_client_san.as_bytes()),
            Field::TlsClientFingerprint => text(self.tls_client_fingerprint.as_bytes()),
            Field::Tunnel if self.tunnel => Value::True,
            Field::Tunnel => Value::Absent,
            Field::HeadUs => some(micros(self.timing.head)),
            Field::FiltersUs => some(micros(self.timing.filters)),
            Field::ConnectUs => some(micros(self.timing.connect)),
            Field::TlsUs => some(micros(self.timing.tls)),
            Field::FirstByteUs => some(micros(self.timing.first_byte)),
            Field::TotalUs => Value::Number(micros(self.timing.total)),
        }
    }
}

impl Entry<'_> {
    /// The value of one of the format's own fields.
    pub(super) fn header(&self, index: usize) -> Value<'_> {
        text(self.headers.get(index).copied().unwrap_or_default())
    }

    /// The value of one of the format's expressions; `None` if it has none.
    pub(super) fn computed(&self, index: usize) -> Option<Computed<'_>> {
        self.computed.get(index).copied().filter(|computed| !computed.text.is_empty())
    }
}

#[inline]
fn long(value: &[u8]) -> Value<'_> {
    if value.is_empty() { Value::Absent } else { Value::Long(value) }
}

#[inline]
fn text(value: &[u8]) -> Value<'_> {
    if value.is_empty() { Value::Absent } else { Value::Text(value) }
}

#[inline]
fn uri<'a>(path: &'a [u8], query: &'a [u8]) -> Value<'a> {
    if path.is_empty() && query.is_empty() { Value::Absent } else { Value::Uri(path, query) }
}

#[inline]
fn some(value: u64) -> Value<'static> {
    if value == 0 { Value::Absent } else { Value::Number(value) }
}

#[inline]
fn micros(time: Duration) -> u64 {
    // Not `as_micros`, which divides 128 bits.
    time.as_secs().wrapping_mul(1_000_000) + u64::from(time.subsec_micros())
}
