//! The process-wide table of counters, and each core's part of it.
//!
//! The control thread owns [`Telemetry`]: it creates series while it builds a snapshot, and reads everything for a
//! scrape. A core owns its [`CoreCells`]. It fetches its cells of a series ([`CoreCells::route`]) once, when it
//! adopts a snapshot; a request then follows one pointer and takes no lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::cell::{Counter, HistogramTotals};
use crate::exported::{Exported, Lost};
use crate::series::{
    Attempt, ConsumerCells, ConsumerId, EndpointCells, EndpointId, ListenerCells, ListenerId, PerCore,
    RouteCells, RouteId, Series, Table, UpstreamCells, UpstreamId,
};

/// The arguments of [`Telemetry::new`].
#[derive(Clone, Debug)]
pub struct Setup {
    /// The number of cores that write at first. At least one.
    pub cores: usize,
    /// Cause codes, the label values of `weir_causes_total`; a core counts a cause by its index here.
    pub causes: &'static [&'static str],
    /// Names of limits, the label values of `weir_limits_hit_total`; a core counts a limit by its index here.
    pub limits: &'static [&'static str],
    /// The version of the program, for `weir_build_info`.
    pub version: &'static str,
    /// The commit of the build, for `weir_build_info`.
    pub commit: &'static str,
    /// Most routes with their own series; further ones share `route="overflow"`. Default 1000; about 1.3 KiB each per
    /// core.
    pub route_cap: usize,
    /// Most consumers with their own series; further ones share `consumer="overflow"`. Default 1000; 384 bytes each
    /// per core.
    pub consumer_cap: usize,
    /// Most upstreams with their own series. Default 1000; 256 bytes each per core.
    pub upstream_cap: usize,
    /// Most endpoints, over all upstreams, with their own series. Default 4096; 128 bytes each per core.
    pub endpoint_cap: usize,
    /// Most listeners with their own series. Default 256; 256 bytes each per core.
    pub listener_cap: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cores: 1,
            causes: &[],
            limits: &[],
            version: "",
            commit: "",
            route_cap: 1000,
            consumer_cap: 1000,
            upstream_cap: 1000,
            endpoint_cap: 4096,
            listener_cap: 256,
        }
    }
}

/// Everything this process counts.
pub struct Telemetry {
    pub(crate) setup: Setup,
    pub(crate) cores: PerCore<CoreCells>,
    /// How many cores serve.
    pub(crate) workers: AtomicUsize,
    series: Mutex<SeriesTables>,
    config: Mutex<ConfigState>,
    /// Access log lines that the writer thread could not write. Writers share it; requests do not touch it.
    pub(crate) access_log_failed: AtomicU64,
    /// What happened to spans.
    spans: Arc<Exported>,
    /// What happened to access log lines for a collector.
    records: Arc<Exported>,
}

/// The kinds of series.
pub(crate) struct SeriesTables {
    pub(crate) consumers: Table<ConsumerCells>,
    pub(crate) listeners: Table<ListenerCells>,
    pub(crate) routes: Table<RouteCells>,
    pub(crate) upstreams: Table<UpstreamCells>,
    pub(crate) endpoints: Table<EndpointCells>,
}

/// The counts of one route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteFigures {
    /// Exchanges in progress, including tunnels.
    pub active: i64,
    /// Responses by status code; key 0 holds the codes beyond the limit.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses made by the gateway itself, by cause.
    pub causes: BTreeMap<&'static str, u64>,
    /// The durations of exchanges.
    pub duration: HistogramTotals,
    /// The times until the first byte of the upstream's response.
    pub first_byte: HistogramTotals,
}

/// The counts of one upstream and its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamFigures {
    /// Ended attempts by outcome, in the order of [`Attempt::ALL`].
    pub attempts: [u64; Attempt::ALL.len()],
    /// Attempts that its endpoints answered with a 5xx status.
    pub errors: u64,
    /// Attempts that its endpoints answered.
    pub answered: u64,
    /// Total time from sending a request to the first byte of its response, over all answered attempts.
    pub first_byte: Duration,
}

/// A certificate presented to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEnd {
    /// Its file.
    pub cert: String,
    /// The first name in it; empty if it has none.
    pub name: String,
    /// Its last valid second, in Unix time.
    pub not_after: i64,
}

/// A certificate that is renewed automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCertificate {
    /// Its file.
    pub cert: String,
    /// Its name.
    pub name: String,
    /// Its last valid second, in Unix time; `None` while clients get a stand-in.
    pub not_after: Option<i64>,
    /// When it will be renewed, in Unix time.
    pub renew_at: Option<i64>,
    /// How many attempts failed since the last success.
    pub failures: u32,
}

