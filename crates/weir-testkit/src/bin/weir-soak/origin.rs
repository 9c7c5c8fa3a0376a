//! An origin: a process that records the id of each request in its ledger before it answers, and misbehaves on
//! request.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::process::{self, Signal};

/// How an origin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Sends bytes that no HTTP client understands.
    Garbage = b'g' as isize,
    /// Answers correctly.
    Good = b'+' as isize,
    /// Resets the connection.
    Reset = b'r' as isize,
    /// Answers late, but in time.
    Slow = b's' as isize,
    /// Answers with 503.
    Unavailable = b'u' as isize,
}

/// The delay of a slow answer.
const LATE: Duration = Duration::from_millis(100);

/// Idle timeout of a connection.
const IDLE: Duration = Duration::from_secs(300);

/// The parent's handle of an origin process, which ends when this is dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    ledger: PathBuf,
    child: Child,
}

impl Origin {
    pub(crate) fn start(address: SocketAddr, ledger: &Path) -> Self {
        let child = Self::spawn(address, ledger);
        Self { address, ledger: ledger.to_owned(), child }
    }

    fn spawn(address: SocketAddr, ledger: &Path) -> Child {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["origin", &address.to_string()])
            .arg(ledger)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("this program can be started again");
        // The process writes a byte when it listens.
        let mut said = [0];
        let read = child.stdout.as_mut().expect("a pipe").read(&mut said);
        assert!(matches!(read, Ok(1)), "the origin at {address} did not come up");
        child
    }

    pub(crate) fn behave(&mut self, mood: Mood) {
        let _ = self.child.stdin.as_mut().expect("a pipe").write_all(&[mood as u8]); // a killed one gets nothing
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::send(self.child.id(), signal);
    }

    /// SIGKILL: the process loses whatever it was doing.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = Self::spawn(self.address, &self.ledger);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.kill();
    }
}

// === the process ===

static MOOD: AtomicU8 = AtomicU8::new(Mood::Good as u8);

/// Serves until stdin closes, which means that the parent is gone.
pub(crate) fn serve(address: &str, ledger: &str) {
    let listener = TcpListener::bind(address).unwrap();
    let ledger: &'static File =
        Box::leak(Box::new(OpenOptions::new().create(true).append(true).open(ledger).unwrap()));
    std::io::stdout().write_all(b"!").unwrap();
    std::io::stdout().flush().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || drop(converse(&stream, ledger)));
        }
    });
    for mood in std::io::stdin().lock().bytes() {
        match mood {
            Ok(mood) => MOOD.store(mood, Relaxed),
            Err(_) => return,
        }
    }
}

/// Serves the requests of a connection.
fn converse(mut stream: &TcpStream, mut ledger: &File) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let method = line.split(' ').next().unwrap_or_default().to_owned();
        let (mut id, mut length) = (String::new(), 0);
        loop {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end().split_once(':') {
                None => break,
                Some((name, value)) if name.eq_ignore_ascii_case("x-soak-id") => {
                    value.trim().clone_into(&mut id);
                }
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        // A single append to the file, which survives even if this process is killed right after.
        ledger.write_all(format!("{id} {method}\n").as_bytes())?;
        let mood = MOOD.load(Relaxed);
        if mood == Mood::Slow as u8 {
            thread::sleep(LATE);
        } else if mood == Mood::Reset as u8 {
            return SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
        let answer = if mood == Mood::Garbage as u8 {
            "BANANA\r\n\r\n".to_owned()
        } else if mood == Mood::Unavailable as u8 {
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned()
        } else {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{id}", id.len())
        };
        stream.write_all(answer.as_bytes())?;
    }
}
