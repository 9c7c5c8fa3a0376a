//! Servers: where they listen, what they are called, and who takes a request that names nobody.

use super::block::Block;
use super::context::Cx;
use super::read::Directive;
use crate::config::Listener;
use crate::shared::families::left_out;
use crate::shared::regex::{Searching, Subject};
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::rc::Rc;

/// A block `server`.
pub(super) struct Server<'a> {
    pub(super) directive: &'a Directive,
    pub(super) block: Rc<Block<'a>>,
    pub(super) listens: Vec<Listen>,
    /// Its names as Weir's hosts; empty if it has none.
    pub(super) hosts: Vec<String>,
    /// Its names as written, for `$server_name`.
    pub(super) first_name: String,
    /// A name that Weir cannot take.
    pub(super) refused_name: bool,
    /// For routes and files.
    pub(super) label: String,
}

/// A directive `listen`.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    /// `0.0.0.0:80`, `[::]:80` or `unix:/path`.
    pub(super) address: String,
    pub(super) port: Option<u16>,
    pub(super) is_ssl: bool,
    pub(super) is_default: bool,
    has_http2: bool,
    has_proxy_protocol: bool,
}

/// The listeners of all servers.
pub(super) struct Listeners {
    /// Our name by address.
    pub(super) names: BTreeMap<String, String>,
    /// The server that takes unknown hosts, by address.
    pub(super) defaults: BTreeMap<String, usize>,
}

impl<'a> Server<'a> {
    pub(super) fn new(cx: &mut Cx<'a, '_>, directive: &'a Directive, http: &Rc<Block<'a>>) -> Self {
        let block = Block::new(directive.block.iter().flatten(), Some(Rc::clone(http)));
        let mut listens = Vec::new();
        for listen in block.own("listen") {
            listens.extend(read_listen(cx, listen, &block));
        }
        if listens.is_empty() && block.own("listen").is_empty() {
            listens.push(Listen {
                address: "0.0.0.0:80".to_owned(),
                port: Some(80),
                is_ssl: false,
                is_default: false,
                has_http2: false,
                has_proxy_protocol: false,
            });
        }
        let mut server = Self {
            directive,
            block,
            listens,
            hosts: Vec::new(),
            first_name: String::new(),
            refused_name: false,
            label: String::new(),
        };
        server.read_names(cx);
        let named = server.hosts.iter().find(|host| !host.starts_with('~')).or_else(|| server.hosts.first());
        server.label = match named {
            Some(host) => host.trim_start_matches("*.").trim_end_matches(".*").to_owned(),
            None => "default".to_owned(),
        };
        server
    }

