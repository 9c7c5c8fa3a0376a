//! The objects of a cluster as last seen: what a watcher fills and the translator reads.
//!
//! Keyed by kind, namespace and name. [`Cluster::apply`] says whether a change matters for the config, so a status that
//! somebody wrote, or a heartbeat in an annotation of a foreign controller, rebuilds nothing.

use crate::objects::{
    BackendTlsPolicy, BytesRoute, ConfigMap, EndpointSlice, Gateway, GatewayClass, GrpcRoute, HttpRoute,
    Ingress, IngressClass, Kind, ListenerSet, Meta, Name, Namespace, Object, ReferenceGrant, Refused,
    SERVICE_LABEL, Secret, Service, WeirFilters,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects of one kind.
pub type Store<S> = BTreeMap<Name, Object<S>>;

/// All objects that the translator reads.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // each is the store of this kind
pub struct Cluster {
    pub backend_tls_policies: Store<BackendTlsPolicy>,
    pub config_maps: Store<ConfigMap>,
    pub endpoint_slices: Store<EndpointSlice>,
    pub gateway_classes: Store<GatewayClass>,
    pub gateways: Store<Gateway>,
    pub grpc_routes: Store<GrpcRoute>,
    pub http_routes: Store<HttpRoute>,
    pub ingress_classes: Store<IngressClass>,
    pub ingresses: Store<Ingress>,
    pub listener_sets: Store<ListenerSet>,
    pub namespaces: Store<Namespace>,
    pub reference_grants: Store<ReferenceGrant>,
    pub secrets: Store<Secret>,
    pub services: Store<Service>,
    pub tcp_routes: Store<BytesRoute>,
    pub tls_routes: Store<BytesRoute>,
    pub weir_filters: Store<WeirFilters>,
    /// What the Secrets hold, judged when they were read.
    pub certificates: BTreeMap<Name, Certified>,
    /// The names of EndpointSlices by their Service.
    slices: BTreeMap<Name, BTreeSet<Name>>,
}

/// The certificate and the key in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certified {
    /// Both as last seen together and valid. A Secret that turns invalid keeps them, so that it costs nobody the
    /// service that was there before.
    pub good: Option<Good>,
    /// What is wrong with the Secret now.
    pub wrong: Option<String>,
}

/// A certificate that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Good {
    /// The certificate, in PEM.
    pub cert: Arc<str>,
    /// The key, in PEM.
    pub key: Arc<str>,
    /// The DNS names of the certificate.
    pub names: Arc<[String]>,
}

impl Certified {
    /// Judges a Secret that takes the place of this one.
    fn update(&mut self, secret: &Secret) {
        let part = |key: &str| {
            let text = secret.data.get(key).ok_or_else(|| format!("it has no {key}"))?;
            let bytes = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            bytes.ok_or_else(|| format!("{key} is no text"))
        };
        let read = part("tls.crt").and_then(|cert| Ok((cert, part("tls.key")?)));
        // As the engine will read it: a Secret that does not work must not keep the others' config from running.
        let checked = read.and_then(|(cert, key)| match weir_wire::tls::Certificate::of_pem(&cert, &key) {
            Ok(read) => Ok(Good { cert: cert.into(), key: key.into(), names: read.names().into() }),
            Err(why) => Err(weir_wire::Chain(&why).to_string()),
        });
        match checked {
            Ok(good) => *self = Self { good: Some(good), wrong: None },
            Err(why) => self.wrong = Some(why),
        }
    }
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The config or a status may differ now: translate again.
    Config,
    /// Nothing that is read has changed, or the kind is none that is read.
    Nothing,
    /// Only the status: compare it with the wanted one, without translating.
    Status,
}

