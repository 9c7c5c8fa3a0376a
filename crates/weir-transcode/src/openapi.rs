//! Describes an API in OpenAPI 3.1, from the same rules that match requests and the same JSON mapping.

use crate::api::Api;
use crate::binding::{Binding, BodyOf, Method};
use crate::schema::{Field, Kind, Known, Message, Shape};
use crate::template::Segment;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// How deep nested messages are searched for query parameters: a type may contain itself.
const QUERY_DEPTH: usize = 4;

/// Most parameters listed per operation, and most fields examined for them.
const PARAMETERS: usize = 200;
const LOOKED_AT: usize = 10_000;

impl Api {
    /// The description, as JSON.
    pub fn openapi(&self, title: Option<&str>) -> String {
        let mut writer = Writer { api: self, wanted: BTreeSet::new(), looks: 0 };
        let mut paths = Map::new();
        for (number, binding) in self.bindings.iter().enumerate() {
            let Some(method) = self.methods.get(binding.method) else { continue };
            let verb = binding.http.to_ascii_lowercase();
            if !["get", "put", "post", "delete", "options", "head", "patch", "trace"].contains(&verb.as_str())
            {
                continue; // OpenAPI has no other methods
            }
            let (path, in_path) = path_of(binding);
            let operation = writer.operation(number, binding, method, in_path);
            let item = paths.entry(path).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(item) = item {
                item.entry(verb).or_insert(operation);
            }
        }
        let schemas = writer.schemas();
        let services: BTreeSet<&str> = self.methods.iter().map(|m| m.service.as_str()).collect();
        let names: Vec<&str> = services.iter().copied().collect();
        let title = title.map_or_else(|| names.join(", "), str::to_owned);
        let described = json!({
            "openapi": "3.1.0",
            "info": { "title": title, "version": "1" },
            "tags": names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
            "paths": paths,
            "components": { "schemas": schemas },
        });
        let mut text = described.to_string();
        text.push('\n');
        text
    }
}

struct Writer<'a> {
    api: &'a Api,
    /// Types referenced so far.
    wanted: BTreeSet<u32>,
    /// How many more fields may be examined for the parameters of an operation.
    looks: usize,
}

/// The path in OpenAPI notation, and its parameters, one per wildcard.
fn path_of(binding: &Binding) -> (String, Vec<Value>) {
    let template = &binding.template;
    let (mut path, mut parameters) = (String::new(), Vec::new());
    for (at, segment) in template.segments.iter().enumerate() {
        path.push('/');
        let name = match segment {
            Segment::Literal(text) => {
                path.push_str(text);
                continue;
            }
            Segment::One | Segment::Rest => parameter_name(binding, at),
        };
        path.push_str(&format!("{{{name}}}"));
        let mut parameter =
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        if let (Segment::Rest, Value::Object(fields)) = (segment, &mut parameter) {
            fields.insert(
                "description".to_owned(),
                "Any number of segments, with the slashes between them.".into(),
            );
        }
        parameters.push(parameter);
    }
    if let Some(verb) = &template.verb {
        path.push(':');
        path.push_str(verb);
    }
    (path, parameters)
}

/// A wildcard has the name of its field; several wildcards in one field are numbered.
fn parameter_name(binding: &Binding, at: usize) -> String {
    let template = &binding.template;
    let variable = template.variables.iter().find(|v| (v.from..v.to).contains(&at));
    let Some(variable) = variable else { return format!("segment_{}", at + 1) };
    let wild = |at: &usize| template.segments.get(*at).is_some_and(|s| !matches!(s, Segment::Literal(_)));
    let all: Vec<usize> = (variable.from..variable.to).filter(wild).collect();
    match all.as_slice() {
        [_] => variable.field.to_string(),
        many => {
            let place = many.iter().position(|wild| *wild == at).map_or(0, |place| place + 1);
            format!("{}_{place}", variable.field)
        }
    }
}

