//! Conditions of `if` and `while`: expressions of weir-expr over the names of a plan.

use crate::scope::{Operand, Scope};
use weir_expr::{Value, Values, Var};

/// A compiled condition.
#[derive(Clone, Debug)]
pub struct Condition {
    /// As written.
    pub text: String,
    pub(crate) rule: Rule,
}

#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Expression {
        condition: weir_expr::Condition,
        /// What the variables of the expression stand for, by their number.
        operands: Box<[Operand]>,
    },
    /// A name alone: whether it has a value, and one that is not empty, `false` or `null`.
    Name(Operand),
}

impl Condition {
    /// Whether it holds. Never fails.
    pub fn holds(&self, scope: &Scope) -> bool {
        match &self.rule {
            Rule::Expression { condition, operands } => condition.holds(&Named { scope, operands }),
            Rule::Name(Operand::Kept(chain)) => scope.kept(chain).is_something(),
            Rule::Name(Operand::Constant(at)) => scope.constant(*at).is_something(),
            Rule::Name(Operand::Cell { set, column }) => {
                scope.cell(*set, *column).is_some_and(|text| !text.is_empty())
            }
            Rule::Name(_) => true,
        }
    }
}

struct Named<'a> {
    scope: &'a Scope,
    operands: &'a [Operand],
}

impl Values for Named<'_> {
    fn value(&self, var: Var, _: &[u8]) -> Value<'_> {
        let operand = self.operands.get(usize::from(var.0));
        operand.map_or(Value::Absent, |operand| self.scope.for_expression(*operand))
    }
}
