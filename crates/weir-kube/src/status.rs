//! Statuses as the Gateway API wants them, and which of them have to be written.
//!
//! A translation says what each status should be. [`changes`] compares that with what the cluster has and returns a
//! patch only where something differs. Times of transitions are no difference, and entries of other controllers stay.

use crate::cluster::Cluster;
use crate::objects::{Kind, Name};
use serde_json::{Map, Value, json};

/// A wanted status: the part of it that belongs to us.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The kind of the object.
    pub kind: Kind,
    /// The object.
    pub name: Name,
    /// The fields that we own. Conditions have no times yet.
    pub wanted: Value,
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

/// A status to write to the `status` subresource.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The kind of the object.
    pub kind: Kind,
    /// The object.
    pub name: Name,
    /// The whole new status.
    pub status: Value,
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

/// The statuses that differ from the cluster's. `now` is in RFC 3339, and `controller` our name, by which entries of
/// routes and policies are ours.
#[must_use]
pub fn changes(cluster: &Cluster, wanted: &[Status], controller: &str, now: &str) -> Vec<Patch> {
    let mut patches = Vec::new();
    for status in wanted {
        let Some(old) = cluster.status(status.kind, &status.name) else { continue };
        let new = merged(old, &status.wanted, controller, now);
        if new != *old && !(old.is_null() && new.as_object().is_some_and(Map::is_empty)) {
            patches.push(Patch { kind: status.kind, name: status.name.clone(), status: new });
        }
    }
    patches
}

/// The old status with our part in place.
fn merged(old: &Value, wanted: &Value, controller: &str, now: &str) -> Value {
    let mut new = old.as_object().cloned().unwrap_or_default();
    for (key, value) in wanted.as_object().into_iter().flatten() {
        let before = old.get(key).unwrap_or(&Value::Null);
        let value = match key.as_str() {
            "parents" | "ancestors" => entries(before, value, controller, now),
            "conditions" => timed_conditions(before, value, now),
            "listeners" => listeners(before, value, now),
            _ => value.clone(),
        };
        new.insert(key.clone(), value);
    }
    Value::Object(new)
}

/// Entries of other controllers as they are, and ours.
fn entries(before: &Value, wanted: &Value, controller: &str, now: &str) -> Value {
    let before = list(before);
    let is_ours = |entry: &&Value| entry.get("controllerName").and_then(Value::as_str) == Some(controller);
    let place = |entry: &Value| entry.get("parentRef").or_else(|| entry.get("ancestorRef")).cloned();
    // In the order in which they are, so that a rewrite by another controller is no reason to write.
    let mut all = Vec::new();
    let mut left: Vec<&Value> = list(wanted).iter().collect();
    for entry in before {
        if !is_ours(&entry) {
            all.push(entry.clone());
        } else if let Some(at) = left.iter().position(|wanted| place(wanted) == place(entry)) {
            all.push(with_times(Some(entry), left.remove(at), now));
        }
    }
    all.extend(left.into_iter().map(|wanted| with_times(None, wanted, now)));
    Value::Array(all)
}

fn listeners(before: &Value, wanted: &Value, now: &str) -> Value {
    let same = |wanted: &Value| list(before).iter().find(|old| old.get("name") == wanted.get("name"));
    list(wanted).iter().map(|wanted| with_times(same(wanted), wanted, now)).collect()
}

fn with_times(before: Option<&Value>, wanted: &Value, now: &str) -> Value {
    let mut new = wanted.clone();
    if let Some(conditions) = new.get_mut("conditions") {
        let old = before.and_then(|before| before.get("conditions")).unwrap_or(&Value::Null);
        *conditions = timed_conditions(old, conditions, now);
    }
    new
}

