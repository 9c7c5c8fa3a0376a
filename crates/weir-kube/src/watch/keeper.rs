//! Keeps the objects that belong to Gateways, such as their Services, as they should be, if this replica leads.
//!
//! ```text
//!   wanted, not there ─► create ──► exists ─► look again once the watch has caught up
//!   wanted, differs ──► patch at its version ── conflict ─► look again
//!   not wanted, ours ─► read its Gateway ── gone, or of another class ─► delete
//!                                        └─ still ours ─► keep
//! ```
//!
//! A Service is created or changed only once the watch has shown the record of all ports as it is wanted. Tenants can
//! edit the Services of their Gateways, and without a record a port is where the Service leads to. If the API server
//! does not let us write the record, Services are written without it.
//!
//! An object is ours if it carries our `controllerName` in an annotation and has the owner that it is to have: a
//! Gateway, or nobody if it is the record of all ports. Other objects of the same name are never touched. A load
//! balancer that was deleted by mistake loses its address, so what the watches say is not enough to delete one: the API
//! server itself is asked for the Gateway.

use super::Time;
use super::missing::Missing;
use super::store::Store;
use super::writer::Target;
use crate::api::{ApiError, Object};
use crate::objects::{CONTROLLER_ANNOTATION, Name};
use crate::translate::COPIED_ANNOTATION;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_fleet::chance::{Chance, backoff};

/// Most requests at one time.
pub const AT_ONCE: usize = 4;

/// How long a request may take before it counts as failed: longer than the client waits.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// When to try again what we may not do, or what the server refuses.
const REFUSED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));

/// How often an object is changed without a change of what we want. More means that another controller undoes it.
const FREE_WRITES: u32 = 5;

/// How long we wait between writes of an object that somebody undoes.
const UNDONE: Duration = Duration::from_secs(30);

/// When to look again at a Service that waits for the record of ports, if nothing is heard of the record until then.
const RECORDED: Duration = Duration::from_secs(1);

/// The kind of the record of all ports, and of what is written after it.
const RECORD: &str = "ConfigMap";
const SERVICE: &str = "Service";

/// When to look again at an object whose Gateway still counts as ours to the API server.
const KEPT: Duration = Duration::from_secs(60);

/// What a translation wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The objects as they should be. What they do not say, such as a port that the server chose, is left alone; `null`
    /// means that there is none.
    pub objects: BTreeMap<Target, Value>,
    /// The Gateways of ours with their uids: nothing that they own is deleted, even if it is not wanted now.
    pub gateways: BTreeSet<(Name, String)>,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// Whether this replica leads.
    Lead(bool),
    /// The result of the [`Action::Read`] with this number.
    Read(u64, Result<Object, ApiError>),
    /// An object has changed, or is gone.
    Seen(Target, Option<Object>),
    /// Time has passed.
    Tick,
    /// What should be there.
    Want(Wanted),
    /// The result of the [`Action::Create`] or [`Action::Patch`] with this number.
    Wrote(u64, Result<Object, ApiError>),
    /// The result of the [`Action::Delete`] with this number.
    Deleted(u64, Result<(), ApiError>),
}

/// An action to carry out. Its result carries its number.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create the object.
    Create(u64, Target, Value),
    /// Delete the object with this uid.
    Delete(u64, Target, Box<str>),
    /// Merge a patch (RFC 7396), which names the version, into the object.
    Patch(u64, Target, Value),
    /// Read a Gateway.
    Read(u64, Name),
    /// Write to the log.
    Say(Note),
}

/// A message for operators.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// The service account may not do this with objects of this kind: the verb, with the server's sentence. Sent once
    /// until it may.
    Forbidden(&'static str, &'static str, String),
    /// The server refuses this object: the verb and the server's sentence.
    Refused(&'static str, Target, String),
    /// Another controller keeps undoing this object.
    Undone(Target),
}

/// What one replica knows about the objects of Gateways.
#[derive(Clone, Debug)]
pub struct Keeper {
    controller: String,
    chance: Chance,
    leads: bool,
    number: u64,
    wanted: Wanted,
    /// The state of what is wanted or ours.
    entries: BTreeMap<Target, Entry>,
    asking: BTreeMap<u64, Asking>,
    missing: Missing,
    /// The last answer of [`Self::is_unrecorded`], until something concerns it.
    unrecorded: Option<bool>,
}

