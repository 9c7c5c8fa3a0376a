//! Gives [deprecated keys](super::deprecated) of a tree their new names before anything reads the tree, so that no
//! reader, check or comparison knows the old ones.

use std::collections::HashSet;

use super::deprecated::{DEPRECATED, Deprecated};
use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Node, Place, Value};
use super::secrecy::{self, Shape};

/// The old name of a key in a map.
pub(super) struct Use {
    /// The entry of the table.
    pub(super) what: &'static Deprecated,
    /// Where the key is written. An alias repeats the place of its anchor.
    pub(super) at: Place,
    /// Its path, such as `routes.orders.filters[0].ip.file`.
    path: String,
    /// Whether the map also has the new name.
    pub(super) twice: bool,
}

/// Gives the deprecated keys of a tree their new names, with a warning for each entry of the table that is used.
pub(super) fn rename(tree: &mut Node, diagnostics: &mut Diagnostics) {
    rename_of(DEPRECATED, tree, &|_| true, diagnostics);
}

/// As [`rename`], by another table, and only the keys at places that are `wanted`.
pub(super) fn rename_of(
    table: &'static [Deprecated],
    tree: &mut Node,
    wanted: &dyn Fn(&Place) -> bool,
    diagnostics: &mut Diagnostics,
) {
    let mut uses = Vec::new();
    each(table, tree, &mut |what, path, node| {
        let Value::Map(entries) = &mut node.value else { return };
        let twice = entries.iter().any(|(key, _)| &*key.text == what.successor);
        let Some(at) = entries.iter().position(|(key, _)| &*key.text == what.key) else { return };
        let place = entries[at].0.at.clone();
        if !wanted(&place) {
            return;
        }
        match twice {
            true => drop(entries.remove(at)),
            false => entries[at].0.text = what.successor.into(),
        }
        let dot = if path.is_empty() { "" } else { "." };
        uses.push(Use { what, at: place, path: format!("{path}{dot}{}", what.key), twice });
    });
    report(table, &uses, diagnostics);
}

/// The deprecated keys of a tree.
pub(super) fn uses(table: &'static [Deprecated], tree: &Node) -> Vec<Use> {
    let mut uses = Vec::new();
    each(table, &mut tree.clone(), &mut |what, path, node| {
        let twice = node.get(what.successor).is_some();
        if let Some((key, _)) = node.entries().iter().find(|(key, _)| &*key.text == what.key) {
            uses.push(Use { what, at: key.at.clone(), path: path.to_owned(), twice });
        }
    });
    uses
}

/// One warning for each entry of the table, because a config may use it in a thousand routes.
fn report(table: &'static [Deprecated], uses: &[Use], diagnostics: &mut Diagnostics) {
    for Use { what, at, path, .. } in uses.iter().filter(|one| one.twice) {
        let Deprecated { key, successor, .. } = what;
        let message = format!("`{key}` and `{successor}` are the same setting, and both are written");
        let mut wrong = Diagnostic::error("deprecated-key", message).at(at.clone());
        path.clone_into(&mut wrong.path);
        diagnostics.push(wrong.hint(format!("keep {successor}, which is the new name")));
    }
    for entry in table {
        let mut of_entry = uses.iter().filter(|one| one.what == entry && !one.twice);
        let Some(first) = of_entry.next() else { continue };
        let places: HashSet<&Place> = of_entry.map(|one| &one.at).filter(|at| **at != first.at).collect();
        let Deprecated { key, successor, since, ends, .. } = entry;
        let more = match places.len() {
            0 => String::new(),
            1 => "; one more place has it".to_owned(),
            more => format!("; {more} more places have it"),
        };
        let message = format!("`{key}` is deprecated since {since}, and ends in {ends}{more}");
        let mut warning = Diagnostic::warning("deprecated-key", message).at(first.at.clone());
        first.path.clone_into(&mut warning.path);
        diagnostics.push(warning.hint(format!("write {successor}; `weir check --fix` rewrites your files")));
    }
}

