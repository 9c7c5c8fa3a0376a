//! The cells of one listener, route, upstream or endpoint, and the bounded tables that name them.
//!
//! Building a snapshot looks up a series by name; the same name yields the same cells, so counts continue across a
//! reload. A series lives as long as its id or a core's cells: as long as a snapshot, stream or tunnel can still
//! count on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, fence};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cell::{Counter, Gauge, Histogram, StatusCounts};
use crate::exemplar::Exemplars;
use crate::health::{Ejection, HealthCells, OutReason};
use crate::text;

/// The series that counts for all names beyond a table's cap.
pub const OVERFLOW: &str = "overflow";

/// Names one listener's series.
pub type ListenerId = SeriesId<ListenerCells>;
/// Names one consumer's series.
pub type ConsumerId = SeriesId<ConsumerCells>;
/// Names one route's series.
pub type RouteId = SeriesId<RouteCells>;
/// Names one upstream's series.
pub type UpstreamId = SeriesId<UpstreamCells>;
/// Names one endpoint's series.
pub type EndpointId = SeriesId<EndpointCells>;

/// What one core counts for one listener.
// 128: two cache lines, because the processor fetches lines in pairs. So no two cores ever write to the same pair.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ListenerCells {
    /// Accepted connections.
    pub accepted: Counter,
    /// Open connections.
    pub active: Gauge,
    /// Closed connections by reason: `closed[Closed::Client as usize]`, or [`ListenerCells::close`].
    pub closed: [Counter; Closed::ALL.len()],
    /// Bytes received from clients: heads and bodies, without TLS.
    pub received_bytes: Counter,
    /// Bytes sent to clients: heads and bodies, without TLS.
    pub sent_bytes: Counter,
    /// Requests by protocol: `requests[Protocol::Http1 as usize]`. Excludes requests refused because of their head
    /// alone.
    pub requests: [Counter; Protocol::ALL.len()],
    /// Requests that were the first on their connection.
    pub first_requests: Counter,
    /// Completed TLS handshakes.
    pub handshakes_ok: Counter,
    /// Failed TLS handshakes.
    pub handshakes_failed: Counter,
}

impl ListenerCells {
    /// Counts an accepted connection.
    #[inline]
    pub fn open(&self) {
        self.accepted.inc();
        self.active.inc();
    }

    /// Requests on a connection that had carried one before. The cells are read one after another, so a request may
    /// be counted as first before it is counted as a request.
    pub fn reused(&self) -> u64 {
        let first = self.first_requests.get();
        self.requests.iter().map(Counter::get).sum::<u64>().saturating_sub(first)
    }

    /// Counts a closed connection.
    #[inline]
    pub fn close(&self, why: Closed) {
        self.active.dec();
        self.closed[why as usize].inc();
    }
}

/// The protocol of a client's connection: the label `protocol` of `weir_connection_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Protocol {
    /// Every protocol, in numeric order.
    pub const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "h2",
            Self::Http3 => "h3",
        }
    }
}

/// Why a client's connection ended: the label `reason` of `weir_connections_closed_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client closed it between requests.
    Client,
    /// Weir drains.
    Drain,
    /// The socket failed: a reset, or the client left in the middle of an exchange.
    Error,
    /// The last exchange required it: `Connection: close`, HTTP/1.0, or a response that ends with the connection.
    Finished,
    /// The TLS handshake failed or took too long, or the PROXY header was wrong.
    Handshake,
    /// It was idle for the keep-alive timeout.
    Idle,
    /// It reached a connection limit.
    Limit,
    /// Weir refused the client's input (400 and the like), and the connection with it.
    Refused,
    /// The client was too slow with a head or a body.
    Timeout,
    /// It was a tunnel (WebSocket, upgrade), or was passed on as bytes, and ended.
    Tunnel,
}

