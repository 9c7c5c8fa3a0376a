//! What leaves a full store: S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023).
//!
//! A new object goes through a small queue, and only one that was used there gets into the main one, so a scan throws out
//! nothing but itself. A use writes at most one byte, and takes no lock.

use foldhash::fast::RandomState;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The share of the small queue: a tenth, as the paper has it.
const SMALL: u64 = 10;

/// Most uses that are remembered: what S3-FIFO needs.
const MOST_USES: u8 = 3;

/// Fewest ghosts that are remembered.
const GHOSTS: usize = 64;

/// What the policy knows of an object. Part of the object.
#[derive(Debug)]
pub struct Place {
    weight: u64,
    /// How often it was used since the policy last looked, at most [`MOST_USES`].
    uses: AtomicU8,
    /// It is no longer in the store.
    gone: AtomicBool,
    /// In which of the queues it is.
    in_main: AtomicBool,
}

/// An object that has a place.
pub trait Placed {
    /// Its place.
    fn place(&self) -> &Place;
}

/// In which order objects are thrown out. What the store holds by strong references, the queues hold by weak ones.
#[derive(Debug)]
pub struct Queues<T> {
    small: Queue<T>,
    main: Queue<T>,
    /// What left the small queue unused lately, by a hash of its key: if it comes back, it belongs into the main one.
    ghosts: VecDeque<u64>,
    known: HashSet<u64, RandomState>,
}

#[derive(Debug)]
struct Queue<T> {
    objects: VecDeque<Weak<T>>,
    /// Of those that are in the store still.
    bytes: u64,
    live: usize,
}

// === impl Place ===

impl Place {
    /// The place of an object that counts so many bytes.
    pub const fn new(weight: u64) -> Self {
        Self { weight, uses: AtomicU8::new(0), gone: AtomicBool::new(false), in_main: AtomicBool::new(false) }
    }

    /// Bytes that count against the store.
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// Notes a use. What is used all the time is not written to all the time.
    pub fn used(&self) {
        let uses = self.uses.load(Relaxed);
        if uses < MOST_USES {
            self.uses.store(uses + 1, Relaxed);
        }
    }

    /// How often it was used lately.
    pub fn uses(&self) -> u8 {
        self.uses.load(Relaxed)
    }

    /// Whether it has left the store.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Takes one use back; whether there was one.
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

    /// How many objects there are.
    pub const fn live(&self) -> usize {
        self.small.live + self.main.live
    }

    /// An object is in the store from now on. `tag`: a hash of its key.
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

    /// An object is no longer in the store. Its place in the queue is found empty later.
    pub fn left(&mut self, object: &T) {
        let place = object.place();
        if !place.gone.swap(true, Relaxed) {
            let queue = if place.in_main.load(Relaxed) { &mut self.main } else { &mut self.small };
            queue.left(place);
        }
    }

    /// The object that has to leave a store of so many bytes; none where there is none. It is no longer counted, and its
    /// owner takes it away.
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

    /// Places in the queues and ghosts, for tests of what they hold.
    pub fn held(&self) -> (usize, usize) {
        (self.small.objects.len() + self.main.objects.len(), self.ghosts.len().max(self.known.len()))
    }

    /// Remembers at most as many ghosts as there are objects.
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

    /// Empty places must not outnumber objects, however often these are replaced.
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
