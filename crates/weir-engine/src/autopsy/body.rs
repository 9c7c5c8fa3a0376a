//! Reads an upstream's own error from the start of its body: code, reason and message, under the names that service
//! frameworks use. Nothing else of a body is kept.
//!
//! | written by | looks like |
//! |---|---|
//! | kratos | `{"code":503,"reason":"DB_DOWN","message":"…","metadata":{}}` |
//! | go-zero | `{"code":503,"msg":"…"}`, or the text `rpc error: code = Unavailable desc = …` |
//! | sponge | `{"code":100003,"msg":"…","data":{}}` |
//! | google.rpc.Status | `{"code":14,"message":"…","details":[{"reason":"DB_DOWN"}]}`, also below `error` |
//! | RFC 9457 | `{"type":"…","title":"…","detail":"…"}` |

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;
use weir_h1::Fields;

/// How many bytes of a body are examined.
pub(crate) const HEARD_BYTES: usize = 1024;

/// Longest code or reason that is reported, in characters.
const WORD_CHARS: usize = 64;

/// How go-zero writes a gRPC error that it passes on.
const RPC_ERROR: &str = "rpc error: code = ";

/// Whether a body of this type may be a readable error: JSON or text, not compressed.
pub(crate) fn may_say(fields: &Fields) -> bool {
    let media = fields.get_str("content-type").unwrap_or_default();
    let media = media.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    let is_read = media.ends_with(b"/json") || media.ends_with(b"+json") || media == b"text/plain";
    is_read && fields.get_str("content-encoding").is_none()
}

/// Summarizes a body that begins so: `code 503, reason DB_DOWN: the database is away`. `None` if it has neither
/// reason nor message.
pub(crate) fn said(body: &[u8]) -> Option<String> {
    let found = if body.trim_ascii_start().starts_with(b"{") { in_json(body) } else { in_text(body) };
    found.into_text()
}

#[derive(Debug, Default)]
struct Found {
    code: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

impl Found {
    fn into_text(self) -> Option<String> {
        if self.reason.is_none() && self.message.is_none() {
            return None;
        }
        let code = self.code.map(|code| format!("code {}", word(&code)));
        let reason = self.reason.map(|reason| format!("reason {}", word(&reason)));
        let words = [code, reason].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let message = self.message.map(|message| plain(&message)).unwrap_or_default();
        Some(match (words.is_empty(), message.is_empty()) {
            (_, true) => words,
            (true, false) => message,
            (false, false) => format!("{words}: {message}"),
        })
    }

    fn note(&mut self, key: &str, value: Value) {
        match (key, value) {
            ("code", value @ Value::Number(_)) => keep(&mut self.code, value.to_string()),
            ("code", Value::String(code)) => keep(&mut self.code, code),
            ("reason", Value::String(reason)) => keep(&mut self.reason, reason),
            ("message" | "msg" | "detail" | "error", Value::String(message)) => {
                keep(&mut self.message, message)
            }
            ("error", Value::Object(inner)) => {
                inner.into_iter().for_each(|(key, value)| self.note(&key, value))
            }
            ("details", Value::Array(details)) => {
                let reason = details.iter().find_map(|detail| detail.get("reason")?.as_str());
                reason.into_iter().for_each(|reason| keep(&mut self.reason, reason.to_owned()));
            }
            _ => {}
        }
    }
}

/// Keeps the first value.
fn keep(place: &mut Option<String>, value: String) {
    if !value.is_empty() {
        place.get_or_insert(value);
    }
}

/// The first characters of a word.
fn word(text: &str) -> String {
    plain(text).chars().take(WORD_CHARS).collect()
}

/// A text without characters that would move a terminal's cursor.
fn plain(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Reads as far as the JSON is valid: what was found before its end or a mistake counts.
fn in_json(body: &[u8]) -> Found {
    let mut found = Found::default();
    let _ = Reading(&mut found).deserialize(&mut serde_json::Deserializer::from_slice(body));
    found
}

fn in_text(body: &[u8]) -> Found {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default();
    let Some((code, message)) = line.strip_prefix(RPC_ERROR).and_then(|rest| rest.split_once(" desc = "))
    else {
        return Found::default(); // text of unknown meaning
    };
    Found { code: Some(code.to_owned()), reason: None, message: Some(message.to_owned()) }
}

struct Reading<'f>(&'f mut Found);

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "code" | "reason" | "message" | "msg" | "detail" | "error" | "details" => {
                    self.0.note(&key, map.next_value()?);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_frameworks() {
        for (body, told) in [
            (
                r#"{"code":503, "reason":"DB_DOWN", "message":"the database is away", "metadata":{"dsn":"s3cret"}}"#,
                Some("code 503, reason DB_DOWN: the database is away"),
            ),
            (r#"{"code":503,"msg":"try later"}"#, Some("code 503: try later")),
            ("rpc error: code = Unavailable desc = nobody there\n", Some("code Unavailable: nobody there")),
            (r#"{"code":100003,"data":{},"msg":"Internal Error"}"#, Some("code 100003: Internal Error")),
            (
                r#"{"code":14,"message":"away","details":[{"a":1},{"reason":"DB_DOWN","metadata":{"dsn":"s3cret"}}]}"#,
                Some("code 14, reason DB_DOWN: away"),
            ),
            (r#"{"error":{"code":14,"message":"away","status":"UNAVAILABLE"}}"#, Some("code 14: away")),
            (
                r#"{"title":"Away","detail":"the database is away","status":503}"#,
                Some("the database is away"),
            ),
            (r#"{"error":"away"}"#, Some("away")),
            (r#"{"reason":"DB_DOWN"}"#, Some("reason DB_DOWN")),
            ("{\"message\":\"a\\u001b[2Jb\\nc\"}", Some("a [2Jb c")),
            // If a body was cut, or stops being JSON, the part before it counts.
            (r#"{"code":503,"reason":"DB_DOWN","message":"the data"#, Some("code 503, reason DB_DOWN")),
            (r#"{"reason":"A","reason":"B"} and more"#, Some("reason A")),
            (r#"{"code":503}"#, None),
            (r#"{"message":{"a":1},"reason":7}"#, None),
            (r#"{"orders":[1]}"#, None),
            (r#"["message"]"#, None),
            ("password=s3cret", None),
            ("rpc error: code = Unavailable", None),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(said(body.as_bytes()).as_deref(), told, "{body}");
        }
        assert_eq!(said(&[b'{', 0xff, b'"']), None);
        let deep = [b"{\"message\":".as_slice(), &[b'['; HEARD_BYTES]].concat();
        assert_eq!(said(&deep), None, "depth is bounded");
        let long = format!("{{\"reason\":\"{}\"}}", "ä".repeat(200));
        assert_eq!(
            said(long.as_bytes()).map(|told| told.chars().count()),
            Some("reason ".len() + WORD_CHARS)
        );
    }

    #[test]
    fn only_json_and_text_are_read() {
        for (head, may) in [
            ("content-type: application/json", true),
            ("content-type: Application/Problem+JSON; charset=utf-8", true),
            ("content-type: text/plain", true),
            ("content-type: text/html", false),
            ("content-type: application/jsonp", false),
            ("content-type: application/json\r\ncontent-encoding: gzip", false),
            ("x-a: b", false),
        ] {
            let mut response = weir_h1::ResponseHead::made(503);
            for line in head.split("\r\n") {
                let (name, value) = line.split_once(": ").unwrap();
                let name = weir_h1::FieldName::new(name).unwrap();
                response.headers.append(&name, value.as_bytes()).unwrap();
            }
            assert_eq!(may_say(&response.headers), may, "{head}");
        }
    }
}
