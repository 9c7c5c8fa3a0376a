//! Carries out what the follower decides: fetches bundles, runs them, keeps them on disk.

use super::{Driver, Message, judged, memory};
use crate::history::{By, Origin};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};
use tokio::task::spawn_local;
use weir_fleet::follower::{self, Note, Outcome};
use weir_fleet::{Bundle, Digest, Weight};
use weir_telemetry::log;

impl Driver {
    pub(super) fn follow(&mut self, event: follower::Event) {
        let actions = self.follower.on(self.now(), event);
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: follower::Action) {
        let (tell, remote) = (self.tell.clone(), self.remote.clone());
        match action {
            follower::Action::Read(number) => drop(spawn_local(async move {
                let read = remote.read().await;
                let _ = tell.send(Message::Follower(follower::Event::Read(number, read))); // the loop may have ended
            })),
            follower::Action::Watch(number, from) => {
                self.unwatch();
                let task = spawn_local(async move {
                    let say = |told| drop(tell.send(Message::Follower(follower::Event::Watch(number, told))));
                    let why = remote.watch(from, &say).await;
                    say(follower::WatchEvent::Ended(why));
                });
                self.watch = Some(task.abort_handle());
            }
            follower::Action::Unwatch => self.unwatch(),
            follower::Action::Fetch(digest) => drop(spawn_local(async move {
                let fetched = remote.bundle(digest).await;
                let _ = tell.send(Message::Fetched(digest, fetched)); // as above
            })),
            follower::Action::Run(digest) => self.run(digest),
            follower::Action::Keep(digest) => self.keep(digest),
            follower::Action::Report => {}
            follower::Action::Say(note) => self.log_note(note),
        }
    }

    fn unwatch(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
    }

    /// Lays a bundle out, compiles it and hands it to the cores, on a thread that may block.
    fn run(&self, digest: Digest) {
        let Some(bundle) = self.bundles.get(&digest).cloned() else {
            let lost = Outcome::Failed("it was fetched and is gone".to_owned());
            return drop(self.tell.send(Message::Ran(digest, lost, None))); // it may have ended
        };
        let (tell, cache, gateway) = (self.tell.clone(), Arc::clone(&self.cache), self.gateway.clone());
        drop(tokio::task::spawn_blocking(move || {
            let laid_out = cache.lock().unwrap_or_else(PoisonError::into_inner).lay_out(&bundle);
            let (outcome, folder) = match (laid_out, gateway.upgrade()) {
                (Err(e), _) => (Outcome::Failed(format!("its files cannot be written: {e}")), None),
                (_, None) => return,
                (Ok(folder), Some(gateway)) => {
                    let by = By {
                        author: "fleet".to_owned(),
                        origin: Origin::Source,
                        message: format!("bundle {}", digest.short()),
                    };
                    let (began, held) = (Instant::now(), memory());
                    match gateway.run_bundle(&folder, &by) {
                        Ok(()) => {
                            let weight = Weight { compile: began.elapsed(), held, memory: memory() };
                            (Outcome::Running, Some((folder, weight)))
                        }
                        Err(diagnostics) => (judged(&diagnostics), None),
                    }
                }
            };
            let _ = tell.send(Message::Ran(digest, outcome, folder)); // it may have ended
        }));
    }

    pub(super) fn on_run(&mut self, digest: Digest, outcome: Outcome, ran: Option<(PathBuf, Weight)>) {
        if let Some((folder, weight)) = ran {
            self.since = Some(SystemTime::now());
            self.compare_weight(digest, weight);
            self.folders.retain(|known| *known != folder);
            self.folders.push(folder);
            // Running exchanges may still read the previous bundle's files.
            let most = self.folders.len().saturating_sub(2);
            self.folders.drain(..most);
        }
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).tidy(&self.folders);
        self.follow(follower::Event::Ran(digest, outcome));
    }

    fn keep(&self, digest: Digest) {
        let (tell, cache) = (self.tell.clone(), Arc::clone(&self.cache));
        // A bundle fetched since may have replaced it in memory; its files are still there.
        let bundle = self.bundles.get(&digest).cloned();
        let folder = self.folders.last().cloned();
        drop(tokio::task::spawn_blocking(move || {
            let laid_out = || {
                let bundle = Bundle::read_all(&folder?).ok()?;
                (bundle.digest() == digest).then(|| Arc::new(bundle))
            };
            let Some(bundle) = bundle.or_else(laid_out) else {
                let lost = Message::Follower(follower::Event::Kept(digest, false));
                return drop(tell.send(lost)); // it may have ended
            };
            let kept = cache.lock().unwrap_or_else(PoisonError::into_inner).keep(&bundle);
            if let Err(e) = &kept {
                log::error("the running config could not be saved to disk", &[("error", e)]);
            }
            let _ = tell.send(Message::Follower(follower::Event::Kept(digest, kept.is_ok()))); // it may have ended
        }));
    }

    fn log_note(&mut self, note: Note) {
        let source = self.remote.place();
        let hint = "the running config stays";
        match note {
            Note::Away(why) => {
                log::warn(
                    "the source does not answer",
                    &[("source", &source), ("error", &why), ("hint", &hint)],
                );
            }
            Note::Back => log::info("the source answers again", &[("source", &source)]),
            Note::Empty => log::warn("the source has no config", &[("source", &source), ("hint", &hint)]),
            Note::Unreadable(why) => {
                log::error(
                    "the source cannot be followed",
                    &[("source", &source), ("error", &why), ("hint", &hint)],
                );
            }
            Note::Runs(digest) => {
                let generation = self.follower.pointer().map_or(0, |pointer| pointer.generation);
                log::info(
                    "bundle runs",
                    &[("bundle", &digest.short()), ("generation", &generation), ("source", &source)],
                );
                if std::mem::take(&mut self.waited) {
                    log::info("ready", &[("bundle", &digest.short())]);
                }
                self.try_out(digest);
            }
            Note::Refused(digest, _) => {
                let hint = "it is not tried again; `weir fleet status` shows why";
                log::error(
                    "bundle refused",
                    &[("bundle", &digest.short()), ("source", &source), ("hint", &hint)],
                );
            }
            Note::Trouble(digest, why) => {
                log::error("bundle cannot be run now", &[("bundle", &digest.short()), ("error", &why)]);
            }
            Note::NotKept(digest) => {
                let hint = "a restart finds the one before it; it is tried again every 30 s";
                log::warn("bundle is not on the disk", &[("bundle", &digest.short()), ("hint", &hint)]);
            }
        }
    }
}
