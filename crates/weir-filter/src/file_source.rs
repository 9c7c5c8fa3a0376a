//! A part of a file as the body of an answer: from memory in place, from the disk on a thread that may block.

use crate::filter::{BodySource, CoreHandle, FileRange, Waiting};
use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, ready};
use weir_upstream::error::{self, Cause};

/// How much of a file is read in one piece, in bytes.
const FILE_BYTES: u64 = 64 * 1024;

/// How many cached pieces are sent in a row before other tasks of this core get a turn.
const PIECES: u8 = 16;

/// A running read.
type Reading = Waiting<'static, Result<std::io::Result<Vec<u8>>, &'static Cause>>;

/// Reads a part of a file, at most one piece ahead of the client.
pub struct FileSource {
    range: FileRange,
    core: CoreHandle,
    reading: Option<Reading>,
    given: u8,
}

impl FileSource {
    /// A part of a file, read by the threads that may block.
    pub fn new(range: FileRange, core: CoreHandle) -> Self {
        Self { range, core, reading: None, given: 0 }
    }

    fn read(&self) -> Reading {
        let (core, file, offset) = (self.core.clone(), self.range.file.clone(), self.range.offset);
        let length = self.range.length.min(FILE_BYTES) as usize;
        let read = move || {
            let mut piece = vec![0; length];
            file.read_exact_at(&mut piece, offset).map(|()| piece)
        };
        Box::pin(async move { core.blocking(read).await })
    }

    fn took(&mut self, piece: Vec<u8>) -> Poll<Result<Option<Bytes>, &'static Cause>> {
        self.range.offset += piece.len() as u64;
        self.range.length -= piece.len() as u64;
        Poll::Ready(Ok(Some(piece.into())))
    }
}

impl BodySource for FileSource {
    fn length(&self) -> Option<u64> {
        Some(self.range.length)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static Cause>> {
        if self.range.length == 0 {
            return Poll::Ready(Ok(None));
        }
        if self.reading.is_none() {
            self.given += 1;
            if self.given > PIECES {
                self.given = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let here = read_resident(&self.range.file, self.range.offset, self.range.length.min(FILE_BYTES));
            if let Some(piece) = here {
                return self.took(piece);
            }
            self.reading = Some(self.read());
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(Ok(None)) };
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let piece = read?.map_err(|_| &error::SOURCE_FAILED)?;
        self.took(piece)
    }
}

/// Reads as much of a part of a file as the page cache holds. `None` if it would have to wait for the disk, or cannot
/// know (a file system without RWF_NOWAIT, a kernel before 4.14).
pub fn read_resident(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut piece = vec![0; usize::try_from(length).ok()?];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut piece)], offset, ReadWriteFlags::NOWAIT).ok()?;
    piece.truncate(read);
    (read > 0 || length == 0).then_some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_just_written_is_resident_or_unknown() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        for (offset, length, expected) in [(0, 10, "0123456789"), (4, 3, "456"), (8, 5, "89")] {
            if let Some(read) = read_resident(&file, offset, length) {
                assert_eq!(read, expected.as_bytes());
            }
        }
        assert_eq!(read_resident(&file, 10, 5), None, "behind the end");
    }
}
