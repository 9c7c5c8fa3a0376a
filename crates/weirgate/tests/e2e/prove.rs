//! `weir prove` and `weir import --prove`: a real nginx and Weir, asked the same in a world of their own.
//!
//! Without nginx, or where the kernel gives no namespaces, the tests print a note and pass; `make test` installs nginx.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use weir_testkit::run_weir;

/// A site, and a config of ours that does the same.
const NGINX: &str = "\
user www-data;
events {}
http {
  access_log /var/log/nginx/weir-proof-test.log;
  upstream pool { server app1:8080; server app2:8080; }
  server {
    listen 80;
    location / {
      proxy_pass http://front:3000;
      proxy_set_header Host $http_host;
      proxy_set_header X-Site shop;
    }
    location ~ ^/api/ {
      client_max_body_size 100;
      proxy_set_header Host $http_host;
      proxy_pass http://pool;
    }
    location ~ ^/private { deny all; }
    location = /old { return 302 /new; }
  }
}
";
const OURS: &str = "\
listeners:
  web: { address: '0.0.0.0:80', escaped_slashes: decode }
upstreams:
  front: { endpoints: [ 'front:3000' ] }
  pool: { endpoints: [ 'app1:8080', 'app2:8080' ] }
routes:
  front:
    match: { path: '/*' }
    filters:
    - headers: { request: { set: { x-site: shop } } }
    - body_limit: { max: 1MiB }
    upstream: front
  api:
    match: { path: '~/api/.*' }
    filters:
    - body_limit: { max: 100B }
    upstream: pool
  private:
    match: { path: '~/private.*' }
    respond: { status: 403 }
  old:
    match: { path: /old }
    filters:
    - redirect: { to: /new, status: 302, keep_query: false }
";
/// What this pair does differently: nginx resolves paths for routing only, and adds no fields.
const RECORD: &str = "\
system: nginx
files: [ ../nginx.conf ]
accept:
- { difference: forwarding-fields, why: Weir tells upstreams who asks }
- { difference: upstream field host, line: proxy_set_header Host $http_host, route: front, why: HTTP/1.0 }
- { difference: upstream target, why: Weir sends the canonical path }
";

fn site(ours: &str, record: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("nginx.conf"), NGINX).unwrap();
    fs::create_dir(dir.path().join("weir")).unwrap();
    fs::write(dir.path().join("weir/weir.yaml"), ours).unwrap();
    fs::write(dir.path().join("weir/proof.yaml"), record).unwrap();
    dir
}

/// Proves the folder `weir`. None if this machine cannot.
#[track_caller]
fn prove(dir: &Path, code: i32) -> Option<Value> {
    let proved = run_weir(dir, &["prove", "weir", "--format", "json", "--report", "page.html"]);
    let report: Value =
        serde_json::from_str(&proved.stdout).unwrap_or_else(|error| panic!("{error}:\n{proved:#?}"));
    if cannot(&report["not_proved"]) {
        return None;
    }
    assert_eq!(proved.code, Some(code), "{report:#}");
    Some(report)
}

pub(crate) fn cannot(not_proved: &Value) -> bool {
    let why = not_proved.as_str().unwrap_or_default();
    let cannot =
        why.contains("is not on this machine") || why.contains("this kernel cannot create a sandbox");
    if cannot {
        eprintln!("SKIPPED: {why}");
    }
    cannot
}

/// The differences: `LINE DIFFERENCE`.
pub(crate) fn differences(report: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for row in report["lines"].as_array().unwrap() {
        for difference in row["differences"].as_array().unwrap() {
            if difference["accepted"] == false {
                found.push(format!("{} {}", row["line"], difference["difference"].as_str().unwrap()));
            }
        }
    }
    found
}

#[test]
fn the_same_is_proved() {
    let dir = site(OURS, RECORD);
    let Some(report) = prove(dir.path(), 0) else { return };
    assert_eq!(differences(&report), Vec::<String>::new());
    assert!(report["asked"].as_u64() > Some(80), "{report:#}");
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("location ~ ^/api/") && !page.contains("<script"), "{page}");
}

