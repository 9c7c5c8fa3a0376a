//! What functions do to text. Positions count characters of UTF-8, in which bytes `10xxxxxx` continue one.

use crate::value::Value;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A part of a text, borrowed if the text is.
fn slice(text: Cow<'_, [u8]>, range: Range<usize>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(range).unwrap_or_default()),
        Cow::Owned(text) => Cow::Owned(text.get(range).unwrap_or_default().to_vec()),
    }
}

/// The byte where the character at `position` begins; the end of the text behind its last one.
fn byte_of(text: &[u8], position: i64) -> usize {
    let position = usize::try_from(position).unwrap_or(0);
    let mut beginnings = text.iter().enumerate().filter(|(_, b)| **b & 0xc0 != 0x80).map(|(at, _)| at);
    if position == 0 { 0 } else { beginnings.nth(position).unwrap_or(text.len()) }
}

/// The characters from one position up to another, as far as the text has them.
pub(crate) fn substring(text: Cow<'_, [u8]>, from: i64, to: i64) -> Cow<'_, [u8]> {
    let (start, end) = (byte_of(&text, from), byte_of(&text, to));
    let is_there = from >= 0 && from < to;
    slice(text, if is_there { start..end.max(start) } else { 0..0 })
}

/// The first position of `part` at or behind `from`, or -1.
pub(crate) fn first(text: &[u8], part: &[u8], from: i64) -> i64 {
    let start = byte_of(text, from);
    position(text, memchr::memmem::find(&text[start..], part).map(|at| start + at))
}

/// The last position of `part` at or before `to`, or -1.
pub(crate) fn last(text: &[u8], part: &[u8], to: i64) -> i64 {
    if to < 0 {
        return -1;
    }
    let end = byte_of(text, to).saturating_add(part.len()).min(text.len());
    position(text, memchr::memmem::rfind(&text[..end], part))
}

/// The position of the character at a byte, or -1.
fn position(text: &[u8], byte: Option<usize>) -> i64 {
    byte.map_or(-1, |byte| text[..byte].iter().filter(|b| **b & 0xc0 != 0x80).count() as i64)
}

/// Without white space around it; without that of ASCII where it is not UTF-8.
pub(crate) fn trim(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let (start, end) = match str::from_utf8(&text) {
        Ok(text) => {
            let start = text.len() - text.trim_start().len();
            (start, start + text.trim().len())
        }
        Err(_) => {
            let start = text.len() - text.trim_ascii_start().len();
            (start, start + text.trim_ascii().len())
        }
    };
    slice(text, start..end)
}

/// The parts between `separator`, at most `most`; the last holds the rest. An empty separator stands between all
/// characters.
pub(crate) fn split<'a>(text: Cow<'a, [u8]>, separator: &[u8], most: usize) -> Arc<[Value<'a>]> {
    let mut ranges = Vec::new();
    let mut start = 0;
    while ranges.len() + 1 < most {
        let rest = &text[start..];
        let found = if separator.is_empty() {
            Some(byte_of(rest, 1)).filter(|end| *end < rest.len())
        } else {
            memchr::memmem::find(rest, separator)
        };
        let Some(end) = found else { break };
        ranges.push(start..start + end);
        start += end + separator.len();
    }
    if most > 0 {
        ranges.push(start..text.len());
    }
    match text {
        Cow::Borrowed(text) => ranges.into_iter().map(|range| Value::text(&text[range])).collect(),
        Cow::Owned(text) => {
            ranges.into_iter().map(|range| Value::Text(Cow::Owned(text[range].to_vec()))).collect()
        }
    }
}

/// With `from` replaced by `to`, at most `times`; none if it becomes longer than `most`. An empty `from` replaces nothing.
pub(crate) fn replace(text: &[u8], from: &[u8], to: &[u8], times: usize, most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut start = 0;
    if !from.is_empty() {
        for at in memchr::memmem::find_iter(text, from).take(times) {
            out.extend_from_slice(&text[start..at]);
            out.extend_from_slice(to);
            start = at + from.len();
            if out.len() > most {
                return None;
            }
        }
    }
    out.extend_from_slice(&text[start..]);
    (out.len() <= most).then_some(out)
}

/// Two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).collect()
}

/// The bytes that hex digits stand for.
pub(crate) fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.filter(|_| rest.is_empty())
}
