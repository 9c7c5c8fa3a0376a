//! One HTTP/3 connection as bytes, in either role: bytes of QUIC streams go in, and bytes and [`Effect`]s come out
//! (RFC 9114). It owns no socket and no clock, and of tasks only their wakers.
//!
//! *Layout.* This file defines the connection. `control` reads the peer's unidirectional streams and ends the
//! connection, `streams` keeps the records of requests, `incoming` receives heads and bodies, and `outgoing` sends
//! them. A [`Sink`] (`sink`) decides what happens to received heads and bodies. The gateway's sink, in `text`, keeps
//! them for the reader of the stream.
//!
//! *What the transport does.* It opens three unidirectional streams first, in the order of [`Own`], and sends on them
//! what [`Codec::pending_own`] has. It passes what arrives to [`Codec::receive`], [`Codec::reset_came`] and
//! [`Codec::stop_came`], in the order of each stream, and nothing more of a stream whose end it has passed or that an
//! [`Effect::Stop`] named. After that and after every poll of a task it carries out [`Codec::next_effect`] until there
//! is none, and closes the connection once [`Codec::ended`] says so.
//!
//! Flow control is QUIC's: [`Codec::receive`] takes no more of a body than there is room for, and the transport keeps
//! the rest, for which it gives the peer no credit.

mod control;
mod incoming;
mod outgoing;
mod sink;
mod streams;
#[cfg(test)]
mod tests;
mod text;

pub use outgoing::Pending;
pub use sink::{Part, Piece, Section, Sink, Taken};
pub use streams::Failed;
pub use text::{Handshake, TextCodec, Texts};

use crate::flood::{Flood, FloodLimits, Meter};
use crate::frame::{self, kind, setting, uni};
use crate::qpack::{Decoder, DecoderLimits, Encoder};
use crate::{code, varint};
use control::{Control, Uni};
use std::collections::VecDeque;
use std::time::Instant;
use streams::{READ, RESET, Streams, WRITE};
use weir_fields::{Priority, render};

/// Largest output buffer kept while it is empty.
const KEPT: usize = 4096;

/// Most bytes for our decoder stream that the peer does not read. 16 KiB acknowledge thousands of sections.
const ANSWERS: usize = 16 * 1024;

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
    /// Most concurrent requests. The transport allows as many bidirectional streams.
    pub streams: usize,
    /// Most bytes of a head as text; decoding stops there.
    pub text: usize,
    /// Most bytes of heads and trailers, as text or incomplete, that all streams together hold. A connection that holds
    /// none may always accept one.
    pub heads: usize,
    /// Most bytes of a body that a stream holds for its reader.
    pub body: usize,
    /// Most bytes of bodies that all streams together hold for their readers. Beyond it, a stream that holds none may
    /// still take [`LEAST`], so that no reader waits for another one.
    pub bodies: usize,
    /// Bytes of unsent output of a stream at which its body stops.
    pub out: usize,
    /// Bytes of unsent output of all streams together at which bodies stop. Beyond it, a stream that has none may still
    /// have [`LEAST`], so that no response waits for the reader of another one.
    pub outs: usize,
    /// The dynamic table that the peer's encoder may fill, and the streams that may wait for it.
    pub decoder: DecoderLimits,
    /// Most bytes of our encoder's dynamic table; 0 for none.
    pub encoder: usize,
    /// What the peer may cause in a second.
    pub floods: FloodLimits,
}

impl Default for Bounds {
    /// Those of HTTP/2 where it has them. The dynamic tables have 4 KiB, as HPACK's by default.
    fn default() -> Self {
        Self {
            streams: 128,
            text: 32 * 1024,
            heads: 256 * 1024,
            body: 64 * 1024,
            bodies: 1024 * 1024,
            out: 32 * 1024,
            outs: 256 * 1024,
            decoder: DecoderLimits { capacity: 4096, blocked: 16 },
            encoder: 4096,
            floods: FloodLimits::default(),
        }
    }
}

/// What a stream may hold of its body, received or to be sent, however much others hold.
pub const LEAST: usize = 4096;

