//! YAML as a person would write it: ordered maps with comments, short maps and lists on one line, quotes only where
//! they are needed.

use std::collections::HashSet;
use std::fmt::Write;

/// Longest line that a map or list is kept on.
const WIDTH: usize = 110;
/// Before the name of a variable in a text, which is written as `${`. A character for private use, which no config has.
pub(crate) const VARIABLE_BEGIN: char = '\u{e000}';
/// Behind the name of a variable in a text.
pub(crate) const VARIABLE_END: char = '\u{e001}';

/// A value of a config.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text. A `$` in it is doubled, so that Weir does not look for a variable.
    Text(String),
    /// A text that stands for itself, whatever characters it has: no part of it marks a variable. Plans use it, because
    /// their sources may hold any character.
    Literal(String),
    /// The same with several lines, written as a block.
    LiteralBlock(String),
    /// A text that may hold `${NAME}`; its other `$` are doubled already.
    WithVariables(String),
    /// A text of several lines, written as a block.
    Block(String),
    /// A whole number.
    Number(i64),
    /// A scalar that is written as it is: `null`, `1.5`.
    Plain(String),
    /// `true` or `false`.
    Bool(bool),
    /// A list.
    List(Vec<Self>),
    /// A map.
    Map(Map),
}

/// A map whose keys stay in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    entries: Vec<Entry>,
    /// Comment for the next entry.
    pending: Vec<String>,
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    comment: Vec<String>,
    key: String,
    value: Value,
}

impl Map {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a comment above the next entry.
    pub fn comment(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.pending.contains(&text) {
            self.pending.push(text);
        }
    }

    /// Sets a key; a key that is there gets the new value.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let (key, value, comment) = (key.into(), value.into(), std::mem::take(&mut self.pending));
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => {
                entry.value = value;
                entry.comment.extend(comment);
            }
            None => self.entries.push(Entry { comment, key, value }),
        }
    }

    /// Adds a key that is known not to be there, without looking.
    pub fn push(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let entry =
            Entry { comment: std::mem::take(&mut self.pending), key: key.into(), value: value.into() };
        self.entries.push(entry);
    }

    /// Sets a key if there is a value.
    pub fn set_some(&mut self, key: impl Into<String>, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// The same, with the key set for the whole expression: `Map::new().with("a", 1).with("b", 2)`.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(key, value);
        self
    }

    /// Takes a key out, with its comment, and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at).value)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The map below a key, made if it is not there.
    ///
    /// # Panics
    /// If the key has a value that is no map, which is a mistake of the caller.
    pub fn map_mut(&mut self, key: &str) -> &mut Self {
        if self.get(key).is_none() {
            self.set(key, Self::new());
        }
        let entry = self.entries.iter_mut().find(|entry| entry.key == key);
        match entry.map(|entry| &mut entry.value) {
            Some(Value::Map(map)) => map,
            _ => panic!("{key} holds no map"),
        }
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|entry| (&*entry.key, &entry.value))
    }

    /// Keys and values in order; values can be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.entries.iter_mut().map(|entry| (&*entry.key, &mut entry.value))
    }

    /// The text of a file with this map.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        block_map(self, 0, true, &mut out);
        for line in &self.pending {
            comment(line, 0, &mut out);
        }
        out
    }
}

/// Of equal keys the last value counts, at the place of the first.
impl FromIterator<(String, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        let (mut map, mut known) = (Self::new(), HashSet::new());
        for (key, value) in entries {
            // `set` looks through all entries, which would take long in a large map.
            match known.insert(key.clone()) {
                true => map.push(key, value),
                false => map.set(key, value),
            }
        }
        map
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl Value {
    /// Whether it is an item of a list that has comments only.
    fn is_comment(&self) -> bool {
        matches!(self, Self::Map(map) if map.is_empty() && !map.pending.is_empty())
    }

    /// As an item of a list, with its dash.
    pub(crate) fn to_item(&self) -> String {
        let mut out = String::new();
        block_list(std::slice::from_ref(self), 0, &mut out);
        out.truncate(out.trim_end().len());
        out
    }

    /// On one line, or nothing if it holds a comment or a block.
    fn flow(&self, in_flow: bool) -> Option<String> {
        Some(match self {
            Self::Text(text) => scalar(&escaped(text), in_flow),
            Self::Literal(text) => scalar(&doubled(text), in_flow),
            Self::WithVariables(text) => scalar(text, in_flow),
            Self::Block(_) | Self::LiteralBlock(_) => return None,
            Self::Number(number) => number.to_string(),
            Self::Plain(text) => text.clone(),
            Self::Bool(flag) => flag.to_string(),
            Self::List(items) if items.is_empty() => "[]".to_owned(),
            Self::List(items) if items.iter().any(Self::is_comment) => return None,
            Self::List(items) => {
                let items: Option<Vec<_>> = items.iter().map(|item| item.flow(true)).collect();
                let items = items?;
                let long = items.iter().any(|item| item.contains(['{', '[']) && !item.starts_with('"'));
                let joined = items.join(", ");
                if long { format!("[ {joined} ]") } else { format!("[{joined}]") }
            }
            Self::Map(map) if map.is_empty() => "{}".to_owned(),
            Self::Map(map) => {
                let one = |entry: &Entry| {
                    if !entry.comment.is_empty() {
                        return None;
                    }
                    Some(format!("{}: {}", scalar(&entry.key, true), entry.value.flow(true)?))
                };
                let entries: Option<Vec<_>> = map.entries.iter().map(one).collect();
                format!("{{ {} }}", entries?.join(", "))
            }
        })
    }
}

/// A text in which no `$` begins a variable.
pub(crate) fn doubled(text: &str) -> String {
    text.replace('$', "$$")
}

/// A text in which no `$` begins a variable but those that are marked.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('$', "$$").replace(VARIABLE_BEGIN, "${").replace(VARIABLE_END, "}")
}

