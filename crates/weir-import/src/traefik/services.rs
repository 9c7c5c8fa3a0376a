//! Services: load balancers as upstreams, weighted ones as splits, mirrors as the filter `mirror`, failover as
//! priorities of endpoints.

use super::cx::{Cx, Kind, Thing, list, milliseconds, nothing_else};
use crate::config::{Endpoint, Filter, Target, Upstream};
use crate::ledger::Piece;
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};

/// Deepest nesting of services.
const MAX_DEPTH: usize = 8;
/// Traefik's timeout for connects.
const CONNECT: &str = "30s";

/// What answers the requests of a router.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) target: Target,
    /// Filters that belong to the service, behind the router's own.
    pub(super) filters: Vec<Filter>,
}

/// The middleware `retry`, which Weir has on upstreams.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry(pub(super) Map);

/// A load balancer before it is written.
struct Balanced {
    upstream: Upstream,
    /// The path of its servers, sent before the request's.
    prefix: String,
}

/// The target for a service.
///
/// # Errors
/// Why there is none. The statements that are to blame are judged.
pub(super) fn served(
    cx: &mut Cx<'_, '_>,
    reference: &str,
    provider: &'static str,
    retry: Option<&Retry>,
    depth: usize,
) -> Result<Served, String> {
    if depth > MAX_DEPTH {
        return Err(format!("services nested more than {MAX_DEPTH} deep"));
    }
    let at = cx.find(Kind::Service, reference, provider)?;
    let key = (at, format!("{retry:?}"));
    if let Some(known) = cx.served.get(&key) {
        return known.clone();
    }
    let circle = Err(format!("service `{reference}` is a part of itself"));
    cx.served.insert(key.clone(), circle);
    let served = translate(cx, at, retry, depth);
    cx.served.insert(key, served.clone());
    served
}

fn translate(cx: &mut Cx<'_, '_>, at: usize, retry: Option<&Retry>, depth: usize) -> Result<Served, String> {
    let thing = cx.things.of(Kind::Service)[at].clone();
    cx.ledger.same(thing.piece);
    let mut fields = Fields::in_any_case(thing.node);
    let kinds = ["weighted", "mirroring", "failover", "highestRandomWeight"];
    for kind in kinds {
        let Some((node, piece)) = fields.map(kind, cx.ledger) else { continue };
        nothing_else(fields, "a service", cx.ledger);
        cx.ledger.same(piece);
        return match kind {
            "weighted" => weighted(cx, node, &thing, retry, depth),
            "mirroring" => mirroring(cx, node, &thing, retry, depth),
            "failover" => failover(cx, node, piece, &thing, retry),
            _ => {
                node.each_piece(&mut |piece| cx.ledger.refused(piece, "Weir splits by chance", "sticky"));
                Err(format!("service `{}` is of a kind that Weir does not have", thing.name))
            }
        };
    }
    let balanced = balanced(cx, &thing, retry)?;
    nothing_else(fields_of_balancer(&thing), "a service", cx.ledger);
    let wish = if retry.is_some() { format!("{}-retry", thing.name) } else { thing.name.clone() };
    let name = cx.config.upstreams.add(&wish, balanced.upstream);
    Ok(Served { target: Target::Upstream(name), filters: prefix(&balanced.prefix) })
}

/// The keys beside `loadBalancer`.
fn fields_of_balancer<'t>(thing: &Thing<'t>) -> Fields<'t> {
    let mut fields = Fields::in_any_case(thing.node);
    fields.entry("loadBalancer");
    fields
}

fn prefix(path: &str) -> Vec<Filter> {
    let add = (!path.is_empty()).then(|| Filter::new("rewrite", Map::new().with("add_prefix", path)));
    add.into_iter().collect()
}

