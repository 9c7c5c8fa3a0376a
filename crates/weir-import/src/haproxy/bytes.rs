//! Mode tcp: bytes without HTTP, as `tcp:` and `sni:` of a listener.

use super::acl::{Condition, Facet, Term, condition};
use super::bind;
use super::context::Cx;
use super::model::Proxy;
use super::read::Line;
use super::sample::Scope;
use super::servers::{self, timeout};
use crate::shared::units::duration;
use crate::yaml::Map;
use std::collections::HashMap;

const NEAREST: &str = "listeners.NAME.tcp: { upstream }, or listeners.NAME.sni";

/// Translates a frontend in mode tcp.
pub(super) fn translate<'a>(
    cx: &mut Cx<'a, '_, '_>,
    proxy: &Proxy<'a>,
    made: &mut HashMap<String, Option<String>>,
) {
    let head = proxy.section.head.piece;
    let scope =
        Scope { acls: super::acl::acls(&proxy.lines), proxy: proxy.name.to_owned(), ..Scope::default() };
    let mut ip = Map::new();
    for line in proxy.all("tcp-request") {
        rule(cx, &scope, line, &mut ip);
    }
    let idle = match (timeout(cx, proxy, "client"), timeout(cx, proxy, "server")) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let idle = timeout(cx, proxy, "tunnel").or(idle);
    let connect = timeout(cx, proxy, "connect").filter(|ms| *ms > 0);
    let to = |upstream: &str| {
        let mut map = Map::new().with("upstream", upstream);
        map.set("idle", idle.map_or_else(|| "0s".to_owned(), duration));
        map.set_some("connect", connect.map(duration));
        map
    };
    let mut sni = Map::new();
    let mut always = None;
    for line in proxy.all("use_backend") {
        if always.is_some() {
            cx.ledger.left_out(line.piece, "a rule before it takes all connections");
            continue;
        }
        let Some(upstream) = upstream(cx, made, line.word(1)) else {
            cx.ledger.refused(line.piece, "no such backend, or none of its servers can be used", NEAREST);
            continue;
        };
        let found = condition(cx, &scope, line, 2);
        match names(&found) {
            Ok(None) => {
                cx.ledger.same(line.piece);
                always = Some(upstream);
            }
            Ok(Some(names)) => {
                let mut taken = Vec::new();
                for name in names {
                    // The first rule wins in HAProxy, the most specific name in Weir.
                    let covered = sni.iter().any(|(known, _)| covers(known, &name));
                    if covered {
                        taken.push(name);
                    } else {
                        sni.set(name, to(&upstream));
                    }
                }
                if taken.is_empty() {
                    cx.ledger.same(line.piece);
                } else {
                    let why = format!("a rule before it takes {}", taken.join(", "));
                    cx.ledger.changed(line.piece, why);
                }
            }
            Err(why) => {
                cx.ledger.refused(line.piece, why, NEAREST);
            }
        }
    }
    let default = proxy.one(&["default_backend"]);
    if let Some(line) = default {
        match (always.is_some(), upstream(cx, made, line.word(1))) {
            (true, _) => cx.ledger.left_out(line.piece, "a rule before it takes all connections"),
            (_, Some(upstream)) => {
                cx.ledger.same(line.piece);
                always = Some(upstream);
            }
            _ => {
                cx.ledger.refused(line.piece, "no such backend, or none of its servers can be used", NEAREST)
            }
        }
    } else if proxy.kind == "listen" && always.is_none() {
        always = upstream(cx, made, proxy.name);
    }
    // No connection may take a rule behind one that was not translated.
    let refused = |line: &&Line| cx.ledger.verdict(line.piece) == Some(crate::ledger::Verdict::Refused);
    if let Some(line) = proxy.all("use_backend").find(refused) {
        let why =
            format!("not written, because its connections would take other rules: {}", super::words(line));
        return cx.ledger.refused(head, why, NEAREST);
    }
    if sni.is_empty() && always.is_none() {
        return cx.ledger.refused(head, "no server takes its connections", NEAREST);
    }
    for (wish, mut listener) in bind::listeners(cx, proxy, false) {
        if sni.is_empty() {
            listener.more.set_some("tcp", always.as_deref().map(to));
        } else {
            if listener.more.get("tls").is_some() {
                cx.ledger.refused(
                    head,
                    "TLS ends here, and the name in the handshake is looked for behind it",
                    NEAREST,
                );
                continue;
            }
            listener.more.set("sni", sni.clone());
            listener.more.set_some("otherwise", always.as_deref().map(to));
        }
        if !ip.is_empty() && listener.more.get("ip").is_none() {
            listener.more.set("ip", ip.clone());
        }
        cx.config.listeners.add(&wish, listener);
    }
    cx.ledger.same(head);
}

/// Whether connections for `name` go where `known` says.
fn covers(known: &str, name: &str) -> bool {
    known == name
        || known.strip_prefix('*').is_some_and(|ending| name.trim_start_matches('*').ends_with(ending))
}

