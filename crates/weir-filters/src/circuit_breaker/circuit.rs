//! One circuit: the results of attempts at an upstream, and whether another attempt may be made.
//!
//! ```text
//!            too many failed                     open has passed
//!   CLOSED ──────────────────▶ OPEN ─────────────────────────────▶ HALF-OPEN
//!     ▲                         ▲      (by the next attempt)         │   │
//!     │                         └──────── a probe failed ────────────┘   │
//!     └─────────────────────────── all probes went well ─────────────────┘
//! ```
//! All cores count their attempts in ten parts of the window. Each part is one atomic word that also names its tenth
//! of the window, so counting takes no lock. Only a state change, and attempts while the circuit is not closed, take
//! the lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Parts of a window, which moves on by a tenth of its length.
const PARTS: u64 = 10;

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Failing or slow shares of attempts at which the circuit opens, from 0 to 1; above 1 means never.
    pub(super) errors: f64,
    pub(super) slow: f64,
    /// Attempts that must have ended within the window before the circuit can open.
    pub(super) minimum: u64,
    pub(super) window: Duration,
    pub(super) open: Duration,
    pub(super) probes: u32,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptResult {
    Failed,
    Slow,
    Well,
}

/// Whether an attempt may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Yes. The result is counted in this generation of the circuit.
    Counted(u64),
    /// Yes, as one of the few probes that test whether the upstream has recovered.
    Probe(u64),
    /// No. Asking again makes sense after this time.
    Refused(Duration),
}

/// How the end of an attempt changed the circuit's state, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Closed,
    Opened(Tally),
    /// A probe failed.
    Reopened,
}

/// The counts of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) attempts: u64,
    pub(super) failed: u64,
    pub(super) slow: u64,
}

/// A circuit. Times are relative to an arbitrary fixed moment.
#[derive(Debug)]
pub(super) struct Circuit {
    parts: [Part; PARTS as usize],
    /// Odd while the circuit is not closed. Each state change increments it, so results of earlier attempts no longer
    /// count.
    generation: AtomicU64,
    state: Mutex<State>,
}

/// Counts for a tenth of the window. Each word holds the number of its tenth (upper half) and the count.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Part {
    attempts: AtomicU64,
    failed: AtomicU64,
    slow: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Duration },
    HalfOpen { under_way: u32, well: u32 },
}

// === impl Circuit ===

impl Default for Circuit {
    fn default() -> Self {
        Self { parts: Default::default(), generation: AtomicU64::new(0), state: Mutex::new(State::Closed) }
    }
}

impl Circuit {
    /// Asks to make an attempt. If the circuit has been open long enough, the attempt is a probe; the flag says
    /// whether it is the first.
    pub(super) fn ask(&self, rules: &Rules, now: impl FnOnce() -> Duration) -> (Pass, bool) {
        let generation = self.generation.load(Relaxed);
        if generation.is_multiple_of(2) {
            return (Pass::Counted(generation), false);
        }
        let mut state = self.state();
        let generation = self.generation.load(Relaxed);
        match &mut *state {
            State::Closed => (Pass::Counted(generation), false),
            State::Open { until } => match until.checked_sub(now()) {
                Some(left) if !left.is_zero() => (Pass::Refused(left), false),
                _ => {
                    *state = State::HalfOpen { under_way: 1, well: 0 };
                    (Pass::Probe(generation), true)
                }
            },
            State::HalfOpen { under_way, well } => {
                if *under_way + *well >= rules.probes {
                    return (Pass::Refused(Duration::from_secs(1)), false);
                }
                *under_way += 1;
                (Pass::Probe(generation), false)
            }
        }
    }

    /// Counts the result of an attempt that [`Circuit::ask`] allowed.
    pub(super) fn count(
        &self,
        generation: u64,
        went: AttemptResult,
        rules: &Rules,
        now: Duration,
    ) -> Option<Change> {
        if self.generation.load(Relaxed) != generation {
            return None;
        }
        let tenth = tenth(rules, now);
        let part = &self.parts[(tenth % PARTS) as usize];
        add(&part.attempts, tenth);
        match went {
            AttemptResult::Failed => add(&part.failed, tenth),
            AttemptResult::Slow => add(&part.slow, tenth),
            AttemptResult::Well => return None,
        }
        let tally = self.tally(rules, now);
        if !tally.breaks(rules) {
            return None;
        }
        let mut state = self.state();
        if *state != State::Closed {
            return None; // another core changed the state first
        }
        *state = State::Open { until: now + rules.open };
        self.generation.fetch_add(1, Relaxed);
        Some(Change::Opened(tally))
    }

