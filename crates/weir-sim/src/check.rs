//! The invariants: at every step, and after all faults have ended.

use crate::faults::{Bundles, Kind};
use crate::store::Store;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use weir_fleet::pointer::{Labels, State};
use weir_fleet::{Digest, NodeReport, Pointer, Time};

/// Maximum age of the data that a coordinator acts on: a query and its answer on a slow link.
const STALE: Duration = Duration::from_secs(8);

/// A violated invariant.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The seed of the run.
    pub seed: u64,
    /// The time, on the simulation's clock.
    pub at: Time,
    /// The violation.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} at {:?}: {}", self.seed, self.at, self.what)
    }
}

impl std::error::Error for Broken {}

/// Observes a run and remembers the first violation.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// All pointers that were ever written.
    written: Vec<Pointer>,
    /// When the current pointer was written.
    stood: Time,
    /// The bundles that each node refused since it started.
    refused: BTreeMap<(usize, u64), Vec<Digest>>,
    /// How often etcd has lost its disk, and when it last did.
    life: (u64, Time),
    /// The latest process of each node.
    processes: BTreeMap<usize, Began>,
    pub(crate) broken: Option<(Time, String)>,
}

/// The actual state of a process, whatever its reports say.
#[derive(Clone, Copy, Debug)]
struct Began {
    boot: u64,
    at: Time,
    with: Option<Digest>,
    /// The pointer that it knows: how often etcd had lost its disk by then, and the revision.
    knows: (u64, u64),
}

/// The bundle that a pointer assigns to a node. Implemented a second time here, so that the checks do not rely on
/// the code under test.
pub(crate) fn assigned(pointer: &Pointer, name: &str, labels: &Labels) -> Option<Digest> {
    let rollout = &pointer.rollout;
    let is_open = rollout.steps.iter().take(rollout.open).any(|step| step.has(name, labels, pointer.to));
    match rollout.state {
        State::Done => Some(pointer.to),
        State::Halted | State::Running if is_open => Some(pointer.to),
        State::Halted | State::Running => pointer.from,
    }
}

impl Checker {
    pub(crate) fn breaks(&mut self, at: Time, what: String) {
        self.broken.get_or_insert((at, what));
    }

    /// Records that a publisher or a coordinator wrote a pointer. `before` is the previous pointer and its
    /// revision.
    pub(crate) fn wrote(
        &mut self,
        at: Time,
        pointer: &Pointer,
        before: (Option<&Pointer>, u64),
        by_coordinator: bool,
        (bundles, store): (&Bundles, &Store),
    ) {
        if by_coordinator {
            self.moved(at, pointer, before, (bundles, store));
        }
        let needed = [pointer.to].into_iter().chain(pointer.from).chain(pointer.earlier.iter().copied());
        let known: Vec<Digest> = self.written.iter().map(|pointer| pointer.to).collect();
        // Bundles lost with etcd's disk are nobody's fault.
        if store.life == 0
            && let Some(gone) = needed
                .into_iter()
                .find(|digest| !store.bundles.contains_key(digest) && known.contains(digest))
        {
            self.breaks(at, format!("{gone:?} was taken away though {pointer:?} names it"));
        }
        self.written.push(pointer.clone());
        self.stood = at;
    }

    fn moved(
        &mut self,
        at: Time,
        pointer: &Pointer,
        (before, revision): (Option<&Pointer>, u64),
        (bundles, store): (&Bundles, &Store),
    ) {
        let Some(before) = before else {
            return self.breaks(at, "a coordinator wrote a pointer where there was none".to_owned());
        };
        if before.rollout.state != State::Running || before.generation != pointer.generation {
            self.breaks(at, format!("a coordinator changed what is not under way: {before:?}"));
        }
        let (was, is) = (before.rollout.open, pointer.rollout.open);
        if is > was + 1 {
            self.breaks(at, format!("a coordinator opened {} steps at once", is - was));
        }
        // Canaries exist to keep these bundles from the other nodes.
        let bad = matches!(bundles.kind(pointer.to), Kind::Poison | Kind::Sick | Kind::Deadly);
        if bad && is > 1 {
            self.breaks(at, format!("{:?} got past its canary", pointer.to));
        }
        if bad && pointer.rollout.state == State::Done {
            self.breaks(at, format!("{:?} was called done", pointer.to));
        }
        if pointer.rollout.state != State::Halted
            && let Some(why) = self.too_early(at, (before, revision), store)
        {
            self.breaks(at, format!("step {was} of {:?} was passed though {why}", before.to));
        }
    }

