//! A server's bytes, in order and out of order.

use super::*;
use crate::grpc::Code;
use crate::transport::h2::counter::Capture;
use weir_wire::h2::PREFACE;
use weir_wire::h2::frame::Kind;
use weir_wire::h2::frame::code::{CALM, CANCEL, COMPRESSION, FLOW_CONTROL, FRAME_SIZE, PROTOCOL, REFUSED};
use weir_wire::h2::{frame, hpack};

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(kind, flags, stream, payload, &mut bytes);
    bytes
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(n, v)| hpack::encode(n.as_bytes(), v.as_bytes(), false, &mut out));
    out
}

const ENDS: u8 = frame::END_STREAM;
const WHOLE: u8 = frame::END_HEADERS;

fn greeting() -> Vec<u8> {
    frame(Kind::SETTINGS, 0, 0, &[])
}

fn head(stream: u32, fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    frame(Kind::HEADERS, WHOLE | flags, stream, &block(fields))
}

/// A connection after the server's SETTINGS, with `count` requests in flight, each with its own key.
fn asked(count: usize) -> Connection {
    let mut codec = new(true);
    codec.feed(&greeting(), 1, &mut Vec::new()).unwrap();
    let get = Rendered::new(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "http", true);
    for key in 0..count {
        assert_eq!(codec.request(key, &get, None, false), key as u32 * 2 + 1);
    }
    written(&mut codec);
    codec
}

fn new(keeps_bodies: bool) -> Connection {
    Connection::new(Counter::new(keeps_bodies))
}

/// Takes the pending bytes.
fn written(codec: &mut Connection) -> Vec<u8> {
    let all = codec.pending().to_vec();
    codec.sent(all.len());
    all
}

/// The code of the pending GOAWAY.
fn goaway(codec: &mut Connection) -> u32 {
    let (kind, _, _, payload) = frames(&written(codec)).pop().unwrap();
    assert_eq!(kind, Kind::GOAWAY);
    frame::number(&payload, 4).unwrap()
}

/// The frames in these bytes.
fn frames(mut bytes: &[u8]) -> Vec<(Kind, u8, u32, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(h) = Header::parse(bytes) {
        all.push((h.kind, h.flags, h.stream, bytes[9..9 + h.len].to_vec()));
        bytes = &bytes[9 + h.len..];
    }
    all
}

/// The answers as text: key, status and body, or the error.
fn told(answers: &[Answer]) -> Vec<String> {
    let one = |a: &Answer| match &a.result {
        Ok(r) => format!("{} {} {}", a.key, r.status, String::from_utf8_lossy(&a.body)),
        Err(lost) => format!("{} {lost:?}", a.key),
    };
    answers.iter().map(one).collect()
}

#[test]
fn a_connection_begins_as_it_must() {
    let codec = new(false);
    let rest = codec.pending().strip_prefix(PREFACE).unwrap();
    let kinds: Vec<_> = frames(rest).into_iter().map(|(k, f, s, _)| (k, f, s)).collect();
    assert_eq!(kinds, [(Kind::SETTINGS, 0, 0), (Kind::WINDOW_UPDATE, 0, 0)]);
}

#[test]
fn responses_are_read_in_any_pieces_and_any_order() {
    let ok = [(":status", "200"), ("content-length", "5"), ("server", "x")];
    let wire = [
        greeting(),
        head(3, &ok, 0),
        head(1, &[(":status", "103")], 0),
        head(1, &ok, 0),
        frame(Kind::DATA, 0, 1, b"he"),
        frame(Kind::PING, 0, 0, b"12345678"),
        frame(Kind(0x77), 9, 5, b"unknown"),
        frame(Kind::DATA, ENDS | frame::PADDED, 3, b"\x02world\0\0"),
        frame(Kind::DATA, ENDS, 1, b"llo"),
        head(5, &[(":status", "404")], ENDS),
        head(7, &[(":status", "200")], 0),
        frame(Kind::DATA, 0, 7, b"x"),
        head(7, &[("grpc-status", "0")], ENDS),
    ]
    .concat();
    for size in 1..wire.len() {
        let mut codec = asked(4);
        let mut answers = Vec::new();
        for piece in wire.chunks(size) {
            codec.feed(piece, 7, &mut answers).unwrap();
        }
        assert_eq!(told(&answers), ["1 200 world", "0 200 hello", "2 404 ", "3 200 x"], "pieces of {size}");
        let bytes: u64 = answers
            .iter()
            .filter_map(|a| a.result.as_ref().ok())
            .map(|r| r.head_bytes + r.body_bytes + r.framing_bytes)
            .sum();
        assert_eq!(bytes + codec.take_overhead(), (greeting().len() + wire.len()) as u64);
        assert!(codec.is_idle() && !codec.is_closing());
        let pong = (Kind::PING, frame::ACK, 0, b"12345678".to_vec());
        assert!(frames(&written(&mut codec)).contains(&pong));
    }
}

