//! Dotted keys, as labels and command lines have them, as a tree: `http.routers.app.rule`.
//!
//! Each label is a statement of its own in the ledger. What only holds others, such as `http`, shares the statement
//! that lists them.

use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{Entry, Node, Value, scalar};

/// Deepest key that is read.
const MAX_PARTS: usize = 16;
/// Most labels of one container.
const MAX_LABELS: usize = 5_000;

/// Keys with their values, before they are a tree.
pub(super) struct Labels {
    /// The statement that lists the labels.
    list: Piece,
    root: Branch,
    count: usize,
}

#[derive(Default)]
struct Branch {
    line: u32,
    /// Its own value, with its statement.
    value: Option<(String, Piece)>,
    below: Vec<(String, Self)>,
}

impl Labels {
    pub(super) fn new(list: Piece) -> Self {
        Self { list, root: Branch::default(), count: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.root.below.is_empty()
    }

    /// Adds a label. A key that is written twice is refused.
    pub(super) fn add(&mut self, key: &str, value: &str, line: u32, piece: Piece, ledger: &mut Ledger) {
        self.count += 1;
        if self.count > MAX_LABELS {
            ledger.refused(piece, format!("more than {MAX_LABELS} labels"), "a dynamic config in a file");
            return;
        }
        let parts: Vec<String> = key.split('.').flat_map(indexed).collect();
        if parts.len() > MAX_PARTS || parts.iter().any(String::is_empty) {
            ledger.refused(piece, "no key of Traefik", "correct the source");
            return;
        }
        let mut branch = &mut self.root;
        for part in parts {
            let at = branch.below.iter().position(|(known, _)| known.eq_ignore_ascii_case(&part));
            let at = at.unwrap_or_else(|| {
                branch.below.push((part, Branch { line, ..Branch::default() }));
                branch.below.len() - 1
            });
            branch = &mut branch.below[at].1;
        }
        match &branch.value {
            Some(_) => ledger.refused(piece, "this label is written twice", "correct the source"),
            None => branch.value = Some((value.to_owned(), piece)),
        }
    }

    /// The tree. A value beside keys below it (`tls=true` and `tls.certresolver=le`) only turns the thing on.
    pub(super) fn tree(self, ledger: &mut Ledger) -> Node {
        let list = self.list;
        node(self.root, list, ledger)
    }
}

fn node(branch: Branch, list: Piece, ledger: &mut Ledger) -> Node {
    let line = branch.line;
    if branch.below.is_empty() {
        let value = branch.value.map_or(Value::Null, |(text, _)| match scalar(&text) {
            Value::Null => Value::Text(text.into()),
            value => value,
        });
        return Node { line, value };
    }
    if let Some((text, piece)) = branch.value {
        match text.as_str() {
            "true" => ledger.by_itself(piece, "the labels below it say the same"),
            _ => ledger.refused(piece, "a value beside labels below it", "correct the source"),
        }
    }
    let is_list = branch.below.iter().all(|(key, _)| key.starts_with('['));
    if is_list {
        let mut items: Vec<(usize, Branch)> = branch
            .below
            .into_iter()
            .map(|(key, below)| (key.trim_matches(['[', ']']).parse().unwrap_or(usize::MAX), below))
            .collect();
        items.sort_by_key(|(at, _)| *at);
        let items = items.into_iter().map(|(_, below)| node(below, list, ledger)).collect();
        return Node { line, value: Value::List(items) };
    }
    let entries = branch.below.into_iter().map(|(key, below)| {
        let own = below.value.as_ref().filter(|_| below.below.is_empty()).map(|(_, piece)| *piece);
        Entry { key: key.into(), piece: own.unwrap_or(list), node: node(below, list, ledger) }
    });
    Node { line, value: Value::Map(entries.collect()) }
}

/// `domains[0]` as `domains` and `[0]`.
fn indexed(part: &str) -> Vec<String> {
    match part.split_once('[') {
        Some((name, index)) if index.ends_with(']') && !name.is_empty() => {
            vec![name.to_owned(), format!("[{index}")]
        }
        _ => vec![part.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Place;

    #[test]
    fn labels_become_a_tree() {
        let mut ledger = Ledger::default();
        let list = ledger.enter(Place::new("a", 1), "labels:");
        let mut labels = Labels::new(list);
        let all = [
            ("http.routers.app.rule", "Host(`a`)"),
            ("http.routers.app.tls", "true"),
            ("http.routers.app.tls.domains[1].main", "b"),
            ("http.routers.app.tls.domains[0].main", "a"),
            ("http.Routers.app.priority", "7"),
        ];
        for (line, (key, value)) in all.iter().enumerate() {
            let piece = ledger.enter(Place::new("a", line as u32), key);
            labels.add(key, value, line as u32, piece, &mut ledger);
        }
        let tree = labels.tree(&mut ledger);
        let app =
            tree.get("http").and_then(|http| http.get("routers")).and_then(|all| all.get("app")).unwrap();
        assert_eq!(app.get("priority").and_then(Node::as_u64), Some(7));
        let domains = app.get("tls").and_then(|tls| tls.get("domains")).and_then(Node::as_list).unwrap();
        let names: Vec<_> = domains.iter().filter_map(|one| one.get("main")?.as_text()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
