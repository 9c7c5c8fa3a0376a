//! Pages of files: what of a file the kernel has in memory.

#![allow(unsafe_code)] // cachestat has no safe call yet

use std::fs::File;
use std::os::fd::AsRawFd;

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

/// Whether all of a part of a file is in memory, so that sending it waits for no disk. No where the kernel cannot or will not tell: it
/// is older than 6.5, a sandbox forbids the call, or the file is another user's.
pub fn is_resident(file: &File, offset: u64, length: u64) -> bool {
    let range = Range { offset, length };
    let mut pages = Pages::default();
    // SAFETY: both structures are as the kernel declares them and live until the call returns; it writes the second alone.
    let told = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    // SAFETY: asks the system for a constant.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
    let (Some(end), true) = (offset.checked_add(length), told == 0) else { return false };
    pages.cached >= end.div_ceil(page) - offset / page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_never_written_is_not_resident() {
        let mut file = tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        // An old kernel says no; none says yes to what is not there.
        let _ = is_resident(&file, 0, 10_000);
        assert!(!is_resident(&file, 1 << 30, 10_000));
        assert!(!is_resident(&file, u64::MAX, 10_000));
    }

    fn tempfile() -> std::io::Result<File> {
        let path = std::env::temp_dir().join(format!("weir-pages-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        std::fs::remove_file(path)?;
        Ok(file)
    }
}
