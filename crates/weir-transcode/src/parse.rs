//! Parses JSON into messages: text in, Protocol Buffers bytes out. serde_json drives the parser, and values are
//! written as they are read, without an intermediate tree.
//!
//! Source: "ProtoJSON Format" of the Protocol Buffers documentation. Refuses a repeated field, and two members of a
//! oneof.

mod known;

pub(crate) use known::{text_expected, write_text};

use crate::options::{JsonOptions, Limits};
use crate::scalar::{self, Token, ValueError, Written};
use crate::schema::{Field, Kind, Known, Message, Schema, Shape};
use crate::wire;
use known::{AnyOf, AnyValue, ListValue, StructOf, Text};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// Why a request cannot become a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParseError {
    /// The field, such as `author.names[2]`; empty for the whole message.
    pub path: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// A step on the path to a value.
enum Step<'s> {
    Field(&'s str),
    Index(usize),
    Key(String),
    /// A name that no field has.
    Unknown(String),
}

/// Parses one message.
pub(crate) struct Parser<'s, 'o> {
    schema: &'s Schema,
    options: JsonOptions,
    limits: Limits,
    out: &'o mut Vec<u8>,
    path: Vec<Step<'s>>,
    depth: usize,
    any: usize,
    values: usize,
    fault: Option<String>,
}

impl<'s, 'o> Parser<'s, 'o> {
    pub(crate) fn new(
        schema: &'s Schema,
        options: JsonOptions,
        limits: Limits,
        out: &'o mut Vec<u8>,
    ) -> Self {
        Self { schema, options, limits, out, path: Vec::new(), depth: 0, any: 0, values: 0, fault: None }
    }

    /// Appends the message that this JSON describes. Only white space means a message without fields.
    pub(crate) fn message(&mut self, of: &'s Message, json: &[u8]) -> Result<(), ParseError> {
        if json.trim_ascii().is_empty() {
            return Ok(());
        }
        let mut from = serde_json::Deserializer::from_slice(json);
        let read = Body { parser: self, of, null: Null::Refused }.deserialize(&mut from);
        let read = read.and_then(|_| from.end());
        read.map_err(|e| self.located(&e))
    }

    /// Appends one field with this JSON as its value.
    pub(crate) fn field(&mut self, field: &'s Field, json: &[u8]) -> Result<(), ParseError> {
        if json.trim_ascii().is_empty() {
            return Ok(());
        }
        let mut from = serde_json::Deserializer::from_slice(json);
        let read = Whole { parser: self, field }.deserialize(&mut from);
        let read = read.and_then(|_| from.end());
        read.map_err(|e| self.located(&e))
    }

    fn located(&mut self, e: &serde_json::Error) -> ParseError {
        let mut path = String::new();
        for step in &self.path {
            let name = match step {
                Step::Field(name) => Some(*name),
                Step::Unknown(name) => Some(name.as_str()),
                Step::Index(_) | Step::Key(_) => None,
            };
            if let Some(name) = name {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            match step {
                Step::Field(_) | Step::Unknown(_) => {}
                Step::Index(at) => path.push_str(&format!("[{at}]")),
                Step::Key(key) => path.push_str(&format!("[{:?}]", scalar::short(key))),
            }
        }
        let message = match self.fault.take() {
            Some(fault) => fault,
            None if e.is_data() => e.to_string(),
            None => format!("this is not JSON: {e}"),
        };
        ParseError { path, message }
    }

    fn refuse<E: Error>(&mut self, message: impl Into<String>) -> E {
        self.fault.get_or_insert_with(|| message.into());
        E::custom("refused")
    }

    fn deeper<E: Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > self.limits.depth {
            let limit = self.limits.depth;
            return Err(self.refuse(format!("this is deeper than {limit}")));
        }
        Ok(())
    }

    /// Counts one more value.
    fn count<E: Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > self.limits.values {
            let limit = self.limits.values;
            return Err(self.refuse(format!("there are more than {limit} values")));
        }
        Ok(())
    }

    /// Appends a value, after its key if it has one. False if the value is ignored.
    fn scalar<E: Error>(&mut self, kind: Kind, number: Option<u32>, token: Token<'_>) -> Result<bool, E> {
        let start = self.out.len();
        if let Some(number) = number {
            wire::write_key(number, kind.wire(), self.out);
        }
        match scalar::write(self.schema, kind, token, Written::InJson, self.out) {
            Ok(()) => Ok(true),
            Err(ValueError::UnknownName) if self.options.ignore_unknown => {
                self.out.truncate(start);
                Ok(false)
            }
            Err(_) => {
                let expected = scalar::expected(self.schema, kind);
                Err(self.refuse(format!("expected {expected}, found {}", scalar::shown(token))))
            }
        }
    }
}

