//! gRPC message frames: one byte that says whether the message is compressed, four for its length, then the message.
//!
//! Source: "gRPC over HTTP2" (PROTOCOL-HTTP2.md) of the gRPC project.

use flate2::read::GzDecoder;
use std::fmt;
use std::io::Read;

/// Why frames are unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A message uses an unannounced compression, or its compressed bytes are invalid.
    Coding,
    /// The body ends within a message.
    Cut,
    /// A message is longer than the limit.
    TooLong,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coding => "a message is compressed in a way that cannot be read",
            Self::Cut => "the body ends within a message",
            Self::TooLong => "a message is longer than the limit",
        })
    }
}

/// Starts a message; [`end`] finishes it.
pub fn begin(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 5]);
    out.len()
}

/// Writes the length of the message started by [`begin`].
pub fn end(begun: usize, out: &mut [u8]) {
    let length = u32::try_from(out.len().saturating_sub(begun)).unwrap_or(u32::MAX);
    if let Some(place) = begun.checked_sub(4).and_then(|from| out.get_mut(from..begun)) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// The flag of a compressed message.
pub const COMPRESSED: u8 = 1;

/// Sets the flags of the message started by [`begin`].
pub fn flag(begun: usize, flags: u8, out: &mut [u8]) {
    if let Some(place) = begun.checked_sub(5).and_then(|at| out.get_mut(at)) {
        *place = flags;
    }
}

/// The content of a body that should be one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single<'a> {
    /// It ends within a message.
    Cut,
    /// More than one.
    Many,
    /// Nothing.
    None,
    /// Its flags, and the message as received.
    One(u8, &'a [u8]),
}

/// Extracts the only message of a body.
#[must_use]
pub fn only(body: &[u8]) -> Single<'_> {
    if body.is_empty() {
        return Single::None;
    }
    let Some(([flags, length @ ..], rest)) = body.split_first_chunk::<5>() else { return Single::Cut };
    match rest.split_at_checked(u32::from_be_bytes(*length) as usize) {
        Some((message, [])) => Single::One(*flags, message),
        Some(_) => Single::Many,
        None => Single::Cut,
    }
}

/// Extracts messages from a body that arrives in pieces.
#[derive(Debug)]
pub struct Messages {
    /// The received part of an incomplete message.
    kept: Vec<u8>,
    limit: usize,
    gzip: bool,
}

impl Messages {
    /// `gzip`: the sender announced gzip compression.
    #[must_use]
    pub const fn new(limit: usize, gzip: bool) -> Self {
        Self { kept: Vec::new(), limit, gzip }
    }

    /// Processes a piece, and passes each complete message to `take`.
    ///
    /// # Errors
    /// What is wrong with the frames, or the error of `take`.
    pub fn feed<E: From<FrameError>>(
        &mut self,
        piece: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut piece = piece;
        while !self.kept.is_empty() {
            // First the header of the message, then the rest of it.
            let needed = match self.kept.first_chunk::<5>() {
                Some(head) => 5 + self.length(*head)?,
                None => 5,
            };
            if self.kept.len() < needed || needed == 5 && self.kept.len() < 5 {
                let (now, later) = piece.split_at(piece.len().min(needed - self.kept.len()));
                self.kept.extend_from_slice(now);
                piece = later;
                if self.kept.len() < needed {
                    return Ok(());
                }
                continue;
            }
            let whole = std::mem::take(&mut self.kept);
            self.message(&whole, &mut take)?;
        }
        while let Some((head, rest)) = piece.split_first_chunk::<5>() {
            let length = self.length(*head)?;
            let Some((_, after)) = rest.split_at_checked(length) else { break };
            let whole = piece.get(..5 + length).unwrap_or_default();
            self.message(whole, &mut take)?;
            piece = after;
        }
        self.kept.extend_from_slice(piece);
        Ok(())
    }

    fn length(&self, head: [u8; 5]) -> Result<usize, FrameError> {
        let [_, length @ ..] = head;
        let length = u32::from_be_bytes(length) as usize;
        if length > self.limit { Err(FrameError::TooLong) } else { Ok(length) }
    }

    fn message<E: From<FrameError>>(
        &self,
        whole: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some(coding), Some(message)) = (whole.first(), whole.get(5..)) else {
            return Err(FrameError::Cut.into());
        };
        match coding {
            0 => take(message),
            1 if self.gzip => take(&gunzip(message, self.limit)?),
            _ => Err(FrameError::Coding.into()),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// When it ends within a message.
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.kept.is_empty() { Ok(()) } else { Err(FrameError::Cut) }
    }
}

