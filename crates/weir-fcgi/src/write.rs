//! The records of a request, appended to a buffer.

use crate::{HEADER_BYTES, REQUEST, VERSION, kind};

/// Whether the server keeps the connection after its response (FCGI_KEEP_CONN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepConnection {
    /// The server closes it.
    Close,
    /// It can carry another request.
    Keep,
}

/// Longest content of a record that we write: the largest multiple of 8 that its two bytes of length can say, so that
/// a long stream stays aligned without padding.
const CONTENT_BYTES: usize = 65_528;

/// The role of a script that answers a request (FCGI_RESPONDER).
const RESPONDER: u8 = 1;

/// Begins a request.
pub fn write_begin(keep: KeepConnection, out: &mut Vec<u8>) {
    write_header(kind::BEGIN_REQUEST, 8, out);
    out.extend_from_slice(&[0, RESPONDER, u8::from(keep == KeepConnection::Keep), 0, 0, 0, 0, 0]);
}

/// Appends a parameter to `pairs`, for [`write_params`] (FastCGI 1.0 §3.4).
pub fn write_pair(name: &[u8], value: &[u8], pairs: &mut Vec<u8>) {
    for text in [name, value] {
        match u8::try_from(text.len()) {
            Ok(short @ 0..=127) => pairs.push(short),
            // More than 2 GiB cannot be said; nobody has that much.
            _ => {
                let long = u32::try_from(text.len()).unwrap_or(u32::MAX) | 0x8000_0000;
                pairs.extend_from_slice(&long.to_be_bytes());
            }
        }
    }
    pairs.extend_from_slice(name);
    pairs.extend_from_slice(value);
}

/// All parameters of the request, and their end.
pub fn write_params(pairs: &[u8], out: &mut Vec<u8>) {
    write_stream(kind::PARAMS, pairs, out);
    write_header(kind::PARAMS, 0, out);
}

/// A piece of the request's body.
pub fn write_input(piece: &[u8], out: &mut Vec<u8>) {
    write_stream(kind::STDIN, piece, out);
}

/// The end of the request's body. Also needed without any.
pub fn write_input_end(out: &mut Vec<u8>) {
    write_header(kind::STDIN, 0, out);
}

/// A piece of a stream; nothing if it is empty, because an empty record would end the stream.
fn write_stream(kind: u8, data: &[u8], out: &mut Vec<u8>) {
    for content in data.chunks(CONTENT_BYTES) {
        write_header(kind, content.len(), out);
        out.extend_from_slice(content);
    }
}

fn write_header(kind: u8, length: usize, out: &mut Vec<u8>) {
    debug_assert!(length <= CONTENT_BYTES, "the caller splits longer content");
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let [id_high, id_low] = REQUEST.to_be_bytes();
    let header: [u8; HEADER_BYTES] = [VERSION, kind, id_high, id_low, high, low, 0, 0];
    out.extend_from_slice(&header);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins() {
        let mut out = Vec::new();
        write_begin(KeepConnection::Keep, &mut out);
        assert_eq!(out, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        out.clear();
        write_begin(KeepConnection::Close, &mut out);
        assert_eq!(out[10], 0);
    }

    #[test]
    fn lengths_of_parameters() {
        let long = [b'v'; 128];
        let mut pairs = Vec::new();
        write_pair(b"A", b"", &mut pairs);
        write_pair(b"NAME", &long[..127], &mut pairs);
        write_pair(&long, b"b", &mut pairs);
        let mut expected = b"\x01\x00A\x04\x7fNAME".to_vec();
        expected.extend_from_slice(&long[..127]);
        expected.extend_from_slice(b"\x80\x00\x00\x80\x01");
        expected.extend_from_slice(&long);
        expected.push(b'b');
        assert_eq!(pairs, expected);
    }

    #[test]
    fn long_streams_are_split() {
        let mut out = Vec::new();
        write_input(&vec![7; CONTENT_BYTES + 3], &mut out);
        assert_eq!(out[..8], [1, 5, 0, 1, 0xff, 0xf8, 0, 0]);
        assert_eq!(out[8 + CONTENT_BYTES..], [1, 5, 0, 1, 0, 3, 0, 0, 7, 7, 7]);
        out.clear();
        write_input(b"", &mut out);
        assert!(out.is_empty(), "an empty record would end the body");
        write_input_end(&mut out);
        assert_eq!(out, [1, 5, 0, 1, 0, 0, 0, 0]);
        out.clear();
        write_params(b"\x01\x01ab", &mut out);
        assert_eq!(out, [1, 4, 0, 1, 0, 4, 0, 0, 1, 1, b'a', b'b', 1, 4, 0, 1, 0, 0, 0, 0]);
    }
}
