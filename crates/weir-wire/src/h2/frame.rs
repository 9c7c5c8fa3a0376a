//! Frames of HTTP/2 as bytes (RFC 9113 §4 and §6).

/// The client connection preface (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Longest payload that we accept and send: the default of SETTINGS.
pub const FRAME_MOST: usize = 16_384;

/// Bytes of a frame header.
pub const HEADER: usize = 9;

/// A frame type. Not an enum, because unknown types must be representable: receivers ignore them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// The continuation of a head.
    pub const CONTINUATION: Self = Self(9);
    /// A piece of a body.
    pub const DATA: Self = Self(0);
    /// The end of the connection.
    pub const GOAWAY: Self = Self(7);
    /// A head, trailers, or the beginning of one.
    pub const HEADERS: Self = Self(1);
    /// A liveness check, or its answer.
    pub const PING: Self = Self(6);
    /// Obsolete (RFC 9113 §5.3.2).
    pub const PRIORITY: Self = Self(2);
    /// A server push; nobody here accepts one.
    pub const PUSH_PROMISE: Self = Self(5);
    /// The end of one stream.
    pub const RST_STREAM: Self = Self(3);
    /// Limits for the other side.
    pub const SETTINGS: Self = Self(4);
    /// Permission to send more.
    pub const WINDOW_UPDATE: Self = Self(8);
}

// === flags ===

/// On SETTINGS and PING: an acknowledgement.
pub const ACK: u8 = 0x1;
/// On DATA and HEADERS: nothing follows.
pub const END_STREAM: u8 = 0x1;
/// On HEADERS and CONTINUATION: the head is complete.
pub const END_HEADERS: u8 = 0x4;
/// On DATA and HEADERS: the payload is padded.
pub const PADDED: u8 = 0x8;
/// On HEADERS: a priority precedes the fields.
pub const PRIORITY: u8 = 0x20;

/// Error codes (RFC 9113 §7).
pub mod code {
    /// No error.
    pub const NO_ERROR: u32 = 0;
    /// A broken rule.
    pub const PROTOCOL: u32 = 1;
    /// An error of ours, or of a server behind us.
    pub const INTERNAL: u32 = 2;
    /// More data than the window allows.
    pub const FLOW_CONTROL: u32 = 3;
    /// A frame for a stream that has ended.
    pub const STREAM_CLOSED: u32 = 5;
    /// A frame of the wrong length.
    pub const FRAME_SIZE: u32 = 6;
    /// Not processed.
    pub const REFUSED: u32 = 7;
    /// No longer needed.
    pub const CANCEL: u32 = 8;
    /// Invalid HPACK.
    pub const COMPRESSION: u32 = 9;
    /// Excessive load.
    pub const CALM: u32 = 11;
}

/// Settings (RFC 9113 §6.5.2).
pub mod setting {
    /// The largest dynamic table of the peer's HPACK encoder, in bytes.
    pub const TABLE: u16 = 1;
    /// Whether server pushes are accepted.
    pub const PUSH: u16 = 2;
    /// Most concurrent streams.
    pub const STREAMS: u16 = 3;
    /// The initial window of a stream.
    pub const WINDOW: u16 = 4;
    /// Longest payload.
    pub const FRAME: u16 = 5;
    /// Most bytes of a head.
    pub const HEAD: u16 = 6;
    /// Whether Extended CONNECT is accepted (RFC 8441).
    pub const CONNECT: u16 = 8;
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the payload.
    pub len: usize,
    /// Its type.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// The stream it belongs to; 0 is the connection.
    pub stream: u32,
}

impl Header {
    /// Parses a frame header; `None` if there are too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, s0, s1, s2, s3] = bytes.first_chunk::<HEADER>()?;
        Some(Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind: Kind(kind),
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        })
    }

    /// Whether a flag is set.
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame. The payload must not exceed [`FRAME_MOST`].
pub fn write(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind.0, flags, s0, s1, s2, s3]);
    out.extend_from_slice(payload);
}

/// The four bytes at `at` in the payload, as a number.
pub fn number(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..)?.first_chunk().map(|four| u32::from_be_bytes(*four))
}

/// The payload without padding and priority; `None` if they exceed the payload.
pub fn content<'a>(header: &Header, payload: &'a [u8]) -> Option<&'a [u8]> {
    let mut content = payload;
    let mut padding = 0;
    if header.has(PADDED) {
        let (&first, rest) = content.split_first()?;
        (padding, content) = (usize::from(first), rest);
    }
    if header.kind == Kind::HEADERS && header.has(PRIORITY) {
        content = content.get(5..)?;
    }
    content.get(..content.len().checked_sub(padding)?)
}

/// The name of an error code (RFC 9113 §7).
pub fn code_name(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code as usize).map_or_else(|| format!("error {code}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_priority_are_taken_off() {
        for (kind, flags, payload, want) in [
            (Kind::DATA, 0, &b"abc"[..], Some(&b"abc"[..])),
            (Kind::DATA, PADDED, b"\x02abc\0\0", Some(b"abc")),
            (Kind::DATA, PADDED, b"\x02\0\0", Some(b"")),
            (Kind::DATA, PADDED, b"\x03\0\0", None),
            (Kind::DATA, PADDED, b"", None),
            (Kind::HEADERS, PADDED | PRIORITY, b"\x01\0\0\0\0\x10a\0", Some(b"a")),
            (Kind::HEADERS, PRIORITY, b"\0\0\0\0", None),
        ] {
            let header = Header { len: payload.len(), kind, flags, stream: 1 };
            assert_eq!(content(&header, payload), want, "{payload:?}");
        }
    }
}
