//! TLS connections of clients, through rustls' unbuffered interface.
//!
//! If rustls keeps the buffers of a connection, as in `buffered`, it never frees the 4 KiB that it reads into: almost
//! half of what an idle connection held (9.7 KiB). Here all connections of a thread share one set of buffers. A
//! connection holds bytes of its own only while it has received part of a record, has decrypted more than a read asked
//! for, or has records that the socket does not take yet.

mod buffers;
mod records;

use crate::Socket;
use buffers::{Queue, READ_BYTES, RECORD_BYTES, prefix, split, with_buffers};
use records::{Next, Plaintext, encrypt, proceed};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus, WriteTraffic};
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
    /// Plaintext that no read has asked for yet.
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

/// A session that has kept so many bytes without a complete record or handshake message fails. One read may go beyond
/// it by [`READ_BYTES`], so a connection holds at most 82 KiB. The limit is that of rustls' own buffer; only handshake
/// messages of several records (certificates of clients) come near it.
const MOST_RECEIVED_BYTES: usize = 0xffff;

/// Most plaintext that one write encrypts, and so what a connection holds in `unsent` while its client takes nothing.
const MOST_SENT_BYTES: usize = 4 * RECORD_BYTES;

/// Room for a close_notify, and for a KeyUpdate before it.
const ALERT_BYTES: usize = 256;