/// Our unidirectional streams, in the order in which the transport opens them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// SETTINGS and GOAWAY.
    Control,
    /// Acknowledgements of the peer's encoder.
    Decoder,
    /// Insertions of ours.
    Encoder,
}

impl Own {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Control, Self::Decoder, Self::Encoder];
}

/// What the transport has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send what is due on this stream before what is less urgent.
    Prioritize {
        /// Its id.
        stream: u64,
        /// The client's wish.
        priority: Priority,
    },
    /// There is room again: pass what [`Codec::receive`] left of this stream.
    Read {
        /// Its id.
        stream: u64,
    },
    /// Abandon our side of this stream: RESET_STREAM.
    Reset {
        /// Its id.
        stream: u64,
        /// Why.
        code: u64,
    },
    /// Read this stream no more: STOP_SENDING.
    Stop {
        /// Its id.
        stream: u64,
        /// Why.
        code: u64,
    },
    /// This stream has output or has ended: see [`Codec::pending`].
    Write {
        /// Its id.
        stream: u64,
    },
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The code for CONNECTION_CLOSE.
    pub code: u64,
    /// The rule that the peer broke, or empty.
    pub rule: &'static str,
    /// What the peer sent too often, if that was it.
    pub flood: Option<Flood>,
}

/// A broken rule: the connection ends with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Broken {
    code: u64,
    rule: &'static str,
    flood: Option<Flood>,
}

const fn broken<T>(code: u64, rule: &'static str) -> Result<T, Broken> {
    Err(Broken { code, rule, flood: None })
}

/// Output of one of our unidirectional streams.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    written: usize,
}

