//! What one core owns: its view of the snapshot, its pools, its connections, its scratch buffers.
//!
//! Everything here belongs to one thread. Other threads reach a core only through its mailbox ([`Message`]).

use crate::autopsy::kept::Kind;
use crate::autopsy::{Autopsies, Found, Question, Usual, connection_kept};
use crate::export::Outbox;
use crate::lane::Lane;
use crate::per_client::Clients;
use crate::snapshot::{Destination, Handling, Listener, Policy, Serves, Snapshot};
use foldhash::fast::FixedState;
use slab::Slab;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as mpsc_std;
use std::task::Waker;
use std::time::{Instant, SystemTime};
use tokio::sync::mpsc;
use weir_filter::blocking::Blocking;
use weir_filter::filter::{Consumer, CoreHandle, RouteScope};
use weir_h1::{RequestHead, ResponseHead};
use weir_telemetry::{AccessLog, ConsumerCells, CoreCells, ListenerCells, RouteCells, Telemetry};
use weir_upstream::upstream::balance::Random;
use weir_upstream::upstream::{LocalUpstream, Resources};
use weir_wire::listen::{Address, BoundSocket};
use weir_wire::{Peer, Socket, Sockets};

/// An accepted connection.
pub(crate) struct Arrived {
    pub(crate) listener: Rc<LocalListener>,
    pub(crate) socket: Socket,
    pub(crate) peer: Peer,
}

/// What other threads send to a core.
pub enum Message {
    /// A connection that another core accepted but has no room for.
    Accepted {
        /// The connection.
        socket: OwnedFd,
        /// Who opened it.
        peer: Peer,
        /// The listener that accepted it.
        listener: Address,
    },
    /// The next snapshot, its new listeners' sockets, and the new access log. The core answers once it has adopted
    /// them.
    Adopt {
        /// The snapshot.
        snapshot: Arc<Snapshot>,
        /// The sockets of its new listeners.
        sockets: Vec<(Address, BoundSocket)>,
        /// `None` keeps the current log. Boxed, because it is larger than all other messages.
        log: Option<Option<Box<AccessLog>>>,
        /// The same for spans. `None` keeps the current outbox.
        spans: Option<Option<Outbox>>,
        /// The core answers, or drops this, when it is done.
        done: mpsc_std::Sender<()>,
    },
    /// `workers` changed: other cores serve now, and these are the core's listening sockets in place of those it
    /// had. They are copies, so closing the earlier ones resets no connection.
    Crew {
        /// The cores that serve.
        siblings: Arc<[Sibling]>,
        /// The core's sockets.
        sockets: Vec<(Address, BoundSocket)>,
        /// Whether it serves on, or serves again. Otherwise its connections close as when a successor serves.
        serves: bool,
        /// The core answers, or drops this, when it is done.
        done: mpsc_std::Sender<()>,
    },
    /// Accept no new connections and close each connection after its exchange. The core drops `done` once all
    /// connections waiting in the accept queue have been accepted.
    Drain {
        /// How to drain.
        leaving: Leaving,
        /// Dropped when it is done.
        done: mpsc_std::Sender<()>,
    },
    /// Send a copy of each listening socket, for the process that takes over.
    Lend {
        /// Where the sockets go, or why one of them does not.
        to: mpsc_std::Sender<io::Result<(Address, BoundSocket)>>,
    },
    /// Stop immediately.
    Stop,
    /// Confirm that the loop is running.
    Turn {
        /// Who gets the confirmation.
        to: mpsc_std::Sender<()>,
    },
    /// Send the kept exchanges that match a question.
    Why {
        /// The question.
        question: Arc<Question>,
        /// The receiver of the answer.
        to: mpsc_std::Sender<Found>,
    },
}

/// How a core drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The gateway ends. Idle connections are closed immediately, so that it ends soon.
    End,
    /// Another process already listens. An idle connection may bring one more request and is closed with its answer,
    /// so that a client about to send does not find it closed.
    Successor,
}

