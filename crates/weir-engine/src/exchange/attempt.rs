//! Phase 4: attempts at endpoints, until one answers with a response head.
//!
//! `upstream/attempts.rs` chooses the next endpoint, and `upstream/retry.rs` decides about repeats. Four repeats need
//! no policy, because none can do harm:
//!
//! - a failed connect, at another endpoint;
//! - the keep-alive race: a *reused* connection ends before any byte of a response. Requires an idempotent request,
//!   or that no byte of it was written (RFC 9112 §9.3.1);
//! - a new connection that ends so, once, at another endpoint, if the request is idempotent (RFC 9110 §9.2.2);
//! - a request that an HTTP/2 upstream says it has not processed (RFC 9113 §8.7).

use super::bodies::{BodyWatch, Watchers};
use super::deadline::sooner;
use super::hedge::First;
use super::retry_facts::is_well;
use super::script::write_whole;
use super::sent::{Answered, Attempt, Sent, Written};
use super::upload::{Failure, Sending, Upload, Waits, await_head, client_fault, give_back, upstream_failure};
use super::{Exchange, Routed, Stop, unless};
use crate::autopsy::kept::{Outcome as Ended, cut_detail};
use crate::client::Departure;
use crate::forward::{self, ForwardingFields};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use weir_filter::filter::Cx;
use weir_filter::template::Values;
use weir_h1::{BodyKind, ResponseHead, Version};
use weir_telemetry::Attempt as Outcome;
use weir_upstream::error;
use weir_upstream::upstream::{
    Active, Attempts, ClientGone, ConnectError, Connection, LocalUpstream, Lost, Measurement, Wanted,
    complain, connect, kept_body, pooled,
};
use weir_wire::Stream;
use weir_wire::relay::{Framing, Relay};

/// Most interim responses to one request, in case an upstream never sends the final one.
const MAX_INTERIM: u32 = 16;

/// What follows an attempt.
enum Settled {
    /// The response goes to the client.
    Answer(Answered),
    /// Another attempt, after this pause.
    Again(Duration),
}

