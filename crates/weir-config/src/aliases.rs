//! Names that other gateways use for our settings. A config with such a name gets ours in the message, and no second
//! message about a missing setting.

use super::secrecy;

/// One of our settings, by its names elsewhere.
struct Alias {
    /// Its names elsewhere.
    theirs: &'static [&'static str],
    /// Our name, if it is among the expected keys; empty if the setting belongs elsewhere.
    ours: &'static str,
    /// A key that must be expected beside it; otherwise the name means something else.
    beside: &'static str,
    /// What to write, if our name alone is not enough.
    hint: &'static str,
}

const fn alias(theirs: &'static [&'static str], ours: &'static str, hint: &'static str) -> Alias {
    Alias { theirs, ours, beside: ours, hint }
}

const fn elsewhere(theirs: &'static [&'static str], beside: &'static str, hint: &'static str) -> Alias {
    Alias { theirs, ours: "", beside, hint }
}

const ALIASES: &[Alias] = &[
    // routes
    alias(
        &["backend", "cluster", "proxy_pass", "route", "service", "services"],
        "upstream",
        "write upstream: NAME, and its addresses under `upstreams`",
    ),
    alias(&["rule", "when"], "match", "write match: { hosts: [ example.com ], path: /api/* }"),
    elsewhere(
        &["host", "hosts", "methods", "path", "paths", "uri"],
        "match",
        "write it in `match`: { hosts: [ … ], path: /api/* }",
    ),
    elsewhere(
        &["entryPoints", "entrypoints", "entry_points", "listeners"],
        "match",
        "write match: { listeners: [ NAME ] }; without it a route is on every listener",
    ),
    elsewhere(&["middlewares", "plugins"], "filters", "write filters: [ … ]; `weir filters` lists them"),
    elsewhere(
        &["strip_path", "stripPrefix", "strip_prefix", "prefix_rewrite", "uri_strip_prefix"],
        "respond",
        "write filters: [ { rewrite: { strip_prefix: /api } } ]",
    ),
    elsewhere(
        &["client_max_body_size", "max_body_size", "request_body_max_size"],
        "respond",
        "write filters: [ { body_limit: { max: 10MiB } } ]",
    ),
    elsewhere(&["return"], "respond", "write respond: { status: 404 }, or the filter `redirect`"),
    elsewhere(
        &["auth", "authentication"],
        "filters",
        "write filters: [ key_auth ], or jwt, basic_auth, oidc …",
    ),
    alias(&["root", "static"], "files", "write files: { root: ./public }"),
    // match
    alias(
        &["path_prefix", "pathPrefix", "prefix", "uri_prefix"],
        "path",
        "write path: /api/* for everything that begins with /api/",
    ),
    alias(
        &["path_regex", "regex", "path_regexp"],
        "path",
        "write path: \"~/v[0-9]+/.*\": a regular expression begins with ~",
    ),
    elsewhere(
        &["type", "path_type", "pathType"],
        "path",
        "a path that ends in /* matches everything below it; a path that begins with ~ is a regular expression",
    ),
    alias(&["server_name", "server_names", "domain", "domains", "authority"], "hosts", ""),
    // listeners, endpoints, admin
    alias(&["bind", "listen", "port", "socket_address"], "address", "write address: 0.0.0.0:8080"),
    alias(&["target", "server", "ip", "socket", "addr"], "address", "write address: 127.0.0.1:8000"),
    alias(&["ssl", "tls_config", "https"], "tls", ""),
    // upstreams
    alias(
        &["addresses", "backends", "members", "nodes", "servers", "targets", "lb_endpoints", "url"],
        "endpoints",
        "write endpoints: [ 127.0.0.1:8000 ]",
    ),
    alias(
        &["algorithm", "lb", "lb_policy", "load_balancer", "load_balancing", "lb_algorithm"],
        "balancer",
        "",
    ),
    alias(&["healthchecks", "health_checks", "healthcheck", "outlier_detection"], "health", ""),
    alias(&["retries", "retry_policy", "num_retries"], "retry", "write retry: { attempts: 3 }"),
    alias(&["sticky_sessions", "session_affinity", "session_persistence"], "sticky", ""),
    elsewhere(
        &["connect_timeout", "connectTimeout", "read_timeout", "send_timeout", "write_timeout"],
        "timeouts",
        "write timeouts: { connect: 3s }; docs/reference/config.md lists the others",
    ),
    elsewhere(
        &["filters"],
        "balancer",
        "filters go in a route, in a plan, or at the top of the config for all routes",
    ),
    elsewhere(
        &["dns"],
        "srv",
        "Weir keeps resolving names of endpoints: write endpoints: [ app.internal:8000 ]",
    ),
    alias(
        &["insecure", "insecure_skip_verify", "insecureSkipVerify", "skip_verify", "tls_verify"],
        "verify",
        "write verify: false",
    ),
    alias(&["sni"], "server_name", ""),
    // the rest
    alias(&["client_max_body_size", "max_body", "max_body_size"], "body_bytes", "write body_bytes: 10MiB"),
    alias(&["collector", "endpoint", "exporter", "url"], "otlp", "write otlp: http://127.0.0.1:4318"),
    alias(&["sample_rate", "sampling", "sampling_rate"], "share", "write share: 10%"),
    alias(&["jwks", "jwks_uri", "jwks_url", "keys_url"], "keys", "write keys: https://idp.example/keys"),
    elsewhere(
        &["api_keys", "key", "keys"],
        "consumer_header",
        "write credentials under `consumers`: consumers: { NAME: { key_auth: [ \"${NAME_KEY}\" ] } }",
    ),
    elsewhere(
        &["password", "passwords", "users"],
        "consumer_header",
        "credentials go under `consumers`, in the name of the filter: `weir filters basic_auth` has an example",
    ),
    elsewhere(
        &["add", "remove", "set"],
        "response",
        "write request: { set: { … } }, or response: { set: { … } }",
    ),
    elsewhere(
        &["h3", "http3", "quic"],
        "listeners",
        "HTTP/3 belongs to a listener: listeners: { web: { protocols: [h3, h2, http1], tls: { … } } }",
    ),
    alias(&["h3", "quic"], "http3", "write protocols: [h3, h2, http1]; `http3` has its settings"),
];

