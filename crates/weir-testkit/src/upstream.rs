//! The upstream side: a server that does exactly what the test specifies, and records what it received.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::{ServerConnection, StreamOwned};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::wire::{DEADLINE, Io, Wire};
use crate::{Body, Head, ServerTls};

/// How long a scripted upstream waits for the next request on a connection.
const IDLE: Duration = Duration::from_secs(60);

/// A scripted server on a free port of 127.0.0.1.
///
/// With [`Self::listen`] the test accepts each connection itself and plays the server in its own thread. The
/// others answer automatically: [`Self::fixed`] always with the same bytes, [`Self::echo`] with the received
/// request, [`Self::script`] with a closure.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
    accepted: Receiver<Conn>,
    acceptor: Option<JoinHandle<()>>,
    stopped: Arc<AtomicBool>,
}

/// A request that reached the upstream.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Its request line and fields.
    pub head: Head,
    /// Its body, or the part that arrived.
    pub body: Body,
    /// Whether all of it arrived.
    pub complete: bool,
    /// The SNI of the TLS handshake.
    pub server_name: Option<String>,
    /// The client's certificate.
    pub client_certificate: Option<Vec<u8>>,
}

type Script = Arc<dyn Fn(&mut Conn) + Send + Sync>;

impl Upstream {
    /// Listens only; the test takes each connection with [`Self::accept`] and plays the server.
    pub fn listen() -> Self {
        Self::start(None, None)
    }

    /// As [`Self::listen`], with TLS.
    pub fn listen_tls(tls: &ServerTls) -> Self {
        Self::start(Some(tls.clone()), None)
    }

    /// Runs the script for each connection, each on a separate thread.
    pub fn script(script: impl Fn(&mut Conn) + Send + Sync + 'static) -> Self {
        Self::start(None, Some(Arc::new(script)))
    }

    /// As [`Self::script`], on this listener.
    pub fn script_on(listener: TcpListener, script: impl Fn(&mut Conn) + Send + Sync + 'static) -> Self {
        Self::start_on(listener, None, Some(Arc::new(script)))
    }

    /// As [`Self::script`], with TLS.
    pub fn script_tls(tls: &ServerTls, script: impl Fn(&mut Conn) + Send + Sync + 'static) -> Self {
        Self::start(Some(tls.clone()), Some(Arc::new(script)))
    }

    /// Answers every request with these bytes.
    pub fn fixed(response: impl AsRef<[u8]>) -> Self {
        Self::start(None, Some(fixed(response.as_ref())))
    }

    /// As [`Self::fixed`], with TLS.
    pub fn fixed_tls(tls: &ServerTls, response: impl AsRef<[u8]>) -> Self {
        Self::start(Some(tls.clone()), Some(fixed(response.as_ref())))
    }

