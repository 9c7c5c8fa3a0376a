//! Prints messages as JSON: Protocol Buffers bytes in, text out, with only a list of field positions in between.
//!
//! Source: "ProtoJSON Format" of the Protocol Buffers documentation. Fields are written by number. Like a parser, it
//! uses the last of several values for one field, merges messages of one field, and uses the last member of a oneof.

use crate::base64;
use crate::options::{JsonOptions, Limits};
use crate::schema::{Field, Kind, Known, Message, Schema, Shape};
use crate::time;
use crate::wire::{self, Malformed, Packed, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// Why a message has no JSON form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintError {
    /// What is wrong.
    pub message: String,
}

impl From<Malformed> for PrintError {
    fn from(Malformed: Malformed) -> Self {
        fault("the bytes are no message of this type")
    }
}

type Done = Result<(), PrintError>;

fn fault(message: impl Into<String>) -> PrintError {
    PrintError { message: message.into() }
}

/// A field occurrence: its index among the fields, and its value.
type Entry<'a> = (u16, Value<'a>);

/// Prints messages.
pub(crate) struct Printer<'a, 'o> {
    pub(crate) schema: &'a Schema,
    pub(crate) options: JsonOptions,
    pub(crate) limits: Limits,
    pub(crate) out: &'o mut Vec<u8>,
    depth: usize,
    any: usize,
    values: usize,
    most: usize,
}

impl<'a, 'o> Printer<'a, 'o> {
    pub(crate) fn new(
        schema: &'a Schema,
        options: JsonOptions,
        limits: Limits,
        out: &'o mut Vec<u8>,
    ) -> Self {
        let most = out.len().saturating_add(limits.json());
        Self { schema, options, limits, out, depth: 0, any: 0, values: 0, most }
    }

    /// Prints a message of this type.
    pub(crate) fn message(&mut self, of: &Message, bytes: &[u8]) -> Done {
        self.deeper()?;
        match of.known {
            Known::None | Known::HttpBody => {
                self.out.push(b'{');
                self.fields(of, bytes, true)?;
                self.out.push(b'}');
            }
            Known::Any => self.any(bytes)?,
            Known::Duration | Known::Timestamp => self.time(of.known, bytes)?,
            Known::FieldMask => self.mask(bytes)?,
            Known::ListValue => self.list_value(bytes)?,
            Known::Struct => self.map_of_values(of, bytes)?,
            Known::Value => self.value(bytes)?,
            Known::Wrapper => self.wrapped(of, bytes)?,
        }
        self.depth -= 1;
        Ok(())
    }

    /// Prints the value of one field; `null` if it is absent and has no default.
    pub(crate) fn only(&mut self, of: &Message, place: u16, bytes: &[u8]) -> Done {
        let Some(field) = of.fields.get(usize::from(place)) else { return Err(Malformed.into()) };
        let mut entries = self.entries(of, bytes)?;
        entries.retain(|(at, _)| *at == place);
        if entries.is_empty() {
            match (field.shape, field.kind) {
                (Shape::Once, Kind::Message(_)) => self.out.extend_from_slice(b"null"),
                _ => self.default(field),
            }
            return Ok(());
        }
        self.run(field, &entries)
    }

