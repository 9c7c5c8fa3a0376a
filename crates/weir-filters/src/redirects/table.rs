//! Rows by their `from`: one text, one list and one hash table, however many rows there are.
//!
//! Few allocations matter: a core may drop the table after a reload, and freeing two hundred thousand texts there
//! would keep its requests waiting.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// The rows. The hash needs no secret seed, because only the operator chooses what the table holds.
#[derive(Default)]
pub(super) struct Table {
    /// Of each row `from`, then `to`.
    text: Vec<u8>,
    rows: Vec<Entry>,
    /// Numbers of rows, from 1, at the slot of their hash or behind it; 0 is free. At most half are taken.
    slots: Vec<u32>,
    /// Whether any `from` has a query.
    queries: bool,
}

struct Entry {
    at: u32,
    line: u32,
    from: u16,
    to: u16,
    status: u16,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// A canonical path, perhaps with a query.
    pub(super) from: &'a [u8],
    /// The target.
    pub(super) to: &'a [u8],
    /// The status.
    pub(super) status: u16,
    /// The line in the file, from 1.
    pub(super) line: u32,
}

/// Why a row is not in the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// This line has the same `from`.
    Duplicate(u32),
    /// A URL is longer than [`MAX_URL`].
    TooLong,
}

/// Longest `from` and `to`, in bytes.
pub(super) const MAX_URL: usize = 8 * 1024;

impl Row<'_> {
    /// Whether `from` has a query.
    pub(super) fn has_query(&self) -> bool {
        self.from.contains(&b'?')
    }
}

impl Table {
    /// Adds a row.
    pub(super) fn add(&mut self, row: Row<'_>) -> Result<(), Refused> {
        let (Some(from), Some(to)) = (length(row.from), length(row.to)) else { return Err(Refused::TooLong) };
        if let Some(same) = self.at(row.from) {
            return Err(Refused::Duplicate(self.rows[same].line));
        }
        let at = u32::try_from(self.text.len())
            .expect("a file has at most 32 MiB, and escaping triples it at most");
        self.text.extend_from_slice(row.from);
        self.text.extend_from_slice(row.to);
        self.rows.push(Entry { at, line: row.line, from, to, status: row.status });
        self.queries |= row.has_query();
        if self.rows.len() * 2 > self.slots.len() {
            self.slots = vec![0; (self.rows.len() * 4).next_power_of_two()];
            (0..self.rows.len()).for_each(|number| self.enter(number));
        } else {
            self.enter(self.rows.len() - 1);
        }
        Ok(())
    }

    /// The row for a request's path and query: the one with this query, or else the one with the path alone.
    pub(super) fn find(&self, path: &[u8], query: Option<&[u8]>) -> Option<usize> {
        let exact = query.filter(|_| self.queries).and_then(|query| self.at(&[path, b"?", query].concat()));
        exact.or_else(|| self.at(path))
    }

    pub(super) fn row(&self, number: usize) -> Row<'_> {
        let entry = &self.rows[number];
        let (from, rest) = self.text[entry.at as usize..].split_at(usize::from(entry.from));
        Row { from, to: &rest[..usize::from(entry.to)], status: entry.status, line: entry.line }
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number of the row with exactly this `from`.
    fn at(&self, from: &[u8]) -> Option<usize> {
        let mut slot = self.slot(from);
        loop {
            let number = self.slots.get(slot)?.checked_sub(1)? as usize;
            if self.row(number).from == from {
                return Some(number);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    fn enter(&mut self, number: usize) {
        let mut slot = self.slot(self.row(number).from);
        while self.slots[slot] != 0 {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = number as u32 + 1; // far fewer rows than bytes of text, whose places fit
    }

    /// The first slot to look at. Any number while there are none.
    fn slot(&self, from: &[u8]) -> usize {
        FixedState::default().hash_one(from) as usize & self.slots.len().wrapping_sub(1)
    }
}

fn length(text: &[u8]) -> Option<u16> {
    u16::try_from(text.len()).ok().filter(|&length| usize::from(length) <= MAX_URL)
}
