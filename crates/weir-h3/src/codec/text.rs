//! The gateway's sink: heads become text for weir-h1, and bodies wait for the reader of the stream.

use super::streams::{Failed, READ, RESET};
use super::{Bounds, Codec, Part, Piece, Role, Section, Sink, Taken};
use crate::qpack::Undecodable;
use std::io;
use std::ops::ControlFlow;
use std::task::{Context, Poll};
use weir_fields::{HeadFacts, Kind, Malformed, Reader, Scratch};

/// A connection whose streams are read and written as text.
pub type TextCodec = Codec<Texts>;

/// Largest text buffer kept for the next head in a slot.
const KEPT: usize = 4 * 1024;

/// The WebSocket handshake of HTTP/1.1 (RFC 6455 §4.2.2), which HTTP/3 does not have (RFC 9220). It needs randomness
/// and a digest, which this crate has not.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    /// Makes a `sec-websocket-key`.
    pub key: fn() -> String,
    /// The `sec-websocket-accept` for a key.
    pub accept: fn(&[u8]) -> String,
}

/// Turns heads into text.
#[derive(Debug)]
pub struct Texts {
    role: Role,
    scratch: Scratch,
    handshake: Handshake,
}

/// What has arrived on a stream and is not read yet.
#[derive(Debug, Default)]
pub struct Message {
    /// Heads as text.
    text: Vec<u8>,
    /// The body; `body[read..]` is unread.
    body: Vec<u8>,
    read: usize,
    /// How many bytes at the end of the body are held back: the piece that completes a request, until its stream ends.
    /// One more byte would make the request malformed, but an upstream that had received everything announced would
    /// have taken it for complete.
    kept_back: usize,
    trailers: Vec<u8>,
    /// It requests a WebSocket.
    is_tunnel: bool,
    /// The answer to the WebSocket key.
    accept: Option<String>,
}

impl Sink for Texts {
    type Kept = Message;

    const HELD: bool = true;

