//! Sections about the process itself: workers, logs, admin, limits, shutdown, dns.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::addresses::ListenAddress;
use super::listener::{CertificateFiles, ClientAuth};
use super::log_fields::LogField;
use super::tracing::Collector;
use super::values::{FilePath, Output, Pairs};
use crate::de;
use crate::units::{ByteSize, Duration, Frequency};
use weir_telemetry::Redaction;
use weir_wire::h2::FloodLimits;

/// How many threads carry traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// One per core this process may use.
    #[default]
    Auto,
    /// This many.
    Count(NonZeroU16),
}

/// One line for each exchange. A section without `output` writes to stdout; without the section there is no log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// Destination of the lines: `stdout`, `stderr`, `"off"` or a file, which SIGUSR1 reopens. Default `stdout`.
    pub output: Output,
    /// `json`, `replay` (JSON with the whole request, for `weir replay`), `combined` (as in Apache and nginx), or a
    /// template with fields in braces and expressions, such as `{time} {method} {path} {status} {= maps.tenants }`.
    /// Default `json`.
    pub format: AccessFormat,
    /// What to add to a JSON line: `header:NAME` and `response_header:NAME`, which a template names in braces, and
    /// keys with texts that may have expressions, such as `{ tenant: "= maps.tenants" }`. Default none.
    pub fields: Vec<LogField>,
    /// Which exchanges get a line: an expression such as `status >= 400 or total > 1s or share 1%`. Default all.
    pub when: Option<String>,
    /// Fields to redact: `hide` writes `***`, `drop` leaves them out, `truncate` shortens an address to its network.
    /// Besides fields of the log: `header:NAME`, `response_header:NAME` and `query:NAME` (one parameter). Default
    /// none.
    pub redact: Pairs,
    /// When to rotate the file. Default never.
    pub rotate: Option<Rotate>,
    /// A syslog server, instead of `output`. Default none.
    pub syslog: Option<Syslog>,
    /// An OpenTelemetry collector, instead of `output`: each exchange is a log record with the fields of JSON.
    /// Default none.
    pub otlp: Option<Collector>,
}

/// A syslog server that gets each line as a message (RFC 5424).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Syslog {
    /// Its address: `udp://HOST:PORT`, `tcp://HOST:PORT` (each line with its length before it), `tls://HOST:PORT`
    /// (the same over TLS, RFC 5425) or `unix:/dev/log`. Required. The default port is 514 for UDP, 601 for TCP and
    /// 6514 for TLS.
    pub server: String,
    /// PEM file of authorities that may sign for a `tls://` server. Default: those of the system.
    pub ca: Option<FilePath>,
    /// Our own certificate chain, PEM, for a server that asks for one. Needs `client_key`.
    pub client_cert: Option<FilePath>,
    /// The key of `client_cert`, PEM.
    pub client_key: Option<FilePath>,
    /// The name that the server's certificate must have. Default: the host of `server`.
    pub server_name: Option<String>,
    /// `local0` to `local7`, `user` or `daemon`. Default `local0`.
    pub facility: Facility,
    /// The source of the lines: APP-NAME. Default `weir`.
    pub name: String,
}

/// The kind of program that a line comes from, as syslog sorts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "names of RFC 5424 §6.2.1")]
pub enum Facility {
    User = 1,
    Daemon = 3,
    #[default]
    Local0 = 16,
    Local1,
    Local2,
    Local3,
    Local4,
    Local5,
    Local6,
    Local7,
}

/// When to rotate a log file. The old file gets the time in its name: `access.log.20260301T120000Z`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rotate {
    /// Maximum size of the file; at least `64KiB`. Default none.
    pub size: Option<ByteSize>,
    /// Maximum age of the file; at least `1m`. Default none.
    pub age: Option<Duration>,
    /// How many rotated files to keep; older ones are removed. Default 7.
    #[schemars(range(min = 1, max = 10000))]
    pub keep: u32,
}

/// The format of an access log line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessFormat {
    /// One JSON object with every field.
    #[default]
    Json,
    /// `combined`, or text with fields in braces.
    Template(String),
    /// One JSON object with the whole request, for `weir replay`.
    Replay,
}

