//! Reads parameters and header fields: how they are written, and of which types they are.

use super::super::MediaRange;
use super::super::parameter::{Kinds, Parameter, Shape, Style};
use super::Reader;
use crate::documents::Spot;
use crate::fault::{Part, cut};
use serde_json::Value;

/// How deep a schema is searched for the types that a parameter may have.
pub(super) const TYPE_DEPTH: usize = 16;

/// A schema without a type takes every kind of scalar.
pub(super) const ANY: Kinds = Kinds { boolean: true, null: false, number: true, fraction: true, text: true };

impl<'d> Reader<'d> {
    pub(super) fn headers(&mut self, all: &Spot) -> Vec<Parameter> {
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

    pub(super) fn parameter(&mut self, spot: Spot, names: &[String]) -> Option<Parameter> {
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
    pub(super) fn shape(&mut self, spot: &Spot) -> Shape {
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

    pub(super) fn kinds(&mut self, spot: &Spot) -> Kinds {
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
    pub(super) fn types(&mut self, spot: &Spot, depth: usize) -> Vec<String> {
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
    pub(super) fn found_below(&self, spot: &Spot, key: &str, depth: usize) -> Option<Spot> {
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
}