/// Process-wide state that cores may touch when they accept, never on a request.
#[derive(Debug, Default)]
pub struct Shared {
    /// Client connections of all cores: `limits.connections`.
    pub connections: AtomicUsize,
    /// Accepted connections not yet in `connections`: on their way to another core or to the first poll of their
    /// task.
    arriving: AtomicUsize,
    /// What `limits.per_client` counts.
    pub(crate) clients: Arc<Clients>,
    /// The threads for work that blocks.
    pub(crate) blocking: Blocking,
}

/// A core as others see it.
#[derive(Clone, Debug)]
pub struct Sibling {
    /// Its number. Only one core has it at a time.
    pub index: usize,
    /// Its mailbox.
    pub mailbox: mpsc::UnboundedSender<Message>,
    load: Arc<CoreCount>,
}

/// Counts that one core writes. They have a cache line of their own (two, because the prefetcher fetches pairs), so that
/// cores do not contend.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreCount {
    /// Its client connections, for the hand-over of new ones.
    connections: AtomicUsize,
    /// Tasks that filters run beside exchanges.
    tasks: AtomicUsize,
}

impl Sibling {
    /// A core that does not run yet.
    pub fn new(index: usize, mailbox: mpsc::UnboundedSender<Message>) -> Self {
        Self { index, mailbox, load: Arc::default() }
    }

    /// How many client connections it has.
    pub fn connections(&self) -> usize {
        self.load.connections.load(Ordering::Relaxed)
    }

    /// Whether it has neither connections nor tasks of filters.
    pub fn is_idle(&self) -> bool {
        self.connections() == 0 && self.load.tasks.load(Ordering::Relaxed) == 0
    }
}

impl Shared {
    /// A connection was accepted.
    pub(crate) fn arrive(&self) {
        self.arriving.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection is now counted in `connections`, or is gone.
    pub(crate) fn arrived(&self) {
        self.arriving.fetch_sub(1, Ordering::Release);
    }

    /// Whether no connection is open or arriving.
    pub fn is_empty(&self) -> bool {
        // This order matters: a connection that arrives between the two loads is seen by the second.
        self.arriving.load(Ordering::Acquire) == 0 && self.connections.load(Ordering::Relaxed) == 0
    }
}

/// The parts of a core that do not change with the config.
pub(crate) struct Parts {
    pub(crate) own: Sibling,
    pub(crate) siblings: Arc<[Sibling]>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) seed: u64,
    pub(crate) sockets: Rc<Sockets>,
    /// Makes the handle that filters get: see `call.rs`.
    pub(crate) handle: fn(&Weak<Core>, Weak<Local>) -> CoreHandle,
}

/// One core.
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) cells: Arc<CoreCells>,
    pub(crate) shared: Arc<Shared>,
    /// What others know of it.
    load: Arc<CoreCount>,
    /// The cores that serve.
    siblings: RefCell<Arc<[Sibling]>>,
    /// The core's sockets.
    pub(crate) sockets: Rc<Sockets>,
    /// Whether this core drains, and how.
    pub(crate) leaving: Cell<Option<Leaving>>,
    pub(crate) access_log: RefCell<Option<AccessLog>>,
    /// Where spans go.
    pub(crate) spans: RefCell<Option<Outbox>>,
    /// The exchanges kept for `weir why`.
    pub(crate) autopsies: Autopsies,
    pub(crate) random: RefCell<Random>,
    /// The second since 1970 for which `date` was last called, and its text.
    date: Cell<(u64, [u8; 29])>,
    local: RefCell<Rc<Local>>,
    /// What upstreams may use of this core.
    resources: Rc<Resources>,
    /// What filters may use of this core, whatever its snapshot is.
    pub(crate) handle: CoreHandle,
    /// The same for the filters of one snapshot.
    handle_of: Box<dyn Fn(Weak<Local>) -> CoreHandle>,
    handles: RefCell<Slab<Rc<ConnectionHandle>>>,
    /// Connections opened under a policy that is gone, and when to cut them.
    outdated: RefCell<Vec<(Instant, Weak<ConnectionHandle>)>>,
    /// How many cut connections have not ended yet.
    cuts: Cell<usize>,
    /// Tasks that wait for a connection to serve.
    pub(crate) lanes: RefCell<Vec<Rc<Lane<Arrived>>>>,
    #[allow(clippy::vec_box)]
    // boxed, because the box is lent: moving a head would copy 200 bytes per exchange
    requests: RefCell<Vec<Box<RequestHead>>>,
    #[allow(clippy::vec_box)] // as above
    responses: RefCell<Vec<Box<ResponseHead>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Rounds of [`Core::give_back`] since a burst of connections ended.
    quiet: Cell<u8>,
    /// The state that filters keep on this core, by the address of its key. The weak reference keeps that address
    /// from being reused.
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
    /// Request counts per consumer, created at its first request: most of many consumers never send one.
    consumers: Rc<[OnceCell<Arc<ConsumerCells>>]>,
    /// The same for consumers of sources, by number.
    listed: Rc<RefCell<HashMap<usize, Arc<ConsumerCells>>>>,
    /// Counts the snapshots that this core has adopted.
    pub(crate) generation: u64,
}

