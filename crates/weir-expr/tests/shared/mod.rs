//! A gateway's variables and one exchange, for the tests of this folder.

#![allow(dead_code, reason = "each test uses a part")]

use std::borrow::Cow;
use weir_expr::{Condition, Expression, Phase, Schema, Timestamp, Type, Value, Values, Var, Variable};

pub(crate) const REQUEST: Phase = Phase(0);
pub(crate) const CONSUMER: Phase = Phase(1);
pub(crate) const BODY: Phase = Phase(2);
pub(crate) const RESPONSE: Phase = Phase(3);

pub(crate) fn schema() -> Schema {
    let variable = |name: &str, var: u16, phase, ty| Variable::new(name, Var(var), phase, ty);
    Schema::new(["request", "consumer", "body", "response"])
        .with(variable("request.method", 0, REQUEST, Type::Text).longest(32))
        .with(variable("request.path", 1, REQUEST, Type::Text).longest(8_192))
        .with(variable("request.size", 2, REQUEST, Type::Int))
        .with(variable("request.headers", 3, REQUEST, Type::Text).folded().repeated(100))
        .with(variable("request.cookies", 4, REQUEST, Type::Text).keyed())
        .with(variable("request.params", 5, REQUEST, Type::Text).keys(["id", "rest"]))
        .with(variable("request.body", 6, BODY, Type::Json))
        .with(variable("client.ip", 7, REQUEST, Type::Address))
        .with(variable("client.port", 8, REQUEST, Type::Int).optional())
        .with(variable("client.tls", 9, REQUEST, Type::Bool))
        .with(variable("jwt", 10, CONSUMER, Type::Json).keyed())
        .with(variable("consumer.groups", 11, CONSUMER, Type::list(Type::Text)).longest(16))
        .with(variable("response.status", 12, RESPONSE, Type::Int))
        .with(variable("now", 13, REQUEST, Type::Timestamp))
        .with(variable("maps.tenants", 14, BODY, Type::Text))
}

pub(crate) struct Exchange {
    pub(crate) body: serde_json::Value,
    pub(crate) claims: serde_json::Value,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            body: serde_json::json!({
                "user": { "id": 7, "name": "ann", "admin": true, "none": null },
                "items": [ { "sku": "a", "n": 2 }, { "sku": "b", "n": 3 } ],
                "tags": ["x", "y"],
                "big": 9_223_372_036_854_775_808_u64,
                "half": 0.5,
            }),
            claims: serde_json::json!({ "sub": "u1", "roles": ["ops", "dev"], "exp": 1_900_000_000, "level": 5.0 }),
        }
    }
}

impl Values for Exchange {
    fn value(&self, var: Var, key: &[u8]) -> Value<'_> {
        match var.0 {
            2 => Value::Int(2_048),
            6 => Value::json(&self.body),
            7 => Value::Address("10.1.2.3".parse().unwrap()),
            9 => Value::Bool(true),
            10 => {
                let claim = str::from_utf8(key).ok().and_then(|name| self.claims.get(name));
                claim.map_or(Value::Absent, Value::json)
            }
            11 => Value::List([Value::text("ops"), Value::text("dev")].into()),
            12 => Value::Int(204),
            13 => Value::Timestamp(Timestamp::new(1_795_000_000, 0).unwrap()),
            _ => self.text(var, key).map_or(Value::Absent, Value::Text),
        }
    }

    fn text(&self, var: Var, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let text: &[u8] = match (var.0, key) {
            (0, _) => b"GET",
            (1, _) => b"/users/7/orders",
            (3, b"x-env") => b"blue",
            (3, b"accept") => b"text/html, application/json",
            (3, b"x-empty") => b"",
            (3, b"x-count") => b"12",
            (3, b"x-bytes") => b"\xff\xfe",
            (4, b"beta") => b"1",
            (5, b"id") => b"7",
            (14, _) => b"gold",
            _ => return None,
        };
        Some(Cow::Borrowed(text))
    }

    fn all<'a>(&'a self, _: Var, key: &[u8], out: &mut Vec<Value<'a>>) {
        if key == b"accept" {
            out.extend([Value::text("text/html"), Value::text("application/json")]);
        }
    }
}

/// Compiles a condition for the last phase and tells whether it holds.
pub(crate) fn holds(source: &str) -> bool {
    condition(source).holds(&Exchange::default())
}

pub(crate) fn condition(source: &str) -> Condition {
    Condition::compile(source, &schema(), RESPONSE).unwrap_or_else(|mistakes| {
        panic!("{}", mistakes.iter().map(|m| m.render(source)).collect::<String>())
    })
}

/// The text of an expression, compiled for the last phase; `ABSENT` if it has no value.
pub(crate) fn text(source: &str) -> String {
    let expression = Expression::compile(source, &schema(), RESPONSE).unwrap_or_else(|mistakes| {
        panic!("{}", mistakes.iter().map(|m| m.render(source)).collect::<String>())
    });
    let exchange = Exchange::default();
    let (value, steps) = expression.measure(&exchange);
    assert!(steps <= expression.cost(), "{source}: {steps} steps, a cost of {}", expression.cost());
    if matches!(value, Value::Absent) {
        return "ABSENT".to_owned();
    }
    let mut out = Vec::new();
    value.write(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}