#[test]
fn lies_are_caught_at_their_lines() {
    // What is done to our config by hand, and the line and difference that must show it.
    let lies = [
        ("a deny rule is dropped", "respond: { status: 403 }", "upstream: front", "18 status"),
        ("two upstreams are swapped", "    upstream: pool", "    upstream: front", "16 who answered"),
        ("a prefix is widened", "'~/api/.*'", "'~/api.*'", "16 who answered"),
        (
            "a field is dropped",
            "    - headers: { request: { set: { x-site: shop } } }\n",
            "",
            "11 upstream field x-site",
        ),
        ("a body limit is lowered", "max: 100B", "max: 99B", "14 status"),
        ("a body limit is raised", "max: 100B", "max: 101B", "14 status"),
        ("a redirect leads elsewhere", "to: /new", "to: /newer", "19 redirect"),
        ("a redirect has another status", "status: 302", "status: 301", "19 status"),
        ("an endpoint is lost", "'app1:8080', ", "", "16 who answered"),
        ("a route is lost", "'/*'", "'/w/*'", "8 status"),
        (
            "the host is rewritten",
            "'app2:8080' ] }",
            "'app2:8080' ], host: upstream }",
            "15 upstream field host",
        ),
    ];
    for (lie, from, to, expected) in lies {
        assert!(OURS.contains(from), "{lie}");
        let dir = site(&OURS.replacen(from, to, 1), RECORD);
        let Some(report) = prove(dir.path(), 1) else { return };
        let found = differences(&report);
        assert!(found.iter().any(|found| found == expected), "{lie}: {found:?}");
    }
}

