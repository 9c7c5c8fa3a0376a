//! One HTTP/2 connection from the client's side, as bytes: what comes in becomes answers, what goes out is appended to [`Codec::out`].
//! No sockets and no clock (RFC 9113).
//!
//! A response is mostly the same head again, so the last block of fields is kept and compared before anything is decoded, as long as it changes
//! nothing in the table. Bodies are counted and thrown away, unless a check wants them.
//!
//! Here are requests, what goes out, and how input becomes frames; what a frame means stands in [`response`] and [`control`].

mod control;
mod response;
mod stream;

use self::stream::{Call, Stream};
use super::super::reader::Response;
use super::frame::{self, FRAME_MOST, HEADER, Header, Kind};
use super::head::Head;
use super::hpack::Decoder;
use super::request::Rendered;
use crate::report::Protocol;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;

/// What a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The windows that we give, of the connection and of each stream: 1 GiB, as h2load, so that no target waits for us.
const WINDOW: u32 = 1 << 30;

/// The windows of both sides before anyone says otherwise (RFC 9113 §6.9.2).
const WINDOW_FIRST: i64 = 65_535;

/// Largest window there may be.
const WINDOW_MOST: i64 = 0x7fff_ffff;

/// Longest block of fields.
const BLOCK_MOST: usize = 256 * 1024;

/// Streams that we open before the target's SETTINGS say how many it takes: what they are advised to be at least (RFC 9113 §6.5.2).
const STREAMS_FIRST: usize = 100;

/// Bytes that may wait to be written before bodies stop. Answers to floods of PING and SETTINGS end the connection at 16 times that.
const OUT_MOST: usize = 256 * 1024;

/// A protocol error of the target that ends the connection, with the code that GOAWAY tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) code: u32,
    pub(super) text: String,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// What [`Codec::request`] was given.
    pub(super) key: usize,
    /// When the first frame of the response came.
    pub(super) first: u64,
    pub(super) result: Result<Response, Lost>,
    /// The part of the body that is kept for checks.
    pub(super) body: Vec<u8>,
    /// What gRPC says of an end that is not OK.
    pub(super) text: Option<Rc<str>>,
}

/// Why a request got no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// GOAWAY or REFUSED_STREAM said that it was not looked at: it may be sent again (RFC 9113 §6.8, §8.7).
    Again,
    /// The response broke a rule.
    Protocol(String),
    /// The target reset the stream.
    Reset(String),
}

/// The first response, as it came.
#[derive(Debug, Default)]
pub(super) struct Capture {
    /// The stream that it comes on; 0 until a request begins.
    stream: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) server: Option<String>,
    pub(super) content_type: Option<String>,
}

/// A block that changed nothing in the table, and what it meant.
#[derive(Debug, Default)]
struct Known {
    block: Vec<u8>,
    changes: u64,
    head: Head,
}

/// One connection.
///
/// Invariant: `streams` holds what [`Codec::request`] began and no [`Answer`] or [`Codec::cancel`] has ended.
#[derive(Debug)]
pub(super) struct Codec {
    /// To be written.
    pub(super) out: Vec<u8>,
    /// The first response, while it is wanted.
    pub(super) capture: Option<Capture>,
    /// Bytes of frames that belong to no response.
    pub(super) overhead: u64,
    /// Longest part of a body that is kept, where they are.
    pub(super) kept_most: usize,
    /// Whether requests are calls of gRPC.
    pub(super) is_grpc: bool,
    streams: HashMap<u32, Stream, BuildHasherDefault<ById>>,
    next: u32,
    most: usize,
    /// Whether the target's first SETTINGS came.
    greeted: bool,
    /// GOAWAY came, or we have no more numbers.
    closing: bool,
    keeps_bodies: bool,
    partial: Vec<u8>,
    /// A block that CONTINUATION goes on with: the stream, and the flags of its HEADERS.
    continued: Option<(u32, u8)>,
    block: Vec<u8>,
    decoder: Decoder,
    /// Of heads, and of trailers.
    known: [Known; 2],
    window: i64,
    window_of_streams: i64,
    room: i64,
    frame_most: usize,
    /// Streams whose body waits for a window.
    blocked: Vec<u32>,
}

