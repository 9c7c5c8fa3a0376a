//! Watches the process that replaced this one until this one exits. If the new process dies, this program starts
//! again.
//!
//! ```text
//!   `ready` ─► PROBATION: this process stays, and is still systemd's main process
//!           ─► KEPT: this process keeps the sockets open, so connections in their queues survive a crash
//!           ─► this process exits
//! ```
//! The program that died may be broken, and the file at the path may be the same one. The restart therefore runs
//! this process's own program, `/proc/self/exe`, which works even if its file was replaced.

use super::upgrade::{CHANGED, LEAVING, install, start};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_gateway::{Gateway, Handover};
use weir_telemetry::log;

/// How long this process stays at least after the new one is ready. A fault in the new one's first requests shows
/// in that time.
const PROBATION: Duration = Duration::from_secs(2);

/// How long this process keeps the sockets open. Any longer, and clients could still connect to a listener that
/// the new process has closed.
const KEPT: Duration = Duration::from_secs(10);

/// Polling interval. If the process dies, connections in its sockets wait this much longer.
const LOOK: Duration = Duration::from_millis(50);

/// Most restarts.
const TAKEOVERS: u32 = 3;

/// The process that replaced this one, if any.
#[derive(Default)]
pub(super) struct Successor(Arc<Watch>);

#[derive(Default)]
struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// There is no new process, or it no longer needs this one.
    #[default]
    Settled,
    /// The new process may still fail in its first requests, or is about to be restarted.
    OnProbation { pid: u32 },
}

impl Successor {
    /// Watches a process that serves, on a separate thread.
    pub(super) fn watch(&self, child: Child, stream: UnixStream, kept: Handover, gateway: Gateway) {
        let watch = Arc::clone(&self.0);
        watch.set(State::OnProbation { pid: child.id() });
        let (stream, kept, since) = (Some(stream), Some(kept), Instant::now());
        let guarded = Guarded { child, stream, kept, gateway, since };
        let pid = guarded.child.id();
        let spawned = thread::Builder::new().name("weir-successor".to_owned()).spawn(move || {
            guarded.guard(&watch);
            watch.set(State::Settled);
        });
        if spawned.is_err() {
            super::notify(&format!("MAINPID={pid}"));
            self.0.set(State::Settled); // no thread available: nobody watches the process
        }
    }

    /// The id of the process that serves, while this one is still the service manager's main process.
    pub(super) fn pid(&self) -> Option<u32> {
        match *self.0.lock() {
            State::OnProbation { pid } => Some(pid),
            State::Settled => None,
        }
    }

    /// Blocks until this process may exit.
    pub(super) fn see_off(&self) {
        let waits = |state: &mut State| matches!(state, State::OnProbation { .. });
        drop(self.0.changed.wait_while(self.0.lock(), waits).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }
}

/// A process under watch.
struct Guarded {
    child: Child,
    /// The socket for its messages, until it closes.
    stream: Option<UnixStream>,
    /// The sockets that it was given.
    kept: Option<Handover>,
    /// This process's: it has the UDP sockets of its connections, whose addresses nobody else could bind.
    gateway: Gateway,
    since: Instant,
}

impl Guarded {
    fn guard(mut self, watch: &Watch) {
        let (mut is_main, mut takeovers) = (false, 0);
        loop {
            if self.leaves() {
                if !is_main {
                    super::notify(&format!("MAINPID={}", self.child.id())); // so it can name its own successor
                }
                return;
            }
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) if !status.success() && takeovers < TAKEOVERS => {
                    takeovers += 1;
                    watch.set(State::OnProbation { pid: self.child.id() });
                    if !self.take_over(status) {
                        return;
                    }
                    watch.set(State::OnProbation { pid: self.child.id() });
                    is_main = false;
                }
                Ok(Some(_)) | Err(_) => return, // it ended on purpose, or keeps dying
            }
            if !is_main && self.since.elapsed() >= PROBATION {
                is_main = true;
                super::notify(&format!("MAINPID={}", self.child.id()));
                watch.set(State::Settled);
            }
            if self.since.elapsed() >= KEPT {
                self.kept = None;
            }
        }
    }

    /// Reads the next message of the process; `true` if it no longer needs watching. Waits at most [`LOOK`].
    fn leaves(&mut self) -> bool {
        let mut said = [0];
        let read = self.stream.as_ref().map(|stream| {
            stream.set_read_timeout(Some(LOOK))?;
            let mut stream = stream;
            stream.read(&mut said)
        });
        match read {
            Some(Ok(1)) if said[0] == LEAVING => return true,
            Some(Ok(1)) if said[0] == CHANGED => self.kept = None,
            Some(Ok(1)) => {}
            Some(Err(e)) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Some(_) => self.stream = None, // it died, or runs a program that sends no messages
            None => thread::sleep(LOOK),
        }
        false
    }

    /// Starts this program in place of a process that died; `true` if it serves.
    fn take_over(&mut self, status: ExitStatus) -> bool {
        let died = self.child.id();
        log::error(
            "the new process has died: restarting this program",
            &[("pid", &died), ("status", &status)],
        );
        let program = Path::new("/proc/self/exe");
        let mut command = Command::new(program);
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name); // the path that a later upgrade starts
        }
        let left = || self.gateway.hand_over().unwrap_or_default();
        let handover = self.kept.take().unwrap_or_else(left);
        self.kept = handover.try_clone().ok();
        let started = start(&mut command, program)
            .and_then(|(child, stream)| install(child, stream, handover, program));
        match started {
            Ok((child, stream, _)) => {
                let pid = child.id();
                (self.child, self.stream, self.since) = (child, Some(stream), Instant::now());
                log::warn("took over again", &[("pid", &pid), ("died", &died)]);
                true
            }
            Err(why) => {
                let first = why.lines().next().unwrap_or_default();
                log::error("no process serves: this program could not be restarted", &[("reason", &first)]);
                false
            }
        }
    }
}
