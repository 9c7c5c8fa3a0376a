//! A client connection that carries several requests at a time, by HTTP/2 or HTTP/3: each request is an exchange in its
//! own task. `h2` and `h3` say what the protocols do differently.

use super::head::cause_of;
use super::refused_for;
use crate::client::{Client, SEND_TIMEOUT};
use crate::core::{Core, LocalListener};
use crate::exchange::{self, Next};
use crate::forward::Forwarding;
use crate::lane::Lane;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weir_h1::{ParsedHeads, Progress, RequestHead};
use weir_telemetry::{Closed, Protocol};
use weir_upstream::error::{self, Cause};
use weir_wire::h2::LOOK;
use weir_wire::tls::PeerCertificate;
use weir_wire::{Deadline, Peer, Stream, time};

/// How many tasks may exist per allowed stream. A canceled request frees its stream immediately, but its task ends
/// only at its next poll.
const TASKS_A_STREAM: usize = 4;

/// Stands for `keepalive: 0s`, because a zero deadline would mean none.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How long to read from a client after a fatal GOAWAY, so that the GOAWAY arrives.
const GOODBYE: Duration = Duration::from_millis(250);

/// The status for a head that is too large or has too many fields (RFC 6585 §5). It counts as a client error.
const TOO_LARGE: u16 = 431;

/// The server side of a multiplexed protocol. Nothing on the connection moves unless [`Server::poll_accept`] is polled.
pub(super) trait Server {
    /// How its requests are counted.
    const PROTOCOL: Protocol;

    /// A request that has arrived.
    type Arrival: Arrival;

    /// The next request, or `None` when the connection has ended properly.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Self::Arrival>, Fault>>;

    /// Why the connection ended, once it has.
    fn fault(&self) -> Option<Fault>;

    /// Ends the connection now, because of too many abandoned requests if `is_flood`.
    fn end(&mut self, is_flood: bool);

    /// Counts a refused head that should not have been sent against the client's limit of errors.
    fn count_error(&mut self);

    /// Accepts no further requests and ends after the last one.
    fn drain(&mut self);

    /// Checks whether the client is alive, every [`LOOK`] while requests are in progress. The cause if it is not.
    fn silence(&mut self) -> Option<&'static Cause>;

    /// Since when the client has accepted no data.
    fn blocked(&self) -> Option<Instant>;

    /// Since when the client has left a head incomplete.
    fn head_since(&self) -> Option<Instant>;

    /// Abandons the requests whose heads have been incomplete since before this time. False if one incomplete head blocks
    /// the whole connection.
    fn abandon_heads(&mut self, since: Instant) -> bool;

    /// Reads and discards what still arrives after the end, so that the client gets to know the reason.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// No request has been under way for [`REST`]: frees what only requests need.
    fn rest(&mut self) {}

    /// The client's address, if it may change.
    fn peer(&self) -> Option<Peer>;
}

/// A request that has arrived on a multiplexed connection.
pub(super) trait Arrival {
    /// The id of the head's text, if the connection has brought the same head before and knows it; else 0.
    fn repeats(&self) -> u32 {
        0
    }

    /// Writes the head as text and returns the stream.
    fn accept(self, text: &mut Vec<u8>) -> Stream;

    /// Marks the head as one of this protocol, whose streams frame the body. `is_over`: there is no body.
    fn mark(head: &mut RequestHead, is_over: bool);

    /// Refuses the request: the client may send it again on another connection.
    fn refuse(self);
}

/// Why a connection ended. `None`: the client closed it, or its socket failed.
pub(super) type Fault = Option<&'static Cause>;

/// What the exchanges of a connection share.
struct Shared {
    core: Rc<Core>,
    handle: Rc<crate::core::ConnectionHandle>,
    certificate: Option<Rc<PeerCertificate>>,
    forwarding: RefCell<Rc<Forwarding>>,
    peer: Cell<Peer>,
    tls: bool,
    /// Exchanges under way.
    open: Cell<usize>,
}