/// The state of the configs so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigState {
    pub(crate) revision: String,
    pub(crate) last_successful: bool,
    pub(crate) last_success: Option<SystemTime>,
    pub(crate) reloads_ok: u64,
    pub(crate) reloads_failed: u64,
    /// A revision from the history runs instead of the files; the running config is not on disk.
    pub(crate) rolled_back: bool,
    pub(crate) unsaved: bool,
    pub(crate) certificates: Vec<CertificateEnd>,
    pub(crate) kept: Vec<KeptCertificate>,
    pub(crate) source: Option<SourceState>,
}

/// The source of the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Whether it answers.
    pub answers: bool,
    /// When it last answered.
    pub contact: Option<SystemTime>,
    /// Whether the config that should run was refused.
    pub refused: bool,
    /// The digest of the running bundle; empty for none.
    pub bundle: String,
    /// This node's name in its fleet, its zone, and its labels as `name=value,name=value`.
    pub node: String,
    /// See [`node`](Self::node).
    pub zone: String,
    /// See [`node`](Self::node).
    pub labels: String,
}

impl Telemetry {
    /// An empty table for `setup.cores` cores.
    pub fn new(setup: Setup) -> Arc<Self> {
        let count = setup.cores.max(1);
        let cores = PerCore::new(count, |index| CoreCells::new(index, &setup));
        let series = SeriesTables {
            consumers: Table::new(&["consumer"], setup.consumer_cap, count),
            listeners: Table::new(&["listener"], setup.listener_cap, count),
            routes: Table::new(&["route"], setup.route_cap, count).totaling(|cells| cells.requests.total()),
            upstreams: Table::new(&["upstream"], setup.upstream_cap, count),
            endpoints: Table::new(&["upstream", "endpoint"], setup.endpoint_cap, count),
        };
        Arc::new(Self {
            setup,
            cores,
            workers: AtomicUsize::new(count),
            series: Mutex::new(series),
            config: Mutex::default(),
            access_log_failed: AtomicU64::new(0),
            spans: Arc::default(),
            records: Arc::default(),
        })
    }

    /// The cells of one core. Hand them to that core; only it may write them. A core that starts with the number of
    /// one that ended continues its counts.
    pub fn core(&self, index: usize) -> Arc<CoreCells> {
        self.cores.of(index, |index| CoreCells::new(index, &self.setup))
    }

    /// Sets how many cores serve.
    pub fn show_workers(&self, count: usize) {
        self.workers.store(count, Relaxed);
    }

    /// The series of the listener of this name.
    pub fn listener(&self, name: &str) -> ListenerId {
        self.series().listeners.find(&[name])
    }

    /// The series of the route with this name. The same name yields the same cells, across every reload.
    ///
    /// Beyond the cap, returns the series `route="overflow"` and counts in `weir_series_folded_total`. The series
    /// lasts as long as the id, a clone of it, or a core's cells; keep the id in the snapshot.
    pub fn route(&self, name: &str) -> RouteId {
        self.series().routes.find(&[name])
    }

    /// The series of the consumer with this name; capped and kept like [`Telemetry::route`].
    pub fn consumer(&self, name: &str) -> ConsumerId {
        self.series().consumers.find(&[name])
    }

    /// The series of the upstream with this name; capped and kept like [`Telemetry::route`].
    pub fn upstream(&self, name: &str) -> UpstreamId {
        self.series().upstreams.find(&[name])
    }

    /// The series of one endpoint of an upstream; capped and kept like [`Telemetry::route`].
    pub fn endpoint(&self, upstream: &str, address: &str) -> EndpointId {
        self.series().endpoints.find(&[upstream, address])
    }

    /// Drops the series whose last id and cells are gone; returns how many.
    ///
    /// A scrape does this too, after it has shown their last counts, and so does a full table. Call it when an old
    /// snapshot has drained, for a process that nobody scrapes.
    pub fn retire(&self) -> usize {
        let tables = &mut *self.series();
        tables.consumers.retire()
            + tables.listeners.retire()
            + tables.routes.retire()
            + tables.upstreams.retire()
            + tables.endpoints.retire()
    }

    /// Records the config that the process starts with. Not a reload: `weir_reloads_total` does not change.
    pub fn started(&self, revision: &str, at: SystemTime) {
        self.config().succeeded(revision, at);
    }

