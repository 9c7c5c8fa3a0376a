//! OpenAPI 3.0, 3.1 and 3.2: which operation a request is for, and what its parameters, body and answers must be.
//!
//! `dialect` turns schemas into those of JSON Schema 2020-12, `paths` finds the operation, `parameter` reads parameters,
//! `form` reads forms, which `multipart` takes apart, and `read` reads the document.

mod dialect;
mod form;
mod multipart;
mod parameter;
mod paths;
mod read;

pub use form::Form;
pub use parameter::Parts;

use crate::budget::count_references;
use crate::documents::{Documents, Loaded, MISTAKES, Read, Spot, Wrong};
use crate::fault::{Fault, MOST_FAULTS, cut};
use crate::schema::Schema;
use dialect::{Direction, Version};
use jsonschema::Registry;
use parameter::Parameter;
use paths::Paths;
use read::{Reader, bases};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Most operations of a document.
pub const OPERATIONS: usize = 5_000;

/// A document, ready to check messages by.
#[derive(Debug)]
pub struct Api {
    paths: Paths,
    /// By template: its methods, each with its operation and, if it has `servers` of its own, their paths.
    items: Vec<Vec<Method>>,
    operations: Vec<Operation>,
}

/// A method of a path.
#[derive(Debug)]
struct Method {
    name: String,
    operation: usize,
    /// The paths of its own `servers`, or of those of its path.
    bases: Option<Vec<Vec<u8>>>,
}

/// One operation.
#[derive(Debug)]
pub struct Operation {
    /// Such as `POST /orders`.
    pub name: String,
    parameters: Vec<Parameter>,
    body: Option<Content>,
    answers: Vec<(Status, Answer)>,
}

/// What a body must be.
#[derive(Debug, Default)]
struct Content {
    required: bool,
    media: Vec<(MediaRange, Known)>,
}

/// What is known of a body of one media type.
#[derive(Debug)]
enum Known {
    Form(Arc<Form>),
    Json(Arc<Schema>),
    /// It is described by something that is not checked.
    Unchecked,
}

#[derive(Debug)]
struct Answer {
    headers: Vec<Parameter>,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Exact(u16),
    /// `4XX`.
    Class(u16),
    Default,
}

/// A media type or a range of them, without parameters, in lower case.
#[derive(Debug)]
struct MediaRange(String);

/// Which operation a request is for.
#[derive(Debug)]
pub enum Found<'a, 'p> {
    /// The path has no such method, but these.
    NoMethod(Vec<&'a str>),
    /// There is no such path.
    NoPath,
    /// This one, by its number, and what stands in the path in place of names.
    Operation(usize, Vec<(&'a str, &'p [u8])>),
}

/// How a body is to be checked.
#[derive(Debug)]
pub enum Body<'a> {
    /// As a form.
    Form(&'a Arc<Form>),
    /// It is described, but neither as JSON nor as a form, so it is not checked.
    Free,
    /// By this schema.
    Json(&'a Arc<Schema>),
    /// No body is described.
    None,
    /// Its media type is not described; these are.
    Unknown(Vec<&'a str>),
}

impl Api {
    /// Reads a document. Returns it with notes about the parts that are not checked. `answers` says whether to read the
    /// responses too. `base` is the prefix of all paths; without it, the paths of `servers` are the prefixes.
    ///
    /// # Errors
    /// Everything that is wrong with the document.
    pub fn load(
        path: &Path,
        base: Option<&str>,
        answers: bool,
        read: Read<'_>,
    ) -> Result<(Self, Vec<String>), Vec<Wrong>> {
        let documents = Documents::load(path, read)?;
        let root = Spot { file: 0, pointer: String::new() };
        let place = documents.place(&root);
        let version = match documents.root().get("openapi").and_then(Value::as_str) {
            Some(version) if version.starts_with("3.0.") => Version::Old,
            Some(version) if version.starts_with("3.1.") || version.starts_with("3.2.") => Version::New,
            Some(other) => {
                let message =
                    format!("{place}: version `{}` is not known; expected 3.0, 3.1 or 3.2", cut(other, 20));
                return Err(vec![Wrong::new(message)]);
            }
            None if documents.root().get("swagger").is_some() => {
                let wrong = Wrong::new(format!("{place}: this is Swagger 2; expected OpenAPI 3"));
                return Err(vec![wrong.hint("convert it, for example with swagger2openapi")]);
            }
            None => {
                let wrong =
                    Wrong::new(format!("{place}: this is not an OpenAPI document: `openapi` is missing"));
                return Err(vec![wrong.hint("name a JSON Schema in `schema`")]);
            }
        };
        let fixed = base.map(|base| vec![base.trim_end_matches('/').as_bytes().to_vec()]);
        let reads_servers = fixed.is_none();
        let bases = fixed.unwrap_or_else(|| bases(documents.root()));
        let is_recursive = documents.is_recursive();
        let translated = |direction| {
            registry(documents.changed(|value| {
                dialect::translate(value, version, direction);
                if is_recursive {
                    count_references(value);
                }
            }))
            .map_err(|e| vec![Wrong::new(format!("{place}: {}", cut(&e.to_string(), 200)))])
        };
        let requests = translated(Direction::Request)?;
        let replies = if answers { Some(translated(Direction::Answer)?) } else { None };
        let mut reader = Reader {
            documents: &documents,
            requests,
            replies,
            compiled: HashMap::new(),
            wrong: Vec::new(),
            notes: Vec::new(),
        };
        let api = reader.api(bases, reads_servers);
        reader.wrong.truncate(MISTAKES);
        if reader.wrong.is_empty() { Ok((api, reader.notes)) } else { Err(reader.wrong) }
    }

    /// The operation of a request, by its method and its path, which is canonical.
    pub fn find<'p>(&self, method: &[u8], path: &'p [u8]) -> Found<'_, 'p> {
        let Some((at, captures, base)) = self.paths.find(path) else { return Found::NoPath };
        let methods = self.items.get(at).map_or(&[][..], Vec::as_slice);
        let methods: Vec<&Method> =
            methods.iter().filter(|method| self.paths.allows(&method.bases, base)).collect();
        let of = |method: &[u8]| methods.iter().find(|known| known.name.as_bytes() == method);
        let found = match of(method) {
            None if method == b"HEAD" => of(b"GET"), // RFC 9110 §9.3.2
            found => found,
        };
        match found {
            Some(found) => Found::Operation(found.operation, captures),
            None => Found::NoMethod(methods.iter().map(|method| method.name.as_str()).collect()),
        }
    }

    /// An operation, by its number.
    pub fn operation(&self, at: usize) -> Option<&Operation> {
        self.operations.get(at)
    }

    /// How many there are.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }
}

impl Operation {
    /// What is wrong with the parameters of a request.
    pub fn faults(&self, parts: &Parts<'_>) -> Vec<Fault> {
        self.parameters.iter().filter_map(|parameter| parameter.fault(parts)).take(MOST_FAULTS).collect()
    }

    /// Whether requests must have a body.
    pub fn needs_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.required)
    }

