//! Expressions.

use super::super::lex::Word;
use super::{CHAIN, DEPTH, Expression, Function, Kind, Parsed, Parser, Site, Statement};
use std::rc::Rc;

impl<'t> Parser<'t> {
    pub(super) fn expression(&mut self) -> Parsed<Expression> {
        self.depth += 1;
        if self.depth > DEPTH {
            self.depth -= 1;
            return Err("nested too deeply".to_owned());
        }
        let parsed = self.assignment();
        self.depth -= 1;
        parsed
    }

    fn assignment(&mut self) -> Parsed<Expression> {
        self.passes_name("await");
        if let Some(function) = self.arrow()? {
            return Ok(Expression::Function(function));
        }
        let left = self.binary(0)?;
        if self.passes("?") {
            let then = self.expression()?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            return Ok(Expression::Choice(Box::new(left), Box::new(then), Box::new(otherwise)));
        }
        for sign in ["=", "+=", "-=", "*=", "/=", "||=", "??=", "&&="] {
            if self.passes(sign) {
                let right = self.expression()?;
                return Ok(Expression::Binary(Box::new(left), sign, Box::new(right)));
            }
        }
        Ok(left)
    }

    /// `x => …`, `(a, b) => …`, if that is what comes next.
    fn arrow(&mut self) -> Parsed<Option<Rc<Function>>> {
        let begin = self.at;
        self.passes_name("async");
        let parameters = match self.peek() {
            Some(Word::Name(name))
                if matches!(self.tokens.get(self.at + 1).map(|t| &t.word), Some(Word::Sign("=>"))) =>
            {
                self.at += 1;
                vec![name.clone()]
            }
            Some(Word::Sign("(")) if self.is_arrow_ahead() => {
                self.at += 1;
                self.parameters()?
            }
            _ => {
                self.at = begin;
                return Ok(None);
            }
        };
        self.expect("=>")?;
        let line = self.line();
        let body = if self.is_sign("{") {
            self.block()?
        } else {
            let value = self.expression()?;
            vec![Statement { line, kind: Kind::Return(Some(value)) }]
        };
        Ok(Some(Rc::new(Function { line, parameters, body })))
    }

    /// Whether the bracket here closes before a `=>`.
    fn is_arrow_ahead(&self) -> bool {
        let mut open = 0usize;
        for (at, token) in self.tokens.iter().enumerate().skip(self.at).take(200) {
            match token.word {
                Word::Sign("(" | "[" | "{") => open += 1,
                Word::Sign(")" | "]" | "}") => {
                    open -= 1;
                    if open == 0 {
                        return matches!(self.tokens.get(at + 1).map(|t| &t.word), Some(Word::Sign("=>")));
                    }
                }
                _ => {}
            }
        }
        false
    }

