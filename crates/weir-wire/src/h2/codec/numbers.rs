//! Finds open streams by their numbers.

/// Smallest size of the table: eight places fill one cache line.
const FIRST: usize = 8;

/// A map from stream numbers to slots.
///
/// Numbers are sequential, so the low bits of a number choose its place. Consecutive numbers never collide; a
/// long-lived stream collides with one number per table length. A number whose place is taken goes to a list beside
/// the table. A peer that chooses colliding numbers makes us search as many entries as it may have streams, and no
/// more.
///
/// Invariant: each number is either in its own place or in `others`, exactly once. `others` has at most half as many
/// entries as there are places.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Numbers and slots; number 0 marks a free place. The length is a power of two, or zero.
    places: Vec<(u32, u32)>,
    others: Vec<(u32, u32)>,
    len: usize,
}

impl Numbers {
    /// The number of entries.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The slot of a number.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<usize> {
        match self.places.get(self.place_of(number)) {
            Some((other, slot)) if *other == number => Some(*slot as usize),
            _ if self.others.is_empty() => None,
            _ => self.others.iter().find(|(other, _)| *other == number).map(|(_, slot)| *slot as usize),
        }
    }

    /// Adds a number that is neither 0 nor present.
    #[inline]
    pub(super) fn insert(&mut self, number: u32, slot: usize) {
        self.len += 1;
        self.put((number, slot as u32));
    }

    /// Removes a number; returns whether it was present.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let place = self.place_of(number);
        let is_there = match self.places.get_mut(place) {
            Some(entry) if entry.0 == number => {
                entry.0 = 0;
                true
            }
            _ if self.others.is_empty() => false,
            _ => {
                let found = self.others.iter().position(|(other, _)| *other == number);
                found.map(|at| self.others.swap_remove(at)).is_some()
            }
        };
        self.len -= usize::from(is_there);
        is_there
    }

    /// All numbers and their slots, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, usize)> {
        let places = self.places.iter().filter(|(number, _)| *number != 0);
        places.chain(&self.others).map(|(number, slot)| (*number, *slot as usize))
    }

    /// Each side uses every other number (RFC 9113 §5.1.1).
    #[inline]
    const fn place_of(&self, number: u32) -> usize {
        (number >> 1) as usize & self.places.len().wrapping_sub(1)
    }

    #[inline]
    fn put(&mut self, entry: (u32, u32)) {
        let place = self.place_of(entry.0);
        match self.places.get_mut(place) {
            Some(free) if free.0 == 0 => *free = entry,
            _ => self.put_elsewhere(entry),
        }
    }

    /// Adds an entry when there is no table yet or its place is taken.
    #[cold]
    fn put_elsewhere(&mut self, entry: (u32, u32)) {
        if 2 * self.len <= self.places.len() {
            self.others.push(entry);
            return;
        }
        let size = (2 * self.places.len()).max(FIRST);
        let before = std::mem::replace(&mut self.places, vec![(0, 0); size]);
        let others = std::mem::take(&mut self.others);
        let all = before.into_iter().filter(|(number, _)| *number != 0).chain(others);
        all.chain([entry]).for_each(|entry| self.put(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_in_sequence_have_places_of_their_own() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.find(1), numbers.remove(1)), (None, false));
        for number in 0..10_000 {
            numbers.insert(2 * number + 1, number as usize);
            if number >= 100 {
                assert!(numbers.remove(2 * (number - 100) + 1));
            }
        }
        assert_eq!((numbers.len(), numbers.places.len(), numbers.others.len()), (100, 128, 0));
    }

    #[test]
    fn one_that_stays_is_in_nobodys_way() {
        let mut numbers = Numbers::default();
        (0..4).for_each(|n| numbers.insert(2 * n + 1, n as usize));
        for number in 4..1_000 {
            assert!(numbers.remove(2 * number - 1));
            numbers.insert(2 * number + 1, number as usize);
        }
        assert_eq!((numbers.find(1), numbers.find(1_999), numbers.find(9)), (Some(0), Some(999), None));
        assert_eq!((numbers.len(), numbers.places.len()), (4, 8));
    }

    /// Compares it with a map, for numbers that a peer chose to collide, and for others.
    #[test]
    fn it_is_a_map() {
        for step in [2, 6, 16, 512, 4096] {
            let (mut numbers, mut map) = (Numbers::default(), BTreeMap::new());
            let mut state = 7u32;
            for n in 0..4_000 {
                state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                let number = n * step + 1;
                numbers.insert(number, n as usize);
                map.insert(number, n as usize);
                let other = (state >> 8) % (n + 1) * step + 1;
                if map.len() > 64 || state & 0x40_0000 > 0 {
                    assert_eq!(numbers.remove(other), map.remove(&other).is_some());
                }
                if map.len() > 64 {
                    let (first, _) = map.pop_first().unwrap();
                    assert!(numbers.remove(first));
                }
                assert_eq!((numbers.find(other), numbers.len()), (map.get(&other).copied(), map.len()));
                assert_eq!(numbers.find(number), map.get(&number).copied());
            }
            assert!(numbers.places.len() <= 256, "{} places", numbers.places.len());
            let all: BTreeMap<u32, usize> = numbers.iter().collect();
            assert_eq!(all, map);
        }
    }
}
