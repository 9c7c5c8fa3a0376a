//! HTTP/1.1 as bytes: parse, frame, emit. No sockets, no clock, no runtime.
//!
//! *Layout.* `parse` (with `section` for the field lines) reads a head in one strict pass into a [`RequestHead`] or
//! [`ResponseHead`] (`head`). Fields are not copied: [`Fields`] is a list of ranges into the received bytes, plus an
//! arena for what filters add. To write itself out, it makes one copy per untouched run. `scan` finds the ends of
//! names and values. `body` finds where a message ends and re-frames chunks. `name` is the table of field names that
//! the gateway itself acts on. `grpc` names gRPC statuses. `docs/explain/framing.md` says what is accepted and
//! refused, and why. `parsed` keeps heads that a connection may bring again.
//!
//! *Architecture Invariant:* nothing here knows a socket, a clock or a runtime; nothing here panics on any input.

mod body;
mod cursor;
mod error;
mod fields;
pub mod grpc;
mod head;
mod list;
mod name;
mod parse;
mod parsed;
mod reason;
mod scan;
mod section;

pub use body::{BodyKind, BodyReader, CHUNK_LINE_BYTES, Step, TRAILER_BYTES, write_chunk, write_last_chunk};
pub use cursor::Limits;
pub use error::{Error, Kind};
pub use fields::{Fields, InvalidValue, Numbered, Prepared};
pub use head::{Connection, Method, RequestHead, ResponseHead, TargetForm, Version};
pub use list::split_unquoted;
pub use name::{Claim, FieldName, InvalidName, Known, NameSet, is_token};
pub use parse::{Progress, parse_request, parse_response};
pub use parsed::{Head, ParsedHeads};
pub use reason::reason;
