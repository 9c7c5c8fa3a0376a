//! The objects of the fake API server and their history.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use serde_json::{Map, Value, json};

/// Kind, `apiVersion`, plural, and whether its objects belong to a namespace.
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("BackendTLSPolicy", "gateway.networking.k8s.io/v1", "backendtlspolicies", true),
    ("ConfigMap", "v1", "configmaps", true),
    ("EndpointSlice", "discovery.k8s.io/v1", "endpointslices", true),
    ("Event", "events.k8s.io/v1", "events", true),
    ("GRPCRoute", "gateway.networking.k8s.io/v1", "grpcroutes", true),
    ("Gateway", "gateway.networking.k8s.io/v1", "gateways", true),
    ("GatewayClass", "gateway.networking.k8s.io/v1", "gatewayclasses", false),
    ("HTTPRoute", "gateway.networking.k8s.io/v1", "httproutes", true),
    ("Ingress", "networking.k8s.io/v1", "ingresses", true),
    ("IngressClass", "networking.k8s.io/v1", "ingressclasses", false),
    ("Lease", "coordination.k8s.io/v1", "leases", true),
    ("ListenerSet", "gateway.networking.k8s.io/v1", "listenersets", true),
    ("Namespace", "v1", "namespaces", false),
    ("ReferenceGrant", "gateway.networking.k8s.io/v1beta1", "referencegrants", true),
    ("Secret", "v1", "secrets", true),
    ("Service", "v1", "services", true),
    ("TCPRoute", "gateway.networking.k8s.io/v1", "tcproutes", true),
    ("TLSRoute", "gateway.networking.k8s.io/v1", "tlsroutes", true),
    ("WeirFilters", "gateway.weir.dev/v1alpha1", "weirfilters", true),
];

/// Plural, namespace and name.
type Key = (&'static str, String, String);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) version: u64,
    /// The history begins after this version.
    pub(super) compacted: u64,
    objects: BTreeMap<Key, Value>,
    pub(super) history: Vec<Logged>,
    /// The rest of each list, by its token.
    pages: BTreeMap<String, (u64, Vec<Value>)>,
    uids: u64,
    /// Sets the uids of this server apart from those of others: ports of pods depend on them.
    salt: RandomState,
    /// Whether the garbage collector is off.
    pub(super) keeps_orphans: bool,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) version: u64,
    pub(super) plural: &'static str,
    pub(super) event: &'static str,
    pub(super) object: Value,
}