#[test]
fn all_that_was_read_is_counted() {
    let begun =
        [frame(Kind::HEADERS, frame::END_HEADERS, 1, b"\x88"), frame(Kind::DATA, 0, 1, b"he")].concat();
    for (what, end) in [
        ("a reset", frame(Kind::RST_STREAM, 0, 1, &[0, 0, 0, 7])),
        (
            "not HPACK",
            [frame(Kind::HEADERS, frame::END_HEADERS, 3, b"\xff\xff\xff\xff\xff\xff"), vec![1; 5]].concat(),
        ),
        ("a short PING", frame(Kind::PING, 0, 0, b"1234567")),
        ("a stream of nobody", frame(Kind::HEADERS, frame::END_HEADERS, 99, b"\x88")),
        ("half a frame", frame(Kind::DATA, 0, 1, b"hello")[..11].to_vec()),
    ] {
        let wire = [begun.clone(), end].concat();
        for size in [1, 10, wire.len()] {
            let (mut codec, mut answers) = (asked(2), Vec::new());
            let mut read = 0;
            for piece in wire.chunks(size) {
                read += piece.len();
                if codec.feed(piece, 7, &mut answers).is_err() {
                    break;
                }
            }
            let left: u64 = codec.abandon().iter().map(|(_, r)| r.wire_bytes()).sum();
            assert_eq!(
                codec.take_overhead() + left,
                (greeting().len() + read) as u64,
                "{what} in pieces of {size}"
            );
        }
    }
}

#[test]
fn a_head_may_be_continued_and_use_the_table() {
    // RFC 7541, C.6.1, split in two, padded and with a priority; then the same fields by index.
    let whole = b"\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b";
    let (a, b) = whole.split_at(4);
    let first = [b"\x01\0\0\0\0\x10", a, b"\0"].concat();
    let flags = ENDS | frame::PADDED | frame::PRIORITY;
    let wire = [
        frame(Kind::HEADERS, flags, 1, &first),
        frame(Kind::CONTINUATION, 0, 1, b""),
        frame(Kind::CONTINUATION, WHOLE, 1, b),
        frame(Kind::HEADERS, ENDS | WHOLE, 3, b"\xbf\xbe"),
        frame(Kind::HEADERS, ENDS | WHOLE, 5, b"\xbf\xbe"),
    ];
    let (mut codec, mut answers) = (asked(3), Vec::new());
    codec.feed(&wire.concat(), 7, &mut answers).unwrap();
    assert_eq!(told(&answers), ["0 302 ", "1 302 ", "2 302 "]);
}

