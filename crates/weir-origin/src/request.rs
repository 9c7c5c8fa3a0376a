//! Parses request heads and bodies: strictly enough to catch a gateway that frames badly, and without allocation, so
//! that `connection.rs` can answer the measured path directly from its read buffer.

use memchr::memchr;

/// The longest head that we read.
pub(crate) const MAX_HEAD: usize = 64 * 1024;

/// The result of parsing the bytes read so far.
#[derive(Debug, PartialEq)]
pub(crate) enum Parsed<'a> {
    /// Not a head, even with more bytes.
    Bad(&'static str),
    /// A complete head.
    Head(Head<'a>),
    /// An incomplete head.
    Partial,
}

/// How the body of a request ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Framing {
    /// Chunked coding.
    Chunked,
    /// This many bytes; 0 without a body.
    Length(u64),
}

/// A request head, as ranges of the received bytes.
#[derive(Debug, PartialEq)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) minor_version: u8,
    /// The header lines with their CRLFs, without the empty line.
    pub(crate) fields: &'a str,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    /// The length of the head in bytes, including its empty line.
    pub(crate) length: usize,
}

impl Head<'_> {
    /// Parses a head at the start of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Parsed<'_> {
        let Some((line, mut at)) = (match line(bytes, 0) {
            Ok(found) => found,
            Err(why) => return Parsed::Bad(why),
        }) else {
            return Parsed::Partial;
        };
        let Some((method, target, minor_version)) = request_line(line) else {
            return Parsed::Bad("request line");
        };
        let first_field = at;
        let mut fields = Fields { keep_alive: minor_version == 1, ..Fields::default() };
        loop {
            let start = at;
            match self::line(bytes, at) {
                Ok(Some((b"", next))) => {
                    let Ok(text) = std::str::from_utf8(&bytes[first_field..start]) else {
                        return Parsed::Bad("header is not UTF-8");
                    };
                    let framing = match (fields.chunked, fields.length) {
                        (true, Some(_)) => return Parsed::Bad("content-length with transfer-encoding"),
                        (true, None) => Framing::Chunked,
                        (false, length) => Framing::Length(length.unwrap_or(0)),
                    };
                    return Parsed::Head(Head {
                        method,
                        target,
                        minor_version,
                        fields: text,
                        framing,
                        keep_alive: fields.keep_alive,
                        expects_continue: fields.expects_continue,
                        length: next,
                    });
                }
                Ok(Some((line, next))) => {
                    if let Err(why) = fields.read(line) {
                        return Parsed::Bad(why);
                    }
                    at = next;
                }
                Ok(None) => return Parsed::Partial,
                Err(why) => return Parsed::Bad(why),
            }
        }
    }
}

/// The facts from the header fields that the origin needs.
#[derive(Default)]
struct Fields {
    chunked: bool,
    length: Option<u64>,
    keep_alive: bool,
    expects_continue: bool,
}

impl Fields {
    fn read(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let colon = memchr(b':', line).ok_or("header line without a colon")?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(|b| b.is_ascii_whitespace()) {
            return Err("header name");
        }
        // Compare lengths first: most fields match none of these and cost one comparison.
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"close") {
                        self.keep_alive = false;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") {
                        self.keep_alive = true;
                    }
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = decimal(value).ok_or("content-length")?;
                if self.length.replace(length).is_some() {
                    return Err("two content-lengths");
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err("transfer-encoding");
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Parses a chunk-size line at the start of `bytes`; returns the size and the length of the line.
pub(crate) fn chunk_size(bytes: &[u8]) -> Result<Option<(u64, usize)>, &'static str> {
    let Some((line, next)) = line(bytes, 0)? else {
        return if bytes.len() > 1024 { Err("chunk size line") } else { Ok(None) };
    };
    let digits = memchr(b';', line).map_or(line, |semicolon| &line[..semicolon]);
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("chunk size");
    }
    let size = digits.iter().fold(0, |size, digit| {
        let digit = (*digit as char).to_digit(16).unwrap_or(0);
        size << 4 | u64::from(digit)
    });
    Ok(Some((size, next)))
}

/// The line that begins at `at`, without its CRLF, and the start of the next one.
pub(crate) fn line(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, &'static str> {
    let rest = &bytes[at..];
    let Some(lf) = memchr(b'\n', rest) else { return Ok(None) };
    match rest[..lf].strip_suffix(b"\r") {
        Some(line) => Ok(Some((line, at + lf + 1))),
        None => Err("bare line feed"),
    }
}

fn request_line(line: &[u8]) -> Option<(&str, &str, u8)> {
    let line = std::str::from_utf8(line).ok()?;
    let (line, minor_version) = match line.strip_suffix(" HTTP/1.1") {
        Some(rest) => (rest, 1),
        None => (line.strip_suffix(" HTTP/1.0")?, 0),
    };
    let (method, target) = line.split_once(' ')?;
    let clean = |text: &str| !text.is_empty() && text.bytes().all(|b| b > b' ' && b != 0x7f);
    (clean(method) && clean(target)).then_some((method, target, minor_version))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.len() < 19 && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head<'_> {
        match Head::parse(text.as_bytes()) {
            Parsed::Head(head) => head,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn heads() {
        let plain = head("GET /a?b HTTP/1.1\r\nHost: x\r\nA:  b \r\n\r\nrest");
        assert_eq!((plain.method, plain.target, plain.length), ("GET", "/a?b", 38));
        assert_eq!(plain.fields, "Host: x\r\nA:  b \r\n");
        assert!(plain.keep_alive);
        assert!(!head("GET / HTTP/1.1\r\nConnection: a, Close\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(head("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").keep_alive);
        assert_eq!(head("PUT / HTTP/1.1\r\nContent-Length: 12\r\n\r\n").framing, Framing::Length(12));
        assert_eq!(head("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").framing, Framing::Chunked);
    }

    #[test]
    fn bad_heads() {
        for bad in [
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ] {
            assert!(matches!(Head::parse(bad.as_bytes()), Parsed::Bad(_)), "{bad:?}");
        }
        assert_eq!(Head::parse(b"GET / HTTP/1.1\r\nA: b\r\n"), Parsed::Partial);
    }

    #[test]
    fn chunk_sizes() {
        assert_eq!(chunk_size(b"1aF;x=y\r\n"), Ok(Some((0x1af, 9))));
        assert_eq!(chunk_size(b"1a"), Ok(None));
        for bad in [&b"\r\n"[..], b"g\r\n", b"1 \r\n", b"-1\r\n", b"1\n", b"1234567890abcdef\r\n"] {
            assert!(chunk_size(bad).is_err(), "{bad:?}");
        }
    }
}
