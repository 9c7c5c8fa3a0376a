//! Sections about the process itself: workers, logs, admin, limits, shutdown, dns.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::addresses::ListenAddress;
use super::listener::{CertificateFiles, ClientAuth};
use super::tracing::Collector;
use super::values::{FilePath, Output, Pairs};
use crate::de;
use crate::units::{ByteSize, Duration};
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
    /// Where lines go: `stdout`, `stderr`, `"off"` or a file, which SIGUSR1 reopens. Default `stdout`.
    pub output: Output,
    /// `json`, `combined` (as Apache and nginx call it), or a template with fields in braces, such as `{time} {method} {path}
    /// {status}`. Default `json`.
    pub format: AccessFormat,
    /// Fields of requests and responses that a JSON line tells too: `header:NAME` and `response_header:NAME`. A template has
    /// them in braces. Default none.
    pub fields: Vec<String>,
    /// Which exchanges have a line: an expression such as `status >= 400 or total > 1s or share 1%`. Default all.
    pub when: Option<String>,
    /// Fields that are not told as they are: `hide` writes `***`, `drop` leaves them out, `truncate` shortens an address to its network.
    /// Beside fields of the log, `header:NAME`, `response_header:NAME` and `query:NAME` (one parameter). Default none.
    pub redact: Pairs,
    /// When the file is put aside. Default never.
    pub rotate: Option<Rotate>,
    /// A syslog server, instead of `output`. Default none.
    pub syslog: Option<Syslog>,
    /// A collector by OpenTelemetry, instead of `output`: each exchange is a log record with the fields of JSON. Default none.
    pub otlp: Option<Collector>,
}

/// A syslog server that each line is sent to as a message (RFC 5424).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Syslog {
    /// Where it is: `udp://HOST:PORT`, `tcp://HOST:PORT` (each line with its length before it), `tls://HOST:PORT` (the same over TLS, RFC
    /// 5425) or `unix:/dev/log`. Required. The port is 514 by UDP, 601 by TCP and 6514 by TLS unless written.
    pub server: String,
    /// Authorities that may sign for a server by `tls://`, PEM. Default: those of the system.
    pub ca: Option<FilePath>,
    /// Our own certificate chain, PEM, for a server that asks for one. Needs `client_key`.
    pub client_cert: Option<FilePath>,
    /// The key of `client_cert`, PEM.
    pub client_key: Option<FilePath>,
    /// The name that the certificate of the server is to have. Default: the host of `server`.
    pub server_name: Option<String>,
    /// `local0` to `local7`, `user` or `daemon`. Default `local0`.
    pub facility: Facility,
    /// What the lines are from: APP-NAME. Default `weir`.
    pub name: String,
}

/// What kind of program a line is from, as syslog sorts them.
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

/// When a log file is put aside, under its name and the time: `access.log.20260301T120000Z`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rotate {
    /// Before it would be larger than this; at least `64KiB`. Default none.
    pub size: Option<ByteSize>,
    /// Once it is older than this; at least `1m`. Default none.
    pub age: Option<Duration>,
    /// How many files that were put aside are kept; older ones are removed. Default 7.
    #[schemars(range(min = 1, max = 10000))]
    pub keep: u32,
}

/// How a line of the access log looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessFormat {
    /// One JSON object with every field.
    #[default]
    Json,
    /// `combined`, or text with fields in braces.
    Template(String),
}

/// What the gateway says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Where lines go: `stderr`, `stdout`, `"off"` or a file, which SIGUSR1 reopens. Default `stderr`.
    pub output: Output,
    /// `text` for people, `json` for machines. Default `text`.
    pub format: LogFormat,
    /// The least important level written: `error`, `warn`, `info` or `debug`. Default `info`.
    pub level: LogLevel,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object.
    Json,
    /// Text.
    #[default]
    Text,
}

