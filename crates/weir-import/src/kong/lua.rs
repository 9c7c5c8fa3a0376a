//! Templates of request-transformer: `$(headers.x)`, and the conditions in Lua that people write in them.
//!
//! Known are fields, query parameters and captures, texts, `nil`, `and`, `or`, `not`, `==`, `~=`, and `:sub(1, n)`
//! compared with a text of that length. All else is refused.

use crate::shared::expression::Expression;
use crate::shared::template::{Part, Template};

/// Deepest nesting of parentheses.
const MAX_DEPTH: usize = 20;

/// A text with `$(…)`.
pub(super) fn template(text: &str) -> Result<Template, String> {
    let mut template = Template::default();
    let mut rest = text;
    while let Some(at) = rest.find("$(") {
        template.push(Part::Text(rest[..at].to_owned()));
        let inner = &rest[at + 1..];
        let end = closing(inner).ok_or("a `$(` without its `)`")?;
        template.push(Part::Value(expression(&inner[1..end])?));
        rest = &inner[end + 1..];
    }
    template.push(Part::Text(rest.to_owned()));
    Ok(template)
}

/// The position of the parenthesis that closes the one at the start.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// A value of Lua.
enum Lua {
    Nil,
    Text(String),
    /// Something of the request, which may be missing.
    Value(Expression),
    /// The first bytes of something.
    Start(Expression, usize),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Equal(Box<Self>, Box<Self>, bool),
}

fn expression(text: &str) -> Result<Expression, String> {
    let tokens = tokens(text)?;
    let mut reader = Reader { tokens: &tokens, at: 0, depth: 0 };
    let value = reader.or()?;
    if reader.at < tokens.len() {
        return Err(format!("`{text}` is more Lua than weir import reads"));
    }
    value.as_value()
}

impl Lua {
    /// As a text, empty for nil.
    fn as_value(&self) -> Result<Expression, String> {
        match self {
            Self::Nil => Ok(Expression::text("")),
            Self::Text(text) => Ok(Expression::text(text)),
            Self::Value(value) => Ok(value.clone()),
            Self::And(a, b) => Ok(a.as_condition()?.choose(b.as_value()?, Expression::text(""))),
            Self::Or(a, b) => Ok(match a.as_value()? {
                value if matches!(**a, Self::And(..)) => Expression::raw(format!("({})", value.as_str())),
                value => value,
            }
            .or_else(b.as_value()?)),
            Self::Start(..) | Self::Not(_) | Self::Equal(..) => {
                Err("a condition where a text is expected".to_owned())
            }
        }
    }

