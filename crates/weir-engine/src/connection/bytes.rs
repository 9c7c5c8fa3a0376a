//! One client connection whose bytes are passed on (`tcp`, `sni`): connect, relay both ways, record.
//!
//! Nothing of the bytes is understood. So nothing can be sent twice, and only the connect is repeated, at another
//! endpoint. A connection that ends early is reset on both sides: an orderly close would look like the end of the data.

use super::Closed;
use crate::autopsy::kept::cut_detail;
use crate::core::{Core, LocalListener};
use crate::snapshot::Passing;
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};
use weir_telemetry::{Attempt as Outcome, Entry, Timing};
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::{
    Active, Attempts, ConnectError, Connection, LocalUpstream, Owner, Standing, Upstream, complain,
    connect_for_bytes,
};
use weir_wire::proxy_protocol::Ends;
use weir_wire::relay::{Tunnel, TunnelError};
use weir_wire::tls::PeerCertificate;
use weir_wire::{Deadline, Peer, Stream};

/// A connection that is passed on.
pub(super) struct Bytes<'a> {
    pub(super) core: &'a Rc<Core>,
    pub(super) listener: Rc<LocalListener>,
    pub(super) client: Stream,
    pub(super) peer: Peer,
    /// The name that the client asked for in TLS.
    pub(super) name: Option<String>,
    pub(super) certificate: Option<PeerCertificate>,
    /// Its number in the core.
    pub(super) number: usize,
    pub(super) started: Instant,
}

/// What happened to a connection. It is recorded once, when this is dropped: also by a panic, and with its core.
struct Passed<'a> {
    on: Bytes<'a>,
    name_of_upstream: Arc<str>,
    /// The upstream once connected. The connection does not hold a core's view of it.
    spec: Option<Arc<Upstream>>,
    endpoint: Option<Arc<str>>,
    connection: Option<Connection>,
    standing: Option<Standing>,
    attempts: u32,
    /// The attempts that failed, in the form of the access log.
    failed: String,
    timing: Timing,
    moved: (u64, u64),
    /// Both sides have ended, or there was no upstream.
    is_whole: bool,
    end: Option<End>,
}

/// How it ended.
struct End {
    cause: Option<&'static Cause>,
    closed: Closed,
    /// The error text.
    said: String,
}

impl End {
    const fn of(cause: &'static Cause, closed: Closed) -> Self {
        Self { cause: Some(cause), closed, said: String::new() }
    }
}

/// Passes a connection on until it ends. `deadline` is borrowed from the lane.
pub(super) async fn serve(
    bytes: Bytes<'_>,
    (upstream, passing): (Rc<LocalUpstream>, Passing),
    deadline: &mut Deadline,
) -> Closed {
    let mut passed = Passed {
        on: bytes,
        name_of_upstream: Arc::clone(&upstream.spec.name),
        spec: None,
        endpoint: None,
        connection: None,
        standing: None,
        attempts: 0,
        failed: String::new(),
        timing: Timing::default(),
        moved: (0, 0),
        is_whole: false,
        end: None,
    };
    let end = match passed.connect(upstream, passing).await {
        Ok(()) => passed.relay(passing, deadline).await,
        Err(end) => {
            passed.is_whole = true;
            end
        }
    };
    let closed = end.closed;
    passed.end = Some(end);
    closed
}

