//! The loop on the thread weir-kube: performs the actions of the machines and reports the results to them. Whatever
//! waits runs beside it and returns its result as a message. `writes.rs` has what writes to the cluster.

mod writes;

use super::live::{AWAITED, Live, caught};
use super::{Effect, Output, Settings, Translator, notes, saved};
use crate::api::{Access, Client, EVENT, LEASE, Making, Resource, Status, Told, WATCHED, watched};
use crate::watch::Time;
use crate::watch::election::{self, Election};
use crate::watch::keeper::{self, Keeper};
use crate::watch::recorder::{self, Recorder};
use crate::watch::reflector::{self, Reflector, WatchEvent};
use crate::watch::store::{Change, Store};
use crate::watch::writer::{self, Target, Writer};
use serde_json::Value;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, spawn_blocking, spawn_local};
use weir_config::{Mistakes, Supply};
use weir_telemetry::log;

/// How long changes are gathered before a translation: the events of one `kubectl apply` come together.
const SETTLE: Duration = Duration::from_millis(5);

/// How long after a change the objects are written to disk. Later changes do not postpone it.
const SAVE: Duration = Duration::from_secs(1);

/// When to write again what could not be written.
const SAVE_AGAIN: Duration = Duration::from_secs(30);

/// How often we look whether the gateway has ended.
const LOOK: Duration = Duration::from_secs(1);

/// Most messages that are processed before the loop turns to everything else.
const BATCH: usize = 1_000;

/// Most bytes of the list of mistakes in the log.
const MISTAKES: usize = 2_000;

pub(super) enum Message {
    Election(election::Event),
    /// We can listen on these addresses now.
    Freed(Vec<SocketAddr>),
    Keeper(keeper::Event),
    Recorder(recorder::Event),
    /// The Lease was taken by us at this time.
    Acquired(Option<String>),
    /// The process ends. Whoever sent this waits until the sender in it is dropped.
    Leave(std_mpsc::Sender<()>),
    Ran(Box<(Live, Output, Result<(), Mistakes>)>),
    Reflector(usize, reflector::Event),
    Saved(bool),
    /// The gateway has the endpoints that have moved.
    Supplied(Box<Live>),
    Writer(writer::Event),
}

pub(super) struct Driver<T> {
    settings: Settings,
    client: Rc<Client>,
    translator: T,
    /// The gateway; `None` while a translation is being run elsewhere.
    live: Option<Live>,
    tell: mpsc::UnboundedSender<Message>,
    began: Instant,
    reflectors: Vec<Reflector>,
    watches: Vec<Option<AbortHandle>>,
    store: Store,
    election: Election,
    acquired: Option<String>,
    writer: Writer,
    keeper: Keeper,
    recorder: Recorder,
    /// Whether the keeper and the recorder know that we lead.
    is_keeping: bool,
    /// When to translate.
    due: Option<Time>,
    /// When to pass on endpoints that have moved.
    supply_at: Option<Time>,
    /// When to write the objects to disk.
    save_at: Option<Time>,
    is_saving: bool,
    /// When to look whether addresses that were taken are free.
    look_at: Option<Time>,
    /// Whether the objects come from an earlier process, and so may be served before all lists are complete.
    is_restored: bool,
    /// Whether a config has run.
    is_live: bool,
    /// Whether the process ends. Its gateway takes no config any more, but endpoints.
    is_leaving: bool,
    /// What the gateway waits for until it is ready, as it was told last.
    awaited: Option<String>,
    /// The permissions that are reported as missing.
    missing: BTreeSet<String>,
    statuses: BTreeMap<Target, Arc<Value>>,
}

