//! Processes responses: inspects heads, counts bodies and discards them unless a check needs them.
//!
//! Most responses repeat the same head. The last field block that leaves the table of the compression unchanged is kept
//! and compared before decoding. HTTP/3 (`transport::h3`) counts with the same [`Counter`].

use super::head::Head;
use super::stream::Stream;
use crate::transport::reader::Response;
use crate::transport::response_kind::{Kinds, Marks};
use std::rc::Rc;
use weir_h1::{FieldName, Fields};
use weir_report::units::shown;
use weir_wire::h2::frame::{self, HEADER, Header, Kind, code};
use weir_wire::h2::hpack::{Decoder, Undecodable};
use weir_wire::h2::{Block, Failed, HeadFacts, Malformed, Part, Piece, Sink, Taken};

/// The outcome of a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The key passed to [`Wire::request`](crate::transport::wire::Wire::request).
    pub(crate) key: usize,
    /// When the head of the response arrived, or the first of several.
    pub(crate) first: u64,
    /// When it was complete.
    pub(crate) done: u64,
    /// Its fields, if they are kept.
    pub(crate) fields: Fields,
    pub(crate) result: Result<Response, Lost>,
    /// The part of the body that is kept for checks.
    pub(crate) body: Vec<u8>,
    /// The gRPC error text of a call that did not end with OK.
    pub(crate) text: Option<Rc<str>>,
}

/// Why a request got no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// GOAWAY, REFUSED_STREAM or H3_REQUEST_REJECTED: the target did not process the request, so it may be sent again
    /// (RFC 9113 §6.8, §8.7; RFC 9114 §4.1.1, §5.2).
    Again,
    /// The response violated the protocol.
    Protocol(String),
    /// The target reset the stream.
    Reset(String),
}

/// The message for a compressed message, which violates gRPC and not HTTP/2.
pub(crate) const COMPRESSED: &str = "gRPC: a message is compressed, though no coding was accepted";

/// Counts the responses of one connection.
#[derive(Debug)]
pub(crate) struct Counter {
    /// The first response, while it is still wanted.
    pub(crate) capture: Option<Capture>,
    /// Whether the fields of responses are kept, for scenarios.
    pub(crate) keeps_fields: bool,
    /// Longest part of a body that is kept, if bodies are kept.
    pub(crate) kept_most: usize,
    /// Whether requests are gRPC calls.
    pub(crate) is_grpc: bool,
    keeps_bodies: bool,
    /// When the current input was read.
    pub(crate) now: u64,
    /// Bytes that belong to responses.
    pub(crate) counted: u64,
    /// The kinds of responses seen.
    pub(crate) kinds: Kinds,
    /// Outcomes, collected for the caller that feeds the connection.
    pub(crate) answers: Vec<Answer>,
    /// One for heads and one for trailers, which alternate.
    known: [Known; 2],
}

/// The raw bytes of the first response.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    /// Its stream, once a request begins.
    stream: Option<u64>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) server: Option<String>,
    pub(crate) content_type: Option<String>,
}

/// A block that leaves the table of the compression unchanged, and its meaning.
#[derive(Debug, Default)]
struct Known {
    block: Vec<u8>,
    changes: u64,
    head: Head,
}

impl Counter {
    pub(crate) fn new(keeps_bodies: bool) -> Self {
        Self {
            capture: None,
            keeps_fields: false,
            kept_most: crate::check::BODY_KEPT,
            is_grpc: false,
            keeps_bodies,
            now: 0,
            counted: 0,
            kinds: Kinds::default(),
            answers: Vec::new(),
            known: Default::default(),
        }
    }

    /// Whether to keep the response of this stream, which is just beginning, for the ledger.
    pub(crate) fn is_wanted(&mut self, stream: u64) -> bool {
        let wants = self.capture.as_mut().filter(|capture| capture.stream.is_none());
        wants.map(|capture| capture.stream = Some(stream)).is_some()
    }

    /// Whether the response of this stream is kept for the ledger.
    pub(crate) fn is_captured(&self, stream: u64) -> bool {
        self.capture.as_ref().is_some_and(|capture| capture.stream == Some(stream))
    }

    /// This stream has no response to keep; keep the next request's instead.
    pub(crate) fn recapture(&mut self, stream: u64) {
        if self.is_captured(stream) {
            self.capture = Some(Capture::default());
        }
    }