#[test]
fn what_a_target_may_not_send_ends_the_connection() {
    let ok = head(1, &[(":status", "200")], 0);
    for (wire, code, text) in [
        (frame(Kind::DATA, 0, 0, b""), PROTOCOL, "never opened"),
        (frame(Kind::DATA, 0, 9, b""), PROTOCOL, "never opened"),
        (frame(Kind::HEADERS, 0, 2, b""), PROTOCOL, "never opened"),
        (frame(Kind::RST_STREAM, 0, 9, &[0; 4]), PROTOCOL, "never opened"),
        (frame(Kind::RST_STREAM, 0, 1, &[0; 3]), FRAME_SIZE, "RST_STREAM"),
        (frame(Kind::PING, 0, 0, &[0; 7]), FRAME_SIZE, "PING"),
        (frame(Kind::PING, 0, 1, &[0; 8]), PROTOCOL, "of the connection"),
        (frame(Kind::SETTINGS, 0, 0, &[0; 5]), FRAME_SIZE, "SETTINGS"),
        (frame(Kind::SETTINGS, 1, 0, &[0; 6]), FRAME_SIZE, "confirmation"),
        (frame(Kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), FLOW_CONTROL, "2 GiB"),
        (frame(Kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]), PROTOCOL, "MAX_FRAME"),
        (frame(Kind::WINDOW_UPDATE, 0, 0, &[0; 4]), PROTOCOL, "window"),
        (frame(Kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]), FLOW_CONTROL, "window"),
        (frame(Kind::WINDOW_UPDATE, 0, 1, &[1]), FRAME_SIZE, "WINDOW_UPDATE"),
        (frame(Kind::GOAWAY, 0, 0, &[0; 7]), FRAME_SIZE, "GOAWAY"),
        (frame(Kind::PUSH_PROMISE, WHOLE, 1, &[0; 8]), PROTOCOL, "push"),
        (frame(Kind::CONTINUATION, WHOLE, 1, &[]), PROTOCOL, "without HEADERS"),
        ([frame(Kind::HEADERS, 0, 1, &[]), greeting()].concat(), PROTOCOL, "not continued"),
        (frame(Kind::HEADERS, WHOLE, 1, b"\xbe"), COMPRESSION, "HPACK"),
        ([ok, frame(Kind::DATA, frame::PADDED, 1, b"\x05")].concat(), PROTOCOL, "padding"),
        (frame(Kind::DATA, 0, 1, &[0; FRAME_MOST + 1]), FRAME_SIZE, "16 KiB"),
    ] {
        let mut codec = asked(1);
        let broken = codec.feed(&wire, 7, &mut Vec::new()).unwrap_err();
        assert!(broken.contains(text), "{broken:?}, not {text}");
        assert_eq!(goaway(&mut codec), code, "{text}");
    }
    let first = new(false).feed(&frame(Kind::PING, 0, 0, &[0; 8]), 7, &mut Vec::new());
    assert!(first.unwrap_err().contains("begin with SETTINGS"));
    let old = new(false).feed(b"HTTP/1.1 400 Bad Request\r\n", 7, &mut Vec::new());
    assert_eq!(old.unwrap_err(), weir_report::verdict::ANSWERED_OLD);
}

#[test]
fn a_malformed_response_costs_its_stream_only() {
    let ok = (":status", "200");
    let (length, other) = (("content-length", "2"), ("content-length", "3"));
    for (wire, text) in [
        (head(1, &[], ENDS), "without a status"),
        (head(1, &[(":status", "20")], ENDS), "status that is none"),
        (head(1, &[ok, ok], ENDS), "pseudo"),
        (head(1, &[("a", "b"), ok], ENDS), "pseudo"),
        (head(1, &[ok, (":path", "/")], ENDS), "pseudo"),
        (head(1, &[ok, ("A", "b")], ENDS), "name"),
        (head(1, &[ok, ("connection", "close")], ENDS), "of the connection"),
        (head(1, &[(":status", "101")], 0), "101"),
        (head(1, &[(":status", "100")], ENDS), "interim"),
        (head(1, &[ok, length, other], ENDS), "Content-Length"),
        (head(1, &[ok, length], ENDS), "less data"),
        ([head(1, &[ok, length], 0), frame(Kind::DATA, ENDS, 1, b"abc")].concat(), "more data"),
        ([head(1, &[ok], 0), head(1, &[("a", "b")], 0)].concat(), "not the end"),
        ([head(1, &[ok], 0), head(1, &[ok], ENDS)].concat(), "second head"),
        (frame(Kind::DATA, ENDS, 1, b"abc"), "before the head"),
        (frame(Kind::WINDOW_UPDATE, 0, 1, &[0; 4]), "window"),
        (frame(Kind::PRIORITY, 0, 1, &[0; 4]), "PRIORITY"),
        ([head(1, &[(":status", "204")], 0), frame(Kind::DATA, ENDS, 1, b"abc")].concat(), "more data"),
    ] {
        let (mut codec, mut answers) = (asked(2), Vec::new());
        codec.feed(&wire, 7, &mut answers).unwrap();
        codec.feed(&head(3, &[ok], ENDS), 7, &mut answers).unwrap();
        let told = told(&answers);
        assert!(told[0].contains(text) && told[1] == "1 200 ", "{told:?}, not {text}");
    }
}

