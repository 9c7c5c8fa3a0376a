//! TLSRoutes and TCPRoutes: connections that are passed on to an upstream.

use super::attach::{Findings, attach, count, report, tell_of_gateways};
use super::backends::{Backend, Manner, identity_part, nowhere, resolve, service_of, tls_of};
use super::layout::is_of_other_name;
use super::listeners::{Gate, Protocol};
use super::{Cx, Identity, MAX_ENDPOINTS, is_kind, unsupported};
use crate::names;
use crate::objects::{BackendRef, BytesRoute, Kind, Name, Object};
use crate::status::{Problem, Status};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_config::Supply;
use weir_config::schema::EndpointAddress;

/// What a host costs whose connections are closed, in bytes of config, beside its name.
const CLOSED_HOST: usize = 64;

/// The largest weight of an endpoint.
const MAX_WEIGHT: u64 = 65_535;

/// Translates all routes of bytes. Of several for one host of a listener, the oldest gets its connections.
pub(super) fn routes<'c>(cx: &mut Cx<'c>, gates: &mut [Gate<'c>], statuses: &mut Vec<Status>) {
    let cluster = cx.lookups.all();
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
    tell_of_gateways(cx, (kind, &object.meta), &attached);
    let mut findings = Findings { unusable: attached.wrong.clone(), ..Findings::default() };
    let is_left_out = cx.refused(kind, &object.meta.key()).is_some();
    let gateways: BTreeSet<Name> = attached.parents.iter().map(|parent| parent.gateway.clone()).collect();
    if !gateways.is_empty() {
        let backends = match &object.spec.rules[..] {
            _ if findings.unusable.is_some() => &[][..],
            [only] => &only.backend_refs[..],
            _ => {
                findings.unusable = Some(unsupported("a route of connections has one rule"));
                &[]
            }
        };
        let mut pools: BTreeMap<(bool, Option<Identity>), Option<String>> = BTreeMap::new();
        if attached.listeners.is_empty() {
            // References are judged also where no listener serves the route.
            let manner = Manner { is_bytes: true, ..Manner::default() };
            pool(cx, (kind, object), (backends, &manner), &gateways, &mut findings);
        }
        for (gate, at, hosts) in &attached.listeners {
            let Some(gate) = gates.get_mut(*gate) else { continue };
            let protocol = gate.listeners.get(*at).map(|listener| listener.protocol);
            let is_passthrough = protocol == Some(Protocol::TlsPassthrough);
            let identity = cx.identities.get(gate.name).filter(|_| !is_passthrough).cloned();
            let upstream = pools.entry((is_passthrough, identity.clone())).or_insert_with(|| {
                let manner = Manner { is_bytes: true, is_passthrough, identity, ..Manner::default() };
                pool(cx, (kind, object), (backends, &manner), &gateways, &mut findings)
            });
            let is_theirs =
                |host: &String| gate.listeners.get(*at).is_some_and(|own| is_of_other_name(gate, own, host));
            let hosts: Vec<&String> = hosts.iter().filter(|host| !is_theirs(host)).collect();
            let Some(listener) = gate.listeners.get_mut(*at) else { continue };
            // A route that is not accepted keeps its hosts, because the route of a wider host is not meant for them.
            let upstream = upstream.as_ref().filter(|_| findings.unusable.is_none());
            for host in hosts {
                if listener.bytes.contains_key(host)
                    || is_left_out && !cx.room.take(&object.meta.namespace, CLOSED_HOST + host.len())
                {
                    continue;
                }
                let to = upstream.cloned().unwrap_or_else(|| nowhere(cx));
                listener.bytes.insert(host.clone(), to);
            }
        }
    }
    if findings.unusable.is_none() {
        count(gates, kind, &attached.listeners);
    }
    report(cx, (kind, &object.meta), &attached, &findings, statuses);
}

