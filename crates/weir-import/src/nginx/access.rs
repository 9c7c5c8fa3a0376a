//! Who may pass, and how often: `allow`, `deny`, passwords, `auth_request`, `limit_req`, `limit_conn`.
//!
//! What guards a location must not be lost. A guard that cannot be translated closes its route.

use super::context::{Cx, Scope};
use super::location::{Kind, find};
use super::proxy::{path_behind, proxied};
use super::read::Directive;
use super::site::Site;
use super::text::template;
use super::users::basic_auth;
use super::variables::answered_field;
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::ip;
use crate::shared::networks::network;
use crate::shared::template::Part;
use crate::yaml::{Map, Value};
use ipnet::IpNet;

/// The filters that guard a location.
#[derive(Default)]
pub(super) struct Guards {
    pub(super) filters: Vec<Filter>,
    /// Guards that could not be translated.
    pub(super) closed: Vec<String>,
    /// Nobody may pass.
    pub(super) is_denied: bool,
}

/// Translates all guards of a location, in nginx's order.
pub(super) fn guards<'a>(cx: &mut Cx<'a, '_>, site: &Site<'_, 'a>, scope: &Scope<'a>) -> Guards {
    let mut guards = Guards::default();
    limits(cx, scope, &mut guards);
    let mut others = Vec::new();
    let before = guards.closed.len();
    passwords(cx, scope, &mut others, &mut guards);
    forward(cx, site, scope, &mut others, &mut guards);
    let has_others = !others.is_empty() || guards.closed.len() > before;
    let satisfy = scope.block.one("satisfy");
    let is_any = has_others && satisfy.is_some_and(|satisfy| satisfy.first() == "any");
    let mut checks = addresses(cx, scope, &mut guards, is_any);
    checks.extend(others);
    if is_any && checks.len() > 1 {
        // Credentials first, so that callers who send them are named wherever they call from.
        checks.sort_by_key(|check| check.name == "ip");
        let members: Vec<Value> = checks.iter().map(Filter::to_value).collect();
        checks = vec![Filter::new("any", Value::List(members))];
    }
    if let Some(satisfy) = satisfy {
        cx.ledger.same(satisfy.piece);
    }
    guards.filters.extend(checks);
    for guard in scope.block.unknown_guards() {
        if guard.first() != "off" {
            let nearest = "the filters jwt, key_auth, signature_auth, acl, ip and forward_auth";
            let (why, nearest) = match &*guard.name {
                "include" => ("the file is missing, and it may keep somebody out", ""),
                _ => ("weir import does not know it, and it may keep somebody out", nearest),
            };
            close(cx, &mut guards, guard, why, nearest);
        }
    }
    for limit in scope.block.own("limit_except") {
        limit_except(cx, limit, &mut guards);
    }
    client_certificates(cx, scope, &mut guards);
    guards
}

/// Refuses a guard, and closes the route.
fn close(
    cx: &mut Cx<'_, '_>,
    guards: &mut Guards,
    directive: &Directive,
    why: impl Into<String>,
    nearest: &'static str,
) {
    let why = why.into();
    cx.ledger.refused(directive.piece, why.clone(), nearest);
    guards.closed.push(format!("`{}` at {}: {why}", directive.name, directive.place));
}

