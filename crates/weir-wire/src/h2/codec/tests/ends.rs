//! Streams that have ended, floods, and the end of a connection.

use super::*;

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
    for (last, how) in [(0, Some(Ending::Ours)), (255, Some(Ending::Ours)), (256, None), (1999, None)] {
        assert_eq!(talk.codec.streams.ending(3999 - 2 * last), how, "{last} streams ago");
    }
}

#[test]
fn a_stream_that_is_reset_before_anybody_looked_arrives_all_the_same() {
    // The server logs it.
    let mut talk = Talk::server(BOUNDS);
    talk.head(1, &GET, 0);
    talk.hear(Kind::RST_STREAM, 0, 1, &8u32.to_be_bytes());
    let slot = talk.codec.next_arrival().unwrap();
    let mut text = Vec::new();
    talk.codec.take_head(slot, &mut text);
    assert_eq!(text, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(talk.read(slot), Poll::Ready(Err(Failed::Reset(8))));
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
        ("not HPACK", |t| t.hear(Kind::HEADERS, 4, 1, &[0x80]), code::COMPRESSION),
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
        Talk { codec: TextCodec::new(Role::Server, BOUNDS), partial: b"GET / HTTP/1.1\r\n\r\n".to_vec() };
    talk.hear(Kind::SETTINGS, 0, 0, &[]);
    assert_eq!(talk.goaway(), code::PROTOCOL);
    let mut talk = Talk { codec: TextCodec::new(Role::Server, BOUNDS), partial: PREFACE.to_vec() };
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
