//! The plugins `rate-limiting` and `rate-limiting-advanced`.

use super::super::plugins::Use;
use super::{same, take_all};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::tree::{Fields, Node};
use crate::yaml::{Map, Value};

pub(super) fn rate_limit(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let mut limits = Vec::new();
    for (key, per) in [("second", "1s"), ("minute", "1m"), ("hour", "1h"), ("day", "day"), ("month", "month")]
    {
        if let Some((requests, piece)) = fields.number(key, of.ledger) {
            let why = match key {
                "day" | "month" => "counted from midnight or the first of the month, in UTC, as in Kong",
                _ => {
                    "Kong counts in fixed windows; Weir's bucket refills evenly, so twice the limit never passes \
                        at an edge"
                }
            };
            of.ledger.changed(piece, why);
            limits.push(
                Map::new().with("requests", i64::try_from(requests).unwrap_or(i64::MAX)).with("per", per),
            );
        }
    }
    if let Some((_, piece)) = fields.number("year", of.ledger) {
        of.ledger.refused(piece, "Weir has no limit for a year", "rate_limit: { per: month }");
    }
    let mut map = Map::new();
    match limits.len() {
        0 => {
            of.instance.refused(
                of.ledger,
                "no limit that Weir can count",
                "rate_limit: { requests: 100, per: 1m }",
            );
            take_all(fields);
            return Vec::new();
        }
        1 => map = limits.remove(0),
        _ => map.set("limits", limits),
    }
    let by = fields.text("limit_by", of.ledger);
    let header = same(fields.text("header_name", of.ledger), of.ledger);
    if let Some((path, piece)) = fields.text("path", of.ledger) {
        of.ledger.refused(
            piece,
            format!("a limit for the path {path} only"),
            "a route for this path with rate_limit",
        );
    }
    let chosen = match by.as_ref().map_or("consumer", |(by, _)| by.as_str()) {
        "consumer" | "credential" => None,
        "ip" => Some("address".to_owned()),
        "service" => Some("route".to_owned()),
        "header" => header.map(|name| format!("header:{}", name.to_ascii_lowercase())),
        other => {
            let why = format!("limit_by {other}");
            by.iter().for_each(|(_, piece)| of.ledger.refused(*piece, why.clone(), "rate_limit: { by }"));
            None
        }
    };
    if let Some((text, piece)) = &by {
        match text.as_str() {
            "credential" => of.ledger.changed(*piece, "counts by consumer, whatever credential it uses"),
            "ip" => of.ledger.changed(*piece, "IPv6 clients count by /64 (`ipv6_prefix`)"),
            _ => of.ledger.same(*piece),
        }
    }
    map.set_some("by", chosen);
    policy(of, fields, &mut map);
    if same(fields.flag("hide_client_headers", of.ledger), of.ledger) == Some(true) {
        map.set("headers", false);
    }
    for key in ["error_code", "error_message"] {
        if let Some(entry) = fields.entry(key) {
            match entry.node.as_u64() == Some(429)
                || entry.node.as_text().as_deref() == Some("API rate limit exceeded")
            {
                true => of.ledger.same(entry.piece),
                false => of.ledger.changed(
                    entry.piece,
                    "Weir answers 429 with its own text; the filter errors sets another",
                ),
            }
        }
    }
    if of.instance.is_shared() {
        of.instance.changed(
            of.ledger,
            "each route counts for itself; in Kong the routes that share this plugin count together",
        );
    } else {
        of.instance.changed(of.ledger, "fields are RateLimit and RateLimit-Policy, not X-RateLimit-*");
    }
    vec![Filter::new("rate_limit", map)]
}

fn policy(of: &mut Use<'_, '_>, fields: &mut Fields<'_>, map: &mut Map) {
    let policy = fields.text("policy", of.ledger);
    let nested = fields.entry("redis");
    let get = |key: &str, fields: &mut Fields<'_>| -> Option<(String, Option<Piece>)> {
        let flat = fields.entry(&format!("redis_{key}"));
        let inner = nested.and_then(|entry| entry.node.get(key)).and_then(Node::as_text);
        inner
            .map(|text| (text, None))
            .or_else(|| flat.and_then(|entry| Some((entry.node.as_text()?, Some(entry.piece)))))
    };
    let parts: Vec<_> = ["host", "port", "password", "database", "username", "ssl"]
        .iter()
        .map(|key| get(key, fields))
        .collect();
    for (_, piece) in parts.iter().flatten() {
        piece.iter().for_each(|piece| of.ledger.same(*piece));
    }
    if let Some((name, piece)) = &policy {
        match name.as_str() {
            "local" => of.ledger.same(*piece),
            "redis" => of.ledger.changed(
                *piece,
                "gateways take requests from the store in advance (`lease`); keys are Weir's own",
            ),
            "cluster" => of.ledger.changed(
                *piece,
                "each gateway counts alone; a Redis or a fleet under `stores` counts together",
            ),
            _ => of.ledger.refused(*piece, "no such policy", "stores.NAME.redis"),
        }
    }
    let is_redis = policy.as_ref().is_some_and(|(name, _)| name == "redis");
    if let Some(entry) = nested {
        entry.each_piece(&mut |piece| match is_redis {
            true => of.ledger.same(piece),
            false => of.ledger.left_out(piece, "not used with this policy"),
        });
    }
    if let (true, Some(Some((host, _)))) = (is_redis, parts.first()) {
        let text = |at: usize| parts.get(at).and_then(Option::as_ref).map(|(text, _)| text.clone());
        let port = text(1).unwrap_or_else(|| "6379".to_owned());
        let scheme = if text(5).as_deref() == Some("true") { "rediss" } else { "redis" };
        let user = text(4).unwrap_or_default();
        let login = match text(2).filter(|password| !password.is_empty()) {
            Some(password) => {
                match crate::shared::secrets::variable(&password, "redis_password", of.config) {
                    Value::WithVariables(variable) => format!("{user}:{variable}@"),
                    _ => String::new(),
                }
            }
            None => String::new(),
        };
        let database = text(3)
            .filter(|database| database != "0")
            .map(|database| format!("/{database}"))
            .unwrap_or_default();
        let url = format!("{scheme}://{login}{host}:{port}{database}");
        let store = Map::new().with("redis", Value::WithVariables(url));
        let known =
            of.config.stores.iter().find(|(_, known)| **known == store).map(|(name, _)| name.to_owned());
        let name = known.unwrap_or_else(|| of.config.stores.add("limits", store));
        map.set("store", name);
    }
    let has_store = is_redis && map.get("store").is_some();
    if let Some((tolerant, piece)) = fields.flag("fault_tolerant", of.ledger) {
        of.ledger.same(piece);
        if has_store {
            map.set("without_store", if tolerant { "open" } else { "closed" });
        }
    } else if has_store {
        map.set("without_store", "open");
    }
}
