//! The bytes of config for matches of objects that are left out as a whole.
//!
//! These matches answer with an error, because a wider route, which may lack what guards them, would otherwise take
//! their requests. An object may be left out because the config is too long (`quota.rs`), so what its matches cost is
//! limited as well: for each namespace, and for all of them.

use std::collections::BTreeMap;

/// What a namespace has.
const OF_NAMESPACE: usize = 64 << 10;
/// What all namespaces have together: half of what the longest config leaves for the operator's own sections.
const OF_ALL: usize = 512 << 10;

/// The bytes that one translation has used so far.
#[derive(Debug, Default)]
pub(super) struct Room {
    of_namespace: BTreeMap<String, usize>,
    of_all: usize,
}

impl Room {
    /// Takes so many bytes for an object of a namespace. False if the namespace, or all together, would have more than
    /// they may; then nothing is taken.
    pub(super) fn take(&mut self, namespace: &str, bytes: usize) -> bool {
        let own = self.of_namespace.entry(namespace.to_owned()).or_default();
        let fits = *own + bytes <= OF_NAMESPACE && self.of_all + bytes <= OF_ALL;
        if fits {
            *own += bytes;
            self.of_all += bytes;
        }
        fits
    }

    /// What all namespaces have used.
    pub(super) const fn used(&self) -> usize {
        self.of_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_takes_the_room_of_all() {
        let mut room = Room::default();
        assert!(room.take("a", OF_NAMESPACE));
        assert!(!room.take("a", 1));
        let others = (0..).take_while(|number| room.take(&format!("n{number}"), OF_NAMESPACE)).count();
        assert_eq!((others + 1) * OF_NAMESPACE, OF_ALL);
        assert_eq!(room.used(), OF_ALL);
        assert!(!room.take("b", 1));
    }
}
