//! One HTTP/2 connection from the client's side, as bytes: what comes in becomes answers, what goes out is appended to [`Codec::out`].
//! No sockets and no clock (RFC 9113).
//!
//! A response is mostly the same head again, so the last block of fields is kept and compared before anything is decoded, as long as it changes
//! nothing in the table. Bodies are counted and thrown away, unless a check wants them.

use super::super::reader::Response;
use super::frame::{self, FRAME_MOST, HEADER, Header, Kind};
use super::head::Head;
use super::hpack::Decoder;
use super::request::Rendered;
use crate::grpc::{Code, Messages};
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
    /// GOAWAY said that it was not looked at: it may be sent again (RFC 9113 §6.8).
    Again,
    /// The response broke a rule.
    Protocol(String),
    /// The target reset the stream.
    Reset(String),
}

/// A request on its way.
#[derive(Debug)]
struct Stream {
    key: usize,
    is_head: bool,
    first: u64,
    response: Response,
    /// Of the final head.
    length: Option<u64>,
    /// What we may send.
    window: i64,
    /// What the target may send.
    room: i64,
    /// Of the body that is not sent yet, and from where.
    body: Option<(Arc<[u8]>, usize)>,
    kept: Vec<u8>,
    call: Call,
}

/// What gRPC says of a response.
#[derive(Debug, Default)]
struct Call {
    /// Whether its head says that it is gRPC.
    is_grpc: bool,
    code: Option<Code>,
    text: Option<Rc<str>>,
    messages: Messages,
}

/// The first response, as it came.
#[derive(Debug, Default)]
pub(super) struct Capture {
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

impl Stream {
    /// The response is complete: what it means to gRPC.
    fn end_call(&mut self) {
        let call = &mut self.call;
        let r = &mut self.response;
        let (code, why) = match call.code {
            _ if !call.is_grpc => (Code::of_http(r.status), "the content-type of the response is not gRPC's"),
            None => (Code::INTERNAL, "the response ended without grpc-status"),
            Some(Code::OK) if !call.messages.is_whole() => (Code::INTERNAL, "the last message is cut"),
            Some(code) => (code, ""),
        };
        r.is_no_grpc = !call.is_grpc || call.code.is_none();
        (r.grpc, r.messages) = (Some(code), call.messages.count);
        if !why.is_empty() {
            call.text = Some(why.into());
        }
    }
}

fn broken<T>(code: u32, text: &str) -> Result<T, Broken> {
    Err(Broken { code, text: format!("HTTP/2: {text}") })
}

const PROTOCOL: u32 = 1;
const FLOW_CONTROL: u32 = 3;
const FRAME_SIZE: u32 = 6;
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

    /// Whether the target takes another request now.
    pub(super) fn has_room(&self) -> bool {
        self.streams.len() < self.most
    }