#[test]
fn nothing_outside_of_the_world_changes() {
    let dir = TempDir::new().unwrap();
    let here = dir.path().display();
    // Each line would leave something behind, or reach something, if it could.
    let evil = format!(
        "user nobody; pid {here}/evil.pid; error_log {here}/evil-error.log debug; lock_file {here}/evil.lock;
events {{}}
http {{
  access_log {here}/evil-access.log; access_log syslog:server=127.0.0.1:1,tag=evil;
  client_body_temp_path {here}/evil-bodies; proxy_temp_path {here}/evil-temp;
  proxy_cache_path {here}/evil-cache keys_zone=evil:1m use_temp_path=off;
  resolver 192.0.2.1;
  server {{
    listen 0.0.0.0:80; listen [::]:80; listen unix:{here}/evil.sock; listen 443 ssl;
    ssl_certificate {here}/evil.pem; ssl_certificate_key {here}/evil.key;
    client_body_in_file_only on;
    location / {{ proxy_pass http://example.com; proxy_cache evil; proxy_store {here}/evil-store; }}
    location /put/ {{ root {here}; dav_methods PUT DELETE MKCOL; create_full_put_path on; }}
    location /self {{ proxy_pass http://127.0.0.1:80/; }}
    location /admin {{ proxy_pass http://unix:/run/docker.sock; }}
  }}
}}
"
    );
    fs::write(dir.path().join("nginx.conf"), evil).unwrap();
    fs::create_dir(dir.path().join("weir")).unwrap();
    fs::write(dir.path().join("weir/weir.yaml"), OURS).unwrap();
    fs::write(dir.path().join("weir/proof.yaml"), RECORD).unwrap();
    let Some(report) = prove(dir.path(), 1) else { return };
    assert!(report["asked"].as_u64() > Some(50), "it ran: {report:#}");
    let mut left: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["nginx.conf", "page.html", "weir"]);
    let mut left: Vec<_> =
        fs::read_dir(dir.path().join("weir")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["proof.yaml", "weir.yaml"]);
    assert!(!Path::new("/run/weir-proof").exists());
}

#[test]
fn what_nginx_itself_refuses_is_told_with_its_line() {
    let dir = site(OURS, RECORD);
    fs::write(dir.path().join("nginx.conf"), "events {}\nhttp {\n  server {\n    frobnicate on;\n  }\n}\n")
        .unwrap();
    let proved = run_weir(dir.path(), &["prove", "weir"]);
    if cannot(&Value::from(proved.stdout.clone())) {
        return;
    }
    proved.expect_code(3).expect_text("nginx.conf:4: nginx itself refuses it").expect_text("frobnicate");
    fs::write(dir.path().join("nginx.conf"), "include nginx.conf;").unwrap();
    run_weir(dir.path(), &["prove", "weir"]).expect_code(3).expect_text("includes itself");
}

#[test]
fn what_cannot_be_run_is_not_proved() {
    let dir = site(OURS, RECORD);
    fs::write(dir.path().join("nginx.conf"), "server { location / { content_by_lua_block { ngx.say(1) } } }")
        .unwrap();
    let proved = run_weir(dir.path(), &["prove", "weir"]);
    proved.expect_code(1).expect_text("NOT PROVED");
    fs::write(dir.path().join("weir/proof.yaml"), "system: nginx\nfile: x\n").unwrap();
    run_weir(dir.path(), &["prove", "weir"]).expect_code(2).expect_text("proof.yaml:2");
}

/// What Weir tells upstreams about clients is told once, whatever the number of lines, and accepted once.
#[test]
fn forwarding_fields_are_one_difference() {
    let dir = site(
        OURS,
        &RECORD.replace("- { difference: forwarding-fields, why: Weir tells upstreams who asks }\n", ""),
    );
    let Some(report) = prove(dir.path(), 1) else { return };
    assert_eq!(differences(&report), Vec::<String>::new());
    let told = &report["forwarding_fields"];
    assert!(told["requests"].as_u64() > Some(40), "{told:#}");
    assert!(told["weir"].as_str().unwrap().contains("x-forwarded-for: 127.0.0.1"), "{told:#}");
    assert!(report["summary"].as_str().unwrap().contains("by forwarding-fields"), "{report:#}");
    // A field that the old program sends and Weir does not is no such difference.
    let dir = site(OURS, RECORD);
    let nginx = NGINX.replace(
        "proxy_set_header X-Site shop;",
        "proxy_set_header X-Site shop; proxy_set_header X-Real-IP $remote_addr;",
    );
    fs::write(dir.path().join("nginx.conf"), nginx).unwrap();
    let Some(report) = prove(dir.path(), 1) else { return };
    let found = differences(&report);
    assert!(found.iter().any(|found| found.ends_with("upstream field x-real-ip")), "{found:?}");
}

/// A site whose upstream is on loopback, with the ports filled in.
fn small_site(listen: u16, upstream: u16) -> TempDir {
    let dir = TempDir::new().unwrap();
    let nginx = format!(
        "daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log stderr;\nevents {{ worker_connections 64; }}\n\
         http {{\n  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n  \
         server {{\n    listen 127.0.0.1:{listen};\n    location / {{ proxy_pass http://127.0.0.1:{upstream}; proxy_set_header Host $http_host; }}\n    \
         location /private {{ deny all; }}\n    location = /old {{ return 302 /new; }}\n  }}\n}}\n"
    );
    fs::write(dir.path().join("nginx.conf"), nginx).unwrap();
    fs::create_dir(dir.path().join("weir")).unwrap();
    dir
}

/// A free port, which nobody else takes for a while.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_gateway_that_runs_elsewhere() {
    let nginx = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx", "/usr/local/nginx/sbin/nginx"];
    let Some(nginx) = nginx.into_iter().find(|path| Path::new(path).is_file()) else {
        eprintln!("SKIPPED: nginx is not on this machine");
        return;
    };
    let (listen, upstream) = (free_port(), free_port());
    let dir = small_site(listen, upstream);
    let child = std::process::Command::new(nginx)
        .args(["-p", &dir.path().display().to_string(), "-c", "nginx.conf", "-e", "stderr"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let running = crate::real::Running(child);
    let url = format!("http://127.0.0.1:{listen}");
    weir_testkit::eventually("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", listen)).is_ok());
    let imported = run_weir(
        dir.path(),
        &[
            "import",
            "nginx",
            "nginx.conf",
            "-o",
            "weir",
            "--force",
            "--prove",
            "--against",
            &url,
            "--format",
            "json",
        ],
    );
    let report: Value =
        serde_json::from_str(&imported.stdout).unwrap_or_else(|error| panic!("{error}: {imported:#?}"));
    let proof = &report["proof"];
    if !cannot(&proof["not_proved"]) {
        assert!(proof["not_proved"].is_null() && proof["asked"].as_u64() > Some(30), "{proof:#}");
        assert_eq!(proof["program"], Value::from(url.clone()));
        let found = differences(proof);
        // nginx resolves paths for routing only, and puts its port into redirects.
        let known = ["upstream target", "upstream field host", "redirect"];
        assert!(found.iter().all(|found| known.iter().any(|known| found.ends_with(known))), "{found:?}");
        assert!(proof["forwarding_fields"]["requests"].as_u64() > Some(10), "{proof:#}");
        // A lie is caught: the route that refuses is opened.
        let routes = dir.path().join("weir/routes");
        for file in fs::read_dir(&routes).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("status: 403", "status: 200")).unwrap();
        }
        let lied = run_weir(dir.path(), &["prove", "weir", "--against", &url, "--format", "json"]);
        let lied: Value = serde_json::from_str(&lied.stdout).unwrap();
        assert!(differences(&lied).iter().any(|found| found.ends_with(" status")), "{lied:#}");
        // Nobody listens, the upstream is elsewhere, or the words are wrong.
        let gone = format!("http://127.0.0.1:{}", free_port());
        run_weir(dir.path(), &["prove", "weir", "--against", &gone]).expect_code(1).expect_text("NOT PROVED");
    }
    drop(running);
    run_weir(dir.path(), &["prove", "weir", "--against", "127.0.0.1:1"])
        .expect_code(2)
        .expect_text("http://HOST:PORT");
    run_weir(dir.path(), &["import", "nginx", "nginx.conf", "-o", "b", "--against", &url])
        .expect_code(2)
        .expect_text("--prove");
}

#[test]
fn what_no_upstream_sees_is_not_proved() {
    // A server that answers by itself, so that nothing comes to the echo.
    let other =
        weir_testkit::Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let dir = small_site(80, free_port());
    fs::write(dir.path().join("weir/weir.yaml"), "routes: { a: { match: { path: '/*' }, respond: {} } }\nlisteners: { web: { address: '127.0.0.1:80' } }\n").unwrap();
    fs::write(dir.path().join("weir/proof.yaml"), "system: nginx\nfiles: [ ../nginx.conf ]\n").unwrap();
    let url = format!("http://{}", other.address());
    let proved = run_weir(dir.path(), &["prove", "weir", "--against", &url]);
    proved.expect_code(1).expect_text("NOT PROVED").expect_text("came to the echo");
    let nginx = fs::read_to_string(dir.path().join("nginx.conf")).unwrap();
    let named = nginx.replace("proxy_pass http://127.0.0.1:", "proxy_pass http://app.internal:");
    fs::write(dir.path().join("nginx.conf"), named).unwrap();
    let proved = run_weir(dir.path(), &["prove", "weir", "--against", &url]);
    proved.expect_code(1).expect_text("--echo app.internal:").expect_text("are not on loopback");
}

#[test]
fn a_list_of_requests_is_tested() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.yaml"), "listeners: { web: { address: '127.0.0.1:0' } }\nroutes:\n  api: { match: { path: '/api/*', clients: [ 10.0.0.0/8 ] }, respond: {} }\n  beta: { match: { path: '/*', hosts: [ a.example ], headers: { x-beta: '1' } }, respond: {} }\n").unwrap();
    let tests = "tests:\n- { request: GET http://a.example/api/x, client: 10.0.0.7, route: api }\n- { request: GET http://a.example/api/x, route: none }\n- { request: GET http://a.example/y, headers: { x-beta: '1' }, route: beta }\n";
    fs::write(dir.path().join("tests.yaml"), tests).unwrap();
    run_weir(dir.path(), &["test"]).expect_code(0).expect_text("all 3 requests take the expected routes");
    fs::write(dir.path().join("other.yaml"), tests.replace("route: beta", "route: api")).unwrap();
    let wrong = run_weir(dir.path(), &["test", "other.yaml", "-c", "weir.yaml"]);
    wrong
        .expect_code(1)
        .expect_text("GET http://a.example/y takes beta, not api")
        .expect_text("1 of 3 requests");
    let json = run_weir(dir.path(), &["test", "other.yaml", "--format", "json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["asked"], &json["wrong"][0]["takes"]), (&Value::from(3), &Value::from("beta")));
    for bad in ["tests: []\n", "tests: [ { request: GET / } ]\n", "test: []\n"] {
        fs::write(dir.path().join("bad.yaml"), bad).unwrap();
        run_weir(dir.path(), &["test", "bad.yaml"]).expect_code(2);
    }
    run_weir(dir.path(), &["test", "missing.yaml"]).expect_code(2);
    fs::write(dir.path().join("weir.yaml"), "routes: 7\n").unwrap();
    run_weir(dir.path(), &["test"]).expect_code(1).expect_text("routes");
}

/// What only the clients of yesterday asked shows a difference that no witness made from the configs does.
#[test]
fn a_corpus_is_asked_too() {
    // A request goes elsewhere only if it has both arguments, which no witness has.
    let zebra = "  zebra:\n    match: { path: /api/zebra, query: { x: '1', y: '2' } }\n    upstream: front\n";
    let ours = OURS.replace("  private:\n", &format!("{zebra}  private:\n"));
    let log = "192.0.2.1 - - [24/Nov/2026:10:00:00 +0000] \"GET /api/zebra?x=1&y=2 HTTP/1.1\" 200 5 \"-\" \"curl\"\n";
    let har = r#"{"log":{"entries":[{"startedDateTime":"2026-11-24T10:00:00Z","request":{"method":"GET","url":"http://shop.example/api/zebra?x=1&y=2"}}]}}"#;
    let list = "# by hand\nhttp://shop.example/\nGET http://shop.example/api/zebra?x=1&y=2\n";
    let dir = site(&ours, RECORD);
    let Some(report) = prove(dir.path(), 0) else { return };
    let asked = report["asked"].as_u64();
    for (name, text) in [("access.log", log), ("clients.har", har), ("urls.txt", list)] {
        fs::write(dir.path().join(name), text).unwrap();
        let proved = run_weir(dir.path(), &["prove", "weir", "--format", "json", "--corpus", name]);
        let report: Value = serde_json::from_str(&proved.stdout).unwrap();
        assert_eq!(proved.code, Some(1), "{name}: {report:#}");
        assert!(report["asked"].as_u64() > asked, "{name}: {report:#}");
        let found = differences(&report);
        assert!(found.iter().any(|found| found.ends_with("who answered")), "{name}: {found:?}");
        let told = run_weir(dir.path(), &["prove", "weir", "--corpus", name]);
        told.expect_code(1).expect_text("/api/zebra").expect_text("from the corpus");
    }
    // proof.yaml names one for every later proof.
    fs::write(dir.path().join("weir/proof.yaml"), RECORD.to_owned() + "corpus: ../urls.txt\n").unwrap();
    let Some(report) = prove(dir.path(), 1) else { return };
    assert!(!differences(&report).is_empty(), "{report:#}");
    let missing = run_weir(dir.path(), &["prove", "weir", "--corpus", "none.log"]);
    assert_ne!(missing.code, Some(0), "{missing:#?}");
    assert!(missing.stderr.contains("none.log"), "{missing:#?}");
}

/// The file of routes with a filter or a setting taken out. Fails if it is not there.
#[track_caller]
fn without(dir: &Path, from: &str, to: &str) {
    let mut count = 0;
    for file in fs::read_dir(dir.join("weir/routes")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        count += text.matches(from).count();
        fs::write(&path, text.replace(from, to)).unwrap();
    }
    assert!(count > 0, "no `{from}` in {}", dir.display());
}

/// Guards that keep the client of a proof out: a line for each kind, and what takes it out of the import's output.
const GUARDS: &[(&str, &str, &str)] = &[
    ("deny 127.0.0.1; allow all;", "ip: { deny: [127.0.0.1] }", "ip: { deny: [192.0.2.1] }"),
    ("allow 192.0.2.0/24; deny all;", "allow: [192.0.2.0/24]", "allow: [127.0.0.0/8]"),
    ("deny all;", "respond: { status: 403 }", "respond: { status: 200 }"),
    ("if ($request_method = DELETE) { return 403; }", "\"DELETE\"", "\"NEVER\""),
    (
        "limit_except GET { deny all; }",
        "!(request.method in [\"GET\", \"HEAD\"])",
        "request.method == \"NEVER\"",
    ),
    ("if ($http_x_bot = yes) { return 403; }", "\"yes\"", "\"never\""),
    // Guards that other clients, methods and values meet.
    ("allow 10.0.0.0/8; deny all;", "allow: [10.0.0.0/8]", "allow: [10.0.0.0/9]"),
    ("deny 192.0.2.0/24; allow all;", "deny: [192.0.2.0/24]", "deny: [192.0.3.0/24]"),
    ("limit_except GET { deny all; }", "\"HEAD\"]", "\"HEAD\", \"PATCH\"]"),
    ("limit_except GET { deny all; }", "\"HEAD\"]", "\"HEAD\", \"WEIRD\"]"),
    ("if ($http_x_bot ~ ^(a|b|c|d|e|f|g|h|i)$) { return 403; }", "|h|i)", "|h)"),
    ("if ($http_x_bot ~ ^[b-d]$) { return 403; }", "[b-d]", "[b-e]"),
    ("if ($http_x_bot ~ \"^[0-9]{2,4}$\") { return 403; }", "{2,4}", "{2,5}"),
    ("if ($http_x_bot = yes) { return 403; }", " == \"yes\"", ".startsWith(\"yes\")"),
];

fn guarded(guard: &str, listen: &str, upstream: &str) -> String {
    format!(
        "events {{}}\nhttp {{\n  server {{\n    listen {listen};\n    location / {{ proxy_pass http://{upstream}; proxy_set_header Host $http_host; }}\n    \
         location /guarded/ {{\n      {guard}\n      proxy_set_header X-Guarded 1;\n      proxy_set_header Host $http_host; proxy_pass http://{upstream};\n    }}\n  }}\n}}\n"
    )
}

/// A record that accepts 400 for paths which servers read in two ways.
fn accept_escaped_slashes(dir: &Path) {
    fs::create_dir(dir.join("weir")).unwrap();
    let record = "system: nginx\nfiles: [ ../nginx.conf ]\naccept: [ { difference: ambiguous-path } ]\n";
    fs::write(dir.join("weir/proof.yaml"), record).unwrap();
}

/// An import that loses a guard is caught by its own proof, at the guard's line or that of its location.
#[test]
fn an_import_that_drops_a_guard_is_caught() {
    for (guard, from, to) in GUARDS {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("nginx.conf"), guarded(guard, "80", "front:3000")).unwrap();
        accept_escaped_slashes(dir.path());
        let imported = run_weir(
            dir.path(),
            &["import", "nginx", "nginx.conf", "-o", "weir", "--force", "--prove", "--format", "json"],
        );
        let report: Value =
            serde_json::from_str(&imported.stdout).unwrap_or_else(|e| panic!("{e}: {imported:#?}"));
        if cannot(&report["proof"]["not_proved"]) {
            return;
        }
        let statuses = |found: &[String]| found.iter().filter(|found| found.ends_with(" status")).count();
        assert_eq!(statuses(&differences(&report["proof"])), 0, "{guard}: {report:#}");
        without(dir.path(), from, to);
        let proved = run_weir(dir.path(), &["prove", "weir", "--format", "json"]);
        let lied: Value = serde_json::from_str(&proved.stdout).unwrap();
        assert_eq!(proved.code, Some(1), "{guard}: {lied:#}");
        let found = differences(&lied);
        assert!(statuses(&found) > 0, "{guard}: {found:?}");
    }
}

/// Both programs know the same users, so a proof shows whether each of them may pass. No report tells a password.
#[test]
fn users_are_asked() {
    let dir = TempDir::new().unwrap();
    let hash = "$2y$05$abcdefghijklmnopqrstuuVXkQ1XGcWDYWvnTZOHgmkQlD1vc4Suu";
    let guard = "auth_basic staff; auth_basic_user_file users;";
    fs::write(dir.path().join("nginx.conf"), guarded(guard, "80", "front:3000")).unwrap();
    fs::write(dir.path().join("users"), format!("ana:{hash}\nbob:{hash}\n")).unwrap();
    accept_escaped_slashes(dir.path());
    let imported = run_weir(
        dir.path(),
        &["import", "nginx", "nginx.conf", "-o", "weir", "--force", "--prove", "--format", "json"],
    );
    let report: Value =
        serde_json::from_str(&imported.stdout).unwrap_or_else(|e| panic!("{e}: {imported:#?}"));
    if cannot(&report["proof"]["not_proved"]) {
        return;
    }
    let of_callers = |found: Vec<String>| -> Vec<String> {
        let tells = |found: &String| {
            [" status", " who answered", "authorization"].iter().any(|end| found.ends_with(end))
        };
        found.into_iter().filter(tells).collect()
    };
    assert_eq!(of_callers(differences(&report["proof"])), Vec::<String>::new(), "{report:#}");
    let users = dir.path().join("weir/users/users");
    assert!(fs::read_to_string(&users).unwrap().contains("bob:"));
    fs::write(&users, format!("ana:{hash}\n")).unwrap();
    let proved = run_weir(dir.path(), &["prove", "weir", "--format", "json"]);
    let lied: Value = serde_json::from_str(&proved.stdout).unwrap();
    assert_eq!(proved.code, Some(1), "{lied:#}");
    assert!(!of_callers(differences(&lied)).is_empty(), "{lied:#}");
    assert!(proved.stdout.contains("as the consumer bob") && !proved.stdout.contains(hash), "{lied:#}");
}

/// Without `--prove` an import writes what `weir prove` needs, too. A folder without it is told how to get it.
#[test]
fn every_import_can_be_proved() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("nginx.conf"), guarded("deny all;", "80", "front:3000")).unwrap();
    run_weir(dir.path(), &["import", "nginx", "nginx.conf", "-o", "weir"]).expect_text("written to weir");
    let proved = run_weir(dir.path(), &["prove", "weir", "--format", "json"]);
    let report: Value = serde_json::from_str(&proved.stdout).unwrap_or_else(|e| panic!("{e}: {proved:#?}"));
    assert!(cannot(&report["not_proved"]) || report["asked"].as_u64() > Some(20), "{report:#}");
    fs::remove_file(dir.path().join("weir/proof.yaml")).unwrap();
    let told = run_weir(dir.path(), &["prove", "weir"]);
    told.expect_code(2).expect_text("weir import SYSTEM FILE").expect_text("-o weir");
}

