//! A load balancer as an upstream: its servers, and the cookie that keeps a client at one of them.

use super::super::cx::{Cx, Thing, nothing_else};
use super::Retry;
use super::health::{health, passive};
use super::transport::transport;
use crate::config::{Endpoint, Upstream};
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::Map;

/// Traefik's timeout for connects.
const CONNECT: &str = "30s";

/// A load balancer before it is written.
pub(super) struct Balanced {
    pub(super) upstream: Upstream,
    /// The path of its servers, sent before the request's.
    pub(super) prefix: String,
}

/// A load balancer as an upstream.
pub(super) fn balanced(
    cx: &mut Cx<'_, '_>,
    thing: &Thing<'_>,
    retry: Option<&Retry>,
) -> Result<Balanced, String> {
    let mut outer = Fields::in_any_case(thing.node);
    let node = outer.map("loadBalancer", cx.ledger);
    node.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let empty = Node { line: 0, value: crate::shared::tree::Value::Null };
    let mut fields = Fields::in_any_case(node.map_or(&empty, |(node, _)| node));
    let mut servers = Vec::new();
    if let Some((listed, piece)) = fields.list("servers", cx.ledger) {
        cx.ledger.same(piece);
        for server in listed {
            servers.push(read_server(Fields::in_any_case(server), thing, cx)?);
        }
    }
    let one = fields.map("server", cx.ledger);
    if let Some((node, piece)) = one {
        cx.ledger.same(piece);
        servers.push(read_server(Fields::in_any_case(node), thing, cx)?);
    } else if let Some(container) = thing.container.filter(|_| servers.is_empty()) {
        let Some(port) = container.port else {
            return Err(format!(
                "Traefik takes the port that the image of `{}` exposes, which no file says: write \
                 traefik.http.services.{}.loadbalancer.server.port",
                container.name, thing.name
            ));
        };
        servers.push(Server {
            scheme: "http".to_owned(),
            address: format!("{}:{port}", container.name),
            ..Server::default()
        });
    }
    let Some(first) = servers.first() else { return Err(format!("service `{}` has no servers", thing.name)) };
    let (scheme, path) = (first.scheme.clone(), first.path.clone());
    if servers.iter().any(|server| server.scheme != scheme || server.path != path) {
        return Err(format!("the servers of `{}` differ in scheme or path", thing.name));
    }
    let mut upstream = Upstream::default();
    for server in &servers {
        if server.weight == Some(0) {
            continue;
        }
        let weight = server.weight.filter(|weight| *weight != 1);
        let endpoint = Endpoint { address: server.address.clone(), weight, ..Endpoint::default() };
        upstream.endpoints.push(endpoint);
    }
    if upstream.endpoints.is_empty() {
        return Err(format!("all servers of `{}` have weight 0", thing.name));
    }
    if thing.container.is_some() {
        upstream.comment.push("A container, by its name in a network that Weir is in too.".to_owned());
    }
    let more = &mut upstream.more;
    match scheme.as_str() {
        "h2c" => more.set("protocol", "h2c"),
        "https" => more.set("protocol", "auto"),
        _ => {}
    }
    if let Some((false, piece)) =
        fields.flag("passHostHeader", cx.ledger).inspect(|(_, piece)| cx.ledger.same(*piece))
    {
        cx.ledger.same(piece);
        more.set("host", "endpoint");
    }
    let strategy = fields.text("strategy", cx.ledger);
    match strategy.as_ref().map(|(text, _)| text.as_str()) {
        Some("p2c") => more.set("balancer", "p2c"),
        Some("leasttime") => more.set("balancer", "ewma"),
        Some("hrw") => {
            more.set("balancer", Map::new().with("hash", Map::new().with("by", "address")));
        }
        _ => more.set("balancer", "round_robin"),
    }
    if let Some((text, piece)) = strategy {
        match text.as_str() {
            "wrr" | "p2c" => cx.ledger.same(piece),
            "leasttime" => cx.ledger.changed(piece, "ewma prefers endpoints that answered faster lately"),
            "hrw" => cx.ledger.changed(piece, "a client has another endpoint than in Traefik, once"),
            _ => cx.ledger.refused(piece, "weir import does not know this strategy", "balancer"),
        }
    }
    let mut timeouts = Map::new();
    transport(cx, &mut fields, thing, &scheme, &mut upstream, &mut timeouts)?;
    let more = &mut upstream.more;
    if let Some((node, piece)) = fields.map("sticky", cx.ledger) {
        cx.ledger.same(piece);
        sticky(cx, node, more);
    }
    if let Some((node, piece)) = fields.map("healthCheck", cx.ledger) {
        cx.ledger.same(piece);
        health(cx, node, &scheme, more);
    }
    if let Some((node, piece)) = fields.map("passiveHealthCheck", cx.ledger) {
        cx.ledger.same(piece);
        passive(cx, node, more);
    }
    if let Some(entry) = fields.entry("responseForwarding") {
        entry
            .each_piece(&mut |piece| cx.ledger.by_itself(piece, "Weir passes each piece on when it arrives"));
    }
    nothing_else(fields, "a load balancer", cx.ledger);
    for (key, value) in [("connect", CONNECT), ("response", "0s"), ("body", "0s")] {
        if timeouts.get(key).is_none() {
            timeouts.set(key, value);
        }
    }
    let more = &mut upstream.more;
    more.set("timeouts", timeouts);
    if let Some(Retry(map)) = retry {
        more.set("retry", map.clone());
    }
    Ok(Balanced { upstream, prefix: path })
}

