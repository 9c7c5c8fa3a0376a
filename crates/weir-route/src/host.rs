//! Hosts: the entries of a route's `hosts:`, and the normalized form in which a request's host is compared with them.
//!
//! Case, port and one trailing dot are ignored. IPv6 addresses are compared as addresses.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::sync::Arc;

use regex::bytes::Regex;
use regex_syntax::hir::Hir;
use regex_syntax::hir::literal::{ExtractKind, Extractor, Seq};
use smallvec::SmallVec;

use super::pattern::{self, PatternError};

/// The longest host that a route can name (RFC 1035 §2.3.4); a longer one matches only routes for any host.
pub const HOST_BYTES: usize = 255;

/// Room for one normalized host; never spills, because longer hosts are refused.
pub(super) type HostBuffer = SmallVec<[u8; HOST_BYTES + 1]>;

/// One entry of a route's `hosts:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum HostPattern {
    /// Every host, or none.
    Any,
    /// A regular expression over the whole host.
    Regex(Arc<HostRegex>),
    /// `www.`: one or more labels after it.
    Front(Box<[u8]>),
    /// `.example.com`: one or more labels before it.
    Wildcard(Box<[u8]>),
    /// This host.
    Exact(Box<[u8]>),
}

/// A regular expression over the whole normalized host. Equal if they were written alike.
#[derive(Clone, Debug)]
pub(super) struct HostRegex {
    /// As written, without its `~`.
    text: Box<str>,
    regex: Regex,
    pub(super) hir: Hir,
    /// Every match begins, and ends, with one of these; empty if nothing is known.
    begins: Vec<Box<[u8]>>,
    ends: Vec<Box<[u8]>>,
}

/// What is more specific is greater: its kind, then its bytes.
pub(super) type Specificity = (u8, usize);

/// Most literal texts extracted from a regular expression to tell it from others.
const REGEX_LITERALS: usize = 32;

