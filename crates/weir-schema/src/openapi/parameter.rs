//! Parameters: how their text becomes JSON (`style` and `explode` of OpenAPI), and whether that fits.

use crate::fault::{Fault, Part};
use crate::json::{self, Limits};
use crate::schema::Schema;
use percent_encoding::percent_decode;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Most items of a list in a parameter.
const ITEMS: usize = 1024;

/// What JSON in a parameter may be.
const LIMITS: Limits = Limits { depth: 32, values: 4096 };

/// How several values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    DeepObject,
    Form,
    Label,
    Matrix,
    PipeDelimited,
    Simple,
    SpaceDelimited,
}

impl Style {
    /// The style of a name in OpenAPI, where a parameter of this part may have it.
    pub(super) fn of(name: Option<&str>, part: Part) -> Option<Self> {
        Some(match (name, part) {
            (None | Some("simple"), Part::Path | Part::Header) => Self::Simple,
            (None | Some("form"), Part::Query | Part::Cookie) => Self::Form,
            (Some("deepObject"), Part::Query) => Self::DeepObject,
            (Some("pipeDelimited"), Part::Query) => Self::PipeDelimited,
            (Some("spaceDelimited"), Part::Query) => Self::SpaceDelimited,
            (Some("label"), Part::Path) => Self::Label,
            (Some("matrix"), Part::Path) => Self::Matrix,
            _ => return None,
        })
    }
}

/// Which scalars a schema takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) boolean: bool,
    pub(super) null: bool,
    pub(super) number: bool,
    /// Numbers need not be whole. If they must, `1e0` is none: few readers of whole numbers take it.
    pub(super) fraction: bool,
    pub(super) text: bool,
}

/// What a parameter's text is.
#[derive(Debug)]
pub(super) enum Shape {
    /// JSON: the parameter has `content`.
    Json,
    List(Kinds),
    /// The known properties, and what others are.
    Object(Vec<(String, Kinds)>, Kinds),
    Scalar(Kinds),
}

/// A parameter, or a header field of an answer.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) part: Part,
    pub(super) required: bool,
    pub(super) allow_empty: bool,
    pub(super) style: Style,
    pub(super) explode: bool,
    pub(super) shape: Shape,
    pub(super) schema: Option<Arc<Schema>>,
}

/// Where the parameters of one message are.
pub struct Parts<'a> {
    /// What stands in the path in place of names, still encoded.
    pub captures: &'a [(&'a str, &'a [u8])],
    /// The query, still encoded.
    pub query: &'a [u8],
    /// The values of a header field.
    pub headers: &'a dyn Fn(&str) -> Vec<&'a [u8]>,
    /// The values of a cookie.
    pub cookies: &'a dyn Fn(&str) -> Vec<&'a [u8]>,
}

/// What is wrong with the text of a parameter.
pub(super) type Wrong = &'static str;

const TWICE: Wrong = "is given more than once";
const UNCODED: Wrong = "is not percent-encoded UTF-8";
const UNPAIRED: Wrong = "is not written as names and values";

impl Parameter {
    /// What is wrong with it in a message.
    pub(super) fn fault(&self, parts: &Parts<'_>) -> Option<Fault> {
        let fault = |detail: &str| Some(Fault::of(self.part, &self.name, detail));
        let typed = match self.read(parts, true) {
            Ok(None) if self.required => return fault("is missing"),
            Ok(None) => return None,
            Ok(Some(typed)) => typed,
            Err(wrong) => return fault(wrong),
        };
        let schema = self.schema.as_ref()?;
        let wrong = schema.fault_of(&typed)?;
        // `5` may be meant as the text.
        if self.takes_text()
            && let Ok(Some(texts)) = self.read(parts, false)
            && schema.fault_of(&texts).is_none()
        {
            return None;
        }
        fault(&wrong)
    }

