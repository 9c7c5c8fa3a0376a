//! Reads YAML and JSON strictly, and enters each key that has a value in the ledger.
//!
//! It reads the events of `granit-parser`, so that each key has its line, numbers keep their spelling, and limits
//! apply
//! while the tree grows. Two readers must not understand a file differently: a key that is written twice and a tag
//! are
//! refused. Aliases are repeated within a limit; a merge key (`<<`) adds the keys that are not written out.

use super::json;
use crate::ledger::{Ledger, Piece};
use crate::source::{Place, SourceFile, Unreadable};
use granit_parser::{Event, Parser, ScalarStyle};
use std::collections::HashMap;
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

/// Reads the events of a file.
fn documents(file: &SourceFile, takes_many: bool) -> Result<Builder, Unreadable> {
    let mut builder = Builder { file: file.name.clone(), takes_many, ..Builder::default() };
    for event in Parser::new_from_str(&file.text) {
        match event {
            Ok((event, span)) => {
                let line = u32::try_from(span.start.line()).unwrap_or(u32::MAX);
                builder.event(event, line, span.start == span.end)?;
            }
            Err(e) => {
                let line = u32::try_from(e.marker().line()).unwrap_or(u32::MAX);
                return Err(builder.fail(line, format!("neither YAML nor JSON: {}", e.info())));
            }
        }
    }
    Ok(builder)
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

/// A value before its keys are in the ledger. Each key that is written has a number; aliases repeat it.
#[derive(Clone)]
pub(super) struct Raw {
    pub(super) line: u32,
    pub(super) value: RawValue,
}

#[derive(Clone)]
pub(super) enum RawValue {
    Null,
    Bool(bool),
    Number(Arc<str>),
    Text(Arc<str>),
    List(Vec<Raw>),
    Map(Vec<RawEntry>),
}

#[derive(Clone)]
pub(super) struct RawEntry {
    pub(super) key: Arc<str>,
    /// The number of the key among those of its file.
    pub(super) number: u32,
    pub(super) line: u32,
    pub(super) raw: Raw,
}

/// An unfinished list or map.
struct Open {
    line: u32,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Raw>),
    Map {
        entries: Vec<RawEntry>,
        seen: HashMap<Arc<str>, u32>,
        key: Option<(Arc<str>, u32)>,
        merged: Vec<RawEntry>,
    },
}

