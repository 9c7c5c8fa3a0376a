//! Objects on a disk from the cache's side: naming, reading, sending and writing them. `weir-cache` is the disk
//! store.
//!
//! Small objects return to memory when requested; large ones are read block by block while they are sent.

use super::account::Account;
use super::fill::Fill;
use super::head_bytes;
use super::key::Key;
use super::object::{Meta, Object, Stored};
use super::vary::Variant;
use crate::disk::{Body, Disk, Entry, Named, Writer};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime};
use tokio::sync::oneshot;
use weir_filter::error::{self, Cause};
use weir_filter::filter::{BodySource, Waiting};
use weir_h1::Fields;
use xxhash_rust::xxh3::xxh3_64;

/// Largest body that is also kept in memory, in bytes.
pub(super) const SMALL: u64 = 1024 * 1024;

/// How many blocks from the page cache are returned in a row before other tasks of this core run.
const BLOCKS: u8 = 16;

/// A purge tag's number in the disk's index.
pub(super) fn tag(word: &[u8]) -> u64 {
    xxh3_64(word)
}

/// The object on the disk that answers a request.
pub(super) fn find(disk: &Disk, key: &Key, asked: &Fields) -> Option<Arc<Entry>> {
    let answers = |variant: &[u8]| Variant::of_bytes(variant).is_some_and(|variant| variant.answers(asked));
    disk.find(key.stem(), key.extra(), answers)
}

/// Reads an object: its head, and its body if small. `None` if it cannot be read, or if too many reads are queued.
pub(super) async fn load(
    disk: &Arc<Disk>,
    entry: &Arc<Entry>,
    key: &Key,
    account: &Arc<Account>,
) -> Option<Object> {
    let (done, read) = oneshot::channel();
    let (from, what) = (Arc::clone(disk), Arc::clone(entry));
    let job = move || drop(done.send(read_all(&from, &what))); // the requester may have left
    if !disk.run(Box::new(job)) {
        return None;
    }
    let (kept, body, whole) = read.await.ok()??;
    let variant = Variant::of_bytes(entry.variant())?;
    let meta = head_bytes::read(&kept, variant, Instant::now(), SystemTime::now())?;
    let stored = match whole {
        Some(whole) => Stored::new(&[Bytes::from(whole)], account),
        None => Stored::Disk(body),
    };
    let object = Object::new(key.clone(), Arc::new(meta), stored, Instant::now());
    let _ = object.on_disk.set(Arc::clone(entry)); // it is new
    Some(object)
}

fn read_all(disk: &Arc<Disk>, entry: &Arc<Entry>) -> Option<(Vec<u8>, Body, Option<Vec<u8>>)> {
    let opened = disk.read(entry).ok()?;
    let length = opened.body.length();
    if length > SMALL {
        return Some((opened.kept, opened.body, None));
    }
    let mut whole = Vec::with_capacity(usize::try_from(length).ok()?);
    while (whole.len() as u64) < length {
        let (block, _) = opened.body.read(whole.len() as u64).ok()?;
        whole.extend_from_slice(&block);
    }
    Some((opened.kept, opened.body, Some(whole)))
}

/// Starts writing an answer that is arriving.
pub(super) fn create(
    disk: &Arc<Disk>,
    key: &Key,
    meta: &Meta,
    length: Option<u64>,
    fill: &Arc<Fill>,
) -> Option<Writer> {
    let named = Named {
        stem: key.stem().to_vec(),
        extra: key.extra().to_vec(),
        variant: meta.variant.to_bytes(),
        tags: meta.tags(),
    };
    let kept = head_bytes::write(meta, Instant::now(), SystemTime::now());
    let (fill, on) = (Arc::downgrade(fill), Arc::clone(disk));
    let progress = move |file: &Arc<std::fs::File>, at, upto| {
        if let Some(fill) = fill.upgrade() {
            fill.is_written(&on, file, at, upto);
        }
    };
    disk.create(named, &kept, length, Some(Box::new(progress)))
}

/// Drops an older object with the same key and variant: there is a newer one that could not be written.
pub(super) fn drop_older(disk: &Arc<Disk>, key: &Key, variant: &Variant) {
    let variant = variant.to_bytes();
    if let Some(entry) = disk.find(key.stem(), key.extra(), |known| *known == *variant) {
        disk.remove(&entry);
    }
}

/// A block being read, and its offset; `None` if it cannot be read.
type Reading = Waiting<'static, Option<(Vec<u8>, u64)>>;

/// A part of a body on a disk that is being sent, at most one block ahead of the client.
pub(super) struct FromDisk {
    body: Body,
    at: u64,
    end: u64,
    reading: Option<Reading>,
    given: u8,
}

impl FromDisk {
    pub(super) fn new(body: Body, range: Range<u64>) -> Self {
        Self { body, at: range.start, end: range.end, reading: None, given: 0 }
    }

    fn read(&self) -> Reading {
        let (body, at) = (self.body.clone(), self.at);
        Box::pin(async move {
            let (done, read) = oneshot::channel();
            let disk = Arc::clone(body.disk());
            disk.run(Box::new(move || drop(done.send(body.read(at).ok())))).then_some(())?;
            read.await.ok()?
        })
    }

    /// The wanted part of a block.
    fn part(&mut self, block: Vec<u8>, begin: u64) -> Poll<Result<Option<Bytes>, &'static Cause>> {
        let from = usize::try_from(self.at.saturating_sub(begin)).unwrap_or(usize::MAX);
        let most = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let block = Bytes::from(block);
        let to = block.len().min(from.saturating_add(most));
        if from >= to {
            return Poll::Ready(Err(&error::SOURCE_FAILED));
        }
        self.at += (to - from) as u64;
        Poll::Ready(Ok(Some(block.slice(from..to))))
    }
}

impl BodySource for FromDisk {
    fn length(&self) -> Option<u64> {
        Some(self.end.saturating_sub(self.at))
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static Cause>> {
        if self.at >= self.end {
            return Poll::Ready(Ok(None));
        }
        if self.reading.is_none() {
            self.given += 1;
            if self.given > BLOCKS {
                self.given = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some((block, begin)) = self.body.read_resident(self.at) {
                return self.part(block, begin);
            }
            self.reading = Some(self.read());
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(Ok(None)) };
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        match read {
            Some((block, begin)) => self.part(block, begin),
            None => Poll::Ready(Err(&error::SOURCE_FAILED)),
        }
    }
}