/// The meaning of `null` at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Null {
    /// Not allowed: lists and maps must contain values.
    Refused,
    /// The field is unset.
    Unset,
}

impl Null {
    fn leaves_unset<E: Error>(self, parser: &mut Parser<'_, '_>) -> Result<bool, E> {
        match self {
            Self::Unset => Ok(false),
            Self::Refused => Err(parser.refuse("null is not allowed here")),
        }
    }
}

// === fields ===

/// A whole field: one value, a list or a map. Yields whether it was set.
struct Whole<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    field: &'s Field,
}

impl<'de> DeserializeSeed<'de> for Whole<'_, '_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        let Self { parser, field } = self;
        match field.shape {
            Shape::Once => {
                Single { parser, field, number: Some(field.number), null: Null::Unset }.deserialize(from)
            }
            Shape::Map => from.deserialize_any(MapOf { parser, field }),
            Shape::Packed | Shape::Repeated => from.deserialize_any(ListOf { parser, field }),
        }
    }
}

/// One value of a field.
struct Single<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    field: &'s Field,
    number: Option<u32>,
    null: Null,
}

impl<'de> DeserializeSeed<'de> for Single<'_, '_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        let Self { parser, field, number, null } = self;
        parser.count()?;
        let Kind::Message(at) = field.kind else {
            return from.deserialize_any(Scalar { parser, kind: field.kind, number, null });
        };
        let schema = parser.schema;
        let Some(of) = schema.message(at) else { return Err(parser.refuse("the type is not known")) };
        let number = number.unwrap_or(field.number);
        let start = parser.out.len();
        if field.group {
            wire::write_key(number, wire::GROUP, parser.out);
            let written = Body { parser: &mut *parser, of, null }.deserialize(from)?;
            wire::write_key(number, wire::GROUP_END, parser.out);
            if !written {
                parser.out.truncate(start);
            }
            return Ok(written);
        }
        wire::write_key(number, wire::BYTES, parser.out);
        let begun = wire::open(parser.out);
        let written = Body { parser: &mut *parser, of, null }.deserialize(from)?;
        if written {
            wire::close(begun, parser.out);
        } else {
            parser.out.truncate(start);
        }
        Ok(written)
    }
}

struct Scalar<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    kind: Kind,
    number: Option<u32>,
    null: Null,
}

impl Scalar<'_, '_, '_> {
    fn take<E: Error>(self, token: Token<'_>) -> Result<bool, E> {
        self.parser.scalar(self.kind, self.number, token)
    }
}

impl Visitor<'_> for Scalar<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scalar::expected(self.parser.schema, self.kind))
    }

    fn visit_bool<E: Error>(self, b: bool) -> Result<bool, E> {
        self.take(Token::Bool(b))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<bool, E> {
        self.take(Token::Integer(i128::from(n)))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<bool, E> {
        self.take(Token::Integer(i128::from(n)))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<bool, E> {
        self.take(Token::Float(n))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        self.take(Token::Text(text))
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        if let Kind::Enum(at) = self.kind
            && self.parser.schema.enumeration(at).is_some_and(|e| e.null)
        {
            return self.take(Token::Integer(0));
        }
        self.null.leaves_unset(self.parser)
    }
}

struct ListOf<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    field: &'s Field,
}

impl<'de> Visitor<'de> for ListOf<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let Self { parser, field } = self;
        parser.deeper()?;
        let packed = field.shape == Shape::Packed;
        let start = parser.out.len();
        let mut begun = start;
        if packed {
            wire::write_key(field.number, wire::BYTES, parser.out);
            begun = wire::open(parser.out);
        }
        let number = (!packed).then_some(field.number);
        let mut at = 0;
        loop {
            parser.path.push(Step::Index(at));
            let next = Single { parser: &mut *parser, field, number, null: Null::Refused };
            if list.next_element_seed(next)?.is_none() {
                break;
            }
            parser.path.pop();
            at += 1;
        }
        parser.path.pop();
        match packed {
            true if at == 0 => parser.out.truncate(start),
            true => wire::close(begun, parser.out),
            false => {}
        }
        parser.depth -= 1;
        Ok(at > 0)
    }
}

struct MapOf<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    field: &'s Field,
}

