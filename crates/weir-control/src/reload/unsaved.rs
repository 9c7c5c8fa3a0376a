//! The running config while it is not on disk: a rollback must not wait until a full disk has room. Saving is retried
//! until it succeeds.
//!
//! ```text
//!   roll back ─► cannot be saved ─► runs from memory; a link in the folder says so ─► retried after 1, 2 … 60 s
//!                                            └─► restart ─► the link keeps the refused config from running
//! ```
//! Until then nothing else can be changed over the API, and a reload uses the pending managed file instead of the one
//! on disk.

use super::Control;
use super::staging::{left_for, stage};
use crate::history::{By, Origin, TakenBack};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_config::managed::Managed;
use weir_config::{Diagnostic, Texts};
use weir_telemetry::log;

/// The pause before the second attempt, and its maximum.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Most verdicts that wait to be saved.
const VERDICTS: usize = 16;

/// What must be saved.
pub(crate) struct Unsaved {
    by: By,
    /// The previous config, from which the revision's changes are derived.
    before: Texts,
    /// The revision that was left, and its verdict.
    left: Option<(u64, String)>,
    /// The system's error.
    why: String,
    wait: Duration,
    next: Instant,
}

// === impl Unsaved ===

impl Unsaved {
    pub(super) fn new(by: By, before: Texts, left: Option<(u64, String)>, why: String) -> Self {
        Self { by, before, left, why, wait: FIRST, next: Instant::now() + FIRST }
    }

    /// For a config that a process reverted without being able to save it.
    pub(super) fn of_before(taken: &TakenBack, before: Texts, left: Option<u64>) -> Self {
        let message = "reverted before the last start, when the disk was full".to_owned();
        let by = By { author: "guard".to_owned(), origin: Origin::Guard, message };
        let left = left.map(|left| (left, left_for(taken.accepted, &by)));
        Self::new(by, before, left, String::new())
    }
}

/// The warning of `weir check` and the log about reverted files that could not be changed.
pub(crate) fn warning(taken: &TakenBack) -> Diagnostic {
    let message = format!(
        "a change that was reverted while the disk was full does not run; revision {} runs instead",
        taken.accepted
    );
    Diagnostic::warning("rolled-back", message)
        .hint("free space on the disk, so that the running Weir can save its config, or change the config to run it")
}

// === impl Control ===

impl Control {
    /// Notes that the running config must be saved, and records it where a restart finds it.
    pub(super) fn keep_unsaved(&mut self, unsaved: Unsaved, taken: &TakenBack) {
        let Some(history) = &self.books.history else { return };
        let folder = history.folder().display().to_string();
        let restart = match history.mark_taken_back(taken) {
            Ok(()) => "a restart does not load the reverted change either".to_owned(),
            Err(e) => format!("A RESTART WOULD LOAD THE REVERTED CHANGE: {e}"),
        };
        log::error(
            "the config runs from memory only: it could not be saved",
            &[
                ("revision", &taken.accepted),
                ("folder", &folder),
                ("error", &unsaved.why),
                ("restart", &restart),
                ("hint", &"free space on the disk; Weir retries until it is saved"),
            ],
        );
        self.books.unsaved = Some(unsaved);
        self.show_drift();
    }

    /// Sets the metric for how the running config differs from the files.
    pub(super) fn show_drift(&self) {
        self.telemetry.show_drift(self.books.pinned.is_some(), self.books.unsaved.is_some());
    }

    /// Marks the running config as saved, whatever ran before.
    pub(super) fn clear_unsaved(&mut self) {
        if self.books.unsaved.take().is_none() {
            return;
        }
        if let Some(history) = &self.books.history
            && let Err(e) = history.clear_taken_back()
        {
            not_kept(history.folder(), &e);
        }
        self.show_drift();
    }

    /// The intended managed file, if the disk differs.
    pub(super) fn unsaved_managed(&self) -> Option<Managed> {
        self.books.unsaved.as_ref()?;
        Some(Managed { tree: self.texts.managed_tree()?, text: self.texts.managed.clone()? })
    }

    /// Retries if it is time to.
    pub(crate) fn save_when_due(&mut self, now: Instant) {
        self.write_rest();
        if self.books.unsaved.as_ref().is_some_and(|unsaved| unsaved.next <= now) {
            let _ = self.save_unsaved(); // it reports the outcome itself
        }
    }

    /// Saves what is pending.
    ///
    /// # Errors
    /// Why it still cannot be saved.
    pub(super) fn save_unsaved(&mut self) -> io::Result<()> {
        if self.books.unsaved.is_none() {
            return Ok(());
        }
        let outcome = self.write_unsaved();
        let Some(unsaved) = &mut self.books.unsaved else { return Ok(()) };
        match outcome {
            Ok(number) => {
                log::info("the config is saved now", &[("number", &number.unwrap_or_default())]);
                self.books.unsaved = None;
                self.show_drift();
                Ok(())
            }
            Err(e) => {
                unsaved.why = e.to_string();
                unsaved.wait = (unsaved.wait * 2).min(LONGEST);
                unsaved.next = Instant::now() + unsaved.wait;
                let again = unsaved.wait.as_secs();
                log::warn(
                    "the config still runs from memory only: it cannot be saved",
                    &[("error", &e), ("again_in_seconds", &again)],
                );
                Err(e)
            }
        }
    }

    /// Writes in the order of any change: the revision, the managed file, then the records of both.
    fn write_unsaved(&mut self) -> io::Result<Option<u64>> {
        let (Some(unsaved), Some(history)) = (&self.books.unsaved, &mut self.books.history) else {
            return Ok(None);
        };
        let staged = stage(history, &self.texts, &unsaved.by, Some(&unsaved.before), None)?;
        if let Some(managed) = &self.texts.managed
            && let Err(e) = history.write_managed(managed)
        {
            history.abandon();
            return Err(e);
        }
        history.set_pin(self.books.pinned.clone())?;
        let number = staged.map(|staged| history.accept(staged)).transpose()?;
        if let Some((left, verdict)) = &unsaved.left {
            history.judge(*left, verdict)?;
        }
        history.clear_taken_back()?;
        Ok(number)
    }

    /// Why the running config is not on disk; `None` if it is.
    pub(crate) fn unsaved(&self) -> Option<String> {
        self.books.unsaved.as_ref().map(|unsaved| unsaved.why.clone())
    }

    /// Records the verdict on a revision, or keeps it for later if it cannot be written now.
    pub(crate) fn judge(&mut self, number: u64, verdict: &str) {
        let Some(history) = &mut self.books.history else { return };
        if let Err(e) = history.judge(number, verdict) {
            not_kept(history.folder(), &e);
            self.books.verdicts.truncate(VERDICTS - 1);
            self.books.verdicts.push((number, verdict.to_owned()));
        }
    }

    /// Writes pending records other than the config.
    fn write_rest(&mut self) {
        let Some(history) = &mut self.books.history else { return };
        if self.books.unsaved.is_none() {
            let _ = history.set_pin(self.books.pinned.clone()); // usually nothing to do
        }
        self.books.verdicts.retain(|(number, verdict)| history.judge(*number, verdict).is_err());
    }
}

/// Reports that the history lacks an entry.
pub(super) fn not_kept(folder: &Path, error: &io::Error) {
    log::error("the history cannot be written", &[("folder", &folder.display()), ("error", error)]);
}
