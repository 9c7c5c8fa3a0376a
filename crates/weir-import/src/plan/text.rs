//! Texts of plans: what stands for itself, parts of URLs, durations, names.

use std::fmt::Write as _;

/// Longest text of a source within a sentence of the ledger, in characters.
const SHOWN: usize = 60;

/// A text that stands for itself in a plan: `{{` is written as `{{{{`.
#[must_use]
pub fn literal(text: &str) -> String {
    text.replace("{{", "{{{{")
}

/// A text of a source for a sentence of the ledger: on one line, and cut if it is long.
#[must_use]
pub fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

/// A placeholder.
#[must_use]
pub fn placeholder(name: &str) -> String {
    format!("{{{{{name}}}}}")
}

/// A part of a text of plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span<'t> {
    /// Characters that stand for themselves, braces no longer doubled.
    Literal(String),
    /// What stands between `{{` and `}}`; it may hold placeholders itself.
    Placeholder(&'t str),
}

/// Takes a text of plans apart, as weir-plan does.
#[must_use]
pub fn spans(text: &str) -> Vec<Span<'_>> {
    let mut all = Vec::new();
    let (mut literal, mut rest) = (String::new(), text);
    while let Some(open) = rest.find("{{") {
        let (before, after) = rest.split_at(open);
        literal.push_str(before);
        if let Some(after) = after.strip_prefix("{{{{") {
            literal.push_str("{{");
            rest = after;
            continue;
        }
        let inner = after.get(2..).unwrap_or_default();
        let Some(end) = closing(inner) else {
            literal.push_str("{{");
            rest = inner;
            continue;
        };
        if !literal.is_empty() {
            all.push(Span::Literal(std::mem::take(&mut literal)));
        }
        all.push(Span::Placeholder(inner.get(..end).unwrap_or_default()));
        rest = inner.get(end + 2..).unwrap_or_default();
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        all.push(Span::Literal(literal));
    }
    all
}

/// Where the `}}` begins that closes a placeholder.
fn closing(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 1usize);
    loop {
        let rest = text.get(at..)?;
        let next = rest.find(['{', '}'])?;
        let found = rest.get(next..)?;
        if found.starts_with("}}") {
            depth -= 1;
            if depth == 0 {
                return Some(at + next);
            }
            at += next + 2;
        } else if found.starts_with("{{") {
            depth += 1;
            at += next + 2;
        } else {
            at += next + 1;
        }
    }
}

/// The parts of a text of plans between the separators that stand outside of placeholders.
#[must_use]
pub fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut begin, mut at, mut depth) = (Vec::new(), 0, 0, 0usize);
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        if depth == 0 && rest.starts_with("{{{{") {
            at += 4;
        } else if rest.starts_with("{{") {
            depth += 1;
            at += 2;
        } else if depth > 0 && rest.starts_with("}}") {
            depth -= 1;
            at += 2;
        } else {
            if c == separator && depth == 0 {
                parts.push(text.get(begin..at).unwrap_or_default());
                begin = at + c.len_utf8();
            }
            at += c.len_utf8();
        }
    }
    parts.push(text.get(begin..).unwrap_or_default());
    parts
}

/// The text before the first separator that stands outside of placeholders, and the rest after it.
#[must_use]
pub fn split_once(text: &str, separator: char) -> Option<(&str, &str)> {
    let parts = split(text, separator);
    let first = parts.first().filter(|_| parts.len() > 1)?;
    Some((first, text.get(first.len() + separator.len_utf8()..)?))
}

/// Whether a text of plans has a placeholder.
#[must_use]
pub fn has_placeholder(text: &str) -> bool {
    text.contains("{{") && spans(text).iter().any(|span| matches!(span, Span::Placeholder(_)))
}

/// A text of plans with its own characters changed; placeholders stay.
#[must_use]
pub fn map_literals(text: &str, change: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    for span in spans(text) {
        match span {
            Span::Literal(own) => out.push_str(&change(&own)),
            Span::Placeholder(inner) => out.push_str(&placeholder(inner)),
        }
    }
    out
}

/// Whether a literal followed by a placeholder would be read as something else: plans cannot say `{` before `{{`.
#[must_use]
pub fn joins(before: &str) -> bool {
    before.ends_with('{')
}

/// A duration as plans write it.
#[must_use]
pub fn duration(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1000) && milliseconds > 0 {
        format!("{}s", milliseconds / 1000)
    } else {
        format!("{milliseconds}ms")
    }
}

/// A part of a URL without its percent escapes; `None` if it is not UTF-8 then.
#[must_use]
pub fn percent_decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// A name or value of a form or query without its escapes.
#[must_use]
pub fn form_decoded(text: &str) -> Option<String> {
    percent_decoded(&text.replace('+', " "))
}

/// A value as a part of a URL: everything but unreserved characters is escaped.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => out.push(char::from(b)),
            b => _ = write!(out, "%{b:02X}"),
        }
    }
    out
}

/// A part of a URL as it was written, with what may not stand in a URL of a plan escaped.
#[must_use]
pub fn url_literal(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b if b.is_ascii_graphic() && !b"#{}\"<>\\^`|".contains(&b) => out.push(char::from(b)),
            b => _ = write!(out, "%{b:02X}"),
        }
    }
    out
}

/// Names and values of a query or form, as written.
#[must_use]
pub fn pairs(text: &str) -> Vec<(&str, Option<&str>)> {
    let parts = text.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)))).collect()
}

