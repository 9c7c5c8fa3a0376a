//! Which listeners of Weir serve those of the Gateways, and what keeps the latter apart.
//!
//! All HTTP listeners of a port are one listener of Weir; their hosts tell them apart ([`is_of_other`]). Several TLS
//! listeners of a port are listeners of their own behind one that reads the name in the ClientHello, so that each has
//! its certificates and its routes, and nothing of another's.

use super::backends::nowhere;
use super::listeners::{Closed, Gate, Listener, Protocol};
use super::{Cx, MAX_LISTENERS, Rank, answer, unsupported};
use crate::names;
use crate::objects::{Kind, Name};
use crate::text;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What a closed host costs in bytes of config, beside its name, which stands there at most twice.
const CLOSED_HOST: usize = 256;

/// Says which listener of Weir serves each.
pub(super) fn lay_out(cx: &Cx<'_>, gate: &mut Gate<'_>) {
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
        let weir = match is_inner && listener.protocol.family() == Protocol::Https.family() {
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
        };
        match cx.refused_part(&weir).or_else(|| cx.refused_part(&outer(name, port))) {
            Some(refused) => listener.wrong = Some(refused),
            None => listener.weir = Some(weir),
        }
    }
    gate.closed = closed(gate);
}

/// The hosts of refused listeners that a wider listener of the port would otherwise get. Its routes are not meant for
/// these hosts, and may lack what guards them.
fn closed<'c>(gate: &Gate<'c>) -> Closed<'c> {
    let place = |listener: &Listener<'_>| (listener.spec.port, listener.protocol.family());
    let mut served: BTreeMap<(u16, u8), BTreeSet<Option<String>>> = BTreeMap::new();
    for listener in gate.listeners.iter().filter(|listener| listener.weir.is_some()) {
        served.entry(place(listener)).or_default().insert(listener.told_apart_by());
    }
    let mut closed = Closed::new();
    for listener in gate.listeners.iter().filter(|listener| listener.weir.is_none()) {
        let (Some(host), Some(beside)) = (listener.told_apart_by(), served.get(&place(listener))) else {
            continue;
        };
        let is_served = |host: String| beside.contains(&Some(host));
        // Whoever has the same host may be the older one.
        if !is_served(host.clone()) && (beside.contains(&None) || wildcards(&host).any(is_served)) {
            closed.entry(listener.spec.port).or_default().entry(host).or_insert(owner(gate, listener));
        }
    }
    closed
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
    let is_narrower = |theirs: &str| match &listener.host {
        Some(own) => own != theirs && text::covers(own, theirs),
        None => true,
    };
    let has = |other: &Listener<'_>| {
        let (Some(theirs), true) = (&other.host, is_beside(other)) else { return false };
        is_narrower(theirs) && (theirs == host || (!host.is_empty() && text::covers(theirs, host)))
    };
    gate.listeners.iter().any(has) || is_closed(gate, listener.spec.port, host, is_narrower)
}

/// Whether a closed host of the port that is narrower than the listener's covers this host. It costs one look for each
/// label, because tenants may have any number of refused listeners.
fn is_closed(gate: &Gate<'_>, port: u16, host: &str, is_narrower: impl Fn(&str) -> bool) -> bool {
    let Some(closed) = gate.closed.get(&port) else { return false };
    let mut all = std::iter::once(host.to_owned()).chain(wildcards(host));
    all.any(|one| closed.contains_key(&one) && is_narrower(&one))
}

/// The wildcards that cover a host. A host with a wildcard is among them.
fn wildcards(host: &str) -> impl Iterator<Item = String> {
    host.match_indices('.').map(|(at, _)| format!("*{}", host.get(at..).unwrap_or_default()))
}

/// Writes the listeners of Weir, and what keeps those that share one apart.
pub(super) fn emit(cx: &mut Cx<'_>, gates: &[Gate<'_>]) {
    for gate in gates {
        let mut ports: BTreeMap<u16, Vec<&Listener<'_>>> = BTreeMap::new();
        for listener in gate.listeners.iter().filter(|listener| listener.weir.is_some()) {
            ports.entry(listener.spec.port).or_default().push(listener);
        }
        // Closed hosts of TLS are a part of what is made of the Gateway, and its namespace pays for them.
        let mut free = MAX_LISTENERS;
        for (port, all) in ports {
            let address = SocketAddr::new(gate.bind, gate.pod_port(port)).to_string();
            emit_port(cx, gate, &address, &all, &mut free);
        }
    }
}

