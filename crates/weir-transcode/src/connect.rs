//! The Connect protocol as bytes: the names of its codes, its errors, the end of its streams, its deadlines, and
//! calls in a query.
//!
//! Source: "Connect Protocol Reference" of the Connect project.

use crate::base64;
use crate::frames;
use crate::status::Status;
use crate::template::{Slashes, unescape};
use crate::wire::{self, Value};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use weir_h1::grpc;

/// The flag of the last message of a stream, which contains the outcome.
pub const END_STREAM: u8 = 2;

/// Most error details that we write.
const DETAILS: usize = 100;

/// The Connect name of a code.
#[must_use]
fn code_name(code: u32) -> &'static str {
    match code {
        0 => "unknown", // OK is no error
        1 => "canceled",
        code => grpc::name(code),
    }
}

/// An error as a response body: `{"code":"not_found","message":"..","details":[..]}`.
#[must_use]
pub fn error(status: &Status) -> Vec<u8> {
    json_of(status).to_string().into_bytes()
}

/// Appends the last message of a stream, with its error if there is one, and the trailers.
pub fn end_stream<'a>(
    status: &Status,
    trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) {
    let mut end = Map::new();
    if status.code != 0 {
        end.insert("error".to_owned(), json_of(status));
    }
    let mut metadata = Map::new();
    for (name, value) in trailers {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let value = Json::String(String::from_utf8_lossy(value).into_owned());
        match metadata.entry(name).or_insert_with(|| Json::Array(Vec::new())) {
            Json::Array(values) => values.push(value),
            other => *other = value,
        }
    }
    if !metadata.is_empty() {
        end.insert("metadata".to_owned(), Json::Object(metadata));
    }
    let begun = frames::begin(out);
    out.extend_from_slice(Json::Object(end).to_string().as_bytes());
    frames::end(begun, out);
    frames::flag(begun, END_STREAM, out);
}

fn json_of(status: &Status) -> Json {
    let mut error = Map::new();
    error.insert("code".to_owned(), code_name(status.code).into());
    if !status.message.is_empty() {
        error.insert("message".to_owned(), status.message.as_str().into());
    }
    let mut details = details(&status.details);
    details.extend(status.request_id.as_deref().map(request_info));
    if !details.is_empty() {
        error.insert("details".to_owned(), Json::Array(details));
    }
    Json::Object(error)
}

/// The detail with the request id (google/rpc/error_details.proto).
fn request_info(id: &str) -> Json {
    let (mut info, mut text) = (Vec::new(), Vec::new());
    wire::write_bytes(1, id.as_bytes(), &mut info);
    base64::encode(&info, &mut text);
    let text = String::from_utf8_lossy(&text);
    json!({ "type": "google.rpc.RequestInfo", "value": text.trim_end_matches('=') })
}

/// The details of a `google.rpc.Status`: the type of each, and its bytes in unpadded base64.
fn details(bytes: &[u8]) -> Vec<Json> {
    let mut rest = bytes;
    let mut details = Vec::new();
    while !rest.is_empty() && details.len() < DETAILS {
        let Ok((number, value)) = wire::field(&mut rest) else { break };
        let (3, Value::Bytes(any)) = (number, value) else { continue };
        let (mut name, mut held, mut fields) = (&b""[..], &b""[..], any);
        while let Ok((number, value)) = wire::field(&mut fields) {
            match (number, value) {
                (1, Value::Bytes(url)) => name = url.rsplit(|&b| b == b'/').next().unwrap_or_default(),
                (2, Value::Bytes(bytes)) => held = bytes,
                _ => {}
            }
        }
        let mut text = Vec::new();
        base64::encode(held, &mut text);
        let text = String::from_utf8_lossy(&text);
        details.push(json!({ "type": String::from_utf8_lossy(name), "value": text.trim_end_matches('=') }));
    }
    details
}

/// Converts `Connect-Timeout-Ms` to the gRPC notation; `None` if it is invalid: at most ten digits.
#[must_use]
pub fn timeout(text: &[u8]) -> Option<String> {
    if text.is_empty() || text.len() > 10 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let millis: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(match millis {
        ..=99_999_999 => format!("{millis}m"),
        millis => format!("{}S", millis.div_ceil(1000)), // at most eight digits
    })
}

/// A call encoded in a query.
#[derive(Debug, Default)]
pub struct Query<'q> {
    /// The encoding of its message: `proto` or `json`.
    pub encoding: Option<Cow<'q, [u8]>>,
    /// The compression of its message.
    pub compression: Option<Cow<'q, [u8]>>,
    /// The version of the protocol: `v1`.
    pub connect: Option<Cow<'q, [u8]>>,
    message: Option<Cow<'q, [u8]>>,
    base64: bool,
}