thread_local! {
    /// The name in the last ClientHello that a session on this thread has processed. The unbuffered interface does not
    /// offer it, so `Certificates::resolve` notes it here.
    static SERVER_NAME: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

/// Notes the name in a ClientHello for the session of this thread that is processing it.
pub(super) fn note_server_name(name: Option<&str>) {
    SERVER_NAME.set(name.map(Box::from));
}

impl Unbuffered {
    /// Performs the handshake with a client. Dropping the future drops the connection.
    pub(super) async fn accept(config: &Arc<ServerConfig>, socket: Socket) -> io::Result<Self> {
        let session = UnbufferedServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        // Boxed: otherwise the future, and with it the connection's task, would reserve room for it.
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
            SERVER_NAME.set(None); // another connection may have left one
            let received = self.poll_receive(cx, None);
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
        if self.decrypted.is_empty() {
            ready!(self.poll_plaintext(cx, Some(&mut *buffer)))?;
        } else {
            let count = self.decrypted.bytes().len().min(buffer.capacity() - buffer.len());
            buffer.extend_from_slice(self.decrypted.bytes().get(..count).unwrap_or_default());
            self.decrypted.take(count);
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

    /// Writes part of two consecutive pieces. The end of the first and the start of the second share a record. The
    /// count is plaintext; its records may still wait for [`Self::poll_flush`] or the next write.
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
        // One more record is queued as soon as it fits. A write that waited until everything is sent would not complete
        // for a client that takes less than 64 KiB a minute, which would then be cut as too slow.
        let most = match self.poll_send(cx)? {
            Poll::Ready(()) => MOST_SENT_BYTES,
            Poll::Pending if self.unsent.bytes().len() + RECORD_BYTES <= MOST_SENT_BYTES => RECORD_BYTES,
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

    /// Sends the queued records.
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

    /// Waits for plaintext of the client, its close_notify or an error, and keeps the plaintext for the next read.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.decrypted.is_empty() {
            true => self.poll_plaintext(cx, None),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Waits for plaintext of the client, while `decrypted` is empty. Fills the spare capacity of `wanted`, and keeps
    /// the rest in `decrypted`. If none arrives, the client has sent a close_notify.
    fn poll_plaintext(
        &mut self,
        cx: &mut Context<'_>,
        mut wanted: Option<&mut Vec<u8>>,
    ) -> Poll<io::Result<()>> {
        let before = wanted.as_ref().map_or(0, |buffer| buffer.len());
        loop {
            self.check()?;
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            let count = ready!(self.poll_receive(cx, wanted.as_deref_mut()))?;
            let is_filled = wanted.as_ref().is_some_and(|buffer| buffer.len() > before);
            if is_filled || !self.decrypted.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if count == 0 {
                let text = "peer closed connection without sending TLS close_notify";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
    }

    /// Reads from the socket once and decrypts every complete record, into the spare capacity of `wanted` first. Returns
    /// how many bytes arrived; 0 at the end of the connection.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        wanted: Option<&mut Vec<u8>>,
    ) -> Poll<io::Result<usize>> {
        let kept = self.received.len();
        if kept >= MOST_RECEIVED_BYTES {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "message buffer full")));
        }
        let count = if kept > RECORD_BYTES {
            ready!(self.poll_receive_in_place(cx, wanted))?
        } else {
            ready!(with_buffers(|buffers| {
                let (before, room) = prefix(&mut buffers.incoming, kept + READ_BYTES).split_at_mut(kept);
                let count = ready!(self.socket.poll_read_slice(cx, room))?;
                if count > 0 {
                    before.copy_from_slice(&self.received);
                    let all = prefix(&mut buffers.incoming, kept + count);
                    let start = self.process(all, wanted);
                    let rest = all.get(start..).unwrap_or_default();
                    if kept > 0 || !rest.is_empty() {
                        self.received = rest.to_vec();
                    }
                }
                Poll::Ready(io::Result::Ok(count))
            }))?
        };
        if !self.unsent.is_empty() {
            let _ = self.poll_send(cx); // such as an alert: no flush may follow, and a later write reports the error
        }
        Poll::Ready(Ok(count))
    }

    /// As [`Self::poll_receive`], but reads into `received` itself. Only a long handshake message keeps more than a
    /// record. A client may send it byte by byte, and copying it each time would move 2 GB for 64 KiB.
    fn poll_receive_in_place(
        &mut self,
        cx: &mut Context<'_>,
        wanted: Option<&mut Vec<u8>>,
    ) -> Poll<io::Result<usize>> {
        let mut all = take(&mut self.received);
        let kept = all.len();
        all.resize(kept + READ_BYTES, 0);
        let read = self.socket.poll_read_slice(cx, all.get_mut(kept..).unwrap_or_default());
        let count = match &read {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        all.truncate(kept + count);
        if count > 0 {
            let start = self.process(&mut all, wanted);
            all.drain(..start);
        }
        if all.len() <= RECORD_BYTES {
            all.shrink_to_fit(); // the message is over, and a later read that leaves nothing frees nothing
        }
        self.received = all;
        read
    }

    /// Lets rustls process received bytes, and fills the spare capacity of `wanted` before `decrypted`. Returns where
    /// those bytes start that rustls needs again.
    fn process(&mut self, incoming: &mut [u8], wanted: Option<&mut Vec<u8>>) -> usize {
        let mut plaintext = Plaintext { wanted, kept: &mut self.decrypted };
        let mut start = 0;
        loop {
            let left = incoming.get_mut(start..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(left);
            let next =
                state.and_then(|state| proceed(state, &mut self.unsent, &mut self.has_ended, &mut plaintext));
            start += discard;
            match next {
                Ok(Next::Again(more)) => start += more,
                // The client continues its handshake only after what we send. Bytes after its ClientHello are early
                // data, which rustls would count against its limit in each call.
                Ok(Next::Sent) if self.session.is_handshaking() => break,
                Ok(Next::Sent) => {}
                Ok(Next::Wait) => break,
                Err(e) => {
                    self.fail(e);
                    break;
                }
            }
            // Saves the call in which rustls would only say that it waits: most reads bring whole records.
            if start >= incoming.len() && !self.session.wants_write() {
                break;
            }
        }
        // RFC 9846 §6.1: what follows a closure alert is ignored.
        if self.has_ended || self.failure.is_some() { incoming.len() } else { start }
    }

    /// Encrypts both pieces into the start of `out`, and returns the end of their records.
    fn seal(&mut self, first: &[u8], rest: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
        let sealed = self.drive(|traffic, unsent| {
            let end = encrypt(traffic, first, out, 0)?;
            if rest.is_empty() {
                return Ok(end);
            }
            let all = encrypt(traffic, rest, out, end);
            if all.is_err() {
                unsent.push(out.get(..end).unwrap_or_default()); // the session has counted them
            }
            all
        });
        self.check()?;
        sealed.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Queues a close_notify, unless the session has failed: a failed session has mostly sent an alert instead.
    fn close(&mut self) {
        if self.failure.is_none() {
            self.drive(|traffic, unsent| {
                let mut alert = [0; ALERT_BYTES];
                let end = traffic.queue_close_notify(&mut alert).unwrap_or_default();
                unsent.push(alert.get(..end).unwrap_or_default());
                Ok(())
            });
        }
    }

    /// Lets the session do what it must before it may send, and then lets `task` encrypt. `None` if the session fails,
    /// or may not send.
    fn drive<T>(
        &mut self,
        task: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut Queue) -> Result<T, Error>,
    ) -> Option<T> {
        let mut task = Some(task);
        loop {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut self.received);
            let mut done = None;
            let next = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => match task.take() {
                    Some(task) => task(&mut traffic, &mut self.unsent).map(|value| {
                        done = Some(value);
                        Next::Wait
                    }),
                    None => Ok(Next::Wait),
                },
                Ok(state) => {
                    let mut plaintext = Plaintext { wanted: None, kept: &mut self.decrypted };
                    proceed(state, &mut self.unsent, &mut self.has_ended, &mut plaintext)
                }
                Err(e) => Err(e),
            };
            let used = match next {
                Ok(Next::Again(more)) => discard + more,
                Ok(Next::Sent | Next::Wait) => discard,
                Err(e) => {
                    self.fail(e);
                    return None;
                }
            };
            if used > 0 {
                self.received.drain(..used);
            }
            if matches!(next, Ok(Next::Wait)) {
                return done;
            }
        }
    }

    /// Ends the session, and queues the alert that tells the client why.
    fn fail(&mut self, error: Error) {
        let mut plaintext = Plaintext { wanted: None, kept: &mut self.decrypted };
        // While rustls has something to write, it ignores the input.
        while self.session.wants_write() {
            let state = self.session.process_tls_records(&mut []).state;
            let next =
                state.and_then(|state| proceed(state, &mut self.unsent, &mut self.has_ended, &mut plaintext));
            if !matches!(next, Ok(Next::Again(_) | Next::Sent)) {
                break;
            }
        }
        self.received = Vec::new();
        self.failure = Some(Box::new(error));
    }

    /// Sends records after the queued ones. Queues what the socket has no room for.
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
        if self.unsent.is_empty() {
            return Ok(()); // the socket has taken all records
        }
        self.unsent.push(records);
        match self.poll_send(cx) {
            Poll::Ready(Err(e)) => Err(e),
            _ => Ok(()),
        }
    }

    /// Inlined: records rarely wait, and a call would cost 40 instructions per request.
    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.unsent.is_empty() {
            true => Poll::Ready(Ok(())),
            false => self.poll_send_queued(cx),
        }
    }

    fn poll_send_queued(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(self.socket.poll_write(cx, self.unsent.bytes()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.unsent.take(count),
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