/// Other gateways' words for values, and ours.
const WORDS: &[(&[&str], &str, &str)] = &[
    (&["http3", "http/3", "quic"], "h3", "write h3"),
    (&["h3", "http3", "http/3", "quic"], "h2", "Weir speaks HTTP/3 with clients only: write h2"),
    (&["http2", "http/2", "grpc", "grpcs"], "h2c", "write h2 where the upstream has `tls`, else h2c"),
    (&["http2", "http/2"], "h2", "write h2"),
    (&["http", "http/1.1", "http1.1", "h1"], "http1", "write http1"),
    (&["https", "ssl", "tls"], "http1", "write tls: {} beside it; `protocol` is the version of HTTP"),
    (
        &[
            "least_conn",
            "leastconn",
            "least-connections",
            "least_connections",
            "least_request",
            "LEAST_REQUEST",
        ],
        "least_requests",
        "write least_requests",
    ),
    (
        &["roundrobin", "rr", "ROUND_ROBIN", "wrr", "weighted"],
        "round_robin",
        "write round_robin; endpoints have weights",
    ),
    (
        &["ip_hash", "ip-hash", "source", "chash", "consistent-hashing", "ring_hash", "RING_HASH", "maglev"],
        "hash",
        "write balancer: { hash: { by: address } }",
    ),
    (&["TLSv1.2", "TLS1.2", "tls1.2", "TLS12"], "1.2", "write \"1.2\""),
    (&["TLSv1.3", "TLS1.3", "tls1.3", "TLS13"], "1.3", "write \"1.3\""),
    (&["warning", "WARNING"], "warn", "write warn"),
    (&["trace", "verbose"], "debug", "write debug"),
    (&["fatal", "crit", "critical"], "error", "write error"),
];

