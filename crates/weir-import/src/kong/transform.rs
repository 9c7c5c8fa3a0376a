//! request-transformer and response-transformer: remove, rename, replace, add, append, in this order.
//!
//! `add` does nothing where the field is there, `replace` nothing where it is not. Weir says so by expressions.

use super::lua;
use super::plugins::Use;
use crate::config::Filter;
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters::{self, Headers};
use crate::shared::template::{Part, Template};
use crate::shared::tree::Fields;
use crate::yaml::{Map, Value};

/// What a plugin does to one of fields, query or body.
#[derive(Default)]
struct Changes {
    remove: Vec<String>,
    rename: Vec<(String, String)>,
    replace: Vec<(String, Template)>,
    add: Vec<(String, Template)>,
    append: Vec<(String, Template)>,
}

/// The filters of a plugin; none if it is not one of these.
pub(super) fn translate(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Option<Vec<Filter>> {
    match of.instance.name.as_str() {
        "request-transformer" => Some(request(of, fields)),
        "response-transformer" => Some(response(of, fields)),
        _ => None,
    }
}

/// Reads the five maps. What is neither of fields nor, for requests, of the query is refused.
fn read(
    fields: &mut Fields<'_>,
    is_request: bool,
    ledger: &mut Ledger,
) -> (Changes, Changes, Option<(Template, Piece)>) {
    let (mut headers, mut query, mut uri) = (Changes::default(), Changes::default(), None);
    for kind in ["remove", "rename", "replace", "add", "append"] {
        let Some((node, piece)) = fields.map(kind, ledger) else { continue };
        ledger.same(piece);
        let mut inner = Fields::of(node);
        for key in ["headers", "querystring"] {
            let Some((texts, piece)) = inner.texts(key, ledger) else { continue };
            let changes = match key {
                "headers" => &mut headers,
                _ if is_request => &mut query,
                _ => continue,
            };
            ledger.same(piece);
            for text in texts {
                let (name, value) =
                    text.split_once(':').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
                let (name, value) = (name.trim().to_owned(), value.map(str::trim));
                match (kind, value) {
                    ("remove", _) => changes.remove.push(name),
                    ("rename", Some(new)) => changes.rename.push((name, new.to_owned())),
                    (_, Some(value)) => match lua::template(value) {
                        Ok(value) if kind == "replace" => changes.replace.push((name, value)),
                        Ok(value) if kind == "add" => changes.add.push((name, value)),
                        Ok(value) => changes.append.push((name, value)),
                        Err(why) => {
                            let nearest = "headers: { request: { set: { NAME: \"{= EXPRESSION }\" } } }";
                            ledger.refused(piece, why, nearest);
                            // Kong overwrites what the client sent, so the client's value must not pass either.
                            if kind == "replace" && is_request && !name.eq_ignore_ascii_case("host") {
                                changes.remove.push(name);
                            }
                        }
                    },
                    (_, None) => ledger.refused(piece, format!("`{name}` has no value"), "NAME:VALUE"),
                }
            }
        }
        if let Some((path, piece)) = inner.text("uri", ledger) {
            match lua::template(&path) {
                Ok(path) => {
                    ledger.same(piece);
                    uri = Some((path, piece));
                }
                Err(why) => ledger.refused(piece, why, "rewrite: { path }"),
            }
        }
        for entry in inner.rest() {
            let is_empty = entry.node.as_list().is_some_and(<[_]>::is_empty);
            entry.each_piece(&mut |piece| match is_empty {
                true => ledger.by_itself(piece, "nothing to change"),
                false => ledger.refused(piece, "bodies", "the filter transform"),
            });
        }
    }
    (headers, query, uri)
}

fn request(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let (headers, query, uri) = read(fields, true, of.ledger);
    if let Some((method, piece)) = fields.text("http_method", of.ledger) {
        of.ledger.refused(
            piece,
            format!("{method} instead of the client's method"),
            "nothing: let the service take the client's",
        );
    }
    let mut out = Vec::new();
    let field = |name: &str| Expression::of("request.headers", &name.to_ascii_lowercase());
    let has = |value: &Expression| Expression::raw(format!("has({})", value.as_str()));
    let remove = |names: Vec<String>| Headers { request_remove: names, ..Headers::default() }.filter();
    out.extend(remove(headers.remove));
    for (old, new) in headers.rename {
        let set = Headers {
            request_set: vec![(new, format!("{{= {} }}", field(&old).as_str()).into())],
            ..Headers::default()
        };
        let both = set.filter().into_iter().chain(remove(vec![old.clone()])).collect();
        out.extend(filters::when(&has(&field(&old)), both, Vec::new()));
    }
    let mut always = Headers::default();
    for (is_add, list) in [(false, headers.replace), (true, headers.add)] {
        for (name, value) in list {
            let known = has(&field(&name));
            if name.eq_ignore_ascii_case("host") {
                out.push(Filter::new("rewrite", Map::new().with("host", value.to_setting())));
                of.instance
                    .changed(of.ledger, "`host` is sent to services whose route preserves the client's");
                continue;
            }
            let set = Headers { request_set: vec![(name, value.to_setting().into())], ..Headers::default() };
            let (yes, no) = match is_add {
                true => (Vec::new(), set.filter().into_iter().collect()),
                false => (set.filter().into_iter().collect(), Vec::new()),
            };
            let is = if is_add { known.not() } else { known };
            out.extend(filters::when(&is, if is_add { no } else { yes }, Vec::new()));
        }
    }
    for (name, value) in headers.append {
        always.request_add.push((name, value.to_setting().into()));
    }
    out.extend(always.filter());
    out.extend(parameters(query));
    if let Some((path, piece)) = uri {
        let has_slash = path
            .parts()
            .first()
            .is_some_and(|part| matches!(part, Part::Text(text) if text.starts_with('/')));
        match has_slash {
            true => out.push(Filter::new("rewrite", Map::new().with("path", path.to_setting()))),
            false => of.ledger.refused(
                piece,
                "a path that does not begin with a slash",
                "rewrite: { path: \"/{NAME}\" }",
            ),
        }
    }
    out
}

/// Changes of the query.
fn parameters(query: Changes) -> Vec<Filter> {
    let mut out = Vec::new();
    let value_of = |name: &str| Expression::of("request.args", name);
    let has = |name: &str| Expression::raw(format!("has({})", value_of(name).as_str()));
    let rewrite = |key: &str, value: Value| {
        Filter::new("rewrite", Map::new().with("query", Map::new().with(key, value)))
    };
    if !query.remove.is_empty() {
        out.push(rewrite("remove", query.remove.into()));
    }
    for (old, new) in query.rename {
        let set = Map::new().with(new, format!("{{= {} }}", value_of(&old).as_str()));
        let both = Map::new().with("query", Map::new().with("remove", vec![old.clone()]).with("set", set));
        out.extend(filters::when(&has(&old), vec![Filter::new("rewrite", both)], Vec::new()));
    }
    for (name, value) in query.replace {
        let set = rewrite("set", Map::new().with(name.clone(), value.to_setting()).into());
        out.extend(filters::when(&has(&name), vec![set], Vec::new()));
    }
    for (name, value) in query.add {
        let set = rewrite("set", Map::new().with(name.clone(), value.to_setting()).into());
        out.extend(filters::when(&has(&name).not(), vec![set], Vec::new()));
    }
    for (name, value) in query.append {
        out.push(rewrite("add", Map::new().with(name, value.to_setting()).into()));
    }
    out
}

fn response(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let (headers, _, _) = read(fields, false, of.ledger);
    let value_of = |name: &str| Expression::of("response.headers", &name.to_ascii_lowercase());
    let plain = |value: &Template| value.as_literal().map(|text| Expression::text(&text));
    let mut made = Headers { response_remove: headers.remove, ..Headers::default() };
    let mut out = Vec::new();
    for (old, new) in headers.rename {
        made.response_set.push((new, format!("{{= {} }}", value_of(&old).as_str()).into()));
        out.extend(Headers { response_remove: vec![old], ..Headers::default() }.filter());
    }
    for (name, value) in headers.replace {
        let Some(text) = plain(&value) else { continue };
        let is = Expression::raw(format!("has({})", value_of(&name).as_str()));
        let new = is.choose(text, Expression::text(""));
        made.response_set.push((name, format!("{{= {} }}", new.as_str()).into()));
    }
    for (name, value) in headers.add {
        let Some(text) = plain(&value) else { continue };
        made.response_set
            .push((name.clone(), format!("{{= {} }}", value_of(&name).or_else(text).as_str()).into()));
    }
    for (name, value) in headers.append {
        made.response_add.push((name, value.to_setting().into()));
    }
    // Filters run in reverse on the way back, so what removes the old names stands first.
    out.extend(made.filter());
    of.instance.changed(of.ledger, "also on Weir's own answers, such as errors");
    out
}
