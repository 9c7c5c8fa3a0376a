//! The controller's ConfigMap: defaults for all Ingresses.

use super::objects::{Objects, Settings};
use super::{flag, is_on, parts};
use crate::config::{Config, Filter};
use crate::ledger::{Ledger, Piece};
use crate::shared::filters;
use crate::shared::networks::network;
use crate::shared::tls as policy;
use crate::shared::tree::Node;
use crate::shared::units;
use crate::yaml::{Map, Value};

/// What annotations may say otherwise.
pub(super) struct Defaults {
    /// Longest body, in bytes; 0 for no limit.
    pub(super) body: u64,
    /// Timeouts in milliseconds: connect, send, read.
    pub(super) timeouts: [u64; 3],
    pub(super) next_upstream: String,
    pub(super) tries: u64,
    pub(super) balancer: String,
    pub(super) service_upstream: bool,
    pub(super) ssl_redirect: bool,
    pub(super) force_ssl_redirect: bool,
    pub(super) redirect_status: u16,
    pub(super) hsts: Option<String>,
    pub(super) request_set: Vec<(String, Value)>,
    pub(super) response_set: Vec<(String, Value)>,
    /// Filters for all routes.
    pub(super) filters: Vec<Filter>,
    /// Settings of all listeners.
    pub(super) listener: Map,
    /// Settings of `tls`.
    pub(super) tls: Map,
    pub(super) allow: Vec<String>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            timeouts: [5_000, 60_000, 60_000],
            next_upstream: "error timeout".to_owned(),
            tries: 3,
            balancer: "round_robin".to_owned(),
            service_upstream: false,
            ssl_redirect: true,
            force_ssl_redirect: false,
            redirect_status: 308,
            hsts: Some("max-age=31536000; includeSubDomains".to_owned()),
            request_set: Vec::new(),
            response_set: Vec::new(),
            filters: Vec::new(),
            listener: Map::new(),
            tls: Map::new(),
            allow: Vec::new(),
        }
    }
}

/// Settings of the inside of nginx, or of the controller.
const INSIDE: &[&str] = &[
    "worker-processes",
    "worker-cpu-affinity",
    "worker-shutdown-timeout",
    "max-worker-connections",
    "max-worker-open-files",
    "variables-hash-bucket-size",
    "variables-hash-max-size",
    "server-name-hash-max-size",
    "server-name-hash-bucket-size",
    "proxy-headers-hash-max-size",
    "proxy-headers-hash-bucket-size",
    "map-hash-bucket-size",
    "reuse-port",
    "enable-multi-accept",
    "proxy-buffer-size",
    "proxy-buffers-number",
    "proxy-busy-buffers-size",
    "client-body-buffer-size",
    "client-header-buffer-size",
    "http2-max-field-size",
    "http2-max-header-size",
    "upstream-keepalive-requests",
    "upstream-keepalive-connections",
    "keep-alive-requests",
    "ssl-buffer-size",
    "ssl-session-cache",
    "ssl-session-cache-size",
    "ssl-session-timeout",
    "ssl-session-ticket-key",
    "ssl-dh-param",
    "annotation-value-word-blocklist",
    "annotations-risk-level",
    "strict-validate-path-type",
    "error-log-path",
    "error-log-level",
    "enable-access-log-for-default-backend",
    "nginx-status-ipv4-whitelist",
    "lua-shared-dicts",
    "disable-ipv6",
    "disable-ipv6-dns",
    "access-log-params",
    "http-access-log-path",
    "stream-access-log-path",
    "proxy-max-temp-file-size",
    "proxy-http-version",
    "use-gzip-static",
    "debug-connections",
    "syslog-host",
    "syslog-port",
    "plugins",
    "allow-snippet-annotations",
    "allow-cross-namespace-resources",
];

/// Snippets, and what filters by rules of its own.
const REFUSED: &[(&str, &str)] = &[
    ("http-snippet", "filters: docs/reference/filters.md"),
    ("server-snippet", "filters: docs/reference/filters.md"),
    ("location-snippet", "filters: docs/reference/filters.md"),
    ("main-snippet", ""),
    ("stream-snippet", "listeners.NAME.tcp"),
    ("enable-modsecurity", "the filter ext_proc"),
    ("enable-owasp-modsecurity-crs", "the filter ext_proc"),
    ("modsecurity-snippet", "the filter ext_proc"),
    ("custom-http-errors", "errors: { 5xx: { file: pages/5xx.html }, upstream: [5xx] }"),
    ("global-auth-url", "forward_auth under `filters`"),
    ("global-auth-signin", "forward_auth under `filters`"),
    ("block-user-agents", "acl: { is: EXPRESSION } under `filters`"),
    ("block-referers", "acl: { is: EXPRESSION } under `filters`"),
    ("use-geoip", "a map with networks"),
    ("use-geoip2", "a map with networks"),
];

