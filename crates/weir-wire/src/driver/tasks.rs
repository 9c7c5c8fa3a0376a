//! The tasks of one core: a place for each, and a queue of those that can run.
//!
//! tokio's `LocalSet` runs on the driver too, for whatever needs a handle to its task. For a task that is woken twice
//! per request it costs more than it has to: it counts references and changes states atomically, keeps a budget, and
//! wakes the driver through a lock-free cell. Here a wake-up on the core's own thread is two plain stores and an entry
//! in the queue.

use super::Alarm;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

thread_local! {
    /// The queue of the core that runs on this thread. A waker finds it here, because a waker may be on any thread.
    static QUEUE: RefCell<Queue> = const { RefCell::new(Queue { owner: 0, ready: VecDeque::new() }) };
}

/// The tasks that can run.
struct Queue {
    /// The memory address of the core's [`Calls`]; 0 while no core runs on this thread.
    owner: usize,
    ready: VecDeque<Name>,
}

/// The tasks of one core.
pub(crate) struct Tasks {
    places: RefCell<Slab<Place>>,
    /// The task that runs now.
    running: Cell<Option<Name>>,
    /// Distinguishes a task from earlier ones in the same place.
    generation: Cell<u32>,
    /// The core has ended: a task that comes now is dropped at once.
    is_over: Cell<bool>,
    calls: Arc<Calls>,
}

/// The place of a task.
struct Place {
    name: Name,
    /// `None` while the task runs.
    rest: Option<Rest>,
}

/// A task that does not run now.
struct Rest {
    signal: Arc<Signal>,
    waker: Waker,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

/// A task by its place and generation. Wakers of a task that has ended find another name in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    key: u32,
    generation: u32,
}

/// What a task's wakers share.
struct Signal {
    name: Name,
    /// Whether the task is in its core's queue. Only the core's thread uses it, so no order is needed.
    is_queued: AtomicBool,
    /// Whether the task is among its core's [`Calls`].
    is_called: AtomicBool,
    calls: Arc<Calls>,
}

/// Wake-ups from other threads.
pub(super) struct Calls {
    names: Mutex<Vec<Name>>,
    alarm: Arc<Alarm>,
}

/// Drops a core's tasks when it is dropped.
pub(super) struct Begun(Rc<Tasks>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.end();
    }
}

// === impl Tasks ===

impl Tasks {
    pub(super) fn new(alarm: Arc<Alarm>) -> Self {
        Self {
            places: RefCell::default(),
            running: Cell::new(None),
            generation: Cell::new(0),
            is_over: Cell::new(false),
            calls: Arc::new(Calls { names: Mutex::default(), alarm }),
        }
    }

    /// Makes the queue of this thread the queue of these tasks. Drops the tasks with what it returns.
    pub(super) fn begin(self: &Rc<Self>) -> Begun {
        self.is_over.set(false);
        QUEUE.with_borrow_mut(|queue| queue.owner = self.calls.address());
        Begun(Rc::clone(self))
    }

    /// Drops all tasks. They may start and wake others meanwhile; those are dropped too.
    fn end(&self) {
        loop {
            let places = self.places.take();
            if places.is_empty() {
                break;
            }
            for (_, place) in places {
                // Not while borrowed: it runs the task's code. A task that panics ends alone here too.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(place)));
            }
        }
        self.is_over.set(true);
        QUEUE.set(Queue { owner: 0, ready: VecDeque::new() });
    }

