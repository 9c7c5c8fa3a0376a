//! Phase 6: relays an upstream's response to the client, beside the rest of the request; tunnels.

use super::bodies::{BodyWatch, ResponseWatch};
use super::record::Record;
use super::sent::{Attempt, Sent};
use super::upload::Sending;
use super::{Exchange, Next, Phase, Routed, Stop, client_is_there, deadline, end_of_body};
use crate::client::{Client, Departure, SEND_TIMEOUT};
use crate::core::{Local, Waiting};
use bytes::Bytes;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weir_filter::filter::Cx;
use weir_filter::grpc;
use weir_filter::spool::Queue;
use weir_h1::{BodyKind, Connection as Wish, FieldName, Known, Method, ResponseHead, Version};
use weir_telemetry::Closed;
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::{Carrier, complain};
use weir_wire::relay::{Framing, Relay, RelayError, Tunnel};

/// How long the rest of a request may stall once its answer is over.
const AFTERMATH: Duration = Duration::from_secs(5);

/// How long a client may take to accept the end of a cut stream.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Exchange<'_> {
    /// Relays the response and, at the same time, the rest of the request. Takes the attempt out when it is over.
    pub(super) async fn transfer(&mut self, answered: &mut Option<Attempt>) -> Result<Next, Stop> {
        let Some(attempt) = answered else { return Err(Stop::refuse(&error::INTERNAL)) }; // nobody took it out
        self.stick(attempt);
        let response = &mut attempt.response;
        response.headers.remove_known(Known::XWeirCause); // ours alone: an upstream's would be a lie
        let kind = response.body(self.head.method());
        let changed = self.cx.as_ref().is_some_and(|cx| cx.response_bodies.change());
        // An HTTP/2 body may have a length, which its stream obeys, and still be followed by trailers.
        let length =
            if let BodyKind::Length(length) = kind { Some(length) } else { response.content_length() };
        let has_length = length.is_some();
        let framing = match (kind, self.head.version()) {
            (BodyKind::Empty, _) => Framing::Length,
            (BodyKind::Length(_) | BodyKind::UntilClose, _) if has_length && !changed => Framing::Length,
            (_, Version::Http10 | Version::Http2 | Version::Http3) => Framing::Close,
            (_, Version::Http11) => Framing::Chunked,
        };
        // The answer came before the request's end. The rest may never come, so do not promise to keep the
        // connection. (nginx and HAProxy read it off; but a client should not have to send 1 GiB to be told 413.)
        self.can_keep &= framing != Framing::Close && attempt.sent.upload.is_done();
        self.record.status = response.status();
        self.phase = Phase::Begun(framing);
        self.keep_fields(response);
        let mut out = self.client.core.take_buffer();
        self.write_head(response, framing, &mut out);
        let mut download = Relay::new(kind, framing, out);
        let mut early = false;
        if let Some(cx) = self.cx.as_ref() {
            if cx.reads_on > 0 {
                download.read_on(cx.reads_on);
            }
            if cx.reads_ahead > 0 {
                download.read_ahead(cx.reads_ahead);
                early = true;
                // All of it fits into memory, so filters need not release what they hold back before its end.
                if length.is_some_and(|length| length <= cx.reads_ahead as u64) {
                    download.hide_pauses();
                }
                if let Some(overflow) = cx.overflow_of_response() {
                    let core = self.client.core.handle.clone();
                    let queue = Queue::new(overflow.spooling.clone(), overflow.most, core);
                    download.overflow(Box::new(queue), overflow.piece);
                }
            }
        }
        if self.record.left {
            self.record.cause = Some(&error::CLIENT_CLOSED);
        }
        let mut fault = self.relay_response(attempt, &mut download, (kind, early)).await;
        // All of it has arrived, so the upstream need not wait for a slow client.
        let has_rest = early && fault.is_none() && !download.is_delivered();
        let end = match has_rest {
            true => self.end_of_response(attempt.routed, attempt.upstream.spec.timeouts.exchange),
            false => None,
        };
        let mut over = if fault.is_none() { Some(Instant::now()) } else { None };
        let response = answered.take().map(|attempt| self.release(attempt, over));
        if has_rest {
            fault = Box::pin(self.send_rest(&mut download, end)).await;
            over = fault.is_none().then(Instant::now);
        }
        let untold = download.sent() == 0;
        if let Some(buffer) = download.take_buffer() {
            self.client.core.give_buffer(buffer);
        }
        self.ended = over;
        if let Some(response) = response {
            self.client.core.give_response(response);
        }
        match fault {
            Some(stop) => {
                // Nothing of the broken response has been sent: the client can still get an error.
                if untold {
                    self.record.status = 0;
                    self.phase = Phase::Filtered;
                    self.can_keep = false;
                    // The error is not part of the body that filters have begun to change.
                    if let Some(cx) = &mut self.cx {
                        cx.response_bodies.clear();
                        (cx.pending, cx.held) = (None, None);
                    }
                }
                Err(stop)
            }
            None => Ok(self.next()),
        }
    }

    /// Sends the client only the head, and reads the body for the filters that watch it. The client has its answer
    /// even if that fails.
    #[cold]
    pub(super) async fn tell_head(&mut self, mut attempt: Attempt) -> Next {
        self.stick(&mut attempt);
        let response = &mut attempt.response;
        response.headers.remove_known(Known::XWeirCause); // as above
        let kind = response.body(self.head.method());
        self.can_keep &= attempt.sent.upload.is_done();
        self.record.status = response.status();
        self.phase = Phase::Begun(Framing::Length);
        self.keep_fields(response);
        let mut out = Vec::new();
        self.write_head(response, Framing::Length, &mut out);
        let length = out.len() as u64;
        let told = match self.client.write_all(out).await {
            Ok(()) => self.client.finish(&[]).await,
            Err(cause) => Err(cause),
        };
        let mut download = Relay::new(kind, Framing::Close, Vec::new());
        download.discard();
        let fault = self.relay_response(&mut attempt, &mut download, (kind, false)).await;
        let over = if fault.is_none() { Some(Instant::now()) } else { None };
        self.ended = over;
        let response = self.release(attempt, over);
        self.client.core.give_response(response);
        self.record.body_out = 0; // none of it was sent
        match told {
            Ok(()) => {
                self.record.sent += length;
                self.next()
            }
            Err(cause) => {
                self.record.cause.get_or_insert(cause);
                self.cut(cause)
            }
        }
    }

    /// Sends the client the cookie for this endpoint, if wanted and not yet known. Runs after all filters, so that
    /// none stores the answer with the cookie.
    #[inline]
    pub(super) fn stick(&self, attempt: &mut Attempt) {
        if attempt.upstream.spec.sticky.is_some() {
            self.send_cookie(attempt);
        }
    }

    fn send_cookie(&self, attempt: &mut Attempt) {
        if let Some(value) = attempt.upstream.set_cookie(&attempt.active, &self.head, self.is_tls())
            && let Ok(name) = FieldName::new("set-cookie")
        {
            let _ = attempt.response.headers.append(&name, &value); // checked when the config was read
        }
    }

    /// Reads a response's whole body for a filter that decides by it.
    pub(super) async fn gather_response(
        &mut self,
        mut attempt: Attempt,
        limit: usize,
    ) -> Result<(Box<ResponseHead>, Bytes), Stop> {
        attempt.response.headers.remove_known(Known::XWeirCause); // as above
        let kind = attempt.response.body(self.head.method());
        let mut download = Relay::new(kind, Framing::Close, Vec::new());
        download.gather(limit);
        let fault = self.relay_response(&mut attempt, &mut download, (kind, false)).await;
        if let Some(cx) = &mut self.cx {
            cx.set_whole_trailers(download.trailers());
        }
        let response = self.release(attempt, fault.is_none().then(Instant::now));
        match fault {
            Some(stop) => Err(stop),
            None => Ok((response, download.take_buffer().unwrap_or_default().into())),
        }
    }

    /// Sends the rest of a response whose upstream has been released. Returns what broke it.
    #[cold]
    async fn send_rest(
        &mut self,
        download: &mut Relay,
        end: Option<(Instant, &'static Cause)>,
    ) -> Option<Stop> {
        let before = self.record.sent - download.sent();
        let (client, record) = (&mut *self.client, &mut self.record);
        let end_at = end.map(|(at, _)| at);
        let mut armed = None;
        let result = poll_fn(|task| {
            let moved = download.poll_rest(task, &mut client.stream);
            record.sent = before + download.sent();
            if moved.is_ready() {
                return moved;
            }
            if armed.replace(download.steps()) != Some(download.steps()) {
                client.deadline.set_within(Instant::now(), SEND_TIMEOUT, end_at);
            }
            let late = || Err(RelayError::Write(std::io::ErrorKind::TimedOut.into()));
            client.deadline.poll_passed(task).map(|()| late())
        });
        let fault = result.await.err()?;
        Some(Stop::Cut(transfer_fault(&fault, download, self.client.deadline.at(), end)))
    }

    /// Moves both bodies until the response is over, and returns what broke it. With `early`, that is when all of it
    /// was read, even if the client has not taken it. Notes in the attempt whether the upstream's connection can be
    /// reused.
    async fn relay_response(
        &mut self,
        attempt: &mut Attempt,
        download: &mut Relay,
        (kind, early): (BodyKind, bool),
    ) -> Option<Stop> {
        let timeouts = &attempt.upstream.spec.timeouts;
        let end = self.end_of_response(attempt.routed, timeouts.exchange);
        if attempt.response.status() >= 400 && self.client.core.autopsies.is_on() {
            self.record.listen(&attempt.response);
        }
        let (primed, refused) = {
            let notes = self.record.notes();
            let mut watch = ResponseWatch::new(&self.local, &self.ran, self.cx.as_mut(), notes);
            let primed = download.prime(attempt.response.rest(), watch.active());
            (primed, watch.refused)
        };
        let extra = match &primed {
            Ok(used) => attempt.response.rest().len() > *used,
            Err(_) => true,
        };
        let sent = self.record.sent;
        let result = match primed {
            Ok(_) => {
                let silent = is_stream(&attempt.response, kind);
                let body = if silent { timeouts.tunnel } else { timeouts.body };
                let departure = attempt.sent.upload.departure;
                if departure == Departure::Never && !download.reads_on() {
                    download.read_on(1); // no further than a client would have it read
                }
                let limits = (body, end.map(|(at, _)| at));
                match self.send_at_once(&attempt.sent, download).await {
                    Some(done) => done,
                    None => self.pump(&mut attempt.sent, download, (departure, early), limits).await,
                }
            }
            Err(e) => Err(TransferError::Download(e, refused)),
        };
        self.record.body_out = download.taken();
        self.record.body_in = self.record.body_in.max(attempt.sent.connection.relay.taken());
        self.record.sent = sent + download.sent();
        self.keep_what_follows(&attempt.sent.connection.relay);
        let fault = match result.err() {
            None => None,
            Some(TransferError::Download(RelayError::Stopped, Some(cause))) => Some(Stop::refuse(cause)),
            Some(TransferError::Download(e, _)) => {
                let fault = transfer_fault(&e, download, self.client.deadline.at(), end);
                let reset = matches!(e, RelayError::Read(_));
                let late =
                    if reset { deadline::of_reset(&attempt.sent.connection.stream, end) } else { None };
                let cause = late.unwrap_or(fault);
                if !matches!(e, RelayError::Write(_) | RelayError::Stopped) {
                    let endpoint = &attempt.active.get().endpoint.label;
                    complain(&attempt.upstream.spec.name, endpoint, cause, &broken_by(&e, cause));
                }
                let told = download.sent() == 0 && client_is_there(cause);
                let as_status = if cause.status == 0 { &error::BAD_RESPONSE } else { cause };
                if !told && client_is_there(cause) && self.calls_grpc() {
                    Box::pin(self.end_translated(attempt, download, cause)).await;
                }
                Some(if told { Stop::refuse(as_status) } else { Stop::Cut(cause) })
            }
            Some(TransferError::Upload(stop)) => Some(stop),
        };
        let stream = &mut attempt.sent.connection.stream;
        self.tell_errors(&attempt.upstream.spec, stream);
        attempt.reusable = fault.is_none()
            && attempt.sent.upload.is_done()
            && match stream.fastcgi_mut() {
                None => !extra && kind != BodyKind::UntilClose,
                Some(fastcgi) => fastcgi.comes_to_rest(), // its records say what belongs to the response
            }
            && download.leftover().is_empty()
            && attempt.response.connection() == Wish::KeepAlive;
        fault
    }

    /// Ends a cut stream that a filter has translated from gRPC, in its client's format: Connect's last message,
    /// gRPC-Web's trailer frame, or a line or event with the error. If that is impossible, the connection shows the
    /// cut.
    async fn end_translated(&mut self, attempt: &mut Attempt, download: &mut Relay, cause: &'static Cause) {
        let trailers = grpc::trailers(cause, self.local.snapshot.expose_causes);
        let ended = {
            let mut watch = ResponseWatch::new(&self.local, &self.ran, self.cx.as_mut(), None);
            download.end_for_sender(trailers, watch.active())
        };
        if !matches!(ended, Ok(true)) {
            return;
        }
        let before = download.sent();
        let (client, upstream) = (&mut *self.client, &mut attempt.sent.connection.stream);
        client.deadline.set_within(Instant::now(), LAST_WORDS, None);
        let (local, ran, cx) = (&self.local, &self.ran, &mut self.cx);
        let written = poll_fn(|task| {
            let mut watch = ResponseWatch::new(local, ran, cx.as_mut(), None);
            match download.poll(task, upstream, &mut client.stream, watch.active()) {
                Poll::Ready(written) => Poll::Ready(written.is_ok()),
                Poll::Pending => client.deadline.poll_passed(task).map(|()| false),
            }
        });
        if written.await {
            self.phase = Phase::ToldCut;
        }
        self.record.sent += download.sent() - before;
    }

    /// Releases an upstream and returns the response's head. `good` is since when its connection has carried no more
    /// of the response, if that can be known.
    fn release(&mut self, attempt: Attempt, good: Option<Instant>) -> Box<ResponseHead> {
        let Attempt { upstream, active, sent, response, reusable, .. } = attempt;
        // A stream is not used again, only its memory.
        let is_kept = reusable || sent.connection.stream.is_multiplexed();
        if let Some(since) = good.filter(|_| is_kept) {
            upstream.give_back(&active, sent.connection, since);
        }
        response
    }

    /// Drops an answer that another replaces. Keeps its connection only if the whole answer has arrived.
    pub(super) fn let_go(&mut self, attempt: Attempt) {
        let rest = attempt.response.rest();
        let over = end_of_body(attempt.response.body(self.head.method()), rest) == Some(rest.len());
        let upload = &attempt.sent.upload;
        let good = over && upload.is_done() && attempt.response.connection() == Wish::KeepAlive;
        self.keep_what_follows(&attempt.sent.connection.relay);
        let response = self.release(Attempt { reusable: good, ..attempt }, good.then(Instant::now));
        self.client.core.give_response(response);
    }

    /// Sends a response that arrived whole, if nothing is left of the request and the client's socket has room for all
    /// of it: nearly every small response. `None`: the pump continues.
    #[inline]
    fn send_at_once<'a>(
        &'a mut self,
        sent: &Sent,
        download: &'a mut Relay,
    ) -> impl Future<Output = Option<Result<(), TransferError>>> {
        let is_whole = download.only_writes() && !sent.upload.is_going();
        let stream = &mut self.client.stream;
        poll_fn(move |task| {
            let written = match is_whole {
                true => download.poll_written(task, stream),
                false => Poll::Pending,
            };
            Poll::Ready(match written {
                Poll::Ready(written) => Some(written.map_err(|e| TransferError::Download(e, None))),
                Poll::Pending => None,
            })
        })
    }

    /// Moves both bodies until the response is over. The request's may stay unfinished.
    fn pump<'a>(
        &'a mut self,
        sent: &'a mut Sent,
        download: &'a mut Relay,
        (departure, early): (Departure, bool),
        (body, end): (Duration, Option<Instant>),
    ) -> impl Future<Output = Result<(), TransferError>> {
        let before = self.record.sent;
        let mut pump = Pump {
            client: &mut *self.client,
            local: &self.local,
            ran: &self.ran,
            cx: self.cx.as_mut(),
            record: &mut self.record,
            sent,
            download,
            departure,
            early,
            waiting: None,
            stage: Stage::Response,
            armed: None,
        };
        poll_fn(move |task| {
            if let Poll::Ready(done) = pump.advance(task) {
                return Poll::Ready(done);
            }
            pump.arm(body, end);
            if pump.client.deadline.poll_passed(task).is_pending() {
                // Note the progress now, in case no more comes.
                pump.record.body_out = pump.download.taken();
                pump.record.sent = before + pump.download.sent();
                return Poll::Pending;
            }
            // Accept what arrives at the last moment.
            match pump.advance(task) {
                Poll::Pending => Poll::Ready(pump.late()),
                done => done,
            }
        })
    }

    /// Switches to a tunnel. From here the exchange keeps its route but releases the snapshot.
    pub(super) async fn tunnel(&mut self, mut attempt: Attempt) -> Result<Next, Stop> {
        self.stick(&mut attempt);
        let Attempt { routed, upstream, active, sent, response, .. } = attempt;
        let Sent { mut connection, .. } = sent;
        self.record.status = 101;
        self.phase = Phase::Tunnel;
        self.keep_fields(&response);
        let mut first = self.client.core.take_buffer();
        response.write_line_and_fields(&mut first);
        first.extend_from_slice(b"connection: upgrade\r\nupgrade: ");
        first.extend_from_slice(response.upgrade().or(self.head.upgrade()).unwrap_or_default());
        first.extend_from_slice(b"\r\n\r\n");
        first.extend_from_slice(response.rest());
        // Nothing after the request's head was sent before the upstream agreed.
        let early = self.head.rest().get(self.used..).unwrap_or_default().to_vec();
        self.used += early.len();
        let mut tunnel = Tunnel::new([early, connection.relay.leftover().to_vec()].concat(), first);
        self.client.core.give_response(response);
        self.can_keep = false;
        let idle = upstream.spec.timeouts.tunnel;
        drop(active);
        drop(upstream);
        self.let_go_of_snapshot(routed);

        let (client, record) = (&mut *self.client, &mut self.record);
        let mut moved = (0, 0);
        client.deadline.set(Instant::now(), idle);
        let result = poll_fn(|cx| {
            let mut lent = client.core.take_buffer();
            let polled = tunnel.poll(cx, &mut client.stream, &mut connection.stream, &mut lent);
            client.core.give_buffer(lent);
            if let Poll::Ready(result) = polled {
                return Poll::Ready(result.map_err(|_| &error::CLIENT_CLOSED));
            }
            if tunnel.moved() != moved {
                moved = tunnel.moved();
                (record.body_in, record.body_out, record.sent) = (moved.0, moved.1, moved.1);
                client.deadline.set(Instant::now(), idle);
            }
            client.deadline.poll_passed(cx).map(|()| Err(&error::TUNNEL_TIMEOUT))
        })
        .await;
        let (up, down) = tunnel.moved();
        (self.record.body_in, self.record.body_out, self.record.sent) = (up, down, down);
        match result {
            Err(cause) if *cause == error::TUNNEL_TIMEOUT => Err(Stop::Cut(cause)),
            // However a tunnel ends, that is the peers' business.
            _ => Ok(Next::Close(Closed::Tunnel)),
        }
    }

    /// Keeps only the part of the snapshot that `record` will need.
    fn let_go_of_snapshot(&mut self, routed: Routed) {
        self.local = self.local.only(routed.route, routed.upstream, &self.ran);
        (self.route, self.record.upstream) = (Some(0), Some(0));
        if let Some(cx) = &mut self.cx {
            cx.renumber(Rc::clone(&self.local.routes[0].scope), &self.ran);
        }
        self.ran = (0..self.ran.len() as u32).collect();
    }

    /// Status line, fields and framing of a response to the client.
    fn write_head(&self, response: &mut ResponseHead, framing: Framing, out: &mut Vec<u8>) {
        // Remove a length that does not match what is sent: re-framed bodies, and 204 (RFC 9110 §8.6).
        if framing != Framing::Length || response.status() == 204 {
            response.headers.remove_known(Known::ContentLength);
        }
        response.write_line_and_fields(out);
        // RFC 9110 §6.6.1: a proxy adds the time of receipt to a response without Date.
        if !response.headers.has_known(Known::Date) {
            out.extend_from_slice(b"date: ");
            out.extend_from_slice(&self.client.core.date());
            out.extend_from_slice(b"\r\n");
        }
        if self.ends_unsaid(response) {
            out.extend_from_slice(b"content-length: 0\r\n");
        }
        if framing == Framing::Chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        self.write_alt_svc(&response.headers, out);
        self.write_connection(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Whether the head fails to tell an HTTP/1.1 client that there is no body, because HTTP/2 ended the stream
    /// instead.
    fn ends_unsaid(&self, response: &ResponseHead) -> bool {
        let method = self.head.method();
        !self.head.version().is_multiplexed()
            && response.body(method) == BodyKind::Empty
            && method != Method::Head
            && !matches!(response.status(), 100..=199 | 204 | 304)
            && response.content_length().is_none()
    }

    /// The connection fields for the client (RFC 9112 §9.3).
    pub(super) fn write_connection(&self, out: &mut Vec<u8>) {
        let keeps = self.keeps();
        self.promised.set(keeps);
        if !keeps {
            out.extend_from_slice(b"connection: close\r\n");
        } else if self.head.version() == Version::Http10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
    }

    fn keeps(&self) -> bool {
        self.can_keep
            && !self.client.listener.spec.timeouts.keepalive.is_zero() // `keepalive: 0s` closes after each response
            && self.head.connection() == Wish::KeepAlive && !self.client.handle.closing.get()
    }

    /// What to do with the connection after a response that was written whole.
    ///
    /// A drain that began after the head changes nothing, because the client may have sent its next request. The
    /// connection is then idle and carries one more request, for which the client has `shutdown.idle` if the gateway
    /// ends.
    pub(super) fn next(&self) -> Next {
        match (self.promised.get() && self.can_keep, self.request_over) {
            (true, _) => Next::Keep,
            (false, false) => Next::Linger(Closed::Finished),
            (false, true) if self.client.handle.closing.get() => Next::Close(Closed::Drain),
            (false, true) if !self.can_keep && self.refused => Next::Linger(Closed::Refused),
            (false, true) => Next::Close(Closed::Finished),
        }
    }
}

/// Which part of the message pair is still to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The response and the rest of the request.
    Response,
    /// The rest of the request, which the upstream may still read after its answer.
    Rest,
}

