//! The cells of one listener, route, upstream or endpoint, and the bounded tables that give them their names.
//!
//! A series is found by its name when a snapshot is built: the same name finds the same cells, so counts go on through a reload. It
//! lives as long as somebody holds its id or a core's cells, that is: as long as a snapshot, stream or tunnel can still count on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cell::{Counter, Gauge, Histogram, StatusCounts};
use crate::exemplar::Exemplars;
use crate::health::{Ejection, HealthCells, OutReason};
use crate::text;

/// The name of the series that counts for all names beyond a table's cap.
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
// 128: two cache lines, because the processor fetches lines in pairs; so no two cores ever write to one pair.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ListenerCells {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections open now.
    pub active: Gauge,
    /// Connections closed, by reason: `closed[Closed::Client as usize]`, or [`ListenerCells::close`].
    pub closed: [Counter; Closed::ALL.len()],
    /// Bytes received from clients: heads and bodies, without TLS.
    pub received_bytes: Counter,
    /// Bytes sent to clients: heads and bodies, without TLS.
    pub sent_bytes: Counter,
    /// Requests, by protocol: `requests[Protocol::Http1 as usize]`. One that is refused by its head alone does not count.
    pub requests: [Counter; Protocol::ALL.len()],
    /// Those that were the first of their connection.
    pub first_requests: Counter,
    /// TLS handshakes completed.
    pub handshakes_ok: Counter,
    /// TLS handshakes that failed.
    pub handshakes_failed: Counter,
}

impl ListenerCells {
    /// Counts a connection that was accepted.
    #[inline]
    pub fn open(&self) {
        self.accepted.inc();
        self.active.inc();
    }

    /// Requests on a connection that had carried one before. The cells are read one after another, so a first request may be counted
    /// while its own is not.
    pub fn reused(&self) -> u64 {
        let first = self.first_requests.get();
        self.requests.iter().map(Counter::get).sum::<u64>().saturating_sub(first)
    }

    /// Counts a connection that ended.
    #[inline]
    pub fn close(&self, why: Closed) {
        self.active.dec();
        self.closed[why as usize].inc();
    }
}

/// What a client's connection speaks: the label `protocol` of `weir_connection_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// Every protocol, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Http1, Self::Http2];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "h2",
        }
    }
}

/// Why a client's connection ended: the label `reason` of `weir_connections_closed_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client closed it between requests.
    Client,
    /// We are draining.
    Drain,
    /// The socket failed: a reset, or the client left in the middle of an exchange.
    Error,
    /// The last exchange said so: `Connection: close`, HTTP/1.0, or a response that ends with the connection.
    Finished,
    /// The TLS handshake failed or took too long, or the PROXY header was wrong.
    Handshake,
    /// It stayed idle for the keep-alive time.
    Idle,
    /// A limit of connections was reached.
    Limit,
    /// What the client sent was refused (400 and the like) and the connection with it.
    Refused,
    /// The client was too slow with a head or a body.
    Timeout,
    /// It was a tunnel (WebSocket, upgrade) and the tunnel ended.
    Tunnel,
}

impl Closed {
    /// Every reason, in the order of their numbers.
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

/// What one core counts for one route. About 1.3 KiB.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RouteCells {
    /// Responses sent, by status code.
    pub requests: StatusCounts,
    /// From the first byte of the request to the last byte of the response. Tunnels are not observed here: they would say nothing.
    pub duration: Histogram,
    /// From handing the request to a connection until the first byte of the upstream's answer.
    pub upstream_duration: Histogram,
    /// Bytes of request bodies.
    pub request_bytes: Counter,
    /// Bytes of response bodies.
    pub response_bytes: Counter,
    /// Exchanges under way, tunnels included.
    pub active: Gauge,
    /// Answers that the gateway made itself, by cause: counted by the cause's index in [`crate::Setup::causes`] plus one, so that only
    /// causes that were seen take a place.
    pub causes: StatusCounts,
    /// Traced exchanges, by the buckets of `duration`; none until there was one.
    exemplars: OnceLock<Box<Exemplars>>,
}

