//! Types with their own JSON form: times, masks, wrappers of arbitrary JSON, and `Any`.

use super::{Body, MapOf, Null, Parser, Step, fields};
use crate::scalar::{self, Token};
use crate::schema::{Field, Known, Message};
use crate::time;
use crate::wire;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

pub(super) struct Text<'p, 's, 'o> {
    pub(super) parser: &'p mut Parser<'s, 'o>,
    pub(super) known: Known,
    pub(super) null: Null,
}

impl Visitor<'_> for Text<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text_expected(self.known))
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        self.null.leaves_unset(self.parser)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        match write_text(self.known, text, self.parser.out) {
            Some(()) => Ok(true),
            None => {
                let found = scalar::shown(Token::Text(text));
                Err(self.parser.refuse(format!("expected {}, found {found}", text_expected(self.known))))
            }
        }
    }
}

pub(crate) const fn text_expected(known: Known) -> &'static str {
    match known {
        Known::Duration => "a duration such as \"1.5s\"",
        Known::Timestamp => "a time such as \"2026-01-31T12:00:00Z\"",
        _ => "names of fields with commas between them",
    }
}

/// Appends the content of a message that has a text form.
pub(crate) fn write_text(known: Known, text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (seconds, nanos) = match known {
        Known::Duration => time::read_duration(text)?,
        Known::Timestamp => time::read_timestamp(text)?,
        Known::FieldMask => {
            for path in text.split(',').filter(|path| !path.is_empty()) {
                wire::write_bytes(1, time::snake(path)?.as_bytes(), out);
            }
            return Some(());
        }
        _ => return None,
    };
    for (number, value) in [(1, seconds), (2, i64::from(nanos))] {
        if value != 0 {
            wire::write_number(number, value as u64, out);
        }
    }
    Some(())
}

pub(super) struct StructOf<'p, 's, 'o> {
    pub(super) parser: &'p mut Parser<'s, 'o>,
    pub(super) field: &'s Field,
    pub(super) null: Null,
}

impl<'de> Visitor<'de> for StructOf<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        self.null.leaves_unset(self.parser)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<bool, A::Error> {
        MapOf { parser: self.parser, field: self.field }.visit_map(map)?;
        Ok(true)
    }
}

pub(super) struct ListValue<'p, 's, 'o> {
    pub(super) parser: &'p mut Parser<'s, 'o>,
    pub(super) null: Null,
}

impl<'de> Visitor<'de> for ListValue<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        self.null.leaves_unset(self.parser)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let parser = self.parser;
        let mut at = 0;
        loop {
            parser.path.push(Step::Index(at));
            if list.next_element_seed(Element { parser: &mut *parser })?.is_none() {
                break;
            }
            parser.path.pop();
            at += 1;
        }
        parser.path.pop();
        Ok(true)
    }
}

/// A list element, in field 1.
struct Element<'p, 's, 'o> {
    parser: &'p mut Parser<'s, 'o>,
}

impl<'de> DeserializeSeed<'de> for Element<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let parser = self.parser;
        parser.count()?;
        parser.deeper()?;
        wire::write_key(1, wire::BYTES, parser.out);
        let begun = wire::open(parser.out);
        from.deserialize_any(AnyValue { parser: &mut *parser })?;
        wire::close(begun, parser.out);
        parser.depth -= 1;
        Ok(())
    }
}

/// `google.protobuf.Value`: any JSON.
pub(super) struct AnyValue<'p, 's, 'o> {
    pub(super) parser: &'p mut Parser<'s, 'o>,
}

impl AnyValue<'_, '_, '_> {
    fn number<E: Error>(self, n: f64) -> Result<bool, E> {
        wire::write_key(2, wire::FIXED64, self.parser.out);
        self.parser.out.extend_from_slice(&n.to_le_bytes());
        Ok(true)
    }
}

