//! WebSocket echo (RFC 6455): returns every frame unchanged, but unmasked. Frames pass through piece by piece, so a
//! frame of any length takes constant memory. Text is not checked for UTF-8: the sender gets back what it sent.

use std::io;

use weir_wire::websocket::accept;

use crate::connection::{Connection, Request};

const PING: u8 = 9;
const PONG: u8 = 10;
const CLOSE: u8 = 8;

/// Whether the request is a WebSocket handshake (RFC 6455 §4.2.1).
pub(crate) fn is_handshake(request: &Request) -> bool {
    let has = |name, token: &str| {
        request
            .header(name)
            .is_some_and(|value| value.split(',').any(|option| option.trim().eq_ignore_ascii_case(token)))
    };
    request.method == "GET"
        && has("upgrade", "websocket")
        && has("connection", "upgrade")
        && has("sec-websocket-version", "13")
        && request.header("sec-websocket-key").is_some()
}

/// Answers the handshake and echoes until a close frame or the end of the stream.
pub(crate) async fn serve(connection: &mut Connection, request: &Request) -> io::Result<()> {
    let accept = accept(request.header("sec-websocket-key").unwrap_or_default().as_bytes());
    connection.push(
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        )
        .as_bytes(),
    );
    connection.flush().await?;
    loop {
        let Some(frame) = next_frame(connection).await? else { return Ok(()) };
        let Frame { first, masked, length, .. } = frame;
        let opcode = first & 0x0f;
        let control_is_bad = opcode >= CLOSE && (length > 125 || first & 0x80 == 0);
        if !masked || first & 0x70 != 0 || control_is_bad || !matches!(opcode, 0..=2 | CLOSE..=PONG) {
            // 1002, protocol error (RFC 6455 §7.4.1).
            connection.push(&[0x80 | CLOSE, 2, 0x03, 0xea]);
            return connection.flush().await;
        }
        match opcode {
            PONG => skip(connection, length).await?,
            PING => echo(connection, &frame, 0x80 | PONG).await?,
            CLOSE => {
                echo(connection, &frame, first).await?;
                return connection.flush().await;
            }
            _ => echo(connection, &frame, first).await?,
        }
    }
}

/// The header of a frame; its payload is still unread.
struct Frame {
    /// FIN, the reserved bits and the opcode.
    first: u8,
    masked: bool,
    mask: [u8; 4],
    length: u64,
}

/// Reads the header of the next frame; `None` at the end of the stream.
async fn next_frame(connection: &mut Connection) -> io::Result<Option<Frame>> {
    loop {
        if let Some((frame, size)) = parse(connection.unread()) {
            connection.consume(size);
            return Ok(Some(frame));
        }
        connection.flush().await?;
        if connection.fill().await? == 0 {
            return Ok(None);
        }
    }
}

/// Parses a frame header; returns it with its size, if all of it has arrived.
fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
    let [first, second, rest @ ..] = bytes else { return None };
    let (length, size) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*rest.first_chunk()?), 10),
        length => (u64::from(length), 2),
    };
    let masked = second & 0x80 != 0;
    if !masked {
        return Some((Frame { first: *first, masked, mask: [0; 4], length }, size));
    }
    let mask = *bytes.get(size..)?.first_chunk()?;
    Some((Frame { first: *first, masked, mask, length }, size + 4))
}

async fn echo(connection: &mut Connection, frame: &Frame, first: u8) -> io::Result<()> {
    match frame.length {
        length @ 0..=125 => connection.push(&[first, length as u8]),
        length @ 126..=0xffff => {
            connection.push(&[first, 126]);
            connection.push(&(length as u16).to_be_bytes());
        }
        length => {
            connection.push(&[first, 127]);
            connection.push(&length.to_be_bytes());
        }
    }
    let mut done: u64 = 0;
    while done < frame.length {
        if connection.unread().is_empty() {
            connection.flush().await?;
            fill_some(connection).await?;
        }
        let take = connection.unread().len().min(usize::try_from(frame.length - done).unwrap_or(usize::MAX));
        let start = (done & 3) as usize;
        connection.echo(take, |number| frame.mask[(start + number) & 3]);
        done += take as u64;
    }
    Ok(())
}

async fn skip(connection: &mut Connection, mut length: u64) -> io::Result<()> {
    while length > 0 {
        if connection.unread().is_empty() {
            fill_some(connection).await?;
        }
        let take = connection.unread().len().min(usize::try_from(length).unwrap_or(usize::MAX));
        connection.consume(take);
        length -= take as u64;
    }
    Ok(())
}

async fn fill_some(connection: &mut Connection) -> io::Result<()> {
    match connection.fill().await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_heads() {
        let size = |bytes: &[u8]| parse(bytes).map(|(frame, size)| (frame.length, size));
        assert_eq!(size(&[0x81, 0x85, 1, 2, 3, 4]), Some((5, 6)));
        assert_eq!(size(&[0x81, 0x85, 1, 2, 3]), None);
        assert_eq!(size(&[0x82, 0x7e, 1, 0]), Some((256, 4)));
        assert_eq!(size(&[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]), Some((65536, 10)));
        assert_eq!(size(&[0x82]), None);
    }
}
