//! `--shape`: parts as written on the command line, such as `hold 100/s 1m, spike: jump 2000/s 10s, pause 5s`.

use super::{CONNECTIONS_MOST, Reader};
use crate::pace::Rhythm;
use crate::shape::{self, Form, Level, Piece, Shape, Spacing};
use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroU32;
use weir_report::report::{Pace, PartPlan, StageUnit};
use weir_report::units;

/// Most parts, each of which has a row in the report and histograms in each thread. A file or steps are one part.
const PARTS_MOST: usize = 100;

/// Largest file of counts.
const FILE_MOST: u64 = 64 << 20;

/// Longest name of a part.
const NAME_MOST: usize = 64;

/// The forms of parts, for messages.
const FORMS: &str = "hold RATE TIME, ramp RATE TIME, jump RATE TIME, pause TIME, \
    wave mean=RATE swing=RATE every=TIME for=TIME, steps from=RATE by=RATE every=TIME to=RATE, \
    file PATH every=TIME scale=N";

impl Reader<'_> {
    /// The pace and rhythm of `--shape`; none if it is not given or wrong.
    pub(super) fn shape(&mut self) -> Option<(Pace, Rhythm)> {
        let text = self.options.shape.as_deref()?;
        let pieces: Vec<&str> = text.split(',').map(str::trim).collect();
        let of = unit(&pieces);
        if pieces.len() > PARTS_MOST {
            self.wrong("--shape", &format!("expected at most {PARTS_MOST} parts; a file or steps are one"));
            return None;
        }
        let spacing = self.spacing(of);
        let mut read = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            match part(piece, of) {
                Ok(piece) => read.push(piece),
                Err(why) => self.wrong(&place(i, piece), &why),
            }
        }
        if read.len() < pieces.len() {
            return None;
        }
        let seed = self.options.seed.unwrap_or(1);
        let shape = match Shape::new(&read, spacing?, seed) {
            Ok(shape) => shape,
            Err(mistake) => {
                let place = match mistake.part() {
                    Some(i) => place(i, pieces[i]),
                    None => format!("--shape {text}"),
                };
                self.wrong(&place, &mistake.to_string());
                return None;
            }
        };
        if of == StageUnit::Users && shape.users_most() == 0 {
            self.wrong("--shape", "no part has a user");
        }
        if of == StageUnit::Users && shape.users_most() > CONNECTIONS_MOST {
            self.wrong("--shape", "expected at most 1000000 users");
        }
        let pace =
            Pace::Shape { of, parts: described(&shape, &pieces, of), spacing: written(spacing?), seed };
        Some((pace, Rhythm::shaped(shape, of)))
    }

    fn spacing(&mut self, of: StageUnit) -> Option<Spacing> {
        let o = self.options;
        if of == StageUnit::Users {
            if o.spacing.is_some() || o.seed.is_some() {
                self.wrong("--spacing", "is of a rate: the parts of --shape have numbers of users");
            }
            return Some(Spacing::Even);
        }
        let text = o.spacing.as_deref().unwrap_or("even");
        let burst = text.strip_prefix("burst(").and_then(|rest| rest.strip_suffix(')'));
        let spacing = match (text, burst) {
            ("even", _) => Some(Spacing::Even),
            ("poisson", _) => Some(Spacing::Poisson),
            (_, Some(n)) => n.parse::<NonZeroU32>().ok().map(Spacing::Burst),
            _ => None,
        };
        if spacing.is_none() {
            self.wrong(&format!("--spacing {text}"), "expected even, poisson or burst(N) with N from 1");
        }
        if o.seed.is_some() && spacing.is_some_and(|s| s != Spacing::Poisson) {
            self.wrong("--seed", "is for --spacing poisson: the others have no chance in them");
        }
        spacing
    }

    /// Refuses bursts that never find enough connections.
    pub(super) fn burst_fits(&mut self, rhythm: &Rhythm, clients: u64) {
        if let Some(Spacing::Burst(n)) = rhythm.shape().map(|shape| shape.spacing())
            && u64::from(n.get()) > clients
        {
            let hint = format!("a burst is larger than the most connections, {clients}: raise -c");
            self.wrong(&format!("--spacing burst({n})"), &hint);
        }
    }
}

fn place(i: usize, piece: &str) -> String {
    format!("--shape, part {}, `{piece}`", i + 1)
}

