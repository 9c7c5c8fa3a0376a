//! Phase 4: attempts at endpoints, until one answers with a response head.
//!
//! Repeated are only two things, and neither can do harm: a connection that was refused (another endpoint is tried), and
//! the keep-alive race: a *reused* connection that ends before any byte of a response, when the request is idempotent or
//! no byte of it was written (RFC 9112 §9.3.1).

use super::{Exchange, Stop, run_body_hook};
use crate::connection::{Client, SEND_TIMEOUT};
use crate::core::Local;
use crate::error::{self, Cause};
use crate::filter::{Cx, Flow, Hooks};
use crate::forward;
use crate::upstream::{Active, Connection, LocalUpstream, Tried, Waited};
use smallvec::SmallVec;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_h1::{BodyKind, Progress, ResponseHead, Version, parse_response};
use weir_telemetry::Attempt as Outcome;
use weir_telemetry::log;
use weir_wire::dial::{DialError, dial};
use weir_wire::relay::{Framing, Relay, RelayError, Stopped, Watch};

/// An attempt that was answered.
pub(super) struct Attempt {
    pub(super) upstream: Rc<LocalUpstream>,
    pub(super) active: Active,
    pub(super) connection: Connection,
    pub(super) response: Box<ResponseHead>,
    pub(super) upload: Upload,
}

/// The request on its way to the upstream.
pub(super) struct Upload {
    pub(super) relay: Relay,
    /// The last byte was written.
    pub(super) done: bool,
    /// Writing failed, or the client's side did: nothing more will be sent.
    pub(super) failed: bool,
}

/// Why an attempt brought no response head.
enum Failure {
    /// The client's side is at fault, or a filter refused: no upstream can help.
    Client(Stop),
    /// The upstream's connection ended or failed. `raced`: the keep-alive race, and it may be repeated.
    Upstream { cause: &'static Cause, raced: bool },
}

/// Most interim responses to one request, in case an upstream never comes to the final one.
const MAX_INTERIM: u32 = 16;

/// How often the keep-alive race is repeated on a pooled connection before a fresh one is made.
const MAX_RACES: u32 = 1;

/// After this time the floor of `timeouts.rate` counts for a request body.
const RATE_GRACE: Duration = Duration::from_secs(10);

impl Exchange<'_> {
    /// Tries endpoints until one answers.
    pub(super) async fn attempt(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        index: usize,
    ) -> Result<Attempt, Stop> {
        self.facts.upstream = Some(index);
        let core = Rc::clone(&self.client.core);
        let endpoints = upstream.endpoints(&|key| core.pool(key));
        let mut tried = Tried::new();
        let mut races = 0;
        let mut last = &error::NO_ENDPOINT;
        loop {
            let Some(chosen) = upstream.pick(&endpoints, &tried) else { return Err(Stop::refuse(last)) };
            let mut active = Active::new(&endpoints, chosen);
            self.facts.endpoint = Some((Rc::clone(&endpoints), chosen));
            self.facts.attempts += 1;
            if self.facts.attempts > 1 {
                upstream.cells.retries.inc();
            }
            let connection = match self.connect(upstream, &mut active, races > MAX_RACES).await {
                Ok(connection) => connection,
                Err((cause, Connect::Refused)) => {
                    tried.push(chosen);
                    last = cause;
                    continue;
                }
                Err((cause, Connect::Failed)) => return Err(Stop::refuse(cause)),
            };
            match self.send(upstream, active, connection).await {
                Ok(attempt) => return Ok(attempt),
                Err(Failure::Upstream { raced: true, .. }) => races += 1,
                Err(Failure::Upstream { cause, .. }) => return Err(Stop::refuse(cause)),
                Err(Failure::Client(stop)) => return Err(stop),
            }
        }
    }

