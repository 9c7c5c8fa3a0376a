//! Applies a config change, from any source: a signal, a file, the command line, the admin API, a rollback.
//!
//! ```text
//!   read the files ─► apply the edits ─► check, compile, bind ─► stage ─► write the managed file ─► all cores adopt
//!                                        on any mistake nothing has happened           from here on nothing can fail
//! ```

mod books;
mod managed;
mod not_changed;

pub(crate) use books::{Books, warning};
pub use managed::request_file;
pub(super) use managed::{managed_then, thing_in};
pub use not_changed::NotChanged;

use super::consequences::Consequences;
use super::staging::{left_for, stage};
use super::unsaved::{Unsaved, not_kept};
use super::{Control, Failed, Prepared};
use crate::crew::Crew;
use crate::history::diff::{self, Differences};
use crate::history::{self, By, History, Pin, Restriction, Revision, TakenBack, mark_of};
use crate::trial::Terms;
use managed::edited;
use std::path::PathBuf;
use weir_config::load::{Gathered, Unreadable, gather};
use weir_config::managed::To;
use weir_config::path_scope;
use weir_config::texts::{Overrides, Text, Texts};
use weir_config::{Diagnostic, Diagnostics, Mistakes};
use weir_engine::snapshot::{Carry, compile};
use weir_telemetry::{Setup, Telemetry, log};
use weir_wire::{Chain, Context};

/// A change of named things that the API manages.
#[derive(Clone, Debug)]
pub struct Change {
    /// The edits: all are made, or none.
    pub edits: Vec<Edit>,
    /// The digests of the whole config that it may start from; empty for any.
    pub only_from: Vec<String>,
    /// Who makes it.
    pub by: By,
    /// Only report what would happen.
    pub dry_run: bool,
    /// The conditions under which it stays.
    pub terms: Terms,
}

/// A change of one named thing.
#[derive(Clone, Debug)]
pub struct Edit {
    /// `routes`, `upstreams` and so on.
    pub section: String,
    /// The thing's name.
    pub name: String,
    /// What to do with it.
    pub to: To,
    /// The required current state of the thing.
    pub only_if: OnlyIf,
}

/// The required current state of a thing before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnlyIf {
    /// It must not exist.
    Absent,
    /// Any state.
    Any,
    /// It must have one of these digests.
    Is(Vec<String>),
    /// It must exist.
    There,
}

/// A change that was made, or would be.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The revision of the running config, which includes the values of variables.
    pub revision: String,
    /// The digest of the config as written.
    pub hash: String,
    /// Its number in the history; `None` without one, or if nothing changed.
    pub number: Option<u64>,
    /// What differs from the previous config.
    pub differences: Differences,
    /// Warnings about it. For a change of named things: new warnings, and those about these things.
    pub diagnostics: Diagnostics,
    /// How many other warnings are omitted.
    pub repeated: usize,
    /// How it restricts access, if it does.
    pub restriction: Option<Restriction>,
    /// What it did to connections and kept state; empty for a dry run.
    pub consequences: Consequences,
    /// Why it runs from memory only, if it could not be saved: a rollback does not wait for that.
    pub unsaved: Option<String>,
}

// === impl Control ===

/// The running config.
pub(super) struct Running {
    /// Its number in the history.
    number: Option<u64>,
    diagnostics: Diagnostics,
    /// Why it is not on disk.
    unsaved: Option<String>,
}

/// A config about to run, and what must be on disk first.
pub(super) struct Candidate<'a> {
    pub(super) gathered: Gathered,
    pub(super) instead: Overrides<'a>,
    pub(super) by: &'a By,
    /// The new content of the managed file.
    pub(super) managed: Option<&'a Text>,
    /// Which files may no longer run, and which revision replaces them.
    pub(super) pin: Option<Pin>,
    /// The conditions under which it stays.
    pub(super) terms: Terms,
    /// It must run even if it cannot be saved, because the running config must not stay: this is what may not run
    /// again.
    pub(super) urgent: Option<TakenBack>,
}

/// A change of the managed file.
#[derive(Clone, Copy)]
pub(super) struct ManagedChange<'a> {
    pub(super) by: &'a By,
    /// The conditions under which it stays.
    pub(super) terms: Terms,
    /// Only report what would happen.
    pub(super) dry_run: bool,
}

