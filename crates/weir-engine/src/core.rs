//! What one core owns: its view of the snapshot, its pools, its connections, its scratch buffers.
//!
//! Everything here belongs to one thread. Other threads reach a core only through its mailbox ([`Message`]).

mod connection_handle;
mod local;
mod siblings;

pub(crate) use connection_handle::{ConnectionHandle, SentOn, Waiting};
pub(crate) use local::{Local, LocalListener, LocalRoute};
pub use siblings::{Shared, Sibling};

use crate::autopsy::kept::Kind;
use crate::autopsy::{Autopsies, Found, Question, Usual, connection_kept};
use crate::export::Outbox;
use crate::files::copies::Table;
use crate::homes::Passed;
use crate::lane::{Idle, Lane};
use crate::snapshot::{Listener, Snapshot};
use crate::tap::Tap;
use connection_handle::WATCHED;
use foldhash::fast::FixedState;
use local::Standing;
use siblings::CoreCount;
use slab::Slab;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc as mpsc_std;
use std::time::{Duration, Instant, SystemTime};
use weir_filter::filter::{CoreHandle, RouteScope};
use weir_h1::{RequestHead, ResponseHead};
use weir_telemetry::{AccessLog, CoreCells, Telemetry};
use weir_upstream::upstream::balance::Random;
use weir_upstream::upstream::{LocalUpstream, Resources};
use weir_wire::listen::{Address, BoundSocket};
use weir_wire::{Peer, Socket, Sockets};

/// An accepted connection on its way to a lane.
pub(crate) struct Arrived {
    pub(crate) listener: Rc<LocalListener>,
    /// The generation of the snapshot that `listener` is from; 0 if a reload has removed it.
    pub(crate) generation: u64,
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
        /// The listener that accepted it. It may be gone by now.
        listener: Arc<Listener>,
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
    /// What another core or process passes on.
    Quic(Passed),
    /// Accept no new connections and close each connection after its exchange. The core drops `done` once all
    /// connections waiting in the accept queue have been accepted.
    Drain {
        /// How to drain.
        leaving: Leaving,
        /// Dropped when it is done.
        done: mpsc_std::Sender<()>,
    },
    /// The gateway drains after a delay: close each open connection after its next exchange. Accept as before.
    Retire,
    /// Send a copy of each listening socket, for the process that takes over.
    Lend {
        /// Where the sockets go, or why one of them does not.
        to: mpsc_std::Sender<io::Result<(Address, BoundSocket)>>,
    },
    /// A shadow begins or ends: copy sampled exchanges for its judge, or no longer.
    Shadow {
        /// Where they go.
        tap: Option<Arc<Tap>>,
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
    /// The gateway ends after `shutdown.delay`. Connections that were open are closed as with [`Self::Successor`], so
    /// that few are left when it ends; new ones are not, because the client has nowhere else to go yet.
    Delayed,
    /// The gateway ends. For `shutdown.idle`, an idle connection may send one more request and is closed with its
    /// answer. Then idle connections close, so that the gateway ends soon.
    End,
    /// Another process already listens. An idle connection may bring one more request and is closed with its answer,
    /// so that a client about to send does not find it closed.
    Successor,
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
    /// Whether the process drains, and how.
    leaving: Cell<Option<Leaving>>,
    /// Whether other cores serve in place of this one, whatever the process does.
    is_replaced: Cell<bool>,
    pub(crate) access_log: RefCell<Option<AccessLog>>,
    /// Where spans go.
    pub(crate) spans: RefCell<Option<Outbox>>,
    /// The exchanges kept for `weir why`.
    pub(crate) autopsies: Autopsies,
    /// Whether a shadow runs, and what it gets.
    pub(crate) is_shadowed: Cell<bool>,
    tap: RefCell<Option<Arc<Tap>>>,
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
    /// Connections that are to close, and until when each may send one more request.
    overdue: RefCell<Vec<(Instant, Weak<ConnectionHandle>)>>,
    /// How many cut connections have not ended yet.
    cuts: Cell<usize>,
    /// Tasks that wait for a connection to serve.
    pub(crate) lanes: RefCell<Vec<Rc<Lane<()>>>>,
    /// Connections on their way to lanes. Each lane that is woken takes the first. They wait here because a place for
    /// one in each lane would make every open connection larger.
    arrived: RefCell<VecDeque<Arrived>>,
    /// Tasks that wait for a request of a multiplexed connection, the most recently used one last. Their jobs are a
    /// matter of `connection::multiplexed`.
    request_lanes: RefCell<Vec<Rc<dyn Idle>>>,
    #[allow(clippy::vec_box)]
    // boxed, because the box is lent: moving a head would copy 200 bytes per exchange
    requests: RefCell<Vec<Box<RequestHead>>>,
    #[allow(clippy::vec_box)] // as above
    responses: RefCell<Vec<Box<ResponseHead>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// What runs exchanges: see `exchange/runner.rs`. This module need not know its type.
    runners: RefCell<Vec<Box<dyn Any>>>,
    /// Rounds of [`Core::give_back`] since a burst of connections ended.
    quiet: Cell<u8>,
    /// The state that filters keep on this core, by the address of its key. The weak reference keeps that address
    /// from being reused.
    locals: RefCell<HashMap<usize, FilterState, FixedState>>,
}

/// State of a filter on one core, for as long as its key is held.
type FilterState = (std::sync::Weak<()>, Rc<dyn Any>);

/// The route label of requests that no route matched. No route can have this name.
pub const UNROUTED: &str = "-";

/// Most scratch objects of each kind kept for reuse: at worst 3 × 1,024 × 32 KiB per core, and some kilobytes for each
/// of 1,024 runners and as many lanes for requests. [`Core::trim`] frees them after a burst.
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

/// What debug builds overwrite a buffer with that its user returns. Bytes that outlive their exchange then show, and
/// tests notice.
const POISON: u8 = 0xdd;

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
            is_replaced: Cell::new(false),
            access_log: RefCell::new(None),
            spans: RefCell::new(None),
            autopsies: Autopsies::new(snapshot.autopsy),
            is_shadowed: Cell::new(false),
            tap: RefCell::new(None),
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
            overdue: RefCell::default(),
            cuts: Cell::new(0),
            lanes: RefCell::default(),
            arrived: RefCell::default(),
            request_lanes: RefCell::default(),
            requests: RefCell::default(),
            responses: RefCell::default(),
            buffers: RefCell::default(),
            runners: RefCell::default(),
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

