//! The connection after a protocol switch: bytes in both directions until both sides have ended.

use crate::Stream;
use std::io;
use std::task::{Context, Poll, ready};

/// The state of both directions of a tunnel.
#[derive(Debug, Default)]
pub struct Tunnel {
    up: Pipe,
    down: Pipe,
    /// The upstream accepts no more data. We still pass on what it sent last.
    refused: Option<io::Error>,
}

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
    /// half-close.
    ///
    /// # Errors
    /// The error of either side. An error in writing to the upstream is held back until the client has everything the
    /// upstream sent.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        upstream: &mut Stream,
    ) -> Poll<io::Result<()>> {
        let up = match &self.refused {
            Some(_) => Poll::Ready(()),
            None => match self.up.poll(cx, client, upstream) {
                Poll::Ready(Err(PipeError::Read(e))) => return Poll::Ready(Err(e)),
                Poll::Ready(Err(PipeError::Write(e))) => {
                    self.refused = Some(e);
                    Poll::Ready(())
                }
                Poll::Ready(Ok(())) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            },
        };
        let down = match self.down.poll(cx, upstream, client) {
            Poll::Ready(Err(PipeError::Read(e) | PipeError::Write(e))) => return Poll::Ready(Err(e)),
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        };
        if up.is_pending() || down.is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.refused.take().map_or(Ok(()), Err))
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
            self.buffer.clear();
            self.written = 0;
            match from.poll_read(cx, &mut self.buffer).map_err(PipeError::Read)? {
                Poll::Ready(n) => self.ended = n == 0,
                Poll::Pending => {
                    self.buffer = Vec::new(); // an idle WebSocket holds no buffer
                    return Poll::Pending;
                }
            }
        }
    }
}