    fn deeper(&mut self) -> Done {
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(fault(format!("the message is deeper than {}", self.limits.depth)));
        }
        Ok(())
    }

    /// Counts one more value, to bound the work that a hostile upstream can cause.
    fn count(&mut self) -> Done {
        self.values += 1;
        if self.values > self.limits.values {
            return Err(fault(format!("the message has more than {} values", self.limits.values)));
        }
        if self.out.len() > self.most {
            return Err(fault(format!("the message becomes more than {} bytes of JSON", self.limits.json())));
        }
        Ok(())
    }

    // === fields ===

    /// The known fields of a message, by number.
    fn entries<'b>(&mut self, of: &Message, bytes: &'b [u8]) -> Result<Vec<Entry<'b>>, PrintError> {
        let mut rest = bytes;
        let mut entries: Vec<Entry<'b>> = Vec::new();
        let mut is_sorted = true;
        while !rest.is_empty() {
            let (number, value) = wire::field(&mut rest)?;
            let Some(place) = of.by_number(number) else { continue };
            let Some(field) = of.fields.get(usize::from(place)) else { continue };
            if !fits(field, value) {
                continue; // treated as an unknown field
            }
            self.count()?;
            is_sorted &= entries.last().is_none_or(|(last, _)| *last <= place);
            entries.push((place, value));
        }
        if of.has_oneofs && entries.len() > 1 {
            keep_last_of_oneofs(of, &mut entries);
        }
        if !is_sorted {
            entries.sort_by_key(|(place, _)| *place); // stable, so the last stays last
        }
        Ok(entries)
    }

    fn fields(&mut self, of: &Message, bytes: &[u8], mut first: bool) -> Done {
        let entries = self.entries(of, bytes)?;
        let mut rest = &entries[..];
        if self.options.defaults {
            for (at, field) in of.fields.iter().enumerate() {
                let count = rest.iter().take_while(|(place, _)| usize::from(*place) == at).count();
                let (run, after) = rest.split_at(count);
                rest = after;
                if !run.is_empty() {
                    self.name(field, &mut first);
                    self.run(field, run)?;
                } else if field.oneof.is_none() && (!field.presence || field.is_message()) {
                    self.name(field, &mut first);
                    self.default(field);
                }
            }
            return Ok(());
        }
        while let Some((place, _)) = rest.first() {
            let count = rest.iter().take_while(|(other, _)| other == place).count();
            let (run, after) = rest.split_at(count);
            rest = after;
            let Some(field) = of.fields.get(usize::from(*place)) else { continue };
            if !is_default(field, run) {
                self.name(field, &mut first);
                self.run(field, run)?;
            }
        }
        Ok(())
    }

    fn name(&mut self, field: &Field, first: &mut bool) {
        if !std::mem::take(first) {
            self.out.push(b',');
        }
        let name = if self.options.proto_names { &field.name } else { &field.json_name };
        // A json_name may contain anything, but is usually a plain word.
        if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.out.push(b'"');
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(b"\":");
        } else {
            self.text(name);
            self.out.push(b':');
        }
    }

    fn default(&mut self, field: &Field) {
        let text: &[u8] = match (field.shape, field.kind) {
            (Shape::Map, _) => b"{}",
            (Shape::Packed | Shape::Repeated, _) => b"[]",
            (_, Kind::Bool) => b"false",
            (_, Kind::Bytes | Kind::String) => b"\"\"",
            (_, Kind::Double | Kind::Float) => b"0",
            (_, Kind::Enum(at)) => {
                self.enumeration(at, 0);
                return;
            }
            (_, Kind::Message(_)) => b"null",
            (_, Kind::Fixed64 | Kind::Int64 | Kind::Sfixed64 | Kind::Sint64 | Kind::Uint64)
                if !self.options.int64_numbers =>
            {
                b"\"0\""
            }
            _ => b"0",
        };
        self.out.extend_from_slice(text);
    }

    /// Prints all values of one field.
    fn run(&mut self, field: &Field, run: &[Entry<'_>]) -> Done {
        match field.shape {
            Shape::Once => self.once(field, run),
            Shape::Map => self.map(field, run),
            Shape::Packed | Shape::Repeated => {
                self.deeper()?;
                self.out.push(b'[');
                let mut first = true;
                for (_, value) in run {
                    match *value {
                        Value::Bytes(bytes) if field.kind.wire() != wire::BYTES => {
                            for value in Packed::new(bytes, field.kind.wire()) {
                                self.count()?;
                                self.comma(&mut first);
                                self.single(field.kind, value?)?;
                            }
                        }
                        value => {
                            self.comma(&mut first);
                            self.single(field.kind, value)?;
                        }
                    }
                }
                self.out.push(b']');
                self.depth -= 1;
                Ok(())
            }
        }
    }

    fn comma(&mut self, first: &mut bool) {
        if !std::mem::take(first) {
            self.out.push(b',');
        }
    }

    fn once(&mut self, field: &Field, run: &[Entry<'_>]) -> Done {
        let Some((_, last)) = run.last() else { return Ok(()) };
        if run.len() > 1 && matches!(field.kind, Kind::Message(_)) {
            // Messages of one field are merged, and concatenating their bytes does exactly that.
            let merged: Vec<u8> =
                run.iter().flat_map(|(_, value)| bytes_of(*value).iter().copied()).collect();
            return self.single(field.kind, Value::Bytes(&merged));
        }
        self.single(field.kind, *last)
    }

    fn single(&mut self, kind: Kind, value: Value<'_>) -> Done {
        match kind {
            Kind::Message(at) => {
                let Some(of) = self.schema.message(at) else { return Err(Malformed.into()) };
                self.message(of, bytes_of(value))
            }
            _ => self.scalar(kind, value),
        }
    }

    // The format narrows: a 32-bit field uses the low half of the value.
    fn scalar(&mut self, kind: Kind, value: Value<'_>) -> Done {
        match (kind, value) {
            (Kind::Bool, Value::Varint(n)) => {
                self.out.extend_from_slice(if n != 0 { b"true" } else { b"false" })
            }
            (Kind::Bytes, Value::Bytes(bytes)) => {
                self.out.push(b'"');
                base64::encode(bytes, self.out);
                self.out.push(b'"');
            }
            (Kind::Double, Value::Fixed64(bits)) => self.double(f64::from_bits(bits)),
            (Kind::Enum(at), Value::Varint(n)) => self.enumeration(at, n as i32),
            (Kind::Fixed32, Value::Fixed32(n)) => self.integer(n),
            (Kind::Fixed64, Value::Fixed64(n)) => self.long(n),
            (Kind::Float, Value::Fixed32(bits)) => self.float(f32::from_bits(bits)),
            (Kind::Int32, Value::Varint(n)) => self.integer(n as i32),
            (Kind::Int64, Value::Varint(n)) => self.long(n as i64),
            (Kind::Sfixed32, Value::Fixed32(n)) => self.integer(n as i32),
            (Kind::Sfixed64, Value::Fixed64(n)) => self.long(n as i64),
            (Kind::Sint32, Value::Varint(n)) => self.integer(wire::unzigzag(u64::from(n as u32)) as i32),
            (Kind::Sint64, Value::Varint(n)) => self.long(wire::unzigzag(n)),
            (Kind::String, Value::Bytes(bytes)) => {
                let text = std::str::from_utf8(bytes).map_err(|_| fault("a string is not UTF-8"))?;
                self.text(text);
            }
            (Kind::Uint32, Value::Varint(n)) => self.integer(n as u32),
            (Kind::Uint64, Value::Varint(n)) => self.long(n),
            _ => return Err(Malformed.into()), // `fits` has excluded the others
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        let _ = serde_json::to_writer(&mut *self.out, text); // writing to a Vec cannot fail
    }

    fn integer(&mut self, n: impl itoa::Integer) {
        self.out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    }

    fn long(&mut self, n: impl itoa::Integer) {
        if self.options.int64_numbers {
            return self.integer(n);
        }
        self.out.push(b'"');
        self.integer(n);
        self.out.push(b'"');
    }

    fn double(&mut self, n: f64) {
        if !self.not_finite(n) {
            let _ = serde_json::to_writer(&mut *self.out, &n); // as above
            self.drop_fraction();
        }
    }

    fn float(&mut self, n: f32) {
        if !self.not_finite(f64::from(n)) {
            let _ = serde_json::to_writer(&mut *self.out, &n); // as above
            self.drop_fraction();
        }
    }

    /// Whole numbers have no fraction: `1`, as the Protocol Buffers libraries print them, not `1.0`.
    fn drop_fraction(&mut self) {
        if self.out.ends_with(b".0") {
            self.out.truncate(self.out.len() - 2);
        }
    }

    fn not_finite(&mut self, n: f64) -> bool {
        let text: &[u8] = match n {
            f64::INFINITY => b"\"Infinity\"",
            f64::NEG_INFINITY => b"\"-Infinity\"",
            n if n.is_nan() => b"\"NaN\"",
            _ => return false,
        };
        self.out.extend_from_slice(text);
        true
    }

    fn enumeration(&mut self, at: u32, number: i32) {
        let schema = self.schema;
        match schema.enumeration(at) {
            Some(e) if e.null => self.out.extend_from_slice(b"null"),
            Some(e) if !self.options.enum_numbers => match e.name_of(number) {
                Some(name) => {
                    self.out.push(b'"');
                    self.out.extend_from_slice(name.as_bytes());
                    self.out.push(b'"');
                }
                None => self.integer(number),
            },
            _ => self.integer(number),
        }
    }

    // === maps ===

    fn map(&mut self, field: &Field, run: &[Entry<'_>]) -> Done {
        let entry = match field.kind {
            Kind::Message(at) => self.schema.message(at),
            _ => None,
        };
        let Some(entry) = entry else { return Err(Malformed.into()) };
        self.deeper()?;
        let mut pairs = Vec::with_capacity(run.len());
        for (_, value) in run {
            let mut of_entry = self.entries(entry, bytes_of(*value))?;
            let value = of_entry.iter().rposition(|(at, _)| *at == 1).map(|at| of_entry.swap_remove(at).1);
            let key = of_entry.iter().rev().find(|(at, _)| *at == 0).map(|(_, key)| *key);
            pairs.push((self.map_key(entry, key)?, value));
        }
        let mut last = HashMap::new();
        if pairs.len() > 1 {
            last.extend(pairs.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)));
        }
        self.out.push(b'{');
        let mut first = true;
        for (at, (key, value)) in pairs.iter().enumerate() {
            if last.get(key).is_some_and(|last| *last != at) {
                continue; // a later entry repeats this key
            }
            self.comma(&mut first);
            self.text(key);
            self.out.push(b':');
            let Some(of_value) = entry.fields.get(1) else { return Err(Malformed.into()) };
            match (value, of_value.kind) {
                (Some(value), kind) => self.single(kind, *value)?,
                (None, kind @ Kind::Message(_)) => self.single(kind, Value::Bytes(b""))?,
                (None, _) => self.default(of_value),
            }
        }
        self.out.push(b'}');
        self.depth -= 1;
        Ok(())
    }

    fn map_key<'b>(&mut self, entry: &Message, key: Option<Value<'b>>) -> Result<Cow<'b, str>, PrintError> {
        let kind = entry.fields.first().map_or(Kind::String, |f| f.kind);
        if kind == Kind::String {
            let bytes = key.map_or(&b""[..], bytes_of);
            return std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| fault("a key is not UTF-8"));
        }
        let zero = match kind.wire() {
            wire::FIXED32 => Value::Fixed32(0),
            wire::FIXED64 => Value::Fixed64(0),
            _ => Value::Varint(0),
        };
        let from = self.out.len();
        self.scalar(kind, key.unwrap_or(zero))?;
        let text = self.out.split_off(from);
        let text = String::from_utf8(text).map_err(|_| Malformed)?;
        Ok(Cow::Owned(text.trim_matches('"').to_owned()))
    }

    // === types with their own JSON form ===

    fn any(&mut self, bytes: &[u8]) -> Done {
        let (mut url, mut value) = (&b""[..], &b""[..]);
        let mut rest = bytes;
        while !rest.is_empty() {
            match wire::field(&mut rest)? {
                (1, Value::Bytes(bytes)) => url = bytes,
                (2, Value::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        if url.is_empty() && value.is_empty() {
            self.out.extend_from_slice(b"{}");
            return Ok(());
        }
        let url = std::str::from_utf8(url).map_err(|_| fault("a type of Any is not UTF-8"))?;
        self.any += 1;
        if self.any > self.limits.any {
            return Err(fault(format!("there are more than {} Any within one another", self.limits.any)));
        }
        self.out.extend_from_slice(b"{\"@type\":");
        self.text(url);
        let name = url.rsplit('/').next().unwrap_or_default();
        match self.schema.named(name).and_then(|at| self.schema.message(at)) {
            Some(of) if of.known.has_own_json() => {
                self.out.extend_from_slice(b",\"value\":");
                self.message(of, value)?;
            }
            Some(of) => self.fields(of, value, false)?,
            // We do not know the type, but the client may.
            None => {
                self.out.extend_from_slice(b",\"value\":\"");
                base64::encode(value, self.out);
                self.out.push(b'"');
            }
        }
        self.out.push(b'}');
        self.any -= 1;
        Ok(())
    }

    fn time(&mut self, known: Known, bytes: &[u8]) -> Done {
        let (mut seconds, mut nanos) = (0i64, 0i32);
        let mut rest = bytes;
        while !rest.is_empty() {
            match wire::field(&mut rest)? {
                (1, Value::Varint(n)) => seconds = n as i64,
                (2, Value::Varint(n)) => nanos = n as i32,
                _ => {}
            }
        }
        let text = match known {
            Known::Timestamp => time::write_timestamp(seconds, nanos),
            _ => time::write_duration(seconds, nanos),
        };
        let text = text.ok_or_else(|| fault(format!("{seconds} s and {nanos} ns are out of range")))?;
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
        Ok(())
    }

    fn mask(&mut self, bytes: &[u8]) -> Done {
        let mut text = String::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (1, Value::Bytes(path)) = wire::field(&mut rest)? else { continue };
            self.count()?;
            let path = std::str::from_utf8(path).map_err(|_| fault("a path of a field mask is not UTF-8"))?;
            let camel =
                time::camel(path).ok_or_else(|| fault("a path of a field mask has no form in JSON"))?;
            if !text.is_empty() && !camel.is_empty() {
                text.push(',');
            }
            text.push_str(&camel);
        }
        self.text(&text);
        Ok(())
    }

    fn list_value(&mut self, bytes: &[u8]) -> Done {
        self.out.push(b'[');
        let (mut rest, mut first) = (bytes, true);
        while !rest.is_empty() {
            let (1, Value::Bytes(value)) = wire::field(&mut rest)? else { continue };
            self.count()?;
            self.comma(&mut first);
            self.deeper()?;
            self.value(value)?;
            self.depth -= 1;
        }
        self.out.push(b']');
        Ok(())
    }

    fn map_of_values(&mut self, of: &Message, bytes: &[u8]) -> Done {
        let entries = self.entries(of, bytes)?;
        match of.fields.first() {
            Some(fields) => self.map(fields, &entries),
            None => Err(Malformed.into()),
        }
    }

    /// `google.protobuf.Value`: its last member counts.
    fn value(&mut self, bytes: &[u8]) -> Done {
        let mut rest = bytes;
        let mut last = None;
        while !rest.is_empty() {
            last = match wire::field(&mut rest)? {
                found @ (1..=6, _) => Some(found),
                _ => last,
            };
        }
        match last {
            Some((2, Value::Fixed64(bits))) => match f64::from_bits(bits) {
                n if n.is_finite() => self.double(n),
                _ => return Err(fault("a number in a google.protobuf.Value is not finite")),
            },
            Some((3, value @ Value::Bytes(_))) => self.scalar(Kind::String, value)?,
            Some((4, value @ Value::Varint(_))) => self.scalar(Kind::Bool, value)?,
            Some((5, Value::Bytes(bytes))) => self.named("google.protobuf.Struct", bytes)?,
            Some((6, Value::Bytes(bytes))) => {
                self.deeper()?;
                self.list_value(bytes)?;
                self.depth -= 1;
            }
            Some((1, _)) | None => self.out.extend_from_slice(b"null"),
            Some(_) => return Err(Malformed.into()),
        }
        Ok(())
    }

    fn named(&mut self, name: &str, bytes: &[u8]) -> Done {
        let schema = self.schema;
        let of = schema.named(name).and_then(|at| schema.message(at)).ok_or(Malformed)?;
        self.message(of, bytes)
    }

    fn wrapped(&mut self, of: &Message, bytes: &[u8]) -> Done {
        let entries = self.entries(of, bytes)?;
        match (of.fields.first(), entries.last()) {
            (Some(field), Some((_, value))) => self.scalar(field.kind, *value),
            (Some(field), None) => {
                self.default(field);
                Ok(())
            }
            (None, _) => Err(Malformed.into()),
        }
    }
}

fn bytes_of(value: Value<'_>) -> &[u8] {
    match value {
        Value::Bytes(bytes) | Value::Group(bytes) => bytes,
        _ => &[],
    }
}

/// Whether the value matches the field's wire type; others are skipped.
fn fits(field: &Field, value: Value<'_>) -> bool {
    let wire = match value {
        Value::Bytes(_) => wire::BYTES,
        Value::Fixed32(_) => wire::FIXED32,
        Value::Fixed64(_) => wire::FIXED64,
        Value::Group(_) => return field.group,
        Value::Varint(_) => wire::VARINT,
    };
    let is_list = matches!(field.shape, Shape::Packed | Shape::Repeated);
    !field.group && (wire == field.kind.wire() || (is_list && wire == wire::BYTES))
}

/// Whether a field without presence holds its default.
fn is_default(field: &Field, run: &[Entry<'_>]) -> bool {
    if field.presence || field.shape != Shape::Once || field.oneof.is_some() {
        return false;
    }
    match run.last() {
        Some((_, Value::Varint(0) | Value::Fixed32(0) | Value::Fixed64(0))) => true,
        Some((_, Value::Bytes(bytes))) => bytes.is_empty() && !matches!(field.kind, Kind::Message(_)),
        _ => false,
    }
}

/// Drops oneof members that a later member of the same oneof replaces.
fn keep_last_of_oneofs(of: &Message, entries: &mut Vec<Entry<'_>>) {
    let oneof = |place: u16| of.fields.get(usize::from(place)).and_then(|f| f.oneof);
    let mut last: Vec<(u16, u16)> = Vec::new();
    for (place, _) in entries.iter() {
        let Some(member) = oneof(*place) else { continue };
        match last.iter_mut().find(|(of, _)| *of == member) {
            Some((_, last)) => *last = *place,
            None => last.push((member, *place)),
        }
    }
    if !last.is_empty() {
        entries.retain(|(place, _)| oneof(*place).is_none_or(|m| last.contains(&(m, *place))));
    }
}
