//! Sends the request to the upstream and waits for the response head.
//!
//! Both run at once: an upstream may answer before it has read everything, and a client may wait for `100 Continue`
//! before it sends anything.

use super::bodies::Watchers;
use super::sent::Sent;
use super::{Stop, deadline};
use crate::autopsy::kept::cut_detail;
use crate::client::{Client, Departure};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weir_h1::{Progress, ResponseHead, parse_response};
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::{Carrier, Lost, Race, Timeouts};
use weir_wire::Stream;
use weir_wire::fastcgi::FastCgi;
use weir_wire::relay::{Relay, RelayError};

/// A request being sent to the upstream.
pub(super) struct Upload {
    pub(super) state: Sending,
    /// A byte of a response arrived, so the upstream has certainly seen the request.
    pub(super) heard: bool,
    /// The request may be sent again even after an answer, so the sent part is kept until then.
    pub(super) keeps: bool,
    /// The client waits for `100 Continue`, and none has been passed on.
    pub(super) expects_continue: bool,
    /// When the last byte was written, if that took more than one write.
    pub(super) ended: Option<Instant>,
    /// The error text of the failed attempt.
    pub(super) detail: Option<Box<str>>,
    /// Which sign of the client's departure ends the attempt.
    pub(super) departure: Departure,
}

/// How far the request has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// The last byte was written.
    Done,
    /// Writing or the client's side failed: nothing more will be sent.
    Failed,
    Going,
}

impl Upload {
    pub(super) fn is_done(&self) -> bool {
        self.state == Sending::Done
    }

    pub(super) fn is_going(&self) -> bool {
        self.state == Sending::Going
    }

    /// Whether the client sends no body because it waits for `100 Continue`.
    const fn holds_back(&self, relay: &Relay) -> bool {
        self.expects_continue && relay.taken() == 0
    }
}

/// Why an attempt got no response head.
pub(super) enum Failure {
    /// The client's side failed or a filter refused: no upstream can help.
    Client(Stop),
    /// The upstream's connection ended or failed. `raced` marks a keep-alive race that may be repeated; `lost` is
    /// what a retry policy must know.
    Upstream { cause: &'static Cause, lost: Option<Lost> },
}

impl Failure {
    pub(super) fn cause(&self) -> &'static Cause {
        match self {
            Self::Client(stop) => stop.cause(),
            Self::Upstream { cause, .. } => cause,
        }
    }

    /// The race, if the upstream has not processed the request, as far as can be known.
    pub(super) fn race(&self) -> Option<Race> {
        match self {
            Self::Client(_) => None,
            Self::Upstream { lost, .. } => lost.as_ref()?.race,
        }
    }
}

/// The time limits of an attempt. A thousand connections that wait hold one each, so it refers to what is seldom
/// needed.
#[derive(Clone, Copy)]
pub(super) struct Waits<'a> {
    pub(super) response: Duration,
    pub(super) began: Instant,
    /// When the exchange must be over, and the cause if it is not.
    pub(super) end: Option<(Instant, &'static Cause)>,
    /// The upstream's, unless the body goes to a filter.
    pub(super) of_upstream: Option<&'a Timeouts>,
    /// Whether both sides may be silent as long as those of a tunnel.
    pub(super) streams: bool,
}

impl Waits<'_> {
    const fn end_at(&self) -> Option<Instant> {
        match self.end {
            Some((at, _)) => Some(at),
            None => None,
        }
    }
}

/// After this time the minimum of `timeouts.rate` applies to a request body.
const RATE_GRACE: Duration = Duration::from_secs(10);

/// Sends the request and reads until a response head, interim or final, is complete. `now` was read in this poll of
/// the task. Not an `async fn`, which would store its arguments twice.
pub(super) fn await_head<'a>(
    client: &'a mut Client,
    sent: &'a mut Sent,
    slot: &'a mut Option<Box<ResponseHead>>,
    watchers: Watchers<'a>,
    waits: &'a Waits<'_>,
    now: Instant,
) -> impl Future<Output = Result<(), Failure>> {
    client.deadline.set_within(now, waits.response, waits.end_at());
    let mut wait = HeadWait { client, sent, slot, watchers, waits, on: On::Response, steps: None };
    poll_fn(move |cx| wait.poll(cx))
}

/// The wait for a response head while the rest of the request is being sent.
struct HeadWait<'a> {
    client: &'a mut Client,
    sent: &'a mut Sent,
    slot: &'a mut Option<Box<ResponseHead>>,
    watchers: Watchers<'a>,
    waits: &'a Waits<'a>,
    /// What the deadline is for.
    on: On,
    /// How far the request was when its deadline was last set.
    steps: Option<u64>,
}

