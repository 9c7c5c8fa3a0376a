//! A stored answer: its head with the times that decide its use, and its body in shared blocks.

use super::account::Account;
use super::conditional::{Validators, opaque};
use super::freshness::{Freshness, date};
use super::key::Key;
use super::on_disk::{FromDisk, tag};
use super::storable::{SetCookie, Storable};
use super::vary::Variant;
use crate::disk::Entry;
use crate::policy::{Place, Placed};
use arc_swap::ArcSwap;
use bytes::Bytes;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};
use weir_filter::error::Cause;
use weir_filter::filter::{Body, BodySource};
use weir_h1::{FieldName, Fields};
use weir_wire::memory_file::memory;

/// Largest block of a body, in bytes: a shorter body is written from one buffer.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Overhead of an object beyond its bytes.
const OBJECT_BYTES: usize = 512;

/// A stored head, and the values that decide whether it may be used.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) status: u16,
    pub(super) fields: Vec<(FieldName, Vec<u8>)>,
    /// The fields, prepared for copying into an answer as a block.
    pub(super) ready: Fields,
    pub(super) variant: Variant,
    pub(super) lifetime: Duration,
    pub(super) freshness: Freshness,
    received: Instant,
    age_then: Duration,
}

/// A serialized head, with its age.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) fields: Vec<(FieldName, Vec<u8>)>,
    pub(super) variant: Variant,
    pub(super) lifetime: Duration,
    pub(super) age: Duration,
}

/// When an answer arrived, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) at: Instant,
    pub(super) time: SystemTime,
    pub(super) took: Duration,
}

/// A stored answer.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: Key,
    meta: ArcSwap<Meta>,
    pub(super) body: Stored,
    /// Its entry on the disk, once written.
    pub(super) on_disk: OnceLock<Arc<Entry>>,
    place: Place,
    /// Until when it is not revalidated, in milliseconds since `born`, because the upstream has just failed.
    spared: AtomicU64,
    born: Instant,
}

/// A body.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    /// On a disk, read while it is sent.
    Disk(crate::disk::Body),
    /// In memory, in blocks; with its length.
    Memory(Box<[Bytes]>, u64),
}

/// Fields that belong to one connection, one client or one answer and are not stored (RFC 9111 §3.1), and fields that
/// the gateway writes itself.
const NOT_KEPT: [&str; 23] = [
    "age",
    "cache-status",
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "proxy-status",
    "ratelimit",
    "ratelimit-policy",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-request-id",
    "x-weir-cause",
    "grpc-status",
];

/// Fields that list tags.
const TAGS: [&str; 2] = ["surrogate-key", "cache-tag"];

/// Most tags that index an object on a disk.
const MOST_TAGS: usize = 256;

/// Fields that describe the stored body, so a 304 does not update them (RFC 9111 §3.2).
const OF_THE_BODY: [&str; 5] = ["content-encoding", "content-length", "content-md5", "content-range", "etag"];

/// Fields prepared for an answer.
fn ready(fields: &[(FieldName, Vec<u8>)]) -> Fields {
    let mut ready = Fields::default();
    for (name, value) in fields {
        let _ = ready.append(name, value); // it was received as a value
    }
    ready
}

