//! Upstreams: what is shared of them by all cores, and what each core has of its own.
//!
//! An [`Upstream`] is a named group as compiled from the config. Its [`Endpoint`]s are published by discovery and may
//! change at any time; a core notices by a generation number and keeps its pools, keyed by address, across the change and
//! across reloads. `connect` is the way to a connection; `pool` holds idle ones, `links` those that requests share, `gate` the
//! limits that are exact for the process, `balance` the choice of an endpoint, `discover` where endpoints come from.

pub(crate) mod balance;
mod connect;
pub(crate) mod discover;
mod gate;
mod links;
mod pool;

pub(crate) use connect::{Unmade, Wanted, complain, connect};
pub(crate) use gate::{Gate, Given};
pub(crate) use pool::{Connection, Pool, PoolKey};

use arc_swap::ArcSwap;
use balance::Balance;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_telemetry::{CoreCells, EndpointCells, EndpointId, UpstreamCells, UpstreamId};
use weir_wire::listen::Address;
use weir_wire::tls::ClientTls;

/// A named group of endpoints, as run.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) name: Arc<str>,
    pub(crate) published: Arc<Published>,
    /// What discovery keeps `published` up to date from.
    pub(crate) names: discover::dns::Names,
    pub(crate) tls: Option<ClientTls>,
    /// What tells this TLS policy from another: connections are shared only between equal ones.
    pub(crate) tls_key: Arc<str>,
    pub(crate) protocol: Protocol,
    pub(crate) host: HostPolicy,
    pub(crate) balancer: &'static balance::Kind,
    pub(crate) timeouts: Timeouts,
    /// How long a pooled connection may be idle.
    pub(crate) keepalive: Duration,
    /// How old a pooled connection may grow.
    pub(crate) max_age: Option<Duration>,
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) cells: UpstreamId,
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// What each endpoint chooses when TLS begins.
    Negotiated,
}

impl Protocol {
    /// Its name in a config.
    pub(crate) const fn name(self, tls: bool) -> &'static str {
        match (self, tls) {
            (Self::Http1, _) => "http1",
            (Self::Http2, true) => "h2",
            (Self::Http2, false) => "h2c",
            (Self::Negotiated, _) => "auto",
        }
    }
}

/// The waits of an attempt. Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
    pub(crate) body: Duration,
    pub(crate) tunnel: Duration,
    pub(crate) exchange: Duration,
}

/// Which Host an upstream is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPolicy {
    /// The endpoint's own, as written in the config.
    Endpoint,
    /// This one.
    Literal(Box<str>),
    /// The client's.
    Preserve,
}

/// One address of an upstream.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    /// How logs and metrics call it: the address.
    pub(crate) label: Arc<str>,
    /// Host and port as written in the config.
    pub(crate) authority: Arc<str>,
    /// The host alone: what TLS asks for and verifies.
    pub(crate) server_name: Arc<str>,
    pub(crate) weight: u32,
    pub(crate) cells: EndpointId,
}

/// The endpoints of an upstream as they are now.
#[derive(Debug)]
pub(crate) struct Published {
    list: ArcSwap<Vec<Arc<Endpoint>>>,
    generation: AtomicU64,
}

impl Published {
    pub(crate) fn new(list: Vec<Arc<Endpoint>>) -> Arc<Self> {
        Arc::new(Self { list: ArcSwap::from_pointee(list), generation: AtomicU64::new(1) })
    }

    /// Replaces the endpoints. Connections to the ones that stay are kept; those to the others end with their exchange.
    pub(crate) fn publish(&self, list: Vec<Arc<Endpoint>>) {
        self.list.store(Arc::new(list));
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn list(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.list.load_full()
    }
}

/// An upstream as one core has it.
pub(crate) struct LocalUpstream {
    pub(crate) spec: Arc<Upstream>,
    pub(crate) cells: Arc<UpstreamCells>,
    core: Arc<CoreCells>,
    seen: Cell<u64>,
    endpoints: RefCell<Rc<[LocalEndpoint]>>,
    balance: RefCell<Box<dyn Balance>>,
    /// Whose turn it is where other cores wait too.
    turn: Cell<bool>,
    /// Exchanges of this core that wait for a connection under the limit.
    pub(crate) waiters: RefCell<std::collections::VecDeque<tokio::sync::oneshot::Sender<Given>>>,
}

/// An endpoint as one core has it.
pub(crate) struct LocalEndpoint {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) pool: Rc<Pool>,
    pub(crate) cells: Arc<EndpointCells>,
    /// Attempts of this core under way.
    pub(crate) active: Cell<u32>,
    /// The running weight of smooth round robin.
    pub(crate) current: Cell<i64>,
}

