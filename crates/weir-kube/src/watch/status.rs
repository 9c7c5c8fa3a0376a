//! Puts the status that we want into the status that an object has, and says whether anything differs.
//!
//! Several controllers share a route: each owns the entries of `parents` (`ancestors` of a policy) that carry its
//! `controllerName`, and must leave the others as they are. The time of a condition moves only when its status does.

use serde_json::{Map, Value, json};

/// Lists whose entries belong to the controller that they name.
const SHARED: &[&str] = &["parents", "ancestors"];

/// Most entries of a shared list: what the Gateway API's schema allows for `parents`.
const MOST: usize = 32;
/// The same for `ancestors`.
const MOST_ANCESTORS: usize = 16;

/// The status to write, or `None` if the object has it already.
///
/// `wanted` has no `lastTransitionTime`; conditions that change get `now` (RFC 3339). `controller` is our
/// `controllerName`.
pub fn merged(current: &Value, wanted: &Value, controller: &str, now: &str) -> Option<Value> {
    let empty = Map::new();
    let before = current.as_object().unwrap_or(&empty);
    let mut next = before.clone();
    for (name, value) in wanted.as_object()? {
        let known = before.get(name).unwrap_or(&Value::Null);
        let value = if SHARED.contains(&name.as_str()) {
            shared(known, value, controller, now)
        } else {
            timed(known, value, now)
        };
        next.insert(name.clone(), value);
    }
    (next != *before).then_some(Value::Object(next))
}

/// The JSON merge patch (RFC 7396) that makes `after` of `before`. Lists are replaced as a whole.
pub fn patch_of(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return after.clone() };
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(*value));
    let mut patch: Map<String, Value> = changed
        .map(|(name, value)| (name.clone(), patch_of(old.get(name).unwrap_or(&Value::Null), value)))
        .collect();
    patch.extend(old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null)));
    Value::Object(patch)
}

/// Our entries in place of our earlier ones; those of other controllers stay.
fn shared(current: &Value, wanted: &Value, controller: &str, now: &str) -> Value {
    let is_ours = |entry: &&Value| entry.get("controllerName").and_then(Value::as_str) == Some(controller);
    let before = list(current);
    let mut entries: Vec<Value> = before.iter().filter(|entry| !is_ours(entry)).cloned().collect();
    let ours: Vec<&Value> = before.iter().filter(is_ours).collect();
    for entry in list(wanted) {
        let reference = |entry: &Value| entry.get("parentRef").or(entry.get("ancestorRef")).cloned();
        let earlier = ours.iter().find(|known| reference(known) == reference(entry));
        entries.push(timed(earlier.copied().unwrap_or(&Value::Null), entry, now));
    }
    let is_policy = list(wanted).iter().any(|entry| entry.get("ancestorRef").is_some());
    entries.truncate(if is_policy { MOST_ANCESTORS } else { MOST });
    // The order carries no meaning: keep the one on the server where the entries are the same.
    if entries.len() == before.len() && before.iter().all(|entry| entries.contains(entry)) {
        return current.clone();
    }
    Value::Array(entries)
}

