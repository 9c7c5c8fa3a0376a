//! The generic cell rate algorithm: one limit, one number.
//!
//! A cell holds the *theoretical arrival time* (TAT): when the bucket is empty again. A request moves it on by the
//! interval between two requests at the limit's rate, unless it would then lie further ahead of now than the burst
//! allows. It is the leaky bucket of ITU-T I.371, without a clock of its own and without a second number to keep in
//! step.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A point in time: sixteenths of a nanosecond since [`ORIGIN`] before the process began. Enough for 36 years, and
/// fine enough for the interval of 99,999 requests per second to be right to six digits.
pub(super) type Time = u64;

pub(super) const SECOND: Time = 16 * 1_000_000_000;

/// The clock's reading when the process begins: 40 days, so that the beginning of the current month has a reading
/// too.
pub(super) const ORIGIN: Time = 40 * 86_400 * SECOND;

/// A time before all others: the TAT of a key that was never seen.
pub(super) const NEVER: Time = 0;

/// Longest time that a full burst may take to come back. 2^62 sixteenths, so that sums with any `Time` stay below
/// 2^64.
const WINDOW_MAX: u128 = 1 << 62;

/// The current time.
pub(super) fn now() -> Time {
    at(Instant::now())
}

/// Converts an instant already read from the clock.
pub(super) fn at(instant: Instant) -> Time {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = instant.saturating_duration_since(*START);
    let fraction = u64::from(since.subsec_nanos()) * (SECOND / 1_000_000_000);
    since.as_secs().saturating_mul(SECOND).saturating_add(fraction + ORIGIN)
}

/// Requests per time, and the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Time between two requests. Rounded up, so that the limit is never exceeded.
    pub(super) interval: Time,
    /// Time that a full burst takes to come back.
    pub(super) window: Time,
    /// How much of the window a request uses: the interval times its cost.
    pub(super) amount: Time,
}

/// The most that costs from responses can use, in windows. This bounds how long a client is kept waiting.
const DEBT_WINDOWS: u64 = 10;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The request may pass; `used` of the window is then taken.
    Allowed { used: Time },
    /// The request may not pass; `used` of the window is taken, and one request fits after `wait`.
    Denied { used: Time, wait: Time },
}

impl Rate {
    /// `None` if a burst takes longer than 9 years to come back, or if requests follow each other faster than the
    /// clock ticks.
    pub(super) fn new(requests: u32, per: Duration, burst: u32) -> Option<Self> {
        let interval = (per.as_nanos() * 16).div_ceil(u128::from(requests.max(1)));
        let window = interval.checked_mul(u128::from(burst)).filter(|w| *w <= WINDOW_MAX)?;
        if interval < 16 || burst == 0 {
            return None;
        }
        let interval = u64::try_from(interval).ok()?;
        Some(Self { interval, window: u64::try_from(window).ok()?, amount: interval })
    }

    /// A number of requests in each calendar span. Used requests come back when the next span begins: see `calendar`.
    pub(super) fn quota(requests: u32, shortest: Duration) -> Self {
        let interval = shortest.as_nanos() * 16 / u128::from(requests.max(1));
        let interval = u64::try_from(interval).unwrap_or(1).max(1);
        Self { interval, window: interval.saturating_mul(requests.max(1).into()), amount: interval }
    }

    /// The same rate for requests of this cost.
    pub(super) fn costing(self, cost: u32) -> Self {
        Self { amount: self.interval.saturating_mul(cost.into()), ..self }
    }

    /// Decides for a cell whose TAT is `tat`; `Ok` holds the new TAT.
    pub(super) fn decide(&self, tat: Time, now: Time) -> Result<(Time, Decision), Decision> {
        let from = tat.max(now);
        let next = from.saturating_add(self.amount);
        let used = next - now;
        if used <= self.window {
            return Ok((next, Decision::Allowed { used }));
        }
        Err(Decision::Denied { used: from - now, wait: used - self.window })
    }

    /// The TAT after taking `amount` more, even if it does not fit.
    pub(super) fn forced(&self, tat: Time, now: Time, amount: Time) -> Time {
        let most = now.saturating_add(self.window.saturating_mul(DEBT_WINDOWS));
        tat.max(now).saturating_add(amount).min(tat.max(most))
    }

    /// Number of requests that fit into the rest of the window.
    pub(super) const fn remaining(&self, used: Time) -> u64 {
        self.window.saturating_sub(used) / self.interval
    }
}

/// One limit that all cores share.
///
/// It has two cache lines of its own: processors fetch neighbouring lines in pairs, and writes to another limit must
/// not evict this one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Cell(AtomicU64);

impl Cell {
    /// A cell whose bucket is empty again at this time.
    pub(super) const fn at(tat: Time) -> Self {
        Self(AtomicU64::new(tat))
    }

    /// How far the TAT lies ahead.
    pub(super) fn debt(&self, now: Time) -> Time {
        self.0.load(Relaxed).saturating_sub(now)
    }

    /// Refunds the charge of a request.
    pub(super) fn refund(&self, amount: Time) {
        let less = |tat: Time| Some(tat.saturating_sub(amount));
        let _ = self.0.fetch_update(Relaxed, Relaxed, less); // the closure always returns a new value
    }

    /// Takes more, even if it does not fit; returns how much of the window is then taken.
    pub(super) fn force(&self, rate: &Rate, amount: Time, now: Time) -> Time {
        let more = |tat: Time| Some(rate.forced(tat, now, amount));
        let before = self.0.fetch_update(Relaxed, Relaxed, more).unwrap_or_default();
        rate.forced(before, now, amount) - now
    }

    /// Charges one request. Exact even if many cores charge at the same time: the new TAT is written only over the
    /// value that it was computed from. The cell orders no other memory, so relaxed ordering is enough.
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
