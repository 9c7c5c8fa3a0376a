//! A client as an exchange sees it: where its request came from, its stream, its deadline, and whether it is still there.
//!
//! `connection.rs` makes one per connection (`connection/h2.rs` one per stream) and runs exchanges on it.

use crate::core::{ConnectionHandle, Core, LocalListener};
use crate::forward::Forwarding;
use std::fs::File;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::Owner;
use weir_wire::tls::PeerCertificate;
use weir_wire::{Deadline, Peer, Stream};

/// How long a peer may take none of what is sent to it before it is given up. 60 s, as nginx's `send_timeout`.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// A client connection, or one stream of it where it speaks HTTP/2.
pub(crate) struct Client {
    pub(crate) core: Rc<Core>,
    /// As the snapshot of the current exchange has it.
    pub(crate) listener: Rc<LocalListener>,
    pub(crate) stream: Stream,
    pub(crate) peer: Peer,
    pub(crate) tls: bool,
    /// What the client showed of itself in the TLS handshake.
    pub(crate) certificate: Option<Rc<PeerCertificate>>,
    pub(crate) forwarding: Rc<Forwarding>,
    /// Whether its forwarding headers are believed.
    pub(crate) trusted: bool,
    pub(crate) handle: Rc<ConnectionHandle>,
    pub(crate) deadline: Deadline,
    /// The generation of the snapshot that `listener` is from; 0 before the first request, because a handshake may have
    /// outlasted a reload.
    pub(crate) generation: u64,
}

/// Which sign of a client's departure ends the exchange that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// A reset, or the end of what it sends, behind the whole request and with no other request behind it.
    End,
    /// None: the exchange goes on without it.
    Never,
    /// A reset, or the end of what it sends, whatever stands before that end: a place that others wait for is not
    /// kept for it.
    Queue,
    /// A reset.
    Reset,
}

impl Client {
    /// Whether the client has given up the exchange that waits, as far as it can be known. One that closed its side
    /// may still read, so that counts only after a while: an answer that comes within a second reaches it.
    ///
    /// A stream of HTTP/2 tells of a reset at once and for nothing. A socket is asked when its core has been told of
    /// its end, and after a while: see [`ConnectionHandle::wait`].
    pub(crate) fn has_departed(&mut self, cx: &mut Context<'_>, by: Departure) -> bool {
        if by == Departure::Never || !self.may_tell() {
            return false;
        }
        if self.stream.is_reset(cx) {
            return true;
        }
        self.handle.is_watched()
            && match by {
                Departure::End => self.stream.has_ended(),
                Departure::Queue => self.stream.is_half_closed(),
                Departure::Never | Departure::Reset => false,
            }
    }

    /// Whether the client may have departed: no system call, for an exchange that has just begun to wait.
    #[inline]
    pub(crate) fn may_tell(&self) -> bool {
        self.handle.is_watched() || self.stream.h2().is_some() || self.stream.is_told_of_end()
    }

    /// Whether the client, for which an exchange has gone on for a while, has closed its side meanwhile.
    pub(crate) fn may_have_left(&self) -> bool {
        self.handle.is_watched() && self.stream.has_ended()
    }

    /// The client as the owner of connections to upstreams; none where it came by a Unix socket.
    pub(crate) fn owner(&self) -> Option<&Rc<Owner>> {
        self.forwarding.owner(self.peer, || self.stream.local_address())
    }

    /// Takes the listener as the current snapshot has it. A request that arrived as its listener was taken away is still
    /// served, by the settings it came in under. False: the connection was opened under a policy that does not hold any more.
    pub(crate) fn adopt_listener(&mut self) -> bool {
        let local = self.core.local();
        if local.generation == self.generation {
            return true;
        }
        if self.handle.outdated.get() {
            return false;
        }
        self.generation = local.generation;
        self.listener = match local.listener(&self.handle.listener) {
            Some(same) => Rc::clone(same),
            // Its number may be another's by now: it matches no route that asks for a listener.
            None => Rc::new(LocalListener {
                spec: std::sync::Arc::clone(&self.listener.spec),
                number: u16::MAX,
                cells: std::sync::Arc::clone(&self.listener.cells),
            }),
        };
        self.trusted = self.forwarding.believes(&local.snapshot, self.peer.ip());
        true
    }

    /// Ends the message that was written, as [`Stream::poll_finish`].
    pub(crate) async fn finish(&mut self, trailers: &[u8]) -> Result<(), &'static Cause> {
        poll_fn(|cx| self.stream.poll_finish(cx, trailers)).await.map_err(|_| &error::CLIENT_CLOSED)
    }

    /// Writes all of `out` within [`SEND_TIMEOUT`] between steps. A stream of HTTP/2 keeps the end of it until it is known
    /// whether more follows: [`Client::finish`] sends it.
    pub(crate) async fn write_all(&mut self, out: Vec<u8>) -> Result<(), &'static Cause> {
        self.write_all_of(out, &[]).await
    }

    /// The same, with bytes behind it that are written from where they are.
    pub(crate) async fn write_all_of(&mut self, out: Vec<u8>, apart: &[u8]) -> Result<(), &'static Cause> {
        let mut at = 0;
        let mut waiting_at = None;
        let result = poll_fn(|cx| {
            loop {
                let rest = out.get(at..).unwrap_or_default();
                let behind = apart.get(at.saturating_sub(out.len())..).unwrap_or_default();
                let over = rest.is_empty() && behind.is_empty();
                if over && self.stream.h2().is_some() {
                    return Poll::Ready(Ok(()));
                }
                // TLS takes more than it has sent: the flush can wait for the client as well.
                let step = if over {
                    self.stream.poll_flush(cx).map_ok(|()| usize::MAX)
                } else if behind.is_empty() {
                    self.stream.poll_write(cx, rest)
                } else if rest.is_empty() {
                    self.stream.poll_write(cx, behind)
                } else {
                    self.stream.poll_write_two(cx, rest, behind)
                };
                match step {
                    Poll::Ready(Ok(_)) if over => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(n)) if n > 0 => at += n,
                    Poll::Ready(_) => return Poll::Ready(Err(&error::CLIENT_CLOSED)),
                    Poll::Pending => {
                        if waiting_at != Some(at) {
                            waiting_at = Some(at);
                            self.deadline.set(Instant::now(), SEND_TIMEOUT);
                        }
                        ready!(self.deadline.poll_passed(cx));
                        return Poll::Ready(Err(&error::CLIENT_TOO_SLOW));
                    }
                }
            }
        })
        .await;
        self.core.give_buffer(out);
        result
    }

    /// Sends a part of a file that is in memory. Only where the stream [sends files](weir_wire::Stream::sends_files).
    pub(crate) async fn send_file(
        &mut self,
        file: &File,
        mut offset: u64,
        mut length: usize,
    ) -> Result<(), &'static Cause> {
        let mut waiting_at = None;
        poll_fn(|cx| {
            while length > 0 {
                match self.stream.poll_send_file(cx, file, offset, length) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(&error::SOURCE_FAILED)), // it has become shorter
                    Poll::Ready(Ok(n)) => {
                        offset += n as u64;
                        length = length.saturating_sub(n);
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(&error::CLIENT_CLOSED)),
                    Poll::Pending => {
                        if waiting_at != Some(offset) {
                            waiting_at = Some(offset);
                            self.deadline.set(Instant::now(), SEND_TIMEOUT);
                        }
                        ready!(self.deadline.poll_passed(cx));
                        return Poll::Ready(Err(&error::CLIENT_TOO_SLOW));
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}
