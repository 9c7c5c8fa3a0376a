//! The request on its way to the upstream, and the wait for the head of its response.
//!
//! Both at once: an upstream may answer before it has read everything, and a client may wait for `100 Continue` before it
//! sends anything.

use super::{Stop, run_body_hook};
use crate::client::Client;
use crate::core::Local;
use crate::error::{self, Cause};
use crate::filter::{Cx, Flow, Hooks};
use crate::upstream::{Connection, Race};
use smallvec::SmallVec;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_h1::{Progress, ResponseHead, parse_response};
use weir_telemetry::log;
use weir_wire::relay::{Relay, RelayError, Stopped, Watch};

/// The request on its way to the upstream.
pub(super) struct Upload {
    pub(super) relay: Relay,
    /// The last byte was written.
    pub(super) done: bool,
    /// Writing failed, or the client's side did: nothing more will be sent.
    pub(super) failed: bool,
    /// A byte of a response came: the attempt can no more be taken for one that the upstream never saw.
    pub(super) heard: bool,
    /// The client waits for `100 Continue`, and none has been passed on.
    pub(super) expects_continue: bool,
}

impl Upload {
    /// Whether the client sends nothing because it was not told to yet.
    const fn holds_back(&self) -> bool {
        self.expects_continue && self.relay.taken() == 0
    }
}

