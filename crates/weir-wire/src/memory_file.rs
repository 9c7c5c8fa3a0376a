//! Bytes in a file in memory, which a cleartext socket sends without copying them (sendfile).
//!
//! There is one such file (memfd). It is mapped, so its bytes can be used like any others: for TLS, for HTTP/2, by a
//! filter. Code that writes to a cleartext socket asks [`find`] where in the file they are.
//!
//! Invariant: pages are written once, before anyone sees them, and freed as a whole when nobody holds them. The kernel
//! keeps freed pages until it has sent them. So bytes in flight never change, unlike those of a file on a disk that is
//! overwritten while it is sent.

#![allow(unsafe_code)] // a mapping, which no safe crate of ours wraps

use crate::limits::page_size;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes of this length or more are put into the file, and sent from there. Shorter ones are cheaper to copy.
///
/// Measured over loopback, 64 connections, processor time of a server that only sends: 28 KB 12.4 µs copied and 10.7 µs
/// as pages, 64 KB 21.8 and 20.6, 128 KB 58 and 26.
pub const FROM_BYTES: usize = 24 * 1024;

/// Most bytes in the file; more stay on the heap. This is address space: pages are taken when they are written.
const SPACE_BYTES: usize = 1 << 34;

/// Bytes that nobody changes anymore.
#[derive(Debug)]
pub struct Kept(Place);

#[derive(Debug)]
enum Place {
    Heap(Vec<u8>),
    File(Extent),
}

/// A part of the file that belongs to one [`Kept`].
#[derive(Debug)]
struct Extent {
    space: &'static Space,
    /// In pages.
    start: u32,
    pages: u32,
    /// In bytes.
    length: usize,
}

/// The file, its mapping, and what of it is free.
#[derive(Debug)]
struct Space {
    file: File,
    base: NonNull<u8>,
    bytes: usize,
    /// The size of a page, in bytes.
    page: usize,
    free: Mutex<Free>,
}

// SAFETY: `base` is the address of a mapping that lasts as long as the process and is only read through it.
unsafe impl Send for Space {}
// SAFETY: as above; `free` has a lock.
unsafe impl Sync for Space {}

/// The free parts, in pages. Neighbors are always joined.
#[derive(Debug, Default)]
struct Free {
    by_start: BTreeMap<u32, u32>,
    /// Length and start.
    by_length: BTreeSet<(u32, u32)>,
}

/// `None` if the system cannot do it.
static SPACE: OnceLock<Option<Space>> = OnceLock::new();

/// Keeps bytes: in the file if there are [`FROM_BYTES`] and it has room, else on the heap.
///
/// Takes a lock shared by all cores and copies the bytes, so it is not for the path of every request.
pub fn keep(bytes: Vec<u8>) -> Kept {
    if bytes.len() < FROM_BYTES {
        return Kept(Place::Heap(bytes));
    }
    let space = SPACE.get_or_init(|| Space::new(SPACE_BYTES).ok());
    match space.as_ref().and_then(|space| space.write(&bytes)) {
        Some(extent) => Kept(Place::File(extent)),
        None => Kept(Place::Heap(bytes)),
    }
}

/// The memory that [`keep`] takes for so many bytes: whole pages, if they go to the file.
pub fn memory(bytes: u64) -> u64 {
    if bytes < FROM_BYTES as u64 { bytes } else { bytes.next_multiple_of(page_size() as u64) }
}

/// The file, and where in it these bytes begin, if they are part of a [`Kept`] in it.
#[inline]
pub fn find(bytes: &[u8]) -> Option<(&'static File, u64)> {
    let space = SPACE.get()?.as_ref()?;
    let offset = bytes.as_ptr().addr().checked_sub(space.base.addr().get())?;
    (offset < space.bytes).then_some((&space.file, offset as u64))
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Place::Heap(bytes) => bytes,
            Place::File(extent) => extent.bytes(),
        }
    }
}

