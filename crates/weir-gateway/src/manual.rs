//! `docs/reference/filters.md`, generated from the declarations that also parse the settings.
//!
//! A test compares the page with the generated text; run it with `WEIR_BLESS=1` to update the page.

use crate::config::deprecated::DEPRECATED;
use crate::config::reference;
use crate::filter::FilterKind;
use crate::filters::KINDS;
use serde_json::Value;
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Filters

<!-- Made from the source by the test `the_page_is_up_to_date`; WEIR_BLESS=1 writes it anew. -->

A filter is one step on the way of a request and its response. Filters stand under `filters:` of a route, of a plan (for
the consumers that have it) or of the whole config (for every route, before its own). They run in the order written; on
the response in reverse. `weir filters NAME` prints a section of this page, `weir explain` the settings that a route's
filters really have.

## Placeholders

Texts of `headers`, `redirect` and `rewrite` may hold placeholders:

| placeholder | stands for |
|---|---|
| `{authority}` | host and port as the client asked for them |
| `{client}` | the client's address |
| `{consumer}` | the consumer's name, after a filter such as `key_auth` said who calls; else nothing |
| `{host}` | the host without its port |
| `{method}` | the method |
| `{path}` | the path as it is when the filter runs, in canonical form |
| `{query}` | the query without `?` |
| `{request_id}` | the id that `request_id` gave; else nothing |
| `{route}` | the name of the route |
| `{scheme}` | `http` or `https`, as the client's connection is |
| `{tls_client_fingerprint}` | SHA-256 of the client's certificate, in lower-case hexadecimal digits; nothing if it showed none |
| `{tls_client_san}` | its alternative names with their kinds, separated by commas: `dns:shop.internal,uri:spiffe://a/b` |
| `{tls_client_subject}` | its subject as RFC 4514 writes it: `CN=shop,O=Example` |
| `{NAME}` | what the route's path captures under that name, in canonical form: `/users/{id}`, `/files/{rest*}`; `{1}` is the first group of a `~regex`, if it has no name |

On a route, a capture hides a placeholder of the same name, and a name that is neither is a mistake. Under `filters` and in
plans, where the route is known for each request only, a capture that a route does not have stands for nothing. `{{` and
`}}` are braces.
";

/// The whole page.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for kind in KINDS {
        page.push('\n');
        page.push_str(&section(kind));
    }
    page
}

/// The section of one filter, in Markdown: its purpose, its settings and its causes.
pub fn section(kind: &FilterKind) -> String {
    let mut schema = (kind.schema)().to_value();
    reference::add_deprecated(DEPRECATED, &format!("filter.{}", kind.name), &mut schema);
    let mut out = format!("## {}\n", kind.name);
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let _ = write!(out, "\n{}\n", description.trim()); // a String takes everything
    out.push_str("\n| setting | type | default | meaning |\n|---|---|---|---|\n");
    rows(&schema, &schema, "", &mut out);
    if kind.causes.is_empty() {
        return out;
    }
    out.push_str("\n| cause | status | meaning | what changes it |\n|---|---|---|---|\n");
    for cause in kind.causes {
        let (code, status) = (cause.code, cause.status);
        let _ = writeln!(out, "| `{code}` | {status} | {} | {} |", cause.meaning, cell(cause.change));
    }
    out
}

