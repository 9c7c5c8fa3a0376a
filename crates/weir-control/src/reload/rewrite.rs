//! The managed file as text that people edit. Comments and layout stay, secrets are hidden from readers, and an
//! unedited text changes nothing.

use super::Control;
use super::change::{Changed, ManagedChange, NotChanged, request_file};
use super::consequences::Consequences;
use crate::crew::Crew;
use crate::history::By;
use crate::history::diff::Differences;
use crate::history::mask::{self, Masked};
use crate::trial::Terms;
use std::path::PathBuf;
use weir_config::managed::{self, Managed, To};
use weir_config::node::NAMED;
use weir_config::node::Value;
use weir_config::parse::parse;
use weir_config::texts::{Overrides, Text, Texts};
use weir_config::{Diagnostic, Diagnostics, Node, digest};

/// The key of the managed file that is not a section: see [`managed::set_yields`].
const YIELDS: &str = "yields";

/// The managed file for editing.
#[derive(Clone, Debug)]
pub struct ManagedText {
    /// Where it is, or will be.
    pub path: PathBuf,
    /// Its text. For readers, secrets are replaced by `***1`, `***2` …; empty if there is no file yet.
    pub text: String,
    /// How many secrets are hidden.
    pub hidden: usize,
    /// The digest of the text on disk.
    pub tag: String,
}

/// A new text for the managed file.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// The new text. A mask such as `***1` keeps its secret if it is where [`ManagedText`] showed it to readers.
    pub text: String,
    /// The digests of the text that it may start from; empty for any.
    pub only_from: Vec<String>,
    /// Who changes it.
    pub by: By,
    /// Only report what would happen.
    pub dry_run: bool,
    /// The conditions under which it stays.
    pub terms: Terms,
}

// === impl ManagedText ===

impl ManagedText {
    /// `None` if the config names no managed file.
    pub(crate) fn of(texts: &Texts, for_writers: bool) -> Option<Self> {
        let path = texts.managed_path.clone()?;
        let text = texts.managed.as_ref().map_or("", |managed| &managed.text);
        let Masked { text: shown, hidden } = match for_writers {
            true => Masked { text: text.to_owned(), hidden: Vec::new() },
            false => mask::for_readers(text, &path),
        };
        Some(Self { tag: digest::of_text(text), hidden: hidden.len(), text: shown, path })
    }
}

// === impl Control ===

impl Control {
    /// Replaces the text of the managed file, or reports what that would do.
    pub(crate) fn rewrite(&mut self, rewrite: &Rewrite, cores: &Crew) -> Result<Changed, NotChanged> {
        self.save_unsaved().map_err(NotChanged::unstored)?;
        let gathered = self
            .books
            .read(&self.source, Overrides::default())
            .map_err(|unreadable| NotChanged::Refused(unreadable.diagnostics))?;
        if rewrite.terms.is_any() && self.books.history.is_none() {
            return Err(NotChanged::NoHistory);
        }
        let path = gathered.texts.managed_path.clone().ok_or(NotChanged::NoWrites)?;
        let there = gathered.texts.managed.as_ref().map_or("", |managed| &managed.text);
        let now = digest::of_text(there);
        if !rewrite.only_from.is_empty() && !rewrite.only_from.contains(&now) {
            return Err(NotChanged::Stale("the managed file".to_owned(), now));
        }
        let masked = mask::mask(there, &path);
        // Browsers choose their own line endings.
        let same = |there: &str| with_plain_ends(there) == with_plain_ends(&rewrite.text);
        if same(there) || same(&masked.text) {
            return Ok(Changed {
                revision: self.snapshot.revision.clone(),
                hash: gathered.texts.hash,
                number: None,
                differences: Differences::default(),
                repeated: 0,
                restriction: None,
                consequences: Consequences::default(),
                diagnostics: Diagnostics::default(),
                unsaved: None,
            });
        }
        let mut text = with_plain_ends(&rewrite.text);
        if there.contains("\r\n") {
            text = text.replace('\n', "\r\n");
        }
        let text = masked.unmask(&text, &path);
        let managed = read(text, path, gathered.texts.managed_tree())?;
        let how = ManagedChange { by: &rewrite.by, terms: rewrite.terms, dry_run: rewrite.dry_run };
        self.put_managed(gathered.texts.written, &managed, how, cores)
    }
}

