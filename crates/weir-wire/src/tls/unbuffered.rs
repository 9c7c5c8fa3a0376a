//! The server's side of a TLS connection, by rustls' unbuffered interface.
//!
//! If rustls keeps the buffers of a connection, as in `buffered`, it never frees the 4 KiB that it reads into, almost
//! half of what an idle connection held. Here all connections of a thread share one set of buffers. A connection holds
//! bytes of its own only while it has received part of a record, has decrypted more than a read asked for, or waits
//! until its client takes a response.

use crate::Socket;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, Error, ServerConfig};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// A TLS connection of a client.
pub(super) struct Unbuffered {
    socket: Socket,
    session: UnbufferedServerConnection,
    /// Received bytes that rustls still needs: part of a record, or of a handshake message in several records.
    ///
    /// Invariant: rustls can do nothing with them until more arrive.
    received: Vec<u8>,
    /// What no read has asked for yet.
    decrypted: Queue,
    /// Records that the socket had no room for.
    unsent: Queue,
    /// The name that the client asked for (SNI), in lower case.
    server_name: Option<Box<str>>,
    /// Why the session failed; nothing more is processed.
    failure: Option<Box<Error>>,
    /// The client sends nothing more (close_notify).
    has_ended: bool,
    /// We send nothing more.
    has_closed: bool,
}

/// Bytes that are taken from the front. Holds no memory when it is empty.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    taken: usize,
}

/// What the connections of a thread share; used within one call. The constants below bound each buffer: 82 KiB for
/// `incoming` and 66 KiB for `outgoing`, of which all but 18 and 17 KiB take a handshake or a response of many records.
#[derive(Default)]
struct Buffers {
    /// Bytes from a socket, which rustls decrypts in place.
    incoming: Vec<u8>,
    /// Two pieces that go into one record.
    joined: Vec<u8>,
    /// Records for a socket.
    outgoing: Vec<u8>,
}

/// What a session needs next.
enum Next {
    /// To be asked again, after these further bytes of its input were discarded.
    Again(usize),
    /// To be asked again: we have taken what it had to send.
    Sent,
    /// Something from outside: bytes to decrypt, or to encrypt.
    Wait,
}

/// The plaintext of a full record (RFC 9846 §5.1).
const RECORD: usize = 16 * 1024;

/// How much one call reads: at least one full record with its header and the most that encryption may add.
const READ_BYTES: usize = RECORD + 2048 + 5;

/// How many bytes may wait for the rest of a record or of a handshake message: the limit of rustls' own buffer. Only
/// handshake messages of more than one record (certificates of clients) come near it.
const MOST_RECEIVED: usize = 0xffff;

/// How many bytes of plaintext one call encrypts, and thus how much a connection holds while its client takes nothing.
const MOST_SENT: usize = 4 * RECORD;

/// Room for what encryption adds to a record, and for a change of keys before it. More is made if this is not enough.
const OVERHEAD: usize = 128;

/// The size of a buffer for a close_notify, with a change of keys before it.
const ALERT_BYTES: usize = 256;

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
    /// The name in the last ClientHello that a session on this thread has processed. The unbuffered interface cannot
    /// be asked for it, so the choice of a certificate notes it.
    static SERVER_NAME: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

/// Notes the name in a ClientHello, for the session that processes it.
pub(super) fn note_server_name(name: Option<&str>) {
    SERVER_NAME.set(name.map(Box::from));
}