    /// Records the result of a probe; `None` if its exchange was dropped without a result.
    pub(super) fn probed(
        &self,
        generation: u64,
        went: Option<AttemptResult>,
        rules: &Rules,
        now: Duration,
    ) -> Option<Change> {
        let mut state = self.state();
        if self.generation.load(Relaxed) != generation {
            return None;
        }
        let State::HalfOpen { under_way, well } = &mut *state else { return None };
        *under_way = under_way.saturating_sub(1);
        match went {
            None => None,
            Some(AttemptResult::Well) => {
                *well += 1;
                if *well < rules.probes {
                    return None;
                }
                // The window's counts date from before the circuit opened.
                self.forget();
                *state = State::Closed;
                self.generation.fetch_add(1, Relaxed);
                Some(Change::Closed)
            }
            Some(AttemptResult::Failed | AttemptResult::Slow) => {
                *state = State::Open { until: now + rules.open };
                self.generation.fetch_add(2, Relaxed); // probes still under way no longer count
                Some(Change::Reopened)
            }
        }
    }

    /// A circuit that is open until `until`.
    pub(super) fn open_until(until: Duration) -> Self {
        Self { state: Mutex::new(State::Open { until }), generation: AtomicU64::new(1), ..Self::default() }
    }

    /// How long the circuit stays open: zero if the next attempt is a probe, `None` if it is closed.
    pub(super) fn still_open(&self, now: Duration) -> Option<Duration> {
        match *self.state() {
            State::Closed => None,
            State::HalfOpen { .. } => Some(Duration::ZERO),
            State::Open { until } => Some(until.saturating_sub(now)),
        }
    }

    /// The state as a number: 0 closed, 1 half-open, 2 open.
    pub(super) fn level(&self) -> u8 {
        match *self.state() {
            State::Closed => 0,
            State::HalfOpen { .. } => 1,
            State::Open { .. } => 2,
        }
    }

    /// The counts of the current window.
    pub(super) fn tally(&self, rules: &Rules, now: Duration) -> Tally {
        let last = tenth(rules, now);
        let of = |word: &AtomicU64| {
            let word = word.load(Relaxed);
            let age = u64::from(last as u32).wrapping_sub(word >> 32) & u64::from(u32::MAX);
            if age < PARTS { word & u64::from(u32::MAX) } else { 0 }
        };
        self.parts.iter().fold(Tally::default(), |sum, part| Tally {
            attempts: sum.attempts + of(&part.attempts),
            failed: sum.failed + of(&part.failed),
            slow: sum.slow + of(&part.slow),
        })
    }

