//! One connection of the fake API server: one request and its answer, or a watch.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::store::{Refusal, State, conflict, expired, invalid, not_found, resource};
use super::{KubeRequest, Shared, lock};
use crate::ServerTls;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A request as it came.
struct Asked {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    token: Option<String>,
    body: Value,
}

/// What a path names.
struct Place {
    kind: &'static str,
    api_version: String,
    key: (&'static str, String, String),
    subresource: String,
}

/// An answer that may break off.
struct Out<'a> {
    stream: &'a mut dyn Stream,
    left: Option<usize>,
}

pub(super) fn connection(shared: &Shared, number: usize, stream: TcpStream, tls: Option<&ServerTls>) {
    let Ok(handle) = stream.try_clone() else { return };
    lock(&shared.open).insert(number, handle);
    // After it is registered: `go_away` either sees it or is seen by it.
    if !lock(&shared.faults).away {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(60))); // a client that says nothing
        let mut stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                let connection = ServerConnection::new(tls.0.clone()).unwrap();
                Box::new(StreamOwned::new(connection, stream))
            }
        };
        let _ = exchange(shared, &mut *stream); // the client, or a fault, ended it
    }
    if let Some(stream) = lock(&shared.open).remove(&number) {
        let _ = stream.shutdown(Shutdown::Both); // it may have ended
    }
}

fn exchange(shared: &Shared, stream: &mut dyn Stream) -> io::Result<()> {
    let asked = read(stream)?;
    let left = lock(&shared.faults).cuts.pop();
    let mut out = Out { stream, left };
    let Some(place) = place(&asked.path) else { return out.refuse(&not_found()) };
    let watch = asked.parameter("watch") == Some("true");
    let verb = match (asked.method.as_str(), place.key.2.is_empty()) {
        ("GET", true) if watch => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        _ => "delete",
    };
    if let Err(refusal) = permitted(shared, &asked, &place, verb) {
        return out.refuse(&refusal);
    }
    if verb == "watch" {
        return follow(shared, &asked, &place, &mut out);
    }
    let answer = answer(shared, &asked, &place, verb);
    match answer {
        Ok(value) => out.whole(if verb == "create" { 201 } else { 200 }, &value),
        Err(refusal) => out.refuse(&refusal),
    }
}

/// Records the request and checks token and permissions.
fn permitted(shared: &Shared, asked: &Asked, place: &Place, verb: &'static str) -> Result<(), Refusal> {
    let slash = if place.subresource.is_empty() { "" } else { "/" };
    let resource = format!("{}{slash}{}", place.key.0, place.subresource);
    lock(&shared.requests).push(KubeRequest {
        verb,
        group: place.api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
        resource: resource.clone(),
        namespace: place.key.1.clone(),
        name: place.key.2.clone(),
        token: asked.token.clone(),
    });
    let faults = lock(&shared.faults);
    if faults.token.is_some() && faults.token != asked.token {
        return Err((401, "Unauthorized", "Unauthorized".to_owned()));
    }
    if faults.uninstalled.contains(place.key.0) {
        return Err(not_found());
    }
    if faults.forbidden.contains(&(verb.to_owned(), resource.clone())) {
        return Err((403, "Forbidden", format!("the account cannot {verb} resource \"{resource}\"")));
    }
    Ok(())
}

fn answer(shared: &Shared, asked: &Asked, place: &Place, verb: &str) -> Result<Value, Refusal> {
    if ["update", "patch"].contains(&verb) && place.key.0 != "leases" {
        let mut faults = lock(&shared.faults);
        if faults.conflicts > 0 {
            faults.conflicts -= 1;
            return Err(conflict(&place.key.2));
        }
    }
    let mut state = lock(&shared.state);
    let done = match verb {
        "list" => {
            let limit = asked.parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
            let token = asked.parameter("continue");
            let (version, next, items) =
                state.list(place.key.0, limit, token, |one| place.has(asked, one))?;
            let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
            let kind = format!("{}List", place.kind);
            return Ok(
                json!({ "kind": kind, "apiVersion": place.api_version, "metadata": metadata, "items": items }),
            );
        }
        "get" => return state.read(&place.key),
        "create" => {
            let mut key = place.key.clone();
            key.2 = asked.body["metadata"]["name"].as_str().ok_or_else(invalid)?.to_owned();
            state.create(&key, asked.body.clone())
        }
        "update" => state.replace(&place.key, asked.body.clone(), &place.subresource),
        "patch" => state.patch(&place.key, &asked.body, &place.subresource),
        _ => {
            let known = state.read(&place.key)?;
            let uid = &asked.body["preconditions"]["uid"];
            if !uid.is_null() && *uid != known["metadata"]["uid"] {
                return Err(conflict(&place.key.2));
            }
            state.delete(&place.key).ok_or_else(not_found)
        }
    };
    drop(state);
    shared.changed.notify_all();
    done
}

