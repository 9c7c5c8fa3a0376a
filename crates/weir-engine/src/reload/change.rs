//! How a config comes to run, whoever asks: a signal, a changed file, the command line, the admin API, somebody who goes back.
//!
//! ```text
//!   read the files ─► put in what changes ─► check, compile, bind ─► write down ─► write the managed file ─► every core adopts it
//!                                                any mistake: nothing has happened            from here on nothing can fail
//! ```

use super::{Control, Prepared};
use crate::config::load::{Gathered, Unreadable, gather};
use crate::config::managed::{self, Managed, To};
use crate::config::reach::{self, Reach};
use crate::config::texts::{Instead, Text, Texts};
use crate::config::{Diagnostic, Diagnostics, Node, Source, digest};
use crate::core::Message;
use crate::history::diff::{self, Differences};
use crate::history::{self, By, History, Origin, Pin, Revision};
use crate::snapshot::{Carry, compile};
use crate::trial::Terms;
use std::fmt;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use weir_telemetry::{Setup, Telemetry, log};

/// A change of the things that the API manages.
#[derive(Clone, Debug)]
pub struct Change {
    /// What changes: all of it, or nothing.
    pub edits: Vec<Edit>,
    /// The digests of the whole config that it may start from; none for any.
    pub only_from: Vec<String>,
    /// Who changes it.
    pub by: By,
    /// Only says what would happen.
    pub dry_run: bool,
    /// Under which conditions it stays.
    pub terms: Terms,
}

/// A change of one named thing.
#[derive(Clone, Debug)]
pub struct Edit {
    /// `routes`, `upstreams` and so on.
    pub section: String,
    /// The thing's name.
    pub name: String,
    /// What becomes of it.
    pub to: To,
    /// As what it must be there.
    pub only_if: OnlyIf,
}

/// As what a thing must be there for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnlyIf {
    /// Not at all.
    Absent,
    /// However it is.
    Any,
    /// With one of these digests.
    Is(Vec<String>),
    /// In any form.
    There,
}

/// A change that was made, or would be.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The revision of the config that runs now, with what its variables stand for.
    pub revision: String,
    /// The digest of the config as written.
    pub hash: String,
    /// Its number in the history; `None` without one, or if nothing changed.
    pub number: Option<u64>,
    /// What differs from before.
    pub differences: Differences,
    /// Warnings about it.
    pub diagnostics: Diagnostics,
}

/// Why a change was not made. What ran before runs on, and no file has changed.
#[derive(Clone, Debug)]
pub enum NotChanged {
    /// The gateway drains.
    Draining,
    /// The config names no file that the API may write.
    NoWrites,
    /// The config names no folder for a history.
    NoHistory,
    /// There is no such revision any more.
    NoRevision(u64),
    /// The thing stands in a file that people write: where.
    Owned(String, String),
    /// There is no such thing.
    Missing(String),
    /// There is such a thing already.
    Exists(String),
    /// It is not as the caller knows it: what, and its digest now.
    Stale(String, String),
    /// The config would have mistakes.
    Refused(Diagnostics),
    /// What was to go is needed by others, which the mistakes name.
    Referenced(Diagnostics),
    /// It could not be written down.
    Unstored(String),
}

/// What else is there beside the config: its history.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) history: Option<History>,
    /// The revision that runs in the place of the files.
    pub(crate) pinned: Option<Pin>,
}

// === impl Books ===

impl Books {
    /// Reads what is to run: the files as they are, or, where they may not run, those of the revision in their place.
    pub(crate) fn read(&mut self, source: &Source, instead: Instead<'_>) -> Result<Gathered, Unreadable> {
        let mut gathered = gather(source, instead)?;
        self.pinned = None;
        if let Err(e) = self.open(gathered.texts.state.as_deref()) {
            let wrong = Diagnostic::error("state-unusable", e).on(&gathered.tree, "admin.state");
            gathered.diagnostics.push(wrong);
            return Ok(gathered);
        }
        let Some(history) = &self.history else { return Ok(gathered) };
        let refused = |pin: &&Pin| instead.written.is_none() && pin.refused == gathered.texts.hand;
        let Some(pin) = history.pin().filter(refused).cloned() else { return Ok(gathered) };
        let kept = match history.texts(pin.accepted) {
            Ok(kept) => kept,
            Err(e) => {
                let message = format!(
                    "revision {} runs in place of these files, and cannot be read: {e}",
                    pin.accepted
                );
                let wrong = Diagnostic::error("state-unusable", message).on(&gathered.tree, "admin.state");
                gathered.diagnostics.push(wrong);
                return Ok(gathered);
            }
        };
        let mut accepted = gather(source, Instead { written: Some(&kept.written), ..instead })?;
        // The files that may not run are watched on: they are about to be mended.
        accepted.files.extend(gathered.files);
        accepted.diagnostics.push(warning(&pin));
        self.pinned = Some(pin);
        Ok(accepted)
    }

