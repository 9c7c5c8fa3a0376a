//! One HTTP/2 stream as the gateway sees it: heads as text, the body as bytes, an end.

use super::client::Place;
use super::{head, io_error};
use crate::websocket;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use std::fmt;
use std::io;
use std::task::{Context, Poll, ready};

/// Longest piece given to the crate at once, in bytes: what one DATA frame holds unless the peer asks for larger ones.
const PIECE_BYTES: usize = 16 * 1024;

/// One stream, in either role. Dropped before both sides have ended, it is reset.
///
/// Writing begins with a whole head as HTTP/1.1 text, in one piece; interim responses may come before it. What was written
/// last is held back until it is known whether more follows, so that the end needs no frame of its own.
pub struct H2Stream {
    role: Role,
    /// The head and the last piece of the body, not sent yet.
    head: Option<Head>,
    piece: Bytes,
    send: Option<SendStream<Bytes>>,
    recv: Option<RecvStream>,
    /// What is missing of a request's body, by its own word.
    owed: Option<u64>,
    /// The piece that made it complete, until the stream ends: with one byte more the request is malformed (RFC 9113
    /// §8.1.1), and an upstream that was given all that was announced would have taken it for whole.
    last: Bytes,
    /// What came behind the body: field lines, each with its CRLF.
    trailers: Vec<u8>,
    /// Nothing more is sent.
    finished: bool,
    /// The peer said that it has not looked at the request.
    refused: bool,
    /// Why the request could not be sent: HTTP/2 can not carry it, or the peer takes none like it. Nobody will answer it.
    unsent: Option<io::ErrorKind>,
    /// The peer reset the stream.
    reset: bool,
    tls: Option<crate::TlsFacts>,
}

/// A head that waits to be sent.
enum Head {
    Request(Request<()>),
    Response(Response<()>),
}

enum Role {
    Server {
        respond: SendResponse<Bytes>,
        /// The request was an Extended CONNECT.
        tunnel: bool,
    },
    Client {
        /// Until the request is sent: whoever holds one keeps the connection open.
        open: Option<SendRequest<Bytes>>,
        response: Option<ResponseFuture>,
        /// What a WebSocket is to be agreed to with.
        accept: Option<String>,
        /// Keeps the count of the connection's streams.
        _place: Place,
    },
}

impl H2Stream {
    /// `length`: what the request says of its body.
    pub(super) fn server(
        respond: SendResponse<Bytes>,
        recv: RecvStream,
        length: Option<u64>,
        tunnel: bool,
        tls: Option<crate::TlsFacts>,
    ) -> Self {
        let role = Role::Server { respond, tunnel };
        Self { owed: length, ..Self::new(role, Some(recv), tls) }
    }

    pub(super) fn client(open: SendRequest<Bytes>, place: Place, tls: Option<crate::TlsFacts>) -> Self {
        Self::new(Role::Client { open: Some(open), response: None, accept: None, _place: place }, None, tls)
    }

    const fn new(role: Role, recv: Option<RecvStream>, tls: Option<crate::TlsFacts>) -> Self {
        Self {
            role,
            head: None,
            piece: Bytes::new(),
            send: None,
            recv,
            owed: None,
            last: Bytes::new(),
            trailers: Vec::new(),
            finished: false,
            refused: false,
            unsent: None,
            reset: false,
            tls,
        }
    }

    /// Whether nothing more of the message will come: its body is over, or there is none. What a tunnel carries is no body.
    pub fn is_over(&self) -> bool {
        let tunnel = matches!(self.role, Role::Server { tunnel: true, .. });
        tunnel || self.recv.as_ref().is_some_and(RecvStream::is_end_stream)
    }

    /// Whether the peer said that it has not looked at the request: then it may be sent again, whatever its method
    /// (RFC 9113 §8.7).
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether the peer reset the stream, and not the connection below.
    pub const fn is_reset_by_peer(&self) -> bool {
        self.reset
    }

    /// The TLS facts of the connection below.
    pub const fn tls(&self) -> Option<crate::TlsFacts> {
        self.tls
    }

