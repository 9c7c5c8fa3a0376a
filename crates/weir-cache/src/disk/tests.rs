//! Tests of the store: which objects survive, which do not, and that the size limit holds.

use super::*;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use tempfile::TempDir;

const SIZE: u64 = 16 << 20;

fn named(stem: &str, variant: &str, tags: &[u64]) -> Named {
    Named { stem: stem.into(), extra: Vec::new(), variant: variant.into(), tags: tags.to_vec() }
}

/// Opens a store and waits until its index is complete.
fn open(path: &Path) -> Arc<Disk> {
    let disk = Disk::open(path, SIZE, false).unwrap();
    until(|| disk.is_loaded());
    disk
}

fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

/// Reopens the same store, as the next process would.
fn again(disk: Arc<Disk>) -> Arc<Disk> {
    let path = disk.path.clone();
    close(disk);
    open(&path)
}

/// Closes a store, even if a thread still holds it.
fn close(disk: Arc<Disk>) {
    let left = Arc::downgrade(&disk);
    drop(disk);
    until(|| left.strong_count() == 0);
}

fn put(disk: &Arc<Disk>, named: Named, kept: &[u8], body: &[u8]) -> Option<Arc<Entry>> {
    let writer = disk.create(named, kept, Some(body.len() as u64), None)?;
    for piece in body.chunks(10_000) {
        writer.push(bytes::Bytes::copy_from_slice(piece));
    }
    let (sender, done) = channel();
    writer.finish(move |entry| sender.send(entry).unwrap());
    done.recv().unwrap()
}

fn find(disk: &Disk, stem: &str) -> Option<Arc<Entry>> {
    disk.find(stem.as_bytes(), b"", |variant| variant.is_empty())
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn read(body: &Body, from: u64) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut at = from;
    while at < body.length() {
        let (block, begin) = body.read(at)?;
        all.extend_from_slice(&block[(at - begin) as usize..]);
        at = begin + block.len() as u64;
    }
    Ok(all)
}

/// Bytes of the files below a folder.
fn taken(path: &Path) -> u64 {
    let each = fs::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            taken(&entry.path())
        } else {
            entry.metadata().unwrap().len().next_multiple_of(PAGE)
        }
    });
    each.sum()
}

#[test]
fn what_is_written_is_there_in_the_next_process() {
    let dir = TempDir::new().unwrap();
    let mut disk = open(dir.path());
    for length in [0, 1, 65_535, 65_536, 65_537, 300_000] {
        put(&disk, named(&format!("r\0u{length}"), "", &[]), b"head", &body(length)).unwrap();
    }
    put(&disk, named("r\0u1", "other", &[]), b"another", b"x").unwrap();
    for _ in 0..2 {
        for length in [0, 1, 65_535, 65_536, 65_537, 300_000] {
            let entry = find(&disk, &format!("r\0u{length}")).unwrap();
            let opened = disk.read(&entry).unwrap();
            assert_eq!((opened.body.length(), &opened.kept[..]), (length as u64, &b"head"[..]));
            assert_eq!(read(&opened.body, 0).unwrap(), body(length));
            let from = length as u64 / 2;
            assert_eq!(read(&opened.body, from).unwrap(), body(length)[from as usize..]);
            assert!(opened.body.read(length as u64).is_err(), "behind the end");
            if let Some((block, begin)) = opened.body.read_resident(from) {
                assert_eq!(block, body(length)[begin as usize..][..block.len()]);
            }
        }
        let other = disk.find(b"r\0u1", b"", |variant| variant == b"other").unwrap();
        assert_eq!(disk.read(&other).unwrap().kept, b"another");
        assert!(find(&disk, "r\0u2").is_none() && disk.find(b"r\0u1", b"x", |_| true).is_none());
        assert_eq!(disk.readings().objects, 7);
        assert_eq!(disk.readings().bytes, taken(dir.path()) - PAGE, "all but the mark");
        disk = again(disk);
    }
}

#[test]
fn the_same_variant_takes_the_place_of_the_one_before() {
    let dir = TempDir::new().unwrap();
    let mut disk = open(dir.path());
    for n in 0..100_u32 {
        put(&disk, named("r\0u", "", &[]), &n.to_le_bytes(), &body(1000)).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(disk.readings().objects, 1);
        assert_eq!(disk.read(&find(&disk, "r\0u").unwrap()).unwrap().kept, 99_u32.to_le_bytes());
        assert_eq!(taken(dir.path()), 2 * PAGE);
        disk = again(disk);
    }
}