impl HostPattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let error = |message: String, hint: &str| Err(PatternError { message, hint: hint.to_owned() });
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(regex) = text.strip_prefix('~') {
            return Ok(Self::Regex(Arc::new(HostRegex::parse(regex)?)));
        }
        if text.contains("://") || text.contains('/') {
            return error(format!("`{text}` is a URL"), "write the host alone: `api.example.com`");
        }
        if let Some(inner) = text.strip_prefix('[') {
            let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
            return match address {
                Some(address) => Ok(Self::Exact(format!("[{address}]").into_bytes().into())),
                None => error(format!("`{text}` is not an IPv6 address"), "write `[::1]`, without a port"),
            };
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return error(
                format!("`{text}` is an IPv6 address"),
                &format!("write it in brackets: `[{text}]`"),
            );
        }
        if text.contains(':') {
            return error(
                format!("`{text}` has a port"),
                "the port of a request is not compared; to match by port use `listeners`",
            );
        }
        if !text.is_ascii() {
            return error(format!("`{text}` is not ASCII"), "write international names in their `xn--` form");
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let wildcard = name.strip_prefix("*.");
        let front = name.strip_suffix(".*").filter(|_| wildcard.is_none());
        let labels = wildcard.or(front).unwrap_or(&name);
        if labels.contains('*') {
            return error(
                format!("`{text}` has a `*` in a place of its own"),
                "`*` replaces the first labels or the last: `*.example.com`, `www.*`; for others write a `~regex`",
            );
        }
        let label_ok = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() > HOST_BYTES || !labels.split('.').all(label_ok) {
            return error(
                format!("`{text}` is not a host name"),
                "expected `api.example.com`, `*.example.com`, `www.*`, `[::1]` or `~regex`; labels of 1 to 63 letters, digits, `-`, `_`",
            );
        }
        Ok(match (wildcard, front) {
            (Some(labels), _) => Self::Wildcard(format!(".{labels}").into_bytes().into()),
            (None, Some(labels)) => Self::Front(format!("{labels}.").into_bytes().into()),
            (None, None) => Self::Exact(name.into_bytes().into()),
        })
    }

    /// Whether a normalized host matches.
    pub(super) fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => **name == *host,
            Self::Front(prefix) => host.len() > prefix.len() && host.starts_with(prefix),
            Self::Regex(regex) => regex.matches(host),
            Self::Wildcard(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        }
    }

    /// The names that it captures.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let regex = if let Self::Regex(regex) = self { Some(regex) } else { None };
        regex.into_iter().flat_map(|regex| regex.names())
    }

    /// Its written form.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Any => "*".to_owned(),
            Self::Exact(name) => String::from_utf8_lossy(name).into_owned(),
            Self::Front(prefix) => format!("{}*", String::from_utf8_lossy(prefix)),
            Self::Regex(regex) => format!("~{}", regex.text),
            Self::Wildcard(suffix) => format!("*{}", String::from_utf8_lossy(suffix)),
        }
    }

    /// Orders by specificity: exact, then the longer `*.x`, then the longer `x.*`, then a regex, then any. Two regexes
    /// are equal.
    pub(super) fn specificity(&self) -> Specificity {
        match self {
            Self::Any => (0, 0),
            Self::Exact(_) => (4, 0),
            Self::Front(prefix) => (2, prefix.len()),
            Self::Regex(_) => (1, 0),
            Self::Wildcard(suffix) => (3, suffix.len()),
        }
    }

    /// Whether provably every host that this matches, `other` matches too.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let all = |known: &[Box<[u8]>], fits: &dyn Fn(&[u8]) -> bool| {
            !known.is_empty() && known.iter().all(|text| fits(text))
        };
        match (self, other) {
            (_, Self::Any) => true,
            (Self::Any, _) => false,
            (Self::Exact(name), other) => other.matches(name),
            (Self::Wildcard(own), Self::Wildcard(suffix)) => own.ends_with(suffix),
            (Self::Front(own), Self::Front(prefix)) => own.starts_with(prefix),
            // No host begins or ends with a dot, so that something stands before and behind.
            (Self::Regex(regex), Self::Wildcard(suffix)) => all(&regex.ends, &|end| end.ends_with(suffix)),
            (Self::Regex(regex), Self::Front(prefix)) => {
                all(&regex.begins, &|begin| begin.starts_with(prefix))
            }
            (Self::Regex(own), Self::Regex(regex)) => own == regex,
            _ => false,
        }
    }

    /// Whether provably no host matches both.
    pub(super) fn is_apart(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(name), other) | (other, Self::Exact(name)) => !other.matches(name),
            (Self::Wildcard(a), Self::Wildcard(b)) => !a.ends_with(b) && !b.ends_with(a),
            (Self::Front(a), Self::Front(b)) => !a.starts_with(b) && !b.starts_with(a),
            (Self::Regex(a), Self::Regex(b)) => a.is_apart(b),
            _ => false,
        }
    }
}

/// The most specific of several that matches a normalized host: of two regexes the one written first.
pub(super) fn best<'p>(hosts: &'p [HostPattern], host: &[u8]) -> Option<&'p HostPattern> {
    let matching = hosts.iter().rev().filter(|pattern| pattern.matches(host));
    matching.max_by_key(|pattern| pattern.specificity())
}

// === impl HostRegex ===

impl HostRegex {
    fn parse(text: &str) -> Result<Self, PatternError> {
        // Hosts are compared in lower case, so an expression with capitals has to ignore case.
        let written = match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => format!("(?i:{text})"),
            false => text.to_owned(),
        };
        let hir = pattern::parse_hir(&written)?;
        let literals = |kind: ExtractKind| {
            let found: Seq = Extractor::new().kind(kind).limit_total(REGEX_LITERALS).extract(&hir);
            let texts = found.literals().unwrap_or_default().iter().map(|literal| literal.as_bytes().into());
            texts.collect::<Vec<Box<[u8]>>>()
        };
        let (begins, ends) = (literals(ExtractKind::Prefix), literals(ExtractKind::Suffix));
        Ok(Self { text: text.into(), regex: pattern::compile_regex(&written)?, begins, ends, hir })
    }

    /// Whether it matches the whole host. The literal texts are compared first, because many regexes may stand here.
    /// A request without a host, or with too long a host, matches none.
    pub(super) fn matches(&self, host: &[u8]) -> bool {
        let fits = |known: &[Box<[u8]>], has: fn(&[u8], &[u8]) -> bool| {
            known.is_empty() || known.iter().any(|text| has(host, text))
        };
        !host.is_empty()
            && fits(&self.begins, <[u8]>::starts_with)
            && fits(&self.ends, <[u8]>::ends_with)
            && self.regex.is_match(host)
    }

    /// Every match begins with one of these; empty if nothing is known.
    pub(super) fn beginnings(&self) -> &[Box<[u8]>] {
        &self.begins
    }

    /// Every match ends with one of these; empty if nothing is known.
    pub(super) fn ends(&self) -> &[Box<[u8]>] {
        &self.ends
    }

    /// The names of its groups. Groups without a name capture nothing.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.regex.capture_names().flatten()
    }

    /// The bytes that a group captured in a host; none if the regex has no such group or it takes no part.
    pub(super) fn capture<'h>(&self, host: &'h [u8], name: &str) -> Option<&'h [u8]> {
        if !self.names().any(|own| own == name) {
            return None;
        }
        Some(self.regex.captures(host)?.name(name)?.as_bytes())
    }

    /// Whether no host can match both, judging by the literal texts at their beginnings and ends.
    fn is_apart(&self, other: &Self) -> bool {
        let all = |a: &[Box<[u8]>], b: &[Box<[u8]>], apart: fn(&[u8], &[u8]) -> bool| {
            !a.is_empty() && !b.is_empty() && a.iter().all(|a| b.iter().all(|b| apart(a, b)))
        };
        all(&self.begins, &other.begins, |a, b| !a.starts_with(b) && !b.starts_with(a))
            || all(&self.ends, &other.ends, |a, b| !a.ends_with(b) && !b.ends_with(a))
    }
}

