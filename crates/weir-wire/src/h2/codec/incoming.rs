//! Receives heads and bodies, and manages the windows for them.

use super::streams::{Ending, READ, Record};
use super::{BLOCK_MOST, Broken, Codec, LEFT_OUT_MOST, Leaving, NOBODY_BEGAN, Role};
use super::{Block, Part, Piece, Sink, Taken, WINDOW_FIRST, broken};
use crate::h2::flood::Flood;
use crate::h2::frame::{self, HEADER, Header, Kind, code};
use std::time::Instant;
use weir_fields::{HeadFacts, Malformed};

const NO_HPACK: &str = "a head is not HPACK";
const LESS_DATA: &str = "less data than Content-Length";

/// An HPACK block, and the total bytes of its frames.
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
    wire: usize,
}

impl<S: Sink> Codec<S> {
    // === heads ===

    pub(super) fn head(&mut self, header: &Header, payload: &[u8], content: &[u8]) -> Result<(), Broken> {
        if header.stream.is_multiple_of(2) || (self.role == Role::Client && self.is_idle(header.stream)) {
            return broken(code::PROTOCOL, NOBODY_BEGAN);
        }
        let wire = HEADER + payload.len();
        if !header.has(frame::END_HEADERS) {
            self.head_since.get_or_insert_with(Instant::now);
            self.block.clear();
            self.block.extend_from_slice(content);
            self.block_wire = wire;
            self.continued = Some(*header);
            return Ok(());
        }
        self.head_since = None;
        self.block(header, Fields { bytes: content, wire })?;
        self.check_priority(header, payload);
        Ok(())
    }

    /// A stream that depends on itself (RFC 7540 §5.3.1): the one remaining error of obsolete priorities.
    fn check_priority(&mut self, header: &Header, payload: &[u8]) {
        let at = usize::from(header.has(frame::PADDED));
        if header.has(frame::PRIORITY)
            && frame::number(payload, at).is_some_and(|on| on & 0x7fff_ffff == header.stream)
            && let Some(slot) = self.streams.find(header.stream)
        {
            self.reset_provoked(slot, code::PROTOCOL, "a stream that depends on itself");
        }
    }

    pub(super) fn continuation(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        if self.block.len() + payload.len() > BLOCK_MOST.max(self.bounds.text) {
            let rule = "a head that is continued without end";
            return Err(Broken { code: code::CALM, rule, flood: Some(Flood::Continuation) });
        }
        self.block.extend_from_slice(payload);
        self.block_wire += HEADER + payload.len();
        if !header.has(frame::END_HEADERS) {
            return Ok(());
        }
        let Some(head) = self.continued.take() else {
            return broken(code::PROTOCOL, "CONTINUATION without HEADERS");
        };
        self.head_since = None;
        let block = std::mem::take(&mut self.block);
        // Not kept: continued heads are rare, and may be large.
        self.block(&head, Fields { bytes: &block, wire: self.block_wire })
    }

    /// Handles a complete block. It must always be decoded, because the dynamic table changes.
    fn block(&mut self, header: &Header, block: Fields<'_>) -> Result<(), Broken> {
        let id = header.stream;
        let ends = header.has(frame::END_STREAM);
        if let Some(slot) = self.streams.find(id) {
            if self.streams.at(slot).got_end {
                self.pass_over(block)?;
                self.reset_provoked(slot, code::STREAM_CLOSED, "a head after the end");
                return Ok(());
            }
            return match self.role {
                Role::Client if !self.streams.at(slot).headed => self.response(slot, block, ends),
                _ => self.trailers(slot, block, ends),
            };
        }
        if self.role == Role::Client {
            return self.pass_over(block); // the stream has ended
        }
        if id > self.last {
            return self.request(id, block, ends);
        }
        self.pass_over(block)?;
        match self.streams.ending(id) {
            Some(Ending::Ours) => {
                self.meter.provoked(); // one may have been in flight, not many
                Ok(())
            }
            Some(Ending::Theirs) => broken(code::STREAM_CLOSED, "a head after the end"),
            None => broken(code::PROTOCOL, "a stream with a number that was passed over"),
        }
    }

    fn pass_over(&mut self, block: Fields<'_>) -> Result<(), Broken> {
        self.decoder.decode(block.bytes, |_, _| {}).or(broken(code::COMPRESSION, NO_HPACK))
    }

    /// Passes a head or trailers to the sink.
    fn hand_over(
        &mut self,
        slot: usize,
        part: Part,
        block: Fields<'_>,
        most: usize,
    ) -> Result<Result<HeadFacts, Malformed>, Broken> {
        let kept = &mut self.streams.at(slot).kept;
        let block = Block { part, bytes: block.bytes, wire: block.wire, most };
        self.sink.head(kept, &block, &mut self.decoder).or(broken(code::COMPRESSION, NO_HPACK))
    }

