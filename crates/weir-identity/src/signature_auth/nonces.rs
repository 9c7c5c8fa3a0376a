//! Signatures already used, so that each is accepted once. Shared by all cores, because a replayed request may reach
//! another core.

use super::super::prelude::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Parts of the memory, each with its own lock that is held for one lookup.
const PARTS: usize = 64;

/// Identifies a signature: half of the SHA-256 of its key and its nonce.
pub(super) type Mark = [u8; 16];

/// Whether a signature was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was seen before.
    Before,
    /// It is new and is now remembered.
    Now,
    /// Unknown, because signatures of that time have been forgotten. So the clock was set back since, or signatures
    /// are now valid for longer.
    Forgotten,
    /// It is new, but the memory is full.
    Full,
}

/// Marks, and when their signatures were made. The lifetime of signatures is not stored, so changing that setting
/// makes no signature valid twice.
pub(super) struct Nonces {
    most: AtomicUsize,
    held: AtomicUsize,
    parts: Box<[Mutex<Part>]>,
}

#[derive(Default)]
struct Part {
    marks: HashMap<Mark, u64>,
    /// Oldest first: a mark from a moment when the clock was wrong must not keep later ones in memory.
    oldest: BinaryHeap<Reverse<(u64, Mark)>>,
    /// When the newest forgotten signature was made. Signatures that old are not accepted again, however long the
    /// lifetime.
    forgotten: u64,
}

