//! The gateway's sink: heads become text for `weir-h1`, and bodies wait for the reader of the stream. Also the
//! reverse: turns heads written as text into blocks.

use super::rendered::{Known, Rendered};
use super::repeats::Repeats;
use super::streams::{READ, RESET, WRITE};
use super::{Block, Bounds, Codec, Failed, Flow, Part, Piece, Role, Sink, Taken};
use crate::h2::hpack::{self, Decoder, Undecodable};
use crate::websocket;
use std::io;
use std::task::{Context, Poll};
use weir_fields::render::{self, Asked};
use weir_fields::{HeadFacts, KEPT_TEXT, Kind, Malformed, Message, Reader, Scratch};

/// A connection whose streams are read and written as text.
pub(in crate::h2) type TextCodec = Codec<Texts>;

/// Turns heads into text.
#[derive(Debug)]
pub(in crate::h2) struct Texts {
    role: Role,
    pub(super) scratch: Scratch,
    repeats: Repeats,
    pub(super) rendered: Rendered,
}

impl Sink for Texts {
    type Kept = Message;

    const HELD: bool = true;

    fn head(
        &mut self,
        kept: &mut Message,
        block: &Block<'_>,
        decoder: &mut Decoder,
    ) -> Result<Result<HeadFacts, Malformed>, Undecodable> {
        let (text, kind) = match block.part {
            Part::Request => (&mut kept.text, Kind::Request),
            Part::Response => (&mut kept.text, Kind::Response { accept: kept.accept.as_deref() }),
            Part::Trailers => (&mut kept.trailers, Kind::Trailers),
        };
        // The answer to a request for a tunnel has a key of its own.
        let may_repeat = kept.accept.is_none() || block.part == Part::Trailers;
        let before = text.len();
        let known = if may_repeat { self.repeats.recall(block, decoder, text) } else { None };
        if block.part != Part::Trailers {
            // If nobody has read the head before this one yet, the text holds both.
            kept.repeats = known.filter(|_| before == 0).map_or(0, |(_, id)| id);
        }
        let read = if let Some((facts, _)) = known {
            Ok(facts)
        } else {
            let changes = decoder.changes();
            let mut reader = Reader::new(kind, text, &mut self.scratch, block.most);
            decoder.decode(block.bytes, |name, value| reader.field(name, value))?;
            let read = reader.finish(websocket::key);
            let sealed = decoder.take_sealed();
            let is_sealed = !sealed.is_empty();
            if is_sealed {
                kept.sealed.extend_from_slice(&sealed);
            }
            if let (true, Ok(facts)) = (may_repeat && !is_sealed, &read) {
                let text = text.get(before..).unwrap_or_default();
                self.repeats.note(block, text, facts, (&*decoder, changes));
            }
            if block.bytes.len() > KEPT_TEXT || text.len() > KEPT_TEXT {
                self.scratch.trim();
                decoder.trim();
                text.shrink_to(KEPT_TEXT); // so that it uses no more memory than it is charged for
            }
            read
        };
        let told = match read {
            Ok(_) if block.part == Part::Response && text.len() > 2 * block.most => {
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
        if piece.data.is_empty() {
            return Ok(Taken::KeptBack);
        }
        let is_kept_back = self.role == Role::Server && piece.is_all;
        Ok(if kept.hold(piece.data, is_kept_back) { Taken::Held } else { Taken::KeptBack })
    }

    fn void(kept: &mut Message, part: Part) {
        match part {
            Part::Request | Part::Response => kept.text.clear(),
            Part::Trailers => kept.trailers.clear(),
        }
    }

    fn seals(kept: &Message) -> &[u8] {
        &kept.seals
    }

    fn unread(kept: &Message) -> usize {
        kept.unread()
    }

    fn clear(kept: &mut Message) {
        kept.clear();
    }
}

impl Codec<Texts> {
    /// A gateway connection whose output starts with our SETTINGS.
    pub(in crate::h2) fn new(role: Role, bounds: Bounds) -> Self {
        let (repeats, rendered) = (Repeats::default(), Rendered::default());
        let sink = Texts { role, scratch: Scratch::default(), repeats, rendered };
        Self::begin(sink, role, bounds, Flow::of(role))
    }

    // === what came ===

    /// Forgets heads that came and went before, of a connection that rests.
    pub(in crate::h2) fn rest(&mut self) {
        self.sink.repeats.clear();
        self.sink.rendered.clear();
    }

    /// The id of the text that the head of a stream is, if its block came before; else 0.
    pub(in crate::h2) fn repeats(&mut self, slot: usize) -> u32 {
        self.kept(slot).repeats
    }

    /// The names of received fields that no hop may index.
    pub(in crate::h2) fn sealed(&mut self, slot: usize) -> &[u8] {
        &self.kept(slot).sealed
    }

    /// Forbids the receiver of what is sent next to index fields of these names.
    pub(in crate::h2) fn seal(&mut self, slot: usize, names: Vec<u8>) {
        self.kept(slot).seals = names;
    }

    /// Reads from a stream. From an upstream, heads come first, as text, then the body. 0 means the end.
    pub(in crate::h2) fn read(
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
            self.read_from(slot, len);
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

    /// Whether reading all that has arrived on a stream may return credit to the peer, which is output.
    pub(in crate::h2) fn may_credit(&mut self, slot: usize) -> bool {
        let record = self.streams.at(slot);
        let unread = record.kept.unread();
        unread > 0
            && (self.credit as usize + unread >= self.flow.credit as usize
                || record.credit as usize + unread >= record.room_most as usize / 2)
    }

    /// Whether releasing a stream may cause output: a reset, or credit for what nobody has read.
    pub(in crate::h2) fn may_write_at_release(&mut self, slot: usize) -> bool {
        let record = self.streams.at(slot);
        record.is_open() || record.kept.unread() > 0
    }

    /// Appends the head of a request to `text`.
    pub(in crate::h2) fn take_head(&mut self, slot: usize, text: &mut Vec<u8>) {
        self.kept(slot).take_text(text);
    }

    /// Whether no more of the message will arrive.
    pub(in crate::h2) fn is_over_at(&mut self, slot: usize) -> bool {
        let record = self.streams.at(slot);
        record.kept.is_over(record.got_end)
    }

    pub(in crate::h2) fn take_trailers(&mut self, slot: usize) -> Vec<u8> {
        std::mem::take(&mut self.kept(slot).trailers)
    }

    /// Whether the peer has abandoned the stream; if not, wakes the task when it does.
    pub(in crate::h2) fn is_reset(&mut self, slot: usize, cx: &Context<'_>) -> bool {
        let record = self.streams.at(slot);
        if record.failed.is_none() {
            record.wait(RESET, cx);
        }
        record.failed.is_some()
    }

    // === what is sent ===

    /// Sends the head of a request at the start of `text`, which opens its stream; returns its length.
    pub(in crate::h2) fn send_request(
        &mut self,
        slot: usize,
        text: &[u8],
        scheme: &str,
    ) -> io::Result<usize> {
        let at = self.begin_block();
        let begin = self.out.len();
        let known = self.sink.rendered.recall(text, &mut self.out);
        let asked = match known {
            Some(Known { len, fact }) => Ok(Asked { len, is_head: fact != 0, ..Asked::default() }),
            None => render::request(text, scheme, &mut hpack::Static, &mut self.render, &mut self.out),
        };
        let asked = match asked {
            Ok(asked) if asked.key.is_some() && !self.peer.connect => {
                let why = "the upstream does not take WebSockets by HTTP/2 (RFC 8441)";
                Err(io::Error::new(io::ErrorKind::Unsupported, why))
            }
            asked => asked,
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(e) => {
                self.out.truncate(at);
                return Err(e);
            }
        };
        if asked.may_repeat && self.kept(slot).seals.is_empty() {
            let known = Known { len: asked.len, fact: asked.is_head.into() };
            self.sink.rendered.note(text, known, self.out.get(begin..).unwrap_or_default());
        }
        self.start(slot, asked.is_head);
        self.kept(slot).accept = asked.key.map(|key| websocket::accept(&key));
        self.end_block(slot, at, 0);
        self.begin_more();
        Ok(asked.len)
    }

    /// Whether the stream requested a tunnel.
    pub(in crate::h2) fn asked_for_tunnel(&mut self, slot: usize) -> bool {
        self.kept(slot).accept.is_some()
    }

    /// Sends the head of a response at the start of `text`; returns its length, and whether it was the final one.
    pub(in crate::h2) fn send_response(
        &mut self,
        slot: usize,
        text: &[u8],
        cx: &Context<'_>,
    ) -> Poll<io::Result<(usize, bool)>> {
        let is_full = self.is_full();
        let record = self.streams.at(slot);
        if let Some(failed) = record.failed {
            return Poll::Ready(Err(failed.into()));
        }
        if is_full {
            record.wait(WRITE, cx);
            if !std::mem::replace(&mut record.queued, true) {
                self.unsent_heads.push(slot);
            }
            return Poll::Pending;
        }
        let tunnel = record.kept.is_tunnel;
        let at = self.begin_block();
        let begin = self.out.len();
        if !tunnel && let Some(Known { len, fact }) = self.sink.rendered.recall(text, &mut self.out) {
            self.end_block(slot, at, 0);
            return Poll::Ready(Ok((len, fact >= 200)));
        }
        let rendered = render::response(text, tunnel, &mut hpack::Static, &mut self.render, &mut self.out);
        let answered = match rendered {
            Ok(answered) => answered,
            Err(e) => {
                self.out.truncate(at);
                return Poll::Ready(Err(e));
            }
        };
        if answered.may_repeat && self.kept(slot).seals.is_empty() {
            let known = Known { len: answered.len, fact: answered.status };
            self.sink.rendered.note(text, known, self.out.get(begin..).unwrap_or_default());
        }
        self.end_block(slot, at, 0);
        Poll::Ready(Ok((answered.len, answered.status >= 200)))
    }
}

/// Translates a stream failure for code that only knows sockets.
impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        let (kind, why) = match failed {
            Failed::Closed => (io::ErrorKind::UnexpectedEof, "the HTTP/2 connection has ended"),
            Failed::GivenUp => (io::ErrorKind::BrokenPipe, "the stream was given up"),
            Failed::Malformed(rule) => (io::ErrorKind::InvalidData, rule),
            Failed::Refused { .. } => {
                (io::ErrorKind::ConnectionRefused, "the peer has not looked at the request")
            }
            Failed::Reset(_) => (io::ErrorKind::ConnectionReset, "the peer reset the stream"),
        };
        Self::new(kind, why)
    }
}
