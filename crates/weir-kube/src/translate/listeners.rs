//! Listeners of Gateways and ListenerSets: which are valid, and which conflict. `layout` says how Weir serves them.

use super::claims::Claims;
use super::frontend::{self, Clients};
use super::layout::lay_out;
use super::services::{self, Wish};
use super::{Cx, Front, Identity, MAX_LISTENERS, Options, is_kind, route_kind, selects, unsupported};
use crate::objects::{
    self, CertificateRef, From, Gateway, Kind, ListenerSet, Meta, Name, Namespaces, Object,
};
use crate::status::Problem;
use crate::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The reason that does not keep a listener from serving the kinds that are left.
const INVALID_KINDS: &str = "InvalidRouteKinds";

/// The reasons that do not keep a listener from verifying its clients with the authorities that are left.
const INVALID_AUTHORITIES: [&str; 2] = ["InvalidCACertificateKind", "InvalidCACertificateRef"];

/// A Gateway of ours.
pub(super) struct Gate<'c> {
    pub(super) name: &'c Name,
    pub(super) object: &'c Object<Gateway>,
    /// Why it is not accepted as a whole.
    pub(super) wrong: Option<Problem>,
    pub(super) bind: IpAddr,
    /// Whether it has none of the addresses that it asks for.
    pub(super) is_unbound: bool,
    /// The port of the pods for each port of the Gateway, where they differ.
    pub(super) ports: BTreeMap<u16, u16>,
    /// How its Service is to be.
    pub(super) wish: Wish,
    pub(super) listeners: Vec<Listener<'c>>,
    pub(super) sets: Vec<Set<'c>>,
    /// Whether the certificate for Services can be used, if there is one.
    pub(super) client_certificate: Option<Result<(), Problem>>,
    pub(super) closed: Closed<'c>,
}

/// The hosts of refused listeners that a wider listener would otherwise get, by port, each with the object that asks
/// for it.
pub(super) type Closed<'c> = BTreeMap<u16, BTreeMap<String, (Kind, &'c Name)>>;

/// A ListenerSet that names one of our Gateways.
pub(super) struct Set<'c> {
    pub(super) name: &'c Name,
    pub(super) object: &'c Object<ListenerSet>,
    pub(super) wrong: Option<Problem>,
}

/// A listener with its problems.
pub(super) struct Listener<'c> {
    /// The ListenerSet that it stands in; otherwise it is the Gateway's own.
    pub(super) set: Option<&'c Name>,
    /// The object that it stands in.
    pub(super) meta: &'c Meta,
    pub(super) spec: &'c objects::Listener,
    pub(super) host: Option<String>,
    pub(super) protocol: Protocol,
    /// The kinds of routes that may attach.
    pub(super) kinds: Vec<Kind>,
    pub(super) wrong: Option<Problem>,
    /// Whether nothing is wrong with it but that its ListenerSet is left out.
    is_left_out: bool,
    pub(super) conflict: Option<Problem>,
    pub(super) unresolved: Option<Problem>,
    /// The setting `client_auth`.
    pub(super) clients: Option<Value>,
    /// A Secret that turned invalid: its last good certificate is served.
    pub(super) stale: Option<Problem>,
    /// Paths of certificates and keys.
    pub(super) certificates: Vec<(String, String)>,
    pub(super) attached: usize,
    /// The listener of Weir that serves it.
    pub(super) weir: Option<String>,
    /// The upstream of a route of bytes.
    pub(super) bytes: BTreeMap<String, String>,
    /// The hosts of the routes that attached.
    pub(super) claims: Claims,
}

/// All that HTTPRoutes and GRPCRoutes learn of a Gateway, besides the claims of other routes: what was made of them
/// stays as long as this does.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    name: Name,
    sets: Vec<Name>,
    identity: Option<Identity>,
    listeners: Vec<SeenListener>,
    closed: BTreeMap<u16, Vec<String>>,
}

