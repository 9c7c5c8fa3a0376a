//! The upstreams of a proof: they note what they see and answer as the scenario says.

use super::ask::{read_body, read_head};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_import::proof::patterns::{Origin, unix_in_workspace};
use weir_import::proof::{Scenario, Seen};

/// Longest that a connection may be silent.
const SILENCE: Duration = Duration::from_secs(20);
/// Longest that a new connection may be silent before others to the same address are served.
const PROMPT: Duration = Duration::from_millis(20);
/// The first line of a connection over HTTP/2 (RFC 9113 §3.4).
const HTTP2_PREFACE: &str = "PRI * HTTP/2.0";
/// What it answers with.
const BODY: &str = "echo\n";

/// The upstreams.
pub(super) struct Echo {
    shared: Arc<Shared>,
    listeners: HashMap<String, Vec<Open>>,
    tls: Arc<rustls::ServerConfig>,
    /// Whether it is in a world of its own, where clients may have any address.
    in_world: bool,
}

struct Shared {
    scenario: Mutex<Scenario>,
    seen: Mutex<Vec<Seen>>,
}

/// A listener with the address to open it at again.
struct Open {
    at: String,
    listener: Arc<TcpListener>,
}

/// The address of an origin as the report names it: the same for `localhost` and `127.0.0.1`.
pub(super) fn who(address: &str) -> String {
    match address.rsplit_once(':') {
        Some(("localhost" | "[::1]", port)) => format!("127.0.0.1:{port}"),
        _ => address.to_ascii_lowercase(),
    }
}

/// The addresses of the names among the origins.
pub(super) fn names(origins: &[Origin]) -> BTreeMap<String, Ipv4Addr> {
    let mut names = BTreeMap::new();
    for origin in origins {
        let Some((host, _)) =
            origin.address.rsplit_once(':').filter(|_| !origin.address.starts_with("unix:"))
        else {
            continue;
        };
        let host = host.to_ascii_lowercase();
        if host.trim_matches(['[', ']']).parse::<IpAddr>().is_err() && host != "localhost" {
            let number = u32::try_from(names.len()).unwrap_or_default() % 60_000 + 1;
            let octets = number.to_be_bytes();
            names.entry(host).or_insert(Ipv4Addr::new(127, 1 + octets[1], octets[2], octets[3]));
        }
    }
    names
}

impl Echo {
    /// Opens all origins. An address that a program listens on itself is left to it.
    pub(super) fn open(
        origins: &[Origin],
        names: &BTreeMap<String, Ipv4Addr>,
        taken: &[String],
        tls: Arc<rustls::ServerConfig>,
    ) -> Self {
        let shared = Shared { scenario: Mutex::new(Scenario::Plain), seen: Mutex::default() };
        let mut echo = Self { shared: Arc::new(shared), listeners: HashMap::new(), tls, in_world: true };
        for origin in origins {
            let who = who(&origin.address);
            if echo.listeners.contains_key(&who) {
                continue;
            }
            if let Some(path) = origin.address.strip_prefix("unix:") {
                echo.open_unix(path, &who);
                continue;
            }
            let Some((host, port)) = who.rsplit_once(':') else { continue };
            let host = names.get(host).map_or_else(|| host.to_owned(), Ipv4Addr::to_string);
            let at = format!("{host}:{port}");
            if taken.contains(&at) {
                continue;
            }
            let mut all = vec![at];
            if host == "127.0.0.1" {
                all.push(format!("[::1]:{port}"));
            }
            let open: Vec<Open> = all.into_iter().filter_map(|at| echo.listen(at, &who).ok()).collect();
            echo.listeners.insert(who, open);
        }
        echo
    }

