//! What one core owns: its view of the snapshot, its pools, its connections, its scratch buffers.
//!
//! Everything here belongs to one thread. Other threads reach a core only through its mailbox ([`Message`]).

use crate::autopsy::kept::Kind;
use crate::autopsy::{Autopsies, Found, Question, Usual, connection_kept};
use crate::export::Outbox;
use crate::lane::Lane;
use crate::snapshot::{Handling, Listener, Policy, Snapshot};
use foldhash::fast::FixedState;
use slab::Slab;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as mpsc_std;
use std::task::Waker;
use std::time::{Instant, SystemTime};
use tokio::sync::mpsc;
use weir_filter::blocking::Blocking;
use weir_filter::filter::{CoreHandle, RouteScope};
use weir_h1::{RequestHead, ResponseHead};
use weir_telemetry::{AccessLog, ConsumerCells, CoreCells, ListenerCells, RouteCells, Telemetry};
use weir_upstream::upstream::balance::Random;
use weir_upstream::upstream::{LocalUpstream, Resources};
use weir_wire::listen::{Address, BoundSocket};
use weir_wire::{Peer, Sockets, Stream};

/// A connection that was accepted.
pub(crate) struct Arrived {
    pub(crate) listener: Rc<LocalListener>,
    pub(crate) stream: Stream,
    pub(crate) peer: Peer,
}

/// What other threads tell a core.
pub enum Message {
    /// A connection that another core accepted and has no room for.
    Accepted {
        /// The connection.
        stream: std::net::TcpStream,
        /// Who opened it.
        peer: Peer,
        /// The listener that accepted it.
        listener: Address,
    },
    /// The next snapshot, the sockets of its new listeners, and the new access log. Answered when it is adopted.
    Adopt {
        /// The snapshot.
        snapshot: Arc<Snapshot>,
        /// The sockets of its new listeners.
        sockets: Vec<(Address, BoundSocket)>,
        /// `None`: as it was. Boxed: it is larger than all other messages.
        log: Option<Option<Box<AccessLog>>>,
        /// The same for spans.
        spans: Option<Option<Outbox>>,
        /// Answered, or hung up, when it is done.
        done: mpsc_std::Sender<()>,
    },
    /// Accept nothing more and end every connection after its exchange. `done` is hung up when all that waited to be
    /// accepted were.
    Drain {
        /// How.
        leaving: Leaving,
        /// Hung up when it is done.
        done: mpsc_std::Sender<()>,
    },
    /// Give each listening socket once more, for the process that takes this one's place.
    Lend {
        /// Where they go.
        to: mpsc_std::Sender<(Address, BoundSocket)>,
    },
    /// End now.
    Stop,
    /// Say that the loop turns.
    Turn {
        /// Whom it is said to.
        to: mpsc_std::Sender<()>,
    },
    /// Tell which of the exchanges that are kept fit a question.
    Why {
        /// The question.
        question: Arc<Question>,
        /// Who asks.
        to: mpsc_std::Sender<Found>,
    },
}

/// How a core drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The gateway ends: an idle connection is closed at once, so that the end comes soon.
    End,
    /// Another process listens already. Nothing hurries, so an idle connection may bring one more request, and is closed
    /// with its answer: a client that was just about to send one does not find it closed.
    Successor,
}

/// The process-wide facts that cores may touch on accept, never on a request.
#[derive(Debug, Default)]
pub struct Shared {
    /// Client connections of all cores: `limits.connections`.
    pub connections: AtomicUsize,
    /// Accepted, and not among `connections` yet: on their way to another core, or to the first poll of their task.
    arriving: AtomicUsize,
    /// Client connections of each core, for the hand-over of new ones.
    pub(crate) by_core: Box<[CoreCount]>,
    /// The threads for work that blocks.
    pub(crate) blocking: Blocking,
}

/// A count that one core writes. On a cache line of its own (two, which the prefetcher fetches together), so that cores do
/// not wait for each other's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CoreCount(pub(crate) AtomicUsize);

