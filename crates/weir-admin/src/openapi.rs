//! `GET /api/v1/openapi.json`: the description of the API, generated from the table of calls, so that no call is
//! missing.

use crate::calls::{ALWAYS, CALLS, Call, Do, OTHERS};
use serde_json::{Map, Value, json};

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
            "watch" => json!({ "type": "string", "description": "watches it for so long, such as 5m, and takes it back if it is worse" }),
            "confirm" => json!({ "type": "string", "description": "takes it back unless it is confirmed within this time" }),
            "for" => json!({ "type": "string", "description": "for how long, such as 10m; an hour if absent" }),
            "after" | "cause" | "kind" | "limit" | "prefix" | "route" | "tag" | "url" => string.clone(),
            _ => json!({ "type": "boolean" }),
        };
        json!({ "name": name, "in": "query", "allowEmptyValue": true, "schema": schema })
    }));
    let headers: &[(&str, &str)] = match call.does {
        Do::Put => &[
            ("If-Match", "the ETag of the thing as you know it, or *"),
            ("If-None-Match", "* to make what is not there yet"),
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
        Do::Adopt | Do::Put | Do::Patch | Do::Delete | Do::Apply | Do::Release | Do::Rewrite | Do::RollBack
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
        Do::Revision => "Revision",
        Do::Revisions => "Revisions",
    }
}

const fn body_of(does: Do) -> &'static str {
    match does {
        Do::Apply | Do::Check | Do::CheckManaged | Do::Rewrite => "Things",
        Do::Explain => "Request",
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
        422 => "the config would have mistakes; all of them are told",
        428 => "If-Match or If-None-Match is needed",
        503 => "what has to be asked for it does not answer",
        507 => "it could not be written down; nothing has changed",
        _ => "a bug in Weir",
    }
}

fn schemas() -> Value {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let list =
        |of: &str| json!({ "type": "array", "items": { "$ref": format!("#/components/schemas/{of}") } });
    let revision = json!({
        "number": number, "hash": text, "parent": { "type": ["integer", "null"] }, "time": text, "author": text,
        "source": { "enum": ["api", "guard", "other", "reload", "rollback", "start", "watch"] },
        "message": text, "verdict": text, "changed": { "type": "array", "items": text },
    });
    let required = ["number", "hash", "time", "author", "source", "message", "verdict"];
    json!({
        "Problem": {
            "type": "object",
            "required": ["title", "status", "detail"],
            "properties": {
                "title": text, "status": number, "detail": text, "text": text, "place": text, "etag": text,
                "errors": number, "warnings": number, "diagnostics": list("Diagnostic"), "changed_by": list("Revision"),
            },
        },
        "Diagnostic": {
            "type": "object",
            "required": ["severity", "code", "path", "message"],
            "properties": {
                "severity": { "enum": ["error", "warning"] }, "code": text, "path": text, "message": text,
                "file": { "type": ["string", "null"] }, "line": { "type": ["integer", "null"] },
                "column": { "type": ["integer", "null"] }, "value": { "type": ["string", "null"] },
                "hint": { "type": ["string", "null"] },
            },
        },
        "Autopsies": {
            "type": "object",
            "required": ["found", "cursor", "held", "sample", "on"],
            "properties": {
                "found": { "type": "array", "items": { "type": "object" } }, "cursor": text, "held": number,
                "since": { "type": ["string", "null"] }, "sample": number, "on": { "type": "boolean" },
            },
        },
        "Endpoints": {
            "type": "object",
            "required": ["upstream", "endpoints"],
            "properties": { "upstream": text, "endpoints": { "type": "array", "items": { "type": "object" } } },
        },
        "Purged": {
            "type": "object",
            "required": ["store", "purged"],
            "properties": { "store": text, "purged": number },
        },
        "Turned": {
            "type": "object",
            "required": ["switch", "on", "until"],
            "properties": { "switch": text, "on": { "type": "boolean" }, "until": { "type": ["string", "null"] } },
        },
        "Difference": {
            "type": "object",
            "required": ["path"],
            "properties": { "path": text, "before": {}, "after": {} },
        },
        "Differences": {
            "type": "object",
            "required": ["differences", "more", "things", "text"],
            "properties": {
                "differences": list("Difference"), "more": number, "text": text,
                "things": { "type": "array", "items": text },
            },
        },
        "Changed": {
            "type": "object",
            "required": ["revision", "hash", "number", "dry_run", "differences", "touched", "warnings"],
            "properties": {
                "revision": text, "hash": text, "number": { "type": ["integer", "null"] },
                "dry_run": { "type": "boolean" }, "differences": list("Difference"), "more": number,
                "things": { "type": "array", "items": text }, "touched": { "$ref": "#/components/schemas/Touched" },
                "errors": number, "warnings": number, "diagnostics": list("Diagnostic"), "text": text,
                "unsaved": { "type": ["string", "null"], "description": "why it runs from memory only, where it could not be written down" },
                "drains": list("Drained"), "forgets": { "type": "array", "items": text },
            },
        },
        "Drained": {
            "type": "object",
            "required": ["listener", "connections"],
            "properties": { "listener": text, "connections": number },
        },
        "Touched": {
            "type": "object",
            "required": ["routes", "exchanges", "listeners", "connections"],
            "properties": {
                "routes": { "type": "array", "items": text }, "exchanges": number,
                "listeners": { "type": "array", "items": text }, "connections": number,
            },
        },
        "Checked": {
            "type": "object",
            "required": ["errors", "warnings", "diagnostics", "text"],
            "properties": { "errors": number, "warnings": number, "diagnostics": list("Diagnostic"), "text": text },
        },
        "Config": {
            "type": "object",
            "required": ["hash", "config"],
            "properties": { "hash": text, "config": { "type": "object" }, "origin": { "type": "object" } },
        },
        "Confirmed": { "type": "object", "required": ["number"], "properties": { "number": number } },
        "Managed": {
            "type": "object",
            "required": ["path", "text", "hidden"],
            "properties": { "path": text, "text": text, "hidden": number },
        },
        "Drift": {
            "type": "object",
            "required": ["drift", "running", "disk"],
            "properties": {
                "drift": { "type": "boolean" }, "running": text, "disk": { "type": ["string", "null"] },
                "latest": { "type": ["integer", "null"] }, "pinned": { "type": ["integer", "null"] },
                "why": { "type": ["string", "null"] }, "differences": list("Difference"), "text": text,
                "unsaved": { "type": ["string", "null"], "description": "why what runs is not on the disk" },
            },
        },
        "Moved": {
            "type": "object",
            "required": ["thing", "owner", "place", "text"],
            "properties": {
                "thing": text, "owner": { "enum": ["api", "both", "file"] }, "place": { "type": ["string", "null"] },
                "yaml": text, "text": text,
            },
        },
        "Revision": { "type": "object", "required": required, "properties": revision },
        "Revisions": {
            "type": "object",
            "required": ["running", "revisions"],
            "properties": {
                "running": { "type": ["integer", "null"] }, "revisions": list("Revision"),
                "pinned": { "type": ["integer", "null"] }, "why": { "type": ["string", "null"] },
            },
        },
        "Request": {
            "type": "object",
            "required": ["method", "url"],
            "properties": {
                "method": text, "url": text, "listener": text,
                "headers": { "type": "object", "additionalProperties": text },
            },
        },
        "Thing": { "type": "object", "description": "One named thing, as the config has it." },
        "Things": {
            "type": "object",
            "description": "Sections with named things, as a file of the config has them; null takes one away.",
            "additionalProperties": { "type": "object" },
        },
    })
}