    fn open(&mut self, folder: Option<&Path>) -> Result<(), String> {
        if self.history.as_ref().map(History::folder) == folder {
            return Ok(());
        }
        let open = |folder: &Path| {
            History::open(folder).map_err(|e| format!("cannot keep a history in {}: {e}", folder.display()))
        };
        self.history = folder.map(open).transpose()?;
        Ok(())
    }

    /// Writes down what runs since the start, unless it is known.
    pub(crate) fn started(&mut self, texts: &Texts) {
        let Some(history) = &mut self.history else { return };
        history.recover(texts);
        let by = By::process(Origin::Start);
        if let Err(e) = note(history, texts, &by, None) {
            log::error("the history is not kept", &[("folder", &history.folder().display()), ("error", &e)]);
        }
        self.forget_pin();
    }

    /// Files that were refused and have changed since may run again.
    fn forget_pin(&mut self) {
        if let (Some(history), None) = (&mut self.history, &self.pinned)
            && let Err(e) = history.set_pin(None)
        {
            log::error("the history is not kept", &[("folder", &history.folder().display()), ("error", &e)]);
        }
    }
}

/// What `weir check`, the log and a reload say of files in whose place a revision runs.
pub(crate) fn warning(pin: &Pin) -> Diagnostic {
    let message =
        format!("these files do not run: revision {} runs in their place, since {}", pin.accepted, pin.why);
    Diagnostic::warning("rolled-back", message)
        .hint("change them and they run; `weir diff` shows what differs, `weir history` what happened")
}

/// Stages what runs as a revision and accepts it, unless it is the latest already.
fn note(
    history: &mut History,
    texts: &Texts,
    by: &By,
    before: Option<&Texts>,
) -> std::io::Result<Option<u64>> {
    match stage(history, texts, by, before)? {
        Some(staged) => history.accept(staged).map(Some),
        None => Ok(None),
    }
}

fn stage(
    history: &History,
    texts: &Texts,
    by: &By,
    before: Option<&Texts>,
) -> std::io::Result<Option<Revision>> {
    if history.latest().is_some_and(|latest| latest.hash == texts.hash) {
        return Ok(None);
    }
    let trees = before.and_then(Texts::tree).zip(texts.tree());
    let changed = trees.map(|(before, after)| diff::diff(&before, &after).things).unwrap_or_default();
    history.stage(texts, by, changed.into_iter().collect()).map(Some)
}

// === impl Control ===

/// What is about to run, and what must be on the disk before it does.
struct Candidate<'a> {
    gathered: Gathered,
    instead: Instead<'a>,
    by: &'a By,
    /// The managed file is to say this.
    managed: Option<&'a Text>,
    /// Which files may no longer run, and which revision runs in their place.
    pin: Option<Pin>,
}

impl Control {
    /// Loads the files again and runs them.
    pub(super) fn load_files(
        &mut self,
        by: &By,
        cores: &[mpsc::UnboundedSender<Message>],
    ) -> Result<Diagnostics, Diagnostics> {
        let gathered = match self.books.read(&self.source, Instead::default()) {
            Ok(gathered) => gathered,
            Err(unreadable) => {
                self.watch_too(unreadable.files);
                return Err(unreadable.diagnostics);
            }
        };
        let pin = self.books.pinned.clone();
        let candidate = Candidate { gathered, instead: Instead::default(), by, managed: None, pin };
        match self.run(candidate, cores) {
            Ok((_, diagnostics)) => Ok(diagnostics),
            Err(NotChanged::Refused(diagnostics)) => Err(diagnostics),
            Err(other) => {
                let mut diagnostics = Diagnostics::default();
                diagnostics.push(Diagnostic::error("system", other.to_string()));
                Err(diagnostics)
            }
        }
    }

