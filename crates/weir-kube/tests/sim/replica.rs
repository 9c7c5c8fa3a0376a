//! One replica of the simulation: the machines of `watch/`, and what the driver does between them.

use crate::{KINDS, Message};
use serde_json::{Value, json};
use std::time::Duration;
use weir_kube::Name;
use weir_kube::api::{ApiError, watched};
use weir_kube::watch::Time;
use weir_kube::watch::election::{self, Election, What};
use weir_kube::watch::reflector::{self, Reflector};
use weir_kube::watch::store::{Change, Store};
use weir_kube::watch::writer::{self, Target, Writer};

const US: &str = "example.com/us";

/// A request to the server.
pub(crate) enum Send {
    List { kind: usize, number: u64, limit: u32, next: Option<String> },
    Watch { kind: usize, number: u64, from: String, time: Duration },
    Unwatch { kind: usize },
    ReadLease { number: u64 },
    WriteLease { number: u64, version: Option<String>, holder: String, transitions: u64 },
    Read { number: u64, target: Target },
    Write { number: u64, target: Target, version: Box<str>, patch: Value },
}

impl Send {
    /// The answer of a request that failed.
    pub(crate) fn failed(self, e: ApiError) -> Message {
        match self {
            Self::List { kind, number, .. } => {
                Message::Reflector(kind, reflector::Event::Listed(number, Err(e)))
            }
            Self::Watch { kind, number, .. } => {
                Message::Reflector(kind, reflector::Event::Watch(number, reflector::WatchEvent::Failed(e)))
            }
            Self::Unwatch { kind } => Message::Reflector(kind, reflector::Event::Tick),
            Self::ReadLease { number } => Message::Election(election::Event::Read(number, Err(e))),
            Self::WriteLease { number, .. } => Message::Election(election::Event::Wrote(number, Err(e))),
            Self::Read { number, .. } => Message::Writer(writer::Event::Read(number, Err(e))),
            Self::Write { number, .. } => Message::Writer(writer::Event::Wrote(number, Err(e))),
        }
    }
}

pub(crate) struct Replica {
    name: String,
    reflectors: Vec<Reflector>,
    pub(crate) store: Store,
    pub(crate) election: Election,
    writer: Writer,
    is_ready: bool,
}

/// What the status of a route should be: it names a Service, which exists or not.
pub(crate) fn wanted(store: &Store, target: &Target) -> Value {
    let service = store.get(target.kind, &target.key).map(|route| route.value()["spec"]["service"].clone());
    let service = service.and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default();
    let found = store.get("Service", &Name::new("n", &service)).is_some();
    let reason = if found { "ResolvedRefs" } else { "BackendNotFound" };
    let condition =
        json!({ "type": "ResolvedRefs", "status": if found { "True" } else { "False" }, "reason": reason });
    json!({ "parents": [{ "controllerName": US, "parentRef": { "name": "gw" }, "conditions": [condition] }] })
}

impl Replica {
    pub(crate) fn new(at: usize, seed: u64) -> Self {
        Self::born(at, 0, Store::default(), seed)
    }

    pub(crate) fn restarted(at: usize, life: u64, now: Time, saved: &str) -> Self {
        let mut replica = Self::born(at, life, Store::restore(saved).unwrap().0, life);
        let all: Vec<Change> = replica
            .store
            .iter()
            .map(|(kind, object)| Change { kind, key: object.key.clone(), object: Some(object.clone()) })
            .collect();
        replica.on_changes(now, all);
        replica
    }

    fn born(at: usize, life: u64, store: Store, seed: u64) -> Self {
        let name = format!("replica-{at}-{life}");
        let seed = seed * 100 + at as u64;
        Self {
            reflectors: KINDS.iter().map(|kind| Reflector::new(watched(kind).unwrap(), seed)).collect(),
            store,
            election: Election::new(&name, seed),
            writer: Writer::new(US, seed),
            name,
            is_ready: false,
        }
    }

    pub(crate) fn next(&self) -> Time {
        let reflectors = self.reflectors.iter().map(Reflector::next).min().unwrap();
        reflectors.min(self.election.next()).min(self.writer.next())
    }

