//! FastCGI from both sides: requests as scripts get them, answers as clients get them, and servers that lie.

use std::fs;

use serde_json::json;
use tempfile::TempDir;
use weir_testkit::fastcgi::{CgiRequest, answer, end, record, stderr, stdout};
use weir_testkit::{Upstream, Weir, eventually, refusing_address, run_weir, table};

use crate::cause::{
    BAD_RESPONSE, BODY_TOO_LARGE, CONNECT_REFUSED, Cause, FASTCGI_NO_SCRIPT, FILES_HIDDEN, FILES_OUTSIDE,
    RESPONSE_TIMEOUT, UPSTREAM_CLOSED, UPSTREAM_OVERLOADED,
};
use crate::support::WEB;

/// A root with scripts and other files, and a gateway that serves it.
struct Site {
    dir: TempDir,
    weir: Weir,
}

impl Site {
    /// A gateway in front of a FastCGI server. `settings` stand beside its endpoint, `scripts` beside the root.
    #[track_caller]
    fn new(upstream: &Upstream, settings: &str, scripts: &str) -> Self {
        Self::with(&format!("[{}]{settings}", upstream.address()), scripts, "upstream: php", "")
    }

    /// As [`Self::new`], with the endpoints in front of the settings, a target, and filters.
    #[track_caller]
    fn with(endpoints: &str, scripts: &str, target: &str, filters: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("admin")).unwrap();
        for name in [
            "index.php",
            "form.php",
            "admin/index.php",
            "page.txt",
            "picture.jpg",
            "admin/page.txt",
            "old.php.bak",
        ] {
            fs::write(root.join(name), format!("source of {name}")).unwrap();
        }
        let root = root.display();
        let target = target.replace("ROOT", &root.to_string());
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\n\
             stores: {{ pages: {{ memory: 4MiB }} }}\nupstreams: {{ php: {{ protocol: fastcgi, endpoints: {endpoints} }} }}\n\
             routes: {{ site: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], fastcgi: {{ root: {root}{scripts} }}, {target} }} }}\n"
        ));
        Self { dir, weir }
    }

    fn root(&self) -> String {
        self.dir.path().join("root").display().to_string()
    }
}

/// A FastCGI server that answers with what it got, as JSON.
fn echo() -> Upstream {
    Upstream::fastcgi(|request| {
        let seen = json!({ "params": request.params, "body": String::from_utf8_lossy(&request.body) });
        answer(format!("Content-Type: application/json\r\n\r\n{seen}"))
    })
}

/// A server with one answer, whatever is asked.
fn always(bytes: Vec<u8>) -> Upstream {
    Upstream::fastcgi(move |_| bytes.clone())
}

// === Requests ===

#[test]
fn what_a_script_learns() {
    let upstream = echo();
    let site = Site::new(&upstream, "", ", params: { APP_ENV: test }");
    let mut client = site.weir.client();
    let seen = client
        .ask("GET /form.php?a=b%20c HTTP/1.1\r\nHost: h:81\r\nX-A: 1\r\nX_A: 2\r\nProxy: evil\r\nX-A: 3\r\n\r\n")
        .expect_status(200)
        .expect_header("content-type", "application/json")
        .json();
    let param = |name: &str| seen["params"][name].as_str().unwrap_or("-").to_owned();
    for (name, value) in [
        ("SCRIPT_FILENAME", &*format!("{}/form.php", site.root())),
        ("SCRIPT_NAME", "/form.php"),
        ("DOCUMENT_ROOT", &site.root()),
        ("REQUEST_URI", "/form.php?a=b%20c"),
        ("QUERY_STRING", "a=b%20c"),
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "h"),
        ("SERVER_PORT", site.weir.address("web").rsplit(':').next().unwrap()),
        ("SERVER_ADDR", "127.0.0.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", &client.local_address().port().to_string()),
        ("HTTP_HOST", "h:81"),
        ("HTTP_X_A", "1, 3"),
        ("APP_ENV", "test"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_PROXY", "-"),
        ("HTTPS", "-"),
        ("PATH_INFO", "-"),
        ("CONTENT_LENGTH", "-"),
    ] {
        assert_eq!(param(name), value, "{name} in {seen}");
    }
}