/// `allow` and `deny`: the first that fits decides.
///
/// With `satisfy any` a `deny` keeps nobody out: it leaves the address to the other checks, as does a list without a
/// rule for it. Only an address that an `allow` names needs no other check. `ip` as a member of `any` does the same if
/// it has `allow`. Without `allow`, `ip: { deny }` would let all other addresses pass, so it is written only for a list
/// that ends with `allow all`.
fn addresses(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, guards: &mut Guards, is_any: bool) -> Vec<Filter> {
    // Both names are one list, and the innermost block that has either counts.
    let Some(block) = scope.block.outward().find(|b| !b.own("allow").is_empty() || !b.own("deny").is_empty())
    else {
        return Vec::new();
    };
    let rules: Vec<&Directive> =
        block.all().iter().filter(|d| matches!(&*d.name, "allow" | "deny")).copied().collect();
    let (mut allow, mut deny): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut ended = None;
    for rule in &rules {
        if ended.is_some() {
            cx.ledger.left_out(rule.piece, "a rule for all stands before it");
            continue;
        }
        let is_allow = rule.name == "allow";
        match rule.first() {
            "all" => {
                cx.ledger.same(rule.piece);
                ended = Some(is_allow);
            }
            "unix:" => cx.ledger.left_out(rule.piece, "clients on a Unix socket have no address"),
            text => match network(text) {
                Ok(network) if is_allow => {
                    cx.ledger.same(rule.piece);
                    allow.push(network);
                }
                // In Weir `deny` comes first, whatever the order.
                Ok(network) if allow.iter().any(|known| overlap(known, &network)) => {
                    let covered = allow.iter().any(|known| covers(known, &network));
                    if covered {
                        cx.ledger.left_out(rule.piece, "an `allow` before it takes these addresses");
                    } else {
                        let nearest = "acl: { is: 'client.ip in [...]' }";
                        close(cx, guards, rule, "part of it is allowed by a rule before it", nearest);
                    }
                }
                Ok(network) => {
                    cx.ledger.same(rule.piece);
                    deny.push(network);
                }
                Err(why) => close(cx, guards, rule, why, "the filter ip"),
            },
        }
    }
    match (ended, allow.is_empty(), deny.is_empty()) {
        (Some(true), _, false) => vec![ip(&[], &deny)],
        // Everybody passes, so that no other check is made.
        (Some(true), _, true) if is_any => vec![ip(&["0.0.0.0/0".to_owned(), "::/0".to_owned()], &[])],
        (Some(true), _, true) => Vec::new(),
        (_, true, _) if is_any => Vec::new(),
        (_, false, _) if is_any => vec![ip(&allow, &deny)],
        (Some(false), true, _) => {
            guards.is_denied = true;
            Vec::new()
        }
        (Some(false), false, _) => vec![ip(&allow, &deny)],
        // Without a rule for all, who fits none passes.
        (None, _, false) => vec![ip(&[], &deny)],
        (None, _, true) => Vec::new(),
    }
}

fn overlap(a: &str, b: &str) -> bool {
    match (parsed(a), parsed(b)) {
        (Some(a), Some(b)) => a.contains(&b) || b.contains(&a),
        _ => true,
    }
}

fn covers(a: &str, b: &str) -> bool {
    matches!((parsed(a), parsed(b)), (Some(a), Some(b)) if a.contains(&b))
}

fn parsed(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

fn passwords(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, checks: &mut Vec<Filter>, guards: &mut Guards) {
    let Some(basic) = scope.block.one("auth_basic").filter(|basic| basic.first() != "off") else {
        if let Some(off) = scope.block.one("auth_basic") {
            cx.ledger.same(off.piece);
        }
        return;
    };
    let nearest = "basic_auth: { file }, with lines from `weir hash --user USER`";
    let Some(file) = scope.block.one("auth_basic_user_file") else {
        return close(cx, guards, basic, "there is no auth_basic_user_file", nearest);
    };
    match basic_auth(cx, scope, basic, file) {
        Ok(filter) => checks.push(filter),
        Err(why) => {
            cx.ledger.refused(basic.piece, why.clone(), nearest);
            close(cx, guards, file, why, nearest);
        }
    }
}

/// `auth_request URI`: the location of the URI says whom to ask.
fn forward<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    scope: &Scope<'a>,
    checks: &mut Vec<Filter>,
    guards: &mut Guards,
) {
    let Some(request) = scope.block.one("auth_request").filter(|request| request.first() != "off") else {
        if let Some(off) = scope.block.one("auth_request") {
            cx.ledger.same(off.piece);
        }
        return;
    };
    let nearest = "forward_auth: { upstream, path }";
    let Some(location) = find(&site.locations, request.first()) else {
        return close(cx, guards, request, "no location takes its path", nearest);
    };
    let mut inner = site.scope(location);
    for set in location.block.own("set") {
        if let [name, value] = &*set.args
            && let Ok(value) = template(cx, &inner, value)
        {
            cx.ledger.same(set.piece);
            inner.set.insert(name.trim_start_matches('$').to_owned(), value);
        }
    }
    let Some(pass) = location.block.one("proxy_pass") else {
        return close(cx, guards, request, "the location of its path has no proxy_pass", nearest);
    };
    let asked = match proxied(cx, &inner, pass) {
        Ok(asked) => asked,
        Err(why) => return close(cx, guards, request, why, nearest),
    };
    // The path that the service sees: what its location makes of the URI.
    let path = path_behind(&inner, pass, &asked.filters, request.first().to_owned());
    let mut map = Map::new().with("upstream", asked.upstream).with("path", path);
    map.set("copy_request", "all");
    // Not every variable that reads a field: `set $o $http_origin` reads the client's.
    let mut copies: Vec<String> = scope
        .block
        .nearest("auth_request_set")
        .iter()
        .filter_map(|line| answered_field(line.args.get(1)?))
        .collect();
    copies.sort();
    copies.dedup();
    if !copies.is_empty() {
        map.set("copy", copies);
    }
    let fields = location.block.nearest("proxy_set_header");
    if !fields.iter().any(|field| field.first().eq_ignore_ascii_case("host")) {
        let why = "the service sees the host that the client asked for, where nginx sends that of proxy_pass";
        cx.ledger.changed(request.piece, why);
    }
    let set = fields_of_service(cx, &inner, &fields);
    if !set.is_empty() {
        map.set("set", set);
    }
    map.set("answers", "nginx");
    let why = "Weir also sends the service X-Forwarded-Method, -Proto, -Host, -Uri and -For";
    cx.ledger.by_itself(request.piece, why);
    for line in location.block.own("proxy_pass_request_body") {
        match line.first() {
            "off" => cx.ledger.same(line.piece),
            _ => cx.ledger.changed(line.piece, "the service does not see the body"),
        }
    }
    checks.push(Filter::new("forward_auth", map));
}