/// Scheme and authority of an absolute `http` or `https` URL, and the rest without its fragment.
#[must_use]
pub fn split_url(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(&*scheme, "http" | "https" | "ws" | "wss" | "grpc" | "grpcs") {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or(authority).to_ascii_lowercase();
    let default = if scheme == "https" { ":443" } else { ":80" };
    let host = match (&*scheme, host.strip_suffix(default)) {
        ("http" | "https", Some(bare)) if !bare.ends_with(':') => bare.to_owned(),
        _ => host,
    };
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._~:[]".contains(&b);
    if host.is_empty() || !host.bytes().all(fine) {
        return None;
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    Some((format!("{scheme}://{host}"), rest))
}

/// The host of a server, without its port.
#[must_use]
pub fn host_of(server: &str) -> &str {
    let host = server.split_once("://").map_or(server, |(_, host)| host);
    match host.strip_prefix('[') {
        Some(_) => host.split_inclusive(']').next().unwrap_or(host),
        None => host.split(':').next().unwrap_or(host),
    }
}

/// A name of plans, made of a text: letters, digits and `_`, a letter first, at most 40.
#[must_use]
pub fn name(text: &str) -> String {
    let mut out = String::new();
    let mut was_lower = false;
    for c in text.chars() {
        if out.len() >= 40 {
            break;
        }
        match c {
            c if c.is_ascii_alphanumeric() => {
                if c.is_ascii_uppercase() && was_lower {
                    out.push('_');
                }
                was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
                out.push(c.to_ascii_lowercase());
            }
            _ if !out.is_empty() && !out.ends_with('_') => {
                out.push('_');
                was_lower = false;
            }
            _ => was_lower = false,
        }
    }
    let out = out.trim_end_matches('_').to_owned();
    match out.chars().next() {
        None => "value".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("v{out}"),
        Some(_) if TAKEN.contains(&&*out) => format!("{out}_1"),
        Some(_) => out,
    }
}

/// Names with a meaning of their own in placeholders and expressions, as weir-plan has them.
const TAKEN: &[&str] = &[
    "base64",
    "counter",
    "data",
    "false",
    "has",
    "hmac_sha256",
    "in",
    "index",
    "iteration",
    "now",
    "null",
    "random",
    "true",
    "user",
    "uuid",
];

/// Milliseconds since 1970 of a time such as `2026-01-31T12:00:00.123+01:00` (RFC 3339).
#[must_use]
pub fn milliseconds(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let rest = text.get(19..)?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(digits) => {
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let (digits, zone) = digits.split_at(end);
            let three: String = digits.chars().chain("000".chars()).take(3).collect();
            (three.parse::<i64>().ok()?, zone)
        }
        None => (0, rest),
    };
    let offset = match zone {
        "" | "Z" | "z" => 0,
        zone => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
            let (hours, minutes) = (digits.get(..2)?, digits.get(2..4)?);
            sign * (hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
        }
    };
    // Days from 1970 by the algorithm of Howard Hinnant's `days_from_civil`.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = y.div_euclid(400);
    let of_era = y - era * 400;
    let day_of_year = (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
    Some((((days * 24 + hour) * 60 + minute - offset) * 60 + second) * 1000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-01-31T12:00:00.5Z", Some(1_769_860_800_500)),
            ("2026-01-31T13:00:00.123456+01:00", Some(1_769_860_800_123)),
            ("2026-01-31T11:00:00-0100", Some(1_769_860_800_000)),
            ("2026-13-31T11:00:00Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(milliseconds(text), want, "{text}");
        }
    }

    #[test]
    fn names_are_made() {
        for (text, want) in [
            ("X-CSRF-Token", "x_csrf_token"),
            ("accessToken", "access_token"),
            ("__RequestVerificationToken", "request_verification_token"),
            ("user", "user_1"),
            ("3d", "v3d"),
            ("", "value"),
            ("é", "value"),
        ] {
            assert_eq!(name(text), want, "{text}");
        }
    }

    #[test]
    fn texts_of_plans_are_taken_apart() {
        let shown = |text: &str| {
            let one = |span: &Span<'_>| match span {
                Span::Literal(own) => format!("'{own}'"),
                Span::Placeholder(inner) => format!("<{inner}>"),
            };
            spans(text).iter().map(one).collect::<String>()
        };
        for (text, want) in [
            ("a{{b}}c", "'a'<b>'c'"),
            ("{{base64:{{u}}:x}}", "<base64:{{u}}:x>"),
            ("{{{{a}}", "'{{a}}'"),
            ("a{{b", "'a{{b'"),
            ("", ""),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
        assert_eq!(split("a?{{base64:x?y}}?b", '?'), ["a", "{{base64:x?y}}", "b"]);
        assert_eq!(split_once("{{a=b}}=c=d", '='), Some(("{{a=b}}", "c=d")));
        assert_eq!(split_once("{{a=b}}", '='), None);
    }

    #[test]
    fn urls_are_split() {
        let split = |url: &str| split_url(url).map(|(server, rest)| format!("{server} {rest}"));
        for (url, want) in [
            ("HTTP://A:80/x?y#z", Some("http://a /x?y")),
            ("https://me:secret@a:8443?q", Some("https://a:8443 /?q")),
            ("http://[::1]:80", Some("http://[::1] /")),
            ("data:text/plain,x", None),
            ("http:///x", None),
        ] {
            assert_eq!(split(url).as_deref(), want, "{url}");
        }
        assert_eq!((host_of("https://a:1"), host_of("http://[::1]:81")), ("a", "[::1]"));
    }
}
