//! Turns heads in HTTP/1.1 text into fields of HTTP/2 and HTTP/3 to send (RFC 9113 §8, RFC 9114 §4). Omits
//! connection-specific fields (RFC 9113 §8.2.2, RFC 9114 §4.2).

use std::io;

/// Compresses fields: HPACK for HTTP/2, QPACK for HTTP/3.
pub trait Encode {
    /// Appends a field. A `secret` one must never get into a table, here or at later hops (RFC 7541 §7.1.3).
    fn encode(&mut self, name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>);
}

/// Buffers for rendering a head, reused from head to head.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The block of the regular fields, which follow the pseudo-fields.
    fields: Vec<u8>,
    name: Vec<u8>,
}

/// The facts of a request beside its block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The WebSocket key, which Extended CONNECT does not use (RFC 8441 §5).
    pub key: Option<Vec<u8>>,
    /// It is a HEAD request: the response has no body, whatever its head says.
    pub is_head: bool,
}

/// The length of the head at the start of `text`.
pub fn end_of_head(text: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, b"\r\n\r\n").map(|at| at + 4)
}

/// Appends the block of a request head.
///
/// # Errors
/// When the text is not a head, or these protocols cannot express it.
pub fn request(
    text: &[u8],
    scheme: &str,
    encoder: &mut impl Encode,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> io::Result<Asked> {
    let (line, rest) = split(text)?;
    let mut words = line.split(|&b| b == b' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Err(unsayable()) };
    scratch.fields.clear();
    let (mut host, mut upgrade, mut key, mut te) = (None, None, None, false);
    for line in Lines(rest) {
        let (name, value) = line?;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => host = Some(value),
            17 if name.eq_ignore_ascii_case(b"sec-websocket-key") => key = Some(value),
            7 if name.eq_ignore_ascii_case(b"upgrade") => upgrade = Some(value),
            2 if name.eq_ignore_ascii_case(b"te") => te |= value.eq_ignore_ascii_case(b"trailers"),
            _ => field(name, value, encoder, &mut scratch.name, &mut scratch.fields),
        }
    }
    let tunnel = upgrade.is_some_and(|u| u.eq_ignore_ascii_case(b"websocket")) && key.is_some();
    let method_sent = if tunnel { &b"CONNECT"[..] } else { method };
    encoder.encode(b":method", method_sent, false, out);
    if tunnel {
        encoder.encode(b":protocol", b"websocket", false, out);
    }
    encoder.encode(b":scheme", scheme.as_bytes(), false, out);
    if let Some(host) = host {
        if !host.iter().all(|&b| is_sayable(b) && !matches!(b, b'/' | b'?' | b'#' | b'\\')) {
            return Err(unsayable());
        }
        encoder.encode(b":authority", host, false, out);
    }
    if path.iter().all(|&b| is_sayable(b)) {
        let path = if path.is_empty() { b"/" } else { path };
        encoder.encode(b":path", path, false, out);
    } else {
        encoder.encode(b":path", &escaped(path), false, out);
    }
    out.extend_from_slice(&scratch.fields);
    if te {
        encoder.encode(b"te", b"trailers", false, out);
    }
    match key {
        Some(key) if tunnel => Ok(Asked { key: Some(key.to_vec()), is_head: false }),
        key => {
            if let Some(key) = key {
                encoder.encode(b"sec-websocket-key", key, false, out);
            }
            Ok(Asked { key: None, is_head: method == b"HEAD" })
        }
    }
}

/// Appends the block of the response head at the start of `text`; returns its status. `tunnel`: the request asked for
/// a tunnel, which a 2xx would open (RFC 8441 §5). Here only a 101 opens one.
///
/// # Errors
/// When the text is not a head, which would be a bug of ours.
pub fn response(
    head: &[u8],
    tunnel: bool,
    encoder: &mut impl Encode,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> io::Result<u16> {
    let (line, rest) = split(head)?;
    let digits = line.get(9..12).filter(|d| d.iter().all(u8::is_ascii_digit)).ok_or_else(unsayable)?;
    let status: u16 = str::from_utf8(digits).ok().and_then(|d| d.parse().ok()).ok_or_else(unsayable)?;
    let opens = status == 101;
    match status {
        101 => encoder.encode(b":status", b"200", false, out),
        200..=299 if tunnel => encoder.encode(b":status", b"502", false, out),
        _ => encoder.encode(b":status", digits, false, out),
    }
    for line in Lines(rest) {
        let (name, value) = line?;
        if !(opens && name.eq_ignore_ascii_case(b"sec-websocket-accept")) {
            field(name, value, encoder, &mut scratch.name, out);
        }
    }
    Ok(if opens { 200 } else { status })
}

/// Appends a trailer block, made from field lines.
///
/// # Errors
/// As [`response`].
pub fn trailers(
    lines: &[u8],
    encoder: &mut impl Encode,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    for line in Lines(lines) {
        let (name, value) = line?;
        field(name, value, encoder, &mut scratch.name, out);
    }
    Ok(())
}

/// Splits a head into the start line and the field lines.
fn split(head: &[u8]) -> io::Result<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\r', head).ok_or_else(unsayable)?;
    Ok((head.get(..end).unwrap_or_default(), head.get(end + 2..).unwrap_or_default()))
}

/// Iterates over field lines as names and values. No value contains a CR: that was checked when it was created.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = io::Result<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = memchr::memchr(b'\r', self.0).filter(|&end| end > 0)?;
        let (line, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.get(2..).unwrap_or_default();
        let Some(colon) = line.iter().position(|&b| b == b':') else { return Some(Err(unsayable())) };
        let (name, value) = line.split_at_checked(colon)?;
        Some(Ok((name, value.get(1..).unwrap_or_default().trim_ascii())))
    }
}

