//! Heads that came before.

use super::*;
use weir_fields::{Reader, Scratch};

/// A block, well-formed or not: literals that enter the table and others, references to it, updates of its size.
fn any_block(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut block = Vec::new();
    if random.u8(..8) == 0 {
        block.push(0x20 | random.u8(..30));
        match random.u8(..3) {
            0 => block.extend_from_slice(&[0x3f, 0xe1, 0x1f]), // 4,096
            1 => block.extend_from_slice(&[0x3f, random.u8(..128)]), // 31 and more: room for few entries
            _ => {}
        }
    }
    // GET, http, `/`, the authority `h`.
    block.extend_from_slice(&[0x82, 0x86, 0x84, 1, 1, b'h']);
    let refers = random.u8(..3) == 0;
    for _ in 0..random.u8(..5) {
        let kind = [0x40, 0x40, 0, 0x10][random.usize(..4)];
        if refers && random.bool() {
            block.push(0x80 | random.u8(62..66));
        } else {
            let mut value = vec![b'v', random.u8(b'0'..b'4')];
            if random.u8(..4) == 0 {
                value.resize(100, b'x'); // more than a small table holds
            }
            block.extend_from_slice(&[kind, 3, b'x', b'-', b'a' + random.u8(..3), value.len() as u8]);
            block.extend_from_slice(&value);
        }
    }
    if random.u8(..20) == 0 {
        block.extend_from_slice(&[0, 1, b'A', 0]); // an upper-case name
    }
    block
}

/// What the codec makes of blocks of which many repeat is what a decoder makes of each of them.
#[test]
fn a_block_that_repeats_is_as_if_decoded() {
    let mut random = fastrand::Rng::with_seed(5);
    let (mut recalled, mut read, mut broken) = (0, 0, 0);
    for _ in 0..300 {
        let mut talk = Talk::server(BOUNDS);
        let (mut decoder, mut scratch) = (hpack::Decoder::default(), Scratch::default());
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        for n in 0..100 {
            if blocks.is_empty() || random.u8(..12) == 0 {
                blocks.push(any_block(&mut random));
            }
            let block = &blocks[random.usize(blocks.len().saturating_sub(3)..blocks.len())];
            talk.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, 2 * n + 1, block);
            let mut want = Vec::new();
            let mut reader = Reader::new(weir_fields::Kind::Request, &mut want, &mut scratch, BOUNDS.text);
            if decoder.decode(block, |name, value| reader.field(name, value)).is_err() {
                assert_eq!(talk.goaway(), code::COMPRESSION);
                broken += 1;
                break;
            }
            if reader.finish(String::new).is_err() {
                assert_eq!(talk.reset(), (2 * n + 1, code::PROTOCOL));
                continue;
            }
            let slot = talk.codec.next_arrival().expect("it arrives");
            recalled += u32::from(talk.codec.repeats(slot) != 0);
            read += 1;
            let mut text = Vec::new();
            talk.codec.take_head(slot, &mut text);
            assert_eq!(text, want, "{}", block.escape_ascii());
            talk.codec.release(slot);
            talk.sent();
        }
    }
    assert!(recalled > 1000 && read - recalled > 1000 && broken > 20, "{recalled} of {read}, {broken}");
}

#[test]
fn a_response_and_its_trailers_repeat() {
    let mut talk = Talk::client(&[]);
    for n in 0..5 {
        let slot = talk.get();
        let stream = 2 * n + 1;
        // The fields enter the table, as those of nginx do with each response.
        let head = [0x88, 0x40, 1, b'a', 1, b'b'];
        talk.hear(Kind::HEADERS, frame::END_HEADERS, stream, &head);
        talk.data(stream, b"body", 0);
        talk.head(stream, &[("x-sum", "1")], frame::END_STREAM);
        assert_eq!(talk.codec.repeats(slot) != 0, n >= 2, "{n}");
        assert_eq!(talk.read(slot), Poll::Ready(Ok(b"HTTP/1.1 200 \r\na: b\r\n\r\n".to_vec())));
        assert_eq!(talk.read(slot), Poll::Ready(Ok(b"body".to_vec())));
        assert_eq!(talk.codec.take_trailers(slot), b"x-sum: 1\r\n");
        talk.codec.release(slot);
        if n == 4 {
            // All five are in the table.
            let slot = talk.get();
            talk.hear(Kind::HEADERS, frame::END_HEADERS, 11, &[0x88, 0xbe, 0xc2]);
            assert_eq!(talk.read(slot), Poll::Ready(Ok(b"HTTP/1.1 200 \r\na: b\r\na: b\r\n\r\n".to_vec())));
            talk.hear(Kind::HEADERS, frame::END_HEADERS, 11, &[0xc3]);
            assert_eq!(talk.goaway(), code::COMPRESSION);
        }
    }
}

