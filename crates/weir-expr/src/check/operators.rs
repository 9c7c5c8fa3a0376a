//! What stands between operands: comparisons, `in`, arithmetic, `??`, `? :`.

use super::{Checker, Code, Typed, one_type};
use crate::ast::{Expr, Kind, Op};
use crate::code::{Node, Relation, Test};
use crate::diagnostic::Mistake;
use crate::limits::{BUILT_BYTES, COST_BYTES, JSON_ITEMS};
use crate::networks::Networks;
use crate::schema::Type;
use crate::value::Value;
use std::ops::Range;

impl Checker<'_> {
    pub(super) fn binary(&mut self, expr: &Expr, op: Op, left: &Expr, right: &Expr) -> Option<Typed> {
        if op == Op::In {
            return self.within(expr, left, right);
        }
        let (a, b) = (self.any(left), self.any(right));
        let (a, b) = (a?, b?);
        match Relation::of(op) {
            Some(relation) => self.compare(expr, relation, (left, a), (right, b)),
            None => self.arithmetic(expr, op, a, b),
        }
    }

    fn compare(
        &mut self,
        expr: &Expr,
        relation: Relation,
        (left, a): (&Expr, Typed),
        (right, b): (&Expr, Typed),
    ) -> Option<Typed> {
        // An address compares with an address that is written as a text.
        if a.ty == Type::Address && b.literal().is_some() {
            let b = self.address(&b, right.range.clone())?;
            return self.compare(expr, relation, (left, a), (right, b));
        }
        if b.ty == Type::Address && a.literal().is_some() {
            let a = self.address(&a, left.range.clone())?;
            return self.compare(expr, relation, (left, a), (right, b));
        }
        let is_equality = matches!(relation, Relation::Equal | Relation::NotEqual);
        if !is_equality && can_order_json(&a.ty, &b.ty) {
            let typed = Typed::node(Node::Constant(Value::Null), Type::Bool).of(&[&a, &b]);
            let cost = typed.cost.saturating_add(a.longest.min(b.longest) / COST_BYTES);
            let node = Node::Order(relation, Box::new((a.into_node(), b.into_node())));
            return Some(Typed { code: Code::Node(node), cost, ..typed }.maybe(expr.range.clone()));
        }
        let fits = if is_equality { can_equal(&a.ty, &b.ty) } else { can_order(&a.ty, &b.ty) };
        if !fits {
            return self.wrong(incomparable(expr, relation, &a, &b));
        }
        let (a, b) = (self.present(a), self.present(b));
        let (a, b) = (a?, b?);
        let (a, b) = match (&a.ty, &b.ty) {
            (Type::Json, ty) if !is_equality && ty.is_text() => (a.into_text(), b),
            (ty, Type::Json) if !is_equality && ty.is_text() => (a, b.into_text()),
            _ => (a, b),
        };
        let typed = Typed::test(Test::Always(true)).of(&[&a, &b]);
        let typed = if a.ty.is_text() && b.ty.is_text() {
            let shorter = a.longest.min(b.longest);
            Typed { cost: typed.cost.saturating_add(shorter / COST_BYTES), ..typed }
        } else if matches!(a.ty, Type::List(_) | Type::Map(_) | Type::Json)
            || matches!(b.ty, Type::List(_) | Type::Map(_))
        {
            Typed { cost: typed.cost.saturating_add(a.longest.min(b.longest)), ..typed }
        } else {
            typed
        };
        let (relation, a, b) =
            if a.constant().is_some() { (relation.swapped(), b, a) } else { (relation, a, b) };
        Some(Typed { code: Code::Test(comparison(relation, a, b)), ..typed })
    }

    /// The address that a literal is.
    fn address(&mut self, text: &Typed, range: Range<usize>) -> Option<Typed> {
        let written = text.literal().and_then(|text| str::from_utf8(text).ok()).unwrap_or_default();
        match written.parse() {
            Ok(ip) => Some(Typed::node(Node::Constant(Value::Address(ip)), Type::Address)),
            Err(_) => {
                let mistake = Mistake::new(range, format!("`{written}` is not an IP address"));
                let hint = if Networks::parse([written]).is_ok() {
                    format!("an address lies in a network: write `in [\"{written}\"]`")
                } else {
                    "such as `10.1.2.3` or `2001:db8::1`".to_owned()
                };
                self.wrong(mistake.hint(hint))
            }
        }
    }

    /// `a in b`.
    fn within(&mut self, expr: &Expr, left: &Expr, right: &Expr) -> Option<Typed> {
        if let Some(variable) = self.keyed_variable(right) {
            let Kind::Literal(Value::Text(_)) = left.kind else {
                let name = variable.name();
                let mistake =
                    Mistake::new(left.range.clone(), format!("expected the name of a key of `{name}`"));
                return self.wrong(mistake.hint(format!("such as `\"name\" in {name}`")));
            };
            let index = Kind::Index(Box::new(copy_name(right)?), Box::new(copy_literal(left)?));
            let index = Expr { kind: index, range: expr.range.clone(), depth: expr.depth };
            return self.has(expr, &[index]);
        }
        let (a, b) = (self.any(left), self.any(right));
        let (a, b) = (a?, b?);
        if a.ty == Type::Address {
            return self.in_networks(expr, a, (right, b));
        }
        let (items, many) = match &b.ty {
            Type::List(items) => ((**items).clone(), b.longest),
            Type::Map(types) => (types.0.clone(), b.longest),
            Type::Json => (Type::Json, u64::from(JSON_ITEMS)),
            ty => {
                let mistake =
                    Mistake::new(right.range.clone(), format!("expected a list after `in`, found {ty}"));
                return self.wrong(if ty.is_text() {
                    mistake.hint("write `a.contains(b)` for a part of a text")
                } else {
                    mistake
                });
            }
        };
        if !can_equal(&a.ty, &items) && b.longest > 0 {
            let message = format!("a list of {items} never has a value of type {}", a.ty);
            return self.wrong(Mistake::new(expr.range.clone(), message));
        }
        let (a, b) = (self.present(a), self.present(b));
        let (a, b) = (a?, b?);
        let each = 1 + if a.ty.is_text() || a.ty == Type::Json {
            a.longest.min(b.inner.longest(&items)) / COST_BYTES
        } else {
            0
        };
        let typed = Typed::test(Test::Always(false)).of(&[&a, &b]);
        let typed = Typed { cost: typed.cost.saturating_add(many.saturating_mul(each)), ..typed };
        let texts = b.constant().and_then(constant_texts);
        let test = match (a.into_node(), texts) {
            (Node::Text(place), Some(texts)) => Test::OneOf(place, texts),
            (node, _) => Test::In(Box::new((node, b.into_node()))),
        };
        Some(Typed { code: Code::Test(test), ..typed })
    }

    /// An address in networks, which are written as texts.
    fn in_networks(&mut self, expr: &Expr, address: Typed, (right, list): (&Expr, Typed)) -> Option<Typed> {
        let texts = match list.constant() {
            Some(Value::List(items)) => Some(items),
            _ => None,
        };
        let Some(texts) = texts else {
            let mistake = Mistake::new(
                right.range.clone(),
                "the networks of an address are written as a list of texts",
            );
            return self.wrong(mistake.hint("such as `client.ip in [\"10.0.0.0/8\", \"::1\"]`"));
        };
        let written: Vec<String> = texts
            .iter()
            .map(|item| match item {
                Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
                _ => String::new(),
            })
            .collect();
        match Networks::parse(written.iter().map(String::as_str)) {
            Ok(networks) => {
                let address = self.present(address)?;
                let typed = Typed::test(Test::Always(false)).of(&[&address]);
                let test = Test::Within(address.into_node(), Box::new(networks));
                Some(Typed { code: Code::Test(test), cost: typed.cost.saturating_add(32), ..typed })
            }
            Err(at) => {
                let range = match &right.kind {
                    Kind::List(items) => items.get(at).map_or(&expr.range, |item| &item.range),
                    _ => &right.range,
                };
                let message = format!("`{}` is not a network", written.get(at).map_or("", String::as_str));
                self.wrong(
                    Mistake::new(range.clone(), message)
                        .hint("such as `10.0.0.0/8`, `2001:db8::/32` or one address"),
                )
            }
        }
    }

    fn arithmetic(&mut self, expr: &Expr, op: Op, a: Typed, b: Typed) -> Option<Typed> {
        let is_text = op == Op::Add && (a.ty.is_text() || b.ty.is_text());
        let (a, b) = match (&a.ty, &b.ty) {
            (Type::Json, ty) if is_text && ty.is_text() => (a.into_text(), b),
            (ty, Type::Json) if is_text && ty.is_text() => (a, b.into_text()),
            _ => (a, b),
        };
        let ty = match (op, &a.ty, &b.ty) {
            (_, Type::Json, x) | (_, x, Type::Json)
                if x.is_number() || matches!(x, Type::Duration | Type::Json | Type::Timestamp) =>
            {
                Some(Type::Json)
            }
            (Op::Remainder, Type::Double, _) => None,
            (_, x, y) if x == y && x.is_number() => Some(x.clone()),
            (Op::Add, x, y) if x.is_text() && x == y => Some(x.clone()),
            (Op::Add, Type::Bytes, Type::Text) | (Op::Add, Type::Text, Type::Bytes) => None,
            (Op::Add, Type::List(x), Type::List(y)) => Some(Type::list(one_type([&**x, &**y].into_iter()))),
            (Op::Add | Op::Subtract, Type::Duration, Type::Duration) => Some(Type::Duration),
            (Op::Add | Op::Subtract, Type::Timestamp, Type::Duration) => Some(Type::Timestamp),
            (Op::Add, Type::Duration, Type::Timestamp) => Some(Type::Timestamp),
            (Op::Subtract, Type::Timestamp, Type::Timestamp) => Some(Type::Duration),
            _ => None,
        };
        let Some(ty) = ty else {
            return self.wrong(mismatched(expr, op, &a, &b));
        };
        let typed = Typed::node(Node::Constant(Value::Null), ty.clone()).of(&[&a, &b]);
        let typed = match ty {
            Type::Text | Type::Bytes | Type::Json => {
                let longest = a.longest.saturating_add(b.longest).min(BUILT_BYTES as u64);
                typed.scanning(&[&a, &b]).longest(longest)
            }
            Type::List(_) => {
                let longest = a.longest.saturating_add(b.longest);
                Typed {
                    cost: typed.cost.saturating_add(longest),
                    inner: a.inner.max(b.inner),
                    longest,
                    ..typed
                }
            }
            // A moment outside the years 1 to 9999, a division by what may be zero.
            Type::Timestamp => typed.maybe(expr.range.clone()),
            Type::Int | Type::Uint if matches!(op, Op::Divide | Op::Remainder) && !is_nonzero(&b) => {
                typed.maybe(expr.range.clone())
            }
            _ => typed,
        };
        Some(Typed {
            code: Code::Node(Node::Arithmetic(op, Box::new((a.into_node(), b.into_node())))),
            ..typed
        })
    }

    /// Checks that what is compared has a value.
    fn present(&mut self, typed: Typed) -> Option<Typed> {
        let default = match &typed.ty {
            Type::Address => "client.ip",
            Type::Bool => "false",
            Type::Double => "0.0",
            Type::Duration => "duration(\"0s\")",
            Type::Int => "0",
            Type::List(_) => "[]",
            Type::Timestamp => "now",
            Type::Uint => "0u",
            _ => "\"\"",
        };
        self.valued(typed, default)
    }

    pub(super) fn negate(&mut self, expr: &Expr, of: &Expr) -> Option<Typed> {
        let of = self.any(of)?;
        if !matches!(of.ty, Type::Double | Type::Duration | Type::Int | Type::Json) {
            return self
                .wrong(Mistake::new(expr.range.clone(), format!("`-` takes a number, found {}", of.ty)));
        }
        let typed = Typed::node(Node::Constant(Value::Null), of.ty.clone()).of(&[&of]);
        Some(Typed { code: Code::Node(Node::Negate(Box::new(of.into_node()))), ..typed })
    }

    /// `a ?? b`.
    pub(super) fn default(&mut self, expr: &Expr, value: &Expr, default: &Expr) -> Option<Typed> {
        let (a, b) = (self.any(value), self.any(default));
        let (a, b) = (a?, b?);
        let maybe = b.maybe.clone();
        let (a, b) = self.alike(expr, a, (default, b))?;
        let ty = if a.ty == b.ty { a.ty.clone() } else { Type::Json };
        let typed = Typed::node(Node::Constant(Value::Null), ty).of(&[&a, &b]);
        let typed = Typed { maybe, longest: a.longest.max(b.longest), inner: a.inner.max(b.inner), ..typed };
        let node = Node::Default(Box::new((a.into_node(), b.into_node())));
        Some(Typed { code: Code::Node(node), ..typed })
    }

    /// `a ? b : c`.
    pub(super) fn choice(&mut self, expr: &Expr, parts: &[Expr; 3]) -> Option<Typed> {
        let [condition, yes, no] = parts;
        let (test, a, b) = (self.truth(condition), self.any(yes), self.any(no));
        let (test, a, b) = (test?, a?, b?);
        let (a, b) = self.alike(expr, a, (no, b))?;
        let ty = if a.ty == b.ty { a.ty.clone() } else { Type::Json };
        let typed = Typed::node(Node::Constant(Value::Null), ty).of(&[&test, &a, &b]);
        let typed = Typed { longest: a.longest.max(b.longest), inner: a.inner.max(b.inner), ..typed };
        let node = Node::If(Box::new((test.into_test(), a.into_node(), b.into_node())));
        Some(Typed { code: Code::Node(node), ..typed })
    }

    /// Two values of which one is taken: of one type, or as text beside a text, or one of them JSON.
    fn alike(&mut self, expr: &Expr, a: Typed, (right, b): (&Expr, Typed)) -> Option<(Typed, Typed)> {
        let is_dynamic = |ty: &Type| matches!(ty, Type::Json | Type::Null);
        if a.ty == b.ty || is_dynamic(&a.ty) || is_dynamic(&b.ty) {
            return Some((a, b));
        }
        if a.ty == Type::Address && b.literal().is_some() {
            let b = self.address(&b, right.range.clone())?;
            return Some((a, b));
        }
        if a.ty.is_text() || b.ty.is_text() {
            return Some((text_of(a), text_of(b)));
        }
        let lists = matches!((&a.ty, &b.ty), (Type::List(_), Type::List(_)) | (Type::Map(_), Type::Map(_)));
        if lists {
            return Some((a, b));
        }
        let message = format!("the two sides are of different types: {} and {}", a.ty, b.ty);
        self.wrong(Mistake::new(expr.range.clone(), message))
    }
}

