//! A cache's counters. Each core writes to its own cache line, or shares it with few others.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_filter::filter::Reading;
use weir_telemetry::Figure;

/// Cache lines; cores beyond this number share them.
const STRIPES: usize = 16;

/// A counter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    /// Answered from the fetch of another request.
    Followed,
    Hits,
    /// Requests that found no object usable without the upstream.
    Misses,
    /// Requests that no cache may answer, because of their method, body or a condition.
    Passed,
    /// Background fetches after a stale answer.
    Refreshed,
    /// Answers with an object that was no longer fresh.
    Stale,
    Stored,
    /// Objects that the upstream confirmed.
    Validated,
}

static FIGURES: [Figure; 8] = [
    Figure::counter(
        "followed",
        "weir_cache_followed",
        "Requests answered from the fetch of another request.",
    ),
    Figure::counter("hits", "weir_cache_hits", "Requests answered with a fresh object."),
    Figure::counter("misses", "weir_cache_misses", "Requests that found nothing usable."),
    Figure::counter("passed", "weir_cache_passed", "Requests that no cache may answer."),
    Figure::counter("refreshed", "weir_cache_refreshed", "Fetches that went on in the background."),
    Figure::counter("stale", "weir_cache_stale", "Requests answered with a stale object."),
    Figure::counter("stored", "weir_cache_stored", "Objects that were stored."),
    Figure::counter("validated", "weir_cache_validated", "Objects that the upstream confirmed."),
];

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
        FIGURES.iter().enumerate().map(|(at, figure)| Reading::one(figure, sum(at))).collect()
    }
}
