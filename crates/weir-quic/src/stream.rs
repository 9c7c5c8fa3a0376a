//! The two directions of a QUIC stream: [`Writer`] and [`Reader`].

use crate::shared::{Lost, Owner};
use bytes::Bytes;
use quinn_proto::{FinishError, ReadError, ReadableError, StreamId, VarInt, WriteError};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The direction that we write. Dropped before [`Writer::finish`], it resets the stream with code 0.
pub struct Writer {
    owner: Rc<Owner>,
    id: StreamId,
    is_over: bool,
}

/// The direction that we read. Dropped before its end, it asks the peer to stop, with code 0.
pub struct Reader {
    owner: Rc<Owner>,
    id: StreamId,
    is_over: bool,
    /// It is over because the peer ended it.
    got_end: bool,
}

/// Bytes of a stream: see [`Reader::poll_piece`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes.
    pub bytes: Bytes,
    /// What follows them.
    pub then: Then,
}

/// What follows a [`Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The end of the stream.
    End,
    /// Another piece, which has arrived.
    More,
    /// Nothing that has arrived.
    Wait,
}

/// Why a stream ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The peer reset its direction, with an application error code.
    Reset(u64),
    /// The peer reads no more of ours, with an application error code.
    Stopped(u64),
    /// We have ended this direction before.
    Over,
    /// The connection has ended.
    Lost(Lost),
}

impl Writer {
    pub(crate) const fn new(owner: Rc<Owner>, id: StreamId) -> Self {
        Self { owner, id, is_over: false }
    }

    /// The number of the stream (RFC 9000 §2.1).
    pub fn id(&self) -> u64 {
        VarInt::from(self.id).into_inner()
    }

    /// Writes part of `data`. Waits while the peer's flow control or [`crate::Limits::unacknowledged`] allows nothing.
    pub fn poll_write(&mut self, cx: &Context<'_>, data: &[u8]) -> Poll<Result<usize, StreamError>> {
        let shared = &self.owner.0;
        if let Some(lost) = shared.lost() {
            return Poll::Ready(Err(StreamError::Lost(lost)));
        }
        let written = shared.proto.borrow_mut().send_stream(self.id).write(data);
        self.wrote(cx, written)
    }

    /// Like [`Writer::poll_write`], but takes the bytes without a copy. Leaves in `data` what it has not written.
    pub fn poll_hand_over(&mut self, cx: &Context<'_>, data: &mut Bytes) -> Poll<Result<usize, StreamError>> {
        let shared = &self.owner.0;
        if let Some(lost) = shared.lost() {
            return Poll::Ready(Err(StreamError::Lost(lost)));
        }
        let mut proto = shared.proto.borrow_mut();
        let written = proto.send_stream(self.id).write_chunks(std::slice::from_mut(data));
        drop(proto);
        self.wrote(cx, written.map(|written| written.bytes))
    }

    fn wrote(
        &self,
        cx: &Context<'_>,
        written: Result<usize, WriteError>,
    ) -> Poll<Result<usize, StreamError>> {
        let shared = &self.owner.0;
        match written {
            Ok(count) => {
                shared.touch();
                Poll::Ready(Ok(count))
            }
            Err(WriteError::Blocked) => {
                shared.wait_to_write(self.id, cx);
                Poll::Pending
            }
            Err(WriteError::Stopped(code)) => Poll::Ready(Err(StreamError::Stopped(code.into_inner()))),
            Err(WriteError::ClosedStream) => Poll::Ready(Err(StreamError::Over)),
        }
    }

    /// Ends the direction after what was written.
    ///
    /// # Errors
    /// When the peer reads no more, or the direction has ended before.
    pub fn finish(&mut self) -> Result<(), StreamError> {
        self.is_over = true;
        let finished = self.owner.0.proto.borrow_mut().send_stream(self.id).finish();
        self.owner.0.touch();
        finished.map_err(|e| match e {
            FinishError::Stopped(code) => {
                // RFC 9000 §3.5. The stream would otherwise stay open, and count against the peer's limit, for ever.
                self.reset(code.into_inner());
                StreamError::Stopped(code.into_inner())
            }
            FinishError::ClosedStream => StreamError::Over,
        })
    }

    /// Gives the direction up: the peer may get none of what it has not got yet.
    pub fn reset(&mut self, code: u64) {
        self.is_over = true;
        let shared = &self.owner.0;
        // Fails if the direction has ended before: then there is nothing to give up.
        let _ = shared
            .proto
            .borrow_mut()
            .send_stream(self.id)
            .reset(VarInt::from_u64(code).unwrap_or(VarInt::MAX));
        shared.touch();
    }

    /// Whether the peer reads no more, with its error code; `None` while it does.
    pub fn stopped(&self) -> Option<u64> {
        let stopped = self.owner.0.proto.borrow_mut().send_stream(self.id).stopped();
        stopped.ok().flatten().map(VarInt::into_inner)
    }

    /// Like [`Writer::stopped`]; wakes the task when that changes, or the connection ends.
    pub fn poll_stopped(&self, cx: &Context<'_>) -> Poll<Result<u64, Lost>> {
        if let Some(lost) = self.owner.0.lost() {
            return Poll::Ready(Err(lost));
        }
        match self.stopped() {
            Some(code) => Poll::Ready(Ok(code)),
            None => {
                self.owner.0.wait_to_write(self.id, cx);
                Poll::Pending
            }
        }
    }

