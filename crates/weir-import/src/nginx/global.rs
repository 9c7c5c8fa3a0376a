//! What holds for the whole gateway: its settings, and what is decided over all routes.

use super::action::limit_of;
use super::block::Block;
use super::context::Cx;
use super::read::Directive;
use super::route::Draft;
use super::translate::TESTS;
use crate::config::{Filter, Target};
use crate::shared::networks::network;
use crate::shared::units::size;
use crate::yaml::{Map, Value};
use std::collections::BTreeSet;

/// Sets `trusted_proxies`. Must run before the servers are translated, because their redirects to https depend on it.
pub(super) fn trusted_proxies<'a>(cx: &mut Cx<'a, '_>, http: &Block<'a>) {
    let mut trusted: Vec<String> = Vec::new();
    collect_trusted(cx, http.all().iter().copied(), &mut trusted);
    if !trusted.is_empty() {
        cx.config.more.set("trusted_proxies", trusted);
    }
}

/// Settings of the whole gateway.
pub(super) fn globals<'a>(cx: &mut Cx<'a, '_>, http: &Block<'a>) {
    let custom: Vec<&str> = http.own("log_format").iter().map(|format| format.first()).collect();
    if let Some(log) = http.own("access_log").first() {
        let target = log.first();
        let format = log.args.get(1).map_or("combined", String::as_str);
        let mut map = Map::new();
        if target == "off" {
            cx.ledger.same(log.piece);
        } else {
            match target.strip_prefix("syslog:server=") {
                Some(server) => {
                    let server = server.split(',').next().unwrap_or(server);
                    let server =
                        if server.contains(':') { server.to_owned() } else { format!("{server}:514") };
                    map.set("syslog", Map::new().with("server", format!("udp://{server}")));
                }
                None if target == "/dev/stdout" || target == "/dev/stderr" => {
                    map.set("output", target.trim_start_matches("/dev/"));
                }
                None => map.set("output", super::server::absolute(target)),
            }
            if custom.contains(&format) {
                map.set("format", "json");
                cx.ledger.changed(
                    log.piece,
                    "lines are JSON with fields of Weir: the formats of nginx are not taken",
                );
            } else {
                map.set("format", "combined");
                cx.ledger.same(log.piece);
            }
            cx.config.more.set("access_log", map);
        }
    }
    for format in http.own("log_format") {
        let why = "the lines of Weir have fields of their own: access_log.format";
        cx.ledger.changed(format.piece, why);
    }
    for log in http.own("access_log").iter().skip(1) {
        cx.ledger.refused(log.piece, "a second access log", "access_log");
    }
    if cx.needs_request_id {
        cx.config.filters.push(Filter::new("request_id", Map::new().with("incoming", "replace")));
    }
}

/// Notes the differences that every source has.
pub(super) fn notes(cx: &mut Cx<'_, '_>, drafts: &[Draft]) {
    if drafts.is_empty() {
        return;
    }
    cx.ledger.note(
        "Weir compares and sends paths in one canonical form: `//` is one slash, dot segments are resolved, `%61` is `a`; \
         in redirects too. Paths with a backslash, a control byte or raw bytes from 0x80 are 400; TRACE is 501",
    );
    cx.ledger.note(
        "Weir compares all values of a field that a client sends twice, joined by `, `, as nginx does since 1.23; older \
         ones compare the first",
    );
    cx.ledger.note(
        "nginx reads `%2F` as a slash when it searches a location; Weir answers 400 if that reading takes another \
         route, because a server behind it may not read it so (`escaped_slashes`)",
    );
    if drafts.iter().any(|draft| draft.is_proxied) {
        cx.ledger.note(
            "Weir speaks HTTP/1.1 to upstreams, keeps connections, and streams request bodies, in chunks if their \
             length is unknown; nginx reads bodies whole and speaks HTTP/1.0 unless told otherwise",
        );
        cx.ledger.note(
            "where nothing is said, nginx repeats a request at the next server after an error or a timeout and takes a \
             failing server out for 10 s; Weir repeats failed connects, avoids servers that cannot be connected to, and \
             repeats idempotent requests only (`retry`, `health`)",
        );
        cx.ledger.note(
            "nginx drops fields of clients whose names have `_`; Weir drops only those that servers could take for a \
             field that Weir itself sets",
        );
    }
}

