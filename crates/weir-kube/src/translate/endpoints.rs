//! The endpoints of Services, from EndpointSlices.
//!
//! Only addresses of EndpointSlices are used, and of these none that leads back into the pod: a tenant may write
//! EndpointSlices, and 127.0.0.1 is where the admin API listens.
//!
//! Pods come and go far more often than anything else changes. So [`Pods`] remembers which ports of which Services a
//! translation asked for, and a change of a slice costs no translation unless it gives a port its first endpoint or
//! takes the last.

use super::{MAX_ENDPOINTS, Options};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::objects::{Name, SERVICE_LABEL, ServicePort};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use weir_config::Supply;
use weir_config::schema::{Endpoint, EndpointAddress};

/// The endpoints of the Services that a translation asked for.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    services: BTreeMap<Name, Service>,
    /// The admin listeners of all replicas.
    admin: Option<BTreeSet<SocketAddr>>,
}

#[derive(Debug, Default)]
struct Service {
    /// Whether more than the endpoints of single ports was made of its slices.
    is_whole: bool,
    ports: BTreeMap<String, Port>,
}

#[derive(Debug)]
struct Port {
    supply: Arc<Supply>,
    /// The upstreams with these endpoints.
    upstreams: BTreeSet<Arc<str>>,
}

/// The upstreams that have the endpoints of each Service, with the name of its port.
pub(crate) type Fed = BTreeMap<Name, BTreeMap<Arc<str>, String>>;

/// What a change of EndpointSlices means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// These upstreams have these endpoints now; there may be none.
    Endpoints(Vec<(Arc<str>, Arc<Supply>)>),
    /// The config may differ.
    Everything,
}

impl Pods {
    /// The endpoints of a port that may get requests; if there is none, those that still serve while they end.
    pub(super) fn of(
        &mut self,
        cluster: &Cluster,
        options: &Options,
        service: &Name,
        port: &ServicePort,
    ) -> Arc<Supply> {
        if let Some(known) = self.services.get(service).and_then(|service| service.ports.get(&port.name)) {
            return Arc::clone(&known.supply);
        }
        let supply = self.read(cluster, options, service, &port.name);
        let known = Port { supply: Arc::clone(&supply), upstreams: BTreeSet::new() };
        self.services.entry(service.clone()).or_default().ports.insert(port.name.clone(), known);
        supply
    }

    /// Notes that an upstream has the endpoints of a port, and nothing else is made of them.
    pub(super) fn feed(&mut self, service: &Name, port: &str, upstream: &Arc<str>) {
        let known = self.services.get_mut(service).and_then(|service| service.ports.get_mut(port));
        if let Some(known) = known {
            known.upstreams.insert(Arc::clone(upstream));
        }
    }

    /// Forgets a Service: its ports may have other names now. Whoever asks for them is asked again.
    pub(super) fn forget(&mut self, service: &Name) {
        self.services.remove(service);
    }

    /// Notes that something else is made of the slices of a Service, so that each change of them counts.
    pub(super) fn read_whole(&mut self, service: &Name) {
        self.services.entry(service.clone()).or_default().is_whole = true;
    }

    /// Gives upstreams their endpoints: what was kept of a route may have older ones. Forgets upstreams that no route
    /// has any more.
    pub(super) fn supply(&mut self, config: &mut Config) {
        for port in self.services.values_mut().flat_map(|service| service.ports.values_mut()) {
            let Port { supply, upstreams } = port;
            upstreams.retain(|name| {
                let Some(upstream) = config.upstreams.get_mut(name) else { return false };
                upstream.supply = Some(Arc::clone(supply));
                true
            });
        }
    }

    /// The upstreams that are fed.
    pub(crate) fn fed(&self) -> Fed {
        let mut fed = Fed::new();
        for (name, service) in &self.services {
            for (port, known) in &service.ports {
                let all = known.upstreams.iter().map(|upstream| (Arc::clone(upstream), port.clone()));
                fed.entry(name.clone()).or_default().extend(all);
            }
        }
        fed
    }

    /// The endpoints of a port, whether or not the last translation asked for them.
    pub(crate) fn read(
        &mut self,
        cluster: &Cluster,
        options: &Options,
        service: &Name,
        port: &str,
    ) -> Arc<Supply> {
        let admin = self.admin.get_or_insert_with(|| admin_listeners(cluster, options));
        Arc::new(supply(cluster, options, admin, service, port))
    }

    /// Reads the slices of Services again, some of which have changed.
    pub(crate) fn read_again(
        &mut self,
        cluster: &Cluster,
        options: &Options,
        changed: impl Iterator<Item = Name>,
    ) -> Moved {
        let mut moved = Vec::new();
        for name in changed {
            if is_own(options, &name) {
                return Moved::Everything; // whoever leads to an admin listener is left out
            }
            let Some(service) = self.services.get_mut(&name) else { continue };
            if service.is_whole {
                return Moved::Everything;
            }
            let admin = self.admin.get_or_insert_with(|| admin_listeners(cluster, options));
            for (port, known) in &mut service.ports {
                let now = supply(cluster, options, admin, &name, port);
                if now.endpoints.is_empty() != known.supply.endpoints.is_empty() {
                    return Moved::Everything;
                }
                if now != *known.supply {
                    known.supply = Arc::new(now);
                    let all = known.upstreams.iter();
                    moved.extend(all.map(|upstream| (Arc::clone(upstream), Arc::clone(&known.supply))));
                }
            }
        }
        Moved::Endpoints(moved)
    }
}

