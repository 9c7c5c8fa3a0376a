//! A Service for each Gateway, and the ports of the pods behind it.
//!
//! Two Gateways may both ask for port 80, but a pod has that port once. So each port of a Gateway gets a port of the
//! pods, and the Gateway's own Service leads from one to the other. All replicas must agree on these ports without
//! talking to each other, across restarts, and while Gateways come and go. They are derived:
//!
//! - A digest of the Gateway's uid and the port gives a few candidates within [`POD_PORTS`]. Nobody chooses a uid.
//! - The leader records each port in a ConfigMap of its own namespace, which tenants cannot write. A Gateway keeps its
//!   recorded port until it no longer asks for it, whatever its Service or anybody else's says, and also while the
//!   Gateway is not accepted. So neither a Gateway that comes or goes, nor an edited Service, nor a restart moves it.
//! - A port without a record stays where the Gateway's Service leads to already: the record was lost, or an earlier
//!   version made the Service. If the Services of two Gateways lead to one port of the pods, somebody has edited one of
//!   them, and nothing tells which: neither keeps it, so that no Gateway gets the clients of another.
//! - Of the others, the older Gateway takes its first candidate that is neither recorded nor led to. Every replica that
//!   has seen the same objects takes the same one, so replicas listen before the leader has written Service and record.
//!
//! A target that is not among the Gateway's own candidates, such as the port of the admin API, is ignored.
//!
//! The Service stands in the Gateway's namespace, so that its owner is the Gateway and Kubernetes deletes it with it. The
//! pods stand in another one, so the Service has no selector: its EndpointSlices are copies of those of the Service of
//! this installation.

use super::listeners::Gate;
use super::{Cx, Front, Options};
use crate::cluster::Cluster;
use crate::names;
use crate::objects::{
    CONTROLLER_ANNOTATION, Endpoint, GATEWAY_GROUP, Gateway, Kind, Meta, Name, Object, ParametersRef,
    SERVICE_LABEL, Service, ServicePort, is_label, shown,
};
use crate::status::Problem;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The ports of pods that serve listeners. Below them are those of the admin API and of Ingresses, above them the node
/// ports of Kubernetes (30000) and the ports that Linux gives to clients (32768).
pub const POD_PORTS: RangeInclusive<u16> = 15_000..=29_999;

/// How many ports of [`POD_PORTS`] a port of a Gateway may get. If one in ten is taken, one listener in a hundred
/// million finds all eight taken.
const CANDIDATES: u8 = 8;

/// Most ports of a Gateway: an EndpointSlice has no more.
pub const MAX_PORTS: usize = 100;

/// Most bytes of the record of ports, a little less than a ConfigMap may have. Some 15,000 Gateways with two ports each
/// fit. What does not fit is kept by Services alone.
const MAX_RECORD: usize = 900 << 10;

/// Most pods of an EndpointSlice, as in Kubernetes.
const MAX_PODS: usize = 1_000;

/// The label that names the Gateway, as the Gateway API wants it.
const GATEWAY_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
/// The labels and annotations that `infrastructure` asked for, so that they go when they are no longer asked for.
pub(crate) const COPIED_ANNOTATION: &str = "gateway.weir.dev/copied";

/// Longest label value, and longest name of a Service.
const MAX_LABEL: usize = 63;

/// The types of Services that a Gateway can have.
pub const TYPES: &[&str] = &["ClusterIP", "LoadBalancer", "NodePort"];

/// How a Gateway's Service is to be, from the ConfigMap that its `infrastructure` names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wish {
    kind: Option<String>,
    traffic: Option<String>,
    class: Option<String>,
}