impl<T: Translator> Driver<T> {
    pub(super) fn new(
        settings: Settings,
        access: Access,
        mut translator: T,
        live: Live,
        tell: mpsc::UnboundedSender<Message>,
    ) -> Self {
        let restored = match saved::read(&settings.saved) {
            Ok(restored) => restored,
            Err(e) => {
                let hint = "this replica serves once it has read all objects from the API server";
                log::error("the objects of the last run cannot be read", &[("error", &e), ("hint", &hint)]);
                None
            }
        };
        let is_restored = restored.is_some();
        let (store, last_good) = restored.unwrap_or_default();
        let mut writer = Writer::new(&settings.controller, seed());
        let mut keeper = Keeper::new(&settings.controller, seed());
        // As it happened: they were usable first.
        for object in last_good {
            let kind = watched("Secret").map_or("", |resource| resource.kind);
            let change = Change { kind, key: object.key.clone(), object: Some(object) };
            ask(&mut translator, |translator| translator.change(&change));
        }
        for (kind, object) in store.iter() {
            let change = Change { kind, key: object.key.clone(), object: Some(object.clone()) };
            ask(&mut translator, |translator| translator.change(&change));
            if is_written(kind) {
                let target = Target { kind, key: change.key };
                // A writer that does not lead has nothing to do.
                drop(writer.on(Time::ZERO, "", writer::Event::Seen(target, change.object)));
            } else if is_made(kind) {
                let target = Target { kind, key: change.key };
                drop(keeper.on(Time::ZERO, &store, keeper::Event::Seen(target, change.object))); // as above
            }
        }
        Self {
            client: Rc::new(Client::new(access)),
            translator,
            live: Some(live),
            tell,
            began: Instant::now(),
            reflectors: WATCHED.iter().map(|resource| Reflector::new(resource, seed())).collect(),
            watches: WATCHED.iter().map(|_| None).collect(),
            election: Election::new(&settings.identity, seed()),
            acquired: None,
            writer,
            keeper,
            recorder: Recorder::new(&settings.controller, &settings.identity),
            is_keeping: false,
            due: Some(Time::ZERO),
            supply_at: None,
            save_at: None,
            is_saving: false,
            look_at: None,
            is_restored,
            is_live: false,
            is_leaving: false,
            awaited: Some(AWAITED.to_owned()),
            missing: BTreeSet::new(),
            statuses: BTreeMap::new(),
            store,
            settings,
        }
    }

    pub(super) async fn drive(mut self, mut told: mpsc::UnboundedReceiver<Message>) {
        loop {
            self.tick();
            self.translate();
            self.supply();
            self.look();
            self.save();
            self.show_readiness();
            self.show_missing();
            let wait = self.next().saturating_sub(self.now()).min(LOOK);
            let mut next = match tokio::time::timeout(wait, told.recv()).await {
                Ok(Some(message)) => Some(message),
                Ok(None) => return,
                Err(_) => None,
            };
            if self.live.as_ref().is_some_and(Live::has_ended) {
                return;
            }
            let mut count = 0;
            while let Some(message) = next {
                self.on_message(message);
                count += 1;
                next = if count < BATCH { told.try_recv().ok() } else { None };
            }
        }
    }

    fn now(&self) -> Time {
        self.began.elapsed()
    }

    fn next(&self) -> Time {
        let reflectors = self.reflectors.iter().map(Reflector::next).min().unwrap_or(Time::MAX);
        let due = self.due.filter(|_| self.live.is_some() && self.may_translate());
        // Both wait until a config runs.
        let save = self.save_at.filter(|_| !self.is_saving && self.is_live);
        let supply = self.supply_at.filter(|_| self.live.is_some() && self.is_live);
        let own = [due, save, supply, self.look_at].into_iter().flatten().min().unwrap_or(Time::MAX);
        let machines = self.election.next().min(self.writer.next());
        let machines = machines.min(self.keeper.next()).min(self.recorder.next());
        reflectors.min(machines).min(own)
    }

    fn tick(&mut self) {
        let now = self.now();
        for index in 0..self.reflectors.len() {
            if self.reflectors.get(index).is_some_and(|reflector| reflector.next() <= now) {
                self.reflect(index, reflector::Event::Tick);
            }
        }
        if self.election.next() <= now {
            self.elect(election::Event::Tick);
        }
        if self.writer.next() <= now {
            self.write(writer::Event::Tick);
        }
        if self.keeper.next() <= now {
            self.keep(keeper::Event::Tick);
        }
        if self.recorder.next() <= now {
            self.record(recorder::Event::Tick);
        }
        // An object of a Gateway that was not read yet would look like one whose Gateway is gone.
        let keeps = self.election.leads(now) && self.reflectors.iter().all(Reflector::is_synced);
        if std::mem::replace(&mut self.is_keeping, keeps) != keeps {
            self.keep(keeper::Event::Lead(keeps));
            self.record(recorder::Event::Lead(keeps));
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Acquired(at) => self.acquired = at,
            Message::Election(event) => self.elect(event),
            Message::Freed(addresses) => self.on_freed(&addresses),
            Message::Keeper(event) => self.keep(event),
            Message::Recorder(event) => self.record(event),
            Message::Leave(done) => self.leave(done),
            Message::Ran(ran) => {
                let (live, output, result) = *ran;
                self.live = Some(live);
                self.on_run(output, result);
            }
            Message::Reflector(index, event) => self.reflect(index, event),
            Message::Saved(done) => {
                self.is_saving = false;
                if !done {
                    self.save_at = Some(self.now() + SAVE_AGAIN);
                }
            }
            Message::Supplied(live) => self.live = Some(*live),
            Message::Writer(event) => self.write(event),
        }
    }

