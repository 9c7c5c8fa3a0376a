//! Whether an endpoint is in rotation, and why it is not.
//!
//! One [`Health`] belongs to one address of one upstream in the whole process. It outlives snapshots: a reload hands it to
//! the next endpoint with the same address (`registry`), and an upgrade to the next process. An endpoint is out while at
//! least one [reason](OutReason) holds, and several may:
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
//! Cores learn that something changed anywhere by one number ([`changes`]), which is all that a request pays while
//! everything is well. What changes an endpoint's state takes a lock, and is rare.
//!
//! One that cannot be connected to is avoided for 1 s, then twice as long each time, up to 30 s. Where all endpoints of an
//! upstream are avoided, requests dial themselves, but an endpoint at most once in [`BETWEEN_DIALS`]: whoever comes
//! between is refused at once, and a service that comes back is found within that time.

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

/// How long an endpoint is avoided that could not be connected to; each further failure doubles it.
const AVOIDED: Duration = Duration::from_secs(1);

/// The longest that an endpoint is avoided before it is tried again.
const AVOIDED_AT_MOST: Duration = Duration::from_secs(30);

/// How long an endpoint must be well for the doubling, or the growing of ejections, to begin anew.
const FORGIVEN: Duration = Duration::from_secs(30);

/// How much longer an ejection lasts at most when the endpoints that were not ejected answer as badly: it is the
/// whole upstream that fails, and when that is over all of them are needed. As HAProxy's `inter`.
const AFTER_OUTAGE: Duration = Duration::from_secs(2);

/// How often an endpoint is dialled at most while it is avoided.
const BETWEEN_DIALS: Duration = Duration::from_millis(100);

/// Whether an endpoint is in rotation. Lines of its own, so that a core that writes does not disturb those that read others.
#[derive(Debug)]
#[repr(align(128))]
pub struct Health {
    /// A bit for each reason that holds.
    reasons: AtomicU8,
    /// When it is due for a trial, on [`clock`]; 0 while it can be connected to.
    trial: AtomicU64,
    /// When the first of the other reasons is over, on [`clock`]; [`NEVER`] where none is by itself.
    ends: AtomicU64,
    /// What its probes decided last: [`UNKNOWN`], [`PASSED`] or [`FAILED`].
    verdict: AtomicU8,
    /// Until then nobody dials it while it is unreachable, on [`clock`].
    no_dial_before: AtomicU64,
    /// Whether somebody is finding out if it can be connected to again.
    is_being_dialled: AtomicBool,
    tally: Tally,
    state: Mutex<State>,
    upstream: Arc<str>,
    label: Arc<str>,
    cells: EndpointId,
    /// When it came back into rotation, on [`clock`]; 0: it never was out.
    back_since: AtomicU64,
}

const UNKNOWN: u8 = 0;
const PASSED: u8 = 1;
const FAILED: u8 = 2;

/// A time that does not come.
const NEVER: u64 = u64::MAX;

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
        clock(Instant::now()); // so that it started before whatever is measured by it
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

    // === what it is ===

    /// Every reason why it is out of rotation, the one that weighs most first; none while it is in rotation.
    pub fn whys(&self) -> Vec<Why> {
        self.state().whys().cloned().collect()
    }

    /// What the reasons that hold mean for new exchanges.
    #[inline]
    pub(super) fn standing(&self) -> RotationState {
        RotationState::of(self.reasons.load(Ordering::Acquire))
    }

    /// Whether it is out of rotation.
    #[inline]
    pub(super) fn is_out(&self) -> bool {
        self.reasons.load(Ordering::Acquire) != 0
    }

    /// Whether the sessions that stick to it go on: it is in rotation, or an operator drains it and nothing else is wrong with it.
    #[inline]
    pub(super) fn keeps_sessions(&self) -> bool {
        self.reasons.load(Ordering::Acquire) & !reasons::bit(OutReason::Draining) == 0
    }

    /// When it came back into rotation, on [`clock`]; 0: it never was out.
    #[inline]
    pub(super) fn back_since(&self) -> u64 {
        self.back_since.load(Ordering::Relaxed)
    }

    /// Whether it cannot be connected to.
    #[inline]
    pub(super) fn is_unreachable(&self) -> bool {
        self.trial.load(Ordering::Acquire) != 0
    }

    /// When something may change by itself, on [`clock`]; [`NEVER`] if nothing does, `None` while it is in rotation.
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

    /// Whether it may be dialled now. While it is avoided, one in [`BETWEEN_DIALS`] may.
    #[inline]
    pub(super) fn may_dial(&self, now: Instant) -> bool {
        !self.is_unreachable() || self.claim(now, BETWEEN_DIALS)
    }

    /// Whether nothing is wrong with it but that it could not be connected to, and the time is over for which it is
    /// avoided.
    pub fn is_to_be_tried(&self, now: Instant) -> bool {
        let trial = self.trial.load(Ordering::Acquire);
        self.standing() == RotationState::Unreachable
            && self.reasons.load(Ordering::Acquire) == reasons::bit(OutReason::Unreachable)
            && trial <= clock(now)
    }

    /// Whether somebody is finding out if it can be connected to again.
    #[inline]
    pub(super) fn is_being_dialled(&self) -> bool {
        self.is_unreachable() && self.is_being_dialled.load(Ordering::Acquire)
    }

    /// The right to find out whether it can be connected to again: once its time is over, one at a time, each for as long
    /// as it may take.
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

    /// A connection was made, or may be tried by whoever wants one.
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
        // Others dialled at the same time, or all endpoints are out: that is no further failure.
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

    /// Counts an answer where there is a policy for it. `others`: how many endpoints are out, and of how many. Tells
    /// whether it is spared: it answers as badly as those that were ejected, and too many of them were.
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

    /// Lets an ejection end within [`AFTER_OUTAGE`]: those that were not ejected answer as badly, so it says nothing
    /// of this endpoint.
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

    /// What its probes decided last; `None` before the first.
    pub(crate) fn verdict(&self) -> Option<bool> {
        match self.verdict.load(Ordering::Relaxed) {
            UNKNOWN => None,
            verdict => Some(verdict == PASSED),
        }
    }

    /// So many probes in a row failed that the endpoint is out, or stays out.
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

    /// So many probes in a row passed that the endpoint is back, or stays in.
    pub(super) fn probe_passed(&self, now: Instant) {
        if self.verdict.swap(PASSED, Ordering::Relaxed) != PASSED {
            self.end(&mut self.state(), &[OutReason::ProbeFailed], now);
        }
    }

    /// It is probed no more: what probes said is forgotten.
    pub(super) fn forget_probes(&self, now: Instant) {
        if self.verdict.swap(UNKNOWN, Ordering::Relaxed) == FAILED {
            self.end(&mut self.state(), &[OutReason::ProbeFailed], now);
        }
    }

    // === operators and time ===

    /// Does what an operator asks.
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

    /// Ends what has lasted as long as it should.
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

    /// A reason holds from now on, or for another time.
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
                // A probe has more to tell, and no end; for the rest it is the other way round.
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

    /// Reasons hold no longer, those of them that did.
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

    /// Tells the cores what holds now.
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
    /// The endpoint is gone. Should it come back, its metrics begin as those of one that is well.
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
