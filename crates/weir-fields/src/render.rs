//! Turns heads in HTTP/1.1 text into fields of HTTP/2 and HTTP/3 to send (RFC 9113 §8, RFC 9114 §4). Omits
//! connection-specific fields (RFC 9113 §8.2.2, RFC 9114 §4.2).

use crate::repeats::{Key, OF_REQUESTS, OF_RESPONSES, Repeats};
use crate::swar::{line_end, name_end};
use std::io;

/// Compresses fields: HPACK for HTTP/2, QPACK for HTTP/3.
pub trait Encode {
    /// Whether its blocks are HPACK and depend on their fields alone. Such a block is valid on every connection, and is
    /// kept for the next head with this field.
    const IS_STATIC_HPACK: bool;

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
    /// The length of the head as text.
    pub len: usize,
    /// The block depends on the text alone, and has no credentials and no cookies.
    pub may_repeat: bool,
}

/// The facts of a response beside its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The status that is sent.
    pub status: u16,
    /// The length of the head as text.
    pub len: usize,
    /// The block depends on the text alone, and has no cookies.
    pub may_repeat: bool,
}

/// The length of the head at the start of `text`.
pub fn end_of_head(text: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, b"\r\n\r\n").map(|at| at + 4)
}

/// Appends the block of the request head at the start of `text`.
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
    let (line, mut lines) = split(text)?;
    let mut words = line.split(|&b| b == b' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Err(unsayable()) };
    scratch.fields.clear();
    let (mut host, mut upgrade, mut key) = (None, None, None);
    let mut may_repeat = true;
    let mut known = OF_REQUESTS.take(); // forgotten if the head is refused, which is rare
    while let Some(new) = lines.next_unknown(encoder, &known, &mut scratch.fields) {
        let new = new?;
        let Line { name, value, .. } = new.line;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => host = Some(value),
            17 if name.eq_ignore_ascii_case(b"sec-websocket-key") => key = Some(value),
            7 if name.eq_ignore_ascii_case(b"upgrade") => upgrade = Some(value),
            // RFC 9113 §8.2.2: the one value that may be sent.
            2 if name.eq_ignore_ascii_case(b"te") && value.eq_ignore_ascii_case(b"trailers") => {
                let begin = scratch.fields.len();
                encoder.encode(b"te", b"trailers", false, &mut scratch.fields);
                new.note(&mut known, scratch.fields.get(begin..).unwrap_or_default());
            }
            _ => {
                let repeating = new_field(&new, encoder, &mut known, &mut scratch.name, &mut scratch.fields);
                may_repeat &= repeating == Repeating::Maybe;
            }
        }
    }
    let len = lines.end_of_head(text)?; // first: a head that was cut must leave no line behind
    OF_REQUESTS.set(known);
    let tunnel = upgrade.is_some_and(|u| u.eq_ignore_ascii_case(b"websocket")) && key.is_some();
    let method_sent = if tunnel { &b"CONNECT"[..] } else { method };
    encoder.encode(b":method", method_sent, false, out);
    if tunnel {
        encoder.encode(b":protocol", b"websocket", false, out);
    }
    encoder.encode(b":scheme", scheme.as_bytes(), false, out);
    if let Some(host) = host {
        if !host.iter().all(|&b| SAYABLE[usize::from(b)] == Sayable::Host) {
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
    match key {
        Some(key) if tunnel => Ok(Asked { key: Some(key.to_vec()), is_head: false, len, may_repeat: false }),
        key => {
            if let Some(key) = key {
                encoder.encode(b"sec-websocket-key", key, false, out);
            }
            Ok(Asked { key: None, is_head: method == b"HEAD", len, may_repeat: may_repeat && key.is_none() })
        }
    }
}

/// Appends the block of the response head at the start of `text`. `tunnel`: the request asked for a tunnel, which a 2xx
/// would open (RFC 8441 §5). Here only a 101 opens one.
///
/// # Errors
/// When the text is not a head, which would be a bug of ours.
pub fn response(
    text: &[u8],
    tunnel: bool,
    encoder: &mut impl Encode,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> io::Result<Answered> {
    let (line, mut lines) = split(text)?;
    let digits = line.get(9..12).filter(|d| d.iter().all(u8::is_ascii_digit)).ok_or_else(unsayable)?;
    let status = digits.iter().fold(0, |status, digit| 10 * status + u16::from(digit - b'0'));
    let opens = status == 101;
    match status {
        101 => encoder.encode(b":status", b"200", false, out),
        200..=299 if tunnel => encoder.encode(b":status", b"502", false, out),
        _ => encoder.encode(b":status", digits, false, out),
    }
    let mut known = OF_RESPONSES.take();
    let mut may_repeat = !opens && !tunnel;
    while let Some(new) = lines.next_unknown(encoder, &known, out) {
        let new = new?;
        if !(opens && new.line.name.eq_ignore_ascii_case(b"sec-websocket-accept")) {
            let repeating = new_field(&new, encoder, &mut known, &mut scratch.name, out);
            may_repeat &= repeating == Repeating::Maybe;
        }
    }
    let len = lines.end_of_head(text)?; // as in `request`
    OF_RESPONSES.set(known);
    Ok(Answered { status: if opens { 200 } else { status }, len, may_repeat })
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
    // Those of gRPC calls repeat. Lines of trailers mean what those of responses do.
    let mut known = OF_RESPONSES.take();
    let mut rest = Lines(lines);
    while let Some(new) = rest.next_unknown(encoder, &known, out) {
        let _ = new_field(&new?, encoder, &mut known, &mut scratch.name, out);
    }
    if lines.ends_with(b"\r\n") {
        OF_RESPONSES.set(known); // otherwise a line that was cut might be among them
    }
    Ok(())
}

/// Splits a head into the start line and the field lines.
fn split(head: &[u8]) -> io::Result<(&[u8], Lines<'_>)> {
    let end = memchr::memchr(b'\r', head).ok_or_else(unsayable)?;
    Ok((head.get(..end).unwrap_or_default(), Lines(head.get(end + 2..).unwrap_or_default())))
}

/// A field line.
#[derive(Clone, Copy)]
struct Line<'a> {
    name: &'a [u8],
    /// Whether the name is in lower case.
    is_lower: bool,
    value: &'a [u8],
}

/// Iterates over field lines up to the end of the head. No value contains a CR: that was checked when it was created.
struct Lines<'a>(&'a [u8]);

