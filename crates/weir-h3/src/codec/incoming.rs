//! Receives heads and bodies of requests and responses (RFC 9114 §4.1).

use super::streams::{At, Failed, READ, WRITE};
use super::{Broken, Codec, Effect, KEPT, LEAST, Own, Part, Piece, Role, Section, Sink, Taken, broken};
use crate::code;
use crate::flood::Flood;
use crate::frame::{self, kind};
use std::time::Instant;
use weir_fields::{HeadFacts, Malformed};

/// Longest compressed head, given that its text may not be longer anyway.
const BLOCK: usize = 128 * 1024;

/// How many instructions of the encoder stream a head earns.
const INSERTIONS: u32 = 32;

const LESS_DATA: &str = "less data than Content-Length";
const MORE_DATA: &str = "more data than Content-Length";

impl<S: Sink> Codec<S> {
    // === streams ===

    /// Processes bytes of a request stream; returns how many it took.
    pub(super) fn request_bytes(
        &mut self,
        id: u64,
        bytes: &[u8],
        fin: bool,
        now: Instant,
    ) -> Result<usize, Broken> {
        let slot = match self.streams.find(id) {
            Some(slot) => slot,
            None if self.role == Role::Client => return Ok(bytes.len()), // the stream is over
            None => match self.open_request(id, now) {
                Some(slot) => slot,
                None => return Ok(bytes.len()),
            },
        };
        let mut rest = bytes;
        self.busy = Some(slot);
        let outcome = self.frames(slot, &mut rest).and_then(|()| {
            let record = self.streams.at(slot);
            record.is_stalled = !rest.is_empty();
            if fin && rest.is_empty() && !record.is_deaf {
                record.got_fin = true;
                return self.finish_reading(slot);
            }
            Ok(())
        });
        self.busy = None;
        outcome?;
        self.sweep(slot);
        Ok(bytes.len() - rest.len())
    }

    fn open_request(&mut self, id: u64, now: Instant) -> Option<usize> {
        let is_excluded = self.leaving.is_some_and(|first| id >= first);
        if is_excluded || self.streams.open() >= self.bounds.streams {
            // RFC 9114 §4.1.1: the client may send it again elsewhere.
            let code = code::REQUEST_REJECTED;
            self.effects.push_back(Effect::Stop { stream: id, code });
            self.effects.push_back(Effect::Reset { stream: id, code });
            self.decoder.cancel(id, self.own[Own::Decoder as usize].buffer());
            self.meter.spend(Flood::Errors, u32::from(!is_excluded));
            return None;
        }
        self.next = self.next.max(id + 4);
        let slot = self.streams.add(id);
        self.streams.at(slot).since = Some(now);
        Some(slot)
    }

    pub(super) fn request_reset(&mut self, id: u64, code: u64) {
        self.meter.spend(Flood::Resets, 1);
        let Some(slot) = self.streams.find(id) else {
            if self.role == Role::Server {
                self.next = self.next.max(id + 4);
                self.early_priority(id); // of a request that does not come
                // RFC 9204 §2.2.2.2: also if the reset overtook the head. The client cannot evict what it refers to.
                self.decoder.cancel(id, self.own[Own::Decoder as usize].buffer());
                // Our direction is open as well, and the client may open another stream only once both are over.
                self.effects.push_back(Effect::Reset { stream: id, code: code::REQUEST_CANCELLED });
            }
            return;
        };
        if !self.streams.at(slot).reads() {
            return;
        }
        self.deafen(slot);
        // Nobody waits for the response to half a request, and half a response is none.
        self.abandon(slot, code::REQUEST_CANCELLED);
        self.lose(slot, self.failed_by(code));
    }

    pub(super) fn request_stopped(&mut self, id: u64, code: u64) {
        let Some(slot) = self.streams.find(id) else { return };
        let record = self.streams.at(slot);
        if record.is_mute || record.is_finished {
            return;
        }
        record.wake(WRITE);
        self.mute(slot, code);
        match self.role {
            // RFC 9114 §4.1: the server has answered, and needs no more of the request.
            Role::Client if code == code::NO_ERROR => self.sweep(slot),
            Role::Client => self.lose(slot, self.failed_by(code)),
            Role::Server => {
                self.meter.spend(Flood::Resets, 1);
                self.stop(slot, code::REQUEST_CANCELLED);
                self.lose(slot, Failed::Reset(code));
            }
        }
    }

