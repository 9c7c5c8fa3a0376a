//! An in-memory object store with a limit in bytes, shared by all cores.
//!
//! A lookup takes a read lock on one of 64 shards, so no hit waits for another. S3-FIFO ([`crate::policy`])
//! decides what to evict.
//!
//! Why not a crate: quick_cache and moka limit each shard separately, so a large object would count against a 64th of
//! the store. Here the shards are by URL, which is how objects are purged.

use super::account::Account;
use super::fill::Fills;
use super::key::{Key, url};
use super::object::Object;
use super::on_disk::{self, SMALL};
use super::settings::MAX_OBJECT;
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::disk::{Disk, Entry};
use crate::policy::{Placed, Queues};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use weir_filter::filter::{Purge, Purgeable};
use weir_h1::Fields;

/// Most variants of one URL.
pub(super) const MOST_VARIANTS: usize = 64;

/// A power of two, so large that cores rarely contend for a shard.
const SHARDS: usize = 64;

/// How much memory may be used besides the objects, as a divisor of the limit: a quarter.
const BESIDE: u64 = 4;

/// Slots that remember answers that could not be shared.
const UNSHARED: usize = 4096;

/// How long such a slot is valid, in seconds.
const UNSHARED_SECONDS: u64 = 10;

/// A named store.
pub(crate) struct Pages {
    limit: u64,
    /// The location and size of the disk, if the store has one; and the disk, once open.
    place: Option<(PathBuf, u64)>,
    disk: OnceLock<Arc<Disk>>,
    removals: AtomicU64,
    /// Lets only one of the requests for the same disk object read it.
    turns: Box<[tokio::sync::Mutex<()>]>,
    shards: Box<[RwLock<Shard>]>,
    queues: Mutex<Queues<Object>>,
    pub(super) account: Arc<Account>,
    pub(super) fills: Fills,
    hasher: RandomState,
    unshared: Box<[AtomicU64]>,
    began: Instant,
}

/// The objects for one URL on one route.
#[derive(Default)]
struct Place {
    plain: Variants,
    /// By the config's additions to the key.
    more: HashMap<Box<[u8]>, Variants, RandomState>,
}

type Shard = HashMap<Box<[u8]>, Place, RandomState>;

type Variants = SmallVec<[Arc<Object>; 1]>;

// === impl Pages ===

impl Pages {
    pub(super) fn new(limit: u64, place: Option<(PathBuf, u64)>) -> Self {
        let hasher = RandomState::default();
        Self {
            limit,
            place,
            disk: OnceLock::new(),
            removals: AtomicU64::new(0),
            turns: (0..SHARDS).map(|_| tokio::sync::Mutex::default()).collect(),
            shards: (0..SHARDS).map(|_| RwLock::new(HashMap::with_hasher(hasher.clone()))).collect(),
            queues: Mutex::default(),
            account: Account::new(limit + limit / BESIDE),
            fills: Fills::default(),
            hasher,
            unshared: (0..UNSHARED).map(|_| AtomicU64::new(0)).collect(),
            began: Instant::now(),
        }
    }

    /// The object that answers a request, fresh or not.
    pub(super) fn find(&self, key: &Key, asked: &Fields) -> Option<Arc<Object>> {
        let shard = self.shard(key.stem()).read().unwrap_or_else(PoisonError::into_inner);
        let variants = shard.get(key.stem())?.variants(key.extra())?;
        // Of several matching objects, use the most recent (RFC 9111 §4), which is the last.
        let found = variants.iter().rev().find(|object| object.meta().variant.answers(asked))?;
        found.place().used();
        Some(Arc::clone(found))
    }

