//! The Kubernetes objects that the translator reads, as plain serde types.
//!
//! They are lenient to unknown fields, because the API server has validated them against their schemas, and hold only
//! what is used. Everything in them is still untrusted: a tenant wrote it. [`Meta::read`] refuses names that Kubernetes
//! would refuse, because names of the config are generated from them.

mod core;
mod gateway;
mod route;

pub use self::core::{
    Address, ConfigMap, Endpoint, EndpointPort, EndpointSlice, Ingress, IngressBackend, IngressClass,
    IngressPath, IngressRule, IngressTls, Namespace, Secret, Service, ServicePort, WeirFilters,
};
pub use self::gateway::{
    AllowedListeners, AllowedRoutes, BackendTlsPolicy, CertificateRef, Expression, From, Frontend,
    FrontendPort, FrontendTls, FrontendValidation, Gateway, GatewayAddress, GatewayBackendTls, GatewayClass,
    GatewayTls, GrantFrom, GrantTo, Infrastructure, Listener, ListenerSet, ListenerTls, Namespaces,
    ParametersRef, ReferenceGrant, RouteKind, Selector, SubjectAltName, TargetRef, Validation,
};
pub use self::route::{
    BackendRef, BytesRoute, BytesRule, Cors, Filter, Fraction, GrpcMatch, GrpcMethod, GrpcRoute, GrpcRule,
    Header, HeaderModifier, HttpMatch, HttpRoute, HttpRule, Mirror, ParentRef, PathMatch, PathModifier,
    Redirect, Retry, Rewrite, Timeouts, ValueMatch,
};

pub use crate::api::CONTROLLER_ANNOTATION;
pub use crate::name::Name;

use crate::api::{Resource, Scope, WATCHED};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most bytes of a name, as in Kubernetes.
const MAX_NAME: usize = 253;
/// Most bytes of a namespace, as in Kubernetes.
const MAX_NAMESPACE: usize = 63;

/// A kind of object that the translator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // each is the kind of this name
pub enum Kind {
    BackendTlsPolicy,
    ConfigMap,
    EndpointSlice,
    Gateway,
    GatewayClass,
    GrpcRoute,
    HttpRoute,
    Ingress,
    IngressClass,
    ListenerSet,
    Namespace,
    ReferenceGrant,
    Secret,
    Service,
    TcpRoute,
    TlsRoute,
    WeirFilters,
}

/// The group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// The group of the CRD that holds filters of Weir.
pub const WEIR_GROUP: &str = "gateway.weir.dev";

/// The label of an EndpointSlice that names its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// The annotation that makes a class of Ingresses the default one.
pub const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// The annotation that names a class in Ingresses without `ingressClassName`.
pub const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// All kinds, in the order of [`WATCHED`].
const KINDS: [Kind; 17] = [
    Kind::BackendTlsPolicy,
    Kind::ConfigMap,
    Kind::EndpointSlice,
    Kind::Gateway,
    Kind::GatewayClass,
    Kind::GrpcRoute,
    Kind::HttpRoute,
    Kind::Ingress,
    Kind::IngressClass,
    Kind::ListenerSet,
    Kind::Namespace,
    Kind::ReferenceGrant,
    Kind::Secret,
    Kind::Service,
    Kind::TcpRoute,
    Kind::TlsRoute,
    Kind::WeirFilters,
];

/// What the translator reads of an object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The name.
    pub name: String,
    /// The namespace; empty if it has none.
    pub namespace: String,
    /// Differs between two objects that had one name at different times.
    pub uid: String,
    /// Counts changes of the spec.
    pub generation: i64,
    /// When it was made, in RFC 3339 and UTC, so that texts compare as times.
    pub creation_timestamp: String,
    /// Its labels, as far as [`Kind::reads_label`] wants them.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, as far as [`Kind::reads_annotation`] wants them.
    pub annotations: BTreeMap<String, String>,
    /// The objects that own it; deleted with the last of them.
    pub owner_references: Vec<OwnerReference>,
}

/// An object that owns another one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Its kind.
    pub kind: String,
    /// Its name, in the same namespace.
    pub name: String,
    /// Its `uid`.
    pub uid: String,
}

/// An object: what was asked for, and the status that somebody wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Object<S> {
    /// Its metadata.
    pub meta: Meta,
    /// What was asked for.
    pub spec: S,
    /// The status as last seen; `null` if there is none.
    pub status: Value,
}

/// Why an object was refused. The API server accepts no such object, so this is a mistake of a test or an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The object, as far as it is known.
    pub object: String,
    /// What is wrong.
    pub why: String,
}

// === impl Kind ===