/// Gives each port of the Gateways, which are sorted by age, a port of the pods.
pub(super) fn assign(cx: &Cx<'_>, gates: &mut [Gate<'_>]) {
    if cx.options.front == Front::Pods {
        return;
    }
    let records = &cx.records;
    let mut taken = records.reserved(cx, gates);
    // A Service leads where it leads whether or not its Gateway is served now: nobody else may listen there.
    let led: Vec<BTreeMap<u16, u16>> = gates.iter().map(|gate| led_by(cx, gate)).collect();
    let mut claims: BTreeMap<u16, usize> = BTreeMap::new();
    for target in led.iter().flat_map(BTreeMap::values) {
        *claims.entry(*target).or_default() += 1;
    }
    for (gate, led) in gates.iter_mut().zip(&led).filter(|(gate, _)| gate.wrong.is_none()) {
        for port in ports_of(gate) {
            if gate.ports.len() >= MAX_PORTS {
                break;
            }
            let led = || led.get(&port).filter(|at| claims.get(*at) == Some(&1) && !taken.contains(*at));
            if let Some(kept) = records.of(gate, port).or_else(|| led().copied()) {
                gate.ports.insert(port, kept);
            }
        }
    }
    taken.extend(claims.into_keys());
    for gate in gates.iter_mut().filter(|gate| gate.wrong.is_none()) {
        for port in ports_of(gate) {
            if gate.ports.contains_key(&port) {
                continue;
            }
            let has_room = gate.ports.len() < MAX_PORTS;
            let mut free = candidates(&gate.object.meta, port).filter(|_| has_room);
            if let Some(free) = free.find(|one| taken.insert(*one)) {
                gate.ports.insert(port, free);
                continue;
            }
            let message = match has_room {
                true => "the pods have no port left for it".to_owned(),
                false => format!("the Gateway has more than {MAX_PORTS} ports"),
            };
            for listener in gate.listeners.iter_mut().filter(|listener| listener.spec.port == port) {
                listener.wrong.get_or_insert_with(|| Problem::new("PortUnavailable", message.clone()));
            }
        }
    }
}

/// The recorded ports: by the uid of a Gateway and its port, the port of the pods. No port of the pods is in it twice.
#[derive(Debug, Default)]
pub(super) struct Records<'c>(BTreeMap<&'c str, BTreeMap<u16, u16>>);

/// The ConfigMap with the recorded ports.
fn record_name(pods: &Name) -> Name {
    Name::new(&pods.namespace, &format!("{}-ports", pods.name))
}

/// Whether a ConfigMap is the one with the recorded ports.
pub(super) fn is_record(options: &Options, name: &Name) -> bool {
    matches!(&options.front, Front::Services { pods, .. } if record_name(pods) == *name)
}

impl<'c> Records<'c> {
    pub(super) fn read(cluster: &'c Cluster, options: &Options) -> Self {
        let mut all = Self::default();
        let Front::Services { pods, .. } = &options.front else { return all };
        let Some(map) = cluster.config_maps.get(&record_name(pods)) else { return all };
        let mut taken: BTreeSet<u16> = BTreeSet::new();
        for (uid, text) in &map.spec.data {
            let own = all.0.entry(uid).or_default();
            for (port, target) in text.split(' ').filter_map(|pair| pair.split_once('=')) {
                let pair = port.parse().ok().zip(target.parse().ok());
                let pair = pair.filter(|(_, target)| POD_PORTS.contains(target) && taken.insert(*target));
                own.extend(pair);
            }
        }
        all
    }

    fn of(&self, gate: &Gate<'_>, port: u16) -> Option<u16> {
        self.0.get(gate.object.meta.uid.as_str())?.get(&port).copied()
    }

    /// The recorded ports that a Gateway still has, now or once what is wrong with it or a listener is mended.
    fn kept(&self, gate: &Gate<'_>) -> BTreeMap<u16, u16> {
        let all = self.0.get(gate.object.meta.uid.as_str()).cloned().unwrap_or_default();
        let asks = |port: u16| gate.listeners.iter().any(|listener| listener.spec.port == port);
        all.into_iter().filter(|(port, _)| gate.wrong.is_some() || asks(*port)).collect()
    }

    /// The recorded ports of Gateways whose class is missing, or is ours with parameters that nobody follows: either
    /// may be mended.
    fn waiting(&self, cx: &Cx<'c>) -> BTreeMap<&'c str, BTreeMap<u16, u16>> {
        let may_return = |class: &str| {
            cx.lookups.all().gateway_classes.get(&Name::new("", class)).is_none_or(|class| {
                class.spec.controller_name == cx.options.controller && class.spec.parameters_ref.is_some()
            })
        };
        let waiting =
            cx.lookups.all().gateways.values().filter(|gateway| may_return(&gateway.spec.gateway_class_name));
        let own = |gateway: &'c Object<Gateway>| {
            let uid = gateway.meta.uid.as_str();
            self.0.get(uid).map(|ports| (uid, ports.clone()))
        };
        waiting.filter_map(own).collect()
    }

