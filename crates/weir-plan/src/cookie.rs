//! The cookie jar of a user (RFC 6265 §5), with the prefixes of its successor draft.
//!
//! There is no list of public suffixes: a `Domain` without a dot is refused unless it is the host itself, but one
//! such as `co.uk` is not. A load test talks to the servers of its plan, so no stranger can set such a cookie.

// fuzz/ builds this file alone, from elsewhere.
#[path = "cookie/date.rs"]
mod date;

use crate::limits::{COOKIE_BYTES, COOKIES};
use crate::origin::Origin;
use std::net::IpAddr;
use std::time::Duration;
use weir_h1::Fields;

/// Longest domain and path of a cookie that are kept.
const SCOPE_BYTES: usize = 1024;

/// The cookies of one user.
#[derive(Clone, Debug, Default)]
pub struct CookieJar {
    /// In the order in which they were first set.
    cookies: Vec<Cookie>,
    dropped: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: Box<[u8]>,
    value: Box<[u8]>,
    domain: Box<str>,
    /// Only for `domain` itself, not for hosts below it.
    is_host_only: bool,
    path: Box<[u8]>,
    is_secure: bool,
    /// Since the Unix epoch. `None` for a session, which ends with the user.
    expires: Option<Duration>,
}

impl CookieJar {
    /// Memory of a full jar, in bytes.
    pub const MOST_BYTES: usize = COOKIES * (COOKIE_BYTES + 2 * SCOPE_BYTES + size_of::<Cookie>());

    /// Takes the cookies that an answer from this origin and path sets. `now` is the time since the Unix epoch.
    pub fn store(&mut self, origin: &Origin, path: &str, fields: &Fields, now: Duration) {
        for field in fields.get_all("set-cookie") {
            self.store_one(origin, path, field, now);
        }
    }

    /// Appends the cookies for a request, as the value of `Cookie`. Returns whether there are any.
    pub fn write(&self, origin: &Origin, path: &str, now: Duration, out: &mut Vec<u8>) -> bool {
        let path = without_query(path);
        let fits = |cookie: &&Cookie| {
            cookie.expires.is_none_or(|at| at > now)
                && (origin.scheme.is_secure() || !cookie.is_secure)
                && if cookie.is_host_only {
                    origin.host == *cookie.domain
                } else {
                    domain_matches(&origin.host, &cookie.domain)
                }
                && path_matches(path, &cookie.path)
        };
        let mut fitting: Vec<&Cookie> = self.cookies.iter().filter(fits).collect();
        // Longer paths first; of equal ones, those set first (RFC 6265 §5.4). The sort is stable.
        fitting.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        for (i, cookie) in fitting.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(&cookie.name);
            out.push(b'=');
            out.extend_from_slice(&cookie.value);
        }
        !fitting.is_empty()
    }

    /// The number of cookies.
    pub fn len(&self) -> usize {
        self.cookies.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    /// How many cookies were dropped because they were too long or too many.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Has the cookies of another jar from now on. Those dropped are still counted.
    pub fn copy(&mut self, other: &Self) {
        self.cookies.clone_from(&other.cookies);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.cookies.clear();
    }

    fn store_one(&mut self, origin: &Origin, request_path: &str, field: &[u8], now: Duration) {
        let Some(parsed) = Parsed::read(field, now) else { return };
        if parsed.name.len() + parsed.value.len() > COOKIE_BYTES
            || [parsed.domain, parsed.path].into_iter().flatten().any(|text| text.len() > SCOPE_BYTES)
        {
            self.dropped += 1;
            return;
        }
        let Some(cookie) = parsed.accepted(origin, request_path) else { return };
        // Expired ones make room, and an expired one removes that of its name.
        self.cookies.retain(|old| old.expires.is_none_or(|at| at > now));
        let is_same = |old: &Cookie| {
            old.name == cookie.name
                && old.domain == cookie.domain
                && old.path == cookie.path
                && old.is_host_only == cookie.is_host_only
        };
        let is_over = cookie.expires.is_some_and(|at| at <= now);
        match self.cookies.iter().position(is_same) {
            Some(at) if is_over => drop(self.cookies.remove(at)),
            Some(at) => {
                if let Some(old) = self.cookies.get_mut(at) {
                    *old = cookie;
                }
            }
            None if is_over => {}
            None => {
                if self.cookies.len() == COOKIES {
                    self.cookies.remove(0);
                    self.dropped += 1;
                }
                self.cookies.push(cookie);
            }
        }
    }
}

