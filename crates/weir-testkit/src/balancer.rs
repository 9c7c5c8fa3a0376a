//! A TCP balancer: sends each new connection to a backend that reports ready.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::wire::DEADLINE;

/// Interval between readiness checks of each backend.
const ASK: Duration = Duration::from_millis(10);

/// A balancer on a free port, running until dropped.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    backends: Mutex<Vec<Backend>>,
    stopped: AtomicBool,
}

#[derive(Clone, Debug)]
struct Backend {
    address: String,
    /// Its admin listener, which serves `/readyz`.
    admin: String,
    is_ready: bool,
    /// Connections sent to it.
    got: usize,
}

impl Balancer {
    /// Starts a balancer without backends.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accept = {
            let shared = Arc::clone(&shared);
            move || {
                for client in listener.incoming().map_while(Result::ok) {
                    if shared.stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || drop(shared.serve(&client)));
                }
            }
        };
        let ask = {
            let shared = Arc::clone(&shared);
            move || {
                while !shared.stopped.load(Ordering::Relaxed) {
                    shared.ask_all();
                    thread::park_timeout(ASK);
                }
            }
        };
        Self { address, shared, threads: vec![thread::spawn(accept), thread::spawn(ask)] }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a backend by its address and its admin listener. It gets no connections until it reports ready.
    pub fn add(&self, address: &str, admin: &str) {
        let backend =
            Backend { address: address.to_owned(), admin: admin.to_owned(), is_ready: false, got: 0 };
        self.shared.lock().push(backend);
    }

    /// Whether a backend was ready at the last check.
    pub fn is_ready(&self, address: &str) -> bool {
        self.shared.lock().iter().any(|backend| backend.address == address && backend.is_ready)
    }

    /// How many connections a backend received.
    pub fn got(&self, address: &str) -> usize {
        self.shared.lock().iter().find(|backend| backend.address == address).map_or(0, |backend| backend.got)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the accept loop
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Backend>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_all(&self) {
        let admins: Vec<String> = self.lock().iter().map(|backend| backend.admin.clone()).collect();
        for admin in admins {
            let is_ready = says_ready(&admin).unwrap_or(false);
            self.lock()
                .iter_mut()
                .filter(|backend| backend.admin == admin)
                .for_each(|b| b.is_ready = is_ready);
        }
    }

    /// The ready backend with the fewest connections.
    fn pick(&self) -> Option<String> {
        let mut backends = self.lock();
        let next =
            backends.iter_mut().filter(|backend| backend.is_ready).min_by_key(|backend| backend.got)?;
        next.got += 1;
        Some(next.address.clone())
    }

    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        let until = Instant::now() + DEADLINE;
        let backend = loop {
            if let Some(stream) = self.pick().and_then(|address| TcpStream::connect(address).ok()) {
                break stream;
            }
            if Instant::now() > until || self.stopped.load(Ordering::Relaxed) {
                return client.shutdown(Shutdown::Both);
            }
            thread::park_timeout(ASK);
        };
        client.set_nodelay(true)?;
        backend.set_nodelay(true)?;
        thread::scope(|scope| {
            scope.spawn(|| pass(client, &backend));
            pass(&backend, client);
        });
        Ok(())
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to); // either end may be gone
    let _ = to.shutdown(Shutdown::Write);
    // Signals the sender that nobody reads any more.
    let _ = from.shutdown(Shutdown::Read);
}

fn says_ready(admin: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}
