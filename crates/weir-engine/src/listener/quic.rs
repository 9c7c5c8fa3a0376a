//! A core's UDP sockets and their endpoints (each a `Door`), which accept HTTP/3 clients.

use crate::connection;
use crate::core::{Core, Leaving, LocalListener, Message};
use crate::homes::{Others, Passed};
use crate::snapshot::{AddressProof, Http3};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use weir_quic::{Admission, Endpoint, Home, Limits, Retry, Server};
use weir_telemetry::log;
use weir_wire::listen::{Address, BoundSocket};
use weir_wire::{Peer, time};

/// The UDP sockets of one core with their endpoints.
#[derive(Default)]
pub(super) struct QuicDoors {
    doors: RefCell<Vec<Rc<Door>>>,
    /// When sockets that no other process has taken over stop accepting clients.
    leaves: Cell<Option<Instant>>,
    /// Bytes of datagrams on their way from other cores and processes.
    waiting: Arc<AtomicUsize>,
}

/// Most of these bytes, as many as the kernel holds for a socket. Further datagrams are dropped, as the kernel would.
const WAITING: usize = 4 * 1024 * 1024;

/// How long a replaced process accepts new QUIC clients on a socket that its successor does not read.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// How long a core that ends waits until a socket has taken what tells clients so.
const FAREWELL: Duration = Duration::from_millis(100);

/// A UDP socket and its endpoint.
pub(super) struct Door {
    /// The address of the socket.
    pub(super) address: SocketAddr,
    /// What its socket and copies of it have in common: [`BoundSocket::id`].
    socket: u64,
    /// The socket's place among those of its address, as they were dealt out last.
    place: Cell<usize>,
    home: Home,
    endpoint: Endpoint,
    /// It accepts no new clients. It ends with its last connection, but reads for others as long as it has to.
    is_leaving: Cell<bool>,
    /// Its task has ended.
    is_over: Cell<bool>,
    /// Failed handshakes that were counted.
    failed: Cell<u64>,
}

impl QuicDoors {
    /// Opens a socket, the one at this place among those of its address.
    pub(super) fn open(
        &self,
        core: &Rc<Core>,
        address: SocketAddr,
        place: usize,
        socket: BoundSocket,
        mailbox: &UnboundedSender<Message>,
    ) {
        let id = match socket.id() {
            Ok(id) => id,
            Err(e) => return cannot_serve(address, &e),
        };
        // This core may read it already: then the copy is not needed.
        if let Some(door) = self.doors.borrow().iter().find(|door| door.socket == id && door.reads()) {
            door.place.set(place);
            return door.serve(core);
        }
        let homes = &core.shared.homes;
        let (mailbox, waiting) = (mailbox.clone(), Arc::clone(&self.waiting));
        let deliver = move |passed| {
            if let Passed::Datagram { datagram, .. } = &passed {
                let bytes = datagram.bytes.len();
                if waiting.fetch_add(bytes, Ordering::Relaxed) >= WAITING {
                    waiting.fetch_sub(bytes, Ordering::Relaxed);
                    return !mailbox.is_closed();
                }
            }
            mailbox.send(Message::Quic(passed)).is_ok()
        };
        // The kernel steers by the first byte of an id. Beyond 256 sockets, only the home finds a datagram's core.
        let home = homes.claim((place % 256) as u8, Box::new(deliver));
        let server = server(core, address);
        let is_leaving = Cell::new(server.is_none()); // it only reads for those that have connections
        let socket = std::net::UdpSocket::from(OwnedFd::from(socket));
        let endpoint = match Endpoint::new(&core.sockets, socket, home, homes.keys(), server) {
            Ok(endpoint) => endpoint,
            Err(e) => {
                homes.release(home);
                return cannot_serve(address, &e);
            }
        };
        endpoint.pass_on(Box::new(Others(Arc::clone(homes))));
        let gate = Rc::downgrade(core);
        endpoint.admit_by(move |client, is_proved| admits(&gate, address, client, is_proved));
        let door = Rc::new(Door {
            address,
            socket: id,
            place: Cell::new(place),
            home,
            endpoint,
            is_leaving,
            is_over: Cell::new(false),
            failed: Cell::default(),
        });
        core.count_door(true);
        let open = Open { core: Rc::clone(core), door: Rc::clone(&door) };
        drop(tokio::task::spawn_local(run(open)));
        self.doors.borrow_mut().push(door);
        homes.took(address);
    }

    /// Applies the current snapshot. Doors that are not in it accept no new clients, and others do again.
    pub(super) fn adopt(&self, core: &Rc<Core>) {
        self.reading().for_each(|door| door.serve(core));
        self.forget_ended();
    }

    /// Those that read their sockets.
    fn reading(&self) -> impl Iterator<Item = Rc<Door>> {
        let doors: Vec<_> = self.doors.borrow().iter().filter(|door| door.reads()).cloned().collect();
        doors.into_iter()
    }