    fn failed_by(&self, code: u64) -> Failed {
        match (self.role, code) {
            (Role::Client, code::REQUEST_REJECTED) => Failed::Refused { by_reset: true },
            _ => Failed::Reset(code),
        }
    }

    // === frames ===

    /// Processes frames until bytes or room are missing, or a head is blocked.
    fn frames(&mut self, slot: usize, rest: &mut &[u8]) -> Result<(), Broken> {
        loop {
            let record = self.streams.at(slot);
            if record.is_deaf {
                *rest = &[];
                return Ok(());
            }
            if record.blocked > 0 {
                return Ok(());
            }
            match record.at {
                At::Header => {
                    let Some((kind, len)) = record.header.take(rest) else { return Ok(()) };
                    self.begin_frame(slot, kind, len)?;
                }
                At::Data(0) | At::Unknown(0) => record.at = At::Header,
                At::Data(left) => {
                    let held = S::unread(&record.kept);
                    let least = LEAST.saturating_sub(held);
                    let of_all = self.bounds.bodies.saturating_sub(self.bodies_held).max(least);
                    let room = self.bounds.body.saturating_sub(held).min(of_all);
                    if of_all == 0 && !rest.is_empty() && !self.starved.contains(&slot) {
                        self.starved.push(slot);
                    }
                    let len = rest.len().min(room).min(usize::try_from(left).unwrap_or(usize::MAX));
                    if len == 0 {
                        return Ok(());
                    }
                    record.at = At::Data(left - len as u64);
                    let (piece, others) = rest.split_at(len);
                    *rest = others;
                    self.data(slot, piece);
                }
                At::Unknown(left) => {
                    let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    record.at = At::Unknown(left - len as u64);
                    *rest = rest.get(len..).unwrap_or_default();
                    if len as u64 != left {
                        return Ok(());
                    }
                }
                At::Head(len) => {
                    if !self.head_bytes(slot, len, rest)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Judges a frame by its header.
    fn begin_frame(&mut self, slot: usize, kind: u64, len: u64) -> Result<(), Broken> {
        let record = self.streams.at(slot);
        match kind {
            kind::DATA => {
                if !record.headed || record.trailed {
                    return broken(code::FRAME_UNEXPECTED, "DATA before the head or after trailers");
                }
                record.at = At::Data(len);
                let is_excess = record.owed.is_some_and(|owed| len > owed);
                match len {
                    0 => self.meter.spend(Flood::Data, 1),
                    _ => self.meter.earn(Flood::Data, 1),
                }
                if is_excess {
                    self.malformed(slot, code::MESSAGE, MORE_DATA);
                }
                Ok(())
            }
            kind::HEADERS => {
                if record.trailed || record.is_tunnel {
                    return broken(code::FRAME_UNEXPECTED, "HEADERS after trailers or in a tunnel");
                }
                match usize::try_from(len) {
                    Ok(len) if len <= BLOCK.max(self.bounds.text) => record.at = At::Head(len),
                    _ => self.malformed(slot, code::EXCESSIVE_LOAD, "a head that is too large"),
                }
                Ok(())
            }
            // RFC 9114 §4.6: we never allow one.
            kind::PUSH_PROMISE if self.role == Role::Client => broken(code::ID, "a push, which we refuse"),
            kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::PUSH_PROMISE
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => {
                broken(code::FRAME_UNEXPECTED, "a frame of the connection on a request stream")
            }
            _ if frame::is_of_http2(kind) => broken(code::FRAME_UNEXPECTED, "a frame of HTTP/2"),
            _ => {
                record.at = At::Unknown(len); // RFC 9114 §9: ignored
                self.meter.spend(Flood::Priority, 1);
                self.check_floods()
            }
        }
    }

    /// Processes bytes of HEADERS; returns whether it was complete.
    fn head_bytes(&mut self, slot: usize, len: usize, rest: &mut &[u8]) -> Result<bool, Broken> {
        let record = self.streams.at(slot);
        let have = record.block.len();
        if have == 0
            && let Some((block, others)) = rest.split_at_checked(len)
        {
            *rest = others;
            record.at = At::Header;
            self.section(slot, block)?;
            return Ok(true);
        }
        let (piece, others) = rest.split_at(rest.len().min(len - have));
        *rest = others;
        if self.has_no_room(have, piece.len()) {
            self.reject(slot);
            return Ok(true);
        }
        self.streams.at(slot).block.extend_from_slice(piece);
        self.charge(slot, piece.len());
        if have + piece.len() < len {
            return Ok(false);
        }
        let record = self.streams.at(slot);
        record.at = At::Header;
        let mut block = std::mem::take(&mut record.block);
        self.discharge(slot, block.len());
        self.section(slot, &block)?;
        let record = self.streams.at(slot);
        if record.block.is_empty() && block.capacity() <= KEPT {
            block.clear();
            record.block = block; // for the next head
        }
        Ok(true)
    }

    /// Whether `more` bytes of an incomplete head are too many beside those of other streams; `own` are its stream's.
    fn has_no_room(&self, own: usize, more: usize) -> bool {
        let is_server = self.role == Role::Server;
        is_server && self.heads_held > own && self.heads_held + more > self.bounds.heads
    }

    /// Refuses a request for which there is no room. The client cannot know that, and may send it again.
    fn reject(&mut self, slot: usize) {
        self.abandon(slot, code::REQUEST_REJECTED);
        self.lose(slot, Failed::GivenUp);
    }

    // === heads ===

    /// Decodes a section, or keeps it until the insertions that it needs have arrived.
    fn section(&mut self, slot: usize, bytes: &[u8]) -> Result<(), Broken> {
        let required = self.decoder.required(bytes).or_else(|e| broken(code::QPACK_DECOMPRESSION, e.0))?;
        if required > self.decoder.inserted() {
            // RFC 9204 §2.1.2.
            if self.blocked.len() >= self.bounds.decoder.blocked {
                return broken(code::QPACK_DECOMPRESSION, "more blocked streams than SETTINGS allow");
            }
            if self.has_no_room(0, bytes.len()) {
                self.reject(slot);
                return Ok(());
            }
            self.blocked.push(slot);
            let record = self.streams.at(slot);
            (record.blocked, record.block) = (required, bytes.to_vec());
            self.charge(slot, bytes.len());
            return Ok(());
        }
        let room = match (self.role, self.heads_held) {
            (Role::Client, _) | (Role::Server, 0) => self.bounds.text,
            (Role::Server, held) => self.bounds.heads.saturating_sub(held).min(self.bounds.text),
        };
        let record = self.streams.at(slot);
        let part = match self.role {
            _ if record.headed => Part::Trailers,
            Role::Client => Part::Response,
            Role::Server => Part::Request,
        };
        let (stream, answers) = (record.id, self.own[Own::Decoder as usize].buffer());
        let section = Section { part, bytes, most: room, stream, decoder: &mut self.decoder, answers };
        let told = self.sink.head(&mut record.kept, section);
        let told = told.or_else(|e| broken(code::QPACK_DECOMPRESSION, e.0))?;
        self.meter.earn(Flood::Insertions, INSERTIONS);
        self.meter.earn(Flood::Priority, 2);
        let told = match told {
            Ok(told) if part != Part::Response && room < self.bounds.text && told.held > room => {
                S::void(&mut self.streams.at(slot).kept, part);
                self.reject(slot);
                return Ok(());
            }
            Ok(told) => Ok(told),
            Err(Malformed(rule)) => Err(rule),
        };
        let done = told.and_then(|told| match part {
            Part::Request => {
                self.request(slot, told);
                Ok(())
            }
            Part::Response => self.response(slot, told),
            Part::Trailers => self.trailers(slot, told),
        });
        if let Err(rule) = done {
            S::void(&mut self.streams.at(slot).kept, part);
            self.malformed(slot, code::MESSAGE, rule);
        }
        Ok(())
    }

    fn request(&mut self, slot: usize, told: HeadFacts) {
        self.charge(slot, told.held);
        let record = self.streams.at(slot);
        (record.headed, record.since, record.is_held) = (true, None, S::HELD);
        (record.owed, record.is_tunnel) = (told.length, told.tunnel);
        let id = record.id;
        // RFC 9218 §7: PRIORITY_UPDATE overrides the field, also if it arrived first.
        if let Some(priority) = self.early_priority(id).or(told.priority) {
            self.prioritize(slot, priority);
        }
        self.arrivals.push_back(slot);
    }

    fn response(&mut self, slot: usize, told: HeadFacts) -> Result<(), &'static str> {
        let record = self.streams.at(slot);
        if told.status >= 200 || told.status == 101 {
            let has_none = record.is_head || matches!(told.status, 204 | 304);
            record.owed = if has_none { Some(0) } else { told.length };
            (record.headed, record.is_tunnel) = (true, told.status == 101);
        }
        record.wake(READ);
        Ok(())
    }

    fn trailers(&mut self, slot: usize, told: HeadFacts) -> Result<(), &'static str> {
        self.charge(slot, told.held);
        let record = self.streams.at(slot);
        record.trailed = true;
        if record.owed.is_some_and(|owed| owed > 0) { Err(LESS_DATA) } else { Ok(()) }
    }

    /// Decodes what waited for the insertions that have arrived.
    pub(super) fn unblock(&mut self) -> Result<(), Broken> {
        let inserted = self.decoder.inserted();
        let mut at = 0;
        while let Some(&slot) = self.blocked.get(at) {
            let record = self.streams.at(slot);
            if record.blocked > inserted {
                at += 1;
                continue;
            }
            self.blocked.remove(at);
            record.blocked = 0;
            let block = std::mem::take(&mut record.block);
            self.discharge(slot, block.len());
            self.busy = Some(slot);
            let outcome = self.section(slot, &block).and_then(|()| self.finish_reading(slot));
            self.busy = None;
            outcome?;
            self.resume(slot);
            self.sweep(slot);
        }
        Ok(())
    }

    /// Asks for what the transport could not get rid of.
    pub(super) fn resume(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        if std::mem::take(&mut record.is_stalled) && record.reads() {
            let stream = record.id;
            self.effects.push_back(Effect::Read { stream });
        }
    }

    // === bodies ===

    fn data(&mut self, slot: usize, piece: &[u8]) {
        let record = self.streams.at(slot);
        if let Some(owed) = &mut record.owed {
            *owed = owed.saturating_sub(piece.len() as u64); // `begin_frame` has compared the length
        }
        let piece = Piece { data: piece, is_all: record.owed == Some(0) };
        let before = S::unread(&record.kept);
        let taken = self.sink.data(&mut record.kept, &piece);
        self.bodies_held = (self.bodies_held + S::unread(&record.kept)).saturating_sub(before);
        match taken {
            Ok(Taken::Held) => record.wake(READ),
            Ok(Taken::KeptBack | Taken::Read) => {}
            Err(Malformed(rule)) => self.malformed(slot, code::MESSAGE, rule),
        }
    }

    /// Processes the end of a stream, if it has arrived and nothing before it waits.
    fn finish_reading(&mut self, slot: usize) -> Result<(), Broken> {
        let record = self.streams.at(slot);
        if !record.got_fin || record.blocked > 0 || !record.reads() {
            return Ok(());
        }
        // RFC 9114 §7.1.
        if record.at != At::Header || record.header.is_partial() {
            return broken(code::FRAME, "a stream that ends within a frame");
        }
        let wrong = match self.role {
            Role::Server if !record.headed => Some((code::REQUEST_INCOMPLETE, "a stream without a request")),
            Role::Client if !record.headed => Some((code::MESSAGE, "a stream without a final response")),
            _ if record.owed.is_some_and(|owed| owed > 0) => Some((code::MESSAGE, LESS_DATA)),
            _ => None,
        };
        if let Some((code, rule)) = wrong {
            self.malformed(slot, code, rule);
            return Ok(());
        }
        record.got_end = true;
        record.wake(READ);
        if !S::HELD {
            self.sink.over(&mut self.streams.at(slot).kept, None);
        }
        Ok(())
    }
}
