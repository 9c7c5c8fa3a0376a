//! Fields that stand in a URL: `author.name=x`, and variables of the path.
//!
//! Each is appended as a message of its own around the value. Readers merge messages of one field, so that nothing has to be merged here.

use crate::api::{Api, Binding, BodyOf};
use crate::parse::{ParseError, text_expected, write_text};
use crate::scalar::{self, Token, ValueError, Written};
use crate::schema::{Field, Kind, Known, Message, Schema, Shape};
use crate::template::{Slashes, unescape};
use crate::wire;
use std::borrow::Cow;

/// Parameters that a query may have.
const PARAMETERS: usize = 1000;

/// Appends the fields that a query sets.
pub(crate) fn query(
    api: &Api,
    binding: &Binding,
    input: &Message,
    query: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), ParseError> {
    let (mut set, mut members) = (Vec::<Vec<u16>>::new(), Vec::new());
    for variable in &binding.variables {
        is_only_member(&api.schema, input, variable, &mut members);
    }
    let pairs = query.unwrap_or_default().split(|&b| b == b'&').filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        if count >= PARAMETERS {
            return Err(wrong("", format!("the query has more than {PARAMETERS} parameters")));
        }
        let at = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
        let (name, value) = (pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default());
        let name = decoded(name).ok_or_else(|| wrong("", "a parameter's name is not UTF-8"))?;
        let Some(place) = place_of(api, input, &name)? else { continue };
        let in_body = matches!(binding.body, BodyOf::Field(of) if place.first() == Some(&of));
        if in_body || binding.variables.contains(&place) {
            let from = if in_body { "body" } else { "path" };
            return Err(wrong(&name, format!("this field comes from the {from}")));
        }
        let value = decoded(value).ok_or_else(|| wrong(&name, "the value is not UTF-8"))?;
        let field = fields_to(&api.schema, input, &place).last();
        if field.is_some_and(|field| field.shape == Shape::Once) {
            if set.contains(&place) {
                return Err(wrong(&name, "the parameter comes twice, but the field is not repeated"));
            }
            set.push(place.clone());
        }
        if !is_only_member(&api.schema, input, &place, &mut members) {
            return Err(wrong(&name, "another field of the same oneof is set"));
        }
        append(&api.schema, input, &place, &value, out)?;
    }
    Ok(())
}

/// The fields that a name of a parameter walks through; `None` where it is to be ignored.
fn place_of(api: &Api, input: &Message, name: &str) -> Result<Option<Vec<u16>>, ParseError> {
    let mut of = Some(input);
    let mut place = Vec::new();
    let mut shape = Shape::Once;
    for part in name.split('.') {
        let found = match (of, shape) {
            (Some(message), Shape::Once) => {
                message.place(part).and_then(|at| Some((at, message.fields.get(usize::from(at))?)))
            }
            _ => None,
        };
        let Some((at, field)) = found else {
            if api.options().ignore_unknown {
                return Ok(None);
            }
            let of = of.map_or("a value that is no message", |m| &m.name);
            return Err(wrong(
                name,
                format!("{of} has no field `{}` that a parameter can name", scalar::short(part)),
            ));
        };
        place.push(at);
        shape = field.shape;
        of = match field.kind {
            Kind::Message(at) => api.schema.message(at),
            _ => None,
        };
    }
    Ok(Some(place))
}

/// The fields on the way to a place, that one included.
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

/// A oneof, as the fields on the way to it and its place in their message, and which of its members is set.
type Member = (Vec<u16>, u16, u16);

/// Whether no oneof on the way to this field has another member set. Notes the members that it sets.
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

/// Appends a field with this text as its value, within the messages on the way to it.
pub(crate) fn append(
    schema: &Schema,
    of: &Message,
    place: &[u16],
    text: &str,
    out: &mut Vec<u8>,
) -> Result<(), ParseError> {
    let Some((first, after)) = place.split_first() else { return Ok(()) };
    let Some(field) = of.fields.get(usize::from(*first)) else { return Ok(()) };
    let told = |e: ParseError| ParseError { path: joined(&field.json_name, &e.path), ..e };
    match field.kind {
        Kind::Message(at) if field.shape != Shape::Map && !field.group => {
            let Some(inside) = schema.message(at) else { return Ok(()) };
            wire::write_key(field.number, wire::BYTES, out);
            let begun = wire::open(out);
            if after.is_empty() {
                message(schema, inside, text, out).map_err(told)?;
            } else {
                append(schema, inside, after, text, out).map_err(told)?;
            }
            wire::close(begun, out);
            Ok(())
        }
        Kind::Message(_) => Err(wrong(&field.json_name, "a map cannot stand in a URL")),
        _ => value(schema, field, text, out).map_err(told),
    }
}

/// A message that a text can stand for.
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
            write_text(known, text, out).ok_or_else(expected)
        }
        _ => Err(wrong("", format!("a {} cannot stand in a URL; name one of its fields", of.name))),
    }
}

fn value(schema: &Schema, field: &Field, text: &str, out: &mut Vec<u8>) -> Result<(), ParseError> {
    // A packed field may come one by one as well.
    wire::write_key(field.number, field.kind.wire(), out);
    scalar::write(schema, field.kind, Token::Text(text), Written::InUrl, out).map_err(|unfit| {
        debug_assert!(matches!(unfit, ValueError::Refused | ValueError::UnknownName));
        let expected = scalar::expected(schema, field.kind);
        wrong("", format!("expected {expected}, found {}", scalar::shown(Token::Text(text))))
    })
}

/// A name or a value of a query: `+` is a space there.
fn decoded(text: &[u8]) -> Option<Cow<'_, str>> {
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
