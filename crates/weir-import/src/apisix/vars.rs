//! `vars`: conditions as lists, `[["arg_v", "==", "2"], "AND", …]`, as expressions.

use crate::shared::expression::Expression;
use crate::shared::regex::{Searching, Subject};
use crate::shared::tree::{Node, Value};

/// Deepest nesting of AND and OR.
const MAX_DEPTH: usize = 16;

/// All of a list of conditions.
pub(super) fn all(node: &Node) -> Result<Expression, String> {
    group(node, 0)
}

fn group(node: &Node, depth: usize) -> Result<Expression, String> {
    if depth > MAX_DEPTH {
        return Err("conditions nested too deep".to_owned());
    }
    let items = node.as_list().ok_or("a list of conditions is expected")?;
    let (any, negated, rest) = match items.first().and_then(Node::as_text).as_deref() {
        Some("OR") => (true, false, &items[1..]),
        Some("AND") => (false, false, &items[1..]),
        Some("!OR") => (true, true, &items[1..]),
        Some("!AND") => (false, true, &items[1..]),
        Some(_) => return one(items),
        None => (false, false, items),
    };
    let mut found = Expression::constant(!any);
    for item in rest {
        let next = group(item, depth + 1)?;
        found = if any { found.or(next) } else { found.and(next) };
    }
    Ok(if negated { found.not() } else { found })
}

/// A variable of nginx or APISIX.
pub(super) fn variable(name: &str) -> Option<Expression> {
    let name = name.trim_start_matches('$');
    Some(match name {
        "uri" => Expression::raw("request.path"),
        "host" => Expression::raw("request.host"),
        "request_method" => Expression::raw("request.method"),
        "scheme" => Expression::raw("request.scheme"),
        "remote_addr" => Expression::raw("client.ip"),
        "args" | "query_string" => Expression::raw("request.query"),
        "consumer_name" => Expression::raw("consumer.name"),
        _ => {
            let (kind, key) = name.split_once('_')?;
            match kind {
                "arg" => Expression::of("request.args", key),
                "cookie" => Expression::of("request.cookies", key),
                "http" => Expression::of("request.headers", &key.to_ascii_lowercase().replace('_', "-")),
                _ => return None,
            }
        }
    })
}

fn one(items: &[Node]) -> Result<Expression, String> {
    let texts: Vec<Option<String>> = items.iter().map(Node::as_text).collect();
    let name = texts.first().cloned().flatten().unwrap_or_default();
    let named = variable(&name).ok_or_else(|| format!("the variable `{name}`"))?;
    // Of several parameters of a name, the first.
    let value = match name.starts_with("arg_") {
        true => Expression::raw(format!("({}.all()[0] ?? \"\")", named.as_str())),
        false => named.clone(),
    };
    let (negated, at) = match texts.get(1).and_then(Option::as_deref) {
        Some("!") => (true, 2),
        _ => (false, 1),
    };
    let operator = texts.get(at).cloned().flatten().unwrap_or_default();
    let right = items.get(at + 1);
    let is_number = right.is_some_and(|right| matches!(right.value, Value::Number(_)));
    let text = right.and_then(Node::as_text);
    let number = |value: &Expression| Expression::raw(format!("(double({}) ?? 0.0)", value.as_str()));
    let list = right.and_then(Node::as_texts);
    let is = match (operator.as_str(), text, list) {
        ("==", Some(text), _) => value.equals(Expression::text(&text)),
        ("~=", Some(text), _) => value.differs(Expression::text(&text)),
        (">" | "<" | ">=" | "<=", Some(text), _) if is_number => {
            let written = if text.contains('.') { text } else { format!("{text}.0") };
            let has = Expression::raw(format!("has({})", named.as_str()));
            has.and(Expression::raw(format!("({} {operator} {written})", number(&value).as_str())))
        }
        ("~~" | "~*", Some(text), _) => {
            let read = Searching::read(&text, operator == "~*", Subject::Text)?;
            read.compiled()?;
            value.matches(&read.searching())
        }
        ("in", _, Some(list)) => value.is_in(list.iter().map(String::as_str)),
        ("has", Some(text), _) => value.contains(&text),
        ("ipmatch", text, list) => {
            let list = list.or_else(|| text.map(|text| vec![text])).unwrap_or_default();
            let networks: Result<Vec<String>, String> =
                list.iter().map(|text| crate::shared::networks::network(text)).collect();
            value.is_in(networks?.iter().map(String::as_str))
        }
        _ => return Err(format!("the operator `{operator}`")),
    };
    Ok(if negated { is.not() } else { is })
}
