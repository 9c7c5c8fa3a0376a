//! Endpoints of a Service in Kubernetes (`discover: { kubernetes }`), against the fake API server of the testkit.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use weir_testkit::kube::FakeKube;
use weir_testkit::{Authority, ServerTls, Upstream, Weir, eventually};

use crate::discovery::{come_to_be, comes_to_be_said, discovery, status};
use crate::health::metric;
use crate::support::config;

/// Writes a slice of the Service `orders` with one endpoint.
fn slice(kube: &FakeKube, upstream: &Upstream, conditions: Value) {
    slice_in(kube, "shop", upstream, conditions);
}

fn slice_in(kube: &FakeKube, namespace: &str, upstream: &Upstream, conditions: Value) {
    let address = upstream.address();
    kube.put(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": namespace, "name": name(upstream), "labels": { "kubernetes.io/service-name": "orders" },
        },
        "endpoints": [{ "addresses": [address.ip()], "conditions": conditions, "zone": "a" }],
        "ports": [{ "name": "http", "port": address.port(), "protocol": "TCP" }],
    }));
}

fn name(upstream: &Upstream) -> String {
    format!("orders-{}", upstream.address().port())
}

/// Starts a gateway whose token is the file `token` in the folder.
fn start(kube: &FakeKube, folder: &Path) -> Weir {
    start_with(&[&kube.url()], folder, "")
}

fn start_with(servers: &[&str], folder: &Path, more: &str) -> Weir {
    let token = folder.join("token");
    fs::write(&token, "first\n").unwrap();
    Weir::start(&config(&format!(
        "discover: {{ kubernetes: {{ servers: {servers:?}, namespace: shop, service: orders, port: http, \
         token_file: {}{more} }} }}",
        token.display()
    )))
}

#[test]
fn endpoints_of_a_service_come_and_go() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let [a, b, other] = ["a", "b", "other"].map(Upstream::named);
    slice(&kube, &a, json!({ "ready": true }));
    slice_in(&kube, "other", &other, json!({ "ready": true }));
    let weir = start(&kube, folder.path());
    come_to_be(&weir, &[&a]);
    weir.client().get("/").expect_body("a");
    slice(&kube, &b, json!({}));
    come_to_be(&weir, &[&a, &b]);
    slice(&kube, &a, json!({ "ready": false }));
    come_to_be(&weir, &[&b]);
    // No endpoint is ready: those that terminate serve as long as they do.
    slice(&kube, &b, json!({ "ready": false, "serving": true, "terminating": true }));
    slice(&kube, &a, json!({ "ready": false, "serving": true, "terminating": true }));
    come_to_be(&weir, &[&a, &b]);
    let told = status(&weir);
    assert_eq!(told["discovery"]["registry"], "kubernetes", "{told}");
    assert_eq!(told["endpoints"][0]["zone"], "a", "{told}");
    kube.delete("EndpointSlice", "shop", &name(&a));
    come_to_be(&weir, &[&b]);
    kube.delete("EndpointSlice", "shop", &name(&b));
    come_to_be(&weir, &[]);
    weir.client().get("/").expect_status(503);
    let lists = kube.requests().iter().filter(|request| request.verb == "list").count();
    assert_eq!(lists, 1, "changes came by the watch");
}

#[test]
fn the_last_good_list_stays_while_the_api_server_is_away() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(Upstream::named);
    slice(&kube, &a, json!({}));
    let weir = start(&kube, folder.path());
    come_to_be(&weir, &[&a]);
    kube.go_away();
    comes_to_be_said(&weir, "away");
    weir.client().get("/").expect_body("a");
    // The history of what happened meanwhile is gone: only a new list tells.
    slice(&kube, &b, json!({}));
    kube.delete("EndpointSlice", "shop", &name(&a));
    kube.compact();
    kube.come_back();
    come_to_be(&weir, &[&b]);
    comes_to_be_said(&weir, "following");
    // A watch that ends goes on where it was.
    kube.end_watches();
    slice(&kube, &a, json!({}));
    come_to_be(&weir, &[&a, &b]);
}

