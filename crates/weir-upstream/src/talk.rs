//! One request and its whole answer on an open connection. Shared by a filter's call to an upstream (`call.rs`),
//! requests of the control side (`fetch.rs`) and probes (`upstream/probes/`). A hedged attempt (`exchange/hedge.rs`)
//! reads only the head.

use bytes::Bytes;
use std::future::poll_fn;
use weir_h1::{
    BodyKind, BodyReader, Connection, FieldName, Limits, Method, Progress, ResponseHead, Step, parse_response,
};
use weir_wire::Stream;

/// The default limit of the body that answers a filter's own call, in bytes.
pub const CALL_BODY_BYTES: usize = 64 * 1024;

/// A limit for calls whose answer may have a body of any length, which is read to its end and discarded.
pub const DISCARDED: usize = usize::MAX;

/// A filter's own request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// Method, such as `GET`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Host and port.
    pub authority: Vec<u8>,
    /// Fields besides Host and Content-Length.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// The body. If it is empty, none is sent.
    pub body: Bytes,
    /// Longest body of the answer, in bytes: [`CALL_BODY_BYTES`] for most, or [`DISCARDED`].
    pub limit: usize,
}

/// The answer to a filter's own request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    /// Status code.
    pub status: u16,
    /// Fields, without framing fields.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// The whole body.
    pub body: Bytes,
}

impl CallAnswer {
    /// The last field with that name: trailers follow the head's fields.
    #[inline]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().rev().find(|(known, _)| known.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The connection ended before the answer began.
    Closed,
    /// What arrived is not HTTP, or it ended in the middle.
    Malformed,
    /// The body is longer than the limit of the request.
    TooLong,
}

/// The request as bytes; `None` if it cannot be sent. It is checked like every generated value, because another
/// program's request may be behind it.
pub fn render(request: &CallRequest) -> Option<Vec<u8>> {
    let target = |b: u8| b > 0x20 && b < 0x7f;
    let sound = !request.method.is_empty()
        && request.method.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-')
        && request.target.starts_with('/')
        && request.target.bytes().all(target)
        && request.authority.iter().copied().all(target)
        && request.headers.iter().all(|(_, v)| v.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f)));
    if !sound {
        return None;
    }
    let mut out = format!("{} {} HTTP/1.1\r\nhost: ", request.method, request.target).into_bytes();
    out.extend_from_slice(&request.authority);
    out.extend_from_slice(b"\r\n");
    for (name, value) in &request.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if !request.body.is_empty() || matches!(&*request.method, "PATCH" | "POST" | "PUT") {
        out.extend_from_slice(format!("content-length: {}\r\n", request.body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&request.body);
    Some(out)
}

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It can be used again.
    Kept,
    /// It cannot.
    Done,
    /// Its end was the end of the body, which nothing else marks: without TLS the body may have been cut.
    Ended,
}

/// Writes `out`, which [`render`] made from `request`, and reads the answer. `sent` counts the bytes written.
pub async fn talk(
    stream: &mut Stream,
    request: &CallRequest,
    out: &[u8],
    sent: &mut usize,
    limits: &Limits,
) -> Result<(CallAnswer, After), Failed> {
    send(stream, out, sent).await?;
    let head = receive_head(stream, limits).await?;
    let method = if request.method == "HEAD" { Method::Head } else { Method::Get };
    let (body, end) = read_body(stream, &head, method, request.limit).await?;
    let after = match end {
        End::Cut => return Err(Failed::TooLong),
        End::Clean if head.connection() == Connection::KeepAlive => After::Kept,
        End::Clean | End::More => After::Done,
        End::Closed => After::Ended,
    };
    Ok((answer(&head, body), after))
}