    // === the objects ===

    fn reflect(&mut self, index: usize, event: reflector::Event) {
        let now = self.now();
        let (Some(reflector), Some(resource)) = (self.reflectors.get_mut(index), WATCHED.get(index)) else {
            return;
        };
        let actions = reflector.on(now, event);
        let mut changes = Vec::new();
        for action in actions {
            match action {
                reflector::Action::Delete(key) => changes.extend(self.store.delete(resource.kind, &key)),
                reflector::Action::Put(object) => changes.extend(self.store.put(resource.kind, object)),
                reflector::Action::Replace(all) => changes.extend(self.store.replace(resource.kind, all)),
                reflector::Action::List { number, limit, next } => {
                    self.list(index, resource, number, limit, next);
                }
                reflector::Action::Say(note) => notes::reflector(resource, &note),
                reflector::Action::Unwatch => self.unwatch(index),
                reflector::Action::Watch { number, from, time } => {
                    self.watch(index, resource, number, from, time);
                }
            }
        }
        self.on_changes(changes);
    }

    fn list(&self, index: usize, resource: &'static Resource, number: u64, limit: u32, next: Option<String>) {
        let (tell, client) = (self.tell.clone(), Rc::clone(&self.client));
        drop(spawn_local(async move {
            let page = client.list(resource, limit, next.as_deref()).await;
            // The loop may have ended.
            let _ = tell.send(Message::Reflector(index, reflector::Event::Listed(number, page)));
        }));
    }

    fn watch(
        &mut self,
        index: usize,
        resource: &'static Resource,
        number: u64,
        from: String,
        time: Duration,
    ) {
        self.unwatch(index);
        let (tell, client) = (self.tell.clone(), Rc::clone(&self.client));
        let task = spawn_local(async move {
            let say =
                |event| drop(tell.send(Message::Reflector(index, reflector::Event::Watch(number, event))));
            let mut watch = match client.watch(resource, &from, time).await {
                Ok(watch) => watch,
                Err(e) => return say(WatchEvent::Failed(e)),
            };
            say(WatchEvent::Opened);
            while let Some(told) = watch.next().await {
                let is_last = matches!(told, Told::Failed(_));
                say(WatchEvent::Told(told));
                if is_last {
                    return;
                }
            }
            say(WatchEvent::Ended);
        });
        if let Some(place) = self.watches.get_mut(index) {
            *place = Some(task.abort_handle());
        }
    }

    fn unwatch(&mut self, index: usize) {
        if let Some(task) = self.watches.get_mut(index).and_then(Option::take) {
            task.abort();
        }
    }

    fn on_changes(&mut self, changes: Vec<Change>) {
        let now = self.now();
        for change in changes {
            match ask(&mut self.translator, |translator| translator.change(&change)) {
                Some(Effect::Config) => self.translate_by(now + SETTLE),
                Some(Effect::Endpoints) => {
                    self.supply_at.get_or_insert(now + SETTLE);
                }
                Some(Effect::Nothing) | None => {}
            }
            self.save_at.get_or_insert(now + SAVE);
            if is_written(change.kind) {
                let target = Target { kind: change.kind, key: change.key };
                self.write(writer::Event::Seen(target, change.object));
            } else if is_made(change.kind) {
                let target = Target { kind: change.kind, key: change.key };
                self.keep(keeper::Event::Seen(target, change.object));
            }
        }
    }

    // === the config ===

