//! The event loop of one core: it runs tasks and waits for sockets, timers and other threads.
//!
//! The kernel reports sockets in the order in which they became ready. With a thousand busy clients, it would report
//! the first upstream response behind the requests of all the others. Every request would start before any finished,
//! and the data of the first request would have left the cache when its response came.
//!
//! So each socket has a [class](Class). The driver wakes tasks of upstream sockets immediately. Client sockets wait
//! in a queue; the driver wakes a few of them at a time, after it has polled the kernel for everything else. Requests
//! whose response has arrived therefore finish before new requests start.
//!
//! There is one poll set, and the thread itself waits for it. We could nest it in a runtime's set. But then each
//! event goes through two sets, and the kernel wakes the owner of a nested set without the hint that the waker will
//! sleep.
//!
//! Anything that is neither a socket nor a timer of the core, for example another crate's I/O, uses a separate
//! [`runtime`].

mod tasks;
mod timers;

pub(crate) use tasks::Tasks;
pub(crate) use timers::Timers;

use crate::allocator;
use crate::sockets::{Datagrams, Sockets, TAKEN};
use mio::{Events, Token};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::replace;
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::LocalSet;

/// Events taken from the kernel per system call.
const EVENTS: usize = 256;

/// Most system calls of [`EVENTS`] per look.
const CALLS: usize = 16;

/// How many looks client sockets may wait while upstream tasks keep the core busy, for example with downloads that
/// arrive faster than clients read.
const PATIENCE: u32 = 4;

/// How many tasks run before the driver looks at the kernel again. As many as tokio's `LocalSet` runs.
const IN_A_ROW: usize = 61;

/// The token other threads use to wake a core.
const ALARM: Token = Token(usize::MAX);

/// The event loop of a core.
pub struct Driver {
    set: mio::Poll,
    events: Events,
    own: Own,
    alarm: Arc<Alarm>,
    /// Looks since the driver last woke client tasks.
    looks: u32,
}

/// The parts of the driver that its tasks use.
#[derive(Clone)]
struct Own {
    sockets: Rc<Sockets>,
    timers: Rc<Timers>,
    tasks: Rc<Tasks>,
}

