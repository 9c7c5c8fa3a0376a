//! Conditions in a request for a file: preconditions (RFC 9110 §13) and ranges (§14).

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_h1::Fields;

/// Most ranges of one request. Nobody reads a file in more: the answer is then the whole file (RFC 9110 §14.2).
const RANGES: usize = 16;

/// A file's validators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Validators {
    /// A strong tag, in its quotes.
    pub(super) tag: String,
    /// When it was modified, to the second.
    pub(super) modified: SystemTime,
}

impl Validators {
    /// A rewritten file has another time, to the nanosecond, or another length. `coding` distinguishes a file from
    /// its compressed form.
    pub(super) fn of(modified: SystemTime, length: u64, coding: Option<&str>) -> Self {
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let suffix = coding.map(|coding| format!("-{coding}")).unwrap_or_default();
        let tag = format!("\"{:x}-{length:x}{suffix}\"", since.as_nanos());
        Self { tag, modified: UNIX_EPOCH + Duration::from_secs(since.as_secs()) }
    }

    /// Evaluates the preconditions in the order of RFC 9110 §13.2.2.
    pub(super) fn check(&self, request: &Fields) -> Verdict {
        let date = |name| request.get_str(name).and_then(date);
        if request.get_str("if-match").is_some() {
            if !self.is_among(request, "if-match", Compare::Strong) {
                return Verdict::Failed;
            }
        } else if date("if-unmodified-since").is_some_and(|since| self.modified > since) {
            return Verdict::Failed;
        }
        if request.get_str("if-none-match").is_some() {
            if self.is_among(request, "if-none-match", Compare::Weak) {
                return Verdict::NotModified;
            }
        } else if date("if-modified-since").is_some_and(|since| self.modified <= since) {
            return Verdict::NotModified;
        }
        Verdict::Holds
    }

    /// Whether the requested ranges refer to this file: `If-Range` (RFC 9110 §13.1.5).
    pub(super) fn is_in_range(&self, request: &Fields) -> bool {
        match request.get_str("if-range") {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => tag == self.tag.as_bytes(),
            Some(weak) if weak.starts_with(b"W/") => false,
            Some(text) => date(text) == Some(self.modified),
        }
    }

    fn is_among(&self, request: &Fields, name: &str, compare: Compare) -> bool {
        let mut tags =
            request.get_all(name).flat_map(|value| value.split(|&b| b == b',')).map(<[u8]>::trim_ascii);
        tags.any(|tag| {
            let weak = tag.strip_prefix(b"W/");
            match (tag, weak, compare) {
                (b"*", ..) => true,
                (_, Some(_), Compare::Strong) => false,
                (_, Some(tag), Compare::Weak) | (tag, None, _) => tag == self.tag.as_bytes(),
            }
        })
    }
}

/// How tags are compared (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Strong,
    Weak,
}

/// The result of the preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// 412.
    Failed,
    /// Continue.
    Holds,
    /// 304.
    NotModified,
}

/// A part of a file, as an exclusive range of bytes. Never empty.
pub(super) type Part = std::ops::Range<u64>;

/// The requested part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// These parts, in the requested order; at least one.
    Parts(Vec<Part>),
    /// No requested part exists: 416.
    Unsatisfiable,
    /// The whole file.
    Whole,
}

/// Reads `Range`. A value that is malformed, in another unit, or too long is ignored.
pub(super) fn ranges(value: Option<&[u8]>, length: u64) -> Wanted {
    let Some(value) = value else { return Wanted::Whole };
    let Some((unit, set)) = value.split_at_checked(6) else { return Wanted::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return Wanted::Whole;
    }
    let (mut parts, mut total, mut count) = (Vec::new(), 0u64, 0);
    for spec in set.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        count += 1;
        if count > RANGES {
            return Wanted::Whole;
        }
        match range(spec, length) {
            Ok(Some(part)) => {
                total = total.saturating_add(part.end - part.start);
                parts.push(part);
            }
            Ok(None) => {}
            Err(Malformed) => return Wanted::Whole,
        }
    }
    match parts.len() {
        _ if count == 0 => Wanted::Whole,
        0 => Wanted::Unsatisfiable,
        // The parts overlap so much that they exceed the file: send it once.
        2.. if total > length => Wanted::Whole,
        _ => Wanted::Parts(parts),
    }
}

struct Malformed;

/// One range of a set; `None` if the file has no such part.
fn range(spec: &[u8], length: u64) -> Result<Option<Part>, Malformed> {
    let dash = spec.iter().position(|&b| b == b'-').ok_or(Malformed)?;
    let (first, last) = (number(spec.get(..dash))?, number(spec.get(dash + 1..))?);
    let part = match (first, last) {
        (None, None) => return Err(Malformed),
        (None, Some(suffix)) => length.saturating_sub(suffix)..length,
        (Some(first), None) => first..length,
        (Some(first), Some(last)) if last < first => return Err(Malformed),
        (Some(first), Some(last)) => first..last.saturating_add(1).min(length),
    };
    Ok((part.start < part.end).then_some(part))
}

/// A number of any length; one too large for us exceeds any file.
fn number(digits: Option<&[u8]>) -> Result<Option<u64>, Malformed> {
    let digits = digits.unwrap_or_default();
    if digits.is_empty() {
        return Ok(None);
    }
    let mut number = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Malformed);
        }
        number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    }
    Ok(Some(number))
}

fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_filter::testing::request_head;

    fn file() -> Validators {
        Validators::of(UNIX_EPOCH + Duration::new(784_111_777, 5), 10, None) // Sun, 06 Nov 1994 08:49:37 GMT
    }

    #[test]
    fn tags_are_strong_and_tell_codings_apart() {
        assert_eq!(file().tag, format!("\"{:x}-a\"", 784_111_777_000_000_005_u64));
        assert_ne!(file().tag, Validators::of(UNIX_EPOCH + Duration::new(784_111_777, 6), 10, None).tag);
        assert_ne!(
            file().tag,
            Validators::of(UNIX_EPOCH + Duration::new(784_111_777, 5), 10, Some("br")).tag
        );
    }

    #[test]
    fn preconditions() {
        let (tag, same, before, after) = (
            file().tag,
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
        );
        for (fields, expected) in [
            (String::new(), Verdict::Holds),
            (format!("If-None-Match: {tag}"), Verdict::NotModified),
            (format!("If-None-Match: W/{tag}"), Verdict::NotModified),
            (format!("If-None-Match: \"a\", {tag}"), Verdict::NotModified),
            (format!("If-None-Match: \"a\"\nIf-None-Match: {tag}"), Verdict::NotModified),
            ("If-None-Match: *".to_owned(), Verdict::NotModified),
            ("If-None-Match: \"a\"".to_owned(), Verdict::Holds),
            (format!("If-None-Match: \"a\"\nIf-Modified-Since: {same}"), Verdict::Holds),
            (format!("If-Modified-Since: {same}"), Verdict::NotModified),
            (format!("If-Modified-Since: {after}"), Verdict::NotModified),
            (format!("If-Modified-Since: {before}"), Verdict::Holds),
            ("If-Modified-Since: yesterday".to_owned(), Verdict::Holds),
            (format!("If-Match: {tag}"), Verdict::Holds),
            ("If-Match: *".to_owned(), Verdict::Holds),
            (format!("If-Match: W/{tag}"), Verdict::Failed),
            ("If-Match: \"a\"".to_owned(), Verdict::Failed),
            (format!("If-Match: \"a\"\nIf-None-Match: {tag}"), Verdict::Failed),
            (format!("If-Match: {tag}\nIf-None-Match: {tag}"), Verdict::NotModified),
            (format!("If-Unmodified-Since: {before}"), Verdict::Failed),
            (format!("If-Unmodified-Since: {same}"), Verdict::Holds),
            (format!("If-Match: {tag}\nIf-Unmodified-Since: {before}"), Verdict::Holds),
        ] {
            let head = request_head(&format!("GET /\n{fields}"));
            assert_eq!(file().check(&head.headers), expected, "{fields}");
        }
        for (field, expected) in [
            (String::new(), true),
            (format!("If-Range: {tag}"), true),
            (format!("If-Range: W/{tag}"), false),
            ("If-Range: \"a\"".to_owned(), false),
            (format!("If-Range: {same}"), true),
            (format!("If-Range: {after}"), false),
            ("If-Range: nonsense".to_owned(), false),
        ] {
            let head = request_head(&format!("GET /\n{field}"));
            assert_eq!(file().is_in_range(&head.headers), expected, "{field}");
        }
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // a single part of a file is intended
    fn ranges_of_a_file() {
        let parts = |parts: &[Part]| Wanted::Parts(parts.to_vec());
        let many = |n: usize| format!("bytes={}", vec!["0-0"; n].join(","));
        for (value, length, expected) in [
            ("bytes=0-3", 10, parts(&[0..4])),
            ("Bytes=0-3", 10, parts(&[0..4])),
            ("bytes=5-", 10, parts(&[5..10])),
            ("bytes=-3", 10, parts(&[7..10])),
            ("bytes=-30", 10, parts(&[0..10])),
            ("bytes=0-99", 10, parts(&[0..10])),
            ("bytes=9-9", 10, parts(&[9..10])),
            ("bytes= 0-1 , 4-5 ,", 10, parts(&[0..2, 4..6])),
            ("bytes=4-5,0-1", 10, parts(&[4..6, 0..2])),
            ("bytes=0-1,20-30", 10, parts(&[0..2])),
            ("bytes=10-", 10, Wanted::Unsatisfiable),
            ("bytes=10-12,99999999999999999999999-", 10, Wanted::Unsatisfiable),
            ("bytes=-0", 10, Wanted::Unsatisfiable),
            ("bytes=0-", 0, Wanted::Unsatisfiable),
            ("bytes=0-99999999999999999999999999", 10, parts(&[0..10])),
            ("bytes=18446744073709551615-18446744073709551615", 10, Wanted::Unsatisfiable),
            ("bytes=0-9,0-9", 10, Wanted::Whole),
            ("bytes=0-4,3-8", 10, Wanted::Whole),
            ("bytes=3-2", 10, Wanted::Whole),
            ("bytes=", 10, Wanted::Whole),
            ("bytes=,,,", 10, Wanted::Whole),
            ("bytes=-", 10, Wanted::Whole),
            ("bytes=a-b", 10, Wanted::Whole),
            ("bytes=1", 10, Wanted::Whole),
            ("bytes=1-2-3", 10, Wanted::Whole),
            ("bytes=+1-2", 10, Wanted::Whole),
            ("bytes 0-3", 10, Wanted::Whole),
            ("items=0-3", 10, Wanted::Whole),
            ("", 10, Wanted::Whole),
        ] {
            assert_eq!(ranges(Some(value.as_bytes()), length), expected, "{value} of {length}");
        }
        assert_eq!(ranges(None, 10), Wanted::Whole);
        assert!(
            matches!(ranges(Some(many(RANGES).as_bytes()), 100), Wanted::Parts(parts) if parts.len() == RANGES)
        );
        assert_eq!(ranges(Some(many(RANGES + 1).as_bytes()), 100), Wanted::Whole);
        assert_eq!(ranges(Some(many(100_000).as_bytes()), u64::MAX), Wanted::Whole);
    }
}
