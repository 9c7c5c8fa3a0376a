//! Answers from stored objects: whole, partial, or a 304 if the client already has it.

use super::Cache;
use super::conditional::{Part, client_has_it, part};
use super::fill::Fill;
use super::object::{Meta, Stored};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use weir_filter::filter::{Answer, Body, Cx, RequestHead, ResponseHead};
use weir_h1::{FieldName, Fields, Method};

/// The location of a body.
pub(super) enum Whole<'a> {
    /// Still arriving, with its length if known.
    Fill(&'a Arc<Fill>, Option<u64>),
    Object(&'a Stored),
}

/// The parts of a request that decide which range it gets.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    fields: &'a Fields,
    /// Ranges apply only to GET (RFC 9110 §14.2).
    get: bool,
}

/// Field names, created once.
pub(super) struct Names {
    age: FieldName,
    cache_status: FieldName,
    content_range: FieldName,
    of_body: [FieldName; 7],
    pub(super) if_modified_since: FieldName,
    pub(super) if_none_match: FieldName,
    pub(super) if_range: FieldName,
    pub(super) range: FieldName,
}

/// The fields of a 304 (RFC 9110 §15.4.5), and the date that some clients compare.
const OF_304: [&str; 8] = [
    "cache-control",
    "cdn-cache-control",
    "content-location",
    "date",
    "etag",
    "expires",
    "last-modified",
    "vary",
];

/// Fields that describe a body.
const OF_BODY: [&str; 7] = [
    "accept-ranges",
    "content-digest",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "repr-digest",
];

impl<'a> Asked<'a> {
    pub(super) const fn get(fields: &'a Fields) -> Self {
        Self { fields, get: true }
    }

    pub(super) fn of(head: &'a RequestHead) -> Self {
        Self { fields: &head.headers, get: head.method() == Method::Get }
    }
}

impl Names {
    pub(super) fn new() -> Self {
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Self {
            age: name("age"),
            cache_status: name("cache-status"),
            content_range: name("content-range"),
            of_body: OF_BODY.map(name),
            if_modified_since: name("if-modified-since"),
            if_none_match: name("if-none-match"),
            if_range: name("if-range"),
            range: name("range"),
        }
    }

    /// Turns a response with a body into a 304. As in nginx, fields about the body are removed except its validators
    /// (RFC 9110 §15.4.5).
    pub(super) fn make_304(&self, head: &mut ResponseHead) {
        head.set_status(304);
        for name in &self.of_body {
            head.headers.remove(name);
        }
    }

    /// Appends what this cache did to `Cache-Status`, after the entries of earlier caches (RFC 9211 §2).
    pub(super) fn tell(&self, head: &mut ResponseHead, status: &str) {
        let _ = head.headers.append(&self.cache_status, format!("weir; {status}").as_bytes()); // plain text
    }
}

impl Cache {
    /// Answers a request from the store. With `cx`, the prepared fields are copied as a block.
    pub(super) fn answer(
        &self,
        meta: &Meta,
        whole: &Whole<'_>,
        asked: Asked<'_>,
        status: &str,
        cx: Option<&mut Cx>,
    ) -> Box<Answer> {
        let mut more = Vec::with_capacity(3);
        let (code, body) = self.body(meta, whole, asked, &mut more);
        let mut cx = cx;
        if let Some(cx) = &mut cx {
            cx.answer_with_kept();
        }
        let age = meta.age(Instant::now()).as_secs();
        more.push((&self.names.age, itoa::Buffer::new().format(age).as_bytes().to_vec()));
        more.push((&self.names.cache_status, cache_status(status, meta.lifetime.as_secs(), age)));
        let headers = match cx {
            Some(cx) if code != 304 => {
                let mut fields = meta.ready.with_room(more.len(), ROOM);
                for (name, value) in more {
                    let _ = fields.append(name, &value); // plain text
                }
                cx.answer_with(fields);
                Vec::new()
            }
            _ => {
                let of_304 = |name: &FieldName| {
                    code != 304 || OF_304.iter().any(|known| known.eq_ignore_ascii_case(name.as_str()))
                };
                let kept = meta.fields.iter().filter(|(name, _)| of_304(name)).cloned();
                kept.chain(more.into_iter().map(|(name, value)| (name.clone(), value))).collect()
            }
        };
        Box::new(Answer { status: code, headers, body })
    }

    /// The requested part of the body, and the matching status.
    fn body<'s>(
        &'s self,
        meta: &Meta,
        whole: &Whole<'_>,
        asked: Asked<'_>,
        more: &mut Vec<(&'s FieldName, Vec<u8>)>,
    ) -> (u16, Body) {
        let validators = meta.validators();
        if meta.status == 200 && client_has_it(asked.fields, &validators) {
            return (304, Body::default());
        }
        let stored = match whole {
            Whole::Fill(fill, length) => return (meta.status, Body::Stream(Box::new(fill.follow(*length)))),
            Whole::Object(stored) => stored,
        };
        let length = stored.length();
        let wanted = match asked.get && meta.status == 200 {
            true => part(asked.fields, &validators, length),
            false => Part::Whole,
        };
        match wanted {
            Part::Whole => (meta.status, stored.part(0..length)),
            Part::Outside => {
                more.push((&self.names.content_range, format!("bytes */{length}").into_bytes()));
                (416, Body::Bytes(Bytes::new()))
            }
            Part::Bytes(range) => {
                let text = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                more.push((&self.names.content_range, text.into_bytes()));
                (206, stored.part(range))
            }
        }
    }
}

/// Room for the fields that are added to the prepared ones, in bytes.
const ROOM: usize = 192;

/// The value of `Cache-Status`.
fn cache_status(said: &str, lifetime: u64, age: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    out.extend_from_slice(b"weir; ");
    match said.strip_prefix("hit") {
        Some(more) => {
            out.extend_from_slice(b"hit; ttl=");
            let ttl = i128::from(lifetime) - i128::from(age);
            out.extend_from_slice(itoa::Buffer::new().format(ttl).as_bytes());
            out.extend_from_slice(more.as_bytes());
        }
        None => out.extend_from_slice(said.as_bytes()),
    }
    out
}
