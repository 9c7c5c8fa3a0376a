//! Parses text into a tree: the only file that knows YAML. JSON is valid YAML; `json` reads it faster.
//!
//! We read the events of `granit-parser` instead of a library's values. Events distinguish a quoted `"80"` from a
//! plain one and carry the position of each key. They also let us enforce limits while the tree grows.

mod json;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use granit_parser::{Event, Marker, Parser, ScalarStyle};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::expression;
use super::foreign;
use super::node::{Key, Node, Place, Value};
use super::yaml_hint::{self, SyntaxError};

/// Largest file read. A config of 10,000 routes has about 2 MiB.
pub const MAX_BYTES: usize = 16 << 20;
/// Deepest nesting. Our deepest setting has 7 levels.
pub const MAX_DEPTH: usize = 64;
/// Maximum number of values in one file, including those that aliases repeat. Stops billion-laughs attacks.
pub const MAX_NODES: usize = 2_000_000;
/// Largest document of consumers. 100,000 of them with a key and a plan have about 9 MiB.
pub const MAX_CONSUMER_BYTES: usize = 64 << 20;
/// Maximum number of values that aliases may repeat.
pub const MAX_REPEATED: usize = 100_000;

/// Reads `text` into a tree. An empty file is an empty map. A duplicate key is reported and its first value kept.
/// Text that is not YAML is reported and gives no tree.
pub fn parse(text: &str, file: &Path, diagnostics: &mut Diagnostics) -> Option<Node> {
    parse_shared(&text.into(), file, diagnostics)
}

/// As [`parse`], for a text that the caller keeps, so that diagnostics share it.
pub fn parse_shared(text: &Arc<str>, file: &Path, diagnostics: &mut Diagnostics) -> Option<Node> {
    let text: Arc<str> = text.strip_prefix('\u{feff}').map_or_else(|| Arc::clone(text), Arc::from);
    diagnostics.add_source(&Arc::new(file.to_owned()), Arc::clone(&text));
    parse_within(MAX_BYTES, &text, file, diagnostics)
}

/// Reads a text of at most `bytes`, of which diagnostics show no line.
pub(super) fn parse_within(
    bytes: usize,
    text: &str,
    file: &Path,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    let file = Arc::new(file.to_owned());
    let new = || Builder { bytes, ..Builder::new(file.clone()) };
    let mut builder = new();
    let read = match json::read(&mut builder, text) {
        Some(()) => Ok(builder.root.take()),
        None => {
            builder = new();
            builder.run(text)
        }
    };
    match read {
        Ok(Some(root)) if matches!(root.value, Value::Str(_)) && foreign::recognise(text).is_some() => {
            diagnostics.push(at_start(foreign::recognise(text)?, file));
            None
        }
        Ok(Some(root)) if foreign::recognise_keys(&root).is_some() => {
            diagnostics.push(at_start(foreign::recognise_keys(&root)?, file));
            None
        }
        Ok(root) => {
            for duplicate in builder.duplicates {
                diagnostics.push(duplicate);
            }
            let start = Place { file, line: 1, column: 1 };
            Some(match root {
                Some(node) if node.value != Value::Null => node,
                _ => Node::empty_map(start),
            })
        }
        Err(diagnostic) => {
            diagnostics.push(foreign::recognise(text).map_or(*diagnostic, |foreign| at_start(foreign, file)));
            None
        }
    }
}

/// A scalar as a text has it.
pub(super) struct Token {
    /// Line and column, as in [`Place`].
    pub(super) at: (u32, u32),
    /// Where it is written, with its quotes, in bytes.
    pub(super) bytes: Range<usize>,
    /// Its quotes; `None` for a block, whose range is not exact.
    pub(super) quotes: Option<&'static str>,
}

/// The scalars of a text without a byte order mark, keys and values. Up to the first mistake, if it is not YAML.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        let (Event::Scalar(_, style, ..), Some(begin), Some(end)) =
            (event, span.start.byte_offset(), span.end.byte_offset())
        else {
            continue;
        };
        let quotes = match style {
            ScalarStyle::Plain => Some(""),
            ScalarStyle::SingleQuoted => Some("'"),
            ScalarStyle::DoubleQuoted => Some("\""),
            _ => None,
        };
        found.push(Token { at: line_and_column(&span.start), bytes: begin..end, quotes });
    }
    found
}

