//! Checks an expression against a schema and compiles it: types, phases, values that may be missing, cost.
//!
//! `check/names.rs` resolves variables, members and keys; `check/operators.rs` has what stands between operands;
//! `check/calls.rs` has functions and macros. What all of them make is a [`Typed`].

use crate::ast::{Expr, Kind};
use crate::code::{Node, Test};
use crate::diagnostic::Mistake;
use crate::eval;
use crate::limits::{COST, COST_BYTES, TEXT_BYTES};
use crate::parse::parse;
use crate::schema::{Phase, Schema, Type, Var};
use crate::value::Value;
use std::ops::Range;

mod calls;
mod names;
mod operators;

/// A variable that an expression reads, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The variable.
    pub var: Var,
    /// The key; none for a variable without keys, and for a key that is computed: it may be any.
    pub key: Option<String>,
    /// A key is computed at run time.
    pub is_computed: bool,
    /// The bytes of the source that name it.
    pub range: Range<usize>,
}

/// A checked part of an expression.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    code: Code,
    pub(crate) ty: Type,
    /// It may have no value: because of this part.
    maybe: Option<Range<usize>>,
    /// The most bytes of a text, or items of a list.
    pub(crate) longest: u64,
    /// The most bytes of any text in it, and the most items of any list or map in it.
    inner: Inner,
    /// The most steps that an evaluation takes.
    pub(crate) cost: u64,
    /// It reads a variable of the host.
    reads: bool,
    /// The outermost local of a macro that it reads.
    local: Option<u16>,
}

/// How long the texts and the lists inside a list may be, at whatever depth.
#[derive(Clone, Copy, Debug, Default)]
struct Inner {
    bytes: u64,
    items: u64,
}

impl Inner {
    fn max(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), items: self.items.max(other.items) }
    }

    /// The longest value of type `ty` inside.
    fn longest(self, ty: &Type) -> u64 {
        match ty {
            Type::List(_) | Type::Map(_) => self.items,
            Type::Bytes | Type::Text => self.bytes,
            Type::Json => TEXT_BYTES.max(self.bytes),
            _ => 0,
        }
    }
}

#[derive(Clone, Debug)]
enum Code {
    Node(Node),
    Test(Test),
}

impl Typed {
    fn node(node: Node, ty: Type) -> Self {
        let longest = Inner { bytes: TEXT_BYTES, items: 0 }.longest(&ty);
        let inner = Inner::default();
        Self { code: Code::Node(node), ty, maybe: None, longest, inner, cost: 1, reads: false, local: None }
    }

    fn test(test: Test) -> Self {
        Self { code: Code::Test(test), ..Self::node(Node::Constant(Value::Null), Type::Bool) }
    }

    /// With the cost, the missing values and the variables of `parts` added.
    fn of(mut self, parts: &[&Self]) -> Self {
        for part in parts {
            self.cost = self.cost.saturating_add(part.cost);
            self.reads |= part.reads;
            self.local = self.local.into_iter().chain(part.local).min();
            self.maybe = self.maybe.or_else(|| part.maybe.clone());
        }
        self
    }

    fn maybe(mut self, range: Range<usize>) -> Self {
        self.maybe.get_or_insert(range);
        self
    }

    /// Looks at as much text as these may hold.
    fn scanning(mut self, texts: &[&Self]) -> Self {
        let bytes = texts.iter().fold(0_u64, |sum, text| sum.saturating_add(text.longest));
        self.cost = self.cost.saturating_add(bytes / COST_BYTES);
        self
    }

    /// How long this is, and what is in it, as a part of a list.
    fn inside(&self) -> Inner {
        let own = match self.ty {
            Type::List(_) | Type::Map(_) => Inner { bytes: 0, items: self.longest },
            _ => Inner { bytes: self.longest, items: 0 },
        };
        self.inner.max(own)
    }

    fn longest(mut self, longest: u64) -> Self {
        self.longest = longest;
        self
    }

