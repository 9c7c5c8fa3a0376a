//! The fields of a map, taken one by one: what remains is not understood.

use super::{Entry, Node, Value};
use crate::ledger::{Ledger, Piece};

/// The keys of a map that nobody has asked for yet.
#[derive(Debug, Default)]
pub struct Fields<'t> {
    rest: Vec<&'t Entry>,
    /// Whether the case of keys does not count.
    ignores_case: bool,
}

impl<'t> Fields<'t> {
    /// All keys of a map. Keys without a value count as absent. A value that is no map has no keys.
    #[must_use]
    pub fn of(node: &'t Node) -> Self {
        let entries = node.as_map().unwrap_or_default();
        let rest = entries.iter().filter(|entry| entry.node.value != Value::Null).collect();
        Self { rest, ignores_case: false }
    }

    /// The same, where the case of keys does not count.
    #[must_use]
    pub fn in_any_case(node: &'t Node) -> Self {
        Self { ignores_case: true, ..Self::of(node) }
    }

    /// The entry of a key, which nobody else gets.
    pub fn entry(&mut self, key: &str) -> Option<&'t Entry> {
        let at = self.rest.iter().position(|entry| self.is(entry, key))?;
        Some(self.rest.remove(at))
    }

    /// The text of a key, which stays to be read.
    #[must_use]
    pub fn peek(&self, key: &str) -> Option<String> {
        self.rest.iter().find(|entry| self.is(entry, key)).and_then(|entry| entry.node.as_text())
    }

    fn is(&self, entry: &Entry, key: &str) -> bool {
        &*entry.key == key || self.ignores_case && entry.key.eq_ignore_ascii_case(key)
    }

    /// A text with its piece. A value of another type is refused.
    pub fn text(&mut self, key: &str, ledger: &mut Ledger) -> Option<(String, Piece)> {
        self.typed(key, "a text", ledger, Node::as_text)
    }

    /// A whole number with its piece. A value of another type is refused.
    pub fn number(&mut self, key: &str, ledger: &mut Ledger) -> Option<(u64, Piece)> {
        self.typed(key, "a whole number", ledger, Node::as_u64)
    }

    /// A flag with its piece. A value of another type is refused.
    pub fn flag(&mut self, key: &str, ledger: &mut Ledger) -> Option<(bool, Piece)> {
        self.typed(key, "true or false", ledger, Node::as_bool)
    }

    /// A list of texts with its piece. A value of another type is refused.
    pub fn texts(&mut self, key: &str, ledger: &mut Ledger) -> Option<(Vec<String>, Piece)> {
        self.typed(key, "a list of texts", ledger, Node::as_texts)
    }

    /// The items of a list with its piece. A value of another type is refused.
    pub fn list(&mut self, key: &str, ledger: &mut Ledger) -> Option<(&'t [Node], Piece)> {
        self.typed(key, "a list", ledger, Node::as_list)
    }

    /// A map with its piece. A value of another type is refused.
    pub fn map(&mut self, key: &str, ledger: &mut Ledger) -> Option<(&'t Node, Piece)> {
        self.typed(key, "a map", ledger, |node| node.as_map().map(|_| node))
    }

    /// The keys that nobody has asked for.
    #[must_use]
    pub fn rest(self) -> Vec<&'t Entry> {
        self.rest
    }

    fn typed<T>(
        &mut self,
        key: &str,
        expected: &str,
        ledger: &mut Ledger,
        read: impl Fn(&'t Node) -> Option<T>,
    ) -> Option<(T, Piece)> {
        let entry = self.entry(key)?;
        let value = read(&entry.node);
        if value.is_none() {
            let why = format!("expected {expected}");
            entry.each_piece(&mut |piece| ledger.refused(piece, why.clone(), "correct the source"));
        }
        value.map(|value| (value, entry.piece))
    }
}
