//! What a gateway must know of gRPC: deadlines, and how to report errors. Messages pass unchanged.
//!
//! Source: "gRPC over HTTP2" (PROTOCOL-HTTP2.md) and "HTTP to gRPC Status Code Mapping" of the gRPC project.

pub use weir_h1::grpc::number;

use crate::phrases::neutral;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::time::Duration;
use weir_h1::Fields;
use weir_upstream::error::Cause;

/// Whether a message is gRPC, including gRPC-Web.
#[inline]
pub fn is_grpc(fields: &Fields) -> bool {
    fields.is_media("application/grpc")
}

/// Whether a message is gRPC-Web.
#[inline]
pub fn is_grpc_web(fields: &Fields) -> bool {
    fields.is_media("application/grpc-web")
}

/// The client's deadline, counted from the request's arrival. A malformed one counts as none, and is passed on for
/// the upstream to judge.
#[inline]
pub fn timeout(fields: &Fields) -> Option<Duration> {
    parse_timeout(fields.get_str("grpc-timeout")?)
}

/// Whether this is a deadline in gRPC's format.
pub fn is_timeout(text: &[u8]) -> bool {
    parse_timeout(text).is_some()
}

/// At most eight digits and a unit.
#[inline]
fn parse_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = digits.iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(n * 3600),
        b'M' => Duration::from_secs(n * 60),
        b'S' => Duration::from_secs(n),
        b'm' => Duration::from_millis(n),
        b'u' => Duration::from_micros(n),
        b'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

/// A deadline in gRPC's format: milliseconds if eight digits hold them, else seconds; never zero.
pub fn write_timeout(left: Duration) -> String {
    match left.as_millis().max(1) {
        millis @ ..=99_999_999 => format!("{millis}m"),
        millis => format!("{}S", (millis / 1000).min(99_999_999)),
    }
}

/// The status in the head of an answer without a message.
#[inline]
pub fn status_of(fields: &Fields) -> Option<u8> {
    read_status(fields.get_str("grpc-status")?)
}

/// Parses a status as sent: a number.
#[inline]
pub fn read_status(text: &[u8]) -> Option<u8> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The status that reports a cause to a gRPC client.
pub const fn status(cause: &Cause) -> u8 {
    const INTERNAL: u8 = 13;
    const UNAVAILABLE: u8 = 14;
    match cause.status {
        401 => 16,                  // UNAUTHENTICATED
        403 => 7,                   // PERMISSION_DENIED
        404 | 405 | 501 => 12,      // UNIMPLEMENTED
        408 => 4,                   // DEADLINE_EXCEEDED
        413 | 414 | 429 | 431 => 8, // RESOURCE_EXHAUSTED
        502 | 503 => UNAVAILABLE,
        // No connection was made, so another try may succeed. A missing answer may have had an effect.
        504 if matches!(cause.code.as_bytes(), b"connect_timeout") => UNAVAILABLE,
        504 => 4,
        // It had begun. If an upstream cut it, a client that knows whether it may retry can do so.
        0 => UNAVAILABLE,
        _ => INTERNAL,
    }
}

/// The name of a status, as a config writes it.
pub fn name(status: u8) -> &'static str {
    weir_h1::grpc::name(status.into())
}

/// `grpc-message`: the cause and its meaning, escaped as the protocol requires.
pub fn message(cause: &Cause, detail: &str) -> String {
    escape(&format!("{}: {detail}", cause.code))
}

/// A text escaped for `grpc-message`.
pub fn escape(message: &str) -> String {
    const SPECIAL: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(message, SPECIAL).to_string()
}

/// A message in gRPC's framing: uncompressed, preceded by its length.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(message.len() + 5);
    framed.push(0);
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// The trailers that end a response cut by the gateway: without them a client would see a reset and guess. `expose`
/// names the cause.
pub fn trailers(cause: &Cause, expose: bool) -> Vec<u8> {
    let message = if expose { message(cause, cause.meaning) } else { escape(neutral(0)) };
    format!("grpc-status: {}\r\ngrpc-message: {message}\r\n", status(cause)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_upstream::error;

    #[test]
    fn timeouts() {
        for (text, millis) in [
            ("1S", Some(1000)),
            ("250m", Some(250)),
            ("2000u", Some(2)),
            ("3000000n", Some(3)),
            ("1M", Some(60_000)),
            ("1H", Some(3_600_000)),
            ("99999999S", Some(99_999_999_000)),
            ("100000000S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("1x", None),
            ("-1S", None),
            ("1.5S", None),
        ] {
            assert_eq!(parse_timeout(text.as_bytes()), millis.map(Duration::from_millis), "{text}");
        }
        for (millis, text) in
            [(0, "1m"), (1500, "1500m"), (99_999_999, "99999999m"), (100_000_000, "100000S")]
        {
            assert_eq!(write_timeout(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn messages_are_escaped() {
        assert_eq!(message(&error::NO_ROUTE, "50 % of é\n"), "no_route: 50 %25 of %C3%A9%0A");
    }

    #[test]
    fn trailers_name_the_cause_only_where_it_is_exposed() {
        let told = |cause, expose| String::from_utf8(trailers(cause, expose)).unwrap();
        assert!(told(&error::TRUNCATED, true).contains("grpc-message: truncated: "));
        assert_eq!(told(&error::TRUNCATED, false), told(&error::UPSTREAM_BODY_TIMEOUT, false));
        assert!(!told(&error::TRUNCATED, false).contains("truncated"));
    }
}
