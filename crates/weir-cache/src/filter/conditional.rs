//! Evaluates conditional requests against stored objects: `If-None-Match`, `If-Modified-Since` (RFC 9110 §13),
//! `Range` and `If-Range` (§14).

use super::control::end_of_member;
use super::freshness::date;
use std::ops::Range;
use std::time::SystemTime;
use weir_h1::Fields;

/// The values that show whether a client already has an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Validators<'a> {
    pub(super) etag: Option<&'a [u8]>,
    pub(super) last_modified: Option<SystemTime>,
    /// Replaces a missing `last_modified`.
    pub(super) date: Option<SystemTime>,
}

/// The requested part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes from the start up to the end, exclusive.
    Bytes(Range<u64>),
    /// A range outside the body.
    Outside,
    /// The whole body.
    Whole,
}

/// Whether a condition asks about the current state, which only the origin can evaluate.
pub(super) fn is_for_origin(asked: &Fields) -> bool {
    asked.get_str("if-match").is_some() || asked.get_str("if-unmodified-since").is_some()
}

/// Whether the client already has the object, so that the answer is a 304. If-None-Match takes precedence over
/// If-Modified-Since (RFC 9110 §13.2.2).
pub(super) fn client_has_it(asked: &Fields, validators: &Validators<'_>) -> bool {
    let mut tags = asked.get_all("if-none-match").peekable();
    if tags.peek().is_some() {
        let Some(etag) = validators.etag else { return false };
        return tags.any(|line| names(line, etag));
    }
    let mut since = asked.get_all("if-modified-since");
    let (Some(since), None) = (since.next(), since.next()) else { return false };
    let changed = validators.last_modified.or(validators.date);
    date(since).zip(changed).is_some_and(|(since, changed)| changed <= since)
}

/// Whether a list of entity tags contains this one, by weak comparison (RFC 9110 §8.8.3.2).
fn names(list: &[u8], etag: &[u8]) -> bool {
    let mut rest = list;
    loop {
        let (member, behind) = rest.split_at_checked(end_of_member(rest)).unwrap_or((rest, &[]));
        let member = member.trim_ascii();
        if member == b"*" || opaque(member) == opaque(etag) {
            return true;
        }
        match behind.get(1..) {
            Some(more) => rest = more,
            None => return false,
        }
    }
}

/// An entity tag without the mark of weakness.
pub(super) fn opaque(etag: &[u8]) -> &[u8] {
    etag.strip_prefix(b"W/").unwrap_or(etag)
}

/// The part that `Range` requests. Several ranges get the whole body, as RFC 9110 §14.2 allows, and so does a
/// malformed range.
pub(super) fn part(asked: &Fields, validators: &Validators<'_>, length: u64) -> Part {
    let mut ranges = asked.get_all("range");
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Part::Whole };
    if !condition_holds(asked, validators) {
        return Part::Whole;
    }
    let unit = range.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes="));
    let spec = range.get(6..).filter(|_| unit.is_some()).map(<[u8]>::trim_ascii);
    spec.and_then(|spec| bytes(spec, length)).unwrap_or(Part::Whole)
}

/// `If-Range`: the strong tag or the exact date of the client's partial copy (RFC 9110 §13.1.5).
fn condition_holds(asked: &Fields, validators: &Validators<'_>) -> bool {
    let mut conditions = asked.get_all("if-range");
    match (conditions.next(), conditions.next()) {
        (None, _) => true,
        (Some(tag), None) if tag.ends_with(b"\"") => !tag.starts_with(b"W/") && validators.etag == Some(tag),
        (Some(day), None) => date(day).is_some_and(|day| validators.last_modified == Some(day)),
        (Some(_), Some(_)) => false,
    }
}

