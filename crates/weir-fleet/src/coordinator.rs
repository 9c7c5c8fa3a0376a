//! The coordinator: the one node that opens the steps of a rollout, or halts it. Every node has one of these; whoever holds the election's key
//! acts. A state machine without I/O.
//!
//! Without a coordinator nothing moves past the canary. Each change is one transaction on the revision of the pointer and on the holder's key,
//! so that one that was cut off and does not know it changes nothing. Times are the coordinator's own and only differences count, so that no
//! clock of another machine matters.

use crate::Time;
use crate::chance::{Chance, backoff};
use crate::pointer::{Pointer, State};
use crate::report::{NodeReport, shortened};
use crate::session::Lease;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the nodes are looked at, at most; with more than a thousand of them seldomer, so that reading them costs the same.
const LOOK: Duration = Duration::from_secs(1);

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// When somebody who does not hold the key asks for it again.
const CAMPAIGN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));

/// How soon somebody asks for it first, once a rollout is under way.
const FIRST: Duration = Duration::from_secs(2);

/// Longest reason that a pointer tells.
const WHY_BYTES: usize = 1024;

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The pointer as this node sees it, and at which revision it was written; none where there is none.
    Pointer(Option<Box<(Pointer, u64)>>),
    /// The lease of this node's session.
    Lease(Option<Lease>),
    /// What became of [`Action::Campaign`].
    Campaigned(Result<Campaigned, String>),
    /// What became of [`Action::Look`].
    Nodes(Result<Looked, String>),
    /// What became of [`Action::Move`]: whether it was made.
    Moved(Result<bool, String>),
    /// Time has passed.
    Tick,
}

/// Who holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Campaigned {
    /// This node, under this lease; the key was made at this revision.
    Ours(Lease, u64),
    /// Somebody else.
    Theirs,
}

/// The fleet at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    /// The nodes that live.
    pub nodes: Vec<NodeReport>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask for the key under this lease: it is made unless it is there.
    Campaign(Lease),
    /// Read all reports.
    Look,
    /// Write the pointer, if it still stands at `revision` and the key that was made at `key` is there.
    Move {
        /// What to write.
        pointer: Box<Pointer>,
        /// The revision that the pointer was written at.
        revision: u64,
        /// The revision that the key was made at.
        key: u64,
    },
}

/// One node's part in moving rollouts on.
#[derive(Clone, Debug)]
pub struct Coordinator {
    chance: Chance,
    lease: Option<Lease>,
    pointer: Option<(Pointer, u64)>,
    key: Option<u64>,
    asked: Option<(Asked, Time)>,
    at: Time,
    failures: u32,
    /// Since when the nodes of the open steps have all done well.
    well: Option<Time>,
    /// The nodes of the open steps that ran the bundle, by the start of their process.
    seen: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Campaign,
    Look,
    Move,
}

/// What a look at the nodes says.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// Everybody does well.
    Well,
    /// Not everybody is there yet.
    NotYet,
    /// Somebody does not.
    Bad(String),
}

impl Coordinator {
    /// A coordinator that holds no key.
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

    /// Whether this node holds the key, for all it knows.
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

    /// Takes note of what happened, and says what is to be done about it.
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
        let is_same = match (&self.pointer, &pointer) {
            (Some((old, _)), Some((new, _))) => {
                old.generation == new.generation && old.rollout == new.rollout
            }
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.begins_anew();
            if self.asked.is_none() && self.key.is_none() {
                self.at = now + self.chance.between(Duration::ZERO, FIRST);
            }
        }
        self.pointer = pointer;
    }

    /// What was seen says nothing about the step that is open now.
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
        let next = match self.judge(&pointer, &looked.nodes) {
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
            // The pointer is another by now, or the key is somebody else's.
            Ok(false) => {
                self.answered(now);
                self.key = None;
                self.at = now + self.chance.between(Duration::ZERO, FIRST);
            }
            // It may have been made or not: what the pointer says next tells.
            Err(_) => self.fails(now),
        }
        self.begins_anew();
    }

    /// Every step must be somebody's, and everybody in it must run the bundle and do well.
    fn judge(&mut self, pointer: &Pointer, nodes: &[NodeReport]) -> Verdict {
        let rollout = &pointer.rollout;
        let mut is_complete = true;
        let is_last = rollout.open == rollout.steps.len();
        let mut last_has = false;
        let current = rollout.open.checked_sub(1).and_then(|at| rollout.steps.get(at));
        for node in nodes {
            if let Some(step) = current {
                last_has |= step.has(&node.node, &node.labels, pointer.to);
            }
            if !pointer.is_open_to(&node.node, &node.labels) {
                continue;
            }
            if let Some(why) = complaint(node, pointer) {
                return Verdict::Bad(why);
            }
            // What it said before it saw this pointer says nothing about it.
            if node.running != Some(pointer.to) || node.generation != pointer.generation {
                is_complete = false;
                continue;
            }
            match self.seen.get(&node.node) {
                Some(boot) if *boot != node.boot && !is_last => {
                    return Verdict::Bad(format!("{} started anew with it", node.node));
                }
                Some(_) => {}
                None => {
                    self.seen.insert(node.node.clone(), node.boot);
                }
            }
        }
        // Whoever took it and is gone may have been killed by it. With the last step nodes come and go as they always do.
        let is_there = |name: &String| nodes.iter().any(|node| node.node == *name);
        if !is_last && let Some(gone) = self.seen.keys().find(|name| !is_there(name)) {
            return Verdict::Bad(format!("{gone} took it and went silent"));
        }
        if is_complete && last_has { Verdict::Well } else { Verdict::NotYet }
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

/// What speaks against the bundle, of what a node says.
fn complaint(node: &NodeReport, pointer: &Pointer) -> Option<String> {
    let said = |what: &str, reason: &Option<crate::report::Reason>| {
        let reason = reason.as_ref().filter(|reason| reason.bundle == pointer.to)?;
        Some(format!("{} {what}: {}", node.node, reason.why))
    };
    said("refused it", &node.refused).or_else(|| said("does badly with it", &node.unwell))
}

/// With one step more open, or done.
fn advanced(mut pointer: Pointer) -> Pointer {
    let rollout = &mut pointer.rollout;
    if rollout.open >= rollout.steps.len() {
        rollout.state = State::Done;
    } else {
        rollout.open += 1;
    }
    pointer
}

/// With no step open: everybody goes back to what ran before.
fn undone(mut pointer: Pointer, why: &str) -> Pointer {
    let rollout = &mut pointer.rollout;
    rollout.why = format!("step {}: {}", rollout.open, shortened(why, WHY_BYTES));
    (rollout.state, rollout.open) = (State::Halted, 0);
    pointer
}

#[cfg(test)]
#[path = "coordinator/tests.rs"]
mod tests;
