//! Upstreams, their TLS, and their endpoints.

use super::Compiler;
use super::client_tls::client_tls_key;
use super::listeners::{alpn, header_bytes};
use sha2::{Digest, Sha256};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_config::schema;
use weir_filter::template::{Names as KnownNames, Template};
use weir_route::variables::Vocabulary;
use weir_upstream::discovery;
use weir_upstream::upstream::balance::{self, Balancer, By, HashSettings};
use weir_upstream::upstream::discover::dns::{Name, Names};
use weir_upstream::upstream::discover::registry::{Registry, State};
use weir_upstream::upstream::{
    Budget, ClientGone, Conditions, Endpoint, Gate, Hedge, HostPolicy, Outlier, Place, Probe, ProbeKind,
    ProbeTls, Protocol, Published, Retry, Sticky, Timeouts, Upstream, Way,
};
use weir_wire::Chain;
use weir_wire::hex;
use weir_wire::listen::Address;
use weir_wire::proxy_protocol;
use weir_wire::tls::ClientTls;

impl Compiler<'_> {
    pub(super) fn upstreams(&mut self) -> Option<Vec<Arc<Upstream>>> {
        let config = self.config;
        config.upstreams.iter().map(|(name, written)| self.upstream(name, written)).collect()
    }

    fn upstream(&mut self, name: &str, written: &schema::Upstream) -> Option<Arc<Upstream>> {
        let (tls, tls_key) = match &written.tls {
            None => (None, String::new()),
            Some(tls) => (Some(self.client_tls(name, tls, written.protocol)?), tls_key(tls)),
        };
        let checks = written.health.as_ref().and_then(|health| health.probe.as_ref());
        let probe_tls = match (checks.and_then(|probe| probe.tls.as_ref()), &written.tls) {
            (Some(own), Some(tls)) => Some(self.probe_tls(name, own, tls, written.protocol)?),
            _ => None,
        };
        let head_bytes = header_bytes(&self.config.limits);
        let old = self.carry.upstreams.get(name);
        if let Some((before, same)) = old
            && before == written
            && *same.tls_key == *tls_key
            && same.head_bytes == head_bytes
            && same.zone.as_deref() == self.config.zone.as_deref()
        {
            let same = Arc::clone(same);
            self.carry.fresh.insert(name.to_owned(), (written.clone(), Arc::clone(&same)));
            return Some(same);
        }
        let gate = written.limits.connections.map(|connections| {
            let (least, pending) = (written.least_connections(self.config.workers), written.limits.pending);
            let connections = connections.max(least);
            match old.and_then(|(_, old)| old.gate.clone()).filter(|g| g.is(connections, pending)) {
                Some(same) => same,
                None => Arc::new(Gate::new(connections, pending)),
            }
        });
        let known = old.map(|(_, old)| old.published.list());
        let known = known.as_deref().map_or(&[][..], Vec::as_slice);
        let (fixed, names) = self.endpoints(name, written, tls.is_some());
        // What names resolved to and registries listed is already known: it serves until they answer again.
        let healths = Arc::clone(&self.carry.healths);
        let names = Names { upstream: name.into(), healths, fixed, names };
        let registry = self.registry(name, written, old.map(|(before, old)| (before, &**old)));
        let published = Published::new(match &registry {
            Some(registry) => registry.endpoints(known, &self.carry.telemetry),
            None => names.endpoints(|n| n.known(known).collect(), known, &self.carry.telemetry),
        });
        let retry = written.retry.as_ref().map(retry);
        let hedge = written.hedge.as_ref();
        let hedge = hedge.map(|hedge| Hedge { after: hedge.after.get(), budget: hedge.budget.ratio() });
        // Recently spent retries count, even if the shares have changed.
        let budget = old.map_or_else(|| Budget::new(Instant::now()), |(_, old)| Arc::clone(&old.budget));
        let t = &written.timeouts;
        let upstream = Arc::new(Upstream {
            name: name.into(),
            published,
            names: Arc::new(names),
            registry,
            tls_for_bytes: tls.as_ref().map(ClientTls::without_alpn),
            tls,
            tls_key: tls_key.into(),
            protocol: match (written.protocol, &written.tls) {
                (schema::UpstreamProtocol::Auto, Some(_)) => Protocol::Negotiated,
                (schema::UpstreamProtocol::Fastcgi, _) => Protocol::FastCgi,
                (schema::UpstreamProtocol::H2 | schema::UpstreamProtocol::H2c, _) => Protocol::Http2,
                (schema::UpstreamProtocol::Auto, None) | (schema::UpstreamProtocol::Http1, _) => {
                    Protocol::Http1
                }
            },
            host: match &written.host {
                schema::HostPolicy::Endpoint => HostPolicy::Endpoint,
                schema::HostPolicy::Literal(text) => HostPolicy::Literal(text.as_str().into()),
                schema::HostPolicy::Preserve => HostPolicy::Preserve,
            },
            rewrites_links: written.links == schema::Links::Rewrite,
            balancer: balancer(&written.balancer),
            slow_start: written.slow_start.map(|t| t.get()),
            sticky: written.sticky.as_ref().map(|sticky| {
                let ttl = sticky.ttl.map(|ttl| ttl.get());
                Sticky::new(&sticky.cookie, ttl, sticky.key.reveal().as_bytes())
            }),
            zone: self.config.zone.as_deref().map(Into::into),
            timeouts: Timeouts {
                // An attempt that is too slow to connect is as late as any other.
                connect: t.connect.get().min(retry.as_ref().and_then(|r| r.per_try).unwrap_or(Duration::MAX)),
                response: t.response.get(),
                body: t.body.get(),
                tunnel: t.tunnel.get(),
                exchange: t.exchange.map_or(Duration::ZERO, |t| t.get()),
            },
            keepalive: written.keepalive().get(),
            max_age: written.max_age.map(|t| t.get()),
            head_bytes,
            gate,
            budget,
            retry,
            hedge,
            outlier: written.health.as_ref().and_then(|health| health.outlier.as_ref()).map(outlier),
            client_gone: written.client_gone.map(client_gone),
            deadline: written.deadline_header.as_ref().map(|header| header.0.clone()),
            way: Way {
                fastcgi: written.protocol == schema::UpstreamProtocol::Fastcgi,
                source: written.source.map(|source| source.0),
                proxy_protocol: written.proxy_protocol.map(|version| match version {
                    schema::ProxyVersion::V1 => proxy_protocol::Version::V1,
                    schema::ProxyVersion::V2 => proxy_protocol::Version::V2,
                }),
            },
            probe: checks.map(|written| probe(written, probe_tls)),
            cells: self.carry.telemetry.upstream(name),
        });
        self.carry.fresh.insert(name.to_owned(), (written.clone(), Arc::clone(&upstream)));
        Some(upstream)
    }

    fn client_tls(
        &mut self,
        name: &str,
        written: &schema::UpstreamTls,
        protocol: schema::UpstreamProtocol,
    ) -> Option<ClientTls> {
        let path = format!("upstreams.{name}.tls");
        if self.misses_file(&path) {
            return None;
        }
        let tls = self.client_tls_at(&path, written, protocol)?;
        if let Some(cert) = &written.client_cert {
            self.dates(&format!("{path}.client_cert"), &cert.0, tls.validity(), "");
        }
        if let Some(ca) = &written.ca {
            self.authority_dates(&format!("{path}.ca"), &ca.0);
        }
        Some(tls)
    }

    /// The same, with mistakes reported at this path.
    fn client_tls_at(
        &mut self,
        path: &str,
        written: &schema::UpstreamTls,
        protocol: schema::UpstreamProtocol,
    ) -> Option<ClientTls> {
        use schema::Protocol::{H2, Http1};
        let alpn: &[&[u8]] = match protocol {
            schema::UpstreamProtocol::Auto => &[alpn(H2), alpn(Http1)],
            schema::UpstreamProtocol::H2 | schema::UpstreamProtocol::H2c => &[alpn(H2)],
            // `check` refuses TLS for FastCGI.
            schema::UpstreamProtocol::Fastcgi | schema::UpstreamProtocol::Http1 => &[alpn(Http1)],
        };
        let ca = written.ca.as_ref().map(|p| p.0.as_path());
        let identity = match (&written.client_cert, &written.client_key) {
            (Some(cert), Some(key)) => Some((cert.0.as_path(), key.0.as_path())),
            // Many tools write certificate and key into one file.
            (Some(both), None) => Some((both.0.as_path(), both.0.as_path())),
            _ => None,
        };
        let server_name = written.server_name.as_deref();
        let made = match &written.names[..] {
            names if !names.is_empty() && written.verify => {
                ClientTls::with_names(ca, identity, server_name, names, alpn)
            }
            _ => ClientTls::new(ca, identity, server_name, written.verify, alpn),
        };
        match made {
            Ok(tls) => Some(tls),
            Err(e) => {
                let key = client_tls_key(e.part);
                self.error(&format!("{path}{key}"), "tls-unusable", Chain(&e).to_string(), None);
                None
            }
        }
    }

    /// The TLS of probes: the upstream's, with the probes' own settings on top.
    fn probe_tls(
        &mut self,
        name: &str,
        own: &schema::ProbeTls,
        tls: &schema::UpstreamTls,
        protocol: schema::UpstreamProtocol,
    ) -> Option<ProbeTls> {
        let written = schema::UpstreamTls {
            server_name: own.server_name.clone().or_else(|| tls.server_name.clone()),
            verify: own.verify.unwrap_or(tls.verify),
            ..tls.clone()
        };
        let path = format!("upstreams.{name}.health.probe.tls");
        let tls = self.client_tls_at(&path, &written, protocol)?;
        Some(ProbeTls { tls, key: tls_key(&written).into() })
    }

    fn endpoints(
        &self,
        upstream: &str,
        written: &schema::Upstream,
        tls: bool,
    ) -> (Vec<Arc<Endpoint>>, Vec<Name>) {
        let (mut fixed, mut names): (Vec<Arc<Endpoint>>, _) = (Vec::new(), Vec::new());
        for endpoint in &written.endpoints {
            let (address, authority, server_name) = match &endpoint.address {
                schema::EndpointAddress::Name { host, port } => {
                    names.push(Name {
                        host: host.clone(),
                        port: *port,
                        weight: endpoint.weight,
                        place: self.place(endpoint),
                        authority: authority(host, *port, tls).into(),
                        resolved: Mutex::default(),
                    });
                    continue;
                }
                schema::EndpointAddress::Tcp(a) => {
                    let host = if a.is_ipv6() { format!("[{}]", a.ip()) } else { a.ip().to_string() };
                    (Address::Tcp(*a), authority(&host, a.port(), tls), a.ip().to_string())
                }
                schema::EndpointAddress::Unix(path) => {
                    (Address::Unix(path.clone()), "localhost".to_owned(), "localhost".to_owned())
                }
            };
            let label: Arc<str> = address.to_string().into();
            let cells = self.carry.telemetry.endpoint(upstream, &label);
            fixed.push(Arc::new(Endpoint {
                health: self.carry.healths.of(&upstream.into(), &label, &cells),
                cells,
                address,
                label,
                authority: authority.into(),
                server_name: server_name.into(),
                weight: endpoint.weight,
                place: self.place(endpoint),
            }));
        }
        (fixed, names)
    }

    /// The registry that lists the endpoints, with what it listed before.
    fn registry(
        &self,
        name: &str,
        written: &schema::Upstream,
        before: Option<(&schema::Upstream, &Upstream)>,
    ) -> Option<Arc<Registry>> {
        let seed = RandomState::new().hash_one(name);
        let is_listed = written.discover.is_some() || !written.endpoints.is_empty();
        let supplied = self.config.supplied.as_ref().filter(|_| !is_listed).and_then(|all| all.get(name));
        let (kind, place, state) = match &supplied {
            Some(supply) => ("program", supply.place.to_string(), State::supplied(seed, &supply.endpoints)),
            None => {
                let (kind, place) = discovery::place(name, written)?;
                (kind, place, discovery::begin(written, before, seed))
            }
        };
        let cells = self.carry.telemetry.upstream(name);
        if supplied.is_some() {
            cells.follows(true); // nobody has to be asked
        }
        Some(Arc::new(Registry {
            upstream: name.into(),
            kind,
            place,
            tls: written.tls.is_some(),
            zone: self.config.zone.as_deref().map(Into::into),
            healths: Arc::clone(&self.carry.healths),
            cells,
            state: Mutex::new(state),
        }))
    }

    /// The texts that `hash` takes as keys.
    pub(super) fn hashed(&mut self, vocabulary: &Vocabulary) -> Vec<Option<Template>> {
        let config = self.config;
        let texts = config.upstreams.iter().map(|(name, upstream)| match &upstream.balancer {
            schema::Balancer::Hash(schema::Hash { by: schema::HashBy::Text(text), .. }) => {
                let names = KnownNames::new(None, vocabulary); // the upstream may have many routes
                self.text(&format!("upstreams.{name}.balancer.hash.by"), text, &names)
            }
            _ => None,
        });
        texts.collect()
    }

    fn place(&self, endpoint: &schema::Endpoint) -> Place {
        let own = self.config.zone.as_deref();
        Place {
            priority: endpoint.priority,
            zone: endpoint.zone.as_deref().map(Into::into),
            elsewhere: own.is_some() && endpoint.zone.as_deref() != own,
        }
    }
}

