//! `files_by_header:` an upstream names a file in a field of its response, and the client gets that file.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use weir_testkit::{Response, Upstream, Weir, run_weir};

use crate::cause::{
    FILES_BY_HEADER, FILES_HIDDEN, FILES_MISSING, FILES_NO_INDEX, FILES_OUTSIDE, FILES_RANGE,
};
use crate::support::{OK, WEB};

struct App {
    upstream: Upstream,
    weir: Weir,
    _dir: TempDir,
}

impl App {
    /// An upstream that answers with the fields of the request's `x-answer`, `|` between them.
    #[track_caller]
    fn new(filters: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("private/sub")).unwrap();
        fs::create_dir(at("reports")).unwrap();
        for (name, text) in [
            ("private/a.txt", "0123456789"),
            ("private/sub/b c.bin", "bc"),
            ("private/.env", "secret"),
            ("reports/r.pdf", "report"),
            ("secret.txt", "secret"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        fs::write(at("private/long.txt"), "x".repeat(3_000_000)).unwrap();
        symlink("../secret.txt", at("private/out.txt")).unwrap();
        symlink("/etc/passwd", at("private/passwd")).unwrap();
        symlink("a.txt", at("private/in.txt")).unwrap();
        let upstream = Upstream::script(|conn| {
            while let Some(request) = conn.next_request() {
                let fields = request.head.header("x-answer").unwrap_or_default().replace('|', "\r\n");
                let (status, fields) = fields.split_once(' ').unwrap_or(("200", &fields));
                conn.send(format!("HTTP/1.1 {status} Any\r\n{fields}\r\nContent-Length: 4\r\n\r\nbody"));
            }
        });
        let weir = Weir::start(&format!(
            "{WEB}\nexpose_causes: true\nupstreams: {{ app: {{ endpoints: [{}] }} }}\nroutes: {{ all: {{ filters: [ {filters} ], upstream: app, files_by_header: \
             {{ x-accel-redirect: {{ /downloads/: {}, /downloads/reports/: {} }}, x-sendfile: {{ /srv/: {} }} }} }} }}\n",
            upstream.address(),
            at("private").display(),
            at("reports").display(),
            at("private").display(),
        ));
        Self { upstream, weir, _dir: dir }
    }

    #[track_caller]
    fn ask(&self, request: &str, answer: &str) -> Response {
        let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
        let fields: String = fields.lines().map(|field| format!("{field}\r\n")).collect();
        let body = if line.starts_with("POST") { "ab" } else { "" };
        self.weir
            .client()
            .ask(format!("{line} HTTP/1.1\r\nHost: weir.test\r\n{fields}X-Answer: {answer}\r\n\r\n{body}"))
    }
}

#[test]
fn the_file_that_the_upstream_names() {
    let app = App::new("");
    for (named, body) in [
        ("200 X-Accel-Redirect: /downloads/a.txt", "0123456789"),
        ("200 x-accel-redirect: /downloads/sub/b%20c.bin?token=1", "bc"),
        ("200 X-Accel-Redirect: /downloads/reports/r.pdf", "report"),
        ("200 X-Sendfile: /srv/in.txt", "0123456789"),
        ("201 X-Accel-Redirect: /downloads/a.txt", "0123456789"),
    ] {
        let response = app.ask("GET /any", named);
        response
            .expect_status(200)
            .expect_body(body)
            .expect_no_header("x-accel-redirect")
            .expect_no_header("x-sendfile");
        assert!(response.head.header("etag").is_some() && response.head.header("last-modified").is_some());
    }
    let long = app.ask("GET /", "200 X-Accel-Redirect: /downloads/long.txt");
    assert_eq!(long.body.bytes.len(), 3_000_000);
    let mut client = app.weir.client();
    for _ in 0..3 {
        let request =
            "GET / HTTP/1.1\r\nHost: weir.test\r\nX-Answer: 200 X-Accel-Redirect: /downloads/a.txt\r\n\r\n";
        client.ask(request).expect_status(200).expect_body("0123456789");
    }
    assert!(app.upstream.requests().len() >= 3);
}

/// The rest of the upstream's head stays, as with nginx; its body and what describes it do not.
#[test]
fn fields_of_the_upstream() {
    let app = App::new("");
    let response = app.ask(
        "GET /",
        "200 X-Accel-Redirect: /downloads/a.txt|Set-Cookie: a=1|Set-Cookie: b=2|Cache-Control: private|Expires: 0|\
         Content-Type: text/csv|Content-Disposition: attachment|ETag: \"no\"|Content-Encoding: gzip|Vary: cookie|X-Own: 1",
    );
    response.expect_status(200).expect_body("0123456789").expect_no_header("content-encoding");
    for (name, values) in [
        ("set-cookie", vec!["a=1", "b=2"]),
        ("cache-control", vec!["private"]),
        ("expires", vec!["0"]),
        ("content-type", vec!["text/csv"]),
        ("content-disposition", vec!["attachment"]),
        ("vary", vec!["cookie"]),
        ("x-own", vec!["1"]),
        ("content-length", vec!["10"]),
    ] {
        assert_eq!(response.head.all(name), values, "{name}");
    }
    assert_eq!(response.head.all("etag").len(), 1);
    assert_ne!(response.head.all("etag"), ["\"no\""]);
    app.ask("GET /", "200 X-Accel-Redirect: /downloads/a.txt")
        .expect_header("content-type", "text/plain; charset=utf-8");
}

#[test]
fn ranges_conditions_and_methods() {
    let app = App::new("");
    let named = "200 X-Accel-Redirect: /downloads/a.txt|Content-Type: a/b";
    let part = app.ask("GET /\nRange: bytes=2-4", named);
    part.expect_status(206).expect_body("234").expect_header("content-range", "bytes 2-4/10");
    let parts = app.ask("GET /\nRange: bytes=0-0,9-9", named);
    assert!(
        parts.expect_status(206).head.header("content-type").unwrap().starts_with("multipart/byteranges")
    );
    assert_eq!(parts.head.all("content-type").len(), 1);
    app.ask("GET /\nRange: bytes=10-", named).expect_cause(FILES_RANGE);
    let tag = app.ask("GET /", named).head.header("etag").unwrap().to_owned();
    app.ask(&format!("GET /\nIf-None-Match: {tag}"), named).expect_status(304).expect_body("");
    let post = app.ask("POST /\nContent-Length: 2\nRange: bytes=2-4", named);
    post.expect_status(200).expect_body("0123456789");
    // The upstream has done the work, so no condition makes it 304 (RFC 9110 §13.1.2).
    app.ask("POST /\nContent-Length: 2\nIf-None-Match: *", named)
        .expect_status(200)
        .expect_body("0123456789");
    let mut client = app.weir.client();
    client.send(format!("HEAD / HTTP/1.1\r\nHost: weir.test\r\nX-Answer: {named}\r\n\r\n"));
    let head = client.read_response_to_head();
    head.expect_status(200).expect_header("content-length", "10");
}

#[test]
fn nothing_outside_the_folders() {
    let app = App::new("");
    for (named, cause) in [
        ("/downloads/../secret.txt", FILES_BY_HEADER),
        ("/downloads/sub/../../secret.txt", FILES_BY_HEADER),
        ("/downloads/%2e%2e/secret.txt", FILES_BY_HEADER),
        ("/downloads/..%2fsecret.txt", FILES_BY_HEADER),
        ("/downloads/sub%2fb%20c.bin", FILES_BY_HEADER),
        ("/downloads/a.txt%00.png", FILES_BY_HEADER),
        ("/downloads/%zz", FILES_BY_HEADER),
        ("/downloads", FILES_BY_HEADER),
        ("/etc/passwd", FILES_BY_HEADER),
        ("downloads/a.txt", FILES_BY_HEADER),
        ("http://weir.test/downloads/a.txt", FILES_BY_HEADER),
        ("@named", FILES_BY_HEADER),
        ("", FILES_BY_HEADER),
        ("/srv/a.txt", FILES_BY_HEADER),
        ("/downloads/out.txt", FILES_OUTSIDE),
        ("/downloads/passwd", FILES_OUTSIDE),
        ("/downloads/.env", FILES_HIDDEN),
        ("/downloads/", FILES_NO_INDEX),
        ("/downloads/sub", FILES_NO_INDEX),
        ("/downloads/none.txt", FILES_MISSING),
        ("/downloads/a.txt/", FILES_MISSING),
    ] {
        let response = app.ask("GET /", &format!("200 X-Accel-Redirect: {named}|Set-Cookie: a=1"));
        response.expect_cause(cause).expect_no_header("x-accel-redirect").expect_no_header("set-cookie");
        assert!(!String::from_utf8_lossy(&response.body.bytes).contains("secret"), "{named}");
    }
}

/// A client's own field names nothing, and errors name nothing; the field is removed anyway.
#[test]
fn only_successes_of_the_upstream() {
    let app = App::new("");
    for status in ["404", "500", "302", "401"] {
        let response = app.ask("GET /", &format!("{status} X-Accel-Redirect: /downloads/a.txt"));
        response
            .expect_status(status.parse().unwrap())
            .expect_body("body")
            .expect_no_header("x-accel-redirect");
    }
    app.ask("GET /\nX-Accel-Redirect: /downloads/a.txt", "200 X-Own: 1")
        .expect_status(200)
        .expect_body("body");
    let plain = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ app: {{ endpoints: [{}] }} }}\nroutes: {{ all: {{ upstream: app }} }}\n",
        plain.address()
    ));
    weir.client().get("/").expect_status(200);
}

