//! The managed file (`admin.writes`): the named entries that the admin API owns, and their changes.
//!
//! Each named entry has one owner: a hand-written file, which this code never changes, or the managed file, which
//! each change rewrites whole. `yields` lists managed entries that a hand-written one of the same name replaces. An
//! entry can thus move between owners without a moment in which it does not exist.

mod emit;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::include::merge;
use super::mask::MASK;
use super::node::{Key, NAMED, Node, Place, Value};
use super::parse::parse;
use super::substitute::variable_in;
use super::texts::Text;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The key of the managed file that lists entries to replace by hand-written ones, such as `routes.orders`.
const YIELDS: &str = "yields";

/// Keys below `listeners` that name programs to run, now or in future. The API never accepts them.
const PROGRAMS: &[&str] = &["exec", "command", "hook", "hooks"];

/// A change to a named entry.
#[derive(Clone, Debug)]
pub enum To {
    /// Removed.
    Nothing,
    /// Merged with this patch (RFC 7396).
    Patched(Node),
    /// Replaced by this value.
    This(Node),
}

/// The managed file's tree after changes, and its text.
#[derive(Clone, Debug)]
pub struct Managed {
    /// The named entries. Those just changed have the positions of the request.
    pub tree: Node,
    /// The new text of the file.
    pub text: Text,
}

