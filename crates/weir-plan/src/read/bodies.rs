//! Bodies and messages of steps: text, JSON, forms, multipart, files.

use super::names::Names;
use super::texts::{Pieces, Span, Wrong, spans};
use crate::template::{Escape, Form, Piece, RESERVED, Template};
use percent_encoding::utf8_percent_encode;
use std::sync::Arc;
use weir_config::{Node, Value};

/// A mistake in a body: the node that holds the text, and what is wrong there.
pub(super) type WrongIn<'n> = (&'n Node, Wrong);

/// A body of JSON. Texts in it are escaped as JSON. A text that is only a placeholder with `|int` or `|json` is not
/// quoted.
pub(super) fn json<'n>(node: &'n Node, names: &mut Names<'_>) -> Result<Template, Vec<WrongIn<'n>>> {
    let mut writer = Json { pieces: Pieces::default(), wrong: Vec::new() };
    writer.node(node, names);
    match writer.pieces.finish(Form::Any) {
        Ok(template) if writer.wrong.is_empty() => Ok(template),
        _ => Err(writer.wrong),
    }
}

struct Json<'n> {
    pieces: Pieces,
    wrong: Vec<WrongIn<'n>>,
}

impl<'n> Json<'n> {
    /// The parser of YAML bounds the depth.
    fn node(&mut self, node: &'n Node, names: &mut Names<'_>) {
        match &node.value {
            Value::Null => self.pieces.literal(b"null"),
            Value::Bool(is) => self.pieces.literal(is.to_string().as_bytes()),
            Value::Int(number) => self.pieces.literal(number.to_string().as_bytes()),
            Value::Float(number) => {
                let number = serde_json::Number::from_f64(*number);
                self.pieces.literal(number.map_or_else(|| "null".to_owned(), |n| n.to_string()).as_bytes());
            }
            Value::Str(text) => self.text(text, node, names),
            Value::Seq(items) => {
                self.pieces.literal(b"[");
                for (i, item) in items.iter().enumerate() {
                    self.pieces.literal(if i > 0 { b"," } else { b"" });
                    self.node(item, names);
                }
                self.pieces.literal(b"]");
            }
            Value::Map(entries) => {
                self.pieces.literal(b"{");
                for (i, (key, value)) in entries.iter().enumerate() {
                    self.pieces.literal(if i > 0 { b"," } else { b"" });
                    self.quoted(&key.text, value, names);
                    self.pieces.literal(b":");
                    self.node(value, names);
                }
                self.pieces.literal(b"}");
            }
        }
    }

    fn text(&mut self, text: &str, node: &'n Node, names: &mut Names<'_>) {
        if let Ok(spans) = spans(text)
            && let [Span::Placeholder(range)] = &spans[..]
        {
            let inside = text.get(range.clone()).unwrap_or_default();
            let last = inside.rsplit('|').next().filter(|_| inside.contains('|')).unwrap_or_default().trim();
            if matches!(last, "int" | "json") {
                let mut own = Pieces::default();
                own.placeholder(text, range.clone(), &Escape::None, names);
                return self.take(own, node);
            }
        }
        self.quoted(text, node, names);
    }

    fn quoted(&mut self, text: &str, node: &'n Node, names: &mut Names<'_>) {
        let mut own = Pieces::default();
        own.literal(b"\"");
        own.add_with(text, &Escape::Json, names, |literal| {
            let quoted = serde_json::Value::from(literal).to_string();
            quoted.get(1..quoted.len() - 1).unwrap_or_default().as_bytes().to_vec()
        });
        own.literal(b"\"");
        self.take(own, node);
    }

    /// Adds the pieces of a text of this node, or its mistakes.
    fn take(&mut self, own: Pieces, node: &'n Node) {
        match own.finish(Form::Any) {
            Ok(template) => self.pieces.append(template),
            Err(wrong) => self.wrong.extend(wrong.into_iter().map(|wrong| (node, wrong))),
        }
    }
}