impl Shared {
    /// The facts of so many cores.
    pub fn new(cores: usize) -> Self {
        Self { by_core: (0..cores).map(|_| CoreCount::default()).collect(), ..Self::default() }
    }

    /// A connection was accepted.
    pub(crate) fn arrive(&self) {
        self.arriving.fetch_add(1, Ordering::Relaxed);
    }

    /// It is among the connections now, or gone.
    pub(crate) fn arrived(&self) {
        self.arriving.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is no connection, wherever it stands.
    pub fn is_empty(&self) -> bool {
        // In this order: one that arrives between the two looks is seen by the second.
        self.arriving.load(Ordering::Acquire) == 0 && self.connections.load(Ordering::Relaxed) == 0
    }
}

/// What a core is made of, but for what changes with a config.
pub(crate) struct Parts {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) siblings: Vec<mpsc::UnboundedSender<Message>>,
    pub(crate) seed: u64,
    pub(crate) sockets: Rc<Sockets>,
    /// What it is for its filters.
    pub(crate) handle: fn(&Weak<Core>) -> CoreHandle,
}

/// One core.
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) cells: Arc<CoreCells>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) siblings: Vec<mpsc::UnboundedSender<Message>>,
    /// Its sockets.
    pub(crate) sockets: Rc<Sockets>,
    /// Whether this core drains, and how.
    pub(crate) leaving: Cell<Option<Leaving>>,
    pub(crate) access_log: RefCell<Option<AccessLog>>,
    /// Where spans go.
    pub(crate) spans: RefCell<Option<Outbox>>,
    /// The exchanges that it keeps for `weir why`.
    pub(crate) autopsies: Autopsies,
    pub(crate) random: RefCell<Random>,
    /// The second since 1970 that `date` was last asked for, and its text.
    date: Cell<(u64, [u8; 29])>,
    local: RefCell<Rc<Local>>,
    /// What its upstreams have of it.
    resources: Rc<Resources>,
    /// What it is for its filters.
    pub(crate) handle: CoreHandle,
    handles: RefCell<Slab<Rc<ConnectionHandle>>>,
    /// Connections that were opened under a policy that is gone, and when they are cut.
    outdated: RefCell<Vec<(Instant, Weak<ConnectionHandle>)>>,
    /// How many connections are cut and have not ended yet.
    cuts: Cell<usize>,
    /// Tasks that wait for a connection to serve.
    pub(crate) lanes: RefCell<Vec<Rc<Lane<Arrived>>>>,
    #[allow(clippy::vec_box)]
    // the box is what is lent: a head of 200 bytes would be moved with every exchange
    requests: RefCell<Vec<Box<RequestHead>>>,
    #[allow(clippy::vec_box)] // as above
    responses: RefCell<Vec<Box<ResponseHead>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Rounds of [`Core::give_back`] since a burst of connections ended.
    quiet: Cell<u8>,
    /// Tasks that filters run beside exchanges.
    pub(crate) tasks: Cell<usize>,
    /// State of filters that is this core's, by the place of its key, which the weak reference keeps from another.
    locals: RefCell<HashMap<usize, FilterState, FixedState>>,
}

/// State of a filter on one core, for as long as its key is held.
type FilterState = (std::sync::Weak<()>, Rc<dyn Any>);

/// A snapshot as one core uses it.
pub(crate) struct Local {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) routes: Vec<LocalRoute>,
    pub(crate) upstreams: Vec<Rc<LocalUpstream>>,
    pub(crate) listeners: Vec<Rc<LocalListener>>,
    /// Counts requests that no route matched.
    pub(crate) unrouted: Arc<RouteCells>,
    /// Counts requests of each consumer, once it has sent one: most of many never do.
    consumers: Rc<[OnceCell<Arc<ConsumerCells>>]>,
    /// Counts the snapshots that this core has adopted.
    pub(crate) generation: u64,
}

/// A route as one core uses it.
pub(crate) struct LocalRoute {
    pub(crate) scope: Rc<RouteScope>,
    pub(crate) cells: Arc<RouteCells>,
    pub(crate) handling: Arc<Handling>,
    /// What its exchanges usually take.
    pub(crate) usual: Usual,
}