/// The gateway's own log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Destination of the lines: `stderr`, `stdout`, `"off"` or a file, which SIGUSR1 reopens. Default `stderr`.
    pub output: Output,
    /// `text` for people, `json` for machines. Default `text`.
    pub format: LogFormat,
    /// The lowest level written: `error`, `warn`, `info` or `debug`. Default `info`.
    pub level: LogLevel,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object.
    Json,
    /// Text.
    #[default]
    Text,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something will fail.
    Warn,
    /// Something happened.
    #[default]
    Info,
    /// For debugging.
    Debug,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Its address, or `"off"`. Default `127.0.0.1:9180`; an address reachable from other machines needs a token.
    pub address: AdminAddress,
    /// Guards all but health and metrics; sent as `Authorization: Bearer TOKEN`. Default none. Write `${ADMIN_TOKEN}`
    /// or `${file:PATH}` rather than the token itself, or its hash as in `tokens`.
    pub token: Option<Secret>,
    /// More callers and their roles, identified by the hash of a token, by a certificate, or by the user id of a
    /// process on a Unix socket. Default none: `token` grants everything, and without `token` this machine may do
    /// everything.
    pub tokens: Vec<AdminToken>,
    /// TLS of the listener, unless `address` is a Unix socket. Default none: cleartext.
    pub tls: Option<AdminTls>,
    /// Names of the listener besides IP addresses and `localhost`, such as `gw1.internal`. Default none, because any
    /// other name may belong to a foreign page (DNS rebinding).
    pub hosts: Vec<String>,
    /// The file that the admin API writes. It belongs to the config without an `include`, and may be absent. Relative
    /// to this file. Default none: the API can read, check and compare the config, but not change it.
    pub writes: Option<FilePath>,
    /// A folder, private to this gateway, for the history of its config: the last 100 revisions, at most 64 MiB.
    /// Created if missing. Default none: no history and no rollback.
    pub state: Option<FilePath>,
    /// Folders whose files and Unix sockets the API's values may name. Default none: they may name no file, so that
    /// permission to write routes does not allow reading the disk.
    pub paths: Vec<FilePath>,
}

/// TLS of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminTls {
    /// Certificates with their keys, chosen by the name that a client asks for (SNI); the first if no name matches.
    /// At least one.
    pub certificates: Vec<CertificateFiles>,
    /// Whether clients must show a certificate, by which `tokens` may identify them. Default: they are not asked.
    #[serde(default)]
    pub client_auth: Option<ClientAuth>,
}

/// A caller of the admin listener, identified by a token, a certificate or a user id.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminToken {
    /// The caller's name in the history and the log.
    pub name: String,
    /// The hash of the token: `sha256:` and 64 hex digits, from `printf %s TOKEN | sha256sum`. Use tokens of at least
    /// 128 random bits.
    #[serde(default)]
    pub token: Option<Secret>,
    /// Instead of a token, an identity in the client's certificate (`tls.client_auth`): `dns:ci.internal`, `email:…`,
    /// `uri:…`, `ip:…`, `subject:CN=ci,O=Example` or `sha256:` and its fingerprint.
    #[serde(default)]
    pub certificate: Option<String>,
    /// Instead of a token, the user id of processes on this machine, if `address` is a Unix socket.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The caller's role: `read`; `operate`: also drain endpoints, reload and confirm; `write`: also change the
    /// config and roll back; `admin`: also drain and upgrade the process.
    pub role: Role,
}

/// The permissions of a caller; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// View everything but secrets.
    Read,
    /// Drain endpoints, reload, confirm.
    Operate,
    /// Change the config, roll back.
    Write,
    /// Drain and upgrade the process.
    Admin,
}

/// The address of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// An address.
    At(ListenAddress),
    /// No listener.
    Off,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

