//! TLS on both sides: which certificate, which version, who is admitted, and which peers are trusted.

use weir_testkit::h2::H2;
use weir_testkit::{Authority, Client, ServerTls, Tls, Upstream, Weir, eventually, table};

use crate::cause::{CERTIFICATE_MISSING, PLAIN_HTTP, UPSTREAM_TLS};
use crate::support::{OK, config, expect_lines};

/// A gateway that itself answers `ok`, over TLS with these settings.
#[track_caller]
fn listening(tls: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ {tls} }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\n"
    ))
}

// === Listeners ===

#[test]
fn both_versions() {
    let authority = Authority::new();
    let weir = listening(&format!("certificates: [ {} ]", authority.leaf(&["weir.test"]).yaml()));
    for (tls, version) in [
        (Tls::new(&authority, "weir.test"), "TLSv1_3"),
        (Tls::new(&authority, "weir.test").only_1_2(), "TLSv1_2"),
    ] {
        let mut client = Client::connect_tls(weir.address("web"), &tls);
        client.get("/").expect_status(200).expect_body("ok");
        assert_eq!(client.tls().version, version);
    }
}

/// Lists choose per version of TLS; without tickets nothing is resumed.
#[test]
fn ciphers_curves_and_tickets() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let seen = |settings: &str, old: bool| {
        let weir = listening(&format!("certificates: [ {leaf} ]{settings}"));
        let tls = Tls::new(&authority, "weir.test");
        let tls = if old { tls.only_1_2() } else { tls };
        let ask = || {
            let mut client = Client::connect_tls(weir.address("web"), &tls);
            client.get("/").expect_status(200);
            client.tls()
        };
        (ask().cipher, ask().resumed)
    };
    let list =
        ", ciphers: [ ECDHE-ECDSA-CHACHA20-POLY1305, TLS_CHACHA20_POLY1305_SHA256 ], curves: [ P-256 ]";
    assert_eq!(seen(list, true).0, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256");
    assert_eq!(seen(list, false).0, "TLS13_CHACHA20_POLY1305_SHA256");
    let only_old = ", ciphers: [ ECDHE-ECDSA-CHACHA20-POLY1305 ]";
    assert_ne!(seen(only_old, false).0, "TLS13_CHACHA20_POLY1305_SHA256", "those of TLS 1.3 stay");
    for old in [true, false] {
        assert!(seen("", old).1, "resumed");
        assert!(!seen(", tickets: false", old).1, "nothing to resume by");
    }
}

#[test]
fn a_floor_for_the_version() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let weir = listening(&format!("certificates: [ {leaf} ], min_version: \"1.3\""));
    let old = Tls::new(&authority, "weir.test").only_1_2();
    assert!(Client::try_connect_tls(weir.address("web"), &old).is_err());
    Client::connect_tls(weir.address("web"), &Tls::new(&authority, "weir.test")).get("/").expect_status(200);
}

#[test]
fn the_name_chooses_the_certificate() {
    let authority = Authority::new();
    let first = authority.leaf(&["first.test", "weir.test"]);
    let exact = authority.leaf(&["a.wild.test"]);
    let wild = authority.leaf(&["*.wild.test"]);
    let weir = listening(&format!("certificates: [ {}, {}, {} ]", first.yaml(), wild.yaml(), exact.yaml()));
    let address = weir.address("web");
    for (name, certificate) in [
        ("first.test", &first),
        ("weir.test", &first),
        ("a.wild.test", &exact),
        ("b.wild.test", &wild),
        ("B.Wild.Test", &wild),
    ] {
        let client = Client::connect_tls(&address, &Tls::new(&authority, name));
        assert_eq!(client.tls().certificate, certificate.der, "{name}");
    }
    // Without a name, the first.
    let client = Client::connect_tls(&address, &Tls::new(&authority, "first.test").without_sni());
    assert_eq!(client.tls().certificate, first.der);
    // A name without a certificate, including two labels under the wildcard, gets the first one, which the client
    // refuses.
    for name in ["unknown.test", "x.y.wild.test"] {
        let refused = Client::try_connect_tls(&address, &Tls::new(&authority, name)).unwrap_err();
        assert!(refused.contains("not valid for name"), "{name}: {refused}");
    }
}

