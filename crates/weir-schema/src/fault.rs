//! What is wrong with a message, in words for whoever sent it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// Most faults named of one message.
pub const MOST_FAULTS: usize = 16;

/// Longest description of a fault, in characters. Parts of it can come from the message.
pub const DETAIL_CHARS: usize = 200;

/// Longest pointer or name shown, in characters.
const PLACE_CHARS: usize = 200;

/// What a URI fragment takes as it is (RFC 3986 §3.5), as JSON pointers are written in one (RFC 6901 §6).
const FRAGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'?');

/// The part of a message that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The body.
    Body,
    /// A cookie.
    Cookie,
    /// A header field.
    Header,
    /// The method.
    Method,
    /// A parameter in the path, or the path itself.
    Path,
    /// A parameter in the query.
    Query,
    /// The status of an answer.
    Status,
}

impl Part {
    /// Its name, as `in` of OpenAPI has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Cookie => "cookie",
            Self::Header => "header",
            Self::Method => "method",
            Self::Path => "path",
            Self::Query => "query",
            Self::Status => "status",
        }
    }
}

/// One thing that is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub part: Part,
    /// The parameter, if it is one.
    pub name: Option<String>,
    /// Where in the JSON: a JSON pointer (RFC 6901). Empty for all of it.
    pub pointer: String,
    /// What was expected. Never repeats a value of the message.
    pub detail: String,
}

impl Fault {
    /// A fault of a whole part.
    pub fn new(part: Part, detail: impl Into<String>) -> Self {
        Self { part, name: None, pointer: String::new(), detail: detail.into() }
    }

    /// A fault of a parameter.
    pub fn of(part: Part, name: &str, detail: impl Into<String>) -> Self {
        Self { part, name: Some(cut(name, PLACE_CHARS)), pointer: String::new(), detail: detail.into() }
    }

    /// As a member of `errors` in a problem (RFC 9457 §3).
    pub fn to_json(&self) -> Value {
        let mut all = Map::new();
        all.insert("in".to_owned(), self.part.name().into());
        if let Some(name) = &self.name {
            all.insert("name".to_owned(), name.as_str().into());
        }
        if self.part == Part::Body || !self.pointer.is_empty() {
            all.insert(
                "pointer".to_owned(),
                format!("#{}", utf8_percent_encode(&self.pointer, FRAGMENT)).into(),
            );
        }
        all.insert("detail".to_owned(), self.detail.as_str().into());
        Value::Object(all)
    }

    /// In one line, for logs.
    pub fn to_text(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let pointer = if self.pointer.is_empty() { String::new() } else { format!(" {}", self.pointer) };
        format!("{}{name}{pointer}: {}", self.part.name(), self.detail)
    }
}

/// A problem (RFC 9457) that names these faults.
pub fn problem(status: u16, title: &str, detail: &str, faults: &[Fault]) -> Vec<u8> {
    let faults: Vec<_> = faults.iter().take(MOST_FAULTS).map(Fault::to_json).collect();
    let problem = json!({ "title": title, "status": status, "detail": detail, "errors": faults });
    problem.to_string().into_bytes()
}

/// The beginning of a text.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_faults() {
        let mut faults = vec![Fault::of(Part::Query, "limit", "expected a number")];
        faults.push(Fault { pointer: "/a b/%/~1é".to_owned(), ..Fault::new(Part::Body, "is missing") });
        let problem: Value = serde_json::from_slice(&problem(400, "T", "d", &faults)).unwrap();
        assert_eq!(
            problem,
            json!({ "title": "T", "status": 400, "detail": "d", "errors": [
                { "in": "query", "name": "limit", "detail": "expected a number" },
                { "in": "body", "pointer": "#/a%20b/%25/~1%C3%A9", "detail": "is missing" },
            ] })
        );
        assert_eq!(faults[1].to_text(), "body /a b/%/~1é: is missing");
        let many = vec![Fault::new(Part::Body, "x"); 100];
        let shown: Value = serde_json::from_slice(&super::problem(400, "T", "d", &many)).unwrap();
        assert_eq!(shown["errors"].as_array().map(Vec::len), Some(MOST_FAULTS));
    }
}
