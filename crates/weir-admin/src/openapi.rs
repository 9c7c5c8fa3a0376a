//! `GET /api/v1/openapi.json`: the description of the API, generated from the table of calls, so that no call is
//! missing.

use crate::calls::{ALWAYS, CALLS, Call, Do, OTHERS};
use crate::documents;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use weir_gateway::history::{Drift, HistoryStatus};
use weir_gateway::shadow::ShadowReport;
use weir_gateway::{Moved, autopsy};

/// The description (OpenAPI 3.1).
pub(crate) fn document(version: &str) -> Value {
    let mut paths = Map::new();
    for call in CALLS.iter().chain(OTHERS) {
        let path = paths.entry(call.path).or_insert_with(|| json!({}));
        path[call.method.to_ascii_lowercase()] = operation(call);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir admin API",
            "version": version,
            "description": "Reads and changes the config of a running Weir. Errors are problem+json (RFC 9457).",
        },
        "paths": paths,
        "security": [ { "token": [] } ],
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas(),
        },
    })
}

fn operation(call: &Call) -> Value {
    let mut responses = Map::new();
    let mut statuses: Vec<u16> = call.statuses.iter().chain(ALWAYS).copied().collect();
    statuses.sort_unstable();
    for status in statuses {
        let (media, schema) = if status < 300 {
            ("application/json", answer_of(call.does))
        } else {
            ("application/problem+json", "Problem")
        };
        let content = json!({ media: { "schema": { "$ref": format!("#/components/schemas/{schema}") } } });
        responses.insert(status.to_string(), json!({ "description": describe(status), "content": content }));
    }
    let mut operation = json!({
        "summary": call.meaning,
        "description": format!("Needs the role {}.", call.role.name()),
        "parameters": parameters(call),
        "responses": responses,
    });
    if call.body > 0 {
        let schema = json!({ "$ref": format!("#/components/schemas/{}", body_of(call.does)) });
        let mut content =
            json!({ "application/json": { "schema": schema }, "application/yaml": { "schema": schema } });
        if call.does == Do::Patch {
            content["application/merge-patch+json"] = json!({ "schema": schema });
        }
        operation["requestBody"] = json!({ "required": call.does != Do::Check, "content": content });
    }
    operation
}

fn parameters(call: &Call) -> Vec<Value> {
    let string = json!({ "type": "string" });
    let in_path = call.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let mut all: Vec<Value> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": string }))
        .collect();
    all.extend(call.query.iter().map(|name| {
        let schema = match *name {
            "watch" => json!({ "type": "string", "description": "watches the change for this time, such as 5m, and reverts it if it is worse" }),
            "confirm" => json!({ "type": "string", "description": "reverts the change unless it is confirmed within this time" }),
            "for" => json!({ "type": "string", "description": "for how long, such as 10m; an hour if absent" }),
            "after" | "cause" | "kind" | "limit" | "prefix" | "route" | "tag" | "url" => string.clone(),
            _ => json!({ "type": "boolean" }),
        };
        json!({ "name": name, "in": "query", "allowEmptyValue": true, "schema": schema })
    }));
    let headers: &[(&str, &str)] = match call.does {
        Do::Put => &[
            ("If-Match", "the ETag of the thing as you know it, or *"),
            ("If-None-Match", "* to create something new"),
        ],
        Do::Patch | Do::Delete => &[("If-Match", "the ETag of the thing as you know it, or *")],
        Do::Apply => &[("If-Match", "the ETag of the whole config as you know it")],
        Do::CheckManaged | Do::Rewrite => &[("If-Match", "the ETag of the text as you know it, or *")],
        _ => &[],
    };
    all.extend(
        headers.iter().map(
            |(name, text)| json!({ "name": name, "in": "header", "description": text, "schema": string }),
        ),
    );
    if matches!(
        call.does,
        Do::Adopt
            | Do::Put
            | Do::Patch
            | Do::Delete
            | Do::Apply
            | Do::Release
            | Do::Rewrite
            | Do::RollBack
            | Do::ShadowPromote
    ) {
        let text = "why, for the history";
        all.push(json!({ "name": "X-Weir-Message", "in": "header", "description": text, "schema": string }));
    }
    all
}

const fn answer_of(does: Do) -> &'static str {
    match does {
        Do::Adopt | Do::Release => "Moved",
        Do::Apply | Do::Delete | Do::Patch | Do::Put | Do::Rewrite | Do::RollBack => "Changed",
        Do::Check | Do::CheckManaged => "Checked",
        Do::Compare => "Differences",
        Do::Config => "Config",
        Do::Confirm => "Confirmed",
        Do::Describe | Do::Explain | Do::Fleet | Do::Get => "Thing",
        Do::Drift => "Drift",
        Do::Endpoint => "Endpoints",
        Do::Maintenance => "Turned",
        Do::Purge => "Purged",
        Do::Why => "Autopsies",
        Do::Managed => "Managed",
        Do::Shadow | Do::ShadowEnd | Do::ShadowReport => "Shadow",
        Do::ShadowPromote => "Changed",
        Do::Revision => "Revision",
        Do::Revisions => "Revisions",
    }
}

