//! One connection, plain or TLS, that records everything sent and received.
//!
//! Operations that both ends share; `client.rs` and `upstream.rs` wrap it.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use socket2::SockRef;

/// Default timeout of every wait.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// How much of each turn of a conversation is printed on failure.
const SHOWN: usize = 2048;

/// One connection. Every wait has a deadline, and every failure panics with the transcript.
#[derive(Debug)]
pub struct Wire {
    io: Io,
    name: String,
    deadline: Duration,
    /// Received and not yet read by the test.
    pub(crate) unread: Vec<u8>,
    turns: Vec<Turn>,
}

#[derive(Debug)]
pub(crate) enum Io {
    Tcp(TcpStream),
    TlsClient(Box<StreamOwned<ClientConnection, TcpStream>>),
    TlsServer(Box<StreamOwned<ServerConnection, TcpStream>>),
    Unix(UnixStream),
}

/// Why no more bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer closed its side.
    Closed,
    /// The deadline passed.
    Deadline,
    /// The peer reset the connection, or TLS failed.
    Reset,
}

#[derive(Debug)]
struct Turn {
    sent: bool,
    total: usize,
    shown: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(io: Io, name: impl Into<String>) -> Self {
        if let Some(tcp) = io.tcp() {
            let _ = tcp.set_nodelay(true);
        }
        Self { io, name: name.into(), deadline: DEADLINE, unread: Vec::new(), turns: Vec::new() }
    }

    /// Changes the timeout of later operations.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    // === Sending ===

    /// Sends the bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(error) = self.try_send(bytes.as_ref()) {
            self.fail(&format!("cannot send: {error}"));
        }
    }

    /// Sends the bytes to a peer that may have closed already.
    ///
    /// # Errors
    /// The socket's error.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let bytes = bytes.as_ref();
        self.note(true, bytes);
        self.io.set_timeouts(self.deadline)?;
        self.io.write_all(bytes)
    }

    /// Ends our sending side: FIN, or `close_notify` and FIN with TLS.
    #[track_caller]
    pub fn half_close(&mut self) {
        match &mut self.io {
            Io::TlsClient(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
            Io::TlsServer(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
            Io::Tcp(_) | Io::Unix(_) => {}
        }
        let closed = match &self.io {
            Io::Unix(unix) => unix.shutdown(Shutdown::Write),
            io => io.tcp().map_or(Ok(()), |tcp| tcp.shutdown(Shutdown::Write)),
        };
        if let Err(error) = closed {
            self.fail(&format!("cannot half-close: {error}"));
        }
    }

    /// Closes with RST: data in flight is lost.
    pub fn reset(self) {
        if let Some(tcp) = self.io.tcp() {
            SockRef::from(tcp).set_linger(Some(Duration::ZERO)).unwrap();
        }
    }

    /// Closes. If received bytes remain unread, the kernel sends RST instead of FIN.
    pub fn close(self) {}

    // === Receiving ===

    /// Reads exactly these bytes, and fails at the first difference.
    #[track_caller]
    pub fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let expected = bytes.as_ref();
        let until = self.until();
        while self.unread.len() < expected.len() && expected.starts_with(&self.unread) {
            if let Err(end) = self.fill(until) {
                self.fail(&format!("{end:?} while expecting:\n{}", show(expected)));
            }
        }
        if !self.unread.starts_with(expected) {
            self.fail(&format!("expected:\n{}\nbut read:\n{}", show(expected), show(&self.unread)));
        }
        self.unread.drain(..expected.len());
    }

    /// Reads n bytes.
    #[track_caller]
    pub fn read_n(&mut self, n: usize) -> Vec<u8> {
        match self.try_read_n(n, self.until()) {
            Ok(bytes) => bytes,
            Err(end) => self.fail(&format!("{end:?} while reading {n} bytes")),
        }
    }

    /// Reads up to and including the marker.
    #[track_caller]
    pub fn read_until(&mut self, marker: impl AsRef<[u8]>) -> Vec<u8> {
        match self.try_read_until(marker.as_ref(), self.until()) {
            Ok(bytes) => bytes,
            Err(end) => self.fail(&format!("{end:?} while reading up to {}", show(marker.as_ref()))),
        }
    }

    /// Reads everything until the peer closes or resets.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        let until = self.until();
        loop {
            match self.fill(until) {
                Ok(()) => {}
                Err(End::Deadline) => self.fail("the peer did not close"),
                Err(End::Closed | End::Reset) => return std::mem::take(&mut self.unread),
            }
        }
    }

    /// Asserts that the peer now closes or resets, without sending more.
    #[track_caller]
    pub fn expect_close(&mut self) {
        self.expect_end(&[End::Closed, End::Reset]);
    }

    /// Asserts that the peer now closes its side with FIN, without sending more.
    #[track_caller]
    pub fn expect_eof(&mut self) {
        self.expect_end(&[End::Closed]);
    }

    /// Asserts that nothing arrives for this long, and that the connection stays open. The absence of an event
    /// cannot be awaited, so this takes its full duration: keep it short, and prefer to prove the point by
    /// another event.
    #[track_caller]
    pub fn expect_silence(&mut self, duration: Duration) {
        if !self.unread.is_empty() {
            self.fail(&format!("expected silence, but read:\n{}", show(&self.unread)));
        }
        match self.fill(Instant::now() + duration) {
            Ok(()) => self.fail(&format!("expected silence, but read:\n{}", show(&self.unread))),
            Err(End::Deadline) => {}
            Err(end) => self.fail(&format!("expected silence, but: {end:?}")),
        }
    }

    #[track_caller]
    fn expect_end(&mut self, allowed: &[End]) {
        if !self.unread.is_empty() {
            self.fail(&format!("expected the end, but there is more:\n{}", show(&self.unread)));
        }
        match self.fill(self.until()) {
            Ok(()) => self.fail(&format!("expected the end, but read:\n{}", show(&self.unread))),
            Err(end) if allowed.contains(&end) => {}
            Err(end) => self.fail(&format!("expected {allowed:?}, but: {end:?}")),
        }
    }

    // === Building blocks of the message readers ===

    /// The deadline of an operation that starts now.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Waits for more bytes.
    pub(crate) fn fill(&mut self, until: Instant) -> Result<(), End> {
        let mut buffer = [0; 16 * 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(End::Deadline);
            }
            self.io.set_timeouts(left).map_err(|_| End::Reset)?;
            match self.io.read(&mut buffer) {
                Ok(0) => return Err(End::Closed),
                Ok(n) => {
                    self.note(false, &buffer[..n]);
                    self.unread.extend_from_slice(&buffer[..n]);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(End::Deadline),
                    ErrorKind::UnexpectedEof => return Err(End::Closed),
                    _ => return Err(End::Reset),
                },
            }
        }
    }

    pub(crate) fn try_read_n(&mut self, n: usize, until: Instant) -> Result<Vec<u8>, End> {
        while self.unread.len() < n {
            self.fill(until)?;
        }
        Ok(self.unread.drain(..n).collect())
    }

    pub(crate) fn try_read_until(&mut self, marker: &[u8], until: Instant) -> Result<Vec<u8>, End> {
        let mut searched = 0;
        loop {
            let found = self.unread[searched..].windows(marker.len()).position(|window| window == marker);
            if let Some(at) = found {
                return Ok(self.unread.drain(..searched + at + marker.len()).collect());
            }
            // The marker may have started in the bytes already here.
            searched = (self.unread.len() + 1).saturating_sub(marker.len()).max(searched);
            self.fill(until)?;
        }
    }

    pub(crate) fn io(&self) -> &Io {
        &self.io
    }

    /// The whole conversation, as readable text.
    pub fn transcript(&self) -> String {
        let mut text = format!("--- {} (→ we sent, ← we received)\n", self.name);
        for turn in &self.turns {
            let arrow = if turn.sent { '→' } else { '←' };
            for line in show(&turn.shown).lines() {
                let _ = writeln!(text, "{arrow} {line}");
            }
            if turn.total > turn.shown.len() {
                let _ = writeln!(text, "{arrow} … {} bytes in all", turn.total);
            }
        }
        text.push_str("---");
        text
    }

    /// Fails the test, with the transcript.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{}", self.transcript())
    }

    fn note(&mut self, sent: bool, bytes: &[u8]) {
        if self.turns.last().is_none_or(|turn| turn.sent != sent) {
            self.turns.push(Turn { sent, total: 0, shown: Vec::new() });
        }
        if let Some(turn) = self.turns.last_mut() {
            let room = SHOWN.saturating_sub(turn.shown.len()).min(bytes.len());
            turn.shown.extend_from_slice(&bytes[..room]);
            turn.total += bytes.len();
        }
    }
}