impl<'a> Writer<'a> {
    fn operation(&mut self, number: usize, binding: &Binding, method: &Method, in_path: Vec<Value>) -> Value {
        let (Some(input), Some(output)) =
            (self.api.schema.message(method.input), self.api.schema.message(method.output))
        else {
            return json!({});
        };
        let first = self.api.bindings.iter().position(|b| b.method == binding.method) == Some(number);
        let suffix = if first { String::new() } else { format!("_{number}") };
        let mut parameters = in_path;
        if binding.body != BodyOf::All {
            self.looks = LOOKED_AT;
            self.query(binding, input, &mut Vec::new(), &mut parameters);
        }
        let operation = json!({
            "operationId": format!("{}_{}{suffix}", method.service.replace('.', "_"), method.name),
            "tags": [method.service],
            "parameters": parameters,
            "responses": {
                "200": { "description": "The answer.", "content": self.answer(binding, method, output) },
                "default": { "description": "What went wrong.", "content": { "application/json": { "schema": {
                    "type": "object",
                    "properties": { "code": { "type": "integer" }, "message": { "type": "string" }, "details": { "type": "array", "items": { "type": "object" } } }
                } } } }
            }
        });
        let Value::Object(mut fields) = operation else { return json!({}) };
        let summary = method.comment.lines().next().unwrap_or_default().trim();
        if !summary.is_empty() {
            fields.insert("summary".to_owned(), summary.into());
            fields.insert("description".to_owned(), method.comment.as_str().into());
        }
        let body = match binding.body {
            BodyOf::None => None,
            BodyOf::All if input.known == Known::HttpBody => Some(raw()),
            BodyOf::All => {
                let schema = self.reference(method.input);
                let media = if method.client_streams { "application/x-ndjson" } else { "application/json" };
                Some(json!({ media: { "schema": schema } }))
            }
            BodyOf::Field(at) => {
                input.fields.get(usize::from(at)).map(|field| match self.message_of(field) {
                    Some(of) if of.known == Known::HttpBody => raw(),
                    _ => json!({ "application/json": { "schema": self.field(field) } }),
                })
            }
        };
        if let Some(content) = body {
            fields.insert("requestBody".to_owned(), json!({ "content": content }));
        }
        Value::Object(fields)
    }

    fn answer(&mut self, binding: &Binding, method: &Method, output: &Message) -> Value {
        let field = binding.response.and_then(|at| output.fields.get(usize::from(at)));
        let of = field.map_or(Some(output), |field| self.message_of(field));
        if of.is_some_and(|of| of.known == Known::HttpBody) {
            return raw();
        }
        let schema = match field {
            Some(field) => self.field(field),
            None => self.reference(method.output),
        };
        match method.server_streams {
            true => {
                json!({ "application/x-ndjson": { "schema": schema }, "text/event-stream": { "schema": schema } })
            }
            false => json!({ "application/json": { "schema": schema } }),
        }
    }