    /// The ports of the pods that nobody else gets.
    fn reserved(&self, cx: &Cx<'c>, gates: &[Gate<'_>]) -> BTreeSet<u16> {
        let kept = gates.iter().flat_map(|gate| self.kept(gate).into_values());
        kept.chain(self.waiting(cx).into_values().flat_map(BTreeMap::into_values)).collect()
    }
}

/// The record of all ports as it is to be.
pub(super) fn record(cx: &Cx<'_>, gates: &[Gate<'_>]) -> Option<(Kind, Name, Value)> {
    let Front::Services { pods, .. } = &cx.options.front else { return None };
    let name = record_name(pods);
    let (records, known) = (&cx.records, cx.lookups.all().config_maps.get(&name));
    // `null` removes the Gateways that are gone.
    let gone = known.into_iter().flat_map(|map| map.spec.data.keys());
    let mut data: Map<String, Value> = gone.map(|uid| (uid.clone(), Value::Null)).collect();
    let own = |gate: &Gate<'_>| {
        let mut ports = records.kept(gate);
        ports.extend(&gate.ports);
        (gate.object.meta.uid.clone(), ports)
    };
    let waiting = records.waiting(cx).into_iter().map(|(uid, ports)| (uid.to_owned(), ports));
    let mut bytes = 0;
    for (uid, ports) in gates.iter().map(own).chain(waiting).filter(|(_, ports)| !ports.is_empty()) {
        let pairs: Vec<String> = ports.iter().map(|(port, target)| format!("{port}={target}")).collect();
        let text = pairs.join(" ");
        bytes += uid.len() + text.len();
        if bytes <= MAX_RECORD {
            data.insert(uid, json!(text));
        }
    }
    if data.is_empty() {
        return None;
    }
    let metadata = json!({
        "namespace": name.namespace, "name": name.name,
        "labels": { "app.kubernetes.io/managed-by": "weir-kube" },
        "annotations": { CONTROLLER_ANNOTATION: cx.options.controller },
    });
    let value = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
    Some((Kind::ConfigMap, name, value))
}

/// The ports of the listeners that routes may attach to, also of those whose certificate is missing: a Secret that is
/// broken for a moment must not change the load balancer.
fn ports_of(gate: &Gate<'_>) -> BTreeSet<u16> {
    gate.listeners
        .iter()
        .filter(|listener| listener.takes_routes())
        .map(|listener| listener.spec.port)
        .collect()
}

/// Where the Service of a Gateway leads now, by port, as far as the Gateway may have these ports of the pods.
fn led_by(cx: &Cx<'_>, gate: &Gate<'_>) -> BTreeMap<u16, u16> {
    let Some(own) = own_service(cx, gate) else { return BTreeMap::new() };
    let ports: BTreeSet<u16> = own.spec.ports.iter().map(|known| known.port).take(MAX_PORTS).collect();
    let target = |port: u16| {
        let target = target_of(own, port)?;
        candidates(&gate.object.meta, port).any(|one| one == target).then_some((port, target))
    };
    ports.into_iter().filter_map(target).collect()
}

fn candidates(meta: &Meta, port: u16) -> impl Iterator<Item = u16> {
    let of = format!("{}/{}/{}/{port}", meta.uid, meta.namespace, meta.name);
    let count = POD_PORTS.end() - POD_PORTS.start() + 1;
    (0..CANDIDATES).map(move |number| {
        let digest = Sha256::digest(format!("{of}/{number}"));
        let (high, low) = (digest.first().copied(), digest.get(1).copied());
        let drawn = u16::from_be_bytes([high.unwrap_or_default(), low.unwrap_or_default()]);
        POD_PORTS.start() + drawn % count
    })
}

/// The Service of a Gateway, if it is there and ours.
fn own_service<'c>(cx: &Cx<'c>, gate: &Gate<'_>) -> Option<&'c Object<Service>> {
    let (service, uid) = (cx.lookups.all().services.get(&service_of(gate))?, &gate.object.meta.uid);
    let is_owner =
        service.meta.owner_references.iter().any(|owner| owner.uid == *uid && owner.kind == "Gateway");
    let is_made = service.meta.annotations.get(CONTROLLER_ANNOTATION) == Some(&cx.options.controller);
    (is_owner && is_made).then_some(service)
}

