//! Reads an OpenAPI document: its paths, operations and schemas.

mod content;
mod parameters;

use super::parameter::Parameter;
use super::paths::{Paths, Template};
use super::{Answer, Api, Content, Method, OPERATIONS, Operation, Status};
use crate::documents::{Documents, MISTAKES, Spot, Wrong};
use crate::fault::cut;
use crate::schema::Schema;
use jsonschema::Registry;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The methods that a path item may have (OpenAPI 3.2 adds `query`).
const METHODS: [&str; 9] = ["delete", "get", "head", "options", "patch", "post", "put", "query", "trace"];

/// The prefixes of a document's paths: the paths of its servers.
pub(super) fn bases(root: &Value) -> Vec<Vec<u8>> {
    let servers = root.get("servers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let paths = servers.iter().filter_map(|server| {
        let mut url = server.get("url")?.as_str()?.to_owned();
        if let Some(Value::Object(variables)) = server.get("variables") {
            for (name, variable) in variables {
                let default = variable.get("default").and_then(Value::as_str).unwrap_or_default();
                url = url.replace(&format!("{{{name}}}"), default);
            }
        }
        let path = match url.split_once("://") {
            Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default(),
            None => &url,
        };
        Some(path.trim_end_matches('/').as_bytes().to_vec())
    });
    paths.collect()
}

/// Reads a document.
pub(super) struct Reader<'d> {
    pub(super) documents: &'d Documents,
    pub(super) requests: Registry<'static>,
    pub(super) replies: Option<Registry<'static>>,
    pub(super) compiled: HashMap<(Spot, bool), Option<Arc<Schema>>>,
    pub(super) wrong: Vec<Wrong>,
    pub(super) notes: Vec<String>,
}

impl<'d> Reader<'d> {
    pub(super) fn api(&mut self, bases: Vec<Vec<u8>>, reads_servers: bool) -> Api {
        let root = Spot { file: 0, pointer: String::new() };
        let mut api = Api { paths: Paths::new(bases), items: Vec::new(), operations: Vec::new() };
        let all = root.below("paths");
        for (path, _) in self.entries(&all) {
            let spot = all.below(&path);
            if path.starts_with("x-") {
                continue;
            }
            let template = match Template::parse(&path) {
                Ok(template) => template,
                Err(why) => {
                    self.refuse(&spot, &format!("the path `{}` {why}", cut(&path, 80)));
                    continue;
                }
            };
            let names: Vec<String> = template.names().map(str::to_owned).collect();
            if api.paths.add(template).is_err() {
                self.refuse(&spot, &format!("no path can be told from one that fits `{}`", cut(&path, 80)));
                continue;
            }
            let mut methods = Vec::new();
            let Some((spot, item)) = self.follow(spot) else {
                api.items.push(methods);
                continue;
            };
            let servers = |item: &Value| {
                let own = item.get("servers").filter(|_| reads_servers).and_then(Value::as_array);
                own.filter(|own| !own.is_empty()).map(|_| self::bases(item))
            };
            let of_path = servers(item);
            for method in METHODS.into_iter().filter(|method| item.get(*method).is_some()) {
                if api.operations.len() == OPERATIONS {
                    self.refuse(&spot, &format!("there are more than {OPERATIONS} operations"));
                    return api;
                }
                let method_name = method.to_ascii_uppercase();
                let bases = item.get(method).and_then(servers).or_else(|| of_path.clone());
                let operation = self.operation(&spot, method, format!("{method_name} {path}"), &names);
                api.paths.serve(&bases, api.items.len());
                methods.push(Method { name: method_name, operation: api.operations.len(), bases });
                api.operations.push(operation);
            }
            api.items.push(methods);
        }
        if api.operations.is_empty() && self.wrong.is_empty() {
            self.refuse(&root, "describes no operation: `paths` has none");
        }
        api
    }