/// A route as one core uses it.
pub(crate) struct LocalRoute {
    pub(crate) scope: Rc<RouteScope>,
    pub(crate) cells: Arc<RouteCells>,
    pub(crate) handling: Arc<Handling>,
    /// The usual durations of its exchanges.
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
/// Field order: the fields that each request touches sit beside the reference count, which it also changes. That
/// saves one cache line per request with a thousand busy connections.
#[repr(C)]
pub(crate) struct ConnectionHandle {
    /// Close after the current exchange, or now if idle.
    pub(crate) closing: Cell<bool>,
    /// It was opened under a policy of its listener that is gone: no more requests are served on it.
    pub(crate) outdated: Cell<bool>,
    /// Cut it regardless of what is under way: its drain time is over.
    pub(crate) cut: Cell<bool>,
    /// How many rounds of [`Core::watch_waiting`] its exchange has waited for an upstream. 0 while it does not wait.
    pub(crate) waiting: Cell<u8>,
    /// Where it was sent, if a listener with `sni` or `tcp` accepted it.
    pub(crate) sent: OnceCell<Box<SentOn>>,
    /// The policy under which it was opened.
    pub(crate) policy: Policy,
    /// Where it was accepted.
    pub(crate) listener: Option<Address>,
    /// Wakes its task.
    pub(crate) waker: Waker,
}

/// Where a connection was sent, and whose it is.
#[derive(Debug)]
pub(crate) struct SentOn {
    /// The client.
    pub(crate) client: IpAddr,
    /// The listener that serves it, if it is not the one that accepted it, and that one's policy.
    pub(crate) inner: Option<(Arc<str>, Policy)>,
    /// Whether its bytes are passed on.
    pub(crate) bytes: bool,
}

/// What becomes of a connection at a reload.
enum Standing {
    /// Its listener is gone.
    Gone,
    /// It stays.
    Kept,
    /// Its listener requires something else now.
    Outdated,
}

/// The route label of requests that no route matched. No route can have this name.
pub const UNROUTED: &str = "-";

/// Most scratch objects of each kind kept for reuse: at worst 3 × 1,024 × 32 KiB per core. [`Core::trim`] frees
/// them after a burst.
const KEPT_SCRATCH: usize = 1024;

/// Scratch objects of each kind that are never freed.
const KEPT_QUIET: usize = 64;

/// After a burst of at least this many connections on a core, memory is returned to the system once most have closed.
const BURST: usize = 64;

/// How many rounds to wait before that, so that a burst in waves costs it only once.
const QUIET_ROUNDS: u8 = 5;

/// If a core has this many connections more than its share, a new one goes to the core with the fewest.
const HAND_OVER_AT: usize = 8;

/// A scratch buffer larger than this is freed instead of kept.
const KEPT_BYTES: usize = 32 * 1024;

impl Core {
    pub(crate) fn new(parts: Parts, telemetry: &Arc<Telemetry>, snapshot: Arc<Snapshot>) -> Rc<Self> {
        let Parts { own, siblings, shared, seed, sockets, handle } = parts;
        let index = own.index;
        let mut random = Random::new(seed);
        let core = Rc::new_cyclic(|core| Self {
            index,
            resources: Resources::new(telemetry.core(index), random.next()),
            handle: handle(core, Weak::new()),
            handle_of: {
                let core = Weak::clone(core);
                Box::new(move |local| handle(&core, local))
            },
            cells: telemetry.core(index),
            shared,
            load: Arc::clone(&own.load),
            siblings: RefCell::new(siblings),
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
                listed: Rc::default(),
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
            locals: RefCell::default(),
        });
        core.adopt(snapshot);
        core
    }