const fn body_of(does: Do) -> &'static str {
    match does {
        Do::Apply | Do::Check | Do::CheckManaged | Do::Rewrite => "Things",
        Do::Explain => "Request",
        Do::Shadow => "Candidate",
        _ => "Thing",
    }
}

const fn describe(status: u16) -> &'static str {
    match status {
        200 => "done",
        201 => "made",
        400 => "the request is malformed",
        401 => "a token is needed",
        403 => "not with this role, or not from there",
        404 => "there is no such thing",
        405 => "the path is for other methods",
        408 => "the body did not arrive in time",
        409 => "somebody else owns it, or others need it",
        412 => "it has changed since",
        413 => "the body is too large",
        415 => "the body is neither JSON nor YAML",
        422 => "the config would have mistakes; the answer lists all of them",
        428 => "If-Match or If-None-Match is needed",
        503 => "a service that the answer needs did not respond",
        507 => "it could not be written down; nothing has changed",
        _ => "a bug in Weir",
    }
}

/// The schemas: of what is answered, by its types; of what is sent, which is read as a tree, and of problems, whose
/// members depend on the problem, written here.
fn schemas() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator =
        settings.with(|all| all.definitions_path = "/components/schemas".into()).into_generator();
    generator.subschema_for::<documents::Changed<'_>>();
    generator.subschema_for::<documents::Checked<'_>>();
    generator.subschema_for::<documents::Compared>();
    generator.subschema_for::<documents::Config>();
    generator.subschema_for::<documents::Confirmed>();
    generator.subschema_for::<documents::Endpoints>();
    generator.subschema_for::<documents::Managed>();
    generator.subschema_for::<documents::Purged>();
    generator.subschema_for::<documents::Turned>();
    generator.subschema_for::<autopsy::Answer>();
    generator.subschema_for::<Drift>();
    generator.subschema_for::<HistoryStatus>();
    generator.subschema_for::<Moved>();
    generator.subschema_for::<ShadowReport>();
    let mut schemas = generator.take_definitions(true);
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let list =
        |of: &str| json!({ "type": "array", "items": { "$ref": format!("#/components/schemas/{of}") } });
    let by_hand = [
        (
            "Problem",
            json!({
                "type": "object",
                "required": ["title", "status", "detail"],
                "properties": {
                    "title": text, "status": number, "detail": text, "text": text, "place": text, "etag": text,
                    "errors": number, "warnings": number, "diagnostics": list("Diagnostic"),
                    "changed_by": list("Revision"),
                },
            }),
        ),
        (
            "Request",
            json!({
                "type": "object",
                "required": ["method", "url"],
                "properties": {
                    "method": text, "url": text, "listener": text,
                    "headers": { "type": "object", "additionalProperties": text },
                },
            }),
        ),
        (
            "Candidate",
            json!({
                "type": "object",
                "required": ["files"],
                "properties": {
                    "files": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name", "text"],
                            "properties": { "name": text, "text": text },
                        },
                    },
                    "sample": text, "for": text, "max_change": text, "min_judged": number,
                },
            }),
        ),
        ("Thing", json!({ "type": "object", "description": "One named entry, as in the config." })),
        (
            "Things",
            json!({
                "type": "object",
                "description":
                    "Sections with named entries, as in a config file; null removes one.",
                "additionalProperties": { "type": "object" },
            }),
        ),
    ];
    schemas.extend(by_hand.map(|(name, schema)| (name.to_owned(), schema)));
    schemas
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_gateway::Status;
    use weir_testkit::{fields_of, golden_list};

    /// Every schema that is named, wherever it is.
    fn named<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        found.extend(value.get("$ref").and_then(Value::as_str));
        let values = value.as_array().into_iter().flatten();
        values
            .chain(value.as_object().into_iter().flat_map(Map::values))
            .for_each(|inner| named(inner, found));
    }

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = document("1");
        let mut found = Vec::new();
        named(&document, &mut found);
        assert!(found.contains(&"#/components/schemas/Autopsy"), "{found:?}");
        for name in found {
            assert!(document.pointer(name.trim_start_matches('#')).is_some(), "{name}");
        }
    }

    /// The description has no `GET /status`, which is not below `/api/v1`. Its fields are public all the same.
    #[test]
    fn fields_of_status() {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let schema = generator.into_root_schema_for::<Status>();
        golden_list("status", "GET /status", &fields_of(schema.as_value()));
    }
}
