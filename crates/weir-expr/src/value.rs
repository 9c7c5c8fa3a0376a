//! What an expression comes to at run time: a value that borrows from the exchange where it can.

use crate::limits::{BUILT_BYTES, JSON_ITEMS};
use crate::time::{self, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// A value. Text is bytes: what HTTP carries is not always UTF-8.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// There is no value: a variable that is not there, a conversion that does not succeed. Never null.
    Absent,
    /// An IP address. IPv4 inside IPv6 counts as IPv4.
    Address(IpAddr),
    /// True or false.
    Bool(bool),
    /// Bytes, such as of `b"…"` and of `base64.decode`.
    Bytes(Cow<'a, [u8]>),
    /// A number with a fraction.
    Double(f64),
    /// A length of time in nanoseconds: up to 292 years.
    Duration(i64),
    /// A whole number.
    Int(i64),
    /// A list or an object of JSON. Never another kind of JSON: see [`Value::json`].
    Json(&'a Json),
    /// A list.
    List(Arc<[Self]>),
    /// A map, in the order written. Keys are unique.
    Map(Arc<[(Self, Self)]>),
    /// Null of JSON, or `null` as written.
    Null,
    /// Text.
    Text(Cow<'a, [u8]>),
    /// A moment.
    Timestamp(Timestamp),
    /// A whole number without a sign.
    Uint(u64),
}

impl<'a> Value<'a> {
    /// A value of JSON. Only lists and objects stay JSON; a number is an int where it fits one.
    pub fn json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => n
                .as_i64()
                .map(Self::Int)
                .or_else(|| n.as_u64().map(Self::Uint))
                .or_else(|| n.as_f64().map(Self::Double))
                .unwrap_or(Self::Absent),
            Json::String(text) => Self::Text(Cow::Borrowed(text.as_bytes())),
            Json::Array(_) | Json::Object(_) => Self::Json(json),
        }
    }

    /// Borrowed text.
    pub fn text(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::Text(Cow::Borrowed(text.as_ref()))
    }

    /// The same value without a copy of its text.
    pub(crate) fn borrowed(&'a self) -> Self {
        match self {
            Self::Text(text) => Self::Text(Cow::Borrowed(text)),
            Self::Bytes(bytes) => Self::Bytes(Cow::Borrowed(bytes)),
            other => other.clone(),
        }
    }

    /// What `??` passes over: no value, null, an empty text, list or map.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Absent | Self::Null => true,
            Self::Text(bytes) | Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            Self::Json(Json::Array(items)) => items.is_empty(),
            Self::Json(Json::Object(entries)) => entries.is_empty(),
            _ => false,
        }
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Double(_) | Self::Int(_) | Self::Uint(_))
    }

    /// How many items, entries or characters it has; none if it has no size. A character is what UTF-8 has it to be; a byte
    /// that belongs to none counts as one, unless it looks like the rest of one (`10xxxxxx`).
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(items) => Some(items.len()),
            Self::Map(entries) => Some(entries.len()),
            Self::Json(Json::Array(items)) => Some(items.len()),
            Self::Json(Json::Object(entries)) => Some(entries.len()),
            Self::Text(text) => Some(text.iter().filter(|b| **b & 0xc0 != 0x80).count()),
            _ => None,
        }
    }

    /// What a macro walks through: the items of a list, the keys of a map; none if it is neither or too long a list of
    /// JSON.
    pub(crate) fn items(self) -> Option<Arc<[Self]>> {
        match self {
            Self::List(items) => Some(items),
            Self::Map(entries) => Some(entries.iter().map(|(key, _)| key.clone()).collect()),
            Self::Json(Json::Array(items)) if items.len() <= JSON_ITEMS as usize => {
                Some(items.iter().map(Value::json).collect())
            }
            Self::Json(Json::Object(entries)) if entries.len() <= JSON_ITEMS as usize => {
                Some(entries.keys().map(|key| Value::text(key.as_str())).collect())
            }
            _ => None,
        }
    }

    /// The entry of a map, or the item of a list, at `key`.
    pub(crate) fn at(&self, key: &Value<'_>) -> Self {
        let found = match self {
            Self::List(items) => whole(key).and_then(|at| items.get(at)).cloned(),
            Self::Map(entries) => {
                entries.iter().find(|(known, _)| known.equals(key)).map(|(_, value)| value.clone())
            }
            Self::Json(Json::Array(items)) => whole(key).and_then(|at| items.get(at)).map(Value::json),
            Self::Json(Json::Object(entries)) => match key {
                Value::Text(name) => {
                    str::from_utf8(name).ok().and_then(|name| entries.get(name)).map(Value::json)
                }
                _ => None,
            },
            _ => None,
        };
        found.unwrap_or(Self::Absent)
    }

    /// Whether a list has `item`, or a map has it as a key. Nothing is in anything else.
    pub(crate) fn has(&self, item: &Value<'_>) -> bool {
        match self {
            Self::List(items) => items.iter().any(|known| known.equals(item)),
            Self::Map(entries) => entries.iter().any(|(known, _)| known.equals(item)),
            Self::Json(Json::Array(items)) => {
                items.len() <= JSON_ITEMS as usize
                    && items.iter().any(|known| Value::json(known).equals(item))
            }
            Self::Json(_) => !matches!(self.at(item), Self::Absent),
            _ => false,
        }
    }

    /// `==`: numbers of all kinds compare by their value, all else only with its own kind. No value equals nothing.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(a), Value::Bool(b)) => a == b,
            (Self::Text(a) | Self::Bytes(a), Value::Text(b) | Value::Bytes(b)) => a == b,
            (Self::Address(a), Value::Address(b)) => a.to_canonical() == b.to_canonical(),
            (Self::Duration(a), Value::Duration(b)) => a == b,
            (Self::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Self::Json(a), Value::Json(b)) => json_equals(a, b),
            (Self::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.equals(b))
            }
            (Self::List(list), Value::Json(Json::Array(json))) => {
                list.len() == json.len() && list.iter().zip(json).all(|(a, b)| a.equals(&Value::json(b)))
            }
            (Self::Json(Json::Array(_)), Value::List(_)) => other.equals(self),
            (Self::Map(a), b @ (Value::Map(_) | Value::Json(Json::Object(_)))) => {
                Some(a.len()) == b.size() && a.iter().all(|(key, value)| value.equals(&b.at(key)))
            }
            (Self::Json(Json::Object(_)), Value::Map(_)) => other.equals(self),
            _ => numbers(self, other) == Some(Ordering::Equal),
        }
    }

    /// Which of two values of one kind is less; none for other kinds and for NaN.
    pub fn order(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Self::Text(a) | Self::Bytes(a), Value::Text(b) | Value::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
            _ => numbers(self, other),
        }
    }

    /// Appends the value as text: nothing for null and no value, JSON for lists and maps. Nothing for a list or map that
    /// would be longer than [`BUILT_BYTES`].
    pub fn write(&self, out: &mut Vec<u8>) {
        // Writing into a Vec cannot fail.
        let _ = match self {
            Self::Absent | Self::Null => Ok(()),
            Self::Address(ip) => write!(out, "{}", ip.to_canonical()),
            Self::Bool(b) => write!(out, "{b}"),
            Self::Bytes(bytes) | Self::Text(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Self::Double(n) if n.abs() >= 1e21 || (*n != 0.0 && n.abs() < 1e-6) => write!(out, "{n:e}"),
            Self::Double(n) => write!(out, "{n}"),
            Self::Duration(nanos) => {
                time::write_duration(*nanos, out);
                Ok(())
            }
            Self::Int(n) => write!(out, "{n}"),
            Self::Json(json) => write!(out, "{json}"),
            Self::List(_) | Self::Map(_) if !self.fits(&mut { BUILT_BYTES }) => Ok(()),
            Self::List(_) | Self::Map(_) => write!(out, "{}", self.to_json()),
            Self::Timestamp(moment) => {
                moment.write(out);
                Ok(())
            }
            Self::Uint(n) => write!(out, "{n}"),
        };
    }

    /// Takes the bytes that the value is at least, as text and as JSON, off `left`. False as soon as that is too little:
    /// what a value borrows may be in it many times.
    pub fn fits(&self, left: &mut usize) -> bool {
        match self {
            Self::Bytes(text) | Self::Text(text) => take(left, text.len()),
            Self::Json(json) => json_fits(json, left),
            Self::List(items) => items.iter().all(|item| take(left, 1) && item.fits(left)),
            Self::Map(entries) => {
                entries.iter().all(|(key, value)| take(left, 1) && key.fits(left) && value.fits(left))
            }
            _ => true,
        }
    }

    /// The value as JSON: bytes in base64, what JSON has no kind for as text, no value as null. Invalid UTF-8 is replaced
    /// by U+FFFD.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Absent | Self::Null => Json::Null,
            Self::Bool(b) => Json::Bool(*b),
            Self::Bytes(bytes) => Json::String(STANDARD.encode(bytes)),
            Self::Double(n) => serde_json::Number::from_f64(*n).map_or(Json::Null, Json::Number),
            Self::Int(n) => Json::from(*n),
            Self::Json(json) => (*json).clone(),
            Self::List(items) => Json::Array(items.iter().map(Value::to_json).collect()),
            Self::Map(entries) => {
                Json::Object(entries.iter().map(|(key, value)| (key.to_text(), value.to_json())).collect())
            }
            Self::Uint(n) => Json::from(*n),
            Self::Address(_) | Self::Duration(_) | Self::Text(_) | Self::Timestamp(_) => {
                Json::String(self.to_text())
            }
        }
    }

    fn to_text(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn take(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or_default();
    rest.is_some()
}

fn json_fits(json: &Json, left: &mut usize) -> bool {
    match json {
        Json::String(text) => take(left, text.len()),
        Json::Array(items) => items.iter().all(|item| take(left, 1) && json_fits(item, left)),
        Json::Object(entries) => {
            entries.iter().all(|(key, value)| take(left, key.len() + 1) && json_fits(value, left))
        }
        _ => true,
    }
}

/// The position that a whole number names.
fn whole(key: &Value<'_>) -> Option<usize> {
    match key {
        Value::Int(at) => usize::try_from(*at).ok(),
        Value::Uint(at) => usize::try_from(*at).ok(),
        Value::Double(at) if at.fract() == 0.0 && (0.0..9.0e15).contains(at) => Some(*at as usize),
        _ => None,
    }
}

/// Compares documents, numbers by their value. As deep as the parser of JSON lets them be (128).
fn json_equals(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| json_equals(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| json_equals(a, b)))
        }
        (Json::Number(_), Json::Number(_)) => Value::json(a).equals(&Value::json(b)),
        _ => a == b,
    }
}

/// Compares numbers of all kinds by their exact value.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let int = |value: &Value<'_>| match value {
        Value::Int(n) => Some(i128::from(*n)),
        Value::Uint(n) => Some(i128::from(*n)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => int_and_double(int(b)?, *a).map(Ordering::reverse),
        (a, Value::Double(b)) => int_and_double(int(a)?, *b),
        (a, b) => Some(int(a)?.cmp(&int(b)?)),
    }
}

fn int_and_double(int: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // A cast to i128 saturates, so infinities compare right.
    let whole = double.trunc();
    let fraction = 0.0_f64.partial_cmp(&(double - whole)).unwrap_or(Ordering::Equal);
    Some(int.cmp(&(whole as i128)).then(if double.is_finite() { fraction } else { Ordering::Equal }))
}
