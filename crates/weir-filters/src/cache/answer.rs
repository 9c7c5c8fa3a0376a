//! Answers from what is kept: whole, in part, or none of it where the client has it already.

use super::Cache;
use super::conditional::{Part, client_has_it, part};
use super::fill::Fill;
use super::object::{Meta, Stored};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use weir_engine::filter::{Answer, Body, RequestHead, ResponseHead};
use weir_h1::{FieldName, Fields, Method};

/// Where a body is.
pub(super) enum Whole<'a> {
    /// On its way, of that length if it is known.
    Fill(&'a Arc<Fill>, Option<u64>),
    Object(&'a Stored),
}

/// What of a request decides which part it gets.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    fields: &'a Fields,
    /// Ranges are for GET alone (RFC 9110 §14.2).
    get: bool,
}

/// Names of fields, made once.
pub(super) struct Names {
    age: FieldName,
    cache_status: FieldName,
    content_range: FieldName,
    pub(super) if_modified_since: FieldName,
    pub(super) if_none_match: FieldName,
    pub(super) if_range: FieldName,
    pub(super) range: FieldName,
}

/// The fields of a 304 (RFC 9110 §15.4.5), and the date by which some clients compare.
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
            if_modified_since: name("if-modified-since"),
            if_none_match: name("if-none-match"),
            if_range: name("if-range"),
            range: name("range"),
        }
    }

    /// Says behind what others have said what this cache did (RFC 9211 §2).
    pub(super) fn tell(&self, head: &mut ResponseHead, status: &str) {
        let _ = head.headers.append(&self.cache_status, format!("weir; {status}").as_bytes()); // plain text
    }
}

impl Cache {
    /// The answer to a request, from what is kept.
    pub(super) fn answer(
        &self,
        meta: &Meta,
        whole: &Whole<'_>,
        asked: Asked<'_>,
        status: &str,
    ) -> Box<Answer> {
        let now = Instant::now();
        let validators = meta.validators();
        if meta.status == 200 && client_has_it(asked.fields, &validators) {
            let of_304 =
                |name: &FieldName| OF_304.iter().any(|known| known.eq_ignore_ascii_case(name.as_str()));
            let kept = meta.fields.iter().filter(|(name, _)| of_304(name)).cloned().collect();
            return self.finish(304, kept, Body::default(), (meta, now, status));
        }
        let mut fields = Vec::with_capacity(meta.fields.len() + 4);
        fields.extend_from_slice(&meta.fields);
        let body = match whole {
            Whole::Fill(fill, length) => Body::Stream(Box::new(fill.follow(*length))),
            Whole::Object(body) => {
                let length = body.length();
                let wanted = match asked.get && meta.status == 200 {
                    true => part(asked.fields, &validators, length),
                    false => Part::Whole,
                };
                let range = match wanted {
                    Part::Whole => {
                        return self.finish(meta.status, fields, body.part(0..length), (meta, now, status));
                    }
                    Part::Outside => {
                        let range = format!("bytes */{length}").into_bytes();
                        fields.push((self.names.content_range.clone(), range));
                        return self.finish(416, fields, Body::Bytes(Bytes::new()), (meta, now, status));
                    }
                    Part::Bytes(range) => range,
                };
                let text = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                fields.push((self.names.content_range.clone(), text.into_bytes()));
                return self.finish(206, fields, body.part(range), (meta, now, status));
            }
        };
        self.finish(meta.status, fields, body, (meta, now, status))
    }

    fn finish(
        &self,
        status: u16,
        mut headers: Vec<(FieldName, Vec<u8>)>,
        body: Body,
        (meta, now, said): (&Meta, Instant, &str),
    ) -> Box<Answer> {
        let age = meta.age(now);
        headers.push((self.names.age.clone(), age.as_secs().to_string().into_bytes()));
        let told = if said.starts_with("hit") {
            let ttl = i128::from(meta.lifetime.as_secs()) - i128::from(age.as_secs());
            let (hit, detail) =
                said.split_once(';').map_or((said, String::new()), |(hit, more)| (hit, format!(";{more}")));
            format!("weir; {hit}; ttl={ttl}{detail}")
        } else {
            format!("weir; {said}")
        };
        headers.push((self.names.cache_status.clone(), told.into_bytes()));
        Box::new(Answer { status, headers, body })
    }
}