#[derive(Debug, PartialEq)]
struct SeenListener {
    set: Option<Name>,
    namespace: String,
    name: String,
    port: u16,
    host: Option<String>,
    protocol: Protocol,
    kinds: Vec<Kind>,
    allowed: Option<Namespaces>,
    takes_routes: bool,
    weir: Option<String>,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Tcp,
    TlsPassthrough,
    TlsTerminate,
    Unknown,
    /// TLS in a way that is not supported.
    UnknownTls,
}

// === impl Protocol ===

impl Protocol {
    /// Which protocols may share a port: those that a name in TLS tells apart.
    pub(super) const fn family(self) -> u8 {
        match self {
            Self::Http => 0,
            Self::Https | Self::TlsPassthrough | Self::TlsTerminate | Self::UnknownTls => 1,
            Self::Tcp => 2,
            Self::Unknown => 3,
        }
    }

    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Http | Self::Https => &[Kind::HttpRoute, Kind::GrpcRoute],
            Self::Tcp => &[Kind::TcpRoute],
            Self::TlsPassthrough => &[Kind::TlsRoute],
            Self::TlsTerminate => &[Kind::TlsRoute, Kind::TcpRoute],
            Self::Unknown | Self::UnknownTls => &[],
        }
    }
}

// === impl Gate ===

impl Gate<'_> {
    /// The port of the pods that serves a port of the Gateway.
    pub(super) fn pod_port(&self, port: u16) -> u16 {
        self.ports.get(&port).copied().unwrap_or(port)
    }

    /// What routes learn of it.
    pub(super) fn seen(&self, cx: &Cx<'_>) -> Seen {
        let listener = |own: &Listener<'_>| SeenListener {
            set: own.set.cloned(),
            namespace: own.meta.namespace.clone(),
            name: own.spec.name.clone(),
            port: own.spec.port,
            host: own.host.clone(),
            protocol: own.protocol,
            kinds: own.kinds.clone(),
            allowed: own.allowed().cloned(),
            takes_routes: own.takes_routes(),
            weir: own.weir.clone(),
        };
        Seen {
            name: self.name.clone(),
            sets: self.sets.iter().map(|set| set.name.clone()).collect(),
            identity: cx.identities.get(self.name).cloned(),
            listeners: self.listeners.iter().map(listener).collect(),
            closed: self.closed.iter().map(|(port, all)| (*port, all.keys().cloned().collect())).collect(),
        }
    }
}

// === impl Listener ===

impl Listener<'_> {
    /// Whether it is served.
    pub(super) fn is_good(&self) -> bool {
        let is_served = |problem: &Problem| {
            (problem.reason == INVALID_KINDS && !self.kinds.is_empty())
                || (INVALID_AUTHORITIES.contains(&problem.reason) && self.clients.is_some())
        };
        self.takes_routes() && self.unresolved.as_ref().is_none_or(is_served)
    }

    /// Whether routes may attach. Unresolved references do not count: they may be mended.
    pub(super) fn takes_routes(&self) -> bool {
        self.wrong.is_none() && self.conflict.is_none()
    }

    /// Whether no listener of a younger object may have its port and host. One that is left out keeps them: otherwise
    /// another tenant could wait for that.
    fn has_claim(&self) -> bool {
        (self.wrong.is_none() || self.is_left_out) && self.conflict.is_none()
    }

    /// The namespaces whose routes may attach.
    pub(super) fn allowed(&self) -> Option<&Namespaces> {
        self.spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref())
    }

    /// What tells it from other listeners of its port: nothing, if bytes are all that is seen.
    pub(super) fn told_apart_by(&self) -> Option<String> {
        self.host.clone().filter(|_| self.protocol != Protocol::Tcp)
    }

    /// Its scheme in URLs.
    pub(super) const fn scheme(&self) -> &'static str {
        if matches!(self.protocol, Protocol::Https) { "https" } else { "http" }
    }
}

