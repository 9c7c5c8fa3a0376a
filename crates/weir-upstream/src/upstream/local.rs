//! An upstream on one core: its endpoints with their pools, its balancer, and requests waiting for a connection.

use super::balance::{Candidates, Key, NONE, Random, Tiers, weighted};
use super::budget::Arrivals;
use super::connection::Connection;
use super::cookie;
use super::endpoint::{Active, Endpoint, LocalEndpoint};
use super::excluded::Excluded;
use super::gate::Gate;
use super::health::clock;
use super::pool::PoolKey;
use super::resources::Resources;
use super::rotation::Rotation;
use super::slow_start::SlowStart;
use super::spec::Upstream;
use super::sticky::Code;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use weir_h1::RequestHead;
use weir_telemetry::{Attempt, UpstreamCells};
use weir_wire::listen::Address;
use weir_wire::time;

/// An upstream on one core.
pub struct LocalUpstream {
    /// The upstream as compiled.
    pub spec: Arc<Upstream>,
    /// Its counters on this core.
    pub cells: Arc<UpstreamCells>,
    pub(super) resources: Rc<Resources>,
    seen: Cell<u64>,
    endpoints: RefCell<Rc<[LocalEndpoint]>>,
    balance: RefCell<Tiers>,
    slow_start: Option<Box<SlowStart>>,
    /// Its requests on this core, for the budget.
    pub(super) arrivals: Arc<Arrivals>,
    /// The endpoints by their code in the cookie of `sticky`.
    codes: RefCell<HashMap<Code, usize>>,
    rotation: Rotation,
    /// Whose turn it is if other cores wait too.
    turn: Cell<bool>,
    /// Exchanges of this core that wait for a connection under the limit.
    waiters: RefCell<VecDeque<oneshot::Sender<Given>>>,
}

/// The result of waiting at the gate.
pub(super) enum Waited {
    /// A connection that another exchange returned.
    Given(Given),
    /// The right to open one.
    Permit(OwnedSemaphorePermit),
    /// Too many requests already wait.
    TooMany,
    /// It took too long.
    TooLong,
}

/// A connection handed from one exchange to the next, and its endpoint.
pub(super) struct Given {
    pub(super) connection: Connection,
    pub(super) endpoints: Rc<[LocalEndpoint]>,
    pub(super) index: usize,
}

/// A place in the queue at the gate. Dropping it leaves the queue.
pub(super) struct Waiting<'a>(&'a LocalUpstream, &'a Gate);

impl LocalUpstream {
    /// `before` is the upstream of this name in the previous snapshot.
    pub fn new(spec: Arc<Upstream>, resources: &Rc<Resources>, before: Option<&Self>) -> Self {
        let cells = resources.cells.upstream(&spec.cells);
        let balance = Tiers::new(resources.seed());
        let arrivals = spec.budget.join();
        let slow_start = spec.slow_start.map(|lasts| Box::new(SlowStart::new(lasts, resources.seed())));
        Self {
            spec,
            cells,
            resources: Rc::clone(resources),
            seen: Cell::new(0),
            // What is known of its endpoints is kept.
            endpoints: RefCell::new(before.map_or_else(|| Rc::new([]) as _, |before| before.endpoints())),
            balance: RefCell::new(balance),
            slow_start,
            arrivals,
            codes: RefCell::default(),
            rotation: Rotation::default(),
            waiters: RefCell::default(),
            turn: Cell::new(false),
        }
    }

