//! Responses of the admin listener: the fields common to all, and a constructor for each kind.

use crate::guard::Denied;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use weir_gateway::config::schema::Role;

/// A response with a complete body.
pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
const PROBLEM: &str = "application/problem+json";

/// Identifies the admin listener to clients, because the gateway sends the same problem+json.
pub(crate) const SIGN: (&str, &str) = ("x-weir", "admin");

/// Fields of every response. An answer is valid only now and for this reader, so it must not be framed, cached,
/// sniffed, or passed on as a referrer.
const ALWAYS: &[(&str, &str)] = &[
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    SIGN,
];

/// A response with this body.
pub(crate) fn of(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    for (name, value) in ALWAYS {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    answer
}

/// A page of the console. Its referrer policy makes browsers send `Origin` with its forms, which the guard
/// checks.
pub(crate) fn page(status: StatusCode, html: String) -> Answer {
    let mut answer = of(status, HTML, html);
    for (name, value) in [
        ("content-security-policy", weir_console::POLICY),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "same-origin"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// A JSON document, indented for people.
pub(crate) fn json(status: StatusCode, document: &Value) -> Answer {
    of(status, JSON, format!("{document:#}\n"))
}

/// An error (RFC 9457).
pub(crate) fn problem(status: StatusCode, detail: &str) -> Answer {
    problem_with(status, detail, json!({}))
}

/// An error with extra members besides those of RFC 9457.
pub(crate) fn problem_with(status: StatusCode, detail: &str, members: Value) -> Answer {
    let title = status.canonical_reason().unwrap_or_default();
    let mut document = json!({ "title": title, "status": status.as_u16(), "detail": detail });
    if let (Value::Object(document), Value::Object(members)) = (&mut document, members) {
        document.extend(members);
    }
    of(status, PROBLEM, format!("{document:#}\n"))
}

/// The answer to a caller without permission.
pub(crate) fn denied(why: Denied) -> Answer {
    let (status, detail) = match why {
        Denied::BadHost => (StatusCode::BAD_REQUEST, "the request needs one valid Host field"),
        Denied::ForeignHost => (
            StatusCode::FORBIDDEN,
            "the admin listener answers to an IP address, localhost or one of `admin.hosts` in Host: another name may belong to \
             a page from elsewhere (DNS rebinding)",
        ),
        Denied::ForeignOrigin => (
            StatusCode::FORBIDDEN,
            "Origin or Sec-Fetch-Site says that a page from elsewhere sent this; type the address into the browser yourself",
        ),
        Denied::Forged => (
            StatusCode::FORBIDDEN,
            "a browser that has signed in sent this, but not from a page of the console: x-weir-csrf is missing or wrong",
        ),
        Denied::NotLocal => (
            StatusCode::FORBIDDEN,
            "there is no `admin.token`, so only this machine may send requests; set one to allow others",
        ),
        Denied::Role(role) => (
            StatusCode::FORBIDDEN,
            match role {
                Role::Read => "this needs the role read",
                Role::Operate => "this needs the role operate, write or admin",
                Role::Write => "this needs the role write or admin",
                Role::Admin => "this needs the role admin",
            },
        ),
        Denied::TokenMissing => (
            StatusCode::UNAUTHORIZED,
            "send `Authorization: Bearer TOKEN` with the token of `admin.token`, or one of `admin.tokens`",
        ),
        Denied::TokenWrong => {
            (StatusCode::UNAUTHORIZED, "the token is neither `admin.token` nor one of `admin.tokens`")
        }
    };
    let mut answer = problem(status, detail);
    let challenge = match why {
        Denied::TokenMissing => "Bearer realm=\"weir\"",
        Denied::TokenWrong => "Bearer realm=\"weir\", error=\"invalid_token\"",
        _ => return answer,
    };
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    answer
}

/// 405 with the allowed methods.
pub(crate) fn wrong_method(allowed: &str) -> Answer {
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &format!("this path is for {allowed}"));
    if let Ok(value) = HeaderValue::from_str(allowed) {
        answer.headers_mut().insert(header::ALLOW, value);
    }
    answer
}
