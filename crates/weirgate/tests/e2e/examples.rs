//! The configs in `examples/`: each passes `weir check` unchanged, and does what its comments promise.
//!
//! They listen on fixed ports and name fixed endpoints, so that people can try them. The tests replace these and
//! nothing else. A new example needs a line in [`EXAMPLES`] and a test of its promise.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use weir_testkit::{
    Authority, Client, Finished, H3, Pebble, ServerTls, Tls, Upstream, Weir, eventually, eventually_within,
    refusing_address, unused_address, weir_command,
};

use crate::cause::{
    ACL_DENIED, CERTIFICATE_MISSING, CIRCUIT_OPEN, CLIENT_CONCURRENCY, FILES_MISSING, KEY_MISSING,
    KEY_UNKNOWN, LOGIN_NEEDED, RATE_LIMITED, SIGNATURE_MISSING, TOKEN_CLAIMS, TOKEN_MISSING,
};
use crate::fleet::{Config as FleetConfig, Etcd};
use crate::jwt::{Signer, in_an_hour};
use crate::login;
use crate::shared_limits::Redis;
use crate::signature::Signing;
use crate::support::{OK, OK_BODY};
use crate::upgrade::tunnel_to;

const EXAMPLES: &[&str] = &[
    "access-log.yaml",
    "acme.yaml",
    "api-keys.yaml",
    "browser-app.yaml",
    "cache.yaml",
    "canary.yaml",
    "client-certificates.yaml",
    "discovery.yaml",
    "error-pages.yaml",
    "fleet-node.yaml",
    "forward-auth.yaml",
    "grpc-browser.yaml",
    "grpc-json.yaml",
    "hello.yaml",
    "http3.yaml",
    "jwt.yaml",
    "login.yaml",
    "mock.yaml",
    "php.yaml",
    "protect.yaml",
    "retries.yaml",
    "rewrite-redirect.yaml",
    "shared-limits.yaml",
    "signatures.yaml",
    "single-page-app.yaml",
    "tcp.yaml",
    "ten-lines.yaml",
    "tls.yaml",
    "tracing.yaml",
    "websocket.yaml",
    "who-may-call.yaml",
];

/// The value of `${SHOP_KEY}`.
const SHOP_KEY: &str = "a-key-from-the-environment";

// === All examples ===

#[test]
fn every_example_is_tested_here() {
    let files = fs::read_dir(root().join("examples")).unwrap();
    let mut found: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    found.retain(|name| name.ends_with(".yaml"));
    found.sort();
    assert_eq!(found, EXAMPLES);
}

#[test]
fn every_example_passes_check_without_a_warning() {
    let authority = Authority::new();
    let dir = TempDir::new().unwrap();
    let certs = dir.path().join("certs");
    fs::create_dir(&certs).unwrap();
    fs::create_dir(dir.path().join("dist")).unwrap();
    fs::create_dir(dir.path().join("site")).unwrap();
    for name in ["api", "shop"] {
        let leaf = authority.leaf(&[&format!("{name}.example.com")]);
        fs::copy(leaf.cert_file, certs.join(format!("{name}.pem"))).unwrap();
        fs::copy(leaf.key_file, certs.join(format!("{name}.key"))).unwrap();
    }
    fs::copy(authority.file(), certs.join("clients.pem")).unwrap();
    fs::write(dir.path().join("endpoints.json"), example("endpoints.json")).unwrap();
    for name in EXAMPLES {
        fs::write(dir.path().join(name), example(name)).unwrap();
        check(dir.path(), name).expect_code(0).expect_text("good");
    }
}

#[test]
fn the_ten_lines_of_the_readme_are_the_example() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("```yaml\n{}```\n", example("ten-lines.yaml"))));
    assert_eq!(example("ten-lines.yaml").lines().filter(|line| !line.is_empty()).count(), 8);
}

#[test]
fn the_readme_explains_its_ten_lines() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.yaml"), example("ten-lines.yaml")).unwrap();
    let explained = weir_testkit::run_weir(dir.path(), &["explain", "GET", "http://localhost:8080/orders/7"]);
    explained.expect_code(0).expect_text("orders");
}

// === Each example ===

