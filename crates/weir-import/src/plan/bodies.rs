//! Bodies of requests as they were sent: forms, JSON, multipart and other texts, taken apart by their media types.

use super::json::{self, Node, Value as Tree};
use super::request::{Slot, VARIABLE, Where, json_scalar};
use super::text;
use crate::yaml::{Map, Value};

/// Most parts of a multipart body.
const PARTS: usize = 100;
/// Deepest JSON that is written as a tree. Plans nest at most 64 deep, and their own levels count.
const DEPTH: usize = 40;
/// Largest JSON that is written as a tree. A longer one is a text.
pub(super) const TREE_BYTES: usize = 256 << 10;

/// The body of a request.
#[derive(Clone, Debug, Default)]
pub enum SentBody {
    /// A form. No name comes twice.
    Form(Vec<(String, Slot)>),
    /// JSON.
    Json(Json),
    /// Parts.
    Multipart(Vec<SentPart>),
    /// None.
    #[default]
    None,
    /// Anything else.
    Text(Slot),
}

/// A part of a multipart body.
#[derive(Clone, Debug, Default)]
pub struct SentPart {
    /// The name of the field.
    pub name: String,
    /// Its value.
    pub value: Slot,
    /// The path of its file.
    pub file: Option<String>,
    /// The file's name as sent.
    pub filename: Option<String>,
    /// Its media type.
    pub media: Option<String>,
}

/// JSON whose texts and numbers may be replaced.
#[derive(Clone, Debug)]
pub struct Json {
    shape: Shape,
    /// Texts and numbers in the order of the document, each with its key and whether it is a number.
    leaves: Vec<(String, Slot, bool)>,
}

#[derive(Clone, Debug)]
enum Shape {
    Bool(bool),
    Leaf(usize),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
    Null,
}

impl SentBody {
    /// A body of this media type.
    #[must_use]
    pub fn of(media: &str, body: &str) -> Self {
        if body.is_empty() {
            return Self::None;
        }
        let media_type = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let taken_apart = match &*media_type {
            "application/x-www-form-urlencoded" => form(body),
            "multipart/form-data" => multipart(media, body),
            _ if media_type.ends_with("json") => Json::of(body).map(Self::Json),
            _ => None,
        };
        taken_apart.unwrap_or_else(|| Self::Text(Slot::plain(body)))
    }

    /// All parts, each with the name of its field.
    pub fn each_slot(&mut self, visit: &mut impl FnMut(Where<'_>, &mut Slot)) {
        match self {
            Self::None => {}
            Self::Text(slot) => visit(Where::Body, slot),
            Self::Form(fields) => fields.iter_mut().for_each(|(name, slot)| visit(Where::Form(name), slot)),
            Self::Json(json) => {
                json.leaves.iter_mut().for_each(|(key, slot, _)| visit(Where::Json(key), slot))
            }
            Self::Multipart(parts) => {
                parts.iter_mut().for_each(|part| visit(Where::Part(&part.name), &mut part.value));
            }
        }
    }
}

/// A form, unless a name comes twice or an escape is no UTF-8: a map of the plan cannot say these.
fn form(body: &str) -> Option<SentBody> {
    let mut fields: Vec<(String, Slot)> = Vec::new();
    for (name, value) in text::pairs(body) {
        let name = text::form_decoded(name)?;
        let value = value?;
        text::form_decoded(value)?;
        if name.contains(VARIABLE) || fields.iter().any(|(known, _)| *known == name) {
            return None;
        }
        fields.push((name, Slot::of_url(value, true)));
    }
    (!fields.is_empty()).then_some(SentBody::Form(fields))
}

/// A body of `multipart/form-data` (RFC 7578). Parts with binary content are left out, so that the body stays a text.
fn multipart(media: &str, body: &str) -> Option<SentBody> {
    let boundary = media.split(';').find_map(|part| part.trim().strip_prefix("boundary="))?.trim_matches('"');
    if boundary.is_empty() || boundary.len() > 100 {
        return None;
    }
    let mark = format!("--{boundary}");
    let mut parts = Vec::new();
    for piece in body.split(&*mark).skip(1) {
        if piece.starts_with("--") {
            break;
        }
        let piece = piece.strip_prefix("\r\n").or_else(|| piece.strip_prefix('\n'))?;
        let (head, content) = piece.split_once("\r\n\r\n").or_else(|| piece.split_once("\n\n"))?;
        let content = content.strip_suffix("\r\n").or_else(|| content.strip_suffix('\n')).unwrap_or(content);
        let mut part = SentPart { value: Slot::plain(content), ..SentPart::default() };
        for line in head.lines() {
            let (name, value) = line.split_once(':')?;
            match &*name.trim().to_ascii_lowercase() {
                "content-disposition" => {
                    part.name = parameter(value, "name")?;
                    part.filename = parameter(value, "filename");
                }
                "content-type" => part.media = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        if part.name.is_empty() || parts.len() >= PARTS || content.contains('\u{fffd}') {
            return None;
        }
        parts.push(part);
    }
    (!parts.is_empty()).then_some(SentBody::Multipart(parts))
}

/// A parameter of Content-Disposition.
fn parameter(text: &str, name: &str) -> Option<String> {
    let found = text.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))?;
    Some(found.trim().trim_matches('"').replace("%22", "\""))
        .filter(|value| !value.chars().any(char::is_control))
}

impl Json {
    /// JSON of a text, unless a plan would change it: numbers that lose digits, depth.
    #[must_use]
    pub fn of(body: &str) -> Option<Self> {
        // An escape of JSON must not become a mark for a variable of the shell.
        let has_mark = |escape: &str| body.contains('\\') && body.to_ascii_lowercase().contains(escape);
        if body.len() > TREE_BYTES || has_mark("\\ue002") || has_mark("\\ue003") {
            return None;
        }
        Self::of_node(&json::parse(body).ok()?)
    }

