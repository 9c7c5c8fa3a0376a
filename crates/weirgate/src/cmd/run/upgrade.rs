//! SIGUSR2 and `weir upgrade`: replaces this process with a new program without losing a connection.
//!
//! ```text
//!   this process                                     the next one
//!   starts the file at the path it was started by ─► finds a socket as its stdin
//!   sockets, ticket keys, counters ────────────────► loads the config, starts on them
//!   drains  ◄──────────────────────────── `ready` ── serves
//!   serves on, and says why  ◄──── `failed: …`, its end, or silence for too long
//! ```
//! Both processes accept from the same sockets until this one stops, so no queued connection is lost. Afterwards
//! `successor` watches the new process.

use super::successor::Successor;
use super::watchdog;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, TryLockError, mpsc};
use std::time::{Duration, Instant};
use weir_admin::Handle;
use weir_gateway::{Consequences, Gateway, Handover, Inheritance};
use weir_telemetry::log;

/// Tells a process that its stdin is the socket of the process that it replaces.
const VARIABLE: &str = "WEIR_HANDOVER";

/// How long the new process may take to become ready. A config with many routes takes seconds, and a name that
/// does not resolve takes three.
const READY_WAIT: Duration = Duration::from_secs(60);

/// How long the new process may leave our data unread, and how long it waits for the data.
const SEND_WAIT: Duration = Duration::from_secs(10);

/// Most bytes that are read of an error.
const REASON_BYTES: u64 = 64 * 1024;

/// Most bytes of the names of forgotten state that are read.
const FORGETS_BYTES: u32 = 1024 * 1024;

const READY: u8 = b'R';
/// Sent before `READY` if the predecessor asks for it: the lost state, as JSON preceded by its length (u32).
const FORGETS: u8 = b'N';
const FAILED: u8 = b'F';
/// Sent after `READY`: the new process runs another config, so its sockets may differ from those it was given.
pub(super) const CHANGED: u8 = b'C';
/// Sent after `READY`: the process ends on purpose or is being replaced itself, and needs no watching.
pub(super) const LEAVING: u8 = b'L';

// === the side of the process that serves ===

/// The result of an upgrade.
#[derive(Debug)]
pub(super) struct Upgraded {
    /// The process that serves now.
    pub(super) pid: u32,
    /// What happened to this process's connections and state.
    pub(super) consequences: Consequences,
}

/// Starts the new process and makes room for it.
pub(super) struct Upgrader {
    gateway: Gateway,
    program: Option<PathBuf>,
    /// The admin listener, once it runs.
    pub(super) admin: OnceLock<Handle>,
    /// Allows one upgrade at a time. A successful upgrade never unlocks it.
    turn: Mutex<()>,
    /// The process that replaced this one.
    pub(super) successor: Successor,
    /// The process that this one replaced, while it may still watch.
    pub(super) predecessor: OnceLock<Bond>,
}

impl Upgrader {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self {
            gateway,
            program: program(),
            admin: OnceLock::new(),
            turn: Mutex::new(()),
            successor: Successor::default(),
            predecessor: OnceLock::new(),
        }
    }

    /// Starts the file now at the path from which Weir was started, hands everything over, and drains once the
    /// new process is ready. Blocks until then and returns the new process id.
    ///
    /// # Errors
    /// Why the upgrade failed. This process keeps serving.
    pub(super) fn upgrade(&self) -> Result<Upgraded, String> {
        let upgraded = self.try_upgrade();
        if let Err(why) = &upgraded {
            // Only the first line fits a log line. A new process with a bad config has printed all of its
            // mistakes.
            let first = why.lines().next().unwrap_or_default();
            log::error("not upgraded: this process keeps serving", &[("reason", &first)]);
        }
        upgraded
    }

    fn try_upgrade(&self) -> Result<Upgraded, String> {
        if std::process::id() == 1 {
            return Err(
                "this is process 1 of a container, which ends with it: replace the container".to_owned()
            );
        }
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err("an upgrade is under way: wait until the new process is ready".to_owned());
            }
        };
        if !self.gateway.is_ready() {
            return Err("this process drains already".to_owned());
        }
        let program = self.program.as_deref().ok_or("it is not known where the program lies")?;
        let (mut child, stream) = start(&mut Command::new(program), program)?;
        let pid = child.id();
        log::info("upgrade begun", &[("program", &program.display()), ("pid", &pid)]);
        let handover = self
            .handover()
            .map_err(|e| ended(&mut child, program, &format!("its sockets cannot be handed over: {e}")))?;
        // Without it, a restarted process would bind its sockets itself.
        let kept = handover.try_clone().unwrap_or_default();
        let installed = install(child, stream, handover, program);
        let (child, stream, forgets) = installed.inspect_err(|_| self.gateway.stay())?;
        let consequences = Consequences { forgets, ..self.gateway.consequences_of_upgrade() };
        if let Some(admin) = self.admin.get() {
            admin.leave();
        }
        if let Some(predecessor) = self.predecessor.get() {
            predecessor.say(LEAVING);
        }
        let gateway = self.gateway.clone();
        self.successor.watch(child, stream, kept, gateway.clone());
        let (stopped, wait) = mpsc::channel::<()>();
        let draining = std::thread::Builder::new().name("weir-drain".to_owned());
        let drain = move || {
            gateway.give_way(|| {
                log::info("upgraded", &[("pid", &pid)]); // before draining, which may exit immediately
                drop(stopped);
            });
        };
        match draining.spawn(drain) {
            Ok(_) => drop(wait.recv()), // the channel hung up: from now on only the new process accepts
            Err(_) => self.gateway.stop(), // no thread available; the new process serves
        }
        Ok(Upgraded { pid, consequences })
    }

    fn handover(&self) -> io::Result<Handover> {
        let mut handover = self.gateway.hand_over()?;
        if let Some((asked, actual, socket)) = self.admin.get().and_then(Handle::lend) {
            handover.add_admin(&asked, actual, socket);
        }
        Ok(handover)
    }
}