#[test]
fn a_reset_ends_a_stream_and_goaway_lets_those_below_it_finish() {
    let ok = head(3, &[(":status", "200")], ENDS);
    let reset = frame(Kind::RST_STREAM, 0, 1, &2u32.to_be_bytes());
    let away = frame(Kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
    let (mut codec, mut answers) = (asked(3), Vec::new());
    codec.feed(&[reset, away, ok].concat(), 7, &mut answers).unwrap();
    let reset = "0 Reset(\"the target reset the stream: INTERNAL_ERROR\")";
    assert_eq!(told(&answers), [reset, "2 Again", "1 200 "]);
    assert!(codec.is_closing() && codec.is_idle());
}

#[test]
fn a_refused_stream_was_not_looked_at_unless_it_was_answered() {
    let refused = |stream| frame(Kind::RST_STREAM, 0, stream, &REFUSED.to_be_bytes());
    let wire = [refused(1), head(3, &[(":status", "200")], 0), refused(3)];
    let (mut codec, mut answers) = (asked(2), Vec::new());
    codec.feed(&wire.concat(), 7, &mut answers).unwrap();
    assert_eq!(told(&answers), ["0 Again", "1 Reset(\"the target reset the stream: REFUSED_STREAM\")"]);
    assert!(!codec.is_closing() && codec.is_idle());
}

#[test]
fn what_was_given_up_may_still_answer() {
    let (mut codec, mut answers) = (asked(1), Vec::new());
    assert_eq!(codec.cancel(1), Response { protocol: Protocol::Http2, keeps: true, ..Response::default() });
    assert_eq!(frames(&written(&mut codec)), [(Kind::RST_STREAM, 0, 1, CANCEL.to_be_bytes().to_vec())]);
    let wire = [head(1, &[(":status", "200")], 0), frame(Kind::DATA, ENDS, 1, b"late")];
    codec.feed(&wire.concat(), 7, &mut answers).unwrap();
    assert!(answers.is_empty(), "{answers:?}");
}

#[test]
fn a_body_keeps_to_the_windows_of_the_target() {
    let post = Rendered::new(b"POST / HTTP/1.1\r\nHost: h\r\n\r\n", "http", false);
    let body: Arc<[u8]> = vec![b'x'; 100_000].into();
    let (mut codec, mut answers) = (asked(0), Vec::new());
    let small = frame(Kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0x75, 0x30]); // 30,000
    codec.feed(&small, 7, &mut answers).unwrap();
    written(&mut codec);
    let id = codec.request(5, &post, Some((&body, 10)), false);
    let sent = |codec: &mut Connection| {
        let all = frames(&written(codec));
        let data = all.into_iter().filter(|f| f.0 == Kind::DATA);
        data.map(|(_, flags, _, payload)| (payload.len(), flags)).collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut codec), [(16_384, 0), (13_616, 0)]);
    // The stream's window allows it now, and the connection's has 35,535 left.
    codec.feed(&frame(Kind::WINDOW_UPDATE, 0, id, &1_000_000u32.to_be_bytes()), 7, &mut answers).unwrap();
    assert_eq!(sent(&mut codec), [(16_384, 0), (16_384, 0), (2_767, 0)]);
    assert!(codec.is_sending(id));
    codec.feed(&frame(Kind::WINDOW_UPDATE, 0, 0, &34_455u32.to_be_bytes()), 7, &mut answers).unwrap();
    assert_eq!(sent(&mut codec), [(16_384, 0), (16_384, 0), (1_687, ENDS)]);
    assert!(!codec.is_sending(id));
}

#[test]
fn windows_are_given_back_in_large_pieces() {
    let (mut codec, mut answers) = (asked(1), Vec::new());
    codec.feed(&head(1, &[(":status", "200")], 0), 7, &mut answers).unwrap();
    let piece = frame(Kind::DATA, 0, 1, &[0; FRAME_MOST]);
    let half = WINDOW as usize / 2 / FRAME_MOST;
    (0..half).for_each(|_| codec.feed(&piece, 7, &mut answers).unwrap());
    let more = (half * FRAME_MOST) as u32;
    let update = |stream| (Kind::WINDOW_UPDATE, 0, stream, more.to_be_bytes().to_vec());
    assert_eq!(frames(&written(&mut codec)), [update(0), update(1)]);
}

