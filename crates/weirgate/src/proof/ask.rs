//! Asks a program the witnesses, one after the other, and reads the answers.

use rustix::net::{self, AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use weir_import::proof::Ask;
use weir_import::proof::compare::Answer;
use weir_import::proof::patterns::Front;
use weir_wire::tls::{ClientTls, ReadWrite};

/// Longest wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Largest head.
const MAX_HEAD: usize = 256 << 10;
/// Largest body.
const MAX_BODY: u64 = 64 << 20;
/// How much of a body is kept.
const KEPT: usize = 300;
/// How much of a body is sent between checks whether the answer has arrived.
const PIECE: usize = 64 << 10;

/// What bodies of witnesses are made of.
static FILL: [u8; PIECE] = [b'w'; PIECE];
/// Fields of a witness that affect its connection.
const OF_CONNECTIONS: &[&str] = &["connection", "expect", "keep-alive", "proxy-connection", "te", "upgrade"];

/// The connections to one program. One is kept and reused by the next witness to the same address, unless that witness
/// has a body or a client address of its own. Most witnesses can share it, and connecting is half the cost of a request.
pub(super) struct Asker<'a> {
    tls: &'a ClientTls,
    kept: Option<Connection>,
}

/// The program closed the kept connection before it answered. A new connection is worth a try.
pub(super) struct Stale;

struct Connection {
    /// Where it leads, and the name in its handshake.
    to: (Front, Option<String>),
    stream: BufReader<Box<dyn ReadWrite>>,
    /// The socket below.
    socket: TcpStream,
}

impl<'a> Asker<'a> {
    pub(super) const fn new(tls: &'a ClientTls) -> Self {
        Self { tls, kept: None }
    }

    /// Asks once.
    ///
    /// # Errors
    /// If a connection that was kept gave no answer. The next call makes a new one.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Answer, Stale> {
        let has_many = may_share(ask);
        let kept = self.kept.take_if(|kept| has_many && kept.to == leads_to(ask));
        let kept = kept.filter(|kept| matches!(is_readable(&kept.socket), Ok(false)));
        let was_kept = kept.is_some();
        let answer = match kept.map_or_else(|| self.connect(ask), Ok) {
            Ok(mut connection) => {
                let answer = converse(&mut connection.stream, &connection.socket, ask, has_many);
                if answer.as_ref().is_ok_and(|answer| has_many && stays_open(ask, answer))
                    && connection.stream.buffer().is_empty()
                {
                    self.kept = Some(connection);
                }
                answer
            }
            Err(e) => Err(e),
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(e) => {
                // What a reset connection is called differs; that there was no answer is the same.
                let timed_out = matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
                if was_kept && !timed_out {
                    return Err(Stale);
                }
                let failure = match e.kind() {
                    _ if timed_out => "nothing in 10 s",
                    io::ErrorKind::ConnectionRefused => "nobody listens",
                    _ => "the connection was closed",
                };
                Ok(Answer { failure: failure.to_owned(), ..Answer::default() })
            }
        }
    }

    fn connect(&self, ask: &Ask) -> io::Result<Connection> {
        let address: SocketAddr = format!("{}:{}", ask.front.ip, ask.front.port)
            .parse()
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        let socket = match &ask.client {
            None => TcpStream::connect_timeout(&address, ANSWER_LIMIT)?,
            Some(client) => connect_from(client, address)?,
        };
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.set_write_timeout(Some(ANSWER_LIMIT))?;
        socket.set_nodelay(true)?;
        let stream = socket.try_clone()?;
        let to = leads_to(ask);
        let stream: Box<dyn ReadWrite> = match &to.1 {
            Some(name) => self.tls.connect_blocking(stream, name)?,
            None => Box::new(stream),
        };
        Ok(Connection { to, stream: BufReader::new(stream), socket })
    }
}

/// Where the connection of a witness leads, and the name in its handshake.
fn leads_to(ask: &Ask) -> (Front, Option<String>) {
    let host = ask.host.as_deref().unwrap_or("localhost");
    let name = host.split(':').next().unwrap_or(host);
    (ask.front.clone(), ask.front.tls.then(|| name.to_owned()))
}

