//! The plugins that refuse, limit, answer and observe.

mod cache;
mod cors;
mod rate_limit;

use super::plugins::{Use, empty};
use crate::config::Filter;
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters;
use crate::shared::networks::network;
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::Template;
use crate::shared::tree::Fields;
use crate::yaml::Map;
use cache::cache;
use cors::cors;
use rate_limit::rate_limit;

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
