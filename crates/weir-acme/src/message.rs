//! The parts of ACME messages that we read: the resources of RFC 8555 §7.1, renewal information (RFC 9773), problems
//! (RFC 9457). All of it is untrusted input.

use crate::failure::{Failure, Kind, one_line};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::SystemTime;

const ERROR: &str = "urn:ietf:params:acme:error:";

/// The longest wait that we accept from an authority, in seconds.
const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// The directory: the URLs of all operations.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Directory {
    pub(crate) new_nonce: String,
    pub(crate) new_account: String,
    pub(crate) new_order: String,
    /// Only present if the authority offers renewal information.
    pub(crate) renewal_info: Option<String>,
    #[serde(default)]
    pub(crate) meta: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    #[serde(default)]
    pub(crate) external_account_required: bool,
    /// Certificate profiles, each with its description.
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, serde_json::Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) authorizations: Vec<String>,
    pub(crate) finalize: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) error: Option<Problem>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Authorization {
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) challenges: Vec<Challenge>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Challenge {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) error: Option<Problem>,
}

/// The status of orders, authorizations and challenges (RFC 8555 §7.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Deactivated,
    Expired,
    Invalid,
    Pending,
    Processing,
    Ready,
    Revoked,
    Valid,
}

/// When to renew a certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RenewalInfo {
    pub(crate) suggested_window: SuggestedWindow,
    #[serde(rename = "explanationURL")]
    pub(crate) explanation: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SuggestedWindow {
    pub(crate) start: String,
    pub(crate) end: String,
}

/// An error report from the authority.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Problem {
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) detail: String,
}

impl Problem {
    /// Whether it is this ACME error (RFC 8555 §6.7).
    pub(crate) fn is(&self, error: &str) -> bool {
        self.kind.strip_prefix(ERROR) == Some(error)
    }

    /// As text, with the shortest form of its type.
    pub(crate) fn text(&self) -> String {
        let kind = self.kind.strip_prefix(ERROR).unwrap_or(&self.kind);
        match (kind, self.detail.as_str()) {
            ("" | "about:blank", "") => "no reason was given".to_owned(),
            ("" | "about:blank", detail) => one_line(detail),
            (kind, "") => one_line(kind),
            (kind, detail) => one_line(&format!("{detail} ({kind})")),
        }
    }

    /// Converts a rejected request into a failure.
    pub(crate) fn failure(&self, status: u16, retry_after: Option<u64>) -> Failure {
        let kind = if self.is("rateLimited") || status == 429 {
            Kind::RateLimited
        } else if status >= 500 {
            Kind::Away
        } else if ["accountDoesNotExist", "externalAccountRequired", "invalidContact", "unsupportedContact"]
            .iter()
            .any(|error| self.is(error))
        {
            Kind::Account
        } else {
            Kind::Refused
        };
        let text = format!("the certificate authority answered {status}: {}", self.text());
        Failure { kind, text, retry_after }
    }
}

/// The seconds that a `Retry-After` requests (RFC 9110 §10.2.3), at most a day.
pub(crate) fn retry_after(value: &str, now: i64) -> Option<u64> {
    let value = value.trim();
    let seconds = match value.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let at = httpdate::parse_http_date(value).ok()?;
            let at = at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
            at.saturating_sub(u64::try_from(now).unwrap_or(0))
        }
    };
    Some(seconds.min(LONGEST_WAIT))
}

/// Parses an RFC 3339 time into seconds since 1970.
pub(crate) fn time(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let clock = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = clock.split_at_checked(8)?;
    let part = |text: &str, at: usize, length: usize| -> Option<i64> {
        let digits = text.get(at..at + length)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (part(date, 0, 4)?, part(date, 5, 2)?, part(date, 8, 2)?);
    let (hour, minute, second) = (part(clock, 0, 2)?, part(clock, 3, 2)?, part(clock, 6, 2)?);
    let separators = date.as_bytes().get(4) == Some(&b'-')
        && date.as_bytes().get(7) == Some(&b'-')
        && clock.as_bytes().get(2) == Some(&b':')
        && clock.as_bytes().get(5) == Some(&b':');
    let ranges =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !separators || !ranges {
        return None;
    }
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let zone = zone.strip_prefix(['+', '-']).filter(|zone| zone.len() == 5)?;
            sign * (part(zone, 0, 2)? * 60 + part(zone, 3, 2)?) * 60
        }
    };
    Some(days(year, month, day) * 86_400 + (hour * 60 + minute) * 60 + second - offset)
}

/// Days from 1970-01-01 to a Gregorian date. Counts years from March, so that a leap day is the last of its year.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// Whether we may call a URL that an authority names: only over TLS (RFC 8555 §6.1), and without characters that
/// could break a request.
pub(crate) fn may_ask(url: &str) -> bool {
    let place = url.strip_prefix("https://").map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
    let host = place.map(|place| place.rsplit_once(':').map_or(place, |(host, _)| host));
    url.len() <= 2048
        && url.bytes().all(|b| b.is_ascii_graphic())
        && host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
}

/// Whether a token is safe in a path and in a file name: a limited number of base64url characters (RFC 8555 §8.3).
pub(crate) fn is_token(token: &str) -> bool {
    (1..=256).contains(&token.len())
        && token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2025-01-02T04:00:00Z", Some(1_735_790_400)),
            ("2025-01-02T04:00:00.123456Z", Some(1_735_790_400)),
            ("2025-01-02T06:00:00+02:00", Some(1_735_790_400)),
            ("2025-01-02t00:30:00-03:30", Some(1_735_790_400)),
            ("2025-13-02T04:00:00Z", None),
            ("2025-01-02T04:00:00", None),
            ("2025-01-02", None),
            ("2025x01-02T04:00:00Z", None),
            ("2025-01-02T04:00:00+0200", None),
            ("ä025-01-02T04:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(time(text), seconds, "{text}");
        }
    }

    #[test]
    fn waits_are_read_and_bounded() {
        assert_eq!(retry_after(" 120 ", 0), Some(120));
        assert_eq!(retry_after("99999999", 0), Some(LONGEST_WAIT));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 40), Some(60));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 400), Some(0));
        assert_eq!(retry_after("soon", 0), None);
    }

    #[test]
    fn only_safe_urls_are_asked() {
        for (url, good) in [
            ("https://ca.test/a", true),
            ("https://[::1]:14000/dir", true),
            ("http://ca.test/a", false),
            ("https:///a", false),
            ("https://u@ca.test/", false),
            ("https://ca.test/a b", false),
            ("https://ca.test/\r\nHost: x", false),
        ] {
            assert_eq!(may_ask(url), good, "{url}");
        }
        assert!(is_token("abc-_0") && !is_token("") && !is_token("../a") && !is_token(&"a".repeat(257)));
    }

    #[test]
    fn problems_are_told_apart() {
        let problem =
            |kind: &str, detail: &str| Problem { kind: format!("{ERROR}{kind}"), detail: detail.to_owned() };
        assert_eq!(problem("rateLimited", "x").failure(429, Some(9)).kind, Kind::RateLimited);
        assert_eq!(problem("unauthorized", "x").failure(403, None).kind, Kind::Refused);
        assert_eq!(problem("serverInternal", "x").failure(500, None).kind, Kind::Away);
        assert_eq!(problem("caa", "CAA\nforbids").text(), "CAA forbids (caa)");
        assert_eq!(Problem::default().text(), "no reason was given");
    }
}
