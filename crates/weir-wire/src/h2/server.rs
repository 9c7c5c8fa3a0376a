//! A client's connection: the requests that come on it, and its end.

use super::client::window_for;
use super::codec::{Bounds, LEFT_OUT_MOST, Role, TextCodec};
use super::flood::{Fault, FloodLimits};
use super::pulse::Pulse;
use super::stream::H2Stream;
use super::transport::{Came, Shared, Transport};
use crate::Stream;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// What a client may do on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most requests at one time. One more is refused with REFUSED_STREAM.
    pub streams: u32,
    /// Most bytes of a head. HTTP/2 counts 32 for each field beside its text (RFC 9113 §6.5.2); so clients are told twice
    /// this, and as much is decoded: `weir-h1` finds what is too large.
    pub header_bytes: u32,
    /// Most bytes of the heads of all requests under way. One more is refused with REFUSED_STREAM, unless it is the only one.
    pub heads: u32,
    /// Most frames of each kind.
    pub floods: FloodLimits,
}

/// A connection of a client.
///
/// Memory: 32 KiB for each stream that may be open, 2 MiB for those that grew and 256 KiB, all of it only where a client sends
/// bodies that nobody reads.
pub struct Server {
    shared: Shared,
    pulse: Pulse,
    /// How much was read and dropped behind the end.
    discarded: usize,
}

/// A request that has arrived.
pub struct Arrival(H2Stream);

impl Arrival {
    /// Writes its head as text; the rest is its stream.
    pub fn accept(self, text: &mut Vec<u8>) -> H2Stream {
        self.0.take_head(text);
        self.0
    }

    /// Refuses it with REFUSED_STREAM: the client may repeat it on another connection.
    pub fn refuse(mut self) {
        self.0.refuse();
    }
}

impl Server {
    /// Begins HTTP/2 on a connection. `early`: what was read of it already.
    ///
    /// # Errors
    /// When the client does not begin as it must, or is gone.
    pub async fn begin(stream: Stream, early: Vec<u8>, limits: &ServerLimits) -> Result<Self, Fault> {
        let bounds = Bounds {
            streams: limits.streams,
            text: limits.header_bytes.saturating_mul(2) as usize,
            heads: limits.heads as usize,
            window: window_for(stream.round_trip().unwrap_or_default()),
            floods: limits.floods,
        };
        let shared = Transport::new(stream, early, TextCodec::new(Role::Server, bounds));
        let server = Self { shared, pulse: Pulse::default(), discarded: 0 };
        server.shared.borrow_mut().take_early();
        poll_fn(|cx| server.shared.borrow_mut().poll_greeting(cx)).await?;
        Ok(server)
    }

    /// The next request. `None` when the connection has ended properly. Must be polled for anything on this connection to
    /// move, also while no request is wanted.
    ///
    /// # Errors
    /// Why the connection ended otherwise.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Arrival>, Fault>> {
        let transport = &mut *self.shared.borrow_mut();
        transport.drive(cx);
        loop {
            if let Some(slot) = transport.lend().next_arrival() {
                return Poll::Ready(Ok(Some(Arrival(H2Stream::server(&self.shared, slot, transport.tls)))));
            }
            let came = transport.poll_receive(cx);
            if came == Poll::Ready(Came::Arrivals) {
                continue;
            }
            let sent = transport.poll_send(cx);
            if let Some(fault) = transport.codec.ended() {
                // The client is told, if it takes that.
                return sent.map(|_| Err(fault));
            }
            if came == Poll::Ready(Came::End) {
                transport.codec.gone();
                return Poll::Ready(Ok(None));
            }
            match sent {
                Poll::Ready(Err(_)) => {
                    transport.codec.gone();
                    return Poll::Ready(Err(Fault::Closed));
                }
                Poll::Ready(Ok(())) if transport.codec.is_over() => {
                    return transport.poll_shutdown(cx).map(|_| Ok(None));
                }
                Poll::Ready(Ok(())) if came == Poll::Ready(Came::Full) => {} // there is room again
                _ => return Poll::Pending,
            }
        }
    }

    /// Ends the connection now, with GOAWAY: ENHANCE_YOUR_CALM to one who floods.
    pub fn end(&mut self, fault: Fault) {
        let transport = &mut *self.shared.borrow_mut();
        transport.lend().end(fault);
        transport.call();
    }

    /// Counts a request against the errors that the client may make: one that was answered, but should not have been sent.
    pub fn count_error(&mut self) {
        let transport = &mut *self.shared.borrow_mut();
        transport.lend().count_error();
        transport.call();
    }

    /// Why it ends, once it does.
    pub fn fault(&self) -> Option<Fault> {
        self.shared.borrow().codec.ended()
    }

    /// Takes no further requests and ends when the last one is over: GOAWAY in two steps (RFC 9113 §6.8).
    pub fn drain(&mut self) {
        let transport = &mut *self.shared.borrow_mut();
        transport.lend().leave();
        transport.call();
    }

    /// Looks for a sign of life, and asks for one after silence. To be called every [`LOOK`](super::LOOK) while requests are
    /// under way; false when the client is to be given up.
    pub fn is_alive(&mut self) -> bool {
        self.pulse.look(&mut self.shared.borrow_mut())
    }

    /// Since when the client takes nothing of what is sent to it.
    pub fn blocked(&self) -> Option<Instant> {
        self.shared.borrow().blocked()
    }

    /// Since when the client owes the rest of a head.
    pub fn head_since(&self) -> Option<Instant> {
        self.shared.borrow().codec.head_since()
    }

    /// Reads and drops what still comes after the end, so that the GOAWAY is not lost to a reset. Ready when the client has
    /// closed too, or has sent too much.
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
