//! Everything a run yields: the one record from which every layout, ours and foreign, is printed.
//!
//! Figures are raw: counts, sums, histograms. What is computed from them (rates, percentiles, shares) is computed where it
//! is printed, by the functions below [`Report`], so that two layouts cannot disagree and a saved report can be checked.
//! Which field feeds which line of k6, wrk, ab, ghz and oha stands at the fields.
//!
//! Times are nanoseconds of a monotonic clock (`_ns`), bytes are bytes, shares are 0 to 1. A field that a saved report lacks takes
//! its default, so that reports of older versions can be read; `schema` says which version wrote it.

mod ab;
mod csv;
mod figures;
mod ghz;
mod html;
mod json;
mod k6;
mod oha_json;
mod text;
mod verify;
mod wrk;
mod wrk2;

pub use figures::{Distribution, Figures, PhaseFigures};
pub use json::schema;
pub use text::verdict as verdict_text;
pub use verify::{Difference, verify};

use crate::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this data model, in [`Report::schema`].
pub const SCHEMA: &str = "weir.load/1";

/// The layouts, sorted by name. One more is a file in `report/` and its two lines here: `mod x;` and `&x::FORMAT`.
pub static FORMATS: &[&Format] = &[
    &ab::FORMAT,
    &csv::FORMAT,
    &ghz::FORMAT,
    &html::FORMAT,
    &json::FORMAT,
    &k6::FORMAT,
    &k6::FULL,
    &oha_json::FORMAT,
    &text::FORMAT,
    &wrk::FORMAT,
    &wrk2::FORMAT,
];

/// One way to print a report.
#[derive(Debug)]
pub struct Format {
    /// What `--format` calls it.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Prints it, with a line end at the end.
    pub print: fn(&Report) -> String,
}

impl Format {
    /// The layout of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|f| f.name == name).copied()
    }
}

impl std::str::FromStr for &'static Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Format::named(name).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// A name that is no layout's; says which there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl std::fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no report format `{}`; there are:", self.0)?;
        FORMATS.iter().try_for_each(|format| write!(f, "\n  {:<9} {}", format.name, format.about))
    }
}

impl std::error::Error for UnknownFormat {}

/// A report in a layout, with a line end at the end.
pub fn render(report: &Report, format: &Format) -> String {
    (format.print)(report)
}

/// What one run yields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Report {
    /// Version of the data model: `weir.load/1`.
    pub schema: String,
    /// Whether the figures can be believed, and why not. Computed last, from all the rest.
    pub verdict: Verdict,
    /// What was asked for, with every default filled in.
    pub plan: PlanAsRun,
    /// When the first request could start (after the warm-up): milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// From then until the planned end, or until the last response that is counted, if that came later in the graceful stop: what
    /// rates are divided by. Where the run ended otherwise, until then.
    pub duration_ns: u64,
    /// Length of the warm-up that came before and is in no other figure.
    pub warmup_ns: u64,
    /// Why it ended.
    pub end: End,
    /// Requests, responses and errors.
    pub counts: Counts,
    /// Bytes, as HTTP sees them.
    pub bytes: Bytes,
    /// The two latencies of each response.
    pub latency: Latency,
    /// Where the time of a request went, in k6's terms.
    pub phases: Phases,
    /// How the run went over time.
    pub series: Series,
    /// Each thread of the generator.
    pub threads: Vec<ThreadStats>,
    /// The connections as a set.
    pub connections: ConnectionStats,
    /// Each target on its own, in the order of [`PlanAsRun::targets`].
    pub targets: Vec<TargetStats>,
    /// What was really on the wire.
    pub ledger: Ledger,
    /// Checks, in the order given.
    pub checks: Vec<CheckResult>,
    /// Thresholds, in the order given.
    pub thresholds: Vec<ThresholdResult>,
    /// What the target spent; only with `--pid`.
    pub target_cost: Option<TargetCost>,
    /// How well the generator itself did: what the verdict looks at.
    pub health: Health,
    /// The machine and version that made the load.
    pub generator: Generator,
}

// === the plan ===

