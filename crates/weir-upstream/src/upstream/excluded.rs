//! A set of endpoints not to be picked.

use smallvec::SmallVec;

/// Endpoints by index: tried in vain, or out of rotation. One bit each; up to 128 endpoints need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excluded(SmallVec<[u64; 2]>);

impl Excluded {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    #[inline]
    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    #[inline]
    pub(crate) fn insert(&mut self, index: usize) {
        if self.0.len() <= index / 64 {
            self.0.resize(index / 64 + 1, 0);
        }
        self.0[index / 64] |= 1 << (index % 64);
    }

    /// The endpoints in either set.
    #[inline]
    pub(crate) fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.0.len() < other.0.len() { (other, self) } else { (self, other) };
        let mut all = long.clone();
        for (word, more) in all.0.iter_mut().zip(&short.0) {
            *word |= more;
        }
        all
    }
}

impl FromIterator<usize> for Excluded {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        let mut set = Self::default();
        indexes.into_iter().for_each(|index| set.insert(index));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in() {
        let set: Excluded = [0, 63, 64, 300].into_iter().collect();
        let found: Vec<usize> = (0..400).filter(|i| set.contains(*i)).collect();
        assert_eq!(found, [0, 63, 64, 300]);
        assert!(!set.is_empty() && Excluded::default().is_empty());
        let both = set.union(&[1].into_iter().collect());
        assert_eq!((0..400).filter(|i| both.contains(*i)).collect::<Vec<_>>(), [0, 1, 63, 64, 300]);
        assert_eq!(both, Excluded::from_iter([1]).union(&set));
    }
}
