//! weir-fcgi: records and heads of CGI responses, from arbitrary bytes.

use weir_fcgi::{End, Output, Reader, Step, Violation, end_of_head, write_head};
use weir_h1::{Limits, Progress, ResponseHead, parse_response};

/// The first byte selects the rest: records, or a head.
pub fn fastcgi(data: &[u8]) {
    let Some((&what, rest)) = data.split_first() else { return };
    if what % 2 == 0 { records(rest) } else { head(rest) }
}

/// Records are the same however the input is split, and nothing is read behind the end.
fn records(bytes: &[u8]) {
    let whole = read(bytes, bytes.len().max(1));
    for size in [1, 3, 8, 9] {
        assert_eq!(read(bytes, size), whole, "in pieces of {size}");
    }
    let (output, errors, ended) = whole;
    if let Ok(Some((_, used))) = ended {
        assert!(output.len() + errors.len() + used <= 2 * bytes.len() && used <= bytes.len());
    }
}

/// Output, errors, and the end with the number of bytes up to it.
type Read = (Vec<u8>, Vec<u8>, Result<Option<(End, usize)>, Violation>);

fn read(bytes: &[u8], size: usize) -> Read {
    let (mut output, mut errors, mut consumed) = (Vec::new(), Vec::new(), 0);
    let mut reader = Reader::default();
    for piece in bytes.chunks(size) {
        let mut at = 0;
        loop {
            match reader.step(&piece[at..]) {
                Ok(Step::Data { of, skip, len }) => {
                    assert!(len > 0, "a step without progress");
                    let data = &piece[at + skip..at + skip + len];
                    if of == Output::Standard { &mut output } else { &mut errors }.extend_from_slice(data);
                    at += skip + len;
                }
                Ok(Step::End { used, end }) => return (output, errors, Ok(Some((end, consumed + at + used)))),
                Ok(Step::More) => break,
                Err(violation) => return (output, errors, Err(violation)),
            }
        }
        consumed += piece.len();
    }
    (output, errors, Ok(None))
}

/// A head is found however it arrives, and what HTTP/1.1 reads of its translation is what it said.
fn head(bytes: &[u8]) {
    let end = end_of_head(bytes, 0);
    let (mut seen, mut found) = (0, None);
    for len in 0..=bytes.len() {
        found = found.or_else(|| end_of_head(&bytes[..len], seen));
        seen = len;
    }
    assert_eq!(found, end, "byte by byte");
    let Some(end) = end else { return };
    let mut out = Vec::new();
    let Ok(told) = write_head(&bytes[..end], &mut out) else {
        assert!(out.is_empty(), "nothing is written of a refused head");
        return;
    };
    assert!((200..=599).contains(&told.status));
    assert!(out.ends_with(b"\r\n\r\n"));
    for at in memchr::memchr_iter(b'\n', &out) {
        assert_eq!(out[at - 1], b'\r', "a value began a line of its own");
    }
    let mut head = ResponseHead::default();
    head.buffer_mut().extend_from_slice(&out);
    if parse_response(&mut head, &Limits::default()) == Ok(Progress::Complete) {
        assert_eq!(head.status(), told.status);
        assert_eq!(head.rest(), b"", "no line of it ends the head early");
        assert_eq!(head.content_length(), told.length);
        assert!(head.headers.get_str("transfer-encoding").is_none() && head.upgrade().is_none());
    }
}
