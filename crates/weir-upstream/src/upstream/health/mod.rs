//! Whether an endpoint is in rotation, and why it is not.
//!
//! One [`Health`] belongs to one address of one upstream in the whole process. It outlives snapshots: a reload hands
//! it to the next endpoint with the same address (`registry`), an upgrade to the next process. An endpoint is out
//! while at least one [reason](OutReason) holds, and several may:
//!
//! ```text
//!   reason        begins                           ends                                    used by new exchanges
//!   unreachable   a connect refused or timed out   a trial in the background, or a probe   where all are out
//!   ejected       it answers badly (`outlier`)     in time                                 in panic
//!   probe_failed  `unhealthy` probes in a row      `healthy` probes in a row               in panic
//!   draining      an operator says so              in time, or an operator says so         never
//!   out           an operator says so              in time, or an operator says so         never
//! ```
//!
//! One number ([`changes`]) tells cores that something changed anywhere; checking it is a request's only cost while
//! everything is healthy. Changing an endpoint's state takes a lock, and is rare.
//!
//! An unreachable endpoint is avoided for 1 s, then twice as long each time, up to 30 s. If all of an upstream's
//! endpoints are avoided, requests dial themselves, but each endpoint at most once per [`BETWEEN_DIALS`]. Requests in
//! between are refused immediately, and a service that returns is found within that time.

mod reasons;
mod registry;

pub use reasons::ByHand;
pub(crate) use reasons::RotationState;
pub use reasons::Why;
pub use registry::Healths;

use super::outlier::{Outlier, Tally};
use crate::error::Cause;
use reasons::State;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use weir_telemetry::{EndpointId, OutReason, log, timestamp};

/// How long an unreachable endpoint is avoided; each further failure doubles it.
const AVOIDED: Duration = Duration::from_secs(1);

/// The longest time to avoid an endpoint before it is tried again.
const AVOIDED_AT_MOST: Duration = Duration::from_secs(30);

/// How long an endpoint must stay healthy to reset the doubling and the growth of ejections.
const FORGIVEN: Duration = Duration::from_secs(30);

/// How much longer an ejection lasts at most if the other endpoints answer as badly. Then the whole upstream fails,
/// and all endpoints are needed when it recovers. As HAProxy's `inter`.
const AFTER_OUTAGE: Duration = Duration::from_secs(2);

/// The shortest time between two dials to an avoided endpoint.
const BETWEEN_DIALS: Duration = Duration::from_millis(100);

/// Whether an endpoint is in rotation. On separate cache lines, so that a write does not disturb cores that read
/// others.
#[derive(Debug)]
#[repr(align(128))]
pub struct Health {
    /// A bit for each reason that holds.
    reasons: AtomicU8,
    /// When the next trial is due, on [`clock`]; 0 while it is reachable.
    trial: AtomicU64,
    /// When the first of the other reasons ends, on [`clock`]; [`NEVER`] if none ends without an event.
    ends: AtomicU64,
    /// The probes' last verdict: [`UNKNOWN`], [`PASSED`] or [`FAILED`].
    verdict: AtomicU8,
    /// While it is unreachable, nobody dials it before this time on [`clock`].
    no_dial_before: AtomicU64,
    /// Whether a request or task is dialing it to see if it is reachable again.
    is_being_dialled: AtomicBool,
    tally: Tally,
    state: Mutex<State>,
    upstream: Arc<str>,
    label: Arc<str>,
    cells: EndpointId,
    /// When it returned to rotation, on [`clock`]; 0 if it was never out.
    back_since: AtomicU64,
}

const UNKNOWN: u8 = 0;
const PASSED: u8 = 1;
const FAILED: u8 = 2;

/// A time that never comes.
const NEVER: u64 = u64::MAX;

/// A number that grows whenever any endpoint leaves or enters rotation. On its own cache line.
#[repr(align(128))]
struct Changes(AtomicU64);

static CHANGES: Changes = Changes(AtomicU64::new(1));

/// The number that cores compare; never 0.
#[inline]
pub(super) fn changes() -> u64 {
    CHANGES.0.load(Ordering::Acquire)
}

/// Milliseconds on the process's clock; never 0.
pub(super) fn clock(now: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(now.saturating_duration_since(*START).as_millis()).unwrap_or(NEVER).saturating_add(1)
}

/// A reason that begins to hold.
struct Begin {
    reason: OutReason,
    cause: Cow<'static, str>,
    detail: Option<Box<str>>,
    due: Option<Instant>,
}

