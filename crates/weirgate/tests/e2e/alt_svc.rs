//! Responses over HTTP/1.1 and HTTP/2 say where HTTP/3 is, and that it is gone.

use weir_testkit::h2::H2;
use weir_testkit::{Authority, Client, H3, Response, Tls, Upstream, Weir};

use crate::cause::NO_ROUTE;
use crate::support::{GET, OK_BODY};

/// What a listener with HTTP/3 at this port says.
fn at(port: &str) -> String {
    format!("h3=\":{port}\"; ma=86400")
}

/// A listener with these settings beside TLS, a route for all paths with these settings, and one without an upstream.
fn config(authority: &Authority, upstream: &Upstream, listener: &str, route: &str) -> String {
    format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, {listener} tls: {{ certificates: [ {} ] }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ hosts: [weir.test], path: \"/*\" }}, upstream: up, {route} }}, \
         own: {{ match: {{ hosts: [weir.test], path: /own }}, respond: {{ status: 200, body: own }} }} }}\n",
        authority.leaf(&["weir.test"]).yaml(),
        upstream.address()
    )
}

const H3: &str = "protocols: [h3, h2, http1],";

fn h1(weir: &Weir, authority: &Authority) -> Client {
    Client::connect_tls(weir.address("web"), &Tls::new(authority, "weir.test").alpn(&["http/1.1"]))
}

fn h2(weir: &Weir, authority: &Authority) -> H2<Client> {
    let tls = Tls::new(authority, "weir.test").alpn(&["h2"]);
    H2::client(Client::connect_tls(weir.address("web"), &tls))
}

/// What `/own` says over HTTP/1.1, which the test checks to be the same over HTTP/2.
#[track_caller]
fn said(weir: &Weir, authority: &Authority) -> Option<String> {
    let by_h1 = h1(weir, authority).ask("GET /own HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    by_h1.expect_body("own");
    let mut client = h2(weir, authority);
    let stream = client.request(
        &[(":method", "GET"), (":scheme", "https"), (":authority", "weir.test"), (":path", "/own")],
        true,
    );
    let by_h2 = client.message(stream);
    let by_h2 = by_h2.header("alt-svc").map(str::to_owned);
    assert_eq!(by_h2.as_deref(), by_h1.header("alt-svc"));
    by_h2
}

#[test]
fn every_final_response_names_the_port() {
    let authority = Authority::new();
    let upstream =
        Upstream::fixed(format!("HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n{OK_BODY}"));
    let weir = Weir::start(&config(&authority, &upstream, H3, ""));
    let address = weir.address("web");
    let port = at(address.rsplit_once(':').unwrap().1);
    assert_eq!(said(&weir, &authority).as_ref(), Some(&port));
    let mut client = h1(&weir, &authority);
    client.send(GET);
    let hints = client.read_head();
    assert_eq!((hints.header("link").is_some(), hints.header("alt-svc")), (true, None), "{hints:?}");
    let answer: Response = client.read_response();
    answer.expect_status(200).expect_header("alt-svc", &port);
    client.request("HEAD", "/own").expect_header("alt-svc", &port);
    let refused = client.ask("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n");
    refused.expect_cause(NO_ROUTE).expect_header("alt-svc", &port);
    let by_h3 = H3::connect(&weir.udp_address(), &Tls::new(&authority, "weir.test"));
    by_h3.ask("GET /own HTTP/1.1\r\nHost: weir.test\r\n\r\n").expect_no_header("alt-svc").expect_body("own");
}

#[test]
fn what_an_upstream_or_a_filter_says_stays() {
    let authority = Authority::new();
    let upstream =
        Upstream::fixed("HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":9\"; ma=5\r\nContent-Length: 2\r\n\r\nok");
    let advertised = "protocols: [h3, http1], http3: { advertise: 443 },";
    for (route, says) in [
        ("", "h3=\":9\"; ma=5".to_owned()),
        ("filters: [ { headers: { response: { remove: [alt-svc] } } } ]", at("443")),
        ("filters: [ { headers: { response: { set: { alt-svc: clear } } } } ]", "clear".to_owned()),
    ] {
        let weir = Weir::start(&config(&authority, &upstream, advertised, route));
        let answer = h1(&weir, &authority).ask(GET);
        assert_eq!(answer.expect_body("ok").head.all("alt-svc"), [&*says], "{route}");
    }
}

/// A reload that takes HTTP/3 away, moves it, and stops announcing it.
#[test]
fn clients_are_told_when_it_goes() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let with = |listener: &str| config(&authority, &upstream, listener, "");
    let weir = Weir::start(&with(""));
    assert_eq!(said(&weir, &authority), None, "it never spoke HTTP/3");
    for (listener, says) in [
        ("protocols: [h3, h2, http1], http3: { advertise: 443 },", Some(at("443"))),
        ("protocols: [h3, h2, http1], http3: { advertise: 8443 },", Some(at("8443"))),
        ("", Some("clear".to_owned())),
        ("protocols: [h2, http1],", Some("clear".to_owned())),
        ("protocols: [h3, h2, http1], http3: { advertise: \"off\" },", Some("clear".to_owned())),
        ("protocols: [h3, h2, http1], http3: { advertise: 443 },", Some(at("443"))),
    ] {
        weir.reload_with(&with(listener)).unwrap();
        assert_eq!(said(&weir, &authority), says, "{listener}");
    }
}

/// The next process knows what clients were told, also if its own config never had HTTP/3.
#[test]
fn clients_are_told_after_an_upgrade_too() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let with = |listener: &str| config(&authority, &upstream, listener, "");
    let announced = "protocols: [h3, h2, http1], http3: { advertise: 443 },";
    let weir = Weir::start_installed(&with(announced));
    assert_eq!(said(&weir, &authority), Some(at("443")));
    weir.upgrade().unwrap();
    assert_eq!(said(&weir, &authority), Some(at("443")));
    weir.write_config(&with(""));
    weir.upgrade().unwrap();
    assert_eq!(said(&weir, &authority), Some("clear".to_owned()));
    weir.upgrade().unwrap();
    assert_eq!(said(&weir, &authority), Some("clear".to_owned()));
}

/// The port that the system chose stays known after a reload, which keeps the socket.
#[test]
fn the_port_is_known_after_a_reload() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&config(&authority, &upstream, H3, ""));
    let before = said(&weir, &authority);
    weir.reload_with(&config(&authority, &upstream, H3, "priority: 1")).unwrap();
    assert_eq!(said(&weir, &authority), before);
    assert!(before.is_some());
}

/// A client keeps its connection over TCP when HTTP/3 comes and goes.
#[test]
fn http3_comes_and_goes_beside_open_connections() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&config(&authority, &upstream, "", ""));
    let mut client = h1(&weir, &authority);
    client.ask(GET).expect_body("ok").expect_no_header("alt-svc");
    weir.reload_with(&config(&authority, &upstream, H3, "")).unwrap();
    client.ask(GET).expect_body("ok");
    weir.reload_with(&config(&authority, &upstream, "", "")).unwrap();
    client.ask(GET).expect_body("ok").expect_header("alt-svc", "clear");
}