    /// The named groups of its names, which Weir's routes capture as well.
    pub(super) fn captures(&self) -> BTreeSet<String> {
        let compiled = |pattern: &str| regex::bytes::RegexBuilder::new(pattern).unicode(false).build().ok();
        let patterns = self.hosts.iter().filter_map(|host| compiled(host.strip_prefix('~')?));
        patterns
            .flat_map(|pattern| pattern.capture_names().flatten().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    fn read_names(&mut self, cx: &mut Cx<'a, '_>) {
        let names = self.block.own("server_name").to_vec();
        for directive in names {
            cx.ledger.same(directive.piece);
            for name in &directive.args {
                if self.first_name.is_empty() && !name.starts_with('~') {
                    self.first_name = name.trim_start_matches('.').to_owned();
                }
                let name = name.to_ascii_lowercase();
                match &*name {
                    "_" | "" | "__" | "--" | "!@#" => {
                        if name.is_empty() {
                            cx.ledger.changed(directive.piece, "Weir refuses requests without a host");
                        }
                    }
                    "localhost" => self.hosts.push(name),
                    _ if name.contains('$') && !name.starts_with('~') => {
                        self.refused_name = true;
                        let why = "the name has a variable: this is a template, not a config";
                        cx.ledger.refused(directive.piece, why, "import what the template makes");
                    }
                    _ if name.starts_with('~') => {
                        let raw = directive.args.iter().find(|raw| raw.to_ascii_lowercase() == name);
                        let pattern = raw.map_or("", |raw| raw.trim_start_matches('~'));
                        match Searching::read(pattern, true, Subject::Text) {
                            Ok(read) => self.hosts.push(format!("~{}", read.whole())),
                            Err(why) => {
                                self.refused_name = true;
                                cx.ledger.refused(directive.piece, why, "hosts of a route");
                            }
                        }
                    }
                    _ if name.starts_with('.') => {
                        self.hosts.push(name.trim_start_matches('.').to_owned());
                        self.hosts.push(format!("*{name}"));
                    }
                    _ if is_host(&name) => self.hosts.push(name),
                    _ if name.parse::<std::net::Ipv6Addr>().is_ok() => self.hosts.push(format!("[{name}]")),
                    _ => {
                        let why = format!("`{name}` is no host that a request can name, so it takes none");
                        cx.ledger.changed(directive.piece, why);
                    }
                }
            }
        }
        let mut seen = BTreeSet::new();
        self.hosts.retain(|host| seen.insert(host.clone()));
    }

    /// The port, if all listeners have the same.
    pub(super) fn port(&self) -> Option<u16> {
        let ports: BTreeSet<_> = self.listens.iter().map(|listen| listen.port).collect();
        ports
            .into_iter()
            .next()
            .flatten()
            .filter(|_| self.listens.iter().all(|l| l.port == self.listens[0].port))
    }

    /// The scheme, if all listeners have the same.
    pub(super) fn scheme(&self) -> Option<&'static str> {
        let schemes: BTreeSet<bool> = self.listens.iter().map(|listen| listen.is_ssl).collect();
        match schemes.len() {
            1 => Some(if schemes.contains(&true) { "https" } else { "http" }),
            _ => None,
        }
    }
}

fn is_host(name: &str) -> bool {
    let inner = name.strip_prefix("*.").unwrap_or(name);
    let inner = inner.strip_suffix(".*").unwrap_or(inner).trim_end_matches('.');
    !inner.is_empty()
        && inner.split('.').all(|label| {
            !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        })
}

fn read_listen<'a>(cx: &mut Cx<'a, '_>, directive: &'a Directive, block: &Block<'a>) -> Option<Listen> {
    let piece = directive.piece;
    let text = directive.first();
    let (address, port) = match listen_address(text) {
        Ok(read) => read,
        Err(why) => {
            cx.ledger.refused(piece, why, "listeners.NAME.address");
            return None;
        }
    };
    let mut listen = Listen {
        address,
        port,
        is_ssl: block.is_on("ssl"),
        is_default: false,
        has_http2: block.is_on("http2"),
        has_proxy_protocol: false,
    };
    cx.ledger.same(piece);
    for name in ["ssl", "http2"] {
        block.own(name).iter().for_each(|directive| cx.ledger.same(directive.piece));
    }
    for word in directive.args.iter().skip(1) {
        match word.split('=').next().unwrap_or(word) {
            "ssl" => listen.is_ssl = true,
            "default_server" | "default" => listen.is_default = true,
            "http2" | "spdy" => listen.has_http2 = true,
            "proxy_protocol" => {
                listen.has_proxy_protocol = true;
                let why = "Weir takes the PROXY header from trusted_proxies only: name the balancer there";
                cx.ledger.changed(piece, why);
            }
            "reuseport" | "deferred" | "fastopen" | "backlog" | "rcvbuf" | "sndbuf" | "bind"
            | "so_keepalive" | "setfib" | "accept_filter" => {
                cx.ledger.by_itself(piece, "Weir chooses its socket's options itself");
            }
            // Whatever it says, Weir's `[::]` serves both families: see `join_families`.
            "ipv6only" => {}
            "quic" => {
                let why = "HTTP/3: write `protocols: [h3, h2, http1]` at the listener; until then browsers use HTTP/2";
                cx.ledger.left_out(piece, why);
                return None;
            }
            other => {
                let why = format!("`{other}` is unknown");
                cx.ledger.refused(piece, why, "listeners.NAME");
            }
        }
    }
    Some(listen)
}

