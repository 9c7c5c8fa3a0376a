//! JSON lines: Weir's access log in JSON, and `{at, method, url, headers, body}`, which its format `replay` writes.

use crate::{CUT, NO_REQUEST, Recorded, Then, UNREADABLE, Unread, split, when};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Longest path and query, each, in Weir's access log in JSON. There, a longer one ends in `…`.
const LOGGED_MOST: usize = 2048;

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

pub(crate) fn status(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0)
}

/// A line of Weir's access log in JSON.
pub(crate) fn weir(line: &[u8]) -> Result<Recorded, Unread> {
    let value: Value = serde_json::from_slice(line).map_err(|_| UNREADABLE)?;
    if text(&value, "protocol").is_some_and(|p| !p.starts_with("HTTP/")) {
        return Err(NO_REQUEST);
    }
    // A connection that ended before a head has no method.
    let Some(method) = text(&value, "method") else {
        return Err(if value.get("total_us").is_some() { NO_REQUEST } else { UNREADABLE });
    };
    if is_tunnel(&value) {
        return Err(NO_REQUEST);
    }
    let uri = text(&value, "uri").ok_or(NO_REQUEST)?;
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    if [path, query].iter().any(|part| part.len() >= LOGGED_MOST && part.ends_with('…')) {
        return Err(CUT);
    }
    let mut fields = Vec::new();
    for (key, name) in [("referer", "referer"), ("user_agent", "user-agent")] {
        fields.extend(text(&value, key).map(|v| (name.to_owned(), v.as_bytes().to_vec())));
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        if let (Some(name), Some(value)) = (key.strip_prefix("header:"), value.as_str()) {
            fields.retain(|(known, _)| known != name);
            fields.push((name.to_owned(), value.as_bytes().to_vec()));
        }
    }
    Ok(Recorded {
        at: text(&value, "time").and_then(when::rfc3339).ok_or(UNREADABLE)?,
        method: method.to_owned(),
        target: split(uri).path(),
        host: text(&value, "host").map(str::to_owned),
        client: text(&value, "client").unwrap_or_default().to_owned(),
        route: text(&value, "route").unwrap_or_default().to_owned(),
        fields,
        then: Then {
            status: value.get("status").and_then(status),
            took_ns: value.get("total_us").and_then(Value::as_u64).map(|us| us.saturating_mul(1000)),
            body_bytes: None,
        },
        ..Recorded::default()
    })
}

/// A line `{at, method, url, headers, body}`. Also read: `body_base64`, `body_cut`, `body_changed`, `client`, `route`,
/// `status`, `bytes` (of the response's body) and `ms` (how long it took).
pub(crate) fn line(line: &[u8]) -> Result<Recorded, Unread> {
    let mut value: Value = serde_json::from_slice(line).map_err(|_| UNREADABLE)?;
    if is_tunnel(&value) {
        return Err(NO_REQUEST);
    }
    let body = body(&mut value)?;
    let at = at(value.get("at").ok_or(UNREADABLE)?).ok_or(UNREADABLE)?;
    let url = text(&value, "url").ok_or(UNREADABLE)?;
    let target = split(url);
    let mut fields = match value.get("headers") {
        None | Some(Value::Null) => Vec::new(),
        Some(headers) => fields(headers).ok_or(UNREADABLE)?,
    };
    let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    fields.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
    let method = match value.get("method") {
        None => "GET",
        Some(method) => method.as_str().ok_or(UNREADABLE)?,
    };
    let ms = value.get("ms").and_then(Value::as_f64).filter(|ms| (0.0..=1e12).contains(ms));
    Ok(Recorded {
        at,
        method: method.to_owned(),
        target: target.path(),
        is_tls: target.is_tls,
        host: host.or_else(|| target.host.map(str::to_owned)),
        client: text(&value, "client").unwrap_or_default().to_owned(),
        route: text(&value, "route").unwrap_or_default().to_owned(),
        fields,
        body,
        is_body_cut: value.get("body_cut").and_then(Value::as_bool).unwrap_or(false),
        is_body_changed: value.get("body_changed").and_then(Value::as_bool).unwrap_or(false),
        then: Then {
            status: value.get("status").and_then(status),
            took_ns: ms.map(|ms| (ms * 1e6).round() as u64),
            body_bytes: value.get("bytes").and_then(Value::as_u64),
        },
        id: None,
    })
}

/// A WebSocket or another upgrade: its first request alone is none to repeat.
fn is_tunnel(value: &Value) -> bool {
    value.get("tunnel").and_then(Value::as_bool).unwrap_or(false)
}

/// A text in RFC 3339, or a number: of seconds, milliseconds, microseconds or nanoseconds, by its size.
fn at(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => when::rfc3339(text),
        // The written digits: a double has none left for nanoseconds.
        Value::Number(n) => {
            let text = n.to_string();
            let whole = text.split('.').next()?.len();
            let scale = match whole {
                ..=11 => 1,
                12..=14 => 1_000,
                15..=17 => 1_000_000,
                _ => 1_000_000_000,
            };
            when::seconds(&text).map(|ns| ns / scale)
        }
        _ => None,
    }
}

/// Takes the body out of the line, so that a large one is not copied.
fn body(value: &mut Value) -> Result<Option<Vec<u8>>, Unread> {
    if let Some(Value::String(text)) = value.get("body_base64") {
        return STANDARD.decode(text).map(Some).map_err(|_| UNREADABLE);
    }
    Ok(match value.get_mut("body").map(Value::take) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.into_bytes()),
        Some(json) => Some(json.to_string().into_bytes()),
    })
}

/// Fields as `{"name": "value"}`, `{"name": ["value", …]}`, `[["name", "value"], …]` or `[{"name", "value"}, …]`.
pub(crate) fn fields(value: &Value) -> Option<Vec<(String, Vec<u8>)>> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Number(n) => Some(n.to_string().into_bytes()),
        Value::Bool(is) => Some(is.to_string().into_bytes()),
        _ => None,
    };
    let mut all = Vec::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::Array(values) => {
                        for value in values {
                            all.push((name.clone(), scalar(value)?));
                        }
                    }
                    value => all.push((name.clone(), scalar(value)?)),
                }
            }
        }
        Value::Array(pairs) => {
            for pair in pairs {
                let (name, value) = match pair {
                    Value::Array(two) if two.len() == 2 => (&two[0], &two[1]),
                    pair => (pair.get("name")?, pair.get("value")?),
                };
                all.push((name.as_str()?.to_owned(), scalar(value)?));
            }
        }
        _ => return None,
    }
    Some(all)
}