impl Output {
    /// Where output is appended.
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn unsent(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    fn sent(&mut self, n: usize) {
        self.written = (self.written + n).min(self.bytes.len());
        // With a peer that reads little at a time, the buffer never gets empty.
        if self.written == self.bytes.len() || self.written >= KEPT {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
    }
}

/// A connection.
///
/// Invariant: `heads_held` is the sum of what all streams are charged for heads, and `bodies_held` that of the bytes of
/// bodies that they hold, and `outs_held` that of their unsent output; `blocked` has exactly the streams whose record
/// waits for insertions.
#[derive(Debug)]
pub struct Codec<S: Sink> {
    /// Receives heads and bodies.
    pub sink: S,
    role: Role,
    bounds: Bounds,
    meter: Meter,
    own: [Output; 3],
    encoder: Encoder,
    decoder: Decoder,
    render: render::Scratch,
    /// The field lines and the prefix of a head that is being rendered.
    lines: Vec<u8>,
    prefix: Vec<u8>,
    streams: Streams<S::Kept>,
    /// The peer's unidirectional streams.
    theirs: Vec<(u64, Uni)>,
    control: Control,
    effects: VecDeque<Effect>,
    /// Requests that nobody has accepted yet.
    arrivals: VecDeque<usize>,
    /// The slots of streams whose head waits for insertions.
    blocked: Vec<usize>,
    /// The stream whose bytes are being processed: its record stays until that is done.
    busy: Option<usize>,
    /// Head bytes charged to streams.
    heads_held: usize,
    /// Bytes of bodies that streams hold.
    bodies_held: usize,
    /// The slots of streams that left bytes to the transport because all streams together held too much.
    starved: Vec<usize>,
    /// Unsent bytes of all streams.
    outs_held: usize,
    /// The slots of streams whose bodies stopped because all streams together had too much output.
    crowded: Vec<usize>,
    /// The id after the highest one that a request has had.
    next: u64,
    /// The id in our last GOAWAY.
    leaving: Option<u64>,
    ended: Option<Ended>,
}

impl<S: Sink> Codec<S> {
    /// A connection whose control stream starts with our SETTINGS.
    pub fn begin(sink: S, role: Role, bounds: Bounds) -> Self {
        let mut codec = Self {
            sink,
            role,
            bounds,
            meter: Meter::new(bounds.floods),
            own: Default::default(),
            encoder: Encoder::new(bounds.encoder),
            decoder: Decoder::new(bounds.decoder),
            render: render::Scratch::default(),
            lines: Vec::new(),
            prefix: Vec::new(),
            streams: Streams::default(),
            theirs: Vec::new(),
            control: Control::default(),
            effects: VecDeque::new(),
            arrivals: VecDeque::new(),
            blocked: Vec::new(),
            busy: None,
            heads_held: 0,
            bodies_held: 0,
            starved: Vec::new(),
            outs_held: 0,
            crowded: Vec::new(),
            next: 0,
            leaving: None,
            ended: None,
        };
        for (own, kind) in Own::ALL.into_iter().zip([uni::CONTROL, uni::DECODER, uni::ENCODER]) {
            varint::write(kind, codec.own[own as usize].buffer());
        }
        let DecoderLimits { capacity, blocked } = bounds.decoder;
        let mut settings = vec![
            (setting::TABLE, capacity as u64),
            (setting::BLOCKED, blocked as u64),
            (setting::HEAD, bounds.text as u64),
            (setting::GREASE, 0),
        ];
        if role == Role::Server {
            settings.push((setting::CONNECT, 1));
        }
        let mut payload = Vec::new();
        for (id, value) in settings {
            varint::write(id, &mut payload);
            varint::write(value, &mut payload);
        }
        frame::write(kind::SETTINGS, &payload, codec.own[Own::Control as usize].buffer());
        codec
    }

    // === what comes ===

    /// Processes bytes of a stream, and its end if `fin`. Returns how many it took: fewer than there are while a head
    /// waits for insertions or the reader of a body is behind. The caller passes the rest again, with `fin`, after
    /// [`Effect::Read`].
    pub fn receive(&mut self, stream: u64, bytes: &[u8], fin: bool, now: Instant) -> usize {
        if self.ended.is_some() {
            return bytes.len();
        }
        self.meter.at(now);
        let outcome = match (stream & 3, self.role) {
            (0, _) => self.request_bytes(stream, bytes, fin, now),
            (2, Role::Server) | (3, Role::Client) => self.uni(stream, bytes, fin).map(|()| bytes.len()),
            (1, Role::Client) => broken(code::STREAM_CREATION, "a bidirectional stream of the server"),
            _ => Ok(bytes.len()), // nothing can arrive on a unidirectional stream of ours
        };
        let outcome = outcome.and_then(|used| self.check_floods().map(|()| used));
        self.flush_instructions();
        let used = match outcome {
            Ok(used) => used,
            Err(e) => {
                self.fail(e);
                bytes.len()
            }
        };
        debug_assert!(self.is_sound());
        used
    }

    /// The peer has reset a stream: no more of it will arrive.
    pub fn reset_came(&mut self, stream: u64, code: u64, now: Instant) {
        self.meter.at(now);
        let outcome = match (stream & 3, self.role) {
            _ if self.ended.is_some() => return,
            (0, _) => {
                self.request_reset(stream, code);
                Ok(())
            }
            (2, Role::Server) | (3, Role::Client) => self.uni_over(stream),
            _ => Ok(()),
        };
        if let Err(e) = outcome.and_then(|()| self.check_floods()) {
            self.fail(e);
        }
    }

    /// The peer reads a stream of ours no more.
    pub fn stop_came(&mut self, stream: u64, code: u64, now: Instant) {
        self.meter.at(now);
        let outcome = match stream & 3 {
            _ if self.ended.is_some() => return,
            0 => {
                self.request_stopped(stream, code);
                Ok(())
            }
            // RFC 9114 §6.2.1, RFC 9204 §4.2.
            2 | 3 => broken(code::CLOSED_CRITICAL, "the peer stopped a stream that must stay open"),
            _ => Ok(()),
        };
        if let Err(e) = outcome.and_then(|()| self.check_floods()) {
            self.fail(e);
        }
    }

    /// Whether redundant counters agree.
    fn is_sound(&self) -> bool {
        let is_blocked = |slot: &usize| self.streams.see(*slot).is_some_and(|record| record.blocked > 0);
        self.heads_held == self.streams.all().map(|record| record.held).sum::<usize>()
            && self.bodies_held == self.streams.all().map(|record| S::unread(&record.kept)).sum::<usize>()
            && self.outs_held == self.streams.all().map(|record| record.unsent()).sum::<usize>()
            && self.blocked.iter().all(is_blocked)
            && self.blocked.len() == self.streams.all().filter(|record| record.blocked > 0).count()
            && self.blocked.len() <= self.bounds.decoder.blocked
    }

    // === its life ===

    /// What the transport has to do next.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether the transport has something to do.
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Unsent bytes of a unidirectional stream of ours.
    pub fn pending_own(&self, own: Own) -> &[u8] {
        self.own[own as usize].unsent()
    }

    /// Records sent bytes of a unidirectional stream of ours.
    pub fn sent_own(&mut self, own: Own, n: usize) {
        self.own[own as usize].sent(n);
        self.flush_instructions();
    }

    /// The next request; its holder must release it. The client may have reset it since, which its holder learns later.
    pub fn next_arrival(&mut self) -> Option<usize> {
        self.arrivals.pop_front()
    }

    /// Whether requests wait to be accepted.
    pub fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Whether the peer's SETTINGS have arrived.
    pub const fn is_greeted(&self) -> bool {
        self.control.is_greeted
    }

    /// Whether requests can be sent.
    pub const fn is_open(&self) -> bool {
        self.ended.is_none() && self.control.left.is_none() && self.leaving.is_none()
    }

    /// How the connection ended, if it has.
    pub const fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The number of requests whose records are kept.
    pub fn open(&self) -> usize {
        self.streams.open()
    }

    /// Since when the oldest incomplete head of a request has been incomplete.
    pub fn head_since(&self) -> Option<Instant> {
        self.streams.all().filter_map(|record| record.since).min()
    }

    /// Abandons the requests whose heads have been incomplete since before this time: they were not processed.
    pub fn abandon_heads(&mut self, since: Instant) {
        for slot in self.streams.slots() {
            if self.streams.at(slot).since.is_some_and(|began| began <= since) {
                self.meter.spend(Flood::Errors, 1);
                self.abandon(slot, code::REQUEST_REJECTED);
                self.lose(slot, Failed::GivenUp);
            }
        }
    }

    /// The QUIC stream of a request.
    pub fn stream_of(&self, slot: usize) -> Option<u64> {
        self.streams.see(slot).map(|record| record.id)
    }

    /// What a client wished for its request.
    pub fn priority(&self, slot: usize) -> Priority {
        self.streams.see(slot).map(|record| record.priority).unwrap_or_default()
    }

    /// The sink's data for the stream in `slot`.
    pub fn kept(&mut self, slot: usize) -> &mut S::Kept {
        &mut self.streams.at(slot).kept
    }

    // === the end of a stream ===

    /// Abandons a stream because the peer broke a rule.
    fn malformed(&mut self, slot: usize, code: u64, rule: &'static str) {
        self.meter.spend(Flood::Errors, 1);
        self.abandon(slot, code);
        self.lose(slot, Failed::Malformed(rule));
    }

    /// Abandons both directions of a stream, as far as they have not ended.
    fn abandon(&mut self, slot: usize, code: u64) {
        self.stop(slot, code);
        let record = self.streams.at(slot);
        if !record.is_mute && !record.is_finished {
            self.mute(slot, code);
        }
    }

    /// Writes a stream no more, and drops what is unsent.
    fn mute(&mut self, slot: usize, code: u64) {
        let record = self.streams.at(slot);
        let stream = record.id;
        (record.is_mute, record.written) = (true, 0);
        record.out.clear();
        self.account(slot);
        self.effects.push_back(Effect::Reset { stream, code });
    }

    /// Reads a stream no more.
    fn stop(&mut self, slot: usize, code: u64) {
        let record = self.streams.at(slot);
        if record.reads() {
            let stream = record.id;
            // Where the end has arrived behind a head that waits, there is nothing to stop.
            if !record.got_fin {
                self.effects.push_back(Effect::Stop { stream, code });
            }
            self.deafen(slot);
        }
    }

    /// Nothing more of a stream is decoded (RFC 9204 §2.2.2.2).
    fn deafen(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        let stream = record.id;
        (record.is_deaf, record.since) = (true, None);
        if record.blocked > 0 {
            record.blocked = 0;
            self.blocked.retain(|other| *other != slot);
        }
        let undecoded = self.streams.at(slot).block.len();
        self.streams.at(slot).block = Vec::new();
        self.discharge(slot, undecoded);
        self.decoder.cancel(stream, self.own[Own::Decoder as usize].buffer());
    }

    /// Fails a stream and notifies its holder.
    fn lose(&mut self, slot: usize, failed: Failed) {
        let record = self.streams.at(slot);
        if record.failed.is_some() {
            return;
        }
        record.failed = Some(failed);
        let is_news = !record.got_end;
        record.wake(READ | WRITE | RESET);
        if record.reads() {
            self.deafen(slot);
        }
        let record = self.streams.at(slot);
        record.is_mute |= !record.is_finished;
        if !S::HELD && is_news {
            self.sink.over(&mut self.streams.at(slot).kept, Some(failed));
        }
        self.sweep(slot);
    }

    /// Frees the record of a stream that is over and that nobody holds.
    fn sweep(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        let is_sent = record.is_mute || record.is_finished;
        if !record.is_held && is_sent && !record.reads() && self.busy != Some(slot) {
            self.discharge(slot, usize::MAX);
            let record = self.streams.at(slot);
            let unread = S::unread(&record.kept);
            record.written = record.out.len();
            self.account(slot);
            self.streams.remove(slot, S::clear);
            self.starved.retain(|other| *other != slot);
            self.crowded.retain(|other| *other != slot);
            self.was_read(unread);
        }
    }

    /// Releases a stream that nobody holds any more, abandoning what has not ended.
    pub fn release(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        record.is_held = false;
        if record.sent_end && !record.is_mute {
            // RFC 9114 §4.1: after a complete response, the rest of the request is not needed.
            self.stop(slot, code::NO_ERROR);
        } else {
            self.abandon(slot, code::REQUEST_CANCELLED);
        }
        self.sweep(slot);
    }

    /// Abandons a stream whose holder gives it up with this code.
    pub fn reset(&mut self, slot: usize, code: u64) {
        self.abandon(slot, code);
        self.lose(slot, Failed::GivenUp);
    }

    /// Frees buffers that only requests need, if there is none.
    pub fn rest(&mut self) {
        if self.streams.open() > 0 {
            return;
        }
        self.streams = Streams::default();
        self.sink.rest();
        self.encoder.rest();
        self.render = render::Scratch::default();
        (self.lines, self.prefix) = (Vec::new(), Vec::new());
        (self.arrivals, self.starved, self.crowded) = (VecDeque::new(), Vec::new(), Vec::new());
        self.effects.shrink_to_fit();
        self.own.iter_mut().for_each(|own| own.bytes.shrink_to_fit());
    }

    // === what heads hold ===

    /// Charges a stream for its head, until the stream is released or its head is freed.
    fn charge(&mut self, slot: usize, bytes: usize) {
        if self.role == Role::Server {
            self.streams.at(slot).held += bytes;
            self.heads_held += bytes;
        }
    }

    fn discharge(&mut self, slot: usize, bytes: usize) {
        let record = self.streams.at(slot);
        let bytes = bytes.min(record.held);
        record.held -= bytes;
        self.heads_held -= bytes;
    }

    /// Ends the charge for bytes of a body that nobody holds any more. Once all streams together hold half of what they
    /// may, those that were left behind go on: sooner, each would get a few bytes.
    fn was_read(&mut self, len: usize) {
        self.bodies_held -= len;
        if !self.starved.is_empty() && self.bodies_held <= self.bounds.bodies / 2 {
            std::mem::take(&mut self.starved).into_iter().for_each(|slot| self.resume(slot));
        }
    }

    /// Ends the charge for a head that its holder has freed.
    pub fn forget_head(&mut self, slot: usize) {
        self.discharge(slot, usize::MAX);
    }
}
