//! The objects that the listeners of a Gateway or a ListenerSet depend on, in any namespace. One of them may be why
//! Weir refuses a listener, so the listener is tried again when one changes.

use crate::cluster::Cluster;
use crate::objects::{CertificateRef, Gateway, Kind, Listener, Name};

/// Whether the listeners of an object (`of`) depend on a changed one: they refer to it, or it is a ReferenceGrant in
/// the namespace of something that they refer to.
///
/// Only Gateways and ListenerSets depend on other namespaces in this way. A Service that uses a Gateway's certificate
/// does not: if the certificate changes, its upstream gets another name.
pub(super) fn depends(cluster: &Cluster, of: &(Kind, Name), (kind, name): (Kind, &Name)) -> bool {
    references(cluster, of).iter().any(|(to, target)| match kind {
        Kind::ReferenceGrant => target.namespace == name.namespace,
        _ => *to == kind && target == name,
    })
}

fn references(cluster: &Cluster, (kind, name): &(Kind, Name)) -> Vec<(Kind, Name)> {
    match kind {
        Kind::Gateway => cluster.gateways.get(name).map_or_else(Vec::new, |gateway| {
            let mut all = secrets(name, &gateway.spec.listeners);
            all.extend(authorities(name, &gateway.spec));
            all
        }),
        Kind::ListenerSet => cluster.listener_sets.get(name).map_or_else(Vec::new, |set| {
            let mut all = secrets(name, &set.spec.listeners);
            let parent = &set.spec.parent_ref;
            let parent = Name::new(parent.namespace.as_ref().unwrap_or(&name.namespace), &parent.name);
            // The Gateway's authorities also verify the clients of its ListenerSets.
            if let Some(gateway) = cluster.gateways.get(&parent) {
                all.extend(authorities(&parent, &gateway.spec));
            }
            all.push((Kind::Gateway, parent));
            all
        }),
        _ => Vec::new(),
    }
}

/// The Secrets with the certificates of listeners.
fn secrets(of: &Name, listeners: &[Listener]) -> Vec<(Kind, Name)> {
    let all = listeners.iter().filter_map(|listener| listener.tls.as_ref());
    all.flat_map(|tls| &tls.certificate_refs).map(|secret| (Kind::Secret, target(of, secret))).collect()
}

/// The ConfigMaps with the authorities of clients' certificates.
fn authorities(of: &Name, gateway: &Gateway) -> Vec<(Kind, Name)> {
    let frontend = gateway.tls.as_ref().and_then(|tls| tls.frontend.as_ref());
    let each = frontend.into_iter().flat_map(|frontend| {
        let ports = frontend.per_port.iter().map(|port| &port.tls);
        ports.chain([&frontend.default]).filter_map(|tls| tls.validation.as_ref())
    });
    let all = each.flat_map(|validation| &validation.ca_certificate_refs);
    all.map(|map| (Kind::ConfigMap, target(of, map))).collect()
}

fn target(of: &Name, reference: &CertificateRef) -> Name {
    Name::new(reference.namespace.as_ref().unwrap_or(&of.namespace), &reference.name)
}
