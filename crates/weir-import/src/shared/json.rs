//! A reader of JSON that knows the line of each value, for sources that are far larger than configs. YAML becomes the
//! same tree, by the reader of configs.
//!
//! The tree borrows texts without escapes from the source, so a file of 100 MB takes little more than itself.

use super::tree;
use crate::source::{Place, SourceFile, Unreadable};
use std::borrow::Cow;
use std::collections::HashSet;

/// Deepest nesting.
const MAX_DEPTH: usize = 100;
/// Most values of a file.
const MAX_NODES: usize = 3_000_000;
/// A map with fewer entries is searched for a key one by one.
const HASHED: usize = 16;

/// A value with its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<'s> {
    /// The line, from 1.
    pub line: u32,
    /// The value.
    pub value: Value<'s>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'s> {
    /// `null`
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(Cow<'s, str>),
    /// A text.
    Text(Cow<'s, str>),
    /// A list.
    List(Vec<Node<'s>>),
    /// A map, in the order of the source.
    Map(Vec<(Cow<'s, str>, Node<'s>)>),
}

/// Reads a file of JSON.
///
/// # Errors
/// If it is no JSON, has a key twice in one map, or exceeds a limit.
pub fn read(file: &SourceFile) -> Result<Node<'_>, Unreadable> {
    match parse(&file.text) {
        Ok(node) => Ok(node),
        Err((line, why)) => Err(Unreadable::at(&Place::new(&file.name, line), why)),
    }
}

/// Reads a file of YAML or JSON.
///
/// # Errors
/// As [`read`].
pub fn read_yaml(file: &SourceFile) -> Result<Node<'_>, Unreadable> {
    if file.text.trim_start().starts_with('{')
        && !file.name.ends_with(".yaml")
        && !file.name.ends_with(".yml")
    {
        return read(file);
    }
    tree::outline(file)
}

/// Reads a text of JSON. The error has the line.
pub(crate) fn parse(text: &str) -> Result<Node<'_>, (u32, String)> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, line: 1, nodes: 0 };
    let node = reader.value(0).map_err(|why| (reader.line, why))?;
    reader.blanks();
    match reader.bytes.get(reader.at) {
        None => Ok(node),
        Some(_) => Err((reader.line, "expected the end of the file after the JSON value".to_owned())),
    }
}

impl<'s> Node<'s> {
    /// A text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A text, or a number or a flag as it is written.
    #[must_use]
    pub fn as_text(&self) -> Option<Cow<'_, str>> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(Cow::Borrowed(text)),
            Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
            _ => None,
        }
    }

    /// A number.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match &self.value {
            Value::Number(text) => text.parse().ok(),
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

    /// The items of a list; of anything else, none.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The entries of a map; of anything else, none.
    #[must_use]
    pub fn entries(&self) -> &[(Cow<'s, str>, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key; `null` counts as absent.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let found = self.entries().iter().find(|(own, _)| own == key).map(|(_, node)| node);
        found.filter(|node| node.value != Value::Null)
    }

    /// The text of a key.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Self::as_str)
    }

    /// The value at a path of keys.
    #[must_use]
    pub fn at(&self, keys: &[&str]) -> Option<&Self> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }
}

struct Reader<'s> {
    text: &'s str,
    bytes: &'s [u8],
    at: usize,
    line: u32,
    nodes: usize,
}