/// A field `Set-Cookie` (RFC 6265 §5.2).
struct Parsed<'f> {
    name: &'f [u8],
    value: &'f [u8],
    domain: Option<&'f [u8]>,
    path: Option<&'f [u8]>,
    is_secure: bool,
    expires: Option<Duration>,
}

impl<'f> Parsed<'f> {
    fn read(field: &'f [u8], now: Duration) -> Option<Self> {
        if field.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
            return None;
        }
        let mut parts = field.split(|b| *b == b';');
        let (name, value) = split(parts.next()?)?;
        if name.is_empty() {
            return None;
        }
        let mut parsed = Self { name, value, domain: None, path: None, is_secure: false, expires: None };
        let mut max_age = None;
        for part in parts {
            let (attribute, value) = split(part).unwrap_or((part.trim_ascii(), b""));
            // Of an attribute that is repeated, the last counts.
            match attribute {
                a if a.eq_ignore_ascii_case(b"domain") => {
                    parsed.domain = Some(value.strip_prefix(b".").unwrap_or(value)).filter(|d| !d.is_empty());
                }
                a if a.eq_ignore_ascii_case(b"path") => {
                    parsed.path = Some(value).filter(|p| p.starts_with(b"/"))
                }
                a if a.eq_ignore_ascii_case(b"secure") => parsed.is_secure = true,
                a if a.eq_ignore_ascii_case(b"expires") => {
                    parsed.expires = date::read(value).or(parsed.expires)
                }
                a if a.eq_ignore_ascii_case(b"max-age") => max_age = seconds(value).or(max_age),
                _ => {}
            }
        }
        // Max-Age has precedence (RFC 6265 §4.1.2.2).
        if let Some(seconds) = max_age {
            let life = u64::try_from(seconds).unwrap_or(0);
            parsed.expires =
                Some(if life == 0 { Duration::ZERO } else { now.saturating_add(Duration::from_secs(life)) });
        }
        Some(parsed)
    }

    /// The cookie, unless the origin may not set it.
    fn accepted(&self, origin: &Origin, request_path: &str) -> Option<Cookie> {
        let domain = match self.domain {
            Some(domain) => Some(str::from_utf8(domain).ok()?.to_ascii_lowercase()),
            None => None,
        };
        if let Some(domain) = &domain
            && *domain != origin.host
            && (!domain.contains('.') || !domain_matches(&origin.host, domain))
        {
            return None;
        }
        if self.is_secure && !origin.scheme.is_secure() {
            return None;
        }
        let begins =
            |prefix: &[u8]| self.name.get(..prefix.len()).is_some_and(|p| p.eq_ignore_ascii_case(prefix));
        let is_bound = self.is_secure && domain.is_none() && self.path == Some(b"/");
        if begins(b"__Host-") && !is_bound || begins(b"__Secure-") && !self.is_secure {
            return None;
        }
        let is_host_only = domain.is_none() || origin.host.parse::<IpAddr>().is_ok();
        let path = self.path.map_or_else(|| default_path(request_path), <[u8]>::to_vec);
        Some(Cookie {
            name: self.name.into(),
            value: self.value.into(),
            domain: domain.unwrap_or_else(|| origin.host.clone()).into(),
            is_host_only,
            path: path.into(),
            is_secure: self.is_secure,
            expires: self.expires,
        })
    }
}

fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', pair)?;
    Some((pair.get(..at)?.trim_ascii(), pair.get(at + 1..)?.trim_ascii()))
}

/// A number of seconds; a larger one than we can count is the largest.
fn seconds(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let largest = if digits.len() == text.len() { i64::MAX } else { 0 };
    Some(str::from_utf8(text).ok()?.parse().unwrap_or(largest))
}

/// RFC 6265 §5.1.3.
fn domain_matches(host: &str, domain: &str) -> bool {
    if host == domain {
        return true;
    }
    let above = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    above && host.parse::<IpAddr>().is_err()
}

/// RFC 6265 §5.1.4.
fn path_matches(path: &str, cookie: &[u8]) -> bool {
    let path = path.as_bytes();
    path.strip_prefix(cookie)
        .is_some_and(|rest| rest.is_empty() || cookie.ends_with(b"/") || rest.starts_with(b"/"))
}

fn default_path(request: &str) -> Vec<u8> {
    let path = without_query(request);
    match path.rfind('/') {
        Some(at) if at > 0 => path.get(..at).unwrap_or("/").as_bytes().to_vec(),
        _ => b"/".to_vec(),
    }
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
#[path = "cookie/tests.rs"]
mod tests;
