//! One client connection: handshake, one request after the other, end. `multiplexed` serves those that carry several
//! requests at a time, by HTTP/2 (`h2`) or HTTP/3 (`h3`).
//!
//! An idle connection holds no buffer: `head` borrows one from the core when bytes arrive and returns it once they
//! are used.

mod bytes;
mod greet;
mod h2;
mod h3;
mod head;
mod multiplexed;

pub(crate) use greet::admit_quic;
pub(crate) use h3::serve as serve_h3;
pub use head::cause_of;

use crate::client::Client;
use crate::core::{Arrived, ConnectionHandle, Core, LocalListener};
use crate::exchange::{self, Next, Ran};
use crate::forward::Forwarding;
use crate::lane::Lane;
use crate::per_client::Place;
use crate::respond;
use crate::snapshot::Serves;
use ::bytes::Bytes as Payload;
use bytes::Bytes;
use greet::{Greeted, PassedOn, Ungreeted, greet};
use head::NoRequest;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weir_filter::filter::{Body, Refusal};
use weir_h1::{FieldName, RequestHead};
use weir_telemetry::{Closed, ListenerCells, Protocol, log};
use weir_upstream::error::{self, Cause};
use weir_wire::{Deadline, Peer, Socket, Transport, time};

/// How long to read from a client that got its answer before it had sent everything: in total, and without a byte.
/// RFC 9112 §9.6; the times are nginx's `lingering_time` and `lingering_timeout`.
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_IDLE: Duration = Duration::from_secs(5);

/// How long a rejected client may take to read the reason.
const TURNED_AWAY: Duration = Duration::from_millis(250);

/// How many pipelined requests are answered before other connections get a turn. A client that filled the read buffer
/// with several hundred small requests kept its neighbors waiting for 30 ms.
const PIPELINED: u32 = 16;

/// How the requests of HTTP/1.1 on a connection ended.
enum Ended {
    Closed(Closed),
    /// No request came: the client speaks HTTP/2. These bytes of it were read.
    Http2(Vec<u8>),
}

/// Most lanes of a core that wait for a connection; surplus lanes of a burst end.
const IDLE_LANES: usize = 64;

/// Serves one connection after another. A waiting lane is dropped when its core ends.
///
/// Keeps the [`Client`] of its last HTTP/1.1 connection, less than a kilobyte. The next connection reuses its memory,
/// timer and forwarding lines, which saves four allocations.
pub(crate) async fn serve_lane(core: Rc<Core>, lane: Rc<Lane<()>>) {
    let mut kept = None;
    while lane.next().await.is_some() {
        kept = serve(&core, kept).await;
        let mut idle = core.lanes.borrow_mut();
        if core.ends() || idle.len() >= IDLE_LANES {
            return;
        }
        idle.push(Rc::clone(&lane));
    }
}

/// Serves the connection that arrived first, from accept to close. `kept` is the previous connection's client, whose
/// memory this one reuses; returns the client that the next one may reuse.
async fn serve(core: &Rc<Core>, mut kept: Option<Box<Client>>) -> Option<Box<Client>> {
    let Arrived { listener, generation, socket, peer } = core.take_arrived()?;
    // The connection may have waited for its turn, so the listener's current settings apply.
    let (listener, generation, most, per_client) = {
        let local = core.local();
        let (listener, generation) = local.latest(listener, generation);
        (listener, generation, local.snapshot.connections, local.snapshot.per_client.is_set())
    };
    // If its listener is gone or the core drains, a connection from the accept queue gets one answer.
    let is_gone = generation == 0;
    let ends = core.ends() || is_gone;
    let renew = |client: &mut Box<Client>| ConnectionHandle::renew(&mut client.handle, &listener.spec, ends);
    let handle = if let Some(handle) = kept.as_mut().and_then(renew) {
        handle
    } else {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        Rc::new(ConnectionHandle::new(&listener.spec, ends, waker))
    };
    let held = core.shared.connections.fetch_add(1, Ordering::Relaxed);
    let number = core.enter(&handle);
    if ends {
        core.limit_first(&handle, is_gone);
    }
    let cells = std::sync::Arc::clone(&listener.cells);
    let accepts = !matches!(listener.spec.serves, Serves::Sni(_));
    let mut left = Left { core, number, cells, is_accepted: accepts, client: None, closed: None };
    if accepts {
        left.cells.open();
    } else {
        left.cells.active.inc(); // it is counted where it is sent
    }
    let (place, is_full) = match &listener.spec.limit {
        None => (None, false),
        Some(limit) => {
            let place = limit.take();
            let is_full = place.is_none();
            (place, is_full)
        }
    };
    let _place = place;
    if held >= most || is_full {
        core.lost(&error::CONNECTION_LIMIT, &listener.spec.name, peer, "");
        if is_full {
            complain_of_listener(&listener.spec.name);
        } else {
            complain_of_limit();
        }
        let exposes = core.local().snapshot.expose_causes;
        // Boxed, because an idle connection would be as large as this answer.
        Box::pin(turn_away(socket, &listener, &error::CONNECTION_LIMIT, exposes)).await;
        left.closed = Some(Closed::Limit);
        return None;
    }
    let greeted = if listener.spec.greets || per_client {
        // Boxed: a handshake's future is large, and the connection far outlives it.
        Box::pin(greet(listener, socket, peer, &handle, &mut left)).await
    } else {
        let transport = Transport::Plain(socket);
        let (plain, named, passing) = (false, true, None);
        Ok(Greeted::Client { listener, generation, transport, peer, plain, named, passing })
    };
    let mut over = None;
    // In a function of its own, so that an idle connection keeps no room for the greeting.
    left.closed = Some(match course(core, number, handle, kept, greeted) {
        Course::Over(why) => why,
        Course::Rare(rare) => rare.await,
        Course::Requests(client) => {
            let mut requests = pin!(requests(client));
            // Polled in place, because moving a future copies it. Cut, it takes the client with it.
            let ended = poll_fn(|cx| {
                if core.is_cut(number) {
                    return Poll::Ready(None);
                }
                requests.as_mut().poll(cx).map(Some)
            });
            match ended.await {
                None => Closed::Drain,
                Some((Ended::Closed(why), client)) => {
                    over = client.over();
                    why
                }
                Some((Ended::Http2(early), client)) => Box::pin(h2::serve(*client, early)).await,
            }
        }
    });
    over
}

