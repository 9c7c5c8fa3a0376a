//! `random`: each endpoint in proportion to its weight, whatever its load.

use super::{Balance, Kind, Random, weighted};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::excluded::Excluded;

pub(super) static KIND: Kind =
    Kind { name: "random", measures: false, make: |seed| Box::new(Weighted(Random::new(seed))) };

struct Weighted(Random);

impl Balance for Weighted {
    fn pick(&mut self, endpoints: &[LocalEndpoint], excluded: &Excluded) -> Option<usize> {
        weighted(&mut self.0, endpoints, excluded)
    }
}
