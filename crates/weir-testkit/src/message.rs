//! HTTP/1.1 messages as a test sees them: parsed leniently, stored exactly.

use std::time::Instant;

use crate::wire::{End, Wire, show};

/// A head: its first line and its fields.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The request line or status line.
    pub line: String,
    /// The fields in order, names as sent, values trimmed.
    pub headers: Vec<(String, String)>,
    /// Every byte, the empty line included.
    pub raw: Vec<u8>,
}

impl Head {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// Every value of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// Whether a line of the head, without its CRLF, equals this one. Field names compare case-insensitively.
    pub fn has_line(&self, line: &str) -> bool {
        match line.split_once(": ") {
            Some((name, value)) => self.all(name).contains(&value),
            None => self.line == line,
        }
    }

    pub(crate) fn parse(raw: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&raw).into_owned();
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        Self { line, headers: fields(lines), raw }
    }
}

/// How a message is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Chunked coding.
    Chunked,
    /// The connection closes.
    Close,
    /// Content-Length.
    Length(u64),
    /// No body at all.
    None,
}

/// A body as received.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The content.
    pub bytes: Vec<u8>,
    /// The sizes of the chunks, without the last.
    pub chunks: Vec<usize>,
    /// The trailer fields.
    pub trailers: Vec<(String, String)>,
    /// Every byte on the wire.
    pub raw: Vec<u8>,
}

/// Why a message could not be read.
#[derive(Clone, Debug)]
pub struct Broken {
    /// What went wrong.
    pub why: String,
    /// The head, if there was one.
    pub head: Option<Head>,
    /// The part of the body that arrived.
    pub body: Vec<u8>,
}

/// A response. The `expect_` methods return it for chaining.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Reason phrase.
    pub reason: String,
    /// The status line and the fields.
    pub head: Head,
    /// How the body was delimited.
    pub framing: Framing,
    /// The body, with its chunk sizes and trailers.
    pub body: Body,
}

impl Response {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body.bytes).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.body.bytes) {
            Ok(value) => value,
            Err(error) => self.fail(&format!("the body is not JSON: {error}")),
        }
    }

    /// Asserts this status.
    #[track_caller]
    pub fn expect_status(&self, status: u16) -> &Self {
        if self.status != status {
            self.fail(&format!("expected status {status}"));
        }
        self
    }

    /// Asserts that a field has this value.
    #[track_caller]
    pub fn expect_header(&self, name: &str, value: &str) -> &Self {
        if !self.head.all(name).contains(&value) {
            self.fail(&format!("expected {name}: {value}"));
        }
        self
    }

    /// Asserts that the field is absent.
    #[track_caller]
    pub fn expect_no_header(&self, name: &str) -> &Self {
        if self.header(name).is_some() {
            self.fail(&format!("expected no {name}"));
        }
        self
    }

    /// Asserts that the gateway generated this answer, with this status and cause.
    #[track_caller]
    pub fn expect_cause(&self, (status, cause): (u16, &str)) -> &Self {
        if self.status != status || self.header("x-weir-cause") != Some(cause) {
            self.fail(&format!("expected {status} with the cause {cause}"));
        }
        self
    }

    /// Asserts this body.
    #[track_caller]
    pub fn expect_body(&self, body: impl AsRef<[u8]>) -> &Self {
        if self.body.bytes != body.as_ref() {
            self.fail(&format!("expected the body:\n{}", show(body.as_ref())));
        }
        self
    }

    /// Asserts that the body contains this text.
    #[track_caller]
    pub fn expect_body_with(&self, text: &str) -> &Self {
        if !self.text().contains(text) {
            self.fail(&format!("expected a body with: {text}"));
        }
        self
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("{why}, but the answer was:\n{}{}", show(&self.head.raw), show(&self.body.raw))
    }
}

impl Wire {
    /// Reads a head, of a request or a response.
    #[track_caller]
    pub fn read_head(&mut self) -> Head {
        match self.try_read_head(self.until()) {
            Ok(head) => head,
            Err(end) => self.fail(&format!("{end:?} while reading a head")),
        }
    }

    /// Reads a chunked body with its trailers.
    #[track_caller]
    pub fn read_chunked(&mut self) -> Body {
        let mut body = Body::default();
        match self.chunked_body(&mut body, self.until()) {
            Ok(()) => body,
            Err(why) => self.fail(&why),
        }
    }

    /// Reads the next response; a 1xx counts as a separate response.
    #[track_caller]
    pub fn read_response(&mut self) -> Response {
        self.response("GET")
    }

    /// Reads the response to a HEAD request, which has no body, whatever its fields say.
    #[track_caller]
    pub fn read_response_to_head(&mut self) -> Response {
        self.response("HEAD")
    }

    /// Reads the next response, which may be cut short.
    ///
    /// # Errors
    /// The connection ended, or the deadline passed, before the message did.
    pub fn try_read_response(&mut self) -> Result<Response, Broken> {
        self.try_response("GET")
    }

