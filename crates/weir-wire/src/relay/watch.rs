//! The watcher of a body: what it sees, and what it may change.

use std::task::{Context, Poll};

/// A watcher rejected a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// A piece of a body, as a watcher sees it.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Its bytes. May be empty at the end, and is always empty at a pause.
    pub data: &'a [u8],
    /// Its position in the body.
    pub mark: Mark,
    /// The trailers, each a line with its CRLF, to read or edit. Present with a last piece that follows the data.
    pub trailers: Option<&'a mut Vec<u8>>,
}

/// The position of a piece in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The body ends with this piece.
    Last,
    /// More may follow immediately.
    More,
    /// The sender pauses: a watcher that holds back bytes should release them now. Sent once per pause.
    Pause,
}

impl<'a> Seen<'a> {
    pub(super) const fn data(data: &'a [u8], last: bool) -> Self {
        Self { data, mark: if last { Mark::Last } else { Mark::More }, trailers: None }
    }
}

/// Watches a body in transit: body filters, size limits, and code that decides which trailers may pass.
pub trait Watch {
    /// Whether it reads pieces, not only trailers.
    fn sees_pieces(&self) -> bool;

    /// Whether a trailer of this name may pass.
    fn may_trail(&self, name: &[u8]) -> bool;

    /// Looks at a piece. `Ok(Some(..))` replaces it, which works only if the framing is not
    /// [`Framing::Length`](super::Framing::Length).
    ///
    /// # Errors
    /// `Err` stops the relay.
    fn piece(&mut self, seen: Seen<'_>) -> Result<Option<Vec<u8>>, Stopped>;

    /// Whether the replacement of the last piece is still in progress, or the watcher accepts no more for now. It
    /// gets no further piece until then.
    fn has_pending(&self) -> bool {
        false
    }

    /// The replacement of the last piece, if any; with the trailers if that piece was the last of the body.
    ///
    /// # Errors
    /// `Err` stops the relay.
    fn poll_pending(
        &mut self,
        cx: &mut Context<'_>,
        trailers: Option<&mut Vec<u8>>,
    ) -> Poll<Result<Option<Vec<u8>>, Stopped>> {
        let _ = (cx, trailers);
        Poll::Ready(Ok(None))
    }
}