/// Reads the listeners of all our Gateways.
pub(super) fn gather<'c>(cx: &mut Cx<'c>) -> Vec<Gate<'c>> {
    let cluster = cx.lookups.all();
    let is_ours = |class: &str| {
        cluster.gateway_classes.get(&Name::new("", class)).is_some_and(|class| {
            class.spec.controller_name == cx.options.controller && class.spec.parameters_ref.is_none()
        })
    };
    let mut gates = Vec::new();
    for (name, object) in cluster.gateways.iter().filter(|(_, g)| is_ours(&g.spec.gateway_class_name)) {
        gates.push(gate(cx, name, object));
    }
    // The older Gateway has a port that two of one address ask for.
    gates.sort_by(|a: &Gate<'_>, b| a.object.meta.age().cmp(&b.object.meta.age()));
    gates.iter_mut().for_each(conflicts);
    services::assign(cx, &mut gates);
    let mut taken: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for (at, gate) in gates.iter_mut().enumerate() {
        // What is not accepted holds no port.
        let (is_accepted, ports) = (gate.wrong.is_none() && !gate.is_unbound, &gate.ports);
        for listener in gate.listeners.iter_mut().filter(|listener| is_accepted && listener.takes_routes()) {
            let port = ports.get(&listener.spec.port).copied().unwrap_or(listener.spec.port);
            let address = SocketAddr::new(gate.bind, port);
            let is_taken = taken.iter().any(|(other, owner)| *owner != at && collide(address, *other));
            if is_of_admin(cx.options, address) {
                let message = format!("the admin API of Weir listens on port {port}");
                listener.wrong = Some(Problem::new("PortUnavailable", message));
            } else if is_taken {
                let message = format!("another Gateway listens on {address}");
                listener.wrong = Some(Problem::new("PortUnavailable", message));
            } else if let Some(why) = cx.options.busy.get(&address) {
                // Its port stays that of its Service: it may be free on other nodes, or soon.
                listener.wrong = Some(Problem::new("PortUnavailable", why.clone()));
            } else {
                taken.insert(address, at);
            }
        }
        lay_out(cx, gate);
    }
    gates
}

/// Whether a listener at this address would take connections to the admin API, or could not listen beside it. Where
/// other pods reach the admin API, its port is nobody's at any address.
pub(super) fn is_of_admin(options: &Options, address: SocketAddr) -> bool {
    options.admin.as_ref().is_some_and(|(_, port)| *port == address.port())
        || options.admin_address.is_some_and(|admin| collide(address, admin))
}

/// Whether two sockets conflict. 0.0.0.0 takes the port of every address, whichever of the two is older, and
/// ::ffff:10.0.0.1 the ports of 10.0.0.1.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let (ip, other) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() == b.port() && (ip == other || ip.is_unspecified() || other.is_unspecified())
}

