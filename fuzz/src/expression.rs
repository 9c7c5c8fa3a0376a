//! Fuzzing of weir-expr.

use std::borrow::Cow;
use weir_expr::{Condition, Expression, Phase, Schema, Template, Type, Value, Values, Var, Variable};

/// Everything has a value that the input decides.
struct Exchange<'i> {
    input: &'i [u8],
    body: serde_json::Value,
}

impl Values for Exchange<'_> {
    fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
        match var.0 {
            3 => Value::Json(&self.body),
            4 if self.input.len().is_multiple_of(2) => Value::Address("10.1.2.3".parse().expect("an address")),
            4 => Value::Address("::1".parse().expect("an address")),
            5 => self.body.get(0).map_or(Value::Absent, Value::json),
            6 => Value::Int(self.input.len() as i64),
            _ => self.text(var, key).map_or(Value::Absent, Value::Text),
        }
    }

    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        match (var.0, key.first()) {
            (0, _) => Some(Cow::Borrowed(b"GET")),
            (1, _) => Some(Cow::Borrowed(self.input)),
            (2, Some(b'x')) => Some(Cow::Owned(self.input.repeat(2))),
            (2, Some(b'a')) => Some(Cow::Borrowed(b"12")),
            _ => None,
        }
    }

    fn all<'a>(&'a self, _: Var, _: &[u8], out: &mut Vec<Value<'a>>) {
        out.extend(self.input.split(|b| *b == b',').take(100).map(Value::text));
    }
}

fn schema() -> Schema {
    let variable = |name: &str, var: u16, ty| Variable::new(name, Var(var), Phase(0), ty);
    Schema::new(["request", "body"])
        .with(variable("request.method", 0, Type::Text))
        .with(variable("request.path", 1, Type::Text))
        .with(variable("request.headers", 2, Type::Text).folded().repeated(100))
        .with(variable("request.body", 3, Type::Json))
        .with(variable("client.ip", 4, Type::Address))
        .with(variable("jwt", 5, Type::Json).keyed())
        .with(variable("request.size", 6, Type::Int).optional())
        .with(Variable::new("response.status", Var(7), Phase(1), Type::Int))
}

/// Parser, check and evaluation end without a panic for every source; a mistake lies in the source; an evaluation takes no
/// more steps than the check said.
pub fn expression(input: &[u8]) {
    let Ok(source) = str::from_utf8(input) else { return };
    let schema = schema();
    let body = serde_json::json!([input.len(), { "a": source, "n": 1 }, [1.5, null, true], source]);
    let exchange = Exchange { input, body };
    match Expression::compile(source, &schema, Phase(0)) {
        Ok(expression) => {
            let (value, steps) = expression.measure(&exchange);
            assert!(steps <= expression.cost(), "{steps} steps, a cost of {}", expression.cost());
            let mut out = Vec::new();
            value.write(&mut out);
            if let Some(constant) = expression.constant() {
                assert!(constant.is_empty() || expression.reads().is_empty());
            }
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                assert!(source.get(mistake.range.clone()).is_some(), "{mistake:?}");
                mistake.render(source);
            }
        }
    }
    if let Ok(condition) = Condition::compile(source, &schema, Phase(0)) {
        let (holds, steps) = condition.measure(&exchange);
        assert!(steps <= condition.cost(), "{steps} steps, a cost of {}", condition.cost());
        assert_eq!(condition.holds(&exchange), holds);
        assert!(!holds || !condition.excludes(&condition), "what holds does not exclude itself");
    }
    match Template::compile(source, &schema, Phase(0)) {
        Ok(template) => template.render(&exchange, &mut Vec::new(), |value, out| out.extend_from_slice(value)),
        Err(mistakes) => {
            for mistake in mistakes {
                assert!(source.get(mistake.range.clone()).is_some(), "{mistake:?}");
            }
        }
    }
}
