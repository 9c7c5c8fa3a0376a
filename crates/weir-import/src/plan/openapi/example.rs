//! Examples of values: those of the description, and where it has none, values made from the schema.

use crate::plan::json::{Node, Value as Tree};
use crate::plan::text;
use crate::plan::vault::{Vault, is_secret};
use crate::yaml::{Map, Value};

/// Most references that lead to each other.
const REFERENCES: usize = 20;
/// Deepest value that is made from a schema.
const DEPTH: usize = 8;
/// Longest text that is made up because a schema asks for one.
const LONGEST_TEXT: f64 = 10_000.0;
/// Most values that are made from the schemas of one body.
const VALUES: usize = 2_000;

/// The node that a local reference leads to; the node itself if it is none.
pub(super) fn resolved<'r, 's>(root: &'r Node<'s>, node: &'r Node<'s>) -> Option<&'r Node<'s>> {
    let mut node = node;
    for _ in 0..REFERENCES {
        let Some(reference) = node.text("$ref") else { return Some(node) };
        let path = reference.strip_prefix("#/")?;
        node = path.split('/').try_fold(root, |node, key| {
            let key = key.replace("~1", "/").replace("~0", "~");
            let key = text::percent_decoded(&key).unwrap_or(key);
            match &node.value {
                Tree::List(items) => items.get(key.parse::<usize>().ok()?),
                _ => node.get(&key),
            }
        })?;
    }
    None
}

/// Finds examples, and makes values.
pub(super) struct Examples<'r, 's> {
    root: &'r Node<'s>,
    left: usize,
    /// Whether a value was made up.
    pub(super) is_made_up: bool,
}

impl<'r, 's> Examples<'r, 's> {
    pub(super) const fn new(root: &'r Node<'s>) -> Self {
        Self { root, left: VALUES, is_made_up: false }
    }

    /// The example, default or first allowed value of a parameter.
    pub(super) fn of_parameter(&mut self, parameter: &'r Node<'s>) -> Option<Value> {
        let schema = parameter.get("schema").and_then(|schema| resolved(self.root, schema));
        // Of a parameter with `content`, the value is a text of that type.
        let content = parameter.get("content").and_then(|content| content.entries().first());
        if let Some((_, media)) = content {
            return self.of_media(media).map(|value| Value::Text(to_json(&value)));
        }
        let name = parameter.text("name").unwrap_or_default();
        let node = self.named(parameter).or_else(|| schema.and_then(given))?;
        if is_placeholder(name, node) {
            return None;
        }
        Some(self.value_of(name, node))
    }

    /// A value for a parameter without example.
    pub(super) fn made_up(&mut self, schema: Option<&'r Node<'s>>) -> String {
        self.is_made_up = true;
        let schema = schema.and_then(|schema| resolved(self.root, schema));
        let kind = schema.map(kind_of).unwrap_or_default();
        match (&*kind, schema.and_then(|schema| schema.text("format"))) {
            ("integer" | "number", _) => {
                let bound = |key: &str| {
                    schema
                        .and_then(|schema| schema.get(key))
                        .and_then(Node::as_f64)
                        .filter(|n| n.abs() < 1e15)
                };
                let least = bound("minimum").map_or(1.0, |least| least.ceil().max(1.0));
                (bound("maximum").map_or(least, |most| least.min(most.floor())) as i64).to_string()
            }
            ("boolean", _) => "true".to_owned(),
            (_, Some("email")) => "ann@example.com".to_owned(),
            (_, Some("uri" | "url")) => "https://example.com/".to_owned(),
            (_, Some("ipv4")) => "192.0.2.1".to_owned(),
            (_, Some("uuid")) => "{{uuid}}".to_owned(),
            (_, Some("date")) => "2026-01-31".to_owned(),
            (_, Some("date-time")) => "{{now:rfc3339}}".to_owned(),
            _ => {
                // A text of an allowed length.
                let bound = |key: &str| {
                    let bound = schema.and_then(|schema| schema.get(key)).and_then(Node::as_f64);
                    bound.filter(|n| (0.0..=LONGEST_TEXT).contains(n)).map(|n| n as usize)
                };
                let mut text = "example".to_owned();
                while text.len() < bound("minLength").unwrap_or(0) {
                    text.push('x');
                }
                text.truncate(bound("maxLength").unwrap_or(text.len()));
                text
            }
        }
    }