/// Reads the managed file. `None` if there is none, which is not a mistake.
pub(super) fn read(path: &Path, diagnostics: &mut Diagnostics) -> Option<(Node, Text)> {
    match Text::read(path) {
        Ok(text) => {
            let tree = parse(&text, path, diagnostics)?;
            Some((tree, Text { path: path.to_owned(), text: text.into() }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            let message = format!("cannot read {} (admin.writes): {error}", path.display());
            diagnostics.push(Diagnostic::error("file-unreadable", message));
            None
        }
    }
}

/// Adds the managed entries to the hand-written ones, except entries that yield to a hand-written one.
pub(super) fn merge_into(tree: &mut Node, mut managed: Node, diagnostics: &mut Diagnostics) {
    for name in take_yields(&mut managed) {
        if tree.find(&name).is_some()
            && let Some((section, name)) = name.split_once('.')
        {
            remove(&mut managed, section, name);
        }
    }
    merge(tree, managed, diagnostics);
}

/// Takes the list of yielding names out of the tree.
fn take_yields(managed: &mut Node) -> Vec<String> {
    let Value::Map(sections) = &mut managed.value else { return Vec::new() };
    let Some(at) = sections.iter().position(|(key, _)| &*key.text == YIELDS) else { return Vec::new() };
    let (_, list) = sections.remove(at);
    list.elements().iter().filter_map(|name| name.as_text().map(str::to_owned)).collect()
}

/// Mistakes that count only in an entry from the API: variables, programs, and masked secrets.
pub fn refuse(path: &str, thing: &Node, diagnostics: &mut Diagnostics) {
    match &thing.value {
        Value::Str(text) if variable_in(text) => {
            let message = "`${…}` may not be written over the API: it would read the environment or the disk";
            let wrong = Diagnostic::error("variable-refused", message).at(thing.at.clone());
            diagnostics.push(named(wrong, path).hint("write the value, or keep this in a file of your own"));
        }
        Value::Str(text) if is_masked(text) => {
            let message = "`***` is the mask of a hidden secret; it cannot be written back";
            let wrong = Diagnostic::error("masked-secret", message).at(thing.at.clone());
            diagnostics
                .push(named(wrong, path).hint("write the secret, or change the other keys with PATCH"));
        }
        Value::Seq(elements) => {
            for (index, element) in elements.iter().enumerate() {
                refuse(&format!("{path}[{index}]"), element, diagnostics);
            }
        }
        Value::Map(entries) => {
            for (key, value) in entries {
                let path = format!("{path}.{}", key.text);
                if path.starts_with("listeners.") && PROGRAMS.contains(&&*key.text) {
                    let message =
                        format!("`{}` names a program; that may not be written over the API", key.text);
                    let wrong = Diagnostic::error("program-refused", message).at(key.at.clone());
                    diagnostics.push(named(wrong, &path).hint("keep this in a file of your own"));
                }
                refuse(&path, value, diagnostics);
            }
        }
        _ => {}
    }
}

/// Whether a text is a mask, or a URL with a mask in its user or its query.
fn is_masked(text: &str) -> bool {
    text == MASK || text.contains("://") && (text.contains("://***@") || text.ends_with("?***"))
}

fn named(mut diagnostic: Diagnostic, path: &str) -> Diagnostic {
    path.clone_into(&mut diagnostic.path);
    diagnostic
}

// === changes ===

/// The tree of a managed file that does not exist yet.
pub fn empty(path: &Path) -> Node {
    Node::empty_map(Place { file: Arc::new(path.to_owned()), line: 1, column: 1 })
}

/// Adds, patches or removes an entry of a section.
pub fn set(managed: &mut Node, section: &str, name: &str, to: To) {
    let there = managed.get(section).and_then(|things| things.get(name)).cloned();
    match to {
        To::Nothing => remove(managed, section, name),
        To::This(thing) => put(managed, section, name, thing),
        To::Patched(patch) => {
            let mut thing = there.unwrap_or_else(|| Node::empty_map(patch.at.clone()));
            merge_patch(&mut thing, patch);
            put(managed, section, name, thing);
        }
    }
}

/// Makes an entry yield to a hand-written one of the same name, or stops that.
pub fn set_yields(managed: &mut Node, thing: &str, yields: bool) {
    let mut names = take_yields(managed);
    names.retain(|name| name != thing);
    if yields {
        names.push(thing.to_owned());
    }
    if names.is_empty() {
        return;
    }
    let at = managed.at.clone();
    let names = names
        .into_iter()
        .map(|name| Node::new(at.clone(), Value::Str(name.as_str().into()), &name))
        .collect();
    if let Value::Map(sections) = &mut managed.value {
        let key = Key { text: YIELDS.into(), at: at.clone() };
        sections.insert(0, (key, Node::new(at, Value::Seq(names), "")));
    }
}

fn put(managed: &mut Node, section: &str, name: &str, thing: Node) {
    let at = thing.at.clone();
    let Value::Map(sections) = &mut managed.value else { return };
    let place = match sections.iter().position(|(key, _)| &*key.text == section) {
        Some(place) => place,
        None => {
            let key = Key { text: section.into(), at: at.clone() };
            sections.push((key, Node::empty_map(at.clone())));
            sections.len() - 1
        }
    };
    let Some((_, things)) = sections.get_mut(place) else { return };
    if !matches!(things.value, Value::Map(_)) {
        *things = Node::empty_map(at.clone());
    }
    let Value::Map(things) = &mut things.value else { return };
    match things.iter_mut().find(|(key, _)| &*key.text == name) {
        Some((_, there)) => *there = thing,
        None => things.push((Key { text: name.into(), at }, thing)),
    }
}

fn remove(managed: &mut Node, section: &str, name: &str) {
    let Value::Map(sections) = &mut managed.value else { return };
    if let Some((_, things)) = sections.iter_mut().find(|(key, _)| &*key.text == section)
        && let Value::Map(things) = &mut things.value
    {
        things.retain(|(key, _)| &*key.text != name);
    }
    sections.retain(|(_, things)| !matches!(&things.value, Value::Map(things) if things.is_empty()));
}

/// JSON Merge Patch. Source: RFC 7396 §2. The parser bounds the depth.
fn merge_patch(target: &mut Node, patch: Node) {
    let Value::Map(changes) = patch.value else {
        *target = patch;
        return;
    };
    if !matches!(target.value, Value::Map(_)) {
        *target = Node::empty_map(patch.at.clone());
    }
    let Value::Map(entries) = &mut target.value else { return };
    for (key, change) in changes {
        let there = entries.iter().position(|(k, _)| k.text == key.text);
        match (there, &change.value) {
            (Some(at), Value::Null) => drop(entries.remove(at)),
            (None, Value::Null) => {}
            (Some(at), _) => {
                if let Some((_, value)) = entries.get_mut(at) {
                    merge_patch(value, change);
                }
            }
            (None, _) => {
                let mut value = Node::empty_map(change.at.clone());
                merge_patch(&mut value, change);
                entries.push((key, value));
            }
        }
    }
}

/// The text of a managed file, which parses to the same tree.
///
/// # Errors
/// If it does not: a bug of ours, which must not reach the disk.
pub fn write(managed: Node, path: PathBuf) -> Result<Managed, String> {
    let text = emit::file(&managed);
    let mut diagnostics = Diagnostics::default();
    match parse(&text, &path, &mut diagnostics) {
        Some(read) if read == managed && diagnostics.errors() == 0 => {
            Ok(Managed { tree: managed, text: Text { path, text: text.into() } })
        }
        _ => Err("the managed file would not read as it was meant; nothing was written".to_owned()),
    }
}

/// One entry as a file would contain it.
pub fn yaml(section: &str, name: &str, thing: &Node) -> String {
    let mut tree = Node::empty_map(thing.at.clone());
    put(&mut tree, section, name, thing.clone());
    emit::lines(&tree)
}

/// Whether the API accepts entries of this section.
pub fn is_section(section: &str) -> bool {
    NAMED.contains(&section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::tree;

    #[test]
    fn a_patch_is_merged_as_the_rfc_has_it() {
        // RFC 7396, appendix A, without the cases whose target is no object: every target here is one.
        for (target, patch, result) in [
            ("{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"),
            ("{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}"),
            ("{\"a\":\"b\"}", "{\"a\":null}", "{}"),
            ("{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}"),
            ("{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"),
            ("{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}"),
            ("{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}", "{\"a\":{\"b\":\"d\"}}"),
            ("{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}"),
            ("{\"e\":null}", "{\"a\":1}", "{\"e\":null,\"a\":1}"),
            ("{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}"),
        ] {
            let mut merged = tree(target);
            merge_patch(&mut merged, tree(patch));
            assert_eq!(merged, tree(result), "{target} + {patch}");
        }
    }

    #[test]
    fn things_are_put_and_taken_away() {
        let mut managed = empty(Path::new("m.yaml"));
        set(&mut managed, "routes", "a", To::This(tree("{ upstream: u }")));
        set(&mut managed, "routes", "b.c", To::This(tree("{ upstream: u }")));
        set(&mut managed, "upstreams", "u", To::This(tree("{ endpoints: [\"127.0.0.1:1\"] }")));
        set(&mut managed, "routes", "a", To::Patched(tree("{ upstream: ~, respond: { status: 204 } }")));
        set(&mut managed, "upstreams", "u", To::Nothing);
        assert_eq!(managed, tree("routes: { a: { respond: { status: 204 } }, b.c: { upstream: u } }"));
    }

    #[test]
    fn what_yields_gives_way_to_a_hand() {
        let mut managed = tree("routes: { a: { x: 1 }, b: { x: 2 } }");
        set_yields(&mut managed, "routes.a", true);
        let written = write(managed.clone(), "m.yaml".into()).unwrap();
        assert_eq!(take_yields(&mut written.tree.clone()), ["routes.a"]);
        let mut diagnostics = Diagnostics::default();
        let mut hand = tree("routes: { a: { x: 9 } }");
        merge_into(&mut hand, managed.clone(), &mut diagnostics);
        assert_eq!(hand, tree("routes: { a: { x: 9 }, b: { x: 2 } }"));
        let mut none = tree("workers: 1");
        merge_into(&mut none, managed.clone(), &mut diagnostics);
        assert_eq!(none.find("routes.a.x").and_then(Node::as_text), Some("1"));
        set_yields(&mut managed, "routes.a", false);
        assert!(take_yields(&mut managed).is_empty());
        let mut twice = tree("routes: { a: { x: 9 } }");
        merge_into(&mut twice, managed, &mut diagnostics);
        assert_eq!(diagnostics.errors(), 1);
    }

    /// A file as 0.1 writes it, with each form of value that its writer knows. This version reads it and writes the
    /// same bytes, so 0.1 reads what this version writes.
    #[test]
    fn versions_read_each_others_files() {
        let theirs = r##"# Written by the admin API of Weir (admin.writes). Changes made here by hand count, but comments are lost at the next change.
yields:
  - routes.orders
upstreams:
  orders:
    endpoints:
      - 127.0.0.1:8000
      -
        address: orders.internal:8000
        weight: 3
    timeouts:
      response: "3s"
consumers:
  ann: {}
routes:
  orders:
    match:
      path: "/orders/{id}"
    filters: []
    upstream: orders
  "café":
    match:
      path: /*
    filters:
      -
        headers:
          response:
            set:
              x-note: "two\nlines, \"quoted\""
              x-on: "on"
              x-year: "2026"
    respond:
      status: 204
    timeouts: null
"##;
        let mut managed = tree(theirs);
        assert_eq!(take_yields(&mut managed.clone()), ["routes.orders"]);
        assert_eq!(&*write(managed.clone(), "m.yaml".into()).unwrap().text.text, theirs);
        set(&mut managed, "consumers", "ben", To::This(tree("{ plan: gold }")));
        let ours = write(managed, "m.yaml".into()).unwrap();
        let added = theirs.replace("  ann: {}\n", "  ann: {}\n  ben:\n    plan: gold\n");
        assert_eq!(&*ours.text.text, added);
    }

    #[test]
    fn nothing_that_reads_the_machine_comes_over_the_api() {
        for (path, text, codes) in [
            ("routes.a", "{ upstream: \"${HOME}\" }", &["variable-refused"][..]),
            ("routes.a", "{ x: [ { y: \"a${file:/etc/passwd}\" } ] }", &["variable-refused"]),
            ("routes.a", "{ x: \"$${HOME} costs $5\" }", &[]),
            ("routes.a", "{ x: \"$$${HOME}\" }", &["variable-refused"]),
            ("consumers.a", "{ key_auth: [ \"***\" ] }", &["masked-secret"]),
            ("listeners.a", "{ tls: { acme: { exec: [ sh ] } } }", &["program-refused"]),
            ("routes.a", "{ x: { exec: y } }", &[]),
        ] {
            let mut diagnostics = Diagnostics::default();
            refuse(path, &tree(text), &mut diagnostics);
            assert_eq!(diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(), codes, "{text}");
        }
    }
}
