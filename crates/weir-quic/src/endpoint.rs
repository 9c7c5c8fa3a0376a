//! The endpoint of a core: one UDP socket, its connections, and the task that moves datagrams between them.
//!
//! One task per endpoint receives, sends and keeps the timers of all connections. A task that writes to a stream only
//! marks the connection. The endpoint's task runs after it and sends what all streams of a connection have written as
//! one batch, which the kernel cuts into datagrams (UDP_SEGMENT). Most of the cost of QUIC is in that system call.

use crate::connection::Connection;
use crate::ids::{Addressee, Home, Ids};
use crate::inbox::Inbox;
use crate::interface::{Admission, Counts, Datagram, Elsewhere};
use crate::settings::{Client, Keys, Limits, RECEIVED, Retry, Server};
use crate::shared::{Agenda, Lost, Shared};
use bytes::BytesMut;
use foldhash::HashMap;
use quinn_proto::{ConnectError, ConnectionHandle, DatagramEvent, Incoming, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::mem::take;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weir_wire::time::{Sleep, sleep_until};
use weir_wire::{Datagrams, Sockets, client_network};

/// Most bytes of a batch that is sent: the longest UDP message of IPv4. The kernel refuses a longer one as a whole.
const SENT: usize = 65_507;

/// System calls that receive before connections get to send and other tasks get to run.
const CALLS: usize = 4;

/// Time after which it processes no more datagrams before connections get to send and other tasks get to run.
const LONGEST: Duration = Duration::from_millis(1);

/// Datagrams that it processes between two looks at the clock. A datagram full of tiny frames takes some 30 µs.
const UNWATCHED: u32 = 8;

/// Batches that one connection sends before the others get their turn.
const SENDS: usize = 8;

/// Connections that are connected and wait for [`Endpoint::poll_accept`]. Further ones are refused.
const BACKLOG: usize = 1024;

/// An endpoint. Clones share it.
#[derive(Clone)]
pub struct Endpoint(Rc<Inner>);

pub(crate) struct Inner {
    socket: Datagrams,
    udp: UdpSocketState,
    proto: RefCell<quinn_proto::Endpoint>,
    ids: Ids,
    server: RefCell<Option<Server>>,
    elsewhere: RefCell<Option<Box<dyn Elsewhere>>>,
    connections: RefCell<HashMap<ConnectionHandle, Rc<Shared>>>,
    agenda: Rc<Agenda>,
    timers: RefCell<BTreeSet<(Instant, ConnectionHandle)>>,
    /// What the socket had no room for. Nothing else is sent before it.
    unsent: RefCell<Option<(Transmit, Vec<u8>)>>,
    /// The datagrams being sent; kept for its capacity.
    outgoing: RefCell<Vec<u8>>,
    accepted: RefCell<VecDeque<Connection>>,
    acceptor: Cell<Option<Waker>>,
    handshakes: Cell<usize>,
    /// Those of clients that have proved their address, by network.
    by_client: RefCell<HashMap<IpAddr, usize>>,
    is_closed: Cell<bool>,
    /// Another endpoint reads the socket now.
    is_deaf: Cell<bool>,
    /// Who may connect.
    gate: RefCell<Option<Gate>>,
    /// Those of connections that are over.
    lost_packets: Cell<u64>,
    /// The task that waits for [`Endpoint::flushed`].
    flushing: Cell<Option<Waker>>,
    counts: Cell<Counts>,
}

/// A datagram that has arrived.
#[derive(Clone, Copy)]
struct Came<'a> {
    now: Instant,
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Option<quinn_proto::EcnCodepoint>,
    bytes: &'a [u8],
}

/// Says whether a client may connect, and is told whether it has proved its address.
type Gate = Box<dyn Fn(SocketAddr, bool) -> Admission>;

impl Endpoint {
    /// An endpoint on this core, which serves if `server` is given. The caller runs [`Endpoint::run`] as a task.
    ///
    /// # Errors
    /// When the socket lacks what QUIC needs of it.
    pub fn new(
        sockets: &Rc<Sockets>,
        socket: UdpSocket,
        home: Home,
        keys: &Keys,
        server: Option<Server>,
    ) -> io::Result<Self> {
        Self::over(sockets.add_datagrams(socket), home, keys, server)
    }

