//! The answers: one function for each path of the table in `lib.rs`.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use crate::connection::{Connection, Request};

/// The whole answer to `GET /body/1KiB`.
pub(crate) const BODY_1KIB: &[u8] = &BODY_1KIB_BYTES;

const HEAD_1KIB: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n";
const BODY_1KIB_BYTES: [u8; HEAD_1KIB.len() + 1024] = {
    let mut bytes = [b'x'; HEAD_1KIB.len() + 1024];
    let mut at = 0;
    while at < HEAD_1KIB.len() {
        bytes[at] = HEAD_1KIB[at];
        at += 1;
    }
    bytes
};

/// An answer that is the same for everything.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) length: u64,
    /// Head and body.
    pub(crate) answer: Box<[u8]>,
}

impl Fixed {
    /// With a body of so many bytes.
    pub(crate) fn new(length: usize) -> Self {
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Length: {length}\r\n\r\n")
                .into_bytes();
        answer.resize(answer.len() + length, b'x');
        Self { length: length as u64, answer: answer.into() }
    }
}

/// What bodies are cut from.
static FILL: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// The size of a chunk of `/chunked/{n}`.
const CHUNK: u64 = 16 * 1024;

/// The paths of the origin, each with an argument to try and what it answers.
pub static PATHS: &[(&str, &str)] = &[
    ("/echo", "what you sent, as JSON"),
    ("/body/1KiB", "so many bytes"),
    ("/chunked/64KiB", "so many bytes, in chunks"),
    ("/stream/10", "so many chunks, 100 ms apart"),
    ("/delay/250", "an answer after so many milliseconds (at most 60000)"),
    ("/status/503", "that status"),
    ("/headers/20", "so many response headers"),
    ("/upload", "reads any body; its length and CRC-32, as JSON"),
    ("/close", "answers, then closes the connection"),
    ("/ws", "WebSocket echo"),
];

/// Answers a request whose body has been read.
pub(crate) async fn answer(connection: &mut Connection, request: &Request) -> io::Result<()> {
    let path = request.path();
    let (page, argument) = match path[1.min(path.len())..].split_once('/') {
        Some((page, argument)) => (page, argument),
        None => (path.trim_start_matches('/'), ""),
    };
    match page {
        "" => index(connection, request),
        "echo" => echo(connection, request),
        "upload" => {
            let body = &request.body;
            let text = format!("{{\"length\":{},\"crc32\":\"{:08x}\"}}\n", body.length, body.crc32);
            respond(connection, request, 200, JSON, &text);
        }
        "close" => respond(connection, request, 200, TEXT, "closing\n"),
        "ws" => {
            let text = problem(426, "this is a WebSocket: ask for it with an upgrade");
            respond(connection, request, 426, JSON, &text);
        }
        _ => return with_argument(connection, request, page, argument).await,
    }
    Ok(())
}

