//! When an exchange must be over, and how its upstream learns of it.

use super::{Exchange, Routed};
use std::time::{Duration, Instant};
use weir_filter::grpc;
use weir_h1::FieldName;
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::Upstream;
use weir_wire::Stream;

/// How long before the deadline of a call its upstream may reset it because of that deadline. What an upstream is told is rounded down to
/// milliseconds, and two clocks seldom agree: our guess, and far below what any client waits.
const DEADLINE_MARGIN: Duration = Duration::from_millis(10);

/// How much longer than its client asked for a call of gRPC-Web may last that passes as it is, once its answer has begun. A cut cannot be told such a
/// client, whose trailers stand in the body; its service knows the deadline too, and can. Our guess: what a busy service is late by.
const WEB_GRACE: Duration = Duration::from_millis(250);

impl Exchange<'_> {
    /// When a response that has begun must be over: see [`WEB_GRACE`].
    pub(super) fn end_of_response(
        &self,
        routed: Routed,
        of_upstream: Duration,
    ) -> Option<(Instant, &'static Cause)> {
        let (at, cause) = self.end(routed, of_upstream)?;
        let untold =
            *cause == error::GRPC_TIMEOUT && !self.calls_grpc() && grpc::is_grpc_web(&self.head.headers);
        Some((if untold { at + WEB_GRACE } else { at }, cause))
    }

    /// When the exchange must be over, and the cause if it is not, where its time is limited: by the config, or by a gRPC
    /// client.
    pub(super) fn end(&self, routed: Routed, of_upstream: Duration) -> Option<(Instant, &'static Cause)> {
        let (limit, cause) = match (self.grpc_timeout, self.own_limit(routed, of_upstream)) {
            (None, None) => return None,
            (Some(asked), Some(own)) if own < asked => (own, &error::EXCHANGE_TIMEOUT),
            (Some(asked), _) => (asked, &error::GRPC_TIMEOUT),
            (None, Some(own)) => (own, &error::EXCHANGE_TIMEOUT),
        };
        Some((self.started.checked_add(limit)?, cause))
    }

    fn own_limit(&self, routed: Routed, of_upstream: Duration) -> Option<Duration> {
        let route = &self.local.routes[routed.route].handling;
        let configured = Some(route.exchange_timeout.unwrap_or(of_upstream)).filter(|limit| !limit.is_zero());
        match self.cx.as_ref().and_then(|cx| cx.limits.exchange) {
            Some(limit) => Some(configured.map_or(limit, |other| other.min(limit))),
            None => configured,
        }
    }

    /// How long the head of a response may take, where a filter does not want it sooner.
    pub(super) fn response_limit(&self, configured: Duration) -> Duration {
        match self.cx.as_ref().and_then(|cx| cx.limits.response) {
            Some(limit) if configured.is_zero() || limit < configured => limit,
            _ => configured,
        }
    }

    /// Tells the upstream what is left of the exchange's time.
    pub(super) fn tell_deadline(&mut self, routed: Routed, spec: &Upstream) {
        self.shorten_grpc_timeout(routed, spec.timeouts.exchange);
        let Some(name) = &spec.deadline else { return };
        let Some((end, _)) = self.end(routed, spec.timeouts.exchange) else { return };
        let left = end.saturating_duration_since(Instant::now()).as_millis();
        // Who asked may have less patience than we.
        let asked = self.head.headers.get_str(name.as_str());
        if asked.and_then(milliseconds).is_none_or(|asked| asked > left) {
            let _ = self.head.headers.insert(name, left.to_string().as_bytes()); // digits alone
        }
    }

    /// Tells a gRPC upstream what is left of the deadline, where that is our own or where time was spent on other attempts.
    fn shorten_grpc_timeout(&mut self, routed: Routed, of_upstream: Duration) {
        if self.grpc_timeout.is_none() && !self.calls_grpc() {
            return;
        }
        let (asked, limit) = match (self.grpc_timeout, self.own_limit(routed, of_upstream)) {
            (Some(asked), own) => (asked, own.map_or(asked, |own| own.min(asked))),
            (None, Some(own)) => (Duration::MAX, own), // of a call that a filter made, nobody but us knows the deadline
            (None, None) => return,
        };
        if (limit < asked || self.attempts > 1)
            && let Ok(name) = FieldName::new("grpc-timeout")
        {
            let left = limit.saturating_sub(self.started.elapsed());
            let _ = self.head.headers.insert(&name, grpc::write_timeout(left).as_bytes()); // digits and a letter
        }
    }
}

/// The smaller one, and its cause; of two that are equal the first.
pub(super) fn sooner<T: PartialOrd>(
    a: Option<(T, &'static Cause)>,
    b: Option<(T, &'static Cause)>,
) -> Option<(T, &'static Cause)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Why an upstream reset a stream, where that is the deadline: servers of gRPC in Go end a call so, without a status. `end`: when the exchange must
/// be over, and the cause if it is not.
pub(super) fn of_reset(stream: &Stream, end: Option<(Instant, &'static Cause)>) -> Option<&'static Cause> {
    let told = |cause: &Cause| *cause == error::GRPC_TIMEOUT || *cause == error::EXCHANGE_TIMEOUT;
    let (at, cause) = end.filter(|(_, cause)| told(cause))?;
    let stream = stream.h2().filter(|stream| stream.is_reset_by_peer() && !stream.is_refused());
    (stream.is_some() && is_near(Instant::now(), at)).then_some(cause)
}

fn is_near(now: Instant, deadline: Instant) -> bool {
    now + DEADLINE_MARGIN >= deadline
}

/// A number of milliseconds as a client may write it.
fn milliseconds(text: &[u8]) -> Option<u128> {
    let digits = str::from_utf8(text).ok()?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_near_within_its_margin() {
        let now = Instant::now();
        for (left, near) in [(0, true), (10, true), (11, false), (60_000, false)] {
            assert_eq!(is_near(now, now + Duration::from_millis(left)), near, "{left}");
        }
        assert!(is_near(now + Duration::from_secs(1), now), "it has passed");
    }
}
