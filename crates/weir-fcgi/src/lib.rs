//! FastCGI as bytes, in the role of the web server: records to write and to read, and the heads of CGI responses.
//!
//! *Layout.* `write` appends the records of a request; `read` takes those of a response apart; `head` turns the head
//! of a CGI response (RFC 3875 §6) into one of HTTP/1.1. All of it follows the FastCGI specification, version 1.0.
//! Only one request at a time is on a connection, always number 1: php-fpm and most other servers know no more.
//!
//! *Architecture Invariant:* no sockets, no clock, no I/O. Bytes from the server are hostile: nothing here panics on
//! them, and nothing grows with them.

mod head;
mod read;
mod write;

pub use head::{HeadError, Told, end_of_head, write_head};
pub use read::{End, Output, Reader, Step, Violation};
pub use write::{KeepConnection, write_begin, write_input, write_input_end, write_pair, write_params};

/// The number of every request: see above.
const REQUEST: u16 = 1;

/// The version of every record.
const VERSION: u8 = 1;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 8;

/// The kinds of records (FastCGI 1.0 §8).
mod kind {
    pub(crate) const BEGIN_REQUEST: u8 = 1;
    pub(crate) const END_REQUEST: u8 = 3;
    pub(crate) const PARAMS: u8 = 4;
    pub(crate) const STDIN: u8 = 5;
    pub(crate) const STDOUT: u8 = 6;
    pub(crate) const STDERR: u8 = 7;
}
