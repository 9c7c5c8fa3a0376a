//! The coordinator: the one node that opens the steps of a rollout, or halts it. Every node has this state machine;
//! the one that holds the election key acts. No I/O.
//!
//! Without a coordinator, a rollout stays at its canary. Each change is one transaction on the revision of the
//! pointer and on the holder's key, so a coordinator that is cut off without knowing it changes nothing. Only the
//! coordinator's own clock counts, and only differences, so the clocks of other machines do not matter.

use crate::Time;
use crate::chance::{Chance, backoff};
use crate::pointer::{Pointer, State};
use crate::report::{NodeReport, shortened};
use crate::session::Lease;
use std::collections::BTreeMap;
use std::time::Duration;

/// Shortest time between two looks at the nodes; longer with more than a thousand nodes, so that reading them costs
/// the same.
const LOOK: Duration = Duration::from_secs(1);

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// When a node without the key asks for it again.
const CAMPAIGN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));

/// How soon a node first asks for it, once a rollout is in progress.
const FIRST: Duration = Duration::from_secs(2);

/// Longest reason in a pointer, in bytes.
const WHY_BYTES: usize = 1024;

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The pointer as this node sees it, with the revision of its last write; `None` if there is none.
    Pointer(Option<Box<(Pointer, u64)>>),
    /// The lease of this node's session.
    Lease(Option<Lease>),
    /// The result of [`Action::Campaign`].
    Campaigned(Result<Campaigned, String>),
    /// The result of [`Action::Look`].
    Nodes(Result<Looked, String>),
    /// The result of [`Action::Move`]: whether the write succeeded.
    Moved(Result<bool, String>),
    /// Time has passed.
    Tick,
}

/// The holder of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Campaigned {
    /// This node, under this lease; the key was created at this revision.
    Ours(Lease, u64),
    /// Another node.
    Theirs,
}

/// The state of the fleet at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    /// The live nodes.
    pub nodes: Vec<NodeReport>,
    /// Nodes that disappeared without leaving, with their last reports.
    pub silent: Vec<NodeReport>,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask for the key under this lease: creates the key unless it exists.
    Campaign(Lease),
    /// Read all reports.
    Look,
    /// Write the pointer, if it is still at `revision` and the key created at `key` still exists.
    Move {
        /// The new pointer.
        pointer: Box<Pointer>,
        /// The revision of the current pointer.
        revision: u64,
        /// The revision at which the key was created.
        key: u64,
    },
}

/// One node's part in coordinating rollouts.
#[derive(Clone, Debug)]
pub struct Coordinator {
    chance: Chance,
    lease: Option<Lease>,
    pointer: Option<(Pointer, u64)>,
    key: Option<u64>,
    asked: Option<(Asked, Time)>,
    at: Time,
    failures: u32,
    /// Since when all nodes of the open steps have been healthy.
    well: Option<Time>,
    /// The nodes of the open steps that should take the bundle: their processes, and whether they ran it.
    seen: BTreeMap<String, (u64, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Campaign,
    Look,
    Move,
}

/// The result of a look at the nodes.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// All are healthy.
    Well,
    /// Not all are ready yet.
    NotYet,
    /// At least one is unhealthy.
    Bad(String),
}

