//! A listening socket of a core, and how many connections it tries to accept per event.

#![allow(unsafe_code, reason = "mio lends the descriptor of its set only as a number")]

use super::{Class, Place, READ, Sockets};
use crate::Peer;
use crate::limits::{is_reserved, leave_reserve};
use crate::listen::{BoundSocket, accept, queued};
use mio::unix::SourceFd;
use rustix::event::epoll;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// How many events after a counted one accept no more connections than that one brought. The event after them is the
/// next counted one: it accepts until the queue is empty.
///
/// If connections come one at a time, every eighth is followed by an accept that finds the queue empty. A burst after
/// them is noticed after 7 events, each of which accepts one of its connections. That is soon: while another client is
/// queued or a task is parked, each event is a turn through the line of all clients, and accepts until the queue is
/// empty.
const TRUSTED: u8 = 7;

/// A listening socket of one core.
///
/// The kernel allocates a file before it looks into the queue: accepting costs 2.0 µs, and 2.8 µs if the queue is
/// empty. So most events accept only as many connections as an earlier one brought. What is left in the queue is not
/// lost: the poll set watches this one socket level-triggered, and reports it at the next poll. That costs 0.3 µs per
/// event.
pub struct CoreListener {
    socket: BoundSocket,
    place: Place,
    /// An accepted connection whose descriptor is in the [reserve](crate::limits). It waits for an ordinary
    /// descriptor.
    held: RefCell<Option<(OwnedFd, Peer)>>,
    /// Connections accepted since the last event.
    taken: Cell<u32>,
    /// Connections that the last counted event brought, at least 1.
    expected: Cell<u32>,
    /// How many more events accept only what is expected.
    trusted: Cell<u8>,
}

impl Sockets {
    /// Adds a listening socket.
    pub fn listen(self: &Rc<Self>, socket: BoundSocket) -> CoreListener {
        let place = self.place(Class::Client, READ);
        let (taken, expected, trusted) = (Cell::new(0), Cell::new(1), Cell::new(0));
        CoreListener { socket, place, held: RefCell::default(), taken, expected, trusted }
    }
}

impl CoreListener {
    /// Accepts the next connection. If there is none, or the event has brought as many as expected, wakes the task when
    /// there may be one.
    ///
    /// # Errors
    /// The system's error; see [`crate::limits::ran_out`].
    #[inline]
    pub fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(OwnedFd, Peer)>> {
        if self.held.borrow().is_some() {
            return Poll::Ready(self.leave_reserve(None));
        }
        let is_enough = self.taken.get() >= self.expected.get() && self.trusted.get() > 0;
        if is_enough && self.place.sockets.is_empty() {
            self.trusted.set(self.trusted.get() - 1);
            self.taken.set(0);
            self.place.slot.forget(READ);
        }
        if self.place.slot.is_ready(READ) {
            match self.accept() {
                Ok(accepted) => {
                    self.taken.set(self.taken.get().saturating_add(1));
                    return Poll::Ready(Ok(accepted));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.expected.set(self.taken.take().max(1));
                    self.trusted.set(TRUSTED);
                    self.place.slot.forget(READ);
                }
                Err(e) => {
                    self.unwatch(); // while the caller pauses, the set would report the queue at every poll
                    return Poll::Ready(Err(e));
                }
            }
        }
        self.watch()?;
        self.place.wait(&self.socket, READ, cx)?;
        Poll::Pending
    }

    fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        match accept(&self.socket) {
            Ok((accepted, peer)) if is_reserved(&accepted) => self.leave_reserve(Some((accepted, peer))),
            accepted => accepted,
        }
    }

    /// Joins the poll set unless it has joined. Bypasses mio's registry, which would watch the socket edge-triggered.
    fn watch(&self) -> io::Result<()> {
        if self.place.is_watched() {
            return Ok(());
        }
        // SAFETY: the registry owns the descriptor and outlives this call.
        let set = unsafe { BorrowedFd::borrow_raw(self.place.sockets.registry.as_raw_fd()) };
        let name = epoll::EventData::new_u64(self.place.name.0);
        epoll::add(set, &self.socket, name, epoll::EventFlags::IN)?;
        self.place.watched.set(READ);
        Ok(())
    }

    /// Leaves the poll set. The next [`CoreListener::poll_accept`] that finds the queue empty joins it again.
    fn unwatch(&self) {
        if self.place.watched.take() != 0 {
            let _ = self.place.sockets.registry.deregister(&mut SourceFd(&self.socket.as_raw_fd()));
        }
    }

    /// Moves a connection out of the [reserve](crate::limits) of descriptors: `fresh`, or else the one that is held.
    /// If there is no room, holds it and returns an error.
    #[cold]
    fn leave_reserve(&self, fresh: Option<(OwnedFd, Peer)>) -> io::Result<(OwnedFd, Peer)> {
        let (accepted, peer) = fresh.or_else(|| self.held.take()).ok_or(io::ErrorKind::WouldBlock)?;
        match leave_reserve(accepted) {
            Ok(accepted) => Ok((accepted, peer)),
            Err((accepted, e)) => {
                *self.held.borrow_mut() = Some((accepted, peer));
                Err(e)
            }
        }
    }

    /// Duplicates the socket, to hand it to another process.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn lend(&self) -> io::Result<BoundSocket> {
        self.socket.try_clone()
    }

    /// Stops listening, and leaves the kernel's accept queue to those who have a copy of the socket. Returns the
    /// connection that was accepted already, if there is one.
    pub fn leave(self) -> Option<(OwnedFd, Peer)> {
        self.held.take()
    }

    /// Stops listening and returns the connections in the kernel's accept queue, which closing would reset. Accepts
    /// from the kernel directly, because the driver may not have seen the last ones yet.
    pub fn close(self) -> Vec<(OwnedFd, Peer)> {
        let mut all = queued(|| accept(&self.socket));
        all.extend(self.held.take());
        all
    }
}

