//! The admin listener from outside: a real gateway, raw bytes, and the client.

#![allow(clippy::unwrap_used, reason = "helpers of tests too: a panic is how a test fails")]

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_admin::{Admin, client};
use weir_gateway::Gateway;
use weir_gateway::config::Source;
use weir_wire::listen::Address;

const WAIT: Duration = Duration::from_secs(5);

/// A config without `admin`.
const GATEWAY: &str = "\
workers: 1
watch: false
listeners: { web: { address: 127.0.0.1:0 } }
upstreams: { orders: { endpoints: [ 127.0.0.1:9 ] } }
routes:
  hello: { match: { path: /hello }, respond: { status: 200, body: \"hello\\n\" } }
  orders: { match: { path: /orders/* }, upstream: orders }
shutdown: { delay: 0s, drain: 5s }
";

/// A gateway with its admin listener. It ends with the test.
struct Weir {
    admin: Option<Admin>,
    gateway: Gateway,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

/// A response: status, head, body.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Weir {
    fn start(admin: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.yaml");
        std::fs::write(&file, format!("{GATEWAY}admin: {admin}\n")).unwrap();
        let gateway = weir_gateway::start(Source::file(&file)).unwrap();
        let admin = Admin::start(gateway.clone()).unwrap();
        Self { admin: Some(admin), gateway, file, _folder: folder }
    }

    fn local() -> Self {
        Self::start("{ address: 127.0.0.1:0 }")
    }

    fn shown(&self) -> Option<Address> {
        self.admin.as_ref().unwrap().address()
    }

    fn address(&self) -> SocketAddr {
        match self.shown() {
            Some(Address::Tcp(address)) => address,
            other => panic!("{other:?}"),
        }
    }

    fn rewrite(&self, admin: &str) {
        std::fs::write(&self.file, format!("{GATEWAY}admin: {admin}\n")).unwrap();
        self.gateway.reload().unwrap();
    }

    fn ask(&self, line: &str, fields: &str) -> Reply {
        ask(self.address(), line, fields)
    }

    fn until(&self, what: &str, is_so: impl Fn(Option<Address>) -> bool) {
        weir_testkit::eventually(what, || is_so(self.shown()));
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        self.gateway.stop();
        drop(self.admin.take());
    }
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

/// `fields` are sent as they are; without a Host among them, the address is sent.
fn ask(address: SocketAddr, line: &str, fields: &str) -> Reply {
    let host = if fields.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    say(address, format!("{line} HTTP/1.1\r\n{host}{fields}Connection: close\r\n\r\n").as_bytes())
}

fn say(address: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all); // a reset after the response is harmless
    parse(&String::from_utf8(all).unwrap())
}

fn parse(text: &str) -> Reply {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

// === endpoints ===

#[test]
fn each_endpoint_answers() {
    let weir = Weir::local();
    for (line, status, media, body) in [
        ("GET /", 200, "text/html; charset=utf-8", "<title>Overview "),
        ("GET /healthz", 200, "text/plain; charset=utf-8", "ok\n"),
        ("GET /readyz", 200, "text/plain; charset=utf-8", "ready\n"),
        ("GET /readyz?verbose", 200, "text/plain; charset=utf-8", "ready\n"),
        ("GET /metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "weir_build_info"),
        ("GET /status", 200, "application/json", "\"running\""),
        ("POST /reload", 200, "application/json", "\"revision\""),
        ("GET /nothing", 404, "application/problem+json", "no such path"),
        ("GET /status/", 404, "application/problem+json", "no such path"),
        ("OPTIONS *", 404, "application/problem+json", "no such path"),
    ] {
        let reply = weir.ask(line, "");
        assert_eq!(reply.status, status, "{line}: {}", reply.body);
        assert_eq!(reply.field("content-type"), Some(media), "{line}");
        assert!(reply.body.contains(body), "{line}: {}", reply.body);
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(reply.field(name), Some(value), "{line} {name}");
        }
        assert!(reply.field("content-security-policy").unwrap().starts_with("default-src 'none'"), "{line}");
    }
}

#[test]
fn head_is_get_without_a_body() {
    let weir = Weir::local();
    for path in ["/", "/healthz", "/readyz", "/metrics", "/status"] {
        let reply = weir.ask(&format!("HEAD {path}"), "");
        assert_eq!((reply.status, reply.body.as_str()), (200, ""), "{path}");
        assert!(reply.field("content-length").unwrap().parse::<usize>().unwrap() > 0, "{path}");
    }
}

#[test]
fn other_methods_are_told_which_are_allowed() {
    let weir = Weir::local();
    for (line, allowed) in [
        ("POST /status", "GET, HEAD"),
        ("DELETE /", "GET, HEAD"),
        ("OPTIONS /metrics", "GET, HEAD"),
        ("GET /reload", "POST"),
        ("HEAD /drain", "POST"),
        ("PUT /drain", "POST"),
    ] {
        let reply = weir.ask(line, "");
        assert_eq!((reply.status, reply.field("allow")), (405, Some(allowed)), "{line}");
    }
    assert!(weir.gateway.is_ready());
}

#[test]
fn status_tells_what_runs() {
    let weir = Weir::local();
    let status = weir.ask("GET /status", "").json();
    assert_eq!(status["state"], "running");
    assert_eq!((&status["workers"], &status["routes"]), (&1.into(), &2.into()));
    let web = weir.gateway.address("web").unwrap().to_string();
    assert_eq!(status["listeners"]["web"]["address"], web.as_str());
    let endpoint = &status["upstreams"]["orders"]["endpoints"][0];
    assert_eq!((&endpoint["address"], &endpoint["healthy"]), (&"127.0.0.1:9".into(), &true.into()));
    for (page, told) in [("/", web.as_str()), ("/upstreams", "127.0.0.1:9")] {
        let page = weir.ask(&format!("GET {page}"), "").body;
        assert!(page.contains(told), "{told}: {page}");
    }
}

#[test]
fn connections_are_kept() {
    let weir = Weir::local();
    let mut stream = connect(weir.address());
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", weir.address());
    let mut expected = None;
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).unwrap();
        let mut buffer = vec![0; expected.unwrap_or(4096)];
        let n = stream.read(&mut buffer).unwrap();
        assert!(buffer[..n].ends_with(b"\r\n\r\nok\n"));
        expected = Some(n);
    }
}

#[test]
fn http_1_0_without_a_host_is_a_health_check_too() {
    let weir = Weir::local();
    assert_eq!(say(weir.address(), b"GET /readyz HTTP/1.0\r\n\r\n").status, 200);
}

// === metrics ===

#[test]
fn metrics_follow_accept_and_promtool_finds_nothing() {
    let weir = Weir::local();
    let web = weir.gateway.address("web").unwrap();
    assert_eq!(ask(web, "GET /hello", "").status, 200);
    let open = weir.ask("GET /metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(open.field("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.body.ends_with("# EOF\n"));
    let plain = weir.ask("GET /metrics", "");
    assert!(plain.body.contains("weir_requests_total{route=\"hello\",code=\"200\"} 1"), "{}", plain.body);

    let promtool = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn();
    let Ok(mut promtool) = promtool else {
        return eprintln!("promtool is not installed: not checked with it");
    };
    promtool.stdin.take().unwrap().write_all(plain.body.as_bytes()).unwrap();
    assert!(promtool.wait().unwrap().success(), "{}", plain.body);
}

// === access ===

#[test]
fn a_token_guards_all_but_health_and_metrics() {
    let weir = Weir::start("{ address: 127.0.0.1:0, token: s3cret }");
    for line in ["GET /", "GET /status", "POST /reload", "POST /drain", "GET /nothing", "DELETE /status"] {
        let missing = weir.ask(line, "");
        assert_eq!(
            (missing.status, missing.field("www-authenticate")),
            (401, Some("Bearer realm=\"weir\"")),
            "{line}"
        );
        let wrong = weir.ask(line, "Authorization: Bearer s3creT\r\n");
        assert_eq!(wrong.status, 401, "{line}");
        assert!(wrong.field("www-authenticate").unwrap().contains("invalid_token"), "{line}");
        assert!(!wrong.body.contains("s3creT"), "{}", wrong.body);
    }
    for line in ["GET /healthz", "GET /readyz", "GET /metrics"] {
        assert_eq!(weir.ask(line, "").status, 200, "{line}");
    }
    for (line, status) in [("GET /", 200), ("GET /status", 200), ("POST /reload", 200), ("GET /nothing", 404)]
    {
        assert_eq!(weir.ask(line, "Authorization: Bearer s3cret\r\n").status, status, "{line}");
    }
    assert!(weir.gateway.is_ready());
}

#[test]
fn pages_from_elsewhere_are_refused() {
    let weir = Weir::local();
    for fields in [
        "Host: evil.example\r\n",
        "Host: evil.example:9180\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Host: localhost\r\nSec-Fetch-Site: same-site\r\n",
    ] {
        for line in ["GET /", "GET /status", "GET /metrics", "POST /reload", "POST /drain", "OPTIONS /drain"]
        {
            let reply = weir.ask(line, fields);
            assert_eq!(reply.status, 403, "{line} {fields}");
            assert_eq!(reply.field("content-type"), Some("application/problem+json"));
            assert_eq!(reply.field("access-control-allow-origin"), None);
        }
    }
    assert!(weir.gateway.is_ready());
    for fields in
        ["Host: localhost:1\r\n", "Host: [::1]:9180\r\n", "Host: 10.1.2.3\r\n", "Sec-Fetch-Site: none\r\n"]
    {
        assert_eq!(weir.ask("GET /status", fields).status, 200, "{fields}");
    }
    for line in ["GET /healthz", "GET /readyz"] {
        assert_eq!(weir.ask(line, "Host: weir.example\r\n").status, 200, "{line}");
    }
    for head in ["GET /status HTTP/1.1\r\n", "GET /status HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n"]
    {
        let reply = say(weir.address(), format!("{head}Connection: close\r\n\r\n").as_bytes());
        assert_eq!(reply.status, 400, "{head}");
    }
    assert_eq!(weir.ask("GET http://evil.example/status", "").status, 403);
}

// === limits ===

#[test]
fn heads_and_bodies_are_limited() {
    let weir = Weir::local();
    let long = format!("X-Long: {}\r\n", "a".repeat(17 * 1024));
    assert_eq!(weir.ask("GET /healthz", &long).status, 431);
    let many: String = (0..80).map(|n| format!("X-{n}: 1\r\n")).collect();
    assert_eq!(weir.ask("GET /healthz", &many).status, 431);
    assert_eq!(weir.ask("POST /reload", "Content-Length: 65537\r\n").status, 413);
    let chunk = format!("11000\r\n{}\r\n0\r\n\r\n", "a".repeat(0x11000));
    let chunked = format!(
        "POST /reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
    );
    assert_eq!(say(weir.address(), chunked.as_bytes()).status, 413);
    let body = "POST /reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(say(weir.address(), body.as_bytes()).status, 200);
}

#[test]
fn idle_connections_can_not_keep_a_probe_out() {
    let weir = Weir::local();
    let idle: Vec<TcpStream> = (0..200).map(|_| connect(weir.address())).collect();
    assert_eq!(weir.ask("GET /healthz", "").status, 200);
    let mut first = &idle[0];
    assert_eq!(first.read(&mut [0; 1]).unwrap_or(0), 0, "the oldest made room");
}

// === reload ===

#[test]
fn a_refused_reload_changes_nothing_and_says_why() {
    let weir = Weir::local();
    let before = weir.ask("GET /status", "").json();
    std::fs::write(&weir.file, format!("{GATEWAY}admin: {{ address: 127.0.0.1:0 }}\nworker: 2\n")).unwrap();
    let refused = weir.ask("POST /reload", "");
    assert_eq!((refused.status, refused.field("content-type")), (422, Some("application/problem+json")));
    let document = refused.json();
    assert_eq!((&document["status"], &document["errors"]), (&422.into(), &1.into()));
    // The list also has the warning that the config listens on port 0.
    let found = document["diagnostics"].as_array().unwrap();
    let errors: Vec<_> = found.iter().filter(|d| d["severity"] == "error").map(|d| &d["path"]).collect();
    assert_eq!(errors, ["worker"]);
    assert!(document["text"].as_str().unwrap().contains("workers"), "{document}");

    let answer = client::reload(&weir.address().to_string(), None).unwrap();
    assert!(!answer.is_success());
    assert!(answer.explanation().contains("worker"), "{}", answer.explanation());

    let after = weir.ask("GET /status", "").json();
    assert_eq!((&before["revision"], &before["listeners"]), (&after["revision"], &after["listeners"]));
    assert_eq!(ask(weir.gateway.address("web").unwrap(), "GET /hello", "").body, "hello\n");

    std::fs::write(&weir.file, format!("{GATEWAY}admin: {{ address: 127.0.0.1:0 }}\nexpose_causes: true\n"))
        .unwrap();
    let done = weir.ask("POST /reload", "");
    assert_eq!(done.status, 200);
    assert_ne!(done.json()["revision"], before["revision"]);
    // Port 0 causes a warning, the only diagnostic.
    assert_eq!(done.json()["warnings"], done.json()["diagnostics"].as_array().unwrap().len());
    assert!(done.json()["diagnostics"].as_array().unwrap().iter().all(|d| d["severity"] == "warning"));
}

#[test]
fn a_new_token_counts_at_once() {
    let weir = Weir::local();
    let address = weir.address();
    weir.rewrite("{ address: 127.0.0.1:0, token: one }");
    assert_eq!(weir.ask("GET /status", "").status, 401);
    assert_eq!(weir.ask("GET /status", "Authorization: Bearer one\r\n").status, 200);
    weir.rewrite("{ address: 127.0.0.1:0, token: two }");
    assert_eq!(weir.ask("GET /status", "Authorization: Bearer one\r\n").status, 401);
    assert_eq!(weir.ask("GET /status", "Authorization: Bearer two\r\n").status, 200);
    assert_eq!(weir.address(), address);
}

#[test]
fn a_new_address_replaces_the_old_one() {
    let weir = Weir::local();
    let first = weir.address();
    let idle = connect(first);

    // Move to a Unix socket.
    let path = weir.file.with_file_name("admin.sock");
    let admin = format!("{{ address: \"unix:{}\" }}", path.display());
    std::fs::write(&weir.file, format!("{GATEWAY}admin: {admin}\n")).unwrap();
    // The request arrives on the address that the reload closes.
    assert_eq!(client::reload(&first.to_string(), None).unwrap().status, 200);
    weir.until("unix", |shown| matches!(shown, Some(Address::Unix(_))));
    let unix = format!("unix:{}", path.display());
    assert_eq!(client::status(&unix, None).unwrap().json()["state"], "running");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((&idle).read(&mut [0; 1]).unwrap(), 0, "idle connections end");
    assert!(TcpStream::connect(first).is_err());

    // Turn the listener off, and on again.
    weir.rewrite("{ address: \"off\" }");
    weir.until("off", |shown| shown.is_none());
    assert!(!path.exists());
    weir.rewrite("{ address: 127.0.0.1:0 }");
    weir.until("on", |shown| shown.is_some());
    assert_eq!(weir.ask("GET /healthz", "").status, 200);
}

#[test]
fn an_address_that_overlaps_our_own_is_taken_over() {
    let weir = Weir::local();
    // An explicit port.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    weir.rewrite(&format!("{{ address: 127.0.0.1:{port} }}"));
    weir.until("narrow", |shown| shown.is_some_and(|a| a.to_string() == format!("127.0.0.1:{port}")));
    weir.rewrite(&format!("{{ address: 0.0.0.0:{port}, token: t }}"));
    weir.until("wide", |shown| shown.is_some_and(|a| a.to_string() == format!("0.0.0.0:{port}")));
    assert_eq!(ask(SocketAddr::from(([127, 0, 0, 1], port)), "GET /healthz", "").status, 200);
}

/// Otherwise a reload could pass part of the connections to a route, and with them the tokens of operators. The check
/// of the config cannot know the port.
#[test]
fn no_listener_joins_the_address() {
    let weir = Weir::local();
    for address in [weir.address().to_string(), format!("0.0.0.0:{}", weir.address().port())] {
        let joined = GATEWAY.replace("127.0.0.1:0", &address);
        std::fs::write(&weir.file, format!("{joined}admin: {{ address: 127.0.0.1:0 }}\n")).unwrap();
        let refused = weir.gateway.reload().unwrap_err().diagnostics.to_text();
        assert!(refused.contains("is taken by process"), "{refused}");
    }
    assert_eq!(weir.ask("GET /healthz", "").status, 200);
}

#[test]
fn the_old_address_is_kept_where_the_new_one_is_taken() {
    let weir = Weir::local();
    let (first, taken) = (weir.address(), TcpListener::bind("127.0.0.1:0").unwrap());
    let taken_address = taken.local_addr().unwrap();
    weir.rewrite(&format!("{{ address: \"{taken_address}\" }}"));
    assert_eq!(weir.address(), first);
    assert_eq!(weir.ask("GET /healthz", "").status, 200);
    // The next reload tries again.
    drop(taken);
    weir.gateway.reload().unwrap();
    weir.until("moved", |shown| shown == Some(Address::Tcp(taken_address)));
}

#[test]
fn a_taken_address_names_its_holder() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!("{GATEWAY}admin: {{ address: \"{}\" }}\n", taken.local_addr().unwrap());
    let gateway = weir_gateway::start(Source::text("weir.yaml", text)).unwrap();
    let error = Admin::start(gateway.clone()).unwrap_err();
    assert!(error.contains("admin.address") && error.contains(&std::process::id().to_string()), "{error}");
    gateway.stop();
}

// === drain ===

#[test]
fn a_drain_is_answered_before_it_is_over() {
    let mut weir = Weir::local();
    let web = weir.gateway.address("web").unwrap();
    // An exchange in progress: its request never ends.
    let mut slow = connect(web);
    slow.write_all(b"POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab").unwrap();
    weir_testkit::eventually("the exchange is under way", || weir.gateway.status().connections == 1);

    let answer = client::drain(&weir.address().to_string(), None).unwrap();
    assert_eq!(answer.status, 202);
    assert_eq!(answer.json()["deadline"], "5s");
    let deadline = Instant::now() + WAIT;
    while weir.ask("GET /readyz", "").status == 200 {
        assert!(Instant::now() < deadline, "still ready");
    }
    let ready = weir.ask("GET /readyz", "");
    assert_eq!((ready.status, ready.body.as_str()), (503, "draining\n"));
    assert_eq!(weir.ask("GET /healthz", "").status, 200);
    assert_eq!(weir.ask("GET /status", "").json()["state"], "draining");
    assert_eq!(weir.ask("POST /reload", "").status, 409);
    assert_eq!(weir.ask("POST /drain", "").status, 202);

    drop(slow);
    weir.gateway.wait();
    assert_eq!(weir.ask("GET /readyz", "").status, 503);
    let address = weir.address();
    drop(weir.admin.take());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn the_answer_to_a_drain_is_sent_even_if_nothing_holds_it_up() {
    for _ in 0..20 {
        let mut weir = Weir::local();
        let address = weir.address().to_string();
        let asked = std::thread::spawn(move || client::drain(&address, None).unwrap().status);
        weir.gateway.wait();
        drop(weir.admin.take());
        assert_eq!(asked.join().unwrap(), 202);
    }
}

// === the client ===

#[test]
fn the_client_says_what_is_wrong() {
    let weir = Weir::start("{ address: 127.0.0.1:0, token: s3cret }");
    let address = weir.address().to_string();
    let refused = client::status(&address, None).unwrap();
    assert_eq!(refused.status, 401);
    assert!(refused.explanation().contains("admin.token"), "{}", refused.explanation());
    assert!(client::status(&address, Some("s3cret")).unwrap().is_success());
    let by_name = format!("localhost:{}", weir.address().port());
    assert!(client::status(&by_name, Some("s3cret")).unwrap().is_success());

    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let web = weir.gateway.address("web").unwrap().to_string();
    for (address, said) in [
        (unused.as_str(), "connection refused; is it running?"),
        ("unix:/nowhere/weir.sock", "there is no such socket"),
        ("http://", "is not an address"),
        (web.as_str(), "is not the admin listener of a Weir: it said `HTTP/1.1 404 Not Found`"),
    ] {
        let error = client::status(address, None).unwrap_err().explanation();
        assert!(error.contains(said), "{address}: {error}");
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let asked = std::thread::spawn(move || client::status(&address, None));
    drop(silent.accept().unwrap());
    let error = asked.join().unwrap().unwrap_err().explanation();
    assert!(error.contains("did not answer"), "{error}");
}
