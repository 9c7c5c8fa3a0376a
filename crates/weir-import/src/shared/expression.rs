//! Expressions of CEL, built from parts, so that no text of a source can become a part of the syntax.

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expression {
    text: String,
    binds: Binds,
}

/// How tightly the outermost operator binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binds {
    Choice,
    Or,
    And,
    Compare,
    Default,
    Sum,
    Tight,
}

impl Expression {
    /// A variable, or a call that is written by hand.
    #[must_use]
    pub fn raw(text: impl Into<String>) -> Self {
        Self { text: text.into(), binds: Binds::Tight }
    }

    /// A whole expression that is given as text: beside any operator it stands in parentheses.
    #[must_use]
    pub fn whole(text: impl Into<String>) -> Self {
        Self { text: text.into(), binds: Binds::Choice }
    }

    /// A literal text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::raw(quoted(text))
    }

    /// `true` or `false`.
    #[must_use]
    pub fn constant(value: bool) -> Self {
        Self::raw(value.to_string())
    }

    /// A variable with a key: `request.headers["x-env"]`.
    #[must_use]
    pub fn of(variable: &str, key: &str) -> Self {
        Self::raw(format!("{variable}[{}]", quoted(key)))
    }

    /// `self == other`.
    #[must_use]
    pub fn equals(self, other: Self) -> Self {
        self.operator("==", other, Binds::Compare)
    }

    /// `self != other`.
    #[must_use]
    pub fn differs(self, other: Self) -> Self {
        self.operator("!=", other, Binds::Compare)
    }

    /// `self.matches(pattern)`: the pattern is found anywhere in the text.
    #[must_use]
    pub fn matches(self, pattern: &str) -> Self {
        self.method("matches", pattern)
    }

    /// `self.startsWith(text)`.
    #[must_use]
    pub fn starts_with(self, text: &str) -> Self {
        self.method("startsWith", text)
    }

    /// `self.endsWith(text)`.
    #[must_use]
    pub fn ends_with(self, text: &str) -> Self {
        self.method("endsWith", text)
    }

    /// `self.contains(text)`.
    #[must_use]
    pub fn contains(self, text: &str) -> Self {
        self.method("contains", text)
    }

    /// `self.lowerAscii()`.
    #[must_use]
    pub fn lower(self) -> Self {
        Self::raw(format!("{}.lowerAscii()", self.within(Binds::Tight)))
    }

    /// A method with one literal text.
    #[must_use]
    pub fn method(self, name: &str, argument: &str) -> Self {
        Self::raw(format!("{}.{name}({})", self.within(Binds::Tight), quoted(argument)))
    }

    /// `self in ["…", "…"]`: a text among texts, or an address among networks.
    #[must_use]
    pub fn is_in<'a>(self, values: impl IntoIterator<Item = &'a str>) -> Self {
        let values: Vec<String> = values.into_iter().map(quoted).collect();
        let text = format!("{} in [{}]", self.within(Binds::Default), values.join(", "));
        Self { text, binds: Binds::Compare }
    }

    /// `self && other`, without constants that change nothing.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (&*self.text, &*other.text) {
            ("true", _) | (_, "false") => other,
            (_, "true") | ("false", _) => self,
            _ => self.operator("&&", other, Binds::And),
        }
    }

    /// `self || other`, without constants that change nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (&*self.text, &*other.text) {
            ("false", _) | (_, "true") => other,
            (_, "false") | ("true", _) => self,
            _ => self.operator("||", other, Binds::Or),
        }
    }

    /// `!self`.
    #[must_use]
    #[allow(
        clippy::should_implement_trait,
        reason = "it reads like its neighbours, which are no operators either"
    )]
    pub fn not(self) -> Self {
        match &*self.text {
            "true" => Self::constant(false),
            "false" => Self::constant(true),
            _ => Self::raw(format!("!{}", self.within(Binds::Tight))),
        }
    }

    /// `self ?? other`: the first that is not empty.
    #[must_use]
    pub fn or_else(self, other: Self) -> Self {
        self.operator("??", other, Binds::Default)
    }

    /// `self + other`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.operator("+", other, Binds::Sum)
    }

    /// `self ? yes : no`.
    #[must_use]
    pub fn choose(self, yes: Self, no: Self) -> Self {
        let text = format!("{} ? {} : {}", self.within(Binds::Or), yes.within(Binds::Or), no.text);
        Self { text, binds: Binds::Choice }
    }

    /// As Weir reads it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value, if it is a constant.
    #[must_use]
    pub fn as_constant(&self) -> Option<bool> {
        self.text.parse().ok()
    }

    fn operator(self, operator: &str, other: Self, binds: Binds) -> Self {
        // The right side of an operator that is not associative needs more.
        let right = match binds {
            Binds::Compare => other.within(Binds::Default),
            binds => other.within(binds),
        };
        let left = match binds {
            Binds::Compare => self.within(Binds::Default),
            binds => self.within(binds),
        };
        Self { text: format!("{left} {operator} {right}"), binds }
    }

    fn within(&self, least: Binds) -> String {
        if self.binds >= least { self.text.clone() } else { format!("({})", self.text) }
    }
}

/// A text as a literal of CEL.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_keep_their_meaning() {
        let (a, b, c) = (Expression::raw("a"), Expression::raw("b"), Expression::raw("c"));
        let cases = [
            (a.clone().or(b.clone()).and(c.clone()), "(a || b) && c"),
            (a.clone().and(b.clone()).or(c.clone()), "a && b || c"),
            (a.clone().equals(b.clone()).not(), "!(a == b)"),
            (a.clone().plus(b.clone()).equals(c.clone()), "a + b == c"),
            (a.clone().or_else(b.clone()).equals(c.clone()), "a ?? b == c"),
            (a.clone().and(Expression::constant(true)), "a"),
            (Expression::constant(true).and(Expression::whole("a || b")), "a || b"),
            (Expression::whole("a || b").and(c.clone()).and(a.clone().not()), "(a || b) && c && !a"),
            (Expression::whole("a || b").not(), "!(a || b)"),
            (a.clone().equals(Expression::text("x\" || true")), r#"a == "x\" || true""#),
            (a.is_in(["10.0.0.0/8"]).not(), r#"!(a in ["10.0.0.0/8"])"#),
            (b.clone().choose(c.clone(), b.choose(c.clone(), c)), "b ? c : b ? c : c"),
        ];
        for (expression, text) in cases {
            assert_eq!(expression.as_str(), text);
        }
    }
}