impl RouteCells {
    /// Notes a traced exchange that `duration` has observed.
    #[cold]
    pub fn exemplify(&self, value: Duration, trace: u128, span: u64, at: SystemTime) {
        self.exemplars.get_or_init(Box::default).note(value, trace, span, at);
    }

    /// The traced exchanges among those that `duration` has observed.
    pub(crate) fn exemplars(&self) -> Option<&Exemplars> {
        self.exemplars.get().map(|exemplars| &**exemplars)
    }

    /// Counts an answer of the gateway's own, by the index of its cause.
    #[inline]
    pub fn cause(&self, index: usize) {
        // 0, the code that has no place of its own, for whatever has no such index.
        self.causes.record(u16::try_from(index).ok().and_then(|index| index.checked_add(1)).unwrap_or(0));
    }
}

/// What one core counts for one consumer. 384 bytes.
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

/// What one core counts for one upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UpstreamCells {
    /// Attempts ended, by outcome: `attempts[Attempt::Answered as usize]`, or [`UpstreamCells::attempt`].
    pub attempts: [Counter; Attempt::ALL.len()],
    /// Connections open now, idle ones included.
    pub connections_open: Gauge,
    /// Connections in the pool now, waiting for work.
    pub connections_idle: Gauge,
    /// Connections made.
    pub connects: Counter,
    /// Connections that could not be made.
    pub connect_failures: Counter,
    /// Attempts on a connection that had carried one before.
    pub reused: Counter,
    /// Requests waiting for a connection now.
    pub pending: Gauge,
    /// Attempts after the first one of an exchange.
    pub retries: Counter,
    /// Attempts that were wanted and not made: the budget was spent.
    pub retries_refused: Counter,
    /// Whether too few endpoints are in rotation. One flag for the process, as in [`EndpointCells`].
    panicking: AtomicBool,
    /// Attempts made beside one that took long.
    pub hedges: Counter,
    /// Those of them whose answer won.
    pub hedges_won: Counter,
    /// Those that were wanted and not made: the budget was spent.
    pub hedges_refused: Counter,
    /// What its registry does, in the first core's cells only; empty for an upstream that has none.
    discovery: OnceLock<Box<Discovery>>,
}

/// What is counted of the registry that lists the endpoints of an upstream. Written by one thread.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    /// Whether it answers.
    pub(crate) follows: AtomicBool,
    /// Lists that were published.
    pub(crate) changes: AtomicU64,
    /// Questions without an answer.
    pub(crate) failures: AtomicU64,
}

impl UpstreamCells {
    /// Counts an attempt that ended.
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
    /// The client left before the answer.
    Canceled,
    /// The connection was refused, or its address unreachable.
    ConnectFailed,
    /// The connection took longer than `timeouts.connect`.
    ConnectTimeout,
    /// What arrived was not a valid response.
    ProtocolError,
    /// The connection ended before a response head.
    Reset,
    /// No response head within `timeouts.response`.
    ResponseTimeout,
    /// The TLS handshake with the endpoint failed.
    TlsFailed,
}

impl Attempt {
    /// Every outcome, in the order of their numbers.
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

/// What one core counts for one endpoint.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct EndpointCells {
    /// Attempts under way.
    pub active: Gauge,
    /// Attempts that a response head came of, whatever its status.
    pub answered: Counter,
    /// Attempts that the endpoint failed: no connection, or no valid response.
    pub failed: Counter,
    /// Attempts that it answered with a status of 5xx.
    pub errors: Counter,
    /// From sending the request to the first byte of the answer, over all that were answered.
    first_byte_ns: Counter,
    /// The last failure: its second since 1970, and in the low 16 bits the index of its cause. 0: none.
    last_failure: AtomicU64,
    /// Whether it is out of rotation. One flag for the process: only the first core's is used, through [`EndpointId::set_healthy`].
    unhealthy: AtomicBool,
    /// What is known of its health, in the first core's cells only; empty while it was always well.
    health: OnceLock<Box<HealthCells>>,
}

impl EndpointCells {
    /// Counts an attempt that was answered.
    #[inline]
    pub fn answer(&self, first_byte: Duration) {
        self.answered.inc();
        self.first_byte_ns
            .add(first_byte.as_secs().saturating_mul(1_000_000_000) + u64::from(first_byte.subsec_nanos()));
    }

