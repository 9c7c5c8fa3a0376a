//! Moves a named thing from a hand-written file to the file that the API writes, or back, without a moment in which
//! no file has it.
//!
//! ```text
//!   adopt    file ─► both, the file wins ─► (people delete it from the file) ─► managed file
//!   release  managed file ─► (people write it into a file, which then wins) ─► both ─► release again ─► file
//! ```
//! Hand-written files are never changed: the output says what to do there.

use super::Control;
use super::change::{Candidate, NotChanged, thing_in};
use crate::crew::Crew;
use crate::history::By;
use crate::trial::Terms;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use weir_config::load::{Gathered, gather};
use weir_config::managed::{self, To};
use weir_config::{Diagnostic, Diagnostics, Node, Overrides};

/// Who owns a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The API: only the managed file has it.
    Api,
    /// Both have it, and the hand-written file wins.
    Both,
    /// A hand-written file.
    File,
}

/// A thing being moved.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Moved {
    /// Its section and name, such as `routes.orders`.
    pub thing: String,
    /// Who owns it now.
    pub owner: Owner,
    /// Its place in a hand-written file.
    pub place: Option<String>,
    /// Its YAML for a file, including secrets, because it is to be pasted. Only for a released thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yaml: Option<String>,
    /// What is left to do, as text.
    pub text: String,
}

/// The direction of the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Adopt,
    Release,
}

/// A thing in the config, and in the managed file.
struct Found<'a> {
    section: &'a str,
    name: &'a str,
    called: String,
    thing: Node,
    /// Its place in a hand-written file.
    by_hand: Option<String>,
    managed: Option<Node>,
}

// === impl Control ===

impl Control {
    /// Moves a thing one step towards another owner. The running config stays the same.
    pub(crate) fn move_owner(
        &mut self,
        way: Way,
        (section, name): (&str, &str),
        by: &By,
        cores: &Crew,
    ) -> Result<Moved, NotChanged> {
        self.save_unsaved().map_err(NotChanged::unstored)?;
        let unreadable =
            |unreadable: weir_config::load::Unreadable| NotChanged::Refused(unreadable.diagnostics);
        let gathered = self.books.read(&self.source, Overrides::default()).map_err(unreadable)?;
        let path = gathered.texts.managed_path.clone().ok_or(NotChanged::NoWrites)?;
        let found = Found::new(&gathered, &path, section, name)?;
        let mut tree = gathered.texts.managed_tree().unwrap_or_else(|| managed::empty(&path));
        let before = tree.clone();
        let moved = match way {
            Way::Adopt => found.adopt(&mut tree, &path)?,
            Way::Release => found.release(&mut tree, &path)?,
        };
        if tree == before {
            return Ok(moved);
        }
        let managed = managed::write(tree, path).map_err(NotChanged::unstored)?;
        let written = gathered.texts.written;
        let managed_now = Some((&managed.tree, &managed.text));
        let instead = Overrides { written: Some(&written), managed: managed_now, scope: None, bundle: None };
        let pin = self.books.pinned.clone();
        let gathered = gather(&self.source, instead).map_err(unreadable)?;
        let (managed, terms) = (Some(&managed.text), Terms::default());
        self.run(Candidate { gathered, instead, by, managed, pin, terms, urgent: None }, cores)?;
        Ok(moved)
    }
}

// === impl Found ===

impl<'a> Found<'a> {
    fn new(gathered: &Gathered, path: &Path, section: &'a str, name: &'a str) -> Result<Self, NotChanged> {
        let called = format!("{section}.{name}");
        let (at, thing) =
            thing_in(&gathered.tree, section, name).ok_or_else(|| NotChanged::Missing(called.clone()))?;
        let managed = gathered.texts.managed_tree();
        let managed = managed.and_then(|tree| tree.get(section)?.get(name).cloned());
        Ok(Self {
            section,
            name,
            thing: thing.clone(),
            by_hand: (**at.file != *path).then(|| at.to_string()),
            managed,
            called,
        })
    }

    fn moved(&self, owner: Owner, text: String) -> Moved {
        Moved { thing: self.called.clone(), owner, place: self.by_hand.clone(), yaml: None, text }
    }

    fn adopt(&self, managed: &mut Node, path: &Path) -> Result<Moved, NotChanged> {
        let (called, file) = (&self.called, path.display());
        let Some(place) = &self.by_hand else {
            managed::set_yields(managed, called, false);
            return Ok(self.moved(Owner::Api, format!("{called} belongs to the API: only {file} has it.\n")));
        };
        self.may_be_adopted(path)?;
        managed::set(managed, self.section, self.name, To::This(self.thing.clone()));
        managed::set_yields(managed, called, true);
        let text = format!(
            "{file} has {called} too now. What stands at {place} counts until you delete it there and reload; \
             from then on it belongs to the API.\n"
        );
        Ok(self.moved(Owner::Both, text))
    }

    /// A client of the API must not gain access to anything that is not its own, and the thing must mean the same in
    /// the other file.
    fn may_be_adopted(&self, path: &Path) -> Result<(), NotChanged> {
        let mut wrong = Diagnostics::default();
        managed::refuse(&self.called, &self.thing, &mut wrong);
        let folder = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        let (from, to) = (folder(&self.thing.at.file), folder(path));
        if from != to {
            relative_files(&self.called, &self.thing, &from, &mut wrong);
        }
        if wrong.errors() > 0 { Err(NotChanged::Refused(wrong.into())) } else { Ok(()) }
    }

    fn release(&self, managed: &mut Node, path: &Path) -> Result<Moved, NotChanged> {
        let (called, file) = (&self.called, path.display());
        match (&self.by_hand, &self.managed) {
            (Some(place), None) => {
                let text = format!("{called} belongs to the file that has it at {place}.\n");
                Ok(self.moved(Owner::File, text))
            }
            (Some(place), Some(_)) => {
                managed::set(managed, self.section, self.name, To::Nothing);
                managed::set_yields(managed, called, false);
                let text = format!(
                    "{called} belongs to the file that has it at {place}: {file} no longer has it.\n"
                );
                Ok(self.moved(Owner::File, text))
            }
            (None, _) => {
                managed::set_yields(managed, called, true);
                let text = format!(
                    "Write this into a file of your own and reload: from then on it counts, and `weir config release {called}` \
                     takes it out of {file}.\n"
                );
                let yaml = Some(managed::yaml(self.section, self.name, &self.thing));
                Ok(Moved { yaml, ..self.moved(Owner::Api, text) })
            }
        }
    }
}

/// Texts that name a file by a relative path: from another folder they would name another file.
fn relative_files(called: &str, thing: &Node, folder: &Path, wrong: &mut Diagnostics) {
    if let Some(text) = thing.as_text().filter(|text| !text.is_empty() && !Path::new(text).is_absolute())
        && text.contains(['/', '.'])
        && folder.join(text).exists()
    {
        let message =
            format!("`{text}` names a file beside this one, but the managed file is in another folder");
        let mut diagnostic = Diagnostic::error("relative-path", message).at(thing.at.clone());
        called.clone_into(&mut diagnostic.path);
        wrong.push(diagnostic.hint("write the absolute path, reload, then adopt it"));
    }
    for (index, element) in thing.elements().iter().enumerate() {
        relative_files(&format!("{called}[{index}]"), element, folder, wrong);
    }
    for (key, value) in thing.entries() {
        relative_files(&format!("{called}.{}", key.text), value, folder, wrong);
    }
}
