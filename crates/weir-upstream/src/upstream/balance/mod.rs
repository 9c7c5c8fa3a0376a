//! Balancers choose the endpoint of the next attempt. Another one is one new file and its two lines below.
//!
//! State is per core: each core sees its own share of the traffic, and choosing shares no cache line. A pick costs
//! the same for 3 endpoints and for 3,000: whatever depends on their number is built when they change.

mod draw;
mod ewma;
mod hash;
mod key;
mod least_requests;
mod p2c;
mod random;
mod round_robin;
#[cfg(test)]
pub(super) mod testing;
mod tiers;

pub(crate) use key::address_key;
pub use key::{By, Key};
pub(super) use key::{digest, mix};
pub(super) use tiers::Tiers;

use super::endpoint::LocalEndpoint;
use super::excluded::Excluded;

/// Chooses among endpoints.
pub(crate) trait Balance {
    /// The index of an open candidate, or `None` if none is open. The candidates are those of the last `update`.
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize>;

    /// Called when the endpoints have changed: builds what makes picking cheap.
    fn update(&mut self, endpoints: &[LocalEndpoint]);
}

/// The endpoints a balancer chooses from, and for which request.
#[derive(Clone, Copy)]
pub(crate) struct Candidates<'a> {
    endpoints: &'a [LocalEndpoint],
    /// The offset of these candidates in `out` and `tried`.
    first: usize,
    /// Out of rotation.
    out: Option<&'a Excluded>,
    /// Endpoints that this request should avoid.
    tried: &'a Excluded,
    /// Whether the request was already attempted, so that its turn is used up.
    pub(super) again: bool,
    /// The key for `hash`, if the request has it.
    key: Option<Key>,
}

/// A balancer with its settings.
#[derive(Debug)]
pub struct Balancer {
    /// The balancer.
    pub kind: &'static Kind,
    /// The settings of `hash`.
    pub hash: Option<HashSettings>,
}

/// The settings of `hash`.
#[derive(Debug)]
pub struct HashSettings {
    /// Which part of a request is hashed.
    pub by: By,
    /// How much load an endpoint may have relative to the mean.
    pub bounded: Option<f64>,
}

/// A balancer by its name in a config.
#[derive(Debug)]
pub struct Kind {
    /// Its name in a config.
    pub name: &'static str,
    /// Whether it chooses by latency, which is measured only then.
    pub(crate) measures: bool,
    /// Makes one for one core, from its settings and a seed for its random numbers.
    pub(crate) make: fn(&Balancer, u64) -> Box<dyn Balance>,
}

/// Every balancer, by name.
pub(crate) static KINDS: &[&Kind] =
    &[&ewma::KIND, &hash::KIND, &least_requests::KIND, &p2c::KIND, &random::KIND, &round_robin::KIND];

/// The balancer of that name.
pub fn named(name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|k| k.name == name)
}

impl Balancer {
    pub(crate) fn make(&self, seed: u64) -> Box<dyn Balance> {
        (self.kind.make)(self, seed)
    }

    /// How much load an endpoint may have relative to the mean, if bounded: then the load of all is counted.
    pub(crate) fn bound(&self) -> Option<f64> {
        self.hash.as_ref()?.bounded
    }
}

impl<'a> Candidates<'a> {
    #[inline]
    pub(super) fn new(
        endpoints: &'a [LocalEndpoint],
        out: Option<&'a Excluded>,
        tried: &'a Excluded,
        key: Option<Key>,
    ) -> Self {
        Self { endpoints, first: 0, out, tried, again: !tried.is_empty(), key }
    }

    /// The same candidates, with `again` set regardless of `tried`.
    #[inline]
    pub(super) const fn with_again(self, again: bool) -> Self {
        Self { again, ..self }
    }

    /// Whether an endpoint may be picked.
    #[inline]
    fn is_open(&self, index: usize) -> bool {
        !self.tried.contains(self.first + index) && !self.is_out(index)
    }

    /// Whether an endpoint is out of rotation.
    #[inline]
    fn is_out(&self, index: usize) -> bool {
        self.out.is_some_and(|out| out.contains(self.first + index))
    }
}

