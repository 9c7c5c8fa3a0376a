//! Sends heads and bodies, and manages the windows for them.

use super::streams::{Ending, Record, WRITE};
use super::{Broken, Codec, Failed, NOBODY_BEGAN, Sink, WINDOW_MOST, broken};
use crate::h2::frame::{self, FRAME_MOST, HEADER, Header, Kind, code};
use crate::h2::hpack;
use std::io;
use std::task::{Context, Poll};
use weir_fields::render;

const TOO_LARGE: &str = "a window beyond 2 GiB";

impl<S: Sink> Codec<S> {
    // === streams of ours ===

    /// Reserves a slot for a request, whose stream opens when its head is written.
    pub(in crate::h2) fn reserve(&mut self) -> usize {
        self.streams.add()
    }

    /// Whether a request can begin now. Requests that already wait go first.
    pub(in crate::h2) fn may_begin(&mut self, slot: usize, cx: &Context<'_>) -> Poll<Result<(), Failed>> {
        if !self.is_open() {
            return Poll::Ready(Err(Failed::Refused { by_reset: false })); // unsent, so never processed
        }
        let is_next = self.beginners.front().is_none_or(|first| *first == slot);
        if is_next && self.streams.open() < self.peer.streams && !self.is_full() {
            self.beginners.pop_front();
            self.streams.at(slot).queued = false;
            return Poll::Ready(Ok(()));
        }
        let record = self.streams.at(slot);
        record.wait(WRITE, cx);
        if !std::mem::replace(&mut record.queued, true) {
            self.beginners.push_back(slot);
        }
        Poll::Pending
    }

    /// Wakes as many waiting requests as may begin.
    #[inline]
    pub(super) fn begin_more(&mut self) {
        if !self.beginners.is_empty() {
            self.call_beginners();
        }
    }

    fn call_beginners(&mut self) {
        let room = match self.is_open() {
            true => self.peer.streams.saturating_sub(self.streams.open()),
            false => usize::MAX, // none will ever begin
        };
        for slot in self.beginners.iter().take(room) {
            self.streams.at(*slot).wake(WRITE);
        }
    }

    /// Opens a stream with a pre-rendered head: `write` appends its frames for the given stream number, with
    /// END_STREAM on them if nothing follows (`ends`). The first frame must be HEADERS without padding or priority.
    /// The caller must respect [`Codec::peer_streams`].
    pub fn ask(&mut self, is_head: bool, ends: bool, write: impl FnOnce(u32, &mut Vec<u8>)) -> (usize, u32) {
        let slot = self.streams.add();
        let at = self.out.len();
        let id = self.start(slot, is_head);
        write(id, &mut self.out);
        if std::mem::take(&mut self.owes_table_size) {
            self.insert_table_size(at);
        }
        let place = self.before + at as u64;
        let record = self.streams.at(slot);
        (record.sent_end, record.last_frame) = (ends, Some((place, false)));
        (slot, id)
    }

    /// Assigns a number to a stream of ours.
    pub(super) fn start(&mut self, slot: usize, is_head: bool) -> u32 {
        let id = if self.last == 0 { 1 } else { self.last + 2 };
        self.last = id;
        self.streams.begin(slot, id);
        let (window, first) = (self.peer.window, self.flow.first);
        let record = self.streams.at(slot);
        (record.room, record.room_most, record.window) = (i64::from(first), first, window);
        record.is_head = is_head;
        id
    }

    // === heads ===

    /// Leaves room for the header of HEADERS; the caller appends the block behind it, and on an error cuts everything
    /// off again.
    pub(super) fn begin_block(&mut self) -> usize {
        let at = self.out.len();
        self.out.extend_from_slice(&[0; HEADER]);
        if self.owes_table_size {
            self.out.push(hpack::NO_TABLE);
        }
        at
    }

    /// Writes the header into the reserved room, and splits the block into CONTINUATION frames if it is long.
    pub(super) fn end_block(&mut self, slot: usize, at: usize, flags: u8) {
        // Not in `begin_block`: a block that cannot be rendered leaves the update to the next one.
        self.owes_table_size = false;
        let record = self.streams.at(slot);
        let (id, seals) = (record.id, S::seals(&record.kept));
        if !seals.is_empty()
            && let Some(block) = self.out.get_mut(at + HEADER..)
        {
            hpack::seal(block, seals);
        }
        let len = self.out.len() - at - HEADER;
        if len <= FRAME_MOST {
            put_header(&mut self.out, at, len, Kind::HEADERS, flags | frame::END_HEADERS, id);
        } else {
            let block = self.out.split_off(at + HEADER);
            self.out.truncate(at);
            let pieces = block.chunks(FRAME_MOST).count();
            for (n, piece) in block.chunks(FRAME_MOST).enumerate() {
                let kind = if n == 0 { Kind::HEADERS } else { Kind::CONTINUATION };
                let first = if n == 0 { flags } else { 0 };
                let last = if n + 1 == pieces { frame::END_HEADERS } else { 0 };
                frame::write(kind, first | last, id, piece, &mut self.out);
            }
        }
        self.meter.sent_head();
        let place = self.before + at as u64;
        self.streams.at(slot).last_frame = Some((place, false));
    }

