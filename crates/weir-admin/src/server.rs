//! One bound address of the admin listener: accepts connections within limits, and speaks HTTP/1.1.

use crate::api::{Api, Remote};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use weir_telemetry::log;
use weir_wire::Peer;
use weir_wire::listen::{self, Address, BoundSocket, Listener};
use weir_wire::tls::ServerTls;

/// Most concurrent connections. A further one replaces the oldest idle connection, so that idle ones cannot keep
/// a probe out. Worst case 64 × (16 KiB + one answer).
const CONNECTIONS: usize = 64;

/// Timeout of a request head. It is also the idle timeout, since the wait for the next head begins immediately.
const HEAD_WAIT: Duration = Duration::from_secs(10);

/// Largest head, in bytes. More is 431.
const HEAD_BYTES: usize = 16 * 1024;

/// Most header fields. More is 431.
const HEAD_FIELDS: usize = 64;

/// Longest lifetime of a connection; it closes after the exchange in progress. With [`END_WAIT`], this bounds the
/// cost of a client that does not read.
const MAX_AGE: Duration = Duration::from_secs(60);

/// How long that exchange may take before it is aborted.
const END_WAIT: Duration = Duration::from_secs(30);

/// Pause after running out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound address.
pub(crate) struct Server {
    /// The address as written in the config.
    pub(crate) asked: Address,
    /// The bound address, with the real port.
    pub(crate) actual: Address,
    close: watch::Sender<bool>,
    listeners: Vec<Arc<Listener>>,
    accepting: Vec<JoinHandle<JoinSet<()>>>,
}

/// What happens to the file of a Unix socket when the socket is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketFile {
    /// Another process listens on it.
    Keep,
    Remove,
}

/// A connection that may be closed to make room for another.
struct Held {
    task: tokio::task::AbortHandle,
    busy: Arc<AtomicBool>,
}

// === impl Server ===

impl Server {
    /// Binds and serves. Call it within the runtime.
    ///
    /// # Errors
    /// The error of the operating system, with the process id of the address's owner.
    pub(crate) fn start(asked: &Address, api: &Arc<Api>) -> io::Result<Self> {
        let bound = listen::bind_alone(asked)?;
        if let Address::Unix(path) = &bound.address {
            let others = api.knows_users();
            set_mode(path, if others { 0o666 } else { 0o600 })?;
        }
        Self::take_over(asked.clone(), bound.address, bound.sockets, api)
    }

    /// Serves sockets that are open already. Call it within the runtime.
    ///
    /// # Errors
    /// The runtime cannot register the sockets.
    pub(crate) fn take_over(
        asked: Address,
        actual: Address,
        sockets: Vec<BoundSocket>,
        api: &Arc<Api>,
    ) -> io::Result<Self> {
        let listeners = sockets.into_iter().map(|s| Listener::new(s).map(Arc::new));
        let listeners: Vec<_> = listeners.collect::<io::Result<_>>()?;
        let (close, closing) = watch::channel(false);
        let accepting =
            listeners.iter().map(|l| tokio::spawn(accept(Arc::clone(l), Arc::clone(api), closing.clone())));
        let accepting = accepting.collect();
        Ok(Self { asked, actual, close, listeners, accepting })
    }

    /// The address as written, the address as bound, and a duplicate of the socket.
    pub(crate) fn lend(&self) -> io::Result<(Address, Address, BoundSocket)> {
        let listener = self.listeners.first().ok_or(io::ErrorKind::NotFound)?;
        Ok((self.asked.clone(), self.actual.clone(), listener.lend()?))
    }

    /// Stops listening and returns as soon as the address is free. Exchanges in progress may finish; idle
    /// connections are closed. The returned set holds the remaining connections.
    pub(crate) async fn close(self, file: SocketFile) -> JoinSet<()> {
        self.close.send_replace(true);
        let mut connections = JoinSet::new();
        for accepting in self.accepting {
            let mut left = accepting.await.unwrap_or_default();
            connections.spawn(async move { while left.join_next().await.is_some() {} });
        }
        if let (Address::Unix(path), SocketFile::Remove) = (&self.actual, file) {
            let _ = std::fs::remove_file(path); // it may have been removed already
        }
        connections
    }
}