/// As text, if it is not: but a text that is bytes becomes text too.
fn text_of(typed: Typed) -> Typed {
    Typed { ty: Type::Text, ..typed.into_text() }
}

fn comparison(relation: Relation, a: Typed, b: Typed) -> Test {
    let is_equality = matches!(relation, Relation::Equal | Relation::NotEqual);
    let is_int = a.ty == Type::Int;
    match (a.into_node(), b.into_node()) {
        (Node::Text(place), Node::Constant(Value::Text(text) | Value::Bytes(text))) if is_equality => {
            let is = Test::Is(place, text.into_owned().into());
            if relation == Relation::Equal { is } else { Test::Not(Box::new(is)) }
        }
        (Node::Variable(place), Node::Constant(Value::Int(number))) if is_int => {
            Test::Counts(relation, place, number)
        }
        (a, b) => Test::Compare(relation, Box::new((a, b))),
    }
}

fn is_nonzero(typed: &Typed) -> bool {
    matches!(typed.constant(), Some(Value::Int(n)) if *n != 0)
        || matches!(typed.constant(), Some(Value::Uint(n)) if *n != 0)
}

fn can_equal(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Json, _) | (_, Type::Json) => true,
        (Type::List(a), Type::List(b)) => can_equal(a, b),
        (Type::Map(a), Type::Map(b)) => can_equal(&a.0, &b.0) && can_equal(&a.1, &b.1),
        (a, b) => a == b || a.is_number() && b.is_number() || a.is_text() && b.is_text(),
    }
}

