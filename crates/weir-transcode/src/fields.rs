//! Fields from a URL: `author.name=x`, and path variables.
//!
//! Each is appended as nested messages of its own around the value. Readers merge messages of the same field, so we
//! need not merge here.

use crate::binding::{Binding, BodyOf};
use crate::options::{JsonOptions, Limits};
use crate::parse::{ParseError, text_expected, write_text};
use crate::scalar::{self, Token, ValueError, Written};
use crate::schema::{Field, Kind, Known, Message, Schema, Shape};
use crate::template::{Slashes, unescape};
use crate::wire;
use std::borrow::Cow;

/// Most parameters in a query.
const PARAMETERS: usize = 1000;

/// An API's types, and how it reads them.
#[derive(Clone, Copy)]
pub(crate) struct Types<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) options: JsonOptions,
    pub(crate) limits: Limits,
}

/// Appends the fields that a query sets. Returns whether it sets the binding's field mask.
pub(crate) fn query(
    types: Types<'_>,
    binding: &Binding,
    input: &Message,
    query: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<bool, ParseError> {
    let (mut set, mut members) = (Vec::<Target>::new(), Vec::new());
    let mut has_mask = false;
    for variable in &binding.variables {
        is_only_member(types.schema, input, variable, &mut members);
    }
    let pairs = query.unwrap_or_default().split(|&b| b == b'&').filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        if count >= PARAMETERS {
            return Err(wrong("", format!("the query has more than {PARAMETERS} parameters")));
        }
        let at = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
        let (name, value) = (pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default());
        let name =
            decoded(name).ok_or_else(|| wrong("", "a parameter's name is not percent-encoded UTF-8"))?;
        let (path, key) = split_key(&name);
        let Some(place) = place_of(types, input, path)? else { continue };
        if binding.variables.contains(&place) {
            continue; // the path wins over the query, as in grpc-gateway
        }
        if matches!(binding.body, BodyOf::Field(of) if place.first() == Some(&of)) {
            return Err(wrong(&name, "this field comes from the body"));
        }
        let value = decoded(value).ok_or_else(|| wrong(&name, "the value is not percent-encoded UTF-8"))?;
        has_mask |= place.first() == binding.mask.as_ref() && !value.is_empty();
        let field = fields_to(types.schema, input, &place).last();
        if field.is_some_and(|field| matches!(field.shape, Shape::Map | Shape::Once)) {
            let target = (place.clone(), key.map(str::to_owned));
            if set.contains(&target) {
                return Err(wrong(&name, "the parameter comes twice, but the field is not repeated"));
            }
            set.push(target);
        }
        if !is_only_member(types.schema, input, &place, &mut members) {
            return Err(wrong(&name, "another field of the same oneof is set"));
        }
        append(types.schema, input, &place, Text { text: &value, key }, out)?;
    }
    Ok(has_mask)
}

/// The field that a query sets: its place, and for a map the key.
type Target = (Vec<u16>, Option<String>);

/// A value from a URL, and for a map its key.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) text: &'a str,
    pub(crate) key: Option<&'a str>,
}

/// The name of a parameter, and the key if it names a map entry: `labels[color]`.
fn split_key(name: &str) -> (&str, Option<&str>) {
    let split = name.strip_suffix(']').and_then(|rest| rest.split_once('['));
    split.map_or((name, None), |(path, key)| (path, Some(key)))
}

/// The path of fields that a parameter name describes; `None` if it is to be ignored.
fn place_of(types: Types<'_>, input: &Message, name: &str) -> Result<Option<Vec<u16>>, ParseError> {
    let mut of = Some(input);
    let mut place = Vec::new();
    let mut shape = Shape::Once;
    for part in name.split('.') {
        // Each part is a message nested in the previous one, here and in the output.
        if place.len() >= types.limits.depth {
            return Err(wrong(&scalar::short(name), format!("this is deeper than {}", types.limits.depth)));
        }
        let found = match (of, shape) {
            (Some(message), Shape::Once) => {
                message.place(part).and_then(|at| Some((at, message.fields.get(usize::from(at))?)))
            }
            _ => None,
        };
        let Some((at, field)) = found else {
            if types.options.ignore_unknown {
                return Ok(None);
            }
            let of = of.map_or("a value that is not a message", |m| &m.name);
            return Err(wrong(
                name,
                format!("{of} has no field `{}` that a parameter can name", scalar::short(part)),
            ));
        };
        place.push(at);
        shape = field.shape;
        of = match field.kind {
            Kind::Message(at) => types.schema.message(at),
            _ => None,
        };
    }
    Ok(Some(place))
}

/// The fields on the path to a place, including that one.
fn fields_to<'a>(schema: &'a Schema, input: &'a Message, place: &[u16]) -> impl Iterator<Item = &'a Field> {
    let mut of = Some(input);
    place.iter().map_while(move |at| {
        let field = of?.fields.get(usize::from(*at))?;
        of = match field.kind {
            Kind::Message(at) => schema.message(at),
            _ => None,
        };
        Some(field)
    })
}

/// A member of a oneof: the path to the oneof's message, the oneof's index there, and which member is set.
type Member = (Vec<u16>, u16, u16);

/// Whether no oneof on the path to this field already has another member set. Records the members that it sets.
fn is_only_member(schema: &Schema, input: &Message, place: &[u16], members: &mut Vec<Member>) -> bool {
    for (depth, (at, field)) in place.iter().zip(fields_to(schema, input, place)).enumerate() {
        let Some(oneof) = field.oneof else { continue };
        let way = place.get(..depth).unwrap_or_default();
        match members.iter().find(|(to, of, _)| to == way && *of == oneof) {
            Some((.., member)) if member != at => return false,
            Some(_) => {}
            None => members.push((way.to_vec(), oneof, *at)),
        }
    }
    true
}