/// A listener as one core uses it.
pub(crate) struct LocalListener {
    pub(crate) spec: Arc<Listener>,
    /// Its number in route conditions.
    pub(crate) number: u16,
    pub(crate) cells: Arc<ListenerCells>,
}

/// A client connection as its core sees it from outside.
///
/// In this order, so that what each request reads and writes stands beside the count of references, which it changes too:
/// a line of memory less for each request where a thousand connections are busy.
#[repr(C)]
pub(crate) struct ConnectionHandle {
    /// It ends after its exchange, or now if it is idle.
    pub(crate) closing: Cell<bool>,
    /// It was opened under a policy of its listener that does not hold any more: no request of it is served.
    pub(crate) outdated: Cell<bool>,
    /// It is cut, whatever is under way: its time to drain is over.
    pub(crate) cut: Cell<bool>,
    /// How long its exchange has waited for an upstream, in rounds of [`Core::watch_waiting`]; 0 when it does not wait.
    pub(crate) waiting: Cell<u8>,
    /// The policy that it was opened under.
    pub(crate) policy: Policy,
    /// Where it was accepted.
    pub(crate) listener: Address,
    /// Wakes its task.
    pub(crate) waker: Waker,
}

/// The route label of requests that no route matched. No route can have this name.
pub const UNROUTED: &str = "-";

/// Most scratch objects of each kind kept for the next exchange: 3 × 1,024 × 32 KiB a core at the very most, given back by
/// [`Core::trim`] when the burst is over.
const KEPT_SCRATCH: usize = 1024;

/// Scratch objects of each kind that are kept for good.
const KEPT_QUIET: usize = 64;

/// From how many connections of a core on their memory is given back to the system when most of them are gone.
const BURST: usize = 64;

/// How many rounds after that, so that a burst that comes in waves costs this once.
const QUIET_ROUNDS: u8 = 5;

/// A scratch buffer that grew beyond this is freed, not kept.
const KEPT_BYTES: usize = 32 * 1024;

impl Core {
    pub(crate) fn new(parts: Parts, telemetry: &Arc<Telemetry>, snapshot: Arc<Snapshot>) -> Rc<Self> {
        let Parts { index, shared, siblings, seed, sockets, handle } = parts;
        let mut random = Random::new(seed);
        let core = Rc::new_cyclic(|core| Self {
            index,
            resources: Resources::new(telemetry.core(index), random.next()),
            handle: handle(core),
            cells: telemetry.core(index),
            shared,
            siblings,
            sockets,
            leaving: Cell::new(None),
            access_log: RefCell::new(None),
            spans: RefCell::new(None),
            autopsies: Autopsies::new(snapshot.autopsy),
            random: RefCell::new(random),
            date: Cell::new((0, *b"Thu, 01 Jan 1970 00:00:00 GMT")),
            local: RefCell::new(Rc::new(Local {
                snapshot: Arc::clone(&snapshot),
                routes: Vec::new(),
                upstreams: Vec::new(),
                listeners: Vec::new(),
                generation: 0,
                consumers: Rc::from([]),
                unrouted: telemetry.core(index).route(&telemetry.route(UNROUTED)),
            })),
            handles: RefCell::default(),
            outdated: RefCell::default(),
            cuts: Cell::new(0),
            lanes: RefCell::default(),
            requests: RefCell::default(),
            responses: RefCell::default(),
            buffers: RefCell::default(),
            quiet: Cell::new(0),
            tasks: Cell::new(0),
            locals: RefCell::default(),
        });
        core.adopt(snapshot);
        core
    }

    /// The snapshot as it is now. An exchange takes it once and ends on it.
    pub(crate) fn local(&self) -> Rc<Local> {
        Rc::clone(&self.local.borrow())
    }

