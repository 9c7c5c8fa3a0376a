//! Values that a step keeps from its answer.

use crate::answer::Answer;
use crate::filter::{Filter, NotInt, of_json};
use crate::json_at::{NotJson, Part};
use crate::limits::VALUE_BYTES;
use crate::path::{MATCHES, Path};
use crate::scope::{Scope, Slot, Value};
use fastrand::Rng;
use regex::bytes::Regex;
use serde_json::Value as Json;
use std::fmt;
use std::sync::Arc;

/// A name and where its value comes from.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The name.
    pub name: Arc<str>,
    /// The source as written.
    pub text: String,
    pub(crate) slot: Slot,
    pub(crate) source: Source,
    pub(crate) filters: Box<[Filter]>,
    pub(crate) is_optional: bool,
}

/// Where in an answer a value is.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Group 1 of a regular expression over the body.
    Body(Regex),
    /// A cookie that the answer sets.
    Cookie(String),
    /// A header field, in lower case.
    Header(String),
    /// A path into the body, or into the message of gRPC or WebSocket.
    Json(Path),
    Status,
}

/// A value that could not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepFailure {
    /// The name that keeps nothing.
    pub name: Arc<str>,
    /// The source as written.
    pub text: String,
    /// Why.
    pub why: KeepProblem,
}

/// Why a value could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepProblem {
    /// The body is longer than `body_limit`, and what was read of it does not hold the value.
    Cut,
    /// The answer has no such value.
    Missing,
    /// The value is not a whole number, as the filter `int` demands.
    NotInt,
    /// The body is not JSON.
    NotJson,
    /// The value is longer than 64 KiB.
    TooLong,
    /// The path matches more values than are looked at.
    TooMany,
}

impl Keep {
    /// Keeps the value.
    ///
    /// # Errors
    /// There is none, and the keep is not `optional`; or it is not what a filter demands. The name then has no value.
    pub fn take(&self, answer: &Answer<'_>, scope: &mut Scope, random: &mut Rng) -> Result<(), KeepFailure> {
        let kept = self.value(answer, random);
        match kept {
            Ok(value) => {
                scope.set(self.slot, value);
                Ok(())
            }
            Err(why) => {
                scope.set(self.slot, Value::Absent);
                let may_miss = self.is_optional && matches!(why, KeepProblem::Missing | KeepProblem::NotJson);
                if may_miss {
                    return Ok(());
                }
                Err(KeepFailure { name: Arc::clone(&self.name), text: self.text.clone(), why })
            }
        }
    }

    /// The slot of the value.
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    fn value(&self, answer: &Answer<'_>, random: &mut Rng) -> Result<Value, KeepProblem> {
        let of_list = self.filters.first().is_some_and(Filter::takes_list);
        let found = match self.find(answer, of_list, random) {
            Err(KeepProblem::Missing | KeepProblem::NotJson) if answer.is_cut && self.reads_body() => {
                return Err(KeepProblem::Cut);
            }
            Err(KeepProblem::NotJson) if self.has_default() => Value::Absent,
            found => found?,
        };
        let mut value = found;
        for filter in &self.filters {
            value = filter.apply(value, random).map_err(|NotInt| KeepProblem::NotInt)?;
        }
        match &value {
            Value::Absent if answer.is_cut && self.reads_body() => Err(KeepProblem::Cut),
            Value::Absent => Err(KeepProblem::Missing),
            Value::Text(text) if text.len() > VALUE_BYTES => Err(KeepProblem::TooLong),
            Value::Json(json) if !is_short(json, &mut { VALUE_BYTES }) => Err(KeepProblem::TooLong),
            _ => Ok(value),
        }
    }

    fn has_default(&self) -> bool {
        self.filters.iter().any(|filter| matches!(filter, Filter::Default(_)))
    }

    const fn reads_body(&self) -> bool {
        matches!(self.source, Source::Body(_) | Source::Json(_))
    }

