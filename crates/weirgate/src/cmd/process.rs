//! Processes that a command starts to measure them: they end with it, whatever ends it.

#![allow(unsafe_code)] // kill, and a call between fork and exec

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end when it is asked to. Then it is killed.
const END: Duration = Duration::from_secs(5);

/// How often we look whether something has happened.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// How much is told of what a process printed: its end.
const LOG_BYTES: usize = 4096;

/// A running process, the first of a group of its own. Dropping it ends the group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// What it prints. The file has no name, so nothing of it is left behind.
    log: File,
    /// By which signal it ends.
    signal: libc::c_int,
}

impl Process {
    /// Starts it, without input, in a group of its own, so that Ctrl-C reaches only us. The kernel ends it by SIGTERM when the calling
    /// thread is gone, for we may be killed.
    pub(super) fn start(command: &mut Command, signal: libc::c_int) -> io::Result<Self> {
        let log = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?).process_group(0);
        let parent = std::process::id();
        let tied = move || {
            // SAFETY: both are single system calls, which may be made between fork and exec.
            let failed = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0;
            if failed {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: as above.
            let is_orphan = unsafe { libc::getppid() }.cast_unsigned() != parent;
            if is_orphan { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
        };
        // SAFETY: `tied` allocates nothing and takes no lock.
        unsafe { command.pre_exec(tied) };
        Ok(Self { child: command.spawn()?, log, signal })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of what it printed.
    pub(super) fn printed(&self) -> String {
        let mut text = vec![0; LOG_BYTES];
        let length = self.log.metadata().map_or(0, |m| m.len());
        // At a position, for the process writes where the file's own one is.
        let read = self.log.read_at(&mut text, length.saturating_sub(LOG_BYTES as u64)).unwrap_or(0);
        text.truncate(read);
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// Sends a signal to its group.
    fn signal(&self, signal: libc::c_int) {
        if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: a system call without memory. The group is ours until the child is waited for.
            unsafe { libc::kill(-group, signal) };
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let until = Instant::now() + END;
        self.signal(self.signal);
        while self.ended().is_none() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        // What is left of the group, in any case: a shell may have ended before its children.
        self.signal(libc::SIGKILL);
        let _ = self.child.wait(); // it has been waited for already
    }
}
