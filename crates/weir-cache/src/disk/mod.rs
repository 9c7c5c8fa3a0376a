//! A store of objects on a disk, bounded in bytes, that outlives its process.
//!
//! Each object is a file. Its names stand in an index in memory (some 200 bytes an object), so that a look-up asks no disk; all else is
//! read where a request wants it, on the store's own threads. Whatever a disk does (it is full, it fails, it lies) costs objects, never a
//! request: what cannot be written is not kept, and what cannot be read whole was never there.
//!
//! ```text
//!   folder   whose folder it is                     format   the bytes of a file
//!   load     the index, made anew at start          write    an object on its way in        read   an object that is there
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

/// Few of the cores that look something up meet.
const SHARDS: usize = 64;

/// Most variants of one URL.
const MOST_VARIANTS: usize = 64;

/// What a file takes up is a multiple of this, in bytes.
const PAGE: u64 = 4096;

/// How long nothing is written after a disk has failed, or was full.
const PAUSE: Duration = Duration::from_secs(10);

/// How often, and how long apart, a folder is asked for again that this process is just letting go of.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A store on a disk.
pub struct Disk {
    path: PathBuf,
    size: AtomicU64,
    /// `None` where another process has it: one that this one takes the place of, or that takes this one's.
    folder: RwLock<Option<Folder>>,
    shards: Box<[RwLock<Shard>]>,
    room: Mutex<Room>,
    hasher: RandomState,
    /// The number of the next object. Those below the first are of processes before this one.
    next: AtomicU64,
    first: u64,
    /// What is not known yet of what was there.
    loading: Mutex<Option<Loading>>,
    threads: Threads,
    counts: Counts,
    began: Instant,
    /// Until when nothing is written, in milliseconds since `began`.
    paused: AtomicU64,
}

type Shard = HashMap<Arc<[u8]>, SmallVec<[Arc<Entry>; 1]>, RandomState>;

/// An object that is there, as far as the index knows it.
#[derive(Debug)]
pub struct Entry {
    number: u64,
    stem: Arc<[u8]>,
    extra: Box<[u8]>,
    variant: Box<[u8]>,
    tags: Box<[u64]>,
    body: u64,
    place: Place,
    /// It has a head that is newer than its file.
    newer_head: AtomicBool,
}

/// What takes up room.
#[derive(Default)]
struct Room {
    queues: Queues<Entry>,
    /// Bytes of what is being written.
    writing: u64,
    /// Bytes of newer heads.
    heads: u64,
    /// Files that are to be removed, and their bytes.
    doomed: Vec<Doomed>,
    leaving: u64,
}

/// What is to be removed, by its number.
enum Doomed {
    /// What was not written to its end.
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

/// What a store says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Objects that were there and could not be read whole.
    pub broken: u64,
    /// Bytes that files take up.
    pub bytes: u64,
    /// Objects that could not be written.
    pub failed: u64,
    /// Objects that are there.
    pub objects: u64,
    /// Objects that were written.
    pub written: u64,
}

/// Stores that are open in this process: a folder has one.
static OPEN: Mutex<Vec<(PathBuf, Weak<Disk>)>> = Mutex::new(Vec::new());

// === impl Disk ===

impl Disk {
    /// Opens the store in a folder, which may take up `size` bytes. A store that this process has open already is the same one, of the
    /// new size.
    ///
    /// What is there is known only by and by: the index is made on a thread, and what it has not come to is not found yet.
    /// `successor`: this process takes the place of another, which may still have the folder. Until that gives it up nothing is found
    /// or kept.
    ///
    /// # Errors
    /// The folder is another's, or no cache, or cannot be written.
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
        // Later than those of any process before, unless the clock was set back; then they differ all the same.
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

    /// The object of these names that answers, by its variant; of several the one that came last.
    pub fn find(&self, stem: &[u8], extra: &[u8], answers: impl Fn(&[u8]) -> bool) -> Option<Arc<Entry>> {
        let shard = self.shard(stem).read().unwrap_or_else(PoisonError::into_inner);
        let mut entries = shard.get(stem)?.iter().rev();
        let found = entries.find(|entry| &*entry.extra == extra && answers(&entry.variant))?;
        found.place.used();
        Some(Arc::clone(found))
    }

    /// Gives the threads work that may wait for the disk; false when too much waits already.
    pub fn run(&self, job: Job) -> bool {
        self.threads.run(job)
    }

    /// Removes all objects of a URL; tells how many that were.
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

    /// Removes one object, if it is still there.
    pub fn remove(self: &Arc<Self>, entry: &Arc<Entry>) {
        self.take_away(entry);
        self.room().doom(entry);
        self.bury_soon();
    }

    /// Removes all objects that are meant, by stem and tags; tells how many. May wait for the disk.
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

    /// Gives the folder up, for the process that takes this one's place: from now on nothing is kept.
    pub fn release(&self) {
        *self.folder.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What it says about itself.
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

    /// Whether all that was there is known.
    pub fn is_loaded(&self) -> bool {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    // === room ===

    /// Makes room for so many bytes more, which count as being written; false where there is none. Waits for the disk.
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

    /// Keeps an entry, in place of the same variant before it. `reserved`: what it was being written as.
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

    /// Removes the files of what is doomed. Waits for the disk.
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
                // Gone is gone.
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

    /// The same on one of the threads; if none can now, then with what is written next.
    fn bury_soon(self: &Arc<Self>) {
        let disk = Arc::clone(self);
        let _ = self.run(Box::new(move || disk.bury()));
    }

    /// Whether objects are written at present.
    fn takes(&self) -> bool {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.paused.load(Relaxed) <= now && self.folder.try_read().is_ok_and(|folder| folder.is_some())
    }

    /// Something could not be written: counts it, says it, and leaves the disk alone for a while.
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

    /// An object cannot be read whole: it is no more.
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
        // The table within uses other bits of the same hash.
        &self.shards[(self.hasher.hash_one(stem) >> 20) as usize % SHARDS]
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}

/// Takes a folder. One that this process is just letting go of, after a reload, is waited for.
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

    /// An object is no longer there; its file is to be removed.
    fn doom(&mut self, entry: &Entry) {
        if !entry.place.is_gone() {
            self.queues.left(entry);
            self.doom_uncounted(entry);
        }
    }

    /// The same for one that the queues do not count any more.
    fn doom_uncounted(&mut self, entry: &Entry) {
        let head = entry.newer_head.load(Relaxed);
        if head {
            self.heads = self.heads.saturating_sub(PAGE);
        }
        self.leaving += entry.place.weight() + if head { PAGE } else { 0 };
        self.doomed.push(Doomed::Object(entry.number, head));
    }

    /// What was being written as so many bytes is not.
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

    /// Which requests it answers, as its owner has written it.
    pub fn variant(&self) -> &[u8] {
        &self.variant
    }

    /// Whether it was removed, or thrown out.
    pub fn is_gone(&self) -> bool {
        self.place.is_gone()
    }
}

impl Placed for Entry {
    fn place(&self) -> &Place {
        &self.place
    }
}
