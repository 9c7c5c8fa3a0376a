//! Files of goreplay (`.gor`): for each message a line with its kind, id and times, then its bytes as sent.

use crate::{NO_REQUEST, Record, Recorded, Then, UNREADABLE, Unread, split};

/// Whether a line is the first of a message: `1 ID NANOSECONDS`, of a response also with its latency.
pub(crate) fn is_header(line: &[u8]) -> bool {
    header(line).is_some()
}

fn header(line: &[u8]) -> Option<(u8, &str, u64, Option<u64>)> {
    let mut words = str::from_utf8(line.trim_ascii_end()).ok()?.split(' ');
    let kind = words.next()?;
    let id = words.next().filter(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric()))?;
    let at = words.next()?.parse().ok()?;
    let latency = words.next().and_then(|word| word.parse().ok());
    let kind = kind.bytes().next().filter(|_| matches!(kind, "1" | "2" | "3"))?;
    Some((kind, id, at, latency))
}

pub(crate) fn read(chunk: &[u8]) -> Result<Record, Unread> {
    let end = memchr::memchr(b'\n', chunk).ok_or(UNREADABLE)?;
    let (first, message) = (&chunk[..end], &chunk[end + 1..]);
    let (kind, id, at, latency) = header(first).ok_or(UNREADABLE)?;
    let (head, body) = parted(message);
    let mut lines = head.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let line = str::from_utf8(lines.next().unwrap_or_default()).map_err(|_| NO_REQUEST)?;
    let fields = fields(lines).ok_or(UNREADABLE)?;
    let body = if is_chunked(&fields) { unchunked(body).ok_or(UNREADABLE)? } else { body.to_vec() };
    match kind {
        b'1' => {}
        b'2' => {
            let status = line.strip_prefix("HTTP/").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
            let then = Then { status, took_ns: latency, body_bytes: Some(body.len() as u64) };
            return Ok(Record::Response(id.to_owned(), then));
        }
        _ => return Err(NO_REQUEST), // the response to an earlier replay
    }
    let mut words = line.split(' ');
    let (Some(method), Some(url), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(NO_REQUEST);
    };
    if !version.starts_with("HTTP/") {
        return Err(NO_REQUEST);
    }
    let target = split(url);
    let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    Ok(Record::Request(Box::new(Recorded {
        at: at.into(),
        method: method.to_owned(),
        target: target.path(),
        is_tls: target.is_tls,
        host: host.or_else(|| target.host.map(str::to_owned)),
        fields: fields.into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")).collect(),
        body: Some(body),
        id: Some(id.to_owned()),
        ..Recorded::default()
    })))
}

/// The head without its empty line, and the body.
fn parted(message: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memmem::find(message, b"\r\n\r\n") {
        Some(at) => (&message[..at], &message[at + 4..]),
        None => (message, b""),
    }
}

fn fields<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Vec<(String, Vec<u8>)>> {
    let field = |line: &[u8]| {
        let at = memchr::memchr(b':', line)?;
        let name = str::from_utf8(&line[..at]).ok()?;
        Some((name.to_owned(), line[at + 1..].trim_ascii().to_vec()))
    };
    lines.filter(|line| !line.is_empty()).map(field).collect()
}

fn is_chunked(fields: &[(String, Vec<u8>)]) -> bool {
    fields.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("transfer-encoding") && value.to_ascii_lowercase().ends_with(b"chunked")
    })
}

/// The content of a chunked body (RFC 9112 §7.1); trailers are dropped.
fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = memchr::memmem::find(body, b"\r\n")?;
        let line = str::from_utf8(&body[..end]).ok()?;
        let size = line.split(';').next()?.trim_end_matches([' ', '\t']);
        let is_size = !size.is_empty() && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = is_size.then(|| usize::from_str_radix(size, 16).ok())??;
        body = &body[end + 2..];
        if size == 0 {
            return Some(out);
        }
        out.extend_from_slice(body.get(..size)?);
        body = body.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_kind_is_no_header() {
        assert_eq!(header(b" 930a 17 2"), None);
        assert_eq!(header(b"1 930a 17 2"), Some((b'1', "930a", 17, Some(2))));
    }
}
