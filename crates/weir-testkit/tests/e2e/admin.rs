//! The admin listener: what it tells, and to whom.

use tempfile::TempDir;
use weir_testkit::{Client, Response, Upstream, Weir, table};

use crate::support::{OK, WEB};

fn weir(admin: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\nadmin: {{ address: 127.0.0.1:0{admin} }}\n"
    ))
}

/// Asks the admin listener as a tool on this machine does.
#[track_caller]
fn ask(weir: &Weir, line: &str, fields: &str) -> Response {
    let host = weir.admin();
    weir.admin_client().ask(format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n"))
}

#[test]
fn health_and_readiness() {
    let weir = weir("");
    ask(&weir, "GET /healthz", "").expect_status(200);
    ask(&weir, "GET /readyz", "").expect_status(200);
}

#[test]
fn a_page_at_the_root() {
    let weir = weir("");
    ask(&weir, "GET /", "Accept: text/html\r\n").expect_status(200).expect_body_with("/metrics");
    ask(&weir, "GET /nothing", "").expect_status(404);
}

#[test]
fn status_is_json() {
    let weir = weir("");
    let status = ask(&weir, "GET /status", "");
    status.expect_status(200).expect_header("content-type", "application/json");
    assert!(status.json().is_object());
}

#[test]
fn reload_tells_what_is_wrong() {
    let weir = weir("");
    ask(&weir, "POST /reload", "").expect_status(200);
    weir.write_config("listeners: { web: { adress: 127.0.0.1:0 } }");
    let refused = ask(&weir, "POST /reload", "");
    assert!(matches!(refused.status, 400 | 409 | 422), "{}", refused.status);
    refused.expect_body_with("adress");
    weir.client().get("/").expect_body("ok");
}

#[test]
fn what_changes_something_is_a_post() {
    let mut weir = weir("");
    table(
        &["GET /reload", "HEAD /drain", "GET /drain", "PUT /reload"],
        |line| *line,
        |line| {
            let mut client = weir.admin_client();
            client.send(format!("{line} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", weir.admin()));
            let response = if line.starts_with("HEAD") {
                client.read_response_to_head()
            } else {
                client.read_response()
            };
            response.expect_status(405);
            assert!(response.header("allow").is_some_and(|allow| allow.contains("POST")), "RFC 9110 §15.5.6");
        },
    );
    assert!(weir.is_running());
}

#[test]
fn a_token_guards_all_but_health_and_metrics() {
    let mut weir = weir(", token: s3cret");
    let bearer = "Authorization: Bearer s3cret\r\n";
    table(
        &[
            ("GET /healthz", "", 200),
            ("GET /readyz", "", 200),
            ("GET /metrics", "", 200),
            ("GET /status", "", 401),
            ("GET /", "", 401),
            ("POST /reload", "", 401),
            ("POST /drain", "", 401),
            ("GET /status", "Authorization: Bearer wrong\r\n", 401),
            ("GET /status", "Authorization: Bearer s3cret2\r\n", 401),
            ("GET /status", "Authorization: Bearer\r\n", 401),
            ("GET /status", "Authorization: Basic s3cret\r\n", 401),
            ("GET /status", bearer, 200),
            ("POST /reload", bearer, 200),
        ],
        |(line, fields, _)| format!("{line} with {fields:?}"),
        |(line, fields, status)| {
            ask(&weir, line, fields).expect_status(*status);
        },
    );
    assert!(weir.is_running());
}

#[test]
fn a_page_in_a_browser_cannot_use_it() {
    let mut weir = weir("");
    let port = weir.admin().rsplit_once(':').unwrap().1.to_owned();
    // DNS rebinding: the browser believes that this is evil.test. And a form on evil.test.
    let local = format!("127.0.0.1:{port}");
    table(
        &[
            (format!("evil.test:{port}"), "", false),
            ("evil.test".to_owned(), "", false),
            (local.clone(), "Origin: http://evil.test\r\n", false),
            (local.clone(), "Origin: null\r\n", false),
            (local.clone(), "", true),
            (format!("localhost:{port}"), "", true),
            (format!("[::1]:{port}"), "", true),
        ],
        |(host, fields, _)| format!("{host} with {fields:?}"),
        |(host, fields, allowed)| {
            for line in ["GET /status", "POST /reload"] {
                let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n");
                let status = Client::connect(weir.admin()).ask(request).status;
                assert!(
                    if *allowed { status == 200 } else { matches!(status, 403 | 421) },
                    "{line}: {status}"
                );
            }
        },
    );
    let own = format!("Origin: http://{local}\r\n");
    ask(&weir, "GET /status", &own).expect_status(200);
    assert!(weir.is_running());
}

#[test]
fn it_speaks_to_this_machine_only_without_a_token() {
    let dir = TempDir::new().unwrap();
    std::fs::write(
        dir.path().join("weir.yaml"),
        format!("{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200 }} }} }}\nadmin: {{ address: 0.0.0.0:0 }}\n"),
    )
    .unwrap();
    weir_testkit::run_weir(dir.path(), &["check", "-c", "weir.yaml"]).expect_code(1).expect_text("token");
}

#[test]
fn it_can_be_off() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "admin: { address: \"off\" }");
    weir.client().get("/").expect_status(200);
    assert!(weir.logged("admin").is_empty());
}