/// Calls `found` for each map of the tree that is at the place of an entry.
fn each(
    table: &'static [Deprecated],
    tree: &mut Node,
    found: &mut dyn FnMut(&'static Deprecated, &str, &mut Node),
) {
    let wanted: Vec<_> =
        table.iter().filter_map(|entry| Some((secrecy::shape_of(entry.within)?, entry))).collect();
    if !wanted.is_empty() {
        walk(tree, secrecy::root(), &mut String::new(), &wanted, found);
    }
}

/// The parser bounds the depth.
fn walk(
    node: &mut Node,
    shape: &'static Shape,
    path: &mut String,
    wanted: &[(&'static Shape, &'static Deprecated)],
    found: &mut dyn FnMut(&'static Deprecated, &str, &mut Node),
) {
    let length = path.len();
    match &mut node.value {
        Value::Map(entries) => {
            for (key, child) in entries {
                let Some(shape) = shape.key(&key.text) else { continue };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key.text);
                walk(child, shape, path, wanted, found);
                path.truncate(length);
            }
            for (_, entry) in wanted.iter().filter(|(at, _)| std::ptr::eq(*at, shape)) {
                found(entry, path, node);
            }
        }
        Value::Seq(elements) => {
            for (index, element) in elements.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(element, shape, path, wanted, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deprecated::INVENTED;
    use crate::parse::tests::tree;

    fn renamed(text: &str) -> (Node, Vec<String>) {
        let (mut tree, mut diagnostics) = (tree(text), Diagnostics::default());
        rename_of(INVENTED, &mut tree, &|_| true, &mut diagnostics);
        let told = |d: &&Diagnostic| {
            let at = d.place.as_ref().unwrap();
            format!("{}:{} {}: {}", at.line, at.column, d.path, d.message)
        };
        (tree, diagnostics.sorted().iter().map(told).collect())
    }

    #[test]
    fn deprecated_keys_get_their_new_names() {
        for (old, new) in [
            ("threads: 2", "workers: 2"),
            (
                "upstreams: { a: { lb: random, tls: { roots: x } } }",
                "upstreams: { a: { balancer: random, tls: { ca: x } } }",
            ),
            ("filters: [ { ip: { block: [ a ] } } ]", "filters: [ { ip: { deny: [ a ] } } ]"),
            (
                "routes: { r: { filters: [ { any: [ { ip: { block: [] } } ] } ] } }",
                "routes: { r: { filters: [ { any: [ { ip: { deny: [] } } ] } ] } }",
            ),
            (
                "plans: { p: { filters: [ { when: { otherwise: [ { ip: { block: [] } } ] } } ] } }",
                "plans: { p: { filters: [ { when: { otherwise: [ { ip: { deny: [] } } ] } } ] } }",
            ),
        ] {
            let (tree_of_old, told) = renamed(old);
            assert_eq!(tree_of_old, tree(new), "{old}");
            assert!(!told.is_empty(), "{old}");
        }
    }

    #[test]
    fn a_key_elsewhere_is_another_key() {
        for text in [
            "upstreams: { lb: { endpoints: [] }, threads: {} }",
            "routes: { a: { match: { headers: { lb: x } }, lb: x } }",
            "listeners: { a: { tls: { roots: x } } }",
            "labels: { threads: x }",
        ] {
            assert_eq!(renamed(text), (tree(text), Vec::new()), "{text}");
        }
    }

    #[test]
    fn one_warning_tells_of_all_places() {
        let text = "upstreams:\n  a: { lb: random }\n  b: &b\n    lb: random\n  c: *b\n  d: { lb: p2c }\n";
        let (_, told) = renamed(text);
        let wanted =
            "2:8 upstreams.a.lb: `lb` is deprecated since 1.2, and ends in 2.0; 2 more places have it";
        assert_eq!(told, [wanted]);
    }

    #[test]
    fn both_names_are_a_mistake() {
        let (read, told) = renamed("threads: 2\nworkers: 3\n");
        assert_eq!(read, tree("workers: 3"));
        let wanted = "1:1 threads: `threads` and `workers` are the same setting, and both are written";
        assert_eq!(told, [wanted]);
    }

    #[test]
    fn each_entry_names_a_known_place_and_a_known_successor() {
        for entry in DEPRECATED {
            let shape = secrecy::shape_of(entry.within).unwrap_or_else(|| panic!("{}", entry.within));
            assert!(shape.key(entry.successor).is_some(), "{}", entry.name());
            assert!(entry.key != entry.successor, "{}", entry.name());
            let versions =
                |text: &str| text.split('.').map(|n| n.parse::<u32>().unwrap()).collect::<Vec<_>>();
            assert!(versions(entry.since) < versions(entry.ends), "{}", entry.name());
        }
    }
}
