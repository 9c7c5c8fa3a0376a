//! When an exchange must be over, and how its upstream learns the deadline.

use super::{Exchange, Routed};
use std::time::{Duration, Instant};
use weir_filter::grpc;
use weir_h1::FieldName;
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::Upstream;
use weir_wire::Stream;

/// How long before a call's deadline a reset by the upstream still counts as the deadline. The upstream's value is
/// rounded down to milliseconds, and two clocks seldom agree. Our guess, far below any client's wait.
const DEADLINE_MARGIN: Duration = Duration::from_millis(10);

/// How much longer than its client asked a gRPC-Web call may last, if no filter translates it and its answer has
/// begun. Such a client reads trailers in the body, so a cut cannot tell it why; its service can, and also knows the
/// deadline. Our guess of how late a busy service is.
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

    /// When the exchange must be over, and the cause if it is not, if the config or a gRPC client limits its time.
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

    /// How long a response head may take, unless a filter wants it sooner.
    pub(super) fn response_limit(&self, configured: Duration) -> Duration {
        match self.cx.as_ref().and_then(|cx| cx.limits.response) {
            Some(limit) if configured.is_zero() || limit < configured => limit,
            _ => configured,
        }
    }

    /// Sends the upstream the time that is left of the exchange.
    pub(super) fn tell_deadline(&mut self, routed: Routed, spec: &Upstream) {
        self.shorten_grpc_timeout(routed, spec.timeouts.exchange);
        let Some(name) = &spec.deadline else { return };
        let Some((end, _)) = self.end(routed, spec.timeouts.exchange) else { return };
        let left = end.saturating_duration_since(Instant::now()).as_millis();
        // The client may have less patience than we have.
        let asked = self.head.headers.get_str(name.as_str());
        if asked.and_then(milliseconds).is_none_or(|asked| asked > left) {
            let _ = self.head.headers.insert(name, left.to_string().as_bytes()); // only digits
        }
    }

    /// Sends a gRPC upstream the time that is left, if the deadline is ours or other attempts have used some of it.
    fn shorten_grpc_timeout(&mut self, routed: Routed, of_upstream: Duration) {
        if self.grpc_timeout.is_none() && !self.calls_grpc() {
            return;
        }
        let (asked, limit) = match (self.grpc_timeout, self.own_limit(routed, of_upstream)) {
            (Some(asked), own) => (asked, own.map_or(asked, |own| own.min(asked))),
            (None, Some(own)) => (Duration::MAX, own), // only we know the deadline of a call that a filter made
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

/// The smaller one and its cause; if they are equal, the first.
pub(super) fn sooner<T: PartialOrd>(
    a: Option<(T, &'static Cause)>,
    b: Option<(T, &'static Cause)>,
) -> Option<(T, &'static Cause)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The cause if an upstream reset a stream because of the deadline: gRPC servers in Go end a call so, without a
/// status. `end` is when the exchange must be over, and the cause if it is not.
pub(super) fn of_reset(stream: &Stream, end: Option<(Instant, &'static Cause)>) -> Option<&'static Cause> {
    let told = |cause: &Cause| *cause == error::GRPC_TIMEOUT || *cause == error::EXCHANGE_TIMEOUT;
    let (at, cause) = end.filter(|(_, cause)| told(cause))?;
    let stream = stream.h2().filter(|stream| stream.is_reset_by_peer() && !stream.is_refused());
    (stream.is_some() && is_near(Instant::now(), at)).then_some(cause)
}

fn is_near(now: Instant, deadline: Instant) -> bool {
    now + DEADLINE_MARGIN >= deadline
}

/// Parses a client's number of milliseconds.
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
