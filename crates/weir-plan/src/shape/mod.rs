//! When iterations begin, and how many users there are: the values of `rate:` and `users:`.

use weir_config::{Diagnostic, Diagnostics, Node};

/// What a shape counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Iterations per second, of an open model.
    Rate,
    /// Users, of a closed model.
    Users,
}

/// The course of a load over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Always as much, until the run ends: users, or iterations per second.
    Constant(f64),
}

impl Shape {
    /// The most users, or iterations per second, at any time.
    pub fn most(&self) -> f64 {
        match self {
            Self::Constant(value) => *value,
        }
    }
}

/// Reads the value of `rate:` or `users:`, which stands at `path`. `None` if it is wrong; `found` then says why.
pub fn read(node: &Node, path: &str, unit: Unit, found: &mut Diagnostics) -> Option<Shape> {
    let (expected, most) = match unit {
        Unit::Rate => ("a rate such as 20/s, 100/m or 1000/h", 10_000_000.0),
        Unit::Users => ("a number of users from 1 to 1000000", 1_000_000.0),
    };
    let value = node.as_text().and_then(|text| match unit {
        Unit::Rate => rate(text),
        Unit::Users => text.parse::<u32>().ok().map(f64::from),
    });
    let value = value.filter(|value| *value > 0.0 && *value <= most);
    if value.is_none() {
        let mut wrong = Diagnostic::error("bad-shape", format!("expected {expected}")).at(node.at.clone());
        wrong.path = path.to_owned();
        found.push(wrong);
    }
    value.map(Shape::Constant)
}

fn rate(text: &str) -> Option<f64> {
    let (number, period) = text.trim().split_once('/').unwrap_or((text.trim(), "s"));
    let seconds = match period.trim() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    number.is_finite().then_some(number / seconds)
}
