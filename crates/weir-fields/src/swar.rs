//! Looks at eight bytes of text at a time. Names and values are short: a call into a library of vector code costs more
//! than the search, and a loop over bytes three times as much.

/// One in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte.
const HIGH: u64 = ONES << 7;

/// Each byte of a word is this one.
const fn all(byte: u8) -> u64 {
    ONES * byte as u64
}

/// Marks the bytes that equal `byte` by their highest bits. Marks behind the first one may be wrong.
const fn equal(word: u64, byte: u8) -> u64 {
    let word = word ^ all(byte);
    word.wrapping_sub(ONES) & !word & HIGH
}

/// Marks the upper-case letters.
const fn upper(word: u64) -> u64 {
    let low = word & !HIGH;
    let (from_a, behind_z) = (low + all(128 - b'A'), low + all(127 - b'Z'));
    from_a & !behind_z & !word & HIGH
}

/// Whether a byte is less than `least`, which is at most 128, or DEL.
const fn has_control(word: u64, least: u8) -> bool {
    (word.wrapping_sub(all(least)) & !word & HIGH) | equal(word, 0x7f) != 0
}

/// The number of the first marked byte.
const fn first(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight))
}

/// Where the name of a field line ends, and whether it is in lower case. `None` if the line has no colon.
#[inline]
pub(crate) fn name_end(line: &[u8]) -> Option<(usize, bool)> {
    let mut is_lower = true;
    let mut at = 0;
    while let Some(word) = eight(line, at) {
        let (colon, cr) = (equal(word, b':'), equal(word, b'\r'));
        if colon | cr == 0 {
            is_lower &= upper(word) == 0;
            at += 8;
            continue;
        }
        let end = first(colon | cr);
        let is_colon = colon >> (8 * end) & 0x80 != 0;
        let of_name = upper(word) & ((1 << (8 * end)) - 1);
        return is_colon.then_some((at + end, is_lower && of_name == 0));
    }
    let rest = line.get(at..)?;
    let end = rest.iter().position(|b| matches!(b, b':' | b'\r'))?;
    let is_lower = is_lower && !rest.get(..end)?.iter().any(u8::is_ascii_uppercase);
    (rest.get(end) == Some(&b':')).then_some((at + end, is_lower))
}

/// Where the line ends: the place of the first CR. Leaves the rest of a long line to `memchr`.
#[inline]
pub(crate) fn line_end(bytes: &[u8]) -> Option<usize> {
    const SHORT: usize = 16;
    let mut at = 0;
    while at < SHORT
        && let Some(word) = eight(bytes, at)
    {
        let cr = equal(word, b'\r');
        if cr != 0 {
            return Some(at + first(cr));
        }
        at += 8;
    }
    memchr::memchr(b'\r', bytes.get(at..)?).map(|end| at + end)
}

/// Whether no byte is less than `least`, which is at most 128, and none is DEL.
#[inline]
pub(crate) fn is_free_of_controls(bytes: &[u8], least: u8) -> bool {
    let mut at = 0;
    while let Some(word) = eight(bytes, at) {
        if has_control(word, least) {
            return false;
        }
        at += 8;
    }
    // The last eight bytes once more, or all bytes if there are fewer.
    match bytes.last_chunk() {
        Some(last) => !has_control(u64::from_le_bytes(*last), least),
        None => bytes.iter().all(|&b| b >= least && b != 0x7f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of texts of every short length, beside bytes that differ from it by one bit or by one.
    #[test]
    fn every_byte_is_seen_at_every_place() {
        for len in 1..=20 {
            for at in 0..len {
                for byte in 0..=255 {
                    for other in [b'a', 0x80, 0xff, byte ^ 1, byte ^ 0x80, byte.wrapping_sub(1)] {
                        let mut text = vec![other; len];
                        text[at] = byte;
                        check(&text);
                    }
                }
            }
        }
    }

    fn check(text: &[u8]) {
        let end = text.iter().position(|b| matches!(b, b':' | b'\r'));
        let colon = end.filter(|&end| text[end] == b':');
        let name = colon.map(|end| (end, !text[..end].iter().any(u8::is_ascii_uppercase)));
        assert_eq!(name_end(text), name, "{text:?}");
        assert_eq!(line_end(text), text.iter().position(|&b| b == b'\r'), "{text:?}");
        for least in [b' ', b' ' + 1] {
            let is_free = text.iter().all(|&b| b >= least && b != 0x7f);
            assert_eq!(is_free_of_controls(text, least), is_free, "{text:?}");
        }
    }

    #[test]
    fn long_lines_end_too() {
        for len in 0..200 {
            let text = [&vec![b'x'; len][..], b"\r\n"].concat();
            assert_eq!(line_end(&text), Some(len));
            assert_eq!(line_end(&text[..len]), None);
        }
    }
}
