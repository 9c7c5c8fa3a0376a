//! Promotion: turns a candidate that was judged into a change of what the admin API manages, which may go on trial.

use super::locked;
use crate::Gateway;
use crate::history::By;
use crate::reload::change::Change;
use crate::reload::{Changed, Edit, NotChanged, OnlyIf};
use crate::trial::Terms;
use std::fmt;
use weir_config::Node;
use weir_config::managed::{To, is_section};

/// Why a candidate was not promoted. Nothing has changed.
#[derive(Clone, Debug)]
pub enum NotPromoted {
    /// There is no shadow of this id, or its report has been dropped.
    Missing,
    /// Another config runs than the one that it was compared with.
    Outdated,
    /// The candidate runs already.
    Same,
    /// It differs in this setting, which the API cannot change.
    Unwritable(String),
    /// The change was refused.
    NotChanged(NotChanged),
}

impl fmt::Display for NotPromoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such shadow"),
            Self::Outdated => {
                f.write_str("the running config is no longer the one that the candidate was compared with")
            }
            Self::Same => f.write_str("the candidate is the running config"),
            Self::Unwritable(key) => write!(
                f,
                "the candidate also changes `{key}`, which the API cannot change: change the files and reload"
            ),
            Self::NotChanged(not) => not.fmt(f),
        }
    }
}

impl std::error::Error for NotPromoted {}

impl Gateway {
    /// Changes the running config into the candidate of a shadow, by these terms, as [`Gateway::change`] does. The
    /// shadow may still run; the change ends it.
    ///
    /// # Errors
    /// Why not. Then nothing has changed.
    pub fn promote_shadow(&self, id: &str, by: By, terms: Terms) -> Result<Changed, NotPromoted> {
        let (candidate, base) = {
            let held = locked(&self.shadows().0);
            let session = held.as_ref().filter(|session| session.id == id).ok_or(NotPromoted::Missing)?;
            (session.texts.clone(), session.base.clone())
        };
        let running = self.texts();
        if running.hash != base {
            return Err(NotPromoted::Outdated);
        }
        let trees = running.tree_for_writers().zip(candidate.tree_for_writers());
        let (before, after) = trees.ok_or(NotPromoted::Missing)?;
        let edits = edits(&before, &after)?;
        if edits.is_empty() {
            return Err(NotPromoted::Same);
        }
        let change = Change { edits, only_from: vec![base], by, dry_run: false, terms };
        self.change(&change).map_err(NotPromoted::NotChanged)
    }
}

/// What changes one config into another, thing by thing.
fn edits(before: &Node, after: &Node) -> Result<Vec<Edit>, NotPromoted> {
    let keys = before.entries().iter().chain(after.entries()).map(|(key, _)| &*key.text);
    let mut sections: Vec<&str> = keys.collect();
    sections.sort_unstable();
    sections.dedup();
    let mut edits = Vec::new();
    for section in sections.into_iter().filter(|&section| section != "include") {
        let (ours, theirs) = (before.get(section), after.get(section));
        if ours == theirs {
            continue;
        }
        if !is_section(section) {
            return Err(NotPromoted::Unwritable(section.to_owned()));
        }
        let edit = |name: &str, to| Edit {
            section: section.to_owned(),
            name: name.to_owned(),
            to,
            only_if: OnlyIf::Any,
        };
        let (old, new) = (ours.map_or(&[][..], Node::entries), theirs.map_or(&[][..], Node::entries));
        let is_gone = |name: &str| new.iter().all(|(key, _)| *key.text != *name);
        let gone = old.iter().filter(|(key, _)| is_gone(&key.text));
        edits.extend(gone.map(|(key, _)| edit(&key.text, To::Nothing)));
        let differs = |name: &str, thing: &Node| ours.and_then(|all| all.get(name)) != Some(thing);
        let changed = new.iter().filter(|(key, thing)| differs(&key.text, thing));
        edits.extend(changed.map(|(key, thing)| edit(&key.text, To::This(thing.clone()))));
    }
    Ok(edits)
}