    /// Answers `200` with a body that identifies this upstream.
    pub fn named(name: &str) -> Self {
        Self::fixed(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()))
    }

    /// Answers every request with the exact bytes of that request.
    pub fn echo() -> Self {
        Self::script(|conn| {
            while let Some(request) = conn.next_request() {
                let body = [&request.head.raw[..], &request.body.raw].concat();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                if conn.try_send([head.as_bytes(), &body].concat()).is_err() {
                    return;
                }
            }
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection that the test has not taken yet.
    #[track_caller]
    pub fn accept(&self) -> Conn {
        match self.accepted.recv_timeout(DEADLINE) {
            Ok(conn) => conn,
            Err(_) => panic!("nobody connected to the upstream within {DEADLINE:?}"),
        }
    }

    /// The same, with its first request read.
    #[track_caller]
    pub fn accept_request(&self) -> Conn {
        let mut conn = self.accept();
        conn.read_request();
        conn
    }

    /// The next connection that the test has not taken yet, if there is one.
    pub fn try_accept(&self) -> Option<Conn> {
        self.accepted.try_recv().ok()
    }

    /// Asserts that nobody has connected, apart from connections that the test took.
    #[track_caller]
    pub fn expect_no_connection(&self) {
        if let Ok(conn) = self.accepted.try_recv() {
            panic!("connection {} reached the upstream", conn.number);
        }
    }

    /// Discards everything received, and closes the connections that the test did not take, so that one row of a
    /// table does not affect the next.
    pub fn forget(&self) {
        while self.accepted.try_recv().is_ok() {}
        self.seen.lock().requests.clear();
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.seen.lock().connections
    }

    /// Every request whose head arrived, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.seen.lock().requests.clone()
    }

    /// Waits until n complete requests have arrived, and returns all of them.
    #[track_caller]
    pub fn wait_requests(&self, n: usize) -> Vec<Request> {
        match self.seen.wait(|seen| seen.requests.iter().filter(|request| request.complete).count() >= n) {
            Ok(seen) => seen.requests.clone(),
            Err(seen) => panic!("{} of {n} requests reached the upstream", seen.requests.len()),
        }
    }

    /// The single request that arrived since the last call of this method.
    #[track_caller]
    pub fn take_request(&self) -> Request {
        match self.seen.wait(|seen| seen.requests.iter().any(|request| request.complete)) {
            Ok(mut seen) if seen.requests.len() == 1 => seen.requests.remove(0),
            Ok(seen) | Err(seen) => panic!("{} requests reached the upstream", seen.requests.len()),
        }
    }

    /// Bytes that did not form a request, by connection.
    pub fn stray(&self) -> Vec<(usize, Vec<u8>)> {
        self.seen.lock().stray.clone()
    }

    /// Fails if a script panicked.
    #[track_caller]
    pub fn verify(&self) {
        let panics = self.seen.lock().panics.clone();
        assert!(panics.is_empty(), "the script of the upstream failed:\n{}", panics.join("\n"));
    }

    fn start(tls: Option<ServerTls>, script: Option<Script>) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").unwrap(), tls, script)
    }

    fn start_on(listener: TcpListener, tls: Option<ServerTls>, script: Option<Script>) -> Self {
        let address = listener.local_addr().unwrap();
        let (seen, stopped) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let (give, accepted) = mpsc::channel();
        let acceptor = thread::spawn({
            let (seen, stopped) = (seen.clone(), stopped.clone());
            move || accept(&listener, tls.as_ref(), script.as_ref(), &seen, &stopped, &give)
        });
        Self { address, seen, accepted, acceptor: Some(acceptor), stopped }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that blocks in accept, and waits until its port is closed.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        if thread::panicking() {
            for panic in &self.seen.lock().panics {
                eprintln!("a script of the upstream failed too: {panic}");
            }
        }
    }
}

/// The upstream's end of a connection. Operations on bytes are on [`Wire`].
#[derive(Debug)]
pub struct Conn {
    /// Its number, from 0.
    pub number: usize,
    wire: Wire,
    seen: Arc<Seen>,
}

impl Conn {
    /// The remote address.
    #[track_caller]
    pub fn peer_address(&self) -> SocketAddr {
        self.wire.io().tcp().expect("a TCP connection").peer_addr().unwrap()
    }

    /// The local address.
    #[track_caller]
    pub fn local_address(&self) -> SocketAddr {
        self.wire.io().tcp().expect("a TCP connection").local_addr().unwrap()
    }

    /// Reads a complete request.
    #[track_caller]
    pub fn read_request(&mut self) -> Request {
        match self.try_request(self.wire.until()) {
            Ok(request) => request,
            Err(why) => self.wire.fail(&format!("{why} while reading a request")),
        }
    }

    /// Reads the next complete request; `None` if the peer closed instead, or sent an invalid one.
    pub fn next_request(&mut self) -> Option<Request> {
        self.try_request(Instant::now() + IDLE).ok()
    }

    /// Reads the rest of a chunked body; `None` if the peer ended first.
    pub fn next_body(&mut self) -> Option<Body> {
        let until = self.wire.until();
        self.wire.try_read_chunked(until).ok()
    }

    /// Closes with RST: data in flight is lost.
    pub fn reset(self) {
        self.wire.reset();
    }

    /// Closes.
    pub fn close(self) {}

    fn try_request(&mut self, until: Instant) -> Result<Request, String> {
        let head = match self.wire.try_read_head(until) {
            Ok(head) => head,
            Err(end) => {
                if !self.wire.unread.is_empty() {
                    let bytes = std::mem::take(&mut self.wire.unread);
                    self.seen.change(|seen| seen.stray.push((self.number, bytes)));
                }
                return Err(format!("{end:?}"));
            }
        };
        let mut request = Request { connection: self.number, head, ..Request::default() };
        if let Io::TlsServer(stream) = self.wire.io() {
            request.server_name = stream.conn.server_name().map(str::to_owned);
            let chain = stream.conn.peer_certificates().unwrap_or_default();
            request.client_certificate = chain.first().map(|certificate| certificate.to_vec());
        }
        let index = self.seen.change(|seen| {
            seen.requests.push(request.clone());
            seen.requests.len() - 1
        });
        let read = self.wire.request_body(&request.head, &mut request.body, until);
        request.complete = read.is_ok();
        self.seen.change(|seen| {
            if let Some(kept) = seen.requests.get_mut(index) {
                *kept = request.clone();
            }
        });
        read.map(|()| request)
    }
}