    /// Keeps bytes of the first response.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        let Some(capture) = &mut self.capture else { return };
        let room = crate::transport::CAPTURE_BYTES.saturating_sub(capture.bytes.len()).min(bytes.len());
        capture.bytes.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    /// Keeps the parts of these frames of HTTP/2 that belong to the first response.
    pub(crate) fn keep_frames(&mut self, frames: &[u8]) {
        let Some(stream) = self.capture.as_ref().and_then(|capture| capture.stream) else { return };
        let mut rest = frames;
        while let Some(header) = Header::parse(rest)
            && let Some((whole, after)) = rest.split_at_checked(HEADER + header.len)
        {
            rest = after;
            let is_of_response =
                matches!(header.kind, Kind::HEADERS | Kind::CONTINUATION | Kind::DATA | Kind::RST_STREAM);
            if is_of_response && u64::from(header.stream) == stream {
                self.keep(whole);
            }
        }
    }

    /// Counts bytes of a response.
    fn count(&mut self, stream: &mut Stream, wire: usize) {
        self.counted += wire as u64;
        self.notice(stream);
    }

    /// Notes when the first part of a response arrived.
    pub(in crate::transport) const fn notice(&self, stream: &mut Stream) {
        if stream.first == 0 {
            stream.first = self.now;
        }
    }

    // === what both protocols do ===

    /// Inspects the fields of a head or of trailers. `decode` passes them on, and says whether equal bytes mean the
    /// same until `changes` differs.
    pub(in crate::transport) fn fields<E>(
        &mut self,
        stream: &mut Stream,
        part: FieldPart,
        bytes: &[u8],
        changes: u64,
        decode: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<bool, E>,
    ) -> Result<Result<HeadFacts, Malformed>, E> {
        let is_head = part == FieldPart::Head;
        let [of_heads, of_trailers] = &mut self.known;
        let known = if is_head { of_heads } else { of_trailers };
        let mut capture = self.capture.as_mut().filter(|_| stream.is_captured);
        let is_known = known.changes == changes && !known.block.is_empty() && known.block == bytes;
        let other;
        // The metadata of a call are in its head and its trailers.
        let mut kept = match (self.keeps_fields, is_head) {
            (true, true) => Some(Fields::default()),
            (true, false) if self.is_grpc => Some(std::mem::take(&mut stream.fields)),
            _ => None,
        };
        let head = if is_known && capture.is_none() && kept.is_none() {
            &known.head
        } else {
            other = known.learn((bytes, changes), decode, &mut capture, &mut kept, &self.kinds)?;
            &other
        };
        let told = if is_head { head.response() } else { head.trailers() };
        if let Ok(told) = &told {
            if is_head && told.status >= 200 {
                stream.response.status = told.status;
                stream.response.maker = head.maker;
                stream.fields = kept.take().unwrap_or_default();
                stream.call.is_grpc = head.is_grpc;
            }
            if !is_head && self.is_grpc {
                stream.fields = kept.unwrap_or_default();
            }
            if self.is_grpc && (!is_head || told.status >= 200) {
                stream.call.code = head.code.or(stream.call.code);
                stream.call.text = head.text.clone().or_else(|| stream.call.text.take());
            }
        }
        Ok(told)
    }

    /// Counts a piece of a body, and keeps it if a check needs it.
    pub(in crate::transport) fn body(&mut self, stream: &mut Stream, data: &[u8]) -> Result<(), Malformed> {
        stream.response.body_bytes += data.len() as u64;
        if self.keeps_bodies {
            let room = self.kept_most.saturating_sub(stream.kept.len()).min(data.len());
            stream.kept.extend_from_slice(data.get(..room).unwrap_or_default());
        }
        if self.is_grpc && stream.call.is_grpc && stream.call.messages.feed(data).is_err() {
            return Err(Malformed(COMPRESSED));
        }
        Ok(())
    }

    /// A request will get no response.
    pub(in crate::transport) fn lost(&mut self, stream: &Stream, lost: Lost) {
        let &Stream { key, first, .. } = stream;
        let (fields, done) = (Fields::default(), self.now);
        let (body, text) = (Vec::new(), None);
        self.answers.push(Answer { key, first, done, fields, result: Err(lost), body, text });
    }