/// How important a line of the log is.
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
    /// For those who look for a mistake.
    Debug,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Where it listens, or `"off"`. Default `127.0.0.1:9180`; beyond this machine it needs a token.
    pub address: AdminAddress,
    /// Guards all but health and metrics; sent as `Authorization: Bearer TOKEN`. Default none. Write `${ADMIN_TOKEN}`
    /// or `${file:PATH}` rather than the token itself, or its hash as in `tokens`.
    pub token: Option<Secret>,
    /// Who else may ask, and what: by the hash of a token, by a certificate, or by the user id of a process that comes by a Unix socket. Default none: whoever
    /// has `token` may do everything, and without `token` this machine may.
    pub tokens: Vec<AdminToken>,
    /// TLS of the listener, where `address` is no Unix socket. Default none: cleartext.
    pub tls: Option<AdminTls>,
    /// Names beside IP addresses and `localhost` under which the listener may be asked, such as `gw1.internal`. Default none: a name may
    /// belong to a page from elsewhere (DNS rebinding).
    pub hosts: Vec<String>,
    /// The file that the admin API writes: it belongs to the config without standing under `include`, and may be absent. Relative to
    /// this file. Default none: over the API the config can be read, checked and compared, and not changed.
    pub writes: Option<FilePath>,
    /// A folder of this gateway's own for the history of its config: the last 100 revisions, at most 64 MiB. Made where there is
    /// none. Default none: no history, and no way back.
    pub state: Option<FilePath>,
    /// Folders below which things written over the API may name files and Unix sockets. Default none: they may name no file at
    /// all, so that whoever may write routes cannot read the disk.
    pub paths: Vec<FilePath>,
}

/// TLS of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminTls {
    /// Certificates with their keys, chosen by the name that is asked for (SNI); the first where no name matches. At least one.
    pub certificates: Vec<CertificateFiles>,
    /// Whether clients must show a certificate, by which `tokens` may know them. Default: they are not asked.
    #[serde(default)]
    pub client_auth: Option<ClientAuth>,
}

/// Someone who may ask the admin listener: by a token, by a certificate, or by a user id.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminToken {
    /// What the history and the log call whoever has it.
    pub name: String,
    /// The hash of the token: `sha256:` and 64 hex digits, as `printf %s TOKEN | sha256sum` makes them. Make tokens of at least 128
    /// random bits.
    #[serde(default)]
    pub token: Option<Secret>,
    /// In place of a token, what tells the certificate of a client (`tls.client_auth`): `dns:ci.internal`, `email:…`, `uri:…`, `ip:…`,
    /// `subject:CN=ci,O=Example` or `sha256:` and its fingerprint.
    #[serde(default)]
    pub certificate: Option<String>,
    /// In place of a token, the user id of processes on this machine, where `address` is a Unix socket.
    #[serde(default)]
    pub uid: Option<u32>,
    /// What they may do: `read`; `operate`: also drain endpoints, reload and confirm; `write`: also change the config and go back;
    /// `admin`: also drain and upgrade the process.
    pub role: Role,
}

/// What somebody may do; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at everything but secrets.
    Read,
    /// Drain endpoints, reload, confirm.
    Operate,
    /// Change the config, go back.
    Write,
    /// Drain and upgrade the process.
    Admin,
}

/// Where the admin listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// Here.
    At(ListenAddress),
    /// Nowhere.
    Off,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

/// Limits for the whole gateway. What goes beyond one is refused with its cause code.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest head of a message, first line and all fields; from `1KiB` to `1MiB`. Default `32KiB`. More is 431.
    pub header_bytes: ByteSize,
    /// Most header fields of a message; from 1 to 1000. Default 100. More is 431.
    #[schemars(range(min = 1, max = 1000))]
    pub headers: u32,
    /// Most connections of clients at one time, over all listeners. Default 65536. Beyond it, new ones are answered
    /// 503 and closed; with TLS just closed, because a handshake would cost what the limit saves.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Most routes with metric series of their own; all further ones share an overflow series. Default 1000.
    #[schemars(range(min = 1))]
    pub metric_routes: u32,
    /// Most consumers with metric series of their own; all further ones share an overflow series. Default 1000.
    #[schemars(range(min = 1))]
    pub metric_consumers: u32,
    /// Largest body of a request. Default none: bodies stream through in bounded memory. More is 413.
    pub body_bytes: Option<ByteSize>,
    /// Most memory of each worker for the exchanges that `weir why` tells about: failed ones, slow ones, and one in a thousand of the others; `0B` for
    /// none, else from `64KiB` to `64MiB`. Default `2MiB`: 512 exchanges at their longest. It is taken as it is needed.
    pub autopsy: ByteSize,
    /// What one client may do on one HTTP/2 connection.
    pub h2: H2Limits,
}

