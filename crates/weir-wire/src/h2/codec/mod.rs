//! One HTTP/2 connection as bytes, in either role: what was received goes in, what is to be sent waits in
//! [`Codec::pending`] (RFC 9113). No socket; of tasks only their wakers.
//!
//! *Layout.* Here is what a connection is, and where its frames go. `control` takes the connection's own frames and ends it,
//! `streams` holds the records of the streams, `incoming` takes heads and bodies, `outgoing` sends them. What becomes of
//! heads and bodies that have come is for a [`Sink`] (`sink`) to say: the gateway's, in `text`, keeps them for whoever reads
//! the stream; the load tester's counts them.
//!
//! Nothing is held twice: a head is decoded into the text that is read, DATA into the body that is read, and what is written
//! becomes frames at once. So a stream whose window is closed holds nothing here but its place in a queue.

mod control;
mod incoming;
mod numbers;
mod outgoing;
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
use super::{hpack, render};
use std::collections::VecDeque;
use std::time::Instant;
use streams::{Ending, READ, RESET, Streams, WRITE};

/// The windows of both sides before anyone says otherwise (RFC 9113 §6.9.2).
const WINDOW_FIRST: i64 = 65_535;

/// Largest window there may be.
const WINDOW_MOST: i64 = 0x7fff_ffff;

/// The window of a client's stream at its beginning. It doubles while what comes is read at once, up to what the distance
/// wants: what an upstream does not take holds this much and no more.
const STREAM_WINDOW: u32 = 32 * 1024;

/// By how much the windows of all streams of a client may have grown together.
const CLIENT_GROWTH: u32 = 2 * 1024 * 1024;

/// The same for an upstream, which is not suspected.
const UPSTREAM_GROWTH: u32 = 32 * 1024 * 1024;

/// What is read is told to the peer in pieces of this size, as far as the connection's window goes.
const CREDIT: u32 = 256 * 1024;

/// Bytes that may wait to be sent before bodies stop.
const OUT_MOST: usize = 64 * 1024;

/// Bytes that may wait to be sent before nothing more is read: answers to a peer that asks and takes nothing.
const ANSWERS_MOST: usize = 4 * OUT_MOST;

/// Longest block of a head, compressed, where the text may not be longer anyway.
const BLOCK_MOST: usize = 128 * 1024;

/// Most bytes of streams that our GOAWAY leaves out. An honest client learns of it by the first of two GOAWAYs and begins
/// no more, so this is only what was on its way, as it is for what is dropped behind the end.
pub(super) const LEFT_OUT_MOST: usize = 4 * 1024 * 1024;

/// What PING holds: a question for a sign of life, and the first step of a goodbye.
const ALIVE: [u8; 8] = *b"alive ? ";
const GOODBYE: [u8; 8] = *b"goodbye ";

/// Rules that are broken in more than one place.
const PADDING: &str = "padding longer than its frame";
const NOBODY_BEGAN: &str = "a frame for a stream that nobody began";

/// Which side of the connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We began it.
    Client,
    /// The peer did.
    Server,
}

/// What a connection is held to.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most streams at one time.
    pub streams: u32,
    /// Most bytes of a head as text, before it is decoded no further.
    pub text: usize,
    /// Most bytes of heads and trailers as text that all streams together hold, except that a connection which holds none
    /// may always take one.
    pub heads: usize,
    /// The largest window of a stream.
    pub window: u32,
    /// Most frames of each kind from a client. An upstream was chosen by us and is not suspected.
    pub floods: FloodLimits,
}

/// How much may be under way.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The window of a stream at its beginning.
    pub first: u32,
    /// By how much the windows of all streams may grow together.
    pub growth: u32,
    /// How much must have been read before the connection's window is given back.
    pub credit: u32,
    /// Bytes that may wait to be sent before bodies stop.
    pub out: usize,
}

/// A rule that was broken: the connection ends, with this code in GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Broken {
    code: u32,
    rule: &'static str,
    flood: Option<Flood>,
}

const fn broken<T>(code: u32, rule: &'static str) -> Result<T, Broken> {
    Err(Broken { code, rule, flood: None })
}

/// What the peer's SETTINGS say.
#[derive(Clone, Copy, Debug)]
struct Peer {
    window: i64,
    streams: usize,
    connect: bool,
    /// How many SETTINGS came.
    came: u32,
}

/// How far a goodbye is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// GOAWAY that leaves nothing out is sent, and a PING behind it: what comes before its answer is served.
    Asked,
    /// The last stream is named.
    Told,
}