/// A text as the lines of a comment.
pub(crate) fn comment_text(text: &str) -> String {
    let mut out = String::new();
    comment(text, 0, &mut out);
    out.truncate(out.trim_end().len());
    out
}

fn comment(text: &str, indent: usize, out: &mut String) {
    for line in text.lines() {
        // What a source says must not end the comment.
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let width = WIDTH.saturating_sub(indent + 2).max(40);
        for part in wrap(&line, width) {
            let _ = writeln!(out, "{:indent$}# {part}", "");
        }
    }
}

/// Lines of at most this width where words allow it. All have the indentation of the first.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let words = line.trim_start_matches(' ');
    let indent = " ".repeat(line.len() - words.len());
    let mut parts = vec![String::new()];
    for word in words.split(' ') {
        let last = parts.last_mut().expect("there is always a last line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            parts.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    parts.into_iter().map(|part| format!("{indent}{part}")).collect()
}

/// A map with a line for each key. Top-level keys always open a block, so that sections look alike.
fn block_map(map: &Map, indent: usize, is_top: bool, out: &mut String) {
    for (at, entry) in map.entries.iter().enumerate() {
        let before = out.len();
        for line in &entry.comment {
            comment(line, indent, out);
        }
        let key = scalar(&entry.key, false);
        let _ = write!(out, "{:indent$}{key}:", "");
        value_after_key(&entry.value, indent, key.len() + 1, is_top, out);
        let is_long = out[before..].matches('\n').count() > 1;
        if is_top && is_long && at + 1 < map.entries.len() {
            out.push('\n');
        }
    }
}

/// What follows `key:`.
fn value_after_key(value: &Value, indent: usize, used: usize, is_top: bool, out: &mut String) {
    let opens = is_top && matches!(value, Value::Map(map) if !map.is_empty());
    if !opens
        && let Some(flow) = value.flow(false)
        && (indent + used + 1 + flow.len() <= WIDTH || is_scalar(value))
    {
        let _ = writeln!(out, " {flow}");
        return;
    }
    match value {
        Value::Map(map) => {
            out.push('\n');
            block_map(map, indent + 2, false, out);
        }
        Value::List(items) => {
            out.push('\n');
            block_list(items, indent + 2, out);
        }
        Value::Block(text) => block_text(&escaped(text), indent + 2, out),
        Value::LiteralBlock(text) => block_text(&doubled(text), indent + 2, out),
        scalar => {
            let _ = writeln!(out, " {}", scalar.flow(false).unwrap_or_default());
        }
    }
}

fn block_list(items: &[Value], indent: usize, out: &mut String) {
    for item in items {
        if let Value::Map(map) = item
            && map.is_empty()
            && !map.pending.is_empty()
        {
            map.pending.iter().for_each(|line| comment(line, indent, out));
            continue;
        }
        if let Some(flow) =
            item.flow(false).filter(|flow| indent + 2 + flow.len() <= WIDTH || is_scalar(item))
        {
            // A filter with one setting reads best as `- name: { … }`.
            let flow = match item {
                Value::Map(map) if map.len() == 1 => flow
                    .strip_prefix("{ ")
                    .and_then(|flow| flow.strip_suffix(" }"))
                    .unwrap_or(&flow)
                    .to_owned(),
                _ => flow,
            };
            let _ = writeln!(out, "{:indent$}- {flow}", "");
            continue;
        }
        match item {
            Value::Map(map) => {
                let mut inner = String::new();
                block_map(map, indent + 2, false, &mut inner);
                // A comment of the first entry stands above the dash.
                let lines: Vec<&str> = inner.lines().collect();
                let first = lines.iter().take_while(|line| line.trim_start().starts_with("# ")).count();
                for line in &lines[..first] {
                    let _ = writeln!(out, "{:indent$}{}", "", line.trim_start());
                }
                for (at, line) in lines[first..].iter().enumerate() {
                    match at {
                        0 => _ = writeln!(out, "{:indent$}- {}", "", line.trim_start()),
                        _ => _ = writeln!(out, "{line}"),
                    }
                }
            }
            Value::List(inner) => {
                let _ = writeln!(out, "{:indent$}-", "");
                block_list(inner, indent + 2, out);
            }
            Value::Block(text) => {
                let _ = write!(out, "{:indent$}-", "");
                block_text(&escaped(text), indent + 2, out);
            }
            Value::LiteralBlock(text) => {
                let _ = write!(out, "{:indent$}-", "");
                block_text(&doubled(text), indent + 2, out);
            }
            scalar => {
                let _ = writeln!(out, "{:indent$}- {}", "", scalar.flow(false).unwrap_or_default());
            }
        }
    }
}

/// A text of several lines, if it survives as a block.
fn block_text(text: &str, indent: usize, out: &mut String) {
    let plain = text.chars().all(|c| c == '\n' || !c.is_control()) && !text.starts_with([' ', '\n']);
    if !plain || text.trim_end_matches('\n').is_empty() {
        let _ = writeln!(out, " {}", scalar(text, false));
        return;
    }
    let chomp = if !text.ends_with('\n') {
        "-"
    } else if text.ends_with("\n\n") {
        "+"
    } else {
        ""
    };
    let _ = writeln!(out, " |{chomp}");
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if line.is_empty() {
            out.push('\n');
        } else {
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
    }
}

const fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::List(_) | Value::Map(_) | Value::Block(_) | Value::LiteralBlock(_))
}

