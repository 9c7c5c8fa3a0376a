//! One body on its way from one connection to another: read, decode its framing, encode it again, write.
//!
//! A relay holds at most one buffer per direction: it reads only after it has written everything it read before. So a
//! slow receiver slows the sender down (backpressure), and memory stays bounded for bodies of any length.

mod end;
mod overflow;
mod read_on;
mod supply;
mod tunnel;
mod watch;

pub use overflow::Store;
pub use supply::Supply;
pub use tunnel::{Tunnel, TunnelError};
pub use watch::{Mark, Seen, Stopped, Watch};

use crate::Stream;
use std::io;
use std::task::{Context, Poll, ready};
use weir_h1::{BodyKind, BodyReader, Step, write_chunk};

/// How the receiver learns where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Chunked transfer coding.
    Chunked,
    /// The end of the connection (an HTTP/1.0 client and a body of unknown length), or the end of the HTTP/2 stream.
    Close,
    /// Content-Length, or no body.
    Length,
    /// The records of a FastCGI request's body.
    Records,
}

/// Why a relay stopped before the end of the body.
#[derive(Debug)]
pub enum RelayError {
    /// The sender broke a framing rule.
    Malformed(weir_h1::Error),
    /// Reading from the sender failed.
    Read(io::Error),
    /// The watcher rejected a piece.
    Stopped,
    /// Reading from the [`Supply`] or the [`Store`] failed.
    Supply(io::Error),
    /// A gathered body exceeds its limit.
    TooLarge,
    /// The sender ended before the body did.
    Truncated,
    /// Writing to the receiver failed.
    Write(io::Error),
}

/// Largest buffer per direction, in bytes. Reads start with 16 KiB and grow to this size while they fill their
/// buffer.
const BUFFER_BYTES: usize = 64 * 1024;

/// Pieces up to this size are copied behind the pending output, so that both leave in one plain write. Larger pieces
/// are written from the input buffer.
const COPY_BYTES: usize = 4 * 1024;

/// One direction of an exchange.
#[derive(Debug)]
pub struct Relay {
    reader: BodyReader,
    framing: Framing,
    /// Read but not consumed yet: `input[used..]`.
    input: Vec<u8>,
    used: usize,
    /// Framed but not written yet: `out[written..]`, then `input[direct]`.
    out: Vec<u8>,
    written: usize,
    direct: (usize, usize),
    /// Where the body begins in `out`, and the length of the head.
    body: usize,
    head: u64,
    /// Written bytes stay in `out` for a resend, up to `keeps_at_most` bytes.
    keeps: bool,
    keeps_at_most: usize,
    /// Nothing is written: the whole body stays in `out`, up to this many bytes.
    gathers: Option<usize>,
    /// Bytes that may wait for the receiver while we read more. 0: read only after everything is written.
    ahead: usize,
    /// Up to how many bytes wait in `out` before no more input is consumed.
    room: usize,
    /// The watcher wants the whole body, whatever happens to the receiver.
    reads_on: bool,
    /// Writing failed; we read the rest for the watcher only.
    lost: Option<io::Error>,
    /// The whole body is read for the watcher only; nothing is written.
    discards: bool,
    /// Where bytes wait that exceed `ahead`.
    overflow: Option<Box<overflow::Overflow>>,
    /// Where the body comes from, if not from the sender's connection.
    supply: Option<Box<dyn Supply>>,
    /// The watcher has seen the end, or the current pause.
    told_end: bool,
    told_pause: bool,
    /// The watcher sees no pauses.
    hides_pauses: bool,
    /// The watcher still owes the replacement of a piece; `ends`: that piece was the last.
    pending: bool,
    ends: bool,
    finished: bool,
    delivered: bool,
    /// Body bytes consumed from the sender.
    taken: u64,
    /// Bytes written to the receiver, including head and framing.
    sent: u64,
    /// Counts reads and writes that moved data, so that the owner can tell a slow peer from a dead one.
    steps: u64,
    waits_for_writer: bool,
}

