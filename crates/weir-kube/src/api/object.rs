//! Objects as the API server sends them, kept as compact JSON.

use super::{Making, Resource};
use crate::name::Name;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// An object at one version.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// Its namespace and name.
    pub key: Name,
    /// Differs between two objects that had one name at different times.
    pub uid: Box<str>,
    /// The version (`metadata.resourceVersion`), to be compared for equality only.
    pub version: Box<str>,
    /// The object as JSON, without what nobody reads. It may hold a secret.
    pub text: Arc<str>,
}

/// Why a JSON value is not an object of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnObject(&'static str);

/// The annotation in which kubectl keeps a second copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The keys that are read of kinds whose objects hold anything. Other keys may hold passwords or megabytes: they are
/// kept neither in memory nor on disk.
const READ: &[(&str, &[&str])] = &[
    ("ConfigMap", &["ca.crt", "service.externalTrafficPolicy", "service.loadBalancerClass", "service.type"]),
    ("Secret", &["tls.crt", "tls.key"]),
];

/// The annotation of objects that a controller made: its `controllerName`.
pub const CONTROLLER_ANNOTATION: &str = "gateway.weir.dev/controller";

impl Object {
    /// Reads an object of a resource. Drops `managedFields` and kubectl's copy, which are often longer than the rest,
    /// and adds `apiVersion` and `kind`, which the items of a list lack.
    ///
    /// # Errors
    /// If it has no name or version.
    pub fn new(resource: &Resource, mut value: Value) -> Result<Self, NotAnObject> {
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.ok_or(NotAnObject("it has no metadata"))?;
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_made = metadata.get("annotations").is_some_and(|all| all.get(CONTROLLER_ANNOTATION).is_some());
        let keeps_record = is_made && resource.making == Making::Record;
        let key = Name::new(text("namespace"), text("name"));
        let (uid, version): (Box<str>, Box<str>) = (text("uid").into(), text("resourceVersion").into());
        if let Some((_, read)) = READ.iter().find(|(kind, _)| *kind == resource.kind) {
            if let Some(data) = value.get_mut("data").and_then(Value::as_object_mut) {
                data.retain(|name, value| {
                    read.contains(&name.as_str()) || keeps_record && is_recorded(value)
                });
            }
            if let Some(object) = value.as_object_mut() {
                object.remove("binaryData");
            }
        }
        if key.name.is_empty() {
            return Err(NotAnObject("it has no name"));
        }
        if version.is_empty() {
            return Err(NotAnObject("it has no resourceVersion"));
        }
        value["apiVersion"] = resource.api_version().into();
        value["kind"] = resource.kind.into();
        Ok(Self { key, uid, version, text: value.to_string().into() })
    }

    /// The object as a tree.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default() // it was written from a tree
    }

    /// Reads the object as a type. `None` if it has another form.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(&self.text).ok()
    }
}

/// Whether a value has the form of the recorded ports of a Gateway, such as `80=15080 443=15443`. Nothing else of a
/// record has to be kept, whoever wrote it.
fn is_recorded(value: &Value) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'=' | b' ');
    value.as_str().is_some_and(|text| text.bytes().all(is_part))
}

/// Without the content, which may be a secret.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.version)
    }
}

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::watched;
    use serde_json::json;

    #[test]
    fn only_what_is_read_is_kept() {
        let service = watched("Service").unwrap();
        let object = Object::new(
            service,
            json!({
                "metadata": {
                    "namespace": "shop", "name": "cart", "uid": "u1", "resourceVersion": "7",
                    "managedFields": [{ "manager": "kubectl" }],
                    "annotations": { LAST_APPLIED: "{}", "team": "a" },
                },
                "spec": { "port": 80 },
            }),
        );
        let object = object.unwrap();
        assert_eq!(
            (object.key.to_string().as_str(), &*object.uid, &*object.version),
            ("shop/cart", "u1", "7")
        );
        let expected = r#"{"metadata":{"namespace":"shop","name":"cart","uid":"u1","resourceVersion":"7","annotations":{"team":"a"}},"spec":{"port":80},"apiVersion":"v1","kind":"Service"}"#;
        assert_eq!(object.value(), serde_json::from_str::<Value>(expected).unwrap());
    }

    /// The record of ports is ours: what is dropped of it would be written again and again, and never followed.
    #[test]
    fn recorded_ports_are_kept() {
        let read = |annotations: Value| {
            let data = json!({ "u-1": "80=15080 443=15443", "u-2": "secret", "ca.crt": "pem", "x": "y" });
            let metadata =
                json!({ "name": "weir-ports", "resourceVersion": "1", "annotations": annotations });
            let object =
                Object::new(watched("ConfigMap").unwrap(), json!({ "metadata": metadata, "data": data }));
            object.unwrap().value()["data"].clone()
        };
        let ours = read(json!({ CONTROLLER_ANNOTATION: "us" }));
        assert_eq!(ours, json!({ "u-1": "80=15080 443=15443", "ca.crt": "pem" }));
        assert_eq!(read(json!({})), json!({ "ca.crt": "pem" }));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (value, why) in [
            (json!([]), "it has no metadata"),
            (json!({ "metadata": 1 }), "it has no metadata"),
            (json!({ "metadata": { "resourceVersion": "1" } }), "it has no name"),
            (json!({ "metadata": { "name": 5, "resourceVersion": "1" } }), "it has no name"),
            (json!({ "metadata": { "name": "a" } }), "it has no resourceVersion"),
        ] {
            assert_eq!(Object::new(watched("Service").unwrap(), value).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn a_secret_is_not_in_debug_output() {
        let object = Object::new(
            watched("Secret").unwrap(),
            json!({
                "metadata": { "name": "key", "resourceVersion": "1" }, "data": { "password": "hunter2" },
            }),
        );
        assert_eq!(format!("{:?}", object.unwrap()), "key@1");
    }
}
