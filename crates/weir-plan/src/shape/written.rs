//! Parts as words, as on a command line: `hold 100/s 1m`, `wave mean=5/s swing=3/s every=1m for=10m`.

use super::Unit;
use super::course::{self, Level, Spacing};
use super::parts::{Form, Piece};
use crate::files::Files;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use weir_report::units;

/// Most parts of a list, each of which has a row in the report and histograms in each thread. A file or steps are one
/// part.
pub const PARTS_MOST: usize = 100;

/// Largest file of counts.
const FILE_MOST: u64 = 64 << 20;

/// Longest name of a part.
const NAME_MOST: usize = 64;

/// The words that parts begin with.
pub(super) const WORDS: [&str; 7] = ["hold", "ramp", "jump", "pause", "wave", "steps", "file"];

/// The forms of parts, for messages.
pub const FORMS: &str = "hold RATE TIME, ramp RATE TIME, jump RATE TIME, pause TIME, \
    wave mean=RATE swing=RATE every=TIME for=TIME, steps from=RATE by=RATE every=TIME to=RATE, \
    file PATH every=TIME scale=N";

/// Whether parts determine a rate or users: a rate where any value has a unit of time.
pub fn unit_of(pieces: &[&str]) -> Unit {
    let mut has_users = false;
    for piece in pieces {
        let (_, rest) = named(piece);
        let values = values(rest);
        let values = match values.split_first() {
            None | Some((&("file" | "pause"), _)) => continue, // a path may have slashes
            Some((_, values)) => values,
        };
        if values.iter().any(|value| value.contains('/')) {
            return Unit::Rate;
        }
        has_users |= !values.is_empty();
    }
    if has_users { Unit::Users } else { Unit::Rate }
}

/// Splits `spike: jump 2000/s 10s` into its name, if it has one, and the rest.
pub fn named(piece: &str) -> (Option<&str>, &str) {
    match piece.split_once(':') {
        Some((name, rest)) if !name.contains(char::is_whitespace) => (Some(name), rest.trim()),
        _ => (None, piece),
    }
}

/// Reads a part as words, such as `spike: jump 2000/s 10s`.
///
/// # Errors
/// What is wrong with it.
pub fn word(piece: &str, unit: Unit, files: &dyn Files) -> Result<Piece, String> {
    let (given, rest) = named(piece);
    let given = given.map(name).transpose()?;
    let words = values(rest);
    let (word, values) = words.split_first().ok_or_else(unknown)?;
    Ok(Piece { name: given, form: form(word, values, unit, files)? })
}

/// The words of a part but `for` and `over`, which may stand before a time.
pub(super) fn values(text: &str) -> Vec<&str> {
    text.split_whitespace().filter(|word| *word != "for" && *word != "over").collect()
}

/// Reads `even`, `poisson` or `burst(N)`.
pub fn spacing(text: &str) -> Option<Spacing> {
    match text {
        "even" => Some(Spacing::Even),
        "poisson" => Some(Spacing::Poisson),
        _ => {
            let n = text.strip_prefix("burst(")?.strip_suffix(')')?;
            n.parse::<NonZeroU32>().ok().map(Spacing::Burst)
        }
    }
}

/// Checks the name of a part.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.is_empty() || text.len() > NAME_MOST || !text.chars().all(is_word) {
        return Err(format!("expected a name of 1 to {NAME_MOST} letters, digits, `_` and `-`"));
    }
    if weir_report::Threshold::is_k6_metric(text) {
        return Err(format!("`{text}` is a metric of k6: conditions on this part could not be told apart"));
    }
    Ok(text.to_owned())
}

/// An example of the values of `hold`.
pub(super) const fn example(unit: Unit) -> &'static str {
    match unit {
        Unit::Rate => "100/s for 1m",
        Unit::Users => "100 for 1m",
    }
}

fn unknown() -> String {
    format!("expected one of: {FORMS}")
}

