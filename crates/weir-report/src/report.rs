//! Everything a run yields: the one record from which every layout, ours and foreign, is printed.
//!
//! Figures are raw: counts, sums, histograms. What is computed from them (rates, percentiles, shares) is computed where it
//! is printed, by the functions below [`Report`], so that two layouts cannot disagree and a saved report can be checked.
//! Which field feeds which line of k6, wrk, ab, ghz and oha stands at the fields.
//!
//! Times are nanoseconds of a monotonic clock (`_ns`), bytes are bytes, shares are 0 to 1. A field that a saved report lacks takes
//! its default, so that reports of older versions can be read; `schema` says which version wrote it.

mod figures;
mod parts;
mod plan;
mod times;

pub use figures::{Distribution, Figures, PhaseFigures};
pub use parts::{
    AddressUse, CheckResult, ConnectionStats, CoreUse, CoreUser, Generator, Health, Ledger, TargetCost,
    TargetStats, ThreadStats, ThresholdResult, WebSocketStats, Window,
};
pub use plan::{CallKind, CallPlan, End, Pace, PlanAsRun, Protocol, Stage, StageUnit, Stop, TargetPlan};
pub(crate) use times::{BEYOND, responses_for};
pub use times::{Latency, Percentiles, Phases, Series, Tick};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this data model, in [`Report::schema`].
pub const SCHEMA: &str = "weir.load/1";

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
    /// From then until the planned end, or until the last response that is counted, if that came later in the graceful stop. Where the run
    /// ended otherwise, until then. k6, ab, ghz and oha divide by it; our own rates are those of [`Report::window`].
    pub duration_ns: u64,
    /// What came to its end before the planned end: what rates are of. None in reports of versions that knew no such thing: then they are of all
    /// that was counted, over `duration_ns`.
    pub window: Option<Window>,
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
    /// The sessions of WebSocket; only where that was asked for.
    pub websocket: Option<WebSocketStats>,
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
    /// 200 to 299). 101 is the answer to a message of a WebSocket.
    pub statuses: BTreeMap<u16, u64>,
    /// gRPC codes of responses by name, such as `OK`. Empty without gRPC. A response that is not gRPC has the code that its status means to gRPC. (The
    /// status distribution of ghz has errors too: those of time as `DeadlineExceeded`, the others as `Unavailable`.)
    pub grpc: BTreeMap<String, u64>,
    /// Responses to calls of gRPC that are not gRPC: another content-type, or no grpc-status.
    pub not_grpc: u64,
    /// Messages of gRPC received.
    pub messages: u64,
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
    /// Each kind with its name.
    pub const fn kinds(&self) -> [(&'static str, u64); 6] {
        [
            ("connect", self.connect),
            ("tls", self.tls),
            ("timeout", self.timeout),
            ("reset", self.reset),
            ("write", self.write),
            ("protocol", self.protocol),
        ]
    }

    /// All kinds together.
    pub const fn total(&self) -> u64 {
        self.connect + self.tls + self.timeout + self.reset + self.write + self.protocol
    }

    /// Adds those of another part.
    pub const fn add(&mut self, other: &Self) {
        self.connect += other.connect;
        self.tls += other.tls;
        self.timeout += other.timeout;
        self.reset += other.reset;
        self.write += other.write;
        self.protocol += other.protocol;
    }

    /// Those that came after `earlier`.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            connect: self.connect - earlier.connect,
            tls: self.tls - earlier.tls,
            timeout: self.timeout - earlier.timeout,
            reset: self.reset - earlier.reset,
            write: self.write - earlier.write,
            protocol: self.protocol - earlier.protocol,
        }
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

