//! One connection of any kind, read into and written from plain byte vectors.

use crate::tls;
use bytes::BufMut;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connection: cleartext TCP, a Unix socket, or TLS over either, in either role.
///
/// Reads go through `poll_read`, which forgets readiness on a short read: one system call a message instead of 2.7 with
/// `readable` and `try_read` (design §6).
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // TLS is boxed; TCP is the hot one and must not be
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// TLS.
    Tls(Box<tls::TlsStream>),
    /// A Unix socket.
    Unix(UnixStream),
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An address.
    Address(SocketAddr),
    /// A process on this machine, through a Unix socket.
    Local,
}

impl Peer {
    /// The peer's address; that of the loopback for a Unix socket, which only this machine can reach.
    pub const fn ip(&self) -> IpAddr {
        match self {
            Self::Address(address) => address.ip(),
            Self::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Local => f.write_str("unix"),
        }
    }
}

impl Stream {
    /// Reads into the spare capacity of `buffer` (16 KiB are reserved if there is none) and returns how many bytes came;
    /// 0 is the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        if buffer.capacity() == buffer.len() {
            buffer.reserve(READ_BYTES);
        }
        match self {
            Self::Tcp(s) => pin!(s.read_buf(buffer)).poll(cx),
            Self::Tls(s) => s.poll_read(cx, buffer),
            Self::Unix(s) => pin!(s.read_buf(buffer)).poll(cx),
        }
    }

    /// Reads at most `most` bytes and leaves the rest to the next reader. Of cleartext streams only.
    pub(crate) fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let mut limited = buffer.limit(most);
        match self {
            Self::Tcp(s) => pin!(s.read_buf(&mut limited)).poll(cx),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
            Self::Unix(s) => pin!(s.read_buf(&mut limited)).poll(cx),
        }
    }

    /// Writes some of `data`.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(s) => Pin::new(s).poll_write(cx, data),
            Self::Tls(s) => Pin::new(s.writer()).poll_write(cx, data),
            Self::Unix(s) => Pin::new(s).poll_write(cx, data),
        }
    }

    /// Writes some of two pieces that follow each other: in one system call where the socket can, and in one TLS record
    /// where they fit.
    pub fn poll_write_two(&mut self, cx: &mut Context<'_>, a: &[u8], b: &[u8]) -> Poll<io::Result<usize>> {
        let both = [IoSlice::new(a), IoSlice::new(b)];
        match self {
            Self::Tcp(s) => Pin::new(s).poll_write_vectored(cx, &both),
            Self::Tls(s) => Pin::new(s.writer()).poll_write_vectored(cx, &both),
            Self::Unix(s) => Pin::new(s).poll_write_vectored(cx, &both),
        }
    }

    /// Sends what a TLS session still holds.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(s) => Pin::new(s.writer()).poll_flush(cx),
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    /// Says that nothing more will be written; for TLS with a close_notify.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s.writer()).poll_shutdown(cx),
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
        }
    }

    /// As [`Stream::is_quiet`], but asks the kernel now (one system call): an end that arrived since the runtime last
    /// looked is seen too. For a request that must not be sent twice.
    pub fn is_quiet_now(&mut self) -> bool {
        let socket = match self {
            Self::Tcp(s) => socket2::SockRef::from(&*s),
            Self::Unix(s) => socket2::SockRef::from(&*s),
            Self::Tls(s) => match s.tcp() {
                Some(s) => socket2::SockRef::from(s),
                None => return self.is_quiet(),
            },
        };
        match socket.peek(&mut [std::mem::MaybeUninit::uninit()]) {
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
            Ok(0) => false,
            // Session tickets may wait on a TLS connection: rustls tells them from data.
            Ok(_) => matches!(self, Self::Tls(_)) && self.is_quiet(),
        }
    }

    /// Whether the peer has reset the connection; wakes the task when it does. Bytes and a half-close are no reset, and
    /// stay for the next reader.
    pub fn is_reset(&self, cx: &mut Context<'_>) -> bool {
        let socket = match self {
            Self::Tcp(s) => s,
            Self::Tls(s) => match s.tcp() {
                Some(s) => s,
                None => return false,
            },
            Self::Unix(_) => return false,
        };
        match socket.poll_read_ready(cx) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(())) => {
                let peek = || socket2::SockRef::from(socket).peek(&mut [std::mem::MaybeUninit::uninit()]);
                let seen = socket.try_io(tokio::io::Interest::READABLE, peek);
                matches!(seen, Err(e) if e.kind() != io::ErrorKind::WouldBlock)
            }
        }
    }

    /// Makes the coming close a reset: for a response that was cut short where only the end of the connection would tell
    /// the client that it is complete. TLS needs none: without close_notify the end is no proper one.
    pub fn abort(&self) {
        if let Self::Tcp(s) = self {
            let _ = socket2::SockRef::from(s).set_linger(Some(std::time::Duration::ZERO)); // then it is a plain close
        }
    }

    /// Whether an idle connection can still be used: nothing to read on it, neither bytes nor its end. RFC 9112 §9.2: a
    /// byte outside a pending response makes it unusable. Costs no system call unless something arrived.
    pub fn is_quiet(&mut self) -> bool {
        // No system call unless the socket was reported readable, which may be stale: a read that exactly filled its
        // buffer leaves it so.
        let probe = match self {
            Self::Tcp(s) => s.try_read(&mut [0]),
            Self::Unix(s) => s.try_read(&mut [0]),
            Self::Tls(s) => return s.is_quiet(&mut Context::from_waker(Waker::noop())),
        };
        matches!(probe, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// The TLS facts of the connection, where it is TLS.
    pub fn tls(&self) -> Option<&tls::TlsStream> {
        match self {
            Self::Tls(s) => Some(s),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }
}

/// What one read reserves, in bytes: larger than almost every head, so that reads are short and one is enough.
pub const READ_BYTES: usize = 16 * 1024;