/// Reads a part whose values are words.
pub(super) fn form(word: &str, values: &[&str], unit: Unit, files: &dyn Files) -> Result<Form, String> {
    Ok(match (word, values) {
        ("hold", [at, time]) => Form::Hold { at: level(at, unit)?, ns: ns(time)? },
        ("jump", [at, time]) => Form::Jump { at: level(at, unit)?, ns: ns(time)? },
        ("ramp", [to, time]) => Form::Ramp { to: level(to, unit)?, ns: ns(time)? },
        ("pause", [time]) => Form::Pause { ns: ns(time)? },
        ("steps" | "wave", values) => return form_of(word, Settings::read(values)?, unit, files),
        ("file", [path, values @ ..]) => {
            let mut settings = Settings::read(values)?;
            settings.0.insert("csv", path);
            return form_of(word, settings, unit, files);
        }
        _ => return Err(unknown()),
    })
}

/// Reads a part whose values have names.
pub(super) fn form_of(
    word: &str,
    mut s: Settings<'_>,
    unit: Unit,
    files: &dyn Files,
) -> Result<Form, String> {
    let form = match word {
        "wave" => Form::Wave {
            mean: level(s.take("mean")?, unit)?,
            swing: level(s.take("swing")?, unit)?,
            every_ns: ns(s.take("every")?)?,
            ns: ns(s.take("for")?)?,
        },
        "steps" => Form::Steps {
            from: level(s.take("from")?, unit)?,
            by: level(s.take("by")?, unit)?,
            to: level(s.take("to")?, unit)?,
            every_ns: ns(s.take("every")?)?,
        },
        "file" => {
            let every_ns = ns(s.take("every")?)?;
            let scale = s.0.remove("scale").map_or(Ok(1.0), |text| {
                let scale = text.parse::<f64>().ok().filter(|scale| *scale > 0.0 && *scale <= 1e9);
                scale.ok_or_else(|| format!("`{text}` is no scale; expected a number above 0, such as 0.5"))
            })?;
            Form::File { counts: scaled(&counts(s.take("csv")?, files)?, scale), every_ns }
        }
        _ => return Err(unknown()),
    };
    match s.0.keys().next() {
        Some(name) => Err(format!("`{name}` is no setting of `{word}`")),
        None => Ok(form),
    }
}

/// Values with names, such as `every=60s`.
pub(super) struct Settings<'a>(pub(super) BTreeMap<&'a str, &'a str>);

impl<'a> Settings<'a> {
    fn read(words: &[&'a str]) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no `=`"))?;
            if all.insert(name, value).is_some() {
                return Err(format!("`{name}` is there twice"));
            }
        }
        Ok(Self(all))
    }

    fn take(&mut self, name: &str) -> Result<&'a str, String> {
        self.0.remove(name).ok_or_else(|| format!("`{name}` is missing"))
    }
}

fn level(text: &str, of: Unit) -> Result<Level, String> {
    let value = match of {
        Unit::Rate => match text.split_once('/') {
            Some(("0", _)) => Some(0.0),
            Some(_) => units::rate(text).filter(|rate| *rate >= super::RATE_LEAST * 0.999),
            None => None,
        },
        Unit::Users => units::count(text).map(|n| n as f64),
    };
    let value = value.filter(|v| *v <= course::value(Level::MAX));
    value.map(course::level).ok_or_else(|| match of {
        Unit::Rate => format!("`{text}` is no rate; expected one such as 100/s or 300/m, 0.001/h or more"),
        Unit::Users => format!("`{text}` is no number of users; expected one such as 100"),
    })
}

fn ns(text: &str) -> Result<u64, String> {
    let time = units::duration(text).and_then(|d| u64::try_from(d.as_nanos()).ok()).filter(|ns| *ns > 0);
    time.ok_or_else(|| format!("`{text}` is no time; expected one such as 10s or 2m"))
}

