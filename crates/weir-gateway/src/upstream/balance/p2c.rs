//! `p2c`: of two endpoints drawn at random, the one with fewer attempts under way for its weight.
//!
//! The default: nearly as even as asking all of them, at a cost that does not grow with their number, and without the herd
//! that runs to whoever looks least busy (Mitzenmacher: The power of two choices in randomized load balancing, 2001).

use super::{Balance, Kind, Random, weighted};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::excluded::Excluded;

pub(super) static KIND: Kind =
    Kind { name: "p2c", measures: false, make: |seed| Box::new(P2c(Random::new(seed))) };

struct P2c(Random);

impl Balance for P2c {
    fn pick(&mut self, endpoints: &[LocalEndpoint], excluded: &Excluded) -> Option<usize> {
        let a = weighted(&mut self.0, endpoints, excluded)?;
        let mut without_a = excluded.clone();
        without_a.insert(a);
        let Some(b) = weighted(&mut self.0, endpoints, &without_a) else { return Some(a) };
        // Weights already decided how often each is drawn; the load is compared for equal shares of it.
        let load = |i: usize| {
            let e = &endpoints[i];
            u64::from(e.active.get()) * u64::from(u32::MAX) / u64::from(e.endpoint.weight.max(1))
        };
        Some(if load(b) < load(a) { b } else { a })
    }
}