#[test]
fn what_is_not_written_to_its_end_is_not_there() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    let writer = disk.create(named("r\0u", "", &[]), b"", None, None).unwrap();
    assert!(writer.push(body(100_000).into()));
    drop(writer);
    until(|| disk.readings().bytes == 0);
    assert!(find(&disk, "r\0u").is_none());
    let disk = again(disk);
    assert_eq!((disk.readings().objects, taken(dir.path())), (0, PAGE));
}

/// Wherever a file is cut or changed, a read returns the original content or nothing.
#[test]
fn damage_is_found() {
    let dir = TempDir::new().unwrap();
    let body = body(150_000);
    let mut disk = open(dir.path());
    let mut damaged = 0;
    for at in [0, 8, 16, 40, 63, 64, 70, 90, 64 + 30, 1000, 70_000, 140_000, 150_000 - 1, 150_100, 150_110] {
        for cut in [false, true] {
            let entry = put(&disk, named("r\0u", "", &[1]), b"head", &body).unwrap();
            let path = folder::object(&disk.path, entry.number);
            let mut bytes = fs::read(&path).unwrap();
            let at = at.min(bytes.len() - 1);
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 0x10;
            }
            fs::write(&path, bytes).unwrap();
            if damaged % 2 == 0 {
                disk = again(disk);
            }
            if let Some(entry) = find(&disk, "r\0u") {
                let got = disk.read(&entry).and_then(|opened| read(&opened.body, 0));
                assert!(got.is_err(), "byte {at}, cut: {cut}");
                assert!(find(&disk, "r\0u").is_none(), "it is no more");
            }
            until(|| disk.readings().bytes == 0);
            damaged += 1;
        }
    }
    assert_eq!(taken(dir.path()), PAGE);
}

#[test]
fn it_holds_no_more_than_it_may() {
    let dir = TempDir::new().unwrap();
    let disk = Disk::open(dir.path(), 1 << 20, false).unwrap();
    until(|| disk.is_loaded());
    for n in 0..10 {
        put(&disk, named(&format!("r\0hot{n}"), "", &[]), b"", &body(5000)).unwrap();
    }
    for n in 0..1000 {
        (0..10).for_each(|n| drop(find(&disk, &format!("r\0hot{n}"))));
        put(&disk, named(&format!("r\0scan{n}"), "", &[]), b"", &body(5000)).unwrap();
    }
    let readings = disk.readings();
    assert!(readings.bytes <= 1 << 20 && readings.objects > 100, "{readings:?}");
    assert!(taken(dir.path()) <= (1 << 20) + PAGE, "{}", taken(dir.path()));
    assert!((0..10).all(|n| find(&disk, &format!("r\0hot{n}")).is_some()), "a scan throws out itself");
    // A store whose threads are all busy refuses an object without a failure. Retry until its size decides.
    let judged = (0..1000).any(|_| {
        assert!(
            put(&disk, named("r\0large", "", &[]), b"", &body(2 << 20)).is_none(),
            "larger than all of it"
        );
        disk.readings().failed == 1
    });
    assert!(judged);
    // The new size is smaller than the content: it applies immediately, and at the next start.
    let same = Disk::open(dir.path(), 512 << 10, false).unwrap();
    assert!(Arc::ptr_eq(&same, &disk));
    until(|| taken(dir.path()) <= (512 << 10) + PAGE);
    drop(same);
    close(disk);
    let disk = Disk::open(dir.path(), 256 << 10, false).unwrap();
    until(|| disk.is_loaded());
    assert!(disk.readings().bytes <= 256 << 10 && taken(dir.path()) <= (256 << 10) + PAGE);
}

#[test]
fn what_is_removed_does_not_come_back() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    for (stem, tags) in [("r\0a", &[1][..]), ("r\0b", &[1, 2]), ("r\0c", &[2]), ("r\0d", &[]), ("r\0e", &[])]
    {
        put(&disk, named(stem, "", tags), b"", b"body").unwrap();
    }
    assert_eq!(disk.purge(|_, tags| tags.contains(&1)), 2);
    assert_eq!(disk.forget(b"r\0d"), 1);
    assert_eq!(disk.forget(b"r\0x"), 0);
    disk.remove(&find(&disk, "r\0e").unwrap());
    until(|| disk.readings().objects == 1 && taken(dir.path()) == 2 * PAGE);
    let disk = again(disk);
    assert_eq!(disk.readings().objects, 1);
    assert!(find(&disk, "r\0c").is_some());
}

