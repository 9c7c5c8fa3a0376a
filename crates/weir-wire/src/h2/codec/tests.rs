//! Conversations with a codec: frames in, frames out.

mod ends;
mod heads;
mod rendered;
mod repeats;
mod sinks;
mod table;
mod windows;

use super::*;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use weir_fields::{HeadFacts, Malformed};

/// Counts wake-ups of a task.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn rung(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) > 0
    }
}

const BOUNDS: Bounds =
    Bounds { streams: 8, text: 8192, heads: 64 * 1024, window: 256 * 1024, floods: FloodLimits::NONE };

const SETTINGS: [(u16, u32); 0] = [];

#[derive(Debug, PartialEq, Eq)]
struct Sent {
    kind: Kind,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// One side of a conversation; the test plays the other.
struct Talk {
    codec: TextCodec,
    partial: Vec<u8>,
}

impl Talk {
    /// A server whose client has sent its preface and acknowledged our SETTINGS.
    fn server(bounds: Bounds) -> Self {
        let mut talk = Self { codec: TextCodec::new(Role::Server, bounds), partial: PREFACE.to_vec() };
        talk.hear(Kind::SETTINGS, 0, 0, &settings(&SETTINGS));
        talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
        talk.sent();
        talk
    }

    /// A client whose upstream has these SETTINGS.
    fn client(theirs: &[(u16, u32)]) -> Self {
        let mut talk = Self { codec: TextCodec::new(Role::Client, BOUNDS), partial: Vec::new() };
        talk.hear(Kind::SETTINGS, 0, 0, &settings(theirs));
        talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
        assert!(talk.codec.pending().starts_with(PREFACE));
        let _ = talk.codec.sent(PREFACE.len());
        talk.sent();
        talk
    }

    fn hear(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        frame::write(kind, flags, stream, payload, &mut self.partial);
        let used = self.codec.receive(&self.partial);
        self.partial.drain(..used);
    }

    fn head(&mut self, stream: u32, fields: &[(&str, &str)], end: u8) {
        self.hear(Kind::HEADERS, frame::END_HEADERS | end, stream, &block(fields));
    }

    fn data(&mut self, stream: u32, data: &[u8], end: u8) {
        self.hear(Kind::DATA, end, stream, data);
    }

    /// Receives a request; returns its slot.
    fn ask(&mut self, stream: u32, end: u8) -> usize {
        self.head(stream, &GET, end);
        self.codec.next_arrival().expect("it arrives")
    }

    /// The frames sent since the last call.
    fn sent(&mut self) -> Vec<Sent> {
        let mut rest = self.codec.pending().to_vec();
        let len = rest.len();
        let mut sent = Vec::new();
        while let Some(header) = Header::parse(&rest) {
            let whole: Vec<u8> = rest.drain(..HEADER + header.len).collect();
            let Header { kind, flags, stream, .. } = header;
            sent.push(Sent { kind, flags, stream, payload: whole[HEADER..].to_vec() });
        }
        let _ = self.codec.sent(len);
        sent
    }

    /// The code of the GOAWAY that ended the connection.
    #[track_caller]
    fn goaway(&mut self) -> u32 {
        assert!(self.codec.ended().is_some(), "it has not ended");
        let last = self.sent().pop().expect("a GOAWAY");
        assert_eq!(last.kind, Kind::GOAWAY);
        frame::number(&last.payload, 4).unwrap()
    }

    /// The stream and code of the RST_STREAM that was sent, with nothing else but window updates.
    #[track_caller]
    fn reset(&mut self) -> (u32, u32) {
        let sent: Vec<Sent> = self.sent().into_iter().filter(|s| s.kind != Kind::WINDOW_UPDATE).collect();
        assert!(sent.len() == 1 && sent[0].kind == Kind::RST_STREAM, "{sent:?}");
        assert_eq!(self.codec.ended(), None);
        (sent[0].stream, frame::number(&sent[0].payload, 0).unwrap())
    }

    fn write(&mut self, slot: usize, data: &[u8], waker: &Waker) -> Poll<Result<usize, Failed>> {
        self.codec.send_data(slot, data, &Context::from_waker(waker))
    }

