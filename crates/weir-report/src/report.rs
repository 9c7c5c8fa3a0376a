//! All results of a run: the single record from which every layout, ours or another tool's, is printed.
//!
//! Values are raw: counts, sums, histograms. Derived values (rates, percentiles, shares) are computed on printing, by
//! the functions below [`Report`], so that two layouts cannot disagree and a saved report can be checked. Each
//! field's documentation names the lines of k6, wrk, ab, ghz and oha that use it.
//!
//! Times are nanoseconds of a monotonic clock (`_ns`), bytes are bytes, shares are 0 to 1. A field missing from a
//! saved report takes its default, so reports of older versions can be read; `schema` has the version that wrote it.

mod agents;
mod figures;
mod journey;
mod judgement;
mod parts;
mod plan;
mod replay;
mod shaped;
mod times;

pub use agents::{AgentStats, LostAgent};
pub use figures::{Distribution, Figures, PhaseFigures};
pub use journey::{KeepStats, ScenarioStats, StepKind, StepStats, StepTick};
pub use judgement::{
    BaselineUse, Block, BlockStep, FigureChange, GateResult, GateState, Judgement, Outlook, Source,
};
pub use parts::{
    AddressUse, AnswerKind, CheckResult, ConnectionStats, CoreUse, CoreUser, Generator, Health, Ledger,
    TargetCost, TargetStats, ThreadStats, ThresholdResult, WebSocketStats, Window,
};
pub use plan::{
    CallKind, CallPlan, End, Pace, PartPlan, PlanAsRun, Protocol, Stage, StageUnit, Stop, TargetPlan,
};
pub(crate) use replay::ROUTE_HEADS;
pub use replay::{BROKEN, LengthPair, ReplayStats, ReplayedRoute, StatusPair, UnreadLine};
pub use shaped::{Change, PartIterations, PartStats, Recovery};
pub(crate) use times::{BEYOND, responses_for};
pub use times::{Latency, Percentiles, Phases, Series, Tick};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this data model, in [`Report::schema`].
pub const SCHEMA: &str = "weir.load/1";

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Report {
    /// Version of the data model: `weir.load/1`.
    pub schema: String,
    /// Whether the figures can be believed, and why not. Computed last, from everything else.
    pub verdict: Verdict,
    /// The plan, with every default filled in.
    pub plan: PlanAsRun,
    /// When the first request could start (after the warm-up): milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// From then until the planned end, or until the last counted response if that came later, in the graceful stop.
    /// If the run ended early, until that moment. k6, ab, ghz and oha divide by it; our own rates use
    /// [`Report::window`].
    pub duration_ns: u64,
    /// The requests that finished before the planned end, which rates refer to. None in reports of older versions;
    /// their rates cover everything counted, over `duration_ns`.
    pub window: Option<Window>,
    /// Length of the warm-up before it, which no other figure includes.
    pub warmup_ns: u64,
    /// Why it ended.
    pub end: End,
    /// Requests, responses and errors.
    pub counts: Counts,
    /// Bytes at the level of HTTP.
    pub bytes: Bytes,
    /// The two latencies of each response.
    pub latency: Latency,
    /// Where each request's time went, in k6's terms.
    pub phases: Phases,
    /// The run over time.
    pub series: Series,
    /// Each generator thread.
    pub threads: Vec<ThreadStats>,
    /// All connections together.
    pub connections: ConnectionStats,
    /// Each target separately, in the order of [`PlanAsRun::targets`].
    pub targets: Vec<TargetStats>,
    /// Each part of a shape, in order; empty without a shape.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartStats>,
    /// Changes made during the run, on the control socket.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// What was actually on the wire.
    pub ledger: Ledger,
    /// Each scenario, in the order of the plan. Empty for a plan without scenarios, like `steps`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<ScenarioStats>,
    /// Each named step, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepStats>,
    /// The WebSocket sessions; only with WebSocket.
    pub websocket: Option<WebSocketStats>,
    /// Checks, in the order given.
    pub checks: Vec<CheckResult>,
    /// Thresholds, in the order given.
    pub thresholds: Vec<ThresholdResult>,
    /// The tool that measured it, if that was not Weir.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Runs that were added up to this report; 0 for a single one.
    #[serde(skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// Each agent of a load from several machines; empty without agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentStats>,
    /// The equal parts of the measured time; only with `--rounds`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// What else the run was held against: a baseline, a required grade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
    /// The target's cost; only with `--pid`.
    pub target_cost: Option<TargetCost>,
    /// How well the generator performed, which the verdict takes into account.
    pub health: Health,
    /// The machine and version that generated the load.
    pub generator: Generator,
    /// The replayed recording; only of `weir replay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayStats>,
}

// === counts ===

