//! The stream below a connection: a `weir_wire::Transport` with tokio's traits, which the crate `h2` requires, or the
//! memory that an HTTP/2 page writes to. Counts the bytes of clients for every protocol.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::site::Cells;

/// A bidirectional byte stream.
#[derive(Debug)]
pub(crate) enum Stream {
    /// To our own HTTP/2 code, which passes a response on.
    Memory(DuplexStream),
    /// To a client.
    Wire(Counted),
}

/// A client's connection, with the counters for its bytes.
#[derive(Debug)]
pub(crate) struct Counted {
    transport: weir_wire::Transport,
    cells: Arc<Cells>,
}

impl Stream {
    pub(crate) const fn wire(transport: weir_wire::Transport, cells: Arc<Cells>) -> Self {
        Self::Wire(Counted { transport, cells })
    }

    /// Whether the client chose HTTP/2 in the TLS handshake.
    pub(crate) fn chose_h2(&self) -> bool {
        matches!(self, Self::Wire(s) if s.transport.chose_h2())
    }

    /// Turns the coming close into a reset. For HTTP/2, the stream of a page that ends early is reset anyway.
    pub(crate) fn abort(&mut self) {
        match self {
            Self::Memory(_) => {}
            Self::Wire(s) => s.transport.abort(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Memory(s) => Pin::new(s).poll_read(cx, buf),
            Self::Wire(s) => {
                let before = buf.filled().len();
                ready!(s.transport.poll_read_buf(cx, buf))?;
                s.cells.received.add((buf.filled().len() - before) as u64);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Memory(s) => Pin::new(s).poll_write(cx, bytes),
            Self::Wire(s) => {
                let n = ready!(s.transport.poll_write(cx, bytes))?;
                s.cells.sent.add(n as u64);
                Poll::Ready(Ok(n))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Memory(s) => Pin::new(s).poll_flush(cx),
            Self::Wire(s) => s.transport.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Memory(s) => Pin::new(s).poll_shutdown(cx),
            Self::Wire(s) => s.transport.poll_shutdown(cx),
        }
    }
}
