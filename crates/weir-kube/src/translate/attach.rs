//! Which routes attach to which listeners, and what a route's status says of each parent.

use super::layout::is_of_other;
use super::listeners::{Gate, Listener, allows};
use super::{Cx, MAX_HOSTS, is_kind, unsupported};
use crate::objects::{From, GATEWAY_GROUP, Kind, Meta, Name, ParentRef, shown};
use crate::status::{Condition, Problem, Status, conditions};
use crate::text;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A route at a listener of Weir.
pub(super) struct Place {
    /// The listener of Weir.
    pub(super) weir: String,
    /// The scheme and the port that clients see.
    pub(super) scheme: &'static str,
    pub(super) port: u16,
    /// Its hosts there; an empty one stands for any.
    pub(super) hosts: BTreeSet<String>,
    /// The Gateway.
    pub(super) gateway: Name,
}

/// A route with all its parents that are ours.
pub(super) struct Attached<'c> {
    pub(super) parents: Vec<Parent<'c>>,
    /// Why no parent accepts it. Its places are those that it would have, where its matches answer with an error.
    pub(super) wrong: Option<Problem>,
    /// By listener of Weir.
    pub(super) places: BTreeMap<String, Place>,
    /// The listeners that it attached to, or would attach to: Gateway, listener, hosts.
    pub(super) listeners: Vec<(usize, usize, Vec<String>)>,
    /// What it asked about routes of the other kind.
    pub(super) asked: Vec<Asked>,
}

/// Whether hosts at a listener were taken by routes of the other kind.
#[derive(Debug)]
pub(super) struct Asked {
    /// The Gateway and the listener.
    at: (usize, usize),
    hosts: Vec<String>,
    were_taken: bool,
}

/// A parent of a route, and why the route is not accepted there.
pub(super) struct Parent<'c> {
    reference: &'c ParentRef,
    wrong: Option<Problem>,
    /// The Gateway that it belongs to.
    pub(super) gateway: Name,
}

/// What a status says of a route besides its attachment.
#[derive(Default)]
pub(super) struct Findings {
    /// Why no part of it can be used.
    pub(super) unusable: Option<Problem>,
    /// Why a part of it is left out.
    pub(super) partly: Option<Problem>,
    /// A reference that leads nowhere.
    pub(super) unresolved: Option<Problem>,
}

impl Asked {
    /// Whether the answer is the same now.
    pub(super) fn has_same_answer(&self, kind: Kind, gates: &[Gate<'_>]) -> bool {
        let (gate, listener) = self.at;
        let listener = gates.get(gate).and_then(|gate| gate.listeners.get(listener));
        listener.is_some_and(|own| own.claims.are_taken(kind, &self.hosts) == self.were_taken)
    }
}

impl Findings {
    pub(super) fn unresolved(&mut self, problem: Problem) {
        self.unresolved.get_or_insert(problem);
    }
}

/// Attaches a route to the listeners that it names and that let it. Of routes of HTTP and gRPC the older must come
/// first.
pub(super) fn attach<'c>(
    cx: &Cx<'c>,
    gates: &[Gate<'c>],
    kind: Kind,
    meta: &Meta,
    refs: &'c [ParentRef],
    hostnames: &[String],
) -> Attached<'c> {
    let mut attached = Attached {
        parents: Vec::new(),
        wrong: cx.refused(kind, &meta.key()),
        places: BTreeMap::new(),
        listeners: Vec::new(),
        asked: Vec::new(),
    };
    let hosts: Vec<Option<String>> = hostnames.iter().map(|host| text::host(host)).collect();
    if let Some(bad) = hosts.iter().position(Option::is_none) {
        let host = hostnames.get(bad).map(|host| shown(host)).unwrap_or_default();
        attached.wrong.get_or_insert_with(|| unsupported(format!("`{host}` is not a host name")));
    }
    if hosts.len() > MAX_HOSTS {
        attached.wrong = Some(unsupported(format!("it has more than {MAX_HOSTS} hostnames")));
    }
    let mut hosts: Vec<String> = hosts.into_iter().flatten().take(MAX_HOSTS).collect();
    // A route whose hosts are all wrong has none, not any.
    if hostnames.is_empty() {
        hosts.push(String::new());
    }
    let mut counted = BTreeSet::new();
    for reference in refs {
        let Some((gate_at, candidates)) = candidates(gates, meta, reference) else { continue };
        let Some(gate) = gates.get(gate_at) else { continue };
        let found = listeners(cx, (gate_at, gate), &candidates, (kind, meta), &hosts, &mut attached.asked);
        let gateway = gate.name.clone();
        let problem = match found {
            Ok(found) => {
                for (at, met) in found {
                    if counted.insert((gate_at, at)) {
                        place(&mut attached, gate, at, &met);
                        attached.listeners.push((gate_at, at, met));
                    }
                }
                None
            }
            Err(problem) => Some(problem),
        };
        let wrong = attached.wrong.clone().or(problem);
        attached.parents.push(Parent { reference, wrong, gateway });
    }
    attached
}