/// Hands over to a started process and waits until it serves. Kills it on failure.
pub(super) fn install(
    mut child: Child,
    stream: UnixStream,
    handover: Handover,
    program: &Path,
) -> Result<(Child, UnixStream, Vec<String>), String> {
    let sent = handover.send(&stream).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => String::new(), // its exit status says more
        _ => format!("it rejected the handover: {e}"),
    });
    match sent.and_then(|()| wait_ready(&stream, READY_WAIT)) {
        Ok(forgets) => Ok((child, stream, forgets)),
        Err(why) => Err(ended(&mut child, program, &why)),
    }
}

/// The path from which this process was started; it may hold another file by now. Symlinks stay unresolved,
/// because operators switch versions by changing the link.
fn program() -> Option<PathBuf> {
    let called = PathBuf::from(std::env::args_os().next()?);
    if called.components().count() > 1 {
        return Some(std::env::current_dir().ok()?.join(called));
    }
    let runs = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(&called)).find(runs);
    found.or_else(|| std::env::current_exe().ok())
}

/// Starts a program with the arguments of this one. `program` is its name in messages.
pub(super) fn start(command: &mut Command, program: &Path) -> Result<(Child, UnixStream), String> {
    let (ours, theirs) = UnixStream::pair().map_err(|e| format!("no socket to hand over by: {e}"))?;
    ours.set_write_timeout(Some(SEND_WAIT)).map_err(|e| e.to_string())?;
    let child = command
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, "stdin")
        .env_remove(watchdog::PID)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()
        .map_err(|e| format!("{} cannot be started: {e}", program.display()))?;
    Ok((child, ours))
}

/// Waits until the new process reports that it is ready, or why not.
fn wait_ready(stream: &UnixStream, limit: Duration) -> Result<Vec<String>, String> {
    let late = || format!("it was not ready within {} s", limit.as_secs());
    stream.set_read_timeout(Some(limit)).map_err(|e| e.to_string())?;
    let mut forgets = Vec::new();
    loop {
        let mut said = [0];
        match (&*stream).read(&mut said) {
            Ok(1) if said[0] == READY => return Ok(forgets),
            Ok(1) if said[0] == FORGETS && forgets.is_empty() => forgets = read_forgets(stream)?,
            Ok(1) if said[0] == FAILED => {
                let mut why = String::new();
                let _ = stream.take(REASON_BYTES).read_to_string(&mut why); // as far as it came
                return Err(why);
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(late());
            }
            _ => return Err(String::new()),
        }
    }
}

/// Reads the message after [`FORGETS`]. Unreadable names do not stop the upgrade.
fn read_forgets(mut stream: &UnixStream) -> Result<Vec<String>, String> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|_| String::new())?;
    let length = u32::from_be_bytes(length);
    if length > FORGETS_BYTES {
        return Err(String::new());
    }
    let mut names = Vec::new();
    let read = stream.take(length.into()).read_to_end(&mut names).map_err(|_| String::new())?;
    if read < length as usize {
        return Err(String::new());
    }
    Ok(serde_json::from_slice(&names).unwrap_or_default())
}

