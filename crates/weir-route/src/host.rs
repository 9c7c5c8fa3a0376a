//! Hosts: the entries of a route's `hosts:`, and the normalized form in which a request's host is compared with them.
//!
//! Case, port and one trailing dot are ignored. IPv6 addresses are compared as addresses.

use std::io::Write as _;
use std::net::Ipv6Addr;

use smallvec::SmallVec;

use super::pattern::PatternError;

/// The longest host that a route can name (RFC 1035 §2.3.4); a longer one matches only routes for any host.
pub const HOST_BYTES: usize = 255;

/// Room for one normalized host; never spills, because longer hosts are refused.
pub(super) type HostBuffer = SmallVec<[u8; HOST_BYTES + 1]>;

/// One entry of a route's `hosts:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum HostPattern {
    /// Every host, or none.
    Any,
    /// `.example.com`: one or more labels before it.
    Wildcard(Box<[u8]>),
    /// This host.
    Exact(Box<[u8]>),
}

impl HostPattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let error = |message: String, hint: &str| Err(PatternError { message, hint: hint.to_owned() });
        if text == "*" {
            return Ok(Self::Any);
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
        let (wildcard, labels) = name.strip_prefix("*.").map_or((false, &*name), |labels| (true, labels));
        if labels.contains('*') {
            return error(
                format!("`{text}` has a `*` in a place of its own"),
                "`*` replaces the first labels: `*.example.com`",
            );
        }
        let label_ok = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() > HOST_BYTES || !labels.split('.').all(label_ok) {
            return error(
                format!("`{text}` is not a host name"),
                "expected `api.example.com`, `*.example.com` or `[::1]`; labels of 1 to 63 letters, digits, `-`, `_`",
            );
        }
        Ok(match wildcard {
            true => Self::Wildcard(name.as_bytes().get(1..).unwrap_or_default().into()),
            false => Self::Exact(name.into_bytes().into()),
        })
    }

    /// Whether a normalized host matches.
    pub(super) fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => **name == *host,
            Self::Wildcard(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        }
    }

    /// Its written form.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Any => "*".to_owned(),
            Self::Exact(name) => String::from_utf8_lossy(name).into_owned(),
            Self::Wildcard(suffix) => format!("*{}", String::from_utf8_lossy(suffix)),
        }
    }

    /// Orders by specificity: exact, then the longer wildcard, then any.
    pub(super) fn specificity(&self) -> usize {
        match self {
            Self::Any => 0,
            Self::Exact(_) => usize::MAX,
            Self::Wildcard(suffix) => suffix.len(),
        }
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
            ("a.*", "first labels"),
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
