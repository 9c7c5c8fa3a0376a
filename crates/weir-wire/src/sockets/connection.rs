//! I/O on one connection: reading, writing, and queries about its peer.

use super::{ENDED, PolledSocket, READ, RUN, WRITE};
use crate::round_trip::{has_retransmitted, round_trip};
use rustix::buffer::spare_capacity;
use rustix::fs::sendfile;
use rustix::net::{RecvFlags, SendFlags, recv, send, sendmsg};
use socket2::SockRef;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;

impl PolledSocket {
    /// Reads into the spare capacity of `buffer`, which must have some. 0 means the end.
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = buffer.capacity() - buffer.len();
        self.poll_read_by(cx, room, || Ok(recv(&self.socket, spare_capacity(buffer), RecvFlags::empty())?.1))
    }

    /// Like `poll_read`, but into a `ReadBuf`.
    pub(crate) fn poll_read_buf(&self, cx: &Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let read =
            self.poll_read_by(cx, room.len(), || Ok(recv(&self.socket, &mut *room, RecvFlags::empty())?.1));
        read.map_ok(|n| buffer.advance(n))
    }

    pub(super) fn poll_read_by(
        &self,
        cx: &Context<'_>,
        room: usize,
        read: impl FnOnce() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let slot = &self.place.slot;
        if slot.run.get() >= RUN {
            slot.run.set(0);
            self.place.sockets.rest(cx.waker());
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
        self.wait(cx, READ)?;
        Poll::Pending
    }

    /// Lets the next read proceed regardless of earlier reads, for a caller that would take a forced wait for
    /// silence.
    pub(crate) fn begin_run(&self) {
        self.place.slot.run.set(0);
    }

    /// Writes part of `data`.
    pub(crate) fn poll_write(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(cx, data.len(), || Ok(send(&self.socket, data, SendFlags::NOSIGNAL)?))
    }

    /// Writes part of several consecutive pieces.
    pub(crate) fn poll_write_vectored(
        &self,
        cx: &Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = data.iter().map(|piece| piece.len()).sum();
        self.poll_write_by(cx, all, || {
            Ok(sendmsg(&self.socket, data, &mut Default::default(), SendFlags::NOSIGNAL)?)
        })
    }

    fn poll_write_by(
        &self,
        cx: &Context<'_>,
        all: usize,
        write: impl FnOnce() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let slot = &self.place.slot;
        if slot.is_ready(WRITE) {
            match write() {
                Ok(n) => {
                    if n < all {
                        slot.forget(WRITE); // it took what it had room for
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => slot.forget(WRITE),
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.wait_to_write(cx)?;
        Poll::Pending
    }

    /// Apart, because a socket nearly always has room, and what is never called should save no registers.
    #[cold]
    fn wait_to_write(&self, cx: &Context<'_>) -> io::Result<()> {
        self.wait(cx, WRITE)
    }

    /// Sends part of a file that is in memory; the kernel sends the pages without copying them.
    pub(crate) fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: &File,
        offset: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let mut offset = offset;
        // A short result does not mean that the socket buffer is full: only EAGAIN does.
        let send = || Ok(sendfile(&self.socket, file, Some(&mut offset), length)?);
        self.place.poll_by(cx, &self.socket, WRITE, send)
    }

    /// Whether a read could return something, an error included. If not, wakes the task when it could.
    pub(crate) fn may_read(&self, cx: &Context<'_>) -> bool {
        self.place.slot.is_ready(READ | ENDED) || self.wait(cx, READ).is_err()
    }

    /// Appends at most `most` bytes to the buffer and leaves the rest for the next reader.
    pub(crate) fn poll_read_at_most(
        &self,
        cx: &Context<'_>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let start = buffer.len();
        buffer.resize(start + most, 0);
        let room = &mut buffer[start..];
        let read = self.poll_read_by(cx, most, || Ok(recv(&self.socket, &mut *room, RecvFlags::empty())?.1));
        buffer.truncate(if let Poll::Ready(Ok(n)) = read { start + n } else { start });
        read
    }

    /// See [`Stream::poll_first`](crate::Stream::poll_first).
    pub(crate) fn poll_first(&self, cx: &Context<'_>) -> Poll<io::Result<Option<u8>>> {
        let mut byte = [0];
        let came = self.poll_read_by(cx, 0, || Ok(recv(&self.socket, &mut byte, RecvFlags::PEEK)?.1));
        came.map_ok(|came| byte.first().copied().filter(|_| came > 0))
    }

    /// See [`Stream::is_reset`](crate::Stream::is_reset).
    pub(crate) fn is_reset(&self, cx: &Context<'_>) -> bool {
        if self.is_local {
            return false;
        }
        if self.place.slot.is_ready(READ | ENDED) {
            match recv(&self.socket, &mut [0], RecvFlags::PEEK) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => self.place.slot.forget(READ | ENDED),
                Err(_) => return true,
            }
        }
        self.wait(cx, READ).is_err()
    }

    /// Peeks at the next bytes without consuming them; returns how many there are, if known. Always `None` for a Unix
    /// socket.
    pub(crate) fn peek(&self, seen: &mut [u8]) -> Option<usize> {
        if self.is_local {
            return None;
        }
        recv(&self.socket, seen, RecvFlags::PEEK).ok().map(|(_, n)| n)
    }

    /// See [`Stream::is_half_closed`](crate::Stream::is_half_closed). The poll set reports the end even behind unread
    /// bytes.
    pub(crate) fn is_half_closed(&self) -> bool {
        !self.is_local && self.place.slot.is_ready(ENDED)
    }

    /// See [`Stream::is_quiet`](crate::Stream::is_quiet).
    pub(crate) fn is_quiet(&self) -> bool {
        if self.place.watched.get() && !self.place.slot.is_ready(READ | ENDED) {
            return true;
        }
        let is_quiet = matches!(recv(&self.socket, &mut [0], RecvFlags::PEEK), Err(rustix::io::Errno::AGAIN));
        if is_quiet {
            self.place.slot.forget(READ); // still set after a read that exactly filled its buffer
        }
        is_quiet
    }

    /// Closes the write side.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self.socket().shutdown(Shutdown::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()), // the peer is gone
            done => done,
        }
    }

    /// The socket, for system calls.
    pub(crate) fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.socket)
    }

    /// Our own address; `None` for a Unix socket.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.socket().local_addr().ok()?.as_socket()
    }

    /// See [`Stream::round_trip`](crate::Stream::round_trip).
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        if self.is_local { None } else { round_trip(&self.socket) }
    }

    /// See [`Stream::has_retransmitted`](crate::Stream::has_retransmitted).
    pub(crate) fn has_retransmitted(&self) -> bool {
        !self.is_local && has_retransmitted(&self.socket)
    }

    fn wait(&self, cx: &Context<'_>, bit: u8) -> io::Result<()> {
        self.place.wait(&self.socket, bit, cx)
    }
}

impl AsFd for PolledSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for PolledSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}
