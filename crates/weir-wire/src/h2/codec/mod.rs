//! One HTTP/2 connection as bytes, in either role: received bytes go in, and output collects in [`Codec::pending`]
//! (RFC 9113). It owns no socket, and of tasks only their wakers.
//!
//! *Layout.* This file defines the connection and dispatches its frames. `control` handles connection-level frames
//! and the end of the connection, `streams` keeps the stream records, `incoming` receives heads and bodies, and
//! `outgoing` sends them. A [`Sink`] (`sink`) decides what happens to received heads and bodies. The gateway's sink,
//! in `text`, keeps them for the reader of the stream; it knows blocks that came before (`repeats`) and heads that were
//! sent before (`rendered`). The load tester's counts them.
//!
//! Nothing is buffered twice. Heads are decoded into the text that the reader gets, DATA into the body that it gets,
//! and written data becomes frames immediately. So a stream with a closed window only holds its place in a queue.

mod control;
mod incoming;
mod numbers;
mod outgoing;
mod rendered;
mod repeats;
mod sink;
mod streams;
#[cfg(test)]
mod tests;
mod text;

pub use sink::{Block, Part, Piece, Sink, Taken};
pub use streams::Failed;
pub(super) use text::TextCodec;

use super::flood::{Fault, Flood, FloodLimits, Meter};
use super::frame::{self, FRAME_MOST, HEADER, Header, Kind, PREFACE, code, setting};
use super::hpack;
use std::collections::VecDeque;
use std::time::Instant;
use streams::{Ending, READ, RESET, Streams, WRITE};
use weir_fields::render::Scratch;

/// The initial window of both sides (RFC 9113 §6.9.2).
const WINDOW_FIRST: i64 = 65_535;

/// Largest window allowed.
const WINDOW_MOST: i64 = 0x7fff_ffff;

/// The initial window of a client's stream. It doubles while data is read immediately, up to what the round-trip time
/// requires. An upstream that reads nothing makes us hold this much and no more.
const STREAM_WINDOW: u32 = 32 * 1024;

/// Total growth of all stream windows of a client.
const CLIENT_GROWTH: u32 = 2 * 1024 * 1024;

/// Total growth for an upstream, which we trust.
const UPSTREAM_GROWTH: u32 = 32 * 1024 * 1024;

/// Bytes read before we return credit to the peer, as far as the connection's window is concerned.
const CREDIT: u32 = 256 * 1024;

/// Bytes of pending output at which bodies stop.
const OUT_MOST: usize = 64 * 1024;

/// Bytes of pending output at which we stop reading: answers for a peer that asks but reads nothing.
const ANSWERS_MOST: usize = 4 * OUT_MOST;

/// Longest compressed block of a head, given that its text may not be longer anyway.
const BLOCK_MOST: usize = 128 * 1024;

/// Most bytes for streams that our GOAWAY excludes. The first of two GOAWAYs stops an honest client from opening
/// streams, so this is only what was in flight. The same limit applies to bytes discarded after the end.
pub(super) const LEFT_OUT_MOST: usize = 4 * 1024 * 1024;

/// Payloads of our PINGs: a liveness check, and the first step of a shutdown.
const ALIVE: [u8; 8] = *b"alive ? ";
const GOODBYE: [u8; 8] = *b"goodbye ";

/// Rules checked in more than one place.
const PADDING: &str = "padding longer than its frame";
const NOBODY_BEGAN: &str = "a frame for a stream that was never opened";

/// Our side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We opened it.
    Client,
    /// The peer opened it.
    Server,
}

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most concurrent streams.
    pub streams: u32,
    /// Most bytes of a head as text; decoding stops there.
    pub text: usize,
    /// Most bytes of heads and trailers as text that all streams together hold. A connection that holds none may
    /// always accept one.
    pub heads: usize,
    /// The largest window of a stream.
    pub window: u32,
    /// Most frames of each kind from a client. We chose the upstream ourselves and trust it.
    pub floods: FloodLimits,
}

/// How much may be in flight.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The initial window of a stream.
    pub first: u32,
    /// Total growth of all stream windows.
    pub growth: u32,
    /// Bytes that must be read before we return credit for the connection's window.
    pub credit: u32,
    /// Bytes of pending output at which bodies stop.
    pub out: usize,
}

/// A broken rule: the connection ends with this code in GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Broken {
    code: u32,
    rule: &'static str,
    flood: Option<Flood>,
}

