//! Selects the exchanges that get a line: an expression such as `status >= 400 or total > 1s or share 1%`.
//!
//! ```text
//! any  = all { "or" all }
//! all  = one { "and" one }
//! one  = "not" one | "(" any ")" | "tunnel" | "share" PERCENT
//!      | NUMBER_FIELD op value | TEXT_FIELD ( "=" | "!=" ) text
//! op   = "=" | "!=" | "<" | "<=" | ">" | ">="
//! ```

use std::cmp::Ordering;
use std::time::Duration;

use super::Entry;
use crate::error::{Error, Result};

/// The longest expression, in bytes.
const LONGEST: usize = 1024;

/// How deeply parentheses and `not` may nest.
const DEEPEST: usize = 16;

const FIELDS: &str = "status, attempts, total, first_byte, connect, filters, head, bytes_in, bytes_out, route, arm, upstream, listener, consumer, method, \
                      cause, tunnel and share";

/// An expression, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When(Term);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// This many of 2^32.
    Share(u32),
    Number(Number, Comparison, u64),
    /// `4xx`: a class of statuses.
    Class(u64),
    Text(Text, String),
    Tunnel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    NotEqual,
}

/// A numeric field; times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Attempts,
    BytesIn,
    BytesOut,
    Connect,
    Filters,
    FirstByte,
    Head,
    Status,
    Total,
}

/// A text field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Arm,
    Cause,
    Consumer,
    Listener,
    Method,
    Route,
    Upstream,
}

impl When {
    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong with the expression, and where.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > LONGEST {
            return Err(Error::new(format!("an expression has at most {LONGEST} bytes")));
        }
        let mut parser = Parser { rest: text.trim_start(), depth: 0 };
        let term = parser.any()?;
        if parser.rest.is_empty() { Ok(Self(term)) } else { Err(parser.expected("`and`, `or` or the end")) }
    }

    /// Whether the exchange gets a line. `random` decides shares.
    pub(super) fn holds(&self, entry: &Entry<'_>, random: u32) -> bool {
        self.0.holds(entry, random)
    }
}

impl Term {
    fn holds(&self, entry: &Entry<'_>, random: u32) -> bool {
        match self {
            Self::All(terms) => terms.iter().all(|term| term.holds(entry, random)),
            Self::Any(terms) => terms.iter().any(|term| term.holds(entry, random)),
            Self::Not(term) => !term.holds(entry, random),
            Self::Share(share) => random < *share || *share == u32::MAX,
            Self::Number(field, comparison, value) => comparison.holds(field.of(entry).cmp(value)),
            Self::Class(class) => u64::from(entry.status) / 100 == *class,
            Self::Text(field, value) => field.of(entry) == value.as_bytes(),
            Self::Tunnel => entry.tunnel,
        }
    }
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::NotEqual => order.is_ne(),
        }
    }
}

impl Number {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "attempts" => Self::Attempts,
            "bytes_in" => Self::BytesIn,
            "bytes_out" => Self::BytesOut,
            "connect" => Self::Connect,
            "filters" => Self::Filters,
            "first_byte" => Self::FirstByte,
            "head" => Self::Head,
            "status" => Self::Status,
            "total" => Self::Total,
            _ => return None,
        })
    }

    fn of(self, entry: &Entry<'_>) -> u64 {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        match self {
            Self::Attempts => entry.attempts.into(),
            Self::BytesIn => entry.bytes_in,
            Self::BytesOut => entry.bytes_out,
            Self::Connect => micros(entry.timing.connect),
            Self::Filters => micros(entry.timing.filters),
            Self::FirstByte => micros(entry.timing.first_byte),
            Self::Head => micros(entry.timing.head),
            Self::Status => entry.status.into(),
            Self::Total => micros(entry.timing.total),
        }
    }

    /// Parses a value of this field; also returns its expected form.
    fn read(self, word: &str) -> (Option<u64>, &'static str) {
        match self {
            Self::Attempts | Self::Status => (word.parse().ok(), "a number"),
            Self::BytesIn | Self::BytesOut => (bytes(word), "a size such as 64KiB"),
            _ => (micros(word), "a duration such as 250ms or 1s"),
        }
    }
}