    /// Whether what we know is enough to serve: half the objects would be a config that answers 404 for the rest.
    fn may_translate(&self) -> bool {
        self.is_restored || self.is_live || self.reflectors.iter().all(Reflector::is_synced)
    }

    fn translate(&mut self) {
        let is_due = self.due.is_some_and(|due| due <= self.now());
        if !is_due || !self.may_translate() {
            return;
        }
        let Some(mut live) = self.live.take() else { return };
        (self.due, self.supply_at) = (None, None); // a translation has all endpoints
        let began = Instant::now();
        let Some(output) = ask(&mut self.translator, T::translate) else {
            // The next change tries again. Meanwhile the endpoints of what runs go on moving.
            (self.live, self.supply_at) = (Some(live), Some(self.now()));
            return;
        };
        log::debug("translated", &[("objects", &self.store.len()), ("ms", &began.elapsed().as_millis())]);
        if self.is_leaving {
            let mut supplies = output.supplies;
            supplies.extend(ask(&mut self.translator, T::moved).unwrap_or_default());
            return self.pass_on(live, supplies);
        }
        if self.is_live && live.runs(&output) {
            self.live = Some(live);
            return self.on_run(output, Ok(()));
        }
        let tell = self.tell.clone();
        drop(spawn_blocking(move || {
            let result = live.run(&output);
            let _ = tell.send(Message::Ran(Box::new((live, output, result)))); // the loop may have ended
        }));
    }

    /// Passes on endpoints that have moved, without a translation.
    fn supply(&mut self) {
        let is_due = self.supply_at.is_some_and(|at| at <= self.now());
        if !is_due || !self.is_live {
            return;
        }
        let Some(live) = self.live.take() else { return };
        self.supply_at = None;
        let moved = ask(&mut self.translator, T::moved).unwrap_or_default();
        self.pass_on(live, moved);
    }

    fn pass_on(&self, mut live: Live, supplies: BTreeMap<Arc<str>, Arc<Supply>>) {
        let tell = self.tell.clone();
        // A reload over the admin API may be under way, and has to end first.
        drop(spawn_blocking(move || {
            live.supply(supplies);
            let _ = tell.send(Message::Supplied(Box::new(live))); // the loop may have ended
        }));
    }

    /// Translates at this time at the latest.
    fn translate_by(&mut self, time: Time) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    fn on_run(&mut self, output: Output, result: Result<(), Mistakes>) {
        match result {
            Ok(()) => {
                self.is_live = true;
                ask(&mut self.translator, T::adopted);
                self.look_later();
                self.want(output.statuses);
                self.keep(keeper::Event::Want(output.wanted));
                self.record(recorder::Event::Want(output.notices));
            }
            // It may have come too late, after the drain had begun.
            Err(_) if self.is_leaving => self.supply_at = Some(self.now()),
            Err(mistakes) => {
                let text: String = mistakes.for_readers().to_text().chars().take(MISTAKES).collect();
                if ask(&mut self.translator, |translator| translator.leave_out(&mistakes)) == Some(true) {
                    log::error(
                        "objects are left out: Weir refuses what they ask for",
                        &[("mistakes", &text)],
                    );
                    self.translate_by(self.now());
                } else {
                    let hint = "the previous config keeps running; it is tried again";
                    log::error("the translated config is refused", &[("mistakes", &text), ("hint", &hint)]);
                    self.supply_at = Some(self.now()); // upstreams of that config which the refused one lacks
                    self.translate_by(self.now() + self.settings.retry);
                }
            }
        }
    }

    /// Plans to look whether addresses that were taken are free, if there are any.
    fn look_later(&mut self) {
        if self.look_at.is_none() && !self.translator.unbound().is_empty() {
            self.look_at = Some(self.now() + self.settings.retry);
        }
    }

    /// Looks whether addresses that were taken are free. A reload for each try would cost far more.
    fn look(&mut self) {
        if self.look_at.is_none_or(|at| at > self.now()) {
            return;
        }
        self.look_at = None;
        let (mut addresses, tell) = (self.translator.unbound(), self.tell.clone());
        drop(spawn_blocking(move || {
            addresses.retain(|address| TcpListener::bind(address).is_ok());
            let _ = tell.send(Message::Freed(addresses)); // the loop may have ended
        }));
    }

