//! The plugins that refuse, limit, answer and observe.

use super::plugins::{Use, empty};
use crate::config::Filter;
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters;
use crate::shared::networks::network;
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::Template;
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};

/// The filters of a plugin; none if it is not one of these.
pub(super) fn translate(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Option<Vec<Filter>> {
    Some(match of.instance.name.as_str() {
        "acl" => acl(of, fields),
        "bot-detection" => bots(of, fields),
        "correlation-id" => request_id(of, fields),
        "cors" => cors(of, fields),
        "file-log" => file_log(of, fields),
        "grpc-gateway" => grpc_json(of, fields),
        "grpc-web" => grpc_web(of, fields),
        "ip-restriction" => ip(of, fields),
        "opentelemetry" => tracing(of, fields),
        "prometheus" => {
            of.instance.judge(|piece| {
                of.ledger.by_itself(piece, "/metrics of the admin listener has them, under other names")
            });
            take_all(fields);
            Vec::new()
        }
        "proxy-cache" => cache(of, fields),
        "rate-limiting" => rate_limit(of, fields),
        "redirect" => redirect(of, fields),
        "request-size-limiting" => body_limit(of, fields),
        "request-termination" => terminate(of, fields),
        _ => return None,
    })
}

fn take_all(fields: &mut Fields<'_>) {
    *fields = Fields::default();
}

fn same<T>(value: Option<(T, Piece)>, ledger: &mut Ledger) -> Option<T> {
    value.map(|(value, piece)| {
        ledger.same(piece);
        value
    })
}

/// A text as a setting with placeholders, without any.
pub(super) fn literal(text: &str) -> String {
    Template::text(text).to_setting()
}

fn acl(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let mut map = Map::new();
    for (keys, ours) in [(["allow", "whitelist"], "allow"), (["deny", "blacklist"], "deny")] {
        for key in keys {
            let Some((groups, piece)) = fields.texts(key, of.ledger) else { continue };
            of.ledger.same(piece);
            if !groups.is_empty() {
                map.set(ours, groups.iter().map(|group| format!("group:{group}")).collect::<Vec<_>>());
            }
        }
    }
    for key in ["include_consumer_groups", "always_use_authenticated_groups"] {
        if let Some((flag, piece)) = fields.flag(key, of.ledger) {
            match flag {
                false => of.ledger.same(piece),
                true if key == "include_consumer_groups" => of.ledger.same(piece),
                true => of.ledger.refused(
                    piece,
                    "Weir knows the groups of consumers only",
                    "acl: { is: EXPRESSION }",
                ),
            }
        }
    }
    let hides = same(fields.flag("hide_groups_header", of.ledger), of.ledger).unwrap_or(false);
    let mut out = vec![Filter::new("acl", map)];
    if !hides {
        let headers = filters::Headers {
            request_set: vec![("x-consumer-groups".to_owned(), "{= consumer.groups.join(\", \") }".into())],
            ..filters::Headers::default()
        };
        out.extend(headers.filter());
    }
    out
}

fn bots(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let agent = || Expression::of("request.headers", "user-agent");
    let mut lists = Vec::new();
    for keys in [["allow", "whitelist"], ["deny", "blacklist"]] {
        let mut found = Expression::constant(false);
        for key in keys {
            let Some((patterns, piece)) = fields.texts(key, of.ledger) else { continue };
            for pattern in patterns {
                match Searching::read(&pattern, false, Subject::Text) {
                    Ok(read) => found = found.or(agent().matches(&read.searching())),
                    Err(why) => of.ledger.refused(piece, why, "acl: { is: EXPRESSION }"),
                }
            }
            of.ledger.same(piece);
        }
        lists.push(found);
    }
    of.instance.changed(of.ledger, "Kong's own list of robots is not in the file and not taken; `deny` is");
    let (deny, allow) = (lists.remove(1), lists.remove(0));
    let refuse = Filter::new(
        "respond",
        filters::respond(403, Some("{\"message\":\"Forbidden\"}".to_owned()), Some("application/json")),
    );
    filters::when(&deny.and(allow.not()), vec![refuse], Vec::new())
}

fn request_id(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let header = same(fields.text("header_name", of.ledger), of.ledger)
        .unwrap_or_else(|| "Kong-Request-ID".to_owned());
    let echo = same(fields.flag("echo_downstream", of.ledger), of.ledger).unwrap_or(false);
    if let Some((_, piece)) = fields.text("generator", of.ledger) {
        of.ledger.changed(piece, "an id of Weir is 32 hexadecimal digits");
    } else {
        of.instance.changed(of.ledger, "an id of Weir is 32 hexadecimal digits");
    }
    let mut map = Map::new();
    if !header.eq_ignore_ascii_case("x-request-id") {
        map.set("header", header.to_ascii_lowercase());
    }
    if !echo {
        map.set("response", false);
    }
    vec![Filter::new("request_id", map)]
}

fn cors(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let mut map = Map::new();
    let mut origins = Vec::new();
    let credentials = fields.flag("credentials", of.ledger);
    let with_credentials = credentials.is_some_and(|(flag, _)| flag);
    match fields.texts("origins", of.ledger) {
        Some((listed, piece)) => {
            for origin in listed {
                let is_plain = origin == "*" || origin == "null" || {
                    origin.contains("://")
                        && origin.chars().all(|c| c.is_ascii_alphanumeric() || ":/.-_[]".contains(c))
                };
                // The usual pattern for subdomains.
                let subdomains = origin
                    .trim_start_matches('^')
                    .trim_end_matches('$')
                    .replace("\\.", ".")
                    .replace(".*.", "*.")
                    .replace(".+.", "*.")
                    .replace("(.*).", "*.");
                match is_plain {
                    true => origins.push(origin.trim_end_matches('/').to_owned()),
                    false
                        if subdomains.split("://*.").nth(1).is_some_and(|rest| {
                            rest.chars().all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c))
                        }) =>
                    {
                        of.ledger.changed(piece, "the pattern is written as `*.`: subdomains only");
                        origins.push(subdomains);
                    }
                    false => of.ledger.refused(
                        piece,
                        format!("the pattern `{origin}` of an origin"),
                        "cors: { origins: [ \"https://*.example.com\" ] }",
                    ),
                }
            }
            of.ledger.same(piece);
        }
        None => origins.push("*".to_owned()),
    }
    if let Some((flag, piece)) = credentials {
        match flag && origins.iter().any(|origin| origin == "*" || origin == "null") {
            true => of.ledger.refused(
                piece,
                "with every origin, any page could read what a user may read",
                "name the origins in cors: { origins, credentials: true }",
            ),
            false => of.ledger.same(piece),
        }
    }
    let everyone = origins.iter().any(|origin| origin == "*" || origin == "null");
    if origins.is_empty() {
        origins.push("https://origin.invalid".to_owned());
    }
    map.set("origins", origins);
    if with_credentials && !everyone {
        map.set("credentials", true);
    }
    match fields.texts("methods", of.ledger) {
        Some((methods, piece)) => {
            map.set("methods", methods);
            of.ledger.same(piece);
        }
        None => map.set(
            "methods",
            vec!["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT"],
        ),
    }
    let headers = same(fields.texts("headers", of.ledger), of.ledger).filter(|headers| !headers.is_empty());
    map.set(
        "headers",
        headers
            .unwrap_or_else(|| vec!["*".to_owned()])
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect::<Vec<_>>(),
    );
    if let Some(expose) =
        same(fields.texts("exposed_headers", of.ledger), of.ledger).filter(|expose| !expose.is_empty())
    {
        map.set("expose", expose.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>());
    }
    if let Some(seconds) = same(fields.number("max_age", of.ledger), of.ledger) {
        map.set("max_age", units::duration(seconds.saturating_mul(1000)));
    }
    if let Some((true, piece)) = fields.flag("preflight_continue", of.ledger) {
        of.ledger.refused(
            piece,
            "Weir always answers preflights itself",
            "leave the filter cors out: the service answers",
        );
    }
    if let Some(true) = same(fields.flag("private_network", of.ledger), of.ledger) {
        map.set("private_network", true);
    }
    if let Some((_, piece)) = fields.flag("allow_origin_absent", of.ledger) {
        of.ledger.by_itself(piece, "a request without Origin passes");
    }
    vec![Filter::new("cors", map)]
}