    fn read(&mut self, slot: usize) -> Poll<Result<Vec<u8>, Failed>> {
        let mut buffer = Vec::new();
        self.codec
            .read(slot, &mut buffer, &Context::from_waker(Waker::noop()))
            .map_ok(|len| buffer[..len].to_vec())
    }

    fn begin(&mut self, text: &str, waker: &Waker) -> Poll<usize> {
        let slot = self.codec.reserve();
        match self.codec.may_begin(slot, &Context::from_waker(waker)) {
            Poll::Ready(may) => {
                may.unwrap();
                self.codec.send_request(slot, text.as_bytes(), "http").unwrap();
                Poll::Ready(slot)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn get(&mut self) -> usize {
        let Poll::Ready(slot) = self.begin("GET / HTTP/1.1\r\nhost: h\r\n\r\n", Waker::noop()) else {
            panic!()
        };
        self.codec.send_end(slot, &[]).unwrap();
        self.sent();
        slot
    }

    /// A request whose body is not sent yet.
    fn post(&mut self) -> usize {
        let Poll::Ready(slot) = self.begin("POST / HTTP/1.1\r\nhost: h\r\n\r\n", Waker::noop()) else {
            panic!()
        };
        self.sent();
        slot
    }

    fn respond(&mut self, slot: usize) {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        let sent = self.codec.send_response(slot, head, &Context::from_waker(Waker::noop()));
        assert!(matches!(sent, Poll::Ready(Ok((_, true)))));
    }
}

const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/")];

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    fields.iter().for_each(|(n, v)| hpack::encode(n.as_bytes(), v.as_bytes(), false, &mut block));
    block
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    pairs.iter().flat_map(|(id, v)| [&id.to_be_bytes()[..], &v.to_be_bytes()].concat()).collect()
}

fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (Arc::clone(&bell), Waker::from(bell))
}

// === heads, ends ===

#[test]
fn a_request_and_its_response_in_one_frame_each() {
    let mut talk = Talk::server(BOUNDS);
    talk.head(1, &[&GET[..], &[("x-a", "b")]].concat(), frame::END_STREAM);
    let slot = talk.codec.next_arrival().unwrap();
    let mut text = Vec::new();
    talk.codec.take_head(slot, &mut text);
    assert_eq!(text, b"GET / HTTP/1.1\r\nhost: h\r\nx-a: b\r\n\r\n");
    assert!(talk.codec.is_over_at(slot));
    talk.respond(slot);
    // Written in pieces and ended later: one frame, with the end flag.
    assert_eq!(talk.write(slot, b"some", Waker::noop()), Poll::Ready(Ok(4)));
    assert_eq!(talk.write(slot, b"thing", Waker::noop()), Poll::Ready(Ok(5)));
    talk.codec.send_end(slot, &[]).unwrap();
    let sent = talk.sent();
    assert_eq!((sent.len(), sent[0].kind, sent[0].flags), (2, Kind::HEADERS, frame::END_HEADERS));
    assert_eq!(
        (sent[1].kind, sent[1].flags, &sent[1].payload[..]),
        (Kind::DATA, frame::END_STREAM, &b"something"[..])
    );
    talk.codec.release(slot);
    assert!(talk.sent().is_empty());
    assert_eq!(talk.codec.streams.open(), 0);
}

#[test]
fn an_end_behind_what_has_left_is_a_frame() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, frame::END_STREAM);
    talk.respond(slot);
    talk.sent();
    talk.codec.send_end(slot, b"x-sum: 1\r\n").unwrap();
    let sent = talk.sent();
    assert_eq!(sent[0].flags, frame::END_HEADERS | frame::END_STREAM);
    assert_eq!(sent[0].payload, block(&[("x-sum", "1")]));
    let slot = talk.ask(3, frame::END_STREAM);
    talk.respond(slot);
    talk.sent();
    talk.codec.send_end(slot, &[]).unwrap();
    let want = Sent { kind: Kind::DATA, flags: frame::END_STREAM, stream: 3, payload: Vec::new() };
    assert_eq!(talk.sent(), [want]);
}

