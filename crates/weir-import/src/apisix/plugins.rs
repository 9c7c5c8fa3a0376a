//! Plugins of APISIX as filters, merged by whole plugin and ordered by number.

use super::consumers::Known;
use super::vars;
use crate::config::{Config, Filter};
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters::{self, Headers, closed};
use crate::shared::networks::network;
use crate::shared::template::{Part, Template};
use crate::shared::tree::{Entry, Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};
use std::collections::BTreeMap;

/// Plugins with their numbers: the greater runs first. What is not here is refused.
const NUMBERS: &[(&str, i64)] = &[
    ("request-id", 12015),
    ("fault-injection", 11000),
    ("cors", 4000),
    ("ip-restriction", 3000),
    ("ua-restriction", 2999),
    ("client-control", 2970),
    ("basic-auth", 2520),
    ("jwt-auth", 2510),
    ("key-auth", 2500),
    ("consumer-restriction", 2400),
    ("forward-auth", 2002),
    ("proxy-mirror", 1010),
    ("proxy-rewrite", 1008),
    ("api-breaker", 1005),
    ("limit-conn", 1003),
    ("limit-count", 1002),
    ("limit-req", 1001),
    ("gzip", 995),
    ("redirect", 900),
    ("response-rewrite", 899),
    ("grpc-web", 505),
    ("prometheus", 500),
];

/// Plugins that are refused, with the nearest thing of Weir.
const NEAREST: &[(&str, &str)] = &[
    ("ext-plugin", "the filter ext_proc"),
    ("file-logger", "access_log with a file"),
    ("grpc-transcode", "the filter grpc_json with the .proto file"),
    ("hmac-auth", "the filter signature_auth (RFC 9421)"),
    ("http-logger", "access_log.otlp"),
    ("openid-connect", "the filter oidc, or jwt for tokens"),
    ("opentelemetry", "`tracing`"),
    ("proxy-cache", "the filter cache with a store"),
    ("request-validation", "the filter validate with a schema in a file"),
    ("serverless", "expressions, or the filter ext_proc"),
    ("traffic-split", "`upstream: { NAME: 95, NEXT: 5 }` of a route, and match.when"),
    ("zipkin", "`tracing`"),
];
/// Refused plugins that guard nothing. A route with another one stays closed.
const HARMLESS: &[&str] = &[
    "file-logger",
    "http-logger",
    "opentelemetry",
    "zipkin",
    "traffic-split",
    "proxy-cache",
    "gzip",
    "real-ip",
    "syslog",
    "kafka-logger",
];

/// The filters of a route: plugins by name, already merged, and those of consumers.
pub(super) fn filters(
    merged: &BTreeMap<&str, &Entry>,
    known: &Known<'_>,
    config: &mut Config,
    ledger: &mut Ledger,
) -> Vec<Filter> {
    let mut names: Vec<(&str, i64)> = merged
        .keys()
        .copied()
        .chain(known.own.iter().flat_map(|(_, own)| own.iter().map(|entry| &*entry.key)))
        .map(|name| (name, NUMBERS.iter().find(|(other, _)| *other == name).map_or(0, |(_, number)| *number)))
        .collect();
    names.sort_by_key(|(name, number)| (std::cmp::Reverse(*number), *name));
    names.dedup();
    let has_auth = ["key-auth", "basic-auth", "jwt-auth"].iter().any(|name| merged.contains_key(name));
    let mut out = Vec::new();
    for (name, _) in names {
        let mut made = merged.get(name).map(|entry| plugin(entry, known, config, ledger)).unwrap_or_default();
        for (consumer, own) in known.own.iter().filter(|_| has_auth) {
            if let Some(entry) = own.iter().find(|entry| &*entry.key == name) {
                let is = Expression::raw("consumer.name").equals(Expression::text(consumer));
                let own = plugin(entry, known, config, ledger);
                made = filters::when(&is, own, made);
            }
        }
        out.extend(made);
    }
    out
}

