//! Service, EndpointSlice, Secret, ConfigMap, Namespace, Ingress, and our own WeirFilters.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// `ClusterIP` by default. An `ExternalName` is refused: it could name any host.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Its addresses inside the cluster; `None` as a text for a Service without one.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name; may be empty if it is the only one.
    pub name: String,
    /// Its number.
    pub port: u16,
    /// `TCP` by default.
    pub protocol: Option<String>,
    /// What is spoken there, such as `kubernetes.io/h2c`.
    pub app_protocol: Option<String>,
    /// The port of its pods: a number or the name of one.
    pub target_port: Value,
}

/// Endpoints of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The ports that each of them has.
    pub ports: Vec<EndpointPort>,
}

/// An endpoint of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses, of which the first counts.
    pub addresses: Vec<String>,
    /// Its state.
    pub conditions: Address,
    /// Its zone.
    pub zone: Option<String>,
    /// The node that it runs on.
    pub node_name: Option<String>,
}

/// The state of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    /// Whether it may get requests; absent means yes.
    pub ready: Option<bool>,
    /// The same without regard to `terminating`; absent means as `ready`.
    pub serving: Option<bool>,
    /// Whether it is about to end.
    pub terminating: Option<bool>,
}

/// A port of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// The name of the service's port.
    pub name: Option<String>,
    /// Its number at the endpoint.
    pub port: Option<u16>,
}

/// A secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Secret {
    /// Its type, such as `kubernetes.io/tls`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Values in base64.
    pub data: BTreeMap<String, String>,
}

/// A config map.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    /// Texts.
    pub data: BTreeMap<String, String>,
}

/// A namespace, of which only the labels count.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {}

/// A class of Ingresses, and who runs them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressClass {
    /// The controller that runs its Ingresses.
    pub controller: String,
}

/// Routes of HTTP by the older API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ingress {
    /// The name of its class.
    pub ingress_class_name: Option<String>,
    /// Where requests go that no rule matches.
    pub default_backend: Option<IngressBackend>,
    /// Certificates.
    pub tls: Vec<IngressTls>,
    /// Rules.
    pub rules: Vec<IngressRule>,
}

/// A Service and one of its ports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressBackend {
    /// The Service.
    pub service: Option<IngressService>,
}

/// A Service and one of its ports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressService {
    /// The name.
    pub name: String,
    /// The port.
    pub port: IngressPort,
}

/// A port by number or by name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressPort {
    /// The number; 0 if it is named.
    pub number: u16,
    /// The name.
    pub name: String,
}

/// A certificate of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressTls {
    /// The hosts that it is for.
    pub hosts: Vec<String>,
    /// The Secret.
    pub secret_name: Option<String>,
}

/// The paths of a host.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressRule {
    /// The host; none for any.
    pub host: Option<String>,
    /// Its paths.
    pub http: Option<IngressHttp>,
}

/// The paths of a host.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressHttp {
    /// The paths.
    pub paths: Vec<IngressPath>,
}

/// A path of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressPath {
    /// The path; `/` by default.
    pub path: Option<String>,
    /// `Exact`, `Prefix` or `ImplementationSpecific`.
    pub path_type: String,
    /// Where its requests go.
    pub backend: IngressBackend,
}

/// Filters of Weir for routes that name them in an `ExtensionRef`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeirFilters {
    /// As in a route's `filters` in YAML. Only those that `translate/extension.rs` lists are allowed.
    pub filters: Vec<Value>,
}