    pub(crate) fn into_node(self) -> Node {
        match self.code {
            Code::Node(node) => node,
            Code::Test(test) => Node::Test(Box::new(test)),
        }
    }

    pub(crate) fn into_test(self) -> Test {
        match self.code {
            Code::Node(Node::Constant(Value::Bool(is))) => Test::Always(is),
            Code::Node(Node::Test(test)) => *test,
            Code::Node(node) => Test::Value(Box::new(node)),
            Code::Test(test) => test,
        }
    }

    fn constant(&self) -> Option<&Value<'static>> {
        match &self.code {
            Code::Node(Node::Constant(value)) => Some(value),
            _ => None,
        }
    }

    /// The text, if it is written as a literal or comes to one.
    fn literal(&self) -> Option<&[u8]> {
        match self.constant() {
            Some(Value::Text(text) | Value::Bytes(text)) => Some(text),
            _ => None,
        }
    }

    /// As text: JSON and addresses become what `string()` makes of them.
    fn into_text(self) -> Self {
        if self.ty.is_text() {
            return self;
        }
        let outer = Self::node(Node::Constant(Value::Null), Type::Text).of(&[&self]);
        Self { maybe: None, code: Code::Node(Node::AsText(Box::new(self.into_node()))), ..outer }
    }
}

/// A checked expression and what the check found out.
pub(crate) struct Checked {
    pub(crate) typed: Typed,
    pub(crate) reads: Vec<Read>,
    pub(crate) phase: Phase,
}

/// Parses and checks an expression that is true or false and always has a value.
pub(crate) fn condition(source: &str, schema: &Schema, phase: Phase) -> Result<Checked, Vec<Mistake>> {
    checked(source, schema, phase, Checker::truth)
}

/// Parses and checks an expression of any type, which may have no value.
pub(crate) fn expression(source: &str, schema: &Schema, phase: Phase) -> Result<Checked, Vec<Mistake>> {
    checked(source, schema, phase, Checker::any)
}

fn checked<'s>(
    source: &'s str,
    schema: &'s Schema,
    phase: Phase,
    whole: impl FnOnce(&mut Checker<'s>, &Expr) -> Option<Typed>,
) -> Result<Checked, Vec<Mistake>> {
    let expr = parse(source).map_err(|mistake| vec![mistake])?;
    let mut checker = Checker::new(source, schema, phase);
    let typed = whole(&mut checker, &expr);
    checker.done(typed, &expr)
}

struct Checker<'s> {
    source: &'s str,
    schema: &'s Schema,
    /// The phase in which the expression runs.
    phase: Phase,
    /// The latest phase of what it reads.
    latest: Phase,
    reads: Vec<Read>,
    mistakes: Vec<Mistake>,
    /// The variables of the macros around, by slot.
    locals: Vec<(String, Typed)>,
}

impl<'s> Checker<'s> {
    fn new(source: &'s str, schema: &'s Schema, phase: Phase) -> Self {
        Self {
            source,
            schema,
            phase,
            latest: Phase(0),
            reads: Vec::new(),
            mistakes: Vec::new(),
            locals: Vec::new(),
        }
    }

    fn done(mut self, typed: Option<Typed>, expr: &Expr) -> Result<Checked, Vec<Mistake>> {
        match typed {
            Some(typed) if self.mistakes.is_empty() && typed.cost <= COST => {
                Ok(Checked { typed, reads: self.reads, phase: self.latest })
            }
            Some(typed) if self.mistakes.is_empty() => {
                let message =
                    format!("this may take {} steps, and an expression has at most {COST}", typed.cost);
                let hint = "macros inside macros and functions over long texts are what costs";
                Err(vec![Mistake::new(expr.range.clone(), message).hint(hint)])
            }
            _ => {
                self.mistakes.sort_by_key(|mistake| (mistake.range.start, mistake.range.end));
                Err(self.mistakes)
            }
        }
    }

