//! One core's connections to one endpoint that carry one exchange at a time: the idle ones, last in first out.
//!
//! The most recently used one has a warm path, and its peer is least likely to close it next; the others age and are
//! closed. A connection that becomes readable while idle is closed and never used: its peer closed it, or sent bytes
//! that no request asked for (RFC 9112 §9.2).

use super::connection::{Connection, Idle, note_taken, take_quiet};
use super::owned::Owned;
use super::shared::SharedConnections;
use std::cell::{Cell, RefCell};
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
    /// The gate whose permits they hold, by [`Gate::id`](super::Gate::id): an upstream cannot use another's place.
    pub(crate) gate: Option<u64>,
}

/// How connections are made, apart from the address. Connections made differently are not interchangeable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    /// What is read from them has left its FastCGI records.
    pub fastcgi: bool,
    /// Our source address.
    pub source: Option<IpAddr>,
    /// The PROXY header. A connection that begins with one serves one client.
    pub proxy_protocol: Option<proxy_protocol::Version>,
}

/// The idle connections.
#[derive(Default)]
pub(crate) struct Pool {
    idle: RefCell<Vec<Idle>>,
    /// Connections that only their own client's requests may use.
    pub(super) owned: Owned,
    /// HTTP/2 connections, which requests share.
    pub(crate) shared: Rc<SharedConnections>,
    /// When it was last swept in turn, and by which `keepalive`.
    swept: Cell<Option<(Instant, Duration)>>,
}

impl Pool {
    /// The most recently used connection that is still good; `once` as in [`take_quiet`].
    #[inline]
    pub(crate) fn take(&self, once: bool) -> Option<Connection> {
        take_quiet(&mut self.idle.borrow_mut(), once)
    }

    /// Keeps a connection whose last exchange is wholly over.
    #[inline]
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

    /// Closes connections that were idle longer than `keepalive`, are too old, or were closed by their peer.
    pub(crate) fn sweep(&self, keepalive: Duration, now: Instant) {
        self.idle.borrow_mut().retain_mut(|i| i.stays(keepalive, now));
        self.owned.sweep(keepalive, now);
    }

    /// Sweeps, unless that was done at this moment: upstreams with the same address share a pool, and each sweeps it.
    pub(crate) fn sweep_in_turn(&self, keepalive: Duration, now: Instant) {
        let is_done = |(at, by): (Instant, Duration)| at == now && by <= keepalive;
        if !self.swept.get().is_some_and(is_done) {
            self.swept.set(Some((now, keepalive)));
            self.sweep(keepalive, now);
        }
    }

