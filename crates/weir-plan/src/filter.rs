//! Filters of kept values and placeholders: `|first`, `|default:none`, `|int`.

use crate::scope::Value;
use fastrand::Rng;
use serde_json::Value as Json;

/// What is done with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// How many there are.
    Count,
    /// This text, where there is no value.
    Default(Box<str>),
    First,
    Int,
    /// As JSON, quotes included.
    Json,
    Last,
    Random,
}

/// The names of all filters, for messages.
pub(crate) const NAMES: &[&str] = &["first", "last", "random", "count", "optional", "default", "int", "json"];

/// The value is not a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotInt;

impl Filter {
    /// Whether it chooses from a list.
    pub(crate) const fn takes_list(&self) -> bool {
        matches!(self, Self::Count | Self::First | Self::Last | Self::Random)
    }

    /// Applies the filter. One that chooses from a list leaves a single value as it is.
    pub(crate) fn apply(&self, value: Value, random: &mut Rng) -> Result<Value, NotInt> {
        let list = |value: Value| match value {
            Value::Absent => Vec::new(),
            Value::Json(Json::Array(items)) => items.into_iter().map(of_json).collect(),
            one => vec![one],
        };
        Ok(match self {
            Self::Count => Value::Int(i64::try_from(list(value).len()).unwrap_or(i64::MAX)),
            Self::Default(text) if value == Value::Absent => Value::Text(text.as_bytes().to_vec()),
            Self::Default(_) => value,
            Self::First => list(value).into_iter().next().unwrap_or_default(),
            Self::Last => list(value).pop().unwrap_or_default(),
            Self::Random => {
                let mut all = list(value);
                if all.is_empty() { Value::Absent } else { all.swap_remove(random.usize(..all.len())) }
            }
            Self::Int => match value {
                Value::Absent => Value::Absent,
                value => Value::Int(int(&value).ok_or(NotInt)?),
            },
            Self::Json => match value {
                Value::Absent => Value::Absent,
                Value::Int(number) => Value::Json(number.into()),
                Value::Json(json) => Value::Json(json),
                Value::Text(text) => Value::Json(String::from_utf8_lossy(&text).into_owned().into()),
            },
        })
    }
}

/// A value of JSON as it is kept: null is no value, and text is text.
pub(crate) fn of_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Absent,
        Json::String(text) => Value::Text(text.into_bytes()),
        other => Value::Json(other),
    }
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Json(Json::Number(number)) => {
            let whole = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9.0e15);
            number.as_i64().or_else(|| whole.map(|n| n as i64))
        }
        Value::Text(text) => str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}