/// Adds a notice to a route for each of its Gateways that is left out. The status of the route says only that the
/// Gateway accepts it, and the owner of the route may not be able to read the Gateway's.
pub(super) fn tell_of_gateways(cx: &mut Cx<'_>, (kind, meta): (Kind, &Meta), attached: &Attached<'_>) {
    let gateways = attached.parents.iter().filter(|parent| parent.wrong.is_none());
    let gateways: BTreeSet<&Name> = gateways.map(|parent| &parent.gateway).collect();
    for gateway in gateways {
        if cx.refused(Kind::Gateway, gateway).is_some() {
            let message = format!("Gateway {gateway} is left out, so the route is not served there");
            cx.notices.push((kind, meta.key(), unsupported(message)));
        }
    }
}

/// Counts a route at the listeners that it attached to, and notes its hosts there. One that is not accepted counts
/// nowhere.
pub(super) fn count(gates: &mut [Gate<'_>], kind: Kind, listeners: &[(usize, usize, Vec<String>)]) {
    for (gate, at, hosts) in listeners {
        if let Some(listener) = gates.get_mut(*gate).and_then(|gate| gate.listeners.get_mut(*at)) {
            listener.attached += 1;
            listener.claims.take(kind, hosts);
        }
    }
}

/// The Gateway of ours that a reference names, and the listeners that it may mean.
fn candidates(gates: &[Gate<'_>], meta: &Meta, reference: &ParentRef) -> Option<(usize, Vec<usize>)> {
    let kind = |wanted| is_kind(reference.group.as_deref(), reference.kind.as_deref(), Kind::Gateway, wanted);
    let namespace = reference.namespace.as_ref().unwrap_or(&meta.namespace);
    let named = |name: &Name| name.namespace == *namespace && name.name == reference.name;
    let (gate, set) = if kind(Kind::Gateway) {
        (gates.iter().position(|gate| named(gate.name))?, None)
    } else if kind(Kind::ListenerSet) {
        let has = |gate: &Gate<'_>| gate.sets.iter().any(|set| named(set.name));
        (gates.iter().position(has)?, Some(Name::new(namespace, &reference.name)))
    } else {
        return None;
    };
    let fits = |listener: &Listener<'_>| {
        listener.set == set.as_ref()
            && reference.section_name.as_ref().is_none_or(|name| *name == listener.spec.name)
            && reference.port.is_none_or(|port| port == listener.spec.port)
    };
    let listeners = gates.get(gate)?.listeners.iter().enumerate();
    Some((gate, listeners.filter(|(_, listener)| fits(listener)).map(|(at, _)| at).collect()))
}

/// The listeners that a route attaches to, each with its hosts there; or why there is none.
fn listeners(
    cx: &Cx<'_>,
    (gate_at, gate): (usize, &Gate<'_>),
    candidates: &[usize],
    (kind, meta): (Kind, &Meta),
    hosts: &[String],
    asked: &mut Vec<Asked>,
) -> Result<Vec<(usize, Vec<String>)>, Problem> {
    if candidates.is_empty() {
        return Err(Problem::new("NoMatchingParent", "no listener has this sectionName and port"));
    }
    let mut found = Vec::new();
    let (mut is_accepted, mut is_allowed, mut is_taken) = (false, false, false);
    let of_gate = candidates.iter().filter_map(|at| Some((*at, gate.listeners.get(*at)?)));
    for (at, listener) in of_gate.filter(|(_, listener)| listener.takes_routes()) {
        is_accepted = true;
        let own = &listener.meta.namespace;
        if !listener.kinds.contains(&kind)
            || !allows(cx, listener.allowed(), From::Same, own, &meta.namespace)
        {
            continue;
        }
        is_allowed = true;
        let met = match kind {
            Kind::TcpRoute => vec![listener.told_apart_by().unwrap_or_default()],
            _ => hosts.iter().filter_map(|host| meets(listener, host)).collect(),
        };
        let were_taken = listener.claims.are_taken(kind, &met);
        asked.push(Asked { at: (gate_at, at), hosts: met.clone(), were_taken });
        if were_taken {
            is_taken = true;
        } else if !met.is_empty() {
            found.push((at, met));
        }
    }
    match (found.is_empty(), is_allowed) {
        (false, _) => Ok(found),
        (true, _) if is_taken => {
            let other = if kind == Kind::GrpcRoute { Kind::HttpRoute } else { Kind::GrpcRoute };
            let message = format!("an older {} has one of its hosts at the listener", other.as_str());
            Err(Problem::new("Conflicted", message))
        }
        (true, true) => {
            Err(Problem::new("NoMatchingListenerHostname", "no listener has a host in common with the route"))
        }
        (true, false) => {
            let message = match is_accepted {
                true => "no listener lets routes of this kind and namespace attach",
                // What is wrong may be none of the business of whoever wrote the route.
                false => "no listener that it names is accepted: the status of the listener says why",
            };
            Err(Problem::new("NotAllowedByListeners", message))
        }
    }
}

/// The host that a listener and a route have in common; an empty one is any.
fn meets(listener: &Listener<'_>, host: &str) -> Option<String> {
    match host {
        "" => Some(listener.host.clone().unwrap_or_default()),
        host => text::intersect(listener.host.as_deref(), host).ok(),
    }
}

fn place(attached: &mut Attached<'_>, gate: &Gate<'_>, at: usize, hosts: &[String]) {
    let Some(listener) = gate.listeners.get(at) else { return };
    let Some(weir) = &listener.weir else { return };
    let hosts = hosts.iter().filter(|host| !is_of_other(gate, listener, host)).cloned();
    let place = attached.places.entry(weir.clone()).or_insert_with(|| Place {
        weir: weir.clone(),
        scheme: listener.scheme(),
        port: listener.spec.port,
        hosts: BTreeSet::new(),
        gateway: gate.name.clone(),
    });
    place.hosts.extend(hosts);
}

/// Adds the status of a route. A route of others gets none, but an entry of ours that is left from earlier goes.
pub(super) fn report(
    cx: &Cx<'_>,
    (kind, meta): (Kind, &Meta),
    attached: &Attached<'_>,
    findings: &Findings,
    statuses: &mut Vec<Status>,
) {
    if !attached.parents.is_empty() || cx.has_entry(kind, &meta.key(), "parents") {
        statuses.push(status(cx, kind, meta, attached, findings));
    }
}

/// The status of a route.
pub(super) fn status(
    cx: &Cx<'_>,
    kind: Kind,
    meta: &Meta,
    attached: &Attached<'_>,
    findings: &Findings,
) -> Status {
    let parents: Vec<Value> = attached
        .parents
        .iter()
        .map(|parent| {
            let wrong = parent.wrong.as_ref().or(findings.unusable.as_ref());
            let mut all = vec![
                Condition::of("Accepted", "Accepted", wrong),
                Condition::of("ResolvedRefs", "ResolvedRefs", findings.unresolved.as_ref()),
            ];
            if let (None, Some(partly)) = (wrong, &findings.partly) {
                all.push(Condition { holds: true, ..Condition::unmet("PartiallyInvalid", partly) });
            }
            json!({
                "parentRef": reference(parent.reference),
                "controllerName": cx.options.controller,
                "conditions": conditions(&all, meta.generation),
            })
        })
        .collect();
    Status { kind, name: meta.key(), wanted: json!({ "parents": parents }).into() }
}

/// A reference as it was written.
fn reference(written: &ParentRef) -> Value {
    let mut out = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.to_owned(), value);
        }
    };
    set("group", written.group.as_ref().map(|v| json!(v)));
    set("kind", written.kind.as_ref().map(|v| json!(v)));
    set("namespace", written.namespace.as_ref().map(|v| json!(v)));
    set("name", Some(json!(written.name)));
    set("sectionName", written.section_name.as_ref().map(|v| json!(v)));
    set("port", written.port.map(|v| json!(v)));
    Value::Object(out)
}

/// The reference to a Gateway in the status of a policy.
pub(super) fn gateway_reference(name: &Name) -> Value {
    json!({ "group": GATEWAY_GROUP, "kind": "Gateway", "namespace": name.namespace, "name": name.name })
}
