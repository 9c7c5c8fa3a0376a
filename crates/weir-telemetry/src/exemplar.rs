//! Exemplars: for each bucket of a histogram, the last traced exchange in it. They lead from a graph to a slow
//! exchange.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cell::{BUCKETS, bucket};

/// One counted exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exemplar {
    /// Its trace.
    pub trace: u128,
    /// Its span.
    pub span: u64,
    /// The observed value, in nanoseconds.
    pub value_ns: u64,
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
}

/// The exemplars of one histogram, written by one core. 768 bytes; allocated when the first traced exchange ends.
#[derive(Debug, Default)]
pub struct Exemplars([Slot; BUCKETS]);

/// A value of several words that one thread writes and others read (a seqlock). The version is odd during a write; a
/// reader that sees an odd or a changed version discards what it read.
#[derive(Debug, Default)]
struct Slot {
    version: AtomicU64,
    words: [AtomicU64; 5],
}

impl Exemplars {
    /// Records an exchange of this duration.
    pub(crate) fn note(&self, value: Duration, trace: u128, span: u64, at: SystemTime) {
        let value_ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let slot = &self.0[bucket(value_ns)];
        let version = slot.version.load(Relaxed);
        slot.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        let words = [(trace >> 64) as u64, trace as u64, span, value_ns, at_ms];
        for (word, value) in slot.words.iter().zip(words) {
            word.store(value, Relaxed);
        }
        slot.version.store(version.wrapping_add(2), Release);
    }

    /// The exemplar of a bucket, if there is one. Any thread may read it; one that is being written counts as absent.
    pub(crate) fn of(&self, bucket: usize) -> Option<Exemplar> {
        let slot = &self.0[bucket];
        let version = slot.version.load(Acquire);
        if version == 0 || version % 2 == 1 {
            return None;
        }
        let [high, low, span, value_ns, at_ms] =
            [0, 1, 2, 3, 4].map(|word: usize| slot.words[word].load(Relaxed));
        fence(Acquire);
        let same = slot.version.load(Relaxed) == version;
        same.then_some(Exemplar { trace: u128::from(high) << 64 | u128::from(low), span, value_ns, at_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_of_each_bucket() {
        let exemplars = Exemplars::default();
        assert_eq!(exemplars.of(0), None);
        let at = UNIX_EPOCH + Duration::from_millis(5);
        exemplars.note(Duration::from_micros(1), 1, 2, at);
        exemplars.note(Duration::from_micros(2), 3 << 64 | 4, 5, at);
        exemplars.note(Duration::from_secs(99), 6, 7, at);
        let first = Exemplar { trace: 3 << 64 | 4, span: 5, value_ns: 2000, at_ms: 5 };
        assert_eq!(exemplars.of(0), Some(first));
        assert_eq!(exemplars.of(BUCKETS - 1).map(|e| e.trace), Some(6));
        assert_eq!(exemplars.of(1), None);
    }
}
