//! Writes to the cluster: the Lease and, while this replica leads, statuses, Events and the objects of Gateways. The
//! machines of `watch/` decide. This file carries out their actions and sends the results to the loop as messages.

use super::{Driver, Message};
use crate::api::{ApiError, EVENT, LEASE, Write, watched};
use crate::controller::{LEAVING, Translator, lease, notes};
use crate::objects::Name;
use crate::watch::election::{self, What};
use crate::watch::writer::{self, Target};
use crate::watch::{keeper, recorder};
use serde_json::{Value, json};
use std::rc::Rc;
use std::sync::mpsc as std_mpsc;
use std::time::SystemTime;
use tokio::task::spawn_local;
use weir_telemetry::{log, timestamp};

impl<T: Translator> Driver<T> {
    // === the lead ===

    pub(super) fn elect(&mut self, event: election::Event) {
        let now = self.now();
        for action in self.election.on(now, event) {
            match action {
                election::Action::Lead => {
                    log::info("this replica writes statuses", &[("lease", &self.settings.lease)]);
                    self.write(writer::Event::Lead(true));
                }
                election::Action::Yield => {
                    log::info("this replica no longer writes statuses", &[("lease", &self.settings.lease)]);
                    self.write(writer::Event::Lead(false));
                }
                election::Action::Refused(verb, why) => notes::forbidden(verb, &LEASE, "", &why),
                election::Action::Read(number) => {
                    let (client, tell, key) = (Rc::clone(&self.client), self.tell.clone(), self.lease_key());
                    drop(spawn_local(async move {
                        let read = match client.get(&LEASE, &key).await {
                            Ok(object) => Ok(Some(lease::seen(&object))),
                            Err(ApiError::NotFound) => Ok(None),
                            Err(e) => Err(e),
                        };
                        let _ = tell.send(Message::Election(election::Event::Read(number, read))); // the loop may have ended
                    }));
                }
                election::Action::Write { number, version, what, transitions } => {
                    let write = self.write_lease(number, version, what, transitions);
                    drop(spawn_local(write));
                }
            }
        }
    }

    fn lease_key(&self) -> Name {
        Name::new(&self.client.namespace(), &self.settings.lease)
    }

    /// Writes the Lease and reports the result.
    fn write_lease(
        &self,
        number: u64,
        version: Option<String>,
        what: What,
        transitions: u64,
    ) -> impl Future<Output = ()> + use<T> {
        let (client, tell, key) = (Rc::clone(&self.client), self.tell.clone(), self.lease_key());
        let body = lease::Body {
            namespace: &key.namespace,
            name: &key.name,
            version: version.as_deref(),
            me: &self.settings.identity,
            what,
            transitions,
            acquired: self.acquired.as_deref(),
        };
        let body = body.to_json(SystemTime::now());
        async move {
            let how = if version.is_some() { Write::Replace } else { Write::Create };
            let wrote = client.write(how, &LEASE, &key, "", &body).await;
            if let (Ok(object), What::Acquire) = (&wrote, what) {
                let _ = tell.send(Message::Acquired(lease::acquired(object))); // the loop may have ended
            }
            let wrote = wrote.map(|object| lease::seen(&object));
            let _ = tell.send(Message::Election(election::Event::Wrote(number, wrote))); // as above
        }
    }

    /// Releases the Lease, for whose end `done` is held. Endpoints go on moving, because the gateway still serves.
    pub(super) fn leave(&mut self, done: std_mpsc::Sender<()>) {
        self.is_leaving = true;
        let now = self.now();
        drop(self.writer.on(now, "", writer::Event::Lead(false))); // writes nothing
        drop(self.keeper.on(now, &self.store, keeper::Event::Lead(false))); // as above
        for action in self.election.on(now, election::Event::Leave) {
            if let election::Action::Write { number, version, what, transitions } = action {
                let (release, done) = (self.write_lease(number, version, what, transitions), done.clone());
                drop(spawn_local(async move {
                    let _ = tokio::time::timeout(LEAVING, release).await; // it runs out by itself
                    drop(done);
                }));
            }
        }
    }

