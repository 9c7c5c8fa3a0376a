//! Bodies: how a filter uses one, its pieces, and the answers that filters give.

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

/// How a filter uses a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyUse {
    /// It may replace pieces: the message is sent without a length, in chunks or until its stream ends.
    Change,
    /// It does not look at the body.
    Pass,
    /// It sees each piece and may refuse. The length stays.
    Watch,
    /// It needs all of it, up to this many bytes, before it sees the head: [`Cx::whole`](super::Cx::whole). A longer
    /// body is refused: 413 for a client's, 502 for an upstream's.
    Whole(usize),
    /// As [`BodyUse::Whole`], and it sees each piece of a request as it arrives, or all of it if it has arrived. It may
    /// refuse. Only for requests.
    WholeWatched(usize),
}

/// The filters that see a body, in order, each with the bit `CHANGES` if it may replace pieces. Empty for most
/// exchanges, and small, because each exchange with filters has two.
#[derive(Debug, Default)]
pub struct BodyHooks(SmallVec<[u32; 4]>);

/// Marks a filter that may replace pieces. No index is large enough to have this bit.
const CHANGES: u32 = 1 << 31;

impl BodyHooks {
    /// Adds a filter. A filter that gets its body whole sees no pieces.
    #[inline]
    pub fn add(&mut self, filter: u32, body: BodyUse) {
        match body {
            BodyUse::Change => self.0.push(filter | CHANGES),
            BodyUse::Watch => self.0.push(filter),
            BodyUse::Pass | BodyUse::Whole(_) | BodyUse::WholeWatched(_) => {}
        }
    }

    /// A copy of one of them, so that its hook can borrow the context that holds this.
    #[inline]
    pub fn get(&self, at: usize) -> Option<(u32, BodyUse)> {
        let entry = *self.0.get(at)?;
        let body = if entry & CHANGES != 0 { BodyUse::Change } else { BodyUse::Watch };
        Some((entry & !CHANGES, body))
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them may replace pieces.
    #[inline]
    pub fn change(&self) -> bool {
        self.0.iter().any(|entry| entry & CHANGES != 0)
    }

    /// Removes all: they have seen the whole body.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// A piece of a body in transit: as read, or replaced.
#[derive(Debug)]
pub struct Piece<'a> {
    data: &'a [u8],
    replaced: Option<Vec<u8>>,
    mark: Mark,
    trailers: Option<&'a mut Vec<u8>>,
    later: Option<Later>,
    hold: Option<Hold>,
}

/// A wait before more of a body is read.
pub struct Hold(pub Waiting<'static, ()>);

/// Bytes that are still being produced.
pub struct Later(pub Waiting<'static, Result<Made, &'static Cause>>);

/// What becomes of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Its bytes.
    pub data: Vec<u8>,
    /// With the last piece, the message's trailers if they change: each a line with its CRLF.
    pub trailers: Option<Vec<u8>>,
}

/// A piece of a body that a filter has promised, and its effect on later filters.
#[derive(Debug)]
pub struct PendingPiece {
    /// The piece, once produced.
    pub later: Later,
    /// The position of the next filter that sees it.
    pub next: usize,
    /// Its effect on later filters.
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
    /// A piece as read. With `last` the message ends; the piece may then be empty.
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

    /// A pause of the sender.
    pub const fn pause() -> Self {
        Self { data: &[], replaced: None, mark: Mark::Pause, trailers: None, later: None, hold: None }
    }

    /// A piece as the previous filter left it.
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

    /// Whether the sender pauses here: there is no data except what an earlier filter releases. A filter that holds
    /// data back releases it too, by [`Piece::replace`].
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

    /// Replaces the message's trailers. Only with the last piece of a body that this filter changes. Values that may
    /// not be sent are left out.
    pub fn set_trailers(&mut self, fields: &[(FieldName, Vec<u8>)]) {
        let Some(trailers) = &mut self.trailers else { return };
        trailers.clear();
        for (name, value) in fields {
            write_line(name, value, trailers);
        }
    }

    /// What the body must wait for, if anything.
    #[inline]
    pub fn take_hold(&mut self) -> Option<Hold> {
        self.hold.take()
    }

    /// The filter's replacement, now or later.
    #[inline]
    pub fn into_replaced(self) -> (Option<Vec<u8>>, Option<Later>) {
        (self.replaced, self.later)
    }

    /// Replaces the bytes; an empty vector drops them. Only effective with [`BodyUse::Change`].
    pub fn replace(&mut self, data: Vec<u8>) {
        self.replaced = Some(data);
    }

    /// Replaces the bytes by a future's result, for example of a thread for long work. Until then the body pauses,
    /// and no more of it is read. Only effective with [`BodyUse::Change`].
    pub fn replace_later(&mut self, work: impl Future<Output = Result<Vec<u8>, &'static Cause>> + 'static) {
        self.make_later(async { work.await.map(|data| Made { data, trailers: None }) });
    }

    /// The same, for the trailers too.
    pub fn make_later(&mut self, work: impl Future<Output = Result<Made, &'static Cause>> + 'static) {
        self.later = Some(Later(Box::pin(work)));
    }

    /// Passes this piece on, then pauses the body until `room` is ready: no more is read from the upstream. For a
    /// filter that watches ([`BodyUse::Watch`]) and cannot accept more at present. Only effective for responses, and
    /// not for the last piece.
    pub fn hold(&mut self, room: impl Future<Output = ()> + 'static) {
        self.hold = Some(Hold(Box::pin(room)));
    }
}

/// Writes a field as a line, unless its value may not be sent.
pub fn write_line(name: &FieldName, value: &[u8], out: &mut Vec<u8>) {
    if value.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f)) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Parses field lines.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&b| b == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&b| b == b':')?;
        Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
    })
}

/// The value of one field.
pub fn line_of<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    lines(text).find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
}

/// A response that a filter made.
#[derive(Debug)]
pub struct Answer {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Fields without framing: the gateway writes Content-Length.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// The body.
    pub body: Body,
}

/// The body of an answer.
pub enum Body {
    /// Shared bytes: many concurrent answers can use the same ones without copying.
    Bytes(Bytes),
    /// A part of a file, read while it is sent, off the core's thread.
    File(FileRange),
    /// Produced while it is sent.
    Stream(Box<dyn BodySource>),
}

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<File>,
    /// Where the part begins.
    pub offset: u64,
    /// Its length. If the file has become shorter, the response is cut.
    pub length: u64,
}

/// The source of an answer's body, piece by piece.
pub trait BodySource {
    /// The total length, if known. It is promised to the client, so a source that yields more or less is cut.
    fn length(&self) -> Option<u64>;

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Why the response is cut.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static Cause>>;
}

impl Body {
    /// Its length, if known.
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
