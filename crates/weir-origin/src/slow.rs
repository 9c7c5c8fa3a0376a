//! Responses that are sent slowly: lines, events, drips.

use std::io;
use std::time::Duration;

use crate::connection::{Connection, Request};
use crate::fixed::{FILL, TEXT};
use crate::response::{begin, begin_stream, end_stream, misfit};

/// Time between two lines, or between two events unless `?every=MS` sets it.
const EVERY: Duration = Duration::from_millis(100);

/// How long a drip takes unless `?over=MS` sets it, and the shortest time between two drops.
const OVER: Duration = Duration::from_secs(1);
const DROP: Duration = Duration::from_millis(10);

/// The longest duration that a client may request.
const LONGEST: Duration = Duration::from_secs(600);

/// `/stream/{n}`: n lines, one chunk each.
pub(crate) async fn stream(connection: &mut Connection, request: &Request, lines: u64) -> io::Result<()> {
    chunks(connection, request, TEXT, lines, EVERY, |number| format!("line {number}\n")).await
}

/// `/sse/{n}`: n events (HTML Living Standard §9.2).
pub(crate) async fn events(connection: &mut Connection, request: &Request, events: u64) -> io::Result<()> {
    let every = match time(request, "every") {
        Ok(every) => every.unwrap_or(EVERY),
        Err(hint) => {
            misfit(connection, request, &hint);
            return Ok(());
        }
    };
    let event = |number| format!("id: {number}\ndata: event {number}\n\n");
    chunks(connection, request, "text/event-stream", events, every, event).await
}

/// `/drip/{n}`: n bytes, a few at a time.
pub(crate) async fn drip(connection: &mut Connection, request: &Request, length: u64) -> io::Result<()> {
    let over = match time(request, "over") {
        Ok(over) => over.unwrap_or(OVER),
        Err(hint) => {
            misfit(connection, request, &hint);
            return Ok(());
        }
    };
    begin(connection, request, 200);
    connection.push(format!("Content-Type: {TEXT}\r\nContent-Length: {length}\r\n\r\n").as_bytes());
    if request.method == "HEAD" {
        return Ok(());
    }
    let drops = u64::try_from(over.as_millis() / DROP.as_millis()).unwrap_or(u64::MAX).min(length).max(1);
    let begun = tokio::time::Instant::now();
    let mut sent = 0;
    for number in 1..=drops {
        connection.flush().await?;
        // Counted from the start, so that the delays of single waits do not add up.
        tokio::time::sleep_until(begun + over.mul_f64(number as f64 / drops as f64)).await;
        let until = (u128::from(length) * u128::from(number) / u128::from(drops)) as u64;
        while sent < until {
            let part = FILL.get(..usize::try_from(until - sent).unwrap_or(usize::MAX)).unwrap_or(&FILL);
            connection.write(part).await?;
            sent += part.len() as u64;
        }
    }
    Ok(())
}

/// `count` pieces of text, one chunk each, with a wait between two. HTTP/1.0 has no chunks: there the end of the
/// connection ends the body.
async fn chunks(
    connection: &mut Connection,
    request: &Request,
    content_type: &str,
    count: u64,
    every: Duration,
    piece: impl Fn(u64) -> String,
) -> io::Result<()> {
    let in_chunks = begin_stream(connection, request, content_type);
    if request.method != "HEAD" {
        for number in 1..=count {
            let text = piece(number);
            if in_chunks {
                connection.push(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
            } else {
                connection.push(text.as_bytes());
            }
            connection.flush().await?;
            if number < count {
                tokio::time::sleep(every).await;
            }
        }
    }
    end_stream(connection, request, in_chunks).await
}

/// A parameter in milliseconds, if present; the error names the expected form.
fn time(request: &Request, name: &str) -> Result<Option<Duration>, String> {
    let Some(text) = request.parameter(name) else { return Ok(None) };
    let ms = text.parse().map_err(|_| format!("{name}={text}: expected milliseconds, a whole number"))?;
    Ok(Some(Duration::from_millis(ms).min(LONGEST)))
}
