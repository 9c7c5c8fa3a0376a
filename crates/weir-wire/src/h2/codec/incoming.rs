//! Heads and bodies that come, and the windows that let them.

use super::streams::{Ending, KEPT_TEXT, READ, Record};
use super::{BLOCK_MOST, Broken, CREDIT, Codec, Failed, LEFT_OUT_MOST, Leaving, Role};
use super::{STREAM_WINDOW, WINDOW_FIRST, broken};
use crate::h2::flood::Flood;
use crate::h2::frame::{self, Header, Kind, code};
use crate::h2::head::{self, Malformed, Reader, Told};
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

impl Codec {
    // === heads ===

    pub(super) fn head(&mut self, header: &Header, payload: &[u8], content: &[u8]) -> Result<(), Broken> {
        if header.stream.is_multiple_of(2) || (self.role == Role::Client && self.is_idle(header.stream)) {
            return broken(code::PROTOCOL);
        }
        if !header.has(frame::END_HEADERS) {
            self.head_since.get_or_insert_with(Instant::now);
            self.block.clear();
            self.block.extend_from_slice(content);
            self.continued = Some(*header);
            return Ok(());
        }
        self.head_since = None;
        self.block(header, content)?;
        self.check_priority(header, payload);
        Ok(())
    }

    /// A stream that depends on itself (RFC 7540 §5.3.1): what obsolete priorities still can do wrong.
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
            return Err(Broken { code: code::CALM, flood: Some(Flood::Continuation) });
        }
        self.block.extend_from_slice(payload);
        if !header.has(frame::END_HEADERS) {
            return Ok(());
        }
        let Some(head) = self.continued.take() else { return broken(code::PROTOCOL) };
        self.head_since = None;
        let block = std::mem::take(&mut self.block);
        // Not kept: it is rare, and may be large.
        self.block(&head, &block)
    }

    /// A whole block. It must be decoded whatever becomes of it: the table changes.
    fn block(&mut self, header: &Header, block: &[u8]) -> Result<(), Broken> {
        let id = header.stream;
        let ends = header.has(frame::END_STREAM);
        if let Some(slot) = self.streams.find(id) {
            if self.streams.at(slot).got_end {
                self.pass_over(block)?;
                self.reset_provoked(slot, code::STREAM_CLOSED, "a head behind the end");
                return Ok(());
            }
            return match self.role {
                Role::Client if !self.streams.at(slot).headed => self.response(slot, block, ends),
                _ => self.trailers(slot, block, ends),
            };
        }
        if self.role == Role::Client {
            return self.pass_over(block); // of one that has ended
        }
        if id > self.last {
            return self.request(id, block, ends);
        }
        self.pass_over(block)?;
        match self.streams.ending(id) {
            Some(Ending::Ours) => {
                self.meter.provoked(); // one may have been on its way, not many
                Ok(())
            }
            Some(Ending::Theirs) => broken(code::STREAM_CLOSED),
            None => broken(code::PROTOCOL),
        }
    }

    fn pass_over(&mut self, block: &[u8]) -> Result<(), Broken> {
        self.decoder.decode(block, |_, _| {}).or(broken(code::COMPRESSION))
    }

    /// Decodes a block into text.
    fn decode(
        &mut self,
        kind: head::Kind<'_>,
        block: &[u8],
        text: &mut Vec<u8>,
        most: usize,
    ) -> Result<Result<Told, Malformed>, Broken> {
        let mut reader = Reader::new(kind, text, &mut self.scratch, most);
        let decoded = match self.decoder.decode(block, |name, value| reader.field(name, value)) {
            Ok(()) => Ok(reader.finish()),
            Err(_) => broken(code::COMPRESSION),
        };
        if block.len() > KEPT_TEXT || text.len() > KEPT_TEXT {
            self.scratch.trim();
            self.decoder.trim();
            text.shrink_to(KEPT_TEXT); // so that it holds what it counts
        }
        decoded
    }

    // === what heads hold ===

    /// How much of another head or of trailers may be decoded. A reference of one byte may stand for four kibibytes, so what
    /// a client can make us hold is bounded here and not by what it sends.
    fn room_for_head(&self) -> usize {
        match (self.role, self.heads_held) {
            (Role::Client, _) | (Role::Server, 0) => self.bounds.text,
            (Role::Server, held) => self.bounds.heads.saturating_sub(held).min(self.bounds.text),
        }
    }

    /// Charges a stream with what it holds, until it is released or has forgotten its head.
    fn charge(&mut self, slot: usize, bytes: usize) {
        if self.role == Role::Server {
            self.streams.at(slot).held += bytes;
            self.heads_held += bytes;
        }
    }

    /// Whoever took the head of a stream has freed it.
    pub(in crate::h2) fn forget_head(&mut self, slot: usize) {
        let held = std::mem::take(&mut self.streams.at(slot).held);
        self.heads_held -= held;
    }

    /// Counts a frame of a stream that our GOAWAY leaves out.
    fn leave_out(&mut self, len: usize) -> Result<(), Broken> {
        self.left_out = self.left_out.saturating_add(len);
        if self.left_out > LEFT_OUT_MOST { broken(code::CALM) } else { Ok(()) }
    }

    /// A request begins.
    fn request(&mut self, id: u32, block: &[u8], ends: bool) -> Result<(), Broken> {
        if self.leaving == Leaving::Told {
            self.pass_over(block)?; // GOAWAY has left it out: it will be sent elsewhere
            return self.leave_out(block.len());
        }
        self.last = id;
        if self.streams.open() >= self.bounds.streams as usize {
            self.pass_over(block)?;
            return self.refuse(id, code::REFUSED);
        }
        let room = self.room_for_head();
        let slot = self.streams.add();
        let mut text = std::mem::take(&mut self.streams.at(slot).text);
        let decoded = self.decode(head::Kind::Request, block, &mut text, room);
        let held = text.len();
        self.streams.at(slot).text = text;
        let told = match decoded {
            Ok(Ok(_)) if room < self.bounds.text && held > room => {
                // No mistake of the client's, which cannot know what others of its requests still hold: it may come again.
                self.streams.remove(slot);
                self.write_reset(id, code::REFUSED);
                self.streams.remember(id, Ending::Ours);
                return Ok(());
            }
            Ok(Ok(told)) if !(ends && told.length.is_some_and(|n| n > 0)) => told,
            Ok(_) => {
                self.streams.remove(slot);
                return self.refuse(id, code::PROTOCOL);
            }
            Err(e) => {
                self.streams.remove(slot);
                return Err(e);
            }
        };
        self.streams.begin(slot, id);
        self.charge(slot, held);
        // Until the client has confirmed our SETTINGS it counts by the first window.
        let room = if self.unconfirmed > 0 { WINDOW_FIRST } else { i64::from(STREAM_WINDOW) };
        let window = self.peer.window;
        let record = self.streams.at(slot);
        (record.room, record.room_most, record.window) = (room, STREAM_WINDOW, window);
        (record.owed, record.tunnel, record.got_end, record.headed) = (told.length, told.tunnel, ends, true);
        self.arrivals.push_back(slot);
        Ok(())
    }

    /// Resets a stream that never had a record.
    fn refuse(&mut self, id: u32, code: u32) -> Result<(), Broken> {
        self.write_reset(id, code);
        self.streams.remember(id, Ending::Ours);
        self.meter.provoked();
        Ok(())
    }

    fn response(&mut self, slot: usize, block: &[u8], ends: bool) -> Result<(), Broken> {
        let record = self.streams.at(slot);
        let (mut text, accept) = (std::mem::take(&mut record.text), record.accept.take());
        let kind = head::Kind::Response { accept: accept.as_deref() };
        let text_most = self.bounds.text;
        let decoded = self.decode(kind, block, &mut text, text_most);
        let record = self.streams.at(slot);
        (record.text, record.accept) = (text, accept);
        let is_endless = record.text.len() > 2 * text_most; // of interim responses that nobody reads
        let told = match decoded? {
            Ok(_) if is_endless => Err("interim responses without end"),
            Ok(told) => Ok(told),
            Err(Malformed(rule)) => Err(rule),
        };
        let told = told.and_then(|told| {
            let is_interim = told.status < 200 && told.status != 101;
            let has_none = record.is_head || matches!(told.status, 204 | 304);
            let length = if has_none { Some(0) } else { told.length };
            match ends && (is_interim || length.is_some_and(|n| n > 0)) {
                true => Err("an end before the end of the message"),
                false => Ok((is_interim, length)),
            }
        });
        let (is_interim, length) = match told {
            Ok(told) => told,
            Err(rule) => {
                record.text.clear();
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

    fn trailers(&mut self, slot: usize, block: &[u8], ends: bool) -> Result<(), Broken> {
        let mut text = Vec::new();
        let room = self.room_for_head();
        let decoded = self.decode(head::Kind::Trailers, block, &mut text, room)?;
        let record = self.streams.at(slot);
        // RFC 9113 §8.1: they are the end.
        let wrong = match decoded {
            Err(Malformed(rule)) => Some(rule),
            Ok(_) if !ends => Some("trailers that are not the end"),
            Ok(_) if record.owed.is_some_and(|n| n > 0) => Some("less data than Content-Length"),
            Ok(_) => None,
        };
        if let Some(rule) = wrong {
            self.reset_provoked(slot, code::PROTOCOL, rule);
            return Ok(());
        }
        let held = text.len();
        record.trailers = text;
        self.charge(slot, held);
        self.ended_by_peer(slot);
        Ok(())
    }

    fn ended_by_peer(&mut self, slot: usize) {
        let record = self.streams.at(slot);
        record.got_end = true;
        record.wake(READ);
        if record.sent_end {
            self.close(slot, Ending::Theirs);
        }
    }

    // === bodies ===

    pub(super) fn data(&mut self, header: &Header, len: usize, content: &[u8]) -> Result<(), Broken> {
        let id = header.stream;
        self.room -= len as i64;
        if self.room < 0 {
            return broken(code::FLOW_CONTROL);
        }
        let Some(slot) = self.streams.find(id) else {
            self.credit_connection(len);
            return match self.streams.ending(id) {
                _ if self.is_idle(id) => broken(code::PROTOCOL),
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
            Some((code::STREAM_CLOSED, "data behind the end"))
        } else if record.room < 0 && len > 0 {
            // Our SETTINGS may have left less than nothing: then too an end may come (RFC 9113 §6.9.1).
            Some((code::FLOW_CONTROL, "more data than a window"))
        } else if !record.headed {
            Some((code::PROTOCOL, "data before the head"))
        } else if !owe_less(record, content.len(), ends) {
            Some((code::PROTOCOL, "data that disagrees with Content-Length"))
        } else {
            None
        };
        if let Some((code, rule)) = wrong {
            self.credit_connection(len);
            self.reset_provoked(slot, code, rule);
            return Ok(());
        }
        if !content.is_empty() {
            record.body.extend_from_slice(content);
            let is_kept_back = self.role == Role::Server && record.owed == Some(0);
            record.kept_back = if is_kept_back { content.len() } else { 0 };
            if record.readable() > 0 || ends {
                record.wake(READ);
            }
        }
        if ends {
            self.ended_by_peer(slot);
        }
        self.read_from(slot, len - content.len()); // nobody reads padding
        Ok(())
    }

    /// Reads from a stream: from an upstream first heads as text, then the body. 0 is the end.
    pub(in crate::h2) fn read(
        &mut self,
        slot: usize,
        buffer: &mut Vec<u8>,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, Failed>> {
        let record = self.streams.at(slot);
        if !record.text.is_empty() {
            return Poll::Ready(Ok(take_text(record, buffer)));
        }
        let len = record.readable();
        if len > 0 {
            if buffer.is_empty() && len == record.body.len() {
                std::mem::swap(buffer, &mut record.body);
            } else {
                buffer.extend_from_slice(record.body.get(record.read..record.read + len).unwrap_or_default());
                record.read += len;
                if record.read == record.body.len() {
                    record.body.clear();
                    record.read = 0;
                }
            }
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

    /// The head of a request as text; behind what `text` holds already.
    pub(in crate::h2) fn take_head(&mut self, slot: usize, text: &mut Vec<u8>) {
        take_text(self.streams.at(slot), text);
    }

    /// Whether nothing more of the message will come.
    pub(in crate::h2) fn is_over_at(&mut self, slot: usize) -> bool {
        let record = self.streams.at(slot);
        // What a tunnel carries is no body.
        let is_empty = record.text.is_empty() && record.readable() == 0 && record.trailers.is_empty();
        record.tunnel || (record.got_end && is_empty)
    }

    pub(in crate::h2) fn take_trailers(&mut self, slot: usize) -> Vec<u8> {
        std::mem::take(&mut self.streams.at(slot).trailers)
    }

    // === windows ===

    /// Bytes of a stream were read: whoever reads has room for more, and that is when the peer may send it.
    fn read_from(&mut self, slot: usize, len: usize) {
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

    pub(super) fn credit_connection(&mut self, len: usize) {
        self.credit += len as u32;
        if self.credit >= CREDIT && self.ended.is_none() {
            self.room += i64::from(self.credit);
            let told = std::mem::take(&mut self.credit);
            self.write_frame(Kind::WINDOW_UPDATE, 0, 0, &told.to_be_bytes());
        }
    }
}

/// Takes the text of a stream; returns how long it was.
fn take_text(record: &mut Record, buffer: &mut Vec<u8>) -> usize {
    let len = record.text.len();
    if buffer.is_empty() {
        std::mem::swap(buffer, &mut record.text);
    } else {
        buffer.extend_from_slice(&record.text);
    }
    record.text.clear();
    len
}

/// Counts a piece of the body against what was announced; false where they disagree (RFC 9113 §8.1.1).
fn owe_less(record: &mut Record, len: usize, ends: bool) -> bool {
    let Some(owed) = record.owed else { return true };
    match owed.checked_sub(len as u64) {
        Some(left) if left == 0 || !ends => {
            record.owed = Some(left);
            true
        }
        _ => false,
    }
}

/// What a failure of a stream is to those who know sockets only.
impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        let (kind, why) = match failed {
            Failed::Closed => (io::ErrorKind::UnexpectedEof, "the HTTP/2 connection has ended"),
            Failed::GivenUp => (io::ErrorKind::BrokenPipe, "the stream was given up"),
            Failed::Malformed(rule) => (io::ErrorKind::InvalidData, rule),
            Failed::Refused { .. } => {
                (io::ErrorKind::ConnectionRefused, "the peer has not looked at the request")
            }
            Failed::Reset => (io::ErrorKind::ConnectionReset, "the peer reset the stream"),
        };
        Self::new(kind, why)
    }
}
