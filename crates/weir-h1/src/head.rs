//! A parsed head: the start line, the fields, and what the fields say about the message and the connection.

use crate::Known;
use crate::body::BodyKind;
use crate::fields::{Fields, InvalidValue, Text, VALUE_BYTES};
use crate::reason::reason;

/// The protocol version of a message (RFC 9112 §2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2: the head was translated to HTTP/1.1, and the stream frames the body.
    Http2,
    /// HTTP/3: likewise.
    Http3,
}

impl Version {
    /// Whether a stream of its own frames the message.
    pub const fn is_multiplexed(self) -> bool {
        matches!(self, Self::Http2 | Self::Http3)
    }
}

/// Whether the connection continues after this message, according to the sender (RFC 9112 §9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// It ends: `Connection: close`, or HTTP/1.0 without `keep-alive`.
    Close,
    /// It can carry another message.
    #[default]
    KeepAlive,
}

/// The request method; named if the gateway may have to act on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each variant is the method of its name
pub enum Method {
    Connect,
    Delete,
    #[default]
    Get,
    Head,
    Options,
    Other,
    Patch,
    Post,
    Put,
    Trace,
}

impl Method {
    /// Parses a method name, which is case-sensitive (RFC 9110 §9.1).
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"CONNECT" => Self::Connect,
            b"DELETE" => Self::Delete,
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"TRACE" => Self::Trace,
            _ => Self::Other,
        }
    }

    /// Whether a request may be resent when we do not know if the first one arrived (RFC 9110 §9.2.2).
    pub const fn is_idempotent(self) -> bool {
        matches!(self, Self::Delete | Self::Get | Self::Head | Self::Options | Self::Put | Self::Trace)
    }
}

/// The form of a request target (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `http://host/path`
    Absolute,
    /// `*`, only for OPTIONS
    Asterisk,
    /// `host:port`, only for CONNECT
    Authority,
    /// `/path?query`
    #[default]
    Origin,
}

/// What follows the target in a request line.
pub(crate) const LINE_END: &[u8] = b" HTTP/1.1\r\n";

/// Bytes of the request line that a refused head keeps.
const LINE_KEPT: usize = 1024;

/// Buffers up to this size are cheap enough to keep.
const SMALL: usize = 4 * 1024;

/// A request head as received, and as edited since.
///
/// Owns the buffer it was read into; bytes after the head (a body, the next request) stay in it. Memory: that buffer
/// plus 20 bytes per field. Reused between requests: `recycle` keeps the allocations.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// The end-to-end fields. The parser consumes hop-by-hop fields and does not store them here.
    pub headers: Fields,
    pub(crate) method: Method,
    pub(crate) method_text: Text,
    /// The received method, if another one is forwarded.
    pub(crate) method_received: Option<Text>,
    pub(crate) target: Text,
    pub(crate) path: Text,
    pub(crate) routed: Text,
    pub(crate) query: Option<Text>,
    pub(crate) authority: Text,
    pub(crate) asked: Text,
    pub(crate) form: TargetForm,
    pub(crate) common: Common,
    pub(crate) expects_continue: bool,
    pub(crate) accepts_trailers: bool,
}

/// A response head as received, and as edited since. Memory and reuse as for [`RequestHead`].
#[derive(Debug, Default)]
pub struct ResponseHead {
    /// The end-to-end fields. The parser consumes hop-by-hop fields and does not store them here.
    pub headers: Fields,
    pub(crate) status: u16,
    /// The received status: it decides the framing, even if a filter changes the other one.
    pub(crate) received_status: u16,
    pub(crate) reason: Text,
    pub(crate) common: Common,
}

/// The state that both kinds of head share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Common {
    pub(crate) version: Version,
    pub(crate) connection: Connection,
    pub(crate) content_length: Option<u64>,
    pub(crate) chunked: bool,
    /// How the body is delimited, if something outside the head decides that.
    pub(crate) outside: Option<BodyKind>,
    pub(crate) upgrade: Option<Text>,
    /// Bytes of the head in the buffer; 0 until it is complete.
    pub(crate) len: usize,
    pub(crate) seen: Seen,
}

