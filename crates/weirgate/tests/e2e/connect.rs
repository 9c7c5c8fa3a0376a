//! Connect clients for gRPC services: the filter `connect` in front of the built-in origin's greeter, and of
//! upstreams that misbehave. `conformance/connect.py` runs the protocol's official conformance tests.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_origin::{Handle, Options as OriginOptions, Origin};
use weir_testkit::h2::{Frame, H2, H2Origin, Message, Options, code};
use weir_testkit::{Client, Response, Weir, run_weir, unused_address};

use crate::cause::{
    CONNECT_MALFORMED, CONNECT_NO_METHOD, CONNECT_WRONG_METHOD, CONNECT_WRONG_TYPE, GRPC_NOT_DESCRIBED,
    GRPC_RESPONSE_MALFORMED,
};
use crate::grpc_json::peer;

/// The origin's greeter, with one method marked as having no side effects.
const PROTO: &str = r#"syntax = "proto3";
package helloworld.v1;
service Greeter {
  rpc SayHello(HelloRequest) returns (HelloReply) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc LotsOfReplies(HelloRequest) returns (stream HelloReply);
  rpc LotsOfGreetings(stream HelloRequest) returns (HelloReply);
  rpc BidiHello(stream HelloRequest) returns (stream HelloReply);
}
message HelloRequest { string name = 1; uint32 code = 2; uint32 delay_ms = 3; uint32 replies = 4; bool echo_metadata = 5; }
message HelloReply { string message = 1; repeated string metadata = 2; }
"#;

fn origin() -> Handle {
    let address = "127.0.0.1:0".parse().unwrap();
    Origin::start(OriginOptions { address, ..OriginOptions::default() }).unwrap()
}