    /// The current endpoints.
    pub fn endpoints(&self) -> Rc<[LocalEndpoint]> {
        let generation = self.spec.published.generation();
        if self.seen.get() != generation {
            let list = self.in_order();
            let before = Rc::clone(&self.endpoints.borrow());
            let known: HashMap<&Address, &LocalEndpoint> =
                before.iter().map(|e| (&e.endpoint.address, e)).collect();
            let latency = |known: Option<&&LocalEndpoint>| {
                let measures = self.spec.balancer.kind.measures;
                measures.then(|| known.and_then(|known| known.latency.clone()).unwrap_or_default())
            };
            let now = if before.is_empty() { 0 } else { clock(Instant::now()) };
            let joined = |known: Option<&&LocalEndpoint>| known.map_or(now, |known| known.joined);
            let code = |endpoint: &Endpoint| {
                let sticky = self.spec.sticky.as_ref();
                sticky.map(|sticky| Box::new(sticky.code(&self.spec.name, &endpoint.label)))
            };
            let mut last = None;
            let fresh = list.iter().map(|endpoint| LocalEndpoint {
                detail: RefCell::default(),
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
                active: known
                    .get(&endpoint.address)
                    .map(|known| Rc::clone(&known.active))
                    .unwrap_or_default(),
                load: self.spec.balancer.bound().map(|_| Load::of(&mut last, endpoint, &before)),
                latency: latency(known.get(&endpoint.address)),
                joined: joined(known.get(&endpoint.address)),
                code: code(endpoint),
            });
            let fresh: Rc<[LocalEndpoint]> = fresh.collect();
            let make = || self.spec.balancer.make(self.resources.seed());
            self.balance.borrow_mut().update(&fresh, make);
            self.slow_start.iter().for_each(|slow| slow.update());
            let codes = fresh.iter().enumerate().filter_map(|(i, e)| Some((**e.code.as_ref()?, i)));
            *self.codes.borrow_mut() = codes.collect();
            *self.endpoints.borrow_mut() = fresh;
            self.seen.set(generation);
        }
        Rc::clone(&self.endpoints.borrow())
    }

    /// The published endpoints, tier by tier.
    fn in_order(&self) -> Vec<Arc<Endpoint>> {
        let mut list = Vec::clone(&self.spec.published.list());
        list.sort_by_key(|endpoint| endpoint.place.rank());
        list
    }

    /// Chooses an endpoint that is not in `tried`: one in rotation, unless none is.
    #[inline]
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

