//! TCP routers: a whole port (`HostSNI(`*`)`) as `listeners.NAME.tcp`, hosts by their name in the handshake as `sni`.
//!
//! Traefik asks the routers of one entry point in this order. Without TLS: a TCP router without `tls`, then the HTTP
//! routers without `tls`. With TLS: the HTTP routers that name the host, then a TCP router that names it, then an HTTP
//! router without a host, then a catch-all TCP router. Source: `ServeTCP` of Traefik's TCP router, since 2.7.

use super::cx::{Cx, Kind, list, nothing_else};
use super::fixed::{Fixed, Tls, tls};
use super::listeners::{Listeners, TlsHosts};
use super::rule::{Syntax, branches};
use crate::config::{Endpoint, Listener, Upstream, name_of};
use crate::ledger::Piece;
use crate::shared::networks::network;
use crate::shared::tree::{Fields, Node};
use crate::yaml::{Map, Value};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A TCP router as read.
pub(super) struct Router {
    pub(super) name: String,
    has_tls: bool,
    /// Whether Traefik may give it connections without TLS.
    takes_cleartext: bool,
    points: Vec<usize>,
    piece: Piece,
    /// None if it was refused.
    route: Option<Route>,
}

/// What a router does.
struct Route {
    /// Empty for a catch-all router.
    hosts: Vec<String>,
    passes_through: bool,
    service: (String, Piece),
    provider: &'static str,
    /// The greatest is asked first: the length of the rule, unless it is given.
    priority: i64,
    /// Settings of a listener of its own.
    more: Map,
}

impl Router {
    /// Whether it is on the entry point at this index.
    pub(super) fn is_on(&self, point: usize) -> bool {
        self.points.contains(&point)
    }

    pub(super) const fn has_tls(&self) -> bool {
        self.has_tls
    }

    pub(super) const fn takes_cleartext(&self) -> bool {
        self.takes_cleartext
    }
}

/// Reads all TCP routers.
pub(super) fn read(cx: &mut Cx<'_, '_>, fixed: &Fixed<'_>) -> Vec<Router> {
    let things = cx.things.of(Kind::TcpRouter).to_vec();
    let mut routers = Vec::new();
    for thing in things {
        cx.ledger.same(thing.piece);
        let mut fields = Fields::in_any_case(thing.node);
        let points = match list(&mut fields, "entryPoints", cx.ledger) {
            Some((names, piece)) => super::listeners::named(cx, fixed, &names, piece),
            None => super::listeners::by_default(fixed),
        };
        let tls = fields.entry("tls").and_then(|entry| tls(entry, cx.ledger));
        let mut router = Router {
            name: thing.name.clone(),
            has_tls: tls.is_some(),
            takes_cleartext: tls.is_none(),
            points,
            piece: thing.piece,
            route: None,
        };
        let passes_through = tls.as_ref().is_some_and(|tls| tls.passthrough);
        let made = route(cx, fields, &mut router, thing.provider, passes_through);
        // Traefik does not end the TLS of what it passes through, so options change nothing there.
        let ended = tls.filter(|_| !passes_through);
        match made.and_then(|route| check_options(cx, &router, ended.as_ref()).map(|()| route)) {
            Ok(route) => router.route = Some(route),
            Err((why, piece)) => {
                cx.ledger.refused(piece, why, "listeners.NAME.tcp or listeners.NAME.sni");
            }
        }
        routers.push(router);
    }
    routers
}