#[derive(Clone, Debug)]
struct Asking {
    target: Target,
    verb: &'static str,
    at: Time,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// The answer to our last write, until the watch has caught up with it.
    latest: Option<Object>,
    is_ours: bool,
    is_busy: bool,
    /// Whether the server has refused or forbidden our last write.
    is_refused: bool,
    waits_for_record: bool,
    /// Not to be looked at before.
    after: Time,
    failures: u32,
    writes: u32,
}

impl Asking {
    /// The verb, and the kind that it is used on: a Gateway is read before something of it is deleted.
    fn permission(&self) -> (&'static str, &'static str) {
        (self.verb, if self.verb == "get" { "Gateway" } else { self.target.kind })
    }
}

/// What to do about an object.
enum Step {
    Create(Value),
    Delete(Name),
    Nothing,
    Patch(Value),
}

impl Keeper {
    /// A keeper for the controller with this `controllerName`. `seed` seeds its random numbers.
    pub fn new(controller: &str, seed: u64) -> Self {
        Self {
            controller: controller.to_owned(),
            chance: Chance::new(seed),
            leads: false,
            number: 0,
            wanted: Wanted::default(),
            entries: BTreeMap::new(),
            asking: BTreeMap::new(),
            missing: Missing::default(),
            unrecorded: None,
        }
    }

    /// What this replica may not do, as far as an object waits for it: verbs and kinds.
    pub fn forbidden(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.missing.iter()
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        let asked = self.asking.values().map(|asking| asking.at + PATIENCE).min();
        let waiting = self.entries.values().filter(|entry| !entry.is_busy && !entry.after.is_zero());
        let waiting = waiting.map(|entry| entry.after).min().filter(|_| self.leads);
        asked.unwrap_or(Time::MAX).min(waiting.unwrap_or(Time::MAX))
    }

    /// Processes an event; returns the actions to carry out. `store` has the objects as the watches report them.
    pub fn on(&mut self, now: Time, store: &Store, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        let mut look: BTreeSet<Target> = BTreeSet::new();
        let concerns_record = self.concerns_record(&event);
        match event {
            Event::Lead(leads) => {
                if std::mem::replace(&mut self.leads, leads) != leads {
                    self.missing.clear();
                    look.extend(self.entries.keys().cloned());
                }
            }
            Event::Seen(target, object) => {
                if self.on_seen(&target, object.as_ref()) {
                    look.insert(target);
                }
            }
            Event::Tick => {
                let late: Vec<u64> =
                    self.asking.iter().filter(|(_, a)| now >= a.at + PATIENCE).map(|(n, _)| *n).collect();
                for number in late {
                    let away = ApiError::Away("no answer in time".to_owned(), None);
                    self.on_failure(now, number, away, &mut todo);
                }
            }
            Event::Want(wanted) => look.extend(self.on_want(wanted)),
            Event::Wrote(number, Ok(object)) => look.extend(self.on_wrote(now, number, object)),
            Event::Deleted(number, Ok(()) | Err(ApiError::NotFound)) => {
                if let Some(asking) = self.asking.remove(&number) {
                    self.missing.forget(&asking.target);
                    self.entries.remove(&asking.target); // the watch says so too, perhaps before
                }
            }
            Event::Read(number, read) => self.on_read(now, store, number, read, &mut todo),
            Event::Wrote(number, Err(e)) | Event::Deleted(number, Err(e)) => {
                self.on_failure(now, number, e, &mut todo);
            }
        }
        if concerns_record {
            self.unrecorded = None;
            for (target, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.waits_for_record) {
                entry.after = Time::ZERO;
                look.insert(target.clone());
            }
        }
        let due = self.entries.iter().filter(|(_, entry)| !entry.after.is_zero() && now >= entry.after);
        look.extend(due.map(|(target, _)| target.clone()));
        if self.leads {
            for target in look {
                self.look(now, store, &target, &mut todo);
            }
        }
        todo
    }

    /// Whether an event may change the answer of [`Self::is_unrecorded`].
    fn concerns_record(&self, event: &Event) -> bool {
        match event {
            Event::Seen(target, _) => target.kind == RECORD && self.wanted.objects.contains_key(target),
            Event::Want(_) => true,
            Event::Wrote(number, _) => {
                self.asking.get(number).is_some_and(|asking| asking.target.kind == RECORD)
            }
            _ => false,
        }
    }

