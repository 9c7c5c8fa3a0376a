//! One timer for a whole connection.

use crate::time::{Sleep, sleep_until};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The time by which something must have happened; every step of an exchange moves it.
///
/// The deadline moves far more often than the timer is set. Moving it later only writes a field, and a timer that
/// fires too early is set again. So a kept-alive connection sets about one timer in 30 seconds instead of four per
/// request.
///
/// `poll_passed` also skips checking the timer when it cannot have fired. Timers fire between two polls of a task,
/// never during one. So if this very poll moved the deadline, a timer armed for a later time has not fired. The timer
/// has its own allocation, which is out of the cache among 1,000 connections: checking it cost 0.4 µs per request
/// there (suite h1-1000, sampled).
///
/// Invariant: while a task waits, the timer fires no later than `at` and wakes that task. A deadline stays with the
/// task that polled it first.
#[derive(Debug)]
pub struct Deadline {
    at: Option<Instant>,
    /// When the deadline was moved, until the next check of the timer.
    moved: Option<Instant>,
    armed: Option<Instant>,
    /// Boxed, to keep it out of the memory that every request touches.
    timer: Option<Box<Sleep>>,
}

impl Deadline {
    /// No deadline yet.
    pub const fn new() -> Self {
        Self { at: None, moved: None, armed: None, timer: None }
    }

    /// Sets the deadline to `limit` after `now`, which the caller read in this poll of the task. A limit of zero
    /// means no deadline.
    pub fn set(&mut self, now: Instant, limit: Duration) {
        self.at = if limit.is_zero() { None } else { now.checked_add(limit) };
        self.moved = Some(now);
    }

    /// Like [`Deadline::set`], but never later than `end`.
    pub fn set_within(&mut self, now: Instant, limit: Duration, end: Option<Instant>) {
        self.set(now, limit);
        if let Some(end) = end {
            self.at = Some(self.at.map_or(end, |at| at.min(end)));
        }
    }

    /// Sets the earlier of two moments.
    pub fn set_at(&mut self, at: Option<Instant>, end: Option<Instant>) {
        self.at = match (at, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.moved = None;
    }

    /// Removes the deadline. The timer stays, for the next connection of the same task.
    pub const fn clear(&mut self) {
        self.at = None;
        self.moved = None;
    }

    /// The deadline.
    pub const fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Ready once the deadline has passed. Call it whenever the task is about to wait.
    #[inline]
    pub fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let moved = self.moved.take();
        let Some(at) = self.at else { return Poll::Pending };
        if let (Some(moved), Some(armed)) = (moved, self.armed)
            && moved < armed
            && armed <= at
        {
            return Poll::Pending;
        }
        self.poll_timer(cx, at)
    }

    /// Not inlined: few polls get here, and the others would save registers for nothing.
    #[inline(never)]
    fn poll_timer(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        loop {
            let in_time = self.armed.is_some_and(|armed| armed <= at);
            match &mut self.timer {
                Some(timer) if in_time => {
                    if Pin::new(&mut **timer).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if Instant::now() >= at {
                        self.armed = None;
                        return Poll::Ready(());
                    }
                    timer.reset(at);
                }
                Some(timer) => timer.reset(at),
                none => *none = Some(Box::new(sleep_until(at))),
            }
            self.armed = Some(at);
        }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(flavor = "current_thread")]
    async fn fires_at_the_deadline_also_when_it_moved_earlier() {
        let mut deadline = Deadline::new();
        let start = Instant::now();
        deadline.set(start, Duration::from_secs(60));
        assert!(poll_fn(|cx| Poll::Ready(deadline.poll_passed(cx))).await.is_pending());
        deadline.set(start, Duration::from_millis(5));
        poll_fn(|cx| deadline.poll_passed(cx)).await;
        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(5) && waited < Duration::from_secs(10), "{waited:?}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn one_that_moves_with_every_poll_fires_when_it_stops_moving() {
        let mut deadline = Deadline::new();
        let start = Instant::now();
        for _ in 0..3 {
            deadline.set(Instant::now(), Duration::from_millis(20));
            let poll = poll_fn(|cx| Poll::Ready(deadline.poll_passed(cx))).await;
            assert!(poll.is_pending());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::timeout(Duration::from_secs(5), poll_fn(|cx| deadline.poll_passed(cx))).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(24));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_later_deadline_outlives_the_earlier_timer() {
        let mut deadline = Deadline::new();
        let start = Instant::now();
        deadline.set(start, Duration::from_millis(1));
        assert!(poll_fn(|cx| Poll::Ready(deadline.poll_passed(cx))).await.is_pending());
        deadline.set(start, Duration::from_millis(30));
        poll_fn(|cx| deadline.poll_passed(cx)).await;
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