/// The fields that the location of the service sets.
fn fields_of_service(cx: &mut Cx<'_, '_>, inner: &Scope<'_>, fields: &[&Directive]) -> Map {
    let mut set = Map::new();
    for field in fields {
        let name = field.first().to_ascii_lowercase();
        let value = field.args.get(1).map_or("", String::as_str);
        match &*name {
            "host" if matches!(value, "$host" | "$http_host") => cx.ledger.same(field.piece),
            "host" => cx.ledger.changed(field.piece, "the service sees the host that the client asked for"),
            "content-length" | "transfer-encoding" | "connection" | "upgrade" | "expect" | "te" => {
                cx.ledger.by_itself(field.piece, "the service gets no body and no field of the connection");
            }
            _ if name.contains('_') => {
                let why = "fields with `_` are dropped, because servers read `_` as `-`";
                cx.ledger.refused(field.piece, why, "the same name with `-`");
                // The client's own value does not reach the service.
                set.set(name.replace('_', "-"), "");
            }
            "x-forwarded-for" => {
                let why = "Weir sends the client's address alone, whatever the client claims";
                cx.ledger.changed(field.piece, why);
            }
            _ => match template(cx, inner, value) {
                Ok(text) => {
                    cx.ledger.same(field.piece);
                    set.set(name, text.to_setting());
                }
                Err(why) => {
                    cx.ledger.refused(field.piece, why, "forward_auth: { set }");
                    set.set(name, "");
                }
            },
        }
    }
    set
}

fn limit_except(cx: &mut Cx<'_, '_>, limit: &Directive, guards: &mut Guards) {
    let inner: Vec<&Directive> = limit.block.iter().flatten().collect();
    let is_deny = matches!(&*inner, [one] if one.name == "deny" && one.first() == "all");
    if !is_deny {
        inner.iter().for_each(|line| cx.ledger.refused(line.piece, "it stands in limit_except", ""));
        return close(
            cx,
            guards,
            limit,
            "other rules for other methods",
            "a second route with match.methods",
        );
    }
    cx.ledger.same(limit.piece);
    inner.iter().for_each(|line| cx.ledger.same(line.piece));
    let mut methods: Vec<&str> = limit.args.iter().map(String::as_str).collect();
    if methods.contains(&"GET") && !methods.contains(&"HEAD") {
        methods.push("HEAD");
    }
    let is = Expression::raw("request.method").is_in(methods).not();
    let refuse = Filter::new("respond", Map::new().with("status", 403_u16));
    guards.filters.extend(crate::shared::filters::when(&is, vec![refuse], Vec::new()));
}

/// Clients without a certificate, where the listener only asks because other servers need none.
fn client_certificates(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, guards: &mut Guards) {
    let Some(verify) = scope.block.one("ssl_verify_client").filter(|verify| verify.first() == "on") else {
        return;
    };
    if cx.ledger.verdict(verify.piece) == Some(crate::ledger::Verdict::Changed) {
        let is = Expression::raw("client.cert.subject").equals(Expression::text(""));
        let refuse = Filter::new("respond", Map::new().with("status", 403_u16));
        guards.filters.extend(crate::shared::filters::when(&is, vec![refuse], Vec::new()));
    }
}

