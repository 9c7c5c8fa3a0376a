//! What has arrived on a stream and is not read yet, for the readers of HTTP/2 and HTTP/3.

use std::mem::{swap, take};

/// Largest text buffer kept for the next head on the same place.
pub const KEPT_TEXT: usize = 4 * 1024;

/// The unread part of one message: heads as text, a body, trailers.
#[derive(Debug, Default)]
pub struct Message {
    /// Heads as text.
    pub text: Vec<u8>,
    /// Trailers as text.
    pub trailers: Vec<u8>,
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
        *self = Self { text, ..Self::default() };
    }
}