    /// The generation of the current snapshot.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.local.borrow().generation
    }

    /// The limits of message heads, from the current snapshot.
    #[inline]
    pub(crate) fn head_limits(&self) -> weir_h1::Limits {
        self.local.borrow().snapshot.head_limits
    }

    /// Adopts the next snapshot. Running exchanges end on their own. Connections of removed listeners close after
    /// their exchange, or if idle after one more.
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
                Standing::Gone if !handle.carries_bytes() => self.close_soon(handle, local.snapshot.idle),
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
        // Waiting lanes end, because each keeps its last client, and with it a listener of the old snapshot.
        self.lanes.take().iter().for_each(|lane| lane.dismiss());
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
        // By name, because requests wait while thousands of upstreams are compared.
        let known: HashMap<&str, &Rc<LocalUpstream>> =
            old.upstreams.iter().map(|upstream| (&*upstream.spec.name, upstream)).collect();
        let upstreams = snapshot.upstreams.iter().map(|spec| match known.get(&*spec.name) {
            // An unchanged upstream keeps its balancer and waiters; pools are kept by address anyway.
            Some(same) if Arc::ptr_eq(&same.spec, spec) => Rc::clone(same),
            before => {
                let before = before.map(|before| &***before);
                Rc::new(LocalUpstream::new(Arc::clone(spec), &self.resources, before))
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
        self.is_replaced.set(!serves);
        if !serves {
            self.handles.borrow().iter().for_each(|(_, handle)| handle.close());
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

    /// A UDP socket of this core opens, or has ended: the core and the process live until then.
    pub(crate) fn count_door(&self, opens: bool) {
        self.shared.count_door(opens);
        if opens {
            self.load.doors.fetch_add(1, Ordering::Relaxed);
        } else {
            self.load.doors.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Its place among the cores that serve, and their number.
    pub(crate) fn place(&self) -> (usize, usize) {
        let siblings = self.siblings.borrow();
        let place = siblings.iter().position(|sibling| sibling.index == self.index);
        (place.unwrap_or_default(), siblings.len().max(1))
    }

    /// Whether a new connection gets one answer only.
    pub(crate) fn ends(&self) -> bool {
        self.is_replaced.get() || matches!(self.leaving.get(), Some(Leaving::End | Leaving::Successor))
    }

    /// The process drains: closes every connection after its exchange, or if idle after one more.
    pub(crate) fn drain(&self, leaving: Leaving) {
        self.leaving.set(Some(leaving));
        let idle = self.local().snapshot.idle;
        for (_, handle) in self.handles.borrow().iter() {
            match leaving {
                Leaving::Delayed | Leaving::Successor => handle.close(),
                Leaving::End => self.close_soon(handle, idle),
            }
        }
    }

    /// Closes a connection after its exchange. If it is idle, it may send one more request within this time.
    fn close_soon(&self, handle: &Rc<ConnectionHandle>, idle: Duration) {
        self.limit_idle(handle, idle);
        handle.close();
    }

    /// Limits how long a new connection that gets only one answer may take to send its request. There is no limit while
    /// another core or process serves in place of this one.
    pub(crate) fn limit_first(&self, handle: &Rc<ConnectionHandle>, is_listener_gone: bool) {
        if is_listener_gone || self.leaving.get() == Some(Leaving::End) {
            self.limit_idle(handle, self.local().snapshot.idle);
        }
    }

    fn limit_idle(&self, handle: &Rc<ConnectionHandle>, idle: Duration) {
        match Instant::now().checked_add(idle).filter(|_| !idle.is_zero()) {
            Some(at) => self.overdue.borrow_mut().push((at, Rc::downgrade(handle))),
            None => handle.overdue.set(true),
        }
    }

    /// Closes idle connections whose time to send one more request is over.
    pub(crate) fn close_overdue(&self) {
        let mut overdue = self.overdue.borrow_mut();
        if overdue.is_empty() {
            return;
        }
        let now = Instant::now();
        overdue.retain(|(at, handle)| match handle.upgrade() {
            Some(handle) if *at <= now => {
                handle.overdue.set(true);
                handle.waker.wake_by_ref();
                false
            }
            handle => handle.is_some(),
        });
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

    /// Queues a connection. The caller then wakes or starts a lane, which takes it.
    pub(crate) fn push_arrived(&self, arrived: Arrived) {
        self.arrived.borrow_mut().push_back(arrived);
    }

    /// Takes the connection that arrived first.
    pub(crate) fn take_arrived(&self) -> Option<Arrived> {
        self.arrived.borrow_mut().pop_front()
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

    /// Frees some scratch objects beyond the first few, so that a burst's memory is freed within seconds, and copies of
    /// files that nobody requests.
    pub(crate) fn trim(&self) {
        fn trim<T>(kept: &RefCell<Vec<T>>) -> Vec<T> {
            let mut kept = kept.borrow_mut();
            let spare = kept.len().saturating_sub(KEPT_QUIET);
            kept.drain(..spare.div_ceil(8)).collect()
        }
        drop(trim(&self.requests));
        drop(trim(&self.responses));
        drop(trim(&self.buffers));
        drop(trim(&self.runners));
        trim(&self.request_lanes).iter().for_each(|lane| lane.dismiss());
        Table::of(&self.handle).forget_idle(Instant::now());
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
            self.arrived.borrow_mut().shrink_to_fit();
            self.requests.borrow_mut().clear();
            self.responses.borrow_mut().clear();
            self.buffers.borrow_mut().clear();
            self.runners.borrow_mut().clear();
            self.request_lanes.take().iter().for_each(|lane| lane.dismiss());
            weir_wire::h2::free_buffers();
            weir_wire::allocator::free_blocks();
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

    /// A shadow begins or ends.
    pub(crate) fn shadow(&self, tap: Option<Arc<Tap>>) {
        self.is_shadowed.set(tap.is_some());
        *self.tap.borrow_mut() = tap;
    }

    /// The tap of the shadow that runs, if it compares with this snapshot.
    #[cold]
    pub(crate) fn tap_of(&self, snapshot: &Arc<Snapshot>) -> Option<Arc<Tap>> {
        self.tap.borrow().as_ref().filter(|tap| Arc::ptr_eq(&tap.snapshot, snapshot)).cloned()
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

    pub(crate) fn take_runner(&self) -> Option<Box<dyn Any>> {
        self.runners.borrow_mut().pop()
    }

    pub(crate) fn give_runner(&self, runner: Box<dyn Any>) {
        let mut kept = self.runners.borrow_mut();
        if kept.len() < KEPT_SCRATCH {
            kept.push(runner);
        }
    }

    /// A task that waits for a request of a multiplexed connection.
    pub(crate) fn take_request_lane(&self) -> Option<Rc<dyn Idle>> {
        self.request_lanes.borrow_mut().pop()
    }

    /// Keeps such a task. False if there are enough: then it must end.
    pub(crate) fn keep_request_lane(&self, lane: Rc<dyn Idle>) -> bool {
        let mut kept = self.request_lanes.borrow_mut();
        let has_room = kept.len() < KEPT_SCRATCH;
        if has_room {
            kept.push(lane);
        }
        has_room
    }

    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut kept = self.buffers.borrow_mut();
        // One without memory would take the place of one that spares an allocation.
        if kept.len() < KEPT_SCRATCH && (1..=KEPT_BYTES).contains(&buffer.capacity()) {
            if cfg!(debug_assertions) {
                buffer.fill(POISON);
            }
            buffer.clear();
            kept.push(buffer);
        }
    }
}
