//! QPACK (RFC 9204): field sections of HTTP/3 as bytes.
//!
//! `decoder` reads sections and the peer's encoder stream, `encoder` writes sections and our own. Both keep a dynamic
//! table (`table`) beside the static one (`tables`), and share the coding of integers and strings (`integer`).

mod decoder;
mod encoder;
mod integer;
mod table;
mod tables;
#[cfg(test)]
mod tests;

pub use decoder::{Decoded, Decoder, DecoderLimits, Undecodable};
pub use encoder::{Encoder, Static};
pub use weir_fields::render::Encode;