    /// Its value in a form; none if it is not there. Its schema decides whether `5` is meant as a number or as a text.
    pub(super) fn chosen(&self, form: &[u8]) -> Result<Option<Value>, Wrong> {
        let typed = self.of_query(form, true)?;
        let fits = |value: &Value| self.schema.as_ref().is_none_or(|schema| schema.fault_of(value).is_none());
        if self.takes_text()
            && typed.as_ref().is_some_and(|typed| !fits(typed))
            && let Some(texts) = self.of_query(form, false)?
            && fits(&texts)
        {
            return Ok(Some(texts));
        }
        Ok(typed)
    }

    /// Whether a field of a form belongs to it.
    pub(super) fn owns(&self, field: &str) -> bool {
        match (&self.shape, self.style, self.explode) {
            (Shape::Object(..), Style::DeepObject, _) => field
                .strip_prefix(self.name.as_str())
                .is_some_and(|rest| rest.starts_with('[') && rest.ends_with(']')),
            (Shape::Object(known, _), Style::Form, true) => known.iter().any(|(known, _)| known == field),
            _ => field == self.name,
        }
    }

    fn takes_text(&self) -> bool {
        match &self.shape {
            Shape::Json => false,
            Shape::List(kinds) | Shape::Scalar(kinds) => kinds.text,
            Shape::Object(known, others) => others.text || known.iter().any(|(_, kinds)| kinds.text),
        }
    }

    /// Its value; none if it is not there.
    fn read(&self, parts: &Parts<'_>, typed: bool) -> Result<Option<Value>, Wrong> {
        match self.part {
            Part::Query => self.of_query(parts.query, typed),
            Part::Path => {
                let found = parts.captures.iter().find(|(name, _)| *name == self.name);
                found
                    .map(|(_, text)| self.of_text(&self.without_prefix(text)?, &unescaped, typed))
                    .transpose()
            }
            Part::Cookie => {
                let all = (parts.cookies)(&self.name);
                match (all.as_slice(), &self.shape) {
                    ([], _) => Ok(None),
                    ([one], _) => self.of_text(one, &unescaped, typed).map(Some),
                    (many, Shape::List(kinds)) if self.explode => {
                        list(many.iter().copied(), *kinds, &unescaped, typed)
                    }
                    _ => Err(TWICE),
                }
            }
            _ => {
                let all = (parts.headers)(&self.name);
                match (all.as_slice(), &self.shape) {
                    ([], _) => Ok(None),
                    ([one], _) => self.of_text(one, &as_it_is, typed).map(Some),
                    // RFC 9110 §5.3: only lists may come in several lines.
                    (many, Shape::List(_) | Shape::Object(..)) => {
                        self.of_text(&many.join(&b","[..]), &as_it_is, typed).map(Some)
                    }
                    _ => Err(TWICE),
                }
            }
        }
    }

    /// A path's text without what `label` and `matrix` put before it.
    fn without_prefix(&self, text: &[u8]) -> Result<Vec<u8>, Wrong> {
        let own = format!(";{}=", self.name);
        match self.style {
            Style::Label => text.strip_prefix(b".").map(<[u8]>::to_vec).ok_or("does not begin with a dot"),
            Style::Matrix => {
                let text = match (&self.shape, self.explode) {
                    (Shape::Object(..), true) => text.strip_prefix(b";"),
                    _ => text.strip_prefix(own.as_bytes()),
                };
                text.map(<[u8]>::to_vec).ok_or("does not begin with `;` and its name")
            }
            _ => Ok(text.to_vec()),
        }
    }

