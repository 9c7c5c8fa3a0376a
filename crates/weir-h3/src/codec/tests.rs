//! Conversations with a codec: stream bytes in, stream bytes and effects out. One table per section of the RFCs.

mod floods;
mod messages;

use super::*;
use crate::frame::write;
use crate::qpack;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const HANDSHAKE: Handshake = Handshake {
    key: || "dGhlIHNhbXBsZSBub25jZQ==".to_owned(),
    accept: |_| "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned(),
};

const BOUNDS: Bounds = Bounds {
    streams: 4,
    text: 1000,
    heads: 2000,
    body: 1000,
    bodies: 8 * 1024,
    out: 1000,
    outs: 8 * 1024,
    decoder: DecoderLimits { capacity: 220, blocked: 2 },
    encoder: 4096,
    floods: FloodLimits::NONE,
};

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn frame_of(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write(kind, payload, &mut out);
    out
}

/// HEADERS that refer to the static table only.
fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        render::Encode::encode(&mut qpack::Static, name.as_bytes(), value.as_bytes(), false, &mut section);
    }
    frame_of(kind::HEADERS, &section)
}

const ASK: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "a.test"), (":path", "/p?q")];

/// A request's head with further fields.
fn ask(more: &[(&str, &str)]) -> Vec<u8> {
    head(&[&ASK[..], more].concat())
}

fn data(bytes: &str) -> Vec<u8> {
    frame_of(kind::DATA, bytes.as_bytes())
}

/// A codec and a peer.
struct Peer {
    codec: TextCodec,
    now: Instant,
}

impl Peer {
    fn new(role: Role) -> Self {
        Self::with(role, BOUNDS)
    }

    fn with(role: Role, bounds: Bounds) -> Self {
        Self { codec: TextCodec::new(role, bounds, HANDSHAKE), now: Instant::now() }
    }

    /// A server whose client has sent its SETTINGS.
    fn greeted() -> Self {
        let mut peer = Self::new(Role::Server);
        peer.send(2, &hex("00 04 00"), false);
        peer
    }

    /// A client whose server has sent its SETTINGS, with Extended CONNECT and a dynamic table.
    fn client() -> Self {
        let mut peer = Self::new(Role::Client);
        peer.send(3, &hex("00 04 05 08 01 01 4100"), false);
        assert_eq!(peer.codec.ended(), None);
        peer
    }

    /// Sends bytes of a stream; returns how many were taken.
    fn send(&mut self, stream: u64, bytes: &[u8], fin: bool) -> usize {
        self.codec.receive(stream, bytes, fin, self.now)
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.codec.next_effect()).collect()
    }

    /// The next request's slot and head.
    fn arrival(&mut self) -> Option<(usize, String)> {
        let slot = self.codec.next_arrival()?;
        let mut text = Vec::new();
        self.codec.take_head(slot, &mut text);
        Some((slot, String::from_utf8(text).unwrap()))
    }

    fn read(&mut self, slot: usize) -> Poll<Result<String, Failed>> {
        let mut buffer = Vec::new();
        let read = self.codec.read(slot, &mut buffer, &cx());
        read.map(|read| read.map(|_| String::from_utf8(buffer).unwrap()))
    }

    /// Takes all output of a request stream, as a transport without limits.
    fn take(&mut self, stream: u64) -> (Vec<u8>, bool) {
        let pending = self.codec.pending(stream);
        let (bytes, ends) = (pending.bytes.to_vec(), pending.ends);
        self.codec.sent(stream, bytes.len(), ends);
        (bytes, ends)
    }

    fn code(&self) -> Option<u64> {
        self.codec.ended().map(|ended| ended.code)
    }

    /// The code with which a stream was abandoned, if it was.
    fn reset_code(&mut self, stream: u64) -> Option<u64> {
        self.effects().into_iter().find_map(|effect| match effect {
            Effect::Reset { stream: other, code } if other == stream => Some(code),
            _ => None,
        })
    }
}