/// Limits for the whole gateway. A request beyond a limit is refused with its cause code.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest head of a message, first line and all fields; from `1KiB` to `1MiB`. Default `32KiB`. More is 431.
    pub header_bytes: ByteSize,
    /// Most header fields of a message; from 1 to 1000. Default 100. More is 431.
    #[schemars(range(min = 1, max = 1000))]
    pub headers: u32,
    /// Most client connections at one time, over all listeners. Default 65536. Beyond it, new ones are answered 503
    /// and closed; with TLS just closed, because a handshake would cost what the limit saves.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Most routes with their own metric series; further ones share an overflow series. Default 1000.
    #[schemars(range(min = 1))]
    pub metric_routes: u32,
    /// Most consumers with their own metric series; further ones share an overflow series. Default 1000.
    #[schemars(range(min = 1))]
    pub metric_consumers: u32,
    /// Largest body of a request. Default none: bodies stream through in bounded memory. More is 413.
    pub body_bytes: Option<ByteSize>,
    /// Largest JSON body of a request whose filters read `request.body` in expressions, as received and decoded; from
    /// `1KiB` to `16MiB`. Default `64KiB`. More is 413. The body is held in memory. What was read
    /// of it takes up to 150 bytes for each value, of which there may be 100,000.
    pub expression_body_bytes: ByteSize,
    /// Memory of each worker for the exchanges that `weir why` explains: failed ones, slow ones, and one in a
    /// thousand of the others. `0B` for none, else from `64KiB` to `64MiB`. Default `2MiB`: 512 exchanges of maximum
    /// size. Allocated on demand.
    pub autopsy: ByteSize,
    /// Limits for one client on one HTTP/2 or HTTP/3 connection.
    pub h2: H2Limits,
    /// Limits for one client address over all listeners. Default none.
    pub per_client: PerClient,
}

/// Limits for one client address, over all listeners and workers. Addresses of IPv6 count by their first 64 bits. The
/// address is the peer's, or the one in its PROXY header; X-Forwarded-For does not count, because one connection may
/// bring requests of many clients. `trusted_proxies` and Unix sockets are exempt.
///
/// Weir counts 131,072 addresses at one time; should there be more, the others are not limited. What is open when the
/// limit is set does not count. During an upgrade each of the two processes counts its own connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PerClient {
    /// Most connections at one time; from 1 to 1000000. Default no limit. Further ones are answered 429
    /// `client_connections` and closed; with TLS just closed. Many users may share the address of a company or a
    /// mobile network, and a browser opens 6 connections: 100 is a start.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: Option<u32>,
    /// Most TLS handshakes in a second, minute or hour, such as `20/s`. Default no limit. A client that made none for
    /// that time may begin as many at once. Further ones are closed with the cause `client_handshakes` before they
    /// cost anything.
    pub handshakes: Option<Frequency>,
}

/// Limits for one client on one HTTP/2 or HTTP/3 connection. A client that sends more frames of a kind than allowed is
/// cut with GOAWAY (ENHANCE_YOUR_CALM), or over HTTP/3 with H3_EXCESSIVE_LOAD. The allowances are per second, and honest
/// traffic earns more of each. They are about ten times what any client we know sends, and a thousandth of what an
/// attacker must send. What HTTP/3 leaves to QUIC (`continuations`, `pings`, `window_updates`) counts for HTTP/2 alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct H2Limits {
    /// Most concurrent requests. Default 128, as in nginx. One more is refused with REFUSED_STREAM; over HTTP/3 the
    /// client has to wait before it may send it.
    #[schemars(range(min = 1))]
    pub streams: u32,
    /// Most bytes of the heads of all concurrent requests, as HTTP/1.1 writes them. Default `256KiB`: 2 KiB for each
    /// of 128 requests. One more is refused with REFUSED_STREAM (H3_REQUEST_REJECTED) and may be retried, unless it is
    /// the only one. Raise it for a proxy that sends many requests with large cookies or tokens on one connection.
    pub heads: ByteSize,
    /// Most CONTINUATION frames of one head (not per second). Default 16; a head of 32 KiB needs two. Cause
    /// `h2_continuation_flood`.
    pub continuations: u32,
    /// Most empty DATA frames; each with data earns one more. Default 100. Causes `h2_data_flood`, `h3_data_flood`.
    pub empty_data: u32,
    /// Most streams that a client makes us reset. Default 100. Causes `h2_error_flood`, `h3_error_flood`.
    pub errors: u32,
    /// Most PING frames; each HEADERS or DATA frame earns one more, because gRPC measures bandwidth with them.
    /// Default 100. Cause `h2_ping_flood`.
    pub pings: u32,
    /// Most PRIORITY, PRIORITY_UPDATE and unknown frames; each request earns two more. Default 500. Causes
    /// `h2_priority_flood`, `h3_priority_flood`.
    pub priorities: u32,
    /// Most requests canceled (RST_STREAM); each response earns one more. Default 200, because leaving a page cancels
    /// all its requests together. Causes `h2_reset_flood`, `h3_reset_flood`.
    pub resets: u32,
    /// Most SETTINGS frames; over HTTP/3, which allows one, CANCEL_PUSH, MAX_PUSH_ID and GOAWAY. Default 50. Causes
    /// `h2_settings_flood`, `h3_push_flood`.
    pub settings: u32,
    /// Most WINDOW_UPDATE frames; each KiB of a response earns one more. Default 1000. Cause `h2_window_flood`.
    pub window_updates: u32,
}

