//! A whole config sent over the admin API, to be judged and not run.
//!
//! A caller who may not read the disk or the environment must not do so with a candidate. Values in it may use a
//! variable or name a file only if the running config has the same text for the same setting, or below `admin.paths`.
//!
//! Nor may a candidate tell the value of a variable by what it decides: an expression behind a filter that sets a
//! header from `${TOKEN}` could compare it letter by letter. So whatever uses a variable must stand in an entry that
//! is the running one, unchanged, and none may stand where other entries can read it.

use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Node, Place, Value};
use super::substitute::variable_in;
use std::collections::HashSet;

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
    if let Value::Str(text) = &node.value {
        each(node, (outer, inner), text);
    }
    node.elements().iter().for_each(|element| walk(element, (outer, inner), each));
    node.entries().iter().for_each(|(key, value)| walk(value, (inner, &key.text), each));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use std::path::Path;

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
}
