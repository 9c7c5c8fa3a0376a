//! Services, upstreams and targets as Weir's upstreams; certificates as files.

use super::{Kind, Kong, refuse_rest};
use crate::config::{Config, Endpoint, Listener, Upstream};
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};
use std::collections::HashMap;

/// A service as routes need it.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Its path, without a slash at its end; empty for `/`.
    pub(super) path: String,
    /// Its upstream as Weir has it, before a route says which Host is sent.
    upstream: Upstream,
    /// Its name.
    title: String,
    /// The names of the upstreams made of it, by whether Host is preserved.
    made: HashMap<bool, String>,
}

impl Service {
    /// The upstream that sends the client's Host, or its own.
    pub(super) fn upstream(&mut self, preserve: bool, config: &mut Config) -> String {
        if let Some(name) = self.made.get(&preserve) {
            return name.clone();
        }
        let mut upstream = self.upstream.clone();
        match preserve {
            true => upstream.comment.push("preserve_host: the service sees the client's Host.".to_owned()),
            false if upstream.more.get("host").is_none() => upstream.more.set("host", "endpoint"),
            false => {}
        }
        if preserve {
            upstream.more.remove("host");
        }
        let wish = if preserve && !self.made.is_empty() {
            format!("{}-own-host", self.title)
        } else {
            self.title.clone()
        };
        let name = config.upstreams.add(&wish, upstream);
        self.made.insert(preserve, name.clone());
        name
    }
}

/// Reads all services. A service that cannot be reached by HTTP is none.
pub(super) fn read(kong: &mut Kong<'_>, ledger: &mut Ledger) -> Vec<Option<Service>> {
    let upstreams: Vec<(Upstream, Vec<String>)> = (0..kong.of(Kind::Upstream).len())
        .map(|at| {
            let names = kong.of(Kind::Upstream)[at].names.clone();
            (upstream(kong, at, ledger), names)
        })
        .collect();
    (0..kong.of(Kind::Service).len())
        .map(|at| {
            let title = kong.of(Kind::Service)[at].title.clone();
            service(kong.take(Kind::Service, at), title, &upstreams, ledger)
        })
        .collect()
}

