//! Reads templates: placeholders, captures and expressions in a text or a page.

use super::computed::{Computed, Names};
use super::{Malformed, Part, Template, Var};
use weir_expr::template::{Piece, pieces, whole};

impl Template {
    /// Compiles `text`. A capture of `names` hides a fixed placeholder with its name. If the text begins with `= `, all
    /// of it is an expression.
    ///
    /// # Errors
    /// A brace that belongs to no placeholder, an unknown placeholder, or a mistake in an expression.
    pub fn parse(text: &str, names: &Names<'_>) -> Result<Self, Malformed> {
        if let Some((source, at)) = whole(text) {
            return Ok(Self {
                parts: vec![Part::Expression(Box::new(Computed::compile(source, at, names)?))],
            });
        }
        let mut parts = Parts::default();
        for piece in pieces(text)? {
            match piece {
                Piece::Expression(source, at) => parts.compute(Computed::compile(source, at, names)?),
                Piece::Literal(literal) => parts.plain.extend_from_slice(literal.as_bytes()),
                Piece::Text(part) => parts.placeholders(part, text, names.captures)?,
            }
        }
        Ok(parts.done())
    }

    /// Compiles a page. Pages are full of braces (CSS, JSON, scripts), so a brace is literal unless it encloses a
    /// name or an expression: `{name}` is a placeholder, and `{{name}}` stands for `{name}`. A number is a name only if
    /// the route captures it, because regular expressions in scripts have such braces. A mistake comes with its line,
    /// counted from 1.
    ///
    /// # Errors
    /// An unknown placeholder, or a mistake in an expression.
    pub fn parse_page(text: &str, names: &Names<'_>) -> Result<Self, (usize, Malformed)> {
        let line_at = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        let placed = |e: Malformed| (line_at(e.offset.unwrap_or_default()), e);
        let mut parts = Parts::default();
        let mut begins = 0; // where the piece stands in the text
        for piece in pieces(text).map_err(|e| placed(e.into()))? {
            match piece {
                Piece::Expression(source, at) => {
                    parts.compute(Computed::compile(source, at, names).map_err(placed)?);
                    begins = at + source.len() + 1;
                }
                Piece::Literal(literal) => {
                    parts.plain.extend_from_slice(literal.as_bytes());
                    begins += literal.len() + 2;
                }
                Piece::Text(part) => {
                    let captures = names.captures.unwrap_or_default();
                    parts.names(part, captures).map_err(|(at, e)| (line_at(begins + at), e))?;
                    begins += part.len();
                }
            }
        }
        Ok(parts.done())
    }
}

/// The parts of a text so far.
#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    /// The text after them.
    plain: Vec<u8>,
}

impl Parts {
    fn end_text(&mut self) {
        if !self.plain.is_empty() {
            self.parts.push(Part::Text(std::mem::take(&mut self.plain)));
        }
    }

    fn compute(&mut self, computed: Computed) {
        self.end_text();
        self.parts.push(Part::Expression(Box::new(computed)));
    }

    fn value(&mut self, var: Var) {
        self.end_text();
        self.parts.push(Part::Value(var));
    }

    fn done(mut self) -> Template {
        self.end_text();
        Template { parts: self.parts }
    }

    /// Adds `part` of the text `all`, in which every brace belongs to a placeholder.
    fn placeholders(&mut self, part: &str, all: &str, captures: Option<&[String]>) -> Result<(), Malformed> {
        let mut rest = part;
        while let Some(at) = rest.find(['{', '}']) {
            self.plain.extend_from_slice(&rest.as_bytes()[..at]);
            let (brace, tail) = rest[at..].split_at(1);
            if let Some(tail) = tail.strip_prefix(brace) {
                self.plain.extend_from_slice(brace.as_bytes());
                rest = tail;
                continue;
            }
            let inner = if brace == "{" { tail.split_once('}') } else { None };
            let Some((name, tail)) = inner else {
                let message = format!("`{all}` has a `{brace}` that belongs to no placeholder");
                return Err(Malformed::new(message, Some(format!("write `{brace}{brace}` for a brace"))));
            };
            self.value(Var::named(name, captures)?);
            rest = tail;
        }
        self.plain.extend_from_slice(rest.as_bytes());
        Ok(())
    }

