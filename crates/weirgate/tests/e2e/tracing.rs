//! `tracing`: what upstreams, the log, the metrics and a collector receive.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_origin::{Options as OriginOptions, Origin};
use weir_testkit::h2::{H2, Options};
use weir_testkit::{Upstream, Weir, eventually, refusing_address};

use crate::support::{OK, OK_BODY, WEB};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A span as decoded by the collector.
#[derive(Debug, Default)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    state: String,
    name: String,
    kind: u64,
    times: (u64, u64),
    attributes: BTreeMap<String, String>,
    events: Vec<(String, BTreeMap<String, String>)>,
    failed: bool,
}

impl Span {
    fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

/// A field of a Protocol Buffers message.
enum Value<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

/// The fields of a message. Source: protobuf.dev, *Encoding*.
fn fields(mut rest: &[u8]) -> Vec<(u64, Value<'_>)> {
    fn varint(rest: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = rest[0];
            *rest = &rest[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    fn take<'a>(rest: &mut &'a [u8], n: usize) -> &'a [u8] {
        let (taken, behind) = rest.split_at(n);
        *rest = behind;
        taken
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b));
    let mut all = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut rest)),
            1 => Value::Number(number(take(&mut rest, 8))),
            2 => {
                let length = varint(&mut rest) as usize;
                Value::Bytes(take(&mut rest, length))
            }
            5 => Value::Number(number(take(&mut rest, 4))),
            other => panic!("wire type {other}"),
        };
        all.push((tag >> 3, value));
    }
    all
}

/// The messages in a field.
fn messages(message: &[u8], field: u64) -> Vec<&[u8]> {
    let bytes = |(number, value)| match value {
        Value::Bytes(bytes) if number == field => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(bytes).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("a string is UTF-8")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// common.proto: KeyValue { key 1, value 2 }, AnyValue { string 1, bool 2, int 3 }.
fn attributes(message: &[u8], field: u64) -> BTreeMap<String, String> {
    let pair = |pair: &[u8]| {
        let value = fields(messages(pair, 2)[0]).remove(0).1;
        let value = match value {
            Value::Bytes(bytes) => text(bytes),
            Value::Number(number) => number.to_string(),
        };
        (text(messages(pair, 1)[0]), value)
    };
    messages(message, field).into_iter().map(pair).collect()
}

/// trace.proto: Span.
fn span(message: &[u8]) -> Span {
    let mut span = Span { attributes: attributes(message, 9), ..Span::default() };
    for (field, value) in fields(message) {
        match (field, value) {
            (1, Value::Bytes(id)) => span.trace = hex(id),
            (2, Value::Bytes(id)) => span.id = hex(id),
            (3, Value::Bytes(state)) => span.state = text(state),
            (4, Value::Bytes(id)) => span.parent = hex(id),
            (5, Value::Bytes(name)) => span.name = text(name),
            (6, Value::Number(kind)) => span.kind = kind,
            (7, Value::Number(at)) => span.times.0 = at,
            (8, Value::Number(at)) => span.times.1 = at,
            (11, Value::Bytes(event)) => {
                span.events.push((text(messages(event, 2)[0]), attributes(event, 3)));
            }
            // Status { message 2, code 3 }, code 2 is ERROR.
            (15, Value::Bytes(status)) => {
                span.failed = fields(status).iter().any(|(f, v)| *f == 3 && matches!(v, Value::Number(2)));
            }
            _ => {}
        }
    }
    span
}

/// From trace_service.proto: ExportTraceServiceRequest { resource_spans 1 { resource 1 { attributes 1 }, scope_spans
/// 2 { spans 2 } } }.
fn spans(request: &[u8]) -> Vec<Span> {
    let resource_spans = messages(request, 1);
    let scopes = resource_spans.iter().flat_map(|of_resource| messages(of_resource, 2));
    scopes.flat_map(|scope| messages(scope, 2)).map(span).collect()
}

/// The spans of this many exchanges, once the collector has them.
fn wait_spans(collector: &Upstream, exchanges: usize) -> Vec<Span> {
    let mut all = Vec::new();
    eventually("the spans arrive", || {
        all = collector.requests().iter().flat_map(|request| spans(&request.body.bytes)).collect();
        all.iter().filter(|span| span.kind == 2).count() >= exchanges
    });
    all
}

fn tracing(collector: &Upstream, more: &str) -> String {
    format!(
        "access_log: {{ output: stdout }}\ntracing: {{ otlp: \"http://{}\", service: edge, {more} }}",
        collector.address()
    )
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: weir.test:81\r\n{fields}\r\n")
}

#[test]
fn an_exchange_and_its_attempt() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let weir = Weir::in_front_of_with(&upstream, &tracing(&collector, "resource: { team: a }"));
    let sent = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\ntracestate: a=1\r\nUser-Agent: me\r\n");
    weir.client().ask(get("/orders/7?b=c", &sent)).expect_status(200);
    let all = wait_spans(&collector, 1);
    let [server, client] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&*server.trace, &*server.parent, &*server.state), (TRACE, CALLER, "a=1"));
    assert_eq!((&*server.name, server.kind, server.failed), ("GET /*", 2, false));
    let peer = upstream.address();
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("http.route", "/*"),
        ("url.scheme", "http"),
        ("url.path", "/orders/7"),
        ("url.query", "b=c"),
        ("server.address", "weir.test"),
        ("server.port", "81"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "me"),
        ("weir.route", "all"),
        ("error.type", ""),
    ] {
        assert_eq!(server.get(key), value, "{key} in {server:?}");
    }
    assert_eq!((&*client.trace, &*client.parent, client.kind), (TRACE, &*server.id, 3));
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("server.address", "127.0.0.1"),
        ("server.port", &*peer.port().to_string()),
        ("network.protocol.version", "1.1"),
        ("weir.upstream", "up"),
        ("url.full", &*format!("http://{peer}/orders/7?b=c")),
    ] {
        assert_eq!(client.get(key), value, "{key} in {client:?}");
    }
    assert!(
        server.times.0 <= client.times.0
            && client.times.0 <= client.times.1
            && client.times.1 <= server.times.1
    );
    let seen = upstream.take_request().head;
    assert_eq!(seen.header("traceparent"), Some(&*format!("00-{TRACE}-{}-01", client.id)));
    assert_eq!(seen.header("tracestate"), Some("a=1"));
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("/orders/7")).unwrap();
    assert_eq!((&line["trace_id"], &line["span_id"]), (&TRACE.into(), &(*server.id).into()));
    let request = collector.take_request();
    assert_eq!(request.head.line, "POST /v1/traces HTTP/1.1");
    let resource = attributes(messages(messages(&request.body.bytes, 1)[0], 1)[0], 1);
    assert_eq!((&*resource["service.name"], &*resource["team"]), ("edge", "a"));
}

