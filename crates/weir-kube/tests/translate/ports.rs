//! Ports that something else has: another process, another Gateway or the admin API.

use crate::CONTROLLER;
use crate::case::{checked, read};
use serde_json::{Value, json};
use weir_kube::{Cluster, Name, Options, translate};

/// Where the system does not let us listen, only the listeners of this address are left out.
#[test]
fn an_address_that_is_taken_costs_its_listeners_alone() {
    let why = "another process listens there";
    for (file, address, gone) in [
        ("ingress.yaml", "0.0.0.0:80", "ingress-80"),
        ("ingress.yaml", "0.0.0.0:443", "ingress-443"),
        ("tls-and-tcp.yaml", "0.0.0.0:5432", "gw_infra_edge_5432"),
    ] {
        let case = read(file);
        let mut options = case.options.clone();
        let mut listeners = translate(&case.cluster, &options).config.listeners;
        assert!(listeners.remove(gone).is_some(), "{gone}");
        options.busy.insert(address.parse().unwrap(), why.to_owned());
        let translated = translate(&case.cluster, &options);
        assert_eq!(
            translated.config.listeners.keys().collect::<Vec<_>>(),
            listeners.keys().collect::<Vec<_>>(),
            "{address}"
        );
        assert_eq!(checked(&translated).diagnostics.errors(), 0);
        let told = format!("{:?} {:?}", translated.statuses, translated.notices);
        assert!(told.contains(why) && told.contains("PortUnavailable"), "{told}");
        // The admin API may be what listens there.
        options.busy.clear();
        options.admin_address = Some(address.replace("0.0.0.0", "127.0.0.1").parse().unwrap());
        let translated = translate(&case.cluster, &options);
        assert_eq!(
            translated.config.listeners.keys().collect::<Vec<_>>(),
            listeners.keys().collect::<Vec<_>>()
        );
    }
}

/// The ports of Gateways are those of the pods, where the admin API listens too. What a Gateway gets there would be the
/// token of whoever asks.
#[test]
fn no_gateway_gets_the_port_of_the_admin_api_or_of_another() {
    let mut cluster = Cluster::default();
    let mut put = |kind: &str, name: &str, created: &str, spec: Value| {
        let namespace = if kind == "GatewayClass" { "" } else { "a" };
        let meta = json!({ "namespace": namespace, "name": name, "creationTimestamp": created });
        let version = "gateway.networking.k8s.io/v1";
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": meta, "spec": spec });
        cluster.apply(&object).unwrap();
    };
    let gateway = |address: &str, ports: &[u16]| {
        let listener = |port: &u16| json!({ "name": format!("p{port}"), "port": port, "protocol": "HTTP" });
        json!({
            "gatewayClassName": "weir", "addresses": [{ "value": address }],
            "listeners": ports.iter().map(listener).collect::<Vec<_>>(),
        })
    };
    put("GatewayClass", "weir", "2026-01-01T00:00:00Z", json!({ "controllerName": CONTROLLER }));
    put("Gateway", "first", "2026-01-01T00:00:00Z", gateway("10.0.0.1", &[80, 9180]));
    put("Gateway", "second", "2026-01-02T00:00:00Z", gateway("::ffff:10.0.0.1", &[80, 81]));
    let admin = Some(("weir".to_owned(), 9180));
    let mut options = Options { controller: CONTROLLER.to_owned(), admin, ..Options::default() };
    let translated = translate(&cluster, &options);
    let served: Vec<&str> = translated.config.listeners.keys().map(String::as_str).collect();
    assert_eq!(served, ["gw_a_first_80", "gw_a_second_81"]);
    for (name, told) in [
        ("first", "the admin API of Weir listens on port 9180"),
        ("second", "another Gateway listens on [::ffff:10.0.0.1]:80"),
    ] {
        let status = translated.statuses.iter().find(|status| status.name.name == name).unwrap();
        let status = status.wanted.to_string();
        assert!(status.contains("PortUnavailable") && status.contains(told), "{status}");
    }
    // In the network of the node, the admin API listens on 127.0.0.1, where all addresses would collide with it.
    options.admin = None;
    options.admin_address = Some("127.0.0.1:9180".parse().unwrap());
    let any = json!({ "gatewayClassName": "weir", "listeners": [
        { "name": "web", "port": 8080, "protocol": "HTTP" }, { "name": "admin", "port": 9180, "protocol": "HTTP" },
    ] });
    let version = "gateway.networking.k8s.io/v1";
    let meta = json!({ "namespace": "a", "name": "third", "creationTimestamp": "2026-01-03T00:00:00Z" });
    let third = json!({ "apiVersion": version, "kind": "Gateway", "metadata": meta, "spec": any });
    cluster.apply(&third).unwrap();
    let served = translate(&cluster, &options).config.listeners;
    let served: Vec<&str> = served.keys().map(String::as_str).collect();
    assert_eq!(served, ["gw_a_first_80", "gw_a_first_9180", "gw_a_second_81", "gw_a_third_8080"]);
    cluster.delete(weir_kube::Kind::Gateway, &Name::new("a", "first"));
    let served = translate(&cluster, &options).config.listeners;
    assert!(!served.contains_key("gw_a_third_9180"), "{served:?}");
    options.admin_address = None;
    assert!(translate(&cluster, &options).config.listeners.contains_key("gw_a_third_9180"));
}
