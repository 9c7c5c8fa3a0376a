//! Upstreams of APISIX.

use super::{common, refuse_rest};
use crate::config::{Config, Endpoint, Upstream};
use crate::ledger::Ledger;
use crate::shared::tree::{Fields, Node, Value as Source};
use crate::shared::units;
use crate::yaml::Map;

/// The upstream of a route, by the name that it has in our config. None if it cannot be reached by HTTP.
pub(super) fn translate(node: &Node, wish: &str, config: &mut Config, ledger: &mut Ledger) -> Option<String> {
    let mut fields = Fields::of(node);
    let name = common(&mut fields, ledger);
    let mut upstream = Upstream::default();
    let scheme = fields.text("scheme", ledger);
    let scheme_name = scheme.as_ref().map_or("http", |(scheme, _)| scheme.as_str());
    let is_tls = matches!(scheme_name, "https" | "grpcs");
    match (scheme_name, &scheme) {
        ("http" | "https", _) => {}
        ("grpc", _) => upstream.more.set("protocol", "h2c"),
        ("grpcs", _) => upstream.more.set("protocol", "h2"),
        (other, Some((_, piece))) => {
            ledger.refused(*piece, format!("`{other}` is passed on as bytes"), "listeners.NAME.tcp");
            return None;
        }
        _ => {}
    }
    scheme.iter().for_each(|(_, piece)| ledger.same(*piece));
    if let Some(entry) = fields.entry("nodes") {
        nodes(&entry.node, is_tls, &mut upstream, ledger);
        entry.each_piece(&mut |piece| {
            if !ledger.is_judged(piece) {
                ledger.same(piece);
            }
        });
    }
    balancer(&mut fields, &mut upstream, ledger);
    let pass = fields.text("pass_host", ledger);
    let own = fields.text("upstream_host", ledger);
    own.iter().for_each(|(_, piece)| ledger.same(*piece));
    pass.iter().for_each(|(_, piece)| ledger.same(*piece));
    match pass.as_ref().map_or("pass", |(pass, _)| pass.as_str()) {
        "node" => upstream.more.set("host", "endpoint"),
        "rewrite" => upstream.more.set_some("host", own.map(|(host, _)| host)),
        _ => {}
    }
    tls(&mut fields, is_tls, &mut upstream, ledger);
    let mut timeouts = timeouts(fields.map("timeout", ledger), ledger);
    if timeouts.is_empty() {
        timeouts = Map::new().with("connect", "60s").with("response", "60s");
    }
    upstream.more.set("timeouts", timeouts);
    let retries = fields.number("retries", ledger);
    let others = u64::try_from(upstream.endpoints.len().max(1) - 1).unwrap_or(0);
    let count = retries.map_or(others, |(retries, _)| retries);
    retries.iter().for_each(|(_, piece)| {
        ledger.changed(*piece, "connects and repeatable requests; Weir spends at most `budget` on it")
    });
    let attempts = i64::try_from(count.saturating_add(1).clamp(1, 10)).unwrap_or(1);
    upstream
        .more
        .set("retry", Map::new().with("attempts", attempts).with("on", vec!["connect", "reset", "timeout"]));
    for key in ["retry_timeout", "keepalive_pool"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| ledger.left_out(piece, "Weir keeps its own pool and budget"));
        }
    }
    if let Some(entry) = fields.entry("checks") {
        checks(&entry.node, &mut upstream);
        entry.each_piece(&mut |piece| ledger.changed(piece, "Weir's probe and outlier detection"));
    }
    for key in ["service_name", "discovery_type", "discovery_args"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| ledger.refused(piece, "a registry", "upstreams.NAME.discover"));
        }
    }
    refuse_rest(fields, "an upstream", ledger);
    if upstream.endpoints.is_empty() {
        return None;
    }
    let wish = name.unwrap_or_else(|| wish.to_owned());
    let same =
        config.upstreams.iter().find(|(_, known)| **known == upstream).map(|(name, _)| name.to_owned());
    Some(same.unwrap_or_else(|| config.upstreams.add(&wish, upstream)))
}

/// `{connect, send, read}` in seconds.
pub(super) fn timeouts(map: Option<(&Node, crate::ledger::Piece)>, ledger: &mut Ledger) -> Map {
    let mut out = Map::new();
    let Some((node, piece)) = map else { return out };
    ledger.same(piece);
    for entry in node.as_map().unwrap_or_default() {
        let ms = entry.node.as_text().and_then(|text| text.parse::<f64>().ok()).map(|s| (s * 1000.0) as u64);
        match (&*entry.key, ms) {
            ("connect", Some(ms)) => out.set("connect", units::duration(ms)),
            ("read", Some(ms)) => {
                out.set("response", units::duration(ms));
                out.set("body", units::duration(ms));
            }
            ("send", Some(_)) => {
                ledger.changed(entry.piece, "Weir has no limit for sending to an endpoint");
                continue;
            }
            _ => {
                ledger.refused(
                    entry.piece,
                    "expected connect, send or read in seconds",
                    "upstreams.NAME.timeouts",
                );
                continue;
            }
        }
        ledger.same(entry.piece);
    }
    out
}

