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
    /// Those that were there and are not, without having left: what they said last.
    pub silent: Vec<NodeReport>,
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
    /// The nodes of the open steps that were to take the bundle: their processes, and whether they ran it.
    seen: BTreeMap<String, (u64, bool)>,
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
        // By the revision: one that was halted and resumed while nobody looked says the same, and holds anew.
        let revision = |pointer: &Option<(Pointer, u64)>| pointer.as_ref().map(|(_, revision)| *revision);
        if revision(&self.pointer) != revision(&pointer) {
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
            // What it said before it saw this pointer says nothing about it.
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
                // Who comes while others try it tries it as long as they do. With the last step nodes come as they always do.
                self.well = self.well.filter(|_| !pointer.is_tried());
            }
            if let Some((_, ran)) = self.seen.get_mut(&node.node) {
                *ran |= runs;
            }
        }
        // Whoever was to take it and is gone may have been killed by it. With the last step nodes come and go as they always do.
        if pointer.is_tried()
            && let Some(why) = self.gone(pointer, revision, looked)
        {
            return Verdict::Bad(why);
        }
        if is_complete && last_has { Verdict::Well } else { Verdict::NotYet }
    }

    /// Whether a node's process is another than took the bundle: by what was seen, or by what it says of itself, whoever looked before.
    fn is_anew(&self, node: &NodeReport, pointer: &Pointer, revision: u64) -> bool {
        let is_another = self.seen.get(&node.node).is_some_and(|(boot, _)| *boot != node.boot);
        is_another || (node.began == Some(pointer.to) && node.began_at >= revision)
    }

    /// Who of the open steps is not there any more: of those seen, and of those who said that they try this pointer, whoever looked then.
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