/// How much of the buffer earlier attempts to find a complete head have examined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Bytes in the buffer at the last parse.
    pub(crate) parsed: usize,
    /// Bytes in the buffer at the last search for the head's end.
    pub(crate) scanned: usize,
}

/// The methods that both kinds of head share.
macro_rules! of_any_head {
    () => {
        /// The version of the sender's message.
        pub const fn version(&self) -> Version {
            self.common.version
        }

        /// Whether the sender keeps its connection open.
        pub const fn connection(&self) -> Connection {
            self.common.connection
        }

        /// The protocols in `Upgrade`, if `Connection` nominated it.
        #[inline]
        pub fn upgrade(&self) -> Option<&[u8]> {
            self.common.upgrade.map(|t| self.headers.text(t))
        }

        /// Marks the message as HTTP/2, whose streams frame the body. `over`: there is no body.
        pub const fn came_by_http2(&mut self, over: bool) {
            self.came_by_records(over);
            self.common.version = Version::Http2;
        }

        /// The same for HTTP/3.
        pub const fn came_by_http3(&mut self, over: bool) {
            self.came_by_http2(over);
            self.common.version = Version::Http3;
        }

        /// Marks the message as one whose records frame the body (FastCGI). `over`: there is no body.
        pub const fn came_by_records(&mut self, over: bool) {
            self.common.outside = Some(if over { BodyKind::Empty } else { BodyKind::UntilClose });
        }

        /// The Content-Length field, even of a response without a body (HEAD, 304).
        pub const fn content_length(&self) -> Option<u64> {
            self.common.content_length
        }

        /// Bytes of the head on the wire.
        pub const fn wire_len(&self) -> usize {
            self.common.len
        }

        /// All bytes received and not yet recycled: the head, if complete, and everything after it.
        pub fn buffer(&self) -> &[u8] {
            &self.headers.base
        }

        /// The buffer to read into. Callers must only append.
        pub const fn buffer_mut(&mut self) -> &mut Vec<u8> {
            &mut self.headers.base
        }

        /// The bytes received after the head.
        #[inline]
        pub fn rest(&self) -> &[u8] {
            self.headers.base.get(self.common.len..).unwrap_or_default()
        }

        /// Takes over what parsing has found in `known`, which nobody has changed since, if the buffer begins with the
        /// same head. Returns whether it does.
        pub(crate) fn take_over(&mut self, known: &Self) -> bool {
            let text = known.headers.base.get(..known.common.len).unwrap_or_default();
            if text.is_empty() || !self.headers.base.starts_with(text) {
                return false;
            }
            let mut headers = std::mem::take(&mut self.headers);
            headers.take_over(&known.headers);
            *self = Self { headers, ..*known };
            true
        }

        /// Writes the start line and every field. A line that is still as received is copied together with the fields
        /// behind it, which saves 80 instructions (count h1-64).
        pub fn write_line_and_fields(&self, out: &mut Vec<u8>) {
            let line = self.received_line();
            if line.is_none() {
                self.write_line(out);
            }
            self.headers.write_behind(line.unwrap_or_default(), out);
        }
    };
}

// === impl RequestHead ===

impl RequestHead {
    of_any_head!();

    /// The length of the body, if it is known in advance: not of a chunked one.
    pub fn declared_size(&self) -> Option<u64> {
        if self.body() == BodyKind::Empty { Some(0) } else { self.content_length() }
    }

    /// The method's name, as received or as changed since.
    #[inline]
    pub fn method_name(&self) -> &[u8] {
        self.headers.text(self.method_text)
    }

    /// The method's name as received, for logs.
    pub fn received_method(&self) -> &[u8] {
        self.headers.text(self.method_received.unwrap_or(self.method_text))
    }