/// What happens between SIGTERM and the end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shutdown {
    /// How long to serve as before after `/readyz` turned to 503, so that load balancers notice. Default `0s`.
    pub delay: Duration,
    /// How long exchanges in progress may then take before they are cut. Default `30s`, the grace period of
    /// Kubernetes.
    pub drain: Duration,
    /// How long an idle connection may then still send a request, which is answered with `Connection: close`. Also
    /// applies to connections of a listener that a reload removes. Default `1s`, so that a request already on its way
    /// does not meet a closed connection. With `0s`, only requests that have already arrived are answered.
    pub idle: Duration,
}

/// How names of endpoints are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dns {
    /// Name servers, such as `10.0.0.2` or `10.0.0.2:5353`. Default: those of the system (`/etc/resolv.conf`).
    pub servers: Vec<DnsServer>,
    /// Minimum time to use an answer, whatever its TTL. Default `1s`, against TTLs of zero.
    pub min_ttl: Duration,
    /// Maximum time to use an answer. Default `5m`, so that a moved service is found without a reload.
    pub max_ttl: Duration,
}

/// A name server. The default port is 53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DnsServer(pub SocketAddr);

// === defaults ===

impl AccessLog {
    /// The value for a missing section.
    pub fn off() -> Self {
        Self { output: Output::Off, ..Self::default() }
    }

    /// Parses a value of `redact`.
    pub fn redaction(how: &str) -> Option<Redaction> {
        Some(match how {
            "drop" => Redaction::Drop,
            "hide" => Redaction::Hide,
            "truncate" => Redaction::Truncate,
            _ => return None,
        })
    }

    /// The query parameters that no line shows.
    pub fn hidden_parameters(&self) -> impl Iterator<Item = &str> {
        self.redact.0.iter().filter_map(|(field, _)| field.strip_prefix("query:"))
    }
}

impl Default for AccessLog {
    fn default() -> Self {
        Self {
            output: Output::Stdout,
            format: AccessFormat::Json,
            fields: Vec::new(),
            when: None,
            redact: Pairs::default(),
            rotate: None,
            syslog: None,
            otlp: None,
        }
    }
}

impl Default for Syslog {
    fn default() -> Self {
        Self {
            server: String::new(),
            ca: None,
            client_cert: None,
            client_key: None,
            server_name: None,
            facility: Facility::default(),
            name: "weir".to_owned(),
        }
    }
}

impl Default for Rotate {
    fn default() -> Self {
        Self { size: None, age: None, keep: 7 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { output: Output::Stderr, format: LogFormat::Text, level: LogLevel::Info }
    }
}

impl Admin {
    /// The default address of the admin listener.
    pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9180);
}