    /// Trailers that came behind the body, as field lines.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.trailers)
    }

    /// Reads: from the upstream first a head as text, then the body. 0 is the end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        if self.recv.is_none() {
            return self.poll_response(cx, buffer);
        }
        self.poll_body(cx, buffer)
    }

    fn poll_response(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.unsent {
            return Poll::Ready(Err(kind.into()));
        }
        let Role::Client { response: Some(response), accept, .. } = &mut self.role else {
            return Poll::Pending; // the request is not sent yet: whoever sends it asks again
        };
        let before = buffer.len();
        match response.poll_informational(cx) {
            Poll::Ready(Some(Ok(interim))) => {
                head::write_response(&interim, None, buffer);
                return Poll::Ready(Ok(buffer.len() - before));
            }
            Poll::Ready(Some(Err(e))) => return Poll::Ready(Err(self.failed(e))),
            Poll::Ready(None) | Poll::Pending => {}
        }
        let (parts, recv) = match ready!(std::pin::Pin::new(response).poll(cx)) {
            Ok(response) => response.into_parts(),
            Err(e) => return Poll::Ready(Err(self.failed(e))),
        };
        head::write_response(&Response::from_parts(parts, ()), accept.as_deref(), buffer);
        self.recv = Some(recv);
        Poll::Ready(Ok(buffer.len() - before))
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let Some(recv) = &mut self.recv else { return Poll::Pending };
        loop {
            match ready!(recv.poll_data(cx)) {
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => {
                    // Whoever reads has room for it: that is when the peer may send more.
                    recv.flow_control().release_capacity(data.len()).map_err(io_error)?;
                    self.owed = self.owed.map(|owed| owed.saturating_sub(data.len() as u64));
                    if self.owed == Some(0) && !recv.is_end_stream() {
                        self.last = data;
                        continue;
                    }
                    buffer.extend_from_slice(&data);
                    return Poll::Ready(Ok(data.len()));
                }
                Some(Err(e)) => return Poll::Ready(Err(self.failed(e))),
                None => break,
            }
        }
        if !self.last.is_empty() {
            let last = std::mem::take(&mut self.last);
            buffer.extend_from_slice(&last);
            return Poll::Ready(Ok(last.len()));
        }
        match ready!(recv.poll_trailers(cx)) {
            Ok(trailers) => {
                if let Some(trailers) = trailers {
                    head::write_trailers(&trailers, &mut self.trailers);
                }
                Poll::Ready(Ok(0))
            }
            Err(e) => Poll::Ready(Err(self.failed(e))),
        }
    }

    /// Writes: first a head, then body.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.head.is_none() && self.send.is_none() {
            return Poll::Ready(self.write_head(data).map_err(|e| self.not_sent(e)));
        }
        self.send_held()?;
        let Some(send) = &mut self.send else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        let want = data.len().min(PIECE_BYTES);
        if send.capacity() < want {
            send.reserve_capacity(want);
        }
        while send.capacity() == 0 {
            match ready!(send.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(e)) => return Poll::Ready(Err(self.failed(e))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let len = want.min(send.capacity());
        self.piece = Bytes::copy_from_slice(&data[..len]);
        Poll::Ready(Ok(len))
    }

    /// Takes a head out of what is written. Interim responses leave at once.
    fn write_head(&mut self, data: &[u8]) -> io::Result<usize> {
        match &mut self.role {
            Role::Server { respond, tunnel } => {
                let (mut response, used) = head::read_response(data)?;
                // To whoever asked for a tunnel a 2xx says that it is open (RFC 8441 §5); only a 101 does so here.
                if *tunnel && response.status().is_success() && !data.starts_with(b"HTTP/1.1 101") {
                    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
                }
                if response.status().is_informational() {
                    respond.send_informational(response).map_err(io_error)?;
                } else {
                    self.head = Some(Head::Response(response));
                }
                Ok(used)
            }
            Role::Client { open, accept, .. } => {
                let used = head::end_of_head(data).ok_or(io::ErrorKind::InvalidData)?;
                let scheme = if self.tls.is_some() { "https" } else { "http" };
                let (request, key) = head::read_request(&data[..used], scheme)?;
                if key.is_some()
                    && !open.as_ref().is_some_and(SendRequest::is_extended_connect_protocol_enabled)
                {
                    let why = "the upstream does not take WebSockets by HTTP/2 (RFC 8441)";
                    return Err(io::Error::new(io::ErrorKind::Unsupported, why));
                }
                *accept = key.map(|key| websocket::accept(&key));
                self.head = Some(Head::Request(request));
                Ok(used)
            }
        }
    }

    /// Sends the head, if it was not sent yet.
    fn send_head(&mut self, end: bool) -> io::Result<()> {
        let sent = match (self.head.take(), &mut self.role) {
            (Some(Head::Response(response)), Role::Server { respond, .. }) => {
                respond.send_response(response, end)
            }
            (Some(Head::Request(request)), Role::Client { open, response, .. }) => {
                let Some(mut open) = open.take() else { return Ok(()) };
                open.send_request(request, end).map(|(future, send)| {
                    *response = Some(future);
                    send
                })
            }
            _ => return Ok(()),
        };
        match sent {
            Ok(send) => self.send = Some(send),
            Err(e) => {
                let e = self.failed(e);
                return Err(self.not_sent(e));
            }
        }
        Ok(())
    }

    /// Sends what was held back.
    fn send_held(&mut self) -> io::Result<()> {
        self.send_head(false)?;
        if !self.piece.is_empty()
            && let Some(send) = &mut self.send
        {
            let piece = std::mem::take(&mut self.piece);
            send.send_data(piece, false).map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    /// Gives what was written to the connection: there is nothing to wait for.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.finished { Ok(()) } else { self.send_held() }
    }

    /// Ends the message. A request for a tunnel leaves the stream open: what follows is the tunnel's.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if matches!(self.role, Role::Client { accept: Some(_), .. }) {
            self.flush()
        } else {
            self.end(trailers)
        }
    }

    /// Ends the stream properly.
    pub(crate) fn end(&mut self, trailers: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        let end_with_head = piece.is_empty() && trailers.is_empty();
        if self.head.is_some() {
            self.send_head(end_with_head)?;
            if end_with_head {
                return Ok(());
            }
        }
        let Some(send) = &mut self.send else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let sent = if trailers.is_empty() {
            send.send_data(piece, true)
        } else {
            let trailers = head::read_trailers(trailers)?;
            let body = if piece.is_empty() { Ok(()) } else { send.send_data(piece, false) };
            body.and_then(|()| send.send_trailers(trailers))
        };
        sent.map_err(|e| self.failed(e))
    }

    /// Whether the peer has given the stream up; wakes the task when it does.
    pub(crate) fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        match (&mut self.send, &mut self.role) {
            (Some(send), _) => send.poll_reset(cx).is_ready(),
            (None, Role::Server { respond, .. }) => respond.poll_reset(cx).is_ready(),
            (None, Role::Client { .. }) => false,
        }
    }

    /// Resets the stream: for a response that was cut short.
    pub(crate) fn abort(&mut self) {
        match (&mut self.send, &mut self.role) {
            (Some(send), _) => send.send_reset(Reason::INTERNAL_ERROR),
            (None, Role::Server { respond, .. }) => respond.send_reset(Reason::INTERNAL_ERROR),
            (None, Role::Client { .. }) => {}
        }
    }

    /// Whoever waits for the response is told of it too: there will be none.
    fn not_sent(&mut self, e: io::Error) -> io::Error {
        self.unsent = Some(e.kind());
        e
    }

    fn failed(&mut self, e: h2::Error) -> io::Error {
        self.reset |= e.is_reset() && e.is_remote();
        let e = io_error(e);
        self.refused |= e.kind() == io::ErrorKind::ConnectionRefused;
        e
    }
}

impl fmt::Debug for H2Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match &self.role {
            Role::Server { tunnel: true, .. } => "server tunnel",
            Role::Server { .. } => "server",
            Role::Client { .. } => "client",
        };
        f.debug_struct("H2Stream").field("role", &role).finish_non_exhaustive()
    }
}
