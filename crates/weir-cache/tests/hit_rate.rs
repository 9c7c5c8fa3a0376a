//! Compares the eviction policy with that of the crate moka (W-TinyLFU), on a realistic distribution of requests with
//! a crawler among them. Our hits may be fewer by at most one percent of the requests; two percent with room for only
//! a hundred objects, because moka's hits differ from run to run. The bench suite `hit-rate` has the figures for a
//! trace of a million requests.

#[path = "../examples/hit_rate.rs"]
#[allow(dead_code, reason = "what only the example prints")]
mod example;

use weir_cache::trace::Trace;

#[test]
fn hits_are_as_many_as_in_moka() {
    for (part, percent) in [(100, 2), (10, 1)] {
        let trace = Trace::SMALL;
        let (ours, theirs) = example::hits(trace, trace.objects / part);
        assert!(
            ours + trace.requests * percent / 100 >= theirs,
            "{part}: {ours} and {theirs} of {}",
            trace.requests
        );
        assert!(ours * 4 > trace.requests, "{part}: {ours} are suspiciously few");
    }
}

#[test]
fn a_trace_is_always_the_same() {
    let mut sum = 0_u64;
    let mut crawled = 0;
    for wanted in Trace::SMALL.wanted() {
        sum = sum.wrapping_mul(31).wrapping_add(wanted);
        crawled += usize::from(wanted >= Trace::SMALL.objects as u64);
    }
    assert_eq!(crawled, Trace::SMALL.requests / 12);
    assert_eq!(sum, SUM);
}

/// A checksum of all requests in order.
const SUM: u64 = 5_655_992_900_154_365_132;
