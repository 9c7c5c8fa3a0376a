//! Heads of HTTP/2 as HTTP/1.1 text, and back (RFC 9113 §8).
//!
//! What only HTTP/2 knows (pseudo-fields, Extended CONNECT) becomes what HTTP/1.1 says instead; fields of one connection go
//! neither way (§8.2.2).

use bytes::{BufMut, Bytes};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri, request};
use std::fmt::Write as _;
use std::io;

/// Fields that mean the connection they came on (RFC 9113 §8.2.2).
const OF_CONNECTION: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];

/// The protocol of an Extended CONNECT, where it is the one we know. Any other is a CONNECT, and refused as such.
pub(super) fn websocket(parts: &request::Parts) -> Option<&h2::ext::Protocol> {
    parts.extensions.get::<h2::ext::Protocol>().filter(|p| p.as_str().eq_ignore_ascii_case("websocket"))
}

/// Writes a request head as text. `key`: what a WebSocket is asked for with, where it is one (RFC 8441 §5).
pub(super) fn write_request(parts: &request::Parts, key: Option<&str>, out: &mut Vec<u8>) {
    let uri = &parts.uri;
    let authority = uri.authority().map(|a| a.as_str().as_bytes()).unwrap_or_default();
    let protocol = websocket(parts);
    let path = uri.path_and_query().map_or("/", |p| p.as_str()).as_bytes();
    match protocol {
        Some(_) => pieces(out, &[b"GET ", path]),
        None if parts.method == Method::CONNECT => pieces(out, &[b"CONNECT ", authority]),
        None => pieces(out, &[parts.method.as_str().as_bytes(), b" ", path]),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if !authority.is_empty() {
        pieces(out, &[b"host: ", authority, b"\r\n"]);
    }
    write_fields(&parts.headers, authority, out);
    let trailers = parts.headers.get_all(header::TE).iter().any(|te| te == "trailers");
    match (protocol, trailers) {
        (None, true) => out.extend_from_slice(b"connection: te\r\nte: trailers\r\n"),
        (Some(protocol), _) => {
            pieces(out, &[b"connection: upgrade\r\nupgrade: ", protocol.as_ref(), b"\r\n"]);
            if let Some(key) = key {
                pieces(out, &[b"sec-websocket-key: ", key.as_bytes(), b"\r\n"]);
            }
        }
        (None, false) => {}
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a response head as text. `accept`: what a WebSocket is agreed to with, where the request asked for one.
pub(super) fn write_response(response: &Response<()>, accept: Option<&str>, out: &mut Vec<u8>) {
    let tunnel = accept.filter(|_| response.status().is_success());
    let status = tunnel.map_or_else(|| response.status(), |_| StatusCode::SWITCHING_PROTOCOLS);
    pieces(out, &[b"HTTP/1.1 ", status.as_str().as_bytes(), b" \r\n"]);
    write_fields(response.headers(), b"", out);
    if let Some(accept) = tunnel {
        out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ");
        pieces(out, &[accept.as_bytes(), b"\r\n"]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes trailers as field lines.
pub(super) fn write_trailers(trailers: &HeaderMap, out: &mut Vec<u8>) {
    write_fields(trailers, b"", out);
}

/// A request head from its text; the second is the key of a WebSocket, which HTTP/2 does without.
///
/// # Errors
/// When the host is none to the crate; or the text is no head, which is a mistake of ours.
pub(super) fn read_request(text: &[u8], scheme: &str) -> io::Result<(Request<()>, Option<Vec<u8>>)> {
    let (line, fields) = split(text)?;
    let mut words = line.split(|&b| b == b' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Err(malformed()) };
    let mut method = Method::from_bytes(method).map_err(|_| malformed())?;
    let mut headers = HeaderMap::new();
    let mut hop = Hop::default();
    read_fields(&fields, &mut headers, &mut hop)?;
    let authority = headers.remove(header::HOST);
    let path = path_of(path, &method);
    let path = PathAndQuery::try_from(path)
        .or_else(|_| PathAndQuery::try_from(escaped(path)))
        .map_err(|_| malformed())?;
    let mut uri = Uri::builder().scheme(scheme).path_and_query(path);
    if let Some(authority) = &authority {
        uri = uri.authority(authority.as_bytes());
    }
    if hop.te_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let mut request = Request::new(());
    let mut key = None;
    if hop.upgrade.as_deref().is_some_and(|u| u.eq_ignore_ascii_case(b"websocket"))
        && let Some(given) = headers.remove(header::SEC_WEBSOCKET_KEY)
    {
        method = Method::CONNECT;
        request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        key = Some(given.as_bytes().to_vec());
    }
    *request.method_mut() = method;
    *request.uri_mut() = uri.build().map_err(|_| malformed())?;
    *request.headers_mut() = headers;
    Ok((request, key))
}

/// A response head from the beginning of `text`, and how long that was.
///
/// # Errors
/// When the text does not begin with a whole head: only a mistake of ours.
pub(super) fn read_response(text: &[u8]) -> io::Result<(Response<()>, usize)> {
    let end = end_of_head(text).ok_or_else(malformed)?;
    let (line, fields) = split(&text[..end])?;
    let status = line.get(9..12).and_then(|s| StatusCode::from_bytes(s).ok()).ok_or_else(malformed)?;
    let mut response = Response::new(());
    let mut hop = Hop::default();
    read_fields(&fields, response.headers_mut(), &mut hop)?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // RFC 8441 §5: a tunnel opens with a 2xx, and nothing needs to be proved.
        response.headers_mut().remove(header::SEC_WEBSOCKET_ACCEPT);
        *response.status_mut() = StatusCode::OK;
    } else {
        *response.status_mut() = status;
    }
    Ok((response, end))
}

/// Trailers from field lines.
///
/// # Errors
/// As [`read_response`].
pub(super) fn read_trailers(lines: &[u8]) -> io::Result<HeaderMap> {
    let mut trailers = HeaderMap::new();
    read_fields(&Bytes::copy_from_slice(lines), &mut trailers, &mut Hop::default())?;
    Ok(trailers)
}

/// Where a head ends that begins `text`.
pub(super) fn end_of_head(text: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, b"\r\n\r\n").map(|at| at + 4)
}

/// What fields of the connection say about the message.
#[derive(Default)]
struct Hop {
    te_trailers: bool,
    upgrade: Option<Vec<u8>>,
}

fn pieces(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    for piece in pieces {
        out.put_slice(piece);
    }
}

fn write_fields(fields: &HeaderMap, authority: &[u8], out: &mut Vec<u8>) {
    let (mut cookie, mut said_again) = (false, false);
    for (name, value) in fields {
        if *name == header::COOKIE {
            cookie = true;
        } else if *name == header::HOST && !said_again && value.as_bytes().eq_ignore_ascii_case(authority) {
            // The crate compares it with nothing: one that differs, or a second, is refused by the parser as two fields.
            said_again = true;
        } else if !OF_CONNECTION.contains(&name.as_str()) {
            pieces(out, &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
    }
    if cookie {
        // RFC 9113 §8.2.3: clients split it to compress it better; HTTP/1.1 allows one field only.
        let crumbs: Vec<_> = fields.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
        pieces(out, &[b"cookie: ", &crumbs.join(&b"; "[..]), b"\r\n"]);
    }
}

/// The start line, and the field lines as bytes to share.
fn split(head: &[u8]) -> io::Result<(&[u8], Bytes)> {
    let end = memchr::memchr(b'\r', head).ok_or_else(malformed)?;
    let fields = head.get(end + 2..head.len().saturating_sub(2)).unwrap_or_default();
    Ok((&head[..end], Bytes::copy_from_slice(fields)))
}

fn read_fields(lines: &Bytes, fields: &mut HeaderMap, hop: &mut Hop) -> io::Result<()> {
    let mut at = 0;
    // No value holds a CR: that was checked where it was made.
    while let Some(len) = lines.get(at..).and_then(|rest| memchr::memchr(b'\r', rest)) {
        let line = lines.slice(at..at + len);
        at += len + 2;
        let colon = line.iter().position(|&b| b == b':').ok_or_else(malformed)?;
        let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| malformed())?;
        let value = line.slice(colon + 1..);
        let skipped = value.iter().take_while(|&&b| b == b' ').count();
        let value = value.slice(skipped..);
        if OF_CONNECTION.contains(&name.as_str()) {
            if name == header::TE {
                hop.te_trailers |= value.eq_ignore_ascii_case(b"trailers");
            } else if name == header::UPGRADE {
                hop.upgrade = Some(value.to_vec());
            }
            continue;
        }
        fields.append(name, HeaderValue::from_maybe_shared(value).map_err(|_| malformed())?);
    }
    Ok(())
}

/// The `:path` of a request (RFC 9113 §8.3.1): `*` of OPTIONS stays.
fn path_of<'a>(path: &'a [u8], method: &Method) -> &'a [u8] {
    if path.is_empty() && *method != Method::OPTIONS { b"/" } else { path }
}

/// Escapes what HTTP/1.1 clients put into queries though it belongs in no URI, such as `<`: the crate takes none of it.
fn escaped(target: &[u8]) -> String {
    let mut escaped = String::with_capacity(target.len() + 16);
    for &byte in target {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}"); // a String takes everything
        }
    }
    escaped
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a head that HTTP/2 can not carry")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_h1::{Limits, Progress, RequestHead, ResponseHead, parse_request, parse_response};

    /// xorshift64: the same bytes in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % n as u64) as usize
        }

        fn fields(&mut self) -> HeaderMap {
            const NAMES: [&str; 12] = [
                "a",
                "x-forwarded-for",
                "cookie",
                "content-length",
                "host",
                "te",
                "transfer-encoding",
                "connection",
                "expect",
                "upgrade",
                "x_forwarded_for",
                "trailer",
            ];
            const VALUES: [&[u8]; 9] = [
                b"1",
                b"",
                b" x ",
                b"chunked",
                b"trailers",
                b"\xff\x80",
                b"a: b\tc",
                b"0, 1",
                b"example.com",
            ];
            let mut fields = HeaderMap::new();
            for _ in 0..self.below(6) {
                let name = HeaderName::from_static(NAMES[self.below(NAMES.len())]);
                let mut value = VALUES[self.below(VALUES.len())].to_vec();
                value.push(self.below(256) as u8);
                if let Ok(value) = HeaderValue::from_bytes(&value) {
                    fields.append(name, value);
                }
            }
            fields
        }
    }

    /// Whatever the crate lets through, the text is one head or none: never a head and something behind it, which another
    /// parser would take for a body or a second message.
    #[test]
    fn no_head_becomes_two() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut read = 0;
        for _ in 0..20_000 {
            let mut path = b"/a?b HTTP/1.1".to_vec();
            path.truncate(1 + random.below(4));
            path.push(random.below(256) as u8);
            let uri = Uri::builder().scheme("http").authority("example.com").path_and_query(&path[..]);
            let Ok(uri) = uri.build() else { continue };
            let mut request = Request::builder().uri(uri).body(()).unwrap();
            *request.headers_mut() = random.fields();
            let mut head = RequestHead::default();
            write_request(&request.into_parts().0, None, head.buffer_mut());
            let len = head.buffer().len();
            match parse_request(&mut head, &Limits::default()) {
                Ok(Progress::Complete) => {
                    assert_eq!(head.wire_len(), len, "{:?}", String::from_utf8_lossy(head.buffer()));
                    read += 1;
                }
                Ok(Progress::Partial) => panic!("{:?}", String::from_utf8_lossy(head.buffer())),
                Err(_) => {}
            }
        }
        assert!(read > 2_000, "{read} of 20,000 were read: the test has lost its point");
    }

    #[test]
    fn no_response_becomes_two() {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        for _ in 0..20_000 {
            let mut response = Response::new(());
            *response.headers_mut() = random.fields();
            let mut head = ResponseHead::default();
            write_response(&response, None, head.buffer_mut());
            let len = head.buffer().len();
            match parse_response(&mut head, &Limits::default()) {
                Ok(Progress::Complete) => assert_eq!(head.wire_len(), len),
                Ok(Progress::Partial) => panic!("{:?}", String::from_utf8_lossy(head.buffer())),
                Err(_) => {}
            }
        }
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        let text =
            b"POST /p?q HTTP/1.1\r\nhost: a:8080\r\nX-One: 1\r\nconnection: te\r\nte: trailers\r\n\r\n";
        let (request, key) = read_request(text, "https").unwrap();
        assert_eq!(
            (request.method(), request.uri().to_string()),
            (&Method::POST, "https://a:8080/p?q".to_owned())
        );
        assert_eq!(
            (&request.headers()["x-one"], &request.headers()["te"]),
            (&"1".parse().unwrap(), &"trailers".parse().unwrap())
        );
        assert!(
            key.is_none()
                && !request.headers().contains_key("connection")
                && !request.headers().contains_key("host")
        );
    }

    #[test]
    fn websockets_become_extended_connect() {
        let text = b"GET /ws HTTP/1.1\r\nhost: a\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        let (request, key) = read_request(text, "http").unwrap();
        assert_eq!(request.method(), Method::CONNECT);
        assert!(request.extensions().get::<h2::ext::Protocol>().is_some_and(|p| p.as_str() == "websocket"));
        assert_eq!(key.as_deref(), Some(&b"dGhlIHNhbXBsZSBub25jZQ=="[..]));
        let (response, used) = read_response(
            b"HTTP/1.1 101 Switching\r\nsec-websocket-accept: x\r\nupgrade: websocket\r\n\r\n\x81",
        )
        .unwrap();
        assert_eq!((response.status(), used), (StatusCode::OK, 71));
        assert!(response.headers().is_empty());
    }
}
