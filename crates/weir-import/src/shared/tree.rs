//! Reads YAML and JSON strictly, and enters each key that has a value in the ledger.
//!
//! It reads the events of `granit-parser`, so that each key has its line, numbers keep their spelling, and limits
//! apply
//! while the tree grows. Two readers must not understand a file differently: a key that is written twice and a tag
//! are
//! refused. Aliases are repeated within a limit; a merge key (`<<`) adds the keys that are not written out.

mod build;
mod fields;

pub use build::scalar;
pub(super) use build::{Raw, RawEntry, RawValue};
pub use fields::Fields;

use super::json;
use crate::ledger::{Ledger, Piece};
use crate::source::{Place, SourceFile, Unreadable};
use build::documents;
use std::sync::Arc;

/// Deepest nesting.
const MAX_DEPTH: usize = 64;
/// Most values of a file, those that aliases repeat included.
const MAX_NODES: usize = 4_000_000;
/// Most values that aliases may repeat.
const MAX_REPEATED: usize = 200_000;
/// A map with fewer entries is searched for a key one by one.
const HASHED: usize = 16;

/// A value with its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The line, from 1.
    pub line: u32,
    /// The value.
    pub value: Value,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(Arc<str>),
    /// Any other text.
    Text(Arc<str>),
    /// A list.
    List(Vec<Node>),
    /// A map.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// Where the ledger has it.
    pub piece: Piece,
    /// The value.
    pub node: Node,
}

/// Reads a file. Every key with a value is entered in the ledger, in the order of the file.
///
/// # Errors
/// If it is no YAML, or exceeds a limit.
pub fn read(file: &SourceFile, ledger: &mut Ledger) -> Result<Node, Unreadable> {
    let builder = documents(file, false)?;
    let mut pieces = vec![None; builder.keys as usize];
    let root = builder.root.unwrap_or(Raw { line: 1, value: RawValue::Null });
    Ok(enter(root, &file.name, ledger, &mut pieces))
}

/// Reads all documents of a file, as [`read`] does one.
///
/// # Errors
/// As [`read`].
pub fn read_all(file: &SourceFile, ledger: &mut Ledger) -> Result<Vec<Node>, Unreadable> {
    let builder = documents(file, true)?;
    let mut pieces = vec![None; builder.keys as usize];
    let all = builder.before.into_iter().chain(builder.root);
    Ok(all.map(|root| enter(root, &file.name, ledger, &mut pieces)).collect())
}

/// Reads a file as a tree without entering its keys: for sources of plans, whose ledgers have requests.
///
/// # Errors
/// As [`read`].
pub(crate) fn outline<'s>(file: &SourceFile) -> Result<json::Node<'s>, Unreadable> {
    let root = documents(file, false)?.root.unwrap_or(Raw { line: 1, value: RawValue::Null });
    Ok(without_pieces(root))
}

fn without_pieces<'s>(raw: Raw) -> json::Node<'s> {
    let value = match raw.value {
        RawValue::Null => json::Value::Null,
        RawValue::Bool(flag) => json::Value::Bool(flag),
        RawValue::Number(text) => json::Value::Number(text.to_string().into()),
        RawValue::Text(text) => json::Value::Text(text.to_string().into()),
        RawValue::List(items) => json::Value::List(items.into_iter().map(without_pieces).collect()),
        RawValue::Map(entries) => json::Value::Map(
            entries
                .into_iter()
                .map(|entry| (entry.key.to_string().into(), without_pieces(entry.raw)))
                .collect(),
        ),
    };
    json::Node { line: raw.line, value }
}

impl Node {
    /// A text, or a number or a flag as it is written.
    #[must_use]
    pub fn as_text(&self) -> Option<String> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(text.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    /// A whole number; `60.0` is one.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match &self.value {
            Value::Number(text) => text.strip_suffix(".0").unwrap_or(text).parse().ok(),
            _ => None,
        }
    }

    /// A flag.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    /// The items of a list. A map without entries is one too: Lua writes an empty list so.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            Value::Map(entries) if entries.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// The entries of a map. An empty list is one too.
    #[must_use]
    pub fn as_map(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::List(items) if items.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// The texts of a list of texts.
    #[must_use]
    pub fn as_texts(&self) -> Option<Vec<String>> {
        self.as_list()?.iter().map(Self::as_text).collect()
    }

    /// The value of a key of a map.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.iter().find(|entry| &*entry.key == key).map(|entry| &entry.node)
    }

    /// Calls `judge` for each key below this value.
    pub fn each_piece(&self, judge: &mut impl FnMut(Piece)) {
        match &self.value {
            Value::List(items) => items.iter().for_each(|item| item.each_piece(judge)),
            Value::Map(entries) => entries.iter().for_each(|entry| entry.each_piece(judge)),
            _ => {}
        }
    }
}

impl Entry {
    /// Calls `judge` for this key and each key below it.
    pub fn each_piece(&self, judge: &mut impl FnMut(Piece)) {
        judge(self.piece);
        self.node.each_piece(judge);
    }
}

