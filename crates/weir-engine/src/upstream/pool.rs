//! Connections of one core to one endpoint that carry one exchange at a time: the idle ones, last in first out.
//!
//! The last one used is the one whose path is warm and whose peer is least likely to close it next; the others grow old
//! and are closed. A connection that became readable while idle is closed, never used: its peer closed it, or sent bytes
//! that no request asked for (RFC 9112 §9.2).

use super::connection::{Connection, Idle, note_taken, take_quiet};
use super::owned::Owned;
use super::shared::SharedConnections;
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_wire::listen::Address;
use weir_wire::proxy_protocol;

/// What makes two connections interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) address: Address,
    pub(crate) tls: Arc<str>,
    pub(crate) server_name: Arc<str>,
    pub(crate) way: Way,
    /// The gate whose permits they hold, by [`Gate::id`](super::Gate::id): one upstream's place is not another's.
    pub(crate) gate: Option<u64>,
}

/// How connections are made, beyond where to: those of different ways are not interchangeable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    /// From which address of ours.
    pub(crate) source: Option<IpAddr>,
    /// With which PROXY header. A connection that begins with one serves one client.
    pub(crate) proxy_protocol: Option<proxy_protocol::Version>,
}

/// The idle connections.
#[derive(Default)]
pub(crate) struct Pool {
    idle: RefCell<Vec<Idle>>,
    /// Those that only their client's requests may use.
    pub(super) owned: Owned,
    /// Those of HTTP/2, which requests share.
    pub(crate) shared: Rc<SharedConnections>,
}

impl Pool {
    /// The connection used last that is still good; `once` as in [`take_quiet`].
    pub(crate) fn take(&self, once: bool) -> Option<Connection> {
        take_quiet(&mut self.idle.borrow_mut(), once)
    }

    /// Keeps a connection whose last exchange is wholly over.
    pub(crate) fn give(&self, connection: Connection, now: Instant) {
        if !connection.is_young(now) {
            return;
        }
        if let Some(cells) = connection.cells() {
            cells.connections_idle.inc();
        }
        let idle = Idle { connection, since: now };
        if idle.connection.owner().is_some() {
            return self.owned.give(idle);
        }
        self.idle.borrow_mut().push(idle);
    }

    /// Closes what has been idle for longer than `keepalive`, is too old, or was closed by its peer.
    pub(crate) fn sweep(&self, keepalive: Duration, now: Instant) {
        self.idle.borrow_mut().retain_mut(|i| i.stays(keepalive, now));
        self.owned.sweep(keepalive, now);
    }

    /// Closes the connection that has been idle longest; tells whether there was one.
    pub(crate) fn close_oldest(&self) -> bool {
        let mut idle = self.idle.borrow_mut();
        if idle.is_empty() {
            return self.owned.close_one() || self.shared.close_idle();
        }
        note_taken(&idle.remove(0).connection);
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for i in self.idle.get_mut() {
            note_taken(&i.connection);
        }
    }
}