/// The setting meant by a key that is not one of `fields`: the one of them, if any, and what to write.
pub(super) fn key(theirs: &str, fields: &[&'static str]) -> Option<(Option<&'static str>, String)> {
    let found = ALIASES.iter().find(|alias| alias.theirs.contains(&theirs) && fields.contains(&alias.beside));
    if let Some(found) = found {
        let hint = if found.hint.is_empty() {
            format!("did you mean {}?", found.ours)
        } else {
            found.hint.to_owned()
        };
        return Some((Some(found.ours).filter(|ours| !ours.is_empty()), hint));
    }
    // A filter where the list of filters is expected.
    let is_filter = fields.contains(&"filters") && secrecy::is_filter(theirs);
    is_filter
        .then(|| (None, format!("write it in the list of filters: filters: [ {{ {theirs}: {{ … }} }} ]")))
}

/// What to write for a word that is not expected.
pub(super) fn word(theirs: &str, expected: &[&str]) -> Option<&'static str> {
    let found = WORDS.iter().find(|(words, ours, _)| words.contains(&theirs) && expected.contains(ours));
    found.map(|(_, _, hint)| *hint)
}

/// Whether it is a word of another gateway, which nobody would hide.
pub(super) fn is_known(word: &str) -> bool {
    let words = WORDS.iter().flat_map(|(words, _, _)| *words);
    ALIASES.iter().flat_map(|alias| alias.theirs).chain(words).any(|known| *known == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::de::read;
    use crate::parse::parse;
    use crate::{Config, Diagnostics};
    use std::path::Path;

    #[test]
    fn names_of_others_are_known_where_they_belong() {
        const ROUTE: &[&str] = &["match", "filters", "upstream", "respond", "files"];
        for (theirs, fields, ours) in [
            ("proxy_pass", ROUTE, Some(Some("upstream"))),
            ("paths", ROUTE, Some(None)),
            ("rate_limit", ROUTE, Some(None)),
            ("proxy_pass", &["address"], None),
            ("port", &["address", "protocols"], Some(Some("address"))),
            ("hunter2", ROUTE, None),
        ] as [(&str, &'static [&'static str], _); 6]
        {
            assert_eq!(key(theirs, fields).map(|(ours, _)| ours), ours, "{theirs}");
        }
    }

    /// The complete setting that a hint offers, without its explanation; `None` if the reader has to fill it in.
    fn setting_of(hint: &str) -> Option<&str> {
        let text = hint.split_once("write ")?.1;
        let ends = [";", ", or ", ", and ", " for all ", ": a regular ", " beside it"];
        let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
        let text = &text[..end];
        (text.contains(": ") && !text.contains('…') && !text.contains("NAME")).then_some(text)
    }

    /// Every section where a hint may send its reader; the setting replaces `$`.
    const SECTIONS: &[&str] = &[
        "listeners: { a: { $ } }",
        "routes: { a: { $ } }",
        "routes: { a: { match: { $ }, respond: { status: 404 } } }",
        "routes: { a: { respond: { status: 404 }, $ } }",
        "upstreams: { a: { $ } }",
        "upstreams: { a: { endpoints: [ 127.0.0.1:1 ], $ } }",
        "upstreams: { a: { endpoints: [ { $ } ] } }",
        "upstreams: { a: { endpoints: [ 127.0.0.1:1 ], tls: { $ } } }",
        "limits: { $ }",
        "tracing: { $ }",
        "tracing: { otlp: http://127.0.0.1:4318, $ }",
    ];

    /// A hint must not lead from one mistake to the next.
    #[test]
    fn every_setting_that_a_hint_offers_can_be_read() {
        let hints = ALIASES.iter().map(|alias| alias.hint).chain(WORDS.iter().map(|(_, _, hint)| *hint));
        // weir-config reads no settings of filters.
        let settings = hints.filter_map(setting_of).filter(|setting| !setting.starts_with("keys:"));
        let mut offered = 0;
        for setting in settings {
            offered += 1;
            let is_read = SECTIONS.iter().any(|section| {
                let (text, mut diagnostics) = (section.replace('$', setting), Diagnostics::default());
                let tree = parse(&text, Path::new("t.yaml"), &mut diagnostics).unwrap();
                read::<Config>(&tree, "", &mut diagnostics).is_some() && diagnostics.errors() == 0
            });
            assert!(is_read, "no section takes `{setting}`");
        }
        assert!(offered >= 15, "{offered}");
    }

    /// An alias that is also one of our settings beside the expected key would never be looked up.
    #[test]
    fn nothing_is_called_as_we_call_it() {
        for alias in ALIASES {
            assert!(!alias.theirs.contains(&alias.ours), "{}", alias.ours);
            assert!(secrecy::is_setting(alias.beside), "{}", alias.beside);
        }
    }
}
