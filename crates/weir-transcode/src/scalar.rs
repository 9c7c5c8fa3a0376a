//! Scalar values: converts JSON or text to wire format, and explains values that do not fit.

use crate::base64;
use crate::schema::{Enum, Kind, Schema};
use crate::wire;

/// A parsed value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Token<'a> {
    Bool(bool),
    Float(f64),
    Integer(i128),
    Text(&'a str),
}

/// The source of a value: JSON values have types; object keys and URL text have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    AsKey,
    InJson,
    InUrl,
}

/// Why a value was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    /// The value does not fit the type.
    Refused,
    /// The enum has no value of this name.
    UnknownName,
}

/// Appends a value without a key.
pub(crate) fn write(
    schema: &Schema,
    kind: Kind,
    token: Token<'_>,
    written: Written,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    match kind {
        Kind::Bool => out.push(u8::from(boolean(token, written).ok_or(ValueError::Refused)?)),
        Kind::Bytes => bytes(token, out).ok_or(ValueError::Refused)?,
        Kind::Double => {
            out.extend_from_slice(&float(unsigned(token, written)).ok_or(ValueError::Refused)?.to_le_bytes())
        }
        Kind::Enum(at) => {
            let of = schema.enumeration(at).ok_or(ValueError::Refused)?;
            let number = enumeration(of, token, written)?;
            wire::write_varint(i64::from(number) as u64, out);
        }
        Kind::Float => {
            let wide = float(unsigned(token, written)).ok_or(ValueError::Refused)?;
            let narrow = wide as f32;
            if wide.is_finite() && narrow.is_infinite() {
                return Err(ValueError::Refused);
            }
            out.extend_from_slice(&narrow.to_le_bytes());
        }
        Kind::Message(_) => return Err(ValueError::Refused),
        Kind::String => match token {
            Token::Text(text) => {
                wire::write_varint(text.len() as u64, out);
                out.extend_from_slice(text.as_bytes());
            }
            _ => return Err(ValueError::Refused),
        },
        _ => {
            let number = integer(unsigned(token, written)).ok_or(ValueError::Refused)?;
            whole(kind, number, out).ok_or(ValueError::Refused)?;
        }
    }
    Ok(())
}

/// A number from a URL without a leading `+`, which Go's parsers, and so grpc-gateway, accept. JSON has no such sign.
fn unsigned(token: Token<'_>, written: Written) -> Token<'_> {
    match token {
        Token::Text(text) if written == Written::InUrl => {
            let digits = text.strip_prefix('+').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            Token::Text(digits.unwrap_or(text))
        }
        token => token,
    }
}

/// Writes a whole number, if its kind accepts it.
fn whole(kind: Kind, n: i128, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        Kind::Fixed32 => out.extend_from_slice(&u32::try_from(n).ok()?.to_le_bytes()),
        Kind::Fixed64 => out.extend_from_slice(&u64::try_from(n).ok()?.to_le_bytes()),
        Kind::Int32 => wire::write_varint(i64::from(i32::try_from(n).ok()?) as u64, out),
        Kind::Int64 => wire::write_varint(i64::try_from(n).ok()? as u64, out),
        Kind::Sfixed32 => out.extend_from_slice(&i32::try_from(n).ok()?.to_le_bytes()),
        Kind::Sfixed64 => out.extend_from_slice(&i64::try_from(n).ok()?.to_le_bytes()),
        Kind::Sint32 => wire::write_varint(wire::zigzag(i64::from(i32::try_from(n).ok()?)), out),
        Kind::Sint64 => wire::write_varint(wire::zigzag(i64::try_from(n).ok()?), out),
        Kind::Uint32 => wire::write_varint(u64::from(u32::try_from(n).ok()?), out),
        Kind::Uint64 => wire::write_varint(u64::try_from(n).ok()?, out),
        _ => return None,
    }
    Some(())
}

fn boolean(token: Token<'_>, written: Written) -> Option<bool> {
    match token {
        Token::Bool(b) => Some(b),
        // Accepted by Go's boolean parser, and so by grpc-gateway.
        Token::Text("1" | "t" | "T" | "TRUE" | "True") if written == Written::InUrl => Some(true),
        Token::Text("0" | "f" | "F" | "FALSE" | "False") if written == Written::InUrl => Some(false),
        Token::Text("true") if written != Written::InJson => Some(true),
        Token::Text("false") if written != Written::InJson => Some(false),
        _ => None,
    }
}

