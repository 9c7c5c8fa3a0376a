//! A path between a client and a server that loses, doubles and reorders datagrams, or changes the client's address.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a direction waits for a datagram before it looks whether anything changed, and sends what it held back.
const PAUSE: Duration = Duration::from_millis(5);

/// What happens to datagrams, each out of a thousand.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spoils {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
}

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    front: UdpSocket,
    /// What the server sees as the client; replaced by [`Relay::rebind`].
    back: Mutex<Arc<UdpSocket>>,
    client: Mutex<Option<SocketAddr>>,
    server: SocketAddr,
    spoils: Spoils,
    ended: AtomicBool,
    /// By direction: towards the client, towards the server.
    is_cut: [AtomicBool; 2],
    to_server: AtomicU64,
    /// Who gets a copy of what goes to the server.
    mirror: Mutex<Option<SocketAddr>>,
}

impl Relay {
    pub(crate) fn new(server: SocketAddr, spoils: Spoils, seed: u64) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        front.set_read_timeout(Some(PAUSE)).unwrap();
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared {
            front,
            back: Mutex::new(back(Ipv4Addr::LOCALHOST)),
            client: Mutex::default(),
            server,
            spoils,
            ended: AtomicBool::new(false),
            is_cut: Default::default(),
            to_server: AtomicU64::new(0),
            mirror: Mutex::default(),
        });
        let threads = [true, false].map(|is_forth| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.carry(is_forth, seed + u64::from(is_forth)))
        });
        Self { address, shared, threads: threads.into() }
    }

    /// Gives the client another address.
    pub(crate) fn rebind(&self, ip: Ipv4Addr) -> SocketAddr {
        let socket = back(ip);
        let address = socket.local_addr().unwrap();
        *self.shared.back.lock().unwrap() = socket;
        address
    }

    /// From now on nothing passes to the client.
    pub(crate) fn cut_back(&self) {
        self.shared.is_cut[0].store(true, Ordering::Relaxed);
    }

    /// From now on nothing passes.
    pub(crate) fn cut(&self) {
        self.shared.is_cut.iter().for_each(|is_cut| is_cut.store(true, Ordering::Relaxed));
    }

    /// From now on this address gets a copy of what goes to the server.
    pub(crate) fn mirror(&self, to: SocketAddr) {
        *self.shared.mirror.lock().unwrap() = Some(to);
    }

    /// Datagrams that went to the server.
    pub(crate) fn to_server(&self) -> u64 {
        self.shared.to_server.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic there has been printed
        }
    }
}

fn back(ip: Ipv4Addr) -> Arc<UdpSocket> {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.set_read_timeout(Some(PAUSE)).unwrap();
    Arc::new(socket)
}

impl Shared {
    fn carry(&self, is_forth: bool, seed: u64) {
        let mut chance = Chance(seed);
        let mut held: Option<Vec<u8>> = None;
        let mut buffer = [0; 65536];
        while !self.ended.load(Ordering::Relaxed) {
            let received = if is_forth {
                self.front.recv_from(&mut buffer).map(|(count, from)| {
                    *self.client.lock().unwrap() = Some(from);
                    count
                })
            } else {
                let back = Arc::clone(&self.back.lock().unwrap());
                back.recv(&mut buffer)
            };
            let Ok(count) = received else {
                held.take().into_iter().for_each(|late| self.send(is_forth, &late));
                continue;
            };
            let datagram = &buffer[..count];
            if self.is_cut[usize::from(is_forth)].load(Ordering::Relaxed) || chance.of(self.spoils.lost) {
                continue;
            }
            if held.is_none() && chance.of(self.spoils.late) {
                held = Some(datagram.to_vec());
                continue;
            }
            self.send(is_forth, datagram);
            if chance.of(self.spoils.doubled) {
                self.send(is_forth, datagram);
            }
            held.take().into_iter().for_each(|late| self.send(is_forth, &late));
        }
    }

    /// Sends a datagram on. One that the system does not take is lost, as on any path.
    fn send(&self, is_forth: bool, datagram: &[u8]) {
        if is_forth {
            self.to_server.fetch_add(1, Ordering::Relaxed);
            let back = Arc::clone(&self.back.lock().unwrap());
            let _ = back.send_to(datagram, self.server);
            let _ = self.mirror.lock().unwrap().map(|to| back.send_to(datagram, to));
        } else if let Some(client) = *self.client.lock().unwrap() {
            let _ = self.front.send_to(datagram, client);
        }
    }
}

/// A sequence of chances that a seed determines.
struct Chance(u64);

impl Chance {
    fn of(&mut self, per_thousand: u64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 1000 < per_thousand
    }
}
