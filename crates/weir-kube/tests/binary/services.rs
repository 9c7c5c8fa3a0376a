//! A Service for each Gateway, and the ports of the pod behind it.

use crate::{GATEWAY, Running, SOON, class, condition, redirect};
use serde_json::{Value, json};
use std::path::Path;
use weir_testkit::kube::FakeKube;
use weir_testkit::{Client, eventually_within};

const WITH_SERVICES: &[&str] = &["--gateway-services", "LoadBalancer"];

fn start(kube: &FakeKube, folder: &Path) -> Running {
    let running = Running::start_with(kube, folder, WITH_SERVICES);
    eventually_within(SOON, "it is ready", || running.readyz().as_deref() == Some("ready\n"));
    running
}

/// The Service of the installation with pods at these addresses.
fn pods(kube: &FakeKube, addresses: &[&str]) {
    kube.put(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": "weir", "name": "weir" },
        "spec": { "ports": [{ "port": 80 }] },
    }));
    let endpoint = |address: &&str| json!({ "addresses": [address], "conditions": { "ready": true } });
    kube.put(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": "weir", "name": "weir-x", "labels": { "kubernetes.io/service-name": "weir" },
        },
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(), "ports": [{ "port": 80 }],
    }));
}

fn gateway(name: &str, ports: &[u16]) -> Value {
    let listener = |port: &u16| json!({ "name": format!("p{port}"), "protocol": "HTTP", "port": port });
    json!({
        "apiVersion": GATEWAY, "kind": "Gateway", "metadata": { "namespace": "shop", "name": name },
        "spec": {
            "gatewayClassName": "weir", "listeners": ports.iter().map(listener).collect::<Vec<_>>(),
        },
    })
}

fn route(name: &str, gateway: &str) -> Value {
    let mut route = redirect(name, "/", &format!("{gateway}.example"));
    route["spec"]["parentRefs"] = json!([{ "name": gateway }]);
    route
}

/// The port of the pods to which the Service of a Gateway leads from a port.
fn target(kube: &FakeKube, gateway: &str, port: u16) -> Option<u16> {
    let service = kube.get("Service", "shop", &format!("weir-{gateway}"))?;
    let ports = service["spec"]["ports"].as_array()?.clone();
    let found = ports.iter().find(|known| known["port"] == port)?;
    u16::try_from(found["targetPort"].as_u64()?).ok()
}

#[track_caller]
fn wait_target(kube: &FakeKube, gateway: &str, port: u16) -> u16 {
    let what = format!("the Service of {gateway} has port {port}");
    eventually_within(SOON, &what, || target(kube, gateway, port).is_some());
    target(kube, gateway, port).unwrap()
}

#[track_caller]
fn wait_leads_to(pod_port: u16, gateway: &str) {
    let address = format!("127.0.0.1:{pod_port}");
    eventually_within(SOON, &format!("port {pod_port} serves {gateway}"), || {
        Client::can_connect(&address)
            && Client::connect(&address)
                .get("/")
                .header("location")
                .is_some_and(|to| to.starts_with(&format!("http://{gateway}.example")))
    });
}

#[test]
fn two_gateways_have_one_port_and_a_service_each() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    kube.put(class());
    pods(&kube, &["10.1.0.1"]);
    kube.put(gateway("first", &[80]));
    kube.put(gateway("second", &[80]));
    kube.put(route("to-first", "first"));
    kube.put(route("to-second", "second"));
    let running = start(&kube, folder.path());
    let (first, second) = (wait_target(&kube, "first", 80), wait_target(&kube, "second", 80));
    assert_ne!(first, second);
    wait_leads_to(first, "first");
    wait_leads_to(second, "second");

    // Its address is that of the load balancer, and without one it is not programmed.
    let status = |path: &str| kube.get("Gateway", "shop", "first")?.pointer(path).cloned();
    let programmed = || condition(&kube.get("Gateway", "shop", "first")?, "/status/conditions", "Programmed");
    eventually_within(SOON, "it waits for an address", || programmed().as_deref() == Some("False"));
    let balancer = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    kube.put_status("Service", "shop", "weir-first", balancer);
    eventually_within(SOON, "it has an address", || {
        status("/status/addresses/0/value") == Some(json!("192.0.2.1"))
            && programmed().as_deref() == Some("True")
    });

    // The pods behind it follow those of the installation.
    let endpoints =
        || kube.get("EndpointSlice", "shop", "weir-first-4").map(|slice| slice["endpoints"].clone());
    eventually_within(SOON, "its pods are known", || {
        endpoints().is_some_and(|all| all[0]["addresses"][0] == "10.1.0.1")
    });
    pods(&kube, &["10.1.0.1", "10.1.0.2"]);
    eventually_within(SOON, "a new pod gets connections", || {
        endpoints().is_some_and(|all| all.as_array().is_some_and(|all| all.len() == 2))
    });

    // A new port moves none of the others, and what the server chose stays.
    kube.put(gateway("first", &[80, 8080]));
    let third = wait_target(&kube, "first", 8080);
    assert_eq!(wait_target(&kube, "first", 80), first);
    wait_leads_to(third, "first");
    running.stop();

    // Nor does a restart, or an older Gateway that goes.
    kube.delete("Gateway", "shop", "first");
    let creations =
        || kube.requests().iter().filter(|r| r.verb == "create" && r.resource == "services").count();
    let before = creations();
    let running = start(&kube, folder.path());
    wait_leads_to(second, "second");
    assert_eq!((wait_target(&kube, "second", 80), creations()), (second, before));
    assert_eq!(kube.get("Service", "shop", "weir-first"), None, "it went with its Gateway");
    running.stop();
}