/// The plan as run: what the command line meant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlanAsRun {
    /// A name for the run, where one was given (ghz `name`).
    pub name: String,
    /// What was asked; at least one.
    pub targets: Vec<TargetPlan>,
    /// When requests begin.
    pub pace: Pace,
    /// When the run ends.
    pub stop: Stop,
    /// Connections (closed loop: clients; k6 VUs, ab `Concurrency Level`, ghz workers). With a fixed rate, the most that may be open.
    pub connections: u64,
    /// Threads of the generator.
    pub threads: u64,
    /// Streams at a time on one connection: 1 with HTTP/1.1.
    pub streams: u64,
    /// Requests written ahead of their responses on an HTTP/1.1 connection; 1 is no pipelining. With more, the requests of a batch start
    /// together and each has a latency of its own.
    pub pipeline: u64,
    /// Whether a connection serves more than one request.
    pub keepalive: bool,
    /// The protocol asked for.
    pub protocol: Protocol,
    /// Longest wait for a response, and for a connection. Default 30 s.
    pub timeout_ns: u64,
    /// Pause of a client between a response and its next request.
    pub think_ns: u64,
    /// How long requests under way may take to finish once the run is over. Default 30 s; 0 cuts them.
    pub graceful_stop_ns: u64,
}

/// One request of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetPlan {
    /// The method, such as `GET`.
    pub method: String,
    /// The URL as given, without credentials.
    pub url: String,
    /// `http`, `https`, `grpc`, …
    pub scheme: String,
    /// Host name or address (ab `Server Hostname`), without brackets.
    pub host: String,
    /// Port (ab `Server Port`); 0 for a Unix socket.
    pub port: u16,
    /// Path with query (ab `Document Path`).
    pub path: String,
    /// The addresses it resolved to, or `unix:PATH`.
    pub addresses: Vec<String>,
    /// Share of requests, relative to the other targets. Default 1.
    pub weight: u32,
    /// Header fields as sent, in order; the values of credentials are `***`.
    pub headers: Vec<(String, String)>,
    /// Bytes of the request body; of the first request, where bodies differ.
    pub body_bytes: u64,
}

/// When requests begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Pace {
    /// Closed loop: each client sends its next request as soon as it has its response (and its think time is over).
    #[default]
    AsFastAsPossible,
    /// Open loop: starts are fixed in advance, evenly spaced, whatever the target does.
    Rate {
        /// Requests a second, over all threads.
        per_second: f64,
    },
    /// The number of clients, or the rate, goes from stage to stage in a straight line.
    Stages {
        /// What the stages change.
        of: StageUnit,
        /// What it is before the first stage. Default 0.
        start: f64,
        /// The stages in order.
        stages: Vec<Stage>,
    },
}

/// What stages change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageUnit {
    /// Requests a second.
    Rate,
    /// Clients of a closed loop (k6 VUs).
    #[default]
    Users,
}

/// One stage: a straight line to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// How long it takes.
    pub duration_ns: u64,
    /// The value at its end.
    pub target: f64,
}

/// When the run ends: by whatever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Stop {
    /// After so many requests, shared by all clients (k6 shared iterations, ab `-n`, ghz `total`).
    pub requests: Option<u64>,
    /// After so long, warm-up not counted.
    pub duration_ns: Option<u64>,
}

/// A protocol, asked for or spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.0. Spoken by some servers, never asked for.
    #[serde(rename = "HTTP/1.0")]
    Http10,
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "HTTP/1.1")]
    Http11,
    /// HTTP/2, with or without TLS.
    #[serde(rename = "HTTP/2")]
    Http2,
}

/// Why a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum End {
    /// `--abort-on` came true.
    Aborted {
        /// The condition, as written.
        condition: String,
    },
    /// The time was up (also that of the last stage).
    #[default]
    Duration,
    /// Ctrl-C.
    Interrupted,
    /// All requests were made.
    Requests,
}

// === counts ===

/// Requests and what became of them. `requests = responses + errors + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Requests begun (k6 `http_reqs` is this without `unfinished`; `iterations` too).
    pub requests: u64,
    /// Complete responses of any status (wrk `N requests in`, ab `Complete requests`).
    pub responses: u64,
    /// Responses by exact status (oha `statusCodeDistribution`; wrk `Non-2xx or 3xx` sums those above 399; ab `Non-2xx responses` those outside of
    /// 200 to 299).
    pub statuses: BTreeMap<u16, u64>,
    /// gRPC codes by name, such as `OK` (ghz status distribution). Empty without gRPC.
    pub grpc: BTreeMap<String, u64>,
    /// Requests without a complete response, by kind.
    pub errors: Errors,
    /// Texts of errors and how often each occurred, the 32 first different ones (ghz and oha error distribution). The rest is under `…`.
    pub error_texts: BTreeMap<String, u64>,
    /// Requests sent whose response had not come when the run was over and the graceful stop too. Neither response nor error.
    pub unfinished: u64,
    /// Starts that were due under a fixed rate and never made because no connection was free before the end (k6 `dropped_iterations`). In no other
    /// figure.
    pub unsent: u64,
    /// Responses that failed at least one check.
    pub failed_checks: u64,
    /// Responses after which the connection stayed open (ab `Keep-Alive requests`).
    pub kept_alive: u64,
    /// Complete responses whose body length was not that of the first good one of the same target (ab failed, `Length`).
    pub other_length: u64,
}

