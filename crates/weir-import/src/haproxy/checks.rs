//! Health checks: `option httpchk`, `http-check`, and the times of the servers.

use super::context::Cx;
use super::model::Proxy;
use crate::config::Upstream;
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};
use std::collections::HashMap;

/// The probe of an upstream, if its servers are checked.
pub(super) fn probe(
    cx: &mut Cx<'_, '_, '_>,
    proxy: &Proxy<'_>,
    own: Option<&HashMap<&str, String>>,
    upstream: &mut Upstream,
) {
    let check = proxy.one(&["option", "httpchk"]);
    let other = [
        "tcp-check",
        "mysql-check",
        "pgsql-check",
        "redis-check",
        "smtpchk",
        "ldap-check",
        "ssl-hello-chk",
        "external-check",
    ]
    .iter()
    .find_map(|name| proxy.one(&["option", name]));
    let lines: Vec<_> = proxy.all("http-check").collect();
    let Some(own) = own else {
        for line in check.into_iter().chain(other).chain(lines) {
            cx.ledger.left_out(line.piece, "no server of a backend that inherits it is checked");
        }
        return;
    };
    let mut map = Map::new();
    if let Some(line) = check {
        let words = line.from(2);
        let (method, path) = match words {
            [] => ("OPTIONS", "/"),
            [path] => ("OPTIONS", &**path),
            [method, path, ..] => (&**method, &**path),
        };
        map.set("path", path);
        if method == "GET" {
            cx.ledger.same(line.piece);
        } else if !lines.iter().any(|line| line.word(1) == "send") {
            cx.ledger.changed(line.piece, format!("Weir asks with GET, HAProxy with {method}"));
        } else {
            cx.ledger.same(line.piece);
        }
        if let Some(host) = words.get(2).and_then(|rest| rest.split("Host:").nth(1)) {
            map.set("host", host.trim());
        }
        let mut expect: Vec<Value> = vec!["200-399".into()];
        for line in &lines {
            match line.word(1) {
                "send" => {
                    if let Some(uri) = line.after(2, "uri") {
                        map.set("path", uri);
                    }
                    let host = line.from(2).windows(3).find_map(|w| {
                        (w[0] == "hdr" && w[1].eq_ignore_ascii_case("host")).then(|| w[2].clone())
                    });
                    map.set_some("host", host);
                    let more =
                        line.from(2).windows(2).any(|w| w[0] == "hdr" && !w[1].eq_ignore_ascii_case("host"));
                    if more || line.after(2, "body").is_some() {
                        let why = "Weir's probe sends no fields and no body of its own";
                        cx.ledger.refused(line.piece, why, "a path that answers without them");
                    }
                    match line.after(2, "meth") {
                        Some("GET") | None => cx.ledger.same(line.piece),
                        Some(method) => {
                            let why = format!("Weir asks with GET, HAProxy with {method}");
                            cx.ledger.changed(line.piece, why);
                        }
                    }
                }
                "expect" => expected(cx, line, &mut expect, &mut map),
                "connect" if line.words.len() == 2 => cx.ledger.same(line.piece),
                "disable-on-404" => {
                    cx.ledger.changed(
                        line.piece,
                        "an endpoint that answers 404 is out of rotation; `weir endpoint drain` drains one",
                    );
                }
                "send-state" => cx.ledger.left_out(line.piece, "Weir's probes tell no state"),
                _ => cx.ledger.refused(
                    line.piece,
                    format!("Weir has no `http-check {}`", line.word(1)),
                    "health: { probe }",
                ),
            }
        }
        map.set("expect", Value::List(expect));
    } else {
        map.set("kind", "tcp");
        for line in lines {
            cx.ledger.left_out(line.piece, "it needs `option httpchk`");
        }
        if let Some(line) = other {
            match line.word(1) {
                "tcp-check" => cx.ledger.same(line.piece),
                "external-check" => {
                    cx.ledger.refused(line.piece, "a program that checks", "health: { probe: { path } }");
                }
                kind => cx.ledger.changed(
                    line.piece,
                    format!("Weir only connects, HAProxy says a word of its protocol ({kind})"),
                ),
            }
        }
    }
    let time = |name: &str| own.get(name).and_then(|text| read_duration(text, 1)).filter(|ms| *ms > 0);
    let interval = time("inter").unwrap_or(2000);
    map.set("interval", duration(interval));
    // HAProxy waits for an answer as long as for the next check, unless told otherwise.
    let line = proxy.one(&["timeout", "check"]);
    let limit = line.and_then(|line| read_duration(line.word(2), 1));
    if let Some(line) = line {
        cx.ledger.same(line.piece);
    }
    map.set("timeout", duration(limit.unwrap_or(interval).max(1)));
    for (theirs, ours, usual) in [("rise", "healthy", 2), ("fall", "unhealthy", 3)] {
        let count = own.get(theirs).and_then(|text| text.parse::<i64>().ok()).unwrap_or(usual);
        if count != usual {
            map.set(ours, count.clamp(1, 100));
        }
    }
    if own.contains_key("port") {
        cx.ledger
            .note("a check on another port than the server's is left out: Weir probes the endpoint itself");
    }
    upstream.more.set("health", Map::new().with("probe", map));
}

/// `http-check expect status 200`.
fn expected(cx: &mut Cx<'_, '_, '_>, line: &super::read::Line, expect: &mut Vec<Value>, map: &mut Map) {
    let mut words: Vec<&str> = line.from(2).iter().map(String::as_str).collect();
    let nearest = "health: { probe: { expect, body } }";
    if words.first() == Some(&"!") {
        return cx.ledger.refused(line.piece, "an answer that must not come", nearest);
    }
    words.retain(|word| !matches!(*word, "comment"));
    match *words.as_slice() {
        ["status", statuses, ..] => {
            *expect = statuses
                .split(',')
                .map(|status| status.parse::<i64>().map_or_else(|_| status.into(), Value::Number))
                .collect();
            cx.ledger.same(line.piece);
        }
        ["rstatus", pattern, ..] => match regex::Regex::new(pattern) {
            Ok(pattern) => {
                *expect = ranges(&|status| pattern.is_match(&status.to_string()));
                cx.ledger.same(line.piece);
            }
            Err(_) => cx.ledger.refused(line.piece, "its regular expression cannot be read", nearest),
        },
        ["string", text, ..] => {
            map.set("body", text);
            cx.ledger.same(line.piece);
        }
        _ => cx.ledger.refused(line.piece, "an answer that is found by a regular expression", nearest),
    }
}

/// Statuses that fit, as ranges.
fn ranges(fits: &dyn Fn(i64) -> bool) -> Vec<Value> {
    let mut found: Vec<(i64, i64)> = Vec::new();
    for status in (100..600).filter(|status| fits(*status)) {
        match found.last_mut() {
            Some((_, end)) if *end + 1 == status => *end = status,
            _ => found.push((status, status)),
        }
    }
    found
        .into_iter()
        .map(|(from, to)| if from == to { Value::Number(from) } else { format!("{from}-{to}").into() })
        .collect()
}
