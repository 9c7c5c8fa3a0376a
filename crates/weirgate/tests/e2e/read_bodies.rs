//! `request.body` in expressions: what it comes to in each place, and which bodies are read for it.

use weir_testkit::{Response, Upstream, Weir, gzip};

use crate::cause::{ACL_DENIED, BODY_NOT_JSON, BODY_TOO_LARGE, RATE_LIMITED};
use crate::support::OK;

#[track_caller]
fn start(upstream: &Upstream, more: &str, filters: &str) -> Weir {
    Weir::start(&yaml(upstream, more, filters))
}

fn yaml(upstream: &Upstream, more: &str, filters: &str) -> String {
    format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nadmin: {{ address: 127.0.0.1:0 }}\n\
         expose_causes: true\nstores: {{ pages: {{ memory: 16MiB }} }}\n{more}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
        upstream.address()
    )
}

const JSON: &str = "Content-Type: application/json\r\n";

fn post(weir: &Weir, fields: &str, body: impl AsRef<[u8]>) -> Response {
    let body = body.as_ref();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    weir.client().ask([head.as_bytes(), body].concat())
}

/// A field with a value of the body.
fn field(expression: &str) -> String {
    format!("{{ headers: {{ request: {{ set: {{ x-of-body: '{expression}' }} }} }} }}")
}

