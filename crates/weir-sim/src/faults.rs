//! The faults of a run and the changes published meanwhile, all derived from the seed.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_fleet::plan::{self, Author, Canary};
use weir_fleet::pointer::{Labels, Step};
use weir_fleet::{Bundle, Chance, Digest, NodeReport, Pointer};

/// The effect of a bundle on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It runs.
    Good,
    /// It compiles on no node.
    Poison,
    /// It compiles, but the node becomes unhealthy.
    Sick,
    /// It compiles on some nodes only: a variable is missing on others.
    Picky,
    /// It kills the process that compiles it.
    Deadly,
}

/// The bundles of a run.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    kinds: BTreeMap<Digest, Kind>,
    packed: BTreeMap<Digest, Vec<u8>>,
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
        let (digest, packed) = bundle(&format!("# {}", self.made));
        self.kinds.insert(digest, kind);
        self.packed.insert(digest, packed);
        digest
    }

    /// A bundle in its stored form.
    pub(crate) fn packed(&self, digest: Digest) -> Vec<u8> {
        self.packed.get(&digest).cloned().unwrap_or_default()
    }

    pub(crate) fn kind(&self, digest: Digest) -> Kind {
        self.kinds.get(&digest).copied().unwrap_or(Kind::Good)
    }

    /// Whether a bundle compiles on a node.
    pub(crate) fn compiles(&self, digest: Digest, node: usize) -> bool {
        match self.kind(digest) {
            Kind::Good | Kind::Sick => true,
            Kind::Poison | Kind::Deadly => false,
            Kind::Picky => !node.is_multiple_of(7),
        }
    }
}

/// A bundle of one file, with its stored form.
pub(crate) fn bundle(text: &str) -> (Digest, Vec<u8>) {
    let bundle = Bundle::new([(weir_fleet::bundle::MAIN.to_owned(), text.as_bytes().to_vec())]);
    bundle.and_then(|bundle| Ok((bundle.digest(), bundle.pack()?))).unwrap_or((Digest::of(&[]), Vec::new()))
}

/// A fault, or its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// etcd stops; its disk survives.
    StoreStops,
    /// etcd starts again.
    StoreStarts,
    /// etcd starts again with an empty disk.
    StoreStartsEmpty,
    /// etcd starts again from a backup, taken at the last compaction.
    StoreStartsRestored,
    /// etcd discards all earlier revisions.
    Compacts,
    /// The link between a node and etcd is cut in both directions.
    Cut(usize, Duration),
    /// The links between half of the nodes and etcd are cut.
    Split(usize, Duration),
    /// etcd hears a node, but the node does not hear etcd.
    Deaf(usize, Duration),
    /// The coordinator is killed, and with it a node that tries a bundle.
    KillLeader,
    /// One byte of a stored bundle is wrong for this long, so that it no longer matches its digest.
    Garble(Duration),
    /// Somebody deletes the pointer.
    Deletes,
    /// Somebody overwrites the pointer with nonsense.
    Scribbles,
    /// A node's packets are often lost and slow, for this long.
    Slow(usize, Duration),
    /// A node's watch goes silent without being closed.
    WatchDies(usize),
    /// A process is killed.
    Crash(usize),
    /// A process is killed, and its cached bundle is damaged.
    CrashDamaged(usize),
    /// A disk is full for this long.
    Full(usize, Duration),
}

/// Schedules faults between `from` and `to`.
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
        match chance.below(28) {
            0 | 1 => {
                let again = (now + for_a_while).min(to); // after `to`, nothing breaks any more
                faults.push((now, Fault::StoreStops));
                let start = match chance.below(8) {
                    0 | 1 => Fault::StoreStartsEmpty,
                    2 => Fault::StoreStartsRestored,
                    _ => Fault::StoreStarts,
                };
                faults.push((again, start));
                now = again;
            }
            2..=4 => faults.push((now, Fault::Compacts)),
            5..=8 => faults.push((now, Fault::Cut(node, for_a_while))),
            9..=11 => faults.push((now, Fault::Slow(node, for_a_while))),
            12 | 13 => faults.push((now, Fault::WatchDies(node))),
            14..=16 => faults.push((now, Fault::Crash(node))),
            17 => faults.push((now, Fault::CrashDamaged(node))),
            18 => faults.push((now, Fault::Split(node, for_a_while))),
            19 | 20 => faults.push((now, Fault::Deaf(node, for_a_while))),
            21 | 22 | 25 | 26 => faults.push((now, Fault::KillLeader)),
            23 => faults.push((now, Fault::Garble(for_a_while))),
            24 if chance.happens(50) => {
                let fault = if chance.happens(50) { Fault::Deletes } else { Fault::Scribbles };
                faults.push((now, fault));
            }
            _ => faults.push((now, Fault::Full(node, for_a_while))),
        }
        now += chance.between(Duration::from_millis(200), Duration::from_secs(12));
    }
    faults
}

/// The result of a publisher's work: the new pointer, the bundle that comes with it, and the bundles to delete.
pub(crate) type Written = (Pointer, Option<Digest>, Vec<Digest>);

/// A publisher makes a change, based on the pointer and the reports.
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
            let kept: Vec<Digest> = before.earlier.iter().chain(&before.from).copied().collect();
            let named = usize::try_from(chance.below(kept.len() as u64 + 1)).unwrap_or(0);
            let named = kept.get(named).copied().filter(|digest| bundles.kind(*digest) != Kind::Deadly);
            let to = if chance.happens(30) { named } else { None };
            plan::roll_back(before, to, author).ok().map(|(pointer, unused)| (pointer, None, unused))
        }
        _ => {
            // A deadly bundle is published only with a canary, since it would otherwise kill the whole fleet.
            let is_deadly = before.is_some() && chance.happens(10);
            let digest = if is_deadly { bundles.make_a(Kind::Deadly) } else { bundles.make(chance) };
            let hold = chance.between(Duration::ZERO, Duration::from_secs(20));
            let share = |percent| Step::Share { percent, also: Vec::new() };
            let canary = match if is_deadly { 1 } else { chance.below(5) } {
                0 => Some(vec![share(10)]),
                1 | 2 => Some(vec![Step::Labels(canary())]),
                3 => Some(vec![Step::Labels(canary()), share(5), share(40)]),
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
