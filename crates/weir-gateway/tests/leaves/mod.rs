//! Every setting of the config and all filters by their JSON Schema, and configs that set a single one of them.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_gateway::config::deprecated::DEPRECATED;
use weir_gateway::config::reference::add_deprecated;
use weir_gateway::config::secrecy::mark_secrets;
use weir_gateway::config::{Diagnostics, Node, parse};
use weir_gateway::filters::KINDS;

/// A value to put wherever a secret may be.
pub(super) const PLANTED: &str = "Zq9/plant+7f3e";

/// The settings of the schema: each path, without list positions, and whether text is allowed there.
pub(super) type Leaves = BTreeMap<String, bool>;

pub(super) fn leaves() -> Leaves {
    let root = weir_gateway::config::schema(&[]);
    let mut found = Leaves::new();
    walk(&root, &root, "", &mut found, 0);
    for kind in KINDS {
        let mut schema = (kind.schema)().to_value();
        let path = format!("filter.{}", kind.name);
        add_deprecated(DEPRECATED, &path, &mut schema);
        walk(&schema, &schema, &path, &mut found, 0);
    }
    found
}

fn walk(root: &Value, schema: &Value, path: &str, found: &mut Leaves, depth: usize) {
    assert!(depth < 50, "{path}: the schema has no end");
    let mut walk = |schema: &Value, path: &str| walk(root, schema, path, found, depth + 1);
    if let Some(name) = schema["$ref"].as_str() {
        // Filters within filters follow the same rules.
        if name != "#/$defs/Filter" {
            walk(root.pointer(name.trim_start_matches('#')).unwrap_or(&Value::Null), path);
        }
        return;
    }
    for of in ["anyOf", "oneOf", "allOf"] {
        schema[of].as_array().into_iter().flatten().for_each(|one| walk(one, path));
    }
    walk_each(schema["items"].as_object().map(|_| &schema["items"]), |one| walk(one, path));
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, one) in schema["properties"].as_object().into_iter().flatten() {
        walk(one, &below(name));
    }
    for of in ["additionalProperties", "unevaluatedProperties"] {
        walk_each(Some(&schema[of]).filter(|one| one.is_object()), |one| walk(one, &below("*")));
    }
    for (_, one) in schema["patternProperties"].as_object().into_iter().flatten() {
        walk(one, &below("*"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let fixed = schema.get("enum").is_some() || schema.get("const").is_some();
    let scalar = types.iter().any(|one| ["boolean", "integer", "number", "string"].contains(one));
    if (fixed || scalar) && !path.is_empty() {
        let text = types.contains(&"string") && !fixed;
        *found.entry(path.to_owned()).or_default() |= text;
    }
}

fn walk_each<'s>(schema: Option<&'s Value>, each: impl FnMut(&'s Value)) {
    schema.into_iter().for_each(each);
}

/// Configs with the planted text at a path, one per place where such a setting may be.
pub(super) fn configs(path: &str) -> Vec<String> {
    let filter = |name: &str, rest: &str| {
        [
            format!("filters.-{name}{rest}"),
            format!("filters.-any.-{name}{rest}"),
            format!("plans.x.filters.-{name}{rest}"),
            format!("routes.x.filters.-{name}{rest}"),
            format!("routes.x.filters.-any.-{name}{rest}"),
        ]
    };
    match path.strip_prefix("filter.") {
        Some(path) => {
            let (name, rest) = path.split_at(path.find('.').unwrap());
            filter(name, rest).iter().flat_map(|path| written(path)).collect()
        }
        None => written(path),
    }
}

/// The path as YAML, with its last value alone and in a list, quoted and unquoted.
pub(super) fn written(path: &str) -> Vec<String> {
    let mut head = String::new();
    let mut indent = 0;
    let mut begins = "";
    for key in path.split('.') {
        let (dash, key) = key.strip_prefix('-').map_or(("", key), |key| ("- ", key));
        let key = key.replace('*', "x-planted");
        let _ = write!(head, "{begins}{:indent$}{dash}{key}:", "");
        begins = "\n";
        indent += 2 + dash.len();
    }
    [format!(" {PLANTED}"), format!(" [ \"{PLANTED}\" ]"), format!(" >-\n{:indent$}{PLANTED}", "")]
        .iter()
        .map(|value| format!("{head}{value}\n"))
        .collect()
}

pub(super) fn tree(text: &str) -> Node {
    let mut tree = parse::parse(text, "weir.yaml".as_ref(), &mut Diagnostics::default()).unwrap();
    mark_secrets(&mut tree);
    tree
}