    /// A pooled connection, or a new one.
    async fn connect(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        active: &mut Active,
        fresh: bool,
    ) -> Result<Connection, (&'static Cause, Connect)> {
        if !fresh && let Some(connection) = active.get().pool.take() {
            upstream.cells.reused.inc();
            return Ok(connection);
        }
        let spec = &upstream.spec;
        let permit = match &spec.gate {
            None => None,
            Some(gate) => {
                match gate.enter().or_else(|| upstream.close_one_idle().then(|| gate.enter()).flatten()) {
                    Some(permit) => Some(permit),
                    None => match gate.wait(upstream, spec.timeouts.connect).await {
                        Waited::Permit(permit) => Some(permit),
                        Waited::Given(given) => {
                            *active = Active::new(&given.endpoints, given.index);
                            self.facts.endpoint = Some((given.endpoints, given.index));
                            upstream.cells.reused.inc();
                            return Ok(given.connection);
                        }
                        Waited::TooMany => return Err((&error::PENDING_LIMIT, Connect::Failed)),
                        Waited::TooLong => return Err((&error::PENDING_TIMEOUT, Connect::Failed)),
                    },
                }
            }
        };
        let endpoint = &active.get().endpoint;
        let tls = spec.tls.as_ref().map(|tls| (tls, &*endpoint.server_name));
        // Boxed: dialling is rare, and its future would make that of every idle connection larger.
        match Box::pin(dial(&endpoint.address, tls, spec.timeouts.connect)).await {
            Ok(dialled) => {
                upstream.cells.connects.inc();
                self.facts.timing.connect = dialled.connect;
                self.facts.timing.tls = dialled.tls;
                let expires = spec.max_age.map(|age| Instant::now() + self.jittered(age));
                Ok(Connection::new(dialled.stream, expires, &upstream.cells, permit))
            }
            Err(e) => {
                upstream.cells.connect_failures.inc();
                let (cause, outcome, connect) = match &e {
                    DialError::Failed(_) => {
                        (&error::CONNECT_FAILED, Outcome::ConnectFailed, Connect::Refused)
                    }
                    DialError::Refused(_) => {
                        (&error::CONNECT_REFUSED, Outcome::ConnectFailed, Connect::Refused)
                    }
                    DialError::TimedOut => {
                        (&error::CONNECT_TIMEOUT, Outcome::ConnectTimeout, Connect::Failed)
                    }
                    DialError::Tls(_) => (&error::UPSTREAM_TLS, Outcome::TlsFailed, Connect::Failed),
                };
                upstream.cells.attempt(outcome);
                complain(&spec.name, &endpoint.label, cause, &e);
                Err((cause, connect))
            }
        }
    }

    /// 90 to 100 % of an age, so that connections made together do not end together.
    fn jittered(&self, age: Duration) -> Duration {
        age.mul_f64(1.0 - f64::from(self.client.core.random.borrow_mut().below(1000)) / 10_000.0)
    }

    /// Sends the request and waits for a response head, passing interim responses on.
    async fn send(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        active: Active,
        mut connection: Connection,
    ) -> Result<Attempt, Failure> {
        let spec = Rc::clone(upstream);
        let spec = &spec.spec;
        let mut upload = self.begin_upload(spec, &active)?;
        let replayable = upload.relay.is_finished();
        let route = &self.local.snapshot.routes[self.facts.route.unwrap_or_default()];
        let wait = Waits {
            response: route.response_timeout.unwrap_or(spec.timeouts.response),
            body: self.client.listener.spec.timeouts.body,
            rate: self.client.listener.spec.timeouts.rate,
            end: exchange_end(self.facts.started, route.exchange_timeout.unwrap_or(spec.timeouts.exchange)),
        };
        self.client.presence.waiting.set(1);
        let _waiting = super::transfer::Waiting(Rc::clone(&self.client.presence));
        let mut slot: Option<Box<ResponseHead>> = None;
        let mut continued = false;
        let asked = Instant::now();
        for _ in 0..MAX_INTERIM {
            let waited = {
                let local = &self.local;
                let mut watch = BodyWatch::new(local, &self.ran, self.cx.as_mut());
                let expects = self.head.expects_continue() && !continued;
                await_head(self.client, &mut connection, &mut upload, &mut slot, &mut watch, &wait, expects)
                    .await
            };
            let mut response = slot.take().unwrap_or_default();
            let failure = match waited {
                Ok(()) if response.status() >= 200 || response.status() == 101 => {
                    self.facts.timing.first_byte = asked.elapsed();
                    upstream.cells.attempt(Outcome::Answered);
                    self.facts.body_in = upload.relay.taken();
                    if response.status() == 101 && self.head.upgrade().is_none() {
                        return Err(Failure::Upstream { cause: &error::UPGRADE_REFUSED, raced: false });
                    }
                    let upstream = Rc::clone(upstream);
                    return Ok(Attempt { upstream, active, connection, response, upload });
                }
                Ok(()) => {
                    continued |= response.status() == 100;
                    match self.pass_interim(&mut response).await {
                        Ok(()) => {
                            slot = Some(response);
                            continue;
                        }
                        Err(stop) => Failure::Client(stop),
                    }
                }
                Err(failure) => failure,
            };
            self.facts.body_in = upload.relay.taken();
            self.keep_what_follows(&upload);
            let nothing_came = response.buffer().is_empty() && response.wire_len() == 0;
            self.client.core.give_response(response);
            return Err(self.judge(
                failure,
                upstream,
                &active,
                &connection,
                &upload,
                replayable && nothing_came,
            ));
        }
        Err(Failure::Upstream { cause: &error::BAD_RESPONSE, raced: false })
    }

