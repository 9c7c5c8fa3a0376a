//! The loop of one core: it runs tasks, and waits for sockets, moments and other threads.
//!
//! The kernel reports what is ready in the order in which it became so. Among a thousand busy clients the answer that an
//! upstream gave to the first is reported behind the requests of all the others: every request is taken on before any is
//! finished, and all that was touched for it is out of the cache when its answer comes. So sockets are of two [classes](Class). Those of
//! upstreams are told at once; clients stand in line, and are told a few at a time, when the kernel has been asked for all the rest: what
//! has an answer waiting is finished before new requests are taken on.
//!
//! There is one set of sockets, which the thread itself waits for. A set within that of a runtime would do, but the kernel wakes the
//! owner of a nested set without the hint that the waker is about to sleep, and each event goes through two.
//!
//! What is neither a socket nor a timer of the core (another crate's, say) uses a runtime beside it: [`runtime`].

use crate::sockets::{Sockets, TAKEN};
use crate::time::Timers;
use mio::{Events, Token};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::replace;
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

/// Events that are taken from the kernel in one system call.
const EVENTS: usize = 256;

/// How many system calls of [`EVENTS`] one look takes at most.
const CALLS: usize = 16;

/// How many looks clients stand in line while tasks of upstreams never end, as with downloads that are faster than their clients.
const PATIENCE: u32 = 4;

/// What other threads wake a core by.
const ALARM: Token = Token(usize::MAX);

/// The loop of a core.
pub struct Driver {
    set: mio::Poll,
    events: Events,
    own: Own,
    alarm: Arc<Alarm>,
    /// Looks since clients were told.
    looks: u32,
}

/// What the tasks of a core use of its driver.
#[derive(Clone)]
struct Own {
    sockets: Rc<Sockets>,
    timers: Rc<Timers>,
}