    /// The disk, if the store has one and it is open.
    pub(super) fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.get()
    }

    /// Whether the store has a disk, open or not.
    pub(super) const fn has_disk(&self) -> bool {
        self.place.is_some()
    }

    /// Largest body that is kept in memory if there is also a disk, in bytes.
    pub(super) fn most_in_memory(&self) -> u64 {
        (self.limit / 4).min(MAX_OBJECT)
    }

    /// How many removals there have been.
    pub(super) fn removals(&self) -> u64 {
        self.removals.load(SeqCst)
    }

    /// An object in memory was written to the disk, or could not be. If it was removed meanwhile, it must not return
    /// from there.
    pub(super) fn was_written(&self, object: &Object, entry: Option<Arc<Entry>>, removals: u64) {
        let Some(disk) = self.disk() else { return };
        match entry {
            Some(entry) if self.removals() == removals => drop(object.on_disk.set(entry)), // it was not there
            Some(entry) => disk.remove(&entry),
            None => on_disk::drop_older(disk, &object.key, &object.meta().variant),
        }
    }

    /// Requests read a key from the disk one at a time; the later ones find it in memory.
    pub(super) fn turn(&self, key: &Key) -> &tokio::sync::Mutex<()> {
        &self.turns[self.hasher.hash_one((key.stem(), key.extra())) as usize % SHARDS]
    }

    /// Stores an object that was read from the disk, unless it was removed there meanwhile.
    pub(super) fn take_up(&self, object: &Arc<Object>) -> bool {
        if object.body.length() <= SMALL {
            self.put(Arc::clone(object));
        }
        // Every removal starts with the disk.
        let gone = object.on_disk.get().is_some_and(|entry| entry.is_gone());
        if gone {
            self.remove(object);
        }
        !gone
    }

    /// Stores an object, replacing an earlier one of the same variant.
    pub(super) fn put(&self, object: Arc<Object>) {
        let weight = object.weight();
        if weight > self.limit {
            return;
        }
        let mut queues = self.queues();
        // No more URLs than there is room for, whatever their bytes.
        while queues.bytes() + weight > self.limit
            && let Some(out) = queues.throw_out(self.limit, |object| self.tag(object))
        {
            self.take_away(&out);
        }
        let mut shard = self.shard(object.key.stem()).write().unwrap_or_else(PoisonError::into_inner);
        let place = shard.entry(object.key.stem().into()).or_default();
        let variants = place.variants_mut(object.key.extra());
        let variant = &object.meta().variant;
        if let Some(same) = variants.iter().position(|known| known.meta().variant == *variant) {
            let old = variants.remove(same);
            queues.left(&old);
        } else if variants.len() >= MOST_VARIANTS
            && let Some(least) = (0..variants.len()).min_by_key(|&at| variants[at].place().uses())
        {
            let old = variants.remove(least);
            queues.left(&old);
        }
        variants.push(Arc::clone(&object));
        drop(shard);
        let tag = self.tag(&object);
        queues.enter(&object, tag);
    }

    /// Removes all objects of a URL on a route.
    pub(super) fn forget(&self, stem: &[u8]) -> usize {
        self.removals.fetch_add(1, SeqCst);
        self.fills.forget(stem);
        let there = self.disk().map_or(0, |disk| disk.forget(stem));
        let mut queues = self.queues();
        let mut shard = self.shard(stem).write().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = shard.remove(stem) else { return there };
        drop(shard);
        place.objects().inspect(|object| queues.left(object)).count().max(there)
    }

    /// Removes one object, if it is still stored.
    pub(super) fn remove(&self, object: &Arc<Object>) {
        if let (Some(disk), Some(entry)) = (self.disk(), object.on_disk.get()) {
            disk.remove(entry);
        }
        let mut queues = self.queues();
        self.take_away(object);
        queues.left(object);
    }

    /// Bytes and number of the objects.
    pub(super) fn held(&self) -> (u64, usize) {
        let queues = self.queues();
        (queues.bytes(), queues.live())
    }

    /// Remembers for a while that answers for a key cannot be shared, so that no request waits for one to find out.
    pub(super) fn note_unshared(&self, key: &Key, now: Instant) {
        let (place, mark) = self.unshared_at(key);
        let until = now.saturating_duration_since(self.began).as_secs() + UNSHARED_SECONDS;
        place.store(mark | (until & 0xffff_ffff), Relaxed);
    }

    pub(super) fn is_unshared(&self, key: &Key, now: Instant) -> bool {
        let (place, mark) = self.unshared_at(key);
        let found = place.load(Relaxed);
        let now = now.saturating_duration_since(self.began).as_secs() & 0xffff_ffff;
        found & !0xffff_ffff == mark && now < found & 0xffff_ffff
    }

    /// A slot that keys may share. One key is mistaken for another at most once in 2^32, and then only does not wait.
    fn unshared_at(&self, key: &Key) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one((key.stem(), key.extra()));
        (&self.unshared[hash as usize % UNSHARED], hash & !0xffff_ffff)
    }

    fn shard(&self, stem: &[u8]) -> &RwLock<Shard> {
        // The inner table uses other bits of the same hash.
        &self.shards[(self.hasher.hash_one(stem) >> 20) as usize % SHARDS]
    }

    fn tag(&self, object: &Object) -> u64 {
        self.hasher.hash_one((object.key.stem(), object.key.extra()))
    }

    fn queues(&self) -> MutexGuard<'_, Queues<Object>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_away(&self, object: &Arc<Object>) {
        let mut shard = self.shard(object.key.stem()).write().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = shard.get_mut(object.key.stem()) else { return };
        place.variants_mut(object.key.extra()).retain(|known| !Arc::ptr_eq(known, object));
        place.more.retain(|_, variants| !variants.is_empty());
        if place.plain.is_empty() && place.more.is_empty() {
            shard.remove(object.key.stem());
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pages").field(&self.limit).finish()
    }
}

