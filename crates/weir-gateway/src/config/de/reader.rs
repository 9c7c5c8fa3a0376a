//! The deserializer over nodes, and the error that knows its node.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use super::{HINT, RAW, Raw, TEXT_OR_MAP, hand_over, unsupported};
use crate::config::diagnostic::{Diagnostic, nearest_name};
use crate::config::node::{Key, Node, Place, Value};

/// What went wrong with one value.
#[derive(Debug)]
pub struct Error(Box<Mistake>);

#[derive(Debug)]
struct Mistake {
    code: &'static str,
    /// Continues the name of the value: "is not a duration".
    says: String,
    hint: Option<String>,
    missing: Option<&'static str>,
    node: Option<Identity>,
    place: Option<Place>,
    path: String,
    /// The wrong thing is the key, not the value.
    key: Option<String>,
}

/// A node of the tree being read, by its address: it stands still while we read.
type Identity = *const Node;

/// What one `read` knows: where it is, what it found, and what it passes over.
pub(super) struct Cx {
    root: String,
    path: RefCell<Vec<Segment>>,
    found: RefCell<Vec<Diagnostic>>,
    /// Nodes that are treated as absent because they were reported.
    poisoned: RefCell<HashSet<Identity>>,
    /// Values whose unknown keys are already reported.
    unknown: RefCell<HashSet<Identity>>,
    /// Keys whose absence is a consequence, since their value was reported or the key was mistyped: the map they
    /// belong to, and the key.
    meant: RefCell<HashSet<(Identity, &'static str)>>,
}

enum Segment {
    Index(usize),
    Key(String),
}

pub(super) struct NodeReader<'n> {
    node: &'n Node,
    cx: &'n Cx,
}

// === impl Cx ===

impl Cx {
    pub(super) fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            path: RefCell::default(),
            found: RefCell::default(),
            poisoned: RefCell::default(),
            unknown: RefCell::default(),
            meant: RefCell::default(),
        }
    }

    pub(super) fn into_found(self) -> Vec<Diagnostic> {
        self.found.into_inner()
    }

    /// Notes a failure of a pass over `root` and prepares the next; false when there is no use in another one.
    pub(super) fn note(&self, error: Error, root: &Node) -> bool {
        self.path.borrow_mut().clear();
        let mistake = *error.0;
        let identity = mistake.node.unwrap_or(root);
        if !self.is_consequence(&mistake) {
            self.found.borrow_mut().push(mistake.into_diagnostic(root, &self.root));
        }
        // Invariant: each pass poisons one node more, so passes come to an end.
        !std::ptr::eq(identity, root) && self.poisoned.borrow_mut().insert(identity)
    }

    /// A key is missing because its value was poisoned, or because it was mistyped.
    fn is_consequence(&self, mistake: &Mistake) -> bool {
        let Some(field) = mistake.missing else { return false };
        let Some(node) = mistake.node else { return false };
        self.meant.borrow().contains(&(node, field))
    }

    fn is_absent(&self, node: &Node) -> bool {
        node.broken || self.poisoned.borrow().contains(&std::ptr::from_ref(node))
    }

    fn path(&self) -> String {
        let mut path = self.root.clone();
        for segment in self.path.borrow().iter() {
            match segment {
                Segment::Index(index) => path.push_str(&format!("[{index}]")),
                Segment::Key(key) if path.is_empty() => path.push_str(key),
                Segment::Key(key) => path.push_str(&format!(".{key}")),
            }
        }
        path
    }

    fn enter(&self, segment: Segment) {
        self.path.borrow_mut().push(segment);
    }

    fn leave(&self) {
        self.path.borrow_mut().pop();
    }

    fn note_unknown(&self, parent: &Node, key: &Key, node: &Node, fields: &'static [&'static str]) {
        if !self.unknown.borrow_mut().insert(node) {
            return;
        }
        let unused = fields.iter().copied().filter(|field| parent.get(field).is_none());
        let near =
            nearest_name(&key.text, unused).or_else(|| nearest_name(&key.text, fields.iter().copied()));
        let message = match fields {
            [] => format!("unknown key `{}`; there are no settings here", key.text),
            _ => format!("unknown key `{}`; expected {}", key.text, one_of(fields)),
        };
        let mut diagnostic = Diagnostic::error("unknown-key", message).at(key.at.clone());
        self.enter(Segment::Key(key.text.clone()));
        diagnostic.path = self.path();
        self.leave();
        if let Some(near) = near {
            self.meant.borrow_mut().insert((parent, near));
            diagnostic.hint = Some(format!("did you mean {near}?"));
        }
        self.found.borrow_mut().push(diagnostic);
    }
}