/// Those that may be what protects all routes.
const GUARDS: &[&str] = &[
    "http-snippet",
    "server-snippet",
    "location-snippet",
    "enable-modsecurity",
    "enable-owasp-modsecurity-crs",
    "modsecurity-snippet",
    "global-auth-url",
    "block-user-agents",
    "block-referers",
];

/// Reads the ConfigMap.
pub(super) fn read(
    own: &mut Settings<'_>,
    objects: &Objects<'_>,
    config: &mut Config,
    ledger: &mut Ledger,
) -> Defaults {
    let mut defaults = Defaults::default();
    if let Some((text, piece)) = own.take("proxy-body-size") {
        body(&text, piece, &mut defaults.body, ledger);
    }
    let names = ["proxy-connect-timeout", "proxy-send-timeout", "proxy-read-timeout"];
    for (at, name) in names.iter().enumerate() {
        if let Some((text, piece)) = own.take(name) {
            seconds(&text, piece, &mut defaults.timeouts[at], ledger);
        }
    }
    if let Some((text, piece)) = own.take("proxy-next-upstream") {
        defaults.next_upstream = text;
        ledger.same(piece);
    }
    if let Some((text, piece)) = own.take("proxy-next-upstream-tries") {
        defaults.tries = text.parse().unwrap_or(3);
        ledger.same(piece);
    }
    if let Some((text, piece)) = own.take("proxy-next-upstream-timeout") {
        ledger.changed(
            piece,
            format!("`{text}`: retries end with the timeouts of the upstream and its `budget`"),
        );
    }
    if let Some((text, piece)) = own.take("load-balance") {
        defaults.balancer = if text == "ewma" { "ewma".to_owned() } else { "round_robin".to_owned() };
        ledger.same(piece);
    }
    if let Some(on) = flag(own.take("service-upstream"), ledger) {
        defaults.service_upstream = on;
    }
    if let Some(on) = flag(own.take("ssl-redirect"), ledger) {
        defaults.ssl_redirect = on;
    }
    if let Some(on) = flag(own.take("force-ssl-redirect"), ledger) {
        defaults.force_ssl_redirect = on;
    }
    if let Some((text, piece)) = own.take("http-redirect-code") {
        match text.parse().ok().filter(|code| [301, 302, 307, 308].contains(code)) {
            Some(code) => {
                defaults.redirect_status = code;
                ledger.same(piece);
            }
            None => ledger.refused(piece, format!("`{text}` is no redirect"), "redirect: { status }"),
        }
    }
    hsts(own, &mut defaults, ledger);
    proxies(own, &mut defaults, config, ledger);
    logs(own, config, ledger);
    compression(own, &mut defaults, ledger);
    listeners(own, &mut defaults, config, ledger);
    for (key, is_request) in [("proxy-set-headers", true), ("add-headers", false)] {
        let Some((name, piece)) = own.take(key) else { continue };
        let (namespace, name) = name.split_once('/').unwrap_or(("ingress-nginx", &name));
        match objects.config_maps.get(&(namespace.to_owned(), name.to_owned())) {
            Some(data) => {
                ledger.same(piece);
                let set = header_map(data, ledger);
                if is_request { defaults.request_set.extend(set) } else { defaults.response_set.extend(set) }
            }
            None => {
                ledger.refused(piece, format!("the ConfigMap `{name}` is not in the files"), "give it too")
            }
        }
    }
    for (key, is_allow) in
        [("whitelist-source-range", true), ("block-cidrs", false), ("denylist-source-range", false)]
    {
        let Some((text, piece)) = own.take(key) else { continue };
        let networks = networks(&text, piece, ledger);
        match is_allow {
            true => defaults.allow = networks,
            false if !networks.is_empty() => defaults.filters.push(filters::ip(&[], &networks)),
            false => {}
        }
    }
    if let Some((text, piece)) =
        own.take("limit-req-status-code").or_else(|| own.take("limit-conn-status-code"))
    {
        match text.as_str() {
            "429" => ledger.same(piece),
            _ => ledger.changed(piece, "Weir answers 429"),
        }
    }
    for (key, nearest) in REFUSED {
        if let Some((text, piece)) = own.take(key) {
            match text.is_empty() || text == "false" {
                true => ledger.same(piece),
                false => {
                    ledger.refused(piece, "by hand", *nearest);
                    if GUARDS.contains(key) {
                        defaults
                            .filters
                            .push(filters::closed(&format!("the setting {key} of the controller")));
                    }
                }
            }
        }
    }
    for key in INSIDE {
        if let Some((_, piece)) = own.take(key) {
            ledger.left_out(piece, "the inside of nginx or of the controller");
        }
    }
    for (key, piece) in own.rest() {
        ledger.refused(piece, format!("weir import does not know `{key}`"), "docs/reference/config.md");
    }
    defaults
}