    pub(crate) fn tick(&mut self, now: Time) -> Vec<Send> {
        let mut sends = Vec::new();
        for kind in 0..KINDS.len() {
            let actions = self.reflectors[kind].on(now, reflector::Event::Tick);
            self.reflect(now, kind, actions, &mut sends);
        }
        let actions = self.election.on(now, election::Event::Tick);
        self.elect(now, actions, &mut sends);
        let actions = self.writer.on(now, "now", writer::Event::Tick);
        self.write(actions, &mut sends);
        sends
    }

    pub(crate) fn on(&mut self, now: Time, message: Message) -> Vec<Send> {
        let mut sends = Vec::new();
        match message {
            Message::Reflector(kind, event) => {
                let actions = self.reflectors[kind].on(now, event);
                self.reflect(now, kind, actions, &mut sends);
            }
            Message::Election(event) => {
                let actions = self.election.on(now, event);
                self.elect(now, actions, &mut sends);
            }
            Message::Writer(event) => {
                let actions = self.writer.on(now, "now", event);
                self.write(actions, &mut sends);
            }
        }
        sends
    }

    fn reflect(&mut self, now: Time, kind: usize, actions: Vec<reflector::Action>, sends: &mut Vec<Send>) {
        let mut changes = Vec::new();
        for action in actions {
            match action {
                reflector::Action::Delete(key) => changes.extend(self.store.delete(KINDS[kind], &key)),
                reflector::Action::Put(object) => changes.extend(self.store.put(KINDS[kind], object)),
                reflector::Action::Replace(objects) => {
                    changes.extend(self.store.replace(KINDS[kind], objects))
                }
                reflector::Action::List { number, limit, next } => {
                    sends.push(Send::List { kind, number, limit, next });
                }
                reflector::Action::Watch { number, from, time } => {
                    sends.push(Send::Watch { kind, number, from, time });
                }
                reflector::Action::Unwatch => sends.push(Send::Unwatch { kind }),
                reflector::Action::Say(_) => {}
            }
        }
        sends.extend(self.on_changes(now, changes));
    }

    /// Tells the writer what has changed and what it should write.
    fn on_changes(&mut self, now: Time, changes: Vec<Change>) -> Vec<Send> {
        let mut sends = Vec::new();
        let is_ready = self.reflectors.iter().all(Reflector::is_synced);
        let was_ready = std::mem::replace(&mut self.is_ready, is_ready);
        if changes.is_empty() && was_ready == is_ready {
            return sends;
        }
        for change in changes.into_iter().filter(|change| change.kind == KINDS[0]) {
            let target = Target { kind: KINDS[0], key: change.key };
            let is_gone = change.object.is_none();
            let actions = self.writer.on(now, "now", writer::Event::Seen(target.clone(), change.object));
            self.write(actions, &mut sends);
            if is_gone {
                let actions = self.writer.on(now, "now", writer::Event::Want(target, None));
                self.write(actions, &mut sends);
            }
        }
        if !is_ready {
            return sends;
        }
        let routes = self.store.iter().filter(|(kind, _)| *kind == KINDS[0]);
        let targets: Vec<Target> = routes.map(|(kind, o)| Target { kind, key: o.key.clone() }).collect();
        for target in targets {
            let wanted = Some(wanted(&self.store, &target));
            let actions = self.writer.on(now, "now", writer::Event::Want(target, wanted));
            self.write(actions, &mut sends);
        }
        sends
    }

    fn elect(&mut self, now: Time, actions: Vec<election::Action>, sends: &mut Vec<Send>) {
        for action in actions {
            match action {
                election::Action::Lead => {
                    let actions = self.writer.on(now, "now", writer::Event::Lead(true));
                    self.write(actions, sends);
                }
                election::Action::Yield => {
                    let actions = self.writer.on(now, "now", writer::Event::Lead(false));
                    self.write(actions, sends);
                }
                election::Action::Read(number) => sends.push(Send::ReadLease { number }),
                election::Action::Write { number, version, what, transitions } => {
                    let holder = if what == What::Release { String::new() } else { self.name.clone() };
                    sends.push(Send::WriteLease { number, version, holder, transitions });
                }
                election::Action::Refused(..) => {}
            }
        }
    }

    fn write(&mut self, actions: Vec<writer::Action>, sends: &mut Vec<Send>) {
        for action in actions {
            match action {
                writer::Action::Read(number, target) => sends.push(Send::Read { number, target }),
                writer::Action::Write { number, target, version, patch } => {
                    sends.push(Send::Write { number, target, version, patch });
                }
                writer::Action::Say(_) => {}
            }
        }
    }
}
