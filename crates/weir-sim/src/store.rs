//! A model of etcd: revisions, leases, transactions, watches, compaction, and a disk that can be lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weir_fleet::coordinator::{Campaigned, Looked};
use weir_fleet::follower::{Found, Seen};
use weir_fleet::kv::{Entry, Range};
use weir_fleet::session::Lease;
use weir_fleet::{Digest, NodeReport, Pointer, Time};

/// The keys of an etcd that a fleet uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) is_up: bool,
    pub(crate) revision: u64,
    /// How often it has lost its disk.
    pub(crate) life: u64,
    compacted: u64,
    /// Lease ids are never reused, not even after a lost disk.
    next_lease: Lease,
    pointer: Option<(Pointer, u64)>,
    /// The revision at which an unreadable value replaced the pointer, while it does.
    scribble: Option<u64>,
    history: VecDeque<(u64, Found)>,
    /// In their stored form, as archives.
    pub(crate) bundles: BTreeMap<Digest, Vec<u8>>,
    nodes: BTreeMap<usize, LiveNode>,
    /// The last report of each node, including silent ones.
    remembered: BTreeMap<usize, NodeReport>,
    /// When silent nodes were first missed.
    gone: BTreeMap<usize, Time>,
    leader: Option<(usize, Lease, u64)>,
    leases: BTreeMap<Lease, Time>,
    watches: Vec<Watcher>,
    /// The copy that a restore brings back.
    backup: Option<Box<Self>>,
    pub(crate) reads: u64,
}

/// The report of a live node.
#[derive(Clone, Debug)]
pub(crate) struct LiveNode {
    pub(crate) report: NodeReport,
    lease: Lease,
    /// When it was written, and since when the node has reported the same bundle.
    pub(crate) at: Time,
    pub(crate) runs_since: Time,
}

/// A watch stream.
#[derive(Clone, Debug)]
struct Watcher {
    node: usize,
    number: u64,
    from: u64,
}

/// Lifetime of a lease.
const TTL: Duration = Duration::from_secs(15);

impl Store {
    pub(crate) fn new() -> Self {
        Self { is_up: true, revision: 1, next_lease: 1, ..Self::default() }
    }

    /// Loses the disk and starts empty. Watches end with the process.
    pub(crate) fn wipe(&mut self) {
        let life = self.life + 1;
        *self =
            Self { next_lease: self.next_lease, reads: self.reads, is_up: self.is_up, life, ..Self::new() };
    }

    /// Takes a backup.
    pub(crate) fn back_up(&mut self) {
        self.backup = None; // keep only one
        self.backup = Some(Box::new(self.clone()));
    }

    /// Replaces the lost disk by an earlier backup, so revisions go back.
    pub(crate) fn restore(&mut self) {
        let (life, next_lease, reads, is_up) = (self.life + 1, self.next_lease, self.reads, self.is_up);
        match self.backup.take() {
            Some(backup) => *self = Self { life, next_lease, reads, is_up, watches: Vec::new(), ..*backup },
            None => self.wipe(),
        }
    }

    pub(crate) fn stop(&mut self) -> Vec<(usize, u64)> {
        self.is_up = false;
        self.watches.drain(..).map(|watcher| (watcher.node, watcher.number)).collect()
    }

    /// Starts again. etcd renews the full lifetime of every lease after a restart.
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
            let silent = self.nodes.extract_if(.., |_, said| said.lease == lease);
            self.gone.extend(silent.map(|(node, _)| (node, now)));
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

    pub(crate) fn put_report(&mut self, node: usize, lease: Lease, report: NodeReport, at: Time) -> bool {
        if !self.leases.contains_key(&lease) {
            return false;
        }
        self.revision += 1;
        // A new node may have run this bundle for any length of time.
        let runs_since = match self.nodes.get(&node) {
            None => Time::ZERO,
            Some(said) if said.report.running == report.running => said.runs_since,
            Some(_) => at,
        };
        self.remembered.insert(node, report.clone());
        self.gone.remove(&node);
        self.nodes.insert(node, LiveNode { report, lease, at, runs_since });
        true
    }

