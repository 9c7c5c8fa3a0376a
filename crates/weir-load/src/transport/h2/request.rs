//! Turns HTTP/1.1 requests into frames of HTTP/2 or HTTP/3. Bytes only.
//!
//! A request is rendered once, when the plan is made, and then copied; with HTTP/2, its stream number is filled in. A
//! request with a template is rendered each time.

use weir_wire::h2::frame::{self, FRAME_MOST, Kind};
use weir_wire::h2::hpack;

/// The protocol of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    #[default]
    H2,
    #[cfg(feature = "http3")]
    H3,
}

/// The head of a request: HEADERS, and in HTTP/2 CONTINUATION if it is long. All stream numbers are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rendered {
    version: Version,
    bytes: Vec<u8>,
    /// Where frames begin.
    frames: Vec<usize>,
    block: Vec<u8>,
}

impl Rendered {
    /// Nothing yet.
    pub(crate) fn of(version: Version) -> Self {
        Self { version, ..Self::default() }
    }

    /// Renders the head of an HTTP/2 request from its HTTP/1.1 form, line and fields. `ends` says that no body follows.
    pub(crate) fn new(head: &[u8], scheme: &str, ends: bool) -> Self {
        Self::new_of(Version::H2, head, scheme, ends)
    }

    /// The same for this version.
    pub(crate) fn new_of(version: Version, head: &[u8], scheme: &str, ends: bool) -> Self {
        let mut this = Self::of(version);
        this.render(head, scheme, ends);
        this
    }

    /// Like [`Self::new`], in place.
    pub(crate) fn render(&mut self, head: &[u8], scheme: &str, ends: bool) {
        self.block.clear();
        self.bytes.clear();
        self.frames.clear();
        match self.version {
            Version::H2 => {
                fields(head, scheme, |name, value, secret| {
                    hpack::encode(name, value, secret, &mut self.block);
                });
            }
            #[cfg(feature = "http3")]
            Version::H3 => {
                crate::transport::h3::request::render(head, scheme, &mut self.block, &mut self.bytes);
                return;
            }
        }
        let mut pieces = self.block.chunks(FRAME_MOST).peekable();
        let mut kind = Kind::HEADERS;
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { frame::END_HEADERS } else { 0 };
            let end = if ends && kind == Kind::HEADERS { frame::END_STREAM } else { 0 };
            self.frames.push(self.bytes.len());
            frame::write(kind, last | end, 0, piece, &mut self.bytes);
            kind = Kind::CONTINUATION;
        }
    }

    /// Appends the frames for a stream.
    pub(crate) fn write(&self, stream: u32, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        for at in &self.frames {
            if let Some(number) = out.get_mut(begin + at + 5..begin + at + 9) {
                number.copy_from_slice(&stream.to_be_bytes());
            }
        }
    }

    /// The frames with stream 0.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The size on the wire of this head and what frames a body of this length.
    pub(crate) fn wire_bytes(&self, body: usize) -> usize {
        let framing = match self.version {
            Version::H2 => body.div_ceil(FRAME_MOST) * frame::HEADER,
            #[cfg(feature = "http3")]
            Version::H3 => crate::transport::h3::request::data_header(body).len(),
        };
        self.bytes.len() + framing
    }
}

/// Passes on the fields of a head, and whether each is a secret. RFC 9113 §8.2.2, RFC 9114 §4.2: connection-specific
/// fields are dropped; Host becomes `:authority`.
pub(in crate::transport) fn fields(head: &[u8], scheme: &str, mut encode: impl FnMut(&[u8], &[u8], bool)) {
    let mut lines = head.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let mut words = lines.next().unwrap_or_default().split(|b| *b == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let parted = |line: &'_ [u8]| -> Option<(Vec<u8>, Vec<u8>)> {
        let at = memchr::memchr(b':', line)?;
        let (name, value) = line.split_at(at);
        Some((name.to_ascii_lowercase(), value.get(1..)?.trim_ascii().to_vec()))
    };
    let all: Vec<_> = lines.filter_map(parted).collect();
    let host = all.iter().find(|(name, _)| name == b"host").map_or(&b""[..], |(_, value)| value);
    let path: &[u8] = if path.is_empty() { b"/" } else { path };
    for (name, value) in
        [(&b":method"[..], method), (b":scheme", scheme.as_bytes()), (b":authority", host), (b":path", path)]
    {
        encode(name, value, false);
    }
    for (name, value) in &all {
        let hop: &[&[u8]] =
            &[b"host", b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
        if hop.contains(&&name[..]) || (name == b"te" && !value.eq_ignore_ascii_case(b"trailers")) {
            continue;
        }
        let secret = NEVER_INDEXED.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        encode(name, value, secret);
    }
}

/// Fields whose values no table of the connection may keep (RFC 7541 §7.1.3). A short list: it is searched for each
/// field of each request.
const NEVER_INDEXED: [&str; 6] =
    ["authorization", "cookie", "proxy-authorization", "x-api-key", "apikey", "x-auth-token"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_translated() {
        let head = b"GET /a?b HTTP/1.1\r\nHost: h:1\r\nX-A: b\r\nConnection: close\r\nTE: gzip\r\n\r\n";
        let rendered = Rendered::new(head, "https", true);
        let mut decoder = hpack::Decoder::default();
        let mut seen = Vec::new();
        decoder
            .decode(&rendered.bytes()[9..], |n, v| {
                seen.push(format!("{} {}", String::from_utf8_lossy(n), String::from_utf8_lossy(v)));
            })
            .unwrap();
        assert_eq!(seen, [":method GET", ":scheme https", ":authority h:1", ":path /a?b", "x-a b"]);
        let mut out = vec![7];
        rendered.write(0x0102_0305, &mut out);
        assert_eq!(out[4..10], [1, 5, 1, 2, 3, 5]);
    }

    #[test]
    fn a_long_head_is_continued() {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nX-A: {}\r\n\r\n", "x".repeat(40_000));
        let mut out = Vec::new();
        Rendered::new(head.as_bytes(), "http", false).write(9, &mut out);
        let (mut at, mut seen) = (0, Vec::new());
        while let Some(header) = frame::Header::parse(&out[at..]) {
            seen.push((header.kind, header.flags, header.stream));
            at += 9 + header.len;
        }
        assert_eq!(at, out.len());
        assert_eq!(seen, [(Kind::HEADERS, 0, 9), (Kind::CONTINUATION, 0, 9), (Kind::CONTINUATION, 4, 9)]);
    }
}
