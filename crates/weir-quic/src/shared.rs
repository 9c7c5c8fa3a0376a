//! What the endpoint, a connection and its streams share.

use crate::allowance::Allowance;
use crate::amplification::{CHALLENGE, Unproved};
use crate::flood::{Frames, Meter};
use crate::keys::Seen;
use crate::path::{self, Moves};
use crate::session::Told;
use crate::settings::{Limits, Mark};
use bytes::Bytes;
use foldhash::HashMap;
use quinn_proto::{ConnectionError, ConnectionHandle, Dir, Event, StreamEvent, StreamId, Transmit, VarInt};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::mem::take;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// The connections of an endpoint that have something to do, and the task that does it.
#[derive(Default)]
pub(crate) struct Agenda {
    connections: RefCell<Vec<Rc<Shared>>>,
    endpoint: Cell<Option<Waker>>,
}

/// Closes the connection when its users are gone.
pub(crate) struct Owner(pub(crate) Rc<Shared>);

/// The part that the endpoint keeps until the last packets of a connection have passed (RFC 9000 §10.2).
pub(crate) struct Shared {
    pub(crate) handle: ConnectionHandle,
    pub(crate) proto: RefCell<quinn_proto::Connection>,
    agenda: Rc<Agenda>,
    /// Whether the connection is on the agenda.
    pub(crate) is_listed: Cell<bool>,
    /// The entry in the endpoint's timers: at or before what is due first.
    pub(crate) timer: Cell<Option<Instant>>,
    /// When the handshake must be done; `None` once it is. The endpoint counts those that are not.
    pub(crate) handshake_until: Cell<Option<Instant>>,
    /// The client has proved its address before the handshake began.
    pub(crate) is_proved: Cell<bool>,
    /// It was handed out, perhaps before the end of its handshake.
    pub(crate) is_accepted: Cell<bool>,
    /// That of the server that accepted it.
    pub(crate) mark: Cell<Mark>,
    /// Whom the endpoint counts its handshake for.
    pub(crate) client: Cell<Option<IpAddr>>,
    /// The last address that the peer has proved to receive packets at.
    proved: Cell<SocketAddr>,
    /// The peer has proved the address of its handshake. The client side takes the server's address as proved.
    has_proved: Cell<bool>,
    /// Tells about the handshake of a client.
    seen: Option<Arc<Seen>>,
    unproved: RefCell<Unproved>,
    /// What exceeds the limit of an address that the client has not proved, and waits for more from there.
    pub(crate) held: RefCell<Option<(Transmit, Vec<u8>)>>,
    moves: Cell<Moves>,
    meter: Cell<Meter>,
    /// The peer has sent too many frames that carry nothing. Its datagrams are dropped.
    pub(crate) is_flood: Cell<bool>,
    /// The application error code for it.
    pub(crate) flood_code: u64,
    /// How many streams the peer may have open, by direction.
    allowances: Cell<[Allowance; 2]>,
    /// How many streams of the peer were handed out so far, by direction.
    accepted: Cell<[u64; 2]>,
    lost: RefCell<Option<Lost>>,
    waiting: RefCell<Waiting>,
    /// Of a connection that one task drives.
    driven: RefCell<Option<Driven>>,
}

/// What one task that drives a connection has not heard yet, and the task.
#[derive(Default)]
struct Driven {
    news: VecDeque<News>,
    driver: Option<Waker>,
}

/// What happened to the streams of a connection that one task drives. Streams are named by their numbers (RFC 9000
/// §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The peer has opened streams, or allows us more of them.
    Opened,
    /// There is something to read on a stream that had nothing.
    Readable(u64),
    /// A stream that was full has room.
    Writable(u64),
    /// The peer has received all of a stream that we have finished.
    Received(u64),
    /// The peer reads no more of a stream, with this error code.
    Stopped(u64, u64),
}