fn service(
    mut fields: Fields<'_>,
    title: String,
    upstreams: &[(Upstream, Vec<String>)],
    ledger: &mut Ledger,
) -> Option<Service> {
    let (mut protocol, mut host, mut port, mut path) =
        ("http".to_owned(), String::new(), None, String::new());
    if let Some((url, piece)) = fields.text("url", ledger) {
        match split_url(&url) {
            Some(parts) => {
                (protocol, host, port, path) = parts;
                ledger.same(piece);
            }
            None => ledger.refused(piece, "not a URL", "upstreams.NAME.endpoints: HOST:PORT"),
        }
    }
    let mut pieces: Vec<Piece> = Vec::new();
    if let Some((text, piece)) = fields.text("protocol", ledger) {
        protocol = text;
        pieces.push(piece);
    }
    if let Some((text, piece)) = fields.text("host", ledger) {
        host = text;
        pieces.push(piece);
    }
    if let Some((number, piece)) = fields.number("port", ledger) {
        port = u16::try_from(number).ok();
        match port {
            Some(_) => pieces.push(piece),
            None => ledger.refused(piece, "not a port", "1 to 65535"),
        }
    }
    if let Some((text, piece)) = fields.text("path", ledger) {
        path = text;
        pieces.push(piece);
    }
    let mut more = Map::new();
    let is_tls = matches!(protocol.as_str(), "https" | "grpcs" | "wss");
    match protocol.as_str() {
        "http" | "https" | "ws" | "wss" => {}
        "grpc" => more.set("protocol", "h2c"),
        "grpcs" => more.set("protocol", "h2"),
        _ => {
            let why = format!("Kong passes `{protocol}` on as bytes, and its port is in kong.conf");
            pieces.iter().for_each(|piece| ledger.refused(*piece, why.clone(), "listeners.NAME.tcp or .sni"));
            refuse_rest(fields, &why, "listeners.NAME.tcp or .sni", ledger);
            return None;
        }
    }
    pieces.iter().for_each(|piece| ledger.same(*piece));
    let mut upstream = Upstream::default();
    match upstreams.iter().find(|(_, names)| names.contains(&host)) {
        Some((known, _)) => {
            upstream = known.clone();
            known.more.iter().for_each(|(key, value)| more.set(key, value.clone()));
        }
        None if host.is_empty() => {
            ledger.note(format!("service `{title}` has no host: Weir cannot reach it"));
            refuse_rest(fields, "the service has no host", "upstreams.NAME.endpoints", ledger);
            return None;
        }
        None => {
            let port = port.unwrap_or(if is_tls { 443 } else { 80 });
            upstream.endpoints.push(Endpoint { address: format!("{host}:{port}"), ..Endpoint::default() });
        }
    }
    if upstream.endpoints.is_empty() {
        refuse_rest(fields, "its upstream has no targets", "upstreams.NAME.endpoints", ledger);
        return None;
    }
    if is_tls {
        tls(&mut fields, &mut more, &mut upstream, ledger);
    }
    timeouts(&mut fields, &mut more, ledger);
    if let Some((enabled, piece)) = fields.flag("enabled", ledger) {
        match enabled {
            true => ledger.same(piece),
            false => {
                ledger.same(piece);
                refuse_rest(fields, "the service is off", "", ledger);
                return None;
            }
        }
    }
    refuse_rest(
        fields,
        "weir import does not know this key of a service",
        "docs/reference/config.md#upstreamsname",
        ledger,
    );
    upstream.more = more;
    let path = path.trim_end_matches('/').to_owned();
    Some(Service { path, upstream, title, made: HashMap::new() })
}

fn tls(fields: &mut Fields<'_>, more: &mut Map, upstream: &mut Upstream, ledger: &mut Ledger) {
    let mut tls = Map::new();
    let verify = fields.flag("tls_verify", ledger);
    if let Some((_, piece)) = verify {
        ledger.same(piece);
    }
    if !matches!(verify, Some((true, _))) {
        tls.set("verify", false);
        upstream.comment.push(
            "Kong does not verify the service's certificate unless told to. Remove `verify: \
            false` once it passes."
                .to_owned(),
        );
        ledger.note(
            "https services: Kong does not verify certificates by default, so `tls: { verify: false }` is \
            written; remove it where you can",
        );
    }
    if let Some((_, piece)) = fields.number("tls_verify_depth", ledger) {
        ledger.left_out(piece, "chains are verified to their root");
    }
    for key in ["ca_certificates", "client_certificate"] {
        if let Some(entry) = fields.entry(key) {
            let nearest = "upstreams.NAME.tls: ca, client_cert and client_key name PEM files";
            entry.each_piece(&mut |piece| {
                ledger.refused(piece, "certificates for services are files in Weir", nearest)
            });
        }
    }
    more.set("tls", tls);
}

/// Kong's timeouts and retries. What it does by default is written, because Weir's defaults are shorter.
fn timeouts(fields: &mut Fields<'_>, more: &mut Map, ledger: &mut Ledger) {
    let mut take = |key: &str, fields: &mut Fields<'_>| match fields.number(key, ledger) {
        Some((ms, piece)) => {
            match key {
                "write_timeout" => ledger.changed(
                    piece,
                    "Weir has no limit for sending to an endpoint; the \
                    client's `body` and the upstream's `response` count",
                ),
                _ => ledger.same(piece),
            }
            ms
        }
        None => 60_000,
    };
    let connect = take("connect_timeout", fields);
    let read = take("read_timeout", fields);
    let _ = take("write_timeout", fields);
    let mut timeouts =
        Map::new().with("connect", units::duration(connect)).with("response", units::duration(read));
    if read != 60_000 {
        timeouts.set("body", units::duration(read));
    }
    more.set("timeouts", timeouts);
    let retries = fields.number("retries", ledger);
    if let Some((_, piece)) = retries {
        ledger.changed(
            piece,
            "connects are tried again, and requests that may be repeated; Weir spends at most `budget` on it",
        );
    }
    let attempts =
        i64::try_from(retries.map_or(5, |(retries, _)| retries).saturating_add(1).min(10)).unwrap_or(10);
    let on: Vec<&str> = vec!["connect", "reset", "timeout"];
    more.set("retry", Map::new().with("attempts", attempts).with("on", on));
}