impl Unbuffered {
    /// Performs the handshake with a client. Dropping the future drops the connection.
    pub(super) async fn accept(config: &Arc<ServerConfig>, socket: Socket) -> io::Result<Self> {
        let session = UnbufferedServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        // In a box, because the task of a connection would keep the room for it.
        let mut accepted = Box::new(Self {
            socket,
            session,
            received: Vec::new(),
            decrypted: Queue::default(),
            unsent: Queue::default(),
            server_name: None,
            failure: None,
            has_ended: false,
            has_closed: false,
        });
        poll_fn(|cx| accepted.poll_handshake(cx)).await?;
        Ok(*accepted)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            SERVER_NAME.set(None); // that of another connection
            let mut decrypted = take(&mut self.decrypted);
            let received = self.poll_receive(cx, &mut |bytes| decrypted.push(bytes));
            self.decrypted = decrypted;
            if let Some(name) = SERVER_NAME.take() {
                self.server_name = Some(name);
            }
            let count = ready!(received)?;
            self.check()?;
            if count == 0 {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof")));
            }
        }
    }

    /// Reads into the spare capacity of `buffer`: what is decrypted already, or else what the socket has.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let before = buffer.len();
        let mut rest = take(&mut self.decrypted);
        if rest.is_empty() {
            let read = self.poll_plaintext(cx, &mut |bytes| {
                let (now, later) = bytes.split_at(bytes.len().min(buffer.capacity() - buffer.len()));
                buffer.extend_from_slice(now);
                rest.push(later);
            });
            self.decrypted = rest;
            ready!(read)?;
        } else {
            let count = rest.bytes().len().min(buffer.capacity() - buffer.len());
            buffer.extend_from_slice(rest.bytes().get(..count).unwrap_or_default());
            rest.take(count);
            self.decrypted = rest;
        }
        Poll::Ready(Ok(buffer.len() - before))
    }

    /// Reads into a `ReadBuf`.
    pub(super) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_ahead(cx))?;
        let count = self.decrypted.bytes().len().min(buffer.remaining());
        buffer.put_slice(self.decrypted.bytes().get(..count).unwrap_or_default());
        self.decrypted.take(count);
        Poll::Ready(Ok(()))
    }

    /// See [`Stream::may_read`](crate::Stream::may_read).
    pub(super) fn may_read(&self, cx: &Context<'_>) -> bool {
        self.has_news() || self.socket.may_read(cx)
    }

    /// See [`Stream::is_quiet`](crate::Stream::is_quiet), and `is_quiet` of `Buffered` for how it reads.
    pub(super) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        if self.has_news() {
            return false;
        }
        if self.socket.is_known_quiet() {
            return true;
        }
        self.socket.begin_run();
        pin!(tokio::task::unconstrained(poll_fn(|cx| self.poll_ahead(cx)))).poll(cx).is_pending()
    }

    /// Writes part of two consecutive pieces, the end of the first and the start of the second in one record. A write
    /// that returns a count may leave records for [`Self::poll_flush`] or the next write.
    pub(super) fn poll_write_two(
        &mut self,
        cx: &mut Context<'_>,
        a: &[u8],
        b: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        if a.is_empty() && b.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if self.has_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // A client that takes little at a time sees a record of progress, not a whole write.
        let most = match self.poll_send(cx)? {
            Poll::Ready(()) => MOST_SENT,
            Poll::Pending if self.unsent.bytes().len() + RECORD <= MOST_SENT => RECORD,
            Poll::Pending => return Poll::Pending,
        };
        with_buffers(|buffers| {
            let (first, rest) = split(a, b, most, &mut buffers.joined);
            let sealed = self.seal(first, rest, &mut buffers.outgoing);
            if sealed.is_err() {
                let _ = self.poll_send(cx); // the alert
            }
            let end = sealed?;
            self.send(cx, buffers.outgoing.get(..end).unwrap_or_default())?;
            Poll::Ready(Ok(first.len() + rest.len()))
        })
    }

    /// Sends the records that wait.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?; // also of a session that has failed since
        Poll::Ready(self.check())
    }

    /// Sends a close_notify, once, and closes the write side.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_closed {
            self.has_closed = true;
            self.close();
        }
        ready!(self.poll_send(cx))?;
        Poll::Ready(self.socket.shutdown())
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn common(&self) -> &CommonState {
        &self.session
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Whether a read returns something without asking the socket.
    fn has_news(&self) -> bool {
        self.failure.is_some() || self.has_ended || !self.decrypted.is_empty()
    }

    /// The error of a session that failed.
    fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(e) => Err(io::Error::new(io::ErrorKind::InvalidData, Error::clone(e))),
        }
    }

    /// Waits for bytes of the client, its end or an error, and keeps the bytes for the next read.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut decrypted = take(&mut self.decrypted);
        let read = match decrypted.is_empty() {
            true => self.poll_plaintext(cx, &mut |bytes| decrypted.push(bytes)),
            false => Poll::Ready(Ok(())),
        };
        self.decrypted = decrypted;
        read
    }

    /// Waits for bytes of the client and hands them over. Without any, the client has sent its end.
    fn poll_plaintext(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&[u8])) -> Poll<io::Result<()>> {
        loop {
            self.check()?;
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            let mut any = false;
            let count = ready!(self.poll_receive(cx, &mut |bytes| {
                any |= !bytes.is_empty();
                sink(bytes);
            }))?;
            if any {
                return Poll::Ready(Ok(()));
            }
            if count == 0 {
                let text = "peer closed connection without sending TLS close_notify";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
    }

    /// Reads from the socket once, decrypts every record that is complete, and hands over what the client sent.
    /// Returns how many bytes arrived; 0 at the end of the connection.
    fn poll_receive(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&[u8])) -> Poll<io::Result<usize>> {
        let kept = self.received.len();
        if kept >= MOST_RECEIVED {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "message buffer full")));
        }
        let count = if kept > RECORD {
            ready!(self.poll_receive_in_place(cx, sink))?
        } else {
            ready!(with_buffers(|buffers| {
                let (before, room) = first(&mut buffers.incoming, kept + READ_BYTES).split_at_mut(kept);
                let count = ready!(self.poll_read_socket(cx, room))?;
                if count > 0 {
                    before.copy_from_slice(&self.received);
                    let all = first(&mut buffers.incoming, kept + count);
                    let start = self.process(all, sink);
                    self.received = all.get(start..).unwrap_or_default().to_vec();
                }
                Poll::Ready(io::Result::Ok(count))
            }))?
        };
        if !self.unsent.is_empty() {
            let _ = self.poll_send(cx); // such as an alert: perhaps nobody flushes later, and a write tells an error
        }
        Poll::Ready(Ok(count))
    }

    /// The same, in the memory of `received`. Only part of a long handshake message is as much, and a client may send
    /// that a byte at a time: it must not be copied for each.
    fn poll_receive_in_place(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut all = take(&mut self.received);
        let kept = all.len();
        all.resize(kept + READ_BYTES, 0);
        let read = self.poll_read_socket(cx, all.get_mut(kept..).unwrap_or_default());
        let count = match &read {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        all.truncate(kept + count);
        if count > 0 {
            let start = self.process(&mut all, sink);
            all.drain(..start);
        }
        self.received = all;
        read
    }

    fn poll_read_socket(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(room);
        ready!(self.socket.poll_read_buf(cx, &mut room))?;
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Lets rustls process received bytes. Returns the start of those that it needs again.
    fn process(&mut self, incoming: &mut [u8], sink: &mut dyn FnMut(&[u8])) -> usize {
        let mut start = 0;
        loop {
            let left = incoming.get_mut(start..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(left);
            let next = state.and_then(|state| proceed(state, &mut self.unsent, &mut self.has_ended, sink));
            start += discard;
            match next {
                Ok(Next::Again(more)) => start += more,
                // During a handshake the client answers only what was sent. What follows its hello is early data,
                // which rustls would count against its limit each time it looks.
                Ok(Next::Sent) if self.session.is_handshaking() => break,
                Ok(Next::Sent) => {}
                Ok(Next::Wait) => break,
                Err(e) => {
                    self.fail(e);
                    break;
                }
            }
            // rustls would say that it waits: as a rule, a request is one record.
            if start >= incoming.len() && !self.session.wants_write() {
                break;
            }
        }
        // RFC 9846 §6.1: what follows a closure alert is ignored.
        if self.has_ended || self.failure.is_some() { incoming.len() } else { start }
    }

    /// Encrypts both pieces into the start of `out`, and returns the end of their records.
    fn seal(&mut self, first: &[u8], rest: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut self.received);
            let mut sealed = None;
            let next = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    encrypt(&mut traffic, first, out, 0).and_then(|end| {
                        let all = encrypt(&mut traffic, rest, out, end);
                        if all.is_err() {
                            self.unsent.push(out.get(..end).unwrap_or_default()); // the session has counted them
                        }
                        sealed = Some(all?);
                        Ok(Next::Wait)
                    })
                }
                Ok(state) => proceed(state, &mut self.unsent, &mut self.has_ended, &mut |bytes| {
                    self.decrypted.push(bytes);
                }),
                Err(e) => Err(e),
            };
            match next {
                Ok(Next::Again(more)) => drop(self.received.drain(..discard + more)),
                Ok(Next::Sent) => drop(self.received.drain(..discard)),
                Ok(Next::Wait) => {
                    drop(self.received.drain(..discard));
                    return sealed.ok_or_else(|| io::ErrorKind::BrokenPipe.into());
                }
                Err(e) => {
                    self.fail(e);
                    self.check()?;
                }
            }
        }
    }

    /// Queues a close_notify, unless the session has failed: that is no orderly end, and mostly an alert has told why.
    fn close(&mut self) {
        while self.failure.is_none() {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut self.received);
            let next = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let mut alert = [0; ALERT_BYTES];
                    let end = traffic.queue_close_notify(&mut alert).unwrap_or_default();
                    self.unsent.push(alert.get(..end).unwrap_or_default());
                    Ok(Next::Wait)
                }
                Ok(state) => proceed(state, &mut self.unsent, &mut self.has_ended, &mut |bytes| {
                    self.decrypted.push(bytes);
                }),
                Err(e) => Err(e),
            };
            match next {
                Ok(Next::Again(more)) => drop(self.received.drain(..discard + more)),
                Ok(Next::Sent) => drop(self.received.drain(..discard)),
                Ok(Next::Wait) => {
                    drop(self.received.drain(..discard));
                    return;
                }
                Err(e) => self.fail(e),
            }
        }
    }

    /// Ends the session, and queues the alert that tells the client why.
    fn fail(&mut self, error: Error) {
        // While there is something to write, rustls looks at no input.
        while self.session.wants_write() {
            let state = self.session.process_tls_records(&mut []).state;
            let next =
                state.and_then(|state| proceed(state, &mut self.unsent, &mut self.has_ended, &mut |_| {}));
            if !matches!(next, Ok(Next::Again(_) | Next::Sent)) {
                break;
            }
        }
        self.received = Vec::new();
        self.failure = Some(Box::new(error));
    }

    /// Sends records, behind those that the session had to send before them. Keeps what the socket has no room for.
    fn send(&mut self, cx: &mut Context<'_>, mut records: &[u8]) -> io::Result<()> {
        while !records.is_empty() && self.unsent.is_empty() {
            match self.socket.poll_write(cx, records) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => records = records.get(count..).unwrap_or_default(),
                Poll::Ready(Err(e)) => return Err(e),
                Poll::Pending => {
                    self.unsent.push(records);
                    return Ok(());
                }
            }
        }
        self.unsent.push(records);
        match self.poll_send(cx) {
            Poll::Ready(Err(e)) => Err(e),
            _ => Ok(()),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(self.socket.poll_write(cx, self.unsent.bytes()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.unsent.take(count),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Queue {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// Lends the buffers of this thread.
fn with_buffers<T>(task: impl FnOnce(&mut Buffers) -> T) -> T {
    let mut buffers = BUFFERS.take().unwrap_or_default();
    let done = task(&mut buffers);
    BUFFERS.set(Some(buffers));
    done
}

/// The first bytes of a buffer, which grows to hold them and never shrinks: only new bytes have to be cleared.
fn first(buffer: &mut Vec<u8>, count: usize) -> &mut [u8] {
    if buffer.len() < count {
        buffer.resize(count, 0);
    }
    buffer.get_mut(..count).unwrap_or_default()
}

/// What one write sends of two pieces, at most this much: the start of the first record, joined if it holds something
/// of both, and what follows.
fn split<'a>(a: &'a [u8], b: &'a [u8], most: usize, joined: &'a mut Vec<u8>) -> (&'a [u8], &'a [u8]) {
    let room = RECORD.saturating_sub(a.len());
    if a.is_empty() || b.is_empty() || room == 0 {
        let alone = if a.is_empty() { b } else { a };
        return (alone.get(..most).unwrap_or(alone), &[]);
    }
    let (beside, rest) = b.split_at(b.len().min(room));
    joined.clear();
    joined.extend_from_slice(a);
    joined.extend_from_slice(beside);
    (joined, rest.get(..most - RECORD).unwrap_or(rest))
}

/// Does what a session asks for, unless that takes bytes from outside.
fn proceed(
    state: ConnectionState<'_, '_, ServerConnectionData>,
    unsent: &mut Queue,
    has_ended: &mut bool,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<Next, Error> {
    let mut discard = 0;
    match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                sink(record.payload);
            }
        }
        ConnectionState::EncodeTlsData(mut record) => encode(&mut record, &mut unsent.bytes)?,
        ConnectionState::TransmitTlsData(encoded) => {
            encoded.done(); // `unsent` has it
            return Ok(Next::Sent);
        }
        ConnectionState::PeerClosed => *has_ended = true,
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => return Ok(Next::Wait),
        ConnectionState::Closed => {
            *has_ended = true;
            return Ok(Next::Wait);
        }
        // Early data, which no policy accepts, and what later versions of rustls add.
        _ => return Err(Error::General("a state that no policy leads to".to_owned())),
    }
    Ok(Next::Again(discard))
}

/// Appends a record of rustls' own: of the handshake, an alert, or a change of keys.
fn encode(record: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(size)) = record.encode(&mut []) {
        out.resize(start + size.required_size, 0);
    }
    let room = out.get_mut(start..).unwrap_or_default();
    let count = record.encode(room).map_err(|e| Error::General(e.to_string()))?;
    out.truncate(start + count);
    Ok(())
}

/// Encrypts data into the bytes from `start`, and returns the end of its records.
fn encrypt(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    data: &[u8],
    out: &mut Vec<u8>,
    start: usize,
) -> Result<usize, Error> {
    if data.is_empty() {
        return Ok(start);
    }
    let mut needed = data.len() + OVERHEAD * (data.len() / RECORD + 1);
    loop {
        let room = first(out, start + needed).get_mut(start..).unwrap_or_default();
        match traffic.encrypt(data, room) {
            Ok(count) => return Ok(start + count),
            Err(EncryptError::InsufficientSize(size)) if size.required_size > needed => {
                needed = size.required_size;
            }
            Err(_) => return Err(Error::EncryptError),
        }
    }
}

#[cfg(test)]
mod tests;