/// What only an earlier import wrote is gone before the proof, which would otherwise read it too.
#[test]
fn files_of_an_earlier_import_are_no_part_of_a_proof() {
    let dir = TempDir::new().unwrap();
    for (site, upstream) in [("b.test", "first"), ("c.test", "second")] {
        let server = |name: &str| {
            format!(
                "server {{ listen 80; server_name {name}; location / {{ proxy_pass http://{upstream}; }} }}"
            )
        };
        let source = format!(
            "events {{}} http {{ upstream {upstream} {{ server front:3000; }} {} {} }}",
            server("a.test"),
            server(site)
        );
        fs::write(dir.path().join("nginx.conf"), source).unwrap();
        let told = run_weir(
            dir.path(),
            &["import", "nginx", "nginx.conf", "-o", "weir", "--force", "--prove", "--format", "json"],
        );
        let report: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|e| panic!("{e}: {told:#?}"));
        let not_proved = &report["proof"]["not_proved"];
        if cannot(not_proved) {
            return;
        }
        assert!(not_proved.is_null(), "{site}: {not_proved}");
    }
    assert!(!dir.path().join("weir/routes/b.test.yaml").exists());
}

/// How many requests a limit lets pass is compared exactly, and whom it counts.
#[test]
fn limits_are_compared_exactly() {
    let limited = |zone: &str, status: &str| {
        format!(
            "events {{}}\nhttp {{\n  limit_req_zone {zone} zone=z:1m rate=6r/m;\n  server {{\n    listen 80;\n    \
             location / {{ limit_req zone=z burst=12 nodelay; {status} proxy_pass http://front:3000; \
             proxy_set_header Host $http_host; }}\n  }}\n}}\n"
        )
    };
    let limits = |report: &Value| {
        differences(report).into_iter().filter(|found| found.contains(" status")).collect::<Vec<_>>()
    };
    let (by_client, by_field) = ("$binary_remote_addr", "$http_x_user");
    let lies = [
        (by_client, "burst: 13", "burst: 14", "6 status"),
        (by_client, "burst: 13", "burst: 12", "6 status"),
        (by_client, "burst: 13", "burst: 23", "6 status"),
        (by_client, "by: address", "by: header:x-user", "6 status of another c"),
        (by_client, "by: address", "by: route", "6 status of another client"),
        (by_field, "burst: 13", "burst: 14", "6 status"),
    ];
    for (zone, from, to, expected) in lies {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("nginx.conf"), limited(zone, "limit_req_status 429;")).unwrap();
        accept_escaped_slashes(dir.path());
        let imported = run_weir(
            dir.path(),
            &["import", "nginx", "nginx.conf", "-o", "weir", "--force", "--prove", "--format", "json"],
        );
        let report: Value = serde_json::from_str(&imported.stdout).unwrap();
        if cannot(&report["proof"]["not_proved"]) {
            return;
        }
        assert_eq!(limits(&report["proof"]), Vec::<String>::new(), "{zone}: {report:#}");
        without(dir.path(), from, to);
        let proved = run_weir(dir.path(), &["prove", "weir", "--format", "json"]);
        let lied: Value = serde_json::from_str(&proved.stdout).unwrap();
        let found = limits(&lied);
        assert!(found.iter().any(|found| found.starts_with(expected)), "{zone}: {to}: {found:?}");
    }
    // Another status is a difference of its own, so that whoever accepts it accepts no other number.
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("nginx.conf"), limited(by_client, "")).unwrap();
    let told =
        run_weir(dir.path(), &["import", "nginx", "nginx.conf", "-o", "weir", "--prove", "--format", "json"]);
    let report: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(limits(&report["proof"]), ["6 status of a limit"], "{report:#}");
}

