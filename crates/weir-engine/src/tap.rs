//! What cores do for `weir shadow`: copy sampled exchanges into a bounded queue, for the judge in `shadow/`.
//!
//! Without a shadow a request costs one bit test more. With one, a full queue drops and counts.

use crate::snapshot::Snapshot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use weir_filter::filter::Consumer;
use weir_upstream::error::Cause;
use weir_wire::Peer;
use weir_wire::tls::PeerCertificate;

/// Most sampled heads that wait for the judge.
pub const WAITING: usize = 1024;

/// Most bytes of heads that wait for the judge. With the structures around them, a full queue takes about 5 MiB.
pub const WAITING_BYTES: usize = 4 << 20;

/// What cores hold while a shadow runs.
pub struct Tap {
    /// Only exchanges on this snapshot are sampled: the shadow compares with it.
    pub(crate) snapshot: Arc<Snapshot>,
    /// An exchange is sampled if a random number of 32 bits is below this.
    below: u64,
    queue: SyncSender<Sample>,
    counts: Arc<Counts>,
}

/// What cores have counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Exchanges that ended while the shadow ran.
    seen: AtomicU64,
    /// Those chosen at random.
    sampled: AtomicU64,
    /// Those of them that found the queue full.
    dropped: AtomicU64,
    /// The bytes of heads in the queue.
    bytes: AtomicUsize,
}

/// The heads of a tap, for its judge.
#[derive(Debug)]
pub struct Heads {
    queue: Receiver<Sample>,
    counts: Arc<Counts>,
}

/// One exchange, copied after its answer.
#[derive(Debug)]
pub struct Sample {
    /// The head as received, as HTTP/1.1 text.
    pub(crate) head: Vec<u8>,
    /// For HTTP/2: whether the request had no body.
    pub(crate) streamed: Option<bool>,
    pub(crate) peer: Peer,
    pub(crate) tls: bool,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) certificate: Option<Box<PeerCertificate>>,
    /// Whether a PROXY header named no client, whose forwarding fields then count for nothing.
    pub(crate) unnamed: bool,
    /// Its listener, by its name.
    pub(crate) listener: Arc<str>,
    pub(crate) live: Live,
}

/// What the live exchange came to. Routes, upstreams and filters are indexes of the tap's snapshot.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) route: Option<usize>,
    pub(crate) upstream: Option<usize>,
    pub(crate) status: u16,
    pub(crate) cause: Option<&'static Cause>,
    /// The filter that stopped it.
    pub(crate) stopped_by: Option<u32>,
    /// The filters whose `on_request` ran, in order.
    pub(crate) ran: Vec<u32>,
    /// The arm that it took of its route's split, if the arms have filters.
    pub(crate) arm: Option<Arc<str>>,
    /// The consumer that a filter named.
    pub(crate) consumer: Option<Box<str>>,
    /// The same, if it is one of a source.
    pub(crate) listed: Option<Arc<Consumer>>,
    /// The id of the request; empty if it has none.
    pub(crate) id: Box<str>,
}

/// A tap that samples this share (0 to 1) of the exchanges on a snapshot, and the queue that it fills.
pub fn tap(snapshot: Arc<Snapshot>, share: f64) -> (Tap, Heads) {
    let (sender, queue) = sync_channel(WAITING);
    let counts: Arc<Counts> = Arc::default();
    let below = (share.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
    let tap = Tap { snapshot, below, queue: sender, counts: Arc::clone(&counts) };
    (tap, Heads { queue, counts })
}

// === impl Tap ===

impl Tap {
    /// Whether an exchange is sampled, by a random number.
    pub(crate) fn samples(&self, random: u64) -> bool {
        self.counts.seen.fetch_add(1, Ordering::Relaxed);
        let is_sampled = random >> 32 < self.below;
        if is_sampled {
            self.counts.sampled.fetch_add(1, Ordering::Relaxed);
        }
        is_sampled
    }

    /// Whether a head of this size has room. If so, [`Tap::give`] must follow.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let before = self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > WAITING_BYTES {
            self.counts.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Queues an exchange, or drops it if the queue is full.
    pub(crate) fn give(&self, sample: Sample) {
        let bytes = sample.head.len();
        if self.queue.try_send(sample).is_err() {
            self.counts.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// === impl Heads ===

impl Heads {
    /// The next exchange, waiting at most this long. `None` if there is none yet.
    pub fn next(&self, wait: Duration) -> Option<Sample> {
        let sample = self.queue.recv_timeout(wait).ok()?;
        self.counts.bytes.fetch_sub(sample.head.len(), Ordering::Relaxed);
        Some(sample)
    }

    /// Counts what still waits as dropped: the judge has ended.
    pub fn drop_rest(&self) {
        let rest = self.queue.try_iter().count() as u64;
        self.counts.dropped.fetch_add(rest, Ordering::Relaxed);
    }

    /// What the cores have counted.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

// === impl Counts ===

impl Counts {
    /// Exchanges that ended while the shadow ran.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Those of them that were sampled.
    pub fn sampled(&self) -> u64 {
        self.sampled.load(Ordering::Relaxed)
    }

    /// Those of the sampled that were dropped, because the judge is limited to its share of the processor.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes: usize) -> Sample {
        Sample {
            head: vec![b'x'; bytes],
            streamed: None,
            peer: Peer::Local,
            tls: false,
            server_name: None,
            certificate: None,
            unnamed: false,
            listener: "web".into(),
            live: Live::default(),
        }
    }

    #[test]
    fn the_queue_is_bounded_in_number_and_bytes() {
        let (tap, heads) = tap(Arc::new(Snapshot::empty()), 1.0);
        for _ in 0..WAITING + 10 {
            assert!(tap.samples(u64::MAX) && tap.has_room(10));
            tap.give(sample(10));
        }
        assert_eq!((heads.counts().sampled(), heads.counts().dropped()), (WAITING as u64 + 10, 10));
        while heads.next(Duration::ZERO).is_some() {}
        assert_eq!(heads.counts().bytes.load(Ordering::Relaxed), 0);
        assert!(!tap.has_room(WAITING_BYTES + 1));
        assert!(tap.has_room(WAITING_BYTES));
        tap.give(sample(WAITING_BYTES));
        assert!(!tap.has_room(1));
        assert_eq!(heads.counts().dropped(), 12);
    }

    #[test]
    fn a_share_is_sampled() {
        let (none, _heads) = tap(Arc::new(Snapshot::empty()), 0.0);
        let (half, heads) = tap(Arc::new(Snapshot::empty()), 0.5);
        assert!(!none.samples(0));
        assert!(half.samples(0) && half.samples(0x7fff_ffff << 32) && !half.samples(0x8000_0000 << 32));
        assert_eq!((heads.counts().seen(), heads.counts().sampled()), (3, 2));
    }
}
