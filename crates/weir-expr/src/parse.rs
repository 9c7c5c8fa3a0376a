//! Reads an expression: CEL's grammar and `??`. Recursion is bounded by [`DEPTH`].
//!
//! From loose to tight: `? :`, `||`, `&&`, relations, `??`, `+ -`, `* / %`, `! -`, members. `??` stands above relations, so
//! that `int(x) ?? 0 > 5` compares the number with its default.

use crate::ast::{Call, Expr, Kind, Op};
use crate::diagnostic::Mistake;
use crate::limits::{DEPTH, NODES, SOURCE_BYTES};
use crate::token::{self, Token};
use crate::value::Value;
use std::borrow::Cow;
use std::ops::Range;

/// Words that CEL keeps for the languages that embed it.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

/// The binary operators by how tightly they bind.
const TIERS: &[&[(&str, Operator)]] = &[
    &[("||", Operator::Any)],
    &[("&&", Operator::All)],
    &[
        ("==", Operator::Plain(Op::Equal)),
        ("!=", Operator::Plain(Op::NotEqual)),
        ("<=", Operator::Plain(Op::LessOrEqual)),
        (">=", Operator::Plain(Op::MoreOrEqual)),
        ("<", Operator::Plain(Op::Less)),
        (">", Operator::Plain(Op::More)),
        ("in", Operator::Plain(Op::In)),
    ],
    &[("??", Operator::Default)],
    &[("+", Operator::Plain(Op::Add)), ("-", Operator::Plain(Op::Subtract))],
    &[
        ("*", Operator::Plain(Op::Multiply)),
        ("/", Operator::Plain(Op::Divide)),
        ("%", Operator::Plain(Op::Remainder)),
    ],
];

/// Where `??` stands in [`TIERS`].
const DEFAULT_TIER: usize = 3;

#[derive(Clone, Copy)]
enum Operator {
    All,
    Any,
    Default,
    Plain(Op),
}

/// Reads the whole of `source`.
pub(crate) fn parse(source: &str) -> Result<Expr, Mistake> {
    if source.len() > SOURCE_BYTES {
        return Err(Mistake::new(0..source.len(), format!("an expression has at most {SOURCE_BYTES} bytes")));
    }
    let mut parser = Parser::new(source)?;
    let expr = parser.expression()?;
    if parser.token.kind != token::Kind::End {
        return Err(parser.unexpected("an operator or the end"));
    }
    Ok(expr)
}

struct Parser<'s> {
    source: &'s str,
    token: Token<'s>,
    /// Where the token before ended.
    behind: usize,
    level: u16,
    nodes: usize,
}

impl<'s> Parser<'s> {
    fn new(source: &'s str) -> Result<Self, Mistake> {
        let token = token::next(source, 0)?;
        Ok(Self { source, token, behind: 0, level: 0, nodes: 0 })
    }