    /// How a request's body of this media type is checked.
    pub fn body(&self, media: &[u8]) -> Body<'_> {
        self.body.as_ref().map_or(Body::None, |body| body.of(media))
    }

    /// Whether a status is described.
    pub fn describes(&self, status: u16) -> bool {
        self.answer(status).is_some()
    }

    /// What is wrong with the header fields of an answer.
    pub fn answer_faults(&self, status: u16, parts: &Parts<'_>) -> Vec<Fault> {
        let headers = self.answer(status).map_or(&[][..], |answer| &answer.headers);
        headers.iter().filter_map(|header| header.fault(parts)).take(MOST_FAULTS).collect()
    }

    /// How an answer's body of this media type is checked.
    pub fn answer_body(&self, status: u16, media: &[u8]) -> Body<'_> {
        self.answer(status).map_or(Body::None, |answer| answer.content.of(media))
    }

    fn answer(&self, status: u16) -> Option<&Answer> {
        let mut fitting = self.answers.iter().filter(|(of, _)| match of {
            Status::Exact(exact) => *exact == status,
            Status::Class(class) => *class == status / 100,
            Status::Default => true,
        });
        fitting.next().map(|(_, answer)| answer) // sorted: the most exact first
    }
}

impl Content {
    fn of(&self, media: &[u8]) -> Body<'_> {
        let media = media.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let fitting = self.media.iter().filter(|(range, _)| range.takes(&media));
        match fitting.max_by_key(|(range, _)| range.rank()) {
            // A range such as `*/*` may have a schema, which only counts for JSON.
            Some((range, Known::Json(schema))) if range.is_json() || is_json(&media) => Body::Json(schema),
            Some((_, Known::Form(form))) => Body::Form(form),
            Some(_) => Body::Free,
            None if self.media.is_empty() => Body::None,
            None => Body::Unknown(self.media.iter().map(|(range, _)| range.0.as_str()).collect()),
        }
    }
}

impl MediaRange {
    fn takes(&self, media: &[u8]) -> bool {
        match self.0.strip_suffix('*') {
            Some("*/") => media.contains(&b'/'),
            Some(kind) => media.starts_with(kind.as_bytes()),
            None => media == self.0.as_bytes(),
        }
    }

    /// The higher, the more exact.
    fn rank(&self) -> u8 {
        match self.0.as_str() {
            "*/*" => 0,
            range if range.ends_with('*') => 1,
            _ => 2,
        }
    }

    fn is_json(&self) -> bool {
        is_json(self.0.as_bytes())
    }
}

fn is_json(media: &[u8]) -> bool {
    media == b"application/json" || media == b"text/json" || media.ends_with(b"+json")
}

fn registry(files: Vec<(String, Value)>) -> Result<Registry<'static>, jsonschema::ReferencingError> {
    let loaded = Loaded(files.iter().cloned().collect());
    let mut builder = Registry::new().draft(jsonschema::Draft::Draft202012).retriever(loaded);
    for (uri, value) in files {
        builder = builder.add(uri, value)?;
    }
    builder.prepare()
}