/// Answers a request that cannot be read, for the last time on this connection.
pub(crate) fn refuse(connection: &mut Connection, status: u16, why: &str) {
    let body = problem(status, why);
    let reason = reason(status);
    let length = body.len();
    connection.push(
        format!("HTTP/1.1 {status} {reason}\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .as_bytes(),
    );
}

// === The paths with an argument ===

async fn with_argument(
    connection: &mut Connection,
    request: &Request,
    page: &str,
    argument: &str,
) -> io::Result<()> {
    match (page, size(argument)) {
        ("body", Some(length)) => return body(connection, request, length).await,
        ("chunked", Some(length)) => return chunked(connection, request, length).await,
        ("stream", Some(chunks)) => return stream(connection, request, chunks).await,
        ("delay", Some(ms)) => {
            connection.flush().await?;
            tokio::time::sleep(Duration::from_millis(ms.min(60_000))).await;
            respond(connection, request, 200, TEXT, &format!("after {} ms\n", ms.min(60_000)));
        }
        ("status", Some(code @ 200..=599)) => {
            let code = code as u16;
            respond(connection, request, code, TEXT, &format!("{code} {}\n", reason(code)));
        }
        ("headers", Some(count @ 0..=1000)) => {
            begin(connection, request, 200);
            for number in 0..count {
                connection.push(format!("X-Header-{number}: value {number}\r\n").as_bytes());
            }
            connection.push(b"Content-Length: 0\r\n\r\n");
        }
        _ => {
            let text = problem(404, "the origin has no such page; / names those it has");
            respond(connection, request, 404, JSON, &text);
        }
    }
    Ok(())
}

pub(crate) async fn body(connection: &mut Connection, request: &Request, mut length: u64) -> io::Result<()> {
    begin(connection, request, 200);
    connection.push(format!("Content-Type: {TEXT}\r\nContent-Length: {length}\r\n\r\n").as_bytes());
    if request.method == "HEAD" {
        return Ok(());
    }
    if length <= FILL.len() as u64 {
        connection.push(&FILL[..length as usize]);
        return Ok(());
    }
    while length > 0 {
        let part = length.min(FILL.len() as u64);
        connection.write(&FILL[..part as usize]).await?;
        length -= part;
    }
    Ok(())
}

async fn chunked(connection: &mut Connection, request: &Request, mut length: u64) -> io::Result<()> {
    if !begin_chunked(connection, request) {
        return body(connection, request, length).await;
    }
    while length > 0 && request.method != "HEAD" {
        let part = length.min(CHUNK);
        connection.push(format!("{part:x}\r\n").as_bytes());
        connection.push(&FILL[..part as usize]);
        connection.push(b"\r\n");
        connection.flush().await?;
        length -= part;
    }
    end_chunked(connection, request);
    Ok(())
}

async fn stream(connection: &mut Connection, request: &Request, chunks: u64) -> io::Result<()> {
    if !begin_chunked(connection, request) {
        return body(connection, request, chunks).await;
    }
    if request.method != "HEAD" {
        for number in 1..=chunks {
            let line = format!("line {number}\n");
            connection.push(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes());
            connection.flush().await?;
            if number < chunks {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    end_chunked(connection, request);
    Ok(())
}

// === The paths without ===

fn index(connection: &mut Connection, request: &Request) {
    let wants_html = request.header("accept").is_some_and(|accept| accept.contains("text/html"));
    let mut text = String::new();
    if wants_html {
        text.push_str(
            "<!doctype html><meta charset=utf-8><title>Weir's origin</title>\n<h1>It flows.</h1>\n",
        );
        text.push_str("<p>This is the small origin that is built into Weir. It answers on:\n<dl>\n");
        for (path, what) in PATHS {
            let _ = writeln!(text, "<dt><a href=\"{path}\"><code>{path}</code></a><dd>{what}");
        }
        text.push_str("</dl>\n");
    } else {
        text.push_str("It flows. This is the small origin that is built into Weir. It answers on:\n\n");
        for (path, what) in PATHS {
            let _ = writeln!(text, "  {path:<16} {what}");
        }
    }
    respond(connection, request, 200, if wants_html { HTML } else { TEXT }, &text);
}

fn echo(connection: &mut Connection, request: &Request) {
    let version = if request.http_1_0 { "HTTP/1.0" } else { "HTTP/1.1" };
    let mut text = String::from("{\"method\":");
    json_string(&mut text, &request.method);
    text.push_str(",\"target\":");
    json_string(&mut text, &request.target);
    let _ = write!(text, ",\"version\":\"{version}\",\"headers\":[");
    for (number, (name, value)) in request.headers.iter().enumerate() {
        text.push_str(if number == 0 { "[" } else { ",[" });
        json_string(&mut text, name);
        text.push(',');
        json_string(&mut text, value);
        text.push(']');
    }
    let _ = write!(text, "],\"body_length\":{}", request.body.length);
    if let Some(Ok(body)) = request.body.bytes.as_deref().map(std::str::from_utf8) {
        text.push_str(",\"body\":");
        json_string(&mut text, body);
    }
    text.push_str("}\n");
    respond(connection, request, 200, JSON, &text);
}

// === Parts of an answer ===

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// The status line and the Connection field.
fn begin(connection: &mut Connection, request: &Request, status: u16) {
    connection.push(b"HTTP/1.1 ");
    connection.push(itoa::Buffer::new().format(status).as_bytes());
    connection.push(b" ");
    connection.push(reason(status).as_bytes());
    connection.push(b"\r\n");
    if !request.keep_alive {
        connection.push(b"Connection: close\r\n");
    } else if request.http_1_0 {
        connection.push(b"Connection: keep-alive\r\n");
    }
}

/// A whole answer. 204 and 304 have no body, and HEAD gets only its length (RFC 9110 §8.6, RFC 9112 §6.3).
fn respond(connection: &mut Connection, request: &Request, status: u16, content_type: &str, body: &str) {
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

/// Begins a chunked answer; false for HTTP/1.0, which knows none.
fn begin_chunked(connection: &mut Connection, request: &Request) -> bool {
    if request.http_1_0 {
        return false;
    }
    begin(connection, request, 200);
    connection.push(format!("Content-Type: {TEXT}\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes());
    true
}

fn end_chunked(connection: &mut Connection, request: &Request) {
    if request.method != "HEAD" {
        connection.push(b"0\r\n\r\n");
    }
}

fn problem(status: u16, detail: &str) -> String {
    let mut text = format!("{{\"status\":{status},\"title\":\"{}\",\"detail\":", reason(status));
    json_string(&mut text, detail);
    text.push_str("}\n");
    text
}

/// `123`, `1KiB`, `2MiB`, `3GiB`.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

fn json_string(out: &mut String, text: &str) {
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

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        418 => "I'm a teapot",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("12", 12), ("1KiB", 1024), ("3MiB", 3 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "x", "1kb", "-1", "KiB", "99999999999999999999", "99999999999999999GiB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn json_strings() {
        let mut text = String::new();
        json_string(&mut text, "a\"\\\n\u{1}é");
        assert_eq!(text, "\"a\\\"\\\\\\n\\u0001é\"");
    }
}