fn file_log(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    if let Some((path, piece)) = fields.text("path", of.ledger) {
        of.ledger.changed(piece, "one line in JSON for each exchange of all routes, with Weir's fields");
        of.config.more.set("access_log", Map::new().with("output", path));
    }
    if let Some((_, piece)) = fields.flag("reopen", of.ledger) {
        of.ledger.left_out(piece, "SIGUSR1 reopens the file");
    }
    Vec::new()
}

fn grpc_json(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let mut map = Map::new();
    if let Some((proto, piece)) = fields.text("proto", of.ledger) {
        map.set("proto", vec![proto]);
        map.set("unmatched", "pass");
        of.ledger.changed(piece, "errors are written as google.rpc.Status");
    }
    vec![Filter::new("grpc_json", map)]
}

fn grpc_web(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    for key in ["proto", "pass_stripped_path"] {
        if let Some(entry) = fields.entry(key) {
            match entry.node.as_bool() {
                Some(false) => of.ledger.same(entry.piece),
                _ => of.ledger.refused(
                    entry.piece,
                    "the filter grpc_web passes messages unchanged",
                    "the filter connect or grpc_json for JSON",
                ),
            }
        }
    }
    if let Some((origin, piece)) = fields.text("allow_origin_header", of.ledger) {
        of.ledger.refused(piece, format!("origin {origin}"), "the filter cors before grpc_web");
    }
    vec![Filter::new("grpc_web", empty())]
}

