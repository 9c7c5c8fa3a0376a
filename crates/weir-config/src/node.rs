//! The config as one tree in which every value knows its position.
//!
//! `parse` builds it, `substitute` fills in variables, `de` reads typed settings from it.

use std::path::PathBuf;
use std::sync::Arc;

use compact_str::CompactString;

use super::mask::{secret_pieces, without_secrets};

/// The sections of named entries, which may be spread over included files.
pub const NAMED: &[&str] =
    &["listeners", "upstreams", "consumers", "consumer_sources", "plans", "maps", "routes"];

/// The position of a text in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file as given on the command line or by `include`.
    pub file: Arc<PathBuf>,
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

/// One value of the tree. Nodes are equal if their values are; positions do not count.
///
/// 64 bytes, because 200,000 routes need a million nodes.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where the value begins.
    pub at: Place,
    /// The value.
    pub value: Value,
    /// Must not be shown: see [`crate::secrecy`].
    pub secret: bool,
    /// With `secret`: a URL of which only user, password and query are hidden.
    pub partly_secret: bool,
    /// With `secret`: messages to its author may repeat it.
    pub quotable: bool,
    /// Came wholly or partly from the environment or a file. Never printed either.
    pub substituted: bool,
    /// Already reported as wrong. Readers treat it as absent and do not report the absence.
    pub broken: bool,
    /// Data that most nodes lack.
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Node>() <= 64);

/// Data that few nodes have.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// See [`Node::raw`].
    raw: Box<str>,
    /// See [`Node::outside`].
    outside: Box<[String]>,
    /// See [`Node::written`].
    written: Box<str>,
    /// See [`Node::empty_variable`].
    empty: Box<str>,
    /// The positions of a large map's entries, sorted by key: see [`Node::index`].
    sorted: Box<[u32]>,
}

/// Minimum number of entries for which a map is indexed.
const INDEXED: usize = 32;

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing written, `~` or `null`.
    Null,
    /// `true` or `false`. `yes` and `on` are strings, as in YAML 1.2.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text. The node stores a short one inline.
    Str(CompactString),
    /// A list.
    Seq(Vec<Node>),
    /// A map in written order. No key occurs twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key as text, whatever type YAML would give it.
    pub text: Arc<str>,
    /// Where it was written.
    pub at: Place,
}

