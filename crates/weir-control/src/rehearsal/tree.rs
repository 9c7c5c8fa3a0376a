//! Edits of a config's tree, and its text.

use std::fmt::Write;
use weir_config::node::{Key, Node, Value};

/// The node at a path such as `plans.gold.filters`, for editing.
pub(super) fn find<'a>(node: &'a mut Node, path: &str) -> Option<&'a mut Node> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return Some(node);
    }
    if let Some(rest) = path.strip_prefix('[') {
        let (index, rest) = rest.split_once(']')?;
        let Value::Seq(elements) = &mut node.value else { return None };
        return find(elements.get_mut(index.parse::<usize>().ok()?)?, rest);
    }
    // Keys may contain dots: the longest match wins, as in `Node::find`.
    let fits = |key: &str| {
        path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let Value::Map(entries) = &mut node.value else { return None };
    let (key, inner) = entries.iter_mut().filter(|(k, _)| fits(&k.text)).max_by_key(|(k, _)| k.text.len())?;
    find(inner, &path[key.text.len()..])
}

/// Sets a number or boolean at `path`, creating missing maps on the way.
pub(super) fn set(node: &mut Node, path: &str, raw: &str) {
    let value = match raw {
        "true" | "false" => Value::Bool(raw == "true"),
        _ => Value::Int(raw.parse().unwrap_or_default()),
    };
    put(node, path, value, raw);
}

/// Sets a text.
pub(super) fn set_text(node: &mut Node, path: &str, text: &str) {
    put(node, path, Value::Str(text.into()), text);
}

/// Sets a list of texts.
pub(super) fn set_list(node: &mut Node, path: &str, texts: &[&str]) {
    let at = node.at.clone();
    let element = |text: &&str| Node::new(at.clone(), Value::Str((*text).into()), text);
    put(node, path, Value::Seq(texts.iter().map(element).collect()), "");
}

/// Adds a text to the list there, if there is one.
pub(super) fn add_text(node: &mut Node, path: &str, text: &str) {
    let at = node.at.clone();
    if let Some(Value::Seq(list)) = find(node, path).map(|list| &mut list.value) {
        list.push(Node::new(at, Value::Str(text.into()), text));
    }
}

fn put(node: &mut Node, path: &str, value: Value, raw: &str) {
    let at = node.at.clone();
    if let Some(found) = find(node, path) {
        *found = Node::new(at, value, raw);
        return;
    }
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    if find(node, parent).is_none_or(|parent| !matches!(parent.value, Value::Map(_))) {
        put(node, parent, Value::Map(Vec::new()), "");
    }
    if let Some(Value::Map(entries)) = find(node, parent).map(|parent| &mut parent.value) {
        entries.push((Key { text: name.into(), at: at.clone() }, Node::new(at, value, raw)));
    }
}

/// Removes the value at `path`, if any.
pub(super) fn remove(node: &mut Node, path: &str) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(Value::Map(entries)) = find(node, parent).map(|parent| &mut parent.value) {
        entries.retain(|(key, _)| *key.text != *name);
    }
}

/// The filter lists of all things in a section of named things.
pub(super) fn lists<'a>(root: &'a mut Node, section: &str) -> impl Iterator<Item = &'a mut Vec<Node>> {
    named(root, section).map(|(_, list)| list)
}

/// All filters with their paths.
pub(super) fn filters(root: &mut Node) -> Vec<(String, &mut Node)> {
    let mut found = Vec::new();
    let Value::Map(sections) = &mut root.value else { return found };
    for (section, node) in sections {
        let name = &*section.text;
        if name == "filters" {
            if let Value::Seq(list) = &mut node.value {
                found.extend(list.iter_mut().enumerate().map(|(i, f)| (format!("filters[{i}]"), f)));
            }
        } else if matches!(name, "plans" | "routes") {
            for (thing, list) in things(node) {
                let path = |i| format!("{name}.{thing}.filters[{i}]");
                found.extend(list.iter_mut().enumerate().map(|(i, f)| (path(i), f)));
            }
        }
    }
    found
}

fn named<'a>(root: &'a mut Node, section: &str) -> impl Iterator<Item = (&'a str, &'a mut Vec<Node>)> {
    find(root, section).into_iter().flat_map(things)
}

fn things(section: &mut Node) -> impl Iterator<Item = (&str, &mut Vec<Node>)> {
    let entries = match &mut section.value {
        Value::Map(entries) => entries.as_mut_slice(),
        _ => &mut [],
    };
    entries.iter_mut().filter_map(|(name, thing)| match find(thing, "filters").map(|list| &mut list.value) {
        Some(Value::Seq(list)) => Some((&*name.text, list)),
        _ => None,
    })
}

/// The tree as text that parses to the same tree: JSON, except where YAML has more.
pub(super) fn write(node: &Node) -> String {
    let mut out = String::new();
    push(node, &mut out);
    out
}

/// The parser bounds the depth.
fn push(node: &Node, out: &mut String) {
    match &node.value {
        // Readers distinguish an empty value from `null`.
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => out.push_str(node.raw()),
        Value::Str(text) => push_text(&text.replace('$', "$$"), out),
        Value::Seq(elements) => {
            out.push('[');
            for (i, element) in elements.iter().enumerate() {
                out.push_str(if i > 0 { ",\n" } else { "" });
                push(element, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (i, (key, value)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { ",\n" } else { "" });
                push_text(&key.text, out);
                out.push_str(": ");
                push(value, out);
            }
            out.push('}');
        }
    }
}

fn push_text(text: &str, out: &mut String) {
    let _ = write!(out, "{}", serde_json::Value::from(text)); // a String takes everything
}
