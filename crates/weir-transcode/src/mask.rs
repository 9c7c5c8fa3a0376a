//! Derives the `update_mask` of a PATCH whose client sent none: the fields that its body sets, as grpc-gateway does.
//!
//! Source: google/protobuf/field_mask.proto (a repeated field or a map is named as a whole), AIP-134.

use crate::schema::{Kind, Known, Message, Schema, Shape};
use crate::wire;
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The index of the mask in a message: its field `update_mask`, else its only field mask.
pub(crate) fn place(schema: &Schema, input: &Message) -> Option<u16> {
    let is_mask = |at: &u16| {
        let field = input.fields.get(usize::from(*at));
        field.is_some_and(|field| match field.kind {
            Kind::Message(of) if field.shape == Shape::Once && field.oneof.is_none() => {
                schema.message(of).is_some_and(|m| m.known == Known::FieldMask)
            }
            _ => false,
        })
    };
    if let Some(named) = input.place("update_mask").filter(is_mask) {
        return Some(named);
    }
    let count = u16::try_from(input.fields.len()).unwrap_or(u16::MAX);
    let mut masks = (0..count).filter(is_mask);
    masks.next().filter(|_| masks.next().is_none())
}

/// The paths that a body sets in a message of this type, as the content of a field mask of at most `most` bytes.
/// `None`: the mask would be longer, or the JSON is invalid, which parsing it as a message has already reported.
pub(crate) fn of_body(schema: &Schema, of: &Message, json: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut mask = Mask { schema, most, path: String::new(), out: Vec::new() };
    if json.trim_ascii().is_empty() {
        return Some(mask.out);
    }
    let mut from = serde_json::Deserializer::from_slice(json);
    Inside { mask: &mut mask, of: Some(of) }.deserialize(&mut from).ok()?;
    Some(mask.out)
}

struct Mask<'s> {
    schema: &'s Schema,
    most: usize,
    path: String,
    out: Vec<u8>,
}

impl Mask<'_> {
    /// Appends the current path.
    fn leaf<E: Error>(&mut self) -> Result<(), E> {
        if self.path.is_empty() {
            return Ok(()); // the whole body is not an object, so it names no field
        }
        wire::write_bytes(1, self.path.as_bytes(), &mut self.out);
        if self.out.len() > self.most { Err(E::custom("too long")) } else { Ok(()) }
    }
}

/// A value at a path.
struct Inside<'m, 's> {
    mask: &'m mut Mask<'s>,
    /// The message whose fields the value's keys name; `None` if the mask treats the value as a whole.
    of: Option<&'s Message>,
}

impl<'de> DeserializeSeed<'de> for Inside<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        if self.of.is_none() {
            IgnoredAny::deserialize(from)?;
            return self.mask.leaf();
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Inside<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.mask.leaf()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.mask.leaf()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.mask.leaf()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.mask.leaf()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.mask.leaf()
    }

    /// `null` clears a field, so the mask names it.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.mask.leaf()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        self.mask.leaf()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { mask, of } = self;
        let mut is_empty = true;
        while let Some(key) = map.next_key::<String>()? {
            is_empty = false;
            let Some((name, inside)) = of.and_then(|of| step(mask.schema, of, &key)) else {
                map.next_value::<IgnoredAny>()?; // unknown fields are ignored, or already refused
                continue;
            };
            let before = mask.path.len();
            if before > 0 {
                mask.path.push('.');
            }
            mask.path.push_str(name);
            map.next_value_seed(Inside { mask: &mut *mask, of: inside })?;
            mask.path.truncate(before);
        }
        if is_empty { mask.leaf() } else { Ok(()) }
    }
}

/// The name of a key in a mask, and the message whose fields are below it. A mask does not descend into lists, maps
/// and types with their own JSON form: those are replaced as a whole.
fn step<'s>(schema: &'s Schema, of: &'s Message, key: &str) -> Option<(&'s str, Option<&'s Message>)> {
    let field = of.fields.get(usize::from(of.place(key)?))?;
    let inside = match field.kind {
        Kind::Message(at) if field.shape == Shape::Once => {
            schema.message(at).filter(|message| message.known == Known::None)
        }
        _ => None,
    };
    Some((&field.name, inside))
}
