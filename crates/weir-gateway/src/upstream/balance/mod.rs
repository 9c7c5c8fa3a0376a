//! Balancers: which endpoint gets the next attempt. One more is one new file and its two lines below.
//!
//! State is per core: every core sees its own share of the traffic, and no cache line is shared to choose.

mod draw;
mod ewma;
mod least_requests;
mod p2c;
mod random;
mod round_robin;

use super::endpoint::LocalEndpoint;
use super::excluded::Excluded;

/// Chooses among two or more endpoints.
pub(crate) trait Balance {
    /// The index of an endpoint that is not excluded, or `None` when all are.
    fn pick(&mut self, endpoints: &[LocalEndpoint], excluded: &Excluded) -> Option<usize>;

    /// The endpoints are others now: time to build what makes picking cheap. An exchange under way may still pick from
    /// those before.
    fn update(&mut self, _endpoints: &[LocalEndpoint]) {}
}

/// A balancer by its name in a config.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Whether it chooses by latency, which is measured only then.
    pub(crate) measures: bool,
    pub(crate) make: fn(u64) -> Box<dyn Balance>,
}

/// Every balancer, by name.
pub(crate) static KINDS: &[&Kind] =
    &[&ewma::KIND, &least_requests::KIND, &p2c::KIND, &random::KIND, &round_robin::KIND];

/// The balancer of that name.
pub(crate) fn named(name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|k| k.name == name)
}

/// xorshift64* (Vigna: An experimental exploration of Marsaglia's xorshift generators, scrambled, 2016): a few cycles,
/// and good enough to spread load.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 for 0. (Lemire's multiply-shift: no division; the bias is below n / 2^32.)
    pub(crate) const fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * n as u64) >> 32) as u32
    }
}

/// A random endpoint that is not excluded, in proportion to its weight.
pub(crate) fn weighted(
    random: &mut Random,
    endpoints: &[LocalEndpoint],
    excluded: &Excluded,
) -> Option<usize> {
    let open = || endpoints.iter().enumerate().filter(|(i, _)| !excluded.contains(*i));
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

#[cfg(test)]
mod tests;
