//! The deserializer over nodes.

use serde::de::{Deserializer, Expected, Visitor};

use super::access::{MapReader, SeqReader, VariantReader};
use super::cx::Cx;
use super::error::{Error, one_of};
use super::{RAW, Raw, TEXT_OR_MAP, hand_over, unsupported};
use crate::node::{Node, Value};

/// The example to show if a listener's certificates are missing.
const LISTENER_TLS: &str =
    "write tls: { certificates: [ { cert: api.pem, key: api.key } ] }, or tls: { acme: { domains: [ … ] } }";

/// Reads one node.
pub(super) struct NodeReader<'n> {
    pub(super) node: &'n Node,
    pub(super) cx: &'n Cx,
}

// === impl NodeReader ===

impl<'n> NodeReader<'n> {
    pub(super) fn new(node: &'n Node, cx: &'n Cx) -> Self {
        Self { node, cx }
    }

    /// Reads as `wanted`; if that fails, reports what was wanted.
    fn refuse<T>(&self, wanted: &str) -> Result<T, Error> {
        Err(Error::fixed("bad-type", format!("is not {wanted}"))
            .hint(self.type_hint(wanted))
            .within(self.node, self.cx))
    }

    fn type_hint(&self, wanted: &str) -> Option<String> {
        let shown = self.node.shown();
        match (&self.node.value, wanted) {
            (Value::Str(text), wanted) if wanted.starts_with("a boolean") => {
                match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "y" | "true" => Some("write true".to_owned()),
                    "no" | "off" | "n" | "false" => Some("write false".to_owned()),
                    _ => None,
                }
            }
            (Value::Str(text), wanted) if wanted.starts_with("a whole number") => {
                let grouped = text.replace(['_', ','], "");
                match text.parse::<i64>() {
                    Ok(number) => Some(format!("write {number} without quotes")),
                    _ => grouped.parse::<i64>().ok().map(|number| format!("write {number}")),
                }
            }
            (Value::Float(number), wanted)
                if wanted.starts_with("a whole number") && number.fract() == 0.0 && number.abs() < 1e15 =>
            {
                Some(format!("write {number}"))
            }
            (Value::Null, "a map") if self.node.is_blank() => None,
            (Value::Str(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_), "a list") => {
                shown.map(|shown| {
                    let plain = |c: char| c.is_alphanumeric() || "-_./:".contains(c);
                    let text = matches!(self.node.value, Value::Str(_));
                    if text && !shown.chars().all(plain) {
                        format!("write [ \"{shown}\" ]")
                    } else {
                        format!("write [ {shown} ]")
                    }
                })
            }
            (Value::Str(text), "a map") if text.contains(" = ") => {
                Some("write `key: value`, with a colon in place of `=`".to_owned())
            }
            (Value::Str(text), "a map") if text.contains(':') && !text.contains(": ") => {
                self.map_hint().or_else(|| Some("put a space after the `:` of a key".to_owned()))
            }
            (Value::Bool(false), "a map") => Some("leave it out".to_owned()),
            (Value::Bool(true), "a map") => {
                let path = self.cx.path();
                let key = path.rsplit('.').next().unwrap_or(&path).to_owned();
                Some(match (key.as_str(), path.starts_with("listeners.")) {
                    ("tls", true) => LISTENER_TLS.to_owned(),
                    ("access_log", _) => "write access_log: { output: stdout }".to_owned(),
                    _ => format!("write {key}: {{}} for its defaults"),
                })
            }
            (Value::Str(_) | Value::Int(_) | Value::Float(_), "a map") => self.map_hint(),
            (Value::Map(_), "a list") => Some("begin each item with `- `, or write [ … ]".to_owned()),
            (Value::Seq(_), "a map") => Some("write `key: value` without the leading `- `".to_owned()),
            _ => None,
        }
    }

    /// The hint if a single value stands where a map of settings is expected: the setting that it most likely is.
    fn map_hint(&self) -> Option<String> {
        let path = self.cx.path();
        let key = path.rsplit('.').next().unwrap_or(&path);
        let text = self.node.shown()?;
        let main = match key {
            "access_log" => format!("access_log: {{ output: {text} }}"),
            "admin" => format!("admin: {{ address: {text} }}"),
            "body_limit" => format!("body_limit: {{ max: {text} }}"),
            "cache" => format!("cache: {{ ttl: {text} }}"),
            "cors" => format!("cors: {{ origins: [ \"{text}\" ] }}"),
            "files" => format!("files: {{ root: {text} }}"),
            "health" => format!("health: {{ probe: {{ path: {text} }} }}"),
            "log" => format!("log: {{ level: {text} }}"),
            "match" => format!("match: {{ path: {text} }}"),
            "rate_limit" => "rate_limit: { requests: 10, per: 1s }".to_owned(),
            "redirect" => format!("redirect: {{ to: {text} }}"),
            "respond" => format!("respond: {{ status: {text} }}"),
            "retry" => format!("retry: {{ attempts: {text} }}"),
            "rewrite" => format!("rewrite: {{ path: {text} }}"),
            "shutdown" => format!("shutdown: {{ drain: {text} }}"),
            "timeouts" if path.starts_with("listeners.") => format!("timeouts: {{ head: {text} }}"),
            "timeouts" => format!("timeouts: {{ response: {text} }}"),
            "tls" if path.starts_with("listeners.") => return Some(LISTENER_TLS.to_owned()),
            "tracing" => format!("tracing: {{ otlp: {text} }}"),
            _ => return None,
        };
        Some(format!("write {main}"))
    }

    fn integer(&self, min: i128, max: i128) -> Result<i64, Error> {
        match self.node.value {
            Value::Int(number) if (min..=max).contains(&i128::from(number)) => Ok(number),
            // The value is a number, so the problem is its size.
            Value::Int(_) | Value::Float(_) if self.is_too_large(max) => {
                self.refuse(&format!("a whole number from {min} to {}", max.min(i64::MAX.into())))
            }
            _ => self.refuse(&match (min, max) {
                (min, _) if min <= i128::from(i32::MIN) => "a whole number".to_owned(),
                (_, max) if max >= i128::from(u32::MAX) => format!("a whole number of at least {min}"),
                _ => format!("a whole number from {min} to {max}"),
            }),
        }
    }

    fn is_too_large(&self, max: i128) -> bool {
        let digits = self.node.raw();
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        is_number && digits.parse::<i128>().ok().is_none_or(|number| number > max.min(i64::MAX.into()))
    }

    pub(super) fn map<V: Visitor<'n>>(
        self,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            _ => return self.refuse("a map"),
        };
        let map = MapReader { parent: node, entries: entries.iter(), fields, value: None, cx };
        visitor.visit_map(map).map_err(|e| e.within(node, cx))
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty),*) => {$(
        fn $method<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.integer(<$type>::MIN as i128, <$type>::MAX as i128)?;
            let (node, cx) = (self.node, self.cx);
            // `integer` has checked the range; a config cannot hold u64 values beyond i64.
            visitor.$visit(number as $type).map_err(|e: Error| e.within(node, cx))
        }
    )*};
}

