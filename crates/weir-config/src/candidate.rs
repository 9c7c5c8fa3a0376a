//! A whole config sent over the admin API, to be judged and not run.
//!
//! A caller who may not read the disk or the environment must not do so with a candidate. Values in it may use a
//! variable or name a file only if the running config has the same text for the same setting, or below `admin.paths`.
//!
//! Nor may a candidate tell the value of a variable by what it decides: an expression behind a filter that sets a
//! header from `${TOKEN}` could compare it letter by letter. So whatever uses a variable must stand in an entry that
//! is the running one, unchanged, and none may stand where other entries can read it.

use super::diagnostic::{Diagnostic, Diagnostics};
use super::include::matches;
use super::node::{Node, Place};
use super::substitute::variable_in;
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

/// Sections that decide nothing about a request and name files or processes. A candidate of such a caller may not
/// differ there.
const CLOSED: &[&str] = &["access_log", "admin", "log", "source", "stores", "tracing"];

/// Sections whose values the expressions of every route can read.
const SHARED: &[&str] = &["filters", "maps", "plans"];

/// Where a text stands: the last two keys of its path, and the text.
type Known<'a> = (&'a str, &'a str, &'a str);

/// Refuses what a caller may not read by this candidate. Returns the places of texts that the running config has too;
/// they may name files. Neither tree may have its variables filled in.
pub fn restrict(candidate: &Node, running: &Node, found: &mut Diagnostics) -> HashSet<Place> {
    let mut known = HashSet::new();
    walk(running, ("", ""), &mut |node, (outer, inner), text| {
        let _ = node;
        known.insert((outer, inner, text));
    });
    for section in CLOSED {
        let (ours, theirs) = (running.get(section), candidate.get(section));
        if ours != theirs {
            let message =
                format!("`{section}` differs from the running config, which this role may not try out");
            let wrong = Diagnostic::error("candidate-closed", message).on(candidate, section);
            found.push(wrong.hint("leave it as it runs; the role `admin` may change it"));
        }
    }
    for (section, node) in candidate.entries() {
        let section = &*section.text;
        if SHARED.contains(&section) && has_variable(node) {
            let message = format!("`{section}` uses variables, whose values a candidate could tell");
            let wrong = Diagnostic::error("variable-refused", message).on(candidate, section);
            found.push(wrong.hint("let a caller with the role `admin` try it out"));
        }
        for (name, entry) in node.entries().iter().filter(|(_, entry)| has_variable(entry)) {
            if running.get(section).and_then(|known| known.get(&name.text)) != Some(entry) {
                let message = format!(
                    "`{section}.{}` uses a variable and differs from the running config: its decisions could tell the value",
                    name.text
                );
                let wrong = Diagnostic::error("variable-refused", message).at(entry.at.clone());
                found.push(
                    wrong.hint("leave it as it runs, or let a caller with the role `admin` try it out"),
                );
            }
        }
    }
    let mut places = HashSet::new();
    walk(candidate, ("", ""), &mut |node, (outer, inner), text| {
        let at: Known<'_> = (outer, inner, text);
        if known.contains(&at) {
            places.insert(node.at.clone());
        } else if variable_in(text) {
            let message = "`${…}` may be used only where the running config has the same text for this setting: \
                           it would read the environment or the disk";
            let wrong = Diagnostic::error("variable-refused", message).at(node.at.clone());
            found.push(wrong.hint("write the value, or let a caller with the role `admin` try it out"));
        }
    });
    places
}

/// Refuses an `include` of a file that was not sent, and warns of a pattern that matches no file. A candidate reads
/// nothing from the disk, so it would be judged without those files. `sent` has the names of the files, the main
/// one first.
pub fn check_includes(candidate: &Node, sent: &[&str], found: &mut Diagnostics) {
    let Some((main, included)) = sent.split_first() else { return };
    let folder = Path::new(main).parent().unwrap_or(Path::new(""));
    let elements = candidate.get("include").map(Node::elements).unwrap_or_default();
    for (index, pattern) in elements.iter().enumerate() {
        let Some(text) = pattern.as_text() else { continue };
        let Some(name) = Path::new(text).file_name().and_then(|name| name.to_str()) else { continue };
        // A file outside the main file's folder is sent under another name, of which only the end is known.
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        let is_below = Path::new(text).components().all(is_plain);
        let wanted: PathBuf =
            folder.join(text).components().filter(|part| *part != Component::CurDir).collect();
        let is_sent = included.iter().map(Path::new).any(|path| {
            let fits = |file: &str| matches(name, file);
            let same_folder = !is_below || path.parent() == wanted.parent();
            same_folder && path.file_name().and_then(|file| file.to_str()).is_some_and(fits)
        });
        if !is_sent {
            let path = format!("include[{index}]");
            let wrong = match name.contains('*') {
                true => {
                    Diagnostic::warning("empty-include", format!("no file that was sent matches `{text}`"))
                }
                false => {
                    let message = format!("`{text}` is not among the files that were sent");
                    Diagnostic::error("bad-include", message)
                }
            };
            let hint = "send the included files, too, under their names below the main file's folder";
            found.push(wrong.on(candidate, &path).hint(hint));
        }
    }
}