    /// Counts a failed attempt and decides whether it was the keep-alive race.
    fn judge(
        &self,
        failure: Failure,
        upstream: &LocalUpstream,
        active: &Active,
        connection: &Connection,
        upload: &Upload,
        replayable: bool,
    ) -> Failure {
        let Failure::Upstream { cause, .. } = failure else {
            upstream.cells.attempt(Outcome::Canceled);
            return failure;
        };
        upstream.cells.attempt(match cause.code {
            "bad_response" => Outcome::ProtocolError,
            "response_timeout" | "exchange_timeout" => Outcome::ResponseTimeout,
            _ => Outcome::Reset,
        });
        let ended = *cause == error::UPSTREAM_CLOSED || *cause == error::UPSTREAM_RESET;
        let harmless = self.head.method().is_idempotent() || upload.relay.sent() == 0;
        let raced = ended && connection.reused && replayable && harmless;
        if !raced {
            complain(&upstream.spec.name, &active.get().endpoint.label, cause, &cause.meaning);
        }
        Failure::Upstream { cause, raced }
    }

    /// Writes the head into the upload and takes what came of the body already.
    fn begin_upload(&mut self, spec: &crate::upstream::Upstream, active: &Active) -> Result<Upload, Failure> {
        let kind = self.head.body();
        let hooked = self.any_ran_with(Hooks::REQUEST_BODY);
        let framing = match kind {
            BodyKind::Chunked => Framing::Chunked,
            // A filter may change the length; whether it will is known only at the end.
            BodyKind::Length(_) if hooked => Framing::Chunked,
            _ => Framing::Length,
        };
        let mut out = self.client.core.take_buffer();
        let endpoint = &active.get().endpoint;
        forward::write_head(&mut self.head, &self.client.forwarding, &spec.host, endpoint, framing, &mut out);
        let mut relay = Relay::new(kind, framing, out);
        let mut watch = BodyWatch::new(&self.local, &self.ran, self.cx.as_mut());
        let primed = relay.prime(self.head.rest(), watch.active());
        let refused = watch.refused.take();
        match primed {
            Ok(used) => self.used = used,
            Err(e) => return Err(Failure::Client(client_fault(e, refused))),
        }
        self.request_over = relay.is_finished();
        self.facts.body_in = relay.taken();
        Ok(Upload { relay, done: false, failed: false })
    }

    /// Remembers what was read behind the request's body.
    pub(super) fn keep_what_follows(&mut self, upload: &Upload) {
        self.request_over = upload.relay.is_finished();
        if self.request_over {
            self.leftover = upload.relay.leftover().to_vec();
        }
    }

    /// Passes a 1xx on, to clients that know what it is (RFC 9110 §15.2), and makes room for what follows it.
    async fn pass_interim(&mut self, response: &mut ResponseHead) -> Result<(), Stop> {
        if self.head.version() == Version::Http11 {
            let mut out = self.client.core.take_buffer();
            super::transfer::write_status(response, &mut out);
            response.headers.write_to(&mut out);
            out.extend_from_slice(b"\r\n");
            self.facts.sent += out.len() as u64;
            self.client.write_all(out).await.map_err(Stop::Cut)?;
        }
        response.recycle(0);
        Ok(())
    }
}