    /// Notes a mistake. A part with a mistake has no type, and whatever stands around it is not checked further.
    fn wrong<T>(&mut self, mistake: Mistake) -> Option<T> {
        self.mistakes.push(mistake);
        None
    }

    /// Checks any part. What reads no variable is computed here and now.
    fn any(&mut self, expr: &Expr) -> Option<Typed> {
        let typed = self.part(expr)?;
        let inner = typed.local.is_some_and(|local| usize::from(local) < self.locals.len());
        if typed.reads || inner || typed.constant().is_some() || typed.cost > COST {
            return Some(typed);
        }
        let (ty, maybe, inner) = (typed.ty.clone(), typed.maybe.clone(), typed.inner);
        let kept = typed.clone();
        let Some(value) = eval::constant(&typed.into_node()) else { return Some(kept) };
        if let (Some(range), Value::Absent) = (maybe, &value) {
            return self.wrong(Mistake::new(range, "this never has a value"));
        }
        let longest = match &value {
            Value::Text(text) | Value::Bytes(text) => text.len() as u64,
            other => other.size().map_or(kept.longest, |items| items as u64),
        };
        Some(Typed { inner, ..Typed::node(Node::Constant(value), ty).longest(longest) })
    }

    fn part(&mut self, expr: &Expr) -> Option<Typed> {
        match &expr.kind {
            Kind::All(parts) | Kind::Any(parts) => {
                let tests: Vec<_> = parts.iter().map(|part| self.truth(part)).collect();
                let tests: Vec<Typed> = tests.into_iter().collect::<Option<_>>()?;
                let is_all = matches!(expr.kind, Kind::All(_));
                let typed = Typed::test(Test::Always(is_all)).of(&tests.iter().collect::<Vec<_>>());
                let tests = tests.into_iter().map(Typed::into_test).collect();
                Some(Typed {
                    code: Code::Test(if is_all { Test::All(tests) } else { Test::Any(tests) }),
                    ..typed
                })
            }
            Kind::Binary(op, left, right) => self.binary(expr, *op, left, right),
            Kind::Call(call) => self.call(expr, call),
            Kind::Default(value, default) => self.default(expr, value, default),
            Kind::If(parts) => self.choice(expr, parts),
            Kind::Index(of, key) => self.index(expr, of, key),
            Kind::List(items) => self.list(items),
            Kind::Literal(value) => Some(literal(value)),
            Kind::Map(entries) => self.map(entries),
            Kind::Member(..) | Kind::Name { .. } => self.name(expr),
            Kind::Negate(of) => self.negate(expr, of),
            Kind::Not(of) => {
                let test = self.truth(of)?;
                let typed = Typed::test(Test::Always(false)).of(&[&test]);
                Some(Typed { code: Code::Test(Test::Not(Box::new(test.into_test()))), ..typed })
            }
        }
    }

    /// Checks what has to be true or false and to have a value.
    fn truth(&mut self, expr: &Expr) -> Option<Typed> {
        let typed = self.any(expr)?;
        if typed.ty != Type::Bool {
            let mistake =
                Mistake::new(expr.range.clone(), format!("expected true or false, found {}", typed.ty));
            let hint = match typed.ty {
                Type::Json => "compare it: `== true`, or write `bool(…) ?? false`",
                Type::Text | Type::Bytes => "compare it: `!= \"\"` is true where there is a text",
                Type::Int | Type::Uint | Type::Double => "compare it: `!= 0`",
                _ => "compare it with something",
            };
            return self.wrong(mistake.hint(hint));
        }
        self.valued(typed, "false")
    }