/// Where a balancer draws lots, and where requests are copied, a right import does not differ.
#[test]
fn chance_and_copies_are_no_differences() {
    let dir = TempDir::new().unwrap();
    let nginx = "events {}\nhttp {\n  upstream r { random; server r1:80; server r2:80 weight=9; }\n  upstream h { ip_hash; server h1:80; server h2:80; }\n  \
                 upstream copy { server copy:80; }\n  server {\n    listen 80;\n    \
                 location / { proxy_pass http://r; proxy_set_header Host $http_host; }\n    \
                 location /h/ { proxy_pass http://h; proxy_set_header Host $http_host; }\n    \
                 location /m/ { mirror /copy; proxy_pass http://r; proxy_set_header Host $http_host; }\n    \
                 location = /copy { internal; proxy_pass http://copy$request_uri; }\n  }\n}\n";
    fs::write(dir.path().join("nginx.conf"), nginx).unwrap();
    let told =
        run_weir(dir.path(), &["import", "nginx", "nginx.conf", "-o", "weir", "--prove", "--format", "json"]);
    let report: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|e| panic!("{e}: {told:#?}"));
    if cannot(&report["proof"]["not_proved"]) {
        return;
    }
    let found = differences(&report["proof"]);
    assert!(!found.iter().any(|found| found.ends_with("who answered")), "{found:?}");
    // The copies are counted: without the mirror they are missing.
    without(dir.path(), "mirror: { upstream: ", "mirror: { share: 0.01%, upstream: ");
    let lied = run_weir(dir.path(), &["prove", "weir", "--format", "json"]);
    let lied: Value = serde_json::from_str(&lied.stdout).unwrap();
    assert!(differences(&lied).iter().any(|found| found.ends_with("who answered")), "{lied:#}");
}