/// Our conditions with times, then those of types that are not ours. The time is that of the last change of `status`.
fn timed_conditions(before: &Value, wanted: &Value, now: &str) -> Value {
    let same_type = |a: &Value, b: &Value| a.get("type") == b.get("type");
    let timed = |wanted: &Value| {
        let old = list(before).iter().find(|old| same_type(old, wanted));
        let old = old.filter(|old| old.get("status") == wanted.get("status"));
        let time = old.and_then(|old| old.get("lastTransitionTime")).cloned().unwrap_or_else(|| json!(now));
        let mut condition = wanted.clone();
        condition["lastTransitionTime"] = time;
        condition
    };
    let others = list(before).iter().filter(|old| !list(wanted).iter().any(|new| same_type(old, new)));
    // A condition that we no longer have, such as PartiallyInvalid, goes; those of somebody else have other types.
    let others = others.filter(|old| {
        old.get("type").and_then(Value::as_str).is_none_or(|kind| !OWN_CONDITIONS.contains(&kind))
    });
    list(wanted).iter().map(timed).chain(others.cloned()).collect()
}

/// The types of conditions that we write somewhere.
const OWN_CONDITIONS: &[&str] =
    &["Accepted", "Conflicted", "OverlappingTLSConfig", "PartiallyInvalid", "Programmed", "ResolvedRefs"];

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(status: Value) -> Cluster {
        let mut cluster = Cluster::default();
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "namespace": "a", "name": "r" }, "spec": {}, "status": status,
        });
        cluster.apply(&route).unwrap();
        cluster
    }

    fn wanted(accepted: bool, generation: i64) -> Vec<Status> {
        let why = Problem::new("NoMatchingParent", "gone");
        let condition = Condition::of("Accepted", "Accepted", (!accepted).then_some(&why));
        let parent = json!({
            "parentRef": { "name": "gw" }, "controllerName": "us", "conditions": conditions(&[condition], generation),
        });
        vec![Status {
            kind: Kind::HttpRoute,
            name: Name::new("a", "r"),
            wanted: json!({ "parents": [parent] }),
        }]
    }

    fn written(old: Value, wanted: &[Status], now: &str) -> Option<Value> {
        let mut patches = changes(&cluster(old), wanted, "us", now);
        assert!(patches.len() <= 1);
        patches.pop().map(|patch| patch.status)
    }

    #[test]
    fn only_changes_are_written() {
        let first = written(json!({}), &wanted(true, 1), "T1").unwrap();
        assert_eq!(first["parents"][0]["conditions"][0]["lastTransitionTime"], "T1");
        assert_eq!(written(first.clone(), &wanted(true, 1), "T2"), None);
        // A new generation is written, but is no transition.
        let second = written(first, &wanted(true, 2), "T2").unwrap();
        assert_eq!(second["parents"][0]["conditions"][0]["lastTransitionTime"], "T1");
        let third = written(second, &wanted(false, 2), "T3").unwrap();
        assert_eq!(third["parents"][0]["conditions"][0]["lastTransitionTime"], "T3");
    }

    #[test]
    fn others_keep_their_entries() {
        let other = json!({ "parentRef": { "name": "gw" }, "controllerName": "them", "conditions": [] });
        let status = written(json!({ "parents": [other] }), &wanted(true, 1), "T1").unwrap();
        assert_eq!(status["parents"][0], other);
        assert_eq!(status["parents"][1]["controllerName"], "us");
        // Where nothing is wanted any more, ours goes.
        let none = [Status { wanted: json!({ "parents": [] }), ..wanted(true, 1).remove(0) }];
        assert_eq!(written(status, &none, "T2").unwrap(), json!({ "parents": [other] }));
        assert_eq!(written(json!({ "parents": [other] }), &none, "T2"), None);
    }

    #[test]
    fn a_condition_that_no_longer_is_goes() {
        let old = json!({ "parents": [ { "parentRef": { "name": "gw" }, "controllerName": "us", "conditions": [
            { "type": "PartiallyInvalid", "status": "True" }, { "type": "example.com/Seen", "status": "True" },
        ] } ] });
        let status = written(old, &wanted(true, 1), "T1").unwrap();
        let kinds: Vec<_> =
            list(&status["parents"][0]["conditions"]).iter().map(|c| c["type"].clone()).collect();
        assert_eq!(kinds, ["Accepted", "example.com/Seen"]);
    }
}