fn can_order(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Json, ty) | (ty, Type::Json) if ty.is_text() => true,
        (Type::Bool | Type::Duration | Type::Timestamp, b) => a == b,
        (a, b) => a.is_number() && b.is_number() || a.is_text() && b.is_text(),
    }
}

/// Whether JSON may turn out to be of a kind that orders with the other side. Beside a text it is taken as text.
fn can_order_json(a: &Type, b: &Type) -> bool {
    let has_order = |ty: &Type| {
        ty.is_number() || matches!(ty, Type::Bool | Type::Duration | Type::Json | Type::Timestamp)
    };
    (*a == Type::Json && has_order(b)) || (*b == Type::Json && has_order(a))
}

fn incomparable(expr: &Expr, relation: Relation, a: &Typed, b: &Typed) -> Mistake {
    let is_order = !matches!(relation, Relation::Equal | Relation::NotEqual);
    let message = if is_order && a.ty == b.ty {
        format!("values of type {} have no order", a.ty)
    } else {
        format!("{} does not compare with {}", a.ty, b.ty)
    };
    let mistake = Mistake::new(expr.range.clone(), message);
    let hint = match (&a.ty, &b.ty) {
        (Type::Null, ty) | (ty, Type::Null) if *ty != Type::Null => {
            Some("`has(…)` tells whether there is a value".to_owned())
        }
        (Type::Address, _) | (_, Type::Address) => {
            Some("write `ip(…)`, or `string(…)` of the address".to_owned())
        }
        (Type::Text, ty) | (ty, Type::Text) => {
            conversion(ty).map(|convert| format!("write `{convert}` around the text"))
        }
        _ => None,
    };
    match hint {
        Some(hint) => mistake.hint(hint),
        None => mistake,
    }
}