impl<'de> Visitor<'de> for AnyValue<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        wire::write_number(1, 0, self.parser.out);
        Ok(true)
    }

    fn visit_bool<E: Error>(self, b: bool) -> Result<bool, E> {
        wire::write_number(4, u64::from(b), self.parser.out);
        Ok(true)
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<bool, E> {
        self.number(n as f64)
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<bool, E> {
        self.number(n as f64)
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<bool, E> {
        self.number(n)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        wire::write_bytes(3, text.as_bytes(), self.parser.out);
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<bool, A::Error> {
        let parser = self.parser;
        parser.deeper()?;
        wire::write_key(6, wire::BYTES, parser.out);
        let begun = wire::open(parser.out);
        ListValue { parser: &mut *parser, null: Null::Refused }.visit_seq(list)?;
        wire::close(begun, parser.out);
        parser.depth -= 1;
        Ok(true)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<bool, A::Error> {
        let parser = self.parser;
        let schema = parser.schema;
        let of = schema.named("google.protobuf.Struct").and_then(|at| schema.message(at));
        let Some(field) = of.and_then(|of| of.fields.first()) else {
            return Err(parser.refuse("google.protobuf.Struct is not known"));
        };
        parser.deeper()?;
        wire::write_key(5, wire::BYTES, parser.out);
        let begun = wire::open(parser.out);
        MapOf { parser: &mut *parser, field }.visit_map(map)?;
        wire::close(begun, parser.out);
        parser.depth -= 1;
        Ok(true)
    }
}

/// A message that names its own type, usually in its first key.
pub(super) struct AnyOf<'p, 's, 'o> {
    pub(super) parser: &'p mut Parser<'s, 'o>,
    pub(super) null: Null,
}

impl<'de> Visitor<'de> for AnyOf<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"@type\"")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        self.null.leaves_unset(self.parser)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let parser = self.parser;
        let Some(first) = map.next_key::<String>()? else { return Ok(true) };
        parser.any += 1;
        if parser.any > parser.limits.any {
            let limit = parser.limits.any;
            return Err(parser.refuse(format!("there are more than {limit} Any within one another")));
        }
        if first == "@type" {
            let url: String = map.next_value()?;
            let (of, begun) = open_any(parser, &url)?;
            if of.known.has_own_json() {
                value_of_any(parser, of, map)?;
            } else {
                fields(parser, of, map)?;
            }
            wire::close(begun, parser.out);
        } else {
            // The type comes later; until then the fields have no meaning.
            let Strict(value) = map.next_value()?;
            let all = strict_entries(serde_json::Map::from_iter([(first, value)]), map)?;
            buffered(parser, all)?;
        }
        parser.any -= 1;
        Ok(true)
    }
}

/// Writes the type, and starts the value.
fn open_any<'s, E: Error>(parser: &mut Parser<'s, '_>, url: &str) -> Result<(&'s Message, usize), E> {
    let schema = parser.schema;
    let of = url.rsplit_once('/').and_then(|(_, name)| schema.named(name)).and_then(|at| schema.message(at));
    let Some(of) = of else {
        return Err(parser.refuse(format!("the type {:?} is not known", scalar::short(url))));
    };
    wire::write_bytes(1, url.as_bytes(), parser.out);
    wire::write_key(2, wire::BYTES, parser.out);
    let begun = wire::open(parser.out);
    Ok((of, begun))
}

fn value_of_any<'de, 's, A: MapAccess<'de>>(
    parser: &mut Parser<'s, '_>,
    of: &'s Message,
    mut map: A,
) -> Result<(), A::Error> {
    while let Some(key) = map.next_key::<String>()? {
        match key.as_str() {
            "value" => {
                parser.path.push(Step::Field("value"));
                map.next_value_seed(Body { parser: &mut *parser, of, null: Null::Unset })?;
                parser.path.pop();
            }
            _ if parser.options.ignore_unknown => {
                map.next_value::<IgnoredAny>()?;
            }
            _ => {
                return Err(parser
                    .refuse(format!("an Any of this type has no `{}` but `value`", scalar::short(&key))));
            }
        }
    }
    Ok(())
}

/// Any JSON without duplicate keys; a plain tree would silently keep the last one.
struct Strict(serde_json::Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictOf).map(Self)
    }
}

struct StrictOf;

impl<'de> Visitor<'de> for StrictOf {
    type Value = serde_json::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(serde_json::Value::Null)
    }

    fn visit_bool<E: Error>(self, b: bool) -> Result<Self::Value, E> {
        Ok(b.into())
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Self::Value, E> {
        Ok(n.into())
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Self::Value, E> {
        Ok(n.into())
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Self::Value, E> {
        Ok(n.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            all.push(value);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        strict_entries(serde_json::Map::new(), map).map(serde_json::Value::Object)
    }
}

/// Adds the remaining entries of an object to those already read.
fn strict_entries<'de, A: MapAccess<'de>>(
    mut all: serde_json::Map<String, serde_json::Value>,
    mut map: A,
) -> Result<serde_json::Map<String, serde_json::Value>, A::Error> {
    while let Some((key, Strict(value))) = map.next_entry::<String, _>()? {
        if all.contains_key(&key) {
            return Err(A::Error::custom(format_args!("`{}` comes twice", scalar::short(&key))));
        }
        all.insert(key, value);
    }
    Ok(all)
}

fn buffered<E: Error>(
    parser: &mut Parser<'_, '_>,
    mut all: serde_json::Map<String, serde_json::Value>,
) -> Result<(), E> {
    let Some(serde_json::Value::String(url)) = all.remove("@type") else {
        return Err(parser.refuse("an Any says its type in \"@type\""));
    };
    let (of, begun) = open_any(parser, &url)?;
    let read = if of.known.has_own_json() {
        let value = all.remove("value").unwrap_or_default();
        Body { parser: &mut *parser, of, null: Null::Unset }.deserialize(value)
    } else {
        Body { parser: &mut *parser, of, null: Null::Refused }.deserialize(serde_json::Value::Object(all))
    };
    if let Err(e) = read {
        return Err(parser.refuse(e.to_string()));
    }
    wire::close(begun, parser.out);
    Ok(())
}