fn ip(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let mut lists = [Vec::new(), Vec::new()];
    let mut closes = false;
    for (keys, list) in [["allow", "whitelist"], ["deny", "blacklist"]].into_iter().zip(&mut lists) {
        for key in keys {
            let Some((texts, piece)) = fields.texts(key, of.ledger) else { continue };
            for text in texts {
                match network(&text) {
                    Ok(network) => list.push(network),
                    Err(why) => {
                        closes = true;
                        of.ledger.refused(piece, why, "ip: { allow: [ 10.0.0.0/8 ] }");
                    }
                }
            }
            of.ledger.same(piece);
        }
    }
    for key in ["status", "message"] {
        if let Some(entry) = fields.entry(key) {
            match entry.node.as_u64() {
                Some(403) => of.ledger.same(entry.piece),
                _ => of.ledger.changed(
                    entry.piece,
                    "Weir answers 403 with its own text; the filter errors sets another",
                ),
            }
        }
    }
    let [allow, deny] = lists;
    if closes && allow.is_empty() {
        return vec![filters::closed("a network of ip-restriction cannot be read")];
    }
    vec![filters::ip(&allow, &deny)]
}

fn tracing(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let mut map = Map::new();
    for key in ["endpoint", "traces_endpoint"] {
        if let Some((url, piece)) = fields.text(key, of.ledger) {
            let base = url.trim_end_matches('/').trim_end_matches("/v1/traces").to_owned();
            map.set("otlp", base);
            map.set("protocol", "http");
            of.ledger.changed(piece, "spans of all routes; their names and attributes are Weir's");
        }
    }
    if let Some((node, piece)) = fields.map("resource_attributes", of.ledger) {
        of.ledger.same(piece);
        let mut resource = Map::new();
        for entry in node.as_map().unwrap_or_default() {
            let text = entry.node.as_text().unwrap_or_default();
            match &*entry.key {
                "service.name" => map.set("service", text),
                key => resource.set(key, text),
            }
            of.ledger.same(entry.piece);
        }
        if !resource.is_empty() {
            map.set("resource", resource);
        }
    }
    if let Some(entry) = fields.entry("sampling_rate") {
        match entry.node.as_text().and_then(|text| text.parse::<f64>().ok()) {
            Some(rate) => {
                map.set("share", format!("{}%", (rate * 10_000.0).round() / 100.0));
                of.ledger.same(entry.piece);
            }
            None => of.ledger.refused(entry.piece, "expected a number", "tracing: { share: 10% }"),
        }
    }
    for entry in std::mem::take(fields).rest() {
        entry.each_piece(&mut |piece| {
            of.ledger.left_out(
                piece,
                "how Kong batches spans, or its own header names; Weir speaks W3C Trace Context",
            )
        });
    }
    if map.get("otlp").is_some() {
        of.config.more.set("tracing", map);
    }
    Vec::new()
}

