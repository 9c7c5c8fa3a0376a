//! Texts with placeholders, compiled to slots: `/items/{{id}}?tenant={{tenant}}`.
//!
//! Each placeholder is escaped for the place where it stands, so that a value cannot change the text around it.

use crate::filter::Filter;
use crate::scope::{Operand, Scope, Value};
use aws_lc_rs::hmac;
use base64::Engine as _;
use fastrand::Rng;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

/// A text with placeholders.
#[derive(Clone, Debug, Default)]
pub struct Template {
    pub(crate) pieces: Box<[Piece]>,
    pub(crate) form: Form,
}

/// What the whole text has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Any,
    /// The value of a header field: no CR, LF or NUL.
    Field,
    /// A URL or the path of one: visible ASCII.
    Url,
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Literal(Box<[u8]>),
    Value(Placeholder),
}

/// A placeholder and its filters.
#[derive(Clone, Debug)]
pub(crate) struct Placeholder {
    /// As written between the braces.
    pub(crate) text: Arc<str>,
    pub(crate) what: What,
    pub(crate) filters: Box<[Filter]>,
    /// Without a value, it writes nothing; else that fails the step.
    pub(crate) is_optional: bool,
    pub(crate) escape: Escape,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Base64(Template),
    Hmac {
        key: Template,
        text: Template,
    },
    Named(Operand),
    Now(Clock),
    /// Both ends included.
    Random(u64, u64),
    Uuid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Since the Unix epoch.
    Milliseconds,
    Rfc3339,
    /// Since the Unix epoch.
    Seconds,
}

/// How a value is made harmless for the text around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// Within the quotes of a JSON string.
    Json,
    /// A part of `multipart/form-data`: refused if it holds this boundary.
    Multipart(Arc<str>),
    None,
    /// Percent escapes for everything that RFC 3986 §2.3 does not call unreserved.
    Url,
    /// `|raw`: percent escapes only for what cannot stand in a URL, so that a value may be a path with its query.
    UrlRaw,
}

/// Everything but the unreserved characters of RFC 3986 §2.3.
pub(crate) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What cannot stand in the path and query of a URL (RFC 3986 §3.3 and §3.4). A `%` is that of an escape.
const FORBIDDEN: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Why a request could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The placeholder, as written between the braces; empty if it is about the whole text.
    pub placeholder: Arc<str>,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Absent,
    Boundary,
    Field,
    NotInt,
    Url,
}

