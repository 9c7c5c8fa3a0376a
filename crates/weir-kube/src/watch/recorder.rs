//! Tells users by Events what is refused, if this replica leads: `kubectl describe` shows them beside the object.
//!
//! An Event says the same as a condition of a status, or what no status has a place for, such as an annotation that is
//! not supported. Events are bounded: a problem has to last for [`LASTS`], is told once in [`AGAIN`] however often it
//! comes and goes, and Events follow each other at [`PACE`]. Their names are digests of what they say, so another
//! leader tells nothing twice.

use super::Time;
use super::store::Store;
use super::writer::Target;
use crate::api::{ApiError, EVENT, watched};
use crate::names;
use crate::objects::Name;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a problem lasts before it is told: objects of one `kubectl apply` arrive one after another.
pub const LASTS: Duration = Duration::from_secs(3);
/// When a problem that lasts is told again. The API server forgets Events after an hour by default.
pub const AGAIN: Duration = Duration::from_secs(3_700);
/// The shortest time between two Events.
pub const PACE: Duration = Duration::from_millis(100);
/// Most problems that are remembered. Of more, the others wait until some are gone.
pub const MOST: usize = 1_000;
/// Most problems of the objects of one namespace, so that no tenant takes the places of the others.
pub const MOST_OF_NAMESPACE: usize = MOST / 10;
/// Most problems of one object.
pub const MOST_OF_ONE: usize = 8;
/// Most bytes of a sentence, as in Kubernetes.
const SENTENCE: usize = 1_024;
/// How long a request may take before it counts as failed: longer than the client waits.
const PATIENCE: Duration = Duration::from_secs(30);
/// When to try again what failed or may not be done.
const REFUSED: Duration = Duration::from_secs(15);

/// Something that a user should know about an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// Why, in a word, such as `BackendNotFound`.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// Notices by the object that they are about.
pub type Notices = BTreeMap<Target, Vec<Notice>>;

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// Whether this replica leads.
    Lead(bool),
    /// Time has passed.
    Tick,
    /// All that should be known now.
    Want(Notices),
    /// The result of the [`Action::Create`] with this number.
    Wrote(u64, Result<(), ApiError>),
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create this Event. The result carries this number.
    Create(u64, Name, Value),
    /// Write to the log that the service account may not create Events, with the server's sentence. Sent once until it
    /// may.
    Forbidden(String),
}

/// What one replica knows about Events.
#[derive(Clone, Debug)]
pub struct Recorder {
    controller: String,
    instance: String,
    leads: bool,
    number: u64,
    /// Everything told or to be told.
    known: BTreeMap<(Target, Notice), Entry>,
    asking: Option<(u64, (Target, Notice), Time)>,
    /// No Event before.
    after: Time,
    is_forbidden: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    is_wanted: bool,
    /// When it is to be told.
    due: Time,
    /// Until when it must not be told again, also if it goes and comes back.
    quiet: Time,
}