/// This includes objects that the index did not know yet when they were removed.
#[test]
fn what_is_removed_while_the_index_is_made_does_not_come_back() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    for n in 0..50 {
        put(&disk, named(&format!("r\0{n}"), "", &[n % 2]), b"", b"body").unwrap();
    }
    let path = disk.path.clone();
    close(disk);
    let disk = Disk::open(&path, SIZE, false).unwrap();
    disk.purge(|_, tags| tags.contains(&1));
    disk.forget(b"r\0" as &[u8]);
    disk.forget(b"r\x000");
    until(|| disk.is_loaded());
    assert_eq!(disk.readings().objects, 24);
    assert!(
        find(&disk, "r\x000").is_none() && find(&disk, "r\x001").is_none() && find(&disk, "r\x002").is_some()
    );
}

/// Files not reached in time are removed, so that no file remains outside the index.
#[test]
fn the_index_takes_bounded_time() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    for n in 0..20 {
        put(&disk, named(&format!("r\0{n}"), "", &[]), b"", b"body").unwrap();
    }
    let path = disk.path.clone();
    close(disk);
    let disk = Disk::open(&path, SIZE, false).unwrap();
    until(|| disk.is_loaded());
    assert_eq!(disk.readings().objects, 20);
    // As if the files came from an earlier process, and no time were left.
    let late = Disk { first: u64::MAX, ..blank(&path) };
    load::load(&Arc::downgrade(&Arc::new(late)), Instant::now());
    assert_eq!(taken(&path), 21 * PAGE, "a folder that is not its own is left alone");
    close(disk);
    let late =
        Arc::new(Disk { folder: RwLock::new(Some(Folder::open(&path, true).unwrap())), ..blank(&path) });
    load::load(&Arc::downgrade(&late), Instant::now());
    assert_eq!((late.readings().objects, taken(&path)), (0, PAGE));
}

/// A store without a folder and with an empty index.
fn blank(path: &Path) -> Disk {
    Disk {
        path: path.to_owned(),
        size: AtomicU64::new(SIZE),
        folder: RwLock::new(None),
        shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
        room: Mutex::default(),
        hasher: RandomState::default(),
        next: AtomicU64::new(u64::MAX),
        first: u64::MAX,
        loading: Mutex::new(Some(Loading::default())),
        threads: Threads::start().unwrap(),
        counts: Counts::default(),
        began: Instant::now(),
        paused: AtomicU64::new(0),
    }
}

#[test]
fn a_newer_head_counts() {
    let dir = TempDir::new().unwrap();
    let mut disk = open(dir.path());
    let entry = put(&disk, named("r\0u", "", &[]), b"old", b"body").unwrap();
    for newer in ["one", "two"] {
        disk.write_newer_head(&entry, newer.as_bytes());
        until(|| disk.read(&entry).unwrap().kept == newer.as_bytes());
    }
    for _ in 0..2 {
        let entry = find(&disk, "r\0u").unwrap();
        let opened = disk.read(&entry).unwrap();
        assert_eq!((&opened.kept[..], read(&opened.body, 0).unwrap()), (&b"two"[..], b"body".to_vec()));
        assert_eq!((disk.readings().bytes, taken(dir.path())), (2 * PAGE, 3 * PAGE));
        drop((entry, opened));
        disk = again(disk);
    }
    let entry = find(&disk, "r\0u").unwrap();
    // A damaged newer head costs nothing but itself.
    fs::write(folder::newer_head(&disk.path, entry.number), "damaged").unwrap();
    assert_eq!(disk.read(&entry).unwrap().kept, b"old");
    disk.remove(&entry);
    until(|| taken(dir.path()) == PAGE);
    assert_eq!(disk.readings().bytes, 0);
}

#[test]
fn a_disk_that_fails_costs_objects_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    put(&disk, named("r\0a", "", &[]), b"", b"body").unwrap();
    fs::remove_dir(disk.path.join("v2/incoming")).unwrap();
    assert!(put(&disk, named("r\0b", "", &[]), b"", b"body").is_none());
    let readings = disk.readings();
    assert_eq!((readings.failed, readings.objects, readings.bytes), (1, 1, PAGE));
    assert!(disk.create(named("r\0c", "", &[]), b"", None, None).is_none(), "it is left alone for a while");
    assert!(find(&disk, "r\0a").is_some_and(|entry| disk.read(&entry).is_ok()));
}