/// A size in bytes; 0 for no limit.
pub(super) fn body(text: &str, piece: Piece, into: &mut u64, ledger: &mut Ledger) {
    match units::read_size(text) {
        Some(bytes) => {
            *into = bytes;
            ledger.same(piece);
        }
        None => {
            ledger.refused(piece, format!("`{text}` is no size; 1m is taken"), "body_limit: { max: 8MiB }")
        }
    }
}

/// Bare numbers are seconds.
pub(super) fn seconds(text: &str, piece: Piece, into: &mut u64, ledger: &mut Ledger) {
    match units::read_duration(text, 1000) {
        Some(ms) => {
            *into = ms;
            ledger.same(piece);
        }
        None => ledger.refused(piece, format!("`{text}` is no time"), "upstreams.NAME.timeouts"),
    }
}

pub(super) fn networks(text: &str, piece: Piece, ledger: &mut Ledger) -> Vec<String> {
    let mut out = Vec::new();
    ledger.same(piece);
    for part in parts(text) {
        match network(&part) {
            Ok(network) => out.push(network),
            Err(why) => ledger.refused(piece, why, "ip: { allow: [ 10.0.0.0/8 ] }"),
        }
    }
    out
}

/// Names and values of a ConfigMap with fields.
pub(super) fn header_map(data: &Node, ledger: &mut Ledger) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    for entry in data.as_map().unwrap_or_default() {
        let text = entry.node.as_text().unwrap_or_default();
        match variables(&text) {
            Some(value) => {
                out.push((entry.key.to_ascii_lowercase(), value.into()));
                ledger.same(entry.piece);
            }
            None => {
                ledger.refused(
                    entry.piece,
                    format!("variables in `{text}`"),
                    "headers: { request: { set } }",
                );
                // The controller overwrites the field: an empty value removes what another sent.
                out.push((entry.key.to_ascii_lowercase(), "".into()));
            }
        }
    }
    out
}

/// A text with the usual variables of nginx as placeholders. None if it has others.
pub(super) fn variables(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&crate::shared::template::Template::text(&rest[..at]).to_setting());
        let behind = rest[at + 1..].trim_start_matches('{');
        let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
        let (name, behind) = behind.split_at(end);
        let known = match name {
            "host" | "best_http_host" | "http_host" => "{authority}".to_owned(),
            "scheme" | "pass_access_scheme" => "{scheme}".to_owned(),
            "remote_addr" => "{client}".to_owned(),
            "request_uri" | "escaped_request_uri" => {
                "{path}{= request.query == \"\" ? \"\" : \"?\" + request.query }".to_owned()
            }
            "uri" => "{path}".to_owned(),
            "request_method" => "{method}".to_owned(),
            "req_id" | "request_id" => "{request_id}".to_owned(),
            name => format!("{{= request.headers[\"{}\"] }}", name.strip_prefix("http_")?.replace('_', "-")),
        };
        out.push_str(&known);
        rest = if rest[at + 1..].starts_with('{') { behind.strip_prefix('}')? } else { behind };
    }
    out.push_str(&crate::shared::template::Template::text(rest).to_setting());
    Some(out)
}

fn hsts(own: &mut Settings<'_>, defaults: &mut Defaults, ledger: &mut Ledger) {
    let on = flag(own.take("hsts"), ledger).unwrap_or(true);
    let subdomains = flag(own.take("hsts-include-subdomains"), ledger).unwrap_or(true);
    let preload = flag(own.take("hsts-preload"), ledger).unwrap_or(false);
    let age = own.take("hsts-max-age").map(|(text, piece)| {
        ledger.same(piece);
        text.trim().to_owned()
    });
    let mut text = format!("max-age={}", age.as_deref().unwrap_or("31536000"));
    if subdomains {
        text.push_str("; includeSubDomains");
    }
    if preload {
        text.push_str("; preload");
    }
    defaults.hsts = on.then_some(text);
}

