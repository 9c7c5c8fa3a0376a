//! Writes statuses, if this replica leads, and only where they differ from what the object has.
//!
//! Each object is in one of these states:
//!
//! ```text
//!   settled ◄── nothing differs ── due ── differs ─► writing ── done ──► due (compared once more)
//!      │                            ▲ ▲                 │
//!      └── wanted or object changed ┘ └── after a while ┤ failed
//!                                     └──── reading ◄───┘ conflict
//! ```

use super::Time;
use super::missing::Missing;
use super::status::{merged, patch_of};
use crate::api::{ApiError, Object};
use crate::objects::Name;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weir_fleet::chance::{Chance, backoff};

/// Most requests at one time.
pub const AT_ONCE: usize = 8;

/// How long a request may take before it counts as failed: longer than the client waits.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Conflicts in a row after which each is read again at once. Later ones wait.
const CONFLICTS: u32 = 3;

/// How often we write one status without a change of what we want. More means that another controller undoes it.
const FREE_WRITES: u32 = 5;

/// How long we wait between writes of a status that somebody undoes.
const UNDONE: Duration = Duration::from_secs(30);

/// When to try again what we may not do, or what the server refuses.
const REFUSED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));

/// An object whose status we write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace and name.
    pub key: Name,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// Whether this replica leads.
    Lead(bool),
    /// The result of the [`Action::Read`] with this number.
    Read(u64, Result<Object, ApiError>),
    /// The object as the watch reports it; `None` if it is gone.
    Seen(Target, Option<Object>),
    /// Time has passed.
    Tick,
    /// What the status should be; `None` if we have nothing to say any more, and leave it as it is.
    Want(Target, Option<Value>),
    /// The result of the [`Action::Write`] with this number.
    Wrote(u64, Result<Object, ApiError>),
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read the object. The result carries this number.
    Read(u64, Target),
    /// Write to the log.
    Say(Note),
    /// Merge a patch into the status of the object at this version. The result carries this number.
    Write {
        /// The number.
        number: u64,
        /// The object.
        target: Target,
        /// Its version: if it is no longer current, the server answers with a conflict.
        version: Box<str>,
        /// The JSON merge patch (RFC 7396) of the status.
        patch: Value,
    },
}

/// A message for operators.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// The service account may not do this for the status of this kind: the verb, the kind and the server's sentence.
    /// Sent once until it may.
    Forbidden(&'static str, &'static str, String),
    /// The server refuses this status for good.
    Refused(Target, String),
    /// Another controller keeps undoing this status.
    Undone(Target),
}

/// What one replica knows about statuses.
#[derive(Clone, Debug)]
pub struct Writer {
    controller: String,
    chance: Chance,
    leads: bool,
    number: u64,
    entries: BTreeMap<Target, Entry>,
    due: VecDeque<Target>,
    asking: BTreeMap<u64, Asking>,
    /// What we may not do. `patch` is of the status.
    missing: Missing,
    /// No entry waits for an earlier time. Thousands of entries are not searched for each event.
    soonest: Time,
}

#[derive(Clone, Debug)]
struct Asking {
    target: Target,
    at: Time,
    verb: &'static str,
    /// The version that we knew.
    version: Option<Box<str>>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    object: Option<Object>,
    /// A write of this version met a conflict, so there is a newer one.
    is_stale: bool,
    wanted: Option<Value>,
    state: State,
    failures: u32,
    /// Writes since `wanted` changed, and the time of the last one.
    writes: u32,
    wrote: Time,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    /// A request is under way.
    Asking,
    /// In the queue.
    Due,
    #[default]
    Settled,
    /// Due at this time.
    Waiting(Time),
}

impl Writer {
    /// A writer for the controller with this `controllerName`. `seed` seeds its random numbers.
    pub fn new(controller: &str, seed: u64) -> Self {
        Self {
            controller: controller.to_owned(),
            chance: Chance::new(seed),
            leads: false,
            number: 0,
            entries: BTreeMap::new(),
            due: VecDeque::new(),
            asking: BTreeMap::new(),
            missing: Missing::default(),
            soonest: Time::MAX,
        }
    }

    /// What this replica may not do, as far as a status waits for it: verbs and kinds. `patch` is of the status.
    pub fn forbidden(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.missing.iter()
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        let asked = self.asking.values().map(|asking| asking.at + PATIENCE).min();
        let waiting = if self.leads { self.soonest } else { Time::MAX };
        asked.unwrap_or(Time::MAX).min(waiting)
    }

