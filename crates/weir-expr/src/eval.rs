//! Evaluates compiled expressions on the values of a host. Never fails and never panics; recursion is as deep as the source
//! was nested.

use crate::ast::Op;
use crate::code::{Keyed, Loop, LoopKind, Node, Relation, Test};
use crate::functions::{Budget, apply};
use crate::schema::Var;
use crate::value::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// The values of an exchange, which the host lends to an evaluation.
///
/// `key` is that of a variable such as `request.headers["x"]`, lower-cased where the variable is folded; empty for a
/// variable without keys.
pub trait Values {
    /// The value of any variable, of the type that the schema has; [`Value::Absent`] if there is none. `has` asks this, for
    /// text too.
    fn value(&self, var: Var, key: &[u8]) -> Value<'_>;

    /// The value of a variable of type text. A repeated field is its values joined by `, `. Worth writing by hand: most
    /// conditions call nothing else.
    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self.value(var, key) {
            Value::Text(text) | Value::Bytes(text) => Some(text),
            _ => None,
        }
    }

    /// Whether a text is this one; without a value it is empty. Comparisons with constants ask this. A host that compares
    /// its bytes by [`same`] here, without a [`Cow`], saves half the cost of a condition.
    fn is(&self, var: Var, key: &[u8], text: &[u8]) -> bool {
        match self.text(var, key) {
            Some(found) => same(&found, text),
            None => text.is_empty(),
        }
    }

    /// Appends the values of a repeated field, one by one.
    fn all<'a>(&'a self, var: Var, key: &[u8], out: &mut Vec<Value<'a>>) {
        out.extend(self.text(var, key).map(Value::Text));
    }
}

/// Whether two texts are equal. Most are short, and a call of memcmp takes twice the instructions of comparing 16 bytes
/// here.
#[inline]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let eight = |text: &[u8]| Some((text.first_chunk().copied()?, text.last_chunk().copied()?));
    let four = |text: &[u8]| Some((text.first_chunk().copied()?, text.last_chunk().copied()?));
    match a.len() {
        0 => true,
        1..=3 => a.first() == b.first() && a.get(a.len() / 2) == b.get(a.len() / 2) && a.last() == b.last(),
        4..=7 => {
            let words = |(first, last)| (u32::from_ne_bytes(first), u32::from_ne_bytes(last));
            four(a).map(words) == four(b).map(words)
        }
        8..=16 => {
            let words = |(first, last)| (u64::from_ne_bytes(first), u64::from_ne_bytes(last));
            eight(a).map(words) == eight(b).map(words)
        }
        _ => a == b,
    }
}

/// Nothing has a value: for constants.
pub(crate) struct Nothing;

impl Values for Nothing {
    fn value(&self, _: Var, _: &[u8]) -> Value<'_> {
        Value::Absent
    }
}

/// One evaluation.
pub(crate) struct Cx<'a> {
    values: &'a dyn Values,
    /// The items that the macros around stand at.
    locals: Vec<Value<'a>>,
    budget: Budget,
    /// How many nodes were evaluated: at most the cost that the check computed.
    pub(crate) steps: u64,
}

/// Whether the test holds. Comparisons of texts with constants need no [`Cx`], and are compiled into the host's code with
/// its own [`Values::is`]. All else goes to [`Cx::test`].
#[inline]
pub(crate) fn holds<V: Values>(test: &Test, values: &V) -> bool {
    let tests = if let Test::All(tests) = test { tests } else { std::slice::from_ref(test) };
    tests.iter().all(|test| match test {
        Test::Is(place, text) => values.is(place.var, &place.key, text),
        _ => any(test, values),
    })
}

#[inline(never)]
fn any(test: &Test, values: &dyn Values) -> bool {
    match test {
        Test::All(tests) => tests.iter().all(|test| any(test, values)),
        Test::Any(tests) => tests.iter().any(|test| any(test, values)),
        _ => direct(test, values).unwrap_or_else(|| Cx::new(values).test(test)),
    }
}