/// A map from `HOST:PORT` to the weight, or a list of maps.
fn nodes(node: &Node, is_tls: bool, upstream: &mut Upstream, ledger: &mut Ledger) {
    let default = if is_tls { 443 } else { 80 };
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{default}"),
    };
    let mut found: Vec<(String, u64, u64)> = Vec::new();
    match &node.value {
        Source::Map(entries) => {
            for entry in entries {
                match entry.node.as_u64() {
                    Some(0) => ledger.left_out(entry.piece, "weight 0: no requests"),
                    Some(weight) => found.push((with_port(&entry.key), weight, 0)),
                    None => ledger.refused(entry.piece, "expected a weight", "upstreams.NAME.endpoints"),
                }
            }
        }
        _ => {
            for item in node.as_list().unwrap_or_default() {
                let number = |key: &str| item.get(key).and_then(Node::as_u64);
                let Some(host) = item.get("host").and_then(Node::as_text) else { continue };
                let address =
                    number("port").map_or_else(|| with_port(&host), |port| format!("{host}:{port}"));
                match number("weight").unwrap_or(1) {
                    0 => item.each_piece(&mut |piece| ledger.left_out(piece, "weight 0: no requests")),
                    // The greater priority is used first there, the smaller here.
                    weight => found.push((address, weight, number("priority").unwrap_or(0))),
                }
            }
        }
    }
    let most = found.iter().map(|(_, _, priority)| *priority).max().unwrap_or(0);
    let is_even = found.windows(2).all(|pair| pair[0].1 == pair[1].1);
    for (address, weight, priority) in found {
        let weight = u32::try_from(weight).ok().filter(|_| !is_even);
        let priority = u32::try_from(most - priority).ok().filter(|priority| *priority > 0);
        upstream.endpoints.push(Endpoint { address, weight, priority });
    }
}

fn balancer(fields: &mut Fields<'_>, upstream: &mut Upstream, ledger: &mut Ledger) {
    let kind = fields.text("type", ledger);
    let (hash_on, key) = (fields.text("hash_on", ledger), fields.text("key", ledger));
    let name = kind.as_ref().map_or("roundrobin", |(kind, _)| kind.as_str());
    let on = hash_on.as_ref().map_or("vars", |(on, _)| on.as_str());
    let by = match (on, key.as_ref().map(|(key, _)| key.as_str())) {
        ("vars", Some("remote_addr")) => Some("address".to_owned()),
        ("vars", Some("uri")) => Some("path".to_owned()),
        ("vars", Some(key)) if key.starts_with("arg_") => Some(format!("query:{}", &key[4..])),
        ("vars", Some(key)) if key.starts_with("http_") => {
            Some(format!("header:{}", key[5..].replace('_', "-")))
        }
        ("header", Some(key)) => {
            Some(format!("header:{}", key.trim_start_matches("http_").replace('_', "-")))
        }
        ("cookie", Some(key)) => Some(format!("cookie:{}", key.trim_start_matches("cookie_"))),
        _ => None,
    };
    let mut known = true;
    match (name, by) {
        ("least_conn", _) => upstream.more.set("balancer", "least_requests"),
        ("ewma", _) => upstream.more.set("balancer", "ewma"),
        ("chash", Some(by)) => {
            upstream.more.set("balancer", Map::new().with("hash", Map::new().with("by", by)))
        }
        ("roundrobin", _) => upstream.more.set("balancer", "round_robin"),
        _ => known = false,
    }
    for (_, piece) in kind.iter().chain(&hash_on).chain(&key) {
        match known {
            true => ledger.same(*piece),
            false => ledger.refused(
                *piece,
                format!("no such balancer: `{name}` on {on}"),
                "balancer: { hash: { by: header:NAME } }",
            ),
        }
    }
}

fn tls(fields: &mut Fields<'_>, is_tls: bool, upstream: &mut Upstream, ledger: &mut Ledger) {
    let given = fields.map("tls", ledger);
    let mut verifies = false;
    if let Some((node, piece)) = given {
        ledger.same(piece);
        for entry in node.as_map().unwrap_or_default() {
            match &*entry.key {
                "verify" => {
                    verifies = entry.node.as_bool() == Some(true);
                    ledger.same(entry.piece);
                }
                _ => ledger.refused(
                    entry.piece,
                    "certificates for services are files in Weir",
                    "tls: { client_cert, client_key }",
                ),
            }
        }
    }
    if is_tls {
        let mut map = Map::new();
        if !verifies {
            map.set("verify", false);
            upstream.comment.push(
                "APISIX does not verify the certificate unless told to. Remove `verify: false` \
                once it passes."
                    .to_owned(),
            );
            ledger.note(
                "https upstreams: APISIX does not verify certificates, so `verify: false` is written; \
                remove it where you can",
            );
        }
        upstream.more.set("tls", map);
    }
}

fn checks(node: &Node, upstream: &mut Upstream) {
    let at = |path: &[&str]| path.iter().try_fold(node, |node, part| node.get(part));
    let mut health = Map::new();
    if at(&["active"]).is_some() {
        let mut probe = Map::new();
        match at(&["active", "type"]).and_then(Node::as_text).as_deref() {
            Some("tcp") => probe.set("kind", "tcp"),
            _ => probe.set(
                "path",
                at(&["active", "http_path"]).and_then(Node::as_text).unwrap_or_else(|| "/".to_owned()),
            ),
        }
        let interval = at(&["active", "healthy", "interval"]).and_then(Node::as_u64).unwrap_or(1);
        probe.set("interval", units::duration(interval.max(1) * 1000));
        for (key, path) in [
            ("healthy", ["active", "healthy", "successes"]),
            ("unhealthy", ["active", "unhealthy", "http_failures"]),
        ] {
            if let Some(count) = at(&path).and_then(Node::as_u64).filter(|count| (1..=100).contains(count)) {
                probe.set(key, i64::try_from(count).unwrap_or(1));
            }
        }
        health.set("probe", probe);
    }
    if let Some(errors) =
        at(&["passive", "unhealthy", "http_failures"]).and_then(Node::as_u64).filter(|n| *n > 0)
    {
        health.set("outlier", Map::new().with("errors", i64::try_from(errors).unwrap_or(5)));
    }
    if !health.is_empty() {
        upstream.more.set("health", health);
    }
}