thread_local! {
    static CURRENT: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// The sockets of the core that this thread is; none elsewhere.
pub(crate) fn sockets() -> Option<Rc<Sockets>> {
    CURRENT.with_borrow(|own| own.as_ref().map(|own| Rc::clone(&own.sockets)))
}

/// Its timers.
pub(crate) fn timers() -> Option<Rc<Timers>> {
    CURRENT.with_borrow(|own| own.as_ref().map(|own| Rc::clone(&own.timers)))
}

/// Lets the others have their turn: on a core those that the kernel tells of too.
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

/// The runtime for what cores do not do themselves. It has a thread of its own, for as long as the process lives.
///
/// # Errors
/// When the system gives no thread, or no descriptors.
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
    /// When descriptors have run out.
    pub fn new() -> io::Result<Self> {
        let set = mio::Poll::new()?;
        let alarm = Arc::new(Alarm::new(mio::Waker::new(set.registry(), ALARM)?));
        let sockets = Rc::new(Sockets::new(set.registry().try_clone()?));
        let own = Own { sockets, timers: Rc::default() };
        Ok(Self { set, events: Events::with_capacity(EVENTS), own, alarm, looks: 0 })
    }

    /// Its sockets.
    pub fn sockets(&self) -> Rc<Sockets> {
        Rc::clone(&self.own.sockets)
    }

    /// Runs `main` on this thread, and with it all that is spawned on the thread (`tokio::task::spawn_local`). What runs still when `main`
    /// ends is dropped. A panic of `main` goes on here.
    ///
    /// # Errors
    /// When the system cannot wait for the set.
    pub fn run(mut self, main: impl Future<Output = ()> + 'static) -> io::Result<()> {
        let beside = runtime()?;
        let _entered = beside.enter();
        let _current = Current::set(self.own.clone());
        let mut tasks = LocalSet::new();
        let mut main = tasks.spawn_local(main);
        let waker = Waker::from(Arc::clone(&self.alarm));
        let mut cx = Context::from_waker(&waker);
        loop {
            self.alarm.calm();
            let _ = Pin::new(&mut tasks).poll(&mut cx); // some tasks; there are more where it wakes itself
            if main.is_finished() {
                break;
            }
            self.look()?;
        }
        if let Poll::Ready(Err(e)) = Pin::new(&mut main).poll(&mut cx)
            && e.is_panic()
        {
            resume_unwind(e.into_panic());
        }
        Ok(())
    }

    /// Tells tasks what they wait for. Waits itself only where there is nothing else to do.
    fn look(&mut self) -> io::Result<()> {
        let sockets = &self.own.sockets;
        let is_idle = !self.alarm.rings();
        let mut wait = Some(Duration::ZERO);
        if is_idle && sockets.is_empty() {
            wait = self.own.timers.next_due().map(|due| due.saturating_duration_since(Instant::now()));
        }
        if wait != Some(Duration::ZERO) && !self.alarm.let_sleep() {
            wait = Some(Duration::ZERO);
        }
        for _ in 0..CALLS {
            let polled = self.set.poll(&mut self.events, wait);
            self.alarm.awake(); // before upstreams are told: what they ring by is this thread
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
            sockets.tell_line(TAKEN);
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

/// Makes a driver the thread's for as long as it lives.
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

/// Wakes a core: its own thread by a mark, any other also by an event where the core sleeps.
struct Alarm {
    rings: AtomicBool,
    sleeps: AtomicBool,
    event: mio::Waker,
}

impl Alarm {
    const fn new(event: mio::Waker) -> Self {
        Self { rings: AtomicBool::new(true), sleeps: AtomicBool::new(false), event }
    }

    /// Before tasks run: what rings from here on is for the next time.
    fn calm(&self) {
        self.rings.store(false, Ordering::SeqCst);
    }

    fn rings(&self) -> bool {
        self.rings.load(Ordering::SeqCst)
    }

    /// Whether the core may wait: whoever rings from here on wakes it. The mark comes before the look, and in [`Alarm::wake_by_ref`] the
    /// look after the mark, so that one of the two threads sees the other's.
    fn let_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        !self.rings()
    }

    fn awake(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rings.store(true, Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst) {
            let _ = self.event.wake(); // fails only where there are no descriptors, and it has its own
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Class;
    use std::cell::Cell;
    use std::io::Write;
    use std::sync::mpsc;
    use tokio::sync::oneshot;

    /// Runs a test as a core does.
    pub(crate) fn on_a_core(test: impl Future<Output = ()> + 'static) {
        Driver::new().unwrap().run(test).unwrap();
    }

    /// Notes that what holds it was dropped.
    struct Over(Rc<Cell<bool>>);

    impl Drop for Over {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn a_panic_of_the_core_is_not_lost() {
        on_a_core(async { panic!("on purpose") });
    }

    #[test]
    fn another_thread_wakes_a_core_that_sleeps() {
        on_a_core(async {
            for round in 0..200 {
                let (tell, told) = oneshot::channel();
                let (go, may_go) = mpsc::channel::<()>();
                let other = thread::spawn(move || {
                    let _ = may_go.recv();
                    tell.send(round).unwrap();
                });
                drop(go);
                assert_eq!(told.await, Ok(round));
                other.join().unwrap();
            }
        });
    }

    #[test]
    fn clients_are_told_also_beside_work_that_never_ends() {
        on_a_core(async {
            let busy = tokio::task::spawn_local(async {
                loop {
                    tokio::task::yield_now().await; // unlike `yield_now`, this does not wait for the kernel
                }
            });
            let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = sockets().unwrap().add_local(ours, Class::Client);
            let mut read = Vec::with_capacity(8);
            let mut reading = std::pin::pin!(poll_fn(|cx| ours.poll_read(cx, &mut read)));
            assert!(poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await.is_pending());
            peer.write_all(b"request").unwrap();
            let told = crate::time::timeout(Duration::from_secs(60), reading).await;
            assert_eq!(told.unwrap().unwrap(), 7);
            busy.abort();
        });
    }

    #[test]
    fn who_rests_waits_for_a_look_and_no_longer() {
        on_a_core(async {
            let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = sockets().unwrap().add_local(ours, Class::Upstream);
            let mut read = Vec::with_capacity(8);
            let mut reading = std::pin::pin!(poll_fn(|cx| ours.poll_read(cx, &mut read)));
            assert!(poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await.is_pending());
            peer.write_all(b"answer").unwrap();
            yield_now().await;
            assert!(
                poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await.is_ready(),
                "the kernel was asked"
            );
        });
    }

    #[test]
    fn what_still_runs_is_dropped_at_the_end() {
        let left = Rc::new(Cell::new(false));
        let guard = Over(Rc::clone(&left));
        on_a_core(async {
            drop(tokio::task::spawn_local(async move {
                let _guard = guard;
                crate::time::sleep(Duration::from_secs(600)).await;
            }));
            tokio::task::yield_now().await;
        });
        assert!(left.get());
        assert!(timers().is_none(), "the thread is no core any more");
    }

    #[test]
    fn a_task_that_panics_ends_alone() {
        on_a_core(async {
            let failed = tokio::task::spawn_local(async { panic!("on purpose") }).await;
            assert!(failed.is_err());
        });
    }

    #[test]
    fn what_is_not_of_the_core_works_too() {
        on_a_core(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (one, other) = tokio::join!(listener.accept(), tokio::net::TcpStream::connect(address));
            assert!(one.is_ok() && other.is_ok());
        });
    }
}