#[test]
fn a_large_head_is_sent_in_pieces() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, frame::END_STREAM);
    let head = format!("HTTP/1.1 200 OK\r\nx-a: {}\r\n\r\n", "x".repeat(40_000));
    let sent = talk.codec.send_response(slot, head.as_bytes(), &Context::from_waker(Waker::noop()));
    assert!(matches!(sent, Poll::Ready(Ok((_, true)))));
    talk.codec.send_end(slot, &[]).unwrap();
    let sent = talk.sent();
    let shape: Vec<_> = sent.iter().map(|s| (s.kind, s.flags)).collect();
    assert_eq!(
        shape,
        [
            (Kind::HEADERS, frame::END_STREAM),
            (Kind::CONTINUATION, 0),
            (Kind::CONTINUATION, frame::END_HEADERS)
        ]
    );
}

#[test]
fn hpack_stays_in_step_whatever_becomes_of_a_head() {
    // Each adds `x-n: v` to the table; the last refers to it by index.
    let indexed = |n: &str| [&[0x40, 3][..], n.as_bytes(), &[1, b'v']].concat();
    let mut talk = Talk::server(Bounds { streams: 2, text: 600, ..BOUNDS });
    let head = |talk: &mut Talk, stream: u32, fields: &[(&str, &str)], n: &str| {
        let block = [block(&[&GET[..], fields].concat()), indexed(n)].concat();
        talk.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, &block);
    };
    head(&mut talk, 1, &[("Upper", "case")], "x-1");
    assert_eq!(talk.reset(), (1, code::PROTOCOL));
    head(&mut talk, 3, &[("x-large", &"x".repeat(700)), ("x-more", "x")], "x-2");
    let large = talk.codec.next_arrival().unwrap();
    let mut text = Vec::new();
    talk.codec.take_head(large, &mut text);
    assert!(text.len() > 600 && !text.ends_with(b"\r\n\r\n"));
    talk.ask(5, 0);
    head(&mut talk, 7, &[], "x-3");
    assert_eq!(talk.reset(), (7, code::REFUSED));
    talk.codec.reset(large, code::CANCEL);
    talk.sent();
    head(&mut talk, 3, &[], "x-4"); // after our reset
    let last = [&block(&GET)[..], &[0xbe, 0xbf, 0xc0, 0xc1]].concat();
    talk.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, 9, &last);
    let slot = talk.codec.next_arrival().unwrap();
    text.clear();
    talk.codec.take_head(slot, &mut text);
    assert_eq!(text, b"GET / HTTP/1.1\r\nhost: h\r\nx-4: v\r\nx-3: v\r\nx-2: v\r\nx-1: v\r\n\r\n");
}

#[test]
fn a_block_has_a_largest_size() {
    let mut talk = Talk::server(BOUNDS);
    talk.hear(Kind::HEADERS, 0, 1, &block(&GET));
    assert!(talk.codec.head_since().is_some());
    for _ in 0..8 {
        talk.hear(Kind::CONTINUATION, 0, 1, &[0; 16_384]);
    }
    assert_eq!(talk.codec.ended(), Some(Fault::Flood(Flood::Continuation)));
    assert_eq!(talk.goaway(), code::CALM);
}

#[test]
fn the_beginning_of_a_head_counts_as_one_that_is_owed() {
    let mut talk = Talk::server(BOUNDS);
    assert!(talk.codec.head_since().is_none());
    let mut whole = Vec::new();
    frame::write(Kind::HEADERS, frame::END_HEADERS, 1, &block(&GET), &mut whole);
    assert_eq!(talk.codec.receive(&whole[..12]), 0);
    assert!(talk.codec.head_since().is_some());
    assert_eq!(talk.codec.receive(&whole), whole.len());
    assert!(talk.codec.head_since().is_none());
}

// === bodies ===