/// Numbers of streams are ours and in sequence: spreading them is enough.
#[derive(Clone, Copy, Debug, Default)]
struct ById(u64);

impl Hasher for ById {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(*b)));
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn broken<T>(code: u32, text: &str) -> Result<T, Broken> {
    Err(Broken { code, text: format!("HTTP/2: {text}") })
}

const PROTOCOL: u32 = 1;
const FLOW_CONTROL: u32 = 3;
const FRAME_SIZE: u32 = 6;
const REFUSED: u32 = 7;
const CANCEL: u32 = 8;
const COMPRESSION: u32 = 9;
const CALM: u32 = 11;

impl Codec {
    /// Begins a connection: the preface and our SETTINGS are in `out`.
    pub(super) fn new(keeps_bodies: bool) -> Self {
        let mut out = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (id, value) in [(2u16, 0u32), (4, WINDOW)] {
            settings.extend_from_slice(&id.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame::write(Kind::SETTINGS, 0, 0, &settings, &mut out);
        let more = WINDOW - WINDOW_FIRST as u32;
        frame::write(Kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), &mut out);
        Self {
            out,
            capture: None,
            overhead: 0,
            kept_most: crate::check::BODY_KEPT,
            is_grpc: false,
            streams: HashMap::default(),
            next: 1,
            most: STREAMS_FIRST,
            greeted: false,
            closing: false,
            keeps_bodies,
            partial: Vec::new(),
            continued: None,
            block: Vec::new(),
            decoder: Decoder::default(),
            known: Default::default(),
            window: WINDOW_FIRST,
            window_of_streams: WINDOW_FIRST,
            room: i64::from(WINDOW),
            frame_most: FRAME_MOST,
            blocked: Vec::new(),
        }
    }

    /// How many of those that wait may come: as many more requests as the target takes now; all, when none may begin here any more, to go
    /// elsewhere.
    pub(super) fn room(&self) -> usize {
        if self.closing { usize::MAX } else { self.most.saturating_sub(self.streams.len()) }
    }

    /// Whether no request may begin any more.
    pub(super) const fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether what comes on this stream is kept for the ledger.
    pub(super) fn is_captured(&self, id: u32) -> bool {
        self.capture.as_ref().is_some_and(|c| c.stream == id)
    }

    /// This stream has no response to keep: that to the next request is.
    pub(super) fn recapture(&mut self, id: u32) {
        if self.is_captured(id) {
            self.capture = Some(Capture::default());
        }
    }

    /// Begins no request any more.
    pub(super) const fn close(&mut self) {
        self.closing = true;
    }

    /// Whether no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Begins a request and returns its stream. `body` is to be sent from the given place on.
    pub(super) fn request(
        &mut self,
        key: usize,
        head: &Rendered,
        body: Option<(&Arc<[u8]>, usize)>,
        is_head: bool,
    ) -> u32 {
        let id = self.next;
        self.next += 2;
        self.closing |= self.next > 0x7fff_ffff;
        head.write(id, &mut self.out);
        if let Some(capture) = self.capture.as_mut().filter(|c| c.stream == 0) {
            capture.stream = id;
        }
        let stream = Stream {
            key,
            is_head,
            first: 0,
            response: Response { protocol: Protocol::Http2, keeps: true, ..Response::default() },
            length: None,
            window: self.window_of_streams,
            room: i64::from(WINDOW),
            body: body.map(|(bytes, at)| (Arc::clone(bytes), at)),
            kept: Vec::new(),
            call: Call::default(),
        };
        let has_body = stream.body.is_some();
        self.streams.insert(id, stream);
        if has_body && !self.send_body(id) {
            self.blocked.push(id);
        }
        id
    }

    /// Whether a request's body has not been handed to `out` as a whole.
    pub(super) fn is_sending(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|s| s.body.is_some())
    }

