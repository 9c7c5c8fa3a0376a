//! Listeners, their TLS, and what clients may do on them.

use super::Compiler;
use crate::snapshot::{
    AddressProof, Admits, Advertise, AltSvc, ConnectionLimit, Destination, Http3, Listener, ListenerTimeouts,
    Names, Passing, Policy, Serves, UdpDoor,
};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use weir_acme::Entry;
use weir_config::spelling::nearest_name;
use weir_config::{schema, units};
use weir_route::{EscapedSlashes, Slashes};
use weir_wire::Chain;
use weir_wire::h2::{FloodLimits, ServerLimits};
use weir_wire::listen::Address;
use weir_wire::tls::{self, Certificate, ClientAuth, Part, QuicTls, ServerTls, Shown, Slot};

impl Compiler<'_> {
    pub(super) fn listeners(&mut self) -> Vec<Arc<Listener>> {
        let config = self.config;
        config
            .listeners
            .iter()
            .map(|(name, written)| {
                let serves = self.serves(written);
                let timeouts = &written.timeouts;
                let protocols = protocols(written);
                let made =
                    written.tls.as_ref().and_then(|tls| self.server_tls(name, written, tls, &protocols));
                let (tls, quic) = made.map_or((None, None), |(tls, quic)| (Some(tls), quic));
                if written.tls.is_some() && tls.is_none() && self.found.errors() == 0 {
                    // Whatever the reason: never fall back to cleartext where TLS was requested.
                    self.error(
                        &format!("listeners.{name}.tls"),
                        "tls-unusable",
                        "TLS could not be set up",
                        None,
                    );
                }
                let http3 = quic.map(|tls| Box::new(self.http3(name, written, tls)));
                let alt_svc = self.carry.alt_svc(name, http3.as_deref().and_then(AltSvc::of));
                Arc::new(Listener {
                    http1: protocols.contains(&schema::Protocol::Http1),
                    h2: protocols.contains(&schema::Protocol::H2),
                    http3,
                    alt_svc: alt_svc.map(Box::new),
                    name: name.into(),
                    address: written.address.as_ref().map(address),
                    greets: tls.is_some() || written.proxy_protocol || !matches!(serves, Serves::Http),
                    serves,
                    ip: admits(&written.ip).map(Box::new),
                    limit: written.limits.connections.map(|most| ConnectionLimit {
                        most: most as usize,
                        held: Arc::clone(self.carry.held.entry(name.to_owned()).or_default()),
                    }),
                    tls,
                    proxy_protocol: written.proxy_protocol,
                    slashes: match written.slashes {
                        schema::Slashes::Keep => Slashes::Keep,
                        schema::Slashes::Merge => Slashes::Merge,
                    },
                    escaped_slashes: escaped_slashes(written.escaped_slashes),
                    timeouts: ListenerTimeouts {
                        head: timeouts.head.get(),
                        body: timeouts.body.get(),
                        keepalive: timeouts.keepalive.get(),
                        handshake: timeouts.handshake.get(),
                        rate: timeouts.rate.get(),
                    },
                    policy: policy(written, &over_tcp(&protocols), &config.trusted_proxies),
                    series: self.carry.telemetry.listener(name),
                })
            })
            .collect()
    }

    /// What a listener with TLS for QUIC needs besides. Its addresses were checked.
    fn http3(&self, name: &str, written: &schema::Listener, tls: QuicTls) -> Http3 {
        let settings = written.http3.unwrap_or_default();
        let at = |listener: &schema::Listener, outer| match listener.address {
            Some(schema::ListenAddress::Tcp(address)) => Some(UdpDoor { address, outer }),
            _ => None,
        };
        let outers = self.config.listeners.iter().enumerate().filter(|(_, (_, outer))| outer.leads_to(name));
        let outers = outers.filter_map(|(index, (_, outer))| at(outer, Some(index)));
        Http3 {
            doors: at(written, None).into_iter().chain(outers).collect(),
            tls,
            idle: settings.idle.get(),
            retry: match settings.retry {
                schema::Http3Retry::Always => AddressProof::Always,
                schema::Http3Retry::Auto => AddressProof::Auto,
            },
            early_data: settings.early_data,
            migration: settings.migration,
            advertise: match settings.advertise {
                schema::Advertise::Off => Advertise::Off,
                schema::Advertise::Own => Advertise::Own,
                schema::Advertise::Port(port) => Advertise::Port(port.get()),
            },
            policy: policy(written, &[schema::Protocol::H3], &self.config.trusted_proxies),
        }
    }

    /// What a listener does with its connections. A destination that does not exist was reported.
    fn serves(&self, written: &schema::Listener) -> Serves {
        let passing = |upstream: &str, idle: Option<units::Duration>, connect: Option<units::Duration>| {
            let upstream = self.upstream_index.get(upstream).copied()?;
            Some(Passing { upstream, idle: idle.map(|t| t.get()), connect: connect.map(|t| t.get()) })
        };
        let to = |written: &schema::Destination| match (&written.upstream, &written.listener) {
            (Some(upstream), _) => {
                passing(upstream, written.idle, written.connect).map(Destination::Upstream)
            }
            (None, Some(name)) => {
                self.config.listeners.names().position(|known| known == name).map(Destination::Listener)
            }
            (None, None) => None,
        };
        match (&written.tcp, &written.sni) {
            (Some(tcp), _) => match passing(&tcp.upstream, tcp.idle, tcp.connect) {
                Some(passing) => Serves::Tcp(passing),
                None => Serves::Sni(Box::default()), // refuses all; never runs
            },
            (None, Some(sni)) => {
                let named = sni.0.iter().filter_map(|(name, written)| Some((&*name.0, to(written)?)));
                Serves::Sni(Box::new(Names::new(named, written.otherwise.as_ref().and_then(to))))
            }
            (None, None) => Serves::Http,
        }
    }

    /// Versions, ciphers and curves.
    fn tls_policy(&mut self, path: &str, written: &schema::ListenerTls) -> Option<tls::Policy> {
        let policy = tls::Policy::new(written.min_version == schema::TlsVersion::Tls13);
        let leaves_nothing = policy.leaves_nothing(&written.ciphers);
        let ciphers = self
            .known_names(&format!("{path}.ciphers"), &written.ciphers, |names| policy.clone().ciphers(names));
        let curves = self
            .known_names(&format!("{path}.curves"), &written.curves, |names| policy.clone().curves(names));
        if ciphers.is_some() && leaves_nothing {
            let hint = "name one of TLS 1.3, such as TLS_AES_128_GCM_SHA256, or leave ciphers out".to_owned();
            let message = "has no cipher of TLS 1.3, the only version that `min_version` allows";
            self.error(&format!("{path}.ciphers"), "bad-value", message, Some(hint.into()));
            return None;
        }
        curves?;
        let policy = ciphers?.curves(&written.curves).ok()?;
        Some(policy.with_tickets(written.tickets))
    }

    /// Reports the first name of a list that Weir does not have.
    fn known_names(
        &mut self,
        path: &str,
        names: &[String],
        make: impl FnOnce(&[String]) -> Result<tls::Policy, tls::Unknown>,
    ) -> Option<tls::Policy> {
        let unknown = match make(names) {
            Ok(policy) => return Some(policy),
            Err(unknown) => unknown,
        };
        let name = names.get(unknown.at).map_or("", String::as_str);
        let near = nearest_name(name, unknown.known.iter().map(String::as_str));
        let hint = near.map(|near| format!("did you mean {near}?").into());
        let message = format!("`{name}` is none that Weir has; expected one of {}", unknown.known.join(", "));
        self.error(&format!("{path}[{}]", unknown.at), "bad-value", message, hint);
        None
    }

    /// TLS over TCP, and over QUIC if the listener speaks HTTP/3.
    fn server_tls(
        &mut self,
        name: &str,
        listener: &schema::Listener,
        written: &schema::ListenerTls,
        protocols: &[schema::Protocol],
    ) -> Option<(ServerTls, Option<QuicTls>)> {
        let alpn: Vec<&[u8]> = over_tcp(protocols).into_iter().map(alpn).collect();
        let early_data = listener.http3.is_some_and(|http3| http3.early_data);
        let client_auth = client_auth(written.client_auth.as_ref());
        let only_13 = written.min_version == schema::TlsVersion::Tls13;
        let path = format!("listeners.{name}.tls");
        let certificates = self.certificates(&path, &written.certificates);
        let kept = match &written.acme {
            Some(acme) => self.acme(&path, acme, certificates.as_deref().unwrap_or_default()),
            None => Some(Vec::new()),
        };
        let (certificates, kept) = (certificates?, kept?);
        if certificates.is_empty() && kept.is_empty() || self.misses_file(&format!("{path}.client_auth")) {
            return None; // reported when the config was checked
        }
        if let Some(ca) = client_auth.ca() {
            self.authority_dates(&format!("{path}.client_auth.ca"), ca);
        }
        let kept: Vec<(String, Slot)> = kept.iter().map(named_slot).collect();
        let policy = self.tls_policy(&path, written)?;
        let key = tickets_key(&certificates, &kept, &client_auth, only_13);
        let shown = Shown { fixed: &certificates, kept: &kept };
        let made = self
            .carry
            .tickets(key)
            .and_then(|tickets| ServerTls::new(shown, &client_auth, &alpn, &policy, &tickets));
        let by_handshake =
            written.acme.as_ref().is_some_and(|acme| acme.challenge == schema::AcmeChallenge::TlsAlpn);
        let made = made
            .map(|tls| if by_handshake { tls.with_proofs(self.carry.acme.proofs().clone()) } else { tls });
        let made = made.and_then(|tls| {
            if !listener.has_h3() {
                return Ok((tls, None));
            }
            let tickets = self.carry.tickets(key)?;
            let single_use = early_data.then(|| self.carry.single_use(key));
            let quic = QuicTls::new(shown, &client_auth, &policy, &tickets, single_use.as_ref())?;
            Ok((tls, Some(quic)))
        });
        let place =
            |part| if part == Part::Authority { format!("{path}.client_auth.ca") } else { path.clone() };
        made.map_err(|e| self.error(&place(e.part), "tls-unusable", Chain(&e).to_string(), None)).ok()
    }
}

