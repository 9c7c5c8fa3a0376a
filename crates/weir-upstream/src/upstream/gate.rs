//! The limits on connections to an upstream and on requests that wait for one, exact for the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// `upstreams.*.limits`: shared by all cores and kept across reloads while its numbers stay the same.
///
/// A permit belongs to an open connection for its whole life, idle or not. A request without one waits for whichever
/// comes first: a connection returned by an exchange on the same core, or the permit of a connection that closed
/// anywhere.
#[derive(Debug)]
pub struct Gate {
    id: u64,
    permits: Arc<Semaphore>,
    connections: u32,
    pending: u32,
    waiting: AtomicUsize,
}

impl Gate {
    /// A gate for this many connections and this many waiting requests.
    pub fn new(connections: u32, pending: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            permits: Arc::new(Semaphore::new(connections as usize)),
            connections,
            pending,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Its number, unique in the process.
    #[inline]
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Whether this gate has these limits.
    pub const fn is(&self, connections: u32, pending: u32) -> bool {
        self.connections == connections && self.pending == pending
    }

    /// The right to open a connection, if one is free.
    #[inline]
    pub(super) fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits for the right to open a connection.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Joins the queue. False if it is full. A caller that has joined must leave again.
    #[must_use]
    #[inline]
    pub(super) fn join(&self) -> bool {
        let joined = self.waiting.fetch_add(1, Ordering::Relaxed) < self.pending as usize;
        if !joined {
            self.leave();
        }
        joined
    }

    #[inline]
    pub(super) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many requests wait, on all cores.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether any request waits. A core then closes an idle connection instead of keeping it.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting() > 0
    }
}