impl Exchange<'_> {
    /// Tries endpoints until one answers. Stores that attempt where its response is delivered from: returned through
    /// the futures, it would be copied five times.
    pub(super) async fn attempt(
        &mut self,
        routed: Routed,
        answered: &mut Option<Attempt>,
    ) -> Result<(), Stop> {
        self.record.upstream = Some(routed.upstream);
        let upstream = &Rc::clone(&self.local.upstreams[routed.upstream]);
        let mut attempts = Attempts::new(upstream);
        attempts.tie(upstream, &self.head, || self.client_address(), || self.hashed_text(routed.upstream));
        loop {
            let began = self.attempt_began();
            let mut now = began;
            let mut active = attempts.next(upstream).map_err(Stop::refuse)?;
            self.attempts += 1;
            self.record.endpoint = Some(active.place());
            self.record.attempt = Some(began);
            if self.record.trace.is_some() {
                self.trace_attempt(upstream, &active, began);
            }
            if self.attempt_begins(upstream, active.get(), began)? {
                Box::pin(self.attempt_waits(upstream, active.get())).await?;
                now = Instant::now();
            }
            let connected = match self.pooled(upstream, &active, &attempts) {
                Some(connection) => Ok(connection),
                None => {
                    let connected = self.connect(routed, upstream, &mut active, &mut attempts).await?;
                    now = Instant::now();
                    connected
                }
            };
            let Some(connection) = self.connected(connected, upstream, &active, &mut attempts, began)? else {
                continue;
            };
            let sent =
                self.send(routed, upstream, &mut active, &mut attempts, connection, (began, now)).await;
            let pause = match self.settle(routed, upstream, &active, &mut attempts, sent, began)? {
                Settled::Answer(Answered { sent, response }) => {
                    let (upstream, reusable) = (Rc::clone(upstream), false);
                    *answered = Some(Attempt { routed, upstream, active, sent, response, reusable });
                    return Ok(());
                }
                Settled::Again(pause) => pause,
            };
            let departure = self.departure(routed, &upstream.spec);
            self.pause(pause, departure).await?;
        }
    }

    /// What the expression in `balancer.hash.by` comes to.
    #[cold]
    fn hashed_text(&self, upstream: usize) -> Option<Vec<u8>> {
        let text = self.local.snapshot.hashed.get(upstream)?.as_ref()?;
        let made;
        let cx = match &self.cx {
            Some(cx) => cx,
            None => {
                let scope = Rc::clone(&self.local.routes[self.route?].scope);
                made = self.context(scope);
                &made
            }
        };
        Some(text.apart(&Values::of(&self.head, cx)))
    }

    /// The connection, or `None` if there is none and another endpoint is tried. Like [`Exchange::settle`], a
    /// function of its own so that its values take no place in the future of every waiting connection.
    #[inline(always)] // a call costs 25 instructions
    fn connected(
        &mut self,
        connected: Result<Connection, ConnectError>,
        upstream: &Rc<LocalUpstream>,
        active: &Active,
        attempts: &mut Attempts,
        began: Instant,
    ) -> Result<Option<Connection>, Stop> {
        let e = match connected {
            Ok(connection) => {
                attempts.count(upstream);
                return Ok(Some(connection));
            }
            Err(e) => e,
        };
        self.attempt_ends(0, Some(e.cause));
        self.record.detail(active.get().take_detail().map(|detail| cut_detail(&detail)));
        if e.is_avoided() {
            self.attempt_avoided(began);
        } else {
            attempts.count(upstream);
            self.attempt_failed(active, Ended::Cause(e.cause), began);
        }
        attempts.unreached(upstream, active, e).map_err(Stop::refuse)?;
        Ok(None)
    }

    /// Decides whether the attempt was the last.
    #[inline(always)] // a call costs 40 instructions
    fn settle(
        &mut self,
        routed: Routed,
        upstream: &LocalUpstream,
        active: &Active,
        attempts: &mut Attempts,
        sent: Result<Answered, Failure>,
        began: Instant,
    ) -> Result<Settled, Stop> {
        match &sent {
            Ok(answered) => {
                self.attempt_answered(&answered.response);
                if self.record.trace.is_some() {
                    self.trace_status(&answered.response);
                }
            }
            Err(failure) => self.attempt_ends(0, Some(failure.cause())),
        }
        match sent {
            Ok(mut answered) => {
                let has_policy = upstream.spec.retry.is_some();
                let lost = has_policy.then(|| self.facts_of_answer(&answered));
                let pause = lost.and_then(|lost| self.again(routed, upstream, active, attempts, lost));
                let Some(pause) = pause else {
                    let sent = &mut answered.sent;
                    if let Some(trace) = &mut self.record.trace {
                        let by_http2 = sent.connection.stream.h2().is_some();
                        trace.answered(self.record.attempt, answered.response.status(), by_http2);
                    }
                    if sent.upload.keeps {
                        sent.connection.relay.forget();
                        give_back(self.client, &sent.upload, &mut sent.connection.relay);
                    }
                    return Ok(Settled::Answer(answered));
                };
                self.attempt_failed(active, Ended::Status(answered.response.status()), began);
                self.discard(upstream, active, answered);
                Ok(Settled::Again(pause))
            }
            Err(Failure::Upstream { cause, lost }) => {
                self.attempt_failed(active, Ended::Cause(cause), began);
                let pause = lost.and_then(|lost| self.again(routed, upstream, active, attempts, lost));
                pause.map(Settled::Again).ok_or_else(|| Stop::refuse(cause))
            }
            Err(Failure::Client(stop)) => Err(stop),
        }
    }

    /// The pause before the request is sent again, if it is.
    fn again(
        &self,
        routed: Routed,
        upstream: &LocalUpstream,
        active: &Active,
        attempts: &mut Attempts,
        lost: Lost,
    ) -> Option<Duration> {
        let end = self.end(routed, upstream.spec.timeouts.exchange);
        attempts.again(upstream, active, lost, end.map(|(at, _)| at))
    }

    /// The start of the attempt: now. If the head arrived in one piece and nothing was waited for since, the request's
    /// start is used instead. Not on a multiplexed connection, where the request may have waited for its turn. Nor with
    /// spans, because an attempt's span lies within the request's.
    fn attempt_began(&self) -> Instant {
        let has_waited = self.has_waited || self.client.stream.is_multiplexed();
        let is_first = self.attempts == 0 && !has_waited && self.head_took.is_zero();
        if is_first && self.record.trace.is_none() { self.started } else { Instant::now() }
    }

    /// What the next attempt needs from a connection.
    fn wanted(&self, upstream: &LocalUpstream, attempts: &Attempts) -> Wanted {
        let once = !self.head.method().is_idempotent();
        let owner = upstream.spec.way.proxy_protocol.and_then(|_| self.client.owner().cloned());
        Wanted { owner, ..attempts.wanted(once) }
    }

    /// A pooled connection. Separate from [`Exchange::connect`], which has to wait.
    #[inline(always)] // a call costs 30 instructions
    fn pooled(
        &mut self,
        upstream: &LocalUpstream,
        active: &Active,
        attempts: &Attempts,
    ) -> Option<Connection> {
        self.record.dialled(Duration::ZERO, Duration::ZERO);
        let connection = pooled(upstream, active, &self.wanted(upstream, attempts));
        self.record.reused = connection.as_ref().is_some_and(|connection| connection.reused);
        connection
    }

    /// A connection if the pool has none.
    async fn connect(
        &mut self,
        routed: Routed,
        upstream: &Rc<LocalUpstream>,
        active: &mut Active,
        attempts: &mut Attempts,
    ) -> Result<Result<Connection, ConnectError>, Stop> {
        let end = self.end(routed, upstream.spec.timeouts.exchange);
        let another = end.is_some() && attempts.has_another(upstream, active);
        let wanted = Wanted { end, another, ..self.wanted(upstream, attempts) };
        // Boxed: dialing is rare, and its future would enlarge that of every idle connection.
        let mut connecting = Box::pin(connect(upstream, active, wanted));
        let departure = self.departure(routed, &upstream.spec);
        let connected = unless(self.client, connecting.as_mut(), departure).await;
        drop(connecting);
        let connected = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(gone) => {
                self.attempt_ends(0, Some(gone.cause()));
                upstream.cells.attempt(Outcome::Canceled);
                attempts.count(upstream);
                return Err(gone);
            }
        };
        self.record.endpoint = Some(active.place()); // a handed-over connection may lead to another
        self.record.dialled(connected.connect, connected.tls);
        self.record.reused = connected.connection.reused;
        Ok(Ok(connected.connection))
    }

    /// Sends the request and waits for a response head, passing interim responses on. `attempt` is when the attempt
    /// began, `began` when it had a connection: the same reading of the clock if the pool had one.
    #[allow(
        clippy::manual_async_fn,
        reason = "an async fn stores its arguments twice, in every waiting connection"
    )]
    fn send(
        &mut self,
        routed: Routed,
        upstream: &Rc<LocalUpstream>,
        active: &mut Active,
        attempts: &mut Attempts,
        mut connection: Connection,
        (attempt, began): (Instant, Instant),
    ) -> impl Future<Output = Result<Answered, Failure>> {
        async move {
            let spec = &upstream.spec;
            let upload = self.begin_upload(routed, spec, active, &mut connection)?;
            let mut measured = active.measure(|| began, self.request_over);
            let wait = self.waits(routed, spec, (attempt, began), connection.stream.h2().is_some());
            let mut sent = Sent { connection, upload };
            let mut hedge = spec.hedge.as_ref().filter(|_| self.may_hedge());
            let _waiting = self.client.handle.wait();
            let mut slot: Option<Box<ResponseHead>> = None;
            let mut now = Some(began); // valid until the first wait
            let mut interim = 0;
            loop {
                let waited = if let Some(hedge) = hedge.take() {
                    let (sent, slot, measured) = (&mut sent, &mut slot, &mut measured);
                    let first = First { active, sent, slot, measured, wait, began: attempt };
                    // Boxed: few upstreams hedge, and the future is large.
                    Box::pin(self.await_hedged(routed, upstream, attempts, hedge, first)).await
                } else {
                    let watchers = Watchers { local: &self.local, ran: &self.ran, cx: self.cx.as_mut() };
                    let now = now.take().unwrap_or_else(Instant::now);
                    await_head(self.client, &mut sent, &mut slot, watchers, &wait, now).await
                };
                self.client.stream.seal_like(&sent.connection.stream);
                let mut response = slot.take().unwrap_or_default();
                let failure = match waited {
                    Ok(()) if response.status() >= 200 || response.status() == 101 => {
                        let first_byte = sent.upload.ended.unwrap_or(began).elapsed();
                        self.record.first_byte = first_byte;
                        // The client may still read and gets its answer; the log says that it left.
                        self.record.left = self.client.may_have_left()
                            && self.is_last()
                            && sent.connection.relay.leftover().is_empty();
                        measured.into_iter().for_each(Measurement::answered);
                        let is_well = is_well(response.status(), &response.headers, self.grpc);
                        upstream.answered(active, response.status(), first_byte, is_well);
                        self.record.body_in = self.record.body_in.max(sent.connection.relay.taken());
                        if response.status() == 101
                            && (self.head.upgrade().is_none() || !sent.upload.is_done())
                        {
                            return Err(upstream_failure(&error::UPGRADE_REFUSED));
                        }
                        return Ok(Answered { sent, response });
                    }
                    Ok(()) if interim == MAX_INTERIM => {
                        sent.upload.detail =
                            Some(cut_detail(&format!("more than {MAX_INTERIM} interim responses")));
                        upstream_failure(&error::BAD_RESPONSE)
                    }
                    Ok(()) => {
                        interim += 1;
                        sent.upload.expects_continue &= response.status() != 100;
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
                self.record.body_in = self.record.body_in.max(sent.connection.relay.taken());
                self.keep_what_follows(&sent.connection.relay);
                self.client.core.give_response(response);
                self.tell_errors(&upstream.spec, &mut sent.connection.stream);
                let failure = self.judge(failure, upstream, active, &sent);
                self.record.detail(sent.upload.detail.take());
                // A race is nobody's fault, and a gRPC client's deadline is not the endpoint's.
                if failure.race().is_none()
                    && matches!(failure, Failure::Upstream { cause, .. } if *cause != error::GRPC_TIMEOUT)
                {
                    measured.into_iter().for_each(Measurement::failed);
                }
                let repeat = matches!(failure, Failure::Upstream { lost: Some(_), .. });
                self.unsent = repeat.then(|| Box::new(sent.connection.take_relay()));
                return Err(failure);
            }
        }
    }

    /// `attempt` is when the attempt began, `began` when it had a connection.
    #[inline(always)] // its parts are in registers
    pub(super) fn waits<'a>(
        &self,
        routed: Routed,
        spec: &'a weir_upstream::upstream::Upstream,
        (attempt, began): (Instant, Instant),
        h2: bool,
    ) -> Waits<'a> {
        let per_try = spec.retry.as_ref().and_then(|retry| attempt.checked_add(retry.per_try?));
        let per_try = per_try.map(|at| (at, &error::RESPONSE_TIMEOUT));
        let end = self.end(routed, spec.timeouts.exchange);
        let of_route = self.local.routes[routed.route].handling.response_timeout;
        // A gRPC stream may be silent as long as a tunnel: its client between messages, its server before the first.
        // To allow less, set grpc-timeout or `timeouts.exchange`. A false claim of gRPC gains no longer waits.
        let streams = self.grpc && h2;
        let configured = if streams { spec.timeouts.tunnel } else { spec.timeouts.response };
        let response = self.response_limit(of_route.unwrap_or(configured));
        Waits { response, began, end: sooner(end, per_try), of_upstream: Some(&spec.timeouts), streams }
    }

    /// Which sign of the client's departure ends the attempt: set by the route, else the upstream, else by the
    /// method.
    pub(super) fn departure(&self, routed: Routed, spec: &weir_upstream::upstream::Upstream) -> Departure {
        let of_route = self.local.routes[routed.route].handling.client_gone;
        let by_end = match of_route.or(spec.client_gone) {
            Some(ClientGone::Cancel) => true,
            Some(ClientGone::Finish) => return Departure::Never,
            None => self.head.method().is_idempotent(),
        };
        // A client that has already sent its next request still waits for both answers.
        if by_end && self.is_last() { Departure::End } else { Departure::Reset }
    }

    /// Whether nothing after this request was read yet.
    fn is_last(&self) -> bool {
        self.leftover.is_empty() && self.head.rest().len() <= self.used
    }

    /// Counts a failed attempt, and adds the facts for `upstream/retry.rs`.
    fn judge(&self, failure: Failure, upstream: &LocalUpstream, active: &Active, sent: &Sent) -> Failure {
        let Failure::Upstream { cause, .. } = failure else {
            upstream.cells.attempt(Outcome::Canceled);
            return failure;
        };
        upstream.cells.attempt(cause.outcome);
        let lost = self.facts_of_failure(cause, sent);
        if lost.is_some_and(|lost| lost.race.is_some()) {
            return Failure::Upstream { cause, lost }; // a race is nobody's fault
        }
        // The client's own deadline blames nobody.
        if *cause != error::GRPC_TIMEOUT {
            upstream.note(active, false);
        }
        let index = self.client.core.cells.cause_index(cause.code);
        active.get().cells.fail(index, SystemTime::now());
        let said = sent.upload.detail.as_deref().unwrap_or(cause.meaning);
        complain(&upstream.spec.name, &active.get().endpoint.label, cause, &said);
        Failure::Upstream { cause, lost }
    }

    /// Writes the head into the upload and takes the body bytes that have already arrived.
    fn begin_upload(
        &mut self,
        routed: Routed,
        spec: &weir_upstream::upstream::Upstream,
        active: &Active,
        connection: &mut Connection,
    ) -> Result<Upload, Failure> {
        let kind = self.head.body();
        connection.stream.seal_like(&self.client.stream);
        let h2 = connection.stream.h2().is_some();
        let framing = self.framing(&connection.stream);
        if let Some(fastcgi) = connection.stream.fastcgi_mut() {
            fastcgi.begin(self.local.snapshot.head_limits.head_bytes);
        }
        let Written { mut out, whole } = self.write_request(routed, spec, active, framing);
        let expects_continue = self.head.expects_continue();
        let idempotent = self.head.method().is_idempotent();
        let keeps = spec.retry.as_ref().is_some_and(|retry| retry.keeps(idempotent));
        let may_repeat = connection.reused || spec.hedge.is_some() || active.has_others();
        let relay = &mut connection.relay;
        match (self.unsent.take(), whole) {
            (before, None) if kind != BodyKind::Empty && self.is_spooled() => {
                self.send_spooled(before, relay, (kind, framing, out))?;
            }
            // A body that a filter has whole is sent from where it is held, as often as needed.
            (_, Some(body)) => {
                write_whole(framing, &body, &mut out);
                *relay = Relay::new(BodyKind::Empty, Framing::Length, out);
                let _ = relay.prime(&[], None); // cannot be malformed
            }
            // The filters have seen this body: a repeat sends the same bytes.
            (Some(before), _) => {
                *relay = *before;
                if !relay.again(framing, out) {
                    return Err(upstream_failure(&error::UPSTREAM_RESET));
                }
            }
            // In records even an absent body has bytes: those of its end.
            (None, _) if kind == BodyKind::Empty && framing != Framing::Records => {
                relay.begin_head(out);
            }
            (None, _) => {
                *relay = Relay::new(kind, framing, out);
                if let Some(bytes) = kept_body(spec.retry.as_ref(), idempotent, h2, may_repeat) {
                    relay.keep(bytes);
                }
                let mut watch = BodyWatch::new(&self.local, &self.ran, self.cx.as_mut(), 0);
                let primed = relay.prime(self.head.rest(), watch.active());
                let refused = watch.refused.take();
                match primed {
                    Ok(used) => self.used = used,
                    Err(e) => return Err(Failure::Client(client_fault(e, refused))),
                }
            }
        }
        self.request_over |= relay.is_finished();
        self.record.body_in = self.record.body_in.max(relay.taken());
        let state = Sending::Going;
        let departure = self.departure(routed, spec);
        Ok(Upload { state, heard: false, keeps, expects_continue, ended: None, detail: None, departure })
    }

    /// Whether a filter has the request's body in a file.
    fn is_spooled(&self) -> bool {
        self.cx.as_ref().is_some_and(|cx| cx.request_spool.is_some())
    }

    /// Sends a body that a filter has in a file: as often as needed, unless other filters see its pieces while it is
    /// sent.
    #[cold]
    fn send_spooled(
        &self,
        before: Option<Box<Relay>>,
        relay: &mut Relay,
        (kind, framing, out): (BodyKind, Framing, Vec<u8>),
    ) -> Result<(), Failure> {
        let Some(cx) = &self.cx else { return Ok(()) };
        let is_seen = !cx.request_bodies.is_empty();
        if let Some(before) = before.filter(|_| is_seen) {
            *relay = *before;
            let again = relay.again(framing, out);
            return if again { Ok(()) } else { Err(upstream_failure(&error::UPSTREAM_RESET)) };
        }
        *relay = Relay::new(kind, framing, out);
        if let Some(spool) = &cx.request_spool {
            relay.supply(Rc::clone(spool).supply());
        }
        Ok(())
    }

    /// Whether the request can be sent again.
    pub(super) fn is_repeatable(&self, relay: &Relay) -> bool {
        let is_held = || self.cx.as_ref().is_some_and(|cx| cx.request_bodies.is_empty());
        relay.is_repeatable() || relay.is_supplied() && is_held()
    }

    /// How the end of the request's body is marked for an endpoint.
    pub(super) fn framing(&self, stream: &Stream) -> Framing {
        let changed = self.cx.as_ref().is_some_and(|cx| cx.request_bodies.change());
        match (self.head.body(), self.head.content_length()) {
            _ if stream.fastcgi().is_some() => Framing::Records,
            (BodyKind::Empty, _) => Framing::Length,
            // A filter may change the length; the new length is known only at the end.
            (BodyKind::Length(_) | BodyKind::UntilClose, Some(_)) if !changed => Framing::Length,
            _ if stream.h2().is_some() => Framing::Close,
            _ => Framing::Chunked,
        }
    }

    /// Writes the head for this endpoint.
    pub(super) fn write_request(
        &mut self,
        routed: Routed,
        spec: &weir_upstream::upstream::Upstream,
        active: &Active,
        framing: Framing,
    ) -> Written {
        self.tell_deadline(routed, spec);
        if framing == Framing::Records {
            return self.write_script_request(routed, spec, active);
        }
        let mut out = self.client.core.take_buffer();
        let endpoint = &active.get().endpoint;
        let client = &self.client.forwarding;
        self.forwarded = self.forwarded.take().or_else(|| forward::chain(&mut self.head, client));
        let fields =
            self.forwarded.as_deref().map_or(ForwardingFields::Own(client), ForwardingFields::Chained);
        forward::write_head(&mut self.head, fields, &spec.host, endpoint, framing, &mut out);
        let whole = self.cx.as_ref().and_then(|cx| cx.request_whole.clone());
        Written { out, whole }
    }

    /// Keeps the bytes that were read after the request's body.
    pub(super) fn keep_what_follows(&mut self, relay: &Relay) {
        self.request_over |= relay.is_finished();
        let leftover = relay.leftover();
        if leftover.is_empty() && self.leftover.is_empty() {
            return; // nearly always
        }
        let held = |cx: &Cx| cx.request_whole.is_some() || cx.request_spool.is_some();
        if self.request_over && !self.cx.as_ref().is_some_and(held) {
            self.leftover = leftover.to_vec();
        }
    }

    /// Passes a 1xx on to clients that understand it (RFC 9110 §15.2), and makes room for the next head.
    async fn pass_interim(&mut self, response: &mut ResponseHead) -> Result<(), Stop> {
        if self.head.version() != Version::Http10 {
            let mut out = self.client.core.take_buffer();
            response.write_line_and_fields(&mut out);
            out.extend_from_slice(b"\r\n");
            self.record.sent += out.len() as u64;
            self.client.write_all(out).await.map_err(Stop::Cut)?;
        }
        response.recycle(0);
        Ok(())
    }
}
