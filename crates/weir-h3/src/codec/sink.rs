//! The destination of received heads and bodies: the one part in which users of a codec differ, as in HTTP/2. Of a
//! head, the codec needs only a few facts ([`HeadFacts`]); of a body piece, only whether it was read immediately.

use super::streams::Failed;
use crate::qpack::{Decoded, Decoder, Undecodable};
use std::fmt::Debug;
use std::ops::ControlFlow;
use weir_fields::{HeadFacts, Malformed};

/// Handles the heads and bodies of all streams of a connection.
pub trait Sink: Debug + Sized {
    /// The sink's data for one stream, stored in the stream's record.
    type Kept: Debug + Default;

    /// Whether each stream has a holder that releases it. Otherwise its record is freed as soon as both sides have
    /// ended it.
    const HELD: bool;

    /// Handles a head or trailers. Everything that its section refers to has arrived.
    ///
    /// # Errors
    /// When the section is not valid QPACK: the connection ends. A [`Malformed`] head only resets its stream.
    fn head(
        &mut self,
        kept: &mut Self::Kept,
        section: Section<'_>,
    ) -> Result<Result<HeadFacts, Malformed>, Undecodable>;

    /// Handles a piece of a body, never empty.
    ///
    /// # Errors
    /// When the piece is unusable: its stream is reset.
    fn data(&mut self, kept: &mut Self::Kept, piece: &Piece<'_>) -> Result<Taken, Malformed>;

    /// The peer has ended a stream without a holder: properly, unless it `failed`.
    fn over(&mut self, _kept: &mut Self::Kept, _failed: Option<Failed>) {}

    /// What the sink just handled does not belong in the conversation: discard it.
    fn void(_kept: &mut Self::Kept, _part: Part) {}

    /// Bytes of the body that nobody has read yet.
    fn unread(_kept: &Self::Kept) -> usize {
        0
    }

    /// No stream is open: frees buffers.
    fn rest(&mut self) {}

    /// The stream is gone; prepares its record for the next one.
    fn clear(kept: &mut Self::Kept) {
        *kept = Self::Kept::default();
    }
}

/// The message part that a section belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A request's head.
    Request,
    /// A response's head, final or interim.
    Response,
    /// Trailers.
    Trailers,
}

/// A received head or received trailers.
#[derive(Debug)]
pub struct Section<'a> {
    /// The message part.
    pub part: Part,
    /// The fields, in QPACK.
    pub bytes: &'a [u8],
    /// How many bytes of it may be held as text.
    pub most: usize,
    pub(super) stream: u64,
    pub(super) decoder: &'a mut Decoder,
    pub(super) answers: &'a mut Vec<u8>,
}

impl Section<'_> {
    /// Calls `field` for each field until that wants no more.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode(self, field: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<Decoded, Undecodable> {
        self.decoder.decode(self.stream, self.bytes, self.answers, field)
    }
}

/// A piece of a body.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The data.
    pub data: &'a [u8],
    /// Whether it completes the announced Content-Length.
    pub is_all: bool,
}

/// What the sink did with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Held; the reader may have it now.
    Held,
    /// Held back until something else arrives.
    KeptBack,
    /// Read.
    Read,
}
