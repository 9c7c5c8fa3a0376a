//! Draws endpoints by their weights in constant time, however many there are: Walker's alias method, with Vose's way to
//! build it (A linear algorithm for generating random numbers with a given distribution, 1991).

use super::{Random, weighted};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::excluded::Excluded;

/// One column per endpoint, all equally likely. A column is its endpoint's own, or in part another's.
#[derive(Debug, Default)]
pub(super) struct Draw {
    columns: Vec<Column>,
    mean: f64,
}

#[derive(Debug)]
struct Column {
    /// The chance, of [`ALWAYS`], that the column's own endpoint is drawn.
    own: u64,
    other: usize,
}

const ALWAYS: u64 = 1 << 32;

/// How often an endpoint is drawn in search of one that may be picked, before all are looked at.
const MAX_DRAWS: u32 = 8;

impl Draw {
    pub(super) fn new(endpoints: &[LocalEndpoint]) -> Self {
        let mean = endpoints.iter().map(weight).sum::<f64>() / endpoints.len().max(1) as f64;
        let mut parts: Vec<f64> = endpoints.iter().map(|e| weight(e) / mean).collect();
        let mut columns: Vec<Column> = (0..parts.len()).map(|other| Column { own: ALWAYS, other }).collect();
        let (mut light, mut heavy): (Vec<usize>, Vec<usize>) =
            (0..parts.len()).partition(|i| parts[*i] < 1.0);
        while let (Some(i), Some(&from)) = (light.pop(), heavy.last()) {
            columns[i] = Column { own: (parts[i] * ALWAYS as f64) as u64, other: from };
            parts[from] -= 1.0 - parts[i];
            if parts[from] < 1.0 {
                heavy.pop();
                light.push(from);
            }
        }
        Self { columns, mean }
    }

    /// An endpoint that is not excluded, in proportion to its weight.
    pub(super) fn draw(
        &self,
        random: &mut Random,
        endpoints: &[LocalEndpoint],
        excluded: &Excluded,
    ) -> Option<usize> {
        // A request that repeats its attempt may still hold the endpoints from before a change.
        if self.columns.len() == endpoints.len() {
            for _ in 0..MAX_DRAWS {
                let Some(i) = self.any(random) else { break };
                if !excluded.contains(i) {
                    return Some(i);
                }
            }
        }
        weighted(random, endpoints, excluded)
    }

    /// The mean of all weights.
    pub(super) const fn mean(&self) -> f64 {
        self.mean
    }

    fn any(&self, random: &mut Random) -> Option<usize> {
        let i = random.below(u32::try_from(self.columns.len()).ok()?) as usize;
        let column = self.columns.get(i)?;
        Some(if random.next() >> 32 < column.own { i } else { column.other })
    }
}

/// The weight of an endpoint, to reckon with.
pub(super) fn weight(endpoint: &LocalEndpoint) -> f64 {
    f64::from(endpoint.endpoint.weight.max(1))
}