fn proxies(own: &mut Settings<'_>, defaults: &mut Defaults, config: &mut Config, ledger: &mut Ledger) {
    let cidr = own.take("proxy-real-ip-cidr");
    let networks = cidr.as_ref().map(|(text, piece)| networks(text, *piece, ledger)).unwrap_or_default();
    let is_known =
        !networks.is_empty() && networks.iter().all(|network| network != "0.0.0.0/0" && network != "::/0");
    if is_known {
        config.more.set("trusted_proxies", networks);
    }
    for key in ["use-forwarded-headers", "enable-real-ip", "compute-full-forwarded-for", "use-proxy-protocol"]
    {
        let Some((text, piece)) = own.take(key) else { continue };
        match (is_on(&text), is_known) {
            (false, _) => ledger.same(piece),
            (true, true) => ledger.changed(piece, "from `trusted_proxies` alone"),
            (true, false) => ledger.refused(
                piece,
                "without proxy-real-ip-cidr any client could forge where it comes from",
                "trusted_proxies: the networks of your load balancers",
            ),
        }
        if key == "use-proxy-protocol" && is_on(&text) && is_known {
            defaults.listener.set("proxy_protocol", true);
        }
    }
    if let Some((name, piece)) = own.take("forwarded-for-header") {
        match name.eq_ignore_ascii_case("x-forwarded-for") {
            true => ledger.same(piece),
            false => ledger.refused(piece, "Weir reads X-Forwarded-For and Forwarded", "trusted_proxies"),
        }
    }
}

fn logs(own: &mut Settings<'_>, config: &mut Config, ledger: &mut Ledger) {
    let off = flag(own.take("disable-access-log"), ledger).unwrap_or(false)
        | flag(own.take("disable-http-access-log"), ledger).unwrap_or(false);
    let mut map = Map::new().with("output", "stdout").with("format", "combined");
    if let Some((path, piece)) = own.take("access-log-path") {
        ledger.same(piece);
        if path != "/var/log/nginx/access.log" {
            map.set("output", path);
        }
    }
    let json = own.take("log-format-escape-json");
    json.iter().for_each(|(_, piece)| ledger.changed(*piece, "the format json escapes by itself"));
    for key in ["log-format-upstream", "log-format-stream"] {
        if let Some((text, piece)) = own.take(key) {
            if text.contains('{') {
                map.set("format", "json");
            }
            ledger.changed(piece, "lines with Weir's fields: access_log.format takes a template");
        }
    }
    if !off {
        config.more.set("access_log", map);
    }
}

fn compression(own: &mut Settings<'_>, defaults: &mut Defaults, ledger: &mut Ledger) {
    let gzip = flag(own.take("use-gzip"), ledger).unwrap_or(false);
    let brotli = flag(own.take("enable-brotli"), ledger).unwrap_or(false);
    let mut map = Map::new();
    let algorithms: Vec<&str> =
        [("br", brotli), ("gzip", gzip)].into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    let mut levels = Map::new();
    for (key, ours) in [("gzip-level", "gzip"), ("brotli-level", "br")] {
        if let Some((text, piece)) = own.take(key) {
            ledger.same(piece);
            if let Some(level) = text.parse::<i64>().ok().filter(|_| algorithms.contains(&ours)) {
                levels.set(ours, level);
            }
        }
    }
    let mut types: Option<Vec<String>> = None;
    for key in ["gzip-types", "brotli-types"] {
        if let Some((text, piece)) = own.take(key) {
            ledger.same(piece);
            types = Some(text.split_whitespace().map(str::to_owned).filter(|kind| kind != "*").collect());
        }
    }
    if let Some((text, piece)) = own.take("gzip-min-length") {
        ledger.same(piece);
        map.set_some("minimum", text.parse::<u64>().ok().map(units::size));
    }
    for key in ["brotli-min-length", "gzip-disable"] {
        if let Some((_, piece)) = own.take(key) {
            ledger.left_out(piece, "Weir has one minimum, and no list of old browsers");
        }
    }
    if algorithms.is_empty() {
        return;
    }
    map.set("algorithms", algorithms);
    if !levels.is_empty() {
        map.set("levels", levels);
    }
    map.set_some("types", types.filter(|types| !types.is_empty()));
    defaults.filters.push(Filter::new("compress", map));
}