/// Whether the parts determine a rate or users: a rate where any value has a unit of time.
fn unit(pieces: &[&str]) -> StageUnit {
    let mut has_users = false;
    for piece in pieces {
        let (_, rest) = named(piece);
        let mut words = rest.split_whitespace();
        match words.next() {
            Some("file") => {} // its path may have slashes
            Some("pause") | None => {}
            Some(_) => {
                let values: Vec<&str> = words.filter(|w| *w != "for" && *w != "over").collect();
                if values.iter().any(|value| value.contains('/')) {
                    return StageUnit::Rate;
                }
                has_users |= !values.is_empty();
            }
        }
    }
    if has_users { StageUnit::Users } else { StageUnit::Rate }
}

/// Splits `spike: jump 2000/s 10s` into its name, if it has one, and the rest.
fn named(piece: &str) -> (Option<&str>, &str) {
    match piece.split_once(':') {
        Some((name, rest)) if !name.contains(char::is_whitespace) => (Some(name), rest.trim()),
        _ => (None, piece),
    }
}

fn part(piece: &str, of: StageUnit) -> Result<Piece, String> {
    let (name, rest) = named(piece);
    if let Some(name) = name {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > NAME_MOST || !name.chars().all(is_word) {
            return Err(format!("expected a name of 1 to {NAME_MOST} letters, digits, `_` and `-`"));
        }
        if weir_report::Threshold::is_k6_metric(name) {
            return Err(format!(
                "`{name}` is a metric of k6: conditions on this part could not be told apart"
            ));
        }
    }
    let words: Vec<&str> = rest.split_whitespace().filter(|w| *w != "for" && *w != "over").collect();
    let form = match words.as_slice() {
        ["hold", at, time] => Form::Hold { at: level(at, of)?, ns: ns(time)? },
        ["jump", at, time] => Form::Jump { at: level(at, of)?, ns: ns(time)? },
        ["ramp", to, time] => Form::Ramp { to: level(to, of)?, ns: ns(time)? },
        ["pause", time] => Form::Pause { ns: ns(time)? },
        ["wave", settings @ ..] => {
            let mut s = Settings::read(settings, &["mean", "swing", "every", "for"])?;
            let (mean, swing) = (level(s.take("mean")?, of)?, level(s.take("swing")?, of)?);
            Form::Wave { mean, swing, every_ns: ns(s.take("every")?)?, ns: ns(s.take("for")?)? }
        }
        ["steps", settings @ ..] => {
            let mut s = Settings::read(settings, &["from", "by", "every", "to"])?;
            let (from, by) = (level(s.take("from")?, of)?, level(s.take("by")?, of)?);
            Form::Steps { from, by, to: level(s.take("to")?, of)?, every_ns: ns(s.take("every")?)? }
        }
        ["file", path, settings @ ..] => {
            let mut s = Settings::read(settings, &["every", "scale"])?;
            let every_ns = ns(s.take("every")?)?;
            let scale = s.0.remove("scale").map_or(Ok(1.0), |text| {
                let scale = text.parse::<f64>().ok().filter(|scale| *scale > 0.0 && *scale <= 1e9);
                scale.ok_or_else(|| format!("`{text}` is no scale; expected a number above 0, such as 0.5"))
            })?;
            Form::File { counts: scaled(&counts(path)?, scale), every_ns }
        }
        _ => return Err(format!("expected one of: {FORMS}")),
    };
    Ok(Piece { name: name.map(str::to_owned), form })
}

/// `name=value` words.
struct Settings<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Settings<'a> {
    fn read(words: &[&'a str], known: &[&str]) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no `=`"))?;
            if !known.contains(&name) {
                return Err(format!("`{name}` is unknown; expected {}", known.join(", ")));
            }
            if all.insert(name, value).is_some() {
                return Err(format!("`{name}` is there twice"));
            }
        }
        Ok(Self(all))
    }

    fn take(&mut self, name: &str) -> Result<&'a str, String> {
        self.0.remove(name).ok_or_else(|| format!("`{name}=` is missing"))
    }
}

fn level(text: &str, of: StageUnit) -> Result<Level, String> {
    let value = match of {
        StageUnit::Rate => match text.split_once('/') {
            Some(("0", _)) => Some(0.0),
            Some(_) => units::rate(text),
            None => None,
        },
        StageUnit::Users => units::count(text).map(|n| n as f64),
    };
    let value = value.filter(|v| *v <= shape::value(Level::MAX));
    value.map(shape::level).ok_or_else(|| match of {
        StageUnit::Rate => format!("`{text}` is no rate; expected one such as 100/s or 300/m"),
        StageUnit::Users => format!("`{text}` is no number of users; expected one such as 100"),
    })
}

