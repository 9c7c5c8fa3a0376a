//! File pages: which parts of a file the kernel has in memory.

#![allow(unsafe_code)] // no safe crate of ours wraps cachestat yet

use crate::limits::page_size;
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

/// Whether a range of a file is entirely in memory, so that sending it does not wait for the disk. False if the
/// kernel does not say: it is older than 6.5, a sandbox forbids the call, or another user owns the file.
pub fn is_resident(file: &File, offset: u64, length: u64) -> bool {
    let range = Range { offset, length };
    let mut pages = Pages::default();
    // SAFETY: both structures match the kernel's and live until the call returns; the kernel writes only the second.
    let told = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    let page = page_size() as u64;
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
        // An old kernel says no. No kernel says yes to a range beyond the end.
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
