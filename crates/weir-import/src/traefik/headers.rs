//! The middleware `headers`: fields of your own, CORS, and fields that make browsers strict.

use super::auth::{pairs, value};
use super::cx::{Cx, list};
use super::middlewares::About;
use super::paths;
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::expression::Expression;
use crate::shared::filters::{self, Headers};
use crate::shared::tree::{Entry, Fields};
use crate::shared::units;
use crate::yaml::{Map, Value};

/// Settings that Traefik 3 no longer has, and what does the same.
const GONE: &[(&str, &str)] = &[
    ("sslForceHost", "the filter redirect with a host"),
    ("sslHost", "the filter redirect with a host"),
    ("sslTemporaryRedirect", "redirect: { https: true, status: 307 }"),
    ("publicKey", "browsers ignore Public-Key-Pins"),
    ("featurePolicy", "permissions_policy of security_headers"),
];

/// Fields with a text, and the setting that has it.
const TEXTS: &[(&str, &str)] = &[
    ("customFrameOptionsValue", "x-frame-options"),
    ("contentSecurityPolicy", "content-security-policy"),
    ("contentSecurityPolicyReportOnly", "content-security-policy-report-only"),
    ("referrerPolicy", "referrer-policy"),
    ("permissionsPolicy", "permissions-policy"),
    ("customBrowserXSSValue", "x-xss-protection"),
];

pub(super) fn translate(
    cx: &mut Cx<'_, '_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
    about: &About,
) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let mut out = Vec::new();
    out.extend(cors(cx, fields));
    out.extend(hosts(cx, fields));
    if let Some((flag, piece)) = fields.flag("sslRedirect", cx.ledger) {
        cx.ledger.changed(piece, paths::STATUS);
        if flag {
            out.extend(paths::to_scheme("https", "", 308, about.is_tls));
        }
    }
    for (key, nearest) in GONE {
        if let Some(entry) = fields.entry(key) {
            cx.ledger.refused(entry.piece, "Traefik 3 no longer has it", *nearest);
        }
    }
    let mut headers = Headers::default();
    custom(cx, fields, &mut headers, &mut out);
    secure(cx, fields, &mut headers);
    let hsts = hsts(cx, fields, about, &mut headers);
    out.extend(headers.filter());
    out.extend(hsts);
    out
}

/// customRequestHeaders and customResponseHeaders. An empty value removes the field.
fn custom(cx: &mut Cx<'_, '_>, fields: &mut Fields<'_>, headers: &mut Headers, out: &mut Vec<Filter>) {
    for key in ["customRequestHeaders", "customResponseHeaders"] {
        let Some((node, piece)) = fields.map(key, cx.ledger) else { continue };
        cx.ledger.same(piece);
        let is_request = key == "customRequestHeaders";
        for (entry, text) in pairs(node) {
            let name = entry.key.to_ascii_lowercase();
            cx.ledger.same(entry.piece);
            let is_secret = ["authorization", "token", "secret", "api-key", "apikey"]
                .iter()
                .any(|word| name.contains(word));
            if text.contains("{{") {
                cx.ledger.refused(
                    entry.piece,
                    "a template of Go",
                    "write what it comes to, or `${VARIABLE}`",
                );
                continue;
            }
            if is_request && name == "host" {
                if text.is_empty() {
                    cx.ledger.refused(entry.piece, "a request needs a Host", "upstreams.NAME.host");
                } else {
                    out.push(Filter::new("rewrite", Map::new().with("host", value(&name, &text, false, cx))));
                }
                continue;
            }
            if is_request
                && matches!(name.as_str(), "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host")
            {
                let why = "Weir writes this field itself: what it knows, or what `trusted_proxies` say";
                cx.ledger.changed(entry.piece, why);
                continue;
            }
            match (is_request, text.is_empty()) {
                (true, true) => headers.request_remove.push(name),
                (false, true) => headers.response_remove.push(name),
                (_, false) => {
                    if is_secret {
                        cx.ledger.conceal(entry.piece);
                    }
                    let set = (name.clone(), value(&name, &text, is_secret && is_request, cx));
                    if is_request { headers.request_set.push(set) } else { headers.response_set.push(set) }
                }
            }
        }
    }
}

