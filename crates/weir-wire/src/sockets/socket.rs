//! One connection: reading, writing, waiting, and queries about its peer.

#![allow(unsafe_code)] // the runtime must know that a descriptor stays open

use super::{Class, ENDED, Place, READ, RUN, Sockets, WRITE};
use crate::Peer;
use crate::limits::{is_reserved, out_of_descriptors};
use crate::round_trip::{has_retransmitted, round_trip};
use rustix::buffer::spare_capacity;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sendmsg};
use socket2::{SockAddr, SockRef};
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A TCP or Unix connection, among the [`Sockets`] of a core or registered with a runtime. One task reads and one
/// task writes; they may be the same.
pub struct Socket {
    /// Dropped before the descriptor, because the runtime must deregister it while it is open.
    pub(super) readiness: Readiness,
    pub(super) fd: OwnedFd,
    /// Whether it is a Unix socket.
    is_local: bool,
}

/// What wakes the tasks of a socket.
pub(super) enum Readiness {
    /// The driver of a core.
    Core(Place),
    /// The runtime of the thread.
    Runtime(AsyncFd<RawFd>),
}

/// How many bytes a peek can show at least: nearly every ClientHello is shorter.
const PEEK_BYTES: usize = 2048;

impl Socket {
    pub(super) const fn of_core(place: Place, fd: OwnedFd, is_local: bool) -> Self {
        Self { readiness: Readiness::Core(place), fd, is_local }
    }

    /// A connection to this peer, in the runtime of the calling thread. The socket must be non-blocking.
    ///
    /// # Errors
    /// When the runtime cannot register it.
    pub fn of_runtime(socket: impl Into<OwnedFd>, peer: Peer) -> io::Result<Self> {
        let fd = socket.into();
        Ok(Self { readiness: Readiness::of_runtime(&fd)?, fd, is_local: peer == Peer::Local })
    }

    /// Connects a socket, which must be non-blocking, on a core or else in the runtime of the calling thread.
    ///
    /// # Errors
    /// The system's error; on a core also an out-of-descriptors error when only the [reserve](crate::limits) is left.
    pub(crate) async fn connect(
        core: Option<Rc<Sockets>>,
        socket: socket2::Socket,
        to: &SockAddr,
    ) -> io::Result<Self> {
        if core.is_some() && is_reserved(&socket) {
            return Err(out_of_descriptors());
        }
        let ready = match socket.connect(to) {
            // Not ready to read: the first read after a request would otherwise ask the kernel at once, which takes an
            // extra call, and a caller could not tell an answer to it from bytes that came before it.
            Ok(()) => WRITE,
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => 0,
            Err(e) => return Err(e),
        };
        let fd = OwnedFd::from(socket);
        let readiness = match core {
            Some(core) => Readiness::Core(core.place(Class::Upstream, ready)),
            None => Readiness::of_runtime(&fd)?,
        };
        let connected = Self { readiness, fd, is_local: to.is_unix() };
        poll_fn(|cx| connected.poll_write_by(cx, 0, || Ok(0))).await?;
        match connected.os().take_error()? {
            None => Ok(connected),
            Some(e) => Err(e),
        }
    }