/// The counts of a CSV file: the last column of each line. A first line that is no number is a header.
fn counts(path: &str, files: &dyn Files) -> Result<Vec<u64>, String> {
    let content = files.read(Path::new(path), FILE_MOST).map_err(|e| format!("{path}: {e}"))?;
    let text = String::from_utf8(content).map_err(|_| format!("{path}: it is not UTF-8"))?;
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cell = line.rsplit([',', ';', '\t']).next().unwrap_or_default().trim().trim_matches('"');
        match cell.parse::<u64>() {
            Ok(n) => all.push(n),
            Err(_) if i == 0 => {}
            Err(_) => return Err(format!("{path}: line {}: `{cell}` is no whole number of requests", i + 1)),
        }
    }
    if all.is_empty() { Err(format!("{path}: it has no counts")) } else { Ok(all) }
}

/// The counts times a scale. Their sum is exact: what one interval loses by rounding, a later one gains.
fn scaled(counts: &[u64], scale: f64) -> Vec<u64> {
    let (mut sum, mut given) = (0u128, 0u64);
    let each = counts.iter().map(|n| {
        sum += u128::from(*n);
        let due = (sum as f64 * scale + 1e-9).floor() as u64;
        due.saturating_sub(std::mem::replace(&mut given, due))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Disk;

    #[test]
    fn parts_are_read() {
        let unit = Unit::Rate;
        let form = |text| word(text, unit, &Disk).unwrap().form;
        let second = 1_000_000_000;
        assert_eq!(form("hold 100/s 1m"), Form::Hold { at: course::level(100.0), ns: 60 * second });
        assert_eq!(form("hold 100/s for 1m"), form("hold 100/s 1m"));
        assert_eq!(form("ramp 0/s over 2s"), Form::Ramp { to: 0, ns: 2 * second });
        assert_eq!(word("spike: jump 60/m 5s", unit, &Disk).unwrap().name.as_deref(), Some("spike"));
        assert_eq!(
            form("wave mean=5/s for=1m swing=3/s every=10s"),
            Form::Wave {
                mean: course::level(5.0),
                swing: course::level(3.0),
                every_ns: 10 * second,
                ns: 60 * second
            }
        );
        for (bad, why) in [
            ("hold 100 1m", "`100` is no rate"),
            ("hold 1e-7/s 1m", "`1e-7/s` is no rate; expected one such as 100/s or 300/m, 0.001/h or more"),
            ("hold 100/s", "expected one of: hold RATE TIME"),
            ("hold 100/s 10", "`10` is no time"),
            ("jmup 100/s 10s", "expected one of"),
            ("a b: hold 1/s 1s", "expected one of"),
            ("ä: hold 1/s 1s", "expected a name"),
            ("http_reqs: hold 1/s 1s", "is a metric of k6"),
            ("wave mean=5/s swing=3/s every=1s", "`for` is missing"),
            ("wave mean=5/s mean=3/s", "`mean` is there twice"),
            ("steps from=1/s by=1/s to=2/s every=1s up=2/s", "`up` is no setting of `steps`"),
            ("file /no/such every=1s", "/no/such: No such file"),
            ("file /dev/null every=1s scale=0", "`0` is no scale"),
            ("file /dev/null every=1s", "it has no counts"),
        ] {
            let said = word(bad, unit, &Disk).map(|_| String::new()).unwrap_or_else(|why| why);
            assert!(said.contains(why), "{bad}: {said}");
        }
    }

    #[test]
    fn a_slash_makes_it_a_rate() {
        for (pieces, want) in [
            (&["hold 5 1s", "ramp 9 1s"][..], Unit::Users),
            (&["pause 1s", "hold 5/s 1s"], Unit::Rate),
            (&["file ./a.csv every=1s"], Unit::Rate),
            (&["file ./a.csv every=1s", "hold 5 1s"], Unit::Users),
            (&["wave mean=5 swing=1 every=1s for=1s"], Unit::Users),
        ] {
            assert_eq!(unit_of(pieces), want, "{pieces:?}");
        }
    }

    #[test]
    fn a_scale_loses_nothing() {
        assert_eq!(scaled(&[1, 1, 1, 1, 7], 0.5), [0, 1, 0, 1, 3]);
        assert_eq!(scaled(&[10, 20, 30], 0.1), [1, 2, 3]);
        assert_eq!(scaled(&[3, 0, 4], 2.5), [7, 0, 10]);
    }
}