    /// What the answer has: several values as a list of JSON if the path or the first filter is about several.
    fn find(&self, answer: &Answer<'_>, of_list: bool, random: &mut Rng) -> Result<Value, KeepProblem> {
        match &self.source {
            Source::Status => Ok(Value::Int(answer.status.into())),
            Source::Json(path) => {
                if !path.is_plural() {
                    let found = answer.json_at(path, Part::Whole).map_err(|NotJson| KeepProblem::NotJson)?;
                    return Ok(found.map_or(Value::Absent, of_json));
                }
                let json = answer.json().ok_or(KeepProblem::NotJson)?;
                let found = path.find(json).map_err(|_| KeepProblem::TooMany)?;
                choose(self.filters.first().filter(|_| of_list), &found, random)
            }
            Source::Header(name) => texts(answer.fields.get_all(name), of_list),
            Source::Cookie(name) => {
                let set = answer.fields.get_all("set-cookie").filter_map(|field| {
                    let pair = field.split(|b| *b == b';').next()?;
                    let at = memchr::memchr(b'=', pair)?;
                    let (found, value) = (pair.get(..at)?, pair.get(at + 1..)?);
                    (found.trim_ascii() == name.as_bytes()).then(|| value.trim_ascii())
                });
                texts(set, of_list)
            }
            Source::Body(pattern) if answer.is_cut => whole_matches(pattern, answer.body, &self.filters),
            Source::Body(pattern) => {
                let groups =
                    pattern.captures_iter(answer.body).filter_map(|found| Some(found.get(1)?.as_bytes()));
                texts(groups, of_list)
            }
        }
    }
}

/// The first match in the beginning of a longer body. A match that touches the end of what was read may be longer in
/// the whole body, and filters such as `last` need the matches that follow.
fn whole_matches(pattern: &Regex, body: &[u8], filters: &[Filter]) -> Result<Value, KeepProblem> {
    let of_list = filters.first().filter(|filter| filter.takes_list());
    if of_list.is_some_and(|filter| *filter != Filter::First) {
        return Err(KeepProblem::Cut);
    }
    let first = pattern.captures_iter(body).find(|found| found.get(1).is_some());
    let is_whole =
        |found: &regex::bytes::Captures<'_>| found.get(0).is_some_and(|all| all.end() < body.len());
    let group = first.filter(is_whole).ok_or(KeepProblem::Cut)?;
    texts(group.get(1).map(|group| group.as_bytes()).into_iter(), of_list.is_some())
}

/// Several matches as a list of JSON: only the one that the first filter chooses, else all.
fn choose(filter: Option<&Filter>, found: &[&Json], random: &mut Rng) -> Result<Value, KeepProblem> {
    let list = |items: Vec<Json>| Ok(Value::Json(Json::Array(items)));
    if found.is_empty() && filter != Some(&Filter::Count) {
        return Ok(Value::Absent);
    }
    let one = match filter {
        Some(Filter::First) => found.first(),
        Some(Filter::Last) => found.last(),
        Some(Filter::Random) => found.get(random.usize(..found.len())),
        // Their number is all that counts.
        Some(Filter::Count) => return list(vec![Json::Null; found.len()]),
        _ => {
            let mut left = VALUE_BYTES;
            if !found.iter().all(|item| is_short(item, &mut left)) {
                return Err(KeepProblem::TooLong);
            }
            return list(found.iter().map(|item| (*item).clone()).collect());
        }
    };
    list(one.into_iter().map(|item| (*item).clone()).collect())
}

fn texts<'a>(mut found: impl Iterator<Item = &'a [u8]>, of_list: bool) -> Result<Value, KeepProblem> {
    if !of_list {
        return Ok(found.next().map_or(Value::Absent, |text| Value::Text(text.to_vec())));
    }
    let mut items = Vec::new();
    for text in found {
        if items.len() == MATCHES {
            return Err(KeepProblem::TooMany);
        }
        items.push(Json::String(String::from_utf8_lossy(text).into_owned()));
    }
    Ok(if items.is_empty() { Value::Absent } else { Value::Json(Json::Array(items)) })
}

/// Takes the length of a document off `left`; false as soon as that is too little.
fn is_short(json: &Json, left: &mut usize) -> bool {
    let own = match json {
        Json::String(text) => text.len() + 2,
        Json::Array(items) => return items.iter().all(|item| is_short(item, left)),
        Json::Object(members) => {
            return members.iter().all(|(name, value)| take(left, name.len() + 4) && is_short(value, left));
        }
        _ => 8,
    };
    take(left, own)
}

fn take(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or_default();
    rest.is_some()
}

impl fmt::Display for KeepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, text) = (&self.name, &self.text);
        let why = match self.why {
            KeepProblem::Cut => {
                "the body is longer than `body_limit`, and its beginning does not tell the value"
            }
            KeepProblem::Missing => "the answer has no such value",
            KeepProblem::NotInt => "the value is not a whole number",
            KeepProblem::NotJson => "the body is not JSON",
            KeepProblem::TooLong => "the value is longer than 64 KiB",
            KeepProblem::TooMany => "the path matches too many values",
        };
        write!(f, "`{name}` could not be kept from `{text}`: {why}")
    }
}

impl std::error::Error for KeepFailure {}

#[cfg(test)]
mod tests;