/// An id names the whole text that the next read returns, so no other head may get it.
#[test]
fn an_interim_response_leaves_its_id_to_no_other() {
    let mut talk = Talk::client(&[]);
    let slot = talk.get();
    let hear = |talk: &mut Talk, fields| {
        talk.head(1, fields, 0);
        talk.codec.repeats(slot) != 0
    };
    let early = [(":status", "103"), ("link", "a")];
    let text = b"HTTP/1.1 103 \r\nlink: a\r\n\r\n";
    for n in 0..4 {
        assert_eq!(hear(&mut talk, &early), n >= 2, "{n}");
        assert_eq!(talk.read(slot), Poll::Ready(Ok(text.to_vec())));
    }
    assert!(hear(&mut talk, &early));
    assert!(!hear(&mut talk, &early), "one read returns both");
    assert_eq!(talk.read(slot), Poll::Ready(Ok([*text; 2].concat())));
    assert!(hear(&mut talk, &early));
    assert_eq!(talk.read(slot), Poll::Ready(Ok(text.to_vec())));
    assert!(!hear(&mut talk, &[(":status", "200")]), "it is new");
}

/// The answer to a request for a tunnel has a key of its own.
#[test]
fn no_tunnel_repeats() {
    let mut talk = Talk::server(BOUNDS);
    let ask = [&[(":method", "CONNECT"), (":protocol", "websocket")][..], &GET[1..]].concat();
    let mut texts = Vec::new();
    for n in 0..4 {
        talk.head(2 * n + 1, &ask, 0);
        let slot = talk.codec.next_arrival().unwrap();
        let mut text = Vec::new();
        talk.codec.take_head(slot, &mut text);
        assert!(!texts.contains(&text), "two with the same key");
        texts.push(text);
    }
}

/// The entries that a block adds to the table are kept with it, so they count.
#[test]
fn a_block_that_adds_many_entries_is_decoded_each_time() {
    let mut talk = Talk::server(BOUNDS);
    for (adds, repeats) in [(20, true), (100, false)] {
        let block = [&[0x82, 0x86, 0x84, 1, 1, b'h'][..], &[0x40, 1, b'a', 0].repeat(adds)].concat();
        for n in 0..4 {
            let stream = (talk.codec.last + 2) | 1;
            talk.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, &block);
            let slot = talk.codec.next_arrival().unwrap();
            assert_eq!(talk.codec.repeats(slot) != 0, repeats && n >= 2, "{adds}, {n}");
            talk.codec.release(slot);
            talk.sent();
        }
    }
}

#[test]
fn what_repeats_counts_as_any_head() {
    let mut talk = Talk::server(Bounds { heads: 600, ..BOUNDS });
    let value = "x".repeat(200);
    let fields = [&GET[..], &[("x-a", &value)]].concat();
    let ask = |talk: &mut Talk, stream| {
        talk.head(stream, &fields, frame::END_STREAM);
        talk.codec.next_arrival()
    };
    for stream in [1, 3] {
        let slot = ask(&mut talk, stream).unwrap();
        talk.codec.release(slot);
        talk.sent();
    }
    for stream in [5, 7] {
        let slot = ask(&mut talk, stream).unwrap();
        assert!(talk.codec.repeats(slot) != 0);
    }
    assert_eq!(ask(&mut talk, 9), None, "two of them fill the limit");
    assert_eq!(talk.reset(), (9, code::REFUSED));
    // A connection that rests has forgotten it.
    talk.codec.rest();
    for slot in talk.codec.places() {
        talk.codec.release(slot);
    }
    let slot = ask(&mut talk, 11).unwrap();
    assert_eq!(talk.codec.repeats(slot), 0);
}

/// Known trailers count against the limit as if they were decoded.
#[test]
fn trailers_that_repeat_need_room() {
    let mut talk = Talk::server(Bounds { heads: 600, ..BOUNDS });
    let (value, sum) = ("x".repeat(400), "y".repeat(300));
    let large = [&GET[..], &[("x-a", &value)]].concat();
    let asked = [(&GET[..], true), (&GET, true), (&GET, true), (&large, false), (&GET, true)];
    for (n, (fields, has_room)) in asked.into_iter().enumerate() {
        talk.head(2 * n as u32 + 1, fields, 0);
        let slot = talk.codec.next_arrival().expect("it arrives");
        talk.head(2 * n as u32 + 1, &[("x-sum", &sum)], frame::END_STREAM);
        let came = talk.codec.take_trailers(slot);
        let whole = if has_room { format!("x-sum: {sum}\r\n").into_bytes() } else { Vec::new() };
        assert!(came == whole && talk.codec.failed(slot).is_none() == has_room, "{n}");
        talk.codec.release(slot);
        talk.sent();
    }
}