/// Ends a process that did not become ready; says why.
fn ended(child: &mut Child, program: &Path, why: &str) -> String {
    // It may be about to exit, and its exit status is informative.
    let by = Instant::now() + Duration::from_millis(200);
    while why.is_empty() && Instant::now() < by && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = child.try_wait();
    let _ = child.kill(); // it may have ended already
    let _ = child.wait();
    match (why, status) {
        ("", Ok(Some(status))) => format!("{} ended before it was ready ({status})", program.display()),
        ("", _) => format!("{} hung up before it was ready", program.display()),
        (why, _) => why.to_owned(),
    }
}

// === the side of the process that begins ===

/// The process that this one replaces.
pub(super) struct Predecessor {
    stream: UnixStream,
    /// Whether it wants to know which of its state is lost.
    asks: bool,
}

impl Predecessor {
    /// The process that started this one to replace it, with its handover. Without a predecessor, the sockets
    /// that systemd opened.
    ///
    /// # Errors
    /// The expected handover does not arrive.
    pub(super) fn find() -> anyhow::Result<(Option<Self>, Inheritance)> {
        if std::env::var_os(VARIABLE).is_none_or(|value| value != "stdin") {
            return Ok((None, activated()?));
        }
        let received = || -> io::Result<_> {
            let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
            rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
            stream.set_read_timeout(Some(SEND_WAIT))?;
            let inheritance = Inheritance::receive(&stream)?;
            Ok((Some(Self { stream, asks: inheritance.asks() }), inheritance))
        };
        received().map_err(|e| {
            anyhow::anyhow!(
                "{VARIABLE} is set, but stdin holds no handover: {e}. Unset it for a normal start"
            )
        })
    }

    /// Reports that this process serves.
    pub(super) fn ready(mut self, forgets: &[String]) -> Bond {
        let mut said = Vec::new();
        if self.asks
            && !forgets.is_empty()
            && let Ok(names) = serde_json::to_vec(forgets)
            && let Some(length) = u32::try_from(names.len()).ok().filter(|length| *length <= FORGETS_BYTES)
        {
            said.push(FORGETS);
            said.extend_from_slice(&length.to_be_bytes());
            said.extend_from_slice(&names);
        }
        said.push(READY);
        let _ = self.stream.write_all(&said); // if it has exited, it need not know
        Bond(self.stream)
    }

    /// Reports that this process cannot serve.
    pub(super) fn failed(mut self, why: &str) {
        // As above.
        let _ = self.stream.write_all(&[FAILED]).and_then(|()| self.stream.write_all(why.as_bytes()));
    }
}

/// The connection by which a process reports to its predecessor.
pub(super) struct Bond(UnixStream);

impl Bond {
    pub(super) fn say(&self, what: u8) {
        let _ = (&self.0).write_all(&[what]); // the predecessor may have ended long ago
    }
}

/// The sockets that systemd opened (sd_listen_fds(3)).
fn activated() -> anyhow::Result<Inheritance> {
    use anyhow::Context;
    use std::os::fd::OwnedFd;
    let mut opened = listenfd::ListenFd::from_env();
    let mut sockets: Vec<OwnedFd> = Vec::new();
    for index in 0..opened.len() {
        let tcp = opened.take_tcp_listener(index).ok().flatten().map(OwnedFd::from);
        let socket = match tcp {
            Some(socket) => socket,
            None => {
                match opened.take_unix_listener(index).context("a socket of LISTEN_FDS cannot be served")? {
                    Some(socket) => socket.into(),
                    None => continue,
                }
            }
        };
        sockets.push(socket);
    }
    Inheritance::of_sockets(sockets).context("a socket of LISTEN_FDS cannot be served")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_next_process_says_is_understood() {
        let said = |bytes: &[u8]| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(bytes).unwrap();
            drop(theirs);
            wait_ready(&ours, READY_WAIT)
        };
        assert_eq!(said(b"R"), Ok(Vec::new()));
        assert_eq!(said(b"N\0\0\0\x05[\"a\"]R"), Ok(vec!["a".to_owned()]));
        assert_eq!(said(b"N\0\0\0\x01?R"), Ok(Vec::new()));
        assert_eq!(said(b"N\0\0\0\x05[\"a\""), Err(String::new()));
        assert_eq!(said(b"N\xff\0\0\0"), Err(String::new()));
        assert_eq!(said(b"Fno such file"), Err("no such file".to_owned()));
        assert_eq!(said(b"?"), Err(String::new()));
        assert_eq!(said(b""), Err(String::new()));
    }

    #[test]
    fn silence_ends_the_wait() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let why = wait_ready(&ours, Duration::from_millis(10)).unwrap_err();
        assert!(why.contains("not ready within"), "{why}");
    }
}
