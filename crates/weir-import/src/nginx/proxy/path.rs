//! The path that `proxy_pass` sends.

use super::super::context::{Cx, Scope};
use super::super::read::Directive;
use super::Address;
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::template::{Part, Template};
use crate::yaml::Map;

/// The filter that changes the path; none if it is sent as it came.
pub(super) fn path_sent(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    pass: &Directive,
    address: &Address,
) -> Result<Option<Filter>, String> {
    let Some(uri) = &address.uri else { return Ok(None) };
    if let Some(to) = uri.as_literal().filter(|_| !address.has_variables || scope.path.is_some()) {
        if address.has_variables && to != "/" {
            // With a variable, the value is the whole target, whatever the location's prefix is.
            cx.ledger.changed(
                pass.piece,
                "with a variable, nginx sends this path for every request of the location",
            );
            return Ok(Some(rewrite("path", &literal_path(&to))));
        }
        if address.has_variables {
            return Ok(Some(rewrite("path", "/")));
        }
        let Some(from) = scope.path.as_deref() else {
            return Err("nginx itself refuses a path in `proxy_pass` here".to_owned());
        };
        return replace_prefix(cx, pass.piece, from, &to, scope.is_exact).map_err(str::to_owned);
    }
    let (path, keeps_query) = without_query(uri);
    let is_whole = matches!(path.parts(), [Part::Placeholder(name)] if name == "path");
    if is_whole {
        return Ok(None);
    }
    if path.parts().iter().any(|part| matches!(part, Part::Value(_))) {
        return Err("the path is made of variables that Weir cannot put into a path".to_owned());
    }
    let has_query = |part: &Part| matches!(part, Part::Text(text) if text.contains('?'));
    if path.parts().iter().any(has_query) {
        // nginx decodes the path before it matches, so `%26` in it would be an `&` of the query.
        return Err(
            "nginx puts the variable into the query unescaped and drops the client's query; Weir's rewrite \
                    escapes it and keeps the query"
                .to_owned(),
        );
    }
    if !keeps_query {
        cx.ledger.changed(pass.piece, "Weir keeps the query, which nginx drops here");
    }
    Ok(Some(rewrite("path", &path.to_setting())))
}

/// A path and whether the client's query follows it: `$is_args$args` and `?$args` at its end.
pub(in crate::nginx) fn without_query(uri: &Template) -> (Template, bool) {
    let mut parts = uri.parts().to_vec();
    let mut keeps = false;
    let is_query = |part: &Part| matches!(part, Part::Placeholder(name) if name == "query");
    if parts.last().is_some_and(is_query) {
        keeps = true;
        parts.pop();
        match parts.last_mut() {
            Some(Part::Text(text)) if text.ends_with('?') => {
                text.pop();
            }
            Some(Part::Value(value)) if value.as_str().contains("\"?\"") => _ = parts.pop(),
            _ => {}
        }
    } else if let Some(Part::Value(value)) = parts.last()
        && value.as_str().contains("request.path + \"?\"")
    {
        // `$request_uri` is both.
        keeps = true;
        parts.pop();
        parts.push(Part::Placeholder("path".to_owned()));
    }
    let mut template = Template::default();
    parts.into_iter().for_each(|part| template.push(part));
    (template, keeps)
}

fn literal_path(path: &str) -> String {
    Template::text(path).to_setting()
}

fn rewrite(key: &str, value: &str) -> Filter {
    Filter::new("rewrite", Map::new().with(key, value))
}

/// nginx puts `to` in the place of `from`, the location's prefix.
fn replace_prefix(
    cx: &mut Cx<'_, '_>,
    piece: Piece,
    from: &str,
    to: &str,
    is_exact: bool,
) -> Result<Option<Filter>, &'static str> {
    if to.contains('?') {
        return Err("the path in `proxy_pass` has a query");
    }
    if is_exact {
        return Ok((from != to).then(|| rewrite("path", &literal_path(to))));
    }
    if from == to {
        return Ok(None);
    }
    let (from_slash, to_slash) = (from.ends_with('/'), to.ends_with('/'));
    let strip = from.trim_end_matches('/');
    let add = to.trim_end_matches('/');
    let mut map = Map::new();
    if !strip.is_empty() {
        map.set("strip_prefix", strip);
    }
    if !add.is_empty() {
        map.set("add_prefix", add);
    }
    match (from_slash, to_slash) {
        (true, true) => {
            if !strip.is_empty() {
                cx.ledger.changed(piece, crate::shared::path::TELLS_PREFIX);
            }
        }
        (false, true) => {
            let why = format!(
                "nginx sends `{to}/x` for `{from}/x`, and `{to}x` for `{from}x`; Weir sends `{to}x` for the first, \
                 and leaves the second unchanged"
            );
            cx.ledger.changed(piece, why);
        }
        (false, false) => {
            let why = format!(
                "for `{from}` itself nginx sends `{to}`, Weir `{to}/`; and Weir replaces whole segments only, so \
                 `{from}x` is not changed to `{to}x`"
            );
            cx.ledger.changed(piece, why);
        }
        (true, false) => {
            return Err(
                "the path in `proxy_pass` has no slash at its end but the location has: `/a/x` becomes `/bx`",
            );
        }
    }
    Ok(Some(Filter::new("rewrite", map)))
}