    fn binary(&mut self, least: u8) -> Parsed<Expression> {
        let mut left = self.unary()?;
        let mut length = 0;
        while let Some(Word::Sign(sign)) = self.peek() {
            length += 1;
            if length > CHAIN {
                return Err(format!("more than {CHAIN} operators in a row"));
            }
            let strength = match *sign {
                "||" | "??" => 1,
                "&&" => 2,
                "==" | "!=" | "===" | "!==" => 4,
                "<" | ">" | "<=" | ">=" => 5,
                "+" | "-" => 7,
                "*" | "/" | "%" => 8,
                "**" => 9,
                "|" | "^" | "&" => 3,
                "<<" | ">>" | ">>>" => 6,
                _ => break,
            };
            if strength <= least {
                break;
            }
            self.at += 1;
            let right = self.binary(strength)?;
            left = Expression::Binary(Box::new(left), sign, Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expression> {
        for sign in ["!", "-", "+", "~", "++", "--"] {
            if self.passes(sign) {
                self.depth += 1;
                if self.depth > DEPTH {
                    return Err("nested too deeply".to_owned());
                }
                let inner = self.unary();
                self.depth -= 1;
                return Ok(Expression::Unary(sign, Box::new(inner?)));
            }
        }
        for name in ["typeof", "void", "delete", "await"] {
            if self.passes_name(name) {
                let inner = self.unary()?;
                return Ok(if name == "await" { inner } else { Expression::Unknown(format!("`{name}`")) });
            }
        }
        let mut expression = self.primary()?;
        for _ in 0..CHAIN {
            if self.passes(".") || self.passes("?.") {
                expression = Expression::Member(Box::new(expression), self.name()?);
            } else if self.passes("[") {
                let index = self.expression()?;
                self.expect("]")?;
                expression = Expression::Index(Box::new(expression), Box::new(index));
            } else if self.is_sign("(") {
                let site = self.site();
                expression = Expression::Call(Box::new(expression), self.arguments()?, site);
            } else if matches!(self.peek(), Some(Word::Template(..))) {
                // A template behind a name, such as http.url`…`, calls it.
                let site = self.site();
                let template = self.primary()?;
                expression = Expression::Call(Box::new(expression), vec![template], site);
            } else if self.is_sign("++") && !self.tokens.get(self.at).is_some_and(|t| t.is_first) {
                self.at += 1;
                expression = Expression::Unary("++", Box::new(expression));
            } else {
                return Ok(expression);
            }
        }
        Err(format!("more than {CHAIN} members in a row"))
    }

    fn site(&self) -> Site {
        Site { line: self.line(), at: self.tokens.get(self.at).map_or(0, |token| token.at) }
    }

    fn arguments(&mut self) -> Parsed<Vec<Expression>> {
        self.expect("(")?;
        let mut all = Vec::new();
        while !self.passes(")") {
            if self.passes("...") {
                self.expression()?;
                all.push(Expression::Unknown("`...`".to_owned()));
            } else {
                all.push(self.expression()?);
            }
            if !self.is_sign(")") {
                self.expect(",")?;
            }
        }
        Ok(all)
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let word = self.peek().ok_or("the script ends within an expression")?;
        self.at += 1;
        Ok(match word {
            Word::Text(text) => Expression::Text(text.clone()),
            Word::Number(number) => Expression::Number(number.clone()),
            Word::Pattern => Expression::Unknown("a regular expression".to_owned()),
            Word::Template(texts, inner) => {
                let mut parts = Vec::new();
                for tokens in inner {
                    let mut parser = Parser { tokens, at: 0, depth: self.depth };
                    parts.push(parser.expression()?);
                }
                Expression::Template(texts.clone(), parts)
            }
            Word::Sign("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                inner
            }
            Word::Sign("[") => {
                let mut all = Vec::new();
                while !self.passes("]") {
                    if self.passes("...") {
                        self.expression()?;
                        all.push(Expression::Unknown("`...`".to_owned()));
                    } else {
                        all.push(self.expression()?);
                    }
                    if !self.is_sign("]") {
                        self.expect(",")?;
                    }
                }
                Expression::Array(all)
            }
            Word::Sign("{") => self.object()?,
            Word::Sign(sign) => return Err(format!("`{sign}` is not followed here")),
            Word::Name(name) => match &**name {
                "true" => Expression::Bool(true),
                "false" => Expression::Bool(false),
                "null" | "undefined" => Expression::Null,
                "function" => {
                    self.at -= 1;
                    Expression::Function(self.function()?.1)
                }
                "new" => {
                    let mut class = self.primary()?;
                    while self.passes(".") {
                        class = Expression::Member(Box::new(class), self.name()?);
                    }
                    let arguments = if self.is_sign("(") { self.arguments()? } else { Vec::new() };
                    Expression::New(Box::new(class), arguments)
                }
                name => Expression::Name(name.to_owned()),
            },
        })
    }

    fn object(&mut self) -> Parsed<Expression> {
        let mut all = Vec::new();
        while !self.passes("}") {
            if self.passes("...") {
                self.expression()?;
                all.push(("...".to_owned(), Expression::Unknown("`...`".to_owned())));
            } else {
                let key = match self.peek() {
                    Some(Word::Name(name)) => name.clone(),
                    Some(Word::Text(text)) => text.clone(),
                    Some(Word::Number(number)) => number.clone(),
                    _ => return Err("a key that is no name is not followed".to_owned()),
                };
                self.at += 1;
                if self.passes(":") {
                    all.push((key, self.expression()?));
                } else if self.is_sign("(") {
                    let line = self.line();
                    self.expect("(")?;
                    let parameters = self.parameters()?;
                    let body = self.block()?;
                    all.push((key, Expression::Function(Rc::new(Function { line, parameters, body }))));
                } else {
                    all.push((key.clone(), Expression::Name(key)));
                }
            }
            if !self.is_sign("}") {
                self.expect(",")?;
            }
        }
        Ok(Expression::Object(all))
    }
}