fn target_of(service: &Object<Service>, port: u16) -> Option<u16> {
    let found = service.spec.ports.iter().find(|known: &&ServicePort| known.port == port)?;
    found.target_port.as_u64().and_then(|target| u16::try_from(target).ok())
}

/// The Service of a Gateway, whether or not it is there and ours.
fn service_of(gate: &Gate<'_>) -> Name {
    Name::new(&gate.name.namespace, &service_name(&gate.name.name))
}

/// The name of a Gateway's Service: a label, unlike the Gateway's own name.
fn service_name(gateway: &str) -> String {
    let name = format!("weir-{gateway}");
    if is_label(&name, MAX_LABEL) { name } else { format!("weir-{}", shortened(gateway, MAX_LABEL - 5)) }
}

/// A text of at most so many bytes for a name, with a digest of the whole.
fn shortened(text: &str, most: usize) -> String {
    /// Bytes of the digest.
    const DIGEST: usize = 5;
    let digest = names::hex(text.as_bytes(), DIGEST);
    let kept = text.get(..text.len().min(most - 2 * DIGEST - 1)).unwrap_or_default().replace('.', "-");
    format!("{}-{digest}", kept.trim_end_matches('-'))
}

/// The addresses of a Gateway, and why it has none yet.
pub(super) fn addresses(cx: &Cx<'_>, gate: &Gate<'_>) -> (Vec<String>, Option<Problem>) {
    let name = service_of(gate);
    let missing = |message: String| Some(Problem::new("AddressNotAssigned", message));
    match (own_service(cx, gate), cx.lookups.all().services.contains_key(&name)) {
        (None, true) => (Vec::new(), missing(format!("Service {name} belongs to somebody else"))),
        (None, false) => (Vec::new(), missing(format!("Service {name} has yet to be created"))),
        (Some(service), _) => match addresses_of(service) {
            none if none.is_empty() => (none, missing(format!("Service {name} has no address yet"))),
            found => (found, None),
        },
    }
}

/// The addresses of a Service for clients: those of its load balancer, or else its own.
pub(crate) fn addresses_of(service: &Object<Service>) -> Vec<String> {
    let ingress = service.status.pointer("/loadBalancer/ingress").and_then(Value::as_array);
    let entry = |entry: &Value| {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text("ip").or_else(|| text("hostname")).map(str::to_owned)
    };
    let outside: Vec<String> = ingress.into_iter().flatten().filter_map(entry).collect();
    if service.spec.kind.as_deref() == Some("LoadBalancer") || !outside.is_empty() {
        return outside;
    }
    service.spec.cluster_ips.iter().filter(|ip| *ip != "None").cloned().collect()
}

/// Reads how a Gateway's Service is to be.
///
/// # Errors
/// Why `infrastructure.parametersRef` cannot be followed.
pub(super) fn wish(cx: &Cx<'_>, namespace: &str, written: Option<&ParametersRef>) -> Result<Wish, Problem> {
    let Some(reference) = written else { return Ok(Wish::default()) };
    let invalid = |message: String| Problem::new("InvalidParameters", message);
    let is_map = reference.group.is_empty() && reference.kind == "ConfigMap";
    if !is_map || cx.options.front == Front::Pods {
        let kind = shown(&reference.kind);
        let hint = if is_map { ", because Gateways have no Service here" } else { "; a ConfigMap is" };
        return Err(invalid(format!(
            "infrastructure.parametersRef of the kind {kind} is not supported{hint}"
        )));
    }
    let name = Name::new(namespace, &reference.name);
    let Some(map) = cx.lookups.all().config_maps.get(&name) else {
        return Err(invalid(format!("there is no ConfigMap {}", shown(&name.to_string()))));
    };
    let read = |key: &str, words: &[&str]| match map.spec.data.get(key).map(|text| text.trim()) {
        Some(word) if !words.is_empty() && !words.contains(&word) => Err(invalid(format!(
            "{key} in ConfigMap {name} is `{}`, not one of {}",
            shown(word),
            words.join(", ")
        ))),
        word => Ok(word.filter(|word| !word.is_empty()).map(str::to_owned)),
    };
    Ok(Wish {
        kind: read("service.type", TYPES)?,
        traffic: read("service.externalTrafficPolicy", &["Cluster", "Local"])?,
        class: read("service.loadBalancerClass", &[])?,
    })
}