/// xorshift64* (Vigna: An experimental exploration of Marsaglia's xorshift generators, scrambled, 2016): a few
/// cycles, and good enough to spread load.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A sequence that starts with this.
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 for 0. (Lemire's multiply-shift: no division; the bias is below n / 2^32.)
    #[inline]
    pub const fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * n as u64) >> 32) as u32
    }
}

/// A random open endpoint other than this one, in proportion to its weight. Examines all of them, so it is for rare
/// cases.
#[inline]
pub(super) fn weighted(random: &mut Random, from: &Candidates<'_>, except: usize) -> Option<usize> {
    let is_open = |(i, _): &(usize, &LocalEndpoint)| *i != except && from.is_open(*i);
    let open = || from.endpoints.iter().enumerate().filter(is_open);
    let total: u32 = open().map(|(_, e)| e.endpoint.weight).fold(0, u32::saturating_add);
    let mut at = random.below(total);
    for (i, e) in open() {
        match at.checked_sub(e.endpoint.weight) {
            Some(rest) => at = rest,
            None => return Some(i),
        }
    }
    open().next().map(|(i, _)| i)
}

/// An index that no endpoint has.
pub(super) const NONE: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::testing::{balance, counts, endpoints, pick};
    use super::*;

    #[test]
    fn nothing_is_picked_from_nothing() {
        for kind in KINDS {
            assert_eq!(pick(&mut *balance(kind.name, &[]), &[], &[]), None, "{}", kind.name);
        }
    }

    #[test]
    fn every_balancer_respects_weights_and_what_was_tried() {
        let endpoints = endpoints(&[3, 1]);
        for kind in KINDS {
            let mut balance = balance(kind.name, &endpoints);
            let counts = counts(&mut *balance, &endpoints, 4000);
            // With nothing under way, turns go to idle endpoints, whatever their weights.
            if kind.name != "least_requests" {
                assert!((2800..3200).contains(&counts[0]), "{}: {counts:?}", kind.name);
            }
            assert_eq!(pick(&mut *balance, &endpoints, &[0]), Some(1), "{}", kind.name);
            assert_eq!(pick(&mut *balance, &endpoints, &[0, 1]), None, "{}", kind.name);
            let (out, tried) = (Excluded::from_iter([1]), Excluded::default());
            let from = Candidates::new(&endpoints, Some(&out), &tried, Key::new(7));
            assert_eq!(balance.pick(&from), Some(0), "{}", kind.name);
        }
    }

    #[test]
    fn the_only_open_one_of_three_thousand_is_found() {
        let endpoints = endpoints(&vec![1; 3000]);
        // Several, because a single one may be drawn by luck.
        for open in [0, 1, 1500, 2999] {
            let others: Vec<usize> = (0..3000).filter(|i| *i != open).collect();
            for kind in KINDS {
                let mut balance = balance(kind.name, &endpoints);
                assert_eq!(pick(&mut *balance, &endpoints, &others), Some(open), "{}", kind.name);
            }
        }
    }

    #[test]
    fn looking_at_all_goes_by_weight_and_passes_over_one() {
        let (endpoints, tried) = (endpoints(&[1, 3, 5, 2]), Excluded::from_iter([2]));
        let (mut random, mut counts) = (Random::new(7), [0u32; 4]);
        for _ in 0..6000 {
            let from = Candidates::new(&endpoints, None, &tried, None);
            counts[weighted(&mut random, &from, 3).unwrap()] += 1;
        }
        assert!(counts[0].abs_diff(1500) < 150 && counts[2..] == [0, 0], "{counts:?}");
    }

    /// Prints what a pick costs, if asked for: `make bench BENCH='--suite pick'`.
    #[test]
    fn cost_of_a_pick() {
        if std::env::var_os("WEIR_BENCH_PICK").is_none() {
            return;
        }
        for kind in KINDS {
            for n in [3, 3000] {
                println!("pick {} {n} {:.1}", kind.name, testing::nanoseconds(kind.name, n));
            }
        }
    }
}