fn collect_trusted<'a>(
    cx: &mut Cx<'a, '_>,
    directives: impl Iterator<Item = &'a Directive>,
    trusted: &mut Vec<String>,
) {
    for directive in directives {
        match &*directive.name {
            "set_real_ip_from" => match network(directive.first()) {
                Ok(network) => {
                    cx.ledger.same(directive.piece);
                    if !trusted.contains(&network) {
                        trusted.push(network);
                    }
                }
                Err(_) if directive.first() == "unix:" => {
                    cx.ledger.left_out(directive.piece, "clients on a Unix socket have no address");
                }
                Err(why) => cx.ledger.refused(directive.piece, why, "trusted_proxies"),
            },
            "real_ip_header" => match &*directive.first().to_ascii_lowercase() {
                "x-forwarded-for" => cx.ledger.same(directive.piece),
                "proxy_protocol" => cx.ledger.same(directive.piece),
                _ => {
                    let why = "Weir reads X-Forwarded-For and Forwarded of trusted proxies: no other field";
                    cx.ledger.refused(
                        directive.piece,
                        why,
                        "trusted_proxies, with X-Forwarded-For of the proxy",
                    );
                }
            },
            "real_ip_recursive" => match directive.first() {
                "on" => cx.ledger.same(directive.piece),
                _ => {
                    let why = "the client is the last address that is not of a trusted proxy";
                    cx.ledger.changed(directive.piece, why);
                }
            },
            _ => {}
        }
        collect_trusted(cx, directive.block.iter().flatten(), trusted);
    }
}

/// Decides what holds for all routes, and adds them to the config.
pub(super) fn finish(cx: &mut Cx<'_, '_>, mut drafts: Vec<Draft>) {
    let bodies: BTreeSet<u64> = drafts.iter().filter_map(|draft| draft.body).collect();
    let is_unlimited = drafts.iter().any(|draft| draft.is_proxied && draft.body.is_none());
    let most = bodies.last().copied().filter(|_| !is_unlimited);
    if let Some(most) = most {
        let mut limits = Map::new();
        if most == 1 << 20 {
            limits.comment("nginx's own default.");
        }
        limits.set("body_bytes", size(most));
        cx.config.more.set("limits", limits);
    }
    for draft in &mut drafts {
        let Some(bytes) = draft.body.filter(|bytes| Some(*bytes) != most) else { continue };
        let at = draft
            .route
            .filters
            .iter()
            .position(|filter| matches!(filter.name, "headers" | "rewrite" | "cache"));
        if let Some(filter) = limit_of(bytes) {
            // Behind what changes answers, before what changes the request.
            let at = at.map_or(draft.route.filters.len(), |at| match &draft.route.filters[at].settings {
                Value::Map(map) if map.get("response").is_some() => at + 1,
                _ => at,
            });
            draft.route.filters.insert(at, filter);
        }
    }
    for name in ["errors", "compress"] {
        share(cx, &mut drafts, name);
    }
    let names: Vec<String> =
        drafts.into_iter().map(|draft| cx.config.add_route(&draft.name, draft.route, draft.pieces)).collect();
    // Each test looks at all routes, so a large config has fewer: evenly chosen.
    let most = (400_000 / names.len().max(1)).clamp(50, TESTS);
    let step = cx.config.tests.len().div_ceil(most).max(1);
    let mut count = 0;
    cx.config.tests.retain(|_| {
        count += 1;
        (count - 1) % step == 0
    });
    for case in &mut cx.config.tests {
        let at = case.route.as_ref().and_then(|at| at.parse::<usize>().ok());
        case.route = at.and_then(|at| names.get(at)).cloned();
    }
}

/// Moves a filter that all routes with a target of their own have into `filters`, for every route.
fn share(cx: &mut Cx<'_, '_>, drafts: &mut [Draft], name: &str) {
    let has_target = |draft: &&Draft| {
        matches!(draft.route.target, Some(Target::Upstream(_) | Target::Files(_) | Target::FastCgi { .. }))
    };
    let found: Vec<Option<&Filter>> = drafts
        .iter()
        .filter(has_target)
        .map(|draft| draft.route.filters.iter().find(|filter| filter.name == name))
        .collect();
    let first = found.first().copied().flatten();
    let shared = first.filter(|first| found.len() > 1 && found.iter().all(|other| *other == Some(*first)));
    if let Some(shared) = shared.cloned() {
        for draft in drafts {
            draft.route.filters.retain(|filter| *filter != shared);
        }
        cx.config.filters.push(shared);
    }
}
