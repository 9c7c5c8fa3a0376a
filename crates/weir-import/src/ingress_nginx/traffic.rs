//! Annotations that limit, redirect, mirror and change fields.

use super::objects::Ingress;
use super::settings::{body, networks, variables};
use super::{Cx, flag, is_on, parts};
use crate::config::{Endpoint, Filter, Upstream};
use crate::ledger::Piece;
use crate::shared::expression::Expression;
use crate::shared::filters::{self, Headers, closed, redirect};
use crate::yaml::Map;

/// Words of snippets that may be what protects a route.
const GUARDS: &[&str] = &[
    "deny",
    "return 4",
    "return 5",
    "auth_",
    "limit_",
    "if (",
    "if(",
    "internal",
    "lua",
    "satisfy",
    "secure_link",
    "allow",
    "valid_referers",
];
/// What `cors-allow-headers` is by default.
const HEADERS: &str = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,\
                       Range,Authorization";
/// Signs of origins, beside letters and digits.
const ORIGIN: &str = "*.:/-_[]";
const METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";

/// Filters before those that say who may pass, and behind them.
#[derive(Clone, Default)]
pub(super) struct Traffic {
    pub(super) before: Vec<Filter>,
    pub(super) behind: Vec<Filter>,
    /// Closes all paths of its hosts, whichever Ingress they are of.
    pub(super) server: Option<Filter>,
    /// What all requests are answered with.
    pub(super) answer: Option<Filter>,
}

