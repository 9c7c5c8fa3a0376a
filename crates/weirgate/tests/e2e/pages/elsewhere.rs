//! Errors that lead elsewhere: redirects, and pages that an upstream makes.

use super::*;

/// A gateway with these `errors`, in front of an upstream and of one that makes pages.
#[track_caller]
fn with_pages(upstream: &Upstream, pages: &Upstream, errors: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\nadmin: {{ address: 127.0.0.1:0 }}\naccess_log: {{ output: stdout, format: json }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }}, pages: {{ endpoints: [{}] }} }}\nfilters: [ {{ errors: {{ {errors} }} }} ]\n\
         consumers: {{ shop: {{ key_auth: [ a-key ] }} }}\n\
         routes: {{ keyed: {{ match: {{ path: /keyed }}, filters: [ key_auth ], upstream: up }}, app: {{ match: {{ path: \"/app/*\" }}, upstream: up }} }}\n",
        upstream.address(),
        pages.address()
    ))
}

/// Answers with the status at the end of the path.
fn with_status() -> Upstream {
    Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let target = request.head.line.split(' ').nth(1).unwrap_or_default().to_owned();
            let status = target.rsplit('/').next().unwrap_or_default();
            conn.send(format!(
                "HTTP/1.1 {status} Any\r\nSet-Cookie: s=1\r\nX-Trace: secret\r\nContent-Length: 5\r\n\r\nstack"
            ));
        }
    })
}

#[test]
fn to_the_login() {
    let (upstream, pages) = (with_status(), Upstream::listen());
    let errors = "401: { redirect: \"https://login.test/?rd={= request.url }&why={cause}\" }, 403: { redirect: \"/denied\", status: 303 }, \
                  upstream: [ 401, 403 ]";
    let weir = with_pages(&upstream, &pages, errors);
    let mut client = weir.client();
    let own = client.get("/keyed?a=1&b=%26");
    own.expect_status(302).expect_body("").expect_header("cache-control", "no-store");
    own.expect_header(
        "location",
        "https://login.test/?rd=http%3A%2F%2Fweir.test%2Fkeyed%3Fa%3D1%26b%3D%2526&why=key_missing",
    );
    own.expect_no_header("www-authenticate").expect_header("x-weir-cause", "key_missing");
    assert!(weir.wait_stdout("/keyed").contains("\"cause\":\"key_missing\""), "the log keeps the cause");
    let of_upstream = client.get("/app/401");
    of_upstream.expect_status(302).expect_header("set-cookie", "s=1").expect_no_header("x-trace");
    of_upstream.expect_header("location", "https://login.test/?rd=http%3A%2F%2Fweir.test%2Fapp%2F401&why=");
    client.get("/app/403").expect_status(303).expect_header("location", "/denied");
    client.get("/app/404").expect_status(404).expect_body("stack");
    let injected = client.ask("GET /keyed?x=%0d%0aSet-Cookie:a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    injected.expect_status(302).expect_no_header("set-cookie");
    let mut h2 = weir.h2();
    let stream = h2.get("/keyed");
    h2.message(stream).expect_status(302);
    client.request("HEAD", "/keyed").expect_status(302).expect_body("");
}

#[test]
fn a_page_that_an_upstream_makes() {
    let pages = Upstream::fixed(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: page=1\r\nCache-Control: max-age=60\r\nContent-Length: 8\r\n\r\n<p>sorry",
    );
    let upstream = with_status();
    let errors = "5xx: { upstream: pages, path: \"/{status}.html?cause={cause}\" }, 404: { upstream: pages, path: /404.html }, upstream: [ 500 ]";
    let weir = with_pages(&upstream, &pages, errors);
    let mut client = weir.client();
    let page = client.ask("GET /app/500 HTTP/1.1\r\nHost: weir.test\r\nCookie: c=1\r\nAccept-Language: de\r\nAccept: text/html\r\n\r\n");
    page.expect_status(500)
        .expect_header("x-weir-cause", UPSTREAM_ERROR.1)
        .expect_body("<p>sorry")
        .expect_header("content-type", "text/html");
    page.expect_header("cache-control", "no-store").expect_header("set-cookie", "s=1");
    let asked = pages.take_request();
    assert_eq!(asked.head.line, "GET /500.html?cause= HTTP/1.1");
    assert_eq!(asked.head.header("accept-language"), Some("de"));
    assert_eq!((asked.head.header("cookie"), asked.head.header("host")), (None, Some("weir.test")));
    // Without a route, by HEAD, and by HTTP/2.
    client.get("/nowhere").expect_cause(NO_ROUTE).expect_body("<p>sorry");
    let head = client.request("HEAD", "/nowhere");
    head.expect_cause(NO_ROUTE).expect_body("").expect_header("content-length", "8");
    let mut h2 = weir.h2();
    let stream = h2.get("/nowhere");
    h2.message(stream).expect_status(404).expect_body("<p>sorry");
    client.get("/app/502").expect_status(502).expect_body("stack"); // not named in `upstream`
}

/// The error stays as it is if its page cannot be had: there is no error of an error.
#[test]
fn a_page_that_does_not_come() {
    let upstream = with_status();
    let pages = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let answer: String = match request.head.line.split(' ').nth(1).unwrap_or_default() {
                "/500.html" => "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops".into(),
                "/502.html" => "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".into(),
                "/503.html" => {
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 300_000, "x".repeat(300_000))
                }
                _ => return, // it closes, or says nothing in time
            };
            if conn.try_send(answer).is_err() {
                return;
            }
        }
    });
    let errors = "5xx: { upstream: pages, path: \"/{status}.html\", timeout: 300ms }, upstream: [ 5xx ]";
    let weir = with_pages(&upstream, &pages, errors);
    let mut client = weir.client();
    for status in [500, 502, 503, 504] {
        client.get(&format!("/app/{status}")).expect_status(status).expect_body("stack");
    }
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("weir_errors_page_failed_total{") && line.ends_with(" 4")),
        "{metrics}"
    );
    assert_eq!(weir.logged("an error page could not be fetched").len(), 1);

    let silent = Upstream::listen();
    let weir = with_pages(&upstream, &silent, errors);
    weir.client().get("/app/500").expect_status(500).expect_body("stack");
}

/// The upstream of the pages is the one that fails, and behind a route of this gateway: still no loop.
#[test]
fn no_loop() {
    let upstream = with_status();
    let weir = with_pages(&upstream, &upstream, "5xx: { upstream: pages, path: /500 }, upstream: [ 5xx ]");
    weir.client().get("/app/500").expect_status(500).expect_body("stack");
    assert_eq!(upstream.requests().len(), 2);
}