    /// Makes a change of the things that the API manages, or says what it would do.
    pub(crate) fn change(
        &mut self,
        change: &Change,
        cores: &[mpsc::UnboundedSender<Message>],
    ) -> Result<Changed, NotChanged> {
        let unreadable = |unreadable: Unreadable| NotChanged::Refused(unreadable.diagnostics);
        let gathered = self.books.read(&self.source, Instead::default()).map_err(unreadable)?;
        if change.terms.is_any() && self.books.history.is_none() {
            return Err(NotChanged::NoHistory);
        }
        let path = gathered.texts.managed_path.clone().ok_or(NotChanged::NoWrites)?;
        if !change.only_from.is_empty() && !change.only_from.contains(&gathered.texts.hash) {
            return Err(NotChanged::Stale("the config".to_owned(), gathered.texts.hash.clone()));
        }
        let managed = edited(&gathered, &path, &change.edits)?;
        let written = gathered.texts.written;
        let reach = Reach { file: request_file(&path), below: self.reachable() };
        let instead = Instead {
            written: Some(&written),
            managed: Some((&managed.tree, &managed.text)),
            reach: Some(&reach),
        };
        let pin = self.books.pinned.clone();
        let gathered = gather(&self.source, instead).map_err(unreadable)?;
        let only_takes_away = change.edits.iter().all(|edit| matches!(edit.to, To::Nothing));
        let candidate = Candidate { gathered, instead, by: &change.by, managed: Some(&managed.text), pin };
        let outcome = if change.dry_run { self.rehearse(candidate) } else { self.run_told(candidate, cores) };
        outcome.map_err(|not| match not {
            NotChanged::Refused(diagnostics) if only_takes_away => NotChanged::Referenced(diagnostics),
            not => not,
        })
    }

    /// The folders below which things that come over the API may name files.
    fn reachable(&self) -> Vec<PathBuf> {
        self.config.admin.paths.iter().map(|path| path.0.clone()).collect()
    }