impl Io {
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::TlsClient(tls) => Some(&tls.sock),
            Self::TlsServer(tls) => Some(&tls.sock),
            Self::Unix(_) => None,
        }
    }

    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        if let Self::Unix(unix) = self {
            unix.set_read_timeout(Some(timeout))?;
            unix.set_write_timeout(Some(timeout))
        } else if let Some(tcp) = self.tcp() {
            tcp.set_read_timeout(Some(timeout))?;
            tcp.set_write_timeout(Some(timeout))
        } else {
            Ok(())
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(io) => io.read(buffer),
            Self::TlsClient(io) => io.read(buffer),
            Self::TlsServer(io) => io.read(buffer),
            Self::Unix(io) => io.read(buffer),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(io) => io.write_all(bytes),
            Self::TlsClient(io) => io.write_all(bytes).and_then(|()| io.flush()),
            Self::TlsServer(io) => io.write_all(bytes).and_then(|()| io.flush()),
            Self::Unix(io) => io.write_all(bytes),
        }
    }
}

/// Bytes as text, with everything but plain ASCII escaped, and a line break after each LF.
pub(crate) fn show(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in &bytes[..bytes.len().min(SHOWN)] {
        match byte {
            b'\n' => text.push_str("\\n\n"),
            b'\\' => text.push('\\'),
            byte => {
                let _ = write!(text, "{}", byte.escape_ascii());
            }
        }
    }
    if bytes.len() > SHOWN {
        let _ = write!(text, "… {} bytes in all", bytes.len());
    }
    text
}
