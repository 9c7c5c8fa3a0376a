//! `hash`: the same endpoint for the same key, on every core and every gateway, as long as the endpoint exists.
//!
//! Keys fall into [`SLOTS`] slots. Each endpoint has a score in each slot, and the best score owns it (Thaler,
//! Ravishankar: Using name-based mappings to increase hit rates, 1998). So an endpoint that leaves gives its slots to
//! the others, and no other slot changes hands. Scores are weighted by logarithms (Schindelhauer, Schomaker: Weighted
//! distributed hash tables, 2005). A slot's owner is computed at its first request and remembered until the endpoints
//! change.
//!
//! With `bounded`, an endpoint that already has its share of the load is skipped for the next best (Mirrokni et al.:
//! Consistent hashing with bounded loads, 2016).

use super::draw::weight;
use super::key::{digest, mix};
use super::p2c::P2c;
use super::{Balance, Candidates, Kind};
use crate::upstream::endpoint::LocalEndpoint;

pub(super) static KIND: Kind = Kind {
    name: "hash",
    measures: false,
    make: |balancer, seed| {
        Box::new(Hash {
            bound: balancer.bound(),
            owners: Vec::new(),
            nodes: Vec::new(),
            weights: 0.0,
            is_weighted: false,
            keyless: P2c::new(seed),
        })
    },
};

/// The number of slots. With three endpoints their shares differ by 1 %, with a hundred by 4 %. The owners take 128
/// KiB per core. Never change this: gateways of different versions must agree.
const SLOTS: usize = 1 << 16;

/// A slot whose owner is not computed yet.
const UNKNOWN: u16 = u16::MAX;

struct Hash {
    bound: Option<f64>,
    /// The owner of each slot, as far as computed.
    owners: Vec<u16>,
    nodes: Vec<Node>,
    weights: f64,
    is_weighted: bool,
    /// Chooses for requests without a key.
    keyless: P2c,
}

struct Node {
    hash: u64,
    weight: f64,
}

impl Balance for Hash {
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        let Some(key) = from.key else { return self.keyless.pick(from) };
        let slot = (key.get() >> 48) as usize;
        let owner = self.owner(slot)?;
        let room = self.bound.map(|bound| self.room(bound, from));
        let has_room = |i: usize| {
            let load = || f64::from(from.endpoints[i].active.get());
            room.is_none_or(|room| load() < (room * self.nodes[i].weight).ceil())
        };
        if from.is_open(owner) && has_room(owner) {
            return Some(owner);
        }
        let next = self.best(slot, |i| from.is_open(i) && has_room(i));
        next.or_else(|| self.best(slot, |i| from.is_open(i)))
    }

    fn update(&mut self, endpoints: &[LocalEndpoint]) {
        let node = |e: &LocalEndpoint| Node { hash: digest(e.endpoint.label.as_bytes()), weight: weight(e) };
        self.nodes = endpoints.iter().map(node).collect();
        self.weights = self.nodes.iter().map(|node| node.weight).sum();
        self.is_weighted = self.nodes.iter().any(|node| node.weight != self.nodes[0].weight);
        self.owners.fill(UNKNOWN);
        self.keyless.update(endpoints);
    }
}

impl Hash {
    fn owner(&mut self, slot: usize) -> Option<usize> {
        if self.owners.is_empty() {
            self.owners = vec![UNKNOWN; SLOTS];
        }
        if self.owners[slot] != UNKNOWN {
            return Some(usize::from(self.owners[slot]));
        }
        let owner = self.best(slot, |_| true)?;
        // If an endpoint's index does not fit, each request compares all endpoints.
        self.owners[slot] = u16::try_from(owner).unwrap_or(UNKNOWN);
        Some(owner)
    }

