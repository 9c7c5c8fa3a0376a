//! The Lease as JSON.

use crate::api::{LEASE, Object};
use crate::watch::election::{DURATION, Seen, What};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use weir_telemetry::timestamp;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    lease_transitions: Option<u64>,
    acquire_time: Option<String>,
}

/// Reads a Lease. What nobody wrote is empty or zero, so a Lease of another form is free.
pub(super) fn seen(object: &Object) -> Seen {
    let Spec { holder_identity, lease_duration_seconds, lease_transitions, .. } = spec(object);
    Seen {
        version: object.version.to_string(),
        holder: holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(lease_duration_seconds.unwrap_or_default()),
        transitions: lease_transitions.unwrap_or_default(),
    }
}

/// When the present holder took it.
pub(super) fn acquired(object: &Object) -> Option<String> {
    spec(object).acquire_time
}

fn spec(object: &Object) -> Spec {
    object.read::<Written>().unwrap_or_default().spec
}

/// What a write of the Lease says.
#[derive(Debug)]
pub(super) struct Body<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) version: Option<&'a str>,
    pub(super) me: &'a str,
    pub(super) what: What,
    pub(super) transitions: u64,
    pub(super) acquired: Option<&'a str>,
}

impl Body<'_> {
    /// The object to create or to put.
    pub(super) fn to_json(&self, now: SystemTime) -> Value {
        let now = micros(now);
        let holder = if self.what == What::Release { "" } else { self.me };
        let acquired = self.acquired.filter(|_| self.what == What::Renew).unwrap_or(&now);
        let mut metadata = json!({ "namespace": self.namespace, "name": self.name });
        if let Some(version) = self.version {
            metadata["resourceVersion"] = json!(version);
        }
        json!({
            "apiVersion": LEASE.api_version(),
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": self.transitions,
            },
        })
    }
}

/// A time as `MicroTime` of the API: six digits after the second.
pub(super) fn micros(time: SystemTime) -> String {
    let text = timestamp(time);
    text.strip_suffix('Z').map_or_else(|| text.clone(), |start| format!("{start}000Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let body = Body {
            namespace: "weir",
            name: "leader",
            version: Some("7"),
            me: "pod-1",
            what: What::Renew,
            transitions: 3,
            acquired: Some("2026-01-01T00:00:00.000000Z"),
        };
        let written = body.to_json(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
        assert_eq!(written["spec"]["renewTime"], "1970-01-01T00:00:01.500000Z");
        assert_eq!(written["spec"]["acquireTime"], "2026-01-01T00:00:00.000000Z");
        let object = Object::new(&LEASE, written).unwrap();
        let expected =
            Seen { version: "7".to_owned(), holder: "pod-1".to_owned(), duration: DURATION, transitions: 3 };
        assert_eq!(seen(&object), expected);
        let released = Body { what: What::Release, ..body }.to_json(SystemTime::UNIX_EPOCH);
        assert_eq!(seen(&Object::new(&LEASE, released).unwrap()).holder, "");
    }

    #[test]
    fn a_lease_of_another_form_is_free() {
        for spec in [json!(null), json!([]), json!({ "leaseDurationSeconds": -1 })] {
            let metadata = json!({ "namespace": "n", "name": "l", "resourceVersion": "1" });
            let object = Object::new(&LEASE, json!({ "metadata": metadata, "spec": spec })).unwrap();
            assert_eq!((seen(&object).holder.as_str(), seen(&object).duration), ("", Duration::ZERO));
        }
    }
}