    /// Turns the request into a gRPC request: method POST, and TE, which permits trailers (RFC 9110 §10.1.4).
    pub fn become_grpc(&mut self) {
        self.method_received.get_or_insert(self.method_text);
        self.method_text = self.headers.keep(b"POST");
        self.method = Method::Post;
        self.accepts_trailers = true;
    }

    /// The method.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// The whole target as received, for logs.
    pub fn received_target(&self) -> &[u8] {
        self.headers.text(self.target)
    }

    /// The path as received, for logs.
    pub fn received_path(&self) -> &[u8] {
        self.received_target().split(|&b| b == b'?').next().unwrap_or_default()
    }

    /// The query as received, for logs.
    pub fn received_query(&self) -> &[u8] {
        let target = self.received_target();
        target.iter().position(|&b| b == b'?').and_then(|at| target.get(at + 1..)).unwrap_or_default()
    }

    /// The path, in canonical form once the gateway has normalized it.
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.headers.text(self.path)
    }

    /// Records the current path as the one that was routed.
    pub const fn mark_routed(&mut self) {
        self.routed = self.path;
    }

    /// The path that was routed. Captures refer to it, even after a rewrite.
    pub fn routed_path(&self) -> &[u8] {
        self.headers.text(self.routed)
    }

    /// The query without its `?`.
    #[inline]
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|q| self.headers.text(q))
    }

    /// Host and port as the client requested them: the value of Host, or the target's authority if it has one.
    #[inline]
    pub fn authority(&self) -> &[u8] {
        self.headers.text(self.authority)
    }

    /// Host and port as the client requested them, regardless of changes by filters.
    #[inline]
    pub fn asked_authority(&self) -> &[u8] {
        self.headers.text(self.asked)
    }

    /// Writes the request line, with the target in origin-form. `HTTP/1.1` whatever was received.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method_name());
        out.push(b' ');
        out.extend_from_slice(self.path());
        if let Some(query) = self.query() {
            out.push(b'?');
            out.extend_from_slice(query);
        }
        out.extend_from_slice(LINE_END);
    }

    /// The request line as received, if [`write_line`](Self::write_line) would write the same. The parser accepts one
    /// space between its parts and CRLF at its end, so where they begin says what is between them.
    fn received_line(&self) -> Option<Text> {
        let is_plain = self.form == TargetForm::Origin && self.common.version != Version::Http10;
        let end = |text: Text| text.at + text.len;
        let (method, path, target) = (self.method_text, self.path, self.target);
        let path_end = match self.query {
            Some(query) if query.at == end(path) + 1 => end(query),
            Some(_) => return None,
            None => end(path),
        };
        let is_received = path.at == target.at && target.at == end(method) + 1 && path_end == end(target);
        (is_plain && is_received)
            .then(|| Text { at: method.at, len: end(target) - method.at + LINE_END.len() as u32 })
    }

    /// The form in which the target was received.
    pub const fn form(&self) -> TargetForm {
        self.form
    }

    /// Replaces the path. The caller must pass it in canonical form.
    ///
    /// # Errors
    /// When the path is empty, does not start with `/`, contains a byte that is not allowed in a target, or exceeds
    /// 64 KiB.
    pub fn set_path(&mut self, path: &[u8]) -> Result<(), InvalidValue> {
        let fits = path.len() <= VALUE_BYTES && path.first() == Some(&b'/');
        if !fits || !path.iter().all(|&b| is_target(b) && b != b'?') {
            return Err(InvalidValue);
        }
        self.path = self.headers.keep(path);
        Ok(())
    }

    /// Replaces the query, without its `?`; `None` removes it.
    ///
    /// # Errors
    /// When the query contains a byte that is not allowed in a target, or exceeds 64 KiB.
    pub fn set_query(&mut self, query: Option<&[u8]>) -> Result<(), InvalidValue> {
        let text = query.unwrap_or_default();
        if text.len() > VALUE_BYTES || !text.iter().all(|&b| is_target(b)) {
            return Err(InvalidValue);
        }
        self.query = query.map(|q| self.headers.keep(q));
        Ok(())
    }

    /// Replaces the forwarded host, in the position of the received one; without one, puts it first.
    ///
    /// # Errors
    /// When it is not a valid Host value. The received value stays.
    pub fn set_authority(&mut self, authority: &[u8]) -> Result<(), InvalidValue> {
        if !is_authority(authority) {
            return Err(InvalidValue);
        }
        self.authority = self.headers.set_host(authority);
        Ok(())
    }

    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    pub const fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Whether the client sent `TE: trailers` (RFC 9110 §10.1.4).
    pub const fn accepts_trailers(&self) -> bool {
        self.accepts_trailers
    }

    /// How the body is delimited (RFC 9112 §6.3). Without either field, a request has no body.
    pub const fn body(&self) -> BodyKind {
        match self.common {
            Common { outside: Some(kind), .. } => kind,
            Common { chunked: true, .. } => BodyKind::Chunked,
            Common { content_length: Some(0) | None, .. } => BodyKind::Empty,
            Common { content_length: Some(n), .. } => BodyKind::Length(n),
        }
    }

    /// Records that the whole body was read and will be sent with this length; no part of it remains after the head.
    pub fn set_whole_body(&mut self, length: u64) {
        self.headers.remove_known(Known::ContentLength);
        self.headers.remove_known(Known::Expect);
        self.headers.push_known("content-length", length.to_string().as_bytes());
        self.common.content_length = Some(length);
        (self.common.chunked, self.common.outside) = (false, None);
        self.expects_continue = false;
    }

    /// Records that the client was told to send the body (`100 Continue`), so that nobody tells it again.
    pub fn was_continued(&mut self) {
        self.headers.remove_known(Known::Expect);
        self.expects_continue = false;
    }

    /// Records how many bytes of a refused head arrived, for accounting: it is not parsed further.
    pub const fn set_wire_len(&mut self, bytes: usize) {
        self.common.len = bytes;
    }

    /// A copy of this head, as received and edited, without the bytes after it: for another request like it.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { headers: self.headers.copied(self.common.len), ..*self }
    }

    /// Frees the fields of a large, refused head, and the bytes after it. Keeps the method and the first
    /// `LINE_KEPT` bytes of the target for logs.
    pub fn forget_fields(&mut self) {
        let base = &mut self.headers.base;
        if base.capacity() <= SMALL {
            return;
        }
        self.target.len = self.target.len.min((LINE_KEPT as u32).saturating_sub(self.target.at));
        let end = |text: Text| (text.at as usize).saturating_add(text.len as usize);
        self.method_text = self.method_received.take().unwrap_or(self.method_text);
        base.truncate(end(self.method_text).max(end(self.target)));
        base.shrink_to_fit();
        self.headers.clear();
        self.common.len = 0;
    }

    /// Ends this message: removes the head and the first `used` bytes after it. The rest belongs to the next message.
    pub fn recycle(&mut self, used: usize) {
        if self.is_blank() {
            return; // an idle connection borrows a head whenever it checks its socket
        }
        let gone = self.common.len.saturating_add(used).min(self.headers.base.len());
        // Field by field, because moving `headers` out and in again costs more: with `Fields::shift` apart, this takes
        // 38 instructions per request instead of 77. All fields are listed, so the compiler reports one that is
        // forgotten.
        let Self {
            headers,
            method,
            method_text,
            method_received,
            target,
            path,
            routed,
            query,
            authority,
            asked,
            form,
            common,
            expects_continue,
            accepts_trailers,
        } = self;
        (*method, *form, *common) = (Method::default(), TargetForm::default(), Common::default());
        for text in [method_text, target, path, routed, authority, asked] {
            *text = Text::default();
        }
        (*method_received, *query) = (None, None);
        (*expects_continue, *accepts_trailers) = (false, false);
        headers.forget(gone);
    }

    /// Whether nothing was read into it or parsed since the last `recycle`.
    fn is_blank(&self) -> bool {
        self.headers.base.is_empty()
            && self.method_text.len == 0 // the first that is parsed
            && self.common.len == 0
            && self.common.seen.parsed == 0
    }
}

