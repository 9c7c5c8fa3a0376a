//! Blocks of fields that a peer sends again, each with its text.
//!
//! A client that polls, or calls a gRPC method, sends the same head with each request. The responses repeat too, even
//! those with a date within a second. Decoding a block and writing its text costs 1,250 instructions for a request of
//! `weir load`, and 3,900 for a response of nginx, which uses the Huffman code (callgrind, h2-h2c). Comparing the block
//! and copying the text costs a small part of that.
//!
//! Each connection has its own: what a block means depends on the table of its connection. The text is kept when the
//! block comes the second time in a row, as far as its place is concerned.

use super::rendered::replace;
use super::{Block, Part};
use crate::h2::hpack::{Additions, Decoder, Meaning};
use weir_fields::HeadFacts;

/// How many heads and how many trailers a connection keeps. The length and the ends of a block choose its place.
const HEADS: usize = 4;
const TRAILERS: usize = 2;

/// Longest block and longest text that are kept, the text with the entries that its block adds to the table: at most
/// 18 KiB per connection, until it rests.
const LONGEST_BLOCK: usize = 1024;
const LONGEST_TEXT: usize = 2 * 1024;

/// Blocks and their texts.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    places: Vec<Place>,
    /// How many texts were kept so far.
    count: u32,
}

#[derive(Debug, Default)]
struct Place {
    block: Vec<u8>,
    /// What it stands for, once it has come twice.
    text: Option<Text>,
}

/// The text of a block, and what else decoding it does.
#[derive(Debug)]
struct Text {
    /// Distinguishes it from all other texts of the connection; never 0.
    id: u32,
    text: Vec<u8>,
    facts: HeadFacts,
    /// If the block refers to the table: how often the table had changed.
    table: Option<u64>,
    additions: Additions,
}

impl Repeats {
    /// Appends the text of a block that is known, and changes the table as decoding it would. Returns the facts of the
    /// head, and the id of its text.
    pub(super) fn recall(
        &self,
        block: &Block<'_>,
        decoder: &mut Decoder,
        out: &mut Vec<u8>,
    ) -> Option<(HeadFacts, u32)> {
        let place = self.places.get(place_of(block)?)?;
        let known = place.text.as_ref()?;
        let is_same = place.block == block.bytes
            && known.text.len() <= block.most
            && known.table.is_none_or(|changes| changes == decoder.changes());
        if !is_same {
            return None;
        }
        decoder.add(&known.additions);
        out.extend_from_slice(&known.text);
        Some((known.facts, known.id))
    }

    /// Notes a block that was decoded to this text. `changes` is how often the table had changed before.
    pub(super) fn note(
        &mut self,
        block: &Block<'_>,
        text: &[u8],
        facts: &HeadFacts,
        (decoder, changes): (&Decoder, u64),
    ) {
        let Some(place) = place_of(block) else { return };
        // A longer text than `most` is one without its end. A tunnel's holds a random key.
        if text.len() > LONGEST_TEXT.min(block.most) || facts.tunnel {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(HEADS + TRAILERS, Place::default);
        }
        let Some(place) = self.places.get_mut(place) else { return };
        if place.block != block.bytes {
            place.text = None;
            replace(&mut place.block, block.bytes);
            return;
        }
        let is_short = |meaning: &Meaning| text.len() + meaning.additions.bytes() <= LONGEST_TEXT;
        let meaning = decoder.meaning(changes).filter(is_short);
        place.text = meaning.map(|Meaning { table, additions }| {
            self.count = self.count.wrapping_add(1).max(1);
            Text { id: self.count, text: text.to_vec(), facts: *facts, table, additions }
        });
    }

    /// Forgets all blocks.
    pub(super) fn clear(&mut self) {
        self.places = Vec::new();
    }
}

/// Where a block belongs; `None` if it is too long.
#[inline]
fn place_of(block: &Block<'_>) -> Option<usize> {
    let (part, bytes) = (block.part, block.bytes);
    if bytes.len() > LONGEST_BLOCK {
        return None;
    }
    let word = |bytes: Option<&[u8; 4]>| bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
    let mixed = (word(bytes.first_chunk()) << 32 | word(bytes.last_chunk())) ^ bytes.len() as u64;
    // The upper bits of a product depend on all bits of its factor.
    let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let below = |places: usize| (mixed >> (u64::BITS - places.ilog2())) as usize;
    Some(if part == Part::Trailers { HEADS + below(TRAILERS) } else { below(HEADS) })
}