/// The same against a gateway that runs elsewhere.
#[test]
fn a_gateway_elsewhere_shows_a_dropped_guard() {
    let Some(nginx) = crate::real::binary() else {
        eprintln!("SKIPPED: nginx is not on this machine");
        return;
    };
    let (guard, from, to) = GUARDS[0];
    let (listen, upstream) = (free_port(), free_port());
    let dir = TempDir::new().unwrap();
    let site = guarded(guard, &format!("127.0.0.1:{listen}"), &format!("127.0.0.1:{upstream}"));
    fs::write(dir.path().join("nginx.conf"), &site).unwrap();
    let d = dir.path().display();
    let running = format!("daemon off; master_process off; pid {d}/pid; error_log stderr;\n{site}").replace(
        "http {\n",
        &format!("http {{\n  access_log off; client_body_temp_path {d}/b; proxy_temp_path {d}/p; fastcgi_temp_path {d}/f; uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;\n"),
    );
    fs::write(dir.path().join("running.conf"), running).unwrap();
    let child = std::process::Command::new(nginx)
        .args(["-e", "stderr", "-p", &d.to_string(), "-c", &format!("{d}/running.conf")])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _running = crate::real::Running(child);
    weir_testkit::eventually("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", listen)).is_ok());
    let url = format!("http://127.0.0.1:{listen}");
    let statuses = |report: &Value| {
        differences(report).into_iter().filter(|found| found.ends_with(" status")).collect::<Vec<_>>()
    };
    accept_escaped_slashes(dir.path());
    let imported = run_weir(
        dir.path(),
        &[
            "import",
            "nginx",
            "nginx.conf",
            "-o",
            "weir",
            "--force",
            "--prove",
            "--against",
            &url,
            "--format",
            "json",
        ],
    );
    let report: Value =
        serde_json::from_str(&imported.stdout).unwrap_or_else(|e| panic!("{e}: {imported:#?}"));
    let proof = &report["proof"];
    if !cannot(&proof["not_proved"]) {
        assert_eq!(statuses(proof), Vec::<String>::new(), "{proof:#}");
        without(dir.path(), from, to);
        let proved = run_weir(dir.path(), &["prove", "weir", "--against", &url, "--format", "json"]);
        let lied: Value = serde_json::from_str(&proved.stdout).unwrap();
        assert_eq!(proved.code, Some(1), "{lied:#}");
        assert!(!statuses(&lied).is_empty(), "{lied:#}");
    }
}
