//! An expression as written: what [`parse`](crate::parse) makes and [`check`](crate::check) reads.

use crate::value::Value;
use std::ops::Range;

/// A part of an expression and where it stands.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: Kind,
    pub(crate) range: Range<usize>,
    /// How deep the tree below it is, itself included. Invariant: at most [`DEPTH`](crate::limits::DEPTH).
    pub(crate) depth: u16,
}

/// What it is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `a && b && …`
    All(Vec<Expr>),
    /// `a || b || …`
    Any(Vec<Expr>),
    Binary(Op, Box<Expr>, Box<Expr>),
    Call(Call),
    /// `a ?? b`
    Default(Box<Expr>, Box<Expr>),
    /// `a ? b : c`
    If(Box<[Expr; 3]>),
    Index(Box<Expr>, Box<Expr>),
    List(Vec<Expr>),
    Literal(Value<'static>),
    Map(Vec<(Expr, Expr)>),
    Member(Box<Expr>, String),
    Name {
        name: String,
        is_global: bool,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
}

/// `name(args)` or `target.name(args)`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) target: Option<Box<Expr>>,
    pub(crate) name: String,
    pub(crate) name_range: Range<usize>,
    pub(crate) args: Vec<Expr>,
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Divide,
    Equal,
    In,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Multiply,
    NotEqual,
    Remainder,
    Subtract,
}

impl Op {
    /// As it is written.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Divide => "/",
            Self::Equal => "==",
            Self::In => "in",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::More => ">",
            Self::MoreOrEqual => ">=",
            Self::Multiply => "*",
            Self::NotEqual => "!=",
            Self::Remainder => "%",
            Self::Subtract => "-",
        }
    }
}

impl Expr {
    /// Its direct parts.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match &self.kind {
            Kind::All(parts) | Kind::Any(parts) | Kind::List(parts) => parts.iter().collect(),
            Kind::Binary(_, a, b) | Kind::Default(a, b) | Kind::Index(a, b) => vec![a, b],
            Kind::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
            Kind::If(parts) => parts.iter().collect(),
            Kind::Literal(_) | Kind::Name { .. } => Vec::new(),
            Kind::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            Kind::Member(of, _) | Kind::Negate(of) | Kind::Not(of) => vec![of],
        }
    }

    /// `request.headers` as `["request", "headers"]`, and whether it began with a dot; none if it is not a dotted name.
    pub(crate) fn dotted(&self) -> Option<(Vec<&str>, bool)> {
        match &self.kind {
            Kind::Name { name, is_global } => Some((vec![name], *is_global)),
            Kind::Member(of, name) => {
                let (mut names, is_global) = of.dotted()?;
                names.push(name);
                Some((names, is_global))
            }
            _ => None,
        }
    }
}