fn gate<'c>(cx: &mut Cx<'c>, name: &'c Name, object: &'c Object<Gateway>) -> Gate<'c> {
    let mut gate = Gate {
        name,
        object,
        wrong: cx.refused(Kind::Gateway, name),
        bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        is_unbound: false,
        ports: BTreeMap::new(),
        wish: Wish::default(),
        listeners: Vec::new(),
        sets: Vec::new(),
        client_certificate: None,
        closed: BTreeMap::new(),
    };
    let asked = object.spec.addresses.iter().filter(|address| address.value.is_some());
    let mut usable = None;
    for address in asked {
        let value = address.value.as_deref().unwrap_or_default();
        match (address.kind.as_deref().unwrap_or("IPAddress"), value.parse::<IpAddr>()) {
            ("IPAddress", Ok(ip)) if cx.options.unusable.contains(&ip) => gate.is_unbound = true,
            ("IPAddress", Ok(ip)) => usable = usable.or(Some(ip)),
            (kind, _) => {
                let message =
                    format!("`{}` of type {} is not supported", objects::shown(value), objects::shown(kind));
                gate.wrong.get_or_insert_with(|| Problem::new("UnsupportedAddress", message));
            }
        }
    }
    let infrastructure = object.spec.infrastructure.as_ref();
    let parameters = infrastructure.and_then(|infrastructure| infrastructure.parameters_ref.as_ref());
    match services::wish(cx, &name.namespace, parameters) {
        Ok(wish) => gate.wish = wish,
        Err(problem) => drop(gate.wrong.get_or_insert(problem)),
    }
    gate.is_unbound &= usable.is_none() && cx.options.front == Front::Pods;
    // A Service has the addresses that clients see; the pods listen on all of theirs.
    let usable = usable.filter(|_| cx.options.front == Front::Pods);
    let reference =
        object.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref()?.client_certificate_ref.as_ref());
    if let Some(reference) = reference {
        gate.client_certificate = Some(client_certificate(cx, name, reference));
    }
    gate.bind = cx.options.bind.get(name).copied().or(usable).unwrap_or(gate.bind);
    for spec in &object.spec.listeners {
        let listener = listener(cx, object, None, &object.meta, spec);
        gate.listeners.push(listener);
    }
    let cluster = cx.lookups.all();
    let mut sets: Vec<_> = cluster
        .listener_sets
        .iter()
        .filter(|(set, object)| {
            let parent = &object.spec.parent_ref;
            is_kind(parent.group.as_deref(), parent.kind.as_deref(), Kind::Gateway, Kind::Gateway)
                && parent.name == name.name
                && parent.namespace.as_ref().unwrap_or(&set.namespace) == &name.namespace
        })
        .collect();
    sets.sort_by(|(_, a), (_, b)| a.meta.age().cmp(&b.meta.age()));
    for (set, set_object) in sets {
        let allowed = object.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        let refused = cx.refused(Kind::ListenerSet, set);
        let (wrong, has_hosts) = match allows(cx, allowed, From::None, &name.namespace, &set.namespace) {
            _ if gate.wrong.is_some() => {
                (Some(Problem::new("ParentNotAccepted", "the Gateway is not accepted")), false)
            }
            // One that is left out keeps its hosts, unless these are what Weir refuses.
            true => (refused.clone(), !cx.dropped(Kind::ListenerSet, set)),
            false => {
                let message = "the Gateway's allowedListeners do not let it attach";
                (Some(Problem::new("NotAllowed", message)), false)
            }
        };
        if has_hosts {
            for spec in &set_object.spec.listeners {
                let mut listener = listener(cx, object, Some(set), &set_object.meta, spec);
                listener.is_left_out = refused.is_some() && listener.wrong.is_none();
                listener.wrong = refused.clone().or(listener.wrong);
                gate.listeners.push(listener);
            }
        }
        gate.sets.push(Set { name: set, object: set_object, wrong });
    }
    for listener in gate.listeners.iter_mut().skip(MAX_LISTENERS) {
        listener.is_left_out = false; // no more claims to search
        listener.wrong = Some(unsupported(format!("there are more than {MAX_LISTENERS} listeners")));
    }
    gate
}

fn listener<'c>(
    cx: &mut Cx<'c>,
    gateway: &Object<Gateway>,
    set: Option<&'c Name>,
    meta: &'c Meta,
    spec: &'c objects::Listener,
) -> Listener<'c> {
    let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref()).unwrap_or("Terminate");
    let protocol = match (spec.protocol.as_str(), mode) {
        ("HTTP", _) => Protocol::Http,
        ("HTTPS", "Terminate") => Protocol::Https,
        ("TCP", _) => Protocol::Tcp,
        ("TLS", "Passthrough") => Protocol::TlsPassthrough,
        ("TLS", "Terminate") => Protocol::TlsTerminate,
        ("HTTPS" | "TLS", _) => Protocol::UnknownTls,
        _ => Protocol::Unknown,
    };
    let shown = objects::shown(&spec.protocol);
    let unsupported_protocol = |message: String| Some(Problem::new("UnsupportedProtocol", message));
    let mut wrong = match protocol {
        Protocol::Unknown => unsupported_protocol(format!("the protocol {shown} is not supported")),
        Protocol::UnknownTls => {
            let mode = objects::shown(mode);
            unsupported_protocol(format!("{shown} with the mode {mode} is not supported"))
        }
        _ if spec.port == 0 => Some(Problem::new("PortUnavailable", "0 is no port")),
        _ => None,
    };
    if !spec.name.split('.').all(|label| objects::is_label(label, 63)) {
        wrong = Some(unsupported("the name of the listener is no DNS subdomain"));
    }
    let host = spec.hostname.as_deref().filter(|host| !host.is_empty()).map(|written| {
        text::host(written).ok_or_else(|| {
            let message = format!("`{}` is not a host name", objects::shown(written));
            wrong.get_or_insert_with(|| unsupported(message));
        })
    });
    let (kinds, mut unresolved) = kinds(protocol, spec);
    let (mut certificates, mut stale) = (Vec::new(), None);
    if wrong.is_none() && matches!(protocol, Protocol::Https | Protocol::TlsTerminate) {
        match certificates_of(cx, set.map_or(Kind::Gateway, |_| Kind::ListenerSet), &meta.namespace, spec) {
            Ok(found) => {
                stale = found.iter().find_map(|pair| pair.stale.clone());
                certificates = found.into_iter().map(|pair| pair.files).collect();
            }
            Err(problem) => unresolved = unresolved.or(Some(problem)),
        }
    }
    let clients = match protocol {
        Protocol::Https => frontend::clients(cx, gateway, spec.port),
        _ => Clients::default(),
    };
    Listener {
        set,
        meta,
        spec,
        host: host.and_then(Result::ok),
        protocol,
        kinds,
        wrong: wrong.or(clients.wrong),
        is_left_out: false,
        conflict: None,
        unresolved: unresolved.or(clients.unresolved),
        clients: clients.setting,
        stale,
        certificates,
        attached: 0,
        weir: None,
        bytes: BTreeMap::new(),
        claims: Claims::default(),
    }
}

