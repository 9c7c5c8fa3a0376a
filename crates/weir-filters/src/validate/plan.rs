//! What a message has to be, by its head.

use super::super::prelude::*;
use super::verdict::{Found, Verdict};
use super::{ANSWER, REFUSED};
use std::sync::Arc;
use weir_filter::cookies;
use weir_filter::json_body::{Coded, Unread, coding, is_json, media_type, refuse_charset};
use weir_h1::{BodyKind, Fields, Method};
use weir_schema::Schema;
use weir_schema::openapi::{Api, Body, Form, Found as FoundOperation, Parts};

/// What messages are checked by.
pub(super) enum Rules {
    Api(Box<Api>),
    Schema(Arc<Schema>),
}

/// How a body is checked.
pub(super) enum Plan {
    /// As a form. `media` is its Content-Type, which names the boundary of its parts.
    Form { form: Arc<Form>, media: Vec<u8>, coded: Coded, required: bool },
    /// Not at all.
    Free,
    /// As JSON. Without a schema there is only to see whether there is one.
    Json { schema: Option<Arc<Schema>>, coded: Coded, required: bool },
}

impl Rules {
    /// How the body of a request is checked, if everything else is right. Notes the number of the operation and 1.
    pub(super) fn of_request(&self, head: &RequestHead, operation: &mut u64) -> Found<Plan> {
        let has_body = head.body() != BodyKind::Empty;
        match self {
            Self::Schema(schema) => {
                let required = matches!(head.method(), Method::Patch | Method::Post | Method::Put);
                let coded = if has_body { json_of(&head.headers)? } else { Coded::No };
                Ok(Plan::Json { schema: Some(Arc::clone(schema)), coded, required })
            }
            Self::Api(api) => {
                let (at, captures) = match api.find(head.method_name(), head.path()) {
                    FoundOperation::NoMethod(methods) => return Err(Verdict::method(&methods)),
                    FoundOperation::NoPath => return Err(Verdict::path()),
                    FoundOperation::Operation(at, captures) => (at, captures),
                };
                let Some(of) = api.operation(at) else { return Ok(Plan::Free) };
                *operation = at as u64 + 1;
                let faults = of.faults(&Parts {
                    captures: &captures,
                    query: head.query().unwrap_or_default(),
                    headers: &|name| head.headers.get_all(name).collect(),
                    cookies: &|name| cookies::values(head, name).collect(),
                });
                if !faults.is_empty() {
                    return Err(Verdict::parameters(&REFUSED, faults));
                }
                let required = of.needs_body();
                if !has_body {
                    return Ok(Plan::Json { schema: None, coded: Coded::No, required });
                }
                if matches!(of.body(b""), Body::None) {
                    return Err(Verdict::undescribed_body());
                }
                plan(|media| of.body(media), &head.headers, required)
            }
        }
    }

    /// How the body of an answer is checked, if everything else is right.
    pub(super) fn of_answer(&self, operation: usize, head: &ResponseHead, has_body: bool) -> Found<Plan> {
        let Self::Api(api) = self else { return Ok(Plan::Free) };
        let Some(of) = api.operation(operation) else { return Ok(Plan::Free) };
        let status = head.status();
        if !of.describes(status) {
            return Err(Verdict::status(status));
        }
        let faults = of.answer_faults(
            status,
            &Parts {
                captures: &[],
                query: b"",
                headers: &|name| head.headers.get_all(name).collect(),
                cookies: &|_| Vec::new(),
            },
        );
        if !faults.is_empty() {
            return Err(Verdict::parameters(&ANSWER, faults));
        }
        if !has_body || matches!(of.answer_body(status, b""), Body::None) {
            return Ok(Plan::Free);
        }
        plan(|media| of.answer_body(status, media), &head.headers, false).map_err(|mut verdict| {
            verdict.cause = &ANSWER;
            verdict
        })
    }

    pub(super) fn explain(&self, head: &RequestHead) -> Vec<String> {
        let Self::Api(api) = self else { return Vec::new() };
        vec![match api.find(head.method_name(), head.path()) {
            FoundOperation::NoMethod(methods) => {
                format!("405: the path is described for {}", methods.join(", "))
            }
            FoundOperation::NoPath => "404: the document has no such path".to_owned(),
            FoundOperation::Operation(at, _) => {
                let name = api.operation(at).map_or("", |operation| &operation.name);
                format!("checked as {name}")
            }
        }]
    }
}

/// The plan for a body of the media type that a message names.
fn plan<'b>(body: impl Fn(&[u8]) -> Body<'b>, fields: &Fields, required: bool) -> Found<Plan> {
    let media = media_type(fields).map_err(|e| unread(&e))?;
    match body(media) {
        Body::Form(form) => {
            refuse_charset(media).map_err(|e| unread(&e))?;
            let coded = coding(fields).map_err(|e| unread(&e))?;
            Ok(Plan::Form { form: Arc::clone(form), media: media.to_vec(), coded, required })
        }
        Body::Free | Body::None => Ok(Plan::Free),
        Body::Json(schema) => {
            refuse_charset(media).map_err(|e| unread(&e))?;
            let coded = coding(fields).map_err(|e| unread(&e))?;
            Ok(Plan::Json { schema: Some(Arc::clone(schema)), coded, required })
        }
        Body::Unknown(known) => Err(Verdict::media(&format!("expected {}", known.join(", ")))),
    }
}

/// The content coding of a message that has to be JSON.
fn json_of(fields: &Fields) -> Found<Coded> {
    let media = media_type(fields).map_err(|e| unread(&e))?;
    if !is_json(media) {
        return Err(Verdict::media("expected JSON: application/json, or a type that ends in +json"));
    }
    refuse_charset(media).map_err(|e| unread(&e))?;
    coding(fields).map_err(|e| unread(&e))
}

fn unread(why: &Unread) -> Box<Verdict> {
    match why {
        Unread::Media(expected) => Verdict::media(expected),
        _ => Verdict::media("expected no Content-Encoding, or gzip"),
    }
}