/// A line whose block is not known.
struct New<'a> {
    line: Line<'a>,
    /// The line with its CRLF.
    text: &'a [u8],
    /// Where its block may be kept.
    at: Option<Key>,
}

impl New<'_> {
    /// Notes the block of this line, which may come again.
    #[inline]
    fn note(&self, known: &mut Repeats, block: &[u8]) {
        if let Some(at) = self.at {
            known.note(at, self.text, block);
        }
    }
}

/// Whether a line may come again and its block be kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeating {
    Maybe,
    /// It may hold a secret, or its block depends on more than the line.
    Never,
}

impl<'a> Lines<'a> {
    /// Appends the blocks of the lines that are known, up to the first other line.
    #[inline]
    fn next_unknown<E: Encode>(
        &mut self,
        _: &E,
        known: &Repeats,
        out: &mut Vec<u8>,
    ) -> Option<io::Result<New<'a>>> {
        loop {
            let text = self.0;
            let at = if E::IS_STATIC_HPACK { Key::of(text) } else { None };
            if let Some(len) = at.and_then(|at| known.append(at, text, out)) {
                self.0 = text.get(len..).unwrap_or_default();
                continue;
            }
            return self.next().map(|line| {
                let text = text.get(..text.len() - self.0.len()).unwrap_or_default();
                line.map(|line| New { line, text, at })
            });
        }
    }

    /// The length of the head, after the last line.
    fn end_of_head(&self, head: &[u8]) -> io::Result<usize> {
        let behind = self.0.strip_prefix(b"\r\n").ok_or_else(unsayable)?;
        Ok(head.len() - behind.len())
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = io::Result<Line<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        if matches!(bytes, [] | [b'\r', ..]) {
            return None;
        }
        let Some((colon, is_lower)) = name_end(bytes) else { return Some(Err(unsayable())) };
        let (name, rest) = bytes.split_at_checked(colon)?;
        let Some((value, rest)) = line_end(rest).and_then(|end| rest.split_at_checked(end)) else {
            return Some(Err(unsayable()));
        };
        self.0 = rest.get(2..).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        Some(Ok(Line { name, is_lower, value }))
    }
}

