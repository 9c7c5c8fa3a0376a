//! The eviction policy: S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction,
//! SOSP 2023).
//!
//! A new object enters a small queue and moves to the main one only if it was used there. A scan therefore evicts
//! only itself. A use writes at most one byte, and takes no lock.

use foldhash::fast::RandomState;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The share of the small queue: one tenth, as in the paper.
const SMALL: u64 = 10;

/// Most uses that are counted: as many as S3-FIFO needs.
const MOST_USES: u8 = 3;

/// Fewest ghosts to keep.
const GHOSTS: usize = 64;

/// The policy's data about an object, stored in the object.
#[derive(Debug)]
pub struct Place {
    weight: u64,
    /// Uses since the policy last looked, at most [`MOST_USES`].
    uses: AtomicU8,
    /// The object has left the store.
    gone: AtomicBool,
    /// Whether it is in the main queue.
    in_main: AtomicBool,
}

/// An object that has a place.
pub trait Placed {
    /// The object's place.
    fn place(&self) -> &Place;
}

/// The order of eviction. The store holds strong references to its objects, the queues weak ones.
#[derive(Debug)]
pub struct Queues<T> {
    small: Queue<T>,
    main: Queue<T>,
    /// Hashes of the keys that recently left the small queue unused. An object that returns goes straight to the
    /// main queue.
    ghosts: VecDeque<u64>,
    known: HashSet<u64, RandomState>,
}

#[derive(Debug)]
struct Queue<T> {
    objects: VecDeque<Weak<T>>,
    /// Only of objects that are still in the store.
    bytes: u64,
    live: usize,
}

// === impl Place ===

impl Place {
    /// The place of an object that occupies this many bytes.
    pub const fn new(weight: u64) -> Self {
        Self { weight, uses: AtomicU8::new(0), gone: AtomicBool::new(false), in_main: AtomicBool::new(false) }
    }

    /// Bytes that count towards the store's size.
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// Counts a use. At the maximum it writes nothing, so popular objects cause no constant writes.
    pub fn used(&self) {
        let uses = self.uses.load(Relaxed);
        if uses < MOST_USES {
            self.uses.store(uses + 1, Relaxed);
        }
    }

    /// Recent uses.
    pub fn uses(&self) -> u8 {
        self.uses.load(Relaxed)
    }

    /// Whether the object has left the store.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Subtracts a use; `true` if there was one.
    fn forget_use(&self) -> bool {
        let uses = self.uses.load(Relaxed);
        self.uses.store(uses.saturating_sub(1), Relaxed);
        uses > 0
    }
}

// === impl Queues ===

impl<T> Default for Queues<T> {
    fn default() -> Self {
        let queue = || Queue { objects: VecDeque::new(), bytes: 0, live: 0 };
        Self { small: queue(), main: queue(), ghosts: VecDeque::new(), known: HashSet::default() }
    }
}

impl<T: Placed> Queues<T> {
    /// Bytes of all objects.
    pub const fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// Number of objects.
    pub const fn live(&self) -> usize {
        self.small.live + self.main.live
    }

    /// Adds an object to the queues. `tag`: a hash of its key.
    pub fn enter(&mut self, object: &Arc<T>, tag: u64) {
        let came_back = self.known.remove(&tag);
        object.place().in_main.store(came_back, Relaxed);
        if came_back {
            self.main.enter(object)
        } else {
            self.small.enter(object)
        }
        self.tidy();
    }

    /// Records that an object has left the store. Its slot in the queue is skipped later.
    pub fn left(&mut self, object: &T) {
        let place = object.place();
        if !place.gone.swap(true, Relaxed) {
            let queue = if place.in_main.load(Relaxed) { &mut self.main } else { &mut self.small };
            queue.left(place);
        }
    }

    /// Selects the object to evict from a store with this limit; `None` if it is empty. The object is no longer
    /// counted, and the caller removes it.
    pub fn throw_out(&mut self, limit: u64, tag: impl Fn(&T) -> u64) -> Option<Arc<T>> {
        loop {
            let from_small = self.small.bytes > limit / SMALL || self.main.live == 0;
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let oldest = queue.objects.pop_front()?;
            let Some(object) = oldest.upgrade().filter(|object| !object.place().is_gone()) else { continue };
            let place = object.place();
            queue.left(place);
            if from_small {
                if place.uses() > 0 {
                    place.in_main.store(true, Relaxed);
                    self.main.enter(&object);
                    continue;
                }
                self.remember(tag(&object));
            } else if place.forget_use() {
                self.main.enter(&object);
                continue;
            }
            place.gone.store(true, Relaxed);
            return Some(object);
        }
    }

    /// Lengths of the queues and of the ghosts, for tests.
    pub fn held(&self) -> (usize, usize) {
        (self.small.objects.len() + self.main.objects.len(), self.ghosts.len().max(self.known.len()))
    }

    /// Remembers a ghost, and keeps at most as many ghosts as objects.
    fn remember(&mut self, tag: u64) {
        if self.known.insert(tag) {
            self.ghosts.push_back(tag);
        }
        let most = self.live().max(GHOSTS);
        while self.ghosts.len() > most {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// Removes empty slots, which must not outnumber objects however often those are replaced.
    fn tidy(&mut self) {
        for queue in [&mut self.small, &mut self.main] {
            if queue.objects.len() > 2 * queue.live + 64 {
                queue
                    .objects
                    .retain(|object| object.upgrade().is_some_and(|object| !object.place().is_gone()));
            }
        }
    }
}

impl<T: Placed> Queue<T> {
    fn enter(&mut self, object: &Arc<T>) {
        self.objects.push_back(Arc::downgrade(object));
        self.bytes += object.place().weight;
        self.live += 1;
    }

    const fn left(&mut self, place: &Place) {
        self.bytes = self.bytes.saturating_sub(place.weight);
        self.live = self.live.saturating_sub(1);
    }
}
