//! Phase 4: attempts at endpoints, until one answers with a response head.
//!
//! Repeated are only two things, and neither can do harm: a connection that was refused (another endpoint is tried), and
//! the keep-alive race: a *reused* connection that ends before any byte of a response, when the request is idempotent or
//! no byte of it was written (RFC 9112 §9.3.1).

use super::upload::{BodyWatch, Failure, Upload, Waits, await_head, client_fault};
use super::{Exchange, Stop};
use crate::error::{self, Cause};
use crate::filter::Hooks;
use crate::forward::{self, Said};
use crate::upstream::{Active, Connection, Entered, LocalUpstream, Tried};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_h1::{BodyKind, ResponseHead, Version};
use weir_telemetry::Attempt as Outcome;
use weir_telemetry::log;
use weir_wire::dial::{DialError, dial};
use weir_wire::relay::{Framing, Relay};

/// An attempt that was answered.
pub(super) struct Attempt {
    pub(super) upstream: Rc<LocalUpstream>,
    pub(super) active: Active,
    pub(super) connection: Connection,
    pub(super) response: Box<ResponseHead>,
    pub(super) upload: Upload,
}

/// Most interim responses to one request, in case an upstream never comes to the final one.
const MAX_INTERIM: u32 = 16;

/// How often the keep-alive race is repeated on a pooled connection before a fresh one is made.
const MAX_RACES: u32 = 1;

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
        let once = !self.head.method().is_idempotent();
        let permit = match upstream.enter(active, fresh, once).await {
            Ok(Entered::Connection(connection)) => {
                self.facts.endpoint = Some(active.place()); // one that was handed over may lead elsewhere
                return Ok(connection);
            }
            Ok(Entered::Dial(permit)) => permit,
            Err(cause) => return Err((cause, Connect::Failed)),
        };
        let spec = &upstream.spec;
        let endpoint = &active.get().endpoint;
        let tls = spec.tls.as_ref().map(|tls| (tls, &*endpoint.server_name));
        // Boxed: dialling is rare, and its future would make that of every idle connection larger.
        let left = self.time_left(spec.timeouts.exchange);
        let timeout = left.map_or(spec.timeouts.connect, |left| left.min(spec.timeouts.connect));
        match Box::pin(dial(&endpoint.address, tls, timeout)).await {
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

    /// What is left of the exchange's own time, if it is limited.
    fn time_left(&self, of_upstream: Duration) -> Option<Duration> {
        let route = &self.local.routes[self.facts.route.unwrap_or_default()].handling;
        let end = exchange_end(self.facts.started, route.exchange_timeout.unwrap_or(of_upstream))?;
        Some(end.saturating_duration_since(Instant::now()))
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
        let began = Instant::now();
        let route = &self.local.routes[self.facts.route.unwrap_or_default()].handling;
        let wait = Waits {
            response: route.response_timeout.unwrap_or(spec.timeouts.response),
            body: self.client.listener.spec.timeouts.body,
            rate: self.client.listener.spec.timeouts.rate,
            upstream_body: spec.timeouts.body,
            began,
            limits: self.local.snapshot.head_limits,
            end: exchange_end(self.facts.started, route.exchange_timeout.unwrap_or(spec.timeouts.exchange)),
        };
        self.client.presence.waiting.set(1);
        let _waiting = super::transfer::Waiting(Rc::clone(&self.client.presence));
        let mut slot: Option<Box<ResponseHead>> = None;
        for _ in 0..MAX_INTERIM {
            let waited = {
                let local = &self.local;
                let mut watch = BodyWatch::new(local, &self.ran, self.cx.as_mut(), upload.relay.taken());
                await_head(self.client, &mut connection, &mut upload, &mut slot, &mut watch, &wait).await
            };
            let mut response = slot.take().unwrap_or_default();
            let failure = match waited {
                Ok(()) if response.status() >= 200 || response.status() == 101 => {
                    self.facts.timing.first_byte = began.elapsed();
                    upstream.cells.attempt(Outcome::Answered);
                    self.facts.body_in = self.facts.body_in.max(upload.relay.taken());
                    if response.status() == 101 && (self.head.upgrade().is_none() || !upload.done) {
                        return Err(Failure::Upstream { cause: &error::UPGRADE_REFUSED, raced: false });
                    }
                    let upstream = Rc::clone(upstream);
                    return Ok(Attempt { upstream, active, connection, response, upload });
                }
                Ok(()) => {
                    upload.expects_continue &= response.status() != 100;
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
            self.facts.body_in = self.facts.body_in.max(upload.relay.taken());
            self.keep_what_follows(&upload);
            self.client.core.give_response(response);
            return Err(self.judge(
                failure,
                upstream,
                &active,
                &connection,
                &upload,
                replayable && !upload.heard,
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
        let client = &self.client.forwarding;
        self.forwarded = self.forwarded.take().or_else(|| forward::chain(&mut self.head, client));
        let said = self.forwarded.as_deref().map_or(Said::Client(client), Said::Lines);
        forward::write_head(&mut self.head, said, &spec.host, endpoint, framing, &mut out);
        let expects_continue = self.head.expects_continue();
        if let Some(body) = &self.replay {
            // The filters have seen this body, and it has been framed: a repeat sends the same bytes.
            out.extend_from_slice(body);
            let mut relay = Relay::new(BodyKind::Empty, Framing::Length, out);
            let _ = relay.prime(&[], None); // an empty body breaks no rule
            return Ok(Upload { relay, done: false, failed: false, heard: false, expects_continue });
        }
        let head_len = out.len();
        let mut relay = Relay::new(kind, framing, out);
        let mut watch = BodyWatch::new(&self.local, &self.ran, self.cx.as_mut(), 0);
        let primed = relay.prime(self.head.rest(), watch.active());
        let refused = watch.refused.take();
        match primed {
            Ok(used) => self.used = used,
            Err(e) => return Err(Failure::Client(client_fault(e, refused))),
        }
        self.request_over = relay.is_finished();
        self.facts.body_in = relay.taken();
        if hooked && self.request_over {
            self.replay = Some(relay.framed().get(head_len..).unwrap_or_default().to_vec());
        }
        Ok(Upload { relay, done: false, failed: false, heard: false, expects_continue })
    }

    /// Remembers what was read behind the request's body.
    pub(super) fn keep_what_follows(&mut self, upload: &Upload) {
        self.request_over |= upload.relay.is_finished();
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

pub(super) fn exchange_end(started: Instant, limit: Duration) -> Option<Instant> {
    if limit.is_zero() { None } else { started.checked_add(limit) }
}

/// One line of the log for a failing endpoint; at most one a second, with a count of the others.
fn complain(upstream: &str, endpoint: &str, cause: &Cause, e: &dyn std::fmt::Display) {
    static SEEN: log::Every = log::every(Duration::from_secs(1));
    SEEN.warn(
        "upstream failed",
        &[("upstream", &upstream), ("endpoint", &endpoint), ("cause", &cause.code), ("error", &e)],
    );
}