/// `weir import` writes these filters for nginx's `fastcgi_param HTTP_HOST $host`: in lower case, without the client's
/// port.
#[test]
fn a_rewritten_host_is_that_of_the_script() {
    let upstream = echo();
    for (setting, expected) in [("{= request.host }", "shop.test"), ("{= request.host }:80", "shop.test:80")]
    {
        let filters = format!("{{ rewrite: {{ host: \"{setting}\" }} }}");
        let site = Site::with(&format!("[{}]", upstream.address()), "", "upstream: php", &filters);
        let request = "GET /form.php HTTP/1.1\r\nHost: Shop.Test:81\r\n\r\n";
        let seen = site.weir.client().ask(request).expect_status(200).json();
        assert_eq!(seen["params"]["HTTP_HOST"], expected, "{seen}");
    }
}

#[test]
fn bodies_have_a_length() {
    let upstream = echo();
    let site = Site::new(&upstream, "", ", buffer: 1KiB");
    let long = "x".repeat(200_000);
    let chunked = |body: &str| {
        format!(
            "POST /form.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        )
    };
    let rows = [
        (
            "by its length",
            "POST /form.php HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody".to_owned(),
            "body",
        ),
        (
            "longer than records",
            format!("PUT /form.php HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{long}", long.len()),
            &*long,
        ),
        ("chunked", chunked("in chunks"), "in chunks"),
        ("none", "POST /form.php HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), ""),
    ];
    table(
        &rows,
        |row| row.0,
        |(_, request, body)| {
            let mut client = site.weir.client();
            for _ in 0..2 {
                let seen = client.ask(request).expect_status(200).json();
                assert!(seen["body"] == *body, "the body differs");
                assert_eq!(seen["params"]["CONTENT_LENGTH"], body.len().to_string());
            }
        },
    );
    site.weir.client().ask(chunked(&"x".repeat(1025))).expect_cause(BODY_TOO_LARGE);
    // By HTTP/2, without a length.
    let mut h2 = site.weir.h2();
    let stream = h2.post("/form.php");
    h2.data(stream, "two ", false);
    h2.data(stream, "pieces", true);
    let seen: serde_json::Value = serde_json::from_slice(&h2.message(stream).body).unwrap();
    assert_eq!((&seen["body"], &seen["params"]["CONTENT_LENGTH"]), (&json!("two pieces"), &json!("10")));
    assert_eq!(seen["params"]["SERVER_PROTOCOL"], "HTTP/2.0");
}

/// No script asks a client for its body, so the gateway does.
#[test]
fn clients_that_wait_are_told_to_send() {
    let upstream = echo();
    let site = Site::new(&upstream, "", "");
    for framing in ["Content-Length: 4", "Transfer-Encoding: chunked"] {
        let mut client = site.weir.client();
        client
            .send(format!("POST /form.php HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"));
        client.expect("HTTP/1.1 100 Continue\r\n\r\n");
        client.send(if framing.starts_with('C') { "body" } else { "4\r\nbody\r\n0\r\n\r\n" });
        let seen = client.read_response().expect_status(200).json();
        assert_eq!((&seen["body"], &seen["params"]["HTTP_EXPECT"]), (&json!("body"), &json!(null)));
    }
}

/// Which file each path runs or sends, where files are sent and everything else goes to the front controller.
#[test]
fn files_first() {
    let upstream = Upstream::fastcgi(|request| answer(format!("\n{}", request.param("SCRIPT_NAME"))));
    let endpoints = format!("[{}]", upstream.address());
    // An index that is a script runs too; its source is never sent.
    for index in ["", ", index: [ index.php ]"] {
        let target = format!("files: {{ root: ROOT, missing: php, precompressed: [gzip]{index} }}");
        files_come_first(&Site::with(
            &endpoints,
            "",
            &target,
            "headers: { response: { set: { x-site: \"1\" } } }",
        ));
    }
}

fn files_come_first(site: &Site) {
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, site.dir.path().join("root").join(name)).unwrap();
    };
    link("/etc/passwd", "passwd");
    // Links to scripts under names that are none, also in a folder and as a precompressed file.
    link("form.php", "form.txt");
    link("admin", "other");
    link("index.php", "admin/notes.txt");
    link("page.txt", "linked.txt");
    link("form.php", "picture.jpg.gz");
    let mut client = site.weir.client();
    for (path, body) in [
        ("/page.txt", "source of page.txt"),
        ("/admin/page.txt", "source of admin/page.txt"),
        ("/", "/index.php"),
        ("/blog/1", "/index.php"),
        ("/form.php", "/form.php"),
        ("/form%2ephp", "/form.php"),
        ("/admin/", "/admin/index.php"),
        ("/none.txt", "/index.php"),
        ("/.env", "/index.php"),
        ("/FORM.PHP", "/index.php"),
        ("/old.php.bak", "/index.php"),
        ("/form.txt", "/index.php"),
        ("/admin/notes.txt", "/index.php"),
        ("/other/notes.txt", "/index.php"),
        ("/other/page.txt", "source of admin/page.txt"),
        ("/linked.txt", "source of page.txt"),
    ] {
        let seen = client.get(path);
        seen.expect_status(200).expect_header("x-site", "1");
        assert_eq!(seen.text(), body, "{path}");
    }
    let seen = client.ask("GET /picture.jpg HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(seen.text(), "source of picture.jpg");
    client.get("/admin?a=b").expect_status(308).expect_header("location", "./admin/?a=b");
    client.get("/picture.jpg/form.php").expect_cause(FASTCGI_NO_SCRIPT);
    client.get("/none.php").expect_cause(FASTCGI_NO_SCRIPT);
    client.get("/.git/x.php").expect_cause(FILES_HIDDEN);
    client.get("/passwd").expect_cause(FILES_OUTSIDE);
    client.request("POST", "/page.txt").expect_status(200).expect_body("/index.php");
}

/// An application behind files, by HTTP.
#[test]
fn files_before_an_application() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("app")).unwrap();
    fs::create_dir(dir.path().join("docs")).unwrap();
    fs::write(dir.path().join("logo.svg"), "<svg/>").unwrap();
    fs::write(dir.path().join("docs/index.html"), "docs").unwrap();
    let [blue, green] = ["blue", "green"].map(Upstream::named);
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ blue: {{ endpoints: [{}] }}, green: {{ endpoints: [{}] }} }}\n\
         routes: {{ site: {{ files: {{ root: {}, missing: {{ blue: 1, green: 0 }} }} }} }}\n",
        blue.address(),
        green.address(),
        dir.path().display()
    ));
    let mut client = weir.client();
    client.get("/logo.svg").expect_status(200).expect_body("<svg/>");
    client.get("/docs/").expect_status(200).expect_body("docs");
    client.get("/docs").expect_status(308);
    client.get("/app").expect_status(200).expect_body("blue");
    client.get("/app/").expect_status(200).expect_body("blue");
    client.get("/").expect_status(200).expect_body("blue");
    let posted = "POST /logo.svg HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
    client.ask(posted).expect_status(200).expect_body("blue");
    assert_eq!(blue.requests().last().unwrap().body.bytes, b"body");
    assert!(green.requests().is_empty());
}

