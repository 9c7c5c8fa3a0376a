//! One body on its way from one connection to another: read, un-framed, framed anew, written.
//!
//! A relay holds at most one buffer each way: it reads only when all it read before is written, so a slow receiver slows
//! the sender down and memory stays bounded whatever the length of the body.

mod end;
mod read_on;
mod tunnel;
mod watch;

pub use tunnel::Tunnel;
pub use watch::{Mark, Seen, Stopped, Watch};

use crate::Stream;
use std::io;
use std::task::{Context, Poll, ready};
use weir_h1::{BodyKind, BodyReader, Step, write_chunk};

/// How the receiver learns where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Chunks.
    Chunked,
    /// The end of the connection, for an HTTP/1.0 client and a body of unknown length; or of the HTTP/2 stream.
    Close,
    /// Content-Length, or there is no body.
    Length,
}

/// Why a relay stopped before the end of the body.
#[derive(Debug)]
pub enum RelayError {
    /// The sender broke a framing rule.
    Malformed(weir_h1::Error),
    /// Reading from the sender failed.
    Read(io::Error),
    /// The watcher of pieces refused.
    Stopped,
    /// A body that is gathered is longer than it may be.
    TooLarge,
    /// The sender ended before the body did.
    Truncated,
    /// Writing to the receiver failed.
    Write(io::Error),
}

/// Largest buffer of one direction, in bytes. Reads begin at 16 KiB and grow to this while they are filled.
const BUFFER_BYTES: usize = 64 * 1024;

/// Pieces up to this size are copied behind what waits already, so that they leave in one plain write; larger ones are
/// written from where they were read.
const COPY_BYTES: usize = 4 * 1024;

/// One direction of an exchange.
#[derive(Debug)]
pub struct Relay {
    reader: BodyReader,
    framing: Framing,
    /// Read and not yet taken: `input[used..]`.
    input: Vec<u8>,
    used: usize,
    /// Framed and not yet written: `out[written..]`, then `input[direct]`.
    out: Vec<u8>,
    written: usize,
    direct: (usize, usize),
    /// Where the body begins in `out`, and how long the head was.
    body: usize,
    head: u64,
    /// What was written stays in `out`, so that it can be sent again, up to so many bytes.
    keeps: bool,
    keeps_at_most: usize,
    /// Nothing is written: the whole body, at most so long, stays in `out`.
    gathers: Option<usize>,
    /// How much may wait for the receiver while more is read; 0: nothing is read until all is written.
    ahead: usize,
    /// Writing failed, and the rest is read for the watcher alone.
    lost: Option<io::Error>,
    /// All of it is read for the watcher alone, and nothing is written.
    discards: bool,
    /// The watcher knows of the end, or of the pause that there is.
    told_end: bool,
    told_pause: bool,
    /// The watcher owes what a piece becomes; and it was the last one.
    owed: bool,
    ends: bool,
    finished: bool,
    /// Bytes of body taken from the sender.
    taken: u64,
    /// Bytes written to the receiver, head and framing included.
    sent: u64,
    /// Counts reads and writes that moved something, so that the owner can tell a slow peer from a dead one.
    steps: u64,
    waits_for_writer: bool,
}

