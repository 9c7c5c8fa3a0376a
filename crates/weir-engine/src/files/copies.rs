//! Copies of files that are requested often, so that a core sends them without opening or reading anything.
//!
//! A file is copied when it is requested again soon and has not been changed for [`SETTLED`]. A copy is used until the
//! root that it was found through is opened again, at most a second. Then one request looks the name up as usual, with
//! all checks. If that leads to the same file, unchanged, the copy stays in use.
//!
//! Why copies and not open files: a file may be overwritten or cut at any moment, and then the length and the ETag that
//! were promised would no longer fit the bytes. Copies of one file are shared by all names and cores.

use super::{Asked, Representation};
use bytes::Bytes;
use foldhash::fast::RandomState;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::hash::BuildHasher;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_filter::filter::{CoreHandle, PerCore};
use weir_wire::memory_file::{Kept, keep, memory};

/// The longest file that is copied, in bytes. Opening a longer one is less than a hundredth of the cost of sending it.
pub(super) const FILE_BYTES: u64 = 1024 * 1024;

/// Most bytes of all copies in the process. Beyond that, files are opened for each request.
const ALL_BYTES: u64 = 32 * 1024 * 1024;

/// Most names that a core remembers, over all folders.
const NAMES: usize = 1024;

/// The longest name that a core remembers, in bytes.
const NAME_BYTES: usize = 256;

/// A file that was changed more recently is opened for each request: whoever writes it may not be done. This is also
/// far longer than a tick of a file system's clock, so that every change of a copied file moves its times.
pub(super) const SETTLED: Duration = Duration::from_secs(2);

/// A name that was not requested for this long is forgotten, with its copy.
const IDLE: Duration = Duration::from_secs(10);

/// A name that was requested within this time stays when a core has too many.
const RECENT: Duration = Duration::from_secs(1);

/// A copy is renewed after this long: a program that writes through a mapping may change a file and not its times.
const COPY_FOR: Duration = Duration::from_secs(60);

/// How long others leave the copying of a file to the request that began it.
const COPYING_FOR: Duration = Duration::from_secs(1);

/// What each core knows of every folder.
static TABLES: LazyLock<PerCore<Table>> = LazyLock::new(PerCore::new);

/// All copies, by device and inode.
static COPIES: LazyLock<Mutex<Copies>> = LazyLock::new(Mutex::default);

/// Bytes of all copies.
static USED: AtomicU64 = AtomicU64::new(0);

type Copies = HashMap<(u64, u64), Weak<Copied>>;

/// What identifies a file and its content: any change moves the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    /// The same, of a change to the content or to the inode; nobody can set it.
    changed: (i64, i64),
}

/// A file's content as it was.
#[derive(Debug)]
pub(super) struct Copied {
    identity: Identity,
    made: Instant,
    bytes: Kept,
    _room: Room,
}

/// A core's view of a copy. It has a count of references of its own, so that cores do not write to the same one.
struct OnCore(Arc<Copied>);

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(super) struct Room(u64);

/// The names that were requested on a core.
#[derive(Default)]
pub(crate) struct Table(RefCell<Names>);

#[derive(Default)]
struct Names {
    /// By a hash of the folder and of what was asked for. Of two with the same hash, one is known.
    known: HashMap<u64, Known, RandomState>,
    hasher: RandomState,
}

/// A name that was requested.
struct Known {
    site: u64,
    asked: Asked,
    /// When it was last requested.
    used: Instant,
    /// Until when the copy answers without a look at the file.
    until: Instant,
    /// While a request copies it: until when others leave that to it.
    copying: Option<Instant>,
    copy: Option<Copy>,
}

/// A copy under a name.
struct Copy {
    copied: Arc<Copied>,
    bytes: Bytes,
    representation: Representation,
}

/// What a look at a file leads to.
#[derive(Debug)]
pub(super) enum Next {
    /// Make a copy.
    Copy(Room),
    /// Send this copy of it.
    Send(Bytes),
    /// Send the opened file.
    SendFile,
}

/// The times of a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) now: Instant,
    /// The wall clock at that moment.
    pub(super) clock: SystemTime,
    /// Until when its result holds.
    pub(super) until: Instant,
    /// Normally [`SETTLED`].
    pub(super) settled: Duration,
}

impl Table {
    /// The table of a core.
    pub(crate) fn of(core: &CoreHandle) -> Rc<Self> {
        TABLES.get(core)
    }

    /// The copy that answers without a look at the file.
    pub(super) fn find(&self, site: u64, asked: &Asked, now: Instant) -> Option<(Bytes, Representation)> {
        let mut names = self.0.borrow_mut();
        let known = names.get(site, asked)?;
        let copy = known.copy.as_ref().filter(|_| now < known.until)?;
        known.used = now;
        Some((copy.bytes.clone(), copy.representation.clone()))
    }

