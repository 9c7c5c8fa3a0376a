//! A store of objects on disk, bounded in bytes, that survives a restart.
//!
//! Each object is a file. The index in memory holds its names (about 200 bytes per object), so a lookup needs no
//! disk access. Everything else is read on demand, on the store's own threads. A full, failing or corrupting disk
//! costs objects, never a request: an object that cannot be written is not kept, and one that cannot be read
//! completely is treated as absent.
//!
//! ```text
//!   folder   the folder and its lock                format   the bytes of a file
//!   load     the index, rebuilt at start            write    writing an object             read   reading an object
//! ```

mod folder;
mod format;
mod load;
mod read;
#[cfg(test)]
mod tests;
mod threads;
mod write;

pub use folder::{OpenError, check};
pub use format::Named;
pub use read::{Body, Opened};
pub use threads::Job;
pub use write::{Going, Progress, Writer};

use crate::policy::{Place, Placed, Queues};
use folder::Folder;
use foldhash::fast::RandomState;
use load::Loading;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use threads::Threads;
use weir_telemetry::log;

/// Enough shards that lookups of different cores rarely contend.
const SHARDS: usize = 64;

/// Most variants of one URL.
const MOST_VARIANTS: usize = 64;

/// Files occupy a multiple of this size, in bytes.
const PAGE: u64 = 4096;

/// How long writing stops after the disk failed or was full.
const PAUSE: Duration = Duration::from_secs(10);

/// How often, and how far apart, we retry a folder that this process is about to release.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A store on a disk.
pub struct Disk {
    path: PathBuf,
    size: AtomicU64,
    /// `None` while another process holds the folder: a predecessor before its release, or a successor after
    /// ours.
    folder: RwLock<Option<Folder>>,
    shards: Box<[RwLock<Shard>]>,
    room: Mutex<Room>,
    hasher: RandomState,
    /// The number of the next object. Numbers below `first` belong to earlier processes.
    next: AtomicU64,
    first: u64,
    /// The rebuild of the index, until it is complete.
    loading: Mutex<Option<Loading>>,
    threads: Threads,
    counts: Counts,
    began: Instant,
    /// End of the write pause, in milliseconds since `began`.
    paused: AtomicU64,
}

type Shard = HashMap<Arc<[u8]>, SmallVec<[Arc<Entry>; 1]>, RandomState>;

/// An object in the index.
#[derive(Debug)]
pub struct Entry {
    number: u64,
    stem: Arc<[u8]>,
    extra: Box<[u8]>,
    variant: Box<[u8]>,
    tags: Box<[u64]>,
    body: u64,
    place: Place,
    /// Whether a separate file holds a newer head.
    newer_head: AtomicBool,
}

/// The accounting of disk space.
#[derive(Default)]
struct Room {
    queues: Queues<Entry>,
    /// Bytes of unfinished files.
    writing: u64,
    /// Bytes of newer heads.
    heads: u64,
    /// Files to remove, and their bytes.
    doomed: Vec<Doomed>,
    leaving: u64,
}

/// A file to remove, by its number.
enum Doomed {
    /// An unfinished file.
    Incoming(u64),
    /// An object, and its newer head if it has one.
    Object(u64, bool),
}

#[derive(Debug, Default)]
struct Counts {
    broken: AtomicU64,
    failed: AtomicU64,
    written: AtomicU64,
}

/// The figures of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Objects that could not be read completely.
    pub broken: u64,
    /// Bytes that the files occupy.
    pub bytes: u64,
    /// Objects that could not be written.
    pub failed: u64,
    /// Objects in the store.
    pub objects: u64,
    /// Objects that were written.
    pub written: u64,
}

/// The open stores of this process, at most one per folder.
static OPEN: Mutex<Vec<(PathBuf, Weak<Disk>)>> = Mutex::new(Vec::new());

// === impl Disk ===

