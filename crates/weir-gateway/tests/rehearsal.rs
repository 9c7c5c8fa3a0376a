//! A rehearsal of a config with the gateway's own filters: its result can run, and has requests that its routes
//! answer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

use std::path::Path;
use weir_gateway::config::schema::UpstreamProtocol;
use weir_gateway::config::{Loaded, Node, Source};
use weir_gateway::password::{self, Algorithm};
use weir_gateway::rehearsal::{FilterPlace, Identity, Rehearsal};
use weir_gateway::snapshot::Snapshot;

const CONFIG: &str = r#"
listeners:
  web: { address: "0.0.0.0:8080" }
  internal: { address: "unix:/run/weir.sock", proxy_protocol: true }
upstreams:
  orders:
    endpoints: [ "orders.internal:443" ]
    tls: {}
    host: orders.example.com
  next: { endpoints: [ 10.0.0.1:80, { address: "10.0.0.2:80", weight: 3 } ], protocol: h2c, timeouts: { tunnel: 2h } }
consumers:
  far: { key_auth: [ far-key ], allow_ips: [ 10.0.0.0/8 ] }
  shop: { key_auth: [ "sha256:8190c6248ca3d48f734bbb23e59fcda334842fa21f17c62e72dc8202a766027c", "${SHOP}" ], plan: gold }
plans:
  gold: { filters: [ rate_limit: { requests: 5, per: 1m, burst: 2 } ] }
filters:
  - request_id
admin: { address: "0.0.0.0:9180", token: "${SHOP}" }
access_log: { format: "{time} $${status}" }
trusted_proxies: [ 127.0.0.1 ]
routes:
  by.dots:
    match: { hosts: ["*.example.com"], path: "/orders/{id}", methods: [PUT], headers: { x-env: "~^(blue|green)$" }, query: { v: "1 2" } }
    filters:
      - key_auth: { header: authorization, scheme: Bearer }
      - headers: { request: { set: { x-price: "$$5", x-number: "007" } } }
    upstream: { orders: 95, next: 5 }
  inside: { match: { path: "/inside/*", listeners: [internal] }, upstream: next }
  here: { match: { path: /here }, respond: { status: 204 } }
"#;

fn source(path: &str, text: &str) -> Source {
    Source::text(path, text).with_credentials(["basic_auth", "key_auth", "mtls_auth"])
}

fn checked(text: &str) -> (Loaded, Snapshot) {
    let source = source("/etc/weir/weir.yaml", text).with_variable("SHOP", "shop key$1".replace(' ', "-"));
    let checked = weir_gateway::check(&source, &[]);
    checked.compiled.unwrap_or_else(|| panic!("{}", checked.diagnostics.to_text()))
}

fn rehearse(text: &str) -> Rehearsal {
    let (loaded, snapshot) = checked(text);
    Rehearsal::new(&loaded, &snapshot, "127.0.0.1:9000".parse().unwrap(), Path::new("/tmp/admin.sock"), None)
}

/// The config as it would run.
fn again(text: &str) -> Loaded {
    let checked = weir_gateway::check(&source("/elsewhere/bench.json", text), &[]);
    let compiled = checked.compiled.unwrap_or_else(|| panic!("{}\n{text}", checked.diagnostics.to_text()));
    compiled.0
}

