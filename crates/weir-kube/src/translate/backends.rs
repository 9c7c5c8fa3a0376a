//! Services and their endpoints become upstreams, with the TLS that a BackendTLSPolicy asks for.

use super::{Cx, Identity, is_kind, unsupported};
use crate::cluster::Cluster;
use crate::config::Upstream;
use crate::names;
use crate::objects::{
    BackendRef, BackendTlsPolicy, CertificateRef, Kind, Meta, Name, Object, ServicePort, SubjectAltName,
    TargetRef, shown,
};
use crate::status::Problem;
use crate::text;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a backend reference leads to.
pub(super) enum Backend {
    /// An upstream of this name.
    Upstream(String),
    /// A Service without an endpoint that could answer.
    Empty,
}

/// What an upstream has besides its endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Manner {
    /// Whether gRPC is spoken, so that HTTP/2 is needed.
    pub(super) is_grpc: bool,
    /// Whether bytes are passed on.
    pub(super) is_bytes: bool,
    /// Whether these bytes are the client's own TLS, so that none of ours goes round it.
    pub(super) is_passthrough: bool,
    /// The setting `retry`.
    pub(super) retry: Option<Value>,
    /// Further settings. A BackendTLSPolicy comes before them.
    pub(super) settings: Map<String, Value>,
    /// The certificate to present, where TLS is spoken.
    pub(super) identity: Option<Identity>,
}

/// A policy and the port of the Service that it is for, if not for all.
type Targeting<'c> = (&'c Name, &'c Object<BackendTlsPolicy>, Option<&'c str>);

/// BackendTLSPolicies by the namespace and name of their Service.
pub(super) struct Policies<'c> {
    of_service: BTreeMap<(&'c str, &'c str), Vec<Targeting<'c>>>,
    /// Policies that lost to an older one for all that they target.
    pub(super) conflicting: BTreeSet<&'c Name>,
}

// === impl Policies ===

impl<'c> Policies<'c> {
    pub(super) fn of(cluster: &'c Cluster) -> Self {
        let mut all: Vec<_> = cluster.backend_tls_policies.iter().collect();
        all.sort_by(|(_, a), (_, b)| a.meta.age().cmp(&b.meta.age()));
        let mut policies = Self { of_service: BTreeMap::new(), conflicting: BTreeSet::new() };
        let mut taken = BTreeSet::new();
        for (name, policy) in all {
            let mut wins = false;
            let targets = policy.spec.target_refs.iter();
            for target in targets.filter(|target| target.is_service()) {
                let key = (name.namespace.as_str(), target.name.as_str());
                let section = target.section_name.as_deref();
                if taken.insert((key, section)) {
                    wins = true;
                    policies.of_service.entry(key).or_default().push((name, policy, section));
                }
            }
            if !wins {
                policies.conflicting.insert(name);
            }
        }
        policies
    }

    /// The policy for a port of a Service: one for the port before one for all.
    fn find(&self, service: &Name, port: &str) -> Option<(&'c Name, &'c Object<BackendTlsPolicy>)> {
        let all = self.of_service.get(&(service.namespace.as_str(), service.name.as_str()))?;
        let by = |wanted: Option<&str>| all.iter().find(|(.., section)| *section == wanted);
        by(Some(port)).or_else(|| by(None)).map(|(name, policy, _)| (*name, *policy))
    }
}

/// The Gateways that route to a Service which a policy targets are its ancestors, also where it lost. Whoever asks
/// [`Policies`] calls this too, which records that all policies of the namespace count.
fn note_users(cx: &mut Cx<'_>, service: &Name, gateways: &BTreeSet<Name>) {
    for (name, policy) in cx.lookups.policies(&service.namespace) {
        let targets = |target: &TargetRef| target.is_service() && target.name == service.name;
        if policy.spec.target_refs.iter().any(targets) {
            cx.used.entry(name.clone()).or_default().extend(gateways.iter().cloned());
        }
    }
}