fn listeners(own: &mut Settings<'_>, defaults: &mut Defaults, config: &mut Config, ledger: &mut Ledger) {
    let mut timeouts = Map::new();
    for (key, ours) in
        [("keep-alive", "keepalive"), ("client-header-timeout", "head"), ("client-body-timeout", "body")]
    {
        if let Some((text, piece)) = own.take(key) {
            let mut ms = 0;
            seconds(&text, piece, &mut ms, ledger);
            timeouts.set(ours, units::duration(ms));
        }
    }
    if !timeouts.is_empty() {
        defaults.listener.set("timeouts", timeouts);
    }
    if let Some((text, piece)) = own.take("ssl-protocols") {
        match text.contains("TLSv1.2") || !text.contains("TLSv1.3") {
            true => ledger.changed(piece, "TLS 1.2 and 1.3"),
            false => {
                defaults.tls.set("min_version", "1.3");
                ledger.same(piece);
            }
        }
    }
    if let Some((text, piece)) = own.take("ssl-ciphers") {
        policy::ciphers(text.split(':'), policy::Of::Tls12, &mut defaults.tls, piece, ledger);
    }
    if let Some((text, piece)) = own.take("ssl-ecdh-curve") {
        let curves = text.split(':').filter(|curve| *curve != "auto");
        policy::curves(curves, &mut defaults.tls, piece, ledger);
    }
    if let Some((text, piece)) = own.take("ssl-session-tickets") {
        match is_on(&text) {
            true => ledger.same(piece),
            false => policy::no_tickets(&mut defaults.tls, piece, ledger),
        }
    }
    for (key, why) in [
        ("ssl-prefer-server-ciphers", "the client's order decides, among ciphers that are all safe"),
        ("ssl-early-data", "Weir takes no early data"),
        ("ssl-reject-handshake", "a client whose name no certificate has is shown the first one"),
        ("enable-ocsp", "Weir staples no answers of OCSP"),
    ] {
        if let Some((_, piece)) = own.take(key) {
            ledger.changed(piece, why);
        }
    }
    if let Some((text, piece)) = own.take("use-http2") {
        match is_on(&text) {
            true => ledger.same(piece),
            false => {
                defaults.listener.set("protocols", vec!["http1"]);
                ledger.same(piece);
            }
        }
    }
    if let Some((text, piece)) = own.take("http2-max-concurrent-streams") {
        if let Ok(streams) = text.parse::<i64>() {
            config.more.map_mut("limits").set("h2", Map::new().with("streams", streams));
        }
        ledger.same(piece);
    }
    if let Some((text, piece)) = own.take("large-client-header-buffers") {
        let mut words = text.split_whitespace();
        let count = words.next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(4);
        let each = words.next().and_then(units::read_size).unwrap_or(8 << 10);
        let bytes = count.saturating_mul(each).clamp(1 << 10, 1 << 20);
        config.more.map_mut("limits").set("header_bytes", units::size(bytes));
        ledger.changed(piece, "the whole head, not each of its lines");
    }
    for (key, why) in [
        ("server-tokens", "Weir sends no Server field of its own"),
        ("hide-headers", "the filter headers removes fields of responses"),
        ("upstream-keepalive-timeout", "keepalive of an upstream: 60s, as here by default"),
        ("upstream-keepalive-time", "max_age of an upstream"),
        ("generate-request-id", "the filter request_id keeps one and makes one"),
        ("ignore-invalid-headers", "Weir refuses malformed fields"),
        ("enable-underscores-in-headers", "Weir passes names with underscores on"),
        ("no-tls-redirect-locations", "challenges of Weir's own orders are answered before routes"),
        ("ssl-redirect-status", ""),
        ("use-port-in-redirects", "redirects name the default port"),
        ("proxy-stream-timeout", "listeners.NAME.tcp.idle"),
        ("proxy-buffering", "Weir streams"),
        ("proxy-request-buffering", "Weir streams"),
        ("skip-access-log-urls", "access_log.when"),
        ("enable-opentelemetry", "tracing.otlp"),
        ("otlp-collector-host", "tracing.otlp"),
        ("otlp-collector-port", "tracing.otlp"),
        ("otel-service-name", "tracing.service"),
        ("otel-sampler-ratio", "tracing.share"),
        ("otel-sampler", "tracing.share"),
    ] {
        if let Some((_, piece)) = own.take(key) {
            ledger.changed(piece, format!("not taken: {why}"));
        }
    }
}