    /// Closes the connection that has been idle longest. Returns whether there was one.
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
    #[inline]
    fn drop(&mut self) {
        for i in self.idle.get_mut() {
            note_taken(&i.connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::connection::{Opened, Owner};
    use std::os::unix::net::UnixStream;
    use std::rc::Weak;
    use weir_telemetry::{Setup, Telemetry, UpstreamCells};
    use weir_wire::proxy_protocol::Ends;
    use weir_wire::{Peer, Socket, Transport};

    /// A pool and the cells that count its connections.
    struct Test {
        pool: Pool,
        cells: Arc<UpstreamCells>,
        now: Instant,
    }

    impl Test {
        fn new() -> Self {
            let telemetry = Telemetry::new(Setup::default());
            let cells = telemetry.core(0).upstream(&telemetry.upstream("u"));
            Self { pool: Pool::default(), cells, now: Instant::now() }
        }

        /// Gives the pool a connection that expires. Returns its memory address, which identifies it, and the
        /// upstream's end.
        fn give(&self, expires: Option<Instant>, owner: Option<Weak<Owner>>) -> (*const (), UnixStream) {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = Transport::Plain(Socket::of_runtime(ours, Peer::Local).unwrap());
            let mut opened = Opened::new(expires, &self.cells, None);
            opened.owner = owner;
            let connection = Connection::exclusive(ours.into(), opened);
            let place = place(&connection);
            self.pool.give(connection, self.now);
            (place, theirs)
        }

        fn take(&self) -> Option<*const ()> {
            let taken = self.pool.take(true)?;
            assert!(taken.reused);
            Some(place(&taken))
        }

        /// The number of idle and of open connections.
        fn counted(&self) -> (i64, i64) {
            (self.cells.connections_idle.get(), self.cells.connections_open.get())
        }
    }

    fn owner() -> Rc<Owner> {
        let address = ([127, 0, 0, 1], 1).into();
        Rc::new(Owner(Ends { source: address, destination: address }))
    }

    fn place(connection: &Connection) -> *const () {
        std::ptr::from_ref(&**connection).cast()
    }

    /// Sockets need a runtime, if only to be closed.
    fn run(test: impl FnOnce(&mut Test)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _inside = runtime.enter();
        test(&mut Test::new());
    }

    #[test]
    fn the_one_used_last_is_taken_first() {
        run(|test| {
            let (first, _a) = test.give(None, None);
            let (second, _b) = test.give(None, None);
            assert_eq!(test.counted(), (2, 2));
            assert_eq!(test.take(), Some(second));
            assert_eq!(test.counted(), (1, 1));
            assert_eq!(test.take(), Some(first));
            assert_eq!(test.take(), None);
        });
    }

    #[test]
    fn those_who_share_a_pool_sweep_it_once() {
        run(|test| {
            let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
            let at = test.now + 30 * second;
            let _first = test.give(None, None);
            test.pool.sweep_in_turn(minute, at);
            let _old = test.give(Some(at), None);
            test.pool.sweep_in_turn(minute, at);
            assert_eq!(test.counted(), (2, 2), "swept at this moment");
            test.pool.sweep_in_turn(second, at);
            assert_eq!(test.counted(), (0, 0), "an upstream that keeps connections for less");
            let _old = test.give(Some(at), None);
            test.pool.sweep_in_turn(minute, at + second);
            assert_eq!(test.counted(), (0, 0), "at the next turn");
        });
    }

    #[test]
    fn one_that_was_closed_or_said_something_unasked_is_not_taken() {
        run(|test| {
            let (good, _good) = test.give(None, None);
            let (_, closed) = test.give(None, None);
            let (_, talks) = test.give(None, None);
            drop(closed);
            std::io::Write::write_all(&mut &talks, b"x").unwrap();
            assert_eq!(test.take(), Some(good));
            assert_eq!(test.counted(), (0, 0));
        });
    }

    #[test]
    fn one_that_is_too_old_is_not_kept() {
        run(|test| {
            let _old = test.give(Some(test.now), None);
            assert_eq!(test.counted(), (0, 0));
            let (young, _young) = test.give(Some(test.now + Duration::from_secs(1)), None);
            assert_eq!(test.take(), Some(young));
        });
    }

    #[test]
    fn idle_ones_are_closed_in_time() {
        run(|test| {
            let keepalive = Duration::from_secs(10);
            let _idle = test.give(None, None);
            test.pool.sweep(keepalive, test.now + Duration::from_secs(9));
            assert_eq!(test.counted(), (1, 1));
            test.pool.sweep(keepalive, test.now + keepalive);
            assert_eq!(test.counted(), (0, 0));
            let _idle = test.give(Some(test.now + Duration::from_secs(5)), None);
            test.pool.sweep(keepalive, test.now + Duration::from_secs(5));
            assert_eq!(test.counted(), (0, 0), "its time is over");
        });
    }

    #[test]
    fn the_one_that_is_idle_longest_makes_room() {
        run(|test| {
            assert!(!test.pool.close_oldest());
            let _first = test.give(None, None);
            let (second, _second) = test.give(None, None);
            assert!(test.pool.close_oldest());
            assert_eq!(test.counted(), (1, 1));
            assert_eq!(test.take(), Some(second));
            assert!(!test.pool.close_oldest());
        });
    }

    #[test]
    fn one_of_a_client_serves_nobody_else() {
        run(|test| {
            let owner = owner();
            let _own = test.give(None, Some(Rc::downgrade(&owner)));
            assert_eq!((test.take(), test.counted()), (None, (1, 1)));
            assert!(test.pool.owned.take(&owner, true).is_some());
            let _own = test.give(None, Some(Rc::downgrade(&owner)));
            assert!(test.pool.close_oldest() && test.counted() == (0, 0));
            let _own = test.give(None, Some(Rc::downgrade(&owner)));
            test.pool.sweep(Duration::from_secs(10), test.now);
            assert_eq!(test.counted(), (1, 1));
            drop(owner);
            test.pool.sweep(Duration::from_secs(10), test.now);
            assert_eq!(test.counted(), (0, 0), "its client is gone");
        });
    }

    #[test]
    fn a_pool_that_goes_leaves_nothing_in_the_counts() {
        run(|test| {
            let owner = owner();
            let _ends = (test.give(None, None), test.give(None, Some(Rc::downgrade(&owner))));
            assert_eq!(test.counted(), (2, 2));
            test.pool = Pool::default();
            assert_eq!(test.counted(), (0, 0));
        });
    }
}
