//! The memory of a store: its objects, incoming answers, and evicted objects that slow clients are still reading.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_wire::memory_file::{Kept, keep, memory};

/// Counts bytes up to a limit.
#[derive(Debug)]
pub(super) struct Account {
    limit: u64,
    used: AtomicU64,
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Counts this many bytes, if there is room.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let mut charge = Charge { account: Arc::clone(self), bytes: 0 };
        charge.grow(bytes).then_some(charge)
    }

    /// Bytes that count while anyone holds a part of them, with the rest of their last page. Their parts were counted
    /// before, so there is room.
    pub(super) fn own(self: &Arc<Self>, data: Vec<u8>) -> Bytes {
        let bytes = memory(data.len() as u64);
        self.used.fetch_add(bytes, Relaxed);
        Bytes::from_owner(Owned { data: keep(data), _charge: Charge { account: Arc::clone(self), bytes } })
    }
}

impl Charge {
    /// Counts more bytes; without room, counts nothing and returns false.
    pub(super) fn grow(&mut self, more: u64) -> bool {
        let before = self.account.used.fetch_add(more, Relaxed);
        let fits = before.saturating_add(more) <= self.account.limit;
        if fits {
            self.bytes += more;
        } else {
            self.account.used.fetch_sub(more, Relaxed);
        }
        fits
    }

    /// Counts fewer bytes.
    pub(super) fn give_back(&mut self, less: u64) {
        let less = less.min(self.bytes);
        self.bytes -= less;
        self.account.used.fetch_sub(less, Relaxed);
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Relaxed);
    }
}

struct Owned {
    data: Kept,
    _charge: Charge,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        self.data.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::memory_file::FROM_BYTES;

    #[test]
    fn what_is_held_counts() {
        let account = Account::new(100);
        let mut charge = account.charge(60).unwrap();
        assert!(account.charge(41).is_none());
        assert!(!charge.grow(41) && charge.grow(40));
        assert_eq!((charge.bytes(), account.used()), (100, 100));
        charge.give_back(30);
        assert_eq!((charge.bytes(), account.used()), (70, 70));
        drop(charge);
        let part = account.own(vec![0; 50]).slice(3..4);
        assert_eq!(account.used(), 50);
        drop(part);
        assert_eq!(account.used(), 0);
        let long = account.own(vec![7; FROM_BYTES + 1]);
        assert_eq!((long.len(), account.used()), (FROM_BYTES + 1, memory(FROM_BYTES as u64 + 1)));
        assert!(account.used() > long.len() as u64 && long.iter().all(|&b| b == 7));
    }
}
