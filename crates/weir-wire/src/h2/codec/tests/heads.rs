//! The shared limit for heads, and reading streams that are excluded.

use super::*;

/// Eight requests at a time would be 56 KiB here.
const TIGHT: Bounds = Bounds { streams: 32, heads: 16 * 1024, floods: FloodLimits::NONE, ..BOUNDS };

/// References a field of 3,500 bytes in the table twice: 7 KB of text from a head of a dozen bytes.
const TWICE: [u8; 8] = [0x82, 0x86, 0x84, 0x01, 1, b'h', 0xbe, 0xbe];

/// A server whose client has added the field to the table.
fn tight(floods: FloodLimits) -> Talk {
    let mut talk = Talk::server(Bounds { floods, ..TIGHT });
    let mut first = vec![0x82, 0x86, 0x84, 0x01, 1, b'h', 0x40, 1, b'a', 0x7f, 0xad, 0x1a];
    first.extend_from_slice(&[b'x'; 3500]);
    talk.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &first);
    let slot = talk.codec.next_arrival().unwrap();
    talk.codec.release(slot);
    talk.sent();
    talk
}

fn ask_twice(talk: &mut Talk, stream: u32) -> Option<usize> {
    talk.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, &TWICE);
    talk.codec.next_arrival()
}

#[test]
fn heads_hold_no_more_than_a_connection_may() {
    let mut talk = tight(FloodLimits::default());
    let mut slots = Vec::new();
    for n in 0..1000u32 {
        let stream = 3 + 2 * n;
        match ask_twice(&mut talk, stream) {
            Some(slot) => slots.push(slot),
            None => assert_eq!(talk.reset(), (stream, code::REFUSED)),
        }
        assert!(talk.codec.streams.heads() <= TIGHT.heads, "{} bytes", talk.codec.streams.heads());
    }
    // Refused as often as it asks: REFUSED_STREAM permits a retry.
    assert!((1..=2).contains(&slots.len()) && talk.codec.ended().is_none());
    // After the server has taken the text, it still counts.
    let mut text = Vec::new();
    talk.codec.take_head(slots[0], &mut text);
    assert!(text.len() > 7000 && ask_twice(&mut talk, 4001).is_none());
    talk.sent();
    // Freeing it, with its stream or before, makes room.
    talk.codec.forget_head(slots[0]);
    let more = ask_twice(&mut talk, 4003).expect("there is room");
    assert_eq!(talk.sent(), []);
    slots.push(more);
    slots.into_iter().for_each(|slot| talk.codec.release(slot));
    assert_eq!((talk.codec.heads_held, talk.codec.streams.heads()), (0, 0));
}

#[test]
fn a_connection_that_holds_no_head_may_have_a_large_one() {
    let mut talk = Talk::server(Bounds { heads: 100, ..BOUNDS });
    let large = "x".repeat(5000);
    let fields = [&GET[..], &[("x-a", &large)]].concat();
    talk.head(1, &fields, frame::END_STREAM);
    let slot = talk.codec.next_arrival().expect("it arrives");
    talk.head(3, &GET, frame::END_STREAM);
    assert_eq!(talk.reset(), (3, code::REFUSED));
    talk.codec.release(slot);
    talk.sent();
    talk.head(5, &fields, frame::END_STREAM);
    assert!(talk.codec.next_arrival().is_some());
}

#[test]
fn what_a_malformed_head_breaks_is_told_whatever_is_held() {
    let mut talk = tight(FloodLimits::NONE);
    let mut stream = 3;
    while ask_twice(&mut talk, stream).is_some() {
        stream += 2;
    }
    talk.sent();
    talk.head(101, &[GET[0], GET[0]], frame::END_STREAM);
    assert_eq!(talk.reset(), (101, code::PROTOCOL));
}

#[test]
fn trailers_count_as_heads_do() {
    let mut talk = tight(FloodLimits::NONE);
    let slots: Vec<usize> = (0..16).map(|n| talk.ask(3 + 2 * n, 0)).collect();
    for n in 0..16 {
        let flags = frame::END_HEADERS | frame::END_STREAM;
        talk.hear(Kind::HEADERS, flags, 3 + 2 * n, &[0xbe, 0xbe]);
        assert!(talk.codec.streams.heads() <= TIGHT.heads + 8192);
    }
    let whole = slots.iter().filter(|slot| !talk.codec.take_trailers(**slot).is_empty()).count();
    assert!((1..=3).contains(&whole), "{whole}");
    assert_eq!(talk.sent().iter().filter(|s| s.kind == Kind::RST_STREAM).count(), 16 - whole);
    slots.into_iter().for_each(|slot| talk.codec.release(slot));
    assert_eq!(talk.codec.heads_held, 0);
}