/// Reads the annotations.
pub(super) fn read(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Traffic {
    let mut traffic = Traffic::default();
    cors(cx, ingress, &mut traffic);
    redirects(cx, ingress, &mut traffic);
    limits(cx, ingress, &mut traffic);
    let own = &mut ingress.annotations;
    let mut bytes = cx.defaults.body;
    if let Some((text, piece)) = own.take("proxy-body-size") {
        body(&text, piece, &mut bytes, cx.ledger);
    }
    traffic.behind.extend(filters::body_limit(bytes));
    if let Some((text, piece)) = own.take("x-forwarded-prefix") {
        match variables(&text) {
            Some(value) => {
                cx.ledger.same(piece);
                let headers = Headers {
                    request_set: vec![("x-forwarded-prefix".to_owned(), value.into())],
                    ..Headers::default()
                };
                traffic.behind.extend(headers.filter());
            }
            None => {
                cx.ledger.refused(piece, format!("`{text}` has variables"), "headers: { request: { set } }")
            }
        }
    }
    traffic.behind.extend(super::upstreams::custom_headers(cx, ingress));
    mirror(cx, ingress, &mut traffic);
    others(cx, ingress, &mut traffic);
    traffic
}

fn cors(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>, traffic: &mut Traffic) {
    let own = &mut ingress.annotations;
    let is_enabled = flag(own.take("enable-cors"), cx.ledger).unwrap_or(false);
    let mut list = |key: &str| own.take(key);
    let origins = list("cors-allow-origin");
    let methods = list("cors-allow-methods");
    let headers = list("cors-allow-headers");
    let credentials = list("cors-allow-credentials");
    let expose = list("cors-expose-headers");
    let max_age = list("cors-max-age");
    let is_origin = |origin: &String| origin.chars().all(|c| c.is_ascii_alphanumeric() || ORIGIN.contains(c));
    let others = [&methods, &headers, &credentials, &expose, &max_age];
    let others = others.into_iter().flatten().map(|(_, piece)| (piece, true));
    let own = origins.iter().map(|(text, piece)| (piece, parts(text).iter().all(is_origin)));
    for (piece, is_taken) in own.chain(others) {
        match (is_enabled, is_taken) {
            (false, _) => cx.ledger.left_out(*piece, "without enable-cors it is not used"),
            (true, true) => cx.ledger.same(*piece),
            (true, false) => cx.ledger.refused(
                *piece,
                "an origin is a scheme, a host and a port; others are left out",
                "cors.origins",
            ),
        }
    }
    if !is_enabled {
        return;
    }
    let text = |setting: &Option<(String, Piece)>, default: &str| {
        setting.as_ref().map_or_else(|| default.to_owned(), |(text, _)| text.clone())
    };
    let lower = |text: &str| parts(text).iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    let mut origins_list = parts(&text(&origins, "*"));
    origins_list.retain(is_origin);
    if origins_list.is_empty() {
        return;
    }
    let origins_list: Vec<String> =
        origins_list.iter().map(|origin| origin.trim_end_matches('/').to_owned()).collect();
    let everyone = origins_list.iter().any(|origin| origin == "*" || origin == "null");
    let with_credentials = credentials.as_ref().is_none_or(|(text, _)| is_on(text));
    let mut map = Map::new().with("origins", origins_list);
    map.set("methods", parts(&text(&methods, METHODS)));
    map.set("headers", lower(&text(&headers, HEADERS)));
    if let Some((text, _)) = &expose {
        let names: Vec<String> =
            lower(text).into_iter().filter(|name| name != "*" || !with_credentials).collect();
        if !names.is_empty() {
            map.set("expose", names);
        }
    }
    match (with_credentials, everyone) {
        (true, false) => map.set("credentials", true),
        (true, true) => {
            let why = "with every origin browsers send no credentials, so they are left out";
            match (&credentials, &origins) {
                (Some((_, piece)), _) | (None, Some((_, piece))) => cx.ledger.changed(*piece, why),
                (None, None) => cx.ledger.note(format!("enable-cors of {}: {why}", ingress.name)),
            }
        }
        (false, _) => {}
    }
    let seconds = max_age.and_then(|(text, _)| text.parse::<u64>().ok()).unwrap_or(1_728_000);
    map.set("max_age", crate::shared::units::duration(seconds.saturating_mul(1000)));
    traffic.before.push(Filter::new("cors", map));
}

fn redirects(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>, traffic: &mut Traffic) {
    let own = &mut ingress.annotations;
    for (key, code_key, default) in [
        ("temporal-redirect", "temporal-redirect-code", 302),
        ("permanent-redirect", "permanent-redirect-code", 301),
    ] {
        let code = own.take(code_key).map(|(text, piece)| {
            cx.ledger.same(piece);
            text
        });
        let Some((url, piece)) = own.take(key) else { continue };
        let status: u16 = code.and_then(|code| code.parse().ok()).unwrap_or(default);
        if ![301, 302, 303, 307, 308].contains(&status) {
            cx.ledger.refused(piece, format!("{status} is no redirect of Weir"), "redirect: { to, status }");
            continue;
        }
        // The rest of the URL is the path and the query.
        let plain = url.trim_end_matches("$request_uri");
        let keeps = plain.len() != url.len();
        match variables(plain).filter(|to| to.contains("://") && !to.contains("{=")) {
            Some(to) => {
                cx.ledger.same(piece);
                let to = if keeps { format!("{}{{path}}", to.trim_end_matches('/')) } else { to };
                traffic.answer = Some(redirect(&to, status, keeps));
            }
            None => cx.ledger.refused(piece, format!("`{url}`"), "redirect: { to }"),
        }
    }
    for key in ["relative-redirects", "preserve-trailing-slash"] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.changed(piece, "Location is what the redirect says");
        }
    }
}

