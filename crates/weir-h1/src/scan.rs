//! Where names and values end: eight bytes at a time in a plain register, for there is no vector unit that every target has.
//!
//! Looking at bytes one by one was a third of what a head costs: 1,000 of 2,900 instructions for a request and its answer of
//! six fields together (bench/count.py, h1-64).

use crate::name::is_token;

const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES * 0x80;

/// Where the token that begins at `at` ends: at the first byte that may not stand in one, or at the end of the bytes.
/// And whether it is known to be of letters and hyphens alone.
pub(crate) fn end_of_token(bytes: &[u8], mut at: usize) -> (usize, bool) {
    while let Some(word) = word_at(bytes, at) {
        let other = !letters_and_hyphens(word) & HIGHS;
        if other != 0 {
            at += first_mark(other);
            break;
        }
        at += 8;
    }
    // Digits and the rarer marks of a token are looked at one by one.
    let seen = at;
    while bytes.get(at).is_some_and(|&b| is_token(b)) {
        at += 1;
    }
    (at, at == seen)
}

/// Where the value that begins at `at` ends: at the first control byte that is no tab, or at the end of the bytes.
pub(crate) fn end_of_value(bytes: &[u8], mut at: usize) -> usize {
    loop {
        while let Some(word) = word_at(bytes, at) {
            let below_space = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
            let delete = word ^ (ONES * 0x7f);
            let delete = delete.wrapping_sub(ONES) & !delete & HIGHS;
            let found = below_space | delete;
            if found != 0 {
                // A borrow may mark bytes above a found one, never below: the lowest mark is true.
                at += first_mark(found);
                break;
            }
            at += 8;
        }
        match bytes.get(at) {
            Some(b'\t' | 0x20..=0x7e | 0x80..=0xff) => at += 1,
            _ => return at,
        }
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

const fn first_mark(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// The high bit of each byte that is a letter or a hyphen. No sum or difference leaves its byte.
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

    /// Every byte, at every place of a word, with fine bytes around it.
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
}
