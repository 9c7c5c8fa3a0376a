//! Timers. They use the [`Driver`](crate::Driver) of the current thread if it has one, else the runtime.
//!
//! The timers of a core belong to its thread: setting one takes no lock and involves no other thread.

use crate::driver::{self, Timers};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The longest wait. Replaces a deadline too far away to represent.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// A future that completes at a set time: [`sleep`].
#[derive(Debug)]
pub struct Sleep(Inner);

enum Inner {
    Core { timers: Rc<Timers>, at: Instant, state: State },
    Runtime(Pin<Box<tokio::time::Sleep>>),
}

/// The state of a core's timer.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Not polled yet, so there is no task to wake.
    New,
    Waits(u64),
    Passed,
}

/// The time ran out: [`timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

pin_project! {
    /// A future with a time limit: [`timeout`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

/// Waits for `duration`.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(after(duration))
}

/// Waits until `at`.
pub fn sleep_until(at: Instant) -> Sleep {
    Sleep(match driver::timers() {
        Some(timers) => Inner::Core { timers, at, state: State::New },
        None => Inner::Runtime(Box::pin(tokio::time::sleep_until(at.into()))),
    })
}

/// Limits how long a future may take. Polls the future before checking the time, so a ready future is never late.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration) }
}

/// Like [`timeout`], with the time of expiry.
pub fn timeout_at<F: Future>(at: Instant, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep_until(at) }
}

fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + FAR)
}

// === impl Sleep ===

impl Sleep {
    /// Changes the deadline.
    pub fn reset(&mut self, until: Instant) {
        match &mut self.0 {
            Inner::Core { timers, at, state } => {
                if let State::Waits(id) = *state {
                    timers.remove((*at, id));
                }
                (*at, *state) = (until, State::New);
            }
            Inner::Runtime(sleep) => sleep.as_mut().reset(until.into()),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (timers, at, state) = match &mut self.0 {
            Inner::Core { timers, at, state } => (timers, *at, state),
            Inner::Runtime(sleep) => return sleep.as_mut().poll(cx),
        };
        match *state {
            State::New => *state = State::Waits(timers.set(at, cx.waker())),
            State::Waits(id) if timers.has_fired((at, id), cx.waker()) => *state = State::Passed,
            State::Waits(_) | State::Passed => {}
        }
        if matches!(state, State::Passed) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Inner::Core { timers, at, state: State::Waits(id) } = &self.0 {
            timers.remove((*at, *id));
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core { at, state, .. } => f.debug_tuple("Core").field(at).field(state).finish(),
            Self::Runtime(sleep) => sleep.fmt(f),
        }
    }
}

// === impl Timeout ===

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Elapsed))
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it took too long")
    }
}

impl std::error::Error for Elapsed {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::on_a_core;
    use std::future::{pending, poll_fn};

    #[test]
    fn waits_end_in_the_order_of_their_moments() {
        on_a_core(async {
            let start = Instant::now();
            let (mut late, mut soon) = (sleep(Duration::from_secs(60)), sleep(Duration::from_millis(2)));
            let first = poll_fn(|cx| match (Pin::new(&mut late).poll(cx), Pin::new(&mut soon).poll(cx)) {
                (Poll::Ready(()), _) => Poll::Ready("late"),
                (_, Poll::Ready(())) => Poll::Ready("soon"),
                _ => Poll::Pending,
            });
            assert_eq!(first.await, "soon");
            assert!(start.elapsed() >= Duration::from_millis(2));
            late.reset(Instant::now());
            late.await;
        });
    }

    #[test]
    fn what_is_ready_is_never_late() {
        on_a_core(async {
            assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7));
            assert_eq!(timeout(Duration::ZERO, pending::<()>()).await, Err(Elapsed));
            assert_eq!(timeout(Duration::MAX, async { 7 }).await, Ok(7));
        });
    }

    #[test]
    fn nothing_stays_of_a_wait_that_is_given_up() {
        on_a_core(async {
            let timers = driver::timers().unwrap();
            let before = timers.waiting.borrow().len();
            let mut given_up = sleep(Duration::from_secs(60));
            assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut given_up).poll(cx))).await.is_pending());
            assert_eq!(timers.waiting.borrow().len(), before + 1);
            drop(given_up);
            assert_eq!(timers.waiting.borrow().len(), before);
        });
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_thread_without_a_driver_waits_by_its_runtime() {
        let start = Instant::now();
        assert!(timeout(Duration::from_millis(2), pending::<()>()).await.is_err());
        assert!(start.elapsed() >= Duration::from_millis(2));
    }
}
