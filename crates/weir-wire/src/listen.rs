//! Listening sockets: one per core and address, so that the kernel spreads connections and cores share no lock. UDP
//! sockets, which weir-quic opens, pass through here when they change hands.

#![allow(unsafe_code)] // the runtime must know that a descriptor stays open

use crate::{Peer, limits, port_owner};
use rustix::net::{AddressFamily, SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// UDP, for QUIC. No upstream has such an address.
    Udp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether the system chooses the port.
    pub const fn is_any_port(&self) -> bool {
        matches!(self, Self::Tcp(address) | Self::Udp(address) if address.port() == 0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Connections the kernel queues for one core before it drops new ones. The system's `net.core.somaxconn` (4,096 by
/// default) caps it.
pub const BACKLOG: i32 = 4096;

/// The idle time before we probe the peer. With three probes, 3 s apart, a dead peer ends the connection after 10 s +
/// 3 × 3 s = 19 s, below the 20 s that we promise. The kernel sends no probes while data is in flight; our own send
/// timeouts bound that case. TCP_USER_TIMEOUT would not do: it also kills a living peer that keeps its window closed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;

/// A bound address that nobody serves yet: one socket per core.
#[derive(Debug)]
pub struct Bound {
    /// The bound address, with the real port if port 0 was requested.
    pub address: Address,
    /// One socket per core. For a Unix socket they are duplicates of one socket.
    pub sockets: Vec<BoundSocket>,
}

/// A listening socket, or a UDP socket, that belongs to no runtime yet.
#[derive(Debug)]
pub struct BoundSocket(OwnedFd);

/// A listening socket in the current thread's runtime. A core uses a [`CoreListener`](crate::CoreListener) instead.
#[derive(Debug)]
pub struct Listener(AsyncFd<BoundSocket>);

/// Whether we may bind an address that one of our own sockets already covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// No.
    Nobody,
    /// Yes: a reload moves a listener from `127.0.0.1:80` to `0.0.0.0:80` before it closes the old one. During an
    /// upgrade, the new process also binds beside its parent.
    Ourselves,
}

/// Binds an address for `cores` cores.
///
/// SO_REUSEPORT would let a second process bind the same address and take half of the connections. So we first bind
/// without it, which fails while any process listens there.
///
/// # Errors
/// The system's error, with the pid of the owner if the address is taken.
pub fn bind(address: &Address, cores: usize, beside: Beside) -> io::Result<Bound> {
    match address {
        Address::Tcp(asked) => bind_tcp(*asked, cores, beside),
        Address::Udp(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "weir-quic opens UDP sockets")),
        Address::Unix(path) => bind_unix(path, cores),
    }
}

/// Binds an address for one socket that shares it with no other: further sockets on the address are refused, even those
/// that [`bind`] makes for this process. For the admin listener, whose clients send tokens.
///
/// # Errors
/// As [`bind`].
pub fn bind_alone(address: &Address) -> io::Result<Bound> {
    match address {
        Address::Tcp(asked) => {
            let (socket, address) = listening(*asked, Sharing::Alone).map_err(|e| refusal(*asked, &e))?;
            Ok(Bound { address: Address::Tcp(address), sockets: vec![socket] })
        }
        // One socket of its own in any case.
        Address::Udp(_) | Address::Unix(_) => bind(address, 1, Beside::Nobody),
    }
}

fn bind_tcp(asked: SocketAddr, cores: usize, beside: Beside) -> io::Result<Bound> {
    if asked.port() != 0 {
        let probe = tcp_socket(asked)?;
        if let Err(e) = probe.bind(&asked.into()) {
            let ours = beside == Beside::Ourselves && port_owner::of(asked).is_some_and(is_ours);
            if e.kind() != io::ErrorKind::AddrInUse || !ours {
                return Err(refusal(asked, &e));
            }
        }
    }
    let mut address = asked;
    let mut sockets = Vec::with_capacity(cores);
    for _ in 0..cores.max(1) {
        let (socket, bound) = listening(address, Sharing::Cores).map_err(|e| refusal(asked, &e))?;
        address = bound;
        sockets.push(socket);
    }
    Ok(Bound { address: Address::Tcp(address), sockets })
}

/// Whether further sockets may bind the address of a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// No.
    Alone,
    /// Yes, those of this user: each core has one.
    Cores,
}