// === Answers ===

#[test]
fn answers_as_clients_get_them() {
    let upstream = Upstream::fastcgi(|request| match request.param("QUERY_STRING") {
        "status" => answer("Status: 404 Not Here\r\nContent-Type: text/plain\r\n\r\nno"),
        "redirect" => answer("Location: /elsewhere?a=b\n\n"),
        "cookies" => answer("Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n"),
        "length" => answer("Content-Length: 4\r\n\r\nbody"),
        "hop" => answer(
            "Connection: close, x-hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 3\r\n\r\nbody",
        ),
        "empty" => answer("\r\n"),
        "surplus" => answer("Content-Length: 4\r\n\r\nbody and more"),
        "split" => [
            record(6, 1, b"Content-Ty", 0),
            stderr("x"),
            stdout("pe: a/b\r\n\r"),
            stdout("\nbo"),
            stdout("dy"),
            end(0),
        ]
        .concat(),
        "long" => answer(format!("\n{}", "0123456789".repeat(100_000))),
        other => answer(format!("\n{other}")),
    });
    let site = Site::new(&upstream, "", "");
    let mut client = site.weir.client();
    let mut get = |query: &str| client.get(&format!("/?{query}"));
    let seen = get("status");
    seen.expect_status(404).expect_body("no");
    assert_eq!(seen.head.line, "HTTP/1.1 404 Not Here");
    get("redirect").expect_status(302).expect_header("location", "/elsewhere?a=b");
    assert_eq!(get("cookies").head.all("set-cookie"), ["a=1", "b=2"]);
    get("length").expect_status(200).expect_header("content-length", "4").expect_body("body");
    get("hop")
        .expect_status(200)
        .expect_body("body")
        .expect_no_header("keep-alive")
        .expect_no_header("x-hop")
        .expect_no_header("connection");
    get("empty").expect_status(200).expect_body("");
    get("surplus").expect_status(200).expect_header("content-length", "4").expect_body("body");
    get("split").expect_status(200).expect_header("content-type", "a/b").expect_body("body");
    assert_eq!(get("long").body.bytes.len(), 1_000_000);
    client.send("HEAD /?length HTTP/1.1\r\nHost: h\r\n\r\n");
    client.read_response_to_head().expect_status(200).expect_header("content-length", "4");
    client.get("/?after").expect_body("after");
    let told = site.weir.wait_log("a script sent more than its Content-Length; the rest was dropped");
    assert_eq!((told.field("route"), told.field("bytes")), (Some("site"), Some("9")));
}