/// A config whose catch-all route has these filters, and the folder of the proto; `PROTO` stands for the setting.
fn config(upstream: impl ToString, filters: &str) -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let proto = dir.path().join("greeter.proto");
    fs::write(&proto, PROTO).unwrap();
    let filters = filters.replace("PROTO", &format!("proto: [ {} ]", proto.display()));
    let config = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\n\
         upstreams: {{ up: {{ protocol: h2c, endpoints: [ {} ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
        upstream.to_string()
    );
    (dir, config)
}

fn weir(upstream: impl ToString, settings: &str) -> (TempDir, Weir) {
    let (dir, config) = config(upstream, &format!("{{ connect: {{ {settings} }} }}"));
    (dir, Weir::start(&config))
}

/// A call of the greeter with this type, fields and body.
fn call(weir: &Weir, method: &str, media: &str, fields: &str, body: &[u8]) -> Response {
    let head = format!(
        "POST /helloworld.v1.Greeter/{method} HTTP/1.1\r\nHost: weir.test\r\nContent-Type: {media}\r\n\
         Connect-Protocol-Version: 1\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    weir.client().ask([head.as_bytes(), body].concat())
}

/// Messages in envelopes; the last one is a flag and JSON.
fn envelopes(body: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = body;
    let mut all = Vec::new();
    while let Some(([flags, length @ ..], after)) = rest.split_first_chunk::<5>() {
        let (message, later) = after.split_at(u32::from_be_bytes(*length) as usize);
        all.push((*flags, message.to_vec()));
        rest = later;
    }
    assert!(rest.is_empty(), "{body:?}");
    all
}

/// The messages of a stream, and its end.
fn stream(body: &[u8]) -> (Vec<Vec<u8>>, Value) {
    let mut all = envelopes(body);
    let (flags, end) = all.pop().unwrap_or_else(|| panic!("no end"));
    assert_eq!(flags, 2, "{all:?} {end:?}");
    (all.into_iter().map(|(_, message)| message).collect(), serde_json::from_slice(&end).unwrap())
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

const UNARY: &str = "application/proto";
const JSON: &str = "application/json";
const STREAM: &str = "application/connect+proto";
const JSON_STREAM: &str = "application/connect+json";

/// `name: "Ann"`, and the greeter's answer.
const ANN: &[u8] = b"\x0a\x03Ann";
const HELLO: &[u8] = b"\x0a\x09hello Ann";

#[test]
fn a_unary_call_in_either_codec() {
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO");
    let answer = call(&weir, "SayHello", UNARY, "", ANN);
    answer.expect_status(200).expect_header("content-type", UNARY).expect_body(HELLO);
    answer.expect_no_header("grpc-status").expect_no_header("trailer");
    let answer = call(&weir, "SayHello", JSON, "", b"{\"name\":\"Ann\"}");
    answer.expect_status(200).expect_header("content-type", JSON);
    assert_eq!(answer.json(), json!({ "message": "hello Ann" }));
    // The service gets its own fields and the deadline, but none of the protocol's fields.
    let fields = "X-Tenant: 7\r\nConnect-Timeout-Ms: 5000\r\n";
    let answer = call(&weir, "SayHello", JSON, fields, b"{\"name\":\"Ann\",\"echoMetadata\":true}");
    let text = answer.expect_status(200).text();
    assert!(text.contains("x-tenant: 7") && text.contains("grpc-timeout: 5000m"), "{text}");
    assert!(!text.contains("connect-"), "{text}");
    // The same over HTTP/2: no trailers.
    let mut h2 = weir.h2();
    let answer = call_h2(&mut h2, "SayHello", UNARY, ANN);
    answer.expect_status(200).expect_body(HELLO);
    assert_eq!(answer.trailers, []);
}

fn call_h2(h2: &mut H2<Client>, method: &str, media: &str, body: &[u8]) -> Message {
    let path = format!("/helloworld.v1.Greeter/{method}");
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", &path),
        (":authority", "weir.test"),
        ("content-type", media),
    ];
    let stream = h2.request(&fields, false);
    h2.data(stream, body, true);
    h2.message(stream)
}

#[test]
fn failures_are_told_as_connect_tells_them() {
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO");
    for (code, status, name) in [(5, 404, "not_found"), (1, 499, "canceled"), (16, 401, "unauthenticated")] {
        let answer = call(&weir, "SayHello", UNARY, "", &[0x10_u8, code]);
        answer.expect_status(status).expect_header("content-type", JSON);
        assert_eq!(answer.json(), json!({ "code": name, "message": format!("code {code} was asked for") }));
    }
    let answer = call(&weir, "SayHello", UNARY, "Connect-Timeout-Ms: 50\r\n", b"\x18\xe0\xd4\x03");
    answer.expect_status(504);
    assert_eq!(answer.json()["code"], "deadline_exceeded");
    // Nobody listens: the gateway's own answer takes the same form.
    let (_dir, weir) = self::weir(unused_address(), "");
    let answer = call(&weir, "SayHello", UNARY, "", ANN);
    assert_eq!((answer.expect_status(503).json()["code"].as_str()), Some("unavailable"));
    answer.expect_header("x-weir-cause", "connect_refused");
    let (messages, end) = stream(&call(&weir, "LotsOfReplies", STREAM, "", &framed(ANN)).body.bytes);
    assert_eq!((messages.len(), end["error"]["code"].as_str()), (0, Some("unavailable")));
}

#[test]
fn strangers_get_neutral_words() {
    let (_dir, config) = config(unused_address(), "{ connect: {} }");
    let weir = Weir::start(&config.replace("expose_causes: true", "expose_causes: false"));
    for (media, status, code, words) in [
        (JSON, 415, "unknown", "The request could not be served."),
        (UNARY, 503, "unavailable", "The service gave no valid answer."),
    ] {
        let answer = call(&weir, "SayHello", media, "", b"");
        answer.expect_status(status).expect_no_header("x-weir-cause");
        let json = answer.json();
        assert_eq!((json["code"].as_str(), json["message"].as_str()), (Some(code), Some(words)));
        // A string of 32 digits as field 1.
        assert_eq!(json["details"][0]["type"], "google.rpc.RequestInfo", "{json}");
        let value = json["details"][0]["value"].as_str().unwrap();
        assert!(value.starts_with("Ci") && value.len() == 46, "{value}");
    }
}

#[test]
fn streams_in_either_codec() {
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO");
    let two = b"\x0a\x03Ann\x20\x02";
    let answer = call(&weir, "LotsOfReplies", STREAM, "", &framed(two));
    answer.expect_status(200).expect_header("content-type", STREAM);
    assert_eq!(stream(&answer.body.bytes), (vec![HELLO.to_vec(), HELLO.to_vec()], json!({})));
    let answer = call(
        &weir,
        "LotsOfReplies",
        JSON_STREAM,
        "",
        &framed(b"{\"name\":\"Ann\",\"replies\":2,\"code\":8}"),
    );
    answer.expect_status(200).expect_header("content-type", JSON_STREAM);
    let (messages, end) = stream(&answer.body.bytes);
    assert_eq!(messages, [b"{\"message\":\"hello Ann\"}", b"{\"message\":\"hello Ann\"}"]);
    assert_eq!(end["error"]["code"], "resource_exhausted");
    // Several requests, and all of them together.
    let names = [framed(b"{\"name\":\"a\"}"), framed(b"{\"name\":\"b\"}")].concat();
    let (messages, _) = stream(&call(&weir, "LotsOfGreetings", JSON_STREAM, "", &names).body.bytes);
    assert_eq!(messages, [b"{\"message\":\"hello a, b\"}"]);
    let mut h2 = weir.h2();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/helloworld.v1.Greeter/BidiHello"),
        (":authority", "weir.test"),
        ("content-type", JSON_STREAM),
    ];
    let id = h2.request(&fields, false);
    h2.data(id, framed(b"{\"name\":\"a\"}"), false);
    let first = framed(b"{\"message\":\"hello a\"}");
    h2.wait(id, "the first reply", |m| m.body == first);
    h2.data(id, framed(b"{\"name\":\"b\"}"), true);
    let answer = h2.message(id);
    assert_eq!(stream(&answer.body).0.len(), 2, "{:?}", answer.text());
    // A message that does not fit ends the stream.
    let (messages, end) =
        stream(&call(&weir, "LotsOfReplies", JSON_STREAM, "", &framed(b"{\"name\":1}")).body.bytes);
    assert_eq!((messages.len(), end["error"]["code"].as_str()), (0, Some("invalid_argument")));
}

/// A service that starts a stream with a whole or half a message, and then stays silent or resets it.
pub(crate) fn breaks_off(half: bool, resets: bool) -> H2Origin {
    H2Origin::new(Options::default(), move |peer, stream, _| {
        let head = [(":status", "200"), ("content-type", "application/grpc")];
        peer.send(&Frame::headers(stream, &head, false));
        let message = framed(HELLO);
        let cut = if half { message.len() - 2 } else { message.len() };
        peer.send(&Frame::data(stream, &message[..cut], false));
        if resets {
            peer.reset(stream, code::CANCEL);
        }
    })
}

/// A stream that breaks off ends with a message that says so. The cause is its client's deadline, or the service's
/// reset, at the deadline or long before. Whether its first message has arrived by then depends on timing.
#[test]
fn a_stream_that_is_cut_has_an_end() {
    let late = "Connect-Timeout-Ms: 300\r\n";
    let at_once = "Connect-Timeout-Ms: 5\r\n"; // so short that any reset is due to it
    for (resets, fields, told) in
        [(false, late, "deadline_exceeded"), (true, at_once, "deadline_exceeded"), (true, "", "unavailable")]
    {
        let upstream = breaks_off(false, resets);
        let (_dir, weir) = weir(upstream.address(), "PROTO");
        for media in [STREAM, JSON_STREAM] {
            let message: &[u8] = if media == STREAM { ANN } else { b"{\"name\":\"Ann\"}" };
            let answer = call(&weir, "LotsOfReplies", media, fields, &framed(message));
            let (messages, end) = stream(&answer.expect_status(200).body.bytes);
            assert!(messages.len() <= 1, "{messages:?}");
            assert_eq!(end["error"]["code"], told, "{media} {fields} {end}");
        }
        let mut h2 = weir.h2();
        let path = "/helloworld.v1.Greeter/LotsOfReplies";
        let mut head = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "weir.test"),
            ("content-type", STREAM),
        ];
        let timeout = fields.trim().rsplit(' ').next().filter(|_| !fields.is_empty());
        head.extend(timeout.map(|ms| ("connect-timeout-ms", ms)));
        let id = h2.request(&head, false);
        h2.data(id, framed(ANN), true);
        let answer = h2.message(id);
        assert_eq!(stream(&answer.body).1["error"]["code"], told, "by HTTP/2");
    }
}

/// Data after half a message would be read as the rest of it.
#[test]
fn a_stream_that_is_cut_in_a_message_is_cut() {
    let upstream = breaks_off(true, false);
    let (_dir, weir) = weir(upstream.address(), "PROTO");
    let ask = |media: &str, message: &[u8]| {
        let body = framed(message);
        let head = format!(
            "POST /helloworld.v1.Greeter/LotsOfReplies HTTP/1.1\r\nHost: weir.test\r\nContent-Type: {media}\r\n\
             Connect-Timeout-Ms: 300\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = weir.client();
        client.send([head.as_bytes(), &body].concat());
        client.try_read_response()
    };
    if let Ok(whole) = ask(STREAM, ANN) {
        assert_eq!(stream(&whole.body.bytes).0.len(), 0, "not even its head had come by then");
    }
    // In JSON nothing of it was sent, so the end message follows.
    let none = ask(JSON_STREAM, b"{\"name\":\"Ann\"}").ok().unwrap();
    let (messages, end) = stream(&none.body.bytes);
    assert_eq!((messages.len(), end["error"]["code"].as_str()), (0, Some("deadline_exceeded")));
}

#[test]
fn a_call_by_get_is_kept_by_a_cache() {
    let upstream = H2Origin::new(Options::default(), |peer, stream, request| {
        assert_eq!(request.header(":method"), Some("POST"));
        let head =
            [(":status", "200"), ("content-type", "application/grpc"), ("cache-control", "max-age=60")];
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::data(stream, framed(HELLO), false));
        peer.send(&Frame::headers(stream, &[("grpc-status", "0"), ("x-cost", "7")], true));
    });
    let (_dir, config) = config(upstream.address(), "{ cache: { store: pages } }, { connect: { PROTO } }");
    let weir = Weir::start(&format!("{config}stores: {{ pages: {{ memory: 64MiB }} }}\n"));
    let path =
        "/helloworld.v1.Greeter/SayHello?connect=v1&encoding=json&message=%7B%22name%22%3A%22Ann%22%7D";
    for is_kept in [false, true] {
        let answer = weir.client().get(path);
        answer.expect_status(200).expect_header("content-type", JSON).expect_header("trailer-x-cost", "7");
        assert_eq!(answer.json(), json!({ "message": "hello Ann" }));
        assert_eq!(answer.header("age").is_some(), is_kept, "the second one comes from the cache");
    }
    let base64 = "/helloworld.v1.Greeter/SayHello?connect=v1&encoding=proto&base64=1&message=CgNBbm4";
    weir.client().get(base64).expect_status(200).expect_header("content-type", UNARY).expect_body(HELLO);
    weir.client()
        .get("/helloworld.v1.Greeter/LotsOfReplies?connect=v1&encoding=proto&message=")
        .expect_cause(CONNECT_WRONG_METHOD)
        .expect_header("allow", "POST");
}

#[test]
fn what_is_wrong_with_a_call() {
    let (_dir, weir) = weir(unused_address(), "PROTO, limits: { message: 1KiB }");
    call(&weir, "SayHello", JSON, "", b"{").expect_cause(CONNECT_MALFORMED);
    call(&weir, "SayHello", UNARY, "Connect-Timeout-Ms: soon\r\n", b"").expect_cause(CONNECT_MALFORMED);
    call(&weir, "Nope", UNARY, "", b"").expect_cause(CONNECT_NO_METHOD);
    call(&weir, "SayHello", "application/foo", "", b"").expect_cause(CONNECT_WRONG_TYPE).expect_header(
        "accept-post",
        "application/proto, application/json, application/connect+proto, application/connect+json",
    );
    let long = call(&weir, "SayHello", UNARY, "", &[0; 2000]);
    assert_eq!(long.expect_status(429).json()["code"], "resource_exhausted");
    let blind = self::weir(unused_address(), "").1;
    call(&blind, "SayHello", JSON, "", b"{}").expect_cause(CONNECT_WRONG_TYPE);
    let silent = self::weir(unused_address(), "reflection: true").1;
    call(&silent, "SayHello", JSON, "", b"{}").expect_cause(GRPC_NOT_DESCRIBED);
}

#[test]
fn compression_is_translated() {
    use std::io::Write;
    let zip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let hello = zip(HELLO);
    let upstream = H2Origin::new(Options::default(), move |peer, stream, request| {
        assert_eq!(request.header("grpc-accept-encoding"), Some("gzip"));
        let sent = if request.header("grpc-encoding").is_some() { "yes" } else { "no" };
        let head = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-encoding", "gzip"),
            ("x-compressed", sent),
            ("x-flag", if request.body.first() == Some(&1) { "1" } else { "0" }),
        ];
        peer.send(&Frame::headers(stream, &head, false));
        let mut body = framed(&hello);
        body[0] = 1;
        peer.send(&Frame::data(stream, body, false));
        peer.send(&Frame::headers(stream, &[("grpc-status", "0")], true));
    });
    let (_dir, weir) = weir(upstream.address(), "PROTO");
    let fields = "Content-Encoding: gzip\r\nAccept-Encoding: gzip\r\n";
    let answer = call(&weir, "SayHello", UNARY, fields, &zip(ANN));
    answer.expect_status(200).expect_header("content-encoding", "gzip").expect_body(zip(HELLO));
    answer.expect_header("x-compressed", "yes").expect_header("x-flag", "1");
    let answer = call(&weir, "SayHello", JSON, fields, &zip(b"{\"name\":\"Ann\"}"));
    assert_eq!(answer.expect_status(200).json(), json!({ "message": "hello Ann" }));
    answer.expect_no_header("content-encoding").expect_header("x-flag", "0");
    let fields = "Connect-Accept-Encoding: gzip\r\n";
    let answer = call(&weir, "LotsOfReplies", STREAM, fields, &framed(ANN));
    answer.expect_status(200).expect_header("connect-content-encoding", "gzip");
    assert_eq!(envelopes(&answer.body.bytes)[0], (1, zip(HELLO)));
    let (messages, _) = stream(&call(&weir, "LotsOfReplies", JSON_STREAM, "", &framed(b"{}")).body.bytes);
    assert_eq!(messages, [b"{\"message\":\"hello Ann\"}"]);
}