/// Requests without a complete response, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Errors {
    /// No connection: refused, unreachable, out of ports or descriptors (wrk `connect`, ab `Connect`).
    pub connect: u64,
    /// The TLS handshake failed (wrk counts it under `connect`).
    pub tls: u64,
    /// No complete response within the timeout, or no connection. Not wrk's meaning: wrk counts responses that came, but late.
    pub timeout: u64,
    /// The connection ended or was reset before the response was complete (wrk `read`, ab `Receive`).
    pub reset: u64,
    /// The request could not be written (wrk `write`).
    pub write: u64,
    /// The response broke a rule of the protocol (wrk counts it under `read`, ab under `Exceptions`).
    pub protocol: u64,
}

impl Errors {
    /// All kinds together.
    pub const fn total(&self) -> u64 {
        self.connect + self.tls + self.timeout + self.reset + self.write + self.protocol
    }
}

/// Bytes of HTTP: under TLS those inside, so without its records and handshakes, and without TCP's. Interim responses count as head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Bytes {
    /// Request heads sent.
    pub sent_head: u64,
    /// Request bodies sent.
    pub sent_body: u64,
    /// Response heads received, of complete and incomplete responses.
    pub received_head: u64,
    /// Response bodies received without the framing of chunks (ab `HTML transferred`).
    pub received_body: u64,
    /// Framing of chunks and trailers received.
    pub received_framing: u64,
}

impl Bytes {
    /// All that was sent (k6 `data_sent`).
    pub const fn sent(&self) -> u64 {
        self.sent_head + self.sent_body
    }

    /// All that was received (k6 `data_received`, wrk `read`, ab `Total transferred`).
    pub const fn received(&self) -> u64 {
        self.received_head + self.received_body + self.received_framing
    }
}

// === times ===

/// The latencies of complete responses of any status, in nanoseconds. Errors and unfinished requests are in none of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Latency {
    /// Service time: from the first byte of the request written to the last byte of the response (k6 `http_req_duration`, wrk
    /// `Latency` without its invented samples, wrk2 `uncorrected`, ab `Processing`, ghz, hey). Without connecting.
    pub service: Histogram,
    /// Response time: from the intended start to the last byte of the response (wrk2; ab `Total`; oha). With a fixed rate the intended start is
    /// the plan's; else it is the moment the client turned to the request, before connecting. The same as `service` on a reused connection of
    /// a closed loop.
    pub response: Histogram,
    /// The part of `service` whose status was outside of 200 to 399. `service.without(&service_unexpected)` is k6's
    /// `{ expected_response:true }`.
    pub service_unexpected: Histogram,
    /// From the first byte of the request written to the first byte of the response (oha `firstByte`).
    pub first_byte: Histogram,
}

/// The phases of each complete response, as k6 defines them, in nanoseconds. Each histogram has one value per response; phases that a
/// reused connection has no need of count as 0, as in k6.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Phases {
    /// From wanting a connection to having one: dialling and TLS (k6 `http_req_blocked`, ab `Connect`). 0 on reuse.
    pub blocked: Histogram,
    /// Looking up the name. 0 for each request: names are looked up once, before the run ([`Ledger::dns_ns`]).
    pub dns: Histogram,
    /// TCP connect only (k6 `http_req_connecting`). 0 on reuse.
    pub connecting: Histogram,
    /// TLS handshake only (k6 `http_req_tls_handshaking`). 0 on reuse and without TLS.
    pub tls: Histogram,
    /// From the connection ready to the request fully written (k6 `http_req_sending`).
    pub sending: Histogram,
    /// From the request fully written to the first byte of the response (k6 `http_req_waiting`, ab `Waiting`). 0 where the response came before
    /// the request was fully written.
    pub waiting: Histogram,
    /// From the first byte of the response to the last (k6 `http_req_receiving`). 0 where one read brought all.
    pub receiving: Histogram,
}