/// Tasks that wait for events of a connection.
#[derive(Default)]
struct Waiting {
    readers: HashMap<StreamId, Waker>,
    writers: HashMap<StreamId, Waker>,
    /// By direction: those that wait for a stream of the peer.
    accepting: [Option<Waker>; 2],
    /// By direction: those that wait until the peer allows another stream.
    opening: [Vec<Waker>; 2],
    ending: Vec<Waker>,
    connecting: Vec<Waker>,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The peer closed it, with an application error code.
    Closed(u64),
    /// We closed it.
    Local,
    /// The peer sent too many frames that carry nothing, and we closed it.
    Flood,
    /// The peer was silent for the idle timeout, or did not finish the handshake in time.
    Idle,
    /// The peer has forgotten the connection (a stateless reset, RFC 9000 §10.3).
    Forgotten,
    /// The peer or its packets broke the protocol, or TLS failed: the reason in words.
    Broken(String),
}

// === impl Agenda ===

impl Agenda {
    /// Puts a connection on the list, once, and wakes the endpoint's task.
    pub(crate) fn add(&self, shared: &Rc<Shared>) {
        if !shared.is_listed.replace(true) {
            self.connections.borrow_mut().push(Rc::clone(shared));
            self.wake();
        }
    }

    /// Takes the connections off the list. The caller clears `is_listed` of each at its turn.
    pub(crate) fn take(&self) -> Vec<Rc<Shared>> {
        take(&mut *self.connections.borrow_mut())
    }

    /// Puts connections back whose turn did not come.
    pub(crate) fn put_back(&self, rest: impl Iterator<Item = Rc<Shared>>) {
        self.connections.borrow_mut().extend(rest);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }

    /// Says which task to wake.
    pub(crate) fn set_endpoint(&self, waker: &Waker) {
        self.endpoint.set(Some(waker.clone()));
    }