fn line_and_column(marker: &Marker) -> (u32, u32) {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (number(marker.line()), number(marker.col() + 1))
}

fn at_start(diagnostic: Diagnostic, file: Arc<PathBuf>) -> Diagnostic {
    diagnostic.at(Place { file, line: 1, column: 1 })
}

/// Builds the tree without recursion, so that nesting costs no stack.
struct Builder {
    file: Arc<PathBuf>,
    /// The longest text.
    bytes: usize,
    /// Keys seen so far: 200,000 routes mostly repeat the same few.
    keys: HashSet<Arc<str>>,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    repeated: usize,
    anchors: HashMap<usize, Node>,
    duplicates: Vec<Diagnostic>,
}

/// An unfinished list or map.
struct Open {
    at: Place,
    anchor: usize,
    content: Content,
}

enum Content {
    Seq(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, seen: Seen, key: Option<Key> },
}

/// The keys of a map by their position, used from [`HASHED`] entries on. Most maps have two keys.
type Seen = HashMap<Arc<str>, usize>;

/// A map with fewer entries compares each key with those before it.
const HASHED: usize = 16;

type Refusal = Box<Diagnostic>;

impl Content {
    /// A map without entries.
    fn map() -> Self {
        Self::Map { entries: Vec::new(), seen: HashMap::new(), key: None }
    }
}

impl Builder {
    fn new(file: Arc<PathBuf>) -> Self {
        Self {
            file,
            bytes: MAX_BYTES,
            keys: HashSet::new(),
            open: Vec::new(),
            root: None,
            documents: 0,
            nodes: 0,
            repeated: 0,
            anchors: HashMap::new(),
            duplicates: Vec::new(),
        }
    }

    fn run(&mut self, text: &str) -> Result<Option<Node>, Refusal> {
        let start = Place { file: self.file.clone(), line: 1, column: 1 };
        if text.len() > self.bytes {
            return Err(refuse("too-large", start, format!("the file is larger than {} bytes", self.bytes)));
        }
        for event in Parser::new_from_str(text) {
            match event {
                Ok((event, span)) => {
                    self.refuse_tag(text, &event, &span.start)?;
                    self.event(event, &span.start, span.start == span.end)?;
                }
                Err(error) => return Err(self.syntax(text, error.marker(), &error.info())),
            }
        }
        Ok(self.root.take())
    }

    /// A tag (`!word`) would change what the value is, and no setting needs one. Mostly it is text that begins with `!`.
    fn refuse_tag(&self, text: &str, event: &Event<'_>, marker: &Marker) -> Result<(), Refusal> {
        let (Event::Scalar(.., Some(_))
        | Event::SequenceStart(.., Some(_))
        | Event::MappingStart(.., Some(_))) = event
        else {
            return Ok(());
        };
        let (at, written) = yaml_hint::tag_before(text, self.place(marker));
        let hint = match written {
            _ if written.starts_with("!!") => {
                "leave the tag out: quotes alone tell text from other values".to_owned()
            }
            _ => format!("put text that begins with `!` into quotes: {}", expression::quoted(written)),
        };
        let message = "a `!` without quotes begins a tag of YAML, and no setting takes one".to_owned();
        Err(refuse("syntax", at, message).hinted(&hint))
    }