/// Requests and their outcomes. `requests = responses + errors + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Requests begun (k6 `http_reqs` is this without `unfinished`; `iterations` too).
    pub requests: u64,
    /// Complete responses of any status (wrk `N requests in`, ab `Complete requests`).
    pub responses: u64,
    /// Responses by exact status (oha `statusCodeDistribution`; wrk `Non-2xx or 3xx` sums those above 399; ab
    /// `Non-2xx responses` those outside 200 to 299). 101 is the answer to a WebSocket message.
    pub statuses: BTreeMap<u16, u64>,
    /// gRPC codes of responses by name, such as `OK`. Empty without gRPC. A response that is not gRPC has the code
    /// that gRPC assigns to its status. (ghz's status distribution includes errors: timeouts as `DeadlineExceeded`,
    /// others as `Unavailable`.)
    pub grpc: BTreeMap<String, u64>,
    /// Responses to gRPC calls that are not gRPC: another content-type, or no grpc-status.
    pub not_grpc: u64,
    /// gRPC messages received.
    pub messages: u64,
    /// Requests without a complete response, by kind.
    pub errors: Errors,
    /// Error texts with their counts: the first 32 distinct ones (ghz and oha error distribution), the rest under
    /// `…`.
    pub error_texts: BTreeMap<String, u64>,
    /// Requests sent whose response had not arrived by the end of the graceful stop. Neither response nor error.
    pub unfinished: u64,
    /// Starts that were due under a fixed rate but never made because no connection was free before the end (k6
    /// `dropped_iterations`). No other figure includes them.
    pub unsent: u64,
    /// Responses that failed at least one check.
    pub failed_checks: u64,
    /// Responses after which the connection stayed open (ab `Keep-Alive requests`).
    pub kept_alive: u64,
    /// Complete responses whose body length differed from that of the target's first good one (ab failed, `Length`).
    pub other_length: u64,
    /// Unexpected responses, in plans whose steps make gRPC calls: `statuses` and `grpc` both count a call there.
    /// None elsewhere, where they follow from one of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexpected: Option<u64>,
}

/// Requests without a complete response, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Errors {
    /// No connection: refused, unreachable, out of ports or descriptors (wrk `connect`, ab `Connect`).
    pub connect: u64,
    /// The TLS handshake failed (wrk counts it under `connect`).
    pub tls: u64,
    /// No complete response, or no connection, within the timeout. Unlike wrk, which counts responses that came late.
    pub timeout: u64,
    /// The connection ended or was reset before the response was complete (wrk `read`, ab `Receive`).
    pub reset: u64,
    /// The request could not be written (wrk `write`).
    pub write: u64,
    /// The response violated the protocol (wrk counts it under `read`, ab under `Exceptions`).
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

    /// The sum of all kinds.
    pub const fn total(&self) -> u64 {
        self.connect + self.tls + self.timeout + self.reset + self.write + self.protocol
    }

    /// Adds the errors of another part.
    pub const fn add(&mut self, other: &Self) {
        self.connect += other.connect;
        self.tls += other.tls;
        self.timeout += other.timeout;
        self.reset += other.reset;
        self.write += other.write;
        self.protocol += other.protocol;
    }

    /// The errors after `earlier`.
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

/// HTTP bytes: with TLS those inside, so without records, handshakes and TCP. Interim responses count as head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Bytes {
    /// Request heads sent.
    pub sent_head: u64,
    /// Request bodies sent.
    pub sent_body: u64,
    /// Response heads received, of complete and incomplete responses.
    pub received_head: u64,
    /// Response bodies received without chunk framing (ab `HTML transferred`).
    pub received_body: u64,
    /// Chunk framing and trailers received.
    pub received_framing: u64,
}

impl Bytes {
    /// All bytes sent (k6 `data_sent`).
    pub const fn sent(&self) -> u64 {
        self.sent_head + self.sent_body
    }

    /// All bytes received (k6 `data_received`, wrk `read`, ab `Total transferred`).
    pub const fn received(&self) -> u64 {
        self.received_head + self.received_body + self.received_framing
    }
}

// === the verdict ===

/// Whether a result can be believed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Verdict {
    /// The worst grade of its reasons.
    pub grade: Grade,
    /// The reasons, the most serious first; empty if valid.
    pub reasons: Vec<Reason>,
}

/// How far a result can be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Grade {
    /// There is no reason to doubt it.
    #[default]
    Valid,
    /// Something may have distorted it: read the reasons before you quote it.
    Suspect,
    /// It is not the load that was asked for: do not quote it.
    Invalid,
}

/// One reason. docs/explain/verdict.md lists the codes and what to do about each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reason {
    /// A stable name, such as `generator_busy`.
    pub code: String,
    /// The grade that it causes.
    pub grade: Grade,
    /// The observation with figures, in one line.
    pub text: String,
}

