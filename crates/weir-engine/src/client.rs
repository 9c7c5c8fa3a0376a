//! A client as an exchange sees it: its request's origin, its stream, its deadline, and whether it is still
//! connected.
//!
//! `connection.rs` makes one per connection (`connection/multiplexed.rs` one per stream) and runs exchanges on it.

use crate::core::{ConnectionHandle, Core, LocalListener};
use crate::forward::Forwarding;
use crate::matching::Origin;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::Owner;
use weir_wire::tls::PeerCertificate;
use weir_wire::{Deadline, Peer, Stream, memory_file};

/// How long a peer may accept no bytes before it is given up. 60 s, as nginx's `send_timeout`.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// A client connection, or one stream of a connection that carries several.
pub(crate) struct Client {
    pub(crate) core: Rc<Core>,
    /// The listener, from the snapshot of the current exchange.
    pub(crate) listener: Rc<LocalListener>,
    pub(crate) stream: Stream,
    pub(crate) peer: Peer,
    pub(crate) tls: bool,
    /// The certificate from the TLS handshake.
    pub(crate) certificate: Option<Rc<PeerCertificate>>,
    pub(crate) forwarding: Rc<Forwarding>,
    /// Whether its forwarding headers are trusted.
    pub(crate) trusted: bool,
    pub(crate) handle: Rc<ConnectionHandle>,
    pub(crate) deadline: Deadline,
    /// The generation of the snapshot that `listener` is from. 0 if a reload may have happened since, as during a
    /// handshake; the first request then looks the listener up again.
    pub(crate) generation: u64,
}

/// Which sign of a client's departure ends an exchange that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// A reset, or an end of stream after the whole request with no other request after it.
    End,
    /// None: the exchange continues without the client.
    Never,
    /// A reset, or an end of stream even with unread bytes before it: such a client must not hold a place that others
    /// wait for.
    Queue,
    /// A reset.
    Reset,
}

impl Client {
    /// Closes the connection. Returns the client if the next connection of the same task may reuse its memory.
    ///
    /// It may not if the connection was asked to close, because the core may still look for its handle; if its listener
    /// may be from an earlier snapshot, which the client would keep alive; or if something still uses its forwarding
    /// fields.
    pub(crate) fn over(mut self: Box<Self>) -> Option<Box<Self>> {
        self.stream = Stream::Over;
        self.certificate = None;
        self.deadline.clear();
        let is_unused = Forwarding::end(&mut self.forwarding);
        let is_current = self.generation == self.core.generation();
        (is_unused && is_current && !self.handle.closing.get()).then_some(self)
    }

    /// Whether the client has abandoned the waiting exchange, as far as it can be known. A client that closed its
    /// side may still read, so this counts only after a while: an answer within a second reaches it.
    ///
    /// A multiplexed stream reports a reset immediately and at no cost. A socket is checked when its core has seen its
    /// end, and after a while: see [`ConnectionHandle::wait`].
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

    /// Whether the client may have departed, without a system call: for an exchange that has just begun to wait.
    #[inline]
    pub(crate) fn may_tell(&self) -> bool {
        self.handle.is_watched() || self.stream.is_multiplexed() || self.stream.is_half_closed()
    }

    /// Whether the client closed its side during a longer exchange.
    pub(crate) fn may_have_left(&self) -> bool {
        self.handle.is_watched() && self.stream.has_ended()
    }

    /// The client as the owner of upstream connections; `None` if it came by a Unix socket.
    pub(crate) fn owner(&self) -> Option<&Rc<Owner>> {
        self.forwarding.owner(self.peer, || self.stream.local_address())
    }

    /// Takes the listener from the current snapshot. If the listener was just removed, the request is still served by
    /// the old settings. False if the connection was opened under a policy that is gone.
    #[inline]
    pub(crate) fn adopt_listener(&mut self) -> bool {
        self.generation == self.core.generation() || self.adopt_next()
    }

    /// Takes the listener from a snapshot that this client has not seen. Not inlined: few requests get here, and the
    /// others would save registers for nothing.
    #[inline(never)]
    fn adopt_next(&mut self) -> bool {
        let local = self.core.local();
        if self.handle.outdated.get() {
            return false;
        }
        self.generation = local.generation;
        self.listener = match local.serving(&self.handle) {
            Some(same) => Rc::clone(same),
            None => {
                let LocalListener { spec, cells, .. } = &*self.listener;
                Rc::new(LocalListener::gone(std::sync::Arc::clone(spec), std::sync::Arc::clone(cells)))
            }
        };
        self.trusted = self.forwarding.believes(&local.snapshot, self.peer.ip());
        true
    }

