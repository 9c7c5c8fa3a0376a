//! One call over a socket, with a deadline.

use super::{Answer, At, CONNECT, Call, ClientError, MOST_BYTES};
use crate::answer::SIGN;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weir_gateway::config::schema::Admin;
use weir_wire::tls::{ClientTls, ReadWrite};

/// A connection, and the value of Host on it.
pub(super) struct Connection {
    socket: Socket,
    host: String,
}

enum Socket {
    Tcp(TcpStream),
    /// The TLS stream and the socket below it, whose deadline applies to both.
    Tls(Box<dyn ReadWrite>, TcpStream),
    Unix(UnixStream),
}

pub(super) fn connect(at: At<'_>, deadline: Instant) -> Result<Connection, ClientError> {
    let At { address, tls } = at;
    let unreachable = |error| ClientError::Unreachable { address: address.to_owned(), error };
    let bare = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
    let bare = bare.unwrap_or(address).trim_end_matches('/');
    if let Some(path) = address.strip_prefix("unix:") {
        let socket = UnixStream::connect(path).map(Socket::Unix).map_err(unreachable)?;
        return Ok(Connection { socket, host: "localhost".to_owned() });
    }
    let mut last = None;
    for address in
        resolve(bare).ok_or_else(|| ClientError::Address(address.to_owned()))?.map_err(unreachable)?
    {
        match TcpStream::connect_timeout(&address, CONNECT) {
            // Host is the address, because the listener refuses unknown names.
            Ok(socket) => {
                let host = address.to_string();
                let socket = match tls {
                    None => Socket::Tcp(socket),
                    Some(tls) => Socket::secured(socket, tls, name_in(bare), deadline)
                        .map_err(|error| ClientError::Untrusted { address: at.address.to_owned(), error })?,
                };
                return Ok(Connection { socket, host });
            }
            Err(error) => last = Some(error),
        }
    }
    Err(unreachable(last.unwrap_or_else(|| io::ErrorKind::NotFound.into())))
}