/// Without a permission it serves all the same, and does what it may once it may.
#[test]
fn without_a_permission_it_serves() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    kube.put(class());
    pods(&kube, &["10.1.0.1"]);
    kube.put(gateway("web", &[80]));
    kube.put(route("to-web", "web"));
    kube.put(route("lost", "nowhere"));
    for (verb, resource) in [("create", "services"), ("create", "endpointslices"), ("create", "events")] {
        kube.forbid(verb, resource);
    }
    let running = start(&kube, folder.path());
    let tries = |resource: &str| {
        kube.requests().iter().filter(|r| r.verb == "create" && r.resource == resource).count()
    };
    eventually_within(SOON, "it tries", || tries("services") > 0 && tries("endpointslices") > 0);
    for resource in ["services", "endpointslices", "events"] {
        kube.permit("create", resource);
    }
    let port = wait_target(&kube, "web", 80);
    wait_leads_to(port, "web");
    running.stop();
}

/// A tenant may edit the Service of its Gateway as soon as it is there, so its ports are recorded before.
#[test]
fn ports_are_recorded_once_and_before_the_service() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    kube.put(class());
    pods(&kube, &["10.1.0.1"]);
    kube.put(gateway("web", &[80]));
    kube.put(route("to-web", "web"));
    let running = start(&kube, folder.path());
    let port = wait_target(&kube, "web", 80);
    let recorded = || kube.get("ConfigMap", "weir", "weir-ports").map(|record| record["data"].to_string());
    assert!(recorded().is_some_and(|data| data.contains(&format!("80={port}"))), "{:?}", recorded());
    let at = |resource: &str| {
        kube.requests().iter().position(|request| request.verb == "create" && request.resource == resource)
    };
    assert!(at("configmaps") < at("services"));
    // What is written is read back: nothing is written again, also by another leader.
    kube.put(gateway("web", &[80, 81]));
    wait_target(&kube, "web", 81);
    running.stop();
    let running = start(&kube, folder.path());
    kube.put(gateway("other", &[80]));
    wait_target(&kube, "other", 80);
    assert_eq!(target(&kube, "web", 80), Some(port));
    let patches = kube.requests().iter().filter(|r| r.verb == "patch" && r.resource == "configmaps").count();
    assert_eq!(patches, 2, "one for each new port");
    running.stop();
}

#[test]
fn without_a_record_services_are_made_all_the_same() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    kube.put(class());
    pods(&kube, &["10.1.0.1"]);
    kube.put(gateway("web", &[80]));
    kube.put(route("to-web", "web"));
    kube.forbid("create", "configmaps");
    let running = start(&kube, folder.path());
    let port = wait_target(&kube, "web", 80);
    wait_leads_to(port, "web");
    running.stop();
}

#[test]
fn the_service_of_a_gateway_is_put_back_and_deleted() {
    let kube = FakeKube::start();
    kube.keep_orphans();
    let folder = tempfile::tempdir().unwrap();
    kube.put(class());
    pods(&kube, &["10.1.0.1"]);
    kube.put(gateway("web", &[80]));
    kube.put(route("to-web", "web"));
    let running = start(&kube, folder.path());
    let port = wait_target(&kube, "web", 80);
    // A tenant cannot lead it to the admin API, nor the pod to another port.
    let mut service = kube.get("Service", "shop", "weir-web").unwrap();
    service["spec"]["ports"][0]["targetPort"] = json!(9180);
    kube.put(service);
    eventually_within(SOON, "the leader puts it back", || target(&kube, "web", 80) == Some(port));
    wait_leads_to(port, "web");

    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": "shop", "name": "weir-other" },
        "spec": { "ports": [{ "port": 5 }] },
    });
    kube.put(theirs.clone());
    kube.put(gateway("other", &[80]));
    eventually_within(SOON, "its status says whose the Service is", || {
        let gateway = kube.get("Gateway", "shop", "other").unwrap();
        gateway.pointer("/status/conditions").is_some_and(|all| all.to_string().contains("somebody else"))
    });
    assert_eq!(kube.get("Service", "shop", "weir-other").unwrap()["spec"], theirs["spec"]);

    kube.delete("Gateway", "shop", "web");
    eventually_within(SOON, "its Service goes", || kube.get("Service", "shop", "weir-web").is_none());
    eventually_within(SOON, "and its endpoints", || {
        kube.get("EndpointSlice", "shop", "weir-web-4").is_none()
    });
    running.stop();
}
