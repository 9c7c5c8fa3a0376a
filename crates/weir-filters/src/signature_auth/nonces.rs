//! What was signed and has been seen, so that it counts once. Shared by all cores: a request that is sent again may come to
//! another one.

use super::super::prelude::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many parts the memory has, each behind a lock of its own that is held for one look-up.
const PARTS: usize = 64;

/// What a signature is remembered by: half of the SHA-256 of its key and its nonce.
pub(super) type Mark = [u8; 16];

/// Whether something was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was.
    Before,
    /// It was not, and is now.
    Now,
    /// Nobody knows: what ended when it ends has been forgotten. So the clock was set back since.
    Forgotten,
    /// It was not, and there is no place to remember it.
    Full,
}

/// Marks, and until when they count.
pub(super) struct Nonces {
    most: usize,
    held: AtomicUsize,
    parts: Box<[Mutex<Part>]>,
}

#[derive(Default)]
struct Part {
    marks: HashMap<Mark, u64>,
    /// The one that ends first on top: one from a moment when the clock was wrong must not keep those behind it.
    ends: BinaryHeap<Reverse<(u64, Mark)>>,
    /// The last end of those that were forgotten. A clock that is set back makes what ended before it count again.
    forgotten: u64,
}

impl Nonces {
    /// A memory for so many.
    pub(super) fn new(most: usize) -> Self {
        Self { most, held: AtomicUsize::new(0), parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    /// Remembers a mark until a second, if it is new.
    pub(super) fn see(&self, mark: Mark, until: u64, now: u64) -> Seen {
        let part = usize::from(mark[0]) % PARTS;
        let Some(part) = self.parts.get(part) else { return Seen::Full };
        if self.held.load(Ordering::Relaxed) >= self.most {
            self.forget(now);
        }
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        self.drop_ended(&mut part, now);
        if until <= part.forgotten {
            return Seen::Forgotten;
        }
        if part.marks.get(&mark).is_some_and(|end| *end > now) {
            return Seen::Before;
        }
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return Seen::Full;
        }
        if part.marks.insert(mark, until).is_some() {
            self.held.fetch_sub(1, Ordering::Relaxed); // it took the place of one that had ended
        }
        part.ends.push(Reverse((until, mark)));
        Seen::Now
    }

    /// Makes room: what has ended goes, wherever it is.
    fn forget(&self, now: u64) {
        for part in &self.parts {
            self.drop_ended(&mut part.lock().unwrap_or_else(PoisonError::into_inner), now);
        }
    }

    fn drop_ended(&self, part: &mut Part, now: u64) {
        while let Some(Reverse((end, mark))) = part.ends.peek().copied().filter(|first| first.0.0 <= now) {
            part.ends.pop();
            part.forgotten = part.forgotten.max(end);
            // A mark that came again later has a later end.
            if part.marks.get(&mark) == Some(&end) {
                part.marks.remove(&mark);
                self.held.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// What [`Portable::save`] wrote in the process before this one.
    pub(super) fn load(saved: &[u8], most: usize) -> Option<Self> {
        let nonces = Self::new(most);
        let (entries, rest) = saved.as_chunks::<24>();
        let forgotten = match rest {
            [] => 0,
            rest => u64::from_le_bytes(rest.try_into().ok()?),
        };
        for part in &nonces.parts {
            part.lock().unwrap_or_else(PoisonError::into_inner).forgotten = forgotten;
        }
        for entry in entries {
            let (mark, until) = entry.split_first_chunk::<16>()?;
            nonces.see(*mark, u64::from_le_bytes(until.try_into().ok()?), 0); // one that is too old is refused anyway
        }
        Some(nonces)
    }
}

impl Portable for Nonces {
    fn save(&self) -> Vec<u8> {
        let mut all: Vec<(u64, Mark)> = Vec::new();
        let mut forgotten = 0;
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            forgotten = part.forgotten.max(forgotten);
            all.extend(part.marks.iter().map(|(mark, until)| (*until, *mark)));
        }
        all.sort_unstable();
        let entries = all.into_iter().flat_map(|(until, mark)| mark.into_iter().chain(until.to_le_bytes()));
        entries.chain(u64::to_le_bytes(forgotten)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(n: u32) -> Mark {
        let mut mark = Mark::default();
        mark[..4].copy_from_slice(&n.to_le_bytes());
        mark
    }

    #[test]
    fn once_until_it_ends() {
        let nonces = Nonces::new(10);
        assert_eq!(nonces.see(mark(1), 20, 10), Seen::Now);
        assert_eq!(nonces.see(mark(1), 25, 19), Seen::Before);
        assert_eq!(nonces.see(mark(2), 25, 19), Seen::Now);
        assert_eq!(nonces.see(mark(1), 30, 20), Seen::Now);
        assert_eq!(nonces.see(mark(1), 30, 29), Seen::Before);
    }

    #[test]
    fn a_clock_that_is_set_back_brings_nothing_back() {
        let nonces = Nonces::new(10);
        let alike = |n: u32| {
            let mut mark = mark(0);
            mark[4..8].copy_from_slice(&n.to_le_bytes()); // of the same part
            mark
        };
        assert_eq!(nonces.see(alike(1), 70, 10), Seen::Now);
        assert_eq!(nonces.see(alike(2), 150, 90), Seen::Now, "the first is forgotten here");
        for now in [69, 10, 0] {
            assert_eq!(nonces.see(alike(1), 70, now), Seen::Forgotten);
        }
        assert_eq!(nonces.see(alike(2), 150, 10), Seen::Before);
        assert_eq!(nonces.see(alike(3), 71, 10), Seen::Now, "what ends later cannot have been forgotten");
        let next = Nonces::load(&nonces.save(), 10).unwrap();
        assert_eq!(next.see(alike(1), 70, 10), Seen::Forgotten);

        // What came while the clock was ahead does not keep what came before it.
        assert_eq!(nonces.see(alike(4), 9000, 8000), Seen::Now);
        assert_eq!(nonces.see(alike(5), 9100, 100), Seen::Now);
        assert_eq!(nonces.see(alike(6), 9050, 9020), Seen::Now);
        assert_eq!(nonces.held.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_full_memory_forgets_nothing_that_counts() {
        let nonces = Nonces::new(3);
        for n in 0..3 {
            assert_eq!(nonces.see(mark(n), 20 + u64::from(n), 10), Seen::Now);
        }
        assert_eq!(nonces.see(mark(9), 30, 10), Seen::Full);
        assert_eq!(nonces.see(mark(0), 30, 10), Seen::Before);
        assert_eq!(nonces.see(mark(9), 40, 20), Seen::Now, "one has ended");
        assert_eq!(nonces.see(mark(8), 40, 20), Seen::Full);
        assert_eq!(nonces.see(mark(8), 40, 22), Seen::Now);
        assert_eq!(nonces.held.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn it_goes_to_the_next_process() {
        let nonces = Nonces::new(10);
        nonces.see(mark(1), 20, 10);
        nonces.see(mark(2), 30, 10);
        let next = Nonces::load(&nonces.save(), 10).unwrap();
        assert_eq!(next.see(mark(1), 20, 19), Seen::Before);
        assert_eq!(next.see(mark(2), 30, 29), Seen::Before);
        assert_eq!(next.see(mark(3), 30, 29), Seen::Now);
        assert!(Nonces::load(&[0; 23], 10).is_none());
        assert!(Nonces::load(&nonces.save()[..48], 10).is_some(), "of a version that saved no more");
    }
}