/// The objects that a Gateway is to have: its Service, and an EndpointSlice for each family of addresses. None if the
/// Gateway has no port: what is there stays as it is.
pub(super) fn objects(cx: &Cx<'_>, gate: &Gate<'_>) -> Vec<(Kind, Name, Value)> {
    let Front::Services { pods, kind } = &cx.options.front else { return Vec::new() };
    let name = service_of(gate);
    let is_foreign = cx.lookups.all().services.contains_key(&name) && own_service(cx, gate).is_none();
    if gate.wrong.is_some() || gate.ports.is_empty() || is_foreign {
        return Vec::new();
    }
    let port_name = |port: &u16| format!("tcp-{port}");
    let ports: Vec<Value> = gate
        .ports
        .iter()
        .map(|(port, pod)| json!({ "name": port_name(port), "protocol": "TCP", "port": port, "targetPort": pod }))
        .collect();
    let kind = gate.wish.kind.as_ref().unwrap_or(kind);
    let mut spec =
        json!({ "type": kind, "ports": ports, "externalTrafficPolicy": null, "loadBalancerIP": null });
    if kind != "ClusterIP" {
        spec["externalTrafficPolicy"] = json!(gate.wish.traffic.as_deref().unwrap_or("Local"));
    }
    if kind == "LoadBalancer" {
        let asked = gate.object.spec.addresses.iter().find_map(|address| address.value.as_ref());
        spec["loadBalancerIP"] = json!(asked);
        if let Some(class) = &gate.wish.class {
            spec["loadBalancerClass"] = json!(class);
        }
    }
    let labels = json!({});
    let mut all = vec![(
        Kind::Service,
        name.clone(),
        json!({
            "apiVersion": "v1", "kind": "Service", "spec": spec,
            "metadata": metadata(cx, gate, &name, labels),
        }),
    )];
    let ports: Vec<Value> = gate
        .ports
        .iter()
        .map(|(port, pod)| json!({ "name": port_name(port), "protocol": "TCP", "port": pod }))
        .collect();
    for (family, suffix) in [("IPv4", "4"), ("IPv6", "6")] {
        let endpoints = pods_of(cx, pods, family);
        let slice = Name::new(&name.namespace, &format!("{}-{suffix}", name.name));
        // Without pods the copy of before must be emptied, but none has to be made.
        if endpoints.is_empty() && !cx.lookups.all().endpoint_slices.contains_key(&slice) {
            continue;
        }
        let labels = json!({
            SERVICE_LABEL: name.name,
            "endpointslice.kubernetes.io/managed-by": "gateway.weir.dev",
        });
        let metadata = metadata(cx, gate, &slice, labels);
        let value = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": family, "ports": ports, "endpoints": endpoints,
        });
        all.push((Kind::EndpointSlice, slice, value));
    }
    all
}

fn metadata(cx: &Cx<'_>, gate: &Gate<'_>, name: &Name, labels: Value) -> Value {
    let meta = &gate.object.meta;
    let infrastructure = gate.object.spec.infrastructure.clone().unwrap_or_default();
    let mut copied: Vec<&String> =
        infrastructure.labels.keys().chain(infrastructure.annotations.keys()).collect();
    copied.sort();
    copied.dedup();
    let mut annotations: Map<String, Value> =
        infrastructure.annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    annotations.insert(COPIED_ANNOTATION.to_owned(), json!(json!(copied).to_string()));
    annotations.insert(CONTROLLER_ANNOTATION.to_owned(), json!(cx.options.controller));
    let mut all: Map<String, Value> =
        infrastructure.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let gateway =
        if meta.name.len() <= MAX_LABEL { meta.name.clone() } else { shortened(&meta.name, MAX_LABEL) };
    all.insert(GATEWAY_LABEL.to_owned(), json!(gateway));
    all.insert("app.kubernetes.io/managed-by".to_owned(), json!("weir-kube"));
    // Ours last: nobody's labels lead the EndpointSlice to another Service.
    all.extend(labels.as_object().cloned().unwrap_or_default());
    json!({
        "namespace": name.namespace, "name": name.name, "labels": all, "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": format!("{GATEWAY_GROUP}/v1"), "kind": "Gateway", "name": meta.name, "uid": meta.uid,
            "controller": true,
        }],
    })
}