fn weighted(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    thing: &Thing<'_>,
    retry: Option<&Retry>,
    depth: usize,
) -> Result<Served, String> {
    let mut fields = Fields::in_any_case(node);
    let mut shares: Vec<(String, u32)> = Vec::new();
    let mut filters: Option<Vec<Filter>> = None;
    if let Some((services, piece)) = fields.list("services", cx.ledger) {
        cx.ledger.same(piece);
        for service in services {
            let mut fields = Fields::in_any_case(service);
            let name = fields.text("name", cx.ledger);
            let weight = fields.number("weight", cx.ledger);
            nothing_else(fields, "a weighted service", cx.ledger);
            let Some((name, piece)) = name else {
                return Err("a weighted service without a name".to_owned());
            };
            weight.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
            let weight = weight.map_or(1, |(weight, _)| weight);
            if weight == 0 {
                cx.ledger.by_itself(piece, "a weight of 0 gets no requests");
                continue;
            }
            let one = served(cx, &name, thing.provider, retry, depth + 1)
                .inspect_err(|why| cx.ledger.refused(piece, why.clone(), "correct the source"))?;
            cx.ledger.same(piece);
            if filters.as_ref().is_some_and(|known| *known != one.filters) {
                let why = "its parts differ in more than their servers";
                cx.ledger.refused(piece, why, "a route for each, with match.when");
                return Err(why.to_owned());
            }
            filters = Some(one.filters);
            match one.target {
                Target::Upstream(name) => {
                    add_share(&mut shares, name, u32::try_from(weight).unwrap_or(u32::MAX));
                }
                Target::Split(inner) => {
                    // Its own shares, of what it gets itself: all others are scaled so that whole numbers stay.
                    let total: u32 = inner.iter().map(|(_, share)| *share).sum();
                    shares.iter_mut().for_each(|(_, share)| *share = share.saturating_mul(total));
                    let weight = u32::try_from(weight).unwrap_or(u32::MAX);
                    for (name, share) in inner {
                        add_share(&mut shares, name, share.saturating_mul(weight));
                    }
                }
                _ => return Err("a weighted service of services without servers".to_owned()),
            }
        }
    }
    if let Some(entry) = fields.entry("sticky") {
        entry.each_piece(&mut |piece| {
            cx.ledger.refused(
                piece,
                "Weir chooses anew for each request which part of a split gets it",
                "one upstream with weights and `sticky`",
            );
        });
    }
    if let Some(entry) = fields.entry("healthCheck") {
        entry.each_piece(&mut |piece| {
            cx.ledger.by_itself(piece, "it hands the health of its parts on; Weir asks the endpoints of each")
        });
    }
    nothing_else(fields, "a weighted service", cx.ledger);
    let filters = filters.unwrap_or_default();
    match shares.len() {
        0 => Err(format!("service `{}` has no parts", thing.name)),
        1 => Ok(Served { target: Target::Upstream(shares.remove(0).0), filters }),
        _ => Ok(Served { target: Target::Split(shares), filters }),
    }
}

fn add_share(shares: &mut Vec<(String, u32)>, name: String, share: u32) {
    match shares.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = known.saturating_add(share),
        None => shares.push((name, share)),
    }
}

fn mirroring(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    thing: &Thing<'_>,
    retry: Option<&Retry>,
    depth: usize,
) -> Result<Served, String> {
    let mut fields = Fields::in_any_case(node);
    let Some((main, piece)) = fields.text("service", cx.ledger) else {
        return Err(format!("service `{}` mirrors nothing", thing.name));
    };
    let mut all = served(cx, &main, thing.provider, retry, depth + 1)
        .inspect_err(|why| cx.ledger.refused(piece, why.clone(), "correct the source"))?;
    cx.ledger.same(piece);
    let body = fields.number("maxBodySize", cx.ledger);
    let with_body = fields.flag("mirrorBody", cx.ledger);
    if let Some((flag, piece)) = with_body {
        match flag {
            true => cx.ledger.same(piece),
            false => cx.ledger.changed(piece, "Weir's copies have the body too"),
        }
    }
    if let Some((mirrors, piece)) = fields.list("mirrors", cx.ledger) {
        cx.ledger.same(piece);
        for mirror in mirrors {
            let mut fields = Fields::in_any_case(mirror);
            let (name, percent) = (fields.text("name", cx.ledger), fields.number("percent", cx.ledger));
            nothing_else(fields, "a mirror", cx.ledger);
            let Some((name, piece)) = name else { continue };
            percent.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
            let copy = served(cx, &name, thing.provider, None, depth + 1);
            match copy {
                Ok(Served { target: Target::Upstream(upstream), filters }) if filters.is_empty() => {
                    let share = percent.map_or(0, |(percent, _)| percent);
                    if share == 0 {
                        cx.ledger.by_itself(piece, "0 percent: no copies");
                        continue;
                    }
                    let mut map = Map::new().with("upstream", upstream);
                    if share < 100 {
                        map.set("share", format!("{share}%"));
                    }
                    if let Some((bytes, _)) = body.filter(|(bytes, _)| *bytes > 0) {
                        map.set("body", units::size(bytes));
                    }
                    cx.ledger.changed(
                        piece,
                        "copies of bodies up to 1 MiB, or maxBodySize; at most 100 under way, marked x-weir-mirror",
                    );
                    all.filters.push(Filter::new("mirror", map));
                }
                Ok(_) => cx.ledger.refused(
                    piece,
                    "a copy goes to one upstream, unchanged",
                    "mirror: { upstream, share }",
                ),
                Err(why) => cx.ledger.refused(piece, why, "mirror: { upstream, share }"),
            }
        }
    }
    body.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    if let Some(entry) = fields.entry("healthCheck") {
        entry.each_piece(&mut |piece| cx.ledger.by_itself(piece, "Weir asks the endpoints themselves"));
    }
    nothing_else(fields, "a mirroring service", cx.ledger);
    Ok(all)
}