/// A head that was cut for lack of room is read whole when there is room again.
#[test]
fn no_head_that_was_cut_repeats() {
    let mut talk = Talk::server(Bounds { heads: 600, ..BOUNDS });
    let (value, more) = ("x".repeat(400), "y".repeat(300));
    let large = [&GET[..], &[("x-a", &value)]].concat();
    let asked = [&GET[..], &[("x-b", &more)]].concat();
    talk.head(1, &large, frame::END_STREAM);
    let slot = talk.codec.next_arrival().expect("it arrives");
    for stream in [3, 5, 7] {
        talk.head(stream, &asked, frame::END_STREAM);
        assert_eq!(talk.reset(), (stream, code::REFUSED));
    }
    talk.codec.release(slot);
    for stream in [9, 11, 13, 15] {
        talk.head(stream, &asked, frame::END_STREAM);
        let slot = talk.codec.next_arrival().expect("it arrives");
        let mut text = Vec::new();
        talk.codec.take_head(slot, &mut text);
        assert_eq!(text, format!("GET / HTTP/1.1\r\nhost: h\r\nx-b: {more}\r\n\r\n").as_bytes());
        talk.codec.release(slot);
        talk.sent();
    }
}

/// The answer to a request for a tunnel has a key of its own, and the same block answers other requests.
#[test]
fn no_answer_to_a_tunnel_repeats() {
    let mut talk = Talk::client(&[(setting::CONNECT, 1)]);
    let answered = |talk: &mut Talk, request: &str| {
        let Poll::Ready(slot) = talk.begin(request, Waker::noop()) else { panic!() };
        let stream = talk.codec.last;
        talk.sent();
        talk.hear(Kind::HEADERS, frame::END_HEADERS, stream, &[0x88]);
        let Poll::Ready(Ok(text)) = talk.read(slot) else { panic!() };
        talk.codec.release(slot);
        talk.sent();
        String::from_utf8(text).unwrap()
    };
    let mut answers = Vec::new();
    for round in 0..2 {
        for n in 0..4 {
            assert_eq!(answered(&mut talk, "GET / HTTP/1.1\r\nhost: h\r\n\r\n"), "HTTP/1.1 200 \r\n\r\n");
            let key = format!("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ{round}{n}\r\n");
            let ask = format!(
                "GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}\r\n"
            );
            let answer = answered(&mut talk, &ask);
            assert!(answer.starts_with("HTTP/1.1 101 \r\n") && !answers.contains(&answer), "{answer}");
            answers.push(answer);
        }
    }
}

/// What a block does to the table beside adding entries, it does each time it comes.
#[test]
fn a_block_that_shrinks_or_empties_the_table_is_decoded() {
    let get = [0x82, 0x86, 0x84, 1, 1, b'h'];
    let of = |parts: &[&[u8]]| parts.concat();
    let ask = |talk: &mut Talk, block: &[u8]| {
        let stream = (talk.codec.last + 1) | 1;
        talk.hear(Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, block);
        let slot = talk.codec.next_arrival()?;
        let mut text = Vec::new();
        talk.codec.take_head(slot, &mut text);
        talk.codec.release(slot);
        talk.sent();
        Some(String::from_utf8(text).unwrap())
    };
    let text = |lines: &str| Some(format!("GET / HTTP/1.1\r\nhost: h\r\n{lines}\r\n"));

    // The table has room for all of its entries before and after.
    let mut talk = Talk::server(BOUNDS);
    let two = [0x40, 1, b'a', 1, b'1', 0x40, 1, b'b', 1, b'2'];
    assert_eq!(ask(&mut talk, &of(&[&get, &two])), text("a: 1\r\nb: 2\r\n"));
    for _ in 0..4 {
        assert_eq!(ask(&mut talk, &of(&[&[0x3f, 127], &get])), text(""));
    }
    assert_eq!(ask(&mut talk, &of(&[&get, &[0xbe, 0xbf]])), text("b: 2\r\na: 1\r\n"));

    // An entry larger than the table empties it (RFC 7541 §4.4).
    let large = of(&[&get, &[0x40, 1, b'c', 100], &[b'x'; 100]]);
    for _ in 0..4 {
        assert_eq!(ask(&mut talk, &of(&[&[0x3f, 29], &get, &two[..5]])), text("a: 1\r\n"));
        assert_eq!(ask(&mut talk, &large), text(&format!("c: {}\r\n", "x".repeat(100))));
    }
    assert_eq!(ask(&mut talk, &of(&[&get, &[0xbe]])), None);
    assert_eq!(talk.goaway(), code::COMPRESSION);
}
