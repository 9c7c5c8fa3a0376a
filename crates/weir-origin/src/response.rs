//! The parts of a response, in HTTP/1.1 form. The pages write them to their connection.

use std::fmt::Write as _;
use std::io;

use crate::connection::{Connection, Request, Version};

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const JSON: &str = "application/json";
pub(crate) const METRICS: &str = "text/plain; version=0.0.4";

/// Writes the status line and the Connection field.
pub(crate) fn begin(connection: &mut Connection, request: &Request, status: u16) {
    connection.push(b"HTTP/1.1 ");
    connection.push(itoa::Buffer::new().format(status).as_bytes());
    connection.push(b" ");
    connection.push(reason(status).as_bytes());
    connection.push(b"\r\n");
    if !request.keep_alive {
        connection.push(b"Connection: close\r\n");
    } else if request.version == Version::Http10 {
        connection.push(b"Connection: keep-alive\r\n");
    }
}

/// Writes a complete response. 204 and 304 have no body, and HEAD gets only its length (RFC 9110 §8.6, RFC 9112
/// §6.3).
pub(crate) fn respond(
    connection: &mut Connection,
    request: &Request,
    status: u16,
    content_type: &str,
    body: &str,
) {
    begin(connection, request, status);
    if matches!(status, 204 | 304) {
        connection.push(b"\r\n");
        return;
    }
    connection
        .push(format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes());
    if request.method != "HEAD" {
        connection.push(body.as_bytes());
    }
}

/// Starts a response of unknown length; returns true if it is chunked. HTTP/1.0 has no chunks: there the end of the
/// connection ends the body.
pub(crate) fn begin_stream(connection: &mut Connection, request: &Request, content_type: &str) -> bool {
    if request.version == Version::Http10 {
        connection.push(
            format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        );
        return false;
    }
    begin(connection, request, 200);
    connection.push(format!("Content-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes());
    true
}

/// Ends a response started by [`begin_stream`]; an error if that must end the connection.
pub(crate) async fn end_stream(
    connection: &mut Connection,
    request: &Request,
    in_chunks: bool,
) -> io::Result<()> {
    if !in_chunks {
        connection.end().await?;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if request.method != "HEAD" {
        connection.push(b"0\r\n\r\n");
    }
    Ok(())
}

pub(crate) fn problem(status: u16, detail: &str) -> String {
    let mut text = format!("{{\"status\":{status},\"title\":\"{}\",\"detail\":", reason(status));
    json_string(&mut text, detail);
    text.push_str("}\n");
    text
}

/// Answers a request with an invalid parameter; the hint names the expected form.
pub(crate) fn misfit(connection: &mut Connection, request: &Request, hint: &str) {
    respond(connection, request, 400, JSON, &problem(400, hint));
}

/// Answers an unreadable request, the last one on this connection.
pub(crate) fn refuse(connection: &mut Connection, status: u16, why: &str) {
    let body = problem(status, why);
    let reason = reason(status);
    let length = body.len();
    connection.push(
        format!("HTTP/1.1 {status} {reason}\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .as_bytes(),
    );
}

pub(crate) fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The reason phrase; of a status without one, a word.
pub(crate) fn reason(status: u16) -> &'static str {
    match weir_h1::reason(status) {
        "" => "Status",
        phrase => phrase,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings() {
        let mut text = String::new();
        json_string(&mut text, "a\"\\\n\u{1}é");
        assert_eq!(text, "\"a\\\"\\\\\\n\\u0001é\"");
    }
}