    /// The value of one text.
    fn of_text(&self, text: &[u8], decode: Decode<'_>, typed: bool) -> Result<Value, Wrong> {
        let own = format!(";{}=", self.name);
        let separator: &[u8] = match (self.style, self.explode, &self.shape) {
            (Style::Label, true, _) => b".",
            (Style::Matrix, true, Shape::Object(..)) => b";",
            (Style::Matrix, true, _) => own.as_bytes(),
            _ => b",",
        };
        match &self.shape {
            Shape::Json => {
                let text = decode(text)?;
                json::parse(text.as_bytes(), LIMITS)
                    .map(|read| read.value)
                    .map_err(|_| "is not taken as JSON")
            }
            Shape::Scalar(kinds) => Ok(scalar(decode(text)?, *kinds, typed)),
            Shape::List(_) if text.is_empty() => Ok(Value::Array(Vec::new())),
            Shape::List(kinds) => {
                list(split(text, separator), *kinds, decode, typed).map(|all| all.unwrap_or_default())
            }
            Shape::Object(..) if self.explode => {
                let pairs = split(text, separator).map(|pair| {
                    let at = pair.iter().position(|&b| b == b'=').ok_or(UNPAIRED)?;
                    Ok((pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default()))
                });
                self.object(pairs, decode, typed)
            }
            Shape::Object(..) => {
                let all: Vec<&[u8]> = split(text, separator).take(2 * ITEMS + 2).collect();
                let pairs = all.chunks(2).map(|pair| match pair {
                    [name, value] => Ok((*name, *value)),
                    _ => Err(UNPAIRED),
                });
                self.object(pairs, decode, typed)
            }
        }
    }

    fn of_query(&self, query: &[u8], typed: bool) -> Result<Option<Value>, Wrong> {
        let pairs = || {
            query.split(|&b| b == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
                let at = pair.iter().position(|&b| b == b'=');
                (
                    pair.get(..at.unwrap_or(pair.len())).unwrap_or_default(),
                    at.and_then(|at| pair.get(at + 1..)),
                )
            })
        };
        let named = |name: &[u8]| plus(name).is_ok_and(|name| name == self.name);
        match (&self.shape, self.style, self.explode) {
            (Shape::Object(..), Style::DeepObject, _) => {
                let mut inner = Vec::new();
                for (name, value) in pairs() {
                    let Ok(name) = plus(name) else { continue };
                    let property = name
                        .strip_prefix(self.name.as_str())
                        .and_then(|n| n.strip_prefix('[')?.strip_suffix(']'));
                    if let Some(property) = property {
                        inner.push((property.to_owned(), value.unwrap_or_default()));
                    }
                }
                if inner.is_empty() {
                    return Ok(None);
                }
                self.object(inner.iter().map(|(name, value)| Ok((name.as_bytes(), *value))), &plus, typed)
                    .map(Some)
            }
            (Shape::Object(known, _), Style::Form, true) => {
                let of_it =
                    |name: &[u8]| plus(name).is_ok_and(|name| known.iter().any(|(known, _)| *known == name));
                let own: Vec<_> = pairs().filter(|(name, _)| of_it(name)).collect();
                if own.is_empty() {
                    return Ok(None);
                }
                let own = own.into_iter().map(|(name, value)| Ok((name, value.unwrap_or_default())));
                self.object(own, &plus, typed).map(Some)
            }
            _ => {
                let all: Vec<&[u8]> = pairs()
                    .filter(|(name, _)| named(name))
                    .map(|(_, value)| value.unwrap_or_default())
                    .collect();
                match (all.as_slice(), &self.shape) {
                    ([], _) => Ok(None),
                    ([b""], _) if self.allow_empty => Ok(None),
                    (many, Shape::List(kinds)) if self.explode => {
                        list(many.iter().copied(), *kinds, &plus, typed)
                    }
                    ([one], Shape::List(kinds)) => list(split_by(one, self.style), *kinds, &plus, typed),
                    ([one], Shape::Object(..)) => {
                        let all: Vec<&[u8]> = split_by(one, self.style).take(2 * ITEMS + 2).collect();
                        let pairs = all.chunks(2).map(|pair| match pair {
                            [name, value] => Ok((*name, *value)),
                            _ => Err(UNPAIRED),
                        });
                        self.object(pairs, &plus, typed).map(Some)
                    }
                    ([one], _) => self.of_text(one, &plus, typed).map(Some),
                    _ => Err(TWICE),
                }
            }
        }
    }

    fn object<'t>(
        &self,
        pairs: impl Iterator<Item = Result<(&'t [u8], &'t [u8]), Wrong>>,
        decode: Decode<'_>,
        typed: bool,
    ) -> Result<Value, Wrong> {
        let Shape::Object(known, others) = &self.shape else { return Ok(Value::Null) };
        let mut map = Map::new();
        for pair in pairs {
            let (name, value) = pair?;
            let name = decode(name)?;
            let kinds = known.iter().find(|(known, _)| *known == name).map_or(*others, |(_, kinds)| *kinds);
            let value = scalar(decode(value)?, kinds, typed);
            if map.insert(name, value).is_some() {
                return Err(TWICE);
            }
            if map.len() > ITEMS {
                return Err("has too many members");
            }
        }
        Ok(Value::Object(map))
    }
}

