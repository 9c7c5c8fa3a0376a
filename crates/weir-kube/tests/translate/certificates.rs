//! Secrets that are missing or invalid, and whose certificate a client sees.

use crate::CONTROLLER;
use crate::case::{object_of, read};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::fs;
use std::path::Path;
use weir_kube::{Change, Cluster, Name, Options, Translation, translate};
use weir_testkit::Authority;

/// A Secret that turns invalid costs nobody the service that was there before, and the status says so.
#[test]
fn a_secret_that_turns_invalid_keeps_the_last_good_certificate() {
    let mut case = read("http-https-listener.yaml");
    let before = translate(&case.cluster, &case.options);
    assert_eq!(before.config.files.len(), 2);
    let mut secret = object_of("http-https-listener.yaml", "Secret");
    secret["data"]["tls.crt"] = json!("bm90IGEgY2VydGlmaWNhdGU=");
    assert_eq!(case.cluster.apply(&secret), Ok(Change::Config));
    let after = translate(&case.cluster, &case.options);
    assert_eq!(after.config, before.config);
    let told = |translated: &Translation| format!("{:?}", translated.statuses);
    assert!(!told(&before).contains("the one before is still served"));
    assert!(told(&after).contains("the one before is still served"), "{}", told(&after));
    // One that is gone is gone.
    case.cluster.delete(weir_kube::Kind::Secret, &Name::new("infra", "tls"));
    assert_eq!(translate(&case.cluster, &case.options).config.files.len(), 0);
}

/// A listener whose Secret is gone leaves those at its port as they are, so that their connections stay open.
#[test]
fn a_listener_without_its_secret_changes_no_other() {
    let file = "gateway-https-misdirected.yaml";
    let mut case = read(file);
    let before = translate(&case.cluster, &case.options).config.listeners;
    let gateway = object_of(file, "Gateway");
    let (outer, inner) = ("gw_infra_edge_443", |name: &str| format!("tls_infra_edge_gw_infra_edge_{name}"));
    let names = ["one", "wild", "any"];
    for broken in [&["wild"][..], &["one", "wild"], &["wild", "any"], &["one", "any"], &["any"]] {
        let mut gateway = gateway.clone();
        for listener in gateway["spec"]["listeners"].as_array_mut().unwrap() {
            if broken.contains(&listener["name"].as_str().unwrap()) {
                listener["tls"] = json!({ "certificateRefs": [ { "name": "nothing" } ] });
            }
        }
        assert_eq!(case.cluster.apply(&gateway), Ok(Change::Config));
        let after = translate(&case.cluster, &case.options).config.listeners;
        assert_eq!(after[outer]["address"], before[outer]["address"], "{broken:?}: {after:?}");
        for name in names.into_iter().filter(|name| !broken.contains(name)) {
            assert_eq!(after[&inner(name)], before[&inner(name)], "{broken:?}: {after:?}");
        }
        assert_eq!(after.len(), before.len() - broken.len(), "{broken:?}: {after:?}");
    }
}

/// All Ingresses share one listener, and TLS prefers an exact name to a wildcard: a certificate for a host of another
/// namespace is not served, and the name that nobody's rule has keeps nobody from it.
#[test]
fn certificates_of_ingresses_take_no_host_of_another_namespace() {
    let authority = Authority::new();
    let class = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": "weir" },
        "spec": { "controller": CONTROLLER },
    });
    // Each with its namespace, the host of its rule and the names of its certificate, the oldest first.
    let served = |all: &[(&str, &str, &[&str])]| {
        let mut cluster = Cluster::default();
        cluster.apply(&class).unwrap();
        let mut made = Vec::new();
        for (at, (namespace, host, names)) in all.iter().enumerate() {
            let certificate = authority.leaf(names);
            let text = |file: &Path| STANDARD.encode(fs::read(file).unwrap());
            let created = format!("202{at}-01-01T00:00:00Z");
            let meta =
                |name: &str| json!({ "namespace": namespace, "name": name, "creationTimestamp": created });
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": meta("tls"), "type": "kubernetes.io/tls",
                "data": { "tls.crt": text(&certificate.cert_file), "tls.key": text(&certificate.key_file) },
            });
            let ingress = json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("web"),
                "spec": {
                    "ingressClassName": "weir", "tls": [ { "secretName": "tls" } ],
                    "rules": [ { "host": host, "http": { "paths": [] } } ],
                },
            });
            cluster.apply(&secret).unwrap();
            cluster.apply(&ingress).unwrap();
            made.push(fs::read(&certificate.cert_file).unwrap());
        }
        let options = Options { controller: CONTROLLER.to_owned(), ..Options::default() };
        let translated = translate(&cluster, &options);
        let listener = translated.config.listeners.get("ingress-443").unwrap();
        let shown: Vec<&Vec<u8>> = listener["tls"]["certificates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| &translated.config.files[pair["cert"].as_str().unwrap()])
            .collect();
        made.iter().map(|own| shown.contains(&own)).collect::<Vec<bool>>()
    };
    type Case<'a> = (&'a [(&'a str, &'a str, &'a [&'a str])], [bool; 2]);
    let cases: [Case<'_>; 5] = [
        // No rule of the other has this name of the wildcard.
        (&[("a", "*.shop.test", &["*.shop.test"]), ("b", "x.evil.test", &["www.shop.test"])], [true, false]),
        (&[("a", "*.shop.test", &["*.shop.test"]), ("b", "www.shop.test", &["www.shop.test"])], [true, true]),
        // Whoever has a rule has the name, though another brought it before.
        (&[("a", "x.evil.test", &["shop.test"]), ("b", "shop.test", &["shop.test"])], [false, true]),
        (&[("a", "shop.test", &["shop.test"]), ("b", "shop.test", &["shop.test"])], [true, false]),
        // Two that share names: the older is served.
        (&[("a", "a.test", &["a.test", "b.test"]), ("b", "b.test", &["a.test", "b.test"])], [true, false]),
    ];
    for (all, expected) in cases {
        assert_eq!(served(all), expected, "{all:?}");
    }
}