    /// An endpoint that only connects, on this thread: with its core's loop or with its runtime. `local` says which
    /// address to bind, usually that of the family with port 0. The caller runs [`Endpoint::run`] as a task.
    ///
    /// # Errors
    /// When the address cannot be bound, or the system lacks what QUIC needs.
    pub fn client(local: SocketAddr) -> io::Result<Self> {
        let socket = crate::socket::bind_alone(local)?;
        let home = Home { core: 0, generation: 0 };
        Self::over(weir_wire::datagrams(socket)?, home, &Keys::random()?, None)
    }

    fn over(socket: Datagrams, home: Home, keys: &Keys, server: Option<Server>) -> io::Result<Self> {
        let udp = UdpSocketState::new((&socket).into())?;
        let proto = quinn_proto::Endpoint::new(
            Arc::new(keys.endpoint(home)),
            server.as_ref().map(|server| Arc::clone(&server.config)),
            !udp.may_fragment(),
            None,
        );
        Ok(Self(Rc::new(Inner {
            socket,
            udp,
            proto: RefCell::new(proto),
            ids: keys.ids(home),
            server: RefCell::new(server),
            elsewhere: RefCell::default(),
            connections: RefCell::default(),
            agenda: Rc::default(),
            timers: RefCell::default(),
            unsent: RefCell::default(),
            outgoing: RefCell::default(),
            accepted: RefCell::default(),
            acceptor: Cell::default(),
            handshakes: Cell::default(),
            by_client: RefCell::default(),
            is_closed: Cell::default(),
            is_deaf: Cell::default(),
            gate: RefCell::default(),
            lost_packets: Cell::default(),
            flushing: Cell::default(),
            counts: Cell::default(),
        })))
    }

    /// Changes the policy for new clients. `None` refuses them; connections stay.
    pub fn serve(&self, server: Option<Server>) {
        // Without a config quinn-proto would not refuse clients but send stateless resets, which they ignore.
        if let Some(server) = &server {
            self.0.proto.borrow_mut().set_server_config(Some(Arc::clone(&server.config)));
        }
        *self.0.server.borrow_mut() = server;
    }

    /// Says who takes datagrams of other cores and processes.
    pub fn pass_on(&self, elsewhere: Box<dyn Elsewhere>) {
        *self.0.elsewhere.borrow_mut() = Some(elsewhere);
    }

    /// Asks `gate` at each client's first packet whether the client may connect. The flag tells whether the client has
    /// proved its address; otherwise it may be forged, and the gate may not count it against whoever has that address.
    pub fn admit_by(&self, gate: impl Fn(SocketAddr, bool) -> Admission + 'static) {
        *self.0.gate.borrow_mut() = Some(Box::new(gate));
    }

    /// Reads the socket no more, because another endpoint does. It sends on, and gets what arrives for its connections by
    /// [`Endpoint::take`].
    pub fn stop_reading(&self) {
        self.0.set_deaf(true);
    }

    /// Reads the socket again after [`Endpoint::stop_reading`], because nobody else does any more.
    pub fn read_again(&self) {
        self.0.set_deaf(false);
    }

    /// Takes a datagram that another core received.
    pub fn take(&self, datagram: &Datagram) {
        let ecn = datagram.ecn.and_then(quinn_proto::EcnCodepoint::from_bits);
        let Datagram { bytes, from, to, .. } = datagram;
        self.0.handle(Came { now: Instant::now(), from: *from, to: *to, ecn, bytes });
        self.0.agenda.wake();
    }

    /// Connects to a server, whose certificate must be for `name`. See [`Connection::poll_connected`].
    ///
    /// # Errors
    /// When the name or the address can not be connected to.
    pub fn connect(&self, client: &Client, to: SocketAddr, name: &str) -> Result<Connection, ConnectError> {
        let (handle, proto) =
            self.0.proto.borrow_mut().connect(Instant::now(), client.config.clone(), to, name)?;
        let shared = self.0.add(handle, proto, &client.limits);
        shared.touch();
        Ok(Connection::new(shared))
    }

