//! The way to a connection: from the pool, by waiting at the gate, or by dialling.

use super::gate::Waited;
use super::links::{self, Keepalive, Links, Room};
use super::pool::{Connection, Opened};
use super::{Active, LocalEndpoint, LocalUpstream, Protocol};
use crate::core::Core;
use crate::error::{self, Cause};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use weir_telemetry::{Attempt as Outcome, log};
use weir_wire::dial::{self, DialError, dial};
use weir_wire::h2::{Fault, Link, window_for};

/// A connection, and what it took.
pub(crate) struct Made {
    pub(crate) connection: Connection,
    pub(crate) connect: Duration,
    pub(crate) tls: Duration,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unmade {
    pub(crate) cause: &'static Cause,
    /// Another endpoint can be tried.
    pub(crate) elsewhere: bool,
}

impl Unmade {
    /// What no other endpoint would change.
    const fn here(cause: &'static Cause) -> Self {
        Self { cause, elsewhere: false }
    }
}

/// What the pool brought.
enum Entered {
    /// The right to open a connection; with a limit, its place under it.
    Dial(Option<OwnedSemaphorePermit>),
    /// A connection, to the endpoint that the attempt is now counted at.
    Made(Made),
}

impl Entered {
    fn pooled(connection: Connection) -> Self {
        Self::Made(Made { connection, connect: Duration::ZERO, tls: Duration::ZERO })
    }
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
    let entered = match upstream.spec.protocol {
        Protocol::Http1 => enter_alone(upstream, active, wanted).await?,
        Protocol::Negotiated if active.get().pool.links.chose_http1() => {
            enter_alone(upstream, active, wanted).await?
        }
        Protocol::Http2 | Protocol::Negotiated => {
            Box::pin(enter_shared(core, upstream, active, wanted)).await?
        }
    };
    match entered {
        Entered::Made(made) => Ok(made),
        // Boxed: dialling is rare, and its future would make that of every idle connection larger.
        Entered::Dial(permit) => {
            let at = active.get();
            let Dialled { alone, connect, tls } =
                Box::pin(open(core, upstream, at, permit, wanted.left)).await?;
            // An endpoint that chose HTTP/1.1 before may choose otherwise now.
            let connection = alone.or_else(|| at.pool.links.take(Room::Any));
            let connection = connection.ok_or(Unmade::here(&error::PENDING_TIMEOUT))?;
            Ok(Made { connection, connect, tls })
        }
    }
}

/// The way to a connection that carries one exchange at a time.
async fn enter_alone(
    upstream: &LocalUpstream,
    active: &mut Active,
    wanted: Wanted,
) -> Result<Entered, Unmade> {
    if !wanted.fresh
        && let Some(connection) = active.get().pool.take(wanted.once)
    {
        upstream.cells.reused.inc();
        return Ok(Entered::pooled(connection));
    }
    let Some(gate) = &upstream.spec.gate else { return Ok(Entered::Dial(None)) };
    if let Some(permit) = gate.enter_for(upstream) {
        return Ok(Entered::Dial(Some(permit)));
    }
    match gate.wait(upstream, upstream.spec.timeouts.connect).await {
        Waited::Permit(permit) => Ok(Entered::Dial(Some(permit))),
        Waited::Given(given) => {
            *active = Active::new(&given.endpoints, given.index);
            upstream.cells.reused.inc();
            Ok(Entered::pooled(given.connection))
        }
        Waited::TooMany => Err(Unmade::here(&error::PENDING_LIMIT)),
        Waited::TooLong => Err(Unmade::here(&error::PENDING_TIMEOUT)),
    }
}

/// The way to a stream of a connection that carries many: one with ample room, else a new connection, else any with room,
/// else whichever comes first.
async fn enter_shared(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    active: &mut Active,
    mut wanted: Wanted,
) -> Result<Entered, Unmade> {
    let pool = Rc::clone(&active.get().pool);
    let links = &pool.links;
    let gate = upstream.spec.gate.as_deref();
    let failures = links.failures();
    let (mut dialled, mut end, mut waiting) = (false, None, None);
    loop {
        let found = if wanted.fresh { None } else { links.take(Room::Ample) };
        if let Some(connection) = found {
            return Ok(shared(upstream, links, connection, dialled));
        }
        // Of an endpoint that takes no requests for now, more connections would not take any either.
        if !links.is_dialling() && !links.is_paused() {
            // An idle one that makes room is not of this endpoint: it would have been taken.
            let permit = gate.map(|gate| gate.enter_for(upstream));
            if let None | Some(Some(_)) = &permit {
                dialled = true;
                open_shared(core, upstream, active, permit.flatten());
            }
        }
        // One that is to be fresh waits for the connection that is being made, whoever began it.
        if !std::mem::take(&mut wanted.fresh)
            && let Some(connection) = links.take(Room::Any)
        {
            return Ok(shared(upstream, links, connection, dialled));
        }
        let (end, cause) = *end.get_or_insert_with(|| {
            let own = upstream.spec.timeouts.connect;
            let left = wanted.left.filter(|(left, _)| *left < own);
            let (limit, cause) = left.map_or((own, None), |(left, cause)| (left, Some(cause)));
            (tokio::time::Instant::now() + limit, cause)
        });
        if let (Some(gate), None, false) = (gate, &waiting, links.is_dialling()) {
            waiting = Some(gate.queue(upstream).ok_or(Unmade::here(&error::PENDING_LIMIT))?);
        }
        let late = tokio::select! {
            () = links.changed() => false,
            permit = acquire(gate), if !links.is_dialling() && !links.is_paused() => {
                dialled = true;
                open_shared(core, upstream, active, permit);
                false
            }
            () = tokio::time::sleep_until(end) => true,
        };
        if let Some(unmade) = links.failed_since(failures) {
            return Err(unmade);
        }
        if late {
            // While one connects nothing is full: it is the upstream that lets us wait.
            let own = if links.is_dialling() { &error::CONNECT_TIMEOUT } else { &error::PENDING_TIMEOUT };
            return Err(Unmade::here(cause.unwrap_or(own)));
        }
        if links.chose_http1() {
            return enter_alone(upstream, active, wanted).await;
        }
    }
}

fn shared(upstream: &LocalUpstream, links: &Links, connection: Connection, dialled: bool) -> Entered {
    if connection.reused {
        upstream.cells.reused.inc();
    }
    let (connect, tls) = if dialled { links.took.get() } else { Default::default() };
    Entered::Made(Made { connection, connect, tls })
}

/// Opens a connection in a task of its own: others wait for it too, so neither an exchange that is canceled nor one with
/// little time left may cut it short.
fn open_shared(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    active: &Active,
    permit: Option<OwnedSemaphorePermit>,
) {
    let (core, upstream, (endpoints, index)) = (Rc::clone(core), Rc::clone(upstream), active.place());
    let dialling = links::begin(&active.get().pool);
    drop(tokio::task::spawn_local(async move {
        let at = &endpoints[index];
        match open(&core, &upstream, at, permit, None).await {
            Ok(Dialled { alone, connect, tls }) => {
                at.pool.links.took.set((connect, tls));
                if let Some(connection) = alone {
                    at.pool.give(connection, Instant::now());
                }
            }
            Err(unmade) => dialling.fail(unmade),
        }
    }));
}

/// Waits for a place under the limit; without one, for ever.
async fn acquire(gate: Option<&super::Gate>) -> Option<OwnedSemaphorePermit> {
    match gate {
        Some(gate) => gate.acquire().await,
        None => std::future::pending().await,
    }
}

/// A connection that was opened.
struct Dialled {
    /// Itself, if it carries one exchange at a time; else it is among the pool's links.
    alone: Option<Connection>,
    connect: Duration,
    tls: Duration,
}

/// Opens a connection.
async fn open(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    at: &LocalEndpoint,
    permit: Option<OwnedSemaphorePermit>,
    left: Option<(Duration, &'static Cause)>,
) -> Result<Dialled, Unmade> {
    let spec = &upstream.spec;
    let (endpoint, pool) = (&at.endpoint, &at.pool);
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
    let dialled = match dial(&endpoint.address, tls, timeout).await {
        Ok(dialled) => dialled,
        Err(e) => {
            let (cause, outcome, elsewhere) = match &e {
                // No endpoint is to blame, and none would take what we cannot send.
                DialError::Failed(e) if weir_wire::limits::ran_out(e) => {
                    (&error::OUT_OF_DESCRIPTORS, Outcome::ConnectFailed, false)
                }
                DialError::Failed(_) => (&error::CONNECT_FAILED, Outcome::ConnectFailed, true),
                DialError::Refused(_) => (&error::CONNECT_REFUSED, Outcome::ConnectFailed, true),
                DialError::TimedOut => (too_late, Outcome::ConnectTimeout, false),
                DialError::Tls(_) => (&error::UPSTREAM_TLS, Outcome::TlsFailed, false),
            };
            return Err(failed(cause, outcome, elsewhere, &e));
        }
    };
    upstream.cells.connects.inc();
    let dial::Dialled { stream, connect, round_trip, tls } = dialled;
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
            return Ok(Dialled { alone: Some(Connection::alone(stream, opened)), connect, tls });
        }
    }
    let header_bytes = core.local().snapshot.h2.header_bytes;
    let keepalive = Keepalive::new(spec.keepalive);
    let freed = pool.links.freed(keepalive.ended());
    let greeting = Link::begin(stream, window_for(round_trip), header_bytes, freed);
    let rest = timeout.saturating_sub(started.elapsed());
    match tokio::time::timeout(rest, greeting).await {
        // It would be found closed by all who wait, and dialled anew by the first of them, over and over.
        Ok(Ok((link, _))) if !link.is_open() => {
            Err(failed(&error::UPSTREAM_CLOSED, Outcome::Reset, true, &GOODBYE))
        }
        Ok(Ok((link, driver))) => {
            let (name, label) = (Arc::clone(&spec.name), Arc::clone(&endpoint.label));
            let silent = move || complain(&name, &label, &error::UPSTREAM_RESET, &SILENT);
            links::add(pool, link, driver, opened, keepalive, silent);
            Ok(Dialled { alone: None, connect, tls })
        }
        // Nothing of the request was sent.
        Ok(Err(Fault::Closed)) => {
            no_http2("it closed the connection before it said anything in HTTP/2", true)
        }
        Ok(Err(_)) => no_http2("what it said is no HTTP/2", false),
        Err(e) => Err(failed(too_late, Outcome::ConnectTimeout, false, &e)),
    }
}

/// What is said of an upstream that takes connections and no requests.
const GOODBYE: &str = "it said goodbye (GOAWAY) before it took a request";

/// What is said of an upstream that was given up.
const SILENT: &str = "no sign of life: it answered no PING on a connection with requests";

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
