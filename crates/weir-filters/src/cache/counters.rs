//! What a cache counts. Each core writes to a line of memory that few others write to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_engine::filter::Reading;

/// Lines of memory; cores beyond this number share.
const STRIPES: usize = 16;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    /// Answered from the fetch of another request.
    Followed,
    Hits,
    /// Requests that found nothing that could be used as it is.
    Misses,
    /// Requests that no cache may answer: by their method, their body or a condition.
    Passed,
    /// Fetches that went on behind an answer.
    Refreshed,
    /// Answered with what was no longer fresh.
    Stale,
    Stored,
    /// Objects that the upstream said are still good.
    Validated,
}

const NAMES: [&str; 8] =
    ["followed", "hits", "misses", "passed", "refreshed", "stale", "stored", "validated"];

#[derive(Default)]
#[repr(align(64))]
struct Stripe([AtomicU64; 8]);

#[derive(Default)]
pub(super) struct Counters([Stripe; STRIPES]);

thread_local! {
    static STRIPE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Relaxed) % STRIPES)
    };
}

impl Counters {
    pub(super) fn add(&self, what: Count) {
        self.0[STRIPE.get()].0[what as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn readings(&self) -> Vec<Reading> {
        let sum = |at: usize| self.0.iter().map(|stripe| stripe.0[at].load(Relaxed)).sum();
        NAMES
            .iter()
            .enumerate()
            .map(|(at, &what)| Reading { what, of: String::new(), value: sum(at) })
            .collect()
    }
}
