//! The destination of received heads and bodies: the one part in which users of a codec differ. Of a head, the codec
//! needs only a few facts ([`HeadFacts`]); of a body piece, only whether it was read immediately.

use super::Failed;
use crate::h2::hpack::{Decoder, Undecodable};
use std::fmt::Debug;
use weir_fields::{HeadFacts, Malformed};

/// Handles the heads and bodies of all streams of a connection.
///
/// The codec calls it for each complete head, and for each body piece within its windows and the announced
/// Content-Length. If the sink rejects something, the codec resets the stream.
pub trait Sink: Debug + Sized {
    /// The sink's data for one stream, stored in the stream's record.
    type Kept: Debug + Default;

    /// Whether each stream has a holder that releases it. Otherwise its record is freed as soon as the peer ends it.
    const HELD: bool;

    /// Handles a head or trailers. It must decode the block, or change the decoder's table as decoding it would.
    ///
    /// # Errors
    /// When the block is not valid HPACK: the connection ends. A [`Malformed`] head only resets its stream.
    fn head(
        &mut self,
        kept: &mut Self::Kept,
        block: &Block<'_>,
        decoder: &mut Decoder,
    ) -> Result<Result<HeadFacts, Malformed>, Undecodable>;

    /// Handles a piece of a body.
    ///
    /// # Errors
    /// When the piece is unusable: its stream is reset.
    fn data(&mut self, kept: &mut Self::Kept, piece: &Piece<'_>) -> Result<Taken, Malformed>;

    /// The peer has ended a stream without a holder: properly, unless it `failed`, and after a GOAWAY with the code
    /// `left` if there was one. This is the last call for the stream, except that streams which end with their
    /// connection stay.
    fn over(&mut self, _kept: &mut Self::Kept, _failed: Option<Failed>, _left: Option<u32>) {}

    /// What the sink just handled does not belong in the conversation: discard it.
    fn void(_kept: &mut Self::Kept, _part: Part) {}

    /// The names of fields to send that no hop may index, each with a line break behind it.
    fn seals(_kept: &Self::Kept) -> &[u8] {
        &[]
    }

    /// Bytes of the body that nobody has read yet.
    fn unread(_kept: &Self::Kept) -> usize {
        0
    }

    /// The stream is gone; prepares its record for the next one.
    fn clear(kept: &mut Self::Kept) {
        *kept = Self::Kept::default();
    }
}

/// The message part a block belongs to.
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
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The message part.
    pub part: Part,
    /// The fields, in HPACK.
    pub bytes: &'a [u8],
    /// The total bytes of its frames.
    pub wire: usize,
    /// How many bytes of it may be held as text.
    pub most: usize,
}

/// A piece of a body.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The data; empty if only an end or padding came.
    pub data: &'a [u8],
    /// The total bytes of its frame.
    pub wire: usize,
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
    /// Read: the peer may send as much again.
    Read,
}