#[test]
fn a_length_must_be_true() {
    let post = [&GET[..], &[("content-length", "5")]].concat();
    for (pieces, whole) in [
        (&[("hello", frame::END_STREAM)][..], true),
        (&[("hel", 0), ("lo", 0), ("", frame::END_STREAM)], true),
        (&[("hel", frame::END_STREAM)], false),
        (&[("hello", 0), ("!", 0)], false),
        (&[("hello!", 0)], false),
        (&[("", frame::END_STREAM)], false),
    ] {
        let mut talk = Talk::server(BOUNDS);
        talk.head(1, &post, 0);
        let slot = talk.codec.next_arrival().unwrap();
        talk.codec.take_head(slot, &mut Vec::new());
        let mut got = Vec::new();
        for (piece, end) in pieces {
            talk.data(1, piece.as_bytes(), *end);
            while let Poll::Ready(Ok(more)) = talk.read(slot) {
                got.extend_from_slice(&more);
                if more.is_empty() {
                    break;
                }
            }
        }
        assert_eq!(
            (got.len() == 5, talk.codec.failed(slot).is_none()),
            (whole, whole),
            "{pieces:?}: {got:?}"
        );
    }
    let mut talk = Talk::server(BOUNDS);
    talk.head(1, &post, frame::END_STREAM);
    assert_eq!(talk.reset(), (1, code::PROTOCOL));
}

#[test]
fn trailers_are_the_end() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, 0);
    talk.head(1, &[("x-sum", "1")], frame::END_STREAM);
    talk.codec.take_head(slot, &mut Vec::new());
    assert!(!talk.codec.is_over_at(slot), "there are trailers");
    assert_eq!(talk.read(slot), Poll::Ready(Ok(Vec::new())));
    assert_eq!(talk.codec.take_trailers(slot), b"x-sum: 1\r\n");
    for (fields, end) in [(&[("x-sum", "1")][..], 0), (&[(":path", "/")], frame::END_STREAM)] {
        let mut talk = Talk::server(BOUNDS);
        talk.ask(1, 0);
        talk.head(1, fields, end);
        assert_eq!(talk.reset(), (1, code::PROTOCOL));
    }
}

// === the client's side ===

#[test]
fn what_an_upstream_does_wrong_is_no_reset() {
    let head = |status: &'static str| vec![(":status", status)];
    let rows = [
        ("no status", vec![("x-a", "b")], frame::END_STREAM),
        ("upper case", vec![(":status", "200"), ("X-A", "b")], frame::END_STREAM),
        ("101", head("101"), 0),
        ("a length and no body", vec![(":status", "200"), ("content-length", "5")], frame::END_STREAM),
        ("an interim one at the end", head("103"), frame::END_STREAM),
    ];
    for (name, fields, end) in rows {
        let mut talk = Talk::client(&[]);
        let slot = talk.get();
        talk.head(1, &fields, end);
        assert_eq!(talk.reset(), (1, code::PROTOCOL), "{name}");
        let Poll::Ready(Err(failed)) = talk.read(slot) else { panic!("{name}") };
        assert_eq!(io::Error::from(failed).kind(), io::ErrorKind::InvalidData, "{name}");
    }
    let mut talk = Talk::client(&[]);
    let slot = talk.get();
    talk.hear(Kind::RST_STREAM, 0, 1, &2u32.to_be_bytes());
    let Poll::Ready(Err(failed)) = talk.read(slot) else { panic!() };
    assert_eq!(io::Error::from(failed).kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn what_was_not_looked_at_is_told_apart() {
    let mut talk = Talk::client(&[]);
    let slots = [talk.get(), talk.get(), talk.get()];
    talk.hear(Kind::RST_STREAM, 0, 1, &code::REFUSED.to_be_bytes());
    talk.hear(Kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(talk.codec.failed(slots[0]), Some(Failed::Refused { by_reset: true }));
    assert_eq!(talk.codec.failed(slots[1]), None);
    assert_eq!(talk.codec.failed(slots[2]), Some(Failed::Refused { by_reset: false }));
    assert!(!talk.codec.is_open() && !talk.codec.is_over());
    talk.head(3, &[(":status", "200")], frame::END_STREAM);
    assert!(talk.codec.is_over());
    let unsent = talk.codec.reserve();
    let may = talk.codec.may_begin(unsent, &Context::from_waker(Waker::noop()));
    assert_eq!(may, Poll::Ready(Err(Failed::Refused { by_reset: false })));
}

#[test]
fn requests_wait_for_their_turn() {
    let mut talk = Talk::client(&[(setting::STREAMS, 1)]);
    let slot = talk.get();
    let text = "GET /2 HTTP/1.1\r\n\r\n";
    let ((second, wakes_second), (third, wakes_third)) = (bell(), bell());
    let (a, b) = (talk.codec.reserve(), talk.codec.reserve());
    let may = |talk: &mut Talk, slot, waker: &Waker| {
        let may = talk.codec.may_begin(slot, &Context::from_waker(waker)).is_ready();
        if may {
            talk.codec.send_request(slot, text.as_bytes(), "http").unwrap();
        }
        may
    };
    assert!(!may(&mut talk, a, &wakes_second) && !may(&mut talk, b, &wakes_third));
    talk.head(1, &[(":status", "204")], frame::END_STREAM);
    talk.codec.release(slot);
    assert!(second.rung() && !third.rung());
    assert!(!may(&mut talk, b, &wakes_third) && may(&mut talk, a, &wakes_second));
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::STREAMS, 2)]));
    assert!(third.rung() && may(&mut talk, b, &wakes_third));
    assert_eq!(talk.codec.streams.open(), 2);
}

