//! The generic cell rate algorithm: one limit, one number.
//!
//! A cell holds the *theoretical arrival time* (TAT): when the bucket is empty again. A request moves it on by the
//! interval between two requests at the limit's rate, unless it would then lie further ahead of now than the burst
//! allows. It is the leaky bucket of ITU-T I.371, without a clock of its own and without a second number to keep in step.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A point in time: sixteenths of a nanosecond since the process began. Enough for 36 years, and fine enough for the
/// interval of 99,999 requests a second to be right to six digits.
pub(super) type Time = u64;

pub(super) const SECOND: Time = 16 * 1_000_000_000;

/// A time before every other: the TAT of a key that was never seen.
pub(super) const NEVER: Time = 0;

/// Longest time that a full burst may take to come back. 2^62 sixteenths: sums with any `Time` stay below 2^64.
const WINDOW_MAX: u128 = 1 << 62;

/// Now. The first clock read of the process is 1, so that `NEVER` is before it.
pub(super) fn now() -> Time {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let nanos = u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX);
    nanos.saturating_mul(16).saturating_add(1)
}

/// How fast, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Time between two requests. Rounded up, so that the limit is never exceeded.
    pub(super) interval: Time,
    /// Time that a full burst takes to come back.
    pub(super) window: Time,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It may pass; `used` of the window is then taken.
    Allowed { used: Time },
    /// It may not; `used` of the window is taken, and one request will fit after `wait`.
    Denied { used: Time, wait: Time },
}

impl Rate {
    /// `None` when a burst takes longer than 9 years to come back, or requests follow each other faster than the clock.
    pub(super) fn new(requests: u32, per: Duration, burst: u32) -> Option<Self> {
        let interval = (per.as_nanos() * 16).div_ceil(u128::from(requests.max(1)));
        let window = interval.checked_mul(u128::from(burst)).filter(|w| *w <= WINDOW_MAX)?;
        if interval < 16 || burst == 0 {
            return None;
        }
        Some(Self { interval: u64::try_from(interval).ok()?, window: u64::try_from(window).ok()? })
    }

    /// Decides for a cell whose TAT is `tat`; `Ok` holds the new TAT.
    pub(super) fn decide(&self, tat: Time, now: Time) -> Result<(Time, Decision), Decision> {
        let from = tat.max(now);
        let next = from.saturating_add(self.interval);
        let used = next - now;
        if used <= self.window {
            return Ok((next, Decision::Allowed { used }));
        }
        Err(Decision::Denied { used: from - now, wait: used - self.window })
    }

    /// Requests that fit into what is left of the window.
    pub(super) const fn remaining(&self, used: Time) -> u64 {
        self.window.saturating_sub(used) / self.interval
    }
}

/// One limit that all cores share.
///
/// In two cache lines of its own: neighbours are fetched in pairs, and another limit's writes must not evict this one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Cell(AtomicU64);

impl Cell {
    /// One whose bucket is empty again at this time.
    pub(super) const fn at(tat: Time) -> Self {
        Self(AtomicU64::new(tat))
    }

    /// How far the TAT lies ahead.
    pub(super) fn debt(&self, now: Time) -> Time {
        self.0.load(Relaxed).saturating_sub(now)
    }

    /// Charges one request. Exact however many cores do so at once: the new TAT is written only over the very one it was
    /// made from. The cell orders nothing else, so relaxed is enough.
    pub(super) fn charge(&self, rate: &Rate, now: Time) -> Decision {
        let mut tat = self.0.load(Relaxed);
        loop {
            let (next, decision) = match rate.decide(tat, now) {
                Ok(allowed) => allowed,
                Err(denied) => return denied,
            };
            match self.0.compare_exchange_weak(tat, next, Relaxed, Relaxed) {
                Ok(_) => return decision,
                Err(other) => tat = other,
            }
        }
    }
}
