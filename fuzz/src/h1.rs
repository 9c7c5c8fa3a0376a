//! weir-h1: a message must parse the same in one piece and in two, and written messages must parse as intended.
//!
//! The first byte of an input is the position of the cut.

use weir_h1::{
    BodyKind, BodyReader, Fields, Kind, Limits, Method, Progress, RequestHead, ResponseHead, Step,
    parse_request, parse_response, write_chunk, write_last_chunk,
};

/// Small enough for a fuzzer to reach.
const LIMITS: Limits = Limits { head_bytes: 512, fields: 12, target_bytes: 64 };

/// A head, whole and cut; then its forwarded form, parsed again.
pub fn request(data: &[u8]) {
    let Some((wire, cut)) = cut(data) else { return };
    let whole = read_request(&[wire], &LIMITS);
    agree(&whole, &read_request(&[&wire[..cut], &wire[cut..]], &LIMITS), wire.len());
    let Read::Complete(head, _) = whole else { return };

    let mut sent = [head.method_name(), b" ", head.path()].concat();
    if let Some(query) = head.query() {
        sent.push(b'?');
        sent.extend_from_slice(query);
    }
    sent.extend_from_slice(b" HTTP/1.1\r\n");
    head.headers.write_to(&mut sent);
    if head.headers.get_str("host").is_none() {
        sent.extend_from_slice(b"Host: a\r\n");
    }
    if head.body() == BodyKind::Chunked {
        sent.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    sent.extend_from_slice(b"\r\n");
    let wide = Limits { head_bytes: 4096, fields: 24, target_bytes: 256 };
    let Read::Complete(again, told) = read_request(&[&sent], &wide) else {
        panic!("what was sent on is refused: {}", sent.escape_ascii());
    };
    assert!(again.rest().is_empty(), "ends early: {}", sent.escape_ascii());
    assert_eq!(again.body(), head.body(), "{}", sent.escape_ascii());
    assert_eq!((again.path(), again.query()), (head.path(), head.query()), "{told}");
    let host = head.headers.get_str("host").is_none().then_some((&b"Host"[..], &b"a"[..]));
    assert!(again.headers.iter().eq(head.headers.iter().chain(host)), "{told}");
}

/// A head, whole and cut; then its fields, written and parsed again.
pub fn response(data: &[u8]) {
    let Some((wire, cut)) = cut(data) else { return };
    let whole = read_response(&[wire]);
    agree(&whole, &read_response(&[&wire[..cut], &wire[cut..]]), wire.len());
    let Read::Complete(head, _) = whole else { return };

    let mut sent = [format!("HTTP/1.1 {} ", head.status()).as_bytes(), head.reason(), b"\r\n"].concat();
    head.headers.write_to(&mut sent);
    if head.body(Method::Get) == BodyKind::Chunked {
        sent.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    sent.extend_from_slice(b"\r\n");
    let mut again = ResponseHead::default();
    again.buffer_mut().extend_from_slice(&sent);
    let wide = Limits { head_bytes: 4096, fields: 24, target_bytes: 256 };
    assert_eq!(parse_response(&mut again, &wide), Ok(Progress::Complete), "{}", sent.escape_ascii());
    assert!(again.rest().is_empty(), "ends early: {}", sent.escape_ascii());
    assert!(again.headers.iter().eq(head.headers.iter()), "{}", sent.escape_ascii());
    for method in [Method::Get, Method::Head] {
        assert_eq!(again.body(method), head.body(method), "{}", sent.escape_ascii());
    }
}

/// A chunked body, whole and in pieces; then its content, written and parsed again.
pub fn chunked(data: &[u8]) {
    let Some((wire, cut)) = cut(data) else { return };
    let whole = read_chunks(&[wire]);
    assert_eq!(whole, read_chunks(&[&wire[..cut], &wire[cut..]]), "cut at {cut}: {}", wire.escape_ascii());
    let bytes: Vec<&[u8]> = wire.chunks(1).collect();
    assert_eq!(whole, read_chunks(&bytes), "byte by byte: {}", wire.escape_ascii());
    if whole.end != Ok(true) {
        return;
    }
    assert!(whole.used <= wire.len());

    let mut sent = Vec::new();
    for piece in whole.data.chunks(cut.max(1)) {
        write_chunk(piece, &mut sent);
    }
    write_last_chunk(&whole.trailers, &mut sent);
    let used = sent.len();
    sent.extend_from_slice(b"GET / HTTP/1.1\r\n");
    let again = read_chunks(&[&sent]);
    assert_eq!(again, Chunks { used, ..whole }, "{}", sent.escape_ascii());
}

/// The bytes after the first, and the position that the first names.
fn cut(data: &[u8]) -> Option<(&[u8], usize)> {
    let (&at, wire) = data.split_first()?;
    Some((wire, usize::from(at) * (wire.len() + 1) / 256))
}

/// The outcome of parsing; `Complete` has the whole head as text.
enum Read<H> {
    Complete(H, String),
    Partial,
    Refused,
}

/// Both must agree, except that a refusal may come later in pieces.
fn agree<H>(whole: &Read<H>, pieces: &Read<H>, len: usize) {
    match (whole, pieces) {
        (Read::Complete(_, a), Read::Complete(_, b)) => assert_eq!(a, b),
        (Read::Partial, Read::Partial) => assert!(len < LIMITS.head_bytes, "{len} bytes and no end"),
        (Read::Refused, Read::Refused | Read::Partial) => {}
        _ => panic!("whole and in pieces differ"),
    }
}

fn read_request(pieces: &[&[u8]], limits: &Limits) -> Read<RequestHead> {
    let mut head = RequestHead::default();
    for piece in pieces {
        head.buffer_mut().extend_from_slice(piece);
        match parse_request(&mut head, limits) {
            Ok(Progress::Partial) => {}
            Ok(Progress::Complete) => {
                let mut told = format!(
                    "{:?} {} {:?} {} ?{:?} @{} {:?} {:?} {:?} {:?} {} {} {}",
                    head.method(),
                    head.method_name().escape_ascii(),
                    head.form(),
                    head.path().escape_ascii(),
                    head.query(),
                    head.authority().escape_ascii(),
                    head.version(),
                    head.connection(),
                    head.body(),
                    head.upgrade(),
                    head.expects_continue(),
                    head.accepts_trailers(),
                    head.wire_len(),
                );
                tell(&mut told, &head.headers);
                return Read::Complete(head, told);
            }
            Err(_) => return Read::Refused,
        }
    }
    Read::Partial
}

fn read_response(pieces: &[&[u8]]) -> Read<ResponseHead> {
    let mut head = ResponseHead::default();
    for piece in pieces {
        head.buffer_mut().extend_from_slice(piece);
        match parse_response(&mut head, &LIMITS) {
            Ok(Progress::Partial) => {}
            Ok(Progress::Complete) => {
                let mut told = format!(
                    "{} {} {:?} {:?} {:?} {:?} {:?} {}",
                    head.status(),
                    head.reason().escape_ascii(),
                    head.version(),
                    head.connection(),
                    head.body(Method::Get),
                    head.content_length(),
                    head.upgrade(),
                    head.wire_len(),
                );
                tell(&mut told, &head.headers);
                return Read::Complete(head, told);
            }
            Err(_) => return Read::Refused,
        }
    }
    Read::Partial
}

fn tell(told: &mut String, fields: &Fields) {
    for (name, value) in fields.iter() {
        *told += &format!(" | {}: {}", name.escape_ascii(), value.escape_ascii());
    }
}

/// The result of parsing a chunked body.
#[derive(Debug, PartialEq, Eq)]
struct Chunks {
    data: Vec<u8>,
    trailers: Vec<u8>,
    /// Bytes up to the end of the message.
    used: usize,
    /// Whether it ended, or why it was refused.
    end: Result<bool, Kind>,
}

fn read_chunks(pieces: &[&[u8]]) -> Chunks {
    let mut reader = BodyReader::new(BodyKind::Chunked);
    let mut read = Chunks { data: Vec::new(), trailers: Vec::new(), used: 0, end: Ok(false) };
    for mut input in pieces.iter().copied() {
        loop {
            match reader.step(input) {
                Ok(Step::Data { skip, len }) => {
                    assert!(len > 0);
                    read.data.extend_from_slice(&input[skip..skip + len]);
                    read.used += skip + len;
                    input = &input[skip + len..];
                }
                Ok(Step::More) => {
                    read.used += input.len();
                    break;
                }
                Ok(Step::End { used }) => {
                    assert!(reader.is_done());
                    assert_eq!(reader.step(b"x"), Ok(Step::End { used: 0 }));
                    read.used += used;
                    read.trailers = reader.trailers().to_vec();
                    read.end = Ok(true);
                    return read;
                }
                Err(e) => {
                    assert!(e.at() < input.len());
                    // The used length is reported only for messages that can be continued.
                    return Chunks { used: 0, end: Err(e.kind()), ..read };
                }
            }
        }
    }
    read
}
