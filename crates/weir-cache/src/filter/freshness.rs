//! The age and lifetime of an answer: RFC 9111 §4.2. No clocks; times are arguments.

use super::control::{Control, number};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use weir_h1::Fields;

/// What an answer says about its age and lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    pub(super) status: u16,
    /// The directives that apply: CDN-Cache-Control if present (RFC 9213 §2.2), otherwise Cache-Control.
    pub(super) control: Control,
    targeted: bool,
    /// Whether its Cache-Control does not count, by the config.
    pub(super) ignores_control: bool,
    pub(super) date: Option<SystemTime>,
    expires: Option<Expires>,
    pub(super) last_modified: Option<SystemTime>,
    age: Age,
}

/// Lifetimes of answers that specify none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Defaults {
    /// For successful answers.
    pub(super) ttl: Option<Duration>,
    /// For answers that report that there is nothing.
    pub(super) negative: Option<Duration>,
    /// Use a tenth of the time since the last modification (RFC 9111 §4.2.2).
    pub(super) heuristic: bool,
    /// Also for answers to requests with a cookie, because the key includes the cookie.
    pub(super) with_cookie: bool,
    /// In place of `ttl` and `negative`.
    pub(super) by_status: Option<ByStatus>,
    /// What an answer says in vain.
    pub(super) ignored: Ignored,
}

/// Lifetimes by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ByStatus {
    pub(super) statuses: BTreeMap<u16, Duration>,
    /// By the first digit, from 2 on.
    pub(super) classes: [Option<Duration>; 4],
    pub(super) any: Option<Duration>,
}

/// Which fields are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ignored {
    pub(super) control: bool,
    pub(super) expires: bool,
    pub(super) vary: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expires {
    At(SystemTime),
    /// Some time in the past: an invalid date, such as `0` (RFC 9111 §5.3).
    Past,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    None,
    Seconds(u32),
    /// Not a number, or several: the age is unknown.
    Unknown,
}

/// The longest heuristic lifetime.
const MOST_GUESSED: Duration = Duration::from_secs(24 * 3600);

impl Freshness {
    pub(super) fn of(status: u16, fields: &Fields, ignored: Ignored) -> Self {
        let targeted = Control::targeted(fields);
        let mut expires = fields.get_all("expires");
        let expires = match (expires.next(), expires.next()) {
            (None, _) => None,
            (Some(one), None) => Some(date(one).map_or(Expires::Past, Expires::At)),
            (Some(_), Some(_)) => Some(Expires::Past),
        };
        let own = || if ignored.control { Control::default() } else { Control::of(fields) };
        let expires = expires.filter(|_| !ignored.expires);
        Self {
            status,
            control: targeted.unwrap_or_else(own),
            targeted: targeted.is_some(),
            ignores_control: ignored.control,
            date: fields.get_str("date").and_then(date),
            expires,
            last_modified: fields.get_str("last-modified").and_then(date),
            age: age(fields),
        }
    }

    /// Whether the answer specifies its lifetime.
    pub(super) fn says_lifetime(&self) -> bool {
        let stated = self.control.s_maxage.or(self.control.max_age);
        stated.is_some() || (self.expires.is_some() && !self.targeted)
    }

    /// Its lifetime, counted from its creation; `None` if neither the answer nor the config specifies one.
    pub(super) fn lifetime(&self, defaults: &Defaults, received: SystemTime) -> Option<Duration> {
        let stated = self.control.s_maxage.or(self.control.max_age);
        if let Some(seconds) = stated {
            return Some(Duration::from_secs(seconds.into()));
        }
        match self.expires.filter(|_| !self.targeted) {
            Some(Expires::Past) => return Some(Duration::ZERO),
            Some(Expires::At(at)) => return Some(since(self.date.unwrap_or(received), at)),
            None => {}
        }
        let (well, nothing) = (defaults.ttl, defaults.negative);
        let by_config = match (&defaults.by_status, self.status) {
            (Some(by_status), status) => by_status.of(status),
            (None, 200 | 203 | 204 | 300 | 301 | 308) => well,
            (None, 404 | 405 | 410 | 414 | 501) => nothing,
            _ => None,
        };
        by_config.or_else(|| self.guess(received).filter(|_| defaults.heuristic))
    }