#[test]
fn ten_lines() {
    let (first, second) = (Upstream::named("first"), Upstream::named("second"));
    let weir = start("ten-lines.yaml", &[&first, &second]);
    let mut client = weir.client();
    for _ in 0..40 {
        client.get("/orders/7").expect_status(200);
    }
    assert!(!first.requests().is_empty() && !second.requests().is_empty());
    client.get("/elsewhere").expect_status(404);
}

#[test]
fn single_page_app() {
    let upstream = Upstream::fixed(OK_BODY);
    let site = TempDir::new().unwrap();
    fs::create_dir_all(site.path().join("assets")).unwrap();
    fs::write(site.path().join("index.html"), "<div id=app>").unwrap();
    fs::write(site.path().join("assets/app.js"), "start()").unwrap();
    fs::write(site.path().join("assets/app.js.br"), "as it lies there").unwrap();
    let dist = site.path().display().to_string();
    let weir = start_text(&example("single-page-app.yaml").replace("./dist", &dist), &[&upstream]);
    let mut client = weir.client();
    client
        .get("/orders/7")
        .expect_status(200)
        .expect_body("<div id=app>")
        .expect_header("cache-control", "no-cache");
    client.get("/api/orders/7").expect_status(200);
    assert_eq!(upstream.take_request().head.line, "GET /orders/7 HTTP/1.1");
    let script = client.ask("GET /assets/app.js HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: br\r\n\r\n");
    script.expect_header("content-encoding", "br").expect_body("as it lies there");
    client.get("/assets/gone.js").expect_cause(FILES_MISSING);
}

#[test]
fn php() {
    let upstream = Upstream::fastcgi(|request| {
        weir_testkit::fastcgi::answer(format!(
            "\n{} {}",
            request.param("SCRIPT_NAME"),
            request.param("REQUEST_URI")
        ))
    });
    let site = TempDir::new().unwrap();
    for name in ["index.php", "wp-admin/index.php", "wp-content/style.css", "wp-content/uploads/evil.php"] {
        let path = site.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("source of {name}")).unwrap();
    }
    let text = example("php.yaml").replace("./site", &site.path().display().to_string());
    let weir = start_text(&text.replace("127.0.0.1:9000", &upstream.address().to_string()), &[]);
    let mut client = weir.client();
    client.get("/2026/11/hello/").expect_status(200).expect_body("/index.php /2026/11/hello/");
    client.get("/wp-admin/").expect_status(200).expect_body("/wp-admin/index.php /wp-admin/");
    client.get("/wp-content/style.css").expect_status(200).expect_body("source of wp-content/style.css");
    client.get("/wp-content/uploads/evil.php").expect_body("source of wp-content/uploads/evil.php");
}

#[test]
fn fleet_node() {
    let Some(etcd) = Etcd::start() else { return };
    let config = FleetConfig::saying("one");
    etcd.publish(&config, &[]);
    let text = example("fleet-node.yaml")
        .replace("127.0.0.1:2379", &etcd.address.to_string())
        .replace("/var/lib/weir/last-good", "last-good")
        .replace("/weir/prod", "/weir/test")
        .replace("127.0.0.1:9180", "127.0.0.1:0");
    let weir = Weir::start(&text);
    weir.client().get("/").expect_status(200).expect_body("one");
}

#[test]
fn hello() {
    let weir = start("hello.yaml", &[]);
    weir.client().get("/hello").expect_status(200).expect_body("hello\n");
}

