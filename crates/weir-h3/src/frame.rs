//! Frames, stream types and settings of HTTP/3 as bytes (RFC 9114 §6.2 and §7).

use crate::varint;

/// Frame types (RFC 9114 §7.2, RFC 9218 §7.2).
pub mod kind {
    /// A piece of a body.
    pub const DATA: u64 = 0x0;
    /// A head or trailers.
    pub const HEADERS: u64 = 0x1;
    /// A push that is not wanted, or will not come.
    pub const CANCEL_PUSH: u64 = 0x3;
    /// Limits for the other side.
    pub const SETTINGS: u64 = 0x4;
    /// An announced push.
    pub const PUSH_PROMISE: u64 = 0x5;
    /// The end of the connection.
    pub const GOAWAY: u64 = 0x7;
    /// How many pushes a client accepts.
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// The priority of a request.
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
    /// The priority of a push.
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;
}

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod uni {
    /// The control stream.
    pub const CONTROL: u64 = 0x0;
    /// A push.
    pub const PUSH: u64 = 0x1;
    /// Instructions of an encoder.
    pub const ENCODER: u64 = 0x2;
    /// Instructions of a decoder.
    pub const DECODER: u64 = 0x3;
}

/// Settings (RFC 9114 §7.2.4.1, RFC 9204 §5, RFC 9220 §3).
pub mod setting {
    /// Most bytes of the dynamic table.
    pub const TABLE: u64 = 0x1;
    /// Most bytes of a head, counted with 32 bytes for each field.
    pub const HEAD: u64 = 0x6;
    /// Most streams that may be blocked.
    pub const BLOCKED: u64 = 0x7;
    /// Whether Extended CONNECT is accepted.
    pub const CONNECT: u64 = 0x8;
    /// One of the reserved settings, so that no peer gets used to knowing all of them (RFC 9114 §7.2.4.1).
    pub const GREASE: u64 = 0x1f * 0x2a + 0x21;
}

/// Whether HTTP/2 has a frame of this type, but HTTP/3 has none: an error, unlike other unknown types (RFC 9114
/// §7.2.8).
pub const fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// Whether HTTP/2 has this setting, but HTTP/3 does not (RFC 9114 §7.2.4.1).
pub const fn is_setting_of_http2(id: u64) -> bool {
    matches!(id, 0x0 | 0x2..=0x5)
}

/// Appends the header of a frame.
pub fn write_header(kind: u64, len: usize, out: &mut Vec<u8>) {
    varint::write(kind, out);
    varint::write(len as u64, out);
}

/// Appends a frame.
pub fn write(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    write_header(kind, payload.len(), out);
    out.extend_from_slice(payload);
}

/// A frame header whose bytes may arrive one by one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Header {
    bytes: [u8; 2 * varint::LONGEST],
    len: u8,
}

impl Header {
    /// Takes bytes from the front of `rest`; returns type and payload length once they are known.
    #[inline]
    pub fn take(&mut self, rest: &mut &[u8]) -> Option<(u64, u64)> {
        if self.len == 0
            && let Some((kind, used)) = varint::read(rest)
            && let Some((len, more)) = varint::read(rest.get(used..).unwrap_or_default())
        {
            *rest = rest.get(used + more..).unwrap_or_default();
            return Some((kind, len));
        }
        while let Some((&byte, others)) = rest.split_first() {
            let known = usize::from(self.len);
            *self.bytes.get_mut(known)? = byte;
            (self.len, *rest) = (self.len + 1, others);
            let have = self.bytes.get(..=known).unwrap_or_default();
            if let Some((kind, used)) = varint::read(have)
                && let Some((len, _)) = varint::read(have.get(used..).unwrap_or_default())
            {
                self.len = 0;
                return Some((kind, len));
            }
        }
        None
    }

    /// Whether a part of a header has arrived.
    pub const fn is_partial(&self) -> bool {
        self.len > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_arrive_in_any_pieces() {
        let mut wire = Vec::new();
        let frames = [(kind::DATA, 5), (kind::PRIORITY_UPDATE, 70_000), (varint::MOST, 1 << 40), (0x21, 0)];
        for (kind, len) in frames {
            varint::write(kind, &mut wire);
            varint::write(len, &mut wire);
        }
        for size in 1..=wire.len() {
            let (mut header, mut got) = (Header::default(), Vec::new());
            for mut piece in wire.chunks(size) {
                while !piece.is_empty() {
                    got.extend(header.take(&mut piece));
                }
            }
            assert_eq!((got, header.is_partial()), (frames.to_vec(), false), "pieces of {size} bytes");
        }
    }
}