/// Appends a field with this text as its value, inside the messages on its path.
pub(crate) fn append(
    schema: &Schema,
    of: &Message,
    place: &[u16],
    value_of: Text<'_>,
    out: &mut Vec<u8>,
) -> Result<(), ParseError> {
    let text = value_of.text;
    let Some((first, after)) = place.split_first() else { return Ok(()) };
    let Some(field) = of.fields.get(usize::from(*first)) else { return Ok(()) };
    let told = |e: ParseError| ParseError { path: joined(&field.json_name, &e.path), ..e };
    if value_of.key.is_some() && after.is_empty() && field.shape != Shape::Map {
        return Err(wrong(&field.json_name, "only an entry of a map is named by a key in brackets"));
    }
    match field.kind {
        Kind::Message(at) if field.shape == Shape::Map => {
            let entry = schema.message(at);
            map_entry(schema, field, entry, value_of, out).map_err(told)
        }
        Kind::Message(at) if !field.group => {
            let Some(inside) = schema.message(at) else { return Ok(()) };
            wire::write_key(field.number, wire::BYTES, out);
            let begun = wire::open(out);
            if after.is_empty() {
                message(schema, inside, text, out).map_err(told)?;
            } else {
                append(schema, inside, after, value_of, out).map_err(told)?;
            }
            wire::close(begun, out);
            Ok(())
        }
        Kind::Message(_) => Err(wrong(&field.json_name, "a group cannot stand in a URL")),
        _ => value(schema, field, text, out).map_err(told),
    }
}

/// Appends a map entry, whose value may be of any type that has a text form.
fn map_entry(
    schema: &Schema,
    field: &Field,
    entry: Option<&Message>,
    Text { text, key }: Text<'_>,
    out: &mut Vec<u8>,
) -> Result<(), ParseError> {
    let Some(key) = key else {
        return Err(wrong("", format!("this is a map: write {}[KEY]=VALUE", field.json_name)));
    };
    let Some([key_field, value_field]) = entry.map(|entry| &entry.fields[..]) else { return Ok(()) };
    wire::write_key(field.number, wire::BYTES, out);
    let begun = wire::open(out);
    value(schema, key_field, key, out)?;
    match value_field.kind {
        Kind::Message(at) => {
            let Some(of) = schema.message(at) else { return Ok(()) };
            wire::write_key(value_field.number, wire::BYTES, out);
            let inside = wire::open(out);
            message(schema, of, text, out)?;
            wire::close(inside, out);
        }
        _ => value(schema, value_field, text, out)?,
    }
    wire::close(begun, out);
    Ok(())
}

/// Appends a message that has a text form.
fn message(schema: &Schema, of: &Message, text: &str, out: &mut Vec<u8>) -> Result<(), ParseError> {
    match (of.known, of.fields.first()) {
        (Known::Wrapper, Some(field)) => value(schema, field, text, out),
        (known @ (Known::Duration | Known::FieldMask | Known::Timestamp), _) => {
            let expected = || {
                wrong(
                    "",
                    format!("expected {}, found {}", text_expected(known), scalar::shown(Token::Text(text))),
                )
            };
            let written = match known {
                // AIP-134 writes masks with proto names; JSON uses lowerCamelCase.
                Known::FieldMask => write_mask(text, out),
                known => write_text(known, text, out),
            };
            written.ok_or_else(expected)
        }
        _ => Err(wrong("", format!("a {} cannot stand in a URL; name one of its fields", of.name))),
    }
}

fn value(schema: &Schema, field: &Field, text: &str, out: &mut Vec<u8>) -> Result<(), ParseError> {
    // A packed field may also come one element at a time.
    wire::write_key(field.number, field.kind.wire(), out);
    scalar::write(schema, field.kind, Token::Text(text), Written::InUrl, out).map_err(|unfit| {
        debug_assert!(matches!(unfit, ValueError::Refused | ValueError::UnknownName));
        let expected = scalar::expected(schema, field.kind);
        wrong("", format!("expected {expected}, found {}", scalar::shown(Token::Text(text))))
    })
}

/// A field mask from a URL. Accepts paths in snake_case unchanged, and others in the JSON form.
fn write_mask(text: &str, out: &mut Vec<u8>) -> Option<()> {
    for path in text.split(',').filter(|path| !path.is_empty()) {
        match path.contains('_') {
            true => wire::write_bytes(1, path.as_bytes(), out),
            false => write_text(Known::FieldMask, path, out)?,
        }
    }
    Some(())
}

/// Decodes a name or value of a query, where `+` is a space. `None`: an escape is invalid, or it is not UTF-8.
fn decoded(text: &[u8]) -> Option<Cow<'_, str>> {
    let escapes =
        text.iter().enumerate().filter(|(_, b)| **b == b'%').map(|(at, _)| text.get(at + 1..at + 3));
    if !escapes.into_iter().all(|digits| digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))) {
        return None;
    }
    if !text.iter().any(|b| matches!(b, b'+' | b'%')) {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    let spaced: Vec<u8> = text.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
    String::from_utf8(unescape(&spaced, Slashes::Decode).into_owned()).ok().map(Cow::Owned)
}

fn joined(name: &str, rest: &str) -> String {
    if rest.is_empty() { name.to_owned() } else { format!("{name}.{rest}") }
}

fn wrong(path: &str, message: impl Into<String>) -> ParseError {
    ParseError { path: path.to_owned(), message: message.into() }
}
