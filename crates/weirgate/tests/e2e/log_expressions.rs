//! Expressions in lines of the access log: values, escapes, and what no line may show.

use serde_json::Value;
use weir_testkit::h2::H2;
use weir_testkit::{Upstream, Weir, run_weir};

use crate::support::{OK, WEB};

/// The log's line about a request whose target has this in it.
#[track_caller]
fn line(weir: &Weir, needle: &str) -> Value {
    serde_json::from_str(&weir.wait_stdout(needle)).unwrap()
}

/// A gateway in front of `upstream` whose lines have these fields; `more` may have routes.
fn logging(fields: &str, upstream: &Upstream, more: &str) -> Weir {
    Weir::start(&config(fields, upstream, more))
}

fn config(fields: &str, upstream: &Upstream, more: &str) -> String {
    format!(
        "{WEB}\naccess_log:\n  fields:\n{fields}\nmaps:\n  tenants: {{ of: 'request.headers[\"x-tenant\"]', values: {{ \
         acme: gold }}, default: free }}\n  outcome: {{ of: response.status, values: {{ \"~2..\": good }}, default: bad }}\n\
         upstreams: {{ up: {{ endpoints: [ {} ] }} }}\n{more}\n",
        upstream.address()
    )
}

const TO_UP: &str = "routes: { all: { match: { path: \"/a/{id}\" }, upstream: up } }";

#[test]
fn a_line_has_what_expressions_come_to() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Part: one\r\nX-Part: two\r\nX-Other: o\r\n\r\nok",
    );
    let fields = r#"
    - header:x-tenant
    - tenant: "= maps.tenants"
      outcome: "{= maps.outcome }"
    - size: "= request.size"
    - tls: "= client.tls"
    - both: "{= request.method } {= response.status }, {{=}}"
    - parts: '= response.headers["x-part"]'
      last: '= response.headers["x-part"].all()[1]'
    - half: "= double(response.status) / 2.0"
    - id: "= request.params.id"
      none: '= request.headers["x-none"]'
      up: "= upstream.name"
      at: "= route.name"
      who: '= client.ip in ["127.0.0.0/8"] ? "here" : "there"'
      env: prod
      long: '= request.headers["x-long"]'
      quoted: '= request.headers["x-quoted"]'"#;
    let weir = logging(fields, &upstream, TO_UP);
    let long = "l".repeat(600);
    let request = format!(
        "POST /a/7?n=1 HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\nX-Long: {long}\r\nX-Quoted: a\"b\\c\u{2028}d\r\n\
         Content-Length: 3\r\n\r\nabc"
    );
    weir.client().ask(request).expect_status(201);
    let told = line(&weir, "/a/7?n=1");
    assert_eq!(told["header:x-tenant"], "acme");
    assert_eq!(told["tenant"], "gold");
    assert_eq!(told["outcome"], "good");
    assert_eq!(told["size"], 3);
    assert_eq!(told["tls"], false);
    assert_eq!(told["both"], "POST 201, {=}");
    assert_eq!(told["parts"], "one, two");
    assert_eq!(told["last"], "two");
    assert_eq!(told["half"], 100.5);
    assert_eq!((&told["id"], &told["up"], &told["at"]), (&"7".into(), &"up".into(), &"all".into()));
    assert_eq!((&told["who"], &told["env"]), (&"here".into(), &"prod".into()));
    assert_eq!(told["long"], format!("{}…", &long[..512]));
    assert_eq!(told["quoted"], "a\"b\\c\u{2028}d");
    assert_eq!(told.get("none"), None);
    // Without a route, and so without an upstream and parameters.
    weir.client().get("/other").expect_status(404);
    let told = line(&weir, "/other");
    assert_eq!((&told["tenant"], &told["outcome"]), (&"free".into(), &"bad".into()));
    assert_eq!(told["both"], "GET 404, {=}");
    assert_eq!((told.get("id"), told.get("up"), told.get("at")), (None, None, None));
    // A head that is refused has no fields, but still a line.
    weir.client().ask("GET /bad HTTP/1.1\r\nHost: h\r\nX-Tenant : acme\r\n\r\n").expect_status(400);
    assert_eq!(line(&weir, "bad_head")["both"].as_str().map(|text| text.ends_with("400, {=}")), Some(true));
}