/// The run over time. Memory is constant: beyond [`Series::TICKS_MOST`] ticks, neighbours are merged and the tick
/// doubles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Series {
    /// Length of one tick; the last may be shorter. 1 s at first.
    pub tick_ns: u64,
    /// The ticks in order, from the start of measuring.
    pub ticks: Vec<Tick>,
}

impl Series {
    /// Most ticks kept: an hour of seconds.
    pub const TICKS_MOST: usize = 3600;
}

/// What happened between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tick {
    /// Its end, from the start of measuring.
    pub end_ns: u64,
    /// How long it really was: what its rates are divided by.
    pub length_ns: u64,
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Responses with a status outside of 200 to 399.
    pub unexpected: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Clients that may send, at its end (k6 `vus`); with a fixed rate, those with a request under way.
    pub users: u64,
    /// Starts due and not yet made, at its end. 0 in a closed loop.
    pub backlog: u64,
    /// Service time of the responses in it. In merged ticks each percentile is the larger of the two.
    pub service: Percentiles,
    /// Response time of the responses in it.
    pub response: Percentiles,
    /// Processor time of all threads of the generator.
    pub generator_cpu_ns: u64,
}

/// A few percentiles in nanoseconds, where a histogram would be too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(missing_docs)] // the names say it
pub struct Percentiles {
    pub min: u64,
    pub mean: f64,
    pub p50: u64,
    pub p75: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Percentiles {
    /// Those of a histogram.
    pub fn of(h: &Histogram) -> Self {
        Self {
            min: h.min(),
            mean: h.mean(),
            p50: h.quantile(0.5),
            p75: h.quantile(0.75),
            p90: h.quantile(0.9),
            p95: h.quantile(0.95),
            p99: h.quantile(0.99),
            p999: h.quantile(0.999),
            max: h.max(),
        }
    }
}

// === parts of the generator ===

/// One thread of the generator (wrk `Thread Stats` are over all of these).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThreadStats {
    /// Connections (clients) that belong to it.
    pub connections: u64,
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Service time of its responses: mean, deviation and largest are `service.mean()`, `.stdev()`, `.max()`.
    pub service: Histogram,
    /// Its rate in responses a second, one value for each 100 ms (wrk `Req/Sec`: `mean`, `stdev`, `max`, `share_within` of these histograms
    /// added up). Unit: responses a second, not nanoseconds.
    pub rates: Histogram,
    /// Processor time while measuring.
    pub cpu_ns: u64,
    /// Time it was ready to run and had no processor, while measuring; 0 where the kernel does not tell.
    pub waited_ns: u64,
    /// Sum over its clients of the time they had a request under way, connecting and errors included, while measuring: for Little's law.
    pub busy_ns: u64,
    /// Sum over its clients of the time they could have had one: their number times the duration, less think time and time before
    /// their stage.
    pub available_ns: u64,
}

/// The connections as a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConnectionStats {
    /// Connections opened, warm-up included.
    pub opened: u64,
    /// Of these, while measuring.
    pub opened_measured: u64,
    /// Requests that went over a connection used before.
    pub reused: u64,
    /// Complete responses of each client, in order of their numbers; at most 65,536 of them. 0 means starved.
    pub responses_by_client: Vec<u64>,
    /// Times to connect, TLS included, of all connections opened, warm-up included (oha `DNSDialup`).
    pub dial: Histogram,
}

/// One target's share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetStats {
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Of these, with a status outside of 200 to 399.
    pub unexpected: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Service time of its responses. Empty with a single target: [`Latency::service`] is the same.
    pub service: Histogram,
    /// Body bytes of the first good (2xx) response (ab `Document Length`); none when there was no such response.
    pub document_bytes: Option<u64>,
    /// Smallest and largest body of a good response.
    pub body_bytes: Option<(u64, u64)>,
}

