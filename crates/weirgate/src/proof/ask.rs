//! Asks a program one witness, on a connection of its own, and reads the answer.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use weir_import::proof::Ask;
use weir_import::proof::compare::Answer;
use weir_wire::tls::ClientTls;

/// Longest wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Largest head.
const MAX_HEAD: usize = 256 << 10;
/// Largest body.
const MAX_BODY: u64 = 64 << 20;
/// How much of a body is kept.
const KEPT: usize = 300;

/// Asks once.
pub(super) fn ask(ask: &Ask, tls: &ClientTls) -> Answer {
    match try_ask(ask, tls) {
        Ok(answer) => answer,
        Err(e) => {
            // What a reset connection is called differs; that there was no answer is the same.
            let timed_out = matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
            let failure = if timed_out { "nothing in 10 s" } else { "the connection was closed" };
            Answer { failure: failure.to_owned(), ..Answer::default() }
        }
    }
}

fn try_ask(ask: &Ask, tls: &ClientTls) -> io::Result<Answer> {
    let address: SocketAddr =
        format!("{}:{}", ask.front.ip, ask.front.port).parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    if ask.front.tls {
        let host = ask.host.as_deref().unwrap_or("localhost");
        let name = host.split(':').next().unwrap_or(host);
        return converse(BufReader::new(tls.connect_blocking(stream, name)?), ask);
    }
    converse(BufReader::new(stream), ask)
}

fn converse<S: Read + Write>(mut stream: BufReader<S>, ask: &Ask) -> io::Result<Answer> {
    let version = if ask.host.is_some() { "1.1" } else { "1.0" };
    let mut head = format!("{} {} HTTP/{version}\r\n", ask.method, ask.target);
    if let Some(host) = &ask.host {
        head.push_str(&format!("Host: {host}\r\n"));
    }
    head.push_str("User-Agent: weir-proof\r\nAccept: */*\r\n");
    for (name, value) in &ask.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let has_body = ask.body > 0 || matches!(&*ask.method, "POST" | "PUT" | "PATCH");
    if has_body {
        head.push_str(&format!("Content-Type: text/plain\r\nContent-Length: {}\r\n", ask.body));
    }
    head.push_str("Connection: close\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes())?;
    // A program that refuses a body may stop reading it: then its answer is there already.
    let _ = send_body(stream.get_mut(), ask.body);
    loop {
        let (line, fields) = read_head(&mut stream)?;
        let status: u16 = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        let has_none = ask.method == "HEAD" || matches!(status, 101 | 204 | 304);
        let body = if has_none { Vec::new() } else { read_body(&mut stream, &fields, None)? };
        let kept = body.get(..KEPT).unwrap_or(&body);
        return Ok(Answer {
            status,
            failure: String::new(),
            fields,
            body_bytes: body.len() as u64,
            body_hash: body_hash(&body),
            body: String::from_utf8_lossy(kept).into_owned(),
            seen: Vec::new(),
        });
    }
}

fn send_body(stream: &mut impl Write, mut bytes: u64) -> io::Result<()> {
    let piece = [b'w'; 16 << 10];
    while bytes > 0 {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(piece.len());
        stream.write_all(piece.get(..length).unwrap_or_default())?;
        bytes -= length as u64;
    }
    stream.flush()
}

/// The first line of a message, and its fields with names in lower case.
pub(super) fn read_head(stream: &mut impl BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let mut left = MAX_HEAD;
    let mut next = || -> io::Result<String> {
        let mut line = Vec::new();
        let read = stream.by_ref().take(left as u64).read_until(b'\n', &mut line)?;
        left -= read;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
    };
    let first = next()?;
    let mut fields = Vec::new();
    loop {
        let line = next()?;
        if line.is_empty() {
            return Ok((first, fields));
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// The body of a message, without its framing. `length` is its length if no field tells it; none: up to the end.
pub(super) fn read_body(
    stream: &mut impl BufRead,
    fields: &[(String, String)],
    length: Option<u64>,
) -> io::Result<Vec<u8>> {
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    let mut body = Vec::new();
    if field("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked")) {
        loop {
            let mut line = String::new();
            stream.by_ref().take(1024).read_line(&mut line)?;
            let size = line.trim().split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size, 16).map_err(|_| io::ErrorKind::InvalidData)?;
            if body.len() as u64 + size > MAX_BODY {
                return Err(io::ErrorKind::InvalidData.into());
            }
            stream.by_ref().take(size).read_to_end(&mut body)?;
            let mut end = String::new();
            stream.by_ref().take(1024).read_line(&mut end)?;
            if size == 0 {
                // Trailers, up to an empty line.
                while !end.trim().is_empty() {
                    end.clear();
                    stream.by_ref().take(1024).read_line(&mut end)?;
                }
                return Ok(body);
            }
        }
    }
    let length = field("content-length").and_then(|value| value.parse().ok()).or(length);
    match length {
        Some(length) => stream.by_ref().take(length.min(MAX_BODY)).read_to_end(&mut body)?,
        None => stream.by_ref().take(MAX_BODY).read_to_end(&mut body)?,
    };
    if length.is_some_and(|length| length != body.len() as u64) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(body)
}

/// A checksum, the same in all processes of a proof.
pub(super) fn body_hash(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}
