//! Whether a failed attempt is made again: the policy, without I/O, and its budget.
//!
//! What can do no harm needs no policy: see `attempts`. The rest is asked for by `upstreams.*.retry`, and paid from a
//! budget that all cores share, so that retries never answer load with load.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// `upstreams.*.retry`, as run.
#[derive(Debug)]
pub(crate) struct Retry {
    /// Attempts in all, the first included.
    pub(crate) attempts: u32,
    pub(crate) on: Conditions,
    /// Whether a request may be sent again that may have had its effect.
    pub(crate) all_methods: bool,
    /// How long one attempt may take until the head of its response.
    pub(crate) per_try: Option<Duration>,
    /// The pause before an endpoint is asked again that has just failed.
    pub(crate) backoff: Duration,
    /// How much of a request's body is kept for another attempt, in bytes.
    pub(crate) body: usize,
    pub(crate) budget: Arc<Budget>,
}

/// `upstreams.*.hedge`, as run.
#[derive(Debug)]
pub(crate) struct Hedge {
    /// How long an answer may take before another endpoint is asked too.
    pub(crate) after: Duration,
    pub(crate) budget: Arc<Budget>,
}

/// What is tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) reset: bool,
    pub(crate) refused_stream: bool,
    pub(crate) timeout: bool,
    pub(crate) statuses: Vec<u16>,
    /// By their numbers.
    pub(crate) grpc: Vec<u8>,
}

/// What came of an attempt that reached its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// gRPC said so without a message: its status.
    Grpc(u8),
    /// A stream of HTTP/2 was refused.
    RefusedStream,
    /// The connection ended before any byte of a response.
    Reset,
    /// A response with this status, and how long its Retry-After asks to wait.
    Status(u16, Option<Duration>),
    /// No response head in time.
    Timeout,
}

/// What is known of a request that may be sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// It may arrive twice (RFC 9110 §9.2.2).
    pub(crate) idempotent: bool,
    /// No byte of it was written, or the upstream says that it has not looked at it.
    pub(crate) unseen: bool,
    /// All of its body that was sent is still here.
    pub(crate) kept: bool,
}

/// The longest Retry-After that is waited for; what asks for more is not asked again.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The backoff doubles up to this many times.
const DOUBLINGS: u32 = 5;

/// Retries at a time that need no budget while there are few requests.
const ALWAYS: u32 = 3;

/// The most retries that can be saved up, in requests' shares of one.
const SAVED_AT_MOST: i64 = 1_000 * ONE;

/// A retry, in the unit that requests pay in.
const ONE: i64 = 1_000_000;

impl Retry {
    /// Whether the policy wants the request sent again, `made` attempts having been made.
    pub(crate) fn wants(&self, failed: Failed, request: Request, made: u32) -> bool {
        let listed = match failed {
            Failed::Grpc(status) => self.on.grpc.contains(&status),
            Failed::RefusedStream => self.on.refused_stream,
            Failed::Reset => self.on.reset,
            Failed::Status(status, _) => self.on.statuses.contains(&status),
            Failed::Timeout => self.on.timeout,
        };
        let harmless = request.idempotent || request.unseen || self.all_methods;
        listed && harmless && request.kept && made < self.attempts
    }

    /// How long to wait before the same endpoint is asked again; `None`: not at all. `nth` counts from 0; `random` is any
    /// number.
    pub(crate) fn pause(&self, failed: Failed, nth: u32, random: u32) -> Option<Duration> {
        if let Failed::Status(_, Some(asked)) = failed {
            return Some(asked).filter(|asked| *asked <= LONGEST_WAIT);
        }
        let longest = self.backoff.saturating_mul(1 << nth.min(DOUBLINGS));
        // Between half of it and all of it.
        Some(longest.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0))
    }
}

/// How long a `Retry-After` asks to wait: seconds, or until a date (RFC 9110 §10.2.3).
pub(crate) fn retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

/// How many retries there may be, for all cores together. Lines of its own: only upstreams with `retry` touch them.
///
/// Each request pays a share of a retry in, each retry takes one out. An upstream that fails wholly sees at most
/// 1 + budget times the requests.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Budget {
    share: f64,
    saved: AtomicI64,
    requests: AtomicU32,
    retries: AtomicU32,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Budget>);

/// A retry under way.
#[derive(Debug)]
pub(crate) struct Granted(Arc<Budget>);

impl Budget {
    /// `share`: retries per request, from 0 to 1.
    pub(crate) fn new(share: f64) -> Arc<Self> {
        let (saved, requests, retries) = Default::default();
        Arc::new(Self { share, saved, requests, retries })
    }

    /// Retries per request, from 0 to 1.
    pub(crate) const fn share(&self) -> f64 {
        self.share
    }

    /// The same as [`Budget::new`], with a few that are saved up already: for attempts of which none is free.
    pub(crate) fn with_some(share: f64) -> Arc<Self> {
        let some = if share > 0.0 { i64::from(ALWAYS) * ONE } else { 0 };
        let (requests, retries) = Default::default();
        Arc::new(Self { share, saved: AtomicI64::new(some), requests, retries })
    }

    /// Whether it has this share.
    pub(crate) fn is(&self, share: f64) -> bool {
        (self.share - share).abs() < f64::EPSILON
    }

    /// Counts a request.
    pub(crate) fn enter(self: &Arc<Self>) -> Counted {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.pay();
        Counted(Arc::clone(self))
    }

    /// Pays the share of a request in.
    pub(crate) fn pay(&self) {
        if self.saved.load(Ordering::Relaxed) < SAVED_AT_MOST {
            self.saved.fetch_add((self.share * ONE as f64) as i64, Ordering::Relaxed);
        }
    }