#[test]
fn one_that_leaves_its_turn_to_begin_wakes_the_next() {
    for is_at_its_turn in [false, true] {
        let mut talk = Talk::client(&[(setting::STREAMS, 1)]);
        let slot = talk.get();
        let (bell, waker) = bell();
        let (a, b) = (talk.codec.reserve(), talk.codec.reserve());
        assert!(talk.codec.may_begin(a, &Context::from_waker(Waker::noop())).is_pending());
        assert!(talk.codec.may_begin(b, &Context::from_waker(&waker)).is_pending());
        talk.head(1, &[(":status", "204")], frame::END_STREAM);
        talk.codec.release(slot);
        assert!(!bell.rung());
        if is_at_its_turn {
            assert!(talk.codec.may_begin(a, &Context::from_waker(Waker::noop())).is_ready());
            let unsayable = b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n";
            talk.codec.send_request(a, unsayable, "http").unwrap_err();
        }
        talk.codec.release(a);
        assert!(bell.rung(), "{is_at_its_turn}");
    }
}

#[test]
fn a_head_that_is_too_large_has_no_body_behind_it() {
    // Its text has no end, so that the following bytes would be read as more fields.
    let mut talk = Talk::client(&[]);
    let slot = talk.get();
    let large = "x".repeat(BOUNDS.text);
    talk.head(1, &[(":status", "200"), ("x-large", &large)], 0);
    talk.data(1, b"\r\nset-cookie: a=b\r\n\r\n", frame::END_STREAM);
    assert_eq!(talk.reset(), (1, code::PROTOCOL));
    assert_eq!(talk.read(slot), Poll::Ready(Err(Failed::Malformed("a head that is too large"))));
}

#[test]
fn a_response_to_head_has_no_body() {
    let mut talk = Talk::client(&[]);
    let Poll::Ready(slot) = talk.begin("HEAD / HTTP/1.1\r\nhost: h\r\n\r\n", Waker::noop()) else { panic!() };
    talk.codec.send_end(slot, &[]).unwrap();
    talk.sent();
    talk.head(1, &[(":status", "200"), ("content-length", "5")], 0);
    assert_eq!(talk.read(slot), Poll::Ready(Ok(b"HTTP/1.1 200 \r\ncontent-length: 5\r\n\r\n".to_vec())));
    talk.data(1, b"hello", frame::END_STREAM);
    assert_eq!(talk.reset(), (1, code::PROTOCOL));
}

#[test]
fn interim_responses_without_end_are_bounded() {
    let mut talk = Talk::client(&[]);
    let slot = talk.get();
    let large = "x".repeat(4000);
    let sent = (0..100).take_while(|_| {
        talk.head(1, &[(":status", "103"), ("link", &large)], 0);
        talk.codec.failed(slot).is_none()
    });
    assert!(sent.count() < 10);
}