/// Writes all TCP routers, after the listeners of HTTP.
pub(super) fn write(cx: &mut Cx<'_, '_>, fixed: &Fixed<'_>, listeners: &Listeners, routers: &[Router]) {
    let mut upstreams: Vec<Option<String>> = Vec::new();
    for router in routers {
        upstreams.push(router.route.as_ref().and_then(|route| {
            let (service, piece) = &route.service;
            match upstream(cx, service, route.provider, 0) {
                Ok(upstream) => {
                    cx.ledger.same(*piece);
                    Some(upstream)
                }
                Err(why) => {
                    cx.ledger.refused(*piece, why, "listeners.NAME.tcp or listeners.NAME.sni");
                    None
                }
            }
        }));
    }
    for (at, point) in fixed.points.iter().enumerate() {
        let on_point = routers.iter().zip(&upstreams).filter(|(router, _)| router.is_on(at));
        let mine: Vec<Mine<'_>> = on_point
            .filter_map(|(router, upstream)| {
                Some(Mine { router, route: router.route.as_ref()?, upstream: upstream.as_deref()? })
            })
            .collect();
        if !mine.is_empty() {
            let hosts = listeners.tls_hosts(at);
            one_port(cx, &point.name, &point.address, &hosts, &mine);
        }
    }
}

/// A router of the port that is being written.
struct Mine<'r> {
    router: &'r Router,
    route: &'r Route,
    upstream: &'r str,
}

type Failed = (String, Piece);

fn route(
    cx: &mut Cx<'_, '_>,
    mut fields: Fields<'_>,
    router: &mut Router,
    provider: &'static str,
    passes_through: bool,
) -> Result<Route, Failed> {
    let own = router.piece;
    let (rule, piece) = fields.text("rule", cx.ledger).ok_or(("a router without a rule".to_owned(), own))?;
    let service = fields.text("service", cx.ledger);
    let middlewares = list(&mut fields, "middlewares", cx.ledger);
    let mut priority = i64::try_from(rule.len()).unwrap_or(i64::MAX);
    if let Some(entry) = fields.entry("priority") {
        let given = entry.node.as_text().and_then(|text| text.parse::<i64>().ok());
        priority = given.filter(|given| *given != 0).unwrap_or(priority);
        let why = "of routers for one name it decides; otherwise an exact name wins, then the longest wildcard, then \
                   `otherwise`";
        cx.ledger.changed(entry.piece, why);
    }
    if let Some(entry) = fields.entry("ruleSyntax") {
        cx.ledger.same(entry.piece);
    }
    router.piece = piece;
    nothing_else(fields, "a TCP router", cx.ledger);
    let fail = |why: String| (why, piece);
    let all = branches(&rule, Syntax::V3).map_err(fail)?;
    let mut hosts = Vec::new();
    for branch in &all {
        match &**branch {
            [one] if one.name == "HostSNI" && !one.is_negated => {
                hosts.extend(one.values.iter().flatten().map(|host| host.to_ascii_lowercase()));
            }
            _ => {
                return Err(fail(
                    "Weir tells connections apart by the name in the handshake only".to_owned(),
                ));
            }
        }
    }
    let is_all = hosts.iter().any(|host| host == "*");
    if hosts
        .iter()
        .any(|host| host.contains(['{', '$']) || host.trim_start_matches("*.").contains('*') && host != "*")
    {
        return Err(fail("a host that is none".to_owned()));
    }
    if !is_all && !router.has_tls {
        router.takes_cleartext = false;
        return Err(fail("a name is known only of connections with TLS".to_owned()));
    }
    cx.ledger.same(piece);
    let mut more = Map::new();
    for name in middlewares.iter().flat_map(|(names, _)| names) {
        let piece = middlewares.as_ref().map_or(own, |(_, piece)| *piece);
        middleware(cx, name, provider, piece, &mut more)?;
    }
    let (service, service_piece) = service.ok_or(("a router without a service".to_owned(), own))?;
    Ok(Route {
        hosts: if is_all { Vec::new() } else { hosts },
        passes_through,
        service: (service, service_piece),
        provider,
        priority,
        more,
    })
}

