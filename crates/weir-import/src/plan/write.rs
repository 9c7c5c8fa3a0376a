//! The text of a plan.

use super::model::{Body, ConstantValue, Does, Keep, Part, Plan, Request, Scenario, Step, Target};
use crate::yaml::{Map, Value};

/// The text of a plan without its own comments.
#[must_use]
pub fn to_yaml(plan: &Plan) -> String {
    let mut map = Map::new();
    match &plan.target {
        Some(Target::Known(server)) => {
            map.set("target", variable("TARGET", Some(server)));
        }
        Some(Target::Unknown) => map.set("target", variable("TARGET", None)),
        None => {}
    }
    let mut defaults = Map::new();
    if !plan.headers.is_empty() {
        defaults.set("headers", pairs(&plan.headers));
    }
    extend(&mut defaults, &plan.defaults);
    if !defaults.is_empty() {
        map.set("defaults", defaults);
    }
    if !plan.data.is_empty() {
        map.set("data", plan.data.clone());
    }
    if !plan.values.is_empty() {
        let mut values = Map::new();
        for constant in &plan.values {
            let value = match &constant.value {
                ConstantValue::Optional(name, default) => variable(name, Some(default)),
                ConstantValue::Text(text) => Value::Literal(text.clone()),
                ConstantValue::Variable(name, _) => variable(name, None),
            };
            values.push(constant.name.clone(), value);
        }
        map.set("values", values);
    }
    if !plan.setup.is_empty() {
        map.set("setup", steps(&plan.setup));
    }
    let mut scenarios = Map::new();
    for written in &plan.scenarios {
        written.comment.iter().for_each(|line| scenarios.comment(line));
        scenarios.push(written.name.clone(), scenario(written));
    }
    map.set("scenarios", scenarios);
    if !plan.teardown.is_empty() {
        map.set("teardown", steps(&plan.teardown));
    }
    extend(&mut map, &plan.more);
    map.iter_mut().for_each(|(_, value)| literal(value));
    map.to_yaml()
}

/// What a source says stands for itself: no text of it is a variable of the environment.
fn literal(value: &mut Value) {
    match value {
        Value::Text(text) => *value = Value::Literal(std::mem::take(text)),
        Value::Block(text) => *value = Value::LiteralBlock(std::mem::take(text)),
        Value::List(items) => items.iter_mut().for_each(literal),
        Value::Map(map) => map.iter_mut().for_each(|(_, value)| literal(value)),
        _ => {}
    }
}

/// The variables of the environment that a plan needs, each with the value that the source has for it.
#[must_use]
pub fn variables(plan: &Plan) -> Vec<(&str, Option<&str>)> {
    let target = matches!(plan.target, Some(Target::Unknown)).then_some(("TARGET", None));
    let values = plan.values.iter().filter_map(|constant| match &constant.value {
        ConstantValue::Variable(name, value) => Some((&**name, value.as_deref())),
        ConstantValue::Optional(..) | ConstantValue::Text(_) => None,
    });
    target.into_iter().chain(values).collect()
}

/// A variable of the environment, with the text where it is not set. That text ends at the first `}`, and a `$` in it
/// stands for itself.
fn variable(name: &str, default: Option<&str>) -> Value {
    Value::WithVariables(match default {
        Some(default) => format!("${{{name}:-{default}}}"),
        None => format!("${{{name}}}"),
    })
}

fn scenario(scenario: &Scenario) -> Map {
    let mut map = scenario.more.clone();
    for (key, list) in [("start", &scenario.start), ("steps", &scenario.steps), ("end", &scenario.end)] {
        if !list.is_empty() {
            map.set(key, steps(list));
        }
    }
    map
}

fn steps(list: &[Step]) -> Value {
    let mut items = Vec::new();
    let mut comments: Vec<String> = Vec::new();
    for step in list {
        comments.extend(step.comment.iter().cloned());
        let mut map = Map::new();
        if let Does::Request(request) = &step.does
            && request.is_off
        {
            let mut off = Map::new();
            fill(&mut off, step);
            let mut off = Value::Map(off);
            literal(&mut off);
            // One comment, because equal ones are written once.
            comments.push(off.to_item());
            continue;
        }
        for line in comments.drain(..) {
            map.comment(line);
        }
        fill(&mut map, step);
        items.push(Value::Map(map));
    }
    if !comments.is_empty() {
        let mut last = Map::new();
        comments.into_iter().for_each(|line| last.comment(line));
        items.push(Value::Map(last));
    }
    Value::List(items)
}

fn fill(map: &mut Map, step: &Step) {
    match &step.does {
        Does::If { condition, then } => {
            map.set("if", condition.clone());
            map.set("then", steps(then));
        }
        Does::Parallel(most, inner) => {
            map.set("parallel", *most);
            map.set("steps", steps(inner));
        }
        Does::Pause(pause) => map.set("pause", pause.clone()),
        Does::Repeat(times, inner) => {
            map.set("repeat", *times);
            map.set("steps", steps(inner));
        }
        Does::Request(request) => fill_request(map, request),
        Does::While { condition, max, steps: inner } => {
            map.set("while", condition.clone());
            map.set("max", *max);
            map.set("steps", steps(inner));
        }
    }
}

fn fill_request(map: &mut Map, request: &Request) {
    map.set_some("name", request.name.clone());
    let key = match &*request.method {
        "GET" => Some("get"),
        "HEAD" => Some("head"),
        "POST" => Some("post"),
        "PUT" => Some("put"),
        "PATCH" => Some("patch"),
        "DELETE" => Some("delete"),
        "OPTIONS" => Some("options"),
        _ => None,
    };
    match key {
        Some(key) => map.set(key, request.url.clone()),
        None => {
            map.set("method", request.method.clone());
            map.set("url", request.url.clone());
        }
    }
    if !request.headers.is_empty() {
        map.set("headers", pairs(&request.headers));
    }
    match &request.body {
        None => {}
        Some(Body::File(path)) => map.set("body_file", path.clone()),
        Some(Body::Form(fields)) => map.set("form", pairs(fields)),
        Some(Body::Json(value)) => map.set("json", value.clone()),
        Some(Body::Multipart(parts)) => map.set("multipart", Value::List(parts.iter().map(part).collect())),
        Some(Body::Text(text)) if text.contains('\n') => map.set("body", Value::Block(text.clone())),
        Some(Body::Text(text)) => map.set("body", text.clone()),
    }
    if !request.checks.is_empty() {
        map.set("checks", request.checks.clone());
    }
    if !request.keep.is_empty() {
        let mut keep = Map::new();
        for Keep { name, source, proof } in &request.keep {
            if !proof.is_empty() {
                keep.comment(proof);
            }
            keep.set(name.clone(), source.clone());
        }
        map.set("keep", keep);
    }
    map.set_some("redirects", request.redirects);
    map.set_some("timeout", request.timeout.clone());
    map.set_some("on_failure", request.on_failure);
}

fn part(part: &Part) -> Value {
    let mut map = Map::new().with("name", part.name.clone());
    match &part.file {
        Some(file) => map.set("file", file.clone()),
        None => map.set("value", part.value.clone()),
    }
    map.set_some("filename", part.filename.clone());
    map.set_some("type", part.media.clone());
    map.into()
}

fn pairs(pairs: &[(String, String)]) -> Map {
    let mut map = Map::new();
    pairs.iter().for_each(|(name, value)| map.set(name.clone(), value.clone()));
    map
}

fn extend(map: &mut Map, more: &Map) {
    more.iter().for_each(|(key, value)| map.set(key, value.clone()));
}
