//! Certificates of clients: `spec.tls.frontend` of a Gateway says for each port of its HTTPS listeners, also for those
//! of its ListenerSets, whose certificates are asked for.

use super::backends::are_certificates;
use super::{Cx, is_kind};
use crate::objects::{CertificateRef, Frontend, FrontendValidation, Gateway, Kind, Name, Object, shown};
use crate::status::Problem;
use serde_json::{Value, json};

/// The mode in which a client without a valid certificate is served all the same.
const FALLBACK: &str = "AllowInsecureFallback";

/// What a listener's clients have to show.
#[derive(Default)]
pub(super) struct Clients {
    /// The setting `client_auth`.
    pub(super) setting: Option<Value>,
    /// The first reference that leads nowhere.
    pub(super) unresolved: Option<Problem>,
    /// Set if none leads anywhere, so that nobody could prove who they are.
    pub(super) wrong: Option<Problem>,
}

/// Reads what clients of a port have to show.
pub(super) fn clients(cx: &mut Cx<'_>, gateway: &Object<Gateway>, port: u16) -> Clients {
    let frontend = gateway.spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref());
    let Some(validation) = frontend.and_then(|frontend| validation(frontend, port)) else {
        return Clients::default();
    };
    let mut clients = Clients::default();
    let mut authorities = String::new();
    for reference in &validation.ca_certificate_refs {
        match authority(cx, &gateway.meta.namespace, reference) {
            Ok(pem) => {
                authorities.push_str(pem.trim());
                authorities.push('\n');
            }
            Err(problem) => drop(clients.unresolved.get_or_insert(problem)),
        }
    }
    if authorities.is_empty() {
        let message = "spec.tls.frontend names no usable authority for the certificates of clients";
        clients.wrong = Some(Problem::new("NoValidCACertificate", message));
    } else {
        let mode = if validation.mode.as_deref() == Some(FALLBACK) { "accept_untrusted" } else { "required" };
        let file = cx.config.file("pem", authorities.as_bytes());
        clients.setting = Some(json!({ "ca": file, "mode": mode }));
    }
    clients
}

/// Whether clients without a valid certificate are served somewhere although certificates are configured.
pub(super) fn falls_back(gateway: &Gateway) -> bool {
    let Some(frontend) = gateway.tls.as_ref().and_then(|tls| tls.frontend.as_ref()) else { return false };
    let each = frontend.per_port.iter().map(|port| &port.tls);
    let mut all = each.chain([&frontend.default]).filter_map(|tls| tls.validation.as_ref());
    all.any(|validation| validation.mode.as_deref() == Some(FALLBACK))
}

/// The settings of a port, which take the place of those for all ports.
fn validation(frontend: &Frontend, port: u16) -> Option<&FrontendValidation> {
    let own = frontend.per_port.iter().find(|own| own.port == port);
    own.map_or(&frontend.default, |own| &own.tls).validation.as_ref()
}

fn authority(cx: &Cx<'_>, namespace: &str, reference: &CertificateRef) -> Result<String, Problem> {
    if !is_kind(reference.group.as_deref(), reference.kind.as_deref(), Kind::ConfigMap, Kind::ConfigMap) {
        let kind = shown(reference.kind.as_deref().unwrap_or_default());
        let message = format!("an authority of the kind {kind} is not supported");
        return Err(Problem::new("InvalidCACertificateKind", message));
    }
    let name = Name::new(reference.namespace.as_deref().unwrap_or(namespace), &reference.name);
    if !cx.granted((Kind::Gateway, namespace), (Kind::ConfigMap, &name)) {
        let message = format!("no ReferenceGrant lets this Gateway refer to ConfigMap {name}");
        return Err(Problem::new("RefNotPermitted", message));
    }
    let invalid = |message: String| Problem::new("InvalidCACertificateRef", message);
    let map = cx.lookups.config_map(&name);
    let map = map.ok_or_else(|| invalid(format!("there is no ConfigMap {}", shown(&name.to_string()))))?;
    match map.spec.data.get("ca.crt") {
        Some(pem) if are_certificates(pem) => Ok(pem.clone()),
        Some(_) => Err(invalid(format!("ca.crt of ConfigMap {name} holds no certificate"))),
        None => Err(invalid(format!("ConfigMap {name} has no ca.crt"))),
    }
}