    /// The example of a body, or one made from its schema.
    pub(super) fn of_media(&mut self, media: &'r Node<'s>) -> Option<Value> {
        if let Some(example) = self.named(media) {
            return Some(self.value(example));
        }
        media.get("schema").and_then(|schema| self.of_schema(schema, 0))
    }

    /// `example`, or the first of `examples`.
    fn named(&self, node: &'r Node<'s>) -> Option<&'r Node<'s>> {
        let first = node.get("examples").and_then(|examples| examples.entries().first());
        let first = first.and_then(|(_, example)| resolved(self.root, example)).and_then(|e| e.get("value"));
        node.get("example").or(first)
    }

    fn of_schema(&mut self, schema: &'r Node<'s>, depth: usize) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        if depth > DEPTH {
            return None;
        }
        let schema = resolved(self.root, schema)?;
        if let Some(node) = given(schema) {
            return Some(self.value(node));
        }
        if let Some(parts) = schema.get("allOf") {
            let mut all = Map::new();
            let own = self.object(schema, depth);
            for part in parts.items().iter().filter_map(|part| self.of_schema(part, depth + 1)).chain(own) {
                match part {
                    Value::Map(map) => map.iter().for_each(|(key, value)| all.set(key, value.clone())),
                    other => return Some(other),
                }
            }
            return Some(Value::Map(all));
        }
        for key in ["oneOf", "anyOf"] {
            if let Some(first) = schema.get(key).and_then(|list| list.items().first()) {
                return self.of_schema(first, depth + 1);
            }
        }
        match &*kind_of(schema) {
            "object" => self.object(schema, depth),
            "array" => {
                let item = schema.get("items").and_then(|items| self.of_schema(items, depth + 1));
                Some(Value::List(item.into_iter().collect()))
            }
            "null" => Some(Value::Plain("null".to_owned())),
            "integer" | "number" => {
                self.is_made_up = true;
                let least =
                    schema.get("minimum").and_then(Node::as_f64).filter(|n| n.abs() < 1e15).unwrap_or(1.0);
                Some(Value::Number(least.ceil().max(1.0) as i64))
            }
            "boolean" => {
                self.is_made_up = true;
                Some(Value::Bool(true))
            }
            "string" => Some(Value::Text(self.made_up(Some(schema)))),
            _ => Some(Value::Map(Map::new())),
        }
    }

    /// The required members of an object, and those with examples.
    fn object(&mut self, schema: &'r Node<'s>, depth: usize) -> Option<Value> {
        let required: Vec<&str> = schema
            .get("required")
            .map(Node::items)
            .unwrap_or_default()
            .iter()
            .filter_map(Node::as_str)
            .collect();
        let mut map = Map::new();
        for (key, property) in schema.get("properties").map(Node::entries).unwrap_or_default() {
            let is_required = required.contains(&&**key);
            let is_read_only = property.get("readOnly").and_then(Node::as_bool).unwrap_or(false);
            let has_example = resolved(self.root, property).is_some_and(|p| p.get("example").is_some());
            if is_read_only || !is_required && !has_example {
                continue;
            }
            if let Some(value) = self.of_schema(property, depth + 1) {
                map.set(text::literal(key), value);
            }
        }
        (!map.is_empty() || schema.get("properties").is_some() || schema.text("type") == Some("object"))
            .then_some(Value::Map(map))
    }

    /// A value of the description as one of the plan.
    pub(super) fn value(&mut self, node: &Node<'_>) -> Value {
        self.value_of("", node)
    }

    /// The same for a member or parameter with this name.
    fn value_of(&mut self, name: &str, node: &Node<'_>) -> Value {
        if is_placeholder(name, node) {
            self.is_made_up = true;
            return match node.value {
                Tree::Number(_) => Value::Number(1),
                _ => Value::Text("example".to_owned()),
            };
        }
        match &node.value {
            Tree::Null => Value::Plain("null".to_owned()),
            Tree::Bool(flag) => Value::Bool(*flag),
            Tree::Number(number) => number.parse().map_or_else(
                |_| {
                    Value::Plain(
                        number.parse::<f64>().map_or_else(|_| "0".to_owned(), |float| format!("{float:?}")),
                    )
                },
                Value::Number,
            ),
            Tree::Text(text) => Value::Text(text::literal(text)),
            Tree::List(items) => Value::List(items.iter().map(|item| self.value_of(name, item)).collect()),
            Tree::Map(entries) => {
                let members =
                    entries.iter().map(|(key, node)| (text::literal(key), self.value_of(key, node)));
                Value::Map(members.collect())
            }
        }
    }
}

