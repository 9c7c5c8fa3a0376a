//! Turns parts as written into the lines of a shape, and refuses those that make none.

use super::course::{Course, Level, ONE, Part, Spacing, value, whole};
use super::line::{Curve, Line, REQUEST};
use std::fmt;

/// Most lines of a shape: a count for each minute of almost two years.
pub const LINES_MOST: usize = 1_000_000;

/// Longest shape. With the highest rate, its area stays far below the limit of the arithmetic.
pub const LONGEST_NS: u64 = 366 * 86_400 * 1_000_000_000;

/// Highest level: 10 million requests per second.
const LEVEL_MOST: Level = 10_000_000 * ONE;

/// A part as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its name, if it was given one.
    pub name: Option<String>,
    /// What it does.
    pub form: Form,
}

/// What a part does. Times are nanoseconds.
#[allow(missing_docs)] // the names of the fields are those of the keys
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// This many in each interval.
    File { counts: Vec<u64>, every_ns: u64 },
    /// A constant value.
    Hold { at: Level, ns: u64 },
    /// A constant value that the one before does not lead to: a spike.
    Jump { at: Level, ns: u64 },
    /// Nothing.
    Pause { ns: u64 },
    /// From the value before, in a straight line.
    Ramp { to: Level, ns: u64 },
    /// From one value to another, a step at a time. The last is `to` even if that is no whole step.
    Steps { from: Level, by: Level, to: Level, every_ns: u64 },
    /// A sine around its mean.
    Wave { mean: Level, swing: Level, every_ns: u64, ns: u64 },
}

/// Why a list of parts is no shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// There are no parts.
    Empty,
    /// The value is 0 for the whole.
    Nothing,
    /// More than 10 million per second.
    TooHigh,
    /// Longer than [`LONGEST_NS`].
    TooLong,
    /// More than [`LINES_MOST`] parts, steps and intervals.
    TooMany,
    /// The part with this number (from 0) has no length.
    NoLength(usize),
    /// The part with this number swings below zero.
    Swing(usize),
    /// The part with this number has steps of size 0.
    NoStep(usize),
    /// The part with this number has the name of another one.
    Name(usize),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected at least one part"),
            Self::Nothing => f.write_str("nothing starts: the value is 0 for the whole"),
            Self::TooHigh => f.write_str("expected at most 10M/s, or 1000000 users"),
            Self::TooLong => f.write_str("expected at most 366 days"),
            Self::TooMany => f.write_str("expected at most 1,000,000 parts, steps and intervals"),
            Self::NoLength(_) => f.write_str("expected a time of more than 0"),
            Self::Swing(_) => f.write_str("the swing is larger than the mean: the value would fall below 0"),
            Self::NoStep(_) => f.write_str("expected steps of more than 0"),
            Self::Name(_) => f.write_str("another part has this name"),
        }
    }
}

impl Mistake {
    /// The part that it concerns.
    pub const fn part(self) -> Option<usize> {
        match self {
            Self::NoLength(i) | Self::Swing(i) | Self::NoStep(i) | Self::Name(i) => Some(i),
            Self::Empty | Self::Nothing | Self::TooHigh | Self::TooLong | Self::TooMany => None,
        }
    }
}

impl Form {
    /// The word that it begins with.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Hold { .. } => "hold",
            Self::Jump { .. } => "jump",
            Self::Pause { .. } => "pause",
            Self::Ramp { .. } => "ramp",
            Self::Steps { .. } => "steps",
            Self::Wave { .. } => "wave",
        }
    }
}

impl Course {
    /// Makes a shape of parts.
    ///
    /// # Errors
    /// The first reason why the parts make none.
    pub fn new(pieces: &[Piece], spacing: Spacing, seed: u64) -> Result<Self, Mistake> {
        let mut shape =
            Self { lines: Vec::new(), parts: Vec::new(), spacing, seed, end_ns: 0, area: 0, starts: 0 };
        let mut before = 0;
        for (i, piece) in pieces.iter().enumerate() {
            let begin_ns = shape.end_ns;
            let from = shape.add(i, &piece.form, &mut before)?;
            let name = match &piece.name {
                Some(name) if shape.parts.iter().any(|part| part.name == *name) => {
                    return Err(Mistake::Name(i));
                }
                Some(name) => name.clone(),
                None => free_name(pieces, &shape.parts, piece.form.word()),
            };
            let (end_ns, to) = (shape.end_ns, value(before));
            shape.parts.push(Part { name, word: piece.form.word(), begin_ns, end_ns, from, to });
        }
        if shape.lines.is_empty() {
            return Err(Mistake::Empty);
        }
        if shape.area == 0 {
            return Err(Mistake::Nothing);
        }
        shape.starts = whole(shape.area);
        Ok(shape)
    }

