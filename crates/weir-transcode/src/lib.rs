//! REST for gRPC: the `google.api.http` rules of a service, and messages as JSON in both directions. Bytes in, bytes
//! out: no socket, no clock, no runtime.
//!
//! ```text
//!  descriptors (`sources`, `reflection`)
//!            ─► `Api`: tables of types (`schema`), rules (`rules`), paths (`router`, `template`)
//!  request  ─► `Api::find` ─► `Api::request`: body (`parse`, `mask`), query and path (`fields`)
//!                               ─► Protocol Buffers (`wire`), framed (`frames`)
//!  response ─► `frames::Messages` ─► `Api::response` (`print`), or a `Status`
//!  Connect: its own parts are in `connect`; its messages go through `Api::read` and `Api::write`
//! ```
//!
//! Everything that comes from a network has a limit: see [`Limits`]. No input makes it panic; `fuzz/` tests that.

mod api;
pub mod base64;
mod binding;
pub mod connect;
mod fields;
pub mod frames;
mod mask;
mod openapi;
mod options;
mod parse;
mod print;
pub mod reflection;
mod router;
mod rules;
mod scalar;
mod schema;
pub mod sources;
mod status;
pub mod stream;
mod template;
mod time;
pub mod wire;

pub use prost_reflect::DescriptorPool as Pool;

pub use api::{Api, Call, Lookup, Request};
pub use binding::{Binding, Method};
pub use options::{DEPTH_MOST, JsonOptions, Limits};
pub use parse::ParseError;
pub use print::PrintError;
pub use rules::{Choice, Requests, RuleError};
pub use status::{ErrorStyle, Status, code_name, http_status, of_http};