    fn operation(&mut self, item: &Spot, method: &str, name: String, names: &[String]) -> Operation {
        let spot = item.below(method);
        let mut parameters: Vec<Parameter> = Vec::new();
        for list in [item.below("parameters"), spot.below("parameters")] {
            let count = self.documents.get(&list).and_then(Value::as_array).map_or(0, Vec::len);
            for at in 0..count {
                let Some(parameter) = self.parameter(list.below(&at.to_string()), names) else { continue };
                // A parameter of the operation replaces that of its path.
                parameters.retain(|known| (known.part, &known.name) != (parameter.part, &parameter.name));
                parameters.push(parameter);
            }
        }
        let body =
            self.documents.get(&spot.below("requestBody")).is_some().then(|| spot.below("requestBody"));
        let body = body.and_then(|body| {
            let (body, value) = self.follow(body)?;
            let required = value.get("required") == Some(&Value::Bool(true));
            Some(Content { required, ..self.content(&body, false) })
        });
        let mut answers = Vec::new();
        if self.replies.is_some() {
            let all = spot.below("responses");
            for (status, _) in self.entries(&all) {
                let spot = all.below(&status);
                let of = match status.as_str() {
                    "default" => Status::Default,
                    other if other.starts_with("x-") => continue,
                    other => match (other.as_bytes(), other.parse::<u16>()) {
                        (_, Ok(exact @ 100..=599)) => Status::Exact(exact),
                        ([class @ b'1'..=b'5', b'X' | b'x', b'X' | b'x'], _) => {
                            Status::Class(u16::from(class - b'0'))
                        }
                        _ => {
                            self.refuse(
                                &spot,
                                &format!(
                                    "`{}` is not a status; expected 200, 2XX or default",
                                    cut(other, 20)
                                ),
                            );
                            continue;
                        }
                    },
                };
                let Some((spot, _)) = self.follow(spot) else { continue };
                let headers = self.headers(&spot.below("headers"));
                answers.push((of, Answer { headers, content: self.content(&spot, true) }));
            }
            answers.sort_by_key(|(status, _)| *status);
        }
        Operation { name, parameters, body, answers }
    }

    fn schema(&mut self, spot: Spot, answer: bool) -> Option<Arc<Schema>> {
        let (spot, _) = self.follow(spot)?;
        let key = (spot, answer);
        if let Some(known) = self.compiled.get(&key) {
            return known.clone();
        }
        let registry = if answer { self.replies.as_ref()? } else { &self.requests };
        let compiled = match Schema::compile(self.documents, registry, &key.0) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(wrong) => {
                self.wrong.extend(wrong);
                None
            }
        };
        self.compiled.insert(key, compiled.clone());
        compiled
    }

    /// The schema at a place, or one that accepts everything.
    fn schema_or_any(&mut self, spot: Spot, answer: bool) -> Option<Arc<Schema>> {
        match self.documents.get(&spot) {
            Some(_) => self.schema(spot, answer),
            None => Schema::anything().map(Arc::new),
        }
    }

    fn entries(&self, spot: &Spot) -> Vec<(String, &'d Value)> {
        let entries = self.documents.get(spot).and_then(Value::as_object);
        entries.map_or_else(Vec::new, |all| all.iter().map(|(key, value)| (key.clone(), value)).collect())
    }

    fn follow(&mut self, spot: Spot) -> Option<(Spot, &'d Value)> {
        match self.documents.follow(spot) {
            Ok(found) => Some(found),
            Err(wrong) => {
                self.wrong.push(wrong);
                None
            }
        }
    }

    fn refuse(&mut self, spot: &Spot, what: &str) {
        self.wrong.push(Wrong::new(format!("{}: {what}", self.documents.place(spot))));
    }

    fn note(&mut self, spot: &Spot, what: &str) {
        let note = format!("{}: {what}", self.documents.place(spot));
        if self.notes.len() < MISTAKES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
