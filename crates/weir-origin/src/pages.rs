//! The responses: one function for each path in the table of `lib.rs`. Delayed, slow and faulty ones are in
//! `delay.rs`, `slow.rs` and `faults.rs`.

use std::fmt::Write as _;
use std::io;

use percent_encoding::percent_decode_str;

use crate::connection::{Connection, Request, Version};
use crate::delay::mixed;
use crate::fixed::{FILL, TEXT};
use crate::response::{
    HTML, JSON, METRICS, begin, begin_stream, end_stream, json_string, misfit, problem, reason, respond,
};
use crate::{delay, faults, slow};

/// The size of a chunk of `/chunked/{n}`.
const CHUNK: u64 = 16 * 1024;

/// The paths of the origin, each with an example argument and a description.
pub static PATHS: &[(&str, &str)] = &[
    ("/echo", "what you sent, as JSON"),
    ("/body/1KiB", "so many bytes"),
    ("/random/1KiB", "so many random bytes; the same with ?seed=N"),
    ("/varying/1KiB", "1 byte, 2 bytes, … up to so many, another length each time"),
    ("/chunked/64KiB", "so many bytes, in chunks"),
    ("/stream/10", "so many chunks, 100 ms apart"),
    ("/sse/10", "so many server-sent events, ?every=100 ms"),
    ("/drip/1KiB", "so many bytes, a few at a time, ?over=1000 ms"),
    ("/delay/250", "an answer after so many milliseconds (at most 60000)"),
    ("/delay/5?tail=100", "one in a hundred after 100 ms; ?share=PERCENT, ?seed=N"),
    ("/delay/20?dist=uniform&to=40", "by a distribution: uniform, exponential or lognormal"),
    ("/status/503", "that status"),
    ("/headers/20", "so many response headers"),
    ("/upload", "reads any body; its length and CRC-32, as JSON"),
    ("/close", "answers, then closes the connection"),
    ("/reset", "resets the connection; /reset/1KiB after so many bytes of a body"),
    ("/truncated/1KiB", "half of so many bytes, then closes; ?chunked without the last chunk"),
    ("/garbage", "bytes that are no HTTP"),
    ("/ws", "WebSocket echo"),
    ("/api/v1/helloworld/you", "a greeting as JSON; by gRPC it is /helloworld.v1.Greeter/SayHello"),
    ("/metrics", "requests, connections and bytes of this origin, for Prometheus"),
];

/// The table as text, one line per path with its description.
pub fn list() -> String {
    let width = PATHS.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (path, what) in PATHS {
        let _ = writeln!(text, "  {path:<width$} {what}"); // writing to a String cannot fail
    }
    text
}

/// Answers a request whose body has been read.
pub(crate) async fn answer(connection: &mut Connection, request: &Request) -> io::Result<()> {
    let path = request.path();
    let path = path.strip_prefix('/').unwrap_or(path);
    let (page, argument) = path.split_once('/').unwrap_or((path, ""));
    match page {
        "" => index(connection, request),
        "echo" => echo(connection, request),
        "upload" => {
            let body = &request.body;
            let text = format!("{{\"length\":{},\"crc32\":\"{:08x}\"}}\n", body.length, body.crc32);
            respond(connection, request, 200, JSON, &text);
        }
        "close" => respond(connection, request, 200, TEXT, "closing\n"),
        "garbage" => return faults::garbage(connection).await,
        "metrics" => {
            let text = connection.site().metrics();
            respond(connection, request, 200, METRICS, &text);
        }
        "reset" if argument.is_empty() => return faults::reset(connection, request, None).await,
        "delay" => return delay::answer(connection, request, argument).await,
        "ws" => {
            let text = problem(426, "this is a WebSocket: ask for it with an upgrade");
            respond(connection, request, 426, JSON, &text);
        }
        "api" => helloworld(connection, request, argument),
        _ => return with_argument(connection, request, page, argument).await,
    }
    Ok(())
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
        ("random", Some(length)) => return random(connection, request, length).await,
        ("varying", Some(most @ 1..)) => {
            let length = connection.site().next_of(&request.target) % most + 1;
            return body(connection, request, length).await;
        }
        ("stream", Some(lines)) => return slow::stream(connection, request, lines).await,
        ("sse", Some(events)) => return slow::events(connection, request, events).await,
        ("drip", Some(length)) => return slow::drip(connection, request, length).await,
        ("reset", Some(after)) => return faults::reset(connection, request, Some(after)).await,
        ("truncated", Some(length)) => {
            let in_chunks = request.parameter("chunked").is_some();
            return faults::truncated(connection, request, length, in_chunks).await;
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
        (page, _) => match expected(page) {
            Some(form) => misfit(connection, request, &format!("{}: expected {form}", request.path())),
            None => not_found(connection, request),
        },
    }
    Ok(())
}

