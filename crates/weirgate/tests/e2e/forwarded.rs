//! X-Forwarded-* and Forwarded: built for the upstream, accepted only from trusted peers.

use weir_testkit::{Client, Head, Upstream, Weir};

use crate::support::OK;

/// Sends a request with these fields; returns the head that reached the upstream.
#[track_caller]
fn seen(weir: &Weir, upstream: &Upstream, fields: &str) -> Head {
    weir.client().ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n")).expect_status(200);
    upstream.take_request().head
}

#[test]
fn the_upstream_learns_who_asked() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let head = seen(&weir, &upstream, "");
    assert_eq!(head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(head.all("x-forwarded-proto"), ["http"]);
    assert_eq!(head.all("x-forwarded-host"), ["weir.test"]);
}

#[test]
fn a_stranger_is_not_believed() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let head = seen(
        &weir,
        &upstream,
        "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Real-IP: 10.0.0.1\r\n\
         Forwarded: for=10.0.0.1;proto=https;host=evil\r\n",
    );
    assert_eq!(head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(head.all("x-forwarded-proto"), ["http"]);
    assert_eq!(head.all("x-forwarded-host"), ["weir.test"]);
    let forwarded = head.all("forwarded").join(",");
    assert!(!forwarded.contains("10.0.0.1") && !forwarded.contains("evil"), "{forwarded}");
}

#[test]
fn two_fields_of_a_stranger_are_not_believed_either() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let head = seen(
        &weir,
        &upstream,
        "x-forwarded-for: 1.1.1.1\r\nX-FORWARDED-FOR: 2.2.2.2\r\nX_Forwarded_For: 3.3.3.3\r\n",
    );
    assert_eq!(head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(head.header("x_forwarded_for"), None, "many servers take _ for -");
}

/// Some framework accepts each of these; WSGI, CGI, PHP and Rack read `_` as `-`.
#[test]
fn no_spelling_of_a_strangers_claim_passes() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    for claim in [
        "X_Forwarded_Prefix",
        "X_Forwarded_Ssl",
        "X_Forwarded_Scheme",
        "X_Forwarded_Server",
        "x-forwarded_port",
        "X_FORWARDED-FOR",
        "X-Forwarded-Client-Cert",
        "X-Forwarded",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X_Original_URL",
        "x-rewrite_url",
        "X_Real_IP",
    ] {
        let head = seen(&weir, &upstream, &format!("{claim}: evil\r\n"));
        assert!(!String::from_utf8_lossy(&head.raw).contains("evil"), "{claim}: {:?}", head.headers);
    }
    let trusting = Weir::in_front_of_with(&upstream, "trusted_proxies: [ 127.0.0.0/8 ]");
    let head = seen(
        &trusting,
        &upstream,
        "X-Original-URL: /a\r\nX-Forwarded-Prefix: /b\r\nX_Original_URL: /evil\r\n",
    );
    assert_eq!((head.all("x-original-url"), head.all("x-forwarded-prefix")), (vec!["/a"], vec!["/b"]));
    assert_eq!(head.header("x_original_url"), None);
}

#[test]
fn a_trusted_proxy_is_believed() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "trusted_proxies: [ 127.0.0.0/8 ]");
    let head = seen(
        &weir,
        &upstream,
        "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\n",
    );
    assert_eq!(head.all("x-forwarded-for").join(", "), "198.51.100.7, 127.0.0.1");
    assert_eq!(head.all("x-forwarded-proto"), ["https"]);
    assert_eq!(head.all("x-forwarded-host"), ["shop.example"]);
}

#[test]
fn a_trusted_proxy_that_says_nothing() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "trusted_proxies: [ 127.0.0.1/32 ]");
    let head = seen(&weir, &upstream, "");
    assert_eq!(head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(head.all("x-forwarded-proto"), ["http"]);
}