    /// Gives a request up; what was received of its response.
    pub(super) fn cancel(&mut self, id: u32) -> Response {
        let Some(stream) = self.streams.remove(&id) else { return Response::default() };
        self.reset(id, CANCEL);
        stream.response
    }

    /// Ends all requests, which are left without a response: their keys, and what was received of them.
    pub(super) fn abandon(&mut self) -> Vec<(usize, Response)> {
        self.closing = true;
        self.overhead += self.partial.len() as u64;
        self.partial.clear();
        self.streams.drain().map(|(_, s)| (s.key, s.response)).collect()
    }

    /// Says why we leave.
    pub(super) fn go_away(&mut self, code: u32) {
        let mut payload = [0; 8];
        payload[4..].copy_from_slice(&code.to_be_bytes());
        frame::write(Kind::GOAWAY, 0, 0, &payload, &mut self.out);
    }

    /// Sends on what waited for `out` to be written, or for a window.
    pub(super) fn send_more(&mut self) {
        if self.blocked.is_empty() {
            return;
        }
        let mut blocked = std::mem::take(&mut self.blocked);
        blocked.retain(|id| !self.send_body(*id));
        self.blocked = blocked;
    }

    /// Sends as much of a body as may be; whether that was all.
    fn send_body(&mut self, id: u32) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        let Some((bytes, at)) = &mut stream.body else { return true };
        while self.out.len() < OUT_MOST {
            let left = bytes.get(*at..).unwrap_or_default();
            let may = self.window.min(stream.window).clamp(0, self.frame_most as i64) as usize;
            let piece = left.get(..may).unwrap_or(left);
            let last = piece.len() == left.len();
            if piece.is_empty() && !last {
                return false;
            }
            let end = if last { frame::END_STREAM } else { 0 };
            frame::write(Kind::DATA, end, id, piece, &mut self.out);
            self.window -= piece.len() as i64;
            stream.window -= piece.len() as i64;
            *at += piece.len();
            if last {
                stream.body = None;
                return true;
            }
        }
        false
    }

    fn reset(&mut self, id: u32, code: u32) {
        frame::write(Kind::RST_STREAM, 0, id, &code.to_be_bytes(), &mut self.out);
    }

    /// Takes the next piece of input, read at `now`; what it ends is appended to `answers`.
    pub(super) fn feed(&mut self, input: &[u8], now: u64, answers: &mut Vec<Answer>) -> Result<(), Broken> {
        let mut rest = input;
        let outcome = self.frames(&mut rest, now, answers);
        if outcome.is_err() {
            self.overhead += (self.partial.len() + rest.len()) as u64; // read, whatever it is
            self.partial.clear();
        }
        outcome
    }

    /// All that are whole. Where one breaks a rule, that one and what follows are left in `partial` and `rest`.
    fn frames(&mut self, rest: &mut &[u8], now: u64, answers: &mut Vec<Answer>) -> Result<(), Broken> {
        if !self.partial.is_empty() {
            let mut whole = std::mem::take(&mut self.partial);
            for _ in 0..2 {
                // First the header, then what it says.
                let need = match Header::parse(&whole) {
                    None => HEADER,
                    Some(header) => match self.checked(&header, &whole) {
                        Ok(header) => HEADER + header.len,
                        Err(broken) => {
                            self.partial = whole;
                            return Err(broken);
                        }
                    },
                };
                let missing = need.saturating_sub(whole.len()).min(rest.len());
                let (more, after) = rest.split_at_checked(missing).unwrap_or((rest, &[]));
                whole.extend_from_slice(more);
                *rest = after;
            }
            let outcome = match Header::parse(&whole) {
                Some(header) => self.checked(&header, &whole).and_then(|header| {
                    let is_whole = header.len + HEADER == whole.len();
                    if is_whole {
                        self.frame(&header, &whole, now, answers).map(|()| true)
                    } else {
                        Ok(false)
                    }
                }),
                None => Ok(false),
            };
            if matches!(outcome, Ok(true)) {
                whole.clear();
            }
            self.partial = whole;
            if !outcome? {
                return Ok(());
            }
        }
        while let Some(header) = Header::parse(rest) {
            let header = self.checked(&header, rest)?;
            let Some((whole, after)) = rest.split_at_checked(HEADER + header.len) else { break };
            self.frame(&header, whole, now, answers)?;
            *rest = after;
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// What is wrong with a frame before its payload is here.
    fn checked(&self, header: &Header, bytes: &[u8]) -> Result<Header, Broken> {
        if !self.greeted && header.kind != Kind::SETTINGS {
            if bytes.starts_with(b"HTTP/") {
                return Err(Broken { code: PROTOCOL, text: super::ANSWERED_OLD.to_owned() });
            }
            return broken(PROTOCOL, "the connection does not begin with SETTINGS"); // RFC 9113 §3.4
        }
        if header.len > FRAME_MOST {
            return broken(FRAME_SIZE, "a frame is larger than 16 KiB");
        }
        if let Some((stream, _)) = self.continued
            && (header.kind != Kind::CONTINUATION || header.stream != stream)
        {
            return broken(PROTOCOL, "a head is not continued");
        }
        Ok(*header)
    }

    /// One frame, whole.
    fn frame(
        &mut self,
        header: &Header,
        whole: &[u8],
        now: u64,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Broken> {
        let payload = whole.get(HEADER..).unwrap_or_default();
        let of_response =
            matches!(header.kind, Kind::HEADERS | Kind::CONTINUATION | Kind::DATA | Kind::RST_STREAM);
        if !of_response {
            self.control(header, payload, answers)?;
            self.overhead += whole.len() as u64;
            return Ok(());
        }
        // RFC 9113 §5.1.1: the target begins no streams, PUSH_PROMISE being off.
        if header.stream.is_multiple_of(2) || header.stream >= self.next {
            return broken(PROTOCOL, "a frame for a stream that nobody began");
        }
        if let Some(capture) = self.capture.as_mut().filter(|c| c.stream == header.stream) {
            let room = crate::engine::CAPTURE_BYTES.saturating_sub(capture.bytes.len()).min(whole.len());
            capture.bytes.extend_from_slice(whole.get(..room).unwrap_or_default());
        }
        let Some(stream) = self.streams.get_mut(&header.stream) else {
            self.late(header, payload)?;
            self.overhead += whole.len() as u64; // one that was given up
            return Ok(());
        };
        if stream.first == 0 {
            stream.first = now;
        }
        match header.kind {
            Kind::DATA => self.data(header, payload, answers),
            Kind::RST_STREAM => {
                let Some(code) = frame::number(payload, 0).filter(|_| payload.len() == 4) else {
                    return broken(FRAME_SIZE, "RST_STREAM is not 4 bytes long");
                };
                let lost = if code == REFUSED && stream.response.status == 0 {
                    Lost::Again
                } else {
                    Lost::Reset(format!("the target reset the stream: {}", frame::code_name(code)))
                };
                self.lose(header.stream, lost, answers);
                self.overhead += whole.len() as u64;
                Ok(())
            }
            _ => {
                let len = whole.len() as u64;
                stream.response.head_bytes += len;
                let outcome = self.fields(header, payload, answers);
                if outcome.is_err()
                    && let Some(stream) = self.streams.get_mut(&header.stream)
                {
                    stream.response.head_bytes -= len; // counted with what follows it
                }
                outcome
            }
        }
    }
}

#[cfg(test)]
mod tests;
