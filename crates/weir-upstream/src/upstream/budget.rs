//! How many attempts an upstream gets beyond one for each request: retries and hedged attempts, counted over all cores.
//!
//! In any second an upstream sees at most its share of the requests of that second as extra attempts, or [`FREE`] of
//! them where that is more. Nothing is saved up beyond that second, so a long healthy time does not multiply the
//! outage that follows it.
//!
//! How many requests there were in that second is never guessed: only those count of which a mark shows that they came
//! within it. Marks are made by each core as it counts, by the control thread once a second, and by extra attempts. So
//! requests from before a pause pay for nothing behind it, and an endpoint that takes the requests under way along still
//! finds most of the share of the last second.
//!
//! A request costs one addition to its core's own counter, and every [`NOTED`]th a look at the clock. Everything else
//! happens under a lock that only an extra attempt takes, and the control thread once a second.

use super::health::clock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Extra attempts a second that need no share of the requests.
const FREE: u32 = 3;

/// The time that a share is counted over, in milliseconds.
const WINDOW: u64 = 1_000;

/// How exact the books are, in milliseconds. Rounding goes against the extra attempt.
const SLOT: u64 = 64;

/// After how many requests a core looks at the clock, to note when they came. A request that has come since the last
/// note may be taken for one from before the window, and then pays for nothing. The look costs 100 instructions.
const NOTED: u64 = 32;

/// How many notes a core keeps: enough for [`WINDOW`], as they are at least a [`SLOT`] apart.
const NOTES: usize = (WINDOW / SLOT + 1) as usize;

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

/// The requests of one core. Only that core writes it; lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Arrivals {
    count: AtomicU64,
    /// Where the next note goes.
    next: AtomicUsize,
    /// When how many had come, each a [`Note`].
    notes: [AtomicU64; NOTES],
}

/// How many requests of a core had come at that time, in milliseconds on [`clock`]: one word, so that a core can write
/// it while another reads. Of the number only the last [`Note::BITS`] bits, enough for the requests of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note(u64);

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
    /// Counts a request. There is one writer, so no atomic addition is needed. `now`: asked now and then.
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

    /// How many more there are when there are so many.
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

    /// How many requests have certainly come since then, where `requests` have come in all: by the marks, or by what the
    /// cores noted, whichever knows of more.
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
