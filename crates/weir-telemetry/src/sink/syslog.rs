//! Sends lines to a syslog server (RFC 5424): by UDP (RFC 5426), by TCP with lengths (RFC 6587 §3.4.1), by the same
//! over TLS (RFC 5425), or through a Unix socket. The caller provides TLS ([`Secure`]); this crate contains none.
//!
//! The writer thread does all the work, so connecting, name lookups and a slow server cost no core anything. Lines
//! that cannot be sent immediately are lost and counted: a server that comes back gets new lines, not old ones.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::time::timestamp;

/// A syslog server, and the identity that lines carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// The address of the server.
    pub server: Server,
    /// The facility: 16 to 23 are `local0` to `local7`.
    pub facility: u8,
    /// APP-NAME.
    pub name: String,
    /// How a connection to [`Server::Tls`] is secured.
    pub secure: Option<Secure>,
}

/// Secures a connection: performs the handshake with the host of that name.
#[derive(Clone)]
pub struct Secure {
    /// What it was made from; two that were made from the same are equal.
    pub made_of: String,
    /// Performs the handshake, on a blocking socket.
    pub shake: Arc<Shake>,
}

/// Takes a connection and the name of the host.
pub type Shake = dyn Fn(TcpStream, &str) -> io::Result<Box<dyn Duplex>> + Send + Sync;

/// A secure, blocking connection.
pub trait Duplex: Read + Write + Send {}

impl<T: Read + Write + Send> Duplex for T {}

impl PartialEq for Secure {
    fn eq(&self, other: &Self) -> bool {
        self.made_of == other.made_of
    }
}

impl Eq for Secure {}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secure")
    }
}

/// The address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// Host and port; a connection, each line preceded by its length.
    Tcp(String),
    /// The same over TLS.
    Tls(String),
    /// Host and port; one datagram per line.
    Udp(String),
    /// A socket on this machine, such as `/dev/log`: a datagram socket, or a stream with a line break after each
    /// line.
    Unix(PathBuf),
}

/// The longest message by UDP or datagram socket, including the header; longer ones are cut. RFC 5426 §3.2 requires
/// at least 2,048.
const DATAGRAM_BYTES: usize = 8 * 1024;

/// How long we wait for a connect, or for a write to a server that reads nothing.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long we wait after a failure before the next attempt.
const AGAIN: Duration = Duration::from_secs(1);

/// Severity 6 of RFC 5424 §6.2.1: informational. The line itself says how the exchange went.
const INFORMATIONAL: u8 = 6;

impl Server {
    /// Parses `udp://HOST:PORT`, `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`. Default ports: 514 for UDP, 601
    /// for TCP and 6514 for TLS.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return (!path.is_empty()).then(|| Self::Unix(path.into()));
        }
        if let Some(place) = text.strip_prefix("udp://") {
            return with_port(place, 514).map(Self::Udp);
        }
        if let Some(place) = text.strip_prefix("tls://") {
            return with_port(place, 6514).map(Self::Tls);
        }
        with_port(text.strip_prefix("tcp://")?, 601).map(Self::Tcp)
    }
}

/// Host and port, adding `port` if there is none.
fn with_port(place: &str, port: u16) -> Option<String> {
    let (host, written) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (format!("[{host}]"), if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (place.to_owned(), None),
        },
    };
    let port = match written {
        Some(digits) => digits.parse::<u16>().ok().filter(|port| *port != 0)?,
        None => port,
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b);
    (!host.is_empty() && host.bytes().all(fits)).then(|| format!("{host}:{port}"))
}

impl fmt::Display for Syslog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Tcp(place) => write!(f, "syslog tcp://{place}"),
            Server::Tls(place) => write!(f, "syslog tls://{place}"),
            Server::Udp(place) => write!(f, "syslog udp://{place}"),
            Server::Unix(path) => write!(f, "syslog unix:{}", path.display()),
        }
    }
}

/// The writer thread's side.
pub(super) struct Wire {
    syslog: Syslog,
    hostname: String,
    socket: Option<Socket>,
    next_try: Option<Instant>,
    /// The message as sent.
    message: Vec<u8>,
}

enum Socket {
    Datagram(UnixDatagram),
    Stream(UnixStream),
    Tcp(TcpStream),
    /// The secured stream, and the underlying socket.
    Tls(Box<dyn Duplex>, TcpStream),
    Udp(UdpSocket),
}

impl Wire {
    pub(super) fn new(syslog: Syslog) -> Self {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let hostname: String = hostname.trim().chars().filter(char::is_ascii_graphic).take(255).collect();
        let hostname = if hostname.is_empty() { "-".to_owned() } else { hostname };
        Self { syslog, hostname, socket: None, next_try: None, message: Vec::new() }
    }