fn split_url(url: &str) -> Option<(String, String, Option<u16>, String)> {
    let (protocol, rest) = url.split_once("://")?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
        _ => (authority, None),
    };
    (!host.is_empty() && !host.contains('@'))
        .then(|| (protocol.to_owned(), host.to_owned(), port, path.to_owned()))
}

/// An upstream with its targets.
fn upstream(kong: &mut Kong<'_>, at: usize, ledger: &mut Ledger) -> Upstream {
    let mut upstream = Upstream::default();
    let mut weights = Vec::new();
    let targets: Vec<usize> = (0..kong.of(Kind::Target).len())
        .filter(|target| kong.of(Kind::Target)[*target].of.get(&Kind::Upstream) == Some(&at))
        .collect();
    for target in targets {
        let mut fields = kong.take(Kind::Target, target);
        let weight = fields.number("weight", ledger);
        let weight_piece = weight.map(|(_, piece)| piece);
        let weight = weight.map_or(100, |(weight, _)| weight);
        if let Some((address, piece)) = fields.text("target", ledger) {
            match weight {
                0 => {
                    ledger.left_out(piece, "a target of weight 0 gets no requests");
                    weight_piece
                        .iter()
                        .for_each(|piece| ledger.left_out(*piece, "a target of weight 0 gets no requests"));
                }
                _ => {
                    ledger.same(piece);
                    weight_piece.iter().for_each(|piece| ledger.same(*piece));
                    let has_port =
                        address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                    let address = if has_port { address } else { format!("{address}:8000") };
                    weights.push(weight);
                    upstream.endpoints.push(Endpoint { address, ..Endpoint::default() });
                }
            }
        }
        refuse_rest(
            fields,
            "weir import does not know this key of a target",
            "docs/reference/config.md#upstreamsnameendpoints",
            ledger,
        );
    }
    let common = weights.iter().fold(0, |a, b| gcd(a, *b)).max(1);
    for (endpoint, weight) in upstream.endpoints.iter_mut().zip(&weights) {
        endpoint.weight = u32::try_from(weight / common)
            .ok()
            .filter(|weight| *weight != 1 || weights.iter().any(|w| w != weight_of(&weights)));
    }
    let mut fields = kong.take(Kind::Upstream, at);
    balancer(&mut fields, &mut upstream.more, ledger);
    if let Some((host, piece)) = fields.text("host_header", ledger) {
        upstream.more.set("host", host);
        ledger.same(piece);
    }
    if let Some((health, piece)) = fields.map("healthchecks", ledger) {
        ledger.same(piece);
        healthchecks(health, &mut upstream.more, ledger);
    }
    for key in ["slots", "use_srv_name"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "the inside of Kong's balancer");
        }
    }
    refuse_rest(
        fields,
        "weir import does not know this key of an upstream",
        "docs/reference/config.md#upstreamsname",
        ledger,
    );
    upstream
}

fn weight_of(weights: &[u64]) -> &u64 {
    weights.first().unwrap_or(&1)
}