#[test]
fn a_rotated_token_and_authority_are_read_again() {
    let (first, second) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    fs::copy(first.file(), &ca).unwrap();
    let [a, b] = ["a", "b"].map(Upstream::named);
    let kube = FakeKube::start_tls(ServerTls::new(&first.leaf(&["127.0.0.1"])));
    kube.demand_token("first");
    slice(&kube, &a, json!({}));
    let url = format!("https://{}", kube.address());
    let weir = start_with(&[&url], folder.path(), &format!(", ca: {}", ca.display()));
    come_to_be(&weir, &[&a]);
    kube.demand_token("second");
    kube.break_connections();
    eventually("the old token is refused", || {
        discovery(&weir)["error"].as_str().is_some_and(|why| why.contains("the token is not valid"))
    });
    fs::write(folder.path().join("token"), "second\n").unwrap();
    slice(&kube, &b, json!({}));
    come_to_be(&weir, &[&a, &b]);
    // A watch that is being opened would have read the authority already, and be open after the others have broken.
    let is_watched = || kube.requests().last().is_some_and(|request| request.verb == "watch");
    eventually("the slices are watched", is_watched);
    // An authority that did not sign the server's certificate ends the trust in it, but not the service.
    fs::copy(second.file(), &ca).unwrap();
    kube.break_connections();
    comes_to_be_said(&weir, "away");
    weir.client().get("/").expect_status(200);
    fs::copy(first.file(), &ca).unwrap();
    comes_to_be_said(&weir, "following");
}

#[test]
fn a_missing_permission_is_named_and_lists_replace_a_watch() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(Upstream::named);
    slice(&kube, &a, json!({}));
    kube.forbid("list", "endpointslices");
    let weir = start(&kube, folder.path());
    let is_said = |what: &str| {
        discovery(&weir)["error"]
            .as_str()
            .is_some_and(|why| why.contains(what) && why.contains("list and watch of"))
    };
    eventually("the verb is named", || is_said("403 to a list"));
    kube.forbid("watch", "endpointslices");
    kube.permit("list", "endpointslices");
    come_to_be(&weir, &[&a]);
    eventually("the other verb is named", || is_said("403 to a watch"));
    slice(&kube, &b, json!({}));
    come_to_be(&weir, &[&a, &b]);
    kube.permit("watch", "endpointslices");
    comes_to_be_said(&weir, "following");
}

/// A server that has just restarted knows no version from before, not even one that it has listed itself.
#[test]
fn a_version_that_is_gone_costs_a_list_and_is_no_failure() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(Upstream::named);
    slice(&kube, &a, json!({}));
    kube.expire_next("endpointslices", 2);
    let weir = start(&kube, folder.path());
    let count = |verb: &str| kube.requests().iter().filter(|request| request.verb == verb).count();
    eventually("the third watch lasts", || count("watch") == 3);
    slice(&kube, &b, json!({}));
    come_to_be(&weir, &[&a, &b]);
    assert_eq!((count("list"), count("watch")), (3, 3));
    assert_eq!(metric(&weir, &["weir_discovery_failures", "up"]), Some(0.0));
    // One that answers so for ever is asked more and more rarely, and its lists still count.
    kube.expire_next("endpointslices", usize::MAX);
    kube.end_watches();
    eventually("it is told", || {
        discovery(&weir)["error"].as_str().is_some_and(|why| why.contains("too old"))
    });
    kube.delete("EndpointSlice", "shop", &name(&a));
    come_to_be(&weir, &[&b]);
    kube.expire_next("endpointslices", 0);
    comes_to_be_said(&weir, "following");
}

/// The servers of a cluster have the same objects at the same versions.
#[test]
fn the_next_server_is_asked_after_a_failure() {
    let (first, second) = (FakeKube::start(), FakeKube::start());
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(Upstream::named);
    slice(&first, &a, json!({}));
    slice(&second, &a, json!({}));
    first.go_away();
    let weir = start_with(&[&first.url(), &second.url()], folder.path(), "");
    come_to_be(&weir, &[&a]);
    first.come_back();
    slice(&first, &b, json!({}));
    second.go_away();
    come_to_be(&weir, &[&a, &b]);
}