/// Does the same with the store of any kind, borrowed as `[&]` or `[&mut]`.
macro_rules! with_store {
    ($cluster:expr, [$($as:tt)+], $kind:expr, $store:ident => $body:expr) => {
        match $kind {
            Kind::BackendTlsPolicy => {
                let $store = $($as)+ $cluster.backend_tls_policies;
                $body
            }
            Kind::ConfigMap => {
                let $store = $($as)+ $cluster.config_maps;
                $body
            }
            Kind::EndpointSlice => {
                let $store = $($as)+ $cluster.endpoint_slices;
                $body
            }
            Kind::Gateway => {
                let $store = $($as)+ $cluster.gateways;
                $body
            }
            Kind::GatewayClass => {
                let $store = $($as)+ $cluster.gateway_classes;
                $body
            }
            Kind::GrpcRoute => {
                let $store = $($as)+ $cluster.grpc_routes;
                $body
            }
            Kind::HttpRoute => {
                let $store = $($as)+ $cluster.http_routes;
                $body
            }
            Kind::Ingress => {
                let $store = $($as)+ $cluster.ingresses;
                $body
            }
            Kind::IngressClass => {
                let $store = $($as)+ $cluster.ingress_classes;
                $body
            }
            Kind::ListenerSet => {
                let $store = $($as)+ $cluster.listener_sets;
                $body
            }
            Kind::Namespace => {
                let $store = $($as)+ $cluster.namespaces;
                $body
            }
            Kind::ReferenceGrant => {
                let $store = $($as)+ $cluster.reference_grants;
                $body
            }
            Kind::Secret => {
                let $store = $($as)+ $cluster.secrets;
                $body
            }
            Kind::Service => {
                let $store = $($as)+ $cluster.services;
                $body
            }
            Kind::TcpRoute => {
                let $store = $($as)+ $cluster.tcp_routes;
                $body
            }
            Kind::TlsRoute => {
                let $store = $($as)+ $cluster.tls_routes;
                $body
            }
            Kind::WeirFilters => {
                let $store = $($as)+ $cluster.weir_filters;
                $body
            }
        }
    };
}

