//! Conversations with a codec: frames in, frames out.

use super::*;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often a task was woken.
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

const BOUNDS: Bounds = Bounds { streams: 8, text: 8192, window: 256 * 1024, floods: FloodLimits::NONE };

const SETTINGS: [(u16, u32); 0] = [];

#[derive(Debug, PartialEq, Eq)]
struct Sent {
    kind: Kind,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// One side of a conversation; the test is the other.
struct Talk {
    codec: Codec,
    partial: Vec<u8>,
}

impl Talk {
    /// With a client that has said hello and confirmed our SETTINGS.
    fn server(bounds: Bounds) -> Self {
        let mut talk = Self { codec: Codec::new(Role::Server, bounds), partial: PREFACE.to_vec() };
        talk.hear(Kind::SETTINGS, 0, 0, &settings(&SETTINGS));
        talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
        talk.sent();
        talk
    }

    /// With an upstream that has these SETTINGS.
    fn client(theirs: &[(u16, u32)]) -> Self {
        let mut talk = Self { codec: Codec::new(Role::Client, BOUNDS), partial: Vec::new() };
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

    /// A request; returns its slot.
    fn ask(&mut self, stream: u32, end: u8) -> usize {
        self.head(stream, &GET, end);
        self.codec.next_arrival().expect("it arrives")
    }

    /// What leaves.
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

    /// The code of the GOAWAY that ended it.
    #[track_caller]
    fn goaway(&mut self) -> u32 {
        assert!(self.codec.ended().is_some(), "it has not ended");
        let last = self.sent().pop().expect("a GOAWAY");
        assert_eq!(last.kind, Kind::GOAWAY);
        frame::number(&last.payload, 4).unwrap()
    }

    /// The code of the RST_STREAM that left, and nothing else but windows.
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

    /// A request whose body is still to come.
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
        assert!(matches!(sent, Poll::Ready(Ok(true))));
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
    // Written in pieces, ended later: one frame, with the mark on it.
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
    assert!(matches!(sent, Poll::Ready(Ok(true))));
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
    // Each puts x-n: v into the table; the last names it by its index.
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
    head(&mut talk, 3, &[], "x-4"); // behind our reset
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

// === the windows of the peer ===

#[test]
fn windows_may_become_less_than_nothing() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, frame::END_STREAM);
    talk.respond(slot);
    let (bell, waker) = bell();
    assert_eq!(talk.write(slot, &[0; 10_000], &waker), Poll::Ready(Ok(10_000)));
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 4000)]));
    assert_eq!(talk.write(slot, b"x", &waker), Poll::Pending);
    talk.hear(Kind::WINDOW_UPDATE, 0, 1, &6000u32.to_be_bytes());
    assert!(!bell.rung(), "10,000 of 10,000 are used");
    assert_eq!(talk.write(slot, b"x", &waker), Poll::Pending);
    talk.hear(Kind::WINDOW_UPDATE, 0, 1, &5u32.to_be_bytes());
    assert!(bell.rung());
    assert_eq!(talk.write(slot, b"something", &waker), Poll::Ready(Ok(5)));
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 0x7fff_ffff)]));
    assert_eq!(talk.write(slot, b"thing", &waker), Poll::Ready(Ok(5)));
    talk.hear(Kind::WINDOW_UPDATE, 0, 1, &20_000u32.to_be_bytes());
    talk.sent();
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 0x8000_0000)]));
    assert_eq!(talk.goaway(), code::FLOW_CONTROL);
}

#[test]
fn windows_have_a_least_and_a_largest_step() {
    for (by, wrong) in [(0u32, code::PROTOCOL), (0x7fff_ffff, code::FLOW_CONTROL)] {
        let mut talk = Talk::server(BOUNDS);
        talk.ask(1, 0);
        talk.hear(Kind::WINDOW_UPDATE, 0, 1, &by.to_be_bytes());
        assert_eq!(talk.reset(), (1, wrong));
        talk.hear(Kind::WINDOW_UPDATE, 0, 1, &by.to_be_bytes()); // it is gone
        talk.hear(Kind::WINDOW_UPDATE, 0, 0, &by.to_be_bytes());
        assert_eq!(talk.goaway(), wrong);
    }
}

