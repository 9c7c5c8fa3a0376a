//! `transform`: replaces JSON bodies by a template with expressions.
//!
//! `document` of weir-filter compiles and fills templates. Here is which bodies are taken, and what follows for heads.

#[cfg(test)]
mod tests;

use super::prelude::*;
use super::shared::changed::{OF_THE_BYTES, WeakTags, no_transform, weaken};
use serde_json::Value as Json;
use weir_filter::coding::{Coding, ranked};
use weir_filter::document::{BODY, Bodies, Document, RESPONSE_BODY_READ};
use weir_filter::error::BODY_TOO_LARGE;
use weir_filter::filter::BODY_VALUES;
use weir_filter::json_body::{Coded, Unread, coded_json, decoded};
use weir_h1::{BodyKind, FieldName, Known, Method};
use weir_schema::json::{self, Limits};

pub(super) static KIND: FilterKind = FilterKind::made_from::<TransformSettings>("transform").with_causes(&[
    &ANSWER,
    &BODY_TOO_LARGE,
    &LENGTH,
    &MALFORMED,
    &MEDIA,
]);

causes! {
    ANSWER "transform_answer" 502
        "The upstream's answer is not JSON, or its new body would be too long." "the service; `others` or `body` of the filter transform",
        nature: Nature::Failure
    LENGTH "transform_length" 413
        "The request's new body would be too long." "the template, or `body` of the filter transform"
    MALFORMED "transform_malformed" 400
        "The request's body is not taken as JSON." "the client's body"
    MEDIA "transform_media_type" 415
        "The request's body is not JSON by its media type, or has a content coding other than gzip." "the client's Content-Type and Content-Encoding; `others` of the filter transform"
}

/// Replaces JSON bodies by a template: of requests before the upstream sees them, of answers before the client does.
///
/// A text of a template that begins with `= ` is an expression and becomes its value, whatever kind of JSON that is. In
/// other texts, `{= … }` becomes the value as text. Everything else stands for itself. Where an expression has no value, a
/// member of an object is left out, and an item of a list is null.
///
/// Expressions know all variables of filters, `request.body` among them. In `response` they also know `response.body`,
/// `response.status` and `response.headers`. Members are read as in `request.body.user.id`; lists are mapped by
/// `request.body.items.map(i, i.sku)`, up to 1,000 items.
///
/// Bodies are JSON if their Content-Type says so. They are read strictly: without duplicate keys, byte order mark, or a
/// charset other than UTF-8, and with at most 100,000 values. gzip is removed. Messages without a body pass unchanged.
/// `others` says what happens to other bodies: unless told otherwise, requests are refused with 415 and answers pass.
///
/// A new body has the Content-Type application/json and its length; Content-Encoding and digests are removed. A strong
/// ETag becomes weak. The upstream is asked for whole answers, with gzip or without a coding: Range and If-Range are
/// removed. Parts (206), answers with `Cache-Control: no-transform`, and the gateway's own error answers pass unchanged.
///
/// ```yaml
/// - transform: { request: { user: "= request.body.user.id", skus: "= request.body.items.map(i, i.sku)" } }
/// - transform: { response: { status: "= response.status", data: "= response.body" }, others: refuse }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TransformSettings {
    /// The new body of requests. At most 1,000 values, nested 32 deep.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<JsonTemplate>,
    /// The new body of answers. At most 1,000 values, nested 32 deep.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<JsonTemplate>,
    /// What happens to bodies that are not JSON: `refuse` or `pass`. Default: requests are refused (415), answers pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<Others>,
    /// Longest body, as received, decoded and written. Default 1 MiB.
    #[serde(default = "one_mib")]
    body: ByteSize,
    /// How deep lists and objects may be nested. Default 64, at most 127.
    #[serde(default = "default_depth")]
    depth: usize,
}

/// JSON in which texts may be expressions.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
struct JsonTemplate(Json);

/// What happens to bodies that are not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Others {
    /// They pass unchanged.
    Pass,
    /// They are refused.
    Refuse,
}

