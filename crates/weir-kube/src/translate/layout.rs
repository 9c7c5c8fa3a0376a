//! Which listeners of Weir serve those of the Gateways, and what keeps the latter apart.
//!
//! All HTTP listeners of a port are one listener of Weir; their hosts tell them apart ([`is_of_other`]). Several TLS
//! listeners of a port are listeners of their own behind one that reads the name in the ClientHello, so that each has
//! its certificates and its routes, and nothing of another's.

use super::listeners::{Gate, Listener, Protocol};
use super::{Cx, Rank, answer};
use crate::names;
use crate::objects::{Kind, Name};
use crate::text;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Says which listener of Weir serves each.
pub(super) fn lay_out(gate: &mut Gate<'_>) {
    if gate.wrong.is_some() || gate.is_unbound {
        return;
    }
    let mut tls: BTreeMap<u16, usize> = BTreeMap::new();
    let mut passes: BTreeMap<u16, bool> = BTreeMap::new();
    // Those that cannot be served count too: if a Secret turns invalid, the connections of its neighbours stay open.
    for listener in &gate.listeners {
        if listener.protocol.family() == Protocol::Https.family() {
            *tls.entry(listener.spec.port).or_default() += 1;
            *passes.entry(listener.spec.port).or_default() |= listener.protocol != Protocol::Https;
        }
    }
    let name = gate.name;
    for listener in gate.listeners.iter_mut().filter(|listener| listener.is_good()) {
        let port = listener.spec.port;
        let is_inner = tls.get(&port).is_some_and(|count| *count > 1) || passes.get(&port) == Some(&true);
        listener.weir = Some(match is_inner && listener.protocol.family() == Protocol::Https.family() {
            true => {
                let (kind, of) = listener.set.map_or(("gw", name), |set| ("set", set));
                names::join(&[
                    "tls",
                    &name.namespace,
                    &name.name,
                    kind,
                    &of.namespace,
                    &of.name,
                    &listener.spec.name,
                ])
            }
            false => outer(name, port),
        });
    }
}

fn outer(gateway: &Name, port: u16) -> String {
    names::join(&["gw", &gateway.namespace, &gateway.name, &port.to_string()])
}

/// Whether a host that a route has at one listener belongs to a more specific one of the same port. Over TLS, too: a
/// client may ask for the host of another listener over a connection that it has.
pub(super) fn is_of_other(gate: &Gate<'_>, listener: &Listener<'_>, host: &str) -> bool {
    let is_beside = |other: &Listener<'_>| other.weir.is_some() && other.spec.port == listener.spec.port;
    is_of_narrower(gate, listener, host, is_beside)
}

/// The same for connections: the name in TLS leads to the most specific listener of the port.
pub(super) fn is_of_other_name(gate: &Gate<'_>, listener: &Listener<'_>, name: &str) -> bool {
    let is_beside = |other: &Listener<'_>| other.takes_routes() && other.spec.port == listener.spec.port;
    is_of_narrower(gate, listener, name, is_beside)
}

fn is_of_narrower(
    gate: &Gate<'_>,
    listener: &Listener<'_>,
    host: &str,
    is_beside: impl Fn(&Listener<'_>) -> bool,
) -> bool {
    gate.listeners.iter().any(|other| {
        let (Some(theirs), true) = (&other.host, is_beside(other)) else { return false };
        let narrower = match &listener.host {
            Some(own) => own != theirs && text::covers(own, theirs),
            None => true,
        };
        narrower && (theirs == host || (!host.is_empty() && text::covers(theirs, host)))
    })
}

/// Writes the listeners of Weir, and what keeps those that share one apart.
pub(super) fn emit(cx: &mut Cx<'_>, gates: &[Gate<'_>]) {
    for gate in gates {
        let mut ports: BTreeMap<u16, Vec<&Listener<'_>>> = BTreeMap::new();
        for listener in gate.listeners.iter().filter(|listener| listener.weir.is_some()) {
            ports.entry(listener.spec.port).or_default().push(listener);
        }
        for (port, all) in ports {
            let address = SocketAddr::new(gate.bind, gate.pod_port(port)).to_string();
            emit_port(cx, gate, port, &address, &all);
        }
    }
}