/// What a connection does after its greeting.
enum Course<'a> {
    /// Nothing.
    Over(Closed),
    /// What few connections do, or what needs more memory than HTTP/1.1.
    Rare(Pin<Box<dyn Future<Output = Closed> + 'a>>),
    /// Requests of HTTP/1.1, unless it turns out to be HTTP/2.
    Requests(Box<Client>),
}

/// Decides what a connection does after its greeting. `kept` is the previous connection's client.
fn course<'a>(
    core: &'a Rc<Core>,
    number: usize,
    handle: Rc<ConnectionHandle>,
    kept: Option<Box<Client>>,
    greeted: Result<Greeted, Ungreeted>,
) -> Course<'a> {
    match greeted {
        Ok(Greeted::Authority) => Course::Over(Closed::Finished),
        Ok(Greeted::Idle) => Course::Over(Closed::Drain),
        Ok(Greeted::Excess { listener, socket, peer, cause }) => {
            core.lost(cause, &listener.spec.name, peer, "");
            let exposes = core.local().snapshot.expose_causes;
            Course::Rare(Box::pin(async move {
                turn_away(socket, &listener, cause, exposes).await;
                Closed::Limit
            }))
        }
        Ok(Greeted::Client { passing: Some(passing), listener, transport, peer, .. }) => {
            let PassedOn { upstream, passing, name, since } = *passing;
            if handle.outdated.get() {
                return Course::Over(Closed::Drain); // a reload came in between
            }
            let bytes = Bytes {
                core,
                listener,
                certificate: transport.peer_certificate(),
                client: transport.into(),
                peer,
                name,
                number,
                started: since,
            };
            let mut deadline = kept.map(|client| client.deadline).unwrap_or_default();
            Course::Rare(Box::pin(
                async move { bytes::serve(bytes, (upstream, passing), &mut deadline).await },
            ))
        }
        Ok(Greeted::Client { listener, generation, transport, peer, plain, named, passing: None }) => {
            let (tls, name) = (transport.tls().is_some(), transport.server_name());
            let chose_h2 = transport.chose_h2();
            let certificate = transport.peer_certificate().map(Rc::new);
            // Sets every field, so an earlier client leaves only what is passed in.
            let begin = |stream, forwarding: Rc<Forwarding>, deadline| Client {
                core: Rc::clone(core),
                listener,
                stream,
                peer,
                tls,
                certificate,
                trusted: forwarding.believes(&core.local().snapshot, peer.ip()),
                forwarding,
                handle,
                deadline,
                generation,
            };
            // Boxed, because it moves between this task and the runners of its exchanges.
            let mut client = match kept {
                None => {
                    let forwarding = Rc::new(Forwarding::new(peer.ip(), tls, named, name));
                    Box::new(begin(transport.into(), forwarding, Deadline::new()))
                }
                Some(mut kept) => {
                    let Client { peer: before, mut forwarding, deadline, .. } = *kept;
                    Forwarding::renew(&mut forwarding, before.ip(), peer.ip(), tls, named, name);
                    *kept = begin(transport.into(), forwarding, deadline);
                    kept
                }
            };
            if chose_h2 {
                Course::Rare(Box::pin(h2::serve(*client, Vec::new())))
            } else if plain {
                Course::Rare(Box::pin(async move { client.point_to_https().await }))
            } else {
                Course::Requests(client)
            }
        }
        Err(Ungreeted { at, cause, peer, closed, said }) => {
            match said {
                Some(said) => {
                    if closed == Closed::Refused {
                        log_refused(&at.spec.name, peer, cause, &said);
                    }
                    core.lost(cause, &at.spec.name, peer, &said);
                }
                None => {
                    core.count(cause);
                }
            }
            Course::Over(closed)
        }
    }
}