impl Template {
    /// Appends the text. If it fails, `out` may end with a part of it.
    ///
    /// # Errors
    /// A name without a value, a line break in a header field, or what cannot stand in a URL.
    pub fn write(&self, scope: &Scope, out: &mut Vec<u8>, random: &mut Rng) -> Result<(), WriteFailure> {
        let from = out.len();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
                Piece::Value(placeholder) => placeholder.write(scope, out, random)?,
            }
        }
        let written = out.get(from..).unwrap_or_default();
        let why = match self.form {
            Form::Field if written.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) => Why::Field,
            Form::Url if !written.iter().all(u8::is_ascii_graphic) => Why::Url,
            _ => return Ok(()),
        };
        Err(WriteFailure { placeholder: Arc::default(), why })
    }

    /// The text, if it has no placeholders.
    pub fn fixed(&self) -> Option<&[u8]> {
        match &*self.pieces {
            [] => Some(&[]),
            [Piece::Literal(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// A JSON document with a text in place of each placeholder, so that its members can be checked before a value is
    /// known. Outside of a text, the placeholder becomes one.
    pub fn json_with(&self, stand_in: &str) -> Vec<u8> {
        let (mut out, mut in_text, mut is_escaped) = (Vec::new(), false, false);
        for piece in &self.pieces {
            match piece {
                Piece::Literal(bytes) => {
                    for byte in bytes {
                        in_text ^= *byte == b'"' && !is_escaped;
                        is_escaped = *byte == b'\\' && !is_escaped;
                    }
                    out.extend_from_slice(bytes);
                }
                Piece::Value(_) if in_text => out.extend_from_slice(stand_in.as_bytes()),
                Piece::Value(_) => out.extend_from_slice(format!("\"{stand_in}\"").as_bytes()),
            }
        }
        out
    }

    /// A text without placeholders.
    pub(crate) fn literal(text: impl Into<Box<[u8]>>) -> Self {
        Self { pieces: [Piece::Literal(text.into())].into(), form: Form::Any }
    }
}

impl Placeholder {
    fn write(&self, scope: &Scope, out: &mut Vec<u8>, random: &mut Rng) -> Result<(), WriteFailure> {
        // The common cases, without a buffer of their own: a name, and no filter.
        if let (What::Named(operand), []) = (&self.what, &*self.filters) {
            if let Some(text) = scope.text(*operand) {
                return self.escape(text, out);
            }
            if self.escape == Escape::None || scope.number(*operand).is_some() {
                return match self.write_plain(*operand, scope, out) {
                    true => Ok(()),
                    false if self.is_optional => Ok(()),
                    false => Err(self.fails(Why::Absent)),
                };
            }
        }
        let mut text = Vec::new();
        if self.filters.is_empty() {
            self.write_value(scope, &mut text, random)?;
        } else {
            let mut value = self.value(scope, random)?;
            for filter in &self.filters {
                value = filter.apply(value, random).map_err(|_| self.fails(Why::NotInt))?;
            }
            match &value {
                Value::Absent if !self.is_optional => return Err(self.fails(Why::Absent)),
                Value::Json(json) if self.filters.last() == Some(&Filter::Json) => {
                    drop(serde_json::to_writer(&mut text, json)); // writing to a Vec cannot fail
                }
                value => value.write(&mut text),
            }
        }
        self.escape(&text, out)
    }

    /// Appends the value of a name as it is. Returns whether there is one.
    fn write_plain(&self, operand: Operand, scope: &Scope, out: &mut Vec<u8>) -> bool {
        match operand {
            Operand::Cell { set, column } => {
                let cell = scope.cell(set, column);
                out.extend_from_slice(cell.unwrap_or_default());
                cell.is_some()
            }
            Operand::Constant(at) => {
                scope.constant(at).write(out);
                true
            }
            Operand::Kept(chain) => {
                let value = scope.kept(&chain);
                value.write(out);
                !matches!(value, Value::Absent)
            }
            number => {
                let number = scope.number(number).unwrap_or(0);
                drop(write!(out, "{number}")); // writing to a Vec cannot fail, here and below
                true
            }
        }
    }

    fn write_value(&self, scope: &Scope, out: &mut Vec<u8>, random: &mut Rng) -> Result<(), WriteFailure> {
        match &self.what {
            What::Named(operand) => {
                if !self.write_plain(*operand, scope, out) && !self.is_optional {
                    return Err(self.fails(Why::Absent));
                }
            }
            What::Base64(text) => {
                let mut plain = Vec::new();
                text.write(scope, &mut plain, random)?;
                out.extend_from_slice(base64::engine::general_purpose::STANDARD.encode(&plain).as_bytes());
            }
            What::Hmac { key, text } => {
                let (mut secret, mut plain) = (Vec::new(), Vec::new());
                key.write(scope, &mut secret, random)?;
                text.write(scope, &mut plain, random)?;
                let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
                for byte in hmac::sign(&key, &plain).as_ref() {
                    drop(write!(out, "{byte:02x}"));
                }
            }
            What::Now(Clock::Milliseconds) => drop(write!(out, "{}", scope.now().as_millis())),
            What::Now(Clock::Seconds) => drop(write!(out, "{}", scope.now().as_secs())),
            What::Now(Clock::Rfc3339) => {
                let second = i64::try_from(scope.now().as_secs()).unwrap_or(i64::MAX);
                out.extend_from_slice(rfc3339(second).as_bytes());
            }
            What::Random(least, most) => drop(write!(out, "{}", random.u64(*least..=*most))),
            What::Uuid => write_uuid(out, random),
        }
        Ok(())
    }

    /// The value before its filters.
    fn value(&self, scope: &Scope, random: &mut Rng) -> Result<Value, WriteFailure> {
        Ok(match &self.what {
            What::Named(Operand::Kept(chain)) => scope.kept(chain).clone(),
            What::Named(Operand::Constant(at)) => scope.constant(*at).clone(),
            What::Named(Operand::Cell { set, column }) => {
                scope.cell(*set, *column).map_or(Value::Absent, |text| Value::Text(text.to_vec()))
            }
            What::Named(number) => {
                Value::Int(scope.number(*number).and_then(|n| i64::try_from(n).ok()).unwrap_or(i64::MAX))
            }
            _ => {
                let mut text = Vec::new();
                self.write_value(scope, &mut text, random)?;
                Value::Text(text)
            }
        })
    }

    pub(crate) fn escape(&self, text: &[u8], out: &mut Vec<u8>) -> Result<(), WriteFailure> {
        match &self.escape {
            Escape::None => out.extend_from_slice(text),
            Escape::Url => {
                percent_encode(text, RESERVED).for_each(|part| out.extend_from_slice(part.as_bytes()))
            }
            Escape::UrlRaw => {
                percent_encode(text, FORBIDDEN).for_each(|part| out.extend_from_slice(part.as_bytes()))
            }
            Escape::Form => {
                for (i, words) in text.split(|b| *b == b' ').enumerate() {
                    out.extend((i > 0).then_some(b'+'));
                    percent_encode(words, RESERVED).for_each(|part| out.extend_from_slice(part.as_bytes()));
                }
            }
            Escape::Json => {
                let from = out.len();
                // Writing to a Vec cannot fail.
                drop(serde_json::to_writer(&mut *out, &String::from_utf8_lossy(text)));
                out.pop();
                out.remove(from);
            }
            Escape::Multipart(boundary) => {
                if memchr::memmem::find(text, boundary.as_bytes()).is_some() {
                    return Err(self.fails(Why::Boundary));
                }
                out.extend_from_slice(text);
            }
        }
        Ok(())
    }

    fn fails(&self, why: Why) -> WriteFailure {
        WriteFailure { placeholder: Arc::clone(&self.text), why }
    }
}

/// RFC 9562 §5.4, version 4.
fn write_uuid(out: &mut Vec<u8>, random: &mut Rng) {
    let (a, b) = (random.u64(..), random.u64(..));
    // Writing to a Vec cannot fail.
    drop(write!(
        out,
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        0x8000 | (b >> 48 & 0x3fff),
        b & 0xffff_ffff_ffff
    ));
}

/// `2026-01-31T12:00:00Z` of a time since the Unix epoch, by the civil calendar (Howard Hinnant, 2013).
fn rfc3339(second: i64) -> String {
    let (days, second) = (second.div_euclid(86_400), second.rem_euclid(86_400));
    let z = days.saturating_add(719_468);
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153; // months from March
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

impl fmt::Display for WriteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.placeholder;
        match self.why {
            Why::Absent => write!(f, "`{{{{{name}}}}}` has no value: no step that ran has kept one"),
            Why::Boundary => write!(f, "`{{{{{name}}}}}` holds the boundary of the multipart body"),
            Why::Field => write!(f, "a header value would hold a line break or NUL"),
            Why::NotInt => write!(f, "`{{{{{name}}}}}` is not a whole number"),
            Why::Url => write!(f, "the URL would hold a space, a control character or one that is not ASCII"),
        }
    }
}

impl std::error::Error for WriteFailure {}
