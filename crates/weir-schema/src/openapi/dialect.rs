//! Turns the schemas of an OpenAPI document into JSON Schema 2020-12, as they count in one direction.
//!
//! OpenAPI 3.1 has such schemas. 3.0 has its own: `nullable`, and `exclusiveMinimum: true` beside a `minimum`. In both,
//! a property that is `readOnly` need not be sent in requests, and one that is `writeOnly` not in answers, although it
//! stands in `required`.

use crate::documents::{DATA, NAMED};
use serde_json::{Map, Value};

/// The version of a document, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// 3.0.
    Old,
    /// 3.1 and 3.2.
    New,
}

/// Which messages schemas are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Answer,
    Request,
}

/// Changes every schema in a document.
pub(super) fn translate(value: &mut Value, version: Version, direction: Direction) {
    walk(value, false, &|schema| {
        if version == Version::Old {
            modernize(schema);
        }
        bound(schema);
        relax(schema, direction);
    });
}

/// Visits everything that may be a schema. `is_named`: the keys of this object are names that the author chose.
fn walk(value: &mut Value, is_named: bool, change: &dyn Fn(&mut Map<String, Value>)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, false, change)),
        Value::Object(entries) => {
            if !is_named {
                change(entries);
            }
            for (key, value) in entries.iter_mut() {
                if is_named || !(DATA.contains(&key.as_str()) || key.starts_with("x-")) {
                    walk(value, !is_named && NAMED.contains(&key.as_str()), change);
                }
            }
        }
        _ => {}
    }
}

fn modernize(schema: &mut Map<String, Value>) {
    if schema.get("$ref").is_some_and(Value::is_string) {
        schema.retain(|key, _| key == "$ref"); // OpenAPI 3.0.4, §4.7.23: all else beside it is ignored
        return;
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        let kind = schema.get("type").and_then(Value::as_str).map(|kind| vec![kind.into(), "null".into()]);
        if let Some(kinds) = kind {
            schema.insert("type".to_owned(), Value::Array(kinds));
            if let Some(Value::Array(options)) = schema.get_mut("enum") {
                options.push(Value::Null);
                options.dedup();
            }
        }
    }
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match schema.get(exclusive) {
            Some(Value::Bool(true)) => {
                schema.remove(exclusive);
                if let Some(limit) = schema.remove(limit) {
                    schema.insert(exclusive.to_owned(), limit);
                }
            }
            Some(Value::Bool(false)) => {
                schema.remove(exclusive);
            }
            _ => {}
        }
    }
}

/// Formats of numbers, which JSON Schema has none of.
fn bound(schema: &mut Map<String, Value>) {
    let bounds = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        Some("int64") => (i64::MIN, i64::MAX),
        _ => return,
    };
    for (limits, bound) in
        [(["minimum", "exclusiveMinimum"], bounds.0), (["maximum", "exclusiveMaximum"], bounds.1)]
    {
        if limits.iter().all(|limit| !schema.contains_key(*limit)) {
            schema.insert(limits[0].to_owned(), bound.into());
        }
    }
}

fn relax(schema: &mut Map<String, Value>, direction: Direction) {
    let unsent = match direction {
        Direction::Answer => "writeOnly",
        Direction::Request => "readOnly",
    };
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    let is_unsent = |name: &Value| {
        let property = name.as_str().and_then(|name| properties.get(name));
        property.and_then(|property| property.get(unsent)) == Some(&Value::Bool(true))
    };
    let Some(Value::Array(required)) = schema.get("required") else { return };
    let left: Vec<_> = required.iter().filter(|name| !is_unsent(name)).cloned().collect();
    schema.insert("required".to_owned(), Value::Array(left));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_become_those_of_2020() {
        for (version, from, to) in [
            (
                Version::Old,
                json!({ "type": "string", "nullable": true, "enum": ["a"] }),
                json!({ "type": ["string", "null"], "nullable": true, "enum": ["a", null] }),
            ),
            (
                Version::Old,
                json!({ "minimum": 5, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false }),
                json!({ "exclusiveMinimum": 5, "maximum": 9 }),
            ),
            (Version::Old, json!({ "$ref": "#/a", "nullable": true }), json!({ "$ref": "#/a" })),
            (
                Version::New,
                json!({ "$ref": "#/a", "minLength": 1 }),
                json!({ "$ref": "#/a", "minLength": 1 }),
            ),
            (
                Version::New,
                json!({ "type": "integer", "format": "int32", "minimum": 0 }),
                json!({ "type": "integer", "format": "int32", "minimum": 0, "maximum": 2_147_483_647 }),
            ),
            (
                Version::New,
                json!({ "required": ["id", "a"], "properties": { "id": { "readOnly": true }, "a": {} } }),
                json!({ "required": ["a"], "properties": { "id": { "readOnly": true }, "a": {} } }),
            ),
            // A property may have any name, and an example is no schema.
            (
                Version::Old,
                json!({ "properties": { "$ref": { "type": "integer" }, "nullable": {}, "default": { "minimum": 1, "exclusiveMinimum": true } } }),
                json!({ "properties": { "$ref": { "type": "integer" }, "nullable": {}, "default": { "exclusiveMinimum": 1 } } }),
            ),
            (
                Version::Old,
                json!({ "example": { "type": "a", "nullable": true } }),
                json!({ "example": { "type": "a", "nullable": true } }),
            ),
        ] {
            let mut value = from.clone();
            translate(&mut value, version, Direction::Request);
            assert_eq!(value, to, "{from}");
        }
    }
}
