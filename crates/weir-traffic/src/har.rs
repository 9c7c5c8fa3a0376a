//! Entries of HAR files (HTTP Archive 1.2), as browsers and proxies save them.

use crate::json::{fields, status, text};
use crate::{NO_REQUEST, Recorded, Then, UNREADABLE, Unread, split, when};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

pub(crate) fn read(chunk: &[u8]) -> Result<Recorded, Unread> {
    let entry: Value = serde_json::from_slice(chunk).map_err(|_| UNREADABLE)?;
    let request = entry.get("request").ok_or(UNREADABLE)?;
    let (Some(method), Some(url)) = (text(request, "method"), text(request, "url")) else {
        return Err(UNREADABLE);
    };
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(NO_REQUEST); // data:, blob:, ws:
    }
    let at = text(&entry, "startedDateTime").and_then(when::rfc3339).ok_or(UNREADABLE)?;
    let mut sent = request.get("headers").and_then(fields).unwrap_or_default();
    // Browsers list pseudo-header fields of HTTP/2 among the others.
    let host = sent.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    sent.retain(|(name, _)| !name.starts_with(':') && !name.eq_ignore_ascii_case("host"));
    let target = split(url);
    let response = entry.get("response");
    let took = entry.get("time").and_then(Value::as_f64).filter(|ms| (0.0..=1e12).contains(ms));
    let size = response.and_then(|r| r.get("bodySize")).and_then(Value::as_i64);
    Ok(Recorded {
        at,
        method: method.to_owned(),
        target: target.path(),
        is_tls: target.is_tls,
        host: host.or_else(|| target.host.map(str::to_owned)),
        fields: sent,
        body: body(request)?,
        then: Then {
            status: response.and_then(|r| r.get("status")).and_then(status),
            took_ns: took.map(|ms| (ms * 1e6).round() as u64),
            body_bytes: size.and_then(|n| u64::try_from(n).ok()),
        },
        ..Recorded::default()
    })
}

fn body(request: &Value) -> Result<Option<Vec<u8>>, Unread> {
    let Some(data) = request.get("postData") else {
        // -1: unknown.
        let is_none = request.get("bodySize").and_then(Value::as_i64).is_none_or(|n| n == 0);
        return Ok(is_none.then(Vec::new));
    };
    let Some(content) = text(data, "text") else { return Ok(None) };
    // Some recorders mark binary bodies as those of responses are marked.
    if text(data, "encoding") == Some("base64") {
        return STANDARD.decode(content).map(Some).map_err(|_| UNREADABLE);
    }
    Ok(Some(content.as_bytes().to_vec()))
}