// === impl Space ===

impl Space {
    fn new(bytes: usize) -> Result<Self, Errno> {
        let page = page_size();
        // Enlarging a file beyond this limit ends the process.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes as u64) {
            return Err(Errno::FBIG);
        }
        // Kernels before 6.3 do not know NOEXEC_SEAL; later ones may insist on it.
        let fd = match memfd_create("weir", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create("weir", MemfdFlags::CLOEXEC)?,
            made => made?,
        };
        ftruncate(&fd, bytes as u64)?;
        let file = File::from(fd);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::NOMEM);
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let mut free = Free::default();
        free.give(0, u32::try_from(bytes / page).map_err(|_| Errno::OVERFLOW)?);
        let space = Self { file, base, bytes, page, free: Mutex::new(free) };
        // A part of a huge page cannot be freed: the kernel clears it, even while it sends it. A kernel without huge
        // pages does not know the advice.
        match space.advise(0, bytes, libc::MADV_NOHUGEPAGE) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(e) => return Err(e),
        }
        space.advise(0, bytes, libc::MADV_DONTDUMP)?;
        // Both calls that each part needs: the first came with Linux 5.14, and a sandbox may refuse either.
        space.advise(0, page, libc::MADV_POPULATE_WRITE)?;
        space.punch(0, page)?;
        Ok(space)
    }

    /// `None` if there is no room, here or in the system's memory.
    fn write(&'static self, bytes: &[u8]) -> Option<Extent> {
        let pages = u32::try_from(bytes.len().div_ceil(self.page)).ok()?;
        let start = self.free().take(pages)?;
        let extent = Extent { space: self, start, pages, length: bytes.len() };
        // If memory runs out, this fails. Without it, the copy would end the process.
        self.advise(extent.offset(), extent.room(), libc::MADV_POPULATE_WRITE).ok()?;
        // SAFETY: the extent is within the mapping, its pages are there, and nobody else has it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), extent.first(), bytes.len()) };
        Some(extent)
    }

    fn advise(&self, offset: usize, length: usize, advice: libc::c_int) -> Result<(), Errno> {
        debug_assert!(offset + length <= self.bytes, "within the mapping");
        rustix::io::retry_on_intr(|| {
            // SAFETY: the range is within the mapping, and none of the advices that we give discards or unmaps pages.
            let told = unsafe { libc::madvise(self.base.add(offset).as_ptr().cast(), length, advice) };
            if told == 0 {
                return Ok(());
            }
            Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOMEM))
        })
    }

    /// Frees pages.
    fn punch(&self, offset: usize, length: usize) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::io::retry_on_intr(|| fallocate(&self.file, flags, offset as u64, length as u64))
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Extent ===

impl Extent {
    /// Where it begins in the file, in bytes.
    const fn offset(&self) -> usize {
        self.start as usize * self.space.page
    }

    /// Its length with the rest of its last page, in bytes.
    const fn room(&self) -> usize {
        self.pages as usize * self.space.page
    }

    const fn first(&self) -> *mut u8 {
        // SAFETY: extents are cut from the mapping.
        unsafe { self.space.base.add(self.offset()) }.as_ptr()
    }

    const fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes were written before anyone got the extent. Nobody writes to it or frees it while it
        // lives, and no other process has the file.
        unsafe { std::slice::from_raw_parts(self.first(), self.length) }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        // Pages that cannot be freed are not used again: they may be in flight.
        if self.space.punch(self.offset(), self.room()).is_ok() {
            self.space.free().give(self.start, self.pages);
        }
    }
}

// === impl Free ===

impl Free {
    /// The smallest part that has so many pages.
    fn take(&mut self, pages: u32) -> Option<u32> {
        let &(length, start) = self.by_length.range((pages, 0)..).next()?;
        self.remove(start, length);
        if length > pages {
            self.insert(start + pages, length - pages);
        }
        Some(start)
    }