    fn as_condition(&self) -> Result<Expression, String> {
        match self {
            Self::Nil => Ok(Expression::constant(false)),
            Self::Text(_) => Ok(Expression::constant(true)),
            Self::Value(value) => Ok(Expression::raw(format!("has({})", value.as_str()))),
            Self::And(a, b) => Ok(a.as_condition()?.and(b.as_condition()?)),
            Self::Or(a, b) => Ok(a.as_condition()?.or(b.as_condition()?)),
            Self::Not(a) => Ok(a.as_condition()?.not()),
            Self::Equal(a, b, is_equal) => {
                let is = match (&**a, &**b) {
                    (Self::Value(value), Self::Nil) | (Self::Nil, Self::Value(value)) => {
                        let has = Expression::raw(format!("has({})", value.as_str()));
                        return Ok(if *is_equal { has.not() } else { has });
                    }
                    (Self::Start(value, length), Self::Text(text)) if text.len() == *length => {
                        value.clone().starts_with(text)
                    }
                    (Self::Value(value), other) | (other, Self::Value(value))
                        if matches!(other, Self::Text(_) | Self::Value(_)) =>
                    {
                        value.clone().equals(other.as_value()?)
                    }
                    _ => return Err("a comparison that weir import does not read".to_owned()),
                };
                Ok(if *is_equal { is } else { is.not() })
            }
            Self::Start(..) => Err("a part of a text as a condition".to_owned()),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Sign(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\'' | '"' => {
                let end = rest[1..].find(c).ok_or("a text without its closing quote")?;
                let inner = &rest[1..=end];
                if inner.contains('\\') {
                    return Err("an escape in a text".to_owned());
                }
                tokens.push(Token::Text(inner.to_owned()));
                end + 2
            }
            c if c.is_ascii_alphanumeric() || c == '_' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_owned()));
                end
            }
            _ => {
                let two = ["~=", "=="].iter().find(|sign| rest.starts_with(**sign));
                let sign = two.map_or_else(|| c.to_string(), |sign| (*sign).to_owned());
                let length = sign.len();
                tokens.push(Token::Sign(sign));
                length
            }
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn or(&mut self) -> Result<Lua, String> {
        let mut left = self.and()?;
        while self.word("or") {
            left = Lua::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Lua, String> {
        let mut left = self.compare()?;
        while self.word("and") {
            left = Lua::And(Box::new(left), Box::new(self.compare()?));
        }
        Ok(left)
    }

    fn compare(&mut self) -> Result<Lua, String> {
        let left = self.one()?;
        for (sign, is_equal) in [("==", true), ("~=", false)] {
            if self.sign(sign) {
                return Ok(Lua::Equal(Box::new(left), Box::new(self.one()?), is_equal));
            }
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Lua, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("more Lua than weir import reads".to_owned());
        }
        let value = self.value();
        self.depth -= 1;
        value
    }

    fn value(&mut self) -> Result<Lua, String> {
        if self.word("not") {
            return Ok(Lua::Not(Box::new(self.one()?)));
        }
        if self.word("nil") {
            return Ok(Lua::Nil);
        }
        if self.sign("(") {
            let inner = self.or()?;
            return if self.sign(")") { Ok(inner) } else { Err("a `(` without its `)`".to_owned()) };
        }
        let variable = match self.tokens.get(self.at) {
            Some(Token::Text(text)) => {
                self.at += 1;
                return Ok(Lua::Text(text.clone()));
            }
            Some(Token::Word(word)) => match word.as_str() {
                "headers" => "request.headers",
                "query_params" => "request.args",
                "uri_captures" => "request.params",
                other => return Err(format!("`{other}` of Lua")),
            },
            _ => return Err("Lua that weir import does not read".to_owned()),
        };
        self.at += 1;
        let key = if self.sign("[") {
            let key = match self.tokens.get(self.at) {
                Some(Token::Text(key) | Token::Word(key)) => key.clone(),
                _ => return Err("a name is expected in `[…]`".to_owned()),
            };
            self.at += 1;
            if !self.sign("]") {
                return Err("a `[` without its `]`".to_owned());
            }
            key
        } else if self.sign(".") {
            match self.tokens.get(self.at) {
                Some(Token::Word(key)) => {
                    self.at += 1;
                    // Kong reads `_` in a field's name as `-`.
                    if variable == "request.headers" { key.replace('_', "-") } else { key.clone() }
                }
                _ => return Err("a name is expected after the dot".to_owned()),
            }
        } else {
            return Err("a name is expected".to_owned());
        };
        let key = if variable == "request.headers" { key.to_ascii_lowercase() } else { key };
        let value = Expression::of(variable, &key);
        if self.sign(":") {
            return self.start(value);
        }
        Ok(Lua::Value(value))
    }

    /// `:sub(1, n)`.
    fn start(&mut self, value: Expression) -> Result<Lua, String> {
        let number = |token: Option<&Token>| match token {
            Some(Token::Word(word)) => word.parse::<usize>().ok(),
            _ => None,
        };
        let ok = self.word("sub") && self.sign("(") && self.word("1") && self.sign(",");
        match number(self.tokens.get(self.at)) {
            Some(length) if ok => {
                self.at += 1;
                if self.sign(")") {
                    Ok(Lua::Start(value, length))
                } else {
                    Err("a `(` without its `)`".to_owned())
                }
            }
            _ => Err("a function of Lua".to_owned()),
        }
    }

    fn word(&mut self, word: &str) -> bool {
        self.token(&Token::Word(word.to_owned()))
    }

    fn sign(&mut self, sign: &str) -> bool {
        self.token(&Token::Sign(sign.to_owned()))
    }

    fn token(&mut self, token: &Token) -> bool {
        let is = self.tokens.get(self.at) == Some(token);
        self.at += usize::from(is);
        is
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_become_expressions() {
        let cases = [
            ("a$(headers.x_y)b", "a{= request.headers[\"x-y\"] }b"),
            ("$(query_params[\"q\"])", "{= request.args[\"q\"] }"),
            ("$(uri_captures[1])", "{= request.params[\"1\"] }"),
            (
                "$(headers.a or headers['b'] or 'c')",
                "{= request.headers[\"a\"] ?? request.headers[\"b\"] ?? \"c\" }",
            ),
            (
                "$((headers.authorization ~= nil and headers.authorization:sub(1, 10) ~= 'Bearer sb_' and \
                 headers.authorization) or headers.apikey)",
                "{= (has(request.headers[\"authorization\"]) && \
                 !request.headers[\"authorization\"].startsWith(\"Bearer sb_\") ? \
                 request.headers[\"authorization\"] : \"\") ?? request.headers[\"apikey\"] }",
            ),
        ];
        for (text, setting) in cases {
            let read = template(text).map(|template| template.to_setting());
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(read.map(|read| squeezed(&read)), Ok(squeezed(setting)), "{text}");
        }
    }

    #[test]
    fn other_lua_is_refused() {
        for text in [
            "$(os.time())",
            "$(headers.x:upper())",
            "$(headers.x",
            "$(1 + 1)",
            "$(not headers.x)",
            "$((((((((((((((((((((((((headers.x))))))))))))))))))))))))",
        ] {
            assert!(template(text).is_err(), "{text}");
        }
    }
}