/// The names of a condition on SNI; none if it always holds.
fn names(found: &Condition) -> Result<Option<Vec<String>>, String> {
    found.expression()?;
    let mut names = Vec::new();
    for all in &found.any {
        match all.as_slice() {
            [] => return Ok(None),
            [Term::Is(is, _)] => names.extend(
                named(is.as_str())
                    .ok_or("Weir chooses bytes by the name in the handshake (SNI) alone: exact, or `*.x`")?,
            ),
            _ => {
                return Err(
                    "several conditions at once: Weir chooses bytes by the name in the handshake (SNI) alone"
                        .to_owned(),
                );
            }
        }
    }
    Ok(Some(names))
}

/// Names in an expression over the SNI, as `acl.rs` builds them.
fn named(is: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for part in is.split(" || ") {
        let part = part.trim_start_matches('(').trim_end_matches(')');
        let rest = part.strip_prefix("client.sni")?;
        let rest =
            rest.strip_prefix(".lowerAscii()").or_else(|| rest.strip_prefix(".lowerAscii(")).unwrap_or(rest);
        let quoted: Vec<&str> = rest.split('"').skip(1).step_by(2).collect();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        };
        if quoted.is_empty() || !quoted.iter().all(|name| is_name(name)) {
            return None;
        }
        let lower = quoted.iter().map(|name| name.to_ascii_lowercase());
        if rest.trim_start_matches(')').starts_with(" == ")
            || rest.trim_start_matches(')').starts_with(" in ")
        {
            names.extend(lower);
        } else if rest.contains(".endsWith(") {
            names.extend(lower.map(|name| format!("*.{}", name.trim_start_matches('.'))));
            if quoted.iter().any(|name| !name.starts_with('.')) {
                return None;
            }
        } else {
            return None;
        }
    }
    Some(names)
}

/// `tcp-request` in mode tcp.
fn rule(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, line: &Line, ip: &mut Map) {
    match (line.word(1), line.word(2)) {
        ("inspect-delay", _) | (_, "accept") => {
            cx.ledger.by_itself(line.piece, "Weir reads the handshake, for timeouts.handshake at most");
        }
        ("connection", "expect-proxy") => bind::expect_proxy(cx, scope, line),
        (_, "reject") => {
            if super::limits::connections(cx, line, scope) {
                return;
            }
            let found = condition(cx, scope, line, 3);
            for all in &found.any {
                match all.as_slice() {
                    [Term::Is(_, Some(Facet::Clients(networks, is)))] => {
                        let key = if *is { "deny" } else { "allow" };
                        if ip.get(key).is_some() {
                            ip.set("deny", vec!["0.0.0.0/0", "::/0"]);
                            return cx.ledger.refused(
                                line.piece,
                                "a second list of addresses; the listener is closed to all (`ip`)",
                                "listeners.NAME.ip",
                            );
                        }
                        super::frontend::set_list(ip, key, networks);
                        cx.ledger.same(line.piece);
                    }
                    // What is no TLS, or has no name, has nowhere to go.
                    [] => cx
                        .ledger
                        .by_itself(line.piece, "Weir closes connections for which there is no upstream"),
                    _ => {
                        // It refuses connections: nobody may pass until a person has decided.
                        ip.set("deny", vec!["0.0.0.0/0", "::/0"]);
                        let why = "a condition that bytes have not; the listener is closed to all (`ip`)";
                        cx.ledger.refused(line.piece, why, "listeners.NAME.ip: { allow, deny }");
                    }
                }
            }
        }
        (_, track) if track.starts_with("track-sc") => {
            cx.ledger.left_out(line.piece, "Weir counts connections by limits.per_client");
        }
        _ => cx.ledger.refused(
            line.piece,
            "Weir has no such rule for bytes",
            "listeners.NAME.ip, limits.per_client",
        ),
    }
}

/// The upstream of a backend in mode tcp, made once.
fn upstream(
    cx: &mut Cx<'_, '_, '_>,
    made: &mut HashMap<String, Option<String>>,
    name: &str,
) -> Option<String> {
    if let Some(known) = made.get(name) {
        return known.clone();
    }
    let model = cx.model;
    let found = model.backend(name).and_then(|proxy| {
        cx.ledger.same(proxy.section.head.piece);
        let mut upstream = servers::upstream(cx, proxy)?;
        // Of the times of bytes the listener has the others.
        if proxy.mode() == "tcp" {
            for line in proxy.lines.iter().filter(|line| line.key() == "stick" || line.key() == "stick-table")
            {
                let nearest = "balancer: { hash: { by: address } }";
                cx.ledger.refused(line.piece, "clients that stay at a server by a table", nearest);
            }
        }
        let timeouts = upstream.more.map_mut("timeouts");
        let connect = timeouts.get("connect").cloned();
        *timeouts = Map::new();
        if let Some(connect) = connect {
            timeouts.set("connect", connect);
        }
        if timeouts.is_empty() {
            // An empty map would say nothing.
            timeouts.set("connect", "3s");
        }
        Some(cx.config.upstreams.add(name, upstream))
    });
    made.insert(name.to_owned(), found.clone());
    found
}
