//! Whether an endpoint is in rotation, and why it is not.
//!
//! One [`Health`] belongs to one address of one upstream in the whole process. It outlives snapshots: a reload hands it to
//! the next endpoint with the same address. Cores learn that something changed anywhere by one number ([`changes`]), which
//! is all that a request pays while everything is well; what changes an endpoint's state takes a lock, and is rare.
//!
//! ```text
//!              refused, timed out                        until it can be connected to:
//!  in rotation ──────────────────► avoided for 1 s ───►  a trial in the background, one at a time
//!       ▲                            ▲      │                  │         │
//!       └────────────────────────────│──────│── connected ─────┘         │
//!                                    └──────│─── failed: twice as long ──┘   (at most 30 s)
//! ```
//!
//! One that answers badly is ejected where there is a policy for it (`outlier`), and comes back when its time is over.
//!
//! Where all endpoints of an upstream are avoided, requests dial themselves, but an endpoint at most once in
//! [`BETWEEN_DIALS`]: whoever comes between is refused at once, and a service that comes back is found within that time.

use super::outlier::{Outlier, Tally};
use crate::error::Cause;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use weir_telemetry::{EndpointId, log};

/// How long an endpoint is avoided that could not be connected to; each further failure doubles it.
const AVOIDED: Duration = Duration::from_secs(1);

/// The longest that an endpoint is avoided before it is tried again.
const AVOIDED_AT_MOST: Duration = Duration::from_secs(30);

/// How long an endpoint must be well for the doubling to begin anew.
const FORGIVEN: Duration = Duration::from_secs(30);

/// How often an endpoint is dialled at most while it is avoided.
const BETWEEN_DIALS: Duration = Duration::from_millis(100);

/// Whether an endpoint is in rotation. Lines of its own, so that a core that writes does not disturb those that read others.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Health {
    /// When it is due for a trial, on [`clock`]; 0 while it is in rotation.
    due: AtomicU64,
    /// Until then nobody dials it while it is out, on [`clock`].
    no_dial_before: AtomicU64,
    /// Whether it is out for its answers: it can be connected to.
    ejected: AtomicBool,
    tally: Tally,
    state: Mutex<State>,
    upstream: Arc<str>,
    label: Arc<str>,
    cells: EndpointId,
}

#[derive(Debug, Default)]
struct State {
    out: Option<Out>,
    /// How often in a row it was avoided, and when it was last well again.
    failures: u32,
    ejections: u32,
    well_since: Option<Instant>,
}

/// Why an endpoint is out of rotation.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) reason: Reason,
    /// What happened last: the code of a cause, or the rule that ejected it.
    pub(crate) cause: &'static str,
    pub(crate) since: SystemTime,
    /// When it is tried again.
    pub(crate) until: SystemTime,
    began: Instant,
    due: Instant,
}

/// Why an endpoint is out of rotation, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It answered badly.
    Ejected,
    /// It cannot be connected to.
    Unreachable,
}

impl Reason {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ejected => "ejected",
            Self::Unreachable => "unreachable",
        }
    }
}

/// A number that grows whenever any endpoint leaves or enters rotation. On a line of its own.
#[repr(align(128))]
struct Changes(AtomicU64);

static CHANGES: Changes = Changes(AtomicU64::new(1));

/// What the cores compare; never 0.
#[inline]
pub(super) fn changes() -> u64 {
    CHANGES.0.load(Ordering::Acquire)
}

