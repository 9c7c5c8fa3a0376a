//! Ingresses: routes of HTTP by the older API, on ports 80 and 443 of all addresses.
//!
//! Paths follow the API's rules: the longest wins, and an exact one comes before a prefix. An `ImplementationSpecific`
//! path is a prefix by whole segments. Annotations of other controllers are not read here; `weir import ingress-nginx`
//! translates those of ingress-nginx.

use super::backends::{Backend, Manner, port_of, upstream};
use super::listeners::{Gate, certificate};
use super::{Cx, MAX_MATCHES, Rank, answer};
use crate::objects::{
    CertificateRef, DEFAULT_CLASS, Ingress, IngressBackend, Kind, Meta, Name, OLD_CLASS, Object, shown,
};
use crate::status::{Problem, Status};
use crate::{names, text};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The names of the listeners.
const PLAIN: &str = "ingress-80";
const SECURE: &str = "ingress-443";

/// Translates the Ingresses of our classes. They do not get a port that a Gateway has.
pub(super) fn routes(cx: &mut Cx<'_>, gates: &[Gate<'_>], statuses: &mut Vec<Status>) {
    let cluster = cx.cluster;
    let classes =
        || cluster.ingress_classes.iter().filter(|(_, class)| class.spec.controller == cx.options.controller);
    let is_default =
        classes().any(|(_, class)| class.meta.annotations.get(DEFAULT_CLASS).is_some_and(|v| v == "true"));
    let ours: BTreeSet<&str> = classes().map(|(name, _)| name.name.as_str()).collect();
    // The older annotation names another controller's class just as well.
    let is_ours = |object: &Object<Ingress>| {
        let class = object.spec.ingress_class_name.as_ref().or(object.meta.annotations.get(OLD_CLASS));
        class.map_or(is_default, |class| ours.contains(class.as_str()))
    };
    let mut all: Vec<_> = cluster.ingresses.values().filter(|object| is_ours(object)).collect();
    all.sort_by(|a, b| a.meta.age().cmp(&b.meta.age()));
    if all.is_empty() {
        return;
    }
    // Ingresses are served at all addresses, so whichever address a Gateway has, its port is taken.
    let taken = |port: u16| {
        let has = |gate: &Gate<'_>| {
            let mut served = gate.listeners.iter().filter(|listener| listener.weir.is_some());
            served.any(|listener| gate.pod_port(listener.spec.port) == port)
        };
        gates.iter().any(has)
    };
    let (plain, secure) = (!taken(80), !taken(443));
    // The oldest first, because the first is the default.
    let mut certificates: Vec<(String, String)> = Vec::new();
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    for object in &all {
        if cx.refused(Kind::Ingress, &object.meta.key()).is_some() {
            continue;
        }
        for tls in &object.spec.tls {
            let Some(secret) = &tls.secret_name else { continue };
            let reference = CertificateRef { name: secret.clone(), ..CertificateRef::default() };
            // A certificate that is missing is the status quo of an Ingress that cert-manager has yet to serve.
            if let Ok(pair) = certificate(cx, Kind::Ingress, &object.meta.namespace, &reference) {
                // All namespaces share one listener: the older Ingress has the names of its certificates.
                let namespace = object.meta.namespace.as_str();
                let covered = names_of(cx, &pair);
                if covered.iter().all(|name| known.get(name).is_none_or(|owner| *owner == namespace)) {
                    known.extend(covered.into_iter().map(|name| (name, namespace)));
                    if !certificates.contains(&pair) {
                        certificates.push(pair);
                    }
                }
            }
        }
        rules(cx, object);
        let entry = |address: &String| match address.parse::<IpAddr>() {
            Ok(_) => json!({ "ip": address }),
            Err(_) => json!({ "hostname": address }),
        };
        let entries: Vec<Value> = cx.options.published.iter().map(entry).collect();
        let balancer = if entries.is_empty() { json!({}) } else { json!({ "ingress": entries }) };
        let wanted = json!({ "loadBalancer": balancer });
        statuses.push(Status { kind: Kind::Ingress, name: object.meta.key(), wanted });
    }
    if plain {
        let value = json!({ "address": "0.0.0.0:80", "protocols": ["http1", "h2"] });
        cx.config.listeners.insert(PLAIN.to_owned(), value);
    }
    if secure && !certificates.is_empty() {
        let pairs: Vec<Value> =
            certificates.into_iter().map(|(cert, key)| json!({ "cert": cert, "key": key })).collect();
        let value = json!({ "address": "0.0.0.0:443", "tls": { "certificates": pairs } });
        cx.config.listeners.insert(SECURE.to_owned(), value);
    }
    // Routes name the listeners that there are; without one there is none.
    let there: Vec<String> = [PLAIN, SECURE]
        .into_iter()
        .filter(|name| cx.config.listeners.contains_key(*name))
        .map(str::to_owned)
        .collect();
    cx.routes.retain_mut(|route| {
        if !route.name.starts_with("ing_") {
            return true;
        }
        route.value["match"]["listeners"] = json!(there);
        !there.is_empty()
    });
}

