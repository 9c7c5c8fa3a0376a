//! The built-in origin: a small server of HTTP/1.1, HTTP/2 and gRPC that says what it received.
//!
//! It stands behind Weir's embedded default config, behind `weir origin` and `weir bench`, and behind many tests. It is
//! meant to cost so little that what is in front of it can be measured, and to answer everything that is useful for
//! trying out a gateway. It is not meant to face the internet: it has size limits, but no timeouts
//! beyond that of a TLS handshake.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that names these paths, as HTML or text by `Accept` |
//! | `/echo` | JSON: method, target, headers in order with their exact names, body length, and the body when it is UTF-8 of at most 64 KiB |
//! | `/body/{n}` | n bytes, such as `/body/1KiB` (the one that is rendered in advance) |
//! | `/random/{n}` | n random bytes, other ones each time; with `?seed=N` the same |
//! | `/varying/{n}` | 1 byte, then 2, up to n, then 1 again |
//! | `/chunked/{n}` | n bytes in chunks |
//! | `/stream/{n}` | n lines, one chunk each, 100 ms apart |
//! | `/sse/{n}` | n server-sent events, `?every=MS` apart (100) |
//! | `/drip/{n}` | n bytes, a few at a time, `?over=MS` (1000) |
//! | `/delay/{ms}` | `200` after so many milliseconds, at most 60000; exact to some microseconds |
//! | … `?tail=MS&share=PERCENT` | of all requests for this target, so many (1 %) after so many milliseconds instead: with 1 % each hundredth |
//! | … `?dist=uniform&to=MS` | between the two, spread evenly; with `&seed=N` by chance, as any of these |
//! | … `?dist=exponential` | with the number in the path as its mean |
//! | … `?dist=lognormal&sigma=S` | with the number in the path as its median; sigma 0.5 without one |
//! | `/status/{code}` | that status, 200 to 599 |
//! | `/headers/{n}` | n response headers, at most 1000 |
//! | `/upload` | reads any body; JSON with its length and CRC-32 |
//! | `/close` | answers, then closes the connection |
//! | `/reset` | a TCP reset in place of an answer; `/reset/{n}` after n bytes of a body of 2n |
//! | `/truncated/{n}` | a length of n and half of it, then closes; with `?chunked` n bytes without the last chunk |
//! | `/garbage` | bytes that are no HTTP, then closes |
//! | `/ws` | WebSocket echo |
//! | `/api/v1/helloworld/{name}` | a greeting as JSON |
//! | `/metrics` | requests, connections and bytes, for Prometheus |
//!
//! Anything else is a 404 in JSON. Every path takes any method; HEAD gets the headers alone. With [`Options::fixed`] the path does not matter.
//!
//! The same port speaks HTTP/2, by ALPN with TLS and by prior knowledge without or with it, and gRPC over that:
//! `helloworld.v1.Greeter` (proto/greeter.proto), `grpc.health.v1.Health` and server reflection. There an answer that is cut on purpose
//! ends its stream with a reset, and the connection goes on.
//!
//! *Layout:* `request.rs` reads heads and bodies, `connection.rs` is the life of one connection, `pages.rs` holds the
//! answers, with `delay.rs`, `slow.rs` and `faults.rs`; `websocket.rs` is the echo after an upgrade, `digest.rs` a checksum, `site.rs`
//! what connections share, `tls.rs` where a certificate comes from. `h2.rs` and `grpc.rs`, with their folders, are the other two
//! protocols; `stream.rs` is what all of them read from.

mod connection;
mod delay;
mod digest;
mod faults;
mod grpc;
mod h2;
mod pages;
mod request;
mod site;
mod slow;
mod stream;
mod tls;
mod websocket;

pub use pages::{PATHS, list};
pub use tls::Tls;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use weir_wire::tls::Handshake;

use crate::connection::Connection;
use crate::pages::Fixed;
use crate::site::{Shared, Site};
use crate::stream::Stream;

