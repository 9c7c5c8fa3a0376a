//! Texts of objects as values of the config.
//!
//! A setting of Weir may hold `${VAR}`, `{placeholder}`, `{= expression }`, a regex after `~`, and wildcards. In a text
//! that a tenant wrote, Weir must read none of these. [`crate::config`] doubles each `$`; this file does the rest.

use crate::objects::is_label;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

/// Most bytes of a host.
const MAX_HOST: usize = 253;
/// Most bytes of a header's value.
pub(crate) const MAX_VALUE: usize = 4096;
/// Most bytes of a path, as in the Gateway API.
pub(crate) const MAX_PATH: usize = 1024;
/// The longest duration of the Gateway API: five digits and a unit, four times.
const MAX_DURATION: Duration = Duration::from_secs(99_999 * 3600 * 4);
/// The longest duration of Weir, which stands for all that are longer.
const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

/// A host in lower case, or `*.` and one; nothing else.
pub(crate) fn host(text: &str) -> Option<String> {
    let host = text.to_ascii_lowercase();
    let labels = host.strip_prefix("*.").unwrap_or(&host);
    let fits = host.len() <= MAX_HOST
        && labels.split('.').all(|label| is_label(label, 63))
        && labels.parse::<IpAddr>().is_err();
    fits.then_some(host)
}

/// The hosts that a listener and a route have in common, of which `None` is any; `Err` if they have none.
pub(crate) fn intersect(listener: Option<&str>, route: &str) -> Result<String, ()> {
    let Some(listener) = listener else { return Ok(route.to_owned()) };
    if listener == route || covers(route, listener) {
        return Ok(listener.to_owned());
    }
    if covers(listener, route) { Ok(route.to_owned()) } else { Err(()) }
}

/// Whether a host with a wildcard takes another host, which may have a wildcard too.
pub(crate) fn covers(wildcard: &str, host: &str) -> bool {
    let Some(suffix) = wildcard.strip_prefix('*') else { return false };
    let host = host.strip_prefix('*').unwrap_or(host);
    host.ends_with(suffix)
}

/// A literal text for a setting that may hold placeholders. A text with braces becomes an expression, a quoted string:
/// if the braces were doubled instead, Weir would still read `{=`.
pub(crate) fn literal(text: &str) -> String {
    if !text.contains(['{', '}']) && !text.starts_with("= ") {
        return text.to_owned();
    }
    let mut out = String::from("= \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A literal text as a part of a regex.
pub(crate) fn quoted(text: &str) -> String {
    regex_syntax::escape(text)
}

/// The value of a header field, if it is one: visible characters, with spaces between.
pub(crate) fn header_value(text: &str) -> Option<&str> {
    let fits = text.len() <= MAX_VALUE
        && text.trim() == text
        && text.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7F));
    fits.then_some(text)
}

/// Whether a text is a token, such as the name of a field or a method (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A path in Weir's canonical form: what no URI may hold raw is escaped. `None` if no request can have it.
pub(crate) fn path(text: &str) -> Option<String> {
    if !text.starts_with('/') || text.len() > MAX_PATH {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let escaped = match byte {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
                rest = rest.get(2..)?;
                Some(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?)
            }
            _ => None,
        };
        let value = escaped.unwrap_or(byte);
        let is_unreserved = value.is_ascii_alphanumeric() || b"-._~".contains(&value);
        let is_raw = value.is_ascii_graphic() && !b"%\"<>^{|}`?#".contains(&value);
        match (value, escaped) {
            (b'\\' | 0..=0x1F | 0x7F, _) => return None,
            _ if is_unreserved || (is_raw && escaped.is_none()) => out.push(char::from(value)),
            _ => write!(out, "%{value:02X}").ok()?, // into a String
        }
    }
    let is_dotted = out.split('/').any(|segment| matches!(segment, "." | ".."));
    (!is_dotted && !out.contains("//")).then_some(out)
}

/// Whether Weir would read a part of a path as a name or a wildcard.
pub(crate) fn has_syntax(path: &str) -> bool {
    path.contains(['*', '{', '}']) || path.starts_with('~')
}

/// A route's `path` for exactly this path.
pub(crate) fn exact_path(text: &str) -> Option<String> {
    let path = path(text)?;
    Some(if has_syntax(&path) { format!("~{}", quoted(&path)) } else { path })
}

/// A route's `path` for this path and all below it, by whole segments.
pub(crate) fn prefix_path(text: &str) -> Option<String> {
    let path = path(text)?;
    let folder = path.strip_suffix('/').unwrap_or(&path);
    Some(match has_syntax(folder) {
        true => format!("~{}(/.*)?", quoted(folder)),
        false => format!("{folder}/*"),
    })
}

/// As [`exact_path`], but a pattern without regard to case, which takes its place among other patterns.
pub(crate) fn exact_pattern(text: &str) -> Option<String> {
    Some(format!("~(?i){}", quoted(&path(text)?)))
}

/// As [`prefix_path`], but a pattern without regard to case, which takes its place among other patterns.
pub(crate) fn prefix_pattern(text: &str) -> Option<String> {
    let path = path(text)?;
    Some(match path.strip_suffix('/').unwrap_or(&path) {
        "" => "~/.*".to_owned(),
        folder => format!("~(?i){}(/.*)?", quoted(folder)),
    })
}

/// How a path that is longer than [`MAX_PATH`] begins, in Weir's canonical form. `None` if it is not longer, or if no
/// request can have it.
pub(crate) fn start_of_long(text: &str) -> Option<String> {
    if text.len() <= MAX_PATH {
        return None;
    }
    let end = (0..=MAX_PATH).rev().find(|at| text.is_char_boundary(*at))?;
    let start = text.get(..end)?;
    // Not in the middle of an escape, nor of a segment that begins with dots.
    let escape = start.rfind('%').filter(|at| at + 3 > start.len()).unwrap_or(start.len());
    let segment = start.rfind('/').map_or(0, |at| at + 1);
    path(start.get(..escape)?).or_else(|| path(start.get(..segment)?))
}

