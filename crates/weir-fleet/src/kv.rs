//! The JSON that etcd 3.4 and later speak over HTTP: request bodies and response values. Keys and values are in
//! base64, numbers in strings.
//!
//! `etcd` builds the fleet's requests with it; endpoint discovery (weir-discover) reads and watches the keys of
//! services.

use crate::session::Lease;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A request: the path to post to, and the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Such as `/v3/kv/range`.
    pub path: &'static str,
    /// JSON.
    pub body: String,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of its creation.
    pub created: u64,
    /// The revision of its last write.
    pub modified: u64,
    /// Its lease; 0 for none.
    pub lease: Lease,
}

/// The content of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The revision at which this is valid.
    pub revision: u64,
    /// The entries.
    pub entries: Vec<Entry>,
    /// There are more.
    pub more: bool,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The changes in order; empty in a line that only reports progress.
    Events(Vec<Event>),
    /// The watch has ended: its revision was compacted, or for another reason.
    Over(String),
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether the key was deleted.
    pub deleted: bool,
    /// The key, with its value unless it was deleted.
    pub entry: Entry,
}

pub(crate) fn ask(path: &'static str, body: &Value) -> Question {
    Question { path, body: body.to_string() }
}

// === requests ===

/// Reads at most `limit` keys that start with `prefix`, starting after `after` if given.
pub fn read_prefix(prefix: &str, after: Option<&[u8]>, limit: usize) -> Question {
    let start = after.map_or_else(|| prefix.as_bytes().to_vec(), |after| [after, b"\0"].concat());
    let range =
        json!({ "key": encode(&start), "range_end": encode(&range_end(prefix)), "limit": limit.to_string() });
    ask("/v3/kv/range", &range)
}

/// Watches the keys that start with `prefix`, starting at a revision.
pub fn watch_prefix(prefix: &str, from: u64) -> Question {
    let create = json!({
        "key": encode(prefix.as_bytes()), "range_end": encode(&range_end(prefix)), "start_revision": from.to_string(),
    });
    ask("/v3/watch", &json!({ "create_request": create }))
}

/// The end of the range of keys that start with `prefix`, which is text: none of its bytes is 255.
fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last = last.saturating_add(1),
        None => end.push(0), // etcd's notation for "all keys"
    }
    end
}

/// Requests a token for the Authorization field.
pub fn authenticate(user: &str, password: &str) -> Question {
    ask("/v3/auth/authenticate", &json!({ "name": user, "password": password }))
}

// === responses ===

/// The message of an etcd error response.
pub fn error(body: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let text = value.as_ref().and_then(|value| {
        let inner = value.get("error").unwrap_or(value);
        inner.as_str().or_else(|| inner.get("message")?.as_str()).or_else(|| value.get("message")?.as_str())
    });
    // etcd's gateway rejects some requests in plain text.
    let plain = || str::from_utf8(body).ok().map(str::trim).filter(|text| is_one_line(text));
    crate::report::shortened(text.or_else(plain).unwrap_or("it is not an etcd answer"), 300)
}

/// The gRPC status of a request that etcd rejected.
pub fn code(body: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value.get("code")?.as_u64()
}

fn is_one_line(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(['{', '[', '<']) && !text.contains(char::is_control)
}

pub(crate) fn parsed(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|_| "the answer is not an etcd JSON response".to_owned())
}

/// A number, which etcd's JSON writes as a string.
pub(crate) fn number(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        Some(value) => value.as_u64().unwrap_or(0),
        None => 0,
    }
}

pub(crate) fn lease_of(value: Option<&Value>) -> Lease {
    match value {
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        Some(value) => value.as_i64().unwrap_or(0),
        None => 0,
    }
}

pub(crate) fn entry(kv: &Value) -> Option<Entry> {
    Some(Entry {
        key: decode(kv.get("key")?.as_str()?)?,
        value: match kv.get("value") {
            Some(value) => decode(value.as_str()?)?,
            None => Vec::new(),
        },
        created: number(kv.get("create_revision")),
        modified: number(kv.get("mod_revision")),
        lease: lease_of(kv.get("lease")),
    })
}

/// The content of a range.
///
/// # Errors
/// When the body is not such a response.
pub fn range(body: &[u8]) -> Result<Range, String> {
    let value = parsed(body)?;
    if value.get("header").is_none() {
        return Err(error(body));
    }
    Ok(range_of(&value, &value))
}

pub(crate) fn range_of(value: &Value, whole: &Value) -> Range {
    let kvs = value.get("kvs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Range {
        revision: number(whole.get("header").and_then(|header| header.get("revision"))),
        entries: kvs.iter().filter_map(entry).collect(),
        more: value.get("more").and_then(Value::as_bool).unwrap_or_default(),
    }
}

