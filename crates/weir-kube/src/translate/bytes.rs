//! TLSRoutes and TCPRoutes: connections that are passed on to an upstream.

use super::attach::{Findings, attach, count, report};
use super::backends::{Manner, endpoints, resolve, service_of};
use super::layout::is_of_other_name;
use super::listeners::Gate;
use super::{Cx, MAX_ENDPOINTS, is_kind, unsupported};
use crate::names;
use crate::objects::{BackendRef, BytesRoute, Kind, Name, Object};
use crate::status::{Problem, Status};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The largest weight of an endpoint.
const MAX_WEIGHT: u64 = 65_535;

/// Translates all routes of bytes. Of several for one host of a listener, the oldest gets its connections.
pub(super) fn routes<'c>(cx: &mut Cx<'c>, gates: &mut [Gate<'c>], statuses: &mut Vec<Status>) {
    let cluster = cx.cluster;
    let tls = cluster.tls_routes.values().map(|route| (Kind::TlsRoute, route));
    let mut all: Vec<_> =
        tls.chain(cluster.tcp_routes.values().map(|route| (Kind::TcpRoute, route))).collect();
    all.sort_by(|(_, a), (_, b)| a.meta.age().cmp(&b.meta.age()));
    for (kind, object) in all {
        route(cx, gates, kind, object, statuses);
    }
}

fn route<'c>(
    cx: &mut Cx<'c>,
    gates: &mut [Gate<'c>],
    kind: Kind,
    object: &'c Object<BytesRoute>,
    statuses: &mut Vec<Status>,
) {
    let attached = attach(cx, gates, kind, &object.meta, &object.spec.parent_refs, &object.spec.hostnames);
    let mut findings = Findings::default();
    let gateways: BTreeSet<Name> = attached.parents.iter().map(|parent| parent.gateway.clone()).collect();
    if !gateways.is_empty() {
        let backends = match &object.spec.rules[..] {
            [only] => &only.backend_refs[..],
            _ => {
                findings.unusable = Some(unsupported("a route of connections has one rule"));
                &[]
            }
        };
        let upstream = pool(cx, (kind, object), backends, &gateways, &mut findings);
        for (gate, at, hosts) in &attached.listeners {
            let Some(gate) = gates.get_mut(*gate) else { continue };
            let is_theirs =
                |host: &String| gate.listeners.get(*at).is_some_and(|own| is_of_other_name(gate, own, host));
            let hosts: Vec<&String> = hosts.iter().filter(|host| !is_theirs(host)).collect();
            let Some(listener) = gate.listeners.get_mut(*at) else { continue };
            for host in hosts {
                if let Some(upstream) = &upstream {
                    listener.bytes.entry(host.clone()).or_insert_with(|| upstream.clone());
                }
            }
        }
    }
    count(gates, &attached, &findings);
    report(cx, (kind, &object.meta), &attached, &findings, statuses);
}

/// One upstream of all endpoints, each with its part of the weight of its Service.
///
/// The share of a backend that leads nowhere goes to the others, because a connection cannot answer 500. If no backend
/// is left, connections are closed.
fn pool(
    cx: &mut Cx<'_>,
    (kind, object): (Kind, &Object<BytesRoute>),
    backends: &[BackendRef],
    gateways: &BTreeSet<Name>,
    findings: &mut Findings,
) -> Option<String> {
    let meta = &object.meta;
    let manner = Manner { is_bytes: true, ..Manner::default() };
    let mut found: Vec<(u64, Vec<Value>)> = Vec::new();
    for backend in backends {
        let is_service =
            is_kind(backend.group.as_deref(), backend.kind.as_deref(), Kind::Service, Kind::Service);
        let service = match is_service {
            true => service_of(cx, (kind, meta), backend),
            false => Err(Problem::new("InvalidKind", "a backend that is no Service is not supported")),
        };
        let (name, port) = match service {
            Ok(service) => service,
            Err(problem) => {
                findings.unresolved(problem);
                continue;
            }
        };
        let weight = u64::from(backend.weight.unwrap_or(1));
        let all = endpoints(cx, &name, port);
        if weight > 0 && !all.is_empty() {
            found.push((weight, all));
        }
    }
    if found.is_empty() {
        return None;
    }
    // The usual route has one Service, whose upstream others may share.
    if let ([only], [_]) = (backends, &found[..]) {
        return match resolve(cx, (kind, meta), only, &manner, gateways).ok()? {
            super::backends::Backend::Upstream(name) => Some(name),
            super::backends::Backend::Empty => None,
        };
    }
    let most =
        found.iter().map(|(weight, all)| weight * MAX_ENDPOINTS as u64 / all.len() as u64).max()?.max(1);
    let mut weights: BTreeMap<String, (u64, Value)> = BTreeMap::new();
    for (weight, all) in found {
        let each = weight * MAX_ENDPOINTS as u64 / all.len() as u64;
        let share = (each * MAX_WEIGHT / most).max(1);
        for endpoint in all {
            let address = endpoint
                .as_str()
                .or_else(|| endpoint.get("address")?.as_str())
                .unwrap_or_default()
                .to_owned();
            let zone = endpoint.get("zone").cloned().unwrap_or_default();
            let entry = weights.entry(address).or_insert((0, zone));
            entry.0 = (entry.0 + share).min(MAX_WEIGHT);
        }
    }
    let endpoints: Vec<Value> = weights
        .into_iter()
        .map(|(address, (weight, zone))| match zone {
            Value::Null => json!({ "address": address, "weight": weight }),
            zone => json!({ "address": address, "weight": weight, "zone": zone }),
        })
        .collect();
    let short = if kind == Kind::TlsRoute { "tls" } else { "tcp" };
    let name = names::join(&["route", short, &meta.namespace, &meta.name]);
    cx.own(&name, kind, &meta.key());
    cx.config.upstreams.insert(name.clone(), json!({ "endpoints": endpoints, "balancer": "random" }));
    Some(name)
}