#[test]
fn a_tight_connection_goes_round() {
    let mut talk = Talk::server(BOUNDS);
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 1_000_000)]));
    let slots: Vec<usize> = (0..4).map(|n| talk.ask(1 + 2 * n, frame::END_STREAM)).collect();
    let bells: Vec<_> = slots.iter().map(|_| bell()).collect();
    slots.iter().for_each(|slot| talk.respond(*slot));
    // The first takes all of the connection's 65,535; then 20,000 come at a time, and everybody always wants more.
    let mut taken = BTreeMap::new();
    let mut first_order = Vec::new();
    for round in 0..60 {
        for (slot, (bell, waker)) in slots.iter().zip(&bells) {
            if !bell.rung() && round > 0 {
                continue;
            }
            while let Poll::Ready(Ok(n)) = talk.write(*slot, &[0; 16_384], waker) {
                *taken.entry(*slot).or_insert(0) += n;
                if round > 0 && first_order.len() < 8 {
                    first_order.push(*slot);
                }
            }
        }
        talk.sent();
        talk.hear(Kind::WINDOW_UPDATE, 0, 0, &20_000u32.to_be_bytes());
    }
    let (least, most) = (taken.values().min().unwrap(), taken.values().max().unwrap());
    assert!(most - least <= 65_535 + 5 * 16_384, "{taken:?}");
    for slot in &slots {
        talk.codec.release(*slot);
    }
    assert_eq!(talk.codec.reserved, 0);
}

#[test]
fn what_waits_to_be_sent_is_bounded_and_goes_on() {
    let mut talk = Talk::server(BOUNDS);
    talk.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 10_000_000)]));
    talk.hear(Kind::WINDOW_UPDATE, 0, 0, &10_000_000u32.to_be_bytes());
    let slots: Vec<usize> = (0..3).map(|n| talk.ask(1 + 2 * n, frame::END_STREAM)).collect();
    slots.iter().for_each(|slot| talk.respond(*slot));
    let bells: Vec<_> = slots.iter().map(|_| bell()).collect();
    for (slot, (_, waker)) in slots.iter().zip(&bells) {
        while talk.write(*slot, &[0; 16_384], waker).is_ready() {}
    }
    assert!(talk.codec.pending().len() < OUT_MOST + FRAME_MOST + 200, "{}", talk.codec.pending().len());
    assert!(bells.iter().all(|(bell, _)| !bell.rung()));
    talk.sent();
    assert!(bells.iter().all(|(bell, _)| bell.rung()));
    for (slot, (_, waker)) in slots.iter().zip(&bells) {
        assert_eq!(talk.write(*slot, &[0; 16_384], waker), Poll::Ready(Ok(16_384)));
    }
}

