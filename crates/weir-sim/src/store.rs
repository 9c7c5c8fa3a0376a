//! A model of etcd: revisions, leases, transactions, watches, compaction, and a disk that can be lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weir_fleet::coordinator::{Campaigned, Looked};
use weir_fleet::follower::{Found, Seen};
use weir_fleet::session::Lease;
use weir_fleet::{Digest, NodeReport, Pointer, Time};

/// How the keys of an etcd look to a fleet.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) is_up: bool,
    pub(crate) revision: u64,
    compacted: u64,
    /// Leases are never given twice, whatever is lost.
    next_lease: Lease,
    pointer: Option<(Pointer, u64)>,
    history: VecDeque<(u64, Option<Pointer>)>,
    pub(crate) bundles: BTreeMap<Digest, u64>,
    nodes: BTreeMap<usize, (NodeReport, Lease)>,
    leader: Option<(usize, Lease, u64)>,
    leases: BTreeMap<Lease, Time>,
    watches: Vec<Watcher>,
    pub(crate) reads: u64,
}

/// A stream that tells of changes.
#[derive(Clone, Debug)]
struct Watcher {
    node: usize,
    number: u64,
    from: u64,
}

/// How long a lease lives.
const TTL: Duration = Duration::from_secs(15);

impl Store {
    pub(crate) fn new() -> Self {
        Self { is_up: true, revision: 1, next_lease: 1, ..Self::default() }
    }

    /// Its disk is lost: it begins anew. Watches end with the process.
    pub(crate) fn wipe(&mut self) {
        *self = Self { next_lease: self.next_lease, reads: self.reads, is_up: self.is_up, ..Self::new() };
    }

    pub(crate) fn stop(&mut self) -> Vec<(usize, u64)> {
        self.is_up = false;
        self.watches.drain(..).map(|watcher| (watcher.node, watcher.number)).collect()
    }

    /// Leases live on as long as before: etcd gives them their whole time again after a restart.
    pub(crate) fn start(&mut self, now: Time) {
        self.is_up = true;
        self.leases.values_mut().for_each(|end| *end = now + TTL);
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    // === leases ===

    pub(crate) fn expire(&mut self, now: Time) {
        let over: Vec<Lease> =
            self.leases.iter().filter(|(_, end)| **end <= now).map(|(lease, _)| *lease).collect();
        for lease in over {
            self.leases.remove(&lease);
            self.nodes.retain(|_, (_, under)| *under != lease);
            if self.leader.is_some_and(|(_, under, _)| under == lease) {
                self.leader = None;
            }
            self.revision += 1;
        }
    }

    pub(crate) fn grant(&mut self, now: Time) -> Lease {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, now + TTL);
        self.next_lease
    }

    pub(crate) fn keep_alive(&mut self, lease: Lease, now: Time) -> bool {
        self.leases.get_mut(&lease).map(|end| *end = now + TTL).is_some()
    }

    pub(crate) fn put_report(&mut self, node: usize, lease: Lease, report: NodeReport) -> bool {
        if !self.leases.contains_key(&lease) {
            return false;
        }
        self.revision += 1;
        self.nodes.insert(node, (report, lease));
        true
    }

    // === the pointer ===

    pub(crate) fn read(&mut self) -> Seen {
        self.reads += 1;
        self.seen(self.revision)
    }

    fn seen(&self, revision: u64) -> Seen {
        match &self.pointer {
            Some((pointer, modified)) => Seen {
                revision,
                modified: *modified,
                // As it travels.
                pointer: match Pointer::read(&pointer.write()) {
                    Ok(pointer) => Found::Pointer(Box::new(pointer)),
                    Err(unreadable) => Found::Unreadable(unreadable.0),
                },
            },
            None => Seen { revision, modified: 0, pointer: Found::Nothing },
        }
    }

    pub(crate) const fn pointer(&self) -> Option<&(Pointer, u64)> {
        self.pointer.as_ref()
    }

    /// Opens a watch: what has happened since, or that it was compacted.
    pub(crate) fn watch(&mut self, node: usize, number: u64, from: u64) -> Result<Vec<Seen>, u64> {
        self.watches.retain(|watcher| watcher.node != node);
        if from <= self.compacted {
            return Err(self.compacted);
        }
        self.watches.push(Watcher { node, number, from });
        let missed = self.history.iter().filter(|(revision, _)| *revision >= from);
        Ok(missed
            .map(|(revision, pointer)| Seen {
                revision: *revision,
                modified: pointer.as_ref().map_or(0, |_| *revision),
                pointer: pointer.clone().map_or(Found::Nothing, |pointer| Found::Pointer(Box::new(pointer))),
            })
            .collect())
    }

    pub(crate) fn unwatch(&mut self, node: usize) {
        self.watches.retain(|watcher| watcher.node != node);
    }

    /// Writes the pointer if it still stands at `revision` (0 for none). Tells whom to tell, and what.
    pub(crate) fn put_pointer(
        &mut self,
        pointer: &Pointer,
        revision: u64,
        bundle: Option<Digest>,
        unused: &[Digest],
    ) -> Option<Vec<(usize, u64, Seen)>> {
        if self.pointer.as_ref().map_or(0, |(_, modified)| *modified) != revision {
            return None;
        }
        self.revision += 1;
        if let Some(bundle) = bundle {
            self.bundles.insert(bundle, self.revision);
        }
        self.bundles.retain(|digest, _| *digest == pointer.to || !unused.contains(digest));
        self.pointer = Some((pointer.clone(), self.revision));
        self.history.push_back((self.revision, Some(pointer.clone())));
        let seen = self.seen(self.revision);
        let told = self.watches.iter().filter(|watcher| watcher.from <= self.revision);
        Some(told.map(|watcher| (watcher.node, watcher.number, seen.clone())).collect())
    }

    // === the election ===

    pub(crate) fn campaign(&mut self, node: usize, lease: Lease) -> Option<Campaigned> {
        if !self.leases.contains_key(&lease) {
            return None;
        }
        match self.leader {
            None => {
                self.revision += 1;
                self.leader = Some((node, lease, self.revision));
                Some(Campaigned::Ours(lease, self.revision))
            }
            Some((holder, under, key)) if (holder, under) == (node, lease) => {
                Some(Campaigned::Ours(lease, key))
            }
            Some(_) => Some(Campaigned::Theirs),
        }
    }

    pub(crate) fn is_leader(&self, key: u64) -> bool {
        self.leader.is_some_and(|(_, _, made)| made == key)
    }

    pub(crate) const fn leader(&self) -> Option<usize> {
        match self.leader {
            Some((node, _, _)) => Some(node),
            None => None,
        }
    }

    pub(crate) fn look(&mut self) -> Looked {
        self.reads += 1;
        Looked { nodes: self.nodes.values().map(|(report, _)| report.clone()).collect() }
    }

    pub(crate) fn watchers(&self) -> usize {
        self.watches.len()
    }
}