/// Whether a witness may go over a connection that others go over, too.
fn may_share(ask: &Ask) -> bool {
    let says =
        |(name, _): &(String, String)| OF_CONNECTIONS.iter().any(|known| name.eq_ignore_ascii_case(known));
    ask.host.is_some() && ask.client.is_none() && ask.body == 0 && !ask.fields.iter().any(says)
}

/// Whether the connection of an answer takes a further request (RFC 9112 §9.3).
fn stays_open(ask: &Ask, answer: &Answer) -> bool {
    let field = |name: &str| answer.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    let is_framed = field("content-length").is_some()
        || field("transfer-encoding").is_some()
        || ask.method == "HEAD"
        || matches!(answer.status, 204 | 304);
    let closes = field("connection").is_some_and(|value| value.to_ascii_lowercase().contains("close"));
    is_framed && !closes && answer.status != 101
}

/// Connects from an address of this world, where every IPv4 address is one.
fn connect_from(client: &str, to: SocketAddr) -> io::Result<TcpStream> {
    let from: Ipv4Addr = client.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &SocketAddr::from((from, 0)))?;
    let stream = TcpStream::from(socket);
    // On Linux it limits the connect, too.
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    net::connect(&stream, &to)?;
    Ok(stream)
}

/// The head of the request. A field of the witness replaces the one that is sent otherwise.
fn head_of(ask: &Ask, keeps: bool) -> String {
    let version = if ask.host.is_some() { "1.1" } else { "1.0" };
    let mut head = format!("{} {} HTTP/{version}\r\n", ask.method, ask.target);
    if let Some(host) = &ask.host {
        head.push_str(&format!("Host: {host}\r\n"));
    }
    let mut usual = vec![("User-Agent", "weir-proof".to_owned()), ("Accept", "*/*".to_owned())];
    if ask.body > 0 || matches!(&*ask.method, "POST" | "PUT" | "PATCH") {
        usual.push(("Content-Type", "text/plain".to_owned()));
        usual.push(("Content-Length", ask.body.to_string()));
    }
    usual.retain(|(name, _)| !ask.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)));
    if !keeps {
        usual.push(("Connection", "close".to_owned()));
    }
    let usual = usual.iter().map(|(name, value)| (*name, &**value));
    for (name, value) in ask.fields.iter().map(|(name, value)| (&**name, &**value)).chain(usual) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head
}

/// Sends the request and reads the answer. `answers` is the socket below `stream`, which `keeps` its connection.
fn converse<S: Read + Write>(
    stream: &mut BufReader<S>,
    answers: &TcpStream,
    ask: &Ask,
    keeps: bool,
) -> io::Result<Answer> {
    stream.get_mut().write_all(head_of(ask, keeps).as_bytes())?;
    // A program that refuses a body may stop reading it: then its answer is there already.
    let _ = send_body(stream.get_mut(), answers, ask.body);
    loop {
        let (line, fields) = read_head(stream)?;
        let status: u16 = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        let has_none = ask.method == "HEAD" || matches!(status, 101 | 204 | 304);
        let body = if has_none { Body::default() } else { read_body(stream, &fields, None)? };
        return Ok(Answer {
            status,
            failure: String::new(),
            fields,
            body_bytes: body.bytes,
            body_hash: body.hash(),
            body: String::from_utf8_lossy(&body.start).into_owned(),
            seen: Vec::new(),
        });
    }
}

/// Sends the body, up to where the program answers: one that refuses a body would have to read and drop the rest.
fn send_body(stream: &mut impl Write, answers: &TcpStream, mut bytes: u64) -> io::Result<()> {
    while bytes > 0 {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(FILL.len());
        stream.write_all(FILL.get(..length).unwrap_or_default())?;
        bytes -= length as u64;
        if bytes > 0 && is_readable(answers)? {
            break;
        }
    }
    stream.flush()
}