impl Cluster {
    /// Puts an object in place of what was there.
    ///
    /// # Errors
    /// If it is none that the API server would have accepted. What was there stays.
    pub fn apply(&mut self, object: &Value) -> Result<Change, Refused> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let Some(kind) = Kind::of(text("apiVersion"), text("kind")) else { return Ok(Change::Nothing) };
        let meta = Meta::read(kind, object)?;
        let name = meta.key();
        let before = self.service_of(kind, &name);
        let change = with_store!(self, [&mut], kind, store => put(store, kind, meta, object))?;
        self.index(&name, before, self.service_of(kind, &name));
        if kind == Kind::Secret
            && change == Change::Config
            && let Some(secret) = self.secrets.get(&name)
        {
            self.certificates.entry(name).or_default().update(&secret.spec);
        }
        Ok(change)
    }

    /// Removes an object.
    pub fn delete(&mut self, kind: Kind, name: &Name) -> Change {
        self.index(name, self.service_of(kind, name), None);
        let existed = with_store!(self, [&mut], kind, store => store.remove(name).is_some());
        if kind == Kind::Secret {
            self.certificates.remove(name);
        }
        if existed { Change::Config } else { Change::Nothing }
    }

    /// The certificates that are still served although their Secrets are no longer valid, as the Secrets were.
    pub(crate) fn last_good(&self) -> impl Iterator<Item = Value> {
        let stale = self.certificates.iter().filter(|(_, certified)| certified.wrong.is_some());
        stale.filter_map(|(name, certified)| {
            let (good, uid) = (certified.good.as_ref()?, &self.secrets.get(name)?.meta.uid);
            // What the API server knows as this version is gone.
            let metadata = json!({
                "namespace": name.namespace, "name": name.name, "uid": uid, "resourceVersion": "0",
            });
            let data =
                json!({ "tls.crt": STANDARD.encode(&*good.cert), "tls.key": STANDARD.encode(&*good.key) });
            Some(json!({ "metadata": metadata, "data": data }))
        })
    }

    /// The EndpointSlices of a Service.
    pub fn slices_of(&self, service: &Name) -> impl Iterator<Item = &EndpointSlice> {
        let names = self.slices.get(service).into_iter().flatten();
        names.filter_map(|name| self.endpoint_slices.get(name)).map(|slice| &slice.spec)
    }

    /// The Service of an EndpointSlice as last seen; `None` for every other object.
    #[must_use]
    pub fn service_of(&self, kind: Kind, name: &Name) -> Option<Name> {
        let slice = self.endpoint_slices.get(name).filter(|_| kind == Kind::EndpointSlice)?;
        Some(Name::new(&name.namespace, slice.meta.labels.get(SERVICE_LABEL)?))
    }

    fn index(&mut self, slice: &Name, before: Option<Name>, now: Option<Name>) {
        if before == now {
            return;
        }
        if let Some(before) = before
            && let Some(names) = self.slices.get_mut(&before)
        {
            names.remove(slice);
            if names.is_empty() {
                self.slices.remove(&before);
            }
        }
        if let Some(now) = now {
            self.slices.entry(now).or_default().insert(slice.clone());
        }
    }

    /// When an object was created; empty if it is not there.
    #[must_use]
    pub fn created(&self, kind: Kind, name: &Name) -> &str {
        let meta = with_store!(self, [&], kind, store => store.get(name).map(|object| &object.meta));
        meta.map_or("", |meta| &meta.creation_timestamp)
    }

    /// The status of an object as last seen; `None` if there is no such object.
    #[must_use]
    pub fn status(&self, kind: Kind, name: &Name) -> Option<&Value> {
        match kind {
            Kind::BackendTlsPolicy => Some(&self.backend_tls_policies.get(name)?.status),
            Kind::Gateway => Some(&self.gateways.get(name)?.status),
            Kind::GatewayClass => Some(&self.gateway_classes.get(name)?.status),
            Kind::GrpcRoute => Some(&self.grpc_routes.get(name)?.status),
            Kind::HttpRoute => Some(&self.http_routes.get(name)?.status),
            Kind::Ingress => Some(&self.ingresses.get(name)?.status),
            Kind::ListenerSet => Some(&self.listener_sets.get(name)?.status),
            Kind::TcpRoute => Some(&self.tcp_routes.get(name)?.status),
            Kind::TlsRoute => Some(&self.tls_routes.get(name)?.status),
            _ => None,
        }
    }
}

fn put<S: DeserializeOwned + PartialEq>(
    store: &mut Store<S>,
    kind: Kind,
    meta: Meta,
    object: &Value,
) -> Result<Change, Refused> {
    let name = meta.key();
    // What has no spec has its fields at the top.
    let spec = match kind {
        Kind::ConfigMap | Kind::EndpointSlice | Kind::Namespace | Kind::Secret => Some(object),
        _ => object.get("spec"),
    };
    let mut spec = spec.cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    if kind != Kind::WeirFilters {
        drop_nulls(&mut spec);
    }
    let refuse = |why: String| Refused { object: format!("{} {name}", kind.as_str()), why };
    let spec: S = serde_json::from_value(spec).map_err(|e| refuse(e.to_string()))?;
    let new = Object { meta, spec, status: object.get("status").cloned().unwrap_or_default() };
    let change = match store.get(&name) {
        Some(old) if old.meta != new.meta || old.spec != new.spec => Change::Config,
        Some(old) if old.status != new.status => Change::Status,
        Some(_) => Change::Nothing,
        None => Change::Config,
    };
    store.insert(name, new);
    Ok(change)
}