/// `a, b or c`.
pub(super) fn one_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

// === impl Error ===

impl Error {
    fn new(code: &'static str, says: String) -> Self {
        let mistake = Mistake {
            code,
            says,
            hint: None,
            missing: None,
            node: None,
            place: None,
            path: String::new(),
            key: None,
        };
        Self(Box::new(mistake))
    }

    fn hint(mut self, hint: Option<String>) -> Self {
        self.0.hint = hint;
        self
    }

    /// Says where, unless a deeper value said so already.
    fn within(mut self, node: &Node, cx: &Cx) -> Self {
        if self.0.node.is_none() {
            self.0.node = Some(node);
            self.0.place = Some(node.at.clone());
            self.0.path = cx.path();
            if self.0.missing.is_none() {
                let subject = match node.shown() {
                    Some(shown) => format!("`{shown}`"),
                    None if node.secret || node.substituted => "the value".to_owned(),
                    None if node.is_blank() => "an empty value".to_owned(),
                    None => node.kind().to_owned(),
                };
                let says = std::mem::take(&mut self.0.says);
                let joined = says.starts_with("is not ");
                self.0.says = if joined { format!("{subject} {says}") } else { format!("{subject}: {says}") };
            }
        }
        self
    }

    /// Says that the key is wrong, not the value that stands under it.
    fn within_key(mut self, key: &Key, node: &Node, cx: &Cx) -> Self {
        if self.0.node.is_none() {
            self.0.node = Some(node);
            self.0.place = Some(key.at.clone());
            self.0.path = cx.path();
            self.0.says = format!("`{}` {}", key.text, self.0.says);
            self.0.key = Some(key.text.clone());
        }
        self
    }
}

impl Mistake {
    fn into_diagnostic(self, root: &Node, root_path: &str) -> Diagnostic {
        let mut diagnostic = Diagnostic::error(self.code, self.says);
        diagnostic.place = Some(self.place.unwrap_or_else(|| root.at.clone()));
        diagnostic.path = if self.node.is_some() { self.path } else { root_path.to_owned() };
        if let Some(field) = self.missing {
            let dot = if diagnostic.path.is_empty() { "" } else { "." };
            diagnostic.path = format!("{}{dot}{field}", diagnostic.path);
        }
        diagnostic.hint = self.hint;
        diagnostic.value = self.key;
        diagnostic
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.says)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        match message.split_once(HINT) {
            Some((says, hint)) => Self::new("bad-value", says.to_owned()).hint(Some(hint.to_owned())),
            None => Self::new("bad-value", message),
        }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new("bad-type", format!("is not {expected}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new("bad-value", format!("is not {expected}"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let near = nearest_name(variant, expected.iter().copied());
        Self::new("bad-value", format!("is not known here; expected {}", one_of(expected)))
            .hint(near.map(|near| format!("did you mean {near}?")))
    }

    fn missing_field(field: &'static str) -> Self {
        let mut error = Self::new("missing-key", format!("`{field}` is missing"));
        error.0.missing = Some(field);
        error
    }
}

// === impl NodeReader ===

impl<'n> NodeReader<'n> {
    pub(super) fn new(node: &'n Node, cx: &'n Cx) -> Self {
        Self { node, cx }
    }

    /// Reads as `wanted`, else says what was wanted.
    fn refuse<T>(&self, wanted: &str) -> Result<T, Error> {
        Err(Error::new("bad-type", format!("is not {wanted}"))
            .hint(self.type_hint(wanted))
            .within(self.node, self.cx))
    }