/// Writes a request, head and body. `sent` counts the bytes written.
pub async fn send(stream: &mut Stream, out: &[u8], sent: &mut usize) -> Result<(), Failed> {
    while *sent < out.len() {
        let rest = out.get(*sent..).unwrap_or_default();
        let n = poll_fn(|cx| stream.poll_write(cx, rest)).await.map_err(|_| Failed::Closed)?;
        if n == 0 {
            return Err(Failed::Closed);
        }
        *sent += n;
    }
    poll_fn(|cx| stream.poll_finish(cx, &[])).await.map_err(|_| Failed::Closed)
}

/// Most interim responses to one request, in case an upstream never sends the final one.
const MAX_INTERIM: u32 = 16;

/// Reads the head of the final response and skips interim ones.
pub async fn receive_head(stream: &mut Stream, limits: &Limits) -> Result<ResponseHead, Failed> {
    let mut head = ResponseHead::default();
    let mut interim = 0;
    loop {
        let read = poll_fn(|cx| stream.poll_read(cx, head.buffer_mut())).await;
        match read {
            Ok(0) | Err(_) if head.buffer().is_empty() => return Err(Failed::Closed),
            Ok(0) | Err(_) => return Err(Failed::Malformed),
            Ok(_) => {}
        }
        while let Progress::Complete = parse_response(&mut head, limits).map_err(|_| Failed::Malformed)? {
            if head.status() >= 200 {
                if let Some(h2) = stream.h2() {
                    head.came_by_http2(h2.is_over());
                } else if let Some(fastcgi) = stream.fastcgi() {
                    head.came_by_records(fastcgi.is_over() && head.rest().is_empty());
                }
                return Ok(head);
            }
            interim += 1;
            // Nobody asked for an upgrade, so 101 is no answer.
            if interim > MAX_INTERIM || head.status() == 101 {
                return Err(Failed::Malformed);
            }
            head.recycle(0);
        }
    }
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At its proper end, and nothing follows.
    Clean,
    /// It exceeds the limit: this is its start.
    Cut,
    /// With the connection.
    Closed,
    /// More bytes follow.
    More,
}

/// Reads a body, or the start of one longer than `limit`. With [`DISCARDED`] nothing of it is kept.
pub(crate) async fn read_body(
    stream: &mut Stream,
    head: &ResponseHead,
    method: Method,
    limit: usize,
) -> Result<(Vec<u8>, End), Failed> {
    let kind = head.body(method);
    let mut reader = BodyReader::new(kind);
    let mut input = head.rest().to_vec();
    let (mut at, mut body) = (0, Vec::new());
    loop {
        match reader.step(input.get(at..).unwrap_or_default()).map_err(|_| Failed::Malformed)? {
            Step::Data { skip, len } => {
                if limit != DISCARDED {
                    body.extend_from_slice(input.get(at + skip..at + skip + len).unwrap_or_default());
                }
                at += skip + len;
                if body.len() > limit {
                    body.truncate(limit);
                    return Ok((body, End::Cut));
                }
            }
            Step::End { used } if at + used == input.len() => return Ok((body, End::Clean)),
            Step::End { .. } => return Ok((body, End::More)),
            Step::More => {
                input.clear();
                at = 0;
                match poll_fn(|cx| stream.poll_read(cx, &mut input)).await {
                    Ok(0) if kind == BodyKind::UntilClose => return Ok((body, End::Closed)),
                    Ok(0) | Err(_) => return Err(Failed::Malformed),
                    Ok(_) => {}
                }
            }
        }
    }
}

pub(crate) fn answer(head: &ResponseHead, body: Vec<u8>) -> CallAnswer {
    let fields = head.headers.iter().filter_map(|(name, value)| {
        let name = std::str::from_utf8(name).ok()?;
        // Framing fields do not apply beyond this connection.
        let framing = name.eq_ignore_ascii_case("content-length");
        if framing { None } else { Some((FieldName::new(name).ok()?, value.to_vec())) }
    });
    CallAnswer { status: head.status(), headers: fields.collect(), body: body.into() }
}