#[test]
fn one_that_leaves_the_queue_gives_its_turn_away() {
    let mut talk = Talk::server(BOUNDS);
    let slots: Vec<usize> = (0..3).map(|n| talk.ask(1 + 2 * n, frame::END_STREAM)).collect();
    slots.iter().for_each(|slot| talk.respond(*slot));
    let (bell, waker) = bell();
    while talk.write(slots[0], &[0; 16_384], Waker::noop()).is_ready() {
        talk.sent();
    }
    assert!(talk.write(slots[1], b"x", Waker::noop()).is_pending());
    assert!(talk.write(slots[2], b"x", &waker).is_pending());
    talk.hear(Kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
    assert!(!bell.rung());
    talk.codec.release(slots[0]);
    talk.codec.release(slots[1]);
    assert!(bell.rung());
    assert_eq!(talk.write(slots[2], b"xy", &waker), Poll::Ready(Ok(1)));
}

#[test]
fn a_stream_that_is_reset_in_the_queue_is_granted_nothing() {
    // Whoever holds it may still read: an upstream that has answered early resets what is left of a request.
    let mut talk = Talk::client(&[]);
    let slots: Vec<usize> = (0..3).map(|_| talk.post()).collect();
    while talk.write(slots[0], &[0; 16_384], Waker::noop()).is_ready() {
        talk.sent();
    }
    let (bell, waker) = bell();
    assert!(talk.write(slots[1], b"x", Waker::noop()).is_pending());
    assert!(talk.write(slots[2], b"x", &waker).is_pending());
    for id in [1, 3] {
        talk.head(id, &[(":status", "413")], frame::END_STREAM);
        talk.hear(Kind::RST_STREAM, 0, id, &code::NO_ERROR.to_be_bytes());
    }
    talk.hear(Kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
    assert!(bell.rung());
    assert_eq!(talk.write(slots[2], b"x", &waker), Poll::Ready(Ok(1)));
    assert_eq!(talk.codec.reserved, 0);
}

// === our windows ===

/// Sends as much as the windows let, which are kept as a client keeps them.
struct Windows {
    connection: i64,
    streams: BTreeMap<u32, i64>,
}

impl Windows {
    fn of(first: i64, connection: i64) -> Self {
        let streams = (0..8).map(|n| (1 + 2 * n, first)).collect();
        Self { connection, streams }
    }

    fn note(&mut self, sent: Vec<Sent>) {
        for frame in sent.into_iter().filter(|s| s.kind == Kind::WINDOW_UPDATE) {
            let by = i64::from(frame::number(&frame.payload, 0).unwrap());
            match frame.stream {
                0 => self.connection += by,
                id => *self.streams.get_mut(&id).unwrap() += by,
            }
        }
    }

    fn room(&self, stream: u32) -> usize {
        self.connection.min(self.streams[&stream]).clamp(0, 16_384) as usize
    }

    fn fill(&mut self, talk: &mut Talk, stream: u32) -> usize {
        let mut total = 0;
        while self.room(stream) > 0 {
            let now = self.room(stream);
            talk.data(stream, &vec![0; now], 0);
            self.connection -= now as i64;
            *self.streams.get_mut(&stream).unwrap() -= now as i64;
            total += now;
            self.note(talk.sent());
        }
        total
    }
}

#[test]
fn stalled_uploads_stall_no_neighbour() {
    let mut talk = Talk { codec: Codec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
    let hello = talk.sent();
    let mut windows = Windows::of(i64::from(STREAM_WINDOW), 65_535);
    windows.note(hello);
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
    let slots: Vec<usize> = (0..8).map(|n| talk.ask(1 + 2 * n, 0)).collect();
    // Each grows as far as it may, and then stands still.
    for (n, slot) in slots.iter().enumerate().skip(1) {
        let stream = 1 + 2 * n as u32;
        for _ in 0..50 {
            windows.fill(&mut talk, stream);
            while matches!(talk.read(*slot), Poll::Ready(Ok(_))) {}
            windows.note(talk.sent());
        }
        windows.fill(&mut talk, stream);
    }
    let held: usize = slots.iter().map(|slot| talk.codec.streams.at(*slot).body.len()).sum();
    assert!(held <= 8 * STREAM_WINDOW as usize + CLIENT_GROWTH as usize, "{held}");
    assert!(held > 7 * 200_000, "they have grown: {held}");
    // And still the first can send a large body.
    let mut total = 0;
    for _ in 0..100 {
        total += windows.fill(&mut talk, 1);
        while matches!(talk.read(slots[0]), Poll::Ready(Ok(_))) {}
        windows.note(talk.sent());
    }
    assert!(total > 2_000_000, "{total}");
    assert_eq!(talk.codec.ended(), None);
    slots.iter().for_each(|slot| talk.codec.release(*slot));
    assert_eq!(talk.codec.growth, CLIENT_GROWTH);
}

#[test]
fn more_than_a_window_is_an_error() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, 0);
    talk.data(1, &[0; 16_384], 0);
    talk.data(1, &[0; 16_384], 0);
    talk.data(1, &[0; 1], 0);
    assert_eq!(talk.reset(), (1, code::FLOW_CONTROL));
    assert_eq!(talk.codec.failed(slot), Some(Failed::Malformed("more data than a window")));
}

#[test]
fn before_it_knows_our_settings_a_client_counts_by_the_first_window() {
    let mut talk = Talk { codec: Codec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    talk.sent();
    let slot = talk.ask(1, 0);
    (0..3).for_each(|_| talk.data(1, &[0; 16_384], 0));
    talk.data(1, &[0; 16_383], 0);
    talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
    assert!(talk.sent().is_empty() && talk.codec.ended().is_none());
    assert_eq!(talk.codec.streams.at(slot).room, i64::from(STREAM_WINDOW) - 65_535);
}

#[test]
fn an_end_without_data_needs_no_window() {
    let mut talk = Talk { codec: Codec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    talk.sent();
    let slot = talk.ask(1, 0);
    (0..3).for_each(|_| talk.data(1, &[0; 16_384], 0));
    talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]);
    talk.data(1, &[], frame::END_STREAM);
    assert!(talk.sent().is_empty());
    assert_eq!(talk.codec.failed(slot), None);
}

#[test]
fn an_answer_to_nothing_changes_no_window() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, 0);
    (0..3).for_each(|_| talk.hear(Kind::SETTINGS, frame::ACK, 0, &[]));
    assert_eq!(talk.codec.streams.at(slot).room, i64::from(STREAM_WINDOW));
}