    fn type_hint(&self, wanted: &str) -> Option<String> {
        let shown = self.node.shown();
        match (&self.node.value, wanted) {
            (Value::Str(text), wanted) if wanted.starts_with("a boolean") => {
                match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "y" | "true" => Some("write true".to_owned()),
                    "no" | "off" | "n" | "false" => Some("write false".to_owned()),
                    _ => None,
                }
            }
            (Value::Str(text), wanted) if wanted.starts_with("a whole number") => {
                text.parse::<i64>().is_ok().then(|| format!("write {text} without quotes"))
            }
            (Value::Str(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_), "a list") => {
                shown.map(|shown| format!("write [ {shown} ]"))
            }
            (Value::Map(_), "a list") => Some("begin each item with `- `, or write [ … ]".to_owned()),
            (Value::Seq(_), "a map") => Some("write `key: value` without the leading `- `".to_owned()),
            _ => None,
        }
    }

    fn integer(&self, min: i128, max: i128) -> Result<i64, Error> {
        match self.node.value {
            Value::Int(number) if (min..=max).contains(&i128::from(number)) => Ok(number),
            _ => self.refuse(&match (min, max) {
                (_, max) if max >= i128::from(i64::MAX) => format!("a whole number of at least {min}"),
                _ => format!("a whole number from {min} to {max}"),
            }),
        }
    }

    fn map<V: Visitor<'n>>(
        self,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            _ => return self.refuse("a map"),
        };
        let map = MapReader { parent: node, entries: entries.iter(), fields, value: None, cx };
        visitor.visit_map(map).map_err(|e| e.within(node, cx))
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty),*) => {$(
        fn $method<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.integer(<$type>::MIN as i128, <$type>::MAX as i128)?;
            let (node, cx) = (self.node, self.cx);
            // In range as `integer` has checked; u64 values beyond i64 cannot be written.
            visitor.$visit(number as $type).map_err(|e: Error| e.within(node, cx))
        }
    )*};
}

impl<'n> Deserializer<'n> for NodeReader<'n> {
    type Error = Error;

    integers! {
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64
    }

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let result = match &node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Str(text) => visitor.visit_borrowed_str(text),
            Value::Seq(_) => return self.deserialize_seq(visitor),
            Value::Map(_) => return self.map(None, visitor),
        };
        result.map_err(|e: Error| e.within(node, cx))
    }

    fn deserialize_bool<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Bool(value) => visitor.visit_bool(value).map_err(|e: Error| e.within(self.node, self.cx)),
            _ => self.refuse("a boolean; expected true or false"),
        }
    }

    fn deserialize_f32<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match self.node.value {
            Value::Int(number) => number as f64,
            Value::Float(number) => number,
            _ => return self.refuse("a number"),
        };
        visitor.visit_f64(number).map_err(|e: Error| e.within(self.node, self.cx))
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        match node.as_text() {
            Some(text) => visitor.visit_borrowed_str(text).map_err(|e: Error| e.within(node, cx)),
            // The visitor knows better than we do what it wants.
            None => {
                Err(Error::new("bad-type", format!("is not {}", &visitor as &dyn Expected)).within(node, cx))
            }
        }
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'n>>(self, _: V) -> Result<V::Value, Error> {
        unsupported("bytes")
    }

    fn deserialize_byte_buf<V: Visitor<'n>>(self, _: V) -> Result<V::Value, Error> {
        unsupported("bytes")
    }

    /// `null` is nothing; a blank is an empty section, and wrong for anything else.
    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null if !self.node.is_blank() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null => visitor.visit_unit(),
            _ => self.refuse("empty"),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'n>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        let empty = self.node.value == Value::Null || self.node.value == Value::Map(Vec::new());
        if empty { visitor.visit_unit() } else { self.refuse("empty") }
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let result = match (name, &node.value) {
            (RAW, _) => {
                hand_over(Raw { node: node.clone(), path: cx.path() });
                visitor.visit_unit()
            }
            (TEXT_OR_MAP, Value::Map(_)) => visitor.visit_newtype_struct(self),
            (TEXT_OR_MAP, _) => visitor.visit_some(self),
            _ => visitor.visit_newtype_struct(self),
        };
        result.map_err(|e| e.within(node, cx))
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let Value::Seq(elements) = &node.value else { return self.refuse("a list") };
        let seq = SeqReader { elements: elements.iter().enumerate(), cx };
        visitor.visit_seq(seq).map_err(|e| e.within(node, cx))
    }

    fn deserialize_tuple<V: Visitor<'n>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.map(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.map(Some(fields), visitor)
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (node, cx) = (self.node, self.cx);
        let result = match &node.value {
            Value::Map(entries) if entries.len() == 1 => {
                let (key, inner) = &entries[0];
                visitor.visit_enum(VariantReader { key: &key.text, inner: Some(inner), cx })
            }
            _ => match node.as_text() {
                Some(text) => visitor.visit_enum(VariantReader { key: text, inner: None, cx }),
                None => self.refuse(&format!("known here; expected {}", one_of(variants))),
            },
        };
        result.map_err(|e: Error| e.within(node, cx))
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