/// Two load balancers as one upstream whose second tier is the fallback.
fn failover(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    piece: Piece,
    thing: &Thing<'_>,
    retry: Option<&Retry>,
) -> Result<Served, String> {
    let mut fields = Fields::in_any_case(node);
    let mut parts = Vec::new();
    for key in ["service", "fallback"] {
        let Some((name, piece)) = fields.text(key, cx.ledger) else {
            return Err(format!("service `{}` has no {key}", thing.name));
        };
        let at = cx.find(Kind::Service, &name, thing.provider);
        let part = at.and_then(|at| {
            let part = cx.things.of(Kind::Service)[at].clone();
            cx.ledger.same(part.piece);
            balanced(cx, &part, retry)
        });
        match part {
            Ok(part) => parts.push(part),
            Err(why) => {
                cx.ledger.refused(piece, why.clone(), "endpoints with `priority: 1`");
                return Err(why);
            }
        }
        cx.ledger.changed(piece, "one upstream: its second tier is used while the first is unwell");
    }
    for key in ["healthCheck", "errors"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| match key {
                "healthCheck" => cx.ledger.by_itself(piece, "Weir asks the endpoints themselves"),
                _ => cx.ledger.refused(
                    piece,
                    "Weir fails over by health, not by the status of an answer",
                    "health: { outlier: { errors } }, or retry: { on: [503] }",
                ),
            });
        }
    }
    nothing_else(fields, "a failover service", cx.ledger);
    let (fallback, mut main) = (parts.pop(), parts.pop());
    let (Some(main), Some(fallback)) = (main.as_mut(), fallback) else { return Err("no parts".to_owned()) };
    let settings = |upstream: &Upstream| {
        [upstream.more.get("tls"), upstream.more.get("protocol"), upstream.more.get("host")]
            .map(Option::<&Value>::cloned)
    };
    if main.prefix != fallback.prefix || settings(&main.upstream) != settings(&fallback.upstream) {
        let why = "service and fallback differ in more than their servers (TLS, Host or path)";
        cx.ledger.refused(piece, why, "endpoints with `priority: 1` in one upstream");
        return Err(why.to_owned());
    }
    if main.upstream.more.get("health").is_none() {
        main.upstream.comment.push(
            "The fallback is used while nothing connects; a `health: { probe }` would notice more."
                .to_owned(),
        );
    }
    for mut endpoint in fallback.upstream.endpoints {
        endpoint.priority = Some(1);
        main.upstream.endpoints.push(endpoint);
    }
    let name = cx.config.upstreams.add(&thing.name, main.upstream.clone());
    Ok(Served { target: Target::Upstream(name), filters: prefix(&main.prefix) })
}