/// The work given to a lane.
struct Job {
    shared: Rc<Shared>,
    peer: Peer,
    forwarding: Rc<Forwarding>,
    head: Box<RequestHead>,
    /// Why the head is refused, if it is.
    refused: Option<(&'static Cause, Option<weir_h1::Error>)>,
    stream: Stream,
    started: Instant,
    listener: Rc<LocalListener>,
    trusted: bool,
    generation: u64,
}

/// How long a connection without requests keeps what only requests need: buffers and tables. The first requests after a
/// longer pause make them anew, which costs about a microsecond.
const REST: Duration = Duration::from_secs(1);

/// Why the connection's task woke up.
#[allow(clippy::large_enum_variant)] // destructured immediately, and the large variant is the common one
enum Event<A> {
    Arrived(A),
    /// The connection's drain time is over.
    Cut,
    Ended(Closed),
    Faulted(Fault),
    Late,
}

/// What is known of a client before its first request.
pub(super) struct Parts {
    pub(super) core: Rc<Core>,
    pub(super) listener: Rc<LocalListener>,
    pub(super) peer: Peer,
    pub(super) tls: bool,
    pub(super) certificate: Option<Rc<PeerCertificate>>,
    pub(super) forwarding: Rc<Forwarding>,
    pub(super) trusted: bool,
    pub(super) handle: Rc<crate::core::ConnectionHandle>,
    pub(super) deadline: Deadline,
    pub(super) generation: u64,
}

/// Serves a connection until it ends. Returns why it ended.
pub(super) async fn serve<S: Server>(parts: Parts, server: S, streams: usize) -> Closed {
    let Parts { core, listener, peer, tls, certificate, forwarding, trusted, handle, deadline, generation } =
        parts;
    let shared = Rc::new(Shared {
        core,
        handle,
        certificate,
        forwarding: RefCell::new(forwarding),
        peer: Cell::new(peer),
        tls,
        open: Cell::new(0),
    });
    let mut connection = Connection {
        shared,
        server,
        listener,
        trusted,
        generation,
        deadline,
        served: 0,
        idle_since: None,
        parsed: ParsedHeads::default(),
        rests: true,
        draining: false,
        ending: false,
    };
    loop {
        match connection.next().await {
            Event::Arrived(arrival) => {
                let cells = &connection.listener.cells;
                cells.requests[S::PROTOCOL as usize].inc();
                if connection.served == 0 {
                    cells.first_requests.inc();
                }
                connection.served += 1;
                connection.start(arrival, streams);
            }
            Event::Late => {
                if let Some(why) = connection.look() {
                    connection.say_goodbye().await;
                    return why;
                }
            }
            Event::Cut => {
                connection.say_goodbye().await;
                return Closed::Drain;
            }
            Event::Ended(why) => return why,
            Event::Faulted(fault) => {
                let why =
                    count(&connection.shared.core, fault, &connection.listener, connection.shared.peer.get());
                if fault.is_some() {
                    let discard = poll_fn(|cx| connection.server.poll_discard(cx));
                    let _ = time::timeout(GOODBYE, discard).await;
                }
                return why;
            }
        }
    }
}

struct Connection<S: Server> {
    shared: Rc<Shared>,
    server: S,
    /// The listener, and whether the client's forwarding headers are trusted, in the snapshot of this generation. As on
    /// HTTP/1.1, each request adopts the current listener. Its timeouts apply until the next request.
    listener: Rc<LocalListener>,
    trusted: bool,
    generation: u64,
    /// When to check the connection next.
    deadline: Deadline,
    served: u64,
    /// Since when no request has been under way, as far as noticed.
    idle_since: Option<Instant>,
    /// Heads that came before.
    parsed: ParsedHeads<RequestHead>,
    /// It keeps nothing that only requests need.
    rests: bool,
    draining: bool,
    /// GOAWAY was sent with an error: the connection ends as soon as possible.
    ending: bool,
}

impl<S: Server> Connection<S> {
    /// Waits for a request, the end, or the time of the next check.
    async fn next(&mut self) -> Event<S::Arrival> {
        let mut armed = None;
        poll_fn(|cx| {
            if self.shared.handle.cut.get() {
                return Poll::Ready(Event::Cut);
            }
            loop {
                match self.server.poll_accept(cx) {
                    Poll::Ready(Ok(Some(arrival))) => return Poll::Ready(Event::Arrived(arrival)),
                    Poll::Ready(Ok(None)) => {
                        let closing = self.shared.handle.closing.get();
                        return Poll::Ready(Event::Ended(match (closing, self.draining) {
                            (true, _) => Closed::Drain,
                            (false, true) => Closed::Idle,
                            (false, false) => Closed::Client,
                        }));
                    }
                    Poll::Ready(Err(fault)) => return Poll::Ready(Event::Faulted(fault)),
                    Poll::Pending => {}
                }
                if self.shared.handle.closing.get() && !self.draining {
                    self.draining = true;
                    self.server.drain();
                    continue;
                }
                // Reset this when the last exchange ends too, not only when a request arrives.
                let idle = self.shared.open.get() == 0;
                if self.server.fault().is_some() {
                    // The connection ends as soon as the client takes the GOAWAY.
                    if !self.ending {
                        self.ending = true;
                        self.deadline.set(Instant::now(), GOODBYE);
                    }
                    return self.deadline.poll_passed(cx).map(|()| Event::Late);
                }
                if armed != Some(idle) {
                    armed = Some(idle);
                    self.arm(idle);
                }
                if let Some(since) = self.server.head_since() {
                    let limit = self.listener.spec.timeouts.head;
                    let end = if limit.is_zero() { None } else { since.checked_add(limit) };
                    self.deadline.set_at(end, self.deadline.at());
                }
                return self.deadline.poll_passed(cx).map(|()| Event::Late);
            }
        })
        .await
    }