#[test]
fn discovery() {
    let upstreams = ["a", "b"].map(Upstream::named);
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("endpoints.json");
    let mut list = example("endpoints.json");
    for (port, upstream) in (8000..).zip(&upstreams) {
        list = list.replace(&format!("127.0.0.1:{port}"), &upstream.address().to_string());
    }
    fs::write(&file, list).unwrap();
    // No registry is running: neither these endpoints nor the start wait for one.
    let (_held, nobody) = refusing_address();
    let yaml = example("discovery.yaml")
        .replace("endpoints.json", file.to_str().unwrap())
        .replace("http://127.0.0.1:2379", &format!("http://{nobody}"))
        .replace("{ service: carts }", &format!("{{ servers: [\"http://{nobody}\"], service: carts }}"));
    let weir = start_text(&yaml, &[]);
    weir.client().get("/pages/").expect_status(200);
    weir.client().get("/carts/").expect_status(503);
    fs::write(&file, format!("[ \"{}\" ]", upstreams[1].address())).unwrap();
    eventually("the other one alone answers", || {
        let status =
            weir.admin_client().ask(format!("GET /status HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin()));
        status.json()["upstreams"]["pages"]["discovery"]["listed"] == 1
    });
    eventually("it is in use", || weir.client().get("/pages/").text() == "b");
}

fn greeter() -> weir_origin::Handle {
    let address = "127.0.0.1:0".parse().unwrap();
    let greeter = weir_origin::Options { address, ..weir_origin::Options::default() };
    weir_origin::Origin::start(greeter).unwrap()
}

#[test]
fn grpc_browser() {
    let greeter = greeter();
    let text = example("grpc-browser.yaml").replace("127.0.0.1:50051", &greeter.address().to_string());
    let weir = start_text(&text, &[]);
    let call = |media: &str, body: &str| {
        weir.client().ask(format!(
            "POST /helloworld.v1.Greeter/SayHello HTTP/1.1\r\nHost: weir.test\r\nOrigin: http://localhost:3000\r\n\
             Content-Type: {media}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let by_connect = call("application/json", "{\"name\":\"Ann\"}");
    by_connect.expect_status(200).expect_body("{\"message\":\"hello Ann\"}");
    by_connect.expect_header("access-control-allow-origin", "http://localhost:3000");
    let by_web = call("application/grpc-web+proto", "\0\0\0\0\u{5}\n\u{3}Ann");
    assert!(by_web.expect_status(200).text().contains("hello Ann"), "{}", by_web.text());
    assert!(by_web.text().contains("grpc-status: 0\r\n"), "{}", by_web.text());
}

#[test]
fn grpc_json() {
    let greeter = greeter();
    let text = example("grpc-json.yaml").replace("127.0.0.1:50051", &greeter.address().to_string());
    let weir = start_text(&text, &[]);
    let mut client = weir.client();
    let body = "{\"name\":\"Ann\"}";
    let call =
        "POST /helloworld.v1.Greeter/SayHello HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 14\r\n\r\n";
    client.ask(format!("{call}{body}")).expect_status(200).expect_body("{\"message\":\"hello Ann\"}");
    let described = client.get("/openapi.json").expect_status(200).json();
    assert!(described["paths"]["/helloworld.v1.Greeter/SayHello"]["post"].is_object(), "{described}");
}

#[test]
fn api_keys() {
    let upstream = Upstream::fixed(OK);
    let weir = start("api-keys.yaml", &[&upstream]);
    let mut client = weir.client();
    let mut ask = |key: &str| client.ask(format!("GET /spot/price HTTP/1.1\r\nHost: weir.test\r\n{key}\r\n"));
    ask("").expect_cause(KEY_MISSING);
    ask("apikey: trial\r\n").expect_cause(KEY_UNKNOWN);
    assert_eq!(upstream.connections(), 0);
    for _ in 0..10 {
        ask(&format!("apikey: {SHOP_KEY}\r\n")).expect_status(200);
    }
    for _ in 0..5 {
        ask("apikey: trial-7f3a\r\n").expect_status(200);
    }
    ask("apikey: trial-7f3a\r\n").expect_cause(RATE_LIMITED);
    weir.client().get("/status").expect_status(200).expect_body("up\n");
}

#[test]
fn protect() {
    let ill = Upstream::fixed("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    let (orders, reports) = (ill, Upstream::listen());
    let weir = start("protect.yaml", &[&orders, &reports]);
    for _ in 0..20 {
        weir.client().get("/orders/1").expect_status(500);
    }
    weir.client().get("/orders/1").expect_cause(CIRCUIT_OPEN);
    let mut first = weir.client();
    first.send("GET /reports/1 HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut conn = reports.accept();
    conn.read_head();
    let mut second = weir.client();
    second.send("GET /reports/1 HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let _other = reports.accept();
    weir.client().get("/reports/2").expect_cause(CLIENT_CONCURRENCY);
    conn.send(OK);
    first.read_response().expect_status(200);
}

#[test]
fn retries() {
    let bad = Upstream::fixed("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let (good, stuck, quick) = (Upstream::named("good"), Upstream::listen(), Upstream::named("quick"));
    let weir = start("retries.yaml", &[&bad, &good, &stuck, &quick]);
    let mut client = weir.client();
    client.get("/orders/1").expect_status(200).expect_body("good");
    assert_eq!((bad.requests().len(), good.requests().len()), (1, 1), "the own zone first");
    // Which of two endpoints is tried first is random; requests to the stuck one are answered anyway.
    eventually("the stuck one was asked", || {
        client.get("/search/1").expect_status(200).expect_body("quick");
        stuck.connections() > 0
    });
}

#[test]
fn cache() {
    let shop = Upstream::named("shop");
    let weir = start("cache.yaml", &[&shop]);
    let mut client = weir.client();
    client.get("/shop/1").expect_status(200).expect_body("shop");
    client.get("/shop/1").expect_status(200).expect_body("shop").expect_header("age", "0");
    assert_eq!(shop.requests().len(), 1);
}

#[test]
fn canary() {
    let (orders, next) = (Upstream::named("orders"), Upstream::named("next"));
    let weir = start("canary.yaml", &[&orders, &next]);
    let mut client = weir.client();
    for _ in 0..5 {
        let asked = "GET /orders/1 HTTP/1.1\r\nHost: weir.test\r\nX-Canary: yes\r\n\r\n";
        client.ask(asked).expect_status(200).expect_body_with("next");
    }
    // 5 %: in 1 of 5 million runs none of 300 requests reaches the new version; in fewer, more than 60 do.
    let new = (0..300).filter(|_| client.get("/orders/1").text().contains("next")).count();
    assert!((1..=60).contains(&new), "{new} of 300");
}

#[test]
fn forward_auth() {
    let orders = Upstream::fixed(OK_BODY);
    let auth = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let answer = match request.head.header("authorization") {
                Some("good") => "HTTP/1.1 204 No Content\r\nX-User: ann\r\n\r\n",
                _ => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nlogin",
            };
            if !request.head.line.starts_with("GET /verify ") || conn.try_send(answer).is_err() {
                return;
            }
        }
    });
    let weir = start("forward-auth.yaml", &[&orders, &orders, &auth]);
    let mut client = weir.client();
    client.get("/orders/1").expect_status(401).expect_body("login");
    assert_eq!(orders.connections(), 0);
    let asked = "GET /orders/1 HTTP/1.1\r\nHost: weir.test\r\nAuthorization: good\r\nX-User: root\r\n\r\n";
    client.ask(asked).expect_status(200);
    assert_eq!(orders.take_request().head.all("x-user"), ["ann"]);
    auth.verify();
}

#[test]
fn browser_app() {
    let (orders, app) = (Upstream::fixed(OK_BODY), Upstream::fixed(OK));
    let weir = start("browser-app.yaml", &[&orders, &app]);
    let mut client = weir.client();
    let preflight = "OPTIONS /orders/7 HTTP/1.1\r\nHost: weir.test\r\nOrigin: https://app.example.com\r\n\
         Access-Control-Request-Method: DELETE\r\nAccess-Control-Request-Headers: apikey\r\n\r\n";
    client
        .ask(preflight)
        .expect_status(204)
        .expect_header("access-control-allow-origin", "https://app.example.com");
    assert_eq!(orders.connections(), 0);
    let get = "GET /orders/7 HTTP/1.1\r\nHost: weir.test\r\nOrigin: https://app.example.com\r\n\r\n";
    client
        .ask(get)
        .expect_cause(KEY_MISSING)
        .expect_header("access-control-allow-origin", "https://app.example.com");
    client.get("/").expect_status(200).expect_header("x-frame-options", "DENY");
    client.get("/orders/7").expect_header("x-frame-options", "DENY");
}

#[test]
fn jwt() {
    let orders = Upstream::fixed(OK_BODY);
    let signer = Signer::new("2026");
    let provider = signer.provider();
    let weir = start("jwt.yaml", &[&orders, &provider]);
    let mut client = weir.client();
    let mut ask = |token: &str| {
        let head = "GET /orders/1 HTTP/1.1\r\nHost: weir.test\r\nX-User: root\r\n";
        client.ask(format!("{head}Authorization: Bearer {token}\r\n\r\n"))
    };
    let claims = |scope: &str| {
        let who = r#""iss":"https://idp.example.com","aud":["orders"],"azp":"shop-web","sub":"ann""#;
        format!(r#"{{{who},"scope":"{scope}","exp":{}}}"#, in_an_hour())
    };
    ask(&signer.token(&claims("openid orders"))).expect_status(200);
    assert_eq!(orders.take_request().head.all("x-user"), ["ann"]);
    ask(&signer.token(&claims("openid"))).expect_cause(TOKEN_CLAIMS);
    weir.client().get("/orders/1").expect_cause(TOKEN_MISSING);
}

#[test]
fn who_may_call() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start("who-may-call.yaml", &[&upstream]);
    let mut client = weir.client();
    let mut ask = |path: &str, key: &str| {
        client.ask(format!("GET {path} HTTP/1.1\r\nHost: weir.test\r\nX-Api-Key: {key}\r\n\r\n"))
    };
    ask("/orders/7", SHOP_KEY).expect_status(200);
    ask("/orders/7", "trial-7f3a").expect_cause(ACL_DENIED);
    ask("/internal/stats", "").expect_status(200);
    ask("/reports/2026", SHOP_KEY).expect_status(200);
    ask("/reports/2026", "").expect_status(401);
    // ann:a secret
    let ann =
        "GET /reports/2026 HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Basic YW5uOmEgc2VjcmV0\r\n\r\n";
    weir.client().ask(ann).expect_status(200);
}

#[test]
fn login() {
    let (app, provider) = (Upstream::fixed(OK_BODY), login::provider());
    let weir = start("login.yaml", &[&app, &provider]);
    weir.client().get("/").expect_cause(LOGIN_NEEDED);
    weir.client().get("/assets/a.css").expect_status(200);
    app.take_request();
    let (session, to) = login::log_in(&weir, "/start", "/oidc/callback");
    assert_eq!(to, "https://app.example.com/start");
    let asked =
        format!("GET /start HTTP/1.1\r\nHost: app.example.com\r\nX-User: root\r\nCookie: {session}\r\n\r\n");
    weir.client().ask(asked).expect_status(200);
    let head = app.take_request().head;
    assert_eq!((head.all("x-user"), head.header("cookie")), (vec!["ann"], None));
}

#[test]
fn rewrite_and_redirect() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nServer: secret/1\r\nContent-Length: 0\r\n\r\n");
    let weir = start("rewrite-redirect.yaml", &[&upstream]);
    let mut client = weir.client();
    let asked = "GET /v1/orders/7?debug=1 HTTP/1.1\r\nHost: weir.test\r\nX-Debug: 1\r\n\r\n";
    let answer = client.ask(asked);
    answer.expect_status(200).expect_header("x-api-version", "2").expect_no_header("server");
    let request = upstream.take_request().head;
    assert_eq!(request.line, "GET /v2/orders/7?source=v1 HTTP/1.1");
    assert_eq!(request.header("host"), Some("orders.internal"));
    assert_eq!((request.header("x-edge"), request.header("x-debug")), (Some("weir"), None));
    let moved = client.get("/old/page");
    moved.expect_status(308).expect_header("location", "https://archive.example.com/old/page");
}

#[test]
fn signatures() {
    let (orders, ledger) = (Upstream::fixed(OK_BODY), Upstream::fixed(OK_BODY));
    let key = Signing::new("shop-2026");
    let yaml = example("signatures.yaml");
    let (before, rest) = yaml.split_once("-----BEGIN").unwrap();
    let (_, after) = rest.split_once("-----END PUBLIC KEY-----\n").unwrap();
    let pem = key.public_pem().trim().replace('\n', "\n          ");
    let weir = start_text(&format!("{before}{pem}\n{after}"), &[&orders, &ledger]);
    let mut client = weir.client();
    client.ask(key.request("POST", "weir.test", "/orders/1?a=b", b"hello")).expect_status(200);
    assert_eq!(orders.take_request().body.bytes, b"hello");
    client.get("/orders/1").expect_cause(SIGNATURE_MISSING);
    client.get("/ledger/1").expect_status(200);
    let head = ledger.take_request().head;
    let input = head.header("signature-input").unwrap();
    assert!(
        input.starts_with("sig=(\"@method\" \"@target-uri\");created=") && input.contains("keyid=\"weir\""),
        "{input}"
    );
}

#[test]
fn shared_limits() {
    let Some(redis) = Redis::start_with(&[]) else { return };
    let orders = Upstream::fixed(OK_BODY);
    let yaml = example("shared-limits.yaml").replace("127.0.0.1:6379", &redis.address.to_string());
    let weirs = [(); 2].map(|()| start_text(&yaml, &[&orders]));
    let mut clients = [weirs[0].client(), weirs[1].client()];
    // Tokens that return in the meantime: 1.7 per second.
    let began = std::time::Instant::now();
    let statuses: Vec<u16> = (0..150).map(|i| clients[i % 2].get("/orders/1").status).collect();
    let back = began.elapsed().as_secs_f64() * 100.0 / 60.0;
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let most = 100.0 + 2.0 * (1.0 + 5.0) + back;
    assert!(passed >= 85 && passed as f64 <= most.ceil(), "{passed} of {most}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 150 - passed);
}

#[test]
fn client_certificates() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let orders = Upstream::fixed(OK_BODY);
    let leaf = authority.leaf(&["api.example.com"]);
    let yaml = example("client-certificates.yaml")
        .replace("certs/api.pem", &leaf.cert_file.display().to_string())
        .replace("certs/api.key", &leaf.key_file.display().to_string())
        .replace("certs/clients.pem", &clients.file().display().to_string());
    let weir = start_text(&yaml, &[&orders]);
    let stranger = Tls::new(&authority, "api.example.com");
    let ask = |tls: &Tls, path: &str| {
        Client::connect_tls(weir.address("secure"), tls)
            .ask(format!("GET {path} HTTP/1.1\r\nHost: api.example.com\r\nX-Consumer: root\r\n\r\n"))
    };
    ask(&stranger, "/orders/1").expect_cause(CERTIFICATE_MISSING);
    ask(&stranger, "/status").expect_body("up\n");
    let shop =
        Tls::new(&authority, "api.example.com").identity(&clients.client_for("shop", &["shop.internal"]));
    ask(&shop, "/orders/1").expect_status(200);
    let head = orders.take_request().head;
    assert_eq!((head.all("x-consumer"), head.all("client-cert").len()), (vec!["shop"], 1));
}

#[test]
fn tcp() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["api.example.com"]);
    let mail_leaf = ServerTls::new(&authority.leaf(&["mail.example.com"]));
    let (one, two, mail) = (Upstream::listen(), Upstream::listen(), Upstream::listen_tls(&mail_leaf));
    let yaml = example("tcp.yaml")
        .replace("certs/api.pem", &leaf.cert_file.display().to_string())
        .replace("certs/api.key", &leaf.key_file.display().to_string())
        .replace("127.0.0.1:5432", "127.0.0.1:0")
        .replace("127.0.0.1:8443", "127.0.0.1:0")
        .replace("127.0.0.1:15432", &one.address().to_string())
        .replace("127.0.0.1:15433", &two.address().to_string())
        .replace("127.0.0.1:8993", &mail.address().to_string());
    let weir = Weir::start(&yaml);
    let mut first = Client::connect(weir.address("database"));
    first.send("a");
    eventually("one has it", || one.connections() + two.connections() == 1);
    let mut second = Client::connect(weir.address("database"));
    second.send("b");
    eventually("each has one", || (one.connections(), two.connections()) == (1, 1));
    let (address, tls) = (weir.address("names"), Tls::new(&authority, "mail.example.com"));
    let sender = std::thread::spawn(move || Client::connect_tls(address, &tls).expect("220 mail"));
    mail.accept().send("220 mail");
    sender.join().unwrap();
    let mut browser = Client::connect_tls(weir.address("names"), &Tls::new(&authority, "api.example.com"));
    browser.get("/").expect_status(200).expect_body("web\n");
}

#[test]
fn websocket() {
    let upstream = Upstream::listen();
    let weir = start("websocket.yaml", &[&upstream]);
    let (mut client, mut conn) = tunnel_to(&weir, &upstream, "/chat/room");
    client.send("to the service");
    conn.expect("to the service");
    conn.send("to the client");
    client.expect("to the client");
}

#[test]
fn error_pages() {
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let well = request.head.line.contains("/reports/");
            let answer = if well { OK_BODY } else { "HTTP/1.1 500 Oops\r\nContent-Length: 5\r\n\r\nstack" };
            if conn.try_send(answer).is_err() {
                return;
            }
        }
    });
    let weir = start("error-pages.yaml", &[&upstream]);
    let mut client = weir.client();
    let json = client.get("/nowhere");
    json.expect_status(404).expect_body("{\"error\":\"no_route\",\"path\":\"/nowhere\"}");
    let page = client.ask("GET /nowhere HTTP/1.1\r\nHost: weir.test\r\nAccept: text/html\r\n\r\n");
    page.expect_status(404).expect_body_with("<h1>/nowhere is not here</h1>");
    client.get("/orders/7").expect_status(500).expect_body_with("Sorry");
    client.get("/reports/2026").expect_status(503).expect_header("retry-after", "1800");
    let preview = "GET /reports/2026 HTTP/1.1\r\nHost: weir.test\r\nX-Preview: let-me-see\r\n\r\n";
    client.ask(preview).expect_status(200).expect_body("ok");
}