    /// A look has led to a file.
    pub(super) fn look(
        &self,
        site: u64,
        asked: &Asked,
        representation: &Representation,
        times: Times,
    ) -> Next {
        let Times { now, clock, until, settled } = times;
        let identity = &representation.identity;
        let mut names = self.0.borrow_mut();
        if identity.size > FILE_BYTES || asked.weight() > NAME_BYTES || !identity.is_settled(clock, settled) {
            names.forget(site, asked);
            return Next::SendFile;
        }
        let Some(known) = names.get(site, asked) else {
            names.add(Known { site, asked: asked.clone(), used: now, until: now, copying: None, copy: None });
            return Next::SendFile;
        };
        known.used = now;
        if let Some(copy) = &mut known.copy
            && copy.copied.is_of(identity, now)
        {
            known.until = until;
            copy.representation = representation.clone();
            return Next::Send(copy.bytes.clone());
        }
        known.copy = None;
        if known.copying.is_some_and(|until| now < until) {
            return Next::SendFile;
        }
        match Room::take(memory(identity.size)) {
            Some(room) => {
                known.copying = Some(now + COPYING_FOR);
                Next::Copy(room)
            }
            None => Next::SendFile,
        }
    }

    /// The copy that was to be made of the file that was found under a name; `None` if it could not be made.
    pub(super) fn keep(
        &self,
        site: u64,
        asked: &Asked,
        copied: Option<(Arc<Copied>, Representation)>,
        until: Instant,
    ) {
        let mut names = self.0.borrow_mut();
        let Some(known) = names.get(site, asked) else { return };
        known.copying = None;
        known.until = until;
        known.copy = copied.map(|(copied, representation)| {
            let bytes = Bytes::from_owner(OnCore(Arc::clone(&copied)));
            Copy { copied, bytes, representation }
        });
    }

    /// Forgets what was not requested for a while.
    pub(crate) fn forget_idle(&self, now: Instant) {
        let mut names = self.0.borrow_mut();
        names.known.retain(|_, known| now.saturating_duration_since(known.used) < IDLE);
    }
}

impl Names {
    fn get(&mut self, site: u64, asked: &Asked) -> Option<&mut Known> {
        let hash = self.hasher.hash_one((site, asked));
        self.known.get_mut(&hash).filter(|known| known.site == site && known.asked == *asked)
    }

    fn forget(&mut self, site: u64, asked: &Asked) {
        if self.get(site, asked).is_some() {
            self.known.remove(&self.hasher.hash_one((site, asked)));
        }
    }

    /// Adds a name. If there are too many, forgets those without a copy and those not requested for [`RECENT`]; if
    /// still too many, forgets all.
    fn add(&mut self, new: Known) {
        if self.known.len() >= NAMES {
            let now = new.used;
            let recent = |known: &Known| now.saturating_duration_since(known.used) < RECENT;
            self.known.retain(|_, known| known.copy.is_some() && recent(known));
        }
        if self.known.len() >= NAMES {
            self.known.clear();
        }
        self.known.insert(self.hasher.hash_one((new.site, &new.asked)), new);
    }
}

/// Copies a file, or finds the copy of it. `None` if it has changed since it was identified, or cannot be read. For a
/// thread that may block.
pub(super) fn copy(file: &File, identity: Identity, room: Room) -> Option<Arc<Copied>> {
    let (key, now) = ((identity.device, identity.inode), Instant::now());
    let known = copies().get(&key).and_then(Weak::upgrade).filter(|copied| copied.is_of(&identity, now));
    if known.is_some() {
        return known;
    }
    let mut bytes = vec![0; usize::try_from(identity.size).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    if Identity::of(&file.metadata().ok()?) != identity {
        return None;
    }
    let copied = Arc::new(Copied { identity, made: now, bytes: keep(bytes), _room: room });
    let mut copies = copies();
    copies.retain(|_, copied| copied.strong_count() > 0);
    copies.insert(key, Arc::downgrade(&copied));
    Some(copied)
}

fn copies() -> MutexGuard<'static, Copies> {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Copied {
    fn is_of(&self, identity: &Identity, now: Instant) -> bool {
        self.identity == *identity && now.saturating_duration_since(self.made) < COPY_FOR
    }
}

impl AsRef<[u8]> for OnCore {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes.as_ref()
    }
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether nobody has changed it for a while. Not if it seems to have been changed in the future.
    fn is_settled(&self, clock: SystemTime, settled: Duration) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or_default();
        let nanos = u32::try_from(self.changed.1).unwrap_or_default();
        let changed = UNIX_EPOCH.checked_add(Duration::new(seconds, nanos));
        changed.and_then(|changed| clock.duration_since(changed).ok()).is_some_and(|age| age >= settled)
    }
}

// === impl Room ===

impl Room {
    fn take(bytes: u64) -> Option<Self> {
        let room = Self(bytes);
        let before = USED.fetch_add(bytes, Relaxed);
        (before.saturating_add(bytes) <= ALL_BYTES).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Relaxed);
    }
}
