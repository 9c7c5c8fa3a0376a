//! `errors` and `maintenance`: the operator's own pages.

mod elsewhere;

use weir_testkit::{Upstream, Weir, eventually};

use crate::cause::{IP_DENIED, KEY_MISSING, MAINTENANCE, NO_ROUTE, UPSTREAM_ERROR};
use crate::support::{OK_BODY, WEB};

const HTML: &str = "text/html; charset=utf-8";

#[track_caller]
fn start(upstream: &Upstream, more: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nexpose_causes: true\nwatch: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n{more}\n",
        upstream.address()
    ))
}

fn asks(target: &str, accept: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\nAccept: {accept}\r\n\r\n")
}

#[test]
fn pages_by_status_cause_and_accept() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(
        &upstream,
        "filters:\n  - errors:\n      404: [ { body: \"<p>{path} is not here</p>\" }, { body: '{\"cause\":\"{cause}\",\"id\":\"{request_id}\"}' } ]\n      \
         4xx: { body: \"{status} {reason}\\n\" }\n      key_missing: { body: \"A key, please.\\n\" }\n\
         consumers: { shop: { key_auth: [ a-key ] } }\nroutes:\n  keyed: { match: { path: /keyed }, filters: [ key_auth ], upstream: up }\n  \
         closed: { match: { path: /closed }, filters: [ { ip: { deny: [ 127.0.0.0/8 ] } } ], upstream: up }\n  \
         open: { match: { path: /open }, upstream: up }\n  own: { match: { path: /own }, respond: { status: 404, body: mine } }\n",
    );
    let mut client = weir.client();
    client.get("/open").expect_status(200).expect_body("ok");
    let page = client.ask(asks("/a%3Cb", "text/html,*/*;q=0.8"));
    page.expect_cause(NO_ROUTE).expect_body("<p>/a%3Cb is not here</p>").expect_header("content-type", HTML);
    page.expect_header("vary", "accept").expect_header("cache-control", "no-store");
    let json = client.ask(asks("/x", "application/json"));
    json.expect_cause(NO_ROUTE).expect_header("content-type", "application/json");
    assert_eq!(json.json()["cause"], "no_route");
    assert_eq!(json.json()["id"].as_str().unwrap().len(), 32);
    let head = client.request("HEAD", "/x");
    head.expect_cause(NO_ROUTE).expect_header("content-length", "21").expect_body("");
    client.get("/keyed").expect_cause(KEY_MISSING).expect_body("A key, please.\n");
    client.get("/closed").expect_cause(IP_DENIED).expect_body("403 Forbidden\n");
    client.get("/own").expect_status(404).expect_body("mine");
    // The connection continues after each of them.
    client.get("/open").expect_status(200);
}

#[test]
fn pages_in_place_of_an_upstreams() {
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let answer = match request.head.line.as_str() {
                "GET /whole HTTP/1.1" => {
                    "HTTP/1.1 500 Oops\r\nX-Trace: secret\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nstack"
                }
                "GET /cut HTTP/1.1" => "HTTP/1.1 500 Oops\r\nContent-Length: 500\r\n\r\nstack",
                "GET /teapot HTTP/1.1" => "HTTP/1.1 418 x\r\nContent-Length: 1\r\n\r\nt",
                _ => OK_BODY,
            };
            if conn.try_send(answer).is_err() {
                return;
            }
        }
    });
    let weir = start(
        &upstream,
        "access_log: { output: stdout, format: json }\nroutes: { all: { match: { path: \"/*\" }, filters: [ { errors: { 5xx: { body: \"Sorry {request_id}.\" }, upstream: [ 5xx ] } } ], upstream: up } }",
    );
    let mut client = weir.client();
    let page = client.get("/whole");
    page.expect_cause((500, UPSTREAM_ERROR.1)).expect_header("retry-after", "7");
    let told = page.text();
    let id = told.strip_prefix("Sorry ").and_then(|rest| rest.strip_suffix('.')).unwrap();
    assert_eq!(id.len(), 32, "{told}");
    page.expect_no_header("x-trace");
    client.get("/fine").expect_status(200).expect_body("ok");
    assert_eq!(upstream.connections(), 1, "the answer had come whole, so its connection is kept");
    client.get("/cut").expect_cause((500, UPSTREAM_ERROR.1)).expect_body_with("Sorry ");
    client.get("/fine").expect_status(200).expect_body("ok");
    assert_eq!(upstream.connections(), 2, "what was not read is cut off");
    client.get("/teapot").expect_status(418).expect_body("t");
    weir.wait_stdout("\"cause\":\"upstream_error\"");
    weir.wait_stdout(id); // the log has the id shown on the page
}

#[test]
fn a_page_is_watched_and_a_bad_one_changes_nothing() {
    let upstream = Upstream::fixed(OK_BODY);
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("404.html");
    std::fs::write(&file, "<p>one</p>").unwrap();
    let weir = start(
        &upstream,
        &format!(
            "filters: [ {{ errors: {{ 404: {{ file: \"{}\" }} }} }} ]\nroutes: {{ a: {{ match: {{ path: /a }}, upstream: up }} }}",
            file.display()
        ),
    );
    weir.client()
        .get("/")
        .expect_cause(NO_ROUTE)
        .expect_body("<p>one</p>")
        .expect_header("content-type", HTML);
    std::fs::write(&file, "<p>two</p>").unwrap();
    eventually("the page is new", || weir.client().get("/").text() == "<p>two</p>");
    std::fs::write(&file, "<p>\n{stauts}</p>").unwrap();
    let refused = weir.wait_log("reload refused");
    let first = refused.field("first").unwrap_or_default();
    assert!(first.contains("404.html:2: `{stauts}` is not a placeholder"), "{first}");
    let told = weir_testkit::run_weir(weir.dir(), &["check"]);
    told.expect_code(1).expect_text("404.html:2: `{stauts}` is not a placeholder");
    weir.client().get("/").expect_body("<p>two</p>");
}

