//! The config as one tree in which every value knows where it was written.
//!
//! `parse` builds it, `substitute` fills in variables, `de` reads typed settings from it.

use std::path::Path;
use std::sync::Arc;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file as it was named on the command line or by `include`.
    pub file: Arc<Path>,
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// One value of the tree. Two nodes are equal when their values are, wherever they stand.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where the value begins.
    pub at: Place,
    /// The value.
    pub value: Value,
    /// A scalar as it was written (`1.20`, not 1.2), variables filled in; empty for lists, maps and blanks. Where a variable
    /// left nothing, what was written for it.
    pub raw: Box<str>,
    /// Stands where secrets stand: never print it.
    pub secret: bool,
    /// Came wholly or partly from the environment or a file: never print it either.
    pub substituted: bool,
    /// What came from there, piece by piece.
    pub outside: Option<Box<[String]>>,
    /// Already reported as wrong: readers treat it as absent and stay silent about its absence.
    pub broken: bool,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing written, `~` or `null`.
    Null,
    /// `true` or `false`; `yes` and `on` are strings, as YAML 1.2 has it.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(String),
    /// A list.
    Seq(Vec<Node>),
    /// A map in the order written. No key occurs twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key as text, whatever YAML would take it for.
    pub text: String,
    /// Where it was written.
    pub at: Place,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value && self.raw == other.raw
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Node {
    /// A node that is not secret and not broken.
    pub fn new(at: Place, value: Value, raw: &str) -> Self {
        Self { at, value, raw: raw.into(), secret: false, substituted: false, outside: None, broken: false }
    }

    /// An empty map that stands at `at`: the settings of something named without any.
    pub fn empty_map(at: Place) -> Self {
        Self::new(at, Value::Map(Vec::new()), "")
    }

    /// The value under a key of a map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }

    /// The entries of a map; none for anything else.
    pub fn entries(&self) -> &[(Key, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The elements of a list; none for anything else.
    pub fn elements(&self) -> &[Self] {
        match &self.value {
            Value::Seq(elements) => elements,
            _ => &[],
        }
    }

    /// A scalar as text; nothing for lists, maps and null.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(&self.raw),
            Value::Null | Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// Nothing was written, as in `key:`; unlike `null`, which says so.
    pub fn is_blank(&self) -> bool {
        self.value == Value::Null && self.raw.is_empty()
    }

    /// The `${VAR}` that left nothing as the value.
    pub fn empty_variable(&self) -> Option<&str> {
        let empty = self.substituted && self.value == Value::Str(String::new());
        empty.then_some(&*self.raw)
    }

    /// Whether this is what YAML makes of a `{name}` without quotes: a map of one key without a value.
    pub(super) fn unquoted_word(&self) -> Option<&str> {
        match self.entries() {
            [(key, value)] if value.is_blank() => Some(&key.text),
            _ => None,
        }
    }

    /// How the value is named in a message; a secret and a long value are not spelled out.
    pub fn shown(&self) -> Option<String> {
        /// Longer values say nothing more to a reader.
        const MAX_SHOWN: usize = 80;
        if self.secret || self.substituted {
            return None;
        }
        let text = self.as_text()?;
        let mut short: String = text.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
        if text.chars().count() > MAX_SHOWN {
            short.push('…');
        }
        Some(short.replace("\\\"", "\"").replace("\\'", "'"))
    }

    /// Adds what may not be printed of this value and of all below it.
    pub fn add_concealed<'n>(&'n self, out: &mut Vec<&'n str>) {
        if self.secret {
            out.extend(self.as_text());
        }
        out.extend(self.outside.iter().flatten().map(String::as_str));
        self.elements().iter().for_each(|node| node.add_concealed(out));
        self.entries().iter().for_each(|(_, node)| node.add_concealed(out));
    }

    /// What kind of value it is, in words of the config.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null if self.raw.is_empty() => "nothing",
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Str(_) => "a string",
            Value::Seq(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Finds `upstreams.orders.endpoints[0]` below this node. Keys may hold dots: the longest key that fits wins.
    pub fn find(&self, path: &str) -> Option<&Self> {
        self.lookup(path).map(|(_, node)| node)
    }

    /// Like [`find`](Self::find), with the key the value stands under.
    pub fn lookup(&self, path: &str) -> Option<(Option<&Key>, &Self)> {
        let path = path.strip_prefix('.').unwrap_or(path);
        if path.is_empty() {
            return Some((None, self));
        }
        if let Some(rest) = path.strip_prefix('[') {
            let (index, rest) = rest.split_once(']')?;
            let element = self.elements().get(index.parse::<usize>().ok()?)?;
            return element.lookup(rest);
        }
        let fits = |key: &str| {
            path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let (key, node) =
            self.entries().iter().filter(|(k, _)| fits(&k.text)).max_by_key(|(k, _)| k.text.len())?;
        let (inner, found) = node.lookup(&path[key.text.len()..])?;
        Some((inner.or_else(|| std::ptr::eq(found, node).then_some(key)), found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Diagnostics, parse::parse};

    #[test]
    fn a_path_finds_its_node() {
        let text = "routes:\n  a.b:\n    hosts: [x, y]\n  a: 1\n";
        let tree = parse(text, Path::new("t.yaml"), &mut Diagnostics::default()).unwrap();
        for (path, line, column) in [("routes.a.b.hosts[1]", 3, 16), ("routes.a", 4, 6), ("routes", 2, 3)] {
            let node = tree.find(path).unwrap();
            assert_eq!((node.at.line, node.at.column), (line, column), "{path}");
        }
        assert!(tree.find("routes.c").is_none());
        assert!(tree.find("routes.a.b.hosts[2]").is_none());
    }
}
