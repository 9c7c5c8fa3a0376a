//! One request as the gateway sees it: a body as bytes, a response as a head in text and a body, an end.

use super::session::Shared;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use weir_fields::render;
use weir_h3::code;
use weir_wire::{Carried, TlsInfo};

/// One request of a client. Dropping it before both sides have ended resets it.
///
/// The first write is a whole head as HTTP/1.1 text, in one piece; interim responses may precede it. Written data
/// leaves when the connection's driver runs next.
pub(super) struct Stream {
    shared: Shared,
    slot: usize,
    /// The final head was written.
    is_headed: bool,
    /// We send nothing more.
    is_finished: bool,
    tls: Option<TlsInfo>,
}

impl Stream {
    pub(super) fn new(shared: &Shared, slot: usize, tls: Option<TlsInfo>) -> Self {
        Self { shared: Rc::clone(shared), slot, is_headed: false, is_finished: false, tls }
    }

    /// Takes the head of the request.
    pub(super) fn take_head(&self, text: &mut Vec<u8>) {
        self.shared.borrow_mut().codec.take_head(self.slot, text);
    }

    pub(super) fn reset(&mut self, code: u64) {
        let mut session = self.shared.borrow_mut();
        session.codec.reset(self.slot, code);
        session.call();
    }
}

impl Carried for Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let mut session = self.shared.borrow_mut();
        let read = session.codec.read(self.slot, buffer, cx);
        session.call();
        read.map_err(io::Error::from)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut session = self.shared.borrow_mut();
        if self.is_headed {
            let wrote = session.codec.send_data(self.slot, data, cx);
            session.call();
            return wrote.map_err(io::Error::from);
        }
        let Some(len) = render::end_of_head(data) else {
            return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
        };
        let head = data.get(..len).unwrap_or_default();
        let sent = ready!(session.codec.send_response(self.slot, head, cx));
        session.call();
        drop(session);
        self.is_headed = sent?;
        Poll::Ready(Ok(len))
    }

    fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        let mut session = self.shared.borrow_mut();
        let ended = session.codec.send_end(self.slot, trailers);
        session.call();
        ended
    }

    fn is_over(&self) -> bool {
        self.shared.borrow_mut().codec.is_over_at(self.slot)
    }

    fn take_trailers(&mut self) -> Vec<u8> {
        self.shared.borrow_mut().codec.take_trailers(self.slot)
    }

    fn forget_head(&self) {
        self.shared.borrow_mut().codec.forget_head(self.slot);
    }

    fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        self.shared.borrow_mut().codec.is_reset(self.slot, cx)
    }

    fn is_early(&self) -> bool {
        self.shared.borrow().connection.is_handshaking()
    }

    fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.borrow().connection.poll_connected(cx).map_err(io::Error::other)
    }

    fn refuse(&mut self) {
        self.reset(code::REQUEST_REJECTED);
    }

    fn abort(&mut self) {
        self.reset(code::INTERNAL);
    }

    fn tls(&self) -> Option<TlsInfo> {
        self.tls
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut session = self.shared.borrow_mut();
        session.codec.release(self.slot);
        if !session.codec.is_open() {
            session.call_always(); // it may be time to end the connection
        }
        session.call();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("slot", &self.slot).finish_non_exhaustive()
    }
}
