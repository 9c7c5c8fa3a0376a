//! Path templates of `google.api.http`, and the variables in them.
//!
//! ```text
//! template = "/" segments [ ":" verb ]        segments = segment { "/" segment }
//! segment  = "*" | "**" | literal | variable  variable = "{" field { "." field } [ "=" segments ] "}"
//! ```
//! `**` must be last. Source: the comments of google/api/http.proto.

use std::borrow::Cow;
use std::fmt;

/// Most segments of a template, and of a path to match.
pub(crate) const SEGMENTS: usize = 64;

/// One path segment of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    Literal(Box<str>),
    /// Any one segment.
    One,
    /// All remaining segments, if any.
    Rest,
}

/// A compiled template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) text: Box<str>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) verb: Option<Box<str>>,
}

/// A field that takes its value from part of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// `book.name`
    pub(crate) field: Box<str>,
    /// Its range of segments.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateError(pub(crate) String);

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Template {
    /// Parses a template.
    pub(crate) fn new(text: &str) -> Result<Self, TemplateError> {
        let rest = text.strip_prefix('/').ok_or_else(|| wrong("it does not begin with /"))?;
        let (segments, verb) = split_verb(rest);
        let mut template =
            Self { text: text.into(), segments: Vec::new(), variables: Vec::new(), verb: None };
        if let Some(verb) = verb {
            if !is_literal(verb) {
                return Err(wrong(format!("`{verb}` is not a verb")));
            }
            template.verb = Some(verb.into());
        }
        let mut rest = segments;
        loop {
            rest = template.segment(rest)?;
            match rest.strip_prefix('/') {
                Some(after) => rest = after,
                None if rest.is_empty() => break,
                None => return Err(wrong(format!("`{rest}` is where a / was expected"))),
            }
        }
        template.check()?;
        Ok(template)
    }

    /// Parses a segment or variable at the front.
    fn segment<'a>(&mut self, rest: &'a str) -> Result<&'a str, TemplateError> {
        let Some(inside) = rest.strip_prefix('{') else {
            let end = rest.find('/').unwrap_or(rest.len());
            let (segment, after) = rest.split_at(end);
            self.segments.push(simple(segment)?);
            return Ok(after);
        };
        let (variable, after) = inside.split_once('}').ok_or_else(|| wrong("a `{` is not closed"))?;
        let (field, pattern) = variable.split_once('=').unwrap_or((variable, "*"));
        if !field.split('.').all(is_identifier) {
            return Err(wrong(format!("`{field}` is not a field")));
        }
        if pattern.contains('{') {
            return Err(wrong("a variable cannot contain another variable"));
        }
        if self.variables.iter().any(|v| *v.field == *field) {
            return Err(wrong(format!("`{field}` is bound twice")));
        }
        let from = self.segments.len();
        for segment in pattern.split('/') {
            self.segments.push(simple(segment)?);
        }
        self.variables.push(Variable { field: field.into(), from, to: self.segments.len() });
        Ok(after)
    }

    fn check(&self) -> Result<(), TemplateError> {
        if self.segments.len() > SEGMENTS {
            return Err(wrong(format!("it has more than {SEGMENTS} segments")));
        }
        let before_last = self.segments.split_last().map_or(&[][..], |(_, before)| before);
        if before_last.contains(&Segment::Rest) {
            return Err(wrong("`**` is not last"));
        }
        Ok(())
    }

    /// The values of its variables in a matching path with these segments.
    pub(crate) fn values<'p>(&self, segments: &[&'p [u8]], path: &'p [u8]) -> Option<Vec<Cow<'p, str>>> {
        let values = self.variables.iter().map(|variable| {
            let to = if self.segments.get(variable.to - 1) == Some(&Segment::Rest) {
                segments.len()
            } else {
                variable.to
            };
            let raw = joined(segments, variable.from, to, path);
            let is_one = variable.to - variable.from == 1
                && self.segments.get(variable.from).is_some_and(|s| *s != Segment::Rest);
            let decoded = unescape(raw, if is_one { Slashes::Decode } else { Slashes::Keep });
            match decoded {
                Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
                Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
            }
        });
        values.collect()
    }
}

/// Consecutive segments with the slashes between them; all are slices of the same path.
fn joined<'p>(segments: &[&'p [u8]], from: usize, to: usize, path: &'p [u8]) -> &'p [u8] {
    let (Some(first), Some(last)) =
        (segments.get(from), to.checked_sub(1).and_then(|last| segments.get(last)))
    else {
        return b"";
    };
    let at = |part: &[u8]| part.as_ptr().addr().checked_sub(path.as_ptr().addr());
    match (at(first), at(last)) {
        (Some(begin), Some(end)) if from < to => path.get(begin..end + last.len()).unwrap_or_default(),
        _ => b"",
    }
}

