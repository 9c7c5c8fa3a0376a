//! Bodies that are too long for memory: how a filter asks to hold them elsewhere, and what it accounts for.

use super::Waiting;
use bytes::Bytes;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weir_upstream::error::Cause;
use weir_wire::relay::Supply;

/// How a filter holds bodies that are too long for memory.
#[derive(Clone, Debug)]
pub struct Spooling {
    /// The folder of the files. It must support files without a name, or allow creating and removing some.
    pub folder: Arc<Path>,
    /// A body up to this size stays in memory.
    pub memory: usize,
    /// Most bytes of all bodies in files.
    pub total: u64,
    /// The account of these bytes.
    pub room: Arc<SpoolRoom>,
}

/// How a response whose client is slow waits in a file.
#[derive(Clone, Debug)]
pub struct Overflow {
    /// Where the file is.
    pub spooling: Spooling,
    /// Most bytes in it.
    pub most: u64,
    /// How many bytes are written at once. Memory: up to twice as many.
    pub piece: usize,
}

/// What bodies in files take together, over all cores.
#[derive(Debug, Default)]
pub struct SpoolRoom {
    taken: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
    /// A response has been skipped, and none has been stored since.
    skips: AtomicBool,
}

/// A body that is held, for any number of attempts.
pub trait HeldBody {
    /// Its length.
    fn length(&self) -> u64;

    /// Reads all of it into memory.
    ///
    /// # Errors
    /// `buffer_disk` if it cannot be read.
    fn read(&self) -> Waiting<'_, Result<Bytes, &'static Cause>>;

    /// Its bytes from the start, for one attempt.
    fn supply(self: Rc<Self>) -> Box<dyn Supply>;
}

impl fmt::Debug for dyn HeldBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBody").field("length", &self.length()).finish_non_exhaustive()
    }
}

// === impl SpoolRoom ===

impl SpoolRoom {
    /// Bytes taken now.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Requests whose bodies found no room, or could not be written.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Responses that went on at their client's speed, because they found no room or could not be written.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// Takes more bytes. False if all would take more than `total`; the body then counts as failed.
    pub fn take(&self, more: u64, total: u64) -> bool {
        let fits = self.reserve(more, total);
        if !fits {
            self.fail();
        }
        fits
    }

    /// Takes more bytes. False if all would take more than `total`.
    pub fn reserve(&self, more: u64, total: u64) -> bool {
        let fits = self.taken.fetch_add(more, Relaxed).saturating_add(more) <= total;
        if !fits {
            self.free(more);
        }
        fits
    }

    /// Gives bytes back.
    pub fn free(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Relaxed);
    }

    /// Counts a request whose body could not be held.
    pub fn fail(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// Counts a response that could not be held. True if it is the first since one was: the log need not repeat it.
    #[must_use]
    pub fn skip(&self) -> bool {
        self.skipped.fetch_add(1, Relaxed);
        !self.skips.swap(true, Relaxed)
    }

    /// A part of a response was stored.
    pub fn succeed(&self) {
        if self.skips.load(Relaxed) {
            self.skips.store(false, Relaxed);
        }
    }
}