    /// Adds a task, which runs when the tasks before it have run.
    pub(crate) fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) {
        if self.is_over.get() {
            return;
        }
        let generation = self.generation.get().wrapping_add(1);
        self.generation.set(generation);
        let mut places = self.places.borrow_mut();
        let place = places.vacant_entry();
        let key = u32::try_from(place.key()).expect("each task takes memory, so there are fewer");
        let name = Name { key, generation };
        let signal = Arc::new(Signal {
            name,
            is_queued: AtomicBool::new(true),
            is_called: AtomicBool::new(false),
            calls: Arc::clone(&self.calls),
        });
        let waker = Waker::from(Arc::clone(&signal));
        place.insert(Place { name, rest: Some(Rest { signal, waker, future }) });
        QUEUE.with_borrow_mut(|queue| queue.ready.push_back(name));
    }

    /// Whether no task can run, apart from those that other threads have woken since.
    pub(super) fn are_idle(&self) -> bool {
        QUEUE.with_borrow(|queue| queue.ready.is_empty())
    }

    /// Queues the tasks that other threads have woken.
    pub(super) fn take_calls(&self) {
        let names = std::mem::take(&mut *self.calls.lock());
        for name in names {
            let places = self.places.borrow();
            // A task that runs cannot have been called: calls are taken between tasks.
            if let Some(Rest { signal, .. }) = Self::of(&places, name).and_then(|place| place.rest.as_ref()) {
                signal.is_called.swap(false, Ordering::AcqRel);
                QUEUE.with_borrow_mut(|queue| signal.queue(queue));
            }
        }
    }

    /// Runs at most this many tasks. A task that panics ends alone.
    pub(super) fn run(&self, most: usize) {
        let mut left = most;
        while catch_unwind(AssertUnwindSafe(|| self.run_some(&mut left))).is_err() {
            if let Some(name) = self.running.take() {
                self.places.borrow_mut().try_remove(name.key as usize);
            }
        }
    }

    fn run_some(&self, left: &mut usize) {
        while *left > 0
            && let Some(name) = QUEUE.with_borrow_mut(|queue| queue.ready.pop_front())
        {
            *left -= 1;
            self.run_one(name);
        }
    }

    fn run_one(&self, name: Name) {
        let rest = Self::of_mut(&mut self.places.borrow_mut(), name).and_then(|place| place.rest.take());
        let Some(mut rest) = rest else { return }; // it has ended
        rest.signal.is_queued.store(false, Ordering::Relaxed);
        self.running.set(Some(name));
        let polled = rest.future.as_mut().poll(&mut Context::from_waker(&rest.waker));
        self.running.set(None);
        let mut places = self.places.borrow_mut();
        if polled.is_pending() {
            if let Some(place) = places.get_mut(name.key as usize) {
                place.rest = Some(rest);
            }
        } else {
            places.try_remove(name.key as usize);
            drop(places); // before `rest`, whose drop runs the task's code
        }
    }

    /// The place of a task, unless it has ended.
    fn of(places: &Slab<Place>, name: Name) -> Option<&Place> {
        places.get(name.key as usize).filter(|place| place.name == name)
    }

    fn of_mut(places: &mut Slab<Place>, name: Name) -> Option<&mut Place> {
        places.get_mut(name.key as usize).filter(|place| place.name == name)
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("count", &self.places.borrow().len()).finish()
    }
}

// === impl Signal ===

impl Signal {
    /// Puts the task into the queue of its core, once.
    fn queue(&self, queue: &mut Queue) {
        if !self.is_queued.load(Ordering::Relaxed) {
            self.is_queued.store(true, Ordering::Relaxed);
            queue.ready.push_back(self.name);
        }
    }

    /// Puts the task among the calls, once.
    #[cold]
    fn call(&self) {
        // What the waking thread has written before is seen by the task: `take_calls` reads this flag, and if the
        // flag was set already, that has not happened yet.
        if !self.is_called.swap(true, Ordering::AcqRel) {
            self.calls.lock().push(self.name);
            self.calls.alarm.ring();
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_here = QUEUE.try_with(|queue| {
            let queue = &mut *queue.borrow_mut();
            let is_here = queue.owner == self.calls.address();
            if is_here {
                self.queue(queue);
            }
            is_here
        });
        if is_here != Ok(true) {
            self.call(); // from another thread, or from one that ends and has no queue any more
        }
    }
}

// === impl Calls ===

impl Calls {
    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