impl Role {
    /// Its name in the config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl AdminToken {
    /// The hash of the token, as 64 digits.
    pub fn hash(&self) -> Option<&str> {
        self.token.as_ref()?.reveal().strip_prefix("sha256:")
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: AdminAddress::At(ListenAddress::Tcp(Self::DEFAULT_ADDRESS)),
            token: None,
            tokens: Vec::new(),
            tls: None,
            hosts: Vec::new(),
            writes: None,
            state: None,
            paths: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: ByteSize(32 * 1024),
            headers: 100,
            connections: 65536,
            metric_routes: 1000,
            metric_consumers: 1000,
            body_bytes: None,
            expression_body_bytes: ByteSize(64 * 1024),
            autopsy: ByteSize(2 << 20),
            h2: H2Limits::default(),
            per_client: PerClient::default(),
        }
    }
}

impl Default for H2Limits {
    fn default() -> Self {
        let floods = FloodLimits::default();
        Self {
            streams: 128,
            heads: ByteSize(256 * 1024),
            continuations: floods.continuations,
            empty_data: floods.empty_data,
            errors: floods.errors,
            pings: floods.pings,
            priorities: floods.priorities,
            resets: floods.resets,
            settings: floods.settings,
            window_updates: floods.window_updates,
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { delay: Duration::from_secs(0), drain: Duration::from_secs(30), idle: Duration::from_secs(1) }
    }
}

impl Default for Dns {
    fn default() -> Self {
        Self { servers: Vec::new(), min_ttl: Duration::from_secs(1), max_ttl: Duration::from_secs(300) }
    }
}

// === text forms ===

impl Workers {
    const MAX: u16 = 1024;

    /// The number of threads: as written, or one per core that this process may use.
    pub fn count(self) -> usize {
        match self {
            Self::Auto => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Count(n) => usize::from(n.get()),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a number of workers; expected auto or a number from 1 to 1024";
        let text = de::text(deserializer, EXPECTED)?;
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse::<NonZeroU16>() {
            Ok(count) if count.get() <= Self::MAX => Ok(Self::Count(count)),
            _ => Err(de::refuse(EXPECTED, None)),
        }
    }
}

impl JsonSchema for Workers {
    fn schema_name() -> Cow<'static, str> {
        "Workers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "`auto` or a number.",
            "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": Self::MAX }],
        })
    }
}

impl<'de> Deserialize<'de> for AccessFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a format; expected json, replay, combined, or a template such as `{time} {method} {path} {status}`";
        let text = de::text(deserializer, EXPECTED)?;
        match text.as_str() {
            "json" => Ok(Self::Json),
            "replay" => Ok(Self::Replay),
            _ if text == "combined" || text.contains('{') => Ok(Self::Template(text)),
            _ => Err(de::refuse(EXPECTED, None)),
        }
    }
}

super::values::text_schema!(
    AccessFormat,
    "json, replay, combined, or a template with fields in braces.",
    ["json", "replay", "combined", "{time} {method} {path} {status}"]
);

impl Serialize for AccessFormat {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Json => "json",
            Self::Replay => "replay",
            Self::Template(template) => template,
        })
    }
}

impl<'de> Deserialize<'de> for AdminAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = de::Raw::deserialize(deserializer)?;
        match raw.node.as_text() {
            Some("off") => Ok(Self::Off),
            _ => ListenAddress::from_raw(raw).map(Self::At),
        }
    }
}

super::values::text_schema!(
    AdminAddress,
    "An address of this machine with a port, a Unix socket, or off.",
    ["127.0.0.1:9180", "unix:/run/weir-admin.sock", "off"]
);

impl<'de> Deserialize<'de> for DnsServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a name server; expected an address such as 10.0.0.2 or 10.0.0.2:53";
        const DNS_PORT: u16 = 53;
        let text = de::text(deserializer, EXPECTED)?;
        let bare = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
        bare.or_else(|_| text.parse()).map(Self).map_err(|_| de::refuse(EXPECTED, None))
    }
}

super::values::text_schema!(
    DnsServer,
    "An address, with a port where it is not 53.",
    ["10.0.0.2", "[2001:db8::53]:53"]
);

// === impl Secret ===

impl Secret {
    /// Keeps `text` from being printed.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Callers must not print it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
