//! Hundreds of listeners and thousands of routes.

use crate::case::{changes, checked, object_of, objects, outcome, read};
use crate::{CONTROLLER, NOW};
use serde_json::{Map, Value, json};
use std::time::Instant;
use weir_gateway::explain::{Arriving, explain};
use weir_kube::{Change, Cluster, Memo, Name, Options, translate};

/// The config grows with the HTTPS listeners of a port, not with their pairs: many tenants add theirs to one Gateway.
#[test]
fn hundreds_of_https_listeners_fit_into_a_config() {
    const SETS: usize = 4;
    const LISTENERS: usize = 64;
    let mut case = read("gateway-https-misdirected.yaml");
    let mut gateway = object_of("gateway-https-misdirected.yaml", "Gateway");
    gateway["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "Same" } });
    case.cluster.apply(&gateway).unwrap();
    for set in 0..SETS {
        let listener = |at: usize| {
            json!({
                "name": format!("l{at}"), "port": 443, "protocol": "HTTPS", "hostname": format!("l{at}.s{set}.test"),
                "tls": { "certificateRefs": [ { "name": "tls" } ] },
            })
        };
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
            "metadata": { "namespace": "infra", "name": format!("s{set}") },
            "spec": {
                "parentRef": { "name": "edge" }, "listeners": (0..LISTENERS).map(listener).collect::<Vec<_>>(),
            },
        });
        case.cluster.apply(&object).unwrap();
    }
    let translated = translate(&case.cluster, &case.options);
    assert_eq!(translated.config.listeners.len(), SETS * LISTENERS + 4);
    let length = translated.config.to_text(&Map::new()).len();
    assert!(length < 1000 * SETS * LISTENERS, "{length} bytes");
    let checked = checked(&translated);
    assert_eq!(checked.diagnostics.errors(), 0, "{}", checked.diagnostics.to_text());
    let (_, snapshot) = checked.compiled.as_ref().unwrap();
    for (host, expected) in
        [("l3.s2.test", "404"), ("l4.s2.test", "421"), ("one.example.org", "421"), ("other.test", "421")]
    {
        let arriving = Arriving { listener: Some("tls_infra_edge_set_infra_s2_l3"), client: None };
        let told = explain(snapshot, arriving, "GET", &format!("https://{host}/"), &[]).unwrap();
        assert_eq!(outcome(&told), expected, "{host}");
    }
}

/// Not a measurement: a quadratic algorithm would take minutes here.
#[test]
fn thousands_of_routes_are_translated() {
    const COUNT: usize = 5_000;
    let mut cluster = Cluster::default();
    for object in objects("http-weight.yaml") {
        if object["kind"] != "Case" {
            cluster.apply(&object).unwrap();
        }
    }
    let route = |at: usize, status: Value| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "namespace": "infra", "name": format!("r{at}"), "generation": 1 },
            "spec": {
                "parentRefs": [ { "name": "edge" } ], "hostnames": [ format!("h{at}.test") ],
                "rules": [ { "backendRefs": [ { "name": format!("s{at}"), "port": 80 } ] } ],
            },
            "status": status,
        })
    };
    for at in 0..COUNT {
        let name = format!("s{at}");
        let meta =
            json!({ "namespace": "infra", "name": name, "labels": { "kubernetes.io/service-name": name } });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": { "ports": [ { "port": 80 } ] },
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta, "addressType": "IPv4",
            "ports": [ { "port": 3000 } ],
            "endpoints": [ { "addresses": [ format!("10.{}.{}.1", at / 256, at % 256) ] } ],
        });
        for object in [route(at, json!({})), service, slice] {
            assert_eq!(cluster.apply(&object).unwrap(), Change::Config);
        }
    }
    let options = Options { controller: CONTROLLER.to_owned(), ..Options::default() };
    let began = Instant::now();
    let translated = translate(&cluster, &options);
    let took = began.elapsed();
    assert_eq!(translated.config.routes.len(), COUNT + 1);
    assert!(translated.config.upstreams.len() >= COUNT);
    let began = Instant::now();
    let patches = changes(&cluster, &translated.statuses, NOW);
    println!(
        "{COUNT} routes: translated in {took:?}, {} statuses compared in {:?}",
        patches.len(),
        began.elapsed()
    );
    let name = Name::new("infra", "r7");
    let patch = patches.iter().find(|patch| patch.name == name).unwrap();
    let began = Instant::now();
    assert_eq!(cluster.apply(&route(7, Value::clone(&patch.wanted))).unwrap(), Change::Status);
    println!("a status alone: {:?}", began.elapsed());
    let mut memo = Memo::default();
    assert_eq!(memo.translate(&cluster, &options).config, translated.config);
    for (what, kind, made) in [
        ("a Service changes", weir_kube::Kind::Service, 1),
        ("a Secret changes", weir_kube::Kind::Secret, 0),
        ("a Namespace changes", weir_kube::Kind::Namespace, 0),
    ] {
        let before = memo.routes_made();
        memo.changed(&options, kind, &Name::new("infra", "s7"));
        let began = Instant::now();
        let again = memo.translate(&cluster, &options);
        println!("{what}: {} routes translated in {:?}", memo.routes_made() - before, began.elapsed());
        assert_eq!((memo.routes_made() - before, &again.config), (made, &translated.config), "{what}");
    }
}