/// Whether there is something to read, or the other side has closed.
fn is_readable(socket: &TcpStream) -> io::Result<bool> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match net::recv(socket, &mut [0_u8; 1][..], flags) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The first line of a message, and its fields with names in lower case.
pub(super) fn read_head(stream: &mut impl BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let mut left = MAX_HEAD;
    let mut next = || -> io::Result<String> {
        let mut line = Vec::new();
        let read = stream.by_ref().take(left as u64).read_until(b'\n', &mut line)?;
        left -= read;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
    };
    let first = next()?;
    let mut fields = Vec::new();
    loop {
        let line = next()?;
        if line.is_empty() {
            return Ok((first, fields));
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// The body of a message, without its framing. `length` is its length if no field tells it; none: up to the end.
pub(super) fn read_body(
    stream: &mut impl BufRead,
    fields: &[(String, String)],
    length: Option<u64>,
) -> io::Result<Body> {
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    let mut body = Body::default();
    if field("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked")) {
        loop {
            let mut line = String::new();
            stream.by_ref().take(1024).read_line(&mut line)?;
            let size = line.trim().split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size, 16).map_err(|_| io::ErrorKind::InvalidData)?;
            if size > MAX_BODY.saturating_sub(body.bytes) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if body.read(stream, size)? < size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut end = String::new();
            stream.by_ref().take(1024).read_line(&mut end)?;
            if size == 0 {
                // Trailers, up to an empty line.
                while !end.trim().is_empty() {
                    end.clear();
                    stream.by_ref().take(1024).read_line(&mut end)?;
                }
                return Ok(body);
            }
        }
    }
    let length = field("content-length").and_then(|value| value.parse().ok()).or(length);
    body.read(stream, length.unwrap_or(MAX_BODY).min(MAX_BODY))?;
    if length.is_some_and(|length| length != body.bytes) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(body)
}

/// A body as it was read: its length, its beginning, and a checksum that is the same in all processes of a proof. The
/// checksum is FNV-1a over words of eight bytes, because bodies may be large. It tells bodies apart that differ by
/// accident, not by intent. Leading bytes of [`FILL`] are only counted: most bodies are nothing else, and 400 sites
/// with a limit of 10 MiB each send 8 GB of them.
#[derive(Default)]
pub(super) struct Body {
    pub(super) bytes: u64,
    pub(super) start: Vec<u8>,
    /// Whether it has other bytes than [`FILL`].
    is_mixed: bool,
    state: u64,
    /// What is left of the last piece: fewer than eight bytes.
    rest: Vec<u8>,
}

impl Body {
    const PRIME: u64 = 0x0100_0000_01b3;

    /// Reads up to `most` bytes more, and tells how many there were.
    fn read(&mut self, stream: &mut impl Read, most: u64) -> io::Result<u64> {
        let mut piece = vec![0; usize::try_from(most).unwrap_or(usize::MAX).min(PIECE)];
        let mut left = most;
        while left > 0 {
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            let read = match stream.read(piece.get_mut(..room).unwrap_or_default()) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.add(piece.get(..read).unwrap_or_default());
            left -= read as u64;
        }
        Ok(most - left)
    }

    fn add(&mut self, mut piece: &[u8]) {
        let filled = if self.is_mixed { 0 } else { leading_fill(piece) };
        let before = self.bytes;
        self.bytes += piece.len() as u64;
        let kept = piece.len().min(KEPT.saturating_sub(self.start.len()));
        self.start.extend_from_slice(piece.get(..kept).unwrap_or_default());
        piece = piece.get(filled..).unwrap_or_default();
        if !self.is_mixed && !piece.is_empty() {
            self.is_mixed = true;
            self.mix(before + filled as u64);
        }
        while !self.rest.is_empty() && !piece.is_empty() {
            let (first, others) = piece.split_at(1);
            self.rest.extend_from_slice(first);
            piece = others;
            if let Ok(word) = <[u8; 8]>::try_from(&*self.rest) {
                self.mix(u64::from_le_bytes(word));
                self.rest.clear();
            }
        }
        let (words, rest) = piece.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        self.rest.extend_from_slice(rest);
    }

    fn mix(&mut self, word: u64) {
        // The low bits of a product depend on low bits alone: so the halves change places.
        self.state = (self.state ^ word).wrapping_mul(Self::PRIME).rotate_left(32);
    }

    /// The checksum of everything so far.
    pub(super) fn hash(&self) -> u64 {
        let start = self.state ^ self.bytes;
        self.rest.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(Self::PRIME))
    }
}