    /// Sends complete lines, each as one message.
    ///
    /// # Errors
    /// How many of them were lost, and why.
    pub(super) fn send(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let lines: Vec<&[u8]> = lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()).collect();
        let header = self.header();
        for (sent, line) in lines.iter().enumerate() {
            if let Err(e) = self.send_one(&header, line) {
                self.socket = None;
                self.next_try.get_or_insert_with(|| Instant::now() + AGAIN);
                return Err(((lines.len() - sent) as u64, e));
            }
        }
        Ok(())
    }

    /// The header before the message, RFC 5424 §6.2.
    fn header(&self) -> String {
        let priority = self.syslog.facility * 8 + INFORMATIONAL;
        let (time, hostname, name) = (timestamp(SystemTime::now()), &self.hostname, &self.syslog.name);
        format!("<{priority}>1 {time} {hostname} {name} {} access - ", std::process::id())
    }

    fn send_one(&mut self, header: &str, line: &[u8]) -> io::Result<()> {
        self.connect()?;
        let Some(socket) = &mut self.socket else { return Err(ErrorKind::NotConnected.into()) };
        let message = &mut self.message;
        message.clear();
        if let Socket::Tcp(_) | Socket::Tls(..) = socket {
            write!(message, "{} ", header.len() + line.len())?;
        }
        message.extend_from_slice(header.as_bytes());
        message.extend_from_slice(line);
        match socket {
            Socket::Datagram(socket) => socket.send(cut(message)).map(drop),
            Socket::Stream(stream) => {
                message.push(b'\n');
                stream.write_all(message)
            }
            Socket::Tcp(stream) => stream.write_all(message),
            Socket::Tls(stream, _) => stream.write_all(message).and_then(|()| stream.flush()),
            Socket::Udp(socket) => socket.send(cut(message)).map(drop),
        }
    }

    /// Ensures that there is a socket, unless an attempt has just failed.
    fn connect(&mut self) -> io::Result<()> {
        if self.socket.as_mut().is_some_and(Socket::is_open) {
            return Ok(());
        }
        self.socket = None;
        if self.next_try.is_some_and(|next| Instant::now() < next) {
            return Err(io::Error::new(ErrorKind::NotConnected, "the server was away a moment ago"));
        }
        self.next_try = Some(Instant::now() + PATIENCE + AGAIN);
        let opened = Socket::open(&self.syslog);
        self.next_try = opened.is_err().then(|| Instant::now() + AGAIN);
        self.socket = Some(opened?);
        Ok(())
    }
}

impl Socket {
    fn open(syslog: &Syslog) -> io::Result<Self> {
        match &syslog.server {
            Server::Tcp(place) => dial(place).map(Self::Tcp),
            Server::Tls(place) => {
                let secure = syslog.secure.as_ref().ok_or(ErrorKind::Unsupported)?;
                let stream = dial(place)?;
                stream.set_read_timeout(Some(PATIENCE))?; // for the handshake
                let below = stream.try_clone()?;
                Ok(Self::Tls((secure.shake)(stream, host_of(place))?, below))
            }
            Server::Udp(place) => {
                let mut addresses = place.to_socket_addrs()?;
                let address = addresses.next().ok_or(ErrorKind::AddrNotAvailable)?;
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                Ok(Self::Udp(socket))
            }
            Server::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                if socket.connect(path).is_ok() {
                    socket.set_write_timeout(Some(PATIENCE))?;
                    return Ok(Self::Datagram(socket));
                }
                let stream = UnixStream::connect(path)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Self::Stream(stream))
            }
        }
    }

    /// Whether the server still holds the connection. A write to a connection that it closed would seem to succeed.
    fn is_open(&mut self) -> bool {
        let socket = match self {
            Self::Tcp(stream) | Self::Tls(_, stream) => &*stream,
            _ => return true,
        };
        if socket.set_nonblocking(true).is_err() {
            return false;
        }
        let looked = match self {
            // The bytes may contain records other than data, such as tickets and the close alert.
            Self::Tls(stream, _) => stream.read(&mut [0; 64]),
            Self::Tcp(stream) => stream.peek(&mut [0]),
            _ => return true,
        };
        let open = matches!(looked, Ok(1..)) || looked.is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        let (Self::Tcp(socket) | Self::Tls(_, socket)) = self else { return true };
        socket.set_nonblocking(false).is_ok() && open
    }
}