#[derive(Default)]
struct Server {
    scheme: String,
    address: String,
    path: String,
    weight: Option<u32>,
}

fn read_server(mut fields: Fields<'_>, thing: &Thing<'_>, cx: &mut Cx<'_, '_>) -> Result<Server, String> {
    let mut server = Server { scheme: "http".to_owned(), ..Server::default() };
    let keeps = fields.flag("preservePath", cx.ledger);
    keeps.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let keeps = keeps.is_some_and(|(flag, _)| flag);
    if let Some((weight, piece)) = fields.number("weight", cx.ledger) {
        server.weight = u32::try_from(weight).ok();
        cx.ledger.same(piece);
    }
    let scheme = fields.text("scheme", cx.ledger);
    if let Some((scheme, piece)) = &scheme {
        server.scheme.clone_from(scheme);
        cx.ledger.same(*piece);
    }
    let port = fields.number("port", cx.ledger);
    let mut problem = None;
    if let Some((url, piece)) = fields.text("url", cx.ledger) {
        match split_url(&url) {
            Some((scheme, address, path)) if ["http", "https", "h2c"].contains(&&*scheme) => {
                server.scheme = scheme;
                server.address = address;
                let path = path.trim_end_matches('/');
                match (keeps, path) {
                    (_, "") => cx.ledger.same(piece),
                    (true, path) => {
                        path.clone_into(&mut server.path);
                        cx.ledger.same(piece);
                    }
                    (false, _) => cx.ledger.changed(
                        piece,
                        "Traefik ignores the path of a server without preservePath, so it is left out",
                    ),
                }
            }
            _ => {
                let why = "it is no URL of a server, or it holds a password".to_owned();
                cx.ledger.refused(piece, why.clone(), "upstreams.NAME.endpoints: HOST:PORT");
                problem = Some(why);
            }
        }
    } else if let Some(container) = thing.container {
        match port.map(|(port, _)| port).or(container.port.map(u64::from)) {
            Some(port) => server.address = format!("{}:{port}", container.name),
            None => problem = Some(format!("the port of `{}` is in no file", container.name)),
        }
        port.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    } else {
        problem = Some("a server without a URL".to_owned());
    }
    nothing_else(fields, "a server", cx.ledger);
    problem.map_or(Ok(server), Err)
}

/// `scheme://host:port/path`, with the scheme's port where there is none.
pub(in crate::traefik) fn split_url(url: &str) -> Option<(String, String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.is_empty() || authority.contains(['@', ' ', '{', '$', '?', '#']) {
        return None;
    }
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port && authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']')) {
        return None;
    }
    let port = if scheme == "https" { 443 } else { 80 };
    let address = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    Some((scheme.to_ascii_lowercase(), address, path.to_owned()))
}

fn sticky(cx: &mut Cx<'_, '_>, node: &Node, more: &mut Map) {
    let mut outer = Fields::in_any_case(node);
    let mut map = Map::new();
    let cookie = outer.entry("cookie");
    nothing_else(outer, "sticky", cx.ledger);
    let Some(cookie) = cookie else { return };
    let mut fields = Fields::in_any_case(&cookie.node);
    cx.ledger.changed(
        cookie.piece,
        "the cookie's value is an HMAC by a key of your own (STICKY_KEY in secrets.env: write a random text), not a \
         hash of the server's URL: clients are assigned anew, once",
    );
    match fields.text("name", cx.ledger) {
        Some((name, piece)) => {
            map.set("cookie", name);
            cx.ledger.same(piece);
        }
        None => map.set("cookie", "traefik_sticky"),
    }
    if let Some((seconds, piece)) = fields.number("maxAge", cx.ledger) {
        cx.ledger.same(piece);
        if seconds > 0 {
            map.set("ttl", units::duration(seconds.saturating_mul(1000)));
        }
    }
    for key in ["secure", "httpOnly", "sameSite", "path", "domain"] {
        if let Some(entry) = fields.entry(key) {
            cx.ledger.changed(
                entry.piece,
                "the cookie is `Path=/; HttpOnly; SameSite=Lax`, and `Secure` if the client came by TLS",
            );
        }
    }
    nothing_else(fields, "a sticky cookie", cx.ledger);
    map.set("key", cx.config.missing_secret("sticky_key", "replace-this-by-a-random-text-of-your-own"));
    more.set("sticky", map);
}