    /// JSON of a tree, unless a plan would change it.
    #[must_use]
    pub fn of_node(node: &Node<'_>) -> Option<Self> {
        if !matches!(node.value, Tree::Map(_) | Tree::List(_)) {
            return None;
        }
        let mut leaves = Vec::new();
        let shape = shape(node, "", 0, &mut leaves)?;
        Some(Self { shape, leaves })
    }

    /// As a value of the plan.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.value(&self.shape)
    }

    fn value(&self, shape: &Shape) -> Value {
        match shape {
            Shape::Null => Value::Plain("null".to_owned()),
            Shape::Bool(flag) => Value::Bool(*flag),
            Shape::Leaf(at) => match self.leaves.get(*at) {
                Some((_, slot, is_number)) => json_scalar(slot, *is_number),
                None => Value::Plain("null".to_owned()),
            },
            Shape::List(items) => Value::List(items.iter().map(|item| self.value(item)).collect()),
            Shape::Map(entries) => {
                let mut map = Map::new();
                entries.iter().for_each(|(key, shape)| map.push(text::literal(key), self.value(shape)));
                map.into()
            }
        }
    }
}

fn shape(node: &Node<'_>, key: &str, depth: usize, leaves: &mut Vec<(String, Slot, bool)>) -> Option<Shape> {
    if depth > DEPTH {
        return None;
    }
    Some(match &node.value {
        Tree::Null => Shape::Null,
        Tree::Bool(flag) => Shape::Bool(*flag),
        Tree::Number(number) => {
            if !is_kept(number) {
                return None;
            }
            leaves.push((key.to_owned(), Slot::plain(number), true));
            Shape::Leaf(leaves.len() - 1)
        }
        Tree::Text(text) => {
            leaves.push((key.to_owned(), Slot::plain(text), false));
            Shape::Leaf(leaves.len() - 1)
        }
        Tree::List(items) => {
            Shape::List(items.iter().map(|item| shape(item, key, depth + 1, leaves)).collect::<Option<_>>()?)
        }
        Tree::Map(entries) => {
            let mut map = Vec::new();
            for (key, node) in entries {
                if key.contains(VARIABLE) || key == "<<" {
                    return None;
                }
                map.push((key.to_string(), shape(node, key, depth + 1, leaves)?));
            }
            Shape::Map(map)
        }
    })
}

/// Whether a plan sends a number with the same digits.
fn is_kept(number: &str) -> bool {
    if let Ok(whole) = number.parse::<i64>() {
        return whole.to_string() == number;
    }
    let float = number.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
    float.is_some_and(|float| float.to_string() == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_taken_apart_by_their_types() {
        let kind = |media: &str, body: &str| match SentBody::of(media, body) {
            SentBody::None => "none",
            SentBody::Form(_) => "form",
            SentBody::Json(_) => "json",
            SentBody::Multipart(_) => "multipart",
            SentBody::Text(_) => "text",
        };
        for (media, body, want) in [
            ("application/json", "", "none"),
            ("application/json; charset=utf-8", "{\"a\":1}", "json"),
            ("application/vnd.api+json", "[1]", "json"),
            ("application/json", "{\"a\":1.50}", "text"),
            ("application/json", "{\"a\":12345678901234567890}", "text"),
            ("application/json", "{", "text"),
            ("application/x-www-form-urlencoded", "a=1&b=%20+", "form"),
            ("application/x-www-form-urlencoded", "a=1&a=2", "text"),
            ("application/x-www-form-urlencoded", "a=%ff", "text"),
            ("text/plain", "a=1", "text"),
        ] {
            assert_eq!(kind(media, body), want, "{media} {body}");
        }
        let body = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\nhi\r\n--x--\r\n";
        assert_eq!(kind("multipart/form-data; boundary=x", body), "multipart");
    }
}
