//! Requests as a cache meets them: spread by Zipf's law, with a crawler among them that asks for each thing once. Made from a seed, so
//! that a trace of a million requests is these lines and no file.

/// What a trace is made of.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Objects that people ask for.
    pub objects: usize,
    /// Requests of people and of the crawler.
    pub requests: usize,
    /// The exponent of Zipf's law: the object of rank `r` is asked for in proportion to `r^-exponent`.
    pub exponent: f64,
    /// Where the numbers begin.
    pub seed: u64,
}

impl Trace {
    /// The trace that stores are compared by: a million requests over 100,000 objects.
    pub const WHOLE: Self = Self { objects: 100_000, requests: 1_000_000, exponent: 0.9, seed: 42 };

    /// The same, so much smaller that a test can run it.
    pub const SMALL: Self = Self { objects: 5_000, requests: 60_000, ..Self::WHOLE };

    /// The objects that are asked for, by number, in order. Those of the crawler have numbers of their own: it comes when a third is
    /// over, makes every other request, and leaves at the half.
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
