//! The types of messages as tables for [`crate::parse`] and [`crate::print`], built once from descriptors.

use crate::wire;
use foldhash::fast::RandomState;
use prost_reflect::{Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, MessageDescriptor};
use std::collections::HashMap;

pub(crate) type Names<T> = HashMap<Box<str>, T, RandomState>;

/// All types of a pool.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) messages: Vec<Message>,
    pub(crate) enums: Vec<Enum>,
    by_name: Names<u32>,
}

/// The type of a message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) name: Box<str>,
    /// Sorted by number.
    pub(crate) fields: Vec<Field>,
    by_name: Names<u16>,
    pub(crate) known: Known,
    pub(crate) has_oneofs: bool,
}

/// Types with their own JSON form, and types whose fields have a meaning to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Any,
    Duration,
    FieldMask,
    HttpBody,
    ListValue,
    None,
    Struct,
    Timestamp,
    Value,
    /// A message that wraps one value, in field 1.
    Wrapper,
}

impl Known {
    fn of(name: &str) -> Self {
        if name == "google.api.HttpBody" {
            return Self::HttpBody;
        }
        match name.strip_prefix("google.protobuf.") {
            Some("Any") => Self::Any,
            Some("Duration") => Self::Duration,
            Some("FieldMask") => Self::FieldMask,
            Some("ListValue") => Self::ListValue,
            Some("Struct") => Self::Struct,
            Some("Timestamp") => Self::Timestamp,
            Some("Value") => Self::Value,
            Some(
                "BoolValue" | "BytesValue" | "DoubleValue" | "FloatValue" | "Int32Value" | "Int64Value"
                | "StringValue" | "UInt32Value" | "UInt64Value",
            ) => Self::Wrapper,
            _ => Self::None,
        }
    }

    /// Whether its JSON is not an object of its fields, so that `Any` puts it under `value`.
    pub(crate) const fn has_own_json(self) -> bool {
        !matches!(self, Self::None | Self::HttpBody)
    }
}

/// A field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Box<str>,
    pub(crate) json_name: Box<str>,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    /// Whether absence differs from the default.
    pub(crate) presence: bool,
    pub(crate) oneof: Option<u16>,
    /// Whether the message is encoded as a group, between tags.
    pub(crate) group: bool,
}

impl Field {
    pub(crate) const fn is_message(&self) -> bool {
        matches!((self.kind, self.shape), (Kind::Message(_), Shape::Once))
    }
}

/// The cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Map entries: messages of a key and a value.
    Map,
    Once,
    Packed,
    Repeated,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Bytes,
    Double,
    Enum(u32),
    Fixed32,
    Fixed64,
    Float,
    Int32,
    Int64,
    Message(u32),
    Sfixed32,
    Sfixed64,
    Sint32,
    Sint64,
    String,
    Uint32,
    Uint64,
}

impl Kind {
    /// The wire type of its value.
    pub(crate) const fn wire(self) -> u8 {
        match self {
            Self::Bytes | Self::Message(_) | Self::String => wire::BYTES,
            Self::Double | Self::Fixed64 | Self::Sfixed64 => wire::FIXED64,
            Self::Fixed32 | Self::Float | Self::Sfixed32 => wire::FIXED32,
            _ => wire::VARINT,
        }
    }
}

/// An enum.
#[derive(Debug)]
pub(crate) struct Enum {
    pub(crate) numbers: Names<i32>,
    /// Sorted by number; if several names share a number, the first.
    pub(crate) names: Vec<(i32, Box<str>)>,
    /// `google.protobuf.NullValue`.
    pub(crate) null: bool,
}

impl Enum {
    pub(crate) fn name_of(&self, number: i32) -> Option<&str> {
        let at = self.names.binary_search_by_key(&number, |(n, _)| *n).ok()?;
        self.names.get(at).map(|(_, name)| &**name)
    }
}

impl Message {
    /// The index of the field with this name, in either spelling.
    pub(crate) fn place(&self, name: &str) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// The index of the field with this number.
    pub(crate) fn by_number(&self, number: u32) -> Option<u16> {
        // Most messages number their fields from 1 without gaps.
        let guess = number.wrapping_sub(1) as usize;
        if self.fields.get(guess).is_some_and(|f| f.number == number) {
            return u16::try_from(guess).ok();
        }
        self.fields.binary_search_by_key(&number, |f| f.number).ok().and_then(|at| u16::try_from(at).ok())
    }
}

/// Most types in one pool, and most fields in one message.
const TYPES: usize = 100_000;
const FIELDS: usize = 10_000;

