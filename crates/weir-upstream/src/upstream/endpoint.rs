//! An endpoint: the part that all cores share, and the part of each core.

use super::health::Health;
use super::latency::{Latency, Measurement};
use super::pool::Pool;
use super::sticky::Code;
use crate::error::Cause;
use arc_swap::ArcSwap;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;
use weir_telemetry::{EndpointCells, EndpointId, log};
use weir_wire::listen::Address;

/// One address of an upstream.
#[derive(Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: Address,
    /// Its name in logs and metrics: the address.
    pub label: Arc<str>,
    /// Host and port as written in the config.
    pub authority: Arc<str>,
    /// Only the host, which TLS requests and verifies.
    pub server_name: Arc<str>,
    /// Its share of the load relative to the others.
    pub weight: u32,
    /// Its priority and zone.
    pub place: Place,
    /// Its counters.
    pub cells: EndpointId,
    /// Whether it is in rotation. One object per address, across snapshots.
    pub health: Arc<Health>,
}

/// An endpoint's place among those of its upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Lower priorities are used first.
    pub priority: u8,
    /// Its zone, if known.
    pub zone: Option<Arc<str>>,
    /// Whether the gateway has a zone and the endpoint is not in it.
    pub elsewhere: bool,
}

/// An upstream's current endpoints.
#[derive(Debug)]
pub struct Published {
    list: ArcSwap<Vec<Arc<Endpoint>>>,
    generation: AtomicU64,
    changed: watch::Sender<()>,
}

/// An endpoint on one core.
pub struct LocalEndpoint {
    /// The part that all cores share.
    pub endpoint: Arc<Endpoint>,
    pub(crate) pool: Rc<Pool>,
    /// Its counters on this core.
    pub cells: Arc<EndpointCells>,
    /// This core's running attempts. Shared with the lists before and after, because connections of `tcp` outlive
    /// them.
    pub(crate) active: Rc<Cell<u32>>,
    /// This core's running attempts at all endpoints that share the load, if the balancer asks for it.
    pub(crate) load: Option<Rc<Cell<u32>>>,
    /// How fast it answers, if the balancer asks for it.
    pub(crate) latency: Option<Rc<Latency>>,
    /// When this core first saw it, on the clock of [`health`](super::health). 0 if it was among the first.
    pub(crate) joined: u64,
    /// Its code in the cookie of `sticky`.
    pub(crate) code: Option<Box<Code>>,
    /// The error text of this core's last failed connect to it.
    pub(super) detail: RefCell<Option<Box<str>>>,
}

/// Counts an attempt as running at its endpoint.
pub struct Active {
    endpoints: Rc<[LocalEndpoint]>,
    index: usize,
}

/// Counts a connection that carries bytes as an attempt at its endpoint, for as long as it lasts. It does not hold the
/// list of endpoints, which may be replaced many times meanwhile.
pub struct Standing {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    cells: Arc<EndpointCells>,
    active: Rc<Cell<u32>>,
    load: Option<Rc<Cell<u32>>>,
}

// === impl Place ===

impl Place {
    /// Its tier: lower ranks are used first.
    pub(crate) const fn rank(&self) -> (u8, bool) {
        (self.priority, self.elsewhere)
    }
}

// === impl Published ===

impl Published {
    /// These endpoints, until others are published.
    pub fn new(list: Vec<Arc<Endpoint>>) -> Arc<Self> {
        Arc::new(Self {
            list: ArcSwap::from_pointee(list),
            generation: AtomicU64::new(1),
            changed: watch::Sender::new(()),
        })
    }

    /// Replaces the endpoints. Connections to those that stay are kept; the others end after their exchange.
    pub(crate) fn publish(&self, list: Vec<Arc<Endpoint>>) {
        self.list.store(Arc::new(list));
        self.generation.fetch_add(1, Ordering::Release);
        self.changed.send_replace(());
    }

    /// Notifies of every list published from now on.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The endpoints.
    #[inline]
    pub fn list(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.list.load_full()
    }

    /// A number that changes with the list; never 0.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

// === impl LocalEndpoint ===

impl LocalEndpoint {
    /// Whether an operator took it out.
    #[inline]
    pub(super) fn is_by_hand(&self) -> bool {
        self.endpoint.health.standing().is_by_hand()
    }

    /// Takes the error text of this core's last failed connect to it.
    pub fn take_detail(&self) -> Option<Box<str>> {
        self.detail.borrow_mut().take()
    }

    /// Counts attempts that begin or end.
    #[inline]
    fn count(&self, change: i32) {
        self.active.set(self.active.get().wrapping_add_signed(change));
        if let Some(load) = &self.load {
            load.set(load.get().wrapping_add_signed(change));
        }
    }
}

// === impl Active ===

impl Active {
    pub(crate) fn new(endpoints: &Rc<[LocalEndpoint]>, index: usize) -> Self {
        let it = Self { endpoints: Rc::clone(endpoints), index };
        it.get().count(1);
        it.get().cells.active.inc();
        it
    }

    /// The endpoint at which it is counted.
    #[inline]
    pub fn place(&self) -> (Rc<[LocalEndpoint]>, usize) {
        (Rc::clone(&self.endpoints), self.index)
    }

    /// Its index among the endpoints.
    #[inline]
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    /// Whether its upstream has other endpoints.
    #[inline]
    pub fn has_others(&self) -> bool {
        self.endpoints.len() > 1
    }

    /// Starts measuring the endpoint's latency, if its balancer asks for it. `is_whole` says that the whole request
    /// is ready to be sent.
    pub fn measure(&self, began: impl FnOnce() -> Instant, is_whole: bool) -> Option<Measurement> {
        self.get().latency.as_ref().map(|latency| Measurement::new(latency, began(), is_whole))
    }

    /// Counts on without the list of endpoints.
    pub fn stay(self) -> Standing {
        let LocalEndpoint { endpoint, cells, active, load, .. } = self.get();
        let standing = Standing {
            endpoint: Arc::clone(endpoint),
            cells: Arc::clone(cells),
            active: Rc::clone(active),
            load: load.clone(),
        };
        standing.count(1);
        standing.cells.active.inc();
        standing
    }

    /// The endpoint.
    #[inline]
    pub fn get(&self) -> &LocalEndpoint {
        &self.endpoints[self.index]
    }
}

impl Drop for Active {
    #[inline]
    fn drop(&mut self) {
        let endpoint = self.get();
        endpoint.count(-1);
        endpoint.cells.active.dec();
    }
}

impl Standing {
    fn count(&self, change: i32) {
        for count in [Some(&self.active), self.load.as_ref()].into_iter().flatten() {
            count.set(count.get().wrapping_add_signed(change));
        }
    }

    /// Counts the endpoint's first bytes after this time.
    pub fn answered(&self, first_byte: Duration) {
        self.cells.answer(first_byte);
    }

    /// Counts a failure of the endpoint, by the index of its cause.
    pub fn failed(&self, cause: usize, at: SystemTime) {
        self.cells.fail(cause, at);
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.count(-1);
        self.cells.active.dec();
    }
}

/// Logs one line for a failing endpoint: at most one in five seconds per upstream and cause, with a count of the
/// others.
pub fn complain(upstream: &str, endpoint: &str, cause: &Cause, e: &dyn fmt::Display) {
    static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(5));
    SEEN.warn(
        (upstream, cause.code),
        "upstream failed",
        &[("upstream", &upstream), ("endpoint", &endpoint), ("cause", &cause.code), ("error", &e)],
    );
}
