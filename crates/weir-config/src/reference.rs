//! Describes the config as JSON Schema for editors and as Markdown for docs/reference/config.md. Both are generated
//! from `schema`.

use std::fmt::Write;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::deprecated::{DEPRECATED, Deprecated};
use super::schema::Config;

/// JSON Schema (2020-12) of the config, including the name and settings schema of each filter.
pub fn schema(filters: &[(&str, Schema)]) -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = generator.into_root_schema_for::<Config>().to_value();
    add_deprecated(DEPRECATED, "", &mut root);
    let mut shapes = Vec::new();
    let mut definitions = Map::new();
    for (name, schema) in filters {
        let mut settings = schema.clone().to_value();
        add_deprecated(DEPRECATED, &format!("filter.{name}"), &mut settings);
        if let Some(object) = settings.as_object_mut() {
            object.remove("$schema");
            if let Some(Value::Object(own)) = object.remove("$defs") {
                definitions.extend(own);
            }
        }
        shapes.push(json!({
            "type": "object",
            "properties": { *name: settings },
            "required": [name],
            "additionalProperties": false,
        }));
    }
    if let Some(all) = root.get_mut("$defs").and_then(Value::as_object_mut) {
        for (name, definition) in definitions {
            all.entry(name).or_insert(definition);
        }
        if !shapes.is_empty() {
            let names: Vec<&str> = filters.iter().map(|(name, _)| *name).collect();
            shapes.push(json!({ "enum": names, "description": "A filter with its default settings." }));
            let filter = json!({ "description": "One filter: its name and its settings.", "oneOf": shapes });
            all.insert("Filter".to_owned(), filter);
        }
    }
    root
}

/// Adds the deprecated keys of a section to its schema, where editors strike them out. `within` is the section: empty
/// for the whole config, `filter.NAME` for a filter.
pub fn add_deprecated(table: &[Deprecated], within: &str, root: &mut Value) {
    for entry in table {
        // A config's own path begins with its key, that of a filter with a dot.
        let path = match entry.within.strip_prefix(within) {
            Some(path) if within.is_empty() && !path.starts_with("filter.") => path,
            Some(path) if !within.is_empty() && (path.is_empty() || path.starts_with('.')) => path,
            _ => continue,
        };
        let mut keys = path.split('.').filter(|key| !key.is_empty());
        let pointer = keys.try_fold(String::new(), |at, key| step(root, &at, key));
        let Some(object) = pointer.and_then(|at| root.pointer_mut(&at)) else { continue };
        let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else { continue };
        let Some(Value::Object(mut old)) = properties.get(entry.successor).cloned() else { continue };
        old.insert("deprecated".to_owned(), true.into());
        old.insert("description".to_owned(), entry.description().into());
        properties.insert(entry.key.to_owned(), old.into());
    }
}

/// The JSON pointer of a setting below another, or of the things of any name for `*`.
fn step(root: &Value, at: &str, key: &str) -> Option<String> {
    let at = object_at(root, at)?;
    let below = match key {
        "*" => format!("{at}/additionalProperties"),
        key => format!("{at}/properties/{key}"),
    };
    object_at(root, &below)
}

/// Follows references, items of lists, and the last of several forms, as [`section`] does.
fn object_at(root: &Value, at: &str) -> Option<String> {
    let schema = root.pointer(at)?;
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return object_at(root, name.strip_prefix('#')?);
    }
    if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
        let form = forms.iter().rposition(|form| form.get("type") != Some(&json!("null")))?;
        return object_at(root, &format!("{at}/anyOf/{form}"));
    }
    match schema.get("items") {
        Some(_) => object_at(root, &format!("{at}/items")),
        None => Some(at.to_owned()),
    }
}

/// The reference in docs/reference/config.md: each section with its keys.
pub fn markdown() -> String {
    let root = schema(&[]);
    let mut out = PREFACE.to_owned();
    section(&root, &root, "", &mut out);
    out
}

const PREFACE: &str = "# The config

Every key with its type, default and reason. This page is made from the types in
`crates/weir-config/src/schema/`; a test compares them (`WEIR_BLESS=1 cargo test -p weir-gateway --test config`
rewrites it). `weir schema` prints the same as JSON Schema for your editor, `weir filters` the settings of the filters.

- **Files.** Without `-c`: `./weir.yaml`, then `/etc/weir/weir.yaml`, then a built-in default. YAML 1.2, or JSON. `yes`, `no`,
  `on` and `off` are words, not booleans. A key that occurs twice is an error. Paths are relative to the file that names them.
- **Values.** Durations `250ms`, `3s`, `5m`, `1h`; sizes `512B`, `32KiB`, `1MiB` (or `KB`, `MB`); shares `20%`. A number without
  its unit is refused. `null` is as if the key were not written; a blank section (`log:`) is an empty one, a blank value an error.
- **Variables.** `${VAR}`, `${VAR:-default}`, `${VAR:?message}` and `${file:PATH}` in any value; a missing one is an error. `$$` is a dollar sign.
- **Names** of listeners, upstreams, consumers and their sources, plans, maps and routes: letters, digits, `_`, `.`, `-`; at most 64. `NAME` below
  stands for one, `[]` for each item of a list.
