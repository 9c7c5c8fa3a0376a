//! What functions do. Their signatures are in `signatures.rs`.

use crate::limits::{BUILT_BYTES, COST_BYTES, LOOKED_BYTES, SPLIT_PARTS, TEXT_BYTES};
use crate::signatures::{Func, Part};
use crate::text;
use crate::time::{self, Timestamp};
use crate::value::Value;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// What may stand unescaped in any part of a URL (RFC 3986 §2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How many bytes of text and lists an evaluation may still build, and how many of long texts it may still look at.
#[derive(Debug)]
pub(crate) struct Budget {
    built: usize,
    looked: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { built: BUILT_BYTES, looked: LOOKED_BYTES }
    }
}

impl Budget {
    /// Whether there is room for `bytes` more, which are then taken.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let rest = self.built.checked_sub(bytes);
        self.built = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Whether a text may be looked at. The check has counted those of usual length.
    pub(crate) fn looks(&mut self, text: &[u8]) -> bool {
        if text.len() as u64 <= TEXT_BYTES {
            return true;
        }
        let rest = self.looked.checked_sub(text.len());
        self.looked = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Whether a document may be compared with another. Each of its values counts as much as a step.
    pub(crate) fn compares(&mut self, json: &Json) -> bool {
        let values = values(json, self.looked / COST_BYTES as usize);
        let rest = self.looked.checked_sub(values.saturating_mul(COST_BYTES as usize));
        self.looked = rest.unwrap_or(0);
        rest.is_some()
    }

    /// A value as text, if there is room for it.
    pub(crate) fn written(&mut self, value: &Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        if value.fits(&mut { self.built }) {
            value.write(&mut out);
        }
        if self.take(out.len()) { out } else { Vec::new() }
    }

    fn text<'a>(&mut self, text: Vec<u8>) -> Value<'a> {
        Value::Text(if self.take(text.len()) { text.into() } else { Cow::Borrowed(b"") })
    }

    fn bytes<'a>(&mut self, bytes: Vec<u8>) -> Value<'a> {
        Value::Bytes(if self.take(bytes.len()) { bytes.into() } else { Cow::Borrowed(b"") })
    }
}

/// How many values a document has; not much more than `most`.
fn values(json: &Json, most: usize) -> usize {
    let within = |inner: &mut dyn Iterator<Item = &Json>| {
        let mut counted = 1_usize;
        for json in inner {
            if counted > most {
                break;
            }
            counted += values(json, most - counted);
        }
        counted
    };
    match json {
        Json::Array(items) => within(&mut items.iter()),
        Json::Object(entries) => within(&mut entries.values()),
        _ => 1,
    }
}

/// What a function comes to. No value in, or of another kind than the signature has: no value out.
pub(crate) fn apply<'a>(func: Func, args: [Value<'a>; 4], budget: &mut Budget) -> Value<'a> {
    let [first, second, third, fourth] = args;
    if let Value::Text(text) | Value::Bytes(text) = &first
        && !budget.looks(text)
    {
        return Value::Absent;
    }
    match func {
        Func::Dyn => return first,
        Func::String => return string(first, budget),
        Func::Size => return first.size().map_or(Value::Absent, |size| Value::Int(size as i64)),
        Func::Bool | Func::Double | Func::Int | Func::Ip | Func::Timestamp | Func::Duration | Func::Uint => {
            return convert(func, &first);
        }
        Func::Part(part) => return part_of(part, &first, &second),
        Func::Join => return join(&first, &second, budget),
        _ => {}
    }
    let (Value::Text(text) | Value::Bytes(text)) = first else { return Value::Absent };
    let other: &[u8] = match &second {
        Value::Text(other) | Value::Bytes(other) => other,
        _ => b"",
    };
    let at = |value: &Value<'_>| match value {
        Value::Int(at) => Some(*at),
        _ => None,
    };
    match func {
        Func::Base64 => budget.text(STANDARD.encode(&text).into_bytes()),
        Func::Base64Url => budget.text(URL_SAFE_NO_PAD.encode(&text).into_bytes()),
        Func::Bytes => Value::Bytes(text),
        Func::CharAt => match at(&second) {
            Some(from) => Value::Text(text::substring(text, from, from.saturating_add(1))),
            None => Value::Absent,
        },
        Func::Contains => Value::Bool(memchr::memmem::find(&text, other).is_some()),
        Func::EndsWith => Value::Bool(text.ends_with(other)),
        Func::Hex => budget.text(text::hex(&text)),
        Func::IndexOf => Value::Int(text::first(&text, other, at(&third).unwrap_or(0))),
        Func::LastIndexOf => Value::Int(text::last(&text, other, at(&third).unwrap_or(i64::MAX))),
        Func::LowerAscii if text.iter().any(u8::is_ascii_uppercase) => budget.text(text.to_ascii_lowercase()),
        Func::Replace => {
            let (Value::Text(by) | Value::Bytes(by)) = third else { return Value::Absent };
            let times = at(&fourth).map_or(usize::MAX, |times| usize::try_from(times).unwrap_or(usize::MAX));
            match text::replace(&text, other, &by, times, budget.built) {
                Some(replaced) => budget.text(replaced),
                None => Value::Text(Cow::Borrowed(b"")),
            }
        }
        Func::Sha256 => budget.bytes(Sha256::digest(&text).to_vec()),
        Func::Split => {
            let most = SPLIT_PARTS as usize;
            let parts = at(&third).map_or(most, |parts| usize::try_from(parts).unwrap_or(most).min(most));
            let parts = text::split(text, other, parts);
            if budget.take(parts.len() * size_of::<Value<'_>>()) { Value::List(parts) } else { Value::Absent }
        }
        Func::StartsWith => Value::Bool(text.starts_with(other)),
        Func::Substring => match (at(&second), at(&third)) {
            (Some(from), to) => Value::Text(text::substring(text, from, to.unwrap_or(i64::MAX))),
            (None, _) => Value::Absent,
        },
        Func::Trim => Value::Text(text::trim(text)),
        Func::UnBase64 => {
            let end = text.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
            budget.bytes(
                base64::engine::general_purpose::STANDARD_NO_PAD.decode(&text[..end]).unwrap_or_default(),
            )
        }
        Func::UnBase64Url => {
            let end = text.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
            budget.bytes(URL_SAFE_NO_PAD.decode(&text[..end]).unwrap_or_default())
        }
        Func::UnHex => budget.bytes(text::unhex(&text).unwrap_or_default()),
        Func::UnUrl if text.contains(&b'%') => budget.text(percent_decode(&text).collect()),
        Func::UpperAscii if text.iter().any(u8::is_ascii_lowercase) => budget.text(text.to_ascii_uppercase()),
        Func::Url => budget.text(percent_encode(&text, ESCAPED).to_string().into_bytes()),
        Func::LowerAscii | Func::UnUrl | Func::UpperAscii => Value::Text(text),
        _ => Value::Absent,
    }
}

