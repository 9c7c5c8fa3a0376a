//! Every call of the admin API, made properly and by an attacker.

use super::*;
use std::time::Instant;

fn guarded(folder: &Path) -> Api {
    let tokens = format!(", tokens: [ {{ name: root, role: admin, token: \"{}\" }} ]", hash("all"));
    Api::of(Weir::start(&config(folder, &tokens, "")), "all")
}

const TOKEN: &str = "Authorization: Bearer all\r\n";

/// Makes each call of the description and compares each answer with it.
#[test]
fn every_call_answers_as_it_is_described() {
    let folder = TempDir::new().unwrap();
    let more = "upstreams: { up: { endpoints: [ 127.0.0.1:9 ] } }\n";
    let api = Api::of(Weir::start(&config(folder.path(), "", more)), "");
    let new = saying("/a", "a");
    for (line, fields, body, status) in [
        ("GET /api/v1/openapi.json", "", "", 200),
        ("GET /api/v1/config?origin", "", "", 200),
        ("PUT /api/v1/config/routes/a", NEW, &*new, 201),
        ("GET /api/v1/config/routes/a", "", "", 200),
        ("PATCH /api/v1/config/routes/a", ANY, "{\"respond\": {\"body\": \"b\"}}", 200),
        ("POST /api/v1/config/routes/a:release", "", "", 200),
        ("POST /api/v1/config/routes/hand:adopt", "", "", 200),
        ("POST /api/v1/config/routes/none:adopt", "", "", 404),
        ("DELETE /api/v1/config/routes/a", ANY, "", 200),
        ("POST /api/v1/config:apply", "", "{}", 200),
        ("POST /api/v1/config:check", "", "", 200),
        ("POST /api/v1/config:explain", "", "{\"method\": \"GET\", \"url\": \"http://weir.test/hand\"}", 200),
        ("GET /api/v1/drift", "", "", 200),
        ("GET /api/v1/fleet", "", "", 404),
        ("GET /api/v1/revisions", "", "", 200),
        ("GET /api/v1/revisions/1", "", "", 200),
        ("GET /api/v1/revisions/1..2", "", "", 200),
        ("POST /api/v1/revisions/2:rollback", "", "", 200),
        ("POST /api/v1/revisions/2:confirm", "", "", 409),
        ("GET /api/v1/why?limit=1", "", "", 200),
        ("GET /api/v1/why/nobody", "", "", 404),
        ("POST /api/v1/endpoints/up/127.0.0.1%3A9:drain?for=1m", "", "", 200),
        ("POST /api/v1/endpoints/up/127.0.0.1%3A9:out", "", "", 200),
        ("POST /api/v1/endpoints/up/127.0.0.1%3A9:in", "", "", 200),
        ("POST /api/v1/endpoints/up/nobody:in", "", "", 404),
        ("POST /api/v1/caches/none:purge?all=true", "", "", 404),
        ("POST /api/v1/maintenance/none:on?for=1m", "", "", 404),
        ("POST /api/v1/maintenance/none:off", "", "", 404),
        ("GET /api/v1/managed", "", "", 200),
        ("POST /api/v1/managed:check", ANY, "{}", 200),
        ("PUT /api/v1/managed", ANY, "{}", 200),
        ("GET /api/v1/shadow", "", "", 404),
        ("POST /api/v1/shadow", "", "{}", 400),
        ("POST /api/v1/shadow/none:promote?watch=1m", "", "", 404),
    ] {
        let answer = api.ask(line, fields, body);
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
    }
    let text = fs::read_to_string(api.weir.dir().join("weir.yaml")).unwrap();
    let candidate = serde_json::json!({ "files": [ { "name": "weir.yaml", "text": text } ] }).to_string();
    let begun = api.ask("POST /api/v1/shadow", "", &candidate);
    let id = begun.expect_status(201).json()["id"].as_str().unwrap().to_owned();
    api.weir.client().get("/hand").expect_status(200);
    api.ask("POST /api/v1/shadow", "", &candidate).expect_status(409);
    api.ask(&format!("GET /api/v1/shadow/{id}"), "", "").expect_status(200);
    api.ask(&format!("POST /api/v1/shadow/{id}:promote"), "", "").expect_status(409);
    api.ask(&format!("POST /api/v1/shadow/{id}:end"), "", "").expect_status(200);
    let left: Vec<_> = api.described().difference(&api.answered()).cloned().collect();
    assert!(left.is_empty(), "described, and not asked here: {left:?}");
}

