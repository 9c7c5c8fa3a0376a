//! Stick-tables and their counters: rates of requests become `rate_limit`, concurrent connections a limit per client.

use super::acl::{Rate, condition};
use super::context::Cx;
use super::model::Proxy;
use super::read::Line;
use super::sample::{Kind, Scope, sample};
use crate::config::Filter;
use crate::shared::units::{duration, read_duration};
use crate::yaml::Map;
use std::collections::HashMap;

/// What `track-sc` rules count by, by the number of the counter.
#[derive(Default)]
pub(super) struct Tracks {
    by_counter: HashMap<u8, Track>,
}

/// A `track-sc` rule.
#[derive(Clone, Debug)]
struct Track {
    /// The `by` of a limit, or why there is none.
    by: Result<String, String>,
    table: Option<String>,
}

impl Tracks {
    /// Learns a rule `track-scN KEY [table T] [if …]`, whose action stands at `at`.
    pub(super) fn add(&mut self, cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, line: &Line, at: usize) {
        let counter = line.word(at).trim_start_matches("track-sc").parse::<u8>().ok();
        let Some(counter) = counter else {
            return cx.ledger.refused(line.piece, "no counter is named", "the filter rate_limit");
        };
        let by = sample(cx, scope, line.word(at + 1)).map(|key| match (key.is.as_str(), key.kind) {
            ("client.ip", _) => "address".to_owned(),
            (_, Kind::Text) if key.field.is_some() && !key.is.as_str().contains('(') => {
                format!("header:{}", key.field.as_deref().unwrap_or_default())
            }
            _ => format!("= {}", key.as_text().as_str()),
        });
        let table = line.after(at + 2, "table").map(str::to_owned);
        let is_conditional = condition(cx, scope, line, at + 2).any.iter().any(|all| !all.is_empty());
        match &by {
            Err(why) => cx.ledger.refused(line.piece, why.clone(), "rate_limit: { by }"),
            Ok(_) if is_conditional => {
                cx.ledger
                    .changed(line.piece, "Weir counts where the limit stands, not by the condition here");
            }
            Ok(_) => cx.ledger.by_itself(line.piece, "the filter rate_limit counts itself"),
        }
        self.by_counter.insert(counter, Track { by, table });
    }
}

/// The filter for a counter over its limit, with what differs. The error says whether the rule does nothing in HAProxy.
pub(super) fn filter(
    cx: &mut Cx<'_, '_, '_>,
    tracks: &Tracks,
    proxy: &Proxy<'_>,
    rate: &Rate,
) -> Result<(Filter, Vec<String>), (String, bool)> {
    let named = |table: Option<&String>| table.cloned().unwrap_or_else(|| proxy.name.to_owned());
    let (by, table) = match rate.counter {
        Some(counter) => {
            let Some(track) = tracks.by_counter.get(&counter) else {
                let why = format!(
                    "nothing before it tracks counter {counter}, so it is always 0: HAProxy's rule does nothing"
                );
                return Err((why, true));
            };
            let by = track.by.clone().map_err(|why| (why, false))?;
            (by, named(rate.table.as_ref().or(track.table.as_ref())))
        }
        None => {
            let table = named(rate.table.as_ref());
            let is_tracked = tracks
                .by_counter
                .values()
                .any(|track| named(track.table.as_ref()) == table && track.by.as_deref() == Ok("address"));
            if !is_tracked {
                let why = format!(
                    "nothing tracks addresses in the table `{table}` before it, so it is always 0: HAProxy's rule does nothing"
                );
                return Err((why, true));
            }
            ("address".to_owned(), table)
        }
    };
    let Some(line) = table_of(cx, &table) else {
        return Err((format!("no stick-table `{table}` is there"), false));
    };
    let stored = line.after(1, "store").unwrap_or_default();
    let period =
        stored.split(',').find_map(|what| what.trim().strip_prefix("http_req_rate(")?.strip_suffix(')'));
    let Some(period) = period.and_then(|text| read_duration(text, 1)) else {
        let why = format!(
            "the stick-table `{table}` stores no http_req_rate, so it is always 0: HAProxy's rule does nothing"
        );
        return Err((why, true));
    };
    if rate.passes == 0 || period == 0 {
        return Err(("a limit of no requests".to_owned(), false));
    }
    let mut changes = Vec::new();
    let size = line.after(1, "size").and_then(crate::shared::units::read_size);
    let mut map = Map::new()
        .with("requests", i64::try_from(rate.passes).unwrap_or(i64::MAX))
        .with("per", duration(period));
    map.set("by", by);
    if let Some(keys) = size.filter(|keys| *keys > 65_536) {
        map.set("keys", i64::try_from(keys.min(16_777_216)).unwrap_or(i64::MAX));
    }
    map.set("headers", false);
    if line.after(1, "type") == Some("ipv6") || line.after(1, "type") == Some("ip") {
        changes.push("Weir counts addresses of IPv6 by their first 64 bits".to_owned());
    }
    let why = "a filter rate_limit has its own counters";
    if line.has(1, "peers") {
        cx.ledger.refused(
            line.piece,
            "counters shared between peers",
            "rate_limit: { store } with a Redis, or a fleet",
        );
    } else {
        cx.ledger.by_itself(line.piece, why);
    }
    Ok((Filter::new("rate_limit", map), changes))
}