/// An unreadable head is an exchange as well: it has a span, and its log line has the same ids.
#[test]
fn what_cannot_be_read() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let weir = Weir::in_front_of_with(&upstream, &tracing(&collector, ""));
    for bytes in
        ["GET /half HTTP/1.1\r\nHost: weir.test\r\nno colon\r\n\r\n", "\x16\x03\x01 no HTTP at all\r\n\r\n"]
    {
        weir.client().ask(bytes).expect_status(400);
    }
    let all = wait_spans(&collector, 2);
    assert_eq!(all.len(), 2, "{all:?}");
    for span in &all {
        assert_eq!((span.get("http.response.status_code"), span.get("http.route")), ("400", ""), "{span:?}");
        assert!(!span.get("weir.cause").is_empty(), "{span:?}");
        let line = weir.wait_stdout(&span.trace);
        assert!(line.contains(&span.id) && line.contains(span.get("weir.cause")), "{line}");
    }
    assert!(all.iter().any(|span| span.get("url.path") == "/half"), "{all:?}");
}

#[test]
fn what_is_not_sampled_is_told_to_upstreams_alone() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let weir = Weir::in_front_of_with(&upstream, &tracing(&collector, "share: 0%"));
    let mut client = weir.client();
    client.ask(get("/none", "traceparent: 00-nonsense-01\r\ntracestate: a=1\r\n")).expect_status(200);
    let seen = upstream.take_request().head;
    let own = seen.header("traceparent").unwrap();
    assert!(own.len() == 55 && own.ends_with("-00"), "{own}");
    assert_eq!(seen.header("tracestate"), None);
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("/none")).unwrap();
    assert_eq!(line["trace_id"], own[3..35]);
    assert_eq!(line["span_id"], own[36..52]);
    // The caller's decision takes precedence over the sampling share.
    let sampled = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
    client.ask(get("/sampled", &sampled)).expect_status(200);
    let all = wait_spans(&collector, 1);
    assert!(all.iter().all(|span| span.trace == TRACE), "{all:?}");
}

#[test]
fn attempts_that_failed_and_filters_that_waited() {
    let (_held, nobody) = refusing_address();
    let collector = Upstream::fixed(TAKEN);
    let auth = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}