fn named_slot(entry: &Arc<Entry>) -> (String, Slot) {
    (entry.name().to_string(), entry.slot().clone())
}

/// Whether clients are asked for a certificate.
pub(super) fn client_auth(written: Option<&schema::ClientAuth>) -> ClientAuth {
    match written.map(|auth| (auth.mode, auth.ca.0.clone())) {
        None | Some((schema::ClientAuthMode::Off, _)) => ClientAuth::Off,
        Some((schema::ClientAuthMode::AcceptUntrusted, ca)) => ClientAuth::AcceptUntrusted(ca),
        Some((schema::ClientAuthMode::Optional, ca)) => ClientAuth::Optional(ca),
        Some((schema::ClientAuthMode::Required, ca)) => ClientAuth::Required(ca),
    }
}

/// `None`: everybody's connections are accepted.
fn admits(written: &schema::ListenerIp) -> Option<Admits> {
    let networks = |written: &[schema::Network]| written.iter().map(|network| network.0).collect();
    let admits = Admits { allow: networks(&written.allow), deny: networks(&written.deny) };
    (!admits.allow.is_empty() || !admits.deny.is_empty()).then_some(admits)
}

fn address(written: &schema::ListenAddress) -> Address {
    match written {
        schema::ListenAddress::Tcp(a) => Address::Tcp(*a),
        schema::ListenAddress::Unix(p) => Address::Unix(p.clone()),
    }
}

