//! An upstream as one core has it: its endpoints with their pools, its balancer, and those who wait for a connection.

use super::balance::{Candidates, Key, NONE, Random, Tiers, weighted};
use super::connection::Connection;
use super::endpoint::{Active, Endpoint, LocalEndpoint};
use super::excluded::Excluded;
use super::gate::Gate;
use super::pool::PoolKey;
use super::resources::Resources;
use super::rotation::Rotation;
use super::spec::Upstream;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use weir_telemetry::UpstreamCells;
use weir_wire::listen::Address;

/// An upstream as one core has it.
pub(crate) struct LocalUpstream {
    pub(crate) spec: Arc<Upstream>,
    pub(crate) cells: Arc<UpstreamCells>,
    pub(super) resources: Rc<Resources>,
    seen: Cell<u64>,
    endpoints: RefCell<Rc<[LocalEndpoint]>>,
    balance: RefCell<Tiers>,
    rotation: Rotation,
    /// Whose turn it is where other cores wait too.
    turn: Cell<bool>,
    /// Exchanges of this core that wait for a connection under the limit.
    waiters: RefCell<VecDeque<oneshot::Sender<Given>>>,
}

/// What waiting at the gate brought.
pub(super) enum Waited {
    /// A connection that was given back.
    Given(Given),
    /// The right to open one.
    Permit(OwnedSemaphorePermit),
    /// Too many wait already.
    TooMany,
    /// It took too long.
    TooLong,
}

/// A connection handed from one exchange to the next, and where it leads.
pub(super) struct Given {
    pub(super) connection: Connection,
    pub(super) endpoints: Rc<[LocalEndpoint]>,
    pub(super) index: usize,
}

/// A place in the queue at the gate. Dropped, it is left.
pub(super) struct Waiting<'a>(&'a LocalUpstream, &'a Gate);

impl LocalUpstream {
    pub(crate) fn new(spec: Arc<Upstream>, resources: &Rc<Resources>) -> Self {
        let cells = resources.cells.upstream(&spec.cells);
        let balance = Tiers::new(resources.seed());
        Self {
            spec,
            cells,
            resources: Rc::clone(resources),
            seen: Cell::new(0),
            endpoints: RefCell::new(Rc::new([])),
            balance: RefCell::new(balance),
            rotation: Rotation::default(),
            waiters: RefCell::default(),
            turn: Cell::new(false),
        }
    }

    /// The endpoints as they are now.
    pub(crate) fn endpoints(&self) -> Rc<[LocalEndpoint]> {
        let generation = self.spec.published.generation();
        if self.seen.get() != generation {
            let list = self.in_order();
            let before = Rc::clone(&self.endpoints.borrow());
            let known: HashMap<&Address, &LocalEndpoint> =
                before.iter().map(|e| (&e.endpoint.address, e)).collect();
            let latency = |endpoint: &Endpoint| match known.get(&endpoint.address) {
                Some(known) => known.latency.clone(),
                None => self.spec.balancer.kind.measures.then(Rc::default),
            };
            let mut load = Load::default();
            let fresh = list.iter().map(|endpoint| LocalEndpoint {
                pool: self.resources.pool(PoolKey {
                    address: endpoint.address.clone(),
                    tls: Arc::clone(&self.spec.tls_key),
                    server_name: if self.spec.tls.is_some() {
                        Arc::clone(&endpoint.server_name)
                    } else {
                        Arc::from("")
                    },
                    way: self.spec.way,
                    gate: self.spec.gate.as_ref().map(|g| g.id()),
                }),
                cells: self.resources.cells.endpoint(&endpoint.cells),
                endpoint: Arc::clone(endpoint),
                active: Cell::new(0),
                load: self.spec.balancer.bound().map(|_| load.of(endpoint)),
                latency: latency(endpoint),
            });
            let fresh: Rc<[LocalEndpoint]> = fresh.collect();
            let make = || self.spec.balancer.make(self.resources.seed());
            self.balance.borrow_mut().update(&fresh, make);
            *self.endpoints.borrow_mut() = fresh;
            self.seen.set(generation);
        }
        Rc::clone(&self.endpoints.borrow())
    }

    /// The endpoints that are published, tier by tier.
    fn in_order(&self) -> Vec<Arc<Endpoint>> {
        let mut list = Vec::clone(&self.spec.published.list());
        list.sort_by_key(|endpoint| endpoint.place.rank());
        list
    }

    /// Chooses an endpoint that is not among those `tried`: one that is in rotation, unless none is.
    pub(super) fn pick(
        &self,
        endpoints: &Rc<[LocalEndpoint]>,
        tried: &Excluded,
        key: Option<Key>,
    ) -> Option<usize> {
        let chosen = self.pick_in_rotation(endpoints, tried, key);
        if chosen.is_some() || self.rotation.is_full() {
            return chosen;
        }
        let by_hand = self.rotation.by_hand();
        self.choose(endpoints, &Candidates::new(endpoints, Some(&*by_hand), tried, key))
    }