    fn on_freed(&mut self, addresses: &[SocketAddr]) {
        if !addresses.is_empty() {
            log::info("addresses that were taken are free", &[("addresses", &format!("{addresses:?}"))]);
            self.translator.freed(addresses);
            self.translate_by(self.now());
        }
        self.look_later();
    }

    /// Passes on the statuses that differ from those wanted before.
    fn want(&mut self, statuses: BTreeMap<Target, Arc<Value>>) {
        let before = std::mem::take(&mut self.statuses);
        for target in before.keys().filter(|target| !statuses.contains_key(*target)) {
            self.write(writer::Event::Want(target.clone(), None));
        }
        for (target, status) in &statuses {
            let is_same = |known: &Arc<Value>| Arc::ptr_eq(known, status) || known == status;
            if !before.get(target).is_some_and(is_same) {
                self.write(writer::Event::Want(target.clone(), Some(Value::clone(status))));
            }
        }
        self.statuses = statuses;
    }

    fn show_readiness(&mut self) {
        let awaited = if self.is_live {
            None
        } else {
            let late = self.reflectors.iter().zip(WATCHED).find(|(reflector, _)| !reflector.is_synced());
            let waits = late.filter(|_| !self.is_restored);
            let running = || "the first config to run".to_owned();
            Some(waits.map_or_else(running, |(late, resource)| notes::awaited(resource, late.trouble())))
        };
        if let Some(live) = &self.live
            && (awaited != self.awaited || !self.is_live)
        {
            live.hold(awaited.clone());
            self.awaited = awaited;
        }
    }

    /// Reports the permissions that are missing, if they have changed.
    fn show_missing(&mut self) {
        let Some(live) = &self.live else { return };
        let mut missing = BTreeSet::new();
        let mut add = |verb: &str, resource: &Resource, subresource: &str| {
            missing.insert(notes::permission(verb, resource, subresource));
        };
        for (reflector, resource) in self.reflectors.iter().zip(WATCHED) {
            if let Some(reflector::Note::Forbidden(verb, _)) = reflector.trouble() {
                add(verb, resource, "");
            }
        }
        for (verb, kind) in self.writer.forbidden() {
            if let Some(resource) = watched(kind) {
                add(verb, resource, notes::of_status(verb));
            }
        }
        for (verb, kind) in self.keeper.forbidden() {
            if let Some(resource) = watched(kind) {
                add(verb, resource, "");
            }
        }
        if let Some(verb) = self.election.refused() {
            add(verb, &LEASE, "");
        }
        if self.recorder.is_forbidden() {
            add("create", &EVENT, "");
        }
        if missing != self.missing {
            live.report(&missing);
            self.missing = missing;
        }
    }

    fn save(&mut self) {
        // Before the first complete copy, the file of the last run is better than what we have.
        let is_due = self.save_at.is_some_and(|at| at <= self.now());
        if !is_due || self.is_saving || !self.is_live {
            return;
        }
        (self.save_at, self.is_saving) = (None, true);
        // The texts are shared; putting megabytes of them together would hold up changes.
        let last_good = ask(&mut self.translator, |translator| translator.last_good()).unwrap_or_default();
        let store = self.store.clone();
        let (path, tell) = (self.settings.saved.clone(), self.tell.clone());
        drop(spawn_blocking(move || {
            let saved = saved::write(&path, store.save(&last_good).as_bytes());
            if let Err(e) = &saved {
                let hint = "a restart while the API server is away would serve nothing, or older objects";
                log::error("the objects could not be written", &[("error", e), ("hint", &hint)]);
            }
            let _ = tell.send(Message::Saved(saved.is_ok())); // as above
        }));
    }
}

/// Asks the translator, which reads what tenants write. `None` if it panics: no object may stop the changes of others.
fn ask<T: Translator, R>(translator: &mut T, question: impl FnOnce(&mut T) -> R) -> Option<R> {
    caught(|| Ok(question(translator))).inspect_err(notes::panicked).ok()
}

fn is_made(kind: &str) -> bool {
    watched(kind).is_some_and(|resource| resource.making != Making::Never)
}

fn is_written(kind: &str) -> bool {
    watched(kind).is_some_and(|resource| resource.status == Status::Written)
}

/// A seed that differs between processes and machines: it spreads load, no secret depends on it.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
