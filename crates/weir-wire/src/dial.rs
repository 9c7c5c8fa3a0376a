//! Connections to endpoints.

use crate::Stream;
use crate::listen::{Address, keep_alive};
use crate::tls::ClientTls;
use socket2::SockRef;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};

/// Why an endpoint was not reached. Nothing of a request was sent.
#[derive(Debug)]
pub enum DialError {
    /// Any other failure to connect: no route, out of ports, out of descriptors.
    Failed(io::Error),
    /// The endpoint refused.
    Refused(io::Error),
    /// It took longer than it may.
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

impl std::error::Error for DialError {}

/// A new connection and what it took.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub stream: Stream,
    /// Time to connect.
    pub connect: Duration,
    /// How far the peer is; zero where that is not known.
    pub round_trip: Duration,
    /// Time of the TLS handshake; zero without TLS.
    pub tls: Duration,
}

/// Connects within `timeout`, which covers the TLS handshake too. `name` is what the endpoint was called in the config:
/// TLS asks for it and verifies it.
///
/// # Errors
/// See [`DialError`].
pub async fn dial(
    address: &Address,
    tls: Option<(&ClientTls, &str)>,
    timeout: Duration,
) -> Result<Dialled, DialError> {
    let start = Instant::now();
    let work = async {
        let stream = match address {
            Address::Tcp(address) => Stream::Tcp(tcp(*address).await?),
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).await.map_err(refused_or_failed)?),
        };
        let connect = start.elapsed();
        let round_trip = stream.round_trip().unwrap_or_default();
        match tls {
            None => Ok(Dialled { stream, connect, round_trip, tls: Duration::ZERO }),
            Some((policy, name)) => {
                let stream = policy.connect(stream, name).await.map_err(DialError::Tls)?;
                Ok(Dialled { stream, connect, round_trip, tls: start.elapsed() - connect })
            }
        }
    };
    tokio::time::timeout(timeout, work).await.unwrap_or(Err(DialError::TimedOut))
}

async fn tcp(address: std::net::SocketAddr) -> Result<TcpStream, DialError> {
    let stream = TcpStream::connect(address).await.map_err(refused_or_failed)?;
    let set = || {
        stream.set_nodelay(true)?;
        keep_alive(&SockRef::from(&stream))
    };
    set().map_err(DialError::Failed)?;
    Ok(stream)
}

fn refused_or_failed(e: io::Error) -> DialError {
    match e.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::NotFound => {
            DialError::Refused(e)
        }
        _ => DialError::Failed(e),
    }
}