/// A listening socket, and the address that it got.
fn listening(address: SocketAddr, sharing: Sharing) -> io::Result<(BoundSocket, SocketAddr)> {
    let socket = tcp_socket(address)?;
    socket.set_reuse_port(sharing == Sharing::Cores)?;
    socket.bind(&address.into())?;
    // Accepted sockets inherit these options, which saves system calls per connection.
    keep_alive(&SockRef::from(&socket))?;
    socket.set_tcp_nodelay(true)?;
    socket.listen(BACKLOG)?;
    let listener: std::net::TcpListener = socket.into();
    let bound = listener.local_addr()?;
    Ok((BoundSocket(listener.into()), bound))
}

/// Why an address cannot be listened on, with the process that has it.
fn refusal(asked: SocketAddr, e: &io::Error) -> io::Error {
    let text = match (e.kind(), port_owner::of(asked)) {
        (io::ErrorKind::AddrInUse, Some(pid)) => format!("{asked} is taken by process {pid}"),
        (io::ErrorKind::AddrInUse, None) => format!("{asked} is taken by another process"),
        (io::ErrorKind::PermissionDenied, _) => {
            format!("cannot listen on {asked}: {e}{}", privileged(asked.port()))
        }
        _ => format!("cannot listen on {asked}: {e}"),
    };
    io::Error::new(e.kind(), text)
}

/// Whether a process is this one or the parent it replaces.
fn is_ours(pid: u32) -> bool {
    pid == std::process::id() || pid == std::os::unix::process::parent_id()
}

/// If a low port lacks a privilege, how to let a process without root listen on it (capabilities(7), ip(7)).
fn privileged(port: u16) -> String {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first: u16 = first.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024);
    if port >= first {
        return String::new();
    }
    format!(
        "; ports below {first} need CAP_NET_BIND_SERVICE: `AmbientCapabilities=CAP_NET_BIND_SERVICE` in a systemd unit, \
         `setcap cap_net_bind_service=+ep` on the program, or `sysctl net.ipv4.ip_unprivileged_port_start={port}`"
    )
}

fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // connections of an earlier process may be in TIME_WAIT
    if address.is_ipv6() {
        // `[::]` is both families whatever net.ipv6.bindv6only says, as the check of addresses assumes.
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

fn bind_unix(path: &Path, cores: usize) -> io::Result<Bound> {
    if UnixStream::connect(path).is_ok() {
        let text = format!("unix:{} is taken by another process", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    use std::os::unix::fs::FileTypeExt;
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        std::fs::remove_file(path)?; // left by a killed process
    }
    let listener = UnixListener::bind(path)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot listen on unix:{}: {e}", path.display())))?;
    listener.set_nonblocking(true)?;
    let first = BoundSocket(listener.into());
    let others: io::Result<Vec<_>> = (1..cores).map(|_| first.try_clone()).collect();
    let sockets = std::iter::once(first).chain(others?).collect();
    Ok(Bound { address: Address::Unix(path.to_owned()), sockets })
}

/// Sets keepalive so that we detect a dead peer of an idle connection within 20 s.
pub(crate) fn keep_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&probes)
}

impl BoundSocket {
    /// Wraps a listening socket that another process opened; returns it with its address.
    ///
    /// # Errors
    /// When the descriptor is not a socket, or is neither TCP nor UDP nor a Unix socket with a path.
    pub fn of(descriptor: OwnedFd) -> io::Result<(Self, Address)> {
        let socket = Socket::from(descriptor);
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let address = match (address.as_socket(), address.as_pathname()) {
            (Some(udp), _) if socket.r#type()? == Type::DGRAM => Address::Udp(udp),
            (Some(tcp), _) => {
                // The options `bind` sets; the process that opened the socket may not have set them.
                keep_alive(&SockRef::from(&socket))?;
                socket.set_tcp_nodelay(true)?;
                Address::Tcp(tcp)
            }
            (None, Some(path)) => Address::Unix(path.to_owned()),
            (None, None) => {
                let text = "it is neither a TCP or UDP socket nor a Unix socket with a path";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        Ok((Self(socket.into()), address))
    }

    /// Wraps a socket of any kind, to change hands.
    pub fn any(descriptor: impl Into<OwnedFd>) -> Self {
        Self(descriptor.into())
    }

    /// What tells a socket and its duplicates from all others: its inode number.
    ///
    /// # Errors
    /// Never for an open descriptor.
    pub fn id(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.0)?.st_ino)
    }

