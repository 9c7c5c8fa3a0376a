//! Tasks that do one piece of work after another: connections of a core, exchanges of a connection of HTTP/2.
//!
//! To make a task for each piece costs its future of some kilobytes, the runtime's memory for it, and a timer: a fifth of what a client
//! costs that closes after each request, and a tenth of an exchange over HTTP/2.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Where a task waits for its next piece of work.
pub(crate) struct Lane<J> {
    job: RefCell<Option<J>>,
    waker: RefCell<Option<Waker>>,
}

impl<J> Lane<J> {
    /// A lane whose task finds this first.
    pub(crate) const fn new(job: J) -> Self {
        Self { job: RefCell::new(Some(job)), waker: RefCell::new(None) }
    }

    /// Hands the task its next job. It waits for one.
    pub(crate) fn give(&self, job: J) {
        *self.job.borrow_mut() = Some(job);
        self.wake();
    }

    /// Lets the task look whether there will be another.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The next job; `None` once there will be none. Always asked by the same task.
    pub(crate) async fn next(&self, ended: impl Fn() -> bool) -> Option<J> {
        poll_fn(|cx| {
            if let Some(job) = self.job.borrow_mut().take() {
                return Poll::Ready(Some(job));
            }
            if ended() {
                return Poll::Ready(None);
            }
            self.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}
