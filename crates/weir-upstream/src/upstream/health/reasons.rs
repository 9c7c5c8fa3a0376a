//! Why an endpoint is out of rotation, and what that means for new exchanges. No lock; the time is passed in.

use super::clock;
use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};
use weir_telemetry::OutReason;

/// What the current reasons mean for new exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RotationState {
    /// An operator drains it: only its sticky sessions continue.
    Draining,
    /// In rotation.
    In,
    /// An operator took it out.
    Out,
    /// It is unhealthy, but used if too few are healthy.
    Suspect,
    /// It is unreachable; tried if all endpoints are out.
    Unreachable,
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByHand {
    /// No new exchanges for this long. Running exchanges finish, and sticky sessions continue.
    Drain(Duration),
    /// Back into rotation: ends a drain, an ejection and the avoidance. Probes still count.
    In,
    /// No new exchanges at all for this long.
    Out(Duration),
}

/// One reason why an endpoint is out of rotation.
#[derive(Clone, Debug)]
pub struct Why {
    /// Which reason.
    pub reason: OutReason,
    /// The latest cause: a cause's code, the rule that ejected it, why its probe failed, or `by_hand`.
    pub cause: Cow<'static, str>,
    /// More about it, for people.
    pub detail: Option<Box<str>>,
    /// Since when.
    pub since: SystemTime,
    pub(super) began: Instant,
    /// When it ends or the endpoint is tried again, if time alone decides that.
    pub(super) due: Option<Instant>,
}

/// What is known of one endpoint.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By the number of the reason.
    whys: [Option<Why>; OutReason::ALL.len()],
    /// When each reason last held.
    ended: [Option<Instant>; OutReason::ALL.len()],
    /// How many connects in a row have failed.
    pub(super) failures: u32,
    /// How many ejections have followed each other.
    pub(super) ejections: u32,
}

impl Why {
    /// How long it still holds, or until the endpoint is tried again. `None` if time alone does not decide, or it is
    /// over. To the millisecond, as cores see it.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let due = self.due.filter(|due| clock(*due) > clock(now))?;
        Some(due.saturating_duration_since(now))
    }
}

/// The bit of a reason.
#[inline]
pub(super) const fn bit(reason: OutReason) -> u8 {
    1 << reason as u8
}

impl RotationState {
    /// From a bit per current reason. The most restrictive reason wins.
    #[inline]
    pub(super) const fn of(reasons: u8) -> Self {
        const fn holds(reasons: u8, reason: OutReason) -> bool {
            reasons & bit(reason) != 0
        }
        if reasons == 0 {
            Self::In
        } else if holds(reasons, OutReason::Out) {
            Self::Out
        } else if holds(reasons, OutReason::Draining) {
            Self::Draining
        } else if holds(reasons, OutReason::Unreachable) {
            Self::Unreachable
        } else {
            Self::Suspect
        }
    }

    /// Whether an operator took it out.
    #[inline]
    pub(crate) const fn is_by_hand(self) -> bool {
        matches!(self, Self::Draining | Self::Out)
    }
}

impl State {
    /// The current reasons, the most severe first.
    pub(super) fn whys(&self) -> impl Iterator<Item = &Why> {
        use OutReason::{Draining, Ejected, Out, ProbeFailed, Unreachable};
        [Out, Draining, Unreachable, ProbeFailed, Ejected]
            .into_iter()
            .filter_map(|reason| self.whys[reason as usize].as_ref())
    }

    pub(super) const fn get_mut(&mut self, reason: OutReason) -> Option<&mut Why> {
        self.whys[reason as usize].as_mut()
    }

    pub(super) fn insert(&mut self, why: Why) {
        let at = why.reason as usize;
        self.whys[at] = Some(why);
    }

    pub(super) fn remove(&mut self, reason: OutReason, now: Instant) -> Option<Why> {
        let why = self.whys[reason as usize].take()?;
        self.ended[reason as usize] = Some(now);
        Some(why)
    }

    /// Whether a reason does not hold and has not for this long.
    pub(super) fn ended_before(&self, reason: OutReason, now: Instant, long: Duration) -> bool {
        let ended = self.ended[reason as usize];
        self.whys[reason as usize].is_none()
            && ended.is_some_and(|at| now.saturating_duration_since(at) >= long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutReason::{Draining, Ejected, Out, ProbeFailed, Unreachable};

    #[test]
    fn the_reason_that_leaves_least_wins() {
        for (reasons, standing) in [
            (&[][..], RotationState::In),
            (&[Ejected], RotationState::Suspect),
            (&[ProbeFailed, Ejected], RotationState::Suspect),
            (&[ProbeFailed, Unreachable], RotationState::Unreachable),
            (&[Draining, Unreachable], RotationState::Draining),
            (&[Draining, Out, Ejected], RotationState::Out),
        ] {
            let bits = reasons.iter().fold(0, |bits, reason| bits | bit(*reason));
            assert_eq!(RotationState::of(bits), standing, "{reasons:?}");
        }
    }
}