// === impl ResponseHead ===

impl ResponseHead {
    of_any_head!();

    /// A copy of this head, without the bytes after it.
    pub(crate) fn copied(&self) -> Self {
        Self { headers: self.headers.copied(self.common.len), ..*self }
    }

    /// A response made by the gateway, with no bytes after it.
    pub fn made(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// The status code, 100 to 599.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Replaces the status code and removes the reason phrase.
    pub const fn set_status(&mut self, status: u16) {
        self.status = status;
        self.reason = Text { at: 0, len: 0 };
    }

    /// The received reason phrase; empty if there was none.
    #[inline]
    pub fn reason(&self) -> &[u8] {
        self.headers.text(self.reason)
    }

    /// Writes the status line, with the received reason phrase or else the usual one. `HTTP/1.1` whatever was received.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&status_begin(self.status));
        let phrase = self.reason();
        out.extend_from_slice(if phrase.is_empty() { reason(self.status).as_bytes() } else { phrase });
        out.extend_from_slice(b"\r\n");
    }

    /// The status line as received, if [`write_line`](Self::write_line) would write the same.
    fn received_line(&self) -> Option<Text> {
        let begin = status_begin(self.status);
        let is_received = self.reason.at as usize == begin.len()
            && self.reason.len > 0
            && self.headers.base.starts_with(&begin);
        is_received.then(|| Text { at: 0, len: begin.len() as u32 + self.reason.len + 2 })
    }

