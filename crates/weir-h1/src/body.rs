//! Finds the end of a body; decodes and encodes chunks (RFC 9112 §6.3, §7.1).

use crate::error::{Error, Kind};
use crate::name::{Known, is_token};

/// How a body is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyKind {
    /// By chunks.
    Chunked,
    /// There is no body.
    #[default]
    Empty,
    /// By its length in bytes; never 0.
    Length(u64),
    /// By the end of the connection (only responses), or of the HTTP/2 stream.
    UntilClose,
}

/// Longest chunk-size line with its extensions, in bytes. Nobody uses extensions; they are read and discarded.
pub const CHUNK_LINE_BYTES: u32 = 256;

/// Longest trailer section, in bytes.
pub const TRAILER_BYTES: usize = 8 * 1024;

/// Finds the body in the bytes after a head.
///
/// ```text
///  ┌─► Size ─┬──────────────────────┬─► SizeLf ──► Data ──► DataCr ──► DataLf ─┐
///  │         └─► Blank ► Extension ─┘     │ size 0                             │
///  └──────────────────────────────────────┼────────────────────────────────────┘
///                                         └──────► Trailers ──► Done
/// ```
#[derive(Debug)]
pub struct BodyReader {
    state: State,
    /// Trailer lines as received, each with its CRLF. Empty for almost every message.
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Blank { size: u64, read: u32 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Done,
    Extension { size: u64, read: u32 },
    Length { left: u64 },
    Size { size: u64, digits: u32 },
    SizeLf { size: u64 },
    Trailers,
    UntilClose,
}

/// One step of the body reader, relative to its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `input[skip..skip + len]` is body; the input up to its end is consumed.
    Data {
        /// Bytes of framing before it.
        skip: usize,
        /// Bytes of body; never 0.
        len: usize,
    },
    /// The message ends after `used` bytes of the input.
    End {
        /// Bytes used.
        used: usize,
    },
    /// The whole input is consumed and more is needed.
    More,
}

impl BodyReader {
    /// A reader for one message.
    pub const fn new(kind: BodyKind) -> Self {
        let state = match kind {
            BodyKind::Chunked => State::Size { size: 0, digits: 0 },
            BodyKind::Empty => State::Done,
            BodyKind::Length(left) => State::Length { left },
            BodyKind::UntilClose => State::UntilClose,
        };
        Self { state, trailers: Vec::new() }
    }