/// Tracks messages that pass unchanged, to know whether the body is between two of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boundary {
    /// Bytes of the header received so far, and the length parsed so far.
    head: u8,
    length: u32,
    /// Bytes of the message still to come.
    left: u32,
}

impl Boundary {
    /// Records bytes that pass.
    pub fn pass(&mut self, piece: &[u8]) {
        let mut rest = piece;
        loop {
            let taken = rest.len().min(self.left as usize);
            self.left -= u32::try_from(taken).unwrap_or(self.left);
            rest = rest.get(taken..).unwrap_or_default();
            let Some((&byte, after)) = rest.split_first() else { return };
            rest = after;
            // The first byte is the compression flag; the four length bytes shift it out.
            self.length = self.length << 8 | u32::from(byte);
            self.head += 1;
            if self.head == 5 {
                *self = Self { head: 0, length: 0, left: self.length };
            }
        }
    }

    /// Whether every message that has begun is complete.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        self.head == 0 && self.left == 0
    }
}

/// Decompresses gzip, up to `limit` bytes.
///
/// # Errors
/// When the result is longer, or the input is not gzip.
pub fn gunzip(bytes: &[u8], limit: usize) -> Result<Vec<u8>, FrameError> {
    let mut out = Vec::new();
    let most = (limit as u64).saturating_add(1);
    GzDecoder::new(bytes).take(most).read_to_end(&mut out).map_err(|_| FrameError::Coding)?;
    if out.len() > limit { Err(FrameError::TooLong) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]], limit: usize) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut messages = Messages::new(limit, true);
        let mut all = Vec::new();
        for piece in pieces {
            messages.feed::<FrameError>(piece, |m| {
                all.push(m.to_vec());
                Ok(())
            })?;
        }
        messages.finish().map(|()| all)
    }

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for message in messages {
            let begun = begin(&mut out);
            out.extend_from_slice(message);
            end(begun, &mut out);
        }
        out
    }

    #[test]
    fn messages_in_any_pieces() {
        let messages = [&b"hello"[..], b"", b"x", &[7; 300]];
        let body = framed(&messages);
        for size in 1..=body.len() {
            let pieces: Vec<&[u8]> = body.chunks(size).collect();
            assert_eq!(read(&pieces, 300).unwrap(), messages, "{size}");
        }
    }

    #[test]
    fn what_is_wrong_with_frames() {
        assert_eq!(read(&[&framed(&[&[0; 11]])], 10), Err(FrameError::TooLong));
        assert_eq!(read(&[b"\0\0\0\0\x05abc"], 10), Err(FrameError::Cut));
        assert_eq!(read(&[b"\0\0\0"], 10), Err(FrameError::Cut));
        assert_eq!(read(&[b"\x02\0\0\0\0"], 10), Err(FrameError::Coding));
        assert_eq!(read(&[b"\x01\0\0\0\x03abc"], 10), Err(FrameError::Coding));
        assert_eq!(read(&[b"\0", b"\xff\xff\xff\xff"], 10), Err(FrameError::TooLong));
    }

    #[test]
    fn the_only_message() {
        assert_eq!(only(b""), Single::None);
        assert_eq!(only(b"\x01\0\0\0\x02hi"), Single::One(1, b"hi"));
        assert_eq!(only(b"\0\0\0\0\0"), Single::One(0, b""));
        assert_eq!(only(b"\0\0\0\0\0\0"), Single::Many);
        assert_eq!(only(b"\0\0\0\0"), Single::Cut);
        assert_eq!(only(b"\0\xff\xff\xff\xffhi"), Single::Cut);
    }

    #[test]
    fn boundaries_are_found_in_any_pieces() {
        let body = framed(&[&b"hello"[..], b"", &[7; 300]]);
        let ends = [0, 10, 15, 320];
        for size in 1..=body.len() {
            let mut boundary = Boundary::default();
            let mut at = 0;
            for piece in body.chunks(size) {
                assert_eq!(boundary.is_between(), ends.contains(&at), "{size} {at}");
                boundary.pass(piece);
                at += piece.len();
            }
            assert!(boundary.is_between(), "{size}");
        }
        let mut boundary = Boundary::default();
        boundary.pass(b"\x01\xff\xff\xff\xff");
        assert!(!boundary.is_between());
    }

    #[test]
    fn compressed_messages_are_bounded() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&[0; 100_000]).unwrap();
        let small = encoder.finish().unwrap();
        let mut body = vec![1];
        body.extend_from_slice(&(small.len() as u32).to_be_bytes());
        body.extend_from_slice(&small);
        assert_eq!(read(&[&body], 100_000).unwrap(), [vec![0; 100_000]]);
        assert_eq!(read(&[&body], 99_999), Err(FrameError::TooLong));
    }
}