#[test]
fn padding_takes_room_and_gives_it_back() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, 0);
    talk.codec.take_head(slot, &mut Vec::new());
    let padded = [&[255][..], b"x", &[0; 255]].concat();
    for n in 0..2000 {
        talk.hear(Kind::DATA, frame::PADDED, 1, &padded);
        assert_eq!(talk.read(slot), Poll::Ready(Ok(b"x".to_vec())), "{n}");
    }
    assert_eq!(talk.codec.ended(), None);
    assert!(talk.sent().iter().all(|s| s.kind == Kind::WINDOW_UPDATE));
}

#[test]
fn what_is_dropped_is_given_back_to_the_connection() {
    let mut talk = Talk::server(BOUNDS);
    let before = talk.codec.room + i64::from(talk.codec.credit);
    let slot = talk.ask(1, 0);
    talk.data(1, &[0; 10_000], 0);
    talk.codec.release(slot);
    talk.data(1, &[0; 5_000], 0); // on its way
    assert_eq!(talk.codec.room + i64::from(talk.codec.credit), before);
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

// === streams that have ended ===

#[test]
fn late_frames_are_told_from_wrong_ones() {
    type Late = fn(&mut Talk);
    let data: Late = |talk| talk.data(3, b"late", 0);
    let head: Late = |talk| talk.head(3, &[("x-sum", "1")], frame::END_STREAM);
    let window: Late = |talk| talk.hear(Kind::WINDOW_UPDATE, 0, 3, &1u32.to_be_bytes());
    let reset: Late = |talk| talk.hear(Kind::RST_STREAM, 0, 3, &8u32.to_be_bytes());
    let ours: Late = |talk| {
        let slot = talk.ask(3, 0);
        talk.codec.release(slot);
    };
    let theirs: Late = |talk| {
        let slot = talk.ask(3, frame::END_STREAM);
        talk.respond(slot);
        talk.codec.send_end(slot, &[]).unwrap();
        talk.codec.release(slot);
    };
    let never: Late = |_| {};
    for (before, late, reset_by, gone_by) in [
        (ours, data, None, None),
        (ours, head, None, None),
        (ours, window, None, None),
        (ours, reset, None, None),
        (theirs, data, Some(code::STREAM_CLOSED), None),
        (theirs, head, None, Some(code::STREAM_CLOSED)),
        (theirs, window, None, None),
        (theirs, reset, None, None),
        (never, head, None, Some(code::PROTOCOL)),
        (never, data, Some(code::STREAM_CLOSED), None),
    ] {
        let mut talk = Talk::server(BOUNDS);
        before(&mut talk);
        talk.ask(5, 0);
        talk.sent();
        late(&mut talk);
        match (reset_by, gone_by) {
            (Some(code), _) => assert_eq!(talk.reset(), (3, code)),
            (_, Some(code)) => assert_eq!(talk.goaway(), code),
            _ => assert!(talk.sent().is_empty() && talk.codec.ended().is_none()),
        }
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut talk = Talk::server(BOUNDS);
    for n in 0..2000u32 {
        let slot = talk.ask(1 + 2 * n, 0);
        talk.codec.release(slot);
        talk.sent();
    }
    assert_eq!(talk.codec.streams.ending(1), None);
    assert_eq!(talk.codec.streams.ending(3999), Some(Ending::Ours));
}

#[test]
fn a_stream_that_is_reset_before_anybody_looked_arrives_all_the_same() {
    // Whoever serves it logs it.
    let mut talk = Talk::server(BOUNDS);
    talk.head(1, &GET, 0);
    talk.hear(Kind::RST_STREAM, 0, 1, &8u32.to_be_bytes());
    let slot = talk.codec.next_arrival().unwrap();
    let mut text = Vec::new();
    talk.codec.take_head(slot, &mut text);
    assert_eq!(text, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(talk.read(slot), Poll::Ready(Err(Failed::Reset)));
    talk.codec.release(slot);
    assert!(talk.sent().is_empty());
}

// === floods ===

#[test]
fn empty_data_for_life_is_no_flood() {
    let mut talk = Talk::server(Bounds { floods: FloodLimits::default(), ..BOUNDS });
    let slot = talk.ask(1, 0);
    for _ in 0..1000 {
        talk.data(1, b"x", 0);
        talk.data(1, b"", 0);
        assert!(talk.read(slot).is_ready());
    }
    assert_eq!(talk.codec.ended(), None);
}

#[test]
fn answers_to_nothing_are_a_flood() {
    for (kind, payload, flood) in
        [(Kind::PING, &[0; 8][..], Flood::Ping), (Kind::SETTINGS, &[], Flood::Settings)]
    {
        let mut talk = Talk::server(Bounds { floods: FloodLimits::default(), ..BOUNDS });
        (0..200).for_each(|_| talk.hear(kind, frame::ACK, 0, payload));
        assert_eq!(talk.codec.ended(), Some(Fault::Flood(flood)));
        assert_eq!(talk.goaway(), code::CALM);
    }
}

#[test]
fn nothing_more_is_read_from_one_that_takes_no_answers() {
    let mut talk = Talk::server(BOUNDS);
    let mut heard = 0;
    while talk.codec.wants_more() {
        talk.hear(Kind::PING, 0, 0, &[7; 8]);
        heard += 1;
    }
    assert!(heard * 17 >= ANSWERS_MOST && heard * 17 < ANSWERS_MOST + 100);
    talk.sent();
    assert!(talk.codec.wants_more());
}

// === its end ===

#[test]
fn a_goodbye_in_two_steps() {
    let mut talk = Talk::server(BOUNDS);
    let first = talk.ask(1, frame::END_STREAM);
    talk.codec.leave();
    let sent = talk.sent();
    assert_eq!((sent[0].kind, frame::number(&sent[0].payload, 0)), (Kind::GOAWAY, Some(0x7fff_ffff)));
    let second = talk.ask(3, frame::END_STREAM);
    talk.hear(Kind::PING, frame::ACK, 0, &sent[1].payload);
    let sent = talk.sent();
    assert_eq!((sent[0].kind, frame::number(&sent[0].payload, 0)), (Kind::GOAWAY, Some(3)));
    talk.head(5, &GET, frame::END_STREAM);
    assert!(talk.codec.next_arrival().is_none() && talk.sent().is_empty());
    for slot in [first, second] {
        assert!(!talk.codec.is_over());
        talk.respond(slot);
        talk.codec.send_end(slot, &[]).unwrap();
    }
    assert!(talk.codec.is_over());
}

#[test]
fn what_a_goodbye_has_left_out_harms_nobody() {
    let mut talk = Talk::server(BOUNDS);
    let first = talk.ask(1, 0);
    talk.codec.leave();
    let ping = talk.sent().pop().expect("a PING").payload;
    talk.hear(Kind::PING, frame::ACK, 0, &ping);
    talk.sent();
    talk.head(3, &GET, 0);
    talk.data(3, b"x", 0);
    talk.hear(Kind::WINDOW_UPDATE, 0, 3, &1u32.to_be_bytes());
    talk.data(3, b"x", frame::END_STREAM);
    talk.hear(Kind::RST_STREAM, 0, 3, &code::CANCEL.to_be_bytes());
    assert!(talk.sent().is_empty());
    talk.codec.take_head(first, &mut Vec::new());
    talk.data(1, b"x", frame::END_STREAM);
    assert_eq!(talk.read(first), Poll::Ready(Ok(b"x".to_vec())));
    assert_eq!(talk.codec.ended(), None);
}

#[test]
fn what_is_wrong_ends_the_connection_with_its_code() {
    type Wrong = fn(&mut Talk);
    let rows: &[(&str, Wrong, u32)] = &[
        ("DATA on stream 0", |t| t.data(0, b"x", 0), code::PROTOCOL),
        ("HEADERS on an even stream", |t| t.head(2, &GET, 0), code::PROTOCOL),
        ("DATA on an idle stream", |t| t.data(9, b"x", 0), code::PROTOCOL),
        ("a large frame", |t| t.hear(Kind(77), 0, 0, &[0; 16_385]), code::FRAME_SIZE),
        ("padding without end", |t| t.hear(Kind::DATA, frame::PADDED, 1, &[9, 0]), code::PROTOCOL),
        ("SETTINGS of 5", |t| t.hear(Kind::SETTINGS, 0, 0, &[0; 5]), code::FRAME_SIZE),
        (
            "a confirmation that says more",
            |t| t.hear(Kind::SETTINGS, frame::ACK, 0, &[0; 6]),
            code::FRAME_SIZE,
        ),
        ("PING of 7", |t| t.hear(Kind::PING, 0, 0, &[0; 7]), code::FRAME_SIZE),
        ("GOAWAY of 7", |t| t.hear(Kind::GOAWAY, 0, 0, &[0; 7]), code::FRAME_SIZE),
        ("PRIORITY of 4 on an idle stream", |t| t.hear(Kind::PRIORITY, 0, 9, &[0; 4]), code::FRAME_SIZE),
        ("RST_STREAM of 3", |t| t.hear(Kind::RST_STREAM, 0, 1, &[0; 3]), code::FRAME_SIZE),
        ("RST_STREAM of an idle stream", |t| t.hear(Kind::RST_STREAM, 0, 9, &[0; 4]), code::PROTOCOL),
        ("PUSH_PROMISE", |t| t.hear(Kind::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]), code::PROTOCOL),
        ("CONTINUATION alone", |t| t.hear(Kind::CONTINUATION, 4, 1, &[]), code::PROTOCOL),
        ("no HPACK", |t| t.hear(Kind::HEADERS, 4, 1, &[0x80]), code::COMPRESSION),
        (
            "something within a head",
            |t| {
                t.hear(Kind::HEADERS, 0, 1, &[0x82]);
                t.hear(Kind::PING, 0, 0, &[0; 8]);
            },
            code::PROTOCOL,
        ),
        (
            "a window of 2 GiB",
            |t| t.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::WINDOW, 1 << 31)])),
            code::FLOW_CONTROL,
        ),
        (
            "frames of 1 KiB",
            |t| t.hear(Kind::SETTINGS, 0, 0, &settings(&[(setting::FRAME, 1024)])),
            code::PROTOCOL,
        ),
    ];
    for (name, wrong, code) in rows {
        let mut talk = Talk::server(BOUNDS);
        wrong(&mut talk);
        assert_eq!(talk.goaway(), *code, "{name}");
        talk.hear(Kind::PING, 0, 0, &[0; 8]);
        assert!(talk.sent().is_empty(), "{name}: nothing behind the end");
    }
    let mut talk =
        Talk { codec: Codec::new(Role::Server, BOUNDS), partial: b"GET / HTTP/1.1\r\n\r\n".to_vec() };
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    assert_eq!(talk.goaway(), code::PROTOCOL);
    let mut talk = Talk { codec: Codec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
    talk.head(1, &GET, 0);
    assert_eq!(talk.goaway(), code::PROTOCOL);
}

#[test]
fn a_stream_that_depends_on_itself() {
    let mut talk = Talk::server(BOUNDS);
    let fields = [&[0, 0, 0, 1, 16][..], &block(&GET)].concat();
    talk.hear(Kind::HEADERS, frame::PRIORITY | frame::END_HEADERS, 1, &fields);
    assert_eq!(talk.reset(), (1, code::PROTOCOL));
    talk.ask(3, 0);
    talk.hear(Kind::PRIORITY, 0, 3, &[0, 0, 0, 3, 16]);
    assert_eq!(talk.reset(), (3, code::PROTOCOL));
    talk.hear(Kind::PRIORITY, 0, 99, &[0, 0, 0, 3, 16]);
    assert!(talk.sent().is_empty() && talk.codec.ended().is_none());
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
    // Its text has no end, so that what follows would be read as more fields of it.
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
