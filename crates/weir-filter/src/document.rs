//! JSON templates: documents whose texts may be expressions, over the exchange and its bodies.
//!
//! A text that begins with `= ` is an expression and becomes its value, of any kind of JSON. In other texts, `{= … }`
//! becomes the value as text. Everything else stands for itself.

use crate::filter::{Build, Cx, Mistake, RequestHead, ResponseHead, Written};
use crate::view::{Known, Later, Reading, View, is_of_url};
use serde_json::{Map, Value as Json};
use std::collections::HashSet;
use weir_expr::{Expression, Phase, Read, Schema, Template, Value, Values, template};
use weir_h1::FieldName;
pub use weir_route::variables::{BODY, RESPONSE_BODY_READ};
use weir_route::variables::{
    REQUEST_BODY, RESPONSE_BODY, RESPONSE_CAUSE, RESPONSE_HEADERS, RESPONSE_STATUS, Vocabulary,
};

/// Most values in a template.
pub const TEMPLATE_VALUES: usize = 1_000;

/// How deep lists and objects of a template may be nested.
pub const TEMPLATE_DEPTH: usize = 32;

/// A compiled template.
#[derive(Debug)]
pub struct Document {
    root: Part,
    vocabulary: Vocabulary,
    /// What it reads of the request, but its body.
    reading: Reading,
    reads_request_body: bool,
}

#[derive(Debug)]
enum Part {
    Expression(Box<Expression>),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
    Text(Template),
    Value(Json),
}

/// What a template may read besides the request's head.
#[derive(Clone, Copy, Default)]
pub struct Bodies<'a> {
    /// The request's body.
    pub request: Option<&'a Json>,
    /// The answer's head and body.
    pub response: Option<(&'a ResponseHead, &'a Json)>,
}

impl Document {
    /// Compiles the template under the key `field` of a filter's settings, to run in `phase`, and reports its mistakes.
    pub fn compile(written: &Json, field: &str, phase: Phase, build: &mut Build<'_>) -> Option<Self> {
        let captures: Option<Vec<&str>> =
            build.captures.map(|names| names.iter().map(String::as_str).collect());
        let vocabulary = build.vocabulary.clone();
        let schema = vocabulary.schema(captures.as_deref());
        let mut compiler = Compiler {
            schema,
            phase,
            build,
            left: TEMPLATE_VALUES,
            reads: Vec::new(),
            places: HashSet::new(),
        };
        let before = compiler.build.mistakes.len();
        let root = compiler.part(written, field, TEMPLATE_DEPTH);
        let reads = compiler.reads;
        if build.mistakes.len() > before {
            return None;
        }
        let (of_body, others): (Vec<Read>, Vec<Read>) =
            vocabulary.maps.sources(&reads).partition(|read| read.var == REQUEST_BODY);
        let of_request: Vec<Read> = others.into_iter().filter(|read| !is_of_response(read)).collect();
        let reading = Reading::of(&vocabulary, &of_request);
        Some(Self { root: root?, vocabulary, reading, reads_request_body: !of_body.is_empty() })
    }

    /// Whether it reads anything of the request but its body.
    pub fn reads_request(&self) -> bool {
        !self.reading.reads().is_empty()
    }

    /// Whether it reads the request's body.
    pub fn reads_request_body(&self) -> bool {
        self.reads_request_body
    }

    /// The header fields of requests that it reads, for [`Filter::guards`](crate::filter::Filter::guards).
    pub fn guarded(&self) -> impl Iterator<Item = FieldName> + '_ {
        self.reading.guarded()
    }

    /// Notes what it reads of the caller and the request, but the URL and the body, so that no cache gives an answer
    /// that was made from one request to another. A cache passes requests with a body.
    pub fn note(&self, by: &'static str, head: &RequestHead, cx: &Cx) {
        View::with((Some(head), Later::NONE), Known::of(Some(head), cx), &self.vocabulary, |view| {
            let mut all = Vec::new();
            for read in self.reading.reads().iter().filter(|read| !is_of_url(read)) {
                let mut value = Vec::new();
                view.value(read.var, read.key.as_deref().unwrap_or_default().as_bytes()).write(&mut value);
                all.extend_from_slice(&read.var.0.to_be_bytes());
                all.extend_from_slice(&(value.len() as u64).to_be_bytes());
                all.append(&mut value);
            }
            self.reading.note(by, view, cx, "", &all);
        });
    }

    /// The document; `None` if it would be longer than `limit` bytes.
    pub fn render(
        &self,
        head: &RequestHead,
        cx: &Cx,
        bodies: Bodies<'_>,
        limit: usize,
    ) -> Option<(Vec<u8>, Json)> {
        let later = Later {
            response: bodies.response.map(|(head, _)| head),
            request_body: bodies.request,
            response_body: bodies.response.map(|(_, body)| body),
            ..Later::NONE
        };
        let known = Known::of(Some(head), cx);
        // Before it is made: an expression may have the same long text in it many times.
        let mut left = limit;
        let value =
            View::with((Some(head), later), known, &self.vocabulary, |view| self.root.value(view, &mut left));
        let value = value.ok()?.unwrap_or(Json::Null);
        let text = serde_json::to_vec(&value).ok()?;
        (text.len() <= limit).then_some((text, value))
    }
}

