//! `files:` from the client's side: files, ranges, applications, and everything that must not be served.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use weir_testkit::{Authority, Client, Tls, Weir, run_weir};

use crate::cause::{FILES_HIDDEN, FILES_METHOD, FILES_MISSING, FILES_NO_INDEX, FILES_OUTSIDE, FILES_RANGE};
use crate::support::WEB;

/// A folder with a site, a secret next to it, and a gateway that serves it.
struct Site {
    dir: TempDir,
    weir: Weir,
}

/// Longer than any buffer on the way.
fn long() -> Vec<u8> {
    (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

impl Site {
    #[track_caller]
    fn new(settings: &str, filters: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("docs/empty")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        for (name, bytes) in [
            ("root/index.html", b"<p>home".to_vec()),
            ("root/page.txt", b"0123456789".to_vec()),
            ("root/long.bin", long()),
            ("root/docs/index.html", b"<p>docs".to_vec()),
            ("root/.git/config", b"secret".to_vec()),
            ("root/empty.txt", Vec::new()),
            ("secret.txt", b"secret".to_vec()),
        ] {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        symlink("../secret.txt", root.join("out.txt")).unwrap();
        symlink("/etc/passwd", root.join("passwd")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("docs", root.join("manual")).unwrap();
        let weir = Weir::start(&format!(
            "{WEB}\nroutes: {{ site: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], files: {{ root: {}{settings} }} }} }}\n",
            root.display()
        ));
        Self { dir, weir }
    }
}

#[test]
fn a_site() {
    let site = Site::new("", "");
    let mut client = site.weir.client();
    for _ in 0..2 {
        client
            .get("/")
            .expect_status(200)
            .expect_body("<p>home")
            .expect_header("content-type", "text/html; charset=utf-8");
        client
            .get("/page.txt")
            .expect_status(200)
            .expect_body("0123456789")
            .expect_header("accept-ranges", "bytes");
        client.get("/manual/").expect_status(200).expect_body("<p>docs");
        client.get("/empty.txt").expect_status(200).expect_body("").expect_header("content-length", "0");
        let response = client.get("/long.bin");
        response.expect_status(200).expect_header("content-type", "application/octet-stream");
        assert!(response.body.bytes == long());
    }
    client.get("/docs?a=b").expect_status(308).expect_header("location", "./docs/?a=b");
    client.send("HEAD /long.bin HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    client.read_response_to_head().expect_status(200).expect_header("content-length", "3000000");
    client.get("/docs/empty/").expect_cause(FILES_NO_INDEX);
    client.request("DELETE", "/page.txt").expect_cause(FILES_METHOD).expect_header("allow", "GET, HEAD");
    fs::write(site.dir.path().join("root/new.txt"), "new").unwrap();
    client.get("/new.txt").expect_status(200).expect_body("new");
}

/// Every known spelling for leaving a root.
#[test]
fn nothing_outside_the_root() {
    for listener in ["", ", escaped_slashes: keep", ", escaped_slashes: decode", ", slashes: keep"] {
        let site = Site::new(", hidden: true, browse: true", "");
        let root = site.dir.path().join("root");
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0{listener} }} }}\n\
             routes: {{ site: {{ match: {{ path: \"/*\" }}, files: {{ root: {}, hidden: true, browse: true }} }} }}\n",
            root.display()
        ));
        for target in [
            "/../secret.txt",
            "/docs/../../secret.txt",
            "/%2e%2e/secret.txt",
            "/%2E%2E%2Fsecret.txt",
            "/..%2fsecret.txt",
            "/..%5csecret.txt",
            "/..\\secret.txt",
            "/%252e%252e/secret.txt",
            "/%252e%252e%252fsecret.txt",
            "/.%2e/secret.txt",
            "/%c0%ae%c0%ae/secret.txt",
            "/%e0%80%ae%e0%80%ae/secret.txt",
            "/%uff0e%uff0e/secret.txt",
            "/..;/secret.txt",
            "/..%00/secret.txt",
            "/....//secret.txt",
            "/./.././secret.txt",
            "//../secret.txt",
            "/docs/..%2f..%2fsecret.txt",
            "/docs%2f..%2f..%2fsecret.txt",
            "/out.txt",
            "/passwd",
            "/up/secret.txt",
            "/up/root/../secret.txt",
            "/manual/../../secret.txt",
            "/page.txt%00.html",
            "/proc/self/environ",
            "//etc/passwd",
            "/%2fetc/passwd",
            "/%2Fetc%2Fpasswd",
        ] {
            let mut client = weir.client();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n"));
            let response = client.read_response();
            assert!(
                matches!(response.status, 400 | 404),
                "{target}: {} {}",
                response.status,
                response.text()
            );
            assert!(!response.text().contains("secret\n") && response.text() != "secret", "{target}");
            assert!(!response.text().contains("root:"), "{target}");
        }
        let absolute =
            weir.client().ask("GET http://weir.test/../secret.txt HTTP/1.1\r\nHost: weir.test\r\n\r\n");
        assert!(matches!(absolute.status, 400 | 404), "{}", absolute.status);
    }
}

#[test]
fn the_log_tells_what_the_client_may_not_know() {
    let site = Site::new("", "");
    let mut client = site.weir.client();
    client.get("/.git/config").expect_cause(FILES_HIDDEN);
    client.get("/%2egit/config").expect_cause(FILES_HIDDEN);
    client.get("/out.txt").expect_cause(FILES_OUTSIDE);
    client.get("/passwd").expect_cause(FILES_OUTSIDE);
    client.get("/none").expect_cause(FILES_MISSING);
    client.get("/page.txt/").expect_cause(FILES_MISSING);
}

/// A redirect to a folder stays on this host, whatever the path.
#[test]
fn a_slash_is_added_on_this_host_only() {
    let site = Site::new("", "");
    let root = site.dir.path().join("root");
    fs::create_dir_all(root.join("evil.example/%2f..")).unwrap();
    fs::create_dir_all(root.join("a:b")).unwrap();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, slashes: keep }} }}\n\
         routes: {{ site: {{ match: {{ path: \"/*\" }}, files: {{ root: {} }} }} }}\n",
        root.display()
    ));
    for (target, location) in
        [("/evil.example", "./evil.example/"), ("/evil.example/%252f..", "./%252F../"), ("/a:b", "./a:b/")]
    {
        let response = weir.client().get(target);
        let got = response.expect_status(308).header("location").unwrap().to_ascii_lowercase();
        assert_eq!(got, location.to_ascii_lowercase(), "{target}");
    }
    for target in ["//evil.example", "///evil.example", "//evil.example/%252f.."] {
        weir.client().get(target).expect_cause(FILES_MISSING);
    }
}

/// With `slashes: keep`, a path with `//` takes a different route from the one without: the disk must not map both to
/// one file.
#[test]
fn slashes_that_routing_keeps_lead_to_no_file() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("admin/deep")).unwrap();
    for name in ["a.txt", "admin/s.txt", "admin/deep/s.txt"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    let root = dir.path().display();
    for escaped in ["refuse", "keep", "decode"] {
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0, slashes: keep, escaped_slashes: {escaped} }} }}\nroutes:\n\
             \x20 admin: {{ match: {{ path: \"/admin/*\" }}, filters: [ {{ ip: {{ allow: [ 192.0.2.1 ] }} }} ], files: {{ root: {root} }} }}\n\
             \x20 open: {{ match: {{ path: \"/*\" }}, files: {{ root: {root} }} }}\n",
        ));
        weir.client().get("/a.txt").expect_status(200).expect_body("a.txt");
        weir.client().get("/admin/s.txt").expect_status(403);
        for target in [
            "//admin/s.txt",
            "///admin/s.txt",
            "//admin//s.txt",
            "//admin/deep/s.txt",
            "/%2fadmin/s.txt",
            "/x//../admin/s.txt",
            "/.//admin/s.txt",
        ] {
            let answer = weir.client().get(target);
            assert!((400..500).contains(&answer.status), "{escaped} {target}: {}", answer.status);
            assert!(!answer.text().contains("s.txt"), "{escaped} {target}: {}", answer.text());
        }
    }
}

#[test]
fn ranges_and_conditions() {
    let site = Site::new("", "");
    let mut client = site.weir.client();
    let ask = |fields: &str| format!("GET /page.txt HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n");
    let whole = client.ask(ask(""));
    let (tag, date) = (whole.header("etag").unwrap(), whole.header("last-modified").unwrap());
    client
        .ask(ask("Range: bytes=2-4\r\n"))
        .expect_status(206)
        .expect_body("234")
        .expect_header("content-range", "bytes 2-4/10");
    client.ask(ask("Range: bytes=-2\r\n")).expect_status(206).expect_body("89");
    client.ask(ask(&format!("Range: bytes=-2\r\nIf-Range: {date}\r\n"))).expect_status(206);
    client.ask(ask("Range: bytes=-2\r\nIf-Range: \"x\"\r\n")).expect_status(200).expect_body("0123456789");
    client
        .ask(ask("Range: bytes=10-\r\n"))
        .expect_cause(FILES_RANGE)
        .expect_header("content-range", "bytes */10");
    let several = client.ask(ask("Range: bytes=0-0,-1\r\n"));
    several.expect_status(206).expect_body_with("content-range: bytes 9-9/10\r\n\r\n9\r\n--");
    for hostile in [
        format!("Range: bytes={}\r\n", vec!["0-"; 1000].join(",")),
        format!("Range: bytes={}\r\n", vec!["0-9"; 16].join(",")),
        "Range: bytes=99999999999999999999-\u{7f}\r\n".replace('\u{7f}', ""),
        "Range: bytes=5-2\r\n".to_owned(),
        "Range: bytes\r\n".to_owned(),
        "Range: bytes=--1\r\n".to_owned(),
    ] {
        let response = client.ask(ask(&hostile));
        assert!(matches!(response.status, 200 | 416), "{hostile}: {}", response.status);
        assert!(response.status == 416 || response.text() == "0123456789", "{hostile}");
    }
    client.ask(ask(&format!("If-None-Match: {tag}\r\n"))).expect_status(304).expect_header("etag", tag);
    client.ask(ask(&format!("If-Modified-Since: {date}\r\n"))).expect_status(304);
    client.ask(ask("If-Match: \"x\"\r\n")).expect_status(412);
    client.ask(ask("")).expect_status(200).expect_body("0123456789");
}

/// A file that nobody has changed for a while is copied once it is requested again: a copy that is long enough is sent
/// as pages on cleartext HTTP/1.1, and written like any bytes elsewhere. Each way leads to the same bytes.
#[test]
fn a_file_that_is_requested_often_is_the_same_file() {
    let authority = Authority::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").canonicalize().unwrap();
    let root = root.display();
    let weir = Weir::start(&format!(
        "listeners:\n  web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }}\n  tls: {{ address: 127.0.0.1:0, \
         tls: {{ certificates: [ {} ] }} }}\nroutes: {{ site: {{ match: {{ path: \"/*\" }}, files: {{ root: {root} }} }} }}\n",
        authority.leaf(&["weir.test"]).yaml()
    ));
    let text = fs::read(format!("{root}/cli.md")).unwrap();
    let mut tls = Client::connect_tls(weir.address("tls"), &Tls::new(&authority, "weir.test"));
    let mut plain = weir.client();
    for _ in 0..20 {
        plain.get("/cli.md").expect_status(200).expect_body(&text);
        tls.get("/cli.md").expect_status(200).expect_body(&text);
        let mut h2 = weir.h2();
        let stream = h2.get("/cli.md");
        h2.message(stream).expect_status(200).expect_body(&text);
        plain
            .ask("GET /cli.md HTTP/1.1\r\nHost: weir.test\r\nRange: bytes=5001-35000\r\n\r\n")
            .expect_status(206)
            .expect_body(&text[5001..=35000]);
        plain.send("HEAD /cli.md HTTP/1.1\r\nHost: weir.test\r\n\r\n");
        plain
            .read_response_to_head()
            .expect_status(200)
            .expect_header("content-length", &text.len().to_string());
    }
    // Answers in a row, and a client that reads none of them for a while.
    let requests = "GET /cli.md HTTP/1.1\r\nHost: weir.test\r\n\r\n".repeat(100);
    plain.send(requests);
    for _ in 0..100 {
        plain.read_response().expect_status(200).expect_body(&text);
    }
}

#[test]
fn compressed_on_the_way() {
    let site = Site::new("", "{ compress: { minimum: 1B, algorithms: [gzip] } }");
    let mut client = site.weir.client();
    let response = client.ask("GET /page.txt HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: gzip\r\n\r\n");
    response.expect_status(200).expect_header("content-encoding", "gzip").expect_no_header("accept-ranges");
    assert!(response.header("etag").unwrap().starts_with("W/"));
    let part = client.ask(
        "GET /page.txt HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: gzip\r\nRange: bytes=0-3\r\n\r\n",
    );
    part.expect_status(206).expect_no_header("content-encoding").expect_body("0123");
}

#[test]
fn check_tells_a_missing_folder_and_explain_the_target() {
    let dir = TempDir::new().unwrap();
    let config = |root: &str| {
        let route = format!(
            "routes: {{ site: {{ match: {{ path: \"/*\" }}, files: {{ root: {root}, fallback: /app.html }} }} }}\n"
        );
        fs::write(dir.path().join("weir.yaml"), format!("{WEB}\n{route}")).unwrap();
    };
    config("./nowhere");
    run_weir(dir.path(), &["check"]).expect_code(1).expect_text("missing-root").expect_text("weir.yaml:2:");
    config(".");
    run_weir(dir.path(), &["check"]).expect_code(0);
    let explained = run_weir(dir.path(), &["explain", "GET", "http://localhost/a"]);
    explained.expect_code(0).expect_text("files    ").expect_text("index index.html, fallback /app.html");
}

#[test]
fn curl_resumes_a_download() {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: curl is not installed (scripts/ensure-tools.sh curl)");
    }
    let site = Site::new("", "");
    let half = site.dir.path().join("half.bin");
    fs::write(&half, &long()[..1_234_567]).unwrap();
    let url = format!("http://{}/long.bin", site.weir.address("web"));
    let ended = Command::new("curl").args(["-sSf", "-C", "-", "-o"]).arg(&half).arg(&url).status().unwrap();
    assert!(ended.success() && fs::read(&half).unwrap() == long());
}
