//! What bodies must look like: JSON Schema. Knows bytes and values, no filter and no socket.
//!
//! - [`json`] parses strictly: no duplicate keys, no byte order mark, bounded.
//! - [`Schema`] is one compiled schema, by the crate jsonschema. `documents.rs` reads it and the files that it names.
//! - [`Fault`] says what is wrong, [`fault::problem`] as a problem (RFC 9457).

mod documents;
pub mod fault;
pub mod json;
mod schema;

pub use documents::{Documents, FILE_BYTES, FILES, Read, Wrong};
pub use fault::{Fault, Part};
pub use schema::{PATTERN_BYTES, Schema};
