//! The head of a CGI response (RFC 3875 §6), turned into one of HTTP/1.1.
//!
//! It translates lines and decides the status; whether names and values may stand in a head is left to the parser of
//! HTTP/1.1 that reads the result.

use std::fmt;

/// What a head says beside its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The status, 200 to 599.
    pub status: u16,
    /// Content-Length, if there is one that is a number.
    pub length: Option<u64>,
}

/// Why a head cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// A line is no field: it has no colon, no name, or begins with white space.
    Line,
    /// The status is repeated, or no number from 200 to 599.
    Status,
}

/// Where the head at the start of `bytes` ends, behind its empty line. Lines end with LF or CRLF (§6: `NL`). The
/// first `seen` bytes are known to hold no end.
pub fn end_of_head(bytes: &[u8], seen: usize) -> Option<usize> {
    // An empty line begins the bytes, or follows a line end: two bytes before the unseen ones may belong to it.
    let from = seen.saturating_sub(2);
    let unseen = bytes.get(from..)?;
    memchr::memchr_iter(b'\n', unseen).map(|at| from + at).find_map(|at| {
        let before = bytes.get(..at).unwrap_or_default();
        let before = before.strip_suffix(b"\r").unwrap_or(before);
        (before.is_empty() || before.ends_with(b"\n")).then_some(at + 1)
    })
}

/// Appends the head in HTTP/1.1. `head` is all of it, with its empty line.
///
/// Without `Status`, a head with `Location` is a redirect with status 302, and any other has status 200. That holds for
/// a path in `Location` too. RFC 3875 §6.2.2 asks the server to answer for that path itself, but nginx also sends such
/// a redirect to the client, and PHP never means anything else. Fields about the connection are dropped, because it is
/// the server's (§6.3.4). Of `Connection`, the names of fields stay: the parser of HTTP/1.1 drops those fields (RFC
/// 9110 §7.6.1).
///
/// # Errors
/// When it is no head of CGI.
pub fn write_head(head: &[u8], out: &mut Vec<u8>) -> Result<Told, HeadError> {
    let (mut status, mut redirects, mut length) = (None, false, None);
    for (index, line) in lines(head).enumerate() {
        let value = if is_status_line(index, line) {
            let space = memchr::memchr(b' ', line).unwrap_or(line.len());
            Some(line.get(space + 1..).unwrap_or_default())
        } else {
            let (name, value) = field(line)?;
            redirects |= name.eq_ignore_ascii_case(b"location");
            if name.eq_ignore_ascii_case(b"content-length") {
                length = number(value);
            }
            name.eq_ignore_ascii_case(b"status").then_some(value)
        };
        if let Some(value) = value
            && status.replace(status_of(value).ok_or(HeadError::Status)?).is_some()
        {
            return Err(HeadError::Status);
        }
    }
    let (status, reason) = status.unwrap_or(if redirects { (302, b"Found") } else { (200, b"OK") });
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    for (index, line) in lines(head).enumerate() {
        if is_status_line(index, line) {
            continue;
        }
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"connection") {
            let mut named = nominated(value).peekable();
            if named.peek().is_some() {
                out.extend_from_slice(b"Connection: ");
                out.extend_from_slice(&named.collect::<Vec<_>>().join(&b", "[..]));
                out.extend_from_slice(b"\r\n");
            }
        } else if !DROPPED.iter().any(|dropped| name.eq_ignore_ascii_case(dropped.as_bytes())) {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(Told { status, length })
}

/// Fields that are not passed on: the status, which has its own place, and those about the connection.
const DROPPED: &[&str] =
    &["keep-alive", "proxy-connection", "status", "te", "trailer", "transfer-encoding", "upgrade"];

/// The fields that `Connection` names, without its options about the connection.
fn nominated(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    const OPTIONS: [&str; 3] = ["close", "keep-alive", "upgrade"];
    let is_option = |name: &[u8]| OPTIONS.iter().any(|option| name.eq_ignore_ascii_case(option.as_bytes()));
    value
        .split(|&b| b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(move |name| !name.is_empty() && !is_option(name))
}

/// Whether a line is the status line that some scripts write, although the server writes it: `HTTP/1.1 200 OK`.
fn is_status_line(index: usize, line: &[u8]) -> bool {
    index == 0 && line.starts_with(b"HTTP/")
}

/// The lines before the empty one, without their ends.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = head.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.take_while(|line| !line.is_empty())
}

fn field(line: &[u8]) -> Result<(&[u8], &[u8]), HeadError> {
    let colon = memchr::memchr(b':', line).ok_or(HeadError::Line)?;
    let (name, value) = line.split_at_checked(colon).ok_or(HeadError::Line)?;
    if name.first().is_none_or(u8::is_ascii_whitespace) {
        return Err(HeadError::Line);
    }
    Ok((name, value.get(1..).unwrap_or_default().trim_ascii()))
}

/// Status and reason of `404 Not Found`.
fn status_of(value: &[u8]) -> Option<(u16, &[u8])> {
    let digits = value.get(..3)?;
    let rest = value.get(3..).unwrap_or_default();
    let fits = digits.iter().all(u8::is_ascii_digit) && (rest.is_empty() || rest.starts_with(b" "));
    let status = str::from_utf8(digits).ok().filter(|_| fits)?.parse().ok()?;
    (200..=599).contains(&status).then_some((status, rest.trim_ascii()))
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "a line of the CGI response head is not a field",
            Self::Status => "the status of the CGI response is repeated, or no number from 200 to 599",
        })
    }
}