    // === objects of Gateways ===

    pub(super) fn keep(&mut self, event: keeper::Event) {
        let now = self.now();
        for action in self.keeper.on(now, &self.store, event) {
            let (client, tell) = (Rc::clone(&self.client), self.tell.clone());
            // The loop may have ended.
            let say = move |event| drop(tell.send(Message::Keeper(event)));
            match action {
                keeper::Action::Say(note) => notes::keeper(&note),
                keeper::Action::Read(number, key) => {
                    let Some(gateway) = watched("Gateway") else { continue };
                    drop(spawn_local(async move {
                        say(keeper::Event::Read(number, client.get(gateway, &key).await));
                    }));
                }
                keeper::Action::Create(number, target, body) => {
                    self.write_object(number, target, Write::Create, body);
                }
                keeper::Action::Patch(number, target, body) => {
                    self.write_object(number, target, Write::Merge, body);
                }
                keeper::Action::Delete(number, target, uid) => {
                    let Some(resource) = watched(target.kind) else { continue };
                    drop(spawn_local(async move {
                        let deleted = client.delete(resource, &target.key, &uid).await;
                        say(keeper::Event::Deleted(number, deleted));
                    }));
                }
            }
        }
    }

    fn write_object(&self, number: u64, target: Target, how: Write, body: Value) {
        let (client, tell) = (Rc::clone(&self.client), self.tell.clone());
        let Some(resource) = watched(target.kind) else { return };
        drop(spawn_local(async move {
            let wrote = client.write(how, resource, &target.key, "", &body).await;
            let _ = tell.send(Message::Keeper(keeper::Event::Wrote(number, wrote))); // as above
        }));
    }

    // === Events ===

    pub(super) fn record(&mut self, event: recorder::Event) {
        let (now, stamp) = (self.now(), lease::micros(SystemTime::now()));
        for action in self.recorder.on(now, &stamp, &self.store, event) {
            match action {
                recorder::Action::Forbidden(why) => notes::forbidden("create", &EVENT, "", &why),
                recorder::Action::Create(number, key, body) => {
                    let (client, tell) = (Rc::clone(&self.client), self.tell.clone());
                    drop(spawn_local(async move {
                        let wrote = client.write(Write::Create, &EVENT, &key, "", &body).await.map(drop);
                        let _ = tell.send(Message::Recorder(recorder::Event::Wrote(number, wrote))); // as above
                    }));
                }
            }
        }
    }

    // === statuses ===

    pub(super) fn write(&mut self, event: writer::Event) {
        let (now, stamp) = (self.now(), rfc3339(SystemTime::now()));
        for action in self.writer.on(now, &stamp, event) {
            let (client, tell) = (Rc::clone(&self.client), self.tell.clone());
            match action {
                writer::Action::Say(note) => {
                    let resource = match &note {
                        writer::Note::Forbidden(_, kind, _) => watched(kind),
                        _ => None,
                    };
                    notes::writer(resource, &note);
                }
                writer::Action::Read(number, target) => {
                    let Some(resource) = watched(target.kind) else { continue };
                    drop(spawn_local(async move {
                        let read = client.get(resource, &target.key).await;
                        let _ = tell.send(Message::Writer(writer::Event::Read(number, read))); // as above
                    }));
                }
                writer::Action::Write { number, target, version, patch } => {
                    let Some(resource) = watched(target.kind) else { continue };
                    drop(spawn_local(async move {
                        let body = json!({ "metadata": { "resourceVersion": version }, "status": patch });
                        let wrote = client.write(Write::Merge, resource, &target.key, "status", &body).await;
                        let _ = tell.send(Message::Writer(writer::Event::Wrote(number, wrote))); // as above
                    }));
                }
            }
        }
    }
}

/// A time in RFC 3339 without a fraction, as the API has it in conditions.
fn rfc3339(time: SystemTime) -> String {
    let text = timestamp(time);
    text.split_once('.').map_or_else(|| text.clone(), |(start, _)| format!("{start}Z"))
}
