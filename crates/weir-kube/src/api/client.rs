//! The requests of a controller: list, watch, get, create, replace, patch and delete.

use super::{Access, ApiError, Object, Resource};
use crate::name::Name;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use weir_gateway::fetch::{Environment, FetchError, FetchRequest, Following, Lines, Version, fetch};
use weir_h1::FieldName;
use weir_wire::Chain;

/// Longest page of a list, in bytes. If a page is longer, ask for fewer objects.
pub const PAGE: usize = 32 << 20;

/// Longest object, in bytes. etcd refuses requests above 1.5 MiB unless told otherwise; a watch adds its envelope.
pub const OBJECT: usize = 4 << 20;

/// How long a page may take.
const LIST_TIME: Duration = Duration::from_secs(60);

/// How long any other request may take, and a watch until its head.
const TIME: Duration = Duration::from_secs(10);

/// Most requests at one time, watches not counted: a restart lists every resource.
const AT_ONCE: usize = 8;

/// A client of one API server. It stays on one thread, because connections do not change threads.
pub struct Client {
    access: RefCell<Access>,
    environment: Arc<Environment>,
    places: Semaphore,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The version of the whole list, from which a watch continues.
    pub version: String,
    /// The token of the next page; `None` on the last one.
    pub next: Option<String>,
    /// The objects.
    pub items: Vec<Object>,
}

/// An open watch. Dropping it ends it.
pub struct Watch(Lines, &'static Resource);

/// A message of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing has changed up to this version.
    Bookmark(String),
    /// The object is gone. It carries the version of the deletion.
    Deleted(Object),
    /// The watch ends with an error.
    Failed(ApiError),
    /// The object is new or has changed.
    Put(Object),
}

/// How a body changes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `POST`: the object must not exist.
    Create,
    /// `PATCH` with a JSON merge patch (RFC 7396).
    Merge,
    /// `PUT`: the body's `resourceVersion` must be the current one.
    Replace,
}

