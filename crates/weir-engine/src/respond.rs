//! Answers that the gateway makes itself. Only this file turns a cause into a status, fields and a body.
//!
//! The body is `application/problem+json` (RFC 9457), or a small HTML page for a client that prefers HTML: a browser.

use crate::snapshot::Fixed;
use std::fmt::Write;
use std::time::SystemTime;
use weir_filter::filter::{Answer, Body, Refusal};
use weir_filter::grpc;
use weir_filter::phrases::neutral;
use weir_h1::reason;
use weir_h1::{FieldName, Fields, Known, ResponseHead};
use weir_upstream::error::{self, Cause};

/// An answer ready to be written: a head without framing fields, and its body.
pub(crate) struct LocalResponse {
    pub(crate) head: ResponseHead,
    pub(crate) body: Body,
}

/// The answer for a refusal.
pub(crate) fn refusal(
    refusal: &Refusal,
    request: Option<&Fields>,
    request_id: Option<&str>,
    expose: bool,
) -> LocalResponse {
    let cause = refusal.cause;
    let detail = detail(refusal, expose);
    if request.is_some_and(grpc::is_grpc) {
        return refusal_of_grpc(refusal, request, detail, expose);
    }
    let mut head = ResponseHead::made(cause.status);
    let html = request.and_then(|fields| fields.get_str("accept")).is_some_and(prefers_html);
    let (body, media) = if html {
        (page(cause, detail, request_id, expose), "text/html; charset=utf-8")
    } else {
        (problem(cause, detail, request_id, expose), "application/problem+json")
    };
    set(&mut head.headers, "content-type", media.as_bytes());
    set(&mut head.headers, "date", httpdate::fmt_http_date(SystemTime::now()).as_bytes());
    // An error is temporary; no cache may keep it for another client.
    set(&mut head.headers, "cache-control", b"no-store");
    if expose {
        name_cause(&mut head, cause);
    }
    for (name, value) in &refusal.headers {
        let _ = head.headers.append(name, value); // from our own filters, which emit no control bytes
    }
    LocalResponse { head, body: body.into() }
}

/// The detail that a client may see of a refusal.
pub(crate) fn detail(refusal: &Refusal, expose: bool) -> &str {
    match expose {
        true => refusal.detail.as_deref().unwrap_or(refusal.cause.meaning),
        // A client that speaks plain HTTP on a TLS port needs the reason, which reveals nothing about the upstream.
        false if *refusal.cause == error::PLAIN_HTTP => refusal.cause.meaning,
        false => neutral(refusal.cause.status),
    }
}

/// Puts a cause into the head of an answer.
pub(crate) fn name_cause(head: &mut ResponseHead, cause: &Cause) {
    head.headers.remove_known(Known::XWeirCause);
    set(&mut head.headers, "x-weir-cause", cause.code.as_bytes());
}

/// The gRPC form of a refusal: a head without body, with status 200 because gRPC has its own status.
fn refusal_of_grpc(refusal: &Refusal, request: Option<&Fields>, detail: &str, expose: bool) -> LocalResponse {
    let cause = refusal.cause;
    let mut head = ResponseHead::made(200);
    let media = request.and_then(|fields| fields.get_str("content-type")).unwrap_or(b"application/grpc");
    set(&mut head.headers, "content-type", media);
    set(&mut head.headers, "grpc-status", grpc::status(cause).to_string().as_bytes());
    let message = if expose { grpc::message(cause, detail) } else { grpc::escape(detail) };
    set(&mut head.headers, "grpc-message", message.as_bytes());
    if expose {
        set(&mut head.headers, "x-weir-cause", cause.code.as_bytes());
    }
    for (name, value) in &refusal.headers {
        let _ = head.headers.append(name, value); // as for other refusals
    }
    LocalResponse { head, body: Body::default() }
}

/// The answer that a filter gives.
pub(crate) fn answer(answer: Answer) -> LocalResponse {
    with_fields(answer.status, &answer.headers, answer.body)
}

/// The same from finished fields.
pub(crate) fn ready(status: u16, fields: Fields, body: Body) -> LocalResponse {
    let mut head = ResponseHead::made(status);
    head.headers = fields;
    with_date(head, body)
}

/// The answer of a route that has no upstream.
pub(crate) fn fixed(fixed: &Fixed) -> LocalResponse {
    with_fields(fixed.status, &fixed.headers, Body::Bytes(fixed.body.clone()))
}

/// An answer with this status and these fields. Fields that may not be sent are left out.
pub(crate) fn with_fields(status: u16, fields: &[(FieldName, Vec<u8>)], body: Body) -> LocalResponse {
    let mut head = ResponseHead::made(status);
    for (name, value) in fields {
        let _ = head.headers.append(name, value); // checked when the config was compiled or the answer was read
    }
    with_date(head, body)
}

fn with_date(mut head: ResponseHead, body: Body) -> LocalResponse {
    if !head.headers.has_known(Known::Date) {
        set(&mut head.headers, "date", httpdate::fmt_http_date(SystemTime::now()).as_bytes());
    }
    LocalResponse { head, body }
}

fn set(fields: &mut Fields, name: &str, value: &[u8]) {
    if let Ok(name) = FieldName::new(name) {
        let _ = fields.append(&name, value); // both are ours
    }
}

/// Whether `Accept` names `text/html` before any JSON: what browsers send and API clients do not.
fn prefers_html(accept: &[u8]) -> bool {
    let accept = String::from_utf8_lossy(accept).to_ascii_lowercase();
    match (accept.find("text/html"), accept.find("json")) {
        (Some(html), Some(json)) => html < json,
        (html, _) => html.is_some(),
    }
}

fn problem(cause: &Cause, detail: &str, request_id: Option<&str>, expose: bool) -> String {
    let mut problem = serde_json::json!({
        "title": reason(cause.status),
        "status": cause.status,
        "detail": detail,
    });
    if expose {
        problem["cause"] = cause.code.into();
    }
    if let Some(id) = request_id {
        problem["request_id"] = id.into();
    }
    let mut text = problem.to_string();
    text.push('\n');
    text
}

fn page(cause: &Cause, detail: &str, request_id: Option<&str>, expose: bool) -> String {
    let (status, reason) = (cause.status, reason(cause.status));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{status} {reason}</title>\n\
         <h1>{status} {reason}</h1>\n<p>{}</p>\n",
        escape(detail)
    );
    if expose {
        let _ = writeln!(text, "<p>Cause: <code>{}</code></p>", cause.code);
    }
    if let Some(id) = request_id {
        let _ = writeln!(text, "<p>Request: <code>{}</code></p>", escape(id));
    }
    text.push_str("</html>\n");
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_html() {
        for (accept, html) in [
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("application/json, text/html", false),
            ("*/*", false),
            ("application/problem+json", false),
        ] {
            assert_eq!(prefers_html(accept.as_bytes()), html, "{accept}");
        }
    }

    #[test]
    fn details_can_not_break_out_of_the_page() {
        let text = page(&error::NO_ROUTE, "<script>", Some("\"><b>"), true);
        assert!(!text.contains("<script>") && !text.contains("<b>"), "{text}");
    }
}
