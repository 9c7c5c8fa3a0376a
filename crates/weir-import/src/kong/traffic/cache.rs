//! The plugin `proxy-cache`.

use super::super::plugins::Use;
use super::same;
use crate::config::Filter;
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::Map;

pub(super) fn cache(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    if of.config.stores.get("answers").is_none() {
        of.config.stores.add("answers", Map::new().with("memory", "128MiB"));
    }
    let mut map = Map::new().with("store", "answers");
    let ttl = same(fields.number("cache_ttl", of.ledger), of.ledger).unwrap_or(300);
    map.set("ttl", units::duration(ttl.saturating_mul(1000)));
    let codes = fields.list("response_code", of.ledger);
    if let Some((codes, piece)) = codes {
        let codes: Vec<u64> = codes.iter().filter_map(Node::as_u64).collect();
        if codes.contains(&404) {
            map.set("negative", units::duration(ttl.saturating_mul(1000)));
        }
        match codes.iter().all(|code| [200, 203, 204, 300, 301, 308, 404, 410].contains(code)) {
            true => of.ledger.changed(
                piece,
                "`ttl` is for 200, 203, 204, 300, 301 and 308, `negative` for 404, 405, 410, 414 and 501",
            ),
            false => of.ledger.refused(
                piece,
                "Weir keeps other statuses only if the service says how long",
                "cache: { ttl, negative }, and Cache-Control of the service",
            ),
        }
    } else {
        map.set("negative", units::duration(ttl.saturating_mul(1000)));
    }
    of.instance.changed(
        of.ledger,
        "Weir's cache follows RFC 9111: Cache-Control of the service beats `ttl`, and \
        answers with cookies are not kept",
    );
    if let Some((methods, piece)) = fields.texts("request_method", of.ledger) {
        match methods.iter().all(|method| method == "GET" || method == "HEAD") {
            true => of.ledger.same(piece),
            false => of.ledger.refused(
                piece,
                "only GET and HEAD are answered from the cache",
                "nothing: other methods change things",
            ),
        }
    }
    if let Some((types, piece)) = fields.texts("content_type", of.ledger) {
        of.ledger.changed(piece, format!("Weir keeps answers of all types, not only {}", types.join(", ")));
    }
    if let Some((headers, piece)) = fields.texts("vary_headers", of.ledger) {
        let mut key = vec!["caller".to_owned()];
        key.extend(headers.iter().map(|name| format!("header:{}", name.to_ascii_lowercase())));
        if key.len() > 1 {
            map.set("key", key);
        }
        of.ledger.same(piece);
    }
    if let Some((names, piece)) = fields.texts("vary_query_params", of.ledger) {
        match names.is_empty() {
            true => of.ledger.same(piece),
            false => of.ledger.refused(
                piece,
                "Weir's key has the whole query",
                "rewrite: { query: { remove } } before the cache",
            ),
        }
    }
    for (key, flag) in [("cache_control", true), ("ignore_uri_case", false)] {
        if let Some((set, piece)) = fields.flag(key, of.ledger) {
            match (set, flag) {
                (true, true) => of.ledger.same(piece),
                (false, true) => of.ledger.changed(piece, "Cache-Control of the service beats `ttl`"),
                (false, false) => of.ledger.same(piece),
                (true, false) => of.ledger.refused(
                    piece,
                    "paths of different case are different objects",
                    "match: { case: insensitive } only matches",
                ),
            }
        }
    }
    for key in ["memory", "storage_ttl", "response_headers"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                of.ledger.left_out(piece, "`stores.answers.memory` says how much is kept")
            });
        }
    }
    vec![Filter::new("cache", map)]
}