/// Whether a test of a variable against constants holds; `None` for any other test.
fn direct(test: &Test, values: &dyn Values) -> Option<bool> {
    Some(match test {
        Test::Always(is) => *is,
        Test::Counts(relation, place, with) => match values.value(place.var, &place.key) {
            Value::Int(number) => relation.holds(Some(number.cmp(with))),
            _ => *relation == Relation::NotEqual,
        },
        Test::Is(place, text) => values.is(place.var, &place.key, text),
        Test::OneOf(place, texts) => {
            let found = values.text(place.var, &place.key).unwrap_or_default();
            texts.binary_search_by(|text| (**text).cmp(&found)).is_ok()
        }
        Test::There(place) => !matches!(values.value(place.var, &place.key), Value::Absent),
        _ => return None,
    })
}

impl<'a> Cx<'a> {
    pub(crate) fn new(values: &'a dyn Values) -> Self {
        Self { values, locals: Vec::new(), budget: Budget::default(), steps: 0 }
    }

    /// Whether the test holds.
    pub(crate) fn test(&mut self, test: &'a Test) -> bool {
        self.steps += 1;
        match test {
            Test::All(tests) => tests.iter().all(|test| self.test(test)),
            Test::Any(tests) => tests.iter().any(|test| self.test(test)),
            Test::Begins(of, with) => self.text(of).starts_with(with),
            Test::Compare(relation, sides) => {
                let (left, right) = (self.value(&sides.0), self.value(&sides.1));
                if let (Value::Json(json), Value::Json(_)) = (&left, &right)
                    && !self.budget.compares(json)
                {
                    return false;
                }
                match relation {
                    Relation::Equal => left.equals(&right),
                    Relation::NotEqual => !left.equals(&right),
                    _ => relation.holds(left.order(&right)),
                }
            }
            Test::Contains(of, finder) => {
                let text = self.text(of);
                self.budget.looks(&text) && finder.find(&text).is_some()
            }
            Test::Ends(of, with) => self.text(of).ends_with(with),
            Test::In(sides) => {
                let item = self.value(&sides.0);
                self.value(&sides.1).has(&item)
            }
            Test::Matches(of, pattern) => {
                let text = self.text(of);
                self.budget.looks(&text) && pattern.is_match(&text)
            }
            Test::Not(test) => !self.test(test),
            Test::Value(of) => {
                // Test and node are one step.
                self.steps -= 1;
                matches!(self.value(of), Value::Bool(true))
            }
            Test::Valued(of) => !matches!(self.value(of), Value::Absent),
            Test::Within(of, networks) => match self.value(of) {
                Value::Address(ip) => networks.contain(ip),
                _ => false,
            },
            // The others compare a variable with constants.
            _ => direct(test, self.values).unwrap_or(false),
        }
    }