impl Text {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "arm" => Self::Arm,
            "cause" => Self::Cause,
            "consumer" => Self::Consumer,
            "listener" => Self::Listener,
            "method" => Self::Method,
            "route" => Self::Route,
            "upstream" => Self::Upstream,
            _ => return None,
        })
    }

    fn of<'a>(self, entry: &Entry<'a>) -> &'a [u8] {
        match self {
            Self::Arm => entry.arm.as_bytes(),
            Self::Cause => entry.cause.as_bytes(),
            Self::Consumer => entry.consumer.as_bytes(),
            Self::Listener => entry.listener.as_bytes(),
            Self::Method => entry.method,
            Self::Route => entry.route.as_bytes(),
            Self::Upstream => entry.upstream.as_bytes(),
        }
    }
}

/// Parses from the front; the rest never starts with a space.
struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn any(&mut self) -> Result<Term> {
        self.list("or", Self::all, Term::Any)
    }

    fn all(&mut self) -> Result<Term> {
        self.list("and", Self::one, Term::All)
    }

    fn list(
        &mut self,
        between: &str,
        read: fn(&mut Self) -> Result<Term>,
        make: fn(Vec<Term>) -> Term,
    ) -> Result<Term> {
        let first = read(self)?;
        let mut terms = vec![first];
        while self.takes(between) {
            terms.push(read(self)?);
        }
        let single = terms.len() == 1;
        Ok(if single { terms.remove(0) } else { make(terms) })
    }

    fn one(&mut self) -> Result<Term> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Error::new(format!("an expression is nested at most {DEEPEST} deep")));
        }
        let term = self.plain();
        self.depth -= 1;
        term
    }

    fn plain(&mut self) -> Result<Term> {
        if self.takes("not") {
            return Ok(Term::Not(Box::new(self.one()?)));
        }
        if self.takes("(") {
            let term = self.any()?;
            return if self.takes(")") { Ok(term) } else { Err(self.expected("`)`")) };
        }
        let before = self.rest;
        let name = self.word();
        match name {
            "tunnel" => return Ok(Term::Tunnel),
            "share" => return self.share(),
            _ => {}
        }
        if let Some(field) = Number::named(name) {
            return self.number(field);
        }
        if let Some(field) = Text::named(name) {
            return self.text(field);
        }
        self.rest = before;
        Err(self.expected(&format!("a field ({FIELDS})")))
    }

    fn share(&mut self) -> Result<Term> {
        let before = self.rest;
        let percent = self.word().strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        match percent.filter(|percent| (0.0..=100.0).contains(percent)) {
            Some(percent) => Ok(Term::Share((percent / 100.0 * f64::from(u32::MAX)) as u32)),
            None => {
                self.rest = before;
                Err(self.expected("a percentage such as 1%"))
            }
        }
    }

    fn number(&mut self, field: Number) -> Result<Term> {
        let comparison = self.comparison()?;
        let before = self.rest;
        let word = self.word();
        if let (Number::Status, Comparison::Equal | Comparison::NotEqual, Some(class)) =
            (field, comparison, class(word))
        {
            let term = Term::Class(class);
            return Ok(if comparison == Comparison::Equal { term } else { Term::Not(Box::new(term)) });
        }
        let (value, form) = field.read(word);
        value.map(|value| Term::Number(field, comparison, value)).ok_or_else(|| {
            self.rest = before;
            self.expected(form)
        })
    }

    fn text(&mut self, field: Text) -> Result<Term> {
        let before = self.rest;
        let comparison = self.comparison()?;
        let is = match comparison {
            Comparison::Equal => true,
            Comparison::NotEqual => false,
            _ => {
                self.rest = before;
                return Err(self.expected("`=` or `!=`"));
            }
        };
        let value = match self.rest.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) {
            Some((quoted, rest)) => {
                self.rest = rest.trim_start();
                quoted
            }
            None => self.word(),
        };
        if value.is_empty() && !before.contains("''") {
            return Err(self.expected("a text, or '' for none"));
        }
        let term = Term::Text(field, value.to_owned());
        Ok(if is { term } else { Term::Not(Box::new(term)) })
    }

    fn comparison(&mut self) -> Result<Comparison> {
        let known = [
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("==", Comparison::Equal),
            ("=", Comparison::Equal),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (sign, comparison) in known {
            if let Some(rest) = self.rest.strip_prefix(sign) {
                self.rest = rest.trim_start();
                return Ok(comparison);
            }
        }
        Err(self.expected("=, !=, <, <=, > or >="))
    }

    /// Consumes a word or symbol, if it comes next.
    fn takes(&mut self, what: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(what) else { return false };
        let word = what.starts_with(|c: char| c.is_ascii_alphabetic());
        if word && rest.starts_with(is_of_word) {
            return false;
        }
        self.rest = rest.trim_start();
        true
    }

    fn word(&mut self) -> &'t str {
        let end = self.rest.find(|c| !is_of_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn expected(&self, what: &str) -> Error {
        match self.rest {
            "" => Error::new(format!("it ends where {what} was expected")),
            rest => {
                let shown: String = rest.chars().take(24).collect();
                Error::new(format!("at `{shown}`: expected {what}"))
            }
        }
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-%/*:".contains(c)
}

/// `4xx`.
fn class(word: &str) -> Option<u64> {
    let digit = word.strip_suffix("xx")?;
    digit.parse().ok().filter(|class| (1..=9).contains(class) && digit.len() == 1)
}

/// A duration in microseconds.
fn micros(word: &str) -> Option<u64> {
    let end = word.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = word.split_at(end);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).map(|n| (n * scale) as u64)
}

/// A size in bytes.
fn bytes(word: &str) -> Option<u64> {
    let end = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    let scale = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timing;

    fn holds(text: &str, entry: &Entry<'_>) -> bool {
        When::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).holds(entry, u32::MAX / 2)
    }

    #[test]
    fn expressions() {
        let timing = Timing { total: Duration::from_millis(1500), ..Timing::default() };
        let entry = Entry {
            status: 503,
            route: "orders",
            cause: "no_endpoint",
            bytes_out: 2048,
            timing,
            ..Entry::default()
        };
        for (text, expected) in [
            ("status >= 400", true),
            ("status>=400", true),
            ("status = 5xx", true),
            ("status != 5xx", false),
            ("status == 503", true),
            ("total > 1s", true),
            ("total > 1500ms", false),
            ("total >= 1.5s", true),
            ("bytes_out > 1KiB", true),
            ("route = orders and cause = no_endpoint", true),
            ("route != orders", false),
            ("cause != ''", true),
            ("consumer = ''", true),
            ("consumer = 'no one'", false),
            ("tunnel", false),
            ("not tunnel", true),
            ("not not tunnel", false),
            ("status < 400 or total > 2s or share 60%", true),
            ("status < 400 or total > 2s or share 40%", false),
            ("share 100%", true),
            ("share 0%", false),
            ("tunnel or status = 503 and route = orders", true),
            ("(tunnel or status = 503) and route = carts", false),
        ] {
            assert_eq!(holds(text, &entry), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_say_where() {
        for (text, said) in [
            ("", "it ends where a field"),
            ("status", "it ends where =, !=, <"),
            ("status >", "it ends where a number"),
            ("status > 5xx", "at `5xx`: expected a number"),
            ("total > 1", "at `1`: expected a duration"),
            ("colour = red", "at `colour = red`: expected a field"),
            ("share 101%", "at `101%`: expected a percentage"),
            ("share", "it ends where a percentage"),
            ("route < a", "at `< a`: expected `=`"),
            ("route =", "it ends where a text"),
            ("(tunnel", "it ends where `)`"),
            ("tunnel)", "at `)`: expected `and`"),
            ("tunnel and", "it ends where a field"),
            ("tunnel route = a", "at `route = a`: expected `and`"),
            ("nottunnel", "at `nottunnel`"),
        ] {
            let e = When::parse(text).unwrap_err().to_string();
            assert!(e.starts_with(said), "{text}: {e}");
        }
        assert!(When::parse(&"not ".repeat(99)).is_err());
        assert!(When::parse(&"(".repeat(500)).is_err());
        assert!(When::parse(&"a".repeat(LONGEST + 1)).is_err());
    }
}