    /// Whether the whole message was read.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done | State::Length { left: 0 })
    }

    /// Consumes the rest of a body of known length if all of it is among the `arrived` bytes. Returns its length.
    #[inline]
    pub fn take_rest(&mut self, arrived: usize) -> Option<usize> {
        let State::Length { left } = self.state else { return None };
        let length = usize::try_from(left).ok().filter(|length| *length <= arrived)?;
        self.state = State::Done;
        Some(length)
    }

    /// Whether the end of the connection properly ends this body.
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// The connection or stream has ended. `trailers`: the field lines that HTTP/2 sent after the body, each with its
    /// CRLF.
    ///
    /// # Errors
    /// When the trailers are malformed or longer than [`TRAILER_BYTES`].
    pub fn end(&mut self, trailers: Vec<u8>) -> Result<(), Error> {
        self.trailers = trailers;
        self.state = State::Done;
        if self.trailers.len() > TRAILER_BYTES {
            return Err(Error::new(Kind::Trailers, TRAILER_BYTES));
        }
        check_trailers(&mut self.trailers).map_err(|()| Error::new(Kind::Trailers, 0))
    }

    /// The trailer section, once the message is complete: valid field lines, each with its CRLF, without those not
    /// allowed in trailers (RFC 9110 §6.5.1).
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Keeps only the trailers for whose name `keep` returns true.
    pub fn retain_trailers(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let lines = std::mem::take(&mut self.trailers);
        for line in lines.split_inclusive(|&b| b == b'\n') {
            if keep(line.split(|&b| b == b':').next().unwrap_or_default()) {
                self.trailers.extend_from_slice(line);
            }
        }
    }

    /// The trailers for editing: field lines, each with its CRLF.
    pub const fn trailers_mut(&mut self) -> &mut Vec<u8> {
        &mut self.trailers
    }

    /// Takes the next piece of the body from `input`.
    ///
    /// # Errors
    /// When the chunks are malformed. The message cannot be read further.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Error> {
        match self.state {
            State::Done | State::Length { left: 0 } => return Ok(Step::End { used: 0 }),
            State::Length { ref mut left } => {
                let len = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= len as u64;
                return Ok(if len == 0 { Step::More } else { Step::Data { skip: 0, len } });
            }
            State::UntilClose if input.is_empty() => return Ok(Step::More),
            State::UntilClose => return Ok(Step::Data { skip: 0, len: input.len() }),
            _ => {}
        }
        self.chunked(input)
    }

    fn chunked(&mut self, input: &[u8]) -> Result<Step, Error> {
        let mut at = 0;
        while let Some(&b) = input.get(at) {
            let bad = Err(Error::new(Kind::Chunk, at));
            self.state = match self.state {
                State::Data { left } => {
                    let len = (input.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - len as u64;
                    self.state = if left == 0 { State::DataCr } else { State::Data { left } };
                    return Ok(Step::Data { skip: at, len });
                }
                State::DataCr if b == b'\r' => State::DataLf,
                State::DataLf if b == b'\n' => State::Size { size: 0, digits: 0 },
                State::Size { size, digits } => match (b, hex(b)) {
                    // 15 digits: cannot overflow, and no file is longer.
                    (_, Some(d)) if digits < 15 => {
                        State::Size { size: size << 4 | u64::from(d), digits: digits + 1 }
                    }
                    (b'\r', _) if digits > 0 => State::SizeLf { size },
                    (b';', _) if digits > 0 => State::Extension { size, read: digits + 1 },
                    (b' ' | b'\t', _) if digits > 0 => State::Blank { size, read: digits + 1 },
                    _ => return bad,
                },
                // §7.1.1: white space is allowed only before a `;`. Servers disagree on sizes like `5 x`.
                State::Blank { size, read } => match b {
                    b';' if read < CHUNK_LINE_BYTES => State::Extension { size, read: read + 1 },
                    b' ' | b'\t' if read < CHUNK_LINE_BYTES => State::Blank { size, read: read + 1 },
                    _ => return bad,
                },
                State::Extension { size, read } => match b {
                    b'\r' => State::SizeLf { size },
                    b'\t' | 0x20..=0x7e | 0x80..=0xff if read < CHUNK_LINE_BYTES => {
                        State::Extension { size, read: read + 1 }
                    }
                    _ => return bad,
                },
                State::SizeLf { size: 0 } if b == b'\n' => State::Trailers,
                State::SizeLf { size } if b == b'\n' => State::Data { left: size },
                State::Trailers => {
                    if b == b'\n' && self.trailers.last() != Some(&b'\r') {
                        return Err(Error::new(Kind::Trailers, at));
                    }
                    self.trailers.push(b);
                    if self.trailers.len() > TRAILER_BYTES {
                        return Err(Error::new(Kind::Trailers, at));
                    }
                    if self.trailers == b"\r\n" || self.trailers.ends_with(b"\r\n\r\n") {
                        self.trailers.truncate(self.trailers.len() - 2);
                        check_trailers(&mut self.trailers).map_err(|()| Error::new(Kind::Trailers, at))?;
                        self.state = State::Done;
                        return Ok(Step::End { used: at + 1 });
                    }
                    State::Trailers
                }
                _ => return bad,
            };
            at += 1;
        }
        Ok(Step::More)
    }
}

/// Keeps the trailer lines that may be forwarded; an error if one is malformed. If all of them may, it copies nothing,
/// because every gRPC call has trailers.
fn check_trailers(lines: &mut Vec<u8>) -> Result<(), ()> {
    let mut kept: Option<Vec<u8>> = None;
    let mut at = 0;
    for line in lines.split_inclusive(|&b| b == b'\n') {
        let text = line.strip_suffix(b"\r\n").ok_or(())?;
        let colon = text.iter().position(|&b| b == b':').ok_or(())?;
        let (name, value) = text.split_at(colon);
        let fine = !name.is_empty()
            && name.iter().all(|&b| is_token(b))
            && value.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f));
        if !fine {
            return Err(());
        }
        let may_pass = may_trail(name);
        match &mut kept {
            Some(kept) if may_pass => kept.extend_from_slice(line),
            None if !may_pass => kept = lines.get(..at).map(<[u8]>::to_vec),
            _ => {}
        }
        at += line.len();
    }
    if let Some(kept) = kept {
        *lines = kept;
    }
    Ok(())
}

