//! `least_requests`: the endpoint with the fewest attempts under way on this core for its weight; of equals the one
//! after the last chosen, so that idle endpoints take turns. Looks at all of them: for tens of endpoints, not thousands.

use super::{Balance, Kind};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::excluded::Excluded;

pub(super) static KIND: Kind = Kind {
    name: "least_requests",
    measures: false,
    make: |seed| Box::new(LeastRequests { last: seed as usize }),
};

struct LeastRequests {
    last: usize,
}

impl Balance for LeastRequests {
    fn pick(&mut self, endpoints: &[LocalEndpoint], excluded: &Excluded) -> Option<usize> {
        let n = endpoints.len();
        let order = (1..=n).map(|step| self.last.wrapping_add(step) % n);
        let chosen = order.filter(|i| !excluded.contains(*i)).min_by(|&a, &b| {
            let (a, b) = (&endpoints[a], &endpoints[b]);
            // a.active / a.weight < b.active / b.weight, without dividing
            let left = u64::from(a.active.get()) * u64::from(b.endpoint.weight);
            left.cmp(&(u64::from(b.active.get()) * u64::from(a.endpoint.weight)))
        })?;
        self.last = chosen;
        Some(chosen)
    }
}