/// Sends the bytes of a stream to a fresh server in one piece and byte by byte; returns the codes that end the
/// connection and the stream.
fn judge(stream: u64, bytes: &[u8], fin: bool) -> (Option<u64>, Option<u64>) {
    judge_as(Role::Server, stream, bytes, fin)
}

fn judge_as(role: Role, stream: u64, bytes: &[u8], fin: bool) -> (Option<u64>, Option<u64>) {
    let verdicts = [bytes.len().max(1), 1, 3].map(|size| {
        let mut peer = match role {
            Role::Server if stream == 0 => Peer::greeted(),
            Role::Server => Peer::new(role),
            Role::Client => {
                let mut peer = if stream == 3 { Peer::new(role) } else { Peer::client() };
                let slot = peer.codec.send_request(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", "https").unwrap();
                assert_eq!(peer.codec.stream_of(slot), Some(0));
                peer
            }
        };
        let pieces: Vec<&[u8]> = if bytes.is_empty() { vec![bytes] } else { bytes.chunks(size).collect() };
        for (n, piece) in pieces.iter().enumerate() {
            let used = peer.send(stream, piece, fin && n + 1 == pieces.len());
            assert_eq!(used, piece.len(), "bytes are taken unless something waits");
        }
        (peer.code(), peer.reset_code(stream))
    });
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "pieces matter: {verdicts:?}");
    verdicts[0]
}

// === the connection ===

#[test]
fn we_begin_with_settings() {
    let peer = Peer::new(Role::Server);
    let control = peer.codec.pending_own(Own::Control);
    // Table 220, blocked 2, head 1000, a reserved setting, Extended CONNECT.
    assert_eq!(control, hex("00 04 0d 01 40dc 07 02 06 43e8 4537 00 08 01").as_slice());
    assert_eq!(peer.codec.pending_own(Own::Decoder), [3]);
    assert_eq!(peer.codec.pending_own(Own::Encoder), [2]);
    let peer = Peer::new(Role::Client);
    assert!(!peer.codec.pending_own(Own::Control).ends_with(&[8, 1]), "only servers accept CONNECT");
}

