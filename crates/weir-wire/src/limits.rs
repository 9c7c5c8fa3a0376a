//! Resource limits of the operating system.

#![allow(unsafe_code)] // system calls, and one of libc, that no safe crate of ours wraps

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Descriptors that client and endpoint connections leave to other users: the admin listener, a reload, an upgrade.
/// An eighth of the limit if it is small. The system assigns the lowest free number, so a high number means that
/// nearly all are taken. Checking a number needs no system call.
const RESERVE: u32 = 64;

/// Descriptors from this number up belong to the reserve.
static RESERVED_FROM: AtomicU32 = AtomicU32::new(u32::MAX);

/// Raises the soft limit of open descriptors to the hard limit; returns the new limit.
///
/// A gateway needs two descriptors per exchange, and the usual soft limit of 1,024 exists only because of
/// `select(2)`.
///
/// # Errors
/// The system's error. The limit stays as it was.
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
    let all = u32::try_from(limit.rlim_cur).unwrap_or(u32::MAX);
    RESERVED_FROM.store(all - RESERVE.min(all / 8), Relaxed);
    Ok(limit.rlim_cur)
}

/// Whether a descriptor belongs to the reserve, which connections may not use.
#[inline]
pub(crate) fn is_reserved(descriptor: &impl AsRawFd) -> bool {
    u32::try_from(descriptor.as_raw_fd()).is_ok_and(|number| number >= RESERVED_FROM.load(Relaxed))
}

/// Moves a descriptor to the lowest free number and closes the old one.
///
/// # Errors
/// An out-of-descriptors error, with the descriptor given back, when only the reserve is left.
pub(crate) fn leave_reserve(of: OwnedFd) -> Result<OwnedFd, (OwnedFd, io::Error)> {
    match of.try_clone() {
        Ok(moved) if !is_reserved(&moved) => Ok(moved),
        _ => Err((of, out_of_descriptors())),
    }
}

/// The processor time that this thread has used since it began. Zero if the system does not tell.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// The error of a process without free descriptors.
pub(crate) fn out_of_descriptors() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

/// Returns free memory to the system. glibc keeps free memory between blocks in use: after 100 connections that each
/// held 256 KiB of heads, it kept 30 of 49 MiB. Takes milliseconds, during which other threads may have to wait for
/// memory.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call it at any time (malloc_trim(3)).
    let _ = unsafe { libc::malloc_trim(0) }; // having nothing to return is no failure
}

/// Unmaps the program's code and constants. The kernel maps those still in use again from the page cache, 64 KiB at a
/// time; those that only start-up needed stay unmapped. Call it once start-up is over: it takes a millisecond, and
/// some hundred page faults follow.
pub fn give_program_back() {
    for (start, length) in constant_segments() {
        // SAFETY: the segment is mapped from the program's file and was never writable, so that the file has all of it.
        unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(start), length, libc::MADV_DONTNEED) };
    }
}

/// Address and length of the program's segments that are mapped read-only from the start, in whole pages. Leaves out
/// those that the loader writes relocations to and then protects.
fn constant_segments() -> Vec<(usize, usize)> {
    /// Takes those of the first object, which is the program, and asks for no other.
    unsafe extern "C" fn take(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader passes a description that is valid during the call, and what we gave it.
        let (object, found) = unsafe { (&*object, &mut *found.cast::<Vec<(usize, usize)>>()) };
        // SAFETY: the loader says that so many headers are there.
        let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
        for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0) {
            found.push((object.dlpi_addr as usize + header.p_vaddr as usize, header.p_filesz as usize));
        }
        1
    }
    let mut found: Vec<(usize, usize)> = Vec::new();
    // SAFETY: `take` fits, and `found` lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut found).cast()) };
    let page = page_size();
    let pages = found.into_iter().map(|(start, length)| {
        let (from, to) = (start.next_multiple_of(page), (start + length) / page * page);
        (from, to.saturating_sub(from))
    });
    pages.filter(|(_, length)| *length > 0).collect()
}

/// The size of a page of memory, in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: reads a system constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
}

/// Whether an error means that descriptors (or socket memory) ran out. The accept loop then waits and continues.
pub fn ran_out(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_runs_on_without_its_pages() {
        let segments = constant_segments();
        let here = the_program_runs_on_without_its_pages as fn() as usize;
        assert!(
            segments.iter().any(|(start, length)| (*start..start + length).contains(&here)),
            "{segments:?}"
        );
        for _ in 0..3 {
            give_program_back();
            assert_eq!(error_text(), "Too many open files (os error 24)");
        }
    }

    fn error_text() -> String {
        out_of_descriptors().to_string()
    }
}
