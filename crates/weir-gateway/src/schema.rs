//! The JSON Schema of the config with the built-in filters, for editors: `weir schema`.
//!
//! Expressions are texts for JSON Schema. The names of their variables and functions stand beside it: in the description
//! that an editor shows, as the snippets that it offers, and as data for other tools. They come from the tables of
//! weir-route and weir-expr, as docs/reference/expressions.md does.

use crate::{config, filters};
use serde_json::{Value, json};
use std::fmt::Write;
use weir_filter::expr::FUNCTIONS;
use weir_route::variables::{Bounds, Vocabulary};

/// The schema. Its definition `Expression` has the names that expressions know, beside the maps of a config.
pub fn schema() -> Value {
    let kinds: Vec<_> = filters::KINDS.iter().map(|kind| (kind.name, (kind.schema)())).collect();
    let mut root = config::schema(&kinds);
    if let Some(expression) = root.pointer_mut("/$defs/Expression").and_then(Value::as_object_mut) {
        let (variables, functions) = (variables(), functions());
        let text = expression.get("description").and_then(Value::as_str).unwrap_or_default();
        let described = description(text, &variables, &functions);
        expression.insert("description".to_owned(), described.into());
        // Keywords of editors: JSON Schema has none for what a text may begin with.
        expression.insert("defaultSnippets".to_owned(), snippets(&variables, &functions));
        expression.insert("x-variables".to_owned(), variables.into());
        expression.insert("x-functions".to_owned(), functions.into());
    }
    root
}

fn variables() -> Vec<Value> {
    let schema = Vocabulary::without_maps(Bounds { head_bytes: 32 * 1024, fields: 100 }).schema(None);
    let variable = |one: &weir_filter::expr::Variable| {
        json!({
            "name": one.name(),
            "type": one.ty().to_string(),
            "keyed": one.is_keyed(),
            "known_from": schema.phase_name(one.phase()),
            "description": one.what(),
        })
    };
    let mut all: Vec<Value> = schema.variables().map(variable).collect();
    all.push(json!({
        "name": "maps",
        "type": "text",
        "keyed": true,
        "known_from": "what its `of` reads",
        "description": "the value of a map of the config: `maps.NAME`",
    }));
    all.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    all
}

fn functions() -> Vec<Value> {
    let function = |one: &weir_filter::expr::Function| {
        json!({
            "name": one.name,
            "call": one.call(),
            "gives": one.gives.to_string(),
            "may_have_no_value": one.may_fail,
            "description": one.what,
        })
    };
    FUNCTIONS.iter().map(function).collect()
}

fn description(text: &str, variables: &[Value], functions: &[Value]) -> String {
    let mut out = format!("{text}\n\nVariables, each with the phase from which it is known:\n");
    for one in variables {
        let word = |key| one.get(key).and_then(Value::as_str).unwrap_or_default();
        let key = if one["keyed"] == true { "[\"…\"]" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "- `{}{key}`: {}; {}, {}",
            word("name"),
            word("description"),
            word("type"),
            word("known_from")
        );
    }
    let mut names: Vec<&str> = functions.iter().filter_map(|one| one["name"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let _ = write!(
        out,
        "\nFunctions: {}; macros over lists: all, exists, exists_one, filter, map; `a ?? b` is the first that is not empty.",
        names.join(", ")
    );
    out
}

/// What an editor offers. `$1` is where the cursor goes.
fn snippets(variables: &[Value], functions: &[Value]) -> Value {
    let variables = variables.iter().map(|one| {
        let name = one["name"].as_str().unwrap_or_default();
        let body = if one["keyed"] == true { format!("{name}[\"$1\"]") } else { name.to_owned() };
        json!({ "label": name, "description": one["description"], "body": body })
    });
    let functions = functions.iter().map(|one| {
        let call = one["call"].as_str().unwrap_or_default();
        let name = one["name"].as_str().unwrap_or_default();
        let body = if call.starts_with(name) { format!("{name}($1)") } else { format!("$1.{name}($2)") };
        json!({ "label": call, "description": one["description"], "body": body })
    });
    variables.chain(functions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_finds_the_names_of_expressions() {
        let schema = schema();
        let expression = &schema["$defs"]["Expression"];
        let named = |list: &str, key: &str, name: &str| {
            let list = expression[list].as_array().expect("a list");
            list.iter().find(|one| one[key] == name).unwrap_or_else(|| panic!("no {name}")).clone()
        };
        let headers = named("x-variables", "name", "request.headers");
        assert_eq!(
            (&headers["type"], &headers["keyed"], &headers["known_from"]),
            (&"text".into(), &true.into(), &"request".into())
        );
        assert_eq!(named("x-functions", "name", "startsWith")["call"], "text.startsWith(text)");
        let snippets = |label| named("defaultSnippets", "label", label)["body"].clone();
        assert_eq!(snippets("request.path"), "request.path");
        assert_eq!(snippets("request.headers"), "request.headers[\"$1\"]");
        assert_eq!(snippets("ip(text)"), "ip($1)");
        assert_eq!(snippets("text.startsWith(text)"), "$1.startsWith($2)");
        let description = expression["description"].as_str().expect("a text");
        assert!(description.contains("- `response.status`: the status; int, response\n"), "{description}");
        // Filters use the same definition.
        let filters = schema["$defs"]["Filter"].to_string();
        assert!(filters.contains("#/$defs/Expression"));
    }
}