    /// Counts an attempt that failed, by the index of the cause in [`crate::Setup::causes`].
    #[cold]
    pub fn fail(&self, cause: usize, at: SystemTime) {
        self.failed.inc();
        let second = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let cause = u16::try_from(cause).unwrap_or(u16::MAX);
        self.last_failure.store(second << 16 | u64::from(cause), Relaxed);
    }
}

/// What all cores counted for one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that the endpoint failed.
    pub failed: u64,
    /// Attempts that were answered with a status of 5xx.
    pub errors: u64,
    /// From sending the request to the first byte of the answer, over all that were answered.
    pub first_byte: Duration,
    /// The index of the cause of the last failure, and when it was, to the second.
    pub last_failure: Option<(usize, SystemTime)>,
}

impl EndpointTotals {
    /// The mean time to the first byte of an answer, once there was one.
    pub fn mean_first_byte(&self) -> Option<Duration> {
        (self.answered > 0).then(|| self.first_byte.div_f64(self.answered as f64))
    }
}

/// The name of one series and its cells, one per core. Cheap to clone; keep it in the snapshot for as long as the series may be used.
pub struct SeriesId<C> {
    series: Arc<Series<C>>,
}

/// One series: its labels as they are exposed, and a cell block per core.
pub(crate) struct Series<C> {
    /// Label pairs, escaped once: `route="orders"`.
    pub(crate) labels: String,
    pub(crate) cores: Box<[Arc<C>]>,
    pub(crate) overflow: bool,
    /// Whether it was ever put to use. The names of a config that was built and then refused never show.
    adopted: AtomicBool,
    /// The table's note that an id was dropped.
    dropped: Arc<AtomicBool>,
}

impl<C> SeriesId<C> {
    pub(crate) fn core(&self, index: usize) -> Arc<C> {
        self.series.adopted.store(true, Relaxed);
        Arc::clone(&self.series.cores[index])
    }

    /// Whether this is the series that counts for all names beyond the cap.
    pub fn is_overflow(&self) -> bool {
        self.series.overflow
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
    /// Says whether the endpoint is in rotation. An endpoint is healthy until told otherwise; any thread may tell.
    pub fn set_healthy(&self, healthy: bool) {
        self.series.adopted.store(true, Relaxed);
        self.series.cores[0].unhealthy.store(!healthy, Relaxed);
    }

    /// Whether the endpoint is in rotation.
    pub fn healthy(&self) -> bool {
        self.series.healthy()
    }

    /// A reason begins to hold for which the endpoint is out of rotation; `new`: it is counted.
    pub fn begin_out(&self, reason: OutReason, since: SystemTime, new: bool) {
        let cells = self.health_cells();
        if new { cells.begin(reason, since) } else { cells.hold(reason, since) }
    }

    /// A reason holds no longer.
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
        self.series.cores[0].health.get_or_init(Box::default)
    }

    /// What all cores counted; of the endpoints beyond the cap together.
    pub fn totals(&self) -> EndpointTotals {
        self.series.totals()
    }
}

impl UpstreamId {
    /// Says whether too few endpoints are in rotation; tells whether that is news.
    pub fn set_panicking(&self, panicking: bool) -> bool {
        self.series.cores[0].panicking.swap(panicking, Relaxed) != panicking
    }
}

impl UpstreamId {
    /// Says whether the registry of this upstream answers.
    pub fn follows(&self, follows: bool) {
        self.discovery().follows.store(follows, Relaxed);
    }

    /// Counts a list of endpoints that was published.
    pub fn discovered(&self) {
        self.discovery().changes.fetch_add(1, Relaxed);
    }

    /// Counts a question to the registry that was not answered.
    pub fn discovery_failed(&self) {
        self.discovery().failures.fetch_add(1, Relaxed);
    }

    fn discovery(&self) -> &Discovery {
        self.series.adopted.store(true, Relaxed);
        self.series.cores[0].discovery.get_or_init(Box::default)
    }
}

