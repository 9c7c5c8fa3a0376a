//! What the host holds: conditions and expressions, compiled.

use crate::check::{self, Checked, Read};
use crate::code::{Node, Place, Test};
use crate::diagnostic::Mistake;
use crate::eval::{Cx, Values, holds};
use crate::schema::{Phase, Schema, Type, Var};
use crate::value::Value;

/// What the check found out about an expression.
#[derive(Clone, Debug)]
struct Facts {
    reads: Vec<Read>,
    phase: Phase,
    cost: u64,
    longest: u64,
}

/// A compiled expression that is true or false, and always one of them.
#[derive(Clone, Debug)]
pub struct Condition {
    test: Test,
    facts: Facts,
}

impl Condition {
    /// Compiles `source` to run in `phase`.
    ///
    /// # Errors
    /// Every mistake in it, by place. A mistake of the grammar hides those behind it.
    pub fn compile(source: &str, schema: &Schema, phase: Phase) -> Result<Self, Vec<Mistake>> {
        let Checked { typed, reads, phase } = check::condition(source, schema, phase)?;
        let facts = Facts { reads, phase, cost: typed.cost, longest: typed.longest };
        Ok(Self { test: typed.into_test(), facts })
    }

    /// Whether it holds for these values. Never fails.
    #[inline]
    pub fn holds<V: Values>(&self, values: &V) -> bool {
        holds(&self.test, values)
    }

    /// Every variable that it reads, in the order of the check.
    pub fn reads(&self) -> &[Read] {
        &self.facts.reads
    }

    /// The phase from which all that it reads is known.
    pub fn phase(&self) -> Phase {
        self.facts.phase
    }

    /// The most steps that an evaluation takes, by the limits of the schema.
    pub fn cost(&self) -> u64 {
        self.facts.cost
    }

    /// The value, if it holds always or never.
    pub fn constant(&self) -> Option<bool> {
        match self.test {
            Test::Always(is) => Some(is),
            _ => None,
        }
    }

    /// Whether no request can meet both: each asks, in an `&&` of its top level, one variable to be another constant.
    ///
    /// `false` says nothing: two conditions may exclude each other in ways that this does not see.
    pub fn excludes(&self, other: &Self) -> bool {
        let theirs = facts(&other.test);
        facts(&self.test).iter().any(|ours| theirs.iter().any(|theirs| ours.excludes(theirs)))
    }

    /// The variables that must be one text for it to hold, each with its key and the text. Conditions with different
    /// texts of one variable exclude each other.
    pub fn texts(&self) -> impl Iterator<Item = (Var, &[u8], &[u8])> {
        facts(&self.test).into_iter().filter_map(|fact| match fact {
            Fact::Texts(place, [text]) => Some((place.var, &*place.key, &**text)),
            _ => None,
        })
    }

    /// Whether it holds, and how many steps that took: to test that the cost is a bound.
    #[doc(hidden)]
    pub fn measure(&self, values: &dyn Values) -> (bool, u64) {
        let mut cx = Cx::new(values);
        let holds = cx.test(&self.test);
        (holds, cx.steps)
    }
}

/// What a condition asks of one variable.
enum Fact<'t> {
    Number(&'t Place, i64),
    Texts(&'t Place, &'t [Box<[u8]>]),
    There(&'t Place, bool),
}

impl Fact<'_> {
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Fact::Number(a, x), Fact::Number(b, y)) => a == b && x != y,
            (Fact::Texts(a, x), Fact::Texts(b, y)) => a == b && !x.iter().any(|text| y.contains(text)),
            (Fact::There(a, x), Fact::There(b, y)) => a == b && x != y,
            // A text that is not empty is there.
            (Fact::Texts(a, texts), Fact::There(b, false))
            | (Fact::There(b, false), Fact::Texts(a, texts)) => {
                a == b && texts.iter().all(|text| !text.is_empty())
            }
            _ => false,
        }
    }
}

fn facts(test: &Test) -> Vec<Fact<'_>> {
    match test {
        Test::All(tests) => tests.iter().flat_map(facts).collect(),
        Test::Counts(crate::code::Relation::Equal, place, number) => vec![Fact::Number(place, *number)],
        Test::Is(place, text) => vec![Fact::Texts(place, std::slice::from_ref(text))],
        Test::OneOf(place, texts) => vec![Fact::Texts(place, texts)],
        Test::There(place) => vec![Fact::There(place, true)],
        Test::Not(test) => match &**test {
            Test::There(place) => vec![Fact::There(place, false)],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// A compiled expression of any type.
#[derive(Clone, Debug)]
pub struct Expression {
    node: Node,
    ty: Type,
    facts: Facts,
}

impl Expression {
    /// Compiles `source` to run in `phase`.
    ///
    /// # Errors
    /// Every mistake in it, by place. A mistake of the grammar hides those behind it.
    pub fn compile(source: &str, schema: &Schema, phase: Phase) -> Result<Self, Vec<Mistake>> {
        let Checked { typed, reads, phase } = check::expression(source, schema, phase)?;
        let facts = Facts { reads, phase, cost: typed.cost, longest: typed.longest };
        let ty = typed.ty.clone();
        Ok(Self { node: typed.into_node(), ty, facts })
    }

    /// Its value. Never fails; [`Value::Absent`] where it has none.
    pub fn value<'a>(&'a self, values: &'a dyn Values) -> Value<'a> {
        Cx::new(values).value(&self.node)
    }

    /// The variable, if it is nothing else.
    pub fn variable(&self) -> Option<Var> {
        match &self.node {
            Node::Text(place) | Node::Variable(place) => Some(place.var),
            _ => None,
        }
    }

    /// The type of its value.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Every variable that it reads, in the order of the check.
    pub fn reads(&self) -> &[Read] {
        &self.facts.reads
    }

    /// The phase from which all that it reads is known.
    pub fn phase(&self) -> Phase {
        self.facts.phase
    }

    /// The most steps that an evaluation takes, by the limits of the schema.
    pub fn cost(&self) -> u64 {
        self.facts.cost
    }

    /// The longest text or list that it may come to, by the limits of the schema.
    pub fn longest(&self) -> u64 {
        self.facts.longest
    }

    /// The value, if it reads nothing.
    pub fn constant(&self) -> Option<&Value<'static>> {
        match &self.node {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Its value, and how many steps that took: to test that the cost is a bound.
    #[doc(hidden)]
    pub fn measure<'a>(&'a self, values: &'a dyn Values) -> (Value<'a>, u64) {
        let mut cx = Cx::new(values);
        let value = cx.value(&self.node);
        (value, cx.steps)
    }
}