impl Closed {
    /// Every reason, in numeric order.
    pub const ALL: [Self; 10] = [
        Self::Client,
        Self::Drain,
        Self::Error,
        Self::Finished,
        Self::Handshake,
        Self::Idle,
        Self::Limit,
        Self::Refused,
        Self::Timeout,
        Self::Tunnel,
    ];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Drain => "drain",
            Self::Error => "error",
            Self::Finished => "finished",
            Self::Handshake => "handshake",
            Self::Idle => "idle",
            Self::Limit => "limit",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Tunnel => "tunnel",
        }
    }
}

/// One core's counts for one route. About 1.3 KiB.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RouteCells {
    /// Responses sent, by status code.
    pub requests: StatusCounts,
    /// From the first byte of the request to the last byte of the response. Excludes tunnels, whose duration says
    /// nothing.
    pub duration: Histogram,
    /// From handing the request to a connection until the first byte of the upstream's response.
    pub upstream_duration: Histogram,
    /// Bytes of request bodies.
    pub request_bytes: Counter,
    /// Bytes of response bodies.
    pub response_bytes: Counter,
    /// Exchanges in progress, including tunnels.
    pub active: Gauge,
    /// Responses made by the gateway itself, by cause: the cause's index in [`crate::Setup::causes`] plus one, so
    /// that only observed causes use space.
    pub causes: StatusCounts,
    /// Traced exchanges by bucket of `duration`; empty until the first one.
    exemplars: OnceLock<Box<Exemplars>>,
}

impl RouteCells {
    /// Records a traced exchange that `duration` has observed.
    #[cold]
    pub fn exemplify(&self, value: Duration, trace: u128, span: u64, at: SystemTime) {
        self.exemplars.get_or_init(Box::default).note(value, trace, span, at);
    }

    /// The traced exchanges observed by `duration`.
    pub(crate) fn exemplars(&self) -> Option<&Exemplars> {
        self.exemplars.get().map(|exemplars| &**exemplars)
    }

    /// Counts a response made by the gateway itself, by the index of its cause.
    #[inline]
    pub fn cause(&self, index: usize) {
        // Any other index counts as 0, the code without a place of its own.
        self.causes.record(u16::try_from(index).ok().and_then(|index| index.checked_add(1)).unwrap_or(0));
    }
}

/// One core's counts for one consumer. 384 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ConsumerCells {
    /// Responses sent, by status code.
    pub requests: StatusCounts,
    /// Bytes of request bodies.
    pub request_bytes: Counter,
    /// Bytes of response bodies.
    pub response_bytes: Counter,
}

/// One core's counts for one upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UpstreamCells {
    /// Ended attempts by outcome: `attempts[Attempt::Answered as usize]`, or [`UpstreamCells::attempt`].
    pub attempts: [Counter; Attempt::ALL.len()],
    /// Open connections, including idle ones.
    pub connections_open: Gauge,
    /// Idle connections in the pool.
    pub connections_idle: Gauge,
    /// Connections established.
    pub connects: Counter,
    /// Failed attempts to connect.
    pub connect_failures: Counter,
    /// Attempts on a connection that had carried one before.
    pub reused: Counter,
    /// Requests that wait for a connection.
    pub pending: Gauge,
    /// Attempts after the first one of an exchange.
    pub retries: Counter,
    /// Retries not made because the budget was spent.
    pub retries_refused: Counter,
    /// Whether too few endpoints are in rotation. One flag per process, as in [`EndpointCells`].
    panicking: AtomicBool,
    /// Hedged attempts: those made beside a slow one.
    pub hedges: Counter,
    /// Hedged attempts whose response won.
    pub hedges_won: Counter,
    /// Hedged attempts not made because the budget was spent.
    pub hedges_refused: Counter,
    /// The state of its registry, only in the first core's cells; empty for an upstream without one.
    discovery: OnceLock<Box<Discovery>>,
}

/// Counts for the registry that lists the endpoints of an upstream. Written by one thread.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    /// Whether the registry answers.
    pub(crate) follows: AtomicBool,
    /// Published endpoint lists.
    pub(crate) changes: AtomicU64,
    /// Queries without an answer.
    pub(crate) failures: AtomicU64,
}