    /// A response is complete.
    pub(in crate::transport) fn answered(&mut self, stream: &mut Stream) {
        if self.is_grpc {
            stream.end_call();
        }
        let (key, first) = (stream.key, stream.first);
        let (body, text) = (std::mem::take(&mut stream.kept), stream.call.text.take());
        let (fields, done) = (std::mem::take(&mut stream.fields), self.now);
        self.answers.push(Answer { key, first, done, fields, result: Ok(stream.response), body, text });
    }
}

/// The part of a response that fields belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum FieldPart {
    Head,
    Trailers,
}

impl Lost {
    /// What a stream's failure means for its request. `left` is the code of a received GOAWAY, `is_begun` whether the
    /// final head had arrived.
    fn of(failed: Failed, left: Option<u32>, is_begun: bool) -> Self {
        let closed = |code| format!("the target closed the connection: {}", frame::code_name(code));
        let reset = |code| format!("the target reset the stream: {}", frame::code_name(code));
        match (failed, left) {
            (Failed::Malformed(COMPRESSED), _) => Self::Protocol(COMPRESSED.to_owned()),
            (Failed::Malformed(rule), _) => Self::Protocol(format!("HTTP/2: {rule}")),
            (Failed::Refused { by_reset: true }, _) if is_begun => Self::Reset(reset(code::REFUSED)),
            (Failed::Refused { by_reset: false }, Some(code)) if code > 0 => Self::Reset(closed(code)),
            (Failed::Refused { .. }, _) => Self::Again,
            (Failed::Reset(code), _) => Self::Reset(reset(code)),
            (Failed::Closed | Failed::GivenUp, _) => Self::Reset("the connection has ended".to_owned()),
        }
    }
}

impl Sink for Counter {
    type Kept = Stream;

    const HELD: bool = false;

    fn head(
        &mut self,
        stream: &mut Stream,
        block: &Block<'_>,
        decoder: &mut Decoder,
    ) -> Result<Result<HeadFacts, Malformed>, Undecodable> {
        let part = if block.part == Part::Trailers { FieldPart::Trailers } else { FieldPart::Head };
        let changes = decoder.changes();
        let told = self.fields(stream, part, block.bytes, changes, |field| {
            decoder.decode(block.bytes, field)?;
            Ok(decoder.changes() == changes)
        })?;
        if told.is_ok() {
            stream.response.head_bytes += block.wire as u64;
            self.count(stream, block.wire);
        }
        Ok(told)
    }

    fn data(&mut self, stream: &mut Stream, piece: &Piece<'_>) -> Result<Taken, Malformed> {
        self.count(stream, piece.wire);
        stream.response.framing_bytes += (piece.wire - piece.data.len()) as u64;
        self.body(stream, piece.data)?;
        Ok(Taken::Read)
    }

    fn over(&mut self, stream: &mut Stream, failed: Option<Failed>, left: Option<u32>) {
        if let Some(failed) = failed {
            self.counted -= stream.response.wire_bytes();
            let lost = Lost::of(failed, left, stream.response.status > 0);
            self.lost(stream, lost);
        } else {
            self.answered(stream);
        }
    }

    fn clear(stream: &mut Stream) {
        stream.clear();
    }
}

impl Known {
    /// Decodes a block, and keeps it if equal bytes will mean the same.
    fn learn<E>(
        &mut self,
        (block, changes): (&[u8], u64),
        decode: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<bool, E>,
        capture: &mut Option<&mut Capture>,
        kept: &mut Option<Fields>,
        kinds: &Kinds,
    ) -> Result<Head, E> {
        let (mut head, mut marks) = (Head::default(), Marks::default());
        let is_constant = decode(&mut |name, value| {
            head.field(name, value);
            marks.field(name, value);
            // An invalid name makes the response malformed; an invalid value is only left out.
            if let Some(kept) = kept
                && let Some(name) = str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok())
            {
                let _ = kept.append(&name, value);
            }
            if let Some(capture) = capture {
                match name {
                    b"server" => capture.server = Some(shown(value)),
                    b"content-type" => capture.content_type = Some(shown(value)),
                    _ => {}
                }
            }
        })?;
        head.maker = kinds.of(marks);
        if is_constant {
            self.block.clear();
            self.block.extend_from_slice(block);
            (self.changes, self.head) = (changes, head.clone());
        }
        Ok(head)
    }
}