/// Go writes an empty list as `null`, such as `endpoints` of a Service without pods: it counts as absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(drop_nulls),
        Value::Object(all) => {
            all.retain(|_, value| !value.is_null());
            all.values_mut().for_each(drop_nulls);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::OLD_CLASS;

    #[test]
    fn a_service_without_pods_has_no_endpoints() {
        let slice = |endpoints: Value, ports: Value| {
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": { "namespace": "shop", "name": "cart-x" }, "endpoints": endpoints, "ports": ports,
            })
        };
        let mut cluster = Cluster::default();
        let full = slice(json!([{ "addresses": ["10.0.0.1"] }]), json!([{ "port": 80 }]));
        assert_eq!(cluster.apply(&full), Ok(Change::Config));
        assert_eq!(cluster.apply(&slice(Value::Null, Value::Null)), Ok(Change::Config));
        assert!(cluster.endpoint_slices.values().all(|slice| slice.spec.endpoints.is_empty()));
    }

    fn route(path: &str, status: Value) -> Value {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "namespace": "shop", "name": "r", "resourceVersion": status.to_string() },
            "spec": { "rules": [ { "matches": [ { "path": { "value": path } } ], "unknown": 1 } ] },
            "status": status,
        })
    }

    #[test]
    fn a_status_is_no_change_of_the_config() {
        let mut cluster = Cluster::default();
        assert_eq!(cluster.apply(&route("/a", json!({}))), Ok(Change::Config));
        assert_eq!(cluster.apply(&route("/a", json!({}))), Ok(Change::Nothing));
        assert_eq!(cluster.apply(&route("/a", json!({ "parents": [] }))), Ok(Change::Status));
        assert_eq!(cluster.apply(&route("/b", json!({ "parents": [] }))), Ok(Change::Config));
        let name = Name::new("shop", "r");
        assert_eq!(cluster.status(Kind::HttpRoute, &name), Some(&json!({ "parents": [] })));
        assert_eq!(cluster.delete(Kind::HttpRoute, &name), Change::Config);
        assert_eq!(cluster.delete(Kind::HttpRoute, &name), Change::Nothing);
    }

    #[test]
    fn labels_and_annotations_that_nobody_reads_are_no_change() {
        let object = |kind: &str, version: &str, label: (&str, &str), annotation: (&str, &str)| {
            json!({
                "apiVersion": version, "kind": kind, "addressType": "IPv4",
                "metadata": {
                    "namespace": "shop", "name": "x", "labels": { label.0: label.1 },
                    "annotations": { annotation.0: annotation.1 },
                },
            })
        };
        let (none, trigger) = (("a", "b"), "endpoints.kubernetes.io/last-change-trigger-time");
        for (kind, version, label, annotation, expected) in [
            ("EndpointSlice", "discovery.k8s.io/v1", none, (trigger, "t2"), Change::Nothing),
            ("EndpointSlice", "discovery.k8s.io/v1", (SERVICE_LABEL, "y"), none, Change::Config),
            ("HTTPRoute", "gateway.networking.k8s.io/v1", ("team", "b"), ("note", "2"), Change::Nothing),
            ("Gateway", "gateway.networking.k8s.io/v1", ("team", "b"), ("note", "2"), Change::Nothing),
            ("Service", "v1", ("team", "b"), ("note", "2"), Change::Nothing),
            ("Namespace", "v1", ("team", "b"), none, Change::Config),
            ("Namespace", "v1", none, ("note", "2"), Change::Nothing),
            ("Ingress", "networking.k8s.io/v1", none, (OLD_CLASS, "weir"), Change::Config),
        ] {
            let mut cluster = Cluster::default();
            cluster.apply(&object(kind, version, none, none)).unwrap();
            let changed = cluster.apply(&object(kind, version, label, annotation)).unwrap();
            assert_eq!(changed, expected, "{kind} {label:?} {annotation:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let mut cluster = Cluster::default();
        cluster.apply(&route("/a", json!({}))).unwrap();
        let mut bad = route("/a", json!({}));
        bad["spec"]["rules"] = json!("all of them");
        assert!(cluster.apply(&bad).unwrap_err().object.contains("HTTPRoute shop/r"));
        assert_eq!(cluster.http_routes.len(), 1);
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "../x" } });
        assert_eq!(cluster.apply(&pod), Ok(Change::Nothing));
    }
}
