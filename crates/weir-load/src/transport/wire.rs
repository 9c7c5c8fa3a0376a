//! A connection that carries several requests at a time, whatever its protocol: bytes of HTTP/2 over a transport, or
//! HTTP/3 over QUIC.

use super::failure::Failure;
use super::h2::connection::Connection as H2;
use super::h2::counter::{Answer, Counter};
use super::h2::request::Rendered;
#[cfg(feature = "http3")]
use super::h3::connection::Connection as H3;
use super::reader::Response;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use weir_wire::Transport;

/// The connection, and what carries it.
#[derive(Debug)]
pub(crate) enum Wire {
    H2(Transport, Box<H2>),
    #[cfg(feature = "http3")]
    H3(Box<H3>),
}

/// Calls a method of either connection.
macro_rules! either {
    ($wire:expr, $connection:ident => $call:expr) => {
        match $wire {
            Wire::H2(_, $connection) => $call,
            #[cfg(feature = "http3")]
            Wire::H3($connection) => $call,
        }
    };
}

impl Wire {
    /// Begins HTTP/2 on a transport that chose it.
    pub(crate) fn h2(transport: Transport, counter: Counter) -> Self {
        Self::H2(transport, Box::new(H2::new(counter)))
    }

    /// Begins HTTP/3, on which `width` requests at a time may be wanted.
    #[cfg(feature = "http3")]
    pub(crate) fn h3(quic: weir_quic::Connection, counter: Counter, width: usize) -> Self {
        Self::H3(Box::new(H3::new(quic, counter, width)))
    }

    /// Collects the responses.
    pub(crate) fn counter(&mut self) -> &mut Counter {
        either!(self, connection => connection.counter())
    }

    /// How many waiting requests may begin here now. If none may any more, returns all, so that they go elsewhere.
    pub(crate) fn room(&self) -> usize {
        either!(self, connection => connection.room())
    }

    /// How many concurrent streams the target allows, if it is known and matters.
    pub(crate) fn allowed(&self) -> Option<u64> {
        either!(self, connection => connection.allowed())
    }

    /// Whether no further request may begin.
    pub(crate) fn is_closing(&self) -> bool {
        either!(self, connection => connection.is_closing())
    }

    /// Lets no further request begin.
    pub(crate) fn close(&mut self) {
        either!(self, connection => connection.close());
    }

    /// Whether no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        either!(self, connection => connection.is_idle())
    }

    /// Tells the target that the connection ends.
    pub(crate) fn leave(&mut self) {
        either!(self, connection => connection.leave());
    }

    /// Ends all requests without a response; returns their keys and the data received for them.
    pub(crate) fn abandon(&mut self) -> Vec<(usize, Response)> {
        either!(self, connection => connection.abandon())
    }

    /// Bytes read since the last call that belong to no response.
    pub(crate) fn take_overhead(&mut self) -> u64 {
        either!(self, connection => connection.take_overhead())
    }

    /// Begins a request and returns its stream. `body` is sent from the given offset.
    pub(crate) fn request(
        &mut self,
        key: usize,
        head: &Rendered,
        body: Option<(&Arc<[u8]>, usize)>,
        is_head: bool,
    ) -> u64 {
        match self {
            Self::H2(_, connection) => u64::from(connection.request(key, head, body, is_head)),
            #[cfg(feature = "http3")]
            Self::H3(connection) => connection.request(key, head, body, is_head),
        }
    }

    /// Whether part of a request is unsent.
    pub(crate) fn is_sending(&self, id: u64) -> bool {
        match self {
            Self::H2(_, connection) => u32::try_from(id).is_ok_and(|id| connection.is_sending(id)),
            #[cfg(feature = "http3")]
            Self::H3(connection) => connection.is_sending(id),
        }
    }

    /// Whether bytes wait for the transport.
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Self::H2(_, connection) => !connection.pending().is_empty(),
            #[cfg(feature = "http3")]
            Self::H3(_) => false,
        }
    }

    /// Cancels a request; returns what was received of its response.
    pub(crate) fn cancel(&mut self, id: u64) -> Response {
        match self {
            Self::H2(_, connection) => u32::try_from(id).map(|id| connection.cancel(id)).unwrap_or_default(),
            #[cfg(feature = "http3")]
            Self::H3(connection) => connection.cancel(id),
        }
    }

    /// Writes all pending bytes. With HTTP/3 it is ready at once: what QUIC does not take waits by request.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::H2(transport, connection) => poll_write_h2(transport, connection, cx),
            #[cfg(feature = "http3")]
            Self::H3(connection) => {
                connection.write();
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Reads what has arrived, with the time of `now`, and appends the answers that it completes to `answers`.
    ///
    /// # Errors
    /// Why the connection ended. Requests in flight are left to [`Self::abandon`].
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Vec<u8>,
        now: impl FnOnce() -> u64,
        answers: &mut Vec<Answer>,
    ) -> Poll<Result<(), Failure>> {
        match self {
            Self::H2(transport, connection) => {
                scratch.clear();
                match transport.poll_read(cx, scratch) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(0)) => {
                        let text = "the connection was closed before a response";
                        Poll::Ready(Err(Failure::Reset(text.to_owned())))
                    }
                    Poll::Ready(Err(e)) => Poll::Ready(Err(Failure::of_read(e))),
                    Poll::Ready(Ok(_)) => {
                        Poll::Ready(connection.feed(scratch, now(), answers).map_err(Failure::Protocol))
                    }
                }
            }
            #[cfg(feature = "http3")]
            Self::H3(connection) => connection.poll_read(cx, scratch, now, answers),
        }
    }
}

/// Writes all pending bytes of an HTTP/2 connection.
pub(super) fn poll_write_h2(
    transport: &mut Transport,
    connection: &mut H2,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !connection.pending().is_empty() {
        match transport.poll_write(cx, connection.pending()) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(n)) => connection.sent(n),
            Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
            Poll::Pending => return Poll::Pending,
        }
    }
    transport.poll_flush(cx)
}