const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn balancer(fields: &mut Fields<'_>, more: &mut Map, ledger: &mut Ledger) {
    let mut texts: HashMap<&str, (String, Piece)> = HashMap::new();
    for key in [
        "algorithm",
        "hash_on",
        "hash_fallback",
        "hash_on_header",
        "hash_on_cookie",
        "hash_on_cookie_path",
        "hash_on_query_arg",
        "hash_on_uri_capture",
        "hash_fallback_header",
        "hash_fallback_query_arg",
        "hash_fallback_uri_capture",
        "sticky_sessions_cookie",
        "sticky_sessions_cookie_path",
    ] {
        texts.extend(fields.text(key, ledger).map(|text| (key, text)));
    }
    let of = |key: &str| texts.get(key).map(|(text, _)| text.as_str());
    let hash_on = of("hash_on").unwrap_or("none");
    let hashes =
        of("algorithm") == Some("consistent-hashing") || (of("algorithm").is_none() && hash_on != "none");
    let by = match (hashes, hash_on) {
        (false, _) => None,
        (_, "ip") => Some("address".to_owned()),
        (_, "path") => Some("path".to_owned()),
        (_, "header") => of("hash_on_header").map(|name| format!("header:{name}")),
        (_, "cookie") => of("hash_on_cookie").map(|name| format!("cookie:{name}")),
        (_, "query_arg") => of("hash_on_query_arg").map(|name| format!("query:{name}")),
        _ => None,
    };
    for (key, (text, piece)) in &texts {
        match *key {
            "algorithm" => match text.as_str() {
                "round-robin" | "least-connections" | "latency" => ledger.same(*piece),
                "consistent-hashing" if by.is_some() => {
                    ledger.changed(*piece, "the same key has another endpoint than in Kong, once")
                }
                _ => ledger.refused(*piece, "Weir has no such balancer", "balancer: hash, or `sticky`"),
            },
            _ if text == "none" || !hashes || *key == "hash_on_cookie_path" && text == "/" => {
                ledger.same(*piece)
            }
            "hash_on" if by.is_some() && text == "cookie" => {
                ledger.changed(*piece, "Weir sets no cookie for a client without one; `sticky` does")
            }
            "hash_on" | "hash_on_header" | "hash_on_cookie" | "hash_on_query_arg" if by.is_some() => {
                ledger.same(*piece)
            }
            "hash_fallback" => {
                ledger.changed(*piece, "a request without the key goes to the less busy of two endpoints")
            }
            _ => ledger.refused(
                *piece,
                "Weir cannot choose an endpoint by this",
                "balancer: { hash: { by: header:NAME } }, or `sticky`",
            ),
        }
    }
    match (by, of("algorithm")) {
        (Some(by), _) => more.set("balancer", Map::new().with("hash", Map::new().with("by", by))),
        (_, Some("least-connections")) => more.set("balancer", "least_requests"),
        (_, Some("latency")) => more.set("balancer", "ewma"),
        _ => more.set("balancer", "round_robin"),
    }
}