impl<'s> Reader<'s> {
    fn blanks(&mut self) {
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => self.line = self.line.saturating_add(1),
                b' ' | b'\t' | b'\r' => {}
                _ => return,
            }
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'s>, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of nesting"));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(format!("more than {MAX_NODES} values"));
        }
        self.blanks();
        let line = self.line;
        let value = match self.bytes.get(self.at) {
            None => return Err("the file ends within a value".to_owned()),
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => Value::Number(Cow::Borrowed(self.number()?)),
            Some(_) => self.word()?,
        };
        Ok(Node { line, value })
    }

    fn word(&mut self) -> Result<Value<'s>, String> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (word, value) in
            [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
        {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        let found: String = rest.chars().take(1).collect();
        Err(format!("expected a JSON value, found {found:?}"))
    }

    fn number(&mut self) -> Result<&'s str, String> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end =
            rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default();
        if text.len() > 100 || text.parse::<f64>().is_err() {
            return Err("expected a number of JSON".to_owned());
        }
        self.at += end;
        Ok(text)
    }

    fn string(&mut self) -> Result<Cow<'s, str>, String> {
        self.at += 1;
        let begin = self.at;
        let mut out: Option<String> = None;
        let mut from = begin;
        loop {
            match self.bytes.get(self.at) {
                None => return Err("a text is not closed".to_owned()),
                Some(b'"') => {
                    let last = self.text.get(from..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(match out {
                        None => Cow::Borrowed(last),
                        Some(mut out) => {
                            out.push_str(last);
                            Cow::Owned(out)
                        }
                    });
                }
                Some(b'\\') => {
                    let out = out.get_or_insert_default();
                    out.push_str(self.text.get(from..self.at).unwrap_or_default());
                    let escape = self.bytes.get(self.at + 1).copied();
                    self.at += 2;
                    out.push(match escape {
                        Some(b'"') => '"',
                        Some(b'\\') => '\\',
                        Some(b'/') => '/',
                        Some(b'b') => '\u{8}',
                        Some(b'f') => '\u{c}',
                        Some(b'n') => '\n',
                        Some(b'r') => '\r',
                        Some(b't') => '\t',
                        Some(b'u') => self.unicode()?,
                        _ => return Err("an escape that JSON does not have".to_owned()),
                    });
                    from = self.at;
                }
                Some(byte) if *byte < 0x20 => {
                    return Err("a control character within a text".to_owned());
                }
                Some(_) => self.at += 1,
            }
        }
    }

    /// A character after `\u`. Half of a pair alone becomes U+FFFD: browsers write such texts.
    fn unicode(&mut self) -> Result<char, String> {
        let four = |at: usize| {
            let digits = self.text.get(at..at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u32::from_str_radix(digits, 16).ok()
        };
        let first = four(self.at).ok_or("\\u needs four hexadecimal digits")?;
        let second = self.text.get(self.at + 4..self.at + 6).filter(|next| *next == "\\u");
        let second = second.and_then(|_| four(self.at + 6)).filter(|low| (0xdc00..0xe000).contains(low));
        self.at += 4;
        match (first, second) {
            (0xd800..0xdc00, Some(low)) => {
                self.at += 6;
                let code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            _ => Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value<'s>, String> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.passes(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.passes(b']') {
                return Ok(Value::List(items));
            }
            if !self.passes(b',') {
                return Err("expected `,` or `]`".to_owned());
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value<'s>, String> {
        self.at += 1;
        let mut entries: Vec<(Cow<'s, str>, Node<'s>)> = Vec::new();
        let mut seen: HashSet<Cow<'s, str>> = HashSet::new();
        self.blanks();
        if self.passes(b'}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.blanks();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err("expected a key in double quotes".to_owned());
            }
            let key = self.string()?;
            if entries.len() == HASHED {
                seen = entries.iter().map(|(key, _)| key.clone()).collect();
            }
            let is_twice = match entries.len() {
                0..HASHED => entries.iter().any(|(own, _)| *own == key),
                _ => !seen.insert(key.clone()),
            };
            if is_twice {
                return Err(format!("`{}` is written twice; keep one of them", beginning(&key)));
            }
            self.blanks();
            if !self.passes(b':') {
                return Err("expected `:`".to_owned());
            }
            let node = self.value(depth + 1)?;
            entries.push((key, node));
            self.blanks();
            if self.passes(b'}') {
                return Ok(Value::Map(entries));
            }
            if !self.passes(b',') {
                return Err("expected `,` or `}`".to_owned());
            }
        }
    }

    fn passes(&mut self, byte: u8) -> bool {
        let is_next = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }
}

fn beginning(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_lines() {
        let node =
            parse("{\n \"a\": [1, -2.5e3],\n \"b\": {\"c\": \"x\\ud83d\\ude00\\n\"}, \"d\": null }").unwrap();
        assert_eq!(node.get("a").map(|a| (a.line, a.items().len())), Some((2, 2)));
        assert_eq!(node.at(&["b", "c"]).and_then(Node::as_str), Some("x😀\n"));
        assert_eq!(node.at(&["b"]).map(|b| b.line), Some(3));
        assert_eq!(node.get("d"), None);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(100_000);
        let twice = format!("{{{}\"k3\":1}}", (0..40).map(|n| format!("\"k{n}\":1,")).collect::<String>());
        for (text, why) in [
            ("", "ends"),
            ("{", "key"),
            ("{\"a\" 1}", "`:`"),
            ("[1,]", "JSON value"),
            ("[1 2]", "`,`"),
            ("{\"a\":1,\"a\":2}", "written twice"),
            (&*twice, "written twice"),
            ("\"a", "not closed"),
            ("\"\\x\"", "escape"),
            ("\"\\u12\"", "hexadecimal"),
            ("\"a\nb\"", "control"),
            ("1 2", "end of the file"),
            ("1.2.3", "number"),
            ("nul", "JSON value"),
            (&*deep, "nesting"),
        ] {
            let (_, found) = parse(text).unwrap_err();
            assert!(found.contains(why), "{}: {found}", &text[..text.len().min(40)]);
        }
    }
}