#[test]
fn a_template_has_expressions_too() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{WEB}\naccess_log: {{ format: '{{method}} <{{= request.headers[\"x-a\"] }}> {{= \"}}\" + string(response.status) \
         }} {{{{=x}}}} {{status}}' }}\nupstreams: {{ up: {{ endpoints: [ {} ] }} }}\n{TO_UP}\n",
        upstream.address()
    ));
    weir.client().ask("GET /a/1 HTTP/1.1\r\nHost: h\r\nX-A: a\tb\"c\r\n\r\n").expect_status(200);
    assert_eq!(weir.wait_stdout("GET"), "GET <a\\x09b\\x22c> }200 {=x} 200");
    weir.client().ask("HEAD /a/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(weir.wait_stdout("HEAD"), "HEAD <-> }200 {=x} 200");
}

#[test]
fn no_line_shows_what_the_log_conceals() {
    let upstream = Upstream::fixed(OK);
    let fields = r#"
    - p: "= request.path"
      q: "= request.query"
      u: "= request.url"
      k: "= request.args.key"
      ks: "= request.args.key.all()"
      n: "= request.args.n"
      r: '= request.headers["referer"]'
      a: '= request.headers["x-api-key"]'
      s: "= request.args.key.startsWith('SECRET')"
      part: "= request.path.split('/').join('+')"
      token: "= request.args.token"
      secret: "= maps.secrets"
      rest: "= request.params.rest""#;
    let yaml = config(
        fields,
        &upstream,
        "consumers: { shop: { key_auth: [ SECRET1 ] } }\nroutes:\n  open: { match: { path: \"/open/{rest*}\" }, upstream: up }\n  \
         shut: { match: { path: \"/shut/*\" }, filters: [ { key_auth: { path: true, query: key } } ], upstream: up }",
    );
    let yaml = yaml.replace("access_log:\n", "access_log:\n  redact: { \"query:token\": hide }\n").replace(
        "maps:\n",
        "maps:\n  secrets: { of: request.method, values: { GET: \"${SECRET_MAP:-SECRET9}\" } }\n",
    );
    let weir = Weir::start(&yaml);
    let ask = |target: &str, fields: &str| {
        weir.client().ask(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
    };
    ask("/shut/~SECRET1/x", "Referer: http://h/shut/~SECRET2?key=SECRET3\r\n").expect_status(200);
    ask("/shut/one?key=SECRET1&n=1&token=SECRET5", "").expect_status(200);
    ask("/shut/two?n=1", "X-Api-Key: SECRET1\r\n").expect_status(200);
    ask("/shut/three?n=1", "X-Api-Key: SECRET8\r\n").expect_status(401);
    // Where no filter reads it, too, as in the log's own fields.
    ask("/open/~SECRET4/y?key=SECRET4&k%65y=SECRET6&key=SECRET7&n=2", "").expect_status(200);
    let told = line(&weir, "/open/");
    assert_eq!(told["p"], "/open/~***/y");
    assert_eq!(told["part"], "+open+~***+y");
    assert_eq!(told["q"], "key=***&k%65y=***&key=***&n=2");
    assert_eq!(told["u"], "http://h/open/~***/y?key=***&k%65y=***&key=***&n=2");
    assert_eq!(told["rest"], "~***/y");
    assert_eq!((&told["k"], &told["ks"], &told["s"]), (&"***".into(), &"[\"***\"]".into(), &false.into()));
    assert_eq!((&told["n"], &told["secret"]), (&"2".into(), &"***".into()));
    let told = line(&weir, "/shut/one");
    // `key_auth` has removed the key, as it does from header fields.
    assert_eq!((told.get("k"), &told["token"]), (None, &"***".into()));
    assert_eq!(line(&weir, "/shut/~***/x")["r"], "http://h/shut/~***?key=***");
    line(&weir, "/shut/two");
    let refused = line(&weir, "/shut/three");
    assert_eq!(refused["a"], "SECRET8", "as header:x-api-key, which is known to no consumer");
    let lines = weir.stdout();
    let leaks: Vec<&str> =
        lines.lines().filter(|line| line.contains("SECRET") && !line.contains("/shut/three")).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn a_reload_changes_what_lines_say() {
    let upstream = Upstream::listen();
    let weir = logging("    - tenant: '= maps.tenants'\n      state: '= response.status'", &upstream, TO_UP);
    let mut client = weir.client();
    client.send("GET /a/before HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\n\r\n");
    let mut conn = upstream.accept();
    conn.next_request().unwrap();
    let yaml = std::fs::read_to_string(weir.dir().join("weir.yaml")).unwrap();
    weir.reload_with(&yaml.replace("acme: gold", "acme: silver")).unwrap();
    // One that began before: its line is written by the log that is there now.
    conn.send(OK);
    client.read_response().expect_status(200);
    assert_eq!(line(&weir, "/a/before")["tenant"], "silver");
    let yaml = yaml.replace("- tenant: '= maps.tenants'\n      state", "- state");
    weir.reload_with(&yaml).unwrap();
    client.send("GET /a/after HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\n\r\n");
    conn.next_request().unwrap();
    conn.send(OK);
    client.read_response().expect_status(200);
    let told = line(&weir, "/a/after");
    assert_eq!((told.get("tenant"), &told["state"]), (None, &200.into()));
}

#[test]
fn http2_callers_and_ids() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [ http1, h2 ] }} }}\naccess_log: {{ fields: [ {{ who: '= \
         consumer.name', req: '= request.id', why: '= response.cause' }} ] }}\nconsumers: {{ shop: {{ key_auth: [ k1 ] }} }}\n\
         upstreams: {{ up: {{ endpoints: [ {} ] }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ key_auth: {{}} }} ], upstream: up }} }}\n",
        upstream.address()
    ));
    let mut h2 = H2::client(weir.client());
    let stream = h2.get("/refused");
    h2.message(stream).expect_status(401);
    let told = line(&weir, "/refused");
    assert_eq!((&told["why"], told.get("who")), (&"key_missing".into(), None));
    assert_eq!(told["req"], told["request_id"]);
    weir.client().ask("GET /let-in HTTP/1.1\r\nHost: h\r\nX-Api-Key: k1\r\n\r\n").expect_status(200);
    let told = line(&weir, "/let-in");
    assert_eq!((&told["who"], told.get("why")), (&"shop".into(), None));
    assert_eq!(told["req"], told["request_id"]);
}

