//! Connections of one core to one endpoint that carry one exchange at a time: the idle ones, last in first out.
//!
//! The last one used is the one whose path is warm and whose peer is least likely to close it next; the others grow old
//! and are closed. A connection that became readable while idle is closed, never used: its peer closed it, or sent bytes
//! that no request asked for (RFC 9112 §9.2).

use super::links::Links;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use weir_telemetry::UpstreamCells;
use weir_wire::Stream;
use weir_wire::listen::Address;

/// What makes two connections interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) address: Address,
    pub(crate) tls: Arc<str>,
    pub(crate) server_name: Arc<str>,
    /// The gate whose permits they hold, by [`Gate::id`](super::Gate::id): one upstream's place is not another's.
    pub(crate) gate: Option<u64>,
}

/// A connection to an endpoint, or one stream of a shared one.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Whether it, or the connection it is a stream of, has carried an exchange before.
    pub(crate) reused: bool,
    /// What it holds while it is open. A stream holds nothing: its connection does.
    opened: Option<Opened>,
}

/// What an open connection holds: its place in the counts and under the upstream's limit.
pub(crate) struct Opened {
    pub(super) expires: Option<Instant>,
    cells: Arc<UpstreamCells>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Opened {
    pub(super) fn new(
        expires: Option<Instant>,
        cells: &Arc<UpstreamCells>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        cells.connections_open.inc();
        Self { expires, cells: Arc::clone(cells), _permit: permit }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.cells.connections_open.dec();
    }
}

impl Connection {
    /// One that carries one exchange at a time.
    pub(super) const fn alone(stream: Stream, opened: Opened) -> Self {
        Self { stream, reused: false, opened: Some(opened) }
    }

    /// One stream of a connection that carries many.
    pub(super) const fn shared(stream: Stream, reused: bool) -> Self {
        Self { stream, reused, opened: None }
    }

    /// Whether it may carry another exchange: it is not too old, and its peer has neither closed it nor said anything.
    pub(super) fn is_good(&mut self, now: Instant) -> bool {
        self.is_young(now) && self.stream.is_quiet()
    }

    fn is_young(&self, now: Instant) -> bool {
        self.opened.as_ref().is_some_and(|o| o.expires.is_none_or(|end| end > now))
    }

    fn count_idle(&self, count: impl FnOnce(&UpstreamCells)) {
        if let Some(opened) = &self.opened {
            count(&opened.cells);
        }
    }
}

/// The idle connections.
#[derive(Default)]
pub(crate) struct Pool {
    idle: RefCell<Vec<Idle>>,
    /// The shared ones, of HTTP/2.
    pub(crate) links: Links,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

impl Pool {
    /// The connection used last that is still good. `once`: for a request that must not be sent twice, so that the kernel is
    /// asked (0.3 µs) and not only the runtime, which may not have heard of an end yet.
    pub(crate) fn take(&self, once: bool) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { mut connection, .. }) = idle.pop() {
            connection.count_idle(|cells| cells.connections_idle.dec());
            let quiet = if once { connection.stream.is_quiet_now() } else { connection.stream.is_quiet() };
            if quiet {
                connection.reused = true;
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose last exchange is wholly over.
    pub(crate) fn give(&self, connection: Connection, now: Instant) {
        if !connection.is_young(now) {
            return;
        }
        connection.count_idle(|cells| cells.connections_idle.inc());
        self.idle.borrow_mut().push(Idle { connection, since: now });
    }

    /// Closes what has been idle for longer than `keepalive`, is too old, or was closed by its peer.
    pub(crate) fn sweep(&self, keepalive: Duration, now: Instant) {
        self.idle.borrow_mut().retain_mut(|i| {
            let keep = now.duration_since(i.since) < keepalive && i.connection.is_good(now);
            if !keep {
                i.connection.count_idle(|cells| cells.connections_idle.dec());
            }
            keep
        });
    }

    /// Closes the connection that has been idle longest; tells whether there was one.
    pub(crate) fn close_oldest(&self) -> bool {
        let mut idle = self.idle.borrow_mut();
        if idle.is_empty() {
            return self.links.close_idle();
        }
        idle.remove(0).connection.count_idle(|cells| cells.connections_idle.dec());
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for i in self.idle.get_mut() {
            i.connection.count_idle(|cells| cells.connections_idle.dec());
        }
    }
}