impl Kind {
    /// The kind that an object says it has; `None` if the translator does not read it.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::named(kind).filter(|found| found.group() == group)
    }

    /// The kind of this name, whatever its group is.
    #[must_use]
    pub fn named(kind: &str) -> Option<Self> {
        let at = WATCHED.iter().position(|resource| resource.kind == kind)?;
        KINDS.get(at).copied()
    }

    /// As in `kind` of a manifest.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.resource().map_or("", |resource| resource.kind)
    }

    /// The group of its API; empty for the core.
    #[must_use]
    pub fn group(self) -> &'static str {
        self.resource().map_or("", |resource| resource.group)
    }

    /// Whether its objects have no namespace.
    #[must_use]
    pub fn is_global(self) -> bool {
        self.resource().is_some_and(|resource| resource.scope == Scope::Cluster)
    }

    /// Each kind is watched: a test compares the two lists.
    fn resource(self) -> Option<&'static Resource> {
        WATCHED.get(self as usize)
    }

    /// Whether the translation of its objects depends on a label.
    ///
    /// Other labels are dropped, so a change of them is none of the config.
    #[must_use]
    pub fn reads_label(self, name: &str) -> bool {
        match self {
            Self::EndpointSlice => name == SERVICE_LABEL,
            Self::Namespace => true, // selectors of Gateways name any
            _ => false,
        }
    }

    /// Whether the translation of its objects depends on an annotation. Controllers write theirs every few seconds, such
    /// as the endpoint controller the time of the last change: that must not cost a translation.
    #[must_use]
    pub fn reads_annotation(self, name: &str) -> bool {
        match self {
            Self::Ingress => name == OLD_CLASS || name.starts_with(weir_import::ingress_annotations::PREFIX),
            Self::IngressClass => name == DEFAULT_CLASS,
            Self::Service => name == CONTROLLER_ANNOTATION,
            _ => false,
        }
    }
}

// === impl Meta ===

impl Meta {
    /// Reads and checks the metadata of an object.
    ///
    /// # Errors
    /// If the name or the namespace is none that Kubernetes would accept.
    pub fn read(kind: Kind, object: &Value) -> Result<Self, Refused> {
        let refuse =
            |object: &str, why: String| Refused { object: format!("{} {object}", kind.as_str()), why };
        let meta = object.get("metadata").cloned().unwrap_or_default();
        let mut meta: Self = serde_json::from_value(meta).map_err(|e| refuse("?", e.to_string()))?;
        meta.labels.retain(|name, _| kind.reads_label(name));
        meta.annotations.retain(|name, _| kind.reads_annotation(name));
        if kind != Kind::Service {
            meta.owner_references.clear();
        }
        if kind.is_global() {
            meta.namespace.clear();
        } else if !is_label(&meta.namespace, MAX_NAMESPACE) {
            return Err(refuse(&meta.name, format!("`{}` is no namespace", shown(&meta.namespace))));
        }
        // Not those of Kubernetes' RBAC objects, which alone may have other characters.
        if meta.name.len() > MAX_NAME || !meta.name.split('.').all(|part| is_label(part, MAX_NAME)) {
            return Err(refuse(&shown(&meta.name), "the name is no DNS subdomain".to_owned()));
        }
        Ok(meta)
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> Name {
        Name::new(&self.namespace, &self.name)
    }

    /// Sorts older objects first, then by namespace and name, as the Gateway API asks.
    #[must_use]
    pub fn age(&self) -> (&str, &str, &str) {
        (&self.creation_timestamp, &self.namespace, &self.name)
    }
}

/// Whether a text is a DNS label (RFC 1123).
pub(crate) fn is_label(text: &str, most: usize) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= most
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A text of somebody else's for a message: short, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    /// Most characters of it.
    const MOST: usize = 80;
    let mut out: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).take(MOST).collect();
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_that_kubernetes_refuses_are_refused() {
        for (namespace, name, fits) in [
            ("a", "b", true),
            ("a", "b.c-d", true),
            ("", "b", false),
            ("a", "", false),
            ("a", "b_c", false),
            ("a_b", "c", false),
            ("a.b", "c", false),
            ("A", "c", false),
            ("a", "../c", false),
            ("a", "c\n", false),
            ("a", "${HOME}", false),
            ("a", "b..c", false),
        ] {
            let object = json!({ "metadata": { "namespace": namespace, "name": name } });
            assert_eq!(Meta::read(Kind::Service, &object).is_ok(), fits, "{namespace:?} {name:?}");
        }
        assert!(
            Meta::read(Kind::Service, &json!({ "metadata": { "namespace": "a", "name": "b".repeat(254) } }))
                .is_err()
        );
    }

    #[test]
    fn every_kind_is_watched_and_the_other_way_round() {
        assert_eq!(KINDS.len(), WATCHED.len());
        for (kind, resource) in KINDS.into_iter().zip(WATCHED) {
            assert_eq!(KINDS.get(kind as usize), Some(&kind));
            assert_eq!(format!("{kind:?}").to_lowercase(), resource.kind.to_lowercase());
        }
    }

    #[test]
    fn kinds_are_known_by_group_and_name() {
        assert_eq!(Kind::of("v1", "Service"), Some(Kind::Service));
        assert_eq!(Kind::of("gateway.networking.k8s.io/v1", "HTTPRoute"), Some(Kind::HttpRoute));
        assert_eq!(Kind::of("serving.knative.dev/v1", "Service"), None);
    }
}