impl Recorder {
    /// A recorder for the controller with this `controllerName`, whose replica is called `instance`.
    pub fn new(controller: &str, instance: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            instance: instance.to_owned(),
            leads: false,
            number: 0,
            known: BTreeMap::new(),
            asking: None,
            after: Time::ZERO,
            is_forbidden: false,
        }
    }

    /// Whether this replica may not create Events that it has to tell.
    pub const fn is_forbidden(&self) -> bool {
        self.is_forbidden
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        if let Some((_, _, asked)) = &self.asking {
            return *asked + PATIENCE;
        }
        let due = self.known.values().filter(|entry| entry.is_wanted).map(|entry| entry.due).min();
        due.filter(|_| self.leads).map_or(Time::MAX, |due| due.max(self.after))
    }

    /// Processes an event; returns the actions to carry out. `stamp` is the time of day in RFC 3339 with six digits.
    pub fn on(&mut self, now: Time, stamp: &str, store: &Store, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        match event {
            Event::Lead(leads) => {
                self.leads = leads;
                self.is_forbidden &= leads;
            }
            Event::Tick => {
                if self.asking.as_ref().is_some_and(|(_, _, asked)| now >= *asked + PATIENCE) {
                    self.after = now + REFUSED;
                    self.asking = None;
                }
            }
            Event::Want(notices) => self.on_want(now, notices),
            Event::Wrote(number, result) => self.on_answer(now, number, result, &mut todo),
        }
        if self.leads && self.asking.is_none() && now >= self.after {
            self.tell(now, stamp, store, &mut todo);
        }
        todo
    }

    fn on_want(&mut self, now: Time, notices: Notices) {
        self.known.retain(|_, entry| entry.quiet > now || entry.is_wanted);
        self.known.values_mut().for_each(|entry| entry.is_wanted = false);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (target, _) in self.known.keys() {
            *counts.entry(target.key.namespace.clone()).or_default() += 1;
        }
        for (target, all) in notices {
            for notice in all.into_iter().take(MOST_OF_ONE) {
                let key = (target.clone(), notice);
                if let Some(entry) = self.known.get_mut(&key) {
                    entry.is_wanted = true;
                    entry.due = entry.due.max(entry.quiet);
                } else if self.known.len() < MOST
                    && counts.get(&target.key.namespace).is_none_or(|count| *count < MOST_OF_NAMESPACE)
                {
                    *counts.entry(target.key.namespace.clone()).or_default() += 1;
                    let entry = Entry { is_wanted: true, due: now + LASTS, quiet: Time::ZERO };
                    self.known.insert(key, entry);
                }
            }
        }
        self.known.retain(|_, entry| entry.quiet > now || entry.is_wanted);
        // Without anything to tell, nobody would notice the permission.
        self.is_forbidden &= self.known.values().any(|entry| entry.is_wanted && entry.quiet <= now);
    }

    fn on_answer(&mut self, now: Time, number: u64, result: Result<(), ApiError>, todo: &mut Vec<Action>) {
        let Some((_, key, _)) = self.asking.take_if(|(known, ..)| *known == number) else { return };
        self.after = now + PACE;
        match result {
            Ok(()) | Err(ApiError::Exists) => {
                self.is_forbidden = false;
                self.quiet(now, &key);
            }
            // The namespace or the Event is one that the server does not take: the others go on.
            Err(ApiError::NotFound | ApiError::Refused(..)) => self.quiet(now, &key),
            Err(e) => {
                self.after = now + REFUSED;
                if let ApiError::Forbidden(why) = e
                    && self.leads
                    && !std::mem::replace(&mut self.is_forbidden, true)
                {
                    todo.push(Action::Forbidden(why));
                }
            }
        }
    }

    fn quiet(&mut self, now: Time, key: &(Target, Notice)) {
        if let Some(entry) = self.known.get_mut(key) {
            (entry.due, entry.quiet) = (now + AGAIN, now + AGAIN);
        }
    }

    /// Creates the Event that is due first.
    fn tell(&mut self, now: Time, stamp: &str, store: &Store, todo: &mut Vec<Action>) {
        let due = self.known.iter().filter(|(_, entry)| entry.is_wanted && entry.due <= now);
        let Some(key) = due.min_by_key(|(_, entry)| entry.due).map(|(key, _)| key.clone()) else { return };
        let Some((name, event)) = self.event(stamp, store, &key) else {
            self.known.remove(&key); // the object is gone
            self.after = now;
            return;
        };
        self.number += 1;
        todo.push(Action::Create(self.number, name, event));
        self.asking = Some((self.number, key, now));
    }

    fn event(
        &self,
        stamp: &str,
        store: &Store,
        (target, notice): &(Target, Notice),
    ) -> Option<(Name, Value)> {
        let object = store.get(target.kind, &target.key)?;
        // Events about objects of the cluster stand in this namespace.
        let namespace = if target.key.namespace.is_empty() { "default" } else { &*target.key.namespace };
        // The hour is in the name, because a name that the server still knows is not told again.
        let hour = stamp.get(..13).unwrap_or_default();
        let said = format!("{}/{}/{}/{hour}", object.uid, notice.reason, notice.message);
        let start = target.key.name.get(..target.key.name.len().min(200)).unwrap_or_default();
        let name = format!("{}.{}", start.trim_end_matches(['.', '-']), names::hex(said.as_bytes(), 8));
        let mut sentence = notice.message.clone();
        sentence.truncate(sentence.floor_char_boundary(SENTENCE));
        let event = json!({
            "apiVersion": EVENT.api_version(),
            "kind": EVENT.kind,
            "metadata": { "namespace": namespace, "name": name },
            "eventTime": stamp,
            "type": "Warning",
            "reason": notice.reason,
            "action": "Translate",
            "note": sentence,
            "regarding": {
                "apiVersion": watched(target.kind)?.api_version(), "kind": target.kind,
                "namespace": target.key.namespace, "name": target.key.name, "uid": object.uid,
            },
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        });
        Some((Name::new(namespace, &name), event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Object;

    const S: fn(u64) -> Time = Duration::from_secs;

    fn target(name: &str) -> Target {
        Target { kind: watched("HTTPRoute").unwrap().kind, key: Name::new("shop", name) }
    }

    fn notice(reason: &str) -> Notice {
        Notice { reason: reason.to_owned(), message: format!("the sentence of {reason}") }
    }

    fn store(names: &[String]) -> Store {
        let mut store = Store::default();
        for name in names {
            let metadata = json!({ "namespace": "shop", "name": name, "uid": format!("u-{name}"), "resourceVersion": "1" });
            let object = Object::new(watched("HTTPRoute").unwrap(), json!({ "metadata": metadata }));
            store.put("HTTPRoute", object.unwrap());
        }
        store
    }

    struct World {
        recorder: Recorder,
        store: Store,
        /// Reason and name of each Event.
        told: Vec<(String, String)>,
    }

    impl World {
        fn leading(names: &[&str]) -> Self {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut recorder = Recorder::new("example.com/us", "pod-1");
            assert_eq!(recorder.on(Time::ZERO, "", &Store::default(), Event::Lead(true)), []);
            Self { recorder, store: store(&names), told: Vec::new() }
        }

        fn want(&mut self, now: Time, notices: &[(&str, &str)]) {
            let mut all = Notices::new();
            for (name, reason) in notices {
                all.entry(target(name)).or_default().push(notice(reason));
            }
            self.on(now, Event::Want(all));
        }

        fn on(&mut self, now: Time, event: Event) {
            let stamp = format!("2026-01-01T{:02}:00:00.000000Z", now.as_secs() / 3_600);
            for action in self.recorder.on(now, &stamp, &self.store, event) {
                let Action::Create(number, key, event) = action else { continue };
                self.told.push((event["reason"].as_str().unwrap().to_owned(), key.name.to_string()));
                self.recorder.on(now, &stamp, &self.store, Event::Wrote(number, Ok(())));
            }
        }

        /// Lets time pass.
        fn until(&mut self, from: Time, to: Time) {
            let mut now = from;
            while now <= to {
                self.on(now, Event::Tick);
                now = self.recorder.next().max(now + Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_problem_that_lasts_is_told_once_an_hour() {
        let mut world = World::leading(&["a"]);
        world.want(S(0), &[("a", "BackendNotFound")]);
        world.until(S(0), S(2));
        assert_eq!(world.told, [], "it may go by itself");
        world.until(S(2), S(3_600));
        assert_eq!(world.told.len(), 1);
        // It goes and comes back all the time.
        for at in 0..60 {
            world.want(S(3_600 + at), &[]);
            world.want(S(3_600 + at), &[("a", "BackendNotFound")]);
        }
        world.until(S(3_660), S(3_700));
        assert_eq!(world.told.len(), 1);
        world.until(S(3_700), S(7_300));
        assert_eq!(world.told.len(), 2);
        assert_ne!(
            world.told[0].1, world.told[1].1,
            "a name that the server may still know is not used again"
        );
    }

    #[test]
    fn a_problem_that_goes_is_not_told() {
        let mut world = World::leading(&["a"]);
        world.want(S(0), &[("a", "BackendNotFound"), ("gone", "BackendNotFound")]);
        world.want(S(1), &[("gone", "BackendNotFound")]);
        world.until(S(1), S(100));
        assert_eq!(world.told, [], "one problem is gone, and so is the object of the other");
    }

    #[test]
    fn events_are_bounded() {
        let names: Vec<String> = (0..MOST + 10).map(|at| format!("r{at}")).collect();
        let mut world = World::leading(&[]);
        world.store = store(&names);
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "Why")).collect();
        world.want(S(0), &all);
        world.until(S(0), S(3) + PACE * 20);
        assert!((20..=22).contains(&world.told.len()), "{} at the pace", world.told.len());
        world.until(S(3) + PACE * 20, S(3_000));
        assert_eq!(world.told.len(), MOST_OF_NAMESPACE, "the names are all of one namespace");

        let many: Vec<String> = (0..MOST_OF_ONE + 5).map(|at| format!("Why{at}")).collect();
        let mut world = World::leading(&["a"]);
        let all: Vec<(&str, &str)> = many.iter().map(|reason| ("a", reason.as_str())).collect();
        world.want(S(0), &all);
        world.until(S(0), S(60));
        assert_eq!(world.told.len(), MOST_OF_ONE);
    }

    #[test]
    fn a_namespace_leaves_places_to_others() {
        let kind = watched("HTTPRoute").unwrap().kind;
        let of = |namespace: &str, at: usize| Target { kind, key: Name::new(namespace, &format!("r{at}")) };
        let mut recorder = Recorder::new("example.com/us", "pod-1");
        let mut count = |all: Notices| {
            recorder.on_want(S(0), all);
            let counted = |namespace: &str| {
                recorder.known.keys().filter(|(target, _)| target.key.namespace == namespace).count()
            };
            (counted("a"), counted("b"))
        };
        let mut all: Notices = (0..MOST + 10).map(|at| (of("a", at), vec![notice("Why")])).collect();
        assert_eq!(count(all.clone()), (MOST_OF_NAMESPACE, 0));
        all.insert(of("b", 0), vec![notice("Why")]);
        assert_eq!(count(all), (MOST_OF_NAMESPACE, 1));
    }

    #[test]
    fn what_is_forbidden_is_said_once() {
        let mut recorder = Recorder::new("example.com/us", "pod-1");
        let store = store(&["a".to_owned()]);
        recorder.on(S(0), "", &store, Event::Lead(true));
        recorder.on(S(0), "", &store, Event::Want([(target("a"), vec![notice("Why")])].into()));
        let mut said = 0;
        let mut now = S(0);
        while now < S(300) {
            for action in recorder.on(now, "", &store, Event::Tick) {
                if let Action::Create(number, ..) = action {
                    let no = Err(ApiError::Forbidden("no".to_owned()));
                    said += recorder.on(now, "", &store, Event::Wrote(number, no)).len();
                }
            }
            now = recorder.next().max(now + S(1));
        }
        assert_eq!(said, 1);
        assert_eq!(recorder.on(now, "", &store, Event::Lead(false)), []);
        assert_eq!(recorder.next(), Time::MAX, "who does not lead tells nothing");
    }

    #[test]
    fn a_permission_is_missing_while_there_is_something_to_tell() {
        let refused = || {
            let mut world = World::leading(&["a"]);
            world.want(S(0), &[("a", "Why")]);
            let todo = world.recorder.on(S(4), "", &world.store, Event::Tick);
            let [Action::Create(number, ..)] = todo[..] else { panic!("{todo:?}") };
            let no = Err(ApiError::Forbidden("no".to_owned()));
            world.recorder.on(S(4), "", &world.store, Event::Wrote(number, no));
            assert!(world.recorder.is_forbidden());
            world
        };
        let mut world = refused();
        world.on(S(5), Event::Lead(false));
        assert!(!world.recorder.is_forbidden(), "another replica tells");
        let mut world = refused();
        world.want(S(5), &[]);
        assert!(!world.recorder.is_forbidden(), "the problem is gone");
        let mut world = refused();
        world.want(S(5), &[("a", "Why"), ("a", "More")]);
        assert!(world.recorder.is_forbidden());
        world.until(S(5), S(60));
        assert!(!world.recorder.is_forbidden(), "it is told by now");
        assert_eq!(world.told.len(), 2);
    }
}