/// The addresses that the text resolves to; `None` if it is not an address.
fn resolve(written: &str) -> Option<io::Result<Vec<SocketAddr>>> {
    let port = Admin::DEFAULT_ADDRESS.port();
    let unbracketed = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(written);
    if let Ok(ip) = unbracketed.parse::<IpAddr>() {
        return Some(Ok(vec![SocketAddr::new(ip, port)]));
    }
    if let Ok(address) = written.parse() {
        return Some(Ok(vec![address]));
    }
    let (name, port) = match written.split_once(':') {
        Some((name, digits)) => (name, digits.parse().ok()?),
        None => (written, port),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    Some((name, port).to_socket_addrs().map(Iterator::collect))
}

impl Connection {
    /// Sends a request and reads until the connection closes.
    pub(super) fn exchange(
        mut self,
        what: Call<'_>,
        token: Option<&str>,
        deadline: Instant,
    ) -> io::Result<(String, Vec<u8>)> {
        let Call { line, message, media, body } = what;
        let mut request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir\r\nAccept: application/json\r\nConnection: close\r\n",
            self.host
        );
        if !line.starts_with("GET") {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        if !media.is_empty() {
            request.push_str(&format!("Content-Type: {media}\r\n"));
        }
        if !message.is_empty() {
            let message: String = message.chars().filter(|c| !c.is_control()).collect();
            request.push_str(&format!("X-Weir-Message: {message}\r\n"));
        }
        if let Some(token) = token {
            if token.chars().any(char::is_control) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the token holds a line break or another control character",
                ));
            }
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        request.push_str("\r\n");
        self.socket.wait_until(deadline)?;
        self.socket.write_all(request.as_bytes())?;
        // A refusal may arrive, and the connection close, before the body is sent. Ignore the write error and
        // read the answer.
        let _ = self.socket.write_all(body);
        let mut received = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some(end) = find(&received, b"\r\n\r\n") {
                let body = received.split_off(end + 4);
                let head = String::from_utf8_lossy(&received).into_owned();
                return self.body(&head, body, deadline).map(|body| (head, body));
            }
            if received.len() > chunk.len() * 4 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the head of its answer is incomplete",
                ));
            }
            match self.receive(&mut chunk, deadline)? {
                [] => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
                bytes => received.extend_from_slice(bytes),
            }
        }
    }

    /// Reads the rest of a body: up to Content-Length, else until the connection closes.
    fn body(&mut self, head: &str, mut body: Vec<u8>, deadline: Instant) -> io::Result<Vec<u8>> {
        let length = field(head, "content-length").and_then(|value| value.parse::<u64>().ok());
        let mut chunk = [0; 16 * 1024];
        while length.is_none_or(|length| (body.len() as u64) < length) {
            if body.len() as u64 > MOST_BYTES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too large"));
            }
            match self.receive(&mut chunk, deadline)? {
                [] if length.is_none() => break,
                [] => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its answer was cut short")),
                bytes => body.extend_from_slice(bytes),
            }
        }
        Ok(body)
    }

    fn receive<'b>(&mut self, chunk: &'b mut [u8], deadline: Instant) -> io::Result<&'b [u8]> {
        loop {
            self.socket.wait_until(deadline)?;
            match self.socket.read(chunk) {
                Ok(n) => return Ok(chunk.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Socket {
    fn secured(socket: TcpStream, tls: &ClientTls, name: &str, deadline: Instant) -> io::Result<Self> {
        let below = socket.try_clone()?;
        set_deadline(&below, deadline)?;
        Ok(Self::Tls(tls.connect_blocking(socket, name)?, below))
    }

    /// Sets the socket timeout so that the next call fails at the deadline.
    fn wait_until(&self, deadline: Instant) -> io::Result<()> {
        match self {
            Self::Tcp(socket) | Self::Tls(_, socket) => set_deadline(socket, deadline),
            Self::Unix(socket) => {
                let left = left(deadline)?;
                socket.set_read_timeout(Some(left)).and(socket.set_write_timeout(Some(left)))
            }
        }
    }

    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(chunk),
            Self::Tls(stream, _) => stream.read(chunk),
            Self::Unix(socket) => socket.read(chunk),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.write_all(bytes),
            Self::Tls(stream, _) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Self::Unix(socket) => socket.write_all(bytes),
        }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn set_deadline(socket: &TcpStream, deadline: Instant) -> io::Result<()> {
    let left = left(deadline)?;
    socket.set_read_timeout(Some(left)).and(socket.set_write_timeout(Some(left)))
}

/// The host of an address as written, which the certificate must match.
fn name_in(written: &str) -> &str {
    match written.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None if written.parse::<IpAddr>().is_ok() => written,
        None => written.split(':').next().unwrap_or_default(),
    }
}

/// Parses the response. Anything without the admin listener's own field is quoted in a short error.
pub(super) fn read_answer(head: &str, body: Vec<u8>) -> Result<Answer, String> {
    const FEW: usize = 60;
    let first: String =
        head.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(FEW).collect();
    let version_and_rest = first.split_once(' ').filter(|(version, _)| version.starts_with("HTTP/1."));
    let status = version_and_rest.and_then(|(_, rest)| rest.get(..3)).and_then(|digits| digits.parse().ok());
    let is_ours = field(head, SIGN.0) == Some(SIGN.1);
    let is_whole = field(head, "transfer-encoding").is_none(); // ours are never chunked
    match (status, String::from_utf8(body)) {
        (Some(status), Ok(body)) if is_ours && is_whole => Ok(Answer { status, body }),
        _ => Err(format!("it said `{first}`")),
    }
}

/// The value of a header field.
fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (written, first) in [
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("127.0.0.1", Some("127.0.0.1:9180")),
            ("[::1]:1", Some("[::1]:1")),
            ("[::1]", Some("[::1]:9180")),
            ("::1", Some("[::1]:9180")),
            ("", None),
            (":9180", None),
            ("127.0.0.1:port", None),
            ("127.0.0.1:99999", None),
            ("http://x", None),
            ("a b", None),
        ] {
            let resolved = resolve(written).map(|found| found.unwrap().first().unwrap().to_string());
            assert_eq!(resolved.as_deref(), first, "{written}");
        }
    }

    #[test]
    fn only_a_weir_is_believed() {
        let ours = "HTTP/1.1 200 OK\r\nX-Weir: admin\r\n\r\n";
        assert_eq!(read_answer(ours, b"{}".to_vec()), Ok(Answer { status: 200, body: "{}".to_owned() }));
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-Weir: admin\r\nTransfer-Encoding: chunked\r\n\r\n",
            "SSH-2.0-OpenSSH_9.2 200\r\nX-Weir: admin\r\n\r\n",
            "HTTP/1.1 ok\r\nX-Weir: admin\r\n\r\n",
            "",
        ] {
            assert!(read_answer(head, Vec::new()).is_err(), "{head}");
        }
    }
}