/// How text is decoded.
type Decode<'d> = &'d dyn Fn(&[u8]) -> Result<String, Wrong>;

fn list<'t>(
    items: impl Iterator<Item = &'t [u8]>,
    kinds: Kinds,
    decode: Decode<'_>,
    typed: bool,
) -> Result<Option<Value>, Wrong> {
    let mut all = Vec::new();
    for item in items {
        if all.len() == ITEMS {
            return Err("has too many items");
        }
        all.push(scalar(decode(item)?, kinds, typed));
    }
    Ok(Some(Value::Array(all)))
}

/// The first kind of value that a text can be.
pub(super) fn scalar(text: String, kinds: Kinds, typed: bool) -> Value {
    if !typed {
        return Value::String(text);
    }
    if kinds.number
        && (kinds.fraction || !text.contains(['.', 'e', 'E']))
        && text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && let Ok(number @ Value::Number(_)) = serde_json::from_str(&text)
    {
        return number;
    }
    match text.as_str() {
        "true" if kinds.boolean => Value::Bool(true),
        "false" if kinds.boolean => Value::Bool(false),
        "" if kinds.null && !kinds.text => Value::Null,
        _ => Value::String(text),
    }
}

fn split<'t>(text: &'t [u8], separator: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = text.windows(separator.len().max(1)).position(|window| window == separator);
        rest = at.and_then(|at| text.get(at + separator.len()..));
        text.get(..at.unwrap_or(text.len()))
    })
}

/// Splits a value of the query. Spaces and pipes are mostly encoded.
fn split_by(text: &[u8], style: Style) -> impl Iterator<Item = &[u8]> {
    let (plain, coded): (&[u8], &[u8]) = match style {
        Style::SpaceDelimited => (b"+", b"%20"),
        Style::PipeDelimited => (b"|", b"%7C"),
        _ => (b",", b","),
    };
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = (0..text.len()).find_map(|at| {
            let from = text.get(at..)?;
            let coded_here = from.get(..coded.len()).is_some_and(|here| here.eq_ignore_ascii_case(coded));
            if coded_here {
                Some((at, coded.len()))
            } else {
                from.starts_with(plain).then_some((at, plain.len()))
            }
        });
        rest = at.and_then(|(at, length)| text.get(at + length..));
        text.get(..at.map_or(text.len(), |(at, _)| at))
    })
}

/// As in paths and cookies.
fn unescaped(text: &[u8]) -> Result<String, Wrong> {
    let is_hex = |at: usize| text.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut escapes = text.iter().enumerate().filter(|(_, b)| **b == b'%');
    if escapes.any(|(at, _)| !is_hex(at + 1) || !is_hex(at + 2)) {
        return Err(UNCODED);
    }
    percent_decode(text).decode_utf8().map(std::borrow::Cow::into_owned).map_err(|_| UNCODED)
}

/// As in queries, where `+` is a space.
pub(super) fn plus(text: &[u8]) -> Result<String, Wrong> {
    if !text.contains(&b'+') {
        return unescaped(text);
    }
    let spaced: Vec<u8> = text.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
    unescaped(&spaced)
}

/// As in header fields.
fn as_it_is(text: &[u8]) -> Result<String, Wrong> {
    str::from_utf8(text.trim_ascii()).map(str::to_owned).map_err(|_| "is not UTF-8")
}