fn bytes(spec: &[u8], length: u64) -> Option<Part> {
    let at = spec.iter().position(|&b| b == b'-')?;
    let (first, last) = (spec.get(..at)?, spec.get(at + 1..)?);
    if first.is_empty() {
        let many = number(last)?.min(length);
        return Some(if many == 0 { Part::Outside } else { Part::Bytes(length - many..length) });
    }
    let first = number(first)?;
    let end = if last.is_empty() { u64::MAX } else { number(last)?.saturating_add(1) };
    if end <= first {
        return None; // RFC 9110 §14.1.1: not a valid range
    }
    Some(if first >= length { Part::Outside } else { Part::Bytes(first..end.min(length)) })
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::super::testing::fields;
    use super::*;

    const EARLY: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATE: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

    fn validators() -> Validators<'static> {
        Validators { etag: Some(b"\"a\""), last_modified: date(THEN.as_bytes()), date: None }
    }

    #[test]
    fn conditions() {
        for (lines, has) in [
            (&[][..], false),
            (&[("If-None-Match", "\"a\"")], true),
            (&[("If-None-Match", "W/\"a\"")], true),
            (&[("If-None-Match", "a")], false),
            (&[("If-None-Match", "*")], true),
            (&[("If-None-Match", "\"b\", \"c,d\" , \"a\"")], true),
            (&[("If-None-Match", "\"b\""), ("If-None-Match", "\"a\"")], true),
            (&[("If-None-Match", "\"b,\\\"a\"")], false),
            (&[("If-None-Match", "")], false),
            (&[("If-Modified-Since", THEN)], true),
            (&[("If-Modified-Since", LATE)], true),
            (&[("If-Modified-Since", EARLY)], false),
            (&[("If-Modified-Since", "yesterday")], false),
            (&[("If-None-Match", "\"b\""), ("If-Modified-Since", LATE)], false),
            (&[("If-None-Match", "\"a\""), ("If-Modified-Since", EARLY)], true),
        ] {
            assert_eq!(client_has_it(&fields(lines), &validators()), has, "{lines:?}");
        }
        let dated = Validators { date: date(THEN.as_bytes()), ..Validators::default() };
        assert!(client_has_it(&fields(&[("If-Modified-Since", LATE)]), &dated));
        assert!(!client_has_it(&fields(&[("If-None-Match", "*")]), &dated));
    }

    #[test]
    fn ranges() {
        use Part::{Bytes, Outside, Whole};
        for (text, expected) in [
            ("bytes=0-0", Bytes(0..1)),
            ("BYTES=2-", Bytes(2..10)),
            ("bytes=2-99999999999999999999", Bytes(2..10)),
            ("bytes=-3", Bytes(7..10)),
            ("bytes=-30", Bytes(0..10)),
            ("bytes=-0", Outside),
            ("bytes=10-", Outside),
            ("bytes=99999999999999999999-", Whole), // its end is not larger than its start
            ("bytes=5-4", Whole),
            ("bytes=", Whole),
            ("bytes=-", Whole),
            ("bytes=a-b", Whole),
            ("bytes=0-0, 2-2", Whole),
            ("lines=0-0", Whole),
            ("", Whole),
        ] {
            assert_eq!(part(&fields(&[("Range", text)]), &validators(), 10), expected, "{text}");
        }
        for (condition, holds) in
            [("\"a\"", true), ("W/\"a\"", false), ("\"b\"", false), (THEN, true), (EARLY, false)]
        {
            let asked = fields(&[("Range", "bytes=0-0"), ("If-Range", condition)]);
            let expected = if holds { Bytes(0..1) } else { Whole };
            assert_eq!(part(&asked, &validators(), 10), expected, "{condition}");
        }
    }

    /// Every requested part lies within the body and is not empty.
    #[test]
    fn a_part_lies_within() {
        let mut state = 1_u64;
        for length in [0, 1, 10, u64::MAX] {
            for _ in 0..10_000 {
                let mut text = b"bytes=".to_vec();
                for _ in 0..6 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    text.push(b"0123456789--,"[(state >> 33) as usize % 13]);
                }
                let text = String::from_utf8(text).unwrap();
                match part(&fields(&[("Range", &text)]), &validators(), length) {
                    Part::Bytes(range) => assert!(range.start < range.end && range.end <= length, "{text}"),
                    Part::Outside | Part::Whole => {}
                }
            }
        }
    }
}
