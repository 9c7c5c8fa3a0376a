//! The part of a response that its client has not read yet, in a file. What was read from the file is overwritten once
//! the client has caught up, so an endless response takes no endless file.

use super::nameless;
use crate::file_source::FileSource;
use crate::filter::{BodySource, CoreHandle, FileRange, Spooling, Waiting};
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use weir_telemetry::log;
use weir_upstream::error::Cause;
use weir_wire::relay::Store;

/// Bytes of one response in a file, first in, first out. Dropping it frees the space.
pub struct Queue {
    spooling: Spooling,
    /// Most bytes in the file.
    most: u64,
    core: CoreHandle,
    file: Option<Arc<File>>,
    /// Stored but not taken: this part of the file.
    begin: u64,
    end: u64,
    /// How much of the account it has taken: the length of the file.
    taken: u64,
    storing: Option<Storing>,
    reading: Option<FileSource>,
    /// The account is used up, or the file system failed: nothing more is stored.
    closed: bool,
}

/// A piece on its way to the file.
struct Storing {
    piece: Arc<Vec<u8>>,
    done: Waiting<'static, Result<io::Result<Arc<File>>, &'static Cause>>,
}

impl Queue {
    /// An empty queue of at most this many bytes. Its file is created with the first of them.
    pub const fn new(spooling: Spooling, most: u64, core: CoreHandle) -> Self {
        let (file, storing, reading) = (None, None, None);
        Self { spooling, most, core, file, begin: 0, end: 0, taken: 0, storing, reading, closed: false }
    }

    /// From here on the response goes on at its client's speed.
    fn close(&mut self, why: &dyn std::fmt::Display) {
        self.closed = true;
        if self.spooling.room.skip() {
            let folder = self.spooling.folder.display();
            log::error(
                "responses are no longer buffered on disk; slow clients hold their upstreams",
                &[("folder", &folder), ("error", why)],
            );
        }
    }
}

impl Store for Queue {
    fn has_place(&self, bytes: usize) -> bool {
        !self.closed && self.end.saturating_add(bytes as u64) <= self.most
    }