    /// Puts the table size update in front of a pre-rendered block, whose HEADERS frame is at `at`.
    #[cold]
    fn insert_table_size(&mut self, at: usize) {
        let Some(Header { len, kind, flags, stream }) = self.out.get(at..).and_then(Header::parse) else {
            return;
        };
        if len < FRAME_MOST {
            self.out.insert(at + HEADER, hpack::NO_TABLE);
            put_header(&mut self.out, at, len + 1, kind, flags, stream);
            return;
        }
        // The frame is full, so it continues another one.
        let mut first = Vec::new();
        frame::write(kind, flags & !frame::END_HEADERS, stream, &[hpack::NO_TABLE], &mut first);
        put_header(&mut self.out, at, len, Kind::CONTINUATION, flags & frame::END_HEADERS, stream);
        self.out.splice(at..at, first);
    }

    // === bodies ===

    /// Sends part of a body; returns how much. If it sends nothing, wakes the task when there may be room.
    ///
    /// # Errors
    /// Why the stream accepts no more data.
    pub fn send_data(&mut self, slot: usize, data: &[u8], cx: &Context<'_>) -> Poll<Result<usize, Failed>> {
        let is_free = self.queue.is_empty();
        let room = self.room_to_send();
        let record = self.streams.at(slot);
        if let Some(failed) = record.failed {
            return Poll::Ready(Err(failed));
        }
        if record.sent_end {
            return Poll::Ready(Err(Failed::GivenUp));
        }
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let want = data.len().min(FRAME_MOST).min(usize::try_from(record.window).unwrap_or(0));
        if want == 0 {
            record.wait(WRITE, cx); // an update of the stream's own window wakes it
            self.give_grant_back(slot);
            self.grant_more();
            return Poll::Pending;
        }
        let allowed = match record.grant {
            0 if is_free => room,
            grant => grant,
        };
        if allowed == 0 {
            self.enqueue(slot, cx);
            return Poll::Pending;
        }
        let len = want.min(allowed);
        self.give_grant_back(slot);
        self.write_data(slot, data.get(..len).unwrap_or_default());
        self.meter.sent_data(len);
        self.grant_more();
        Poll::Ready(Ok(len))
    }

    fn write_data(&mut self, slot: usize, data: &[u8]) {
        let end = self.before + self.out.len() as u64;
        let record = self.streams.at(slot);
        record.window -= data.len() as i64;
        self.window -= data.len() as i64;
        let id = record.id;
        // Consecutive small writes share one frame, as long as that frame is the last.
        if let Some((place, true)) = record.last_frame
            && let Some(at) = patchable(self.before, self.written, place)
            && let Some(header) = self.out.get(at..).and_then(Header::parse)
            && place + (HEADER + header.len) as u64 == end
            && header.len + data.len() <= FRAME_MOST
        {
            self.out.extend_from_slice(data);
            put_header(&mut self.out, at, header.len + data.len(), Kind::DATA, 0, id);
            return;
        }
        record.last_frame = Some((end, true));
        self.write_frame(Kind::DATA, 0, id, data);
    }

    /// Ends our side of a stream, by a flag on its last frame if that has not left yet.
    ///
    /// # Errors
    /// When the stream has failed or is already ended, or the trailers are not field lines.
    pub fn send_end(&mut self, slot: usize, trailers: &[u8]) -> io::Result<()> {
        let record = self.streams.at(slot);
        if let Some(failed) = record.failed {
            return Err(failed.into());
        }
        if record.sent_end || record.id == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (id, last) = (record.id, record.last_frame);
        if !trailers.is_empty() {
            let at = self.begin_block();
            if let Err(e) = render::trailers(trailers, &mut hpack::Static, &mut self.render, &mut self.out) {
                self.out.truncate(at);
                return Err(e);
            }
            self.end_block(slot, at, frame::END_STREAM);
        } else if let Some(at) = last.and_then(|(place, _)| patchable(self.before, self.written, place))
            && let Some(flags) = self.out.get_mut(at + 4)
        {
            *flags |= frame::END_STREAM;
        } else {
            self.write_frame(Kind::DATA, frame::END_STREAM, id, &[]);
        }
        let record = self.streams.at(slot);
        record.sent_end = true;
        let (is_over, is_granted) = (record.got_end, record.grant > 0);
        if is_over {
            self.close(slot, Ending::Theirs);
        } else if is_granted {
            self.give_grant_back(slot);
            self.grant_more();
        }
        Ok(())
    }

    /// Why the stream is unusable, if it is.
    pub fn failed(&mut self, slot: usize) -> Option<Failed> {
        self.streams.at(slot).failed
    }

    // === windows ===