    /// Ends the written message, as [`Stream::poll_finish`].
    pub(crate) async fn finish(&mut self, trailers: &[u8]) -> Result<(), &'static Cause> {
        poll_fn(|cx| self.stream.poll_finish(cx, trailers)).await.map_err(|_| &error::CLIENT_CLOSED)
    }

    /// Writes all of `out`, with at most [`SEND_TIMEOUT`] between steps. A multiplexed stream keeps the last bytes until
    /// it knows whether more follow: [`Client::finish`] sends them.
    pub(crate) async fn write_all(&mut self, out: Vec<u8>) -> Result<(), &'static Cause> {
        self.write_all_of(out, &[]).await
    }

    /// The same, followed by bytes that are written without being copied; if they are in the
    /// [memory file](weir_wire::memory_file), the kernel does not copy them either.
    pub(crate) async fn write_all_of(&mut self, out: Vec<u8>, apart: &[u8]) -> Result<(), &'static Cause> {
        let mut at = 0;
        let mut waiting_at = None;
        let sends_pages = apart.len() >= memory_file::FROM_BYTES && self.stream.sends_files();
        let mut pages = sends_pages.then(|| memory_file::find(apart)).flatten();
        let result = poll_fn(|cx| {
            loop {
                let rest = out.get(at..).unwrap_or_default();
                let behind = apart.get(at.saturating_sub(out.len())..).unwrap_or_default();
                let over = rest.is_empty() && behind.is_empty();
                if over && self.stream.is_multiplexed() {
                    return Poll::Ready(Ok(()));
                }
                // TLS may hold bytes it has not sent: the flush can wait for the client too.
                let step = if over {
                    self.stream.poll_flush(cx).map_ok(|()| usize::MAX)
                } else if behind.is_empty() {
                    self.stream.poll_write(cx, rest)
                } else if let Some((file, begin)) = pages {
                    if rest.is_empty() {
                        let offset = begin + (apart.len() - behind.len()) as u64;
                        self.stream.poll_send_file(cx, file, offset, behind.len())
                    } else {
                        self.stream.poll_write_begun(cx, rest)
                    }
                } else if rest.is_empty() {
                    self.stream.poll_write(cx, behind)
                } else {
                    self.stream.poll_write_two(cx, rest, behind)
                };
                match step {
                    Poll::Ready(Ok(_)) if over => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(n)) if n > 0 => at += n,
                    // Not every kind of socket, and not every sandbox, lets pages be sent.
                    Poll::Ready(Err(e)) if pages.is_some() && cannot_send_pages(&e) => pages = None,
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

    /// Writes `out`, then a part of a file that is in memory. Only for streams that
    /// [send files](weir_wire::Stream::sends_files).
    pub(crate) async fn send_file(
        &mut self,
        out: Vec<u8>,
        file: &File,
        offset: u64,
        length: u64,
    ) -> Result<(), &'static Cause> {
        let head = out.len() as u64;
        let mut at = 0;
        let mut waiting_at = None;
        let result = poll_fn(|cx| {
            while at < head + length {
                let rest = usize::try_from(at).ok().and_then(|at| out.get(at..)).unwrap_or_default();
                let step = if rest.is_empty() {
                    let left = usize::try_from(head + length - at).unwrap_or(usize::MAX);
                    self.stream.poll_send_file(cx, file, offset + (at - head), left)
                } else {
                    self.stream.poll_write_begun(cx, rest)
                };
                match step {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(&error::SOURCE_FAILED)), // the file shrank
                    Poll::Ready(Ok(n)) => at += n as u64,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(&error::CLIENT_CLOSED)),
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
            Poll::Ready(Ok(()))
        })
        .await;
        self.core.give_buffer(out);
        result
    }
}

/// Whether sending pages is refused here, and writing bytes may work.
fn cannot_send_pages(e: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(e.kind(), InvalidInput | PermissionDenied | Unsupported)
}

impl Origin for Client {
    #[inline]
    fn peer(&self) -> Peer {
        self.peer
    }

    #[inline]
    fn certificate(&self) -> Option<&PeerCertificate> {
        self.certificate.as_deref()
    }

    #[inline]
    fn server_name(&self) -> Option<&str> {
        self.forwarding.server_name().map(|name| &**name)
    }

    #[inline]
    fn is_secure(&self) -> bool {
        self.tls
    }

    #[inline]
    fn is_trusted(&self) -> bool {
        self.trusted
    }
}
