//! Acts on processes, and inspects them.

#![allow(unsafe_code, reason = "kill and prlimit, which no safe crate of ours wraps")]

use std::fs;

/// A signal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Continue = libc::SIGCONT as isize,
    Reload = libc::SIGHUP as isize,
    Stop = libc::SIGSTOP as isize,
}

/// Sends a signal, and ignores a process that is gone.
pub(crate) fn send(pid: u32, signal: Signal) {
    // SAFETY: kill touches no memory of ours.
    unsafe { libc::kill(pid.cast_signed(), signal as libc::c_int) };
}

/// Sets a process's limit of file descriptors, and returns the limit before.
pub(crate) fn limit_descriptors(pid: u32, limit: u64) -> u64 {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a null pointer for what is not set, and a valid one for what is read.
    let read =
        unsafe { libc::prlimit(pid.cast_signed(), libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut before) };
    assert_eq!(read, 0, "prlimit {pid}: {}", std::io::Error::last_os_error());
    let new = libc::rlimit { rlim_cur: limit.min(before.rlim_max), ..before };
    // SAFETY: as above, the other way round.
    unsafe { libc::prlimit(pid.cast_signed(), libc::RLIMIT_NOFILE, &raw const new, std::ptr::null_mut()) };
    before.rlim_cur
}

/// Memory of a process in KiB, with shared pages divided among their users; `None` if it is gone.
///
/// Pages of the program's file do not count. The kernel can drop and read them again, and how many are mapped depends
/// on the build profile and on the page cache: 23 of 28 MiB in one run, 43 of 48 in another.
pub(crate) fn memory(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib = |field: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    Some(kib("Pss_Anon:")? + kib("Pss_Shmem:")?)
}

/// Whether a process runs. A zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
