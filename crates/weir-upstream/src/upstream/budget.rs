//! How many extra attempts an upstream gets beyond one per request: retries and hedged attempts, counted over all
//! cores.
//!
//! In any second an upstream sees at most its share of that second's requests as extra attempts, or [`FREE`] of them
//! if that is more. Nothing is saved beyond that second, so a long healthy time does not multiply the outage that
//! follows.
//!
//! The number of requests in that second is never guessed: a request counts only if a mark shows that it came within
//! it. Each core makes marks as it counts, the control thread makes one every second, and so do extra attempts. So
//! requests from before a pause pay for nothing after it. If an endpoint fails together with its running requests,
//! most of the last second's share is still available.
//!
//! A request costs one addition to its core's own counter, and every [`NOTED`]th a clock reading. The rest happens
//! under a lock that only extra attempts take, and the control thread once a second.

use super::health::clock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Extra attempts per second that need no requests to pay for them.
const FREE: u32 = 3;

/// The period over which the share is counted, in milliseconds.
const WINDOW: u64 = 1_000;

/// The resolution of the books, in milliseconds. Rounding disfavors the extra attempt.
const SLOT: u64 = 64;

/// After how many requests a core reads the clock, to note when they came. A request since the last note may look
/// older than the window, and then pays for nothing. A reading costs 100 instructions.
const NOTED: u64 = 32;

/// How many notes a core keeps: enough for [`WINDOW`], because they are at least a [`SLOT`] apart.
const NOTES: usize = (WINDOW / SLOT + 1) as usize;

/// The purpose of an extra attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// Another attempt has had no answer for a while.
    Hedge,
    /// Another attempt has failed.
    Retry,
}

/// The extra attempts of one upstream. Survives reloads.
#[derive(Debug)]
pub struct Budget(Mutex<Books>);

/// The requests of one core, on separate cache lines. Only that core writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Arrivals {
    count: AtomicU64,
    /// Where the next note is stored.
    next: AtomicUsize,
    /// How many requests had come by when, each as a [`Note`].
    notes: [AtomicU64; NOTES],
}

/// How many of a core's requests had come by a time, in milliseconds on [`clock`]. It is one word, so that a core can
/// write it while another reads. It keeps the last [`Note::BITS`] bits of the number, enough for a second's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note(u64);

#[derive(Debug)]
struct Books {
    cores: Vec<Arc<Arrivals>>,
    /// The requests of cores that no longer use the upstream.
    gone: u64,
    /// How many requests there had been, oldest first. Invariant: never empty, and only the first is older than
    /// [`WINDOW`].
    marks: VecDeque<Mark>,
    /// The extra attempts of the last second, oldest first.
    spent: VecDeque<Spent>,
}

/// How many requests there had been by a time, in milliseconds on [`clock`].
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    requests: u64,
}

/// Extra attempts within the [`SLOT`] that starts at this time.
#[derive(Clone, Copy, Debug)]
struct Spent {
    at: u64,
    hedges: u32,
    retries: u32,
}

impl Budget {
    /// A budget that starts now.
    pub fn new(now: Instant) -> Arc<Self> {
        let marks = VecDeque::from([Mark { at: clock(now), requests: 0 }]);
        Arc::new(Self(Mutex::new(Books { cores: Vec::new(), gone: 0, marks, spent: VecDeque::new() })))
    }

    /// Adds a counter for another core.
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

    /// Marks how many requests there have been, so that a later count is exact.
    #[inline]
    pub(super) fn mark(&self, now: Instant) {
        self.books().mark(clock(now));
    }

    /// Spends one extra attempt if one is left. `share` is how many there may be per request, from 0 to 1.
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
    /// Counts a request. There is one writer, so no atomic addition is needed. `now` is called only occasionally.
    #[inline]
    pub(super) fn count(&self, now: impl FnOnce() -> Instant) {
        let count = self.get().wrapping_add(1);
        self.count.store(count, Ordering::Relaxed);
        if count.is_multiple_of(NOTED) {
            self.note(count, now);
        }
    }

    #[inline]
    fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    #[cold]
    fn note(&self, count: u64, now: impl FnOnce() -> Instant) {
        let (next, now) = (self.next.load(Ordering::Relaxed), clock(now()));
        let last = &self.notes[(next + NOTES - 1) % NOTES];
        if Note(last.load(Ordering::Relaxed)).at() + SLOT <= now {
            self.notes[next].store(Note::new(now, count).0, Ordering::Relaxed);
            self.next.store((next + 1) % NOTES, Ordering::Relaxed);
        }
    }

    /// How many requests have certainly come since then.
    fn since(&self, at: u64) -> u64 {
        let notes = self.notes.iter().map(|note| Note(note.load(Ordering::Relaxed)));
        let first = notes.filter(|note| note.at() >= at).min_by_key(|note| note.at());
        first.map_or(0, |first| first.until(self.get()))
    }
}

impl Note {
    const BITS: u32 = 24;

    const fn new(at: u64, count: u64) -> Self {
        Self(at << Self::BITS | count & Self::COUNT)
    }

    const COUNT: u64 = (1 << Self::BITS) - 1;

    const fn at(self) -> u64 {
        self.0 >> Self::BITS
    }

    /// How many more than this there are, given the current count.
    const fn until(self, count: u64) -> u64 {
        count.wrapping_sub(self.0) & Self::COUNT
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

    /// How many requests have certainly come since then, of `requests` in total. Takes the larger of what the marks
    /// and the cores' notes prove.
    fn since(&self, at: u64, requests: u64) -> u64 {
        let marked = self.marks.partition_point(|mark| mark.at < at);
        let marked = self.marks.get(marked).map_or(0, |mark| requests - mark.requests);
        marked.max(self.cores.iter().map(|arrivals| arrivals.since(at)).sum())
    }

    #[inline]
    fn spend(&mut self, extra: Extra, share: f64, now: u64) -> bool {
        let requests = self.mark(now);
        let requests = self.since(now.saturating_sub(WINDOW - SLOT), requests) as f64;
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