    /// Duplicates the socket.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

impl From<BoundSocket> for OwnedFd {
    fn from(socket: BoundSocket) -> Self {
        socket.0
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Distributes sockets that another process opened over `cores` cores, so that every accept queue is served. With
/// more sockets than cores, a core gets several; with fewer, cores share one.
///
/// # Errors
/// When no descriptor is left.
pub fn spread(sockets: Vec<BoundSocket>, cores: usize) -> io::Result<Vec<Vec<BoundSocket>>> {
    let count = sockets.len();
    let mut of_core: Vec<Vec<BoundSocket>> = (0..cores).map(|_| Vec::new()).collect();
    if count == 0 || cores == 0 {
        return Ok(of_core);
    }
    for (core, its) in of_core.iter_mut().enumerate().skip(count) {
        its.push(sockets[core % count].try_clone()?);
    }
    for (number, socket) in sockets.into_iter().enumerate() {
        of_core[number % cores].push(socket);
    }
    Ok(of_core)
}

impl AsRawFd for BoundSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Listener {
    /// Duplicates the socket, to hand it to another process.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn lend(&self) -> io::Result<BoundSocket> {
        self.0.get_ref().try_clone()
    }

    /// Registers a bound socket with the runtime of the calling thread.
    ///
    /// # Errors
    /// When the runtime cannot register it.
    pub fn new(socket: BoundSocket) -> io::Result<Self> {
        // SAFETY: the socket owns its descriptor, and the `AsyncFd` owns the socket.
        Ok(Self(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?))
    }

    /// Accepts the next connection. Cancel safe.
    ///
    /// # Errors
    /// The system's error; see [`crate::limits::ran_out`].
    pub async fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        self.0.async_io(Interest::READABLE, accept).await
    }
}

/// Accepts a connection if one is queued. It is non-blocking, which saves a system call.
pub(crate) fn accept(listener: &BoundSocket) -> io::Result<(OwnedFd, Peer)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = acceptfrom_with(listener, flags)?;
    let peer = peer.ok_or(io::ErrorKind::AddrNotAvailable)?; // the kernel reports every peer
    if peer.address_family() == AddressFamily::UNIX {
        return Ok((socket, Peer::Local));
    }
    Ok((socket, Peer::Address(SocketAddr::try_from(peer)?)))
}

/// Accepts connections until the queue is empty or no descriptor is left.
pub(crate) fn queued(accept: impl Fn() -> io::Result<(OwnedFd, Peer)>) -> Vec<(OwnedFd, Peer)> {
    let mut all = Vec::new();
    for _ in 0..BACKLOG {
        match accept() {
            Ok(accepted) => all.push(accepted),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || limits::ran_out(&e) => break,
            Err(_) => {} // this connection failed before we accepted it
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_names_its_owner() {
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let bound = bind(&any, 2, Beside::Nobody).unwrap();
        assert_eq!(bound.sockets.len(), 2);
        let error = bind(&bound.address, 1, Beside::Nobody).unwrap_err();
        assert!(bind(&bound.address, 1, Beside::Ourselves).is_ok());
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    }

    /// Even a reload, which may bind beside our own sockets, gets no part of such an address.
    #[test]
    fn an_address_that_was_bound_alone_is_shared_with_nobody() {
        let at = |ip: &str, port: u16| Address::Tcp(SocketAddr::new(ip.parse().unwrap(), port));
        for (ip, beside) in [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::", "0.0.0.0")] {
            let shared = bind(&at(ip, 0), 1, Beside::Nobody).unwrap();
            let alone = bind_alone(&at(ip, 0)).unwrap();
            let again = |bound: &Bound| {
                let Address::Tcp(address) = bound.address else { panic!("{bound:?}") };
                bind(&at(beside, address.port()), 1, Beside::Ourselves)
            };
            assert!(again(&shared).is_ok(), "{beside} beside {ip}");
            let error = again(&alone).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{beside} beside {ip}");
            assert!(error.to_string().contains("is taken by process"), "{error}");
        }
    }

    #[test]
    fn every_inherited_socket_is_served() {
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let counts = |sockets, cores| {
            let bound = bind(&any, sockets, Beside::Nobody).unwrap();
            spread(bound.sockets, cores).unwrap().iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(counts(4, 4), [1, 1, 1, 1]);
        assert_eq!(counts(5, 2), [3, 2]);
        assert_eq!(counts(1, 3), [1, 1, 1]);
        assert_eq!(spread(Vec::new(), 2).unwrap().len(), 2);
    }

    #[test]
    fn a_unix_socket_left_behind_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("weir-listen-{}.sock", std::process::id()));
        let address = Address::Unix(path.clone());
        let first = bind(&address, 1, Beside::Nobody).unwrap();
        assert_eq!(bind(&address, 1, Beside::Nobody).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(bind(&address, 1, Beside::Nobody).is_ok());
        std::fs::remove_file(path).unwrap();
    }
}