/// A form, by the rules of URLs. `node` is the map, which mistakes point into.
pub(super) fn form<'n>(
    fields: &[(String, String)],
    node: &'n Node,
    names: &mut Names<'_>,
) -> Result<Template, Vec<WrongIn<'n>>> {
    let encoded = |text: &str| {
        let words = text.split(' ').map(|word| utf8_percent_encode(word, RESERVED).to_string());
        words.collect::<Vec<_>>().join("+").into_bytes()
    };
    let mut all = Pieces::default();
    let mut wrong = Vec::new();
    for (i, (name, value)) in fields.iter().enumerate() {
        all.literal(if i > 0 { b"&" } else { b"" });
        all.literal(&encoded(name));
        all.literal(b"=");
        let mut own = Pieces::default();
        own.add_with(value, &Escape::Form, names, encoded);
        match own.finish(Form::Any) {
            Ok(template) => all.append(template),
            Err(more) => {
                let at = node.get(name).unwrap_or(node);
                wrong.extend(more.into_iter().map(|wrong| (at, wrong)));
            }
        }
    }
    match all.finish(Form::Any) {
        Ok(template) if wrong.is_empty() => Ok(template),
        _ => Err(wrong),
    }
}

/// A part of a multipart body, its file read.
pub(super) struct Part<'n> {
    pub(super) name: &'n str,
    pub(super) value: PartValue<'n>,
    pub(super) filename: Option<&'n str>,
    pub(super) media: Option<&'n str>,
    pub(super) node: &'n Node,
}

pub(super) enum PartValue<'n> {
    File(Vec<u8>),
    Text(&'n str),
}

/// A body of `multipart/form-data` (RFC 7578), and its boundary.
pub(super) fn multipart<'n>(
    parts: &[Part<'n>],
    names: &mut Names<'_>,
) -> Result<(Template, Arc<str>), Vec<WrongIn<'n>>> {
    let boundary = boundary(parts);
    let escape = Escape::Multipart(Arc::clone(&boundary));
    let mut all = Pieces::default();
    let mut wrong = Vec::new();
    for part in parts {
        let mut head =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", quoted(part.name));
        if let Some(filename) = part.filename {
            head.push_str(&format!("; filename=\"{}\"", quoted(filename)));
        }
        if let Some(media) = part.media {
            head.push_str(&format!("\r\nContent-Type: {media}"));
        }
        head.push_str("\r\n\r\n");
        all.literal(head.as_bytes());
        match &part.value {
            PartValue::File(content) => all.literal(content),
            PartValue::Text(text) => {
                let mut own = Pieces::default();
                own.add(text, &escape, names);
                match own.finish(Form::Any) {
                    Ok(template) => all.append(template),
                    Err(more) => wrong.extend(more.into_iter().map(|wrong| (part.node, wrong))),
                }
            }
        }
        all.literal(b"\r\n");
    }
    all.literal(format!("--{boundary}--\r\n").as_bytes());
    match all.finish(Form::Any) {
        Ok(template) if wrong.is_empty() => Ok((template, boundary)),
        _ => Err(wrong),
    }
}

/// A boundary that no fixed part of the body holds. The same plan always has the same one.
fn boundary(parts: &[Part<'_>]) -> Arc<str> {
    let holds = |boundary: &str| {
        parts.iter().any(|part| match &part.value {
            PartValue::File(content) => memchr::memmem::find(content, boundary.as_bytes()).is_some(),
            PartValue::Text(text) => text.contains(boundary),
        })
    };
    let numbered = |number: u32| format!("weir-plan-boundary-{number:08x}");
    let free = (0..=u32::MAX).map(numbered).find(|boundary| !holds(boundary));
    free.unwrap_or_else(|| numbered(0)).into()
}

/// Within the quotes of Content-Disposition, as browsers write it (WHATWG HTML, multipart/form-data encoding).
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

impl Pieces {
    /// Adds a compiled text.
    pub(super) fn append(&mut self, template: Template) {
        for piece in template.pieces {
            match piece {
                Piece::Literal(bytes) => self.literal(&bytes),
                value @ Piece::Value(_) => self.push(value),
            }
        }
    }
}
