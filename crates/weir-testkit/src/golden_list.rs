//! Lists of public names in `crates/weirgate/tests/public/`, and the names that a JSON Schema defines.
//!
//! `WEIR_BLESS=1` adds a new name. Removing or changing a name breaks users, so it takes an edit of the list by hand:
//! the reviewer sees the removed line, beside the one in CHANGELOG.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// Fails unless the list has exactly these names. `WEIR_BLESS=1` adds what is new, and removes nothing. `source` says
/// where the names come from.
#[track_caller]
pub fn golden_list(list: &str, source: &str, names: &BTreeSet<String>) {
    assert!(names.len() > 10, "{source} has only {} names: did its form change?", names.len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../weirgate/tests/public/{list}.txt"));
    let listed: BTreeSet<String> =
        fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    let (all, wrong) = change(&listed, names);
    let bless = std::env::var_os("WEIR_BLESS").is_some_and(|bless| !bless.is_empty());
    if bless {
        fs::write(&path, all.into_iter().map(|name| name + "\n").collect::<String>()).unwrap();
    }
    let is_gone = wrong.iter().any(|line| line.starts_with('-'));
    assert!(
        wrong.is_empty() || (bless && !is_gone),
        "public/{list}.txt and {source} differ:\n  {}\n\
         `+`: WEIR_BLESS=1 adds it. `-`: somebody may use it, see \"How a key is deprecated\" in versions.md; if it must \
         go or change, remove its line from the list by hand and write it into CHANGELOG.md.",
        wrong.join("\n  ")
    );
}

/// The list with new names added and none removed, and the differences.
fn change(listed: &BTreeSet<String>, now: &BTreeSet<String>) -> (BTreeSet<String>, Vec<String>) {
    let gone = listed.difference(now).map(|name| format!("- {name}"));
    let new = now.difference(listed).map(|name| format!("+ {name}"));
    (listed.union(now).cloned().collect(), gone.chain(new).collect())
}

/// The names of a JSON Schema, or of the schemas in an OpenAPI document: `TYPE.FIELD: FORM` for each field, and
/// `TYPE.FIELD = VALUE` for each fixed value.
pub fn fields_of(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Some(title) = schema["title"].as_str() {
        walk(title, schema, &mut found);
    }
    let types = ["/$defs", "/components/schemas"].into_iter().filter_map(|place| schema.pointer(place));
    for (name, defined) in types.filter_map(Value::as_object).flat_map(Map::iter) {
        walk(name, defined, &mut found);
    }
    found
}

fn walk(at: &str, schema: &Value, found: &mut BTreeSet<String>) {
    if !schema.is_object() {
        return;
    }
    for (name, field) in schema["properties"].as_object().into_iter().flat_map(Map::iter) {
        let at = format!("{at}.{name}");
        found.insert(format!("{at}: {}", form(field)));
        walk(&at, field, found);
    }
    for (within, below) in [("items", "[]"), ("additionalProperties", ".NAME")] {
        walk(&format!("{at}{below}"), &schema[within], found);
    }
    for choice in ["allOf", "anyOf", "oneOf"] {
        schema[choice].as_array().into_iter().flatten().for_each(|one| walk(at, one, found));
    }
    let fixed = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    found.extend(fixed.map(|value| format!("{at} = {value}")));
}

/// What a field holds, such as `integer|null`, `[Row]` or the name of a type.
fn form(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    let forms: BTreeSet<String> = match &schema["type"] {
        Value::String(one) if one == "array" => [format!("[{}]", form(&schema["items"]))].into(),
        Value::String(one) => [one.clone()].into(),
        Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => ["anyOf", "oneOf"]
            .into_iter()
            .filter_map(|choice| schema[choice].as_array())
            .flatten()
            .map(form)
            .collect(),
    };
    if forms.is_empty() { "any".to_owned() } else { forms.into_iter().collect::<Vec<_>>().join("|") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_removed_name_is_no_matter_of_blessing() {
        let (kept, wrong) =
            change(&["a", "b"].map(str::to_owned).into(), &["b", "c"].map(str::to_owned).into());
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(wrong, ["- a", "+ c"]);
    }

    #[test]
    fn every_field_of_a_schema_is_named() {
        let schema = json!({
            "title": "Report",
            "type": "object",
            "properties": {
                "rows": { "type": "array", "items": { "$ref": "#/$defs/Row" } },
                "kind": { "oneOf": [ { "const": "load" }, { "type": "null" } ] },
                "more": { "type": "object", "additionalProperties": { "properties": { "a": { "type": "string" } } } },
            },
            "$defs": {
                "Row": { "properties": { "n": { "type": ["integer", "null"] }, "any": true } },
            },
        });
        let fields: Vec<String> = fields_of(&schema).into_iter().collect();
        assert_eq!(
            fields,
            [
                "Report.kind = \"load\"",
                "Report.kind: any|null",
                "Report.more.NAME.a: string",
                "Report.more: object",
                "Report.rows: [Row]",
                "Row.any: any",
                "Row.n: integer|null",
            ]
        );
    }
}