fn field(name: &[u8], value: &[u8], encoder: &mut impl Encode, lower: &mut Vec<u8>, out: &mut Vec<u8>) {
    let name = if name.iter().any(u8::is_ascii_uppercase) {
        lower.clear();
        lower.extend(name.iter().map(u8::to_ascii_lowercase));
        &lower[..]
    } else {
        name
    };
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"te" | b"transfer-encoding" | b"upgrade" => {}
        // RFC 7541 §7.1.3: no hop may add these to a table.
        b"authorization" | b"proxy-authorization" => encoder.encode(name, value, true, out),
        _ => encoder.encode(name, value, false, out),
    }
}

/// Whether a byte may occur in a target or host of HTTP/2 and HTTP/3.
const fn is_sayable(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>')
}

/// Escapes characters such as `<`, which HTTP/1.1 clients put into queries although no URI may contain them.
fn escaped(target: &[u8]) -> Vec<u8> {
    const HEX: [u8; 16] = *b"0123456789ABCDEF";
    let mut escaped = Vec::with_capacity(target.len() + 16);
    for &byte in target {
        if is_sayable(byte) {
            escaped.push(byte);
        } else {
            escaped.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    escaped
}

fn unsayable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a head that HTTP/2 and HTTP/3 cannot carry")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields as lines; secret ones end in `!`.
    struct Plain;

    impl Encode for Plain {
        fn encode(&mut self, name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
            let end: &[u8] = if secret { b"!\n" } else { b"\n" };
            out.extend_from_slice(&[name, b": ", value, end].concat());
        }
    }

    fn fields(block: &[u8]) -> Vec<String> {
        str::from_utf8(block).unwrap().lines().map(str::to_owned).collect()
    }

    fn of_request(text: &str) -> (Vec<String>, Asked) {
        let mut out = Vec::new();
        let asked = request(text.as_bytes(), "https", &mut Plain, &mut Scratch::default(), &mut out).unwrap();
        (fields(&out), asked)
    }

    #[test]
    fn a_request_becomes_a_block() {
        let (fields, asked) = of_request(
            "POST /p?q=<a> HTTP/1.1\r\nX-One:  1\r\nhost: a:8080\r\nconnection: te\r\nte: trailers\r\nCookie: a\r\n\r\n",
        );
        assert_eq!(
            fields,
            [
                ":method: POST",
                ":scheme: https",
                ":authority: a:8080",
                ":path: /p?q=%3Ca%3E",
                "x-one: 1",
                "cookie: a",
                "te: trailers"
            ]
        );
        assert_eq!(asked, Asked::default());
        assert!(of_request("HEAD / HTTP/1.1\r\n\r\n").1.is_head);
    }

    #[test]
    fn websockets_become_extended_connect() {
        let (fields, asked) = of_request(
            "GET /ws HTTP/1.1\r\nhost: a\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        );
        assert_eq!(
            fields,
            [":method: CONNECT", ":protocol: websocket", ":scheme: https", ":authority: a", ":path: /ws"]
        );
        assert_eq!(asked.key.as_deref(), Some(&b"dGhlIHNhbXBsZSBub25jZQ=="[..]));
    }

    #[test]
    fn a_response_becomes_a_block() {
        for (text, tunnel, want) in [
            ("HTTP/1.1 404 No\r\nA: b\r\n\r\n", false, &[":status: 404", "a: b"][..]),
            (
                "HTTP/1.1 101 S\r\nsec-websocket-accept: x\r\nupgrade: websocket\r\n\r\n",
                true,
                &[":status: 200"],
            ),
            ("HTTP/1.1 204 \r\n\r\n", true, &[":status: 502"]),
            ("HTTP/1.1 204 \r\n\r\n", false, &[":status: 204"]),
        ] {
            let mut out = Vec::new();
            response(text.as_bytes(), tunnel, &mut Plain, &mut Scratch::default(), &mut out).unwrap();
            assert_eq!(fields(&out), want, "{text}");
        }
    }

    #[test]
    fn hosts_that_http2_can_not_say() {
        for host in ["a b", "a\"b", "a/b", "\u{e4}"] {
            let text = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
            let e = request(text.as_bytes(), "http", &mut Plain, &mut Scratch::default(), &mut Vec::new())
                .unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