/// Active and passive health checks. All their numbers are 0, which is off, by default.
fn healthchecks(health: &Node, more: &mut Map, ledger: &mut Ledger) {
    let number = |path: &[&str]| {
        let mut node = Some(health);
        for part in path {
            node = node.and_then(|node| node.get(part));
        }
        node.and_then(Node::as_text).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let interval =
        number(&["active", "healthy", "interval"]).max(number(&["active", "unhealthy", "interval"]));
    let mut out = Map::new();
    if interval > 0.0 {
        let active = health.get("active");
        let text = |key: &str| active.and_then(|active| active.get(key)).and_then(Node::as_text);
        let mut probe = Map::new();
        match text("type").as_deref() {
            Some("tcp") => probe.set("kind", "tcp"),
            Some("grpc" | "grpcs") => probe.set("kind", "grpc"),
            _ => probe.set("path", text("http_path").unwrap_or_else(|| "/".to_owned())),
        }
        probe.set("interval", units::duration((interval * 1000.0) as u64));
        let timeout = number(&["active", "timeout"]);
        if timeout > 0.0 && timeout != 1.0 {
            probe.set("timeout", units::duration((timeout * 1000.0) as u64));
        }
        let failures =
            ["http_failures", "tcp_failures", "timeouts"].map(|key| number(&["active", "unhealthy", key]));
        let unhealthy = failures.into_iter().filter(|n| *n > 0.0).fold(f64::INFINITY, f64::min);
        for (key, n) in [("healthy", number(&["active", "healthy", "successes"])), ("unhealthy", unhealthy)] {
            if n > 0.0 && n.is_finite() {
                probe.set(key, (n as i64).min(100));
            }
        }
        let statuses =
            active.and_then(|active| active.get("healthy")).and_then(|healthy| healthy.get("http_statuses"));
        if let Some(statuses) = statuses.and_then(Node::as_list) {
            let expect: Vec<Value> =
                statuses.iter().filter_map(Node::as_u64).map(|n| Value::Number(n as i64)).collect();
            if !expect.is_empty() && probe.get("kind").is_none() {
                probe.set("expect", Value::List(expect));
            }
        } else if probe.get("kind").is_none() {
            probe.set("expect", Value::List(vec![Value::Number(200), Value::Number(302)]));
        }
        out.set("probe", probe);
    }
    let passive =
        ["http_failures", "tcp_failures", "timeouts"].map(|key| number(&["passive", "unhealthy", key]));
    let errors = passive.into_iter().filter(|n| *n > 0.0).fold(f64::INFINITY, f64::min);
    if errors.is_finite() {
        out.set("outlier", Map::new().with("errors", errors as i64));
    }
    health.each_piece(&mut |piece| match (interval > 0.0, errors.is_finite()) {
        (false, false) => ledger.by_itself(piece, "health checks are off"),
        _ => ledger.changed(
            piece,
            "Weir's probe and its outlier detection: an endpoint that failed passively returns after 30 s",
        ),
    });
    if !out.is_empty() {
        more.set("health", out);
    }
}

/// Certificates for the listener `https`: files below certs/.
pub(super) fn certificates(kong: &mut Kong<'_>, config: &mut Config, ledger: &mut Ledger) {
    let mut list = Vec::new();
    for at in 0..kong.of(Kind::Certificate).len() {
        let snis: Vec<usize> = (0..kong.of(Kind::Sni).len())
            .filter(|sni| kong.of(Kind::Sni)[*sni].of.get(&Kind::Certificate) == Some(&at))
            .collect();
        let first = snis.first().map(|sni| kong.of(Kind::Sni)[*sni].title.clone());
        let wish = first.unwrap_or_else(|| format!("certificate-{}", at + 1));
        let name = crate::config::name_of(&wish);
        let mut fields = kong.take(Kind::Certificate, at);
        let mut paths = Map::new();
        for (key, ours, ending) in [("cert", "cert", "pem"), ("key", "key", "key")] {
            let Some((text, piece)) = fields.text(key, ledger) else { continue };
            ledger.conceal(piece);
            let path = format!("certs/{name}.{ending}");
            match text.contains("BEGIN") {
                true if key == "key" => {
                    config.secret_files.insert(path.clone(), text);
                    ledger.same(piece);
                }
                true => {
                    config.files.insert(path.clone(), text);
                    ledger.same(piece);
                }
                false => {
                    ledger.refused(piece, "the certificate is not in the file", format!("put it to {path}"))
                }
            }
            paths.set(ours, path);
        }
        list.push(paths);
        refuse_rest(
            fields,
            "weir import does not know this key of a certificate",
            "listeners.NAME.tls.certificates",
            ledger,
        );
    }
    if !list.is_empty() {
        let more = Map::new().with("tls", Map::new().with("certificates", list));
        config
            .listeners
            .add("https", Listener { address: Some("0.0.0.0:8443".to_owned()), more, ..Listener::default() });
        ledger.note("certificates: Weir chooses by the names in each certificate, not by `snis`");
    }
}
