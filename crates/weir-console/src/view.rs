//! The data that pages show. The gateway's state comes in the types of the admin API's answers; the rest is collected
//! for each page.
//!
//! No other module here uses weir-gateway. A page holds only data, nothing that it could query or change.

mod trend;

pub use trend::{Quantiles, RoutePoint, RouteTrend, Seen, UpstreamPoint, UpstreamTrend, UpstreamsQuery};
pub use weir_gateway::autopsy::{Answer as Autopsies, Autopsy, Moment};
pub use weir_gateway::config::schema::Role;
pub use weir_gateway::explain::{Explanation, FilterShown, TargetShown};
pub use weir_gateway::fleet::FleetStatus;
pub use weir_gateway::history::diff::{Difference, Differences};
pub use weir_gateway::history::{Drift, HistoryStatus, RevisionStatus};
pub use weir_gateway::shadow::{ChangedDecision, Example as ShadowExample, ShadowReport, Unexplained};
pub use weir_gateway::{
    CertificateStatus, DiscoveryStatus, EndpointStatus, FilterStatus, ManagedText, Status, TrialStatus,
    UnwrittenLog, UpstreamStatus,
};

use serde_json::Value;
use std::collections::BTreeMap;

/// The viewer.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// Their name in the history and the log.
    pub name: String,
    /// Their role.
    pub role: Role,
    /// The token that state-changing requests of this session must carry; `None` without a session.
    pub csrf: Option<String>,
}

/// A fleet.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The current rollout; none if nothing was published.
    pub rollout: Option<Rollout>,
    /// The live nodes; `None` if the source keeps no list of nodes.
    pub nodes: Option<Vec<FleetNode>>,
    /// Names of nodes that went silent without signing off.
    pub silent: Vec<String>,
    /// Why the nodes are unknown.
    pub unknown: Option<String>,
}

/// The rollout of a bundle to the nodes.
#[derive(Clone, Debug, Default)]
pub struct Rollout {
    /// Counted from 1.
    pub generation: u64,
    /// The bundle's digest, shortened for people.
    pub to: String,
    /// The previous bundle's digest, shortened too.
    pub from: Option<String>,
    /// Who published it.
    pub author: String,
    /// When it was published: RFC 3339.
    pub time: String,
    /// The author's message.
    pub message: String,
    /// `running`, `halted` or `done`.
    pub state: String,
    /// Why it halted.
    pub why: String,
    /// Number of steps that have started.
    pub open: usize,
    /// All steps.
    pub steps: Vec<RolloutStep>,
}

/// A step of a rollout.
#[derive(Clone, Debug, Default)]
pub struct RolloutStep {
    /// Which nodes it covers, in words.
    pub who: String,
    /// How many of its nodes run the bundle.
    pub there: usize,
    /// Number of nodes in the step.
    pub all: usize,
}

/// A node of a fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetNode {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its zone.
    pub zone: String,
    /// The version of its program.
    pub version: String,
    /// The bundle that it runs.
    pub runs: Option<String>,
    /// Since when: RFC 3339.
    pub since: String,
    /// It does not run the expected bundle yet, and has not refused it.
    pub is_late: bool,
    /// Why it refused the expected bundle.
    pub refused: Option<String>,
    /// Why it is unhealthy.
    pub unwell: Option<String>,
    /// Why it cannot follow the source.
    pub trouble: String,
    /// Whether the bundle it runs is cached on its disk.
    pub cached: bool,
}

/// The figures of the last minutes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pulse {
    /// Oldest first, evenly spaced.
    pub points: Vec<Point>,
    /// Seconds between two points.
    pub step: u64,
    /// The last minute, or less after a recent start.
    pub recent: Recent,
    /// The attempts at each upstream in the last minute.
    pub upstreams: BTreeMap<String, Seen>,
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Responses per second.
    pub requests: f64,
    /// Responses with 5xx per second.
    pub failed: f64,
    /// Median response time in milliseconds; `None` if there were no responses.
    pub p50_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
}