/// The token that [`authenticate`] requested.
///
/// # Errors
/// When the body is not such a response.
pub fn token(body: &[u8]) -> Result<String, String> {
    let value = parsed(body)?;
    let token = value.get("token").and_then(Value::as_str).map(str::to_owned);
    token.filter(|token| token.bytes().all(|b| b.is_ascii_graphic())).ok_or_else(|| error(body))
}

/// Parses a line of a watch.
pub fn line(line: &[u8]) -> Line {
    let Ok(value) = parsed(line) else { return no_json() };
    let Some(result) = value.get("result") else { return Line::Over(error(line)) };
    let is = |name| result.get(name).and_then(Value::as_bool).unwrap_or_default();
    if is("canceled") {
        let reason = result.get("cancel_reason").and_then(Value::as_str).unwrap_or("the watch was canceled");
        let compacted = number(result.get("compact_revision"));
        return Line::Over(if compacted > 0 {
            format!("revisions up to {compacted} were compacted")
        } else {
            crate::report::shortened(reason, 300)
        });
    }
    let events = result.get("events").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let event = |event: &Value| {
        let deleted = event.get("type").and_then(Value::as_str) == Some("DELETE");
        Some(Event { deleted, entry: entry(event.get("kv")?)? })
    };
    events.iter().map(event).collect::<Option<Vec<_>>>().map_or_else(no_json, Line::Events)
}

fn no_json() -> Line {
    Line::Over("the watch sent no JSON of etcd".to_owned())
}

// === base64, RFC 4648 §4 ===

/// Encodes bytes as base64.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64; `None` if it is invalid.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_known_by_their_codes() {
        let lost = br#"{"error":"etcdserver: requested lease not found","code":5,"message":"as above"}"#;
        assert_eq!(code(lost), Some(5));
        assert_eq!(
            code(br#"{"code":5,"message":"etcdserver: requested lease not found","details":[]}"#),
            Some(5)
        );
        for other in [&b"{}"[..], b"[5]", br#"{"code":"5"}"#, b"no JSON", b""] {
            assert_eq!(code(other), None);
        }
    }

    #[test]
    fn refusals_are_told_in_its_words() {
        for (body, told) in [
            (r#"{"error":"etcdserver: user name is empty","code":3}"#, "etcdserver: user name is empty"),
            (r#"{"error":{"message":"too large"}}"#, "too large"),
            ("CommonName of client will be ignored\n", "CommonName of client will be ignored"),
            ("{", "it is not an etcd answer"),
            ("<html>nginx</html>", "it is not an etcd answer"),
            ("two\nlines", "it is not an etcd answer"),
            ("\u{1b}[31mred", "it is not an etcd answer"),
            ("", "it is not an etcd answer"),
        ] {
            assert_eq!(error(body.as_bytes()), told, "{body:?}");
        }
        assert_eq!(error(&[0xff, 0xfe]), "it is not an etcd answer");
    }

    #[test]
    fn base64_there_and_back() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for wrong in ["Z", "Zg=", "Z===", "====", "Zm9*", "Zm 9"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_prefix_ends_where_it_ends() {
        let text = |question: &Question, name: &str| {
            let body: Value = serde_json::from_str(&question.body).unwrap();
            let body = body.get("create_request").unwrap_or(&body).clone();
            String::from_utf8(decode(body[name].as_str().unwrap()).unwrap()).unwrap()
        };
        let read = read_prefix("/a/b/", None, 7);
        assert_eq!((text(&read, "key"), text(&read, "range_end")), ("/a/b/".to_owned(), "/a/b0".to_owned()));
        assert_eq!(text(&read_prefix("/a/b/", Some(b"/a/b/c"), 7), "key"), "/a/b/c\0");
        let watch = watch_prefix("/a/b/", 9);
        assert_eq!(
            (text(&watch, "key"), text(&watch, "range_end")),
            ("/a/b/".to_owned(), "/a/b0".to_owned())
        );
    }

    #[test]
    fn changes_of_a_watch() {
        let written = br#"{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"YQ==","mod_revision":"8","value":"Yg=="}},{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}}]}}"#;
        let Line::Events(events) = line(written) else { panic!() };
        let seen: Vec<_> = events.iter().map(|e| (e.deleted, e.entry.modified, &*e.entry.value)).collect();
        assert_eq!(seen, [(false, 8, &b"b"[..]), (true, 9, b"")]);
        assert_eq!(line(br#"{"result":{"created":true}}"#), Line::Events(Vec::new()));
        for broken in
            [&b"\xff"[..], br#"{"result":{"events":[{"kv":{"key":"*"}}]}}"#, br#"{"result":{"events":[{}]}}"#]
        {
            assert!(matches!(line(broken), Line::Over(_)));
        }
    }
}
