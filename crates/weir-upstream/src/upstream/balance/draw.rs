//! Draws endpoints by weight in constant time, whatever their number: Walker's alias method, built as Vose does (A
//! linear algorithm for generating random numbers with a given distribution, 1991).

use super::{Candidates, NONE, Random, weighted};
use crate::upstream::endpoint::LocalEndpoint;

/// One column per endpoint, all equally likely. A column belongs to its endpoint, or in part to another.
#[derive(Debug, Default)]
pub(super) struct Draw {
    columns: Vec<Column>,
    /// The mean weight as a multiple of each endpoint's own.
    lightness: Vec<f64>,
}

#[derive(Debug)]
struct Column {
    /// The chance, of [`ALWAYS`], that the column's own endpoint is drawn.
    own: u32,
    other: u32,
}

const ALWAYS: f64 = 4_294_967_296.0;

/// How many draws are made for an open endpoint before all are searched.
const MAX_DRAWS: u32 = 8;

impl Draw {
    pub(super) fn new(endpoints: &[LocalEndpoint]) -> Self {
        let mean = endpoints.iter().map(weight).sum::<f64>() / endpoints.len().max(1) as f64;
        let mut parts: Vec<f64> = endpoints.iter().map(|e| weight(e) / mean).collect();
        let own = |i: usize| Column { own: u32::MAX, other: i as u32 };
        let mut columns: Vec<Column> = (0..parts.len()).map(own).collect();
        let (mut light, mut heavy): (Vec<usize>, Vec<usize>) =
            (0..parts.len()).partition(|i| parts[*i] < 1.0);
        while let (Some(i), Some(&from)) = (light.pop(), heavy.last()) {
            columns[i] = Column { own: (parts[i] * ALWAYS) as u32, other: from as u32 };
            parts[from] -= 1.0 - parts[i];
            if parts[from] < 1.0 {
                heavy.pop();
                light.push(from);
            }
        }
        let lightness = endpoints.iter().map(|e| mean / weight(e)).collect();
        Self { columns, lightness }
    }

    /// An open endpoint, in proportion to its weight.
    pub(super) fn draw(&self, random: &mut Random, from: &Candidates<'_>) -> Option<usize> {
        for _ in 0..MAX_DRAWS {
            let i = self.any(random)?;
            if from.is_open(i) {
                return Some(i);
            }
        }
        weighted(random, from, NONE)
    }

    /// As [`draw`](Self::draw), but excluding one endpoint. If that one is drawn, its neighbor takes its place:
    /// drawing again until another comes up would cost more than all the rest.
    pub(super) fn draw_other(
        &self,
        random: &mut Random,
        from: &Candidates<'_>,
        except: usize,
    ) -> Option<usize> {
        for _ in 0..MAX_DRAWS {
            let i = self.any(random)?;
            let next = if i + 1 < self.columns.len() { i + 1 } else { 0 };
            let i = if i == except { next } else { i };
            if i != except && from.is_open(i) {
                return Some(i);
            }
        }
        weighted(random, from, except)
    }

    /// An endpoint's running attempts relative to its weight.
    pub(super) fn load(&self, index: usize, endpoint: &LocalEndpoint) -> f64 {
        f64::from(endpoint.active.get()) * self.lightness.get(index).copied().unwrap_or(1.0)
    }

    fn any(&self, random: &mut Random) -> Option<usize> {
        // One number serves both: its upper half selects the column, its lower half the owner.
        let number = random.next();
        let i = ((number >> 32) * self.columns.len() as u64) >> 32;
        let column = self.columns.get(i as usize)?;
        Some(if number as u32 <= column.own { i as usize } else { column.other as usize })
    }
}

/// An endpoint's weight as a number for calculations.
pub(super) fn weight(endpoint: &LocalEndpoint) -> f64 {
    f64::from(endpoint.endpoint.weight.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::testing::endpoints;
    use crate::upstream::excluded::Excluded;

    #[test]
    fn three_thousand_are_drawn_by_weight() {
        let endpoints = endpoints(&(0..3000).map(|i| 1 + i % 3).collect::<Vec<_>>());
        let (draw, tried) = (Draw::new(&endpoints), Excluded::default());
        let (mut random, mut counts) = (Random::new(7), [0u32; 3]);
        for _ in 0..60_000 {
            let from = Candidates::new(&endpoints, None, &tried, None);
            counts[draw.draw(&mut random, &from).unwrap() % 3] += 1;
        }
        for (n, expected) in counts.into_iter().zip([10_000u32, 20_000, 30_000]) {
            assert!(n.abs_diff(expected) < 700, "{counts:?}");
        }
    }
}