fn limits(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>, traffic: &mut Traffic) {
    let own = &mut ingress.annotations;
    let multiplier = own.take("limit-burst-multiplier").map_or(5, |(text, piece)| {
        cx.ledger.same(piece);
        text.parse::<i64>().unwrap_or(5).max(1)
    });
    let free = own.take("limit-whitelist");
    let free = free.map(|(text, piece)| networks(&text, piece, cx.ledger)).unwrap_or_default();
    let mut made = Vec::new();
    for (key, per) in [("limit-rps", "1s"), ("limit-rpm", "1m")] {
        let Some((text, piece)) = own.take(key) else { continue };
        let Some(number) = text.parse::<i64>().ok().filter(|number| *number > 0) else {
            match text == "0" {
                true => cx.ledger.by_itself(piece, "0 is no limit"),
                false => {
                    cx.ledger.refused(piece, format!("`{text}` is no number"), "rate_limit");
                    traffic.before.push(closed(&format!("{key} cannot be read")));
                }
            }
            continue;
        };
        cx.ledger.changed(
            piece,
            "refused with 429, not 503; each route counts, and each Weir; a client of IPv6 counts by /64",
        );
        let map = Map::new()
            .with("requests", number)
            .with("per", per)
            .with("burst", number.saturating_mul(multiplier))
            .with("by", "address");
        made.push(Filter::new("rate_limit", map));
    }
    if let Some((text, piece)) = own.take("limit-connections") {
        match text.parse::<i64>() {
            Ok(number) if number > 0 => {
                cx.ledger.changed(piece, "requests at one time, refused with 429, not 503");
                let map = Map::new().with("requests", number).with("by", "address");
                made.push(Filter::new("concurrency", map));
            }
            Ok(_) => cx.ledger.by_itself(piece, "0 is no limit"),
            Err(_) => {
                cx.ledger.refused(piece, format!("`{text}` is no number"), "concurrency");
                traffic.before.push(closed("limit-connections cannot be read"));
            }
        }
    }
    for key in ["limit-rate", "limit-rate-after"] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.refused(piece, "Weir does not slow answers down", "rate_limit, or the kernel's tc");
        }
    }
    for key in [
        "global-rate-limit",
        "global-rate-limit-window",
        "global-rate-limit-key",
        "global-rate-limit-ignored-cidrs",
        "global-rate-limit-header-name",
    ] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.refused(
                piece,
                "a limit of all gateways needs a store",
                "rate_limit: { store }, with stores.NAME.redis",
            );
        }
    }
    if made.is_empty() {
        return;
    }
    if free.is_empty() {
        traffic.before.extend(made);
    } else {
        let is = Expression::raw("client.ip").is_in(free.iter().map(String::as_str)).not();
        traffic.before.extend(filters::when(&is, made, Vec::new()));
    }
}

fn mirror(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>, traffic: &mut Traffic) {
    let own = &mut ingress.annotations;
    let host = own.take("mirror-host");
    let with_body = own.take("mirror-request-body");
    with_body.iter().for_each(|(text, piece)| match is_on(text) {
        true => cx.ledger.same(*piece),
        false => cx.ledger.changed(*piece, "copies have the body too"),
    });
    let Some((url, piece)) = own.take("mirror-target") else {
        host.iter().for_each(|(_, piece)| cx.ledger.left_out(*piece, "without mirror-target it is not used"));
        return;
    };
    let plain = url.trim_end_matches("$request_uri").trim_end_matches('/');
    let parsed = plain.split_once("://").filter(|(_, rest)| !rest.contains(['/', '$']));
    let Some((scheme, authority)) = parsed else {
        cx.ledger.refused(piece, format!("`{url}` is more than a server"), "mirror: { upstream }");
        return;
    };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if scheme == "https" { 443 } else { 80 };
    let address = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let mut upstream =
        Upstream { endpoints: vec![Endpoint { address, ..Endpoint::default() }], ..Upstream::default() };
    if let Some((host, piece)) = host {
        match host.contains('$') {
            true => cx.ledger.same(piece),
            false => {
                upstream.more.set("host", host);
                cx.ledger.same(piece);
            }
        }
    } else {
        upstream.more.set("host", "endpoint");
    }
    if scheme == "https" {
        upstream.more.set("tls", Map::new().with("verify", false));
    }
    let name = cx.config.upstreams.add(&format!("mirror-{authority}"), upstream);
    cx.ledger.changed(piece, "copies of bodies up to 1 MiB; at most 100 under way, marked x-weir-mirror");
    traffic.behind.push(Filter::new("mirror", Map::new().with("upstream", name)));
}

