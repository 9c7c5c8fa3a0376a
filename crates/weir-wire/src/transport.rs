//! One connection, in cleartext or with TLS: what HTTP/1.1 and HTTP/2 run over.

use crate::Socket;
use crate::tls::{PeerCertificate, TlsInfo, TlsKeys, TlsStream};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};
use tokio::io::ReadBuf;

/// A connection, in either role.
///
/// Reads clear readiness after a short read: one system call per message instead of 2.7 with `readable` and
/// `try_read` (design §6).
#[derive(Debug)]
pub enum Transport {
    /// Cleartext.
    Plain(Socket),
    /// TLS.
    Tls(Box<TlsStream>),
}

impl Transport {
    /// See [`Stream::poll_read`](crate::Stream::poll_read).
    #[inline(always)]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        if buffer.capacity() == buffer.len() {
            buffer.reserve(READ_BYTES);
        }
        match self {
            Self::Plain(s) => s.poll_read(cx, buffer),
            Self::Tls(s) => s.poll_read(cx, buffer),
        }
    }

    /// See [`Stream::may_read`](crate::Stream::may_read).
    #[inline]
    pub(crate) fn may_read(&self, cx: &Context<'_>) -> bool {
        match self {
            Self::Plain(s) => s.may_read(cx),
            Self::Tls(s) => s.may_read(cx),
        }
    }

    /// Reads into a `ReadBuf`.
    pub fn poll_read_buf(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(s) => s.poll_read_buf(cx, buffer),
            Self::Tls(s) => s.poll_read_buf(cx, buffer),
        }
    }

    /// Writes part of `data`.
    #[inline(always)]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(s) => s.poll_write(cx, data),
            Self::Tls(s) => s.poll_write(cx, data),
        }
    }

    /// See [`Stream::poll_write_two`](crate::Stream::poll_write_two).
    #[inline(always)]
    pub(crate) fn poll_write_two(
        &mut self,
        cx: &mut Context<'_>,
        a: &[u8],
        b: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(s) => s.poll_write_vectored(cx, &[IoSlice::new(a), IoSlice::new(b)]),
            Self::Tls(s) => s.poll_write_two(cx, a, b),
        }
    }

    /// Sends what a TLS session still buffers.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(s) => s.poll_flush(cx),
        }
    }

    /// Closes the write side; with TLS, sends a close_notify first.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(s) => Poll::Ready(s.shutdown()),
            Self::Tls(s) => s.poll_shutdown(cx),
        }
    }

    /// See [`Stream::abort`](crate::Stream::abort).
    pub fn abort(&mut self) {
        if let Self::Plain(s) = self {
            s.abort();
        }
    }

    /// See [`Stream::is_quiet`](crate::Stream::is_quiet).
    pub fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(s) => s.is_quiet(),
            Self::Tls(s) => s.is_quiet(&mut Context::from_waker(Waker::noop())),
        }
    }

    /// See [`Stream::is_quiet_now`](crate::Stream::is_quiet_now).
    pub(crate) fn is_quiet_now(&mut self) -> bool {
        match self.socket().peek(&mut [0]) {
            Err(e) => e == Errno::AGAIN,
            Ok(0) => false,
            // Pending bytes on TLS may be session tickets; rustls tells them from data, once it may read them.
            Ok(_) => {
                self.socket().look_again();
                matches!(self, Self::Tls(_)) && self.is_quiet()
            }
        }
    }

    /// See [`Stream::has_ended`](crate::Stream::has_ended).
    pub(crate) fn has_ended(&self) -> bool {
        let (socket, mut seen) = (self.socket(), [0; 64]);
        if socket.is_local() {
            return false;
        }
        match (socket.peek(&mut seen), self) {
            (Ok(0), _) => true,
            (Ok(n), Self::Tls(_)) => socket.is_half_closed() && is_alert(seen.get(..n).unwrap_or_default()),
            _ => false,
        }
    }

    /// The socket below.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Plain(s) => s,
            Self::Tls(s) => s.socket(),
        }
    }

    /// The negotiated TLS version and cipher, if this is TLS.
    pub fn tls(&self) -> Option<TlsInfo> {
        self.session().map(TlsStream::info)
    }

    /// The keys of the handshake, if this is TLS. Parses the peer's certificate, which takes some microseconds: not
    /// for every exchange.
    pub fn tls_keys(&self) -> Option<TlsKeys> {
        self.session().map(TlsStream::keys)
    }

    /// Whether this is TLS and its handshake resumed an earlier session.
    pub fn has_resumed(&self) -> bool {
        self.session().is_some_and(TlsStream::has_resumed)
    }

    /// The certificate that the peer presented in the handshake, if any. Parses and hashes it, which takes some
    /// microseconds: call it once per connection.
    pub fn peer_certificate(&self) -> Option<PeerCertificate> {
        self.session()?.peer_certificate()
    }

    /// The name that the client asked for in the handshake (SNI), in lower case. `None` without TLS.
    pub fn server_name(&self) -> Option<&str> {
        self.session()?.server_name()
    }

    /// Whether the peer chose HTTP/2 in the TLS handshake (ALPN).
    pub fn chose_h2(&self) -> bool {
        self.alpn() == Some(b"h2")
    }

    /// The protocol that the TLS handshake chose (ALPN), if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.session()?.alpn()
    }

    const fn session(&self) -> Option<&TlsStream> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(s) => Some(s),
        }
    }
}

impl From<Box<TlsStream>> for Transport {
    fn from(stream: Box<TlsStream>) -> Self {
        Self::Tls(stream)
    }
}

/// Whether these bytes are one TLS record that is probably an alert. In the clear its type says so; encrypted, its
/// length does (RFC 9846 §5.2: two bytes, their type, and a tag of 16 bytes).
fn is_alert(record: &[u8]) -> bool {
    let [kind, 3, _, high, low, rest @ ..] = record else { return false };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    length == rest.len() && (*kind == 21 || (*kind == 23 && length == 19))
}

/// Bytes reserved per read: larger than almost every head, so that one short read is enough.
const READ_BYTES: usize = 16 * 1024;
