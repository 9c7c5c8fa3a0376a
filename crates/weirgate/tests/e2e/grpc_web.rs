//! Browsers as gRPC clients: the filter `grpc_web` in front of the built-in origin's greeter.

use weir_origin::{Handle, Options as OriginOptions, Origin};
use weir_testkit::h2::{Frame, H2Origin, Options, code};
use weir_testkit::{Response, Weir, unused_address};

use crate::cause::GRPC_WEB_MALFORMED;
use crate::connect::breaks_off;

fn origin() -> Handle {
    let address = "127.0.0.1:0".parse().unwrap();
    Origin::start(OriginOptions { address, ..OriginOptions::default() }).unwrap()
}

fn weir(upstream: impl ToString) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\n\
         upstreams: {{ up: {{ protocol: h2c, endpoints: [ {} ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ grpc_web: {{}} }} ], upstream: up }} }}\n",
        upstream.to_string()
    ))
}

/// A call of the greeter with this type and body.
fn call(weir: &Weir, method: &str, media: &str, body: &[u8]) -> Response {
    let head = format!(
        "POST /helloworld.v1.Greeter/{method} HTTP/1.1\r\nHost: weir.test\r\nContent-Type: {media}\r\nX-Grpc-Web: 1\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    weir.client().ask([head.as_bytes(), body].concat())
}

const BINARY: &str = "application/grpc-web+proto";
const TEXT: &str = "application/grpc-web-text";

/// `name: "Ann"`, framed, and the same in base64.
const ANN: &[u8] = b"\0\0\0\0\x05\x0a\x03Ann";
const ANN_TEXT: &[u8] = b"AAAAAAUKA0Fubg==";

#[test]
fn a_call_whose_trailers_come_in_the_body() {
    let origin = origin();
    let weir = weir(origin.address());
    let answer = call(&weir, "SayHello", BINARY, ANN);
    answer.expect_status(200).expect_header("content-type", BINARY);
    let text = answer.text();
    let message = "\0\0\0\0\u{b}\n\thello Ann";
    assert!(text.starts_with(message), "{text:?}");
    assert!(text.contains("grpc-status: 0\r\n"), "{text:?}");
    // The same over HTTP/2: no trailers there either.
    let mut h2 = weir.h2();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/helloworld.v1.Greeter/SayHello"),
        (":authority", "weir.test"),
        ("content-type", BINARY),
    ];
    let stream = h2.request(&fields, false);
    h2.data(stream, ANN, true);
    let answer = h2.message(stream);
    answer.expect_status(200);
    assert!(answer.text().contains("grpc-status: 0\r\n"), "{:?}", answer.text());
    assert_eq!(answer.trailers, []);
}

#[test]
fn a_call_as_text() {
    let origin = origin();
    let weir = weir(origin.address());
    let answer = call(&weir, "SayHello", TEXT, ANN_TEXT);
    answer.expect_status(200).expect_header("content-type", TEXT);
    // The message in base64, then the trailers, in the same or another part.
    assert!(answer.text().starts_with("AAAAAAsKCWhlbGxvIEFub"), "{}", answer.text());
    let answer = call(&weir, "SayHello", TEXT, b"****");
    answer.expect_header("grpc-status", "13").expect_header("x-weir-cause", GRPC_WEB_MALFORMED.1);
}

#[test]
fn a_stream_and_a_failure() {
    let origin = origin();
    let weir = weir(origin.address());
    // Two replies.
    let answer = call(&weir, "LotsOfReplies", BINARY, b"\0\0\0\0\x05\x0a\x01a\x20\x02");
    let text = answer.text();
    assert_eq!(text.matches("hello").count(), 2, "{text:?}");
    // The call ends with NOT_FOUND, in the head or in the last frame.
    let answer = call(&weir, "SayHello", BINARY, b"\0\0\0\0\x02\x10\x05");
    let text = answer.text();
    assert!(answer.header("grpc-status") == Some("5") || text.contains("grpc-status: 5\r\n"), "{text:?}");
    // Nobody listens.
    let weir = self::weir(unused_address());
    let answer = call(&weir, "SayHello", BINARY, ANN);
    answer.expect_status(200).expect_header("grpc-status", "14").expect_header("content-type", BINARY);
}

/// A stream that breaks off ends with a trailer frame that says so.
#[test]
fn a_stream_that_is_cut_has_its_trailers() {
    for (resets, timeout, told) in [(false, "300m", "4"), (true, "5m", "4"), (true, "100S", "14")] {
        let upstream = breaks_off(false, resets);
        let weir = weir(upstream.address());
        for media in [BINARY, TEXT] {
            let body = if media == BINARY { ANN } else { ANN_TEXT };
            let head = format!(
                "POST /helloworld.v1.Greeter/LotsOfReplies HTTP/1.1\r\nHost: weir.test\r\nContent-Type: {media}\r\n\
                 Grpc-Timeout: {timeout}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let answer = weir.client().ask([head.as_bytes(), body].concat());
            answer.expect_status(200);
            let text = answer.text();
            // If not even its head had arrived by then, the answer is only the status.
            let in_head = answer.header("grpc-status") == Some(told);
            let in_frame = match media {
                BINARY => text.contains(&format!("grpc-status: {told}\r\n")),
                // `grpc-status: 4` and `grpc-status: 14`, after a flag and a length.
                _ => {
                    text.contains("Z3JwYy1zdGF0dXM6ID")
                        || text.contains("cnBjLXN0YXR1czog")
                        || text.contains("ycGMtc3RhdHVzOi")
                }
            };
            assert!(in_head || in_frame, "{media} {timeout} {text:?}");
        }
    }
}

#[test]
fn a_call_that_passes_as_it_is_is_cut_without_trailers() {
    let upstream = H2Origin::new(Options::default(), |peer, stream, _| {
        let head = [(":status", "200"), ("content-type", BINARY)];
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::data(stream, b"\0\0\0\0\x02x", false));
    });
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [h2] }} }}\n\
         upstreams: {{ up: {{ protocol: h2c, endpoints: [ {} ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }} }}\n",
        upstream.address()
    ));
    let mut h2 = weir.h2();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a.B/C"),
        (":authority", "weir.test"),
        ("content-type", BINARY),
        ("grpc-timeout", "300m"),
    ];
    let stream = h2.request(&fields, true);
    let answer = h2.message(stream);
    assert_eq!(answer.trailers, [], "a client of gRPC-Web reads none");
    answer.expect_reset(code::CANCEL);
}