thread_local! {
    static CURRENT: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// The sockets of the core that runs on this thread, or `None` on any other thread.
pub(crate) fn sockets() -> Option<Rc<Sockets>> {
    CURRENT.with_borrow(|own| own.as_ref().map(|own| Rc::clone(&own.sockets)))
}

/// A UDP socket, which must be non-blocking, of the core that runs on this thread, or else of its runtime.
///
/// # Errors
/// When the runtime cannot poll it.
pub fn datagrams(socket: impl Into<OwnedFd>) -> io::Result<Datagrams> {
    match sockets() {
        Some(sockets) => Ok(sockets.add_datagrams(socket)),
        None => Datagrams::of_runtime(socket),
    }
}

/// The timers of the core that runs on this thread, or `None` on any other thread.
pub(crate) fn timers() -> Option<Rc<Timers>> {
    CURRENT.with_borrow(|own| own.as_ref().map(|own| Rc::clone(&own.timers)))
}

/// Runs a task on the core of this thread, or else in the `LocalSet` of this thread.
///
/// For tasks that are woken often. They have no handle: nobody can wait for them or abort them. A task that panics ends
/// alone. Boxed by the caller, because a task of some kilobytes would be copied on its way.
///
/// # Panics
/// When the thread has neither.
pub fn spawn(task: Pin<Box<dyn Future<Output = ()>>>) {
    match CURRENT.with_borrow(|own| own.as_ref().map(|own| Rc::clone(&own.tasks))) {
        Some(tasks) => tasks.spawn(task),
        None => drop(tokio::task::spawn_local(task)),
    }
}

/// Lets other tasks run first. On a core, that includes tasks whose sockets the kernel reports in the meantime.
pub async fn yield_now() {
    let Some(sockets) = sockets() else { return tokio::task::yield_now().await };
    let mut has_rested = false;
    poll_fn(|cx| {
        if replace(&mut has_rested, true) {
            return Poll::Ready(());
        }
        sockets.rest(cx.waker());
        Poll::Pending
    })
    .await;
}

/// A runtime for I/O that the driver does not handle. It runs on its own thread until the process exits.
///
/// # Errors
/// When the system cannot start a thread or has no descriptors left.
fn runtime() -> io::Result<Handle> {
    static BESIDE: Mutex<Option<Handle>> = Mutex::new(None);
    let mut beside = BESIDE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*beside {
        return Ok(known.clone());
    }
    let made = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = made.handle().clone();
    thread::Builder::new()
        .name("weir-beside".to_owned())
        .spawn(move || made.block_on(std::future::pending::<()>()))?;
    Ok(beside.insert(handle).clone())
}

// === impl Driver ===

impl Driver {
    /// A driver without sockets.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<Self> {
        let set = mio::Poll::new()?;
        let alarm = Arc::new(Alarm::new(mio::Waker::new(set.registry(), ALARM)?));
        let sockets = Rc::new(Sockets::new(set.registry().try_clone()?));
        let tasks = Rc::new(Tasks::new(Arc::clone(&alarm)));
        let own = Own { sockets, timers: Rc::default(), tasks };
        Ok(Self { set, events: Events::with_capacity(EVENTS), own, alarm, looks: 0 })
    }

    /// The sockets of this driver.
    pub fn sockets(&self) -> Rc<Sockets> {
        Rc::clone(&self.own.sockets)
    }

    /// Runs `main` on this thread, together with all tasks spawned on the thread ([`spawn`] and
    /// `tokio::task::spawn_local`). Drops the tasks that still run when `main` ends. Propagates a panic of `main`.
    ///
    /// # Errors
    /// When the system cannot poll the set.
    pub fn run(mut self, main: impl Future<Output = ()> + 'static) -> io::Result<()> {
        let beside = runtime()?;
        let _keeping = allocator::keep();
        let _entered = beside.enter();
        let _current = Current::set(self.own.clone());
        let mut set = LocalSet::new();
        let _in_set = set.enter();
        let _begun = self.own.tasks.begin(); // dropped first: tasks that are dropped may still use the rest
        let mut main = set.spawn_local(main);
        let waker = Waker::from(Arc::clone(&self.alarm));
        let mut cx = Context::from_waker(&waker);
        loop {
            if self.alarm.calm() {
                self.own.tasks.take_calls();
                let _ = Pin::new(&mut set).poll(&mut cx); // runs some tasks; if more are ready, it wakes itself
                if main.is_finished() {
                    break;
                }
            }
            self.own.tasks.run(IN_A_ROW);
            self.look()?;
        }
        if let Poll::Ready(Err(e)) = Pin::new(&mut main).poll(&mut cx)
            && e.is_panic()
        {
            resume_unwind(e.into_panic());
        }
        Ok(())
    }

    /// Polls the kernel and wakes tasks whose sockets are ready. Blocks only when no task is runnable.
    fn look(&mut self) -> io::Result<()> {
        let sockets = &self.own.sockets;
        let is_idle = !self.alarm.rings() && self.own.tasks.are_idle();
        let mut wait = Some(Duration::ZERO);
        if is_idle && sockets.is_empty() {
            wait = self.own.timers.next_due().map(|due| due.saturating_duration_since(Instant::now()));
        }
        if wait != Some(Duration::ZERO) && !self.alarm.let_sleep() {
            wait = Some(Duration::ZERO);
        }
        for _ in 0..CALLS {
            let polled = self.set.poll(&mut self.events, wait);
            self.alarm.awake(); // before upstream tasks are woken: their wakers run on this thread
            match polled {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => break,
                Err(e) => return Err(e),
            }
            sockets.note(&self.events);
            if self.events.iter().count() < EVENTS {
                break;
            }
            wait = Some(Duration::ZERO);
        }
        if self.own.timers.next_due().is_some() {
            self.own.timers.fire(Instant::now());
        }
        self.looks += 1;
        if is_idle || self.looks > PATIENCE {
            self.looks = 0;
            sockets.tell_lines(TAKEN);
        }
        sockets.wake_resting();
        Ok(())
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("sockets", &self.own.sockets)
            .field("timers", &self.own.timers)
            .finish()
    }
}

/// Makes a driver current on this thread until dropped.
struct Current;

impl Current {
    fn set(own: Own) -> Self {
        CURRENT.set(Some(own));
        Self
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        drop(CURRENT.take());
    }
}

/// Wakes a core, for a task of its `LocalSet` or a call from another thread. Its own thread only sets a flag; another
/// thread also sends an event if the core sleeps.
struct Alarm {
    rings: AtomicBool,
    sleeps: AtomicBool,
    event: mio::Waker,
}

impl Alarm {
    const fn new(event: mio::Waker) -> Self {
        Self { rings: AtomicBool::new(true), sleeps: AtomicBool::new(false), event }
    }

    /// Called before tasks run: a wake-up from here on counts for the next look. Returns whether it rang.
    fn calm(&self) -> bool {
        self.rings.swap(false, Ordering::SeqCst)
    }

    fn rings(&self) -> bool {
        self.rings.load(Ordering::SeqCst)
    }

    /// Whether the core may block. From here on, any wake-up sends an event. This sets `sleeps` and then reads
    /// `rings`; [`Alarm::ring`] sets `rings` and then reads `sleeps`, so at least one thread sees the other's
    /// flag.
    fn let_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        !self.rings()
    }

    fn awake(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
    }

    fn ring(&self) {
        self.rings.store(true, Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst) {
            let _ = self.event.wake(); // fails only without free descriptors, and this waker already has one
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
pub(crate) mod tests;