/// What one client may do on one HTTP/2 connection. Who sends more frames of a kind than allowed is cut with GOAWAY
/// (ENHANCE_YOUR_CALM). The allowances are for a second, and honest traffic earns more of each: they are about ten times
/// what any client we know sends, and a thousandth of what an attacker must.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct H2Limits {
    /// Most requests under way at one time. Default 128, as nginx. One more is refused with REFUSED_STREAM.
    #[schemars(range(min = 1))]
    pub streams: u32,
    /// Most bytes of the heads of all requests under way, as HTTP/1.1 writes them. Default `256KiB`: 2 KiB for each of 128
    /// requests. One more is refused with REFUSED_STREAM and may come again, unless it is the only one. A proxy in front that
    /// sends many requests with large cookies or tokens on one connection wants more.
    pub heads: ByteSize,
    /// Most CONTINUATION frames of one head, not a second. Default 16; a head of 32 KiB needs two. Cause `h2_continuation_flood`.
    pub continuations: u32,
    /// Most empty DATA frames; each with data earns one more. Default 100. Cause `h2_data_flood`.
    pub empty_data: u32,
    /// Most streams that a client makes us reset. Default 100. Cause `h2_error_flood`.
    pub errors: u32,
    /// Most PING frames; each HEADERS or DATA frame earns one more, because gRPC measures its bandwidth so. Default 100.
    /// Cause `h2_ping_flood`.
    pub pings: u32,
    /// Most PRIORITY and unknown frames; each request earns two more. Default 500. Cause `h2_priority_flood`.
    pub priorities: u32,
    /// Most requests canceled (RST_STREAM); each response earns one more. Default 200: a page that is left cancels all
    /// its requests at once. Cause `h2_reset_flood`.
    pub resets: u32,
    /// Most SETTINGS frames. Default 50. Cause `h2_settings_flood`.
    pub settings: u32,
    /// Most WINDOW_UPDATE frames; each KiB of a response earns one more. Default 1000. Cause `h2_window_flood`.
    pub window_updates: u32,
}

/// What happens between SIGTERM and the end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shutdown {
    /// How long we go on as before after `/readyz` turned to 503, so that load balancers notice. Default `0s`.
    pub delay: Duration,
    /// How long exchanges under way may then take before they are cut. Default `30s`, as Kubernetes grants.
    pub drain: Duration,
}

/// How names of endpoints are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dns {
    /// Name servers, such as `10.0.0.2` or `10.0.0.2:5353`. Default: those of the system (`/etc/resolv.conf`).
    pub servers: Vec<DnsServer>,
    /// An answer is used at least this long, whatever its TTL says. Default `1s`, against TTLs of zero.
    pub min_ttl: Duration,
    /// An answer is used at most this long. Default `5m`, so that a moved service is found without a reload.
    pub max_ttl: Duration,
}

/// A name server; port 53 where none is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DnsServer(pub SocketAddr);

// === defaults ===

impl AccessLog {
    /// What applies where the section is missing.
    pub fn off() -> Self {
        Self { output: Output::Off, ..Self::default() }
    }

    /// What a value of `redact` means.
    pub fn redaction(how: &str) -> Option<Redaction> {
        Some(match how {
            "drop" => Redaction::Drop,
            "hide" => Redaction::Hide,
            "truncate" => Redaction::Truncate,
            _ => return None,
        })
    }

    /// The parameters of queries that no line shows.
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
    /// Where the admin listener listens unless told otherwise.
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
            autopsy: ByteSize(2 << 20),
            h2: H2Limits::default(),
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
        Self { delay: Duration::from_secs(0), drain: Duration::from_secs(30) }
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

    /// How many: as written, or as many as this process may run on.
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
        const EXPECTED: &str =
            "a format; expected json, combined, or a template such as `{time} {method} {path} {status}`";
        let text = de::text(deserializer, EXPECTED)?;
        match text.as_str() {
            "json" => Ok(Self::Json),
            _ if text == "combined" || text.contains('{') => Ok(Self::Template(text)),
            _ => Err(de::refuse(EXPECTED, None)),
        }
    }
}

super::values::text_schema!(
    AccessFormat,
    "json, combined, or a template with fields in braces.",
    ["json", "combined", "{time} {method} {path} {status}"]
);

impl Serialize for AccessFormat {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Json => "json",
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

    /// The text itself. Whoever calls this sees that it is not printed.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