    /// Takes the next snapshot. Exchanges under way end on theirs; connections of listeners that are gone end after their
    /// exchange.
    pub(crate) fn adopt(&self, snapshot: Arc<Snapshot>) {
        self.locals.borrow_mut().retain(|_, (key, _)| key.strong_count() > 0);
        self.autopsies.resize(snapshot.autopsy);
        let old = self.local();
        let usual = |i: usize, name: &str| {
            let same = old.routes.get(i).filter(|before| *before.scope.name == *name);
            same.map(|before| Usual::like(&before.usual)).unwrap_or_default()
        };
        let routes = snapshot.routes.iter().enumerate().map(|(i, route)| LocalRoute {
            usual: usual(i, &route.name),
            scope: Rc::new(RouteScope {
                name: Arc::clone(&route.name),
                matched: Some((Arc::clone(&snapshot.table), weir_route::RouteId(i as u32))),
                consumers: Arc::clone(&snapshot.consumers),
                core: self.handle.clone(),
                exposes_causes: snapshot.expose_causes,
            }),
            cells: self.cells.route(&route.series),
            handling: Arc::clone(&route.handling),
        });
        let routes = routes.collect();
        let upstreams = snapshot.upstreams.iter().map(|spec| {
            // An upstream that did not change keeps its balancer and its waiters; pools are kept by address anyway.
            match old.upstreams.iter().find(|u| Arc::ptr_eq(&u.spec, spec)) {
                Some(same) => Rc::clone(same),
                None => {
                    let before = old.upstreams.iter().find(|u| u.spec.name == spec.name);
                    Rc::new(LocalUpstream::new(Arc::clone(spec), &self.resources, before.map(|u| &**u)))
                }
            }
        });
        let upstreams = upstreams.collect();
        let listeners = snapshot.listeners.iter().enumerate().map(|(i, spec)| {
            let cells = self.cells.listener(&spec.series);
            Rc::new(LocalListener { spec: Arc::clone(spec), number: i as u16, cells })
        });
        let listeners: Vec<_> = listeners.collect();
        let unrouted = Arc::clone(&old.unrouted);
        let consumers = snapshot.consumer_series.iter().map(|_| OnceCell::new()).collect();
        let generation = old.generation + 1;
        let local = Local { snapshot, routes, upstreams, listeners, unrouted, consumers, generation };
        // Pools are handed over before the old snapshot lets go of them.
        for upstream in &local.upstreams {
            upstream.endpoints();
        }
        let cut_at = Instant::now().checked_add(local.snapshot.drain);
        for (_, handle) in self.handles.borrow().iter() {
            match local.listener(&handle.listener) {
                None => handle.close(),
                Some(listener) if listener.spec.policy != handle.policy => {
                    if !handle.outdated.replace(true) {
                        self.outdated.borrow_mut().extend(cut_at.map(|at| (at, Rc::downgrade(handle))));
                    }
                    handle.close();
                }
                Some(_) => {}
            }
        }
        *self.local.borrow_mut() = Rc::new(local);
        drop(old);
        self.resources.forget_unused();
    }

    /// Ends every connection after its exchange.
    pub(crate) fn drain(&self, leaving: Leaving) {
        self.leaving.set(Some(leaving));
        for (_, handle) in self.handles.borrow().iter() {
            handle.close();
        }
    }

    /// Tells exchanges that have waited for more than a round to watch for a client that resets. Watching from the start
    /// would cost every request a registration (2 % at 1,000 connections) for what only slow ones need.
    pub(crate) fn watch_waiting(&self) {
        for (_, handle) in self.handles.borrow().iter() {
            match handle.waiting.get() {
                0 => {}
                rounds if rounds < WATCHED => handle.waiting.set(rounds + 1),
                _ => continue,
            }
            if handle.waiting.get() == WATCHED {
                handle.waker.wake_by_ref();
            }
        }
    }

    /// Cuts connections that were opened under a policy that is gone, and had `shutdown.drain` to end: tunnels and long streams.
    pub(crate) fn cut_outdated(&self) {
        let mut outdated = self.outdated.borrow_mut();
        if outdated.is_empty() {
            return;
        }
        let now = Instant::now();
        outdated.retain(|(at, handle)| match handle.upgrade() {
            Some(handle) if *at <= now => {
                handle.cut.set(true);
                self.cuts.set(self.cuts.get() + 1);
                handle.waker.wake_by_ref();
                false
            }
            handle => handle.is_some(),
        });
    }