    /// `empty` says that nothing is written there: the parser gives `~` for an omitted value.
    fn event(&mut self, event: Event<'_>, marker: &Marker, empty: bool) -> Result<(), Refusal> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let hint = "put further documents into files of their own and `include` them";
                    let message = "a second document begins here; expected one document in a file".to_owned();
                    return Err(refuse("syntax", self.place(marker), message).hinted(hint));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, _) => {
                let place = self.place(marker);
                if self.wants_key() {
                    return self.key(&text, place);
                }
                if empty && style == ScalarStyle::Plain {
                    return self.value(Node::new(place, Value::Null, ""), anchor);
                }
                let value = if style == ScalarStyle::Plain {
                    Value::plain(&text)
                } else {
                    Value::Str((&*text).into())
                };
                self.value(Node::new(place, value, &text), anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(marker, anchor, Content::Seq(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.begin(marker, anchor, Content::map()),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, marker),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, marker: &Marker, anchor: usize, content: Content) -> Result<(), Refusal> {
        self.begin_at(self.place(marker), anchor, content)
    }

    fn begin_at(&mut self, at: Place, anchor: usize, content: Content) -> Result<(), Refusal> {
        if self.wants_key() {
            let message = "expected a key, found a list or map".to_owned();
            let hint = "put text with { or [ in it into quotes";
            return Err(refuse("syntax", at, message).hinted(hint));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(refuse("too-deep", at, format!("more than {MAX_DEPTH} levels of nesting")));
        }
        self.open.push(Open { at, anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refusal> {
        let Some(Open { at, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::Seq(mut elements) => {
                elements.shrink_to_fit();
                Value::Seq(elements)
            }
            Content::Map { mut entries, .. } => {
                entries.shrink_to_fit();
                Value::Map(entries)
            }
        };
        self.value(Node::new(at, value, ""), anchor)
    }

    fn alias(&mut self, anchor: usize, marker: &Marker) -> Result<(), Refusal> {
        let at = self.place(marker);
        let Some(node) = self.anchors.get(&anchor) else {
            let message = "an alias within the very value it names".to_owned();
            return Err(refuse("syntax", at, message));
        };
        let size = size(node);
        if self.repeated + size > MAX_REPEATED {
            let message = format!("aliases repeat more than {MAX_REPEATED} values");
            return Err(refuse("too-large", at, message));
        }
        let mut node = node.clone();
        node.at = at.clone();
        self.repeated += size;
        if self.wants_key() {
            return match node.as_text() {
                Some(text) => self.key(text, at),
                None => Err(refuse("syntax", at, "expected a key, found a list or map".to_owned())),
            };
        }
        self.value(node, 0)
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Map { key: None, .. }, .. }))
    }

    fn key(&mut self, text: &str, at: Place) -> Result<(), Refusal> {
        let text = match self.keys.get(text) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = text.into();
                self.keys.insert(Arc::clone(&new));
                new
            }
        };
        if let Some(Open { content: Content::Map { key, .. }, .. }) = self.open.last_mut() {
            if &*text == "<<" {
                let message = "merge keys (`<<`) are not supported".to_owned();
                return Err(
                    refuse("syntax", at, message).hinted("repeat the value with an alias, or write it out")
                );
            }
            *key = Some(Key { text, at });
        }
        Ok(())
    }

    fn value(&mut self, node: Node, anchor: usize) -> Result<(), Refusal> {
        self.nodes += 1;
        if self.nodes + self.repeated > MAX_NODES {
            return Err(refuse("too-large", node.at, format!("more than {MAX_NODES} values")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::Seq(elements)) => elements.push(node),
            Some(Content::Map { entries, seen, key }) => {
                let Some(key) = key.take() else { return Ok(()) };
                if let Some(first) = first_of(&key.text, entries, seen) {
                    self.duplicates.push(
                        Diagnostic::error("duplicate-key", format!("`{}` is written twice", key.text))
                            .at(key.at)
                            .hint(format!("the first is at {}:{}; keep one", first.line, first.column)),
                    );
                    return Ok(());
                }
                entries.push((key, node));
            }
        }
        Ok(())
    }

    fn place(&self, marker: &Marker) -> Place {
        let (line, column) = line_and_column(marker);
        Place { file: self.file.clone(), line, column }
    }

    fn syntax(&self, text: &str, marker: &Marker, info: &str) -> Refusal {
        let at = self.place(marker);
        let SyntaxError { line, column, message, hint } = yaml_hint::explain(text, at.line, at.column, info);
        let mut diagnostic = refuse("syntax", Place { line, column, ..at }, message);
        diagnostic.hint = hint;
        diagnostic
    }
}

/// The position of an equal key among the entries so far.
fn first_of<'e>(text: &Arc<str>, entries: &'e [(Key, Node)], seen: &mut Seen) -> Option<&'e Place> {
    if entries.len() < HASHED {
        // `Builder::keys` has each text once, so equal keys share a pointer.
        return entries.iter().find(|(key, _)| Arc::ptr_eq(&key.text, text)).map(|(key, _)| &key.at);
    }
    for (at, (key, _)) in entries.iter().enumerate().skip(seen.len()) {
        seen.insert(Arc::clone(&key.text), at);
    }
    seen.get(text).and_then(|at| entries.get(*at)).map(|(key, _)| &key.at)
}

