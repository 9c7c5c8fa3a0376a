//! Groups endpoints into tiers by priority and zone, and decides which tier a request goes to. Each tier has its own
//! balancer.
//!
//! Tiers are used in order: priority 0 before 1, and within a priority the gateway's own zone before the others. A
//! tier takes what it can carry: the share of its endpoints in rotation, by weight, times [`SPARE`]. The next tier
//! gets the rest. So load shifts gradually away from a failing tier.

use super::key::mix;
use super::{Balance, Candidates, Random};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::excluded::Excluded;

/// How much more than its share an endpoint is trusted to carry while others of its tier are out. With 1.4, a tier
/// keeps all its load until 2 of 7 are out. Envoy has the same default (`overprovisioning_factor`).
const SPARE: f64 = 1.4;

/// An upstream's tiers, in the order of use.
pub(crate) struct Tiers {
    tiers: Vec<Tier>,
    /// Which endpoints were out when `ends` was computed.
    out: Excluded,
    /// Where each tier's share ends, on a scale of 2^32 for all requests.
    ends: Vec<u64>,
    random: Random,
}

struct Tier {
    rank: (u8, bool),
    /// The index of its first endpoint in the list.
    first: usize,
    end: usize,
    balance: Box<dyn Balance>,
}

/// All requests.
const ALL: u64 = 1 << 32;

impl Tiers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { tiers: Vec::new(), out: Excluded::default(), ends: Vec::new(), random: Random::new(seed) }
    }

    /// Chooses an open endpoint: in the tier whose turn it is, or else in the first tier that has one.
    pub(crate) fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        if let [only] = &mut *self.tiers {
            return only.balance.pick(from);
        }
        let turn = self.turn(from);
        let others = (0..self.tiers.len()).filter(|i| *i != turn);
        std::iter::once(turn).chain(others).find_map(|i| self.tiers.get_mut(i)?.pick(from))
    }

    /// Called when the endpoints have changed; they are sorted by tier. `make` makes a balancer for a new tier.
    pub(crate) fn update(&mut self, endpoints: &[LocalEndpoint], mut make: impl FnMut() -> Box<dyn Balance>) {
        let mut before = std::mem::take(&mut self.tiers);
        let mut first = 0;
        for members in endpoints.chunk_by(|a, b| a.endpoint.place.rank() == b.endpoint.place.rank()) {
            let rank = members[0].endpoint.place.rank();
            let kept = before.iter().position(|tier| tier.rank == rank);
            let mut balance = kept.map_or_else(&mut make, |i| before.swap_remove(i).balance);
            balance.update(members);
            self.tiers.push(Tier { rank, first, end: first + members.len(), balance });
            first += members.len();
        }
        self.share_out(endpoints, &Excluded::default());
    }

    /// The tier that a request goes to. Chosen by its key, if it has one, so that it goes there again.
    fn turn(&mut self, from: &Candidates<'_>) -> usize {
        let Some(out) = from.out else { return 0 };
        if *out != self.out {
            self.share_out(from.endpoints, out);
        }
        let at = from.key.map_or_else(|| self.random.next(), |key| mix(key.get())) >> 32;
        self.ends.iter().position(|end| at < *end).unwrap_or(0)
    }

    /// Computes each tier's share of the requests.
    fn share_out(&mut self, endpoints: &[LocalEndpoint], out: &Excluded) {
        let weight = |range: std::ops::Range<usize>, open: bool| {
            let counted = range.filter(|i| !(open && out.contains(*i)));
            counted.map(|i| f64::from(endpoints[i].endpoint.weight)).sum::<f64>()
        };
        let carries = |tier: &Tier| {
            let well = weight(tier.first..tier.end, true) / weight(tier.first..tier.end, false);
            (well * SPARE).min(1.0)
        };
        let carried: Vec<f64> = self.tiers.iter().map(carries).collect();
        // If together they cannot carry the load, each takes its proportion of the excess.
        let scale = carried.iter().sum::<f64>().clamp(f64::MIN_POSITIVE, 1.0);
        let mut sum = 0.0;
        let ends = carried.iter().map(|carried| {
            sum += carried / scale;
            (sum.min(1.0) * ALL as f64) as u64
        });
        self.ends = ends.collect();
        self.out = out.clone();
    }
}

