//! One connection to an endpoint, and the reasons for not getting one.

use crate::error::{self, Cause};
use std::ops::{Deref, DerefMut};
use std::rc::Weak;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use weir_telemetry::{Attempt as Outcome, UpstreamCells};
use weir_wire::Stream;
use weir_wire::proxy_protocol::Ends;
use weir_wire::relay::Relay;

/// A connection to an endpoint, or one stream of a shared connection.
///
/// Boxed together with the relay that writes to it: it moves from phase to phase, and keeps its memory between
/// exchanges.
pub struct Connection(Box<Carrier>);

/// The parts of a connection.
pub struct Carrier {
    /// Where its bytes go.
    pub stream: Stream,
    /// The request being sent.
    pub relay: Relay,
    /// Whether it, or the connection it is a stream of, has carried an exchange before.
    pub reused: bool,
    /// What it holds while open. `None` for a stream, because its connection holds it.
    opened: Option<Opened>,
}

/// What an open connection holds: its place in the counts and under the upstream's limit.
pub(crate) struct Opened {
    pub(super) expires: Option<Instant>,
    /// The client it was opened for, if no other may use it.
    pub(super) owner: Option<Weak<Owner>>,
    cells: Arc<UpstreamCells>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A client's connection as the PROXY header describes it. Two with equal ends are still two owners.
#[derive(Debug)]
pub struct Owner(pub Ends);

/// A connection waiting for its next exchange.
pub(super) struct Idle {
    pub(super) connection: Connection,
    pub(super) since: Instant,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectError {
    /// Why.
    pub cause: &'static Cause,
    /// Whether another endpoint can be tried.
    pub(crate) elsewhere: bool,
    /// How the attempt counts. `None` if it waited in vain for a place or did not dial.
    pub outcome: Option<Outcome>,
}

// === impl Connection ===

impl Connection {
    /// A connection that carries one exchange at a time.
    #[inline]
    pub(super) fn exclusive(stream: Stream, opened: Opened) -> Self {
        Self(Box::new(Carrier { stream, relay: Relay::idle(), reused: false, opened: Some(opened) }))
    }

    /// One stream of a connection that carries many.
    #[inline]
    pub(super) fn shared(stream: Stream, reused: bool) -> Self {
        Self(Box::new(Carrier { stream, relay: Relay::idle(), reused, opened: None }))
    }

    /// The same, in the memory of one that is over.
    #[inline]
    pub(super) fn again(mut self, stream: Stream, reused: bool) -> Self {
        (self.stream, self.reused) = (stream, reused);
        self
    }

    /// Ends its stream and keeps only its own memory.
    #[inline]
    pub(super) fn over(mut self) -> Self {
        self.stream = Stream::Over;
        self.relay.release();
        self
    }

    /// Takes the request out, for another connection.
    #[inline]
    pub fn take_relay(&mut self) -> Relay {
        std::mem::replace(&mut self.relay, Relay::idle())
    }

    /// Whether it may carry another exchange: it is not too old, and its peer has neither closed it nor sent
    /// anything.
    #[inline]
    pub(super) fn is_good(&mut self, now: Instant) -> bool {
        self.is_young(now) && self.stream.is_quiet()
    }

    #[inline]
    pub(super) fn is_young(&self, now: Instant) -> bool {
        self.opened.as_ref().is_some_and(|o| o.expires.is_none_or(|end| end > now))
    }

    /// The only client it serves, if it serves only one.
    #[inline]
    pub(super) fn owner(&self) -> Option<&Weak<Owner>> {
        self.opened.as_ref()?.owner.as_ref()
    }

    /// Where it is counted.
    #[inline]
    pub(super) fn cells(&self) -> Option<&UpstreamCells> {
        self.opened.as_ref().map(|opened| &*opened.cells)
    }
}

impl Deref for Connection {
    type Target = Carrier;

    #[inline]
    fn deref(&self) -> &Carrier {
        &self.0
    }
}

impl DerefMut for Connection {
    #[inline]
    fn deref_mut(&mut self) -> &mut Carrier {
        &mut self.0
    }
}

// === impl Idle ===

impl Idle {
    /// Whether to keep it. If not, it is no longer counted as idle.
    #[inline]
    pub(super) fn stays(&mut self, keepalive: Duration, now: Instant) -> bool {
        let stays = now.duration_since(self.since) < keepalive && self.connection.is_good(now);
        if !stays {
            note_taken(&self.connection);
        }
        stays
    }
}

/// Takes the most recently used connection that is still good. `once` is for a request that must not be sent twice:
/// then the kernel is asked too (0.3 µs), because the core may not yet know that the connection has ended.
#[inline]
pub(super) fn take_quiet(idle: &mut Vec<Idle>, once: bool) -> Option<Connection> {
    while let Some(Idle { mut connection, .. }) = idle.pop() {
        note_taken(&connection);
        let quiet = if once { connection.stream.is_quiet_now() } else { connection.stream.is_quiet() };
        if quiet {
            connection.reused = true;
            return Some(connection);
        }
    }
    None
}

/// Counts a connection as no longer idle.
#[inline]
pub(super) fn note_taken(connection: &Connection) {
    if let Some(cells) = connection.cells() {
        cells.connections_idle.dec();
    }
}

// === impl Opened ===

impl Opened {
    #[inline]
    pub(super) fn new(
        expires: Option<Instant>,
        cells: &Arc<UpstreamCells>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        cells.connections_open.inc();
        Self { expires, owner: None, cells: Arc::clone(cells), _permit: permit }
    }
}

impl Drop for Opened {
    #[inline]
    fn drop(&mut self) {
        self.cells.connections_open.dec();
    }
}

// === impl ConnectError ===

impl ConnectError {
    /// An error that no other endpoint would change. It counts as no attempt.
    #[inline]
    pub(super) const fn here(cause: &'static Cause) -> Self {
        Self { cause, elsewhere: false, outcome: None }
    }

    /// The connect took too long.
    pub(super) const TIMED_OUT: Self =
        Self { cause: &error::CONNECT_TIMEOUT, elsewhere: true, outcome: Some(Outcome::ConnectTimeout) };

    /// Whether nothing was tried because the endpoint is avoided.
    #[inline]
    pub fn is_avoided(&self) -> bool {
        self.outcome.is_none() && *self.cause == error::NO_HEALTHY_ENDPOINT
    }

    /// The endpoint is out of rotation and was dialed a moment ago.
    pub(super) const AVOIDED: Self =
        Self { cause: &error::NO_HEALTHY_ENDPOINT, elsewhere: true, outcome: None };
}