fn emit_port(cx: &mut Cx<'_>, gate: &Gate<'_>, port: u16, address: &str, all: &[&Listener<'_>]) {
    let outer = outer(gate.name, port);
    let Some(first) = all.first() else { return };
    let inner = all.iter().any(|listener| listener.weir.as_ref() != Some(&outer));
    if !inner {
        let value = match first.protocol {
            Protocol::Http => Some(json!({ "address": address, "protocols": ["http1", "h2"] })),
            Protocol::Tcp => first
                .bytes
                .get("")
                .map(|upstream| json!({ "address": address, "tcp": { "upstream": upstream } })),
            _ => Some(json!({ "address": address, "tls": tls(first) })),
        };
        // Nobody listens for a Gateway whose bytes have nowhere to go.
        let Some(value) = value else { return };
        let (kind, owner) = owner(gate, first);
        cx.own(&outer, kind, owner);
        cx.config.listeners.insert(outer, value);
        keep_hosts_apart(cx, gate, all);
        return;
    }
    let mut sni = serde_json::Map::new();
    let mut otherwise = None;
    for listener in all {
        let Some(weir) = &listener.weir else { continue };
        let mut to = Vec::new();
        let host = listener.host.clone().unwrap_or_default();
        match listener.protocol {
            Protocol::TlsPassthrough => {
                to.extend(
                    listener
                        .bytes
                        .iter()
                        .map(|(host, upstream)| (host.clone(), json!({ "upstream": upstream }))),
                );
            }
            Protocol::TlsTerminate => {
                for (host, upstream) in &listener.bytes {
                    let digest = names::hex(host.as_bytes(), 6);
                    let name = names::join(&[weir, if host.is_empty() { "any" } else { &digest }]);
                    let (kind, owner) = owner(gate, listener);
                    cx.own(&name, kind, owner);
                    let value = json!({ "tls": tls(listener), "tcp": { "upstream": upstream } });
                    cx.config.listeners.insert(name.clone(), value);
                    to.push((host.clone(), json!({ "listener": name })));
                }
            }
            _ => {
                let (kind, owner) = owner(gate, listener);
                cx.own(weir, kind, owner);
                cx.config.listeners.insert(weir.clone(), json!({ "tls": tls(listener) }));
                to.push((host, json!({ "listener": weir })));
            }
        }
        for (host, destination) in to {
            match host.is_empty() {
                true => otherwise = Some(destination),
                false => drop(sni.insert(host, destination)),
            }
        }
    }
    keep_connections_apart(cx, gate, &outer, all);
    if sni.is_empty()
        && let Some(otherwise) = &otherwise
    {
        // The names of listeners that cannot be served lead here anyway. Named, they keep this listener as it is.
        let is_beside = |other: &&Listener<'_>| {
            other.spec.port == port
                && other.weir.is_none()
                && other.protocol.family() == Protocol::Https.family()
        };
        let hosts = gate.listeners.iter().filter(is_beside).filter_map(|other| other.host.clone());
        sni.extend(hosts.map(|host| (host, otherwise.clone())));
    }
    if sni.is_empty() {
        // One listener for any name needs none that reads names.
        let Some(otherwise) = otherwise else { return };
        if let Some(inner) = otherwise.get("listener").and_then(Value::as_str) {
            if let Some(inner) = cx.config.listeners.get_mut(inner) {
                inner["address"] = json!(address);
            }
            return;
        }
        let (kind, owner) = owner(gate, first);
        cx.own(&outer, kind, owner);
        cx.config.listeners.insert(outer, json!({ "address": address, "tcp": otherwise }));
        return;
    }
    let mut value = json!({ "address": address, "sni": sni });
    if let Some(otherwise) = otherwise {
        value["otherwise"] = otherwise;
    }
    let (kind, owner) = owner(gate, first);
    cx.own(&outer, kind, owner);
    cx.config.listeners.insert(outer, value);
}

