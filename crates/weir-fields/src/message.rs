//! What has arrived on a stream and is not read yet, for the readers of HTTP/2 and HTTP/3.

use std::cell::RefCell;
use std::mem::{swap, take};

/// Largest text buffer kept for the next head on the same place.
pub const KEPT_TEXT: usize = 4 * 1024;

/// Most bytes of body buffers that a thread keeps for the next bodies, and the most and the largest buffers. The
/// largest DATA frame fits. Allocating and freeing one per body cost 700 instructions of a request by HTTP/2 on both
/// sides. With 64 buffers, it still happened to two of five bodies among 500 requests under way (callgrind, h2-h2c).
const KEPT_BYTES: usize = 1024 * 1024;
const KEPT_BODIES: usize = 512;
const KEPT_BODY: usize = 16 * 1024;

/// Fills returned buffers in debug builds.
const POISON: u8 = 0xdd;

thread_local! {
    static BODIES: RefCell<Bodies> = const { RefCell::new(Bodies { buffers: Vec::new(), bytes: 0 }) };
}

/// Empty buffers, the one used last on top.
///
/// Invariant: `bytes` is the sum of their capacities, at most [`KEPT_BYTES`].
#[derive(Default)]
struct Bodies {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Bodies {
    #[inline]
    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    #[inline]
    fn give(&mut self, buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if bytes <= KEPT_BYTES && self.buffers.len() < KEPT_BODIES {
            self.bytes = bytes;
            self.buffers.push(buffer);
        }
    }
}

/// Empties a buffer for its next user. Debug builds overwrite it, so that a test notices bytes of the last one.
#[inline]
pub fn wipe(buffer: &mut Vec<u8>) {
    buffer.clear();
    if cfg!(debug_assertions) {
        buffer.resize(buffer.capacity(), POISON);
        buffer.clear();
    }
}

/// Returns the buffer of a body that was read, for the next one.
#[inline]
pub fn give_body(mut buffer: Vec<u8>) {
    if !(1..=KEPT_BODY).contains(&buffer.capacity()) {
        return;
    }
    wipe(&mut buffer);
    BODIES.with_borrow_mut(|bodies| bodies.give(buffer));
}

/// Frees the buffers that this thread keeps for bodies.
pub fn free_bodies() {
    BODIES.take();
}

/// The unread part of one message: heads as text, a body, trailers.
#[derive(Debug, Default)]
pub struct Message {
    /// Heads as text.
    pub text: Vec<u8>,
    /// Trailers as text.
    pub trailers: Vec<u8>,
    /// If its head is one that its connection has received before: the id of that text. Else 0.
    pub repeats: u32,
    /// The names of received fields that no hop may put into a table, each with a line break behind it.
    pub sealed: Vec<u8>,
    /// The names of fields to send that no hop may put into a table, in the same form.
    pub seals: Vec<u8>,
    /// It requests a WebSocket.
    pub is_tunnel: bool,
    /// The answer to the WebSocket key.
    pub accept: Option<String>,
    /// The body; `body[read..]` is unread.
    body: Vec<u8>,
    read: usize,
    /// How many bytes at the end of the body are held back. The piece that completes a request stays here until its
    /// stream ends. One more byte would make the request malformed (RFC 9113 §8.1.1, RFC 9114 §4.1.2), but an
    /// upstream that had received everything announced would have taken it for complete.
    kept_back: usize,
}

impl Message {
    /// Adds a piece of the body, and holds it back until the end if `is_kept_back`. Returns whether there is something
    /// to read.
    #[inline]
    pub fn hold(&mut self, piece: &[u8], is_kept_back: bool) -> bool {
        if self.body.capacity() == 0 {
            self.body = BODIES.with_borrow_mut(Bodies::take);
        }
        self.body.extend_from_slice(piece);
        self.kept_back = if is_kept_back { piece.len() } else { 0 };
        self.readable(false) > 0
    }

