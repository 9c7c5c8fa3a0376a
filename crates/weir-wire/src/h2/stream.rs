//! One HTTP/2 stream as the gateway sees it: heads as text, the body as bytes, an end.

use super::client::Place;
use super::codec::Failed;
use super::frame::code;
use super::render;
use super::transport::{Shared, Transport};
use std::cell::RefMut;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// One stream, in either role. Dropped before both sides have ended, it is reset.
///
/// Writing begins with a whole head as HTTP/1.1 text, in one piece; interim responses may come before it. What is written
/// leaves when whoever drives the connection has its turn; an end before that is a mark on it, and no frame of its own.
pub struct H2Stream {
    shared: Shared,
    slot: usize,
    /// Of a connection to an upstream: keeps the count of its streams.
    place: Option<Place>,
    /// The head was written, or the last one where interim responses came before.
    headed: bool,
    /// Nothing more is sent.
    finished: bool,
    /// Why the request could not be sent: HTTP/2 can not carry it, or the peer takes none like it. Nobody will answer it.
    unsent: Option<io::ErrorKind>,
    tls: Option<crate::TlsInfo>,
}

impl H2Stream {
    pub(super) fn server(shared: &Shared, slot: usize, tls: Option<crate::TlsInfo>) -> Self {
        Self {
            shared: Rc::clone(shared),
            slot,
            place: None,
            headed: false,
            finished: false,
            unsent: None,
            tls,
        }
    }

    pub(super) fn client(shared: &Shared, place: Place) -> Self {
        let (slot, tls) = {
            let mut transport = shared.borrow_mut();
            (transport.codec.reserve(), transport.tls)
        };
        let mut stream = Self::server(shared, slot, tls);
        stream.place = Some(place);
        stream
    }

    fn transport(&self) -> RefMut<'_, Transport> {
        self.shared.borrow_mut()
    }

    fn failed(&self) -> Option<Failed> {
        self.transport().codec.failed(self.slot)
    }

    /// Whether nothing more of the message will come: its body is over, or there is none. What a tunnel carries is no body.
    pub fn is_over(&self) -> bool {
        self.transport().codec.is_over_at(self.slot)
    }

    /// Whether the peer said that it has not looked at the request: then it may be sent again, whatever its method
    /// (RFC 9113 §8.7).
    pub fn is_refused(&self) -> bool {
        let never_sent = self.unsent == Some(io::ErrorKind::ConnectionRefused);
        never_sent || matches!(self.failed(), Some(Failed::Refused { .. }))
    }

    /// Whether the peer reset the stream, and not the connection below.
    pub fn is_reset_by_peer(&self) -> bool {
        matches!(self.failed(), Some(Failed::Reset(_) | Failed::Refused { by_reset: true }))
    }

    /// The TLS facts of the connection below.
    pub const fn tls(&self) -> Option<crate::TlsInfo> {
        self.tls
    }

    /// The head of a request.
    pub(super) fn take_head(&self, text: &mut Vec<u8>) {
        self.transport().codec.take_head(self.slot, text);
    }

    /// The head of the request was freed: what it counted of what the connection may hold is there for others.
    pub fn forget_head(&self) {
        self.transport().codec.forget_head(self.slot);
    }

    /// Trailers that came behind the body, as field lines.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        self.transport().codec.take_trailers(self.slot)
    }

    /// Reads: from the upstream first a head as text, then the body. 0 is the end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.unsent {
            return Poll::Ready(Err(kind.into()));
        }
        let mut transport = self.transport();
        let read = transport.lend().read(self.slot, buffer, cx);
        transport.call();
        read.map_err(io::Error::from)
    }

    /// Writes: first a head, then body.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.headed {
            let mut transport = self.transport();
            let wrote = transport.lend().send_data(self.slot, data, cx);
            transport.call();
            return wrote.map_err(io::Error::from);
        }
        let Some(len) = render::end_of_head(data) else {
            return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
        };
        let head = data.get(..len).unwrap_or_default();
        match ready!(self.poll_write_head(cx, head)) {
            Ok(is_final) => {
                self.headed = is_final;
                Poll::Ready(Ok(len))
            }
            Err(e) => {
                if self.place.is_some() {
                    // Whoever waits for the response is told of it too: there will be none.
                    self.unsent = Some(e.kind());
                }
                Poll::Ready(Err(e))
            }
        }
    }

    /// Tells whether it was the final head.
    fn poll_write_head(&mut self, cx: &mut Context<'_>, head: &[u8]) -> Poll<io::Result<bool>> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut transport = self.transport();
        let codec = transport.lend();
        let outcome = if self.place.is_some() {
            ready!(codec.may_begin(self.slot, cx))?;
            codec.send_request(self.slot, head, scheme).map(|()| true)
        } else {
            ready!(codec.send_response(self.slot, head, cx))
        };
        transport.call();
        Poll::Ready(outcome)
    }

    /// Ends the message. A request for a tunnel leaves the stream open: what follows is the tunnel's.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if self.place.is_some() && self.transport().codec.asked_for_tunnel(self.slot) {
            return Ok(());
        }
        self.end(trailers)
    }

    /// Ends the stream properly.
    pub(crate) fn end(&mut self, trailers: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let mut transport = self.transport();
        let ended = transport.lend().send_end(self.slot, trailers);
        transport.call();
        ended
    }

    /// Whether the peer has given the stream up; wakes the task when it does.
    pub(crate) fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        self.transport().codec.is_reset(self.slot, cx)
    }

    /// Refuses a request that was not begun: the client may repeat it on another connection.
    pub fn refuse(&mut self) {
        let mut transport = self.transport();
        transport.lend().reset(self.slot, code::REFUSED);
        transport.call();
    }

    /// Resets the stream: for a response that was cut short.
    pub(crate) fn abort(&mut self) {
        let mut transport = self.transport();
        transport.lend().reset(self.slot, code::INTERNAL);
        transport.call();
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        let mut transport = self.shared.borrow_mut();
        transport.lend().release(self.slot);
        if self.place.as_ref().is_some_and(Place::is_last_of_all) || !transport.codec.is_open() {
            transport.call_always(); // it may be time to end the connection
        }
        transport.call();
    }
}

impl fmt::Debug for H2Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.place.is_some() { "client" } else { "server" };
        f.debug_struct("H2Stream").field("role", &role).field("slot", &self.slot).finish_non_exhaustive()
    }
}
