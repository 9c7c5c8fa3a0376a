//! The program's allocator: the system's, with a cache of free blocks of 1 to 4 KiB on each core.
//!
//! glibc caches free blocks of up to 1,032 bytes per thread. Allocating and freeing a larger block takes about 500
//! instructions, and rustls allocates one for every record that it encrypts. The binary registers this allocator,
//! because a library must not choose it for a program. Programs that do not register it are only slower.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// For `#[global_allocator]`. With it, a response of 1 KiB over TLS takes 335 instructions less (row tls13, `release`).
///
/// A block of 1 to 4 KiB is up to 63 bytes larger than asked for. A core keeps one block of each size, at most 122 KiB.
/// Other threads keep none.
#[derive(Debug)]
pub struct Allocator;

/// Blocks up to this size go to the system's allocator: glibc caches them itself.
const SMALL_BYTES: usize = 1024;

/// Blocks larger than this go to the system's allocator: compared to filling them, allocating them is cheap.
const MOST_BYTES: usize = 4096;

/// Sizes are rounded up to multiples of this, so that a cached block fits later requests of a similar size.
const STEP_BYTES: usize = 64;

const SIZES: usize = (MOST_BYTES - SMALL_BYTES) / STEP_BYTES;

/// The alignment of cached blocks. malloc gives every block at least this.
const ALIGN: usize = 16;

/// Index of a rounded size, below [`SIZES`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct Size(usize);

/// The blocks of a thread.
struct Kept {
    /// Whether the thread keeps blocks.
    keeps: Cell<bool>,
    /// Null if there is no block of a size.
    blocks: [Cell<*mut u8>; SIZES],
}

thread_local! {
    // Neither initialized lazily nor dropped, which could allocate. `Keeping` frees the blocks.
    static KEPT: Kept =
        const { Kept { keeps: Cell::new(false), blocks: [const { Cell::new(null_mut()) }; SIZES] } };
}

/// While it lives, its thread keeps blocks.
pub(crate) struct Keeping(PhantomData<*mut u8>);

/// Lets this thread keep blocks.
pub(crate) fn keep() -> Keeping {
    KEPT.with(|kept| kept.keeps.set(true));
    Keeping(PhantomData)
}

