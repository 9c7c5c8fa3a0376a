//! File pages: which parts of a file the kernel has in memory.

#![allow(unsafe_code)] // no safe crate of ours wraps cachestat yet

use crate::limits::page_size;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// The number of cachestat (Linux 6.5), the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether a range of a file is entirely in memory, so that sending it does not wait for the disk. False if the
/// kernel does not say: it is older than 6.5, a sandbox forbids the call, or another user owns the file.
pub fn is_resident(file: &File, offset: u64, length: u64) -> bool {
    if !may_ask() {
        return false;
    }
    let range = Range { offset, length };
    let mut pages = Pages::default();
    // SAFETY: both structures match the kernel's and live until the call returns; the kernel writes only the second.
    let told = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    let page = page_size() as u64;
    let (Some(end), true) = (offset.checked_add(length), told == 0) else { return false };
    pages.cached >= end.div_ceil(page) - offset / page
}

/// Whether the kernel may be asked about pages. The first call finds out, within a filter for system calls by a fork of
/// the process: so call it at the start, while the process has little memory and no other thread.
pub fn may_ask() -> bool {
    static MAY_ASK: OnceLock<bool> = OnceLock::new();
    *MAY_ASK.get_or_init(|| !is_filtered() || a_child_may_ask())
}

/// Whether a filter decides which system calls this process may make.
fn is_filtered() -> bool {
    // SAFETY: reads one setting of the process (PR_GET_SECCOMP(2const)).
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) == libc::SECCOMP_MODE_FILTER as libc::c_int }
}

/// Whether a child process lives on after it has asked. A filter may end a process that makes a call it does not list,
/// and a process keeps its filter through an upgrade in place. The filter of Weir 0.1's unit is such a one.
fn a_child_may_ask() -> bool {
    // SAFETY: the child only makes system calls, so it does not matter what other threads of this process held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is passed. Without the first call, a child that is ended would leave a core dump.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::syscall(SYS_CACHESTAT, -1, 0, 0, 0);
            libc::_exit(0);
        }
    }
    if child < 0 {
        return false;
    }
    let mut status = 0;
    loop {
        // SAFETY: waits for the child above; the kernel writes only `status`.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended != -1 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return ended == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_never_written_is_not_resident() {
        let mut file = tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        // An old kernel says no. No kernel says yes to a range beyond the end.
        let _ = is_resident(&file, 0, 10_000);
        assert!(!is_resident(&file, 1 << 30, 10_000));
        assert!(!is_resident(&file, u64::MAX, 10_000));
    }

    #[test]
    fn a_child_asks_where_nothing_forbids_it() {
        assert!(a_child_may_ask());
    }

    fn tempfile() -> std::io::Result<File> {
        let path = std::env::temp_dir().join(format!("weir-pages-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        std::fs::remove_file(path)?;
        Ok(file)
    }
}