/// The names that a certificate of the config is for.
fn names_of(cx: &Cx<'_>, (cert, key): &(String, String)) -> Vec<String> {
    let text = |path: &String| cx.config.files.get(path).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let read =
        text(cert).zip(text(key)).and_then(|(cert, key)| weir_wire::tls::Certificate::of_pem(cert, key).ok());
    read.map(|certificate| certificate.names().to_vec()).unwrap_or_default()
}

fn rules(cx: &mut Cx<'_>, object: &Object<Ingress>) {
    let meta = &object.meta;
    let mut count = 0;
    for (at, rule) in object.spec.rules.iter().enumerate() {
        let host = match rule.host.as_deref().filter(|host| !host.is_empty()) {
            None => None,
            Some(written) => match text::host(written) {
                Some(host) => Some(host),
                None => continue, // no request can have it
            },
        };
        // A host without paths gets the default backend.
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            if count >= MAX_MATCHES {
                return;
            }
            let value = path.path.as_deref().unwrap_or("/");
            let pattern = match path.path_type.as_str() {
                "Exact" => text::exact_path(value),
                _ => text::prefix_path(value),
            };
            let Some(pattern) = pattern else { continue }; // no request can have it
            let target = target(cx, meta, Some(&path.backend));
            push(cx, meta, (at, count), host.as_deref(), &pattern, target);
            count += 1;
        }
    }
    if let Some(backend) = &object.spec.default_backend {
        let target = target(cx, meta, Some(backend));
        push(cx, meta, (object.spec.rules.len(), count), None, "/*", target);
    }
}

fn push(
    cx: &mut Cx<'_>,
    meta: &Meta,
    (rule, matched): (usize, usize),
    host: Option<&str>,
    path: &str,
    target: (&'static str, Value),
) {
    let mut conditions = Map::new();
    if let Some(host) = host {
        conditions.insert("hosts".to_owned(), json!([host]));
        // A wildcard of an Ingress stands for one label.
        if let Some(suffix) = host.strip_prefix('*') {
            conditions
                .insert("not".to_owned(), json!({ "hosts": [format!("~.*\\..*{}", text::quoted(suffix))] }));
        }
    }
    conditions.insert("path".to_owned(), json!(path));
    let rank =
        Rank { created: meta.creation_timestamp.clone(), name: meta.key(), rule, matched, ..Rank::default() };
    let numbers = (rule.to_string(), matched.to_string());
    let name = names::join(&["ing", &meta.namespace, &meta.name, &numbers.0, &numbers.1]);
    let mut value = json!({ "match": conditions });
    value[target.0] = target.1;
    cx.push(rank, name, value, (Kind::Ingress, &meta.key()));
}

fn target(cx: &mut Cx<'_>, meta: &Meta, backend: Option<&IngressBackend>) -> (&'static str, Value) {
    let found = backend
        .and_then(|backend| backend.service.as_ref())
        .ok_or_else(|| Problem::new("BackendNotFound", "a backend that is no Service is not supported"));
    let made = found.and_then(|service| {
        let name = Name::new(&meta.namespace, &service.name);
        let is = |port: &crate::objects::ServicePort| match service.port.number {
            0 => port.name == service.port.name,
            number => port.port == number,
        };
        let port = port_of(cx.cluster, &name, is)
            .map_err(|problem| Problem { message: shown(&problem.message), ..problem })?;
        upstream(cx, &name, port, &Manner::default(), &BTreeSet::new())
    });
    match made {
        Ok(Backend::Upstream(name)) => ("upstream", json!(name)),
        Ok(Backend::Empty) | Err(_) => ("respond", answer(503)),
    }
}
