//! Publishers and faults: what people do to the world, and what breaks in it.

use super::{Event, Node, World};
use crate::faults::{self, Fault, Kind, Written};
use std::time::Duration;
use weir_fleet::follower::WatchEvent;
use weir_fleet::plan::{self, Author, Canary};
use weir_fleet::pointer::Step;

impl World {
    // === people ===

    pub(super) fn publishes(&mut self) {
        if !self.store.is_up {
            return;
        }
        let before = self.store.pointer().cloned();
        let (pointer, revision) = before.map_or((None, 0), |(pointer, revision)| (Some(pointer), revision));
        let nodes = self.store.look().nodes;
        if let Some(written) = faults::publish(&mut self.chance, &mut self.bundles, pointer.as_ref(), &nodes)
        {
            let wait = self.chance.between(Duration::from_millis(10), Duration::from_millis(500));
            self.after(wait, Event::Write(Box::new(written), revision));
        }
    }

    pub(super) fn writes(&mut self, (pointer, bundle, unused): Written, revision: u64) {
        if self.store.is_up {
            self.puts(&pointer, revision, bundle, &unused, false);
        }
    }

    pub(super) fn last_change(&mut self) {
        let before = self.store.pointer().cloned();
        let digest = self.bundles.make_a(Kind::Good);
        let (pointer, revision) = before.map_or((None, 0), |(pointer, revision)| (Some(pointer), revision));
        let nodes = self.store.look().nodes;
        let canary = Canary { steps: vec![Step::Labels(faults::canary())], hold: Duration::from_secs(5) };
        let canary = (self.settings.faults > Duration::ZERO).then_some(canary);
        match plan::publish(pointer.as_ref(), digest, canary, &nodes, Author::default()) {
            Ok((pointer, unused)) => {
                self.last = Some(digest);
                self.writes((pointer, Some(digest), unused), revision);
            }
            Err(e) => self.checker.breaks(self.now, format!("nothing can be published: {e}")),
        }
    }

    // === faults ===

    pub(super) fn breaks(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::StoreStops => {
                for (number, watch) in self.store.stop() {
                    let boot = self.nodes.get(number).map_or(0, |node| node.boot);
                    self.watch_says(number, boot, watch, WatchEvent::Ended("end of stream".to_owned()));
                }
            }
            Fault::StoreStarts => self.store.start(now),
            Fault::StoreStartsEmpty => {
                self.store.wipe();
                self.store.start(now);
            }
            Fault::StoreStartsRestored => {
                self.store.restore();
                self.store.start(now);
                // The backup holds undamaged bundles, even if they were damaged at the time.
                for (digest, stored) in &mut self.store.bundles {
                    *stored = self.bundles.packed(*digest);
                }
                self.garbled = None;
            }
            Fault::Compacts => {
                self.store.compact();
                self.store.back_up();
            }
            Fault::WatchDies(number) => self.store.unwatch(number),
            Fault::Cut(number, wait) => self.with(number, |node| node.cut_until = now + wait),
            Fault::Split(first, wait) => {
                let cut = self.nodes.iter_mut().skip(first % 2).step_by(2);
                cut.for_each(|node| node.cut_until = now + wait);
            }
            Fault::Deaf(number, wait) => self.with(number, |node| node.deaf_until = now + wait),
            Fault::KillLeader => {
                if let Some(leader) = self.store.leader() {
                    self.crash(leader);
                }
                if let Some(early) = self.tries() {
                    self.crash(early);
                }
            }
            Fault::Garble(wait) => self.garbles(wait),
            Fault::Deletes => self.damages(false),
            Fault::Scribbles => self.damages(true),
            Fault::Slow(number, wait) => self.with(number, |node| node.slow_until = now + wait),
            Fault::Full(number, wait) => self.with(number, |node| node.full_until = now + wait),
            Fault::Crash(number) => self.crash(number),
            Fault::CrashDamaged(number) => {
                self.with(number, |node| node.disk = None); // its digest is wrong, so the node ignores it
                self.crash(number);
            }
        }
    }

    fn with(&mut self, number: usize, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(number) {
            change(node);
        }
    }

    /// Changes one byte of the stored bundle that the pointer names, for a while.
    fn garbles(&mut self, wait: Duration) {
        let Some((pointer, _)) = self.store.pointer() else { return };
        let to = pointer.to;
        if self.garbled.is_none() && self.store.bundles.contains_key(&to) {
            let (_, other) = faults::bundle("# another");
            self.garbled = self.store.bundles.insert(to, other).map(|whole| (to, whole));
            self.after(wait, Event::Ungarble);
        }
    }

    pub(super) fn ungarbles(&mut self) {
        if let Some((digest, whole)) = self.garbled.take()
            && let Some(stored) = self.store.bundles.get_mut(&digest)
        {
            *stored = whole;
        }
    }

    fn damages(&mut self, scribble: bool) {
        if self.store.is_up {
            let told = self.store.damage(scribble);
            self.tell_watchers(told);
        }
    }

    /// A node that tries a bundle which other nodes do not get yet.
    fn tries(&self) -> Option<usize> {
        let (pointer, _) = self.store.pointer().filter(|(pointer, _)| pointer.is_tried())?;
        let tries = |node: &Node| {
            let runs = node.process.as_ref().and_then(|process| process.follower.running());
            runs == Some(pointer.to) && pointer.is_open_to(&node.name, &node.labels)
        };
        self.nodes.iter().position(tries)
    }

    pub(super) fn crash(&mut self, number: usize) {
        self.with(number, |node| node.process = None);
        self.store.unwatch(number);
        // Some nodes return before anybody misses them.
        let (from, to) = if self.chance.happens(30) { (15_000, 35_000) } else { (100, 10_000) };
        let wait = self.chance.between(Duration::from_millis(from), Duration::from_millis(to));
        self.after(wait, Event::Start(number));
    }

    pub(super) fn heals(&mut self) {
        let now = self.now;
        for node in &mut self.nodes {
            (node.cut_until, node.slow_until, node.full_until, node.deaf_until) = (now, now, now, now);
        }
        self.ungarbles();
        if !self.store.is_up {
            self.store.start(now);
        }
        if self.store.pointer().is_none() {
            self.last_change();
        }
    }
}