/// Enters the keys of a tree in the order in which they are written.
pub(super) fn enter(raw: Raw, file: &str, ledger: &mut Ledger, pieces: &mut [Option<Piece>]) -> Node {
    let value = match raw.value {
        RawValue::Null => Value::Null,
        RawValue::Bool(flag) => Value::Bool(flag),
        RawValue::Number(text) => Value::Number(text),
        RawValue::Text(text) => Value::Text(text),
        RawValue::List(items) => {
            Value::List(items.into_iter().map(|item| enter(item, file, ledger, pieces)).collect())
        }
        RawValue::Map(entries) => Value::Map(
            entries
                .into_iter()
                .filter(|entry| !matches!(entry.raw.value, RawValue::Null))
                .filter_map(|RawEntry { key, number, line, raw }| {
                    let slot = pieces.get_mut(number as usize)?;
                    let piece = match *slot {
                        Some(piece) => piece,
                        None => {
                            let piece = ledger.enter(Place::new(file, line), &excerpt(&key, &raw));
                            if is_secret(&key, &raw) {
                                ledger.conceal(piece);
                            }
                            *slot = Some(piece);
                            piece
                        }
                    };
                    Some(Entry { key, piece, node: enter(raw, file, ledger, pieces) })
                })
                .collect(),
        ),
    };
    Node { line: raw.line, value }
}

/// The statement of a key: with its value, if that is on the same line in most files.
fn excerpt(key: &str, raw: &Raw) -> String {
    let scalar = |raw: &Raw| match &raw.value {
        RawValue::Text(text) | RawValue::Number(text) => Some(text.to_string()),
        RawValue::Bool(flag) => Some(flag.to_string()),
        _ => None,
    };
    match &raw.value {
        RawValue::List(items) if !items.is_empty() => {
            let texts: Option<Vec<String>> = items.iter().take(HASHED).map(scalar).collect();
            texts.map_or_else(|| format!("{key}:"), |texts| format!("{key}: [{}]", texts.join(", ")))
        }
        RawValue::List(_) => format!("{key}: []"),
        RawValue::Map(_) => format!("{key}:"),
        _ => format!("{key}: {}", scalar(raw).unwrap_or_default()),
    }
}

/// Whether a value looks like a secret, so that no report may show it: by its key, or by what it says.
fn is_secret(key: &str, raw: &Raw) -> bool {
    let said = |text: &str| {
        let text = text.to_ascii_lowercase();
        [
            "authorization",
            "bearer ",
            "basic ",
            "begin ",
            "eyj",
            "api-key:",
            "apikey:",
            "token:",
            "secret",
            "password",
        ]
        .iter()
        .any(|word| text.contains(word))
            || text.contains("://")
                && text.split("://").nth(1).is_some_and(|rest| {
                    rest.split('/').next().is_some_and(|authority| authority.contains('@'))
                })
    };
    let key = key.to_ascii_lowercase();
    let named = ["secret", "passw", "token", "private", "credential", "signature", "api_key", "apikey"]
        .iter()
        .any(|word| key.contains(word))
        || key == "key"
        || key.ends_with("_key") && key != "public_key";
    match &raw.value {
        RawValue::Text(text) | RawValue::Number(text) => named || said(text),
        RawValue::List(items) => items.iter().any(|item| match &item.value {
            RawValue::Text(text) => named && key != "key_names" || said(text),
            _ => false,
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (Result<Node, Unreadable>, Ledger) {
        let mut ledger = Ledger::default();
        let file = SourceFile { name: "a.yaml".into(), text: text.into() };
        (read(&file, &mut ledger), ledger)
    }

    #[test]
    fn keys_with_values_are_entered_with_their_lines() {
        let (node, ledger) = read_text("a: 1\nb:\n  - c: x\n    d:\n  - { e: [1, 2] }\npassword: hush\n");
        let node = node.unwrap();
        let lines: Vec<_> = ledger.lines().iter().map(|line| (line.place.line, &*line.text)).collect();
        assert_eq!(lines, [(1, "a: 1"), (2, "b:"), (3, "c: x"), (5, "e: [1, 2]"), (6, "password ***")]);
        assert_eq!(node.get("a").and_then(Node::as_u64), Some(1));
    }

    #[test]
    fn merged_keys_yield_to_written_ones_and_share_their_lines() {
        let (node, ledger) = read_text("base: &b { x: 1, y: 2 }\none: { <<: *b, y: 3 }\ntwo: *b\n");
        let node = node.unwrap();
        assert_eq!(node.get("one").and_then(|one| one.get("y")).and_then(Node::as_u64), Some(3));
        assert_eq!(node.get("one").and_then(|one| one.get("x")).and_then(Node::as_u64), Some(1));
        assert_eq!(ledger.lines().len(), 6);
    }

    #[test]
    fn hostile_files_are_unreadable() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            let aliases = format!("*a{}, ", n - 1).repeat(10);
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", aliases.trim_end_matches(", ")));
        }
        let deep = "[".repeat(100_000);
        let deep_map = format!("{}1{}", "{a: ".repeat(5000), "}".repeat(5000));
        let cases = [
            (&*bomb, "aliases repeat"),
            (&*deep, ""),
            (&*deep_map, ""),
            ("a: 1\na: 2\n", "written twice, first in line 1"),
            ("a: !!python/object:x {}\n", "a tag"),
            ("a: &x [ *x ]\n", ""),
            ("a: 1\n---\nb: 2\n", "second document"),
            ("a: [1\n", ""),
            ("? [a]\n: 1\n", "expected a key"),
            ("<<: 1\n", "needs a map"),
            ("a: \"\\xZZ\"\n", ""),
        ];
        for (text, why) in cases {
            let error = read_text(text).0.expect_err(&text[..text.len().min(40)]);
            assert!(error.message.contains(why), "{}: {}", &text[..text.len().min(40)], error.message);
        }
    }
}