    /// Opens origins at addresses of this machine: each with its own address in the configs.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub(super) fn open_at(
        places: &[(String, String)],
        tls: Arc<rustls::ServerConfig>,
    ) -> Result<Self, String> {
        let shared = Shared { scenario: Mutex::new(Scenario::Plain), seen: Mutex::default() };
        let mut echo = Self { shared: Arc::new(shared), listeners: HashMap::new(), tls, in_world: false };
        for (address, at) in places {
            let who = who(address);
            let open =
                echo.listen(at.clone(), &who).map_err(|e| format!("the echo for {address} at {at}: {e}"))?;
            echo.listeners.entry(who).or_default().push(open);
        }
        Ok(echo)
    }

    fn listen(&self, at: String, who: &str) -> io::Result<Open> {
        let listener = Arc::new(TcpListener::bind(&at)?);
        let (shared, tls, who) = (Arc::clone(&self.shared), Arc::clone(&self.tls), who.to_owned());
        let accepting = Arc::clone(&listener);
        spawn(move || {
            while let Ok((stream, _)) = accepting.accept() {
                let (shared, tls, who) = (Arc::clone(&shared), Arc::clone(&tls), who.clone());
                // A thread for each connection costs more than its exchange. Only one that is silent needs one.
                let mut first = [0];
                let is_ready = stream.set_read_timeout(Some(PROMPT)).and_then(|()| stream.set_nodelay(true));
                match is_ready.and_then(|()| stream.peek(&mut first)) {
                    Ok(0) => {}
                    Ok(_) => serve(&shared, tls, &who, stream, first),
                    Err(_) => {
                        // The program sees it closed if there is no thread.
                        let _ = spawn(move || {
                            let _ = stream.set_read_timeout(Some(SILENCE));
                            if let Ok(1) = stream.peek(&mut first) {
                                serve(&shared, tls, &who, stream, first);
                            }
                        });
                    }
                }
            }
        })?;
        Ok(Open { at, listener })
    }

    fn open_unix(&self, path: &str, who: &str) {
        let Ok(listener) = UnixListener::bind(unix_in_workspace(path)) else { return };
        let (shared, who) = (Arc::clone(&self.shared), who.to_owned());
        let _ = spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (shared, who) = (Arc::clone(&shared), who.clone());
                let _ = stream.set_read_timeout(Some(SILENCE)); // of a new socket it cannot fail
                let _ = spawn(move || converse(&shared, &who, stream));
            }
        });
    }

    /// Sets the scene of the next requests, and forgets what was seen.
    pub(super) fn set(&mut self, scenario: &Scenario) {
        let before = std::mem::replace(
            &mut *self.shared.scenario.lock().unwrap_or_else(PoisonError::into_inner),
            scenario.clone(),
        );
        if before != *scenario {
            let dead = |scenario: &Scenario| match scenario {
                Scenario::Dead(addresses) => addresses.iter().map(|address| who(address)).collect(),
                _ => Vec::new(),
            };
            for who in dead(&before) {
                let closed = self.listeners.remove(&who).unwrap_or_default();
                let open = closed.into_iter().filter_map(|open| {
                    drop(open.listener);
                    self.listen(open.at, &who).ok()
                });
                let open = open.collect();
                self.listeners.insert(who, open);
            }
            for who in dead(scenario) {
                for open in self.listeners.get(&who).into_iter().flatten() {
                    // Wakes the thread in accept, which drops the listener.
                    let _ = rustix::net::shutdown(&open.listener, rustix::net::Shutdown::Both);
                }
            }
        }
        self.seen();
    }

    /// Whether clients may have any address.
    pub(super) const fn is_in_world(&self) -> bool {
        self.in_world
    }

    /// What was seen since the last call.
    pub(super) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    fn note(&self, seen: Seen) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    /// Notes a connection to an address in a protocol that the echo does not speak, once per address. A program may
    /// connect again if its connection ends before it has sent its request, which depends on how busy the machine is.
    fn note_asked(&self, who: &str) {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|seen| seen.who == who && seen.method.is_empty()) {
            all.push(Seen { who: who.to_owned(), ..Seen::default() });
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(256 << 10).spawn(work).map(|_| ())
}

/// Serves a connection that speaks, and whose `first` byte was seen.
fn serve(shared: &Shared, tls: Arc<rustls::ServerConfig>, who: &str, stream: TcpStream, first: [u8; 1]) {
    if stream.set_read_timeout(Some(SILENCE)).is_err() {
        return;
    }
    // The first byte of a handshake: RFC 8446 §5.1.
    if first == [22] {
        if let Ok(connection) = rustls::ServerConnection::new(tls) {
            converse(shared, who, rustls::StreamOwned::new(connection, stream));
        }
    } else {
        converse(shared, who, stream);
    }
}

/// One request. The connection ends behind it: one that stays would survive that its upstream dies.
fn converse(shared: &Shared, who: &str, stream: impl Read + Write) {
    let _ = exchange(shared, who, &mut BufReader::new(stream)); // the program sees it closed
}

fn exchange<S: Read + Write>(shared: &Shared, who: &str, stream: &mut BufReader<S>) -> io::Result<()> {
    let Some(first) = stream.fill_buf()?.first().copied() else { return Ok(()) };
    if !first.is_ascii_uppercase() {
        shared.note_asked(who); // FastCGI and the like
        return Ok(());
    }
    let (line, fields) = read_head(stream)?;
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default().to_owned();
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    if field("expect").is_some() {
        stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let body = read_body(stream, &fields, Some(0))?;
    let host = field("host").unwrap_or_default().to_owned();
    if line == HTTP2_PREFACE {
        shared.note_asked(who);
    } else {
        shared.note(Seen {
            who: who.to_owned(),
            method: method.clone(),
            target,
            body_bytes: body.bytes,
            body_hash: body.hash(),
            fields,
        });
    }
    let scenario = shared.scenario.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, more) = match scenario {
        Scenario::Answer(302) => ("302 Found".to_owned(), format!("Location: http://{host}/moved?x=1\r\n")),
        Scenario::Answer(status) => (format!("{status} Answer"), String::new()),
        Scenario::SetCookie => {
            let cookies = "Set-Cookie: a=1; Path=/; HttpOnly\r\nSet-Cookie: b=2; Path=/w; Secure\r\n";
            ("200 OK".to_owned(), cookies.to_owned())
        }
        Scenario::Plain | Scenario::Dead(_) => ("200 OK".to_owned(), String::new()),
    };
    let body = if method == "HEAD" { "" } else { BODY };
    let answer = format!(
        "HTTP/1.1 {status}\r\nServer: echo\r\nX-Powered-By: echo\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n{more}\r\n{body}",
        BODY.len()
    );
    stream.get_mut().write_all(answer.as_bytes())?;
    stream.get_mut().flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections are no requests: how many a program makes depends on how fast the machine is.
    #[test]
    fn what_speaks_another_protocol_is_noted_once() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let tls = crate::proof::play::server_tls(&made).unwrap();
        let places = [("grpc:50051".to_owned(), "127.0.0.1:0".to_owned())];
        let echo = Echo::open_at(&places, tls).unwrap();
        let at = echo.listeners["grpc:50051"][0].listener.local_addr().unwrap();
        for first in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "\x01\x01\x00"] {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(first.as_bytes()).unwrap();
            let _ = stream.read_to_end(&mut Vec::new()); // unread bytes make it a reset
        }
        let seen = Seen { who: "grpc:50051".to_owned(), ..Seen::default() };
        assert_eq!(echo.seen(), [seen]);
    }
}
