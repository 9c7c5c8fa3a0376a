//! Texts with expressions in them: `{= … }`, and `= …` for a whole value.
//!
//! An expression ends at the first `}` outside texts and brackets. `{{= x}}` stands for the text `{= x}`. Other braces mean
//! nothing here: [`pieces`] leaves them to the host, which may have placeholders of its own.

use crate::compiled::Expression;
use crate::diagnostic::Mistake;
use crate::eval::Values;
use crate::schema::{Phase, Schema};
use crate::token;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'s> {
    /// An expression, and the byte at which it begins.
    Expression(&'s str, usize),
    /// Text to be taken as it is: the inside of `{{= … }}` with single braces.
    Literal(&'s str),
    /// Other text, as written.
    Text(&'s str),
}

/// The expression, if the whole value is one: `= request.path`. The number is the byte at which it begins.
pub fn whole(text: &str) -> Option<(&str, usize)> {
    let rest = text.strip_prefix("= ")?;
    Some((rest, text.len() - rest.len()))
}

/// Splits a text at its expressions.
///
/// # Errors
/// An expression that does not end, or a part of it that is no token.
pub fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Mistake> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut from = 0;
    while let Some(at) = text[from..].find("{=").map(|at| from + at) {
        let is_escaped = at > start && text[start..at].ends_with('{');
        let end = end_of(text, at + 2)?;
        let first = if is_escaped { at - 1 } else { at };
        if is_escaped && !text[end..].starts_with("}}") {
            let mistake = Mistake::new(first..end + 1, "`{{=` is not closed; expected `}}`");
            return Err(mistake.hint("write `{=` to begin an expression"));
        }
        if first > start {
            pieces.push(Piece::Text(&text[start..first]));
        }
        if is_escaped {
            pieces.push(Piece::Literal(&text[at..=end]));
            start = end + 2;
        } else {
            pieces.push(Piece::Expression(&text[at + 2..end], at + 2));
            start = end + 1;
        }
        from = start;
    }
    if start < text.len() {
        pieces.push(Piece::Text(&text[start..]));
    }
    Ok(pieces)
}

/// Whether a text has an expression with a literal that could be a secret, because a value of the request is compared
/// with it: a text, bytes, or a number of four digits or more. Names are none: `request.headers["x-user"]`. What
/// cannot be read counts as one.
pub fn may_hold_secret(text: &str) -> bool {
    if let Some((source, _)) = whole(text) {
        return has_literal(source);
    }
    if !text.contains("{=") {
        return false;
    }
    let is_literal = |piece: &Piece<'_>| matches!(piece, Piece::Expression(source, _) if has_literal(source));
    pieces(text).map_or(true, |pieces| pieces.iter().any(is_literal))
}

/// The smallest number that could be a secret. Smaller ones are sizes, positions and statuses.
const LONG_NUMBER: u64 = 1000;

fn has_literal(source: &str) -> bool {
    let (mut at, mut indexes, mut before) = (0, false, token::Kind::End);
    loop {
        let Ok(token) = token::next(source, at) else { return true };
        let is_value = match &token.kind {
            token::Kind::End => return false,
            token::Kind::Text(text) => !text.is_empty() && !indexes,
            token::Kind::Bytes(bytes) => !bytes.is_empty(),
            token::Kind::Int(number) | token::Kind::Uint(number) => *number >= LONG_NUMBER,
            token::Kind::Double(number) => *number >= LONG_NUMBER as f64,
            token::Kind::Member(_) | token::Kind::Name(_) | token::Kind::Symbol(_) => false,
        };
        if is_value {
            return true;
        }
        // `[` behind a value looks something up in it; elsewhere it begins a list.
        indexes = matches!(token.kind, token::Kind::Symbol("["))
            && match before {
                token::Kind::Name(name) => name != "in",
                token::Kind::Member(_) | token::Kind::Symbol(")" | "]") => true,
                _ => false,
            };
        (at, before) = (token.range.end, token.kind);
    }
}

/// Where the `}` stands that ends the expression which begins at `start`.
fn end_of(text: &str, start: usize) -> Result<usize, Mistake> {
    let mut open = 0_usize;
    let mut at = start;
    loop {
        let token = token::next(text, at)?;
        match token.kind {
            token::Kind::End => {
                let mistake =
                    Mistake::new(start - 2..text.len(), "this expression does not end; expected `}`");
                return Err(mistake.hint("write `{{=` and `}}` for the text itself"));
            }
            token::Kind::Symbol("}") if open == 0 => return Ok(token.range.start),
            token::Kind::Symbol("(" | "[" | "{") => open += 1,
            token::Kind::Symbol(")" | "]" | "}") => open = open.saturating_sub(1),
            _ => {}
        }
        at = token.range.end;
    }
}

/// A compiled text.
#[derive(Clone, Debug)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Expression(Box<Expression>),
    Text(Box<str>),
}

impl Template {
    /// Compiles a text with `{= … }` parts. All other braces are text.
    ///
    /// # Errors
    /// Every mistake in its expressions, with its place in the text.
    pub fn compile(text: &str, schema: &Schema, phase: Phase) -> Result<Self, Vec<Mistake>> {
        let mut parts = Vec::new();
        let mut mistakes = Vec::new();
        for piece in pieces(text).map_err(|mistake| vec![mistake])? {
            match piece {
                Piece::Text(text) | Piece::Literal(text) => parts.push(Part::Text(text.into())),
                Piece::Expression(source, at) => match Expression::compile(source, schema, phase) {
                    Ok(expression) => parts.push(Part::Expression(Box::new(expression))),
                    Err(wrong) => mistakes.extend(wrong.into_iter().map(|mistake| mistake.moved(at))),
                },
            }
        }
        if mistakes.is_empty() { Ok(Self { parts }) } else { Err(mistakes) }
    }

    /// The expressions, in order.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.parts.iter().filter_map(|part| match part {
            Part::Expression(expression) => Some(&**expression),
            Part::Text(_) => None,
        })
    }

    /// Appends the text with the values of its expressions, each through `escape`.
    pub fn render(
        &self,
        values: &dyn Values,
        out: &mut Vec<u8>,
        mut escape: impl FnMut(&[u8], &mut Vec<u8>),
    ) {
        let mut value = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Expression(expression) => {
                    value.clear();
                    expression.value(values).write(&mut value);
                    escape(&value, out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_that_could_be_secrets() {
        for (text, expected) in [
            ("= request.headers[\"x-key\"] == \"hunter2\" ? 1 : 2", true),
            ("= request.cookies.sid ?? client.ip", false),
            ("= request.headers[ 'x-user' ] ?? request.args[\"u\"]", false),
            ("= request.cookies.sid ?? \"none\"", true),
            ("= request.path in [\"hunter2\"]", true),
            ("= client.ip in ['10.0.0.0/8']", true),
            ("= jwt.roles[0][\"x\"]", false),
            ("= has(request.headers[\"a\"]) ? \"\" : request.host", false),
            ("= request.args.pin == b'hunter2'", true),
            ("= int(request.args.pin, 0) == 4711", true),
            ("= request.size > 100", false),
            ("= \"no end", true),
            ("a{= request.host }b{= maps.tenants }", false),
            ("a{= request.host == 'hunter2' }", true),
            ("a{= request.host ", true),
            ("{{= 'text' }}", false),
            ("header:x-user", false),
            ("'hunter2'", false),
        ] {
            assert_eq!(may_hold_secret(text), expected, "{text}");
        }
    }
}
