//! The OpenAPI description agrees with the router.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use serde_json::{Value, json};
use weir_transcode::{Api, Choice, JsonOptions, Limits, Lookup, sources};

fn described() -> (Api, Value) {
    let pool = sources::from_source("library.proto", include_str!("library.proto")).unwrap();
    let choice = Choice { unannotated: true, ..Choice::default() };
    let api = Api::new(&pool, &choice, JsonOptions::default(), Limits::default()).unwrap();
    let text = api.openapi(None);
    (api, serde_json::from_str(&text).unwrap())
}

#[test]
fn every_path_that_is_described_is_bound() {
    let (api, described) = described();
    let paths = described["paths"].as_object().unwrap();
    assert!(paths.len() >= 10, "{paths:?}");
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            let mut filled = path.clone();
            for parameter in operation["parameters"].as_array().unwrap() {
                let name = parameter["name"].as_str().unwrap();
                filled = filled.replace(&format!("{{{name}}}"), "x");
                assert_eq!(parameter["in"] == "path", path.contains(&format!("{{{name}}}")), "{path} {name}");
            }
            assert!(!filled.contains('{'), "{path}: every part has a parameter");
            let found = api.find(&method.to_ascii_uppercase(), filled.as_bytes());
            assert!(matches!(found, Lookup::Call(_)), "{method} {filled}: {found:?}");
        }
    }
}

#[test]
fn operations_say_what_they_take() {
    let (_, described) = described();
    assert_eq!(described["openapi"], "3.1.0");
    assert_eq!(described["info"]["title"], "library.v1.Library");
    let get = &described["paths"]["/v1/shelves/{name_1}/books/{name_2}"]["get"];
    assert_eq!(get["operationId"], "library_v1_Library_GetBook");
    assert_eq!(get["summary"], "Gets one book.");
    let answer = &get["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(answer, &json!({ "$ref": "#/components/schemas/library.v1.Book" }));
    let list = &described["paths"]["/v1/books"]["get"]["parameters"];
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"pageSize") && names.contains(&"filter.not.title"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("labels")), "a map is not a parameter: {names:?}");
    let create = &described["paths"]["/v1/shelves/{parent}/books"]["post"];
    let body = &create["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(body, &json!({ "$ref": "#/components/schemas/library.v1.Book" }));
    let watch = &described["paths"]["/v1/books:watch"]["get"]["responses"]["200"]["content"];
    assert!(watch["text/event-stream"].is_object() && watch["application/x-ndjson"].is_object());
    let raw = &described["paths"]["/v1/raw"]["post"]["requestBody"]["content"];
    assert!(raw["*/*"].is_object(), "{raw}");
}

#[test]
fn types_are_those_of_the_json() {
    let (_, described) = described();
    let schemas = described["components"]["schemas"].as_object().unwrap();
    let of = |field: &str| schemas["library.v1.Everything"]["properties"][field].clone();
    assert_eq!(of("anInt64"), json!({ "type": "string", "format": "int64" }));
    assert_eq!(of("anEnum"), json!({ "type": "string", "enum": ["GENRE_UNSPECIFIED", "POETRY", "PROSE"] }));
    assert_eq!(
        of("byNumber"),
        json!({ "type": "object", "additionalProperties": { "$ref": "#/components/schemas/library.v1.Inner" } })
    );
    assert_eq!(
        of("manyInt32"),
        json!({ "type": "array", "items": { "type": "integer", "format": "int32" } })
    );
    assert_eq!(of("at"), json!({ "type": "string", "format": "date-time" }));
    assert_eq!(of("wrappedInt32"), json!({ "type": "integer", "format": "int32" }));
    let text = described.to_string();
    for at in text.match_indices("#/components/schemas/") {
        let name = text[at.0 + at.1.len()..].split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is referred to, and not there");
    }
}