fn refuse(code: &'static str, at: Place, message: String) -> Refusal {
    Box::new(Diagnostic::error(code, message).at(at))
}

/// Adds a hint to a boxed diagnostic.
trait Hinted {
    fn hinted(self, hint: &str) -> Self;
}

impl Hinted for Refusal {
    fn hinted(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

fn size(node: &Node) -> usize {
    1 + node.elements().iter().map(size).sum::<usize>()
        + node.entries().iter().map(|(_, node)| size(node)).sum::<usize>()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn tree(text: &str) -> Node {
        let mut diagnostics = Diagnostics::default();
        let tree = parse(text, Path::new("t.yaml"), &mut diagnostics);
        tree.unwrap_or_else(|| panic!("{}", diagnostics.to_text()))
    }

    #[test]
    fn plain_scalars() {
        for (text, value) in [
            ("~", Value::Null),
            ("true", Value::Bool(true)),
            ("yes", Value::Str("yes".into())),
            ("off", Value::Str("off".into())),
            ("8080", Value::Int(8080)),
            ("-1", Value::Int(-1)),
            ("010", Value::Str("010".into())),
            ("1.2", Value::Float(1.2)),
            ("1e3", Value::Float(1000.0)),
            ("127.0.0.1", Value::Str("127.0.0.1".into())),
            ("0x10", Value::Str("0x10".into())),
            ("3s", Value::Str("3s".into())),
        ] {
            assert_eq!(Value::plain(text), value, "{text}");
        }
    }

    #[test]
    fn json_and_yaml_give_one_tree() {
        let yaml = tree("a:\n  - 1\n  - \"x\"\nb: { c: true }\n");
        let json = tree("{\"a\": [1, \"x\"], \"b\": {\"c\": true}}");
        assert_eq!(yaml, json);
    }

    #[test]
    fn an_alias_repeats_its_anchor() {
        let tree = tree("a: &x { b: 1 }\nc: *x\n");
        assert_eq!(tree.find("a"), tree.find("c"));
        assert_eq!(tree.find("c").map(|n| n.at.line), Some(2));
    }

    #[test]
    fn a_key_that_is_written_twice_is_told_in_maps_of_any_size() {
        for size in [1, HASHED - 1, HASHED, HASHED + 1, 5 * HASHED] {
            for again in [0, size / 2, size - 1] {
                let mut text: String = (0..size).map(|n| format!("k{n}: {n}\n")).collect();
                text.push_str(&format!("k{again}: again\nlast: 1\n"));
                let mut diagnostics = Diagnostics::default();
                let tree = parse(&text, Path::new("t.yaml"), &mut diagnostics).unwrap();
                let told: Vec<_> = diagnostics.iter().collect();
                let [twice] = told[..] else { panic!("{}", diagnostics.to_text()) };
                assert_eq!(twice.place.as_ref().map(|at| at.line as usize), Some(size + 1));
                let first = format!("the first is at {}:1; keep one", again + 1);
                assert_eq!(twice.hint.as_deref(), Some(&*first));
                assert_eq!(tree.entries().len(), size + 1);
                assert_eq!(tree.get(&format!("k{again}")).and_then(Node::as_text), Some(&*again.to_string()));
            }
        }
    }

    #[test]
    fn bombs_are_defused() {
        let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, of) in ["b", "c", "d", "e", "f", "g", "h"].iter().zip(["a", "b", "c", "d", "e", "f", "g"])
        {
            laughs.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(", ")));
        }
        for text in [laughs, "[".repeat(100_000), format!("a: {}", "{a: ".repeat(10_000))] {
            let mut diagnostics = Diagnostics::default();
            assert!(parse(&text, Path::new("t.yaml"), &mut diagnostics).is_none());
            assert_eq!(diagnostics.errors(), 1);
        }
    }
}