/// How many bytes of [`FILL`] a piece begins with.
fn leading_fill(piece: &[u8]) -> usize {
    match FILL.get(..piece.len()) {
        // The library compares faster than a loop in a build without optimization.
        Some(fill) if fill == piece => piece.len(),
        _ => piece.iter().position(|byte| *byte != FILL[0]).unwrap_or(piece.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(fields: &[(&str, &str)]) -> Ask {
        let front = Front { ip: "127.0.0.1".to_owned(), port: 80, tls: false };
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Ask { fields, ..Ask::new(&front, Some("a.example"), "/") }
    }

    #[test]
    fn a_field_of_the_witness_is_sent_alone() {
        let count = |ask: &Ask, name: &str| head_of(ask, true).to_ascii_lowercase().matches(name).count();
        assert_eq!(count(&asks(&[]), "user-agent: weir-proof"), 1);
        let own = asks(&[("user-agent", "bot"), ("accept", "text/html")]);
        assert_eq!((count(&own, "user-agent:"), count(&own, "accept:")), (1, 1), "{}", head_of(&own, true));
        // But one that the witness repeats is repeated.
        assert_eq!(count(&asks(&[("x-a", "1"), ("x-a", "2")]), "x-a:"), 2);
    }

    #[test]
    fn bodies_that_differ_have_different_checksums() {
        let hash = |pieces: &[&[u8]]| {
            let mut body = Body::default();
            pieces.iter().for_each(|piece| body.add(piece));
            (body.bytes, body.hash())
        };
        let base = vec![b'w'; 4099];
        for at in [0, 7, 8, 4095, 4098] {
            let mut other = base.clone();
            other[at] = b'x';
            assert_ne!(hash(&[&base]), hash(&[&other]), "{at}");
            // However it is cut.
            assert_eq!(hash(&[&other[..at], &other[at..]]), hash(&[&other]), "{at}");
        }
        let (a, b) = (hash(&[b"12345678abcdefgh"]), hash(&[b"abcdefgh12345678"]));
        assert_ne!(a, b);
        assert_eq!(hash(&[b"1", b"23", b"", b"45678abc", b"defgh"]), a);
    }

    #[test]
    fn connections_are_kept_where_nothing_can_be_mistaken() {
        let answer = |status: u16, fields: &[(&str, &str)]| Answer {
            status,
            fields: fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            ..Answer::default()
        };
        let get = asks(&[]);
        let length = ("content-length", "5");
        let cases = [
            (answer(200, &[length]), true),
            (answer(200, &[length, ("connection", "Close")]), false),
            (answer(200, &[]), false),
            (answer(204, &[]), true),
            (answer(101, &[length]), false),
        ];
        for (answer, stays) in cases {
            assert_eq!(stays_open(&get, &answer), stays, "{answer:?}");
        }
        let others = [
            Ask { host: None, ..get.clone() },
            Ask { body: 5, ..get.clone() },
            Ask { client: Some("10.0.0.1".to_owned()), ..get.clone() },
            asks(&[("Upgrade", "websocket")]),
        ];
        assert!(may_share(&get) && others.iter().all(|ask| !may_share(ask)));
        assert!(
            head_of(&get, false).contains("Connection: close") && !head_of(&get, true).contains("Connection")
        );
    }

    #[test]
    fn a_body_is_read_by_its_framing() {
        let read = |fields: &[(&str, &str)], text: &[u8]| {
            let fields: Vec<_> = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            read_body(&mut &*text, &fields, None).map(|body| (body.bytes, body.start))
        };
        let chunked = [("transfer-encoding", "chunked")];
        assert_eq!(
            read(&chunked, b"3\r\nabc\r\n1;x\r\nd\r\n0\r\nt: v\r\n\r\n").unwrap(),
            (4, b"abcd".to_vec())
        );
        assert_eq!(read(&[("content-length", "2")], b"abcd").unwrap(), (2, b"ab".to_vec()));
        assert_eq!(read(&[], b"abcd").unwrap(), (4, b"abcd".to_vec()));
        for (fields, text) in [
            (&chunked[..], &b"5\r\nabc"[..]),
            (&chunked[..], b"x\r\n"),
            (&chunked[..], b"ffffffffffffffff\r\nabc"),
            (&[("content-length", "5")][..], b"abc"),
        ] {
            assert!(read(fields, text).is_err(), "{fields:?} {text:?}");
        }
    }
}
