//! Tasks that do one piece of work after another: connections of a core, and requests of its multiplexed connections.
//!
//! A new task per piece would cost a future of some kilobytes, the runtime's memory and a timer. That is a fifth of
//! the cost of a client that closes after each request, and a tenth of an HTTP/2 exchange.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Where a task waits for its next piece of work.
pub(crate) struct Lane<J> {
    job: RefCell<Option<J>>,
    waker: RefCell<Option<Waker>>,
    is_dismissed: Cell<bool>,
}

/// A lane that waits, for a keeper that does not know its jobs.
pub(crate) trait Idle: Any {
    /// Ends the task, which gets no further job.
    fn dismiss(&self);
}

impl<J: 'static> Idle for Lane<J> {
    fn dismiss(&self) {
        self.is_dismissed.set(true);
        self.wake();
    }
}

impl<J> Lane<J> {
    /// A lane whose task starts with this job.
    pub(crate) const fn new(job: J) -> Self {
        Self { job: RefCell::new(Some(job)), waker: RefCell::new(None), is_dismissed: Cell::new(false) }
    }

    /// Hands the waiting task its next job.
    pub(crate) fn give(&self, job: J) {
        *self.job.borrow_mut() = Some(job);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The next job; `None` once no more will come. Always called by the same task.
    pub(crate) async fn next(&self) -> Option<J> {
        poll_fn(|cx| {
            if let Some(job) = self.job.borrow_mut().take() {
                return Poll::Ready(Some(job));
            }
            if self.is_dismissed.get() {
                return Poll::Ready(None);
            }
            self.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}
