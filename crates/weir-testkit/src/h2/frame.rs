//! One frame as bytes (RFC 9113 §4).

/// Frame types (RFC 9113 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CONTINUATION.
    Continuation,
    /// DATA.
    Data,
    /// GOAWAY.
    GoAway,
    /// HEADERS.
    Headers,
    /// Any other number.
    Other(u8),
    /// PING.
    Ping,
    /// PRIORITY.
    Priority,
    /// PUSH_PROMISE.
    PushPromise,
    /// RST_STREAM.
    Reset,
    /// SETTINGS.
    Settings,
    /// WINDOW_UPDATE.
    WindowUpdate,
}

/// The type numbers.
const KINDS: [(Kind, u8); 10] = [
    (Kind::Data, 0),
    (Kind::Headers, 1),
    (Kind::Priority, 2),
    (Kind::Reset, 3),
    (Kind::Settings, 4),
    (Kind::PushPromise, 5),
    (Kind::Ping, 6),
    (Kind::GoAway, 7),
    (Kind::WindowUpdate, 8),
    (Kind::Continuation, 9),
];

/// Flags (RFC 9113 §6).
pub mod flag {
    /// ACK of SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// END_HEADERS of HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// END_STREAM of DATA and HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// PADDED of DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// PRIORITY of HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Settings (RFC 9113 §6.5.2, RFC 8441 §3).
pub mod setting {
    /// ENABLE_CONNECT_PROTOCOL.
    pub const CONNECT: u16 = 8;
    /// HEADER_TABLE_SIZE.
    pub const TABLE: u16 = 1;
    /// INITIAL_WINDOW_SIZE.
    pub const WINDOW: u16 = 4;
    /// MAX_CONCURRENT_STREAMS.
    pub const STREAMS: u16 = 3;
}

/// Error codes (RFC 9113 §7).
pub mod code {
    /// NO_ERROR.
    pub const NONE: u32 = 0;
    /// PROTOCOL_ERROR.
    pub const PROTOCOL: u32 = 1;
    /// INTERNAL_ERROR.
    pub const INTERNAL: u32 = 2;
    /// FLOW_CONTROL_ERROR.
    pub const FLOW: u32 = 3;
    /// STREAM_CLOSED.
    pub const STREAM_CLOSED: u32 = 5;
    /// REFUSED_STREAM.
    pub const REFUSED: u32 = 7;
    /// CANCEL.
    pub const CANCEL: u32 = 8;
    /// ENHANCE_YOUR_CALM.
    pub const CALM: u32 = 11;
}

/// A frame, valid or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// What follows the nine bytes of the header.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A frame.
    pub fn new(kind: Kind, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, flags, stream, payload: payload.into() }
    }

    /// A complete HEADERS frame with these fields.
    pub fn headers(stream: u32, fields: &[(&str, &str)], end: bool) -> Self {
        let block = block(fields);
        let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        Self::new(Kind::Headers, flags, stream, block)
    }

    /// DATA.
    pub fn data(stream: u32, data: impl AsRef<[u8]>, end: bool) -> Self {
        Self::new(Kind::Data, if end { flag::END_STREAM } else { 0 }, stream, data.as_ref())
    }

    /// RST_STREAM.
    pub fn reset(stream: u32, code: u32) -> Self {
        Self::new(Kind::Reset, 0, stream, code.to_be_bytes())
    }

    /// SETTINGS.
    pub fn settings(values: &[(u16, u32)]) -> Self {
        let pair = |&(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        Self::new(Kind::Settings, 0, 0, values.iter().flat_map(pair).collect::<Vec<u8>>())
    }

    /// WINDOW_UPDATE.
    pub fn window(stream: u32, by: u32) -> Self {
        Self::new(Kind::WindowUpdate, 0, stream, by.to_be_bytes())
    }

    /// PING.
    pub fn ping(data: [u8; 8]) -> Self {
        Self::new(Kind::Ping, 0, 0, data)
    }

    /// GOAWAY.
    pub fn go_away(last: u32, code: u32) -> Self {
        Self::new(Kind::GoAway, 0, 0, [last.to_be_bytes(), code.to_be_bytes()].concat())
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let number = KINDS.iter().find(|(kind, _)| *kind == self.kind).map(|(_, number)| *number);
        let number = match self.kind {
            Kind::Other(number) => number,
            _ => number.expect("every kind but Other is in the table"),
        };
        let mut bytes = (self.payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend_from_slice(&[number, self.flags]);
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Parses a header of nine bytes: returns the frame without its payload, and the payload's length.
    pub(super) fn parse_header(header: &[u8]) -> (Self, usize) {
        let (number, flags) = (header[3], header[4]);
        let kind = KINDS.iter().find(|(_, known)| *known == number).map(|(kind, _)| *kind);
        let len = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let stream = u32_at(header, 5) & 0x7fff_ffff;
        (Self::new(kind.unwrap_or(Kind::Other(number)), flags, stream, Vec::new()), len)
    }

    /// Whether it has this flag.
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// A number in its payload.
    pub(super) fn number(&self, at: usize) -> u32 {
        u32_at(&self.payload, at)
    }
}

/// Encodes fields into a block.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    super::hpack::encode(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}
