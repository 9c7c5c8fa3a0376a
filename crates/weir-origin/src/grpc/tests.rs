//! Calls by a client of the crate `h2`: messages in, messages and trailers out.

use super::*;
use crate::{Handle, Options, Origin};
use http::StatusCode;

/// The result of a call.
#[derive(Debug)]
struct Answer {
    messages: Vec<Vec<u8>>,
    status: String,
    text: String,
}

fn frame(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// Sends the request with this body; returns head, body and trailers of the response.
async fn ask(origin: &Handle, request: Request<()>, body: Vec<u8>) -> (Response<()>, Vec<u8>, HeaderMap) {
    let socket = tokio::net::TcpStream::connect(origin.address()).await.unwrap();
    let (mut send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let (response, mut stream) = send.send_request(request, false).unwrap();
    stream.send_data(body.into(), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        all.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    (Response::from_parts(head, ()), all, trailers)
}

async fn call(origin: &Handle, path: &str, fields: &[(&'static str, &str)], body: Vec<u8>) -> Answer {
    let mut request = Request::post(format!("http://origin{path}")).body(()).unwrap();
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    for (name, value) in fields {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let (head, body, trailers) = ask(origin, request, body).await;
    assert_eq!(
        (head.status(), head.headers()["content-type"].as_bytes()),
        (StatusCode::OK, &b"application/grpc"[..])
    );
    let (mut rest, mut messages) = (&body[..], Vec::new());
    while let Some(header) = rest.first_chunk::<5>() {
        let len = u32::from_be_bytes(*header[1..].first_chunk().unwrap()) as usize;
        messages.push(rest[5..5 + len].to_vec());
        rest = &rest[5 + len..];
    }
    let said = if trailers.is_empty() { head.headers() } else { &trailers };
    let text = |name| said.get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    Answer { messages, status: text("grpc-status"), text: text("grpc-message") }
}

/// A framed `HelloRequest`.
fn hello(name: &str, code: u64, delay_ms: u64, replies: u64) -> Vec<u8> {
    let mut message = Vec::new();
    wire::bytes(1, name.as_bytes(), &mut message);
    for (field, n) in [(2, code), (3, delay_ms), (4, replies)] {
        wire::number(field, n, &mut message);
    }
    frame(&message)
}

fn text(message: &[u8]) -> String {
    let mut all = Vec::new();
    wire::read(message, |_, value| all.push(value.text())).unwrap();
    all.join(" ")
}

fn run(test: impl AsyncFnOnce(&Handle)) {
    let origin = Origin::start(Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test(&origin));
}

#[test]
fn the_four_kinds_of_calls() {
    run(async |origin| {
        let two = [hello("Ann", 0, 0, 2), hello("Bo", 0, 0, 0)].concat();
        for (method, body, want) in [
            ("SayHello", hello("Ann", 0, 0, 0), &["hello Ann"][..]),
            ("LotsOfReplies", hello("Ann", 0, 0, 2), &["hello Ann", "hello Ann"]),
            ("LotsOfGreetings", two.clone(), &["hello Ann, Bo"]),
            ("BidiHello", two, &["hello Ann", "hello Ann", "hello Bo"]),
            ("BidiHello", Vec::new(), &[]),
        ] {
            let answer = call(origin, &format!("/helloworld.v1.Greeter/{method}"), &[], body).await;
            let messages: Vec<String> = answer.messages.iter().map(|m| text(m)).collect();
            assert_eq!(
                (&messages[..], answer.status.as_str()),
                (&want.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..], "0"),
                "{method}"
            );
        }
    });
}

#[test]
fn statuses_deadlines_and_what_is_wrong() {
    run(async |origin| {
        let say = "/helloworld.v1.Greeter/SayHello";
        let slow = hello("A", 0, 60_000, 0);
        let cut = frame(b"x")[..4].to_vec();
        for (path, fields, body, status, words) in [
            (say, &[][..], hello("A", 14, 0, 0), "14", "code 14 was asked for"),
            (say, &[("grpc-timeout", "10m")], slow, "4", "deadline exceeded"),
            (say, &[("grpc-timeout", "soon")], hello("A", 0, 0, 0), "13", "grpc-timeout is not a timeout"),
            (say, &[], Vec::new(), "13", "a call without its message"),
            (say, &[], [hello("A", 0, 0, 0), hello("A", 0, 0, 0)].concat(), "13", "more messages than one"),
            (say, &[], cut, "13", "the last message is cut"),
            (say, &[], vec![1, 0, 0, 0, 0], "12", "the origin reads no compressed messages"),
            (say, &[], vec![0, 255, 0, 0, 0], "8", "a message is larger than 4 MiB"),
            (say, &[], frame(&[8]), "3", "the message is not Protocol Buffers"),
            ("/a.B/C%", &[], hello("A", 0, 0, 0), "12", "the origin has no method /a.B/C%25"),
        ] {
            let answer = call(origin, path, fields, body).await;
            assert_eq!((answer.status.as_str(), answer.text.as_str()), (status, words), "{path} {fields:?}");
        }
    });
}

#[test]
fn metadata_is_told() {
    run(async |origin| {
        let mut message = Vec::new();
        wire::number(5, 1, &mut message);
        let fields = [("x-a", "b"), ("x-a", "c")];
        let answer = call(origin, "/helloworld.v1.Greeter/SayHello", &fields, frame(&message)).await;
        assert!(text(&answer.messages[0]).ends_with("x-a: b x-a: c"), "{answer:?}");
    });
}

#[test]
fn health_and_reflection() {
    run(async |origin| {
        let mut greeter = Vec::new();
        wire::bytes(1, b"helloworld.v1.Greeter", &mut greeter);
        let check = "/grpc.health.v1.Health/Check";
        let answer = call(origin, check, &[], frame(&greeter)).await;
        assert_eq!((answer.messages[0].as_slice(), answer.status.as_str()), (&[8, 1][..], "0"));
        let answer = call(origin, check, &[], frame(&[10, 1, b'x'])).await;
        assert_eq!((answer.status.as_str(), answer.text.as_str()), ("5", "the origin has no service x"));
        // Watch stays open until the deadline ends it.
        let timeout = [("grpc-timeout", "20m")];
        let answer = call(origin, "/grpc.health.v1.Health/Watch", &timeout, frame(&[10, 1, b'x'])).await;
        assert_eq!((answer.messages[0].as_slice(), answer.status.as_str()), (&[8, 3][..], "4"));

        let ask = |field: u64, what: &str| {
            let mut message = Vec::new();
            wire::bytes(field, what.as_bytes(), &mut message);
            frame(&message)
        };
        let body = [ask(7, ""), ask(4, "helloworld.v1.Greeter"), ask(3, "no.proto"), frame(&[])].concat();
        for version in ["v1", "v1alpha"] {
            let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
            let answer = call(origin, &path, &[], body.clone()).await;
            let kinds: Vec<u64> = answer
                .messages
                .iter()
                .map(|m| {
                    let mut last = 0;
                    wire::read(m, |field, _| last = field).unwrap();
                    last
                })
                .collect();
            assert_eq!((kinds, answer.status.as_str()), (vec![6, 4, 7, 7], "0"));
        }
    });
}

#[test]
fn pages_over_http2_are_those_of_http1() {
    run(async |origin| {
        for (method, path, status, body) in [
            ("GET", "/body/5", 200, "xxxxx"),
            ("HEAD", "/body/5", 200, ""),
            ("GET", "/chunked/3", 200, "xxx"),
            ("GET", "/status/503", 503, "503 Service Unavailable\n"),
            ("PUT", "/upload", 200, "{\"length\":9,\"crc32\":\"cbf43926\"}\n"),
            ("GET", "/api/v1/helloworld/Bo%20B", 200, "{\"message\":\"hello Bo B\"}"),
        ] {
            let request = Request::builder().method(method).uri(format!("http://o{path}")).body(()).unwrap();
            let (head, got, _) = ask(origin, request, b"123456789".to_vec()).await;
            assert_eq!(
                (head.status().as_u16(), String::from_utf8_lossy(&got)),
                (status, body.into()),
                "{path}"
            );
        }
        let request = Request::get("http://o/echo").header("x-a", "b").body(()).unwrap();
        let (_, got, _) = ask(origin, request, b"hi".to_vec()).await;
        assert_eq!(
            String::from_utf8(got).unwrap(),
            "{\"method\":\"GET\",\"target\":\"/echo\",\"version\":\"HTTP/2\",\"headers\":[[\":authority\",\"o\"],\
             [\"x-a\",\"b\"]],\"body_length\":2,\"body\":\"hi\"}\n"
        );
        let request = Request::get("http://o/body/1MiB").body(()).unwrap();
        let (head, got, _) = ask(origin, request, Vec::new()).await;
        assert_eq!(
            (&head.headers()["content-length"], got.len()),
            (&HeaderValue::from_static("1048576"), 1 << 20)
        );
    });
}

#[test]
fn a_call_that_waits_for_the_clients_window_has_its_deadline() {
    run(async |origin| {
        let socket = tokio::net::TcpStream::connect(origin.address()).await.unwrap();
        let (mut send, connection) =
            h2::client::Builder::new().initial_window_size(4).handshake::<_, Bytes>(socket).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post("http://origin/helloworld.v1.Greeter/SayHello").body(()).unwrap();
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert("grpc-timeout", HeaderValue::from_static("50m"));
        let (response, mut stream) = send.send_request(request, false).unwrap();
        stream.send_data(hello("Ann", 0, 0, 0).into(), true).unwrap();
        let (_, mut body) = response.await.unwrap().into_parts();
        assert_eq!(body.data().await.unwrap().unwrap().len(), 4); // the window stays closed
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "4", "{trailers:?}");
    });
}
