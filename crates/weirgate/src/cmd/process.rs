//! Child processes that a command measures. They end with the command, however it ends.

#![allow(unsafe_code)] // kill, and a call between fork and exec

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a process has to stop before it is killed.
const END: Duration = Duration::from_secs(5);

/// Polling interval.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// How many bytes of a process's output we show, counted from the end.
const LOG_BYTES: usize = 4096;

/// A running process, the leader of its own process group. Dropping it ends the group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Its output. The file has no name, so nothing is left behind.
    log: File,
    /// The signal that stops it.
    signal: libc::c_int,
}

impl Process {
    /// Starts the command without input, in its own process group, so Ctrl-C reaches only us. The kernel sends it
    /// SIGTERM when the calling thread ends, because we may be killed ourselves.
    ///
    /// The process does not inherit our real-time policy. The policy protects the generator from preemption, but
    /// processes that share a core would not take turns under it.
    pub(super) fn start(command: &mut Command, signal: libc::c_int) -> io::Result<Self> {
        let log = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?).process_group(0);
        let parent = std::process::id();
        // SAFETY: asks for a number.
        let is_real_time =
            matches!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_FIFO | libc::SCHED_RR);
        // SAFETY: all zeros is a valid value of this structure of numbers, and the priority of ordinary processes.
        let ordinary: libc::sched_param = unsafe { std::mem::zeroed() };
        let tied = move || {
            // SAFETY: a single system call that reads `ordinary`.
            let is_refused = is_real_time
                && unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) } != 0;
            if is_refused {
                return Err(io::Error::last_os_error());
            }
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

    /// Its exit status, if it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of its output.
    pub(super) fn printed(&self) -> String {
        let mut text = vec![0; LOG_BYTES];
        let length = self.log.metadata().map_or(0, |m| m.len());
        // With `read_at`, because reading must not move the offset at which the process writes.
        let read = self.log.read_at(&mut text, length.saturating_sub(LOG_BYTES as u64)).unwrap_or(0);
        text.truncate(read);
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// Sends a signal to the process group.
    fn signal(&self, signal: libc::c_int) {
        if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: a system call that touches no memory. The group is ours until we wait for the child.
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
        // Kills the rest of the group in any case, since a shell may end before its children.
        self.signal(libc::SIGKILL);
        let _ = self.child.wait(); // we may have waited for it already
    }
}
