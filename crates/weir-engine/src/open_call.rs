//! A filter's call to an upstream in which both sides may send at any time, over a stream of HTTP/2.
//!
//! Pools, limits and connect timeouts are the upstream's. Until its answer begins, an attempt may be repeated by the
//! same rules as in `call.rs`; then the call belongs to the filter.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;
use weir_filter::filter::{CallStream, StreamRequest, line_of};
use weir_h1::{Limits, Progress, ResponseHead, parse_response};
use weir_telemetry::Attempt as Outcome;
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::{
    Active, Attempts, ConnectError, Connection, Facts, LocalUpstream, Lost, Measurement, Wanted, connect,
};
use weir_wire::h2::H2Stream;
use weir_wire::time;

/// Most interim responses before the final one, in case it never comes.
const MAX_INTERIM: u32 = 16;

/// An open call.
struct OpenCall {
    /// Counts the call at its endpoint.
    _active: Active,
    connection: Connection,
    head: Box<ResponseHead>,
    /// Whether what arrived behind the head was passed on.
    is_begun: bool,
    /// What was not sent yet when the answer began.
    unsent: Vec<u8>,
    trailers: Vec<u8>,
}

/// Reaches an endpoint, sends head and first message, and waits until the answer begins.
pub(crate) async fn open(
    upstream: &Rc<LocalUpstream>,
    request: &StreamRequest,
    limits: Limits,
) -> Result<Box<dyn CallStream>, &'static Cause> {
    let mut attempts = Attempts::new(upstream);
    loop {
        let mut active = attempts.next(upstream)?;
        let another = attempts.has_another(upstream, &active);
        let end = Some((request.end, &error::RESPONSE_TIMEOUT));
        let connected =
            connect(upstream, &mut active, Wanted { end, another, ..attempts.wanted(false) }).await;
        if !connected.as_ref().is_err_and(ConnectError::is_avoided) {
            attempts.count(upstream);
        }
        let mut connection = match connected {
            Ok(connected) => connected.connection,
            Err(e) => {
                attempts.unreached(upstream, &active, e)?;
                continue;
            }
        };
        if connection.stream.h2().is_none() {
            return Err(&error::UPSTREAM_PROTOCOL);
        }
        let out = render(request, &active.get().endpoint.label).ok_or(&error::INTERNAL)?;
        let measured = active.measure(Instant::now, true);
        let mut sent = 0;
        let begins = begin(&mut connection, &out, &mut sent, &limits);
        let begun = time::timeout_at(request.end, begins).await.unwrap_or(Err(&error::RESPONSE_TIMEOUT));
        let cause = match begun {
            Ok(head) => {
                measured.into_iter().for_each(Measurement::answered);
                upstream.cells.attempt(Outcome::Answered);
                upstream.note(&active, head.status() < 500);
                if head.status() != 200 {
                    return Err(&error::BAD_RESPONSE);
                }
                let unsent = out.get(sent..).unwrap_or_default().to_vec();
                let (is_begun, trailers) = (false, Vec::new());
                return Ok(Box::new(OpenCall {
                    _active: active,
                    connection,
                    head,
                    is_begun,
                    unsent,
                    trailers,
                }));
            }
            Err(cause) => cause,
        };
        upstream.cells.attempt(cause.outcome);
        upstream.note(&active, false);
        let h2 = connection.stream.h2();
        let lost = Lost::of(&Facts {
            cause,
            idempotent: true, // a question
            written: sent != 0,
            kept: true,
            reused: connection.reused,
            refused: h2.is_some_and(H2Stream::is_refused),
            reset: h2.is_some_and(H2Stream::is_reset_by_peer),
        });
        if lost.is_none_or(|lost| lost.race.is_none()) {
            measured.into_iter().for_each(Measurement::failed);
        }
        let pause = lost.and_then(|lost| attempts.again(upstream, &active, lost, Some(request.end)));
        let pause = pause.ok_or(cause)?;
        if !pause.is_zero() {
            time::sleep(pause).await;
        }
    }
}

