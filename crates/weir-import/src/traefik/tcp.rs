//! TCP routers: a whole port (`HostSNI(`*`)`) as `listeners.NAME.tcp`, hosts by their name in the handshake as `sni`.

use super::cx::{Cx, Kind, list, nothing_else};
use super::fixed::{Fixed, tls};
use super::rule::{Syntax, branches};
use crate::config::{Endpoint, Listener, Upstream, name_of};
use crate::ledger::Piece;
use crate::shared::networks::network;
use crate::shared::tree::{Fields, Node};
use crate::yaml::{Map, Value};

/// A TCP router as read.
struct Router {
    name: String,
    /// Hosts; none for all.
    hosts: Vec<String>,
    has_tls: bool,
    passes_through: bool,
    upstream: String,
    points: Vec<usize>,
    /// Settings of a listener of its own.
    more: Map,
    piece: Piece,
}

/// Translates all TCP routers, after the listeners of HTTP are written.
pub(super) fn write(cx: &mut Cx<'_, '_>, fixed: &Fixed<'_>) {
    let things = cx.things.of(Kind::TcpRouter).to_vec();
    let mut routers = Vec::new();
    for thing in things {
        cx.ledger.same(thing.piece);
        match read(cx, fixed, thing.node, &thing.name, thing.provider, thing.piece) {
            Ok(router) => routers.push(router),
            Err((why, piece)) => {
                cx.ledger.refused(piece, why, "listeners.NAME.tcp or listeners.NAME.sni");
            }
        }
    }
    for (at, point) in fixed.points.iter().enumerate() {
        let mine: Vec<&Router> = routers.iter().filter(|router| router.points.contains(&at)).collect();
        if !mine.is_empty() {
            one_port(cx, &point.name, &point.address, &mine);
        }
    }
}

type Failed = (String, Piece);

fn read(
    cx: &mut Cx<'_, '_>,
    fixed: &Fixed<'_>,
    node: &Node,
    name: &str,
    provider: &'static str,
    own: Piece,
) -> Result<Router, Failed> {
    let mut fields = Fields::in_any_case(node);
    let (rule, piece) = fields.text("rule", cx.ledger).ok_or(("a router without a rule".to_owned(), own))?;
    let points = list(&mut fields, "entryPoints", cx.ledger);
    let service = fields.text("service", cx.ledger);
    let middlewares = list(&mut fields, "middlewares", cx.ledger);
    if let Some(entry) = fields.entry("priority") {
        cx.ledger.by_itself(entry.piece, "an exact name wins, then the longest wildcard, then `otherwise`");
    }
    if let Some(entry) = fields.entry("ruleSyntax") {
        cx.ledger.same(entry.piece);
    }
    let tls = fields.entry("tls").and_then(|entry| tls(entry, cx.ledger));
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
    if !is_all && tls.is_none() {
        return Err(fail("a name is known only of connections with TLS".to_owned()));
    }
    cx.ledger.same(piece);
    let mut indices = Vec::new();
    match &points {
        Some((names, piece)) => {
            for name in names {
                match fixed.points.iter().position(|point| point.name.eq_ignore_ascii_case(name)) {
                    Some(at) => {
                        indices.push(at);
                        cx.ledger.same(*piece);
                    }
                    None => cx.ledger.refused(
                        *piece,
                        format!("the entry point `{name}` is in no file"),
                        "give the static config (traefik.yml) too",
                    ),
                }
            }
        }
        None => indices.extend((0..fixed.points.len()).filter(|at| fixed.points[*at].name != "traefik")),
    }
    let mut more = Map::new();
    for name in middlewares.iter().flat_map(|(names, _)| names) {
        let piece = middlewares.as_ref().map_or(own, |(_, piece)| *piece);
        middleware(cx, name, provider, piece, &mut more)?;
    }
    let (service, service_piece) = service.ok_or(("a router without a service".to_owned(), own))?;
    let upstream = upstream(cx, &service, provider, 0).map_err(|why| (why, service_piece))?;
    cx.ledger.same(service_piece);
    let passes_through = tls.as_ref().is_some_and(|tls| tls.passthrough);
    Ok(Router {
        name: name.to_owned(),
        hosts: if is_all { Vec::new() } else { hosts },
        has_tls: tls.is_some(),
        passes_through,
        upstream,
        points: indices,
        more,
        piece,
    })
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

/// The listeners for one port.
fn one_port(cx: &mut Cx<'_, '_>, point: &str, address: &str, routers: &[&Router]) {
    let name = name_of(point);
    let has_http = cx.config.listeners.get(&name).is_some();
    let whole: Vec<&&Router> = routers.iter().filter(|router| router.hosts.is_empty()).collect();
    let named: Vec<&&Router> = routers.iter().filter(|router| !router.hosts.is_empty()).collect();
    let certificates = has_http.then(|| cx.config.listeners.get(&name)?.more.get("tls").cloned()).flatten();
    let terminated = |router: &Router| {
        let mut more = router.more.clone();
        let pair =
            Map::new().with("cert", "/etc/weir/certs/default.pem").with("key", "/etc/weir/certs/default.key");
        let tls = certificates.clone().unwrap_or_else(|| Map::new().with("certificates", vec![pair]).into());
        more.set("tls", tls);
        more.set("tcp", bytes_to(&router.upstream));
        more
    };
    if let (false, [only], []) = (has_http, &*whole, &*named) {
        let more = match only.has_tls && !only.passes_through {
            true => terminated(only),
            false => {
                let mut more = only.more.clone();
                more.set("tcp", bytes_to(&only.upstream));
                more
            }
        };
        cx.config
            .listeners
            .add(point, Listener { address: Some(address.to_owned()), more, ..Listener::default() });
        return;
    }
    let mut sni = Map::new();
    for router in named {
        if !router.more.is_empty() {
            cx.ledger.refused(
                router.piece,
                "middlewares of a name among others at one port",
                "listeners.NAME.ip",
            );
            continue;
        }
        let target = match router.passes_through {
            true => bytes_to(&router.upstream),
            false => {
                let inner = Listener { more: terminated(router), ..Listener::default() };
                let inner = cx.config.listeners.add(&format!("{point}-{}", router.name), inner);
                Map::new().with("listener", inner)
            }
        };
        router.hosts.iter().for_each(|host| sni.set(host.clone(), target.clone()));
    }
    let otherwise = match (has_http, &*whole) {
        (true, []) => Some(Map::new().with("listener", name.clone())),
        (false, [only]) if only.more.is_empty() && (only.passes_through || !only.has_tls) => {
            Some(bytes_to(&only.upstream))
        }
        (false, []) => None,
        _ => {
            whole.iter().for_each(|router| {
                cx.ledger.refused(
                    router.piece,
                    "another router takes all other connections of this port",
                    "a port of its own",
                );
            });
            has_http.then(|| Map::new().with("listener", name.clone()))
        }
    };
    if sni.is_empty() {
        return;
    }
    if let Some(http) = cx.config.listeners.get_mut(&name) {
        http.address = None;
        http.comment.push(format!("Gets the connections of `{name}-port` that are for no name there."));
    }
    let mut more = Map::new().with("sni", Value::Map(sni));
    more.set_some("otherwise", otherwise);
    let wish = if has_http { format!("{name}-port") } else { name };
    cx.config
        .listeners
        .add(&wish, Listener { address: Some(address.to_owned()), more, ..Listener::default() });
}