    /// Whether the watch has yet to show the record of ports as it is wanted, and the server has not refused it.
    fn is_unrecorded(&mut self, store: &Store) -> bool {
        let is_missing = |(target, wanted): (&Target, &Value)| {
            let seen = store.get(target.kind, &target.key);
            let is_foreign = seen.is_some_and(|seen| !self.is_ours(seen));
            let is_refused = self.entries.get(target).is_some_and(|entry| entry.is_refused);
            let is_there = || seen.is_some_and(|seen| patch_of(&seen.value(), wanted).is_none());
            !is_foreign && !is_refused && !is_there()
        };
        let find = || self.wanted.objects.iter().filter(|(target, _)| target.kind == RECORD).any(is_missing);
        let found = self.unrecorded.unwrap_or_else(find);
        self.unrecorded = Some(found);
        found
    }

    /// Whether an object that has changed concerns us.
    fn on_seen(&mut self, target: &Target, object: Option<&Object>) -> bool {
        let is_ours = object.is_some_and(|object| self.is_ours(object));
        if !is_ours && !self.wanted.objects.contains_key(target) {
            self.entries.remove(target);
            self.missing.forget(target);
            return false;
        }
        let entry = self.entries.entry(target.clone()).or_default();
        entry.is_ours = is_ours;
        if object.is_none() {
            entry.latest = None;
            self.missing.forget(target);
        }
        true
    }

    fn is_ours(&self, object: &Object) -> bool {
        if !object.text.contains(CONTROLLER_ANNOTATION) {
            return false; // the usual case, without reading it
        }
        let value = object.value();
        let annotations = value.pointer("/metadata/annotations");
        let made_by = annotations.and_then(|all| all.get(CONTROLLER_ANNOTATION)?.as_str());
        made_by == Some(&self.controller)
    }

    fn on_want(&mut self, wanted: Wanted) -> Vec<Target> {
        let before = std::mem::replace(&mut self.wanted, wanted);
        let mut look = Vec::new();
        for (target, object) in &self.wanted.objects {
            if before.objects.get(target) != Some(object) {
                let entry = self.entries.entry(target.clone()).or_default();
                (entry.after, entry.failures, entry.writes) = (Time::ZERO, 0, 0);
                look.push(target.clone());
            }
        }
        let gone = before.objects.keys().filter(|target| !self.wanted.objects.contains_key(*target));
        look.extend(gone.cloned());
        if before.gateways != self.wanted.gateways {
            look.extend(self.entries.keys().cloned());
        }
        look
    }

    fn on_wrote(&mut self, now: Time, number: u64, object: Object) -> Option<Target> {
        let asking = self.asking.remove(&number)?;
        self.missing.permitted(asking.permission(), &asking.target);
        let entry = self.entries.get_mut(&asking.target)?;
        (entry.latest, entry.is_ours, entry.is_busy) = (Some(object), true, false);
        entry.is_refused = false;
        (entry.failures, entry.writes) = (0, entry.writes + 1);
        entry.after = if entry.writes > FREE_WRITES { now + UNDONE } else { Time::ZERO };
        Some(asking.target)
    }

    fn on_failure(&mut self, now: Time, number: u64, e: ApiError, todo: &mut Vec<Action>) {
        let Some(asking) = self.asking.remove(&number) else { return };
        let permission = asking.permission();
        let Asking { target, verb, .. } = asking;
        // The server asks whether we may before it looks at the object.
        if let ApiError::Conflict | ApiError::Exists | ApiError::NotFound | ApiError::Refused(..) = &e {
            self.missing.permitted(permission, &target);
        }
        let Some(entry) = self.entries.get_mut(&target) else { return };
        (entry.is_busy, entry.failures, entry.latest) = (false, entry.failures + 1, None);
        entry.is_refused = matches!(e, ApiError::Forbidden(_) | ApiError::Refused(..));
        let refused = self.chance.between(REFUSED.0, REFUSED.1);
        let pause = backoff(entry.failures, &mut self.chance);
        let wait = match &e {
            ApiError::Forbidden(_) | ApiError::Refused(..) => refused,
            ApiError::Away(_, Some(wait)) => *wait,
            _ => pause,
        };
        entry.after = now + wait;
        match e {
            ApiError::Forbidden(why) if self.leads && self.missing.refused(permission, &target) => {
                todo.push(Action::Say(Note::Forbidden(permission.0, permission.1, why)));
            }
            ApiError::Refused(_, why) if entry.failures == 1 => {
                todo.push(Action::Say(Note::Refused(verb, target, why)));
            }
            _ => {}
        }
    }