impl Control {
    /// Loads the files again and runs them.
    pub(super) fn load_files(
        &mut self,
        by: &By,
        instead: Overrides<'_>,
        cores: &Crew,
    ) -> Result<Diagnostics, Mistakes> {
        let _ = self.save_unsaved(); // what cannot be written yet stays unsaved
        let managed = self.unsaved_managed();
        let managed = managed.as_ref().map(|managed| (&managed.tree, &managed.text));
        let instead = Overrides { managed, ..instead };
        let gathered = match self.books.read(&self.source, instead) {
            Ok(gathered) => gathered,
            Err(unreadable) => {
                self.watch_too(unreadable.files);
                return Err(unreadable.diagnostics);
            }
        };
        let pin = self.books.pinned.clone();
        let candidate =
            Candidate { gathered, instead, by, managed: None, pin, terms: Terms::default(), urgent: None };
        match self.run(candidate, cores) {
            Ok(ran) => Ok(ran.diagnostics),
            Err(NotChanged::Refused(diagnostics)) => Err(diagnostics),
            Err(other) => Err(Diagnostic::error("system", other.to_string()).into()),
        }
    }

    /// Changes named things that the API manages, or reports what that would do.
    pub(crate) fn change(&mut self, change: &Change, cores: &Crew) -> Result<Changed, NotChanged> {
        let unreadable = |unreadable: Unreadable| NotChanged::Refused(unreadable.diagnostics);
        self.save_unsaved().map_err(NotChanged::unstored)?;
        let gathered = self.books.read(&self.source, Overrides::default()).map_err(unreadable)?;
        if change.terms.is_any() && self.books.history.is_none() {
            return Err(NotChanged::NoHistory);
        }
        if self.config.source.is_some() {
            return Err(NotChanged::Fleet);
        }
        let path = gathered.texts.managed_path.clone().ok_or(NotChanged::NoWrites)?;
        if !change.only_from.is_empty() && !change.only_from.contains(&gathered.texts.hash) {
            return Err(NotChanged::Stale("the config".to_owned(), gathered.texts.hash.clone()));
        }
        let managed = edited(&gathered, &path, &change.edits)?;
        let only_takes_away = change.edits.iter().all(|edit| matches!(edit.to, To::Nothing));
        let how = ManagedChange { by: &change.by, terms: change.terms, dry_run: change.dry_run };
        let known = self.warnings.clone();
        let mut outcome = self.put_managed(gathered.texts.written, &managed, how, cores);
        if let Ok(changed) = &mut outcome {
            let things: Vec<String> =
                change.edits.iter().map(|edit| format!("{}.{}", edit.section, edit.name)).collect();
            changed.repeated = changed.diagnostics.take_known(&known, &things);
        }
        outcome.map_err(|not| match not {
            NotChanged::Refused(diagnostics) if only_takes_away => NotChanged::Referenced(diagnostics),
            not => not,
        })
    }

    /// The folders below which things sent over the API may name files.
    pub(crate) fn reachable(&self) -> Vec<PathBuf> {
        self.config.admin.paths.iter().map(|path| path.0.clone()).collect()
    }

    /// Runs a revision. Hand-written files that differ stay as they are and do not run until they change. The
    /// revision runs even if it cannot be saved now: a full disk must not keep a bad config running.
    pub(crate) fn roll_back(&mut self, number: u64, by: &By, cores: &Crew) -> Result<Changed, NotChanged> {
        if self.config.source.is_some() {
            return Err(NotChanged::Fleet);
        }
        let history = self.books.history.as_ref().ok_or(NotChanged::NoHistory)?;
        let revision = history.get(number).ok_or(NotChanged::NoRevision(number))?.clone();
        let texts = history.texts(number).map_err(|e| NotChanged::unread(number, e))?;
        let unreadable = |unreadable: Unreadable| NotChanged::Refused(unreadable.diagnostics);
        let disk = gather(&self.source, Overrides::default()).map_err(unreadable)?.texts;
        let managed = managed_then(&texts, &disk).map_err(NotChanged::unstored)?;
        let instead = Overrides {
            written: Some(&texts.written),
            managed: managed.as_ref().map(|managed| (&managed.tree, &managed.text)),
            scope: None,
            bundle: None,
        };
        let gathered = gather(&self.source, instead).map_err(unreadable)?;
        let why = match by.message.as_str() {
            "" => format!("{} went back to revision {number}", by.author),
            message => format!("{} went back to revision {number}: {message}", by.author),
        };
        let pin =
            (disk.hand != revision.hand).then(|| Pin { refused: disk.hand.clone(), accepted: number, why });
        let managed = managed.as_ref().map(|managed| &managed.text);
        let managed = managed.filter(|text| disk.managed.as_ref() != Some(*text));
        let mark = disk.managed.as_ref().filter(|_| managed.is_some()).map(|disk| mark_of(&disk.text));
        let left = self.books.history.as_ref().and_then(History::latest).map(|latest| latest.number);
        let left = left.filter(|left| *left != number).map(|left| (left, left_for(number, by)));
        let urgent = TakenBack { refused: disk.hash, accepted: number, managed: mark };
        let before = self.texts.clone();
        let terms = Terms::default();
        let candidate =
            Candidate { gathered, instead, by, managed, pin, terms, urgent: Some(urgent.clone()) };
        let changed = self.run_and_log(candidate, cores)?;
        match (&changed.unsaved, left) {
            (Some(why), left) => {
                self.keep_unsaved(Unsaved::new(by.clone(), before, left, why.clone()), &urgent)
            }
            (None, left) => {
                self.clear_unsaved();
                if let Some((left, verdict)) = left {
                    self.judge(left, &verdict);
                }
            }
        }
        Ok(changed)
    }

