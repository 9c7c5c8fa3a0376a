//! Heads that were sent before.

use super::*;
use weir_fields::render;

const SECRETS: [&str; 3] = ["authorization: Basic s3cret", "cookie: id=s3cret", "set-cookie: id=s3cret"];

fn send_response(talk: &mut Talk, slot: usize, text: &str) -> (usize, bool) {
    let sent = talk.codec.send_response(slot, text.as_bytes(), &Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(sent)) = sent else { panic!("{sent:?}") };
    sent
}

/// What is sent of heads of which many repeat is what rendering makes of each of them.
#[test]
fn a_head_that_is_sent_again_is_as_if_rendered() {
    const LINES: [&str; 6] = [
        "x-a: 1",
        "x-a: 2",
        "content-type: application/grpc",
        "te: trailers",
        "connection: te",
        "via: somebody",
    ];
    let mut random = fastrand::Rng::with_seed(9);
    let (mut client, mut server) = (Talk::client(&[]), Talk::server(BOUNDS));
    let mut heads: Vec<(String, String)> = Vec::new();
    for n in 0..3000 {
        if heads.is_empty() || random.u8(..8) == 0 {
            let mut lines = String::new();
            for _ in 0..random.usize(..4) {
                let all = if random.u8(..4) == 0 { &SECRETS[..] } else { &LINES };
                lines += all[random.usize(..all.len())];
                lines += "\r\n";
            }
            let (method, path) =
                (["GET", "HEAD"][random.usize(..2)], ["", "a", "some/longer/path"][random.usize(..3)]);
            let status = [200, 204, 103][random.usize(..3)];
            heads.push((
                format!("{method} /{path} HTTP/1.1\r\nhost: h\r\n{lines}\r\n"),
                format!("HTTP/1.1 {status} \r\n{lines}\r\n"),
            ));
        }
        let (request, response) = &heads[random.usize(heads.len().saturating_sub(3)..heads.len())];
        let behind = ["", "x-a: 1\r\n\r\n the body of sixteen bytes and more"][random.usize(..2)];

        let (mut want, mut scratch) = (Vec::new(), Scratch::default());
        render::request(request.as_bytes(), "http", &mut hpack::Static, &mut scratch, &mut want).unwrap();
        let slot = client.codec.reserve();
        let text = format!("{request}{behind}");
        assert_eq!(client.codec.send_request(slot, text.as_bytes(), "http").unwrap(), request.len());
        assert_eq!(client.sent()[0].payload, want, "{request}");
        assert_eq!(client.codec.streams.at(slot).is_head, request.starts_with("HEAD"));
        client.codec.release(slot);
        client.sent();

        want.clear();
        render::response(response.as_bytes(), false, &mut hpack::Static, &mut scratch, &mut want).unwrap();
        let slot = server.ask(2 * n + 1, frame::END_STREAM);
        let sent = send_response(&mut server, slot, &format!("{response}{behind}"));
        assert_eq!(sent, (response.len(), !response.contains(" 103 ")), "{response}");
        assert_eq!(server.sent()[0].payload, want, "{response}");
        server.codec.release(slot);
        server.sent();
    }
    let kept = format!("{:?}{:?}", client.codec.sink.rendered, server.codec.sink.rendered);
    let shown = |text: &str| format!("{:?}", text.as_bytes()).replace(['[', ']'], "");
    assert!(!kept.contains(&shown("s3cret")), "{kept}");
}

/// RFC 7541 §7.1.3: the sender of the field wants it in no table.
#[test]
fn a_head_with_a_field_that_no_hop_may_index_is_not_known() {
    let mut talk = Talk::server(BOUNDS);
    let text = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-key: secret\r\n\r\n";
    for n in 0..3 {
        let slot = talk.ask(2 * n + 1, frame::END_STREAM);
        talk.codec.seal(slot, b"x-key\n".to_vec());
        send_response(&mut talk, slot, text);
        talk.codec.release(slot);
        talk.sent();
    }
    assert_eq!(talk.codec.sink.rendered.recall(text.as_bytes(), &mut Vec::new()), None);
}

#[test]
fn few_heads_are_known() {
    let mut talk = Talk::server(BOUNDS);
    let long = format!("x-long: {}", "x".repeat(2000));
    let mut known_after_two = |line: &str| {
        let text = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n{line}\r\n\r\n");
        for _ in 0..2 {
            assert_eq!(talk.codec.sink.rendered.recall(text.as_bytes(), &mut Vec::new()), None);
            let slot = talk.ask((talk.codec.last + 2) | 1, frame::END_STREAM);
            send_response(&mut talk, slot, &text);
            talk.codec.release(slot);
            talk.sent();
        }
        let known = talk.codec.sink.rendered.recall(text.as_bytes(), &mut Vec::new());
        talk.codec.rest();
        assert_eq!(talk.codec.sink.rendered.recall(text.as_bytes(), &mut Vec::new()), None);
        known.map(|known| (known.len == text.len(), known.fact))
    };
    assert_eq!(known_after_two("x-a: 1"), Some((true, 200)));
    for line in SECRETS.into_iter().chain([&*long]) {
        assert_eq!(known_after_two(line), None, "{line}");
    }
}

/// RFC 8441 §5: a 2xx opens a tunnel, so the client must not get one that only answers.
#[test]
fn no_head_that_is_known_opens_a_tunnel() {
    let mut talk = Talk::server(BOUNDS);
    let ask_for_tunnel = [&[(":method", "CONNECT"), (":protocol", "websocket")][..], &GET[1..]].concat();
    let mut answer = |fields: &[(&str, &str)], want: &str| {
        let stream = (talk.codec.last + 2) | 1;
        talk.head(stream, fields, 0);
        let slot = talk.codec.next_arrival().expect("it arrives");
        let text = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n";
        assert_eq!(send_response(&mut talk, slot, text), (text.len(), true));
        let sent = talk.sent();
        assert_eq!(sent[0].payload, block(&[(":status", want), ("content-type", "text/plain")]));
        talk.codec.release(slot);
        talk.sent();
    };
    for _ in 0..2 {
        for (fields, want) in [(&GET[..], "200"), (&ask_for_tunnel, "502")] {
            (0..4).for_each(|_| answer(fields, want));
        }
    }
}