/// A text with quotes if YAML would read it as something else.
fn scalar(text: &str, in_flow: bool) -> String {
    if is_plain(text, in_flow) {
        return text.to_owned();
    }
    let has_control = text.chars().any(char::is_control);
    if !has_control && text.contains(['"', '\\']) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether a text may stand without quotes, by a rule stricter than YAML's.
fn is_plain(text: &str, _in_flow: bool) -> bool {
    let mut chars = text.chars();
    let begins =
        chars.next().is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.' | '~'));
    let goes_on =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.' | '-' | ':' | ' ' | '+' | '%');
    let word = text.to_ascii_lowercase();
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"].contains(&&*word);
    let is_number = text.parse::<f64>().is_ok()
        || text.replace('_', "").parse::<f64>().is_ok()
        || word.starts_with("0x")
        || word.starts_with("0o")
        || word.starts_with(".inf")
        || word.starts_with(".nan")
        || text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b':' | b'-' | b'_'))
            && !text.bytes().filter(|b| *b == b'.').count().eq(&3);
    begins
        && chars.all(goes_on)
        && !text.starts_with('~')
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && !is_word
        && !is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_yaml_would_read_something_else() {
        let cases = [
            ("api.example.com", "api.example.com"),
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("60s", "60s"),
            ("12", "\"12\""),
            ("1e3", "\"1e3\""),
            ("on", "\"on\""),
            ("", "\"\""),
            ("/p*", "\"/p*\""),
            ("a: b", "\"a: b\""),
            ("~/a.*", "\"~/a.*\""),
            ("a \"b\" 'c'", "'a \"b\" ''c'''"),
            ("a\nb", "\"a\\nb\""),
            ("[::]:80", "\"[::]:80\""),
            ("2026-01-02", "\"2026-01-02\""),
        ];
        for (text, written) in cases {
            assert_eq!(scalar(text, true), written, "{text}");
        }
    }

    #[test]
    fn a_dollar_is_no_variable() {
        let map = Map::new().with("a", "x$y").with("b", Value::WithVariables("${KEY}".to_owned()));
        assert_eq!(map.to_yaml(), "a: \"x$$y\"\nb: \"${KEY}\"\n");
        let map = Map::new().with("a", Value::Literal("$\u{e000}HOME\u{e001}".to_owned()));
        assert_eq!(map.to_yaml(), "a: \"$$\u{e000}HOME\u{e001}\"\n");
    }

    #[test]
    fn short_maps_stay_on_one_line_and_sections_open() {
        let mut route = Map::new().with("match", Map::new().with("path", "/a"));
        route.comment("Two lines\nof reasons");
        route.set("filters", vec![Map::new().with("compress", Map::new())]);
        route.set("respond", Map::new().with("body", Value::Block("a\nb\n".to_owned())));
        let map = Map::new().with("routes", Map::new().with("a", route)).with("watch", false);
        let expected = "routes:\n  a:\n    match: { path: /a }\n    # Two lines\n    # of reasons\n    filters: [ { compress: {} } ]\n    respond:\n      body: |\n        a\n        b\n\nwatch: false\n";
        assert_eq!(map.to_yaml(), expected);
    }
}