    /// Receives what another core or process forwards.
    pub(super) fn take(&self, core: &Core, passed: Passed) {
        let doors = self.doors.borrow();
        match passed {
            Passed::Datagram { home, datagram } => {
                self.waiting.fetch_sub(datagram.bytes.len(), Ordering::Relaxed);
                if let Some(door) = doors.iter().find(|door| door.home == home) {
                    door.endpoint.take(&datagram);
                }
            }
            // Until the other process serves, it may fail: both read.
            Passed::Taken { address } if self.leaves.get().is_some() => self.hand_over(core, address),
            Passed::Taken { .. } => {} // see `drain`
            Passed::Left => doors.iter().for_each(|door| door.read_again(core)),
        }
    }

    /// Another process reads the sockets of an address: this one takes no new clients there.
    fn hand_over(&self, core: &Core, address: SocketAddr) {
        self.reading().filter(|door| door.address == address).for_each(|door| door.give_up(core));
    }

    /// Other cores read all other sockets now: those of every address, or of the addresses of these.
    pub(super) fn keep(&self, core: &Core, sockets: &[(Address, BoundSocket)], dealt: Dealt) {
        let udp = |(address, socket): &(Address, BoundSocket)| match address {
            Address::Udp(address) => Some((*address, socket.id().ok())),
            _ => None,
        };
        let kept: Vec<_> = sockets.iter().filter_map(udp).collect();
        for door in self.reading() {
            let is_dealt = dealt == Dealt::All || kept.iter().any(|(address, _)| *address == door.address);
            if is_dealt && !kept.iter().any(|(_, id)| *id == Some(door.socket)) {
                door.give_up(core);
            }
        }
    }

    /// Stops accepting clients, because other cores read the sockets now.
    pub(super) fn give_up(&self, core: &Core) {
        self.reading().for_each(|door| door.give_up(core));
    }

    /// The process drains. If another one serves, it reads the sockets of the addresses that it has, and says so; the
    /// others take clients for [`HANDED_OVER`] more, lest one be refused before that is heard.
    pub(super) fn drain(&self, core: &Core, leaving: Leaving) {
        match leaving {
            Leaving::Delayed => {}
            Leaving::End => self.reading().for_each(|door| door.leave(core)),
            Leaving::Successor => {
                self.leaves.set(Instant::now().checked_add(HANDED_OVER));
                let taken = core.shared.homes.taken_over();
                taken.into_iter().for_each(|address| self.hand_over(core, address));
            }
        }
    }

    /// A copy of each socket that it reads. Those of an address come in the order of their places, which is all that
    /// tells the receiver which is which. In a process that has been replaced a copy of every socket: if the new process
    /// dies, the next one has to read them.
    pub(super) fn lend(&self) -> impl Iterator<Item = io::Result<(Address, BoundSocket)>> {
        let is_replaced = self.leaves.get().is_some();
        let goes = |door: &&Rc<Door>| door.reads() || is_replaced && !door.is_over.get();
        let mut doors: Vec<_> = self.doors.borrow().iter().filter(goes).cloned().collect();
        doors.sort_by_key(|door| (door.address, door.place.get()));
        doors.into_iter().map(|door| {
            let copy = door.endpoint.lend()?;
            Ok((Address::Udp(door.address), BoundSocket::any(copy)))
        })
    }

    /// Adds failed handshakes to their listeners' counters, and removes doors that have ended.
    pub(super) fn sweep(&self, core: &Core) {
        if self.leaves.get().is_some_and(|at| at <= Instant::now()) {
            self.drain(core, Leaving::End);
        }
        core.shared.homes.tell_again();
        self.reading().filter(|door| door.is_leaving.get()).for_each(|door| door.leave(core));
        for door in self.doors.borrow().iter() {
            let failed = door.endpoint.counts().failed;
            if let Some((listener, _)) = core.local().behind(door.address) {
                (door.failed.get()..failed).for_each(|_| listener.cells.handshakes_failed.inc());
            }
            door.failed.set(failed);
        }
        self.forget_ended();
    }

    fn forget_ended(&self) {
        self.doors.borrow_mut().retain(|door| !door.is_over.get());
    }

    /// Closes every connection now, and lets the endpoints tell their clients.
    pub(super) async fn cut(&self) {
        let doors = self.doors.take();
        doors.iter().for_each(|door| door.endpoint.close_all(weir_h3::code::NO_ERROR));
        for door in &doors {
            let _ = time::timeout(FAREWELL, door.endpoint.flushed()).await; // a full socket may take no more
        }
    }
}

/// Which sockets a core was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dealt {
    /// All that it has to read.
    All,
    /// Those of some addresses.
    Some,
}

impl Door {
    fn reads(&self) -> bool {
        self.endpoint.reads() && !self.is_over.get()
    }