    #[track_caller]
    fn response(&mut self, method: &str) -> Response {
        match self.try_response(method) {
            Ok(response) => response,
            Err(broken) => self.fail(&broken.why),
        }
    }

    fn try_response(&mut self, method: &str) -> Result<Response, Broken> {
        let until = self.until();
        let broken = |why: String| Broken { why, head: None, body: Vec::new() };
        let head = self
            .try_read_head(until)
            .map_err(|end| broken(format!("{end:?} while reading the head of a response")))?;
        let mut parts = head.line.splitn(3, ' ');
        let (version, status) = (parts.next().unwrap_or_default(), parts.next().and_then(|s| s.parse().ok()));
        let reason = parts.next().unwrap_or_default().to_owned();
        let Some(status) = status.filter(|_| version.starts_with("HTTP/1.")) else {
            return Err(broken(format!("not a status line: {:?}", head.line)));
        };
        let no_body = method == "HEAD" || status < 200 || matches!(status, 204 | 304);
        let framing = if no_body { Framing::None } else { framing(&head, Framing::Close) };
        let mut body = Body::default();
        match self.body(framing, &mut body, until) {
            Ok(()) => Ok(Response { status, reason, head, framing, body }),
            Err(why) => Err(Broken { why, head: Some(head), body: body.bytes }),
        }
    }

    pub(crate) fn try_read_head(&mut self, until: Instant) -> Result<Head, End> {
        self.try_read_until(b"\r\n\r\n", until).map(Head::parse)
    }

    /// Reads the body of a request; on failure, `body` holds the part that arrived.
    pub(crate) fn request_body(
        &mut self,
        head: &Head,
        body: &mut Body,
        until: Instant,
    ) -> Result<(), String> {
        self.body(framing(head, Framing::None), body, until)
    }

    /// Reads a chunked body.
    pub(crate) fn try_read_chunked(&mut self, until: Instant) -> Result<Body, String> {
        let mut body = Body::default();
        self.chunked_body(&mut body, until).map(|()| body)
    }

    fn body(&mut self, framing: Framing, body: &mut Body, until: Instant) -> Result<(), String> {
        match framing {
            Framing::None => Ok(()),
            Framing::Chunked => self.chunked_body(body, until),
            Framing::Length(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let read = self.take_into(length, &mut body.bytes, until);
                body.raw.clone_from(&body.bytes);
                read.map_err(|end| format!("{end:?} after {} of {length} body bytes", body.bytes.len()))
            }
            Framing::Close => {
                let end =
                    self.take_into(usize::MAX, &mut body.bytes, until).expect_err("no end of that size");
                body.raw.clone_from(&body.bytes);
                match end {
                    End::Closed => Ok(()),
                    end => Err(format!("{end:?} in a body that the close of the connection ends")),
                }
            }
        }
    }

    fn chunked_body(&mut self, body: &mut Body, until: Instant) -> Result<(), String> {
        loop {
            let line = self
                .try_read_until(b"\r\n", until)
                .map_err(|end| format!("{end:?} after {} bytes, where a chunk begins", body.bytes.len()))?;
            body.raw.extend_from_slice(&line);
            let text = String::from_utf8_lossy(&line);
            let digits = text.split([';', '\r']).next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16).map_err(|_| format!("bad chunk size {text:?}"))?;
            if size == 0 {
                break;
            }
            let start = body.bytes.len();
            self.take_into(start + size, &mut body.bytes, until)
                .map_err(|end| format!("{end:?} in a chunk"))?;
            body.chunks.push(size);
            body.raw.extend_from_slice(&body.bytes[start..]);
            let end = self.try_read_n(2, until).map_err(|end| format!("{end:?} at the end of a chunk"))?;
            if end != b"\r\n" {
                return Err(format!("a chunk ends with {}", show(&end)));
            }
            body.raw.extend_from_slice(&end);
        }
        let mut trailers = Vec::new();
        loop {
            let line =
                self.try_read_until(b"\r\n", until).map_err(|end| format!("{end:?} in the trailers"))?;
            trailers.extend_from_slice(&line);
            if line == b"\r\n" {
                break;
            }
        }
        body.trailers = fields(String::from_utf8_lossy(&trailers).split("\r\n"));
        body.raw.extend_from_slice(&trailers);
        Ok(())
    }

    /// Reads until `into` holds `length` bytes.
    fn take_into(&mut self, length: usize, into: &mut Vec<u8>, until: Instant) -> Result<(), End> {
        loop {
            let take = self.unread.len().min(length - into.len());
            into.extend(self.unread.drain(..take));
            if into.len() == length {
                return Ok(());
            }
            self.fill(until)?;
        }
    }
}

fn framing(head: &Head, otherwise: Framing) -> Framing {
    if head.all("transfer-encoding").iter().any(|coding| coding.to_ascii_lowercase().ends_with("chunked")) {
        return Framing::Chunked;
    }
    match head.header("content-length").and_then(|length| length.parse().ok()) {
        Some(length) => Framing::Length(length),
        None => otherwise,
    }
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    lines
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
        })
        .collect()
}
