//! OpenAPI 3.0, 3.1 and 3.2: which operation a request is for, and what its parameters, body and answers must be.
//!
//! `dialect` turns schemas into those of JSON Schema 2020-12, `paths` finds the operation, `parameter` reads parameters,
//! `form` reads forms, which `multipart` takes apart. Here the document is read.

mod dialect;
mod form;
mod multipart;
mod parameter;
mod paths;

pub use form::Form;
pub use parameter::Parts;

use crate::budget::count_references;
use crate::documents::{Documents, Loaded, MISTAKES, Read, Spot, Wrong};
use crate::fault::{Fault, MOST_FAULTS, Part, cut};
use crate::schema::Schema;
use dialect::{Direction, Version};
use form::{Field, FormKind, One};
use jsonschema::Registry;
use parameter::{Kinds, Parameter, Shape, Style};
use paths::{Paths, Template};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Most operations of a document.
pub const OPERATIONS: usize = 5_000;

/// How deep a schema is searched for the types that a parameter may have.
const TYPE_DEPTH: usize = 16;

/// Most fields of a form that are known by its schema.
const FIELDS_OF_FORM: usize = 256;

/// The methods that a path item may have (OpenAPI 3.2 adds `query`).
const METHODS: [&str; 9] = ["delete", "get", "head", "options", "patch", "post", "put", "query", "trace"];

