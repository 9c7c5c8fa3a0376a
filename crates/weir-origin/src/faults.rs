//! Faulty responses: connections that end too early, and bytes that are not HTTP.
//!
//! Each ends its connection; over TLS without a close_notify, so that the end is not a proper one either. Over
//! HTTP/2, each resets its stream.

use std::io;

use crate::connection::{Connection, Request, Version};
use crate::fixed::{FILL, TEXT};
use crate::response::begin;

/// The response of `/garbage`: the start of a TLS record, a stray line feed, a byte that is not text.
pub(crate) const GARBAGE: &[u8] = b"\x16\x03\x01\x00\x05\x01\nthis is no HTTP\n\xff\x00";

/// Why a connection stops: not a socket error, but it ends the connection's loop like one.
fn on_purpose() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// `/reset`: a TCP reset instead of a response; `/reset/{n}`: after the head and n bytes of twice as many.
pub(crate) async fn reset(
    connection: &mut Connection,
    request: &Request,
    after: Option<u64>,
) -> io::Result<()> {
    if let Some(after) = after {
        begin(connection, request, 200);
        let length = after.saturating_mul(2).max(1);
        connection.push(format!("Content-Type: {TEXT}\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        fill(connection, after).await?;
    }
    connection.flush().await?;
    connection.abort();
    Err(on_purpose())
}

/// `/truncated/{n}`: announces n bytes, sends half of them and closes; with `?chunked`, sends n bytes as one chunk
/// without the last chunk.
pub(crate) async fn truncated(
    connection: &mut Connection,
    request: &Request,
    length: u64,
    in_chunks: bool,
) -> io::Result<()> {
    begin(connection, request, 200);
    if in_chunks && request.version != Version::Http10 {
        connection.push(
            format!("Content-Type: {TEXT}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n").as_bytes(),
        );
        fill(connection, length).await?;
        connection.push(b"\r\n");
    } else {
        connection.push(format!("Content-Type: {TEXT}\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        fill(connection, length / 2).await?;
    }
    connection.flush().await?;
    Err(on_purpose())
}

/// `/garbage`: bytes that are not HTTP.
pub(crate) async fn garbage(connection: &mut Connection) -> io::Result<()> {
    connection.write(GARBAGE).await?;
    Err(on_purpose())
}

async fn fill(connection: &mut Connection, mut length: u64) -> io::Result<()> {
    while length > 0 {
        let part = FILL.get(..usize::try_from(length).unwrap_or(usize::MAX)).unwrap_or(&FILL);
        connection.write(part).await?;
        length -= part.len() as u64;
    }
    Ok(())
}