/// Whether a Service is of the namespace of the admin listeners.
pub(super) fn is_own(options: &Options, service: &Name) -> bool {
    options.admin.as_ref().is_some_and(|(own, _)| *own == service.namespace)
}

fn supply(
    cluster: &Cluster,
    options: &Options,
    admin: &BTreeSet<SocketAddr>,
    service: &Name,
    port: &str,
) -> Supply {
    let is_ours = is_own(options, service);
    let (mut ready, mut ending) = (BTreeMap::new(), BTreeMap::new());
    for slice in cluster.slices_of(service).filter(|slice| slice.address_type != "FQDN") {
        let numbers = slice.ports.iter().filter(|p| p.name.as_deref().unwrap_or_default() == port);
        let Some(number) = numbers.filter_map(|port| port.port).find(|number| *number != 0) else { continue };
        for endpoint in &slice.endpoints {
            let address = endpoint.addresses.first().and_then(|address| address.parse::<IpAddr>().ok());
            let Some(address) = address.filter(|address| leads_to_a_pod(*address)) else { continue };
            let address = SocketAddr::new(address, number);
            if !is_ours && admin.contains(&SocketAddr::new(address.ip().to_canonical(), number)) {
                continue;
            }
            let state = &endpoint.conditions;
            let is_ending = state.terminating.unwrap_or_default();
            let is_ready = state.ready.unwrap_or(true);
            let found = (address, endpoint.zone.clone().filter(|zone| !zone.is_empty()));
            if is_ready && !is_ending {
                ready.insert(address.to_string(), found);
            } else if is_ending && state.serving.unwrap_or(is_ready) {
                ending.insert(address.to_string(), found);
            }
        }
    }
    let chosen = if ready.is_empty() { ending } else { ready };
    let endpoint = |(address, zone): (SocketAddr, Option<String>)| Endpoint {
        scheme: None,
        address: EndpointAddress::Tcp(address),
        weight: 1,
        zone,
        priority: 0,
    };
    let endpoints = chosen.into_values().take(MAX_ENDPOINTS).map(endpoint).collect();
    Supply { place: format!("Service {service}").into(), endpoints }
}

/// The admin listeners of all replicas, as EndpointSlices of our own namespace have them, and the Services that lead to
/// them. A tenant may write their addresses into EndpointSlices of its own, and the gateway can reach them.
fn admin_listeners(cluster: &Cluster, options: &Options) -> BTreeSet<SocketAddr> {
    let Some((namespace, port)) = &options.admin else { return BTreeSet::new() };
    let own = cluster.endpoint_slices.range(Name::new(namespace, "")..);
    let own = own.take_while(|(name, _)| name.namespace == *namespace).map(|(_, slice)| slice);
    let mut all = BTreeSet::new();
    for slice in own {
        let numbers: Vec<_> = slice.spec.ports.iter().filter(|number| number.port == Some(*port)).collect();
        if numbers.is_empty() {
            continue;
        }
        all.extend(sockets(slice.spec.endpoints.iter().flat_map(|one| &one.addresses), *port));
        let service = slice.meta.labels.get(SERVICE_LABEL);
        let Some(service) = service.and_then(|name| cluster.services.get(&Name::new(namespace, name))) else {
            continue;
        };
        let names: BTreeSet<_> =
            numbers.iter().map(|number| number.name.as_deref().unwrap_or_default()).collect();
        for front in service.spec.ports.iter().filter(|front| names.contains(front.name.as_str())) {
            all.extend(sockets(&service.spec.cluster_ips, front.port));
        }
    }
    all
}

fn sockets<'a>(addresses: impl IntoIterator<Item = &'a String>, port: u16) -> Vec<SocketAddr> {
    let parsed = addresses.into_iter().filter_map(|address| address.parse::<IpAddr>().ok());
    parsed.map(|address| SocketAddr::new(address.to_canonical(), port)).collect()
}

/// Whether an address can be a pod's. The API server refuses the others, but is not what this rests on.
fn leads_to_a_pod(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            !v4.is_loopback()
                && !v4.is_link_local()
                && !v4.is_unspecified()
                && !v4.is_multicast()
                && !v4.is_broadcast()
                // Metadata of Alibaba, Azure and Oracle.
                && ![[100, 100, 100, 200], [168, 63, 129, 16], [192, 0, 0, 192]].contains(&v4.octets())
        }
        IpAddr::V6(v6) => {
            // Metadata of AWS and of Google, and IPv4 behind NAT64 or without a mark, which may be any address.
            let metadata = matches!(v6.segments(), [0xFD00, 0xEC2, .., 0x254] | [0xFD20, 0xCE, .., 0x254]);
            let hidden = matches!(v6.segments(), [0x64, 0xFF9B, ..] | [0, 0, 0, 0, 0, 0, ..]);
            !v6.is_unicast_link_local() && !v6.is_multicast() && !metadata && !hidden
        }
    }
}
