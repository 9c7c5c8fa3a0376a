//! Heads that were sent before on a connection, each with its block.
//!
//! The counterpart of `repeats`: the head of a request to an upstream is the same for each call that a client makes, and
//! so may be that of the response. Rendering one costs 900 to 1,800 instructions (callgrind, h2-h2c and grpc), even with
//! its field lines known to weir-fields; comparing its text and copying its block costs a small part of that.
//!
//! Heads with credentials, cookies or fields that no hop may index are not kept, because many users share a connection
//! to an upstream.

/// Heads that a connection keeps. Some of its first bytes choose the place of a head.
const PLACES: usize = 4;

/// Longest head that is kept. Its block is no longer, so that is at most 8 KiB per connection, until it rests.
const LONGEST: usize = 1024;

/// Heads as text, and their blocks.
#[derive(Debug, Default)]
pub(super) struct Rendered(Vec<Place>);

#[derive(Debug, Default)]
struct Place {
    /// The last head that belongs here, up to and including its empty line.
    text: Vec<u8>,
    /// What it became, once it was sent twice; until then empty.
    block: Vec<u8>,
    fact: u16,
}

/// A head that was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The length of its text.
    pub(super) len: usize,
    /// What else the caller must know of it.
    pub(super) fact: u16,
}

impl Rendered {
    /// Appends the block of the head at the start of `text`, if it is known.
    pub(super) fn recall(&self, text: &[u8], out: &mut Vec<u8>) -> Option<Known> {
        let place = self.0.get(place_of(text)?)?;
        if place.block.is_empty() || !text.starts_with(&place.text) {
            return None;
        }
        out.extend_from_slice(&place.block);
        Some(Known { len: place.text.len(), fact: place.fact })
    }

    /// Notes the head at the start of `text`, whose length is `len`, and its block.
    pub(super) fn note(&mut self, text: &[u8], Known { len, fact }: Known, block: &[u8]) {
        let (Some(at), Some(head)) = (place_of(text), text.get(..len)) else { return };
        if len > LONGEST || block.len() > LONGEST {
            return;
        }
        if self.0.is_empty() {
            self.0.resize_with(PLACES, Place::default);
        }
        let Some(place) = self.0.get_mut(at) else { return };
        if place.text == head {
            replace(&mut place.block, block);
            place.fact = fact;
        } else {
            replace(&mut place.text, head);
            place.block.clear();
        }
    }

    /// Forgets all heads.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

/// Replaces the contents of a buffer, which grows no larger than they need.
pub(super) fn replace(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.reserve_exact(bytes.len());
    buffer.extend_from_slice(bytes);
}

/// Where the head at the start of `text` belongs; `None` if there is too little text to tell. The first line of nearly
/// every response has the same 16 bytes.
#[inline]
fn place_of(text: &[u8]) -> Option<usize> {
    let [a, b, c, d] = text.first_chunk::<32>()?.as_chunks::<8>().0 else { return None };
    let [a, b, c, d] = [a, b, c, d].map(|eight| u64::from_le_bytes(*eight));
    // The upper bits of a product depend on all bits of its factor.
    let mixed =
        (a ^ b.rotate_left(29) ^ c.rotate_left(11) ^ d.rotate_left(47)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Some((mixed >> (u64::BITS - PLACES.ilog2())) as usize)
}
