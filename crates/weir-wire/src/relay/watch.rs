//! Whoever sees a body on its way: what it is shown, and what it may do.

use std::task::{Context, Poll};

/// A watcher of pieces refused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// A piece of a body as a watcher sees it.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Its bytes. May be empty at the end, and always is at a pause.
    pub data: &'a [u8],
    /// What it means.
    pub mark: Mark,
    /// The trailers, each a line with its CRLF, to be read or edited; with a last piece that comes behind the data.
    pub trailers: Option<&'a mut Vec<u8>>,
}

/// Where in a body a piece stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The body ends with it.
    Last,
    /// More may follow at once.
    More,
    /// The sender pauses: whoever holds bytes back lets them go now. Once for each pause.
    Pause,
}

impl<'a> Seen<'a> {
    pub(super) const fn data(data: &'a [u8], last: bool) -> Self {
        Self { data, mark: if last { Mark::Last } else { Mark::More }, trailers: None }
    }
}

/// Sees a body on its way: body filters, limits, and who answers for fields.
pub trait Watch {
    /// Whether it looks at pieces, and not at trailers only.
    fn sees_pieces(&self) -> bool;

    /// Whether a trailer of this name may pass.
    fn may_trail(&self, name: &[u8]) -> bool;

    /// Looks at a piece. `Ok(Some(..))` replaces it, which is possible only where the framing is not [`Framing::Length`](super::Framing::Length).
    ///
    /// # Errors
    /// `Err` stops the relay.
    fn piece(&mut self, seen: Seen<'_>) -> Result<Option<Vec<u8>>, Stopped>;

    /// Whether what the last piece becomes is still being made, or who watches takes no more at present. No other piece is shown until then.
    fn owes(&self) -> bool {
        false
    }

    /// What the last piece has become, if it was to become something; with the trailers, if it was the last of the body.
    ///
    /// # Errors
    /// `Err` stops the relay.
    fn poll_owed(
        &mut self,
        cx: &mut Context<'_>,
        trailers: Option<&mut Vec<u8>>,
    ) -> Poll<Result<Option<Vec<u8>>, Stopped>> {
        let _ = (cx, trailers);
        Poll::Ready(Ok(None))
    }
}
