//! Entry points as listeners: which routers each serves, and its TLS.
//!
//! An entry point of Traefik serves routers with TLS and without at one port; a listener of Weir has TLS or not. So
//! each entry point becomes one or the other, and routers of the other kind leave it.

use super::cx::{Cx, Kind, list, nothing_else};
use super::fixed::{EntryPoint, Fixed, Resolver, Tls};
use super::routers::Router;
use super::tcp;
use crate::config::{Listener, name_of};
use crate::ledger::Piece;
use crate::shared::families;
use crate::shared::tls as policy;
use crate::shared::tree::{Fields, Node};
use crate::yaml::{Map, Value};
use std::net::SocketAddrV6;

/// The addresses of Traefik that take both families.
pub(super) const BOTH_FAMILIES: &str = "Traefik's `:PORT` and `0.0.0.0:PORT` do";

/// What is known of the listeners.
pub(super) struct Listeners {
    /// Names, in the order of the entry points, and whether they have TLS.
    points: Vec<(String, bool)>,
    /// The entry points of each router, by index.
    members: Vec<Vec<usize>>,
    /// Why a router must be closed.
    closed: Vec<Option<String>>,
    /// The class of each entry point: those of one class serve the same routers in the same way.
    classes: Vec<usize>,
    /// For each entry point, the hosts of its routers with TLS.
    hosts: Vec<TlsHosts>,
}

/// The hosts of HTTP routers with TLS.
#[derive(Clone, Default)]
pub(super) struct TlsHosts {
    pub(super) named: Vec<String>,
    /// Whether a router names no host.
    pub(super) has_any: bool,
}

impl TlsHosts {
    /// Whether an HTTP router names this host, or a wildcard of its one label.
    pub(super) fn has(&self, host: &str) -> bool {
        let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        self.named.iter().any(|named| named == host || Some(named) == wildcard.as_ref())
    }
}

impl Listeners {
    /// The listeners of a router, class by class.
    pub(super) fn classes_of(&self, router: usize) -> Vec<Vec<String>> {
        let mut out: Vec<(usize, Vec<String>)> = Vec::new();
        for point in &self.members[router] {
            let name = self.points[*point].0.clone();
            match out.iter_mut().find(|(class, _)| *class == self.classes[*point]) {
                Some((_, names)) => names.push(name),
                None => out.push((self.classes[*point], vec![name])),
            }
        }
        out.into_iter().map(|(_, names)| names).collect()
    }

    pub(super) fn is_one_class(&self) -> bool {
        self.classes.iter().all(|class| *class == 0)
    }

    pub(super) fn is_tls(&self, class: &[String]) -> bool {
        self.points.iter().any(|(name, is_tls)| *is_tls && class.contains(name))
    }

    /// The hosts of an entry point's HTTP routers; none if it has no TLS.
    pub(super) fn tls_hosts(&self, point: usize) -> TlsHosts {
        self.hosts[point].clone()
    }

    pub(super) fn closed(&self, router: usize) -> Option<&str> {
        self.closed[router].as_deref()
    }
}

