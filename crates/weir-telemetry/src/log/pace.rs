//! Limits lines that any request can cause: one per interval for each call site ([`Every`]), or for each subject of a
//! call site ([`PerSubject`]).

use super::{Fields, Level, enabled, write};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Most subjects that one call site distinguishes. Further ones share one allowance. 6 KiB per call site.
pub const SUBJECTS: usize = 256;

/// Slots that a lookup checks for a subject.
const PROBES: usize = 8;

/// A subject without a line for this long can lose its slot to another one.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Lets one line through per interval, after an initial burst, and counts the others: for warnings that any request
/// can cause.
///
/// For lines that name no subject; otherwise lines about one upstream hide those about another. Use [`PerSubject`] if
/// the line says what it is about. Put one in a static at the call site:
/// `static FULL: log::Every = log::every(Duration::from_secs(10));` … `FULL.warn("accept failed", &[("error", &e)]);`
#[derive(Debug)]
pub struct Every {
    allowance: Allowance,
    pace: Pace,
}

/// Like [`Every`], per subject: many lines about one subject do not suppress the first line about another.
///
/// [`SUBJECTS`] bounds the table. `static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(5));` …
/// `SEEN.warn((upstream, cause), "upstream failed", &[("upstream", &upstream), …]);`
#[derive(Debug)]
pub struct PerSubject {
    allowance: Allowance,
    slots: [Slot; SUBJECTS],
    /// For subjects without a slot.
    others: Pace,
}

/// An [`Every`] that lets the first line through, and then one per `interval`.
pub const fn every(interval: Duration) -> Every {
    Every { allowance: Allowance { burst: 1, interval }, pace: Pace::new() }
}

/// A [`PerSubject`] that, for each subject, lets an initial `burst` of lines through and then one per `interval`.
pub const fn per_subject(burst: u32, interval: Duration) -> PerSubject {
    PerSubject {
        allowance: Allowance { burst, interval },
        slots: [const { Slot { subject: AtomicU64::new(0), pace: Pace::new() } }; SUBJECTS],
        others: Pace::new(),
    }
}

/// How many lines may pass.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// The initial burst.
    burst: u32,
    /// After that, one line per this interval.
    interval: Duration,
}

/// The state of an allowance.
#[derive(Debug)]
struct Pace {
    /// When the next line may pass without a burst, in ns since `started`, plus one; zero before the first line.
    next_ns: AtomicU64,
    suppressed: AtomicU64,
}

/// One subject of a [`PerSubject`].
#[derive(Debug)]
struct Slot {
    /// A hash of the subject, never 0; 0: free.
    subject: AtomicU64,
    pace: Pace,
}

// === impl Every ===

impl Every {
    /// Writes the line, with `suppressed` = lines held back since the last one; or counts it.
    pub fn warn(&self, message: &str, fields: Fields<'_>) {
        self.write(Level::Warn, message, fields);
    }

    /// Like [`Every::warn`], for any level.
    pub fn write(&self, level: Level, message: &str, fields: Fields<'_>) {
        if enabled(level)
            && let Some(suppressed) = self.pass(started().elapsed())
        {
            write_with(level, message, fields, suppressed);
        }
    }

    /// Whether a line may pass at `now` (time since any fixed point); if so, returns how many were held back since
    /// the last one.
    pub fn pass(&self, now: Duration) -> Option<u64> {
        self.pace.pass(self.allowance, now)
    }
}

// === impl PerSubject ===

impl PerSubject {
    /// Writes the line, with `suppressed` = lines held back about this subject since the last one; or counts it.
    pub fn warn(&self, subject: impl Hash, message: &str, fields: Fields<'_>) {
        self.write(Level::Warn, subject, message, fields);
    }

    /// Like [`PerSubject::warn`], for any level.
    pub fn write(&self, level: Level, subject: impl Hash, message: &str, fields: Fields<'_>) {
        if enabled(level)
            && let Some(suppressed) = self.pass(subject, started().elapsed())
        {
            write_with(level, message, fields, suppressed);
        }
    }

