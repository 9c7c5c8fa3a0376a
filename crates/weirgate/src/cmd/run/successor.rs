//! The process that took this one's place, watched until this one ends: if it dies, a fresh process of this program serves instead.
//!
//! ```text
//!   `ready` ─► PROBATION, in which this process does not end ─► this one is still the main process of systemd
//!           ─► KEPT, in which its sockets are kept open here: connections that wait in them outlive its death
//!           ─► the end of this process
//! ```
//! The program that died may be broken, and the file at the path may be no other. So the one that takes over runs what this process
//! runs, `/proc/self/exe`, which exists even where its file was replaced.

use super::upgrade::{CHANGED, LEAVING, install, start};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_gateway::Handover;
use weir_telemetry::log;

/// How long this process stays at least once another serves. What fails with the first requests, fails in it.
const PROBATION: Duration = Duration::from_secs(2);

/// How long its sockets are kept open here. Not longer: of a listener that it closes meanwhile, clients would find an open one.
const KEPT: Duration = Duration::from_secs(10);

/// How often the process is looked after: what waits in its sockets waits that much longer for another.
const LOOK: Duration = Duration::from_millis(50);

/// How often another takes over.
const TAKEOVERS: u32 = 3;

/// The process that took this one's place, if there is one.
#[derive(Default)]
pub(super) struct Successor(Arc<Watch>);

#[derive(Default)]
struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// There is none, or it needs this process no more.
    #[default]
    Settled,
    /// It may still die of its first requests, or another is about to take over.
    OnProbation { pid: u32 },
}

impl Successor {
    /// Watches over a process that serves, on a thread of its own.
    pub(super) fn watch(&self, child: Child, stream: UnixStream, kept: Handover) {
        let watch = Arc::clone(&self.0);
        watch.set(State::OnProbation { pid: child.id() });
        let guarded = Guarded { child, stream: Some(stream), kept: Some(kept), since: Instant::now() };
        let pid = guarded.child.id();
        let spawned = thread::Builder::new().name("weir-successor".to_owned()).spawn(move || {
            guarded.guard(&watch);
            watch.set(State::Settled);
        });
        if spawned.is_err() {
            super::notify(&format!("MAINPID={pid}"));
            self.0.set(State::Settled); // no thread to be had: nobody watches over it
        }
    }

    /// The process that serves instead of this one, while this one is still the main process of whoever started it.
    pub(super) fn pid(&self) -> Option<u32> {
        match *self.0.lock() {
            State::OnProbation { pid } => Some(pid),
            State::Settled => None,
        }
    }

    /// Waits until this process may end.
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

/// A process that is watched over.
struct Guarded {
    child: Child,
    /// What it tells of itself, until it says no more.
    stream: Option<UnixStream>,
    /// What it was handed.
    kept: Option<Handover>,
    since: Instant,
}

impl Guarded {
    fn guard(mut self, watch: &Watch) {
        let (mut is_main, mut takeovers) = (false, 0);
        loop {
            if self.leaves() {
                if !is_main {
                    super::notify(&format!("MAINPID={}", self.child.id())); // so that it can name its own successor
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
                Ok(Some(_)) | Err(_) => return, // it ended on purpose, or one after the other dies
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

    /// Hears what the process tells of itself; whether that is that it need not be watched any more. Takes [`LOOK`] where it says nothing.
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
            Some(_) => self.stream = None, // it died, or its program is one that tells nothing
            None => thread::sleep(LOOK),
        }
        false
    }

    /// Starts a process of this program in place of one that died; whether it serves.
    fn take_over(&mut self, status: ExitStatus) -> bool {
        let died = self.child.id();
        log::error(
            "the process that took over has died: starting this program again",
            &[("pid", &died), ("status", &status)],
        );
        let program = Path::new("/proc/self/exe");
        let mut command = Command::new(program);
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name); // the path that a later upgrade starts
        }
        let handover = self.kept.take().unwrap_or_default();
        self.kept = handover.try_clone().ok();
        let started = start(&mut command, program)
            .and_then(|(child, stream)| install(child, stream, handover, program));
        match started {
            Ok((child, stream)) => {
                let pid = child.id();
                (self.child, self.stream, self.since) = (child, Some(stream), Instant::now());
                log::warn("took over again", &[("pid", &pid), ("died", &died)]);
                true
            }
            Err(why) => {
                let first = why.lines().next().unwrap_or_default();
                log::error("nobody serves: this program could not be started again", &[("reason", &first)]);
                false
            }
        }
    }
}