    // === what heads hold ===

    /// How much text the next head or trailers may take. One byte can reference a field of four KiB, so this bounds
    /// what a client makes us hold; the bytes it sends do not.
    fn room_for_head(&self) -> usize {
        match (self.role, self.heads_held) {
            (Role::Client, _) | (Role::Server, 0) => self.bounds.text,
            (Role::Server, held) => self.bounds.heads.saturating_sub(held).min(self.bounds.text),
        }
    }

    /// Charges a stream for its head, until the stream is released or its head is freed.
    fn charge(&mut self, slot: usize, bytes: usize) {
        if self.role == Role::Server {
            self.streams.at(slot).held += bytes;
            self.heads_held += bytes;
        }
    }

    /// Ends the charge for a head that its holder has freed.
    pub(in crate::h2) fn forget_head(&mut self, slot: usize) {
        let held = std::mem::take(&mut self.streams.at(slot).held);
        self.heads_held -= held;
    }

    /// Counts a frame of a stream that our GOAWAY excludes.
    fn leave_out(&mut self, len: usize) -> Result<(), Broken> {
        self.left_out = self.left_out.saturating_add(len);
        if self.left_out > LEFT_OUT_MOST {
            return broken(code::CALM, "too many streams after a GOAWAY");
        }
        Ok(())
    }

    /// Starts a request.
    fn request(&mut self, id: u32, block: Fields<'_>, ends: bool) -> Result<(), Broken> {
        if self.leaving == Leaving::Announced {
            self.pass_over(block)?; // GOAWAY excludes it; the client will retry elsewhere
            return self.leave_out(block.bytes.len());
        }
        self.last = id;
        if self.streams.open() >= self.bounds.streams as usize {
            self.pass_over(block)?;
            return self.refuse(id, code::REFUSED);
        }
        let room = self.room_for_head();
        let slot = self.streams.add();
        let told = match self.hand_over(slot, Part::Request, block, room) {
            Ok(Ok(told)) if room < self.bounds.text && told.held > room => {
                // Not the client's fault: it cannot know how much its other requests hold. It may retry.
                self.forget(slot);
                self.write_reset(id, code::REFUSED);
                self.streams.remember(id, Ending::Ours);
                return Ok(());
            }
            Ok(Ok(told)) if !(ends && told.length.is_some_and(|n| n > 0)) => told,
            Ok(_) => {
                self.forget(slot);
                return self.refuse(id, code::PROTOCOL);
            }
            Err(e) => {
                self.forget(slot);
                return Err(e);
            }
        };
        self.streams.begin(slot, id);
        self.charge(slot, told.held);
        // Until the client acknowledges our SETTINGS, it uses the default initial window.
        let first = self.flow.first;
        let room = if self.unconfirmed > 0 { WINDOW_FIRST } else { i64::from(first) };
        let window = self.peer.window;
        let record = self.streams.at(slot);
        (record.room, record.room_most, record.window) = (room, first, window);
        (record.owed, record.got_end, record.headed) = (told.length, ends, true);
        self.arrivals.push_back(slot);
        Ok(())
    }

    /// Resets a stream that has no record.
    fn refuse(&mut self, id: u32, code: u32) -> Result<(), Broken> {
        self.write_reset(id, code);
        self.streams.remember(id, Ending::Ours);
        self.meter.provoked();
        Ok(())
    }

    fn response(&mut self, slot: usize, block: Fields<'_>, ends: bool) -> Result<(), Broken> {
        let told = self.hand_over(slot, Part::Response, block, self.bounds.text)?;
        let record = self.streams.at(slot);
        let told = told.and_then(|told| {
            let is_interim = told.status < 200 && told.status != 101;
            let has_none = record.is_head || matches!(told.status, 204 | 304);
            let length = if has_none { Some(0) } else { told.length };
            match ends {
                true if is_interim => Err(Malformed("an interim response at the end")),
                true if length.is_some_and(|n| n > 0) => Err(Malformed(LESS_DATA)),
                _ => Ok((is_interim, length)),
            }
        });
        let (is_interim, length) = match told {
            Ok(told) => told,
            Err(Malformed(rule)) => {
                S::void(&mut record.kept, Part::Response);
                self.reset_provoked(slot, code::PROTOCOL, rule);
                return Ok(());
            }
        };
        if !is_interim {
            (record.headed, record.owed) = (true, length);
        }
        record.wake(READ);
        if ends {
            self.ended_by_peer(slot);
        }
        Ok(())
    }