impl Nonces {
    /// A memory for this many signatures.
    pub(super) fn new(most: usize) -> Self {
        let most = AtomicUsize::new(most);
        Self { most, held: AtomicUsize::new(0), parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    /// Resizes the memory. If it holds more already, none is forgotten before it expires.
    pub(super) fn resize(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Remembers the mark of a signature with this creation time and lifetime, if it is new.
    pub(super) fn see(&self, mark: Mark, (created, lifetime): (u64, u64), now: u64) -> Seen {
        let part = usize::from(mark[0]) % PARTS;
        let Some(part) = self.parts.get(part) else { return Seen::Full };
        if self.held.load(Ordering::Relaxed) >= self.most.load(Ordering::Relaxed) {
            self.forget(lifetime, now);
        }
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        self.drop_ended(&mut part, lifetime, now);
        if created <= part.forgotten && part.forgotten > 0 {
            return Seen::Forgotten;
        }
        if part.marks.contains_key(&mark) {
            return Seen::Before;
        }
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.most.load(Ordering::Relaxed) {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return Seen::Full;
        }
        part.marks.insert(mark, created);
        part.oldest.push(Reverse((created, mark)));
        Seen::Now
    }

    /// Makes room by removing all expired marks.
    fn forget(&self, lifetime: u64, now: u64) {
        for part in &self.parts {
            self.drop_ended(&mut part.lock().unwrap_or_else(PoisonError::into_inner), lifetime, now);
        }
    }

    fn drop_ended(&self, part: &mut Part, lifetime: u64, now: u64) {
        let ended = |first: &Reverse<(u64, Mark)>| first.0.0.saturating_add(lifetime) <= now;
        while let Some(Reverse((created, mark))) = part.oldest.peek().copied().filter(ended) {
            part.oldest.pop();
            part.forgotten = part.forgotten.max(created);
            // A mark that was seen again has a newer time.
            if part.marks.get(&mark) == Some(&created) {
                part.marks.remove(&mark);
                self.held.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Loads what [`Portable::save`] wrote in the previous process.
    pub(super) fn load(saved: &[u8], most: usize) -> Option<Self> {
        // Loads all marks, even if the new limit is lower.
        let nonces = Self::new(usize::MAX);
        let (entries, rest) = saved.as_chunks::<24>();
        let forgotten = match rest {
            [] => 0,
            rest => u64::from_le_bytes(rest.try_into().ok()?),
        };
        for entry in entries {
            let (mark, created) = entry.split_first_chunk::<16>()?;
            nonces.see(*mark, (u64::from_le_bytes(created.try_into().ok()?), u64::MAX), 0);
        }
        // After the marks, because some may be as old as the newest forgotten one.
        for part in &nonces.parts {
            part.lock().unwrap_or_else(PoisonError::into_inner).forgotten = forgotten;
        }
        nonces.resize(most);
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
            all.extend(part.marks.iter().map(|(mark, created)| (*created, *mark)));
        }
        all.sort_unstable();
        let entries =
            all.into_iter().flat_map(|(created, mark)| mark.into_iter().chain(created.to_le_bytes()));
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

    /// Marks that fall into one part.
    fn alike(n: u32) -> Mark {
        let mut mark = mark(0);
        mark[4..8].copy_from_slice(&n.to_le_bytes());
        mark
    }

    #[test]
    fn once_until_it_ends() {
        let nonces = Nonces::new(10);
        assert_eq!(nonces.see(mark(1), (20, 0), 10), Seen::Now);
        assert_eq!(nonces.see(mark(1), (25, 0), 19), Seen::Before);
        assert_eq!(nonces.see(mark(2), (25, 0), 19), Seen::Now);
        assert_eq!(nonces.see(mark(1), (30, 0), 20), Seen::Now);
        assert_eq!(nonces.see(mark(1), (30, 0), 29), Seen::Before);
    }

    #[test]
    fn a_clock_that_is_set_back_brings_nothing_back() {
        let nonces = Nonces::new(10);
        assert_eq!(nonces.see(alike(1), (70, 0), 10), Seen::Now);
        assert_eq!(nonces.see(alike(2), (150, 0), 90), Seen::Now, "the first is forgotten here");
        for now in [69, 10, 0] {
            assert_eq!(nonces.see(alike(1), (70, 0), now), Seen::Forgotten);
        }
        assert_eq!(nonces.see(alike(2), (150, 0), 10), Seen::Before);
        assert_eq!(
            nonces.see(alike(3), (71, 0), 10),
            Seen::Now,
            "what ends later cannot have been forgotten"
        );
        let next = Nonces::load(&nonces.save(), 10).unwrap();
        assert_eq!(next.see(alike(1), (70, 0), 10), Seen::Forgotten);

        // Marks made while the clock was ahead do not keep earlier ones in memory.
        assert_eq!(nonces.see(alike(4), (9000, 0), 8000), Seen::Now);
        assert_eq!(nonces.see(alike(5), (9100, 0), 100), Seen::Now);
        assert_eq!(nonces.see(alike(6), (9050, 0), 9020), Seen::Now);
        assert_eq!(nonces.held.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn signatures_that_count_for_longer_do_not_count_again() {
        let nonces = Nonces::new(10);
        assert_eq!(nonces.see(alike(1), (100, 60), 110), Seen::Now);
        assert_eq!(nonces.see(alike(2), (150, 60), 155), Seen::Now);
        // The lifetime grows from one minute to ten: one signature is remembered, the other is forgotten and
        // therefore unknown.
        assert_eq!(nonces.see(alike(3), (165, 60), 165), Seen::Now);
        assert_eq!(nonces.see(alike(1), (100, 600), 170), Seen::Forgotten);
        assert_eq!(nonces.see(alike(2), (150, 600), 700), Seen::Before);
        // With a shorter lifetime again, new signatures are accepted immediately.
        assert_eq!(nonces.see(alike(4), (705, 60), 705), Seen::Now);
        assert_eq!(nonces.see(alike(4), (705, 60), 764), Seen::Before);
    }

    #[test]
    fn a_full_memory_forgets_nothing_that_counts() {
        let nonces = Nonces::new(3);
        for n in 0..3 {
            assert_eq!(nonces.see(mark(n), (20 + u64::from(n), 0), 10), Seen::Now);
        }
        assert_eq!(nonces.see(mark(9), (30, 0), 10), Seen::Full);
        assert_eq!(nonces.see(mark(0), (30, 0), 10), Seen::Before);
        assert_eq!(nonces.see(mark(9), (40, 0), 20), Seen::Now, "one has ended");
        assert_eq!(nonces.see(mark(8), (40, 0), 20), Seen::Full);
        assert_eq!(nonces.see(mark(8), (40, 0), 22), Seen::Now);
        assert_eq!(nonces.held.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn it_goes_to_the_next_process() {
        let nonces = Nonces::new(10);
        nonces.see(mark(1), (20, 0), 10);
        nonces.see(mark(2), (30, 0), 10);
        let next = Nonces::load(&nonces.save(), 10).unwrap();
        assert_eq!(next.see(mark(1), (20, 0), 19), Seen::Before);
        assert_eq!(next.see(mark(2), (30, 0), 29), Seen::Before);
        assert_eq!(next.see(mark(3), (30, 0), 29), Seen::Now);
        assert!(Nonces::load(&[0; 23], 10).is_none());
        let small = Nonces::load(&nonces.save(), 1).unwrap();
        assert_eq!(
            (small.see(mark(1), (20, 0), 19), small.see(mark(2), (30, 0), 19)),
            (Seen::Before, Seen::Before)
        );
        assert_eq!(small.see(mark(3), (30, 0), 19), Seen::Full);
        assert!(Nonces::load(&nonces.save()[..48], 10).is_some(), "of a version that saved no more");
    }
}
