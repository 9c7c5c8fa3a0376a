//! `sub_filter` and `mirror`: the filters `replace` and `mirror`.

use super::context::{Cx, Scope};
use super::location::find;
use super::proxy::proxied;
use super::site::Site;
use super::text::template;
use crate::config::Filter;
use crate::yaml::Map;

/// `sub_filter`.
pub(super) fn replace(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) -> Option<Filter> {
    let nearest = "the filter replace: { text }";
    let lines = scope.block.nearest("sub_filter");
    let mut text = Map::new();
    let is_once = scope.block.one("sub_filter_once").is_none_or(|once| once.first() != "off");
    for line in &lines {
        let [from, to] = &*line.args else {
            cx.ledger.refused(line.piece, "it takes a text and what replaces it", nearest);
            continue;
        };
        let both = [from, to].map(|text| template(cx, scope, text).ok().and_then(|text| text.as_literal()));
        match both {
            [Some(from), Some(to)] if !from.is_empty() && from != to => {
                let why = match is_once {
                    true => {
                        "Weir replaces every occurrence, and case matters; nginx the first one, in any case"
                    }
                    false => "case matters in Weir; nginx replaces the text in any case",
                };
                cx.ledger.changed(line.piece, why);
                text.set(from, to);
            }
            _ => cx.ledger.refused(line.piece, "it has a variable, or replaces a text by itself", nearest),
        }
    }
    if lines.is_empty() {
        return None;
    }
    let mut types = vec!["text/html".to_owned()];
    if let Some(list) = scope.block.one("sub_filter_types") {
        cx.ledger.same(list.piece);
        types.extend(list.args.iter().filter(|kind| *kind != "text/html" && kind.contains('/')).cloned());
        if list.args.iter().any(|kind| kind == "*") {
            types = vec!["*/*".to_owned()];
        }
    }
    if let Some(once) = scope.block.one("sub_filter_once") {
        cx.ledger.by_itself(once.piece, "Weir replaces every occurrence");
    }
    if let Some(keeps) = scope.block.one("sub_filter_last_modified") {
        cx.ledger.changed(keeps.piece, "Weir keeps Last-Modified, and makes a strong ETag weak");
    }
    if text.is_empty() {
        return None;
    }
    Some(Filter::new("replace", Map::new().with("types", types).with("text", text)))
}

/// `mirror`: the copies go where the location of the path leads.
pub(super) fn mirror<'a>(cx: &mut Cx<'a, '_>, site: &Site<'_, 'a>, scope: &Scope<'a>) -> Vec<Filter> {
    let mut filters = Vec::new();
    let nearest = "the filter mirror: { upstream }";
    let has_body = scope.block.one("mirror_request_body").is_none_or(|body| body.first() != "off");
    for line in scope.block.nearest("mirror").into_iter().filter(|line| line.first() != "off") {
        let target = find(&site.locations, line.first());
        let pass = target.and_then(|target| target.block.own("proxy_pass").last().copied());
        let (Some(target), Some(pass)) = (target, pass) else {
            cx.ledger.refused(line.piece, "its path leads to no location with proxy_pass", nearest);
            continue;
        };
        let inner = site.scope(target);
        match proxied(cx, &inner, pass) {
            // A path of its own: the copy would have the path of `mirror`.
            Ok(sent) if sent.filters.iter().any(|f| f.name == "rewrite") || !pass.first().contains('$') => {
                let why =
                    "the copy has the path of the mirror's location; Weir's copies have the request's own";
                cx.ledger.refused(line.piece, why, nearest);
            }
            Ok(sent) => {
                let why = "Weir marks copies with x-weir-mirror, sends 100 at a time at most, and copies bodies up to 1 \
                           MiB";
                cx.ledger.changed(line.piece, why);
                let mut map = Map::new().with("upstream", sent.upstream);
                if !has_body {
                    map.set("body", "0B");
                }
                filters.push(Filter::new("mirror", map));
            }
            Err(why) => cx.ledger.refused(line.piece, why, nearest),
        }
    }
    if let Some(body) = scope.block.one("mirror_request_body").filter(|_| !filters.is_empty()) {
        match has_body {
            true => cx.ledger.same(body.piece),
            false => cx.ledger.changed(body.piece, "requests with a body are not copied"),
        }
    }
    filters
}