    /// Records a successful reload.
    pub fn reloaded(&self, revision: &str, at: SystemTime) {
        let mut config = self.config();
        config.succeeded(revision, at);
        config.reloads_ok += 1;
    }

    /// Records whether a revision from the history runs instead of the files, and whether the running config could
    /// not be saved.
    pub fn show_drift(&self, rolled_back: bool, unsaved: bool) {
        let mut config = self.config();
        (config.rolled_back, config.unsaved) = (rolled_back, unsaved);
    }

    /// Records the certificates presented from now on.
    pub fn show_certificates(&self, certificates: Vec<CertificateEnd>) {
        self.config().certificates = certificates;
    }

    /// Records the state of automatically renewed certificates.
    pub fn show_kept(&self, kept: Vec<KeptCertificate>) {
        self.config().kept = kept;
    }

    /// Records the state of the config's source.
    pub fn source(&self, state: SourceState) {
        self.config().source = Some(state);
    }

    /// Records a refused reload; the previous config stays in use.
    pub fn reload_refused(&self) {
        let mut config = self.config();
        config.last_successful = false;
        config.reloads_failed += 1;
    }

    /// The counts of a route so far, over all cores; `None` if it has no series of its own.
    pub fn route_figures(&self, route: &str) -> Option<RouteFigures> {
        let series = self.series().routes.get(route)?;
        Some(self.figures_of(&series))
    }

    /// The counts of every route ever used; those without a series of their own appear together as `overflow`.
    pub fn all_figures(&self) -> Vec<(String, RouteFigures)> {
        let routes = self.series().routes.named();
        routes.into_iter().map(|(name, series)| (name, self.figures_of(&series))).collect()
    }

    /// The counts of every upstream ever used; those without a series of their own appear together as `overflow`.
    pub fn upstream_figures(&self) -> BTreeMap<String, UpstreamFigures> {
        let (upstreams, endpoints) = {
            let series = self.series();
            (series.upstreams.named(), series.endpoints.named())
        };
        let mut all: BTreeMap<String, UpstreamFigures> = BTreeMap::new();
        for (name, series) in upstreams {
            let figures = all.entry(name).or_default();
            for cells in series.cores.read().iter() {
                figures.attempts.iter_mut().zip(&cells.attempts).for_each(|(sum, count)| *sum += count.get());
            }
        }
        for (upstream, series) in endpoints {
            let (figures, totals) = (all.entry(upstream).or_default(), series.totals());
            figures.errors += totals.errors;
            figures.answered += totals.answered;
            figures.first_byte += totals.first_byte;
        }
        all
    }

    fn figures_of(&self, series: &Series<RouteCells>) -> RouteFigures {
        let mut figures = RouteFigures::default();
        for cells in series.cores.read().iter() {
            figures.active += cells.active.get();
            cells.requests.each(|code, n| *figures.statuses.entry(code.unwrap_or(0)).or_default() += n);
            cells.causes.each(|index, n| {
                let name = self.cause_name(usize::from(index.unwrap_or(0)).wrapping_sub(1));
                *figures.causes.entry(name).or_default() += n;
            });
            cells.duration.add_to(&mut figures.duration);
            cells.upstream_duration.add_to(&mut figures.first_byte);
        }
        figures
    }

    /// Responses to a consumer so far, by status code; `None` if it has no series of its own.
    pub fn consumer_statuses(&self, consumer: &str) -> Option<BTreeMap<u16, u64>> {
        let series = self.series().consumers.get(consumer)?;
        let mut statuses = BTreeMap::new();
        for cells in series.cores.read().iter() {
            cells.requests.each(|code, n| *statuses.entry(code.unwrap_or(0)).or_default() += n);
        }
        Some(statuses)
    }

    /// Open client connections of a listener.
    pub fn listener_connections(&self, listener: &str) -> i64 {
        let series = self.series().listeners.get(listener);
        series.map_or(0, |series| series.cores.read().iter().map(|cells| cells.active.get()).sum())
    }

    /// Responses sent since the start, over all cores and routes, including routes that no longer exist.
    pub fn requests_total(&self) -> u64 {
        self.series().routes.total()
    }