/// `80`, `*:80`, `10.0.0.1:80`, `[::]:80`, `localhost:80`, `unix:/path` as an address of Weir.
fn listen_address(text: &str) -> Result<(String, Option<u16>), String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok((format!("unix:{}", path.trim_end_matches(':')), None));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok((format!("0.0.0.0:{port}"), Some(port)));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.ends_with(']') => {
            let port = port.parse::<u16>().map_err(|_| format!("`{text}` has no port that is a number"))?;
            (host, port)
        }
        _ => (text, 80),
    };
    let host = match host {
        "*" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(address)) => Ok((format!("{address}:{port}"), Some(port))),
        Ok(std::net::IpAddr::V6(address)) => Ok((format!("[{address}]:{port}"), Some(port))),
        Err(_) => Err(format!("`{text}`: Weir listens on addresses, not on names")),
    }
}

/// Joins `0.0.0.0:80` and `[::]:80` into `[::]:80`. nginx binds them separately; Weir's `[::]:80` serves both families,
/// so `weir check` refuses a config with both. If the two differ in TLS, HTTP/2 or the PROXY header, only IPv4 is kept.
/// The report says where nginx binds `[::]` for IPv6 only.
pub(super) fn join_families<'a>(cx: &mut Cx<'a, '_>, servers: &mut [Server<'a>]) {
    let all = || servers.iter().flat_map(|server| &server.listens);
    let ports: BTreeSet<u16> = all().filter_map(|listen| listen.port).collect();
    let options = |address: &str| {
        let mut found: Option<(bool, bool, bool)> = None;
        for listen in all().filter(|listen| listen.address == address) {
            let (tls, h2, proxy) = found.unwrap_or_default();
            found = Some((tls || listen.is_ssl, h2 || listen.has_http2, proxy || listen.has_proxy_protocol));
        }
        // With TLS, HTTP/2 is always on.
        found.map(|(tls, h2, proxy)| (tls, h2 && !tls, proxy))
    };
    let (mut joined, mut only_ipv6, mut apart) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for port in ports {
        let (ipv4, ipv6) = (options(&format!("0.0.0.0:{port}")), options(&format!("[::]:{port}")));
        if ipv4.is_some() && ipv4 == ipv6 {
            // Joined, the first of the two would have both families, whoever the other keeps out.
            let (of_ipv4, of_ipv6) =
                (owners(servers, &format!("0.0.0.0:{port}")), owners(servers, &format!("[::]:{port}")));
            if of_ipv4.iter().any(|(host, at)| of_ipv6.get(host).is_some_and(|other| other != at)) {
                apart.push((
                    port,
                    "a name has one server for IPv4 and another for IPv6 at this port",
                    SAME_SERVERS,
                ));
            } else {
                joined.insert(port);
            }
        } else if let Some(ipv6) = ipv6 {
            let is_of_one =
                |listen: &Listen| listen.port == Some(port) && listen.address.parse::<SocketAddrV4>().is_ok();
            match ipv4 {
                // Left to `[::]`, clients of that address would get the servers of IPv6.
                None if all().any(is_of_one) => {
                    apart.push((port, "a server listens on one address of IPv4 at this port", SAME_SERVERS));
                }
                None => _ = only_ipv6.insert(format!("[::]:{port}")),
                Some(ipv4) => apart.push((port, difference(ipv4, ipv6), SAME_OPTIONS)),
            }
        }
    }
    for (port, what, remedy) in apart {
        leave_ipv6_out(cx, servers, port, what, remedy);
    }
    tell_only_ipv6(cx, servers, &only_ipv6);
    for port in joined {
        join(cx, servers, &format!("0.0.0.0:{port}"), &format!("[::]:{port}"));
    }
}

/// The server of each name on an address, by index: the first.
fn owners<'s>(servers: &'s [Server<'_>], address: &str) -> BTreeMap<&'s str, usize> {
    let mut found = BTreeMap::new();
    for (at, server) in servers.iter().enumerate() {
        if server.listens.iter().any(|listen| listen.address == address) {
            for host in &server.hosts {
                found.entry(host.as_str()).or_insert(at);
            }
        }
    }
    found
}

/// How the listeners of both families at one port differ. Each triple is TLS, HTTP/2, the PROXY header.
const fn difference(ipv4: (bool, bool, bool), ipv6: (bool, bool, bool)) -> &'static str {
    match () {
        () if ipv4.0 && !ipv6.0 => "IPv4 has TLS (`ssl`) at this port and IPv6 has not",
        () if ipv4.0 != ipv6.0 => "IPv6 has TLS (`ssl`) at this port and IPv4 has not",
        () if ipv4.2 != ipv6.2 => "`proxy_protocol` is on for one family at this port and off for the other",
        () => "`http2` is on for one family at this port and off for the other",
    }
}