impl Relay {
    /// Relays a body of this kind. `out` holds the head, which goes first.
    #[inline]
    pub fn new(kind: BodyKind, framing: Framing, out: Vec<u8>) -> Self {
        Self {
            reader: BodyReader::new(kind),
            framing,
            input: Vec::new(),
            used: 0,
            body: out.len(),
            head: out.len() as u64,
            out,
            written: 0,
            direct: (0, 0),
            keeps: false,
            keeps_at_most: 0,
            gathers: None,
            ahead: 0,
            room: BUFFER_BYTES,
            reads_on: false,
            lost: None,
            discards: false,
            overflow: None,
            supply: None,
            told_end: matches!(kind, BodyKind::Empty), // the watcher sees no end of an absent body
            told_pause: true,
            hides_pauses: false,
            pending: false,
            ends: false,
            finished: false,
            delivered: false,
            taken: 0,
            sent: 0,
            steps: 0,
            waits_for_writer: false,
        }
    }

    /// A relay with nothing to move yet.
    #[inline]
    pub fn idle() -> Self {
        Self::new(BodyKind::Empty, Framing::Length, Vec::new())
    }

    /// Begins a message that has a head and no body. The relay must be idle: overwriting all of it would cost 40 more
    /// instructions (count h1-64).
    #[inline]
    pub fn begin_head(&mut self, out: Vec<u8>) {
        debug_assert!(self.is_idle(), "the last message was released");
        (self.body, self.head) = (out.len(), out.len() as u64);
        (self.out, self.finished) = (out, true);
    }

    /// Whether it has had nothing to move since it was made or released.
    fn is_idle(&self) -> bool {
        let has_moved = self.finished || self.taken + self.sent + self.steps > 0 || self.written > 0;
        let has_rest = self.input.capacity() + self.out.capacity() > 0 || self.supply.is_some();
        !has_moved && !has_rest && !self.keeps && !self.reads_on && self.lost.is_none()
    }

    /// Makes the relay idle and frees its buffers. Call it when the message is over.
    pub fn release(&mut self) {
        *self = Self::idle();
    }

    /// Writes nothing; collects the whole decoded body for [`Relay::take_buffer`]. The framing must be
    /// [`Framing::Close`]. A body longer than `limit` is [`RelayError::TooLarge`].
    pub const fn gather(&mut self, limit: usize) {
        self.gathers = Some(limit);
        self.room = limit.saturating_add(1);
    }

    /// Keeps written bytes for [`Relay::again`], up to `at_most` bytes.
    pub const fn keep(&mut self, at_most: usize) {
        self.keeps = true;
        self.keeps_at_most = at_most;
    }

    /// Hides the sender's pauses from the watcher, so that its output does not depend on timing.
    pub const fn hide_pauses(&mut self) {
        self.hides_pauses = true;
    }

    /// Stops keeping written bytes.
    pub const fn forget(&mut self) {
        self.keeps = false;
    }

    /// Whether the body can be resent: all of it is kept, or none of it has been sent yet.
    pub const fn is_repeatable(&self) -> bool {
        self.keeps || self.sent <= self.head
    }

    /// Starts over with another head: resends the consumed part of the body, then continues. False if that is
    /// impossible: see [`Relay::is_repeatable`]. Body data that is already framed cannot change its framing.
    #[must_use]
    pub fn again(&mut self, framing: Framing, mut head: Vec<u8>) -> bool {
        if !self.is_repeatable() || (framing != self.framing && self.taken > 0) {
            return false;
        }
        let body = head.len();
        head.extend_from_slice(self.out.get(self.body..).unwrap_or_default());
        (self.framing, self.out) = (framing, head);
        (self.body, self.head) = (body, body as u64);
        (self.written, self.sent) = (0, 0);
        true
    }

    /// The whole framed body and its trailers, if all of it has arrived and can be resent.
    pub fn sent_whole(&self) -> Option<(&[u8], &[u8])> {
        let whole = self.finished && self.is_repeatable() && self.supply.is_none();
        whole.then(|| (self.out.get(self.body..).unwrap_or_default(), self.reader.trailers()))
    }

