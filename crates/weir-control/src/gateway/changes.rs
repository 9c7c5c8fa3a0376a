//! The config of a running gateway: changing it, and its history.

use super::{Gateway, check};
use crate::explain::{self, Arriving, Explanation};
use crate::fleet;
use crate::history::diff::Differences;
use crate::history::{By, HistoryStatus, Revision, RevisionStatus};
use crate::reload::change::Change;
use crate::reload::rewrite::{ManagedText, Rewrite};
use crate::reload::{Changed, Moved, NotChanged, Refused, Reloaded, Way};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_config::load::gather;
use weir_config::schema::Route;
use weir_config::{Diagnostic, Diagnostics, Mistakes, Overrides, Texts};
use weir_fleet::Bundle;

/// What is under way that a change may affect. Running exchanges end on the config they began with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Touched {
    /// The routes whose requests it may affect, including routes to changed upstreams.
    pub routes: BTreeSet<String>,
    /// Exchanges, streams and tunnels on them.
    pub exchanges: i64,
    /// The listeners it affects.
    pub listeners: BTreeSet<String>,
    /// Connections on them.
    pub connections: i64,
}

/// The refusal while the gateway drains.
fn draining() -> Mistakes {
    Diagnostic::error("draining", NotChanged::Draining.to_string()).into()
}

impl Gateway {
    /// As [`Self::reload`], with an author for the history.
    ///
    /// # Errors
    /// As there.
    pub fn reload_by(&self, by: &By) -> Result<Reloaded, Refused> {
        let mut control = self.control();
        if !self.is_ready() {
            return Err(Refused { diagnostics: draining() });
        }
        let result = control.reload(by, self.cores());
        self.changed(control, result.is_ok());
        result
    }

    /// Publishes the endpoints that this program supplies to these upstreams, after they have changed. Requests use the
    /// new ones from now on; connections to those that stay are kept. Waits while a reload is under way.
    pub fn resupply(&self, upstreams: &HashSet<&str>) {
        self.control().resupply(upstreams);
    }

    /// Runs the bundle in this folder, which a source sent.
    ///
    /// # Errors
    /// What is wrong with it. The previous config keeps running, unchanged.
    pub(super) fn run_bundle(&self, folder: &Path, by: &By) -> Result<(), Mistakes> {
        let mut control = self.control();
        if !self.is_ready() {
            return Err(draining());
        }
        let before = control.texts.clone();
        let result = control.run_bundle(folder, by, self.cores());
        if result.is_ok() {
            self.bundle_restricts(control.restriction_since(&before));
        }
        self.changed(control, result.is_ok());
        result.map(drop).map_err(|refused| refused.diagnostics)
    }

    /// The running config as a bundle for gateways that use this one as their source: the hand-written files, and the
    /// files they name below the first one's folder. `admin.token` is replaced by its hash.
    ///
    /// # Errors
    /// Why it cannot be a bundle, as text.
    pub fn bundle(&self) -> Result<Bundle, String> {
        if let Some(folder) = self.inner.source.bundle() {
            let bundle = Bundle::read_all(&folder).map_err(|e| e.to_string())?;
            return fleet::without_token(&bundle, &folder);
        }
        let (texts, files) = {
            let control = self.control();
            (control.texts.clone(), control.files.clone())
        };
        if let Some(managed) = &texts.managed {
            let why =
                "belongs to the admin API of this gateway: its content is in no file that other nodes have";
            return Err(format!("{} {why}", managed.path.display()));
        }
        let all: Vec<_> =
            texts.written.iter().map(|text| (text.path.clone(), text.text.as_bytes().to_vec())).collect();
        let folder = texts.written.first().and_then(|main| main.path.parent()).unwrap_or(Path::new(""));
        fleet::without_token(&fleet::pack(&all, &files)?, folder)
    }