    fn forget(&self) {
        for part in &self.parts {
            for word in [&part.attempts, &part.failed, &part.slow] {
                word.store(0, Relaxed);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of the tenth that contains `now`. The first ten numbers are never used: they mark words not written
/// yet.
fn tenth(rules: &Rules, now: Duration) -> u64 {
    let length = (rules.window.as_nanos() / u128::from(PARTS)).max(1);
    u64::try_from(now.as_nanos() / length).unwrap_or(u64::MAX).saturating_add(PARTS)
}

/// Adds one to the word, which restarts from zero with each tenth.
fn add(word: &AtomicU64, tenth: u64) {
    let number = (tenth & u64::from(u32::MAX)) << 32;
    let more = |old: u64| {
        let same = old >> 32 == number >> 32 && old & u64::from(u32::MAX) < u64::from(u32::MAX);
        Some(if same { old + 1 } else { number | 1 })
    };
    let _ = word.fetch_update(Relaxed, Relaxed, more); // the closure always returns a new value
}

impl Tally {
    fn breaks(&self, rules: &Rules) -> bool {
        let of = |part: u64| part as f64 / self.attempts.max(1) as f64;
        self.attempts >= rules.minimum && (of(self.failed) >= rules.errors || of(self.slow) >= rules.slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    const RULES: Rules = Rules {
        errors: 0.5,
        slow: 0.8,
        minimum: 10,
        window: Duration::from_secs(10),
        open: Duration::from_secs(15),
        probes: 2,
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Makes an attempt that ends immediately.
    fn attempt(circuit: &Circuit, went: AttemptResult, now: u64) -> Result<Option<Change>, Duration> {
        match circuit.ask(&RULES, || at(now)).0 {
            Pass::Counted(generation) => Ok(circuit.count(generation, went, &RULES, at(now))),
            Pass::Probe(generation) => Ok(circuit.probed(generation, Some(went), &RULES, at(now))),
            Pass::Refused(left) => Err(left),
        }
    }

    fn break_it(circuit: &Circuit) {
        let ended = (0..10).map(|_| attempt(circuit, AttemptResult::Failed, 1));
        assert!(matches!(ended.last(), Some(Ok(Some(Change::Opened(_))))));
    }

    #[test]
    fn opens_by_rate_and_not_below_the_minimum() {
        let circuit = Circuit::default();
        for _ in 0..9 {
            assert_eq!(attempt(&circuit, AttemptResult::Failed, 1), Ok(None));
        }
        let tally = Tally { attempts: 10, failed: 10, slow: 0 };
        assert_eq!(attempt(&circuit, AttemptResult::Failed, 1), Ok(Some(Change::Opened(tally))));
        assert_eq!(attempt(&circuit, AttemptResult::Well, 2), Err(at(14)));
        assert_eq!(circuit.level(), 2);

        let circuit = Circuit::default();
        for nth in 0..100 {
            let went = if nth % 5 >= 3 { AttemptResult::Failed } else { AttemptResult::Well };
            assert_eq!(attempt(&circuit, went, 1), Ok(None), "40 % are not 50 %");
        }
    }

    #[test]
    fn slow_answers_have_a_rate_of_their_own() {
        let circuit = Circuit::default();
        for nth in 0..10 {
            let went = if nth == 0 { AttemptResult::Failed } else { AttemptResult::Slow };
            let change = attempt(&circuit, went, 1).unwrap();
            assert_eq!(change.is_some(), nth == 9, "{nth}");
        }
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let circuit = Circuit::default();
        for now in 0..100 {
            // A failure every two seconds never adds up to ten within ten seconds.
            assert_eq!(attempt(&circuit, AttemptResult::Failed, now * 2), Ok(None), "{now}");
        }
        assert_eq!(circuit.tally(&RULES, at(198)).attempts, 5);
        assert_eq!(circuit.tally(&RULES, at(1000)), Tally::default());
    }

    #[test]
    fn probes_close_it_or_open_it_again() {
        let circuit = Circuit::default();
        break_it(&circuit);
        assert_eq!(circuit.ask(&RULES, || at(15)), (Pass::Refused(at(1)), false));
        let (Pass::Probe(first), true) = circuit.ask(&RULES, || at(16)) else { panic!("no first probe") };
        let (Pass::Probe(second), false) = circuit.ask(&RULES, || at(16)) else { panic!("no second probe") };
        assert_eq!(circuit.ask(&RULES, || at(16)).0, Pass::Refused(at(1)), "two are under way");
        assert_eq!(circuit.probed(first, None, &RULES, at(16)), None, "one came to nothing");
        let (Pass::Probe(third), false) = circuit.ask(&RULES, || at(16)) else { panic!("its place is free") };
        assert_eq!(circuit.probed(second, Some(AttemptResult::Well), &RULES, at(17)), None);
        assert_eq!(
            circuit.probed(third, Some(AttemptResult::Failed), &RULES, at(17)),
            Some(Change::Reopened)
        );
        assert_eq!(attempt(&circuit, AttemptResult::Well, 31), Err(at(1)));
        assert_eq!(attempt(&circuit, AttemptResult::Well, 32), Ok(None));
        assert_eq!(attempt(&circuit, AttemptResult::Well, 32), Ok(Some(Change::Closed)));
        assert_eq!(attempt(&circuit, AttemptResult::Failed, 32), Ok(None), "it begins anew");
        assert_eq!(circuit.tally(&RULES, at(32)).attempts, 1);
    }

    #[test]
    fn what_began_before_a_change_counts_no_more() {
        let circuit = Circuit::default();
        let (Pass::Counted(old), _) = circuit.ask(&RULES, || at(1)) else { panic!("closed") };
        break_it(&circuit);
        let (Pass::Probe(probe), _) = circuit.ask(&RULES, || at(20)) else { panic!("half-open") };
        assert_eq!(circuit.count(old, AttemptResult::Failed, &RULES, at(20)), None);
        assert_eq!(
            circuit.probed(probe, Some(AttemptResult::Failed), &RULES, at(20)),
            Some(Change::Reopened)
        );
        let (Pass::Probe(late), _) = circuit.ask(&RULES, || at(40)) else { panic!("half-open") };
        assert_eq!(
            circuit.probed(probe, Some(AttemptResult::Failed), &RULES, at(40)),
            None,
            "it ended already"
        );
        assert_eq!(circuit.probed(late, Some(AttemptResult::Well), &RULES, at(40)), None);
        assert_eq!(circuit.level(), 1);
    }

    #[test]
    fn four_threads_open_it_once_and_share_the_probes() {
        for _ in 0..200 {
            let (circuit, opened, probes) = (Circuit::default(), AtomicU32::new(0), AtomicU32::new(0));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..20 {
                            let change = attempt(&circuit, AttemptResult::Failed, 1);
                            opened.fetch_add(u32::from(matches!(change, Ok(Some(_)))), Relaxed);
                        }
                    });
                }
            });
            assert_eq!(opened.load(Relaxed), 1);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let (pass, _) = circuit.ask(&RULES, || at(60));
                        probes.fetch_add(u32::from(matches!(pass, Pass::Probe(_))), Relaxed);
                    });
                }
            });
            assert_eq!(probes.load(Relaxed), 2);
        }
    }
}
