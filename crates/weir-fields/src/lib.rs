//! Header fields of HTTP/2 and HTTP/3, as far as the two agree: bytes only, no socket and no clock.
//!
//! `head` turns received fields into HTTP/1.1 text, the form in which the gateway reads every head, and `render` turns
//! such text into fields to send. HPACK (in weir-wire) and QPACK (in weir-h3) compress fields; they share the code in
//! `huffman`. `swar` searches short texts, `repeats` keeps the blocks of repeated lines. `priority` reads what a
//! client says about urgency, and `message` holds what a stream has received and nobody has read.

mod head;
pub mod huffman;
mod message;
mod priority;
pub mod render;
mod repeats;
mod swar;

pub use head::{HeadFacts, Kind, Malformed, Reader, Scratch};
pub use message::{KEPT_TEXT, Message, free_bodies, give_body, wipe};
pub use priority::Priority;
pub use repeats::free as free_repeats;