/// Resolves a reference to a Service, and makes its upstream.
///
/// # Errors
/// The reason and the sentence for the condition `ResolvedRefs`.
pub(super) fn resolve(
    cx: &mut Cx<'_>,
    from: (Kind, &Meta),
    reference: &BackendRef,
    manner: &Manner,
    gateways: &BTreeSet<Name>,
) -> Result<Backend, Problem> {
    if !is_kind(reference.group.as_deref(), reference.kind.as_deref(), Kind::Service, Kind::Service) {
        let kind = shown(reference.kind.as_deref().unwrap_or_default());
        return Err(Problem::new("InvalidKind", format!("a backend of the kind {kind} is not supported")));
    }
    let (name, port) = service_of(cx, from, reference)?;
    upstream(cx, &name, port, manner, gateways)
}

/// The Service that a route's reference names, and its port.
pub(super) fn service_of<'c>(
    cx: &mut Cx<'c>,
    (kind, meta): (Kind, &Meta),
    reference: &BackendRef,
) -> Result<(Name, &'c ServicePort), Problem> {
    let name = Name::new(reference.namespace.as_deref().unwrap_or(&meta.namespace), &reference.name);
    if !cx.granted((kind, &meta.namespace), (Kind::Service, &name)) {
        let message = format!("no ReferenceGrant lets this route refer to Service {name}");
        return Err(Problem::new("RefNotPermitted", message));
    }
    let port = port_of(cx, &name, |port| Some(port.port) == reference.port)?;
    Ok((name, port))
}

/// The TLS that a BackendTLSPolicy asks for towards a port of a Service, if one does.
///
/// # Errors
/// What is wrong with the policy. Then nothing may be sent.
pub(super) fn tls_of(
    cx: &mut Cx<'_>,
    service: &Name,
    port: &ServicePort,
    manner: &Manner,
    gateways: &BTreeSet<Name>,
) -> Result<Option<Value>, Problem> {
    note_users(cx, service, gateways);
    let policy = cx.policies.find(service, &port.name);
    let Some((name, policy)) = policy else { return Ok(None) };
    let mut value = tls(cx, name, policy)?;
    if let Some((cert, key)) = &manner.identity {
        value["client_cert"] = json!(cert);
        value["client_key"] = json!(key);
    }
    Ok(Some(value))
}

/// A port of a Service.
pub(super) fn port_of<'c>(
    cx: &mut Cx<'c>,
    name: &Name,
    is: impl Fn(&ServicePort) -> bool,
) -> Result<&'c ServicePort, Problem> {
    let missing = |message: String| Problem::new("BackendNotFound", message);
    let Some(service) = cx.lookups.service(name) else {
        return Err(missing(format!("there is no Service {}", shown(&name.to_string()))));
    };
    if service.spec.kind.as_deref() == Some("ExternalName") {
        let message = format!("Service {name} is an ExternalName, which could lead anywhere");
        return Err(unsupported(message));
    }
    let tcp = |port: &&ServicePort| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let port = service.spec.ports.iter().filter(tcp).find(|port| is(port));
    port.ok_or_else(|| {
        let ports = service.spec.ports.iter().filter(tcp).take(SHOWN_PORTS).map(|port| port.port.to_string());
        let ports: Vec<String> = ports.collect();
        let has = if ports.is_empty() { "none".to_owned() } else { ports.join(", ") };
        missing(format!("Service {name} has no such TCP port; its ports: {has}"))
    })
}

