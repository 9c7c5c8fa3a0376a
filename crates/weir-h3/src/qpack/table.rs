//! The dynamic table of QPACK (RFC 9204 §3.2), as both the encoder and the decoder keep it.

use std::collections::VecDeque;

/// The overhead of an entry beside its text (RFC 9204 §3.2.1).
pub(super) const ENTRY: usize = 32;

/// Entries, with the text of all of them stored contiguously, oldest first.
///
/// Invariant: `size` is the total size of all entries, at most `capacity`. `text` holds at most three times as much.
#[derive(Debug)]
pub(super) struct Table {
    text: Vec<u8>,
    /// Bytes of text dropped before `text`.
    before: usize,
    /// The oldest entry first.
    entries: VecDeque<Entry>,
    size: usize,
    capacity: usize,
    /// How many entries were ever inserted: the absolute index of the next one.
    inserted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The offset of its text, counted from the first byte ever stored.
    at: usize,
    name: usize,
    value: usize,
}

impl Entry {
    const fn size(self) -> usize {
        self.name + self.value + ENTRY
    }
}

/// Where the name of a new entry comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    /// Bytes from elsewhere.
    Literal(&'a [u8]),
    /// The entry with this absolute index.
    Of(u64),
}

impl Table {
    /// A table of capacity 0.
    pub(super) const EMPTY: Self =
        Self { text: Vec::new(), before: 0, entries: VecDeque::new(), size: 0, capacity: 0, inserted: 0 };

    /// How many entries were ever inserted.
    pub(super) const fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The absolute index of the oldest entry, or of the next one if there is none.
    pub(super) fn oldest(&self) -> u64 {
        self.inserted - self.entries.len() as u64
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The entry with this absolute index, unless it is evicted or not inserted yet.
    #[inline]
    pub(super) fn get(&self, absolute: u64) -> Option<(&[u8], &[u8])> {
        let entry = self.entry(absolute)?;
        let text = self.text.get(entry.at - self.before..)?;
        text.get(..entry.name + entry.value)?.split_at_checked(entry.name)
    }

    #[inline]
    fn entry(&self, absolute: u64) -> Option<Entry> {
        let nth = absolute.checked_sub(self.oldest())?;
        self.entries.get(usize::try_from(nth).ok()?).copied()
    }

    /// Inserts an entry after evicting as many as necessary; `None` if it is larger than the table, or the entry that
    /// its name comes from does not exist.
    pub(super) fn insert(&mut self, name: Name<'_>, value: &[u8]) -> Option<()> {
        let name_len = match name {
            Name::Literal(text) => text.len(),
            Name::Of(absolute) => self.entry(absolute)?.name,
        };
        self.check(name_len, value.len())?;
        match name {
            Name::Literal(text) => self.text.extend_from_slice(text),
            Name::Of(absolute) => self.copy(absolute, name_len)?,
        }
        self.text.extend_from_slice(value);
        self.push(name_len, value.len());
        Some(())
    }

    /// Inserts a copy of an entry; `None` if there is no such entry.
    pub(super) fn duplicate(&mut self, absolute: u64) -> Option<()> {
        let Entry { name, value, .. } = self.entry(absolute)?;
        self.copy(absolute, name + value)?;
        self.push(name, value);
        Some(())
    }

    fn check(&self, name: usize, value: usize) -> Option<()> {
        (name.saturating_add(value).saturating_add(ENTRY) <= self.capacity).then_some(())
    }

    /// Appends the first bytes of an entry's text, before anything is evicted.
    fn copy(&mut self, absolute: u64, len: usize) -> Option<()> {
        let from = self.entry(absolute)?.at - self.before;
        self.text.extend_from_within(from..from + len);
        Some(())
    }

    /// Makes an entry of the last bytes of the text.
    fn push(&mut self, name: usize, value: usize) {
        let entry = Entry { at: self.before + self.text.len() - name - value, name, value };
        self.evict(self.capacity - entry.size());
        self.size += entry.size();
        self.entries.push_back(entry);
        self.inserted += 1;
        let dead = self.entries.front().map_or(0, |first| first.at - self.before);
        if dead >= self.capacity {
            self.text.drain(..dead);
            self.before += dead;
        }
    }

    /// Changes the capacity, and evicts what no longer fits.
    pub(super) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.evict(capacity);
        if self.entries.is_empty() {
            self.before += self.text.len();
            self.text = Vec::new();
        }
    }

    fn evict(&mut self, most: usize) {
        while self.size > most
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
        }
    }

    /// The absolute index of the first entry that would remain if an entry of this text were inserted; `None` if it
    /// would not fit at all.
    pub(super) fn first_left(&self, text: usize) -> Option<u64> {
        self.check(text, 0)?;
        let mut excess = (self.size + text + ENTRY).saturating_sub(self.capacity);
        let evicted = self.entries.iter().take_while(|entry| {
            let goes = excess > 0;
            excess = excess.saturating_sub(entry.size());
            goes
        });
        Some(self.oldest() + evicted.count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the table with a plain list of entries.
    #[test]
    fn entries_come_and_go() {
        const CAPACITY: usize = 600;
        let (mut table, mut inserted) = (Table::EMPTY, 0u64);
        let mut kept: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
        table.resize(CAPACITY);
        let size = |kept: &VecDeque<(Vec<u8>, Vec<u8>)>| -> usize {
            kept.iter().map(|(n, v)| n.len() + v.len() + ENTRY).sum()
        };
        let mut random = fastrand::Rng::with_seed(5);
        for n in 0..5000usize {
            let value = vec![b'v'; n * 7 % 300];
            let oldest = inserted - kept.len() as u64;
            let pick = if kept.is_empty() { 0 } else { random.usize(..kept.len()) };
            let new = match n % 3 {
                0 if !kept.is_empty() => {
                    table.duplicate(oldest + pick as u64).unwrap();
                    kept[pick].clone()
                }
                1 if !kept.is_empty() => {
                    table.insert(Name::Of(oldest + pick as u64), &value).unwrap();
                    (kept[pick].0.clone(), value)
                }
                _ => {
                    let name = format!("name-{n}").into_bytes();
                    let first = table.first_left(name.len() + value.len()).unwrap();
                    table.insert(Name::Literal(&name), &value).unwrap();
                    assert_eq!(first, table.oldest());
                    (name, value)
                }
            };
            kept.push_back(new);
            inserted += 1;
            while size(&kept) > CAPACITY {
                kept.pop_front();
            }
            assert_eq!((table.size, table.inserted()), (size(&kept), inserted));
            assert!(table.text.len() <= 3 * CAPACITY, "{}", table.text.len());
            let oldest = inserted - kept.len() as u64;
            assert!(table.get(inserted).is_none() && (oldest == 0 || table.get(oldest - 1).is_none()));
            for (at, (name, value)) in kept.iter().enumerate() {
                assert_eq!(table.get(oldest + at as u64), Some((&name[..], &value[..])));
            }
        }
        assert!(table.insert(Name::Literal(b"x"), &[0; CAPACITY - ENTRY]).is_none(), "one byte too many");
        assert!(table.insert(Name::Literal(b""), &[0; CAPACITY - ENTRY]).is_some());
        table.resize(0);
        assert_eq!((table.entries.len(), table.text.len(), table.inserted()), (0, 0, inserted + 1));
    }
}
