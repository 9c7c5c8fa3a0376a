//! The admin listener: its answers, and who gets them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use tempfile::TempDir;
use weir_testkit::{
    Client, Response, Upstream, Weir, eventually, fields_of, generated, golden_list, refusing_address,
    run_weir, table, weir_command,
};

use crate::support::{OK, WEB};

fn weir(admin: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\nadmin: {{ address: 127.0.0.1:0{admin} }}\n"
    ))
}

/// Sends a request as a tool on this machine does.
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

/// The tables of docs/reference/admin-api.md.
#[test]
fn every_call_is_documented() {
    let weir = weir("");
    let described = ask(&weir, "GET /api/v1/openapi.json", "").expect_status(200).json();
    let head = "| call | role | parameters | meaning |\n|---|---|---|---|\n";
    let (mut config, mut others) = (head.to_owned(), head.to_owned());
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, call) in methods.as_object().unwrap() {
            let role = call["description"].as_str().unwrap();
            let role = role.strip_prefix("Needs the role ").unwrap().trim_end_matches('.');
            let parameters = call["parameters"].as_array().unwrap().iter();
            let query = parameters.filter(|parameter| parameter["in"] == "query");
            let names: Vec<String> =
                query.map(|parameter| format!("`{}`", parameter["name"].as_str().unwrap())).collect();
            let (method, names) = (method.to_uppercase(), names.join(", "));
            let meaning = call["summary"].as_str().unwrap().replace('|', "\\|");
            let of_config = !["/why", "/caches/", "/endpoints/", "/maintenance/"]
                .iter()
                .any(|begin| path.strip_prefix("/api/v1").unwrap().starts_with(begin));
            let table = if of_config { &mut config } else { &mut others };
            table.push_str(&format!("| `{method} {path}` | `{role}` | {names} | {meaning} |\n"));
        }
    }
    generated("docs/reference/admin-api.md", "calls", &others);
    generated("docs/reference/admin-api.md", "config calls", &config);
}

#[test]
fn every_documented_field_is_listed() {
    let described = ask(&weir(""), "GET /api/v1/openapi.json", "").expect_status(200).json();
    golden_list("admin-api-fields", "GET /api/v1/openapi.json", &fields_of(&described));
}

#[test]
fn status_is_json() {
    let weir = weir("");
    let status = ask(&weir, "GET /status", "");
    status.expect_status(200).expect_header("content-type", "application/json");
    assert!(status.json().is_object());
}

#[test]
fn status_tells_of_reloads_causes_and_endpoints() {
    let upstream = Upstream::fixed(OK);
    let (_closed, refusing) = refusing_address();
    let weir = Weir::start(&format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nupstreams:\n  up: {{ endpoints: [ \"localhost:{}\" ] }}\n  \
         down: {{ endpoints: [ {refusing} ] }}\nroutes:\n  up: {{ match: {{ path: /up }}, upstream: up }}\n  \
         down: {{ match: {{ path: /down }}, upstream: down }}\n",
        upstream.address().port()
    ));
    let status = || ask(&weir, "GET /status", "").json();
    let before = status();
    assert!(before["last_reload"].is_null() && before["causes"] == serde_json::json!([]), "{before}");

    weir.client().get("/up").expect_status(200);
    weir.client().get("/down").expect_status(502);
    weir.client().get("/nowhere").expect_status(404);
    eventually("the causes are counted", || status()["causes"].as_array().map(Vec::len) == Some(2));
    let now = status();
    assert_eq!(now["causes"][0], serde_json::json!({ "cause": "connect_refused", "count": 1 }));
    assert!(now["requests_per_second"].as_f64() > Some(0.0), "{now}");
    let up = &now["upstreams"]["up"];
    let answered: u64 =
        up["endpoints"].as_array().unwrap().iter().filter_map(|e| e["answered"].as_u64()).sum();
    assert_eq!(answered, 1, "{up}");
    let name = &up["names"][0];
    assert_eq!(name["name"], format!("localhost:{}", upstream.address().port()));
    assert!(name["age_seconds"].is_u64(), "{name}");
    assert!(name["addresses"].as_array().unwrap().contains(&"127.0.0.1".into()), "{name}");
    let down = &now["upstreams"]["down"]["endpoints"][0];
    assert_eq!((&down["answered"], &down["failed"]), (&0.into(), &1.into()), "{down}");
    assert_eq!(down["last_error"]["cause"], "connect_refused", "{down}");

    weir.reload().unwrap();
    assert_eq!(status()["last_reload"]["result"], "ok");
    weir.write_config("listeners: { web: { adress: 127.0.0.1:0 } }");
    ask(&weir, "POST /reload", "").expect_status(422);
    let refused = &status()["last_reload"];
    assert_eq!(refused["result"], "refused");
    assert!(refused["error"].as_str().is_some_and(|error| error.contains("adress")), "{refused}");
    let page = ask(&weir, "GET /", "").text();
    for told in ["Last reload", "adress", "connect_refused", "Requests a second"] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let metrics = ask(&weir, "GET /metrics", "").text();
    assert!(
        metrics.contains("weir_route_causes_total{route=\"down\",cause=\"connect_refused\"} 1"),
        "{metrics}"
    );
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
    // DNS rebinding: the browser believes that this is evil.test. Also a form on evil.test.
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
    run_weir(dir.path(), &["check", "-c", "weir.yaml"]).expect_code(1).expect_text("token");
}

#[test]
fn it_can_be_off() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "admin: { address: \"off\" }");
    weir.client().get("/").expect_status(200);
    assert!(weir.logged("admin").is_empty());
}

/// The unprivileged user of every system. Source: nobody of the Linux Standard Base.
const NOBODY: u32 = 65534;

#[test]
fn who_comes_by_a_unix_socket_is_known_by_the_user_id() {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    let start = |tokens: &str| {
        Weir::start(&format!(
            "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200 }} }} }}\n\
             admin: {{ address: unix:{}/admin.sock, tokens: [ {tokens} ] }}\n",
            folder.path().display()
        ))
    };
    let weir = start(&format!(
        "{{ name: me, role: operate, uid: {own} }}, {{ name: nobody, role: read, uid: {NOBODY} }}"
    ));
    let at = weir.admin();
    let run = |verb: &str| run_weir(weir.dir(), &[verb, "--admin", &at]);
    run("status").expect_code(0).expect_text("running");
    run("reload").expect_code(0).expect_text("reloaded");
    run("drain").expect_code(1).expect_text("needs the role admin");
    if own == 0 {
        let mut command = weir_command(folder.path());
        let as_nobody = command.uid(NOBODY).gid(NOBODY).args(["reload", "--admin", &at]).output();
        // If that user may run the binary.
        if let Ok(output) = as_nobody {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                said.contains("needs the role operate"),
                "{said} {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    drop(weir);
    let weir = start(&format!("{{ name: other, role: admin, uid: {} }}", own + 1));
    run_weir(weir.dir(), &["status", "--admin", &weir.admin()])
        .expect_code(1)
        .expect_text("send `Authorization");
}