impl UpstreamCells {
    /// Counts an ended attempt.
    #[inline]
    pub fn attempt(&self, outcome: Attempt) {
        self.attempts[outcome as usize].inc();
    }
}

/// How an attempt ended: the label `outcome` of `weir_upstream_attempts_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A response head arrived, whatever its status.
    Answered,
    /// The client left before the response.
    Canceled,
    /// The connection was refused, or its address unreachable.
    ConnectFailed,
    /// The connection took longer than `timeouts.connect`, or than the exchange had time for.
    ConnectTimeout,
    /// The response was not valid HTTP.
    ProtocolError,
    /// The connection ended before a response head.
    Reset,
    /// No response head within `timeouts.response`.
    ResponseTimeout,
    /// The TLS handshake with the endpoint failed.
    TlsFailed,
}

impl Attempt {
    /// Every outcome, in numeric order.
    pub const ALL: [Self; 8] = [
        Self::Answered,
        Self::Canceled,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::ProtocolError,
        Self::Reset,
        Self::ResponseTimeout,
        Self::TlsFailed,
    ];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Canceled => "canceled",
            Self::ConnectFailed => "connect_failed",
            Self::ConnectTimeout => "connect_timeout",
            Self::ProtocolError => "protocol_error",
            Self::Reset => "reset",
            Self::ResponseTimeout => "response_timeout",
            Self::TlsFailed => "tls_failed",
        }
    }
}

/// One core's counts for one endpoint.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct EndpointCells {
    /// Attempts in progress.
    pub active: Gauge,
    /// Attempts that got a response head, whatever its status.
    pub answered: Counter,
    /// Attempts that the endpoint failed: no connection, or no valid response.
    pub failed: Counter,
    /// Attempts that got a 5xx status.
    pub errors: Counter,
    /// Total time from sending the request to the first byte of the response, over all answered attempts.
    first_byte_ns: Counter,
    /// The last failure: its second since 1970, with the index of its cause in the low 16 bits. 0: none.
    last_failure: AtomicU64,
    /// Whether it is out of rotation. One flag per process: only the first core's is used, through
    /// [`EndpointId::set_healthy`].
    unhealthy: AtomicBool,
    /// The state of its health, only in the first core's cells; empty if it was always healthy.
    health: OnceLock<Box<HealthCells>>,
}

impl EndpointCells {
    /// Counts an answered attempt.
    #[inline]
    pub fn answer(&self, first_byte: Duration) {
        self.answered.inc();
        self.first_byte_ns
            .add(first_byte.as_secs().saturating_mul(1_000_000_000) + u64::from(first_byte.subsec_nanos()));
    }

    /// Counts a failed attempt, by the index of its cause in [`crate::Setup::causes`].
    #[cold]
    pub fn fail(&self, cause: usize, at: SystemTime) {
        self.failed.inc();
        let second = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let cause = u16::try_from(cause).unwrap_or(u16::MAX);
        self.last_failure.store(second << 16 | u64::from(cause), Relaxed);
    }
}

/// The counts of one endpoint over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Answered attempts.
    pub answered: u64,
    /// Attempts that the endpoint failed.
    pub failed: u64,
    /// Attempts that got a 5xx status.
    pub errors: u64,
    /// Total time from sending the request to the first byte of the response, over all answered attempts.
    pub first_byte: Duration,
    /// The cause index of the last failure, and its time, to the second.
    pub last_failure: Option<(usize, SystemTime)>,
}

impl EndpointTotals {
    /// The mean time to the first byte of a response, once there was one.
    pub fn mean_first_byte(&self) -> Option<Duration> {
        (self.answered > 0).then(|| self.first_byte.div_f64(self.answered as f64))
    }
}

/// The name of one series and its cells, one per core. Cheap to clone; keep it in the snapshot as long as the series
/// may be used.
pub struct SeriesId<C> {
    series: Arc<Series<C>>,
}