    /// Only checks and compares.
    fn rehearse(&self, candidate: Candidate<'_>) -> Result<Changed, NotChanged> {
        let texts = candidate.gathered.texts.clone();
        let differences = self.differences(&texts);
        let mut loaded = candidate.gathered.finish(&self.source, candidate.instead);
        let mut carry = Carry::new(Telemetry::new(Setup::default()));
        let compiled =
            path_scope::within(candidate.instead.scope, || compile(&mut loaded, &self.kinds, &mut carry));
        let snapshot = compiled.map_err(NotChanged::Refused)?;
        let restriction = self.restriction_to(&texts);
        let mut diagnostics = loaded.diagnostics;
        tell_restriction(restriction.as_ref(), candidate.terms, &mut diagnostics);
        Ok(Changed {
            revision: snapshot.revision,
            hash: texts.hash,
            number: None,
            differences,
            diagnostics,
            repeated: 0,
            restriction,
            consequences: Consequences::default(),
            unsaved: None,
        })
    }

    /// The differences between the running config and these files, as reported to the author of the change.
    fn differences(&self, texts: &Texts) -> Differences {
        let trees = self.texts.tree_for_writers().zip(texts.tree_for_writers());
        trees.map(|(before, after)| diff::diff(&before, &after)).unwrap_or_default()
    }

    /// How a change from the running config to these files restricts access.
    fn restriction_to(&self, texts: &Texts) -> Option<Restriction> {
        self.restriction_between(&self.texts, texts)
    }

    /// How the change from these files to the running config restricted access.
    pub(crate) fn restriction_since(&self, before: &Texts) -> Option<Restriction> {
        self.restriction_between(before, &self.texts)
    }

    /// How a revision restricted access. Nothing can go back to a revision that cannot be read.
    pub(crate) fn restriction_of(&self, number: u64, before: u64) -> Option<Restriction> {
        let history = self.books.history.as_ref()?;
        self.restriction_between(&history.texts(before).ok()?, &history.texts(number).ok()?)
    }

    fn restriction_between(&self, before: &Texts, after: &Texts) -> Option<Restriction> {
        let (before, after) = before.tree().zip(after.tree())?;
        Restriction::of(&before, &after, &self.kinds)
    }

    pub(super) fn run_and_log(
        &mut self,
        candidate: Candidate<'_>,
        cores: &Crew,
    ) -> Result<Changed, NotChanged> {
        let (hash, by) = (candidate.gathered.texts.hash.clone(), candidate.by.clone());
        let differences = self.differences(&candidate.gathered.texts);
        let (restriction, terms) = (self.restriction_to(&candidate.gathered.texts), candidate.terms);
        let Running { number, mut diagnostics, unsaved } = self.run(candidate, cores)?;
        log::info(
            "config changed",
            &[
                ("revision", &self.snapshot.revision),
                ("number", &number.unwrap_or_default()),
                ("by", &by.author),
                ("source", &by.origin),
                ("things", &differences.things.len()),
            ],
        );
        tell_restriction(restriction.as_ref(), terms, &mut diagnostics);
        let revision = self.snapshot.revision.clone();
        let consequences = self.consequences.clone();
        let repeated = 0;
        Ok(Changed {
            revision,
            hash,
            number,
            differences,
            diagnostics,
            repeated,
            restriction,
            consequences,
            unsaved,
        })
    }

