//! Framed bytes that wait for a slow receiver in a [`Store`], such as a file, once the memory for them is used up.
//!
//! The order of the bytes is: `out` of the relay, then the store, then a piece on its way to the store, then `tail`.
//!
//! ```text
//!  sender ──► frame ──► tail ──► store ──► out ──► receiver
//!                         └────────────────►┘  (if nothing is in the store)
//! ```

use super::{BUFFER_BYTES, Relay, RelayError, Watch};
use crate::Stream;
use std::fmt;
use std::io;
use std::mem;
use std::task::{Context, Poll, ready};

/// Where bytes wait in the order in which they came. It takes one piece at a time.
pub trait Store {
    /// Whether a piece of this many bytes may have a place now.
    fn has_place(&self, bytes: usize) -> bool;

    /// Begins to store a piece behind the others. Not called while another piece is being stored.
    ///
    /// # Errors
    /// Gives the piece back if it has no place, now or for good.
    fn push(&mut self, piece: Vec<u8>) -> Result<(), Vec<u8>>;

    /// Ready when the last piece is stored. `Some` is that piece, if it could not be stored; it then comes after
    /// everything in the store.
    fn poll_stored(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>>;

    /// Takes the earliest stored bytes and appends them to `buffer`. 0: nothing is stored.
    ///
    /// # Errors
    /// They cannot be read.
    fn poll_take(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>>;
}

/// The store of one relay.
pub(super) struct Overflow {
    store: Box<dyn Store>,
    /// How many bytes are stored at once.
    piece: usize,
    /// Framed bytes that come after the stored ones.
    tail: Vec<u8>,
    /// How many bytes of `out` come before the stored ones. What follows them in `out` belongs to `tail`.
    first: usize,
    /// Bytes are stored, so that all new ones must follow them.
    active: bool,
    /// A piece is being stored.
    storing: bool,
}

impl fmt::Debug for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overflow").field("active", &self.active).finish_non_exhaustive()
    }
}

impl Relay {
    /// Lets bytes that exceed [`Relay::read_ahead`] wait in a store, which gets pieces of this many bytes. When it
    /// accepts no more, the sender waits for the receiver.
    pub fn overflow(&mut self, store: Box<dyn Store>, piece: usize) {
        let overflow = Overflow { store, piece, tail: Vec::new(), first: 0, active: false, storing: false };
        self.overflow = Some(Box::new(overflow));
    }

    /// Whether bytes wait in the store, or must follow such bytes.
    #[inline]
    pub(super) fn is_overflowing(&self) -> bool {
        self.overflow.as_ref().is_some_and(|overflow| overflow.active)
    }

    /// Moves what was framed since the last call behind the stored bytes.
    #[cold]
    pub(super) fn divert(&mut self) {
        let Some(overflow) = self.overflow.as_mut().filter(|overflow| overflow.active) else { return };
        overflow.tail.extend_from_slice(self.out.get(overflow.first..).unwrap_or_default());
        self.out.truncate(overflow.first);
        let (begin, end) = mem::take(&mut self.direct);
        overflow.tail.extend_from_slice(self.input.get(begin..end).unwrap_or_default());
    }

    /// Reads more into the store while the receiver takes nothing.
    #[cold]
    pub(super) fn poll_overflow(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        if self.finished || self.pending {
            return Poll::Pending;
        }
        let Some(overflow) = &mut self.overflow else { return Poll::Pending };
        if !overflow.active {
            let (begin, end) = mem::take(&mut self.direct);
            self.out.extend_from_slice(self.input.get(begin..end).unwrap_or_default());
            (overflow.active, overflow.first) = (true, self.out.len());
            self.room = usize::MAX; // what is framed goes to `tail`
        }
        if overflow.storing
            && let Poll::Ready(back) = overflow.store.poll_stored(cx)
        {
            overflow.stored(back);
        }
        if overflow.tail.len() >= overflow.piece {
            if overflow.storing || !overflow.store.has_place(overflow.piece) {
                return Poll::Pending; // until the last piece is stored, or the receiver has taken more
            }
            let rest = overflow.tail.split_off(overflow.piece);
            match overflow.store.push(mem::replace(&mut overflow.tail, rest)) {
                Ok(()) => overflow.storing = true,
                Err(back) => {
                    overflow.put_back(back);
                    return Poll::Pending; // until the receiver has taken more
                }
            }
        }
        if self.used < self.input.len() {
            return Poll::Ready(Ok(())); // more input to consume
        }
        self.poll_read_in(cx, from, watch)
    }

    /// Refills the empty `out` with the bytes that come next. False if there are none: nothing waits any longer.
    #[cold]
    pub(super) fn poll_refill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, RelayError>> {
        let Some(overflow) = &mut self.overflow else { return Poll::Ready(Ok(false)) };
        overflow.first = 0;
        loop {
            let took = ready!(overflow.store.poll_take(cx, &mut self.out)).map_err(RelayError::Supply)?;
            if took > 0 {
                overflow.first = self.out.len();
                return Poll::Ready(Ok(true));
            }
            if !overflow.storing {
                break;
            }
            let back = ready!(overflow.store.poll_stored(cx));
            overflow.stored(back);
        }
        mem::swap(&mut self.out, &mut overflow.tail);
        overflow.first = self.out.len();
        overflow.active = overflow.first > 0;
        if !overflow.active {
            self.room = BUFFER_BYTES.saturating_add(self.ahead);
        }
        Poll::Ready(Ok(overflow.active))
    }
}

impl Overflow {
    /// The last piece is stored, or comes back.
    fn stored(&mut self, back: Option<Vec<u8>>) {
        self.storing = false;
        if let Some(back) = back {
            self.put_back(back);
        }
    }

    fn put_back(&mut self, mut piece: Vec<u8>) {
        piece.append(&mut self.tail);
        self.tail = piece;
    }
}

#[cfg(test)]
mod tests;
