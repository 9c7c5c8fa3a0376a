//! A path over UDP that changes the client's address, and can hold datagrams back or lose them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A path between a client and a server of UDP. [`UdpPath::move_to`] changes the address that the server sees.
#[derive(Clone, Debug)]
pub struct UdpPath {
    /// Where the client sends to.
    pub address: String,
    back: Arc<Mutex<Arc<UdpSocket>>>,
    server: SocketAddr,
    front: Arc<UdpSocket>,
    client: Arc<Mutex<Option<SocketAddr>>>,
    /// What the server sends waits here, if it is held back.
    held: Arc<Mutex<Option<Vec<Vec<u8>>>>>,
    /// How many datagrams of the server still pass, and how many were lost then.
    passes: Arc<[AtomicUsize; 2]>,
}

/// Longest datagram.
const DATAGRAM: usize = 64 * 1024;

impl UdpPath {
    /// A path to this server.
    pub fn to(server: &str) -> Self {
        let server: SocketAddr = server.strip_prefix("udp:").unwrap_or(server).parse().unwrap();
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = front.local_addr().unwrap().to_string();
        let first = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let path = Self {
            address,
            back: Arc::new(Mutex::new(first)),
            server,
            front,
            client: Arc::default(),
            held: Arc::default(),
            passes: Arc::new([AtomicUsize::new(usize::MAX), AtomicUsize::new(0)]),
        };
        let (front, back, client) = (path.front.clone(), path.back.clone(), path.client.clone());
        thread::spawn(move || {
            let mut bytes = vec![0; DATAGRAM];
            while let Ok((count, from)) = front.recv_from(&mut bytes) {
                *client.lock().unwrap() = Some(from);
                let socket = back.lock().unwrap().clone();
                let _ = socket.send_to(&bytes[..count], server); // lost, as on any path
            }
        });
        path.carry_back();
        path
    }

    /// From now on the server sees the client at this address; what it still sends to the earlier one is lost.
    pub fn move_to(&self, ip: IpAddr) -> SocketAddr {
        let socket = Arc::new(UdpSocket::bind((ip, 0)).unwrap());
        let address = socket.local_addr().unwrap();
        *self.back.lock().unwrap() = socket;
        self.carry_back();
        address
    }

    /// From now on, what the server sends waits.
    pub fn hold_back(&self) {
        self.held.lock().unwrap().get_or_insert_default();
    }

    /// From now on, this many datagrams of the server pass, and all others are lost.
    pub fn pass_only(&self, count: usize) {
        self.passes[0].store(count, Relaxed);
    }

    /// How many datagrams of the server were lost.
    pub fn lost(&self) -> usize {
        self.passes[1].load(Relaxed)
    }

    /// Whether the server has sent something that waits.
    pub fn holds(&self) -> bool {
        self.held.lock().unwrap().as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Passes on what waits, and what comes then.
    pub fn let_go(&self) {
        let held = self.held.lock().unwrap().take().unwrap_or_default();
        let client = self.client.lock().unwrap().unwrap();
        held.iter().for_each(|bytes| drop(self.front.send_to(bytes, client))); // lost, as on any path
    }

    fn carry_back(&self) {
        let socket = self.back.lock().unwrap().clone();
        let (front, back, client) = (self.front.clone(), self.back.clone(), self.client.clone());
        let (server, held, passes) = (self.server, self.held.clone(), self.passes.clone());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        thread::spawn(move || {
            let mut bytes = vec![0; DATAGRAM];
            while Arc::ptr_eq(&socket, &back.lock().unwrap()) && Arc::strong_count(&back) > 1 {
                let Ok((count, from)) = socket.recv_from(&mut bytes) else { continue };
                let client = *client.lock().unwrap();
                if passes[0].fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
                    passes[1].fetch_add(1, Relaxed);
                } else if from == server
                    && let Some(held) = &mut *held.lock().unwrap()
                {
                    held.push(bytes[..count].to_vec());
                } else if from == server
                    && let Some(client) = client
                {
                    let _ = front.send_to(&bytes[..count], client); // as above
                }
            }
        });
    }
}
