//! A UDP socket of a core, or of a runtime's thread.

#![allow(unsafe_code, reason = "tokio polls a descriptor that must stay open")]

use super::{Class, Place, READ, Sockets, WRITE};
use mio::unix::SourceFd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// A UDP socket among the [`Sockets`] of a core, or of a thread with a runtime. One task reads from it and writes to it.
///
/// Neither method transfers anything by itself. The caller passes the system call, because QUIC uses calls that move
/// many datagrams at a time.
pub struct Datagrams(Inner);

enum Inner {
    Core { place: Place, fd: OwnedFd },
    Runtime(AsyncFd<OwnedFd>),
}

impl Sockets {
    /// Adds a UDP socket, which must be non-blocking.
    pub fn add_datagrams(self: &Rc<Self>, socket: impl Into<OwnedFd>) -> Datagrams {
        let place = self.place(Class::Client, READ | WRITE);
        Datagrams(Inner::Core { place, fd: socket.into() })
    }
}

impl Datagrams {
    /// A UDP socket, which must be non-blocking, of the runtime that this task runs on.
    ///
    /// # Errors
    /// When the runtime cannot poll it.
    pub(crate) fn of_runtime(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        // SAFETY: the `AsyncFd` owns the descriptor, which stays open as long as it.
        Ok(Self(Inner::Runtime(unsafe { AsyncFd::register(socket.into()) }?)))
    }

    /// Runs `receive`. If it would block, waits until a datagram arrives.
    pub fn poll_receive<T>(
        &self,
        cx: &Context<'_>,
        receive: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        match &self.0 {
            Inner::Core { place, fd } => place.poll_by(cx, fd, READ, || receive(fd.as_fd())),
            Inner::Runtime(fd) => match fd.poll_read_ready(&mut Context::from_waker(cx.waker())) {
                Poll::Ready(Ok(mut ready)) => match ready.try_io(|fd| receive(fd.as_fd())) {
                    Ok(received) => Poll::Ready(received),
                    Err(_) => again(cx),
                },
                Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    /// Says whether this task reads. If it does not, because another one has a copy of the socket and does, arriving
    /// datagrams do not wake it.
    ///
    /// # Errors
    /// When the system refuses the change: the task is woken in vain then.
    pub fn set_deaf(&self, is_deaf: bool) -> io::Result<()> {
        match &self.0 {
            Inner::Core { place, fd } => place.set_deaf(fd.as_fd(), is_deaf),
            Inner::Runtime(_) => Ok(()), // it shares its socket with nobody
        }
    }

    /// Runs `send`. If it would block, waits until the socket has room.
    pub fn poll_send<T>(
        &self,
        cx: &Context<'_>,
        send: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        match &self.0 {
            Inner::Core { place, fd } => place.poll_by(cx, fd, WRITE, || send(fd.as_fd())),
            Inner::Runtime(fd) => match fd.poll_write_ready(&mut Context::from_waker(cx.waker())) {
                Poll::Ready(Ok(mut ready)) => match ready.try_io(|fd| send(fd.as_fd())) {
                    Ok(sent) => Poll::Ready(sent),
                    Err(_) => again(cx),
                },
                Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

/// The runtime believed the socket ready, and it was not. The call was the caller's only one, so the task runs again:
/// the next look registers its waker.
fn again<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        // Another process may share this socket. Closing ours then does not remove it from the set.
        if let Inner::Core { place, fd } = &self.0
            && place.is_watched()
        {
            let _ = place.sockets.registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Inner::Core { fd, .. } => fd.as_fd(),
            Inner::Runtime(fd) => fd.as_fd(),
        }
    }
}

impl std::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_fd().fmt(f)
    }
}