fn string<'a>(value: Value<'a>, budget: &mut Budget) -> Value<'a> {
    match value {
        Value::Text(text) | Value::Bytes(text) => Value::Text(text),
        other => Value::Text(budget.written(&other).into()),
    }
}

fn convert<'a>(func: Func, value: &Value<'a>) -> Value<'a> {
    let written = match value {
        Value::Text(text) => str::from_utf8(text).ok(),
        _ => None,
    };
    let converted = match (func, value) {
        (Func::Bool, Value::Bool(b)) => Some(Value::Bool(*b)),
        (Func::Bool, _) => written.and_then(truth).map(Value::Bool),
        (Func::Double, Value::Double(n)) => Some(Value::Double(*n)),
        (Func::Double, Value::Int(n)) => Some(Value::Double(*n as f64)),
        (Func::Double, Value::Uint(n)) => Some(Value::Double(*n as f64)),
        (Func::Double, _) => written.and_then(|text| text.parse().ok()).map(Value::Double),
        (Func::Duration, Value::Duration(n)) => Some(Value::Duration(*n)),
        (Func::Duration, _) => {
            written.and_then(|text| time::parse_duration(text.as_bytes())).map(Value::Duration)
        }
        (Func::Int, Value::Int(n)) => Some(Value::Int(*n)),
        (Func::Int, Value::Uint(n)) => i64::try_from(*n).ok().map(Value::Int),
        // 2^63 as a double; a cast would saturate.
        (Func::Int, Value::Double(n)) => {
            (n.abs() < 9_223_372_036_854_775_808.0).then_some(Value::Int(*n as i64))
        }
        (Func::Int, Value::Timestamp(moment)) => Some(Value::Int(moment.seconds())),
        (Func::Int, _) => digits(written).and_then(|text| text.parse().ok()).map(Value::Int),
        (Func::Ip, Value::Address(ip)) => Some(Value::Address(*ip)),
        (Func::Ip, _) => written.and_then(|text| text.parse().ok()).map(Value::Address),
        (Func::Timestamp, Value::Timestamp(moment)) => Some(Value::Timestamp(*moment)),
        (Func::Timestamp, Value::Int(seconds)) => Timestamp::new(*seconds, 0).map(Value::Timestamp),
        (Func::Timestamp, _) => {
            written.and_then(|text| Timestamp::parse(text.as_bytes())).map(Value::Timestamp)
        }
        (Func::Uint, Value::Uint(n)) => Some(Value::Uint(*n)),
        (Func::Uint, Value::Int(n)) => u64::try_from(*n).ok().map(Value::Uint),
        (Func::Uint, Value::Double(n)) => {
            (*n > -1.0 && *n < 18_446_744_073_709_551_616.0).then_some(Value::Uint(*n as u64))
        }
        (Func::Uint, _) => digits(written).and_then(|text| text.parse().ok()).map(Value::Uint),
        _ => None,
    };
    converted.unwrap_or(Value::Absent)
}

