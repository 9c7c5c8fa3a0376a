//! What the operating system lets the process hold.

#![allow(unsafe_code)] // system calls, and one of libc, that no safe crate of ours wraps

use std::io;

/// Raises the soft limit of open descriptors to the hard one; returns what it is now.
///
/// A gateway needs two descriptors an exchange, and the usual soft limit of 1,024 is an accident of `select(2)`.
///
/// # Errors
/// What the system says. The limit stays as it was.
pub fn raise_descriptors() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the call to fill.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a valid rlimit for the call to read.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// Gives memory that is free back to the system. glibc keeps what lies between blocks in use: after 100 connections that each
/// held 256 KiB of heads, 30 of 49 MiB. Takes milliseconds, during which other threads may wait for memory.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread (malloc_trim(3)).
    let _ = unsafe { libc::malloc_trim(0) }; // nothing to give back is no failure
}

/// Whether an error says that descriptors (or memory for sockets) ran out: the accept loop waits then, and goes on.
pub fn ran_out(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