fn same<T>(value: Option<(T, Piece)>, ledger: &mut Ledger) -> Option<T> {
    value.map(|(value, piece)| {
        ledger.same(piece);
        value
    })
}

fn plugin(entry: &Entry, known: &Known<'_>, config: &mut Config, ledger: &mut Ledger) -> Vec<Filter> {
    let name = &*entry.key;
    let mut fields = Fields::of(&entry.node);
    let mut condition = Expression::constant(true);
    if let Some((meta, piece)) = fields.map("_meta", ledger) {
        ledger.same(piece);
        let mut meta = Fields::of(meta);
        if same(meta.flag("disable", ledger), ledger) == Some(true) {
            entry.each_piece(&mut |piece| ledger.left_out(piece, "the plugin is off"));
            return Vec::new();
        }
        if let Some(filter) = meta.entry("filter") {
            match vars::all(&filter.node) {
                Ok(is) => {
                    condition = is;
                    ledger.same(filter.piece);
                }
                Err(why) => {
                    ledger.refused(filter.piece, why.clone(), "the filter when");
                    return vec![closed(&why)];
                }
            }
        }
        for entry in meta.rest() {
            entry.each_piece(&mut |piece| {
                ledger.refused(
                    piece,
                    "an order or an answer of its own",
                    "the order of `filters`, the filter errors",
                )
            });
        }
    }
    if same(fields.flag("disable", ledger), ledger) == Some(true) {
        entry.each_piece(&mut |piece| ledger.left_out(piece, "the plugin is off"));
        return Vec::new();
    }
    ledger.same(entry.piece);
    let made = translate(name, entry, &mut fields, known, config, ledger);
    let Some(made) = made else {
        let nearest = NEAREST
            .iter()
            .find(|(other, _)| name.starts_with(other))
            .map_or("see docs/reference/filters.md; ext_proc runs programs", |(_, nearest)| nearest);
        let why = format!("Weir has no plugin `{name}`");
        entry.each_piece(&mut |piece| ledger.refused(piece, why.clone(), nearest));
        return if HARMLESS.contains(&name) { Vec::new() } else { vec![closed(&why)] };
    };
    for entry in fields.rest() {
        entry.each_piece(&mut |piece| {
            ledger.refused(
                piece,
                format!("weir import does not know this setting of the plugin {name}"),
                "docs/reference/filters.md",
            );
        });
    }
    filters::when(&condition, made, Vec::new())
}

/// A text with `$variables`.
fn template(text: &str) -> Result<Template, String> {
    let mut out = Template::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push(Part::Text(rest[..at].to_owned()));
        let behind = rest[at + 1..].trim_start_matches('{');
        let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
        let value =
            vars::variable(&behind[..end]).ok_or_else(|| format!("the variable `${}`", &behind[..end]))?;
        out.push(match &behind[..end] {
            "uri" => Part::Placeholder("path".to_owned()),
            "host" => Part::Placeholder("host".to_owned()),
            "scheme" => Part::Placeholder("scheme".to_owned()),
            _ => Part::Value(value),
        });
        rest = behind[end..].trim_start_matches('}');
    }
    out.push(Part::Text(rest.to_owned()));
    Ok(out)
}

fn pairs(node: &Node, ledger: &mut Ledger) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    for entry in node.as_map().unwrap_or_default() {
        match entry.node.as_text().map(|text| template(&text)) {
            Some(Ok(value)) => {
                ledger.same(entry.piece);
                out.push((entry.key.to_string(), value.to_setting().into()));
            }
            Some(Err(why)) => ledger.refused(
                entry.piece,
                why,
                "headers: { request: { set: { NAME: \"{= EXPRESSION }\" } } }",
            ),
            None => ledger.refused(entry.piece, "expected a text", "headers"),
        }
    }
    out
}

