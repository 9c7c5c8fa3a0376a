//! The view models. Types that derive `Deserialize` are read from answers of the admin API: unknown fields of a
//! later version are ignored, and missing fields of an earlier one are empty.

mod trend;

pub use trend::{Quantiles, RoutePoint, RouteTrend, Seen, UpstreamPoint, UpstreamTrend, UpstreamsQuery};

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a viewer may do; each role includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// View.
    #[default]
    Read,
    /// Drain endpoints, reload, confirm changes.
    Operate,
    /// Change the config, roll back.
    Write,
    /// Everything.
    Admin,
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// The viewer.
#[derive(Clone, Debug, Default)]
pub struct Viewer {
    /// Their name in the history and the log.
    pub name: String,
    /// Their role.
    pub role: Role,
    /// The token that state-changing requests of this session must carry; `None` without a session.
    pub csrf: Option<String>,
}

/// What `GET /status` answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Status {
    pub version: String,
    pub revision: String,
    pub state: String,
    pub uptime_seconds: u64,
    pub workers: u64,
    pub connections: u64,
    pub requests: u64,
    pub requests_per_second: f64,
    pub last_reload: Option<Reload>,
    pub causes: Vec<CauseCount>,
    pub routes: u64,
    pub number: Option<u64>,
    pub trial: Option<Trial>,
    pub pinned: Option<String>,
    pub unsaved: Option<String>,
    pub fleet: Option<FleetStatus>,
    pub filters: Vec<FilterFigure>,
    pub listeners: BTreeMap<String, Listener>,
    pub certificates: Vec<Certificate>,
    pub upstreams: BTreeMap<String, Upstream>,
}

/// The state of a gateway with a `source`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/guide/fleet.md describes the answer")]
pub struct FleetStatus {
    pub source: String,
    pub node: String,
    pub labels: BTreeMap<String, String>,
    pub state: String,
    pub bundle: Option<String>,
    pub since: Option<String>,
    pub cached: bool,
    pub contact_seconds_ago: Option<u64>,
    pub refused: Option<String>,
    pub why: Option<String>,
    pub trouble: Option<String>,
    pub coordinates: bool,
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

/// The result of the last reload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Reload {
    pub at: String,
    pub result: String,
    pub error: Option<String>,
}

/// How often a cause occurred.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct CauseCount {
    pub cause: String,
    pub count: u64,
}

/// A change on trial.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Trial {
    pub number: u64,
    pub back_to: u64,
    pub watched_until: Option<String>,
    pub confirm_by: Option<String>,
    pub restricts: Vec<String>,
    pub revokes: Vec<String>,
    pub warnings: Vec<String>,
}

/// A figure of a filter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct FilterFigure {
    pub place: String,
    pub filter: String,
    pub what: String,
    pub of: String,
    pub value: u64,
}

impl FilterFigure {
    /// Whether it reports that a `maintenance` switch is on.
    pub(crate) fn is_maintenance(&self) -> bool {
        self.filter == "maintenance" && self.what == "on" && self.value > 0
    }
}

/// A listener.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Listener {
    pub address: String,
}

/// A server certificate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Certificate {
    pub cert: String,
    pub names: Vec<String>,
    pub not_after: String,
    pub days_left: i64,
    pub acme: Option<Acme>,
}

/// The state of a certificate that ACME renews.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Acme {
    pub state: String,
    pub challenge: String,
    pub ordering: bool,
    pub renews_at: Option<String>,
    pub error: Option<AcmeError>,
    pub next_try: Option<String>,
}

/// Why renewal failed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct AcmeError {
    pub reason: String,
    pub text: String,
    pub hint: String,
}

/// An upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Upstream {
    pub panic: bool,
    pub endpoints: Vec<Endpoint>,
    pub names: Vec<Name>,
    pub discovery: Option<Discovery>,
}

/// The registry that lists the endpoints of an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/guide/discovery.md describes the answer")]
pub struct Discovery {
    pub registry: String,
    pub place: String,
    pub state: String,
    pub listed: u64,
    pub left_out: Vec<LeftOut>,
    pub unusable: u64,
    pub age_seconds: Option<u64>,
    pub last_good: Option<String>,
    pub away_since: Option<String>,
    pub error: Option<String>,
}

/// An instance that the registry lists but Weir cannot use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/guide/discovery.md describes the answer")]
pub struct LeftOut {
    pub id: String,
    pub why: String,
}

/// An endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Endpoint {
    pub address: String,
    pub weight: u64,
    pub priority: u64,
    pub zone: Option<String>,
    pub healthy: bool,
    pub state: String,
    pub reasons: Vec<Reason>,
    pub answered: u64,
    pub failed: u64,
    pub errors: u64,
    pub first_byte_ms: Option<f64>,
    pub last_error: Option<LastError>,
}