#[test]
fn no_more_streams_than_the_target_takes() {
    let mut codec = asked(2);
    assert!(codec.room() > 1_000);
    codec.feed(&frame(Kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2]), 7, &mut Vec::new()).unwrap();
    assert_eq!(codec.room(), 0);
}

/// Mutates a valid conversation: bytes changed, cut, doubled or moved. Nothing may panic, and each request gets at
/// most one answer.
#[test]
fn no_input_panics() {
    let ok = [(":status", "200"), ("content-length", "5"), ("x-y", "z")];
    let good = [
        greeting(),
        head(1, &ok, 0),
        frame(Kind::DATA, ENDS, 1, b"hello"),
        frame(Kind::HEADERS, 0, 3, b"\x48\x82\x64\x02"),
        frame(Kind::CONTINUATION, WHOLE | ENDS, 3, b"\x58\x85\xae\xc3\x77\x1a\x4b"),
        frame(Kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]),
        frame(Kind::WINDOW_UPDATE, 0, 5, &[0, 0, 1, 0]),
        frame(Kind::PING, 0, 0, &[1; 8]),
        frame(Kind::HEADERS, WHOLE | frame::PADDED, 5, b"\x01\x88\0"),
        frame(Kind::RST_STREAM, 0, 5, &[0, 0, 0, 2]),
        frame(Kind::GOAWAY, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 0]),
    ]
    .concat();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut random = |below: usize| rng.usize(..below);
    for _ in 0..20_000 {
        let mut wire = good.clone();
        for _ in 0..=random(4) {
            let at = random(wire.len());
            match random(5) {
                0 => wire[at] = random(256) as u8,
                1 => wire[at] ^= 1 << random(8),
                2 => wire.truncate(at.max(1)),
                3 => {
                    let piece = wire[at..(at + random(20)).min(wire.len())].to_vec();
                    let to = random(wire.len());
                    wire.splice(to..to, piece);
                }
                _ => {
                    wire.drain(at..(at + random(20)).min(wire.len() - 1).max(at));
                }
            }
        }
        let (mut codec, mut answers) = (asked(4), Vec::new());
        codec.counter().capture = Some(Capture::default());
        let size = 1 + random(wire.len());
        for piece in wire.chunks(size) {
            if codec.feed(piece, 7, &mut answers).is_err() {
                break;
            }
        }
        let mut keys: Vec<usize> = answers.iter().map(|a| a.key).collect();
        keys.extend(codec.abandon().into_iter().map(|(key, _)| key));
        keys.sort_unstable();
        assert_eq!(keys, [0, 1, 2, 3]);
    }
}

#[test]
fn calls_end_with_what_their_trailers_say() {
    let grpc = [(":status", "200"), ("content-type", "application/grpc")];
    let only = [&grpc[..], &[("grpc-status", "5"), ("grpc-message", "no%20such")]].concat();
    let wire = [
        greeting(),
        head(1, &grpc, 0),
        frame(Kind::DATA, 0, 1, b"\0\0\0\0\x02hi\0\0\0"),
        frame(Kind::DATA, 0, 1, b"\0\0"),
        head(1, &[("grpc-status", "0")], ENDS),
        head(3, &only, ENDS),
        head(5, &grpc, 0),
        head(5, &[("grpc-status", "0")], ENDS),
        head(7, &grpc, 0),
        frame(Kind::DATA, ENDS, 7, b""),
        head(9, &[(":status", "502"), ("content-type", "text/html")], ENDS),
        head(11, &grpc, 0),
        frame(Kind::DATA, 0, 11, b"\x01"),
        frame(Kind::DATA, 0, 11, b"\0\0\0\0"),
    ]
    .concat();
    for size in 1..wire.len() {
        let mut codec = asked(6);
        codec.counter().is_grpc = true;
        let mut answers = Vec::new();
        for piece in wire.chunks(size) {
            codec.feed(piece, 7, &mut answers).unwrap();
        }
        let told: Vec<String> = answers
            .iter()
            .map(|a| match &a.result {
                Ok(r) => {
                    let code = r.grpc.map_or("", Code::name);
                    format!(
                        "{} {code} {} {} {}",
                        a.key,
                        r.messages,
                        r.is_no_grpc,
                        a.text.as_deref().unwrap_or("-")
                    )
                }
                Err(lost) => format!("{} {lost:?}", a.key),
            })
            .collect();
        assert_eq!(
            told,
            [
                "0 OK 2 false -",
                "1 NotFound 0 false no such",
                "2 OK 0 false -",
                "3 Internal 0 true the response ended without grpc-status",
                "4 Unavailable 0 true the content-type of the response is not gRPC's",
                "5 Protocol(\"gRPC: a message is compressed, though no coding was accepted\")",
            ],
            "pieces of {size}"
        );
    }
}