    /// The live nodes.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &LiveNode)> {
        self.nodes.iter().map(|(node, said)| (*node, said))
    }

    /// The silent nodes: their last report, and when they were missed.
    pub(crate) fn gone(&self) -> impl Iterator<Item = (usize, &NodeReport, Time)> {
        self.gone.iter().filter_map(|(node, missed)| Some((*node, self.remembered.get(node)?, *missed)))
    }

    // === bundles ===

    /// The answer to a request for a bundle.
    pub(crate) fn bundle(&mut self, digest: Digest) -> Range {
        self.reads += 1;
        let entry = |value: &Vec<u8>| Entry {
            key: Vec::new(),
            value: value.clone(),
            created: 1,
            modified: 1,
            lease: 0,
        };
        let entries = self.bundles.get(&digest).map(entry).into_iter().collect();
        Range { revision: self.revision, entries, more: false }
    }

    // === the pointer ===

    pub(crate) fn read(&mut self) -> Seen {
        self.reads += 1;
        self.seen(self.revision)
    }

    fn seen(&self, revision: u64) -> Seen {
        match (&self.pointer, self.scribble) {
            (_, Some(modified)) => Seen { revision, modified, pointer: scribbled() },
            (Some((pointer, modified)), None) => {
                Seen { revision, modified: *modified, pointer: travelled(pointer) }
            }
            (None, None) => Seen { revision, modified: 0, pointer: Found::Nothing },
        }
    }

    /// Overwrites the pointer with nonsense, or deletes it.
    pub(crate) fn damage(&mut self, scribble: bool) -> Vec<(usize, u64, Seen)> {
        if self.pointer.is_none() && self.scribble.is_none() && !scribble {
            return Vec::new();
        }
        self.revision += 1;
        self.pointer = None;
        self.scribble = scribble.then_some(self.revision);
        self.history.push_back((self.revision, if scribble { scribbled() } else { Found::Nothing }));
        self.tells()
    }

    fn tells(&self) -> Vec<(usize, u64, Seen)> {
        let seen = self.seen(self.revision);
        let told = self.watches.iter().filter(|watcher| watcher.from <= self.revision);
        told.map(|watcher| (watcher.node, watcher.number, seen.clone())).collect()
    }

    pub(crate) const fn pointer(&self) -> Option<&(Pointer, u64)> {
        self.pointer.as_ref()
    }

    /// Opens a watch: returns the changes since then, or the error that they were compacted.
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
                modified: if *pointer == Found::Nothing { 0 } else { *revision },
                pointer: pointer.clone(),
            })
            .collect())
    }

    pub(crate) fn unwatch(&mut self, node: usize) {
        self.watches.retain(|watcher| watcher.node != node);
    }

    /// Writes the pointer if it is still at `revision` (0 if there is none). Returns the watchers to notify, and
    /// the change.
    pub(crate) fn put_pointer(
        &mut self,
        pointer: &Pointer,
        revision: u64,
        bundle: Option<Vec<u8>>,
        unused: &[Digest],
    ) -> Option<Vec<(usize, u64, Seen)>> {
        // The publisher removes nonsense first.
        if self.pointer.as_ref().map_or(0, |(_, modified)| *modified) != revision {
            return None;
        }
        self.revision += 1;
        if let Some(bundle) = bundle {
            self.bundles.insert(pointer.to, bundle);
        }
        self.bundles.retain(|digest, _| *digest == pointer.to || !unused.contains(digest));
        (self.pointer, self.scribble) = (Some((pointer.clone(), self.revision)), None);
        self.history.push_back((self.revision, travelled(pointer)));
        Some(self.tells())
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
        let silent = self.remembered.iter().filter(|(node, _)| !self.nodes.contains_key(node));
        Looked {
            nodes: self.nodes.values().map(|said| said.report.clone()).collect(),
            silent: silent.map(|(_, report)| report.clone()).collect(),
        }
    }

    /// Whether a node has a working watch.
    pub(crate) fn watches(&self, node: usize) -> bool {
        self.watches.iter().any(|watcher| watcher.node == node && watcher.from <= self.revision + 1)
    }
}

/// The pointer after encoding and decoding.
fn travelled(pointer: &Pointer) -> Found {
    match Pointer::read(&pointer.write()) {
        Ok(pointer) => Found::Pointer(Box::new(pointer)),
        Err(unreadable) => Found::Unreadable(unreadable.0),
    }
}

fn scribbled() -> Found {
    match Pointer::read(b"not a pointer") {
        Ok(pointer) => Found::Pointer(Box::new(pointer)),
        Err(unreadable) => Found::Unreadable(unreadable.0),
    }
}
