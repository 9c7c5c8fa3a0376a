//! Answers of a way: fields, bodies and redirects.

use super::super::flow::closed_filter;
use super::super::model::{Answer, Op, Ops};
use super::super::world::{Step, What, World};
use super::{Around, merge, merges, under};
use crate::config::{Filter, Route, Target};
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters::{Headers, redirect, respond};
use crate::shared::template::{Part, Template};
use crate::yaml::{Map, Value};

/// The filters that change the answer, in the order in which Caddy's changes come to the same.
///
/// Caddy's changes are made before the answer begins, in order; an upstream's fields are added to them. Deferred ones
/// are made when it begins, the last first. Weir runs filters of answers from the last to the first.
pub(super) fn answer_fields(
    world: &World,
    down: &[Op],
    is_proxied: bool,
    piece: Option<Piece>,
    around: &mut Around<'_>,
) -> Vec<Filter> {
    let steps: Vec<(&Step, &Ops)> = world
        .steps
        .iter()
        .filter_map(|step| match &step.what {
            What::Answer(ops) => Some((step, ops)),
            _ => None,
        })
        .collect();
    let mut filters: Vec<Filter> = Vec::new();
    let mut add = |step: Option<&Step>, ops: &Ops, is_proxied: bool, ledger: &mut Ledger| {
        let mut headers = Headers::default();
        let mut scope = world.scope();
        scope.is_answer = true;
        for op in &ops.response {
            match op {
                Op::Delete(name) => headers.response_remove.push(name.clone()),
                Op::Set(name, value) | Op::Add(name, value) => {
                    match super::super::text::template(value, &scope) {
                        Ok(template) => {
                            let mut text = template.to_setting();
                            if let Some(unless) = ops.unless.first() {
                                let own = match template.as_literal() {
                                    Some(literal) => Expression::text(&literal),
                                    None => template_expression(&template, world),
                                };
                                let is = Expression::of("response.headers", unless).or_else(own);
                                text = format!("{{= {} }}", is.as_str());
                            }
                            let pair = (name.clone(), Value::from(text));
                            let adds = matches!(op, Op::Add(..)) || is_proxied && !ops.is_deferred;
                            if adds {
                                headers.response_add.push(pair)
                            } else {
                                headers.response_set.push(pair)
                            }
                        }
                        Err(placeholder) => {
                            if let Some(piece) = piece.or(world.pieces.last().copied()) {
                                let why = format!("Weir has nothing for {placeholder} in an answer");
                                ledger.refused(piece, why, "docs/reference/filters.md#placeholders");
                            }
                        }
                    }
                }
            }
        }
        let Some(filter) = headers.filter() else { return };
        let new = match step {
            Some(step) => under(step, vec![filter], world),
            None => vec![filter],
        };
        for filter in new {
            match filters.last_mut() {
                Some(last) if merges(last, &filter) => merge(last, &filter),
                _ => filters.push(filter),
            }
        }
    };
    for (step, ops) in steps.iter().filter(|(_, ops)| ops.is_deferred) {
        add(Some(step), ops, is_proxied, around.ledger);
    }
    for (step, ops) in steps.iter().rev().filter(|(_, ops)| !ops.is_deferred) {
        add(Some(step), ops, is_proxied, around.ledger);
    }
    if !down.is_empty() {
        let ops = Ops { response: down.to_vec(), is_deferred: true, ..Ops::default() };
        add(None, &ops, is_proxied, around.ledger);
    }
    filters
}

fn template_expression(template: &Template, world: &World) -> Expression {
    let parts = template.parts().iter().map(|part| match part {
        Part::Text(text) => Expression::text(text),
        Part::Value(expression) => expression.clone(),
        Part::Placeholder(name) => {
            super::super::text::expression(name, &world.scope()).unwrap_or_else(|| Expression::text(""))
        }
    });
    parts.reduce(Expression::plus).unwrap_or_else(|| Expression::text(""))
}

/// Names of fields that a filter `headers` changes.
pub(super) fn names(filter: &Filter) -> Option<Vec<String>> {
    let Value::Map(map) = &filter.settings else { return None };
    if filter.name != "headers" || map.len() != 1 || !filter.comment.is_empty() {
        return None;
    }
    let Some(Value::Map(response)) = map.get("response") else { return None };
    let mut names = Vec::new();
    for (_, value) in response.iter() {
        match value {
            Value::Map(fields) => names.extend(fields.iter().map(|(name, _)| name.to_owned())),
            Value::List(list) => names.extend(list.iter().filter_map(|value| match value {
                Value::Text(name) => Some(name.clone()),
                _ => None,
            })),
            _ => return None,
        }
    }
    Some(names)
}

/// An answer of the server itself: a redirect, or `respond`.
pub(super) fn answered(
    route: &mut Route,
    answer: &Answer,
    world: &World,
    piece: Option<Piece>,
    around: &mut Around<'_>,
) -> Option<Filter> {
    let mut lacks = |placeholder: &str| {
        if let Some(piece) = piece {
            let why = format!("Weir has nothing for {placeholder}");
            around.ledger.refused(piece, why, "docs/reference/filters.md#placeholders");
        }
    };
    let status: u16 = if answer.status.is_empty() { 200 } else { answer.status.parse().unwrap_or(0) };
    if !(200..=599).contains(&status) {
        lacks(&format!("the status `{}`", answer.status));
        route.filters.push(closed_filter("its status is not known"));
        route.target = Some(Target::Respond(Map::new().with("status", 503_u16)));
        return None;
    }
    let location = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location"));
    if let Some((_, to)) = location
        && matches!(status, 301 | 302 | 303 | 307 | 308)
    {
        match world.text(to) {
            Ok(template) => {
                let (to, keeps) = redirect_target(&template);
                return Some(redirect(&to, status, keeps));
            }
            Err(placeholder) => {
                lacks(&placeholder);
                route.filters.push(closed_filter("its redirect could not be translated"));
                route.target = Some(Target::Respond(Map::new().with("status", 503_u16)));
                return None;
            }
        }
    }
    let body = match world.text(&answer.body) {
        Ok(template) => template.to_body(),
        Err(placeholder) => {
            lacks(&placeholder);
            String::new()
        }
    };
    let mut map = respond(status, Some(body), None);
    if status == 200 {
        map.remove("status");
    }
    let mut fields = Map::new();
    for (name, value) in &answer.headers {
        match world.text(value) {
            Ok(template) => fields.set(name.to_ascii_lowercase(), template.to_setting()),
            Err(placeholder) => lacks(&placeholder),
        }
    }
    if !fields.is_empty() {
        map.set("headers", fields);
    }
    route.target = Some(Target::Respond(map));
    None
}

/// The target of a redirect, and whether the query is kept. `{uri}` at its end is the path with the query.
fn redirect_target(template: &Template) -> (String, bool) {
    let parts = template.parts();
    let is_query = |part: &Part| match part {
        Part::Value(value) => value.as_str().starts_with("request.query == \"\""),
        _ => false,
    };
    match parts.split_last() {
        Some((last, rest)) if is_query(last) => {
            let mut kept = Template::default();
            rest.iter().cloned().for_each(|part| kept.push(part));
            (kept.to_setting(), true)
        }
        _ => (template.to_setting(), false),
    }
}
