//! The failure of a call as an HTTP client sees it: the status, and JSON in the format of a framework.
//!
//! Sources: google/rpc/status.proto and code.proto; the runtimes of grpc-gateway, kratos and sponge for theirs.

use crate::api::Api;
use crate::wire::{self, Value};
use serde_json::{Map, Value as Json, json};
use weir_h1::grpc;

/// The format of errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorStyle {
    /// `google.rpc.Status`: `{"code":5,"message":"..","details":[..]}`.
    #[default]
    Google,
    /// Like kratos: `{"code":404,"reason":"..","message":"..","metadata":{..}}`; FAILED_PRECONDITION is 412.
    Kratos,
    /// RFC 9457: `{"title":"..","status":404,"detail":"..","code":"NOT_FOUND"}`.
    Problem,
    /// Like sponge: `{"code":5,"msg":"..","data":{}}` with status 200, except for 500 and 503.
    Sponge,
}

/// The outcome of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// 0 for success.
    pub code: u32,
    /// The service's message.
    pub message: String,
    /// The encoded `google.rpc.Status`, if the service sent one.
    pub details: Vec<u8>,
    /// The id of the request, if the error includes it.
    pub request_id: Option<String>,
}

/// The name of a code.
#[must_use]
pub fn code_name(code: u32) -> String {
    grpc::name(code).to_ascii_uppercase()
}

/// The HTTP status of a code.
#[must_use]
pub const fn http_status(code: u32, style: ErrorStyle) -> u16 {
    match code {
        0 => 200,
        1 => 499,
        3 | 11 => 400,
        9 if matches!(style, ErrorStyle::Kratos) => 412,
        9 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}

/// The code for an HTTP status that came without one (grpc/doc/http-grpc-status-mapping.md).
#[must_use]
pub const fn of_http(status: u16) -> u32 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => 2,
    }
}

impl Status {
    /// A status from the gateway itself.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), ..Self::default() }
    }

    /// The status of an invalid request, with the field at fault.
    #[must_use]
    pub fn invalid(field: &str, message: &str) -> Self {
        let told = if field.is_empty() { message.to_owned() } else { format!("{field}: {message}") };
        let mut status = Self::new(3, told);
        if !field.is_empty() {
            let (mut violation, mut request, mut any) = (Vec::new(), Vec::new(), Vec::new());
            wire::write_bytes(1, field.as_bytes(), &mut violation);
            wire::write_bytes(2, message.as_bytes(), &mut violation);
            wire::write_bytes(1, &violation, &mut request);
            wire::write_bytes(1, b"type.googleapis.com/google.rpc.BadRequest", &mut any);
            wire::write_bytes(2, &request, &mut any);
            wire::write_number(1, 3, &mut status.details);
            wire::write_bytes(2, status.message.as_bytes(), &mut status.details);
            wire::write_bytes(3, &any, &mut status.details);
        }
        status
    }

    /// Parses the fields of a response or its trailers: `grpc-status`, `grpc-message`, `grpc-status-details-bin`.
    #[must_use]
    pub fn read(code: &[u8], message: Option<&[u8]>, details: Option<&[u8]>) -> Self {
        let code = std::str::from_utf8(code).ok().and_then(|code| code.trim().parse().ok()).unwrap_or(2);
        let message =
            crate::template::unescape(message.unwrap_or_default(), crate::template::Slashes::Decode);
        let message = String::from_utf8_lossy(&message).into_owned();
        let mut bytes = Vec::new();
        if let Some(details) = details
            && (details.len() > DETAILS || crate::base64::decode(details.trim_ascii(), &mut bytes).is_none())
        {
            bytes.clear();
        }
        Self { code, message, details: bytes, request_id: None }
    }

    /// The HTTP status, as the framework maps it.
    #[must_use]
    pub const fn http(&self, style: ErrorStyle) -> u16 {
        http_status(self.code, style)
    }

    /// The status of the HTTP response: sponge's clients read the real one in the body.
    #[must_use]
    pub const fn response_status(&self, style: ErrorStyle) -> u16 {
        match (style, self.http(style)) {
            (ErrorStyle::Sponge, status @ (500 | 503)) => status,
            (ErrorStyle::Sponge, _) => 200,
            (_, status) => status,
        }
    }

    /// The JSON body. Details that cannot be decoded appear in encoded form.
    #[must_use]
    pub fn body(&self, api: Option<&Api>, style: ErrorStyle) -> Vec<u8> {
        let details = self.details(api);
        let id = self.request_id.as_deref();
        let told = match style {
            ErrorStyle::Google => {
                let id = id.map(|id| json!({ "@type": REQUEST_INFO, "requestId": id }));
                let details: Vec<Json> = details.into_iter().chain(id).collect();
                json!({ "code": self.code, "message": self.message, "details": details })
            }
            ErrorStyle::Kratos => self.kratos(&details),
            ErrorStyle::Problem => {
                let status = self.http(style);
                let mut told = json!({ "title": title(self.code), "status": status, "detail": self.message, "code": code_name(self.code) });
                if let (false, Json::Object(fields)) = (details.is_empty(), &mut told) {
                    fields.insert("details".to_owned(), Json::Array(details));
                }
                if let (Some(id), Json::Object(fields)) = (id, &mut told) {
                    fields.insert("request_id".to_owned(), id.into());
                }
                told
            }
            ErrorStyle::Sponge => {
                let data = id.map_or_else(|| json!({}), |id| json!({ "request_id": id }));
                json!({ "code": self.code, "msg": self.message, "data": data })
            }
        };
        let mut body = told.to_string().into_bytes();
        body.push(b'\n');
        body
    }

    /// The media type of that JSON.
    #[must_use]
    pub const fn media(style: ErrorStyle) -> &'static str {
        match style {
            ErrorStyle::Problem => "application/problem+json",
            _ => "application/json",
        }
    }

    /// kratos sends its reason and its metadata as an `ErrorInfo`.
    fn kratos(&self, details: &[Json]) -> Json {
        let info = details
            .iter()
            .find(|d| d.get("@type").is_some_and(|t| t == "type.googleapis.com/google.rpc.ErrorInfo"));
        let reason = info.and_then(|info| info.get("reason")).cloned().unwrap_or_else(|| "".into());
        let mut metadata =
            info.and_then(|info| info.get("metadata")).cloned().unwrap_or_else(|| Json::Object(Map::new()));
        if let (Some(id), Json::Object(fields)) = (&self.request_id, &mut metadata) {
            fields.insert("request_id".to_owned(), id.as_str().into());
        }
        json!({ "code": self.http(ErrorStyle::Kratos), "reason": reason, "message": self.message, "metadata": metadata })
    }

    /// The details as JSON, each with its `@type`.
    fn details(&self, api: Option<&Api>) -> Vec<Json> {
        let mut rest = &self.details[..];
        let mut details = Vec::new();
        while !rest.is_empty() && details.len() < MOST {
            let Ok((number, value)) = wire::field(&mut rest) else { break };
            let (3, Value::Bytes(any)) = (number, value) else { continue };
            let mut out = Vec::new();
            let printed = api.is_some_and(|api| api.print("google.protobuf.Any", any, &mut out).is_ok());
            details.extend(printed.then(|| serde_json::from_slice(&out).ok()).flatten());
        }
        details
    }
}