impl Schema {
    /// Reads all types of a pool.
    ///
    /// # Errors
    /// When there are too many of them.
    pub(crate) fn new(pool: &DescriptorPool) -> Result<Self, String> {
        let messages: Vec<MessageDescriptor> = pool.all_messages().collect();
        let enums: Vec<EnumDescriptor> = pool.all_enums().collect();
        if messages.len() + enums.len() > TYPES {
            return Err(format!("there are more than {TYPES} types"));
        }
        let mut schema = Self::default();
        let mut enum_places = HashMap::new();
        for (at, e) in enums.iter().enumerate() {
            enum_places.insert(e.full_name().to_owned(), at as u32);
            schema.enums.push(read_enum(e));
        }
        for (at, message) in messages.iter().enumerate() {
            schema.by_name.insert(message.full_name().into(), at as u32);
        }
        for message in &messages {
            if message.fields().len() > FIELDS {
                return Err(format!("{} has more than {FIELDS} fields", message.full_name()));
            }
            let read = schema.read_message(message, &enum_places);
            schema.messages.push(read);
        }
        Ok(schema)
    }

    /// The message with this full name.
    pub(crate) fn named(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn message(&self, at: u32) -> Option<&Message> {
        self.messages.get(at as usize)
    }

    pub(crate) fn enumeration(&self, at: u32) -> Option<&Enum> {
        self.enums.get(at as usize)
    }

    fn read_message(&self, message: &MessageDescriptor, enums: &HashMap<String, u32>) -> Message {
        let mut descriptors: Vec<FieldDescriptor> = message.fields().collect();
        descriptors.sort_by_key(FieldDescriptor::number);
        let oneofs: Vec<String> =
            message.oneofs().filter(|o| !o.is_synthetic()).map(|o| o.name().to_owned()).collect();
        let mut by_name = Names::default();
        let mut fields = Vec::with_capacity(descriptors.len());
        for (at, field) in descriptors.iter().enumerate() {
            let at = at as u16; // at most FIELDS
            by_name.insert(field.json_name().into(), at);
            fields.push(self.read_field(field, enums, &oneofs));
        }
        for (at, field) in descriptors.iter().enumerate() {
            by_name.entry(field.name().into()).or_insert(at as u16);
        }
        let name = message.full_name();
        let has_oneofs = !oneofs.is_empty();
        Message { name: name.into(), fields, by_name, known: Known::of(name), has_oneofs }
    }

    fn read_field(&self, field: &FieldDescriptor, enums: &HashMap<String, u32>, oneofs: &[String]) -> Field {
        use prost_reflect::Kind as Described;
        let kind = match field.kind() {
            Described::Bool => Kind::Bool,
            Described::Bytes => Kind::Bytes,
            Described::Double => Kind::Double,
            Described::Enum(e) => Kind::Enum(enums.get(e.full_name()).copied().unwrap_or(u32::MAX)),
            Described::Fixed32 => Kind::Fixed32,
            Described::Fixed64 => Kind::Fixed64,
            Described::Float => Kind::Float,
            Described::Int32 => Kind::Int32,
            Described::Int64 => Kind::Int64,
            Described::Message(m) => Kind::Message(self.named(m.full_name()).unwrap_or(u32::MAX)),
            Described::Sfixed32 => Kind::Sfixed32,
            Described::Sfixed64 => Kind::Sfixed64,
            Described::Sint32 => Kind::Sint32,
            Described::Sint64 => Kind::Sint64,
            Described::String => Kind::String,
            Described::Uint32 => Kind::Uint32,
            Described::Uint64 => Kind::Uint64,
        };
        let shape = match field.cardinality() {
            Cardinality::Repeated if field.is_map() => Shape::Map,
            Cardinality::Repeated if field.is_packed() => Shape::Packed,
            Cardinality::Repeated => Shape::Repeated,
            Cardinality::Optional | Cardinality::Required => Shape::Once,
        };
        let oneof = field.containing_oneof().and_then(|of| oneofs.iter().position(|name| name == of.name()));
        Field {
            name: field.name().into(),
            json_name: field.json_name().into(),
            number: field.number(),
            kind,
            shape,
            presence: field.supports_presence(),
            oneof: oneof.and_then(|at| u16::try_from(at).ok()),
            group: field.is_group(),
        }
    }
}

fn read_enum(e: &EnumDescriptor) -> Enum {
    // In file order: `values()` sorts by number, and may return any of several names for one number first.
    let written = &e.enum_descriptor_proto().value;
    let mut names: Vec<(i32, Box<str>)> = written.iter().map(|v| (v.number(), v.name().into())).collect();
    let numbers = names.iter().map(|(number, name)| (name.clone(), *number)).collect();
    names.sort_by_key(|(number, _)| *number); // stable: of several names, the first stays first
    names.dedup_by_key(|(number, _)| *number);
    Enum { numbers, names, null: e.full_name() == "google.protobuf.NullValue" }
}