#[test]
fn rsa_beside_ecdsa() {
    let authority = Authority::new();
    let (ecdsa, rsa) = (authority.leaf(&["weir.test"]), authority.rsa_leaf(&["weir.test"]));
    let weir = listening(&format!("certificates: [ {}, {} ]", ecdsa.yaml(), rsa.yaml()));
    for (tls, certificate) in [
        (Tls::new(&authority, "weir.test"), &ecdsa),
        (Tls::new(&authority, "weir.test").only_1_2(), &ecdsa),
        (Tls::new(&authority, "weir.test").only_rsa(), &rsa),
        (Tls::new(&authority, "weir.test").only_rsa().only_1_2(), &rsa),
    ] {
        let mut client = Client::connect_tls(weir.address("web"), &tls);
        assert_eq!(client.tls().certificate, certificate.der);
        client.get("/").expect_status(200);
    }
}

#[test]
fn the_protocol_is_negotiated() {
    let authority = Authority::new();
    let weir = listening(&format!("certificates: [ {} ]", authority.leaf(&["weir.test"]).yaml()));
    let tls = Tls::new(&authority, "weir.test").alpn(&["http/1.1"]);
    let client = Client::connect_tls(weir.address("web"), &tls);
    assert_eq!(client.tls().alpn.as_deref(), Some("http/1.1"));
    let stranger = Tls::new(&authority, "weir.test").alpn(&["smtp"]);
    assert!(Client::try_connect_tls(weir.address("web"), &stranger).is_err(), "RFC 7301 §3.2");
}

#[test]
fn sessions_are_resumed() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    // Two workers: a ticket from one must be valid at the other.
    let weir = Weir::start(&format!(
        "workers: 2\nlisteners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\n"
    ));
    for tls in [Tls::new(&authority, "weir.test"), Tls::new(&authority, "weir.test").only_1_2()] {
        for number in 0..8 {
            let mut client = Client::connect_tls(weir.address("web"), &tls);
            client.get("/").expect_status(200);
            assert_eq!(client.tls().resumed, number > 0, "connection {number} over {}", client.tls().version);
        }
    }
}

#[test]
fn a_ticket_is_no_client_certificate() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let ca = authority.file();
    let weir = Weir::start(&format!(
        "workers: 1\nlisteners:\n  open: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }}\n  \
         closed: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ], client_auth: {{ mode: required, ca: {} }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\n",
        ca.display()
    ));
    for tls in [Tls::new(&authority, "weir.test"), Tls::new(&authority, "weir.test").only_1_2()] {
        for resumed in [false, true] {
            let mut client = Client::connect_tls(weir.address("open"), &tls);
            client.get("/").expect_status(200);
            assert_eq!(client.tls().resumed, resumed);
        }
        // With TLS 1.3 the client learns this only after its own handshake is complete.
        if let Ok(mut client) = Client::try_connect_tls(weir.address("closed"), &tls) {
            assert!(!client.tls().resumed, "over {}", client.tls().version);
            let _ = client.try_send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
            assert!(client.try_read_response().is_err(), "over {}", client.tls().version);
        }
    }
}

#[test]
fn clear_text_on_a_tls_listener_is_told_so() {
    let authority = Authority::new();
    let weir = listening(&format!("certificates: [ {} ]", authority.leaf(&["weir.test"]).yaml()));
    let mut client = weir.client();
    client.get("/").expect_cause(PLAIN_HTTP).expect_body_with("https://");
    client.read_to_close();
    let browser = "GET /page HTTP/1.1\r\nHost: weir.test\r\nAccept: text/html\r\n\r\n";
    let page = weir.client().ask(browser);
    page.expect_cause(PLAIN_HTTP).expect_body_with("<h1>400");
    // Also a malformed request, and an HTTP/2 preface.
    weir.client().ask("GET / HTTP/1.1\r\n\r\n").expect_cause(PLAIN_HTTP);
    let mut client = weir.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(client.read_to_close().is_empty());
    let line = weir.wait_log("TLS handshake failed");
    assert_eq!(
        (line.field("listener"), line.field("reason")),
        (Some("web"), Some("the client speaks plain HTTP"))
    );
}

#[test]
fn clear_text_on_a_tls_listener_is_told_so_where_causes_are_not() {
    let authority = Authority::new();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: \"unix:{{dir}}/s\", tls: {{ certificates: [ {} ] }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\nexpose_causes: false\n",
        authority.leaf(&["weir.test"]).yaml()
    ));
    let page = weir.client().get("/");
    page.expect_status(400).expect_no_header("x-weir-cause").expect_body_with("https://");
}