pub(super) const fn escaped_slashes(written: schema::EscapedSlashes) -> EscapedSlashes {
    match written {
        schema::EscapedSlashes::Decode => EscapedSlashes::Decode,
        schema::EscapedSlashes::Keep => EscapedSlashes::Keep,
        schema::EscapedSlashes::Refuse => EscapedSlashes::Refuse,
    }
}

/// The protocols that clients may choose over TCP.
fn over_tcp(protocols: &[schema::Protocol]) -> Vec<schema::Protocol> {
    protocols.iter().copied().filter(|protocol| *protocol != schema::Protocol::H3).collect()
}

/// The protocols of a listener, in the order of ALPN.
fn protocols(written: &schema::Listener) -> Vec<schema::Protocol> {
    use schema::Protocol::{H2, Http1};
    if written.serves() != schema::Serves::Http {
        return Vec::new();
    }
    let default = || if written.tls.is_some() { vec![H2, Http1] } else { vec![Http1] };
    written.protocols.clone().unwrap_or_else(default)
}

/// A protocol's name in TLS (RFC 7301).
pub(super) const fn alpn(protocol: schema::Protocol) -> &'static [u8] {
    match protocol {
        schema::Protocol::H2 => b"h2",
        schema::Protocol::H3 => b"h3",
        schema::Protocol::Http1 => b"http/1.1",
    }
}

/// The longest HTTP/2 head, from clients and upstreams alike.
pub(super) fn header_bytes(limits: &schema::Limits) -> u32 {
    u32::try_from(limits.header_bytes.as_usize()).unwrap_or(u32::MAX)
}