// === maps, lists, variants ===

struct MapReader<'n> {
    parent: &'n Node,
    entries: std::slice::Iter<'n, (Key, Node)>,
    fields: Option<&'static [&'static str]>,
    value: Option<&'n Node>,
    cx: &'n Cx,
}

impl<'n> MapAccess<'n> for MapReader<'n> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        loop {
            let Some((key, node)) = self.entries.next() else { return Ok(None) };
            if let Some(fields) = self.fields {
                let Some(field) = fields.iter().find(|field| **field == key.text) else {
                    self.cx.note_unknown(self.parent, key, node, fields);
                    continue;
                };
                if self.cx.is_absent(node) {
                    self.cx.meant.borrow_mut().insert((self.parent, field));
                }
            }
            // `null` says that nothing is set, as templates write it.
            let unset = node.value == Value::Null && !node.is_blank();
            if self.cx.is_absent(node) || unset {
                continue;
            }
            self.value = Some(node);
            self.cx.enter(Segment::Key(key.text.clone()));
            let text: StrDeserializer<'n, Error> = key.text.as_str().into_deserializer();
            return match seed.deserialize(text) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(error.within_key(key, node, self.cx)),
            };
        }
    }

    fn next_value_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some(node) = self.value.take() else { return unsupported("a value without a key") };
        let value = seed.deserialize(NodeReader::new(node, self.cx)).map_err(|e| e.within(node, self.cx))?;
        self.cx.leave();
        Ok(value)
    }
}

struct SeqReader<'n> {
    elements: std::iter::Enumerate<std::slice::Iter<'n, Node>>,
    cx: &'n Cx,
}

impl<'n> SeqAccess<'n> for SeqReader<'n> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        for (index, node) in self.elements.by_ref() {
            if self.cx.is_absent(node) {
                continue;
            }
            self.cx.enter(Segment::Index(index));
            let value =
                seed.deserialize(NodeReader::new(node, self.cx)).map_err(|e| e.within(node, self.cx))?;
            self.cx.leave();
            return Ok(Some(value));
        }
        Ok(None)
    }
}

struct VariantReader<'n> {
    key: &'n str,
    inner: Option<&'n Node>,
    cx: &'n Cx,
}

impl<'n> EnumAccess<'n> for VariantReader<'n> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'n>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let key: StrDeserializer<'n, Error> = self.key.into_deserializer();
        Ok((seed.deserialize(key)?, self))
    }
}

impl<'n> VariantReader<'n> {
    fn inner(&self) -> Result<NodeReader<'n>, Error> {
        let Some(node) = self.inner else {
            return Err(Error::new("bad-type", format!("is not complete; expected {{ {}: … }}", self.key)));
        };
        self.cx.enter(Segment::Key(self.key.to_owned()));
        Ok(NodeReader::new(node, self.cx))
    }

    fn left<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let value = result?;
        self.cx.leave();
        Ok(value)
    }
}

impl<'n> VariantAccess<'n> for VariantReader<'n> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.inner {
            None => Ok(()),
            Some(_) => Err(Error::new("bad-type", format!("is not a word; expected {}", self.key))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'n>>(self, seed: S) -> Result<S::Value, Error> {
        let reader = self.inner()?;
        let (node, cx) = (reader.node, self.cx);
        self.left(seed.deserialize(reader).map_err(|e| e.within(node, cx)))
    }

    fn tuple_variant<V: Visitor<'n>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let reader = self.inner()?;
        self.left(reader.deserialize_tuple(len, visitor))
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let reader = self.inner()?;
        self.left(reader.map(Some(fields), visitor))
    }
}