#[test]
fn an_answer_before_the_end_of_the_request_gives_the_rest_up() {
    let post = Rendered::new(b"POST / HTTP/1.1\r\nHost: h\r\n\r\n", "http", false);
    let body: Arc<[u8]> = vec![b'x'; 100_000].into();
    let (mut codec, mut answers) = (asked(0), Vec::new());
    let id = codec.request(3, &post, Some((&body, 0)), false);
    assert!(codec.is_sending(id) && !codec.is_idle());
    written(&mut codec);
    codec.feed(&head(id, &[(":status", "413")], ENDS), 7, &mut answers).unwrap();
    assert_eq!(told(&answers), ["3 413 "]);
    assert!(!codec.is_sending(id) && codec.is_idle());
    assert_eq!(frames(&written(&mut codec)), [(Kind::RST_STREAM, 0, id, CANCEL.to_be_bytes().to_vec())]);
    codec.feed(&frame(Kind::WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]), 7, &mut answers).unwrap();
    assert!(written(&mut codec).is_empty());
}

#[test]
fn bodies_wait_for_room_and_share_what_there_is() {
    let post = Rendered::new(b"POST / HTTP/1.1\r\nHost: h\r\n\r\n", "http", false);
    let body: Arc<[u8]> = vec![b'x'; 2 * OUT_MOST].into();
    let (mut codec, mut answers) = (asked(0), Vec::new());
    let windows = [
        frame(Kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        frame(Kind::WINDOW_UPDATE, 0, 0, &[0x40, 0, 0, 0]),
    ];
    codec.feed(&windows.concat(), 7, &mut answers).unwrap();
    let ids = [0, 1].map(|key| codec.request(key, &post, Some((&body, 0)), false));
    let mut all = Vec::new();
    while !codec.pending().is_empty() {
        assert!(codec.pending().len() < OUT_MOST + 2 * FRAME_MOST);
        all.extend(written(&mut codec));
    }
    assert!(ids.iter().all(|id| !codec.is_sending(*id)));
    for id in ids {
        let of_stream = frames(&all).into_iter().filter(|f| f.0 == Kind::DATA && f.2 == id);
        let pieces: Vec<(u8, usize)> = of_stream.map(|f| (f.1, f.3.len())).collect();
        assert_eq!(pieces.iter().map(|(_, len)| len).sum::<usize>(), body.len());
        assert_eq!(pieces.iter().filter(|(flags, _)| *flags == ENDS).count(), 1);
    }
}

#[test]
fn a_target_that_only_asks_and_reads_nothing_is_left() {
    let mut codec = asked(1);
    let pings = frame(Kind::PING, 0, 0, b"12345678").repeat(1000);
    let fed = (0..1000).find_map(|_| codec.feed(&pings, 7, &mut Vec::new()).err());
    assert!(fed.is_some_and(|why| why.contains("flood")));
    assert!(codec.pending().len() < ANSWERS_MOST + 2 * pings.len());
    assert_eq!(goaway(&mut codec), CALM);
}

#[test]
fn what_is_cut_within_a_head_is_counted_once() {
    let whole = frame(Kind::HEADERS, ENDS, 1, b"\x88");
    let (mut codec, mut answers) = (asked(1), Vec::new());
    codec.feed(&whole, 7, &mut answers).unwrap();
    assert_eq!(codec.take_overhead(), greeting().len() as u64);
    codec.feed(&frame(Kind::CONTINUATION, WHOLE, 1, b""), 8, &mut answers).unwrap();
    assert_eq!((codec.take_overhead(), told(&answers)), (0, vec!["0 200 ".to_owned()]));
    let Ok(response) = answers[0].result.clone() else { panic!("{answers:?}") };
    assert_eq!((response.head_bytes, answers[0].first), (whole.len() as u64 + 9, 8));
}
