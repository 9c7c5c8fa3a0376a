//! The answer to a step, as `keep` and `checks` see it.

use crate::grpc::Code;
use crate::json_at::{self, NotJson, Part};
use crate::path::{Path, TooMany};
use serde_json::Value;
use std::cell::OnceCell;
use weir_h1::Fields;

/// A response, the message of a gRPC call, or the answer on a WebSocket.
///
/// Its JSON is parsed at most once, when the first keep or check asks for it.
#[derive(Debug)]
pub struct Answer<'a> {
    /// Status of the response.
    pub status: u16,
    /// Its header fields.
    pub fields: &'a Fields,
    /// Its body, at most `body_limit` bytes. For gRPC and WebSocket steps, the message as JSON.
    pub body: &'a [u8],
    /// Length of the whole body, in bytes.
    pub body_bytes: u64,
    /// The body was longer than `body_limit`, and `body` is its beginning.
    pub is_cut: bool,
    /// The gRPC code, for a call.
    pub code: Option<Code>,
    json: OnceCell<Option<Value>>,
}

impl<'a> Answer<'a> {
    /// A whole response.
    pub fn new(status: u16, fields: &'a Fields, body: &'a [u8]) -> Self {
        let body_bytes = body.len() as u64;
        Self { status, fields, body, body_bytes, is_cut: false, code: None, json: OnceCell::new() }
    }

    /// The value at a path that is not plural, if there is one.
    pub(crate) fn json_at(&self, path: &Path, part: Part) -> Result<Option<Value>, NotJson> {
        if self.is_cut {
            return Err(NotJson);
        }
        if self.json.get().is_none()
            && let Some(found) = json_at::find(path, self.body, part)
        {
            return found;
        }
        let json = self.json().ok_or(NotJson)?;
        // Such a path looks at one value for each of its steps.
        let found = path.find(json).unwrap_or_else(|TooMany| Vec::new());
        Ok(found.first().map(|json| (*json).clone()))
    }

    /// Its body as JSON, if it is that. The beginning of a longer body is none, even if it can be parsed: `1234` may
    /// begin a longer number, and a document may be followed by something that makes it invalid.
    pub(crate) fn json(&self) -> Option<&Value> {
        let parsed = || if self.is_cut { None } else { serde_json::from_slice(self.body).ok() };
        self.json.get_or_init(parsed).as_ref()
    }
}
