//! Statuses as the Gateway API wants them. `watch/status.rs` puts them into those that the cluster has, and finds which
//! of them have to be written.

use crate::objects::{Kind, Name};
use serde_json::{Value, json};
use std::sync::Arc;

/// A wanted status: the part of it that belongs to us.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The kind of the object.
    pub kind: Kind,
    /// The object.
    pub name: Name,
    /// The fields that we own. Conditions have no times yet.
    pub wanted: Arc<Value>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in a word of the API.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
}

/// A problem in the words of a status: a reason of the API, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The reason.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
}

// === impl Problem ===

impl Problem {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

// === impl Condition ===

impl Condition {
    pub(crate) fn met(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, holds: true, reason, message: String::new() }
    }

    pub(crate) fn unmet(kind: &'static str, why: &Problem) -> Self {
        Self { kind, holds: false, reason: why.reason, message: why.message.clone() }
    }

    /// Met if there is no problem.
    pub(crate) fn of(kind: &'static str, reason: &'static str, wrong: Option<&Problem>) -> Self {
        wrong.map_or_else(|| Self::met(kind, reason), |wrong| Self::unmet(kind, wrong))
    }

    fn to_json(&self, generation: i64) -> Value {
        json!({
            "type": self.kind,
            "status": if self.holds { "True" } else { "False" },
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": generation,
        })
    }
}

/// Conditions as JSON.
pub(crate) fn conditions(all: &[Condition], generation: i64) -> Value {
    all.iter().map(|condition| condition.to_json(generation)).collect()
}
