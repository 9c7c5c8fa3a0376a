//! The shared state of an origin's connections: counters for `/metrics`, sequences for targets whose responses vary,
//! the TLS policy, and the response of an origin that has only one.
//!
//! Each thread counts in its own cells, which no other thread writes, so counting costs a load and a store.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_wire::tls::ServerTls;

use crate::fixed::Fixed;

/// Most targets with their own sequence; later ones share one. Bounds the memory that a client can make us use.
const SEQUENCES_MOST: usize = 1024;

/// An origin, as seen by one of its threads.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) cells: Arc<Cells>,
    shared: Arc<Shared>,
}

/// The state that all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    tls: Option<ServerTls>,
    fixed: Option<Fixed>,
    threads: Vec<Arc<Cells>>,
    sequences: Mutex<HashMap<String, u64>>,
}

/// The counters of one thread.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    pub(crate) requests: Cell,
    pub(crate) accepted: Cell,
    pub(crate) closed: Cell,
    pub(crate) received: Cell,
    pub(crate) sent: Cell,
}

/// A counter with a single writer.
#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicU64);

impl Cell {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn new(threads: usize, tls: Option<ServerTls>, fixed: Option<Fixed>) -> Arc<Self> {
        let threads = (0..threads).map(|_| Arc::default()).collect();
        Arc::new(Self { tls, fixed, threads, sequences: Mutex::default() })
    }

    /// The origin, as thread `number` sees it.
    pub(crate) fn site(self: &Arc<Self>, number: usize) -> Arc<Site> {
        let cells = self.threads.get(number).cloned().unwrap_or_default();
        Arc::new(Site { cells, shared: Arc::clone(self) })
    }
}

impl Site {
    pub(crate) fn tls(&self) -> Option<&ServerTls> {
        self.shared.tls.as_ref()
    }

    /// The response to every request, if there is only one.
    pub(crate) fn fixed(&self) -> Option<&Fixed> {
        self.shared.fixed.as_ref()
    }

    /// The number of earlier requests for this target.
    pub(crate) fn next_of(&self, target: &str) -> u64 {
        let mut sequences = self.shared.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sequences.len() < SEQUENCES_MOST || sequences.contains_key(target);
        let next = sequences.entry(if known { target } else { "" }.to_owned()).or_default();
        *next += 1;
        *next - 1
    }

    /// `/metrics`, in the Prometheus text format.
    pub(crate) fn metrics(&self) -> String {
        let sum = |cell: fn(&Cells) -> &Cell| -> u64 {
            self.shared.threads.iter().map(|t| cell(t).0.load(Ordering::Relaxed)).sum()
        };
        let (accepted, closed) = (sum(|c| &c.accepted), sum(|c| &c.closed));
        let mut text = String::new();
        for (name, kind, help, value) in [
            ("requests_total", "counter", "Requests whose head was read.", sum(|c| &c.requests)),
            ("connections_total", "counter", "Connections accepted.", accepted),
            ("connections", "gauge", "Connections that are open.", accepted.saturating_sub(closed)),
            ("received_bytes_total", "counter", "Bytes received, inside TLS.", sum(|c| &c.received)),
            ("sent_bytes_total", "counter", "Bytes sent, inside TLS.", sum(|c| &c.sent)),
        ] {
            let _ = write!(
                text,
                "# HELP weir_origin_{name} {help}\n# TYPE weir_origin_{name} {kind}\nweir_origin_{name} {value}\n"
            ); // writing to a String cannot fail
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_sequences_of_their_own_up_to_a_number() {
        let site = Shared::new(1, None, None).site(0);
        assert_eq!([site.next_of("/a"), site.next_of("/a"), site.next_of("/b")], [0, 1, 0]);
        (0..2 * SEQUENCES_MOST).for_each(|n| assert!(site.next_of(&n.to_string()) < 4096));
        assert_eq!(site.next_of("/a"), 2);
        assert!(site.shared.sequences.lock().unwrap().len() <= SEQUENCES_MOST + 1);
    }
}
