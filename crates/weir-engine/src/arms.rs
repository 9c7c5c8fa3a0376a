//! The arms of a route's split that have filters of their own.
//!
//! To the engine such a split is one more filter at the end of the route's chain: it draws an arm and runs that arm's
//! list, as `when` does. So plans, preflights, background work and `weir why` know its filters like all others. The
//! target then reads which arm it was ([`Cx::arm`]). Splits without filters cost nothing of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_filter::filter::{Cx, Filter, Flow, Hooks, Reading, RequestHead};
use weir_telemetry::Figure;
use weir_upstream::error;

/// The name of the filter in chains.
pub(crate) const NAME: &str = "split";

static REQUESTS: Figure =
    Figure::counter("requests", "weir_split_requests", "Requests that took an arm of a split, by arm.")
        .of("arm");

/// Where the requests of an arm go.
pub struct Arm {
    /// Its name.
    pub name: Arc<str>,
    /// Its weight.
    pub weight: u32,
    /// Its upstream, by index. `None` if its filters answer every request.
    pub upstream: Option<usize>,
}

/// Draws an arm for each request.
pub(crate) struct Draw {
    /// The names of the arms, and the running totals of their weights.
    arms: Box<[(Arc<str>, u32)]>,
    counts: Arc<Counts>,
}

/// The requests that each arm got. They outlive reloads while the names of the arms stay.
#[derive(Debug)]
pub(crate) struct Counts(Box<[Count]>);

/// In a cache line of its own, because all cores write it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicU64);

// === impl Draw ===

impl Draw {
    pub(crate) fn new(arms: &[Arm], counts: Arc<Counts>) -> Self {
        let arms = arms.iter().scan(0u32, |total, arm| {
            *total = total.saturating_add(arm.weight);
            Some((Arc::clone(&arm.name), *total))
        });
        Self { arms: arms.collect(), counts }
    }

    /// The arm at a point of all weights.
    fn at(&self, point: u32) -> Option<usize> {
        self.arms.iter().position(|(_, upto)| point < *upto)
    }
}

impl Filter for Draw {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn on_request(&self, _: &mut RequestHead, cx: &mut Cx) -> Flow {
        let total = self.arms.last().map_or(0, |(_, total)| *total);
        // A client that comes back has its arm already.
        let chosen = cx.arm().or_else(|| self.at(below(cx.random(), total)));
        let Some(arm) = chosen else { return Flow::refuse(&error::INTERNAL) };
        cx.take_arm(arm);
        if let Some(Count(count)) = self.counts.0.get(arm).filter(|_| !cx.is_background()) {
            count.fetch_add(1, Relaxed);
        }
        Flow::Run(arm)
    }

    fn readings(&self) -> Vec<Reading> {
        let counted = self.arms.iter().zip(&self.counts.0);
        let reading = |((name, _), Count(count)): (&(Arc<str>, u32), &Count)| Reading {
            figure: &REQUESTS,
            of: name.to_string(),
            value: count.load(Relaxed),
        };
        counted.map(reading).collect()
    }
}

// === impl Counts ===

impl Counts {
    pub(crate) fn of(arms: usize) -> Self {
        Self((0..arms).map(|_| Count::default()).collect())
    }
}

/// A random number below a limit, without the bias of a remainder.
fn below(random: u64, limit: u32) -> u32 {
    (((random >> 32) * u64::from(limit)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(weights: &[u32]) -> Draw {
        let arm =
            |(at, &weight): (usize, &u32)| Arm { name: at.to_string().into(), weight, upstream: Some(at) };
        let arms: Vec<Arm> = weights.iter().enumerate().map(arm).collect();
        Draw::new(&arms, Arc::new(Counts::of(weights.len())))
    }

    /// Over all points, each arm gets exactly its weight, and one without weight nothing.
    #[test]
    fn each_arm_gets_exactly_its_weight() {
        let weights = [3, 0, 1, 0, 96, 0];
        let drawn = draw(&weights);
        let mut got = [0; 6];
        for point in 0..100 {
            got[drawn.at(point).unwrap()] += 1;
        }
        assert_eq!(got, weights);
        assert_eq!(drawn.at(100), None);
        assert_eq!(draw(&[0, 0]).at(0), None, "no arm has a weight");
    }

    #[test]
    fn random_numbers_cover_the_range() {
        assert_eq!(below(0, 100), 0);
        assert_eq!(below(u64::MAX, 100), 99);
        assert_eq!(below(u64::MAX / 2, 100), 49);
        assert_eq!(below(u64::MAX, 0), 0);
    }
}