    /// Waits for the next client whose handshake is done, or that has sent early data: see
    /// [`Connection::is_handshaking`].
    pub fn poll_accept(&self, cx: &Context<'_>) -> Poll<Connection> {
        match self.0.accepted.borrow_mut().pop_front() {
            Some(connection) => Poll::Ready(connection),
            None => {
                self.0.acceptor.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// The same. Cancel safe.
    pub async fn accept(&self) -> Connection {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Moves datagrams until [`Endpoint::close`] was called and every connection has ended. Runs as a task of its own.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn run(&self) -> io::Result<()> {
        let mut inbox = Inbox::new();
        let mut sleep: Option<Sleep> = None;
        let ended = poll_fn(|cx| self.0.poll(cx, &mut inbox, &mut sleep)).await;
        if let Err(e) = &ended {
            // Nobody moves their datagrams or keeps their timers any more.
            let all: Vec<_> = self.0.connections.borrow().values().cloned().collect();
            all.iter().for_each(|shared| shared.end(Lost::Broken(format!("the UDP socket failed: {e}"))));
        }
        ended
    }

    /// Refuses new clients. [`Endpoint::run`] ends once the present connections have.
    pub fn close(&self) {
        self.serve(None);
        self.0.is_closed.set(true);
        self.0.agenda.wake();
    }

    /// Accepts clients again after [`Endpoint::close`]. Only while [`Endpoint::run`] has not ended.
    pub fn reopen(&self, server: Option<Server>) {
        self.0.is_closed.set(false);
        self.serve(server);
    }

    /// Whether it reads its socket: see [`Endpoint::stop_reading`].
    pub fn reads(&self) -> bool {
        !self.0.is_deaf.get()
    }

    /// Closes every connection now, with an application error code.
    pub fn close_all(&self, code: u64) {
        let all: Vec<_> = self.0.connections.borrow().values().cloned().collect();
        all.iter().filter(|shared| shared.lost().is_none()).for_each(|shared| shared.close(code));
    }

    /// A copy of the socket.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn lend(&self) -> io::Result<OwnedFd> {
        self.0.socket.as_fd().try_clone_to_owned()
    }

    /// Waits until [`Endpoint::run`] has given the kernel what connections have to send now, such as their ends. One
    /// task at a time.
    pub async fn flushed(&self) {
        poll_fn(|cx| {
            if self.0.agenda.is_empty() && self.0.unsent.borrow().is_none() {
                return Poll::Ready(());
            }
            self.0.flushing.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Connections, including those whose handshake or end is under way.
    pub fn connections(&self) -> usize {
        self.0.connections.borrow().len()
    }

    /// Packets of all connections that counted as lost, so that their content was sent again.
    pub fn lost_packets(&self) -> u64 {
        let live: u64 = self.0.connections.borrow().values().map(|shared| shared.lost_packets()).sum();
        self.0.lost_packets.get() + live
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.0.counts.get()
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("socket", &self.0.socket)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    fn add(
        self: &Rc<Self>,
        handle: ConnectionHandle,
        proto: quinn_proto::Connection,
        limits: &Limits,
    ) -> Rc<Shared> {
        let shared = Shared::new(handle, proto, Rc::clone(&self.agenda), limits);
        self.connections.borrow_mut().insert(handle, Rc::clone(&shared));
        self.handshakes.set(self.handshakes.get() + 1);
        shared
    }

    fn set_deaf(&self, is_deaf: bool) {
        self.is_deaf.set(is_deaf);
        let _ = self.socket.set_deaf(is_deaf); // otherwise its task is woken in vain
        self.agenda.wake();
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    fn poll(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        sleep: &mut Option<Sleep>,
    ) -> Poll<io::Result<()>> {
        self.agenda.set_endpoint(cx.waker());
        let mut may_be_more = self.receive(cx, inbox)?;
        let now = Instant::now();
        self.fire(now);
        if self.resend(cx).is_ready() {
            let mut rest = self.agenda.take().into_iter();
            for shared in rest.by_ref() {
                if self.turn(cx, &shared, now).is_pending() {
                    break; // the socket is full: the others wait until it has room
                }
            }
            self.agenda.put_back(rest);
            // A turn may have left a connection with more to send.
            may_be_more |= self.unsent.borrow().is_none() && !self.agenda.is_empty();
            if !may_be_more {
                self.flushing.take().into_iter().for_each(Waker::wake);
            }
        }
        if self.is_closed.get() && self.connections.borrow().is_empty() && self.unsent.borrow().is_none() {
            return Poll::Ready(Ok(()));
        }
        if may_be_more {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some((due, _)) = self.timers.borrow().first().copied() {
            let sleep = sleep.get_or_insert_with(|| sleep_until(due));
            sleep.reset(due);
            if Pin::new(sleep).poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    /// Receives some batches. Returns whether there may be more.
    fn receive(self: &Rc<Self>, cx: &Context<'_>, inbox: &mut Inbox) -> io::Result<bool> {
        let began = Instant::now();
        let (mut now, mut processed) = (began, 0_u32);
        for _ in 0..CALLS {
            if inbox.is_empty() {
                if self.is_deaf.get() {
                    return Ok(false); // what it had read before is processed
                }
                match inbox.poll_fill(cx, &self.socket, &self.udp) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(Ok(())) => {}
                    // ICMP errors of what was sent to others arrive here.
                    Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::ConnectionReset => continue,
                    Poll::Ready(Err(e)) => return Err(e),
                }
                now = Instant::now();
            }
            while let Some((meta, bytes)) = inbox.next() {
                let handshakes = self.handshakes.get();
                self.arrived(now, meta, bytes);
                processed += 1;
                // A call may bring 400 datagrams: first packets, each of which costs a signature, or thousands of
                // frames in each. The rest waits in the inbox.
                let is_costly = self.handshakes.get() > handshakes;
                if (is_costly || processed.is_multiple_of(UNWATCHED)) && began.elapsed() >= LONGEST {
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    fn arrived(self: &Rc<Self>, now: Instant, meta: &RecvMeta, bytes: &[u8]) {
        self.count(|counts| {
            counts.received += 1;
            counts.received_bytes += bytes.len() as u64;
        });
        if let Addressee::Elsewhere(home) = self.ids.addressee(bytes)
            && let Some(elsewhere) = &*self.elsewhere.borrow()
        {
            let datagram = Datagram {
                bytes: bytes.to_vec(),
                from: meta.addr,
                to: meta.dst_ip,
                ecn: meta.ecn.map(|ecn| ecn as u8),
            };
            if elsewhere.pass(home, datagram) {
                self.count(|counts| counts.misplaced += 1);
                return;
            }
        }
        let ecn = meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
        self.handle(Came { now, from: meta.addr, to: meta.dst_ip, ecn, bytes });
    }

    fn handle(self: &Rc<Self>, came: Came<'_>) {
        let Came { now, from, bytes, .. } = came;
        // Port 0 cannot be answered: the send fails with EINVAL, upon which quinn-udp does without segmentation and
        // ECN for as long as the socket lives. A datagram that is longer than we told clients could hold 60,000 frames.
        let len = bytes.len();
        if from.port() == 0 || len > usize::from(RECEIVED) {
            return;
        }
        let mut answer = take(&mut *self.outgoing.borrow_mut());
        answer.clear();
        let event = self.pass(came, &mut answer);
        match event {
            None => {}
            Some(DatagramEvent::Response(transmit)) => self.send_once(&transmit, &answer),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let shared = self.connections.borrow().get(&handle).cloned();
                if let Some(shared) =
                    shared.filter(|shared| !shared.is_flood.get() && shared.admits(from, now))
                {
                    shared.received(from, len);
                    shared.proto.borrow_mut().handle_event(event);
                    self.pass_again(&shared, came);
                    if shared.is_flooded(now) {
                        self.end_flood(&shared);
                    }
                    shared.touch();
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                answer.clear();
                self.greet(came, incoming, &mut answer);
            }
        }
        *self.outgoing.borrow_mut() = answer;
    }

    /// Passes a datagram to quinn-proto.
    fn pass(&self, came: Came<'_>, answer: &mut Vec<u8>) -> Option<DatagramEvent> {
        let Came { now, from, to, ecn, bytes } = came;
        self.proto.borrow_mut().handle(now, from, to, ecn, BytesMut::from(bytes), answer)
    }

    /// Passes a datagram again if a packet in it was put off.
    fn pass_again(&self, shared: &Shared, came: Came<'_>) {
        while shared.makes_room() {
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = self.pass(came, &mut Vec::new()) {
                shared.proto.borrow_mut().handle_event(event);
            }
        }
    }

    /// Decides about a client's first packet.
    fn greet(self: &Rc<Self>, came: Came<'_>, incoming: Incoming, answer: &mut Vec<u8>) {
        let (limits, mark) =
            self.server.borrow().as_ref().map(|server| (server.limits.clone(), server.mark)).unzip();
        let handshakes = self.handshakes.get();
        // Only proved addresses count: otherwise a forger could have another client refused.
        let client =
            incoming.remote_address_validated().then(|| client_network(incoming.remote_address().ip()));
        let of_client = client.map_or(0, |client| self.by_client.borrow().get(&client).copied().unwrap_or(0));
        let is_full = |limits: &Limits| {
            handshakes >= limits.handshakes
                || of_client >= limits.handshakes_per_client
                || self.connections.borrow().len() >= limits.connections
                || self.accepted.borrow().len() >= BACKLOG
        };
        let gate = || {
            let gate = self.gate.borrow();
            gate.as_ref().map_or(Admission::Granted, |gate| gate(incoming.remote_address(), client.is_some()))
        };
        // The gate is asked last, because it counts whom it admits.
        let admitted = limits.filter(|limits| !is_full(limits)).map(|limits| (gate(), limits));
        let Some((admission, limits)) = admitted.filter(|(admission, _)| *admission != Admission::Refused)
        else {
            self.count(|counts| counts.refused += 1);
            let transmit = self.proto.borrow_mut().refuse(incoming, answer);
            self.send_once(&transmit, answer);
            return;
        };
        let must_prove = limits.retry == Retry::Always
            || admission == Admission::Proof
            || handshakes >= limits.retry_from();
        if must_prove && incoming.may_retry() {
            self.count(|counts| counts.retries += 1);
            let retry = self.proto.borrow_mut().retry(incoming, answer);
            match retry {
                Ok(transmit) => self.send_once(&transmit, answer),
                Err(e) => self.proto.borrow_mut().ignore(e.into_incoming()), // never: it may retry
            }
            return;
        }
        let accepted = self.proto.borrow_mut().accept(incoming, came.now, answer, None);
        match accepted {
            Ok((handle, proto)) => {
                let shared = self.add(handle, proto, &limits);
                shared.client.set(client);
                if client.is_some() {
                    shared.set_proved();
                }
                shared.received(shared.peer(), came.bytes.len());
                shared.mark.set(mark.unwrap_or_default());
                self.pass_again(&shared, came); // it may hold early data
                if let Some(client) = client {
                    *self.by_client.borrow_mut().entry(client).or_default() += 1;
                }
                shared.touch();
            }
            Err(e) => {
                self.count(|counts| counts.failed += 1);
                if let Some(transmit) = e.response {
                    self.send_once(&transmit, answer);
                }
            }
        }
    }

    /// Closes the connection of a peer that floods, and drops what it sends from now on: quinn-proto looks at the frames
    /// of a closed connection too.
    fn end_flood(&self, shared: &Rc<Shared>) {
        shared.is_flood.set(true);
        shared.end(Lost::Flood);
        shared.close(shared.flood_code);
    }

    /// Lets connections handle the timers that are due.
    fn fire(&self, now: Instant) {
        loop {
            let first = self.timers.borrow().first().copied();
            let Some((due, handle)) = first.filter(|(due, _)| *due <= now) else { return };
            self.timers.borrow_mut().remove(&(due, handle));
            let shared = self.connections.borrow().get(&handle).cloned();
            if let Some(shared) = shared {
                shared.timer.set(None);
                if self.due(&shared).is_none_or(|due| due > now) {
                    self.arm(&shared); // what was due has been put off since
                    continue;
                }
                if shared.handshake_until.get().is_some_and(|until| until <= now) {
                    self.end_handshake(&shared);
                    self.count(|counts| counts.failed += 1);
                    shared.end(Lost::Idle);
                    shared.close(0);
                }
                shared.proto.borrow_mut().handle_timeout(now);
                shared.touch();
            }
        }
    }

    /// One connection's turn: passes on its events, sends what it has, sets its timer. Pending when the socket is full.
    fn turn(self: &Rc<Self>, cx: &Context<'_>, shared: &Rc<Shared>, now: Instant) -> Poll<()> {
        shared.is_listed.set(false);
        if self.exchange_events(shared) {
            self.remove(shared);
            return Poll::Ready(());
        }
        let is_connected = shared.tell();
        if is_connected && self.end_handshake(shared) {
            self.count(|counts| counts.connected += 1);
        }
        // A client that comes back may send early data, which may be answered before the handshake is done.
        // Its address may be forged, unless it has proved it when it came before.
        let is_known = shared.is_proved.get() && !shared.is_accepted.get();
        let is_ready = is_connected || is_known && shared.proto.borrow().has_0rtt();
        if is_ready && shared.proto.borrow().side().is_server() && !shared.is_accepted.replace(true) {
            self.accepted.borrow_mut().push_back(Connection::new(Rc::clone(shared)));
            self.acceptor.take().into_iter().for_each(Waker::wake);
        }
        shared.raise_allowances();
        let sent = self.send_all(cx, shared, now);
        self.arm(shared);
        sent
    }

    /// When a connection's next timer is due.
    fn due(&self, shared: &Shared) -> Option<Instant> {
        let due = shared.proto.borrow_mut().poll_timeout();
        due.into_iter().chain(shared.handshake_until.get()).min()
    }

    /// Makes sure that a connection's turn comes when its next timer is due.
    fn arm(&self, shared: &Shared) {
        // Nearly every packet puts a timer off. The entry stays then, and `fire` moves it when its time has come: that
        // is one change of the tree in the time of a timer instead of two per turn.
        let Some(due) = self.due(shared) else { return };
        let before = shared.timer.get();
        if before.is_none_or(|before| due < before) {
            let mut timers = self.timers.borrow_mut();
            before.map(|before| timers.remove(&(before, shared.handle)));
            timers.insert((due, shared.handle));
            shared.timer.set(Some(due));
        }
    }

    /// Notes that a handshake is no longer under way, and returns whether it was.
    fn end_handshake(&self, shared: &Shared) -> bool {
        let was_under_way = shared.handshake_until.take().is_some();
        if was_under_way {
            self.handshakes.set(self.handshakes.get().saturating_sub(1));
            if let Some(client) = shared.client.take() {
                let mut by_client = self.by_client.borrow_mut();
                let left = by_client.get(&client).map_or(0, |count| count - 1);
                if left == 0 {
                    by_client.remove(&client);
                } else {
                    by_client.insert(client, left);
                }
            }
        }
        was_under_way
    }

    /// Exchanges events between a connection and the endpoint's state. Returns true once the connection is over.
    fn exchange_events(&self, shared: &Shared) -> bool {
        let mut is_over = false;
        loop {
            let event = shared.proto.borrow_mut().poll_endpoint_events();
            let Some(event) = event else { return is_over };
            is_over |= event.is_drained();
            let back = self.proto.borrow_mut().handle_event(shared.handle, event);
            if let Some(back) = back {
                shared.proto.borrow_mut().handle_event(back);
            }
        }
    }

    fn remove(&self, shared: &Rc<Shared>) {
        shared.tell();
        shared.end(Lost::Local); // keeps an earlier reason
        if let Some(due) = shared.timer.take() {
            self.timers.borrow_mut().remove(&(due, shared.handle));
        }
        if self.end_handshake(shared) {
            self.count(|counts| counts.failed += 1);
        }
        self.lost_packets.set(self.lost_packets.get() + shared.lost_packets());
        let removed = self.connections.borrow_mut().remove(&shared.handle);
        drop(removed);
    }

    /// Sends what a connection has. Pending when the socket is full.
    fn send_all(self: &Rc<Self>, cx: &Context<'_>, shared: &Rc<Shared>, now: Instant) -> Poll<()> {
        let is_held = shared.held.borrow().is_some();
        if is_held && self.send_held(cx, shared, now).is_pending() {
            return Poll::Pending;
        }
        if shared.held.borrow().is_some() {
            return Poll::Ready(()); // until more comes from that address
        }
        for _ in 0..SENDS {
            let mut outgoing = self.outgoing.borrow_mut();
            outgoing.clear();
            let mut proto = shared.proto.borrow_mut();
            let most = SENT / usize::from(proto.current_mtu().max(1));
            let segments = self.udp.max_gso_segments().min(most).max(1);
            let transmit = proto.poll_transmit(now, segments, &mut outgoing);
            drop(proto);
            let Some(transmit) = transmit else { return Poll::Ready(()) };
            if self.send_bounded(cx, shared, transmit, &mut outgoing, now).is_pending() {
                return Poll::Pending;
            }
            if shared.held.borrow().is_some() {
                return Poll::Ready(()); // until more comes from that address
            }
        }
        shared.touch(); // there may be more: after the others
        Poll::Ready(())
    }

    /// Sends as much of the held batch as the limit of an unproved address allows now. Pending when the socket is full.
    fn send_held(&self, cx: &Context<'_>, shared: &Rc<Shared>, now: Instant) -> Poll<()> {
        let held = shared.held.take().filter(|_| shared.lost().is_none());
        let Some((transmit, mut bytes)) = held else { return Poll::Ready(()) };
        self.send_bounded(cx, shared, transmit, &mut bytes, now)
    }

    /// Sends a batch as far as its destination may get it. Pending when the socket is full: [`Inner::resend`] then has
    /// the batch.
    fn send_bounded(
        &self,
        cx: &Context<'_>,
        shared: &Rc<Shared>,
        mut transmit: Transmit,
        bytes: &mut Vec<u8>,
        now: Instant,
    ) -> Poll<()> {
        shared.bound(&mut transmit, bytes, now);
        if transmit.size > 0 && self.send(cx, &transmit, bytes).is_pending() {
            *self.unsent.borrow_mut() = Some((transmit, take(bytes)));
            shared.touch();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Sends what the socket had no room for. Pending while it still has none.
    fn resend(&self, cx: &Context<'_>) -> Poll<()> {
        let unsent = self.unsent.take();
        let Some((transmit, bytes)) = unsent else { return Poll::Ready(()) };
        let sent = self.send(cx, &transmit, &bytes);
        if sent.is_pending() {
            *self.unsent.borrow_mut() = Some((transmit, bytes));
        }
        sent
    }

    /// Sends one batch. Pending when the socket is full. An error concerns this peer only, such as a network that can
    /// not be reached: the batch counts as lost, and the connection ends by its timers unless the path recovers.
    fn send(&self, cx: &Context<'_>, transmit: &Transmit, bytes: &[u8]) -> Poll<()> {
        let sent =
            self.socket.poll_send(cx, |fd| self.udp.try_send((&fd).into(), &outgoing(transmit, bytes)));
        sent.map(|sent| self.note(transmit, sent.is_ok()))
    }

    /// Sends an answer that belongs to no connection. It is dropped if the socket is full, like any datagram that is
    /// lost on its way: the client repeats its packet.
    fn send_once(&self, transmit: &Transmit, bytes: &[u8]) {
        let sent = self.udp.try_send((&self.socket).into(), &outgoing(transmit, bytes));
        self.note(transmit, sent.is_ok());
    }

    /// Counts what the system took, or did not.
    fn note(&self, transmit: &Transmit, is_sent: bool) {
        let datagrams = transmit.segment_size.map_or(1, |size| transmit.size.div_ceil(size.max(1))) as u64;
        self.count(|counts| {
            if is_sent {
                counts.sent += datagrams;
                counts.sent_bytes += transmit.size as u64;
            } else {
                counts.unsent += datagrams;
            }
        });
    }
}

fn outgoing<'a>(transmit: &Transmit, bytes: &'a [u8]) -> quinn_udp::Transmit<'a> {
    quinn_udp::Transmit {
        destination: transmit.destination,
        ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
        contents: bytes.get(..transmit.size).unwrap_or(bytes),
        segment_size: transmit.segment_size,
        src_ip: transmit.src_ip,
    }
}