/// Endpoints that an exchange has tried in vain, by index.
pub(crate) type Tried = SmallVec<[usize; 4]>;

impl LocalUpstream {
    pub(crate) fn new(spec: Arc<Upstream>, core: Arc<CoreCells>, seed: u64) -> Self {
        let cells = core.upstream(&spec.cells);
        let balance = (spec.balancer.make)(seed);
        Self {
            spec,
            cells,
            core,
            seen: Cell::new(0),
            endpoints: RefCell::new(Rc::new([])),
            balance: RefCell::new(balance),
            waiters: RefCell::default(),
            turn: Cell::new(false),
        }
    }

    /// The endpoints as they are now. `pools` finds or makes a core's pool for a key.
    pub(crate) fn endpoints(&self, pools: &dyn Fn(PoolKey) -> Rc<Pool>) -> Rc<[LocalEndpoint]> {
        let generation = self.spec.published.generation.load(Ordering::Acquire);
        if self.seen.get() != generation {
            let list = self.spec.published.list();
            let fresh = list.iter().map(|endpoint| LocalEndpoint {
                pool: pools(PoolKey {
                    address: endpoint.address.clone(),
                    tls: Arc::clone(&self.spec.tls_key),
                    server_name: if self.spec.tls.is_some() {
                        Arc::clone(&endpoint.server_name)
                    } else {
                        Arc::from("")
                    },
                    gate: self.spec.gate.as_ref().map(|g| g.id()),
                }),
                cells: self.core.endpoint(&endpoint.cells),
                endpoint: Arc::clone(endpoint),
                active: Cell::new(0),
                current: Cell::new(0),
            });
            *self.endpoints.borrow_mut() = fresh.collect();
            self.seen.set(generation);
        }
        Rc::clone(&self.endpoints.borrow())
    }

    /// Chooses an endpoint that was not tried yet.
    pub(crate) fn pick(&self, endpoints: &[LocalEndpoint], tried: &Tried) -> Option<usize> {
        match endpoints {
            [] => None,
            [_] => tried.is_empty().then_some(0),
            _ => self.balance.borrow_mut().pick(endpoints, tried),
        }
    }

    /// Takes back a connection whose exchange is wholly over: to whoever waits for one, or into the pool.
    pub(crate) fn give_back(&self, active: &Active, mut connection: Connection, now: std::time::Instant) {
        if self.spec.keepalive.is_zero() || connection.stream.h2().is_some() {
            return; // `keepalive: 0s` turns reuse off; a stream is over
        }
        connection.reused = true;
        if let Some(gate) = &self.spec.gate
            && gate.is_wanted()
        {
            if !connection.is_good(now) {
                return; // closing it frees its place for whoever waits
            }
            // Whoever waits on another core gets every second place: a core that only served its own would keep the
            // others waiting for as long as it is busy.
            let elsewhere = gate.waiting() > self.waiters.borrow().len();
            if elsewhere && self.turn.replace(!self.turn.get()) {
                return;
            }
            let waiter = self.waiters.borrow_mut().pop_front();
            if let Some(waiter) = waiter {
                let endpoints = Rc::clone(&active.endpoints);
                // If the waiter has just left, the connection closes and its place is free for another.
                let _ = waiter.send(Given { connection, endpoints, index: active.index });
            }
            return; // another core waits: closing it frees its place
        }
        active.get().pool.give(connection, now);
    }

    /// Closes one idle connection of this upstream, if there is one, so that its place under the limit is free.
    pub(crate) fn close_one_idle(&self) -> bool {
        self.endpoints.borrow().iter().any(|e| e.pool.close_oldest())
    }
}

/// Counts an attempt as under way at its endpoint.
pub(crate) struct Active {
    endpoints: Rc<[LocalEndpoint]>,
    index: usize,
}

impl Active {
    pub(crate) fn new(endpoints: &Rc<[LocalEndpoint]>, index: usize) -> Self {
        let it = Self { endpoints: Rc::clone(endpoints), index };
        it.get().active.set(it.get().active.get() + 1);
        it.get().cells.active.inc();
        it
    }

    /// Where it is counted.
    pub(crate) fn place(&self) -> (Rc<[LocalEndpoint]>, usize) {
        (Rc::clone(&self.endpoints), self.index)
    }

    pub(crate) fn get(&self) -> &LocalEndpoint {
        &self.endpoints[self.index]
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let endpoint = self.get();
        endpoint.active.set(endpoint.active.get() - 1);
        endpoint.cells.active.dec();
    }
}