/// Rust also reads `+5`, which is no number of CEL.
fn digits(written: Option<&str>) -> Option<&str> {
    written.filter(|text| !text.starts_with('+'))
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn part_of<'a>(part: Part, of: &Value<'a>, zone: &Value<'a>) -> Value<'a> {
    if let Value::Duration(nanos) = of {
        return Value::Int(match part {
            Part::Hours => nanos / 3_600_000_000_000,
            Part::Minutes => nanos / 60_000_000_000,
            Part::Seconds => nanos / 1_000_000_000,
            _ => nanos / 1_000_000 % 1_000,
        });
    }
    let offset = match zone {
        Value::Text(zone) => time::offset(zone),
        _ => Some(0),
    };
    let (Value::Timestamp(moment), Some(offset)) = (of, offset) else { return Value::Absent };
    let parts = moment.parts(offset);
    Value::Int(match part {
        Part::Date => parts.day + 1,
        Part::DayOfMonth => parts.day,
        Part::DayOfWeek => parts.weekday,
        Part::DayOfYear => parts.day_of_year,
        Part::FullYear => parts.year,
        Part::Hours => parts.second_of_day / 3_600,
        Part::Milliseconds => i64::from(parts.nanos) / 1_000_000,
        Part::Minutes => parts.second_of_day / 60 % 60,
        Part::Month => parts.month,
        Part::Seconds => parts.second_of_day % 60,
    })
}

fn join<'a>(list: &Value<'a>, between: &Value<'a>, budget: &mut Budget) -> Value<'a> {
    let items: Arc<[Value<'a>]> = list.clone().items().unwrap_or_default();
    let between: &[u8] = match between {
        Value::Text(text) | Value::Bytes(text) => text,
        _ => b"",
    };
    let mut out = Vec::new();
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(between);
        }
        item.write(&mut out);
        if out.len() > budget.built {
            return budget.text(out);
        }
    }
    budget.text(out)
}
