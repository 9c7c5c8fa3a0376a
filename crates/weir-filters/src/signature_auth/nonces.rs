//! What was signed and has been seen, so that it counts once. Shared by all cores: a request that is sent again may come to
//! another one.

use super::super::prelude::*;
use std::collections::{HashMap, VecDeque};
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
    /// In the order in which they came, which is nearly that in which they end.
    ends: VecDeque<(u64, Mark)>,
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
        part.ends.push_back((until, mark));
        Seen::Now
    }

    /// Makes room: what has ended goes, wherever it is.
    fn forget(&self, now: u64) {
        for part in &self.parts {
            self.drop_ended(&mut part.lock().unwrap_or_else(PoisonError::into_inner), now);
        }
    }

    fn drop_ended(&self, part: &mut Part, now: u64) {
        while let Some((end, mark)) = part.ends.front().copied().filter(|(end, _)| *end <= now) {
            part.ends.pop_front();
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
        let (entries, []) = saved.as_chunks::<24>() else { return None };
        for entry in entries {
            let (mark, until) = entry.split_first_chunk::<16>()?;
            nonces.see(*mark, u64::from_le_bytes(until.try_into().ok()?), 0);
        }
        Some(nonces)
    }
}

impl Portable for Nonces {
    fn save(&self) -> Vec<u8> {
        let mut all: Vec<(u64, Mark)> = Vec::new();
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(part.marks.iter().map(|(mark, until)| (*until, *mark)));
        }
        all.sort_unstable();
        all.into_iter().flat_map(|(until, mark)| mark.into_iter().chain(until.to_le_bytes())).collect()
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
    }
}