/// One reason. Codes and what to do about each: docs/explain/verdict.md.
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
    /// Seconds from the start of measuring until the last response; never 0.
    pub fn seconds(&self) -> f64 {
        (self.duration_ns.max(1)) as f64 / 1e9
    }

    /// What rates are of: the window, and everything where an older report has none.
    pub fn rated(&self) -> Window {
        self.window.unwrap_or_else(|| Window {
            length_ns: self.duration_ns,
            responses: self.counts.responses,
            errors: self.counts.errors.total(),
            sent: self.bytes.sent(),
            received: self.bytes.received(),
        })
    }

    /// Complete responses a second (wrk `Requests/sec`).
    pub fn rate(&self) -> f64 {
        let rated = self.rated();
        rated.responses as f64 / rated.seconds()
    }

    /// Requests that came to an end: responses and errors (k6 `http_reqs`, ghz `count`).
    pub const fn finished(&self) -> u64 {
        self.counts.responses + self.counts.errors.total()
    }

    /// Responses whose status is in `statuses`.
    pub fn with_status(&self, statuses: std::ops::RangeInclusive<u16>) -> u64 {
        self.counts.statuses.range(statuses).map(|(_, n)| n).sum()
    }

    /// Whether calls of gRPC were made.
    pub fn is_grpc(&self) -> bool {
        self.plan.targets.iter().any(|t| t.call.is_some()) || !self.counts.grpc.is_empty()
    }

    /// Responses that nobody has to explain: with a status of 200 to 399, and 101 for messages of a WebSocket; with gRPC, with the code OK.
    pub fn expected(&self) -> u64 {
        if self.is_grpc() {
            return self.counts.grpc.get("OK").copied().unwrap_or(0);
        }
        self.counts.statuses.iter().filter(|(status, _)| is_expected(**status)).map(|(_, n)| n).sum()
    }

    /// Finished requests that failed as k6 counts it: errors, and responses that are not as expected (k6 `http_req_failed`).
    pub fn failed(&self) -> u64 {
        (self.counts.errors.total() + self.counts.responses).saturating_sub(self.expected())
    }

    /// `failed` as a share of the finished; 0 when nothing finished.
    pub fn failed_share(&self) -> f64 {
        if self.finished() == 0 { 0.0 } else { self.failed() as f64 / self.finished() as f64 }
    }

    /// Processor time of the generator as a share of one core, of its busiest thread.
    pub fn busiest_thread(&self) -> f64 {
        self.threads.iter().map(|t| self.share_of(t, t.cpu_ns)).fold(0.0, f64::max)
    }

    /// The most that a thread of the generator wanted of its core: what it used and what it waited for, as a share of the time.
    pub(crate) fn most_wanted(&self) -> f64 {
        self.threads.iter().map(|t| self.share_of(t, t.cpu_ns + t.waited_ns)).fold(0.0, f64::max)
    }

    /// The longest that a thread of the generator waited for a processor, as a share of the time.
    pub fn longest_wait(&self) -> f64 {
        self.threads.iter().map(|t| self.share_of(t, t.waited_ns)).fold(0.0, f64::max)
    }

    /// A part of the time that a thread was measured.
    fn share_of(&self, thread: &ThreadStats, part_ns: u64) -> f64 {
        let whole = if thread.measured_ns == 0 { self.duration_ns } else { thread.measured_ns };
        part_ns as f64 / whole.max(1) as f64
    }

    /// Responses for each second of the generator's processor time; 0 when that is unknown.
    pub fn per_generator_core_second(&self) -> f64 {
        let cpu: u64 = self.threads.iter().map(|t| t.cpu_ns).sum();
        if cpu == 0 { 0.0 } else { self.rated().responses as f64 / (cpu as f64 / 1e9) }
    }

    /// The difference between Little's law and what was seen, 0 to 1: the share of the clients' time in which they had no request
    /// under way and did not think either. None where clients may be idle (fixed rate).
    pub fn little_residual(&self) -> Option<f64> {
        let available = self.clients_ns();
        let busy: f64 = self.threads.iter().map(|t| t.busy_ns as f64 + t.think_ns as f64).sum();
        (self.plan.pace.is_closed() && available > 0.0).then(|| (1.0 - busy / available).max(0.0))
    }

    /// How long all clients together could have had a request under way, in nanoseconds.
    pub(crate) fn clients_ns(&self) -> f64 {
        self.threads.iter().map(|t| t.available_ns as f64).sum()
    }
}

/// See [`Report::expected`]. Asked of each response while a load runs.
#[inline]
pub const fn is_expected(status: u16) -> bool {
    matches!(status, 101 | 200..400)
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
    fn rates_are_of_the_window_and_of_everything_where_an_older_report_has_none() {
        let thread =
            ThreadStats { measured_ns: 2_000_000_000, cpu_ns: 1_000_000_000, ..ThreadStats::default() };
        let mut r = Report { duration_ns: 8_000_000_000, threads: vec![thread], ..Report::default() };
        r.counts.responses = 16;
        r.window = Some(Window { length_ns: 2_000_000_000, responses: 12, ..Window::default() });
        assert_eq!((r.rate(), r.busiest_thread(), r.per_generator_core_second()), (6.0, 0.5, 12.0));
        let mut old = serde_json::to_value(&r).unwrap();
        old.as_object_mut().unwrap().remove("window");
        old["threads"][0].as_object_mut().unwrap().remove("measured_ns");
        let old: Report = serde_json::from_value(old).unwrap();
        assert_eq!((old.rate(), old.busiest_thread(), old.per_generator_core_second()), (2.0, 0.125, 16.0));
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