upstreams:
  auth: {{ endpoints: [{auth}] }}
  up: {{ endpoints: [{nobody}] }}
routes:
  all: {{ match: {{ path: \"/a/{{id}}\" }}, filters: [ {{ forward_auth: {{ upstream: auth, path: /check }} }} ], upstream: up }}
{}\n",
        tracing(&collector, ""),
        auth = auth.address(),
    ));
    weir.client().ask(get("/a/1", "")).expect_status(502);
    let all = wait_spans(&collector, 1);
    let server = all.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!((&*server.name, server.failed), ("GET /a/{id}", true));
    assert_eq!((server.get("error.type"), server.get("weir.cause")), ("connect_refused", "connect_refused"));
    let (event, attributes) = &server.events[0];
    assert_eq!((&**event, &*attributes["weir.filter"]), ("filter.wait", "forward_auth"));
    let attempts: Vec<&Span> = all.iter().filter(|span| span.kind == 3).collect();
    assert!(!attempts.is_empty());
    for (number, attempt) in attempts.iter().enumerate() {
        assert!(attempt.failed && attempt.parent == server.id, "{attempt:?}");
        assert_eq!(attempt.get("error.type"), "connect_refused");
        let resent = if number == 0 { String::new() } else { number.to_string() };
        assert_eq!(attempt.get("http.request.resend_count"), resent);
    }
}

/// A second attempt that a filter refuses leaves no span, and does not discard the first one's answer.
#[test]
fn a_hedge_that_a_filter_refuses_is_no_attempt() {
    let (upstream, collector) = (Upstream::listen(), Upstream::fixed(TAKEN));
    let weir = Weir::start(&format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}
upstreams: {{ up: {{ endpoints: [{}], hedge: {{ after: 500ms, budget: 100% }} }} }}
routes:
  all: {{ match: {{ path: \"/*\" }}, filters: [ {{ circuit_breaker: {{ minimum: 2, open: 1h }} }} ], upstream: up }}
{}\n",
        upstream.address(),
        tracing(&collector, ""),
    ));
    let (mut slow, mut first) = weir.begin(&upstream, get("/slow", ""));
    let mut client = weir.client();
    for _ in 0..2 {
        client.send(get("/bad", ""));
        let mut conn = upstream.accept_request();
        conn.send("HTTP/1.1 500 Bad\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        client.read_response().expect_status(500);
    }
    weir.wait_log("the circuit is open");
    eventually("the second attempt is refused", || {
        metric(&weir, "weir_upstream_hedges_total{upstream=\"up\"}") == Some(1)
    });
    first.send(OK);
    slow.read_response().expect_status(200);
    let all = wait_spans(&collector, 3);
    let server = all.iter().find(|span| span.kind == 2 && span.get("url.path") == "/slow").unwrap();
    let attempts: Vec<&Span> = all.iter().filter(|span| span.kind == 3 && span.parent == server.id).collect();
    let told: Vec<_> =
        attempts.iter().map(|span| (span.get("http.response.status_code"), span.failed)).collect();
    assert_eq!(told, [("200", false)]);
}

/// gRPC calls have their own attributes, and an error wherever the status is one, although HTTP says 200.
#[test]
fn calls_of_grpc() {
    let origin =
        Origin::start(OriginOptions { address: "127.0.0.1:0".parse().unwrap(), ..OriginOptions::default() });
    let (origin, collector) = (origin.unwrap(), Upstream::fixed(TAKEN));
    let dir = tempfile::TempDir::new().unwrap();
    let proto = dir.path().join("greeter.proto");
    let text = "syntax = \"proto3\"; package helloworld.v1; import \"google/api/annotations.proto\"; service Greeter {\
        rpc SayHello(Ask) returns (Reply) { option (google.api.http) = { get: \"/v1/hello/{name}\" }; } }\
        message Ask { string name = 1; uint32 code = 2; } message Reply { string message = 1; }";
    std::fs::write(&proto, text).unwrap();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}
upstreams: {{ up: {{ protocol: h2c, endpoints: [{}] }} }}
routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ grpc_json: {{ proto: [ {} ] }} }} ], upstream: up }} }}
{}\n",
        origin.address(),
        proto.display(),
        tracing(&collector, ""),
    ));
    // REST: the client's span is an HTTP span, as received; the attempt's is a call.
    weir.client().ask(get("/v1/hello/a", "")).expect_status(200);
    weir.client().ask(get("/v1/hello/a?code=16", "")).expect_status(401);
    let mut h2 = weir.h2();
    for code in [0, 5, 14] {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/helloworld.v1.Greeter/SayHello"),
            (":authority", "weir.test"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let stream = h2.request(&fields, false);
        h2.data(stream, [0, 0, 0, 0, 2, 0x10, code], true);
        h2.message(stream).expect_status(200);
    }
    let all = wait_spans(&collector, 5);
    let mut seen = Vec::new();
    for client in all.iter().filter(|span| span.kind == 3) {
        assert_eq!(client.get("rpc.system"), "grpc", "{client:?}");
        assert_eq!(
            (client.get("rpc.service"), client.get("rpc.method")),
            ("helloworld.v1.Greeter", "SayHello")
        );
        assert_eq!(
            (client.get("http.request.method"), client.get("http.response.status_code")),
            ("POST", "200")
        );
        let server = all.iter().find(|span| span.id == client.parent).unwrap();
        let rpc = ["rpc.system", "rpc.grpc.status_code"].map(|key| server.get(key).to_owned());
        let method = server.get("http.request.method");
        assert_eq!(server.name, format!("{method} /*"));
        let [system, status] = rpc;
        seen.push((
            method.to_owned(),
            client.get("rpc.grpc.status_code").to_owned(),
            (client.failed, client.get("error.type").to_owned()),
            (system, status, server.failed),
        ));
    }
    seen.sort();
    let call = |method: &str, code: &str, client: (bool, &str), server: (&str, &str, bool)| {
        let (system, status, failed) = server;
        (
            method.to_owned(),
            code.to_owned(),
            (client.0, client.1.to_owned()),
            (system.to_owned(), status.to_owned(), failed),
        )
    };
    assert_eq!(
        seen,
        [
            call("GET", "0", (false, ""), ("", "", false)),
            call("GET", "16", (true, "UNAUTHENTICATED"), ("", "", false)),
            call("POST", "0", (false, ""), ("grpc", "0", false)),
            call("POST", "14", (true, "UNAVAILABLE"), ("grpc", "14", true)),
            // The client requested something that does not exist: no error of the server.
            call("POST", "5", (true, "NOT_FOUND"), ("grpc", "5", false)),
        ]
    );
}