    fn head(
        &mut self,
        kept: &mut Message,
        section: Section<'_>,
    ) -> Result<Result<HeadFacts, Malformed>, Undecodable> {
        let (part, most, wire) = (section.part, section.most, section.bytes.len());
        let (text, kind) = match part {
            Part::Request => (&mut kept.text, Kind::Request),
            Part::Response => (&mut kept.text, Kind::Response { accept: kept.accept.as_deref() }),
            Part::Trailers => (&mut kept.trailers, Kind::Trailers),
        };
        let mut reader = Reader::new(kind, text, &mut self.scratch, most);
        let decoded = section.decode(|name, value| {
            reader.field(name, value);
            if reader.wants_more() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let told = decoded.map(|_| reader.finish(self.handshake.key));
        if wire > KEPT || text.len() > KEPT {
            self.scratch.trim();
            text.shrink_to(KEPT); // so that it uses no more memory than it is charged for
        }
        let told = match told? {
            Ok(_) if part == Part::Response && text.len() > 2 * most => {
                Err(Malformed("interim responses without end")) // that nobody reads
            }
            Ok(told) => Ok(HeadFacts { held: text.len(), ..told }),
            Err(malformed) => Err(malformed),
        };
        match &told {
            Ok(told) => kept.is_tunnel |= told.tunnel,
            Err(_) => text.clear(),
        }
        Ok(told)
    }

    fn data(&mut self, kept: &mut Message, piece: &Piece<'_>) -> Result<Taken, Malformed> {
        kept.body.extend_from_slice(piece.data);
        let is_kept_back = self.role == Role::Server && piece.is_all;
        kept.kept_back = if is_kept_back { piece.data.len() } else { 0 };
        Ok(if kept.readable(false) > 0 { Taken::Held } else { Taken::KeptBack })
    }

    fn void(kept: &mut Message, part: Part) {
        match part {
            Part::Request | Part::Response => kept.text.clear(),
            Part::Trailers => kept.trailers.clear(),
        }
    }

    fn unread(kept: &Message) -> usize {
        kept.body.len() - kept.read
    }

    fn clear(kept: &mut Message) {
        let mut text = std::mem::take(&mut kept.text);
        text.clear();
        if text.capacity() > KEPT {
            text = Vec::new();
        }
        *kept = Message { text, ..Message::default() };
    }
}

impl Message {
    /// Bytes of the body that can be read.
    const fn readable(&self, is_ended: bool) -> usize {
        let kept_back = if is_ended { 0 } else { self.kept_back };
        self.body.len() - self.read - kept_back
    }

    /// Takes the text; returns its length.
    fn take_text(&mut self, buffer: &mut Vec<u8>) -> usize {
        let len = self.text.len();
        if buffer.is_empty() {
            std::mem::swap(buffer, &mut self.text);
        } else {
            buffer.extend_from_slice(&self.text);
        }
        self.text.clear();
        len
    }

    /// Takes `len` bytes of the body.
    fn take_body(&mut self, len: usize, buffer: &mut Vec<u8>) {
        if buffer.is_empty() && len == self.body.len() {
            std::mem::swap(buffer, &mut self.body);
            return;
        }
        buffer.extend_from_slice(self.body.get(self.read..self.read + len).unwrap_or_default());
        self.read += len;
        if self.read == self.body.len() {
            self.body.clear();
            self.read = 0;
        }
    }
}

impl Codec<Texts> {
    /// A gateway connection whose control stream starts with our SETTINGS.
    pub fn new(role: Role, bounds: Bounds, handshake: Handshake) -> Self {
        Self::begin(Texts { role, scratch: Scratch::default(), handshake }, role, bounds)
    }

    /// Sends the head of a request, given as HTTP/1.1 text, which opens its stream.
    ///
    /// # Errors
    /// As [`Codec::ask_text`].
    pub fn send_request(&mut self, text: &[u8], scheme: &str) -> io::Result<usize> {
        let (slot, asked) = self.ask_text(text, scheme)?;
        let accept = self.sink.handshake.accept;
        self.kept(slot).accept = asked.key.map(|key| accept(&key));
        Ok(slot)
    }

    /// Reads from a stream. Heads come first, as text, then the body. 0 means the end.
    pub fn read(
        &mut self,
        slot: usize,
        buffer: &mut Vec<u8>,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, Failed>> {
        let record = self.streams.at(slot);
        if !record.kept.text.is_empty() {
            return Poll::Ready(Ok(record.kept.take_text(buffer)));
        }
        let len = record.kept.readable(record.got_end);
        if len > 0 {
            record.kept.take_body(len, buffer);
            self.resume(slot);
            return Poll::Ready(Ok(len));
        }
        match (record.got_end, record.failed) {
            (true, _) => Poll::Ready(Ok(0)),
            (false, Some(failed)) => Poll::Ready(Err(failed)),
            (false, None) => {
                record.wait(READ, cx);
                Poll::Pending
            }
        }
    }

    /// Appends the head of a request to `text`.
    pub fn take_head(&mut self, slot: usize, text: &mut Vec<u8>) {
        self.kept(slot).take_text(text);
    }

    /// Whether no more of the message will arrive.
    pub fn is_over_at(&mut self, slot: usize) -> bool {
        let record = self.streams.at(slot);
        let kept = &record.kept;
        let is_empty = kept.text.is_empty() && kept.readable(record.got_end) == 0 && kept.trailers.is_empty();
        // Tunnel data is not a body.
        kept.is_tunnel || (record.got_end && is_empty)
    }

    /// The trailers that have arrived, as field lines.
    pub fn take_trailers(&mut self, slot: usize) -> Vec<u8> {
        std::mem::take(&mut self.kept(slot).trailers)
    }

    /// Whether the peer has abandoned the stream; if not, wakes the task when it does.
    pub fn is_reset(&mut self, slot: usize, cx: &Context<'_>) -> bool {
        let record = self.streams.at(slot);
        if record.failed.is_none() {
            record.wait(RESET, cx);
        }
        record.failed.is_some()
    }
}
