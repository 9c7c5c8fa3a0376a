//! The state of one `read`: its position, its findings, and the nodes it skips.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use super::error::{Error, Identity, Mistake, one_of};
use crate::aliases;
use crate::diagnostic::Diagnostic;
use crate::node::{Key, Node};
use crate::spelling::nearest_name;

/// The state of one `read`: its position, its findings, and the nodes it skips.
pub(super) struct Cx {
    pub(super) root: String,
    pub(super) path: RefCell<Vec<Segment>>,
    pub(super) found: RefCell<Vec<Diagnostic>>,
    /// Nodes treated as absent because they were reported.
    pub(super) poisoned: RefCell<HashSet<Identity>>,
    /// Values whose unknown keys have been reported.
    pub(super) unknown: RefCell<HashSet<Identity>>,
    /// Keys that are missing only because their value was reported or the key was mistyped: their map, and the key.
    pub(super) meant: RefCell<HashSet<(Identity, &'static str)>>,
}

/// Maximum number of names listed beside the likely one.
const LISTED: usize = 8;

pub(super) enum Segment {
    Index(usize),
    Key(Arc<str>),
}

// === impl Cx ===

impl Cx {
    pub(super) fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            path: RefCell::default(),
            found: RefCell::default(),
            poisoned: RefCell::default(),
            unknown: RefCell::default(),
            meant: RefCell::default(),
        }
    }

    pub(super) fn into_found(self) -> Vec<Diagnostic> {
        self.found.into_inner()
    }

    /// Records a failure of a pass over `root` and prepares the next pass. Returns false if another pass is useless.
    pub(super) fn note(&self, error: Error, root: &Node) -> bool {
        self.path.borrow_mut().clear();
        let mistake = *error.0;
        let identity = mistake.node.unwrap_or(root);
        if !self.is_consequence(&mistake) {
            self.found.borrow_mut().push(mistake.into_diagnostic(root, &self.root));
        }
        // Invariant: each pass poisons one more node, so the passes end.
        !std::ptr::eq(identity, root) && self.poisoned.borrow_mut().insert(identity)
    }

    /// Whether a key is missing only because its value was poisoned or the key was mistyped.
    fn is_consequence(&self, mistake: &Mistake) -> bool {
        let Some(field) = mistake.missing else { return false };
        let Some(node) = mistake.node else { return false };
        self.meant.borrow().contains(&(node, field))
    }

    pub(super) fn is_absent(&self, node: &Node) -> bool {
        node.broken || self.poisoned.borrow().contains(&std::ptr::from_ref(node))
    }

    pub(super) fn path(&self) -> String {
        let mut path = self.root.clone();
        for segment in self.path.borrow().iter() {
            match segment {
                Segment::Index(index) => path.push_str(&format!("[{index}]")),
                Segment::Key(key) if path.is_empty() => path.push_str(key),
                Segment::Key(key) => path.push_str(&format!(".{key}")),
            }
        }
        path
    }

    /// The last key on the path to the current position; none if the path ends with a list index.
    pub(super) fn last_key(&self) -> Option<Arc<str>> {
        match self.path.borrow().last() {
            Some(Segment::Key(key)) => Some(Arc::clone(key)),
            Some(Segment::Index(_)) | None => None,
        }
    }

    pub(super) fn enter(&self, segment: Segment) {
        self.path.borrow_mut().push(segment);
    }

    pub(super) fn leave(&self) {
        self.path.borrow_mut().pop();
    }

    pub(super) fn note_unknown(
        &self,
        parent: &Node,
        key: &Key,
        node: &Node,
        fields: &'static [&'static str],
    ) {
        if !self.unknown.borrow_mut().insert(node) {
            return;
        }
        let unused = fields.iter().copied().filter(|field| parent.get(field).is_none());
        let alias = aliases::key(&key.text, fields);
        let near = match &alias {
            Some((ours, _)) => *ours,
            None => {
                nearest_name(&key.text, unused).or_else(|| nearest_name(&key.text, fields.iter().copied()))
            }
        };
        let blank = key.text.contains(['\u{a0}', '\u{2007}', '\u{202f}', '\u{feff}']);
        let message = match fields {
            [] => format!("unknown key `{}`; there are no settings here", key.text),
            // A list of forty names would hide the likely one.
            _ if (near.is_some() || alias.is_some()) && fields.len() > LISTED => {
                format!("unknown key `{}`", key.text)
            }
            _ => format!("unknown key `{}`; expected {}", key.text, one_of(fields)),
        };
        let mut diagnostic =
            Diagnostic::error("unknown-key", message).at(key.at.clone()).refusing_key(&key.text);
        self.enter(Segment::Key(key.text.clone()));
        diagnostic.path = self.path();
        self.leave();
        if let Some(near) = near {
            self.meant.borrow_mut().insert((parent, near));
        }
        diagnostic.hint =
            alias.map(|(_, hint)| hint).or_else(|| near.map(|near| format!("did you mean {near}?")));
        if let Some(near) = near.filter(|_| blank) {
            diagnostic.hint = Some(format!("write {near}: there is an invisible no-break space next to it"));
        }
        self.found.borrow_mut().push(diagnostic);
    }
}