/// Appends the block of a line that is not known, and notes the line if it may come again.
#[inline]
fn new_field(
    new: &New<'_>,
    encoder: &mut impl Encode,
    known: &mut Repeats,
    lower: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Repeating {
    let begin = out.len();
    let repeating = field(&new.line, encoder, lower, out);
    if repeating == Repeating::Maybe {
        new.note(known, out.get(begin..).unwrap_or_default());
    }
    repeating
}

#[inline]
fn field(line: &Line<'_>, encoder: &mut impl Encode, lower: &mut Vec<u8>, out: &mut Vec<u8>) -> Repeating {
    let name = if line.is_lower {
        line.name
    } else {
        lower.clear();
        lower.extend_from_slice(line.name);
        lower.make_ascii_lowercase();
        &lower[..]
    };
    match name {
        // Their block is empty. What a request does with TE and Upgrade is decided before.
        b"connection" | b"keep-alive" | b"proxy-connection" | b"te" | b"transfer-encoding" | b"upgrade" => {
            return Repeating::Maybe;
        }
        // RFC 7541 §7.1.3: no hop may add these to a table.
        b"authorization" | b"proxy-authorization" => encoder.encode(name, line.value, true, out),
        b"cookie" | b"set-cookie" | b"sec-websocket-accept" => encoder.encode(name, line.value, false, out),
        _ => {
            encoder.encode(name, line.value, false, out);
            return Repeating::Maybe;
        }
    }
    Repeating::Never
}

/// Whether a byte may occur in a target or host of HTTP/2 and HTTP/3.
fn is_sayable(byte: u8) -> bool {
    SAYABLE[usize::from(byte)] != Sayable::Never
}

/// Where a byte may occur.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sayable {
    Never,
    /// In a target, not in a host.
    Target,
    Host,
}