/// What can be done about a connection that was not made.
enum Connect {
    /// Nothing.
    Failed,
    /// Another endpoint can be tried.
    Refused,
}

/// The waits of an attempt.
struct Waits {
    response: Duration,
    body: Duration,
    rate: u64,
    end: Option<Instant>,
}

pub(super) fn exchange_end(started: Instant, limit: Duration) -> Option<Instant> {
    if limit.is_zero() { None } else { started.checked_add(limit) }
}

/// Sends the request and reads until a response head, interim or final, is complete.
async fn await_head(
    client: &mut Client,
    connection: &mut Connection,
    upload: &mut Upload,
    slot: &mut Option<Box<ResponseHead>>,
    watch: &mut BodyWatch<'_>,
    waits: &Waits,
    expects_continue: bool,
) -> Result<(), Failure> {
    let limits = client.core.local().snapshot.head_limits;
    let began = Instant::now();
    client.deadline.set_within(began, waits.response, waits.end);
    let mut armed_for = On::Response;
    let mut steps = upload.relay.steps();
    poll_fn(|cx| {
        loop {
            if !upload.done && !upload.failed {
                match upload.relay.poll(cx, &mut client.stream, &mut connection.stream, watch.active()) {
                    Poll::Ready(Ok(())) => {
                        upload.done = true;
                        client.core.give_buffer(upload.relay.take_buffer());
                        if armed_for != On::Response {
                            armed_for = On::Response;
                            client.deadline.set_within(Instant::now(), waits.response, waits.end);
                        }
                    }
                    // The upstream may have answered before it stopped reading: see what it said.
                    Poll::Ready(Err(RelayError::Write(_))) => upload.failed = true,
                    Poll::Ready(Err(e)) => {
                        return Poll::Ready(Err(Failure::Client(client_fault(e, watch.refused.take()))));
                    }
                    Poll::Pending if expects_continue && upload.relay.taken() == 0 => {}
                    Poll::Pending => {
                        let moved = upload.relay.steps() != steps;
                        if moved || armed_for == On::Response {
                            steps = upload.relay.steps();
                            armed_for = arm(client, &upload.relay, waits, began);
                        }
                    }
                }
            }
            // Lent only while there is something in it: a thousand exchanges that wait hold no buffer.
            let response = slot.get_or_insert_with(|| client.core.take_response());
            match connection.stream.poll_read(cx, response.buffer_mut()) {
                Poll::Ready(Ok(0)) if response.rest().is_empty() => {
                    return Poll::Ready(Err(upstream_failure(&error::UPSTREAM_CLOSED)));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(upstream_failure(&error::BAD_RESPONSE))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(e)) => {
                    return Poll::Ready(Err(upstream_failure(match e.kind() {
                        io::ErrorKind::UnexpectedEof => &error::UPSTREAM_CLOSED,
                        _ => &error::UPSTREAM_RESET,
                    })));
                }
                // What followed an interim response may be complete already.
                Poll::Pending if response.rest().is_empty() => {
                    if let Some(empty) = slot.take() {
                        client.core.give_response(empty);
                    }
                    break;
                }
                Poll::Pending => match parse_response(response, &limits) {
                    Ok(Progress::Complete) => return Poll::Ready(Ok(())),
                    Ok(Progress::Partial) => break,
                    Err(e) => return Poll::Ready(Err(bad_response(&e))),
                },
            }
            match parse_response(response, &limits) {
                Ok(Progress::Complete) => return Poll::Ready(Ok(())),
                Ok(Progress::Partial) => {}
                Err(e) => return Poll::Ready(Err(bad_response(&e))),
            }
        }
        if upload.done && client.presence.is_watched() && client.stream.is_reset(cx) {
            return Poll::Ready(Err(Failure::Client(Stop::Cut(&error::CLIENT_CLOSED))));
        }
        if client.deadline.poll_passed(cx).is_pending() {
            return Poll::Pending;
        }
        let ended = waits.end.is_some_and(|end| Instant::now() >= end);
        Poll::Ready(Err(match armed_for {
            _ if ended => upstream_failure(&error::EXCHANGE_TIMEOUT),
            On::Body => Failure::Client(Stop::refuse(&error::BODY_TIMEOUT)),
            On::Rate => Failure::Client(Stop::refuse(&error::BODY_TOO_SLOW)),
            On::Response => upstream_failure(&error::RESPONSE_TIMEOUT),
        }))
    })
    .await
}