/// One series: its exposed labels, and a block of cells per core.
pub(crate) struct Series<C> {
    /// Label pairs, escaped once: `route="orders"`.
    pub(crate) labels: String,
    pub(crate) cores: PerCore<C>,
    pub(crate) overflow: bool,
    /// Whether it was ever used. The names of a config that was built and then refused never appear.
    adopted: AtomicBool,
    /// The table's flag that an id was dropped.
    dropped: Arc<AtomicBool>,
}

/// Cells by core. A core that ended leaves its cells to the sums, and to the next core with its number.
pub(crate) struct PerCore<C> {
    /// Those of core 0, where the control side keeps what belongs to no core.
    first: Arc<C>,
    /// All of them. Locked by cores when they adopt a snapshot and by scrapes, never on a request's path.
    all: RwLock<Vec<Arc<C>>>,
}

impl<C> PerCore<C> {
    pub(crate) fn new(cores: usize, make: impl Fn(usize) -> C) -> Self {
        let first = Arc::new(make(0));
        let all = (1..cores.max(1)).map(|index| Arc::new(make(index)));
        let all = std::iter::once(Arc::clone(&first)).chain(all).collect();
        Self { first, all: RwLock::new(all) }
    }

    /// The cells of a core, made if it has none yet.
    pub(crate) fn of(&self, index: usize, make: impl Fn(usize) -> C) -> Arc<C> {
        if let Some(cells) = self.read().get(index) {
            return Arc::clone(cells);
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        while all.len() <= index {
            let made = Arc::new(make(all.len()));
            all.push(made);
        }
        Arc::clone(&all[index])
    }

    /// All of them, for sums.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<C>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a core still holds its cells.
    fn in_use(&self) -> bool {
        let own = |cells: &Arc<C>| if Arc::ptr_eq(cells, &self.first) { 2 } else { 1 };
        self.read().iter().any(|cells| Arc::strong_count(cells) > own(cells))
    }
}

impl<C: Default> SeriesId<C> {
    pub(crate) fn core(&self, index: usize) -> Arc<C> {
        self.series.adopted.store(true, Relaxed);
        self.series.cores.of(index, |_| C::default())
    }
}

impl<C> Clone for SeriesId<C> {
    fn clone(&self) -> Self {
        Self { series: Arc::clone(&self.series) }
    }
}

impl<C> Drop for SeriesId<C> {
    fn drop(&mut self) {
        self.series.dropped.store(true, Relaxed);
    }
}

impl<C> PartialEq for SeriesId<C> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.series, &other.series)
    }
}

impl<C> Eq for SeriesId<C> {}

impl<C> std::fmt::Debug for SeriesId<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SeriesId({})", self.series.labels)
    }
}

impl EndpointId {
    /// Sets whether the endpoint is in rotation. An endpoint starts healthy; any thread may call this.
    pub fn set_healthy(&self, healthy: bool) {
        self.series.adopted.store(true, Relaxed);
        self.series.cores.first.unhealthy.store(!healthy, Relaxed);
    }

    /// Whether the endpoint is in rotation.
    pub fn healthy(&self) -> bool {
        self.series.healthy()
    }

    /// A reason to be out of rotation starts to apply; `new`: count it.
    pub fn begin_out(&self, reason: OutReason, since: SystemTime, new: bool) {
        let cells = self.health_cells();
        if new { cells.begin(reason, since) } else { cells.hold(reason, since) }
    }

    /// A reason no longer applies.
    pub fn end_out(&self, reason: OutReason) {
        self.health_cells().end(reason);
    }

    /// Counts an ejection.
    pub fn eject(&self, rule: Ejection) {
        self.health_cells().eject(rule);
    }

    /// Counts a probe.
    pub fn probed(&self, passed: bool) {
        self.health_cells().probed(passed);
    }

    fn health_cells(&self) -> &HealthCells {
        self.series.adopted.store(true, Relaxed);
        self.series.cores.first.health.get_or_init(Box::default)
    }