    /// Consumes the bytes that arrived with the head; returns how many belong to this body.
    ///
    /// # Errors
    /// As [`Relay::poll`].
    pub fn prime(&mut self, rest: &[u8], watch: Option<&mut dyn Watch>) -> Result<usize, RelayError> {
        // A small response arrives with its head, and nobody looks at it.
        if !sees_pieces(&watch)
            && self.framing == Framing::Length
            && let Some(length) = self.reader.take_rest(rest.len())
        {
            self.out.extend_from_slice(rest.get(..length).unwrap_or_default());
            self.taken += length as u64;
            self.end();
            return Ok(length);
        }
        let mut used = 0;
        let mut watch = watch;
        loop {
            let step =
                self.reader.step(rest.get(used..).unwrap_or_default()).map_err(RelayError::Malformed)?;
            match step {
                Step::Data { skip, len } => {
                    let piece = rest.get(used + skip..used + skip + len).unwrap_or_default();
                    used += skip + len;
                    self.taken += len as u64;
                    let last = self.reader.is_done() && self.framing == Framing::Length;
                    if sees_pieces(&watch) {
                        (self.told_end, self.told_pause) = (self.told_end || last, false);
                    }
                    frame(self.framing, piece, last, reborrow(&mut watch), &mut self.out)?;
                    self.pending = has_pending(&watch);
                    if self.pending {
                        self.input = rest.get(used..).unwrap_or_default().to_vec(); // the rest waits for this piece
                        return Ok(rest.len());
                    }
                }
                Step::End { used: end } => {
                    self.finish(reborrow(&mut watch))?;
                    return Ok(used + end);
                }
                Step::More => return Ok(rest.len()),
            }
        }
    }