fn secure(cx: &mut Cx<'_, '_>, fields: &mut Fields<'_>, headers: &mut Headers) {
    let custom_frame = fields.peek("customFrameOptionsValue").filter(|text| !text.is_empty());
    for (key, name, text) in [
        ("frameDeny", "x-frame-options", "DENY"),
        ("contentTypeNosniff", "x-content-type-options", "nosniff"),
        ("browserXssFilter", "x-xss-protection", "1; mode=block"),
    ] {
        if let Some((flag, piece)) = fields.flag(key, cx.ledger) {
            cx.ledger.same(piece);
            if flag && !(key == "frameDeny" && custom_frame.is_some()) {
                headers.response_set.push((name.to_owned(), text.into()));
            }
        }
    }
    for (key, name) in TEXTS {
        if let Some((text, piece)) = fields.text(key, cx.ledger) {
            cx.ledger.same(piece);
            if text.contains("$NONCE") {
                cx.ledger.refused(piece, "Weir makes no nonces for pages", "a nonce of the service's own");
            } else if !text.is_empty() {
                headers.response_set.retain(|(known, _)| known != name);
                headers.response_set.push(((*name).to_owned(), value(name, &text, false, cx)));
            }
        }
    }
    if let Some((flag, piece)) = fields.flag("isDevelopment", cx.ledger) {
        match flag {
            false => cx.ledger.same(piece),
            true => cx.ledger.refused(
                piece,
                "turns off fields of this middleware",
                "leave out what is not wanted",
            ),
        }
    }
}

/// Strict-Transport-Security, which Traefik sends over TLS unless it is forced.
fn hsts(cx: &mut Cx<'_, '_>, fields: &mut Fields<'_>, about: &About, headers: &mut Headers) -> Vec<Filter> {
    let seconds = fields.number("stsSeconds", cx.ledger);
    let mut flag = |key: &str| match fields.flag(key, cx.ledger) {
        Some((flag, piece)) => {
            cx.ledger.same(piece);
            flag
        }
        None => false,
    };
    let (subdomains, preload) = (flag("stsIncludeSubdomains"), flag("stsPreload"));
    let is_forced = flag("forceSTSHeader");
    let proxies = fields.map("sslProxyHeaders", cx.ledger);
    if let Some((node, piece)) = proxies {
        for (entry, _) in pairs(node) {
            cx.ledger.changed(entry.piece, "X-Forwarded-Proto of `trusted_proxies`: request.scheme");
        }
        cx.ledger.same(piece);
    }
    let Some((seconds, piece)) = seconds else { return Vec::new() };
    cx.ledger.same(piece);
    if seconds == 0 {
        return Vec::new();
    }
    let mut text = format!("max-age={seconds}");
    if subdomains {
        text.push_str("; includeSubDomains");
    }
    if preload {
        text.push_str("; preload");
    }
    let set = ("strict-transport-security".to_owned(), text.into());
    match (about.is_tls || is_forced, proxies) {
        (true, _) => {
            headers.response_set.push(set);
            Vec::new()
        }
        (false, Some(_)) => {
            let only = Headers { response_set: vec![set], ..Headers::default() };
            let filters: Vec<Filter> = only.filter().into_iter().collect();
            let is = Expression::raw("request.scheme").equals(Expression::text("https"));
            filters::when(&is, filters, Vec::new())
        }
        (false, None) => {
            cx.ledger.changed(piece, "not sent on a router without TLS, by Traefik neither");
            Vec::new()
        }
    }
}

/// allowedHosts: requests for another host are refused.
fn hosts(cx: &mut Cx<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let proxies = list(fields, "hostsProxyHeaders", cx.ledger);
    if let Some((_, piece)) = proxies {
        cx.ledger.changed(piece, "X-Forwarded-Host of `trusted_proxies` alone");
    }
    let Some((hosts, piece)) = list(fields, "allowedHosts", cx.ledger) else { return Vec::new() };
    cx.ledger.changed(piece, "refused with 403; Traefik answers 500");
    let hosts: Vec<String> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    let is = Expression::raw("request.host").is_in(hosts.iter().map(String::as_str)).not();
    filters::when(&is, vec![Filter::new("respond", filters::respond(403, None, None))], Vec::new())
}