/// RFC 9114 §6.2 and §7.2: the control stream.
#[test]
fn the_control_stream() {
    for (bytes, fin, code, why) in [
        ("00 04 00", false, None, "SETTINGS"),
        ("00 04 06 06 4400 21 40 ff", false, None, "known and reserved settings"),
        ("40 00 04 40 00", false, None, "integers longer than necessary"),
        ("00", true, Some(code::CLOSED_CRITICAL), "the end"),
        ("00 04 00", true, Some(code::CLOSED_CRITICAL), "the end behind SETTINGS"),
        ("00 07 01 00", false, Some(code::MISSING_SETTINGS), "GOAWAY first"),
        ("00 21 00 04 00", false, Some(code::MISSING_SETTINGS), "a reserved frame first"),
        ("00 04 00 04 00", false, Some(code::FRAME_UNEXPECTED), "SETTINGS twice"),
        ("00 04 00 00 00", false, Some(code::FRAME_UNEXPECTED), "DATA"),
        ("00 04 00 01 00", false, Some(code::FRAME_UNEXPECTED), "HEADERS"),
        ("00 04 00 05 01 00", false, Some(code::FRAME_UNEXPECTED), "PUSH_PROMISE"),
        ("00 04 00 02 00", false, Some(code::FRAME_UNEXPECTED), "PRIORITY of HTTP/2"),
        ("00 04 00 06 00", false, Some(code::FRAME_UNEXPECTED), "PING of HTTP/2"),
        ("00 04 00 08 00", false, Some(code::FRAME_UNEXPECTED), "WINDOW_UPDATE of HTTP/2"),
        ("00 04 00 09 00", false, Some(code::FRAME_UNEXPECTED), "CONTINUATION of HTTP/2"),
        ("00 04 04 01 00 01 00", false, Some(code::SETTINGS), "a setting twice"),
        ("00 04 02 02 00", false, Some(code::SETTINGS), "ENABLE_PUSH of HTTP/2"),
        ("00 04 02 04 00", false, Some(code::SETTINGS), "INITIAL_WINDOW_SIZE of HTTP/2"),
        ("00 04 02 08 02", false, Some(code::SETTINGS), "ENABLE_CONNECT_PROTOCOL 2"),
        ("00 04 01 01", false, Some(code::FRAME), "a setting without a value"),
        ("00 04 50 01", false, Some(code::EXCESSIVE_LOAD), "SETTINGS of more than 4 KiB"),
        ("00 04 00 07 01 04", false, None, "GOAWAY"),
        ("00 04 00 07 01 04 07 01 04", false, None, "GOAWAY again"),
        ("00 04 00 07 01 04 07 01 08", false, Some(code::ID), "GOAWAY that becomes larger"),
        ("00 04 00 07 02 04 00", false, Some(code::FRAME), "GOAWAY with more than an id"),
        ("00 04 00 07 00", false, Some(code::FRAME), "GOAWAY without an id"),
        ("00 04 00 07 01 44", false, Some(code::FRAME), "GOAWAY with half an id"),
        ("00 04 00 0d 01 08", false, None, "MAX_PUSH_ID"),
        ("00 04 00 0d 01 08 0d 01 07", false, Some(code::ID), "MAX_PUSH_ID that becomes smaller"),
        ("00 04 00 03 01 00", false, Some(code::ID), "CANCEL_PUSH of a push that nobody promised"),
        ("00 04 00 03 00", false, Some(code::FRAME), "CANCEL_PUSH without an id"),
        ("00 04 00 800f0700 04 00 753d31", false, None, "PRIORITY_UPDATE"),
        ("00 04 00 800f0700 01 01", false, Some(code::ID), "PRIORITY_UPDATE of no request"),
        ("00 04 00 800f0701 01 00", false, Some(code::ID), "PRIORITY_UPDATE of a push"),
        ("00 04 00 800f0700 01 0c", false, None, "PRIORITY_UPDATE for the last request within the limit"),
        ("00 04 00 800f0700 01 10", false, Some(code::ID), "PRIORITY_UPDATE beyond the limit, RFC 9218 §7.2"),
        ("00 04 00 800f0700 00", false, Some(code::FRAME), "PRIORITY_UPDATE without an id"),
        ("00 04 00 21 03 616263 07 01 04", false, None, "a reserved frame is skipped"),
    ] {
        assert_eq!(judge(2, &hex(bytes), fin).0, code, "{why}");
    }
    for (bytes, code, why) in [
        ("00 04 00 07 01 04", None, "GOAWAY"),
        ("00 04 00 07 01 05", Some(code::ID), "GOAWAY with an id of no request"),
        ("00 04 00 0d 01 08", Some(code::FRAME_UNEXPECTED), "MAX_PUSH_ID from a server"),
        ("00 04 00 800f0700 01 00", Some(code::FRAME_UNEXPECTED), "PRIORITY_UPDATE from a server"),
        ("00 04 00 03 01 00", Some(code::ID), "CANCEL_PUSH of a push that we never allowed"),
    ] {
        assert_eq!(judge_as(Role::Client, 3, &hex(bytes), false).0, code, "{why}");
    }
}