struct Compiler<'c, 'b> {
    schema: Schema,
    phase: Phase,
    build: &'c mut Build<'b>,
    left: usize,
    reads: Vec<Read>,
    /// The places of expressions so far.
    places: HashSet<String>,
}

impl Compiler<'_, '_> {
    fn part(&mut self, written: &Json, field: &str, depth: usize) -> Option<Part> {
        let Some(left) = self.left.checked_sub(1) else {
            self.build.refuse(field, format!("has more than {TEMPLATE_VALUES} values"), None);
            return None;
        };
        self.left = left;
        if depth == 0 {
            self.build.refuse(field, format!("is nested deeper than {TEMPLATE_DEPTH}"), None);
            return None;
        }
        match written {
            Json::String(text) => self.text(text, field),
            Json::Array(items) => {
                let parts = items.iter().enumerate();
                let parts: Vec<_> =
                    parts.map(|(at, item)| self.part(item, &format!("{field}[{at}]"), depth - 1)).collect();
                parts.into_iter().collect::<Option<_>>().map(Part::List)
            }
            Json::Object(entries) => {
                let parts: Vec<_> = entries
                    .iter()
                    .map(|(key, value)| {
                        Some((key.clone(), self.part(value, &format!("{field}.{key}"), depth - 1)?))
                    })
                    .collect();
                parts.into_iter().collect::<Option<_>>().map(Part::Object)
            }
            other => Some(Part::Value(other.clone())),
        }
    }

    fn text(&mut self, text: &str, field: &str) -> Option<Part> {
        let compiled = match template::whole(text) {
            Some((source, at)) => Expression::compile(source, &self.schema, self.phase)
                .map(|expression| Part::Expression(Box::new(expression)))
                .map_err(|all| all.into_iter().map(|mistake| mistake.moved(at)).collect()),
            None if text.contains("{=") => Template::compile(text, &self.schema, self.phase).map(Part::Text),
            None => return Some(Part::Value(text.into())),
        };
        // What a variable brought in is told from an expression by its place in the file: `a.b` may be two.
        let is_unclear = field.ends_with('.') || [".[", ".."].iter().any(|part| field.contains(part));
        if is_unclear || !self.places.insert(field.to_owned()) {
            let hint = "write keys that are not empty and have no dots or brackets around expressions";
            self.build.refuse(field, "the place of this expression is not unique", Some(hint.into()));
            return None;
        }
        let in_text = template::whole(text).is_none();
        self.build.expressions.push(Written { field: field.to_owned(), is_sound: compiled.is_ok(), in_text });
        match compiled {
            Ok(part) => {
                match &part {
                    Part::Expression(expression) => self.reads.extend_from_slice(expression.reads()),
                    Part::Text(text) => {
                        text.expressions()
                            .for_each(|expression| self.reads.extend_from_slice(expression.reads()));
                    }
                    _ => {}
                }
                Some(part)
            }
            Err(mistakes) => {
                let mistakes: Vec<weir_expr::Mistake> = mistakes;
                self.build.mistakes.extend(mistakes.into_iter().map(|mistake| Mistake {
                    field: field.to_owned(),
                    message: mistake.message.into(),
                    hint: mistake.hint.map(Into::into),
                    offset: Some(mistake.range.start),
                }));
                None
            }
        }
    }
}

/// Whether what is read is of the response.
fn is_of_response(read: &Read) -> bool {
    matches!(read.var, RESPONSE_BODY | RESPONSE_CAUSE | RESPONSE_HEADERS | RESPONSE_STATUS)
}

/// A document would be too long.
struct TooLong;

impl Part {
    /// Its value; none where an expression has none. Takes its length off `left`.
    fn value(&self, values: &dyn Values, left: &mut usize) -> Result<Option<Json>, TooLong> {
        Ok(Some(match self {
            Self::Expression(expression) => match expression.value(values) {
                Value::Absent => return Ok(None),
                value if value.fits(left) => value.to_json(),
                _ => return Err(TooLong),
            },
            Self::List(parts) => {
                let items = parts.iter().map(|part| Ok(part.value(values, left)?.unwrap_or(Json::Null)));
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Object(parts) => {
                let mut entries = Map::new();
                for (key, part) in parts {
                    if let Some(value) = part.value(values, left)? {
                        entries.insert(key.clone(), value);
                    }
                }
                Json::Object(entries)
            }
            Self::Text(text) => {
                let mut out = Vec::new();
                text.render(values, &mut out, |value, out| out.extend_from_slice(value));
                *left = left.checked_sub(out.len()).ok_or(TooLong)?;
                Json::String(String::from_utf8_lossy(&out).into_owned())
            }
            Self::Value(value) => value.clone(),
        }))
    }
}
