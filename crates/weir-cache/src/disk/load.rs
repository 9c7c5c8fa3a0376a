//! The index, made anew at start of what lies in the folder: on a thread of its own, while requests are served, and in bounded time. What
//! it has not come to when the time is over is removed unread, so that nothing is left that nobody knows.

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

/// The longest time that the index takes.
const TIME: Duration = Duration::from_secs(60);

/// How much of a file is read at first: the whole head of most.
const FIRST: usize = 4096;

/// Most things that are removed while the index is made and are remembered until it is; with more, what is not known yet is removed.
const MOST_BANS: usize = 4096;

/// What was removed while the index is made: it must not come back.
#[derive(Default)]
pub(super) struct Loading {
    bans: Vec<Ban>,
    all: bool,
}

/// Whether an object is meant, by its stem and its tags.
type Ban = Box<dyn Fn(&[u8], &[u64]) -> bool + Send + Sync>;

impl Disk {
    /// What is meant is not taken into the index either.
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

/// Begins. `waits`: for the process that has the folder.
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
                        "the disk of a cache is not used: its folder cannot be taken over",
                        &[("error", &e)],
                    );
                    return;
                }
            }
        }
        load(&disk, Instant::now() + TIME);
    };
    thread::Builder::new().name("weir-disk-load".to_owned()).spawn(work).map(drop)
}

/// Goes through all folders; ends with the store.
pub(super) fn load(disk: &Weak<Disk>, end: Instant) {
    let began = Instant::now();
    let mut removed = 0_u64;
    for number in 0..FOLDERS {
        let Some(disk) = disk.upgrade() else { return };
        if disk.folder.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            return; // another process has it by now
        }
        let folder = folder::below(&disk.path, number);
        let known = Instant::now() < end && !disk.loads_none();
        removed += disk.load_folder(&folder, known);
    }
    let Some(disk) = disk.upgrade() else { return };
    *disk.loading.lock().unwrap_or_else(PoisonError::into_inner) = None;
    disk.reserve(0); // the size may be less than it was
    let readings = disk.readings();
    let seconds = format!("{:.1}", began.elapsed().as_secs_f64());
    let fields: log::Fields<'_> = &[
        ("path", &disk.path.display()),
        ("objects", &readings.objects),
        ("bytes", &readings.bytes),
        ("removed", &removed),
        ("seconds", &seconds),
    ];
    log::info("the disk of a cache is known", fields);
}

impl Disk {
    /// Takes what lies in a folder into the index, or removes it; tells how much it removed.
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
        // Read behind the list, so that it is above every file of this process there. Those are known.
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

    /// The numbers that this process has given so far.
    fn own(&self) -> Range<u64> {
        self.first..self.next.load(Relaxed)
    }

    /// An object of a process before this one. What came since, or is newer, stays in its place.
    fn adopt(&self, entry: Entry) {
        let entry = Arc::new(entry);
        let newer = {
            let shard = self.shard(&entry.stem).read().unwrap_or_else(PoisonError::into_inner);
            let same = |known: &Arc<Entry>| known.extra == entry.extra && known.variant == entry.variant;
            let known = shard.get(&entry.stem).and_then(|entries| entries.iter().find(|known| same(known)));
            // The clock may have been set back since: then an older object has the larger number.
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

/// What a file says it is, where all of it is there.
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