/// Connects to host and port.
fn dial(place: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// The host of host and port, in the form that certificates use.
fn host_of(place: &str) -> &str {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The part of a message that fits into a datagram.
fn cut(message: &[u8]) -> &[u8] {
    message.get(..DATAGRAM_BYTES).unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn wire(server: Server) -> Wire {
        Wire::new(Syslog { server, facility: 16, name: "weir".to_owned(), secure: None })
    }

    /// RFC 5424 §6: the part before the message.
    fn expect(message: &str, line: &str) {
        let words: Vec<&str> = message.splitn(8, ' ').collect();
        assert_eq!(
            (words[0], words[3], words[5], words[6], words[7]),
            ("<134>1", "weir", "access", "-", line),
            "{message}"
        );
        assert!(words[1].ends_with('Z') && words[4] == std::process::id().to_string(), "{message}");
    }

    #[test]
    fn servers() {
        for (text, server) in [
            ("udp://10.0.0.1", Some(Server::Udp("10.0.0.1:514".into()))),
            ("tcp://logs.example", Some(Server::Tcp("logs.example:601".into()))),
            ("tcp://[::1]:1514", Some(Server::Tcp("[::1]:1514".into()))),
            ("udp://[::1]", Some(Server::Udp("[::1]:514".into()))),
            ("unix:/dev/log", Some(Server::Unix("/dev/log".into()))),
            ("unix:", None),
            ("udp://", None),
            ("udp://a:0", None),
            ("udp://a:b", None),
            ("udp://a/b", None),
            ("tls://a", Some(Server::Tls("a:6514".into()))),
            ("tls://[::1]:1", Some(Server::Tls("[::1]:1".into()))),
            ("ssl://a", None),
            ("/dev/log", None),
        ] {
            assert_eq!(Server::parse(text), server, "{text}");
        }
    }

    #[test]
    fn a_datagram_for_each_line() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut wire = wire(Server::Udp(server.local_addr().unwrap().to_string()));
        wire.send(format!("one\ntwo {}\n", "x".repeat(9000)).as_bytes()).unwrap();
        let mut buffer = [0; 16 * 1024];
        let n = server.recv(&mut buffer).unwrap();
        expect(str::from_utf8(&buffer[..n]).unwrap(), "one");
        assert_eq!(server.recv(&mut buffer).unwrap(), DATAGRAM_BYTES);
    }

    #[test]
    fn lengths_by_tcp_and_a_server_that_comes_back() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let mut wire = wire(Server::Tcp(address.to_string()));
        wire.send(b"one\ntwo\n").unwrap();
        let (mut first, _) = server.accept().unwrap();
        wire.socket = None; // hangs up
        let mut text = String::new();
        first.read_to_string(&mut text).unwrap();
        let (length, rest) = text.split_once(' ').unwrap();
        let (message, rest) = rest.split_at(length.parse().unwrap());
        expect(message, "one");
        expect(rest.split_once(' ').unwrap().1, "two");
        drop((first, server));
        let (lost, _) = wire.send(b"three\nfour\n").unwrap_err();
        assert_eq!(lost, 2);
        assert!(wire.next_try.is_some());
        let (lost, e) = wire.send(b"five\n").unwrap_err();
        assert_eq!((lost, e.kind()), (1, ErrorKind::NotConnected));
    }

    #[test]
    fn a_connection_that_was_closed_is_noticed() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wire = wire(Server::Tcp(server.local_addr().unwrap().to_string()));
        wire.send(b"one\n").unwrap();
        drop(server.accept().unwrap());
        let by = Instant::now() + Duration::from_secs(20);
        while wire.socket.as_mut().is_some_and(Socket::is_open) && Instant::now() < by {
            std::thread::yield_now();
        }
        wire.send(b"two\n").unwrap();
        assert!(server.accept().is_ok());
    }

    /// A stand-in without any security that records the requested names.
    fn plain(names: &Arc<std::sync::Mutex<Vec<String>>>) -> Secure {
        let names = Arc::clone(names);
        let shake = move |stream: TcpStream, name: &str| -> io::Result<Box<dyn Duplex>> {
            names.lock().unwrap().push(name.to_owned());
            Ok(Box::new(stream))
        };
        Secure { made_of: "nothing".to_owned(), shake: Arc::new(shake) }
    }

    #[test]
    fn a_secure_connection_has_lengths_and_is_made_anew() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let names = Arc::default();
        let mut wire = wire(Server::Tls(server.local_addr().unwrap().to_string()));
        assert_eq!(wire.send(b"none\n").unwrap_err().1.kind(), ErrorKind::Unsupported);
        (wire.next_try, wire.syslog.secure) = (None, Some(plain(&names)));
        wire.send(b"one\n").unwrap();
        let (mut first, _) = server.accept().unwrap();
        let mut length = [0; 3];
        first.read_exact(&mut length).unwrap();
        assert!(length.iter().all(|b| b.is_ascii_digit() || *b == b' '), "{length:?}");
        // Data from the server is not an end; closing is.
        first.write_all(b"hello").unwrap();
        assert!(wire.socket.as_mut().unwrap().is_open());
        drop(first);
        let by = Instant::now() + Duration::from_secs(20);
        while wire.socket.as_mut().is_some_and(Socket::is_open) && Instant::now() < by {
            std::thread::yield_now();
        }
        wire.send(b"two\n").unwrap();
        assert!(server.accept().is_ok());
        assert_eq!(*names.lock().unwrap(), ["127.0.0.1", "127.0.0.1"]);
        assert_eq!((host_of("[::1]:6514"), host_of("logs.example:1")), ("::1", "logs.example"));
    }

    #[test]
    fn a_socket_of_this_machine() {
        let path = std::env::temp_dir().join(format!("weir-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let server = UnixDatagram::bind(&path).unwrap();
        let mut wire = wire(Server::Unix(path.clone()));
        wire.send(b"one\n").unwrap();
        let mut buffer = [0; 1024];
        let n = server.recv(&mut buffer).unwrap();
        expect(str::from_utf8(&buffer[..n]).unwrap(), "one");
        std::fs::remove_file(&path).unwrap();
    }
}
