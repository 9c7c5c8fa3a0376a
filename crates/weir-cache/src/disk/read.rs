//! Reads an object: the head as a whole, the body block by block, each verified by its checksum.

use super::folder;
use super::format::{BLOCK, FIXED, Fixed, Named, blocks, read_head, sum};
use super::{Disk, Entry};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An object that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The owner's data from the head.
    pub kept: Vec<u8>,
    /// The body.
    pub body: Body,
}

/// The body of an object. Cheap to clone. It stays readable as long as it is held, even if the object is removed.
#[derive(Clone, Debug)]
pub struct Body(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Arc<Disk>,
    entry: Arc<Entry>,
    file: File,
    at: u64,
    sums: Vec<u64>,
}

impl Disk {
    /// Opens an object, and removes it if it cannot be read completely. Blocks on the disk: call it only where
    /// that is allowed.
    ///
    /// # Errors
    /// The object cannot be read, or does not match the index.
    pub fn read(self: &Arc<Self>, entry: &Arc<Entry>) -> io::Result<Opened> {
        self.try_read(entry).inspect_err(|e| {
            if !is_passing(e) {
                self.broken(entry, e);
            }
        })
    }

    fn try_read(self: &Arc<Self>, entry: &Arc<Entry>) -> io::Result<Opened> {
        let path = folder::object(&self.path, entry.number);
        let file = File::open(path)?;
        let (fixed, head) = read_headed(&file, true)?;
        let length = usize::try_from(blocks(fixed.body) * 8).map_err(|_| torn("its table"))?;
        let mut table = vec![0; length];
        file.read_exact_at(&mut table, fixed.table_at())?;
        let sums = fixed.sums(&table).ok_or_else(|| torn("its sums"))?;
        let mut kept = kept_of(entry, &head).ok_or_else(|| torn("its names"))?;
        if entry.newer_head.load(Relaxed) {
            // If the newer head is unreadable, the old one applies.
            let newer = read_newer(&folder::newer_head(&self.path, entry.number));
            kept = newer.ok().and_then(|head| kept_of(entry, &head)).unwrap_or(kept);
        }
        let at = fixed.body_at();
        let body = Inner { disk: Arc::clone(self), entry: Arc::clone(entry), file, at, sums };
        Ok(Opened { kept, body: Body(Arc::new(body)) })
    }
}

impl Body {
    /// Its length, in bytes.
    pub fn length(&self) -> u64 {
        self.0.entry.body
    }

    /// The store that holds it.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.0.disk
    }

    /// The object that it belongs to.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.0.entry
    }

    /// Reads the block that contains the byte at `offset`; also returns where the block begins. Blocks on the
    /// disk: call it only where that is allowed.
    ///
    /// # Errors
    /// The block cannot be read, or differs from what was written; the object is removed.
    pub fn read(&self, offset: u64) -> io::Result<(Vec<u8>, u64)> {
        let (begin, mut block) = self.place_of(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
        let done =
            self.0.file.read_exact_at(&mut block, self.0.at + begin).and_then(|()| self.held(begin, &block));
        match done {
            Ok(()) => Ok((block, begin)),
            Err(e) => {
                if !is_passing(&e) {
                    self.0.disk.broken(&self.0.entry, &e);
                }
                Err(e)
            }
        }
    }

    /// Reads the block if all of it is in the page cache; `None` if that would block or the kernel cannot tell.
    pub fn read_resident(&self, offset: u64) -> Option<(Vec<u8>, u64)> {
        let (begin, mut block) = self.place_of(offset)?;
        let into = &mut [IoSliceMut::new(&mut block)];
        let read = preadv2(&self.0.file, into, self.0.at + begin, ReadWriteFlags::NOWAIT).ok()?;
        (read == block.len() && self.held(begin, &block).is_ok()).then_some((block, begin))
    }

    /// The offset of a block, and a buffer for it.
    fn place_of(&self, offset: u64) -> Option<(u64, Vec<u8>)> {
        let left = self.length().checked_sub(offset).filter(|left| *left > 0)? + offset % BLOCK as u64;
        let begin = offset - offset % BLOCK as u64;
        Some((begin, vec![0; usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK))]))
    }

    fn held(&self, begin: u64, block: &[u8]) -> io::Result<()> {
        let known = usize::try_from(begin / BLOCK as u64).ok().and_then(|at| self.0.sums.get(at));
        if known == Some(&sum(block)) { Ok(()) } else { Err(torn("a block")) }
    }
}

/// Reads the fixed part and the head of a file.
fn read_headed(file: &File, object: bool) -> io::Result<(Fixed, Vec<u8>)> {
    let mut fixed = [0; FIXED];
    file.read_exact_at(&mut fixed, 0)?;
    let fixed = Fixed::read(&fixed, object).ok_or_else(|| torn("its beginning"))?;
    let mut head = vec![0; fixed.head as usize];
    file.read_exact_at(&mut head, FIXED as u64)?;
    if fixed.holds_head(&head) { Ok((fixed, head)) } else { Err(torn("its head")) }
}

fn read_newer(path: &Path) -> io::Result<Vec<u8>> {
    Ok(read_headed(&File::open(path)?, false)?.1)
}

/// The owner's data from a head, if its names match this entry.
fn kept_of(entry: &Entry, head: &[u8]) -> Option<Vec<u8>> {
    let (Named { stem, extra, variant, .. }, kept) = read_head(head)?;
    let same = *stem == *entry.stem && *extra == *entry.extra && *variant == *entry.variant;
    same.then(|| kept.to_vec())
}

/// Whether an error says nothing about the file: too many open files, or too little memory.
fn is_passing(e: &io::Error) -> bool {
    let passing = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM];
    passing.iter().any(|one| e.raw_os_error() == Some(one.raw_os_error()))
}

fn torn(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is not what was written"))
}
