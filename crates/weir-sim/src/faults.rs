//! What breaks, and what is published meanwhile. All of it is drawn from the seed.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_fleet::plan::{self, Author, Canary};
use weir_fleet::pointer::{Labels, Step};
use weir_fleet::{Chance, Digest, NodeReport, Pointer};

/// What a bundle does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It runs.
    Good,
    /// It compiles nowhere.
    Poison,
    /// It compiles, and serves badly.
    Sick,
    /// It compiles on some nodes only: a variable is missing on others.
    Picky,
}

/// The bundles of a run.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    kinds: BTreeMap<Digest, Kind>,
    made: u64,
}

impl Bundles {
    pub(crate) fn make(&mut self, chance: &mut Chance) -> Digest {
        let kind = match chance.below(10) {
            0 | 1 => Kind::Poison,
            2 => Kind::Sick,
            3 => Kind::Picky,
            _ => Kind::Good,
        };
        self.make_a(kind)
    }

    pub(crate) fn make_a(&mut self, kind: Kind) -> Digest {
        self.made += 1;
        let digest = Digest::of(&[b"bundle", &self.made.to_be_bytes()]);
        self.kinds.insert(digest, kind);
        digest
    }

    pub(crate) fn kind(&self, digest: Digest) -> Kind {
        self.kinds.get(&digest).copied().unwrap_or(Kind::Good)
    }

    /// Whether a bundle compiles on a node.
    pub(crate) fn compiles(&self, digest: Digest, node: usize) -> bool {
        match self.kind(digest) {
            Kind::Good | Kind::Sick => true,
            Kind::Poison => false,
            Kind::Picky => !node.is_multiple_of(7),
        }
    }
}

/// Something that goes wrong, or right again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// etcd ends; what is written on its disk stays.
    StoreStops,
    /// etcd starts again.
    StoreStarts,
    /// etcd starts again without its disk.
    StoreStartsEmpty,
    /// Revisions before now are gone.
    Compacts,
    /// A node and etcd do not hear each other; 0 for good.
    Cut(usize, Duration),
    /// A node's packets are often lost and slow for so long.
    Slow(usize, Duration),
    /// A node's watch goes silent without an end.
    WatchDies(usize),
    /// A process is killed.
    Crash(usize),
    /// A process is killed, and its cache is damaged.
    CrashDamaged(usize),
    /// A disk is full for so long.
    Full(usize, Duration),
}

/// What is to happen between `from` and `to`, and when.
pub(crate) fn plan(
    chance: &mut Chance,
    nodes: usize,
    from: Duration,
    to: Duration,
) -> Vec<(Duration, Fault)> {
    let mut faults = Vec::new();
    let mut now = from;
    while now < to {
        let node = usize::try_from(chance.below(nodes as u64)).unwrap_or(0);
        let for_a_while = chance.between(Duration::from_secs(1), Duration::from_secs(40));
        match chance.below(20) {
            0 | 1 => {
                let again = (now + for_a_while).min(to); // afterwards nothing breaks any more
                let empty = chance.happens(25);
                faults.push((now, Fault::StoreStops));
                faults.push((again, if empty { Fault::StoreStartsEmpty } else { Fault::StoreStarts }));
                now = again;
            }
            2..=4 => faults.push((now, Fault::Compacts)),
            5..=8 => faults.push((now, Fault::Cut(node, for_a_while))),
            9..=11 => faults.push((now, Fault::Slow(node, for_a_while))),
            12 | 13 => faults.push((now, Fault::WatchDies(node))),
            14..=16 => faults.push((now, Fault::Crash(node))),
            17 => faults.push((now, Fault::CrashDamaged(node))),
            _ => faults.push((now, Fault::Full(node, for_a_while))),
        }
        now += chance.between(Duration::from_millis(200), Duration::from_secs(12));
    }
    faults
}

/// What somebody writes who has read the pointer and the reports: the new pointer, the bundle that comes with it, and those that go.
pub(crate) type Written = (Pointer, Option<Digest>, Vec<Digest>);

/// Somebody at a keyboard.
pub(crate) fn publish(
    chance: &mut Chance,
    bundles: &mut Bundles,
    before: Option<&Pointer>,
    nodes: &[NodeReport],
) -> Option<Written> {
    let author = Author::default();
    match (chance.below(10), before) {
        (0, Some(before)) => plan::halt(before, "by hand").ok().map(|pointer| (pointer, None, Vec::new())),
        (1 | 2, Some(before)) => plan::resume(before).ok().map(|pointer| (pointer, None, Vec::new())),
        (3, Some(before)) => {
            plan::roll_back(before, None, author).ok().map(|(pointer, unused)| (pointer, None, unused))
        }
        _ => {
            let digest = bundles.make(chance);
            let hold = chance.between(Duration::ZERO, Duration::from_secs(20));
            let canary = match chance.below(4) {
                0 => Some(vec![Step::Share { percent: 10, also: Vec::new() }]),
                1 | 2 => Some(vec![Step::Labels(canary())]),
                _ => None,
            };
            let canary = canary.map(|steps| Canary { steps, hold });
            let (pointer, unused) = plan::publish(before, digest, canary, nodes, author).ok()?;
            Some((pointer, Some(digest), unused))
        }
    }
}

/// The label of canaries.
pub(crate) fn canary() -> Labels {
    Labels::from([("canary".to_owned(), "true".to_owned())])
}