    /// Takes one out, if there is one.
    pub(crate) fn spend(&self) -> bool {
        let paid = self.saved.fetch_sub(ONE, Ordering::Relaxed) >= ONE;
        if !paid {
            self.saved.fetch_add(ONE, Ordering::Relaxed);
        }
        paid
    }

    /// The right to retry, if there is one.
    pub(crate) fn grant(self: &Arc<Self>) -> Option<Granted> {
        let few = f64::from(self.requests.load(Ordering::Relaxed)) * self.share < f64::from(ALWAYS);
        let paid = self.spend();
        let others = self.retries.fetch_add(1, Ordering::Relaxed);
        let granted = Granted(Arc::clone(self)); // counts down again where it is not given
        (paid || (few && others < ALWAYS)).then_some(granted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.0.retries.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many requests an upstream without `retry` may repeat, on one core: one of five, as the default of `retry.budget` has it.
///
/// Not shared: a request that is answered at once costs an addition to a line that its core has at hand.
#[derive(Debug)]
pub(crate) struct Unasked(Cell<u32>);

impl Unasked {
    /// Requests that pay for one repeat.
    const PRICE: u32 = 5;
    /// The most repeats that can be saved up: as many as may be under way at an endpoint that dies.
    const SAVED_AT_MOST: u32 = 1_000 * Self::PRICE;

    /// With a few that are saved up already.
    pub(crate) const fn new() -> Self {
        Self(Cell::new(ALWAYS * Self::PRICE))
    }

    /// Counts a request.
    #[inline]
    pub(crate) fn pay(&self) {
        self.0.set((self.0.get() + 1).min(Self::SAVED_AT_MOST));
    }

    /// Takes one out, if there is one.
    pub(crate) fn spend(&self) -> bool {
        let left = self.0.get().checked_sub(Self::PRICE);
        left.inspect(|left| self.0.set(*left)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry() -> Retry {
        Retry {
            attempts: 3,
            on: Conditions { reset: true, statuses: vec![503], grpc: vec![14], ..Conditions::default() },
            all_methods: false,
            per_try: None,
            backoff: Duration::from_millis(20),
            body: 1024,
            budget: Budget::new(0.2),
        }
    }

    const SAFE: Request = Request { idempotent: true, unseen: false, kept: true };

    #[test]
    fn only_what_is_listed_and_harmless_is_tried_again() {
        let retry = retry();
        let unsafe_ = Request { idempotent: false, ..SAFE };
        for (failed, request, made, expected) in [
            (Failed::Reset, SAFE, 1, true),
            (Failed::Reset, SAFE, 3, false),
            (Failed::Reset, unsafe_, 1, false),
            (Failed::Reset, Request { unseen: true, ..unsafe_ }, 1, true),
            (Failed::Reset, Request { kept: false, ..SAFE }, 1, false),
            (Failed::Timeout, SAFE, 1, false),
            (Failed::Status(503, None), SAFE, 2, true),
            (Failed::Status(502, None), SAFE, 1, false),
            (Failed::Grpc(14), SAFE, 1, true),
            (Failed::Grpc(13), SAFE, 1, false),
            (Failed::RefusedStream, SAFE, 1, false),
        ] {
            assert_eq!(retry.wants(failed, request, made), expected, "{failed:?} {request:?} {made}");
        }
        let all = Retry { all_methods: true, ..retry };
        assert!(all.wants(Failed::Reset, unsafe_, 1));
    }

    #[test]
    fn pauses_grow_and_respect_what_was_asked() {
        let retry = retry();
        let ms = |nth, random| retry.pause(Failed::Reset, nth, random).unwrap().as_millis();
        assert_eq!([ms(0, 0), ms(0, u32::MAX), ms(1, 0), ms(2, 0), ms(99, u32::MAX)], [10, 20, 20, 40, 640]);
        let asked = |seconds| retry.pause(Failed::Status(503, Some(Duration::from_secs(seconds))), 0, 0);
        assert_eq!((asked(1), asked(60)), (Some(Duration::from_secs(1)), None));
    }

    #[test]
    fn one_of_five_is_repeated_unasked() {
        let unasked = Unasked::new();
        let repeated = (0..1_000).filter(|_| {
            unasked.pay();
            unasked.spend()
        });
        assert_eq!(repeated.count(), 203);
    }

    #[test]
    fn a_failing_upstream_sees_no_more_than_the_budget() {
        let budget = Budget::new(0.2);
        let (mut under_way, mut retries) = (Vec::new(), 0);
        for _ in 0..10_000 {
            under_way.push(budget.enter());
            if under_way.len() > 50 {
                under_way.remove(0);
            }
            // The first fifty are few.
            retries += u32::from(under_way.len() > 50 - 1 && budget.grant().is_some());
        }
        assert!((1990..=2000).contains(&retries), "{retries}");
    }

    #[test]
    fn what_is_never_free_is_paid_but_for_the_first_few() {
        let budget = Budget::with_some(0.05);
        let spent = (0..1_000).filter(|_| {
            budget.pay();
            budget.spend()
        });
        assert_eq!(spent.count(), 3 + 50);
    }

    #[test]
    fn few_requests_may_always_retry_three_at_a_time() {
        let budget = Budget::new(0.01);
        let _one = budget.enter();
        let granted: Vec<_> = (0..5).map(|_| budget.grant()).collect();
        assert_eq!(granted.iter().flatten().count(), 3);
        drop(granted);
        assert!(budget.grant().is_some());
    }
}