    fn advance(&mut self) -> Result<Token<'s>, Mistake> {
        let next = token::next(self.source, self.token.range.end)?;
        self.behind = self.token.range.end;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.token.kind, token::Kind::Symbol(s) if s == symbol)
    }

    fn take(&mut self, symbol: &str) -> Result<bool, Mistake> {
        let is = self.is(symbol);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Mistake> {
        if self.take(symbol)? { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn unexpected(&self, expected: &str) -> Mistake {
        let range = self.token.range.clone();
        let found = match self.token.kind {
            token::Kind::End => "the end".to_owned(),
            _ => format!("`{}`", &self.source[range.clone()]),
        };
        let mistake = Mistake::new(range, format!("expected {expected}, found {found}"));
        match self.token.kind {
            token::Kind::Name("and") => mistake.hint("write `&&`"),
            token::Kind::Name("or") => mistake.hint("write `||`"),
            token::Kind::Name("not") => mistake.hint("write `!`"),
            _ => mistake,
        }
    }

    /// A node whose parts are complete.
    fn node(&mut self, kind: Kind, range: Range<usize>) -> Result<Expr, Mistake> {
        self.nodes += 1;
        if self.nodes > NODES {
            return Err(Mistake::new(range, format!("an expression has at most {NODES} parts")));
        }
        let mut expr = Expr { kind, range, depth: 0 };
        expr.depth = expr.parts().iter().map(|part| part.depth).max().unwrap_or(0) + 1;
        if expr.depth > DEPTH { Err(too_deep(expr.range)) } else { Ok(expr) }
    }

    fn expression(&mut self) -> Result<Expr, Mistake> {
        self.level += 1;
        if self.level > DEPTH {
            return Err(too_deep(self.token.range.clone()));
        }
        let start = self.token.range.start;
        let mut expr = self.binary()?;
        if self.take("?")? {
            let yes = self.binary()?;
            self.expect(":")?;
            let no = self.expression()?;
            expr = self.node(Kind::If(Box::new([expr, yes, no])), start..self.behind)?;
        }
        self.level -= 1;
        Ok(expr)
    }

    /// The operator that is next, and its tier.
    fn operator(&self) -> Option<(usize, Operator)> {
        let written = match self.token.kind {
            token::Kind::Name("in") => "in",
            token::Kind::Symbol(symbol) => symbol,
            _ => return None,
        };
        TIERS.iter().enumerate().find_map(|(tier, operators)| {
            operators.iter().find(|(sign, _)| *sign == written).map(|(_, operator)| (tier, *operator))
        })
    }

    /// Operators and their operands. Waiting ones stand on stacks, so that recursion is of brackets alone.
    fn binary(&mut self) -> Result<Expr, Mistake> {
        let mut operands = vec![self.unary()?];
        let mut waiting: Vec<(usize, Operator)> = Vec::new();
        loop {
            let next = self.operator();
            while let Some(&(tier, operator)) = waiting.last() {
                // `??` takes what is on its right first.
                let is_first =
                    next.is_none_or(|(next, _)| next < tier || next == tier && tier != DEFAULT_TIER);
                if !is_first {
                    break;
                }
                waiting.pop();
                if let (Some(right), Some(left)) = (operands.pop(), operands.pop()) {
                    operands.push(self.join(operator, left, right)?);
                }
            }
            let Some(next) = next else { break };
            self.advance()?;
            waiting.push(next);
            operands.push(self.unary()?);
        }
        operands.pop().ok_or_else(|| self.unexpected("a value"))
    }

    fn join(&mut self, operator: Operator, mut left: Expr, right: Expr) -> Result<Expr, Mistake> {
        let range = left.range.start..right.range.end;
        match (operator, &mut left.kind) {
            // A chain is one node, however long.
            (Operator::All, Kind::All(parts)) | (Operator::Any, Kind::Any(parts)) => {
                left.depth = left.depth.max(right.depth.saturating_add(1));
                left.range = range.clone();
                parts.push(right);
                if left.depth > DEPTH { Err(too_deep(range)) } else { Ok(left) }
            }
            (Operator::All, _) => self.node(Kind::All(vec![left, right]), range),
            (Operator::Any, _) => self.node(Kind::Any(vec![left, right]), range),
            (Operator::Default, _) => self.node(Kind::Default(Box::new(left), Box::new(right)), range),
            (Operator::Plain(op), _) => self.node(Kind::Binary(op, Box::new(left), Box::new(right)), range),
        }
    }

    fn unary(&mut self) -> Result<Expr, Mistake> {
        let mut signs: Vec<(&str, usize)> = Vec::new();
        while self.is("!") || self.is("-") {
            if signs.first().is_some_and(|(sign, _)| !self.is(sign)) {
                return Err(self.unexpected("a value"));
            }
            if signs.len() >= usize::from(DEPTH) {
                return Err(too_deep(self.token.range.clone()));
            }
            signs.push((if self.is("!") { "!" } else { "-" }, self.token.range.start));
            let is_minus = self.is("-");
            self.advance()?;
            // `-9223372036854775808` is one literal: the number alone would not fit.
            if is_minus
                && signs.len() == 1
                && matches!(self.token.kind, token::Kind::Int(_) | token::Kind::Double(_))
            {
                return self.member(true);
            }
        }
        let mut expr = self.member(false)?;
        while let Some((sign, start)) = signs.pop() {
            let range = start..expr.range.end;
            let kind = if sign == "!" { Kind::Not(Box::new(expr)) } else { Kind::Negate(Box::new(expr)) };
            expr = self.node(kind, range)?;
        }
        Ok(expr)
    }

    fn member(&mut self, is_negative: bool) -> Result<Expr, Mistake> {
        let start = self.token.range.start;
        let mut expr = self.primary(is_negative)?;
        loop {
            if self.take(".")? {
                if let token::Kind::Member(name) = self.token.kind {
                    self.advance()?;
                    expr = self.node(Kind::Member(Box::new(expr), name.to_owned()), start..self.behind)?;
                    continue;
                }
                let name_range = self.token.range.clone();
                let token::Kind::Name(name) = self.token.kind else { return Err(self.unexpected("a name")) };
                if matches!(name, "true" | "false" | "null" | "in") {
                    return Err(self.unexpected("a name").hint(format!("write `[\"{name}\"]`")));
                }
                self.advance()?;
                let kind = if self.take("(")? {
                    let args = self.list(")")?;
                    Kind::Call(Call { target: Some(Box::new(expr)), name: name.to_owned(), name_range, args })
                } else {
                    Kind::Member(Box::new(expr), name.to_owned())
                };
                expr = self.node(kind, start..self.behind)?;
            } else if self.take("[")? {
                let index = self.expression()?;
                self.expect("]")?;
                expr = self.node(Kind::Index(Box::new(expr), Box::new(index)), start..self.behind)?;
            } else if self.is("{") && expr.dotted().is_some() {
                let message = "messages are not part of expressions";
                return Err(Mistake::new(start..self.token.range.end, message)
                    .hint("write a map: `{\"name\": value}`"));
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self, is_negative: bool) -> Result<Expr, Mistake> {
        let start = self.token.range.start;
        if matches!(self.token.kind, token::Kind::Symbol(_)) {
            return self.bracket();
        }
        if self.token.kind == token::Kind::End {
            return Err(self.unexpected("a value"));
        }
        let token = self.advance()?;
        let range = token.range.clone();
        let too_large = || Mistake::new(range.clone(), "this number does not fit 64 bits");
        let value = match token.kind {
            token::Kind::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes)),
            token::Kind::Double(n) => Value::Double(if is_negative { -n } else { n }),
            token::Kind::Int(n) if is_negative => {
                Value::Int(0_i64.checked_sub_unsigned(n).ok_or_else(too_large)?)
            }
            token::Kind::Int(n) => {
                Value::Int(i64::try_from(n).map_err(|_| too_large().hint("write a `u` behind it"))?)
            }
            token::Kind::Name("false") => Value::Bool(false),
            token::Kind::Name("null") => Value::Null,
            token::Kind::Name("true") => Value::Bool(true),
            token::Kind::Name(name) => return self.name(name, token.range, false),
            token::Kind::Text(text) => Value::Text(Cow::Owned(text)),
            token::Kind::Uint(n) => Value::Uint(n),
            token::Kind::End | token::Kind::Member(_) | token::Kind::Symbol(_) => {
                return Err(self.unexpected("a value"));
            }
        };
        let start = if is_negative { self.source[..start].rfind('-').unwrap_or(start) } else { start };
        self.node(Kind::Literal(value), start..range.end)
    }

    /// What begins with a bracket, or a name with a dot before it.
    fn bracket(&mut self) -> Result<Expr, Mistake> {
        let start = self.token.range.start;
        if self.take("(")? {
            let mut expr = self.expression()?;
            self.expect(")")?;
            expr.range = start..self.behind;
            return Ok(expr);
        }
        if self.take("[")? {
            let items = self.list("]")?;
            return self.node(Kind::List(items), start..self.behind);
        }
        if self.take(".")? {
            let token = self.token.clone();
            let token::Kind::Name(name) = token.kind else { return Err(self.unexpected("a name")) };
            self.advance()?;
            return self.name(name, token.range, true);
        }
        if !self.take("{")? {
            return Err(self.unexpected("a value"));
        }
        let mut entries = Vec::new();
        while !self.take("}")? {
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.take(",")? && !self.is("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        self.node(Kind::Map(entries), start..self.behind)
    }

    fn name(&mut self, name: &str, range: Range<usize>, is_global: bool) -> Result<Expr, Mistake> {
        if RESERVED.contains(&name) || name == "in" {
            return Err(Mistake::new(range, format!("`{name}` is a reserved word")));
        }
        if self.take("(")? {
            let args = self.list(")")?;
            let call = Call { target: None, name: name.to_owned(), name_range: range.clone(), args };
            return self.node(Kind::Call(call), range.start..self.behind);
        }
        if self.is("\"") || matches!(self.token.kind, token::Kind::Name(_)) && name == "not" {
            return Err(Mistake::new(range, "expected a value, found `not`").hint("write `!`"));
        }
        self.node(Kind::Name { name: name.to_owned(), is_global }, range)
    }

    /// Expressions up to `closing`. A list may end with a comma.
    fn list(&mut self, closing: &str) -> Result<Vec<Expr>, Mistake> {
        let mut items = Vec::new();
        while !self.take(closing)? {
            items.push(self.expression()?);
            if !self.take(",")? && !self.is(closing) {
                return Err(self.unexpected(&format!("`,` or `{closing}`")));
            }
        }
        Ok(items)
    }
}

fn too_deep(range: Range<usize>) -> Mistake {
    Mistake::new(range, format!("this is nested deeper than {DEPTH} levels"))
}
