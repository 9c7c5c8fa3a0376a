//! How long to delay something: a fixed time, or a random time within a range.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::de;
use super::units;

/// A time such as `250ms`, or one between two such as `100ms..2s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    from: units::Duration,
    to: units::Duration,
}

impl Delay {
    /// The longest delay, because a waiting request holds a connection.
    pub const LONGEST: Duration = Duration::from_secs(600);

    const EXPECTED: &'static str =
        "a delay of at most 10m; expected e.g. 250ms, or 100ms..2s for a time between the two";

    /// The delay for a random number, uniform over the range.
    pub fn draw(self, random: u64) -> Duration {
        let (from, to) = (self.from.get(), self.to.get());
        let spread = to.saturating_sub(from).as_nanos();
        let nanos = (spread * u128::from(random >> 32)) >> 32;
        from + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Whether there is no delay.
    pub const fn is_none(self) -> bool {
        self.to.is_zero()
    }

    fn parse(text: &str) -> Result<Self, Option<String>> {
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let time = |text: &str| text.trim().parse::<units::Duration>().map_err(|e| e.hint);
        let (from, to) = (time(from)?, time(to)?);
        if to < from {
            return Err(Some(format!("write {to}..{from}")));
        }
        if to.get() > Self::LONGEST { Err(None) } else { Ok(Self { from, to }) }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to { self.from.fmt(f) } else { write!(f, "{}..{}", self.from, self.to) }
    }
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = de::text(deserializer, Self::EXPECTED)?;
        Self::parse(&text).map_err(|hint| de::refuse(Self::EXPECTED, hint.as_deref()))
    }
}

impl Serialize for Delay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Delay {
    fn schema_name() -> Cow<'static, str> {
        "Delay".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A length of time, or one drawn between two.",
            "examples": ["250ms", "100ms..2s"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_time_or_one_between_two() {
        let draw = |text: &str, random| Delay::parse(text).unwrap().draw(random);
        assert_eq!(draw("250ms", u64::MAX), Duration::from_millis(250));
        assert_eq!(draw("100ms..300ms", 0), Duration::from_millis(100));
        assert_eq!(draw("100ms..300ms", 1 << 63), Duration::from_millis(200));
        let most = draw("100ms..300ms", u64::MAX);
        assert!(most < Duration::from_millis(300) && most > Duration::from_millis(299), "{most:?}");
        assert_eq!(Delay::parse("100ms..2s").unwrap().to_string(), "100ms..2s");
        for (text, hint) in [
            ("2s..100ms", Some("write 100ms..2s")),
            ("2", Some("add a unit: 2s or 2ms")),
            ("11m", None),
            ("..", None),
        ] {
            assert_eq!(Delay::parse(text).unwrap_err().as_deref(), hint, "{text}");
        }
    }
}
