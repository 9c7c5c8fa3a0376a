//! Sends heads and bodies of requests and responses.

use super::streams::{Failed, WRITE};
use super::{Codec, Effect, LEAST, Own, Role, Sink};
use crate::flood::Flood;
use crate::frame::{self, kind};
use crate::qpack::Encoder;
use std::io;
use std::task::{Context, Poll};
use weir_fields::render::{self, Asked, Encode, Scratch};

/// Bytes of instructions that wait on the encoder stream at which no more are moved there.
const INSTRUCTIONS: usize = 4096;

/// RFC 9114 §4.2.2: what a field counts beside its text.
const FIELD: usize = 32;

/// What a stream has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<'a> {
    /// The unsent bytes.
    pub bytes: &'a [u8],
    /// Whether the stream ends behind them.
    pub ends: bool,
}

impl<S: Sink> Codec<S> {
    // === what the transport takes ===

    /// What a request stream has to send; nothing if it is over.
    pub fn pending(&self, stream: u64) -> Pending<'_> {
        let record = self.streams.find(stream).and_then(|slot| self.streams.see(slot));
        let record = record.filter(|record| !record.is_mute && !record.is_finished);
        record.map_or(Pending { bytes: &[], ends: false }, |record| Pending {
            bytes: record.out.get(record.written..).unwrap_or_default(),
            ends: record.sent_end,
        })
    }

    /// Takes the unsent bytes of a request stream, for a transport that keeps them instead of a copy. It must return
    /// what it could not send, perhaps nothing, by [`Codec::put_back`] before it calls anything else.
    pub fn take_pending(&mut self, stream: u64) -> Vec<u8> {
        let Some(slot) = self.streams.find(stream) else { return Vec::new() };
        let record = self.streams.at(slot);
        let mut out = std::mem::take(&mut record.out);
        if record.written > 0 {
            out.drain(..std::mem::take(&mut record.written));
        }
        out
    }

    /// Records that all of what [`Codec::take_pending`] returned was sent, except for `rest`.
    pub fn put_back(&mut self, stream: u64, rest: Vec<u8>) {
        if let Some(slot) = self.streams.find(stream) {
            self.streams.at(slot).out = rest;
            self.sent(stream, 0, false);
        }
    }

    /// Records sent bytes of a request stream; `is_finished` if its end was sent behind them.
    pub fn sent(&mut self, stream: u64, n: usize, is_finished: bool) {
        let Some(slot) = self.streams.find(stream) else { return };
        let most = self.bounds.out;
        let record = self.streams.at(slot);
        record.written = (record.written + n).min(record.out.len());
        if record.unsent() == 0 {
            record.out.clear();
            record.written = 0;
            record.is_announced = record.sent_end && !is_finished;
        } else if record.written >= most {
            record.out.drain(..record.written);
            record.written = 0;
        }
        record.is_finished |= is_finished;
        if record.unsent() < most {
            record.wake(WRITE);
        }
        self.account(slot);
        self.sweep(slot);
    }

    /// Counts the unsent bytes of a stream anew. Once all streams together have half of what they may, bodies that
    /// stopped because of the others go on: sooner, each would send a few bytes.
    pub(super) fn account(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        let (before, now) = (record.counted, record.unsent());
        record.counted = now;
        self.outs_held = self.outs_held + now - before;
        if !self.crowded.is_empty() && self.outs_held <= self.bounds.outs / 2 {
            for slot in std::mem::take(&mut self.crowded) {
                self.streams.at(slot).wake(WRITE);
            }
        }
    }

    /// Moves instructions to the encoder stream, as long as the peer reads it.
    pub(super) fn flush_instructions(&mut self) {
        let instructions = self.encoder.instructions();
        let output = &mut self.own[Own::Encoder as usize];
        if !instructions.is_empty() && output.unsent().len() < INSTRUCTIONS {
            output.buffer().append(instructions);
        }
    }

    fn announce(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        if !std::mem::replace(&mut record.is_announced, true) {
            let stream = record.id;
            self.effects.push_back(Effect::Write { stream });
        }
    }

    // === streams of ours ===

    /// Opens a stream for a request; the transport opens streams in the order of their ids. `None` if the connection
    /// takes no more requests.
    pub(super) fn start(&mut self, is_head: bool) -> Option<usize> {
        if !self.is_open() || self.role == Role::Server {
            return None;
        }
        let slot = self.streams.add(self.next);
        self.next += 4;
        let record = self.streams.at(slot);
        (record.is_head, record.is_held) = (is_head, S::HELD);
        Some(slot)
    }

    /// Opens a stream with the pre-rendered frames of a request, which end it if `ends`. Their sections may refer to
    /// the static table only. `None` if the connection takes no more requests.
    pub fn ask(&mut self, frames: &[u8], is_head: bool, ends: bool) -> Option<usize> {
        let slot = self.start(is_head)?;
        let record = self.streams.at(slot);
        record.out.extend_from_slice(frames);
        record.sent_end = ends;
        self.account(slot);
        self.announce(slot);
        Some(slot)
    }

    // === heads ===

    /// Renders a section with `write` and appends its frame to the stream's output.
    ///
    /// # Errors
    /// When it cannot be expressed, or the peer does not accept one as large.
    pub(super) fn send_section<T>(
        &mut self,
        stream: u64,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Measured<'_>, &mut Scratch, &mut Vec<u8>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.lines.clear();
        self.prefix.clear();
        self.encoder.begin();
        let mut encoder = Measured { encoder: &mut self.encoder, size: 0 };
        let written = write(&mut encoder, &mut self.render, &mut self.lines)?;
        if self.control.head.is_some_and(|most| encoder.size as u64 > most) {
            let why = "a head larger than the peer's SETTINGS_MAX_FIELD_SECTION_SIZE";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.encoder.finish(stream, &mut self.prefix);
        frame::write_header(kind::HEADERS, self.prefix.len() + self.lines.len(), out);
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(&self.lines);
        self.flush_instructions();
        Ok(written)
    }

    /// Sends a section on an open stream.
    pub(super) fn send_on<T>(
        &mut self,
        slot: usize,
        write: impl FnOnce(&mut Measured<'_>, &mut Scratch, &mut Vec<u8>) -> io::Result<T>,
    ) -> io::Result<T> {
        let record = self.streams.at(slot);
        let stream = record.id;
        let mut out = std::mem::take(&mut record.out);
        let written = self.send_section(stream, &mut out, write);
        self.streams.at(slot).out = out;
        self.account(slot);
        if written.is_ok() {
            self.announce(slot);
        }
        written
    }

    /// Sends the head of a request, given as HTTP/1.1 text, which opens its stream.
    ///
    /// # Errors
    /// When HTTP/3 cannot express it, the connection takes no more requests, or the head asks for a WebSocket and the
    /// peer does not accept Extended CONNECT.
    pub fn ask_text(&mut self, text: &[u8], scheme: &str) -> io::Result<(usize, Asked)> {
        if !self.is_open() || self.role == Role::Server {
            let why = "the connection takes no more requests";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
        }
        let (accepts, stream, mut out) = (self.control.connect, self.next, Vec::new());
        let asked = self.send_section(stream, &mut out, |encoder, scratch, lines| {
            let asked = render::request(text, scheme, encoder, scratch, lines)?;
            if asked.key.is_some() && !accepts {
                let why = "the server does not take WebSockets by HTTP/3 (RFC 9220)";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            Ok(asked)
        })?;
        let slot = self.ask(&out, asked.is_head, false).ok_or(io::ErrorKind::ConnectionRefused)?;
        Ok((slot, asked))
    }

    /// Sends the head of a response, given as HTTP/1.1 text; returns whether it was the final one.
    ///
    /// # Errors
    /// When the stream has failed, or HTTP/3 cannot express the head.
    pub fn send_response(&mut self, slot: usize, text: &[u8], cx: &Context<'_>) -> Poll<io::Result<bool>> {
        let most = self.bounds.out;
        let record = self.streams.at(slot);
        if let Some(failed) = record.failed {
            return Poll::Ready(Err(failed.into()));
        }
        if record.unsent() >= most {
            record.wait(WRITE, cx);
            return Poll::Pending;
        }
        let tunnel = record.is_tunnel;
        let answered = self.send_on(slot, |encoder, scratch, lines| {
            render::response(text, tunnel, encoder, scratch, lines)
        })?;
        self.meter.earn(Flood::Resets, 1);
        Poll::Ready(Ok(answered.status >= 200))
    }

    // === bodies ===

    /// Sends part of a body; returns how much. If it sends nothing, wakes the task when there may be room.
    ///
    /// # Errors
    /// Why the stream accepts no more data.
    pub fn send_data(&mut self, slot: usize, data: &[u8], cx: &Context<'_>) -> Poll<Result<usize, Failed>> {
        let (most, of_all) = (self.bounds.out, self.bounds.outs.saturating_sub(self.outs_held));
        let record = self.streams.at(slot);
        if let Some(failed) = record.failed {
            return Poll::Ready(Err(failed));
        }
        if !record.writes() {
            return Poll::Ready(Err(Failed::GivenUp));
        }
        let unsent = record.unsent();
        let room = most.saturating_sub(unsent);
        let shared = room.min(of_all.max(LEAST.saturating_sub(unsent)));
        if shared == 0 {
            record.wait(WRITE, cx);
            if room > 0 && !self.crowded.contains(&slot) {
                self.crowded.push(slot);
            }
            return Poll::Pending;
        }
        let len = data.len().min(shared);
        if len > 0 {
            frame::write_header(kind::DATA, len, &mut record.out);
            record.out.extend_from_slice(data.get(..len).unwrap_or_default());
            self.account(slot);
            self.announce(slot);
        }
        Poll::Ready(Ok(len))
    }

    /// Ends a message, with trailers if these field lines are not empty.
    ///
    /// # Errors
    /// When the stream has failed, or the trailers cannot be expressed.
    pub fn send_end(&mut self, slot: usize, trailers: &[u8]) -> io::Result<()> {
        let record = self.streams.at(slot);
        if let Some(failed) = record.failed {
            return Err(failed.into());
        }
        if !record.writes() {
            return Ok(()); // a server that has answered needs no more of the request
        }
        if !trailers.is_empty() {
            self.send_on(slot, |encoder, scratch, lines| {
                render::trailers(trailers, encoder, scratch, lines)
            })?;
        }
        self.streams.at(slot).sent_end = true;
        self.announce(slot);
        Ok(())
    }
}

/// An encoder that adds up the size of a section (RFC 9114 §4.2.2).
#[derive(Debug)]
pub(super) struct Measured<'a> {
    encoder: &'a mut Encoder,
    size: usize,
}

impl Encode for Measured<'_> {
    const IS_STATIC_HPACK: bool = false;

    #[inline]
    fn encode(&mut self, name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
        self.size += name.len() + value.len() + FIELD;
        self.encoder.encode(name, value, secret, out);
    }
}

/// Translates a stream failure for code that only knows sockets.
impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        let (kind, why) = match failed {
            Failed::Closed => (io::ErrorKind::UnexpectedEof, "the HTTP/3 connection has ended"),
            Failed::GivenUp => (io::ErrorKind::BrokenPipe, "the stream was given up"),
            Failed::Malformed(rule) => (io::ErrorKind::InvalidData, rule),
            Failed::Refused { .. } => {
                (io::ErrorKind::ConnectionRefused, "the peer did not process the request")
            }
            Failed::Reset(_) => (io::ErrorKind::ConnectionReset, "the peer reset the stream"),
        };
        Self::new(kind, why)
    }
}