    fn push(&mut self, piece: Vec<u8>) -> Result<(), Vec<u8>> {
        if !self.has_place(piece.len()) {
            return Err(piece); // a full file: until the client has caught up
        }
        let (offset, end) = (self.end, self.end.saturating_add(piece.len() as u64));
        let more = end.saturating_sub(self.taken);
        if !self.spooling.room.reserve(more, self.spooling.total) {
            self.close(&"disk_total is used up");
            return Err(piece);
        }
        self.taken += more;
        let piece = Arc::new(piece);
        let (file, folder, data) = (self.file.clone(), Arc::clone(&self.spooling.folder), Arc::clone(&piece));
        let write = move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(nameless(&folder)?),
            };
            file.write_all_at(&data, offset)?;
            Ok(file)
        };
        let core = self.core.clone();
        self.storing = Some(Storing { piece, done: Box::pin(async move { core.blocking(write).await }) });
        Ok(())
    }

    fn poll_stored(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let Some(storing) = &mut self.storing else { return Poll::Ready(None) };
        let done = ready!(storing.done.as_mut().poll(cx));
        let piece = mem::take(&mut storing.piece);
        self.storing = None;
        match done {
            Ok(Ok(file)) => {
                self.file = Some(file);
                self.end += piece.len() as u64;
                self.spooling.room.succeed();
                return Poll::Ready(None);
            }
            Ok(Err(e)) => self.close(&e),
            Err(cause) => self.close(&cause.meaning),
        }
        Poll::Ready(Some(Arc::unwrap_or_clone(piece)))
    }

    fn poll_take(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let (begin, length) = (self.begin, self.end - self.begin);
        if length == 0 {
            if self.storing.is_none() {
                (self.begin, self.end) = (0, 0);
            }
            return Poll::Ready(Ok(0));
        }
        let Some(file) = &self.file else { return Poll::Ready(Ok(0)) };
        let (file, core) = (Arc::clone(file), &self.core);
        let reading = self
            .reading
            .get_or_insert_with(|| FileSource::new(FileRange { file, offset: begin, length }, core.clone()));
        let piece = match ready!(reading.poll_piece(cx)) {
            Ok(piece) => piece.unwrap_or_default(),
            Err(cause) => {
                log::error("a response could not be read from disk", &[("error", &cause.meaning)]);
                return Poll::Ready(Err(io::Error::other(cause.meaning)));
            }
        };
        if piece.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())); // somebody has cut the file
        }
        if reading.length() == Some(0) {
            self.reading = None; // what has been stored meanwhile is another part
        }
        self.begin += piece.len() as u64;
        buffer.extend_from_slice(&piece);
        Poll::Ready(Ok(piece.len()))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.spooling.room.free(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::SpoolRoom;
    use crate::testing::{PASS, Stand};
    use serde_json::json;
    use std::future::poll_fn;
    use std::path::Path;

    async fn queue(folder: &Path, most: u64, total: u64, room: &Arc<SpoolRoom>) -> Queue {
        let core = Stand::new(&PASS, json!({})).build().request("GET /").await.cx.core().clone();
        let spooling = Spooling { folder: folder.into(), memory: 1, total, room: Arc::clone(room) };
        Queue::new(spooling, most, core)
    }

    async fn store(queue: &mut Queue, piece: &str) -> Result<(), Vec<u8>> {
        queue.push(piece.into())?;
        poll_fn(|cx| queue.poll_stored(cx)).await.map_or(Ok(()), Err)
    }

    async fn take(queue: &mut Queue) -> String {
        let mut took = Vec::new();
        poll_fn(|cx| queue.poll_take(cx, &mut took)).await.unwrap();
        String::from_utf8(took).unwrap()
    }

    #[tokio::test]
    async fn first_in_first_out_and_the_file_is_used_again() {
        let (folder, room) = (tempfile::tempdir().unwrap(), Arc::default());
        let mut queue = queue(folder.path(), 8, 100, &room).await;
        assert_eq!(take(&mut queue).await, "");
        for _ in 0..3 {
            store(&mut queue, "abc").await.unwrap();
            store(&mut queue, "defgh").await.unwrap();
            assert_eq!(store(&mut queue, "i").await.unwrap_err(), b"i", "the file is full");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
            assert_eq!(
                (take(&mut queue).await, take(&mut queue).await),
                ("abcdefgh".to_owned(), String::new())
            );
        }
        store(&mut queue, "abc").await.unwrap();
        assert_eq!(take(&mut queue).await, "abc");
        store(&mut queue, "de").await.unwrap();
        assert_eq!(take(&mut queue).await, "de");
        assert_eq!((room.taken(), room.skipped()), (8, 0));
        drop(queue);
        assert_eq!(room.taken(), 0);
    }

    #[tokio::test]
    async fn what_cannot_be_stored_comes_back() {
        let (folder, room) = (tempfile::tempdir().unwrap(), Arc::default());
        let mut one = queue(folder.path(), 100, 5, &room).await;
        let mut other = queue(folder.path(), 100, 5, &room).await;
        store(&mut one, "abc").await.unwrap();
        assert_eq!(store(&mut other, "abc").await.unwrap_err(), b"abc", "others have taken the disk");
        assert_eq!(store(&mut other, "a").await.unwrap_err(), b"a", "it tries no more");
        assert_eq!((room.taken(), room.skipped()), (3, 1));
        let mut gone = queue(&folder.path().join("gone"), 100, 5, &room).await;
        assert_eq!(store(&mut gone, "x").await.unwrap_err(), b"x");
        assert_eq!((room.taken(), room.skipped()), (4, 2));
        drop((one, other, gone));
        assert_eq!(room.taken(), 0);
    }
}
