//! What bodies are made of: what a filter does with one, its pieces, and the answers that filters give.

use super::Waiting;
use bytes::Bytes;
use smallvec::SmallVec;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use weir_h1::FieldName;
pub use weir_wire::relay::Mark;
use weir_wire::relay::Seen;

use weir_upstream::error::Cause;

/// What a filter does with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyUse {
    /// It may replace pieces: the message goes on without a length, in chunks or as long as its stream.
    Change,
    /// It does not look.
    Pass,
    /// It looks at each piece, and may refuse. A length stays.
    Watch,
    /// It wants all of it, at most so many bytes, before it sees the head: [`Cx::whole`](super::Cx::whole). A longer one is
    /// refused: 413 from a client, 502 from an upstream.
    Whole(usize),
}

/// The filters that see a body, in the order in which they do. Empty for most exchanges.
#[derive(Debug, Default)]
pub struct BodyHooks(SmallVec<[(u32, BodyUse); 2]>);

impl BodyHooks {
    /// One more. What has its body whole sees no pieces.
    #[inline]
    pub fn add(&mut self, filter: u32, body: BodyUse) {
        if matches!(body, BodyUse::Change | BodyUse::Watch) {
            self.0.push((filter, body));
        }
    }

    /// One of them, copied out, so that its hook can have the context that holds this.
    #[inline]
    pub fn get(&self, at: usize) -> Option<(u32, BodyUse)> {
        self.0.get(at).copied()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them may replace pieces.
    #[inline]
    pub fn change(&self) -> bool {
        self.0.iter().any(|(_, body)| *body == BodyUse::Change)
    }

    /// They have seen all of it.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// A piece of a body on its way through: as it was read, or replaced.
#[derive(Debug)]
pub struct Piece<'a> {
    data: &'a [u8],
    replaced: Option<Vec<u8>>,
    mark: Mark,
    trailers: Option<&'a mut Vec<u8>>,
    later: Option<Later>,
    hold: Option<Hold>,
}

/// What a body waits for before more of it is read.
pub struct Hold(pub Waiting<'static, ()>);

/// Bytes that are still being made.
pub struct Later(pub Waiting<'static, Result<Vec<u8>, &'static Cause>>);

/// What a filter owes of a response: its own piece, and what it means to the filters behind it.
#[derive(Debug)]
pub struct Owed {
    /// Its own piece, once it is made.
    pub later: Later,
    /// The place of the next filter that sees it.
    pub next: usize,
    /// What it means to the filters behind.
    pub mark: Mark,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}

impl<'a> Piece<'a> {
    /// A piece as read; `last` when the message ends with it (it may then be empty).
    #[inline]
    pub const fn new(data: &'a [u8], last: bool) -> Self {
        Self {
            data,
            replaced: None,
            mark: if last { Mark::Last } else { Mark::More },
            trailers: None,
            later: None,
            hold: None,
        }
    }

    /// The place where the sender pauses.
    pub const fn pause() -> Self {
        Self { data: &[], replaced: None, mark: Mark::Pause, trailers: None, later: None, hold: None }
    }

    /// A piece as the filter before left it.
    #[inline]
    pub const fn seen(seen: Seen<'a>) -> Self {
        let Seen { data, mark, trailers } = seen;
        Self { data, replaced: None, mark, trailers, later: None, hold: None }
    }

    /// The bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.replaced.as_deref().unwrap_or(self.data)
    }

    /// Whether the message ends with this piece.
    #[inline]
    pub const fn is_last(&self) -> bool {
        matches!(self.mark, Mark::Last)
    }

    /// Whether the sender pauses here: there is no data but what a filter before this one lets go. One that holds some back
    /// lets it go too, by [`Piece::replace`].
    #[inline]
    pub const fn is_pause(&self) -> bool {
        matches!(self.mark, Mark::Pause)
    }

    /// A trailer of the message; only with the last piece.
    pub fn trailer(&self, name: &str) -> Option<&[u8]> {
        line_of(self.trailers.as_deref()?, name)
    }

    /// All trailers of the message, name and value; only with the last piece.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let text: &[u8] = match &self.trailers {
            Some(trailers) => trailers.as_slice(),
            None => &[],
        };
        lines(text)
    }

    /// Replaces the trailers of the message; only with the last piece of a body that this filter said it changes. Values
    /// that may not be emitted are left out.
    pub fn set_trailers(&mut self, fields: &[(FieldName, Vec<u8>)]) {
        let Some(trailers) = &mut self.trailers else { return };
        trailers.clear();
        for (name, value) in fields {
            if value.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f)) {
                trailers.extend_from_slice(name.as_str().as_bytes());
                trailers.extend_from_slice(b": ");
                trailers.extend_from_slice(value);
                trailers.extend_from_slice(b"\r\n");
            }
        }
    }

    /// What the body is to wait for, if anything.
    #[inline]
    pub fn take_hold(&mut self) -> Option<Hold> {
        self.hold.take()
    }

    /// What a filter made of it, or will.
    #[inline]
    pub fn into_replaced(self) -> (Option<Vec<u8>>, Option<Later>) {
        (self.replaced, self.later)
    }

    /// Replaces the bytes; an empty vector swallows them. Counts only where the filter said [`BodyUse::Change`].
    pub fn replace(&mut self, data: Vec<u8>) {
        self.replaced = Some(data);
    }

    /// Replaces the bytes by what work elsewhere makes of them: a thread for work that takes long. Until it is done the body
    /// stands still, and nothing more is read of it. Counts only for responses.
    pub fn replace_later(&mut self, work: impl Future<Output = Result<Vec<u8>, &'static Cause>> + 'static) {
        self.later = Some(Later(Box::pin(work)));
    }

    /// Lets this piece go, and has the body stand still behind it until `room` is there: nothing more is read from the upstream. For a
    /// filter that looks on ([`BodyUse::Watch`]) and cannot take more at present. Counts only for responses, and not for the last piece.
    pub fn hold(&mut self, room: impl Future<Output = ()> + 'static) {
        self.hold = Some(Hold(Box::pin(room)));
    }
}

/// The fields in lines of them.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&b| b == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&b| b == b':')?;
        Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
    })
}

/// The value of one of them.
pub fn line_of<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    lines(text).find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
}

/// A response that a filter made.
#[derive(Debug)]
pub struct Answer {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Fields, without framing ones: Content-Length is written by the gateway.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// The body.
    pub body: Body,
}

/// The body of an answer.
pub enum Body {
    /// Bytes, shared: many answers at once can have the same, and none copies them.
    Bytes(Bytes),
    /// A part of a file, read as it is sent, off the core's thread.
    File(FileRange),
    /// Made while it is sent.
    Stream(Box<dyn BodySource>),
}

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<File>,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is. A file that has become shorter cuts the response.
    pub length: u64,
}

/// Where the body of an answer comes from, piece by piece.
pub trait BodySource {
    /// The whole length, if it is known: it is promised to the client, and a source that brings more or less is cut.
    fn length(&self) -> Option<u64>;

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The cause for which the response is cut.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static Cause>>;
}

impl Body {
    /// How long it is, if that is known.
    #[inline]
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::File(range) => Some(range.length),
            Self::Stream(source) => source.length(),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(bytes).finish(),
            Self::File(range) => f.debug_tuple("File").field(range).finish(),
            Self::Stream(source) => f.debug_tuple("Stream").field(&source.length()).finish(),
        }
    }
}