/// Access is decided by the address that the nearest proxy reports, in either of its fields.
#[test]
fn access_goes_by_the_client_that_a_trusted_proxy_names() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
         trusted_proxies: [ 127.0.0.0/8 ]\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ ip: {{ allow: [ 127.0.0.0/8, 203.0.113.0/24 ] }} }} ], upstream: up }} }}\n\
         upstreams: {{ up: {{ endpoints: [ {} ] }} }}\n",
        upstream.address()
    ));
    for (fields, status) in [
        ("", 200),
        ("X-Forwarded-For: 203.0.113.5\r\n", 200),
        ("X-Forwarded-For: 198.51.100.7\r\n", 403),
        ("Forwarded: for=198.51.100.7\r\n", 403),
        ("Forwarded: for=203.0.113.5;proto=http\r\n", 200),
        ("Forwarded: for=203.0.113.5, for=\"198.51.100.7:80\"\r\n", 403),
        ("X-Forwarded-For: 198.51.100.7\r\nForwarded: for=203.0.113.5\r\n", 403),
        // The proxy does not know its client: the proxy's own address must not be used instead.
        ("X-Forwarded-For: 203.0.113.5, unknown\r\n", 403),
        ("X-Forwarded-For: 203.0.113.5, garbage\r\n", 403),
        ("Forwarded: for=203.0.113.5, for=_hidden\r\n", 403),
        ("Forwarded: proto=https\r\n", 403),
    ] {
        let asked = format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n");
        weir.client().ask(asked).expect_status(status);
    }
}

#[test]
fn the_client_is_the_last_that_nobody_trusted_vouches_for() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(
        &upstream,
        "trusted_proxies: [ 127.0.0.0/8, 10.0.0.0/8 ]\naccess_log: { output: stdout }",
    );
    // The client itself wrote 1.1.1.1; our proxy 10.0.0.9 appended its peer's address.
    seen(&weir, &upstream, "X-Forwarded-For: 1.1.1.1, 198.51.100.7, 10.0.0.9\r\n");
    let line = weir.wait_stdout("\"status\":200");
    assert!(line.contains("\"client\":\"198.51.100.7\""), "{line}");
}

#[test]
fn an_ipv6_client() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ six: {{ address: \"[::1]:0\" }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    Client::connect(weir.address("six")).get("/").expect_status(200);
    assert_eq!(upstream.take_request().head.all("x-forwarded-for"), ["::1"]);
}

#[test]
fn a_unix_socket_is_as_local_as_can_be() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ sock: {{ address: \"unix:{{dir}}/weir.sock\" }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    let address = format!("unix:{}/weir.sock", weir.dir().display());
    Client::connect(&address).get("/").expect_status(200);
    let head = upstream.take_request().head;
    assert!(head.all("x-forwarded-for").iter().all(|value| !value.contains('/')), "{:?}", head.headers);
    weir.stop();
    assert!(!Client::can_connect(address));
}

#[test]
fn the_host_that_the_upstream_sees() {
    let upstream = Upstream::fixed(OK);
    for (host, sent) in [
        ("preserve", "weir.test".to_owned()),
        ("endpoint", upstream.address().to_string()),
        ("orders.internal", "orders.internal".to_owned()),
    ] {
        let weir = crate::support::weir_with(&upstream, &format!("host: {host}"));
        let head = seen(&weir, &upstream, "");
        assert_eq!(head.all("host"), [sent]);
        assert_eq!(head.all("x-forwarded-host"), ["weir.test"]);
    }
}

/// A core serves one connection after another in the same memory. No client's address or claim may show up in another's
/// request.
#[test]
fn each_connection_tells_of_its_own_client() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "workers: 1\ntrusted_proxies: [ 127.0.0.1, 203.0.113.9 ]\n\
         listeners: {{ web: {{ address: 127.0.0.1:0, proxy_protocol: true }} }}\n\
         upstreams: {{ up: {{ endpoints: [ {} ] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    for (told, seen) in [
        ("TCP4 203.0.113.7 127.0.0.1 1 2", "203.0.113.7"),
        ("TCP4 203.0.113.8 127.0.0.1 1 2", "203.0.113.8"),
        ("TCP4 203.0.113.9 127.0.0.1 1 2", "198.51.100.1, 203.0.113.9"), // a proxy that is believed
        ("TCP4 203.0.113.8 127.0.0.1 1 2", "203.0.113.8"),
        ("TCP6 2001:db8::1 ::1 1 2", "2001:db8::1"),
        ("UNKNOWN", "127.0.0.1"),
        ("TCP4 203.0.113.7 127.0.0.1 1 2", "203.0.113.7"),
    ] {
        for host in ["a.test", "b.test"] {
            let request = format!(
                "PROXY {told}\r\nGET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 198.51.100.1\r\nConnection: \
                 close\r\n\r\n"
            );
            let mut client = weir.client();
            client.ask(request).expect_status(200);
            client.expect_close();
            let head = upstream.take_request().head;
            assert_eq!(head.all("x-forwarded-for").join(", "), seen, "{told}");
            assert_eq!(head.all("x-forwarded-host"), [host], "{told}");
        }
    }
}
