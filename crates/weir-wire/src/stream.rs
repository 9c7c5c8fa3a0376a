//! What one exchange reads from and writes to: a whole connection, or one stream of an HTTP/2 or HTTP/3 connection.

use crate::fastcgi::FastCgi;
use crate::h2::H2Stream;
use crate::tls::TlsInfo;
use crate::{Socket, Transport};
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// A connection, or one stream of a connection that carries several, which the exchange uses like a connection of its
/// own. In either role.
#[derive(Debug)]
pub enum Stream {
    /// A connection that nothing else uses.
    Direct(Transport),
    /// A connection to a FastCGI server: what is read from it looks like HTTP/1.1.
    FastCgi(Box<FastCgi>),
    /// A stream of an HTTP/2 connection.
    H2(H2Stream),
    /// A stream of a client's HTTP/3 connection.
    Carried(Box<dyn Carried>),
    /// No connection: a placeholder in an owner that is kept for its next stream.
    Over,
}

/// A stream of a client's connection that another crate keeps: weir-h3 does, over QUIC. It behaves as [`H2Stream`] does
/// in the role of a server: the first write is a whole head as HTTP/1.1 text, which interim responses may precede.
pub trait Carried: fmt::Debug {
    /// Appends part of the body to `buffer`. 0 means the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>>;

    /// Writes a head, or part of a body.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends the response, with trailers if these field lines are not empty.
    fn finish(&mut self, trailers: &[u8]) -> io::Result<()>;

    /// Whether no more of the request will arrive. Tunnel data is not a body.
    fn is_over(&self) -> bool;

    /// The trailers that followed the body, as field lines.
    fn take_trailers(&mut self) -> Vec<u8>;

    /// Releases the head's share of the connection's limit, after the head itself was freed.
    fn forget_head(&self);