    /// Sends streams of a higher priority first. 0 unless set.
    pub fn set_priority(&self, priority: i32) {
        // Fails if the direction has ended: then it has no packets to order.
        let _ = self.owner.0.proto.borrow_mut().send_stream(self.id).set_priority(priority);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.owner.0.forget(self.id, false);
        if !self.is_over {
            self.reset(0);
        }
    }
}

impl Reader {
    pub(crate) const fn new(owner: Rc<Owner>, id: StreamId) -> Self {
        Self { owner, id, is_over: false, got_end: false }
    }

    /// The number of the stream (RFC 9000 §2.1).
    pub fn id(&self) -> u64 {
        VarInt::from(self.id).into_inner()
    }

    /// Appends at most `most` bytes to `buffer` and returns how many; 0 is the end.
    pub fn poll_read(
        &mut self,
        cx: &Context<'_>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Poll<Result<usize, StreamError>> {
        if self.is_over {
            return Poll::Ready(if self.got_end { Ok(0) } else { Err(StreamError::Over) });
        }
        let shared = &self.owner.0;
        let mut proto = shared.proto.borrow_mut();
        let mut stream = proto.recv_stream(self.id);
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                return Poll::Ready(Err(StreamError::Over));
            }
        };
        let (mut count, mut end) = (0, None);
        while count < most {
            match chunks.next(most - count) {
                Ok(Some(chunk)) => {
                    buffer.extend_from_slice(&chunk.bytes);
                    count += chunk.bytes.len();
                }
                ended => {
                    end = Some(ended);
                    break;
                }
            }
        }
        let grants_more = chunks.finalize().should_transmit();
        drop(proto);
        if grants_more {
            shared.touch();
        }
        if matches!(end, Some(Ok(_))) {
            (self.is_over, self.got_end) = (true, true);
        }
        match end {
            Some(Err(e)) if count == 0 => self.stopped_at(e, cx),
            _ => Poll::Ready(Ok(count)),
        }
    }

    /// The next piece, of at most `most` bytes, without a copy, and what follows it. It is empty only where the stream
    /// ends.
    pub fn poll_piece(&mut self, cx: &Context<'_>, most: usize) -> Poll<Result<Piece, StreamError>> {
        if self.is_over {
            let end = Piece { bytes: Bytes::new(), then: Then::End };
            return Poll::Ready(if self.got_end { Ok(end) } else { Err(StreamError::Over) });
        }
        let shared = &self.owner.0;
        let mut proto = shared.proto.borrow_mut();
        let mut stream = proto.recv_stream(self.id);
        let Ok(mut chunks) = stream.read(true) else { return Poll::Ready(Err(StreamError::Over)) };
        let next = chunks.next(most);
        // Looking now saves a second call, which costs as much as the first. A chunk of 0 bytes takes nothing.
        let then = match &next {
            Ok(Some(_)) => match chunks.next(0) {
                Ok(None) => Then::End,
                Ok(Some(_)) => Then::More,
                Err(_) => Then::Wait,
            },
            _ => Then::End,
        };
        let grants_more = chunks.finalize().should_transmit();
        drop(proto);
        if grants_more {
            shared.touch();
        }
        let bytes = match next {
            Ok(chunk) => chunk.map(|chunk| chunk.bytes).unwrap_or_default(),
            Err(e) => return self.stopped_at(e, cx),
        };
        match then {
            Then::End => (self.is_over, self.got_end) = (true, true),
            Then::Wait => self.owner.0.wait_to_read(self.id, cx),
            Then::More => {}
        }
        Poll::Ready(Ok(Piece { bytes, then }))
    }

    /// Why there is nothing to read: the end of the stream or of the connection, or the peer has sent no more yet.
    fn stopped_at<T>(&mut self, why: ReadError, cx: &Context<'_>) -> Poll<Result<T, StreamError>> {
        let shared = &self.owner.0;
        match why {
            ReadError::Reset(code) => {
                self.is_over = true;
                Poll::Ready(Err(StreamError::Reset(code.into_inner())))
            }
            ReadError::Blocked => match shared.lost() {
                Some(lost) => Poll::Ready(Err(StreamError::Lost(lost))),
                None => {
                    shared.wait_to_read(self.id, cx);
                    Poll::Pending
                }
            },
        }
    }

    /// Asks the peer to stop, and drops what it has sent.
    pub fn stop(&mut self, code: u64) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let shared = &self.owner.0;
        // Fails if the direction has ended before: then there is nothing to stop.
        let _ = shared
            .proto
            .borrow_mut()
            .recv_stream(self.id)
            .stop(VarInt::from_u64(code).unwrap_or(VarInt::MAX));
        shared.touch();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.owner.0.forget(self.id, true);
        self.stop(0);
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "the peer reset the stream with code {code:#x}"),
            Self::Stopped(code) => write!(f, "the peer stopped reading the stream, with code {code:#x}"),
            Self::Over => f.write_str("the stream has ended"),
            Self::Lost(lost) => lost.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<StreamError> for io::Error {
    fn from(e: StreamError) -> Self {
        let kind = match &e {
            StreamError::Reset(_) | StreamError::Stopped(_) => io::ErrorKind::ConnectionReset,
            StreamError::Over => io::ErrorKind::BrokenPipe,
            StreamError::Lost(Lost::Idle) => io::ErrorKind::TimedOut,
            StreamError::Lost(_) => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, e)
    }
}