static SAYABLE: [Sayable; 256] = {
    let mut table = [Sayable::Never; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = match byte as u8 {
            b'"' | b'<' | b'>' => Sayable::Never,
            b'/' | b'?' | b'#' | b'\\' => Sayable::Target,
            graphic if graphic.is_ascii_graphic() => Sayable::Host,
            _ => Sayable::Never,
        };
        byte += 1;
    }
    table
};

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

    /// The same, for whose blocks nothing is kept.
    struct Forgetful;

    impl Encode for Forgetful {
        const IS_STATIC_HPACK: bool = false;

        fn encode(&mut self, name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
            Plain.encode(name, value, secret, out);
        }
    }

    impl Encode for Plain {
        const IS_STATIC_HPACK: bool = true;

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
                "te: trailers",
                "cookie: a"
            ]
        );
        assert_eq!((asked.key, asked.is_head), (None, false));
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

    /// A line: its name, its value, and whether the name is in lower case.
    type Read = (String, String, bool);

    /// The lines of a head and its length, read as simply as possible.
    fn plainly(text: &str) -> Option<(Vec<Read>, usize)> {
        let end = text.find("\r\n\r\n")? + 2;
        let mut lines = Vec::new();
        for line in text[..end].split_terminator("\r\n").skip(1) {
            let (name, value) = line.split_once(':')?;
            let is_lower = !name.bytes().any(|b| b.is_ascii_uppercase());
            lines.push((name.to_owned(), value.trim_ascii().to_owned(), is_lower));
        }
        Some((lines, end + 2))
    }

    #[test]
    fn lines_are_read_as_defined() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..4_000 {
            let mut text = "HTTP/1.1 200 OK\r\n".to_owned();
            for _ in 0..random.usize(..4) {
                let of = |random: &mut fastrand::Rng, bytes: &[u8], most: usize| -> String {
                    (0..random.usize(..most))
                        .map(|_| char::from(bytes[random.usize(..bytes.len())]))
                        .collect()
                };
                let name = of(&mut random, b"abcxyz-_09abcxyz@[`{AZ", 24);
                let value = of(&mut random, b" a:;=/\t", 60);
                let colon = if random.u8(..50) == 0 { "" } else { ": " };
                text += &format!("{name}{colon}{value}\r\n");
            }
            text += ["\r\n", "\r\n", "\r\n\x01body: 1\r\n\r\n", ""][random.usize(..4)];
            let read = || {
                let (_, mut lines) = split(text.as_bytes())?;
                let all: io::Result<Vec<_>> = (&mut lines)
                    .map(|line| {
                        let Line { name, value, is_lower } = line?;
                        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                        Ok((text(name), text(value), is_lower))
                    })
                    .collect();
                Ok::<_, io::Error>((all?, lines.end_of_head(text.as_bytes())?))
            };
            let want = plainly(&text);
            *(if want.is_some() { &mut good } else { &mut bad }) += 1;
            assert_eq!(read().ok(), want, "{text:?}");
        }
        assert!(good > 500 && bad > 500, "{good}, {bad}: the test has lost its point");
    }

    /// Heads of many users, who repeat their own lines and each other's: what is kept changes no block.
    #[test]
    fn what_is_kept_changes_nothing() {
        const LINES: [&str; 19] = [
            "server: weir",
            "Server: weir",
            "server: weir ",
            "content-type: text/html",
            "content-type: text/plain",
            "content-length: 5",
            "content-length: 51",
            "date: Sun, 29 Nov 2026 12:00:00 GMT",
            "date: Sun, 29 Nov 2026 12:00:01 GMT",
            "authorization: Basic of-user-a",
            "cookie: session=of-user-a",
            "set-cookie: session=of-user-b",
            "connection: keep-alive, te",
            "te: trailers",
            "te: trailers, gzip",
            "host: somewhere.test",
            "upgrade: websocket",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
            "sec-websocket-accept: dGhlIHNhbXBsZSBub25jZQ==",
        ];
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..5_000 {
            let lines: Vec<&str> =
                (0..random.usize(..6)).map(|_| LINES[random.usize(..LINES.len())]).collect();
            let fields = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
            let of_request = format!("GET /some/path HTTP/1.1\r\n{fields}\r\nbody: of sixteen bytes");
            let status = ["200 OK", "101 Switch"][random.usize(..2)];
            let of_response = format!("HTTP/1.1 {status}\r\n{fields}\r\nbody: of sixteen bytes");
            let (mut kept, mut plain) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
            let (text, scratch) = (of_request.as_bytes(), &mut Scratch::default());
            let asked = request(text, "https", &mut Plain, scratch, &mut kept.0).unwrap();
            assert_eq!(request(text, "https", &mut Forgetful, scratch, &mut plain.0).unwrap(), asked);
            let text = of_response.as_bytes();
            let answered = response(text, false, &mut Plain, scratch, &mut kept.1).unwrap();
            assert_eq!(response(text, false, &mut Forgetful, scratch, &mut plain.1).unwrap(), answered);
            assert_eq!(kept, plain, "{fields}");
            let (mut kept, mut plain) = (Vec::new(), Vec::new());
            trailers(fields.as_bytes(), &mut Plain, scratch, &mut kept).unwrap();
            trailers(fields.as_bytes(), &mut Forgetful, scratch, &mut plain).unwrap();
            assert_eq!(kept, plain, "{fields}");
        }
    }

    /// Its last line would lack its end, and heads with that line would go on in the middle of it.
    #[test]
    fn a_head_that_is_cut_leaves_no_line_behind() {
        let line = "x-some-name: 0123456";
        for cut in [format!("{line}\r"), format!("{line}\r\n")] {
            let (of_request, of_response) =
                (format!("GET / HTTP/1.1\r\n{cut}"), format!("HTTP/1.1 200 OK\r\n{cut}"));
            let scratch = &mut Scratch::default();
            for _ in 0..4 {
                request(of_request.as_bytes(), "https", &mut Plain, scratch, &mut Vec::new()).unwrap_err();
                response(of_response.as_bytes(), false, &mut Plain, scratch, &mut Vec::new()).unwrap_err();
            }
            // In a loop of their own, because a refused head clears all known lines.
            for _ in 0..4 {
                if !cut.ends_with('\n') {
                    trailers(cut.as_bytes(), &mut Plain, scratch, &mut Vec::new()).unwrap();
                }
            }
            for kept in [OF_REQUESTS.take(), OF_RESPONSES.take()] {
                assert_eq!(
                    kept.append(
                        Key::of(line.as_bytes()).unwrap(),
                        b"x-some-name: 0123456\r\n\r\n",
                        &mut Vec::new()
                    ),
                    None
                );
            }
        }
    }

    #[test]
    fn no_secret_is_kept() {
        let secrets = ["Authorization: Basic s3cret", "cookie: id=s3cret", "set-cookie: id=s3cret"];
        let text = format!("HTTP/1.1 200 OK\r\n{}\r\nx-plain: is kept\r\n\r\n", secrets.join("\r\n"));
        for _ in 0..4 {
            response(text.as_bytes(), false, &mut Plain, &mut Scratch::default(), &mut Vec::new()).unwrap();
        }
        let kept = format!("{:?}", OF_RESPONSES.take()).replace(", ", "");
        let bytes = |text: &str| format!("{:?}", text.as_bytes()).replace(", ", "").replace(['[', ']'], "");
        assert!(kept.contains(&bytes("x-plain: is kept\r\n")) && !kept.contains(&bytes("s3cret")), "{kept}");
    }
}
