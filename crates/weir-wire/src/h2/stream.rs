//! One HTTP/2 stream as the gateway sees it: heads as text, a body as bytes, an end.

use super::client::Place;
use super::codec::Failed;
use super::frame::code;
use super::session::{Session, Shared};
use std::cell::RefMut;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use weir_h1::{Limits, Progress, ResponseHead};

/// One stream, in either role. Dropping it before both sides have ended resets it.
///
/// The first write is a whole head as HTTP/1.1 text, in one piece; interim responses may precede it. Written data
/// leaves when the connection's driver runs next. If the stream ends before that, the end is a flag on the last frame
/// rather than a frame of its own.
pub struct H2Stream {
    shared: Shared,
    /// For streams to an upstream: holds its share in the stream count.
    place: Option<Place>,
    slot: u32,
    /// The final head was written.
    headed: bool,
    /// We send nothing more.
    finished: bool,
    /// The connection uses TLS.
    is_secure: bool,
    /// Why the request could not be sent: HTTP/2 cannot express it, or the peer does not accept such requests. No
    /// response will come.
    unsent: Option<io::ErrorKind>,
}

// Small enough for a place in `Stream`, without a box of its own.
const _: () = assert!(size_of::<H2Stream>() <= 24);

impl H2Stream {
    pub(super) fn server(shared: &Shared, slot: usize, is_secure: bool) -> Self {
        // A connection has at most as many slots as streams, whose limit is a u32.
        let slot = slot as u32;
        let shared = Rc::clone(shared);
        Self { shared, place: None, slot, headed: false, finished: false, is_secure, unsent: None }
    }

    pub(super) fn client(shared: &Shared, place: Place) -> Self {
        let (slot, is_secure) = {
            let mut session = shared.borrow_mut();
            (session.codec.reserve(), session.tls.is_some())
        };
        let mut stream = Self::server(shared, slot, is_secure);
        stream.place = Some(place);
        stream
    }