impl Deref for Conn {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

/// An address of 127.0.0.1 that refuses connections. The socket is bound, so nobody else gets the address, and it
/// never listens. Keep the socket as long as the address must refuse.
pub fn refusing_address() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

/// Stops listening for good, so that the address refuses connections. Dropping the listener is not enough:
/// between fork and exec, a program that a parallel test starts holds copies of all descriptors. Such a copy
/// would keep listening.
pub fn stop_listening(listener: impl AsFd) {
    // A socket that no longer listens needs no shutdown.
    let _ = SockRef::from(&listener).shutdown(Shutdown::Both);
}

/// An unused address of 127.0.0.1, for a program that must be told its port.
///
/// The port is below the range for port 0 (32768 and up, `ip_local_port_range`), so no parallel test receives it
/// in the meantime.
pub fn unused_address() -> SocketAddr {
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id().wrapping_mul(101); // processes of tests begin at different ports
    loop {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(own);
        let port = u16::try_from(PORTS.start + nth % (PORTS.end - PORTS.start)).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// An address that never answers a connect, as if packets were dropped, because its accept queue is full. Keep
/// the sockets as long as it must stay that way.
pub fn black_hole() -> (Vec<Socket>, SocketAddr) {
    let (listener, address) = refusing_address();
    listener.listen(0).unwrap();
    let mut sockets = vec![listener];
    for _ in 0..16 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let connected = socket.connect_timeout(&address.into(), Duration::from_millis(200));
        if connected.is_err() {
            return (sockets, address);
        }
        sockets.push(socket);
    }
    panic!("{address} accepts without end");
}

/// Everything that has reached the upstream so far.
#[derive(Debug, Default)]
struct Seen {
    state: Mutex<SeenState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SeenState {
    connections: usize,
    requests: Vec<Request>,
    stray: Vec<(usize, Vec<u8>)>,
    panics: Vec<String>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, SeenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut SeenState) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    /// Waits for the condition. The error holds what had arrived by the deadline.
    fn wait(
        &self,
        condition: impl Fn(&SeenState) -> bool,
    ) -> Result<MutexGuard<'_, SeenState>, MutexGuard<'_, SeenState>> {
        let waited = self.changed.wait_timeout_while(self.lock(), DEADLINE, |seen| !condition(seen));
        let (seen, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() { Err(seen) } else { Ok(seen) }
    }
}

fn fixed(response: &[u8]) -> Script {
    let response = response.to_vec();
    Arc::new(move |conn| {
        while conn.next_request().is_some() {
            if conn.try_send(&response).is_err() {
                return;
            }
        }
    })
}

fn accept(
    listener: &TcpListener,
    tls: Option<&ServerTls>,
    script: Option<&Script>,
    seen: &Arc<Seen>,
    stopped: &AtomicBool,
    give: &Sender<Conn>,
) {
    for stream in listener.incoming() {
        if stopped.load(Ordering::Relaxed) {
            return stop_listening(listener);
        }
        let Ok(stream) = stream else { continue };
        let io = match tls {
            None => Io::Tcp(stream),
            Some(tls) => {
                let connection = ServerConnection::new(tls.0.clone()).unwrap();
                Io::TlsServer(Box::new(StreamOwned::new(connection, stream)))
            }
        };
        let number = seen.change(|seen| {
            seen.connections += 1;
            seen.connections - 1
        });
        let wire = Wire::new(io, format!("connection {number} of the upstream"));
        let mut conn = Conn { number, wire, seen: seen.clone() };
        match script.cloned() {
            None => {
                let _ = give.send(conn);
            }
            Some(script) => {
                let seen = seen.clone();
                thread::spawn(move || {
                    let run = std::panic::AssertUnwindSafe(|| script(&mut conn));
                    if let Err(panic) = std::panic::catch_unwind(run) {
                        let text = crate::table::panic_text(&*panic).to_owned();
                        seen.change(|seen| seen.panics.push(text));
                    }
                });
            }
        }
    }
}
