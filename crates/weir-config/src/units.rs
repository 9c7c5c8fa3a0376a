//! Values with units: `3s`, `250ms`, `1MiB`, `20%`, `128B` a second, `20/s`.
//!
//! A bare number is refused, because `timeout: 30` means seconds to one reader and milliseconds to the next.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::de;

/// A length of time, written `250ms`, `3s`, `5m`, `1h`, `1d` or a sum such as `1m30s`. Zero is `0s`. At most 10
/// years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub std::time::Duration);

/// A number of bytes, written `512B`, `32KiB`, `1MiB`, `2GiB`, or in thousands `32KB`, `1MB`, `2GB`. At most 1 PiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// A share, written `20%` or `0.5%`; from 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percent(f64);

/// Bytes in a second, written like a size: `128B` (or `128B/s`). Zero is `0B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

/// How often in a period, written `20/s`, `100/m` or `1000/h`. From 1; at most 1000 a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frequency {
    /// How often.
    pub count: u32,
    /// In which time: a second, a minute or an hour.
    pub period: std::time::Duration,
}

/// Why a value with a unit was refused: the expected form and, if we can guess it, a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    /// What the value should have been, with examples.
    pub expected: &'static str,
    /// A suggested replacement.
    pub hint: Option<String>,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is not {}", self.expected)
    }
}

impl std::error::Error for UnitError {}

// === impl Duration ===

impl Duration {
    const EXPECTED: &'static str = "a duration; expected e.g. 250ms, 3s, 5m, 1h";
    const PATTERN: &'static str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$";
    /// A longer one is a typing mistake, and additions to the clock must not overflow.
    const MAX: f64 = 10.0 * 365.0 * 86400.0;

    /// A duration of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(std::time::Duration::from_millis(millis))
    }

    /// A duration of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }

    /// The duration in the type of the standard library.
    pub const fn get(self) -> std::time::Duration {
        self.0
    }

    /// Zero, which turns most timeouts off.
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = |hint| UnitError { expected: Self::EXPECTED, hint };
        let mut seconds = 0.0;
        let mut rest = text;
        if rest.is_empty() {
            return Err(refuse(None));
        }
        while !rest.is_empty() {
            let (number, tail) = leading_number(rest).ok_or_else(|| refuse(None))?;
            let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let scale = match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86400.0,
                _ => return Err(refuse(duration_hint(text))),
            };
            seconds += number * scale;
            rest = tail;
        }
        if seconds > Self::MAX {
            return Err(refuse(Some("the longest duration is 3650d".to_owned())));
        }
        // Rounded to microseconds, so that `0.1s` is exactly 100 ms.
        Ok(Self(std::time::Duration::from_micros((seconds * 1e6).round() as u64)))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        match micros {
            0 => f.write_str("0s"),
            _ if micros.is_multiple_of(3_600_000_000) => write!(f, "{}h", micros / 3_600_000_000),
            _ if micros.is_multiple_of(60_000_000) => write!(f, "{}m", micros / 60_000_000),
            _ if micros.is_multiple_of(1_000_000) => write!(f, "{}s", micros / 1_000_000),
            _ => write!(f, "{}ms", micros as f64 / 1000.0),
        }
    }
}

/// Guesses the meaning of `3 seconds`, `30` or `5 min`.
fn duration_hint(text: &str) -> Option<String> {
    let (_, tail) = leading_number(text)?;
    let number = &text[..text.len() - tail.len()];
    let unit = match tail.trim().to_ascii_lowercase().as_str() {
        "" => return Some(format!("add a unit: {number}s or {number}ms")),
        "ms" | "msec" | "msecs" | "milli" | "millis" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return None,
    };
    Some(format!("write {number}{unit}"))
}

// === impl ByteSize ===