impl Series<UpstreamCells> {
    /// What is known of its registry, where it has one.
    pub(crate) fn discovery(&self) -> Option<&Discovery> {
        self.cores[0].discovery.get().map(|cells| &**cells)
    }

    pub(crate) fn panicking(&self) -> bool {
        self.cores[0].panicking.load(Relaxed)
    }
}

impl Series<EndpointCells> {
    /// What is known of its health, once anything is.
    pub(crate) fn health(&self) -> Option<&HealthCells> {
        self.cores[0].health.get().map(|cells| &**cells)
    }

    pub(crate) fn healthy(&self) -> bool {
        !self.cores[0].unhealthy.load(Relaxed)
    }

    pub(crate) fn totals(&self) -> EndpointTotals {
        let last = self.cores.iter().map(|cells| cells.last_failure.load(Relaxed)).max().unwrap_or(0);
        let at = UNIX_EPOCH + Duration::from_secs(last >> 16);
        EndpointTotals {
            answered: self.cores.iter().map(|cells| cells.answered.get()).sum(),
            failed: self.cores.iter().map(|cells| cells.failed.get()).sum(),
            errors: self.cores.iter().map(|cells| cells.errors.get()).sum(),
            first_byte: Duration::from_nanos(self.cores.iter().map(|cells| cells.first_byte_ns.get()).sum()),
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
        let cores = (0..cores).map(|_| Arc::default()).collect();
        Arc::new(Self {
            labels,
            cores,
            overflow,
            adopted: AtomicBool::new(false),
            dropped: Arc::clone(dropped),
        })
    }

    /// Whether anybody but the table could still count here.
    fn in_use(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.cores.iter().any(|cells| Arc::strong_count(cells) > 1)
    }
}

/// The series of one kind by name, at most `cap` of them and one for the overflow.
pub(crate) struct Table<C> {
    keys: &'static [&'static str],
    cap: usize,
    cores: usize,
    by_name: BTreeMap<Vec<String>, Arc<Series<C>>>,
    overflow: Arc<Series<C>>,
    pub(crate) folded: u64,
    /// Whether an id was dropped since the last look for unused series. Without it each name of a config of 10,000 routes would look
    /// through a table that is full.
    dropped: Arc<AtomicBool>,
}

impl<C: Default> Table<C> {
    pub(crate) fn new(keys: &'static [&'static str], cap: usize, cores: usize) -> Self {
        let names = vec![OVERFLOW; keys.len()];
        let dropped = Arc::default();
        let overflow = Series::new(keys, &names, cores, &dropped);
        Self { keys, cap, cores, by_name: BTreeMap::new(), overflow, folded: 0, dropped }
    }

    /// The series of this name, if there is one of its own.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Series<C>>> {
        self.by_name.get(&[text::bounded(name).to_owned()][..]).map(Arc::clone)
    }

    /// Finds the series or makes it; when the table is full even without the unused ones, the overflow.
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

    /// Drops the series that nobody can count on any more; says how many.
    ///
    /// Nobody can take a new id of such a series meanwhile: that goes through `find`, and the table is borrowed here.
    pub(crate) fn retire(&mut self) -> usize {
        // Before the look: an id that is dropped meanwhile makes the next look worth while.
        self.dropped.store(false, Relaxed);
        let before = self.by_name.len();
        self.by_name.retain(|_, series| series.in_use());
        before - self.by_name.len()
    }

    /// The series that were ever used, each with its first name; the overflow last, as such.
    pub(crate) fn named(&self) -> Vec<(String, Arc<Series<C>>)> {
        let of = |names: &[String]| names.first().cloned().unwrap_or_default();
        let all = self.by_name.iter().map(|(names, series)| (of(names), series));
        let all = all.chain([(OVERFLOW.to_owned(), &self.overflow)]);
        all.filter(|(_, series)| series.adopted.load(Relaxed))
            .map(|(name, series)| (name, Arc::clone(series)))
            .collect()
    }

    /// The series to expose: those that were ever used, by name, the overflow last.
    pub(crate) fn list(&self) -> Vec<Arc<Series<C>>> {
        let all = self.by_name.values().chain([&self.overflow]);
        all.filter(|series| series.adopted.load(Relaxed)).map(Arc::clone).collect()
    }
}