impl Relay {
    /// A relay of a body of that kind. `out` holds the head that goes first.
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
            lost: None,
            discards: false,
            told_end: matches!(kind, BodyKind::Empty), // of no body it hears nothing
            told_pause: true,
            owed: false,
            ends: false,
            finished: false,
            taken: 0,
            sent: 0,
            steps: 0,
            waits_for_writer: false,
        }
    }

    /// One that has nothing to move yet.
    pub fn idle() -> Self {
        Self::new(BodyKind::Empty, Framing::Length, Vec::new())
    }

    /// Frees what it holds, once its message is over and nothing of it is wanted.
    pub fn release(&mut self) {
        (self.input, self.out) = (Vec::new(), Vec::new());
        self.reader = BodyReader::new(BodyKind::Empty);
    }

    /// Writes nothing, and keeps the whole body as sent, without its framing, for [`Relay::take_buffer`]. The framing must
    /// be [`Framing::Close`]. A body longer than `limit` is [`RelayError::TooLarge`].
    pub const fn gather(&mut self, limit: usize) {
        self.gathers = Some(limit);
    }

    /// Keeps what is written, while it is at most so many bytes, for [`Relay::again`].
    pub const fn keep(&mut self, at_most: usize) {
        self.keeps = true;
        self.keeps_at_most = at_most;
    }

    /// Keeps no longer.
    pub const fn forget(&mut self) {
        self.keeps = false;
    }

    /// Whether what was written can be sent again: all of it is kept, or none of the body has left yet.
    pub const fn is_repeatable(&self) -> bool {
        self.keeps || self.sent <= self.head
    }

    /// Begins anew behind another head: what was taken of the body is sent again, the rest follows. False if that cannot
    /// be done: see [`Relay::is_repeatable`]; nor can what was framed be framed otherwise.
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

    /// The whole body as it was framed, and its trailers, where all of it has come and can be sent again.
    pub fn sent_whole(&self) -> Option<(&[u8], &[u8])> {
        let whole = self.finished && self.is_repeatable();
        whole.then(|| (self.out.get(self.body..).unwrap_or_default(), self.reader.trailers()))
    }

    /// Takes what came behind the head; returns how much of it belongs to this body.
    ///
    /// # Errors
    /// As [`Relay::poll`].
    pub fn prime(&mut self, rest: &[u8], watch: Option<&mut dyn Watch>) -> Result<usize, RelayError> {
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
                    self.owed = owes(&watch);
                    if self.owed {
                        self.input = rest.get(used..).unwrap_or_default().to_vec(); // what follows waits for it
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

    /// Moves on as far as both sides let it. Ready when the whole body was written and flushed.
    ///
    /// # Errors
    /// See [`RelayError`]. The connections are then of no further use, except that a client can still be answered when
    /// only the upstream's side failed.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        mut watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        loop {
            self.take(reborrow(&mut watch))?;
            if self.lost.is_some() && self.owed {
                ready!(self.poll_owed(cx, reborrow(&mut watch)))?;
                continue;
            }
            if self.finished && self.discards {
                return Poll::Ready(Ok(()));
            }
            if self.lost.is_some() {
                ready!(self.poll_read_on(cx, from, reborrow(&mut watch)))?;
                continue;
            }
            self.waits_for_writer = true;
            match self.poll_write_out(cx, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(RelayError::Write(e))) if self.ahead > 0 => {
                    self.lost = Some(e);
                    continue;
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending if self.owed && self.ahead > 0 => {
                    ready!(self.poll_owed(cx, reborrow(&mut watch)))?;
                    continue;
                }
                Poll::Pending if self.reads_ahead() => {
                    ready!(self.poll_read_ahead(cx, from, reborrow(&mut watch)))?;
                    continue;
                }
                Poll::Pending => return Poll::Pending,
            }
            if self.finished {
                return to.poll_finish(cx, self.reader.trailers()).map_err(RelayError::Write);
            }
            if self.owed {
                if let Poll::Ready(settled) = self.poll_owed(cx, reborrow(&mut watch)) {
                    settled?;
                    continue;
                }
                ready!(to.poll_flush(cx)).map_err(RelayError::Write)?;
                self.waits_for_writer = false;
                return Poll::Pending;
            }
            // A full buffer, or a piece written from where it was read, stopped the taking: the rest comes first.
            if self.used < self.input.len() {
                continue;
            }
            // Bytes that TLS still holds must not wait for the sender's next ones.
            ready!(to.poll_flush(cx)).map_err(RelayError::Write)?;
            self.waits_for_writer = false;
            if let Poll::Ready(read) = self.poll_read_in(cx, from, reborrow(&mut watch)) {
                read?;
            } else if !self.pause(reborrow(&mut watch))? {
                return Poll::Pending;
            }
        }
    }

    /// Takes in as much of a body that is [gathered](Relay::gather) as there is. Ready when all of it is there.
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
            if self.owed {
                ready!(self.poll_owed(cx, reborrow(&mut watch)))?;
                continue;
            }
            ready!(self.poll_read_in(cx, from, reborrow(&mut watch)))?;
        }
    }

    /// Whether it gathers.
    pub const fn is_gathering(&self) -> bool {
        self.gathers.is_some()
    }

    /// The trailers of a body that was gathered, each a line with its CRLF.
    pub fn trailers(&self) -> &[u8] {
        self.reader.trailers()
    }

    /// Tells the watcher that the sender pauses; whether it has let something go that is to be written.
    fn pause(&mut self, watch: Option<&mut dyn Watch>) -> Result<bool, RelayError> {
        let Some(watch) = watch.filter(|watch| watch.sees_pieces() && !self.told_pause) else {
            return Ok(false);
        };
        self.told_pause = true;
        let held = watch.piece(Seen { data: &[], mark: Mark::Pause, trailers: None });
        self.owed = watch.owes();
        match held.map_err(|Stopped| RelayError::Stopped)? {
            Some(held) if !held.is_empty() && self.framing != Framing::Length => {
                frame(self.framing, &held, false, None, &mut self.out)?;
                Ok(true)
            }
            _ => Ok(self.owed),
        }
    }

    /// Frames what a piece has become, once the watcher has made it.
    fn poll_owed(
        &mut self,
        cx: &mut Context<'_>,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        if let Some(watch) = watch {
            let trailers = self.ends.then(|| self.reader.trailers_mut());
            let made = ready!(watch.poll_owed(cx, trailers)).map_err(|Stopped| RelayError::Stopped)?;
            if let Some(made) = made.filter(|_| self.framing != Framing::Length) {
                frame(self.framing, &made, false, None, &mut self.out)?;
            }
            if watch.owes() {
                return Poll::Ready(Ok(())); // of another watcher behind it
            }
        }
        self.owed = false;
        if self.ends {
            self.end();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is framed, the head among it.
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
        self.keeps &= self.out.len() - self.body <= self.keeps_at_most;
        if !self.keeps {
            self.out.clear();
            (self.written, self.body) = (0, 0);
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the whole body was read and framed.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether it last waited for the receiver, not for the sender.
    pub const fn waits_for_writer(&self) -> bool {
        self.waits_for_writer
    }

    /// Bytes of body taken from the sender.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes written to the receiver.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// A number that changes whenever something moved.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// What was read behind the end of the body: the next request of a pipelining client, or bytes that no upstream
    /// should have sent.
    pub fn leftover(&self) -> &[u8] {
        self.input.get(self.used..).unwrap_or_default()
    }

    /// Gives the buffer of what was framed away, once all of it is written: for the next message. Once: an empty one is none, and among
    /// those that are kept for messages to come it would only be grown again. What is kept moves into
    /// one of its own size, since it may be kept for as long as an upstream thinks.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        if !self.keeps {
            return (self.out.capacity() > 0).then(|| std::mem::take(&mut self.out));
        }
        let spacious = self.out.capacity() > 2 * self.out.len();
        spacious.then(|| {
            let kept = self.out.as_slice().to_vec();
            std::mem::replace(&mut self.out, kept)
        })
    }

    /// Takes pieces out of what was read until something large waits to be written or more is needed.
    fn take(&mut self, mut watch: Option<&mut dyn Watch>) -> Result<(), RelayError> {
        let room =
            self.gathers.map_or(BUFFER_BYTES.saturating_add(self.ahead), |limit| limit.saturating_add(1));
        while !self.finished
            && !self.owed
            && self.direct.0 == self.direct.1
            && self.out.len() - self.written < room
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
                    // Where a length was promised a watcher only looks on. Elsewhere it may add to what it sees.
                    let as_read =
                        self.framing == Framing::Length || (!seen && self.framing == Framing::Close);
                    if as_read && len > COPY_BYTES && !self.keeps && self.gathers.is_none() {
                        if let Some(watch) = watch.as_mut().filter(|_| seen) {
                            let piece = self.input.get(from..to).unwrap_or_default();
                            watch.piece(Seen::data(piece, ends)).map_err(|Stopped| RelayError::Stopped)?;
                            self.owed = !last && watch.owes();
                        }
                        self.direct = (from, to);
                        // The end of a body of known length needs no further byte: without this the relay would
                        // read on, and wait for a message that nobody owes it.
                        if last {
                            self.finish(reborrow(&mut watch))?;
                        }
                        continue;
                    }
                    let piece = self.input.get(from..to).unwrap_or_default();
                    frame(self.framing, piece, ends, reborrow(&mut watch), &mut self.out)?;
                    self.owed = seen && owes(&watch);
                }
                Step::End { used } => {
                    self.used += used;
                    self.finish(reborrow(&mut watch))?;
                }
                Step::More => {
                    // The reader has seen all of it, framing between chunks included: it must not see it again.
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
        // A stream of HTTP/2 gives what it has, in a buffer of its own.
        let filled =
            self.input.len() == self.input.capacity() && self.input.capacity() > 0 && from.h2().is_none();
        self.input.clear();
        self.used = 0;
        if filled && self.input.capacity() < BUFFER_BYTES {
            self.input.reserve_exact(BUFFER_BYTES);
        }
        let read = match from.poll_read(cx, &mut self.input) {
            Poll::Ready(read) => read.map_err(RelayError::Read)?,
            Poll::Pending => {
                // Nothing to hold while waiting, however many peers are slow: the buffer is for bytes, not for time.
                if !filled {
                    self.input = Vec::new();
                }
                return Poll::Pending;
            }
        };
        self.steps += 1;
        if read == 0 {
            if !self.reader.ends_with_connection() {
                return Poll::Ready(Err(RelayError::Truncated));
            }
            self.reader.end(from.take_trailers()).map_err(RelayError::Malformed)?;
            self.finish(watch)?;
        }
        Poll::Ready(Ok(()))
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

fn owes(watch: &Option<&mut dyn Watch>) -> bool {
    watch.as_ref().is_some_and(|watch| watch.owes())
}

/// Frames one piece behind what waits in `out`.
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
    }
    Ok(())
}

#[cfg(test)]
mod tests;