/// What was really on the wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ledger {
    /// Responses by the protocol they came in.
    pub protocols: BTreeMap<String, u64>,
    /// `TLSv1.3`, `TLSv1.2`; none without TLS (ab `SSL/TLS Protocol`).
    pub tls_version: Option<String>,
    /// The cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub tls_cipher: Option<String>,
    /// The group of the key exchange, in the words of IANA: `X25519`, `secp256r1` (ab `Server Temp Key`).
    pub tls_group: Option<String>,
    /// Bits of the key in the server's certificate (ab, third in `SSL/TLS Protocol`).
    pub tls_key_bits: Option<u32>,
    /// What ALPN chose; none where it was not asked or not answered, and with HTTP/1.1, which has nothing to choose.
    pub alpn: Option<String>,
    /// Connections by protocol, TLS version and cipher, joined by blanks, in case they differ.
    pub sessions: BTreeMap<String, u64>,
    /// Time that looking up all names took, before the run.
    pub dns_ns: u64,
    /// The first request on the wire, up to 4 KiB, with what is not printable escaped as in Rust (`\r\n`, `\x1f`); credentials are `***`.
    pub first_request: String,
    /// Its whole length.
    pub first_request_bytes: u64,
    /// The first complete response on the wire, likewise.
    pub first_response: String,
    /// Its whole length.
    pub first_response_bytes: u64,
    /// `Server` field of the first good response, whole (ab prints it up to the first blank).
    pub server: Option<String>,
    /// `Content-Type` of the first good response.
    pub content_type: Option<String>,
}

/// One check over all responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CheckResult {
    /// As written: `status=200`.
    pub check: String,
    /// Responses that passed.
    pub passed: u64,
    /// Responses that did not.
    pub failed: u64,
}

/// One threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThresholdResult {
    /// As written: `p99<20ms`.
    pub threshold: String,
    /// What was measured, in the unit of the metric: nanoseconds, a share, a rate; none when there was nothing to measure, which fails.
    pub measured: Option<f64>,
    /// Whether it held.
    pub passed: bool,
}

/// What the target's process tree spent in the steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetCost {
    /// The root of the tree.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// Processes in the tree at the end.
    pub processes: u64,
    /// Time between first and last sample.
    pub sampled_ns: u64,
    /// Responses in that time: what costs are divided by.
    pub responses: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Of this, in the kernel; known to a clock tick (10 ms) only.
    pub system_ns: u64,
    /// Resident memory, largest sample.
    pub rss_bytes_max: u64,
    /// Resident memory, last sample.
    pub rss_bytes_end: u64,
    /// Threads, largest sample.
    pub threads_max: u64,
    /// Context switches that the processes asked for by waiting.
    pub voluntary_switches: u64,
    /// Context switches that took the processor away.
    pub involuntary_switches: u64,
    /// Bytes received by the target's network namespace, all interfaces.
    pub net_received: u64,
    /// Bytes sent by it.
    pub net_sent: u64,
}

/// How well the generator did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Health {
    /// With a fixed rate: from the intended start to the real one, where a connection was free: the generator's own lateness.
    pub start_lag: Histogram,
    /// Largest number of starts due and not made.
    pub backlog_max: u64,
    /// Longest time without any response while requests were under way.
    pub longest_silence_ns: u64,
    /// How far the wall clock moved against the monotonic one: a step, if more than a few milliseconds.
    pub clock_step_ns: i64,
    /// Connects that failed because no local port was free.
    pub out_of_ports: u64,
    /// Connects that failed because no descriptor was free.
    pub out_of_descriptors: u64,
    /// Largest resident memory of the generator.
    pub rss_bytes_max: u64,
}

/// The machine and version that made the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Generator {
    /// Version of Weir.
    pub version: String,
    /// Kernel, as `uname -sr` says it.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Cores that it may run on.
    pub cores: u64,
}

// === the verdict ===

/// Whether a result can be believed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Verdict {
    /// The worst of the reasons'.
    pub grade: Grade,
    /// Why; empty when valid. Those that weigh most come first.
    pub reasons: Vec<Reason>,
}

/// How far a result can be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Grade {
    /// Nothing speaks against it.
    #[default]
    Valid,
    /// Something may have distorted it: read the reasons before you quote it.
    Suspect,
    /// It is not what was asked for: do not quote it.
    Invalid,
}

/// One reason. Codes and what to do about each: docs/verdict.md.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reason {
    /// A stable name, such as `generator_busy`.
    pub code: String,
    /// How much it takes from the result.
    pub grade: Grade,
    /// What was seen, with figures, in one line.
    pub text: String,
}

// === what layouts compute ===