    /// Sets the time of the next check.
    fn arm(&mut self, idle: bool) {
        let timeouts = &self.listener.spec.timeouts;
        let now = Instant::now();
        self.idle_since = idle.then(|| self.idle_since.unwrap_or(now));
        match self.idle_since {
            Some(_) if self.served == 0 && !self.draining => self.deadline.set(now, timeouts.head),
            Some(since) if !self.draining => {
                let rest = if self.rests { None } else { since.checked_add(REST) };
                self.deadline.set_at(since.checked_add(timeouts.keepalive.max(AT_ONCE)), rest)
            }
            _ => self.deadline.set(now, LOOK),
        }
    }

    /// Checks whether the client is alive, idle, or late. Returns why the connection ends, if it does.
    fn look(&mut self) -> Option<Closed> {
        let now = Instant::now();
        let core = &self.shared.core;
        if let Some(fault) = self.server.fault() {
            return Some(count(core, fault, &self.listener, self.shared.peer.get())); // it ignored the GOAWAY
        }
        let late = |since: Option<Instant>, limit: Duration| {
            !limit.is_zero() && since.is_some_and(|since| now.duration_since(since) >= limit)
        };
        let cause = if late(self.server.blocked(), SEND_TIMEOUT) {
            Some(&error::CLIENT_TOO_SLOW)
        } else if late(self.server.head_since(), self.listener.spec.timeouts.head) {
            let since = now.checked_sub(self.listener.spec.timeouts.head);
            if self.shared.open.get() > 0 && since.is_some_and(|since| self.server.abandon_heads(since)) {
                core.lost(&error::HEAD_TIMEOUT, &self.listener.spec.name, self.shared.peer.get(), "");
                return None;
            }
            Some(&error::HEAD_TIMEOUT)
        } else if self.shared.open.get() == 0 {
            let idle = now.duration_since(*self.idle_since.get_or_insert(now));
            if self.draining {
                // The client got its GOAWAY and had its time.
                let closing = self.shared.handle.closing.get();
                return Some(if closing { Closed::Drain } else { Closed::Idle });
            } else if self.served == 0 || idle >= self.listener.spec.timeouts.keepalive {
                self.draining = true;
                self.server.drain();
            } else if !self.rests && idle >= REST {
                self.rests = true;
                self.server.rest();
                self.parsed.clear();
            }
            None
        } else {
            self.server.silence()
        };
        cause.map(|cause| {
            core.lost(cause, &self.listener.spec.name, self.shared.peer.get(), "");
            Closed::Timeout
        })
    }