/// Why the server refuses a request: status, reason, message.
pub(super) type Refusal = (u16, &'static str, String);

/// A page of a list: its version, the token of the next one, and its objects.
pub(super) type Page = (u64, String, Vec<Value>);

impl State {
    // === as a test sees it ===

    pub(super) fn apply(&mut self, object: Value) -> Value {
        let (plural, namespaced) = kind_of(object["kind"].as_str().expect("an object has a kind"));
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        assert_eq!(namespaced, !namespace.is_empty(), "the namespace of {}", object["kind"]);
        let name = object["metadata"]["name"].as_str().expect("an object has a name").to_owned();
        let key = (plural, namespace, name);
        if self.objects.contains_key(&key) {
            self.replace(&key, object, "").expect("a user's change has no version")
        } else {
            self.create(&key, object).expect("it does not exist")
        }
    }

    pub(super) fn set_status(&mut self, kind: &str, namespace: &str, name: &str, status: Value) -> Value {
        let key = (kind_of(kind).0, namespace.to_owned(), name.to_owned());
        self.replace(&key, json!({ "status": status }), "status").expect("the object is there")
    }

    pub(super) fn remove(&mut self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.delete(&(kind_of(kind).0, namespace.to_owned(), name.to_owned()))
    }

    pub(super) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(&(kind_of(kind).0, namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(super) fn all(&self, kind: &str) -> Vec<Value> {
        let plural = kind_of(kind).0;
        let all = self.objects.iter().filter(|(key, _)| key.0 == plural);
        all.map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
        self.pages.clear();
    }

    // === as a client sees it ===

    pub(super) fn read(&self, key: &Key) -> Result<Value, Refusal> {
        self.objects.get(key).cloned().ok_or_else(not_found)
    }

    /// A page of at most `limit` objects, consistent with the list's first page.
    pub(super) fn list(
        &mut self,
        plural: &'static str,
        limit: usize,
        token: Option<&str>,
        has: impl Fn(&Value) -> bool,
    ) -> Result<Page, Refusal> {
        let (version, mut rest) = match token {
            Some(token) => self.pages.get(token).cloned().ok_or_else(expired)?,
            None => {
                let all = self.objects.iter().filter(|(key, _)| key.0 == plural);
                (self.version, all.map(|(_, object)| object.clone()).filter(has).collect())
            }
        };
        let later = rest.split_off(limit.min(rest.len()));
        if later.is_empty() {
            return Ok((version, String::new(), rest));
        }
        self.uids += 1;
        let token = format!("page+{}/=", self.uids); // with characters that must be escaped in a query
        self.pages.insert(token.clone(), (version, later));
        Ok((version, token, rest))
    }

    pub(super) fn create(&mut self, key: &Key, mut object: Value) -> Result<Value, Refusal> {
        if self.objects.contains_key(key) {
            return Err((409, "AlreadyExists", format!("{} exists", key.2)));
        }
        self.uids += 1;
        let uid = format!("uid-{:x}", self.salt.hash_one(self.uids));
        let metadata = object["metadata"].as_object_mut().ok_or_else(invalid)?;
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("generation".to_owned(), json!(1));
        metadata.entry("creationTimestamp").or_insert(json!("2026-01-01T00:00:00Z"));
        metadata.insert("managedFields".to_owned(), json!([{ "manager": "a test" }]));
        Ok(self.store(key, "ADDED", object))
    }

    /// Replaces an object, or its status alone. A version in the body must be the current one.
    pub(super) fn replace(&mut self, key: &Key, body: Value, subresource: &str) -> Result<Value, Refusal> {
        let before = self.read(key)?;
        let named = body["metadata"]["resourceVersion"].as_str();
        if named.is_some_and(|named| Some(named) != before["metadata"]["resourceVersion"].as_str()) {
            return Err(conflict(&key.2));
        }
        let mut next = before.clone();
        if subresource == "status" {
            next["status"] = body["status"].clone();
        } else {
            let parts = before.as_object().cloned().unwrap_or_default();
            let mut object = body.as_object().cloned().ok_or_else(invalid)?;
            let mut metadata = parts.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
            for name in ["labels", "annotations"] {
                match body["metadata"].get(name) {
                    Some(value) => drop(metadata.insert(name.to_owned(), value.clone())),
                    None => drop(metadata.remove(name)),
                }
            }
            let spec = |object: &Map<String, Value>| object.get("spec").cloned();
            if spec(&object) != spec(&parts) {
                let generation = metadata.get("generation").and_then(Value::as_u64).unwrap_or(0);
                metadata.insert("generation".to_owned(), json!(generation + 1));
            }
            object.insert("metadata".to_owned(), Value::Object(metadata));
            match parts.get("status") {
                Some(status) => drop(object.insert("status".to_owned(), status.clone())),
                None => drop(object.remove("status")),
            }
            next = Value::Object(object);
        }
        if next == before {
            return Ok(before); // as in a real one, a write without a change has no new version
        }
        Ok(self.store(key, "MODIFIED", next))
    }

    /// Merges a JSON merge patch (RFC 7396) into an object, or into its status alone.
    pub(super) fn patch(&mut self, key: &Key, patch: &Value, subresource: &str) -> Result<Value, Refusal> {
        let mut body = self.read(key)?;
        if patch["metadata"].get("resourceVersion").is_none()
            && let Some(metadata) = body["metadata"].as_object_mut()
        {
            metadata.remove("resourceVersion"); // without one, a patch meets no conflict
        }
        merge(&mut body, patch);
        self.replace(key, body, subresource)
    }

    /// Removes an object, and those of its namespace that name it as their only owner, as the garbage collector does.
    pub(super) fn delete(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.remove(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log(key.0, "DELETED", object.clone());
        let is_owned = |owned: &Value| {
            let owners = owned["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
            matches!(owners, [only] if only["uid"] == object["metadata"]["uid"])
        };
        let in_namespace = self.objects.iter().filter(|((_, namespace, _), _)| *namespace == key.1);
        let owned: Vec<Key> =
            in_namespace.filter(|(_, owned)| is_owned(owned)).map(|(key, _)| key.clone()).collect();
        if !self.keeps_orphans {
            owned.iter().for_each(|key| drop(self.delete(key)));
        }
        Some(object)
    }

    fn store(&mut self, key: &Key, event: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        self.log(key.0, event, object.clone());
        object
    }

    fn log(&mut self, plural: &'static str, event: &'static str, object: Value) {
        self.history.push(Logged { version: self.version, plural, event, object });
    }
}

/// The resource with this group, version and plural.
pub(super) fn resource(api_version: &str, plural: &str) -> Option<(&'static str, &'static str)> {
    let found = KINDS.iter().find(|(_, version, known, _)| *version == api_version && *known == plural);
    found.map(|(kind, _, plural, _)| (*kind, *plural))
}

fn kind_of(kind: &str) -> (&'static str, bool) {
    let found = KINDS.iter().find(|(known, ..)| *known == kind);
    found
        .map(|(_, _, plural, namespaced)| (*plural, *namespaced))
        .unwrap_or_else(|| panic!("the kind {kind}"))
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    let Some(fields) = into.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

pub(super) fn conflict(name: &str) -> Refusal {
    (409, "Conflict", format!("{name}: the object has been modified"))
}

pub(super) fn expired() -> Refusal {
    (410, "Expired", "too old resource version".to_owned())
}

pub(super) fn not_found() -> Refusal {
    (404, "NotFound", "not found".to_owned())
}

pub(super) fn invalid() -> Refusal {
    (422, "Invalid", "not an object of this kind".to_owned())
}
