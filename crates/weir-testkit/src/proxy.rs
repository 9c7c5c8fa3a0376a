//! A forward proxy: supports CONNECT tunnels, and requests in absolute form, which it forwards unchanged.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::stop_listening;

/// A proxy on a free port, running until dropped. It resolves every name below `.weir.test` to 127.0.0.1.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The answer to CONNECT, if the proxy refuses it.
    refusal: Option<String>,
    heads: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

impl Proxy {
    /// Starts a proxy that lets everything through.
    pub fn start() -> Self {
        Self::with(None)
    }

    /// Starts a proxy that answers each request with this text and closes.
    pub fn refusing(answer: &str) -> Self {
        Self::with(Some(answer.to_owned()))
    }

    fn with(refusal: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { refusal, heads: Mutex::default(), stopped: AtomicBool::new(false) });
        let accept = {
            let shared = Arc::clone(&shared);
            move || {
                for client in listener.incoming().map_while(Result::ok) {
                    if shared.stopped.load(Ordering::Relaxed) {
                        return stop_listening(&listener);
                    }
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || serve(client, &shared));
                }
            }
        };
        Self { address, shared, thread: Some(thread::spawn(accept)) }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The first head of each connection so far.
    pub fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the accept loop
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves one connection. Any error ends it, and the test sees that on its own side.
fn serve(mut client: TcpStream, shared: &Shared) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    shared.heads.lock().unwrap().push(text.clone());
    if let Some(refusal) = &shared.refusal {
        client.write_all(refusal.as_bytes()).ok()?;
        return Some(());
    }
    let target = text.split(' ').nth(1)?;
    let authority = target.strip_prefix("http://").unwrap_or(target).split('/').next()?;
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let host = if host.ends_with(".weir.test") { "127.0.0.1" } else { host.trim_matches(['[', ']']) };
    let mut server = TcpStream::connect((host, port.parse().ok()?)).ok()?;
    if text.starts_with("CONNECT ") {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    } else {
        server.write_all(&head).ok()?;
    }
    let back = (server.try_clone().ok()?, client.try_clone().ok()?);
    let back = thread::spawn(move || pass(back.0, back.1));
    pass(client, server);
    back.join().ok()
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to); // the end of either direction ends both
    let _ = to.shutdown(Shutdown::Write);
}