    /// Chooses an endpoint in rotation that is not among those `tried`. The only one there is counts as one.
    pub(super) fn pick_in_rotation(
        &self,
        endpoints: &Rc<[LocalEndpoint]>,
        tried: &Excluded,
        key: Option<Key>,
    ) -> Option<usize> {
        match &**endpoints {
            [] => None,
            [only] => (tried.is_empty() && !only.is_by_hand()).then_some(0),
            _ => {
                let out = self.rotation.out(endpoints, self.spec.timeouts.connect);
                self.choose(endpoints, &Candidates::new(endpoints, out.as_deref(), tried, key))
            }
        }
    }

    fn choose(&self, endpoints: &Rc<[LocalEndpoint]>, from: &Candidates<'_>) -> Option<usize> {
        if Rc::ptr_eq(endpoints, &self.endpoints.borrow()) {
            return self.balance.borrow_mut().pick(from);
        }
        // The endpoints have changed since the request began: the balancer does not know these.
        weighted(&mut Random::new(self.resources.seed()), from, NONE)
    }

    /// Notes whether an endpoint answered well, where somebody wants to know.
    pub(crate) fn note(&self, active: &Active, ok: bool) {
        let Some(policy) = &self.spec.outlier else { return };
        active.get().endpoint.health.answered(ok, policy, Instant::now(), || {
            let list = self.spec.published.list();
            (list.iter().filter(|e| e.health.is_out()).count(), list.len())
        });
    }

    /// An endpoint that is to be tried in the background, by its index in the list now.
    pub(super) fn take_trial(&self) -> Option<usize> {
        self.rotation.take_trial()
    }

    /// Takes back a connection whose exchange is wholly over: to whoever waits for one, or into the pool.
    pub(crate) fn give_back(&self, active: &Active, mut connection: Connection, now: Instant) {
        if self.spec.keepalive.is_zero() || connection.stream.h2().is_some() {
            return; // `keepalive: 0s` turns reuse off; a stream is over
        }
        connection.reused = true;
        if let Some(gate) = &self.spec.gate
            && gate.is_wanted()
        {
            if !connection.is_good(now) || connection.owner().is_some() {
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
                let (endpoints, index) = active.place();
                // If the waiter has just left, the connection closes and its place is free for another.
                let _ = waiter.send(Given { connection, endpoints, index });
            }
            return; // another core waits: closing it frees its place
        }
        active.get().pool.give(connection, now);
    }

    /// Closes idle connections that are too old, and one where another core waits for a place.
    pub(crate) fn sweep(&self, now: Instant) {
        for endpoint in self.endpoints().iter() {
            endpoint.pool.sweep(self.spec.keepalive, now);
            // Of one that an operator took out nothing stays open for longer than it is used.
            while endpoint.is_by_hand() && endpoint.pool.close_oldest() {}
        }
        if self.spec.gate.as_ref().is_some_and(|g| g.is_wanted()) {
            self.close_one_idle();
        }
    }

    /// Closes one idle connection of this upstream, if there is one, so that its place under the limit is free.
    fn close_one_idle(&self) -> bool {
        self.endpoints.borrow().iter().any(|e| e.pool.close_oldest())
    }

    /// The right to open a connection; an idle one of this upstream makes room where there is no place.
    pub(super) fn enter(&self, gate: &Gate) -> Option<OwnedSemaphorePermit> {
        gate.enter().or_else(|| self.close_one_idle().then(|| gate.enter()).flatten())
    }

    /// A place in the queue; `None` when too many wait already.
    pub(super) fn queue<'a>(&'a self, gate: &'a Gate) -> Option<Waiting<'a>> {
        if !gate.join() {
            return None;
        }
        self.cells.pending.inc();
        Some(Waiting(self, gate))
    }

    /// Waits for a connection or a permit.
    pub(super) async fn wait(&self, gate: &Gate, timeout: Duration) -> Waited {
        let Some(_waiting) = self.queue(gate) else { return Waited::TooMany };
        let (give, mut given) = oneshot::channel();
        self.waiters.borrow_mut().push_back(give);
        tokio::select! {
            biased;
            given = &mut given => match given {
                Ok(given) => Waited::Given(given),
                Err(_) => Waited::TooLong, // the upstream is gone with its snapshot
            },
            permit = gate.acquire() => match permit {
                Some(permit) => Waited::Permit(permit),
                None => Waited::TooLong,
            },
            () = tokio::time::sleep(timeout) => Waited::TooLong,
        }
    }
}

/// Counts the load of the endpoints of a tier together.
#[derive(Default)]
struct Load(Option<((u8, bool), Rc<Cell<u32>>)>);

impl Load {
    /// That of the tier of an endpoint; they are asked for tier by tier.
    fn of(&mut self, endpoint: &Endpoint) -> Rc<Cell<u32>> {
        let rank = endpoint.place.rank();
        match &self.0 {
            Some((same, load)) if *same == rank => Rc::clone(load),
            _ => Rc::clone(&self.0.insert((rank, Rc::default())).1),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self(upstream, gate) = self;
        gate.leave();
        upstream.cells.pending.dec();
        upstream.waiters.borrow_mut().retain(|w| !w.is_closed());
    }
}