impl<'de> Visitor<'de> for MapOf<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object (it is a map)")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let Self { parser, field } = self;
        parser.deeper()?;
        let schema = parser.schema;
        let entry = match field.kind {
            Kind::Message(at) => schema.message(at),
            _ => None,
        };
        let Some([key_field, value_field]) = entry.map(|e| &e.fields[..]) else {
            return Err(parser.refuse("the type is not known"));
        };
        let mut any = false;
        // In encoded form: `1` and `01` are the same number.
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            let start = parser.out.len();
            wire::write_key(field.number, wire::BYTES, parser.out);
            let begun = wire::open(parser.out);
            wire::write_key(1, key_field.kind.wire(), parser.out);
            let written =
                scalar::write(schema, key_field.kind, Token::Text(&key), Written::AsKey, parser.out);
            parser.path.push(Step::Key(key.into_owned()));
            if written.is_err() {
                let expected = scalar::expected(schema, key_field.kind);
                return Err(parser.refuse(format!("the key is not {expected}")));
            }
            if !keys.insert(parser.out.get(begun..).unwrap_or_default().to_vec()) {
                return Err(parser.refuse("the key comes twice"));
            }
            let value =
                Single { parser: &mut *parser, field: value_field, number: Some(2), null: Null::Refused };
            if map.next_value_seed(value)? {
                wire::close(begun, parser.out);
                any = true;
            } else {
                parser.out.truncate(start);
            }
            parser.path.pop();
        }
        parser.depth -= 1;
        Ok(any)
    }
}

// === messages ===

/// The content of a message, without key and length. False for `null`.
struct Body<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    of: &'s Message,
    null: Null,
}

impl<'de> DeserializeSeed<'de> for Body<'_, '_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        let Self { parser, of, null } = self;
        parser.deeper()?;
        let written = match of.known {
            Known::Any => from.deserialize_any(AnyOf { parser: &mut *parser, null }),
            Known::Duration | Known::FieldMask | Known::Timestamp => {
                from.deserialize_any(Text { parser: &mut *parser, known: of.known, null })
            }
            Known::HttpBody | Known::None => from.deserialize_any(Object { parser: &mut *parser, of, null }),
            Known::ListValue => from.deserialize_any(ListValue { parser: &mut *parser, null }),
            Known::Struct => match of.fields.first() {
                Some(field) => from.deserialize_any(StructOf { parser: &mut *parser, field, null }),
                None => Err(parser.refuse("the type is not known")),
            },
            Known::Value => from.deserialize_any(AnyValue { parser: &mut *parser }),
            Known::Wrapper => match of.fields.first() {
                Some(field) => {
                    Single { parser: &mut *parser, field, number: Some(1), null }.deserialize(from)
                }
                None => Err(parser.refuse("the type is not known")),
            },
        }?;
        parser.depth -= 1;
        Ok(written)
    }
}

/// A message, field by field.
struct Object<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    of: &'s Message,
    null: Null,
}

impl<'de> Visitor<'de> for Object<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object ({})", self.of.name)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        self.null.leaves_unset(self.parser)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<bool, A::Error> {
        fields(self.parser, self.of, map)?;
        Ok(true)
    }
}

/// The fields read so far, to refuse duplicates.
#[derive(Default)]
struct Seen {
    first: u128,
    others: Vec<u16>,
}

impl Seen {
    /// Records a field; false if it was already there.
    fn note(&mut self, place: u16) -> bool {
        let Some(bit) = 1u128.checked_shl(u32::from(place)) else {
            let new = !self.others.contains(&place);
            self.others.push(place);
            return new;
        };
        let new = self.first & bit == 0;
        self.first |= bit;
        new
    }
}

fn fields<'de, 's, A: MapAccess<'de>>(
    parser: &mut Parser<'s, '_>,
    of: &'s Message,
    mut map: A,
) -> Result<(), A::Error> {
    let (mut seen, mut oneofs) = (Seen::default(), Seen::default());
    loop {
        let place = match map.next_key_seed(Name { parser: &mut *parser, of })? {
            None => return Ok(()),
            Some(Named::Unknown) => {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            Some(Named::Field(place)) => place,
        };
        let Some(field) = of.fields.get(usize::from(place)) else { continue };
        parser.path.push(Step::Field(&field.json_name));
        if !seen.note(place) {
            return Err(parser.refuse("the field comes twice"));
        }
        let set = map.next_value_seed(Whole { parser: &mut *parser, field })?;
        if set && field.oneof.is_some_and(|oneof| !oneofs.note(oneof)) {
            return Err(parser.refuse("another field of the same oneof is set"));
        }
        parser.path.pop();
    }
}

/// The meaning of a key.
enum Named {
    Field(u16),
    Unknown,
}

struct Name<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
    of: &'s Message,
}

impl<'de> DeserializeSeed<'de> for Name<'_, '_, '_> {
    type Value = Named;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Named, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_, '_, '_> {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Named, E> {
        if let Some(place) = self.of.place(name) {
            return Ok(Named::Field(place));
        }
        if self.parser.options.ignore_unknown {
            return Ok(Named::Unknown);
        }
        let name = scalar::short(name);
        let message = format!("{} has no field `{name}`", self.of.name);
        self.parser.path.push(Step::Unknown(name));
        Err(self.parser.refuse(message))
    }
}