/// A load balancer as an upstream.
fn balanced(cx: &mut Cx<'_, '_>, thing: &Thing<'_>, retry: Option<&Retry>) -> Result<Balanced, String> {
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
pub(super) fn split_url(url: &str) -> Option<(String, String, String)> {
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

/// The serversTransport of a load balancer, or the static default.
fn transport(
    cx: &mut Cx<'_, '_>,
    fields: &mut Fields<'_>,
    thing: &Thing<'_>,
    scheme: &str,
    upstream: &mut Upstream,
    timeouts: &mut Map,
) -> Result<(), String> {
    let named = fields.text("serversTransport", cx.ledger);
    let mut tls = Map::new();
    let mut done = Ok(());
    if let Some((name, piece)) = named {
        match cx.find(Kind::Transport, &name, thing.provider) {
            Ok(at) => {
                let transport = cx.things.of(Kind::Transport)[at].clone();
                cx.ledger.same(piece);
                cx.ledger.same(transport.piece);
                settings(cx, transport.node, scheme, &mut tls, timeouts, upstream);
            }
            Err(why) => {
                cx.ledger.refused(piece, why.clone(), "upstreams.NAME.tls and timeouts");
                done = Err(why);
            }
        }
    } else if let Some(node) = cx.default_transport {
        settings(cx, node, scheme, &mut tls, timeouts, upstream);
    }
    if scheme == "https" {
        upstream.more.set("tls", tls);
    }
    done
}

/// The settings of a serversTransport.
fn settings(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    scheme: &str,
    tls: &mut Map,
    timeouts: &mut Map,
    upstream: &mut Upstream,
) {
    let mut fields = Fields::in_any_case(node);
    if let Some((skips, piece)) = fields.flag("insecureSkipVerify", cx.ledger) {
        cx.ledger.same(piece);
        if skips && scheme == "https" {
            tls.set("verify", false);
            upstream
                .comment
                .push("insecureSkipVerify: remove `verify: false` once the certificate passes.".to_owned());
        }
    }
    if let Some((name, piece)) = fields.text("serverName", cx.ledger) {
        tls.set("server_name", name);
        cx.ledger.same(piece);
    }
    if let Some((files, piece)) = list(&mut fields, "rootCAs", cx.ledger) {
        match &*files {
            [one] => {
                tls.set("ca", one.clone());
                cx.ledger.same(piece);
            }
            _ => cx.ledger.refused(piece, "`ca` names one file", "put all authorities into one PEM file"),
        }
    }
    if let Some((pairs, piece)) = fields.list("certificates", cx.ledger) {
        match pairs {
            [pair] => {
                cx.ledger.same(piece);
                let mut fields = Fields::in_any_case(pair);
                for (key, ours) in [("certFile", "client_cert"), ("keyFile", "client_key")] {
                    if let Some((file, piece)) = fields.text(key, cx.ledger) {
                        tls.set(ours, file);
                        cx.ledger.same(piece);
                    }
                }
                nothing_else(fields, "a certificate", cx.ledger);
            }
            _ => cx.ledger.refused(
                piece,
                "one certificate for each upstream",
                "tls: { client_cert, client_key }",
            ),
        }
    }
    if let Some((node, piece)) = fields.map("forwardingTimeouts", cx.ledger) {
        cx.ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        for (key, ours) in [("dialTimeout", "connect"), ("responseHeaderTimeout", "response")] {
            if let Some((ms, piece)) = milliseconds(&mut fields, key, cx.ledger) {
                timeouts.set(ours, units::duration(ms));
                cx.ledger.same(piece);
            }
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "idleConnTimeout", cx.ledger) {
            upstream.more.set("keepalive", units::duration(ms));
            cx.ledger.same(piece);
        }
        for key in ["readIdleTimeout", "pingTimeout"] {
            if let Some(entry) = fields.entry(key) {
                cx.ledger.left_out(entry.piece, "Weir does not ping connections of HTTP/2");
            }
        }
        nothing_else(fields, "forwardingTimeouts", cx.ledger);
    }
    if let Some(entry) = fields.entry("maxIdleConnsPerHost") {
        cx.ledger.left_out(entry.piece, "idle connections have a lifetime (`keepalive`), not a number");
    }
    if let Some((true, piece)) =
        fields.flag("disableHTTP2", cx.ledger).inspect(|(_, piece)| cx.ledger.same(*piece))
    {
        cx.ledger.same(piece);
        upstream.more.set("protocol", "http1");
    }
    for key in ["peerCertURI", "spiffe", "cipherSuites", "minVersion", "maxVersion"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                cx.ledger.refused(
                    piece,
                    "Weir's TLS towards endpoints has no such setting",
                    "tls: { ca, server_name }",
                );
            });
        }
    }
    nothing_else(fields, "a serversTransport", cx.ledger);
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

