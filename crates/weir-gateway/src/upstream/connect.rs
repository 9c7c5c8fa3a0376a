//! The way to a connection: from the pool, by waiting at the gate, or by dialling.

use super::gate::Waited;
use super::links::{self, Dialling, Room};
use super::pool::{Connection, Opened};
use super::{Active, LocalUpstream, Protocol};
use crate::core::Core;
use crate::error::{self, Cause};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use weir_telemetry::{Attempt as Outcome, log};
use weir_wire::dial::{DialError, Dialled, dial};
use weir_wire::h2::{Fault, Link, window_for};

/// A connection, and what it took.
pub(crate) struct Made {
    pub(crate) connection: Connection,
    pub(crate) connect: Duration,
    pub(crate) tls: Duration,
}

/// Why there is no connection.
pub(crate) struct Unmade {
    pub(crate) cause: &'static Cause,
    /// Another endpoint can be tried.
    pub(crate) elsewhere: bool,
}

/// What the pool brought.
enum Entered {
    /// A connection, to the endpoint that the attempt is now counted at.
    Connection(Connection),
    /// The right to open one; with a limit, its place under it.
    Dial(Option<OwnedSemaphorePermit>, Option<Dialling>),
}

/// What an attempt needs of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Not from the pool.
    pub(crate) fresh: bool,
    /// For a request that must not be sent twice: see [`Pool::take`](super::Pool::take).
    pub(crate) once: bool,
    /// What is left of the exchange's time, and the cause when nothing is.
    pub(crate) left: Option<(Duration, &'static Cause)>,
}

/// A connection to the endpoint of the attempt, pooled or new. The attempt may be counted elsewhere afterwards: at the
/// endpoint whose connection was handed over.
///
/// # Errors
/// Why there is none. A failed attempt is counted and logged.
pub(crate) async fn connect(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    active: &mut Active,
    wanted: Wanted,
) -> Result<Made, Unmade> {
    match enter(upstream, active, wanted).await {
        Ok(Entered::Connection(connection)) => {
            Ok(Made { connection, connect: Duration::ZERO, tls: Duration::ZERO })
        }
        // Boxed: dialling is rare, and its future would make that of every idle connection larger.
        Ok(Entered::Dial(permit, dialling)) => {
            let made = Box::pin(open(core, upstream, active, permit, wanted.left)).await;
            if let (Err(unmade), Some(_)) = (&made, &dialling) {
                active.get().pool.links.fail(unmade.cause);
            }
            made
        }
        Err(cause) => Err(Unmade { cause, elsewhere: false }),
    }
}

async fn enter(
    upstream: &LocalUpstream,
    active: &mut Active,
    wanted: Wanted,
) -> Result<Entered, &'static Cause> {
    match upstream.spec.protocol {
        Protocol::Http1 => enter_alone(upstream, active, wanted).await,
        Protocol::Negotiated if active.get().pool.links.chose_http1() => {
            enter_alone(upstream, active, wanted).await
        }
        Protocol::Http2 | Protocol::Negotiated => Box::pin(enter_shared(upstream, active, wanted)).await,
    }
}

/// The way to a connection that carries one exchange at a time.
async fn enter_alone(
    upstream: &LocalUpstream,
    active: &mut Active,
    wanted: Wanted,
) -> Result<Entered, &'static Cause> {
    if !wanted.fresh
        && let Some(connection) = active.get().pool.take(wanted.once)
    {
        upstream.cells.reused.inc();
        return Ok(Entered::Connection(connection));
    }
    let Some(gate) = &upstream.spec.gate else { return Ok(Entered::Dial(None, None)) };
    if let Some(permit) = gate.enter().or_else(|| upstream.close_one_idle().then(|| gate.enter()).flatten()) {
        return Ok(Entered::Dial(Some(permit), None));
    }
    match gate.wait(upstream, upstream.spec.timeouts.connect).await {
        Waited::Permit(permit) => Ok(Entered::Dial(Some(permit), None)),
        Waited::Given(given) => {
            *active = Active::new(&given.endpoints, given.index);
            upstream.cells.reused.inc();
            Ok(Entered::Connection(given.connection))
        }
        Waited::TooMany => Err(&error::PENDING_LIMIT),
        Waited::TooLong => Err(&error::PENDING_TIMEOUT),
    }
}

/// The way to a stream of a connection that carries many: one with ample room, else a new connection, else any with room,
/// else whichever comes first.
async fn enter_shared(
    upstream: &LocalUpstream,
    active: &mut Active,
    mut wanted: Wanted,
) -> Result<Entered, &'static Cause> {
    let pool = Rc::clone(&active.get().pool);
    let links = &pool.links;
    let gate = upstream.spec.gate.as_deref();
    let (failures, _) = links.failed();
    let mut end = None;
    let mut waiting = None;
    loop {
        let found = if wanted.fresh { None } else { links.take(Room::Ample) };
        if let Some(connection) = found {
            return Ok(reused(upstream, connection));
        }
        if !links.is_dialling() {
            match gate {
                None => return Ok(Entered::Dial(None, Some(links::begin(&pool)))),
                Some(gate) => {
                    let permit = gate.enter().or_else(|| {
                        // Not an idle one of this endpoint: it would have been taken.
                        upstream.close_one_idle().then(|| gate.enter()).flatten()
                    });
                    if let Some(permit) = permit {
                        return Ok(Entered::Dial(Some(permit), Some(links::begin(&pool))));
                    }
                }
            }
        }
        if let Some(connection) = links.take(Room::Any) {
            return Ok(reused(upstream, connection));
        }
        let end = *end.get_or_insert_with(|| tokio::time::Instant::now() + upstream.spec.timeouts.connect);
        if let (Some(gate), None) = (gate, &waiting) {
            waiting = Some(gate.queue(upstream).ok_or(&error::PENDING_LIMIT)?);
        }
        let late = tokio::select! {
            () = links.changed() => false,
            permit = acquire(gate), if !links.is_dialling() => {
                return Ok(Entered::Dial(permit, Some(links::begin(&pool))));
            }
            () = tokio::time::sleep_until(end) => true,
        };
        let (now_failed, cause) = links.failed();
        if now_failed != failures {
            return Err(links::why_not(cause));
        }
        if late {
            // While one connects nothing is full: it is the upstream that lets us wait.
            return Err(if links.is_dialling() { &error::CONNECT_TIMEOUT } else { &error::PENDING_TIMEOUT });
        }
        if links.chose_http1() {
            return enter_alone(upstream, active, wanted).await;
        }
        wanted.fresh = false;
    }
}