/// The head as text, and the first message. `None` if it cannot be sent.
fn render(request: &StreamRequest, authority: &str) -> Option<Vec<u8>> {
    let is_visible = |b: u8| b > 0x20 && b < 0x7f;
    let mut sound = request.path.starts_with('/') && request.path.bytes().all(is_visible);
    let mut out = format!("POST {} HTTP/1.1\r\nhost: {authority}\r\n", request.path).into_bytes();
    for (name, value) in &request.headers {
        sound &= value.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f));
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&request.first);
    sound.then_some(out)
}

/// Sends `out` while it waits for the final head. `sent` counts the bytes written.
async fn begin(
    connection: &mut Connection,
    out: &[u8],
    sent: &mut usize,
    limits: &Limits,
) -> Result<Box<ResponseHead>, &'static Cause> {
    let mut head = Box::<ResponseHead>::default();
    let mut interim = 0;
    poll_fn(|cx| {
        while *sent < out.len() {
            let rest = out.get(*sent..).unwrap_or_default();
            match connection.stream.poll_write(cx, rest) {
                Poll::Ready(Ok(wrote)) if wrote > 0 => *sent += wrote,
                Poll::Ready(_) | Poll::Pending => break, // it may have answered before it stopped reading
            }
        }
        poll_head(connection, cx, &mut head, &mut interim, limits)
    })
    .await?;
    Ok(head)
}

fn poll_head(
    connection: &mut Connection,
    cx: &mut Context<'_>,
    head: &mut ResponseHead,
    interim: &mut u32,
    limits: &Limits,
) -> Poll<Result<(), &'static Cause>> {
    loop {
        if !head.buffer().is_empty() {
            match parse_response(head, limits) {
                Ok(Progress::Complete) if head.status() < 200 => {
                    *interim += 1;
                    if *interim > MAX_INTERIM {
                        return Poll::Ready(Err(&error::BAD_RESPONSE));
                    }
                    head.recycle(0);
                    continue;
                }
                Ok(Progress::Complete) => break,
                Ok(Progress::Partial) => {}
                Err(_) => return Poll::Ready(Err(&error::BAD_RESPONSE)),
            }
        }
        match ready!(connection.stream.poll_read(cx, head.buffer_mut())) {
            Ok(0) => return Poll::Ready(Err(&error::UPSTREAM_CLOSED)),
            Ok(_) => {}
            Err(_) => return Poll::Ready(Err(&error::UPSTREAM_RESET)),
        }
    }
    let is_over = connection.stream.h2().is_none_or(|stream| stream.is_over());
    head.came_by_http2(is_over);
    Poll::Ready(Ok(()))
}

impl OpenCall {
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static Cause>> {
        while !self.unsent.is_empty() {
            let wrote = ready!(self.connection.stream.poll_write(cx, &self.unsent));
            let wrote = wrote.ok().filter(|wrote| *wrote > 0).ok_or(&error::UPSTREAM_RESET)?;
            self.unsent.drain(..wrote);
        }
        Poll::Ready(Ok(()))
    }
}

impl CallStream for OpenCall {
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, &'static Cause>> {
        ready!(self.poll_unsent(cx))?;
        self.connection.stream.poll_write(cx, data).map_err(|_| &error::UPSTREAM_RESET)
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, &'static Cause>> {
        let _ = self.poll_unsent(cx); // it may have answered before it stopped reading
        if !std::mem::replace(&mut self.is_begun, true) && !self.head.rest().is_empty() {
            into.extend_from_slice(self.head.rest());
            return Poll::Ready(Ok(self.head.rest().len()));
        }
        let read = ready!(self.connection.stream.poll_read(cx, into)).map_err(|_| &error::UPSTREAM_RESET)?;
        if read == 0 {
            self.trailers = self.connection.stream.take_trailers();
        }
        Poll::Ready(Ok(read))
    }

    fn field(&self, name: &str) -> Option<Vec<u8>> {
        line_of(&self.trailers, name).or_else(|| self.head.headers.get_str(name)).map(<[u8]>::to_vec)
    }

    fn finish(&mut self) {
        // A stream of HTTP/2 ends at once.
        let _ = self.connection.stream.poll_finish(&mut Context::from_waker(Waker::noop()), &[]);
    }
}