/// Withholds the fields that `node` sets to values that Weir lacks.
fn withhold(headers: &mut Headers, node: &Node) {
    for entry in node.as_map().unwrap_or_default() {
        if !headers.request_set.iter().any(|(name, _)| **name == *entry.key) {
            headers.withhold(&entry.key);
        }
    }
}

fn translate(
    name: &str,
    entry: &Entry,
    fields: &mut Fields<'_>,
    known: &Known<'_>,
    config: &mut Config,
    ledger: &mut Ledger,
) -> Option<Vec<Filter>> {
    let one = |name: &'static str, map: Map| vec![Filter::new(name, map)];
    Some(match name {
        "key-auth" => {
            let header = same(fields.text("header", ledger), ledger).unwrap_or_else(|| "apikey".to_owned());
            let query = same(fields.text("query", ledger), ledger).unwrap_or_else(|| "apikey".to_owned());
            let mut map = Map::new().with("header", header.to_ascii_lowercase()).with("query", query);
            if same(fields.flag("hide_credentials", ledger), ledger) != Some(true) {
                map.set("hide", false);
            }
            named(one("key_auth", map))
        }
        "basic-auth" => {
            let mut map = Map::new();
            if same(fields.flag("hide_credentials", ledger), ledger) != Some(true) {
                map.set("hide", false);
            }
            named(one("basic_auth", map))
        }
        "jwt-auth" => {
            let mut extra = Map::new();
            if let Some(header) = same(fields.text("header", ledger), ledger)
                .filter(|header| !header.eq_ignore_ascii_case("authorization"))
            {
                extra.set("header", header.to_ascii_lowercase());
                extra.set("scheme", "Bearer");
            }
            extra.set_some("cookie", same(fields.text("cookie", ledger), ledger));
            if let Some((_, piece)) = fields.text("query", ledger) {
                ledger.changed(piece, "Weir does not read tokens from URLs, which end up in logs");
            }
            if same(fields.flag("hide_credentials", ledger), ledger) == Some(true) {
                extra.set("hide", true);
            }
            ledger.changed(entry.piece, "Weir does not read tokens from `?jwt=`; a token needs `exp`");
            let members: Vec<Value> = known
                .tokens
                .iter()
                .map(|token| {
                    let mut map = token.clone();
                    extra.iter().for_each(|(key, value)| map.set(key, value.clone()));
                    Filter::new("jwt", map).to_value()
                })
                .collect();
            match members.len() {
                0 => {
                    ledger.refused(
                        entry.piece,
                        "no consumer has a key for tokens that Weir can use",
                        "the filter jwt",
                    );
                    vec![closed("jwt-auth identifies nobody")]
                }
                _ => named(vec![Filter::new("any", Value::List(members))]),
            }
        }
        "consumer-restriction" => {
            let kind =
                same(fields.text("type", ledger), ledger).unwrap_or_else(|| "consumer_name".to_owned());
            let prefix = match kind.as_str() {
                "consumer_name" => "",
                "consumer_group_id" => "group:",
                _ => return None,
            };
            let mut map = Map::new();
            for (key, ours) in [("whitelist", "allow"), ("blacklist", "deny")] {
                if let Some(list) = same(fields.texts(key, ledger), ledger) {
                    map.set(ours, list.iter().map(|name| format!("{prefix}{name}")).collect::<Vec<_>>());
                }
            }
            rejects(fields, 403, ledger);
            one("acl", map)
        }
        "ip-restriction" => {
            let mut lists = [Vec::new(), Vec::new()];
            for (key, list) in ["whitelist", "blacklist"].into_iter().zip(&mut lists) {
                let Some((texts, piece)) = fields.texts(key, ledger) else { continue };
                ledger.same(piece);
                for text in texts {
                    match network(&text) {
                        Ok(network) => list.push(network),
                        Err(why) => {
                            ledger.refused(piece, why.clone(), "ip: { allow }");
                            return Some(vec![closed(&why)]);
                        }
                    }
                }
            }
            rejects(fields, 403, ledger);
            let [allow, deny] = lists;
            vec![filters::ip(&allow, &deny)]
        }
        "limit-count" => {
            let count = same(fields.number("count", ledger), ledger)?;
            let window = same(fields.number("time_window", ledger), ledger)?;
            ledger.changed(entry.piece, "APISIX counts in fixed windows; Weir's bucket refills evenly");
            let mut map = limit(count, window.saturating_mul(1000));
            by(fields, &mut map, ledger);
            rejects(fields, 429, ledger);
            for key in ["policy", "group", "allow_degradation", "show_limit_quota_header"] {
                if let Some(entry) = fields.entry(key) {
                    let text = entry.node.as_text().unwrap_or_default();
                    match (key, text.as_str()) {
                        ("policy", "local") | (_, "false") | ("show_limit_quota_header", "true") => {
                            ledger.same(entry.piece)
                        }
                        _ => ledger.refused(
                            entry.piece,
                            "counts in a place of its own",
                            "stores.NAME.redis and `store`; the filters of the whole config share one limit",
                        ),
                    }
                }
            }
            one("rate_limit", map)
        }
        "limit-req" => {
            let rate = fields.entry("rate")?;
            let burst = fields.entry("burst");
            let per_second = rate.node.as_text()?.parse::<f64>().ok()?;
            let over = burst.and_then(|entry| entry.node.as_text()?.parse::<f64>().ok()).unwrap_or(0.0);
            ledger.same(rate.piece);
            burst.iter().for_each(|entry| {
                ledger.changed(
                    entry.piece,
                    "APISIX delays requests within the burst; Weir lets them pass at once",
                )
            });
            let (count, window) = if per_second >= 1.0 {
                (per_second as u64, 1000)
            } else {
                (1, (1000.0 / per_second.max(0.000_1)) as u64)
            };
            let mut map = limit(count, window);
            map.set("burst", (over as i64).saturating_add(1).max(1));
            same(fields.flag("nodelay", ledger), ledger);
            by(fields, &mut map, ledger);
            rejects(fields, 429, ledger);
            one("rate_limit", map)
        }
        "limit-conn" => {
            let conn = same(fields.number("conn", ledger), ledger)?;
            let burst = same(fields.number("burst", ledger), ledger).unwrap_or(0);
            if let Some(entry) = fields.entry("default_conn_delay") {
                ledger.left_out(entry.piece, "Weir delays nothing");
            }
            let mut map = Map::new().with("requests", i64::try_from(conn + burst).unwrap_or(i64::MAX));
            by(fields, &mut map, ledger);
            rejects(fields, 429, ledger);
            one("concurrency", map)
        }
        "cors" => cors(fields, ledger),
        "request-id" => {
            let header =
                same(fields.text("header_name", ledger), ledger).unwrap_or_else(|| "X-Request-Id".to_owned());
            let mut map = Map::new();
            if !header.eq_ignore_ascii_case("x-request-id") {
                map.set("header", header.to_ascii_lowercase());
            }
            if same(fields.flag("include_in_response", ledger), ledger) == Some(false) {
                map.set("response", false);
            }
            if let Some((_, piece)) = fields.text("algorithm", ledger) {
                ledger.changed(piece, "an id of Weir is 32 hexadecimal digits");
            }
            one("request_id", map)
        }
        "prometheus" => {
            entry.each_piece(&mut |piece| {
                ledger.by_itself(piece, "/metrics of the admin listener has them, under other names")
            });
            *fields = Fields::default();
            Vec::new()
        }
        "grpc-web" => one("grpc_web", Map::new()),
        "gzip" => {
            for entry in std::mem::take(fields).rest() {
                entry.each_piece(&mut |piece| {
                    ledger.changed(piece, "Weir's own types and levels: the filter compress")
                });
            }
            one("compress", Map::new().with("algorithms", vec!["gzip"]))
        }
        "client-control" => {
            let bytes = same(fields.number("max_body_size", ledger), ledger)?;
            filters::body_limit(bytes).into_iter().collect()
        }
        "forward-auth" => {
            let uri = same(fields.text("uri", ledger), ledger)?;
            let (scheme, rest) = uri.split_once("://")?;
            let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
            let address = if authority.contains(':') {
                authority.to_owned()
            } else {
                format!("{authority}:{}", if scheme == "https" { 443 } else { 80 })
            };
            let mut upstream = crate::config::Upstream {
                endpoints: vec![crate::config::Endpoint { address, ..Default::default() }],
                ..Default::default()
            };
            upstream.more.set("host", "endpoint");
            if scheme == "https" {
                upstream.more.set("tls", Map::new());
            }
            let known = config
                .upstreams
                .iter()
                .find(|(_, known)| **known == upstream)
                .map(|(name, _)| name.to_owned());
            let upstream = known.unwrap_or_else(|| config.upstreams.add("auth", upstream));
            let mut map = Map::new().with("upstream", upstream).with("path", path);
            for (key, ours) in [
                ("request_headers", "copy_request"),
                ("upstream_headers", "copy"),
                ("client_headers", "copy_response"),
            ] {
                map.set_some(ours, same(fields.texts(key, ledger), ledger));
            }
            for key in [
                "ssl_verify",
                "timeout",
                "keepalive",
                "keepalive_timeout",
                "keepalive_pool",
                "status_on_error",
                "allow_degradation",
                "request_method",
            ] {
                if let Some(entry) = fields.entry(key) {
                    match (key, entry.node.as_bool()) {
                        ("allow_degradation", Some(true)) => {
                            ledger.refused(entry.piece, "no request passes without a decision", "nothing")
                        }
                        _ => ledger.changed(
                            entry.piece,
                            "the upstream `auth` has its own timeouts; without an answer the client gets 503",
                        ),
                    }
                }
            }
            one("forward_auth", map)
        }
        "fault-injection" => {
            let mut map = Map::new();
            for (key, value) in [("abort", "http_status"), ("delay", "duration")] {
                let Some((node, piece)) = fields.map(key, ledger) else { continue };
                ledger.same(piece);
                let mut inner = Fields::of(node);
                if let Some(entry) = inner.entry(value) {
                    ledger.same(entry.piece);
                    match key {
                        "abort" => map.set("status", i64::try_from(entry.node.as_u64()?).ok()?),
                        _ => map.set(
                            "delay",
                            units::duration((entry.node.as_text()?.parse::<f64>().ok()? * 1000.0) as u64),
                        ),
                    }
                }
                if let Some(percent) = same(inner.number("percentage", ledger), ledger) {
                    map.set("share", format!("{percent}%"));
                }
                for entry in inner.rest() {
                    entry.each_piece(&mut |piece| {
                        ledger.refused(
                            piece,
                            "an answer or a condition of its own",
                            "the filters when and respond",
                        )
                    });
                }
            }
            one("fault", map)
        }
        "api-breaker" => {
            let mut map = Map::new();
            for entry in std::mem::take(fields).rest() {
                entry.each_piece(&mut |piece| {
                    ledger.changed(
                        piece,
                        "Weir's circuit opens at a share of failures: `errors`, `minimum`, `open`",
                    )
                });
            }
            map.set("errors", "50%");
            one("circuit_breaker", map)
        }
        "redirect" => {
            let status = same(fields.number("ret_code", ledger), ledger)
                .and_then(|code| u16::try_from(code).ok())
                .unwrap_or(302);
            let keeps = same(fields.flag("append_query_string", ledger), ledger).unwrap_or(false);
            if same(fields.flag("http_to_https", ledger), ledger) == Some(true) {
                ledger.changed(
                    entry.piece,
                    "301 for GET and HEAD and 308 for others there; 308 here. The port is 443",
                );
                return Some(vec![filters::redirect_to_https(308)]);
            }
            let (uri, piece) = fields.text("uri", ledger)?;
            match template(&uri) {
                Ok(to) => {
                    ledger.same(piece);
                    vec![filters::redirect(&to.to_setting(), status, keeps)]
                }
                Err(why) => {
                    ledger.refused(piece, why.clone(), "redirect: { to }");
                    vec![closed(&why)]
                }
            }
        }
        "proxy-rewrite" => rewrite(fields, ledger),
        "response-rewrite" => {
            let mut headers = Headers::default();
            if let Some((node, piece)) = fields.map("headers", ledger) {
                ledger.same(piece);
                let is_nested = ["set", "add", "remove"].iter().any(|key| node.get(key).is_some());
                let mut inner = Fields::of(node);
                match is_nested {
                    false => {
                        headers.response_set = pairs(node, ledger);
                        inner = Fields::default();
                    }
                    true => {
                        if let Some((node, piece)) = inner.map("set", ledger) {
                            ledger.same(piece);
                            headers.response_set = pairs(node, ledger);
                        }
                        headers.response_remove =
                            same(inner.texts("remove", ledger), ledger).unwrap_or_default();
                        for text in same(inner.texts("add", ledger), ledger).unwrap_or_default() {
                            if let Some((name, value)) = text.split_once(':') {
                                headers.response_add.push((
                                    name.trim().to_owned(),
                                    Template::text(value.trim()).to_setting().into(),
                                ));
                            }
                        }
                    }
                }
                for entry in inner.rest() {
                    entry.each_piece(&mut |piece| {
                        ledger.refused(piece, "not understood", "headers: { response }")
                    });
                }
            }
            ledger.changed(entry.piece, "also on Weir's own answers, such as errors");
            headers.filter().into_iter().collect()
        }
        _ => return None,
    })
}

