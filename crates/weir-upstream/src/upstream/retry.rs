//! Whether a failed attempt is repeated: the policy, without I/O.
//!
//! Harmless repeats need no policy: see `attempts`. All others need `upstreams.*.retry` and are paid from the
//! upstream's `budget`.

use crate::error::{self, Cause};
use std::time::{Duration, SystemTime};

/// `upstreams.*.retry`, compiled.
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
    /// The pause before another attempt at the same endpoint.
    pub backoff: Duration,
    /// How much of a request's body is kept for another attempt, in bytes.
    pub body: usize,
    /// Retries per request, from 0 to 1.
    pub budget: f64,
}

/// `upstreams.*.hedge`, compiled.
#[derive(Debug)]
pub struct Hedge {
    /// How long an answer may take before a second attempt starts at another endpoint.
    pub after: Duration,
    /// Second attempts per request, from 0 to 1.
    pub budget: f64,
}

/// What to retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// A broken connection.
    pub reset: bool,
    /// A stream that the upstream refused unprocessed.
    pub refused_stream: bool,
    /// A timed-out attempt.
    pub timeout: bool,
    /// Answers with these statuses.
    pub statuses: Vec<u16>,
    /// gRPC statuses, by number.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether it may arrive twice (RFC 9110 §9.2.2).
    pub idempotent: bool,
    /// Whether no byte of it was written, or the upstream says that it has not processed it.
    pub unseen: bool,
    /// Whether all the body bytes sent so far are still kept.
    pub kept: bool,
}

/// A request that its upstream has not processed, as far as can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// A reused connection ended before any byte of a response.
    KeptAlive,
    /// An HTTP/2 connection ended and said that it had not reached this stream (GOAWAY, RFC 9113 §6.8).
    LeftOut,
    /// The stream was refused, but its connection lives (RFC 9113 §8.7).
    Refused,
}

/// The facts about an attempt without a response head.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Why it failed.
    pub cause: &'static Cause,
    /// Whether the request may arrive twice (RFC 9110 §9.2.2).
    pub idempotent: bool,
    /// Whether any byte of the request was written.
    pub written: bool,
    /// Whether all the body bytes sent so far are still kept and no byte of a response arrived.
    pub kept: bool,
    /// Whether the connection had carried an earlier request.
    pub reused: bool,
    /// Whether HTTP/2 says that the upstream has not processed the request.
    pub refused: bool,
    /// Whether the upstream reset only the stream, not the HTTP/2 connection. Such a reset counts as an answer.
    pub reset: bool,
}

/// A failed attempt that may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The result.
    pub failed: Failed,
    /// The request.
    pub request: Request,
    /// A race, if it was one: nobody is to blame, so the attempt is repeated without a policy.
    pub race: Option<Race>,
}

/// The counts of one request so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Attempts that reached an endpoint, except keep-alive races. Hedged attempts are included.
    made: u32,
    hedges: u32,
    retries: u32,
    races: u32,
    /// Endpoints at which a connect timed out.
    timed_out: u32,
    /// Whether the next connection must not be from the pool.
    fresh: bool,
}

/// What a decision needs from its surroundings.
pub(super) trait World {
    /// Avoids the endpoint that just failed, if there is another.
    fn avoid(&mut self);
    /// Another endpoint in rotation at which no attempt of this request has failed.
    fn another(&mut self) -> Option<usize>;
    /// A random number.
    fn random(&mut self) -> u32;
    /// Whether the exchange will last longer than this pause.
    fn has_time_for(&mut self, pause: Duration) -> bool;
    /// Takes one token from the budget, which gets `share` tokens per request. Returns false if there is none.
    fn pays(&mut self, share: f64) -> bool;
}

/// What happens to a request whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The request is sent again after `pause`, to the endpoint `at` if that is known.
    Again { at: Option<usize>, pause: Duration },
    /// The request fails.
    Never,
    /// The request fails because the budget is spent.
    Unpaid,
}

/// How many times a race is repeated on pooled connections; the last repeat uses a fresh one. A refused stream leaves
/// its connection open, so its repeats stay on pooled ones: connecting each time would add load to a loaded upstream.
const MAX_RACES: u32 = 1;

/// Retries per request of an upstream without `retry`: the default of `retry.budget`.
const UNASKED: f64 = 0.2;

/// How many endpoints may let one request's connect time out. Each costs a whole `timeouts.connect`.
const MAX_TIMED_OUT: u32 = 3;

/// How many bytes of a request body are kept for repeats without a policy. Small requests fit, including gRPC calls.
const KEPT_BYTES: usize = 16 * 1024;

/// The longest Retry-After that we wait for. If it asks for more, there is no retry.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The backoff doubles up to this many times.
const DOUBLINGS: u32 = 5;

// === impl Retry ===

impl Retry {
    /// Whether the policy wants the request sent again after `made` attempts.
    fn wants(&self, failed: Failed, request: Request, made: u32) -> bool {
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

    /// The pause before another attempt at the same endpoint; `None` for no retry. `nth` counts from 0; `random` is
    /// any number.
    fn pause(&self, failed: Failed, nth: u32, random: u32) -> Option<Duration> {
        if let Failed::Status(_, Some(asked)) = failed {
            return Some(asked).filter(|asked| *asked <= LONGEST_WAIT);
        }
        let longest = self.backoff.saturating_mul(1 << nth.min(DOUBLINGS));
        // Between half of it and all of it.
        Some(longest.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0))
    }

    /// Whether the policy keeps a body until the final answer.
    #[inline]
    pub const fn keeps(&self, idempotent: bool) -> bool {
        idempotent || self.all_methods
    }
}