- **Mistakes** are reported all at once by `weir check`, each with its place, value, expectation, a hint and a stable code.
";

fn section(root: &Value, schema: &Value, path: &str, out: &mut String) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let title = if path.is_empty() { "The top level" } else { &format!("`{path}`") };
    let _ = write!(out, "\n## {title}\n\n");
    if let Some(text) = schema.get("description").and_then(Value::as_str).filter(|_| !path.is_empty()) {
        let _ = write!(out, "{}\n\n", one_line(text));
    }
    out.push_str("| Key | Type | Meaning |\n|---|---|---|\n");
    let mut below = Vec::new();
    for (key, property) in properties {
        let target = resolve(root, property);
        let description = property.get("description").or_else(|| target.get("description"));
        let text = description.and_then(Value::as_str).map(one_line).unwrap_or_default();
        let _ = writeln!(out, "| `{key}` | {} | {} |", kind(root, property), text.replace('|', "\\|"));
        let dot = if path.is_empty() { "" } else { "." };
        below.push((format!("{path}{dot}{key}"), target));
    }
    for (path, target) in below {
        let target = longest(root, target);
        if let Some(things) = target.get("additionalProperties").filter(|things| things.is_object()) {
            section(root, longest(root, things), &format!("{path}.NAME"), out);
        } else if let Some(items) = target.get("items") {
            section(root, longest(root, items), &format!("{path}[]"), out);
        } else {
            section(root, target, &path, out);
        }
    }
}

/// Follows references, and takes the last of several forms, which is the longest.
fn longest<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let schema = resolve(root, schema);
    let long = schema.get("anyOf").and_then(Value::as_array).and_then(|forms| forms.last());
    long.map_or(schema, |form| resolve(root, form))
}

/// Follows a reference and takes the first alternative of `T or null`.
fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let target = name.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(schema, |target| resolve(root, target));
    }
    let forms = schema.get("anyOf").and_then(Value::as_array);
    match forms.map(Vec::as_slice) {
        Some([form, null]) if null.get("type") == Some(&json!("null")) => resolve(root, form),
        _ => schema,
    }
}

fn kind(root: &Value, schema: &Value) -> String {
    let target = resolve(root, schema);
    let name = schema.get("$ref").or_else(|| schema.pointer("/anyOf/0/$ref")).and_then(Value::as_str);
    match name.and_then(|name| name.rsplit('/').next()) {
        Some("ByteSize") => return "size".to_owned(),
        Some("Duration") => return "duration".to_owned(),
        Some("Percent") => return "percentage".to_owned(),
        Some("Rate") => return "bytes a second".to_owned(),
        Some("Pairs") => return "map of texts".to_owned(),
        _ => {}
    }
    let words = |values: &Vec<Value>| {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let words: Vec<String> = values.iter().map(|value| format!("`{}`", word(value))).collect();
        words.join(", ")
    };
    if let Some(values) = target.get("enum").and_then(Value::as_array) {
        return words(values);
    }
    if let Some(forms) = target.get("oneOf").or_else(|| target.get("anyOf")).and_then(Value::as_array) {
        let constants: Vec<Value> = forms.iter().filter_map(|form| form.get("const").cloned()).collect();
        if constants.len() == forms.len() {
            return words(&constants);
        }
        let kinds: Vec<String> = forms.iter().map(|form| kind(root, form)).collect();
        return kinds.join(" or ");
    }
    if let Some(word) = target.get("const").and_then(Value::as_str) {
        return format!("`{word}`");
    }
    let name = match target.get("type") {
        Some(Value::Array(types)) => types.first().and_then(Value::as_str),
        other => other.and_then(Value::as_str),
    };
    match name {
        Some("array") => {
            let items = target.get("items").map(|items| kind(root, items)).unwrap_or_default();
            format!("list of {items}")
        }
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("integer" | "number") => "number".to_owned(),
        Some("object") if target.get("additionalProperties").is_some_and(Value::is_object) => {
            "by name".to_owned()
        }
        Some("object") => "map".to_owned(),
        _ => "text".to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deprecated::INVENTED;

    #[test]
    fn editors_learn_of_deprecated_keys() {
        let mut root = schema(&[]);
        add_deprecated(INVENTED, "", &mut root);
        let text = "Deprecated since 1.2: write `ca`. Ends in 2.0.";
        for pointer in
            ["/properties/threads", "/$defs/Upstream/properties/lb", "/$defs/UpstreamTls/properties/roots"]
        {
            let old = root.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
            assert_eq!(old["deprecated"], true, "{pointer}");
        }
        assert_eq!(root["$defs"]["UpstreamTls"]["properties"]["roots"]["description"], text);
        let mut filter = json!({ "properties": { "deny": { "type": "array" } } });
        add_deprecated(INVENTED, "filter.ip", &mut filter);
        assert_eq!(filter["properties"]["block"]["type"], "array");
        let mut other = json!({ "properties": { "deny": {} } });
        add_deprecated(INVENTED, "filter.ipx", &mut other);
        assert_eq!(other, json!({ "properties": { "deny": {} } }));
    }
}