/// RFC 9114 §6.2, RFC 9204 §4.2: other unidirectional streams.
#[test]
fn unidirectional_streams() {
    for (bytes, fin, code, why) in [
        ("02", false, None, "an encoder stream"),
        ("02", true, Some(code::CLOSED_CRITICAL), "an encoder stream that ends"),
        ("03", true, Some(code::CLOSED_CRITICAL), "a decoder stream that ends"),
        ("03 00", false, Some(code::QPACK_DECODER_STREAM), "an increment of 0"),
        ("03 84", false, Some(code::QPACK_DECODER_STREAM), "an acknowledgement of nothing"),
        ("02 3fbe01", false, Some(code::QPACK_ENCODER_STREAM), "a table that is too large"),
        ("02 00", false, Some(code::QPACK_ENCODER_STREAM), "a duplicate of nothing"),
        ("01 00", false, Some(code::STREAM_CREATION), "a push by a client"),
        ("40 54 01020304", false, None, "WebTransport, which we do not know"),
        ("21 01020304", true, None, "a reserved type"),
        ("40", true, None, "the end within a type"),
        ("", true, None, "the end before a type"),
    ] {
        assert_eq!(judge(6, &hex(bytes), fin).0, code, "{why}");
    }
    assert_eq!(judge_as(Role::Client, 7, &hex("01 00"), false).0, Some(code::ID), "a push");
    assert_eq!(judge_as(Role::Client, 1, &hex("00"), false).0, Some(code::STREAM_CREATION));

    let mut peer = Peer::greeted();
    peer.send(6, &hex("21 0102"), false);
    assert_eq!(peer.effects(), [Effect::Stop { stream: 6, code: code::STREAM_CREATION }]);
    for (kind, why) in [("00", "control"), ("02", "encoder"), ("03", "decoder")] {
        let mut peer = Peer::new(Role::Server);
        peer.send(2, &hex(kind), false);
        peer.send(6, &hex(kind), false);
        assert_eq!(peer.code(), Some(code::STREAM_CREATION), "a second {why} stream");
        let mut peer = Peer::new(Role::Server);
        peer.send(2, &hex(kind), false);
        peer.codec.reset_came(2, 0, peer.now);
        assert_eq!(peer.code(), Some(code::CLOSED_CRITICAL), "{why}");
    }
    let mut peer = Peer::greeted();
    peer.codec.stop_came(3, 0, peer.now);
    assert_eq!(peer.code(), Some(code::CLOSED_CRITICAL), "our control stream is stopped");
}