fn bytes(token: Token<'_>, out: &mut Vec<u8>) -> Option<()> {
    let Token::Text(text) = token else { return None };
    let begun = wire::open(out);
    base64::decode(text.as_bytes(), out)?;
    wire::close(begun, out);
    Some(())
}

fn float(token: Token<'_>) -> Option<f64> {
    match token {
        Token::Bool(_) => None,
        Token::Float(n) => Some(n),
        Token::Integer(n) => Some(n as f64),
        Token::Text("Infinity") => Some(f64::INFINITY),
        Token::Text("-Infinity") => Some(f64::NEG_INFINITY),
        Token::Text("NaN") => Some(f64::NAN),
        Token::Text(text) => decimal(text),
    }
}

/// A number in JSON notation, within range. `f64::from_str` alone accepts more: `inf`, `.5`, `+1`.
fn decimal(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if !plain || !digits.starts_with(|c: char| c.is_ascii_digit()) || digits.ends_with('.') {
        return None;
    }
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

fn integer(token: Token<'_>) -> Option<i128> {
    match token {
        Token::Bool(_) => None,
        Token::Float(n) => exact(n),
        Token::Integer(n) => Some(n),
        Token::Text(text) => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            if !digits.is_empty() && digits.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit()) {
                return text.parse().ok();
            }
            exact(decimal(text)?)
        }
    }
}

/// A number without a fraction, such as `1e5`, if no conversion has rounded it.
fn exact(n: f64) -> Option<i128> {
    (n.fract() == 0.0 && n.abs() <= u64::MAX as f64).then_some(n as i128)
}

fn enumeration(of: &Enum, token: Token<'_>, written: Written) -> Result<i32, ValueError> {
    if let Token::Text(text) = token {
        if let Some(number) = of.numbers.get(text) {
            return Ok(*number);
        }
        if written == Written::InJson {
            return Err(ValueError::UnknownName);
        }
    }
    integer(token).and_then(|n| i32::try_from(n).ok()).ok_or(match token {
        Token::Text(_) => ValueError::UnknownName,
        _ => ValueError::Refused,
    })
}

/// The expected form of a field of this kind.
pub(crate) fn expected(schema: &Schema, kind: Kind) -> String {
    match kind {
        Kind::Bool => "true or false".to_owned(),
        Kind::Bytes => "text in base64".to_owned(),
        Kind::Double => "a number".to_owned(),
        Kind::Enum(at) => schema.enumeration(at).map_or_else(String::new, names),
        Kind::Float => "a number of 32 bits".to_owned(),
        Kind::Fixed32 | Kind::Uint32 => "a whole number of 32 bits, not negative".to_owned(),
        Kind::Fixed64 | Kind::Uint64 => "a whole number of 64 bits, not negative".to_owned(),
        Kind::Int32 | Kind::Sfixed32 | Kind::Sint32 => "a whole number of 32 bits".to_owned(),
        Kind::Int64 | Kind::Sfixed64 | Kind::Sint64 => "a whole number of 64 bits".to_owned(),
        Kind::Message(at) => {
            format!("an object ({})", schema.message(at).map_or("", |m| &*m.name))
        }
        Kind::String => "text".to_owned(),
    }
}

/// The names of an enum, up to a limit.
fn names(of: &Enum) -> String {
    const MOST: usize = 12;
    let mut names: Vec<&str> = of.names.iter().take(MOST).map(|(_, name)| &**name).collect();
    if of.names.len() > MOST {
        names.push("…");
    }
    format!("one of {}", names.join(", "))
}

/// A value, shortened for an error message.
pub(crate) fn shown(token: Token<'_>) -> String {
    match token {
        Token::Bool(b) => b.to_string(),
        Token::Float(n) => n.to_string(),
        Token::Integer(n) => n.to_string(),
        Token::Text(text) => format!("{:?}", short(text)),
    }
}

/// The beginning of a text.
pub(crate) fn short(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
