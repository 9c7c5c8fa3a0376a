//! Links in an upstream's answers, as the client sees them.

use weir_testkit::{Upstream, Weir};

use crate::support::{OK, WEB};

#[track_caller]
fn start(upstream: &Upstream, settings: &str, filters: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\ntrusted_proxies: [ 127.0.0.0/8 ]\nupstreams: {{ up: {{ endpoints: [{}]{settings} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [{filters}], upstream: up }} }}\n",
        upstream.address()
    ))
}

/// An upstream that answers with these lines; `HERE` is its own address.
fn saying(lines: &'static str) -> Upstream {
    Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let lines = lines.replace("HERE", &conn.local_address().to_string());
            if conn.try_send(format!("HTTP/1.1 302 Found\r\n{lines}Content-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    })
}

const SAID: &str = "Location: http://HERE/login?a=b#c\r\nContent-Location: /x\r\nRefresh: 5; url=http://HERE/next\r\n\
                    Set-Cookie: a=1; Domain=127.0.0.1; HttpOnly\r\nSet-Cookie: b=2; Path=/x\r\nSet-Cookie: c=3; Path=/\r\n";

#[test]
fn an_upstream_that_names_itself() {
    let upstream = saying(SAID);
    for (settings, told) in
        [("", "weir.test"), (", host: endpoint", ""), (", host: inner.test", "inner.test")]
    {
        let weir = start(&upstream, settings, "");
        let answer = weir.client().get("/");
        answer
            .expect_header("location", "http://weir.test/login?a=b#c")
            .expect_header("content-location", "/x");
        answer.expect_header("refresh", "5; url=http://weir.test/next");
        assert_eq!(
            answer.head.all("set-cookie"),
            ["a=1; HttpOnly; Domain=weir.test", "b=2; Path=/x", "c=3; Path=/"]
        );
        let request = upstream.take_request();
        let here = upstream.address().to_string();
        assert_eq!(request.head.header("host"), Some(if told.is_empty() { here.as_str() } else { told }));
    }
    // A proxy in front of us that terminates TLS reports what the client sees.
    let weir = start(&upstream, "", "");
    let answer = weir.client().ask(
        "GET / HTTP/1.1\r\nHost: weir.test\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.test\r\n\r\n",
    );
    answer.expect_header("location", "https://shop.test/login?a=b#c");
}

#[test]
fn behind_a_prefix() {
    let upstream = saying(SAID);
    let weir = start(&upstream, "", "{ rewrite: { strip_prefix: /shop } }");
    let answer = weir.client().get("/shop/a");
    assert_eq!(upstream.requests()[0].head.line, "GET /a HTTP/1.1");
    assert_eq!(upstream.take_request().head.header("x-forwarded-prefix"), Some("/shop"));
    answer
        .expect_header("location", "http://weir.test/shop/login?a=b#c")
        .expect_header("content-location", "/shop/x");
    assert_eq!(
        answer.head.all("set-cookie"),
        ["a=1; HttpOnly; Domain=weir.test", "b=2; Path=/shop/x", "c=3; Path=/"]
    );
    // A path outside the prefix is unchanged, in both directions.
    let other = weir.client().get("/other");
    other.expect_header("content-location", "/x");
    assert_eq!(upstream.take_request().head.header("x-forwarded-prefix"), None);
}

#[test]
fn what_is_kept() {
    let upstream = saying(SAID);
    let here = upstream.address();
    let weir = start(&upstream, ", links: keep", "{ rewrite: { strip_prefix: /shop } }");
    let answer = weir.client().get("/shop/a");
    answer
        .expect_header("location", &format!("http://{here}/login?a=b#c"))
        .expect_header("content-location", "/x");
    assert_eq!(answer.head.all("set-cookie")[0], "a=1; Domain=127.0.0.1; HttpOnly");
    let elsewhere = saying("Location: https://elsewhere.test/x\r\n");
    let weir = start(&elsewhere, "", "");
    weir.client().get("/").expect_header("location", "https://elsewhere.test/x");
    // An untrusted client cannot set a prefix.
    let plain = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&plain);
    weir.client()
        .ask("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Forwarded-Prefix: /evil\r\n\r\n")
        .expect_status(200);
    assert_eq!(plain.take_request().head.header("x-forwarded-prefix"), None);
}

/// The filter `cookies` sees what `links` has translated, and every field on its own.
#[test]
fn cookies_get_attributes() {
    let upstream = saying(SAID);
    let filters = "{ cookies: { \"*\": { secure: true, same_site: lax }, b: { http_only: true, path: { /shop/: / } } } }, \
                   { rewrite: { strip_prefix: /shop } }";
    let weir = start(&upstream, "", filters);
    let expected = [
        "a=1; HttpOnly; Domain=weir.test; Secure; SameSite=Lax",
        "b=2; HttpOnly; Path=/x",
        "c=3; Path=/; Secure; SameSite=Lax",
    ];
    for target in ["/shop/a", "/shop/b"] {
        let answer = weir.client().get(target);
        let mut cookies = answer.head.all("set-cookie");
        cookies.sort_unstable();
        assert_eq!(cookies, expected);
    }
    let mut client = weir.client();
    client.send("HEAD /shop/a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    assert_eq!(client.read_response_to_head().head.all("set-cookie").len(), 3);
}