    /// The counts over all cores; endpoints beyond the cap share theirs.
    pub fn totals(&self) -> EndpointTotals {
        self.series.totals()
    }
}

impl UpstreamId {
    /// Sets whether too few endpoints are in rotation; returns whether that changed.
    pub fn set_panicking(&self, panicking: bool) -> bool {
        self.series.cores.first.panicking.swap(panicking, Relaxed) != panicking
    }
}

impl UpstreamId {
    /// Sets whether the registry of this upstream answers.
    pub fn follows(&self, follows: bool) {
        self.discovery().follows.store(follows, Relaxed);
    }

    /// Counts a published list of endpoints.
    pub fn discovered(&self) {
        self.discovery().changes.fetch_add(1, Relaxed);
    }

    /// Counts an unanswered query to the registry.
    pub fn discovery_failed(&self) {
        self.discovery().failures.fetch_add(1, Relaxed);
    }

    fn discovery(&self) -> &Discovery {
        self.series.adopted.store(true, Relaxed);
        self.series.cores.first.discovery.get_or_init(Box::default)
    }
}

impl Series<UpstreamCells> {
    /// The state of its registry, if it has one.
    pub(crate) fn discovery(&self) -> Option<&Discovery> {
        self.cores.first.discovery.get().map(|cells| &**cells)
    }

    pub(crate) fn panicking(&self) -> bool {
        self.cores.first.panicking.load(Relaxed)
    }
}

impl Series<EndpointCells> {
    /// The state of its health, once there is any.
    pub(crate) fn health(&self) -> Option<&HealthCells> {
        self.cores.first.health.get().map(|cells| &**cells)
    }

    pub(crate) fn healthy(&self) -> bool {
        !self.cores.first.unhealthy.load(Relaxed)
    }

    pub(crate) fn totals(&self) -> EndpointTotals {
        let cores = self.cores.read();
        let last = cores.iter().map(|cells| cells.last_failure.load(Relaxed)).max().unwrap_or(0);
        let at = UNIX_EPOCH + Duration::from_secs(last >> 16);
        EndpointTotals {
            answered: cores.iter().map(|cells| cells.answered.get()).sum(),
            failed: cores.iter().map(|cells| cells.failed.get()).sum(),
            errors: cores.iter().map(|cells| cells.errors.get()).sum(),
            first_byte: Duration::from_nanos(cores.iter().map(|cells| cells.first_byte_ns.get()).sum()),
            last_failure: (last != 0).then_some(((last & 0xffff) as usize, at)),
        }
    }
}

impl<C: Default> Series<C> {
    fn new(keys: &[&str], values: &[&str], cores: usize, dropped: &Arc<AtomicBool>) -> Arc<Self> {
        let mut labels = String::new();
        for (key, value) in keys.iter().zip(values) {
            if !labels.is_empty() {
                labels.push(',');
            }
            text::label(&mut labels, key, value);
        }
        let overflow = values.iter().all(|value| *value == OVERFLOW);
        let cores = PerCore::new(cores, |_| C::default());
        Arc::new(Self {
            labels,
            cores,
            overflow,
            adopted: AtomicBool::new(false),
            dropped: Arc::clone(dropped),
        })
    }

    /// The sum of a count over all cores.
    fn sum(&self, counted: fn(&C) -> u64) -> u64 {
        self.cores.read().iter().map(|cells| counted(cells)).sum()
    }

    /// Whether anyone besides the table could still count here.
    fn in_use(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.cores.in_use()
    }
}

/// The series of one kind by name: at most `cap`, plus one for the overflow.
pub(crate) struct Table<C> {
    keys: &'static [&'static str],
    cap: usize,
    cores: usize,
    by_name: BTreeMap<Vec<String>, Arc<Series<C>>>,
    overflow: Arc<Series<C>>,
    /// What one core's cells add to the total of the table.
    counted: fn(&C) -> u64,
    /// The counts of dropped series, so that the total never falls.
    dropped_total: u64,
    pub(crate) folded: u64,
    /// Whether an id was dropped since the last search for unused series. Without this flag, each name of a config
    /// with 10,000 routes would search through a full table.
    dropped: Arc<AtomicBool>,
}