    /// The current snapshot. An exchange takes it once and ends on it.
    pub(crate) fn local(&self) -> Rc<Local> {
        Rc::clone(&self.local.borrow())
    }

    /// Adopts the next snapshot. Running exchanges end on their own. Connections of removed listeners close after
    /// their exchange.
    pub(crate) fn adopt(&self, snapshot: Arc<Snapshot>) {
        self.locals.borrow_mut().retain(|_, (key, _)| key.strong_count() > 0);
        self.autopsies.resize(snapshot.autopsy);
        let old = self.local();
        let local = Rc::new_cyclic(|local| self.localize(snapshot, &old, Weak::clone(local)));
        // Pools must be taken over before the old snapshot drops them.
        for upstream in &local.upstreams {
            upstream.endpoints();
        }
        let cut_at = Instant::now().checked_add(local.snapshot.drain);
        for (_, handle) in self.handles.borrow().iter() {
            match local.standing(handle) {
                Standing::Kept => {}
                // Bytes have no exchange after which they could close.
                Standing::Gone if !handle.carries_bytes() => handle.close(),
                Standing::Gone | Standing::Outdated => {
                    if !handle.outdated.replace(true) {
                        self.outdated.borrow_mut().extend(cut_at.map(|at| (at, Rc::downgrade(handle))));
                    }
                    handle.close();
                }
            }
        }
        *self.local.borrow_mut() = local;
        drop(old);
        self.resources.forget_unused();
    }