#[test]
fn answers_that_are_none() {
    const FINE: &[(&str, &str)] = &[("grpc-status", "0")];
    for (what, body, trailers) in [
        ("no status", &b"\0\0\0\0\0"[..], &[][..]),
        ("no message", b"", FINE),
        ("two messages", b"\0\0\0\0\0\0\0\0\0\0", FINE),
        ("cut", b"\0\0\0\0\x05abc", FINE),
        ("compressed", b"\x01\0\0\0\x01x", FINE),
        ("a length that lies", b"\0\xff\xff\xff\xff", FINE),
    ] {
        let upstream = peer(body, trailers);
        let (_dir, weir) = weir(upstream.address(), "");
        let answer = call(&weir, "SayHello", UNARY, "", ANN);
        assert_eq!(answer.status, 500, "{what}: {}", answer.text());
        assert_eq!(answer.header("x-weir-cause"), Some(GRPC_RESPONSE_MALFORMED.1), "{what}");
        assert_eq!(answer.json()["code"], "internal", "{what}");
    }
    let html = H2Origin::fixed("<html>");
    let (_dir, weir) = weir(html.address(), "");
    assert_eq!(call(&weir, "SayHello", UNARY, "", ANN).expect_status(500).json()["code"], "unknown");
}

#[test]
fn all_protocols_on_one_route() {
    let origin = origin();
    let filters = "{ grpc_web: {} }, { connect: { reflection: true } }, \
                   { grpc_json: { reflection: true, unannotated: true } }";
    let (dir, config) = config(origin.address(), filters);
    let weir = Weir::start(&config);
    let ask = |media: &str, fields: &str, body: &[u8]| {
        let head = format!(
            "POST /helloworld.v1.Greeter/SayHello HTTP/1.1\r\nHost: weir.test\r\nContent-Type: {media}\r\n{fields}Content-Length: {}\r\n\r\n",
            body.len()
        );
        weir.client().ask([head.as_bytes(), body].concat())
    };
    ask(UNARY, "Connect-Protocol-Version: 1\r\n", ANN).expect_status(200).expect_body(HELLO);
    let json = ask(JSON, "Connect-Protocol-Version: 1\r\n", b"{\"name\":\"Ann\"}");
    assert_eq!(json.expect_status(200).json(), json!({ "message": "hello Ann" }));
    let web = ask("application/grpc-web+proto", "", &framed(ANN));
    assert!(web.expect_status(200).text().contains("grpc-status: 0\r\n"), "{}", web.text());
    let mut h2 = weir.h2();
    let answer = call_h2(&mut h2, "SayHello", "application/grpc", &framed(ANN));
    answer.expect_status(200).expect_body(framed(HELLO));
    let proto = format!("proto: [ {} ]", dir.path().join("greeter.proto").display());
    let told = config.replacen("reflection: true }", &format!("{proto} }}"), 1);
    fs::write(dir.path().join("weir.yaml"), told).unwrap();
    run_weir(dir.path(), &["explain", "-c", "weir.yaml", "POST", "/helloworld.v1.Greeter/SayHello"])
        .expect_code(0)
        .expect_text("a Connect call of /helloworld.v1.Greeter/SayHello is forwarded as gRPC, also by GET");
}