impl Health {
    pub(crate) fn new(upstream: Arc<str>, label: Arc<str>, cells: EndpointId) -> Arc<Self> {
        clock(Instant::now()); // so that it started before anything it measures
        let (reasons, verdict, trial, no_dial_before, is_being_dialled) = Default::default();
        let (tally, state, back_since) = Default::default();
        let ends = AtomicU64::new(NEVER);
        Arc::new(Self {
            reasons,
            verdict,
            trial,
            ends,
            no_dial_before,
            is_being_dialled,
            tally,
            state,
            upstream,
            label,
            cells,
            back_since,
        })
    }

    // === state ===

    /// Every reason why it is out of rotation, the most severe first; none while it is in rotation.
    pub fn whys(&self) -> Vec<Why> {
        self.state().whys().cloned().collect()
    }

    /// What the current reasons mean for new exchanges.
    #[inline]
    pub(super) fn standing(&self) -> RotationState {
        RotationState::of(self.reasons.load(Ordering::Acquire))
    }

    /// Whether it is out of rotation.
    #[inline]
    pub(super) fn is_out(&self) -> bool {
        self.reasons.load(Ordering::Acquire) != 0
    }

    /// Whether sticky sessions continue: it is in rotation, or an operator drains it and nothing else is wrong.
    #[inline]
    pub(super) fn keeps_sessions(&self) -> bool {
        self.reasons.load(Ordering::Acquire) & !reasons::bit(OutReason::Draining) == 0
    }

    /// When it returned to rotation, on [`clock`]; 0 if it was never out.
    #[inline]
    pub(super) fn back_since(&self) -> u64 {
        self.back_since.load(Ordering::Relaxed)
    }

    /// Whether it is unreachable.
    #[inline]
    pub(super) fn is_unreachable(&self) -> bool {
        self.trial.load(Ordering::Acquire) != 0
    }

    /// When time alone may change something, on [`clock`]; [`NEVER`] if nothing does, `None` while it is in rotation.
    #[inline]
    pub(super) fn due(&self) -> Option<u64> {
        if !self.is_out() {
            return None;
        }
        let trial = match self.trial.load(Ordering::Acquire) {
            0 => NEVER,
            trial => trial.max(self.no_dial_before.load(Ordering::Relaxed)),
        };
        Some(trial.min(self.ends.load(Ordering::Acquire)))
    }

    // === connecting ===

    /// Whether it may be dialed now. While it is avoided, one dial per [`BETWEEN_DIALS`] may.
    #[inline]
    pub(super) fn may_dial(&self, now: Instant) -> bool {
        !self.is_unreachable() || self.claim(now, BETWEEN_DIALS)
    }

    /// Whether it is only unreachable, and its avoidance is over.
    pub fn is_to_be_tried(&self, now: Instant) -> bool {
        let trial = self.trial.load(Ordering::Acquire);
        self.standing() == RotationState::Unreachable
            && self.reasons.load(Ordering::Acquire) == reasons::bit(OutReason::Unreachable)
            && trial <= clock(now)
    }

    /// Whether a request or task is dialing it to see if it is reachable again.
    #[inline]
    pub(super) fn is_being_dialled(&self) -> bool {
        self.is_unreachable() && self.is_being_dialled.load(Ordering::Acquire)
    }

    /// Claims the trial of whether it is reachable again. Once the avoidance is over, one trial at a time may run,
    /// each for as long as it may take.
    #[inline]
    pub(super) fn claim_trial(&self, now: Instant, takes: Duration) -> bool {
        let trial = self.trial.load(Ordering::Acquire);
        trial != 0 && trial <= clock(now) && self.claim(now, takes.max(BETWEEN_DIALS))
    }