    /// The API server's word on the Gateway of an object that is not wanted.
    fn on_read(
        &mut self,
        now: Time,
        store: &Store,
        number: u64,
        read: Result<Object, ApiError>,
        todo: &mut Vec<Action>,
    ) {
        let gateway = match read {
            Ok(object) => Some(object),
            Err(ApiError::NotFound) => None,
            Err(e) => return self.on_failure(now, number, e, todo),
        };
        let Some(asking) = self.asking.remove(&number) else { return };
        self.missing.permitted(asking.permission(), &asking.target);
        let target = asking.target;
        let current = self.current(store, &target).cloned();
        let is_wanted = self.wanted.objects.contains_key(&target);
        let Some(entry) = self.entries.get_mut(&target) else { return };
        entry.is_busy = false;
        let Some(object) = current.filter(|_| !is_wanted && entry.is_ours && self.leads) else { return };
        let owner = owner(&object.value());
        let same = gateway.filter(|gateway| owner.as_ref().is_some_and(|(_, uid)| **uid == *gateway.uid));
        if same.is_some_and(|gateway| !is_of_another(store, &gateway, &self.controller)) {
            entry.after = now + KEPT;
            self.missing.forget(&target);
            return;
        }
        (entry.is_busy, entry.after) = (true, Time::ZERO);
        self.number += 1;
        let asking = Asking { target: target.clone(), verb: "delete", at: now };
        self.asking.insert(self.number, asking);
        todo.push(Action::Delete(self.number, target, object.uid));
    }

    /// An object as far as we know: the watch's, or the answer to our write if that is newer.
    fn current<'a>(&'a self, store: &'a Store, target: &Target) -> Option<&'a Object> {
        let seen = store.get(target.kind, &target.key);
        let latest = self.entries.get(target).and_then(|entry| entry.latest.as_ref());
        match (seen, latest) {
            (Some(seen), Some(latest)) if super::writer::is_newer(latest, seen) && latest.uid == seen.uid => {
                Some(latest)
            }
            (None, Some(latest)) => Some(latest),
            (seen, _) => seen,
        }
    }

    /// Does what is to be done about an object, if anything is.
    fn look(&mut self, now: Time, store: &Store, target: &Target, todo: &mut Vec<Action>) {
        let Some(entry) = self.entries.get(target) else { return };
        if entry.is_busy || now < entry.after {
            return;
        }
        let (step, writes) = (self.step(store, target), entry.writes);
        let is_written = matches!(step, Step::Create(_) | Step::Patch(_));
        let waits = is_written && target.kind == SERVICE && self.is_unrecorded(store);
        let is_full = self.asking.len() >= AT_ONCE;
        let Some(entry) = self.entries.get_mut(target) else { return };
        (entry.after, entry.waits_for_record) = (Time::ZERO, waits);
        if waits {
            entry.after = now + RECORDED;
            return;
        }
        let verb = match &step {
            Step::Nothing => return self.missing.forget(target),
            _ if is_full => {
                entry.after = now + Duration::from_millis(20);
                return;
            }
            Step::Create(_) => "create",
            Step::Delete(_) => "get",
            Step::Patch(_) => "patch",
        };
        if verb == "patch" && writes == FREE_WRITES {
            todo.push(Action::Say(Note::Undone(target.clone())));
        }
        entry.is_busy = true;
        self.number += 1;
        let number = self.number;
        self.asking.insert(number, Asking { target: target.clone(), verb, at: now });
        todo.push(match step {
            Step::Create(object) => Action::Create(number, target.clone(), object),
            Step::Patch(patch) => Action::Patch(number, target.clone(), patch),
            Step::Delete(gateway) => Action::Read(number, gateway),
            Step::Nothing => return,
        });
    }

