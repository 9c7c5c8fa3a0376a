//! Whether a failed attempt is repeated: the policy, without I/O.
//!
//! Harmless repeats need no policy: see `attempts`. All others need `upstreams.*.retry` and are paid from the
//! upstream's `budget`.

use std::time::{Duration, SystemTime};

/// `upstreams.*.retry`, as run.
#[derive(Debug)]
pub struct Retry {
    /// Attempts in total, including the first.
    pub attempts: u32,
    /// What to retry.
    pub on: Conditions,
    /// Whether to resend requests that may already have had their effect.
    pub all_methods: bool,
    /// How long one attempt may take until the head of its response.
    pub per_try: Option<Duration>,
    /// The pause before the same endpoint is asked again.
    pub backoff: Duration,
    /// How much of a request's body is kept for another attempt, in bytes.
    pub body: usize,
    /// Retries per request, from 0 to 1.
    pub budget: f64,
}

/// `upstreams.*.hedge`, as run.
#[derive(Debug)]
pub struct Hedge {
    /// How long an answer may take before another endpoint is asked too.
    pub after: Duration,
    /// Second attempts per request, from 0 to 1.
    pub budget: f64,
}

/// What to retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// A connection that broke.
    pub reset: bool,
    /// A stream that the upstream refused unprocessed.
    pub refused_stream: bool,
    /// An attempt that took too long.
    pub timeout: bool,
    /// Answers with these statuses.
    pub statuses: Vec<u16>,
    /// By their numbers.
    pub grpc: Vec<u8>,
}

/// The result of an attempt that reached its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// A gRPC status without a message.
    Grpc(u8),
    /// A refused HTTP/2 stream.
    RefusedStream,
    /// The connection ended before any byte of a response.
    Reset,
    /// A response with this status, and the wait that its Retry-After asks for.
    Status(u16, Option<Duration>),
    /// No response head in time.
    Timeout,
}

/// The facts about a request that may be sent again.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// It may arrive twice (RFC 9110 §9.2.2).
    pub idempotent: bool,
    /// No byte of it was written, or the upstream says that it has not processed it.
    pub unseen: bool,
    /// All of its body that was sent is still kept.
    pub kept: bool,
}

/// The longest Retry-After to wait for; after a longer one there is no retry.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The backoff doubles up to this many times.
const DOUBLINGS: u32 = 5;

impl Retry {
    /// Whether the policy wants the request sent again after `made` attempts.
    #[inline]
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

    /// How long to wait before the same endpoint is asked again; `None` for no retry. `nth` counts from 0; `random`
    /// is any number.
    #[inline]
    pub(crate) fn pause(&self, failed: Failed, nth: u32, random: u32) -> Option<Duration> {
        if let Failed::Status(_, Some(asked)) = failed {
            return Some(asked).filter(|asked| *asked <= LONGEST_WAIT);
        }
        let longest = self.backoff.saturating_mul(1 << nth.min(DOUBLINGS));
        // Between half and all of it.
        Some(longest.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0))
    }
}

/// How long a `Retry-After` asks to wait: seconds, or until a date (RFC 9110 §10.2.3).
pub fn retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
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
            budget: 0.2,
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
}
