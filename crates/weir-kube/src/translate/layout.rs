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
use std::collections::BTreeMap;
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

/// Whether a host that a route has at one listener belongs to a more specific one of the same listener of Weir.
pub(super) fn is_of_other(gate: &Gate<'_>, listener: &Listener<'_>, host: &str) -> bool {
    is_of_narrower(gate, listener, host, |other| other.weir == listener.weir)
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
        apart(cx, gate, all, all, 404);
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
                let others: Vec<&Listener<'_>> = all
                    .iter()
                    .filter(|o| o.protocol == Protocol::Https && o.weir != listener.weir)
                    .copied()
                    .collect();
                apart(cx, gate, &[listener], &others, 421);
                if !others.is_empty() {
                    apart(cx, gate, &[listener], &[listener], 404);
                }
            }
        }
        for (host, destination) in to {
            match host.is_empty() {
                true => otherwise = Some(destination),
                false => drop(sni.insert(host, destination)),
            }
        }
    }
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

/// Answers requests for a listener's host that no route of its own takes, so that no other listener's routes get them.
fn apart(cx: &mut Cx<'_>, gate: &Gate<'_>, at: &[&Listener<'_>], of: &[&Listener<'_>], status: u16) {
    if at.len() == 1
        && status == 404
        && gate.listeners.iter().filter(|l| l.spec.port == at[0].spec.port).count() == 1
    {
        return; // there is no other
    }
    let Some(weir) = at.first().and_then(|listener| listener.weir.clone()) else { return };
    for listener in of {
        let host = listener.host.as_deref();
        if status == 404 && host.is_none() {
            continue; // without a route it is 404 anyway
        }
        let digest = names::hex(host.unwrap_or_default().as_bytes(), 6);
        let name = names::join(&["host", &digest, &status.to_string(), &weir]);
        let mut value = json!({ "match": { "listeners": [weir] }, "respond": answer(status) });
        if let Some(host) = host {
            value["match"]["hosts"] = json!([host]);
        }
        cx.push(Rank::last(), name, value, (Kind::Gateway, gate.name));
    }
}