/// Why an attempt brought no response head.
pub(super) enum Failure {
    /// The client's side is at fault, or a filter refused: no upstream can help.
    Client(Stop),
    /// The upstream's connection ended or failed. `raced`: the keep-alive race, and it may be repeated.
    Upstream { cause: &'static Cause, raced: Option<Race> },
}

/// The waits of an attempt.
pub(super) struct Waits {
    pub(super) response: Duration,
    pub(super) body: Duration,
    pub(super) rate: u64,
    /// How long the upstream may take nothing of the body.
    pub(super) upstream_body: Duration,
    pub(super) began: Instant,
    /// When the exchange must be over, and the cause if it is not.
    pub(super) end: Option<(Instant, &'static Cause)>,
    pub(super) limits: weir_h1::Limits,
}

impl Waits {
    const fn end_at(&self) -> Option<Instant> {
        match self.end {
            Some((at, _)) => Some(at),
            None => None,
        }
    }
}

/// After this time the floor of `timeouts.rate` counts for a request body.
const RATE_GRACE: Duration = Duration::from_secs(10);

/// Sends the request and reads until a response head, interim or final, is complete. `began`: when the attempt did.
pub(super) async fn await_head(
    client: &mut Client,
    connection: &mut Connection,
    upload: &mut Upload,
    slot: &mut Option<Box<ResponseHead>>,
    watch: &mut BodyWatch<'_>,
    waits: &Waits,
) -> Result<(), Failure> {
    client.deadline.set_within(Instant::now(), waits.response, waits.end_at());
    let mut on = On::Response;
    let mut steps = None;
    poll_fn(|cx| {
        loop {
            if !upload.done && !upload.failed {
                match upload.relay.poll(cx, &mut client.stream, &mut connection.stream, watch.active()) {
                    Poll::Ready(Ok(())) => {
                        upload.done = true;
                        give_back(client, upload);
                    }
                    // The upstream may have answered before it stopped reading: see what it said.
                    Poll::Ready(Err(RelayError::Write(_))) => upload.failed = true,
                    Poll::Ready(Err(e)) => {
                        return Poll::Ready(Err(Failure::Client(client_fault(e, watch.refused.take()))));
                    }
                    // All of it is on its way, or none of it is due yet: the response's time counts.
                    Poll::Pending if upload.relay.is_finished() || upload.holds_back() => {}
                    Poll::Pending if steps == Some(upload.relay.steps()) => {}
                    Poll::Pending => {
                        steps = Some(upload.relay.steps());
                        on = arm(client, &upload.relay, waits);
                    }
                }
                if (upload.done || upload.failed) && steps.take().is_some() {
                    on = On::Response;
                    client.deadline.set_within(Instant::now(), waits.response, waits.end_at());
                }
            }
            // Lent only while there is something in it: a thousand exchanges that wait hold no buffer.
            let response = slot.get_or_insert_with(|| client.core.take_response());
            // What follows an interim response may be here already.
            if !response.buffer().is_empty() {
                match parse_response(response, &waits.limits) {
                    Ok(Progress::Complete) => {
                        if let Some(stream) = connection.stream.h2() {
                            response.came_by_http2(stream.is_over());
                        }
                        return Poll::Ready(Ok(()));
                    }
                    Ok(Progress::Partial) => {}
                    Err(e) => return Poll::Ready(Err(bad_response(&e))),
                }
            }
            match connection.stream.poll_read(cx, response.buffer_mut()) {
                Poll::Ready(Ok(0)) if response.buffer().is_empty() => {
                    return Poll::Ready(Err(upstream_failure(&error::UPSTREAM_CLOSED)));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(upstream_failure(&error::BAD_RESPONSE))),
                Poll::Ready(Ok(_)) => {
                    if !std::mem::replace(&mut upload.heard, true) {
                        upload.relay.forget();
                        give_back(client, upload);
                    }
                }
                // A host that HTTP/1.1 lets pass and HTTP/2 can not say.
                Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::InvalidInput => {
                    return Poll::Ready(Err(Failure::Client(Stop::refuse(&error::BAD_HOST))));
                }
                Poll::Ready(Err(e)) => {
                    return Poll::Ready(Err(upstream_failure(match e.kind() {
                        io::ErrorKind::InvalidData if connection.stream.h2().is_some() => {
                            static SEEN: log::Every = log::every(Duration::from_secs(1));
                            SEEN.warn("upstream broke HTTP/2", &[("rule", &e)]);
                            &error::BAD_RESPONSE
                        }
                        io::ErrorKind::UnexpectedEof => &error::UPSTREAM_CLOSED,
                        io::ErrorKind::Unsupported => &error::UPSTREAM_PROTOCOL,
                        _ => &error::UPSTREAM_RESET,
                    })));
                }
                Poll::Pending => {
                    if response.buffer().is_empty()
                        && let Some(empty) = slot.take()
                    {
                        client.core.give_response(empty);
                    }
                    break;
                }
            }
        }
        if (upload.done || client.stream.h2().is_some()) && client.is_gone(cx) {
            return Poll::Ready(Err(Failure::Client(Stop::Cut(&error::CLIENT_CLOSED))));
        }
        if client.deadline.poll_passed(cx).is_pending() {
            return Poll::Pending;
        }
        if let Some((_, cause)) = waits.end.filter(|(end, _)| Instant::now() >= *end) {
            return Poll::Ready(Err(upstream_failure(cause)));
        }
        Poll::Ready(Err(match on {
            On::Body => Failure::Client(Stop::refuse(&error::BODY_TIMEOUT)),
            On::Rate => Failure::Client(Stop::refuse(&error::BODY_TOO_SLOW)),
            On::Response | On::Upstream => upstream_failure(&error::RESPONSE_TIMEOUT),
        }))
    })
    .await
}

/// Gives the buffer of a request back that was sent, and need not be sent again.
fn give_back(client: &Client, upload: &mut Upload) {
    if upload.done
        && let Some(buffer) = upload.relay.take_buffer()
    {
        client.core.give_buffer(buffer);
    }
}

/// What the deadline of an attempt stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// The client's next byte.
    Body,
    /// The floor of the client's rate.
    Rate,
    /// The response.
    Response,
    /// An upstream that takes no more of the body.
    Upstream,
}

/// Sets the deadline while a request body is under way.
fn arm(client: &mut Client, relay: &Relay, waits: &Waits) -> On {
    let now = Instant::now();
    if relay.waits_for_writer() {
        client.deadline.set_within(now, waits.upstream_body, waits.end_at());
        return On::Upstream;
    }
    let idle = if waits.body.is_zero() { None } else { now.checked_add(waits.body) };
    // At this moment the body will have been slower than the floor, if nothing more comes until then.
    let seconds = if waits.rate == 0 { None } else { Some(relay.taken() as f64 / waits.rate as f64) };
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
    Failure::Upstream { cause, raced: None }
}

fn bad_response(e: &weir_h1::Error) -> Failure {
    static SEEN: log::Every = log::every(Duration::from_secs(1));
    SEEN.warn("upstream broke HTTP/1.1", &[("rule", e)]);
    upstream_failure(&error::BAD_RESPONSE)
}

/// What a failure of the client's side means.
pub(super) fn client_fault(e: RelayError, refused: Option<Stop>) -> Stop {
    match e {
        RelayError::Malformed(_) => Stop::refuse(&error::BAD_CHUNK),
        RelayError::Stopped => refused.unwrap_or_else(|| Stop::refuse(&error::INTERNAL)),
        RelayError::Read(_) | RelayError::Truncated | RelayError::Write(_) => {
            Stop::Cut(&error::CLIENT_CLOSED)
        }
    }
}

/// Watches the request's body for filters and for `limits.body_bytes`, and keeps its trailers from naming what the route
/// answers for.
pub(super) struct BodyWatch<'a> {
    local: &'a Local,
    ran: &'a SmallVec<[u32; 8]>,
    cx: Option<&'a mut Cx>,
    hooked: bool,
    left: Option<u64>,
    pub(super) refused: Option<Stop>,
}