/// The upstream for a port of a Service.
pub(super) fn upstream(
    cx: &mut Cx<'_>,
    service: &Name,
    port: &ServicePort,
    manner: &Manner,
    gateways: &BTreeSet<Name>,
) -> Result<Backend, Problem> {
    if let Some(refused) = cx.refused(Kind::Service, service) {
        return Err(Problem { reason: "BackendNotFound", ..refused });
    }
    let tls = if manner.is_passthrough { None } else { tls_of(cx, service, port, manner, gateways)? };
    let supply = cx.pods(service, port);
    if supply.endpoints.is_empty() {
        return Ok(Backend::Empty);
    }
    let mut value = json!({});
    let is_h2 = manner.is_grpc || matches!(port.app_protocol.as_deref(), Some("kubernetes.io/h2c" | "grpc"));
    let is_secure = tls.is_some();
    match (tls, is_h2) {
        (Some(tls), _) if manner.is_bytes => value["tls"] = tls,
        (None, _) if manner.is_bytes => {}
        (Some(tls), is_h2) => {
            value["protocol"] = json!(if is_h2 { "h2" } else { "auto" });
            value["tls"] = tls;
        }
        (None, true) => value["protocol"] = json!("h2c"),
        (None, false) => {}
    }
    if let Some(retry) = &manner.retry {
        value["retry"] = retry.clone();
    }
    let has_policy = value.get("tls").is_some();
    for (key, setting) in &manner.settings {
        if !(has_policy && ["protocol", "tls"].contains(&key.as_str())) {
            value[key] = setting.clone();
        }
    }
    let mut parts =
        vec!["svc".to_owned(), service.namespace.clone(), service.name.clone(), port.port.to_string()];
    let variant = match manner {
        Manner { is_bytes: true, .. } if is_secure => "tcptls".to_owned(),
        Manner { is_bytes: true, .. } => "tcp".to_owned(),
        Manner { is_grpc: true, .. } => "grpc".to_owned(),
        _ => String::new(),
    };
    parts.extend((!variant.is_empty()).then_some(variant));
    if !manner.settings.is_empty() {
        parts.push(names::hex(json!(manner.settings).to_string().as_bytes(), 6));
    }
    parts.extend(manner.retry.as_ref().map(|retry| names::hex(retry.to_string().as_bytes(), 6)));
    let identity = manner.identity.as_ref().filter(|_| is_secure);
    parts.extend(identity.map(identity_part));
    let name = names::join(&parts.iter().map(String::as_str).collect::<Vec<_>>());
    if let Some(refused) = cx.refused_part(&name) {
        return Err(Problem { reason: "BackendNotFound", ..refused });
    }
    cx.own(&name, Kind::Service, service);
    let shared: Arc<str> = name.as_str().into();
    cx.pods.feed(service, &port.name, &shared);
    let upstream = || Upstream { settings: value.into(), supply: Some(supply) };
    cx.config.upstreams.entry(shared).or_insert_with(upstream);
    Ok(Backend::Upstream(name))
}

/// Where connections go that no backend takes: they are closed, and no wider host's route gets them. The address is of
/// those that routers discard (RFC 6666).
pub(super) fn nowhere(cx: &mut Cx<'_>) -> String {
    let name = "nowhere".to_owned();
    let value = json!({ "endpoints": ["[100::1]:9"], "timeouts": { "connect": "10ms" } });
    cx.config.upstreams.entry(name.as_str().into()).or_insert_with(|| value.into());
    name
}

/// The part of an upstream's name that stands for the certificate presented there.
pub(super) fn identity_part((cert, key): &Identity) -> String {
    names::hex(format!("{cert} {key}").as_bytes(), 6)
}

/// The setting `tls` that a policy asks for. Without it nothing is sent: never in cleartext, never unverified.
pub(super) fn tls(cx: &mut Cx<'_>, name: &Name, policy: &Object<BackendTlsPolicy>) -> Result<Value, Problem> {
    let closed = |problem: Problem| Problem {
        reason: "BackendNotFound",
        message: format!("BackendTLSPolicy {name}: {}", problem.message),
    };
    let hostname = host_of(policy).map_err(closed)?;
    let mut value = json!({ "server_name": hostname });
    let names = names_of(policy).map_err(closed)?;
    if !names.is_empty() {
        value["names"] = json!(names);
    }
    if let Some(ca) = authorities(cx, name, policy).map_err(closed)? {
        value["ca"] = json!(ca);
    }
    Ok(value)
}

/// Most ports of a Service that a message lists.
const SHOWN_PORTS: usize = 8;

/// Most names of which a certificate must have one; the API allows 5.
const MAX_NAMES: usize = 16;

/// The names that a policy verifies in place of the one that it asks for.
pub(super) fn names_of(policy: &Object<BackendTlsPolicy>) -> Result<Vec<String>, Problem> {
    let invalid = |message: String| Problem::new("Invalid", message);
    let names = &policy.spec.validation.subject_alt_names;
    if names.len() > MAX_NAMES {
        return Err(invalid(format!("it has more than {MAX_NAMES} subjectAltNames")));
    }
    let name = |name: &SubjectAltName| match (name.kind.as_str(), &name.hostname, &name.uri) {
        ("Hostname", Some(host), None) => text::host(host).filter(|host| !host.starts_with('*')),
        ("URI", None, Some(uri)) => Some(uri.clone()).filter(|uri| is_uri(uri)),
        _ => None,
    };
    let all = names.iter().map(|written| {
        let text = written.hostname.as_ref().or(written.uri.as_ref()).map(String::as_str);
        let text = shown(text.unwrap_or_default());
        name(written)
            .ok_or_else(|| invalid(format!("the subjectAltName `{text}` is neither a host nor a URI")))
    });
    all.collect()
}