fn is_among(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

// === impl Meta ===

impl Meta {
    /// The parts of an answer to store.
    pub(super) fn new(
        freshness: Freshness,
        fields: &Fields,
        storable: Storable,
        cookies: SetCookie,
        received: Received,
    ) -> Self {
        let kept = |name: &[u8]| {
            let cookie = cookies == SetCookie::Strip && is_among(&["set-cookie", "set-cookie2"], name);
            !cookie && !is_among(&NOT_KEPT, name)
        };
        let fields = fields.iter().filter(|(name, _)| kept(name)).filter_map(|(name, value)| {
            Some((FieldName::new(str::from_utf8(name).ok()?).ok()?, value.to_vec()))
        });
        let fields: Vec<_> = fields.collect();
        Self {
            status: freshness.status,
            ready: ready(&fields),
            fields,
            variant: storable.variant,
            lifetime: storable.lifetime,
            age_then: freshness.age_when(received.time, received.took),
            freshness,
            received: received.at,
        }
    }

    /// The same from a head that was stored elsewhere.
    pub(super) fn of_head(head: Head, freshness: Freshness, now: Instant) -> Self {
        let Head { status, fields, variant, lifetime, age } = head;
        Self {
            status,
            ready: ready(&fields),
            fields,
            variant,
            lifetime,
            freshness,
            received: now,
            age_then: age,
        }
    }

    /// Hashes of its purge tags.
    pub(super) fn tags(&self) -> Vec<u64> {
        let lines = self.fields.iter().filter(|(name, _)| is_among(&TAGS, name.as_str().as_bytes()));
        let words = lines.flat_map(|(_, line)| line.split(|&b| b == b' ' || b == b','));
        words.filter(|word| !word.is_empty()).take(MOST_TAGS).map(tag).collect()
    }

    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        fields.find(|(n, _)| n.as_str().eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        self.age_then.saturating_add(now.saturating_duration_since(self.received))
    }

    /// Whether it may be used without revalidation.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        !self.freshness.control.no_cache && self.age(now) < self.lifetime
    }

    /// How long it has been stale.
    pub(super) fn stale_for(&self, now: Instant) -> Duration {
        self.age(now).saturating_sub(self.lifetime)
    }

    pub(super) fn validators(&self) -> Validators<'_> {
        Validators {
            etag: self.field("etag"),
            last_modified: self.field("last-modified").and_then(date),
            date: self.freshness.date,
        }
    }

    /// Whether this is its entity tag, by weak comparison: a filter behind this one may have weakened it.
    pub(super) fn is_of(&self, tag: &[u8]) -> bool {
        self.field("etag").is_some_and(|own| opaque(own) == opaque(tag))
    }

    /// These fields, updated from a 304 (RFC 9111 §3.2), to be judged as a new answer.
    pub(super) fn updated(&self, by: &Fields) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in &self.fields {
            let is_new = by.get(name).is_some() && !is_among(&OF_THE_BODY, name.as_str().as_bytes());
            if !is_new {
                let _ = fields.append(name, value); // it was received or checked before
            }
        }
        for (name, value) in by.iter().filter(|(name, _)| !is_among(&OF_THE_BODY, name)) {
            if let Some(name) = str::from_utf8(name).ok().and_then(|name| FieldName::new(name).ok()) {
                let _ = fields.append(&name, value);
            }
        }
        fields
    }

    fn weight(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| 136 + 2 * (name.as_str().len() + value.len()));
        fields.sum::<usize>() + self.variant.weight()
    }
}

// === impl Object ===

impl Object {
    pub(super) fn new(key: Key, meta: Arc<Meta>, body: Stored, now: Instant) -> Self {
        let blocks = body.blocks().len() * 64;
        let weight = (OBJECT_BYTES + key.len() + meta.weight() + blocks) as u64 + body.weight();
        Self {
            key,
            meta: ArcSwap::new(meta),
            body,
            on_disk: OnceLock::new(),
            place: Place::new(weight),
            spared: AtomicU64::new(0),
            born: now,
        }
    }

    pub(super) fn meta(&self) -> Arc<Meta> {
        self.meta.load_full()
    }

    /// Replaces its head; the body stays.
    pub(super) fn freshen(&self, meta: Arc<Meta>) {
        self.meta.store(meta);
        self.spared.store(0, Relaxed);
    }

    /// Bytes that count against the store.
    pub(super) const fn weight(&self) -> u64 {
        self.place.weight()
    }