/// What the deadline of an attempt stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Body,
    Rate,
    Response,
}

/// Sets the deadline while a request body is under way: the client's next byte, the floor of its rate, or an upstream that
/// takes nothing.
fn arm(client: &mut Client, relay: &Relay, waits: &Waits, began: Instant) -> On {
    let now = Instant::now();
    if relay.waits_for_writer() {
        client.deadline.set_within(now, SEND_TIMEOUT, waits.end);
        return On::Response;
    }
    let idle = if waits.body.is_zero() { None } else { now.checked_add(waits.body) };
    // At this moment the body will have been slower than the floor, if nothing more comes until then.
    let seconds = if waits.rate == 0 { None } else { Some(relay.taken() as f64 / waits.rate as f64) };
    let floor = seconds.and_then(|s| began.checked_add(RATE_GRACE + Duration::from_secs_f64(s)));
    let rate_first = match (idle, floor) {
        (Some(idle), Some(floor)) => floor < idle,
        (None, Some(_)) => true,
        _ => false,
    };
    let at = if rate_first { floor } else { idle };
    client.deadline.set_at(at, waits.end);
    if rate_first { On::Rate } else { On::Body }
}

const fn upstream_failure(cause: &'static Cause) -> Failure {
    Failure::Upstream { cause, raced: false }
}

fn bad_response(e: &weir_h1::Error) -> Failure {
    static SEEN: log::Every = log::every(Duration::from_secs(1));
    SEEN.warn("upstream broke HTTP/1.1", &[("rule", e)]);
    upstream_failure(&error::BAD_RESPONSE)
}

/// What a failure of the client's side means.
fn client_fault(e: RelayError, refused: Option<Stop>) -> Stop {
    match e {
        RelayError::Malformed(_) => Stop::refuse(&error::BAD_CHUNK),
        RelayError::Stopped => refused.unwrap_or_else(|| Stop::refuse(&error::INTERNAL)),
        RelayError::Read(_) | RelayError::Truncated | RelayError::Write(_) => {
            Stop::Cut(&error::CLIENT_CLOSED)
        }
    }
}

/// One line of the log for a failing endpoint; at most one a second, with a count of the others.
fn complain(upstream: &str, endpoint: &str, cause: &Cause, e: &dyn std::fmt::Display) {
    static SEEN: log::Every = log::every(Duration::from_secs(1));
    SEEN.warn(
        "upstream failed",
        &[("upstream", &upstream), ("endpoint", &endpoint), ("cause", &cause.code), ("error", &e)],
    );
}

/// Watches the request's body for filters and for `limits.body_bytes`.
pub(super) struct BodyWatch<'a> {
    local: &'a Local,
    ran: &'a SmallVec<[u32; 8]>,
    cx: Option<&'a mut Cx>,
    hooked: bool,
    left: Option<u64>,
    pub(super) refused: Option<Stop>,
}

impl<'a> BodyWatch<'a> {
    pub(super) fn new(local: &'a Local, ran: &'a SmallVec<[u32; 8]>, cx: Option<&'a mut Cx>) -> Self {
        let filters = &local.snapshot.filters;
        let hooked = ran.iter().any(|&f| filters[f as usize].hooks.has(Hooks::REQUEST_BODY));
        Self { local, ran, cx, hooked, left: local.snapshot.body_bytes, refused: None }
    }

    /// Itself, if there is anything to watch for.
    pub(super) fn active(&mut self) -> Option<&mut dyn Watch> {
        if self.hooked || self.left.is_some() { Some(self) } else { None }
    }
}

impl Watch for BodyWatch<'_> {
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
