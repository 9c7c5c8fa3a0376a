//! The limit of connections to an upstream, exact for the process, and of requests that wait for one.

use super::pool::Connection;
use super::{LocalEndpoint, LocalUpstream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// `upstreams.*.limits`: shared by all cores and kept across reloads while its numbers stay the same.
///
/// A permit belongs to an open connection for its whole life, idle or not. Who finds none waits for whichever comes first:
/// a connection that an exchange of the same core gives back, or a permit of one that closed anywhere.
#[derive(Debug)]
pub(crate) struct Gate {
    id: u64,
    permits: Arc<Semaphore>,
    connections: u32,
    pending: u32,
    waiting: AtomicUsize,
}

/// What waiting at the gate brought.
pub(crate) enum Waited {
    /// A connection that was given back.
    Given(Given),
    /// The right to open one.
    Permit(OwnedSemaphorePermit),
    /// Too many wait already.
    TooMany,
    /// It took too long.
    TooLong,
}

/// A connection handed from one exchange to the next, and where it leads.
pub(crate) struct Given {
    pub(crate) connection: Connection,
    pub(crate) endpoints: Rc<[LocalEndpoint]>,
    pub(crate) index: usize,
}

impl Gate {
    pub(crate) fn new(connections: u32, pending: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            permits: Arc::new(Semaphore::new(connections as usize)),
            connections,
            pending,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Tells it from every other gate of the process.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Whether this gate has these limits.
    pub(crate) const fn is(&self, connections: u32, pending: u32) -> bool {
        self.connections == connections && self.pending == pending
    }

    /// The right to open a connection; an idle one of the upstream makes room where there is no place.
    pub(crate) fn enter_for(&self, upstream: &LocalUpstream) -> Option<OwnedSemaphorePermit> {
        self.enter().or_else(|| upstream.close_one_idle().then(|| self.enter()).flatten())
    }

    /// The right to open a connection, if there is one now.
    fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Whether somebody waits: a core then closes an idle connection instead of keeping it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How many wait, on all cores.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A place in the queue; `None` when too many wait already.
    pub(crate) fn queue<'a>(&'a self, upstream: &'a LocalUpstream) -> Option<Waiting<'a>> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.pending as usize {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        upstream.cells.pending.inc();
        Some(Waiting(&self.waiting, upstream))
    }

    /// The right to open a connection, once there is one.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Waits for a connection or a permit.
    pub(crate) async fn wait(&self, upstream: &LocalUpstream, timeout: Duration) -> Waited {
        let Some(_waiting) = self.queue(upstream) else { return Waited::TooMany };
        let (give, mut given) = oneshot::channel();
        upstream.waiters.borrow_mut().push_back(give);
        tokio::select! {
            biased;
            given = &mut given => match given {
                Ok(given) => Waited::Given(given),
                Err(_) => Waited::TooLong, // the upstream is gone with its snapshot
            },
            permit = Arc::clone(&self.permits).acquire_owned() => match permit {
                Ok(permit) => Waited::Permit(permit),
                Err(_) => Waited::TooLong,
            },
            () = tokio::time::sleep(timeout) => Waited::TooLong,
        }
    }
}

/// Leaves the queue, however waiting ends.
pub(crate) struct Waiting<'a>(&'a AtomicUsize, &'a LocalUpstream);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        self.1.cells.pending.dec();
        self.1.waiters.borrow_mut().retain(|w| !w.is_closed());
    }
}
