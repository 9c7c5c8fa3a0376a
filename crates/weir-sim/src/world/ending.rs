//! The invariants after all faults have ended, and at the end of the run.

use super::World;
use crate::check::assigned;
use crate::faults::Kind;
use weir_fleet::Pointer;
use weir_fleet::pointer::State;

impl World {
    /// Checks that every node that can run its assigned bundle does. While a rollout runs, the assignment may
    /// still change, so there is no check.
    pub(super) fn all_settled(&mut self) {
        if let Some((pointer, _)) = self.store.pointer().cloned()
            && pointer.rollout.state != State::Running
        {
            self.everybody_follows(&pointer);
        }
    }

    fn everybody_follows(&mut self, pointer: &Pointer) {
        let now = self.now;
        for (number, node) in self.nodes.iter().enumerate() {
            let wanted = assigned(pointer, &node.name, &node.labels);
            if wanted.is_some_and(|digest| self.bundles.kind(digest) == Kind::Deadly) {
                continue; // it crashes again and again
            }
            let Some(process) = &node.process else {
                self.checker.breaks(now, format!("node {number} does not run"));
                continue;
            };
            let runs = process.follower.running();
            let there = wanted.filter(|digest| self.store.bundles.contains_key(digest));
            if let Some(digest) = there
                && self.bundles.compiles(digest, number)
                && runs != Some(digest)
            {
                self.checker.breaks(now, format!("node {number} runs {runs:?} instead of {digest:?}"));
            }
            if node.disk != runs && node.full_until < now {
                self.checker
                    .breaks(now, format!("node {number} runs {runs:?} and has {:?} on its disk", node.disk));
            }
        }
    }

    pub(super) fn last_check(&mut self) {
        let now = self.now;
        let Some((pointer, _)) = self.store.pointer().cloned() else {
            return self.checker.breaks(now, "there is no pointer at the end".to_owned());
        };
        if pointer.rollout.state == State::Running {
            let leader = self.store.leader();
            self.checker.breaks(
                now,
                format!("the rollout still runs; the leader is {leader:?}: {:?}", pointer.rollout),
            );
        }
        if let Some(last) = self.last
            && (pointer.to != last || pointer.rollout.state != State::Done)
        {
            self.checker
                .breaks(now, format!("the last change {last:?} did not reach everybody: {pointer:?}"));
        }
        self.everybody_follows(&pointer);
        self.everybody_is_known(&pointer);
        let (reads, most) = (self.store.reads - self.quiet_reads, 3 * self.nodes.len() as u64 + 5);
        if reads > most {
            self.checker.breaks(now, format!("etcd was read {reads} times while nothing happened"));
        }
    }

    /// Checks that every node has reported what it runs, and has a working watch.
    fn everybody_is_known(&mut self, pointer: &Pointer) {
        let now = self.now;
        let reports = self.store.look().nodes;
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(process) = &node.process else { continue };
            let runs = process.follower.running();
            let wanted = assigned(pointer, &node.name, &node.labels);
            if wanted.is_some_and(|digest| self.bundles.kind(digest) == Kind::Deadly) {
                continue;
            }
            let said = reports.iter().find(|report| report.node == node.name);
            if said.is_none_or(|said| said.running != runs || said.generation != pointer.generation) {
                self.checker.breaks(now, format!("node {number} runs {runs:?} and says {said:?}"));
            }
            if !self.store.watches(number) {
                self.checker.breaks(now, format!("node {number} is told of nothing"));
            }
        }
    }
}