#[test]
fn large_fields_leave_nothing_behind() {
    let mut talk = Talk::server(Bounds { text: 128 * 1024, heads: 256 * 1024, ..BOUNDS });
    let large = "x".repeat(15_000);
    for (n, fields) in [
        [&GET[..3], &[(":path", &*format!("/{large}"))]].concat(),
        [&GET[..], &[("cookie", &large)]].concat(),
        [&GET[..], &[(&*large, "x")]].concat(),
    ]
    .iter()
    .enumerate()
    {
        talk.head(1 + 2 * n as u32, fields, frame::END_STREAM);
        let slot = talk.codec.next_arrival().expect("it arrives");
        talk.codec.release(slot);
    }
    let kept = talk.codec.streams.all().iter().map(|record| record.kept.text.capacity()).max().unwrap_or(0);
    let scratch = talk.codec.sink.scratch.capacity();
    assert!(scratch < 32 * 1024 && kept <= 4096, "{scratch} and {kept} bytes");
}

#[test]
fn what_is_read_of_streams_left_out_is_bounded() {
    let mut talk = Talk::server(BOUNDS);
    let slot = talk.ask(1, frame::END_STREAM);
    talk.codec.leave();
    talk.hear(Kind::PING, frame::ACK, 0, &GOODBYE);
    talk.head(3, &GET, 0);
    talk.sent();
    let piece = [0; FRAME_MOST];
    for _ in 0..LEFT_OUT_MOST / FRAME_MOST - 1 {
        talk.data(3, &piece, 0);
        talk.sent();
    }
    assert_eq!((talk.codec.ended(), talk.codec.failed(slot)), (None, None));
    (0..2).for_each(|_| talk.data(3, &piece, 0));
    assert_eq!(talk.goaway(), code::CALM);
    assert_eq!(talk.codec.failed(slot), Some(Failed::Malformed("a rule of the connection")));
}

/// RFC 7541 §6.2.3: a field that no hop may index is passed on as one, however often its head comes.
#[test]
fn what_no_hop_may_index_stays_so() {
    let (mut server, mut client) = (Talk::server(BOUNDS), Talk::client(&[]));
    let of = |fields: &[(&str, &str)]| {
        let mut block = block(fields);
        hpack::encode(b"x-key", b"secret", true, &mut block);
        hpack::encode(b"x-plain", b"a", false, &mut block);
        block
    };
    let (request, response, trailers) = (of(&GET), of(&[(":status", "200")]), of(&[]));
    for n in 0..4 {
        let stream = 2 * n + 1;
        server.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, &request);
        let asked = server.codec.next_arrival().expect("it arrives");
        let names = server.codec.sealed(asked).to_vec();
        assert_eq!(names, b"x-key\n");
        let mut text = Vec::new();
        server.codec.take_head(asked, &mut text);
        let slot = client.codec.reserve();
        client.codec.seal(slot, names);
        assert!(client.codec.may_begin(slot, &Context::from_waker(Waker::noop())).is_ready());
        client.codec.send_request(slot, &text, "http").unwrap();
        assert_eq!(client.sent()[0].payload, request);

        client.hear(Kind::HEADERS, frame::END_HEADERS, stream, &response);
        client.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, &trailers);
        let names = client.codec.sealed(slot).to_vec();
        let Poll::Ready(Ok(text)) = client.read(slot) else { panic!() };
        let lines = client.codec.take_trailers(slot);
        client.codec.release(slot);
        server.codec.seal(asked, names);
        let sent = server.codec.send_response(asked, &text, &Context::from_waker(Waker::noop()));
        assert!(matches!(sent, Poll::Ready(Ok((_, true)))));
        server.codec.send_end(asked, &lines).unwrap();
        let sent: Vec<_> = server.sent().into_iter().map(|sent| sent.payload).collect();
        assert_eq!(sent, [response.clone(), trailers.clone()]);
        server.codec.release(asked);
        server.sent();
        client.sent();
    }
    // A field of this name that nobody has marked is not.
    let slot = client.codec.reserve();
    client.codec.send_request(slot, b"GET / HTTP/1.1\r\nhost: h\r\nx-key: secret\r\n\r\n", "http").unwrap();
    assert_eq!(client.sent()[0].payload, block(&[&GET[..], &[("x-key", "secret")]].concat()));
}