    /// Changes what the admin API manages (`admin.writes`) and runs it, or reports what that would do.
    ///
    /// # Errors
    /// Why not. Then nothing has changed, neither the running config nor the disk.
    pub fn change(&self, change: &Change) -> Result<Changed, NotChanged> {
        let mut control = self.control();
        if !self.is_ready() {
            return Err(NotChanged::Draining);
        }
        let result = control.change(change, self.cores());
        self.changed(control, result.is_ok() && !change.dry_run);
        if let Ok(Changed { number: Some(number), differences, restriction, .. }) = &result {
            let concerned = (self.touched(differences).routes, restriction.clone());
            self.try_out(*number, change.terms, concerned);
        }
        result
    }

    /// The text of the file that the admin API writes (`admin.writes`). Its secrets are hidden unless `for_writers`.
    ///
    /// # Errors
    /// [`NotChanged::NoWrites`], or why the files cannot be read.
    pub fn managed_text(&self, for_writers: bool) -> Result<ManagedText, NotChanged> {
        let texts = self.texts_on_disk().map_err(NotChanged::Refused)?;
        ManagedText::of(&texts, for_writers).ok_or(NotChanged::NoWrites)
    }

    /// Replaces the text of the managed file and runs it, or reports what that would do.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn rewrite(&self, rewrite: &Rewrite) -> Result<Changed, NotChanged> {
        let mut control = self.control();
        if !self.is_ready() {
            return Err(NotChanged::Draining);
        }
        let result = control.rewrite(rewrite, self.cores());
        self.changed(control, result.is_ok() && !rewrite.dry_run);
        if let Ok(Changed { number: Some(number), differences, restriction, .. }) = &result {
            let concerned = (self.touched(differences).routes, restriction.clone());
            self.try_out(*number, rewrite.terms, concerned);
        }
        result
    }

    /// Runs a revision of the history as a new revision.
    ///
    /// # Errors
    /// Why not. Then nothing has changed.
    pub fn roll_back(&self, number: u64, by: &By) -> Result<Changed, NotChanged> {
        let mut control = self.control();
        if !self.is_ready() {
            return Err(NotChanged::Draining);
        }
        let result = control.roll_back(number, by, self.cores());
        self.changed(control, result.is_ok());
        if result.as_ref().is_ok_and(|changed| changed.unsaved.is_some()) {
            self.forget_overdue(); // the history cannot show that yet
        }
        result
    }

    /// Reverts a revision: one step back if it is the latest, otherwise only what nobody has changed since.
    pub(super) fn take_revision_back(&self, number: u64, back_to: u64, by: &By) -> Result<(), NotChanged> {
        let mut control = self.control();
        if !self.is_ready() {
            return Err(NotChanged::Draining);
        }
        let result = if control.is_latest(number) {
            control.roll_back(back_to, by, self.cores()).map(drop)
        } else {
            control.undo(number, back_to, by, self.cores())
        };
        self.changed(control, result.is_ok());
        result
    }

    /// Moves a hand-written thing towards the API (`admin.writes`). Says what is left to do.
    ///
    /// # Errors
    /// Why not. Then nothing has changed.
    pub fn adopt(&self, thing: (&str, &str), by: &By) -> Result<Moved, NotChanged> {
        self.move_owner(Way::Adopt, thing, by)
    }

    /// Moves a thing of the API towards a hand-written file. Says what is left to do.
    ///
    /// # Errors
    /// As [`Self::adopt`].
    pub fn release(&self, thing: (&str, &str), by: &By) -> Result<Moved, NotChanged> {
        self.move_owner(Way::Release, thing, by)
    }

    fn move_owner(&self, way: Way, thing: (&str, &str), by: &By) -> Result<Moved, NotChanged> {
        let mut control = self.control();
        if !self.is_ready() {
            return Err(NotChanged::Draining);
        }
        let result = control.move_owner(way, thing, by, self.cores());
        self.changed(control, result.is_ok());
        result
    }

    /// Whether only the managed file has changed, to what runs: then we wrote it.
    pub(super) fn wrote(&self, changed: &[PathBuf]) -> bool {
        let control = self.control();
        let Some(managed) = &control.texts.managed else { return false };
        *changed == [managed.path.clone()]
            && std::fs::read(&managed.path).is_ok_and(|text| text == managed.text.as_bytes())
    }

    /// The running config's files as written.
    pub fn texts(&self) -> Texts {
        self.control().texts.clone()
    }

    /// The config's files as they are on disk, whether they run or not.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub fn texts_on_disk(&self) -> Result<Texts, Mistakes> {
        let source = self.control().origin().0.clone();
        let gathered = gather(&source, Overrides::default());
        gathered.map(|gathered| gathered.texts).map_err(|unreadable| unreadable.diagnostics)
    }

    /// The findings of `weir check` on the files as they are on disk.
    pub fn check(&self) -> Diagnostics {
        let (source, kinds) = {
            let control = self.control();
            let (source, kinds) = control.origin();
            (source.clone(), kinds.clone())
        };
        check(&source, &kinds).diagnostics
    }

    /// What is under way that a change may affect.
    pub fn touched(&self, differences: &Differences) -> Touched {
        let config = Arc::clone(&self.control().config);
        let (mut routes, mut listeners) = (BTreeSet::new(), BTreeSet::new());
        for thing in &differences.things {
            match thing.split_once('.') {
                Some(("routes", name)) => {
                    routes.insert(name.to_owned());
                }
                Some(("listeners", name)) => {
                    listeners.insert(name.to_owned());
                }
                Some(("upstreams", name)) => {
                    let leads = |route: &Route| route.shares().any(|share| share.upstream == name);
                    let leading = config.routes.iter().filter(|(_, route)| leads(route));
                    routes.extend(leading.map(|(name, _)| name.to_owned()));
                }
                // Settings that all routes share.
                None if matches!(&**thing, "filters" | "limits" | "trusted_proxies") => {
                    routes.extend(config.routes.names().map(str::to_owned));
                }
                _ => {}
            }
        }
        let telemetry = &self.inner.telemetry;
        let active = |name: &String| telemetry.route_figures(name).map_or(0, |figures| figures.active);
        Touched {
            exchanges: routes.iter().map(active).sum(),
            connections: listeners.iter().map(|name| telemetry.listener_connections(name)).sum(),
            routes,
            listeners,
        }
    }

    /// The revisions that are kept, oldest first; `None` without a history.
    pub fn revisions(&self) -> Option<Vec<RevisionStatus>> {
        let revisions = self.control().books.history.as_ref()?.revisions().to_vec();
        // The stored verdict is `accepted` until another replaces it.
        let status = |revision: Revision| {
            let on_trial = self.is_on_trial(revision.number);
            RevisionStatus::of(revision, on_trial)
        };
        Some(revisions.into_iter().map(status).collect())
    }

    /// The history as a whole; `None` without one.
    pub fn history(&self) -> Option<HistoryStatus> {
        let mut revisions = self.revisions()?;
        revisions.reverse();
        let (pinned, why) = self.pinned().unzip();
        Some(HistoryStatus { running: revisions.first().map(|latest| latest.number), pinned, why, revisions })
    }

    /// The files of a revision.
    ///
    /// # Errors
    /// [`NotChanged::NoHistory`], [`NotChanged::NoRevision`], or why it cannot be read.
    pub fn revision_texts(&self, number: u64) -> Result<Texts, NotChanged> {
        let control = self.control();
        let history = control.books.history.as_ref().ok_or(NotChanged::NoHistory)?;
        history.get(number).ok_or(NotChanged::NoRevision(number))?;
        history.texts(number).map_err(|e| NotChanged::unread(number, e))
    }

    /// The accepted revision that runs in place of hand-written files: its number, and why.
    pub fn pinned(&self) -> Option<(u64, String)> {
        self.control().books.pinned.as_ref().map(|pin| (pin.accepted, pin.why.clone()))
    }

    /// Why the running config could not be saved, if so: saving is retried.
    pub fn unsaved(&self) -> Option<String> {
        self.control().unsaved()
    }

    /// What would happen to a request under the running config.
    ///
    /// # Errors
    /// As [`explain::explain`].
    pub fn explain(
        &self,
        arriving: Arriving<'_>,
        method: &str,
        target: &str,
        headers: &[(String, String)],
    ) -> Result<Explanation, String> {
        let snapshot = Arc::clone(&self.control().snapshot);
        explain::explain(&snapshot, arriving, method, target, headers)
    }
}