/// Who asked for a listener: a ListenerSet must not cost the Gateway, which others share, its service.
fn owner<'c>(gate: &Gate<'c>, listener: &Listener<'c>) -> (Kind, &'c Name) {
    listener.set.map_or((Kind::Gateway, gate.name), |set| (Kind::ListenerSet, set))
}

fn tls(listener: &Listener<'_>) -> Value {
    let pairs = listener.certificates.iter().map(|(cert, key)| json!({ "cert": cert, "key": key }));
    let mut value = json!({ "certificates": pairs.collect::<Vec<_>>() });
    if let Some(clients) = &listener.clients {
        value["client_auth"] = clients.clone();
    }
    value
}

/// Answers requests for the hosts of listeners that no route of theirs takes, so that no other listener's routes get
/// them.
fn keep_hosts_apart(cx: &mut Cx<'_>, gate: &Gate<'_>, all: &[&Listener<'_>]) {
    let Some(port) = all.first().map(|listener| listener.spec.port) else { return };
    if gate.listeners.iter().filter(|listener| listener.spec.port == port).count() == 1 {
        return; // there is no other
    }
    for listener in all {
        // Without a host and a route it is 404 anyway.
        let (Some(weir), Some(host)) = (&listener.weir, &listener.host) else { continue };
        let name = names::join(&["host", &names::hex(host.as_bytes(), 6), "404", weir]);
        push_answer(
            cx,
            (name, Rank::last()),
            (&[weir.as_str()], &[host.as_str()]),
            404,
            owner(gate, listener),
        );
    }
}

/// Keeps the HTTPS listeners of a port apart. A client may send a request for the host of one of them over a connection
/// to another: 421 lets it connect anew.
///
/// Two routes say so for all these listeners. One for each pair of them would make a config too long that has a hundred.
fn keep_connections_apart(cx: &mut Cx<'_>, gate: &Gate<'_>, outer: &str, all: &[&Listener<'_>]) {
    let https: Vec<&Listener<'_>> =
        all.iter().filter(|listener| listener.protocol == Protocol::Https).copied().collect();
    if https.len() < 2 {
        return;
    }
    let names_of = |is: fn(&Listener<'_>) -> bool| -> Vec<&str> {
        https.iter().filter(|listener| is(listener)).filter_map(|listener| listener.weir.as_deref()).collect()
    };
    keep_hosts_apart(cx, gate, &https);
    let hosts: BTreeSet<&str> = https.iter().filter_map(|listener| listener.host.as_deref()).collect();
    let hosts: Vec<&str> = hosts.into_iter().collect();
    // A listener answers 404 for its own host before.
    let rank = Rank { matched: 1, ..Rank::last() };
    let whole = (Kind::Gateway, gate.name);
    let name = |of: &str| names::join(&[of, "421", outer]);
    push_answer(cx, (name("hosts"), rank.clone()), (&names_of(|_| true), &hosts), 421, whole);
    if https.iter().any(|listener| listener.host.is_none()) {
        let narrower = names_of(|listener| listener.host.is_some());
        push_answer(cx, (name("any"), rank), (&narrower, &[]), 421, whole);
    }
}

/// Answers all requests for these hosts, or for any if there are none, at listeners of Weir.
fn push_answer(
    cx: &mut Cx<'_>,
    (name, rank): (String, Rank),
    (listeners, hosts): (&[&str], &[&str]),
    status: u16,
    owner: (Kind, &Name),
) {
    let mut value = json!({ "match": { "listeners": listeners }, "respond": answer(status) });
    if !hosts.is_empty() {
        value["match"]["hosts"] = json!(hosts);
    }
    cx.push(rank, name, value, owner);
}