/// `limit_req` and `limit_conn`.
fn limits<'a>(cx: &mut Cx<'a, '_>, scope: &Scope<'a>, guards: &mut Guards) {
    for limit in scope.block.nearest("limit_req") {
        let mut burst = 0_i64;
        let mut zone = None;
        let mut is_at_once = false;
        for word in &limit.args {
            match word.split_once('=') {
                Some(("zone", name)) => zone = Some(name),
                Some(("burst", value)) => burst = value.parse().unwrap_or(0),
                _ if word == "nodelay" => is_at_once = true,
                _ => {}
            }
        }
        let Some((name, defined)) = zone.and_then(|zone| cx.zones.get_key_value(&("limit_req_zone", zone)))
        else {
            close(cx, guards, limit, "its zone is not defined", "the filter rate_limit");
            continue;
        };
        let (key, defined) = (*name, *defined);
        let rate = defined.args.iter().find_map(|word| word.strip_prefix("rate="));
        let read = rate.and_then(|rate| {
            let (number, per) = rate.split_once("r/")?;
            Some((number.parse::<i64>().ok()?, if per == "m" { "1m" } else { "1s" }))
        });
        let by = limit_key(cx, scope, defined);
        let (Some((requests, per)), Ok((by, counted))) = (read, by) else {
            let why = "its key or rate cannot be translated";
            close(cx, guards, limit, why, "the filter rate_limit");
            cx.ledger.refused(defined.piece, why, "the filter rate_limit");
            continue;
        };
        let mut map =
            Map::new().with("requests", requests).with("per", per).with("burst", burst + 1).with("by", by);
        if cx.zone_uses.get(&key).copied().unwrap_or(0) > 1 || scope.block.own("limit_req").is_empty() {
            cx.ledger.changed(
                limit.piece,
                "each route counts alone; in nginx all that name the zone count together",
            );
        }
        map.set("headers", false);
        cx.ledger.same(defined.piece);
        if !is_at_once && burst > 0 {
            cx.ledger.changed(limit.piece, "nginx delays requests of the burst; Weir lets them pass at once");
        }
        status(cx, scope, limit, "limit_req_status", "429");
        push_limit(guards, counted, Filter::new("rate_limit", map));
    }
    for limit in scope.block.nearest("limit_conn") {
        let zone = limit.first();
        let Some(defined) = cx.zones.get(&("limit_conn_zone", zone)).copied() else {
            close(cx, guards, limit, "its zone is not defined", "the filter concurrency");
            continue;
        };
        let number = limit.args.get(1).and_then(|text| text.parse::<i64>().ok());
        let (Some(requests), Ok((by, counted))) = (number, limit_key(cx, scope, defined)) else {
            close(cx, guards, limit, "its key or number cannot be translated", "the filter concurrency");
            continue;
        };
        cx.ledger.same(defined.piece);
        cx.ledger
            .changed(limit.piece, "each route counts alone; in nginx all that name the zone count together");
        status(cx, scope, limit, "limit_conn_status", "429");
        let map = Map::new().with("requests", requests).with("by", by);
        push_limit(guards, counted, Filter::new("concurrency", map));
    }
}

fn status(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, limit: &Directive, name: &str, ours: &str) {
    match scope.block.one(name) {
        Some(status) if status.first() == ours => {
            cx.ledger.same(status.piece);
            cx.ledger.same(limit.piece);
        }
        Some(status) => {
            cx.ledger.changed(status.piece, "Weir refuses with 429; the filter `errors` has other pages")
        }
        None => cx.ledger.changed(limit.piece, "Weir refuses with 429, nginx with 503"),
    }
}

/// Adds a limit. `counted` says which requests it counts; none for all.
fn push_limit(guards: &mut Guards, counted: Option<Expression>, limit: Filter) {
    match counted {
        Some(is) => guards.filters.extend(crate::shared::filters::when(&is, vec![limit], Vec::new())),
        None => guards.filters.push(limit),
    }
}

/// The `by` of a limit, and which requests it counts, if not all: nginx counts none whose key is empty.
fn limit_key<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    zone: &Directive,
) -> Result<(String, Option<Expression>), String> {
    let text = template(cx, scope, zone.first())?;
    Ok(match text.parts() {
        [Part::Placeholder(name)] if name == "client" => ("address".to_owned(), None),
        [Part::Text(_)] => ("route".to_owned(), None),
        [Part::Value(value)] => {
            let none = || Expression::text("");
            (format!("= {}", value.as_str()), Some(value.clone().or_else(none()).differs(none())))
        }
        _ => (text.to_setting(), None),
    })
}

/// Whether a location is for nginx itself. Locations in it inherit that.
pub(super) fn is_internal(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, kind: &Kind) -> bool {
    let Some(internal) = scope.block.one("internal") else { return false };
    if !matches!(kind, Kind::Named(_)) {
        cx.ledger.same(internal.piece);
    }
    true
}