/// The kinds of routes that may attach, and whether some were asked for that may not.
fn kinds(protocol: Protocol, spec: &objects::Listener) -> (Vec<Kind>, Option<Problem>) {
    let possible = protocol.kinds();
    let asked = spec.allowed_routes.as_ref().map_or(&[][..], |allowed| &allowed.kinds);
    if asked.is_empty() {
        return (possible.to_vec(), None);
    }
    let mut kinds = Vec::new();
    let mut wrong = None;
    for kind in asked {
        match route_kind(kind.group.as_deref(), &kind.kind).filter(|kind| possible.contains(kind)) {
            Some(kind) if !kinds.contains(&kind) => kinds.push(kind),
            Some(_) => {}
            None => {
                let message = format!(
                    "{} cannot attach to {}",
                    objects::shown(&kind.kind),
                    objects::shown(&spec.protocol)
                );
                wrong = Some(Problem::new(INVALID_KINDS, message));
            }
        }
    }
    (kinds, wrong)
}

fn certificates_of(
    cx: &mut Cx<'_>,
    from: Kind,
    namespace: &str,
    spec: &objects::Listener,
) -> Result<Vec<Pair>, Problem> {
    let refs = spec.tls.as_ref().map_or(&[][..], |tls| &tls.certificate_refs);
    if refs.is_empty() {
        return Err(Problem::new("InvalidCertificateRef", "the listener names no certificate"));
    }
    refs.iter().map(|reference| certificate(cx, from, namespace, reference)).collect()
}

/// A certificate of the config.
pub(super) struct Pair {
    /// Paths of the certificate and the key.
    pub(super) files: (String, String),
    /// The DNS names of the certificate.
    pub(super) names: Arc<[String]>,
    /// Why the Secret as it is now cannot be served.
    pub(super) stale: Option<Problem>,
}

/// Reads the certificate that a Gateway presents to Services. Without it nothing is presented, and those that ask for one
/// refuse.
fn client_certificate(cx: &mut Cx<'_>, gateway: &Name, reference: &CertificateRef) -> Result<(), Problem> {
    let unusable = |problem: Problem| match problem.reason {
        "RefNotPermitted" => problem,
        _ => Problem::new("InvalidClientCertificateRef", problem.message),
    };
    let found = certificate(cx, Kind::Gateway, &gateway.namespace, reference);
    let Pair { files, stale, .. } = found.map_err(unusable)?;
    cx.identities.insert(gateway.clone(), files);
    stale.map_or(Ok(()), |problem| Err(unusable(problem)))
}

