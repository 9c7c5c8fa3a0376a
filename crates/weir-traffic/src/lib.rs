//! Recorded traffic as requests: access logs, HAR files, files of goreplay and JSON lines.
//!
//! `weir replay` sends these requests again, `weir prove --corpus` asks both programs with them.
//!
//! *Layout.* `form` recognizes the form of a recording, `chunks` cuts its bytes into records with bounded memory, and
//! a file for each form turns a record into a [`Recorded`]: `json`, `template` (access logs), `har`, `gor`. `when`
//! reads times, `target` URLs. Nothing here opens a file or a socket.
//!
//! A recording is untrusted: a record may be malformed, hostile or gigantic. A record that cannot be read costs that
//! record only.

#![doc(test(attr(deny(warnings))))]

mod chunks;
mod form;
mod gor;
mod har;
mod json;
mod target;
mod template;
pub mod when;

pub use chunks::{BODY_MOST, CHUNK_MOST, LINE_MOST};
pub use form::{FORMS, Form, PEEK_BYTES};
pub use target::{Target, is_sendable, split};

use chunks::Chunks;
use std::io::BufRead;

/// A recorded request, and what is known of its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// When the request began, in nanoseconds since 1970 UTC. A log that gives the end of an exchange and its
    /// duration gives the beginning.
    pub at: i128,
    /// The method, as recorded.
    pub method: String,
    /// Path and query, never with a scheme or host.
    pub target: String,
    /// Whether the recording says `https`.
    pub is_tls: bool,
    /// The host that was asked, if the recording says so.
    pub host: Option<String>,
    /// The client: its address without the port, or another name. Empty if unknown.
    pub client: String,
    /// The route that the gateway chose. Empty if unknown.
    pub route: String,
    /// Header fields in their order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The body; `None` if the recording does not say.
    pub body: Option<Vec<u8>>,
    /// Whether the recording has only a part of the body.
    pub is_body_cut: bool,
    /// Whether a filter of the gateway had changed the body before it was recorded.
    pub is_body_changed: bool,
    /// What is known of the response.
    pub then: Then,
    /// Name that a separate record of the response refers to.
    pub id: Option<String>,
}

/// What a recording says of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Then {
    /// The status; none if there was no response.
    pub status: Option<u16>,
    /// From the begin of the request to the end of the response, in nanoseconds.
    pub took_ns: Option<u64>,
    /// Length of the body, as sent.
    pub body_bytes: Option<u64>,
}

/// A readable record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A request.
    Request(Box<Recorded>),
    /// The response to a request with this `id`, recorded apart.
    Response(String, Then),
}

/// Why a record is no request, as a short name under which such records are counted.
pub type Unread = &'static str;

/// The record is not of the recording's form.
pub const UNREADABLE: Unread = "unreadable";
/// The record is of another kind: a connection without a request, bytes that were not HTTP.
pub const NO_REQUEST: Unread = "no request";
/// The record exceeds [`LINE_MOST`] or [`CHUNK_MOST`].
pub const TOO_LONG: Unread = "too long";
/// The record's target was cut when it was written.
pub const CUT: Unread = "target cut by the log";

/// Reads a recording, record by record. Holds one record at a time.
pub struct Reader<R> {
    form: Form,
    chunks: Chunks<R>,
    chunk: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// A reader of `source`, which begins with the first byte of the recording.
    pub fn new(form: Form, source: R) -> Self {
        let chunks = Chunks::new(source, form.cut(), form.chunk_most());
        Self { form, chunks, chunk: Vec::new() }
    }

    /// The next record, with the number of the line at which it begins; `None` at the end.
    ///
    /// # Errors
    /// The source cannot be read, or its compression is broken.
    pub fn record(&mut self) -> std::io::Result<Option<(u64, Result<Record, Unread>)>> {
        loop {
            let Some((line, whole)) = self.chunks.next(&mut self.chunk)? else { return Ok(None) };
            if !whole {
                return Ok(Some((line, Err(TOO_LONG))));
            }
            if self.chunk.trim_ascii().is_empty() {
                continue;
            }
            let record = self.form.read(&self.chunk);
            // A gigantic record must not keep its memory for the rest of the recording.
            if self.chunk.capacity() > LINE_MOST {
                self.chunk = Vec::new();
            }
            return Ok(Some((line, record)));
        }
    }
}

#[cfg(test)]
mod tests;
