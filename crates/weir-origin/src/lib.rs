//! The built-in origin: a small HTTP/1.1, HTTP/2 and gRPC server that reports what it received.
//!
//! It serves Weir's embedded default config, `weir origin`, `weir bench` and many tests. It costs so little that the
//! gateway in front of it can be measured, and it has responses for everything useful in trying out a gateway. Do not
//! expose it to the internet: it has size limits, but no timeout except that of the TLS handshake.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that lists these paths, as HTML or text by `Accept` |
//! | `/echo` | JSON: method, target, headers (order, exact names), body length; the body if UTF-8, at most 64 KiB |
//! | `/body/{n}` | n bytes: `1000`, `3MiB`, `1KiB` (the only one that is rendered in advance) |
//! | `/random/{n}` | n random bytes, different each time; the same with `?seed=N` |
//! | `/varying/{n}` | 1 byte, then 2, up to n, then 1 again |
//! | `/chunked/{n}` | n bytes in chunks of 16 KiB |
//! | `/stream/{n}` | n lines, one chunk each, 100 ms apart |
//! | `/sse/{n}` | n server-sent events, `?every=MS` apart (100) |
//! | `/drip/{n}` | n bytes, a few at a time, `?over=MS` (1000) |
//! | `/delay/{ms}` | `200` after this many milliseconds, at most 60000; exact to some microseconds |
//! | … `?tail=MS&share=PERCENT` | MS for this share of the target's requests (1 %): with 1 %, every hundredth |
//! | … `?dist=uniform&to=MS` | between the two, evenly spread; `&seed=N` makes this or any distribution random |
//! | … `?dist=exponential` | with the number in the path as its mean |
//! | … `?dist=lognormal&sigma=S` | with the number in the path as its median; sigma 0.5 without one |
//! | `/status/{code}` | that status, 200 to 599 |
//! | `/headers/{n}` | n response headers, at most 1000 |
//! | `/upload` | reads any body; JSON with its length and CRC-32 |
//! | `/close` | answers, then closes the connection |
//! | `/reset` | a TCP reset instead of a response; `/reset/{n}` after n bytes of a body of 2n |
//! | `/truncated/{n}` | announces n bytes, sends half, closes; with `?chunked`, n bytes without the last chunk |
//! | `/garbage` | bytes that are not HTTP, then closes |
//! | `/ws` | WebSocket echo, over HTTP/1.1 only |
//! | `/api/v1/helloworld/{name}` | a greeting as JSON, like `SayHello` by gRPC |
//! | `/metrics` | requests, connections and bytes of all threads, for Prometheus |
//!
//! Any other path is a 404 in JSON. Every path accepts any method; HEAD gets only the header. With [`Options::fixed`]
//! the path does not matter.
//!
//! The same port speaks HTTP/2, by ALPN with TLS, and by prior knowledge with or without TLS; and gRPC over that:
//! `helloworld.v1.Greeter` (proto/greeter.proto), `grpc.health.v1.Health` and server reflection. Over HTTP/2, a
//! response that is cut on purpose resets its stream, and the connection stays open.
//!
//! *Layout:* `request.rs` parses heads and bodies, `serve.rs` serves one `connection.rs`, `pages.rs` has the
//! responses, with `delay.rs`, `slow.rs` and `faults.rs`, made of the parts in `response.rs` and `fixed.rs`.
//! `websocket.rs` is the echo after an upgrade, `digest.rs` a checksum, `site.rs` the state that connections share,
//! `tls.rs` the source of certificates. `h2.rs` and `grpc.rs`, with their folders, are the other two protocols, which
//! send by `window.rs`; `stream.rs` is the transport under all of them.

mod connection;
mod delay;
mod digest;
mod faults;
mod fixed;
mod grpc;
mod h2;
mod pages;
mod request;
mod response;
mod serve;
mod site;
mod slow;
mod stream;
mod tls;
mod websocket;
mod window;