/// The argument that a path expects after its second slash; `None` if there is no such page.
fn expected(page: &str) -> Option<&'static str> {
    Some(match page {
        "body" | "chunked" | "random" | "drip" | "reset" | "truncated" => "a size, such as 512 or 1KiB",
        "varying" => "a size of at least 1, such as 1KiB",
        "stream" | "sse" => "a number, such as 10",
        "status" => "a status, 200 to 599",
        "headers" => "a number, 0 to 1000",
        _ => return None,
    })
}

pub(crate) fn not_found(connection: &mut Connection, request: &Request) {
    let text = problem(404, "the origin has no such page; / names those it has");
    respond(connection, request, 404, JSON, &text);
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

/// Incompressible bytes, different for each request unless a seed selects them.
async fn random(connection: &mut Connection, request: &Request, mut length: u64) -> io::Result<()> {
    let seed = match request.parameter("seed").map(|seed| (seed, seed.parse())) {
        None => connection.site().next_of(&request.target),
        Some((_, Ok(seed))) => seed,
        Some((seed, Err(_))) => {
            misfit(connection, request, &format!("seed={seed}: expected a whole number"));
            return Ok(());
        }
    };
    let mut state = mixed(seed);
    begin(connection, request, 200);
    connection.push(
        format!("Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
    );
    let mut part = Vec::new();
    while length > 0 && request.method != "HEAD" {
        part.clear();
        while part.len() < FILL.len() && (part.len() as u64) < length {
            state = state.wrapping_add(1);
            part.extend_from_slice(&mixed(state).to_le_bytes());
        }
        part.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        length -= part.len() as u64;
        if length > 0 {
            connection.write(&part).await?;
        } else {
            connection.push(&part);
        }
    }
    Ok(())
}

async fn chunked(connection: &mut Connection, request: &Request, mut length: u64) -> io::Result<()> {
    if request.version == Version::Http10 {
        return body(connection, request, length).await;
    }
    let in_chunks = begin_stream(connection, request, TEXT);
    while length > 0 && request.method != "HEAD" {
        let part = length.min(CHUNK);
        connection.push(format!("{part:x}\r\n").as_bytes());
        connection.push(&FILL[..part as usize]);
        connection.push(b"\r\n");
        connection.flush().await?;
        length -= part;
    }
    end_stream(connection, request, in_chunks).await
}

// === The paths without an argument ===

fn index(connection: &mut Connection, request: &Request) {
    let wants_html = request.header("accept").is_some_and(|accept| accept.contains("text/html"));
    let mut text = String::new();
    if wants_html {
        text.push_str(
            "<!doctype html><meta charset=utf-8><title>Weir's origin</title>\n<h1>It flows.</h1>\n",
        );
        text.push_str("<p>This is the small origin that is built into Weir. It answers on:\n<dl>\n");
        for (path, what) in PATHS {
            let path = path.replace('&', "&amp;");
            let _ = writeln!(text, "<dt><a href=\"{path}\"><code>{path}</code></a><dd>{what}");
        }
        text.push_str("</dl>\n");
    } else {
        text.push_str("It flows. This is the small origin that is built into Weir. It answers on:\n\n");
        text.push_str(&list());
    }
    respond(connection, request, 200, if wants_html { HTML } else { TEXT }, &text);
}

/// `/api/v1/helloworld/{name}`: the REST form of `SayHello`.
fn helloworld(connection: &mut Connection, request: &Request, argument: &str) {
    let Some(name) = argument.strip_prefix("v1/helloworld/").filter(|n| !n.is_empty() && !n.contains('/'))
    else {
        return not_found(connection, request);
    };
    let mut text = "{\"message\":".to_owned();
    json_string(&mut text, &format!("hello {}", unescaped(name)));
    text.push('}');
    respond(connection, request, 200, JSON, &text);
}

fn echo(connection: &mut Connection, request: &Request) {
    let version = match request.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2",
    };
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

/// Parses `123`, `1KiB`, `2MiB`, `3GiB`.
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

/// Resolves percent escapes; leaves invalid ones unchanged.
fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
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
}