/// What to do where the families differ in options, and where they differ in servers.
const SAME_OPTIONS: &str = "write the same options in both `listen` lines";
const SAME_SERVERS: &str = "let the same servers listen for both families";

/// Refuses `[::]` at a port where IPv4 has other settings or servers, because Weir's `[::]` would serve IPv4 with those of IPv6.
fn leave_ipv6_out(cx: &mut Cx<'_, '_>, servers: &mut [Server<'_>], port: u16, what: &str, remedy: &str) {
    let address = format!("[::]:{port}");
    for server in servers {
        for listen in server.block.own("listen") {
            if listen_address(listen.first()).is_ok_and(|(own, _)| own == address) {
                let why = left_out(what, &address, "IPv6 clients");
                let nearest = format!(
                    "{remedy} and import again, or listen on an address of the machine, such as `[2001:db8::1]:443`"
                );
                cx.ledger.refused(listen.piece, why, nearest);
            }
        }
        server.listens.retain(|listen| listen.address != address);
    }
}

/// Reports that clients of IPv4 reach servers on these addresses too, unless one `listen` lets them in nginx.
fn tell_only_ipv6(cx: &mut Cx<'_, '_>, servers: &[Server<'_>], addresses: &BTreeSet<String>) {
    let mut told = Vec::new();
    let mut dual = BTreeSet::new();
    for server in servers {
        for listen in server.block.own("listen") {
            let Ok((address, _)) = listen_address(listen.first()) else { continue };
            if listen.args.iter().any(|word| word == "ipv6only=off") {
                dual.insert(address);
            } else if addresses.contains(&address) {
                told.push((address, listen.piece));
            }
        }
    }
    for (_, piece) in told.into_iter().filter(|(address, _)| !dual.contains(address)) {
        let why = "nginx takes IPv6 only here; Weir's listener takes clients of IPv4 too";
        cx.ledger.changed(piece, why);
    }
}

/// Moves the servers on `ipv4` to `ipv6`, and reports which of them then get other requests. The default server of
/// `ipv4` becomes that of both.
fn join<'a>(cx: &mut Cx<'a, '_>, servers: &mut [Server<'a>], ipv4: &str, ipv6: &str) {
    // The server that is marked as the default one, or else the first.
    let default = |address: &str| {
        let mut on = servers.iter().enumerate().flat_map(|(at, server)| {
            server
                .listens
                .iter()
                .filter(move |listen| listen.address == address)
                .map(move |listen| (at, listen))
        });
        let first = on.clone().next().map(|(at, _)| at);
        on.find(|(_, listen)| listen.is_default).map(|(at, _)| at).or(first)
    };
    let (default_ipv4, default_ipv6) = (default(ipv4), default(ipv6));
    for (at, server) in servers.iter_mut().enumerate() {
        let listens_on = |address: &str| server.listens.iter().any(|listen| listen.address == address);
        let why = match (listens_on(ipv4), listens_on(ipv6)) {
            (false, false) => continue,
            (true, true) if default_ipv4 != default_ipv6 && default_ipv6 == Some(at) => Some(
                "Weir has one listener for both families: unknown hosts go to the default server of IPv4",
            ),
            (true, true) => None,
            (false, true) if default_ipv4 != default_ipv6 && default_ipv6 == Some(at) => Some(
                "Weir has one listener for both families: clients of both reach this server, but unknown hosts go to \
                 the default server of IPv4",
            ),
            _ => Some("Weir has one listener for both families: clients of both reach this server"),
        };
        if let Some((listen, why)) = server.block.own("listen").first().zip(why) {
            cx.ledger.changed(listen.piece, why);
        }
        let has_any = |is: fn(&Listen) -> bool| {
            server.listens.iter().any(|one| (one.address == ipv4 || one.address == ipv6) && is(one))
        };
        let is_ssl = has_any(|one| one.is_ssl);
        let has_http2 = has_any(|one| one.has_http2);
        let has_proxy_protocol = has_any(|one| one.has_proxy_protocol);
        let mut is_joined = false;
        server.listens.retain_mut(|listen| {
            if listen.address != ipv4 && listen.address != ipv6 {
                return true;
            }
            ipv6.clone_into(&mut listen.address);
            listen.is_default = default_ipv4 == Some(at);
            (listen.is_ssl, listen.has_http2) = (is_ssl, has_http2);
            listen.has_proxy_protocol = has_proxy_protocol;
            !std::mem::replace(&mut is_joined, true) // keeps the first of the two
        });
    }
}

