//! How many attempts an upstream gets beyond one for each request: retries and hedged attempts, counted over all cores.
//!
//! In any second an upstream sees at most its share of the requests of that second as extra attempts, or [`FREE`] of
//! them where that is more. Nothing is saved up beyond that second, so a long healthy time does not multiply the
//! outage that follows it.
//!
//! A request costs one addition to its core's own counter. Everything else happens under a lock that only an extra
//! attempt takes, and the control thread once a second.

use super::health::clock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Extra attempts a second that need no share of the requests.
const FREE: u32 = 3;

/// The time that a share is counted over, in milliseconds.
const WINDOW: u64 = 1_000;

/// How exact the books are, in milliseconds. Rounding goes against the extra attempt.
const SLOT: u64 = 64;

/// What an extra attempt is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// Another attempt has not been answered for a while.
    Hedge,
    /// Another attempt has failed.
    Retry,
}

/// The extra attempts of one upstream. Survives reloads.
#[derive(Debug)]
pub struct Budget(Mutex<Books>);

/// The requests of one core. Only that core writes it; a line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Arrivals(AtomicU64);

#[derive(Debug)]
struct Books {
    cores: Vec<Arc<Arrivals>>,
    /// The requests of cores that use the upstream no more.
    gone: u64,
    /// How many requests there had been, oldest first. Invariant: never empty, and only the first is older than
    /// [`WINDOW`].
    marks: VecDeque<Mark>,
    /// The extra attempts of the last second, oldest first.
    spent: VecDeque<Spent>,
}

/// How many requests there had been at that time, in milliseconds on [`clock`].
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    requests: u64,
}

/// Extra attempts within the [`SLOT`] that begins at that time.
#[derive(Clone, Copy, Debug)]
struct Spent {
    at: u64,
    hedges: u32,
    retries: u32,
}

impl Budget {
    /// A budget that begins now.
    pub fn new(now: Instant) -> Arc<Self> {
        let marks = VecDeque::from([Mark { at: clock(now), requests: 0 }]);
        Arc::new(Self(Mutex::new(Books { cores: Vec::new(), gone: 0, marks, spent: VecDeque::new() })))
    }

    /// The counter of one more core.
    #[inline]
    pub(super) fn join(&self) -> Arc<Arrivals> {
        let mut books = self.books();
        let (used, left): (Vec<_>, Vec<_>) =
            books.cores.drain(..).partition(|arrivals| Arc::strong_count(arrivals) > 1);
        books.cores = used;
        books.gone += left.iter().map(|arrivals| arrivals.get()).sum::<u64>();
        let arrivals = Arc::<Arrivals>::default();
        books.cores.push(Arc::clone(&arrivals));
        arrivals
    }

    /// Notes how many requests there have been, so that a later look back is exact.
    #[inline]
    pub(super) fn mark(&self, now: Instant) {
        self.books().mark(clock(now));
    }

    /// Takes out one extra attempt, if there is one. `share`: how many there may be for each request, from 0 to 1.
    #[inline]
    pub(super) fn spend(&self, extra: Extra, share: f64, now: Instant) -> bool {
        self.books().spend(extra, share, clock(now))
    }

    #[inline]
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrivals {
    /// Counts a request. There is one writer, so no atomic addition is needed.
    #[inline]
    pub(super) fn count(&self) {
        self.0.store(self.get().wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Books {
    /// How many requests there have been.
    #[inline]
    fn requests(&self) -> u64 {
        self.cores.iter().map(|arrivals| arrivals.get()).sum::<u64>() + self.gone
    }

    #[inline]
    fn mark(&mut self, now: u64) -> u64 {
        let requests = self.requests();
        if self.marks.back().is_none_or(|last| last.at + SLOT <= now) {
            self.marks.push_back(Mark { at: now, requests });
        }
        while self.marks.get(1).is_some_and(|second| second.at + WINDOW <= now) {
            self.marks.pop_front();
        }
        requests
    }

    /// How many requests there had been at that time: between two marks they are taken to have come evenly.
    #[inline]
    fn requests_at(&self, at: u64) -> f64 {
        let after = self.marks.partition_point(|mark| mark.at <= at);
        let before = after.checked_sub(1).and_then(|before| self.marks.get(before));
        match (before, self.marks.get(after)) {
            (Some(before), Some(after)) => {
                let part = (at - before.at) as f64 / (after.at - before.at) as f64;
                before.requests as f64 + part * (after.requests - before.requests) as f64
            }
            (Some(mark), None) | (None, Some(mark)) => mark.requests as f64,
            (None, None) => 0.0,
        }
    }

    #[inline]
    fn spend(&mut self, extra: Extra, share: f64, now: u64) -> bool {
        let requests = self.mark(now) as f64 - self.requests_at(now.saturating_sub(WINDOW - SLOT));
        while self.spent.front().is_some_and(|first| first.at + SLOT + WINDOW <= now) {
            self.spent.pop_front();
        }
        let (hedges, retries) = self
            .spent
            .iter()
            .fold((0, 0), |(hedges, retries), it| (hedges + it.hedges, retries + it.retries));
        let same = if extra == Extra::Hedge { hedges } else { retries };
        let granted = hedges + retries < FREE || f64::from(same + 1) <= share * requests;
        if granted {
            let current = self.spent.back().is_some_and(|last| now < last.at + SLOT);
            if !current {
                self.spent.push_back(Spent { at: now, hedges: 0, retries: 0 });
            }
            if let Some(last) = self.spent.back_mut() {
                last.hedges += u32::from(extra == Extra::Hedge);
                last.retries += u32::from(extra == Extra::Retry);
            }
        }
        granted
    }
}

#[cfg(test)]
mod tests;