impl ByteSize {
    const EXPECTED: &'static str = "a size in bytes; expected e.g. 512B, 32KiB, 1MiB, 2GiB";
    const PATTERN: &'static str = r"^[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB|KB|MB|GB)$";
    const MAX: f64 = (1u64 << 50) as f64;

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length in memory. Saturates if `usize` is smaller.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = |hint| UnitError { expected: Self::EXPECTED, hint };
        let (number, unit) = leading_number(text).ok_or_else(|| refuse(None))?;
        let scale: f64 = match unit {
            "B" => 1.0,
            "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(refuse(size_hint(text, unit))),
        };
        let bytes = number * scale;
        if bytes > Self::MAX || bytes.fract() != 0.0 {
            return Err(refuse(None));
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0B"),
            n if n.is_multiple_of(1 << 30) => write!(f, "{}GiB", n >> 30),
            n if n.is_multiple_of(1 << 20) => write!(f, "{}MiB", n >> 20),
            n if n.is_multiple_of(1 << 10) => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}B"),
        }
    }
}

fn size_hint(text: &str, unit: &str) -> Option<String> {
    let number = &text[..text.len() - unit.len()];
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" => return Some(format!("add a unit: {number}B or {number}KiB")),
        "b" | "byte" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        _ => return None,
    };
    Some(format!("write {number}{unit}"))
}

// === impl Percent ===

impl Percent {
    const EXPECTED: &'static str = "a percentage from 0% to 100%; expected e.g. 20%";
    const PATTERN: &'static str = r"^[0-9]+(\.[0-9]+)?%$";

    /// A share of whole percents; more than 100 counts as 100.
    pub const fn new(percent: u8) -> Self {
        Self(if percent > 100 { 100.0 } else { percent as f64 })
    }

    /// The share as a factor from 0 to 1.
    pub const fn ratio(self) -> f64 {
        self.0 / 100.0
    }

    /// Whether a random number falls into this share: `100%` takes every number, `0%` none.
    pub const fn takes(self, random: u64) -> bool {
        ((random >> 32) as f64) < self.ratio() * 4_294_967_296.0
    }
}

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = |hint| UnitError { expected: Self::EXPECTED, hint };
        let (number, unit) = leading_number(text).ok_or_else(|| refuse(None))?;
        match unit.trim() {
            "%" if number <= 100.0 => Ok(Self(number)),
            "" if number > 0.0 && number < 1.0 => Err(refuse(Some(format!("write {}%", number * 100.0)))),
            "" if number <= 100.0 => Err(refuse(Some(format!("write {number}%")))),
            _ => Err(refuse(None)),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

// === impl Rate ===

impl Rate {
    const EXPECTED: &'static str = "bytes a second; expected e.g. 128B, 1KiB, 0B for no floor";
    const PATTERN: &'static str = r"^[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB|KB|MB|GB)(/s)?$";

    /// Bytes a second.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.strip_suffix("/s").unwrap_or(text).parse::<ByteSize>() {
            Ok(size) => Ok(Self(size.0)),
            Err(error) => Err(UnitError { expected: Self::EXPECTED, hint: error.hint }),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0).fmt(f)
    }
}

// === impl Frequency ===

impl Frequency {
    const EXPECTED: &'static str = "a number in a period, up to 1000/s; expected e.g. 20/s, 100/m, 1000/h";
    const PATTERN: &'static str = r"^[0-9]+/(s|m|h)$";
    const PERIODS: [(&'static str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];
    const MOST: u64 = 1000;
}

impl FromStr for Frequency {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = |hint| UnitError { expected: Self::EXPECTED, hint };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let count: u32 = number.parse().map_err(|_| refuse(None))?;
        let period = Self::PERIODS.iter().find(|(name, _)| unit.strip_prefix('/') == Some(*name));
        let Some((_, seconds)) = period else {
            let bare = unit.to_ascii_lowercase().replace([' ', '/'], "");
            let bare = bare.trim_start_matches("per").trim_start_matches('r');
            let near = Self::PERIODS.iter().find(|(name, _)| bare.starts_with(name));
            let guess = if bare.is_empty() { Some("s") } else { near.map(|(name, _)| *name) };
            return Err(refuse(guess.map(|name| format!("write {count}/{name}"))));
        };
        if count == 0 || u64::from(count) > Self::MOST * seconds {
            return Err(refuse(None));
        }
        Ok(Self { count, period: std::time::Duration::from_secs(*seconds) })
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.period.as_secs();
        let period = Self::PERIODS.iter().find(|(_, length)| *length == seconds);
        write!(f, "{}/{}", self.count, period.map_or("s", |(name, _)| name))
    }
}

// === what the five share ===

/// Splits `1.5KiB` into 1.5 and `KiB`. No sign, no exponent.
fn leading_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
        return None;
    }
    number.parse().ok().map(|number| (number, rest))
}

