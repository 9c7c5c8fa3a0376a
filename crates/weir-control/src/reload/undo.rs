//! Reverts one revision while keeping the changes made after it.
//!
//! Only changes over the admin API are on trial, so only named things of the managed file are reverted, and only if
//! they are as the revision left them. Hand-written files and later changes stay.

use super::Control;
use super::change::{Candidate, NotChanged, managed_then};
use crate::crew::Crew;
use crate::history::{ACCEPTED, By, History, OnTrial, Revision};
use crate::trial::Terms;
use std::collections::BTreeSet;
use weir_config::Node;
use weir_config::load::gather;
use weir_config::managed::{self, Managed, To};
use weir_config::node::NAMED;
use weir_config::texts::{Overrides, Texts};

/// A trial that is not over according to the history.
pub(crate) struct Open {
    pub(crate) number: u64,
    pub(crate) back_to: u64,
    pub(crate) terms: OnTrial,
    pub(crate) is_latest: bool,
}

/// A named thing of the managed file that a revision changed, and its previous state.
struct Touched {
    section: &'static str,
    name: String,
    before: Option<Node>,
}

impl Control {
    /// The revisions on trial according to the history, oldest first.
    pub(crate) fn open_trials(&self) -> Vec<Open> {
        let Some(history) = &self.books.history else { return Vec::new() };
        let latest = history.latest().map(|latest| latest.number);
        let open = |revision: &Revision| {
            let is_latest = latest == Some(revision.number) && revision.hash == self.texts.hash;
            let (terms, back_to) = (revision.open_trial()?, revision.parent?);
            (is_latest || terms.goes_on).then_some(Open {
                number: revision.number,
                back_to,
                terms,
                is_latest,
            })
        };
        history.revisions().iter().filter_map(open).collect()
    }

    /// The newest revision, if its trial is open.
    pub(crate) fn newest_on_trial(&self) -> Option<u64> {
        let latest = self.books.history.as_ref()?.latest()?;
        latest.open_trial().map(|_| latest.number)
    }

    /// Whether a revision is the newest in the history.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        let latest = self.books.history.as_ref().and_then(History::latest);
        latest.is_some_and(|latest| latest.number == number)
    }

    /// Whether it is the newest and runs unchanged: a full disk may have kept later hand-written changes out of the
    /// history.
    pub(crate) fn is_latest(&self, number: u64) -> bool {
        let latest = self.books.history.as_ref().and_then(History::latest);
        self.is_newest(number) && latest.is_some_and(|latest| latest.hash == self.texts.hash)
    }

    /// Whether a revision's only verdict is that it was accepted.
    pub(crate) fn is_undecided(&self, number: u64) -> bool {
        let revision = self.books.history.as_ref().and_then(|history| history.get(number));
        revision.is_some_and(|revision| revision.verdict == ACCEPTED)
    }

    /// Whether anything that a revision changed is still as it left it. Yes if in doubt.
    pub(crate) fn stands(&self, number: u64, back_to: u64) -> bool {
        let Some(history) = &self.books.history else { return false };
        let (Ok(before), Ok(made)) = (history.texts(back_to), history.texts(number)) else { return true };
        self.is_as_made(&made) || !self.touched_still(&before, &made).is_empty()
    }

    /// Whether the managed file still has that content.
    fn is_as_made(&self, made: &Texts) -> bool {
        let text = |texts: &Texts| texts.managed.as_ref().map(|managed| managed.text.clone());
        text(&self.texts) == text(made)
    }

    /// Reverts what a revision changed and nobody has changed since.
    pub(crate) fn undo(
        &mut self,
        number: u64,
        back_to: u64,
        by: &By,
        cores: &Crew,
    ) -> Result<(), NotChanged> {
        if self.config.source.is_some() {
            return Err(NotChanged::Fleet);
        }
        self.save_unsaved().map_err(NotChanged::unstored)?;
        let history = self.books.history.as_ref().ok_or(NotChanged::NoHistory)?;
        let read = |number| history.texts(number).map_err(|e| NotChanged::unread(number, e));
        let (before, made) = (read(back_to)?, read(number)?);
        let managed = if self.is_as_made(&made) {
            managed_then(&before, &self.texts).map_err(NotChanged::unstored)?
        } else {
            self.without(&before, &made)?
        };
        let Some(managed) = managed else {
            if self.is_undecided(number) {
                self.judge(number, "never confirmed: later changes replaced it");
            }
            return Ok(());
        };
        let written = self.texts.written.clone();
        let instead = Overrides {
            written: Some(&written),
            managed: Some((&managed.tree, &managed.text)),
            ..Overrides::default()
        };
        let gathered = gather(&self.source, instead)
            .map_err(|unreadable| NotChanged::Refused(unreadable.diagnostics))?;
        let (pin, terms) = (self.books.pinned.clone(), Terms::default());
        let managed = Some(&managed.text);
        self.run_and_log(Candidate { gathered, instead, by, managed, pin, terms, urgent: None }, cores)?;
        self.judge(number, &format!("reverted by {}: {}", by.author, by.message));
        Ok(())
    }

    /// The managed file without a revision's changes; `None` if none of them is left.
    fn without(&self, before: &Texts, made: &Texts) -> Result<Option<Managed>, NotChanged> {
        let touched = self.touched_still(before, made);
        let (Some(path), false) = (self.texts.managed_path.clone(), touched.is_empty()) else {
            return Ok(None);
        };
        let mut tree = self.texts.managed_tree().unwrap_or_else(|| managed::empty(&path));
        for Touched { section, name, before } in touched {
            managed::set(&mut tree, section, &name, before.map_or(To::Nothing, To::This));
        }
        managed::write(tree, path).map(Some).map_err(NotChanged::unstored)
    }

    /// The things that a revision changed and that are still as it left them.
    fn touched_still(&self, before: &Texts, made: &Texts) -> Vec<Touched> {
        let [before, made, now] = [before, made, &self.texts].map(Texts::managed_tree);
        let mut found = Vec::new();
        for section in NAMED {
            let [before, made, now] =
                [&before, &made, &now].map(|tree| tree.as_ref().and_then(|tree| tree.get(section)));
            let named = [before, made].into_iter().flatten().flat_map(Node::entries);
            let names: BTreeSet<&str> = named.map(|(key, _)| &*key.text).collect();
            for name in names {
                let [before, made, now] =
                    [before, made, now].map(|things| things.and_then(|things| things.get(name)));
                if before != made && made == now {
                    found.push(Touched { section, name: name.to_owned(), before: before.cloned() });
                }
            }
        }
        found
    }
}