/// How many bytes of a request's body are kept for another attempt. `may_repeat` says that the request could be sent
/// again without a policy: by a hedge, after a race, or to another endpoint.
#[inline]
pub fn kept_body(retry: Option<&Retry>, idempotent: bool, h2: bool, may_repeat: bool) -> Option<usize> {
    let by_policy = retry.filter(|retry| retry.keeps(idempotent)).map(|retry| retry.body);
    by_policy.or((h2 || (idempotent && may_repeat)).then_some(KEPT_BYTES))
}

// === impl Failed ===

impl Failed {
    /// Classifies an answer. `grpc` is its status if it has no message, `after` its Retry-After.
    pub fn of_answer(status: u16, grpc: Option<u8>, after: Option<&[u8]>) -> Self {
        match grpc {
            Some(status) => Self::Grpc(status),
            None => Self::Status(status, after.and_then(|field| retry_after(field, SystemTime::now()))),
        }
    }
}

// === impl Lost ===

impl Lost {
    /// Classifies an attempt without a response head; `None` if no policy repeats it.
    pub fn of(facts: &Facts) -> Option<Self> {
        let Facts { cause, idempotent, written, kept, reused, refused, reset } = *facts;
        let broken = *cause == error::UPSTREAM_CLOSED || *cause == error::UPSTREAM_RESET;
        let failed = match refused {
            true => Failed::RefusedStream,
            false if *cause == error::RESPONSE_TIMEOUT => Failed::Timeout,
            false if broken => Failed::Reset,
            false => return None,
        };
        let race = match (refused, reset) {
            (true, true) => Some(Race::Refused),
            (true, false) => Some(Race::LeftOut),
            (false, _) => (broken && !reset && reused && (idempotent || !written)).then_some(Race::KeptAlive),
        };
        let request = Request { idempotent, unseen: refused || !written, kept };
        Some(Self { failed, request, race: race.filter(|_| kept) })
    }

    /// An answer that a policy may retry. It was read, so the upstream has seen the request.
    pub const fn answered(failed: Failed, idempotent: bool, kept: bool) -> Self {
        Self { failed, request: Request { idempotent, unseen: false, kept }, race: None }
    }
}

// === impl Tally ===

impl Tally {
    /// Counts the start of an attempt.
    #[inline]
    pub(super) const fn begin(&mut self) {
        self.made += 1;
    }

    /// Whether the next connection must not be from the pool.
    #[inline]
    pub(super) const fn wants_fresh(&self) -> bool {
        self.fresh
    }

    /// Counts a failed connect. Returns whether to try another endpoint; `elsewhere` says that one may succeed.
    pub(super) const fn unreached(&mut self, elsewhere: bool, timed_out: bool) -> bool {
        self.made -= 1;
        self.timed_out += timed_out as u32;
        elsewhere && self.timed_out < MAX_TIMED_OUT
    }

    /// Whether another endpoint is tried if this connect times out.
    pub(super) const fn may_time_out(&self) -> bool {
        self.timed_out + 1 < MAX_TIMED_OUT
    }

    /// Whether the request may be sent once more beside the current attempt.
    pub(super) fn may_hedge(&self, retry: Option<&Retry>) -> bool {
        retry.map_or_else(|| self.is_first(), |retry| self.made < retry.attempts)
    }

    /// Counts a hedged attempt that was sent.
    pub(super) const fn hedged(&mut self) {
        self.made += 1;
        self.hedges += 1;
    }

    /// Whether the request was attempted only once, by the rules of an upstream without `retry`.
    const fn is_first(&self) -> bool {
        self.retries + self.hedges == 0
    }

    /// Decides whether a failed attempt is repeated, where, and when.
    pub(super) fn again(&mut self, retry: Option<&Retry>, lost: Lost, world: &mut impl World) -> Decision {
        let Lost { failed, request, race } = lost;
        let share = retry.map_or(UNASKED, |retry| retry.budget);
        if race.is_some_and(|race| self.repeats(race, retry, share, world)) {
            return Decision::Again { at: None, pause: Duration::ZERO };
        }
        let wanted = match retry {
            Some(retry) => retry.wants(failed, request, self.made),
            None => failed == Failed::Reset && request.idempotent && request.kept && self.is_first(),
        };
        if !wanted {
            return Decision::Never;
        }
        world.avoid();
        let at = world.another();
        let pause = match (at, retry) {
            (Some(_), _) => Some(Duration::ZERO), // another endpoint needs no pause
            (None, Some(retry)) => retry.pause(failed, self.retries, world.random()),
            (None, None) => None,
        };
        let Some(pause) = pause.filter(|pause| world.has_time_for(*pause)) else { return Decision::Never };
        if !world.pays(share) {
            return Decision::Unpaid;
        }
        self.retries += 1;
        self.fresh = false;
        Decision::Again { at, pause }
    }

    /// Whether a race is repeated. If not, it counts as a failed attempt.
    ///
    /// The keep-alive race is free: the last repeat gets a fresh connection, which has no such race. An upstream that
    /// refuses streams may refuse all of them. So each of those repeats is paid for, and counts as an attempt towards
    /// the limit of `retry`.
    fn repeats(&mut self, race: Race, retry: Option<&Retry>, share: f64, world: &mut impl World) -> bool {
        let may_pay = || retry.is_none_or(|retry| self.made < retry.attempts);
        if self.races > MAX_RACES || (race != Race::KeptAlive && !(may_pay() && world.pays(share))) {
            return false;
        }
        self.races += 1;
        self.made -= u32::from(race == Race::KeptAlive);
        self.fresh = self.races > MAX_RACES && race != Race::Refused;
        if race != Race::Refused {
            world.avoid();
        }
        true
    }
}

/// The wait that a `Retry-After` asks for: seconds, or until a date (RFC 9110 §10.2.3).
pub fn retry_after(field: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(field).ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

#[cfg(test)]
mod tests;