    /// Chooses an endpoint in rotation that is not in `tried`. An upstream's only endpoint counts as in rotation.
    #[inline]
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
                let again = !tried.is_empty();
                let pick = |tried: &Excluded| {
                    let from = Candidates::new(endpoints, out.as_deref(), tried, key);
                    self.choose(endpoints, &from.with_again(again))
                };
                let chosen = pick(tried)?;
                Some(match &self.slow_start {
                    None => chosen,
                    Some(slow) => slow.consider(chosen, endpoints, tried, key, pick),
                })
            }
        }
    }

    /// Whether an endpoint outside `tried` is in rotation.
    #[inline]
    pub(super) fn has_in_rotation(&self, endpoints: &Rc<[LocalEndpoint]>, tried: &Excluded) -> bool {
        let out = self.rotation.out(endpoints, self.spec.timeouts.connect);
        let is_out = |i| out.as_deref().is_some_and(|out| out.contains(i));
        (0..endpoints.len()).any(|i| !tried.contains(i) && !is_out(i))
    }

    /// The endpoint named by the cookie of `sticky`, if it is in rotation, or drained and otherwise healthy.
    #[inline]
    pub(super) fn stuck_to(&self, endpoints: &Rc<[LocalEndpoint]>, head: &RequestHead) -> Option<usize> {
        let sticky = self.spec.sticky.as_ref()?;
        let code = cookie::value(&head.headers, &sticky.cookie)?;
        let index = *self.codes.borrow().get(code)?;
        let is_listed = Rc::ptr_eq(endpoints, &self.endpoints.borrow());
        let out = self.rotation.out(endpoints, self.spec.timeouts.connect);
        let is_drained = || endpoints.get(index).is_some_and(|at| at.endpoint.health.keeps_sessions());
        (is_listed && (out.is_none_or(|out| !out.contains(index)) || is_drained())).then_some(index)
    }

    /// Whether the cookie of `sticky` names one of its endpoints that can still answer: then a split brings the client
    /// back to this upstream.
    pub fn knows_client(&self, head: &RequestHead) -> bool {
        let endpoints = |endpoints: &RefCell<Rc<[LocalEndpoint]>>| Rc::clone(&endpoints.borrow());
        self.spec.sticky.is_some() && self.stuck_to(&endpoints(&self.endpoints), head).is_some()
    }

    /// The Set-Cookie value that brings a client back to this endpoint, unless it already has the cookie.
    pub fn set_cookie(&self, active: &Active, head: &RequestHead, is_tls: bool) -> Option<Vec<u8>> {
        let sticky = self.spec.sticky.as_ref()?;
        let code = active.get().code.as_deref()?;
        let known = cookie::value(&head.headers, &sticky.cookie);
        (known != Some(code)).then(|| sticky.set_cookie(code, is_tls))
    }

    #[inline]
    fn choose(&self, endpoints: &Rc<[LocalEndpoint]>, from: &Candidates<'_>) -> Option<usize> {
        if Rc::ptr_eq(endpoints, &self.endpoints.borrow()) {
            return self.balance.borrow_mut().pick(from);
        }
        // The endpoints have changed since the request began, and the balancer does not know the old ones.
        weighted(&mut Random::new(self.resources.seed()), from, NONE)
    }

    /// Counts an attempt that its endpoint answered with this status after this time.
    #[inline]
    pub fn answered(&self, active: &Active, status: u16, first_byte: Duration, is_well: bool) {
        self.cells.attempt(Attempt::Answered);
        let cells = &active.get().cells;
        cells.answer(first_byte);
        if status >= 500 {
            cells.errors.inc();
        }
        self.note(active, is_well);
    }

    /// Notes whether an endpoint answered well, if anything uses that.
    #[inline]
    pub fn note(&self, active: &Active, ok: bool) {
        self.spec.note(&active.get().endpoint, ok);
    }

    /// The index of an endpoint to try in the background.
    #[inline]
    pub(super) fn take_trial(&self) -> Option<usize> {
        self.rotation.take_trial()
    }

    /// Returns a connection whose exchange is wholly over, to a waiting request or into the pool.
    pub fn give_back(&self, active: &Active, mut connection: Connection, now: Instant) {
        if connection.stream.is_multiplexed() {
            return active.get().pool.shared.recycle(connection); // a stream is over
        }
        if self.spec.keepalive.is_zero() {
            return; // `keepalive: 0s` turns reuse off
        }
        connection.reused = true;
        connection.relay.release();
        if let Some(gate) = &self.spec.gate
            && gate.is_wanted()
        {
            if !connection.is_good(now) || connection.owner().is_some() {
                return; // closing it frees its place for a waiting request
            }
            // Requests on other cores get every second place. A core that served only its own would keep the others
            // waiting as long as it is busy.
            let elsewhere = gate.waiting() > self.waiters.borrow().len();
            if elsewhere && self.turn.replace(!self.turn.get()) {
                return;
            }
            let waiter = self.waiters.borrow_mut().pop_front();
            if let Some(waiter) = waiter {
                let (endpoints, index) = active.place();
                // If the waiter has just left, the connection closes and frees its place.
                let _ = waiter.send(Given { connection, endpoints, index });
            }
            return; // another core waits: closing it frees its place
        }
        active.get().pool.give(connection, now);
    }

    /// Closes connections that were idle too long, and one if another core waits for a place.
    pub fn sweep(&self, now: Instant) {
        for endpoint in self.endpoints().iter() {
            endpoint.pool.sweep_in_turn(self.spec.keepalive, now);
            // At an endpoint that an operator took out, no unused connection stays open.
            while endpoint.is_by_hand() && endpoint.pool.close_oldest() {}
        }
        if self.spec.gate.as_ref().is_some_and(|g| g.is_wanted()) {
            self.close_one_idle();
        }
    }

    /// Closes one of this upstream's idle connections, if any, to free its place under the limit.
    fn close_one_idle(&self) -> bool {
        self.endpoints.borrow().iter().any(|e| e.pool.close_oldest())
    }

    /// The right to open a connection. If no place is free, an idle connection of this upstream is closed for it.
    #[inline]
    pub(super) fn enter(&self, gate: &Gate) -> Option<OwnedSemaphorePermit> {
        gate.enter().or_else(|| self.close_one_idle().then(|| gate.enter()).flatten())
    }

    /// A place in the queue; `None` if too many already wait.
    #[inline]
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
            () = time::sleep(timeout) => Waited::TooLong,
        }
    }
}

/// Counts the load of a tier's endpoints together.
struct Load {
    rank: (u8, bool),
    count: Rc<Cell<u32>>,
}

impl Load {
    /// The load of an endpoint's tier. Call it tier by tier. Attempts that began with the list `before` count on.
    fn of(last: &mut Option<Self>, endpoint: &Endpoint, before: &[LocalEndpoint]) -> Rc<Cell<u32>> {
        let rank = endpoint.place.rank();
        let kept = last.take().filter(|load| load.rank == rank);
        let known = || before.iter().find(|e| e.endpoint.place.rank() == rank)?.load.clone();
        let load = kept.unwrap_or_else(|| Self { rank, count: known().unwrap_or_default() });
        Rc::clone(&last.insert(load).count)
    }
}

impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(upstream, gate) = self;
        gate.leave();
        upstream.cells.pending.dec();
        upstream.waiters.borrow_mut().retain(|w| !w.is_closed());
    }
}