#[test]
fn a_handshake_that_fails_is_logged_with_its_reason() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let weir = listening(&format!(
        "certificates: [ {} ], client_auth: {{ ca: {}, mode: required }}",
        authority.leaf(&["weir.test"]).yaml(),
        clients.file().display()
    ));
    let tls = || Tls::new(&authority, "weir.test");
    not_served(&weir, &tls());
    not_served(&weir, &tls().identity(&Authority::new().client("shop")));
    not_served(&weir, &Tls::new(&clients, "weir.test").identity(&clients.client("shop")));
    weir.client().close(); // silent, like a balancer's connect check
    let mut halfway = weir.client();
    halfway.send(b"\x16\x03\x01");
    halfway.close();
    eventually("all are told", || {
        let lines = weir.logged("TLS handshake failed");
        let mut reasons: Vec<_> = lines.iter().filter_map(|line| line.field("reason")).collect();
        reasons.sort_unstable();
        let wanted = [
            "the client closed the connection during the handshake",
            "the client does not trust the issuer of our certificate (UnknownCA)",
            "the client showed no certificate, which client_auth requires",
            "the client's certificate is signed by an untrusted issuer",
        ];
        reasons == wanted
    });
    assert_eq!(weir.logged("TLS handshake failed")[0].level, "info");
}

#[test]
fn the_upstream_learns_that_it_was_https() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        authority.leaf(&["weir.test"]).yaml(),
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    let mut client = Client::connect_tls(weir.address("web"), &Tls::new(&authority, "weir.test"));
    client.ask("GET https://weir.test/a HTTP/1.1\r\nHost: weir.test\r\n\r\n").expect_status(200);
    let head = upstream.take_request().head;
    expect_lines(&head.raw, &["GET /a HTTP/1.1", "Host: weir.test"]);
    assert_eq!(head.all("x-forwarded-proto"), ["https"]);
}

// === Client certificates ===

#[test]
fn a_certificate_is_required() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let weir = listening(&format!(
        "certificates: [ {} ], client_auth: {{ ca: {}, mode: required }}",
        authority.leaf(&["weir.test"]).yaml(),
        clients.file().display()
    ));
    let tls = || Tls::new(&authority, "weir.test");
    let shop = clients.client("shop");
    Client::connect_tls(weir.address("web"), &tls().identity(&shop)).get("/").expect_status(200);
    Client::connect_tls(weir.address("web"), &tls().identity(&shop).only_1_2()).get("/").expect_status(200);
    let forged = Authority::new().client("shop");
    for stranger in [tls(), tls().identity(&forged), tls().only_1_2()] {
        not_served(&weir, &stranger);
    }
}

#[test]
fn a_certificate_is_optional() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let weir = listening(&format!(
        "certificates: [ {} ], client_auth: {{ ca: {}, mode: optional }}",
        authority.leaf(&["weir.test"]).yaml(),
        clients.file().display()
    ));
    let tls = || Tls::new(&authority, "weir.test");
    Client::connect_tls(weir.address("web"), &tls()).get("/").expect_status(200);
    Client::connect_tls(weir.address("web"), &tls().identity(&clients.client("shop")))
        .get("/")
        .expect_status(200);
    // If shown, it must be valid.
    not_served(&weir, &tls().identity(&Authority::new().client("shop")));
}