#[test]
fn expressions_read_json() {
    let upstream = Upstream::fixed(OK);
    let weir = start(&upstream, "", &field("= request.body.user.id ?? \"none\""));
    let coded = format!("{JSON}Content-Encoding: gzip\r\n");
    let json = br#"{"user":{"id":7}}"#;
    for (fields, body, id) in [
        (JSON, &json[..], "7"),
        ("Content-Type: application/problem+json; charset=utf-8\r\n", json, "7"),
        (&coded, &gzip(json), "7"),
        (JSON, br#"{"user":{"id":[1,"a"]}}"#, "[1,\"a\"]"),
        (JSON, br#"{"user":7}"#, "none"),
        // What does not say that it is JSON has no value; nor has an empty body.
        ("", json, "none"),
        ("Content-Type: text/plain\r\n", json, "none"),
        ("Content-Type: text/plain\r\n", br#"{"user":{"id":7}"#, "none"),
        ("Content-Type: application/jsonp\r\n", b"\xff", "none"),
        (&coded, &gzip(b""), "none"),
        (JSON, b"", "none"),
    ] {
        post(&weir, fields, body).expect_status(200);
        let request = upstream.take_request();
        assert_eq!(request.head.header("x-of-body"), Some(id), "{fields} {}", String::from_utf8_lossy(body));
        assert_eq!(request.body.bytes, body, "the body passes as it came");
    }
    weir.client().get("/").expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-of-body"), Some("none"));
    let empty = format!("POST / HTTP/1.1\r\nHost: a\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    weir.client().ask(empty).expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-of-body"), Some("none"));
    let chunked = format!("POST / HTTP/1.1\r\nHost: a\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n");
    let chunks = "9\r\n{\"user\":{\r\n7\r\n\"id\":1}\r\n1\r\n}\r\n0\r\n\r\n";
    weir.client().ask(chunked + chunks).expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-of-body"), Some("1"));
    let mut h2 = weir.h2();
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let stream = h2.request(&[&fields[..], &[("content-type", "application/json")]].concat(), false);
    h2.data(stream, r#"{"user":{"id":2}}"#, true);
    h2.message(stream).expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-of-body"), Some("2"));
}

/// If it had no value, a condition that excludes would hold, and the upstream may read the body less strictly.
#[test]
fn what_says_it_is_json_and_is_not_is_refused() {
    let upstream = Upstream::fixed(OK);
    let weir = start(&upstream, "", "{ acl: { is: '!(request.body.role == \"admin\")' } }");
    let coded = format!("{JSON}Content-Encoding: gzip\r\n");
    let json = br#"{"role":"admin"}"#;
    let deep = format!("{{\"role\":\"admin\",\"x\":{}{}}}", "[".repeat(64), "]".repeat(64));
    for (fields, body, why) in [
        (JSON, &br#"{"role":"admin""#[..], "EOF"),
        (JSON, br#"{"role":"user","role":"admin"}"#, "twice"),
        (JSON, b"\xef\xbb\xbf{\"role\":\"admin\"}", "byte order mark"),
        (JSON, br#"{"role":"admin","x":1e400}"#, "number"),
        (JSON, b"{\"role\":\"admin\",\"x\":\"\xff\"}", "unicode"),
        (JSON, br#"{"role":"admin"} x"#, "trailing"),
        (JSON, b" ", "EOF"),
        (JSON, deep.as_bytes(), "nested"),
        ("Content-Type: application/vnd.api+json\r\n", b"{'role':'admin'}", "key"),
        ("Content-Type: application/json; charset=utf-16\r\n", json, "charset"),
        ("Content-Type: text/plain\r\nContent-Type: application/json\r\n", json, "more than one"),
        ("Content-Type: application/json\r\nContent-Encoding: br\r\n", json, "coding"),
        (&coded, json, "coding"),
        (&coded, &[gzip(json), gzip(json)].concat(), "coding"),
    ] {
        let response = post(&weir, fields, body);
        response.expect_cause(BODY_NOT_JSON);
        assert!(response.text().contains(why), "{why}: {}", response.text());
    }
    let chunked = format!("POST / HTTP/1.1\r\nHost: a\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n");
    weir.client().ask(chunked + "1\r\n{\r\n0\r\n\r\n").expect_cause(BODY_NOT_JSON);
    let mut h2 = weir.h2();
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let stream = h2.request(&[&fields[..], &[("content-type", "application/json")]].concat(), false);
    h2.data(stream, "{", true);
    h2.message(stream).expect_status(400);
    assert_eq!(upstream.requests().len(), 0);
    // In each place that takes an expression, and through a map.
    let maps = "maps: { roles: { of: request.body.role, values: { admin: '1' }, default: '0' } }";
    for filter in [
        "{ when: { is: 'request.body.role == \"admin\"', filters: [ { respond: { status: 403 } } ] } }",
        "{ rate_limit: { requests: 100, per: 1h, by: \"= request.body.role\" } }",
        "{ headers: { request: { set: { x-a: \"{= maps.roles }\" } } } }",
        "{ acl: { is: 'maps.roles == \"0\"' } }",
        "{ when: { is: 'request.path == \"/\"', filters: [ { acl: { is: 'request.body.role != \"admin\"' } } ] } }",
    ] {
        let weir = start(&upstream, maps, filter);
        post(&weir, JSON, "{").expect_cause(BODY_NOT_JSON);
        post(&weir, "Content-Type: text/plain\r\n", "{").expect_status(200);
    }
    // Filters that read bodies themselves have rules of their own, and those that read none take everything.
    for (filter, status) in [
        ("{ transform: { request: { a: \"= request.body.a\" } } }", 400),
        ("{ validate: { schema: any.json, mode: report } }", 200),
        ("{ headers: { request: { set: { x-a: \"{= request.path }\" } } } }", 200),
    ] {
        let weir = Weir::start_by(&yaml(&upstream, "", filter), |dir| {
            std::fs::write(dir.join("any.json"), "{}").unwrap();
            let mut command = weir_testkit::weir_command(dir);
            command.args(["run", "-c", "weir.yaml"]);
            command
        });
        post(&weir, JSON, "{").expect_status(status);
    }
}

#[test]
fn a_long_body_is_refused_and_others_stream() {
    let upstream = Upstream::fixed(OK);
    let weir = start(&upstream, "limits: { expression_body_bytes: 1KiB }", &field("= request.body.a"));
    let text = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length));
    post(&weir, JSON, text(1000)).expect_status(200);
    post(&weir, JSON, text(1020)).expect_cause(BODY_TOO_LARGE);
    // A bomb counts as it is decoded.
    let coded = format!("{JSON}Content-Encoding: gzip\r\n");
    post(&weir, &coded, gzip(text(100_000).as_bytes())).expect_cause(BODY_TOO_LARGE);
    assert_eq!(upstream.requests().len(), 1);
    // What has no value in any case is not read: the upstream has it before the client has sent all of it.
    let upstream = Upstream::listen();
    let weir = start(&upstream, "limits: { expression_body_bytes: 1KiB }", &field("= request.body.a"));
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 5000\r\n\r\nabc");
    upstream.accept().expect("POST / HTTP/1.1\r\n");
}

#[test]
fn each_place_reads_the_body() {
    let upstream = Upstream::fixed(OK);
    let maps = "maps: { plans: { of: request.body.plan, values: { gold: '10', free: '1' }, default: '0' } }";
    let filters = [
        "{ acl: { is: '!(request.body.user == \"eve\")' } }",
        "{ when: { is: '(request.body.n > 100) ?? false', filters: [ { respond: { status: 422, body: \"{= request.body.n } is too much\" } } ] } }",
        "{ rate_limit: { requests: 1, per: 1h, by: \"= request.body.user\" } }",
        "{ headers: { request: { set: { x-weight: \"{= maps.plans }\" } }, response: { set: { x-for: \"{= request.body.user }\" } } } }",
    ];
    let weir = start(&upstream, maps, &filters.join(", "));
    let ask = |body: &str| post(&weir, JSON, body);
    ask(r#"{"user":"eve"}"#).expect_cause(ACL_DENIED);
    ask(r#"{"user":"ann","n":101}"#).expect_status(422).expect_body("101 is too much");
    ask(r#"{"user":"ann","n":100,"plan":"gold"}"#).expect_status(200).expect_header("x-for", "ann");
    assert_eq!(upstream.take_request().head.header("x-weight"), Some("10"));
    ask(r#"{"user":"ann"}"#).expect_cause(RATE_LIMITED);
    ask(r#"{"user":"bob"}"#).expect_status(200).expect_header("x-for", "bob");
    assert_eq!(upstream.take_request().head.header("x-weight"), Some("0"));
}

/// Each filter sees the body as those before it left it.
#[test]
fn filters_around_read_what_stands_there() {
    let transform = "{ transform: { request: { n: \"= request.body.n + 1\", was: \"= request.body.n\" } } }";
    let validate = "{ buffer: { request: 8B, disk: 1MiB, folder: DIR } }";
    let folder = tempfile::tempdir().unwrap();
    let buffer = validate.replace("DIR", folder.path().to_str().unwrap());
    let before = "{ headers: { request: { set: { x-before: \"{= request.body.n }\" } } } }";
    let behind = "{ headers: { request: { set: { x-behind: \"{= request.body.n }\" } } } }";
    for filters in [
        [before, transform, behind, &buffer],
        [&buffer, before, transform, behind],
        [before, &buffer, transform, behind],
        [before, transform, &buffer, behind],
    ] {
        let upstream = Upstream::fixed(OK);
        let weir = start(&upstream, "", &filters.join(", "));
        post(&weir, JSON, r#"{"n":1,"more":"0123456789"}"#).expect_status(200);
        let request = upstream.take_request();
        let of = |name: &str| request.head.header(name).map(str::to_owned);
        assert_eq!(
            (of("x-before"), of("x-behind")),
            (Some("1".to_owned()), Some("2".to_owned())),
            "{filters:?}"
        );
        assert_eq!(request.body.bytes, br#"{"n":2,"was":1}"#);
    }
}

#[test]
fn a_retry_sends_the_body_that_was_read() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "", &field("= request.body.a"));
    let request = format!("PUT / HTTP/1.1\r\nHost: a\r\n{JSON}Content-Length: 7\r\n\r\n{{\"a\":1}}");
    let mut client = weir.client();
    client.send(&request);
    let mut kept = upstream.accept();
    kept.read_request();
    kept.send(OK);
    client.read_response().expect_status(200);
    client.send(&request);
    kept.read_request();
    drop(kept);
    let mut other = upstream.accept();
    let again = other.read_request();
    assert_eq!((again.head.header("x-of-body"), &again.body.bytes[..]), (Some("1"), &b"{\"a\":1}"[..]));
    other.send(OK);
    client.read_response().expect_status(200);
}

/// A client that waits for `100 Continue` gets it, and one that it would get for nothing does not.
#[test]
fn a_client_that_waits_is_told_to_go_on() {
    let upstream = Upstream::fixed(OK);
    let weir = start(&upstream, "", &field("= request.body.a"));
    let mut client = weir.client();
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: a\r\n{JSON}Expect: 100-continue\r\nContent-Length: 7\r\n\r\n"
    ));
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("{\"a\":1}");
    client.read_response().expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-of-body"), Some("1"));
    let mut client = weir.client();
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: a\r\n{JSON}Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n"
    ));
    client.read_response().expect_cause(BODY_TOO_LARGE); // and no 100 before it
}

/// What counts is the body that a filter would read, not what the client declared, and not one that nobody reads.
#[test]
fn the_limit_counts_what_is_read() {
    let upstream = Upstream::fixed(OK);
    let shorten = "{ transform: { request: { n: \"= request.body.n\" } } }";
    let filters = format!("{shorten}, {}", field("= request.body.n"));
    let weir = start(
        &upstream,
        "limits: { expression_body_bytes: 1KiB }\nfilters: [ { errors: { 404: { body: \"no {= request.body.n }\" } } } ]",
        &filters,
    );
    let long = format!("{{\"n\":1,\"more\":\"{}\"}}", "x".repeat(2000));
    // `errors` names the body, so it is read before all.
    post(&weir, JSON, &long).expect_cause(BODY_TOO_LARGE);
    let weir = start(&upstream, "limits: { expression_body_bytes: 1KiB }", &filters);
    post(&weir, JSON, &long).expect_status(200);
    let request = upstream.take_request();
    assert_eq!((request.head.header("x-of-body"), &request.body.bytes[..]), (Some("1"), &b"{\"n\":1}"[..]));
}

/// The texts of a route's own answer read the body as filters do, also one that a filter has changed.
#[test]
fn the_answer_of_a_route_reads_the_body() {
    let answer = "respond: { headers: { x-id: \"{= request.body.id }\" }, body: \"{= request.body.name ?? 'nobody' }\" }";
    let weir = Weir::start(&format!(
        "{}\nexpose_causes: true\nlimits: {{ expression_body_bytes: 1KiB }}\nroutes:\n  own: {{ match: {{ path: /own }}, {answer} }}\n  \
         changed: {{ match: {{ path: /changed }}, filters: [ {{ transform: {{ request: {{ name: \"= request.body.user\" }} }} }} ], {answer} }}\n",
        crate::support::WEB
    ));
    let mut client = weir.client();
    let mut ask = |path: &str, fields: &str, body: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}");
        client.ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))
    };
    // All on one connection: each body is read to its end.
    ask("/own", JSON, r#"{"id":7,"name":"a"}"#)
        .expect_status(200)
        .expect_header("x-id", "7")
        .expect_body("a");
    ask("/own", JSON, r#"{"name":8}"#).expect_status(200).expect_body("8");
    ask("/own", "Content-Type: text/plain\r\n", r#"{"name":"a"}"#).expect_status(200).expect_body("nobody");
    ask("/changed", JSON, r#"{"user":"b","name":"a"}"#).expect_status(200).expect_body("b");
    ask("/own", JSON, &format!(r#"{{"name":"{}"}}"#, "n".repeat(900))).expect_body("n".repeat(900));
    client.get("/own").expect_status(200).expect_body("nobody");
    client.send(format!(
        "POST /own HTTP/1.1\r\nHost: a\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n8\r\n{{\"name\":\r\n4\r\n\"c\"}}\r\n0\r\n\r\n"
    ));
    client.read_response().expect_status(200).expect_body("c");
    let malformed = "Content-Length: 8\r\n\r\nnonsense";
    weir.client().ask(format!("POST /own HTTP/1.1\r\nHost: a\r\n{JSON}{malformed}")).expect_status(400);
    for long in [
        format!("Content-Length: 1025\r\n\r\n{{\"name\":\"{}\"}}", "n".repeat(1014)),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n401\r\n{{\"name\":\"{}\"}}\r\n0\r\n\r\n",
            "n".repeat(1014)
        ),
    ] {
        let mut client = weir.client();
        client
            .ask(format!("POST /own HTTP/1.1\r\nHost: a\r\n{JSON}{long}"))
            .expect_status(413)
            .expect_cause(BODY_TOO_LARGE);
    }
    let mut waits = weir.client();
    waits.send(format!(
        "POST /own HTTP/1.1\r\nHost: a\r\n{JSON}Expect: 100-continue\r\nContent-Length: 12\r\n\r\n"
    ));
    waits.expect("HTTP/1.1 100 Continue\r\n\r\n");
    waits.send(r#"{"name":"d"}"#);
    waits.read_response().expect_status(200).expect_body("d");
}