/// The line of a table: that of a proxy, or `table NAME` of a section `peers`.
fn table_of<'a>(cx: &Cx<'a, '_, '_>, name: &str) -> Option<&'a Line> {
    let proxies = cx.model.proxies.iter().filter(|proxy| proxy.name == name);
    proxies.filter_map(|proxy| proxy.all("stick-table").last()).next_back()
}

/// A rule that refuses a client with too many connections at one time. False if the line is another one.
pub(super) fn connections(cx: &mut Cx<'_, '_, '_>, line: &Line, scope: &Scope<'_>) -> bool {
    let name = |word: &str| {
        let name = super::sample::call(word).0.to_owned();
        matches!(&*name, "src_conn_cur" | "sc_conn_cur" | "sc0_conn_cur" | "sc1_conn_cur" | "sc2_conn_cur")
    };
    // Behind `reject`, or behind `deny` with a status.
    let Some(at) = (2..8).find(|at| line.word(*at) == "if") else { return false };
    let Some(inner) = only_test(line, at, scope) else { return false };
    let [fetch, operator, number] = &*inner else { return false };
    if !name(fetch) {
        return false;
    }
    let limit = match (&**operator, number.parse::<i64>()) {
        ("gt", Ok(number)) => number,
        ("ge", Ok(number)) => number - 1,
        _ => return false,
    };
    if limit < 1 {
        return false;
    }
    let limits = cx.config.more.map_mut("limits").map_mut("per_client");
    let known = match limits.get("connections") {
        Some(crate::yaml::Value::Number(known)) => *known,
        _ => i64::MAX,
    };
    limits.set("connections", limit.min(known));
    let why = "Weir counts a client's connections over all listeners, and answers 429";
    cx.ledger.changed(line.piece, why);
    true
}

/// The words of the test that is a rule's whole condition, from `at` on: `if { … }`, or `if` with the name of a single
/// `acl`.
pub(super) fn only_test(line: &Line, at: usize, scope: &Scope<'_>) -> Option<Vec<String>> {
    let words: Vec<&str> = line.from(at).iter().map(String::as_str).collect();
    match &*words {
        ["if", "{", inner @ .., "}"] => Some(inner.iter().map(|word| (*word).to_owned()).collect()),
        ["if", acl] => match scope.acls.get(*acl).map(Vec::as_slice) {
            Some([one]) => Some(one.from(2).to_vec()),
            _ => None,
        },
        _ => None,
    }
}
