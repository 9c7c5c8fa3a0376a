//! What Weir keeps beside the config files: their history, and which revision runs in their place.

use super::super::staging::stage;
use super::super::unsaved::{self, Unsaved, not_kept};
use super::managed::managed_then;
use crate::history::{By, History, Origin, Pin, TakenBack};
use std::io;
use std::path::Path;
use weir_config::load::{Gathered, Unreadable, gather};
use weir_config::texts::{Overrides, Texts};
use weir_config::{Diagnostic, Source};
use weir_wire::{Chain, Context};

/// What exists beside the config: its history.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) history: Option<History>,
    /// The revision that runs instead of the files.
    pub(crate) pinned: Option<Pin>,
    /// The running config, if it is not on disk.
    pub(in crate::reload) unsaved: Option<Unsaved>,
    /// Verdicts that are not on disk.
    pub(in crate::reload) verdicts: Vec<(u64, String)>,
    /// What a process reverted without being able to save it, and the files it reverted.
    taken: Option<(TakenBack, Texts)>,
}

impl Books {
    /// Reads what should run: the current files or, if they may not run, the revision in their place.
    pub(crate) fn read(&mut self, source: &Source, instead: Overrides<'_>) -> Result<Gathered, Unreadable> {
        let mut gathered = gather(source, instead)?;
        self.pinned = None;
        if let Err(e) = self.open(gathered.texts.state.as_deref()) {
            let wrong = Diagnostic::error("state-unusable", Chain(&e).to_string())
                .on(&gathered.tree, "admin.state")
                .hint("run Weir as a user who may write there, name another folder, or leave `state` out");
            gathered.diagnostics.push(wrong);
            return Ok(gathered);
        }
        let Some(history) = &self.history else { return Ok(gathered) };
        let is_on_disk = instead.written.is_none() && instead.managed.is_none();
        if let Some(taken) = history.taken_back().filter(|_| is_on_disk)
            && let Some(all) = taken.is_all_of(&gathered.texts)
        {
            return self.read_taken(source, instead, gathered, (taken, all));
        }
        let refused = |pin: &&Pin| instead.written.is_none() && pin.refused == gathered.texts.hand;
        let Some(pin) = history.pin().filter(refused).cloned() else { return Ok(gathered) };
        let kept = match history.texts(pin.accepted) {
            Ok(kept) => kept,
            Err(e) => return Ok(without(gathered, pin.accepted, &e)),
        };
        let mut accepted = gather(source, Overrides { written: Some(&kept.written), ..instead })?;
        // Keep watching the files that may not run: they are about to be fixed.
        accepted.files.extend(gathered.files);
        accepted.diagnostics.push(warning(&pin));
        self.pinned = Some(pin);
        Ok(accepted)
    }

    /// Reads an accepted revision instead, because a process reverted the files without being able to change them.
    /// Takes all files of the revision, or only the managed one if people have changed theirs since.
    fn read_taken(
        &mut self,
        source: &Source,
        instead: Overrides<'_>,
        gathered: Gathered,
        (taken, all): (TakenBack, bool),
    ) -> Result<Gathered, Unreadable> {
        let Some(history) = &self.history else { return Ok(gathered) };
        let disk = gathered.texts.clone();
        let kept = history.texts(taken.accepted).and_then(|kept| {
            let managed = managed_then(&kept, &disk).map_err(io::Error::other)?;
            Ok((kept, managed))
        });
        let (kept, managed) = match kept {
            Ok(kept) => kept,
            Err(e) => return Ok(without(gathered, taken.accepted, &e)),
        };
        let managed = managed.as_ref().map(|managed| (&managed.tree, &managed.text));
        let written = if all { Some(&kept.written[..]) } else { instead.written };
        let mut accepted = gather(source, Overrides { written, managed, ..instead })?;
        accepted.files.extend(gathered.files);
        accepted.diagnostics.push(unsaved::warning(&taken));
        let why = "it was reverted while the disk was full".to_owned();
        let pin = Pin { refused: disk.hand.clone(), accepted: taken.accepted, why };
        self.pinned = (all && disk.hand != kept.hand).then_some(pin);
        self.taken = Some((taken, disk));
        Ok(accepted)
    }

    fn open(&mut self, folder: Option<&Path>) -> Result<(), Context> {
        if self.history.as_ref().map(History::folder) == folder {
            return Ok(());
        }
        let open = |folder: &Path| {
            let about = |e| Context::new(format!("cannot keep a history in {}", folder.display()), e);
            History::open(folder).map_err(about)
        };
        self.history = folder.map(open).transpose()?;
        Ok(())
    }

    /// Records what has run since the start, unless it is known.
    pub(crate) fn started(&mut self, texts: &Texts) {
        let Some(history) = &mut self.history else { return };
        if texts.written.is_empty() {
            return; // the source has not sent anything yet
        }
        history.recover(texts);
        if let Some((taken, disk)) = self.taken.take() {
            let left = history.revisions().iter().rev().find(|revision| revision.hash == taken.refused);
            let left = left.map(|left| left.number);
            self.unsaved = Some(Unsaved::of_before(&taken, disk, left));
            return;
        }
        if let Err(e) = history.clear_taken_back() {
            not_kept(history.folder(), &e);
        }
        let by = By::process(Origin::Start);
        if let Err(e) = note(history, texts, &by, None) {
            not_kept(history.folder(), &e);
        }
        self.forget_pin();
    }

    /// Hand-written files that were refused may run again once they have changed.
    fn forget_pin(&mut self) {
        if let (Some(history), None) = (&mut self.history, &self.pinned)
            && let Err(e) = history.set_pin(None)
        {
            not_kept(history.folder(), &e);
        }
    }
}

/// What was read, plus the mistake that the revision in its place cannot be read.
fn without(mut gathered: Gathered, accepted: u64, error: &io::Error) -> Gathered {
    let message = format!("revision {accepted} runs instead of these files, and cannot be read: {error}");
    let wrong = Diagnostic::error("state-unusable", message).on(&gathered.tree, "admin.state");
    gathered.diagnostics.push(wrong);
    gathered
}

/// The text for `weir check`, the log and a reload about files that a revision replaces.
pub(crate) fn warning(pin: &Pin) -> Diagnostic {
    let message =
        format!("these files do not run: revision {} runs instead, since {}", pin.accepted, pin.why);
    Diagnostic::warning("rolled-back", message)
        .hint("change them to run them; `weir diff` shows the difference, `weir history` the reason")
}

/// Stages what runs as a revision and accepts it, unless it is already the latest.
fn note(history: &mut History, texts: &Texts, by: &By, before: Option<&Texts>) -> io::Result<Option<u64>> {
    match stage(history, texts, by, before, None)? {
        Some(staged) => history.accept(staged).map(Some),
        None => Ok(None),
    }
}