    /// Whether a line about `subject` may pass at `now` (time since any fixed point); if so, returns how many were
    /// held back since the last one.
    pub fn pass(&self, subject: impl Hash, now: Duration) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        self.pace(hasher.finish().max(1), now).pass(self.allowance, now)
    }

    /// The subject's own pace, or the one shared by subjects without a slot.
    fn pace(&self, subject: u64, now: Duration) -> &Pace {
        let at = |probe: usize| &self.slots[(subject as usize).wrapping_add(probe) % SUBJECTS];
        let slots = || (0..PROBES).map(at);
        if let Some(own) = slots().find(|slot| slot.subject.load(Relaxed) == subject) {
            return &own.pace;
        }
        // Two threads that take the same slot at the same time share its pace for one line; next time, one of them
        // finds another slot.
        let taken = |slot: &&Slot| {
            let holder = slot.subject.load(Relaxed);
            let free = holder == 0 || slot.pace.is_forgotten(now);
            free && slot.subject.compare_exchange(holder, subject, Relaxed, Relaxed).is_ok()
        };
        let Some(slot) = slots().find(taken) else { return &self.others };
        slot.pace.next_ns.store(0, Relaxed);
        slot.pace.suppressed.store(0, Relaxed);
        &slot.pace
    }
}

// === impl Pace ===

impl Pace {
    const fn new() -> Self {
        Self { next_ns: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    fn pass(&self, allowance: Allowance, now: Duration) -> Option<u64> {
        let now_ns = now.as_nanos() as u64 + 1;
        let next_ns = self.next_ns.load(Relaxed);
        let interval_ns = allowance.interval.as_nanos() as u64;
        let ahead_ns = interval_ns.saturating_mul(u64::from(allowance.burst.saturating_sub(1)));
        let after = now_ns.max(next_ns).saturating_add(interval_ns);
        // If several threads try at the same time, one wins.
        if now_ns.saturating_add(ahead_ns) < next_ns
            || self.next_ns.compare_exchange(next_ns, after, Relaxed, Relaxed).is_err()
        {
            self.suppressed.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Relaxed))
    }

    fn is_forgotten(&self, now: Duration) -> bool {
        let quiet_since = Duration::from_nanos(self.next_ns.load(Relaxed));
        now.checked_sub(FORGOTTEN_AFTER).is_some_and(|limit| quiet_since < limit)
    }
}

fn write_with(level: Level, message: &str, fields: Fields<'_>, suppressed: u64) {
    if suppressed == 0 {
        return write(level, message, fields);
    }
    let mut fields = fields.to_vec();
    fields.push(("suppressed", &suppressed));
    write(level, message, &fields);
}

fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_line_passes_per_interval() {
        let every = every(Duration::from_secs(10));
        let at = |s| every.pass(Duration::from_secs(s));
        let seen = [at(0), at(1), at(9), at(10), at(10), at(25), at(26), at(27), at(36)];
        assert_eq!(seen, [Some(0), None, None, Some(2), None, Some(1), None, None, Some(2)]);
    }

    #[test]
    fn a_few_lines_pass_at_once() {
        let few = per_subject(3, Duration::from_secs(10));
        let at = |s| few.pass("web", Duration::from_secs(s));
        let seen = [at(0), at(0), at(1), at(2), at(9), at(10), at(11), at(100), at(100), at(100), at(100)];
        let (yes, no) = (Some(0), None);
        assert_eq!(seen, [yes, yes, yes, no, no, Some(2), no, Some(1), yes, yes, no]);
    }

    #[test]
    fn a_storm_about_one_hides_no_line_about_another() {
        let seen = per_subject(1, 5 * SECOND);
        let storm =
            |n: u32| (0..n).filter_map(|_| seen.pass(("orders", "reset"), SECOND)).collect::<Vec<_>>();
        assert_eq!(storm(10_000), [0]);
        for other in [("users", "reset"), ("orders", "connect_refused"), ("ordersr", "eset")] {
            assert_eq!(seen.pass(other, SECOND), Some(0), "{other:?}");
        }
        assert_eq!(seen.pass(("orders", "reset"), 6 * SECOND), Some(9_999));
        assert_eq!(seen.pass(("users", "reset"), 6 * SECOND), Some(0));
    }

    #[test]
    fn the_table_is_bounded_and_used_again() {
        let seen = per_subject(1, 5 * SECOND);
        let first = |from: u32, at| (from..from + 10_000).filter(|n| seen.pass(n, at).is_some()).count();
        let passed = first(0, SECOND);
        assert!(passed > SUBJECTS / 2 && passed <= SUBJECTS + 1, "{passed}");
        assert!(first(10_000, 7 * SECOND) <= 1, "those that find no slot share one allowance");
        assert_eq!(seen.pass(0, 7 * SECOND), Some(0), "what has a slot keeps it");
        let passed = first(20_000, 100 * SECOND);
        assert!(passed > SUBJECTS / 2 && passed <= SUBJECTS + 1, "{passed}");
    }
}
