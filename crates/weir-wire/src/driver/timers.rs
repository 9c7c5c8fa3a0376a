//! The timers of a core, in the order in which they are due. `time` sets them; the driver fires them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::task::Waker;
use std::time::Instant;

/// The timers of one core.
#[derive(Default)]
pub(crate) struct Timers {
    pub(crate) waiting: RefCell<BTreeMap<Key, Waker>>,
    /// Distinguishes timers with the same deadline.
    next: Cell<u64>,
}

type Key = (Instant, u64);

impl Timers {
    /// When the next timer is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.waiting.borrow().first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes the tasks whose timers are due.
    pub(crate) fn fire(&self, now: Instant) {
        while let Some(waker) = self.pop(now) {
            waker.wake();
        }
    }

    fn pop(&self, now: Instant) -> Option<Waker> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    pub(crate) fn set(&self, at: Instant, waker: &Waker) -> u64 {
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        self.waiting.borrow_mut().insert((at, id), waker.clone());
        id
    }

    /// Whether a timer has fired. If not, it will wake this task.
    pub(crate) fn has_fired(&self, key: Key, waker: &Waker) -> bool {
        let before = match self.waiting.borrow_mut().get_mut(&key) {
            None => return true,
            Some(known) if known.will_wake(waker) => None,
            Some(known) => Some(std::mem::replace(known, waker.clone())),
        };
        drop(before); // not while the map is borrowed, as below
        false
    }

    pub(crate) fn remove(&self, key: Key) {
        let waker = self.waiting.borrow_mut().remove(&key);
        drop(waker); // not while the map is borrowed: dropping the waker may drop a task that owns timers
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("count", &self.waiting.borrow().len()).finish()
    }
}
