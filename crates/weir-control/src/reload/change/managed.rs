//! Changes of the managed file: single routes, upstreams and other things, and the file as a whole.

use super::super::Control;
use super::not_changed::NotChanged;
use super::{Candidate, Changed, Edit, ManagedChange, OnlyIf};
use crate::crew::Crew;
use std::path::{Path, PathBuf};
use weir_config::load::{Gathered, gather};
use weir_config::managed::{self, Managed, To};
use weir_config::path_scope::PathScope;
use weir_config::texts::{Overrides, Text, Texts};
use weir_config::{Diagnostics, Node, Place, digest};

impl Control {
    /// Runs these files with this managed file, or reports what that would do. Values from the request can name files
    /// only below `admin.paths`.
    pub(in crate::reload) fn put_managed(
        &mut self,
        written: Vec<Text>,
        managed: &Managed,
        how: ManagedChange<'_>,
        cores: &Crew,
    ) -> Result<Changed, NotChanged> {
        let scope = PathScope {
            files: vec![request_file(&managed.text.path)],
            below: self.reachable(),
            ..PathScope::default()
        };
        let instead = Overrides {
            written: Some(&written),
            managed: Some((&managed.tree, &managed.text)),
            scope: Some(&scope),
            bundle: None,
        };
        let pin = self.books.pinned.clone();
        let gathered = gather(&self.source, instead)
            .map_err(|unreadable| NotChanged::Refused(unreadable.diagnostics))?;
        let (managed, by, terms) = (Some(&managed.text), how.by, how.terms);
        let candidate = Candidate { gathered, instead, by, managed, pin, terms, urgent: None };
        if how.dry_run { self.rehearse(candidate) } else { self.run_and_log(candidate, cores) }
    }
}

/// The file in which values from a request are said to be: beside the managed file, so that relative paths mean the
/// same.
pub fn request_file(managed: &Path) -> PathBuf {
    managed.with_file_name("(request)")
}

/// The managed file with these edits.
pub(super) fn edited(gathered: &Gathered, path: &Path, edits: &[Edit]) -> Result<Managed, NotChanged> {
    let mut tree = gathered.texts.managed_tree().unwrap_or_else(|| managed::empty(path));
    let mut wrong = Diagnostics::default();
    for edit in edits {
        let Edit { section, name, to, only_if } = edit;
        let called = format!("{section}.{name}");
        let (at, there) = thing_in(&gathered.tree, section, name).unzip();
        may_be(&called, there, only_if)?;
        // A thing overridden by a hand-written one with the same name does not belong to the API either.
        if let Some(at) = at.filter(|at| **at.file != *path) {
            return Err(NotChanged::Owned(called, at.to_string()));
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
        return Err(NotChanged::Refused(wrong.into()));
    }
    managed::write(tree, path.to_owned()).map_err(NotChanged::unstored)
}

/// A named thing and its place.
pub(in crate::reload) fn thing_in<'a>(
    tree: &'a Node,
    section: &str,
    name: &str,
) -> Option<(&'a Place, &'a Node)> {
    let mut things = tree.get(section)?.entries().iter();
    things.find(|(key, _)| &*key.text == name).map(|(key, thing)| (&key.at, thing))
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

/// The managed file of a revision. Empty if the revision had none and there is one now.
pub(in crate::reload) fn managed_then(then: &Texts, disk: &Texts) -> Result<Option<Managed>, String> {
    let Some(path) = &disk.managed_path else { return Ok(None) };
    match (then.managed_tree(), &then.managed) {
        (Some(tree), Some(text)) => {
            Ok(Some(Managed { tree, text: Text { path: path.clone(), text: text.text.clone() } }))
        }
        _ if disk.managed.is_some() => managed::write(managed::empty(path), path.clone()).map(Some),
        _ => Ok(None),
    }
}
