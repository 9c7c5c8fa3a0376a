//! A client's connection: its incoming requests, and its end.

use super::session::{Session, Shared};
use super::stream::Stream;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Instant;
use weir_h3::codec::Handshake;
use weir_h3::{Bounds, Flood, Role, TextCodec, code};
use weir_quic::{Connection, Lost};
use weir_wire::{TlsInfo, websocket};

/// A client's connection.
#[derive(Debug)]
pub(super) struct Server {
    shared: Shared,
}

/// A request that has arrived.
#[derive(Debug)]
pub(super) struct Arrival(Stream);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The client is gone, or silent for too long.
    Closed,
    /// The client sent too many frames of QUIC that carry nothing.
    Packets,
    /// The client broke this rule of HTTP/3 or QPACK.
    Protocol(&'static str),
    /// The client sent too much of this.
    Flood(Flood),
}

impl Arrival {
    /// Writes the head as text and returns the stream.
    pub(super) fn accept(self, text: &mut Vec<u8>) -> Stream {
        self.0.take_head(text);
        self.0
    }

    /// Refuses the request: the client may send it again on another connection.
    pub(super) fn refuse(mut self) {
        self.0.reset(code::REQUEST_REJECTED);
    }
}

impl Server {
    /// Starts HTTP/3 on a connection whose handshake is done.
    pub(super) fn new(connection: Connection, bounds: Bounds) -> Self {
        let handshake = Handshake { key: websocket::key, accept: websocket::accept };
        // QUIC has no other version (RFC 9001 §4.2).
        let tls = Some(TlsInfo { version: "TLSv1.3", cipher: connection.cipher() });
        let codec = TextCodec::new(Role::Server, bounds, handshake);
        Self { shared: Session::new(connection, tls, codec) }
    }

    /// Returns the next request, or `None` when the connection has ended properly. Nothing on this connection moves
    /// unless you poll this, even when you want no further request.
    ///
    /// # Errors
    /// Why the connection ended otherwise.
    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Arrival>, Fault>> {
        let session = &mut *self.shared.borrow_mut();
        session.drive(cx);
        if !session.codec.has_arrivals() {
            session.turn(cx);
        }
        if let Some(slot) = session.codec.next_arrival() {
            return Poll::Ready(Ok(Some(Arrival(Stream::new(&self.shared, slot, session.tls)))));
        }
        if let Some(lost) = &session.lost {
            let is_proper = matches!(lost, Lost::Closed(code) if *code == code::NO_ERROR || *code == 0);
            return Poll::Ready(match lost {
                Lost::Flood => Err(Fault::Packets),
                _ if is_proper => Ok(None),
                _ => Err(Fault::Closed),
            });
        }
        if let Some(fault) = fault(session) {
            session.close();
            return Poll::Ready(Err(fault));
        }
        if session.is_over() {
            session.close();
            return Poll::Ready(Ok(None));
        }
        Poll::Pending
    }

    /// Ends the connection now.
    pub(super) fn end(&mut self) {
        let mut session = self.shared.borrow_mut();
        session.codec.end(code::NO_ERROR);
        session.call_always();
    }

    /// Ends the connection now because the client has done this too often.
    pub(super) fn end_flood(&mut self, flood: Flood) {
        let mut session = self.shared.borrow_mut();
        session.codec.end_flood(flood);
        session.call_always();
    }

    /// Counts an answered request that should not have been sent against the client's error limit.
    pub(super) fn count_error(&mut self) {
        let mut session = self.shared.borrow_mut();
        session.codec.count_error();
        session.call_always();
    }

    /// Why the connection ended, once it has.
    pub(super) fn fault(&self) -> Option<Fault> {
        fault(&self.shared.borrow())
    }

    /// Accepts no further requests and ends after the last one: GOAWAY in two steps (RFC 9114 §5.2).
    pub(super) fn drain(&mut self) {
        self.shared.borrow_mut().leave();
    }

    /// Sends a packet that the client must acknowledge. If it does not, the idle timeout ends the connection.
    pub(super) fn ping(&mut self) {
        self.shared.borrow().connection.ping();
    }

    /// Since when the client has left a head incomplete.
    pub(super) fn head_since(&self) -> Option<Instant> {
        self.shared.borrow().codec.head_since()
    }

    /// Abandons the requests whose heads have been incomplete since before this time.
    pub(super) fn abandon_heads(&mut self, since: Instant) {
        let mut session = self.shared.borrow_mut();
        session.codec.abandon_heads(since);
        session.call_always();
    }

    /// Frees what only requests need.
    pub(super) fn rest(&mut self) {
        self.shared.borrow_mut().rest();
    }

    /// The client's address: the last one that it has proved to receive packets at.
    pub(super) fn peer(&self) -> SocketAddr {
        self.shared.borrow().connection.peer()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.borrow_mut().close();
    }
}

fn fault(session: &Session) -> Option<Fault> {
    let ended = session.codec.ended()?;
    Some(match (ended.flood, ended.rule) {
        (Some(flood), _) => Fault::Flood(flood),
        (None, "") => Fault::Closed,
        (None, rule) => Fault::Protocol(rule),
    })
}