fn reused(upstream: &LocalUpstream, connection: Connection) -> Entered {
    if connection.reused {
        upstream.cells.reused.inc();
    }
    Entered::Connection(connection)
}

/// Waits for a place under the limit; without one, for ever.
async fn acquire(gate: Option<&super::Gate>) -> Option<OwnedSemaphorePermit> {
    match gate {
        Some(gate) => gate.acquire().await,
        None => std::future::pending().await,
    }
}

/// Opens a connection.
async fn open(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    active: &Active,
    permit: Option<OwnedSemaphorePermit>,
    left: Option<(Duration, &'static Cause)>,
) -> Result<Made, Unmade> {
    let spec = &upstream.spec;
    let (endpoint, pool) = (&active.get().endpoint, &active.get().pool);
    let tls = spec.tls.as_ref().map(|tls| (tls, &*endpoint.server_name));
    let own = (spec.timeouts.connect, &error::CONNECT_TIMEOUT);
    let (timeout, too_late) = left.filter(|(left, _)| *left < own.0).unwrap_or(own);
    let started = Instant::now();
    let failed = |cause: &'static Cause, outcome: Outcome, elsewhere: bool, e: &dyn fmt::Display| {
        upstream.cells.connect_failures.inc();
        upstream.cells.attempt(outcome);
        complain(&spec.name, &endpoint.label, cause, e);
        Unmade { cause, elsewhere }
    };
    let Dialled { stream, connect, round_trip, tls } = match dial(&endpoint.address, tls, timeout).await {
        Ok(dialled) => dialled,
        Err(e) => {
            let (cause, outcome, elsewhere) = match &e {
                DialError::Failed(_) => (&error::CONNECT_FAILED, Outcome::ConnectFailed, true),
                DialError::Refused(_) => (&error::CONNECT_REFUSED, Outcome::ConnectFailed, true),
                DialError::TimedOut => (too_late, Outcome::ConnectTimeout, false),
                DialError::Tls(_) => (&error::UPSTREAM_TLS, Outcome::TlsFailed, false),
            };
            return Err(failed(cause, outcome, elsewhere, &e));
        }
    };
    upstream.cells.connects.inc();
    let expires = spec.max_age.map(|age| Instant::now() + jittered(core, age));
    let opened = Opened::new(expires, &upstream.cells, permit);
    let no_http2 = |e: &'static str, elsewhere| {
        Err(failed(&error::UPSTREAM_PROTOCOL, Outcome::ProtocolError, elsewhere, &e))
    };
    match (spec.protocol, stream.chose_h2()) {
        (Protocol::Http2, false) if spec.tls.is_some() => {
            return no_http2("it did not choose h2 in the TLS handshake (ALPN)", false);
        }
        (Protocol::Http2, _) => {}
        (Protocol::Negotiated, true) => pool.links.choose_http1(false),
        (Protocol::Http1 | Protocol::Negotiated, _) => {
            if spec.protocol == Protocol::Negotiated {
                pool.links.choose_http1(true);
            }
            return Ok(Made { connection: Connection::alone(stream, opened), connect, tls });
        }
    }
    let header_bytes = core.local().snapshot.h2.header_bytes;
    let greeting = Link::begin(stream, window_for(round_trip), header_bytes, pool.links.freed());
    let rest = timeout.saturating_sub(started.elapsed());
    match tokio::time::timeout(rest, greeting).await {
        Ok(Ok((link, driver))) => {
            let connection = links::add(pool, link, driver, opened, spec.keepalive);
            Ok(Made { connection, connect, tls })
        }
        // Nothing of the request was sent.
        Ok(Err(Fault::Closed)) => {
            no_http2("it closed the connection before it said anything in HTTP/2", true)
        }
        Ok(Err(_)) => no_http2("what it said is no HTTP/2", false),
        Err(e) => Err(failed(too_late, Outcome::ConnectTimeout, false, &e)),
    }
}

/// 90 to 100 % of an age, so that connections made together do not end together.
fn jittered(core: &Core, age: Duration) -> Duration {
    age.mul_f64(1.0 - f64::from(core.random.borrow_mut().below(1000)) / 10_000.0)
}

/// One line of the log for a failing endpoint; at most one a second, with a count of the others.
pub(crate) fn complain(upstream: &str, endpoint: &str, cause: &Cause, e: &dyn fmt::Display) {
    static SEEN: log::Every = log::every(Duration::from_secs(1));
    SEEN.warn(
        "upstream failed",
        &[("upstream", &upstream), ("endpoint", &endpoint), ("cause", &cause.code), ("error", &e)],
    );
}