    /// How the received body is delimited, given the request's method (RFC 9112 §6.3). `set_status` does not change
    /// it.
    ///
    /// For `UntilClose` the connection ends with the body, whatever `connection` returns.
    pub const fn body(&self, method: Method) -> BodyKind {
        match (method, self.received_status, self.common) {
            (_, _, Common { outside: Some(BodyKind::Empty), .. }) => BodyKind::Empty,
            (Method::Head, ..) | (_, 100..=199 | 204 | 304, _) => BodyKind::Empty,
            (_, _, Common { outside: Some(kind), .. }) => kind,
            (_, _, Common { chunked: true, .. }) => BodyKind::Chunked,
            (_, _, Common { content_length: Some(0), .. }) => BodyKind::Empty,
            (_, _, Common { content_length: Some(n), .. }) => BodyKind::Length(n),
            _ => BodyKind::UntilClose,
        }
    }

    /// Ends this message: removes the head and the first `used` bytes after it. The rest belongs to the next message
    /// (after an interim response, the final one).
    pub fn recycle(&mut self, used: usize) {
        let gone = self.common.len.saturating_add(used).min(self.headers.base.len());
        self.headers.forget(gone);
        (self.status, self.received_status) = (0, 0);
        (self.reason, self.common) = (Text::default(), Common::default());
    }
}

/// What precedes the reason phrase in a status line.
fn status_begin(status: u16) -> [u8; 13] {
    let digit = |n: u16| b'0' + (n % 10) as u8;
    let mut line = *b"HTTP/1.1 000 ";
    (line[9], line[10], line[11]) = (digit(status / 100), digit(status / 10), digit(status));
    line
}

/// Whether a request target may contain the byte: visible ASCII except `#` (RFC 9112 §3.2; clients never send a
/// fragment). Accepts the characters that browsers send in queries although RFC 3986 requires escaping them
/// (`"<>\^{|}` and the backtick). The path's own rules are stricter.
pub(crate) const fn is_target(b: u8) -> bool {
    b > 0x20 && b < 0x7f && b != b'#'
}