    /// Why a step was passed too early, judged by the content of etcd and by the actual events.
    fn too_early(&self, at: Time, (before, revision): (&Pointer, u64), store: &Store) -> Option<String> {
        // Node clocks run up to one twentieth too fast.
        let hold = Duration::from_millis(before.rollout.hold_ms) * 20 / 21;
        let is_tried = before.rollout.open < before.rollout.steps.len();
        if at - self.stood < hold {
            return Some("it has not held yet".to_owned());
        }
        let takes = |report: &NodeReport| {
            let mut open = before.rollout.steps.iter().take(before.rollout.open);
            open.any(|step| step.has(&report.node, &report.labels, before.to))
        };
        for (node, said) in store.live().filter(|(_, live)| takes(&live.report) && live.at + STALE < at) {
            let report = &said.report;
            if report.running != Some(before.to) || report.generation != before.generation {
                return Some(format!("node {node} runs {:?}", report.running));
            }
            let blames = [&report.refused, &report.unwell].into_iter().flatten();
            if blames.into_iter().any(|reason| reason.bundle == before.to) {
                return Some(format!("node {node} has something against it"));
            }
            if is_tried && at - said.runs_since < hold {
                return Some(format!("node {node} runs it only since {:?}", said.runs_since));
            }
            let began = self.processes.get(&node).filter(|began| began.boot == report.boot);
            if is_tried && began.is_some_and(|began| began.at > self.stood && began.with == Some(before.to)) {
                return Some(format!("node {node} started anew with it"));
            }
        }
        let died = |(_, report, missed): &(usize, &NodeReport, Time)| {
            takes(report) && report.tries == revision && *missed + STALE < at
        };
        let died = store.gone().find(died).filter(|_| is_tried)?;
        Some(format!("node {} took it and died", died.0))
    }

    /// Records the start of a process.
    pub(crate) fn begins(
        &mut self,
        at: Time,
        node: usize,
        boot: u64,
        (with, runs): (Option<Digest>, Option<Digest>),
    ) {
        let began = Began { boot, at, with, knows: (0, 0) };
        self.processes.insert(node, began);
        if with != runs {
            self.breaks(at, format!("node {node} has {with:?} on its disk and serves {runs:?}"));
        }
    }

    /// Records that a node knows the pointer of this revision. `life` counts etcd's lost disks.
    pub(crate) fn knows(&mut self, at: Time, node: usize, boot: u64, (life, revision): (u64, u64)) {
        let Some(began) = self.processes.get_mut(&node).filter(|began| began.boot == boot) else { return };
        if life != self.life.0 {
            self.life = (life, at);
        }
        let before = began.knows;
        if before.1 == revision {
            return;
        }
        // A message sent before the loss of the disk may arrive later.
        let is_sure = at - self.life.1 > STALE;
        let knows = (if is_sure { life } else { before.0 }, revision);
        began.knows = knows;
        if is_sure && knows.0 == before.0 && knows.1 < before.1 && knows.1 > 0 {
            self.breaks(at, format!("node {node} went back from revision {} to {}", before.1, knows.1));
        }
    }

    /// Records that a node is about to compile a bundle.
    pub(crate) fn compiles(&mut self, at: Time, node: usize, boot: u64, digest: Digest) {
        if self.refused.get(&(node, boot)).is_some_and(|all| all.contains(&digest)) {
            self.breaks(at, format!("node {node} tried {digest:?} again, which it had refused"));
        }
    }

    pub(crate) fn refuses(&mut self, node: usize, boot: u64, digest: Digest) {
        self.refused.entry((node, boot)).or_default().push(digest);
    }

    /// Records that a node runs a bundle.
    pub(crate) fn runs(
        &mut self,
        at: Time,
        node: (usize, &str, &Labels),
        (digest, was): (Digest, Option<Digest>),
        bundles: &Bundles,
    ) {
        let (number, name, labels) = node;
        let said = self.written.iter().any(|pointer| assigned(pointer, name, labels) == Some(digest));
        if !said {
            self.breaks(at, format!("node {number} runs {digest:?}, which no pointer ever told it to"));
        }
        if was == Some(digest) {
            self.breaks(at, format!("node {number} built {digest:?} again, which it ran already"));
        }
        if !bundles.compiles(digest, number) {
            self.breaks(at, format!("node {number} runs {digest:?}, which does not compile there"));
        }
    }
}