/// Answers with the reason and closes. Not over TLS: the handshake would cost what the limit is meant to save.
async fn turn_away(socket: Socket, listener: &LocalListener, cause: &'static Cause, expose: bool) {
    if listener.spec.tls.is_some() || !matches!(listener.spec.serves, Serves::Http) {
        return;
    }
    let mut transport = Transport::Plain(socket);
    let retry = FieldName::new("retry-after").map(|name| (name, b"1".to_vec()));
    let refusal = Refusal { cause, detail: None, headers: retry.into_iter().collect() };
    let mut response = respond::refusal(&refusal, None, None, expose);
    let mut out = Vec::new();
    let body = if let Body::Bytes(body) = response.body { body } else { Payload::new() };
    exchange::write_answer(&mut response.head, Some(body.len()), b"connection: close\r\n", &mut out);
    out.extend_from_slice(&body);
    // The client may be gone already. Its request stays unread, so shut down first: a reset would discard the answer.
    let _ = poll_fn(|cx| transport.poll_write(cx, &out)).await;
    let _ = poll_fn(|cx| transport.poll_shutdown(cx)).await;
    out.clear();
    let _ = time::timeout(TURNED_AWAY, poll_fn(|cx| transport.poll_read(cx, &mut out))).await;
}

fn complain_of_limit() {
    static SEEN: log::Every = log::every(Duration::from_secs(10));
    SEEN.warn("limits.connections reached: new connections are turned away", &[]);
}

/// Logs a connection that a listener closed before it was served, at most 20 a second for each listener: a scanner must
/// not fill the log.
fn log_refused(listener: &str, peer: Peer, cause: &Cause, said: &str) {
    static SEEN: log::PerSubject = log::per_subject(20, Duration::from_secs(1));
    let fields: log::Fields<'_> =
        &[("listener", &listener), ("peer", &peer), ("cause", &cause.code), ("reason", &said)];
    SEEN.write(log::Level::Info, listener, "connection refused", fields);
}

fn complain_of_listener(name: &str) {
    static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
    let message = "limits.connections of a listener reached: new connections are turned away";
    SEEN.warn(name, message, &[("listener", &name)]);
}

/// Counts a connection's end, whatever the reason.
struct Left<'a> {
    core: &'a Rc<Core>,
    number: usize,
    cells: std::sync::Arc<ListenerCells>,
    /// Whether the cells have counted it as accepted.
    is_accepted: bool,
    /// Its place among the connections of its client, if they are limited.
    client: Option<Place>,
    closed: Option<Closed>,
}

impl Left<'_> {
    /// Counts the connection at the listener that serves it.
    fn settle(&mut self, at: &std::sync::Arc<ListenerCells>) {
        if self.is_accepted {
            return;
        }
        self.is_accepted = true;
        self.cells.active.dec();
        self.cells = std::sync::Arc::clone(at);
        self.cells.open();
    }
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        // Without a reason of its own it was dropped: by a panic, or with its core at the end of a drain.
        self.client = None; // first, so that whoever sees the figures finds the place free
        let dropped = if std::thread::panicking() { Closed::Error } else { Closed::Drain };
        if !self.is_accepted {
            self.settle(&std::sync::Arc::clone(&self.cells));
        }
        self.cells.close(self.closed.unwrap_or(dropped));
        self.core.leave(self.number);
    }
}