/// Whether `text` is a valid Host value: `host[:port]`, where the host is a registered name, an address, or a
/// bracketed IPv6 address (RFC 9110 §7.2), at most `HOST_BYTES` long. Refuses percent escapes and sub-delims: no
/// client that we know sends them. Also refuses an impossible port; an empty one is allowed (RFC 3986 §3.2.3).
pub(crate) fn is_authority(text: &[u8]) -> bool {
    let (fine, port) = if let Some(rest) = text.strip_prefix(b"[") {
        let Some(end) = rest.iter().position(|&b| b == b']') else { return false };
        let (address, port) = rest.split_at(end);
        (is_ipv6(address), port.get(1..).unwrap_or_default())
    } else {
        // Only a port may follow the name. A label must not be empty, except the root after the final dot: a server
        // that drops dots would read `.secret.test` as another host than we do.
        let mut before = DOT;
        let ends = |&b: &u8| {
            let class = PLAIN[b as usize];
            let ends = class + before > DOT; // no plain byte, or the second dot of two
            before = class;
            ends
        };
        let end = text.iter().position(ends).unwrap_or(text.len());
        let (name, port) = text.split_at(end);
        (!name.is_empty() && name.len() <= HOST_BYTES, port)
    };
    fine && is_port_part(port)
}

/// Whether this may follow a host: nothing, or a colon and perhaps a port.
pub(crate) fn is_port_part(text: &[u8]) -> bool {
    match text {
        [] => true,
        [b':', digits @ ..] => is_port(digits),
        _ => false,
    }
}

/// Whether a host's name, which is not a bracketed address, may contain the byte.
#[cfg(test)]
pub(crate) const fn is_host(b: u8) -> bool {
    PLAIN[b as usize] <= DOT
}

/// Classes of bytes in a host that is not a bracketed address: 0 is allowed, [`DOT`] is the dot, higher is not
/// allowed.
static PLAIN: [u8; 256] = {
    let mut table = [DOT + 1; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'~') {
            table[i] = 0;
        }
        i += 1;
    }
    table[b'.' as usize] = DOT;
    table
};

const DOT: u8 = 1;

/// Longest host name: the longest that fits into the DNS, with the final dot (RFC 1035 §2.3.4).
const HOST_BYTES: usize = 254;

fn is_ipv6(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|t| t.parse::<core::net::Ipv6Addr>().is_ok())
}