    /// Moves as much as both sides allow. Ready when the whole body is written and flushed.
    ///
    /// # Errors
    /// See [`RelayError`]. Neither connection is usable afterwards, except that a client can still get a response if
    /// only the upstream side failed.
    #[inline]
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        if self.only_writes() { self.poll_written(cx, to) } else { self.poll_pieces(cx, from, to, watch) }
    }

    /// Whether all that is left to do is to write the framed output: neither the sender nor a watcher matters.
    #[inline]
    pub const fn only_writes(&self) -> bool {
        self.finished
            && self.direct.0 == self.direct.1
            && self.overflow.is_none()
            && self.gathers.is_none()
            && !self.reads_on
    }

    /// The same as [`Relay::poll`] for a relay that [only writes](Relay::only_writes): nearly every head without a
    /// body, and every answer that arrived with its head.
    ///
    /// # Errors
    /// [`RelayError::Write`].
    pub fn poll_written(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<Result<(), RelayError>> {
        self.waits_for_writer = true;
        while let Some(out) = self.out.get(self.written..).filter(|out| !out.is_empty()) {
            let wrote = ready!(to.poll_write(cx, out)).map_err(RelayError::Write)?;
            if wrote == 0 {
                return Poll::Ready(Err(RelayError::Write(io::ErrorKind::WriteZero.into())));
            }
            self.steps += 1;
            self.sent += wrote as u64;
            self.written += wrote;
        }
        self.end_output();
        self.poll_finish(cx, to)
    }

    fn poll_pieces(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        mut watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        loop {
            self.take(reborrow(&mut watch))?;
            if self.overflow.is_some() {
                self.divert();
            }
            if self.lost.is_some() && self.pending {
                ready!(self.poll_pending(cx, reborrow(&mut watch)))?;
                continue;
            }
            if self.finished && self.discards {
                return Poll::Ready(Ok(()));
            }
            if self.lost.is_some() {
                ready!(self.poll_read_on(cx, from, reborrow(&mut watch)))?;
                continue;
            }
            // Before a write that has to wait: what comes then is written without the sender.
            if self.finished && !self.reader.trailers().is_empty() {
                to.seal_like(from);
            }
            self.waits_for_writer = true;
            match self.poll_write_out(cx, to) {
                Poll::Ready(Ok(())) if !self.is_overflowing() => {}
                Poll::Ready(Ok(())) => match self.poll_refill(cx)? {
                    Poll::Ready(true) => continue,
                    Poll::Ready(false) => {}
                    Poll::Pending => {
                        ready!(self.poll_overflow(cx, from, reborrow(&mut watch)))?;
                        continue;
                    }
                },
                Poll::Ready(Err(RelayError::Write(e))) if self.reads_on => {
                    self.lost = Some(e);
                    continue;
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending if self.pending && self.ahead > 0 => {
                    ready!(self.poll_pending(cx, reborrow(&mut watch)))?;
                    continue;
                }
                Poll::Pending if self.is_overflowing() => {
                    ready!(self.poll_overflow(cx, from, reborrow(&mut watch)))?;
                    continue;
                }
                Poll::Pending if self.reads_ahead() => {
                    ready!(self.poll_read_ahead(cx, from, reborrow(&mut watch)))?;
                    continue;
                }
                Poll::Pending if self.overflow.is_some() => {
                    ready!(self.poll_overflow(cx, from, reborrow(&mut watch)))?;
                    continue;
                }
                Poll::Pending => return Poll::Pending,
            }
            if self.finished {
                return self.poll_finish(cx, to);
            }
            if self.pending {
                if let Poll::Ready(settled) = self.poll_pending(cx, reborrow(&mut watch)) {
                    settled?;
                    continue;
                }
                ready!(to.poll_flush(cx)).map_err(RelayError::Write)?;
                self.waits_for_writer = false;
                return Poll::Pending;
            }
            // A full buffer stopped `take`, or a piece that is written from the input buffer. Consume the rest first.
            if self.used < self.input.len() {
                continue;
            }
            // Flush the bytes TLS still holds: they must not wait for the sender's next bytes.
            ready!(to.poll_flush(cx)).map_err(RelayError::Write)?;
            self.waits_for_writer = false;
            if let Poll::Ready(read) = self.poll_read_in(cx, from, reborrow(&mut watch)) {
                read?;
            } else if !self.pause(reborrow(&mut watch))? {
                return Poll::Pending;
            }
        }
    }

    /// Writes the rest of a body that was read completely.
    ///
    /// # Errors
    /// [`RelayError::Write`], and [`RelayError::Supply`] if a part of it waits in a [`Store`] that fails.
    #[cold]
    pub fn poll_rest(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<Result<(), RelayError>> {
        loop {
            ready!(self.poll_write_out(cx, to))?;
            if !self.is_overflowing() || !ready!(self.poll_refill(cx))? {
                return self.poll_finish(cx, to);
            }
        }
    }

    #[inline]
    fn poll_finish(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<Result<(), RelayError>> {
        ready!(to.poll_finish(cx, self.reader.trailers())).map_err(RelayError::Write)?;
        self.delivered = true;
        Poll::Ready(Ok(()))
    }

    /// Collects as much of a [gathered](Relay::gather) body as has arrived. Ready when the body is complete.
    ///
    /// # Errors
    /// As [`Relay::poll`], and [`RelayError::TooLarge`].
    pub fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        mut watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        loop {
            self.take(reborrow(&mut watch))?;
            if self.gathers.is_some_and(|limit| self.out.len() > limit) {
                return Poll::Ready(Err(RelayError::TooLarge));
            }
            if self.finished {
                return Poll::Ready(Ok(()));
            }
            if self.pending {
                ready!(self.poll_pending(cx, reborrow(&mut watch)))?;
                continue;
            }
            ready!(self.poll_read_in(cx, from, reborrow(&mut watch)))?;
        }
    }

    /// Whether it gathers the body.
    pub const fn is_gathering(&self) -> bool {
        self.gathers.is_some()
    }

    /// The trailers of a gathered body, each a line with its CRLF.
    pub fn trailers(&self) -> &[u8] {
        self.reader.trailers()
    }

    /// Tells the watcher that the sender pauses. True if the watcher released data to write, or still owes some.
    fn pause(&mut self, watch: Option<&mut dyn Watch>) -> Result<bool, RelayError> {
        let is_told = self.told_pause || self.hides_pauses;
        let Some(watch) = watch.filter(|watch| watch.sees_pieces() && !is_told) else { return Ok(false) };
        self.told_pause = true;
        let held = watch.piece(Seen { data: &[], mark: Mark::Pause, trailers: None });
        self.pending = watch.has_pending();
        match held.map_err(|Stopped| RelayError::Stopped)? {
            Some(held) if !held.is_empty() && self.framing != Framing::Length => {
                frame(self.framing, &held, false, None, &mut self.out)?;
                Ok(true)
            }
            _ => Ok(self.pending),
        }
    }

    /// Frames the replacement of a piece, once the watcher has produced it.
    fn poll_pending(
        &mut self,
        cx: &mut Context<'_>,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        if let Some(watch) = watch {
            let trailers = self.ends.then(|| self.reader.trailers_mut());
            let made = ready!(watch.poll_pending(cx, trailers)).map_err(|Stopped| RelayError::Stopped)?;
            if let Some(made) = made.filter(|_| self.framing != Framing::Length) {
                frame(self.framing, &made, false, None, &mut self.out)?;
            }
            if watch.has_pending() {
                return Poll::Ready(Ok(())); // another watcher behind it still owes one
            }
        }
        self.pending = false;
        if self.ends {
            self.end();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes everything framed so far, including the head. Inlined into [`Relay::poll_pieces`]: as a call it costs 52
    /// instructions of a request.
    #[inline(always)]
    fn poll_write_out(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<Result<(), RelayError>> {
        loop {
            let out = self.out.get(self.written..).unwrap_or_default();
            let direct = self.input.get(self.direct.0..self.direct.1).unwrap_or_default();
            let wrote = match (out.is_empty(), direct.is_empty()) {
                (true, true) => break,
                (false, true) => ready!(to.poll_write(cx, out)),
                (true, false) => ready!(to.poll_write(cx, direct)),
                (false, false) => ready!(to.poll_write_two(cx, out, direct)),
            };
            let wrote = wrote.map_err(RelayError::Write)?;
            if wrote == 0 {
                return Poll::Ready(Err(RelayError::Write(io::ErrorKind::WriteZero.into())));
            }
            self.steps += 1;
            self.sent += wrote as u64;
            let of_out = wrote.min(out.len());
            self.written += of_out;
            self.direct.0 += wrote - of_out;
        }
        self.direct = (0, 0);
        self.end_output();
        Poll::Ready(Ok(()))
    }

    /// Empties the output, all of which is written, unless it is kept.
    #[inline]
    fn end_output(&mut self) {
        self.keeps &= self.out.len() - self.body <= self.keeps_at_most;
        if !self.keeps {
            self.out.clear();
            (self.written, self.body) = (0, 0);
        }
    }

    /// Whether the whole body is read and framed.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the receiver's connection has taken all of the body and its end.
    pub const fn is_delivered(&self) -> bool {
        self.delivered
    }

    /// Whether it last waited for the receiver rather than the sender.
    pub const fn waits_for_writer(&self) -> bool {
        self.waits_for_writer
    }

    /// Body bytes consumed from the sender.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes written to the receiver.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// A counter that changes whenever data moves.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes read after the end of the body: the next request of a pipelining client, or bytes that no upstream
    /// should send.
    pub fn leftover(&self) -> &[u8] {
        self.input.get(self.used..).unwrap_or_default()
    }

    /// Gives away the output buffer once everything is written, for reuse by the next message. Returns it only once:
    /// an empty buffer would only have to grow again. If the relay keeps its output, it moves that to a buffer of
    /// exact size, because the copy may be kept for as long as the upstream takes to respond.
    #[inline]
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        if self.keeps {
            self.take_spare()
        } else {
            (self.out.capacity() > 0).then(|| std::mem::take(&mut self.out))
        }
    }

    fn take_spare(&mut self) -> Option<Vec<u8>> {
        let spacious = self.out.capacity() > 2 * self.out.len();
        spacious.then(|| {
            let kept = self.out.as_slice().to_vec();
            std::mem::replace(&mut self.out, kept)
        })
    }

    /// Consumes input until a large piece is pending or more input is needed.
    fn take(&mut self, mut watch: Option<&mut dyn Watch>) -> Result<(), RelayError> {
        while !self.finished
            && !self.pending
            && self.direct.0 == self.direct.1
            && self.out.len() - self.written < self.room
        {
            let input = self.input.get(self.used..).unwrap_or_default();
            match self.reader.step(input).map_err(RelayError::Malformed)? {
                Step::Data { skip, len } => {
                    let (from, to) = (self.used + skip, self.used + skip + len);
                    self.used = to;
                    self.taken += len as u64;
                    let last = self.reader.is_done();
                    self.keeps &= self.taken <= self.keeps_at_most as u64;
                    let ends = last && self.framing == Framing::Length;
                    let seen = sees_pieces(&watch);
                    if seen {
                        (self.told_end, self.told_pause) = (self.told_end || ends, false);
                    }
                    // With a fixed length, a watcher can only look on. Otherwise it may change what it sees.
                    let as_read =
                        self.framing == Framing::Length || (!seen && self.framing == Framing::Close);
                    if as_read && len > COPY_BYTES && !self.keeps && self.gathers.is_none() {
                        if let Some(watch) = watch.as_mut().filter(|_| seen) {
                            let piece = self.input.get(from..to).unwrap_or_default();
                            watch.piece(Seen::data(piece, ends)).map_err(|Stopped| RelayError::Stopped)?;
                            self.pending = !last && watch.has_pending();
                        }
                        self.direct = (from, to);
                        // A body of known length ends without a further byte. Without this, the relay would read on
                        // and wait for a message that will never come.
                        if last {
                            self.finish(reborrow(&mut watch))?;
                        }
                        continue;
                    }
                    let piece = self.input.get(from..to).unwrap_or_default();
                    frame(self.framing, piece, ends, reborrow(&mut watch), &mut self.out)?;
                    self.pending = seen && has_pending(&watch);
                }
                Step::End { used } => {
                    self.used += used;
                    self.finish(reborrow(&mut watch))?;
                }
                Step::More => {
                    // The reader has consumed everything, including framing between chunks. It must not see that
                    // input twice.
                    self.used = self.input.len();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn poll_read_in(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        // A multiplexed stream returns what it has, in its own buffer.
        let is_full = self.input.len() == self.input.capacity() && self.input.capacity() > 0;
        let filled = is_full && !from.is_multiplexed();
        self.input.clear();
        self.used = 0;
        if filled && self.input.capacity() < BUFFER_BYTES {
            self.input.reserve_exact(BUFFER_BYTES);
        }
        let read = match &mut self.supply {
            None => from.poll_read(cx, &mut self.input).map_err(RelayError::Read),
            Some(supply) => supply.poll_read(cx, &mut self.input).map_err(RelayError::Supply),
        };
        let read = match read {
            Poll::Ready(read) => read?,
            Poll::Pending => {
                // Hold no buffer while waiting, no matter how many peers are slow.
                if !filled {
                    self.free_input(from);
                }
                return Poll::Pending;
            }
        };
        self.steps += 1;
        if read == 0 {
            self.free_input(from);
            if !self.reader.ends_with_connection() {
                return Poll::Ready(Err(RelayError::Truncated));
            }
            self.reader.end(from.take_trailers()).map_err(RelayError::Malformed)?;
            self.finish(watch)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Frees the input buffer, which is empty. That of a multiplexed stream serves the next body.
    fn free_input(&mut self, from: &Stream) {
        let input = std::mem::take(&mut self.input);
        if from.is_multiplexed() {
            weir_fields::give_body(input);
        }
    }
}

fn reborrow<'a>(watch: &'a mut Option<&mut dyn Watch>) -> Option<&'a mut dyn Watch> {
    match watch {
        Some(watch) => Some(&mut **watch),
        None => None,
    }
}

fn sees_pieces(watch: &Option<&mut dyn Watch>) -> bool {
    watch.as_ref().is_some_and(|watch| watch.sees_pieces())
}

fn has_pending(watch: &Option<&mut dyn Watch>) -> bool {
    watch.as_ref().is_some_and(|watch| watch.has_pending())
}

/// Appends one framed piece to `out`.
fn frame(
    framing: Framing,
    piece: &[u8],
    last: bool,
    watch: Option<&mut dyn Watch>,
    out: &mut Vec<u8>,
) -> Result<(), RelayError> {
    let replaced = match watch {
        Some(watch) if watch.sees_pieces() => {
            watch.piece(Seen::data(piece, last)).map_err(|Stopped| RelayError::Stopped)?
        }
        _ => None,
    };
    let piece = replaced.as_deref().unwrap_or(piece);
    match framing {
        Framing::Chunked => write_chunk(piece, out),
        Framing::Close | Framing::Length => out.extend_from_slice(piece),
        Framing::Records => weir_fcgi::write_input(piece, out),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
