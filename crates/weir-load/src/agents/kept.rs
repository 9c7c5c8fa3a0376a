//! Passes the values that `setup` kept from the agent that ran it to the others.

use crate::Plan;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_plan::Value;
use weir_wire::base64;

/// What the `setup` of a prepared plan kept; null without scenarios.
pub(super) fn of(plan: &Plan) -> Json {
    let Some(journey) = &plan.journey else { return Json::Null };
    let values: Vec<Json> = journey.kept().iter().map(written).collect();
    json!({ "values": values, "cookies": journey.has_cookies.load(Ordering::Relaxed) })
}

/// Prepares a plan with what another agent's `setup` kept.
///
/// # Errors
/// It is not what a `setup` of this plan keeps.
pub(super) fn take_over(plan: &Plan, kept: &Json) -> Result<(), String> {
    const WRONG: &str = "what `setup` kept is not that of this plan";
    let Some(journey) = &plan.journey else { return Ok(()) };
    let values = kept.get("values").and_then(Json::as_array).ok_or(WRONG)?;
    let values: Vec<Value> = values.iter().map(read).collect::<Option<_>>().ok_or(WRONG)?;
    if values.len() != journey.plan.scope_of_setup().into_setup().len() {
        return Err(WRONG.to_owned());
    }
    let has_cookies = kept.get("cookies").and_then(Json::as_bool).ok_or(WRONG)?;
    journey.has_cookies.store(has_cookies, Ordering::Relaxed);
    let _ = journey.kept.set(Arc::from(values)); // set once, before any user
    let _ = journey.prepared.set(()); // as above
    Ok(())
}

fn written(value: &Value) -> Json {
    match value {
        Value::Absent => Json::Null,
        Value::Int(n) => json!({ "int": n }),
        Value::Json(json) => json!({ "json": json }),
        Value::Text(text) => json!({ "text": base64::encode(text) }),
    }
}

fn read(json: &Json) -> Option<Value> {
    let Json::Object(one) = json else { return json.is_null().then_some(Value::Absent) };
    let (kind, value) = one.iter().next().filter(|_| one.len() == 1)?;
    match kind.as_str() {
        "int" => value.as_i64().map(Value::Int),
        "json" => Some(Value::Json(value.clone())),
        "text" => base64::decode(value.as_str()?.as_bytes()).map(Value::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let all = [
            Value::Absent,
            Value::Int(-7),
            Value::Json(json!([1, { "a": null }])),
            Value::Text(b"\x00\xff token".to_vec()),
        ];
        for value in all {
            let told = format!("{value:?}");
            assert_eq!(format!("{:?}", read(&written(&value)).unwrap()), told);
        }
        assert!(read(&json!({ "int": 1, "text": "" })).is_none());
        assert!(read(&json!("text")).is_none());
    }
}