    /// Whether every status is written, as far as this replica knows.
    pub fn is_settled(&self) -> bool {
        let waits = |entry: &Entry| matches!(entry.state, State::Waiting(_));
        self.asking.is_empty() && self.due.is_empty() && !(self.leads && self.entries.values().any(waits))
    }

    /// Processes an event; returns the actions to carry out. `stamp` is the time of day in RFC 3339.
    pub fn on(&mut self, now: Time, stamp: &str, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        match event {
            Event::Lead(leads) => self.on_lead(leads),
            Event::Read(number, result) => self.on_answer(now, number, result, false, &mut todo),
            Event::Seen(target, object) => self.on_seen(target, object),
            Event::Tick => self.on_tick(now, &mut todo),
            Event::Want(target, wanted) => self.on_want(target, wanted),
            Event::Wrote(number, result) => self.on_answer(now, number, result, true, &mut todo),
        }
        self.advance(now, stamp, &mut todo);
        todo
    }

    fn on_lead(&mut self, leads: bool) {
        if std::mem::replace(&mut self.leads, leads) == leads {
            return;
        }
        self.due.clear();
        self.missing.clear();
        self.soonest = Time::MAX; // nobody waits after a change of the lead
        for (target, entry) in &mut self.entries {
            match entry.state {
                State::Asking => {} // its answer counts whoever leads
                _ if leads => {
                    entry.state = State::Due;
                    self.due.push_back(target.clone());
                }
                _ => entry.state = State::Settled,
            }
        }
    }

    fn on_seen(&mut self, target: Target, object: Option<Object>) {
        match object {
            None => {
                self.missing.forget(&target);
                if let Some(entry) = self.entries.get_mut(&target) {
                    entry.object = None;
                    if entry.wanted.is_none() && entry.state == State::Settled {
                        self.entries.remove(&target);
                    }
                }
            }
            Some(object) => {
                let entry = self.entries.entry(target.clone()).or_default();
                // The answer to our own write may be newer than what the watch has reached.
                if entry.object.as_ref().is_some_and(|known| !is_newer(&object, known)) {
                    return;
                }
                (entry.object, entry.is_stale) = (Some(object), false);
                self.mark(&target);
            }
        }
    }

    fn on_want(&mut self, target: Target, wanted: Option<Value>) {
        let entry = self.entries.entry(target.clone()).or_default();
        if entry.wanted == wanted {
            return;
        }
        (entry.wanted, entry.writes, entry.failures) = (wanted, 0, 0);
        if let State::Waiting(_) = entry.state {
            entry.state = State::Settled; // what made it wait was the earlier status
        }
        self.mark(&target);
    }

    /// Puts an entry into the queue unless it is there, or waits.
    fn mark(&mut self, target: &Target) {
        if let Some(entry) = self.entries.get_mut(target)
            && self.leads
            && entry.state == State::Settled
        {
            entry.state = State::Due;
            self.due.push_back(target.clone());
        }
    }

    fn on_tick(&mut self, now: Time, todo: &mut Vec<Action>) {
        let late: Vec<u64> =
            self.asking.iter().filter(|(_, asking)| now >= asking.at + PATIENCE).map(|(n, _)| *n).collect();
        for number in late {
            let e = ApiError::Away("no answer in time".to_owned(), None);
            self.on_answer(now, number, Err(e), false, todo);
        }
        if !self.leads || now < self.soonest {
            return;
        }
        self.soonest = Time::MAX;
        for (target, entry) in &mut self.entries {
            match entry.state {
                State::Waiting(at) if now >= at => {
                    entry.state = State::Due;
                    self.due.push_back(target.clone());
                }
                State::Waiting(at) => self.soonest = self.soonest.min(at),
                _ => {}
            }
        }
    }