/// The last minute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent {
    /// The number of seconds covered.
    pub seconds: u64,
    /// Responses.
    pub requests: u64,
    /// Those with 5xx.
    pub failed: u64,
    /// As in [`Point`].
    pub p50_ms: Option<f64>,
    /// As in [`Point`].
    pub p95_ms: Option<f64>,
    /// As in [`Point`].
    pub p99_ms: Option<f64>,
    /// The gateway's own answers by cause, most frequent first.
    pub causes: Vec<(String, u64)>,
    /// Exchanges in progress.
    pub active: u64,
}

/// A route as the list shows it.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// Its hosts; none for any.
    pub hosts: Vec<String>,
    /// Its path.
    pub path: String,
    /// Its methods; none for any.
    pub methods: Vec<String>,
    /// Its other conditions, in words.
    pub conditions: Vec<String>,
    /// Its priority.
    pub priority: i32,
    /// Its target: upstreams with their weights, or a description.
    pub target: Target,
    /// The names of its filters.
    pub filters: Vec<String>,
    /// Its figures; `None` if it has no time series of its own.
    pub figures: Option<Figures>,
}

/// The target of a route.
#[derive(Clone, Debug)]
pub enum Target {
    /// Upstreams, each with its share in percent.
    Upstreams(Vec<(String, f64)>),
    /// An answer of the gateway itself, in words.
    Own(String),
}

impl Default for Target {
    fn default() -> Self {
        Self::Own(String::new())
    }
}

/// The figures of a route.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Responses per second in the last minute.
    pub rate: f64,
    /// Responses since the start.
    pub requests: u64,
    /// Those with 5xx.
    pub failed: u64,
    /// Exchanges in progress.
    pub active: u64,
    /// 99th percentile of the response time, in milliseconds.
    pub p99_ms: Option<f64>,
}

/// A question for `explain`.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The method.
    pub method: String,
    /// The URL, or a path.
    pub url: String,
    /// Header fields, one per line.
    pub fields: String,
    /// The listener; empty for the one that a client of the URL reaches.
    pub listener: String,
}

/// The query of the failures page.
#[derive(Clone, Debug, Default)]
pub struct WhyQuery {
    /// `failed`, `slow`, `sampled`, or empty for all.
    pub kind: String,
    /// A cause, or empty.
    pub cause: String,
    /// A route, or empty.
    pub route: String,
    /// List every exchange, instead of one for each group of similar ones.
    pub each: bool,
    /// Why the query failed.
    pub wrong: Option<String>,
}

/// A named entry of the config.
#[derive(Clone, Debug, Default)]
pub struct ConfigEntry {
    /// `routes`, `upstreams` and so on.
    pub section: String,
    /// Its name.
    pub name: String,
    /// File, line and column.
    pub at: String,
    /// The managed file owns it.
    pub managed: bool,
    /// The managed file has it too, but the operator's file takes precedence.
    pub both: bool,
    /// Whether the API has a file to write to.
    pub movable: bool,
}

/// The config as its page shows it.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The files that people write, the main one first.
    pub files: Vec<String>,
    /// The file that the API writes.
    pub managed: Option<String>,
    /// All named entries, as written.
    pub things: Vec<ConfigEntry>,
    /// The other settings: their names and locations.
    pub settings: Vec<(String, String)>,
    /// The differences between the running config and the files.
    pub drift: Drift,
}

/// A consumer.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    /// Their name.
    pub name: String,
    /// Their plan.
    pub plan: Option<String>,
    /// Their groups.
    pub groups: Vec<String>,
    /// Its credentials: the filter that checks them, and their number.
    pub credentials: Vec<(String, usize)>,
    /// Networks they may call from; none for any.
    pub networks: Vec<String>,
    /// Answers, those with 429, and other 4xx; `None` if not counted.
    pub answers: Option<(u64, u64, u64)>,
}

/// A plan.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Its filters with their settings.
    pub filters: Vec<(String, Value)>,
    /// Number of consumers that have it.
    pub consumers: usize,
}