/// How to treat an escaped slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slashes {
    Decode,
    Keep,
}

/// Resolves percent escapes; leaves invalid ones unchanged.
pub(crate) fn unescape(text: &[u8], slashes: Slashes) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = after.first_chunk::<2>().filter(|_| byte == b'%');
        let decoded = digits.and_then(|[high, low]| Some(hex(*high)? << 4 | hex(*low)?));
        match decoded {
            Some(b'/') if slashes == Slashes::Keep => out.push(byte),
            Some(decoded) => {
                out.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            None => out.push(byte),
        }
    }
    Cow::Owned(out)
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The verb follows a colon that is outside of variables.
fn split_verb(text: &str) -> (&str, Option<&str>) {
    let from = text.rfind(['/', '}']).map_or(0, |at| at + 1);
    match text.get(from..).and_then(|last| last.find(':')) {
        Some(colon) => {
            let (segments, verb) = text.split_at(from + colon);
            (segments, verb.strip_prefix(':'))
        }
        None => (text, None),
    }
}

fn simple(segment: &str) -> Result<Segment, TemplateError> {
    match segment {
        "*" => Ok(Segment::One),
        "**" => Ok(Segment::Rest),
        "" => Err(wrong("a segment is empty")),
        literal if is_literal(literal) => Ok(Segment::Literal(literal.into())),
        other => Err(wrong(format!("`{other}` is not a segment"))),
    }
}

/// Whether a path may contain this text unescaped (RFC 3986 §3.3), including percent escapes.
fn is_literal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()+,;=@%".contains(&b))
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn wrong(what: impl Into<String>) -> TemplateError {
    TemplateError(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_every_form() {
        for (text, segments, variables, verb) in [
            ("/v1/messages", 2, &[][..], None),
            ("/v1/{id}", 2, &[("id", 1, 2)][..], None),
            ("/v1/{name=shelves/*/books/*}", 5, &[("name", 1, 5)], None),
            (
                "/v1/{name=shelves/*}/books/{book.id}:publish",
                5,
                &[("name", 1, 3), ("book.id", 4, 5)],
                Some("publish"),
            ),
            ("/v1/{path=**}", 2, &[("path", 1, 2)], None),
            ("/v1/{path=files/**}:read", 3, &[("path", 1, 3)], Some("read")),
            ("/*/**", 2, &[], None),
            ("/v1:batch", 1, &[], Some("batch")),
        ] {
            let template = Template::new(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(template.segments.len(), segments, "{text}");
            let found: Vec<_> = template.variables.iter().map(|v| (&*v.field, v.from, v.to)).collect();
            assert_eq!(found, variables, "{text}");
            assert_eq!(template.verb.as_deref(), verb, "{text}");
        }
    }

    #[test]
    fn what_is_no_template() {
        for (text, why) in [
            ("", "does not begin"),
            ("v1", "does not begin"),
            ("/", "empty"),
            ("/v1/", "empty"),
            ("/v1//a", "empty"),
            ("/{a", "not closed"),
            ("/{}", "not a field"),
            ("/{a.}", "not a field"),
            ("/{1a}", "not a field"),
            ("/{a={b}}", "contain another variable"),
            ("/{a}/{a}", "twice"),
            ("/**/a", "not last"),
            ("/{a=**}/b", "not last"),
            ("/{a=**/b}", "not last"),
            ("/a b", "not a segment"),
            ("/{a}b", "expected"),
            ("/a:", "not a verb"),
            ("/a:b:c", "not a verb"),
            ("/a{b}", "not a segment"),
            ("/?x", "not a segment"),
        ] {
            let e = Template::new(text).expect_err(text);
            assert!(e.0.contains(why), "{text}: {e}");
        }
    }

    #[test]
    fn escapes() {
        for (text, decoded, kept) in [
            ("a%20b", "a b", "a b"),
            ("a%2Fb", "a/b", "a%2Fb"),
            ("%", "%", "%"),
            ("%zz%4", "%zz%4", "%zz%4"),
            ("%41", "A", "A"),
        ] {
            assert_eq!(&*unescape(text.as_bytes(), Slashes::Decode), decoded.as_bytes());
            assert_eq!(&*unescape(text.as_bytes(), Slashes::Keep), kept.as_bytes());
        }
    }
}