pub(super) fn h2_limits(limits: &schema::Limits) -> ServerLimits {
    let h2 = &limits.h2;
    ServerLimits {
        streams: h2.streams,
        header_bytes: header_bytes(limits),
        heads: u32::try_from(h2.heads.as_usize()).unwrap_or(u32::MAX),
        floods: FloodLimits {
            continuations: h2.continuations,
            empty_data: h2.empty_data,
            errors: h2.errors,
            pings: h2.pings,
            priorities: h2.priorities,
            resets: h2.resets,
            settings: h2.settings,
            window_updates: h2.window_updates,
        },
    }
}

/// See [`Policy`]; of the protocols over TCP, or of HTTP/3 alone. It leaves out the listener's own certificates, so
/// that a renewal breaks no connection. It leaves out the destinations of bytes, because connections stay where they
/// are.
fn policy(written: &schema::Listener, protocols: &[schema::Protocol], trusted: &[schema::Network]) -> Policy {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for protocol in [schema::Protocol::Http1, schema::Protocol::H2, schema::Protocol::H3] {
        add(&[u8::from(protocols.contains(&protocol))]);
    }
    add(match written.serves() {
        schema::Serves::Http => b"http",
        schema::Serves::Sni => b"sni",
        schema::Serves::Tcp => b"tcp",
    });
    // Who may name the client's address in a PROXY header.
    if written.proxy_protocol {
        trusted.iter().for_each(|network| add(format!("{network:?}").as_bytes()));
        add(b"proxy");
    }
    match &written.tls {
        None => add(b"plain"),
        Some(tls) => {
            let (mode, ca) = clients_policy(&client_auth(tls.client_auth.as_ref()));
            add(&[mode, u8::from(tls.min_version == schema::TlsVersion::Tls13), u8::from(tls.tickets)]);
            tls.ciphers.iter().for_each(|name| add(name.as_bytes()));
            add(b"curves");
            tls.curves.iter().for_each(|name| add(name.as_bytes()));
            add(&ca);
        }
    }
    let mut policy = [0; 16];
    policy.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
    Policy(policy)
}

/// What is required of clients, in digest form: the mode and the authorities.
fn clients_policy(client_auth: &ClientAuth) -> (u8, Vec<u8>) {
    let file = |path: &Path| std::fs::read(path).unwrap_or_default(); // unreadable: there is no listener then
    match client_auth {
        ClientAuth::Off => (0, Vec::new()),
        ClientAuth::Optional(ca) => (1, file(ca)),
        ClientAuth::Required(ca) => (2, file(ca)),
        ClientAuth::AcceptUntrusted(ca) => (3, file(ca)),
    }
}

/// What two listeners must share to accept each other's tickets. A client that resumes shows no certificate and gets
/// none. So a ticket must be worthless where a full handshake would require more, or answer with another name. An
/// automatically renewed certificate counts by name, so that clients can resume after a renewal.
pub(super) fn tickets_key(
    certificates: &[Certificate],
    kept: &[(String, Slot)],
    client_auth: &ClientAuth,
    only_13: bool,
) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    certificates.iter().flat_map(Certificate::chain).for_each(&mut add);
    kept.iter().for_each(|(name, _)| add(name.as_bytes()));
    let (mode, ca) = clients_policy(client_auth);
    add(&ca);
    hash.update([mode, u8::from(only_13)]);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_policies_share_tickets() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            path
        };
        let certificate = || {
            let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
            [Certificate::of_pem(&made.cert.pem(), &made.signing_key.serialize_pem()).unwrap()]
        };
        let (one, two) = (certificate(), certificate());
        let (ca, other) = (file("ca"), file("other"));
        let keys = [
            tickets_key(&one, &[], &ClientAuth::Off, false),
            tickets_key(&one, &[], &ClientAuth::Off, true),
            tickets_key(&one, &[], &ClientAuth::AcceptUntrusted(ca.clone()), false),
            tickets_key(&one, &[], &ClientAuth::Optional(ca.clone()), false),
            tickets_key(&one, &[], &ClientAuth::Required(ca), false),
            tickets_key(&one, &[], &ClientAuth::Required(other), false),
            tickets_key(&two, &[], &ClientAuth::Off, false),
            tickets_key(&[], &[("a.test".to_owned(), Slot::new(one[0].clone()))], &ClientAuth::Off, false),
            tickets_key(&[], &[("b.test".to_owned(), Slot::new(one[0].clone()))], &ClientAuth::Off, false),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(tickets_key(&one, &[], &ClientAuth::Off, false), keys[0]);
    }
}