    /// Reads into the spare capacity of `buffer`, which must have some. 0 means the end.
    #[inline(always)]
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = buffer.capacity() - buffer.len();
        self.poll_read_by(cx, room, || Ok(recv(&self.fd, spare_capacity(buffer), RecvFlags::empty())?.1))
    }

    /// Like `poll_read`, but into a `ReadBuf`.
    pub(crate) fn poll_read_buf(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_read_slice(cx, buffer.initialize_unfilled());
        read.map_ok(|n| buffer.advance(n))
    }

    /// Like `poll_read`, but into a slice.
    pub(crate) fn poll_read_slice(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_by(cx, room.len(), || Ok(recv(&self.fd, &mut *room, RecvFlags::empty())?.1))
    }

    #[inline(always)]
    pub(super) fn poll_read_by(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        mut read: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let place = match &self.readiness {
            Readiness::Core(place) => place,
            Readiness::Runtime(fd) => return poll_in_runtime(|| fd.poll_read_ready(cx), room, read),
        };
        let slot = &place.slot;
        if slot.run.get() >= RUN {
            slot.run.set(0);
            place.sockets.rest(cx.waker());
            return Poll::Pending;
        }
        if slot.is_ready(READ | ENDED) {
            match read() {
                Ok(n) if n >= room => {
                    slot.run.set(slot.run.get().saturating_add(u32::try_from(n).unwrap_or(RUN)));
                    return Poll::Ready(Ok(n));
                }
                Ok(n) => {
                    slot.run.set(0);
                    // A short read emptied the socket; the kernel reports the next bytes as a new event.
                    if n > 0 {
                        slot.forget(READ);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => slot.forget(READ | ENDED),
                Err(e) => {
                    slot.run.set(0);
                    return Poll::Ready(Err(e));
                }
            }
        }
        slot.run.set(0);
        place.wait(&self.fd, READ, cx)?;
        Poll::Pending
    }

    /// Lets the next read proceed regardless of earlier reads, for a caller that would take a forced wait for
    /// silence.
    pub(crate) fn begin_run(&self) {
        if let Readiness::Core(place) = &self.readiness {
            place.slot.run.set(0);
        }
    }

    /// See [`Stream::look_again`](crate::Stream::look_again). A runtime's socket always asks.
    pub fn look_again(&self) {
        if let Readiness::Core(place) = &self.readiness {
            place.slot.run.set(0);
            place.slot.ready.set(place.slot.ready.get() | READ);
        }
    }

    /// Notes how many requests the last read brought: the driver expects as many of the next one. After a read that
    /// brought less, such as credit alone, it expects half of what it expected before.
    pub(crate) fn brought(&self, requests: usize) {
        if let Readiness::Core(place) = &self.readiness {
            let expected = &place.slot.requests;
            expected.set(u16::try_from(requests).unwrap_or(u16::MAX).max(expected.get() / 2));
        }
    }

    /// Writes part of `data`.
    #[inline(always)]
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(cx, data.len(), || Ok(send(&self.fd, data, SendFlags::NOSIGNAL)?))
    }

    /// Writes part of `data` when the caller is about to write more: the kernel waits for that before it sends a short
    /// packet.
    pub(crate) fn poll_write_begun(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        self.poll_write_by(cx, data.len(), || Ok(send(&self.fd, data, flags)?))
    }

    /// Writes part of several consecutive pieces.
    #[inline(always)]
    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = data.iter().map(|piece| piece.len()).sum();
        self.poll_write_by(cx, all, || {
            Ok(sendmsg(&self.fd, data, &mut Default::default(), SendFlags::NOSIGNAL)?)
        })
    }

    /// A write of fewer than `all` bytes took what the socket had room for.
    #[inline(always)]
    fn poll_write_by(
        &self,
        cx: &mut Context<'_>,
        all: usize,
        mut write: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        match &self.readiness {
            Readiness::Core(place) => place.poll_by(cx, &self.fd, WRITE, || {
                let n = write()?;
                if n < all {
                    place.slot.forget(WRITE);
                }
                Ok(n)
            }),
            Readiness::Runtime(fd) => poll_in_runtime(|| fd.poll_write_ready(cx), all, write),
        }
    }

    /// Sends part of a file that is in memory; the kernel sends the pages without copying them.
    pub(crate) fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let mut offset = offset;
        // A short result does not mean that the socket buffer is full: only EAGAIN does.
        self.poll_write_by(cx, 0, || Ok(sendfile(&self.fd, file, Some(&mut offset), length)?))
    }

    /// Whether a read could return something, an error included, as far as we know without reading. If not, wakes the
    /// task when it could.
    #[inline]
    pub(crate) fn may_read(&self, cx: &Context<'_>) -> bool {
        match &self.readiness {
            Readiness::Core(place) => place.slot.is_ready(READ | ENDED) || self.cannot_wait(place, cx),
            Readiness::Runtime(_) => true,
        }
    }

    /// Waits until the socket is readable. Also true if the system cannot watch another socket: then try to read.
    #[inline(never)]
    fn cannot_wait(&self, place: &Place, cx: &Context<'_>) -> bool {
        place.wait(&self.fd, READ, cx).is_err()
    }

    /// The same without waking anybody.
    pub(crate) fn is_readable(&self) -> bool {
        self.place().is_none_or(|place| place.slot.is_ready(READ | ENDED))
    }

    /// Appends at most `most` bytes to the buffer and leaves the rest for the next reader.
    pub(crate) fn poll_read_at_most(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let start = buffer.len();
        buffer.resize(start + most, 0);
        let read = self.poll_read_slice(cx, &mut buffer[start..]);
        buffer.truncate(if let Poll::Ready(Ok(n)) = read { start + n } else { start });
        read
    }

    /// Peeks at the first byte and leaves it for the next reader; `None` at the end. For a socket that nothing has
    /// read yet.
    pub fn poll_first(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        let mut byte = [0];
        let came = self.poll_read_by(cx, 0, || Ok(self.peek(&mut byte)?));
        came.map_ok(|came| byte.first().copied().filter(|_| came > 0))
    }

    /// Peeks at the first bytes until `decide` has decided, and leaves them all for the next reader. `decide` gets the
    /// bytes so far and returns its decision, or how many bytes it needs. `None` if the client ended before that. For
    /// a socket of a core.
    ///
    /// Peeking costs one system call more than reading, and lets whoever serves the connection read as if nobody had
    /// been there. While nothing comes, no buffer is held.
    ///
    /// # Errors
    /// The system's error.
    pub async fn peek_until<T>(
        &self,
        mut decide: impl FnMut(&[u8]) -> Result<T, usize>,
    ) -> io::Result<Option<T>> {
        let (mut needed, mut room) = (1, PEEK_BYTES);
        poll_fn(|cx| {
            loop {
                let mut seen = Vec::with_capacity(needed.max(room));
                let peek = || Ok(recv(&self.fd, spare_capacity(&mut seen), RecvFlags::PEEK)?.1);
                let count = ready!(self.poll_read_by(cx, 0, peek))?;
                if count >= needed {
                    match decide(&seen) {
                        Ok(decision) => return Poll::Ready(Ok(Some(decision))),
                        Err(more) => needed = more.max(count + 1),
                    }
                    if count == seen.capacity() {
                        room = 2 * count; // there may be more
                        continue;
                    }
                }
                let has_ended = self.place().is_none_or(|place| place.slot.is_ready(ENDED));
                if count == 0 || has_ended {
                    return Poll::Ready(Ok(None));
                }
                // The kernel reports the next bytes as a new event, also behind unread ones.
                self.place().into_iter().for_each(|place| place.slot.forget(READ));
            }
        })
        .await
    }

    /// See [`Stream::is_reset`](crate::Stream::is_reset). Always false in a runtime.
    pub(crate) fn is_reset(&self, cx: &Context<'_>) -> bool {
        let Some(place) = self.place().filter(|_| !self.is_local) else { return false };
        if place.slot.is_ready(READ | ENDED) {
            match self.peek(&mut [0]) {
                Ok(_) => {}
                Err(Errno::AGAIN) => place.slot.forget(READ | ENDED),
                Err(_) => return true,
            }
        }
        place.wait(&self.fd, READ, cx).is_err()
    }

    /// Peeks at the next bytes without consuming them; returns how many there are.
    pub(crate) fn peek(&self, seen: &mut [u8]) -> Result<usize, Errno> {
        Ok(recv(&self.fd, seen, RecvFlags::PEEK)?.1)
    }

    /// See [`Stream::is_half_closed`](crate::Stream::is_half_closed). The poll set reports the end even behind unread
    /// bytes. Always false in a runtime.
    pub(crate) fn is_half_closed(&self) -> bool {
        !self.is_local && self.place().is_some_and(|place| place.slot.is_ready(ENDED))
    }

    /// Whether this is a Unix socket.
    pub(crate) const fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether the poll set would have reported anything to read, and has not.
    pub(crate) fn is_known_quiet(&self) -> bool {
        self.place().is_some_and(|place| place.is_watched() && !place.slot.is_ready(READ | ENDED))
    }

    /// See [`Stream::is_quiet`](crate::Stream::is_quiet).
    pub(crate) fn is_quiet(&self) -> bool {
        if self.is_known_quiet() {
            return true;
        }
        let place = match &self.readiness {
            Readiness::Core(place) => place,
            Readiness::Runtime(fd) => {
                let probe = fd.try_io(Interest::READABLE, |_| Ok(self.peek(&mut [0])?));
                return matches!(probe, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
            }
        };
        let is_quiet = self.peek(&mut [0]) == Err(Errno::AGAIN);
        if is_quiet {
            place.slot.forget(READ); // still set after a read that exactly filled its buffer
        }
        is_quiet
    }

    /// Closes the write side.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self.os().shutdown(Shutdown::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()), // the peer is gone
            done => done,
        }
    }

    /// Turns the coming close into a reset. If setting it fails, the close is an ordinary one.
    pub(crate) fn abort(&self) {
        drop(self.os().set_linger(Some(Duration::ZERO)));
    }

    /// Our own address; `None` for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.os().local_addr().ok()?.as_socket()
    }

    /// The round-trip time to the peer, if the kernel reports one. It does not for Unix sockets.
    pub fn round_trip(&self) -> Option<Duration> {
        round_trip(&self.fd)
    }

    /// Whether the kernel has retransmitted anything on this connection, including its first packet (one system
    /// call).
    pub fn has_retransmitted(&self) -> bool {
        has_retransmitted(&self.fd)
    }

    /// The socket, for system calls.
    fn os(&self) -> SockRef<'_> {
        SockRef::from(&self.fd)
    }

    pub(super) const fn place(&self) -> Option<&Place> {
        match &self.readiness {
            Readiness::Core(place) => Some(place),
            Readiness::Runtime(_) => None,
        }
    }
}

impl Readiness {
    fn of_runtime(fd: &OwnedFd) -> io::Result<Self> {
        // SAFETY: the only owner is a `Socket`, which also owns the descriptor and closes it after dropping this.
        Ok(Self::Runtime(unsafe { AsyncFd::register(fd.as_raw_fd()) }?))
    }
}

/// Tries the operation once the runtime reports the socket ready. A result shorter than `full` clears the readiness.
#[inline(never)]
fn poll_in_runtime<'a>(
    mut poll_ready: impl FnMut() -> Poll<io::Result<AsyncFdReadyGuard<'a, RawFd>>>,
    full: usize,
    mut attempt: impl FnMut() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut ready = ready!(poll_ready())?;
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Ok(n) if 0 < n && n < full => {
                ready.clear_ready();
                return Poll::Ready(Ok(n));
            }
            done => return Poll::Ready(done),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_buf(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write_vectored(&self, cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fd.fmt(f)
    }
}
