//! Field lines that heads repeat, each with its block: `server`, `content-type`, what we tell an upstream about a
//! client. Comparing such a line costs 60 instructions, reading and encoding it 330 (callgrind, h2-h2c).
//!
//! For HPACK without a dynamic table, where a block depends on the line alone. So it does not matter whose head a line
//! came from: the same line in any head has the same block. Cookies and HTTP credentials are not kept. A secret in a
//! field of another name may be, until another line takes its place or a burst is over ([`free`]).

use std::cell::Cell;

/// Lines that are kept for each kind of head. The first bytes of a line choose its place.
const PLACES: usize = 64;

/// Longest line and longest block that are kept: 16 KiB per kind of head and thread.
const LONGEST: usize = 128;

thread_local! {
    pub(crate) static OF_REQUESTS: Cell<Repeats> = const { Cell::new(Repeats(Vec::new())) };
    pub(crate) static OF_RESPONSES: Cell<Repeats> = const { Cell::new(Repeats(Vec::new())) };
}

/// Forgets all lines of this thread.
pub fn free() {
    OF_REQUESTS.take();
    OF_RESPONSES.take();
}

/// Lines and their blocks. Requests and responses each have their own, because some lines mean more in one of them.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Vec<Place>);

#[derive(Clone, Debug, Default)]
struct Place {
    /// The mark of the last line that came here and was not known.
    mark: u64,
    /// The line with its CRLF, and its block.
    bytes: Vec<u8>,
    /// The length of the line.
    line: usize,
}

/// Where a line belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    place: usize,
    mark: u64,
}

impl Key {
    /// For the line at the start of `text`. `None` if there is too little text to tell.
    #[inline]
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let (first, rest) = text.split_first_chunk()?;
        let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*rest.first_chunk()?));
        let mark = first ^ second.rotate_left(29);
        // The upper bits of a product depend on all bits of its factor.
        let place = mark.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2());
        Some(Self { place: place as usize, mark })
    }
}

impl Repeats {
    /// Appends the block of the line at the start of `text`, if the line is known. Returns the length of the line.
    #[inline]
    pub(crate) fn append(&self, key: Key, text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let place = self.0.get(key.place)?;
        let (line, block) = place.bytes.split_at_checked(place.line)?;
        if line.is_empty() || !text.starts_with(line) {
            return None;
        }
        out.extend_from_slice(block);
        Some(line.len())
    }

    /// Notes a line that was not known. Keeps it if one with the same mark came here last: most lines that come once do
    /// not come again, such as ids.
    #[inline]
    pub(crate) fn note(&mut self, key: Key, line: &[u8], block: &[u8]) {
        if line.len() > LONGEST || block.len() > LONGEST {
            return;
        }
        if self.0.is_empty() {
            self.0.resize(PLACES, Place::default());
        }
        let Some(place) = self.0.get_mut(key.place) else { return };
        if std::mem::replace(&mut place.mark, key.mark) == key.mark {
            place.line = line.len();
            place.bytes.clear();
            place.bytes.extend_from_slice(line);
            place.bytes.extend_from_slice(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_when_it_comes_the_third_time() {
        let mut known = Repeats::default();
        let text = b"server: weir\r\ncontent-length: 5\r\n\r\n";
        let key = Key::of(text).unwrap();
        for _ in 0..2 {
            assert_eq!(known.append(key, text, &mut Vec::new()), None);
            known.note(key, b"server: weir\r\n", b"block");
        }
        let mut out = b"before ".to_vec();
        assert_eq!(known.append(key, text, &mut out), Some(14));
        assert_eq!(out, b"before block");
        // The same first bytes are not the same line.
        let other = b"server: weir\r\ncoNTENT-LENGTH: 5\r\n\r\n";
        let longer = b"server: weir\r\r\n 12345678";
        assert_eq!(known.append(key, other, &mut out), Some(14));
        assert_eq!(known.append(key, longer, &mut out), None);
        assert!(Key::of(b"server: weir\r\n\r").is_none());
    }

    #[test]
    fn long_lines_are_not_kept() {
        let mut known = Repeats::default();
        let text = [&[b'a'; 20][..], b": ", &[b'b'; LONGEST], b"\r\n"].concat();
        let key = Key::of(&text).unwrap();
        for _ in 0..3 {
            known.note(key, &text, b"block");
            known.note(key, b"a: b\r\n", &text);
        }
        assert!(known.0.is_empty());
    }
}