    /// Accepts clients by the current snapshot, or none if HTTP/3 is off there.
    fn serve(&self, core: &Rc<Core>) {
        match server(core, self.address) {
            // One that leaves with its core or process does not come back.
            Some(_) if self.is_leaving.get() && core.ends() => {}
            Some(server) => {
                self.is_leaving.set(false);
                self.endpoint.reopen(Some(server));
            }
            None => self.leave(core),
        }
    }

    /// Another core or process reads the socket from now on: the connections get what it passes on.
    fn give_up(&self, core: &Core) {
        self.endpoint.stop_reading();
        core.shared.homes.count_deaf(self.address, true);
        self.is_leaving.set(true);
        self.endpoint.close();
    }

    /// The process that read the socket is gone.
    fn read_again(&self, core: &Core) {
        if !self.endpoint.reads() && !self.is_over.get() {
            core.shared.homes.count_deaf(self.address, false);
            self.endpoint.read_again();
        }
    }

    /// Accepts no new clients. It reads on while others have connections whose datagrams arrive here.
    fn leave(&self, core: &Core) {
        self.is_leaving.set(true);
        self.endpoint.serve(None);
        if !core.shared.homes.needs_reader(self.address) {
            self.endpoint.close();
        }
    }
}

fn cannot_serve(address: SocketAddr, e: &io::Error) {
    log::error("a UDP socket cannot serve QUIC", &[("address", &address), ("error", e)]);
}

/// A counted door with a home. Both end with its task, which the end of its core drops.
struct Open {
    core: Rc<Core>,
    door: Rc<Door>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let (homes, door) = (&self.core.shared.homes, &self.door);
        door.is_over.set(true);
        if !door.endpoint.reads() {
            homes.count_deaf(door.address, false);
        }
        homes.release(door.home);
        self.core.count_door(false);
    }
}

/// Moves the datagrams of a door and serves its clients, until it has left and its last connection has ended.
async fn run(open: Open) {
    let Open { core, door } = &open;
    let accepting = async {
        loop {
            let connection = door.endpoint.accept().await;
            core.shared.arrive();
            let serving = Box::pin(connection::serve_h3(Rc::clone(core), door.address, connection));
            drop(tokio::task::spawn_local(serving));
        }
    };
    tokio::select! {
        ended = door.endpoint.run() => {
            if let Err(e) = ended {
                log::error("a UDP socket failed", &[("address", &door.address), ("error", &e)]);
            }
        }
        () = accepting => {}
    }
}

/// Whether a client may connect, as far as is known at its first packet. Counts the handshake for its client, unless the
/// address is not proved: then too many of them only make the client prove it.
fn admits(core: &Weak<Core>, address: SocketAddr, client: SocketAddr, is_proved: bool) -> Admission {
    let Some(core) = core.upgrade() else { return Admission::Refused };
    let local = core.local();
    let Some((listener, outer)) = local.behind(address) else { return Admission::Refused };
    let all = [Some(listener), outer];
    let has_room = core.shared.has_room(local.snapshot.connections)
        && all.into_iter().flatten().all(|listener| {
            listener.spec.admits(client.ip())
                && listener.spec.limit.as_ref().is_none_or(crate::snapshot::ConnectionLimit::has_room)
        });
    if !has_room {
        return Admission::Refused;
    }
    let peer = Peer::Address(client);
    match connection::admit_quic(&core, peer, is_proved) {
        Ok(()) => Admission::Granted,
        Err(_) if !is_proved => Admission::Proof,
        Err(cause) => {
            core.lost(cause, &listener.spec.name, peer, "");
            Admission::Refused
        }
    }
}

/// The policy for new clients of an address; `None` if no listener has HTTP/3 there.
fn server(core: &Core, address: SocketAddr) -> Option<Server> {
    let local = core.local();
    let (listener, _) = local.behind(address)?;
    let http3 = listener.spec.http3.as_deref()?;
    let limits = limits(&local.snapshot, listener, http3);
    match Server::new(http3.tls.config(), core.shared.homes.keys(), limits) {
        Ok(server) => Some(server.marked(http3.policy.0)),
        Err(e) => {
            let fields: log::Fields<'_> = &[("listener", &listener.spec.name), ("error", &e)];
            log::error("HTTP/3 cannot be served", fields); // cannot happen: TLS 1.3 has the suites that QUIC needs
            None
        }
    }
}

fn limits(snapshot: &crate::snapshot::Snapshot, listener: &LocalListener, http3: &Http3) -> Limits {
    let handshake = listener.spec.timeouts.handshake;
    let usual = Limits::default();
    Limits {
        idle: http3.idle,
        handshake: if handshake.is_zero() { usual.handshake } else { handshake },
        streams: snapshot.h2.streams,
        retry: match http3.retry {
            AddressProof::Always => Retry::Always,
            AddressProof::Auto => Retry::Auto,
        },
        migration: http3.migration,
        flood_code: weir_h3::code::EXCESSIVE_LOAD,
        ..usual
    }
}