fn with_plain_ends(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The text as a managed file. Unchanged parts are located in that file and new parts in the request, whose values
/// may only name files that the API allows. Both have the same line numbers.
fn read(text: String, path: PathBuf, before: Option<Node>) -> Result<Managed, NotChanged> {
    let mut wrong = Diagnostics::default();
    let request = parse(&text, &request_file(&path), &mut wrong);
    let tree = parse(&text, &path, &mut Diagnostics::default()); // reports the same mistakes
    let (Some(request), Some(mut tree)) = (request, tree) else {
        return Err(NotChanged::Refused(wrong.into()));
    };
    if !matches!(request.value, Value::Map(_)) {
        let message = "expected sections with named things, such as `routes:`";
        wrong.push(Diagnostic::error("section-refused", message).at(request.at.clone()));
    }
    for (section, things) in request.entries() {
        if &*section.text == YIELDS {
            continue;
        }
        if !managed::is_section(&section.text) {
            let message =
                format!("`{}` may not be written over the API; expected {}", section.text, NAMED.join(", "));
            wrong.push(Diagnostic::error("section-refused", message).at(section.at.clone()));
            continue;
        }
        let there = before.as_ref().and_then(|before| before.get(&section.text));
        for (name, thing) in things.entries() {
            if there.and_then(|there| there.get(&name.text)) == Some(thing) {
                continue;
            }
            let called = format!("{}.{}", section.text, name.text);
            managed::refuse(&called, thing, &mut wrong);
            refuse_masks(&called, thing, &mut wrong);
            managed::set(&mut tree, &section.text, &name.text, To::This(thing.clone()));
        }
    }
    if wrong.errors() > 0 {
        return Err(NotChanged::Refused(wrong.into()));
    }
    Ok(Managed { tree, text: Text { path, text: text.into() } })
}

/// Refuses a mask where none was: the secret is unknown, or someone tries to move it to where it can be read.
fn refuse_masks(path: &str, node: &Node, wrong: &mut Diagnostics) {
    match &node.value {
        Value::Str(text) if mask::is_mask(text) => {
            let message = "this is the mask of a hidden secret, but there is no such secret here";
            let mut diagnostic = Diagnostic::error("masked-secret", message).at(node.at.clone());
            path.clone_into(&mut diagnostic.path);
            wrong.push(
                diagnostic.hint("write the secret itself, or leave its name and its place as they were"),
            );
        }
        Value::Seq(elements) => elements.iter().for_each(|element| refuse_masks(path, element, wrong)),
        Value::Map(entries) => {
            for (key, value) in entries {
                refuse_masks(&format!("{path}.{}", key.text), value, wrong);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn codes(result: Result<Managed, NotChanged>) -> Vec<String> {
        match result {
            Ok(_) => Vec::new(),
            Err(NotChanged::Refused(wrong)) => wrong.iter().map(|d| d.code.to_string()).collect(),
            Err(other) => panic!("{other}"),
        }
    }

    fn tree(text: &str) -> Node {
        parse(text, Path::new("/m/managed.yaml"), &mut Diagnostics::default()).unwrap()
    }

    #[test]
    fn what_is_new_is_held_to_the_rules_of_the_api() {
        let before = tree("routes: { old: { x: \"${HOME}\" } }");
        let ask = |text: &str| codes(read(text.to_owned(), "/m/managed.yaml".into(), Some(before.clone())));
        for (text, expected) in [
            ("", &[][..]),
            ("# only a comment\n", &[]),
            ("routes:\n  old: { x: \"${HOME}\" }\n  new: { y: 1 }\n", &[]),
            ("routes: { old: { x: \"${HOME}\", y: 1 } }", &["variable-refused"]),
            ("routes: { new: { x: \"${HOME}\" } }", &["variable-refused"]),
            ("admin: { address: 127.0.0.1:1 }", &["section-refused"]),
            ("filters: []", &["section-refused"]),
            ("- a\n", &["section-refused"]),
            ("consumers: { a: { key_auth: [ \"***1\" ] } }", &["masked-secret"]),
            ("routes: { a: { respond: { body: \"redis://***2@h\" } } }", &["masked-secret"]),
            ("routes: { a: { respond: { body: \"***\" } } }", &["masked-secret"]),
            ("yields: [ routes.a ]\nroutes: { a: {} }", &[]),
        ] {
            assert_eq!(ask(text), expected, "{text}");
        }
        assert_eq!(ask("routes: [").len(), 1);
    }

    #[test]
    fn what_is_new_stands_in_the_request_and_the_rest_in_the_file() {
        let text = "routes:\n  old: { x: 1 }\n  new: { x: 2 }\n";
        let managed =
            read(text.to_owned(), "/m/managed.yaml".into(), Some(tree("routes: { old: { x: 1 } }"))).unwrap();
        let place = |path: &str| managed.tree.find(path).unwrap().at.to_string();
        assert_eq!(place("routes.old.x"), "/m/managed.yaml:2:13");
        assert_eq!(place("routes.new.x"), "/m/(request):3:13");
        assert_eq!(&*managed.text.text, text);
    }
}