    fn on_answer(
        &mut self,
        now: Time,
        number: u64,
        result: Result<Object, ApiError>,
        is_write: bool,
        todo: &mut Vec<Action>,
    ) {
        let Some(Asking { target, version, verb, .. }) = self.asking.remove(&number) else { return };
        let Some(entry) = self.entries.get_mut(&target) else { return };
        entry.state = State::Settled;
        let permission = (verb, target.kind);
        // The server asks whether we may before it looks at the object.
        if let Ok(_) | Err(ApiError::Conflict | ApiError::NotFound | ApiError::Refused(..)) = &result {
            self.missing.permitted(permission, &target);
        }
        match result {
            Ok(object) => {
                entry.is_stale = false;
                if is_write {
                    (entry.failures, entry.writes, entry.wrote) = (0, entry.writes + 1, now);
                }
                // If the watch has said something meanwhile, the answer may be about an earlier state, or about an
                // earlier object of that name.
                let known = entry.object.as_ref();
                let is_news = known.map(|known| &known.version) != version.as_ref();
                if !is_news || known.is_some_and(|known| known.uid == object.uid && is_newer(&object, known))
                {
                    entry.object = Some(object);
                }
                self.mark(&target);
            }
            Err(ApiError::Conflict) => {
                entry.failures += 1;
                entry.is_stale = true;
                if entry.failures <= CONFLICTS {
                    self.mark(&target);
                } else if self.leads {
                    let at = now + backoff(entry.failures, &mut self.chance);
                    (entry.state, self.soonest) = (State::Waiting(at), self.soonest.min(at));
                }
            }
            // Gone, and the watch will say so. If it has said more since, the object is another one of that name.
            Err(ApiError::NotFound)
                if entry.object.as_ref().is_some_and(|o| Some(&o.version) != version.as_ref()) =>
            {
                self.mark(&target);
            }
            Err(ApiError::NotFound) => entry.object = None,
            Err(e) => {
                entry.failures += 1;
                let refused = self.chance.between(REFUSED.0, REFUSED.1);
                let wait = match &e {
                    ApiError::Forbidden(_) | ApiError::Refused(..) => refused,
                    ApiError::Away(_, Some(wait)) => *wait,
                    _ => backoff(entry.failures, &mut self.chance),
                };
                if self.leads {
                    let at = now + wait;
                    (entry.state, self.soonest) = (State::Waiting(at), self.soonest.min(at));
                }
                match e {
                    ApiError::Forbidden(why) if self.leads && self.missing.refused(permission, &target) => {
                        todo.push(Action::Say(Note::Forbidden(verb, target.kind, why)));
                    }
                    ApiError::Refused(_, why) if entry.failures == 1 => {
                        todo.push(Action::Say(Note::Refused(target, why)));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Sends what is due, as far as there is room.
    fn advance(&mut self, now: Time, stamp: &str, todo: &mut Vec<Action>) {
        while self.leads && self.asking.len() < AT_ONCE {
            let Some(target) = self.due.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&target) else { continue };
            if entry.state != State::Due {
                continue;
            }
            entry.state = State::Settled;
            let (Some(object), Some(wanted)) = (&entry.object, &entry.wanted) else {
                self.missing.forget(&target);
                continue;
            };
            if entry.is_stale {
                self.ask(now, target, "get", Action::Read, todo);
                continue;
            }
            let mut value = object.value();
            let current = value.get_mut("status").map(Value::take).unwrap_or_default();
            let Some(status) = merged(&current, wanted, &self.controller, stamp) else {
                self.missing.forget(&target);
                continue;
            };
            if entry.writes >= FREE_WRITES {
                let at = entry.wrote + UNDONE;
                if now < at {
                    (entry.state, self.soonest) = (State::Waiting(at), self.soonest.min(at));
                    if entry.writes == FREE_WRITES {
                        todo.push(Action::Say(Note::Undone(target)));
                    }
                    continue;
                }
            }
            let (version, patch) = (object.version.clone(), patch_of(&current, &status));
            let write = |number, target| Action::Write { number, target, version, patch };
            self.ask(now, target, "patch", write, todo);
        }
    }

    fn ask(
        &mut self,
        now: Time,
        target: Target,
        verb: &'static str,
        action: impl FnOnce(u64, Target) -> Action,
        todo: &mut Vec<Action>,
    ) {
        self.number += 1;
        let mut version = None;
        if let Some(entry) = self.entries.get_mut(&target) {
            entry.state = State::Asking;
            version = entry.object.as_ref().map(|object| object.version.clone());
        }
        self.asking.insert(self.number, Asking { target: target.clone(), at: now, verb, version });
        todo.push(action(self.number, target));
    }
}

/// Whether an object is another than the known one and not an earlier version of it. Versions are numbers in every
/// API server (KEP-5504 makes that a promise); those that are not count as newer.
pub(super) fn is_newer(object: &Object, known: &Object) -> bool {
    if object.uid != known.uid {
        return true;
    }
    match (object.version.parse::<u64>(), known.version.parse::<u64>()) {
        (Ok(new), Ok(old)) => new > old,
        _ => object.version != known.version,
    }
}

#[cfg(test)]
mod tests;