impl Disk {
    /// Opens the store in a folder, limited to `size` bytes. If this process has opened it already, returns the
    /// same store with the new size.
    ///
    /// A thread rebuilds the index in the background, and objects that it has not reached yet are not found.
    /// `successor`: this process replaces another, which may still hold the folder. Until it releases the folder,
    /// nothing is found or kept.
    ///
    /// # Errors
    /// The folder belongs to another process, holds something else, or cannot be written.
    pub fn open(path: &Path, size: u64, successor: bool) -> Result<Arc<Self>, OpenError> {
        let failed = |e| OpenError::Io(path.to_owned(), e);
        check(path)?;
        folder::make(path).map_err(failed)?;
        let path = fs::canonicalize(path).map_err(failed)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, disk)| disk.strong_count() > 0);
        let known = open.iter().find(|(known, _)| *known == path).and_then(|(_, disk)| disk.upgrade());
        if let Some(disk) = known {
            disk.size.store(size, Relaxed);
            let shrunk = Arc::clone(&disk);
            let shrink = move || {
                shrunk.reserve(0);
            };
            disk.run(Box::new(shrink));
            return Ok(disk);
        }
        let folder = match take(&path) {
            Err(OpenError::InUse(..)) if successor => None,
            folder => Some(folder?),
        };
        let hasher = RandomState::default();
        let shard = || RwLock::new(HashMap::with_hasher(hasher.clone()));
        // Later than the numbers of any earlier process, unless the clock was set back. Even then the numbers
        // differ.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let first = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX / 2);
        let waits = folder.is_none();
        let disk = Arc::new(Self {
            path: path.clone(),
            size: AtomicU64::new(size),
            folder: RwLock::new(folder),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            room: Mutex::default(),
            hasher,
            next: AtomicU64::new(first),
            first,
            loading: Mutex::new(Some(Loading::default())),
            threads: Threads::start().map_err(failed)?,
            counts: Counts::default(),
            began: Instant::now(),
            paused: AtomicU64::new(0),
        });
        load::start(&disk, waits).map_err(failed)?;
        open.push((path, Arc::downgrade(&disk)));
        Ok(disk)
    }

    /// Finds an object by its names and its variant. If several match, returns the latest.
    pub fn find(&self, stem: &[u8], extra: &[u8], answers: impl Fn(&[u8]) -> bool) -> Option<Arc<Entry>> {
        let shard = self.shard(stem).read().unwrap_or_else(PoisonError::into_inner);
        let mut entries = shard.get(stem)?.iter().rev();
        let found = entries.find(|entry| &*entry.extra == extra && answers(&entry.variant))?;
        found.place.used();
        Some(Arc::clone(found))
    }

    /// Queues work that may block on the disk; false if the queue is full.
    pub fn run(&self, job: Job) -> bool {
        self.threads.run(job)
    }

    /// Removes all objects of a URL, and returns their number.
    pub fn forget(self: &Arc<Self>, stem: &[u8]) -> usize {
        let unwanted: Box<[u8]> = stem.into();
        self.ban(move |stem, _| *stem == *unwanted);
        let gone = self.shard(stem).write().unwrap_or_else(PoisonError::into_inner).remove(stem);
        let gone = gone.unwrap_or_default();
        if !gone.is_empty() {
            let mut room = self.room();
            gone.iter().for_each(|entry| room.doom(entry));
            drop(room);
            self.bury_soon();
        }
        gone.len()
    }

    /// Removes an object, if it is still in the store.
    pub fn remove(self: &Arc<Self>, entry: &Arc<Entry>) {
        self.take_away(entry);
        self.room().doom(entry);
        self.bury_soon();
    }

    /// Removes all objects that match by stem and tags, and returns their number. May block on the disk.
    pub fn purge(&self, means: impl Fn(&[u8], &[u64]) -> bool + Send + Sync + 'static) -> usize {
        let means = Arc::new(means);
        let same = Arc::clone(&means);
        self.ban(move |stem, tags| same(stem, tags));
        let mut gone = 0;
        for shard in &self.shards {
            let found: Vec<Arc<Entry>> = {
                let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
                let all = shard.values().flatten();
                all.filter(|entry| means(&entry.stem, &entry.tags)).cloned().collect()
            };
            gone += found.len();
            for entry in &found {
                self.take_away(entry);
                self.room().doom(entry);
            }
        }
        self.bury();
        gone
    }

    /// Releases the folder to the process that replaces this one. From then on nothing is kept.
    pub fn release(&self) {
        *self.folder.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The figures of the store.
    pub fn readings(&self) -> Readings {
        let room = self.room();
        Readings {
            broken: self.counts.broken.load(Relaxed),
            bytes: room.used(),
            failed: self.counts.failed.load(Relaxed),
            objects: room.queues.live() as u64,
            written: self.counts.written.load(Relaxed),
        }
    }

    /// Whether the index is complete.
    #[cfg(test)]
    pub(crate) fn is_loaded(&self) -> bool {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    // === room ===

    /// Reserves this many more bytes for writing, evicting objects as needed; false if that is impossible. Blocks
    /// on the disk.
    fn reserve(&self, more: u64) -> bool {
        self.bury();
        let size = self.size.load(Relaxed);
        let mut room = self.room();
        while room.used() + more > size {
            let tag = |entry: &Entry| self.tag(entry);
            let Some(out) = room.queues.throw_out(size, tag) else { return false };
            room.doom_uncounted(&out);
            drop(room);
            self.take_away(&out);
            self.bury();
            room = self.room();
        }
        room.writing += more;
        true
    }

    /// Adds an entry and replaces an earlier one of the same variant. `reserved`: the bytes reserved while it was
    /// written.
    fn keep(&self, entry: &Arc<Entry>, reserved: u64) {
        let mut room = self.room();
        let mut shard = self.shard(&entry.stem).write().unwrap_or_else(PoisonError::into_inner);
        let entries = shard.entry(Arc::clone(&entry.stem)).or_default();
        let same = |known: &Arc<Entry>| known.extra == entry.extra && known.variant == entry.variant;
        if let Some(at) = entries.iter().position(same) {
            let old = entries.remove(at);
            room.doom(&old);
        } else if entries.len() >= MOST_VARIANTS
            && let Some(least) = (0..entries.len()).min_by_key(|&at| entries[at].place.uses())
        {
            let old = entries.remove(least);
            room.doom(&old);
        }
        entries.push(Arc::clone(entry));
        drop(shard);
        room.writing = room.writing.saturating_sub(reserved);
        let tag = self.tag(entry);
        room.queues.enter(entry, tag);
    }

    fn take_away(&self, entry: &Arc<Entry>) {
        let mut shard = self.shard(&entry.stem).write().unwrap_or_else(PoisonError::into_inner);
        let Some(entries) = shard.get_mut(&*entry.stem) else { return };
        entries.retain(|known| !Arc::ptr_eq(known, entry));
        if entries.is_empty() {
            shard.remove(&*entry.stem);
        }
    }

    /// Removes doomed files. Blocks on the disk.
    fn bury(&self) {
        let (doomed, leaving) = {
            let mut room = self.room();
            (std::mem::take(&mut room.doomed), room.leaving)
        };
        if doomed.is_empty() {
            return;
        }
        let folder = self.folder.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &*folder {
            for one in doomed {
                // A file that is missing already needs no handling.
                let _ = match one {
                    Doomed::Incoming(number) => fs::remove_file(folder::incoming(&folder.path, number)),
                    Doomed::Object(number, head) => {
                        if head {
                            let _ = fs::remove_file(folder::newer_head(&folder.path, number));
                        }
                        fs::remove_file(folder::object(&folder.path, number))
                    }
                };
            }
        }
        drop(folder);
        let mut room = self.room();
        room.leaving = room.leaving.saturating_sub(leaving);
    }

    /// Does the same on one of the threads. If their queue is full, the next write does it.
    fn bury_soon(self: &Arc<Self>) {
        let disk = Arc::clone(self);
        let _ = self.run(Box::new(move || disk.bury()));
    }

    /// Whether the store accepts objects at present.
    fn takes(&self) -> bool {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.paused.load(Relaxed) <= now && self.folder.try_read().is_ok_and(|folder| folder.is_some())
    }

    /// Counts and logs a failed write, and pauses writing.
    fn failed(&self, why: &io::Error) {
        static SEEN: log::PerSubject = log::per_subject(1, PAUSE);
        static CROWDED: log::PerSubject = log::per_subject(1, PAUSE);
        self.counts.failed.fetch_add(1, Relaxed);
        if why.kind() == io::ErrorKind::QuotaExceeded {
            let fields: log::Fields<'_> = &[("path", &self.path.display()), ("why", why)];
            CROWDED.warn(&self.path, "an answer is not kept on disk", fields);
            return;
        }
        let until = self.began.elapsed() + PAUSE;
        self.paused.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Relaxed);
        SEEN.warn(
            &self.path,
            "a cache cannot be written to its disk: for 10 s answers are kept in memory alone",
            &[("path", &self.path.display()), ("error", why)],
        );
    }

    /// Removes an object that cannot be read completely.
    fn broken(self: &Arc<Self>, entry: &Arc<Entry>, why: &io::Error) {
        static SEEN: log::PerSubject = log::per_subject(1, PAUSE);
        if !entry.place.is_gone() {
            self.counts.broken.fetch_add(1, Relaxed);
            let file = folder::object(&self.path, entry.number);
            let fields: log::Fields<'_> = &[("file", &file.display()), ("error", why)];
            SEEN.warn(&self.path, "a cached answer cannot be read and is removed", fields);
        }
        self.remove(entry);
    }

    fn tag(&self, entry: &Entry) -> u64 {
        self.hasher.hash_one((&entry.stem, &entry.extra, &entry.variant))
    }

    fn shard(&self, stem: &[u8]) -> &RwLock<Shard> {
        // The shard's own table uses other bits of the same hash.
        &self.shards[(self.hasher.hash_one(stem) >> 20) as usize % SHARDS]
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}

/// Takes the lock on a folder, and waits if this process is about to release it after a reload.
fn take(path: &Path) -> Result<Folder, OpenError> {
    let mut looks = 0;
    loop {
        match Folder::open(path, false) {
            Err(OpenError::InUse(_, Some(holder))) if holder == std::process::id() && looks < LOOKS => {
                looks += 1;
                thread::sleep(BETWEEN_LOOKS);
            }
            folder => return folder,
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Disk").field(&self.path).finish()
    }
}

// === impl Room ===

impl Room {
    const fn used(&self) -> u64 {
        self.queues.bytes() + self.writing + self.heads + self.leaving
    }

    /// Marks an object as removed, and its file for removal.
    fn doom(&mut self, entry: &Entry) {
        if !entry.place.is_gone() {
            self.queues.left(entry);
            self.doom_uncounted(entry);
        }
    }

    /// Does the same for an object that the queues no longer count.
    fn doom_uncounted(&mut self, entry: &Entry) {
        let head = entry.newer_head.load(Relaxed);
        if head {
            self.heads = self.heads.saturating_sub(PAGE);
        }
        self.leaving += entry.place.weight() + if head { PAGE } else { 0 };
        self.doomed.push(Doomed::Object(entry.number, head));
    }

    /// Marks an unfinished file for removal, and releases its reserved bytes.
    fn doom_incoming(&mut self, number: u64, reserved: u64) {
        self.writing = self.writing.saturating_sub(reserved);
        self.leaving += reserved;
        self.doomed.push(Doomed::Incoming(number));
    }
}

// === impl Entry ===

impl Entry {
    fn new(number: u64, named: Named, fixed: &format::Fixed, newer_head: bool) -> Self {
        Self {
            number,
            stem: named.stem.into(),
            extra: named.extra.into(),
            variant: named.variant.into(),
            tags: named.tags.into(),
            body: fixed.body,
            place: Place::new(fixed.file().next_multiple_of(PAGE)),
            newer_head: AtomicBool::new(newer_head),
        }
    }

    /// Which requests the object answers, in its owner's encoding.
    pub fn variant(&self) -> &[u8] {
        &self.variant
    }

    /// Whether it was removed or evicted.
    pub fn is_gone(&self) -> bool {
        self.place.is_gone()
    }
}

impl Placed for Entry {
    fn place(&self) -> &Place {
        &self.place
    }
}