impl Tier {
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        let members = from.endpoints.get(self.first..self.end)?;
        let from = Candidates { endpoints: members, first: self.first, ..*from };
        self.balance.pick(&from).map(|i| self.first + i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::testing::placed;
    use crate::upstream::balance::{Balancer, Key, named};

    fn tiers(endpoints: &[LocalEndpoint]) -> Tiers {
        let mut tiers = Tiers::new(7);
        tiers.update(endpoints, || Balancer { kind: named("round_robin").unwrap(), hash: None }.make(0));
        tiers
    }

    /// The percentage of requests that each endpoint gets while these are out.
    fn shares(tiers: &mut Tiers, endpoints: &[LocalEndpoint], out: &[usize]) -> Vec<u32> {
        const PICKS: u32 = 20_000;
        let (mut counts, tried) = (vec![0; endpoints.len()], Excluded::default());
        let out: Option<Excluded> = (!out.is_empty()).then(|| out.iter().copied().collect());
        for _ in 0..PICKS {
            counts[tiers.pick(&Candidates::new(endpoints, out.as_ref(), &tried, None)).unwrap()] += 1;
        }
        counts.into_iter().map(|n: u32| (n * 100 + PICKS / 2) / PICKS).collect()
    }

    #[test]
    fn load_spills_over_by_share() {
        // Four endpoints of priority 0, three of priority 1, one of priority 5.
        let ranks = [0, 0, 0, 0, 1, 1, 1, 5].map(|priority| (priority, false));
        let endpoints = placed(&ranks);
        let tiers = &mut tiers(&endpoints);
        let mut expect = |out: &[usize], expected: [u32; 8]| {
            let found = shares(tiers, &endpoints, out);
            let is_near = found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= 2);
            assert!(is_near, "without {out:?} {found:?} instead of {expected:?}");
        };
        expect(&[], [25, 25, 25, 25, 0, 0, 0, 0]);
        expect(&[4, 5], [25, 25, 25, 25, 0, 0, 0, 0]);
        expect(&[0], [0, 33, 33, 33, 0, 0, 0, 0]); // 3 / 4 × 1.4 is enough
        expect(&[0, 1], [0, 0, 35, 35, 10, 10, 10, 0]);
        expect(&[0, 1, 2], [0, 0, 0, 35, 22, 22, 22, 0]);
        expect(&[0, 1, 2, 3], [0, 0, 0, 0, 33, 33, 33, 0]);
        expect(&[0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0, 47, 53]);
        // The rest can carry 35 % and 47 %, so they get 43 % and 57 %.
        expect(&[0, 1, 2, 4, 5, 7], [0, 0, 0, 43, 0, 0, 57, 0]);
        expect(&[], [25, 25, 25, 25, 0, 0, 0, 0]);
    }

    #[test]
    fn a_change_of_endpoints_begins_no_tier_anew() {
        let endpoints = placed(&[(0, false), (0, false), (0, false), (1, false), (1, false)]);
        let (mut tiers, tried) = (tiers(&endpoints), Excluded::default());
        let from = Candidates::new(&endpoints, None, &tried, None);
        assert_eq!(tiers.pick(&from), Some(0));
        tiers.update(&endpoints, || panic!("both tiers are known"));
        assert_eq!(tiers.pick(&from), Some(1));
    }

    #[test]
    fn the_own_zone_comes_first_within_a_priority() {
        let endpoints = placed(&[(0, false), (0, false), (0, true), (0, true), (1, false)]);
        let tiers = &mut tiers(&endpoints);
        assert_eq!(shares(tiers, &endpoints, &[]), [50, 50, 0, 0, 0]);
        assert_eq!(shares(tiers, &endpoints, &[0, 1]), [0, 0, 50, 50, 0]);
        assert_eq!(shares(tiers, &endpoints, &[0, 1, 2, 3]), [0, 0, 0, 0, 100]);
    }

    #[test]
    fn a_key_stays_in_its_tier_and_what_was_tried_is_tried_elsewhere() {
        let endpoints = placed(&[(0, false), (0, false), (1, false)]);
        let tiers = &mut tiers(&endpoints);
        let (out, mut random) = (Excluded::from_iter([0]), Random::new(5));
        let mut spilled = 0;
        for _ in 0..1000 {
            let (key, none) = (Key::new(random.next()), Excluded::default());
            let mut pick =
                |tried: &Excluded| tiers.pick(&Candidates::new(&endpoints, Some(&out), tried, key));
            let first = pick(&none).unwrap();
            assert!(first != 0 && (0..5).all(|_| pick(&none) == Some(first)));
            let tried = Excluded::from_iter([first]);
            assert_eq!(pick(&tried), Some(if first == 1 { 2 } else { 1 }));
            assert_eq!(pick(&Excluded::from_iter([1, 2])), None);
            spilled += u32::from(first == 2);
        }
        assert!((250..350).contains(&spilled), "{spilled} of 1000");
    }
}