/// Serves one request after another. Returns the client, unless the future is dropped before its end.
async fn requests(mut client: Box<Client>) -> (Ended, Box<Client>) {
    let mut kept: Option<Box<RequestHead>> = None;
    let mut reused = false;
    let mut now = None;
    let mut pipelined = 0;
    loop {
        let (head, started, took) = match client.read_head(kept.take(), reused, now).await {
            Ok(read) => read,
            Err(NoRequest::Closed(why)) => return (Ended::Closed(why), client),
            Err(NoRequest::Http2(mut head)) => {
                let early = std::mem::take(head.buffer_mut());
                client.core.give_request(head);
                return (Ended::Http2(early), client);
            }
            Err(NoRequest::Refused(head, started, cause, e)) => {
                // Boxed, because it is rare and an idle connection would be as large as an exchange.
                Box::pin(exchange::refuse_head(&mut client, head, started, refused_for(cause, e))).await;
                client.linger().await;
                let late = *cause == error::HEAD_TIMEOUT;
                return (Ended::Closed(if late { Closed::Timeout } else { Closed::Refused }), client);
            }
        };
        client.listener.cells.requests[Protocol::Http1 as usize].inc();
        if !reused {
            client.listener.cells.first_requests.inc();
        }
        let Ran { client: back, next, head, ended } = exchange::run_apart(client, head, started, took).await;
        (client, now) = (back, ended);
        match next {
            Next::Keep => {}
            Next::Close(why) => {
                client.core.give_request(head);
                client.close().await;
                return (Ended::Closed(why), client);
            }
            Next::Linger(why) => {
                client.core.give_request(head);
                client.linger().await;
                return (Ended::Closed(why), client);
            }
            Next::Abort(why) => {
                client.core.give_request(head);
                client.stream.abort();
                return (Ended::Closed(why), client);
            }
        }
        reused = true;
        if head.buffer().is_empty() {
            client.core.give_request(head);
            pipelined = 0;
        } else {
            kept = Some(head);
            pipelined += 1;
            if pipelined == PIPELINED {
                weir_wire::yield_now().await;
                (pipelined, now) = (0, None);
            }
        }
    }
}

impl Client {
    /// Answers the only request of a client that speaks plain HTTP on a TLS port. Returns why the connection ends.
    async fn point_to_https(&mut self) -> Closed {
        match self.read_head(None, false, None).await {
            Ok((head, started, _)) | Err(NoRequest::Refused(head, started, ..)) => {
                let refusal = refused_for(&error::PLAIN_HTTP, None);
                exchange::refuse_head(self, head, started, refusal).await;
                self.linger().await;
            }
            Err(NoRequest::Http2(head)) => {
                self.core.give_request(head);
                self.core.count(&error::HANDSHAKE_FAILED);
            }
            Err(NoRequest::Closed(_)) => {}
        }
        Closed::Handshake
    }

    /// Closes the connection cleanly. Waits only briefly for a peer that does not read the end of TLS.
    async fn close(&mut self) {
        if !self.tls {
            return; // closing the socket suffices: a shutdown would be one more system call
        }
        self.deadline.set(Instant::now(), LINGER_IDLE);
        poll_fn(|cx| match self.stream.poll_shutdown(cx) {
            Poll::Ready(_) => Poll::Ready(()), // the peer may be gone
            Poll::Pending => self.deadline.poll_passed(cx),
        })
        .await;
    }

    /// Closes so that the answer arrives: closing a socket with unread bytes sends a reset, which may destroy the
    /// answer (RFC 9112 §9.6).
    async fn linger(&mut self) {
        let start = Instant::now();
        let end = start.checked_add(LINGER_TIME);
        self.deadline.set_within(start, LINGER_IDLE, end);
        let mut buffer = self.core.take_buffer();
        let mut shut = false;
        poll_fn(|cx: &mut Context<'_>| {
            if !shut {
                match self.stream.poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => shut = true,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => {}
                }
            }
            loop {
                buffer.clear();
                match self.stream.poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(_)) => self.deadline.set_within(Instant::now(), LINGER_IDLE, end),
                    Poll::Pending => return self.deadline.poll_passed(cx),
                }
            }
        })
        .await;
        self.core.give_buffer(buffer);
    }
}

/// The refusal of a head, with the rule that the head broke.
fn refused_for(cause: &'static Cause, e: Option<weir_h1::Error>) -> Refusal {
    let detail = e.map(|e| format!("{} It was refused for: {e}.", cause.meaning));
    Refusal { cause, detail, headers: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what a function of two arguments returns.
    fn size<A, B, T>(_: impl FnOnce(A, B) -> T) -> usize {
        size_of::<T>()
    }

    /// Most connections of most gateways are idle. As long as each held the state of an exchange, it was 5 KiB.
    #[test]
    fn an_idle_connection_is_small() {
        let bytes = size(serve_lane);
        assert!(bytes <= 800, "{bytes} bytes");
    }
}
