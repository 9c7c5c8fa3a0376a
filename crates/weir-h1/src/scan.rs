//! Finds the ends of names, values and targets, eight bytes at a time in a general-purpose register, because no
//! vector unit exists on every target.
//!
//! Scanning byte by byte was a third of a head's cost: 1,000 of 2,900 instructions for a request and its response
//! with six fields together (bench/count.py, h1-64).

use crate::head::is_target;
use crate::name::is_token;

const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES * 0x80;

/// The end of the token that begins at `at`: the first byte not allowed in a token, or the end of the bytes. Also
/// returns whether the token is known to consist only of letters and hyphens.
pub(crate) fn end_of_token(bytes: &[u8], mut at: usize) -> (usize, bool) {
    while let Some(word) = word_at(bytes, at) {
        let other = !letters_and_hyphens(word) & HIGHS;
        if other != 0 {
            at += first_mark(other);
            break;
        }
        at += 8;
    }
    // Digits and the rarer token characters are checked one by one.
    let seen = at;
    while bytes.get(at).is_some_and(|&b| is_token(b)) {
        at += 1;
    }
    (at, at == seen)
}

/// The end of the value that begins at `at`: the first control byte other than a tab, or the end of the bytes.
pub(crate) fn end_of_value(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = control(bytes, at);
        match bytes.get(at) {
            Some(b'\t' | 0x20..=0x7e | 0x80..=0xff) => at += 1,
            _ => return at,
        }
    }
}

/// Like `end_of_value`, if the value ends with its line: nearly always at the first control byte.
#[inline]
pub(crate) fn end_of_line(bytes: &[u8], at: usize) -> Option<usize> {
    let is_end = |at: usize| bytes.get(at..at + 2) == Some(b"\r\n");
    let mut end = control(bytes, at);
    if !is_end(end) {
        end = end_of_value(bytes, end);
    }
    is_end(end).then_some(end)
}

/// The first control byte from `at` on. Without one, one of the last seven positions, or the end.
#[inline]
fn control(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = word_at(bytes, at) {
        let below_space = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let delete = word ^ (ONES * 0x7f);
        let delete = delete.wrapping_sub(ONES) & !delete & HIGHS;
        let found = below_space | delete;
        if found != 0 {
            // A borrow may mark bytes above a match, never below: the lowest mark is correct.
            return at + first_mark(found);
        }
        at += 8;
    }
    at
}

/// The end of the path or query part that begins at `at`: the first byte not allowed in a target, a `?`, or the end
/// of the bytes.
pub(crate) fn end_of_part(bytes: &[u8], mut at: usize) -> usize {
    let is = |word: u64, byte: u8| {
        let zero = word ^ (ONES * byte as u64);
        zero.wrapping_sub(ONES) & !zero
    };
    while let Some(word) = word_at(bytes, at) {
        let below = word.wrapping_sub(ONES * 0x21) & !word;
        let found = (below | is(word, b'?') | is(word, b'#') | is(word, 0x7f) | word) & HIGHS;
        if found != 0 {
            return at + first_mark(found);
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&b| is_target(b) && b != b'?') {
        at += 1;
    }
    at
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

const fn first_mark(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// Sets the high bit of each byte that is a letter or a hyphen. No sum or difference carries into another byte.
const fn letters_and_hyphens(word: u64) -> u64 {
    let low = word & !HIGHS;
    let lower = low | (ONES * 0x20);
    let from_a = lower + ONES * (0x80 - b'a' as u64);
    let beyond_z = lower + ONES * (0x7f - b'z' as u64);
    let hyphen = HIGHS - (low ^ (ONES * b'-' as u64));
    ((from_a & !beyond_z) | hyphen) & !word
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests every byte value at every position of a word, with valid bytes around it.
    fn each_byte(check: impl Fn(&[u8], usize, u8)) {
        for byte in 0..=255 {
            for place in 0..20 {
                let mut bytes = [b'a'; 24];
                bytes[place] = byte;
                check(&bytes, place, byte);
            }
        }
    }

    #[test]
    fn a_token_ends_at_the_first_byte_that_is_none_of_it() {
        each_byte(|bytes, place, byte| {
            let expected = if is_token(byte) { bytes.len() } else { place };
            let (end, plain) = end_of_token(bytes, 0);
            assert_eq!(end, expected, "byte {byte:#x} at {place}");
            assert!(!plain || !bytes[..end].contains(&b'_'), "byte {byte:#x} at {place}");
            assert_eq!(end_of_token(bytes, place + 1).0, bytes.len());
        });
        assert_eq!(end_of_token(b"", 0), (0, true));
        assert_eq!(end_of_token(b"content-length: 10", 0), (14, true));
    }

    #[test]
    fn a_value_ends_at_a_control_byte() {
        each_byte(|bytes, place, byte| {
            let ends = byte != b'\t' && (byte < 0x20 || byte == 0x7f);
            assert_eq!(
                end_of_value(bytes, 0),
                if ends { place } else { bytes.len() },
                "byte {byte:#x} at {place}"
            );
        });
    }

    #[test]
    fn a_part_of_a_target_ends_at_what_stands_in_none_and_at_a_question() {
        each_byte(|bytes, place, byte| {
            let expected = if is_target(byte) && byte != b'?' { bytes.len() } else { place };
            assert_eq!(end_of_part(bytes, 0), expected, "byte {byte:#x} at {place}");
            assert_eq!(end_of_part(bytes, place + 1), bytes.len());
        });
    }

    #[test]
    fn a_line_ends_with_cr_and_lf() {
        for (line, end) in [
            ("a\r\n", Some(1)),
            ("\r\n", Some(0)),
            ("a\tlong one\t with tabs\r\nmore of it", Some(21)),
            ("a long one\rwithout\r\n", None),
            ("a long one\n\r\n", None),
            ("a long one that is not over", None),
            ("a long one that may be\r", None),
            ("a long one with \x7f\r\n", None),
        ] {
            assert_eq!(end_of_line(line.as_bytes(), 0), end, "{line:?}");
        }
    }
}