const fn broken<T>(code: u32, rule: &'static str) -> Result<T, Broken> {
    Err(Broken { code, rule, flood: None })
}

/// The peer's SETTINGS.
#[derive(Clone, Copy, Debug)]
struct Peer {
    window: i64,
    streams: usize,
    connect: bool,
    /// The largest dynamic table that our encoder may use.
    table: u32,
    /// How many SETTINGS frames came.
    came: u32,
}

/// The progress of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// We sent a GOAWAY that excludes nothing, followed by a PING. Requests that arrive before its answer are served.
    Asked,
    /// We sent the number of the last stream.
    Announced,
}

impl Flow {
    /// The gateway's settings.
    const fn of(role: Role) -> Self {
        let (first, growth) = match role {
            Role::Client => (WINDOW_FIRST as u32, UPSTREAM_GROWTH),
            Role::Server => (STREAM_WINDOW, CLIENT_GROWTH),
        };
        Self { first, growth, credit: CREDIT, out: OUT_MOST }
    }
}

/// A connection.
///
/// Invariant: `reserved` is the sum of all streams' grants; `heads_held` is the sum of what all streams are charged
/// for heads.
#[derive(Debug)]
pub struct Codec<S: Sink> {
    /// Receives heads and bodies.
    pub sink: S,
    role: Role,
    bounds: Bounds,
    flow: Flow,
    meter: Meter,
    /// Output; `out[written..]` is unsent.
    out: Vec<u8>,
    written: usize,
    /// Bytes sent before `out`.
    before: u64,
    /// Missing bytes of the preface.
    preface: usize,
    decoder: hpack::Decoder,
    render: Scratch,
    /// A head that continues in CONTINUATION: its HEADERS, its block so far, and its total bytes.
    continued: Option<Header>,
    block: Vec<u8>,
    block_wire: usize,
    /// Since when a head is incomplete.
    head_since: Option<Instant>,
    streams: Streams<S::Kept>,
    /// Head bytes charged to streams.
    heads_held: usize,
    /// Bytes of frames for streams that our GOAWAY excludes.
    left_out: usize,
    /// Streams of the peer that nobody has accepted yet.
    arrivals: VecDeque<usize>,
    /// The highest stream that the client has opened.
    last: u32,
    peer: Peer,
    /// The peer has lowered that largest table, so the next block must begin with a size update (RFC 9113 §4.3.1).
    owes_table_size: bool,
    /// What we may send on the connection.
    window: i64,
    reserved: usize,
    /// Streams that wait for connection window or for space in `out`, in order.
    queue: VecDeque<usize>,
    /// Requests that wait to open a stream.
    beginners: VecDeque<usize>,
    /// Streams whose heads wait for space in `out`.
    unsent_heads: Vec<usize>,
    /// What the peer may send on the connection.
    room: i64,
    /// The initial value of `room`: unread bodies hold no more than this.
    room_first: i64,
    credit: u32,
    /// Remaining growth of stream windows.
    growth: u32,
    /// SETTINGS of ours without acknowledgement.
    unconfirmed: u32,
    /// A PING of ours is unanswered.
    asked_alive: bool,
    leaving: Leaving,
    /// The error code of the peer's GOAWAY, if one came.
    left: Option<u32>,
    /// Why the connection ended, once it has, and the broken rule.
    ended: Option<Fault>,
    rule: &'static str,
}