/// A process that replaces another gets the folder when the other releases it, and finds its objects.
#[test]
fn a_successor_waits_for_the_folder() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    put(&disk, named("r\0a", "", &[]), b"", b"body").unwrap();
    let path = disk.path.clone();
    OPEN.lock().unwrap().retain(|(known, _)| *known != path); // as in another process
    let second = Folder::open(&path, false);
    assert!(matches!(second, Err(OpenError::InUse(..))), "{second:?}");
    let next = Disk::open(&path, SIZE, true).unwrap();
    assert!(find(&next, "r\0a").is_none() && next.create(named("r\0b", "", &[]), b"", None, None).is_none());
    let writer = disk.create(named("r\0c", "", &[]), b"", None, None).unwrap();
    disk.release();
    until(|| next.is_loaded());
    assert!(find(&next, "r\0a").is_some_and(|entry| next.read(&entry).is_ok()));
    writer.push(body(10).into());
    let (sender, done) = channel();
    writer.finish(move |entry| sender.send(entry).unwrap());
    assert!(done.recv().unwrap().is_none(), "too late");
    assert!(disk.create(named("r\0d", "", &[]), b"", None, None).is_none());
    disk.remove(&find(&disk, "r\0a").unwrap());
    close(disk);
    assert!(find(&next, "r\0a").is_some_and(|entry| next.read(&entry).is_ok()), "it is another's by now");
    put(&next, named("r\0b", "", &[]), b"", b"body").unwrap();
}

/// A reader can follow an object while it is written.
#[test]
fn progress_is_told() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    let (sender, told) = channel();
    let sender = Mutex::new(sender);
    let progress: Progress = Box::new(move |file, at, upto| {
        sender.lock().unwrap().send((Arc::clone(file), at, upto)).unwrap();
    });
    let writer = disk.create(named("r\0u", "", &[]), b"head", None, Some(progress)).unwrap();
    let body = body(200_000);
    writer.push(bytes::Bytes::from(body.clone()));
    let (file, at, upto) = told.recv().unwrap();
    assert_eq!(upto, 200_000);
    let mut read = vec![0; 200_000];
    std::os::unix::fs::FileExt::read_exact_at(&*file, &mut read, at).unwrap();
    assert_eq!(read, body);
}

/// The object files of a folder.
fn files(path: &Path) -> Vec<PathBuf> {
    let folders = (0..folder::FOLDERS).map(|number| folder::below(path, number));
    folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path()).collect()
}

/// Keys of the earlier format lack the caller, so its objects may belong to someone else.
#[test]
fn objects_of_an_earlier_form_are_removed() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    put(&disk, named("r\0u", "", &[]), b"head", b"of alice").unwrap();
    let path = disk.path.clone();
    close(disk);
    let object = files(&path).pop().unwrap();
    let mut bytes = fs::read(&object).unwrap();
    bytes[7] = 1;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..56]);
    bytes[56..64].copy_from_slice(&sum.to_le_bytes());
    fs::write(&object, bytes).unwrap();
    let mark = path.join("weir-cache");
    fs::write(&mark, "weir-cache 1\n1\n").unwrap();
    check(&path).unwrap();
    let disk = open(&path);
    assert!(find(&disk, "r\0u").is_none());
    assert_eq!((disk.readings().objects, files(&path).len()), (0, 0));
}

/// After the clock was set back, new numbers are lower than those of existing files.
#[test]
fn objects_that_are_numbered_ahead_of_now_count_too() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    for n in 0..20 {
        put(&disk, named(&format!("r\0u{n}"), "", &[]), b"head", &body(600_000)).unwrap();
    }
    let kept = find(&disk, "r\0u7").unwrap();
    disk.write_newer_head(&kept, b"newer");
    until(|| kept.newer_head.load(Relaxed));
    drop(kept);
    let path = disk.path.clone();
    close(disk);
    let ahead = 1 << 62;
    for file in files(&path) {
        let (number, is_head) = folder::number_of(file.file_name().unwrap().to_str().unwrap()).unwrap();
        let to = if is_head { folder::newer_head } else { folder::object };
        fs::rename(file, to(&path, number | ahead)).unwrap();
    }
    let disk = open(&path);
    let entry = find(&disk, "r\0u7").unwrap();
    assert_eq!(disk.read(&entry).unwrap().kept, b"newer");
    assert_eq!((disk.readings().objects, disk.readings().bytes), (20, taken(&path) - PAGE));
    // They are evicted like all others, and newer objects replace them.
    put(&disk, named("r\0u7", "", &[]), b"since", b"x").unwrap();
    for n in 0..40 {
        put(&disk, named(&format!("r\0new{n}"), "", &[]), b"head", &body(600_000)).unwrap();
    }
    drop(entry);
    until(|| taken(&path) <= SIZE + PAGE);
    let disk = again(disk);
    assert!(disk.readings().bytes <= SIZE);
    assert!(find(&disk, "r\0u7").is_none_or(|entry| disk.read(&entry).unwrap().kept == b"since"));
}