#[test]
fn mock() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start("mock.yaml", &[&upstream]);
    let mut client = weir.client();
    for _ in 0..20 {
        let answer = client.get("/users/7");
        if answer.status == 503 {
            answer.expect_header("retry-after", "1");
        } else {
            answer.expect_status(200).expect_body("{\"id\":\"7\",\"name\":\"Ann\"}");
        }
    }
    let mut asks = |fault: &str| {
        client.ask(format!("GET /orders/7 HTTP/1.1\r\nHost: weir.test\r\nX-Weir-Fault: {fault}\r\n\r\n"))
    };
    asks("delay=1ms").expect_status(200).expect_body("ok");
    asks("status=503").expect_status(503);
}

#[test]
fn access_log() {
    let upstream = Upstream::fixed("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    let weir = start("access-log.yaml", &[&upstream]);
    weir.client().get("/orders/7?token=geheim&a=b").expect_status(500);
    let mut line = String::new();
    eventually("the line is written", || {
        line = fs::read_to_string(weir.dir().join("access.log")).unwrap_or_default();
        line.ends_with('\n')
    });
    assert!(line.contains("/orders/7?token=***&a=b") && line.contains("\"client\":\"127.0.0.0\""), "{line}");
    assert!(!line.contains("\"peer\""), "{line}");
}

#[test]
fn tracing() {
    let (upstream, collector) = (Upstream::fixed(OK_BODY), Upstream::fixed(OK));
    let yaml = example("tracing.yaml").replace("127.0.0.1:4318", &collector.address().to_string());
    let weir = start_text(&yaml, &[&upstream]);
    let sampled = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    weir.client()
        .ask(format!("GET /orders/7 HTTP/1.1\r\nHost: weir.test\r\n{sampled}\r\n"))
        .expect_status(200);
    assert!(weir.wait_stdout("/orders/7").contains("\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\""));
    assert_eq!(collector.take_request().head.line, "POST /v1/traces HTTP/1.1");
}

#[test]
fn tls() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let mut yaml = example("tls.yaml");
    let mut leaves = Vec::new();
    for name in ["api", "shop"] {
        let leaf = authority.leaf(&[&format!("{name}.example.com")]);
        yaml = yaml.replace(&format!("certs/{name}.pem"), &leaf.cert_file.display().to_string());
        yaml = yaml.replace(&format!("certs/{name}.key"), &leaf.key_file.display().to_string());
        leaves.push(leaf);
    }
    let weir = start_text(&yaml, &[&upstream]);
    for (name, leaf) in [("api.example.com", &leaves[0]), ("shop.example.com", &leaves[1])] {
        let mut client = Client::connect_tls(weir.address("secure"), &Tls::new(&authority, name));
        assert_eq!(client.tls().certificate, leaf.der, "{name}");
        client.get("/a").expect_status(200).expect_body("ok");
        assert_eq!(upstream.take_request().head.header("x-forwarded-proto"), Some("https"));
    }
    let plain = weir.client().ask("GET /a?b=c HTTP/1.1\r\nHost: shop.example.com:8080\r\n\r\n");
    plain.expect_status(308).expect_header("location", "https://shop.example.com:8443/a?b=c");
}