    /// Bytes of the body that can be read.
    #[inline]
    pub const fn readable(&self, is_ended: bool) -> usize {
        let kept_back = if is_ended { 0 } else { self.kept_back };
        self.unread() - kept_back
    }

    /// Bytes of the body that are not read.
    #[inline]
    pub const fn unread(&self) -> usize {
        self.body.len() - self.read
    }

    /// Whether no more of the message will be read. What follows in a tunnel is not a body.
    #[inline]
    pub const fn is_over(&self, is_ended: bool) -> bool {
        let is_empty = self.text.is_empty() && self.readable(is_ended) == 0 && self.trailers.is_empty();
        self.is_tunnel || (is_ended && is_empty)
    }

    /// Takes the text; returns its length.
    #[inline]
    pub fn take_text(&mut self, buffer: &mut Vec<u8>) -> usize {
        let len = self.text.len();
        if buffer.is_empty() {
            swap(buffer, &mut self.text);
        } else {
            buffer.extend_from_slice(&self.text);
        }
        self.text.clear();
        len
    }

    /// Takes `len` bytes of the body, of those that are [readable](Self::readable).
    #[inline]
    pub fn take_body(&mut self, len: usize, buffer: &mut Vec<u8>) {
        if buffer.is_empty() && len == self.body.len() {
            swap(buffer, &mut self.body);
            return;
        }
        buffer.extend_from_slice(self.body.get(self.read..self.read + len).unwrap_or_default());
        self.read += len;
        if self.read == self.body.len() {
            self.body.clear();
            self.read = 0;
        }
    }

    /// Forgets everything, for the next message; keeps a text buffer of at most [`KEPT_TEXT`].
    #[inline]
    pub fn clear(&mut self) {
        let mut text = take(&mut self.text);
        text.clear();
        if text.capacity() > KEPT_TEXT {
            text = Vec::new();
        }
        give_body(take(&mut self.body));
        *self = Self { text, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(piece: &[u8]) -> Message {
        let mut message = Message::default();
        assert!(message.hold(piece, false));
        message
    }

    fn read(message: &mut Message) -> Vec<u8> {
        let mut buffer = Vec::new();
        message.take_body(message.readable(false), &mut buffer);
        buffer
    }

    #[test]
    fn a_buffer_serves_the_next_body_and_shows_nothing_of_the_last() {
        let first = read(&mut of(&[b'a'; 1000]));
        let (place, room) = (first.as_ptr(), first.capacity());
        give_body(first);
        let second = read(&mut of(b"bb"));
        assert_eq!((second.as_ptr(), second.capacity(), &second[..]), (place, room, &b"bb"[..]));
    }

    #[test]
    fn an_unread_body_is_dropped_with_its_message() {
        let mut left = of(&[b'a'; 500]);
        left.clear();
        assert_eq!(left.unread(), 0);
        assert_eq!(read(&mut of(b"b")), b"b");
    }

    #[test]
    fn few_and_small_buffers_are_kept() {
        let kept = || {
            BODIES.with_borrow(|bodies| {
                assert_eq!(bodies.bytes, bodies.buffers.iter().map(Vec::capacity).sum::<usize>());
                (bodies.buffers.len(), bodies.bytes)
            })
        };
        for (capacity, want) in [
            (100, (KEPT_BODIES, KEPT_BODIES * 100)),
            (KEPT_BODY, (KEPT_BYTES / KEPT_BODY, KEPT_BYTES)),
            (KEPT_BODY + 1, (0, 0)),
            (0, (0, 0)),
        ] {
            for _ in 0..2 * KEPT_BODIES {
                give_body(Vec::with_capacity(capacity));
            }
            assert_eq!(kept(), want);
            for _ in 0..=KEPT_BODIES {
                drop(BODIES.with_borrow_mut(Bodies::take));
            }
            assert_eq!(kept(), (0, 0));
        }
        give_body(Vec::with_capacity(100));
        free_bodies();
        assert_eq!(kept(), (0, 0));
    }
}