fn emit_port(cx: &mut Cx<'_>, gate: &Gate<'_>, address: &str, all: &[&Listener<'_>], free: &mut usize) {
    let Some(first) = all.first() else { return };
    let outer = outer(gate.name, first.spec.port);
    if all.iter().all(|listener| listener.weir.as_ref() == Some(&outer)) {
        return emit_shared(cx, gate, &outer, address, all);
    }
    let mut sni = serde_json::Map::new();
    let mut otherwise = None;
    for listener in all {
        for (host, destination) in destinations(cx, gate, listener) {
            match host.is_empty() {
                true => otherwise = Some(destination),
                false => drop(sni.insert(host, destination)),
            }
        }
    }
    if sni.is_empty() && otherwise.is_none() {
        return; // nobody listens for a Gateway whose bytes have nowhere to go
    }
    for host in unrouted(all, &sni, otherwise.is_some()) {
        sni.insert(host, json!({ "upstream": nowhere(cx) }));
    }
    let closed = closed_hosts(cx, gate, first.spec.port, free);
    let closed: Vec<&str> = closed.into_iter().map(|(host, _)| host).collect();
    for host in &closed {
        sni.insert((*host).to_owned(), json!({ "upstream": nowhere(cx) }));
    }
    keep_connections_apart(cx, gate, &outer, (all, &closed));
    let value = match otherwise {
        None => json!({ "address": address, "sni": sni }),
        // One listener for any name needs none that reads names.
        Some(otherwise) if sni.is_empty() => match otherwise.get("listener").and_then(Value::as_str) {
            Some(inner) => {
                if let Some(inner) = cx.config.listeners.get_mut(inner) {
                    inner["address"] = json!(address);
                }
                return;
            }
            None => json!({ "address": address, "tcp": otherwise }),
        },
        Some(otherwise) => json!({ "address": address, "sni": sni, "otherwise": otherwise }),
    };
    let (kind, owner) = owner(gate, first);
    cx.own(&outer, kind, owner);
    cx.config.listeners.insert(outer, value);
}

/// Writes the one listener of Weir that all listeners of a port share.
fn emit_shared(cx: &mut Cx<'_>, gate: &Gate<'_>, name: &str, address: &str, all: &[&Listener<'_>]) {
    let Some(first) = all.first() else { return };
    let value = match first.protocol {
        Protocol::Http => json!({ "address": address, "protocols": ["http1", "h2"] }),
        Protocol::Tcp => match first.bytes.get("") {
            Some(upstream) => json!({ "address": address, "tcp": { "upstream": upstream } }),
            None => return, // as above
        },
        _ => json!({ "address": address, "tls": tls(first) }),
    };
    let (kind, of) = owner(gate, first);
    cx.own(name, kind, of);
    cx.config.listeners.insert(name.to_owned(), value);
    keep_hosts_apart(cx, gate, all);
    for (host, owner) in closed_hosts(cx, gate, first.spec.port, &mut { usize::MAX }) {
        let route = names::join(&["host", &names::hex(host.as_bytes(), 6), "500", name]);
        push_answer(cx, (route, Rank::last()), (&[name], &[host]), 500, owner);
    }
}

/// The hosts of TLS listeners without a TLSRoute whose connections a wider listener would get.
fn unrouted(all: &[&Listener<'_>], sni: &serde_json::Map<String, Value>, has_otherwise: bool) -> Vec<String> {
    let bytes = all.iter().filter(|listener| listener.protocol != Protocol::Https);
    let hosts = bytes.filter_map(|listener| listener.host.as_ref()).filter(|host| !sni.contains_key(*host));
    let is_wider = |host: &String| has_otherwise || wildcards(host).any(|wider| sni.contains_key(&wider));
    hosts.filter(|host| is_wider(host)).cloned().collect()
}

/// Where connections for a listener go, by the name in their ClientHello; an empty one stands for any.
fn destinations(cx: &mut Cx<'_>, gate: &Gate<'_>, listener: &Listener<'_>) -> Vec<(String, Value)> {
    let Some(weir) = &listener.weir else { return Vec::new() };
    let (kind, owner) = owner(gate, listener);
    match listener.protocol {
        Protocol::TlsPassthrough => {
            let to = |(host, upstream): (&String, &String)| (host.clone(), json!({ "upstream": upstream }));
            listener.bytes.iter().map(to).collect()
        }
        Protocol::TlsTerminate => {
            let mut all = Vec::new();
            for (host, upstream) in &listener.bytes {
                let digest = names::hex(host.as_bytes(), 6);
                let name = names::join(&[weir, if host.is_empty() { "any" } else { &digest }]);
                if cx.refused_part(&name).is_some() {
                    all.push((host.clone(), json!({ "upstream": nowhere(cx) })));
                    continue;
                }
                cx.own(&name, kind, owner);
                let value = json!({ "tls": tls(listener), "tcp": { "upstream": upstream } });
                cx.config.listeners.insert(name.clone(), value);
                all.push((host.clone(), json!({ "listener": name })));
            }
            all
        }
        _ => {
            cx.own(weir, kind, owner);
            cx.config.listeners.insert(weir.clone(), json!({ "tls": tls(listener) }));
            vec![(listener.host.clone().unwrap_or_default(), json!({ "listener": weir }))]
        }
    }
}

/// The closed hosts of a port, each with its object. Those of an object that is left out have room of their own, and so
/// have all beyond those that are free.
fn closed_hosts<'g>(
    cx: &mut Cx<'_>,
    gate: &'g Gate<'_>,
    port: u16,
    free: &mut usize,
) -> Vec<(&'g str, (Kind, &'g Name))> {
    let (mut hosts, mut told) = (Vec::new(), BTreeSet::new());
    for (host, &(kind, name)) in gate.closed.get(&port).into_iter().flatten() {
        let is_free = *free > 0 && cx.refused(kind, name).is_none();
        if is_free || cx.room.take(&name.namespace, CLOSED_HOST + 2 * host.len()) {
            *free -= usize::from(is_free);
            hosts.push((host.as_str(), (kind, name)));
            continue;
        }
        if told.insert((kind, name)) {
            let message = "its namespace has more hosts of listeners that are not served than can answer with an \
                           error: wider listeners take some of their requests";
            cx.notices.push((kind, name.clone(), unsupported(message)));
        }
    }
    hosts
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

/// Keeps the HTTPS listeners of a port apart from each other and from its TLS listeners. A client may send a request
/// for the host of another listener over a connection to an HTTPS one: 421 lets it open a new connection.
///
/// Two routes do this for all these listeners. With one for each pair, a hundred listeners would make the config too
/// long.
fn keep_connections_apart(
    cx: &mut Cx<'_>,
    gate: &Gate<'_>,
    outer: &str,
    (all, closed): (&[&Listener<'_>], &[&str]),
) {
    let (https, bytes): (Vec<&Listener<'_>>, Vec<&Listener<'_>>) =
        all.iter().copied().partition(|listener| listener.protocol == Protocol::Https);
    if https.is_empty() || https.len() + bytes.len() + closed.len() < 2 {
        return;
    }
    let names_of = |is: fn(&Listener<'_>) -> bool| -> Vec<&str> {
        https.iter().filter(|listener| is(listener)).filter_map(|listener| listener.weir.as_deref()).collect()
    };
    keep_hosts_apart(cx, gate, &https);
    let own = https.iter().filter_map(|listener| listener.host.as_deref());
    let of_bytes = bytes.iter().filter_map(|listener| listener.host.as_deref());
    let hosts: BTreeSet<&str> = own.chain(of_bytes).chain(closed.iter().copied()).collect();
    let hosts: Vec<&str> = hosts.into_iter().collect();
    // A listener answers 404 for its own host before.
    let rank = Rank { matched: 1, ..Rank::last() };
    let whole = (Kind::Gateway, gate.name);
    let name = |of: &str| names::join(&[of, "421", outer]);
    push_answer(cx, (name("hosts"), rank.clone()), (&names_of(|_| true), &hosts), 421, whole);
    let narrower = names_of(|listener| listener.host.is_some());
    if all.iter().any(|listener| listener.host.is_none()) && !narrower.is_empty() {
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