impl<'q> Query<'q> {
    /// Parses a query. If a parameter occurs more than once, the first counts.
    #[must_use]
    pub fn read(query: &'q [u8]) -> Self {
        let mut read = Self::default();
        for pair in query.split(|&b| b == b'&') {
            let at = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
            let (name, value) = (pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default());
            let place = match &*decoded(name) {
                b"encoding" => &mut read.encoding,
                b"compression" => &mut read.compression,
                b"connect" => &mut read.connect,
                b"message" => &mut read.message,
                b"base64" => {
                    read.base64 = value == b"1";
                    continue;
                }
                _ => continue,
            };
            place.get_or_insert_with(|| decoded(value));
        }
        read
    }

    /// Whether the query says that it is a call, or looks like one.
    #[must_use]
    pub const fn is_call(&self) -> bool {
        self.connect.is_some() || (self.encoding.is_some() && self.message.is_some())
    }

    /// The message.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub fn message(&self) -> Result<Cow<'_, [u8]>, &'static str> {
        let message = self.message.as_deref().ok_or("the query has no parameter `message`")?;
        if !self.base64 {
            return Ok(Cow::Borrowed(message));
        }
        let mut out = Vec::with_capacity(message.len() / 4 * 3 + 3);
        base64::decode(message, &mut out).ok_or("the parameter `message` is not base64")?;
        Ok(Cow::Owned(out))
    }
}

/// Decodes a part of a query, where `+` is a space.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return unescape(text, Slashes::Decode);
    }
    let spaced: Vec<u8> = text.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
    Cow::Owned(unescape(&spaced, Slashes::Decode).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors() {
        let told = |status: &Status| serde_json::from_slice::<Json>(&error(status)).unwrap();
        assert_eq!(told(&Status::new(1, "")), json!({ "code": "canceled" }));
        assert_eq!(told(&Status::new(5, "no \"b\"")), json!({ "code": "not_found", "message": "no \"b\"" }));
        assert_eq!(told(&Status::new(99, "")), json!({ "code": "unknown" }));
        // google.rpc.Status with one detail: an ErrorInfo whose reason is `R`.
        let mut details = Vec::new();
        base64::decode(
            b"CAUSAm5vGi8KKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5FcnJvckluZm8SAwoBUg==",
            &mut details,
        )
        .unwrap();
        let status = Status { details, ..Status::new(5, "no") };
        let want = json!({ "code": "not_found", "message": "no",
            "details": [{ "type": "google.rpc.ErrorInfo", "value": "CgFS" }] });
        assert_eq!(told(&status), want);
        // Invalid details.
        for bytes in [&b"\x1a"[..], b"\x1a\xff", b"\xff\xff\xff\xff\xff", b"\x1a\x01\x0a"] {
            let _ = told(&Status { details: bytes.to_vec(), ..Status::new(3, "") });
        }
    }

    #[test]
    fn ends_of_streams() {
        let end = |status: &Status, trailers: &[(&[u8], &[u8])]| {
            let mut out = Vec::new();
            end_stream(status, trailers.iter().copied(), &mut out);
            assert_eq!(out[0], END_STREAM);
            assert_eq!(u32::from_be_bytes(out[1..5].try_into().unwrap()) as usize, out.len() - 5);
            serde_json::from_slice::<Json>(&out[5..]).unwrap()
        };
        assert_eq!(end(&Status::new(0, ""), &[]), json!({}));
        let trailers: [(&[u8], &[u8]); 3] = [(b"X-Cost", b"1"), (b"x-cost", b"2"), (b"b", b"\xff")];
        assert_eq!(
            end(&Status::new(8, "much"), &trailers),
            json!({ "error": { "code": "resource_exhausted", "message": "much" },
                "metadata": { "x-cost": ["1", "2"], "b": ["\u{fffd}"] } })
        );
    }

    #[test]
    fn timeouts() {
        for (text, grpc) in [
            ("0", Some("0m")),
            ("1500", Some("1500m")),
            ("99999999", Some("99999999m")),
            ("100000000", Some("100000S")),
            ("9999999999", Some("10000000S")),
            ("10000000000", None),
            ("", None),
            ("-1", None),
            ("1.5", None),
        ] {
            assert_eq!(timeout(text.as_bytes()).as_deref(), grpc, "{text}");
        }
    }

    #[test]
    fn queries() {
        let query = Query::read(b"connect=v1&encoding=proto&message=-_8&base64=1&compression=gzip");
        assert!(query.is_call());
        assert_eq!(query.encoding.as_deref(), Some(&b"proto"[..]));
        assert_eq!(query.compression.as_deref(), Some(&b"gzip"[..]));
        assert_eq!(query.message().unwrap().as_ref(), b"\xfb\xff");
        let query = Query::read(b"encoding=json&message=%7B%22a%22:+1%7D&message=x");
        assert!(query.is_call());
        assert_eq!(query.message().unwrap().as_ref(), b"{\"a\": 1}");
        assert!(Query::read(b"connect=v1").message().is_err());
        assert!(Query::read(b"connect=v1&base64=1&message=%21").message().is_err());
        assert!(!Query::read(b"encoding=json").is_call());
        assert!(!Query::read(b"").is_call());
    }
}
