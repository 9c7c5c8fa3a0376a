//! A filter's call to an upstream in which both sides may send at any time, over a stream of HTTP/2.
//!
//! Pools, limits and connect timeouts are the upstream's. Only connecting is repeated: once the head is sent, the call
//! belongs to the filter.

use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;
use weir_filter::filter::{CallStream, StreamRequest, line_of};
use weir_h1::{Limits, Progress, ResponseHead, parse_response};
use weir_telemetry::Attempt as Outcome;
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::{
    Active, Attempts, ConnectError, Connection, LocalUpstream, Measurement, Wanted, connect,
};

/// An open call.
struct OpenCall {
    upstream: Rc<LocalUpstream>,
    active: Active,
    connection: Connection,
    measured: Option<Measurement>,
    limits: Limits,
    head: Box<ResponseHead>,
    is_answered: bool,
    trailers: Vec<u8>,
}

/// Reaches an endpoint and sends the head.
pub(crate) async fn open(
    upstream: &Rc<LocalUpstream>,
    request: &StreamRequest,
    limits: Limits,
) -> Result<Box<dyn CallStream>, &'static Cause> {
    let mut attempts = Attempts::new(upstream);
    loop {
        let mut active = attempts.next(upstream)?;
        let wanted = Wanted { another: attempts.has_another(upstream, &active), ..attempts.wanted(true) };
        let connected = connect(upstream, &mut active, wanted).await;
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
        let head = render(request, &active.get().endpoint.label).ok_or(&error::INTERNAL)?;
        let mut sent = 0;
        while sent < head.len() {
            let rest = head.get(sent..).unwrap_or_default();
            let wrote = std::future::poll_fn(|cx| connection.stream.poll_write(cx, rest)).await;
            sent += wrote.ok().filter(|wrote| *wrote > 0).ok_or(&error::UPSTREAM_RESET)?;
        }
        let measured = active.measure(Instant::now, true);
        return Ok(Box::new(OpenCall {
            upstream: Rc::clone(upstream),
            active,
            connection,
            measured,
            limits,
            head: Box::default(),
            is_answered: false,
            trailers: Vec::new(),
        }));
    }
}

/// The head as text. `None` if it cannot be sent.
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
    sound.then_some(out)
}

impl OpenCall {
    /// Waits for the final head.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static Cause>> {
        loop {
            if !self.head.buffer().is_empty() {
                match parse_response(&mut self.head, &self.limits) {
                    Ok(Progress::Complete) if self.head.status() < 200 => {
                        self.head.recycle(0);
                        continue;
                    }
                    Ok(Progress::Complete) => break,
                    Ok(Progress::Partial) => {}
                    Err(_) => return Poll::Ready(Err(&error::BAD_RESPONSE)),
                }
            }
            match ready!(self.connection.stream.poll_read(cx, self.head.buffer_mut())) {
                Ok(0) | Err(_) => return Poll::Ready(Err(&error::UPSTREAM_CLOSED)),
                Ok(_) => {}
            }
        }
        let is_over = self.connection.stream.h2().is_none_or(|stream| stream.is_over());
        self.head.came_by_http2(is_over);
        self.is_answered = true;
        let status = self.head.status();
        self.measured.take().into_iter().for_each(Measurement::answered);
        self.upstream.cells.attempt(Outcome::Answered);
        self.upstream.note(&self.active, status < 500);
        Poll::Ready(if status == 200 { Ok(()) } else { Err(&error::BAD_RESPONSE) })
    }
}

impl CallStream for OpenCall {
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, &'static Cause>> {
        self.connection.stream.poll_write(cx, data).map_err(|_| &error::UPSTREAM_RESET)
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, &'static Cause>> {
        if !self.is_answered {
            ready!(self.poll_head(cx))?;
            let rest = self.head.rest();
            if !rest.is_empty() {
                into.extend_from_slice(rest);
                return Poll::Ready(Ok(rest.len()));
            }
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

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.is_answered {
            self.measured.take().into_iter().for_each(Measurement::failed);
            self.upstream.cells.attempt(Outcome::Reset);
            self.upstream.note(&self.active, false);
        }
    }
}