impl PartialEq for HostRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for HostRegex {}

impl Hash for HostRegex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for HostRegex {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HostRegex {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// Normalizes a host for comparison: no port, no trailing dot, lower case. Empty if no named host could match.
///
/// Copies only if a letter must change or an IPv6 address is written; never allocates.
#[inline]
pub(super) fn normalize<'a>(raw: &'a [u8], buffer: &'a mut HostBuffer) -> &'a [u8] {
    buffer.clear();
    if raw.first() == Some(&b'[') {
        return normalize_v6(raw, buffer).unwrap_or_default();
    }
    // A port has at most five digits and hosts are short, so a plain loop beats a call.
    let end = raw.iter().position(|&byte| byte == b':').unwrap_or(raw.len());
    let name = raw.get(..end).unwrap_or_default();
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.len() > HOST_BYTES {
        return &[];
    }
    if !name.iter().any(u8::is_ascii_uppercase) {
        return name;
    }
    buffer.extend_from_slice(name);
    buffer.make_ascii_lowercase();
    buffer
}

fn normalize_v6<'a>(raw: &[u8], buffer: &'a mut HostBuffer) -> Option<&'a [u8]> {
    let end = raw.iter().take(HOST_BYTES).position(|&byte| byte == b']')?;
    let address: Ipv6Addr = std::str::from_utf8(raw.get(1..end)?).ok()?.parse().ok()?;
    let mut text = [0; 48];
    let mut left = &mut text[..];
    write!(left, "[{address}]").ok()?;
    let used = 48 - left.len();
    buffer.extend_from_slice(text.get(..used)?);
    Some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_hosts_in_one_form() {
        let long = [b'A'; 256];
        let cases: [(&[u8], &[u8]); 12] = [
            (b"api.example.com", b"api.example.com"),
            (b"API.Example.com:8080", b"api.example.com"),
            (b"api.example.com.", b"api.example.com"),
            (b"api.example.com.:80", b"api.example.com"),
            (b"a:", b"a"),
            (b"", b""),
            (b"[::1]:80", b"[::1]"),
            (b"[0:0:0:0:0:0:0:1]", b"[::1]"),
            (b"[2001:DB8::A]", b"[2001:db8::a]"),
            (b"[nonsense", b""),
            (b"\xff\xfe", b"\xff\xfe"),
            (&long, b""),
        ];
        for (raw, want) in cases {
            assert_eq!(normalize(raw, &mut HostBuffer::new()), want, "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn wildcards_stand_for_one_or_more_labels() {
        let wildcard = HostPattern::parse("*.Example.com.").unwrap();
        assert_eq!(wildcard.to_text(), "*.example.com");
        for (host, want) in [("a.example.com", true), ("a.b.example.com", true), ("example.com", false)] {
            assert_eq!(wildcard.matches(host.as_bytes()), want, "{host}");
        }
        assert!(!wildcard.matches(b"aexample.com"));
        assert!(!wildcard.matches(b".example.com"), "a label must stand there");
        assert!(!wildcard.matches(b"a.longer.example.org"));
    }

    #[test]
    fn a_star_at_the_end_stands_for_one_or_more_labels() {
        let front = HostPattern::parse("WWW.*").unwrap();
        assert_eq!(front.to_text(), "www.*");
        for (host, want) in [
            ("www.example.com", true),
            ("www.com", true),
            ("www", false),
            ("www.", false),
            ("www2.com", false),
            ("a.www.com", false),
        ] {
            assert_eq!(front.matches(host.as_bytes()), want, "{host}");
        }
    }

    #[test]
    fn a_regex_matches_the_whole_host_without_case() {
        for (regex, host, want) in [
            (r"~^(?<sub>.+)\.example\.com$", "a.b.example.com", true),
            (r"~(?<sub>.+)\.example\.com", "a.example.com", true),
            (r"~(?<sub>.+)\.example\.com", "a.example.com.evil.test", false),
            (r"~(?<sub>.+)\.example\.com", "example.com", false),
            (r"~(?<sub>.+)\.Example\.COM", "a.example.com", true),
            ("~[^A-Z]+", "abc", false),
            ("~.*", "", false),
            ("~.*", "[::1]", true),
            ("~api[0-9]+|www", "api7", true),
        ] {
            let parsed = HostPattern::parse(regex).unwrap();
            assert_eq!(parsed.to_text(), regex);
            assert_eq!(parsed.matches(host.as_bytes()), want, "{regex} {host}");
        }
        let HostPattern::Regex(regex) = HostPattern::parse(r"~(?<sub>.+)\.(a|b)\.test").unwrap() else {
            panic!()
        };
        assert_eq!(regex.names().collect::<Vec<_>>(), ["sub"]);
        assert_eq!(regex.capture(b"x.y.a.test", "sub"), Some(&b"x.y"[..]));
        assert_eq!(regex.capture(b"x.y.a.test", "2"), None);
    }

    #[test]
    fn hosts_are_apart_or_within() {
        let parse = |text: &str| HostPattern::parse(text).unwrap();
        for (a, b, apart, within) in [
            ("a.test", "b.test", true, false),
            ("a.test", "*.test", false, true),
            ("a.test", "a.*", false, true),
            ("a.test", "b.*", true, false),
            ("*.a.test", "*.test", false, true),
            ("*.a.test", "*.b.test", true, false),
            ("a.b.*", "a.*", false, true),
            ("a.*", "b.*", true, false),
            ("a.*", "*.test", false, false),
            (r"~.+\.a\.test", r"~.+\.b\.test", true, false),
            (r"~a[0-9]\..*", r"~b[0-9]\..*", true, false),
            (r"~a[0-9]\..*", r"~a1\..*", false, false),
            (r"~.+\.a\.test", "*.a.test", false, true),
            (r"~www\..+", "www.*", false, true),
            (r"~.+a\.test", "*.a.test", false, false),
            ("a.test", "*", false, true),
            ("*", "a.test", false, false),
            ("~.*", "~.*", false, true),
        ] {
            let (a, b) = (parse(a), parse(b));
            assert_eq!((a.is_apart(&b), a.is_within(&b)), (apart, within), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_name_is_as_long_as_a_request_can_ask_for() {
        let name = |bytes: usize| format!("{}{}", "a.".repeat(100), "a".repeat(bytes - 200));
        assert_eq!(name(HOST_BYTES).len(), HOST_BYTES);
        assert!(HostPattern::parse(&name(HOST_BYTES)).is_ok());
        assert!(HostPattern::parse(&name(HOST_BYTES + 1)).is_err());
    }

    #[test]
    fn says_what_it_expected() {
        let cases = [
            ("", "not a host name"),
            ("http://a", "host alone"),
            ("a/b", "host alone"),
            ("a:80", "listeners"),
            ("::1", "`[::1]`"),
            ("[::1]:80", "without a port"),
            ("*.a.*", "first labels"),
            ("~(", "malformed"),
            ("~(a{1000}){1000}", "1 MiB"),
            ("*example.com", "first labels"),
            ("a..b", "not a host name"),
            ("a b", "not a host name"),
            ("bücher.example", "xn--"),
        ];
        for (text, want) in cases {
            let error = HostPattern::parse(text).expect_err(text).to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