    /// A snapshot as this core uses it.
    fn localize(&self, snapshot: Arc<Snapshot>, old: &Local, local: Weak<Local>) -> Local {
        let core = (self.handle_of)(local);
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
                core: core.clone(),
                exposes_causes: snapshot.expose_causes,
            }),
            cells: self.cells.route(&route.series),
            handling: Arc::clone(&route.handling),
        });
        let routes = routes.collect();
        let upstreams = snapshot.upstreams.iter().map(|spec| {
            // An unchanged upstream keeps its balancer and waiters; pools are kept by address anyway.
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
        let listed = Rc::default();
        let generation = old.generation + 1;
        Local { snapshot, routes, upstreams, listeners, unrouted, consumers, listed, generation }
    }

    /// Other cores serve now. If this one no longer does, its connections close after their next exchange.
    pub(crate) fn join(&self, siblings: Arc<[Sibling]>, serves: bool) {
        *self.siblings.borrow_mut() = siblings;
        if serves {
            self.leaving.set(None);
        } else {
            self.drain(Leaving::Successor);
        }
    }

    /// The serving core with the fewest connections, if this one has clearly more than its share.
    /// SO_REUSEPORT spreads by hash, which is uneven for few long connections, and those matter most.
    pub(crate) fn lighter(&self) -> Option<Sibling> {
        let siblings = self.siblings.borrow();
        if siblings.len() < 2 {
            return None;
        }
        let here = self.connections();
        let lightest = siblings.iter().min_by_key(|sibling| sibling.connections())?;
        let least = lightest.connections();
        (here >= least + HAND_OVER_AT && here * 4 > least * 5).then(|| lightest.clone())
    }

    /// Closes every connection after its exchange.
    pub(crate) fn drain(&self, leaving: Leaving) {
        self.leaving.set(Some(leaving));
        for (_, handle) in self.handles.borrow().iter() {
            handle.close();
        }
    }

    /// Makes exchanges that have waited longer than a round watch for a client's reset. Watching from the start would
    /// cost every request a registration (2 % at 1,000 connections), which only slow ones need.
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

    /// Cuts connections, such as tunnels and long streams, whose policy is gone and whose `shutdown.drain` has
    /// passed.
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

    /// How many client connections this core has.
    pub(crate) fn connections(&self) -> usize {
        self.handles.borrow().len()
    }

    /// Registers a connection with its core. Pass the returned number to `leave`.
    pub(crate) fn enter(&self, handle: &Rc<ConnectionHandle>) -> usize {
        self.load.connections.fetch_add(1, Ordering::Relaxed);
        self.shared.arrived();
        self.handles.borrow_mut().insert(Rc::clone(handle))
    }

    pub(crate) fn leave(&self, number: usize) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        let handle = self.handles.borrow_mut().remove(number);
        if handle.cut.get() {
            self.cuts.set(self.cuts.get().saturating_sub(1));
        }
    }

    /// How many tasks filters run beside exchanges.
    pub(crate) fn tasks(&self) -> usize {
        self.load.tasks.load(Ordering::Relaxed)
    }

    /// A filter's task begins.
    pub(crate) fn begin_task(&self) {
        self.load.tasks.fetch_add(1, Ordering::Relaxed);
    }

    /// A filter's task has ended.
    pub(crate) fn end_task(&self) {
        self.load.tasks.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether this connection is to be cut. Usually none is, so the first check is one load.
    pub(crate) fn is_cut(&self, number: usize) -> bool {
        self.cuts.get() > 0 && self.handles.borrow().get(number).is_some_and(|handle| handle.cut.get())
    }

    /// Closes upstream connections that were idle too long, and one where another core waits for a place.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for upstream in &self.local().upstreams {
            upstream.sweep(now);
        }
    }

    /// Frees some scratch objects beyond the first few, so that a burst's memory is freed within seconds.
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

    /// Returns a burst's memory to the system once most of its connections have been gone for a while.
    pub(crate) fn give_back(&self) {
        let mut handles = self.handles.borrow_mut();
        let over = handles.capacity() >= BURST && handles.len() * 4 <= handles.capacity();
        let rounds = if over { self.quiet.get() + 1 } else { 0 };
        self.quiet.set(rounds % QUIET_ROUNDS);
        if rounds == QUIET_ROUNDS {
            handles.shrink_to_fit(); // its capacity is that of the largest burst
            drop(handles);
            self.requests.borrow_mut().clear();
            self.responses.borrow_mut().clear();
            self.buffers.borrow_mut().clear();
            weir_wire::limits::give_memory_back();
        }
    }

    /// The current second in HTTP format (RFC 9110 §5.6.7). The text is rebuilt once a second.
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
            text.copy_from_slice(made.as_bytes()); // always fits: the format has a fixed length
        }
        self.date.set((second, text));
        text
    }

    /// State that belongs to this core, created if its key has none.
    pub(crate) fn local_state(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        let at = Arc::as_ptr(key).addr();
        if let Some((_, state)) = self.locals.borrow().get(&at) {
            return Rc::clone(state);
        }
        let state = make(); // not while the map is borrowed: this calls a filter's code
        self.locals.borrow_mut().insert(at, (Arc::downgrade(key), Rc::clone(&state)));
        state
    }

    /// Counts a cause and returns its index.
    pub(crate) fn count(&self, cause: &weir_upstream::error::Cause) -> usize {
        let index = self.cells.cause_index(cause.code);
        self.cells.cause(index).inc();
        if let Some(limit) = cause.limit {
            self.cells.limit(limit as usize).inc();
        }
        index
    }

    /// Counts the cause that ended a connection without a request, and keeps it for `weir why`. `said` is the message
    /// of TLS or the parser.
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

/// The round from which an exchange watches its client.
const WATCHED: u8 = 3;

