//! The message received on one stream.

use std::fmt;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The connection ended first.
    Closed,
    /// RST_STREAM with this code.
    Reset(u32),
    /// END_STREAM.
    Stream,
}

/// The message received on one stream: a request or a response. The `expect_` methods return it for chaining.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Interim heads (`1xx`), which precede the head below.
    pub interim: Vec<Vec<(String, String)>>,
    /// The head, including pseudo-fields.
    pub fields: Vec<(String, String)>,
    /// The content of its DATA frames.
    pub body: Vec<u8>,
    /// The fields after the body.
    pub trailers: Vec<(String, String)>,
    /// The names of fields that no hop may put into a table (RFC 7541 §6.2.3).
    pub never_indexed: Vec<String>,
    /// Its frames in order: `HEADERS`, `DATA 5`, `RST_STREAM 8`. The last frame of a complete message has ` END`.
    pub frames: Vec<String>,
    /// Whether it has ended, and how.
    pub end: Option<End>,
}

impl Message {
    /// Adds a head: an interim one, the final one, or trailers.
    pub(super) fn add_head(&mut self, fields: Vec<(String, String)>) {
        let status = find(&fields, ":status").into_iter().next();
        if status.is_some_and(|status| status.starts_with('1')) {
            self.interim.push(fields);
        } else if self.fields.is_empty() {
            self.fields = fields;
        } else {
            self.trailers = fields;
        }
    }

    /// The first value of a field or pseudo-field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// Every value of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        find(&self.fields, name)
    }

    /// The status of a response; 0 if there is none.
    pub fn status(&self) -> u16 {
        self.header(":status").and_then(|status| status.parse().ok()).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts this status, and that the message is complete.
    #[track_caller]
    pub fn expect_status(&self, status: u16) -> &Self {
        assert!(
            self.status() == status && self.end == Some(End::Stream),
            "expected {status}, whole, but got:\n{self:?}"
        );
        self
    }

    /// Asserts that the gateway generated this answer, with this status and cause.
    #[track_caller]
    pub fn expect_cause(&self, (status, cause): (u16, &str)) -> &Self {
        self.expect_status(status);
        assert!(
            self.header("x-weir-cause") == Some(cause),
            "expected the cause {cause}, but got:\n{self:?}\n{}",
            self.text()
        );
        self
    }

    /// Asserts that a field has this value.
    #[track_caller]
    pub fn expect_header(&self, name: &str, value: &str) -> &Self {
        assert!(self.all(name).contains(&value), "expected {name}: {value}, but got:\n{self:?}");
        self
    }

    /// Asserts that the field is absent.
    #[track_caller]
    pub fn expect_no_header(&self, name: &str) -> &Self {
        assert!(self.header(name).is_none(), "expected no {name}, but got:\n{self:?}");
        self
    }

    /// Asserts this body.
    #[track_caller]
    pub fn expect_body(&self, body: impl AsRef<[u8]>) -> &Self {
        assert!(
            self.body == body.as_ref(),
            "expected the body {:?}, but got:\n{:?}",
            String::from_utf8_lossy(body.as_ref()),
            self.text()
        );
        self
    }

    /// Asserts that the message was refused as malformed: the stream was reset, or the connection closed (RFC
    /// 9113 §5.4 allows that).
    #[track_caller]
    pub fn expect_malformed(&self) -> &Self {
        let refused = matches!(self.end, Some(End::Reset(super::code::PROTOCOL) | End::Closed));
        assert!(
            refused && self.fields.is_empty(),
            "expected it to be refused as malformed, but got:\n{self:?}"
        );
        self
    }

    /// Asserts that the message arrived in these frames.
    #[track_caller]
    pub fn expect_frames(&self, frames: &[&str]) -> &Self {
        assert_eq!(self.frames, frames);
        self
    }

    /// Asserts that the stream was reset with this code.
    #[track_caller]
    pub fn expect_reset(&self, code: u32) -> &Self {
        assert!(self.end == Some(End::Reset(code)), "expected a reset by {code}, but got:\n{self:?}");
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.interim.iter().flatten().chain(&self.fields) {
            writeln!(f, "{name}: {value}")?;
        }
        let shown = &self.body[..self.body.len().min(1000)];
        writeln!(f, "\n{}\n", String::from_utf8_lossy(shown))?;
        for (name, value) in &self.trailers {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "{} → {:?}", self.frames.join(", "), self.end)
    }
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
}