fn ns(text: &str) -> Result<u64, String> {
    let time = units::duration(text).map(crate::clock::nanos).filter(|ns| *ns > 0);
    time.ok_or_else(|| format!("`{text}` is no time; expected one such as 10s or 2m"))
}

/// The counts of a CSV file: the last column of each line. A first line that is no number is a header.
fn counts(path: &str) -> Result<Vec<u64>, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| format!("{path}: {e}"))?;
    file.take(FILE_MOST + 1).read_to_string(&mut text).map_err(|e| format!("{path}: {e}"))?;
    if text.len() as u64 > FILE_MOST {
        return Err(format!("{path}: expected at most 64 MiB"));
    }
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

fn described(shape: &Shape, pieces: &[&str], of: StageUnit) -> Vec<PartPlan> {
    let mut before = 0;
    let parts = shape.parts().iter().zip(pieces).map(|(part, piece)| {
        let due = if of == StageUnit::Rate { shape.due_by(part.end_ns - 1) } else { 0 };
        PartPlan {
            name: part.name.clone(),
            word: part.word.to_owned(),
            written: named(piece).1.to_owned(),
            begin_ns: part.begin_ns,
            end_ns: part.end_ns,
            from: part.from,
            to: part.to,
            starts: due - std::mem::replace(&mut before, due),
        }
    });
    parts.collect()
}

fn written(spacing: Spacing) -> String {
    match spacing {
        Spacing::Burst(n) => format!("burst({n})"),
        Spacing::Even => "even".to_owned(),
        Spacing::Poisson => "poisson".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read() {
        let of = StageUnit::Rate;
        let form = |text| part(text, of).unwrap().form;
        let second = 1_000_000_000;
        assert_eq!(form("hold 100/s 1m"), Form::Hold { at: shape::level(100.0), ns: 60 * second });
        assert_eq!(form("hold 100/s for 1m"), form("hold 100/s 1m"));
        assert_eq!(form("ramp 0/s over 2s"), Form::Ramp { to: 0, ns: 2 * second });
        assert_eq!(part("spike: jump 60/m 5s", of).unwrap().name.as_deref(), Some("spike"));
        assert_eq!(
            form("wave mean=5/s for=1m swing=3/s every=10s"),
            Form::Wave {
                mean: shape::level(5.0),
                swing: shape::level(3.0),
                every_ns: 10 * second,
                ns: 60 * second
            }
        );
        for (bad, why) in [
            ("hold 100 1m", "`100` is no rate"),
            ("hold 100/s", "expected one of: hold RATE TIME"),
            ("hold 100/s 10", "`10` is no time"),
            ("jmup 100/s 10s", "expected one of"),
            ("a b: hold 1/s 1s", "expected one of"),
            ("ä: hold 1/s 1s", "expected a name"),
            ("http_reqs: hold 1/s 1s", "is a metric of k6"),
            ("wave mean=5/s swing=3/s every=1s", "`for=` is missing"),
            ("wave mean=5/s mean=3/s", "`mean` is there twice"),
            ("steps from=1/s up=2/s", "`up` is unknown; expected from, by, every, to"),
            ("file /no/such every=1s", "/no/such: No such file"),
            ("file /dev/null every=1s scale=0", "`0` is no scale"),
            ("file /dev/null every=1s", "it has no counts"),
        ] {
            let said = part(bad, of).map(|_| String::new()).unwrap_or_else(|why| why);
            assert!(said.contains(why), "{bad}: {said}");
        }
    }

    #[test]
    fn a_slash_makes_it_a_rate() {
        for (pieces, want) in [
            (&["hold 5 1s", "ramp 9 1s"][..], StageUnit::Users),
            (&["pause 1s", "hold 5/s 1s"], StageUnit::Rate),
            (&["file ./a.csv every=1s"], StageUnit::Rate),
            (&["file ./a.csv every=1s", "hold 5 1s"], StageUnit::Users),
            (&["wave mean=5 swing=1 every=1s for=1s"], StageUnit::Users),
        ] {
            assert_eq!(unit(pieces), want, "{pieces:?}");
        }
    }

    #[test]
    fn a_scale_loses_nothing() {
        assert_eq!(scaled(&[1, 1, 1, 1, 7], 0.5), [0, 1, 0, 1, 3]);
        assert_eq!(scaled(&[10, 20, 30], 0.1), [1, 2, 3]);
        assert_eq!(scaled(&[3, 0, 4], 2.5), [7, 0, 10]);
    }
}