// === derived values ===

impl Report {
    /// Seconds from the start of measuring until the last response; never 0.
    pub fn seconds(&self) -> f64 {
        (self.duration_ns.max(1)) as f64 / 1e9
    }

    /// The window that rates refer to; for an older report without one, everything.
    pub fn rated(&self) -> Window {
        self.window.unwrap_or_else(|| Window {
            length_ns: self.duration_ns,
            responses: self.counts.responses,
            errors: self.counts.errors.total(),
            sent: self.bytes.sent(),
            received: self.bytes.received(),
        })
    }

    /// Complete responses per second (wrk `Requests/sec`).
    pub fn rate(&self) -> f64 {
        let rated = self.rated();
        rated.responses as f64 / rated.seconds()
    }

    /// Finished requests: responses and errors (k6 `http_reqs`, ghz `count`).
    pub const fn finished(&self) -> u64 {
        self.counts.responses + self.counts.errors.total()
    }

    /// Responses whose status is in `statuses`.
    pub fn with_status(&self, statuses: std::ops::RangeInclusive<u16>) -> u64 {
        self.counts.statuses.range(statuses).map(|(_, n)| n).sum()
    }

    /// Whether the run made gRPC calls.
    pub fn is_grpc(&self) -> bool {
        self.plan.targets.iter().any(|t| t.call.is_some()) || !self.counts.grpc.is_empty()
    }

    /// Responses as expected: with a status of 200 to 399, or 101 for WebSocket messages; with gRPC, with the code
    /// OK.
    pub fn expected(&self) -> u64 {
        if let Some(unexpected) = self.counts.unexpected {
            return self.counts.responses.saturating_sub(unexpected);
        }
        if self.is_grpc() {
            return self.counts.grpc.get("OK").copied().unwrap_or(0);
        }
        self.counts.statuses.iter().filter(|(status, _)| is_expected(**status)).map(|(_, n)| n).sum()
    }

    /// Finished requests that failed by k6's definition: errors, and unexpected responses (k6 `http_req_failed`).
    pub fn failed(&self) -> u64 {
        (self.counts.errors.total() + self.counts.responses).saturating_sub(self.expected())
    }

    /// `failed` as a share of the finished requests; 0 if none finished.
    pub fn failed_share(&self) -> f64 {
        if self.finished() == 0 { 0.0 } else { self.failed() as f64 / self.finished() as f64 }
    }

    /// Processor time of the generator's busiest thread, as a share of one core.
    pub fn busiest_thread(&self) -> f64 {
        self.threads.iter().map(|t| self.share_of(t, t.cpu_ns)).fold(0.0, f64::max)
    }

    /// The most that a generator thread needed of its core: the time it used plus the time it waited, as a share.
    pub(crate) fn most_wanted(&self) -> f64 {
        self.threads.iter().map(|t| self.share_of(t, t.cpu_ns + t.waited_ns)).fold(0.0, f64::max)
    }

    /// The longest that a generator thread waited for a processor, as a share of the time.
    pub fn longest_wait(&self) -> f64 {
        self.threads.iter().map(|t| self.share_of(t, t.waited_ns)).fold(0.0, f64::max)
    }

    /// A part of a thread's measured time, as a share.
    fn share_of(&self, thread: &ThreadStats, part_ns: u64) -> f64 {
        let whole = if thread.measured_ns == 0 { self.duration_ns } else { thread.measured_ns };
        part_ns as f64 / whole.max(1) as f64
    }

    /// Responses per second of the generator's processor time; 0 if that is unknown.
    pub fn per_generator_core_second(&self) -> f64 {
        let cpu: u64 = self.threads.iter().map(|t| t.cpu_ns).sum();
        if cpu == 0 { 0.0 } else { self.rated().responses as f64 / (cpu as f64 / 1e9) }
    }

    /// The deviation from Little's law, 0 to 1: the share of the clients' time in which they neither had a request in
    /// flight nor paused. None if clients may be idle (fixed rate).
    pub fn little_residual(&self) -> Option<f64> {
        let available = self.clients_ns();
        let busy: f64 = self.threads.iter().map(|t| t.busy_ns as f64 + t.think_ns as f64).sum();
        // Users of a scenario pause, and may send several requests at once.
        (self.plan.pace.is_closed() && available > 0.0 && !self.is_journey())
            .then(|| (1.0 - busy / available).max(0.0))
    }

    /// How long all clients together could have had a request in flight, in nanoseconds.
    pub(crate) fn clients_ns(&self) -> f64 {
        self.threads.iter().map(|t| t.available_ns as f64).sum()
    }
}

/// Whether a number is left out of a saved report.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// See [`Report::expected`]. Called for each response during a run.
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