#[test]
fn mistakes_say_where_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for (log, says) in [
        ("fields: [ { a: \"= request.boddy\" } ]", "request.body"),
        ("fields: [ { a: \"= request.body.id\" } ]", "no body is read for the access log"),
        ("fields: [ { a: \"= response.body.id\" } ]", "the filter `transform` knows it"),
        (
            "fields: [ { a: '= request.headers[request.args.h]' } ]",
            "a name that is computed could bring any header field into the log",
        ),
        ("fields: [ { a: '= response.headers[request.args.h]' } ]", "could bring any header field"),
        (
            "redact: { client: truncate }, fields: [ { a: \"= string(client.ip)\" } ]",
            "`access_log.redact` keeps `client` out of the log",
        ),
        (
            "redact: { \"header:X-A\": hide }, fields: [ { a: '= request.headers[\"x-a\"]' } ]",
            "keeps `header:X-A` out of the log",
        ),
        ("redact: { uri: drop }, format: \"{time} {= request.args.a }\"", "keeps `uri` out of the log"),
        ("fields: [ { status: \"= response.status\" } ]", "`status` is a field of the log's own"),
        ("fields: [ { a: \"= now\" }, { a: \"= now\" } ]", "the line has a field `a` already"),
        ("fields: [ { \"a b\": \"= now\" } ]", "`a b` cannot be the key of a field"),
        ("fields: [ { a: \"{path}\" } ]", "no placeholders"),
        ("fields: [ { a: \"= \\\"${HOME}\\\"\" } ]", "never a part of an expression"),
        ("format: \"{time} {= request.path\"", "this expression does not end"),
        ("format: \"{time} {= request.paht }\"", "request.path"),
        ("format: \"{time} {= request.path } {nonsense}\"", "unknown field {nonsense}"),
        ("format: \"{time}\", fields: [ { a: \"= now\" } ]", "write the expression of `a` into the template"),
    ] {
        let yaml = format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nroutes: {{ a: {{ match: {{ path: / }}, respond: {{ \
             status: 200 }} }} }}\naccess_log: {{ {log} }}\n"
        );
        std::fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
        let done = run_weir(dir.path(), &["check"]);
        assert_eq!(done.code, Some(1), "{log}: {}{}", done.stdout, done.stderr);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains(says) && said.contains("weir.yaml:3:"), "{log}: {said}");
    }
    {
        let (log, says) =
            ("fields: [ { a: '= request.headers[\"authorization\"]' } ]", "carries credentials");
        let yaml = format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nroutes: {{ a: {{ match: {{ path: / }}, respond: {{ \
             status: 200 }} }} }}\naccess_log: {{ {log} }}\n"
        );
        std::fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
        let done = run_weir(dir.path(), &["check"]);
        assert_eq!(done.code, Some(0), "{log}: {}{}", done.stdout, done.stderr);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains(says), "{log}: {said}");
    }
}