    fn session(&self) -> RefMut<'_, Session> {
        self.shared.borrow_mut()
    }

    const fn slot(&self) -> usize {
        self.slot as usize
    }

    fn failed(&self) -> Option<Failed> {
        self.session().codec.failed(self.slot())
    }

    /// Whether no more of the message will arrive: its body is complete or absent. Tunnel data does not count as a
    /// body.
    pub fn is_over(&self) -> bool {
        self.session().codec.is_over_at(self.slot())
    }

    /// Whether the peer said that it did not process the request. We may then resend it, whatever its method
    /// (RFC 9113 §8.7).
    pub fn is_refused(&self) -> bool {
        let never_sent = self.unsent == Some(io::ErrorKind::ConnectionRefused);
        never_sent || matches!(self.failed(), Some(Failed::Refused { .. }))
    }

    /// Whether the peer reset this stream rather than the whole connection.
    pub fn is_reset_by_peer(&self) -> bool {
        matches!(self.failed(), Some(Failed::Reset(_) | Failed::Refused { by_reset: true }))
    }

    /// The TLS facts of the underlying connection.
    pub fn tls(&self) -> Option<crate::TlsInfo> {
        self.session().tls
    }

    /// The id of the text that the head is, if the connection has brought the same block of fields before; else 0.
    pub(super) fn repeats(&self) -> u32 {
        self.session().codec.repeats(self.slot())
    }

    /// Parses the head of a response, as [`weir_h1::parse_response`] does, but at less cost if the connection has
    /// brought the same one before.
    ///
    /// # Errors
    /// The first rule that the head breaks.
    pub fn parse_response(
        &self,
        head: &mut ResponseHead,
        limits: &Limits,
    ) -> Result<Progress, weir_h1::Error> {
        let session = &mut *self.session();
        let id = session.codec.repeats(self.slot());
        session.parsed.parse(id, head, limits)
    }

    /// Takes the head of a request.
    pub(super) fn take_head(&self, text: &mut Vec<u8>) {
        self.session().codec.take_head(self.slot(), text);
    }

    /// Forbids the receiver of the next head to index the fields that the sender of `like` has forbidden us to index.
    pub(crate) fn seal_like(&mut self, like: &Self) {
        let names = like.session().codec.sealed(like.slot()).to_vec();
        if !names.is_empty() {
            self.session().codec.seal(self.slot(), names);
        }
    }

    /// Releases the head's share of the connection's limit, after the head itself was freed.
    pub fn forget_head(&self) {
        self.session().codec.forget_head(self.slot());
    }

    /// The trailers that followed the body, as field lines.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        self.session().codec.take_trailers(self.slot())
    }

    /// Reads. From an upstream, heads come first, as text, then the body. 0 means the end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.unsent {
            return Poll::Ready(Err(kind.into()));
        }
        let mut session = self.session();
        // Most reads cause no output. Lending a buffer to each cost 75 instructions (callgrind, grpc).
        if session.codec.may_credit(self.slot()) {
            session.lend();
        }
        let read = session.codec.read(self.slot(), buffer, cx);
        session.call();
        read.map_err(io::Error::from)
    }

    /// Writes: first a head, then the body.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.headed {
            let mut session = self.session();
            let wrote = session.lend().send_data(self.slot(), data, cx);
            session.call();
            return wrote.map_err(io::Error::from);
        }
        match ready!(self.poll_write_head(cx, data)) {
            Ok((len, is_final)) => {
                self.headed = is_final;
                Poll::Ready(Ok(len))
            }
            Err(e) => {
                if self.place.is_some() {
                    // Also report this to the task that waits for the response: none will come.
                    self.unsent = Some(e.kind());
                }
                Poll::Ready(Err(e))
            }
        }
    }

    /// Writes the head at the start of `data`. Returns its length, and whether it was the final one.
    fn poll_write_head(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<(usize, bool)>> {
        let scheme = if self.is_secure { "https" } else { "http" };
        let mut session = self.session();
        let codec = session.lend();
        let outcome = if self.place.is_some() {
            match codec.may_begin(self.slot(), cx) {
                Poll::Ready(Ok(())) => {
                    Poll::Ready(codec.send_request(self.slot(), data, scheme).map(|len| (len, true)))
                }
                Poll::Ready(Err(failed)) => Poll::Ready(Err(failed.into())),
                Poll::Pending => Poll::Pending,
            }
        } else {
            codec.send_response(self.slot(), data, cx)
        };
        session.call(); // also where nothing was written: the buffer was lent in vain
        outcome
    }

    /// Ends the message. A tunnel request leaves the stream open for the tunnel data that follows.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if self.place.is_some() && self.session().codec.asked_for_tunnel(self.slot()) {
            return Ok(());
        }
        self.end(trailers)
    }

    /// Ends the stream properly.
    pub(crate) fn end(&mut self, trailers: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let mut session = self.session();
        let ended = session.lend().send_end(self.slot(), trailers);
        session.call();
        ended
    }

    /// Whether the peer has abandoned the stream; if not, wakes the task when it does.
    pub(crate) fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        self.session().codec.is_reset(self.slot(), cx)
    }

    /// Refuses an unprocessed request: the client may retry it on another connection.
    pub fn refuse(&mut self) {
        let mut session = self.session();
        session.lend().reset(self.slot(), code::REFUSED);
        session.call();
    }

    /// Resets the stream, for a truncated response.
    pub(crate) fn abort(&mut self) {
        let mut session = self.session();
        session.lend().reset(self.slot(), code::INTERNAL);
        session.call();
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        let mut session = self.shared.borrow_mut();
        if session.codec.may_write_at_release(self.slot()) {
            session.lend();
        }
        session.codec.release(self.slot());
        if self.place.as_ref().is_some_and(Place::is_last_of_all) || !session.codec.is_open() {
            session.call_always(); // it may be time to end the connection
        }
        session.call();
    }
}

impl fmt::Debug for H2Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.place.is_some() { "client" } else { "server" };
        f.debug_struct("H2Stream").field("role", &role).field("slot", &self.slot).finish_non_exhaustive()
    }
}