/// Makes the listeners of all servers.
pub(super) fn listeners<'a>(cx: &mut Cx<'a, '_>, servers: &[Server<'a>]) -> Listeners {
    let mut names = BTreeMap::new();
    let mut defaults: BTreeMap<String, usize> = BTreeMap::new();
    let mut order: Vec<&Listen> = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        for listen in &server.listens {
            if !order.iter().any(|known| known.address == listen.address) {
                order.push(listen);
                defaults.insert(listen.address.clone(), at);
            } else if listen.is_default {
                defaults.insert(listen.address.clone(), at);
            }
        }
    }
    for listen in order {
        let all: Vec<&Listen> = servers
            .iter()
            .flat_map(|server| &server.listens)
            .filter(|other| other.address == listen.address)
            .collect();
        let is_ssl = all.iter().any(|listen| listen.is_ssl);
        let default = defaults.get(&listen.address).copied();
        let mut made = Listener { address: Some(listen.address.clone()), ..Listener::default() };
        if all.iter().any(|listen| listen.has_http2) && !is_ssl {
            made.more.set("protocols", vec!["http1", "h2"]);
        }
        if all.iter().any(|listen| listen.has_proxy_protocol) {
            made.more.set("proxy_protocol", true);
        }
        if let Some(merge) = default.and_then(|at| servers[at].block.one("merge_slashes")) {
            if merge.first() == "off" {
                made.more.set("slashes", "keep");
            }
            cx.ledger.same(merge.piece);
        }
        if is_ssl {
            let tls = tls(cx, servers, &listen.address, default);
            made.more.set("tls", tls);
        }
        timeouts(cx, servers, &listen.address, default, &mut made);
        let kind = if is_ssl { "secure" } else { "web" };
        let is_usual = listen.port == Some(if is_ssl { 443 } else { 80 });
        let host = listen.address.rsplit_once(':').map_or("", |(host, _)| host);
        let mut name = kind.to_owned();
        if host != "0.0.0.0" && host != "[::]" && listen.port.is_some() {
            name = format!("{name}-{host}");
        }
        if let Some(port) = listen.port.filter(|_| !is_usual) {
            name = format!("{name}-{port}");
        }
        names.insert(listen.address.clone(), cx.config.listeners.add(&name, made));
    }
    Listeners { names, defaults }
}

/// The servers on an address, its default one first.
fn on<'s, 'a>(
    servers: &'s [Server<'a>],
    address: &str,
    default: Option<usize>,
) -> impl Iterator<Item = &'s Server<'a>> {
    let first = default.and_then(|at| servers.get(at));
    let rest =
        servers.iter().enumerate().filter(move |(at, _)| Some(*at) != default).map(|(_, server)| server);
    let address = address.to_owned();
    first
        .into_iter()
        .chain(rest)
        .filter(move |server| server.listens.iter().any(|listen| listen.address == address))
}