/// Host and port in the form of Host: without the scheme's default port.
fn authority(host: &str, port: u16, tls: bool) -> String {
    if port == if tls { 443 } else { 80 } { host.to_owned() } else { format!("{host}:{port}") }
}

pub(super) const fn client_gone(written: schema::ClientGone) -> ClientGone {
    match written {
        schema::ClientGone::Cancel => ClientGone::Cancel,
        schema::ClientGone::Finish => ClientGone::Finish,
    }
}

fn retry(written: &schema::Retry) -> Retry {
    let mut on = Conditions::default();
    for condition in &written.on {
        match condition {
            schema::RetryOn::Connect => {} // repeated in any case
            schema::RetryOn::Grpc(status) => on.grpc.push(*status),
            schema::RetryOn::RefusedStream => on.refused_stream = true,
            schema::RetryOn::Reset => on.reset = true,
            schema::RetryOn::Status(status) => on.statuses.push(*status),
            schema::RetryOn::Timeout => on.timeout = true,
        }
    }
    Retry {
        attempts: written.attempts,
        on,
        all_methods: written.methods == schema::RetryMethods::All,
        per_try: written.per_try.map(|t| t.get()),
        backoff: written.backoff.get(),
        body: written.body.as_usize(),
        budget: written.budget.ratio(),
    }
}

