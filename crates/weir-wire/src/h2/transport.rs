//! Between the crate and the socket: one buffer for what all streams write, and the frame counts.
//!
//! The crate flushes after every large DATA frame; over TLS each flush would be a record and a system call. So flushes are
//! ignored, and whoever drives the connection sends what was gathered once all streams that were ready have written
//! ([`Transport::poll_send`]).

use super::flood::{FloodLimits, Meter};
use crate::Stream;
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes gathered before the crate must wait for the socket.
const GATHERED_BYTES: usize = 64 * 1024;

thread_local! {
    /// The buffer of whoever sent last on this core: at most [`GATHERED_BYTES`] and a frame.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A socket and what lies on it.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) stream: Stream,
    /// Read before it was known that this is HTTP/2.
    early: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    pub(super) meter: Meter,
    /// Something was received since it was last asked.
    heard: bool,
    /// The same of what was sent.
    spoke: bool,
    /// Since when the peer takes nothing.
    blocked: Option<Instant>,
}

/// What the crate reads from and writes to.
#[derive(Debug)]
pub(super) struct Port(pub(super) Rc<RefCell<Transport>>);

impl Transport {
    /// `preface`: as for [`Meter::new`].
    pub(super) fn new(
        stream: Stream,
        early: Vec<u8>,
        limits: FloodLimits,
        preface: (usize, usize),
    ) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            stream,
            early,
            out: Vec::new(),
            written: 0,
            meter: Meter::new(limits, preface),
            heard: false,
            spoke: false,
            blocked: None,
        }))
    }

    /// Sends what was gathered.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest @ [_, ..]) = self.out.get(self.written..) {
            match self.stream.poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.written += n;
                    self.blocked = None;
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {
                    self.blocked.get_or_insert_with(Instant::now);
                    return Poll::Pending;
                }
            }
        }
        if self.written > 0 {
            self.written = 0;
            // An idle connection holds no buffer; the next one that sends finds this one grown.
            let mut out = std::mem::take(&mut self.out);
            out.clear();
            if out.capacity() <= 2 * GATHERED_BYTES {
                SPARE.set(out);
            }
        }
        self.stream.poll_flush(cx)
    }

    /// Whether something was received since the last question.
    pub(super) const fn take_heard(&mut self) -> bool {
        std::mem::replace(&mut self.heard, false)
    }

    /// Whether something was sent since the last question and nothing was received after it.
    pub(super) const fn take_spoke(&mut self) -> bool {
        std::mem::replace(&mut self.spoke, false)
    }

    /// Since when the peer takes nothing of what is sent to it.
    pub(super) const fn blocked(&self) -> Option<Instant> {
        self.blocked
    }

    fn gather(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.out.len() - self.written >= GATHERED_BYTES {
            ready!(self.poll_send(cx))?;
        }
        if self.written >= GATHERED_BYTES {
            // A socket that takes little at a time never lets the buffer become empty: what has left makes room.
            self.out.drain(..self.written);
            self.written = 0;
        }
        self.meter.send(data);
        self.spoke = true;
        if self.out.capacity() == 0 {
            self.out = SPARE.take();
        }
        self.out.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }
}

impl AsyncRead for Port {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let transport = &mut *self.0.borrow_mut();
        if transport.meter.flood().is_some() {
            return Poll::Pending; // nothing more is read from an attacker: whoever drives the connection ends it
        }
        let before = buf.filled().len();
        if transport.early.is_empty() {
            ready!(transport.stream.poll_read_buf(cx, buf))?;
        } else {
            let len = transport.early.len().min(buf.remaining());
            buf.put_slice(&transport.early[..len]);
            transport.early.drain(..len);
        }
        let fresh = buf.filled().get(before..).unwrap_or_default();
        if !fresh.is_empty() {
            (transport.heard, transport.spoke) = (true, false);
        }
        transport.meter.receive(fresh);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Port {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().gather(cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let transport = &mut *self.0.borrow_mut();
        let mut total = 0;
        for piece in pieces.iter().filter(|p| !p.is_empty()) {
            match transport.gather(cx, piece) {
                Poll::Ready(Ok(n)) => total += n,
                _ if total > 0 => break,
                other => return other,
            }
        }
        Poll::Ready(Ok(total))
    }

    /// Makes the crate hand over a frame header and its payload in one call, without copying them together before.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // see the module's page
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &mut *self.0.borrow_mut();
        ready!(transport.poll_send(cx))?;
        transport.stream.poll_shutdown(cx)
    }
}
