//! A client's connection: its incoming requests, and its end.

use super::codec::{Bounds, LEFT_OUT_MOST, Role, TextCodec};
use super::flood::{Fault, FloodLimits};
use super::pulse::Pulse;
use super::session::{Came, Session, Shared};
use super::stream::H2Stream;
use super::window_for;
use crate::Transport;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// Limits for a client on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most concurrent requests. We refuse more with REFUSED_STREAM.
    pub streams: u32,
    /// Most bytes of a head. HTTP/2 adds 32 bytes per field (RFC 9113 §6.5.2), so we announce and decode twice this;
    /// `weir-h1` then detects heads that are too large.
    pub header_bytes: u32,
    /// Most head bytes of all requests in progress. A request beyond that gets REFUSED_STREAM, unless it is the only
    /// one.
    pub heads: u32,
    /// Most frames of each kind.
    pub floods: FloodLimits,
}

/// A client's connection.
///
/// Memory: 32 KiB per stream that may be open, 2 MiB for windows that grew, and 256 KiB. That much is used only if a
/// client sends bodies that nobody reads. Heads that repeat hold 45 KiB more at worst, and 2 KiB if they are usual.
pub struct Server {
    shared: Shared,
    pulse: Pulse,
    /// Bytes read and discarded after the end.
    discarded: usize,
}

/// A request that has arrived.
pub struct Arrival(H2Stream);

impl Arrival {
    /// Writes the head as text and returns the stream.
    pub fn accept(self, text: &mut Vec<u8>) -> H2Stream {
        self.0.take_head(text);
        self.0
    }

    /// The id of the text that the head is, if the connection has brought the same block of fields before; else 0.
    pub fn repeats(&self) -> u32 {
        self.0.repeats()
    }

    /// Refuses the request with REFUSED_STREAM: the client may retry it on another connection.
    pub fn refuse(mut self) {
        self.0.refuse();
    }
}

impl Server {
    /// Starts HTTP/2 on a connection. `early` holds bytes that were already read.
    ///
    /// # Errors
    /// When the client's preface is wrong, or the client is gone.
    pub async fn begin(transport: Transport, early: Vec<u8>, limits: &ServerLimits) -> Result<Self, Fault> {
        let bounds = Bounds {
            streams: limits.streams,
            text: limits.header_bytes.saturating_mul(2) as usize,
            heads: limits.heads as usize,
            window: window_for(transport.socket().round_trip().unwrap_or_default()),
            floods: limits.floods,
        };
        let shared = Session::new(transport, early, TextCodec::new(Role::Server, bounds));
        let server = Self { shared, pulse: Pulse::default(), discarded: 0 };
        server.shared.borrow_mut().take_early();
        poll_fn(|cx| server.shared.borrow_mut().poll_greeting(cx)).await?;
        Ok(server)
    }

    /// Returns the next request, or `None` when the connection has ended properly. Nothing on this connection moves
    /// unless you poll this, even when you want no further request.
    ///
    /// # Errors
    /// Why the connection ended otherwise.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Arrival>, Fault>> {
        let session = &mut *self.shared.borrow_mut();
        session.drive(cx);
        loop {
            if let Some(slot) = session.codec.next_arrival() {
                let stream = H2Stream::server(&self.shared, slot, session.tls.is_some());
                return Poll::Ready(Ok(Some(Arrival(stream))));
            }
            session.lend();
            let came = session.poll_receive(cx);
            if came == Poll::Ready(Came::Arrivals) {
                continue;
            }
            let sent = session.poll_send(cx);
            if let Some(fault) = session.codec.ended() {
                // The client gets the GOAWAY, if it still reads.
                return sent.map(|_| Err(fault));
            }
            if came == Poll::Ready(Came::End) {
                session.codec.gone();
                return Poll::Ready(Ok(None));
            }
            match sent {
                Poll::Ready(Err(_)) => {
                    session.codec.gone();
                    return Poll::Ready(Err(Fault::Closed));
                }
                Poll::Ready(Ok(())) if session.codec.is_over() => {
                    return session.poll_shutdown(cx).map(|_| Ok(None));
                }
                Poll::Ready(Ok(())) if came == Poll::Ready(Came::Full) => {} // there is room again
                _ => return Poll::Pending,
            }
        }
    }

    /// Ends the connection now with GOAWAY; a flooding client gets ENHANCE_YOUR_CALM.
    pub fn end(&mut self, fault: Fault) {
        let session = &mut *self.shared.borrow_mut();
        session.lend().end(fault);
        session.call();
    }

    /// Counts an answered request that should not have been sent against the client's error limit.
    pub fn count_error(&mut self) {
        let session = &mut *self.shared.borrow_mut();
        session.lend().count_error();
        session.call();
    }

    /// Why the connection ended, once it has.
    pub fn fault(&self) -> Option<Fault> {
        self.shared.borrow().codec.ended()
    }

    /// No request has been under way for a while: frees what only requests need.
    pub fn rest(&mut self) {
        self.shared.borrow_mut().rest();
    }

    /// Accepts no further requests and ends after the last one: GOAWAY in two steps (RFC 9113 §6.8).
    pub fn drain(&mut self) {
        let session = &mut *self.shared.borrow_mut();
        session.lend().leave();
        session.call();
    }

    /// Checks whether the client is alive, and sends a PING after a silence. Call it every [`LOOK`](super::LOOK)
    /// while requests are in progress. False means: give the client up.
    pub fn is_alive(&mut self) -> bool {
        self.pulse.look(&mut self.shared.borrow_mut())
    }

    /// Since when the client has accepted no data.
    pub fn blocked(&self) -> Option<Instant> {
        self.shared.borrow().blocked()
    }

    /// Since when the client has left a head incomplete.
    pub fn head_since(&self) -> Option<Instant> {
        self.shared.borrow().codec.head_since()
    }

    /// Reads and discards what still arrives after the end, so that a reset does not destroy the GOAWAY. Ready when
    /// the client has closed too, or has sent too much.
    pub fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = Vec::with_capacity(16 * 1024);
        while self.discarded < LEFT_OUT_MOST {
            scratch.clear();
            match ready!(self.shared.borrow_mut().poll_drop(&mut scratch, cx)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(n) => self.discarded += n,
            }
        }
        Poll::Ready(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.borrow_mut().close();
    }
}