/// A row for each setting, including nested settings.
fn rows(root: &Value, object: &Value, prefix: &str, out: &mut String) {
    let required = object.get("required").and_then(Value::as_array);
    let properties = object.get("properties").and_then(Value::as_object);
    // A map whose names people choose.
    let named = object.get("additionalProperties").map(|named| resolve(root, named));
    if let Some(named) = named.filter(|named| named.get("properties").is_some()) {
        rows(root, named, &format!("{prefix}NAME."), out);
    }
    for (name, property) in properties.into_iter().flatten() {
        let target = resolve(root, property);
        let key = format!("{prefix}{name}");
        let text = |v: &Value| v.get("description").and_then(Value::as_str).map(cell);
        let meaning = text(property).or_else(|| text(target)).unwrap_or_default();
        let nested = target.get("properties").is_some();
        let is_required = required.is_some_and(|r| r.iter().any(|r| r == name));
        let default = match property.get("default") {
            _ if is_required => "required".to_owned(),
            None | Some(Value::Null) => "none".to_owned(),
            Some(_) if nested => String::new(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(value) => format!("`{value}`"),
        };
        let kind = if nested { "settings".to_owned() } else { type_of(root, property) };
        let _ = writeln!(out, "| `{key}` | {kind} | {default} | {meaning} |");
        if nested {
            rows(root, target, &format!("{key}."), out);
        }
    }
}

/// The target of a `$ref`, or the value itself.
fn resolve<'a>(root: &'a Value, value: &'a Value) -> &'a Value {
    let target = value.get("$ref").and_then(Value::as_str);
    target.and_then(|t| root.pointer(t.trim_start_matches('#'))).unwrap_or(value)
}

fn type_of(root: &Value, value: &Value) -> String {
    if let Some(options) = value.get("anyOf").and_then(Value::as_array) {
        let some = options.iter().find(|o| o.get("type").and_then(Value::as_str) != Some("null"));
        return some.map_or_else(String::new, |some| type_of(root, some));
    }
    if let Some(name) = value.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next()) {
        match name {
            "ByteSize" => return "size".to_owned(),
            "Duration" => return "duration".to_owned(),
            "Filter" => return "filter".to_owned(),
            "HeaderName" => return "header name".to_owned(),
            "JsonTemplate" => return "JSON".to_owned(),
            _ => {}
        }
    }
    let value = resolve(root, value);
    if let Some(constant) = value.get("const") {
        return shown(constant);
    }
    if let Some(options) = value.get("anyOf").and_then(Value::as_array) {
        let all: Vec<String> = options.iter().map(|option| type_of(root, option)).collect();
        return all.join(" or ");
    }
    let constants =
        value.get("oneOf").and_then(Value::as_array).map(|all| all.iter().filter_map(|o| o.get("const")));
    let names: Vec<String> = match (value.get("enum").and_then(Value::as_array), constants) {
        (Some(all), _) => all.iter().map(shown).collect(),
        (_, Some(constants)) => constants.map(shown).collect(),
        _ => Vec::new(),
    };
    if !names.is_empty() {
        return names.join(", ");
    }
    let types = match value.get("type") {
        Some(Value::Array(types)) => types.iter().find_map(|t| t.as_str().filter(|t| *t != "null")),
        Some(Value::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match types {
        Some("string") => match value.get("examples").and_then(Value::as_array) {
            Some(examples) => examples.iter().map(shown).collect::<Vec<_>>().join(", "),
            None => "text".to_owned(),
        },
        Some("integer") => "number".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("array") => {
            let items = value.get("items").map_or_else(String::new, |i| type_of(root, i));
            if items == "settings" { format!("list of {items}") } else { format!("list of {items}s") }
        }
        Some("object") if value.get("properties").is_some() => "settings".to_owned(),
        Some("object") => {
            let values = value.get("additionalProperties").map(|values| type_of(root, values));
            let values = values.filter(|values| !values.is_empty()).unwrap_or_else(|| "text".to_owned());
            format!("map of names to {values}s")
        }
        other => other.unwrap_or_default().to_owned(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse::parse;
    use crate::config::{Diagnostics, de};
    use crate::filter::Consumer;
    use crate::testing::Stand;
    use std::path::Path;

    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/filters.md");
        if std::env::var_os("WEIR_BLESS").is_some_and(|bless| !bless.is_empty()) {
            std::fs::write(path, page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/reference/filters.md is out of date: run this test with WEIR_BLESS=1"
        );
    }

    #[test]
    fn every_setting_is_explained() {
        for row in page().lines().filter(|line| line.starts_with("| `")) {
            assert!(!row.contains("|  |") || row.contains("| settings |"), "{row}");
        }
    }

    #[test]
    fn every_example_can_be_built() {
        for kind in KINDS {
            let section = section(kind);
            let (_, rest) =
                section.split_once("```yaml\n").unwrap_or_else(|| panic!("{}: no example", kind.name));
            let (example, _) = rest.split_once("```").unwrap();
            let mut found = Diagnostics::default();
            let node = parse(example, Path::new("filters.yaml"), &mut found).unwrap();
            let filters: Vec<serde_json::Map<String, Value>> = de::read(&node, "", &mut found).unwrap();
            for filter in filters {
                let (name, mut settings) = filter.into_iter().next().unwrap();
                assert_eq!(name, kind.name);
                let has_file = matches!(&*name, "basic_auth" | "redirects");
                for key in ["openapi", "schema"].into_iter().chain(has_file.then_some("file")) {
                    if let Some(Value::String(file)) = settings.get_mut(key) {
                        file.insert_str(0, "tests/filters/");
                    }
                }
                let signs = r#"{"key_id":"k","algorithm":"hmac-sha256","key":"a secret of thirty-two bytes or more"}"#;
                let hash = "ann:$2b$04$abcdefghijklmnopqrstuuVXkQ1XGcWDYWvnTZOHgmkQlD1vc4Suu";
                let known = [
                    ("basic_auth", hash),
                    ("jwt", "k"),
                    ("key_auth", "k"),
                    ("mtls_auth", "dns:shop"),
                    ("signature_auth", signs),
                ];
                let credentials =
                    known.map(|(filter, told)| (filter.to_owned(), vec![told.to_owned()])).into();
                let labels = ["plan:gold", "group:trial"].map(str::to_owned).to_vec();
                let consumer = Consumer {
                    name: "shop".to_owned(),
                    labels: labels.into(),
                    credentials,
                    ..Consumer::default()
                };
                let stand = Stand::new(kind, settings).kinds(KINDS).path("/api/{rest*}");
                let stand = ["auth", "next", "pages", "processor"].into_iter().fold(stand, Stand::upstream);
                let stand = stand.memory("pages", 1 << 24);
                stand.consumer(consumer).build();
            }
        }
    }
}