macro_rules! unit {
    ($type:ident, $name:literal, $description:literal, $examples:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = de::text(deserializer, Self::EXPECTED)?;
                text.parse().map_err(|e: UnitError| de::refuse(e.expected, e.hint.as_deref()))
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": $description,
                    "pattern": Self::PATTERN,
                    "examples": $examples,
                })
            }
        }
    };
}

unit!(Duration, "Duration", "A length of time with its unit: ms, s, m, h or d.", ["250ms", "3s", "5m", "1h"]);
unit!(ByteSize, "ByteSize", "A number of bytes with its unit.", ["512B", "32KiB", "1MiB", "2GB"]);
unit!(Percent, "Percent", "A share from 0% to 100%.", ["20%", "0.5%"]);
unit!(Rate, "Rate", "Bytes in a second.", ["128B", "1KiB"]);
unit!(Frequency, "Frequency", "A number in a second, minute or hour.", ["20/s", "100/m", "1000/h"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in
            [("0s", 0), ("250ms", 250), ("3s", 3000), ("1.5s", 1500), ("5m", 300_000), ("1m30s", 90_000)]
        {
            assert_eq!(text.parse(), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, hint) in [
            ("", None),
            ("fast", None),
            ("-3s", None),
            ("3 seconds", Some("write 3s")),
            ("30", Some("add a unit: 30s or 30ms")),
            ("5 min", Some("write 5m")),
            ("3S", Some("write 3s")),
            ("4000d", Some("the longest duration is 3650d")),
        ] {
            assert_eq!(text.parse::<Duration>().unwrap_err().hint.as_deref(), hint, "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("0B", 0), ("512B", 512), ("32KiB", 32768), ("1.5KiB", 1536), ("1MB", 1_000_000)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for (text, hint) in
            [("1024", Some("add a unit: 1024B or 1024KiB")), ("10k", Some("write 10KiB")), ("0.5B", None)]
        {
            assert_eq!(text.parse::<ByteSize>().unwrap_err().hint.as_deref(), hint, "{text}");
        }
    }

    #[test]
    fn shares_and_rates() {
        assert_eq!("20%".parse::<Percent>().map(Percent::ratio), Ok(0.2));
        assert_eq!("0.2".parse::<Percent>().unwrap_err().hint.as_deref(), Some("write 20%"));
        assert!("120%".parse::<Percent>().is_err());
        let takes = |share: &str, random| share.parse::<Percent>().unwrap().takes(random);
        assert!(takes("100%", u64::MAX) && !takes("0%", 0));
        assert!(takes("50%", u64::MAX / 2) && !takes("50%", u64::MAX / 2 + 1));
        assert_eq!("128B".parse(), Ok(Rate(128)));
        assert_eq!("1KiB/s".parse(), Ok(Rate(1024)));
        assert!("128".parse::<Rate>().is_err());
    }

    #[test]
    fn frequencies() {
        for (text, count, seconds) in
            [("20/s", 20, 1), ("1000/s", 1000, 1), ("100/m", 100, 60), ("1/h", 1, 3600)]
        {
            let period = std::time::Duration::from_secs(seconds);
            assert_eq!(text.parse(), Ok(Frequency { count, period }), "{text}");
            assert_eq!(text.parse::<Frequency>().unwrap().to_string(), text);
        }
        for (text, hint) in [
            ("", None),
            ("0/s", None),
            ("1001/s", None),
            ("20", Some("write 20/s")),
            ("20r/s", Some("write 20/s")),
            ("20 per minute", Some("write 20/m")),
            ("20/d", None),
        ] {
            assert_eq!(text.parse::<Frequency>().unwrap_err().hint.as_deref(), hint, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_what_is_read() {
        for text in ["0s", "250ms", "3s", "5m", "1h", "90s"] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.to_string().parse(), Ok(duration), "{text}");
        }
        assert_eq!(ByteSize(32768).to_string(), "32KiB");
    }
}
