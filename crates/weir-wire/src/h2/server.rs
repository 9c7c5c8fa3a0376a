//! A client's connection: the requests that come on it, and its end.

use super::client::window_for;
use super::flood::FloodLimits;
use super::pulse::Pulse;
use super::stream::H2Stream;
use super::transport::{Port, Transport};
use super::{Fault, Flood, PREFACE, SEND_BYTES, head};
use crate::{Stream, websocket};
use bytes::Bytes;
use h2::{Reason, server};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// What a client may do on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most requests at one time. One more is refused with REFUSED_STREAM.
    pub streams: u32,
    /// Most bytes of a head. The crate counts 32 for each field beside its text (RFC 9113 §6.5.2), and refuses what is
    /// larger without a word to anybody; so it is given twice this, and `weir-h1` finds what is too large.
    pub header_bytes: u32,
    /// Most frames of each kind.
    pub floods: FloodLimits,
}

/// How much of all bodies together may be on its way to us unread: a client of which nothing is read costs no more. The
/// window of one stream is [`window_for`] the client's distance: those that an upstream does not read must not fill this
/// one, or they would stall the others.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Most bytes that are read and dropped behind a GOAWAY.
const DISCARDED_BYTES: usize = 4 * 1024 * 1024;

/// A connection of a client.
pub struct Server {
    connection: server::Connection<Port, Bytes>,
    transport: Rc<RefCell<Transport>>,
    pulse: Pulse,
    fault: Option<Fault>,
    tls: Option<crate::TlsFacts>,
}

/// A request that has arrived.
pub struct Arrival {
    request: http::Request<h2::RecvStream>,
    respond: server::SendResponse<Bytes>,
    tls: Option<crate::TlsFacts>,
}

impl Arrival {
    /// Writes its head as text; the rest is its stream.
    pub fn accept(self, text: &mut Vec<u8>) -> H2Stream {
        let (mut parts, recv) = self.request.into_parts();
        let tunnel = head::websocket(&parts).is_some();
        if tunnel {
            // What follows is the tunnel's. An upstream that was told of a body would take the next request for it.
            parts.headers.remove(http::header::CONTENT_LENGTH);
        }
        let key = tunnel.then(websocket::key);
        head::write_request(&parts, key.as_deref(), text);
        let length = parts.headers.get(http::header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        H2Stream::server(self.respond, recv, length, tunnel, self.tls)
    }
}

impl Server {
    /// Begins HTTP/2 on a connection. `early`: what was read of it already.
    ///
    /// # Errors
    /// When the client does not begin as it must, or is gone.
    pub async fn begin(stream: Stream, early: Vec<u8>, limits: &ServerLimits) -> Result<Self, Fault> {
        let tls = stream.tls();
        let window = window_for(stream.round_trip().unwrap_or_default());
        let transport = Transport::new(stream, early, limits.floods, (PREFACE.len(), 0));
        let port = Port(Rc::clone(&transport));
        let mut builder = server::Builder::new();
        builder
            .initial_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(limits.header_bytes.saturating_mul(2))
            .max_send_buffer_size(SEND_BYTES)
            // The meter counts by time; the crate would over the life of a connection.
            .max_pending_accept_reset_streams(limits.floods.resets as usize)
            .max_local_error_reset_streams(None)
            // What is still on its way to a stream that was reset is no error while it is remembered.
            .max_concurrent_reset_streams(limits.streams as usize)
            .enable_connect_protocol();
        let mut handshake = pin!(builder.handshake(port));
        let connection = poll_fn(|cx| {
            let done = handshake.as_mut().poll(cx);
            // Our SETTINGS go out whether the preface is here or not.
            let sent = transport.borrow_mut().poll_send(cx);
            match (done, sent) {
                (Poll::Ready(Ok(connection)), _) => Poll::Ready(Ok(connection)),
                (Poll::Ready(Err(e)), _) => Poll::Ready(Err(Fault::of(&e))),
                (Poll::Pending, Poll::Ready(Err(_))) => Poll::Ready(Err(Fault::Closed)),
                (Poll::Pending, _) => Poll::Pending,
            }
        });
        let mut connection: server::Connection<Port, Bytes> = connection.await?;
        let pulse = Pulse::new(connection.ping_pong());
        Ok(Self { connection, transport, pulse, fault: None, tls })
    }

    /// The next request. `None` when the connection has ended properly. Must be polled for anything on this connection to
    /// move, also while no request is wanted.
    ///
    /// # Errors
    /// Why the connection ended otherwise.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Arrival>, Fault>> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    return Poll::Ready(Ok(Some(Arrival { request, respond, tls: self.tls })));
                }
                Poll::Ready(Some(Err(e))) => {
                    // The crate may have noticed too, in its own words.
                    let flood = self.flood().map(Fault::Flood);
                    return Poll::Ready(Err(self.fault.or(flood).unwrap_or_else(|| Fault::of(&e))));
                }
                Poll::Ready(None) => return Poll::Ready(self.fault.map_or(Ok(None), Err)),
                Poll::Pending => {}
            }
            if let Some(flood) = self.flood()
                && self.fault.is_none()
            {
                self.end(Fault::Flood(flood));
                continue;
            }
            let sent = self.transport.borrow_mut().poll_send(cx);
            if let Poll::Ready(Err(_)) = sent {
                return Poll::Ready(Err(self.fault.unwrap_or(Fault::Closed)));
            }
            self.pulse.poll(cx);
            return Poll::Pending;
        }
    }

    /// Ends the connection now, with GOAWAY: ENHANCE_YOUR_CALM to one who floods.
    pub fn end(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.connection.abrupt_shutdown(match fault {
            Fault::Flood(_) => Reason::ENHANCE_YOUR_CALM,
            Fault::Protocol => Reason::PROTOCOL_ERROR,
            Fault::Closed => Reason::NO_ERROR,
        });
    }

    /// Why it ends, once it does.
    pub const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Takes no further requests and ends when the last one is over: GOAWAY in two steps (RFC 9113 §6.8).
    pub fn drain(&mut self) {
        self.connection.graceful_shutdown();
    }

    /// Looks for a sign of life, and asks for one after silence. To be called every [`LOOK`](super::LOOK) while requests are
    /// under way; false when the client is to be given up.
    pub fn is_alive(&mut self) -> bool {
        self.pulse.look(&mut self.transport.borrow_mut())
    }

    /// Since when the client takes nothing of what is sent to it.
    pub fn blocked(&self) -> Option<Instant> {
        self.transport.borrow().blocked()
    }

    /// Since when the client owes the rest of a head.
    pub fn head_since(&self) -> Option<Instant> {
        self.transport.borrow().meter.head_since()
    }

    fn flood(&self) -> Option<Flood> {
        self.transport.borrow().meter.flood()
    }

    /// Reads and drops what still comes after the end, so that the GOAWAY is not lost to a reset. Ready when the client has
    /// closed too, or has sent too much.
    pub fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = Vec::with_capacity(16 * 1024);
        let mut dropped = 0;
        while dropped < DISCARDED_BYTES {
            scratch.clear();
            let read: io::Result<usize> =
                ready!(self.transport.borrow_mut().stream.poll_read(cx, &mut scratch));
            match read {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(n) => dropped += n,
            }
        }
        Poll::Ready(())
    }
}
