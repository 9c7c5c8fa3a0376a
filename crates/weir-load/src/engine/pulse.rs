//! Notices when the whole generator does not run: stopped by a signal, frozen with its cgroup, or suspended with its
//! machine.
//!
//! Such a pause looks to every thread like a target that is silent. A thread of its own therefore wakes a hundred
//! times a second and notes when. If it wakes much too late although it did not wait for a processor, everything
//! stood still, and the engine subtracts that time from the target's silence.

use crate::clock::Clock;
use crate::os;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread wakes. A hundred wakes a second take about 0.2 % of a core.
const BEAT: Duration = Duration::from_millis(10);

/// The shortest pause that is noted, in nanoseconds. Shorter ones may be ordinary scheduling.
const PAUSE_NS: u64 = 100_000_000;

/// Most pauses noted; later ones are counted and not subtracted.
const PAUSES_MOST: usize = 1024;

/// What the pulse noted.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// When it last woke.
    beat: AtomicU64,
    ended: AtomicBool,
    pauses: Mutex<Vec<(u64, u64)>>,
    more: AtomicU64,
}

/// The running pulse; [`Beating::end`] stops it.
pub(super) struct Beating {
    pulse: Arc<Pulse>,
    thread: JoinHandle<()>,
}

impl Pulse {
    /// Starts the thread. Without it, which costs only this knowledge, nothing is noted.
    pub(super) fn start(self: &Arc<Self>, clock: Clock) -> Option<Beating> {
        let pulse = Arc::clone(self);
        pulse.beat.store(clock.now(), Ordering::Relaxed);
        let beat = move || pulse.run(clock);
        let thread = std::thread::Builder::new().name("weir-load-pulse".to_owned()).spawn(beat).ok()?;
        Some(Beating { pulse: Arc::clone(self), thread })
    }

    fn run(&self, clock: Clock) {
        let clock_of_waits = os::WaitedClock::of_this_thread();
        let mut waited = clock_of_waits.now();
        while !self.ended.load(Ordering::Relaxed) {
            std::thread::park_timeout(BEAT);
            let (now, last) = (clock.now(), self.beat.load(Ordering::Relaxed));
            // Read at every beat: waits of earlier beats, many on a busy machine, would hide a pause.
            let all = clock_of_waits.now();
            // Without the time in which this thread was ready and others had the processors.
            let stood = now.saturating_sub(last).saturating_sub(all.saturating_sub(waited));
            waited = all;
            if stood >= PAUSE_NS {
                self.note(now - stood, now);
            }
            self.beat.store(now, Ordering::Relaxed);
        }
    }

    fn note(&self, from: u64, to: u64) {
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        if pauses.len() < PAUSES_MOST {
            pauses.push((from, to));
        } else {
            self.more.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How much of the time between two moments the generator did not run. A thread that runs again before the pulse
    /// does sees the pause by the age of the last beat. For silences only: takes a lock.
    pub(super) fn paused(&self, from: u64, to: u64) -> u64 {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |(a, b): (u64, u64)| b.min(to).saturating_sub(a.max(from));
        let noted: u64 = pauses.iter().map(|pause| within(*pause)).sum();
        let last = pauses.last().map_or(0, |(_, end)| *end).max(self.beat.load(Ordering::Relaxed));
        let is_late = to.saturating_sub(last) >= PAUSE_NS && last > 0;
        noted + if is_late { within((last, to)) } else { 0 }
    }

    /// Number and sum of the pauses after `from`.
    pub(super) fn total(&self, from: u64) -> (u64, u64) {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = pauses.iter().filter(|(_, to)| *to > from);
        let (n, all) = counted.fold((0, 0), |(n, all), (a, b)| (n + 1, all + (b - (*a).max(from))));
        (n + self.more.load(Ordering::Relaxed), all)
    }
}

impl Beating {
    /// Stops the thread and waits for it.
    pub(super) fn end(self) {
        self.pulse.ended.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join(); // it cannot panic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn pauses_are_subtracted_where_they_overlap() {
        let pulse = Pulse::default();
        pulse.note(1_000 * MS, 3_000 * MS);
        pulse.note(5_000 * MS, 5_500 * MS);
        pulse.beat.store(6_000 * MS, Ordering::Relaxed);
        assert_eq!(pulse.paused(0, 900 * MS), 0);
        assert_eq!(pulse.paused(2_500 * MS, 4_000 * MS), 500 * MS);
        assert_eq!(pulse.paused(0, 6_050 * MS), 2_500 * MS);
        // The pulse has not woken since: it cannot know of the pause yet.
        assert_eq!(pulse.paused(6_000 * MS, 8_000 * MS), 2_000 * MS);
        assert_eq!((pulse.total(0), pulse.total(2_000 * MS)), ((2, 2_500 * MS), (2, 1_500 * MS)));
        assert_eq!(pulse.total(5_600 * MS), (0, 0));
    }

    #[test]
    fn a_generator_that_runs_has_no_pause() {
        let pulse = Arc::new(Pulse::default());
        let beating = pulse.start(Clock::start()).unwrap();
        beating.end();
        assert_eq!(pulse.total(0).0, 0);
    }
}
