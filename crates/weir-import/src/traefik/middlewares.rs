//! Middlewares as filters, in the order in which a router lists them.
//!
//! A middleware that may be what protects a route, and that Weir cannot do, leaves the route closed.

use super::cx::{Cx, Kind, Thing, list, milliseconds, nothing_else};
use super::paths::Apart;
use super::services::Retry;
use super::{auth, headers, pages, paths, traffic};
use crate::config::Filter;
use crate::ledger::{Ledger, Piece};
use crate::shared::filters::{self, closed};
use crate::shared::tree::{Entry, Fields};
use crate::yaml::Map;

/// Deepest nesting of chains.
const MAX_DEPTH: usize = 16;
/// Most middlewares of one router, those that chains repeat included.
const MAX_STEPS: usize = 500;

/// What filters depend on.
pub(super) struct About {
    /// Whether the router's requests come by TLS.
    pub(super) is_tls: bool,
    /// Its hosts, if they are all named.
    pub(super) hosts: Vec<String>,
}

/// What middlewares come to.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) filters: Vec<Filter>,
    /// What upstreams of the router must do.
    pub(super) retry: Option<Retry>,
    /// How many middlewares were added.
    steps: usize,
    /// Whether some were not.
    is_cut: bool,
    /// A second route, for the paths of a pattern.
    pub(super) apart: Option<Apart>,
}

/// Adds what a middleware does.
pub(super) fn add(
    cx: &mut Cx<'_, '_>,
    reference: &str,
    provider: &'static str,
    piece: Piece,
    about: &About,
    chain: &mut Chain,
    depth: usize,
) {
    chain.steps += 1;
    if depth > MAX_DEPTH || chain.steps > MAX_STEPS {
        cx.ledger.refused(piece, "too many middlewares, one in another", "correct the source");
        if !chain.is_cut {
            chain.filters.push(closed("it has too many middlewares, or they are nested too deep"));
        }
        chain.is_cut = true;
        return;
    }
    match cx.find(Kind::Middleware, reference, provider) {
        Ok(at) => {
            let thing = cx.things.of(Kind::Middleware)[at].clone();
            cx.ledger.same(piece);
            one(cx, &thing, about, chain, depth);
        }
        Err(why) => {
            cx.ledger.refused(piece, why.clone(), "give the file that defines it too");
            chain.filters.push(closed(&format!("the middleware {why}")));
        }
    }
}

fn one(cx: &mut Cx<'_, '_>, thing: &Thing<'_>, about: &About, chain: &mut Chain, depth: usize) {
    cx.ledger.same(thing.piece);
    let entries: Vec<&Entry> = Fields::of(thing.node).rest();
    if entries.len() > 1 {
        let why = "a middleware of several kinds, which Traefik refuses";
        entries.iter().for_each(|entry| {
            entry.each_piece(&mut |piece| cx.ledger.refused(piece, why, "one middleware for each"));
        });
        chain.filters.push(closed(&format!("the middleware {} is of several kinds", thing.name)));
        return;
    }
    let Some(entry) = entries.first() else {
        cx.ledger.refused(thing.piece, "a middleware without a kind", "correct the source");
        chain.filters.push(closed(&format!("the middleware {} has no kind", thing.name)));
        return;
    };
    let mut fields = Fields::in_any_case(&entry.node);
    let kind = entry.key.to_ascii_lowercase();
    // A flag that turns a kind without settings off.
    if entry.node.as_bool() == Some(false) {
        cx.ledger.same(entry.piece);
        return;
    }
    let made: Vec<Filter> = match kind.as_str() {
        "addprefix" => paths::add_prefix(cx, entry, &mut fields),
        "basicauth" => auth::basic(cx, thing, entry, &mut fields),
        "buffering" => traffic::buffering(cx, entry, &mut fields, chain),
        "chain" => {
            cx.ledger.same(entry.piece);
            if let Some((names, piece)) = list(&mut fields, "middlewares", cx.ledger) {
                for name in names {
                    add(cx, &name, thing.provider, piece, about, chain, depth + 1);
                }
            }
            Vec::new()
        }
        "circuitbreaker" => traffic::circuit_breaker(cx, entry, &mut fields),
        "compress" => traffic::compress(cx, entry, &mut fields),
        "contenttype" => {
            entry.each_piece(&mut |piece| cx.ledger.left_out(piece, "Weir never makes up a Content-Type"));
            fields = Fields::default();
            Vec::new()
        }
        "digestauth" => refuse(
            cx,
            entry,
            "Weir has no digest authentication, which sends what a password's hash proves",
            "basic_auth over TLS, with argon2id or bcrypt",
            true,
        ),
        "encodedcharacters" => {
            entry.each_piece(&mut |piece| {
                cx.ledger.changed(piece, "Weir's rules for paths are stricter: docs/reference/routing.md")
            });
            fields = Fields::default();
            Vec::new()
        }
        "errors" => pages::translate(cx, thing, entry, &mut fields),
        "forwardauth" => auth::forward(cx, thing, entry, &mut fields),
        "grpcweb" => traffic::grpc_web(cx, entry, &mut fields),
        "headers" => headers::translate(cx, entry, &mut fields, about),
        "inflightreq" => traffic::in_flight(cx, entry, &mut fields),
        "ipallowlist" | "ipwhitelist" => auth::addresses(cx, entry, &mut fields),
        "passtlsclientcert" => auth::client_certificate(cx, entry, &mut fields),
        "ratelimit" => traffic::rate_limit(cx, entry, &mut fields),
        "redirectregex" => paths::redirect_regex(cx, entry, &mut fields, about, chain),
        "redirectscheme" => paths::redirect_scheme(cx, entry, &mut fields, about),
        "replacepath" => paths::replace(cx, entry, &mut fields),
        "replacepathregex" => paths::replace_regex(cx, entry, &mut fields, chain),
        "retry" => {
            retry(cx, entry, &mut fields, chain);
            Vec::new()
        }
        "stripprefix" => paths::strip_prefix(cx, entry, &mut fields),
        "stripprefixregex" => paths::strip_prefix_regex(cx, entry, &mut fields, chain),
        "plugin" => refuse(
            cx,
            entry,
            "plugins are programs for Traefik",
            "expressions: docs/guide/expressions.md; or the filter ext_proc",
            true,
        ),
        _ => {
            refuse(cx, entry, "weir import does not know this middleware", "docs/reference/filters.md", true)
        }
    };
    if matches!(kind.as_str(), "digestauth" | "plugin") || cx.ledger.verdict(entry.piece).is_none() {
        // Judged as a whole.
        fields = Fields::default();
        if !cx.ledger.is_judged(entry.piece) {
            cx.ledger.same(entry.piece);
        }
    }
    let rest: Vec<&Entry> = fields.rest();
    let is_unknown = rest.iter().any(|entry| !cx.ledger.is_judged(entry.piece));
    for entry in rest {
        entry.each_piece(&mut |piece| {
            if !cx.ledger.is_judged(piece) {
                let why = format!("weir import does not know this setting of the middleware {kind}");
                cx.ledger.refused(piece, why, "docs/reference/filters.md");
            }
        });
    }
    let protects = ["basicauth", "forwardauth", "ipallowlist", "ipwhitelist", "ratelimit", "inflightreq"];
    chain.filters.extend(made);
    if is_unknown && protects.contains(&kind.as_str()) {
        chain.filters.push(closed(&format!("a setting of the middleware {} is not understood", thing.name)));
    }
}