    fn give(&mut self, start: u32, pages: u32) {
        let (mut start, mut length) = (start, pages);
        if let Some((&before, &more)) = self.by_start.range(..start).next_back()
            && before + more == start
        {
            self.remove(before, more);
            (start, length) = (before, length + more);
        }
        if let Some(&more) = self.by_start.get(&(start + length)) {
            self.remove(start + length, more);
            length += more;
        }
        self.insert(start, length);
    }

    fn insert(&mut self, start: u32, length: u32) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: u32, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    #[test]
    fn kept_bytes_are_the_same_bytes() {
        for length in [0, 1, FROM_BYTES - 1, FROM_BYTES, FROM_BYTES + 1, 230_000] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let kept = keep(bytes.clone());
            assert_eq!(kept.as_ref(), bytes, "{length}");
            let Some((file, offset)) = find(kept.as_ref()) else { continue };
            assert!(length >= FROM_BYTES);
            let mut read = vec![0; length];
            file.read_exact_at(&mut read, offset).unwrap();
            assert_eq!(read, bytes);
            assert_eq!(find(&kept.as_ref()[5..]).map(|(_, at)| at), Some(offset + 5));
        }
    }

    #[test]
    fn other_bytes_are_not_found() {
        let _kept = keep(vec![1; FROM_BYTES]);
        assert!(find(&[1; 10]).is_none() && find(&vec![1; FROM_BYTES]).is_none());
    }

    #[test]
    fn freed_pages_are_given_back_and_kept_while_they_are_sent() {
        // An old kernel or a sandbox refuses.
        let Ok(space) = Space::new(16 * page_size()) else { return };
        let space: &'static Space = Box::leak(Box::new(space));
        let blocks = || rustix::fs::fstat(&space.file).unwrap().st_blocks as usize * 512;
        let first = space.write(&vec![1; 10 * page_size()]).unwrap();
        assert!(space.write(&vec![2; 10 * page_size()]).is_none(), "it is full");
        assert_eq!(blocks(), 10 * page_size());
        // A pipe holds the page itself, as a socket does.
        let (mut from, to) = std::io::pipe().unwrap();
        let freed = first.offset();
        let mut offset = i64::try_from(freed).unwrap();
        let (file, into) = (space.file.as_raw_fd(), to.as_raw_fd());
        // SAFETY: both descriptors are open, and the offset lives until the call returns.
        let sent = unsafe { libc::splice(file, &raw mut offset, into, std::ptr::null_mut(), page_size(), 0) };
        let sent = usize::try_from(sent).unwrap();
        drop(first);
        assert_eq!(blocks(), 0);
        let second = space.write(&[2; 100]).unwrap();
        assert_eq!((second.offset(), second.bytes()), (freed, &[2; 100][..]));
        let mut read = vec![0; sent];
        from.read_exact(&mut read).unwrap();
        assert_eq!(read, vec![1; sent], "what was sent before is what arrives");
    }

    #[test]
    fn free_parts_are_joined_and_the_smallest_is_taken() {
        let mut free = Free::default();
        free.give(0, 100);
        let taken: Vec<u32> = (0..10).map(|_| free.take(10).unwrap()).collect();
        assert_eq!(taken, (0..10).map(|n| n * 10).collect::<Vec<_>>());
        assert_eq!(free.take(1), None);
        free.give(20, 10);
        free.give(50, 10);
        free.give(60, 10);
        assert_eq!(free.by_start, BTreeMap::from([(20, 10), (50, 20)]));
        assert_eq!(free.take(5), Some(20), "of the smaller part");
        free.give(20, 5);
        free.give(30, 20);
        assert_eq!(free.by_start, BTreeMap::from([(20, 50)]));
        assert_eq!(free.by_length, BTreeSet::from([(50, 20)]));
        for start in [0, 10, 70, 80, 90] {
            free.give(start, 10);
        }
        assert_eq!(free.by_start, BTreeMap::from([(0, 100)]));
    }
}
