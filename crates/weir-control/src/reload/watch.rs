//! Watches the files of a config and calls back when one of them has changed.
//!
//! It watches folders instead of files, because editors replace files, and Kubernetes swaps a symlink two folders up.
//! An event only triggers a check; the files themselves show whether anything changed.

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long files must be quiet before they are checked: an editor writes in several steps, a deploy in several
/// files.
const QUIET: Duration = Duration::from_millis(500);

/// The longest wait for a burst to end. With the reload after it, a renewed certificate is live within a second.
const BURST: Duration = Duration::from_millis(800);

/// How often to check files without an event: a folder above them may have been swapped, which the watch of the old
/// folder does not report. A check is one `stat` per file.
const LOOK: Duration = Duration::from_millis(750);

/// Files being watched. Dropping it stops the watch.
pub(crate) struct Watching {
    files: Vec<PathBuf>,
    _watcher: RecommendedWatcher,
}

impl Watching {
    /// Watches files. Calls `changed` from its own thread with the changed files, once for a burst of changes.
    pub(crate) fn new(
        files: Vec<PathBuf>,
        changed: impl Fn(&[PathBuf]) + Send + 'static,
    ) -> Result<Self, notify::Error> {
        let (send, receive) = mpsc::channel();
        let mut watcher = notify::recommended_watcher(move |event| {
            let _ = send.send(event); // the thread below is gone while this watcher is dropped
        })?;
        for folder in folders(&files) {
            // A missing folder has been reported together with the file in it.
            if let Err(e) = watcher.watch(&folder, RecursiveMode::NonRecursive)
                && folder.exists()
            {
                return Err(e);
            }
        }
        let mut stamps = stamp_all(&files);
        let watched = files.clone();
        std::thread::Builder::new().name("weir-watch".to_owned()).spawn(move || {
            loop {
                match receive.recv_timeout(LOOK) {
                    Ok(_) => {
                        // A log written into the same folder must not delay this forever.
                        let end = Instant::now() + BURST;
                        while let left = end.saturating_duration_since(Instant::now())
                            && !left.is_zero()
                            && receive.recv_timeout(QUIET.min(left)).is_ok()
                        {}
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                }
                let now = stamp_all(&watched);
                if now != stamps {
                    let both = stamps.iter().zip(&now);
                    let others = watched.iter().zip(both).filter(|(_, (then, now))| then != now);
                    let others: Vec<PathBuf> = others.map(|(file, _)| file.clone()).collect();
                    stamps = now;
                    changed(&others);
                }
            }
        })?;
        Ok(Self { files, _watcher: watcher })
    }

    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

/// The folders of the named files, and of the files that symlinks lead to.
fn folders(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let parent = |path: &Path| match path.parent() {
        Some(p) if p.as_os_str().is_empty() => Some(PathBuf::from(".")),
        parent => parent.map(Path::to_owned),
    };
    files
        .iter()
        .flat_map(|file| {
            let real = fs::canonicalize(file).ok();
            let own = if file.is_dir() { Some(file.clone()) } else { None };
            [own, parent(file), real.as_deref().and_then(parent)]
        })
        .flatten()
        .collect()
}

/// Identifies a version of a file.
type Stamp = Option<(u64, u64, i64, i64)>;

fn stamp_all(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let m = fs::metadata(path).ok()?; // follows symlinks
        Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
    };
    files.iter().map(stamp).collect()
}