    /// Wakes the endpoint's task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.endpoint.take() {
            waker.wake();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.0.lost.borrow().is_none() {
            self.0.close(0);
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(
        handle: ConnectionHandle,
        proto: quinn_proto::Connection,
        agenda: Rc<Agenda>,
        limits: &Limits,
    ) -> Rc<Self> {
        let handshake_until = Instant::now() + limits.handshake;
        let is_client = proto.side().is_client();
        let empty_frames = if is_client { u32::MAX } else { limits.empty_frames }; // we trust servers that we dial
        let told = proto.crypto_session().handshake_data().and_then(|data| data.downcast::<Told>().ok());
        Rc::new(Self {
            has_proved: Cell::new(is_client),
            seen: told.map(|told| told.seen),
            unproved: RefCell::default(),
            held: RefCell::default(),
            meter: Cell::new(Meter::new(empty_frames)),
            is_flood: Cell::default(),
            flood_code: limits.flood_code,
            handle,
            proved: Cell::new(proto.remote_address()), // it cannot change before the handshake is done
            moves: Cell::default(),
            allowances: Cell::new(match is_client {
                true => Allowance::of_server(limits.most_streams()),
                false => Allowance::of_client(limits.most_streams()),
            }),
            accepted: Cell::default(),
            proto: RefCell::new(proto),
            agenda,
            is_listed: Cell::new(false),
            timer: Cell::new(None),
            handshake_until: Cell::new(Some(handshake_until)),
            is_proved: Cell::default(),
            is_accepted: Cell::default(),
            mark: Cell::default(),
            client: Cell::default(),
            lost: RefCell::default(),
            waiting: RefCell::default(),
            driven: RefCell::default(),
        })
    }

    /// Tells the endpoint that the connection has something to send.
    pub(crate) fn touch(self: &Rc<Self>) {
        self.agenda.add(self);
    }

    pub(crate) fn close(self: &Rc<Self>, code: u64) {
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        self.proto.borrow_mut().close(Instant::now(), code, Bytes::new());
        self.end(Lost::Local);
        self.touch();
    }

    pub(crate) fn lost_packets(&self) -> u64 {
        self.proto.borrow().stats().path.lost_packets
    }

    /// Allows the peer more streams if it uses many of those that it may open.
    pub(crate) fn raise_allowances(&self) {
        if self.allowances.get().iter().any(|allowance| !allowance.is_final()) {
            self.allow(Allowance::raise);
        }
    }

    /// Makes room for the streams of a packet that was put off. Returns true if one was: it must come again.
    pub(crate) fn makes_room(&self) -> bool {
        let is_put_off = self.seen.as_ref().is_some_and(|seen| seen.take_put_off());
        if is_put_off {
            self.allow(|allowance, _, _| allowance.grow());
        }
        is_put_off
    }

    /// Changes the allowances, and gives quinn-proto entries for as many streams.
    fn allow(&self, change: impl Fn(&mut Allowance, u64, u64) -> Option<VarInt>) {
        let mut allowances = self.allowances.get();
        let mut proto = self.proto.borrow_mut();
        for ((dir, allowance), accepted) in DIRS.into_iter().zip(&mut allowances).zip(self.accepted.get()) {
            let open = proto.streams().remote_open_streams(dir);
            let ended = accepted.saturating_sub(open); // at least: not all that are open may have been handed out
            if let Some(room) = change(allowance, open, ended) {
                proto.set_max_concurrent_streams(dir, room);
            }
            if let Some(seen) = self.seen.as_ref().filter(|_| dir == Dir::Bi) {
                let below = ended + u64::from(allowance.room());
                seen.has_room(if allowance.is_whole() { u64::MAX } else { below });
            }
        }
        self.allowances.set(allowances);
    }

    /// Counts a stream of the peer that is handed out.
    pub(crate) fn hands_out(&self, id: StreamId) {
        let mut accepted = self.accepted.get();
        accepted[id.dir() as usize] = id.index() + 1;
        self.accepted.set(accepted);
    }

    /// The last address that the peer has proved to receive packets at.
    pub(crate) fn peer(&self) -> SocketAddr {
        let proto = self.proto.borrow();
        let now = proto.remote_address();
        if now != self.proved.get() && path::is_proved(&proto) {
            self.proved.set(now);
            self.unproved.borrow_mut().proved(now);
        }
        self.proved.get()
    }

    /// Whether to process a datagram from this address. The peer may go to other addresses only so often.
    pub(crate) fn admits(&self, from: SocketAddr, now: Instant) -> bool {
        if from == self.proto.borrow().remote_address() || from == self.proved.get() {
            return true;
        }
        let mut moves = self.moves.get();
        let is_admitted = moves.accept(now);
        self.moves.set(moves);
        is_admitted
    }

    /// What the handshake of a client has shown.
    pub(crate) fn seen(&self) -> Option<&Seen> {
        self.seen.as_deref()
    }

    /// Says that the client has proved its address before its handshake.
    pub(crate) fn set_proved(&self) {
        self.is_proved.set(true);
        self.has_proved.set(true);
    }

    /// Whether the peer is known to receive packets at this address, or at another port of the same machine.
    pub(crate) fn is_sure_of(&self, to: SocketAddr) -> bool {
        if !self.has_proved.get() {
            if !self.seen.as_ref().is_some_and(|seen| seen.has_proved()) {
                return false;
            }
            self.has_proved.set(true);
            self.unproved.borrow_mut().clear();
        }
        to.ip() == self.proved.get().ip() || to.ip() == self.peer().ip()
    }

    /// Counts what came from an address that is not proved.
    pub(crate) fn received(&self, from: SocketAddr, bytes: usize) {
        if !self.is_sure_of(from) {
            self.unproved.borrow_mut().received(from, bytes as u64);
        }
    }

    /// Cuts a batch to what may be sent to its destination. During the handshake, the rest waits for more from there;
    /// later it counts as lost on its way.
    pub(crate) fn bound(&self, transmit: &mut Transmit, bytes: &mut Vec<u8>, now: Instant) {
        let to = transmit.destination;
        if self.is_sure_of(to) {
            return;
        }
        let mut unproved = self.unproved.borrow_mut();
        let room = usize::try_from(unproved.room(to)).unwrap_or(usize::MAX);
        if transmit.size > room {
            let datagram = transmit.segment_size.unwrap_or(transmit.size).max(1);
            let mut fits = room / datagram * datagram;
            if !self.has_proved.get() {
                let rest = bytes.get(fits..transmit.size).unwrap_or_default().to_vec();
                let waits = Transmit { size: rest.len(), ..batch(transmit) };
                *self.held.borrow_mut() = Some((waits, rest));
            } else if datagram <= CHALLENGE && unproved.may_exceed(to, now) {
                fits = transmit.size.min(fits + datagram);
            }
            transmit.size = fits;
            bytes.truncate(fits);
        }
        unproved.sent(to, transmit.size as u64);
    }

    /// Counts a datagram. Returns true if the peer has sent too many frames that carry nothing.
    pub(crate) fn is_flooded(&self, now: Instant) -> bool {
        let mut meter = self.meter.get();
        let is_exceeded = meter.is_due() && {
            let frames = Frames::from(&self.proto.borrow().stats());
            meter.is_exceeded(frames, now)
        };
        self.meter.set(meter);
        is_exceeded
    }

    /// How the connection ended, if it has.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lost.borrow().clone()
    }