impl<C: Default> Table<C> {
    pub(crate) fn new(keys: &'static [&'static str], cap: usize, cores: usize) -> Self {
        let names = vec![OVERFLOW; keys.len()];
        let dropped = Arc::default();
        let overflow = Series::new(keys, &names, cores, &dropped);
        Self {
            keys,
            cap,
            cores,
            by_name: BTreeMap::new(),
            overflow,
            counted: |_| 0,
            dropped_total: 0,
            folded: 0,
            dropped,
        }
    }

    /// Keeps a total of this count over all series, including dropped ones.
    pub(crate) fn totaling(mut self, counted: fn(&C) -> u64) -> Self {
        self.counted = counted;
        self
    }

    /// The total of the count given to [`Table::totaling`], since the start.
    pub(crate) fn total(&self) -> u64 {
        let series = self.by_name.values().chain([&self.overflow]);
        self.dropped_total + series.map(|series| series.sum(self.counted)).sum::<u64>()
    }

    /// The series with this name, if it has one of its own.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Series<C>>> {
        self.by_name.get(&[text::bounded(name).to_owned()][..]).map(Arc::clone)
    }

    /// Finds or creates the series. If the table is full even after dropping unused series, returns the overflow.
    pub(crate) fn find(&mut self, names: &[&str]) -> SeriesId<C> {
        if names.iter().all(|name| *name == OVERFLOW) {
            return SeriesId { series: Arc::clone(&self.overflow) };
        }
        let key: Vec<String> = names.iter().map(|name| text::bounded(name).to_owned()).collect();
        if let Some(series) = self.by_name.get(&key) {
            return SeriesId { series: Arc::clone(series) };
        }
        if self.by_name.len() >= self.cap && self.dropped.load(Relaxed) {
            self.retire();
        }
        if self.by_name.len() >= self.cap {
            self.folded += 1;
            return SeriesId { series: Arc::clone(&self.overflow) };
        }
        let names: Vec<&str> = key.iter().map(String::as_str).collect();
        let series = Series::new(self.keys, &names, self.cores, &self.dropped);
        self.by_name.insert(key, Arc::clone(&series));
        SeriesId { series }
    }

    /// Drops the series that nobody can count on any more; returns how many.
    ///
    /// No new id of such a series can appear meanwhile: that goes through `find`, and the table is borrowed here.
    pub(crate) fn retire(&mut self) -> usize {
        // Before the search: an id that is dropped meanwhile makes the next search worthwhile.
        self.dropped.store(false, Relaxed);
        let before = self.by_name.len();
        let (counted, total) = (self.counted, &mut self.dropped_total);
        self.by_name.retain(|_, series| {
            let keep = series.in_use();
            if !keep {
                // Makes visible what the cores counted before they dropped their cells.
                fence(Acquire);
                *total += series.sum(counted);
            }
            keep
        });
        before - self.by_name.len()
    }

    /// All series ever used, each with its first name; the overflow last.
    pub(crate) fn named(&self) -> Vec<(String, Arc<Series<C>>)> {
        let of = |names: &[String]| names.first().cloned().unwrap_or_default();
        let all = self.by_name.iter().map(|(names, series)| (of(names), series));
        let all = all.chain([(OVERFLOW.to_owned(), &self.overflow)]);
        all.filter(|(_, series)| series.adopted.load(Relaxed))
            .map(|(name, series)| (name, Arc::clone(series)))
            .collect()
    }

    /// The series to expose: all that were ever used, by name, the overflow last.
    pub(crate) fn list(&self) -> Vec<Arc<Series<C>>> {
        let all = self.by_name.values().chain([&self.overflow]);
        all.filter(|series| series.adopted.load(Relaxed)).map(Arc::clone).collect()
    }
}
