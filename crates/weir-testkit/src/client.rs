//! The client side: connects, sends the test's bytes, and returns the answer.

use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::wire::{DEADLINE, Io, Wire};
use crate::{Response, Tls, TlsSeen};

/// A client connection. Operations on bytes are on [`Wire`].
#[derive(Debug)]
pub struct Client(Wire);

impl Client {
    /// Connects to `127.0.0.1:80`, `[::1]:80` or `unix:/path`.
    #[track_caller]
    pub fn connect(address: impl ToString) -> Self {
        let address = address.to_string();
        match Self::open(&address) {
            Ok(io) => Self(Wire::new(io, format!("client of {address}"))),
            Err(error) => panic!("cannot connect to {address}: {error}"),
        }
    }

    /// Whether the address accepts connections.
    pub fn can_connect(address: impl ToString) -> bool {
        Self::open(&address.to_string()).is_ok()
    }

    /// Connects, with a TLS handshake.
    #[track_caller]
    pub fn connect_tls(address: impl ToString, tls: &Tls) -> Self {
        match Self::try_connect_tls(address, tls) {
            Ok(client) => client,
            Err(why) => panic!("{why}"),
        }
    }

    /// Connects with a TLS handshake, either of which may fail.
    ///
    /// # Errors
    /// A text that says what failed. In TLS 1.3 the server refuses a client certificate only after the handshake,
    /// at the first read.
    pub fn try_connect_tls(address: impl ToString, tls: &Tls) -> Result<Self, String> {
        let address = address.to_string();
        let stream =
            TcpStream::connect(&address).map_err(|error| format!("connect to {address}: {error}"))?;
        stream.set_read_timeout(Some(DEADLINE)).map_err(|error| error.to_string())?;
        let stream = tls.handshake(stream).map_err(|error| format!("TLS with {address}: {error}"))?;
        Ok(Self(Wire::new(Io::TlsClient(Box::new(stream)), format!("TLS client of {address}"))))
    }

    /// The result of the TLS handshake.
    #[track_caller]
    pub fn tls(&self) -> TlsSeen {
        match self.0.io() {
            Io::TlsClient(stream) => TlsSeen::of(&stream.conn),
            _ => panic!("{} speaks no TLS", self.0.transcript()),
        }
    }

    /// Sends a request without a body and reads the answer; the host is `weir.test`.
    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str) -> Response {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
        if method == "HEAD" { self.read_response_to_head() } else { self.read_response() }
    }

    /// Sends a GET and reads the answer; the host is `weir.test`.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target)
    }

    /// Sends these bytes and reads one answer.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request);
        self.read_response()
    }

    /// A second handle of this connection, which writes while the first one reads. Only for plain TCP.
    #[track_caller]
    pub fn writer(&self) -> Writer {
        match self.0.io() {
            Io::Tcp(stream) => Writer(stream.try_clone().unwrap()),
            _ => panic!("only a TCP client can write and read at once"),
        }
    }

    /// The address this client connects from.
    #[track_caller]
    pub fn local_address(&self) -> std::net::SocketAddr {
        self.0.io().tcp().expect("a TCP client").local_addr().unwrap()
    }

    /// Closes with RST: data in flight is lost.
    pub fn reset(self) {
        self.0.reset();
    }

    /// Closes.
    pub fn close(self) {}

    fn open(address: &str) -> io::Result<Io> {
        match address.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(path).map(Io::Unix),
            None => TcpStream::connect(address).map(Io::Tcp),
        }
    }
}

impl Deref for Client {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.0
    }
}

/// Writes to a connection that another handle reads. See [`Client::writer`].
#[derive(Debug)]
pub struct Writer(TcpStream);

impl Writer {
    /// Sends the bytes.
    ///
    /// # Errors
    /// The socket's error, also if nothing could be written for 30 s.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.set_write_timeout(Some(Duration::from_secs(30)))?;
        self.0.write_all(bytes.as_ref())
    }
}
