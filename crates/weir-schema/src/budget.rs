//! Bounds the time of a check by a schema that refers to itself.
//!
//! Alternatives that contain themselves twice are tried 2ⁿ times at depth n, whatever the body says, and jsonschema has
//! no limit for that. So every reference of such a schema gets a keyword of ours before it, which counts. When the count
//! is used up, it unwinds out of the check: nothing else stops all ways in which jsonschema goes through a schema.

use crate::documents::{DATA, NAMED, REFERENCES};
use jsonschema::{Keyword, ValidationError};
use serde_json::{Value, json};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The keyword that counts.
pub(crate) const KEYWORD: &str = "x-weir-step";

/// Steps that every check has: references that are followed.
const STEPS: usize = 2_000;

/// Steps for each value of a document.
const STEPS_PER_VALUE: usize = 64;

/// Most steps of a check: about 0.2 s.
const MOST_STEPS: usize = 500_000;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// A check used up its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded;

/// The keyword as jsonschema calls it.
pub(crate) struct Step;

impl<'i> Keyword<'i> for Step {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        step();
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        step();
        true
    }
}

fn step() {
    LEFT.with(|left| match left.get().checked_sub(1) {
        Some(fewer) => left.set(fewer),
        None => resume_unwind(Box::new(Exceeded)), // without the panic hook: this is no bug
    });
}

/// Runs a check of a document of so many values, which ends when its steps are used up.
pub(crate) fn bounded<T>(values: usize, check: impl FnOnce() -> T) -> Result<T, Exceeded> {
    LEFT.set(values.saturating_mul(STEPS_PER_VALUE).saturating_add(STEPS).min(MOST_STEPS));
    // The check only reads. What unwinds besides ours is a bug, and goes on.
    catch_unwind(AssertUnwindSafe(check)).map_err(|thrown| match thrown.downcast::<Exceeded>() {
        Ok(exceeded) => *exceeded,
        Err(other) => resume_unwind(other),
    })
}

/// Puts the keyword before every reference. `allOf` is tried in order.
pub(crate) fn count_references(value: &mut Value) {
    let schema = value.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let is_old = ["draft-04", "draft-06", "draft-07"].iter().any(|old| schema.contains(old));
    walk(value, false, is_old);
}

fn walk(value: &mut Value, is_named: bool, is_old: bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, false, is_old)),
        Value::Object(entries) => {
            for (key, value) in entries.iter_mut() {
                if is_named || !(DATA.contains(&key.as_str()) || key.starts_with("x-")) {
                    walk(value, !is_named && NAMED.contains(&key.as_str()), is_old);
                }
            }
            if is_named || !REFERENCES.iter().any(|key| entries.get(*key).is_some_and(Value::is_string)) {
                return;
            }
            if is_old {
                // Up to draft 7, all else beside a reference is ignored; but it can be referred to.
                entries.retain(|key, _| matches!(key.as_str(), "$ref" | "$schema" | "$defs" | "definitions"));
            }
            let mut all = vec![json!({ KEYWORD: true })];
            for key in REFERENCES {
                if entries.get(key).is_some_and(Value::is_string) {
                    all.extend(entries.remove(key).map(|to| json!({ key: to })));
                }
            }
            match entries.get_mut("allOf") {
                Some(Value::Array(known)) => known.extend(all), // behind, so that pointers into it stay right
                _ => {
                    entries.insert("allOf".to_owned(), Value::Array(all));
                }
            }
        }
        _ => {}
    }
}