impl Flow {
    /// What a gateway lets be under way.
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
/// Invariant: `reserved` is the sum of the grants of all streams, `heads_held` that of what they are charged with for heads.
#[derive(Debug)]
pub struct Codec<S: Sink> {
    /// Whoever heads and bodies go to.
    pub sink: S,
    role: Role,
    bounds: Bounds,
    flow: Flow,
    meter: Meter,
    /// To be sent, from `written` on.
    pub(super) out: Vec<u8>,
    written: usize,
    /// How much was sent before `out`.
    before: u64,
    /// Bytes of the preface that are still to come.
    preface: usize,
    decoder: hpack::Decoder,
    render: render::Scratch,
    /// A head that CONTINUATION goes on with: its HEADERS, its block so far, and all its bytes.
    continued: Option<Header>,
    block: Vec<u8>,
    block_wire: usize,
    /// Since when a head is incomplete.
    head_since: Option<Instant>,
    streams: Streams<S::Kept>,
    /// Bytes of heads that are charged to streams.
    heads_held: usize,
    /// Bytes of frames for streams that our GOAWAY leaves out.
    left_out: usize,
    /// Streams of the peer that nobody has taken yet.
    arrivals: VecDeque<usize>,
    /// The highest stream that the client has begun.
    last: u32,
    peer: Peer,
    /// What we may send on the connection.
    window: i64,
    reserved: usize,
    /// Streams that wait for a part of the connection's window or of `out`, the first in front.
    queue: VecDeque<usize>,
    /// Streams that wait to begin.
    beginners: VecDeque<usize>,
    /// Streams whose heads wait for `out`.
    unsent_heads: Vec<usize>,
    /// What the peer may send on the connection.
    room: i64,
    /// The same at the beginning: bodies that nobody reads hold no more.
    room_first: i64,
    credit: u32,
    /// By how much windows may still grow.
    growth: u32,
    /// SETTINGS of ours that are not confirmed.
    unconfirmed: u32,
    /// PINGs of ours that are not answered.
    asked_alive: bool,
    leaving: Leaving,
    /// The peer said GOAWAY, with this code.
    left: Option<u32>,
    /// How it ended, once it has, and the rule that was broken.
    ended: Option<Fault>,
    rule: &'static str,
}

impl<S: Sink> Codec<S> {
    /// A connection on which our SETTINGS wait to be sent.
    pub fn begin(sink: S, role: Role, bounds: Bounds, flow: Flow) -> Self {
        let is_server = role == Role::Server;
        let Flow { first, growth, credit, .. } = flow;
        // All windows of streams together, so that those which stand still hold up no other.
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
            render: render::Scratch::default(),
            continued: None,
            block: Vec::new(),
            block_wire: 0,
            head_since: None,
            streams: Streams::default(),
            heads_held: 0,
            left_out: 0,
            arrivals: VecDeque::new(),
            last: 0,
            peer: Peer { window: WINDOW_FIRST, streams: usize::MAX, connect: false, came: 0 },
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

    /// Takes what was received, as far as its frames are whole; returns how much that was. The rest must come again, with
    /// more behind it.
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

    /// Whether what is counted twice agrees.
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
        // Behind it, so that an error is told from the frame that made it.
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
            _ => Ok(()), // RFC 9113 §4.1: unknown ones are ignored
        }
    }

    // === its life ===

    /// Bytes that wait to be sent.
    pub fn pending(&self) -> &[u8] {
        self.out.get(self.written..).unwrap_or_default()
    }

    /// Bytes were sent. Returns the buffer once it is empty, for whoever sends next.
    pub fn sent(&mut self, n: usize) -> Option<Vec<u8>> {
        self.written += n;
        let mut spare = None;
        if self.written == self.out.len() {
            self.before += self.written as u64;
            self.written = 0;
            self.out.clear();
            spare = Some(std::mem::take(&mut self.out));
        } else if self.written >= self.flow.out {
            // A socket that takes little at a time never lets the buffer become empty: what has left makes room.
            self.out.drain(..self.written);
            self.before += self.written as u64;
            self.written = 0;
        }
        self.resume();
        spare
    }

    /// Gives it a grown buffer to write into, if it has none.
    pub fn lend(&mut self, spare: Vec<u8>) {
        if self.out.capacity() == 0 {
            self.out = spare;
        }
    }

    /// Whether more may be read: a peer that asks and takes no answers must wait.
    pub(super) fn wants_more(&self) -> bool {
        self.ended.is_none() && self.pending().len() < ANSWERS_MOST
    }