#[test]
fn goodbyes() {
    // A server's: first all are served, then those that have arrived (RFC 9114 §5.2).
    let mut peer = Peer::greeted();
    let before = peer.codec.pending_own(Own::Control).len();
    peer.codec.leave();
    peer.codec.leave();
    assert_eq!(peer.codec.pending_own(Own::Control)[before..], hex("07 08 fffffffffffffffc"));
    peer.send(4, &ask(&[]), true);
    assert!(peer.arrival().is_some());
    let before = peer.codec.pending_own(Own::Control).len();
    peer.codec.leave_now();
    assert_eq!(peer.codec.pending_own(Own::Control)[before..], hex("07 01 08"));
    peer.send(0, &ask(&[]), true);
    let (slot, _) = peer.arrival().unwrap();
    peer.codec.release(slot);
    peer.effects();
    peer.send(8, &ask(&[]), true);
    assert!(peer.arrival().is_none());
    let code = code::REQUEST_REJECTED;
    assert_eq!(peer.effects(), [Effect::Stop { stream: 8, code }, Effect::Reset { stream: 8, code }]);
    assert!(!peer.codec.is_over(), "a request is open");

    // A client's: requests from the id on were not processed.
    let mut peer = Peer::client();
    let asked: Vec<usize> = (0..3)
        .map(|_| peer.codec.send_request(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", "https").unwrap())
        .collect();
    peer.send(3, &hex("07 01 04"), false);
    assert_eq!(peer.read(asked[0]), Poll::Pending);
    assert_eq!(peer.read(asked[1]), Poll::Ready(Err(Failed::Refused { by_reset: false })));
    assert_eq!(peer.read(asked[2]), Poll::Ready(Err(Failed::Refused { by_reset: false })));
    let refused = peer.codec.send_request(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", "https").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

// === QPACK streams ===

#[test]
fn a_head_waits_for_insertions() {
    let mut peer = Peer::greeted();
    // `:path: /sample/path` as entry 0, which the head refers to before it arrives.
    let section = hex("0200 80 d4 d7 50 06 612e74657374");
    let mut wire = frame_of(kind::HEADERS, &section);
    wire.extend_from_slice(&data("body"));
    let used = peer.send(0, &wire, true);
    assert_eq!(used, wire.len() - 6, "DATA stays with the transport");
    assert_eq!(peer.send(0, &wire[used..], true), 0);
    assert!(peer.arrival().is_none());
    peer.send(6, &hex("02 3fbd01 c1 0c 2f73 616d 706c 652f 7061"), false);
    assert!(peer.arrival().is_none() && peer.effects().is_empty());
    peer.send(6, &hex("7468"), false);
    assert_eq!(peer.effects(), [Effect::Read { stream: 0 }]);
    let (slot, text) = peer.arrival().unwrap();
    assert_eq!(text, "POST /sample/path HTTP/1.1\r\nhost: a.test\r\n\r\n");
    assert_eq!(peer.send(0, &wire[used..], true), 6);
    assert_eq!(peer.read(slot), Poll::Ready(Ok("body".to_owned())));
    // The section is acknowledged, and with it the insertion.
    assert_eq!(peer.codec.pending_own(Own::Decoder), [3, 0x80]);
    peer.codec.release(slot);
    assert_eq!(peer.codec.open(), 0);
    peer.effects();

    // The end arrives while the head waits.
    let section = hex("0300 80 d4 d7 50 06 612e74657374");
    assert_eq!(peer.send(4, &frame_of(kind::HEADERS, &section), true), section.len() + 2);
    peer.send(6, &hex("00"), false);
    let (slot, _) = peer.arrival().unwrap();
    assert_eq!(peer.read(slot), Poll::Ready(Ok(String::new())), "the request has ended");
}

#[test]
fn blocked_streams_are_few_and_may_be_cancelled() {
    let section = frame_of(kind::HEADERS, &hex("0200 80 d4 d7 50 06 612e74657374"));
    let mut peer = Peer::greeted();
    peer.send(0, &section, true);
    peer.codec.reset_came(0, code::REQUEST_CANCELLED, peer.now);
    assert_eq!(peer.codec.pending_own(Own::Decoder), [3, 0x40]);
    assert_eq!(peer.codec.open(), 0, "nobody knew about it");
    peer.send(4, &section, true);
    peer.send(8, &section, true);
    assert_eq!(peer.code(), None);
    peer.send(12, &section, true);
    assert_eq!(peer.code(), Some(code::QPACK_DECOMPRESSION), "RFC 9204 §2.1.2");
    for section in ["ff", "0080", "0000ff24", "000010"] {
        assert_eq!(
            judge(0, &frame_of(kind::HEADERS, &hex(section)), false).0,
            Some(code::QPACK_DECOMPRESSION)
        );
    }
}

#[test]
fn our_encoder_learns() {
    let mut peer = Peer::new(Role::Server);
    peer.send(2, &hex("00 04 03 01 5000"), false);
    let answer = b"HTTP/1.1 200 OK\r\nserver: weir\r\nx-cache: hit\r\n\r\n";
    let mut sizes = Vec::new();
    for n in 0..4 {
        peer.send(4 * n, &ask(&[]), true);
        let (slot, _) = peer.arrival().unwrap();
        assert!(matches!(peer.codec.send_response(slot, answer, &cx()), Poll::Ready(Ok(true))));
        peer.codec.send_end(slot, b"").unwrap();
        let (bytes, ends) = peer.take(4 * n);
        assert!(ends);
        sizes.push(bytes.len());
        peer.codec.release(slot);
        if n == 1 {
            // The client acknowledges both insertions.
            assert!(peer.codec.pending_own(Own::Encoder).len() > 20);
            peer.send(10, &hex("03 02"), false);
        }
        if n == 2 {
            peer.send(10, &hex("88"), false);
        }
    }
    assert!(sizes[0] == sizes[1] && sizes[2] < 9 && sizes[3] < 9, "{sizes:?}");
    assert_eq!((peer.code(), peer.codec.open()), (None, 0));
}

#[test]
fn a_peer_may_limit_our_heads() {
    let mut peer = Peer::new(Role::Server);
    peer.send(2, &hex("00 04 03 06 4080"), false); // 128: `:status` and a field of 50 bytes
    peer.send(0, &ask(&[]), true);
    let (slot, _) = peer.arrival().unwrap();
    let large = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(60));
    assert!(matches!(peer.codec.send_response(slot, large.as_bytes(), &cx()), Poll::Ready(Err(_))));
    assert_eq!(peer.codec.pending(0).bytes, []);
    let small = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(50));
    assert!(matches!(peer.codec.send_response(slot, small.as_bytes(), &cx()), Poll::Ready(Ok(true))));
}