    fn trailers(&mut self, slot: usize, block: Fields<'_>, ends: bool) -> Result<(), Broken> {
        let room = self.room_for_head();
        let told = self.hand_over(slot, Part::Trailers, block, room)?;
        let record = self.streams.at(slot);
        // RFC 9113 §8.1: trailers end the message.
        let told = match told {
            Ok(_) if !ends => Err("trailers that are not the end"),
            Ok(_) if record.owed.is_some_and(|n| n > 0) => Err(LESS_DATA),
            Ok(told) => Ok(told.held),
            Err(Malformed(rule)) => Err(rule),
        };
        match told {
            Ok(held) => {
                self.charge(slot, held);
                self.ended_by_peer(slot);
            }
            Err(rule) => {
                S::void(&mut record.kept, Part::Trailers);
                self.reset_provoked(slot, code::PROTOCOL, rule);
            }
        }
        Ok(())
    }

    fn ended_by_peer(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        record.got_end = true;
        record.wake(READ);
        if record.sent_end {
            self.close(slot, Ending::Theirs);
        }
        self.over(slot, None);
    }

    // === bodies ===

    pub(super) fn data(&mut self, header: &Header, len: usize, content: &[u8]) -> Result<(), Broken> {
        let id = header.stream;
        self.room -= len as i64;
        if self.room < 0 {
            return broken(code::FLOW_CONTROL, "more data than the window of the connection");
        }
        let Some(slot) = self.streams.find(id) else {
            self.credit_connection(len);
            return match self.streams.ending(id) {
                _ if self.is_idle(id) => broken(code::PROTOCOL, NOBODY_BEGAN),
                Some(Ending::Ours) => Ok(()),
                None if self.is_left_out(id) => self.leave_out(len),
                _ => {
                    self.write_reset(id, code::STREAM_CLOSED);
                    self.meter.provoked();
                    Ok(())
                }
            };
        };
        let ends = header.has(frame::END_STREAM);
        let record = self.streams.at(slot);
        record.room -= len as i64;
        let wrong = if record.got_end {
            Some((code::STREAM_CLOSED, "data after the end"))
        } else if record.room < 0 && len > 0 {
            // Our SETTINGS may have made the window negative; an empty DATA frame may still end the stream (RFC 9113
            // §6.9.1).
            Some((code::FLOW_CONTROL, "more data than a window"))
        } else if !record.headed {
            Some((code::PROTOCOL, "data before the head"))
        } else {
            owe_less(record, content.len(), ends).err().map(|rule| (code::PROTOCOL, rule))
        };
        let piece = Piece { data: content, wire: HEADER + len, is_all: record.owed == Some(0) };
        let taken = match wrong {
            None => {
                self.sink.data(&mut record.kept, &piece).map_err(|Malformed(rule)| (code::PROTOCOL, rule))
            }
            Some(wrong) => Err(wrong),
        };
        let read = match taken {
            Ok(Taken::Read) => len,
            Ok(taken) => {
                if taken == Taken::Held || ends {
                    record.wake(READ);
                }
                len - content.len() // nobody reads padding
            }
            Err((code, rule)) => {
                self.credit_connection(len);
                self.reset_provoked(slot, code, rule);
                return Ok(());
            }
        };
        if ends {
            self.ended_by_peer(slot);
            self.credit_connection(read); // the ended stream needs no credit of its own
        } else {
            self.read_from(slot, read);
        }
        Ok(())
    }

    // === windows ===

    /// Returns credit for bytes read from a stream: its reader has room, so the peer may send more.
    pub(super) fn read_from(&mut self, slot: usize, len: usize) {
        self.credit_connection(len);
        let growth = self.growth;
        let window = self.bounds.window;
        let record = self.streams.at(slot);
        if record.got_end || !record.is_open() {
            return;
        }
        record.credit += len as u32;
        if record.credit < record.room_most / 2 {
            return;
        }
        let most = record.room_most;
        let more = most.min(window.saturating_sub(most));
        let more = if more <= growth { more } else { 0 };
        record.room_most += more;
        let told = record.credit + more;
        (record.credit, record.room) = (0, record.room + i64::from(told));
        let id = record.id;
        self.growth -= more;
        self.write_frame(Kind::WINDOW_UPDATE, 0, id, &told.to_be_bytes());
    }

    #[inline]
    pub(super) fn credit_connection(&mut self, len: usize) {
        self.credit += len as u32;
        if self.credit >= self.flow.credit && self.ended.is_none() {
            self.room += i64::from(self.credit);
            let told = std::mem::take(&mut self.credit);
            self.write_frame(Kind::WINDOW_UPDATE, 0, 0, &told.to_be_bytes());
        }
    }
}

/// Subtracts a piece of the body from the announced length: they must agree (RFC 9113 §8.1.1).
fn owe_less<K>(record: &mut Record<K>, len: usize, ends: bool) -> Result<(), &'static str> {
    let Some(owed) = record.owed else { return Ok(()) };
    match owed.checked_sub(len as u64) {
        None => Err("more data than Content-Length"),
        Some(left) if left > 0 && ends => Err(LESS_DATA),
        Some(left) => {
            record.owed = Some(left);
            Ok(())
        }
    }
}