    /// How many running attempts an endpoint may have per unit of its weight.
    fn room(&self, bound: f64, from: &Candidates<'_>) -> f64 {
        let load = from.endpoints.first().and_then(|e| e.load.as_ref()).map_or(0, |load| load.get());
        let weights = match from.out {
            None => self.weights,
            // Endpoints out of rotation carry nothing.
            Some(_) => (0..self.nodes.len()).filter(|i| !from.is_out(*i)).map(|i| self.nodes[i].weight).sum(),
        };
        bound * f64::from(load + 1) / weights
    }

    /// The endpoint with the best score among the acceptable ones.
    fn best(&self, slot: usize, will_do: impl Fn(usize) -> bool) -> Option<usize> {
        let seed = mix(slot as u64);
        let nodes = self.nodes.iter().enumerate().filter(|(i, _)| will_do(*i));
        let scores = nodes.map(|(i, node)| (i, mix(seed ^ node.hash), node.weight));
        if self.is_weighted {
            let costs = scores.map(|(i, score, weight)| (i, cost(score) / weight));
            costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
        } else {
            scores.max_by_key(|(_, score, _)| *score).map(|(i, ..)| i) // the same, without logarithms
        }
    }
}

/// The higher the score, the lower the cost. Costs are exponentially distributed, so the least of several costs, each
/// divided by a weight, belongs to each endpoint as often as it weighs.
fn cost(score: u64) -> f64 {
    let share = ((score >> 11) as f64 + 0.5) / (1u64 << 53) as f64; // above 0, below 1
    -share.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::testing::{balance, counts, endpoints};
    use crate::upstream::balance::{Balancer, By, HashSettings, Key, Random, named};
    use crate::upstream::excluded::Excluded;

    /// The port that each of some keys goes to.
    fn owners(balance: &mut dyn Balance, endpoints: &[LocalEndpoint], out: Option<&Excluded>) -> Vec<String> {
        let (mut random, tried) = (Random::new(3), Excluded::default());
        let mut owner = |_| {
            let i = balance.pick(&Candidates::new(endpoints, out, &tried, Key::new(random.next()))).unwrap();
            endpoints[i].endpoint.label.to_string()
        };
        (0..5000).map(&mut owner).collect()
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let equal = endpoints(&[1; 10]);
        let spread = counts(&mut *balance("hash", &equal), &equal, 50_000);
        assert!(spread.iter().all(|n| (4600..5400).contains(n)), "{spread:?}");
        let weighted = endpoints(&[1, 2, 3, 4]);
        let spread = counts(&mut *balance("hash", &weighted), &weighted, 50_000);
        for (n, expected) in spread.iter().zip([5000u32, 10_000, 15_000, 20_000]) {
            assert!(n.abs_diff(expected) < 700, "{spread:?}");
        }
    }

    #[test]
    fn one_that_goes_moves_its_own_keys_only() {
        for weights in [&[1; 10][..], &[1, 2, 2, 4, 3], &[7, 7, 1]] {
            let all = endpoints(weights);
            let before = owners(&mut *balance("hash", &all), &all, None);
            for gone in 0..weights.len() {
                let mut left = endpoints(weights);
                let label = left.remove(gone).endpoint.label.to_string();
                let after = owners(&mut *balance("hash", &left), &left, None);
                let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
                assert!(moved.clone().all(|(before, _)| *before == label), "{weights:?} without {label}");
                // They are spread over the remaining ones.
                let to: std::collections::BTreeSet<_> = moved.map(|(_, after)| after).collect();
                assert_eq!(to.len(), left.len());
                // An endpoint out of rotation counts as gone.
                let out = Excluded::from_iter([gone]);
                assert_eq!(owners(&mut *balance("hash", &all), &all, Some(&out)), after);
            }
        }
    }

    #[test]
    fn a_key_goes_the_same_way_whatever_the_core_and_the_order() {
        let (one, mut other) = (endpoints(&[1, 3, 2]), endpoints(&[1, 3, 2]));
        other.reverse();
        let mut second = Balancer { kind: named("hash").unwrap(), hash: None }.make(999);
        second.update(&other);
        assert_eq!(owners(&mut *balance("hash", &one), &one, None), owners(&mut *second, &other, None));
    }

    fn key(slot: u64) -> Option<Key> {
        Key::new((slot << 48) | 1)
    }

    /// Gateways of different versions in front of one service must agree: these may never change.
    #[test]
    fn a_key_goes_the_same_way_in_every_version() {
        let slots = [0, 1, 2, 3, 1000, 20_000, 40_000, 65_535];
        for (weights, expected) in
            [([1; 5], [2, 4, 0, 2, 0, 1, 0, 4]), ([1, 2, 3, 4, 5], [2, 4, 4, 2, 4, 1, 0, 4])]
        {
            let (endpoints, tried) = (endpoints(&weights), Excluded::default());
            let mut balance = balance("hash", &endpoints);
            let owners = slots
                .map(|slot| balance.pick(&Candidates::new(&endpoints, None, &tried, key(slot))).unwrap());
            assert_eq!(owners, expected, "{weights:?}");
        }
    }

    /// Each endpoint's running attempts after 40 requests with one key, which belongs to the first endpoint.
    fn forty_of_one_key(weights: &[u32], out: Option<&Excluded>) -> Vec<u32> {
        let (endpoints, tried) = (endpoints(weights), Excluded::default());
        let hash = Some(HashSettings { by: By::Path, bounded: Some(1.25) });
        let mut balance = Balancer { kind: named("hash").unwrap(), hash }.make(7);
        balance.update(&endpoints);
        let mut pick = |slot| balance.pick(&Candidates::new(&endpoints, out, &tried, key(slot))).unwrap();
        let slot = (0..1000).find(|slot| pick(*slot) == 0).unwrap();
        for _ in 0..40 {
            let chosen = &endpoints[pick(slot)];
            chosen.active.set(chosen.active.get() + 1);
            chosen.load.iter().for_each(|load| load.set(load.get() + 1));
        }
        endpoints.iter().map(|e| e.active.get()).collect()
    }

    #[test]
    fn the_bound_goes_by_weight_and_by_who_is_in_rotation() {
        assert_eq!(forty_of_one_key(&[1, 3], None), [13, 27], "125 % of 40 / 4");
        let active = forty_of_one_key(&[1; 4], Some(&Excluded::from_iter([3])));
        assert_eq!((active[0], active[3]), (17, 0), "125 % of 40 / 3");
    }

    #[test]
    fn an_endpoint_with_too_much_to_do_is_passed_over() {
        let endpoints = endpoints(&[1, 1, 1, 1]);
        let hash = Some(HashSettings { by: By::Path, bounded: Some(1.25) });
        let mut balance = Balancer { kind: named("hash").unwrap(), hash }.make(7);
        balance.update(&endpoints);
        let (tried, load) = (Excluded::default(), endpoints[0].load.clone().unwrap());
        let mut begin = |out: Option<&Excluded>| {
            let i = balance.pick(&Candidates::new(&endpoints, out, &tried, Key::new(42))).unwrap();
            endpoints[i].active.set(endpoints[i].active.get() + 1);
            load.set(load.get() + 1);
            i
        };
        let owner = begin(None);
        for _ in 0..99 {
            begin(None);
        }
        let mut active: Vec<u32> = endpoints.iter().map(|e| e.active.get()).collect();
        assert_eq!(active[owner], 32, "125 % of 100 / 4: {active:?}");
        assert!(active.iter().all(|n| *n <= 32), "{active:?}");
        // An endpoint that is out carries nothing, so the others may have more.
        let out = Excluded::from_iter((0..4).filter(|i| *i != owner));
        assert_eq!(begin(Some(&out)), owner);
        active[owner] += 1;
        assert_eq!(endpoints.iter().map(|e| e.active.get()).collect::<Vec<_>>(), active);
    }
}