/// Frees the blocks that this thread keeps.
pub fn free_blocks() {
    for size in (0..SIZES).map(Size) {
        let block = size.take();
        if !block.is_null() {
            // SAFETY: `dealloc` keeps only blocks that the system's allocator made with this layout.
            unsafe { System.dealloc(block, size.layout()) };
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        KEPT.with(|kept| kept.keeps.set(false));
        free_blocks();
    }
}

impl Size {
    /// The size of a block, unless the system's allocator has to serve it alone.
    fn of(layout: Layout) -> Option<Self> {
        let size = layout.size().wrapping_sub(SMALL_BYTES + 1) / STEP_BYTES; // large if it wraps
        (size < SIZES && layout.align() <= ALIGN).then_some(Self(size))
    }

    const fn layout(self) -> Layout {
        // SAFETY: the alignment is a power of two, and the size far below `isize::MAX`.
        unsafe { Layout::from_size_align_unchecked(SMALL_BYTES + (self.0 + 1) * STEP_BYTES, ALIGN) }
    }

    /// Takes the block of this size that the thread keeps; null if it keeps none.
    fn take(self) -> *mut u8 {
        KEPT.with(|kept| kept.blocks[self.0].replace(null_mut()))
    }

    /// Keeps a block of this size if the thread keeps blocks and has none.
    fn keep(self, block: *mut u8) -> bool {
        KEPT.with(|kept| {
            let is_kept = kept.keeps.get() && kept.blocks[self.0].get().is_null();
            if is_kept {
                kept.blocks[self.0].set(block);
            }
            is_kept
        })
    }
}

// SAFETY: a block comes from the system's allocator and returns to it, both times with the layout that was asked for or
// both times with that of its `Size`, which is at least as large and as aligned. In between it belongs to one caller,
// or to the thread that keeps it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(size) = Size::of(layout) else {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        };
        let block = size.take();
        if block.is_null() {
            // SAFETY: the size is not zero.
            return unsafe { System.alloc(size.layout()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(size) = Size::of(layout) else {
            // SAFETY: as the caller promises; `alloc` passed on the same layout.
            return unsafe { System.dealloc(block, layout) };
        };
        if !size.keep(block) {
            // SAFETY: the block was made with the layout of its size.
            unsafe { System.dealloc(block, size.layout()) };
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let layout = Size::of(layout).map_or(layout, Size::layout);
        // SAFETY: as the caller promises, and the layout of a size is not empty.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (Size::of(layout), Size::of(new)) {
            // SAFETY: as the caller promises; `alloc` passed on the same layout.
            (None, None) => unsafe { System.realloc(block, layout, size) },
            (old, new) if old == new => block,
            _ => {
                // SAFETY: as the caller promises.
                let to = unsafe { self.alloc(new) };
                if !to.is_null() {
                    // SAFETY: both blocks have as many bytes, and the new one is nobody else's.
                    unsafe { to.copy_from_nonoverlapping(block, layout.size().min(size)) };
                    // SAFETY: as the caller promises.
                    unsafe { self.dealloc(block, layout) };
                }
                to
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::with_exposed_provenance_mut;
    use std::thread;

    /// Blocks of the calling thread.
    fn kept() -> usize {
        KEPT.with(|kept| kept.blocks.iter().filter(|block| !block.get().is_null()).count())
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn alloc(size: usize) -> *mut u8 {
        // SAFETY: no test asks for nothing.
        unsafe { Allocator.alloc(layout(size, 1)) }
    }

    fn dealloc(block: *mut u8, size: usize) {
        // SAFETY: tests free each block once, with its size.
        unsafe { Allocator.dealloc(block, layout(size, 1)) };
    }

    #[test]
    fn a_block_serves_the_next_request_of_its_size() {
        let keeping = keep();
        let block = alloc(1400);
        dealloc(block, 1400);
        assert_eq!(kept(), 1);
        let (next, other) = (alloc(1380), alloc(1400));
        assert_eq!((next, kept()), (block, 0));
        assert_ne!(other, block);
        dealloc(next, 1380);
        dealloc(other, 1400);
        assert_eq!(kept(), 1, "one of each size");
        for size in [1, 1024, 1025, 4096, 4097, 100_000] {
            dealloc(alloc(size), size);
        }
        assert_eq!(kept(), 3, "1,025, 1,400 and 4,096 bytes");
        free_blocks();
        assert_eq!(kept(), 0);
        dealloc(alloc(1400), 1400);
        drop(keeping);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn other_threads_keep_nothing() {
        let _keeping = keep();
        let block = alloc(2000).expose_provenance();
        thread::spawn(move || {
            dealloc(with_exposed_provenance_mut(block), 2000);
            assert_eq!(kept(), 0);
        })
        .join()
        .unwrap();
    }

    /// Blocks of this size fill the limit that [`Allocator`] promises.
    #[test]
    fn a_core_keeps_at_most_122_kib() {
        let _keeping = keep();
        for _ in 0..2 {
            let blocks: Vec<_> = (1..=MOST_BYTES + 100).map(|size| (alloc(size), size)).collect();
            blocks.into_iter().for_each(|(block, size)| dealloc(block, size));
        }
        let bytes: usize = (0..SIZES).map(|size| Size(size).layout().size()).sum();
        assert_eq!((kept(), bytes / 1024), (SIZES, 121));
    }

    /// Each block is as long and as aligned as asked for, and its bytes are nobody else's.
    #[test]
    fn blocks_hold_what_is_written_into_them() {
        let _keeping = keep();
        for align in [1, 8, 16, 32, 4096] {
            let made = |size: usize| {
                let layout = layout(size, align);
                // SAFETY: the size is not zero.
                let (block, zeroed) = unsafe { (Allocator.alloc(layout), Allocator.alloc_zeroed(layout)) };
                assert!(!block.is_null() && !zeroed.is_null());
                assert_eq!((block.addr() % align, zeroed.addr() % align), (0, 0));
                // SAFETY: the block has as many bytes, which `alloc_zeroed` has initialized.
                assert!(unsafe { std::slice::from_raw_parts(zeroed, size) }.iter().all(|byte| *byte == 0));
                // SAFETY: the blocks have as many bytes.
                unsafe { (block.write_bytes(1, size), zeroed.write_bytes(2, size)) };
                (block, zeroed, layout)
            };
            let sizes = [1, 1000, 1024, 1025, 1087, 1088, 1089, 2000, 4095, 4096, 4097, 5000];
            for (block, zeroed, layout) in sizes.map(made) {
                for (block, byte) in [(block, 1), (zeroed, 2)] {
                    // SAFETY: the block has as many bytes, and they are initialized.
                    let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
                    assert!(bytes.iter().all(|found| *found == byte), "{layout:?}");
                    // SAFETY: nothing uses the block any more.
                    unsafe { Allocator.dealloc(block, layout) };
                }
            }
        }
    }

    #[test]
    fn a_block_keeps_its_bytes_when_it_grows_or_shrinks() {
        let _keeping = keep();
        let sizes = [100, 1024, 1025, 1088, 1089, 4096, 4097, 9000, 4096, 3000, 1025, 1024, 7, 2000, 5];
        let (mut block, mut held) = (alloc(100), 100);
        let mut written = 0;
        for (round, size) in sizes.into_iter().enumerate() {
            // SAFETY: the block was made with this layout, and the size is not zero.
            block = unsafe { Allocator.realloc(block, layout(held, 1), size) };
            // SAFETY: the block has as many bytes, of which `realloc` has kept the first.
            let bytes = unsafe { std::slice::from_raw_parts(block, written.min(size)) };
            assert!(bytes.iter().all(|byte| usize::from(*byte) == round), "from {held} to {size}");
            (held, written) = (size, size);
            // SAFETY: the block has as many bytes.
            unsafe { block.write_bytes(round as u8 + 1, size) };
        }
        dealloc(block, held);
    }
}