/// Streams what happens from a version on.
fn follow(shared: &Shared, asked: &Asked, place: &Place, out: &mut Out<'_>) -> io::Result<()> {
    let from = asked.parameter("resourceVersion").and_then(|version| version.parse().ok());
    let time = asked.parameter("timeoutSeconds").and_then(|time| time.parse().ok()).unwrap_or(3_600);
    let until = Instant::now() + Duration::from_secs(time);
    let (mut marked, generation, is_expired) = {
        let mut faults = lock(&shared.faults);
        let left = faults.expired.get_mut(place.key.0).filter(|left| **left > 0);
        let is_expired = left.map(|left| *left -= 1).is_some();
        (faults.bookmarks, faults.generation, is_expired)
    };
    out.bytes(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let mut at: u64 = from.unwrap_or_else(|| lock(&shared.state).version);
    loop {
        let mut state = lock(&shared.state);
        let mut lines = Vec::new();
        loop {
            let faults = lock(&shared.faults).clone();
            if shared.ended.load(Ordering::SeqCst) || faults.away {
                return Ok(());
            }
            if faults.generation != generation || Instant::now() >= until {
                drop(state);
                return out.bytes(b"0\r\n\r\n");
            }
            if is_expired || at < state.compacted {
                drop(state);
                let (code, reason, message) = expired();
                let object = json!({ "kind": "Status", "code": code, "reason": reason, "message": message });
                out.line(&json!({ "type": "ERROR", "object": object }))?;
                return out.bytes(b"0\r\n\r\n");
            }
            lines.extend(news(&state, asked, place, &mut at));
            if std::mem::replace(&mut marked, faults.bookmarks) != faults.bookmarks {
                let metadata = json!({ "resourceVersion": at.to_string() });
                lines.push(
                    json!({ "type": "BOOKMARK", "object": { "kind": place.kind, "metadata": metadata } }),
                );
            }
            if !lines.is_empty() {
                break;
            }
            let wait = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(1));
            state = shared.changed.wait_timeout(state, wait).unwrap().0;
        }
        drop(state);
        for line in &lines {
            out.line(line)?;
        }
    }
}

/// The events of a resource after a version, which moves to the newest one.
fn news(state: &State, asked: &Asked, place: &Place, at: &mut u64) -> Vec<Value> {
    let first = state.history.partition_point(|logged| logged.version <= *at);
    let new = state.history.iter().skip(first).filter(|logged| logged.plural == place.key.0);
    let new = new.filter(|logged| place.has(asked, &logged.object));
    let lines = new.map(|logged| json!({ "type": logged.event, "object": logged.object })).collect();
    *at = state.version.max(*at);
    lines
}

// === HTTP ===

fn read(stream: &mut dyn Stream) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let field = |name: &str| {
        let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + 4 + length {
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
    let mut line = head.split(' ');
    let (method, target) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameters = query.split('&').filter_map(|pair| pair.split_once('='));
    Ok(Asked {
        method: method.to_owned(),
        path: path.to_owned(),
        query: parameters.map(|(name, value)| (name.to_owned(), unescaped(value))).collect(),
        token: field("authorization").and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned),
        body: serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default(),
    })
}

fn unescaped(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: String = rest.by_ref().take(2).map(char::from).collect();
            bytes.push(u8::from_str_radix(&digits, 16).expect("two hexadecimal digits follow %"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("a parameter is UTF-8")
}

/// Reads `/api/v1/…` and `/apis/GROUP/VERSION/…`.
fn place(path: &str) -> Option<Place> {
    let mut parts = path.split('/').skip(1);
    let api_version = match parts.next()? {
        "api" => parts.next()?.to_owned(),
        "apis" => format!("{}/{}", parts.next()?, parts.next()?),
        _ => return None,
    };
    let mut rest: Vec<&str> = parts.collect();
    let namespace = match rest[..] {
        ["namespaces", namespace, _, ..] => {
            rest.drain(..2);
            namespace
        }
        _ => "",
    };
    let (kind, plural) = resource(&api_version, rest.first()?)?;
    let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    let key = (plural, namespace.to_owned(), part(1));
    Some(Place { kind, api_version, key, subresource: part(2) })
}

impl Place {
    /// Whether a list or watch of this place has an object: by its namespace, and by `NAME=VALUE` of a label.
    fn has(&self, asked: &Asked, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let selector = asked.parameter("labelSelector").and_then(|selector| selector.split_once('='));
        (self.key.1.is_empty() || metadata["namespace"] == *self.key.1)
            && selector.is_none_or(|(name, value)| metadata["labels"][name] == *value)
    }
}

impl Asked {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Out<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let part = self.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        self.stream.write_all(&bytes[..part])?;
        self.stream.flush()?;
        if let Some(left) = &mut self.left {
            *left -= part;
            if part < bytes.len() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(())
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        let line = format!("{value}\n");
        self.bytes(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())
    }

    fn whole(&mut self, status: u16, value: &Value) -> io::Result<()> {
        let body = value.to_string();
        let head = format!(
            "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        self.bytes(format!("{head}{body}").as_bytes())
    }

    fn refuse(&mut self, (status, reason, message): &Refusal) -> io::Result<()> {
        let kind = json!({ "kind": "Status", "status": "Failure", "code": status });
        let mut value = kind;
        value["reason"] = json!(reason);
        value["message"] = json!(message);
        self.whole(*status, &value)
    }
}