#[test]
fn maintenance_of_a_route_of_hosts_and_of_all() {
    let upstream = Upstream::fixed(OK_BODY);
    let config = |on: bool| {
        format!(
            "{WEB}\nexpose_causes: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nfilters:\n  \
             - errors: {{ 5xx: {{ body: \"Sorry.\" }}, upstream: [ 5xx ] }}\n  \
             - maintenance: {{ on: {on}, hosts: [ shop.test ], page: {{ body: \"<h1>{{host}}</h1>\" }}, retry_after: 10m, allow_headers: {{ x-preview: open }} }}\n\
             routes:\n  all: {{ match: {{ path: \"/a/*\" }}, upstream: up }}\n  \
             one: {{ match: {{ path: /one }}, filters: [ {{ maintenance: {{}} }} ], upstream: up }}\n",
            upstream.address()
        )
    };
    let weir = Weir::start(&config(true));
    let ask = |host: &str, target: &str, more: &str| {
        weir.client().ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"))
    };
    for target in ["/a/x", "/nowhere"] {
        let page = ask("shop.test", target, "");
        page.expect_cause(MAINTENANCE).expect_body("<h1>shop.test</h1>").expect_header("retry-after", "600");
    }
    ask("shop.test", "/a/x", "X-Preview: open\r\n").expect_status(200);
    ask("shop.test", "/a/x", "X-Preview: closed\r\n").expect_cause(MAINTENANCE);
    ask("other.test", "/a/x", "").expect_status(200);
    // Without its own page it is an ordinary error; its own page is not replaced, even if upstream pages are.
    let page = ask("other.test", "/one", "");
    page.expect_cause(MAINTENANCE).expect_header("retry-after", "300").expect_body("Sorry.");
    weir.reload_with(&config(false)).unwrap();
    ask("shop.test", "/a/x", "").expect_status(200);
    ask("shop.test", "/nowhere", "").expect_cause(NO_ROUTE);
}

#[test]
fn maintenance_by_a_switch() {
    let upstream = Upstream::fixed(OK_BODY);
    let config = |more: &str| {
        format!(
            "{WEB}\nexpose_causes: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  \
             shop: {{ match: {{ path: /shop }}, filters: [ {{ maintenance: {{ switch: shop, page: {{ body: \"Back soon.\" }} }} }} ], upstream: up }}\n  \
             cart: {{ match: {{ path: /cart }}, filters: [ {{ maintenance: {{ switch: shop }} }} ], upstream: up }}\n  \
             other: {{ match: {{ path: /other }}, filters: [ {{ maintenance: {{ switch: other }} }} ], upstream: up }}\n{more}",
            upstream.address()
        )
    };
    let weir = Weir::start(&config(""));
    let admin = weir.admin().to_string();
    let turn = |args: &[&str]| {
        weir_testkit::run_weir(weir.dir(), &[&["maintenance"][..], args, &["--admin", &admin]].concat())
    };
    let ask = |target: &str| weir.client().get(target);
    ask("/shop").expect_status(200);
    turn(&["on", "shop", "--for", "30m"]).expect_code(0).expect_text("shop is on until 20");
    ask("/shop").expect_cause(MAINTENANCE).expect_body("Back soon.");
    ask("/cart").expect_cause(MAINTENANCE);
    ask("/other").expect_status(200);
    let reading = "weir_maintenance_on{place=\"routes.shop\",switch=\"shop\"} 1";
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    assert!(metrics.contains(reading), "{metrics}");
    // The switch is not part of the config: a reload does not change it.
    weir.reload_with(&config("limits: { connections: 100 }\n")).unwrap();
    ask("/shop").expect_cause(MAINTENANCE);
    turn(&["off", "shop"]).expect_code(0).expect_text("shop is off");
    ask("/shop").expect_status(200);
    for (args, told) in [
        (&["on", "nothing"][..], "no filter has `switch: nothing`; expected one of: other, shop"),
        (&["on", "shop", "--for", "40d"], "`40d` is out of range"),
        (&["off", "shop", "--for", "1m"], "`off` takes no `for`"),
    ] {
        turn(args).expect_code(1).expect_text(told);
    }
}

/// The switch is saved with the history: killing the process does not reopen what an operator closed.
#[test]
fn a_switch_outlives_a_crash() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = format!(
        "{WEB}\nexpose_causes: true\nadmin: {{ address: 127.0.0.1:0, state: {}/state }}\nroutes: {{ shop: {{ match: {{ path: /shop }}, \
         filters: [ {{ maintenance: {{ switch: shop }} }} ], respond: {{ status: 200 }} }} }}\n",
        folder.path().display()
    );
    let turned = |weir: &Weir, how: &[&str]| {
        let admin = weir.admin();
        weir_testkit::run_weir(weir.dir(), &[&["maintenance"][..], how, &["--admin", &admin]].concat())
            .expect_code(0);
    };
    let weir = Weir::start(&config);
    turned(&weir, &["on", "shop", "--for", "30m"]);
    weir.signal(9);
    drop(weir);
    let weir = Weir::start(&config);
    weir.client().get("/shop").expect_cause(MAINTENANCE);
    turned(&weir, &["off", "shop"]);
    weir.signal(9);
    drop(weir);
    Weir::start(&config).client().get("/shop").expect_status(200);
}