#[test]
fn hostile_names_harm_no_call() {
    let folder = TempDir::new().unwrap();
    let api = guarded(folder.path());
    let before = api.ask("GET /api/v1/config", "", "").header("etag").map(str::to_owned);
    for name in [
        "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "a%00b",
        "a%0d%0aX-Injected:%201",
        "%c0%ae%c0%ae",
        "%zz",
        "1%3Brm%20-rf",
        "99999999999999999999999999",
        &"x".repeat(5000),
    ] {
        for (method, path) in api.calls_with(name) {
            let body = if matches!(&*method, "PUT" | "PATCH") { "{}" } else { "" };
            let answer = api.ask_raw(&format!("{method} {path}"), &format!("{TOKEN}{ANY}"), body);
            let said = format!("{method} {path}: {} {}", answer.status, answer.text());
            assert!((200..500).contains(&answer.status), "{said}");
            assert!(answer.header("content-type").unwrap().contains("json"), "{said}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{said}");
            assert_eq!(answer.header("x-injected"), None, "{said}");
            assert!(!answer.text().contains("root:x:0"), "{said}");
        }
    }
    let after = api.ask("GET /api/v1/config", "", "").header("etag").map(str::to_owned);
    assert_eq!(before, after);
    assert_eq!(api.ask("GET /api/v1/revisions", "", "").json()["running"], 1);
}

#[test]
fn hostile_bodies_harm_no_call() {
    let folder = TempDir::new().unwrap();
    let api = guarded(folder.path());
    let host = api.weir.admin();
    let head = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    let json = "Content-Type: application/json\r\n";
    // A body that never arrives, for every call: an unauthenticated client is refused without waiting for it.
    for (method, path) in api.calls() {
        let line = format!("{method} {path}");
        for length in [10, 16 << 20, 1_u64 << 60] {
            let mut client = Client::connect(&host);
            client.send(head(&line, &format!("{json}Content-Length: {length}\r\n")));
            client.read_response().expect_status(401);
        }
        if method == "GET" {
            continue;
        }
        let refused = Client::connect(&host)
            .ask(head(&line, &format!("{TOKEN}{json}{ANY}Content-Length: {}\r\n", 1_u64 << 40)))
            .status;
        assert_eq!(refused, 413, "{line}");
        let chunked = head(&line, &format!("{TOKEN}{json}{ANY}Transfer-Encoding: chunked\r\n"));
        assert_eq!(Client::connect(&host).ask(format!("{chunked}zz\r\n")).status, 400, "{line}");
    }
}

/// A body may take ten seconds. Slow authenticated clients do not delay others for that long.
#[test]
fn slow_bodies_keep_nobody_waiting() {
    let _alone = weir_testkit::alone();
    let folder = TempDir::new().unwrap();
    let api = guarded(folder.path());
    let host = api.weir.admin();
    let head = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    let began = Instant::now();
    let slow: Vec<_> = api
        .calls()
        .into_iter()
        .filter(|(method, _)| method != "GET")
        .map(|(method, path)| {
            let fields = format!("{TOKEN}{ANY}Content-Type: application/json\r\nContent-Length: 10\r\n");
            let mut client = Client::connect(&host);
            client.send(head(&format!("{method} {path}"), &fields));
            client
        })
        .collect();
    api.weir.admin_client().ask(head("GET /healthz", "")).expect_status(200);
    api.ask("GET /api/v1/config", "", "").expect_status(200);
    api.ask("PUT /api/v1/config/routes/a", NEW, &saying("/a", "a")).expect_status(201);
    assert!(began.elapsed() < Duration::from_secs(8), "somebody was waited for: {:?}", began.elapsed());
    drop(slow);
    api.weir.client().get("/a").expect_body("a");
}

/// A body of the largest size, from a client that may apply it. Above, others are refused before they send it.
#[test]
fn a_large_body_is_read_once_it_is_known_whose_it_is() {
    let folder = TempDir::new().unwrap();
    let api = guarded(folder.path());
    // That many routes would take too long to compile in a test; as one comment they are read and skipped.
    let mut body = format!("routes: {{ a: {} }}\n# ", saying("/a", "large"));
    body.push_str(&"x".repeat((16 << 20) - body.len() - 1));
    body.push('\n');
    assert_eq!(body.len(), 16 << 20, "to the byte");
    let yaml = "Content-Type: application/yaml\r\n";
    let mut client = Client::connect(api.weir.admin());
    client.set_deadline(Duration::from_secs(60)); // reading takes a while on a busy machine
    let fields = format!("{TOKEN}{yaml}");
    let line = "POST /api/v1/config:apply";
    client.ask(request(&api.weir.admin(), line, &fields, &body)).expect_status(200);
    api.weir.client().get("/a").expect_body("large");
}
