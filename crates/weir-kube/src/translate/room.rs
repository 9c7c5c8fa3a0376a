//! The bytes of config for matches of objects that are left out as a whole.
//!
//! These matches answer with an error, because a wider route, which may lack what guards them, would otherwise take
//! their requests. An object may be left out because the config is too long (`quota.rs`), so what its matches cost is
//! limited as well. Hosts of ListenerSets that are left out count too.

use std::collections::BTreeMap;

/// What all namespaces have together: half of what the longest config leaves for the operator's own sections.
const OF_ALL: usize = 512 << 10;
/// A namespace may take an eighth of what the others have left, at most 64 KiB. However many namespaces a tenant has,
/// another one still has some room.
const PART: usize = 8;

/// The bytes that one translation has used so far.
#[derive(Debug, Default)]
pub(super) struct Room {
    of_namespace: BTreeMap<String, usize>,
    of_all: usize,
}

impl Room {
    /// Takes so many bytes for an object of a namespace. False if the namespace would have more than it may, and then
    /// nothing is taken.
    pub(super) fn take(&mut self, namespace: &str, bytes: usize) -> bool {
        let own = self.of_namespace.entry(namespace.to_owned()).or_default();
        let left = OF_ALL - (self.of_all - *own);
        let fits = *own + bytes <= left / PART;
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
        assert!(room.take("a", OF_ALL / PART));
        assert!(!room.take("a", 1));
        let fill =
            |room: &mut Room, namespace: &str| (0..).take_while(|_| room.take(namespace, 1 << 10)).count();
        assert_eq!(fill(&mut room, "n0"), 56);
        for number in 1..30 {
            fill(&mut room, &format!("n{number}"));
        }
        assert!(room.used() <= OF_ALL);
        assert!(room.take("b", 1 << 10), "{} bytes are used", room.used());
    }
}