/// `wanted`, with the time of each condition.
fn timed(current: &Value, wanted: &Value, now: &str) -> Value {
    match wanted {
        Value::Object(fields) if fields.contains_key("type") && fields.contains_key("status") => {
            let same = current.get("status") == fields.get("status");
            let before = current.get("lastTransitionTime").filter(|_| same);
            let mut condition = fields.clone();
            condition.insert("lastTransitionTime".to_owned(), before.cloned().unwrap_or(json!(now)));
            Value::Object(condition)
        }
        Value::Object(fields) => {
            let known = |name: &str| current.get(name).unwrap_or(&Value::Null);
            let field = |(name, value): (&String, &Value)| (name.clone(), timed(known(name), value, now));
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(entries) => Value::Array(
            entries
                .iter()
                .enumerate()
                .map(|(at, entry)| timed(counterpart(current, entry, at), entry, now))
                .collect(),
        ),
        plain => plain.clone(),
    }
}

/// The entry of the current list that a wanted one replaces: of the same type or name, or at the same place.
fn counterpart<'a>(current: &'a Value, wanted: &Value, at: usize) -> &'a Value {
    let entries = list(current);
    for id in ["type", "name"] {
        if let Some(value) = wanted.get(id) {
            return entries.iter().find(|entry| entry.get(id) == Some(value)).unwrap_or(&Value::Null);
        }
    }
    entries.get(at).unwrap_or(&Value::Null)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: &str = "weir.dev/gateway";

    fn condition(kind: &str, status: &str) -> Value {
        json!({ "type": kind, "status": status, "reason": "R", "message": "", "observedGeneration": 1 })
    }

    fn at(mut condition: Value, time: &str) -> Value {
        condition["lastTransitionTime"] = json!(time);
        condition
    }

    #[test]
    fn a_time_moves_only_with_its_status() {
        let wanted =
            json!({ "conditions": [condition("Accepted", "True"), condition("Programmed", "False")] });
        let first = merged(&Value::Null, &wanted, US, "t1").unwrap();
        let expected = [at(condition("Accepted", "True"), "t1"), at(condition("Programmed", "False"), "t1")];
        assert_eq!(first, json!({ "conditions": expected }));
        assert_eq!(merged(&first, &wanted, US, "t2"), None, "nothing changed, so nothing is written");

        let wanted =
            json!({ "conditions": [condition("Programmed", "True"), condition("Accepted", "True")] });
        let second = merged(&first, &wanted, US, "t3").unwrap();
        let expected = [at(condition("Programmed", "True"), "t3"), at(condition("Accepted", "True"), "t1")];
        assert_eq!(second, json!({ "conditions": expected }));

        let mut seen = condition("Accepted", "True");
        seen["observedGeneration"] = json!(2);
        let wanted = json!({ "conditions": [seen.clone(), condition("Programmed", "True")] });
        let third = merged(&second, &wanted, US, "t4").unwrap();
        let expected = [at(seen, "t1"), at(condition("Programmed", "True"), "t3")];
        assert_eq!(third, json!({ "conditions": expected }));
    }

    #[test]
    fn entries_of_other_controllers_stay() {
        let entry = |controller: &str, parent: &str, status: &str| {
            json!({
                "controllerName": controller, "parentRef": { "name": parent },
                "conditions": [at(condition("Accepted", status), "t1")],
            })
        };
        let theirs = entry("example.com/other", "b", "False");
        let current =
            json!({ "parents": [entry(US, "a", "True"), theirs.clone(), entry(US, "gone", "True")] });
        let wanted = json!({ "parents": [
            { "controllerName": US, "parentRef": { "name": "a" }, "conditions": [condition("Accepted", "True")] },
        ] });
        let written = merged(&current, &wanted, US, "t2").unwrap();
        assert_eq!(written, json!({ "parents": [theirs.clone(), entry(US, "a", "True")] }));
        assert_eq!(merged(&written, &wanted, US, "t3"), None);
        let other_order = json!({ "parents": [entry(US, "a", "True"), theirs.clone()] });
        assert_eq!(merged(&other_order, &wanted, US, "t3"), None, "the order carries no meaning");
        let none = json!({ "parents": [] });
        assert_eq!(merged(&written, &none, US, "t4"), Some(json!({ "parents": [theirs] })));
    }

    /// The API server would refuse a longer list each time.
    #[test]
    fn a_list_that_others_have_filled_has_no_room_for_ours() {
        for (list, reference, most) in
            [("parents", "parentRef", MOST), ("ancestors", "ancestorRef", MOST_ANCESTORS)]
        {
            let entry = |controller: &str, name: &str| {
                let target = json!({ "name": name });
                json!({ "controllerName": controller, reference: target, "conditions": [] })
            };
            let others = |count: usize| -> Vec<Value> {
                (0..count).map(|at| entry("example.com/other", &at.to_string())).collect()
            };
            let ours = entry(US, "a");
            let wanted = json!({ list: [ours] });
            assert_eq!(merged(&json!({ list: others(most) }), &wanted, US, "t"), None, "{list}");
            let written = merged(&json!({ list: others(most - 1) }), &wanted, US, "t").unwrap();
            assert_eq!(written[list][most - 1], ours, "{list}");
        }
    }

    #[test]
    fn listeners_keep_the_times_of_their_name() {
        let listener = |name: &str| json!({ "name": name, "conditions": [condition("Accepted", "True")] });
        let first =
            merged(&json!({}), &json!({ "listeners": [listener("a"), listener("b")] }), US, "t1").unwrap();
        let second = merged(&first, &json!({ "listeners": [listener("b")] }), US, "t2").unwrap();
        assert_eq!(second["listeners"][0]["conditions"][0]["lastTransitionTime"], "t1");
    }

    #[test]
    fn a_patch_says_what_goes() {
        let before =
            json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] }, "same": 1, "list": [1, 2] });
        let after = json!({ "loadBalancer": {}, "same": 1, "list": [2] });
        assert_eq!(patch_of(&before, &after), json!({ "loadBalancer": { "ingress": null }, "list": [2] }));
        assert_eq!(patch_of(&Value::Null, &after), after);
    }

    #[test]
    fn fields_that_we_do_not_want_are_left_alone() {
        let current = json!({ "addresses": [{ "value": "192.0.2.1" }], "conditions": [] });
        assert_eq!(merged(&current, &json!({ "conditions": [] }), US, "t"), None);
    }
}