fn probe(written: &schema::Probe, tls: Option<ProbeTls>) -> Arc<Probe> {
    let boxed = |text: &String| text.as_str().into();
    let kind = match written.kind {
        schema::ProbeKind::Grpc => ProbeKind::Grpc { service: boxed(&written.service) },
        schema::ProbeKind::Http => ProbeKind::Http {
            path: boxed(&written.path),
            expect: written.expect.iter().map(|range| (range.from, range.to)).collect(),
            body: written.body.as_ref().map(boxed),
        },
        schema::ProbeKind::Tcp => ProbeKind::Tcp,
    };
    Arc::new(Probe {
        kind,
        host: written.host.as_ref().map(boxed),
        tls,
        interval: written.interval.get(),
        timeout: written.timeout.get(),
        healthy: written.healthy,
        unhealthy: written.unhealthy,
        readyz: written.readyz,
    })
}

fn outlier(written: &schema::Outlier) -> Outlier {
    Outlier {
        errors: written.errors,
        window: written.window.get(),
        rate: written.rate.map(|rate| rate.ratio()),
        eject: written.eject.get(),
        max: written.max.ratio(),
    }
}

fn balancer(written: &schema::Balancer) -> Balancer {
    let (name, hash) = match written {
        schema::Balancer::Ewma => ("ewma", None),
        schema::Balancer::Hash(schema::Hash { by, bounded }) => {
            ("hash", Some(HashSettings { by: hash_by(by), bounded: bounded.map(|bounded| bounded.ratio()) }))
        }
        schema::Balancer::LeastRequests => ("least_requests", None),
        schema::Balancer::P2c => ("p2c", None),
        schema::Balancer::Random => ("random", None),
        schema::Balancer::RoundRobin => ("round_robin", None),
    };
    Balancer { kind: balance::named(name).expect("every name above is registered"), hash }
}

fn hash_by(written: &schema::HashBy) -> By {
    match written {
        schema::HashBy::Address => By::Address,
        schema::HashBy::Cookie(name) => By::Cookie(name.as_str().into()),
        schema::HashBy::Header(name) => By::Header(name.clone()),
        schema::HashBy::Path => By::Path,
        schema::HashBy::Query(name) => By::Query(name.as_str().into()),
        schema::HashBy::Text(text) => By::Computed(text.as_str().into()),
    }
}

/// Distinguishes TLS policies, even if a file's content changed under the same name.
fn tls_key(written: &schema::UpstreamTls) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{written:?}"));
    for file in [&written.ca, &written.client_cert, &written.client_key].into_iter().flatten() {
        hash.update(std::fs::read(&file.0).unwrap_or_default());
    }
    hex::encode(&hash.finalize())
}