/// Connections that may wait to be accepted. The kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How an [`Origin`] is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen. Port 0 lets the system choose; [`Handle::address`] says which one it was.
    pub address: SocketAddr,
    /// Threads, each with its own listening socket and runtime. With one thread the address is not shared, so that a
    /// second origin on it is refused.
    pub threads: NonZeroUsize,
    /// Whether it speaks TLS, and with which certificate.
    pub tls: Tls,
    /// Answers every request, whatever its path, with 200 and a body of so many bytes, at most [`FIXED_MOST`]. Default none: paths
    /// decide.
    pub fixed: Option<usize>,
}

/// Largest body of [`Options::fixed`], which is held in memory.
pub const FIXED_MOST: usize = 64 << 20;

impl Default for Options {
    /// One thread on a free port of 127.0.0.1.
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            threads: NonZeroUsize::MIN,
            tls: Tls::Off,
            fixed: None,
        }
    }
}

/// The origin. Only a name to start it by: what runs is held by its [`Handle`].
#[derive(Debug)]
pub struct Origin;

impl Origin {
    /// Binds and starts the threads; when it returns, connections are accepted.
    ///
    /// It brings its own threads and runtimes, so it may be called from anywhere, also inside a runtime.
    ///
    /// # Errors
    /// The address cannot be bound, the certificate cannot be used, or a thread or its runtime cannot be made.
    pub fn start(options: Options) -> io::Result<Handle> {
        let (stop, stopped) = watch::channel(false);
        let mut handle = Handle { address: options.address, stop, threads: Vec::new() };
        let share = options.threads.get() > 1;
        let fixed = options.fixed.map(|length| Fixed::new(length.min(FIXED_MOST)));
        let tls = options.tls.policy(options.address.ip())?;
        let shared = Shared::new(options.threads.get(), tls, fixed);
        for number in 0..options.threads.get() {
            let listener = bind(handle.address, share)?;
            handle.address = listener.local_addr()?;
            let (stopped, site) = (stopped.clone(), shared.site(number));
            let (tell, told) = mpsc::channel();
            let thread = thread::Builder::new().name(format!("origin-{number}")).spawn(move || {
                // Made where it runs: neither it nor its streams change threads.
                match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                    Ok(runtime) => {
                        let _ = tell.send(Ok(())); // whoever asked waits for it
                        run(&runtime, listener, site, stopped);
                    }
                    Err(e) => drop(tell.send(Err(e))),
                }
            })?;
            handle.threads.push(thread);
            told.recv().unwrap_or_else(|_| Err(io::Error::other("a thread of the origin ended")))?;
        }
        Ok(handle)
    }
}

/// A running origin. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Handle {
    /// The address it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listening sockets and every connection, finished or not, and waits for the threads.
    pub fn stop(self) {}
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn bind(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if share {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Runs until told to stop. The runtime ends with it, and every connection with the runtime.
fn run(runtime: &LocalRuntime, listener: TcpListener, site: Arc<Site>, mut stopped: watch::Receiver<bool>) {
    runtime.block_on(async move {
        tokio::select! {
            () = accept(listener, site) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    });
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                drop(tokio::task::spawn_local(serve(weir_wire::Stream::Tcp(stream), Arc::clone(&site))));
            }
            // Out of descriptors, most likely: let some connections end first instead of spinning.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One connection from its handshake to its end.
async fn serve(stream: weir_wire::Stream, site: Arc<Site>) {
    let stream = match site.tls() {
        None => stream,
        Some(tls) => {
            // In a box: the state of a handshake is large, and most origins have none.
            let handshake = Box::pin(tokio::time::timeout(HANDSHAKE, tls.accept(stream)));
            let Ok(Ok(Handshake::Client(stream))) = handshake.await else { return };
            stream
        }
    };
    Connection::new(Stream::wire(stream, Arc::clone(&site.cells)), site).serve().await;
}

#[cfg(test)]
mod tests;
