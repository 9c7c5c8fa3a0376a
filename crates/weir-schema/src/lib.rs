//! What messages must look like: JSON Schema and OpenAPI. Knows bytes and values, no filter and no socket.
//!
//! - [`json`], of weir-expr, parses strictly: no duplicate keys, no byte order mark, bounded.
//! - [`Schema`] is one compiled schema, by the crate jsonschema. `documents.rs` reads it and the files that it names,
//!   `budget.rs` bounds what a check by a recursive one costs.
//! - [`openapi`] finds the operation of a request, and checks its parameters, body and answers.
//! - [`Fault`] says what is wrong, [`fault::problem`] as a problem (RFC 9457).

mod budget;
mod documents;
pub mod fault;
pub mod openapi;
mod schema;

pub use documents::{Documents, FILE_BYTES, FILES, Read, Wrong};
pub use fault::{Fault, Part};
pub use schema::{PATTERN_BYTES, Schema};
pub use weir_expr::json;