/// Refuses a router whose clients need a certificate: its listener would let in all others, too. Without a name, the
/// options `default` count.
fn check_options(cx: &mut Cx<'_, '_>, router: &Router, tls: Option<&Tls>) -> Result<(), Failed> {
    let Some(tls) = tls else { return Ok(()) };
    let named = tls.options.as_ref().map_or("default", |(name, _)| name.as_str());
    let name = named.split('@').next().unwrap_or_default();
    let piece = tls.options.as_ref().map_or(router.piece, |(_, piece)| *piece);
    let found = cx.things.of(Kind::Options).iter().find(|thing| thing.name == name);
    let asks = found.is_some_and(|thing| {
        let map = thing.node.as_map().unwrap_or_default();
        map.iter().any(|entry| entry.key.eq_ignore_ascii_case("clientAuth"))
    });
    match (found, &tls.options) {
        _ if asks => {
            let why = format!("its clients need a certificate, as the TLS options `{name}` say");
            Err((why, piece))
        }
        (None, Some(_)) if name != "default" => Err((format!("`{named}` is not in the files"), piece)),
        (_, Some(_)) => {
            cx.ledger.changed(piece, "it has the options of the HTTP routers of its port, or Weir's own");
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

fn middleware(
    cx: &mut Cx<'_, '_>,
    name: &str,
    provider: &'static str,
    piece: Piece,
    more: &mut Map,
) -> Result<(), Failed> {
    let at = cx.find(Kind::TcpMiddleware, name, provider).map_err(|why| (why, piece))?;
    let thing = cx.things.of(Kind::TcpMiddleware)[at].clone();
    cx.ledger.same(piece);
    cx.ledger.same(thing.piece);
    for entry in thing.node.as_map().unwrap_or_default() {
        let mut fields = Fields::in_any_case(&entry.node);
        match entry.key.to_ascii_lowercase().as_str() {
            "ipallowlist" | "ipwhitelist" => {
                cx.ledger.same(entry.piece);
                let Some((texts, piece)) = list(&mut fields, "sourceRange", cx.ledger) else { continue };
                let networks: Result<Vec<String>, String> = texts.iter().map(|text| network(text)).collect();
                more.set("ip", Map::new().with("allow", networks.map_err(|why| (why, piece))?));
                cx.ledger.same(piece);
            }
            "inflightconn" => {
                cx.ledger.changed(entry.piece, "for all clients together");
                if let Some((amount, piece)) = fields.number("amount", cx.ledger) {
                    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
                    more.set("limits", Map::new().with("connections", amount));
                    cx.ledger.same(piece);
                }
            }
            _ => {
                return Err((format!("weir import does not know the middleware {}", entry.key), entry.piece));
            }
        }
        nothing_else(fields, "a TCP middleware", cx.ledger);
    }
    Ok(())
}

/// The upstream of a TCP service.
fn upstream(
    cx: &mut Cx<'_, '_>,
    reference: &str,
    provider: &'static str,
    depth: usize,
) -> Result<String, String> {
    if depth > 4 {
        return Err("services nested too deep".to_owned());
    }
    let at = cx.find(Kind::TcpService, reference, provider)?;
    let thing = cx.things.of(Kind::TcpService)[at].clone();
    cx.ledger.same(thing.piece);
    let mut outer = Fields::in_any_case(thing.node);
    let Some((node, piece)) = outer.map("loadBalancer", cx.ledger) else {
        thing.node.each_piece(&mut |piece| {
            cx.ledger.refused(piece, "bytes go to one upstream, whose endpoints have weights", "endpoints");
        });
        return Err("a service without servers of its own".to_owned());
    };
    cx.ledger.same(piece);
    nothing_else(outer, "a TCP service", cx.ledger);
    let mut fields = Fields::in_any_case(node);
    let mut upstream = Upstream::default();
    let mut is_tls = None;
    let mut servers: Vec<&Node> = Vec::new();
    if let Some((listed, piece)) = fields.list("servers", cx.ledger) {
        cx.ledger.same(piece);
        servers.extend(listed);
    }
    if let Some((one, piece)) = fields.map("server", cx.ledger) {
        cx.ledger.same(piece);
        servers.push(one);
    }
    for server in servers {
        let mut fields = Fields::in_any_case(server);
        let address = fields.text("address", cx.ledger);
        let port = fields.number("port", cx.ledger);
        let flag = fields.flag("tls", cx.ledger);
        nothing_else(fields, "a TCP server", cx.ledger);
        [
            address.as_ref().map(|(_, piece)| *piece),
            port.map(|(_, piece)| piece),
            flag.map(|(_, piece)| piece),
        ]
        .into_iter()
        .flatten()
        .for_each(|piece| cx.ledger.same(piece));
        let flag = flag.is_some_and(|(flag, _)| flag);
        if is_tls.is_some_and(|known| known != flag) {
            return Err("servers with TLS and without".to_owned());
        }
        is_tls = Some(flag);
        let address = match (address, thing.container, port) {
            (Some((address, _)), ..) => address,
            (None, Some(container), Some((port, _))) => format!("{}:{port}", container.name),
            _ => return Err("a server without an address".to_owned()),
        };
        upstream.endpoints.push(Endpoint { address, ..Endpoint::default() });
    }
    if upstream.endpoints.is_empty() {
        return Err(format!("service `{}` has no servers", thing.name));
    }
    upstream.more.set("balancer", "round_robin");
    if is_tls == Some(true) {
        upstream.more.set("tls", Map::new());
    }
    if let Some((node, piece)) = fields.map("proxyProtocol", cx.ledger) {
        cx.ledger.same(piece);
        let version = node.get("version").and_then(Node::as_u64).unwrap_or(2);
        upstream.more.set("proxy_protocol", if version == 1 { "v1" } else { "v2" });
        node.each_piece(&mut |piece| cx.ledger.same(piece));
    }
    for key in ["terminationDelay", "serversTransport"] {
        if let Some(entry) = fields.entry(key) {
            match key {
                "terminationDelay" => {
                    cx.ledger.left_out(entry.piece, "each side may end its half at any time")
                }
                _ => cx.ledger.refused(entry.piece, "by hand", "upstreams.NAME.tls"),
            }
        }
    }
    nothing_else(fields, "a TCP load balancer", cx.ledger);
    Ok(cx.config.upstreams.add(&thing.name, upstream))
}

/// Where bytes go. Traefik waits without limit.
fn bytes_to(upstream: &str) -> Map {
    Map::new().with("upstream", upstream).with("idle", "0s")
}

/// The listeners for one port. `hosts` are those of its HTTP routers with TLS.
fn one_port(cx: &mut Cx<'_, '_>, point: &str, address: &str, hosts: &TlsHosts, routers: &[Mine<'_>]) {
    let name = name_of(point);
    let http = cx.config.listeners.get(&name);
    let (has_http, tls) = (http.is_some(), http.and_then(|http| http.more.get("tls").cloned()));
    let tls = tls.as_ref();
    let whole: Vec<&Mine<'_>> = routers.iter().filter(|mine| mine.route.hosts.is_empty()).collect();
    let mut named: Vec<&Mine<'_>> = routers.iter().filter(|mine| !mine.route.hosts.is_empty()).collect();
    named.sort_by_key(|mine| Reverse(mine.route.priority));
    if let (false, [only], []) = (has_http, &*whole, &*named) {
        let more = settings(only, None);
        cx.config
            .listeners
            .add(point, Listener { address: Some(address.to_owned()), more, ..Listener::default() });
        return;
    }
    let (mut sni, mut claimed) = (Map::new(), BTreeSet::new());
    for mine in &named {
        let (ours, theirs): (Vec<&String>, Vec<&String>) =
            mine.route.hosts.iter().partition(|host| !hosts.has(host));
        for host in theirs {
            let why = format!("`{host}` belongs to an HTTP router with TLS, which Traefik asks first");
            cx.ledger.changed(mine.router.piece, why);
        }
        let (free, taken): (Vec<&String>, Vec<&String>) =
            ours.into_iter().partition(|host| claimed.insert(*host));
        for host in taken {
            let why = format!("`{host}` belongs to a TCP router that Traefik asks before this one");
            cx.ledger.changed(mine.router.piece, why);
        }
        // A router that is refused keeps its names: the next one for them may be open.
        if !mine.route.more.is_empty() {
            cx.ledger.refused(
                mine.router.piece,
                "middlewares of a name among others at one port",
                "listeners.NAME.ip",
            );
            continue;
        }
        if free.is_empty() {
            continue;
        }
        let target = target(cx, point, mine, tls);
        free.into_iter().for_each(|host| sni.set(host.clone(), target.clone()));
    }
    let to_http = || Map::new().with("listener", name.clone());
    let otherwise = match (has_http, &*whole) {
        (true, []) => Some(to_http()),
        (false, []) => None,
        // Hosts of HTTP go to HTTP by name, and all others to the catch-all router.
        (_, [only]) if only.route.more.is_empty() && is_fallback(only, has_http, hosts) => {
            hosts.named.iter().for_each(|host| sni.set(host.clone(), to_http()));
            if only.router.has_tls && only.route.passes_through {
                let why = "it gets connections without TLS, too, which Traefik does not pass to it";
                cx.ledger.changed(only.router.piece, why);
            } else if !only.router.has_tls {
                let why = "it gets connections with TLS for other names, too, which Traefik answers with 404";
                cx.ledger.changed(only.router.piece, why);
            }
            Some(target(cx, point, only, tls))
        }
        _ => {
            whole.iter().for_each(|mine| {
                cx.ledger.refused(
                    mine.router.piece,
                    "another router takes all other connections of this port",
                    "a port of its own",
                );
            });
            has_http.then(to_http)
        }
    };
    // A wildcard leaves the exact hosts of HTTP to HTTP.
    let wildcards: Vec<String> =
        sni.iter().filter_map(|(host, _)| Some(host.strip_prefix('*')?.to_owned())).collect();
    for host in &hosts.named {
        if wildcards.iter().any(|ending| host.ends_with(ending.as_str())) {
            sni.set(host.clone(), to_http());
        }
    }
    if sni.is_empty() {
        return;
    }
    if let Some(http) = cx.config.listeners.get_mut(&name) {
        http.address = None;
        let which =
            if otherwise == Some(to_http()) { "that are for no name there" } else { "for its own names" };
        http.comment.push(format!("Gets the connections of `{name}-port` {which}."));
    }
    let mut more = Map::new().with("sni", Value::Map(sni));
    more.set_some("otherwise", otherwise);
    let wish = if has_http { format!("{name}-port") } else { name };
    cx.config
        .listeners
        .add(&wish, Listener { address: Some(address.to_owned()), more, ..Listener::default() });
}

/// Whether a catch-all router can get every connection whose name is not listed. Beside HTTP it must have TLS, and each
/// HTTP router must name its hosts: otherwise Traefik gives some of these connections to HTTP.
fn is_fallback(mine: &Mine<'_>, has_http: bool, hosts: &TlsHosts) -> bool {
    !has_http || (mine.router.has_tls && !hosts.named.is_empty() && !hosts.has_any)
}

/// The settings of a listener of its own. `tls` is that of the HTTP listener at the port.
fn settings(mine: &Mine<'_>, tls: Option<&Value>) -> Map {
    let mut more = mine.route.more.clone();
    if mine.router.has_tls && !mine.route.passes_through {
        let pair =
            Map::new().with("cert", "/etc/weir/certs/default.pem").with("key", "/etc/weir/certs/default.key");
        let usual = || Map::new().with("certificates", vec![pair]).into();
        let mut tls = tls.cloned().unwrap_or_else(usual);
        if let Value::Map(tls) = &mut tls {
            // It is of the options of the HTTP routers. A TCP router that asks for certificates was refused.
            tls.remove("client_auth");
        }
        more.set("tls", tls);
    }
    more.set("tcp", bytes_to(mine.upstream));
    more
}

/// Where `sni` or `otherwise` sends the connections of a router.
fn target(cx: &mut Cx<'_, '_>, point: &str, mine: &Mine<'_>, tls: Option<&Value>) -> Map {
    if mine.route.passes_through || !mine.router.has_tls {
        return bytes_to(mine.upstream);
    }
    let inner = Listener { more: settings(mine, tls), ..Listener::default() };
    let inner = cx.config.listeners.add(&format!("{point}-{}", mine.router.name), inner);
    Map::new().with("listener", inner)
}