/// Sets the mode of a Unix socket. By default only the user that runs the gateway may connect. If `admin.tokens`
/// names user ids, everyone may connect and is then identified. Between bind and this call, the umask applies.
fn set_mode(path: &std::path::Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

async fn accept(listener: Arc<Listener>, api: Arc<Api>, mut closing: watch::Receiver<bool>) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut held: VecDeque<Held> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return connections,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                // Out of descriptors, or the peer left early; neither is a reason to stop.
                log::debug("admin accept failed", &[("error", &e)]);
                if weir_wire::limits::ran_out(&e) {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        held.retain(|held| !held.task.is_finished());
        if held.len() >= CONNECTIONS && !make_room(&mut held) {
            continue; // all connections are busy, so this one is closed
        }
        let busy = Arc::new(AtomicBool::new(false));
        let (api, closing, working) = (Arc::clone(&api), closing.clone(), Arc::clone(&busy));
        let task = match peer {
            Peer::Address(_) => TcpStream::from_std(socket.into()).map(|stream| {
                let from = Remote { peer, uid: None, certificate: None, secure: false };
                match api.tls() {
                    Some(tls) => connections.spawn(secured(stream, tls, from, api, working, closing)),
                    None => connections.spawn(connection(stream, from, api, working, closing)),
                }
            }),
            Peer::Local => UnixStream::from_std(socket.into()).map(|stream| {
                let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
                let from = Remote { peer, uid, certificate: None, secure: false };
                connections.spawn(connection(stream, from, api, working, closing))
            }),
        };
        match task {
            Ok(task) => held.push_back(Held { task, busy }),
            Err(e) => log::debug("admin accept failed", &[("error", &e)]),
        }
    }
}

/// Closes the oldest idle connection.
fn make_room(held: &mut VecDeque<Held>) -> bool {
    let oldest = held.iter().position(|held| !held.busy.load(Ordering::Relaxed));
    let Some(oldest) = oldest.and_then(|oldest| held.remove(oldest)) else { return false };
    oldest.task.abort();
    true
}

/// Serves a TLS connection. A peer that never completes the handshake costs no more than one that sends no head.
async fn secured(
    stream: TcpStream,
    tls: Arc<ServerTls>,
    from: Remote,
    api: Arc<Api>,
    busy: Arc<AtomicBool>,
    mut closing: watch::Receiver<bool>,
) {
    let accepted = tokio::select! {
        biased;
        _ = closing.wait_for(|closing| *closing) => return,
        accepted = tokio::time::timeout(HEAD_WAIT, tls.accept_beside(stream)) => accepted,
    };
    match accepted {
        Ok(Ok((stream, certificate))) => {
            connection(stream, Remote { certificate, secure: true, ..from }, api, busy, closing).await;
        }
        Ok(Err(e)) => log::debug("admin handshake failed", &[("peer", &from.peer), ("error", &e)]),
        Err(_) => {
            log::debug("admin handshake failed", &[("peer", &from.peer), ("error", &"it took too long")])
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    from: Remote,
    api: Arc<Api>,
    busy: Arc<AtomicBool>,
    mut closing: watch::Receiver<bool>,
) {
    let service = service_fn(|request| {
        let (api, busy, from) = (&api, &busy, &from);
        async move {
            busy.store(true, Ordering::Relaxed);
            let answer = api.answer(from, request).await;
            busy.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        .half_close(true) // `printf … | nc` is a client too
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    tokio::select! {
        _ = &mut served => return, // a peer that leaves is not logged
        _ = closing.wait_for(|closing| *closing) => {}
        () = tokio::time::sleep(MAX_AGE) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(END_WAIT, served).await; // aborted after that
}