/// Both bodies of an exchange in transfer.
struct Pump<'a> {
    client: &'a mut Client,
    local: &'a Local,
    ran: &'a SmallVec<[u32; 8]>,
    cx: Option<&'a mut Cx>,
    record: &'a mut Record,
    sent: &'a mut Sent,
    download: &'a mut Relay,
    departure: Departure,
    /// The response is over once it was read.
    early: bool,
    /// Set while the upstream is waited for, if the waiting time counts.
    waiting: Option<Waiting>,
    stage: Stage,
    /// The stage and the step count at which the deadline was last set.
    armed: Option<(Stage, u64)>,
}

impl Pump<'_> {
    /// Moves what can be moved. Ready when the response is over and the request settled, or when the response broke
    /// off.
    fn advance(&mut self, task: &mut Context<'_>) -> Poll<Result<(), TransferError>> {
        if self.sent.upload.is_going() {
            self.advance_request(task)?;
        }
        if self.stage == Stage::Response {
            self.advance_response(task)?;
        }
        match self.stage {
            Stage::Rest if !self.sent.upload.is_going() => return Poll::Ready(Ok(())),
            Stage::Rest => return Poll::Pending,
            Stage::Response if self.early && self.download.is_finished() && self.sent.upload.is_done() => {
                return Poll::Ready(Ok(()));
            }
            Stage::Response => {}
        }
        let watched = self.sent.upload.is_done()
            || self.client.stream.is_multiplexed()
            || self.sent.connection.relay.is_supplied();
        if watched && !self.download.waits_for_writer() && self.has_departed(task) {
            let reset = || std::io::ErrorKind::ConnectionReset.into();
            if !self.download.lose_receiver(reset()) {
                return Poll::Ready(Err(TransferError::Download(RelayError::Write(reset()), None)));
            }
            return self.advance_response(task).map_or_else(|e| Poll::Ready(Err(e)), |()| Poll::Pending);
        }
        Poll::Pending
    }

    /// Whether the client has left. A client that closed its side may still read, so that counts only when the
    /// upstream has sent nothing for a while.
    fn has_departed(&mut self, task: &mut Context<'_>) -> bool {
        self.client.stream.is_reset(task)
            || self.departure == Departure::End
                && self.waiting.is_some()
                && self.sent.connection.relay.leftover().is_empty()
                && self.client.may_have_left()
    }

    fn advance_request(&mut self, task: &mut Context<'_>) -> Result<(), TransferError> {
        let Sent { connection, upload } = &mut *self.sent;
        let Carrier { stream, relay, .. } = &mut **connection;
        let taken = relay.taken();
        let mut watch = BodyWatch::new(self.local, self.ran, self.cx.as_deref_mut(), taken);
        match relay.poll(task, &mut self.client.stream, stream, watch.active()) {
            Poll::Ready(Ok(())) => upload.state = Sending::Done,
            Poll::Ready(Err(_)) => {
                upload.state = Sending::Failed;
                match (watch.refused.take(), self.stage) {
                    (Some(stop), Stage::Rest) => self.record.cause = Some(stop.cause()),
                    (Some(stop), Stage::Response) => return Err(TransferError::Upload(stop)),
                    (None, _) => {}
                }
            }
            Poll::Pending => {}
        }
        Ok(())
    }

    fn advance_response(&mut self, task: &mut Context<'_>) -> Result<(), TransferError> {
        let mut watch = ResponseWatch::new(self.local, self.ran, self.cx.as_deref_mut(), self.record.notes());
        let upstream = &mut self.sent.connection.stream;
        let moved = if self.download.is_gathering() {
            self.download.poll_gather(task, upstream, watch.active())
        } else {
            self.download.poll(task, upstream, &mut self.client.stream, watch.active())
        };
        match moved {
            Poll::Ready(Ok(())) => self.stage = Stage::Rest,
            Poll::Ready(Err(e)) => return Err(TransferError::Download(e, watch.refused)),
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Resets the deadline when something has moved. The rest of a request gets its time only once, however slowly it
    /// drips.
    fn arm(&mut self, body: Duration, end: Option<Instant>) {
        let steps = self.download.steps() + self.sent.connection.relay.steps();
        let armed = match (self.stage, self.armed) {
            (Stage::Response, armed) => armed == Some((Stage::Response, steps)),
            (Stage::Rest, armed) => matches!(armed, Some((Stage::Rest, _))),
        };
        if armed {
            return;
        }
        self.armed = Some((self.stage, steps));
        self.waiting = None; // before a new wait begins
        if self.departure == Departure::End && self.stage == Stage::Response {
            self.waiting = Some(self.client.handle.wait());
        }
        let wait = match self.stage {
            Stage::Rest => AFTERMATH,
            Stage::Response if self.download.waits_for_writer() => SEND_TIMEOUT,
            Stage::Response => body,
        };
        self.client.deadline.set_within(Instant::now(), wait, end);
    }

    /// The deadline has passed and nothing moved: the side that is waited for is to blame.
    fn late(&self) -> Result<(), TransferError> {
        if self.stage == Stage::Rest {
            return Ok(());
        }
        let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
        let waits_for_client = self.download.waits_for_writer();
        let e = if waits_for_client { RelayError::Write(late) } else { RelayError::Read(late) };
        Err(TransferError::Download(e, None))
    }
}

/// Whether a response is a stream that may be silent for long: server-sent events, JSON lines, gRPC. The tunnel's
/// timeout then applies.
fn is_stream(response: &ResponseHead, kind: BodyKind) -> bool {
    // Over HTTP/2, a body that ends with its stream may have a length too.
    let unknown_length =
        matches!(kind, BodyKind::Chunked | BodyKind::UntilClose) && response.content_length().is_none();
    let streams = ["application/x-ndjson", "text/event-stream"];
    unknown_length
        && (grpc::is_grpc(&response.headers) || streams.iter().any(|media| response.headers.is_media(media)))
}

/// The log's text for a response that broke off.
fn broken_by(e: &RelayError, cause: &'static Cause) -> String {
    match e {
        RelayError::Malformed(rule) => rule.to_string(),
        RelayError::Read(e) => e.to_string(),
        RelayError::Truncated => "the body ended before its announced end".to_owned(),
        RelayError::Stopped | RelayError::Supply(_) | RelayError::TooLarge | RelayError::Write(_) => {
            cause.meaning.to_owned()
        }
    }
}

/// Which side cut a response short.
fn transfer_fault(
    e: &RelayError,
    download: &Relay,
    at: Option<Instant>,
    end: Option<(Instant, &'static Cause)>,
) -> &'static Cause {
    let late = |e: &std::io::Error| e.kind() == std::io::ErrorKind::TimedOut;
    let whole = end.filter(|(end, _)| at == Some(*end)).map(|(_, cause)| cause);
    match e {
        RelayError::Write(e) if late(e) => &error::CLIENT_TOO_SLOW,
        RelayError::Write(_) => &error::CLIENT_CLOSED,
        RelayError::Read(e) if late(e) => whole.unwrap_or(&error::UPSTREAM_BODY_TIMEOUT),
        RelayError::TooLarge => &error::RESPONSE_TOO_LARGE,
        RelayError::Malformed(_) if download.sent() == 0 => &error::BAD_RESPONSE,
        RelayError::Malformed(_)
        | RelayError::Read(_)
        | RelayError::Stopped
        | RelayError::Supply(_)
        | RelayError::Truncated => &error::TRUNCATED,
    }
}

/// Why the bodies stopped before the response was over.
enum TransferError {
    /// The response broke off, the client accepts no more of it, or a filter refused it.
    Download(RelayError, Option<&'static Cause>),
    /// The request's body was refused.
    Upload(Stop),
}