const fn one_mib() -> ByteSize {
    ByteSize(1 << 20)
}

const fn default_depth() -> usize {
    64
}

struct Transform {
    request: Option<Document>,
    response: Option<Document>,
    other_requests: Others,
    other_answers: Others,
    body: usize,
    depth: usize,
    names: Names,
}

struct Names {
    accept_encoding: FieldName,
    content_encoding: FieldName,
    content_type: FieldName,
    etag: FieldName,
}

/// What is kept of a request for its answer.
#[derive(Default)]
struct Kept {
    head: Option<Box<RequestHead>>,
    body: Option<Json>,
}

/// The filter's note: the request is HEAD.
const HEAD: u64 = 1;

impl IntoFilter for TransformSettings {
    type Filter = Transform;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Transform> {
        let before = build.mistakes.len();
        if self.request.is_none() && self.response.is_none() {
            let hint = r#"write { request: { user: "= request.body.user.id" } }"#;
            build.refuse(
                "",
                "changes nothing: neither `request` nor `response` is written",
                Some(hint.into()),
            );
        }
        if !(1..=json::MAX_DEPTH).contains(&self.depth) {
            build.refuse("depth", format!("is {}; expected 1 to {}", self.depth, json::MAX_DEPTH), None);
        }
        let request =
            self.request.as_ref().and_then(|written| Document::compile(&written.0, "request", BODY, build));
        let response = self
            .response
            .as_ref()
            .and_then(|written| Document::compile(&written.0, "response", RESPONSE_BODY_READ, build));
        if build.mistakes.len() > before {
            return None;
        }
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Some(Transform {
            request,
            response,
            other_requests: self.others.unwrap_or(Others::Refuse),
            other_answers: self.others.unwrap_or(Others::Pass),
            body: self.body.as_usize(),
            depth: self.depth,
            names: Names {
                accept_encoding: name("accept-encoding"),
                content_encoding: name("content-encoding"),
                content_type: name("content-type"),
                etag: name("etag"),
            },
        })
    }
}

impl Filter for Transform {
    fn hooks(&self) -> Hooks {
        let response =
            if self.response.is_some() { Hooks::RESPONSE | Hooks::RESPONSE_BODY } else { Hooks::NONE };
        Hooks::REQUEST | Hooks::REQUEST_BODY | response
    }

    fn guards(&self) -> FieldGuards {
        let all = [&self.request, &self.response].into_iter().flatten();
        FieldGuards { request: all.flat_map(Document::guarded).collect(), ..FieldGuards::default() }
    }