#[derive(Default)]
struct Builder {
    file: Arc<str>,
    open: Vec<Open>,
    root: Option<Raw>,
    /// Whether a file may have several documents.
    takes_many: bool,
    /// The documents before the last one.
    before: Vec<Raw>,
    documents: usize,
    nodes: usize,
    repeated: usize,
    keys: u32,
    anchors: HashMap<usize, Raw>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: u32, is_empty: bool) -> Result<(), Unreadable> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                self.before.extend(self.root.take());
                self.anchors.clear();
                if self.documents > 1 && !self.takes_many {
                    return Err(self.fail(line, "a second document begins here; give each a file of its own"));
                }
            }
            Event::Scalar(.., Some(_))
            | Event::SequenceStart(.., Some(_))
            | Event::MappingStart(.., Some(_)) => {
                return Err(
                    self.fail(line, "a tag (`!…`) changes what a value is, and weir import reads none")
                );
            }
            Event::Scalar(text, style, anchor, None) => {
                if self.wants_key() {
                    return self.key(&text, line);
                }
                let value = match style {
                    ScalarStyle::Plain if is_empty => RawValue::Null,
                    ScalarStyle::Plain => plain(&text),
                    _ => RawValue::Text((&*text).into()),
                };
                return self.value(Raw { line, value }, anchor);
            }
            Event::SequenceStart(_, anchor, None) => {
                return self.begin(line, anchor, Content::List(Vec::new()));
            }
            Event::MappingStart(_, anchor, None) => {
                let (entries, merged) = (Vec::new(), Vec::new());
                return self.begin(
                    line,
                    anchor,
                    Content::Map { entries, seen: HashMap::new(), key: None, merged },
                );
            }
            Event::SequenceEnd | Event::MappingEnd => return self.end(),
            Event::Alias(anchor) => return self.alias(anchor, line),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, line: u32, anchor: usize, content: Content) -> Result<(), Unreadable> {
        if self.wants_key() {
            return Err(self.fail(line, "expected a key, found a list or map"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(self.fail(line, format!("more than {MAX_DEPTH} levels of nesting")));
        }
        self.open.push(Open { line, anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Unreadable> {
        let Some(Open { line, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(items) => RawValue::List(items),
            Content::Map { mut entries, seen, merged, .. } => {
                let mut added: Vec<Arc<str>> = Vec::new();
                for entry in merged {
                    if !seen.contains_key(&entry.key) && !added.contains(&entry.key) {
                        added.push(entry.key.clone());
                        entries.push(entry);
                    }
                }
                RawValue::Map(entries)
            }
        };
        self.value(Raw { line, value }, anchor)
    }

    fn alias(&mut self, anchor: usize, line: u32) -> Result<(), Unreadable> {
        let Some(raw) = self.anchors.get(&anchor) else {
            return Err(self.fail(line, "an alias within the very value it names"));
        };
        self.repeated += size(raw);
        if self.repeated > MAX_REPEATED {
            return Err(self.fail(line, format!("aliases repeat more than {MAX_REPEATED} values")));
        }
        let raw = raw.clone();
        if self.wants_key() {
            return match raw.value {
                RawValue::Text(text) | RawValue::Number(text) => self.key(&text, line),
                _ => Err(self.fail(line, "expected a key, found a list or map")),
            };
        }
        self.value(raw, 0)
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Map { key: None, .. }, .. }))
    }

    fn key(&mut self, text: &str, line: u32) -> Result<(), Unreadable> {
        if let Some(Open { content: Content::Map { key, .. }, .. }) = self.open.last_mut() {
            *key = Some((text.into(), line));
        }
        Ok(())
    }

    fn value(&mut self, raw: Raw, anchor: usize) -> Result<(), Unreadable> {
        self.nodes += 1;
        if self.nodes + self.repeated > MAX_NODES {
            return Err(self.fail(raw.line, format!("more than {MAX_NODES} values")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, raw.clone());
        }
        let mut twice = None;
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(raw),
            Some(Content::List(items)) => items.push(raw),
            Some(Content::Map { entries, seen, key, merged }) => {
                let Some((key, line)) = key.take() else { return Ok(()) };
                if &*key == "<<" {
                    match raw.value {
                        RawValue::Map(entries) => merged.extend(entries),
                        RawValue::List(items) => {
                            merged.extend(items.into_iter().flat_map(|item| match item.value {
                                RawValue::Map(entries) => entries,
                                _ => Vec::new(),
                            }))
                        }
                        _ => return Err(self.fail(line, "a merge key (`<<`) needs a map")),
                    }
                    return Ok(());
                }
                match seen.insert(key.clone(), line) {
                    Some(first) => twice = Some((key, line, first)),
                    None => {
                        entries.push(RawEntry { key, number: self.keys, line, raw });
                        self.keys += 1;
                    }
                }
            }
        }
        match twice {
            None => Ok(()),
            Some((key, line, first)) => {
                Err(self
                    .fail(line, format!("`{key}` is written twice, first in line {first}; keep one of them")))
            }
        }
    }

    fn fail(&self, line: u32, message: impl Into<String>) -> Unreadable {
        Unreadable::at(&Place::new(&self.file, line), message)
    }
}

/// A plain scalar by YAML 1.2's core schema.
#[must_use]
pub fn scalar(text: &str) -> Value {
    match plain(text) {
        RawValue::Null => Value::Null,
        RawValue::Bool(flag) => Value::Bool(flag),
        RawValue::Number(text) => Value::Number(text),
        _ => Value::Text(text.into()),
    }
}

fn plain(text: &str) -> RawValue {
    match text {
        "null" | "Null" | "NULL" | "~" | "" => RawValue::Null,
        "true" | "True" | "TRUE" => RawValue::Bool(true),
        "false" | "False" | "FALSE" => RawValue::Bool(false),
        _ if is_number(text) => RawValue::Number(text.into()),
        _ => RawValue::Text(text.into()),
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

fn size(raw: &Raw) -> usize {
    1 + match &raw.value {
        RawValue::List(items) => items.iter().map(size).sum(),
        RawValue::Map(entries) => entries.iter().map(|entry| size(&entry.raw)).sum::<usize>(),
        _ => 0,
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