/// What tells the service who calls.
fn named(mut filters: Vec<Filter>) -> Vec<Filter> {
    let headers = Headers {
        request_set: vec![("x-consumer-username".to_owned(), "{consumer}".into())],
        // APISIX writes or clears these for every caller.
        request_remove: vec!["x-consumer-custom-id".to_owned(), "x-credential-identifier".to_owned()],
        ..Headers::default()
    };
    filters.extend(headers.filter());
    filters
}

fn limit(count: u64, window: u64) -> Map {
    Map::new()
        .with("requests", i64::try_from(count).unwrap_or(i64::MAX))
        .with("per", units::duration(window.max(1)))
}

/// `key` and `key_type` of the plugins that limit.
fn by(fields: &mut Fields<'_>, map: &mut Map, ledger: &mut Ledger) {
    let kind = same(fields.text("key_type", ledger), ledger).unwrap_or_else(|| "var".to_owned());
    let Some((key, piece)) = fields.text("key", ledger) else {
        map.set("by", "address");
        return;
    };
    let by = match (kind.as_str(), key.as_str()) {
        ("var", "remote_addr" | "$remote_addr") => Some("address".to_owned()),
        ("var", "consumer_name" | "$consumer_name") => Some("consumer".to_owned()),
        ("constant", _) => Some("route".to_owned()),
        ("var", key) => vars::variable(key).map(|value| format!("= {}", value.as_str())),
        (_, text) => template(text).ok().map(|text| text.to_setting()),
    };
    match by {
        Some(by) => {
            ledger.same(piece);
            map.set("by", by);
        }
        None => {
            ledger.refused(piece, format!("`{key}`"), "`by` of the filter");
            map.set("by", "address");
        }
    }
}