/// The detail with the request id (google/rpc/error_details.proto).
const REQUEST_INFO: &str = "type.googleapis.com/google.rpc.RequestInfo";

/// Most bytes of `grpc-status-details-bin`, and most details in it, that we read.
const DETAILS: usize = 64 * 1024;
const MOST: usize = 100;

fn title(code: u32) -> String {
    let mut title = grpc::name(code).replace('_', " ");
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_every_way() {
        for (code, google, kratos, sponge) in [
            (1, 499, 499, 200),
            (3, 400, 400, 200),
            (9, 400, 412, 200),
            (12, 501, 501, 200),
            (13, 500, 500, 500),
            (14, 503, 503, 503),
            (16, 401, 401, 200),
            (77, 500, 500, 500),
        ] {
            let status = Status::new(code, "x");
            assert_eq!(status.response_status(ErrorStyle::Google), google);
            assert_eq!(status.response_status(ErrorStyle::Kratos), kratos);
            assert_eq!(status.response_status(ErrorStyle::Sponge), sponge);
        }
    }

    #[test]
    fn statuses_are_read() {
        let status = Status::read(b"5", Some(b"no%20caf%C3%A9 100%"), Some(b"CAUSAm5v"));
        assert_eq!(
            status,
            Status { details: b"\x08\x05\x12\x02no".to_vec(), ..Status::new(5, "no café 100%") }
        );
        assert_eq!(Status::read(b"x", None, Some(b"!")), Status::new(2, ""));
    }

    #[test]
    fn errors_in_each_style() {
        let status = Status::new(5, "gone");
        let told = |style| serde_json::from_slice::<Json>(&status.body(None, style)).unwrap();
        assert_eq!(told(ErrorStyle::Google), json!({"code":5,"message":"gone","details":[]}));
        assert_eq!(told(ErrorStyle::Kratos), json!({"code":404,"reason":"","message":"gone","metadata":{}}));
        assert_eq!(
            told(ErrorStyle::Problem),
            json!({"title":"Not found","status":404,"detail":"gone","code":"NOT_FOUND"})
        );
        assert_eq!(told(ErrorStyle::Sponge), json!({"code":5,"msg":"gone","data":{}}));
    }

    #[test]
    fn the_request_is_named_in_each_style() {
        let status = Status { request_id: Some("r1".to_owned()), ..Status::new(5, "gone") };
        let told = |style| serde_json::from_slice::<Json>(&status.body(None, style)).unwrap();
        let info = json!([{"@type":"type.googleapis.com/google.rpc.RequestInfo","requestId":"r1"}]);
        assert_eq!(told(ErrorStyle::Google)["details"], info);
        assert_eq!(told(ErrorStyle::Kratos)["metadata"], json!({"request_id":"r1"}));
        assert_eq!(told(ErrorStyle::Problem)["request_id"], "r1");
        assert_eq!(told(ErrorStyle::Sponge)["data"], json!({"request_id":"r1"}));
    }
}
