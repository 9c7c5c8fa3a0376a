//! What cores know of each other, and what they share.

use super::Message;
use crate::homes::Homes;
use crate::per_client::Clients;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;
use weir_filter::blocking::Blocking;

/// Process-wide state that cores may touch when they accept, never on a request.
#[derive(Debug)]
pub struct Shared {
    /// Client connections of all cores: `limits.connections`.
    pub connections: AtomicUsize,
    /// Accepted connections not yet in `connections`: on their way to another core or to the first poll of their
    /// task.
    arriving: AtomicUsize,
    /// UDP sockets of all cores that have connections or may get some.
    doors: AtomicUsize,
    /// What `limits.per_client` counts.
    pub(crate) clients: Arc<Clients>,
    /// The threads for work that blocks.
    pub(crate) blocking: Blocking,
    /// Who has which QUIC connections.
    pub homes: Arc<Homes>,
}

/// A core as others see it.
#[derive(Clone, Debug)]
pub struct Sibling {
    /// Its number. Only one core has it at a time.
    pub index: usize,
    /// Its mailbox.
    pub mailbox: mpsc::UnboundedSender<Message>,
    pub(super) load: Arc<CoreCount>,
}

/// Counts that one core writes. They have a cache line of their own (two, because the prefetcher fetches pairs), so that
/// cores do not contend.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct CoreCount {
    /// Its client connections, for the hand-over of new ones.
    pub(super) connections: AtomicUsize,
    /// Tasks that filters run beside exchanges.
    pub(super) tasks: AtomicUsize,
    /// Its UDP sockets that have connections or may get some, handshakes under way included.
    pub(super) doors: AtomicUsize,
}

impl Sibling {
    /// A core that does not run yet.
    pub fn new(index: usize, mailbox: mpsc::UnboundedSender<Message>) -> Self {
        Self { index, mailbox, load: Arc::default() }
    }

    /// How many client connections it has.
    pub fn connections(&self) -> usize {
        self.load.connections.load(Ordering::Relaxed)
    }

    /// Whether it has neither connections nor tasks of filters, and takes no clients over UDP.
    pub fn is_idle(&self) -> bool {
        let CoreCount { connections, tasks, doors } = &*self.load;
        [connections, tasks, doors].into_iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }
}

impl Shared {
    /// That of a process with these homes.
    pub fn new(homes: Arc<Homes>) -> Self {
        Self {
            connections: AtomicUsize::default(),
            arriving: AtomicUsize::default(),
            doors: AtomicUsize::default(),
            clients: Arc::default(),
            blocking: Blocking::default(),
            homes,
        }
    }

    /// Whether fewer than `most` client connections are open.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        self.connections.load(Ordering::Relaxed) < most
    }

    /// A connection was accepted.
    pub(crate) fn arrive(&self) {
        self.arriving.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection is now counted in `connections`, or is gone.
    pub(crate) fn arrived(&self) {
        self.arriving.fetch_sub(1, Ordering::Release);
    }

    /// A UDP socket opens, or has ended.
    pub(super) fn count_door(&self, opens: bool) {
        if opens {
            self.doors.fetch_add(1, Ordering::Relaxed);
        } else {
            self.doors.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether no connection is open or arriving, and no UDP socket may bring one.
    pub fn is_empty(&self) -> bool {
        // This order matters: a connection that arrives between the two loads is seen by the second.
        self.arriving.load(Ordering::Acquire) == 0
            && self.connections.load(Ordering::Relaxed) == 0
            && self.doors.load(Ordering::Relaxed) == 0
    }
}