/// Makes entry points of the names in routers, if no static config is given.
pub(super) fn complete(cx: &mut Cx<'_, '_>, fixed: &mut Fixed<'_>, routers: &[Router<'_>]) {
    if !fixed.points.is_empty() {
        return;
    }
    let mut names: Vec<String> = Vec::new();
    for (listed, _) in routers.iter().filter_map(|router| router.points.as_ref()) {
        names.extend(listed.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
    }
    for tcp in cx.things.of(Kind::TcpRouter) {
        let mut scratch = crate::ledger::Ledger::default();
        let listed = list(&mut Fields::in_any_case(tcp.node), "entryPoints", &mut scratch);
        names.extend(listed.into_iter().flat_map(|(names, _)| names));
    }
    names.dedup();
    if names.is_empty() {
        names.push("web".to_owned());
        if routers.iter().any(|router| router.tls.is_some()) {
            names.push("websecure".to_owned());
        }
    }
    cx.ledger.note(families::takes_both(BOTH_FAMILIES));
    let mut written = Vec::new();
    for name in names {
        let port = match name.to_ascii_lowercase().as_str() {
            "web" | "http" => 80,
            "websecure" | "web-secure" | "https" => 443,
            _ => continue,
        };
        if fixed.points.iter().any(|point| point.name == name) {
            continue;
        }
        written.push(format!("{name} on :{port}"));
        fixed.points.push(EntryPoint { name, address: format!("[::]:{port}"), ..EntryPoint::default() });
    }
    cx.ledger.note(format!(
        "entry points: no static config is given; by their names, {} (give traefik.yml too)",
        written.join(", ")
    ));
}

/// Decides which entry points serve which routers, and writes the listeners.
pub(super) fn write(
    cx: &mut Cx<'_, '_>,
    fixed: &mut Fixed<'_>,
    routers: &[Router<'_>],
    tcp: &[tcp::Router],
) -> Listeners {
    keep_single_addresses(cx, fixed);
    let mut wanted: Vec<Vec<usize>> = routers.iter().map(|router| wanted(cx, fixed, router)).collect();
    leave_to_tcp(cx, fixed, routers, &mut wanted, tcp);
    let has_default = |point: &EntryPoint| point.tls.is_some();
    let is_tls_there =
        |router: usize, point: usize| routers[router].tls.is_some() || has_default(&fixed.points[point]);
    let kinds: Vec<bool> = (0..fixed.points.len())
        .map(|point| {
            let count = |tls: bool, explicit: bool| {
                let all = (0..routers.len()).filter(|router| wanted[*router].contains(&point));
                all.filter(|router| {
                    is_tls_there(*router, point) == tls && routers[*router].points.is_some() == explicit
                })
                .count()
            };
            let own = &fixed.points[point];
            let port = own.address.rsplit(':').next().unwrap_or_default();
            let by_name = matches!(port, "443" | "8443")
                || ["secure", "https"].iter().any(|word| own.name.to_ascii_lowercase().contains(word));
            match () {
                () if has_default(own) => true,
                () if own.redirect.as_ref().is_some_and(|redirect| redirect.scheme == "https") => false,
                () if count(true, true) > 0 => true,
                () if count(false, true) > 0 => false,
                // Routers for cleartext that do not name the entry point leave it to TCP routers with TLS.
                () if tcp.iter().any(|tcp| tcp.is_on(point) && tcp.has_tls()) => true,
                () if by_name => true,
                () if count(false, false) > 0 => false,
                () => count(true, false) > 0,
            }
        })
        .collect();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (at, router) in routers.iter().enumerate() {
        let mut own: Vec<usize> = Vec::new();
        for point in &wanted[at] {
            if is_tls_there(at, *point) == kinds[*point] {
                own.push(*point);
                continue;
            }
            let name = &fixed.points[*point].name;
            let (has, other) = if kinds[*point] { ("TLS", "cleartext") } else { ("cleartext", "TLS") };
            let why = format!(
                "not on `{name}`: the router is for {other}, the listener speaks {has}; Traefik tells them apart at \
                 one port"
            );
            if let Some(piece) = router.points.as_ref().map(|(_, piece)| *piece).or(router.tls_piece) {
                cx.ledger.changed(piece, why);
            }
        }
        // What the entry point redirects never reaches a router.
        own.retain(|point| {
            fixed.points[*point].redirect.as_ref().is_none_or(|redirect| redirect.priority.is_some())
                || routers[at].points.as_ref().is_some_and(|(names, _)| names.len() == 1)
        });
        members.push(own);
    }
    let mut closed: Vec<Option<String>> = vec![None; routers.len()];
    let names: Vec<(String, bool)> =
        fixed.points.iter().zip(&kinds).map(|(point, kind)| (name_of(&point.name), *kind)).collect();
    let keys: Vec<(Vec<usize>, bool, String)> = (0..fixed.points.len())
        .map(|point| {
            let served = (0..routers.len()).filter(|router| members[*router].contains(&point)).collect();
            let own = &fixed.points[point];
            let middlewares: Vec<&str> = own.middlewares.iter().map(|(name, _)| &**name).collect();
            let alone = if own.redirect.is_some() { own.name.as_str() } else { "" };
            (served, kinds[point], format!("{middlewares:?} {alone}"))
        })
        .collect();
    let classes =
        keys.iter().map(|key| keys.iter().position(|known| known == key).unwrap_or_default()).collect();
    let mut hosts = vec![TlsHosts::default(); fixed.points.len()];
    for (router, points) in routers.iter().zip(&members) {
        for point in points.iter().filter(|point| kinds[**point]) {
            hosts[*point].named.extend(router.hosts.iter().cloned());
            hosts[*point].has_any |= router.hosts.is_empty();
        }
    }
    for (point, kind) in kinds.iter().enumerate() {
        listener(cx, fixed, point, *kind, routers, &members, &mut closed);
    }
    for resolver in fixed.resolvers.iter().filter(|resolver| !resolver.is_used) {
        cx.ledger.left_out(resolver.piece, "no router uses it");
    }
    Listeners { points: names, members, closed, classes, hosts }
}

/// Leaves `[::]:PORT` to IPv4 beside an entry point on one address of IPv6: Weir cannot have both.
fn keep_single_addresses(cx: &mut Cx<'_, '_>, fixed: &mut Fixed<'_>) {
    let single = |point: &EntryPoint| {
        let address = point.address.parse::<SocketAddrV6>().ok()?;
        (!address.ip().is_unspecified()).then_some(address.port())
    };
    let taken: Vec<u16> = fixed.points.iter().filter_map(single).collect();
    for point in &mut fixed.points {
        let port = families::any_ipv6_port(&point.address);
        let Some(port) = port.filter(|port| taken.contains(port)) else { continue };
        point.address = format!("0.0.0.0:{port}");
        if let Some(piece) = point.piece {
            let why = "IPv4 only: another entry point has one address of IPv6 at this port";
            cx.ledger.changed(piece, why);
        }
    }
}

/// Takes HTTP routers without TLS off entry points that have a TCP router without TLS, to which Traefik gives every
/// connection without TLS. Also if that router was refused, because we do not know which connections it takes.
fn leave_to_tcp(
    cx: &mut Cx<'_, '_>,
    fixed: &mut Fixed<'_>,
    routers: &[Router<'_>],
    wanted: &mut [Vec<usize>],
    tcp: &[tcp::Router],
) {
    for (at, point) in fixed.points.iter_mut().enumerate() {
        let Some(taker) = tcp.iter().find(|tcp| tcp.is_on(at) && tcp.takes_cleartext()) else { continue };
        let why = format!(
            "not on `{}`: Traefik gives its connections without TLS to the TCP router `{}` first",
            point.name, taker.name
        );
        if let Some(redirect) = point.redirect.take() {
            cx.ledger.changed(redirect.piece, why.clone());
        }
        for (router, points) in routers.iter().zip(&mut *wanted) {
            if router.tls.is_some() || point.tls.is_some() || !points.contains(&at) {
                continue;
            }
            points.retain(|point| *point != at);
            cx.ledger.changed(router.statement(), why.clone());
        }
    }
}

/// The entry points that a router is for.
fn wanted(cx: &mut Cx<'_, '_>, fixed: &Fixed<'_>, router: &Router<'_>) -> Vec<usize> {
    match &router.points {
        Some((names, piece)) => named(cx, fixed, names, *piece),
        None => by_default(fixed),
    }
}

/// The entry points with these names.
pub(super) fn named(cx: &mut Cx<'_, '_>, fixed: &Fixed<'_>, names: &[String], piece: Piece) -> Vec<usize> {
    let mut out = Vec::new();
    for name in names {
        match fixed.points.iter().position(|point| point.name.eq_ignore_ascii_case(name)) {
            Some(at) => {
                cx.ledger.same(piece);
                out.push(at);
            }
            None => cx.ledger.refused(
                piece,
                format!("the entry point `{name}` is in no file"),
                "give the static config (traefik.yml, or the compose file with Traefik) too",
            ),
        }
    }
    out
}

/// The entry points of a router of HTTP or TCP that names none.
pub(super) fn by_default(fixed: &Fixed<'_>) -> Vec<usize> {
    let has_default = fixed.points.iter().any(|point| point.is_default);
    let is_one = |point: &EntryPoint| if has_default { point.is_default } else { point.name != "traefik" };
    (0..fixed.points.len()).filter(|at| is_one(&fixed.points[*at])).collect()
}

/// Writes one listener.
fn listener(
    cx: &mut Cx<'_, '_>,
    fixed: &mut Fixed<'_>,
    point: usize,
    is_tls: bool,
    routers: &[Router<'_>],
    members: &[Vec<usize>],
    closed: &mut [Option<String>],
) {
    let own = &fixed.points[point];
    let is_used = members.iter().any(|member| member.contains(&point)) || own.redirect.is_some();
    if !is_used {
        return;
    }
    let mut more = own.more.clone();
    if is_tls {
        let users: Vec<(usize, Tls)> = (0..routers.len())
            .filter(|router| members[*router].contains(&point))
            .filter_map(|router| {
                let own = routers[router].tls.clone().or_else(|| fixed.points[point].tls.clone())?;
                Some((router, own))
            })
            .collect();
        let mut tls = Map::new();
        let certificates = certificates(cx);
        if !certificates.is_empty() {
            tls.set("certificates", Value::List(certificates));
        }
        if let Some(acme) = acme(cx, fixed, point, &users, routers) {
            tls.set("acme", acme);
        }
        if tls.is_empty() {
            let pair = Map::new()
                .with("cert", "/etc/weir/certs/default.pem")
                .with("key", "/etc/weir/certs/default.key");
            tls.comment("Traefik shows a certificate that it makes itself: put yours here.");
            tls.set("certificates", vec![pair]);
            for piece in users.iter().filter_map(|(at, _)| routers[*at].tls_piece) {
                cx.ledger.changed(
                    piece,
                    "without a certificate in the files: put yours to /etc/weir/certs/default.pem",
                );
            }
        }
        options(cx, &users, &mut tls, &mut more, closed);
        more.set("tls", tls);
    }
    let own = &fixed.points[point];
    if own.address.is_empty() {
        if let Some(piece) = own.piece {
            cx.ledger.refused(piece, "an entry point without an address", "listeners.NAME.address");
        }
        return;
    }
    let address = Some(own.address.clone());
    cx.config.listeners.add(&own.name, Listener { address, more, ..Listener::default() });
}

/// The certificates of all files, the default one first.
fn certificates(cx: &mut Cx<'_, '_>) -> Vec<Value> {
    let mut nodes: Vec<&Node> = Vec::new();
    let stores = cx.things.of(Kind::Store).to_vec();
    for (at, store) in stores.iter().enumerate() {
        cx.used.insert((Kind::Store, at));
        if store.name != "default" {
            cx.ledger.refused(store.piece, "Traefik uses the store `default` only", "tls.certificates");
            store
                .node
                .each_piece(&mut |piece| cx.ledger.refused(piece, "of a store that Traefik ignores", ""));
            continue;
        }
        cx.ledger.same(store.piece);
        let mut fields = Fields::in_any_case(store.node);
        if let Some((node, piece)) = fields.map("defaultCertificate", cx.ledger) {
            cx.ledger.same(piece);
            nodes.push(node);
        }
        if let Some(entry) = fields.entry("defaultGeneratedCert") {
            entry.each_piece(&mut |piece| {
                cx.ledger.refused(piece, "the default certificate is the first one", "tls.acme.domains");
            });
        }
        nothing_else(fields, "a store", cx.ledger);
    }
    nodes.extend(cx.things.certificates.iter().copied());
    let mut out: Vec<Value> = Vec::new();
    for (at, node) in nodes.into_iter().enumerate() {
        let mut fields = Fields::in_any_case(node);
        let mut pair = Map::new();
        for (key, ours, ending) in [("certFile", "cert", "pem"), ("keyFile", "key", "key")] {
            let Some((text, piece)) = fields.text(key, cx.ledger) else { continue };
            cx.ledger.same(piece);
            if !text.contains("BEGIN") {
                pair.set(ours, text);
                continue;
            }
            cx.ledger.conceal(piece);
            let path = format!("certs/certificate-{}.{ending}", at + 1);
            match ours {
                "key" => _ = cx.config.secret_files.insert(path.clone(), text),
                _ => _ = cx.config.files.insert(path.clone(), text),
            }
            pair.set(ours, path);
        }
        if let Some(entry) = fields.entry("stores") {
            cx.ledger.by_itself(entry.piece, "all listeners with TLS have all certificates");
        }
        nothing_else(fields, "a certificate", cx.ledger);
        if pair.len() == 2 && !out.contains(&Value::Map(pair.clone())) {
            out.push(pair.into());
        }
    }
    out
}

/// The names that a listener orders certificates for.
fn acme(
    cx: &mut Cx<'_, '_>,
    fixed: &mut Fixed<'_>,
    point: usize,
    users: &[(usize, Tls)],
    routers: &[Router<'_>],
) -> Option<Map> {
    let mut chosen: Option<usize> = None;
    let mut domains: Vec<String> = Vec::new();
    for (router, tls) in users {
        let from_point = fixed.points[point].tls.as_ref().and_then(|tls| tls.resolver.clone());
        let Some((name, piece)) = tls.resolver.clone().or(from_point) else { continue };
        let resolver = match fixed.resolvers.iter().position(|resolver| resolver.name == name) {
            Some(at) => at,
            None if fixed.resolvers.is_empty() => {
                cx.ledger.changed(
                    piece,
                    "the static config, which is not given, says how: written as Let's Encrypt by tls-alpn-01",
                );
                fixed.resolvers.push(Resolver { name, acme: Map::new(), piece, is_used: true });
                fixed.resolvers.len() - 1
            }
            None => {
                cx.ledger.refused(piece, format!("the resolver `{name}` is not in the files"), "tls.acme");
                continue;
            }
        };
        if chosen.is_some_and(|chosen| chosen != resolver) {
            cx.ledger.refused(
                piece,
                "one listener orders from one authority",
                "a second listener, or certificates",
            );
            continue;
        }
        chosen = Some(resolver);
        cx.ledger.same(piece);
        let from_point = fixed.points[point].tls.as_ref().map(|tls| tls.domains.clone()).unwrap_or_default();
        let own = if tls.domains.is_empty() { from_point } else { tls.domains.clone() };
        let own = if own.is_empty() { routers[*router].hosts.clone() } else { own };
        domains.extend(own.into_iter().filter(|name| !domains.contains(name)).collect::<Vec<_>>());
    }
    domains.retain(|name| name.contains('.') && !name.contains(['{', '$', ' ']));
    let mut unique: Vec<String> = Vec::new();
    domains.into_iter().for_each(|name| {
        if !unique.contains(&name) {
            unique.push(name);
        }
    });
    let resolver = &mut fixed.resolvers[chosen?];
    resolver.is_used = true;
    if unique.is_empty() {
        cx.ledger.refused(resolver.piece, "no router with this resolver names a host", "tls.acme.domains");
        return None;
    }
    let is_dns = resolver.acme.get("challenge") == Some(&Value::from("dns-01"));
    if !is_dns && unique.iter().any(|name| name.starts_with('*')) {
        let why = "a wildcard is ordered by dns-01 only";
        cx.ledger.refused(resolver.piece, why, "acme: { challenge: dns-01, dns: { exec } }");
        unique.retain(|name| !name.starts_with('*'));
        if unique.is_empty() {
            return None;
        }
    }
    let mut map = Map::new().with("domains", unique);
    resolver.acme.iter().for_each(|(key, value)| map.set(key, value.clone()));
    Some(map)
}

/// The TLS options of a listener: Weir has one set for all hosts.
fn options(
    cx: &mut Cx<'_, '_>,
    users: &[(usize, Tls)],
    tls: &mut Map,
    more: &mut Map,
    closed: &mut [Option<String>],
) {
    let name_of = |tls: &Tls| tls.options.as_ref().map_or("default".to_owned(), |(name, _)| name.clone());
    let first = users.first().map(|(_, tls)| name_of(tls)).unwrap_or_default();
    let agree = users.iter().all(|(_, tls)| name_of(tls) == first);
    let common = if agree { first } else { "default".to_owned() };
    for (router, tls) in users {
        let Some((name, piece)) = &tls.options else { continue };
        let provider = "file";
        let found = cx.find(Kind::Options, name, provider);
        if *name == common {
            match found {
                Ok(_) => cx.ledger.same(*piece),
                Err(_) if name == "default" => cx.ledger.by_itself(*piece, "Weir's own"),
                Err(why) => {
                    cx.ledger.refused(*piece, why.clone(), "listeners.NAME.tls");
                    closed[*router] = Some(format!("its TLS options: {why}"));
                }
            }
            continue;
        }
        let asks = found.as_ref().is_ok_and(|at| {
            let map = cx.things.of(Kind::Options)[*at].node.as_map().unwrap_or_default();
            map.iter().any(|entry| entry.key.eq_ignore_ascii_case("clientAuth"))
        });
        let why = "the options of a listener are those of all its hosts";
        match (found, asks) {
            (Ok(_), false) => cx.ledger.changed(*piece, format!("{why}: `{common}` is written")),
            _ => {
                cx.ledger.refused(*piece, why, "a listener of its own for the host: listeners.NAME.sni");
                closed[*router] = Some(format!("its clients need a certificate, and {why}"));
            }
        }
        let at = cx.things.of(Kind::Options).iter().position(|thing| thing.name == *name);
        if let Some(at) = at {
            let thing = cx.things.of(Kind::Options)[at].clone();
            thing.node.each_piece(&mut |piece| {
                if !cx.ledger.is_judged(piece) {
                    cx.ledger.refused(piece, why, "listeners.NAME.tls");
                }
            });
            if !cx.ledger.is_judged(thing.piece) {
                cx.ledger.same(thing.piece);
            }
        }
    }
    let Ok(at) = cx.find(Kind::Options, &common, "file") else { return };
    let thing = cx.things.of(Kind::Options)[at].clone();
    cx.ledger.same(thing.piece);
    let mut fields = Fields::in_any_case(thing.node);
    if let Some((version, piece)) = fields.text("minVersion", cx.ledger) {
        match version.as_str() {
            "VersionTLS12" => cx.ledger.same(piece),
            "VersionTLS13" => {
                tls.set("min_version", "1.3");
                cx.ledger.same(piece);
            }
            _ => cx.ledger.changed(piece, "TLS 1.2 is the oldest that Weir speaks"),
        }
    }
    if let Some((version, piece)) = fields.text("maxVersion", cx.ledger) {
        match version.as_str() {
            "VersionTLS13" => cx.ledger.same(piece),
            _ => cx.ledger.changed(piece, "Weir always speaks TLS 1.3 too"),
        }
    }
    if let Some((names, piece)) = list(&mut fields, "cipherSuites", cx.ledger) {
        policy::ciphers(names.iter().map(String::as_str), policy::Of::Tls12, tls, piece, cx.ledger);
    }
    if let Some((names, piece)) = list(&mut fields, "curvePreferences", cx.ledger) {
        policy::curves(names.iter().map(String::as_str), tls, piece, cx.ledger);
    }
    if let Some(entry) = fields.entry("preferServerCipherSuites") {
        cx.ledger.changed(entry.piece, "the client's order decides, among ciphers that are all safe");
    }
    if let Some((off, piece)) = fields.flag("disableSessionTickets", cx.ledger) {
        match off {
            true => policy::no_tickets(tls, piece, cx.ledger),
            false => cx.ledger.same(piece),
        }
    }
    if let Some((flag, piece)) = fields.flag("sniStrict", cx.ledger) {
        match flag {
            false => cx.ledger.same(piece),
            true => cx.ledger.changed(piece, "a client whose name has no certificate is shown the first one"),
        }
    }
    if let Some((protocols, piece)) = list(&mut fields, "alpnProtocols", cx.ledger) {
        let ours: Vec<&str> = protocols
            .iter()
            .filter_map(|protocol| match protocol.as_str() {
                "h2" => Some("h2"),
                "http/1.1" => Some("http1"),
                _ => None,
            })
            .collect();
        cx.ledger.same(piece);
        if !ours.is_empty() {
            more.set("protocols", ours);
        }
    }
    if let Some((node, piece)) = fields.map("clientAuth", cx.ledger) {
        cx.ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        let files = list(&mut fields, "caFiles", cx.ledger);
        let kind = fields.text("clientAuthType", cx.ledger);
        nothing_else(fields, "clientAuth", cx.ledger);
        let mode = match kind.as_ref().map(|(kind, _)| kind.as_str()) {
            Some("RequireAndVerifyClientCert") => Some("required"),
            Some("VerifyClientCertIfGiven") => Some("optional"),
            Some("NoClientCert") | None => Some("off"),
            _ => None,
        };
        let ca = files.as_ref().and_then(|(files, _)| files.first().filter(|_| files.len() == 1).cloned());
        if let Some((_, piece)) = &files {
            match ca {
                Some(_) => cx.ledger.same(*piece),
                None => {
                    cx.ledger.refused(*piece, "`ca` names one file", "put all authorities into one PEM file")
                }
            }
        }
        match (mode, ca) {
            (Some("off"), _) => {}
            (Some(mode), Some(ca)) => {
                tls.set("client_auth", Map::new().with("ca", ca).with("mode", mode));
                kind.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
            }
            _ => {
                let why = "Weir verifies every certificate that it asks for";
                kind.iter()
                    .for_each(|(_, piece)| cx.ledger.refused(*piece, why, "tls.client_auth: { ca, mode }"));
                for (router, _) in users {
                    closed[*router] = Some(format!("clientAuth of its TLS options: {why}"));
                }
            }
        }
        kind.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    }
    nothing_else(fields, "TLS options", cx.ledger);
}
