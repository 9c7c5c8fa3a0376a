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
}

/// How long a replaced process accepts new QUIC clients on a socket that its successor does not read.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// How long a core that ends waits until a socket has taken what tells clients so.
const FAREWELL: Duration = Duration::from_millis(100);

/// A UDP socket and its endpoint.
pub(super) struct Door {
    /// The address of the socket.
    pub(super) address: SocketAddr,
    home: Home,
    endpoint: Endpoint,
    /// It accepts no new clients, and ends with its last connection.
    is_leaving: Cell<bool>,
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
        let place = place as u8; // there are at most 256 cores
        // This core may read it already: then the copy is not needed.
        let same =
            |door: &&Rc<Door>| door.address == address && door.home.core == place && door.endpoint.reads();
        if let Some(door) = self.doors.borrow().iter().find(same) {
            // HTTP/3 was off. The kernel still gives clients to the old socket, so that one has to serve.
            if door.is_leaving.replace(false) {
                door.endpoint.reopen(server(core, address));
            }
            return;
        }
        let homes = &core.shared.homes;
        let mailbox = mailbox.clone();
        let home = homes.claim(place, Box::new(move |passed| mailbox.send(Message::Quic(passed)).is_ok()));
        let server = server(core, address);
        let socket = std::net::UdpSocket::from(OwnedFd::from(socket));
        let endpoint = match Endpoint::new(&core.sockets, socket, home, homes.keys(), server) {
            Ok(endpoint) => endpoint,
            Err(e) => {
                homes.release(home);
                log::error("a UDP socket cannot serve QUIC", &[("address", &address), ("error", &e)]);
                return;
            }
        };
        endpoint.pass_on(Box::new(Others(Arc::clone(homes))));
        let gate = Rc::downgrade(core);
        endpoint.admit_by(move |client, is_proved| admits(&gate, address, client, is_proved));
        let door =
            Rc::new(Door { address, home, endpoint, is_leaving: Cell::new(false), failed: Cell::default() });
        core.count_door(true);
        drop(tokio::task::spawn_local(run(Rc::clone(core), Rc::clone(&door))));
        self.doors.borrow_mut().push(door);
        homes.took(address);
    }

    /// Applies the current snapshot. Doors that are not in it accept no new clients.
    pub(super) fn adopt(&self, core: &Rc<Core>) {
        for door in self.doors.borrow().iter().filter(|door| !door.is_leaving.get()) {
            match server(core, door.address) {
                Some(server) => door.endpoint.serve(Some(server)),
                None => door.leave(),
            }
        }
        self.forget_ended();
    }

    /// Receives what another core or process forwards.
    pub(super) fn take(&self, passed: Passed) {
        let doors = self.doors.borrow();
        match passed {
            Passed::Datagram { home, datagram } => {
                if let Some(door) = doors.iter().find(|door| door.home == home) {
                    door.endpoint.take(&datagram);
                }
            }
            // Until the other process serves, it may fail: both read.
            Passed::Taken { address } if self.leaves.get().is_some() => self.hand_over(address),
            Passed::Taken { .. } => {} // see `drain`
        }
    }

    /// Another process reads the sockets of an address: this one takes no new clients there.
    fn hand_over(&self, address: SocketAddr) {
        for door in self.doors.borrow().iter().filter(|door| door.address == address) {
            door.give_up();
        }
    }

    /// Other cores read the sockets of all other places now.
    pub(super) fn keep(&self, places: &[(SocketAddr, usize)]) {
        let goes = |door: &&Rc<Door>| !places.contains(&(door.address, usize::from(door.home.core)));
        for door in self.doors.borrow().iter().filter(|door| !door.is_leaving.get()).filter(goes) {
            door.give_up();
        }
    }

    /// Stops accepting clients, because other cores read the sockets now.
    pub(super) fn give_up(&self) {
        for door in self.doors.borrow().iter() {
            door.give_up();
        }
    }

    /// The process drains. If another one serves, it reads the sockets of the addresses that it has, and says so; the
    /// others take clients for [`HANDED_OVER`] more, lest one be refused before that is heard.
    pub(super) fn drain(&self, core: &Core, leaving: Leaving) {
        match leaving {
            Leaving::End => self.doors.borrow().iter().for_each(|door| door.leave()),
            Leaving::Successor => {
                self.leaves.set(Instant::now().checked_add(HANDED_OVER));
                core.shared.homes.taken_over().into_iter().for_each(|address| self.hand_over(address));
            }
        }
    }

    /// A copy of each socket that takes clients. Those of an address come in the order of their places, which is all
    /// that tells the receiver which is which.
    pub(super) fn lend(&self) -> impl Iterator<Item = io::Result<(Address, BoundSocket)>> {
        let mut doors: Vec<_> =
            self.doors.borrow().iter().filter(|door| !door.is_leaving.get()).cloned().collect();
        doors.sort_by_key(|door| door.home.core);
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
        self.doors.borrow_mut().retain(|door| !door.is_leaving.get() || door.endpoint.connections() > 0);
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

impl Door {
    /// Another core or process reads the socket now: the connections get what it passes on.
    fn give_up(&self) {
        self.endpoint.stop_reading();
        self.leave();
    }

    fn leave(&self) {
        self.is_leaving.set(true);
        self.endpoint.close();
    }
}

/// Moves the datagrams of a door and serves its clients, until it has left and its last connection has ended.
async fn run(core: Rc<Core>, door: Rc<Door>) {
    let accepting = async {
        loop {
            let connection = door.endpoint.accept().await;
            core.shared.arrive();
            let serving = Box::pin(connection::serve_h3(Rc::clone(&core), door.address, connection));
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
    core.shared.homes.release(door.home);
    core.count_door(false);
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