/// `rejected_code` and `message`: Weir has one status for each refusal.
fn rejects(fields: &mut Fields<'_>, ours: u64, ledger: &mut Ledger) {
    let mut told = false;
    for key in ["rejected_code", "rejected_msg", "message", "response_code"] {
        if let Some(entry) = fields.entry(key) {
            told = true;
            match entry.node.as_u64() == Some(ours) {
                true => ledger.same(entry.piece),
                false => ledger.changed(
                    entry.piece,
                    format!("Weir answers {ours} with its own text; the filter errors sets another"),
                ),
            }
        }
    }
    if !told && ours == 429 {
        ledger.note("limits: APISIX refuses with 503 unless told otherwise; Weir with 429");
    }
}

fn cors(fields: &mut Fields<'_>, ledger: &mut Ledger) -> Vec<Filter> {
    let split = |text: &str| {
        text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect::<Vec<_>>()
    };
    let any = |text: &str| if text.contains('*') { vec!["*".to_owned()] } else { split(text) };
    let origins = same(fields.text("allow_origins", ledger), ledger).unwrap_or_else(|| "*".to_owned());
    let is_any = origins.contains('*');
    let mut map = Map::new().with("origins", any(&origins));
    map.set(
        "methods",
        any(&same(fields.text("allow_methods", ledger), ledger).unwrap_or_else(|| "*".to_owned())),
    );
    let headers = any(&same(fields.text("allow_headers", ledger), ledger).unwrap_or_else(|| "*".to_owned()));
    map.set("headers", headers.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>());
    if let Some((flag, piece)) = fields.flag("allow_credential", ledger) {
        match flag && is_any {
            true => ledger.refused(
                piece,
                "with every origin, any page could read what a user may read",
                "cors: { origins: [ … ], credentials: true }",
            ),
            false => {
                ledger.same(piece);
                if flag {
                    map.set("credentials", true);
                }
            }
        }
    }
    if let Some(expose) =
        same(fields.text("expose_headers", ledger), ledger).filter(|text| !text.contains('*'))
    {
        map.set("expose", split(&expose));
    }
    if let Some(seconds) = same(fields.number("max_age", ledger), ledger) {
        map.set("max_age", units::duration(seconds.saturating_mul(1000)));
    }
    if let Some(entry) = fields.entry("allow_origins_by_regex") {
        entry.each_piece(&mut |piece| {
            ledger.refused(piece, "origins by regex", "cors: { origins: [ \"https://*.example.com\" ] }")
        });
    }
    vec![Filter::new("cors", map)]
}