/// Whether an example is what editors put where nobody wrote one: `string`, and 0 as an identifier.
fn is_placeholder(name: &str, node: &Node<'_>) -> bool {
    let lower = name.to_ascii_lowercase();
    match &node.value {
        Tree::Text(text) => *text == "string",
        Tree::Number(number) => {
            *number == "0" && (lower == "id" || lower.ends_with("_id") || name.ends_with("Id"))
        }
        _ => false,
    }
}

/// The example, constant, default or first allowed value of a schema.
fn given<'r, 's>(schema: &'r Node<'s>) -> Option<&'r Node<'s>> {
    let first = |key: &str| schema.get(key).and_then(|list| list.items().first());
    schema
        .get("example")
        .or_else(|| first("examples"))
        .or_else(|| schema.get("const"))
        .or_else(|| schema.get("default"))
        .or_else(|| first("enum"))
}

/// The type of a schema; of several, the first that is not `null`.
fn kind_of(schema: &Node<'_>) -> String {
    let list = schema.get("type").map(Node::items).unwrap_or_default();
    let kind =
        schema.text("type").or_else(|| list.iter().filter_map(Node::as_str).find(|kind| *kind != "null"));
    match kind {
        Some(kind) => kind.to_owned(),
        None if schema.get("properties").is_some() => "object".to_owned(),
        None if schema.get("items").is_some() => "array".to_owned(),
        None => String::new(),
    }
}

/// Puts names in the places of secrets of an example.
pub(super) fn hide_secrets(value: &mut Value, key: &str, vault: &mut Vault) {
    match value {
        Value::Text(text) if is_secret(key) && !text.starts_with("{{") => *text = vault.hide(key, text),
        Value::Text(text) => {
            if let Some(hidden) = vault.hidden_within(key, text).filter(|_| !text.contains("{{")) {
                *text = hidden;
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| hide_secrets(item, key, vault)),
        Value::Map(map) => {
            for (key, value) in map.iter_mut() {
                let key = key.to_owned();
                hide_secrets(value, &key, vault);
            }
        }
        _ => {}
    }
}

/// A value as a text of JSON, for a field of a form.
pub(super) fn to_json(value: &Value) -> String {
    match value {
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::Number(number) => number.to_string(),
        Value::Plain(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::List(items) => format!("[{}]", items.iter().map(to_json).collect::<Vec<_>>().join(",")),
        Value::Map(map) => {
            let members =
                map.iter().map(|(key, value)| format!("{}:{}", serde_json::Value::from(key), to_json(value)));
            // A blank, because a brace before a placeholder would be part of it.
            format!("{{ {} }}", members.collect::<Vec<_>>().join(","))
        }
        _ => String::new(),
    }
}