#[test]
fn http3() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["api.example.com"]);
    let upstream = Upstream::fixed(OK_BODY);
    let yaml = example("http3.yaml").replace("certs/api.pem", &leaf.cert_file.display().to_string());
    let yaml = yaml.replace("certs/api.key", &leaf.key_file.display().to_string());
    let weir = start_text(&yaml, &[&upstream]);
    let tls = Tls::new(&authority, "api.example.com");
    let first = Client::connect_tls(weir.address("secure"), &tls).get("/a");
    let address = weir.udp_address();
    let (_, port) = address.rsplit_once(':').unwrap();
    first.expect_body("ok").expect_header("alt-svc", &format!("h3=\":{port}\"; ma=86400"));
    let tls = Tls::new(&authority, "api.example.com"); // the other one offers no h3
    let next = H3::connect(&address, &tls).ask("GET /a HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
    next.expect_status(200).expect_body("ok");
}

#[test]
fn acme() {
    let (clear, secure) = (unused_address(), unused_address());
    let Some(mut pebble) = Pebble::new(clear.port(), secure.port()) else { return };
    pebble.start();
    let upstream = Upstream::fixed(OK_BODY);
    let mut yaml = example("acme.yaml");
    let staging = "directory: \"https://acme-staging-v02.api.letsencrypt.org/directory\"";
    assert!(yaml.contains(staging));
    yaml = yaml.replace(staging, &pebble.yaml().replace(", ", "\n        "));
    yaml = yaml.replace("0.0.0.0:443", &secure.to_string()).replace("0.0.0.0:80", &clear.to_string());
    let weir = start_text(&yaml, &[&upstream]);
    for name in ["www.example.com", "api.example.com"] {
        let tls = Tls::trusting(pebble.root(), name);
        let issued = || Client::try_connect_tls(secure, &tls).is_ok();
        eventually_within(Duration::from_secs(60), "a certificate is shown", issued);
        Client::connect_tls(secure, &tls).get("/a").expect_status(200).expect_body("ok");
    }
    let plain = weir.client().ask("GET /a?b=c HTTP/1.1\r\nHost: www.example.com\r\n\r\n");
    plain.expect_status(308).expect_header("location", "https://www.example.com/a?b=c");
}

