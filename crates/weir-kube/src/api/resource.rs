//! The resources that the controller reads and writes: where they live in the API, and which of them it needs.

use std::fmt::Write as _;

/// A kind of object in the API.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version of the group.
    pub version: &'static str,
    /// The kind, such as `HTTPRoute`.
    pub kind: &'static str,
    /// The name in paths and in RBAC, such as `httproutes`.
    pub plural: &'static str,
    /// Whether its objects belong to a namespace.
    pub scope: Scope,
    /// Objects that the API server leaves out of our lists and watches.
    pub selector: &'static str,
    /// Whether the controller writes the status of its objects.
    pub status: Status,
    /// Whether the controller makes such objects for Gateways.
    pub making: Making,
    /// What it means if the API server does not know the resource.
    pub presence: Presence,
}

/// Whether objects belong to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// They belong to the cluster.
    Cluster,
    /// Each belongs to a namespace.
    Namespaced,
}

/// Whether the controller writes a resource's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It only reads.
    Read,
    /// The leader writes.
    Written,
}

/// Whether the controller makes objects of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// The leader creates, changes and deletes those that belong to Gateways of ours.
    ForGateways,
    /// It makes none.
    Never,
    /// The leader creates and changes one in its own namespace, and deletes none.
    Record,
}

/// What the absence of a resource from the API means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A part of Kubernetes: the answer 404 is a failure.
    BuiltIn,
    /// A custom resource: 404 means that its definition is not installed, so there are no objects.
    Custom,
}

const GATEWAY: &str = "gateway.networking.k8s.io";

const fn custom(version: &'static str, kind: &'static str, plural: &'static str, status: Status) -> Resource {
    Resource {
        group: GATEWAY,
        version,
        kind,
        plural,
        scope: Scope::Namespaced,
        selector: "",
        status,
        making: Making::Never,
        presence: Presence::Custom,
    }
}

const fn built_in(group: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        group,
        version: "v1",
        kind,
        plural,
        scope: Scope::Namespaced,
        selector: "",
        status: Status::Read,
        making: Making::Never,
        presence: Presence::BuiltIn,
    }
}

/// What every replica watches, sorted by kind without regard to case.
///
/// Helm keeps its releases in Secrets of up to 1 MiB each, and tokens of service accounts are no business of a
/// gateway, so the API server leaves both out.
pub static WATCHED: &[Resource] = &[
    custom("v1", "BackendTLSPolicy", "backendtlspolicies", Status::Written),
    Resource { making: Making::Record, ..built_in("", "ConfigMap", "configmaps") },
    Resource {
        making: Making::ForGateways,
        ..built_in("discovery.k8s.io", "EndpointSlice", "endpointslices")
    },
    custom("v1", "Gateway", "gateways", Status::Written),
    Resource { scope: Scope::Cluster, ..custom("v1", "GatewayClass", "gatewayclasses", Status::Written) },
    custom("v1", "GRPCRoute", "grpcroutes", Status::Written),
    custom("v1", "HTTPRoute", "httproutes", Status::Written),
    Resource { status: Status::Written, ..built_in("networking.k8s.io", "Ingress", "ingresses") },
    Resource { scope: Scope::Cluster, ..built_in("networking.k8s.io", "IngressClass", "ingressclasses") },
    custom("v1", "ListenerSet", "listenersets", Status::Written),
    Resource { scope: Scope::Cluster, ..built_in("", "Namespace", "namespaces") },
    custom("v1beta1", "ReferenceGrant", "referencegrants", Status::Read),
    Resource {
        selector: "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token",
        ..built_in("", "Secret", "secrets")
    },
    Resource { making: Making::ForGateways, ..built_in("", "Service", "services") },
    custom("v1", "TCPRoute", "tcproutes", Status::Written),
    custom("v1", "TLSRoute", "tlsroutes", Status::Written),
    Resource { group: "gateway.weir.dev", ..custom("v1alpha1", "WeirFilters", "weirfilters", Status::Read) },
];

/// The lock that decides which replica writes.
pub static LEASE: Resource = built_in("coordination.k8s.io", "Lease", "leases");

/// What users read about an object.
pub static EVENT: Resource = built_in("events.k8s.io", "Event", "events");

/// The resource of this kind among [`WATCHED`].
pub fn watched(kind: &str) -> Option<&'static Resource> {
    WATCHED.iter().find(|resource| resource.kind == kind)
}

impl Resource {
    /// The group and version as `apiVersion` has them.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The name for people and RBAC: `httproutes.gateway.networking.k8s.io`.
    pub fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The path of all objects, or of those in a namespace.
    ///
    /// `None` if the namespace is not a DNS name: such text would lead to another path.
    pub fn path(&self, namespace: Option<&str>) -> Option<String> {
        let mut path =
            if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let _ = write!(path, "/{}", self.version); // writing to a string cannot fail
        if let Some(namespace) = namespace.filter(|_| self.scope == Scope::Namespaced) {
            let _ = write!(path, "/namespaces/{}", is_name(namespace).then_some(namespace)?); // as above
        }
        Some(format!("{path}/{}", self.plural))
    }

    /// The path of one object. `None` as for [`Self::path`].
    pub fn path_of(&self, namespace: &str, name: &str) -> Option<String> {
        let all = self.path(Some(namespace))?;
        is_name(name).then(|| format!("{all}/{name}"))
    }
}

/// Whether a text can be the name of an object: a DNS subdomain (RFC 1123) of at most 253 characters.
fn is_name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= 253
        && text.bytes().all(letter)
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let path = |kind, namespace| watched(kind).unwrap().path(namespace);
        for (kind, namespace, expected) in [
            ("Service", None, "/api/v1/services"),
            ("Service", Some("shop"), "/api/v1/namespaces/shop/services"),
            ("HTTPRoute", Some("shop"), "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes"),
            ("GatewayClass", Some("shop"), "/apis/gateway.networking.k8s.io/v1/gatewayclasses"),
        ] {
            assert_eq!(path(kind, namespace).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_name_cannot_leave_its_path() {
        let service = watched("Service").unwrap();
        for name in ["", ".", "..", "a/b", "a?b", "a%2fb", "a b", "A", "-a", "a-", "a..b", &"a".repeat(254)] {
            assert_eq!(service.path_of("shop", name), None, "{name:?} as a name");
            assert_eq!(service.path_of(name, "cart"), None, "{name:?} as a namespace");
        }
        let expected = "/api/v1/namespaces/shop/services/cart.v2";
        assert_eq!(service.path_of("shop", "cart.v2").as_deref(), Some(expected));
    }

    #[test]
    fn kinds_are_sorted_and_unique() {
        assert!(WATCHED.is_sorted_by(|a, b| a.kind.to_lowercase() < b.kind.to_lowercase()));
    }
}
