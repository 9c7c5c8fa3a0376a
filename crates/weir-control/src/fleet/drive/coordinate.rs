//! The node's session, and the coordinator's work if this node has it.

use super::{Driver, Message};
use tokio::task::spawn_local;
use weir_fleet::NodeReport;
use weir_fleet::coordinator;
use weir_fleet::session;
use weir_telemetry::{log, timestamp};

impl Driver {
    pub(super) fn report(&self) -> NodeReport {
        NodeReport {
            zone: self.zone.clone(),
            version: self.version.to_owned(),
            boot: self.boot,
            since: self.since.map(timestamp).unwrap_or_default(),
            unwell: self.unwell.clone(),
            ..self.follower.report()
        }
    }

    /// Logs once what keeps the node from being seen, unless the whole source is unreachable, which is already
    /// logged.
    pub(super) fn log_session_failure(&mut self, event: &session::Event) {
        let outcome = match event {
            session::Event::Granted(Err(why))
            | session::Event::Kept(Err(why))
            | session::Event::Done(Err(why)) => why,
            session::Event::Done(Ok(())) => return self.unseen.clear(),
            _ => return,
        };
        if self.unseen != *outcome && !self.follower.is_away() {
            self.unseen.clone_from(outcome);
            let hint = "`weir fleet status` does not show this node; it still follows the fleet";
            log::warn("the node cannot report itself", &[("error", outcome), ("hint", &hint)]);
        }
    }

    /// Logs once what keeps the node from coordinating. If all nodes have this problem, no rollout advances.
    pub(super) fn log_coordinator_failure(&mut self, event: &coordinator::Event) {
        let why = match event {
            coordinator::Event::Campaigned(Err(why))
            | coordinator::Event::Moved(Err(why))
            | coordinator::Event::Nodes(Err(why)) => why,
            coordinator::Event::Moved(Ok(_)) => return self.unled.clear(),
            _ => return,
        };
        if self.unled != *why && !self.follower.is_away() {
            self.unled.clone_from(why);
            let hint = "another node may; `weir fleet status` says who does";
            log::warn("the node cannot coordinate the rollout", &[("error", why), ("hint", &hint)]);
        }
    }

    pub(super) fn keep_session(&self, action: session::Action) {
        let Some(etcd) = self.remote.etcd() else { return };
        let tell = self.tell.clone();
        drop(spawn_local(async move {
            let say = |event| drop(tell.send(Message::Session(event))); // it may have ended
            // The session does not wait for what follows its answer.
            let remembered = match action {
                session::Action::Grant => {
                    say(session::Event::Granted(etcd.grant().await));
                    return;
                }
                session::Action::Keep(lease) => {
                    say(session::Event::Kept(etcd.keep_alive(lease).await));
                    etcd.stay_remembered().await
                }
                session::Action::Put(lease, report) => {
                    let put = etcd.put_report(lease, &report).await;
                    let is_put = put.is_ok();
                    say(session::Event::Done(put));
                    if is_put { etcd.remember(report).await } else { Ok(()) }
                }
            };
            // Any other reason affects everything else too, and is reported there.
            if let Err(why) =
                remembered.or_else(|why| if why.contains("permission") { Err(why) } else { Ok(()) })
            {
                let _ = tell.send(Message::Forgotten(why)); // as above
            }
        }));
    }

    pub(super) fn coordinate(&self, action: coordinator::Action) {
        let Some(etcd) = self.remote.etcd() else { return };
        let tell = self.tell.clone();
        if let coordinator::Action::Move { pointer, .. } = &action {
            let rollout = &pointer.rollout;
            log::info(
                "rollout advances",
                &[
                    ("bundle", &pointer.to.short()),
                    ("open", &rollout.open),
                    ("state", &rollout.state.name()),
                    ("why", &rollout.why),
                ],
            );
        }
        drop(spawn_local(async move {
            let event = match action {
                coordinator::Action::Campaign(lease) => {
                    coordinator::Event::Campaigned(etcd.campaign(lease).await)
                }
                coordinator::Action::Look => coordinator::Event::Nodes(etcd.look().await),
                coordinator::Action::Move { pointer, revision, key } => {
                    coordinator::Event::Moved(etcd.move_pointer(&pointer, revision, key).await)
                }
            };
            let _ = tell.send(Message::Coordinator(event)); // it may have ended
        }));
    }
}