    /// Sends a last GOAWAY if the client can take it. Does not wait for a client that reads nothing.
    async fn say_goodbye(&mut self) {
        if self.server.fault().is_none() {
            self.server.end(false);
        }
        let ended = poll_fn(|cx| {
            loop {
                match self.server.poll_accept(cx) {
                    Poll::Ready(Ok(Some(late))) => drop(late),
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        let _ = time::timeout(GOODBYE, ended).await; // the client may not take even that
    }

    /// Takes over the client's address if it has changed, for this exchange and later ones. Two listeners of the
    /// current snapshot must admit it: the one that serves the connection, and the one whose `sni` led there.
    fn follow(&mut self) {
        let shared = &self.shared;
        let Some(peer) = self.server.peer().filter(|peer| *peer != shared.peer.get()) else { return };
        shared.peer.set(peer);
        let mut forwarding = shared.forwarding.borrow_mut();
        *forwarding = Rc::new(forwarding.moved_to(peer, shared.tls));
        self.trusted = false; // until the next exchange adopts the listener
        self.generation = 0;
        if let Some(sent) = shared.handle.sent.get() {
            sent.client.set(peer.ip());
        }
        let local = shared.core.local();
        let serving = local.serving(&shared.handle).unwrap_or(&self.listener);
        let outer = shared.handle.listener.as_ref().and_then(|address| local.listener(address));
        if ![Some(serving), outer].into_iter().flatten().all(|listener| listener.spec.admits(peer.ip())) {
            shared.handle.outdated.set(true);
            shared.core.lost(&error::ADDRESS_REFUSED, &self.listener.spec.name, peer, "");
            self.server.drain();
        }
    }

    /// Starts an exchange.
    fn start(&mut self, arrival: S::Arrival, streams: usize) {
        self.follow();
        let shared = &self.shared;
        if shared.handle.outdated.get() {
            return arrival.refuse();
        }
        if shared.open.get() >= streams.saturating_mul(TASKS_A_STREAM) {
            self.server.end(true);
            return;
        }
        shared.open.set(shared.open.get() + 1);
        self.rests = false;
        let started = Instant::now();
        let mut head = shared.core.take_request();
        let repeats = arrival.repeats();
        let stream = arrival.accept(head.buffer_mut());
        let local = shared.core.local();
        // Here once per snapshot, not in each exchange. If the listener is gone, the exchange decides what follows.
        if self.generation != local.generation
            && let Some(serving) = local.serving(&shared.handle)
        {
            self.listener = Rc::clone(serving);
            self.trusted = shared.forwarding.borrow().believes(&local.snapshot, shared.peer.get().ip());
            self.generation = local.generation;
        }
        let parsed = self.parsed.parse(repeats, &mut head, &local.snapshot.head_limits);
        S::Arrival::mark(&mut head, stream.is_over() == Some(true));
        let refused = match parsed {
            Ok(Progress::Complete) => None,
            Ok(Progress::Partial) => Some((&error::BAD_HEAD, None)),
            Err(e) => Some((cause_of(e.kind()), Some(e))),
        };
        if refused.as_ref().is_some_and(|(cause, _)| cause.status == TOO_LARGE) {
            self.server.count_error();
        }
        let job = Job {
            shared: Rc::clone(shared),
            peer: shared.peer.get(),
            forwarding: Rc::clone(&shared.forwarding.borrow()),
            head,
            refused,
            stream,
            started,
            listener: Rc::clone(&self.listener),
            trusted: self.trusted,
            generation: self.generation,
        };
        let idle: Option<Rc<dyn Any>> = shared.core.take_request_lane().map(|lane| lane as Rc<dyn Any>);
        match idle.and_then(|lane| lane.downcast::<Lane<Job>>().ok()) {
            Some(lane) => lane.give(job),
            None => {
                let lane = Rc::new(Lane::new(job));
                weir_wire::spawn(Box::pin(serve_lane(Rc::clone(&shared.core), lane)));
            }
        }
    }
}

/// Runs one exchange after another, of any connection of the core. The state of an exchange takes some kilobytes. Lanes of
/// each connection's own would be out of the cache: last used when that connection's previous requests came. The core
/// has few exchanges open at a time, so the lane that it takes was used a moment ago.
///
/// Between two exchanges, a lane keeps only its timer.
async fn serve_lane(core: Rc<Core>, lane: Rc<Lane<Job>>) {
    let mut deadline = Deadline::new();
    while let Some(job) = lane.next().await {
        let Job { shared, peer, forwarding, head, refused, stream, started, listener, trusted, generation } =
            job;
        let mut client = Client {
            core: Rc::clone(&core),
            listener,
            stream,
            peer,
            tls: shared.tls,
            certificate: shared.certificate.clone(),
            forwarding,
            trusted,
            handle: Rc::clone(&shared.handle),
            deadline: std::mem::take(&mut deadline),
            generation,
        };
        let holds = client.adopt_listener();
        match refused {
            _ if !holds => {
                client.stream.refuse();
                core.give_request(head);
            }
            None => {
                let (next, head, _) = exchange::run(&mut client, head, started, Duration::ZERO).await;
                if matches!(next, Next::Abort(_)) {
                    client.stream.abort();
                }
                core.give_request(head);
            }
            Some((cause, e)) => {
                exchange::refuse_head(&mut client, head, started, refused_for(cause, e)).await;
            }
        }
        deadline = std::mem::take(&mut client.deadline);
        deadline.clear();
        drop(client); // and with it the stream, before its place is free
        shared.open.set(shared.open.get() - 1);
        drop(shared);
        let idle = Rc::clone(&lane);
        if !core.keep_request_lane(idle) {
            return;
        }
    }
}

/// Counts the cause of a fault. Returns how to count the connection's end.
pub(super) fn count(core: &Core, fault: Fault, listener: &LocalListener, peer: Peer) -> Closed {
    let Some(cause) = fault else { return Closed::Client };
    core.lost(cause, &listener.spec.name, peer, "");
    Closed::Refused
}
