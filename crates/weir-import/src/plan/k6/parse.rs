//! Statements and expressions of JavaScript, as far as scripts of k6 are followed. A statement that is not understood
//! is kept as such, with its line, and the next one is read.

mod expression;

use super::lex::{Token, Word};
use std::rc::Rc;

/// Deepest nesting.
const DEPTH: usize = 60;
/// Most operators or members in a row: each nests the tree by one level.
const CHAIN: usize = 200;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    pub(super) line: u32,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Block(Vec<Statement>),
    /// Names and values; a pattern on the left has no name.
    Declare(Vec<(String, Option<Expression>)>),
    Expression(Expression),
    /// `for (let NAME = FROM; NAME < TO; NAME++)`.
    For {
        name: String,
        from: Expression,
        to: Expression,
        body: Box<Statement>,
    },
    Function(String, Rc<Function>),
    If(Expression, Box<Statement>, Option<Box<Statement>>),
    Import(Import),
    Return(Option<Expression>),
    /// What it is, for the ledger.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Import {
    /// `import NAME from …` and `import * as NAME from …`.
    pub(super) whole: Option<String>,
    /// The names in braces, as the module calls them.
    pub(super) names: Vec<String>,
    pub(super) module: String,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) line: u32,
    /// The place of its `(` in the script: it tells calls apart.
    pub(super) at: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Function {
    pub(super) line: u32,
    pub(super) parameters: Vec<String>,
    pub(super) body: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Array(Vec<Self>),
    Binary(Box<Self>, &'static str, Box<Self>),
    Bool(bool),
    Call(Box<Self>, Vec<Self>, Site),
    Choice(Box<Self>, Box<Self>, Box<Self>),
    Function(Rc<Function>),
    Index(Box<Self>, Box<Self>),
    Member(Box<Self>, String),
    Name(String),
    New(Box<Self>, Vec<Self>),
    Null,
    Number(String),
    Object(Vec<(String, Self)>),
    Template(Vec<String>, Vec<Self>),
    Text(String),
    Unary(&'static str, Box<Self>),
    /// A part that is not followed: what it is.
    Unknown(String),
}

/// The statements of a script.
pub(super) fn statements(tokens: &[Token]) -> Vec<Statement> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let mut all = Vec::new();
    while parser.peek().is_some() {
        all.push(parser.statement());
    }
    all
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Word> {
        self.tokens.get(self.at).map(|token| &token.word)
    }

    fn line(&self) -> u32 {
        let token = self.tokens.get(self.at).or_else(|| self.tokens.last());
        token.map_or(1, |token| token.line)
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Word::Sign(own)) if *own == sign)
    }

    fn passes(&mut self, sign: &str) -> bool {
        let is_next = self.is_sign(sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.passes(sign) { Ok(()) } else { Err(format!("expected `{sign}`")) }
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Word::Name(own)) if own == name)
    }

    fn passes_name(&mut self, name: &str) -> bool {
        let is_next = self.is_name(name);
        self.at += usize::from(is_next);
        is_next
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Some(Word::Name(name)) => {
                self.at += 1;
                Ok(name.clone())
            }
            _ => Err("expected a name".to_owned()),
        }
    }

    fn statement(&mut self) -> Statement {
        let (begin, line) = (self.at, self.line());
        if self.depth >= DEPTH {
            self.at = self.tokens.len();
            return Statement { line, kind: Kind::Unknown("nested too deeply".to_owned()) };
        }
        self.depth += 1;
        let depth = self.depth;
        let parsed = self.kind();
        self.depth = depth - 1;
        match parsed {
            Ok(kind) => Statement { line, kind },
            Err(why) => {
                self.at = begin;
                self.skip();
                Statement { line, kind: Kind::Unknown(why) }
            }
        }
    }

    /// Passes a statement that is not understood: to a `;` or line end outside of brackets, or to the end of a block.
    fn skip(&mut self) {
        let mut open = 0usize;
        let begin = self.at;
        while let Some(token) = self.tokens.get(self.at) {
            if open == 0
                && self.at > begin
                && token.is_first
                && !matches!(token.word, Word::Sign("." | "{" | "(" | "[" | ")" | "]" | "}"))
            {
                return;
            }
            match token.word {
                Word::Sign("{" | "(" | "[") => open += 1,
                Word::Sign("}" | ")" | "]") if open == 0 => {
                    // The end of the block around it; a lone bracket at the top is passed.
                    if self.depth == 0 || self.at == begin {
                        self.at += 1;
                    }
                    return;
                }
                Word::Sign("}" | ")" | "]") => open -= 1,
                Word::Sign(";") if open == 0 => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn kind(&mut self) -> Parsed<Kind> {
        if self.passes(";") {
            return Ok(Kind::Block(Vec::new()));
        }
        if self.is_sign("{") {
            return self.block().map(Kind::Block);
        }
        match self.peek() {
            Some(Word::Name(name)) => match &**name {
                "import" => {
                    let import = self.import();
                    self.skip();
                    Ok(Kind::Import(import))
                }
                "export" => {
                    self.at += 1;
                    if self.passes_name("default") {
                        self.passes_name("async");
                        if self.is_name("function") {
                            let (_, function) = self.function()?;
                            return Ok(Kind::Function("default".to_owned(), function));
                        }
                        return match self.expression()? {
                            Expression::Function(function) => {
                                self.end();
                                Ok(Kind::Function("default".to_owned(), function))
                            }
                            _ => Err("the default export is no function".to_owned()),
                        };
                    }
                    self.kind()
                }
                "const" | "let" | "var" => {
                    self.at += 1;
                    self.declare()
                }
                "async" if matches!(self.tokens.get(self.at + 1).map(|t| &t.word), Some(Word::Name(n)) if n == "function") =>
                {
                    self.at += 1;
                    self.kind()
                }
                "function" => {
                    let (name, function) = self.function()?;
                    Ok(Kind::Function(name, function))
                }
                "return" => {
                    self.at += 1;
                    let is_bare = self.is_sign(";")
                        || self.is_sign("}")
                        || self.tokens.get(self.at).is_none_or(|t| t.is_first);
                    let value = if is_bare { None } else { Some(self.expression()?) };
                    self.end();
                    Ok(Kind::Return(value))
                }
                "if" => {
                    self.at += 1;
                    self.expect("(")?;
                    let condition = self.expression()?;
                    self.expect(")")?;
                    let then = Box::new(self.statement());
                    let otherwise =
                        if self.passes_name("else") { Some(Box::new(self.statement())) } else { None };
                    Ok(Kind::If(condition, then, otherwise))
                }
                "for" => self.counted(),
                "while" | "do" | "switch" | "try" | "throw" | "class" | "with" | "break" | "continue" => {
                    Err(format!("`{name}` is not followed"))
                }
                _ => self.expression_statement(),
            },
            _ => self.expression_statement(),
        }
    }

    /// What is imported. The words are passed by [`Self::skip`] later.
    fn import(&self) -> Import {
        let mut import = Import { whole: None, names: Vec::new(), module: String::new() };
        let (mut is_in_braces, mut before) = (false, "");
        for token in self.tokens.iter().skip(self.at + 1).take(500) {
            match &token.word {
                Word::Text(module) => {
                    module.clone_into(&mut import.module);
                    break;
                }
                Word::Sign("{") => is_in_braces = true,
                Word::Sign("}") => is_in_braces = false,
                Word::Sign(";") => break,
                Word::Name(name) if matches!(&**name, "as" | "from") && before != "{" => {}
                // Of `a as b` the module knows the first.
                Word::Name(name) if is_in_braces && before != "as" => import.names.push(name.clone()),
                Word::Name(name) if !is_in_braces => import.whole = Some(name.clone()),
                _ => {}
            }
            before = match &token.word {
                Word::Name(name) => name,
                Word::Sign(sign) => sign,
                _ => "",
            };
        }
        import
    }

    fn expression_statement(&mut self) -> Parsed<Kind> {
        let expression = self.expression()?;
        self.end();
        Ok(Kind::Expression(expression))
    }

    fn end(&mut self) {
        self.passes(";");
    }

    fn block(&mut self) -> Parsed<Vec<Statement>> {
        self.expect("{")?;
        let mut all = Vec::new();
        while !self.is_sign("}") {
            if self.peek().is_none() {
                return Err("a block is not closed".to_owned());
            }
            let before = self.at;
            all.push(self.statement());
            if self.at == before {
                self.at += 1;
            }
        }
        self.at += 1;
        Ok(all)
    }

    fn declare(&mut self) -> Parsed<Kind> {
        let mut all = Vec::new();
        loop {
            let name =
                self.name().map_err(|_| "taking values apart (`{ a } = …`) is not followed".to_owned())?;
            let value = if self.passes("=") { Some(self.expression()?) } else { None };
            all.push((name, value));
            if !self.passes(",") {
                break;
            }
        }
        self.end();
        Ok(Kind::Declare(all))
    }

    /// `for (let i = 0; i < 3; i++)`; others are not followed.
    fn counted(&mut self) -> Parsed<Kind> {
        const OTHER: &str = "only `for (let i = 0; i < N; i++)` is followed";
        self.at += 1;
        self.expect("(")?;
        if !(self.passes_name("let") || self.passes_name("var")) {
            return Err(OTHER.to_owned());
        }
        let name = self.name()?;
        self.expect("=").map_err(|_| OTHER.to_owned())?;
        let from = self.expression()?;
        self.expect(";")?;
        let to = match self.expression()? {
            Expression::Binary(left, "<", to) if *left == Expression::Name(name.clone()) => *to,
            _ => return Err(OTHER.to_owned()),
        };
        self.expect(";")?;
        match self.expression()? {
            Expression::Unary("++", inner) if *inner == Expression::Name(name.clone()) => {}
            _ => return Err(OTHER.to_owned()),
        }
        self.expect(")")?;
        let body = Box::new(self.statement());
        Ok(Kind::For { name, from, to, body })
    }

    fn function(&mut self) -> Parsed<(String, Rc<Function>)> {
        let line = self.line();
        self.at += 1;
        let name = if self.is_sign("(") { String::new() } else { self.name()? };
        self.expect("(")?;
        let parameters = self.parameters()?;
        let body = self.block()?;
        Ok((name, Rc::new(Function { line, parameters, body })))
    }

    fn parameters(&mut self) -> Parsed<Vec<String>> {
        let mut all = Vec::new();
        while !self.passes(")") {
            all.push(self.name().map_err(|_| "a parameter that is no name is not followed".to_owned())?);
            if self.passes("=") {
                self.expression()?;
            }
            if !self.is_sign(")") {
                self.expect(",")?;
            }
        }
        Ok(all)
    }
}
