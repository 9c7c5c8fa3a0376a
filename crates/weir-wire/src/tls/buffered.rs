//! A TLS connection whose buffers rustls keeps: to an upstream, or of a client whose ClientHello had to choose the
//! config first. tokio-rustls moves the records.

use crate::Socket;
use rustls::CommonState;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

/// A TLS connection in either role.
pub(super) struct Buffered {
    stream: TlsStream<Socket>,
    /// The error that followed bytes which a read returned, for the next read.
    failed: Option<io::Error>,
}

impl Buffered {
    pub(super) fn new(stream: impl Into<TlsStream<Socket>>) -> Self {
        Self { stream: stream.into(), failed: None }
    }

    /// Reads into the spare capacity of `buffer`. Unlike the stream's own read, it does not look for more when the
    /// socket has none.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        if let Some(e) = self.failed.take() {
            return Poll::Ready(Err(e));
        }
        let before = buffer.len();
        loop {
            let found = match Pin::new(&mut self.stream).poll_fill_buf(cx) {
                Poll::Ready(Ok(found)) => found,
                Poll::Pending if buffer.len() == before => return Poll::Pending,
                Poll::Ready(Err(e)) if buffer.len() == before => return Poll::Ready(Err(e)),
                Poll::Ready(Err(e)) => {
                    self.failed = Some(e);
                    break;
                }
                Poll::Pending => break,
            };
            let length = found.len().min(buffer.capacity() - buffer.len());
            buffer.extend_from_slice(found.get(..length).unwrap_or_default());
            Pin::new(&mut self.stream).consume(length);
            if length == 0 || buffer.len() == buffer.capacity() || !self.has_more() {
                break;
            }
        }
        Poll::Ready(Ok(buffer.len() - before))
    }

    /// Reads into a `ReadBuf`.
    pub(super) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.failed.take() {
            Some(e) => Poll::Ready(Err(e)),
            None => Pin::new(&mut self.stream).poll_read(cx, buffer),
        }
    }

    /// Whether another read could return bytes or the end, as far as we know without reading. rustls decrypts all
    /// records that have arrived when it reads from the socket. So without decrypted bytes, only the socket can have
    /// more.
    fn has_more(&self) -> bool {
        let (socket, session) = self.stream.get_ref();
        !session.wants_read() || socket.is_readable()
    }

    /// See [`Stream::may_read`](crate::Stream::may_read). Without it, each request is followed by a read in vain.
    pub(super) fn may_read(&self, cx: &Context<'_>) -> bool {
        let (socket, session) = self.stream.get_ref();
        self.failed.is_some() || !session.wants_read() || socket.may_read(cx)
    }

    /// See [`Stream::is_quiet`](crate::Stream::is_quiet). Session tickets may arrive while a connection is idle, so
    /// we feed arrived bytes to rustls, and only data or the end count. Runs unconstrained and with a fresh read
    /// quota. Otherwise a task that has read enough of this socket, or spent its budget, would have to wait and take
    /// that for silence.
    pub(super) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let (socket, session) = self.stream.get_ref();
        if self.failed.is_none() && session.wants_read() && socket.is_known_quiet() {
            return true; // as for `may_read`
        }
        socket.begin_run();
        let is_silent = pin!(tokio::task::unconstrained(self.stream.read(&mut [0]))).poll(cx).is_pending();
        is_silent && self.failed.is_none()
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    /// Writes part of two consecutive pieces.
    pub(super) fn poll_write_two(
        &mut self,
        cx: &mut Context<'_>,
        a: &[u8],
        b: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, &[IoSlice::new(a), IoSlice::new(b)])
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    pub(super) fn socket(&self) -> &Socket {
        self.stream.get_ref().0
    }

    pub(super) fn common(&self) -> &CommonState {
        self.stream.get_ref().1
    }

    /// The name that the peer asked for, if this is the server.
    pub(super) fn server_name(&self) -> Option<&str> {
        match &self.stream {
            TlsStream::Server(stream) => stream.get_ref().1.server_name(),
            TlsStream::Client(_) => None,
        }
    }
}