/// Milliseconds on a clock of the process; never 0.
pub(super) fn clock(now: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(now.saturating_duration_since(*START).as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}

impl Health {
    pub(crate) fn new(upstream: Arc<str>, label: Arc<str>, cells: EndpointId) -> Arc<Self> {
        clock(Instant::now()); // so that it started before whatever is measured by it
        let (due, no_dial_before, ejected, tally, state) = Default::default();
        Arc::new(Self { due, no_dial_before, ejected, tally, state, upstream, label, cells })
    }

    /// Why it is out of rotation, if it is.
    pub(crate) fn out(&self) -> Option<Out> {
        self.state().out.clone()
    }

    /// When it is due for a trial, on [`clock`]; `None` while it is in rotation.
    #[inline]
    pub(super) fn due(&self) -> Option<u64> {
        let due = self.due.load(Ordering::Acquire);
        (due != 0).then(|| due.max(self.no_dial_before.load(Ordering::Relaxed)))
    }

    /// Whether it is out of rotation.
    #[inline]
    pub(super) fn is_out(&self) -> bool {
        self.due.load(Ordering::Acquire) != 0
    }

    /// Whether it is out for its answers only.
    pub(super) fn is_ejected(&self) -> bool {
        self.is_out() && self.ejected.load(Ordering::Relaxed)
    }

    /// Whether it may be dialled now. While it is avoided, one in [`BETWEEN_DIALS`] may.
    pub(super) fn may_dial(&self, now: Instant) -> bool {
        !self.is_out() || self.is_ejected() || self.claim(now, BETWEEN_DIALS)
    }

    /// The right to find out whether it can be connected to again: once its time is over, one at a time, each for as long
    /// as it may take.
    pub(super) fn claim_trial(&self, now: Instant, takes: Duration) -> bool {
        self.due().is_some_and(|due| due <= clock(now)) && self.claim(now, takes.max(BETWEEN_DIALS))
    }

    fn claim(&self, now: Instant, takes: Duration) -> bool {
        let (at, end) = (clock(now), clock(now + takes));
        let mut before = self.no_dial_before.load(Ordering::Relaxed);
        while before <= at {
            match self.no_dial_before.compare_exchange_weak(before, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(other) => before = other,
            }
        }
        false
    }

    /// A connection was made: it is back.
    #[inline]
    pub(super) fn connected(&self, now: Instant) {
        if self.is_out() && !self.is_ejected() {
            self.enter(now);
        }
    }

    /// Counts an answer where there is a policy for it. `others`: how many endpoints are out, and of how many.
    pub(super) fn answered(
        &self,
        ok: bool,
        policy: &Outlier,
        now: Instant,
        others: impl FnOnce() -> (usize, usize),
    ) {
        let Some(rule) = self.tally.note(ok, policy, clock(now)) else { return };
        if self.is_out() {
            return;
        }
        let (out, of) = others();
        if !policy.may_eject(out, of) {
            return;
        }
        let mut state = self.state();
        if state.out.is_some() {
            return; // another core was first
        }
        self.tally.clear();
        state.forgive(now);
        state.ejections += 1;
        let wait = policy.ejected_for(state.ejections);
        self.ejected.store(true, Ordering::Relaxed);
        self.leave(&mut state, Reason::Ejected, rule, (SystemTime::now(), now), now + wait);
    }

    /// Takes it out, or changes until when.
    fn leave(
        &self,
        state: &mut State,
        reason: Reason,
        cause: &'static str,
        (since, began): (SystemTime, Instant),
        due: Instant,
    ) {
        let was_in = state.out.is_none();
        let until = SystemTime::now() + due.saturating_duration_since(Instant::now());
        state.out = Some(Out { reason, cause, since, until, began, due });
        self.due.store(clock(due), Ordering::Release);
        if was_in {
            self.cells.set_healthy(false);
            log::warn(
                "endpoint out of rotation",
                &[
                    ("upstream", &self.upstream),
                    ("endpoint", &self.label),
                    ("reason", &reason.name()),
                    ("cause", &cause),
                ],
            );
        }
        CHANGES.0.fetch_add(1, Ordering::Release);
    }

    /// No connection could be made.
    pub(super) fn connect_failed(&self, cause: &'static Cause, now: Instant) {
        let mut state = self.state();
        self.no_dial_before.store(clock(now + BETWEEN_DIALS), Ordering::Relaxed);
        let began = match &mut state.out {
            // Others dialled at the same time, or all endpoints are out: that is no further failure.
            Some(out) if now < out.due && out.reason == Reason::Unreachable => return out.cause = cause.code,
            Some(out) => (out.since, out.began),
            None => (SystemTime::now(), now),
        };
        if state.out.is_none() {
            state.forgive(now);
        }
        let wait = AVOIDED.saturating_mul(1 << state.failures.min(16)).min(AVOIDED_AT_MOST);
        state.failures += 1;
        self.ejected.store(false, Ordering::Relaxed);
        self.leave(&mut state, Reason::Unreachable, cause.code, began, now + wait);
    }

    /// Puts it back into rotation.
    pub(super) fn enter(&self, now: Instant) {
        let mut state = self.state();
        let Some(out) = state.out.take() else { return };
        self.tally.clear();
        self.ejected.store(false, Ordering::Relaxed);
        state.well_since = Some(now);
        self.due.store(0, Ordering::Release);
        self.no_dial_before.store(0, Ordering::Relaxed);
        self.cells.set_healthy(true);
        let seconds = now.saturating_duration_since(out.began).as_secs_f32();
        log::info(
            "endpoint back in rotation",
            &[
                ("upstream", &self.upstream),
                ("endpoint", &self.label),
                ("seconds", &format_args!("{seconds:.1}")),
            ],
        );
        CHANGES.0.fetch_add(1, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What was long ago is forgotten.
    fn forgive(&mut self, now: Instant) {
        if self.well_since.is_some_and(|since| now.saturating_duration_since(since) >= FORGIVEN) {
            (self.failures, self.ejections) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CONNECT_REFUSED;
    use weir_telemetry::{Setup, Telemetry};

    fn health() -> Arc<Health> {
        Health::new("u".into(), "e".into(), Telemetry::new(Setup::default()).endpoint("u", "e"))
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn is_avoided_for_twice_as_long_each_time() {
        let (health, mut now) = (health(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..7 {
            health.connect_failed(&CONNECT_REFUSED, now);
            let due = health.due().unwrap();
            waits.push((due - clock(now)).div_ceil(1000));
            now += Duration::from_millis(due - clock(now));
            assert!(!health.claim_trial(now - 5 * MS, MS), "too early");
            assert!(health.claim_trial(now + MS, 3 * AVOIDED));
            assert!(!health.claim_trial(now + AVOIDED, MS), "one trial at a time");
            now += 2 * AVOIDED;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert!(!health.cells.healthy());
        health.connected(now);
        assert!(health.cells.healthy() && health.out().is_none() && health.due().is_none());
        // It has to stay well for a while to be forgiven.
        health.connect_failed(&CONNECT_REFUSED, now + AVOIDED);
        assert_eq!((health.due().unwrap() - clock(now + AVOIDED)) / 1000, 30);
        health.connected(now + AVOIDED);
        health.connect_failed(&CONNECT_REFUSED, now + AVOIDED + FORGIVEN);
        assert_eq!((health.due().unwrap() - clock(now + AVOIDED + FORGIVEN)) / 1000, 1);
    }

    #[test]
    fn failures_at_the_same_time_count_once() {
        let (health, now) = (health(), Instant::now());
        for i in 0..100 {
            health.connect_failed(&CONNECT_REFUSED, now + MS * i);
        }
        assert_eq!((health.due().unwrap() - clock(now)) / 1000, 1);
    }

    #[test]
    fn is_dialled_once_in_a_while_when_all_are_out() {
        let (health, now) = (health(), Instant::now());
        assert!(health.may_dial(now) && health.may_dial(now));
        health.connect_failed(&CONNECT_REFUSED, now);
        let dials = (0..500).filter(|i| health.may_dial(now + MS * *i)).count();
        assert_eq!(dials, 4, "after 101, 202, 303 and 404 ms");
        health.connected(now);
        assert!(health.may_dial(now) && health.may_dial(now));
    }

    #[test]
    fn every_change_is_seen() {
        let (health, now, before) = (health(), Instant::now(), changes());
        health.connect_failed(&CONNECT_REFUSED, now);
        let out = changes();
        health.connected(now);
        assert!(out > before && changes() > out);
    }

    #[test]
    fn one_that_is_ejected_comes_back_in_time_and_not_by_a_connect() {
        let (health, now) = (health(), Instant::now());
        let policy =
            Outlier { errors: 2, window: AVOIDED_AT_MOST, rate: None, eject: 10 * AVOIDED, max: 0.5 };
        let fail = || health.answered(false, &policy, now, || (0, 3));
        fail();
        assert!(!health.is_out());
        fail();
        assert!(health.is_ejected() && health.may_dial(now) && health.may_dial(now));
        assert_eq!(
            health.out().map(|out| (out.reason, out.cause)),
            Some((Reason::Ejected, "errors_in_a_row"))
        );
        health.connected(now);
        assert!(health.is_ejected(), "it takes connections, and answers badly");
        health.enter(now);
        assert!(!health.is_out());
        fail();
        fail();
        assert_eq!((health.due().unwrap() - clock(now)) / 1000, 20, "twice as long");
    }
}