    /// The heuristic lifetime, for statuses for which RFC 9110 §15.1 allows one, and for other `public` answers.
    fn guess(&self, received: SystemTime) -> Option<Duration> {
        let may_be = matches!(self.status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501);
        let changed = self.last_modified.filter(|_| may_be || self.control.public)?;
        Some((since(changed, self.date.unwrap_or(received)) / 10).min(MOST_GUESSED))
    }

    /// Its age on arrival (RFC 9111 §4.2.3), after a request that took this long.
    pub(super) fn age_when(&self, received: SystemTime, took: Duration) -> Duration {
        let apparent = self.date.map_or(Duration::ZERO, |date| since(date, received));
        let stated = match self.age {
            Age::None => Duration::ZERO,
            Age::Seconds(seconds) => Duration::from_secs(seconds.into()),
            Age::Unknown => return Duration::from_secs(u32::MAX.into()),
        };
        apparent.max(stated + took)
    }

    /// Whether it forbids stale use (RFC 9111 §4.2.4).
    pub(super) const fn must_be_fresh(&self) -> bool {
        self.control.must_revalidate || self.control.proxy_revalidate || self.control.no_cache
    }
}

impl ByStatus {
    /// The lifetime of an answer with this status; `None` if it is not kept.
    pub(super) fn of(&self, status: u16) -> Option<Duration> {
        let class = || usize::from(status / 100).checked_sub(2).and_then(|at| *self.classes.get(at)?);
        // A refusal of one client or of one request would be served to others: only the status itself asks for that.
        let is_of_one =
            matches!(status, 400 | 401 | 403 | 407 | 408 | 413 | 417 | 421 | 425 | 426 | 428 | 429 | 431);
        let general = || if is_of_one { None } else { class().or(self.any) };
        let time = self.statuses.get(&status).copied().or_else(general);
        time.filter(|time| !time.is_zero())
    }
}

fn since(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

/// An HTTP date (RFC 9110 §5.6.7) in any of its three forms.
pub(super) fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(text).ok()?.trim_ascii()).ok()
}

