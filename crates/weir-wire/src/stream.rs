//! One connection of any kind, read into and written from plain byte vectors.

use crate::h2::H2Stream;
use crate::round_trip::{has_retransmitted, round_trip};
use crate::sockets::PolledSocket;
use crate::tls::{self, Socket};
use bytes::BufMut;
use rustix::net::{RecvFlags, recv};
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connection: cleartext TCP, a Unix socket, or TLS over either, in either role. Or one HTTP/2 stream, which the
/// exchange uses like a connection of its own.
///
/// Reads go through `poll_read`, which clears readiness after a short read: one system call per message instead of
/// 2.7 with `readable` and `try_read` (design §6).
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // TLS is boxed; TCP is the hot variant and must not be
pub enum Stream {
    /// A stream of an HTTP/2 connection.
    H2(Box<H2Stream>),
    /// A TCP or Unix socket of a core, among its [`Sockets`](crate::Sockets).
    Polled(PolledSocket),
    /// TCP, registered with the runtime.
    Tcp(TcpStream),
    /// TLS.
    Tls(Box<tls::TlsStream>),
    /// A Unix socket, registered with the runtime.
    Unix(UnixStream),
}

/// The version and cipher a TLS handshake negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
}

/// The keys of a TLS handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsKeys {
    /// The key exchange group, such as `X25519`; `None` for a resumed session without a key exchange.
    pub group: Option<&'static str>,
    /// Key size in bits of the peer's certificate; `None` without a certificate or for an unknown kind of key.
    pub certificate_bits: Option<u32>,
}