// === Starting an example ===

/// Starts an example with free ports for its listeners, and these upstreams for 127.0.0.1:8000 and following.
#[track_caller]
fn start(name: &str, upstreams: &[&Upstream]) -> Weir {
    start_text(&example(name), upstreams)
}

#[track_caller]
fn start_text(yaml: &str, upstreams: &[&Upstream]) -> Weir {
    let mut yaml = yaml.replace("${SHOP_KEY}", SHOP_KEY);
    for listener in ["127.0.0.1:8080", "127.0.0.1:8443"] {
        yaml = yaml.replace(&format!("address: {listener}"), "address: 127.0.0.1:0");
    }
    for (port, upstream) in (8000..).zip(upstreams) {
        yaml = yaml.replace(&format!("127.0.0.1:{port}"), &upstream.address().to_string());
    }
    Weir::start(&yaml)
}

#[track_caller]
fn check(dir: &Path, name: &str) -> Finished {
    let mut command = weir_command(dir);
    let output =
        command.args(["check", "--deny-warnings", "-c", name]).env("SHOP_KEY", SHOP_KEY).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Finished { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

fn example(name: &str) -> String {
    fs::read_to_string(root().join("examples").join(name)).unwrap()
}

/// The workspace, determined at run time: see tidy/main.rs.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&here).ancestors().nth(2).unwrap().to_owned()
}