    fn request_body(&self, head: &RequestHead, _: &mut Cx) -> BodyUse {
        let read = self.request.is_some() || self.response.as_ref().is_some_and(Document::reads_request_body);
        match coded_json(&head.headers) {
            Ok(_) if read => BodyUse::Whole(self.body),
            _ => BodyUse::Pass,
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        for document in [&self.request, &self.response].into_iter().flatten() {
            document.note("transform", head, cx);
        }
        let mut body = None;
        if head.body() != BodyKind::Empty {
            match self.new_request(head, cx) {
                Ok(read) => body = read,
                Err(cause) => return Flow::refuse(cause),
            }
        }
        if let Some(document) = &self.response {
            if document.reads_request() || document.reads_request_body() {
                let head = document.reads_request().then(|| Box::new(head.copied()));
                *cx.state() = Kept { head, body: body.filter(|_| document.reads_request_body()) };
            }
            if head.method() == Method::Head {
                *cx.note() = HEAD;
            }
            WeakTags::remember(head, cx);
            let gzip = !ranked(head.headers.get_all("accept-encoding"), &[Coding::Gzip]).is_empty();
            let coding: &[u8] = if gzip { b"gzip" } else { b"identity" };
            let _ = head.headers.insert(&self.names.accept_encoding, coding); // ours: a token
            head.headers.remove_where(|name, _| {
                name.eq_ignore_ascii_case(b"range") || name.eq_ignore_ascii_case(b"if-range")
            });
        }
        Flow::Continue
    }

    fn response_body(&self, head: &ResponseHead, _: &mut Cx) -> BodyUse {
        if self.takes(head) && coded_json(&head.headers).is_ok() {
            BodyUse::Whole(self.body)
        } else {
            BodyUse::Pass
        }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if head.status() == 304 {
            WeakTags::answer(head, &self.names.etag, cx);
            return Flow::Continue;
        }
        // Not the gateway's own answers: their form is known to clients.
        if !self.takes(head)
            || cx.because().is_some()
            || cx.failure().is_some_and(|failure| failure.cause.is_some())
        {
            return Flow::Continue;
        }
        let Some(document) = &self.response else { return Flow::Continue };
        let coded = match coded_json(&head.headers) {
            Ok(coded) => coded,
            Err(_) if self.other_answers == Others::Pass => return Flow::Continue,
            Err(_) => return Flow::refuse(&ANSWER),
        };
        if *cx.note() != HEAD {
            if cx.whole().is_empty() {
                return Flow::Continue;
            }
            let Ok(read) = self.read(coded, cx.whole()) else { return Flow::refuse(&ANSWER) };
            let kept = std::mem::take(cx.state::<Kept>());
            let request = kept.head.unwrap_or_default();
            let bodies = Bodies { request: kept.body.as_ref(), response: Some((head, &read)) };
            let Some((text, _)) = document.render(&request, cx, bodies, self.body) else {
                return Flow::refuse(&ANSWER);
            };
            cx.set_whole(text);
        }
        weaken(head, &self.names.etag);
        head.headers.remove_where(|name, _| OF_THE_BYTES.iter().any(|gone| name.eq_ignore_ascii_case(gone)));
        head.headers.remove(&self.names.content_encoding);
        let _ = head.headers.insert(&self.names.content_type, b"application/json"); // ours
        if *cx.note() == HEAD {
            head.headers.remove_known(Known::ContentLength);
            cx.drop_length();
        }
        Flow::Continue
    }
}

impl Transform {
    /// Reads the body of a request and writes it anew. Returns it as received.
    fn new_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Result<Option<Json>, &'static Cause> {
        let coded = match (coded_json(&head.headers), &self.request, self.other_requests) {
            (Ok(coded), ..) => coded,
            (Err(_), Some(_), Others::Refuse) => return Err(&MEDIA),
            (Err(_), ..) => return Ok(None),
        };
        if cx.whole().is_empty() {
            return Ok(None); // chunks of nothing
        }
        let read = self.read(coded, cx.whole())?;
        let Some(document) = &self.request else { return Ok(Some(read)) };
        let bodies = Bodies { request: Some(&read), ..Bodies::default() };
        let (text, value) = document.render(head, cx, bodies, self.body).ok_or(&LENGTH)?;
        cx.set_whole_json(text, value);
        head.headers.remove_where(|name, _| OF_THE_BYTES.iter().any(|gone| name.eq_ignore_ascii_case(gone)));
        head.headers.remove(&self.names.content_encoding);
        let _ = head.headers.insert(&self.names.content_type, b"application/json"); // ours
        Ok(Some(read))
    }

    fn read(&self, coded: Coded, body: &[u8]) -> Result<Json, &'static Cause> {
        let body = decoded(coded, body, self.body).map_err(|unread| match unread {
            Unread::TooLong => &BODY_TOO_LARGE,
            _ => &MALFORMED,
        })?;
        let limits = Limits { depth: self.depth, values: BODY_VALUES };
        json::parse(&body, limits).map(|document| document.value).map_err(|_| &MALFORMED)
    }

    /// Whether an answer is one that may be changed, by its head.
    fn takes(&self, head: &ResponseHead) -> bool {
        self.response.is_some()
            && !matches!(head.status(), 0..=199 | 204..=206 | 304)
            && head.headers.get_str("content-range").is_none()
            && !no_transform(&head.headers)
    }
}