    fn step(&self, store: &Store, target: &Target) -> Step {
        let current = self.current(store, target);
        match (self.wanted.objects.get(target), current) {
            (Some(wanted), None) => Step::Create(wanted.clone()),
            // Somebody else's object of that name, or one of an earlier Gateway that is about to be deleted.
            (Some(wanted), Some(current)) => {
                let value = current.value();
                if !self.is_ours(current) || owner(&value) != owner(wanted) {
                    return Step::Nothing;
                }
                match patch_of(&value, wanted) {
                    Some(mut patch) => {
                        patch["metadata"]["resourceVersion"] = json!(current.version);
                        Step::Patch(patch)
                    }
                    None => Step::Nothing,
                }
            }
            (None, Some(current)) if self.is_ours(current) => match owner(&current.value()) {
                Some((name, uid)) => {
                    let gateway = (Name::new(&current.key.namespace, &name), uid);
                    let stays = self.wanted.gateways.contains(&gateway);
                    if stays { Step::Nothing } else { Step::Delete(gateway.0) }
                }
                None => Step::Nothing,
            },
            _ => Step::Nothing,
        }
    }
}

/// Name and uid of the Gateway that owns an object.
fn owner(object: &Value) -> Option<(String, String)> {
    let all = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let gateway = all.iter().find(|owner| owner.get("kind").and_then(Value::as_str) == Some("Gateway"))?;
    Some((gateway.get("name")?.as_str()?.to_owned(), gateway.get("uid")?.as_str()?.to_owned()))
}

/// Whether a Gateway is of a class that another controller has. If nobody knows the class, nobody knows whose it is.
fn is_of_another(store: &Store, gateway: &Object, controller: &str) -> bool {
    let value = gateway.value();
    let class = value.pointer("/spec/gatewayClassName").and_then(Value::as_str).unwrap_or_default();
    let class = store.get("GatewayClass", &Name::new("", class)).map(Object::value);
    let theirs = class.as_ref().and_then(|class| class.pointer("/spec/controllerName")?.as_str());
    theirs.is_some_and(|theirs| theirs != controller)
}

/// The JSON merge patch that makes an object as it is wanted, or `None` if it is.
fn patch_of(current: &Value, wanted: &Value) -> Option<Value> {
    let mut patch = difference(current, wanted);
    for part in ["labels", "annotations"] {
        for stale in stale(current, wanted, part) {
            patch.get_or_insert_with(|| json!({}))["metadata"][part][&stale] = Value::Null;
        }
    }
    patch
}

/// What was copied from a Gateway before and is no longer asked for.
fn stale(current: &Value, wanted: &Value, part: &str) -> Vec<String> {
    let copied = |object: &Value| -> Vec<String> {
        let text =
            object.pointer("/metadata/annotations").and_then(|all| all.get(COPIED_ANNOTATION)?.as_str());
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    let has = |object: &Value, key: &str| object["metadata"][part].get(key).is_some();
    copied(current).into_iter().filter(|key| has(current, key) && !has(wanted, key)).collect()
}

/// The merge patch for what `wanted` says; what it does not say stays.
fn difference(current: &Value, wanted: &Value) -> Option<Value> {
    match (current, wanted) {
        (Value::Object(old), Value::Object(new)) => {
            let none = Value::Null;
            let part = |(key, value): (&String, &Value)| {
                difference(old.get(key).unwrap_or(&none), value).map(|patch| (key.clone(), patch))
            };
            let patch: Map<String, Value> = new.iter().filter_map(part).collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (Value::Array(old), Value::Array(new)) => {
            let same = |(old, new): (&Value, &Value)| difference(old, new).is_none();
            if old.len() == new.len() && old.iter().zip(new).all(same) {
                return None;
            }
            // A merge patch replaces a list as a whole, and what the server chose for a port has to stay.
            Some(new.iter().map(|entry| completed(old, entry)).collect())
        }
        (old, new) => (old != new).then(|| new.clone()),
    }
}

/// An entry of a wanted list, with what the current list says of the same port besides.
fn completed(current: &[Value], wanted: &Value) -> Value {
    let id = |entry: &Value| entry.get("port").cloned();
    let known = id(wanted).and_then(|port| current.iter().find(|entry| id(entry).as_ref() == Some(&port)));
    let (Some(Value::Object(known)), Value::Object(new)) = (known, wanted) else { return wanted.clone() };
    let mut entry = known.clone();
    entry.extend(new.clone());
    Value::Object(entry)
}

#[cfg(test)]
mod tests;