impl Local {
    /// The part a tunnel needs: see [`Snapshot::only`].
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
            listed: Rc::clone(&self.listed),
            generation: self.generation,
        })
    }

    /// The cells that count a consumer's requests.
    pub(crate) fn consumer(&self, index: usize, core: &CoreCells) -> Option<&ConsumerCells> {
        let id = self.snapshot.consumer_series.get(index)?;
        Some(self.consumers.get(index)?.get_or_init(|| core.consumer(id)))
    }

    /// The same for a consumer of a source. Those beyond the limit for series share the series of the overflow.
    pub(crate) fn listed(&self, consumer: &Consumer, core: &CoreCells) -> Option<Arc<ConsumerCells>> {
        let of = self.snapshot.listed.as_ref()?;
        let mut known = self.listed.borrow_mut();
        let number = if known.contains_key(&consumer.number) || known.len() < of.series {
            consumer.number
        } else {
            0 // no consumer of a source has it
        };
        let make = || match number {
            0 => core.consumer(&of.telemetry.consumer(weir_telemetry::series::OVERFLOW)),
            _ => core.consumer(&of.telemetry.consumer(&consumer.name)),
        };
        Some(Arc::clone(known.entry(number).or_insert_with(make)))
    }

    /// The listener at an address, if it still exists.
    pub(crate) fn listener(&self, address: &Address) -> Option<&Rc<LocalListener>> {
        self.listeners.iter().find(|l| l.spec.address.as_ref() == Some(address))
    }

    /// The listener that serves a connection, if it still exists: the one that accepted it, or the one that it was
    /// sent to by name.
    pub(crate) fn serving(&self, handle: &ConnectionHandle) -> Option<&Rc<LocalListener>> {
        match handle.sent.get().and_then(|sent| sent.inner.as_ref()) {
            None => self.listener(handle.listener.as_ref()?),
            Some((name, _)) => {
                self.listeners.iter().find(|l| l.spec.address.is_none() && l.spec.name == *name)
            }
        }
    }

    /// What becomes of a connection when this snapshot is adopted.
    fn standing(&self, handle: &ConnectionHandle) -> Standing {
        let Some(outer) = handle.listener.as_ref().and_then(|address| self.listener(address)) else {
            return Standing::Gone;
        };
        let Some(serving) = self.serving(handle) else { return Standing::Gone };
        let sent = handle.sent.get();
        let inner = sent.and_then(|sent| sent.inner.as_ref());
        let same = outer.spec.policy == handle.policy
            && inner.is_none_or(|(_, policy)| serving.spec.policy == *policy)
            && sent.is_none_or(|sent| outer.spec.admits(sent.client));
        if same { Standing::Kept } else { Standing::Outdated }
    }

    /// Whether the listener that accepted a connection sends clients of this host elsewhere than to `serving`. A client
    /// without TLS may be told on any listener where to go, but not get what is passed on.
    #[cold]
    pub(crate) fn is_misdirected(
        &self,
        handle: &ConnectionHandle,
        serving: &LocalListener,
        host: &[u8],
    ) -> bool {
        let outer = handle.listener.as_ref().and_then(|address| self.listener(address));
        let Some(Serves::Sni(names)) = outer.map(|outer| &outer.spec.serves) else { return false };
        match names.of_host(host) {
            None => false,
            Some(Destination::Upstream(_)) => true,
            Some(Destination::Listener(at)) => {
                let other = self.listeners.get(at).filter(|_| serving.spec.tls.is_some());
                other.is_some_and(|other| other.spec.name != serving.spec.name)
            }
        }
    }
}

impl ConnectionHandle {
    /// A handle for a connection of this listener.
    #[inline]
    pub(crate) fn new(listener: &Listener, closing: bool, waker: Waker) -> Self {
        Self {
            closing: Cell::new(closing),
            outdated: Cell::new(false),
            cut: Cell::new(false),
            sent: OnceCell::new(),
            policy: listener.policy,
            waiting: Cell::new(0),
            listener: listener.address.clone(),
            waker,
        }
    }

    /// Marks the exchange as waiting until the returned guard is dropped.
    pub(crate) fn wait(self: &Rc<Self>) -> Waiting {
        self.waiting.set(1);
        Waiting(Rc::clone(self))
    }

    /// Whether the exchange has waited long enough to watch its client.
    pub(crate) fn is_watched(&self) -> bool {
        self.waiting.get() >= WATCHED
    }

    /// Whether its bytes are passed on.
    fn carries_bytes(&self) -> bool {
        self.sent.get().is_some_and(|sent| sent.bytes)
    }

    fn close(&self) {
        self.closing.set(true);
        self.waker.wake_by_ref();
    }
}

/// Marks an exchange as waiting while it exists.
pub(crate) struct Waiting(Rc<ConnectionHandle>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.set(0);
    }
}