    /// Runs what a revision says; hand-written files that say something else stay as they are and do not run until they change.
    pub(crate) fn roll_back(
        &mut self,
        number: u64,
        by: &By,
        cores: &[mpsc::UnboundedSender<Message>],
    ) -> Result<Changed, NotChanged> {
        let history = self.books.history.as_ref().ok_or(NotChanged::NoHistory)?;
        let revision = history.get(number).ok_or(NotChanged::NoRevision(number))?.clone();
        let texts =
            history.texts(number).map_err(|e| NotChanged::Unstored(format!("revision {number}: {e}")))?;
        let unreadable = |unreadable: Unreadable| NotChanged::Refused(unreadable.diagnostics);
        let disk = gather(&self.source, Instead::default()).map_err(unreadable)?.texts;
        let managed = managed_then(&texts, &disk).map_err(NotChanged::Unstored)?;
        let instead = Instead {
            written: Some(&texts.written),
            managed: managed.as_ref().map(|managed| (&managed.tree, &managed.text)),
            reach: None,
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
        let left = self.books.history.as_ref().and_then(History::latest).map(|latest| latest.number);
        let changed = self.run_told(Candidate { gathered, instead, by, managed, pin }, cores)?;
        if let (Some(left), Some(history)) = (left.filter(|left| *left != number), &mut self.books.history)
            && let Err(e) = history.judge(left, &left_for(number, by))
        {
            log::error("the history is not kept", &[("folder", &history.folder().display()), ("error", &e)]);
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
            reach::within(candidate.instead.reach, || compile(&mut loaded, &self.kinds, &mut carry));
        let Some(snapshot) = compiled else { return Err(NotChanged::Refused(loaded.diagnostics)) };
        Ok(Changed {
            revision: snapshot.revision,
            hash: texts.hash,
            number: None,
            differences,
            diagnostics: loaded.diagnostics,
        })
    }

    /// What differs between what runs and these files.
    fn differences(&self, texts: &Texts) -> Differences {
        let trees = self.texts.tree().zip(texts.tree());
        trees.map(|(before, after)| diff::diff(&before, &after)).unwrap_or_default()
    }

    fn run_told(
        &mut self,
        candidate: Candidate<'_>,
        cores: &[mpsc::UnboundedSender<Message>],
    ) -> Result<Changed, NotChanged> {
        let (hash, by) = (candidate.gathered.texts.hash.clone(), candidate.by.clone());
        let differences = self.differences(&candidate.gathered.texts);
        let (number, diagnostics) = self.run(candidate, cores)?;
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
        Ok(Changed { revision: self.snapshot.revision.clone(), hash, number, differences, diagnostics })
    }

    /// The one way to a config that runs.
    fn run(
        &mut self,
        candidate: Candidate<'_>,
        cores: &[mpsc::UnboundedSender<Message>],
    ) -> Result<(Option<u64>, Diagnostics), NotChanged> {
        let Candidate { gathered, instead, by, managed, pin } = candidate;
        let texts = gathered.texts.clone();
        let mut loaded = gathered.finish(&self.source, instead);
        let compiled = reach::within(instead.reach, || compile(&mut loaded, &self.kinds, &mut self.carry));
        let Some(snapshot) = compiled else {
            self.watch_too(loaded.files);
            return Err(NotChanged::Refused(loaded.diagnostics));
        };
        let (mut diagnostics, files) = (loaded.diagnostics.clone(), loaded.files.clone());
        let prepared = self.prepare(loaded, snapshot, cores.len()).map_err(|text| {
            self.watch_too(files);
            diagnostics.push(Diagnostic::error("system", text));
            NotChanged::Refused(diagnostics.clone())
        })?;
        let staged = self.write_down(&texts, by, managed)?;
        self.finish(prepared, pin, cores);
        Ok((staged.and_then(|staged| self.accept(staged)), diagnostics))
    }

    /// Puts on the disk what must be there before it runs. On an error it is as before.
    fn write_down(
        &mut self,
        texts: &Texts,
        by: &By,
        managed: Option<&Text>,
    ) -> Result<Option<Revision>, NotChanged> {
        let Some(history) = &self.books.history else {
            let written = managed.map_or(Ok(()), history::write_managed);
            return written.map(|()| None).map_err(|e| unwritten(managed, &e));
        };
        let staged = match stage(history, texts, by, Some(&self.texts)) {
            Ok(staged) => staged,
            // Files that people wrote run whether their history can be kept or not: a full disk must not keep an operator from
            // mending the config. A change over the API can be asked for again.
            Err(e) if managed.is_none() => {
                log::error(
                    "the history is not kept",
                    &[("folder", &history.folder().display()), ("error", &e)],
                );
                return Ok(None);
            }
            Err(e) => {
                return Err(NotChanged::Unstored(format!("{}: {e}", history.folder().display())));
            }
        };
        if let Err(e) = managed.map_or(Ok(()), |text| history.write_managed(text)) {
            history.abandon();
            return Err(unwritten(managed, &e));
        }
        Ok(staged)
    }

    fn finish(&mut self, prepared: Prepared, pin: Option<Pin>, cores: &[mpsc::UnboundedSender<Message>]) {
        if let Some(history) = &mut self.books.history
            && let Err(e) = history.set_pin(pin.clone())
        {
            log::error(
                "a restart would load the files that were left behind: that they may not run could not be written down",
                &[("folder", &history.folder().display()), ("error", &e)],
            );
        }
        self.books.pinned = pin;
        self.commit(prepared, cores, false);
    }

    fn accept(&mut self, staged: Revision) -> Option<u64> {
        let history = self.books.history.as_mut()?;
        let accepted = history.accept(staged);
        accepted
            .inspect_err(|e| {
                log::error(
                    "the history is not kept",
                    &[("folder", &history.folder().display()), ("error", e)],
                );
            })
            .ok()
    }
}

/// The verdict of a revision that somebody went back from.
fn left_for(number: u64, by: &By) -> String {
    let why = if by.message.is_empty() { String::new() } else { format!(": {}", by.message) };
    format!("left for revision {number} by {}{why}", by.author)
}

fn unwritten(managed: Option<&Text>, error: &std::io::Error) -> NotChanged {
    let file = managed.map_or_else(String::new, |text| text.path.display().to_string());
    NotChanged::Unstored(format!("{file}: {error}"))
}

/// The file in which values that come in a request are said to stand: beside the managed file, so that relative paths mean the same
/// there.
pub fn request_file(managed: &Path) -> PathBuf {
    managed.with_file_name("(request)")
}

/// The managed file with these changes.
fn edited(gathered: &Gathered, path: &Path, edits: &[Edit]) -> Result<Managed, NotChanged> {
    let mut tree = gathered.texts.managed_tree().unwrap_or_else(|| managed::empty(path));
    let mut wrong = Diagnostics::default();
    for edit in edits {
        let Edit { section, name, to, only_if } = edit;
        let called = format!("{section}.{name}");
        let there = gathered.tree.get(section).and_then(|things| things.get(name));
        may_be(&called, there, only_if)?;
        let manages = tree.get(section).is_some_and(|things| things.get(name).is_some());
        if let (Some(_), false) = (there, manages) {
            let place = gathered.tree.lookup(&called).and_then(|(key, _)| key.map(|key| key.at.to_string()));
            return Err(NotChanged::Owned(called, place.unwrap_or_default()));
        }
        if there.is_none() && !matches!(to, To::This(_)) {
            return Err(NotChanged::Missing(called));
        }
        if let To::This(thing) | To::Patched(thing) = to {
            managed::refuse(&called, thing, &mut wrong);
        }
        managed::set(&mut tree, section, name, to.clone());
    }
    if wrong.errors() > 0 {
        return Err(NotChanged::Refused(wrong));
    }
    managed::write(tree, path.to_owned()).map_err(NotChanged::Unstored)
}

fn may_be(called: &str, there: Option<&Node>, only_if: &OnlyIf) -> Result<(), NotChanged> {
    match (only_if, there) {
        (OnlyIf::Any, _) | (OnlyIf::Absent, None) | (OnlyIf::There, Some(_)) => Ok(()),
        (OnlyIf::Absent, Some(_)) => Err(NotChanged::Exists(called.to_owned())),
        (OnlyIf::There | OnlyIf::Is(_), None) => Err(NotChanged::Missing(called.to_owned())),
        (OnlyIf::Is(digests), Some(there)) => {
            let now = digest::of(there);
            if digests.contains(&now) { Ok(()) } else { Err(NotChanged::Stale(called.to_owned(), now)) }
        }
    }
}

/// The managed file as a revision has it; an empty one where it had none and there is one now.
fn managed_then(then: &Texts, disk: &Texts) -> Result<Option<Managed>, String> {
    let Some(path) = &disk.managed_path else { return Ok(None) };
    match (then.managed_tree(), &then.managed) {
        (Some(tree), Some(text)) => {
            Ok(Some(Managed { tree, text: Text { path: path.clone(), text: text.text.clone() } }))
        }
        _ if disk.managed.is_some() => managed::write(managed::empty(path), path.clone()).map(Some),
        _ => Ok(None),
    }
}

// === what is told ===

impl fmt::Display for NotChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draining => f.write_str("the gateway drains: it takes no other config any more"),
            Self::NoWrites => f.write_str(
                "the config names no file that the API may write: set `admin.writes`, or change the files and reload",
            ),
            Self::NoHistory => f.write_str("the config names no folder for a history: set `admin.state`"),
            Self::NoRevision(number) => {
                write!(f, "there is no revision {number} in the history; `weir history` lists those there are")
            }
            Self::Owned(thing, place) => write!(
                f,
                "`{thing}` stands in a file that people write, at {place}: change it there, or move it here with `weir config adopt`"
            ),
            Self::Missing(thing) => write!(f, "there is no `{thing}`"),
            Self::Exists(thing) => write!(f, "there is a `{thing}` already"),
            Self::Stale(thing, _) => write!(f, "{thing} has changed since you read it: read it again"),
            Self::Refused(diagnostics) | Self::Referenced(diagnostics) => {
                f.write_str(diagnostics.to_text().trim_end())
            }
            Self::Unstored(why) => write!(f, "nothing has changed, because it could not be written down: {why}"),
        }
    }
}

impl std::error::Error for NotChanged {}