/// RFC 9110 §6.5.1: fields for framing, routing, trust, authentication, caching or interpreting the content come too
/// late in a trailer. A recipient that merged them into the head would change decisions already made.
fn may_trail(name: &[u8]) -> bool {
    const FORBIDDEN: [&str; 25] = [
        "age",
        "authorization",
        "cache-control",
        "content-encoding",
        "content-range",
        "content-type",
        "cookie",
        "expires",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "location",
        "max-forwards",
        "pragma",
        "proxy-authenticate",
        "proxy-authorization",
        "range",
        "retry-after",
        "set-cookie",
        "vary",
        "www-authenticate",
        "x-forwarded-port",
        "x-real-ip",
    ];
    // All fields that the gateway itself acts on are of that kind.
    Known::of(name) == Known::Other && !FORBIDDEN.iter().any(|f| name.eq_ignore_ascii_case(f.as_bytes()))
}

const fn hex(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}

/// Writes one chunk. Skips an empty one, which would end the body.
pub fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    let mut digits = [0u8; 16];
    let mut at = digits.len();
    let mut n = data.len();
    while n > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[n & 15];
        n >>= 4;
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Writes the end of a chunked body. `trailers` are field lines, each with its CRLF.
pub fn write_last_chunk(trailers: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a chunked body given in pieces; returns the data and what is left over, or the error's kind.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, bool), Kind> {
        let mut reader = BodyReader::new(BodyKind::Chunked);
        let (mut data, mut rest) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut input = *piece;
            loop {
                match reader.step(input).map_err(|e| e.kind())? {
                    Step::Data { skip, len } => {
                        data.extend_from_slice(&input[skip..skip + len]);
                        input = &input[skip + len..];
                    }
                    Step::End { used } => {
                        rest.extend_from_slice(&input[used..]);
                        break;
                    }
                    Step::More => break,
                }
            }
        }
        Ok((data, rest, reader.is_done()))
    }

    #[test]
    fn chunks_in_one_piece_and_byte_by_byte() {
        let wire = b"5\r\nhello\r\n6;a=\"b\"\r\n world\r\n0\r\nX-T: 1\r\n\r\nGET";
        assert_eq!(read(&[wire]), Ok((b"hello world".to_vec(), b"GET".to_vec(), true)));
        let bytes: Vec<&[u8]> = wire[..wire.len() - 3].chunks(1).collect();
        assert_eq!(read(&bytes), Ok((b"hello world".to_vec(), vec![], true)));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for bad in [
            &b"\r\n"[..],
            b"x\r\n",
            b"5\nhello",
            b"5\r\nhelloX",
            b"5\r\nhello\n",
            b"-5\r\n",
            b"+5\r\n",
            b"0x5\r\n",
            b"1234567890abcdef0\r\n",
            b"5;\nX\r\n",
            b"5;a\0\r\n",
            b"5;a\n",
            b"5 x\r\n",
            b"5\tx\r\n",
            b"5 \r\n",
            b"5\0\r\n",
            b"5_0\r\n",
            b"\xb5\r\n",
            b"5\r\r\n",
            b"5\rhello",
            b"5\r\nhello\r5",
            b"5\r\nhello5\r\n",
            b"0\r\n: x\r\n\r\n",
            b"0\r\nx : 1\r\n\r\n",
            b"0\r\n x: 1\r\n\r\n",
            b"0\r\nx: 1\r\n y\r\n\r\n",
            b"0\r\nx: 1\ry: 2\r\n\r\n",
            b"0\r\n\n",
            b"0\r\nx: 1\n",
            b"0\n",
            b" 5\r\n",
            b"0\r\nbad trailer\r\n\r\n",
            b"0\r\nx: a\0\r\n\r\n",
            b"0\r\n\n\r\n\r\n",
        ] {
            assert!(read(&[bad]).is_err(), "{}", bad.escape_ascii());
        }
    }

    /// The same check, which always copies.
    fn checked_plainly(lines: &[u8]) -> Option<Vec<u8>> {
        let mut kept = Vec::new();
        for line in lines.split_inclusive(|&b| b == b'\n') {
            let text = line.strip_suffix(b"\r\n")?;
            let (name, value) = text.split_at(text.iter().position(|&b| b == b':')?);
            let is_value = |&b: &u8| b == b'\t' || (b >= 0x20 && b != 0x7f);
            if name.is_empty() || !name.iter().all(|&b| is_token(b)) || !value.iter().all(is_value) {
                return None;
            }
            if may_trail(name) {
                kept.extend_from_slice(line);
            }
        }
        Some(kept)
    }

    #[test]
    fn a_line_that_may_not_trail_is_cut_out() {
        const NAMES: [&str; 8] =
            ["x", "x-sum", "grpc-status", "grpc-message", "Age", "set-cookie", "te", "a-very-long-name"];
        const VALUES: [&str; 6] = ["", " ", "0", " 0", "\tsome longer text: of words ", "\u{e9}"];
        const BYTES: [u8; 10] = [0, b'\t', b'\n', b'\r', b' ', b':', b'a', b'@', 0x7f, 0xff];
        let mut random = fastrand::Rng::with_seed(3);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let mut lines = String::new();
            for _ in 0..random.usize(..5) {
                lines += NAMES[random.usize(..NAMES.len())];
                lines.push(':');
                lines += VALUES[random.usize(..VALUES.len())];
                lines += "\r\n";
            }
            let mut lines = lines.into_bytes();
            if !lines.is_empty() && random.bool() {
                let at = random.usize(..lines.len());
                lines[at] = BYTES[random.usize(..BYTES.len())];
            }
            if random.u8(..10) == 0 {
                lines.pop();
            }
            let want = checked_plainly(&lines);
            *(if want.is_some() { &mut good } else { &mut bad }) += 1;
            let mut found = lines.clone();
            assert_eq!(check_trailers(&mut found).ok().map(|()| found), want, "{}", lines.escape_ascii());
        }
        assert!(good > 2000 && bad > 2000, "{good}, {bad}: the test has lost its point");
    }

    #[test]
    fn forbidden_trailers_are_dropped() {
        let mut reader = BodyReader::new(BodyKind::Chunked);
        let wire = b"0\r\nX-Sum: 1\r\nContent-Length: 5\r\nHost: b\r\nX-Forwarded-For: 1\r\nX_Real_IP: 1\r\n\
            Forwarded: x\r\nupgrade: x\r\nkeep-alive: 1\r\nRange: x\r\ngrpc-status: 0\r\n\r\n";
        assert_eq!(reader.step(wire), Ok(Step::End { used: wire.len() }));
        assert_eq!(reader.trailers(), b"X-Sum: 1\r\ngrpc-status: 0\r\n");
        reader.retain_trailers(|name| name != b"X-Sum");
        assert_eq!(reader.trailers(), b"grpc-status: 0\r\n");
    }

    #[test]
    fn sizes_and_extensions() {
        for (wire, want) in [
            (&b"00005\r\nhello\r\n000\r\n\r\n"[..], &b"hello"[..]),
            (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
            (b"a \t;x=y; z\r\n0123456789\r\n0;last\r\n\r\n", b"0123456789"),
            (b"2;x=\"\xe4 ;\"\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
        ] {
            assert_eq!(read(&[wire]), Ok((want.to_vec(), vec![], true)), "{}", wire.escape_ascii());
            for cut in 0..wire.len() {
                let (a, b) = wire.split_at(cut);
                assert_eq!(
                    read(&[a, b]),
                    Ok((want.to_vec(), vec![], true)),
                    "{} at {cut}",
                    wire.escape_ascii()
                );
            }
        }
        let line = |n: usize| [b"1;".to_vec(), vec![b'x'; n], b"\r\n".to_vec()].concat();
        assert!(read(&[&line(254)]).is_ok());
        assert_eq!(read(&[&line(255)]), Err(Kind::Chunk));
        let trailers = |n: usize| [&b"0\r\nx: "[..], &vec![b'x'; n], b"\r\n\r\n"].concat();
        assert!(read(&[&trailers(TRAILER_BYTES - 7)]).is_ok());
        assert_eq!(read(&[&trailers(TRAILER_BYTES - 6)]), Err(Kind::Trailers));
    }

    #[test]
    fn length_never_reads_past_its_end() {
        let mut reader = BodyReader::new(BodyKind::Length(3));
        assert_eq!(reader.step(b"ab"), Ok(Step::Data { skip: 0, len: 2 }));
        assert_eq!(reader.step(b"cGET"), Ok(Step::Data { skip: 0, len: 1 }));
        assert!(reader.is_done());
        assert_eq!(reader.step(b"GET"), Ok(Step::End { used: 0 }));
    }

    #[test]
    fn chunks_are_written() {
        let mut out = Vec::new();
        write_chunk(b"", &mut out);
        write_chunk(&[b'x'; 26], &mut out);
        write_last_chunk(b"A: b\r\n", &mut out);
        assert_eq!(out, b"1a\r\nxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n0\r\nA: b\r\n\r\n");
    }
}