/// Whether any text below uses a variable.
fn has_variable(node: &Node) -> bool {
    let mut has = false;
    walk(node, ("", ""), &mut |_, _, text| has |= variable_in(text));
    has
}

fn walk<'a>(
    node: &'a Node,
    (outer, inner): (&'a str, &'a str),
    each: &mut impl FnMut(&'a Node, (&'a str, &'a str), &'a str),
) {
    // A number may be the name of a file, too.
    if let Some(text) = node.as_text() {
        each(node, (outer, inner), text);
    }
    node.elements().iter().for_each(|element| walk(element, (outer, inner), each));
    node.entries().iter().for_each(|(key, value)| walk(value, (inner, &key.text), each));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn told(running: &str, candidate: &str) -> (Vec<&'static str>, usize) {
        let mut found = Diagnostics::default();
        let tree = |text: &str| parse(text, Path::new("t"), &mut Diagnostics::default()).unwrap();
        let places = restrict(&tree(candidate), &tree(running), &mut found);
        (found.iter().map(|d| d.code).collect(), places.len())
    }

    #[test]
    fn only_what_the_running_config_reads_may_be_read() {
        let running = "admin: { token: \"${T}\" }\nroutes: { a: { filters: [ { ip: { file: block.txt } }, { sign: { key: \"${K}\" } } ] } }\n\
                       listeners: { a: { tls: { certificates: [ { cert: a.pem, key: a.key } ] } } }\n";
        assert_eq!(told(running, running), (vec![], 5));
        for (candidate, codes, known) in [
            // The same setting of another route, deeper.
            (
                "routes: { b: { filters: [ { when: { filters: [ { ip: { file: block.txt } } ] } } ] } }",
                &[][..],
                1,
            ),
            ("routes: { a: { filters: [ { ip: { file: a.key } } ] } }", &[], 0),
            (
                "routes: { a: { filters: [ { ip: { file: \"${file:/etc/shadow}\" } } ] } }",
                &["variable-refused", "variable-refused"],
                0,
            ),
            (
                "routes: { a: { filters: [ { headers: { key: \"${K}\" } } ] } }",
                &["variable-refused", "variable-refused"],
                0,
            ),
            // The value would be the same, but what stands beside it could compare it.
            ("routes: { a: { filters: [ { sign: { key: \"${K}\" } } ] } }", &["variable-refused"], 1),
            (
                "routes: { a: { filters: [ { ip: { file: block.txt } }, { sign: { key: \"${K}\" } } ] } }",
                &[],
                2,
            ),
            ("filters: [ { sign: { key: \"${K}\" } } ]", &["variable-refused"], 1),
            ("admin: { token: x }", &["candidate-closed"], 0),
            ("stores: { s: { disk: { path: /etc } } }", &["candidate-closed"], 0),
        ] {
            let candidate = match candidate.starts_with("admin") {
                true => candidate.to_owned(),
                false => format!("admin: {{ token: \"${{T}}\" }}\n{candidate}"),
            };
            let (found, places) = told(running, &candidate);
            let own = usize::from(!candidate.starts_with("admin: { token: x"));
            assert_eq!((&found[..], places), (codes, known + own), "{candidate}");
        }
    }

    #[test]
    fn what_is_included_must_be_sent() {
        for (include, sent, wrong) in [
            ("[ routes.yaml ]", &["weir.yaml"][..], 1),
            ("[ routes.yaml ]", &["weir.yaml", "routes.yaml"], 0),
            ("[ ./routes.yaml ]", &["weir.yaml", "routes.yaml"], 0),
            ("[ routes/*.yaml, upstreams.yaml ]", &["weir.yaml", "routes/a.yaml"], 1),
            ("[ routes/a.yaml ]", &["weir.yaml", "a.yaml"], 1),
            ("[ routes/a.yaml ]", &["conf/weir.yaml", "conf/routes/a.yaml"], 0),
            ("[ /etc/weir/routes.yaml ]", &["weir.yaml", "routes.yaml"], 0),
            // A folder may be empty.
            ("[ routes/*.yaml ]", &["weir.yaml", "a.yaml"], 0),
        ] {
            let mut found = Diagnostics::default();
            let text = format!("include: {include}");
            let tree = parse(&text, Path::new("t"), &mut Diagnostics::default()).unwrap();
            check_includes(&tree, sent, &mut found);
            assert_eq!(found.errors(), wrong, "{include} {sent:?}");
        }
    }
}