fn rewrite(fields: &mut Fields<'_>, ledger: &mut Ledger) -> Vec<Filter> {
    let mut map = Map::new();
    let mut out = Vec::new();
    if let Some((uri, piece)) = fields.text("uri", ledger) {
        match template(&uri) {
            Ok(path) if uri.starts_with('/') && !uri.contains('?') && path.as_literal().is_some() => {
                map.set("path", path.to_setting());
                ledger.same(piece);
            }
            _ => ledger.refused(piece, "a path with variables or a query", "rewrite: { path, query }"),
        }
    }
    // The route reads it, because its captures are those of the route's path.
    let _ = fields.entry("regex_uri");
    if let Some((host, piece)) = fields.text("host", ledger) {
        map.set("host", host);
        ledger.same(piece);
    }
    if let Some((method, piece)) = fields.text("method", ledger) {
        ledger.refused(piece, format!("{method} instead of the client's method"), "nothing");
    }
    if let Some((node, piece)) = fields.map("headers", ledger) {
        ledger.same(piece);
        let mut headers = Headers::default();
        let is_nested = ["set", "add", "remove"].iter().any(|key| node.get(key).is_some());
        if is_nested {
            let mut inner = Fields::of(node);
            for (key, list) in [("set", &mut headers.request_set), ("add", &mut headers.request_add)] {
                if let Some((node, piece)) = inner.map(key, ledger) {
                    ledger.same(piece);
                    *list = pairs(node, ledger);
                }
            }
            headers.request_remove = same(inner.texts("remove", ledger), ledger).unwrap_or_default();
            node.get("set").into_iter().for_each(|node| withhold(&mut headers, node));
        } else {
            headers.request_set = pairs(node, ledger);
            withhold(&mut headers, node);
        }
        out.extend(headers.filter());
    }
    if !map.is_empty() {
        out.push(Filter::new("rewrite", map));
    }
    out
}
