//! What a line of the access log has: its format, and the texts with expressions.

use super::process::{AccessFormat, AccessLog};
use super::values::Pairs;
use crate::de;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use weir_expr::template::{Piece, pieces};
use weir_telemetry::{Error, FormatPiece, LineFormat};

/// An element of `access_log.fields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogField {
    /// `header:NAME` or `response_header:NAME`.
    Header(String),
    /// Keys of the line, each with a text that may have expressions.
    Texts(Pairs),
}

/// A text of the access log that may have expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogText<'a> {
    /// Where its value stands in the config.
    pub path: String,
    /// The whole value.
    pub value: &'a str,
    /// The part of it that is this text.
    pub text: &'a str,
    /// The byte of the value at which the text begins.
    pub at: usize,
}

impl AccessLog {
    /// The format of its lines, without `when` and `redact`. Mistakes go to `refuse`, each with its path.
    pub fn line_format(&self, refuse: &mut dyn FnMut(&str, &Error)) -> LineFormat {
        let parsed = match &self.format {
            _ if self.otlp.is_some() => Ok(LineFormat::otlp()),
            AccessFormat::Json => Ok(LineFormat::json()),
            AccessFormat::Replay => Ok(LineFormat::replay()),
            AccessFormat::Template(text) if text.contains("{=") => match pieces(text) {
                Ok(parts) => LineFormat::template(text, parts.into_iter().map(format_piece)),
                // Reported with the other mistakes of expressions: see `texts`.
                Err(_) => Ok(LineFormat::json()),
            },
            AccessFormat::Template(text) => LineFormat::parse(text),
        };
        let mut format = parsed.unwrap_or_else(|e| {
            refuse("access_log.format", &e);
            LineFormat::json()
        });
        for (at, field) in self.fields.iter().enumerate() {
            match field {
                LogField::Header(name) => {
                    format.add(name).unwrap_or_else(|e| refuse(&format!("access_log.fields[{at}]"), &e));
                }
                LogField::Texts(texts) => texts.0.iter().for_each(|(key, _)| {
                    let path = || format!("access_log.fields[{at}].{key}");
                    format.add_computed(key).unwrap_or_else(|e| refuse(&path(), &e));
                }),
            }
        }
        format
    }

    /// The texts that may have expressions, in the order in which the format numbers them. A template whose expressions
    /// cannot be told apart is one text.
    pub fn texts(&self) -> Vec<LogText<'_>> {
        let mut texts = Vec::new();
        if let AccessFormat::Template(value) = &self.format
            && value.contains("{=")
        {
            let path = "access_log.format".to_owned();
            match pieces(value) {
                Ok(parts) => texts.extend(parts.into_iter().filter_map(|piece| {
                    let Piece::Expression(source, at) = piece else { return None };
                    let at = at - "{=".len();
                    let text = value.get(at..)?.get(..source.len() + "{=}".len())?;
                    Some(LogText { path: path.clone(), value, text, at })
                })),
                Err(_) => texts.push(LogText { path, value, text: value, at: 0 }),
            }
        }
        for (at, field) in self.fields.iter().enumerate() {
            let LogField::Texts(pairs) = field else { continue };
            texts.extend(pairs.0.iter().map(|(key, value)| {
                let path = format!("access_log.fields[{at}].{key}");
                LogText { path, value, text: value, at: 0 }
            }));
        }
        texts
    }
}

fn format_piece(piece: Piece<'_>) -> FormatPiece<'_> {
    match piece {
        Piece::Expression(..) => FormatPiece::Expression,
        Piece::Literal(text) => FormatPiece::Literal(text),
        Piece::Text(text) => FormatPiece::Text(text),
    }
}

impl<'de> Deserialize<'de> for LogField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match de::TextOrMap::<String, Pairs>::deserialize(deserializer)? {
            de::TextOrMap::Map(texts) => Self::Texts(texts),
            de::TextOrMap::Text(name) => Self::Header(name),
        })
    }
}

impl JsonSchema for LogField {
    fn schema_name() -> Cow<'static, str> {
        "LogField".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let texts = generator.subschema_for::<Pairs>();
        schemars::json_schema!({
            "description": "A header field, or keys of the line with texts that may have expressions.",
            "anyOf": [
                { "type": "string", "pattern": "^(response_)?header:", "examples": ["header:x-tenant"] },
                texts,
            ],
        })
    }
}