    /// Client connections of this core.
    pub(crate) fn connections(&self) -> usize {
        self.handles.borrow().len()
    }

    /// Makes a connection known to its core; `leave` with the number it returns.
    pub(crate) fn enter(&self, handle: &Rc<ConnectionHandle>) -> usize {
        self.shared.by_core[self.index].0.fetch_add(1, Ordering::Relaxed);
        self.shared.arrived();
        self.handles.borrow_mut().insert(Rc::clone(handle))
    }

    pub(crate) fn leave(&self, number: usize) {
        self.shared.by_core[self.index].0.fetch_sub(1, Ordering::Relaxed);
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        let handle = self.handles.borrow_mut().remove(number);
        if handle.cut.get() {
            self.cuts.set(self.cuts.get().saturating_sub(1));
        }
    }

    /// Whether this connection is cut. Nearly always none is: one look at the core tells.
    pub(crate) fn is_cut(&self, number: usize) -> bool {
        self.cuts.get() > 0 && self.handles.borrow().get(number).is_some_and(|handle| handle.cut.get())
    }

    /// Closes idle upstream connections that are too old, and one where another core waits for a place.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for upstream in &self.local().upstreams {
            upstream.sweep(now);
        }
    }

    /// Frees a part of the scratch objects beyond the first few, so that a burst's memory is given back within seconds.
    pub(crate) fn trim(&self) {
        fn trim<T>(kept: &RefCell<Vec<T>>) {
            let mut kept = kept.borrow_mut();
            let spare = kept.len().saturating_sub(KEPT_QUIET);
            let left = kept.len() - spare.div_ceil(8);
            kept.truncate(left);
        }
        trim(&self.requests);
        trim(&self.responses);
        trim(&self.buffers);
    }

    /// Gives the memory of a burst of connections back to the system once most of them have been gone for a while.
    pub(crate) fn give_back(&self) {
        let mut handles = self.handles.borrow_mut();
        let over = handles.capacity() >= BURST && handles.len() * 4 <= handles.capacity();
        let rounds = if over { self.quiet.get() + 1 } else { 0 };
        self.quiet.set(rounds % QUIET_ROUNDS);
        if rounds == QUIET_ROUNDS {
            handles.shrink_to_fit(); // its capacity is the size of the next burst
            drop(handles);
            self.requests.borrow_mut().clear();
            self.responses.borrow_mut().clear();
            self.buffers.borrow_mut().clear();
            weir_wire::limits::give_memory_back();
        }
    }

    /// This second as HTTP writes it (RFC 9110 §5.6.7). The text is made once a second.
    pub(crate) fn date(&self) -> [u8; 29] {
        let now = SystemTime::now();
        let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (known, text) = self.date.get();
        if known == second {
            return text;
        }
        let mut text = text;
        let made = httpdate::fmt_http_date(now);
        if made.len() == text.len() {
            text.copy_from_slice(made.as_bytes()); // always: the format has a fixed length
        }
        self.date.set((second, text));
        text
    }

    /// State that is this core's, made where there is none under that key.
    pub(crate) fn local_state(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        let at = Arc::as_ptr(key).addr();
        if let Some((_, state)) = self.locals.borrow().get(&at) {
            return Rc::clone(state);
        }
        let state = make(); // not while the map is borrowed: it is a filter's own code
        self.locals.borrow_mut().insert(at, (Arc::downgrade(key), Rc::clone(&state)));
        state
    }

    /// Counts a cause.
    pub(crate) fn count(&self, cause: &weir_upstream::error::Cause) {
        self.count_indexed(cause);
    }

    /// Counts a cause, and tells its index among the causes.
    pub(crate) fn count_indexed(&self, cause: &weir_upstream::error::Cause) -> usize {
        let index = self.cells.cause_index(cause.code);
        self.cells.cause(index).inc();
        if let Some(limit) = cause.limit {
            self.cells.limit(limit as usize).inc();
        }
        index
    }

    /// Counts the cause for which a connection ended that has no request, and keeps it for `weir why`. `said`: what TLS or a parser said.
    #[cold]
    pub(crate) fn lost(
        &self,
        cause: &'static weir_upstream::error::Cause,
        listener: &str,
        peer: Peer,
        said: &str,
    ) {
        self.count(cause);
        let peer = if let Peer::Address(peer) = peer { Some(peer) } else { None };
        let revision = &self.local.borrow().snapshot.revision;
        self.autopsies.keep(Kind::Failed, cause.code, |kept| {
            connection_kept(kept, cause, listener, peer, revision, said);
        });
    }

    pub(crate) fn take_request(&self) -> Box<RequestHead> {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_request(&self, mut head: Box<RequestHead>) {
        head.recycle(usize::MAX);
        let mut kept = self.requests.borrow_mut();
        if kept.len() < KEPT_SCRATCH && head.buffer_mut().capacity() <= KEPT_BYTES {
            kept.push(head);
        }
    }

    pub(crate) fn take_response(&self) -> Box<ResponseHead> {
        self.responses.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_response(&self, mut head: Box<ResponseHead>) {
        head.recycle(usize::MAX);
        let mut kept = self.responses.borrow_mut();
        if kept.len() < KEPT_SCRATCH && head.buffer_mut().capacity() <= KEPT_BYTES {
            kept.push(head);
        }
    }

    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut kept = self.buffers.borrow_mut();
        if kept.len() < KEPT_SCRATCH && buffer.capacity() <= KEPT_BYTES {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// From this round on an exchange watches its client.
const WATCHED: u8 = 3;

impl Local {
    /// What a tunnel needs of it: see [`Snapshot::only`].
    pub(crate) fn only(&self, route: usize, upstream: usize, filters: &[u32]) -> Rc<Self> {
        let of = &self.routes[route];
        let scope = RouteScope {
            name: Arc::clone(&of.scope.name),
            matched: None,
            consumers: Arc::clone(&of.scope.consumers),
            core: of.scope.core.clone(),
            exposes_causes: of.scope.exposes_causes,
        };
        let snapshot = self.snapshot.only(route, upstream, filters);
        let route = LocalRoute {
            scope: Rc::new(scope),
            cells: Arc::clone(&of.cells),
            handling: Arc::clone(&snapshot.routes[0].handling),
            usual: Usual::default(),
        };
        Rc::new(Self {
            snapshot: Arc::new(snapshot),
            routes: vec![route],
            upstreams: Vec::new(),
            listeners: Vec::new(),
            unrouted: Arc::clone(&self.unrouted),
            consumers: Rc::clone(&self.consumers),
            generation: self.generation,
        })
    }

    /// Counts requests of a consumer.
    pub(crate) fn consumer(&self, index: usize, core: &CoreCells) -> Option<&ConsumerCells> {
        let id = self.snapshot.consumer_series.get(index)?;
        Some(self.consumers.get(index)?.get_or_init(|| core.consumer(id)))
    }

    /// The listener at an address, if it still exists.
    pub(crate) fn listener(&self, address: &Address) -> Option<&Rc<LocalListener>> {
        self.listeners.iter().find(|l| l.spec.address == *address)
    }
}

impl ConnectionHandle {
    /// A handle for a connection of this listener.
    pub(crate) fn new(listener: &Listener, closing: bool, waker: Waker) -> Self {
        Self {
            closing: Cell::new(closing),
            outdated: Cell::new(false),
            cut: Cell::new(false),
            policy: listener.policy,
            waiting: Cell::new(0),
            listener: listener.address.clone(),
            waker,
        }
    }

    /// Its exchange waits from now on, until what is returned is dropped.
    pub(crate) fn wait(self: &Rc<Self>) -> Waiting {
        self.waiting.set(1);
        Waiting(Rc::clone(self))
    }

    /// Whether the exchange has waited long enough to watch its client.
    pub(crate) fn is_watched(&self) -> bool {
        self.waiting.get() >= WATCHED
    }

    fn close(&self) {
        self.closing.set(true);
        self.waker.wake_by_ref();
    }
}

/// An exchange that waits.
pub(crate) struct Waiting(Rc<ConnectionHandle>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.set(0);
    }
}
