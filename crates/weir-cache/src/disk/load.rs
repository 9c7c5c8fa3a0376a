//! Rebuilds the index from the folder at start, on a separate thread while requests are served, and in bounded
//! time. Files not reached by then are removed unread, so that no file remains outside the index.

use super::folder::{self, FOLDERS, Folder};
use super::format::{FIXED, Fixed, read_head};
use super::{Disk, Entry};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use weir_telemetry::log;

/// Longest time to rebuild the index.
const TIME: Duration = Duration::from_secs(60);

/// Bytes that the first read of a file takes: the whole head of most files.
const FIRST: usize = 4096;

/// Most removals that are remembered while the index is rebuilt. Beyond that, everything not yet indexed is
/// removed.
const MOST_BANS: usize = 4096;

/// Removals during the rebuild, so that the removed objects do not come back.
#[derive(Default)]
pub(super) struct Loading {
    bans: Vec<Ban>,
    all: bool,
}

/// Whether an object matches, by its stem and its tags.
type Ban = Box<dyn Fn(&[u8], &[u64]) -> bool + Send + Sync>;

impl Disk {
    /// Also keeps matching objects out of the index that is being rebuilt.
    pub(super) fn ban(&self, means: impl Fn(&[u8], &[u64]) -> bool + Send + Sync + 'static) {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(loading) = &mut *loading else { return };
        if loading.bans.len() < MOST_BANS {
            loading.bans.push(Box::new(means));
        } else {
            loading.all = true;
        }
    }

    fn is_banned(&self, entry: &Entry) -> bool {
        let loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let means = |ban: &Ban| ban(&entry.stem, &entry.tags);
        loading.as_ref().is_some_and(|loading| loading.all || loading.bans.iter().any(means))
    }

    fn loads_none(&self) -> bool {
        let loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        loading.as_ref().is_some_and(|loading| loading.all)
    }
}

/// Starts the rebuild. With `waits`, it first waits for the process that holds the folder.
pub(super) fn start(disk: &Arc<Disk>, waits: bool) -> io::Result<()> {
    let (path, disk) = (disk.path.clone(), Arc::downgrade(disk));
    let work = move || {
        if waits {
            match Folder::open(&path, true) {
                Ok(folder) => {
                    let Some(disk) = disk.upgrade() else { return };
                    *disk.folder.write().unwrap_or_else(PoisonError::into_inner) = Some(folder);
                }
                Err(e) => {
                    log::error(
                        "the disk of a cache is not used: its folder cannot be locked",
                        &[("error", &e)],
                    );
                    return;
                }
            }
        }
        folder::remove_dropped(&path);
        load(&disk, Instant::now() + TIME);
    };
    thread::Builder::new().name("weir-disk-load".to_owned()).spawn(work).map(drop)
}

/// Reads all folders; stops if the store is dropped.
pub(super) fn load(disk: &Weak<Disk>, end: Instant) {
    let began = Instant::now();
    let mut removed = 0_u64;
    for number in 0..FOLDERS {
        let Some(disk) = disk.upgrade() else { return };
        if disk.folder.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            return; // another process holds it by now
        }
        let folder = folder::below(&disk.path, number);
        let known = Instant::now() < end && !disk.loads_none();
        removed += disk.load_folder(&folder, known);
    }
    let Some(disk) = disk.upgrade() else { return };
    *disk.loading.lock().unwrap_or_else(PoisonError::into_inner) = None;
    disk.reserve(0); // the store may be smaller than before
    let readings = disk.readings();
    let seconds = format!("{:.1}", began.elapsed().as_secs_f64());
    let fields: log::Fields<'_> = &[
        ("path", &disk.path.display()),
        ("objects", &readings.objects),
        ("bytes", &readings.bytes),
        ("removed", &removed),
        ("seconds", &seconds),
    ];
    log::info("the disk of a cache is ready", fields);
}

impl Disk {
    /// Indexes or removes the files of a folder, and returns how many it removed.
    fn load_folder(&self, folder: &Path, known: bool) -> u64 {
        let Ok(files) = fs::read_dir(folder) else { return 0 };
        let mut objects = Vec::new();
        let mut heads = Vec::new();
        for file in files.flatten() {
            match file.file_name().to_str().and_then(folder::number_of) {
                Some((number, true)) => heads.push(number),
                Some((number, false)) => objects.push(number),
                None => {}
            }
        }
        // Read after the listing, so that it exceeds the number of every file of this process in it. Those are
        // indexed already.
        let own = self.own();
        objects.retain(|number| !own.contains(number));
        heads.retain(|number| !own.contains(number));
        let mut removed = 0;
        for number in &objects {
            let path = folder::object(&self.path, *number);
            let newer_head = heads.contains(number);
            let entry = if known { read_entry(&path, *number, newer_head) } else { None };
            match entry.filter(|entry| !self.is_banned(entry)) {
                Some(entry) => self.adopt(entry),
                None => {
                    removed += 1;
                    let _ = fs::remove_file(path);
                    let _ = fs::remove_file(folder::newer_head(&self.path, *number));
                }
            }
        }
        for number in heads.iter().filter(|number| !objects.contains(number)) {
            let _ = fs::remove_file(folder::newer_head(&self.path, *number));
        }
        removed
    }

    /// The numbers that this process has assigned so far.
    fn own(&self) -> Range<u64> {
        self.first..self.next.load(Relaxed)
    }

    /// Adds an object of an earlier process. A newer object, or one written since the start, takes precedence.
    fn adopt(&self, entry: Entry) {
        let entry = Arc::new(entry);
        let newer = {
            let shard = self.shard(&entry.stem).read().unwrap_or_else(PoisonError::into_inner);
            let same = |known: &Arc<Entry>| known.extra == entry.extra && known.variant == entry.variant;
            let known = shard.get(&entry.stem).and_then(|entries| entries.iter().find(|known| same(known)));
            // If the clock was set back, an older object can have a larger number.
            let own = self.own();
            known.is_some_and(|known| own.contains(&known.number) || known.number > entry.number)
        };
        if entry.newer_head.load(Relaxed) {
            self.room().heads += super::PAGE;
        }
        if newer {
            self.room().doom_uncounted(&entry);
            self.bury();
        } else {
            self.keep(&entry, 0);
            self.reserve(0);
        }
    }
}

/// Reads the entry of a file, if the file is complete.
fn read_entry(path: &Path, number: u64, newer_head: bool) -> Option<Entry> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut first = vec![0; FIRST.min(usize::try_from(length).ok()?)];
    file.read_exact_at(&mut first, 0).ok()?;
    let fixed = Fixed::read(&first, true).filter(|fixed| fixed.file() == length)?;
    let end = FIXED + fixed.head as usize;
    if first.len() < end {
        first.resize(end, 0);
        file.read_exact_at(&mut first, 0).ok()?;
    }
    let head = first.get(FIXED..end).filter(|head| fixed.holds_head(head))?;
    let (named, _) = read_head(head)?;
    Some(Entry::new(number, named, &fixed, newer_head))
}