    pub(super) fn window_update(&mut self, header: &Header, payload: &[u8]) -> Result<(), Broken> {
        let Some(by) = frame::number(payload, 0).filter(|_| payload.len() == 4) else {
            return broken(code::FRAME_SIZE, "WINDOW_UPDATE is not 4 bytes long");
        };
        let by = i64::from(by & 0x7fff_ffff);
        if header.stream == 0 {
            self.window += by;
            if by == 0 {
                return broken(code::PROTOCOL, "a window that grows by nothing");
            }
            if self.window > WINDOW_MOST {
                return broken(code::FLOW_CONTROL, TOO_LARGE);
            }
            self.grant_more();
            return Ok(());
        }
        let Some(slot) = self.streams.find(header.stream) else {
            return if self.is_idle(header.stream) { broken(code::PROTOCOL, NOBODY_BEGAN) } else { Ok(()) };
        };
        let record = self.streams.at(slot);
        record.window += by;
        if by == 0 {
            self.reset_provoked(slot, code::PROTOCOL, "a window that grows by nothing");
        } else if record.window > WINDOW_MOST {
            self.reset_provoked(slot, code::FLOW_CONTROL, TOO_LARGE);
        } else {
            wake_for_window(record);
        }
        Ok(())
    }

    /// Changes the initial window, and by the same amount the windows of all existing streams (RFC 9113 §6.9.2). They
    /// may become negative.
    pub(super) fn change_windows(&mut self, window: i64) -> Result<(), Broken> {
        let change = window - self.peer.window;
        self.peer.window = window;
        for slot in self.streams.slots() {
            let record = self.streams.at(slot);
            record.window += change;
            if record.window > WINDOW_MOST {
                return broken(code::FLOW_CONTROL, TOO_LARGE);
            }
            wake_for_window(record);
        }
        Ok(())
    }

    /// Bytes that can be sent now and are not granted to any stream.
    fn room_to_send(&self) -> usize {
        if self.pending().len() + self.reserved >= self.flow.out {
            return 0;
        }
        usize::try_from(self.window).unwrap_or(0).saturating_sub(self.reserved)
    }

    /// Whether so much output is pending that heads must wait too.
    pub(super) fn is_full(&self) -> bool {
        self.pending().len() >= 2 * self.flow.out
    }

    /// Resumes streams that wait for room, after something was sent.
    pub(super) fn resume(&mut self) {
        self.grant_more();
        if !self.is_full() {
            for slot in std::mem::take(&mut self.unsent_heads) {
                let record = self.streams.at(slot);
                record.queued = false;
                record.wake(WRITE);
            }
            self.begin_more();
        }
    }

    /// Queues a stream.
    fn enqueue(&mut self, slot: usize, cx: &Context<'_>) {
        let record = self.streams.at(slot);
        record.wait(WRITE, cx);
        if std::mem::replace(&mut record.queued, true) {
            return;
        }
        if record.turn > 0 {
            self.queue.push_front(slot); // it got less than its turn
        } else {
            self.queue.push_back(slot);
        }
    }

    /// Grants the available room to waiting streams, round-robin, one frame per turn. A stream that wants more goes
    /// to the back of the queue.
    #[inline]
    pub(super) fn grant_more(&mut self) {
        if !self.queue.is_empty() {
            self.grant_turns();
        }
    }

    fn grant_turns(&mut self) {
        while let Some(&slot) = self.queue.front() {
            let room = self.room_to_send();
            if room == 0 {
                return;
            }
            self.queue.pop_front();
            let record = self.streams.at(slot);
            record.queued = false;
            if !record.is_open() || record.sent_end {
                continue; // it would keep its grant until its holder has read the rest
            }
            let wants = usize::try_from(record.window).unwrap_or(0).clamp(1, FRAME_MOST);
            let turn = if record.turn > 0 { record.turn } else { FRAME_MOST };
            record.grant = room.min(wants).min(turn);
            record.turn = if record.grant == room { turn - record.grant } else { 0 };
            self.reserved += record.grant;
            record.wake(WRITE);
        }
    }

    /// Removes a stream's grant, because it uses the grant or does not need it.
    #[inline]
    pub(super) fn give_grant_back(&mut self, slot: usize) {
        let grant = std::mem::take(&mut self.streams.at(slot).grant);
        self.reserved -= grant;
    }
}

fn wake_for_window<K>(record: &mut Record<K>) {
    if record.window > 0 && !record.queued {
        record.wake(WRITE);
    }
}

/// The offset in `out` of a frame whose header has not been sent yet.
fn patchable(before: u64, written: usize, place: u64) -> Option<usize> {
    let at = usize::try_from(place.checked_sub(before)?).ok()?;
    (at >= written).then_some(at)
}

fn put_header(out: &mut [u8], at: usize, len: usize, kind: Kind, flags: u8, stream: u32) {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    if let Some(header) = out.get_mut(at..at + HEADER) {
        header.copy_from_slice(&[a, b, c, kind.0, flags, s0, s1, s2, s3]);
    }
}
