//! Follows a file on the control thread: each new version of it is taken without a reload.
//!
//! `basic_auth: { file }` is kept this way, and a source of consumers (`directory/follow.rs`). Reading and comparing
//! happens on threads that may block.

use std::fs::{self, File};
use std::future::Future;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a file is checked. A check is one `stat`.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// Identifies a version of a file: inode, length, and the times of its content and its entry.
pub type Stamp = (u64, u64, i64, i64, i64, i64);

/// State that holds what a file says.
pub trait FollowedFile: Send + Sync + 'static {
    /// Where it is.
    fn path(&self) -> &Path;

    /// The version that was read before the file was followed.
    fn begun_with(&self) -> Option<Stamp>;

    /// Reads the file and takes what it says. May block.
    ///
    /// # Errors
    /// Why the version is refused. What was taken before stays.
    fn take(&self) -> Result<(), String>;

    /// A version was refused.
    fn failed(&self, why: &str);

    /// Waits until the next check. `is_new`: the next check may take a version that was just seen; `failed`: the last
    /// version was refused. Returns whether the same version must be read again because it may be accepted now.
    /// The default waits half a second and returns false.
    fn rest(&self, is_new: bool, failed: bool) -> impl Future<Output = bool> + Send {
        let _ = (is_new, failed);
        async {
            tokio::time::sleep(LOOK).await;
            false
        }
    }
}

/// Takes a file when two checks in a row have seen the same new version, so that nobody is writing it.
pub async fn follow_file<F: FollowedFile>(file: &Arc<F>) {
    // The version that was read last, well or not. `None` inside: there was no file.
    let mut taken = Some(file.begun_with());
    let (mut seen, mut failed) = (None, false);
    loop {
        let now = look(file).await;
        if taken != Some(now) && seen == Some(now) {
            let read = take(file).await;
            failed = read.is_err();
            if let Err(why) = read {
                file.failed(&why);
            }
            // A version that was replaced while it was read is read again.
            taken = Some(now).filter(|_| !failed || now.is_some());
            if look(file).await != now {
                taken = None;
            }
        }
        seen = Some(now);
        if file.rest(taken != Some(now) && now.is_some(), failed).await {
            taken = None;
        }
    }
}

async fn take<F: FollowedFile>(file: &Arc<F>) -> Result<(), String> {
    let file = Arc::clone(file);
    let read = tokio::task::spawn_blocking(move || file.take());
    read.await.unwrap_or_else(|_| Err("reading it failed".to_owned()))
}

async fn look<F: FollowedFile>(file: &Arc<F>) -> Option<Stamp> {
    let file = Arc::clone(file);
    tokio::task::spawn_blocking(move || stamp(file.path())).await.ok().flatten()
}

/// The version of a file; `None` if there is none.
pub fn stamp(path: &Path) -> Option<Stamp> {
    let m = fs::metadata(path).ok()?; // follows symlinks
    Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
}

/// Reads a regular file of at most this many bytes.
///
/// # Errors
/// A sentence that names the file.
pub fn read_bounded(path: &Path, limit: usize) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let told = |e: std::io::Error| format!("{shown} cannot be read: {e}");
    if !fs::metadata(path).map_err(told)?.is_file() {
        return Err(format!("{shown} is not a file")); // opening a pipe would wait for ever
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(told)?;
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() > limit {
        return Err(format!("{shown} is longer than {limit} bytes"));
    }
    Ok(bytes)
}
