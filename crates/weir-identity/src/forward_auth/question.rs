//! The request to the service: which fields of the client's request it gets, and what describes that request.

use super::{ForwardAuth, ForwardAuthSettings};
use crate::prelude::*;
use schemars::{Schema, SchemaGenerator};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::ser::Serializer;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use weir_filter::template::{Escape, Template, Values};
use weir_h1::{FieldName, NameSet};

/// Which fields of the request the service gets.
#[derive(Debug, PartialEq)]
pub(super) enum CopyRequest {
    /// All but those in [`NEVER`] and those that the gateway writes itself.
    All,
    Named(Vec<HeaderName>),
}

/// The names of the fields that describe the request.
pub(super) struct Names {
    pub(super) forwarded_for: FieldName,
    pub(super) host: FieldName,
    pub(super) method: FieldName,
    pub(super) proto: FieldName,
    pub(super) uri: FieldName,
    pub(super) content_type: FieldName,
    pub(super) content_encoding: FieldName,
    /// What `copy_request: all` leaves out, in any spelling.
    left_out: NameSet,
}

/// What `copy_request: all` never copies. Fields of one connection and of the body's length are not about this
/// request. An answer to a condition or of a part (304, 412, 206) is no decision, and one with a coding could not be
/// passed on.
const NEVER: [&str; 19] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "forwarded",
];

// === impl CopyRequest ===

impl Default for CopyRequest {
    fn default() -> Self {
        Self::Named(vec![HeaderName::fixed("authorization"), HeaderName::fixed("cookie")])
    }
}

impl CopyRequest {
    /// The fields, if they are named.
    pub(super) fn named(&self) -> &[HeaderName] {
        match self {
            Self::All => &[],
            Self::Named(names) => names,
        }
    }
}

impl<'de> Deserialize<'de> for CopyRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CopyVisitor;

        impl<'de> Visitor<'de> for CopyVisitor {
            type Value = CopyRequest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of fields such as [ cookie ], or all")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CopyRequest, E> {
                if text == "all" {
                    return Ok(CopyRequest::All);
                }
                Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<CopyRequest, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(CopyRequest::Named)
            }
        }

        deserializer.deserialize_any(CopyVisitor)
    }
}

impl Serialize for CopyRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Named(names) => names.serialize(serializer),
        }
    }
}

impl JsonSchema for CopyRequest {
    fn schema_name() -> Cow<'static, str> {
        "CopyRequest".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let name = generator.subschema_for::<HeaderName>();
        schemars::json_schema!({ "anyOf": [{ "type": "array", "items": name }, { "const": "all" }] })
    }
}

// === impl Names ===

impl Names {
    pub(super) fn new(settings: &ForwardAuthSettings) -> Self {
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        let [forwarded_for, host, method, proto, uri] = [
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-method",
            "x-forwarded-proto",
            "x-forwarded-uri",
        ]
        .map(name);
        let own = [&forwarded_for, &host, &method, &proto, &uri].map(Clone::clone);
        // A service must not take a client's own `x-user` for one that it has set.
        let copied = settings.copy.iter().map(|name| (**name).clone());
        // Nor for one that the settings write, or leave out because its value is empty.
        let set = settings.set.keys().filter_map(|name| FieldName::new(name).ok()); // `set` reports bad names
        let left_out = NameSet::new(NEVER.map(name).into_iter().chain(own).chain(copied).chain(set));
        Self {
            forwarded_for,
            host,
            method,
            proto,
            uri,
            content_type: name("content-type"),
            content_encoding: name("content-encoding"),
            left_out,
        }
    }

    /// Whether `name` is one of the fields that only we may set.
    fn has(&self, name: &FieldName) -> bool {
        [&self.forwarded_for, &self.host, &self.method, &self.proto, &self.uri].contains(&name)
    }
}

