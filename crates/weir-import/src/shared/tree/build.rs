//! Builds documents from the parser's events, within limits.

use super::{MAX_DEPTH, MAX_NODES, MAX_REPEATED, Value};
use crate::source::{Place, SourceFile, Unreadable};
use granit_parser::{Event, Parser, ScalarStyle};
use std::collections::HashMap;
use std::sync::Arc;

/// Reads the events of a file.
pub(super) fn documents(file: &SourceFile, takes_many: bool) -> Result<Builder, Unreadable> {
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

/// A value before its keys are in the ledger. Each key that is written has a number; aliases repeat it.
#[derive(Clone)]
pub(in crate::shared) struct Raw {
    pub(in crate::shared) line: u32,
    pub(in crate::shared) value: RawValue,
}

#[derive(Clone)]
pub(in crate::shared) enum RawValue {
    Null,
    Bool(bool),
    Number(Arc<str>),
    Text(Arc<str>),
    List(Vec<Raw>),
    Map(Vec<RawEntry>),
}

#[derive(Clone)]
pub(in crate::shared) struct RawEntry {
    pub(in crate::shared) key: Arc<str>,
    /// The number of the key among those of its file.
    pub(in crate::shared) number: u32,
    pub(in crate::shared) line: u32,
    pub(in crate::shared) raw: Raw,
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
pub(super) struct Builder {
    file: Arc<str>,
    open: Vec<Open>,
    pub(super) root: Option<Raw>,
    /// Whether a file may have several documents.
    takes_many: bool,
    /// The documents before the last one.
    pub(super) before: Vec<Raw>,
    documents: usize,
    nodes: usize,
    repeated: usize,
    pub(super) keys: u32,
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