#[derive(Deserialize)]
struct WrittenPage {
    metadata: ListMetadata,
    #[serde(default)]
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
struct ListMetadata {
    #[serde(rename = "resourceVersion", default)]
    version: String,
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
struct WrittenEvent {
    r#type: String,
    object: Box<RawValue>,
}

/// What is read of an object that is nested too deeply to be read.
#[derive(Deserialize)]
struct Named {
    metadata: NamedMetadata,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NamedMetadata {
    #[serde(default)]
    namespace: String,
    name: String,
    resource_version: String,
}

// === impl Client ===

impl Client {
    /// A client that resolves names as this machine does.
    pub fn new(access: Access) -> Self {
        Self {
            access: RefCell::new(access),
            environment: Arc::new(Environment::of_system()),
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// The namespace of this pod.
    pub fn namespace(&self) -> String {
        self.access.borrow().namespace.clone()
    }

    /// A page of all objects of a resource: the first one, or the one that `next` names.
    ///
    /// # Errors
    /// [`ApiError::TooLong`] if the page exceeds [`PAGE`], [`ApiError::Expired`] if `next` is too old.
    pub async fn list(&self, resource: &Resource, limit: u32, next: Option<&str>) -> Result<Page, ApiError> {
        let mut target = all_of(resource)?;
        let _ = write!(target, "?limit={limit}"); // writing to a string cannot fail
        push_parameter(&mut target, "fieldSelector", resource.selector);
        push_parameter(&mut target, "continue", next.unwrap_or_default());
        let request = self.request("GET", &target, PAGE, LIST_TIME)?;
        page(resource, &self.ask(&request).await?)
    }

    /// Opens a watch that continues after this version. The server ends it after about `time`.
    ///
    /// # Errors
    /// As any request.
    pub async fn watch(
        &self,
        resource: &'static Resource,
        from: &str,
        time: Duration,
    ) -> Result<Watch, ApiError> {
        let mut target = all_of(resource)?;
        let _ = write!(target, "?watch=true&allowWatchBookmarks=true&timeoutSeconds={}", time.as_secs()); // as above
        push_parameter(&mut target, "fieldSelector", resource.selector);
        push_parameter(&mut target, "resourceVersion", from);
        let request = self.request("GET", &target, OBJECT, TIME)?;
        let opened = tokio::time::timeout(TIME, Following::open(&request, &self.environment));
        let mut following = opened.await.unwrap_or(Err(FetchError::Timeout)).map_err(of_fetch)?;
        if following.status == 200 {
            return Ok(Watch(Lines::new(following, OBJECT), resource));
        }
        let body = tokio::time::timeout(TIME, whole(&mut following)).await.unwrap_or_default();
        Err(ApiError::of(following.status, &body))
    }

    /// One object.
    ///
    /// # Errors
    /// As any request.
    pub async fn get(&self, resource: &Resource, key: &Name) -> Result<Object, ApiError> {
        let request = self.request("GET", &path_of(resource, key)?, OBJECT, TIME)?;
        object(resource, &self.ask(&request).await?)
    }

    /// Writes an object or a subresource of it, such as `status`. Returns the object as it is now.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] if the body names another version than the current one, [`ApiError::Exists`] if the
    /// object to create is there.
    pub async fn write(
        &self,
        how: Write,
        resource: &Resource,
        key: &Name,
        subresource: &str,
        body: &Value,
    ) -> Result<Object, ApiError> {
        let (method, kind) = match how {
            Write::Create => ("POST", "application/json"),
            Write::Merge => ("PATCH", "application/merge-patch+json"),
            Write::Replace => ("PUT", "application/json"),
        };
        let mut target = path_of(resource, key)?;
        if how == Write::Create {
            target.truncate(target.rfind('/').unwrap_or(target.len()));
        }
        if !subresource.is_empty() {
            let _ = write!(target, "/{subresource}"); // writing to a string cannot fail
        }
        let mut request = self.request(method, &target, OBJECT, TIME)?;
        request.body = body.to_string().into();
        request.headers.extend(field("content-type", kind));
        object(resource, &self.ask(&request).await?)
    }

    /// Deletes the object of this uid.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] if another object has that name now.
    pub async fn delete(&self, resource: &Resource, key: &Name, uid: &str) -> Result<(), ApiError> {
        let mut request = self.request("DELETE", &path_of(resource, key)?, OBJECT, TIME)?;
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
        request.body = options.to_string().into();
        request.headers.extend(field("content-type", "application/json"));
        self.ask(&request).await.map(drop)
    }

    fn request(
        &self,
        method: &str,
        target: &str,
        limit: usize,
        timeout: Duration,
    ) -> Result<FetchRequest, ApiError> {
        let mut access = self.access.borrow_mut();
        let unable = |e: super::NoAccess| ApiError::Away(e.to_string(), None);
        let bearer = access.token().map_err(unable)?.map(|token| format!("Bearer {token}"));
        let headers =
            [field("accept", "application/json"), bearer.and_then(|value| field("authorization", &value))];
        Ok(FetchRequest {
            method: method.to_owned(),
            headers: headers.into_iter().flatten().collect(),
            trust: access.trust().map_err(unable)?,
            version: Version::Http11,
            ..FetchRequest::get(access.server.with_target(target), limit, timeout)
        })
    }

    /// Sends a request and reads its answer if that is a success.
    async fn ask(&self, request: &FetchRequest) -> Result<Vec<u8>, ApiError> {
        let _place = self.places.acquire().await; // fails only if closed, which nobody does
        let answer = tokio::time::timeout(request.timeout, fetch(request, &self.environment)).await;
        let answer = answer.unwrap_or(Err(FetchError::Timeout)).map_err(of_fetch)?;
        match answer.status {
            200..=299 => Ok(answer.body.to_vec()),
            status => Err(ApiError::of(status, &answer.body)),
        }
    }
}

impl Watch {
    /// The next message; `None` when the server ends the watch. Cancel safe.
    pub async fn next(&mut self) -> Option<Told> {
        match self.0.next().await {
            Ok(Some(line)) => Some(told(self.1, line)),
            Ok(None) => None,
            Err(e) => Some(Told::Failed(of_fetch(e))),
        }
    }
}

/// Reads a line of a watch.
fn told(resource: &Resource, line: &[u8]) -> Told {
    let unreadable = |why: &str| Told::Failed(ApiError::Away(format!("a message of the watch: {why}"), None));
    let Ok(event) = serde_json::from_slice::<WrittenEvent>(line) else {
        return unreadable("it is not JSON, or has no type and object");
    };
    let Ok(value) = serde_json::from_str::<Value>(event.object.get()) else {
        // What cannot be read is as if it were gone, so that the others are seen: references to it answer 500.
        let named = serde_json::from_str::<Named>(event.object.get());
        let gone = named.ok().and_then(|n| Object::new(resource, json!({ "metadata": n.metadata })).ok());
        return gone.map_or_else(|| unreadable("an object in it is not readable"), Told::Deleted);
    };
    let object = |value: Value, put: fn(Object) -> Told| match Object::new(resource, value) {
        Ok(object) => put(object),
        Err(e) => unreadable(&e.to_string()),
    };
    match event.r#type.as_str() {
        "ADDED" | "MODIFIED" => object(value, Told::Put),
        "DELETED" => object(value, Told::Deleted),
        "BOOKMARK" => match value.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            Some(version) => Told::Bookmark(version.to_owned()),
            None => unreadable("a bookmark without a version"),
        },
        "ERROR" => {
            let code = value.get("code").and_then(Value::as_u64).unwrap_or(500);
            let body = value.to_string();
            Told::Failed(ApiError::of(u16::try_from(code).unwrap_or(500), body.as_bytes()))
        }
        other => unreadable(&format!("its type is {other:?}")),
    }
}

fn page(resource: &Resource, body: &[u8]) -> Result<Page, ApiError> {
    let unreadable = |why: String| ApiError::Away(format!("a list: {why}"), None);
    let written: WrittenPage = serde_json::from_slice(body).map_err(|e| unreadable(e.to_string()))?;
    let ListMetadata { version, next } = written.metadata;
    if version.is_empty() {
        return Err(unreadable("it has no resourceVersion".to_owned()));
    }
    // As in a watch, one that is nested too deeply must not hide the others.
    let items = written.items.unwrap_or_default().into_iter();
    let items = items.filter_map(|item| serde_json::from_str(item.get()).ok());
    let items = items.map(|item| Object::new(resource, item));
    let items = items.collect::<Result<_, _>>();
    let items = items.map_err(|e| unreadable(format!("an object in it: {e}")))?;
    Ok(Page { version, next: Some(next).filter(|next| !next.is_empty()), items })
}

fn object(resource: &Resource, body: &[u8]) -> Result<Object, ApiError> {
    let unreadable = |why: String| ApiError::Away(format!("an object: {why}"), None);
    let value = serde_json::from_slice(body).map_err(|e| unreadable(e.to_string()))?;
    Object::new(resource, value).map_err(|e| unreadable(e.to_string()))
}

fn all_of(resource: &Resource) -> Result<String, ApiError> {
    resource.path(None).ok_or_else(|| ApiError::Refused(0, "not a path of the API".to_owned()))
}

fn path_of(resource: &Resource, key: &Name) -> Result<String, ApiError> {
    let path = resource.path_of(&key.namespace, &key.name);
    path.ok_or_else(|| ApiError::Refused(0, format!("{key} cannot be the name of an object")))
}

fn field(name: &str, value: &str) -> Option<(FieldName, Vec<u8>)> {
    FieldName::new(name).ok().map(|name| (name, value.as_bytes().to_vec()))
}

/// Appends a parameter of a query unless it is empty.
fn push_parameter(target: &mut String, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    let _ = write!(target, "&{name}="); // writing to a string cannot fail
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            target.push(char::from(byte));
        } else {
            let _ = write!(target, "%{byte:02X}"); // as above
        }
    }
}

fn of_fetch(e: FetchError) -> ApiError {
    match e {
        FetchError::TooLong(limit) => ApiError::TooLong(limit),
        e => ApiError::Away(Chain(&e).to_string(), None),
    }
}

/// The body of an answer that is no watch, up to a limit.
async fn whole(following: &mut Following) -> Vec<u8> {
    const LIMIT: usize = 64 << 10;
    let mut body = Vec::new();
    while let Ok(Some(piece)) = following.piece().await {
        body.extend_from_slice(&piece);
        if body.len() > LIMIT {
            break;
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::watched;

    fn service() -> &'static Resource {
        watched("Service").unwrap()
    }

    #[test]
    fn messages_of_a_watch_are_read() {
        let metadata = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"9"}}"#;
        let line = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
        let object = Object::new(service(), serde_json::from_str(metadata).unwrap()).unwrap();
        for (line, expected) in [
            (line("ADDED", metadata), Told::Put(object.clone())),
            (line("MODIFIED", metadata), Told::Put(object.clone())),
            (line("DELETED", metadata), Told::Deleted(object)),
            (line("BOOKMARK", metadata), Told::Bookmark("9".to_owned())),
            (line("ERROR", r#"{"code":410,"reason":"Expired"}"#), Told::Failed(ApiError::Expired)),
        ] {
            assert_eq!(told(service(), line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_message_that_cannot_be_read_ends_the_watch() {
        for line in [
            "",
            "{",
            "[]",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{"metadata":{}}}"#,
            r#"{"type":"BOOKMARK","object":{}}"#,
            r#"{"type":"RENAMED","object":{}}"#,
            r#"{"type":"ERROR","object":{"code":-1}}"#,
        ] {
            assert!(matches!(told(service(), line.as_bytes()), Told::Failed(ApiError::Away(..))), "{line}");
        }
    }

    #[test]
    fn a_list_without_items_is_empty() {
        let read = page(service(), br#"{"metadata":{"resourceVersion":"5"},"items":null}"#).unwrap();
        assert_eq!((read.version.as_str(), read.next, read.items.len()), ("5", None, 0));
        assert!(page(service(), br#"{"metadata":{},"items":[]}"#).is_err());
        assert!(page(service(), br#"{"metadata":{"resourceVersion":"5"},"items":[{}]}"#).is_err());
    }

    #[test]
    fn parameters_are_escaped() {
        let mut target = "/a?limit=1".to_owned();
        push_parameter(&mut target, "continue", "a+b/c=&x");
        push_parameter(&mut target, "none", "");
        assert_eq!(target, "/a?limit=1&continue=a%2Bb%2Fc%3D%26x");
    }
}