    /// A stream that the client has begun. It may have reset it since: that is told to whoever holds it.
    pub(super) fn next_arrival(&mut self) -> Option<usize> {
        self.arrivals.pop_front()
    }

    /// Whether streams have arrived that nobody has taken.
    pub(super) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Whether the preface came, and the SETTINGS behind it where we are the client.
    pub const fn is_greeted(&self) -> bool {
        self.preface == 0 && (self.peer.came > 0 || matches!(self.role, Role::Server))
    }

    /// How many SETTINGS came.
    pub(super) const fn settings_seen(&self) -> u32 {
        self.peer.came
    }

    /// How many streams the peer takes at one time.
    pub const fn peer_streams(&self) -> usize {
        self.peer.streams
    }

    /// Since when the peer owes the rest of a head.
    pub(super) const fn head_since(&self) -> Option<Instant> {
        self.head_since
    }

    /// How it ended, if it has.
    pub const fn ended(&self) -> Option<Fault> {
        self.ended
    }

    /// The rule that the peer broke, where it ended for one.
    pub const fn rule(&self) -> &'static str {
        self.rule
    }

    /// Bytes of a head that is not whole, of those that were received.
    pub const fn unfinished(&self) -> usize {
        if self.continued.is_some() { self.block_wire } else { 0 }
    }

    /// Whether new streams can begin on it.
    pub const fn is_open(&self) -> bool {
        self.ended.is_none() && self.left.is_none() && self.last < 0x7fff_0000
    }

    fn write_frame(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        frame::write(kind, flags, stream, payload, &mut self.out);
    }

    // === streams ===

    /// How many are open.
    pub fn open(&self) -> usize {
        self.streams.open()
    }

    /// The place of an open stream.
    pub fn find(&self, id: u32) -> Option<usize> {
        self.streams.find(id)
    }

    /// The places of all that have begun and are neither released nor over.
    pub fn places(&self) -> Vec<usize> {
        self.streams.places()
    }

    /// What the sink keeps of a stream, by its place.
    pub fn kept(&mut self, slot: usize) -> &mut S::Kept {
        &mut self.streams.at(slot).kept
    }

    // === the end of a stream ===

    /// A stream fails: whoever holds it is told.
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

    /// The peer has ended a stream: if nobody holds it, that was its last.
    #[inline]
    fn over(&mut self, slot: usize, failed: Option<Failed>) {
        if !S::HELD {
            self.sink.over(&mut self.streams.at(slot).kept, failed, self.left);
            self.free(slot);
        }
    }

    /// Resets a stream for a rule that the peer broke.
    fn reset_provoked(&mut self, slot: usize, code: u32, rule: &'static str) {
        let id = self.streams.at(slot).id;
        self.write_reset(id, code);
        self.meter.provoked();
        self.lose(slot, Failed::Malformed(rule), Ending::Ours);
    }

    fn write_reset(&mut self, id: u32, code: u32) {
        self.write_frame(Kind::RST_STREAM, 0, id, &code.to_be_bytes());
    }

    /// No more frames pass on a stream.
    #[inline]
    fn close(&mut self, slot: usize, how: Ending) {
        let is_open = self.streams.end(slot);
        let record = self.streams.at(slot);
        let id = record.id;
        self.growth += record.room_most.saturating_sub(self.flow.first);
        record.room_most = 0;
        // To a client, a frame behind the end is the same whether it still knows of that stream or not.
        if is_open && (how == Ending::Ours || self.role == Role::Server) {
            self.streams.remember(id, how);
        }
        self.give_grant_back(slot);
        self.grant_more();
        self.begin_more();
    }

    /// Resets a stream that we give up.
    pub(super) fn reset(&mut self, slot: usize, code: u32) {
        let record = self.streams.at(slot);
        if record.is_open() {
            let id = record.id;
            self.write_reset(id, code);
            self.lose(slot, Failed::GivenUp, Ending::Ours);
        }
    }

    /// Nobody holds a stream any more: what is left of it is reset.
    pub fn release(&mut self, slot: usize) {
        let unread = S::unread(&self.streams.at(slot).kept);
        self.free(slot);
        self.credit_connection(unread);
        self.begin_more(); // it may have been its turn
    }

    /// Resets what is left of a stream, and frees its place.
    #[inline]
    fn free(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        if record.is_open() {
            // RFC 9113 §8.1: a whole response says that nobody needs the rest of the request.
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

    /// Frees a place.
    #[inline]
    fn forget(&mut self, slot: usize) {
        S::clear(&mut self.streams.at(slot).kept);
        self.streams.remove(slot);
    }
}