    pub(crate) fn wait_to_connect(&self, cx: &Context<'_>) {
        join(&mut self.waiting.borrow_mut().connecting, cx);
    }

    pub(crate) fn wait_to_accept(&self, dir: Dir, cx: &Context<'_>) {
        if self.driven.borrow().is_none() {
            self.waiting.borrow_mut().accepting[dir as usize] = Some(cx.waker().clone());
        }
    }

    pub(crate) fn wait_to_open(&self, dir: Dir, cx: &Context<'_>) {
        join(&mut self.waiting.borrow_mut().opening[dir as usize], cx);
    }

    pub(crate) fn wait_to_end(&self, cx: &Context<'_>) {
        join(&mut self.waiting.borrow_mut().ending, cx);
    }

    pub(crate) fn wait_to_read(&self, id: StreamId, cx: &Context<'_>) {
        if self.driven.borrow().is_none() {
            self.waiting.borrow_mut().readers.insert(id, cx.waker().clone());
        }
    }

    pub(crate) fn wait_to_write(&self, id: StreamId, cx: &Context<'_>) {
        if self.driven.borrow().is_none() {
            self.waiting.borrow_mut().writers.insert(id, cx.waker().clone());
        }
    }

    /// From now on, one task hears of everything that happens to streams.
    pub(crate) fn drive(&self) {
        self.driven.borrow_mut().get_or_insert_default();
    }