fn is_port(digits: &[u8]) -> bool {
    let number = |n: u32, b: &u8| b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0'));
    digits.len() <= 5 && digits.iter().try_fold(0, number).is_some_and(|port| port <= 65535)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldName, Limits, Progress, parse_request, parse_response};

    fn request(text: &str) -> RequestHead {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(text.as_bytes());
        assert_eq!(parse_request(&mut head, &Limits::default()), Ok(Progress::Complete));
        head
    }

    /// A head as written. Both ways of writing it give the same text.
    macro_rules! written {
        ($head:expr) => {{
            let (mut apart, mut together) = (Vec::new(), Vec::new());
            let head = &$head;
            head.write_line(&mut apart);
            head.headers.write_to(&mut apart);
            head.write_line_and_fields(&mut together);
            assert_eq!(String::from_utf8_lossy(&apart), String::from_utf8_lossy(&together));
            String::from_utf8(together).unwrap()
        }};
    }

    #[test]
    fn a_request_is_written_as_received_or_as_changed() {
        let text = "GET /a?b=c?d HTTP/1.1\r\nHost: a\r\nX: 1\r\n";
        let head = || request(&format!("{text}\r\nbody"));
        assert_eq!((written!(head()), head().received_line().is_some()), (text.to_owned(), true));
        let mut changed = head();
        changed.set_path(b"/longer").unwrap();
        assert_eq!(written!(changed), text.replace("/a", "/longer"));
        let mut changed = head();
        changed.set_query(None).unwrap();
        assert_eq!(written!(changed), text.replace("?b=c?d", ""));
        let mut changed = head();
        changed.set_query(Some(b"q")).unwrap();
        assert_eq!(written!(changed), text.replace("b=c?d", "q"));
        let mut changed = head();
        changed.become_grpc();
        assert_eq!(written!(changed), text.replace("GET", "POST"));
        let mut changed = head();
        changed.set_authority(b"other").unwrap();
        assert_eq!(written!(changed), text.replace("Host: a", "Host: other"));
        assert!(changed.received_line().is_some(), "the line is as it was");
        for (received, is_line) in [
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", true),
            ("\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nhost:a\r\n\r\n", true),
            ("GET / HTTP/1.0\r\nhost: a\r\n\r\n", false),
            ("GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n", false),
            ("GET http://a HTTP/1.1\r\nhost: a\r\n\r\n", false),
            ("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", false),
        ] {
            let head = request(received);
            assert_eq!(head.received_line().is_some(), is_line, "{received}");
            let path = if received.contains('*') { "*" } else { "/" };
            let method = head.method_name();
            let line = format!("{} {path} HTTP/1.1\r\nhost: a\r\n", String::from_utf8_lossy(method));
            assert_eq!(written!(head), line, "{received}");
        }
        let blank = RequestHead::default();
        assert!(blank.received_line().is_none());
    }

    #[test]
    fn a_response_is_written_as_received_or_as_changed() {
        let head = |line: &str| {
            let mut head = ResponseHead::default();
            head.buffer_mut().extend_from_slice(format!("{line}\r\nA: 1\r\n\r\nbody").as_bytes());
            assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Complete));
            head
        };
        for (line, expected) in [
            ("HTTP/1.1 200 OK", "HTTP/1.1 200 OK"),
            ("HTTP/1.1 404 gone fishing", "HTTP/1.1 404 gone fishing"),
            ("HTTP/1.1 204 ", "HTTP/1.1 204 No Content"),
            ("HTTP/1.1 204", "HTTP/1.1 204 No Content"),
            ("HTTP/1.0 200 Fine", "HTTP/1.1 200 Fine"),
            ("HTTP/1.1 299 ", "HTTP/1.1 299 "),
        ] {
            assert_eq!(written!(head(line)), format!("{expected}\r\nA: 1\r\n"), "{line}");
        }
        let mut changed = head("HTTP/1.1 200 OK");
        changed.set_status(503);
        let name = FieldName::new("b").unwrap();
        changed.headers.append(&name, b"2").unwrap();
        assert_eq!(written!(changed), "HTTP/1.1 503 Service Unavailable\r\nA: 1\r\nb: 2\r\n");
        let mut made = ResponseHead::made(200);
        made.headers = head("HTTP/1.1 404 Gone").headers;
        assert_eq!(written!(made), "HTTP/1.1 200 OK\r\nA: 1\r\n");
    }

    /// Nothing of a request may reach the next one that is read into the same memory.
    #[test]
    fn a_recycled_head_is_like_a_new_one() {
        for text in [
            "POST http://a.test/x?q=1 HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\nte: trailers\r\n\
             connection: te\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET /y?z HTTP/1.1\r\nhost: b\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            "OPTIONS * HTTP/1.0\r\nhost: c\r\ncontent-length: 0\r\n\r\n",
        ] {
            let mut head = request(text);
            head.mark_routed();
            head.become_grpc();
            head.came_by_http2(true);
            head.recycle(usize::MAX);
            assert_eq!(format!("{head:?}"), format!("{:?}", RequestHead::default()), "{text}");
        }
    }

    #[test]
    fn a_refused_head_keeps_its_line_only() {
        let limits = Limits { head_bytes: 8192, ..Limits::default() };
        for (path, kept) in [("/short".to_owned(), 6), (format!("/{}", "x".repeat(2000)), LINE_KEPT - 4)] {
            let mut head = RequestHead::default();
            let text = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-a: {}\r\n", "x".repeat(9000));
            head.buffer_mut().extend_from_slice(text.as_bytes());
            assert!(parse_request(&mut head, &limits).is_err());
            head.forget_fields();
            assert_eq!((head.method_name(), head.received_path()), (&b"GET"[..], &path.as_bytes()[..kept]));
            assert!(head.buffer_mut().capacity() <= 2 * LINE_KEPT && head.rest().len() <= LINE_KEPT);
            head.recycle(usize::MAX);
            assert!(head.buffer().is_empty());
        }
    }
}
