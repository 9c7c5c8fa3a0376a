//! GatewayClass, Gateway, ListenerSet, ReferenceGrant and BackendTLSPolicy.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A class of Gateways, and who runs them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClass {
    /// The controller that runs its Gateways.
    pub controller_name: String,
    /// Settings in another object. None is supported.
    pub parameters_ref: Option<ParametersRef>,
}

/// A reference to settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParametersRef {
    /// The group of its API; empty for the core.
    pub group: String,
    /// The kind of the object.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A place where clients connect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// The name of its class.
    pub gateway_class_name: String,
    /// Its listeners.
    pub listeners: Vec<Listener>,
    /// The addresses asked for.
    pub addresses: Vec<GatewayAddress>,
    /// Labels and settings of what the controller creates.
    pub infrastructure: Option<Infrastructure>,
    /// The ListenerSets that may attach.
    pub allowed_listeners: Option<AllowedListeners>,
    /// Certificates of clients, and our own towards Services.
    pub tls: Option<GatewayTls>,
}

/// TLS of a whole Gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayTls {
    /// Certificates of clients.
    pub frontend: Option<Frontend>,
    /// Our own towards Services.
    pub backend: Option<GatewayBackendTls>,
}

/// TLS towards Services.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayBackendTls {
    /// The Secret with the certificate that is presented to them.
    pub client_certificate_ref: Option<CertificateRef>,
}

/// Which certificates the clients of HTTPS listeners must show.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Frontend {
    /// On all ports without settings of their own.
    pub default: FrontendTls,
    /// On single ports.
    pub per_port: Vec<FrontendPort>,
}

/// Settings of one port.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendPort {
    /// The port.
    pub port: u16,
    /// Its settings.
    pub tls: FrontendTls,
}

/// TLS towards clients.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendTls {
    /// How their certificates are verified; without it they are not asked for one.
    pub validation: Option<FrontendValidation>,
}

/// How certificates of clients are verified.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendValidation {
    /// ConfigMaps with the authorities.
    pub ca_certificate_refs: Vec<CertificateRef>,
    /// `AllowValidOnly` (the default) or `AllowInsecureFallback`.
    pub mode: Option<String>,
}

/// Labels, annotations and settings for a Gateway's own Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Infrastructure {
    /// Labels to copy.
    pub labels: BTreeMap<String, String>,
    /// Annotations to copy.
    pub annotations: BTreeMap<String, String>,
    /// Settings of the Service in a ConfigMap of the Gateway's namespace.
    pub parameters_ref: Option<ParametersRef>,
}

/// An address asked for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayAddress {
    /// `IPAddress` (the default), `Hostname` or a vendor's.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The address; without one, any.
    pub value: Option<String>,
}

/// The ListenerSets that may attach to a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedListeners {
    /// From which namespaces; none by default.
    pub namespaces: Option<Namespaces>,
}

/// More listeners for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSet {
    /// The Gateway.
    pub parent_ref: super::ParentRef,
    /// The listeners.
    pub listeners: Vec<Listener>,
}

/// One listener.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    /// Its name within its object.
    pub name: String,
    /// The host that it serves; none for any.
    pub hostname: Option<String>,
    /// The port that clients see.
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP` or a vendor's.
    pub protocol: String,
    /// Its TLS.
    pub tls: Option<ListenerTls>,
    /// The routes that may attach.
    pub allowed_routes: Option<AllowedRoutes>,
}

/// TLS of a listener.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    /// `Terminate` (the default) or `Passthrough`.
    pub mode: Option<String>,
    /// The Secrets with its certificates.
    pub certificate_refs: Vec<CertificateRef>,
}

/// A reference to a Secret or a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateRef {
    /// The group; the core by default.
    pub group: Option<String>,
    /// The kind; `Secret` by default.
    pub kind: Option<String>,
    /// The name.
    pub name: String,
    /// The namespace; that of the referring object by default.
    pub namespace: Option<String>,
}

/// The routes that may attach to a listener.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedRoutes {
    /// From which namespaces; the same by default.
    pub namespaces: Option<Namespaces>,
    /// Of which kinds; all that the protocol has by default.
    pub kinds: Vec<RouteKind>,
}

/// A set of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespaces {
    /// Which.
    pub from: Option<From>,
    /// For [`From::Selector`].
    pub selector: Option<Selector>,
}

/// Which namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs)] // the words of the API
pub enum From {
    All,
    None,
    Same,
    Selector,
    /// A word of a later version: nobody is let in.
    #[serde(other)]
    Unknown,
}

/// A selector of labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels with their values.
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    pub match_expressions: Vec<Expression>,
}

/// A condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Expression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values.
    pub values: Vec<String>,
}

/// A kind of route.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteKind {
    /// Its group; the Gateway API's by default.
    pub group: Option<String>,
    /// Its kind.
    pub kind: String,
}

/// Lets objects of other namespaces refer to objects of its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReferenceGrant {
    /// Who may.
    pub from: Vec<GrantFrom>,
    /// What they may refer to.
    pub to: Vec<GrantTo>,
}

/// Who may refer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantFrom {
    /// The group of the referring object.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
}

/// What may be referred to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantTo {
    /// The group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// One object; none for all.
    pub name: Option<String>,
}

/// TLS towards Services.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsPolicy {
    /// The Services.
    pub target_refs: Vec<TargetRef>,
    /// How their certificates are verified.
    pub validation: Validation,
}

/// A Service, or one of its ports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    /// The group; the core's is empty.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The name of a port; none for all.
    pub section_name: Option<String>,
}

impl TargetRef {
    /// Whether it is a Service.
    pub(crate) fn is_service(&self) -> bool {
        self.group.is_empty() && self.kind == "Service"
    }
}

/// How a certificate is verified.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Validation {
    /// ConfigMaps with authorities.
    pub ca_certificate_refs: Vec<CertificateRef>,
    /// `System` for those of the system.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<String>,
    /// The name asked for and verified.
    pub hostname: String,
    /// The names that are verified instead.
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A name in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubjectAltName {
    /// `Hostname` or `URI`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For `Hostname`.
    pub hostname: Option<String>,
    /// For `URI`.
    pub uri: Option<String>,
}