/// `proxy-cookie-domain` and `proxy-cookie-path`: what stands in the place of a domain or the start of a path.
fn cookies(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>, traffic: &mut Traffic) {
    let mut attributes = Map::new();
    for (key, ours) in [("proxy-cookie-domain", "domain"), ("proxy-cookie-path", "path")] {
        let Some((text, piece)) = ingress.annotations.take(key) else { continue };
        match &*text.split_whitespace().collect::<Vec<_>>() {
            [] | ["off" | "default"] => cx.ledger.same(piece),
            [from, to] if !from.starts_with('~') && !text.contains('$') => {
                attributes.set(ours, Map::new().with(*from, *to));
                cx.ledger.same(piece);
            }
            _ => cx.ledger.refused(
                piece,
                format!("`{text}` is a pattern"),
                "cookies: { NAME: { path, domain } }",
            ),
        }
    }
    if !attributes.is_empty() {
        traffic.behind.push(Filter::new("cookies", Map::new().with("*", attributes)));
    }
}

/// What is refused, or has another place.
fn others(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>, traffic: &mut Traffic) {
    cookies(cx, ingress, traffic);
    let own = &mut ingress.annotations;
    for key in ["configuration-snippet", "server-snippet", "stream-snippet"] {
        let Some((text, piece)) = own.take(key) else { continue };
        cx.ledger.refused(piece, "directives of nginx", "filters: docs/reference/filters.md");
        let spaced = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(word) = GUARDS.iter().find(|word| spaced.contains(**word)) {
            let closing = closed(&format!("{key} has `{word}`, which may be what protects it"));
            match key {
                "server-snippet" => traffic.server = Some(closing),
                _ => traffic.before.insert(0, closing),
            }
        }
    }
    for (key, why, nearest) in [
        (
            "custom-http-errors",
            "pages of a Service are not translated, so Weir sends its own",
            "errors: { 5xx: { upstream, path }, upstream: [5xx] }",
        ),
        ("default-backend", "the Service of a Service without Pods", "endpoints with `priority: 1`"),
        (
            "disable-proxy-intercept-errors",
            "Weir's filter errors names what it replaces",
            "errors: { upstream }",
        ),
        (
            "proxy-redirect-from",
            "`links: rewrite` changes Location that names the endpoint",
            "upstreams.NAME.links",
        ),
        (
            "proxy-redirect-to",
            "`links: rewrite` changes Location that names the endpoint",
            "upstreams.NAME.links",
        ),
        ("connection-proxy-header", "Weir writes Connection itself", ""),
    ] {
        let Some((text, piece)) = own.take(key) else { continue };
        match text.as_str() {
            "off" | "default" | "false" | "" => cx.ledger.same(piece),
            "keep-alive" => cx.ledger.by_itself(piece, "connections are kept"),
            _ => cx.ledger.refused(piece, why, nearest),
        }
    }
    for (key, why) in [
        ("enable-access-log", "access_log.when chooses what is logged"),
        ("enable-opentelemetry", "tracing.otlp, for all routes"),
        ("opentelemetry-trust-incoming-span", "tracing.parents"),
        ("opentelemetry-operation-name", "spans have Weir's names"),
        ("enable-opentracing", "tracing.otlp, for all routes"),
        ("ssl-ciphers", "Weir has the strong suites of rustls"),
        ("ssl-prefer-server-ciphers", "Weir has the strong suites of rustls"),
        ("secure-verify-ca-secret", "proxy-ssl-secret"),
        ("http2-push-preload", "browsers no longer take pushes"),
    ] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.changed(piece, why);
        }
    }
    for key in ["use-http2", "upstream-fail-timeout", "upstream-max-fails"] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.left_out(piece, "the controller no longer has it");
        }
    }
}