    /// The next thing that happened to a stream, or how the connection ended.
    pub(crate) fn poll_news(&self, cx: &Context<'_>) -> Poll<Result<News, Lost>> {
        let mut driven = self.driven.borrow_mut();
        let driven = driven.get_or_insert_default();
        if let Some(news) = driven.news.pop_front() {
            return Poll::Ready(Ok(news));
        }
        if let Some(lost) = &*self.lost.borrow() {
            return Poll::Ready(Err(lost.clone()));
        }
        if !driven.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            driven.driver = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Frees the memory that events of streams needed.
    pub(crate) fn rest(&self) {
        if let Some(driven) = &mut *self.driven.borrow_mut() {
            driven.news.shrink_to_fit();
        }
    }

    /// Notes an event for the task that drives the connection, if one does.
    fn tell_driver(&self, event: &StreamEvent) -> bool {
        let mut driven = self.driven.borrow_mut();
        let Some(driven) = &mut *driven else { return false };
        let number = |id: &StreamId| VarInt::from(*id).into_inner();
        driven.news.push_back(match event {
            StreamEvent::Opened { .. } | StreamEvent::Available { .. } => News::Opened,
            StreamEvent::Readable { id } => News::Readable(number(id)),
            StreamEvent::Writable { id } => News::Writable(number(id)),
            StreamEvent::Finished { id } => News::Received(number(id)),
            StreamEvent::Stopped { id, error_code } => News::Stopped(number(id), error_code.into_inner()),
        });
        true
    }

    fn wake_driver(&self) {
        let driven = self.driven.borrow();
        if let Some(driver) = driven.as_ref().and_then(|driven| driven.driver.as_ref()) {
            driver.wake_by_ref();
        }
    }

    /// Forgets who waits for one direction of a stream.
    pub(crate) fn forget(&self, id: StreamId, is_reader: bool) {
        let mut waiting = self.waiting.borrow_mut();
        let wakers = if is_reader { &mut waiting.readers } else { &mut waiting.writers };
        let waker = wakers.remove(&id);
        drop(waiting); // before the waker: dropping it may drop a task that owns streams
        drop(waker);
    }

    /// Passes the events of the protocol to those who wait for them. Returns true once the handshake is done.
    pub(crate) fn tell(&self) -> bool {
        let (mut to_wake, mut is_connected, mut is_news) = (Vec::new(), false, false);
        loop {
            let event = self.proto.borrow_mut().poll();
            let Some(event) = event else { break };
            if let Event::Stream(event) = &event
                && self.tell_driver(event)
            {
                is_news = true;
                continue;
            }
            let mut waiting = self.waiting.borrow_mut();
            match event {
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {}
                Event::Connected => {
                    is_connected = true;
                    to_wake.append(&mut waiting.connecting);
                }
                Event::ConnectionLost { reason } => {
                    drop(waiting);
                    self.end(Lost::from(reason));
                }
                Event::Stream(event) => match event {
                    StreamEvent::Opened { dir } => to_wake.extend(waiting.accepting[dir as usize].take()),
                    StreamEvent::Available { dir } => to_wake.append(&mut waiting.opening[dir as usize]),
                    StreamEvent::Readable { id } => to_wake.extend(waiting.readers.remove(&id)),
                    StreamEvent::Writable { id }
                    | StreamEvent::Finished { id }
                    | StreamEvent::Stopped { id, .. } => to_wake.extend(waiting.writers.remove(&id)),
                },
            }
        }
        to_wake.into_iter().for_each(Waker::wake);
        if is_news {
            self.wake_driver();
        }
        is_connected
    }

    /// Ends everything that waits, with this reason unless there is an earlier one.
    pub(crate) fn end(&self, why: Lost) {
        self.lost.borrow_mut().get_or_insert(why);
        let waiting = take(&mut *self.waiting.borrow_mut());
        let [a, b] = waiting.opening;
        let all = waiting.readers.into_values().chain(waiting.writers.into_values());
        let all = all.chain(waiting.accepting.into_iter().flatten()).chain(a).chain(b);
        all.chain(waiting.ending).chain(waiting.connecting).for_each(Waker::wake);
        self.wake_driver();
    }
}

/// In the order of quinn-proto's numbers for them.
const DIRS: [Dir; 2] = [Dir::Bi, Dir::Uni];

/// A copy, which quinn-proto does not make.
const fn batch(of: &Transmit) -> Transmit {
    Transmit {
        destination: of.destination,
        ecn: of.ecn,
        size: of.size,
        segment_size: of.segment_size,
        src_ip: of.src_ip,
    }
}

/// Adds a task to those that wait, unless it is there: a task is polled for other reasons too.
fn join(tasks: &mut Vec<Waker>, cx: &Context<'_>) {
    if !tasks.iter().any(|known| known.will_wake(cx.waker())) {
        tasks.push(cx.waker().clone());
    }
}

impl From<ConnectionError> for Lost {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => Self::Closed(close.error_code.into_inner()),
            ConnectionError::LocallyClosed => Self::Local,
            ConnectionError::TimedOut => Self::Idle,
            ConnectionError::Reset => Self::Forgotten,
            other => Self::Broken(other.to_string()),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(code) => write!(f, "the peer closed the connection with code {code:#x}"),
            Self::Local => f.write_str("the connection was closed here"),
            Self::Flood => f.write_str("the peer sent too many frames that carry nothing"),
            Self::Idle => f.write_str("the peer was silent for too long"),
            Self::Forgotten => f.write_str("the peer has forgotten the connection"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Lost {}