    /// The only path to a running config.
    pub(super) fn run(&mut self, candidate: Candidate<'_>, cores: &Crew) -> Result<Running, NotChanged> {
        if self.gives_way {
            return Err(NotChanged::Upgrading);
        }
        let Candidate { gathered, instead, by, managed, pin, terms, urgent } = candidate;
        let texts = gathered.texts.clone();
        let mut loaded = gathered.finish(&self.source, instead);
        let compiled =
            path_scope::within(instead.scope, || compile(&mut loaded, &self.kinds, &mut self.carry));
        let snapshot = match compiled {
            Ok(snapshot) => snapshot,
            Err(mistakes) => {
                self.watch_too(loaded.files);
                return Err(NotChanged::Refused(mistakes));
            }
        };
        let (mut diagnostics, files) = (loaded.diagnostics.clone(), loaded.files.clone());
        let prepared = self.prepare(loaded, snapshot, cores.serving(), &|| cores.sockets()).map_err(|e| {
            self.watch_too(files);
            diagnostics.push(Diagnostic::error("system", Chain(&*e).to_string()));
            NotChanged::Refused(diagnostics.clone().into())
        })?;
        let written = self.write_down(&texts, by, managed, terms, urgent.is_some());
        let (staged, unsaved) = match (written, urgent) {
            (Ok(staged), _) => (staged, None),
            (Err(e), Some(_)) => (None, Some(Chain(&*e).to_string())),
            (Err(e), None) => return Err(NotChanged::unstored(e)),
        };
        self.finish(prepared, pin, cores);
        self.note_warnings(&diagnostics);
        Ok(Running { number: staged.and_then(|staged| self.accept(staged)), diagnostics, unsaved })
    }

    /// Saves what must be on disk before it runs. On an error everything is as before.
    fn write_down(
        &mut self,
        texts: &Texts,
        by: &By,
        managed: Option<&Text>,
        terms: Terms,
        urgent: bool,
    ) -> Result<Option<Revision>, Failed> {
        let Some(history) = &self.books.history else {
            return Ok(managed.map_or(Ok(()), history::write_managed).map(|()| None)?);
        };
        let staged = match stage(history, texts, by, Some(&self.texts), terms.on_trial()) {
            Ok(staged) => staged,
            // Hand-written files run even if their history cannot be kept: a full disk must not keep an operator from
            // fixing the config. A change over the API can be requested again, and a rollback is saved later.
            Err(e) if managed.is_none() && !urgent => {
                not_kept(history.folder(), &e);
                return Ok(None);
            }
            Err(e) => return Err(Context::new(history.folder().display().to_string(), e).into()),
        };
        if let Some(text) = managed
            && let Err(e) = history.write_managed(text)
        {
            history.abandon();
            return Err(Context::new(text.path.display().to_string(), e).into());
        }
        Ok(staged)
    }

    fn finish(&mut self, prepared: Prepared, pin: Option<Pin>, cores: &Crew) {
        if let Some(history) = &mut self.books.history
            && let Err(e) = history.set_pin(pin.clone())
        {
            log::error(
                "a restart would load the rejected files: their rejection could not be saved",
                &[("folder", &history.folder().display()), ("error", &e)],
            );
        }
        self.books.pinned = pin;
        self.commit(prepared, cores, false);
    }

    fn accept(&mut self, staged: Revision) -> Option<u64> {
        let history = self.books.history.as_mut()?;
        let accepted = history.accept(staged);
        accepted.inspect_err(|e| not_kept(history.folder(), e)).ok()
    }
}

/// Warns about a change on trial if its trial cannot revert it.
fn tell_restriction(restriction: Option<&Restriction>, terms: Terms, diagnostics: &mut Diagnostics) {
    let Some(restriction) = restriction else { return };
    let what = restriction.what();
    if terms.watch.is_some() {
        let message = format!("the watch will not revert this change, because it restricts access ({what})");
        let hint = "if it does harm, the log says so; use `weir rollback`, or add --confirm";
        diagnostics.push(Diagnostic::warning("trial-restricts", message).hint(hint));
    }
    if terms.confirm.is_some() && !restriction.revokes.is_empty() {
        let revoked = restriction.revokes.join(", ");
        let message = format!(
            "this change stays even without a confirmation, because a rollback would restore {revoked}"
        );
        let hint = "apply the part that might lock you out as a separate change";
        diagnostics.push(Diagnostic::warning("trial-revokes", message).hint(hint));
    }
}