fn age(fields: &Fields) -> Age {
    let mut lines = fields.get_all("age");
    match (lines.next(), lines.next()) {
        (None, _) => Age::None,
        (Some(one), None) => number(one.trim_ascii()).map_or(Age::Unknown, Age::Seconds),
        (Some(_), Some(_)) => Age::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Lines, fields};
    use super::*;

    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn now() -> SystemTime {
        date(NOW.as_bytes()).unwrap()
    }

    fn freshness(status: u16, lines: &[(&str, &str)]) -> Freshness {
        Freshness::of(status, &fields(lines), Ignored::default())
    }

    #[test]
    fn lifetimes_by_status() {
        let seconds = Duration::from_secs;
        let mut by_status = ByStatus { any: Some(seconds(1)), ..ByStatus::default() };
        by_status.statuses.insert(200, seconds(5));
        by_status.statuses.insert(404, Duration::ZERO);
        by_status.classes[2] = Some(seconds(3));
        by_status.statuses.insert(403, seconds(9));
        let found = [200, 201, 302, 410, 404, 503, 401, 429, 403]
            .map(|status| by_status.of(status).map(|time| time.as_secs()));
        let refused_one = None;
        assert_eq!(
            found,
            [Some(5), Some(1), Some(1), Some(3), None, Some(1), refused_one, refused_one, Some(9)]
        );
        assert_eq!(ByStatus::default().of(200), None);
    }

    #[test]
    fn lifetimes() {
        let defaults = Defaults {
            ttl: Some(Duration::from_secs(7)),
            negative: Some(Duration::from_secs(3)),
            ..Defaults::default()
        };
        let expires = ("Expires", "Sun, 06 Nov 1994 08:50:37 GMT");
        let cases: &[(u16, Lines<'_>, Option<u64>)] = &[
            (200, &[("Cache-Control", "max-age=60")], Some(60)),
            (200, &[("Cache-Control", "max-age=60, s-maxage=10")], Some(10)),
            (200, &[("Cache-Control", "max-age=1, s-maxage=10"), expires], Some(10)),
            (200, &[("Cache-Control", "max-age=60"), ("CDN-Cache-Control", "max-age=5")], Some(5)),
            (200, &[("CDN-Cache-Control", "no-cache"), expires], Some(7)),
            (200, &[expires, ("Date", NOW)], Some(60)),
            (200, &[expires], Some(60)),
            (200, &[expires, ("Date", "no date")], Some(60)),
            (200, &[("Expires", "0")], Some(0)),
            (200, &[expires, expires], Some(0)),
            (200, &[("Expires", NOW)], Some(0)),
            (200, &[], Some(7)),
            (404, &[], Some(3)),
            (404, &[("Cache-Control", "max-age=60")], Some(60)),
            (500, &[], None),
            (302, &[], None),
        ];
        for (status, lines, seconds) in cases {
            let lifetime = freshness(*status, lines).lifetime(&defaults, now());
            assert_eq!(lifetime, seconds.map(Duration::from_secs), "{status} {lines:?}");
        }
        assert_eq!(freshness(200, &[]).lifetime(&Defaults::default(), now()), None);
    }

    #[test]
    fn what_must_not_be_used_when_it_is_stale() {
        for (control, must) in [
            ("max-age=9", false),
            ("max-age=9, must-revalidate", true),
            ("max-age=9, proxy-revalidate", true),
            ("no-cache", true),
        ] {
            assert_eq!(freshness(200, &[("cache-control", control)]).must_be_fresh(), must, "{control}");
        }
    }

    #[test]
    fn guesses() {
        let heuristic = Defaults { heuristic: true, ..Defaults::default() };
        let changed = ("Last-Modified", "Sun, 06 Nov 1994 08:39:37 GMT");
        let public = ("Cache-Control", "public");
        for (status, lines, seconds) in [
            (200, &[changed][..], Some(60)),
            (200, &[("Last-Modified", "Sat, 06 Nov 1993 08:39:37 GMT")], Some(24 * 3600)),
            (200, &[("Last-Modified", "Mon, 06 Nov 1995 08:39:37 GMT")], Some(0)),
            (201, &[changed], None),
            (404, &[changed], Some(60)),
            (599, &[changed, public], Some(60)),
        ] {
            let lifetime = freshness(status, lines).lifetime(&heuristic, now());
            assert_eq!(lifetime, seconds.map(Duration::from_secs), "{status} {lines:?}");
        }
        assert_eq!(freshness(200, &[changed]).lifetime(&Defaults::default(), now()), None);
    }

    #[test]
    fn ages() {
        let took = Duration::from_secs(2);
        let never = u64::from(u32::MAX);
        for (lines, seconds) in [
            (&[][..], 2),
            (&[("Age", "5")], 7),
            (&[("Date", "Sun, 06 Nov 1994 08:49:07 GMT")], 30),
            (&[("Date", "Sun, 06 Nov 1994 08:49:07 GMT"), ("Age", "100")], 102),
            (&[("Date", "Sun, 06 Nov 1994 09:49:07 GMT")], 2),
            (&[("Age", "x")], never),
            (&[("Age", "-7")], never),
            (&[("Age", "7.0")], never),
            (&[("Age", "0, 0")], never),
            (&[("Age", "0"), ("Age", "0")], never),
            (&[("Age", "7;a=1")], never),
            (&[("Age", "")], never),
        ] {
            assert_eq!(
                freshness(200, lines).age_when(now(), took),
                Duration::from_secs(seconds),
                "{lines:?}"
            );
        }
    }
}