impl<S: Sink> Codec<S> {
    /// A connection whose output starts with our SETTINGS.
    pub fn begin(sink: S, role: Role, bounds: Bounds, flow: Flow) -> Self {
        let is_server = role == Role::Server;
        let Flow { first, growth, credit, .. } = flow;
        // The sum of all stream windows, so that stalled streams do not block others.
        let room = first.saturating_mul(bounds.streams).saturating_add(growth).saturating_add(credit);
        let room = i64::from(room).min(WINDOW_MOST);
        let mut codec = Self {
            sink,
            role,
            bounds,
            flow,
            meter: Meter::new(bounds.floods),
            out: Vec::new(),
            written: 0,
            before: 0,
            preface: if is_server { PREFACE.len() } else { 0 },
            decoder: hpack::Decoder::default(),
            render: Scratch::default(),
            continued: None,
            block: Vec::new(),
            block_wire: 0,
            head_since: None,
            streams: Streams::default(),
            heads_held: 0,
            left_out: 0,
            arrivals: VecDeque::new(),
            last: 0,
            peer: Peer {
                window: WINDOW_FIRST,
                streams: usize::MAX,
                connect: false,
                table: hpack::TABLE_MOST as u32,
                came: 0,
            },
            owes_table_size: false,
            window: WINDOW_FIRST,
            reserved: 0,
            queue: VecDeque::new(),
            beginners: VecDeque::new(),
            unsent_heads: Vec::new(),
            room,
            room_first: room,
            credit: 0,
            growth,
            unconfirmed: 1,
            asked_alive: false,
            leaving: Leaving::No,
            left: None,
            ended: None,
            rule: "",
        };
        if !is_server {
            codec.out.extend_from_slice(PREFACE);
        }
        let text = u32::try_from(bounds.text).unwrap_or(u32::MAX);
        let of_server = [(setting::STREAMS, bounds.streams), (setting::WINDOW, first), (setting::CONNECT, 1)];
        let of_client = [(setting::PUSH, 0), (setting::WINDOW, first)];
        let says_window = i64::from(first) != WINDOW_FIRST;
        let mut settings = vec![(setting::HEAD, text)];
        settings.extend_from_slice(match (is_server, says_window) {
            (true, _) => &of_server,
            (false, true) => &of_client,
            (false, false) => &of_client[..1],
        });
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes()))
            .collect();
        frame::write(Kind::SETTINGS, 0, 0, &payload, &mut codec.out);
        let more = (room - WINDOW_FIRST).max(0) as u32;
        if more > 0 {
            frame::write(Kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), &mut codec.out);
        }
        codec
    }

    // === what comes ===

    /// Processes the complete frames in `bytes`; returns their length. The caller must pass the rest again, with more
    /// data.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        self.meter.batch();
        let mut used = 0;
        if self.preface > 0 {
            let want = PREFACE.get(PREFACE.len() - self.preface..).unwrap_or_default();
            let common = want.len().min(bytes.len());
            if bytes.get(..common) != want.get(..common) {
                self.fail(Broken { code: code::PROTOCOL, rule: "no preface", flood: None });
                return bytes.len();
            }
            self.preface -= common;
            used = common;
        }
        while self.ended.is_none()
            && let Some(rest) = bytes.get(used..)
            && let Some(header) = Header::parse(rest)
        {
            let outcome = match rest.get(HEADER..HEADER + header.len) {
                _ if header.len > FRAME_MOST => broken(code::FRAME_SIZE, "a frame is larger than 16 KiB"),
                Some(payload) => {
                    used += HEADER + header.len;
                    self.frame(&header, payload)
                }
                None => {
                    if matches!(header.kind, Kind::HEADERS | Kind::CONTINUATION) {
                        self.head_since.get_or_insert_with(Instant::now);
                    }
                    break;
                }
            };
            if let Err(e) = outcome {
                self.fail(e);
            }
        }
        debug_assert!(self.is_sound());
        if self.ended.is_some() { bytes.len() } else { used }
    }

    /// Whether redundant counters agree.
    fn is_sound(&self) -> bool {
        let is_server = self.role == Role::Server;
        let most = self.bounds.streams as usize;
        self.reserved == self.streams.grants()
            && self.heads_held == self.streams.heads()
            && self.streams.unread::<S>() as i64 <= self.room_first
            && !(is_server && self.streams.open() > most)
    }

    fn frame(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        let content = frame::content(header, payload);
        self.dispatch(header, payload, content)?;
        // After dispatching, so that an error is distinguished from the frame that caused it.
        self.meter.received(header, content.map_or(0, <[u8]>::len));
        match self.meter.flood() {
            Some(flood) => Err(Broken { code: code::CALM, rule: "a flood of frames", flood: Some(flood) }),
            None => Ok(()),
        }
    }

    fn dispatch(&mut self, header: &Header, payload: &[u8], content: Option<&[u8]>) -> Result<(), Broken> {
        // RFC 9113 §3.4 and §6.10.
        if self.peer.came == 0 && header.kind != Kind::SETTINGS {
            return broken(code::PROTOCOL, "the connection does not begin with SETTINGS");
        }
        match self.continued {
            Some(head) if header.kind != Kind::CONTINUATION || header.stream != head.stream => {
                return broken(code::PROTOCOL, "a head is not continued");
            }
            None if header.kind == Kind::CONTINUATION => {
                return broken(code::PROTOCOL, "CONTINUATION without HEADERS");
            }
            _ => {}
        }
        let of_connection = matches!(header.kind, Kind::SETTINGS | Kind::PING | Kind::GOAWAY);
        let of_stream = matches!(
            header.kind,
            Kind::DATA | Kind::HEADERS | Kind::PRIORITY | Kind::RST_STREAM | Kind::CONTINUATION
        );
        if of_connection && header.stream != 0 {
            return broken(code::PROTOCOL, "a frame of the connection on a stream");
        }
        if of_stream && header.stream == 0 {
            return broken(code::PROTOCOL, NOBODY_BEGAN);
        }
        match header.kind {
            Kind::DATA => match content {
                Some(content) => self.data(header, payload.len(), content),
                None => broken(code::PROTOCOL, PADDING),
            },
            Kind::HEADERS => match content {
                Some(content) => self.head(header, payload, content),
                None => broken(code::PROTOCOL, PADDING),
            },
            Kind::CONTINUATION => self.continuation(header, payload),
            Kind::PRIORITY => self.priority(header, payload),
            Kind::RST_STREAM => self.reset_came(header, payload),
            Kind::SETTINGS => self.settings(header, payload),
            Kind::PING => self.ping(header, payload),
            Kind::GOAWAY => self.goaway(payload),
            Kind::WINDOW_UPDATE => self.window_update(header, payload),
            Kind::PUSH_PROMISE => broken(code::PROTOCOL, "a push, which we refuse"),
            _ => Ok(()), // RFC 9113 §4.1: unknown frames are ignored
        }
    }

    // === its life ===

    /// The unsent output.
    pub fn pending(&self) -> &[u8] {
        self.out.get(self.written..).unwrap_or_default()
    }

    /// Records sent bytes. Returns the buffer once it is empty, for the next connection that sends.
    pub fn sent(&mut self, n: usize) -> Option<Vec<u8>> {
        self.written += n;
        let mut spare = None;
        if self.written == self.out.len() {
            self.before += self.written as u64;
            self.written = 0;
            self.out.clear();
            spare = Some(std::mem::take(&mut self.out));
        } else if self.written >= self.flow.out {
            // With a socket that takes little at a time, the buffer never gets empty. So remove the sent part.
            self.out.drain(..self.written);
            self.before += self.written as u64;
            self.written = 0;
        }
        self.resume();
        spare
    }

    /// Whether it has no buffer for output.
    #[inline]
    pub(super) const fn has_no_buffer(&self) -> bool {
        self.out.capacity() == 0
    }

    /// Takes the buffer for output if nothing waits in it.
    pub(super) fn take_buffer(&mut self) -> Option<Vec<u8>> {
        (self.out.is_empty() && !self.has_no_buffer()).then(|| std::mem::take(&mut self.out))
    }

    /// Provides a grown buffer for output, unless there is one.
    pub fn lend(&mut self, spare: Vec<u8>) {
        if self.has_no_buffer() {
            self.out = spare;
        }
    }

    /// Whether to read more: a peer that asks but does not read the answers must wait.
    pub(super) fn wants_more(&self) -> bool {
        self.ended.is_none() && self.pending().len() < ANSWERS_MOST
    }

    /// The next stream that the client opened. The client may have reset it since; its holder learns that later.
    pub(super) fn next_arrival(&mut self) -> Option<usize> {
        self.arrivals.pop_front()
    }

    /// How many streams have arrived that nobody has accepted.
    pub(super) fn arrivals(&self) -> usize {
        self.arrivals.len()
    }

    /// Whether the preface has arrived; for a client, also the peer's SETTINGS.
    pub const fn is_greeted(&self) -> bool {
        self.preface == 0 && (self.peer.came > 0 || matches!(self.role, Role::Server))
    }

    /// How many SETTINGS frames came.
    pub(super) const fn settings_seen(&self) -> u32 {
        self.peer.came
    }

    /// How many concurrent streams the peer accepts.
    pub const fn peer_streams(&self) -> usize {
        self.peer.streams
    }

    /// Since when the peer has left a head incomplete.
    pub(super) const fn head_since(&self) -> Option<Instant> {
        self.head_since
    }

    /// Why the connection ended, if it has.
    pub const fn ended(&self) -> Option<Fault> {
        self.ended
    }

    /// The rule that the peer broke, if that ended the connection.
    pub const fn rule(&self) -> &'static str {
        self.rule
    }

    /// Received bytes of an incomplete head.
    pub const fn unfinished(&self) -> usize {
        if self.continued.is_some() { self.block_wire } else { 0 }
    }

    /// Whether new streams can be opened.
    pub const fn is_open(&self) -> bool {
        self.ended.is_none() && self.left.is_none() && self.last < 0x7fff_0000
    }

    fn write_frame(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        frame::write(kind, flags, stream, payload, &mut self.out);
    }

    // === streams ===

    /// The number of open streams.
    pub fn open(&self) -> usize {
        self.streams.open()
    }

    /// The slot of an open stream.
    pub fn find(&self, id: u32) -> Option<usize> {
        self.streams.find(id)
    }

    /// The slots of all streams that have begun and are neither released nor over.
    pub fn places(&self) -> Vec<usize> {
        self.streams.places()
    }

    /// The sink's data for the stream in `slot`.
    pub fn kept(&mut self, slot: usize) -> &mut S::Kept {
        &mut self.streams.at(slot).kept
    }

    // === the end of a stream ===

    /// Fails a stream and notifies its holder.
    fn lose(&mut self, slot: usize, failed: Failed, how: Ending) {
        let record = self.streams.at(slot);
        record.failed.get_or_insert(failed);
        record.wake(READ | WRITE | RESET);
        let is_news = !record.got_end && failed != Failed::GivenUp && self.ended.is_none();
        self.close(slot, how);
        if is_news {
            self.over(slot, Some(failed));
        }
    }

    /// Handles the end of a stream by the peer: if nobody holds it, frees it.
    #[inline]
    fn over(&mut self, slot: usize, failed: Option<Failed>) {
        if !S::HELD {
            self.sink.over(&mut self.streams.at(slot).kept, failed, self.left);
            self.free(slot);
        }
    }

    /// Resets a stream because the peer broke a rule.
    fn reset_provoked(&mut self, slot: usize, code: u32, rule: &'static str) {
        let id = self.streams.at(slot).id;
        self.write_reset(id, code);
        self.meter.provoked();
        self.lose(slot, Failed::Malformed(rule), Ending::Ours);
    }

    fn write_reset(&mut self, id: u32, code: u32) {
        self.write_frame(Kind::RST_STREAM, 0, id, &code.to_be_bytes());
    }

    /// Closes a stream for further frames.
    #[inline]
    fn close(&mut self, slot: usize, how: Ending) {
        let is_open = self.streams.end(slot);
        let record = self.streams.at(slot);
        let id = record.id;
        self.growth += record.room_most.saturating_sub(self.flow.first);
        record.room_most = 0;
        // A server treats a frame after the end the same, whether it still knows the stream or not.
        if is_open && (how == Ending::Ours || self.role == Role::Server) {
            self.streams.remember(id, how);
        }
        self.give_grant_back(slot);
        self.grant_more();
        self.begin_more();
    }

    /// Resets a stream that we abandon.
    pub(super) fn reset(&mut self, slot: usize, code: u32) {
        let record = self.streams.at(slot);
        if record.is_open() {
            let id = record.id;
            self.write_reset(id, code);
            self.lose(slot, Failed::GivenUp, Ending::Ours);
        }
    }

    /// Releases a stream that nobody holds any more, resetting it if it is still open.
    pub fn release(&mut self, slot: usize) {
        let unread = S::unread(&self.streams.at(slot).kept);
        self.free(slot);
        self.credit_connection(unread);
        self.begin_more(); // the freed place may let the next request begin
    }

    /// Resets a stream that is still open, and frees its slot.
    #[inline]
    fn free(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        if record.is_open() {
            // RFC 9113 §8.1: after a complete response, the rest of the request is not needed.
            let is_whole = self.role == Role::Server && record.sent_end;
            self.reset(slot, if is_whole { code::NO_ERROR } else { code::CANCEL });
        }
        if self.streams.at(slot).queued {
            self.leave_queues(slot);
        }
        self.forget_head(slot);
        self.forget(slot);
    }

    #[cold]
    fn leave_queues(&mut self, slot: usize) {
        self.queue.retain(|s| *s != slot);
        self.beginners.retain(|s| *s != slot);
        self.unsent_heads.retain(|s| *s != slot);
        self.grant_more();
    }

    /// Frees a slot.
    #[inline]
    fn forget(&mut self, slot: usize) {
        S::clear(&mut self.streams.at(slot).kept);
        self.streams.remove(slot);
    }
}
