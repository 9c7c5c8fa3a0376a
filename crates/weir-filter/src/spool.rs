//! Bodies that are too long for memory, each in a file of its own. `queue` holds responses for slow clients.
//!
//! The files have no name: only this process can reach them, and they are gone when it ends, however it ends. Threads
//! that may block write them. Reads come from the page cache if possible, else from those threads.

mod queue;

pub use queue::Queue;

use crate::file_source::FileSource;
use crate::filter::{BodySource, CoreHandle, FileRange, HeldBody, Spooling, Waiting};
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use weir_telemetry::log;
use weir_upstream::error::{self, Cause};
use weir_wire::relay::Supply;

/// How much of a body is collected in memory before it is written, in bytes.
pub const SPOOL_PIECE: usize = 256 * 1024;

/// One body in a file. Dropping it frees the space.
#[derive(Debug)]
pub struct Spool {
    spooling: Spooling,
    core: CoreHandle,
    file: Option<Arc<File>>,
    length: u64,
}

// === impl Spool ===

impl Spool {
    /// An empty body. Its file is created with the first bytes.
    pub const fn new(spooling: Spooling, core: CoreHandle) -> Self {
        Self { spooling, core, file: None, length: 0 }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// `buffer_disk` if the bytes of all bodies would exceed their limit, or the file system refuses; as
    /// [`CoreHandle::blocking`].
    pub async fn push(&mut self, data: Vec<u8>) -> Result<(), &'static Cause> {
        let (room, more) = (&self.spooling.room, data.len() as u64);
        if !room.take(more, self.spooling.total) {
            return Err(&error::BUFFER_DISK);
        }
        let offset = self.length;
        self.length += more; // from here, dropping it gives these bytes back
        let (file, folder) = (self.file.clone(), Arc::clone(&self.spooling.folder));
        let write = move || -> io::Result<Arc<File>> {
            let file = match file {
                Some(file) => file,
                None => Arc::new(nameless(&folder)?),
            };
            file.write_all_at(&data, offset)?;
            Ok(file)
        };
        match self.core.blocking(write).await? {
            Ok(file) => {
                self.file = Some(file);
                Ok(())
            }
            Err(e) => {
                self.spooling.room.fail();
                static FAILED: log::PerSubject = log::per_subject(1, std::time::Duration::from_secs(10));
                let folder = self.spooling.folder.display();
                let fields: log::Fields<'_> = &[("folder", &folder), ("error", &e)];
                let message = "a body could not be written to disk";
                FAILED.write(log::Level::Error, &*self.spooling.folder, message, fields);
                Err(&error::BUFFER_DISK)
            }
        }
    }

    fn source(&self) -> Option<FileSource> {
        let file = Arc::clone(self.file.as_ref()?);
        Some(FileSource::new(FileRange { file, offset: 0, length: self.length }, self.core.clone()))
    }
}

impl HeldBody for Spool {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self) -> Waiting<'_, Result<Bytes, &'static Cause>> {
        Box::pin(async move {
            let Some(mut source) = self.source() else { return Ok(Bytes::new()) };
            let mut whole = Vec::with_capacity(usize::try_from(self.length).unwrap_or(0));
            let mut next =
                async || poll_fn(|cx| source.poll_piece(cx)).await.map_err(|_| &error::BUFFER_DISK);
            while let Some(piece) = next().await? {
                whole.extend_from_slice(&piece);
            }
            Ok(whole.into())
        })
    }

    fn supply(self: Rc<Self>) -> Box<dyn Supply> {
        Box::new(Reader { source: self.source(), _spool: self })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.spooling.room.free(self.length);
    }
}

/// A file for this process alone, without a name.
fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
        Ok(file) => return Ok(file.into()),
        // The file system has no such files: overlayfs before Linux 6.3, NFS.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!(".weir-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let path = folder.join(name);
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    std::fs::remove_file(&path)?;
    Ok(file.into())
}

/// Reads a body for one attempt.
struct Reader {
    source: Option<FileSource>,
    _spool: Rc<Spool>,
}

impl Supply for Reader {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let Some(source) = &mut self.source else { return Poll::Ready(Ok(0)) };
        let read = ready!(source.poll_piece(cx));
        Poll::Ready(match read {
            Ok(piece) => {
                let piece = piece.unwrap_or_default();
                buffer.extend_from_slice(&piece);
                Ok(piece.len())
            }
            Err(cause) => {
                log::error("a body could not be read from disk", &[("error", &cause.meaning)]);
                Err(io::Error::other(cause.meaning))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PASS, Stand};
    use serde_json::json;

    async fn core() -> CoreHandle {
        Stand::new(&PASS, json!({})).build().request("GET /").await.cx.core().clone()
    }

    fn spooling(folder: &Path, total: u64) -> Spooling {
        Spooling { folder: folder.into(), memory: 1, total, room: Arc::default() }
    }

    #[tokio::test]
    async fn what_was_written_is_read_as_often_as_needed() {
        let folder = tempfile::tempdir().unwrap();
        let spooling = spooling(folder.path(), 100);
        let mut spool = Spool::new(spooling.clone(), core().await);
        spool.push(b"abc".to_vec()).await.unwrap();
        spool.push(b"defg".to_vec()).await.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let mode = std::os::unix::fs::MetadataExt::mode(&spool.file.as_ref().unwrap().metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(&spool.read().await.unwrap()[..], b"abcdefg");
        let spool = Rc::new(spool);
        for _ in 0..2 {
            let (mut supply, mut body) = (Rc::clone(&spool).supply(), Vec::new());
            while poll_fn(|cx| supply.poll_read(cx, &mut body)).await.unwrap() > 0 {}
            assert_eq!(body, b"abcdefg");
        }
        assert_eq!(spooling.room.taken(), 7);
        drop(spool);
        assert_eq!((spooling.room.taken(), spooling.room.failed()), (0, 0));
    }

    #[tokio::test]
    async fn the_room_of_all_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let spooling = spooling(folder.path(), 5);
        let (mut one, mut other) =
            (Spool::new(spooling.clone(), core().await), Spool::new(spooling.clone(), core().await));
        one.push(b"abc".to_vec()).await.unwrap();
        assert_eq!(other.push(b"abc".to_vec()).await.unwrap_err(), &error::BUFFER_DISK);
        drop(one);
        other.push(b"abcde".to_vec()).await.unwrap();
        assert_eq!((spooling.room.taken(), spooling.room.failed()), (5, 1));
    }

    #[tokio::test]
    async fn a_folder_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let spooling = spooling(&folder.path().join("gone"), 5);
        let mut spool = Spool::new(spooling.clone(), core().await);
        assert_eq!(spool.push(b"abc".to_vec()).await.unwrap_err(), &error::BUFFER_DISK);
        drop(spool);
        assert_eq!((spooling.room.taken(), spooling.room.failed()), (0, 1));
    }
}