#[test]
fn secrets_stay_out_of_spans() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}
upstreams: {{ up: {{ endpoints: [{}] }} }}
consumers: {{ shop: {{ key_auth: [geheim] }} }}
routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ key_auth: {{ query: key, hide: false }} }} ], upstream: up }} }}
{}\n",
        upstream.address(),
        tracing(&collector, ""),
    ));
    weir.client().ask(get("/a?key=geheim&b=c", "")).expect_status(200);
    let all = wait_spans(&collector, 1);
    let server = all.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!((server.get("url.query"), server.get("weir.consumer")), ("key=***&b=c", "shop"));
    assert!(!format!("{all:?}").contains("geheim"), "{all:?}");
}

#[test]
fn a_collector_that_is_busy_is_asked_again() {
    let upstream = Upstream::fixed(OK_BODY);
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
    let collector = Upstream::script({
        let asked = std::sync::atomic::AtomicUsize::new(0);
        move |conn| {
            let _ = conn.read_request();
            let first = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            conn.send(if first { busy } else { TAKEN });
        }
    });
    let weir = Weir::in_front_of_with(&upstream, &tracing(&collector, ""));
    weir.client().get("/again").expect_status(200);
    eventually("it was asked twice", || collector.requests().len() == 2);
    let bodies: Vec<_> = collector.requests().into_iter().map(|request| request.body.bytes).collect();
    assert_eq!(bodies[0], bodies[1]);
    eventually("the spans are counted", || metric(&weir, "weir_spans_exported_total") == Some(2));
    assert_eq!(metric(&weir, "weir_spans_dropped_total{reason=\"failed\"}"), Some(0));
}

#[test]
fn a_collector_by_grpc() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::listen());
    let weir =
        Weir::in_front_of_with(&upstream, &tracing(&collector, "protocol: grpc, headers: { x-tenant: a }"));
    weir.client().get("/grpc").expect_status(200);
    let mut peer = H2::server(collector.accept(), &Options::default());
    let (stream, asked) = peer.accept_whole();
    for (name, value) in [
        (":method", "POST"),
        (":path", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("x-tenant", "a"),
    ] {
        assert_eq!(asked.header(name), Some(value), "{name}");
    }
    // gRPC over HTTP/2: uncompressed, a four-byte length, the message.
    let (prefix, message) = asked.body.split_at(5);
    assert_eq!((prefix[0], &prefix[1..]), (0, &u32::try_from(message.len()).unwrap().to_be_bytes()[..]));
    assert_eq!(spans(message).iter().filter(|span| span.get("url.path") == "/grpc").count(), 1);
    peer.headers(stream, &[(":status", "200"), ("content-type", "application/grpc")], false);
    // ExportTraceServiceResponse { partial_success 1 { rejected_spans 1 } }.
    peer.data(stream, b"\0\0\0\0\x04\x0a\x02\x08\x01", false);
    peer.headers(stream, &[("grpc-status", "0")], true);
    eventually("one is taken", || metric(&weir, "weir_spans_exported_total") == Some(1));
    eventually("one is refused", || {
        metric(&weir, "weir_spans_dropped_total{reason=\"rejected\"}") == Some(1)
    });
}