impl Passed<'_> {
    /// Connects to an endpoint of the upstream.
    async fn connect(&mut self, upstream: Rc<LocalUpstream>, passing: Passing) -> Result<(), End> {
        let limit = passing.connect.unwrap_or(upstream.spec.timeouts.connect);
        let owner = self.owner(&upstream);
        let mut attempts = Attempts::of_address(&upstream, self.on.peer.ip());
        loop {
            let began = Instant::now();
            let active = attempts.next(&upstream).map_err(|cause| End::of(cause, Closed::Error))?;
            self.attempts += 1;
            self.endpoint = Some(Arc::clone(&active.get().endpoint.label));
            let measured = active.measure(|| began, true);
            let connecting = connect_for_bytes(&upstream, &active, limit, owner.as_ref());
            // Boxed: the future of a handshake is large, and the connection far outlives it.
            let Some(connected) = self.unless_reset(Box::pin(connecting)).await else {
                upstream.cells.attempt(Outcome::Canceled);
                return Err(End::of(&error::CLIENT_CLOSED, Closed::Error));
            };
            match connected {
                Ok(connected) => {
                    attempts.count(&upstream);
                    measured.into_iter().for_each(|measured| measured.answered());
                    (self.timing.connect, self.timing.tls) = (connected.connect, connected.tls);
                    self.connection = Some(connected.connection);
                    self.standing = Some(active.stay());
                    self.spec = Some(Arc::clone(&upstream.spec));
                    return Ok(());
                }
                Err(e) => {
                    if e.is_avoided() {
                        self.attempts -= 1;
                    } else {
                        attempts.count(&upstream);
                        self.note_failed(&active, e, began);
                    }
                    let detail = active.get().take_detail();
                    measured.into_iter().for_each(|measured| measured.failed());
                    attempts.unreached(&upstream, &active, e).map_err(|cause| End {
                        said: detail.map(String::from).unwrap_or_default(),
                        ..End::of(cause, Closed::Error)
                    })?;
                }
            }
        }
    }

    /// The client as the PROXY header names it, if the upstream is sent one.
    fn owner(&self, upstream: &LocalUpstream) -> Option<Rc<Owner>> {
        upstream.spec.way.proxy_protocol?;
        let Peer::Address(source) = self.on.peer else { return None };
        let unknown = || SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let destination = self.on.client.local_address().unwrap_or_else(unknown);
        Some(Rc::new(Owner(Ends { source, destination })))
    }

    fn note_failed(&mut self, active: &Active, e: ConnectError, began: Instant) {
        let comma = if self.failed.is_empty() { "" } else { ", " };
        let (endpoint, ms) = (&active.get().endpoint.label, began.elapsed().as_secs_f64() * 1000.0);
        let _ = write!(self.failed, "{comma}{endpoint} {} {ms:.1}ms", e.cause); // a String takes everything
    }

    /// Waits, unless the client resets its connection meanwhile. One that only closes its side still reads.
    async fn unless_reset<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.on.client.is_reset(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Moves bytes until both sides have ended, one has failed, or nothing came for too long.
    async fn relay(&mut self, passing: Passing, deadline: &mut Deadline) -> End {
        let tunnel_timeout = self.spec.as_ref().map(|spec| spec.timeouts.tunnel).unwrap_or_default();
        let idle = passing.idle.unwrap_or(tunnel_timeout);
        let connected = Instant::now();
        let mut tunnel = Tunnel::default();
        deadline.set(connected, idle);
        poll_fn(|cx| {
            if self.on.core.is_cut(self.on.number) {
                return Poll::Ready(End::of(&error::SHUTDOWN, Closed::Drain));
            }
            let polled = self.poll_tunnel(&mut tunnel, cx);
            let moved = tunnel.moved();
            if moved != self.moved {
                let now = Instant::now();
                deadline.set(now, idle);
                self.note_moved(moved, now.saturating_duration_since(connected));
            }
            match polled {
                Poll::Ready(ended) => Poll::Ready(self.ended(ended)),
                Poll::Pending => {
                    deadline.poll_passed(cx).map(|()| End::of(&error::TCP_IDLE, Closed::Timeout))
                }
            }
        })
        .await
    }

    fn poll_tunnel(&mut self, tunnel: &mut Tunnel, cx: &mut Context<'_>) -> Poll<Result<(), TunnelError>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(())) };
        let core = self.on.core;
        let mut lent = core.take_buffer();
        let polled = tunnel.poll(cx, &mut self.on.client, &mut connection.stream, &mut lent);
        if lent.capacity() > 0 {
            core.give_buffer(lent);
        }
        polled
    }

    /// Counts moved bytes while the connection lasts, because it may last for days.
    fn note_moved(&mut self, moved: (u64, u64), since: Duration) {
        let before = std::mem::replace(&mut self.moved, moved);
        let cells = &self.on.listener.cells;
        cells.received_bytes.add(moved.0 - before.0);
        cells.sent_bytes.add(moved.1 - before.1);
        if before.1 == 0 && moved.1 > 0 {
            self.timing.first_byte = since;
            self.well();
        }
    }

    /// The endpoint has said something, or ended in order.
    fn well(&self) {
        let (Some(standing), Some(spec)) = (&self.standing, &self.spec) else { return };
        standing.answered(self.timing.first_byte);
        self.count_attempt(Outcome::Answered);
        spec.note(&standing.endpoint, true);
    }

    fn count_attempt(&self, outcome: Outcome) {
        let Some(spec) = &self.spec else { return };
        self.on.core.cells.upstream(&spec.cells).attempt(outcome);
    }

    fn ended(&mut self, ended: Result<(), TunnelError>) -> End {
        match ended {
            Ok(()) => {
                self.is_whole = true;
                if self.moved.1 == 0 {
                    self.well();
                }
                End { cause: None, closed: Closed::Tunnel, said: String::new() }
            }
            Err(TunnelError::Client(e)) => {
                End { said: e.to_string(), ..End::of(&error::CLIENT_CLOSED, Closed::Error) }
            }
            Err(TunnelError::Upstream(e)) => {
                let cause = &error::UPSTREAM_RESET;
                if let (Some(standing), Some(spec)) = (&self.standing, &self.spec) {
                    complain(&spec.name, &standing.endpoint.label, cause, &e);
                    if self.moved.1 == 0 {
                        self.count_attempt(Outcome::Reset);
                        standing.failed(self.on.core.cells.cause_index(cause.code), SystemTime::now());
                        spec.note(&standing.endpoint, false);
                    }
                }
                End { said: e.to_string(), ..End::of(cause, Closed::Error) }
            }
        }
    }

    /// Counts the cause and writes the log line.
    fn record(&self) {
        let core = self.on.core;
        let fallback;
        let end = match &self.end {
            Some(end) => end,
            None => {
                let cause = if std::thread::panicking() { &error::INTERNAL } else { &error::SHUTDOWN };
                fallback = End::of(cause, Closed::Drain);
                &fallback
            }
        };
        let listener = &self.on.listener.spec.name;
        if self.standing.is_some() && self.moved.1 == 0 && !self.is_whole && !is_of_upstream(end.cause) {
            self.count_attempt(Outcome::Canceled);
        }
        if let Some(cause) = end.cause {
            core.lost(cause, listener, self.on.peer, &cut_detail(&end.said));
        }
        let mut log = core.access_log.borrow_mut();
        let Some(log) = &mut *log else { return };
        let total = self.on.started.elapsed();
        let certificate = self.on.certificate.as_ref();
        let tls = self.on.client.tls();
        let headers = vec![&b""[..]; log.headers().len()]; // bytes have none
        log.record(&Entry {
            time: SystemTime::now().checked_sub(total).unwrap_or(SystemTime::UNIX_EPOCH),
            client: Some(self.on.peer.ip().to_canonical()),
            peer: if let Peer::Address(peer) = self.on.peer { Some(peer) } else { None },
            listener,
            host: self.on.name.as_deref().unwrap_or_default().as_bytes(),
            protocol: "TCP",
            upstream: &self.name_of_upstream,
            endpoint: self.endpoint.as_deref().unwrap_or_default(),
            attempts: self.attempts,
            failed_attempts: &self.failed,
            cause: end.cause.map_or("", |cause| cause.code),
            bytes_in: self.moved.0,
            bytes_out: self.moved.1,
            body_bytes_out: self.moved.1,
            tls_version: tls.map_or("", |tls| tls.version),
            tls_cipher: tls.map_or("", |tls| tls.cipher),
            tls_client_subject: certificate.map_or("", |c| &c.subject),
            tls_client_san: certificate.map_or("", |c| &c.san),
            tls_client_fingerprint: certificate.map_or("", |c| &c.fingerprint),
            tunnel: true,
            timing: Timing { total, ..self.timing },
            headers: &headers,
            ..Entry::default()
        });
    }
}

/// Whether the upstream was at fault, which has been counted.
fn is_of_upstream(cause: Option<&Cause>) -> bool {
    cause.is_some_and(|cause| *cause == error::UPSTREAM_RESET)
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        self.record();
        if !self.is_whole {
            self.on.client.abort();
            self.connection.iter_mut().for_each(|connection| connection.stream.abort());
        }
    }
}
