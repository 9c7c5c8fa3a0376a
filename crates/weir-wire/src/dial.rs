//! Connections to endpoints.

#![allow(unsafe_code)] // a system call that no safe crate of ours wraps

use crate::listen::{Address, keep_alive};
use crate::tls::ClientTls;
use crate::{Socket, Transport, driver, time};
use socket2::{Domain, Protocol, SockAddr, SockRef, Type};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Why connecting to an endpoint failed. No part of a request was sent.
#[derive(Debug)]
pub enum DialError {
    /// Any other connect failure: no route, no free port, no free descriptor.
    Failed(io::Error),
    /// The endpoint refused the connection.
    Refused(io::Error),
    /// Connecting exceeded the timeout.
    TimedOut,
    /// The TLS handshake failed.
    Tls(io::Error),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(e) | Self::Refused(e) | Self::Tls(e) => e.fmt(f),
            Self::TimedOut => f.write_str("connecting took too long"),
        }
    }
}

/// `Display` prints the inner error, so its source is ours.
impl std::error::Error for DialError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(e) | Self::Refused(e) | Self::Tls(e) => e.source(),
            Self::TimedOut => None,
        }
    }
}

/// A new connection and how long it took.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub transport: Transport,
    /// Time to connect.
    pub connect: Duration,
    /// The round-trip time to the peer; zero if unknown.
    pub round_trip: Duration,
    /// Time of the TLS handshake; zero without TLS.
    pub tls: Duration,
}

/// How to connect, besides the address.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Our own address, unless the kernel chooses it. Does not apply to a Unix socket.
    pub source: Option<IpAddr>,
    /// Bytes sent before anything else, TLS included.
    pub preface: &'a [u8],
}

/// Connects within `timeout`, which covers the TLS handshake too. `name` is the endpoint's name in the config: TLS
/// sends it as SNI and verifies it.
///
/// # Errors
/// See [`DialError`].
pub async fn dial(
    address: &Address,
    tls: Option<(&ClientTls, &str)>,
    timeout: Duration,
) -> Result<Dialled, DialError> {
    dial_as(How::default(), address, tls, timeout).await
}

/// Like [`dial`], with a choice of how to connect.
///
/// # Errors
/// See [`DialError`].
pub async fn dial_as(
    how: How<'_>,
    address: &Address,
    tls: Option<(&ClientTls, &str)>,
    timeout: Duration,
) -> Result<Dialled, DialError> {
    let start = Instant::now();
    let work = async {
        let socket = match address {
            Address::Tcp(address) => tcp(*address, how.source).await?,
            Address::Unix(path) => unix(path).await.map_err(refused_or_failed)?,
            Address::Udp(_) => return Err(refused_or_failed(io::ErrorKind::Unsupported.into())), // no upstream has one
        };
        say(&socket, how.preface).await.map_err(refused_or_failed)?;
        let connect = start.elapsed();
        let round_trip = socket.round_trip().unwrap_or_default();
        match tls {
            None => {
                Ok(Dialled { transport: Transport::Plain(socket), connect, round_trip, tls: Duration::ZERO })
            }
            Some((policy, name)) => {
                let transport = policy.connect(socket, name).await.map_err(DialError::Tls)?.into();
                Ok(Dialled { transport, connect, round_trip, tls: start.elapsed() - connect })
            }
        }
    };
    time::timeout(timeout, work).await.unwrap_or(Err(DialError::TimedOut))
}

async fn say(socket: &Socket, mut preface: &[u8]) -> io::Result<()> {
    while !preface.is_empty() {
        let wrote = poll_fn(|cx| socket.poll_write(cx, preface)).await?;
        match preface.get(wrote..) {
            Some(rest) if wrote > 0 => preface = rest,
            _ => return Err(io::ErrorKind::WriteZero.into()),
        }
    }
    Ok(())
}

async fn tcp(address: SocketAddr, source: Option<IpAddr>) -> Result<Socket, DialError> {
    let socket = socket_for(address).map_err(DialError::Failed)?;
    if let Some(source) = source {
        bind(&socket, address, source).map_err(|e| {
            DialError::Failed(io::Error::new(e.kind(), format!("from the source address {source}: {e}")))
        })?;
    }
    Socket::connect(driver::sockets(), socket, &address.into()).await.map_err(refused_or_failed)
}

async fn unix(path: &Path) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    Socket::connect(driver::sockets(), socket, &SockAddr::unix(path)?).await
}

/// A non-blocking socket, as all connections to endpoints are.
fn socket_for(address: SocketAddr) -> io::Result<socket2::Socket> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    keep_alive(&SockRef::from(&socket))?;
    Ok(socket)
}

/// Binds a socket to `source`.
fn bind(socket: &socket2::Socket, to: SocketAddr, source: IpAddr) -> io::Result<()> {
    if to.is_ipv4() != source.is_ipv4() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the endpoint is of the other family"));
    }
    choose_port_late(socket)?;
    socket.bind(&SocketAddr::new(source, 0).into())
}

/// Lets `connect` choose the port, which may then be in use towards other peers. `bind` would need a port that is
/// entirely free, and would run out after some 28,000 connections (ip(7), IP_BIND_ADDRESS_NO_PORT).
#[cfg(target_os = "linux")]
fn choose_port_late(socket: &socket2::Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the kernel reads `len` bytes of `on`, which is `len` bytes long.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Only Linux supports this.
#[cfg(not(target_os = "linux"))]
fn choose_port_late(_: &Socket) -> io::Result<()> {
    Ok(())
}

fn refused_or_failed(e: io::Error) -> DialError {
    match e.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::NotFound => {
            DialError::Refused(e)
        }
        _ => DialError::Failed(e),
    }
}
