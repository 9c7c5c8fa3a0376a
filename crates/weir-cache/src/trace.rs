//! Simulated cache requests: Zipf-distributed, plus a crawler that requests each object once. A seed generates
//! them, so a trace of a million requests needs no file.

/// The parameters of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Objects that people request.
    pub objects: usize,
    /// Requests of people and of the crawler together.
    pub requests: usize,
    /// The exponent of Zipf's law: the object of rank `r` is requested in proportion to `r^-exponent`.
    pub exponent: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Trace {
    /// The trace for comparing stores: a million requests over 100,000 objects.
    pub const WHOLE: Self = Self { objects: 100_000, requests: 1_000_000, exponent: 0.9, seed: 42 };

    /// A smaller version, which a test can run.
    pub const SMALL: Self = Self { objects: 5_000, requests: 60_000, ..Self::WHOLE };

    /// The requested objects, by number, in order. The crawler's objects have separate numbers. It starts after a
    /// third of the requests, makes every other request, and stops at the half.
    pub fn wanted(self) -> impl Iterator<Item = u64> {
        let upto: Vec<f64> = (1..=self.objects)
            .scan(0.0, |sum, rank| {
                *sum += (rank as f64).powf(-self.exponent);
                Some(*sum)
            })
            .collect();
        let all = upto.last().copied().unwrap_or_default();
        let mut state = self.seed;
        (0..self.requests).map(move |n| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 11) as f64 / (1_u64 << 53) as f64 * all;
            let crawls = (self.requests / 3..self.requests / 2).contains(&n) && n % 2 == 0;
            if crawls { (self.objects + n) as u64 } else { upto.partition_point(|&upto| upto < at) as u64 }
        })
    }
}
