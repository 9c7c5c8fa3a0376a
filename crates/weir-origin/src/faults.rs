//! Answers that are wrong on purpose: connections that end too early, and bytes that are no HTTP.
//!
//! Each ends its connection; over TLS without a close_notify, so that the end is no proper one either. Over HTTP/2 each resets its
//! stream.

use std::io;

use crate::connection::{Connection, Request, Version};
use crate::pages::{self, FILL, TEXT};

/// What `/garbage` answers: the beginning of a TLS record, a stray line feed, a byte that is no text.
pub(crate) const GARBAGE: &[u8] = b"\x16\x03\x01\x00\x05\x01\nthis is no HTTP\n\xff\x00";

/// Why a connection goes no further: not an error of the socket, but the loop of the connection ends alike.
fn on_purpose() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// `/reset`: a TCP reset in place of an answer; `/reset/{n}`: after the head and n bytes of twice as many.
pub(crate) async fn reset(
    connection: &mut Connection,
    request: &Request,
    after: Option<u64>,
) -> io::Result<()> {
    if let Some(after) = after {
        pages::begin(connection, request, 200);
        let length = after.saturating_mul(2).max(1);
        connection.push(format!("Content-Type: {TEXT}\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        fill(connection, after).await?;
    }
    connection.flush().await?;
    connection.abort();
    Err(on_purpose())
}

/// `/truncated/{n}`: promises n bytes, sends half of them and closes; with `?chunked`, n bytes as one chunk without the last chunk.
pub(crate) async fn truncated(
    connection: &mut Connection,
    request: &Request,
    length: u64,
    in_chunks: bool,
) -> io::Result<()> {
    pages::begin(connection, request, 200);
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

/// `/garbage`: bytes that are no HTTP.
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
