//! One HTTP/2 request on its own connection.

use super::FetchError;
use crate::talk::{CallAnswer, End, Failed, answer, read_body, receive_head, send};
use std::pin::pin;
use std::time::Duration;
use weir_h1::{FieldName, Limits, Method};
use weir_wire::h2::{Link, window_for};
use weir_wire::{Stream, Transport};

/// Most trailer fields kept.
const TRAILERS: usize = 32;

/// Sends a request, which is given in HTTP/1.1 form, and reads the whole answer. Trailers follow its fields.
pub(super) async fn talk(
    transport: Transport,
    round_trip: Duration,
    out: &[u8],
    limit: usize,
) -> Result<CallAnswer, FetchError> {
    let limits = Limits::default();
    let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
    let greeting = Link::begin(transport, window_for(round_trip), head_bytes, Box::new(|| {}));
    let (link, mut driver) = greeting.await.map_err(|_| FetchError::BadAnswer)?;
    let mut stream = Stream::H2(link.stream());
    let talked = pin!(async {
        send(&mut stream, out, &mut 0).await?;
        let head = receive_head(&mut stream, &limits).await?;
        let (body, end) = read_body(&mut stream, &head, Method::Post, limit).await?;
        if end == End::Cut {
            return Err(Failed::TooLong);
        }
        let mut answer = answer(&head, body);
        answer.headers.extend(fields(&stream.take_trailers()));
        Ok(answer)
    });
    let answered = driver.drive(talked).await;
    answered.map_err(|failed: Failed| match failed {
        Failed::Closed | Failed::Malformed => FetchError::BadAnswer,
        Failed::TooLong => FetchError::TooLong(limit),
    })
}

/// Parses field lines.
fn fields(lines: &[u8]) -> Vec<(FieldName, Vec<u8>)> {
    let lines = lines.split(|byte| *byte == b'\n').take(TRAILERS);
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at_checked(colon)?;
        let name = FieldName::new(str::from_utf8(name.trim_ascii()).ok()?).ok()?;
        Some((name, value.get(1..).unwrap_or_default().trim_ascii().to_vec()))
    };
    lines.filter_map(field).collect()
}