#[test]
fn the_end_sends_what_is_there_and_waits_for_no_one_forever() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let weir = Weir::in_front_of_with(&upstream, &tracing(&collector, ""));
    weir.client().get("/last").expect_status(200);
    weir.stop().expect_code(0);
    assert_eq!(wait_spans(&collector, 1).len(), 2);
    // It accepts the connection and never answers.
    let hangs = Upstream::listen();
    let mut weir = Weir::in_front_of_with(&upstream, &tracing(&hangs, ""));
    weir.client().get("/last").expect_status(200);
    weir.signal(libc::SIGTERM);
    weir.wait_exit(Duration::from_secs(60)).expect_code(0);
}

#[test]
fn slow_exchanges_are_found_from_their_histogram() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let weir = Weir::in_front_of_with(&upstream, &tracing(&collector, ""));
    weir.client().ask(get("/", &format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n"))).expect_status(200);
    let exemplar = format!(" # {{trace_id=\"{TRACE}\",span_id=\"");
    eventually("the exemplar is there", || page(&weir, "application/openmetrics-text").contains(&exemplar));
    assert!(!page(&weir, "text/plain").contains("trace_id"));
}

#[test]
fn a_reload_turns_it_on_and_off() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let plain = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }} }}\n",
        upstream.address()
    );
    let weir = Weir::start(&plain);
    let mut client = weir.client();
    client.get("/a").expect_status(200);
    weir.reload_with(&format!("{plain}{}\n", tracing(&collector, ""))).unwrap();
    client.get("/b").expect_status(200);
    weir.reload_with(&plain).unwrap();
    client.get("/c").expect_status(200);
    let all = wait_spans(&collector, 1);
    let paths: Vec<&str> =
        all.iter().filter(|span| span.kind == 2).map(|span| span.get("url.path")).collect();
    assert_eq!(paths, ["/b"]);
    let told = |n: usize| upstream.wait_requests(3)[n].head.header("traceparent").is_some();
    assert_eq!([told(0), told(1), told(2)], [false, true, false]);
}

/// logs_service.proto has the structure of trace_service.proto; logs.proto: LogRecord { time 1, severity 2, body 5,
/// attributes 6, trace_id 9, span_id 10 }.
#[test]
fn lines_for_a_collector() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(TAKEN));
    let weir = Weir::in_front_of_with(
        &upstream,
        &format!(
            "access_log: {{ otlp: {{ url: \"http://{0}\", service: edge }}, fields: [\"header:x-a\"] }}
tracing: {{ otlp: \"http://{0}\", share: 0% }}",
            collector.address()
        ),
    );
    weir.client()
        .ask(get("/t?b=c", &format!("X-A: b\r\ntraceparent: 00-{TRACE}-{CALLER}-00\r\n")))
        .expect_status(200);
    weir.stop().expect_code(0);
    let requests = collector.requests();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request.head.line, "POST /v1/logs HTTP/1.1");
    let of_resource = messages(&request.body.bytes, 1)[0];
    assert_eq!(attributes(messages(of_resource, 1)[0], 1)["service.name"], "edge");
    let record = messages(messages(of_resource, 2)[0], 2)[0];
    let told = attributes(record, 6);
    for (key, value) in
        [("method", "GET"), ("uri", "/t?b=c"), ("status", "200"), ("route", "all"), ("header:x-a", "b")]
    {
        assert_eq!(told.get(key).map(String::as_str), Some(value), "{key} in {told:?}");
    }
    assert_eq!(hex(messages(record, 9)[0]), TRACE);
    assert_eq!(text(messages(messages(record, 5)[0], 1)[0]), "GET /t 200");
}

fn page(weir: &Weir, accept: &str) -> String {
    let host = weir.admin();
    let asked =
        weir.admin_client().ask(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n"));
    asked.text()
}

fn metric(weir: &Weir, series: &str) -> Option<u64> {
    let page = page(weir, "text/plain");
    page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}
