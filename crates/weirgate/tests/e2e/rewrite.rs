//! `rewrite: { replace }` and endpoints as URLs: what an upstream gets in the end.

use std::fs;
use tempfile::TempDir;
use weir_testkit::{Authority, ServerTls, Upstream, Weir, run_weir};

use crate::cause::BAD_PATH;
use crate::support::{OK, WEB};

#[track_caller]
fn replacing(upstream: &Upstream, listener: &str, filters: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2]{listener} }} }}\nexpose_causes: true\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes:\n  all: {{ filters: [ {filters} ], upstream: up }}\n  secret: {{ match: {{ path: \"/secret/*\" }}, respond: {{ status: 403 }} }}\n",
        upstream.address()
    ))
}

#[test]
fn the_upstream_gets_the_new_path() {
    let upstream = Upstream::fixed(OK);
    let filters = "{ rewrite: { replace: { \"^/a/(.*)$\": \"/b/$1\", \"^/(?<lang>de|fr)(/.*)\": \"$2\", \"x$\": \"/y\" } } }";
    let weir = replacing(&upstream, "", filters);
    let mut client = weir.client();
    for (target, sent) in [
        ("/a/1?q=%2F", "/b/1?q=%2F"),
        ("/a/", "/b/"),
        ("/fr/page", "/page"),
        ("/a//b///c", "/b/b/c"),
        ("/a/%7Euser/%c3%a9", "/b/~user/%C3%A9"),
        ("/a/../a/z", "/b/z"),
        ("/a/secret/1", "/b/secret/1"),
        ("/qx", "/q/y"),
        ("/other", "/other"),
    ] {
        client.get(target).expect_status(200);
        assert_eq!(upstream.take_request().head.line, format!("GET {sent} HTTP/1.1"), "{target}");
    }
    let mut h2 = weir.h2();
    let stream = h2.get("/a/h2");
    h2.message(stream).expect_status(200);
    assert_eq!(upstream.take_request().head.line, "GET /b/h2 HTTP/1.1");
    // A rewrite never routes again: what a route keeps out stays reachable by other paths only as the config says.
    client.get("/secret/1").expect_status(403);
}

#[test]
fn no_request_builds_a_path_out_of_the_folder() {
    let upstream = Upstream::fixed(OK);
    let weir = replacing(
        &upstream,
        ", slashes: keep, escaped_slashes: keep",
        "{ rewrite: { replace: { \"^/get/(.*?)_(.*)$\": \"/files/$1$2\", \"^/cut\": \"\" } } }",
    );
    let mut client = weir.client();
    for target in ["/get/._.", "/get/a/_../etc", "/get/_..", "/get/._./secret", "/cut"] {
        weir.client().get(target).expect_cause(BAD_PATH);
    }
    for (target, sent) in [
        ("/get/a_b", "/files/ab"),
        ("/get/%2e_%2e.x", "/files/...x"),
        ("/cut/x", "/x"),
        ("/get/_%2Fa", "/files/%2Fa"),
    ] {
        client.get(target).expect_status(200);
        assert_eq!(upstream.take_request().head.line, format!("GET {sent} HTTP/1.1"), "{target}");
    }
}

#[test]
fn endpoints_as_urls() {
    let authority = Authority::new();
    let plain = Upstream::fixed(OK);
    let secure = Upstream::fixed_tls(&ServerTls::new(&authority.leaf(&["localhost"])), OK);
    let port = |address: String| address.rsplit(':').next().unwrap().to_owned();
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams:\n  plain: {{ endpoints: [ \"http://127.0.0.1:{}\" ] }}\n  \
         secure: {{ endpoints: [ \"HTTPS://localhost:{}\" ], tls: {{ ca: {} }} }}\n  \
         untrusted: {{ endpoints: [ \"https://localhost:{}\" ] }}\n\
         routes:\n  plain: {{ match: {{ path: /plain }}, upstream: plain }}\n  secure: {{ match: {{ path: /secure }}, upstream: secure }}\n  \
         untrusted: {{ match: {{ path: /untrusted }}, upstream: untrusted }}\n",
        port(plain.address().to_string()),
        port(secure.address().to_string()),
        authority.file().display(),
        port(secure.address().to_string()),
    ));
    let mut client = weir.client();
    client.get("/plain").expect_status(200);
    client.get("/secure").expect_status(200);
    client.get("/untrusted").expect_status(502); // https means verified TLS
}

#[test]
fn variables_with_a_message() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.yaml"), format!("{WEB}\nroutes: {{ all: {{ respond: {{}} }} }}\nzone: \"${{WEIR_TEST_ZONE_UNSET:?name the zone}}\"\n")).unwrap();
    run_weir(dir.path(), &["check"])
        .expect_code(1)
        .expect_text("WEIR_TEST_ZONE_UNSET is not set: name the zone");
}
