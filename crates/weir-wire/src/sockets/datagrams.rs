//! A UDP socket of a core.

use super::{Class, Place, READ, Sockets, WRITE};
use mio::unix::SourceFd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// A UDP socket among the [`Sockets`] of a core. One task reads from it and writes to it.
///
/// Neither method transfers anything by itself. The caller passes the system call, because QUIC uses calls that move
/// many datagrams at a time.
pub struct Datagrams {
    place: Place,
    fd: OwnedFd,
}

impl Sockets {
    /// Adds a UDP socket, which must be non-blocking.
    pub fn add_datagrams(self: &Rc<Self>, socket: impl Into<OwnedFd>) -> Datagrams {
        Datagrams { place: self.place(Class::Client, READ | WRITE), fd: socket.into() }
    }
}

impl Datagrams {
    /// Runs `receive`. If it would block, waits until a datagram arrives.
    pub fn poll_receive<T>(
        &self,
        cx: &Context<'_>,
        receive: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.place.poll_by(cx, &self.fd, READ, || receive(self.fd.as_fd()))
    }

    /// Runs `send`. If it would block, waits until the socket has room.
    pub fn poll_send<T>(
        &self,
        cx: &Context<'_>,
        send: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.place.poll_by(cx, &self.fd, WRITE, || send(self.fd.as_fd()))
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        // Another process may share this socket. Closing ours then does not remove it from the set.
        if self.place.watched.get() {
            let _ = self.place.sockets.registry.deregister(&mut SourceFd(&self.fd.as_raw_fd()));
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fd.fmt(f)
    }
}