#[test]
fn one_origin_stands_for_all_upstreams() {
    let rehearsal = rehearse(CONFIG);
    let loaded = again(&rehearsal.text(&[]));
    for (_, upstream) in loaded.config.upstreams.iter() {
        let addresses: Vec<String> = upstream.endpoints.iter().map(|e| e.address.to_string()).collect();
        assert_eq!(
            (addresses.as_slice(), upstream.tls.is_none()),
            (&["127.0.0.1:9000".to_owned()][..], true)
        );
    }
    let next = loaded.config.upstreams.get("next").unwrap();
    assert_eq!(next.protocol, UpstreamProtocol::H2c, "the origin speaks that too");
    assert!(
        loaded
            .config
            .listeners
            .iter()
            .all(|(_, l)| l.address.as_ref().is_some_and(|a| a.to_string() == "127.0.0.1:0"))
    );
    let config = &loaded.config;
    assert!(!config.watch && config.expose_causes && config.admin.token.is_none());
    assert_eq!(config.trusted_proxies.len(), 1, "what is not named stays");
    let notes = rehearsal.notes.join("\n");
    for note in [
        "upstreams.orders: the origin is asked in cleartext, by http1",
        "listeners.internal: no PROXY header",
        "upstreams.next: no tunnel is opened; plain requests stand for those that ask for a WebSocket",
        "access_log is written to /dev/null",
        "plans.gold.filters[0]: rate_limit lets everything pass",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
}

#[test]
fn values_stay_what_they_were() {
    let loaded = again(&rehearse(CONFIG).text(&[]));
    let at = |path: &str| loaded.tree.find(path).and_then(Node::as_text).map(str::to_owned);
    let set = "routes.by.dots.filters[1].headers.request.set";
    assert_eq!(at(&format!("{set}.x-price")).as_deref(), Some("$5"));
    assert_eq!(at(&format!("{set}.x-number")).as_deref(), Some("007"));
    assert_eq!(at("access_log.format").as_deref(), Some("{time} ${status}"));
    assert_eq!(at("consumers.shop.key_auth[1]").as_deref(), Some("shop-key$1"));
}

#[test]
fn requests_are_what_routes_answer() {
    let rehearsal = rehearse(CONFIG);
    let [dots, inside, here] = rehearsal.routes.as_slice() else { panic!("{:?}", rehearsal.routes) };
    let ask = dots.ask.as_ref().unwrap();
    assert_eq!(
        (ask.listener.as_str(), ask.method.as_str(), ask.host.as_str(), ask.target.as_str()),
        ("web", "PUT", "any.example.com", "/orders/id?v=1%202")
    );
    let headers: Vec<_> = ask.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(headers, [("x-env", "blue"), ("authorization", "Bearer shop-key$1")]);
    assert_eq!(inside.ask.as_ref().unwrap().listener, "internal");
    assert_eq!(here.ask.as_ref().unwrap().answers, Some(204));
    let paths: Vec<String> = dots.filters.iter().map(FilterPlace::path).collect();
    assert_eq!(
        paths,
        ["filters[0]", "routes.by.dots.filters[0]", "routes.by.dots.filters[1]", "plans.gold.filters[0]"]
    );
}

#[test]
fn filters_are_left_out_one_by_one() {
    let rehearsal = rehearse(CONFIG);
    let all = |text: &str| {
        let config = again(text).config;
        let routes = config.routes.iter().flat_map(|(_, route)| &route.filters);
        let plans = config.plans.iter().flat_map(|(_, plan)| &plan.filters);
        let all = config.filters.iter().chain(routes).chain(plans);
        all.map(|filter| filter.name.clone()).collect::<Vec<String>>()
    };
    let whole = all(&rehearsal.text(&[]));
    for place in &rehearsal.routes[0].filters {
        let mut rest = all(&rehearsal.text(&[place]));
        rest.push(place.name.clone());
        let (mut rest, mut whole) = (rest.clone(), whole.clone());
        rest.sort_unstable();
        whole.sort_unstable();
        assert_eq!(rest, whole, "{}", place.path());
    }
    let two: Vec<&FilterPlace> = rehearsal.routes[0].filters[1..3].iter().collect();
    assert_eq!(all(&rehearsal.text(&two)).len(), whole.len() - 2);
}

#[test]
fn what_cannot_be_asked_says_why() {
    let listener =
        "listeners: { web: { address: 127.0.0.1:0 } }\nupstreams: { up: { endpoints: [ 127.0.0.1:1 ] } }\n";
    let hashed = format!(
        "{listener}consumers: {{ a: {{ key_auth: [ \"sha256:8190c6248ca3d48f734bbb23e59fcda334842fa21f17c62e72dc8202a766027c\" ] }} }}\n\
         routes: {{ r: {{ filters: [ key_auth ], upstream: up }} }}\n"
    );
    let rehearsal = rehearse(&hashed);
    let (place, why) = &rehearsal.routes[0].unsatisfied[0];
    assert!(place.path() == "routes.r.filters[0]" && why.contains("hashes"), "{why}");
    assert!(rehearsal.routes[0].ask.is_ok() && rehearsal.routes[0].filters.is_empty());
    again(&rehearsal.text(&[place]));
    let far = format!(
        "{listener}consumers: {{ a: {{ key_auth: [ k ], allow_ips: [ 10.0.0.0/8 ] }} }}\nroutes: {{ r: {{ filters: [ key_auth ], upstream: up }} }}\n"
    );
    assert!(rehearse(&far).routes[0].unsatisfied[0].1.contains("may call from 127.0.0.1"));
    let shadowed = format!(
        "{listener}routes:\n  a: {{ match: {{ path: \"/a/{{x}}\" }}, upstream: up }}\n  b: {{ match: {{ path: /a/x }}, upstream: up }}\n"
    );
    assert!(rehearse(&shadowed).routes[0].ask.as_ref().unwrap_err().contains("route b wins"));
}

#[test]
fn the_origin_is_spared_what_it_does_not_know() {
    let text = "listeners: { web: { address: 127.0.0.1:0 } }\nupstreams:\n  up: { endpoints: [ 10.0.0.1:80 ], protocol: http1, proxy_protocol: v2, source: 10.0.0.9,\n\
                health: { probe: { path: /healthz } } }\n\
                routes: { all: { match: { path: \"/*\" }, upstream: up } }\n";
    let rehearsal = rehearse(text);
    let loaded = again(&rehearsal.text(&[]));
    let upstream = loaded.config.upstreams.get("up").unwrap();
    assert!(upstream.source.is_none() && upstream.proxy_protocol.is_none());
    assert!(upstream.health.as_ref().is_none_or(|health| health.probe.is_none()));
    assert_eq!(rehearsal.notes.iter().filter(|note| note.starts_with("upstreams.up.")).count(), 3);
}

#[test]
fn no_certificate_is_ordered_for_a_measurement() {
    let text = "listeners: { web: { address: 127.0.0.1:0, tls: { acme: { domains: [ a.example.com ] } } } }\n\
                routes: { all: { match: { path: \"/*\" }, respond: {} } }\n";
    let rehearsal = rehearse(text);
    let loaded = again(&rehearsal.text(&[]));
    let acme = loaded.config.listeners.get("web").unwrap().tls.clone().unwrap().acme.unwrap();
    assert_eq!(acme.directory.unwrap().to_string(), "https://127.0.0.1:1/weir-bench");
    assert_ne!(acme.storage.0, Path::new("/var/lib/weir/acme"));
    assert!(rehearsal.notes.iter().any(|note| note.contains("self-signed")), "{:?}", rehearsal.notes);
}

#[test]
fn credentials_are_made_where_the_config_has_only_hashes() {
    let dir = tempfile::TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed(["weir-bench".to_owned()]).unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (pem, file) = (cert.display(), key.display());
    let hash = password::hash(b"unknown", Algorithm::Argon2id).unwrap().replace('$', "$$");
    let text = format!(
        "listeners:\n  web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {{ cert: {pem}, key: {file} }} ], client_auth: {{ ca: {pem}, mode: required }} }} }}\n\
         consumers:\n  far: {{ basic_auth: [ \"a:{hash}\" ], allow_ips: [ 10.0.0.0/8 ] }}\n  \
         shop: {{ basic_auth: [ \"b:{hash}\" ], mtls_auth: [ \"dns:shop.internal\" ], plan: gold }}\n\
         plans: {{ gold: {{ filters: [ {{ concurrency: {{ requests: 1 }} }}, circuit_breaker ] }} }}\n\
         routes:\n  a: {{ match: {{ path: /a }}, filters: [ basic_auth: {{ realm: a }} ], respond: {{}} }}\n  b: {{ match: {{ path: /b }}, filters: [ mtls_auth: {{}}, concurrency: {{ adaptive: true }} ], respond: {{}} }}\n"
    );
    let (loaded, snapshot) = checked(&text);
    let identity = Identity { certificate: cert.clone(), fingerprint: "ab".repeat(32) };
    let new = |identity| {
        Rehearsal::new(
            &loaded,
            &snapshot,
            "127.0.0.1:9000".parse().unwrap(),
            Path::new("/tmp/a.sock"),
            identity,
        )
    };
    let rehearsal = new(Some(&identity));
    let [a, b] = rehearsal.routes.as_slice() else { panic!("{:?}", rehearsal.routes) };
    assert!(a.unsatisfied.is_empty() && b.unsatisfied.is_empty(), "{a:?} {b:?}");
    let (name, value) = &a.ask.as_ref().unwrap().headers[0];
    let sent = weir_wire::base64::decode(value.strip_prefix("Basic ").unwrap().as_bytes()).unwrap();
    assert!(name == "authorization" && sent.starts_with(b"weir-bench:"), "{value}");
    assert!(b.ask.as_ref().unwrap().identity);
    assert_eq!(a.filters.iter().filter(|f| f.list == "plans.gold.filters").count(), 2);
    let loaded = again(&rehearsal.text(&[]));
    let at = |path: &str| loaded.tree.find(path).map(|node| node.raw().to_owned());
    assert!(at("consumers.shop.basic_auth[1]").unwrap().starts_with("weir-bench:$argon2id$"));
    assert_eq!(at("consumers.far.basic_auth[1]"), None);
    assert_eq!(at("consumers.shop.mtls_auth[1]").as_deref(), Some(&*format!("sha256:{}", "ab".repeat(32))));
    assert_eq!(at("listeners.web.tls.client_auth.ca").as_deref(), Some(&*cert.display().to_string()));
    for (path, raised) in [
        ("plans.gold.filters[0].concurrency.requests", "1000000"),
        ("plans.gold.filters[1].circuit_breaker.minimum", "4294967295"),
        ("routes.b.filters[1].concurrency.minimum", "1000000"),
    ] {
        assert_eq!(at(path).as_deref(), Some(raised), "{path}");
    }
    // Without a certificate, no request can be sent to the listener.
    assert!(new(None).routes[1].ask.as_ref().unwrap_err().contains("asks for a client certificate"));
}