    /// Records that the upstream failed, so that it is not asked for this object for a while.
    pub(super) fn spare(&self, now: Instant, time: Duration) {
        let until = now.saturating_duration_since(self.born) + time;
        self.spared.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn is_spared(&self, now: Instant) -> bool {
        let spared = self.spared.load(Relaxed);
        spared > 0 && now.saturating_duration_since(self.born) < Duration::from_millis(spared)
    }
}

impl Placed for Object {
    fn place(&self) -> &Place {
        &self.place
    }
}

// === impl Stored ===

impl Stored {
    /// Joins these pieces into as few blocks as possible; their bytes count until nobody holds them.
    pub(super) fn new(pieces: &[Bytes], account: &Arc<Account>) -> Self {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let mut blocks = Vec::with_capacity(length.div_ceil(BLOCK_BYTES));
        let mut block: Vec<u8> = Vec::with_capacity(length.min(BLOCK_BYTES));
        for piece in pieces {
            let mut rest: &[u8] = piece;
            while !rest.is_empty() {
                if block.len() == BLOCK_BYTES {
                    blocks.push(account.own(std::mem::replace(&mut block, Vec::with_capacity(BLOCK_BYTES))));
                }
                let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - block.len()));
                block.extend_from_slice(now);
                rest = later;
            }
        }
        if !block.is_empty() {
            block.shrink_to_fit();
            blocks.push(account.own(block));
        }
        Self::Memory(blocks.into(), length as u64)
    }

    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Disk(body) => body.length(),
            Self::Memory(_, length) => *length,
        }
    }

    /// Bytes that it takes where it is stored: in memory, with the rest of each block's last page.
    fn weight(&self) -> u64 {
        match self {
            Self::Disk(body) => body.length(),
            Self::Memory(blocks, _) => blocks.iter().map(|block| memory(block.len() as u64)).sum(),
        }
    }

    /// The blocks in memory.
    pub(super) fn blocks(&self) -> &[Bytes] {
        match self {
            Self::Disk(_) => &[],
            Self::Memory(blocks, _) => blocks,
        }
    }

    /// A part of the body, without copying.
    pub(super) fn part(&self, range: Range<u64>) -> Body {
        let blocks = match self {
            Self::Disk(body) => return Body::Stream(Box::new(FromDisk::new(body.clone(), range))),
            Self::Memory(blocks, _) => blocks,
        };
        let (from, to) = (usize::try_from(range.start), usize::try_from(range.end));
        match (&**blocks, from, to) {
            ([], ..) => Body::Bytes(Bytes::new()),
            ([one], Ok(from), Ok(to)) if from <= to && to <= one.len() => Body::Bytes(one.slice(from..to)),
            _ => Body::Stream(Box::new(Blocks { blocks: blocks.clone(), at: range.start, end: range.end })),
        }
    }
}

/// A body in memory that is sent block by block.
struct Blocks {
    blocks: Box<[Bytes]>,
    at: u64,
    end: u64,
}

impl BodySource for Blocks {
    fn length(&self) -> Option<u64> {
        Some(self.end.saturating_sub(self.at))
    }

    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, &'static Cause>> {
        let piece = piece_at(&self.blocks, self.at, self.end);
        self.at += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(Ok(piece))
    }
}

/// The bytes at an offset in a sequence of blocks, up to the end of the block or to `end`.
pub(super) fn piece_at(blocks: &[Bytes], at: u64, end: u64) -> Option<Bytes> {
    let mut begin = 0;
    for block in blocks {
        let behind = begin + block.len() as u64;
        if at < behind {
            let (from, to) = (at - begin, end.min(behind).saturating_sub(begin));
            return (from < to).then(|| block.slice(from as usize..to as usize)); // within a block
        }
        begin = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_joined_and_parted() {
        let account = Account::new(1 << 30);
        let pieces: Vec<Bytes> = (0..5).map(|n| Bytes::from(vec![n; 400_000])).collect();
        let stored = Stored::new(&pieces, &account);
        assert_eq!((stored.blocks().len(), stored.length()), (2, 2_000_000));
        let blocks = stored.blocks().iter().map(|block| memory(block.len() as u64));
        assert_eq!(account.used(), blocks.sum::<u64>());
        let Body::Stream(mut source) = stored.part(1_000_000..1_200_001) else {
            panic!("it spans two blocks")
        };
        assert_eq!(source.length(), Some(200_001));
        let mut task = Context::from_waker(std::task::Waker::noop());
        let mut got = Vec::new();
        while let Poll::Ready(Ok(Some(piece))) = source.poll_piece(&mut task) {
            got.extend_from_slice(&piece);
        }
        let all: Vec<u8> = pieces.concat();
        assert_eq!(got, &all[1_000_000..1_200_001]);
        drop((source, stored));
        assert_eq!(account.used(), 0);
        let one = Stored::new(&[Bytes::from_static(b"abc"), Bytes::from_static(b"def")], &account);
        let Body::Bytes(part) = one.part(2..4) else { panic!("it is one block") };
        drop(one);
        assert_eq!((&part[..], account.used()), (&b"cd"[..], 6));
    }
}