impl Value {
    /// The value of a scalar without quotes. Source: YAML 1.2.2 §10.3.2 (core schema), without octal and hexadecimal.
    pub(super) fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "true" | "True" | "TRUE" => return Self::Bool(true),
            "false" | "False" | "FALSE" => return Self::Bool(false),
            _ => {}
        }
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Self::Str(text.into());
        }
        // Some readers parse `010` as 8 and others as 10. It becomes text, which number readers refuse.
        let ambiguous = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        if ambiguous || !digits.chars().all(|c| c.is_ascii_digit() || ".eE+-".contains(c)) {
            return Self::Str(text.into());
        }
        if let Ok(number) = text.parse::<i64>() {
            return Self::Int(number);
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Self::Float(number),
            _ => Self::Str(text.into()),
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value && self.raw() == other.raw()
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
        let mut node = Self {
            at,
            value,
            secret: false,
            partly_secret: false,
            quotable: false,
            substituted: false,
            broken: false,
            rare: None,
        };
        node.set_raw(raw);
        node
    }

    /// A scalar as written (`1.20`, not 1.2), with variables filled in. Empty for lists, maps and blanks. If the
    /// variable was empty, the text written for it.
    pub fn raw(&self) -> &str {
        match (&self.rare, &self.value) {
            (Some(rare), _) if !rare.raw.is_empty() => &rare.raw,
            (_, Value::Str(text)) => text,
            _ => "",
        }
    }

    /// Sets the written form of the value.
    pub(super) fn set_raw(&mut self, raw: &str) {
        let same = matches!(&self.value, Value::Str(text) if text == raw);
        if same || raw.is_empty() {
            if let Some(rare) = &mut self.rare {
                rare.raw = Box::default();
            }
        } else {
            self.rare.get_or_insert_default().raw = raw.into();
        }
    }

    /// The parts that came from the environment or a file.
    pub fn outside(&self) -> &[String] {
        self.rare.as_ref().map_or(&[], |rare| &rare.outside)
    }

    /// Sets the parts from outside, the text written for them, and the variable that was empty.
    pub(super) fn set_outside(&mut self, pieces: Vec<String>, written: String, empty: Option<String>) {
        let rare = self.rare.get_or_insert_default();
        rare.outside = pieces.into();
        rare.written = written.into();
        rare.empty = empty.unwrap_or_default().into();
    }

    /// A scalar as it may be shown, with `${VAR}` in place of parts from outside. None for lists, maps and secrets.
    pub fn written(&self) -> Option<&str> {
        match &self.rare {
            _ if self.secret => None,
            Some(rare) if self.substituted => Some(&rare.written),
            _ => self.as_text(),
        }
    }

    /// The same of any scalar, to compare it: it must not be shown.
    pub(super) fn unfilled(&self) -> Option<&str> {
        match &self.rare {
            Some(rare) if self.substituted => Some(&rare.written),
            _ => self.as_text(),
        }
    }

    /// Indexes large sections, because thousands of routes are looked up by name, also by each reported mistake. Call
    /// it once the tree is complete.
    pub(super) fn index(&mut self) {
        let Value::Map(sections) = &mut self.value else { return };
        for (_, section) in sections {
            let entries = section.entries();
            let Ok(count) = u32::try_from(entries.len()) else { continue };
            if entries.len() < INDEXED {
                continue;
            }
            let mut sorted: Box<[u32]> = (0..count).collect();
            let text = |at: &u32| entries.get(*at as usize).map(|(key, _)| &key.text);
            sorted.sort_unstable_by(|a, b| text(a).cmp(&text(b)));
            section.rare.get_or_insert_default().sorted = sorted;
        }
    }

    /// An empty map at `at`: the settings of an entry written without any.
    pub fn empty_map(at: Place) -> Self {
        Self::new(at, Value::Map(Vec::new()), "")
    }

    /// Converts JSON to a tree without positions, for settings in tests.
    pub fn of_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let at = Place { file: Arc::default(), line: 1, column: 1 };
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(n) => {
                n.as_i64().map_or_else(|| Value::Float(n.as_f64().unwrap_or_default()), Value::Int)
            }
            Json::String(text) => Value::Str(text.into()),
            Json::Array(elements) => Value::Seq(elements.iter().map(Self::of_json).collect()),
            Json::Object(entries) => {
                let key = |text: &String| Key { text: text.as_str().into(), at: at.clone() };
                Value::Map(entries.iter().map(|(name, value)| (key(name), Self::of_json(value))).collect())
            }
        };
        let raw = match json {
            Json::Null | Json::Array(_) | Json::Object(_) => String::new(),
            Json::String(text) => text.clone(),
            scalar => scalar.to_string(),
        };
        Self::new(at, value, &raw)
    }

    /// The value under a key of a map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|(_, node)| node)
    }

    fn entry(&self, key: &str) -> Option<&(Key, Self)> {
        let entries = self.entries();
        match self.sorted() {
            Some(sorted) => {
                let text = |at: &u32| entries.get(*at as usize).map(|(key, _)| &*key.text);
                let at = sorted.binary_search_by(|at| text(at).cmp(&Some(key))).ok()?;
                entries.get(*sorted.get(at)? as usize)
            }
            None => entries.iter().find(|(k, _)| *k.text == *key),
        }
    }

    /// The index of a large map, unless entries were added or removed since.
    fn sorted(&self) -> Option<&[u32]> {
        let sorted = &self.rare.as_ref()?.sorted;
        (sorted.len() == self.entries().len() && !sorted.is_empty()).then_some(sorted)
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

    /// A scalar as text. None for lists, maps and null.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(self.raw()),
            Value::Null | Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// Whether `true` or `false` stands there without quotes. Where a path belongs, somebody took it for a switch.
    pub fn is_switch(&self) -> bool {
        matches!(self.value, Value::Bool(_))
    }

    /// Whether nothing was written, as in `key:`. An explicit `null` does not count.
    pub fn is_blank(&self) -> bool {
        self.value == Value::Null && self.raw().is_empty()
    }

    /// Whether a value is written, valid or not. `null` and `~` count as absent, because templates write them so.
    pub fn is_set(&self) -> bool {
        self.value != Value::Null || self.is_blank()
    }

    /// The `${VAR}` that left the value empty.
    pub fn empty_variable(&self) -> Option<&str> {
        let empty = self.substituted && self.value == Value::Str(CompactString::default());
        empty.then_some(self.raw())
    }

    /// The first empty `${VAR}`, whether it is a part of the value or all of it.
    pub fn any_empty_variable(&self) -> Option<&str> {
        self.rare.as_ref().map(|rare| &*rare.empty).filter(|empty| !empty.is_empty())
    }

    /// The name if this is how YAML reads an unquoted `{name}`: a map with one key and no value.
    pub(super) fn unquoted_word(&self) -> Option<&str> {
        match self.entries() {
            [(key, value)] if value.is_blank() => Some(&key.text),
            _ => None,
        }
    }

    /// How messages name the value. Secrets and long values are not spelled out.
    pub fn shown(&self) -> Option<String> {
        /// Longer values do not help a reader.
        const MAX_SHOWN: usize = 80;
        if self.is_credential() && !self.partly_secret || self.substituted {
            return None;
        }
        let text = self.as_text()?;
        let text = if self.partly_secret { without_secrets(text) } else { text.into() };
        let mut short: String = text.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
        if text.chars().count() > MAX_SHOWN {
            short.push('…');
        }
        Some(short.replace("\\\"", "\"").replace("\\'", "'"))
    }

    /// Whether no message repeats it, not even to its author.
    pub const fn is_credential(&self) -> bool {
        self.secret && !self.quotable
    }

    /// Adds the texts of this value and those below it that no message may show.
    pub fn add_concealed<'n>(&'n self, out: &mut Vec<&'n str>) {
        if self.is_credential() {
            out.extend(self.secret_texts());
        }
        out.extend(self.outside().iter().map(String::as_str));
        self.elements().iter().for_each(|node| node.add_concealed(out));
        self.entries().iter().for_each(|(_, node)| node.add_concealed(out));
    }

    /// Adds the texts that only messages to their author may show.
    pub fn add_quotable<'n>(&'n self, out: &mut Vec<&'n str>) {
        if self.quotable {
            out.extend(self.secret_texts());
        }
        self.elements().iter().for_each(|node| node.add_quotable(out));
        self.entries().iter().for_each(|(_, node)| node.add_quotable(out));
    }

    /// The secret parts of this value as written, without those below it.
    pub(super) fn secret_texts(&self) -> Vec<&str> {
        match self.as_text().filter(|_| self.secret) {
            Some(text) if self.partly_secret => secret_pieces(text),
            text => text.into_iter().collect(),
        }
    }

    /// The kind of value, in the config's words.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null if self.raw().is_empty() => "nothing",
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

    /// As [`find`](Self::find), with the key of the value.
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
        let ends = || path.match_indices(['.', '[']).map(|(at, _)| at).chain([path.len()]);
        let (key, node) = match self.sorted() {
            Some(_) => ends().filter_map(|end| self.entry(path.get(..end)?)).next_back()?,
            None => {
                let fits = |key: &str| {
                    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                };
                let fitting = self.entries().iter().filter(|(k, _)| fits(&k.text));
                fitting.max_by_key(|(k, _)| k.text.len())?
            }
        };
        let (inner, found) = node.lookup(&path[key.text.len()..])?;
        Some((inner.or_else(|| std::ptr::eq(found, node).then_some(key)), found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Diagnostics, parse::parse};
    use std::fmt::Write as _;
    use std::path::Path;

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

    #[test]
    fn a_large_map_is_found_in_by_its_index() {
        let mut text = "routes:\n  a: { x: 1 }\n  a.b: { x: [2] }\n".to_owned();
        for n in (0..100).rev() {
            let _ = writeln!(text, "  r{n}: {{ x: {n} }}");
        }
        let mut tree = parse(&text, Path::new("t.yaml"), &mut Diagnostics::default()).unwrap();
        let plain = tree.clone();
        tree.index();
        assert!(tree.get("routes").is_some_and(|routes| routes.sorted().is_some()));
        for path in
            ["routes.a", "routes.a.x", "routes.a.b", "routes.a.b.x[0]", "routes.r7.x", "routes.r99", "routes"]
        {
            assert_eq!(tree.find(path).map(|n| n.at.line), plain.find(path).map(|n| n.at.line), "{path}");
            assert!(tree.find(path).is_some(), "{path}");
        }
        for path in ["routes.r100", "routes.a.c", "routes.a.b.x[1]", "routes.a.b.y"] {
            assert!(tree.find(path).is_none() && plain.find(path).is_none(), "{path}");
        }
        // The lookup also finds an entry that was added later.
        let Value::Map(sections) = &mut tree.value else { unreachable!() };
        let Value::Map(routes) = &mut sections[0].1.value else { unreachable!() };
        let (key, node) = routes[3].clone();
        routes.push((Key { text: "later".into(), ..key }, node));
        assert!(tree.find("routes.later.x").is_some());
    }
}