fn cors(cx: &mut Cx<'_, '_>, fields: &mut Fields<'_>) -> Option<Filter> {
    let origins = list(fields, "accessControlAllowOriginList", cx.ledger);
    let patterns = list(fields, "accessControlAllowOriginListRegex", cx.ledger);
    let methods = list(fields, "accessControlAllowMethods", cx.ledger);
    let headers = list(fields, "accessControlAllowHeaders", cx.ledger);
    let expose = list(fields, "accessControlExposeHeaders", cx.ledger);
    let credentials = fields.flag("accessControlAllowCredentials", cx.ledger);
    let max_age = fields.number("accessControlMaxAge", cx.ledger);
    if let Some((_, piece)) = fields.flag("addVaryHeader", cx.ledger) {
        cx.ledger.by_itself(piece, "the filter cors sends Vary where it matters");
    }
    let mut all: Vec<String> = Vec::new();
    if let Some((origins, piece)) = origins {
        all.extend(origins.iter().map(|origin| origin.trim_end_matches('/').to_owned()));
        cx.ledger.changed(
            piece,
            "a preflight that asks for what is not allowed gets 403, and 204 otherwise; Traefik answers 200",
        );
    }
    if let Some((patterns, piece)) = patterns {
        for pattern in patterns {
            match origin(&pattern) {
                Some(origin) => {
                    cx.ledger.changed(piece, "written as `*.`: subdomains only");
                    all.push(origin);
                }
                None => cx.ledger.refused(
                    piece,
                    format!("the pattern `{pattern}` of an origin"),
                    "cors: { origins: [ \"https://*.example.com\" ] }",
                ),
            }
        }
    }
    let others = [&methods, &headers, &expose].into_iter().flatten().map(|(_, piece)| *piece);
    let others: Vec<Piece> =
        others.chain(credentials.map(|(_, piece)| piece)).chain(max_age.map(|(_, piece)| piece)).collect();
    if all.is_empty() {
        let why = "without an origin that may call, browsers withhold every answer";
        others.iter().for_each(|piece| cx.ledger.by_itself(*piece, why));
        return None;
    }
    others.iter().for_each(|piece| cx.ledger.same(*piece));
    let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    let everyone = all.iter().any(|origin| origin == "*" || origin == "null");
    let mut map = Map::new().with("origins", all);
    if let Some((true, piece)) = credentials {
        match everyone {
            false => map.set("credentials", true),
            true => cx.ledger.refused(
                piece,
                "with every origin, any page could read what a user may read",
                "name the origins in cors: { origins, credentials: true }",
            ),
        }
    }
    if let Some((methods, _)) = methods {
        map.set("methods", methods);
    }
    map.set("headers", headers.map_or_else(Vec::new, |(names, _)| lower(&names)));
    if let Some((names, _)) = expose {
        map.set("expose", lower(&names));
    }
    if let Some((seconds, _)) = max_age {
        map.set("max_age", units::duration(seconds.saturating_mul(1000)));
    }
    Some(Filter::new("cors", Value::Map(map)))
}

/// The usual pattern for subdomains as an origin with `*.`.
pub(super) fn origin(pattern: &str) -> Option<String> {
    let text = pattern.trim_start_matches('^').trim_end_matches('$').replace("\\.", ".").replace("\\/", "/");
    let text = ["(.*).", "(.+).", ".*.", ".+.", "[^.]+.", "([a-z]+).", "[a-z0-9-]+."]
        .iter()
        .fold(text, |text, part| text.replacen(&format!("://{part}"), "://*.", 1));
    let (scheme, host) = text.split_once("://")?;
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c));
    let is_origin = matches!(scheme, "http" | "https")
        && is_plain(host.strip_prefix("*.").unwrap_or(host))
        && !host.is_empty();
    is_origin.then_some(text)
}