impl std::error::Error for HeadError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(head: &str) -> Result<(String, Told), HeadError> {
        let mut out = Vec::new();
        let told = write_head(head.as_bytes(), &mut out)?;
        Ok((String::from_utf8(out).unwrap(), told))
    }

    #[test]
    fn heads() {
        for (head, expected, status, length) in [
            ("Content-Type: a/b\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n", 200, None),
            ("content-type:a/b\n\n", "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\n\r\n", 200, None),
            ("Status: 404 Not Found\nX: y\n\n", "HTTP/1.1 404 Not Found\r\nX: y\r\n\r\n", 404, None),
            ("X: y\r\nstatus:503\r\n\r\n", "HTTP/1.1 503 \r\nX: y\r\n\r\n", 503, None),
            ("Location: /a\n\n", "HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n", 302, None),
            (
                "Location: https://b/\nStatus: 201 Made\n\n",
                "HTTP/1.1 201 Made\r\nLocation: https://b/\r\n\r\n",
                201,
                None,
            ),
            ("HTTP/1.0 301 Moved\r\nA: b\r\n\r\n", "HTTP/1.1 301 Moved\r\nA: b\r\n\r\n", 301, None),
            (
                "Transfer-Encoding: chunked\nConnection: close\nContent-Length: 12\n\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n",
                200,
                Some(12),
            ),
            (
                "X-Hop: 1\nConnection: close, x-hop\nconnection:Upgrade,\n\n",
                "HTTP/1.1 200 OK\r\nX-Hop: 1\r\nConnection: x-hop\r\n\r\n",
                200,
                None,
            ),
            ("A: b: c\n\n", "HTTP/1.1 200 OK\r\nA: b: c\r\n\r\n", 200, None),
            ("\r\n", "HTTP/1.1 200 OK\r\n\r\n", 200, None),
        ] {
            assert_eq!(translated(head), Ok((expected.to_owned(), Told { status, length })), "{head:?}");
        }
    }

    #[test]
    fn no_heads() {
        for (head, expected) in [
            ("Fatal error\n\n", HeadError::Line),
            (": x\n\n", HeadError::Line),
            ("A: b\n folded: c\n\n", HeadError::Line),
            ("Status: 100 Continue\n\n", HeadError::Status),
            ("Status: 101\n\n", HeadError::Status),
            ("Status: 600\n\n", HeadError::Status),
            ("Status: 2000\n\n", HeadError::Status),
            ("Status: OK\n\n", HeadError::Status),
            ("Status: 200\nStatus: 200\n\n", HeadError::Status),
            ("HTTP/1.1 200 OK\nStatus: 200\n\n", HeadError::Status),
            ("HTTP/1.1 99\n\n", HeadError::Status),
            ("HTTP/1.1\n\n", HeadError::Status),
            ("A: b\nHTTP/1.1 200 OK\n\n", HeadError::Line),
        ] {
            assert_eq!(translated(head), Err(expected), "{head:?}");
        }
    }

    #[test]
    fn ends_of_heads() {
        for (bytes, end) in [
            ("A: b\r\n\r\nbody", Some(8)),
            ("A: b\n\nbody", Some(6)),
            ("A: b\n\r\nbody", Some(7)),
            ("\nbody", Some(1)),
            ("\r\nbody", Some(2)),
            ("A: b\r\n", None),
            ("A: b\r\n\r", None),
            ("", None),
            ("no line", None),
        ] {
            let bytes = bytes.as_bytes();
            assert_eq!(end_of_head(bytes, 0), end, "{bytes:?}");
            // As it arrives byte by byte.
            let (mut seen, mut found) = (0, None);
            for len in 0..=bytes.len() {
                found = found.or_else(|| end_of_head(&bytes[..len], seen));
                seen = len;
            }
            assert_eq!(found, end, "{bytes:?} by bytes");
        }
    }
}
