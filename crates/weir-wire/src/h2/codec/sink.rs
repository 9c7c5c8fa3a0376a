//! Where heads and bodies go that come on a connection: the one thing that the users of a codec differ in. The codec itself
//! wants to know little of a head (`Told`), and of a piece of a body only whether it was read at once.

use super::Failed;
use crate::h2::head::{Malformed, Told};
use crate::h2::hpack::{Decoder, Undecodable};
use std::fmt::Debug;

/// What becomes of the heads and bodies of all streams of a connection.
///
/// The codec calls it when a head is whole and a piece of a body is within its windows and what Content-Length announced;
/// what the sink refuses costs the stream.
pub trait Sink: Debug + Sized {
    /// What it keeps of one stream, in the stream's own record.
    type Kept: Debug + Default;

    /// Whether somebody holds each stream, and releases it. Otherwise its record is freed as soon as the peer has ended it.
    const HELD: bool;

    /// Takes a head or trailers. The block must be decoded, or be one that changes nothing in the decoder's table.
    ///
    /// # Errors
    /// When the block is no HPACK: the connection ends. A head that is [`Malformed`] costs its stream.
    fn head(
        &mut self,
        kept: &mut Self::Kept,
        block: &Block<'_>,
        decoder: &mut Decoder,
    ) -> Result<Result<Told, Malformed>, Undecodable>;

    /// Takes a piece of a body.
    ///
    /// # Errors
    /// When nobody can make sense of it: its stream is reset.
    fn data(&mut self, kept: &mut Self::Kept, piece: &Piece<'_>) -> Result<Taken, Malformed>;

    /// The peer has ended a stream that nobody holds, properly unless it `failed`, after a GOAWAY with the code `left` if
    /// there was one. This is the last that is said of it, except that streams which end with their connection stay.
    fn over(&mut self, _kept: &mut Self::Kept, _failed: Option<Failed>, _left: Option<u32>) {}

    /// What was just taken has no place in its conversation: nobody is to see it.
    fn void(_kept: &mut Self::Kept, _part: Part) {}

    /// Bytes of the body that nobody has read yet.
    fn unread(_kept: &Self::Kept) -> usize {
        0
    }

    /// The stream is gone, and its record waits for the next.
    fn clear(kept: &mut Self::Kept) {
        *kept = Self::Kept::default();
    }
}

/// Which fields of a message a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A request's head.
    Request,
    /// A response's head, the final one or an interim one.
    Response,
    /// What stands behind a body.
    Trailers,
}

/// A head or trailers as they came.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// What it is of a message.
    pub part: Part,
    /// Its fields, in HPACK.
    pub bytes: &'a [u8],
    /// All bytes of its frames.
    pub wire: usize,
    /// How much of it may be held as text.
    pub most: usize,
}

/// A piece of a body.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// It; empty where only an end came, or padding.
    pub data: &'a [u8],
    /// All bytes of its frame.
    pub wire: usize,
    /// Whether this is all that Content-Length announced.
    pub is_all: bool,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is held, and somebody may read it now.
    Held,
    /// It is held for what must come first.
    KeptBack,
    /// It was read: the peer may send as much again.
    Read,
}
