//! The streams of a connection that have something to do.
//!
//! One task drives all streams of a connection. QUIC wakes each stream by its own waker, which notes the stream's place
//! here and wakes the task. The task then looks at those streams only, and not at every open one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The places that were woken, and the task to wake.
#[derive(Debug, Default)]
pub(super) struct Ready(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    places: Vec<usize>,
    task: Option<Waker>,
}

struct Place {
    number: usize,
    ready: Arc<Ready>,
}

impl Ready {
    /// Nobody else locks it for long: the thread of the connection is the only one.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A waker for this place.
    pub(super) fn waker(self: &Arc<Self>, number: usize) -> Waker {
        Waker::from(Arc::new(Place { number, ready: Arc::clone(self) }))
    }

    /// Says which task to wake.
    pub(super) fn watch(&self, task: &Waker) {
        let mut inner = self.lock();
        if !inner.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            inner.task = Some(task.clone());
        }
    }

    /// Moves the places that were woken to `out`.
    pub(super) fn take(&self, out: &mut Vec<usize>) {
        out.append(&mut self.lock().places);
    }
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut inner = self.ready.lock();
        inner.places.push(self.number);
        if inner.places.len() > 1 {
            return; // the task has been woken
        }
        let task = inner.task.clone();
        drop(inner);
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_once_until_it_looks() {
        let (ready, count) = (Arc::new(Ready::default()), Arc::new(Count::default()));
        ready.watch(&Waker::from(Arc::clone(&count)));
        let (one, two) = (ready.waker(1), ready.waker(2));
        one.wake_by_ref();
        two.wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let mut places = Vec::new();
        ready.take(&mut places);
        assert_eq!(places, [1, 2]);
        two.wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
