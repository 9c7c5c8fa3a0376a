//! The load tester over gRPC: to the origin, to a peer that the test plays, and through the gateway.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use weir_origin::{Origin, Tls};
use weir_report::Report;
use weir_report::report::{CallKind, Grade};
use weir_testkit::h2::{Frame, H2Origin, Message, Options};
use weir_testkit::{Authority, Finished, ServerTls, Upstream, Weir, refusing_address, run_weir};

use super::{expect_reason, load, origin, report};
use crate::support::{ALL_TO_UP, OK_BODY};

/// The folder of `greeter.proto`.
const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-origin/proto");

/// A method of the origin's greeter.
fn greeter(http: &str, method: &str) -> String {
    format!("{}/helloworld.v1.Greeter/{method}", http.replace("http://", "grpc://"))
}

fn codes(report: &Report) -> Vec<(&str, u64)> {
    report.counts.grpc.iter().map(|(code, n)| (code.as_str(), *n)).collect()
}

/// Answers calls with this body, then ends them with these trailers.
fn peer(body: &'static [u8], trailers: &'static [(&str, &str)]) -> H2Origin {
    H2Origin::new(Options::default(), move |peer, stream, _| {
        let head = [(":status", "200"), ("content-type", "application/grpc+proto")];
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::data(stream, body, trailers.is_empty()));
        if !trailers.is_empty() {
            peer.send(&Frame::headers(stream, trailers, true));
        }
    })
}

fn sayhello(peer: &H2Origin) -> String {
    greeter(&format!("http://{}", peer.address()), "SayHello")
}

/// Runs `weir load` with the greeter's file and these arguments.
#[track_caller]
fn with_proto(args: &[&str]) -> Report {
    let file = format!("{PROTO}/greeter.proto");
    report(&[&["--proto", &file], args].concat())
}

#[test]
fn the_four_kinds_of_calls_by_reflection() {
    let (_origin, http) = origin("");
    for (method, kind, data, sent, received, check) in [
        ("SayHello", CallKind::Unary, r#"{"name":"Ann"}"#, 1, 1, "json:$.message=hello Ann"),
        (
            "LotsOfReplies",
            CallKind::ServerStreaming,
            r#"{"name":"Ann","replies":4}"#,
            1,
            4,
            "json:$[3].message=hello Ann",
        ),
        (
            "LotsOfGreetings",
            CallKind::ClientStreaming,
            r#"[{"name":"Ann"},{"name":"Bo"}]"#,
            2,
            1,
            "json:$.message=hello Ann, Bo",
        ),
        (
            "BidiHello",
            CallKind::Bidirectional,
            "{\"name\":\"Ann\"}\n{\"name\":\"Bo\",\"replies\":2}",
            2,
            3,
            "json:$[2].message=hello Bo",
        ),
    ] {
        let url = greeter(&http, method);
        let args = ["-n30", "-c2", "-m3", "--data", data, "--check", check, "--check", "grpc=OK", &url];
        let r = report(&args);
        assert_eq!((codes(&r), r.counts.messages), (vec![("OK", 30)], 30 * received), "{method}: {r:#?}");
        assert_eq!((r.counts.failed_checks, r.counts.errors.total()), (0, 0), "{method}: {:?}", r.checks);
        let call = r.plan.targets[0].call.as_ref().unwrap();
        assert_eq!((call.kind, call.messages, call.schema.as_str()), (kind, sent, "reflection v1"));
        assert_eq!((r.plan.targets[0].scheme.as_str(), r.ledger.protocols["HTTP/2"]), ("grpc", 30));
        assert_eq!(r.ledger.content_type.as_deref(), Some("application/grpc"));
    }
}

/// A bytes field in Protocol Buffers.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len >= 128 {
        out.push((len & 127) as u8 | 128);
        len >>= 7;
    }
    out.push(len as u8);
    [&out[..], bytes].concat()
}

/// The separate files of a descriptor set: its fields 1.
fn files(mut set: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while set.first() == Some(&0x0a) {
        let (mut len, mut at, mut shift) = (0, 1, 0);
        loop {
            len |= usize::from(set[at] & 127) << shift;
            (at, shift) = (at + 1, shift + 7);
            if set[at - 1] & 128 == 0 {
                break;
            }
        }
        all.push(set[at..at + len].to_vec());
        set = &set[at + len..];
    }
    all
}

