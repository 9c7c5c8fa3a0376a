//! Forms: how the fields of `application/x-www-form-urlencoded` and `multipart/form-data` become JSON, which a schema
//! then checks.

use super::multipart::{self, FormPart};
use super::parameter::{Kinds, Parameter, plus, scalar};
use super::{MediaRange, is_json};
use crate::fault::{Fault, MOST_FAULTS, Part};
use crate::json::{self, Document, Limits};
use crate::schema::Schema;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Most fields of a form.
const FIELDS: usize = 1024;

/// Which kind of form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormKind {
    Multipart,
    UrlEncoded,
}

/// What a form must be.
#[derive(Debug)]
pub struct Form {
    pub(super) kind: FormKind,
    pub(super) fields: Vec<Field>,
    pub(super) schema: Arc<Schema>,
}

/// A field that the schema knows.
#[derive(Debug)]
pub(super) struct Field {
    /// How its text is read. Its schema decides whether `5` is meant as a number or as a text.
    pub(super) parameter: Parameter,
    /// In a multipart form: whether it may occur several times, and what one of it is.
    pub(super) several: bool,
    pub(super) one: One,
    /// The media types that its parts may have; empty: any.
    pub(super) media: Vec<MediaRange>,
}

/// What one part of a multipart form is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum One {
    /// Any bytes.
    Binary,
    Json,
    Scalar(Kinds),
}

impl Form {
    /// Reads a body as a form and checks it by the schema. `media` is its Content-Type.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, body: &[u8], media: &[u8], limits: Limits) -> Result<(), Vec<Fault>> {
        let value = match self.kind {
            FormKind::UrlEncoded => self.of_pairs(body)?,
            FormKind::Multipart => {
                let whole =
                    |why: String| vec![Fault::new(Part::Body, format!("is not taken as a form: it {why}"))];
                let boundary = multipart::boundary(media).map_err(|why| whole(why.to_owned()))?;
                let parts = multipart::parts(body, &boundary).map_err(whole)?;
                self.of_parts(&parts, limits)?
            }
        };
        let values = count(&value);
        if values > limits.values {
            return Err(vec![Fault::new(Part::Body, "is not taken as a form: it has too many values")]);
        }
        self.schema.check(&Document { value, values, bytes: body.len() })
    }

    /// Each name is decoded once, so the time is linear in the body.
    fn of_pairs(&self, body: &[u8]) -> Result<Value, Vec<Fault>> {
        let pairs: Vec<&[u8]> = body.split(|&b| b == b'&').filter(|pair| !pair.is_empty()).collect();
        if pairs.len() > FIELDS {
            return Err(vec![Fault::new(Part::Body, format!("has more than {FIELDS} fields"))]);
        }
        let mut map = Map::new();
        let mut own: Vec<Vec<u8>> = vec![Vec::new(); self.fields.len()];
        for pair in pairs {
            let end = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
            let (name, value) =
                (pair.get(..end).unwrap_or_default(), pair.get(end + 1..).unwrap_or_default());
            let (Ok(name), Ok(value)) = (plus(name), plus(value)) else {
                return Err(vec![Fault::new(Part::Body, "is not percent-encoded UTF-8")]);
            };
            match self.fields.iter().position(|field| field.parameter.owns(&name)) {
                Some(at) => {
                    if let Some(own) = own.get_mut(at) {
                        own.extend_from_slice(pair);
                        own.push(b'&');
                    }
                }
                None => add(&mut map, name, Value::String(value)),
            }
        }
        let mut faults = Vec::new();
        for (Field { parameter, .. }, own) in self.fields.iter().zip(&own).filter(|(_, own)| !own.is_empty())
        {
            match parameter.chosen(own) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    if map.insert(parameter.name.clone(), value).is_some() {
                        faults.push(at(&parameter.name, "is given more than once")); // `a=1` beside `a[b]=1`
                    }
                }
                Err(wrong) => faults.push(at(&parameter.name, wrong)),
            }
        }
        finish(map, faults)
    }

    fn of_parts(&self, parts: &[FormPart<'_>], limits: Limits) -> Result<Value, Vec<Fault>> {
        let mut map = Map::new();
        let mut faults = Vec::new();
        for part in parts {
            let Some(field) = self.fields.iter().find(|field| field.parameter.name == part.name) else {
                add(&mut map, part.name.clone(), text_or_bytes(part.content));
                continue;
            };
            match field.of_part(part, limits) {
                Err(wrong) => faults.push(at(&part.name, wrong)),
                Ok(value) if field.several => {
                    match map.entry(part.name.clone()).or_insert_with(|| Vec::<Value>::new().into()) {
                        // A list may come as parts, or as JSON in one part.
                        Value::Array(all) => match value {
                            Value::Array(more) if field.one == One::Json => all.extend(more),
                            value => all.push(value),
                        },
                        _ => faults.push(at(&part.name, "is given more than once")),
                    }
                }
                Ok(value) => {
                    if map.insert(part.name.clone(), value).is_some() {
                        faults.push(at(&part.name, "is given more than once"));
                    }
                }
            }
        }
        finish(map, faults)
    }
}

impl Field {
    fn of_part(&self, part: &FormPart<'_>, limits: Limits) -> Result<Value, &'static str> {
        let essence = |media: &str| media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // RFC 7578 §4.4: a part that says nothing is text.
        let media = part.media.as_deref().map_or_else(|| "text/plain".to_owned(), essence);
        let is_free = self.media.is_empty() || (self.one == One::Json && part.media.is_none());
        if !is_free && !self.media.iter().any(|range| range.takes(media.as_bytes())) {
            return Err("has a media type that is not described");
        }
        match self.one {
            One::Binary => Ok(text_or_bytes(part.content)),
            One::Json if part.media.is_some() && !is_json(media.as_bytes()) => {
                Err("has a media type other than JSON")
            }
            One::Json => {
                json::parse(part.content, limits).map(|read| read.value).map_err(|_| "is not taken as JSON")
            }
            One::Scalar(kinds) => {
                let text = str::from_utf8(part.content).map_err(|_| "is not UTF-8")?;
                let typed = scalar(text.to_owned(), kinds, true);
                let fits = |value: &Value| {
                    self.parameter.schema.as_ref().is_none_or(|schema| schema.fault_of(value).is_none())
                };
                // `5` may be meant as the text. Of a list, each item is judged by what items may be.
                if !self.several && kinds.text && !fits(&typed) {
                    return Ok(Value::String(text.to_owned()));
                }
                Ok(typed)
            }
        }
    }
}

fn at(name: &str, detail: &str) -> Fault {
    let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    Fault { pointer, ..Fault::new(Part::Body, detail) }
}

/// Adds a field that the schema does not name: a text, or a list if it occurs several times.
fn add(map: &mut Map<String, Value>, name: String, value: Value) {
    match map.get_mut(&name) {
        None => drop(map.insert(name, value)),
        Some(Value::Array(all)) => all.push(value),
        Some(one) => *one = Value::Array(vec![one.take(), value]),
    }
}

fn finish(map: Map<String, Value>, mut faults: Vec<Fault>) -> Result<Value, Vec<Fault>> {
    faults.truncate(MOST_FAULTS);
    if faults.is_empty() { Ok(Value::Object(map)) } else { Err(faults) }
}

/// Bytes as a text of the same length: schemas can bound the length of a file.
fn text_or_bytes(bytes: &[u8]) -> Value {
    let text = str::from_utf8(bytes).map(str::to_owned);
    Value::String(text.unwrap_or_else(|_| bytes.iter().map(|&b| char::from(b)).collect()))
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum::<usize>(),
        _ => 0,
    }
}