fn mismatched(expr: &Expr, op: Op, a: &Typed, b: &Typed) -> Mistake {
    let mistake =
        Mistake::new(expr.range.clone(), format!("`{}` does not take {} and {}", op.sign(), a.ty, b.ty));
    let is_number = a.ty.is_number() && b.ty.is_number();
    if op == Op::Add && (a.ty.is_text() || b.ty.is_text()) {
        mistake.hint("write `string(…)` around what is not text")
    } else if is_number && a.ty != b.ty {
        mistake.hint("convert one of them: `int(…)`, `uint(…)` or `double(…)`")
    } else {
        mistake
    }
}

/// How a text or JSON becomes a value of this type.
fn conversion(ty: &Type) -> Option<&'static str> {
    match ty {
        Type::Bool => Some("bool(…) ?? false"),
        Type::Double => Some("double(…) ?? 0.0"),
        Type::Duration => Some("duration(…) ?? duration(\"0s\")"),
        Type::Int => Some("int(…) ?? 0"),
        Type::Timestamp => Some("timestamp(…) ?? now"),
        Type::Uint => Some("uint(…) ?? 0u"),
        _ => None,
    }
}

/// The texts of a constant list, sorted.
fn constant_texts(list: &Value<'static>) -> Option<Box<[Box<[u8]>]>> {
    let Value::List(items) = list else { return None };
    let texts: Option<Vec<Box<[u8]>>> = items
        .iter()
        .map(|item| match item {
            Value::Text(text) | Value::Bytes(text) => Some(text.to_vec().into_boxed_slice()),
            _ => None,
        })
        .collect();
    texts.map(|mut texts| {
        texts.sort_unstable();
        texts.dedup();
        texts.into()
    })
}

fn copy_literal(expr: &Expr) -> Option<Expr> {
    let Kind::Literal(value) = &expr.kind else { return None };
    Some(Expr { kind: Kind::Literal(value.clone()), range: expr.range.clone(), depth: 1 })
}

fn copy_name(expr: &Expr) -> Option<Expr> {
    let kind = match &expr.kind {
        Kind::Name { name, is_global } => Kind::Name { name: name.clone(), is_global: *is_global },
        Kind::Member(of, name) => Kind::Member(Box::new(copy_name(of)?), name.clone()),
        _ => return None,
    };
    Some(Expr { kind, range: expr.range.clone(), depth: expr.depth })
}