/// A duration of the Gateway API (GEP-2257), such as `1h30m` or `250ms`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest.get(..digits).filter(|n| (1..=5).contains(&n.len()))?.parse().ok()?;
        rest = rest.get(digits..)?;
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let milliseconds = match rest.get(..unit)? {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(milliseconds)?))?;
        rest = rest.get(unit..)?;
        parts += 1;
    }
    ((1..=4).contains(&parts) && total <= MAX_DURATION).then_some(total.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_form() {
        for (text, form) in [
            ("a.example.com", Some("a.example.com")),
            ("A.Example.COM", Some("a.example.com")),
            ("*.example.com", Some("*.example.com")),
            ("*", None),
            ("www.*", None),
            ("~.*", None),
            ("a.*.com", None),
            ("*.*.com", None),
            ("10.0.0.1", None),
            ("a.example.com:80", None),
            ("${HOST}", None),
            ("a b", None),
            ("a..b", None),
            ("bücher.example", None),
            ("", None),
        ] {
            assert_eq!(host(text).as_deref(), form, "{text}");
        }
    }

    #[test]
    fn hosts_intersect() {
        for (listener, route, both) in [
            (None, "a.test", Ok("a.test")),
            (Some("a.test"), "a.test", Ok("a.test")),
            (Some("*.test"), "a.test", Ok("a.test")),
            (Some("*.test"), "a.b.test", Ok("a.b.test")),
            (Some("*.test"), "test", Err(())),
            (Some("*.test"), "atest", Err(())),
            (Some("a.test"), "*.test", Ok("a.test")),
            (Some("*.test"), "*.b.test", Ok("*.b.test")),
            (Some("*.b.test"), "*.test", Ok("*.b.test")),
            (Some("*.a.test"), "*.b.test", Err(())),
            (Some("*.test"), "*.test", Ok("*.test")),
        ] {
            assert_eq!(intersect(listener, route), both.map(str::to_owned), "{listener:?} {route}");
        }
    }

    #[test]
    fn literals_stay_literal() {
        assert_eq!(literal("plain $1"), "plain $1");
        assert_eq!(literal("{client}"), "= \"{client}\"");
        assert_eq!(literal("{= \"a\\b"), "= \"{= \\\"a\\\\b\"");
        assert_eq!(literal("= request.host"), "= \"= request.host\"");
    }

    #[test]
    fn paths_are_literal() {
        for (text, exact, prefix) in [
            ("/a", Some("/a"), Some("/a/*")),
            ("/a/", Some("/a/"), Some("/a/*")),
            ("/", Some("/"), Some("/*")),
            ("/a b", Some("/a%20b"), Some("/a%20b/*")),
            ("/{x}", Some("/%7Bx%7D"), Some("/%7Bx%7D/*")),
            ("/a*", Some("~/a\\*"), Some("~/a\\*(/.*)?")),
            ("/%2f", Some("/%2F"), Some("/%2F/*")),
            ("/%61", Some("/a"), Some("/a/*")),
            ("/%2e%2E/b", None, None),
            ("/%zz", None, None),
            ("/a/../b", None, None),
            ("/a//b", None, None),
            ("a", None, None),
            ("~.*", None, None),
            ("/a\n", None, None),
        ] {
            assert_eq!(exact_path(text).as_deref(), exact, "{text}");
            assert_eq!(prefix_path(text).as_deref(), prefix, "{text}");
            assert_eq!(prefix_pattern(text).is_some(), prefix.is_some(), "{text}");
        }
    }

    #[test]
    fn prefixes_are_patterns() {
        for (text, pattern) in [
            ("/", "~/.*"),
            ("/a", "~(?i)/a(/.*)?"),
            ("/a.b/", "~(?i)/a\\.b(/.*)?"),
            ("/a*", "~(?i)/a\\*(/.*)?"),
        ] {
            assert_eq!(prefix_pattern(text).as_deref(), Some(pattern), "{text}");
        }
    }

    #[test]
    fn a_long_path_has_a_start() {
        let long = |end: &str| format!("/{}{end}{}", "a".repeat(MAX_PATH - 1 - end.len()), "b".repeat(9));
        for (text, expected) in [
            (long(""), Some(MAX_PATH)),
            (long("%4"), Some(MAX_PATH - 2)),
            (long("%"), Some(MAX_PATH - 1)),
            (long("/.."), Some(MAX_PATH - 2)),
            (long("é"), Some(MAX_PATH + 4)), // escaped, it has four bytes more
            ("/a".repeat(MAX_PATH / 2), None),
            (format!("/a//b{}", "c".repeat(MAX_PATH)), None),
            (format!("x{}", "c".repeat(MAX_PATH)), None),
        ] {
            assert_eq!(start_of_long(&text).map(|start| start.len()), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_those_of_the_api() {
        for (text, milliseconds) in [
            ("10s", Some(10_000)),
            ("1h30m", Some(5_400_000)),
            ("1h1m1s1ms", Some(3_661_001)),
            ("0s", Some(0)),
            ("0", Some(0)),
            ("", None),
            ("1", None),
            ("1d", None),
            ("-1s", None),
            ("1.5s", None),
            ("123456s", None),
            ("1s1s1s1s1s", None),
        ] {
            assert_eq!(duration(text).map(|d| d.as_millis()), milliseconds, "{text}");
        }
    }
}