    /// Whether no request may begin any more.
    pub(super) const fn is_closing(&self) -> bool {
        self.closing
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
        if !self.partial.is_empty() {
            let mut whole = std::mem::take(&mut self.partial);
            for _ in 0..2 {
                // First the header, then what it says.
                let need = match Header::parse(&whole) {
                    None => HEADER,
                    Some(header) => HEADER + self.checked(&header, &whole)?.len,
                };
                let missing = need.saturating_sub(whole.len()).min(rest.len());
                let (more, after) = rest.split_at_checked(missing).unwrap_or((rest, &[]));
                whole.extend_from_slice(more);
                rest = after;
            }
            match Header::parse(&whole) {
                Some(header) if self.checked(&header, &whole)?.len + HEADER == whole.len() => {
                    self.frame(&header, &whole, now, answers)?;
                    whole.clear();
                    self.partial = whole;
                }
                _ => {
                    self.partial = whole;
                    return Ok(());
                }
            }
        }
        while let Some(header) = Header::parse(rest) {
            let header = self.checked(&header, rest)?;
            let Some((whole, after)) = rest.split_at_checked(HEADER + header.len) else { break };
            self.frame(&header, whole, now, answers)?;
            rest = after;
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
            self.overhead += whole.len() as u64;
            return self.control(header, payload, answers);
        }
        // RFC 9113 §5.1.1: the target begins no streams, PUSH_PROMISE being off.
        if header.stream.is_multiple_of(2) || header.stream >= self.next {
            return broken(PROTOCOL, "a frame for a stream that nobody began");
        }
        if let Some(capture) = self.capture.as_mut().filter(|_| header.stream == 1) {
            let room = crate::engine::CAPTURE_BYTES.saturating_sub(capture.bytes.len()).min(whole.len());
            capture.bytes.extend_from_slice(whole.get(..room).unwrap_or_default());
        }
        let Some(stream) = self.streams.get_mut(&header.stream) else {
            self.overhead += whole.len() as u64; // one that was given up
            return self.late(header, payload);
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
                let text = format!("the target reset the stream: {}", frame::code_name(code));
                self.lose(header.stream, Lost::Reset(text), answers);
                Ok(())
            }
            _ => {
                stream.response.head_bytes += whole.len() as u64;
                self.fields(header, payload, answers)
            }
        }
    }

    /// A frame for a stream that has ended here. Its fields change the table, and its data took from the window.
    fn late(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        match header.kind {
            Kind::DATA => self.take(payload.len()),
            Kind::RST_STREAM => Ok(()),
            _ => self.fields(header, payload, &mut Vec::new()),
        }
    }

    /// HEADERS or CONTINUATION.
    fn fields(&mut self, header: &Header, payload: &[u8], answers: &mut Vec<Answer>) -> Result<(), Broken> {
        if header.kind == Kind::CONTINUATION {
            let Some((stream, flags)) = self.continued else {
                return broken(PROTOCOL, "CONTINUATION without HEADERS");
            };
            if self.block.len() + payload.len() > BLOCK_MOST {
                return broken(CALM, "a head is longer than 256 KiB");
            }
            self.block.extend_from_slice(payload);
            if !header.has(frame::END_HEADERS) {
                return Ok(());
            }
            self.continued = None;
            let block = std::mem::take(&mut self.block);
            let outcome = self.block(stream, &block, flags & frame::END_STREAM != 0, answers);
            self.block = block;
            return outcome;
        }
        let Some(content) = frame::content(header, payload) else {
            return broken(PROTOCOL, "padding longer than its frame");
        };
        if header.has(frame::END_HEADERS) {
            return self.block(header.stream, content, header.has(frame::END_STREAM), answers);
        }
        self.block.clear();
        self.block.extend_from_slice(content);
        self.continued = Some((header.stream, header.flags));
        Ok(())
    }

    /// A whole block of fields.
    fn block(&mut self, id: u32, block: &[u8], ends: bool, answers: &mut Vec<Answer>) -> Result<(), Broken> {
        // Heads and trailers take turns, so each has its own.
        let is_trailer = self.streams.get(&id).is_some_and(|s| s.response.status != 0);
        let [of_heads, of_trailers] = &mut self.known;
        let known = if is_trailer { of_trailers } else { of_heads };
        let is_known =
            known.changes == self.decoder.changes() && !known.block.is_empty() && known.block == block;
        let mut other = Head::default();
        let wanted = self.capture.is_some() && id == 1;
        if !is_known || wanted {
            let before = self.decoder.changes();
            let mut capture = self.capture.as_mut().filter(|_| wanted);
            let decoded = self.decoder.decode(block, |name, value| {
                other.field(name, value);
                if let Some(capture) = &mut capture {
                    let text = || Some(String::from_utf8_lossy(value).into_owned());
                    match name {
                        b"server" => capture.server = text(),
                        b"content-type" => capture.content_type = text(),
                        _ => {}
                    }
                }
            });
            if decoded.is_err() {
                return broken(COMPRESSION, "a head is no HPACK");
            }
            if before == self.decoder.changes() {
                known.block.clear();
                known.block.extend_from_slice(block);
                (known.changes, known.head) = (before, other.clone());
            }
        }
        let head = if is_known { &known.head } else { &other };
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let outcome = if stream.response.status == 0 { head.begin(ends) } else { head.trail(ends) };
        match outcome {
            Err(text) => {
                self.reset(id, PROTOCOL);
                self.lose(id, Lost::Protocol(format!("HTTP/2: {text}")), answers);
            }
            Ok(None) => {} // an interim response
            Ok(Some(status)) => {
                if stream.response.status == 0 {
                    (stream.response.status, stream.length) = (status, head.length());
                    stream.call.is_grpc = head.is_grpc;
                }
                if self.is_grpc {
                    stream.call.code = head.code.or(stream.call.code);
                    stream.call.text = head.text.clone().or_else(|| stream.call.text.take());
                }
                if ends {
                    self.complete(id, answers);
                }
            }
        }
        Ok(())
    }

    fn data(&mut self, header: &Header, payload: &[u8], answers: &mut Vec<Answer>) -> Result<(), Broken> {
        self.take(payload.len())?;
        let Some(content) = frame::content(header, payload) else {
            return broken(PROTOCOL, "padding longer than its frame");
        };
        let id = header.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.room -= payload.len() as i64;
        if stream.room < 0 {
            return broken(FLOW_CONTROL, "more data than the window of a stream");
        }
        let r = &mut stream.response;
        r.body_bytes += content.len() as u64;
        r.framing_bytes += (HEADER + payload.len() - content.len()) as u64;
        let beyond = stream.is_head || stream.length.is_some_and(|n| r.body_bytes > n);
        if r.status == 0 || (beyond && !content.is_empty()) {
            let text = if r.status == 0 { "data before the head" } else { "more data than Content-Length" };
            self.reset(id, PROTOCOL);
            self.lose(id, Lost::Protocol(format!("HTTP/2: {text}")), answers);
            return Ok(());
        }
        if self.keeps_bodies {
            let room = self.kept_most.saturating_sub(stream.kept.len()).min(content.len());
            stream.kept.extend_from_slice(content.get(..room).unwrap_or_default());
        }
        if self.is_grpc && stream.call.is_grpc && stream.call.messages.feed(content).is_err() {
            self.reset(id, PROTOCOL);
            let text = "gRPC: a message is compressed, though no coding was accepted";
            self.lose(id, Lost::Protocol(text.to_owned()), answers);
            return Ok(());
        }
        if header.has(frame::END_STREAM) {
            self.complete(id, answers);
        } else if stream.room < i64::from(WINDOW / 2) {
            let more = (i64::from(WINDOW) - stream.room) as u32;
            stream.room = i64::from(WINDOW);
            frame::write(Kind::WINDOW_UPDATE, 0, id, &more.to_be_bytes(), &mut self.out);
        }
        Ok(())
    }

    /// Takes data from the window of the connection, and gives it back in large pieces.
    fn take(&mut self, len: usize) -> Result<(), Broken> {
        self.room -= len as i64;
        if self.room < 0 {
            return broken(FLOW_CONTROL, "more data than the window of the connection");
        }
        if self.room < i64::from(WINDOW / 2) {
            let more = (i64::from(WINDOW) - self.room) as u32;
            self.room = i64::from(WINDOW);
            frame::write(Kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), &mut self.out);
        }
        Ok(())
    }

    /// The response has come to its end.
    fn complete(&mut self, id: u32, answers: &mut Vec<Answer>) {
        let Some(mut stream) = self.streams.remove(&id) else { return };
        if self.is_grpc {
            stream.end_call();
        }
        let r = stream.response;
        let has_none = stream.is_head || matches!(r.status, 204 | 304);
        if !has_none && stream.length.is_some_and(|n| n != r.body_bytes) {
            // RFC 9113 §8.1.1: malformed.
            self.streams.insert(id, stream);
            self.lose(id, Lost::Protocol("HTTP/2: less data than Content-Length".to_owned()), answers);
            return;
        }
        if stream.body.is_some() {
            self.reset(id, CANCEL); // it answered before it had all of the request
        }
        let (body, text) = (stream.kept, stream.call.text);
        answers.push(Answer { key: stream.key, first: stream.first, result: Ok(r), body, text });
    }

    fn lose(&mut self, id: u32, lost: Lost, answers: &mut Vec<Answer>) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.overhead +=
            stream.response.head_bytes + stream.response.body_bytes + stream.response.framing_bytes;
        let Stream { key, first, .. } = stream;
        answers.push(Answer { key, first, result: Err(lost), body: Vec::new(), text: None });
    }

    /// A frame of the connection, or one that changes how we send.
    fn control(&mut self, header: &Header, payload: &[u8], answers: &mut Vec<Answer>) -> Result<(), Broken> {
        if self.out.len() > 16 * OUT_MOST {
            return broken(CALM, "a flood of frames that want an answer");
        }
        let of_connection = matches!(header.kind, Kind::SETTINGS | Kind::PING | Kind::GOAWAY);
        if of_connection && header.stream != 0 {
            return broken(PROTOCOL, "a frame of the connection on a stream");
        }
        match header.kind {
            Kind::SETTINGS => self.settings(header, payload),
            Kind::PING => {
                if payload.len() != 8 {
                    return broken(FRAME_SIZE, "PING is not 8 bytes long");
                }
                if !header.has(frame::ACK) {
                    frame::write(Kind::PING, frame::ACK, 0, payload, &mut self.out);
                }
                Ok(())
            }
            Kind::WINDOW_UPDATE => self.window_update(header, payload, answers),
            Kind::GOAWAY => {
                let (Some(last), Some(code)) = (frame::number(payload, 0), frame::number(payload, 4)) else {
                    return broken(FRAME_SIZE, "GOAWAY is shorter than 8 bytes");
                };
                self.closing = true;
                let last = last & 0x7fff_ffff;
                let mut unseen: Vec<u32> = self.streams.keys().copied().filter(|id| *id > last).collect();
                unseen.sort_unstable();
                for id in unseen {
                    let lost = if code == 0 {
                        Lost::Again
                    } else {
                        Lost::Reset(format!("the target closed the connection: {}", frame::code_name(code)))
                    };
                    self.lose(id, lost, answers);
                }
                Ok(())
            }
            Kind::PUSH_PROMISE => broken(PROTOCOL, "a push, which we refuse"),
            Kind::PRIORITY if payload.len() != 5 => broken(FRAME_SIZE, "PRIORITY is not 5 bytes long"),
            _ => Ok(()), // RFC 9113 §4.1: unknown ones are ignored
        }
    }

    fn window_update(
        &mut self,
        header: &Header,
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Broken> {
        let Some(by) = frame::number(payload, 0).filter(|_| payload.len() == 4) else {
            return broken(FRAME_SIZE, "WINDOW_UPDATE is not 4 bytes long");
        };
        let by = i64::from(by & 0x7fff_ffff);
        let id = header.stream;
        if id == 0 {
            self.window += by;
            if by == 0 || self.window > WINDOW_MOST {
                return broken(FLOW_CONTROL, "a window that grows by nothing, or beyond 2 GiB");
            }
        } else if id.is_multiple_of(2) || id >= self.next {
            return broken(PROTOCOL, "a frame for a stream that nobody began");
        } else if let Some(stream) = self.streams.get_mut(&id) {
            stream.window += by;
            if by == 0 || stream.window > WINDOW_MOST {
                self.reset(id, FLOW_CONTROL);
                let text = "HTTP/2: a window that grows by nothing, or beyond 2 GiB";
                self.lose(id, Lost::Protocol(text.to_owned()), answers);
            }
        }
        self.send_more();
        Ok(())
    }

    fn settings(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        if header.has(frame::ACK) {
            if !self.greeted || !payload.is_empty() {
                return broken(
                    FRAME_SIZE,
                    "a confirmation of SETTINGS with a payload, or as the first frame",
                );
            }
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return broken(FRAME_SIZE, "SETTINGS are not whole");
        }
        if !self.greeted {
            (self.greeted, self.most) = (true, usize::MAX); // RFC 9113 §6.5.2: no limit unless one is told
        }
        for pair in payload.chunks_exact(6) {
            let (Some(value), [_, id, ..]) = (frame::number(pair, 2), pair) else { continue };
            if pair.first() != Some(&0) {
                continue; // an unknown one
            }
            match id {
                3 => self.most = value as usize,
                4 => {
                    let change = i64::from(value) - self.window_of_streams;
                    self.window_of_streams = i64::from(value);
                    self.streams.values_mut().for_each(|s| s.window += change);
                    if self.window_of_streams > WINDOW_MOST
                        || self.streams.values().any(|s| s.window > WINDOW_MOST)
                    {
                        return broken(FLOW_CONTROL, "a window beyond 2 GiB");
                    }
                }
                5 if !(16_384..=16_777_215).contains(&value) => {
                    return broken(PROTOCOL, "SETTINGS_MAX_FRAME_SIZE out of its range");
                }
                _ => {} // frames larger than the default gain nothing
            }
        }
        frame::write(Kind::SETTINGS, frame::ACK, 0, &[], &mut self.out);
        self.send_more();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
