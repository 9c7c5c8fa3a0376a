//! Schemas that refer to themselves: what fits is found, and what would take exponential time ends.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::path::Path;
use weir_schema::Schema;
use weir_schema::json::{Limits, parse};

const LIMITS: Limits = Limits { depth: 127, values: 1 << 20 };

fn check(schema: &str, document: &str) -> Result<(), String> {
    let mut read = |_: &Path| Ok(schema.as_bytes().to_vec());
    let schema = Schema::load(Path::new("s.json"), &mut read).unwrap_or_else(|e| panic!("{schema}: {e:?}"));
    let document = parse(document.as_bytes(), LIMITS).unwrap();
    schema
        .check(&document)
        .map_err(|faults| faults.iter().map(|f| f.to_text()).collect::<Vec<_>>().join("; "))
}

/// A document nested `depth` deep.
fn nested(depth: usize, leaf: &str) -> String {
    format!("{}{leaf}{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

#[test]
fn alternatives_that_contain_themselves_end() {
    let this = r##"{ "$ref": "#/$defs/t" }"##;
    for (schema, leaf) in [
        (
            r##"{ "$defs": { "t": { "anyOf": [ { "type": "object", "properties": { "a": THIS } },
               { "type": "object", "properties": { "a": THIS }, "additionalProperties": false }, { "type": "null" } ] } }, "$ref": "#/$defs/t" }"##,
            "null",
        ),
        // Cheap to refuse, but not to say why.
        (
            r##"{ "$defs": { "t": { "anyOf": [ { "required": ["b"], "properties": { "a": THIS } },
               { "required": ["c"], "properties": { "a": THIS } }, { "type": "null" } ] } }, "$ref": "#/$defs/t" }"##,
            "{\"b\":1}",
        ),
        (
            r##"{ "$defs": { "t": { "properties": { "a": THIS }, "patternProperties": { "^a$": THIS }, "type": ["object", "null"] } }, "$ref": "#/$defs/t" }"##,
            "null",
        ),
        (
            r##"{ "$schema": "http://json-schema.org/draft-07/schema#", "$defs": { "t": { "oneOf": [ { "properties": { "a": THIS } }, { "properties": { "a": THIS } } ] } }, "$ref": "#/$defs/t" }"##,
            "null",
        ),
        (
            r##"{ "$defs": { "t": { "$anchor": "t", "allOf": [ { "properties": { "a": { "$ref": "#t" } } }, { "properties": { "a": { "$dynamicRef": "#t" } } } ], "not": { "const": 1 } } }, "$ref": "#t" }"##,
            "null",
        ),
    ] {
        let schema = schema.replace("THIS", this);
        let _ = check(&schema, leaf);
        for depth in [30, 60, 120] {
            let _ = check(&schema, &nested(depth, "1"));
            let _ = check(&schema, &nested(depth, leaf));
        }
    }
}

#[test]
fn a_budget_leaves_room_for_what_is_right() {
    let tree = r##"{ "$defs": { "node": { "oneOf": [
        { "type": "object", "required": ["leaf"], "properties": { "leaf": { "type": "integer" } }, "additionalProperties": false },
        { "type": "object", "required": ["all"], "properties": { "all": { "type": "array", "items": { "$ref": "#/$defs/node" } } }, "additionalProperties": false } ] } },
        "$ref": "#/$defs/node" }"##;
    let leaves = vec!["{\"leaf\":1}"; 2000].join(",");
    assert_eq!(check(tree, &format!("{{\"all\":[{leaves}]}}")), Ok(()));
    let deep = format!("{}{{\"leaf\":1}}{}", "{\"all\":[".repeat(50), "]}".repeat(50));
    assert_eq!(check(tree, &deep), Ok(()));
    assert!(check(tree, r#"{"all":[{"leaf":"a"}]}"#).unwrap_err().contains("oneOf"));
    // A reference with siblings, which count since 2019-09.
    let list = r##"{ "type": "object", "properties": { "next": { "$ref": "#", "required": ["v"] } } }"##;
    assert_eq!(check(list, r#"{"next":{"v":1,"next":{"v":2}}}"#), Ok(()));
    assert_eq!(
        check(list, r#"{"next":{"v":1,"next":{}}}"#),
        Err("body /next/next: \"v\" is a required property".to_owned())
    );
}
