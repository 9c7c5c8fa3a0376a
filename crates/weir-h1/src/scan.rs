//! Finds the ends of names, values and targets, sixteen bytes at a time.
//!
//! Scanning byte by byte was a third of a head's cost: 1,000 of 2,900 instructions for a request and its response
//! with six fields together (bench/count.py, h1-64).

mod block;

use crate::fields::Text;
use crate::head::{is_authority, is_port_part, is_target};
use crate::name::is_token;
use block::{Block, controls, dots, no_host, no_part, no_word};
use std::num::NonZero;

/// The end of the token that begins at `at`: the first byte not allowed in a token, or the end of the bytes. Also
/// returns whether the token is known to consist only of letters and hyphens.
#[inline]
pub(crate) fn end_of_token(bytes: &[u8], at: usize) -> (usize, bool) {
    let seen = first(bytes, at, no_word, |b| !b.is_ascii_alphabetic() && b != b'-');
    // Digits and the rarer token characters are checked one by one.
    let mut at = seen;
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
            Some(b'\t') => at += 1,
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

/// As many bytes as most field lines have.
type Window = [u8; 2 * size_of::<Block>()];

/// The colon and the end of the value of the line that begins at `start`, if the line is as most are: a name of letters
/// and hyphens, a colon, one space, and a value that is not empty and has no tab in it and no space around it. `None`
/// says nothing about the line.
///
/// A window is loaded once for both, and few bytes are checked one by one.
#[inline(always)]
pub(crate) fn common_line(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    // The window begins with the line, or earlier if fewer bytes are left.
    let begin = start.min(bytes.len().checked_sub(size_of::<Window>())?);
    let window: &Window = bytes.get(begin..)?.first_chunk()?;
    let before = (start - begin) as u32; // at most 32, as `start` lies within the bytes
    let no_word = in_window(window, no_word).checked_shr(before)?;
    let controls = in_window(window, controls).checked_shr(before)?;
    let colon = start + NonZero::new(no_word)?.trailing_zeros() as usize;
    // No control byte is part of a name, so the end is not before the colon.
    let end = match NonZero::new(controls) {
        Some(found) => start + found.trailing_zeros() as usize,
        None => control(bytes, begin + size_of::<Window>()),
    };
    let &[after_name, space, first] = bytes.get(colon..)?.first_chunk()?;
    let &[last, cr, lf] = bytes.get(end.checked_sub(1)?..)?.first_chunk()?;
    let is_name = colon > start && [after_name, space] == *b": " && first != b' ';
    let is_value = [cr, lf] == *b"\r\n" && last != b' ';
    (is_name && is_value).then_some((colon, end))
}

/// Bit `i` of the result stands for byte `i` of the window.
#[inline(always)]
fn in_window(window: &Window, marks: impl Fn(&Block) -> u32) -> u32 {
    let (blocks, _) = window.as_chunks();
    blocks.iter().rev().fold(0, |found, block| found << size_of::<Block>() | marks(block))
}

/// The first control byte from `at` on, or the end of the bytes.
#[inline]
fn control(bytes: &[u8], at: usize) -> usize {
    first(bytes, at, controls, |b| b < 0x20 || b == 0x7f)
}

/// The end of the path or query part that begins at `at`: the first byte not allowed in a target, a `?`, or the end
/// of the bytes.
pub(crate) fn end_of_part(bytes: &[u8], at: usize) -> usize {
    first(bytes, at, no_part, |b| !is_target(b) || b == b'?')
}

/// Whether a range of received bytes is a valid Host value: see [`is_authority`]. Most hosts fit into one block, which
/// saves 40 instructions (count h1-64).
pub(crate) fn is_authority_at(bytes: &[u8], text: Text) -> bool {
    let (at, end) = (text.at as usize, (text.at + text.len) as usize);
    match short_name(bytes, at, end) {
        Some(length) => bytes.get(at + length..end).is_some_and(is_port_part),
        None => bytes.get(at..end).is_some_and(is_authority),
    }
}

/// The length of the host's name that begins at `at` and ends before `end`, if it is a valid one and that can be seen
/// in one block.
#[inline]
fn short_name(bytes: &[u8], at: usize, end: usize) -> Option<usize> {
    let block = bytes.get(at..)?.first_chunk()?;
    // Beyond the end no byte counts.
    let beyond = u32::MAX.checked_shl((end - at) as u32).unwrap_or_default();
    let length = (no_host(block) | beyond).trailing_zeros();
    let dots = dots(block) & !(u32::MAX << length.min(31));
    let has_empty_label = dots & (dots << 1 | 1) != 0;
    (length > 0 && length < size_of::<Block>() as u32 && !has_empty_label).then_some(length as usize)
}

/// The first byte of a class from `at` on, or the end of the bytes. `marks` and `is` say which bytes belong to it.
#[inline(always)]
fn first(bytes: &[u8], mut at: usize, marks: impl Fn(&Block) -> u32, is: impl Fn(u8) -> bool) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let found = marks(block);
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += size_of::<Block>();
    }
    // Less than a block is left. The last block contains it, behind bytes that do not count.
    let Some(last) = bytes.last_chunk() else {
        let rest = bytes.get(at..).unwrap_or_default();
        return at + rest.iter().position(|&b| is(b)).unwrap_or(rest.len());
    };
    let seen = (at + size_of::<Block>()).saturating_sub(bytes.len());
    match marks(last).checked_shr(seen as u32) {
        None | Some(0) => at.max(bytes.len()),
        Some(found) => at + found.trailing_zeros() as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::is_host;

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
    fn a_short_name_is_what_the_byte_by_byte_search_finds() {
        for name in [
            "a",
            "a.b",
            "a.",
            ".a",
            ".",
            "a..b",
            "127.0.0.1",
            "x_y~z-0",
            "fifteen.letters",
            "a b",
            "",
            "\u{e9}",
        ] {
            for port in ["", ":80", ":", "/x"] {
                let text = format!("{name}{port}");
                let bytes = format!("{text}\r\nfollowed by more bytes");
                let length = text.bytes().take_while(|b| is_host(*b)).count();
                let expected = is_authority(&text.as_bytes()[..length]).then_some(length);
                assert_eq!(short_name(bytes.as_bytes(), 0, text.len()), expected, "{text}");
            }
        }
        assert_eq!(short_name(b"sixteen-letters.a\r\n and more", 0, 17), None, "it does not fit");
        assert_eq!(short_name(b"short", 0, 5), None, "there is no whole block");
    }

    /// Lines with each byte at each place, before more or fewer bytes.
    #[test]
    fn a_common_line_is_what_the_searches_find() {
        let lines = [
            "Host: a",
            "Content-Length: 1234",
            "A-name-that-is-longer: 1",
            "A-name-that-is-longer-than-a-window-of-the-bytes: 1",
            "a: a value that is longer than a window of the bytes, and than two",
        ];
        let befores = ["", "GET / HTTP/1.1\r\nUser-Agent: somebody\r\n"];
        let rests = ["", "\r", "\r\n", "\r\n\r\n", "\r\nAccept: */*\r\nX: more than a window of bytes\r\n"];
        let mut found = 0;
        for line in lines.map(str::as_bytes) {
            for place in 0..line.len() {
                for byte in 0..=255 {
                    let mut changed = line.to_vec();
                    changed[place] = byte;
                    for rest in rests {
                        let before = befores[usize::from(byte) % 2];
                        let bytes = [before.as_bytes(), &changed, rest.as_bytes()].concat();
                        let Some((colon, end)) = common_line(&bytes, before.len()) else { continue };
                        found += 1;
                        assert_eq!((colon, true), end_of_token(&bytes, before.len()));
                        assert_eq!(Some(end), end_of_line(&bytes, colon + 2));
                        assert!(colon > before.len() && bytes[colon..].starts_with(b": "));
                        let value = &bytes[colon + 2..end];
                        assert_eq!((value.is_empty(), value), (false, value.trim_ascii()));
                    }
                }
            }
        }
        assert!(found > 30_000, "{found}");
    }

    #[test]
    fn most_lines_are_common() {
        for (line, is_common) in [
            ("Host: 127.0.0.1:8080", true),
            ("content-type: text/html; charset=utf-8", true),
            ("a: b", true),
            ("Strict-Transport-Security: max-age=1", true),
            ("A-Name-Of-Thirty-Two-Characters-: 1", false),
            ("a:b", false),
            ("a:  b", false),
            ("a: b ", false),
            ("a: \tb", false),
            ("a: b\tc", false),
            ("a: ", false),
            ("a:", false),
            (": b", false),
            ("x1: b", false),
            ("x_y: b", false),
        ] {
            for more in ["\r\n", "\r\nAccept: */*\r\nUser-Agent: somebody\r\n\r\n"] {
                let before = "GET / HTTP/1.1\r\nOrigin: somewhere\r\n";
                let bytes = format!("{before}{line}{more}");
                let found = common_line(bytes.as_bytes(), before.len());
                assert_eq!(found.is_some(), is_common, "{line} {more:?}");
            }
        }
        for start in [0, 1, 31, 32, 40, 41] {
            assert_eq!(common_line(&[b'a'; 40][..40.min(start + 31)], start), None, "{start}");
        }
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