impl HeadWait<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.sent.upload.is_going() {
            self.poll_request(cx)?;
        }
        if let Poll::Ready(came) = self.poll_response(cx) {
            return Poll::Ready(came);
        }
        let watched = self.sent.upload.is_done()
            || self.client.stream.is_multiplexed()
            || self.sent.connection.relay.is_supplied();
        if watched && self.client.may_tell() && self.client.has_departed(cx, self.departure()) {
            return Poll::Ready(Err(Failure::Client(Stop::Cut(&error::CLIENT_CLOSED))));
        }
        self.client.deadline.poll_passed(cx).map(|()| Err(self.late()))
    }

    /// Which sign of the client's departure ends the attempt. Requests that the client has pipelined after this one
    /// are answered before its end counts.
    fn departure(&self) -> Departure {
        match self.sent.upload.departure {
            Departure::End if !self.sent.connection.relay.leftover().is_empty() => Departure::Reset,
            departure => departure,
        }
    }

    /// Sends more of the request and sets the deadline for the side we wait for.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        let Sent { connection, upload } = &mut *self.sent;
        let Carrier { stream, relay, .. } = &mut **connection;
        let mut watch = self.watchers.of_request(relay.taken());
        match relay.poll(cx, &mut self.client.stream, stream, watch.active()) {
            Poll::Ready(Ok(())) => {
                upload.state = Sending::Done;
                give_back(self.client, upload, relay);
            }
            // The upstream may have answered before it stopped reading: read the answer.
            Poll::Ready(Err(RelayError::Write(_))) => upload.state = Sending::Failed,
            Poll::Ready(Err(e)) => return Err(Failure::Client(client_fault(e, watch.refused.take()))),
            // All of it is sent, or none is due yet: the response's limit applies.
            Poll::Pending if relay.is_finished() || upload.holds_back(relay) => {}
            Poll::Pending if self.steps == Some(relay.steps()) => {}
            Poll::Pending => {
                self.steps = Some(relay.steps());
                self.on = arm(self.client, relay, self.waits);
            }
        }
        if !upload.is_going() && self.steps.take().is_some() {
            self.on = On::Response;
            let now = Instant::now();
            upload.ended = upload.is_done().then_some(now);
            self.client.deadline.set_within(now, self.waits.response, self.waits.end_at());
        }
        Ok(())
    }

    /// Reads until the head is complete.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let Sent { connection, upload } = &mut *self.sent;
        let Carrier { stream, relay, .. } = &mut **connection;
        loop {
            // Do not borrow a head only to find the upstream silent, as it is right after the request.
            if self.slot.is_none() && !stream.may_read(cx) {
                return Poll::Pending;
            }
            // Borrowed only while it holds bytes: a thousand waiting exchanges hold no buffer.
            let response = self.slot.get_or_insert_with(|| self.client.core.take_response());
            // The next head may have arrived with an interim response.
            if !response.buffer().is_empty() {
                let limits = &self.watchers.local.snapshot.head_limits;
                let parsed = match stream.h2() {
                    Some(stream) => stream.parse_response(response, limits),
                    None => parse_response(response, limits),
                };
                match parsed {
                    Ok(Progress::Complete) => {
                        if let Some(stream) = stream.h2() {
                            response.came_by_http2(stream.is_over());
                        } else if let Some(stream) = stream.fastcgi() {
                            response.came_by_records(stream.is_over() && response.rest().is_empty());
                        }
                        return Poll::Ready(Ok(()));
                    }
                    Ok(Progress::Partial) => {}
                    Err(_) if is_tls_record(response.buffer()) => {
                        upload.detail = Some(cut_detail(SPEAKS_TLS));
                        return Poll::Ready(Err(upstream_failure(&error::UPSTREAM_TLS)));
                    }
                    Err(e) => {
                        upload.detail = Some(cut_detail(&e.to_string()));
                        return Poll::Ready(Err(upstream_failure(&error::BAD_RESPONSE)));
                    }
                }
            }
            match stream.poll_read(cx, response.buffer_mut()) {
                Poll::Ready(Ok(0)) if response.buffer().is_empty() => {
                    return Poll::Ready(Err(upstream_failure(&error::UPSTREAM_CLOSED)));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(upstream_failure(&error::BAD_RESPONSE))),
                Poll::Ready(Ok(_)) => {
                    if !std::mem::replace(&mut upload.heard, true) && !upload.keeps {
                        relay.forget();
                        give_back(self.client, upload, relay);
                    }
                }
                Poll::Ready(Err(e)) => {
                    upload.detail = Some(cut_detail(&e.to_string()));
                    let fastcgi = stream.fastcgi();
                    upload.heard |=
                        fastcgi.is_some_and(|fastcgi| fastcgi.has_heard() && !fastcgi.is_refused());
                    let late = deadline::of_reset(stream, self.waits.end);
                    return Poll::Ready(Err(late.map_or_else(|| unread(&e, stream), upstream_failure)));
                }
                Poll::Pending => {
                    if response.buffer().is_empty()
                        && let Some(empty) = self.slot.take()
                    {
                        self.client.core.give_response(empty);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// The deadline has passed: blames the side we waited for.
    fn late(&self) -> Failure {
        if let Some((_, cause)) = self.waits.end.filter(|(end, _)| Instant::now() >= *end) {
            return upstream_failure(cause);
        }
        match self.on {
            On::Body => Failure::Client(Stop::refuse(&error::BODY_TIMEOUT)),
            On::Rate => Failure::Client(Stop::refuse(&error::BODY_TOO_SLOW)),
            On::Response | On::Upstream => upstream_failure(&error::RESPONSE_TIMEOUT),
        }
    }
}

/// The detail for an endpoint that answers plain HTTP with TLS.
const SPEAKS_TLS: &str =
    "it answered with TLS, and the upstream has no `tls`: add `tls: {}`, or name the port that speaks HTTP";

/// Whether these bytes are a TLS record instead of a response: an alert, with which a TLS server answers what it
/// cannot read, or a handshake.
fn is_tls_record(bytes: &[u8]) -> bool {
    matches!(bytes, [21 | 22, 3, ..])
}

/// The cause for a response that could not be read.
fn unread(e: &io::Error, stream: &Stream) -> Failure {
    upstream_failure(match e.kind() {
        _ if stream.fastcgi().is_some_and(FastCgi::is_refused) => &error::UPSTREAM_OVERLOADED,
        io::ErrorKind::InvalidData if stream.fastcgi().is_some() => &error::BAD_RESPONSE,
        // A host that HTTP/1.1 allows but HTTP/2 cannot express.
        io::ErrorKind::InvalidInput => return Failure::Client(Stop::refuse(&error::BAD_HOST)),
        io::ErrorKind::InvalidData if stream.h2().is_some() => &error::BAD_RESPONSE,
        io::ErrorKind::UnexpectedEof => &error::UPSTREAM_CLOSED,
        io::ErrorKind::Unsupported => &error::UPSTREAM_PROTOCOL,
        _ => &error::UPSTREAM_RESET,
    })
}

/// Returns the buffer of a request that was sent and need not be sent again.
pub(super) fn give_back(client: &Client, upload: &Upload, relay: &mut Relay) {
    if upload.is_done()
        && let Some(buffer) = relay.take_buffer()
    {
        client.core.give_buffer(buffer);
    }
}

/// What an attempt's deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// The client's next byte.
    Body,
    /// The client's minimum rate.
    Rate,
    /// The response.
    Response,
    /// An upstream that accepts no more of the body.
    Upstream,
}

/// Sets the deadline while a request body is under way.
pub(super) fn arm(client: &mut Client, relay: &Relay, waits: &Waits<'_>) -> On {
    let now = Instant::now();
    if relay.waits_for_writer() {
        let body = waits.of_upstream.map_or(Duration::ZERO, |upstream| upstream.body);
        client.deadline.set_within(now, body, waits.end_at());
        return On::Upstream;
    }
    let of_client = &client.listener.spec.timeouts;
    let (body, rate) = match waits.of_upstream {
        Some(upstream) if waits.streams => (upstream.tunnel, 0),
        _ => (of_client.body, of_client.rate),
    };
    let idle = if body.is_zero() { None } else { now.checked_add(body) };
    // The moment at which the body falls below the minimum rate, unless more arrives.
    let seconds = if rate == 0 { None } else { Some(relay.taken() as f64 / rate as f64) };
    let floor = seconds.and_then(|s| waits.began.checked_add(RATE_GRACE + Duration::from_secs_f64(s)));
    let rate_first = match (idle, floor) {
        (Some(idle), Some(floor)) => floor < idle,
        (None, Some(_)) => true,
        _ => false,
    };
    client.deadline.set_at(if rate_first { floor } else { idle }, waits.end_at());
    if rate_first { On::Rate } else { On::Body }
}

pub(super) const fn upstream_failure(cause: &'static Cause) -> Failure {
    Failure::Upstream { cause, lost: None }
}

/// What a failure on the client's side means.
pub(super) fn client_fault(e: RelayError, refused: Option<Stop>) -> Stop {
    match e {
        RelayError::Malformed(_) => Stop::refuse(&error::BAD_CHUNK),
        RelayError::Supply(_) => Stop::refuse(&error::BUFFER_DISK),
        RelayError::TooLarge => Stop::refuse(&error::BODY_TOO_LARGE),
        RelayError::Stopped => refused.unwrap_or_else(|| Stop::refuse(&error::INTERNAL)),
        RelayError::Read(_) | RelayError::Truncated | RelayError::Write(_) => {
            Stop::Cut(&error::CLIENT_CLOSED)
        }
    }
}