#[test]
fn an_older_reflection_is_asked_for_each_file() {
    let dir = TempDir::new().unwrap();
    let service =
        "syntax = \"proto3\"; package a.v1; import \"m.proto\"; service S { rpc Do(m.M) returns (m.M); }";
    let message = "syntax = \"proto3\"; package m; import \"google/protobuf/timestamp.proto\";\
                   message M { string s = 1; google.protobuf.Timestamp at = 2; }";
    std::fs::write(dir.path().join("s.proto"), service).unwrap();
    std::fs::write(dir.path().join("m.proto"), message).unwrap();
    let mut compiler = protox::Compiler::new([dir.path()]).unwrap();
    let mut set = |name: &str| {
        compiler.open_file(name).unwrap();
        files(&compiler.encode_file_descriptor_set())
    };
    let (m, s) = (set("m.proto").remove(0), set("s.proto").pop().unwrap());
    let target = H2Origin::new(Options::default(), move |peer, stream, request| {
        let head = [(":status", "200"), ("content-type", "application/grpc")];
        let path = request.header(":path").unwrap();
        if path == "/a.v1.S/Do" {
            peer.send(&Frame::headers(stream, &head, false));
            peer.send(&Frame::data(stream, &request.body, false));
            return peer.send(&Frame::headers(stream, &[("grpc-status", "0")], true));
        }
        if !path.starts_with("/grpc.reflection.v1alpha.") {
            return peer.send(&Frame::headers(stream, &[&head[..], &[("grpc-status", "12")]].concat(), true));
        }
        // A frame has one field, whose number identifies the question.
        let reply = match (request.body[5] >> 3, &request.body[7..]) {
            (3, b"m.proto") => field(4, &field(1, &m)),
            (4, b"a.v1.S") => field(4, &field(1, &s)),
            (7, _) => field(6, &field(1, &field(1, b"a.v1.S"))),
            other => panic!("{other:?}"),
        };
        let reply = [&[0], &(reply.len() as u32).to_be_bytes()[..], &reply].concat();
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::data(stream, reply, false));
        peer.send(&Frame::headers(stream, &[("grpc-status", "0")], true));
    });
    let url = format!("grpc://{}/a.v1.S/Do", target.address());
    let data = r#"{"s":"x","at":"2026-11-21T00:00:00Z"}"#;
    let r = report(&["-n3", "-c1", "--data", data, "--check", "json:$.at=2026-11-21T00:00:00Z", &url]);
    assert_eq!((codes(&r), r.counts.failed_checks), (vec![("OK", 3)], 0), "{r:#?}");
    assert_eq!(r.plan.targets[0].call.as_ref().unwrap().schema, "reflection v1alpha");
    target.verify();
}

#[test]
fn a_call_is_what_was_asked_for() {
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let all = Arc::clone(&seen);
    let peer = H2Origin::new(Options::default(), move |peer, stream, request| {
        all.lock().unwrap().push(request);
        let head = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")];
        peer.send(&Frame::headers(stream, &head, true));
    });
    let set = TempDir::new().unwrap();
    let file = set.path().join("greeter.binpb");
    let mut compiler = protox::Compiler::new([PROTO]).unwrap();
    let bytes =
        compiler.include_imports(true).open_file("greeter.proto").unwrap().encode_file_descriptor_set();
    std::fs::write(&file, bytes).unwrap();
    let url = greeter(&format!("http://{}", peer.address()), "LotsOfReplies");
    let args = [
        "-n1",
        "--protoset",
        file.to_str().unwrap(),
        "--data",
        r#"{"name":"hi","echoMetadata":true}"#,
        "--metadata",
        "X-A: b",
        "--metadata",
        "key-bin: AQI=",
        "--bearer",
        "secret",
        "--timeout",
        "1500ms",
        &url,
    ];
    let r = report(&args);
    let request = seen.lock().unwrap().remove(0);
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/helloworld.v1.Greeter/LotsOfReplies"),
        (":authority", &peer.address().to_string()),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", "1500000u"),
        ("x-a", "b"),
        ("key-bin", "AQI="),
        ("authorization", "Bearer secret"),
    ] {
        request.expect_header(name, value);
    }
    request.expect_no_header("content-length").expect_body(b"\0\0\0\0\x06\x0a\x02hi\x28\x01");
    assert_eq!((codes(&r), r.counts.messages, r.bytes.sent_body), (vec![("OK", 1)], 0, 11));
    assert_eq!(
        (r.bytes.sent(), r.ledger.first_request_bytes),
        (r.ledger.first_request_bytes, r.bytes.sent())
    );
    assert_eq!(r.plan.targets[0].call.as_ref().unwrap().schema, file.display().to_string());
    assert!(!serde_json::to_string(&r).unwrap().contains("Bearer secret"), "a token in the report");
}