impl Coordinator {
    /// A coordinator without the key.
    pub fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed),
            lease: None,
            pointer: None,
            key: None,
            asked: None,
            at: Time::ZERO,
            failures: 0,
            well: None,
            seen: BTreeMap::new(),
        }
    }

    /// Whether this node holds the key, as far as it knows.
    pub const fn leads(&self) -> bool {
        self.key.is_some()
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        match &self.asked {
            Some((_, asked)) => *asked + PATIENCE,
            None if self.has_work() => self.at,
            None => Time::MAX,
        }
    }

    /// Processes an event; returns the action to carry out.
    pub fn on(&mut self, now: Time, event: Event) -> Option<Action> {
        match event {
            Event::Pointer(pointer) => self.sees(now, pointer.map(|pointer| *pointer)),
            Event::Lease(lease) => {
                if self.lease != lease {
                    (self.lease, self.key) = (lease, None);
                }
            }
            Event::Campaigned(result) if self.is_asked(Asked::Campaign) => self.campaigned(now, result),
            Event::Nodes(result) if self.is_asked(Asked::Look) => match result {
                Ok(looked) => return self.looked(now, &looked),
                Err(_) => self.fails(now),
            },
            Event::Moved(result) if self.is_asked(Asked::Move) => self.moved(now, &result),
            Event::Campaigned(_) | Event::Nodes(_) | Event::Moved(_) => {} // too late
            Event::Tick => {}
        }
        if self.asked.is_some_and(|(_, asked)| now >= asked + PATIENCE) {
            self.key = None;
            self.fails(now);
        }
        self.goes_on(now)
    }

    fn is_asked(&self, what: Asked) -> bool {
        self.asked.is_some_and(|(asked, _)| asked == what)
    }

    fn sees(&mut self, now: Time, pointer: Option<(Pointer, u64)>) {
        // Compare revisions: a pointer that was halted and resumed while nobody looked has the same content, but its
        // step starts over.
        let revision = |pointer: &Option<(Pointer, u64)>| pointer.as_ref().map(|(_, revision)| *revision);
        if revision(&self.pointer) != revision(&pointer) {
            self.begins_anew();
            if self.asked.is_none() && self.key.is_none() {
                self.at = now + self.chance.between(Duration::ZERO, FIRST);
            }
        }
        self.pointer = pointer;
    }

    /// Discards observations that do not apply to the step that is now open.
    fn begins_anew(&mut self) {
        self.well = None;
        self.seen.clear();
    }

    fn campaigned(&mut self, now: Time, result: Result<Campaigned, String>) {
        match result {
            Ok(Campaigned::Ours(lease, key)) => {
                self.answered(now);
                if self.lease == Some(lease) {
                    self.begins_anew();
                    self.key = Some(key);
                } else {
                    self.at = now + self.chance.between(CAMPAIGN.0, CAMPAIGN.1);
                }
            }
            Ok(Campaigned::Theirs) => {
                self.answered(now);
                self.key = None;
                self.at = now + self.chance.between(CAMPAIGN.0, CAMPAIGN.1);
            }
            Err(_) => self.fails(now),
        }
    }

    fn looked(&mut self, now: Time, looked: &Looked) -> Option<Action> {
        self.answered(now);
        let thousands = u32::try_from(looked.nodes.len() / 1000).unwrap_or(u32::MAX);
        self.at = now + LOOK.saturating_mul(thousands.max(1));
        let (Some((pointer, revision)), Some(key)) = (&self.pointer, self.key) else { return None };
        let (pointer, revision) = (pointer.clone(), *revision);
        if pointer.rollout.state != State::Running {
            return None;
        }
        let next = match self.judge(&pointer, revision, looked) {
            Verdict::NotYet => {
                self.well = None;
                return None;
            }
            Verdict::Bad(why) => undone(pointer, &why),
            Verdict::Well => {
                let since = *self.well.get_or_insert(now);
                if now.saturating_sub(since) < Duration::from_millis(pointer.rollout.hold_ms) {
                    return None;
                }
                advanced(pointer)
            }
        };
        self.asked = Some((Asked::Move, now));
        Some(Action::Move { pointer: Box::new(next), revision, key })
    }

    fn moved(&mut self, now: Time, result: &Result<bool, String>) {
        match result {
            Ok(true) => self.answered(now),
            // The pointer has changed, or another node has the key.
            Ok(false) => {
                self.answered(now);
                self.key = None;
                self.at = now + self.chance.between(Duration::ZERO, FIRST);
            }
            // Unknown whether it was written; the next pointer shows that.
            Err(_) => self.fails(now),
        }
        self.begins_anew();
    }

    /// Every step must have nodes, and all of them must run the bundle and be healthy.
    fn judge(&mut self, pointer: &Pointer, revision: u64, looked: &Looked) -> Verdict {
        let rollout = &pointer.rollout;
        let mut is_complete = true;
        let mut last_has = false;
        let current = rollout.open.checked_sub(1).and_then(|at| rollout.steps.get(at));
        for node in &looked.nodes {
            last_has |= current.is_some_and(|step| step.has(&node.node, &node.labels, pointer.to));
            if !pointer.is_open_to(&node.node, &node.labels) {
                continue;
            }
            if let Some(why) = complaint(node, pointer) {
                return Verdict::Bad(why);
            }
            // A report from before the node saw this pointer says nothing about it.
            if node.generation != pointer.generation {
                is_complete = false;
                continue;
            }
            if pointer.is_tried() && self.is_anew(node, pointer, revision) {
                return Verdict::Bad(format!("{} started anew with it", node.node));
            }
            let runs = node.running == Some(pointer.to);
            is_complete &= runs;
            if !self.seen.contains_key(&node.node) {
                self.seen.insert(node.node.clone(), (node.boot, false));
                // A node that joins during the trial is tried for the full hold time. In the last step, nodes join as
                // usual.
                self.well = self.well.filter(|_| !pointer.is_tried());
            }
            if let Some((_, ran)) = self.seen.get_mut(&node.node) {
                *ran |= runs;
            }
        }
        // A node that should take the bundle and is gone may have been killed by it. In the last step, nodes come and
        // go as usual.
        if pointer.is_tried()
            && let Some(why) = self.gone(pointer, revision, looked)
        {
            return Verdict::Bad(why);
        }
        if is_complete && last_has { Verdict::Well } else { Verdict::NotYet }
    }

    /// Whether the node's process is not the one that took the bundle: by what we saw, or by the node's own report to
    /// any coordinator.
    fn is_anew(&self, node: &NodeReport, pointer: &Pointer, revision: u64) -> bool {
        let is_another = self.seen.get(&node.node).is_some_and(|(boot, _)| *boot != node.boot);
        is_another || (node.began == Some(pointer.to) && node.began_at >= revision)
    }

    /// A node of the open steps that is gone: one that we saw, or one that reported that it tries this pointer, to
    /// any coordinator.
    fn gone(&self, pointer: &Pointer, revision: u64, looked: &Looked) -> Option<String> {
        let is_there = |name: &str| looked.nodes.iter().any(|node| node.node == name);
        if let Some((name, (_, ran))) = self.seen.iter().find(|(name, _)| !is_there(name)) {
            let did = if *ran { "took it" } else { "was to take it" };
            return Some(format!("{name} {did} and went silent"));
        }
        let tried = |node: &&NodeReport| {
            node.tries == revision && pointer.is_open_to(&node.node, &node.labels) && !is_there(&node.node)
        };
        let silent = looked.silent.iter().find(tried)?;
        let did = if silent.running == Some(pointer.to) { "took it" } else { "was to take it" };
        Some(format!("{} {did} and went silent", silent.node))
    }

    fn answered(&mut self, now: Time) {
        (self.asked, self.failures, self.at) = (None, 0, now);
    }

    fn fails(&mut self, now: Time) {
        self.asked = None;
        self.failures = self.failures.saturating_add(1);
        self.well = None;
        self.at = now + backoff(self.failures, &mut self.chance);
    }

    fn has_work(&self) -> bool {
        let is_running = |(pointer, _): &(Pointer, u64)| pointer.rollout.state == State::Running;
        self.lease.is_some() && self.pointer.as_ref().is_some_and(is_running)
    }

    fn goes_on(&mut self, now: Time) -> Option<Action> {
        let lease = self.lease?;
        if !self.has_work() || self.asked.is_some() || now < self.at {
            return None;
        }
        let (asked, action) = match self.key {
            None => (Asked::Campaign, Action::Campaign(lease)),
            Some(_) => (Asked::Look, Action::Look),
        };
        self.asked = Some((asked, now));
        Some(action)
    }
}

/// A complaint about the bundle in a node's report.
fn complaint(node: &NodeReport, pointer: &Pointer) -> Option<String> {
    let said = |what: &str, reason: &Option<crate::report::Reason>| {
        let reason = reason.as_ref().filter(|reason| reason.bundle == pointer.to)?;
        Some(format!("{} {what}: {}", node.node, reason.why))
    };
    said("refused it", &node.refused).or_else(|| said("does badly with it", &node.unwell))
}

/// The pointer with one more step open, or done.
fn advanced(mut pointer: Pointer) -> Pointer {
    let rollout = &mut pointer.rollout;
    if rollout.open >= rollout.steps.len() {
        rollout.state = State::Done;
    } else {
        rollout.open += 1;
    }
    pointer
}

/// The pointer with no step open: all nodes return to the previous bundle.
fn undone(mut pointer: Pointer, why: &str) -> Pointer {
    let rollout = &mut pointer.rollout;
    rollout.why = format!("step {}: {}", rollout.open, shortened(why, WHY_BYTES));
    (rollout.state, rollout.open) = (State::Halted, 0);
    pointer
}

#[cfg(test)]
#[path = "coordinator/tests.rs"]
mod tests;