/// A document, ready to check messages by.
#[derive(Debug)]
pub struct Api {
    paths: Paths,
    /// By template: its methods, their operations, and what must stand before their paths if not what does elsewhere.
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
    /// It is described, but neither as JSON nor as a form: nobody can say whether it is right.
    Free,
    /// By this schema.
    Json(&'a Arc<Schema>),
    /// No body is described.
    None,
    /// Its media type is not described; these are.
    Unknown(Vec<&'a str>),
}

impl Api {
    /// Reads a document, and notes on what of it is not checked. With `answers`, those are read too. `base` is what
    /// stands before all paths; without it, the paths of `servers`.
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

/// What stands before the paths of a document: the paths of its servers.
fn bases(root: &Value) -> Vec<Vec<u8>> {
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

fn registry(files: Vec<(String, Value)>) -> Result<Registry<'static>, jsonschema::ReferencingError> {
    let loaded = Loaded(files.iter().cloned().collect());
    let mut builder = Registry::new().draft(jsonschema::Draft::Draft202012).retriever(loaded);
    for (uri, value) in files {
        builder = builder.add(uri, value)?;
    }
    builder.prepare()
}

/// Reads a document.
struct Reader<'d> {
    documents: &'d Documents,
    requests: Registry<'static>,
    replies: Option<Registry<'static>>,
    compiled: HashMap<(Spot, bool), Option<Arc<Schema>>>,
    wrong: Vec<Wrong>,
    notes: Vec<String>,
}

impl<'d> Reader<'d> {
    fn api(&mut self, bases: Vec<Vec<u8>>, reads_servers: bool) -> Api {
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
                // An operation's own replaces that of its path.
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

    fn headers(&mut self, all: &Spot) -> Vec<Parameter> {
        let mut headers = Vec::new();
        for (name, _) in self.entries(all) {
            if name.eq_ignore_ascii_case("content-type") {
                continue; // OpenAPI: ignored, because `content` says it
            }
            let Some((spot, value)) = self.follow(all.below(&name)) else { continue };
            headers.extend(self.read_parameter(&spot, value, name, Part::Header, true));
        }
        headers
    }

    fn parameter(&mut self, spot: Spot, names: &[String]) -> Option<Parameter> {
        let (spot, value) = self.follow(spot)?;
        let Some(name) = value.get("name").and_then(Value::as_str).map(str::to_owned) else {
            self.refuse(&spot, "this parameter has no `name`");
            return None;
        };
        let part = match value.get("in").and_then(Value::as_str) {
            Some("cookie") => Part::Cookie,
            Some("header") => Part::Header,
            Some("path") => Part::Path,
            Some("query") => Part::Query,
            other => {
                let shown = cut(other.unwrap_or_default(), 20);
                self.refuse(
                    &spot,
                    &format!("`in: {shown}` is not known; expected path, query, header or cookie"),
                );
                return None;
            }
        };
        if part == Part::Path && !names.contains(&name) {
            self.refuse(&spot, &format!("the path has no `{{{}}}`", cut(&name, 40)));
            return None;
        }
        let ignored = ["accept", "authorization", "content-type"]; // OpenAPI 3.1, §4.8.12.1
        if part == Part::Header && ignored.iter().any(|ignored| name.eq_ignore_ascii_case(ignored)) {
            return None;
        }
        self.read_parameter(&spot, value, name, part, false)
    }

    fn read_parameter(
        &mut self,
        spot: &Spot,
        value: &'d Value,
        name: String,
        part: Part,
        answer: bool,
    ) -> Option<Parameter> {
        let style = value.get("style").and_then(Value::as_str);
        let Some(style) = Style::of(style, part) else {
            let message = format!(
                "`style: {}` is not one of a {} parameter",
                cut(style.unwrap_or_default(), 20),
                part.name()
            );
            self.refuse(spot, &message);
            return None;
        };
        let is_true = |key| value.get(key) == Some(&Value::Bool(true));
        let explode = value.get("explode").and_then(Value::as_bool).unwrap_or(style == Style::Form);
        let (shape, schema) = if value.get("schema").is_some() {
            let spot = spot.below("schema");
            (self.shape(&spot), self.schema(spot, answer))
        } else {
            let content = spot.below("content");
            let media = self.entries(&content).into_iter().next().map(|(media, _)| media);
            match media {
                Some(media) if MediaRange(media.to_ascii_lowercase()).is_json() => {
                    (Shape::Json, self.schema_or_any(content.below(&media).below("schema"), answer))
                }
                Some(media) => {
                    self.note(spot, &format!("a parameter of {} is not checked", cut(&media, 60)));
                    (Shape::Scalar(Kinds { text: true, ..Kinds::default() }), None)
                }
                None => (Shape::Scalar(Kinds { text: true, ..Kinds::default() }), None),
            }
        };
        Some(Parameter {
            name,
            part,
            required: is_true("required"),
            allow_empty: is_true("allowEmptyValue"),
            style,
            explode,
            shape,
            schema,
        })
    }

    /// What a parameter's text is, by its schema.
    fn shape(&mut self, spot: &Spot) -> Shape {
        let types = self.types(spot, TYPE_DEPTH);
        if types.contains(&"array".to_owned()) {
            let items = self.found_below(spot, "items", TYPE_DEPTH);
            return Shape::List(items.map_or(ANY, |items| self.kinds(&items)));
        }
        if types.contains(&"object".to_owned()) {
            let properties = self.found_below(spot, "properties", TYPE_DEPTH);
            let names: Vec<String> =
                properties.iter().flat_map(|all| self.entries(all)).map(|(name, _)| name).collect();
            let known = properties.map_or_else(Vec::new, |all| {
                names.into_iter().map(|name| (name.clone(), self.kinds(&all.below(&name)))).collect()
            });
            let others = self.found_below(spot, "additionalProperties", TYPE_DEPTH);
            return Shape::Object(known, others.map_or(ANY, |others| self.kinds(&others)));
        }
        Shape::Scalar(self.kinds(spot))
    }

    fn kinds(&mut self, spot: &Spot) -> Kinds {
        let types = self.types(spot, TYPE_DEPTH);
        if types.is_empty() {
            return ANY;
        }
        let has = |kind: &str| types.iter().any(|known| known == kind);
        Kinds {
            boolean: has("boolean"),
            null: has("null"),
            number: has("integer") || has("number"),
            fraction: has("number"),
            text: has("string"),
        }
    }

    /// All types that a schema names, also through references and alternatives.
    fn types(&mut self, spot: &Spot, depth: usize) -> Vec<String> {
        let Some((spot, value)) = self.documents.follow(spot.clone()).ok().filter(|_| depth > 0) else {
            return Vec::new();
        };
        let mut all: Vec<String> = match value.get("type") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        if value.get("nullable") == Some(&Value::Bool(true)) {
            all.push("null".to_owned());
        }
        if all.is_empty() {
            for key in ["allOf", "anyOf", "oneOf"] {
                let count = value.get(key).and_then(Value::as_array).map_or(0, Vec::len);
                for at in 0..count.min(TYPE_DEPTH) {
                    all.extend(self.types(&spot.below(key).below(&at.to_string()), depth - 1));
                }
            }
        }
        all
    }

    /// A keyword of a schema, also through references and alternatives.
    fn found_below(&self, spot: &Spot, key: &str, depth: usize) -> Option<Spot> {
        let (spot, value) = self.documents.follow(spot.clone()).ok().filter(|_| depth > 0)?;
        if value.get(key).is_some_and(Value::is_object) {
            return Some(spot.below(key));
        }
        ["allOf", "anyOf", "oneOf"].into_iter().find_map(|list| {
            let count = value.get(list).and_then(Value::as_array).map_or(0, Vec::len);
            (0..count.min(TYPE_DEPTH))
                .find_map(|at| self.found_below(&spot.below(list).below(&at.to_string()), key, depth - 1))
        })
    }

    fn content(&mut self, spot: &Spot, answer: bool) -> Content {
        let all = spot.below("content");
        let mut content = Content::default();
        for (media, _) in self.entries(&all) {
            let range = MediaRange(media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
            let spot = all.below(&media);
            let kind = match range.0.as_str() {
                "application/x-www-form-urlencoded" => Some(FormKind::UrlEncoded),
                "multipart/form-data" => Some(FormKind::Multipart),
                _ => None,
            };
            let has_schema = self.documents.get(&spot.below("schema")).is_some();
            let known = match kind {
                Some(kind) if has_schema && !answer => {
                    self.form(&spot, kind).map(|form| Known::Form(Arc::new(form)))
                }
                None if range.is_json() || range.0.ends_with('*') => {
                    self.schema_or_any(spot.below("schema"), answer).map(Known::Json)
                }
                _ => {
                    if has_schema {
                        self.note(&spot, &format!("bodies of {} are passed on unchecked", cut(&media, 60)));
                    }
                    None
                }
            };
            content.media.push((range, known.unwrap_or(Known::Unchecked)));
        }
        content
    }

    /// What a form must be, by its media type object.
    fn form(&mut self, spot: &Spot, kind: FormKind) -> Option<Form> {
        let whole = spot.below("schema");
        let schema = self.schema(whole.clone(), false)?;
        let mut properties = Vec::new();
        self.properties(&whole, TYPE_DEPTH, &mut properties);
        let fields = properties.into_iter().filter_map(|(name, of)| {
            let encoding = spot.below("encoding").below(&name);
            self.field(name, &of, &encoding, kind)
        });
        let fields = fields.collect();
        Some(Form { kind, fields, schema })
    }

    fn field(&mut self, name: String, spot: &Spot, encoding: &Spot, kind: FormKind) -> Option<Field> {
        let written = self.documents.get(encoding);
        let text = |key: &str| written.and_then(|written| written.get(key)).and_then(Value::as_str);
        let ranges = text("contentType")
            .unwrap_or_default()
            .split(',')
            .map(|range| MediaRange(range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()));
        let media: Vec<MediaRange> = ranges.filter(|range| !range.0.is_empty()).collect();
        let is_json = !media.is_empty() && media.iter().all(MediaRange::is_json);
        let has = |types: &[String], kind: &str| types.iter().any(|known| known == kind);
        let types = self.types(spot, TYPE_DEPTH);
        let several = has(&types, "array");
        let item = if several { self.found_below(spot, "items", TYPE_DEPTH) } else { Some(spot.clone()) };
        let of_item = item.as_ref().map_or_else(Vec::new, |item| self.types(item, TYPE_DEPTH));
        let is_nested = has(&of_item, "object") || has(&of_item, "array");
        let Some(style) = Style::of(text("style"), Part::Query) else {
            let shown = cut(text("style").unwrap_or_default(), 20);
            self.refuse(encoding, &format!("`style: {shown}` is not one of a form's field"));
            return None;
        };
        let explode = written.and_then(|written| written.get("explode")).and_then(Value::as_bool);
        // A style decides; without one, what is nested is JSON.
        let shape = match text("style") {
            None if is_json || is_nested => Shape::Json,
            _ => self.shape(spot),
        };
        let says_bytes = |range: &MediaRange| !range.is_json() && !range.0.starts_with("text/");
        let one = match &item {
            Some(item) if self.is_binary(item) => One::Binary,
            _ if is_json || is_nested => One::Json,
            _ if !media.is_empty() && media.iter().all(says_bytes) => One::Binary,
            Some(item) => One::Scalar(self.kinds(item)),
            None => One::Scalar(ANY),
        };
        let parameter = Parameter {
            name,
            part: Part::Query,
            required: false,
            allow_empty: false,
            style,
            explode: explode.unwrap_or(style == Style::Form),
            shape,
            schema: self.schema(spot.clone(), false),
        };
        let media = if kind == FormKind::Multipart { media } else { Vec::new() };
        Some(Field { parameter, several, one, media })
    }

    /// The properties of an object, also through references and alternatives.
    fn properties(&self, spot: &Spot, depth: usize, all: &mut Vec<(String, Spot)>) {
        let Some((spot, value)) = self.documents.follow(spot.clone()).ok().filter(|_| depth > 0) else {
            return;
        };
        let own = spot.below("properties");
        for (name, _) in self.entries(&own) {
            if all.len() < FIELDS_OF_FORM && !all.iter().any(|(known, _)| *known == name) {
                all.push((name.clone(), own.below(&name)));
            }
        }
        for list in ["allOf", "anyOf", "oneOf"] {
            let count = value.get(list).and_then(Value::as_array).map_or(0, Vec::len);
            for at in 0..count.min(TYPE_DEPTH) {
                self.properties(&spot.below(list).below(&at.to_string()), depth - 1, all);
            }
        }
    }

    /// Whether a schema is of any bytes, such as a file.
    fn is_binary(&self, spot: &Spot) -> bool {
        let Ok((_, value)) = self.documents.follow(spot.clone()) else { return false };
        let is_bytes = value.get("format").and_then(Value::as_str) == Some("binary");
        let describes =
            ["type", "enum", "const", "allOf", "anyOf", "oneOf"].iter().any(|key| value.get(*key).is_some());
        // OpenAPI 3.1: a schema that says nothing of its type is one of bytes.
        is_bytes || value.get("contentMediaType").is_some() || !describes
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

    /// The schema at a place, or one that everything fits.
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

/// A schema without a type takes every kind of scalar.
const ANY: Kinds = Kinds { boolean: true, null: false, number: true, fraction: true, text: true };