/// Refuses a middleware as a whole. If it `may_protect` the route, the route is closed.
pub(super) fn refuse(
    cx: &mut Cx<'_, '_>,
    entry: &Entry,
    why: &'static str,
    nearest: &'static str,
    may_protect: bool,
) -> Vec<Filter> {
    entry.each_piece(&mut |piece| cx.ledger.refused(piece, why, nearest));
    if may_protect { vec![closed(&format!("the middleware {}: {why}", entry.key))] } else { Vec::new() }
}

fn retry(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>, chain: &mut Chain) {
    cx.ledger.changed(
        entry.piece,
        "failed connections and those that ended before an answer; Weir spends at most `budget` on it",
    );
    let mut map = Map::new();
    if let Some((attempts, piece)) = fields.number("attempts", cx.ledger) {
        let attempts = i64::try_from(attempts.clamp(1, 10)).unwrap_or(10);
        map.set("attempts", attempts);
        cx.ledger.same(piece);
    }
    map.set("on", vec!["connect", "reset"]);
    map.set("methods", "all");
    if let Some((ms, piece)) = milliseconds(fields, "initialInterval", cx.ledger) {
        map.set("backoff", crate::shared::units::duration(ms));
        cx.ledger.same(piece);
    }
    if let Some((statuses, piece)) = list(fields, "status", cx.ledger) {
        cx.ledger.refused(piece, format!("statuses {}", statuses.join(", ")), "retry: { on: [502, 503] }");
    }
    for key in ["disableRetryOnNetworkError", "retryNonIdempotentMethod", "maxRequestBodyBytes", "timeout"] {
        if let Some(entry) = fields.entry(key) {
            cx.ledger.refused(entry.piece, "by hand", "upstreams.NAME.retry: docs/reference/config.md");
        }
    }
    chain.retry = Some(Retry(map));
}

/// `sourceCriterion`, as `by` of a limit.
///
/// # Errors
/// If Weir cannot count by it.
pub(super) fn criterion(fields: &mut Fields<'_>, default: &str, ledger: &mut Ledger) -> Result<String, ()> {
    let Some((node, piece)) = fields.map("sourceCriterion", ledger) else { return Ok(default.to_owned()) };
    ledger.same(piece);
    let mut fields = Fields::in_any_case(node);
    let mut by = None;
    let mut done = Ok(());
    if let Some((name, piece)) = fields.text("requestHeaderName", ledger) {
        ledger.changed(piece, "requests without the field are counted by address");
        by = Some(format!("header:{}", name.to_ascii_lowercase()));
    }
    if let Some((flag, piece)) = fields.flag("requestHost", ledger) {
        ledger.same(piece);
        if flag {
            by = Some("{host}".to_owned());
        }
    }
    if let Some(entry) = fields.entry("ipStrategy") {
        by = Some("address".to_owned());
        let has = |key: &str| {
            entry.node.as_map().is_some_and(|map| map.iter().any(|e| e.key.eq_ignore_ascii_case(key)))
        };
        match has("depth") || has("excludedIPs") {
            true => {
                entry.each_piece(&mut |piece| {
                    ledger.refused(
                        piece,
                        "Weir takes the nearest address that is not of `trusted_proxies`",
                        "trusted_proxies: the networks of your load balancers",
                    );
                });
                done = Err(());
            }
            false => entry.each_piece(&mut |piece| ledger.changed(piece, "IPv6 clients are counted by /64")),
        }
    }
    nothing_else(fields, "sourceCriterion", ledger);
    done.map(|()| by.unwrap_or_else(|| default.to_owned()))
}

/// Whether all requests are answered by filters, so that no target is needed.
pub(super) fn answer_all(filters: &[Filter]) -> bool {
    filters.iter().any(filters::answers)
}