fn health(cx: &mut Cx<'_, '_>, node: &Node, scheme: &str, more: &mut Map) {
    let mut fields = Fields::in_any_case(node);
    let mut probe = Map::new();
    let path = fields.text("path", cx.ledger);
    match fields.text("mode", cx.ledger) {
        Some((mode, piece)) if mode == "grpc" => {
            probe.set("kind", "grpc");
            cx.ledger.same(piece);
        }
        Some((_, piece)) => cx.ledger.same(piece),
        None => {}
    }
    if let Some((path, piece)) = path {
        cx.ledger.same(piece);
        if probe.get("kind").is_none() {
            probe.set("path", path);
        }
    }
    if let Some((status, piece)) = fields.number("status", cx.ledger) {
        cx.ledger.same(piece);
        if status > 0 {
            probe.set("expect", vec![Value::Number(i64::try_from(status).unwrap_or(200))]);
        }
    } else if probe.get("kind").is_none() {
        probe.set("expect", vec![Value::from("200-399")]);
    }
    let (mut interval, mut timeout) = (30_000, 5_000);
    if let Some((ms, piece)) = milliseconds(&mut fields, "interval", cx.ledger) {
        interval = ms;
        cx.ledger.same(piece);
    }
    if let Some((ms, piece)) = milliseconds(&mut fields, "timeout", cx.ledger) {
        timeout = ms;
        cx.ledger.same(piece);
    }
    probe.set("interval", units::duration(interval));
    probe.set("timeout", units::duration(timeout));
    // Traefik believes each single answer.
    probe.set("healthy", 1_i64);
    probe.set("unhealthy", 1_i64);
    if let Some((host, piece)) = fields.text("hostname", cx.ledger) {
        probe.set("host", host);
        cx.ledger.same(piece);
    }
    if let Some((text, piece)) = fields.text("scheme", cx.ledger) {
        match text == scheme || text == "http" && scheme == "h2c" {
            true => cx.ledger.same(piece),
            false => cx.ledger.refused(piece, "probes speak what requests speak", "health.probe.tls"),
        }
    }
    if let Some((method, piece)) = fields.text("method", cx.ledger) {
        match method.eq_ignore_ascii_case("get") {
            true => cx.ledger.same(piece),
            false => cx.ledger.changed(piece, "a probe is a GET"),
        }
    }
    if let Some((follows, piece)) = fields.flag("followRedirects", cx.ledger) {
        match follows {
            true => cx.ledger.changed(piece, "a redirect counts as healthy and is not followed"),
            false => cx.ledger.same(piece),
        }
    }
    if let Some(entry) = fields.entry("unhealthyInterval") {
        cx.ledger.changed(entry.piece, "one interval for all endpoints");
    }
    for key in ["port", "headers"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                cx.ledger.refused(
                    piece,
                    "a probe goes to the endpoint's own port, without fields of yours",
                    "health.probe: { path, host }",
                );
            });
        }
    }
    nothing_else(fields, "a health check", cx.ledger);
    more.set("health", Map::new().with("probe", probe));
}

fn passive(cx: &mut Cx<'_, '_>, node: &Node, more: &mut Map) {
    let mut fields = Fields::in_any_case(node);
    let mut outlier = Map::new();
    if let Some((count, piece)) = fields.number("maxFailedAttempts", cx.ledger) {
        outlier.set("errors", i64::try_from(count.max(1)).unwrap_or(1));
        cx.ledger.changed(piece, "answers of 500 and more count too, not only failed connections");
    }
    if let Some((ms, piece)) = milliseconds(&mut fields, "failureWindow", cx.ledger) {
        outlier.set("window", units::duration(ms));
        outlier.set("eject", units::duration(ms));
        cx.ledger.same(piece);
    }
    nothing_else(fields, "a passive health check", cx.ledger);
    more.map_mut("health").set("outlier", outlier);
}