    fn message_of(&self, field: &Field) -> Option<&'a Message> {
        match field.kind {
            Kind::Message(at) => self.api.schema.message(at),
            _ => None,
        }
    }

    /// The parameters that a query may contain: fields that are in neither the path nor the body.
    fn query(&mut self, binding: &Binding, of: &Message, place: &mut Vec<u16>, out: &mut Vec<Value>) {
        for (at, field) in of.fields.iter().enumerate() {
            let Ok(at) = u16::try_from(at) else { return };
            if self.looks == 0 || out.len() >= PARAMETERS {
                return;
            }
            self.looks -= 1;
            place.push(at);
            let in_body = place.len() == 1 && binding.body == BodyOf::Field(at);
            if !in_body && !binding.variables.contains(place) {
                self.query_field(binding, field, place, out);
            }
            place.pop();
        }
    }

    fn query_field(&mut self, binding: &Binding, field: &Field, place: &mut Vec<u16>, out: &mut Vec<Value>) {
        let schema = match (field.shape, self.message_of(field)) {
            (Shape::Map, _) => return,
            (_, None) => self.scalar(field.kind),
            (_, Some(of)) if matches!(of.known, Known::Duration | Known::FieldMask | Known::Timestamp) => {
                own_json(of.known)
            }
            (_, Some(of)) if of.known == Known::Wrapper => {
                of.fields.first().map_or(json!({}), |f| self.scalar(f.kind))
            }
            (Shape::Once, Some(of)) if of.known == Known::None && place.len() < QUERY_DEPTH => {
                return self.query(binding, of, place, out);
            }
            _ => return,
        };
        let list = field.shape != Shape::Once;
        let schema = if list { json!({ "type": "array", "items": schema }) } else { schema };
        let name = self.name_of(binding, place);
        out.push(json!({ "name": name, "in": "query", "required": false, "schema": schema }));
    }

    /// The name of a field, with all names on its path.
    fn name_of(&self, binding: &Binding, place: &[u16]) -> String {
        let input = self.api.methods.get(binding.method).and_then(|m| self.api.schema.message(m.input));
        let (mut of, mut names) = (input, Vec::new());
        for at in place {
            let Some(field) = of.and_then(|m| m.fields.get(usize::from(*at))) else { break };
            names.push(self.written(field));
            of = self.message_of(field);
        }
        names.join(".")
    }

    fn written(&self, field: &Field) -> String {
        let name = if self.api.options().proto_names { &field.name } else { &field.json_name };
        name.to_string()
    }

    fn reference(&mut self, at: u32) -> Value {
        let Some(of) = self.api.schema.message(at) else { return json!({}) };
        if of.known == Known::Wrapper {
            return of.fields.first().map_or(json!({}), |field| self.scalar(field.kind));
        }
        if of.known.has_own_json() {
            return own_json(of.known);
        }
        self.wanted.insert(at);
        json!({ "$ref": format!("#/components/schemas/{}", of.name) })
    }

    fn field(&mut self, field: &Field) -> Value {
        let one = match (field.kind, field.shape) {
            (Kind::Message(at), Shape::Map) => {
                let entry = self.api.schema.message(at).and_then(|entry| entry.fields.get(1));
                let value = entry.map_or(json!({}), |value| self.field(value));
                return json!({ "type": "object", "additionalProperties": value });
            }
            (Kind::Message(at), _) => self.reference(at),
            (kind, _) => self.scalar(kind),
        };
        match field.shape {
            Shape::Packed | Shape::Repeated => json!({ "type": "array", "items": one }),
            Shape::Map | Shape::Once => one,
        }
    }

    fn scalar(&self, kind: Kind) -> Value {
        let long = |format: &str| match self.api.options().int64_numbers {
            true => json!({ "type": "integer", "format": format }),
            false => json!({ "type": "string", "format": format }),
        };
        match kind {
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Kind::Double => json!({ "type": "number", "format": "double" }),
            Kind::Enum(at) => match self.api.schema.enumeration(at) {
                Some(e) if e.null => json!({ "type": "null" }),
                Some(e) if !self.api.options().enum_numbers => {
                    json!({ "type": "string", "enum": e.names.iter().map(|(_, name)| &**name).collect::<Vec<_>>() })
                }
                _ => json!({ "type": "integer" }),
            },
            Kind::Fixed32 | Kind::Uint32 => json!({ "type": "integer", "format": "uint32" }),
            Kind::Fixed64 | Kind::Uint64 => long("uint64"),
            Kind::Float => json!({ "type": "number", "format": "float" }),
            Kind::Int32 | Kind::Sfixed32 | Kind::Sint32 => json!({ "type": "integer", "format": "int32" }),
            Kind::Int64 | Kind::Sfixed64 | Kind::Sint64 => long("int64"),
            Kind::Message(_) => json!({}),
            Kind::String => json!({ "type": "string" }),
        }
    }

    /// All referenced types, and the types that they reference.
    fn schemas(&mut self) -> Map<String, Value> {
        let mut schemas = Map::new();
        while let Some(at) = self.wanted.pop_first() {
            let Some(of) = self.api.schema.message(at) else { continue };
            if schemas.contains_key(&*of.name) {
                continue;
            }
            schemas.insert(of.name.to_string(), Value::Null); // it may reference itself
            let fields: Map<String, Value> =
                of.fields.iter().map(|field| (self.written(field), self.field(field))).collect();
            schemas.insert(of.name.to_string(), json!({ "type": "object", "properties": fields }));
        }
        schemas
    }
}

fn raw() -> Value {
    json!({ "*/*": { "schema": { "type": "string", "format": "binary" } } })
}

/// The schema of a type with its own JSON form.
fn own_json(known: Known) -> Value {
    match known {
        Known::Any => {
            json!({ "type": "object", "properties": { "@type": { "type": "string" } }, "required": ["@type"], "additionalProperties": true })
        }
        Known::Duration => json!({ "type": "string", "examples": ["1.5s"] }),
        Known::FieldMask => json!({ "type": "string", "examples": ["title,author.name"] }),
        Known::ListValue => json!({ "type": "array", "items": {} }),
        Known::Struct => json!({ "type": "object", "additionalProperties": true }),
        Known::Timestamp => json!({ "type": "string", "format": "date-time" }),
        Known::HttpBody | Known::None | Known::Value | Known::Wrapper => json!({}),
    }
}
