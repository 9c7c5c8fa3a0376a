//! A client connection that speaks HTTP/2: each request is an exchange in its own task.

use super::head::cause_of;
use super::refused_for;
use crate::client::{Client, SEND_TIMEOUT};
use crate::core::LocalListener;
use crate::exchange::{self, Next};
use crate::forward::Forwarding;
use crate::lane::Lane;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_h1::{Progress, RequestHead, parse_request};
use weir_telemetry::{Closed, Protocol};
use weir_upstream::error::{self, Cause};
use weir_wire::h2::{Arrival, Fault, Flood, H2Stream, LOOK, Server};
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

/// What the exchanges of a connection share.
struct Shared {
    core: Rc<crate::core::Core>,
    handle: Rc<crate::core::ConnectionHandle>,
    certificate: Option<Rc<PeerCertificate>>,
    forwarding: Rc<Forwarding>,
    peer: Peer,
    tls: bool,
    /// Exchanges under way.
    open: Cell<usize>,
    /// Lanes that wait for a request.
    idle: RefCell<Vec<Rc<Lane<Job>>>>,
    /// The connection has ended: lanes end after their exchange.
    ended: Cell<bool>,
}

/// The work given to a lane.
struct Job {
    head: Box<RequestHead>,
    /// Why the head is refused, if it is.
    refused: Option<(&'static Cause, Option<weir_h1::Error>)>,
    stream: H2Stream,
    started: Instant,
    listener: Rc<LocalListener>,
    trusted: bool,
    generation: u64,
}

/// Most lanes that wait; surplus lanes of a burst end.
const IDLE_LANES: usize = 32;

/// Why the connection's task woke up.
#[allow(clippy::large_enum_variant)] // destructured immediately, and the large variant is the common one
enum Event {
    Arrived(Arrival),
    /// The connection's drain time is over.
    Cut,
    Ended(Closed),
    Faulted(Fault),
    Late,
}

/// Serves a connection until it ends. `early` holds the bytes already read.
pub(super) async fn serve(client: Client, early: Vec<u8>) -> Closed {
    let _ = client.owner(); // its streams have no socket that knows the local address
    let Client {
        core,
        listener,
        stream,
        peer,
        tls,
        certificate,
        forwarding,
        trusted,
        handle,
        mut deadline,
        generation,
    } = client;
    let Stream::Direct(transport) = stream else { return Closed::Error }; // a stream carries none
    let cells = std::sync::Arc::clone(&listener.cells);
    let limits = core.local().snapshot.h2;
    deadline.set(Instant::now(), listener.spec.timeouts.head);
    let begin = Server::begin(transport, early, &limits);
    let begun = tokio::select! {
        begun = begin => begun,
        () = poll_fn(|cx| deadline.poll_passed(cx)) => {
            core.lost(&error::HEAD_TIMEOUT, &listener.spec.name, peer, "");
            return Closed::Timeout;
        }
    };
    let server = match begun {
        Ok(server) => server,
        Err(fault) => return count(&core, fault, &listener, peer),
    };
    let shared = Rc::new(Shared {
        core,
        handle,
        certificate,
        forwarding,
        peer,
        tls,
        open: Cell::new(0),
        idle: RefCell::default(),
        ended: Cell::new(false),
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
        draining: false,
        ending: false,
    };
    loop {
        match connection.next().await {
            Event::Arrived(arrival) => {
                cells.requests[Protocol::Http2 as usize].inc();
                if connection.served == 0 {
                    cells.first_requests.inc();
                }
                connection.served += 1;
                connection.start(arrival, limits.streams as usize);
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
                connection.shared.end();
                let why = count(&connection.shared.core, fault, &connection.listener, connection.shared.peer);
                if fault != Fault::Closed {
                    let discard = poll_fn(|cx| connection.server.poll_discard(cx));
                    let _ = time::timeout(GOODBYE, discard).await;
                }
                return why;
            }
        }
    }
}

struct Connection {
    shared: Rc<Shared>,
    server: Server,
    listener: Rc<LocalListener>,
    trusted: bool,
    generation: u64,
    /// When to check the connection next.
    deadline: Deadline,
    served: u64,
    /// Since when no request has been under way, as far as noticed.
    idle_since: Option<Instant>,
    draining: bool,
    /// GOAWAY was sent with an error: the connection ends as soon as possible.
    ending: bool,
}

impl Connection {
    /// Waits for a request, the end, or the time of the next check.
    async fn next(&mut self) -> Event {
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
                self.deadline.set_at(since.checked_add(timeouts.keepalive.max(AT_ONCE)), None)
            }
            _ => self.deadline.set(now, LOOK),
        }
    }