/// Why an endpoint is out of rotation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Reason {
    pub reason: String,
    pub cause: String,
    pub detail: Option<String>,
    pub since: String,
    pub until: Option<String>,
}

/// The last failure of an endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct LastError {
    pub cause: String,
    pub at: String,
}

/// A DNS name among the endpoints.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Name {
    pub name: String,
    pub addresses: Vec<String>,
    pub age_seconds: Option<u64>,
    pub error: Option<String>,
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

/// The answer of `explain`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "it is what `weir explain --format json` prints")]
pub struct Explanation {
    pub request: Understood,
    pub decision: Decision,
    pub filters: Vec<FilterShown>,
    pub target: Option<Value>,
    pub grpc: Option<Value>,
}

/// A request as the gateway understands it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "it is what `weir explain --format json` prints")]
pub struct Understood {
    pub method: String,
    pub host: String,
    pub path: String,
    pub query: Option<String>,
    pub listener: String,
    pub listener_reason: Option<String>,
    pub note: Option<String>,
}

/// The winning route, and why the others lost.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "it is what `weir explain --format json` prints")]
pub struct Decision {
    pub winner: Option<Winner>,
    pub lost: Vec<Other>,
    pub near_misses: Vec<Other>,
    pub omitted: u64,
}

/// The winning route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "it is what `weir explain --format json` prints")]
pub struct Winner {
    pub route: String,
    pub host: String,
    pub path: String,
    pub captures: Vec<Captured>,
}

/// A piece of the path.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "it is what `weir explain --format json` prints")]
pub struct Captured {
    pub name: String,
    pub value: String,
}

/// A losing route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "it is what `weir explain --format json` prints")]
pub struct Other {
    pub route: String,
    pub why: String,
}

/// A filter with its settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "it is what `weir explain --format json` prints")]
pub struct FilterShown {
    pub name: String,
    pub settings: Value,
}

/// The answer of `GET /api/v1/why`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Why {
    pub found: Vec<Autopsy>,
    pub held: u64,
    pub since: Option<String>,
    pub sample: u64,
    pub on: bool,
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

/// The outcome of one exchange.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Autopsy {
    pub alike: u64,
    pub id: String,
    pub kind: String,
    pub at: String,
    pub sentence: String,
    pub key: Option<KeyShown>,
    pub cause: Option<Cause>,
    pub status: u16,
    pub timeline: Vec<Moment>,
    pub total_us: u64,
    pub client: Client,
    pub request: Request,
    pub route: RouteShown,
    pub filters: Vec<String>,
    pub consumer: Option<String>,
    pub upstream: Option<String>,
    pub endpoint: Option<String>,
    pub attempts: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub revision: String,
    pub config_changed: bool,
}

/// The config key that would change the outcome.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct KeyShown {
    pub key: String,
    pub at: Option<String>,
    pub value: Option<String>,
    pub note: Option<String>,
}

/// A cause.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Cause {
    pub code: String,
    pub meaning: String,
    pub change: String,
}

/// A moment of an exchange.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Moment {
    pub at_us: u64,
    pub took_us: Option<u64>,
    pub what: String,
}

/// The client.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Client {
    pub address: Option<String>,
    pub peer: Option<String>,
    pub protocol: String,
    pub tls: Option<String>,
    pub listener: String,
}

/// The request, without values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Request {
    pub method: String,
    pub host: String,
    pub path: String,
    pub query: Vec<String>,
    pub fields: Vec<String>,
    pub cut: bool,
}

/// Its route, and near misses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct RouteShown {
    pub name: Option<String>,
    pub runner_up: Option<Other>,
    pub near: Vec<Other>,
}

/// The answer of `GET /api/v1/revisions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Revisions {
    pub running: Option<u64>,
    pub pinned: Option<u64>,
    pub why: Option<String>,
    pub revisions: Vec<Revision>,
}

/// A revision.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Revision {
    pub number: u64,
    pub hash: String,
    pub parent: Option<u64>,
    pub time: String,
    pub author: String,
    pub source: String,
    pub message: String,
    pub verdict: String,
    pub changed: Vec<String>,
}

/// The differences between two configs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Differences {
    pub differences: Vec<Difference>,
    pub more: u64,
}

/// A setting that differs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Difference {
    pub path: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// The answer of `GET /api/v1/drift`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/reference/admin-api.md describes the answer")]
pub struct Drift {
    pub drift: bool,
    pub disk: Option<String>,
    pub differences: Vec<Difference>,
    pub more: u64,
    pub text: String,
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

/// The managed file, for editing.
#[derive(Clone, Debug, Default)]
pub struct Editor {
    /// Where it is.
    pub path: String,
    /// Its content, without secrets.
    pub text: String,
    /// The version of the text: `If-Match` of the change.
    pub etag: String,
    /// Number of hidden secrets in it.
    pub hidden: usize,
    /// Whether there is a history, which trials require.
    pub history: bool,
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