// === impl Place ===

impl Place {
    fn variants(&self, extra: &[u8]) -> Option<&Variants> {
        if extra.is_empty() { Some(&self.plain) } else { self.more.get(extra) }
    }

    fn variants_mut(&mut self, extra: &[u8]) -> &mut Variants {
        if extra.is_empty() { &mut self.plain } else { self.more.entry(extra.into()).or_default() }
    }

    fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.plain.iter().chain(self.more.values().flatten())
    }
}

// === Purging ===

impl Purgeable for Pages {
    fn open(&self, successor: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        if let (Some((path, size)), None) = (&self.place, self.disk.get()) {
            let disk = Disk::open(path, *size, successor)?;
            let _ = self.disk.set(disk); // only one control opens it
        }
        Ok(())
    }

    fn release(&self) {
        if let Some(disk) = self.disk() {
            disk.release();
        }
    }

    fn purge(&self, what: &[Purge]) -> usize {
        self.removals.fetch_add(1, SeqCst);
        self.fills.forget_all();
        let mut gone = 0;
        if let Some(disk) = self.disk() {
            let (what, tags) = (what.to_vec(), what.iter().map(tag_of).collect::<Vec<_>>());
            gone += disk.purge(move |stem, known| {
                let mut meant = what.iter().zip(&tags);
                meant.any(|(one, tag)| {
                    tag.map_or_else(|| may_mean(one, url(stem)), |tag| known.contains(&tag))
                })
            });
        }
        for shard in &self.shards {
            let found: Vec<Arc<Object>> = {
                let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
                let places = shard.iter().filter(|(stem, _)| what.iter().any(|one| may_mean(one, url(stem))));
                let objects = places.flat_map(|(_, place)| place.objects());
                objects.filter(|object| what.iter().any(|one| means(one, object))).cloned().collect()
            };
            // Objects that are also on the disk were counted there.
            gone += found.iter().filter(|object| object.on_disk.get().is_none()).count();
            found.iter().for_each(|object| self.remove(object));
        }
        gone
    }
}

/// The tag to purge, if any.
fn tag_of(purge: &Purge) -> Option<u64> {
    match purge {
        Purge::Tag(tag) => Some(on_disk::tag(tag.as_bytes())),
        _ => None,
    }
}

/// Whether an answer for this URL may be affected, judging by its URL.
fn may_mean(purge: &Purge, url: &[u8]) -> bool {
    match purge {
        Purge::All | Purge::Tag(_) => true,
        Purge::Prefix(prefix) => url.starts_with(prefix.as_bytes()),
        Purge::Url(one) => url == one.as_bytes(),
    }
}

/// Whether this answer is affected.
fn means(purge: &Purge, object: &Object) -> bool {
    let Purge::Tag(tag) = purge else { return may_mean(purge, url(object.key.stem())) };
    let meta = object.meta();
    let lines = meta.fields.iter().filter(|(name, _)| {
        ["surrogate-key", "cache-tag"].iter().any(|known| known.eq_ignore_ascii_case(name.as_str()))
    });
    let mut words = lines.flat_map(|(_, line)| line.split(|&b| b == b' ' || b == b','));
    words.any(|word| word == tag.as_bytes())
}

#[cfg(test)]
mod tests;
