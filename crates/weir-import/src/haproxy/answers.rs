//! `http-response` and `http-after-response`: fields that the client sees.

use super::acl::condition;
use super::context::Cx;
use super::fields::{Change, Pending, is_name};
use super::read::Line;
use super::sample::Scope;
use super::text::template;
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::when;
use crate::yaml::Value;

/// Translates rules in their order. In Weir filters see answers in reverse, so what comes out is turned around.
pub(super) fn translate(
    cx: &mut Cx<'_, '_, '_>,
    scope: &Scope<'_>,
    lines: &[&Line],
    at: usize,
) -> Vec<Filter> {
    let scope = Scope { is_response: true, ..scope.clone() };
    let mut filters = Vec::new();
    let mut pending = Pending::default();
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        let Some((name, change, is)) = rule(cx, &scope, line, at) else { continue };
        // Conditions on the request are decided when the request passes; those on the answer go into the value.
        let is_of_answer = is.as_str().contains("response.");
        let change = if is_of_answer { conditional(&name, &change, &is) } else { Some(change) };
        let Some(change) = change else {
            let why = "a field that is added under a condition on the answer, and has a variable";
            cx.ledger.refused(
                line.piece,
                why,
                "headers: { response: { set: { NAME: \"{= … ? … : … }\" } } }",
            );
            continue;
        };
        if is_of_answer || is.as_constant() == Some(true) {
            if names.contains(&name) {
                filters.extend(pending.take());
                names.clear();
            }
            pending.apply_to_answer(&name, change);
            names.push(name);
        } else {
            filters.extend(pending.take());
            names.clear();
            let mut one = Pending::default();
            one.apply_to_answer(&name, change);
            filters.extend(when(&is, one.take().into_iter().collect(), Vec::new()));
        }
    }
    filters.extend(pending.take());
    filters.reverse();
    filters
}

/// A change under a condition on the answer: the value says it.
fn conditional(name: &str, change: &Change, is: &Expression) -> Option<Change> {
    let before = || Expression::of("response.headers", name);
    let whole = |value: Expression| Value::Text(format!("{{= {} }}", value.as_str()));
    let literal = |value: &Value| match value {
        Value::Text(text) if !text.contains('{') => Some(Expression::text(text)),
        _ => None,
    };
    Some(match change {
        Change::Set(value) => Change::Set(whole(is.clone().choose(literal(value)?, before()))),
        Change::Add(value) => Change::Add(whole(is.clone().choose(literal(value)?, Expression::text("")))),
        Change::Remove => Change::Set(whole(is.clone().choose(Expression::text(""), before()))),
    })
}

/// A rule as a change under a condition. None if it was judged.
fn rule(
    cx: &mut Cx<'_, '_, '_>,
    scope: &Scope<'_>,
    line: &Line,
    at: usize,
) -> Option<(String, Change, Expression)> {
    let action = line.word(at);
    let nearest = "headers: { response: { set, add, remove } }";
    let (name, value, end) = if line.key() == "rspadd" {
        let (name, value) = line.word(1).split_once(':').unwrap_or((line.word(1), ""));
        (name.to_ascii_lowercase(), value.trim().to_owned(), 2)
    } else {
        let end = if action == "del-header" { at + 2 } else { at + 3 };
        (line.word(at + 1).to_ascii_lowercase(), line.word(at + 2).to_owned(), end)
    };
    match action {
        "set-header" | "add-header" | "del-header" => {}
        _ if line.key() == "rspadd" => {}
        "capture" | "set-log-level" | "set-nice" | "set-tos" | "set-mark" | "strict-mode" | "cache-store" => {
            let why = match action {
                "cache-store" => "the filter cache stores by itself where a route has it",
                _ => "it is for HAProxy's log and its connections",
            };
            cx.ledger.left_out(line.piece, why);
            return None;
        }
        "replace-header" if name == "location" => {
            let why = "Weir rewrites a Location that names the endpoint itself or lacks a removed prefix; other targets \
                       need a person";
            cx.ledger.refused(line.piece, why, "links: rewrite of the upstream");
            return None;
        }
        _ => {
            let nearest = match action {
                "replace-header" | "replace-value" => "headers: { response: { set } } with an expression",
                "set-status" => "the filter errors",
                "deny" => "the filter errors with `upstream`",
                "set-var" => "the expression in the place of the variable",
                _ if action.starts_with("lua.") => "the filter ext_proc",
                _ => "docs/reference/filters.md",
            };
            cx.ledger.refused(line.piece, format!("Weir has no `{} {action}`", line.key()), nearest);
            return None;
        }
    }
    if !is_name(&name) {
        cx.ledger.refused(line.piece, format!("`{name}` is no name of a field"), nearest);
        return None;
    }
    if action == "del-header" && line.has(at + 2, "-m") {
        cx.ledger.refused(line.piece, "names of fields by a pattern", nearest);
        return None;
    }
    let text = match template(cx, scope, &value) {
        Ok(text) => text,
        Err(why) => {
            cx.ledger.refused(line.piece, why, nearest);
            return None;
        }
    };
    let is = match condition(cx, scope, line, end).expression() {
        Ok(is) => is,
        Err(why) => {
            cx.ledger.refused(line.piece, format!("its condition: {why}"), nearest);
            return None;
        }
    };
    if is.as_constant() == Some(false) {
        cx.ledger.left_out(line.piece, "its condition never holds here");
        return None;
    }
    let setting = cx.value(&text.to_setting());
    let change = match action {
        "set-header" => Change::Set(setting),
        "del-header" => Change::Remove,
        _ => Change::Add(setting),
    };
    match line.key() {
        "http-after-response" => cx.ledger.same(line.piece),
        _ if matches!(&*name, "server" | "x-powered-by" | "via") && action == "del-header" => {
            cx.ledger.same(line.piece)
        }
        _ => cx.ledger.changed(
            line.piece,
            "Weir does so to answers of its own where no server answers (502, 503, 504), too",
        ),
    }
    Some((name, change, is))
}