impl Stream {
    /// Reads into the spare capacity of `buffer` (reserving 16 KiB if it has none) and returns the number of bytes; 0
    /// means the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        // The data of an HTTP/2 stream is already in memory. Its read reserves exactly what it needs.
        if buffer.capacity() == buffer.len() && self.h2().is_none() {
            buffer.reserve(READ_BYTES);
        }
        match self {
            Self::H2(s) => s.poll_read(cx, buffer),
            Self::Polled(s) => s.poll_read(cx, buffer),
            Self::Tcp(s) => pin!(s.read_buf(buffer)).poll(cx),
            Self::Tls(s) => s.poll_read(cx, buffer),
            Self::Unix(s) => pin!(s.read_buf(buffer)).poll(cx),
        }
    }

    /// Whether a read could return something, as far as we know without reading. If not, wakes the task when it
    /// could.
    pub fn may_read(&self, cx: &Context<'_>) -> bool {
        match self {
            Self::Polled(s) => s.may_read(cx),
            Self::H2(_) | Self::Tcp(_) | Self::Tls(_) | Self::Unix(_) => true,
        }
    }

    /// Reads into a `ReadBuf`. Does not support HTTP/2 streams.
    pub fn poll_read_buf(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::H2(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
            Self::Polled(s) => s.poll_read_buf(cx, buffer),
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buffer),
            Self::Tls(s) => Pin::new(s.inner()).poll_read(cx, buffer),
            Self::Unix(s) => Pin::new(s).poll_read(cx, buffer),
        }
    }

    /// Reads at most `most` bytes and leaves the rest for the next reader. For cleartext streams only.
    pub(crate) fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if let Self::Polled(s) = self {
            return s.poll_read_at_most(cx, buffer, most);
        }
        let mut limited = buffer.limit(most);
        match self {
            Self::Tcp(s) => pin!(s.read_buf(&mut limited)).poll(cx),
            Self::H2(_) | Self::Polled(_) | Self::Tls(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
            Self::Unix(s) => pin!(s.read_buf(&mut limited)).poll(cx),
        }
    }

    /// Peeks at the first byte and leaves it for the next reader; `None` at the end. For a socket that nothing has
    /// read yet.
    pub fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        let mut byte = [0];
        let waiting = match self {
            Self::H2(_) | Self::Tls(_) => return Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
            Self::Polled(s) => return s.poll_first(cx),
            Self::Tcp(s) => {
                let mut first = ReadBuf::new(&mut byte);
                return s.poll_peek(cx, &mut first).map_ok(|_| first.filled().first().copied());
            }
            Self::Unix(s) => s,
        };
        loop {
            ready!(waiting.poll_read_ready(cx))?;
            let peek = || Ok(recv(&*waiting, &mut byte, RecvFlags::PEEK)?.1);
            match waiting.try_io(Interest::READABLE, peek) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
                Ok(came) => return Poll::Ready(Ok(byte.first().copied().filter(|_| came > 0))),
            }
        }
    }

    /// Writes part of `data`.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::H2(s) => s.poll_write(cx, data),
            Self::Polled(s) => s.poll_write(cx, data),
            Self::Tcp(s) => Pin::new(s).poll_write(cx, data),
            Self::Tls(s) => Pin::new(s.inner()).poll_write(cx, data),
            Self::Unix(s) => Pin::new(s).poll_write(cx, data),
        }
    }

    /// Writes part of two consecutive pieces: in one system call if the socket can, and in one TLS record if both
    /// fit.
    pub fn poll_write_two(&mut self, cx: &mut Context<'_>, a: &[u8], b: &[u8]) -> Poll<io::Result<usize>> {
        let both = [IoSlice::new(a), IoSlice::new(b)];
        match self {
            Self::H2(s) => s.poll_write(cx, if a.is_empty() { b } else { a }),
            Self::Polled(s) => s.poll_write_vectored(cx, &both),
            Self::Tcp(s) => Pin::new(s).poll_write_vectored(cx, &both),
            Self::Tls(s) => Pin::new(s.inner()).poll_write_vectored(cx, &both),
            Self::Unix(s) => Pin::new(s).poll_write_vectored(cx, &both),
        }
    }

    /// Whether [`Stream::poll_send_file`] can send file pages on this stream without copying.
    pub const fn sends_files(&self) -> bool {
        matches!(self, Self::Polled(_))
    }

    /// Sends part of a file that is in memory. 0 means that the file got shorter.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Polled(s) => s.poll_send_file(cx, file, offset, length),
            Self::H2(_) | Self::Tcp(_) | Self::Tls(_) | Self::Unix(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        }
    }

    /// Sends what a TLS session or an HTTP/2 stream still buffers.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // Written data has already reached the connection.
            Self::H2(_) => Poll::Ready(Ok(())),
            Self::Tls(s) => Pin::new(s.inner()).poll_flush(cx),
            Self::Polled(_) | Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ends a message: flushes it, and ends the HTTP/2 stream it was written to. An HTTP/1.1 connection stays open;
    /// its messages mark their own end, trailers included.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>, trailers: &[u8]) -> Poll<io::Result<()>> {
        match self {
            Self::H2(s) => Poll::Ready(s.finish(trailers)),
            _ => self.poll_flush(cx),
        }
    }

    /// The HTTP/2 stream, if this is one.
    pub fn h2(&self) -> Option<&H2Stream> {
        match self {
            Self::H2(s) => Some(s),
            _ => None,
        }
    }

    /// The trailers that followed an HTTP/2 body, as field lines.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        match self {
            Self::H2(s) => s.take_trailers(),
            _ => Vec::new(),
        }
    }

    /// Closes the write side; with TLS, sends a close_notify first.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::H2(s) => Poll::Ready(s.end(&[])),
            Self::Polled(s) => Poll::Ready(s.shutdown()),
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s.inner()).poll_shutdown(cx),
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
        }
    }

    /// Like [`Stream::is_quiet`], but asks the kernel now (one system call), so it also sees an end that arrived
    /// since the core last polled. For requests that must not be sent twice.
    pub fn is_quiet_now(&mut self) -> bool {
        let socket = match self {
            Self::H2(_) => return true, // a stream is never used again
            Self::Polled(s) => s.socket(),
            Self::Tcp(s) => socket2::SockRef::from(&*s),
            Self::Unix(s) => socket2::SockRef::from(&*s),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => s.socket(),
                Socket::Tcp(s) => socket2::SockRef::from(s),
                Socket::Unix(_) => return self.is_quiet(),
            },
        };
        match socket.peek(&mut [std::mem::MaybeUninit::uninit()]) {
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
            Ok(0) => false,
            // Pending bytes on TLS may be session tickets; rustls tells them from data.
            Ok(_) => matches!(self, Self::Tls(_)) && self.is_quiet(),
        }
    }

    /// Whether the peer has reset the connection; if not, wakes the task when it does. Bytes and a half-close do not
    /// count as a reset and stay for the next reader.
    pub fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::H2(s) => s.is_reset(cx),
            Self::Polled(s) => s.is_reset(cx),
            Self::Tcp(s) => is_reset(s, cx),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => s.is_reset(cx),
                Socket::Tcp(s) => is_reset(s, cx),
                Socket::Unix(_) => false,
            },
            Self::Unix(_) => false,
        }
    }

    /// Whether the peer has closed its write side or the connection. Bytes before the end stay for the next reader.
    /// Call [`Stream::is_reset`] first: it makes the driver watch the socket and wake the task, and the end shows up
    /// some time after that. Always false for an HTTP/2 stream, where a half-close is how a request ends, and for a
    /// Unix socket.
    pub fn is_half_closed(&self) -> bool {
        match self {
            Self::H2(_) | Self::Unix(_) => false,
            Self::Polled(s) => s.is_half_closed(),
            Self::Tcp(s) => is_half_closed(s),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => s.is_half_closed(),
                Socket::Tcp(s) => is_half_closed(s),
                Socket::Unix(_) => false,
            },
        }
    }

    /// Whether the peer has closed its write side or the connection, and we have read everything it sent. Asks the
    /// kernel. With TLS, an unread close_notify may precede the end. Always false for an HTTP/2 stream and for a Unix
    /// socket.
    pub fn has_ended(&self) -> bool {
        let mut seen = [0; 64];
        match self {
            Self::H2(_) | Self::Unix(_) => false,
            Self::Polled(s) => s.peek(&mut seen) == Some(0),
            Self::Tcp(s) => peek(s, &mut seen) == Some(0),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => match s.peek(&mut seen) {
                    Some(0) => true,
                    Some(n) => s.is_half_closed() && is_alert(seen.get(..n).unwrap_or_default()),
                    None => false,
                },
                Socket::Tcp(s) => peek(s, &mut seen) == Some(0),
                Socket::Unix(_) => false,
            },
        }
    }

    /// Whether the driver has seen the peer's end, by a reset or a close. Costs nothing, but knows only sockets that
    /// have waited before.
    pub fn is_told_of_end(&self) -> bool {
        match self {
            Self::Polled(s) => s.is_half_closed(),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => s.is_half_closed(),
                Socket::Tcp(_) | Socket::Unix(_) => false,
            },
            Self::H2(_) | Self::Tcp(_) | Self::Unix(_) => false,
        }
    }

    /// Turns the coming close into a reset. For a truncated response that has no other end than that of the
    /// connection: a clean close would make it look complete. TLS needs no reset: a close without close_notify is not
    /// a proper end.
    pub fn abort(&mut self) {
        match self {
            Self::H2(s) => s.abort(),
            // If setting it fails, the close is an ordinary one.
            Self::Polled(s) => drop(s.socket().set_linger(Some(Duration::ZERO))),
            Self::Tcp(s) => drop(socket2::SockRef::from(&*s).set_linger(Some(Duration::ZERO))),
            Self::Tls(_) | Self::Unix(_) => {}
        }
    }

    /// Whether an idle connection is still usable: nothing to read, neither bytes nor its end. RFC 9112 §9.2: a byte
    /// outside a pending response makes the connection unusable. Costs no system call unless something arrived.
    pub fn is_quiet(&mut self) -> bool {
        // No system call unless the socket is marked readable. That mark may be stale: a read that exactly filled its
        // buffer leaves it set.
        let probe = match self {
            Self::H2(_) => return true,
            Self::Polled(s) => return s.is_quiet(),
            Self::Tcp(s) => s.try_read(&mut [0]),
            Self::Unix(s) => s.try_read(&mut [0]),
            Self::Tls(s) => return s.is_quiet(&mut Context::from_waker(Waker::noop())),
        };
        matches!(probe, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// The negotiated TLS version and cipher, if this is TLS.
    pub fn tls(&self) -> Option<TlsInfo> {
        match self {
            Self::H2(s) => s.tls(),
            Self::Tls(s) => Some(s.info()),
            Self::Polled(_) | Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// The keys of the handshake, if this is TLS. Parses the peer's certificate, which takes some microseconds: not
    /// for every exchange.
    pub fn tls_keys(&self) -> Option<TlsKeys> {
        match self {
            Self::Tls(s) => Some(s.keys()),
            Self::H2(_) | Self::Polled(_) | Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Our own address; `None` for a Unix socket, and for an HTTP/2 stream, which has no socket of its own.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Polled(s) => s.local_address(),
            Self::Tcp(s) => s.local_addr().ok(),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => s.local_address(),
                Socket::Tcp(s) => s.local_addr().ok(),
                Socket::Unix(_) => None,
            },
            Self::H2(_) | Self::Unix(_) => None,
        }
    }

    /// The certificate that the peer presented in the handshake, if any. Parses and hashes it, which takes some
    /// microseconds: call it once per connection.
    pub fn peer_certificate(&self) -> Option<tls::PeerCertificate> {
        match self {
            Self::Tls(s) => s.peer_certificate(),
            Self::H2(_) | Self::Polled(_) | Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// The round-trip time to the peer, if the kernel reports one. It does not for Unix sockets.
    pub fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::Polled(s) => s.round_trip(),
            Self::Tcp(s) => round_trip(s),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => s.round_trip(),
                Socket::Tcp(s) => round_trip(s),
                Socket::Unix(_) => None,
            },
            Self::H2(_) | Self::Unix(_) => None,
        }
    }

    /// Whether the kernel has retransmitted anything on this connection, including its first packet (one system
    /// call).
    pub fn has_retransmitted(&self) -> bool {
        match self {
            Self::Polled(s) => s.has_retransmitted(),
            Self::Tcp(s) => has_retransmitted(s),
            Self::Tls(s) => match s.socket() {
                Socket::Polled(s) => s.has_retransmitted(),
                Socket::Tcp(s) => has_retransmitted(s),
                Socket::Unix(_) => false,
            },
            Self::H2(_) | Self::Unix(_) => false,
        }
    }

    /// Whether the peer chose HTTP/2 in the TLS handshake (ALPN).
    pub fn chose_h2(&self) -> bool {
        self.alpn() == Some(b"h2")
    }

    /// The protocol that the TLS handshake chose (ALPN), if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(s) => s.alpn(),
            _ => None,
        }
    }
}

/// See [`Stream::is_reset`].
fn is_reset(socket: &TcpStream, cx: &mut Context<'_>) -> bool {
    match socket.poll_read_ready(cx) {
        Poll::Pending => false,
        Poll::Ready(Err(_)) => true,
        Poll::Ready(Ok(())) => {
            let peek = || socket2::SockRef::from(socket).peek(&mut [std::mem::MaybeUninit::uninit()]);
            let seen = socket.try_io(Interest::READABLE, peek);
            matches!(seen, Err(e) if e.kind() != io::ErrorKind::WouldBlock)
        }
    }
}

/// See [`Stream::is_half_closed`]. Cannot see the end behind unread bytes.
fn is_half_closed(socket: &TcpStream) -> bool {
    let seen = socket2::SockRef::from(socket).peek(&mut [std::mem::MaybeUninit::uninit()]);
    matches!(seen, Ok(0))
}

/// Peeks at the next bytes without consuming them; returns how many there are, if known.
fn peek(socket: &TcpStream, seen: &mut [u8]) -> Option<usize> {
    recv(socket, seen, RecvFlags::PEEK).ok().map(|(_, n)| n)
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
