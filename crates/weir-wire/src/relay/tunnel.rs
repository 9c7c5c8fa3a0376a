//! Bytes in both directions until both sides have ended: the connection after a protocol switch, and every connection
//! of a listener with `tcp`.

use super::BUFFER_BYTES;
use crate::Stream;
use std::io;
use std::mem;
use std::task::{Context, Poll, ready};

/// Smallest buffer to read into.
const LEAST_BYTES: usize = 16 * 1024;

/// The state of both directions of a tunnel.
#[derive(Debug, Default)]
pub struct Tunnel {
    up: Pipe,
    down: Pipe,
    /// The upstream accepts no more data. We still pass on what it sent last.
    refused: Option<io::Error>,
}

/// Which side broke a tunnel off.
#[derive(Debug)]
pub enum TunnelError {
    /// The client.
    Client(io::Error),
    /// The upstream.
    Upstream(io::Error),
}

/// One direction. It holds at most one buffer, and none while the sender is silent.
#[derive(Debug, Default)]
struct Pipe {
    buffer: Vec<u8>,
    written: usize,
    ended: bool,
    closed: bool,
    total: u64,
}

/// The side of a pipe that failed.
enum PipeError {
    Read(io::Error),
    Write(io::Error),
}

impl Tunnel {
    /// A tunnel. The bytes that followed the two heads go first.
    pub fn new(from_client: Vec<u8>, from_upstream: Vec<u8>) -> Self {
        let pipe = |buffer| Pipe { buffer, written: 0, ended: false, closed: false, total: 0 };
        Self { up: pipe(from_client), down: pipe(from_upstream), refused: None }
    }

    /// Moves bytes in both directions. Ready when both have ended; passes the end of one direction on as a
    /// half-close. `lent` is a buffer to read into; what it holds is lost. A pipe keeps it only while its receiver is
    /// slow.
    ///
    /// # Errors
    /// The error of either side. An error in writing to the upstream is held back until the client has everything the
    /// upstream sent.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        upstream: &mut Stream,
        lent: &mut Vec<u8>,
    ) -> Poll<Result<(), TunnelError>> {
        let up = match &self.refused {
            Some(_) => Poll::Ready(()),
            None => match self.up.poll(cx, client, upstream, lent) {
                Poll::Ready(Err(PipeError::Read(e))) => return Poll::Ready(Err(TunnelError::Client(e))),
                Poll::Ready(Err(PipeError::Write(e))) => {
                    self.refused = Some(e);
                    Poll::Ready(())
                }
                Poll::Ready(Ok(())) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            },
        };
        let down = match self.down.poll(cx, upstream, client, lent) {
            Poll::Ready(Err(PipeError::Read(e))) => return Poll::Ready(Err(TunnelError::Upstream(e))),
            Poll::Ready(Err(PipeError::Write(e))) => return Poll::Ready(Err(TunnelError::Client(e))),
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        };
        if up.is_pending() || down.is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.refused.take().map_or(Ok(()), |e| Err(TunnelError::Upstream(e))))
    }

    /// Bytes moved from the client and from the upstream.
    pub const fn moved(&self) -> (u64, u64) {
        (self.up.total, self.down.total)
    }
}

impl Pipe {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        lent: &mut Vec<u8>,
    ) -> Poll<Result<(), PipeError>> {
        loop {
            while let Some(rest @ [_, ..]) = self.buffer.get(self.written..) {
                let n = ready!(to.poll_write(cx, rest)).map_err(PipeError::Write)?;
                if n == 0 {
                    return Poll::Ready(Err(PipeError::Write(io::ErrorKind::WriteZero.into())));
                }
                self.written += n;
                self.total += n as u64;
            }
            ready!(to.poll_flush(cx)).map_err(PipeError::Write)?;
            if self.ended {
                if !self.closed {
                    ready!(to.poll_shutdown(cx)).map_err(PipeError::Write)?;
                    self.closed = true;
                }
                return Poll::Ready(Ok(()));
            }
            if !self.may_read(cx, from, lent) {
                return Poll::Pending;
            }
            match from.poll_read(cx, &mut self.buffer).map_err(PipeError::Read)? {
                Poll::Ready(n) => self.ended = n == 0,
                Poll::Pending => {
                    self.give_back(lent);
                    return Poll::Pending;
                }
            }
        }
    }

    /// Whether there may be something to read. If so, there is an empty buffer for it, larger if the last one was
    /// filled; if not, there is none.
    fn may_read(&mut self, cx: &Context<'_>, from: &Stream, lent: &mut Vec<u8>) -> bool {
        let filled = self.written > 0 && self.written == self.buffer.capacity();
        self.buffer.clear();
        self.written = 0;
        if !from.may_read(cx) {
            self.give_back(lent);
            return false;
        }
        if self.buffer.capacity() == 0 {
            lent.clear();
            mem::swap(&mut self.buffer, lent);
            // A lent buffer may have held a short head. A multiplexed stream says itself how much it has.
            if self.buffer.capacity() < LEAST_BYTES && !from.is_multiplexed() {
                self.buffer.reserve_exact(LEAST_BYTES);
            }
        }
        if filled && self.buffer.capacity() < BUFFER_BYTES {
            self.buffer.reserve_exact(BUFFER_BYTES);
        }
        true
    }

    fn give_back(&mut self, lent: &mut Vec<u8>) {
        let buffer = mem::take(&mut self.buffer);
        if buffer.capacity() > lent.capacity() {
            *lent = buffer;
        }
    }
}
