//! Random numbers that a seed says: for what must differ and be the same in each run, and for masks, whose seed is fresh.

/// SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014).
#[derive(Debug)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    /// Those of this seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix;

    #[test]
    fn the_first_numbers_are_known() {
        // Of seed 1234567, as the published code gives them.
        let mut random = SplitMix::new(1_234_567);
        assert_eq!([(); 2].map(|()| random.next()), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
