//! `proxy_cache`: the filter `cache`, with a store on disk.

use super::context::{Cx, Scope};
use crate::config::Filter;
use crate::shared::units::{duration, read_duration, read_size, size};
use crate::yaml::{Map, Value};

/// The statuses of `proxy_cache_valid TIME`.
const USUAL: [&str; 3] = ["200", "301", "302"];

/// Keys that distinguish objects as Weir does.
const KEYS: [&str; 5] = [
    "$scheme$proxy_host$request_uri",
    "$scheme$host$request_uri",
    "$host$request_uri",
    "$scheme$request_method$host$request_uri",
    "$request_uri",
];

/// The filter of a location whose upstream's answers are kept.
pub(super) fn cache(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) -> Option<Filter> {
    let cache = scope.block.one("proxy_cache").filter(|cache| cache.first() != "off")?;
    let nearest = "the filter cache, with a store";
    let Some(path) = cx.caches.get(cache.first()).copied() else {
        cx.ledger.refused(cache.piece, "its zone is not defined", nearest);
        return None;
    };
    let name = cache.first().to_owned();
    if cx.config.stores.get(&name).is_none() {
        let mut disk = Map::new().with("path", path.first());
        let limit = path.args.iter().find_map(|word| word.strip_prefix("max_size=")).and_then(read_size);
        disk.set("size", size(limit.unwrap_or(1 << 30).max(16 << 20)));
        let store = Map::new().with("memory", "64MiB").with("disk", disk);
        cx.config.stores.add(&name, store);
        let why = "the store is Weir's own, with 64 MiB of memory before the disk; `inactive` and `levels` have no \
                   equal; give it an empty folder";
        cx.ledger.changed(path.piece, why);
    }
    let mut map = Map::new().with("store", name);
    lifetimes(cx, scope, &mut map);
    ignored(cx, scope, &mut map);
    if let Some(stale) = scope.block.one("proxy_cache_use_stale").filter(|stale| stale.first() != "off") {
        cx.ledger.changed(stale.piece, "for an hour, on all failures of the upstream");
        map.set("stale_if_error", "1h");
    }
    if let Some(key) = scope.block.one("proxy_cache_key") {
        let usual = "Weir's objects are distinguished by route, scheme, host, path and query";
        if KEYS.contains(&&*key.args.join(" ")) {
            cx.ledger.by_itself(key.piece, usual);
        } else {
            let why = "the key has more or less than route, scheme, host, path and query";
            cx.ledger.refused(key.piece, why, "cache.key");
        }
    }
    let why = "Weir keeps no answer to a request with Authorization, and none to one with a cookie unless the answer \
               has a lifetime of its own";
    cx.ledger.changed(cache.piece, why);
    for name in ["proxy_cache_bypass", "proxy_no_cache", "proxy_cache_methods"] {
        for line in scope.block.nearest(name) {
            let why = "Weir's cache has no such exception";
            cx.ledger.refused(line.piece, why, "the filter when around cache");
        }
    }
    Some(Filter::new("cache", map))
}

/// `proxy_cache_valid`: lifetimes of answers that say none. Of two for one status the first counts.
fn lifetimes(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, map: &mut Map) {
    let mut by_status: Vec<(String, u64)> = Vec::new();
    for valid in scope.block.nearest("proxy_cache_valid") {
        let Some((time, codes)) = valid.args.split_last() else { continue };
        let Some(ms) = read_duration(time, 1000) else {
            cx.ledger.refused(valid.piece, "the time cannot be read", "cache.ttl");
            continue;
        };
        let codes: Vec<&str> =
            if codes.is_empty() { USUAL.to_vec() } else { codes.iter().map(|c| &**c).collect() };
        let (mut is_taken, has_any) = (false, codes.contains(&"any"));
        for code in codes {
            let status = code.parse::<u16>().ok();
            let is_kept = status.is_some_and(|s| (200..600).contains(&s) && !matches!(s, 206 | 304 | 416));
            if code != "any" && !is_kept {
                cx.ledger.changed(valid.piece, format!("Weir never keeps an answer with the status {code}"));
            } else if !by_status.iter().any(|(known, _)| known == code) {
                by_status.push((code.to_owned(), ms));
                is_taken = true;
            }
        }
        match is_taken {
            true if has_any => cx.ledger.changed(
                valid.piece,
                "`any` keeps no refusals of one client (400, 401, 403, 429 and the like), which nginx serves to others",
            ),
            true => cx.ledger.same(valid.piece),
            false => cx.ledger.left_out(valid.piece, "a directive before it says how long"),
        }
    }
    if !by_status.is_empty() {
        let mut ttl = Map::new();
        by_status.into_iter().for_each(|(code, ms)| ttl.set(code, duration(ms)));
        map.set("ttl", ttl);
    }
}

/// `proxy_ignore_headers`.
fn ignored(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, map: &mut Map) {
    let mut ignored: Vec<Value> = Vec::new();
    for line in scope.block.nearest("proxy_ignore_headers") {
        cx.ledger.same(line.piece);
        for name in &line.args {
            match &*name.to_ascii_lowercase() {
                known @ ("cache-control" | "expires" | "vary") => ignored.push(known.into()),
                "set-cookie" => {
                    ignored.push("set-cookie".into());
                    let why = "an answer that sets a cookie is kept without it; nginx sends the cookie to everybody";
                    cx.ledger.changed(line.piece, why);
                }
                _ => cx.ledger.changed(line.piece, format!("Weir does not read {name} of an upstream")),
            }
        }
    }
    ignored.dedup();
    if !ignored.is_empty() {
        map.set("ignore", Value::List(ignored));
    }
}