/// What a server says before its body ends, and the answer that a client gets.
#[test]
fn servers_that_lie() {
    let head = || stdout("Content-Type: a/b\r\n\r\n");
    let rows: &[(&str, Vec<u8>, Cause)] = &[
        ("nothing", vec![], UPSTREAM_CLOSED),
        ("half a header", vec![1, 6, 0], UPSTREAM_CLOSED),
        ("half a record", record(6, 1, b"Content-Type: a/b\r\n\r\n", 0)[..12].to_vec(), UPSTREAM_CLOSED),
        ("only errors", stderr("PHP Fatal error"), UPSTREAM_CLOSED),
        ("an end without a response", end(0), BAD_RESPONSE),
        ("an end within the head", [stdout("A: b\r\n"), end(0)].concat(), BAD_RESPONSE),
        ("another request's output", record(6, 2, b"\r\n", 0), BAD_RESPONSE),
        ("another version", vec![2, 6, 0, 1, 0, 0, 0, 0], BAD_RESPONSE),
        ("HTTP", b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), BAD_RESPONSE),
        ("a record for servers", record(5, 1, b"x", 0), BAD_RESPONSE),
        ("a huge name", stdout(format!("{}: x\r\n\r\n", "a".repeat(100_000))), BAD_RESPONSE),
        ("a head without an end", stdout("A: b\r\n".repeat(20_000)), BAD_RESPONSE),
        ("no field", answer("Fatal error: something\r\n\r\n"), BAD_RESPONSE),
        ("a NUL in a value", answer("A: \0\r\n\r\n"), BAD_RESPONSE),
        ("a bare CR", answer("A: b\rX: y\r\n\r\n"), BAD_RESPONSE),
        ("a space in a name", answer("A b: c\r\n\r\n"), BAD_RESPONSE),
        ("status 100", answer("Status: 100 Continue\r\n\r\n"), BAD_RESPONSE),
        ("status 101", answer("Status: 101 Switching\r\nUpgrade: x\r\n\r\n"), BAD_RESPONSE),
        ("two statuses", answer("Status: 200\r\nStatus: 500\r\n\r\n"), BAD_RESPONSE),
        ("two lengths", answer("Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), BAD_RESPONSE),
        ("a length of letters", answer("Content-Length: x\r\n\r\nab"), BAD_RESPONSE),
        ("no role", end(3), BAD_RESPONSE),
        ("overloaded", end(2), UPSTREAM_OVERLOADED),
        ("cannot multiplex", end(1), UPSTREAM_OVERLOADED),
        ("too short", [stdout("Content-Length: 9\r\n\r\n"), end(0)].concat(), (0, "")),
        ("cut behind the head", head(), (0, "")),
    ];
    table(
        rows,
        |row| row.0,
        |(_, bytes, cause)| {
            let upstream = always(bytes.clone());
            let site = Site::new(&upstream, "", "");
            let mut client = site.weir.client();
            client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
            if cause.0 == 0 {
                assert!(client.try_read_response().is_err(), "a cut body must not look complete");
            } else {
                client.read_response().expect_cause(*cause);
            }
            assert_eq!(upstream.connections(), 1, "attempts");
        },
    );
}

#[test]
fn a_body_that_breaks_off_is_not_taken_for_whole() {
    for (name, rest) in
        [("closed", vec![]), ("another request", record(6, 9, b"x", 0)), ("shorter than announced", end(0))]
    {
        for head in ["Content-Length: 200000\r\n\r\n", "X: y\r\n\r\n"] {
            if name == "shorter than announced" && head.starts_with('X') {
                continue;
            }
            let bytes = [stdout(head), stdout("x".repeat(100_000)), rest.clone()].concat();
            let upstream = always(bytes);
            let site = Site::new(&upstream, "", "");
            let mut client = site.weir.client();
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            assert!(client.try_read_response().is_err(), "{name} after {head}");
            eventually("it is logged", || site.weir.stderr().contains("truncated"));
        }
    }
}

#[test]
fn errors_of_scripts_are_logged() {
    let flood = || stderr("e".repeat(50_000)).repeat(100);
    let upstream = Upstream::fastcgi(move |request| match request.param("QUERY_STRING") {
        "flood" => [flood(), stdout("\nfine"), flood(), end(0)].concat(),
        _ => [stderr("PHP message: two\nlines"), stdout("\nfine"), end(0)].concat(),
    });
    let site = Site::new(&upstream, "", "");
    let mut client = site.weir.client();
    client.get("/").expect_status(200).expect_body("fine");
    let told = site.weir.wait_log("a script wrote to its standard error");
    assert_eq!(told.field("route"), Some("site"));
    assert_eq!(told.field("upstream"), Some("php"));
    assert!(told.field("text").unwrap().contains("PHP message: two"), "{told:?}");
    client.get("/?flood").expect_status(200).expect_body("fine");
    eventually("the flood is bounded", || site.weir.stderr().contains("dropped_bytes=9995904"));
}

// === Connections ===

#[test]
fn connections_are_kept_if_the_config_says_so() {
    let keeps = |request: &CgiRequest| answer(format!("\n{}", request.keep));
    let upstream = Upstream::fastcgi(keeps);
    let site = Site::new(&upstream, "", "");
    let mut client = site.weir.client();
    client.get("/").expect_body("false");
    client.get("/").expect_body("false");
    assert_eq!(upstream.connections(), 2, "an idle one would occupy a process of php-fpm");
    let upstream = Upstream::fastcgi(keeps);
    let site = Site::new(&upstream, ", keepalive: 60s", "");
    let mut client = site.weir.client();
    for _ in 0..3 {
        client.get("/").expect_body("true");
        client.ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody").expect_body("true");
        client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
        client.read_response_to_head().expect_status(200);
    }
    assert!(upstream.connections() <= 2, "{} connections", upstream.connections());
}

/// A connection with bytes that no request asked for is not used again, and a dead one is replaced.
#[test]
fn bad_connections_are_replaced() {
    let upstream = Upstream::script(|conn| {
        let number = conn.number;
        while let Some(request) = conn.next_cgi_request() {
            let more = if request.param("QUERY_STRING") == "more" { stdout("stray") } else { Vec::new() };
            if conn.try_send([answer(format!("\n{number}")), more].concat()).is_err() {
                return;
            }
            if request.param("QUERY_STRING") == "close" {
                return;
            }
        }
    });
    let site = Site::new(&upstream, ", keepalive: 60s", "");
    let mut client = site.weir.client();
    client.get("/").expect_body("0");
    client.get("/?more").expect_body("0");
    client.get("/?close").expect_body("1");
    client.get("/").expect_body("2");
}

/// A server may close a kept connection when it has read a request: the request is repeated on another.
#[test]
fn a_request_that_met_the_end_of_its_connection_is_repeated() {
    let upstream = Upstream::script(|conn| {
        let number = conn.number;
        while let Some(request) = conn.next_cgi_request() {
            if number == 0 && request.param("QUERY_STRING") == "lost" {
                return;
            }
            conn.send(answer(format!("\n{number}")));
        }
    });
    let site = Site::new(&upstream, ", keepalive: 60s", "");
    let mut client = site.weir.client();
    client.get("/").expect_body("0");
    client.get("/?lost").expect_body("1");
}

#[test]
fn requests_are_repeated_elsewhere() {
    let (_socket, refusing) = refusing_address();
    let good = echo();
    for (name, bad) in
        [("refused", None), ("overloaded", Some(always(end(2)))), ("closed", Some(always(Vec::new())))]
    {
        let address = bad.as_ref().map_or(refusing, Upstream::address);
        let endpoints = format!(
            "[{{ address: {address} }}, {{ address: {}, priority: 1 }}], retry: {{ methods: all }}, \
             health: {{ outlier: {{ errors: 1 }} }}",
            good.address()
        );
        let site = Site::with(&endpoints, "", "upstream: php", "");
        for request in [
            "POST /form.php HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
            "POST /form.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        ] {
            let seen = site.weir.client().ask(request).expect_status(200).json();
            assert_eq!(seen["body"], "body", "{name}");
        }
    }
    let site = Site::with(&format!("[{refusing}]"), "", "upstream: php", "");
    site.weir.client().get("/").expect_cause(CONNECT_REFUSED);
}

#[test]
fn a_client_that_leaves_ends_the_script() {
    let upstream = Upstream::listen();
    let site = Site::new(&upstream, "", "");
    let mut client = site.weir.client();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut conn = upstream.accept();
    assert!(conn.next_cgi_request().is_some());
    client.reset();
    conn.expect_close();
}

#[test]
fn bodies_stream_both_ways() {
    let upstream = Upstream::listen();
    let site = Site::new(&upstream, "", "");
    let mut client = site.weir.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc");
    let mut conn = upstream.accept();
    conn.read_until([1, 5, 0, 1, 0, 3, 0, 0, b'a', b'b', b'c']);
    conn.send(stdout("X: y\r\n\r\nfirst"));
    client.read_until("5\r\nfirst\r\n");
    client.send("def");
    conn.expect([1, 5, 0, 1, 0, 3, 0, 0, b'd', b'e', b'f', 1, 5, 0, 1, 0, 0, 0, 0]);
    conn.send([stdout("second"), end(0)].concat());
    client.read_until("6\r\nsecond\r\n0\r\n\r\n");
}

#[test]
fn a_script_has_its_time() {
    let upstream = Upstream::script(|conn| {
        conn.next_cgi_request();
        while conn.try_send(stderr("still here")).is_ok() {}
    });
    let site = Site::new(&upstream, ", timeouts: { response: 300ms }", "");
    site.weir.client().get("/").expect_cause(RESPONSE_TIMEOUT);
}

/// The same pages by a filter chain: cached, compressed, rewritten, concealed.
#[test]
fn filters_work_as_on_any_upstream() {
    let upstream = Upstream::fastcgi(|request| {
        let uri = request.param("REQUEST_URI");
        answer(format!(
            "Cache-Control: max-age=60\r\nContent-Type: text/plain\r\n\r\n{uri} {}",
            "x".repeat(2000)
        ))
    });
    let filters =
        "cache: { store: pages }, compress: { algorithms: [gzip] }, rewrite: { strip_prefix: /shop }";
    let filters = filters.replace("}, ", "} }, { ");
    let site =
        Site::with(&format!("[{}]", upstream.address()), "", "upstream: php", &format!("{{ {filters} }}"));
    let mut client = site.weir.client();
    for _ in 0..2 {
        client.get("/shop/a?b=c").expect_status(200).expect_body_with("/a?b=c xxx");
    }
    assert_eq!(upstream.connections(), 1, "the second came from the cache");
    client
        .ask("GET /shop/a?b=c HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: gzip\r\n\r\n")
        .expect_header("content-encoding", "gzip");
}

#[test]
fn a_unix_socket() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("php.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
            let n = stream.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..n]);
        }
        stream.write_all(&answer("\nfine")).unwrap();
    });
    let site = Site::with(&format!("[ \"unix:{}\" ]", path.display()), "", "upstream: php", "");
    site.weir.client().get("/").expect_status(200).expect_body("fine");
    server.join().unwrap();
}

#[test]
fn explained() {
    let site = Site::with("[127.0.0.1:9000]", "", "files: { root: ROOT, missing: php }", "");
    let told = run_weir(site.weir.dir(), &["explain", "GET", "http://h/blog"]);
    told.expect_code(0).expect_text("files    ").expect_text("missing  php, p2c, fastcgi: 127.0.0.1:9000");
}