/// The certificate in a Secret.
pub(super) fn certificate(
    cx: &mut Cx<'_>,
    from: Kind,
    namespace: &str,
    reference: &CertificateRef,
) -> Result<Pair, Problem> {
    let invalid = |message: String| Problem::new("InvalidCertificateRef", message);
    if !is_kind(reference.group.as_deref(), reference.kind.as_deref(), Kind::Secret, Kind::Secret) {
        return Err(invalid("a certificateRef must refer to a Secret".to_owned()));
    }
    let name = Name::new(reference.namespace.as_deref().unwrap_or(namespace), &reference.name);
    if !cx.granted((from, namespace), (Kind::Secret, &name)) {
        let message = format!("no ReferenceGrant lets this object refer to Secret {name}");
        return Err(Problem::new("RefNotPermitted", message));
    }
    let Some(secret) = cx.lookups.all().certificates.get(&name) else {
        return Err(invalid(format!("there is no Secret {name}")));
    };
    let wrong = |why: &String, hint: &str| invalid(format!("Secret {name} is unusable: {why}{hint}"));
    let Some(good) = &secret.good else {
        return Err(wrong(secret.wrong.as_ref().unwrap_or(&String::new()), ""));
    };
    let stale = secret.wrong.as_ref().map(|why| wrong(why, "; the one before is still served"));
    let files = (cx.config.file("crt", good.cert.as_bytes()), cx.config.file("key", good.key.as_bytes()));
    Ok(Pair { files, names: Arc::clone(&good.names), stale })
}

/// What tells a listener apart: its port, the family of its protocol, and its host.
type Claim = (u16, u8, Option<String>);

/// Marks listeners that nothing tells apart. Within one object all of them conflict; of two objects the first has it, and
/// the other's listener conflicts with none of its own object.
fn conflicts(gate: &mut Gate<'_>) {
    let mut claims: Vec<Claim> = Vec::new();
    let mut at = 0;
    while let Some(first) = gate.listeners.get(at) {
        let same = |listener: &&Listener<'_>| listener.set == first.set;
        let end = at + gate.listeners.get(at..).unwrap_or_default().iter().take_while(same).count();
        let own = gate.listeners.get_mut(at..end).unwrap_or_default();
        for listener in own.iter_mut().filter(|listener| listener.has_claim()) {
            listener.conflict = conflict(&claim(listener), &claims);
        }
        let all: Vec<Option<Claim>> =
            own.iter().map(|listener| listener.has_claim().then(|| claim(listener))).collect();
        for (i, listener) in own.iter_mut().enumerate() {
            let Some(Some(mine)) = all.get(i) else { continue };
            let others = all.iter().enumerate().filter(|(j, _)| *j != i);
            let others: Vec<Claim> = others.filter_map(|(_, other)| other.clone()).collect();
            listener.conflict = conflict(mine, &others);
        }
        claims.extend(own.iter().filter(|listener| listener.has_claim()).map(claim));
        at = end;
    }
}

fn claim(listener: &Listener<'_>) -> Claim {
    (listener.spec.port, listener.protocol.family(), listener.told_apart_by())
}

/// Why a listener cannot stand beside others.
fn conflict((port, family, host): &Claim, others: &[Claim]) -> Option<Problem> {
    let beside = || others.iter().filter(|(other, ..)| other == port);
    if beside().any(|(_, other, _)| other != family) {
        let message = format!("another listener of port {port} has another protocol");
        return Some(Problem::new("ProtocolConflict", message));
    }
    let message = format!("another listener of port {port} has the same hostname");
    let is_twice = beside().any(|(.., other)| other == host);
    is_twice.then(|| Problem::new("HostnameConflict", message))
}

/// Whether a set of namespaces has this one.
pub(super) fn allows(
    cx: &Cx<'_>,
    allowed: Option<&Namespaces>,
    default: From,
    own: &str,
    namespace: &str,
) -> bool {
    match allowed.and_then(|allowed| allowed.from).unwrap_or(default) {
        From::All => true,
        From::None | From::Unknown => false,
        From::Same => own == namespace,
        From::Selector => {
            let labels = cx.lookups.namespace(namespace).map(|n| &n.meta.labels);
            let selector = allowed.and_then(|allowed| allowed.selector.as_ref());
            labels.zip(selector).is_some_and(|(labels, selector)| selects(selector, labels))
        }
    }
}
