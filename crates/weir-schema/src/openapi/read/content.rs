//! Reads what a body may be: its media types, their schemas, and the fields of forms.

use super::super::form::{Field, Form, FormKind, One};
use super::super::parameter::{Parameter, Shape, Style};
use super::super::{Content, Known, MediaRange};
use super::Reader;
use super::parameters::{ANY, TYPE_DEPTH};
use crate::documents::Spot;
use crate::fault::{Part, cut};
use serde_json::Value;
use std::sync::Arc;

/// Most fields of a form that are known by its schema.
const FIELDS_OF_FORM: usize = 256;

impl<'d> Reader<'d> {
    pub(super) fn content(&mut self, spot: &Spot, answer: bool) -> Content {
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
        // The style decides; without one, nested values are JSON.
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
}