#[test]
fn metadata_arrives_also_through_the_gateway() {
    let (_origin, http) = origin("");
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [h2] }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}], protocol: h2c }} }}\n{ALL_TO_UP}\n",
        http.strip_prefix("http://").unwrap()
    ));
    let gateway = format!("http://{}", weir.address("web"));
    for target in [&http, &gateway] {
        let echo = r#"{"name":"Ann","echo_metadata":true}"#;
        let url = greeter(target, "SayHello");
        let args =
            ["-n20", "-c2", "-m2", "--metadata", "x-a: b", "--check", "body~\"x-a: b\"", "--data", echo];
        let r = report(&[&args[..], &[&url]].concat());
        assert_eq!((codes(&r), r.counts.failed_checks), (vec![("OK", 20)], 0), "{r:#?}");
    }
    for (method, messages) in [("LotsOfReplies", 60), ("LotsOfGreetings", 20), ("BidiHello", 20)] {
        let r = report(&["-n20", "-c2", "-m2", "--data", r#"{"name":"Ann"}"#, &greeter(&gateway, method)]);
        assert_eq!((codes(&r), r.counts.messages), (vec![("OK", 20)], messages), "{method}: {r:#?}");
    }
    let r = report(&["-n9", "-c3", "--data", r#"{"code":9}"#, &greeter(&gateway, "SayHello")]);
    assert_eq!(codes(&r), [("FailedPrecondition", 9)]);
}

#[test]
fn codes_are_counted_checked_and_judged() {
    let (_origin, http) = origin("");
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("codes.csv"), "code\n0\n14\n0\n0\n").unwrap();
    let url = greeter(&http, "SayHello");
    let run = |args: &[&str]| -> Finished {
        let all = [
            "load",
            "-n40",
            "-c2",
            "--threads=1",
            "--feed",
            "codes.csv",
            "--data",
            "{\"code\":{{data.code}}}",
        ];
        run_weir(dir.path(), &[&all, args, &[&url]].concat())
    };
    let save = run(&["--save", "run.json", "--check", "grpc=OK", "--threshold", "errors<10%"]);
    save.expect_code(1).expect_text("gRPC         OK: 30   Unavailable: 10   in 30 messages");
    save.expect_text("errors                    0   and 10 responses with a code that is not OK");
    save.expect_text("rpc error: code = Unavailable desc = code 14 was asked for");
    save.expect_text("check        FAILED grpc=OK: 30 of 40");
    let r: Report =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("run.json")).unwrap()).unwrap();
    assert_eq!((r.counts.responses, r.failed(), r.latency.service_unexpected.count()), (40, 10, 10));
    run_weir(dir.path(), &["report", "run.json", "--verify"]).expect_code(0);
    run(&["--threshold", "errors<=25%", "--check", "grpc=ok,UNAVAILABLE"]).expect_code(0);
    run(&["--format", "ghz"])
        .expect_text("  [OK]            30 responses")
        .expect_text("  [10]   rpc error: code = Unavailable desc = code 14 was asked for");
    run_weir(dir.path(), &["report", "run.json", "--format", "html"]).expect_text("unary call grpc://");

    let r = report(&["-n4", "-c2", "--data", r#"{"code":5}"#, &url]);
    expect_reason(&r, "mostly_refused", Grade::Invalid);
    let r = report(&["-n4", "-c2", "--data", r#"{"code":5}"#, "--check", "grpc=NotFound", &url]);
    assert!(!r.verdict.reasons.iter().any(|r| r.code == "mostly_refused"), "{:?}", r.verdict);
}

#[test]
fn a_deadline_is_told_and_kept() {
    let (_origin, http) = origin("");
    let slow = r#"{"name":"Ann","delay_ms":60000}"#;
    let url = greeter(&http, "SayHello");
    let finished =
        load(&["-n6", "-c2", "-m3", "--timeout", "150ms", "--data", slow, "--format", "ghz", &url]);
    // Reported by the origin, or by us if the origin is slower.
    finished.expect_text("[DeadlineExceeded]   6 responses");
}

#[test]
fn what_is_no_grpc_is_noticed() {
    let web = H2Origin::fixed("hello");
    let r = with_proto(&["-n4", "-c1", &sayhello(&web)]);
    assert_eq!((codes(&r), r.counts.not_grpc), (vec![("Unknown", 4)], 4), "{:?}", r.counts);
    expect_reason(&r, "not_grpc", Grade::Invalid);

    let busy = H2Origin::new(Options::default(), |peer, stream, _| {
        peer.answer(stream, &[(":status", "503"), ("content-type", "text/html")], "busy");
    });
    let r = with_proto(&["-n4", "-c1", &sayhello(&busy)]);
    assert_eq!((codes(&r), r.counts.not_grpc), (vec![("Unavailable", 4)], 4));
    let reason = r.verdict.reasons.iter().find(|r| r.code == "not_grpc").unwrap();
    assert!(reason.text.contains("(HTTP statuses 503: 4)"), "{reason:?}");

    // A proxy that drops trailers.
    let cut = peer(b"\0\0\0\0\0", &[]);
    let r = with_proto(&["-n4", "-c1", &sayhello(&cut)]);
    assert_eq!((codes(&r), r.counts.not_grpc), (vec![("Internal", 4)], 4));
    assert!(r.counts.error_texts.keys().any(|t| t.ends_with("without grpc-status")), "{:?}", r.counts);

    let old = Upstream::script(|conn| {
        conn.expect("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        conn.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let r = with_proto(&["-n2", "-c1", &greeter(&format!("http://{}", old.address()), "SayHello")]);
    expect_reason(&r, "wrong_protocol", Grade::Invalid);
}

#[test]
fn tls_must_choose_http2() {
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["127.0.0.1", "localhost"]));
    let head = [(":status", "200"), ("content-type", "application/grpc")];
    let new = H2Origin::tls(&tls.clone().alpn(&["h2"]), Options::default(), move |peer, stream, request| {
        request.expect_header(":scheme", "https");
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::data(stream, b"\0\0\0\0\0", false));
        peer.send(&Frame::headers(stream, &[("grpc-status", "0")], true));
    });
    let url = |port: u16| format!("grpcs://localhost:{port}/helloworld.v1.Greeter/SayHello");
    let r = with_proto(&["-n10", "-c2", "--insecure", &url(new.address().port())]);
    assert_eq!((codes(&r), r.ledger.alpn.as_deref()), (vec![("OK", 10)], Some("h2")), "{r:#?}");
    // Reflection takes the same path as the calls.
    let options = weir_origin::Options { tls: Tls::SelfSigned, ..weir_origin::Options::default() };
    let secure = Origin::start(options).unwrap();
    let r =
        report(&["-n10", "-c2", "-m2", "--insecure", "--check", "grpc=OK", &url(secure.address().port())]);
    assert_eq!((codes(&r), r.ledger.alpn.as_deref()), (vec![("OK", 10)], Some("h2")), "{r:#?}");
    // One server aborts the handshake, the other continues without a choice.
    for (alpn, refuses) in [(&["http/1.1"][..], true), (&[], false)] {
        let old = Upstream::fixed_tls(&tls.clone().alpn(alpn), OK_BODY);
        let r = with_proto(&["-n2", "-c1", "--insecure", &url(old.address().port())]);
        let e = &r.counts.errors;
        assert_eq!(
            (r.counts.responses, e.tls, e.connect),
            (0, if refuses { 2 } else { 0 }, if refuses { 0 } else { 2 })
        );
        expect_reason(&r, "wrong_protocol", Grade::Invalid);
    }
}

#[test]
fn answers_that_break_a_rule_are_no_answers() {
    const OK: &[(&str, &str)] = &[("grpc-status", "0")];
    for (body, trailers, code, text) in [
        (&b""[..], OK, "Internal", "cardinality violation"),
        (b"\0\0\0\0\0\0\0\0\0\0", OK, "Internal", "cardinality violation"),
        (b"\0\0\0\0\x05hi", OK, "Internal", "the last message is cut"),
        (b"", &[("grpc-status", "99"), ("grpc-message", "a%20b%0Ac")], "Unknown", "desc = a b c"),
        (b"", &[("grpc-status", "7")], "PermissionDenied", "desc = "),
    ] {
        let peer = peer(body, trailers);
        let r = with_proto(&["-n2", "-c1", &sayhello(&peer)]);
        assert_eq!(codes(&r), [(code, 2)], "{text}: {:?}", r.counts);
        assert!(r.counts.error_texts.keys().any(|t| t.contains(text)), "{text}: {:?}", r.counts.error_texts);
    }
    let peer = peer(b"\x01\0\0\0\0", OK);
    let r = with_proto(&["-n2", "-c1", &sayhello(&peer)]);
    assert_eq!((r.counts.responses, r.counts.errors.protocol), (0, 2), "{:?}", r.counts);
}

#[test]
fn calls_differ_where_they_have_places_to_fill() {
    let (_origin, http) = origin("");
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("rows"), "{\"who\":\"Ann\",\"n\":1}\n{\"who\":\"Bo\",\"n\":-2}\n")
        .unwrap();
    let url = greeter(&http, "SayHello");
    let run = |data: &str| {
        let args = [
            "load",
            "-n10",
            "-c1",
            "--threads=1",
            "--feed",
            "rows",
            "--metadata",
            "id: {{uuid}}",
            "--data",
            data,
        ];
        run_weir(dir.path(), &[&args, &["--check", "body~hello ", "--format", "json", &url][..]].concat())
    };
    let finished = run(r#"{"name":"{{data.who}}-{{counter}}"}"#);
    finished.expect_code(0);
    let r: Report = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((codes(&r), r.counts.failed_checks), (vec![("OK", 10)], 0), "{r:#?}");
    // "hello Ann-0", "hello Bo-1", …
    assert_eq!(r.targets[0].body_bytes, Some((17, 18)));
    run(r#"{"name":"x","replies":{{data.n}}}"#).expect_code(2).expect_text(
        "--data: with row 2 of the feed: {\"name\":\"x\",\"replies\":-2}: does not fit helloworld.v1.HelloRequest: \
         replies: expected a whole number of 32 bits, not negative, found -2",
    );
}

#[test]
fn what_cannot_be_called_is_told_before_the_run() {
    let (_origin, http) = origin("");
    let (_bound, dead) = refusing_address();
    let web = H2Origin::fixed("hello");
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("bad.proto"), "syntax = \"proto3\";\nmessage M {\n  string s 1;\n}\n")
        .unwrap();
    let (say, other) = (greeter(&http, "SayHello"), greeter(&http, "SayGoodbye"));
    let base = http.replace("http://", "grpc://");
    let (nothing, unknown) = (format!("{base}/"), format!("{base}/a.B/C"));
    let (no_server, no_grpc) = (format!("grpc://{dead}/a.B/C"), format!("grpc://{}/a.B/C", web.address()));
    let file = format!("{PROTO}/greeter.proto");
    for (args, text) in [
        (
            &[other.as_str()][..],
            "helloworld.v1.Greeter has no method `SayGoodbye`; it has SayHello, LotsOfReplies,",
        ),
        (
            &[&nothing],
            "expected grpc://host:port/package.Service/Method; there is grpc.health.v1.Health, helloworld",
        ),
        (&[&unknown], "there is no service `a.B`; there is grpc.health.v1.Health, helloworld.v1.Greeter"),
        (&["--proto", &file, &unknown], "there is no service `a.B`; there is helloworld.v1.Greeter"),
        (&[&no_server], "no connection: "),
        (&[&no_grpc], "the target answers Unknown: the content-type of the response is not gRPC's"),
        (&["--proto", "bad.proto", &say], "--proto bad.proto: bad.proto:3:12: expected"),
        (&["--proto", "none.proto", &say], "--proto none.proto: No such file"),
        (&["--protoset", "bad.proto", &say], "--protoset bad.proto: this is not a set of descriptors"),
        (&["--proto", "x", "--protoset", "y", &say], "--protoset: --proto defines the methods already"),
        (&["--import-path", ".", &say], "--import-path: is for --proto"),
        (
            &["--data", "{\"nme\":1}", &say],
            "--data: does not fit helloworld.v1.HelloRequest: there is no field `nme`",
        ),
        (&["--data", "[1", &say], "--data: this is not JSON: "),
        (&["--metadata", "grpc-timeout: 1S", &say], "this key is gRPC's own"),
        (&["--metadata", "a-bin: *", &say], "write them in base64"),
        (&["--metadata", "a", &say], "expected `key: value`"),
        (&["--metadata", "a: b", &http], "--metadata: is for gRPC"),
        (&["--check", "grpc=OK", &http], "--check grpc=…: is for gRPC"),
        (&["--check", "grpc=Fine", &say], "the codes of gRPC are OK, Canceled"),
        (&["-XPUT", &say], "a call of gRPC is always a POST"),
        (&["-Fa=b", &say], "give them as JSON with --data"),
        (&[&say, &http], "gRPC and HTTP cannot be mixed in one run"),
    ] {
        let finished = run_weir(dir.path(), &[&["load", "-n1", "-c1"], args].concat());
        finished.expect_code(2);
        assert!(finished.stderr.contains(text), "{args:?}: {}", finished.stderr);
    }
    assert!(Path::new(&file).exists());
}