/// The fields that the settings write themselves, as templates.
pub(super) fn set(settings: &BTreeMap<String, String>, build: &mut Build<'_>) -> Vec<(FieldName, Template)> {
    let mut compiled: Vec<(FieldName, Template)> = Vec::new();
    for (name, value) in settings {
        let field = format!("set.{name}");
        let template = build.text(&field, value);
        match serde_json::from_value::<HeaderName>(name.clone().into()) {
            Err(e) => build.refuse(&field, e.to_string(), None),
            Ok(name) if compiled.iter().any(|(known, _)| *known == *name) => {
                build.refuse(&field, "is listed twice", Some("case does not matter in names".into()));
            }
            Ok(name) => {
                if allow_name(build, &field, &name)
                    && let Some(template) = template
                {
                    compiled.push(((*name).clone(), template));
                }
            }
        }
        if value.bytes().any(|b| b != b'\t' && b.is_ascii_control()) {
            build.refuse(&field, "the value holds a control byte, which would end the field", None);
        }
    }
    compiled
}

impl ForwardAuth {
    /// The fields of the client's request that the service gets.
    pub(super) fn copied(&self, head: &RequestHead) -> Vec<(FieldName, Vec<u8>)> {
        let Self { settings, names, set, .. } = self;
        let is_set = |name: &FieldName| set.iter().any(|(own, _)| own == name);
        let mut copied = Vec::new();
        match &settings.copy_request {
            CopyRequest::All => {
                for (name, value) in head.headers.iter().filter(|(name, _)| !names.left_out.reads(name)) {
                    let name = std::str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok());
                    if let Some(name) = name.filter(|name| !is_set(name)) {
                        copied.push((name, value.to_vec()));
                    }
                }
            }
            CopyRequest::Named(named) => {
                for name in named.iter().filter(|name| !names.has(name) && !is_set(name)) {
                    let values = head.headers.get_all(name.as_str());
                    copied.extend(values.map(|value| ((**name).clone(), value.to_vec())));
                }
            }
        }
        copied
    }

    /// The fields that the settings write themselves, for this request.
    pub(super) fn written(&self, head: &RequestHead, cx: &Cx) -> Vec<(FieldName, Vec<u8>)> {
        let values = Values::of(head, cx);
        let render = |(name, template): &(FieldName, Template)| {
            let mut value = Vec::new();
            template.render(&values, Escape::Nothing, &mut value);
            (name.clone(), value)
        };
        self.set.iter().map(render).filter(|(_, value)| !value.is_empty()).collect()
    }

    pub(super) fn question(
        &self,
        head: &RequestHead,
        written: Vec<(FieldName, Vec<u8>)>,
        cx: &Cx,
    ) -> CallRequest {
        let Self { settings, names, .. } = self;
        let body = cx.share_whole();
        let mut headers = self.copied(head);
        if !body.is_empty() {
            // Without these fields the service cannot read the body.
            for name in [&names.content_type, &names.content_encoding] {
                if let Some(value) =
                    head.headers.get(name).filter(|_| !headers.iter().any(|(n, _)| n == name))
                {
                    headers.push((name.clone(), value.to_vec()));
                }
            }
        }
        let mut uri = head.routed_path().to_vec();
        if let Some(query) = head.query() {
            uri.push(b'?');
            uri.extend_from_slice(query);
        }
        let proto: &[u8] = if cx.tls { b"https" } else { b"http" };
        let mut describe = |name: &FieldName, value: Vec<u8>| {
            if !written.iter().any(|(own, _)| own == name) {
                headers.push((name.clone(), value));
            }
        };
        describe(&names.method, head.method_name().to_vec());
        describe(&names.proto, proto.to_vec());
        if !head.asked_authority().is_empty() {
            describe(&names.host, head.asked_authority().to_vec());
        }
        describe(&names.uri, uri);
        describe(&names.forwarded_for, cx.client.to_canonical().to_string().into_bytes());
        headers.extend(written);
        // An HTTP/1.0 request may have no Host, but the question needs one.
        let authority = match head.asked_authority() {
            b"" => settings.upstream.as_bytes(),
            authority => authority,
        };
        CallRequest {
            method: self.method.clone(),
            target: settings.path.clone(),
            authority: authority.to_vec(),
            headers,
            body,
            limit: CALL_BODY_BYTES,
        }
    }
}
