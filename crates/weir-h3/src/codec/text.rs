//! The gateway's sink: heads become text for weir-h1, and bodies wait for the reader of the stream.

use super::streams::{Failed, READ, RESET};
use super::{Bounds, Codec, Part, Piece, Role, Section, Sink, Taken};
use crate::qpack::Undecodable;
use std::io;
use std::ops::ControlFlow;
use std::task::{Context, Poll};
use weir_fields::{HeadFacts, KEPT_TEXT, Kind, Malformed, Message, Reader, Scratch};

/// A connection whose streams are read and written as text.
pub type TextCodec = Codec<Texts>;

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
        if wire > KEPT_TEXT || text.len() > KEPT_TEXT {
            self.scratch.trim();
            text.shrink_to(KEPT_TEXT); // so that it uses no more memory than it is charged for
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
        let is_kept_back = self.role == Role::Server && piece.is_all;
        Ok(if kept.hold(piece.data, is_kept_back) { Taken::Held } else { Taken::KeptBack })
    }

    fn void(kept: &mut Message, part: Part) {
        match part {
            Part::Request | Part::Response => kept.text.clear(),
            Part::Trailers => kept.trailers.clear(),
        }
    }

    fn unread(kept: &Message) -> usize {
        kept.unread()
    }

    fn rest(&mut self) {
        self.scratch = Scratch::default();
    }

    fn clear(kept: &mut Message) {
        kept.clear();
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
            self.was_read(len);
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
        record.kept.is_over(record.got_end)
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