    /// Checks that there always is a value.
    fn valued(&mut self, typed: Typed, default: &str) -> Option<Typed> {
        let Some(range) = typed.maybe.clone() else { return Some(typed) };
        let hint = match self.source.get(range.clone()) {
            Some(text) if text.len() > 60 || text.contains('\n') => format!("(…) ?? {default}"),
            Some(text) if text.contains(' ') => format!("({text}) ?? {default}"),
            Some(text) => format!("{text} ?? {default}"),
            None => format!("(…) ?? {default}"),
        };
        let hint = format!("say what holds then: write `{hint}`");
        self.wrong(Mistake::new(range, "this may have no value").hint(hint))
    }

    fn list(&mut self, items: &[Expr]) -> Option<Typed> {
        let items: Vec<_> = items.iter().map(|item| self.any(item)).collect();
        let items: Vec<Typed> = items.into_iter().collect::<Option<_>>()?;
        let ty = one_type(items.iter().map(|item| &item.ty));
        let typed =
            Typed::node(Node::Constant(Value::Null), Type::list(ty)).of(&items.iter().collect::<Vec<_>>());
        let inner = items.iter().map(Typed::inside).fold(Inner::default(), Inner::max);
        let typed = self.valued(typed, "DEFAULT")?;
        let longest = items.len() as u64;
        let nodes = items.into_iter().map(Typed::into_node).collect();
        Some(Typed { code: Code::Node(Node::List(nodes)), longest, inner, ..typed })
    }

    fn map(&mut self, entries: &[(Expr, Expr)]) -> Option<Typed> {
        let mut checked = Vec::new();
        let mut is_wrong = false;
        for (key, value) in entries {
            let (key_range, value) = (key.range.clone(), self.any(value));
            let Some(key) = self.any(key).and_then(|key| self.valued(key, "\"\"")) else { continue };
            let Some(value) = value else { continue };
            let is_key = matches!(key.ty, Type::Bool | Type::Int | Type::Json | Type::Text | Type::Uint);
            let is_twice = key.constant().is_some_and(|key| {
                checked.iter().any(|(other, _): &(Typed, Typed)| {
                    other.constant().is_some_and(|other| other.equals(key))
                })
            });
            if !is_key || is_twice {
                let message = if is_twice {
                    "this key stands here twice"
                } else {
                    "a key is a text, a number or a bool"
                };
                is_wrong = self.wrong::<()>(Mistake::new(key_range, message)).is_none();
            }
            checked.push((key, value));
        }
        if is_wrong || checked.len() < entries.len() {
            return None;
        }
        let keys = one_type(checked.iter().map(|(key, _)| &key.ty));
        let values = one_type(checked.iter().map(|(_, value)| &value.ty));
        let parts: Vec<&Typed> = checked.iter().flat_map(|(key, value)| [key, value]).collect();
        let typed = Typed::node(Node::Constant(Value::Null), Type::map(keys, values)).of(&parts);
        // Looking one entry up looks at all.
        let inner = parts.iter().map(|part| part.inside()).fold(Inner::default(), Inner::max);
        let typed = Typed { maybe: None, longest: parts.len() as u64, inner, ..typed };
        let nodes = checked.into_iter().map(|(key, value)| (key.into_node(), value.into_node())).collect();
        Some(Typed { code: Code::Node(Node::Map(nodes)), ..typed })
    }
}

/// The type of a literal.
fn literal(value: &Value<'static>) -> Typed {
    let (ty, longest) = match value {
        Value::Bool(_) => (Type::Bool, 0),
        Value::Bytes(bytes) => (Type::Bytes, bytes.len()),
        Value::Double(_) => (Type::Double, 0),
        Value::Int(_) => (Type::Int, 0),
        Value::Text(text) => (Type::Text, text.len()),
        Value::Uint(_) => (Type::Uint, 0),
        _ => (Type::Null, 0),
    };
    Typed::node(Node::Constant(value.clone()), ty).longest(longest as u64)
}

/// The type that all have; JSON if they differ or there are none.
fn one_type<'t>(mut types: impl Iterator<Item = &'t Type>) -> Type {
    let Some(first) = types.next() else { return Type::Json };
    if types.all(|ty| ty == first) { first.clone() } else { Type::Json }
}