    /// Checks whether the client is alive, idle, or late. Returns why the connection ends, if it does.
    fn look(&mut self) -> Option<Closed> {
        let now = Instant::now();
        let core = &self.shared.core;
        if let Some(fault) = self.server.fault() {
            return Some(count(core, fault, &self.listener, self.shared.peer)); // it ignored the GOAWAY
        }
        let late = |since: Option<Instant>, limit: Duration| {
            !limit.is_zero() && since.is_some_and(|since| now.duration_since(since) >= limit)
        };
        let cause = if late(self.server.blocked(), SEND_TIMEOUT) {
            Some(&error::CLIENT_TOO_SLOW)
        } else if late(self.server.head_since(), self.listener.spec.timeouts.head) {
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
            }
            None
        } else {
            (!self.server.is_alive()).then_some(&error::H2_PING_TIMEOUT)
        };
        cause.map(|cause| {
            core.lost(cause, &self.listener.spec.name, self.shared.peer, "");
            Closed::Timeout
        })
    }

    /// Sends a last GOAWAY if the client can take it. Does not wait for a client that reads nothing.
    async fn say_goodbye(&mut self) {
        self.shared.end();
        if self.server.fault().is_none() {
            self.server.end(Fault::Closed);
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

    /// Starts an exchange.
    fn start(&mut self, arrival: Arrival, streams: usize) {
        let shared = &self.shared;
        if shared.handle.outdated.get() {
            return arrival.refuse();
        }
        if shared.open.get() >= streams.saturating_mul(TASKS_A_STREAM) {
            self.server.end(Fault::Flood(Flood::Resets));
            return;
        }
        shared.open.set(shared.open.get() + 1);
        let started = Instant::now();
        let mut head = shared.core.take_request();
        let stream = arrival.accept(head.buffer_mut());
        let local = shared.core.local();
        let parsed = parse_request(&mut head, &local.snapshot.head_limits);
        head.came_by_http2(stream.is_over());
        let refused = match parsed {
            Ok(Progress::Complete) => None,
            Ok(Progress::Partial) => Some((&error::BAD_HEAD, None)),
            Err(e) => Some((cause_of(e.kind()), Some(e))),
        };
        if refused.as_ref().is_some_and(|(cause, _)| cause.status == TOO_LARGE) {
            self.server.count_error();
        }
        let job = Job {
            head,
            refused,
            stream,
            started,
            listener: Rc::clone(&self.listener),
            trusted: self.trusted,
            generation: self.generation,
        };
        let idle = shared.idle.borrow_mut().pop();
        match idle {
            Some(lane) => lane.give(job),
            None => {
                let lane = Rc::new(Lane::new(job));
                drop(tokio::task::spawn_local(Rc::clone(shared).run(lane)));
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    /// Runs a lane.
    async fn run(self: Rc<Self>, lane: Rc<Lane<Job>>) {
        let mut deadline = Deadline::new();
        while let Some(job) = lane.next(|| self.ended.get()).await {
            let Job { head, refused, stream, started, listener, trusted, generation } = job;
            let mut client = Client {
                core: Rc::clone(&self.core),
                listener,
                peer: self.peer,
                tls: self.tls,
                certificate: self.certificate.clone(),
                forwarding: Rc::clone(&self.forwarding),
                trusted,
                handle: Rc::clone(&self.handle),
                deadline,
                generation,
                stream: Stream::H2(Box::new(stream)),
            };
            let holds = client.adopt_listener();
            match refused {
                _ if !holds => {
                    if let Stream::H2(stream) = &mut client.stream {
                        stream.refuse();
                    }
                    self.core.give_request(head);
                }
                None => {
                    let (next, head, _) = exchange::run(&mut client, head, started, Duration::ZERO).await;
                    if matches!(next, Next::Abort(_)) {
                        client.stream.abort();
                    }
                    self.core.give_request(head);
                }
                Some((cause, e)) => {
                    exchange::refuse_head(&mut client, head, started, refused_for(cause, e)).await;
                }
            }
            deadline = client.deadline;
            self.open.set(self.open.get() - 1);
            if self.ended.get() || self.idle.borrow().len() >= IDLE_LANES {
                return;
            }
            self.idle.borrow_mut().push(Rc::clone(&lane));
        }
    }

    /// Ends every lane after its exchange.
    fn end(&self) {
        self.ended.set(true);
        for lane in self.idle.borrow_mut().drain(..) {
            lane.wake();
        }
    }
}

/// Counts the cause of a fault. Returns how to count the connection's end.
fn count(core: &crate::core::Core, fault: Fault, listener: &LocalListener, peer: Peer) -> Closed {
    let cause = match fault {
        Fault::Closed => return Closed::Client,
        Fault::Protocol => &error::H2_PROTOCOL,
        Fault::Flood(flood) => cause(flood),
    };
    core.lost(cause, &listener.spec.name, peer, "");
    Closed::Refused
}

const fn cause(flood: Flood) -> &'static Cause {
    match flood {
        Flood::Continuation => &error::H2_CONTINUATION_FLOOD,
        Flood::Data => &error::H2_DATA_FLOOD,
        Flood::Errors => &error::H2_ERROR_FLOOD,
        Flood::Ping => &error::H2_PING_FLOOD,
        Flood::Priority => &error::H2_PRIORITY_FLOOD,
        Flood::Resets => &error::H2_RESET_FLOOD,
        Flood::Settings => &error::H2_SETTINGS_FLOOD,
        Flood::WindowUpdate => &error::H2_WINDOW_FLOOD,
    }
}