fn tls<'a>(cx: &mut Cx<'a, '_>, servers: &[Server<'a>], address: &str, default: Option<usize>) -> Map {
    let mut certificates: Vec<Value> = Vec::new();
    let mut tls = Map::new();
    let mut oldest = None;
    let mut auth: Option<(Option<&Directive>, &Directive)> = None;
    let mut without_auth = false;
    for server in on(servers, address, default) {
        let (certs, keys) =
            (server.block.nearest("ssl_certificate"), server.block.nearest("ssl_certificate_key"));
        for (cert, key) in certs.iter().zip(&keys) {
            if cert.first().contains('$') || cert.first().starts_with("data:") || key.first().contains(':') {
                let why = "the certificate is chosen by a variable, or by an engine";
                cx.ledger.refused(cert.piece, why, "list the certificates: Weir chooses by the name (SNI)");
                continue;
            }
            cx.ledger.same(cert.piece);
            cx.ledger.same(key.piece);
            let map = Map::new().with("cert", absolute(cert.first())).with("key", absolute(key.first()));
            if !certificates.contains(&map.clone().into()) {
                certificates.push(map.into());
            }
        }
        if let Some(protocols) = server.block.one("ssl_protocols") {
            let is_old =
                protocols.args.iter().any(|word| ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1"].contains(&&**word));
            if is_old {
                cx.ledger.changed(protocols.piece, "Weir speaks TLS 1.2 and 1.3 only");
            } else {
                cx.ledger.same(protocols.piece);
            }
            let only_13 = protocols.args.iter().all(|word| word == "TLSv1.3");
            oldest = Some(oldest.unwrap_or(true) && only_13);
        } else {
            oldest = Some(false);
        }
        match server.block.one("ssl_verify_client").filter(|verify| verify.first() != "off") {
            Some(verify) => auth = Some((server.block.one("ssl_client_certificate"), verify)),
            None => without_auth = true,
        }
    }
    if certificates.is_empty() {
        tls.comment("nginx's config names no certificate for this address.");
    }
    tls.set("certificates", Value::List(certificates));
    if oldest == Some(true) {
        tls.set("min_version", "1.3");
    }
    super::tls::policy(cx, on(servers, address, default), &mut tls);
    if let Some((ca, verify)) = auth {
        match ca {
            Some(ca) if verify.first() != "optional_no_ca" => {
                cx.ledger.same(ca.piece);
                let mut map = Map::new().with("ca", absolute(ca.first()));
                // A listener asks for all its names: a stricter one would lock out the clients of others.
                let is_optional = verify.first() == "optional" || without_auth;
                if is_optional {
                    map.set("mode", "optional");
                }
                tls.set("client_auth", map);
                if without_auth {
                    let why = "a listener of Weir asks all its clients for a certificate, whatever name they ask \
                               for; the routes of this server are closed to clients without one";
                    cx.ledger.changed(verify.piece, why);
                } else {
                    cx.ledger.same(verify.piece);
                }
            }
            _ => {
                let why = "Weir accepts only certificates of a known authority";
                cx.ledger.refused(verify.piece, why, "listeners.NAME.tls.client_auth: { ca: FILE }");
            }
        }
    }
    tls
}

fn timeouts<'a>(
    cx: &mut Cx<'a, '_>,
    servers: &[Server<'a>],
    address: &str,
    default: Option<usize>,
    made: &mut Listener,
) {
    let mut timeouts = Map::new();
    let known = [
        ("client_header_timeout", "head", 60_000_u64),
        ("client_body_timeout", "body", 60_000),
        ("keepalive_timeout", "keepalive", 75_000),
    ];
    for (name, key, nginx) in known {
        // One listener has one value: nginx too takes that of the default server before it knows the name.
        let found = on(servers, address, default).find_map(|server| server.block.one(name));
        for server in on(servers, address, default) {
            let Some(directive) = server.block.one(name) else { continue };
            match found {
                Some(found) if found.args == directive.args => cx.ledger.same(directive.piece),
                _ => cx.ledger.changed(directive.piece, "a listener of Weir has one value for all its names"),
            }
        }
        let Some(found) = found else { continue };
        match read_duration(found.first(), 1000) {
            Some(ms) if ms != nginx || key != "keepalive" => timeouts.set(key, duration(ms)),
            Some(_) => {}
            None => cx.ledger.refused(found.piece, "the time cannot be read", "listeners.NAME.timeouts"),
        }
    }
    if !timeouts.is_empty() {
        made.more.set("timeouts", timeouts);
    }
}

/// A path of nginx as an absolute one: it is relative to nginx's own folder.
pub(super) fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/etc/nginx/{path}") }
}