impl Report {
    /// Seconds that rates are divided by; never 0.
    pub fn seconds(&self) -> f64 {
        (self.duration_ns.max(1)) as f64 / 1e9
    }

    /// Complete responses a second (wrk `Requests/sec`, ab `Requests per second`).
    pub fn rate(&self) -> f64 {
        self.counts.responses as f64 / self.seconds()
    }

    /// Requests that came to an end: responses and errors (k6 `http_reqs`, ghz `count`).
    pub const fn finished(&self) -> u64 {
        self.counts.responses + self.counts.errors.total()
    }

    /// Responses whose status is in `statuses`.
    pub fn with_status(&self, statuses: std::ops::RangeInclusive<u16>) -> u64 {
        self.counts.statuses.range(statuses).map(|(_, n)| n).sum()
    }

    /// Finished requests that failed as k6 counts it: errors, and statuses outside of 200 to 399 (k6 `http_req_failed`).
    pub fn failed(&self) -> u64 {
        self.counts.errors.total() + self.counts.responses - self.with_status(200..=399)
    }

    /// `failed` as a share of the finished; 0 when nothing finished.
    pub fn failed_share(&self) -> f64 {
        if self.finished() == 0 { 0.0 } else { self.failed() as f64 / self.finished() as f64 }
    }

    /// Processor time of the generator as a share of one core, of its busiest thread.
    pub fn busiest_thread(&self) -> f64 {
        let most = self.threads.iter().map(|t| t.cpu_ns).max().unwrap_or(0);
        most as f64 / self.duration_ns.max(1) as f64
    }

    /// Responses for each second of the generator's processor time; 0 when that is unknown.
    pub fn per_generator_core_second(&self) -> f64 {
        let cpu: u64 = self.threads.iter().map(|t| t.cpu_ns).sum();
        if cpu == 0 { 0.0 } else { self.counts.responses as f64 / (cpu as f64 / 1e9) }
    }

    /// The difference between Little's law and what was seen, 0 to 1: the share of the clients' time in which they had no request
    /// under way though they should. None where clients may be idle (fixed rate).
    pub fn little_residual(&self) -> Option<f64> {
        let available: u64 = self.threads.iter().map(|t| t.available_ns).sum();
        let busy: u64 = self.threads.iter().map(|t| t.busy_ns).sum();
        let closed = match &self.plan.pace {
            Pace::AsFastAsPossible => true,
            Pace::Rate { .. } => false,
            Pace::Stages { of, .. } => *of == StageUnit::Users,
        };
        (closed && available > 0).then(|| (1.0 - busy as f64 / available as f64).max(0.0))
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        })
    }
}

impl std::fmt::Display for Grade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Valid => "VALID",
            Self::Suspect => "SUSPECT",
            Self::Invalid => "INVALID",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_being_saved() {
        let mut report =
            Report { schema: SCHEMA.to_owned(), duration_ns: 2_000_000_000, ..Report::default() };
        report.counts.statuses = BTreeMap::from([(200, 90), (302, 5), (500, 5)]);
        report.counts.responses = 100;
        report.counts.errors.reset = 3;
        report.plan.pace = Pace::Rate { per_second: 50.0 };
        report.end = End::Aborted { condition: "errors>50%".to_owned() };
        (1..=100).for_each(|ms| report.latency.service.record(ms * 1_000_000));
        let text = (Format::named("json").unwrap().print)(&report);
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(back, report);
        assert_eq!((back.rate(), back.finished(), back.failed()), (50.0, 103, 8));
        assert_eq!(back.little_residual(), None);
    }

    #[test]
    fn a_report_of_an_older_version_can_be_read() {
        let back: Report =
            serde_json::from_str(r#"{"schema":"weir.load/1","counts":{"responses":7}}"#).unwrap();
        assert_eq!((back.counts.responses, back.verdict.grade), (7, Grade::Valid));
    }

    #[test]
    fn clients_that_wait_for_the_generator_show_in_littles_law() {
        let thread = |busy_ns| ThreadStats { busy_ns, available_ns: 50, ..ThreadStats::default() };
        let mut report = Report { threads: vec![thread(50), thread(35)], ..Report::default() };
        assert!((report.little_residual().unwrap() - 0.15).abs() < 1e-9);
        report.plan.pace = Pace::Stages { of: StageUnit::Rate, start: 0.0, stages: vec![] };
        assert_eq!(report.little_residual(), None);
    }
}