/// Everybody is served, but only a valid certificate identifies a client, also when it resumes its session.
#[test]
fn an_untrusted_certificate_counts_as_none() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ], \
         client_auth: {{ ca: {}, mode: accept_untrusted }} }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         consumers: {{ shop: {{ mtls_auth: [ \"dns:shop.internal\" ] }} }}\n\
         filters: [ {{ headers: {{ request: {{ set: {{ x-san: \"{{tls_client_san}}\" }} }} }} }} ]\n\
         routes:\n  \
           all: {{ match: {{ path: \"/*\" }}, upstream: up }}\n  \
           own: {{ match: {{ path: /own }}, filters: [ {{ mtls_auth: {{}} }} ], upstream: up }}\n\
         access_log: {{ output: stdout }}\n",
        authority.leaf(&["weir.test"]).yaml(),
        clients.file().display(),
        upstream.address(),
    ));
    let tls = || Tls::new(&authority, "weir.test");
    let forged = Authority::new().client_for("shop", &["shop.internal"]);
    let valid = clients.client_for("shop", &["shop.internal"]);
    let cases = [
        ("none", tls(), false),
        ("forged", tls().identity(&forged), false),
        ("forged, TLS 1.2", tls().identity(&forged).only_1_2(), false),
        ("valid", tls().identity(&valid), true),
        ("valid, TLS 1.2", tls().identity(&valid).only_1_2(), true),
    ];
    for (name, tls, identifies) in &cases {
        for resumed in [false, true] {
            let mut client = Client::connect_tls(weir.address("web"), tls);
            client.get("/").expect_status(200);
            assert_eq!(client.tls().resumed, resumed, "{name}");
            let seen = upstream.take_request().head.header("x-san").map(str::to_owned);
            assert_eq!(seen.as_deref() == Some("dns:shop.internal"), *identifies, "{name}: {seen:?}");
            let own = client.get("/own");
            if *identifies {
                own.expect_status(200);
                upstream.take_request();
            } else {
                own.expect_cause(CERTIFICATE_MISSING);
            }
        }
    }
    Client::connect_tls(weir.address("web"), &tls()).get("/end").expect_status(200);
    weir.wait_stdout("/end");
    assert_eq!(weir.stdout().matches("CN=shop").count(), 8, "only of the valid one: {}", weir.stdout());
}

#[test]
fn what_a_certificate_says_is_passed_on_and_logged() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ], \
         client_auth: {{ ca: {}, mode: optional }} }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         filters: [ {{ headers: {{ request: {{ set: {{ x-subject: \"{{tls_client_subject}}\", \
         x-san: \"{{tls_client_san}}\", x-print: \"{{tls_client_fingerprint}}\" }} }} }} }} ]\n{}\n\
         access_log: {{ output: stdout }}\n",
        authority.leaf(&["weir.test"]).yaml(),
        clients.file().display(),
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    let tls = Tls::new(&authority, "weir.test").identity(&clients.client_for("shop", &["shop.internal"]));
    for resumed in [false, true] {
        let mut client = Client::connect_tls(weir.address("web"), &tls);
        client.get("/").expect_status(200);
        assert_eq!(client.tls().resumed, resumed);
    }
    let h2 = Tls::new(&authority, "weir.test").alpn(&["h2"]).identity(&clients.client("both"));
    let mut client = H2::client(Client::connect_tls(weir.address("web"), &h2));
    let stream = client.get("/");
    client.message(stream).expect_status(200);
    let line = weir.wait_stdout("CN=both");
    assert!(!line.contains("tls_client_san"), "it has none: {line}");
    let requests = upstream.wait_requests(3);
    for request in &requests[..2] {
        assert_eq!(request.head.all("x-subject"), ["CN=shop"]);
        assert_eq!(request.head.all("x-san"), ["dns:shop.internal"]);
        let [print] = request.head.all("x-print")[..] else { panic!("{:?}", request.head) };
        assert!(print.len() == 64 && print.bytes().all(|b| b.is_ascii_hexdigit()), "{print}");
        weir.wait_stdout(&format!(
            "\"tls_client_subject\":\"CN=shop\",\"tls_client_san\":\"dns:shop.internal\",\
             \"tls_client_fingerprint\":\"{print}\""
        ));
    }
    assert_eq!(requests[2].head.all("x-subject"), ["CN=both"]);
    // A client without a certificate cannot claim one.
    let mut client = Client::connect_tls(weir.address("web"), &Tls::new(&authority, "weir.test"));
    client.ask("GET /anonymous HTTP/1.1\r\nHost: weir.test\r\nX-Subject: CN=shop\r\n\r\n").expect_status(200);
    assert!(upstream.wait_requests(4)[3].head.all("x-subject").is_empty());
    assert!(!weir.wait_stdout("/anonymous").contains("tls_client"));
}

/// The handshake fails, or with TLS 1.3, where the server reports it afterwards, the first request.
#[track_caller]
fn not_served(weir: &Weir, tls: &Tls) {
    if let Ok(mut client) = Client::try_connect_tls(weir.address("web"), tls) {
        let _ = client.try_send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
        let answer = client.read_to_close();
        assert!(answer.is_empty(), "{}", answer.escape_ascii());
    }
}

// === Upstreams ===

#[test]
fn an_upstream_is_verified() {
    let authority = Authority::new();
    let good = ServerTls::new(&authority.leaf(&["orders.test", "127.0.0.1"]));
    let other = ServerTls::new(&authority.leaf(&["other.test"]));
    let forged = ServerTls::new(&Authority::new().leaf(&["orders.test", "127.0.0.1"]));
    let spiffe = ServerTls::new(&authority.leaf(&["spiffe://a.test/orders"]));
    let ca = authority.file();
    let ca = ca.display();
    // The server, the settings, and whether it is trusted.
    table(
        &[
            ("the address itself", &good, format!("ca: {ca}"), true),
            ("a name", &good, format!("ca: {ca}, server_name: orders.test"), true),
            ("another name", &other, format!("ca: {ca}, server_name: orders.test"), false),
            ("another address", &other, format!("ca: {ca}"), false),
            ("another authority", &forged, format!("ca: {ca}, server_name: orders.test"), false),
            ("the roots of the system", &good, "server_name: orders.test".to_owned(), false),
            ("not verified", &forged, "verify: false".to_owned(), true),
            (
                "one of several names, whatever was asked for",
                &good,
                format!("ca: {ca}, server_name: sni.test, names: [ a.test, orders.test ]"),
                true,
            ),
            ("none of the names, but the address", &good, format!("ca: {ca}, names: [ a.test ]"), false),
            ("a name of another authority", &forged, format!("ca: {ca}, names: [ orders.test ]"), false),
            ("a URI", &spiffe, format!("ca: {ca}, names: [ \"spiffe://a.test/orders\" ]"), true),
            ("the start of a URI", &spiffe, format!("ca: {ca}, names: [ \"spiffe://a.test/order\" ]"), false),
            ("a URI, not a name", &good, format!("ca: {ca}, names: [ \"spiffe://orders.test\" ]"), false),
        ],
        |(what, ..)| *what,
        |(_, server, settings, believed)| {
            let upstream = Upstream::fixed_tls(server, OK);
            let endpoint = upstream.address();
            let weir = Weir::start(&config(&format!("endpoints: [{endpoint}], tls: {{ {settings} }}")));
            let response = weir.client().get("/");
            if *believed {
                response.expect_status(200);
            } else {
                response.expect_cause(UPSTREAM_TLS);
                assert_eq!(upstream.requests().len(), 0);
            }
        },
    );
}

#[test]
fn an_upstream_is_asked_by_name() {
    let authority = Authority::new();
    let upstream = Upstream::fixed_tls(&ServerTls::new(&authority.leaf(&["orders.test"])), OK);
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}], tls: {{ ca: {}, server_name: orders.test }}",
        upstream.address(),
        authority.file().display()
    )));
    let mut client = weir.client();
    client.get("/").expect_status(200);
    client.get("/").expect_status(200);
    let requests = upstream.wait_requests(2);
    assert_eq!(requests[0].server_name.as_deref(), Some("orders.test"));
    assert_eq!(
        requests[0].head.all("x-forwarded-proto"),
        ["http"],
        "what the client spoke, not what we speak"
    );
    assert_eq!(upstream.connections(), 1, "TLS connections are pooled too");
}

#[test]
fn an_upstream_that_demands_a_certificate() {
    let authority = Authority::new();
    let ours = authority.client("weir");
    let demanding = ServerTls::demanding(&authority.leaf(&["127.0.0.1"]), &authority);
    let upstream = Upstream::fixed_tls(&demanding, OK);
    let (endpoint, ca) = (upstream.address(), authority.file());
    let weir = Weir::start(&config(&format!(
        "endpoints: [{endpoint}], tls: {{ ca: {}, client_cert: {}, client_key: {} }}",
        ca.display(),
        ours.cert_file.display(),
        ours.key_file.display()
    )));
    weir.client().get("/").expect_status(200);
    assert_eq!(upstream.take_request().client_certificate.as_deref(), Some(&ours.der[..]));

    let weir = Weir::start(&config(&format!("endpoints: [{endpoint}], tls: {{ ca: {} }}", ca.display())));
    assert_eq!(weir.client().get("/").status, 502);
}

#[test]
fn an_upstream_that_speaks_tls_where_none_is_configured() {
    // A TLS server's answer to a cleartext request: an alert, "unexpected message".
    let upstream = Upstream::script(|conn| {
        let _ = conn.try_send([21, 3, 1, 0, 2, 2, 10]);
        conn.read_to_close();
    });
    let weir = Weir::start(&config(&format!("endpoints: [{}]", upstream.address())));
    weir.client().get("/").expect_cause(UPSTREAM_TLS);
    let why = format!("GET /api/v1/why?cause=upstream_tls HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin());
    let told = weir.admin_client().ask(why).text();
    assert!(told.contains("add `tls: {}`"), "{told}");
}

#[test]
fn an_upstream_that_speaks_no_tls() {
    let upstream = Upstream::script(|conn| {
        let _ = conn.try_send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        conn.read_to_close();
    });
    let weir = Weir::start(&config(&format!("endpoints: [{}], tls: {{}}", upstream.address())));
    weir.client().get("/").expect_cause(UPSTREAM_TLS);
}