impl<'a> BodyWatch<'a> {
    /// `taken`: bytes of the body that were watched before.
    pub(super) fn new(
        local: &'a Local,
        ran: &'a SmallVec<[u32; 8]>,
        cx: Option<&'a mut Cx>,
        taken: u64,
    ) -> Self {
        let filters = &local.snapshot.filters;
        let hooked = ran.iter().any(|&f| filters[f as usize].hooks.has(Hooks::REQUEST_BODY));
        let left = local.snapshot.body_bytes.map(|limit| limit.saturating_sub(taken));
        Self { local, ran, cx, hooked, left, refused: None }
    }

    /// Itself, if there is anything to watch for.
    pub(super) fn active(&mut self) -> Option<&mut dyn Watch> {
        let guarded = !self.ran.is_empty() || !self.local.snapshot.matched_fields.is_empty();
        if self.hooked || self.left.is_some() || guarded { Some(self) } else { None }
    }
}

impl Watch for BodyWatch<'_> {
    fn sees_pieces(&self) -> bool {
        self.hooked || self.left.is_some()
    }

    fn may_trail(&self, name: &[u8]) -> bool {
        let snapshot = &self.local.snapshot;
        let mut ran = self.ran.iter().map(|&f| &snapshot.filters[f as usize]);
        !snapshot.matched_fields.reads(name) && !ran.any(|f| f.guards.request.reads(name))
    }

    fn piece(&mut self, data: &[u8], last: bool) -> Result<Option<Vec<u8>>, Stopped> {
        if let Some(left) = &mut self.left {
            let Some(rest) = left.checked_sub(data.len() as u64) else {
                self.refused = Some(Stop::refuse(&error::BODY_TOO_LARGE));
                return Err(Stopped);
            };
            *left = rest;
        }
        let (true, Some(cx)) = (self.hooked, &mut self.cx) else { return Ok(None) };
        let order = self.ran.iter().copied();
        let filters = &self.local.snapshot.filters;
        run_body_hook(filters, order, Hooks::REQUEST_BODY, cx, data, last, |f, p, cx| {
            f.on_request_body(p, cx)
        })
        .map_err(|flow| {
            self.refused = Some(match flow {
                Flow::Answer(answer) => Stop::Answer(answer),
                Flow::Refuse(refusal) => Stop::Refuse(refusal),
                Flow::Continue | Flow::Wait => Stop::refuse(&error::INTERNAL),
            });
            Stopped
        })
    }
}