    /// Adds the lines of a part. `before` is the level at the end of the parts before it, and becomes that of this
    /// one. Returns the value at its beginning.
    fn add(&mut self, i: usize, form: &Form, before: &mut Level) -> Result<f64, Mistake> {
        let from = *before;
        let first = match *form {
            Form::File { ref counts, every_ns } => {
                for n in counts {
                    self.push(i, every_ns, Curve::Count(*n))?;
                }
                let level = |n: Option<&u64>| {
                    let per_second = u128::from(*n.unwrap_or(&0)) * REQUEST as u128;
                    u64::try_from(per_second / u128::from(every_ns.max(1))).unwrap_or(u64::MAX)
                };
                *before = level(counts.last());
                level(counts.first())
            }
            Form::Hold { at, ns } | Form::Jump { at, ns } => {
                self.push(i, ns, Curve::Straight(at, at))?;
                *before = at;
                at
            }
            Form::Pause { ns } => {
                self.push(i, ns, Curve::Straight(0, 0))?;
                *before = 0;
                0
            }
            Form::Ramp { to, ns } => {
                self.push(i, ns, Curve::Straight(from, to))?;
                *before = to;
                from
            }
            Form::Steps { from, by, to, every_ns } => {
                if by == 0 {
                    return Err(Mistake::NoStep(i));
                }
                let mut at = from;
                loop {
                    self.push(i, every_ns, Curve::Straight(at, at))?;
                    if at == to {
                        break;
                    }
                    at = if to > at { at.saturating_add(by).min(to) } else { at.saturating_sub(by).max(to) };
                }
                *before = to;
                from
            }
            Form::Wave { mean, swing, every_ns, ns } => {
                if swing > mean {
                    return Err(Mistake::Swing(i));
                }
                if every_ns == 0 {
                    return Err(Mistake::NoLength(i));
                }
                let curve =
                    if mean == 0 { Curve::Straight(0, 0) } else { Curve::Wave { mean, swing, every_ns } };
                self.push(i, ns, curve)?;
                *before = super::users::level_in(curve, ns, ns);
                mean
            }
        };
        Ok(value(first))
    }

    fn push(&mut self, i: usize, length_ns: u64, curve: Curve) -> Result<(), Mistake> {
        if length_ns == 0 {
            return Err(Mistake::NoLength(i));
        }
        if self.lines.len() >= LINES_MOST {
            return Err(Mistake::TooMany);
        }
        let is_high = match curve {
            Curve::Count(n) => n > 1 << 40 || n as f64 * 1e9 / length_ns as f64 > value(LEVEL_MOST),
            Curve::Straight(from, to) => from.max(to) > LEVEL_MOST,
            Curve::Wave { mean, swing, .. } => mean.saturating_add(swing) > LEVEL_MOST,
        };
        if is_high {
            return Err(Mistake::TooHigh);
        }
        let end_ns = self.end_ns.saturating_add(length_ns);
        if end_ns > LONGEST_NS {
            return Err(Mistake::TooLong);
        }
        let line = Line { begin_ns: self.end_ns, length_ns, area_before: self.area, curve };
        self.area += line.area(length_ns);
        self.end_ns = end_ns;
        self.lines.push(line);
        Ok(())
    }
}

/// The word, with a number if a part has it as its name already.
fn free_name(pieces: &[Piece], parts: &[Part], word: &str) -> String {
    let is_taken = |name: &str| {
        parts.iter().any(|part| part.name == name) || pieces.iter().any(|p| p.name.as_deref() == Some(name))
    };
    let numbered = (2..).map(|n: u64| format!("{word}_{n}"));
    std::iter::once(word.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
}