    /// Adds a part of a page, in which a brace that encloses no name is text. A mistake comes with its byte.
    fn names(&mut self, part: &str, captures: &[String]) -> Result<(), (usize, Malformed)> {
        let mut rest = part;
        while let Some(at) = rest.find('{') {
            let (before, tail) = rest.split_at(at);
            self.plain.extend_from_slice(before.as_bytes());
            if let Some((name, after)) = enclosed(tail, "{{", "}}", captures) {
                self.plain.extend_from_slice(format!("{{{name}}}").as_bytes());
                rest = after;
            } else if let Some((name, after)) = enclosed(tail, "{", "}", captures) {
                let var = Var::named(name, Some(captures));
                self.value(var.map_err(|e| (part.len() - tail.len(), e.on_a_page(name)))?);
                rest = after;
            } else {
                self.plain.push(b'{');
                rest = &tail[1..];
            }
        }
        self.plain.extend_from_slice(rest.as_bytes());
        Ok(())
    }
}

/// A name between these delimiters, and the text after them.
fn enclosed<'a>(text: &'a str, open: &str, close: &str, captures: &[String]) -> Option<(&'a str, &'a str)> {
    let inner = text.strip_prefix(open)?;
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let (name, after) = inner.split_at(inner.find(|c| !is_of_name(c))?);
    let after = after.strip_prefix(close)?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (is_name || captures.iter().any(|captured| captured == name)).then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of a vocabulary that is leaked: it is small.
    fn names_of(captures: Option<&[String]>) -> Names<'_> {
        let bounds = weir_route::variables::Bounds { head_bytes: 32 * 1024, fields: 100 };
        Names::new(captures, Box::leak(Box::new(weir_route::variables::Vocabulary::without_maps(bounds))))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn braces() {
        let text = |t: &str| Template::parse(t, &names_of(None)).unwrap().sample("V");
        assert_eq!(text("a{{b}}c"), b"a{b}c");
        assert_eq!(text("{client}"), b"V");
        assert_eq!(text("<{client}{path}>"), b"<VV>");
        assert_eq!(text("{{{client}}}"), b"{V}");
        assert_eq!(text(""), b"");
        for bad in ["{", "a}", "{client", "{}", "{a b}", "{\"a\": 1}"] {
            assert!(Template::parse(bad, &names_of(None)).is_err(), "{bad}");
        }
    }

    #[test]
    fn braces_of_pages() {
        let captures = names(&["id"]);
        let parse = |t: &str| Template::parse_page(t, &names_of(Some(&captures)));
        let text = |t: &str| String::from_utf8(parse(t).unwrap().sample("V")).unwrap();
        for (page, shown) in [
            ("body{margin:0} {}", "body{margin:0} {}"),
            ("{\"a\":{\"b\":{id}}}", "{\"a\":{\"b\":V}}"),
            ("{{id}} {{{id}}} {{ id }}", "{id} {{id}} {{ id }}"),
            ("\\d{3} {", "\\d{3} {"),
            ("{id", "{id"),
            ("", ""),
        ] {
            assert_eq!(text(page), shown);
        }
        let (line, e) = parse("a\nb\n{request-id}").unwrap_err();
        assert_eq!(line, 3);
        assert_eq!(
            e.hint.as_deref(),
            Some("write {request_id}, or write {{request-id}} for the text {request-id}")
        );
        assert_eq!(
            parse("{xyzzy}").unwrap_err().1.hint.as_deref(),
            Some("write {{xyzzy}} for the text {xyzzy}")
        );
    }

    #[test]
    fn unknown_names_are_mistakes_where_the_captures_are_known() {
        let captures = names(&["rest", "host"]);
        let parse = |t: &str| Template::parse(t, &names_of(Some(&captures)));
        assert_eq!(parse("{rest}").unwrap().vars().next(), Some(&Var::Capture("rest".to_owned())));
        assert_eq!(parse("{host}").unwrap().vars().next(), Some(&Var::Capture("host".to_owned())));
        assert_eq!(parse("{clinet}").unwrap_err().hint.as_deref(), Some("write {client}"));
        assert_eq!(parse("{rest*}").unwrap_err().hint.as_deref(), Some("write {rest}"));
        assert!(parse("{id}").unwrap_err().message.contains("{rest}"));
        assert!(Template::parse("{id}", &names_of(None)).is_ok());
    }
}