/// The pods behind a Service as endpoints of a family, sorted by address.
fn pods_of(cx: &Cx<'_>, service: &Name, family: &str) -> Vec<Value> {
    let slices = cx.lookups.all().slices_of(service).filter(|slice| slice.address_type == family);
    let mut pods: BTreeMap<IpAddr, Value> = BTreeMap::new();
    for endpoint in slices.flat_map(|slice| &slice.endpoints) {
        let address = endpoint.addresses.first().and_then(|address| address.parse::<IpAddr>().ok());
        if let Some(address) = address {
            pods.insert(address, pod(address, endpoint));
        }
    }
    pods.into_values().take(MAX_PODS).collect()
}

fn pod(address: IpAddr, endpoint: &Endpoint) -> Value {
    let state = &endpoint.conditions;
    let ready = state.ready.unwrap_or(true);
    let mut value = json!({
        "addresses": [address],
        "conditions": {
            "ready": ready,
            "serving": state.serving.unwrap_or(ready),
            "terminating": state.terminating.unwrap_or_default(),
        },
    });
    for (key, text) in [("nodeName", &endpoint.node_name), ("zone", &endpoint.zone)] {
        if let Some(text) = text {
            value[key] = json!(text);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services_are_labels() {
        for gateway in ["web", "a.b", &"g".repeat(58), &"g".repeat(59), &"g.".repeat(126), "a-."] {
            let name = service_name(gateway);
            assert!(is_label(&name, MAX_LABEL), "{gateway}: {name}");
        }
        assert_ne!(service_name("a.b"), service_name("a-b"), "two Gateways never share one");
        let long = |end: char| service_name(&format!("{}{end}", "g".repeat(200)));
        assert_ne!(long('a'), long('b'));
    }

    #[test]
    fn clients_see_the_addresses_of_the_load_balancer() {
        let ingress =
            json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }, { "hostname": "a.example" }] } });
        for (spec, status, expected) in [
            (json!({ "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"] }), json!({}), vec![]),
            (json!({ "type": "LoadBalancer" }), ingress, vec!["192.0.2.1", "a.example"]),
            (json!({ "clusterIPs": ["10.0.0.1", "fd00::1"] }), json!({}), vec!["10.0.0.1", "fd00::1"]),
            (json!({ "clusterIPs": ["None"] }), json!({}), vec![]),
        ] {
            let spec = serde_json::from_value(spec).unwrap();
            let service = Object { meta: Meta::default(), spec, status };
            assert_eq!(addresses_of(&service), expected, "{service:?}");
        }
    }

    fn gateway(name: &str, uid: &str, port: u16, is_accepted: bool) -> Value {
        let parameters = json!({ "parametersRef": { "group": "", "kind": "ConfigMap", "name": "gone" } });
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": { "namespace": "infra", "name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": {
                "gatewayClassName": "weir", "infrastructure": if is_accepted { json!({}) } else { parameters },
                "listeners": [ { "name": "http", "port": port, "protocol": "HTTP" } ],
            },
        })
    }

    fn service(gateway: &str, uid: &str, port: u16, target: u16) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "namespace": "infra", "name": service_name(gateway),
                "annotations": { CONTROLLER_ANNOTATION: "weir.dev/gateway" },
                "ownerReferences": [ { "apiVersion": "v1", "kind": "Gateway", "name": gateway, "uid": uid } ],
            },
            "spec": { "ports": [ { "port": port, "targetPort": target } ] },
        })
    }

    /// The ports of the pods that are listened on, by Gateway.
    fn listened(objects: &[Value]) -> BTreeMap<String, u16> {
        translated(objects).0
    }

    /// The ports of the pods that are listened on, by Gateway, and the record of ports as it is to be.
    fn translated(objects: &[Value]) -> (BTreeMap<String, u16>, Value) {
        let translated = translation(objects);
        let port = |value: &Value| value["address"].as_str()?.rsplit(':').next()?.parse::<u16>().ok();
        let listeners = translated.config.listeners.iter();
        let all =
            listeners.filter_map(|(name, value)| Some((name.split('_').nth(2)?.to_owned(), port(value)?)));
        let record = translated.objects.iter().find(|(kind, ..)| *kind == Kind::ConfigMap);
        (all.collect(), record.map(|(_, _, value)| value["data"].clone()).unwrap_or_default())
    }

    fn translation(objects: &[Value]) -> crate::Translation {
        let mut cluster = Cluster::default();
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": { "name": "weir" },
            "spec": { "controllerName": "weir.dev/gateway" },
        });
        for object in objects.iter().chain([&class]) {
            cluster.apply(object).unwrap();
        }
        let front = Front::Services { pods: Name::new("weir", "weir"), kind: "ClusterIP".to_owned() };
        let controller = "weir.dev/gateway".to_owned();
        let options = Options { controller, front, ..Default::default() };
        super::super::translate(&cluster, &options)
    }

    fn recorded(data: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "weir", "name": "weir-ports" },
            "data": data,
        })
    }

    /// A Gateway whose first candidate is this port of the pods.
    fn rival(target: u16, is_accepted: bool) -> (Value, String, u16) {
        let first = |uid: &str, port: u16| {
            let (uid, namespace) = (uid.to_owned(), "infra".to_owned());
            let meta = Meta { uid, namespace, name: "attacker".to_owned(), ..Meta::default() };
            candidates(&meta, port).next()
        };
        let mut choices = (0..100).flat_map(|at| (1..=u16::MAX).map(move |port| (format!("u-{at}"), port)));
        let (uid, port) = choices.find(|(uid, port)| first(uid, *port) == Some(target)).unwrap();
        (gateway("attacker", &uid, port, is_accepted), uid, port)
    }

    #[test]
    fn a_recorded_port_stays_whatever_services_say() {
        let victim = || gateway("victim", "u-victim", 80, true);
        let (first, record) = translated(&[victim()]);
        let target = first["victim"];
        assert_eq!(record, json!({ "u-victim": format!("80={target}") }));
        for is_accepted in [true, false] {
            let (attacker, uid, port) = rival(target, is_accepted);
            let edited = service("attacker", &uid, port, target);
            let all = [attacker, victim(), service("victim", "u-victim", 80, target), edited];
            // Without a record nobody knows whose the port is.
            assert_ne!(listened(&all).get("victim"), Some(&target), "{is_accepted}");
            let all = [&all[..], &[recorded(&record)]].concat();
            let (found, next) = translated(&all);
            assert_eq!(found["victim"], target, "{is_accepted}");
            assert_ne!(found.get("attacker"), Some(&target));
            assert_eq!(next["u-victim"], record["u-victim"]);
            // Nor if the victim's own Service was edited or is gone.
            let all = [rival(target, is_accepted).0, victim(), recorded(&record)];
            assert_eq!(listened(&all)["victim"], target);
        }
    }

    #[test]
    fn a_record_lasts_as_long_as_the_gateway_asks_for_its_port() {
        let (first, record) = translated(&[gateway("victim", "u-victim", 80, true)]);
        let target = first["victim"];
        let attacker = || rival(target, true).0;
        let other = &rival(target, true).1;
        let known = recorded(&record);
        // One that is not accepted keeps it.
        let (found, next) =
            translated(&[attacker(), gateway("victim", "u-victim", 80, false), known.clone()]);
        assert_ne!(found["attacker"], target);
        assert_eq!(next["u-victim"], record["u-victim"]);
        // So does one whose class is missing.
        let mut waits = gateway("victim", "u-victim", 80, true);
        waits["spec"]["gatewayClassName"] = json!("missing");
        let (found, next) = translated(&[attacker(), waits, known.clone()]);
        assert_ne!(found["attacker"], target);
        assert_eq!(next["u-victim"], record["u-victim"]);
        // So does one whose class is given parameters, which nobody follows.
        let with_parameters = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": { "name": "tuned" },
            "spec": { "controllerName": "weir.dev/gateway", "parametersRef": { "group": "", "kind": "x", "name": "x" } },
        });
        let mut waits = gateway("victim", "u-victim", 80, true);
        waits["spec"]["gatewayClassName"] = json!("tuned");
        let (found, next) = translated(&[attacker(), waits, with_parameters, known.clone()]);
        assert_ne!(found["attacker"], target);
        assert_eq!(next["u-victim"], record["u-victim"]);
        // One that asks for another port, or is gone, does not.
        let (found, next) = translated(&[attacker(), gateway("victim", "u-victim", 81, true), known.clone()]);
        assert_eq!(found["attacker"], target);
        assert_eq!(next["u-victim"], json!(format!("81={}", found["victim"])));
        let (found, next) = translated(&[attacker(), known]);
        assert_eq!((found["attacker"], &next["u-victim"]), (target, &Value::Null));
        assert!(next.get(other).is_some_and(Value::is_string), "{next}");
    }

    /// The API server takes no EndpointSlice with more ports.
    #[test]
    fn recorded_ports_count_towards_the_most() {
        let with = |ports: &[u16]| {
            let mut gateway = gateway("web", "u-web", 1, true);
            let listener =
                |port: &u16| json!({ "name": format!("l{port}"), "port": port, "protocol": "HTTP" });
            gateway["spec"]["listeners"] = ports.iter().map(listener).collect();
            gateway
        };
        let high: Vec<u16> = (2001..).take(MAX_PORTS).collect();
        let record = translated(&[with(&high)]).1;
        assert_eq!(record["u-web"].as_str().unwrap().split(' ').count(), MAX_PORTS);
        let all: Vec<u16> = (1001..1061).chain(high).collect();
        assert_eq!(translated(&[with(&all), recorded(&record)]).1, record);
        // Nor does a record bring more.
        let pairs: Vec<String> =
            all.iter().zip(15_001..).map(|(port, target)| format!("{port}={target}")).collect();
        let more = recorded(&json!({ "u-web": pairs.join(" ") }));
        assert_eq!(translation(&[with(&all), more]).config.listeners.len(), MAX_PORTS);
    }

    #[test]
    fn a_record_that_cannot_be_read_counts_as_none() {
        let plain = listened(&[gateway("web", "u-web", 80, true)]);
        let first = plain["web"];
        for text in ["", "80", "80=x", "80=9180", "80=80", "x=15001", "80=15001=2"] {
            let found = listened(&[gateway("web", "u-web", 80, true), recorded(&json!({ "u-web": text }))]);
            assert_eq!(found["web"], first, "{text}");
        }
        let found = listened(&[gateway("web", "u-web", 80, true), recorded(&json!({ "u-web": "80=15001" }))]);
        assert_eq!(found["web"], 15_001);
        // Of two that are recorded for one port of the pods, one has it.
        let twice = recorded(&json!({ "u-a": "80=15001", "u-b": "80=15001" }));
        let found = listened(&[gateway("a", "u-a", 80, true), gateway("b", "u-b", 80, true), twice]);
        assert_ne!(found["a"], found["b"]);
    }

    #[test]
    fn nobody_listens_where_the_service_of_another_gateway_leads() {
        let victims = listened(&[gateway("victim", "u-victim", 80, true)]);
        let target = *victims.get("victim").unwrap();
        let (attacker, uid, port) = rival(target, true);
        assert_eq!(listened(std::slice::from_ref(&attacker)).get("attacker"), Some(&target), "it is free");

        let led = service("victim", "u-victim", 80, target);
        for is_accepted in [true, false] {
            let victim = gateway("victim", "u-victim", 80, is_accepted);
            let found = listened(&[attacker.clone(), victim, led.clone()]);
            assert_eq!(found.get("victim").copied(), is_accepted.then_some(target));
            assert!(found.get("attacker").is_some_and(|port| *port != target), "{found:?}");
        }
        // It has edited its own Service.
        let edited = service("attacker", &uid, port, target);
        let found = listened(&[attacker, gateway("victim", "u-victim", 80, true), led, edited]);
        assert_eq!(found.len(), 2);
        assert!(found.values().all(|port| *port != target), "{found:?}");
    }

    #[test]
    fn candidates_stay_in_their_range_and_differ() {
        let meta = Meta { uid: "u1".to_owned(), ..Meta::default() };
        let first: Vec<u16> = candidates(&meta, 80).collect();
        assert!(first.iter().all(|port| POD_PORTS.contains(port)));
        assert_eq!(first, candidates(&meta, 80).collect::<Vec<_>>(), "every replica finds the same");
        assert_ne!(first, candidates(&meta, 443).collect::<Vec<_>>());
    }
}