pub use pages::{PATHS, list};
pub use tls::Tls;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use weir_wire::listen::{self, Address, Beside, BoundSocket, Listener};
use weir_wire::tls::Handshake;
use weir_wire::{Socket, Transport};

use crate::connection::Connection;
use crate::fixed::Fixed;
use crate::site::{Shared, Site};
use crate::stream::Stream;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Options of an [`Origin`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on. Port 0 lets the system choose; [`Handle::address`] returns the chosen one.
    pub address: SocketAddr,
    /// Number of threads, each with its own listening socket and runtime.
    pub threads: NonZeroUsize,
    /// Whether to use TLS, and with which certificate.
    pub tls: Tls,
    /// Answers every request, whatever its path, with 200 and a body of this many bytes, at most [`FIXED_MOST`].
    /// Default none: the path decides.
    pub fixed: Option<usize>,
}

/// Largest body of [`Options::fixed`], which is kept in memory.
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

/// The origin. Only serves to start it: its [`Handle`] owns what runs.
#[derive(Debug)]
pub struct Origin;

impl Origin {
    /// Binds and starts the threads. When it returns, the origin accepts connections.
    ///
    /// It creates its own threads and runtimes, so it can be called from anywhere, even inside a runtime.
    ///
    /// # Errors
    /// If the address cannot be bound, the certificate is unusable, or a thread or its runtime cannot be created.
    pub fn start(options: Options) -> io::Result<Handle> {
        let (stop, stopped) = watch::channel(false);
        let bound = listen::bind(&Address::Tcp(options.address), options.threads.get(), Beside::Nobody)?;
        let mut handle = Handle { address: options.address, stop, threads: Vec::new() };
        if let Address::Tcp(address) = bound.address {
            handle.address = address;
        }
        let fixed = options.fixed.map(|length| Fixed::new(length.min(FIXED_MOST)));
        let tls = options.tls.policy(options.address.ip())?;
        let shared = Shared::new(options.threads.get(), tls, fixed);
        for (number, listener) in bound.sockets.into_iter().enumerate() {
            let (stopped, site) = (stopped.clone(), shared.site(number));
            let (tell, told) = mpsc::channel();
            let thread = thread::Builder::new().name(format!("origin-{number}")).spawn(move || {
                // Created on its own thread: neither it nor its streams change threads.
                match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                    Ok(runtime) => {
                        let _ = tell.send(Ok(())); // the caller waits for it
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
    /// The address that it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listening sockets and every connection, even unfinished ones, and waits for the threads.
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

/// Runs until told to stop. Dropping the runtime then drops every connection.
fn run(runtime: &LocalRuntime, listener: BoundSocket, site: Arc<Site>, mut stopped: watch::Receiver<bool>) {
    runtime.block_on(async move {
        tokio::select! {
            () = accept(listener, site) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    });
}

async fn accept(listener: BoundSocket, site: Arc<Site>) {
    let Ok(listener) = Listener::new(listener) else { return };
    loop {
        match listener.accept().await.and_then(|(socket, peer)| Socket::of_runtime(socket, peer)) {
            Ok(socket) => drop(tokio::task::spawn_local(serve(socket, Arc::clone(&site)))),
            // Probably out of descriptors. Let some connections end instead of spinning.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection, from its handshake to its end.
async fn serve(socket: Socket, site: Arc<Site>) {
    let transport = match site.tls() {
        None => Transport::Plain(socket),
        Some(tls) => {
            // Boxed: the state of a handshake is large, and most origins use no TLS.
            let handshake = Box::pin(tokio::time::timeout(HANDSHAKE, tls.accept(socket)));
            let Ok(Ok(Handshake::Client(stream))) = handshake.await else { return };
            stream.into()
        }
    };
    Connection::new(Stream::wire(transport, Arc::clone(&site.cells)), site).serve().await;
}

#[cfg(test)]
mod tests;