impl<'n> Deserializer<'n> for NodeReader<'n> {
    type Error = Error;

    integers! {
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64
    }

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let result = match &node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Str(text) => visitor.visit_borrowed_str(text),
            Value::Seq(_) => return self.deserialize_seq(visitor),
            Value::Map(_) => return self.map(None, visitor),
        };
        result.map_err(|e: Error| e.within(node, cx))
    }

    fn deserialize_bool<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Bool(value) => visitor.visit_bool(value).map_err(|e: Error| e.within(self.node, self.cx)),
            _ => self.refuse("a boolean; expected true or false"),
        }
    }

    fn deserialize_f32<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match self.node.value {
            Value::Int(number) => number as f64,
            Value::Float(number) => number,
            _ => return self.refuse("a number"),
        };
        visitor.visit_f64(number).map_err(|e: Error| e.within(self.node, self.cx))
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        match node.as_text() {
            Some(text) => visitor.visit_borrowed_str(text).map_err(|e: Error| e.within(node, cx)),
            // The visitor knows the expected type better than we do.
            None => {
                Err(Error::fixed("bad-type", format!("is not {}", &visitor as &dyn Expected))
                    .within(node, cx))
            }
        }
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'n>>(self, _: V) -> Result<V::Value, Error> {
        unsupported("bytes")
    }

    fn deserialize_byte_buf<V: Visitor<'n>>(self, _: V) -> Result<V::Value, Error> {
        unsupported("bytes")
    }

    /// `null` means none. A blank means an empty section and is wrong for any other type.
    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null if !self.node.is_blank() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null => visitor.visit_unit(),
            _ => self.refuse("empty"),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'n>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        let empty = self.node.value == Value::Null || self.node.value == Value::Map(Vec::new());
        if empty { visitor.visit_unit() } else { self.refuse("empty") }
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let result = match (name, &node.value) {
            (RAW, _) => {
                hand_over(Raw { node: node.clone(), path: cx.path() });
                visitor.visit_unit()
            }
            (TEXT_OR_MAP, Value::Map(_)) => visitor.visit_newtype_struct(self),
            (TEXT_OR_MAP, _) => visitor.visit_some(self),
            _ => visitor.visit_newtype_struct(self),
        };
        result.map_err(|e| e.within(node, cx))
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let Value::Seq(elements) = &node.value else { return self.refuse("a list") };
        let seq = SeqReader { elements: elements.iter().enumerate(), cx };
        visitor.visit_seq(seq).map_err(|e| e.within(node, cx))
    }

    fn deserialize_tuple<V: Visitor<'n>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.map(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.map(Some(fields), visitor)
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let result = match &node.value {
            Value::Map(entries) if entries.len() == 1 => {
                let (key, inner) = &entries[0];
                visitor.visit_enum(VariantReader { key: &key.text, inner: Some(inner), cx })
            }
            _ => match node.as_text() {
                Some(text) => visitor.visit_enum(VariantReader { key: text, inner: None, cx }),
                None => self.refuse(&format!("known here; expected {}", one_of(variants))),
            },
        };
        result.map_err(|e: Error| e.within(node, cx))
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}