    fn claim(&self, now: Instant, takes: Duration) -> bool {
        let (at, end) = (clock(now), clock(now + takes));
        let mut before = self.no_dial_before.load(Ordering::Relaxed);
        while before <= at {
            match self.no_dial_before.compare_exchange_weak(before, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    self.is_being_dialled.store(true, Ordering::Release);
                    return true;
                }
                Err(other) => before = other,
            }
        }
        false
    }

    /// A connection was made, or any request may try one.
    #[inline]
    pub(super) fn connected(&self, now: Instant) {
        if self.is_unreachable() {
            self.end(&mut self.state(), &[OutReason::Unreachable], now);
        }
    }

    /// No connection could be made.
    pub(super) fn connect_failed(&self, cause: &'static Cause, now: Instant) {
        let mut state = self.state();
        self.no_dial_before.store(clock(now + BETWEEN_DIALS), Ordering::Relaxed);
        self.is_being_dialled.store(false, Ordering::Release);
        // It was dialed concurrently, or all endpoints are out: that is no further failure.
        if let Some(why) = state.get_mut(OutReason::Unreachable)
            && why.due.is_some_and(|due| now < due)
        {
            why.cause = cause.code.into();
            return;
        }
        if state.ended_before(OutReason::Unreachable, now, FORGIVEN) {
            state.failures = 0;
        }
        let wait = AVOIDED.saturating_mul(1 << state.failures.min(16)).min(AVOIDED_AT_MOST);
        state.failures = state.failures.saturating_add(1);
        let (reason, cause) = (OutReason::Unreachable, cause.code.into());
        self.begin(&mut state, Begin { reason, cause, detail: None, due: Some(now + wait) }, now);
    }

    // === answers and probes ===

    /// Counts an answer if there is an outlier policy. `others` is how many endpoints are out, and of how many.
    /// Returns whether it is spared: it answers as badly as the ejected ones, but too many are ejected already.
    #[must_use]
    #[inline]
    pub(super) fn answered(
        &self,
        ok: bool,
        policy: &Outlier,
        now: Instant,
        others: impl FnOnce() -> (usize, usize),
    ) -> bool {
        let Some(rule) = self.tally.note(ok, policy, clock(now)) else { return false };
        if self.is_out() {
            return false;
        }
        let (out, of) = others();
        if !policy.may_eject(out, of) {
            return of > 1;
        }
        let mut state = self.state();
        if state.get_mut(OutReason::Ejected).is_some() {
            return false; // another core was first
        }
        self.tally.clear();
        if state.ended_before(OutReason::Ejected, now, FORGIVEN) {
            state.ejections = 0;
        }
        state.ejections = state.ejections.saturating_add(1);
        let due = Some(now + policy.ejected_for(state.ejections));
        self.cells.eject(rule);
        let (reason, cause) = (OutReason::Ejected, rule.name().into());
        self.begin(&mut state, Begin { reason, cause, detail: None, due }, now);
        false
    }

    /// Ends an ejection within [`AFTER_OUTAGE`]: the endpoints that were not ejected answer as badly, so it proves
    /// nothing about this one.
    #[inline]
    pub(super) fn doubt_ejection(&self, now: Instant) {
        if self.ends.load(Ordering::Acquire) <= clock(now + AFTER_OUTAGE) {
            return;
        }
        let mut state = self.state();
        let due = now + AFTER_OUTAGE;
        let Some(why) = state.get_mut(OutReason::Ejected).filter(|why| why.due.is_some_and(|at| at > due))
        else {
            return;
        };
        why.due = Some(due);
        state.ejections = state.ejections.saturating_sub(1);
        self.publish(&state);
    }

    /// Counts a probe.
    pub(super) fn probed(&self, passed: bool) {
        self.cells.probed(passed);
    }

    /// The probes' last verdict; `None` before the first.
    pub(crate) fn verdict(&self) -> Option<bool> {
        match self.verdict.load(Ordering::Relaxed) {
            UNKNOWN => None,
            verdict => Some(verdict == PASSED),
        }
    }

    /// Enough probes in a row failed that the endpoint is out or stays out.
    pub(super) fn probe_failed(&self, cause: &'static str, detail: &str, now: Instant) {
        let mut state = self.state();
        self.verdict.store(FAILED, Ordering::Relaxed);
        if let Some(why) = state.get_mut(OutReason::ProbeFailed) {
            (why.cause, why.detail) = (cause.into(), Some(detail.into()));
            return;
        }
        let (reason, detail) = (OutReason::ProbeFailed, Some(detail.into()));
        self.begin(&mut state, Begin { reason, cause: cause.into(), detail, due: None }, now);
    }

    /// Enough probes in a row passed that the endpoint returns or stays in.
    pub(super) fn probe_passed(&self, now: Instant) {
        if self.verdict.swap(PASSED, Ordering::Relaxed) != PASSED {
            self.end(&mut self.state(), &[OutReason::ProbeFailed], now);
        }
    }

    /// It is no longer probed: forgets what probes found.
    pub(super) fn forget_probes(&self, now: Instant) {
        if self.verdict.swap(UNKNOWN, Ordering::Relaxed) == FAILED {
            self.end(&mut self.state(), &[OutReason::ProbeFailed], now);
        }
    }

    // === operators and time ===

    /// Does what an operator asks for.
    pub fn put(&self, by_hand: ByHand, now: Instant) {
        use OutReason::{Draining, Ejected, Out, Unreachable};
        let mut state = self.state();
        let (reason, other, time) = match by_hand {
            ByHand::Drain(time) => (Draining, Out, time),
            ByHand::In => return self.end(&mut state, &[Draining, Out, Ejected, Unreachable], now),
            ByHand::Out(time) => (Out, Draining, time),
        };
        let cause = "by_hand".into();
        self.begin(&mut state, Begin { reason, cause, detail: None, due: Some(now + time) }, now);
        self.end(&mut state, &[other], now);
    }

    /// Ends reasons whose time is over.
    pub fn tick(&self, now: Instant) {
        if self.ends.load(Ordering::Acquire) > clock(now) {
            return;
        }
        let mut state = self.state();
        let over = |why: &&Why| why.reason != OutReason::Unreachable && why.due.is_some_and(|due| due <= now);
        let over: Vec<OutReason> = state.whys().filter(over).map(|why| why.reason).collect();
        self.end(&mut state, &over, now);
    }

    // === changes ===

    /// Starts a reason or changes its time.
    fn begin(&self, state: &mut State, Begin { reason, cause, detail, due }: Begin, now: Instant) {
        let known = state.get_mut(reason).is_some_and(|why| {
            (why.cause, why.detail, why.due) = (cause.clone(), detail.clone(), due);
            true
        });
        let by_hand = matches!(reason, OutReason::Draining | OutReason::Out);
        if !known || by_hand {
            let until = due.map(|due| SystemTime::now() + due.saturating_duration_since(Instant::now()));
            let until = until.map_or_else(String::new, timestamp);
            let detail = detail.as_deref().unwrap_or_default();
            let fields: [(&str, &dyn std::fmt::Display); 5] = [
                ("upstream", &self.upstream),
                ("endpoint", &self.label),
                ("reason", &reason.name()),
                ("cause", &cause),
                // Probes have more detail and no end; the other reasons are the reverse.
                if detail.is_empty() { ("until", &until) } else { ("detail", &detail) },
            ];
            let said = if by_hand { log::info } else { log::warn };
            said("endpoint out of rotation", &fields);
        }
        if !known {
            let since = SystemTime::now();
            self.cells.begin_out(reason, since, true);
            self.cells.set_healthy(false);
            state.insert(Why { reason, cause, detail, since, began: now, due });
        }
        self.publish(state);
    }

    /// Ends those of these reasons that hold.
    fn end(&self, state: &mut State, reasons: &[OutReason], now: Instant) {
        for reason in reasons {
            let Some(why) = state.remove(*reason, now) else { continue };
            self.cells.end_out(*reason);
            match reason {
                OutReason::Ejected => self.tally.clear(),
                OutReason::Unreachable => {
                    self.no_dial_before.store(0, Ordering::Relaxed);
                    self.is_being_dialled.store(false, Ordering::Release);
                }
                _ => {}
            }
            let still: Vec<&str> = state.whys().map(|why| why.reason.name()).collect();
            let still = still.join(" ");
            let seconds = now.saturating_duration_since(why.began).as_secs_f32();
            let fields: [(&str, &dyn std::fmt::Display); 5] = [
                ("upstream", &self.upstream),
                ("endpoint", &self.label),
                ("reason", &reason.name()),
                ("seconds", &format_args!("{seconds:.1}")),
                ("still", &still),
            ];
            if still.is_empty() {
                log::info("endpoint back in rotation", &fields[..4]);
                self.back_since.store(clock(now), Ordering::Relaxed);
                self.cells.set_healthy(true);
            } else {
                log::info("endpoint stays out of rotation", &fields);
            }
        }
        self.publish(state);
    }

    /// Publishes the current reasons to the cores.
    fn publish(&self, state: &State) {
        let due = |why: &Why| why.due.map_or(NEVER, clock);
        let (mut reasons, mut trial, mut ends) = (0, 0, NEVER);
        for why in state.whys() {
            reasons |= reasons::bit(why.reason);
            match why.reason {
                OutReason::Unreachable => trial = due(why),
                _ => ends = ends.min(due(why)),
            }
        }
        self.trial.store(trial, Ordering::Release);
        self.ends.store(ends, Ordering::Release);
        self.reasons.store(reasons, Ordering::Release);
        CHANGES.0.fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Health {
    /// The endpoint is gone. If it returns, its metrics start as healthy.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.whys().next().is_some() {
            state.whys().for_each(|why| self.cells.end_out(why.reason));
            self.cells.set_healthy(true);
        }
    }
}

#[cfg(test)]
mod tests;