    /// Whether the client has abandoned the stream; if not, wakes the task when it does.
    fn is_reset(&mut self, cx: &mut Context<'_>) -> bool;

    /// Whether the request arrived before the end of the handshake, so that it may be a replay.
    fn is_early(&self) -> bool;

    /// Waits until the handshake is complete. An error if it fails.
    fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Refuses an unprocessed request, which the client may then send again.
    fn refuse(&mut self);

    /// Resets the stream, for a truncated response.
    fn abort(&mut self);

    /// The TLS facts of the connection.
    fn tls(&self) -> Option<TlsInfo>;
}

impl Stream {
    /// Reads into the spare capacity of `buffer` (reserving 16 KiB if it has none) and returns the number of bytes; 0
    /// means the end. The data of a multiplexed stream is already in memory: its read reserves exactly what it needs.
    #[inline(never)]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        match self {
            Self::Direct(t) => t.poll_read(cx, buffer),
            Self::FastCgi(s) => s.poll_read(cx, buffer),
            Self::H2(s) => s.poll_read(cx, buffer),
            Self::Carried(s) => s.poll_read(cx, buffer),
            Self::Over => over(),
        }
    }

    /// Whether a read could return something, as far as we know without reading. If not, wakes the task when it
    /// could.
    #[inline]
    pub fn may_read(&self, cx: &Context<'_>) -> bool {
        match self {
            Self::Direct(t) => t.may_read(cx),
            _ => true,
        }
    }

    /// Makes the next read ask the kernel even if no bytes were reported, for a last look before the connection closes.
    pub fn look_again(&self) {
        if let Self::Direct(t) = self {
            t.socket().look_again();
        }
    }

    /// Writes part of `data`.
    #[inline(never)]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Direct(t) => t.poll_write(cx, data),
            Self::FastCgi(s) => s.transport_mut().poll_write(cx, data),
            Self::H2(s) => s.poll_write(cx, data),
            Self::Carried(s) => s.poll_write(cx, data),
            Self::Over => over(),
        }
    }

    /// Writes part of two consecutive pieces: in one system call if the socket can, and in one TLS record if both
    /// fit.
    #[inline(never)]
    pub fn poll_write_two(&mut self, cx: &mut Context<'_>, a: &[u8], b: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Direct(t) => t.poll_write_two(cx, a, b),
            Self::FastCgi(s) => s.transport_mut().poll_write_two(cx, a, b),
            Self::H2(s) => s.poll_write(cx, if a.is_empty() { b } else { a }),
            Self::Carried(s) => s.poll_write(cx, if a.is_empty() { b } else { a }),
            Self::Over => over(),
        }
    }

    /// Writes part of `data` when the caller is about to write more, so that the kernel can send both together. Without
    /// more, `data` may wait for 200 ms.
    pub fn poll_write_begun(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Direct(Transport::Plain(s)) => s.poll_write_begun(cx, data),
            _ => self.poll_write(cx, data),
        }
    }

    /// Whether [`Stream::poll_send_file`] can send file pages on this stream without copying.
    pub const fn sends_files(&self) -> bool {
        matches!(self, Self::Direct(Transport::Plain(_)))
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
            Self::Direct(Transport::Plain(s)) => s.poll_send_file(cx, file, offset, length),
            _ => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Sends what a TLS session still buffers. What was written to a multiplexed stream has reached its connection.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Direct(t) => t.poll_flush(cx),
            Self::FastCgi(s) => s.transport_mut().poll_flush(cx),
            Self::H2(_) | Self::Carried(_) => Poll::Ready(Ok(())),
            Self::Over => over(),
        }
    }

    /// Ends a message: flushes it, and ends the multiplexed stream it was written to. An HTTP/1.1 connection stays open;
    /// its messages mark their own end, trailers included.
    #[inline]
    pub fn poll_finish(&mut self, cx: &mut Context<'_>, trailers: &[u8]) -> Poll<io::Result<()>> {
        match self {
            Self::Direct(Transport::Plain(_)) => Poll::Ready(Ok(())), // as `poll_flush`, without a call
            Self::Direct(t) => t.poll_flush(cx),
            Self::FastCgi(s) => s.transport_mut().poll_flush(cx),
            Self::H2(s) => Poll::Ready(s.finish(trailers)),
            Self::Carried(s) => Poll::Ready(s.finish(trailers)),
            Self::Over => over(),
        }
    }

    /// The HTTP/2 stream, if this is one.
    pub fn h2(&self) -> Option<&H2Stream> {
        match self {
            Self::H2(s) => Some(s),
            Self::Direct(_) | Self::FastCgi(_) | Self::Carried(_) | Self::Over => None,
        }
    }

    /// Marks fields in what is sent next on this stream as secret, if those of the same name were so in what came on
    /// `like`: no hop may put them into a table (RFC 7541 §6.2.3). Between HTTP/2 and HTTP/2 only.
    #[inline]
    pub fn seal_like(&mut self, like: &Self) {
        if let (Self::H2(this), Self::H2(like)) = (self, like) {
            this.seal_like(like);
        }
    }

    /// Whether this is one stream of a connection that carries several.
    #[inline]
    pub const fn is_multiplexed(&self) -> bool {
        matches!(self, Self::H2(_) | Self::Carried(_))
    }

    /// Whether no more of the message will arrive on a multiplexed stream. `None` for a connection, where only the
    /// head's framing tells.
    pub fn is_over(&self) -> Option<bool> {
        match self {
            Self::Direct(_) | Self::FastCgi(_) | Self::Over => None,
            Self::H2(s) => Some(s.is_over()),
            Self::Carried(s) => Some(s.is_over()),
        }
    }

    /// Whether the request arrived before the end of the TLS handshake, so that it may be a replay (RFC 8470).
    #[inline]
    pub fn is_early(&self) -> bool {
        matches!(self, Self::Carried(s) if s.is_early())
    }

    /// Waits until the handshake is complete. An error if it fails.
    pub fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Carried(s) => s.poll_confirmed(cx),
            Self::Direct(_) | Self::FastCgi(_) | Self::H2(_) => Poll::Ready(Ok(())),
            Self::Over => over(),
        }
    }

    /// Releases the share of a multiplexed stream's head in the limit of its connection, after the head was freed.
    pub fn forget_head(&self) {
        match self {
            Self::Direct(_) | Self::FastCgi(_) | Self::Over => {}
            Self::H2(s) => s.forget_head(),
            Self::Carried(s) => s.forget_head(),
        }
    }

    /// Refuses the unprocessed request of a multiplexed stream: the client may send it again on another connection.
    pub fn refuse(&mut self) {
        match self {
            Self::Direct(_) | Self::FastCgi(_) | Self::Over => {}
            Self::H2(s) => s.refuse(),
            Self::Carried(s) => s.refuse(),
        }
    }

    /// The FastCGI connection, if this is one.
    pub fn fastcgi(&self) -> Option<&FastCgi> {
        match self {
            Self::FastCgi(s) => Some(s),
            Self::Direct(_) | Self::H2(_) | Self::Carried(_) | Self::Over => None,
        }
    }

    /// The same, to change.
    pub fn fastcgi_mut(&mut self) -> Option<&mut FastCgi> {
        match self {
            Self::FastCgi(s) => Some(s),
            Self::Direct(_) | Self::H2(_) | Self::Carried(_) | Self::Over => None,
        }
    }

    /// The socket, unless this is a multiplexed stream, which has none of its own.
    fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Direct(t) => Some(t.socket()),
            Self::FastCgi(s) => Some(s.transport().socket()),
            Self::H2(_) | Self::Carried(_) | Self::Over => None,
        }
    }

    /// The trailers that followed the body of a multiplexed stream, as field lines.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        match self {
            Self::Direct(_) | Self::FastCgi(_) | Self::Over => Vec::new(),
            Self::H2(s) => s.take_trailers(),
            Self::Carried(s) => s.take_trailers(),
        }
    }

    /// Closes the write side; with TLS, sends a close_notify first.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Direct(t) => t.poll_shutdown(cx),
            Self::FastCgi(s) => s.transport_mut().poll_shutdown(cx),
            Self::H2(s) => Poll::Ready(s.end(&[])),
            Self::Carried(s) => Poll::Ready(s.finish(&[])),
            Self::Over => over(),
        }
    }

    /// Whether an idle connection is still usable: nothing to read, neither bytes nor its end. RFC 9112 §9.2: a byte
    /// outside a pending response makes the connection unusable. Costs no system call unless something arrived. A
    /// multiplexed stream is never used again.
    pub fn is_quiet(&mut self) -> bool {
        match self {
            Self::Direct(t) => t.is_quiet(),
            Self::FastCgi(s) => s.has_no_input() && s.transport_mut().is_quiet(),
            Self::H2(_) | Self::Carried(_) => true,
            Self::Over => false,
        }
    }

    /// Like [`Stream::is_quiet`], but asks the kernel now (one system call), so it also sees an end that arrived
    /// since the core last polled. For requests that must not be sent twice.
    pub fn is_quiet_now(&mut self) -> bool {
        match self {
            Self::Direct(t) => t.is_quiet_now(),
            Self::FastCgi(s) => s.has_no_input() && s.transport_mut().is_quiet_now(),
            Self::H2(_) | Self::Carried(_) => true,
            Self::Over => false,
        }
    }

    /// Whether the peer has reset the connection; if not, wakes the task when it does. Bytes and a half-close do not
    /// count as a reset and stay for the next reader. Always false for a Unix socket.
    pub fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Direct(t) => t.socket().is_reset(cx),
            Self::FastCgi(s) => s.transport().socket().is_reset(cx),
            Self::H2(s) => s.is_reset(cx),
            Self::Carried(s) => s.is_reset(cx),
            Self::Over => true,
        }
    }

    /// Whether the peer has closed its write side or the connection, by a close or a reset. Bytes before the end stay
    /// for the next reader. Costs nothing, but knows only sockets that have waited before: call [`Stream::is_reset`]
    /// first, which makes the driver watch the socket and wake the task; the end shows up some time after that.
    /// Always false for a multiplexed stream, where a half-close is how a request ends, and for a Unix socket.
    #[inline]
    pub fn is_half_closed(&self) -> bool {
        self.socket().is_some_and(Socket::is_half_closed)
    }

    /// Whether the peer has closed its write side or the connection, and we have read everything it sent. Asks the
    /// kernel. With TLS, an unread close_notify may precede the end. Always false for a multiplexed stream and for a Unix
    /// socket.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Direct(t) if t.has_ended())
    }

    /// Turns the coming close into a reset. For a truncated response that has no other end than that of the
    /// connection: a clean close would make it look complete. TLS needs no reset: a close without close_notify is not
    /// a proper end.
    pub fn abort(&mut self) {
        match self {
            Self::Direct(t) => t.abort(),
            Self::FastCgi(s) => s.transport_mut().abort(),
            Self::H2(s) => s.abort(),
            Self::Carried(s) => s.abort(),
            Self::Over => {}
        }
    }

    /// The negotiated TLS version and cipher, if this is TLS.
    pub fn tls(&self) -> Option<TlsInfo> {
        match self {
            Self::Direct(t) => t.tls(),
            Self::FastCgi(s) => s.transport().tls(),
            Self::H2(s) => s.tls(),
            Self::Carried(s) => s.tls(),
            Self::Over => None,
        }
    }

    /// Our own address; `None` for a Unix socket, and for a multiplexed stream, which has no socket of its own.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket()?.local_address()
    }
}

/// The error of a stream that is over.
#[cold]
fn over<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl From<Transport> for Stream {
    fn from(transport: Transport) -> Self {
        Self::Direct(transport)
    }
}