    /// The causes counted so far, the most frequent first.
    pub fn causes(&self) -> Vec<(&'static str, u64)> {
        let names = self.setup.causes.iter().copied().chain(["unknown"]).enumerate();
        let mut all: Vec<(&str, u64)> = names
            .map(|(index, name)| (name, self.cores.read().iter().map(|core| core.cause(index).get()).sum()))
            .filter(|(_, count)| *count > 0)
            .collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    /// Counts of spans for a collector, updated by their exporter.
    pub const fn spans(&self) -> &Arc<Exported> {
        &self.spans
    }

    /// Counts of access log lines for a collector, updated by their exporter.
    pub const fn records(&self) -> &Arc<Exported> {
        &self.records
    }

    /// Access log lines that could not be written or that a collector did not accept. Cores count the lines dropped
    /// because too many were waiting.
    pub(crate) fn access_log_lost(&self) -> u64 {
        let records = self.records.lost_by(Lost::Failed) + self.records.lost_by(Lost::Rejected);
        self.access_log_failed.load(Relaxed) + records
    }

    /// The code of the cause with this index in [`Setup::causes`].
    pub fn cause_name(&self, index: usize) -> &'static str {
        self.setup.causes.get(index).copied().unwrap_or("unknown")
    }

    /// Access log lines lost so far because the sink was slow or failed.
    pub fn access_log_dropped(&self) -> u64 {
        let slow: u64 = self.cores.read().iter().map(|core| core.access_log_dropped.get()).sum();
        slow + self.access_log_lost()
    }

    // A panic while one of these was locked leaves only numbers behind, at worst an outdated one.
    pub(crate) fn series(&self) -> MutexGuard<'_, SeriesTables> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn config(&self) -> MutexGuard<'_, ConfigState> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConfigState {
    fn succeeded(&mut self, revision: &str, at: SystemTime) {
        self.revision = revision.to_owned();
        self.last_successful = true;
        self.last_success = Some(at);
    }
}

/// One core's part: counts that belong to no listener, route or upstream.
///
/// Invariant: only the core with this index writes.
#[derive(Debug)]
#[repr(align(128))]
pub struct CoreCells {
    index: usize,
    causes: Indexed,
    cause_names: &'static [&'static str],
    limits: Indexed,
    /// Access log lines dropped because the writer fell behind; [`crate::AccessLog`] counts them.
    pub access_log_dropped: Counter,
}

impl CoreCells {
    fn new(index: usize, setup: &Setup) -> Self {
        Self {
            index,
            causes: Indexed::new(setup.causes.len()),
            cause_names: setup.causes,
            limits: Indexed::new(setup.limits.len()),
            access_log_dropped: Counter::new(),
        }
    }

    /// The index of this core, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The counter of the cause with this index in [`Setup::causes`]; of `unknown` for any other index.
    #[inline]
    pub fn cause(&self, index: usize) -> &Counter {
        self.causes.at(index)
    }

    /// The index of this cause code in [`Setup::causes`]; for any other code, the index of `unknown`.
    pub fn cause_index(&self, code: &str) -> usize {
        self.cause_names.iter().position(|name| *name == code).unwrap_or(usize::MAX)
    }

    /// The counter of the limit with this index in [`Setup::limits`]; of `unknown` for any other index.
    #[inline]
    pub fn limit(&self, index: usize) -> &Counter {
        self.limits.at(index)
    }

    /// This core's cells of a listener.
    pub fn listener(&self, id: &ListenerId) -> Arc<ListenerCells> {
        id.core(self.index)
    }

    /// This core's cells of a route. Fetch them once per snapshot and keep the Arc beside the route.
    pub fn route(&self, id: &RouteId) -> Arc<RouteCells> {
        id.core(self.index)
    }

    /// This core's cells of a consumer. Its series is exposed from now on.
    pub fn consumer(&self, id: &ConsumerId) -> Arc<ConsumerCells> {
        id.core(self.index)
    }

    /// This core's cells of an upstream.
    pub fn upstream(&self, id: &UpstreamId) -> Arc<UpstreamCells> {
        id.core(self.index)
    }

    /// This core's cells of an endpoint.
    pub fn endpoint(&self, id: &EndpointId) -> Arc<EndpointCells> {
        id.core(self.index)
    }
}

/// Counters by index, in cache lines that no other core's counters share.
///
/// One more than requested: an index outside the list counts there, so it loses its label but not its count.
#[derive(Debug)]
struct Indexed {
    len: usize,
    blocks: Box<[Block]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Block([Counter; BLOCK]);

const BLOCK: usize = 16;

impl Indexed {
    fn new(len: usize) -> Self {
        Self { len, blocks: (0..(len + 1).div_ceil(BLOCK)).map(|_| Block::default()).collect() }
    }

    #[inline]
    fn at(&self, index: usize) -> &Counter {
        let index = index.min(self.len);
        &self.blocks[index / BLOCK].0[index % BLOCK]
    }
}