impl Drop for CoreListener {
    fn drop(&mut self) {
        // Another process may share this socket. Closing ours then does not remove it from the set.
        self.unwatch();
    }
}

impl std::fmt::Debug for CoreListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver;
    use crate::driver::tests::on_a_core;
    use crate::listen::{Address, Beside, bind};
    use rustix::net::{Shutdown, getsockname, listen, shutdown};
    use std::future::poll_fn;
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    fn listener() -> (CoreListener, SocketAddr) {
        let bound = bind(&Address::Tcp("127.0.0.1:0".parse().unwrap()), 1, Beside::Nobody).unwrap();
        let Address::Tcp(address) = bound.address else { panic!("{bound:?}") };
        let socket = bound.sockets.into_iter().next().unwrap();
        (driver::sockets().unwrap().listen(socket), address)
    }

    async fn next(listener: &CoreListener) -> io::Result<(OwnedFd, Peer)> {
        let accepted = poll_fn(|cx| listener.poll_accept(cx));
        crate::time::timeout(Duration::from_secs(20), accepted).await.expect("it is reported")
    }

    /// How many connections the listener accepts at one event.
    async fn at_once(listener: &CoreListener) -> usize {
        next(listener).await.unwrap();
        poll_fn(|cx| {
            let more = || matches!(listener.poll_accept(cx), Poll::Ready(Ok(_)));
            Poll::Ready(1 + std::iter::repeat_with(more).take_while(|more| *more).count())
        })
        .await
    }

    #[test]
    fn connections_that_come_alone_rarely_cost_a_second_accept() {
        on_a_core(async {
            let (listener, address) = listener();
            let (mut counted, mut clients) = (0, Vec::new());
            for _ in 0..3 * (u32::from(TRUSTED) + 1) {
                clients.push(TcpStream::connect(address).unwrap());
                assert_eq!(at_once(&listener).await, 1);
                counted += u32::from(listener.trusted.get() == TRUSTED); // the queue was found empty
            }
            assert_eq!(counted, 3);
        });
    }

    #[test]
    fn a_burst_after_connections_that_came_alone_is_accepted() {
        const BURST: usize = 300;
        on_a_core(async {
            let (listener, address) = listener();
            let mut clients = vec![TcpStream::connect(address).unwrap()];
            assert_eq!(at_once(&listener).await, 1);
            clients.extend((0..BURST).map(|_| TcpStream::connect(address).unwrap()));
            let (mut accepted, mut events) = (0, 0);
            while accepted < BURST {
                accepted += at_once(&listener).await;
                events += 1;
            }
            assert_eq!((accepted, events), (BURST, usize::from(TRUSTED) + 1));
            // The next burst is expected.
            clients.extend((0..BURST).map(|_| TcpStream::connect(address).unwrap()));
            assert_eq!(at_once(&listener).await, BURST - usize::from(TRUSTED));
        });
    }

    /// Otherwise the listener would wait behind the other clients seven times.
    #[test]
    fn while_clients_are_queued_all_that_wait_are_accepted() {
        const BURST: usize = 20;
        on_a_core(async {
            let (listener, address) = listener();
            let mut clients = vec![TcpStream::connect(address).unwrap()];
            assert_eq!(at_once(&listener).await, 1);
            clients.extend((0..BURST).map(|_| TcpStream::connect(address).unwrap()));
            next(&listener).await.unwrap();
            let place = &listener.place;
            place.sockets.singles.borrow_mut().push_back(place.name);
            let others = poll_fn(|cx| {
                let more = || matches!(listener.poll_accept(cx), Poll::Ready(Ok(_)));
                Poll::Ready(std::iter::repeat_with(more).take_while(|more| *more).count())
            });
            assert_eq!(1 + others.await, BURST);
        });
    }

    /// Otherwise the set would report the listener at every poll, and the core would never sleep.
    #[test]
    fn a_listener_that_fails_to_accept_leaves_the_set_until_it_waits() {
        on_a_core(async {
            let (listener, address) = listener();
            let _first = TcpStream::connect(address).unwrap();
            assert_eq!(at_once(&listener).await, 1);
            assert!(listener.place.is_watched());
            shutdown(&listener.socket, Shutdown::Read).unwrap();
            assert!(next(&listener).await.is_err());
            assert!(!listener.place.is_watched());
            listen(&listener.socket, 8).unwrap(); // on another port: the shutdown has freed the first
            let address = SocketAddr::try_from(getsockname(&listener.socket).unwrap()).unwrap();
            let _second = TcpStream::connect(address).unwrap();
            assert_eq!(at_once(&listener).await, 1);
            assert!(listener.place.is_watched());
        });
    }
}