    /// The text of a node of type text.
    fn text(&mut self, node: &'a Node) -> Cow<'a, [u8]> {
        if let Node::Text(place) = node {
            self.steps += 1;
            return self.values.text(place.var, &place.key).unwrap_or_default();
        }
        match self.value(node) {
            Value::Text(text) | Value::Bytes(text) => text,
            _ => Cow::Borrowed(b""),
        }
    }

    /// The value of a node.
    pub(crate) fn value(&mut self, node: &'a Node) -> Value<'a> {
        self.steps += 1;
        match node {
            Node::All(place) => {
                let mut items = Vec::new();
                self.values.all(place.var, &place.key, &mut items);
                self.list(items)
            }
            Node::Arithmetic(op, sides) => {
                let (left, right) = (self.value(&sides.0), self.value(&sides.1));
                self.arithmetic(*op, left, right)
            }
            Node::AsText(of) => match self.value(of) {
                Value::Text(text) | Value::Bytes(text) => Value::Text(text),
                other => Value::Text(self.budget.written(&other).into()),
            },
            Node::At(sides) => {
                let of = self.value(&sides.0);
                of.at(&self.value(&sides.1))
            }
            Node::Call(func, nodes) => {
                let mut args = [Value::Absent, Value::Absent, Value::Absent, Value::Absent];
                for (arg, node) in args.iter_mut().zip(nodes) {
                    *arg = self.value(node);
                }
                apply(*func, args, &mut self.budget)
            }
            Node::Constant(value) => value.borrowed(),
            Node::Default(sides) => {
                let value = self.value(&sides.0);
                if value.is_empty() { self.value(&sides.1) } else { value }
            }
            Node::If(parts) => {
                let is = self.test(&parts.0);
                self.value(if is { &parts.1 } else { &parts.2 })
            }
            Node::Keyed(keyed) => self.keyed(keyed),
            Node::List(nodes) => {
                let items = nodes.iter().map(|node| self.value(node)).collect();
                self.list(items)
            }
            Node::Local(slot) => self.locals.get(usize::from(*slot)).cloned().unwrap_or(Value::Absent),
            Node::Loop(walk) => self.walk(walk),
            Node::Map(nodes) => {
                let entries: Vec<_> =
                    nodes.iter().map(|(key, value)| (self.value(key), self.value(value))).collect();
                let is_room = self.budget.take(entries.len() * 2 * size_of::<Value<'_>>());
                if is_room { Value::Map(entries.into()) } else { Value::Absent }
            }
            Node::Negate(of) => match self.value(of) {
                Value::Double(n) => Value::Double(-n),
                Value::Duration(n) => Value::Duration(n.saturating_neg()),
                Value::Int(n) => Value::Int(n.saturating_neg()),
                _ => Value::Absent,
            },
            Node::Order(relation, sides) => {
                let (left, right) = (self.value(&sides.0), self.value(&sides.1));
                let order = left.order(&right);
                if order.is_some() || left.is_number() && right.is_number() {
                    Value::Bool(relation.holds(order))
                } else {
                    Value::Absent
                }
            }
            Node::Test(test) => {
                // Test and node are one step.
                self.steps -= 1;
                Value::Bool(self.test(test))
            }
            Node::Text(place) => Value::Text(self.values.text(place.var, &place.key).unwrap_or_default()),
            Node::Variable(place) => self.values.value(place.var, &place.key),
        }
    }

    fn list(&mut self, items: Vec<Value<'a>>) -> Value<'a> {
        let is_room = self.budget.take(items.len() * size_of::<Value<'_>>());
        if is_room { Value::List(items.into()) } else { Value::Absent }
    }

    fn keyed(&mut self, keyed: &'a Keyed) -> Value<'a> {
        let mut name = self.text(&keyed.key);
        if keyed.is_folded && name.iter().any(u8::is_ascii_uppercase) {
            name = Cow::Owned(name.to_ascii_lowercase());
        }
        if keyed.is_text {
            Value::Text(self.values.text(keyed.var, &name).unwrap_or_default())
        } else {
            self.values.value(keyed.var, &name)
        }
    }

    fn walk(&mut self, walk: &'a Loop) -> Value<'a> {
        let Some(items) = self.value(&walk.list).items() else { return Value::Absent };
        let depth = self.locals.len();
        let mut found = 0_usize;
        let mut out = Vec::new();
        for item in items.iter() {
            self.locals.push(item.clone());
            let holds = self.test(&walk.test);
            match walk.kind {
                LoopKind::Map if holds => out.push(self.value(&walk.each)),
                LoopKind::Filter if holds => out.push(item.clone()),
                _ => {}
            }
            self.locals.truncate(depth);
            found += usize::from(holds);
            match walk.kind {
                LoopKind::All if !holds => return Value::Bool(false),
                LoopKind::Exists if holds => return Value::Bool(true),
                _ => {}
            }
        }
        match walk.kind {
            LoopKind::All => Value::Bool(true),
            LoopKind::Exists => Value::Bool(false),
            LoopKind::ExistsOne => Value::Bool(found == 1),
            LoopKind::Filter | LoopKind::Map => self.list(out),
        }
    }

    /// Whole numbers stop at the ends of their range. A division by zero has no value.
    fn arithmetic(&mut self, op: Op, left: Value<'a>, right: Value<'a>) -> Value<'a> {
        match (op, left, right) {
            (Op::Add, Value::Text(a), Value::Text(b)) => Value::Text(self.joined(a, &b)),
            (Op::Add, Value::Bytes(a), Value::Bytes(b)) => Value::Bytes(self.joined(a, &b)),
            (Op::Add, Value::List(a), Value::List(b)) => {
                self.list(a.iter().chain(b.iter()).cloned().collect())
            }
            (op, Value::Int(a), Value::Int(b)) => match op {
                Op::Add => Value::Int(a.saturating_add(b)),
                Op::Subtract => Value::Int(a.saturating_sub(b)),
                Op::Multiply => Value::Int(a.saturating_mul(b)),
                Op::Divide if b != 0 => Value::Int(a.saturating_div(b)),
                Op::Remainder if b != 0 => Value::Int(a.wrapping_rem(b)),
                _ => Value::Absent,
            },
            (op, Value::Uint(a), Value::Uint(b)) => match op {
                Op::Add => Value::Uint(a.saturating_add(b)),
                Op::Subtract => Value::Uint(a.saturating_sub(b)),
                Op::Multiply => Value::Uint(a.saturating_mul(b)),
                Op::Divide if b != 0 => Value::Uint(a / b),
                Op::Remainder if b != 0 => Value::Uint(a % b),
                _ => Value::Absent,
            },
            (op, Value::Double(a), Value::Double(b)) => match op {
                Op::Add => Value::Double(a + b),
                Op::Subtract => Value::Double(a - b),
                Op::Multiply => Value::Double(a * b),
                Op::Divide => Value::Double(a / b),
                _ => Value::Absent,
            },
            (Op::Add, Value::Duration(a), Value::Duration(b)) => Value::Duration(a.saturating_add(b)),
            (Op::Subtract, Value::Duration(a), Value::Duration(b)) => Value::Duration(a.saturating_sub(b)),
            (Op::Add, Value::Timestamp(at), Value::Duration(n))
            | (Op::Add, Value::Duration(n), Value::Timestamp(at)) => {
                at.plus(n).map_or(Value::Absent, Value::Timestamp)
            }
            (Op::Subtract, Value::Timestamp(at), Value::Duration(n)) => {
                at.plus(n.saturating_neg()).map_or(Value::Absent, Value::Timestamp)
            }
            (Op::Subtract, Value::Timestamp(a), Value::Timestamp(b)) => Value::Duration(a.since(b)),
            _ => Value::Absent,
        }
    }

    fn joined(&mut self, first: Cow<'a, [u8]>, second: &[u8]) -> Cow<'a, [u8]> {
        if second.is_empty() {
            return first;
        }
        if !self.budget.take(first.len() + second.len()) {
            return Cow::Borrowed(b"");
        }
        let mut out = first.into_owned();
        out.extend_from_slice(second);
        Cow::Owned(out)
    }
}

/// The value of a tree without variables, if it can be kept.
pub(crate) fn constant(node: &Node) -> Option<Value<'static>> {
    owned(Cx::new(&Nothing).value(node))
}

fn owned(value: Value<'_>) -> Option<Value<'static>> {
    Some(match value {
        Value::Absent => Value::Absent,
        Value::Address(ip) => Value::Address(ip),
        Value::Bool(is) => Value::Bool(is),
        Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
        Value::Double(n) => Value::Double(n),
        Value::Duration(n) => Value::Duration(n),
        Value::Int(n) => Value::Int(n),
        Value::Json(_) => return None,
        Value::List(items) => {
            let items: Option<Arc<[_]>> = items.iter().cloned().map(owned).collect();
            Value::List(items?)
        }
        Value::Map(entries) => {
            let entries: Option<Arc<[_]>> =
                entries.iter().cloned().map(|(key, value)| Some((owned(key)?, owned(value)?))).collect();
            Value::Map(entries?)
        }
        Value::Null => Value::Null,
        Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
        Value::Timestamp(moment) => Value::Timestamp(moment),
        Value::Uint(n) => Value::Uint(n),
    })
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn texts_are_the_same_if_each_byte_is() {
        let text: Vec<u8> = (1..=40).collect();
        for length in 0..=text.len() {
            let text = &text[..length];
            let copy = text.to_vec();
            assert!(same(text, &copy), "{length}");
            assert!(!same(text, &[text, b"x"].concat()), "{length}");
            for at in 0..length {
                let mut other = text.to_vec();
                other[at] = 0;
                assert!(!same(text, &other), "{length} {at}");
            }
        }
    }
}