#[test]
fn response_filters_see_the_file() {
    let app = App::new("{ compress: {} }, { headers: { response: { set: { x-after: yes } } } }");
    let request = "GET /\nAccept-Encoding: gzip";
    let response = app.ask(request, "200 X-Accel-Redirect: /downloads/long.txt");
    response.expect_status(200).expect_header("content-encoding", "gzip").expect_header("x-after", "yes");
    assert_eq!(weir_testkit::decoded("gzip", &response.body.bytes).len(), 3_000_000);
    let errors = App::new("{ errors: { 502: { body: \"sorry\" } } }");
    errors.ask("GET /", "200 X-Accel-Redirect: /nowhere").expect_status(502).expect_body("sorry");
}

#[test]
fn mistakes() {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("weir.yaml");
    for (written, told) in [
        ("{ x-accel-redirect: { /downloads/: ./nowhere } }", "cannot be opened"),
        ("{ x-accel-redirect: { downloads: . } }", "is no beginning of a path"),
        ("{ content-type: { /a/: . } }", "a name that begins with `x-`"),
        ("{ x-accel-redirect: {} }", "names no folder"),
        ("{}", "names no header field"),
    ] {
        let text = format!(
            "{WEB}\nupstreams: {{ app: {{ endpoints: [ 127.0.0.1:9 ] }} }}\n\
             routes: {{ all: {{ upstream: app, files_by_header: {written} }} }}\n"
        );
        fs::write(&config, text).unwrap();
        run_weir(dir.path(), &["check"]).expect_code(1).expect_text(told);
    }
    let text = format!(
        "{WEB}\nroutes: {{ all: {{ respond: {{}}, files_by_header: {{ x-sendfile: {{ /a/: . }} }} }} }}\n"
    );
    fs::write(&config, text).unwrap();
    run_weir(dir.path(), &["check"])
        .expect_code(1)
        .expect_text("no upstream whose responses could name a file");
}