/// One upstream of all endpoints, each with its part of the weight of its Service.
///
/// The share of a backend that leads nowhere goes to the others, because a connection cannot answer 500. If no backend
/// is left, connections are closed.
fn pool(
    cx: &mut Cx<'_>,
    (kind, object): (Kind, &Object<BytesRoute>),
    (backends, manner): (&[BackendRef], &Manner),
    gateways: &BTreeSet<Name>,
    findings: &mut Findings,
) -> Option<String> {
    let meta = &object.meta;
    let mut found: Vec<(u64, Name, Arc<Supply>)> = Vec::new();
    let mut policies: Vec<Option<Value>> = Vec::new();
    for backend in backends {
        let is_service =
            is_kind(backend.group.as_deref(), backend.kind.as_deref(), Kind::Service, Kind::Service);
        let service = match is_service {
            true => service_of(cx, (kind, meta), backend),
            false => Err(Problem::new("InvalidKind", "a backend that is no Service is not supported")),
        };
        let secured = service.and_then(|(name, port)| {
            let tls = match manner.is_passthrough {
                true => None,
                false => tls_of(cx, &name, port, manner, gateways)?,
            };
            Ok((name, port, tls))
        });
        let (name, port, tls) = match secured {
            Ok(secured) => secured,
            Err(problem) => {
                findings.unresolved(problem);
                continue;
            }
        };
        let weight = u64::from(backend.weight.unwrap_or(1));
        let supply = cx.pods(&name, port);
        if weight > 0 && !supply.endpoints.is_empty() {
            found.push((weight, name, supply));
            policies.push(tls);
        }
    }
    if found.is_empty() {
        return None;
    }
    // The usual route has one Service, whose upstream others may share.
    if let ([only], [_]) = (backends, &found[..]) {
        return match resolve(cx, (kind, meta), only, manner, gateways) {
            Ok(Backend::Upstream(name)) => Some(name),
            Ok(Backend::Empty) => None,
            Err(problem) => {
                findings.unresolved(problem);
                None
            }
        };
    }
    let tls = policies.first()?.clone();
    if policies.iter().any(|other| *other != tls) {
        let message = "Services of one route of connections need the same BackendTLSPolicy";
        findings.unusable.get_or_insert_with(|| unsupported(message));
        return None;
    }
    let each = |(weight, _, supply): &(u64, Name, Arc<Supply>)| {
        weight * MAX_ENDPOINTS as u64 / supply.endpoints.len() as u64
    };
    let most = found.iter().map(each).max()?.max(1);
    let mut weights: BTreeMap<String, (u64, Option<String>)> = BTreeMap::new();
    for one in &found {
        let share = (each(one) * MAX_WEIGHT / most).max(1);
        let (_, service, supply) = one;
        cx.pods.read_whole(service); // its share depends on how many there are
        for endpoint in &supply.endpoints {
            let EndpointAddress::Tcp(address) = &endpoint.address else { continue };
            let entry = weights.entry(address.to_string()).or_insert_with(|| (0, endpoint.zone.clone()));
            entry.0 = (entry.0 + share).min(MAX_WEIGHT);
        }
    }
    let endpoints: Vec<Value> = weights
        .into_iter()
        .map(|(address, (weight, zone))| match zone {
            None => json!({ "address": address, "weight": weight }),
            Some(zone) => json!({ "address": address, "weight": weight, "zone": zone }),
        })
        .collect();
    let short = if kind == Kind::TlsRoute { "tls" } else { "tcp" };
    let identity = manner.identity.as_ref().map(identity_part);
    let mut parts = vec!["route", short, &meta.namespace, &meta.name];
    let mut value = json!({ "endpoints": endpoints, "balancer": "random" });
    if let Some(tls) = tls {
        value["tls"] = tls;
        parts.push("secure");
        parts.extend(identity.as_deref());
    }
    let name = names::join(&parts);
    cx.own(&name, kind, &meta.key());
    cx.config.upstreams.insert(name.as_str().into(), value.into());
    Some(name)
}