fn cache(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    if of.config.stores.get("answers").is_none() {
        of.config.stores.add("answers", Map::new().with("memory", "128MiB"));
    }
    let mut map = Map::new().with("store", "answers");
    let ttl = same(fields.number("cache_ttl", of.ledger), of.ledger).unwrap_or(300);
    map.set("ttl", units::duration(ttl.saturating_mul(1000)));
    let codes = fields.list("response_code", of.ledger);
    if let Some((codes, piece)) = codes {
        let codes: Vec<u64> = codes.iter().filter_map(Node::as_u64).collect();
        if codes.contains(&404) {
            map.set("negative", units::duration(ttl.saturating_mul(1000)));
        }
        match codes.iter().all(|code| [200, 203, 204, 300, 301, 308, 404, 410].contains(code)) {
            true => of.ledger.changed(
                piece,
                "`ttl` is for 200, 203, 204, 300, 301 and 308, `negative` for 404, 405, 410, 414 and 501",
            ),
            false => of.ledger.refused(
                piece,
                "Weir keeps other statuses only if the service says how long",
                "cache: { ttl, negative }, and Cache-Control of the service",
            ),
        }
    } else {
        map.set("negative", units::duration(ttl.saturating_mul(1000)));
    }
    of.instance.changed(
        of.ledger,
        "Weir's cache follows RFC 9111: Cache-Control of the service beats `ttl`, and \
        answers with cookies are not kept",
    );
    if let Some((methods, piece)) = fields.texts("request_method", of.ledger) {
        match methods.iter().all(|method| method == "GET" || method == "HEAD") {
            true => of.ledger.same(piece),
            false => of.ledger.refused(
                piece,
                "only GET and HEAD are answered from the cache",
                "nothing: other methods change things",
            ),
        }
    }
    if let Some((types, piece)) = fields.texts("content_type", of.ledger) {
        of.ledger.changed(piece, format!("Weir keeps answers of all types, not only {}", types.join(", ")));
    }
    if let Some((headers, piece)) = fields.texts("vary_headers", of.ledger) {
        let mut key = vec!["caller".to_owned()];
        key.extend(headers.iter().map(|name| format!("header:{}", name.to_ascii_lowercase())));
        if key.len() > 1 {
            map.set("key", key);
        }
        of.ledger.same(piece);
    }
    if let Some((names, piece)) = fields.texts("vary_query_params", of.ledger) {
        match names.is_empty() {
            true => of.ledger.same(piece),
            false => of.ledger.refused(
                piece,
                "Weir's key has the whole query",
                "rewrite: { query: { remove } } before the cache",
            ),
        }
    }
    for (key, flag) in [("cache_control", true), ("ignore_uri_case", false)] {
        if let Some((set, piece)) = fields.flag(key, of.ledger) {
            match (set, flag) {
                (true, true) => of.ledger.same(piece),
                (false, true) => of.ledger.changed(piece, "Cache-Control of the service beats `ttl`"),
                (false, false) => of.ledger.same(piece),
                (true, false) => of.ledger.refused(
                    piece,
                    "paths of different case are different objects",
                    "match: { case: insensitive } only matches",
                ),
            }
        }
    }
    for key in ["memory", "storage_ttl", "response_headers"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                of.ledger.left_out(piece, "`stores.answers.memory` says how much is kept")
            });
        }
    }
    vec![Filter::new("cache", map)]
}

fn rate_limit(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
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

fn redirect(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let status = same(fields.number("status_code", of.ledger), of.ledger).unwrap_or(301);
    let keeps = same(fields.flag("keep_incoming_path", of.ledger), of.ledger).unwrap_or(false);
    let Some((to, piece)) = fields.text("location", of.ledger) else { return Vec::new() };
    of.ledger.same(piece);
    let to = match keeps {
        true => format!("{}{{path}}", literal(to.trim_end_matches('/'))),
        false => literal(&to),
    };
    vec![filters::redirect(&to, u16::try_from(status).unwrap_or(301), keeps)]
}

fn body_limit(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let size = same(fields.number("allowed_payload_size", of.ledger), of.ledger).unwrap_or(128);
    let unit = same(fields.text("size_unit", of.ledger), of.ledger).unwrap_or_else(|| "megabytes".to_owned());
    let shift = match unit.as_str() {
        "bytes" => 0,
        "kilobytes" => 10,
        _ => 20,
    };
    if let Some((true, piece)) = fields.flag("require_content_length", of.ledger) {
        of.ledger.changed(piece, "a body without a length is counted as it passes");
    }
    of.instance.changed(of.ledger, "a client that sent `Expect: 100-continue` gets 413, not 417");
    filters::body_limit(size.saturating_mul(1 << shift)).into_iter().collect()
}

fn terminate(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let status = same(fields.number("status_code", of.ledger), of.ledger).unwrap_or(503);
    let message = same(fields.text("message", of.ledger), of.ledger);
    let content_type = same(fields.text("content_type", of.ledger), of.ledger);
    let body = same(fields.text("body", of.ledger), of.ledger);
    for key in ["echo", "trigger"] {
        if let Some(entry) = fields.entry(key) {
            match entry.node.as_bool() {
                Some(false) => of.ledger.same(entry.piece),
                _ => of.ledger.refused(
                    entry.piece,
                    "an answer for some requests only",
                    "the filter when with respond",
                ),
            }
        }
    }
    let (body, kind) = match (body, message) {
        (Some(body), _) => {
            (body, content_type.unwrap_or_else(|| "application/json; charset=utf-8".to_owned()))
        }
        (None, message) => {
            let message = message.unwrap_or_else(|| "Service unavailable".to_owned());
            let json = serde_json::json!({ "message": message }).to_string();
            (json, "application/json; charset=utf-8".to_owned())
        }
    };
    let body = Template::text(&body).to_body();
    let status = u16::try_from(status).ok().filter(|status| (200..600).contains(status)).unwrap_or(503);
    vec![Filter::new("respond", filters::respond(status, Some(body), Some(&kind)))]
}