/// Whether a text can be a URI in a certificate: a scheme, and visible characters.
fn is_uri(text: &str) -> bool {
    let scheme = text.split_once("://").filter(|(_, rest)| !rest.is_empty()).map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    text.len() <= 253 && text.bytes().all(|b| b.is_ascii_graphic()) && scheme.is_some_and(is_scheme)
}

/// The name that a policy asks for, and verifies unless it has others for that.
pub(super) fn host_of(policy: &Object<BackendTlsPolicy>) -> Result<String, Problem> {
    let validation = &policy.spec.validation;
    let host = text::host(&validation.hostname).filter(|host| !host.starts_with('*'));
    host.ok_or_else(|| Problem::new("Invalid", "`hostname` is not a host name"))
}

/// The file with a policy's authorities; `None` for those of the system.
pub(super) fn authorities(
    cx: &mut Cx<'_>,
    name: &Name,
    policy: &Object<BackendTlsPolicy>,
) -> Result<Option<String>, Problem> {
    let validation = &policy.spec.validation;
    match (&validation.ca_certificate_refs[..], validation.well_known_ca_certificates.as_deref()) {
        ([], Some("System")) => return Ok(None),
        ([], _) => return Err(Problem::new("NoValidCACertificate", "it names no authority")),
        _ => {}
    }
    let mut all = String::new();
    let mut wrong = None;
    for reference in &validation.ca_certificate_refs {
        match authority(cx, name, reference) {
            Ok(pem) => {
                all.push_str(pem.trim());
                all.push('\n');
            }
            Err(problem) => wrong = Some(problem),
        }
    }
    match (all.is_empty(), wrong) {
        (true, Some(wrong)) => Err(Problem::new("NoValidCACertificate", wrong.message)),
        _ => Ok(Some(cx.config.file("pem", all.as_bytes()))),
    }
}

/// The text of an authority. Policies have no grants: their ConfigMaps stand in their own namespace.
pub(super) fn authority(cx: &Cx<'_>, policy: &Name, reference: &CertificateRef) -> Result<String, Problem> {
    if !is_kind(reference.group.as_deref(), reference.kind.as_deref(), Kind::ConfigMap, Kind::ConfigMap) {
        let kind = shown(reference.kind.as_deref().unwrap_or_default());
        return Err(Problem::new("InvalidKind", format!("an authority of the kind {kind} is not supported")));
    }
    let name = Name::new(&policy.namespace, &reference.name);
    let invalid = |message: String| Problem::new("InvalidCACertificateRef", message);
    let map = cx.lookups.config_map(&name);
    let map = map.ok_or_else(|| invalid(format!("there is no ConfigMap {}", shown(&name.to_string()))))?;
    let pem =
        map.spec.data.get("ca.crt").ok_or_else(|| invalid(format!("ConfigMap {name} has no ca.crt")))?;
    match are_certificates(pem) {
        true => Ok(pem.clone()),
        false => Err(invalid(format!("ca.crt of ConfigMap {name} holds no certificate"))),
    }
}

/// Whether a text is certificates in PEM, all of which the engine takes as authorities. One that it refuses would keep
/// the config of everybody from running.
pub(super) fn are_certificates(pem: &str) -> bool {
    !pem.contains("PRIVATE KEY") && weir_wire::tls::check_authorities(pem).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_engine_takes_is_an_authority() {
        use base64::Engine;
        let pem = |der: &[u8]| {
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let good = std::fs::read_to_string(weir_testkit::Authority::new().file()).unwrap();
        // A SEQUENCE, but no certificate.
        let garbage = pem(&[0x30, 0x03, 0x02, 0x01, 0x05]);
        for (text, expected) in [
            (good.clone(), true),
            (format!("# ours\n{good}{good}"), true),
            (String::new(), false),
            (garbage.clone(), false),
            (format!("{good}{garbage}"), false),
            (format!("{good}-----BEGIN CERTIFICATE-----\n"), false),
            (format!("{good}-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"), false),
        ] {
            assert_eq!(are_certificates(&text), expected, "{text}");
        }
    }
}
