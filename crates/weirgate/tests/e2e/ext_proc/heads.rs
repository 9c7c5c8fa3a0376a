//! What becomes of heads: changes that are made whole or not at all, lengths that stay, and the trace that goes on.

use weir_testkit::Upstream;
use weir_testkit::h2::{H2, Options};

use super::{
    END, POST, REQUEST_BODY, REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS, bytes, common, fields,
    figure, go_on, new_body, number, processor, serve, set, start, to,
};
use crate::support::OK_BODY;

/// With `without: pass`, a part of an answer that cannot be followed must reach neither the upstream nor the client.
#[test]
fn an_answer_is_followed_whole_or_not_at_all() {
    let bad = set(&[("x-role", "admin"), (":path", "/admin"), ("x bad", "1")]);
    let good = set(&[("x-role", "admin"), (":path", "/admin"), (":status", "404")]);
    let mode = |response: u16| bytes(9, [number(3, 2), number(4, response)].concat());
    // A wrong field, a body that is too long in place of the message's, and one of a whole body.
    let cases = [
        (vec![bytes(2, &bad)], Vec::new(), REQUEST_HEADERS, "body: none"),
        (
            vec![bytes(2, &good), number(1, 1), new_body(&"x".repeat(20))],
            Vec::new(),
            REQUEST_HEADERS,
            "body: none",
        ),
        (vec![bytes(2, &good), new_body(&"x".repeat(20))], Vec::new(), REQUEST_BODY, "body: buffered"),
        (vec![bytes(2, &bad)], Vec::new(), RESPONSE_HEADERS, "body: none"),
        // A wish that is not supported, beside changes that are.
        (vec![bytes(2, &good)], mode(5), REQUEST_HEADERS, "body: none"),
    ];
    for (parts, wish, phase, body) in cases {
        let parts = parts.concat();
        let processor = processor(move |_, kind, _| {
            if kind != phase {
                return vec![go_on(kind)];
            }
            match common(kind, &[&parts]) {
                super::Act::Answer(answer) => vec![super::Act::Answer([answer, wish.clone()].concat())],
                other => vec![other],
            }
        });
        let upstream = Upstream::fixed(OK_BODY);
        let settings = format!("without: pass, limit: 10B, mode_override: true, request: {{ {body} }}");
        let weir = start(&processor, &to(&upstream), &settings);
        let response = weir.client().ask(POST.replace("X-A: 1", "X-Role: user"));
        response.expect_status(200).expect_body("ok");
        assert_eq!(response.head.header("x-role"), None, "{phase}");
        let seen = upstream.take_request();
        assert_eq!(
            (&*seen.head.line, seen.head.all("x-role")),
            ("POST /a?b=1 HTTP/1.1", vec!["user"]),
            "{phase}"
        );
        assert_eq!(seen.body.bytes, b"hello", "{phase}");
        assert_eq!(figure(&weir, "failed"), 1, "{phase}");
    }
}

/// No trailers follow a body of HTTP/1 that has a length, so it keeps it.
#[test]
fn a_body_that_the_processor_does_not_see_keeps_its_length() {
    let processor = processor(|_, kind, content| {
        assert!(kind != REQUEST_BODY, "it is not asked about bodies");
        if kind == REQUEST_TRAILERS {
            assert_eq!(fields(content)["x-sum"], "1");
        }
        vec![go_on(kind)]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), "request: { trailers: send }, response: { trailers: send }");
    let response = weir.client().ask(POST);
    response.expect_status(200).expect_header("content-length", "2").expect_body("ok");
    let seen = upstream.take_request();
    assert_eq!(
        (seen.head.header("content-length"), seen.head.header("transfer-encoding")),
        (Some("5"), None)
    );
    // Chunks may have trailers, and the processor sees them.
    let chunked = POST.replace("Content-Length: 5", "Transfer-Encoding: chunked");
    let chunked = chunked.replace("hello", "5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n");
    weir.client().ask(chunked).expect_status(200);
    assert_eq!(upstream.take_request().body.bytes, b"hello");
    processor.verify();
}

/// The call is a part of the request's trace, with and without the section `tracing`.
#[test]
fn the_call_carries_the_trace() {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let processor = Upstream::script(move |conn| {
        let mut peer = H2::server(conn, &Options::default());
        while let Some((stream, head)) = peer.next_head() {
            let field = |name| head.header(name).map(str::to_owned);
            let _ = told.lock().unwrap().send((field("traceparent"), field("tracestate")));
            serve(&mut peer, stream, &|_, kind, _| {
                vec![if kind == END { common(END, &[]) } else { go_on(kind) }]
            });
        }
    });
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let upstream = Upstream::fixed(OK_BODY);
    let with = format!("X-A: 1\r\nTraceparent: {PARENT}\r\nTracestate: a=1");
    for (settings, seen) in
        [("", true), ("request: { headers: skip }", true), ("withhold: [ traceparent, tracestate ]", false)]
    {
        let weir = start(&processor, &to(&upstream), settings);
        weir.client().ask(POST.replace("X-A: 1", &with)).expect_status(200);
        let expected =
            if seen { (Some(PARENT.to_owned()), Some("a=1".to_owned())) } else { Default::default() };
        assert_eq!(heard.recv().unwrap(), expected, "{settings}");
        weir.client().ask(POST).expect_status(200);
        assert_eq!(heard.recv().unwrap(), (None, None), "{settings}");
    }
}
