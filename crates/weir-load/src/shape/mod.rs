//! Arrival shapes: when requests start, or how many users there are, as pure functions of a list of parts, a spacing,
//! a seed and a number.
//!
//! `Shape::start(k)` is the intended start of the k-th request. It depends on nothing else, so threads and machines
//! that divide the numbers among themselves agree on every start without talking to each other.
//!
//! *Layout.* `line` is a stretch over which a value follows one formula, with the area below it in integers. `parts`
//! turns the written parts into lines. `poisson` places random starts. `users` reads the same lines as numbers of
//! users. No clock, no socket, no text of the command line.

mod line;
mod parts;
mod poisson;
mod users;

pub(crate) use parts::{Form, Piece};
pub(crate) use poisson::Path;

use line::{Line, REQUEST};
use std::num::NonZeroU32;

/// A value: requests per second, or users, in steps of 1/3,600,000. Rates per second, minute and hour are exact with
/// up to three decimals.
pub(crate) type Level = u64;

/// One request per second, or one user.
pub(crate) const ONE: Level = 3_600_000;

/// The level for a rate per second, or for a number of users.
pub(crate) fn level(value: f64) -> Level {
    (value * ONE as f64).round() as Level // a negative value becomes 0
}

/// The value of a level.
pub(crate) fn value(level: Level) -> f64 {
    level as f64 / ONE as f64
}

/// How starts lie between the cumulative rate's whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// This many start together, at the even start of the first of them.
    Burst(NonZeroU32),
    /// A start whenever the area below the rate reaches a whole number.
    #[default]
    Even,
    /// Random and independent of each other: a Poisson process, given its number of starts.
    Poisson,
}

/// A list of parts, in the form that answers questions about any moment and any start.
///
/// The area below the rate is an integer, in units of 1/3.6e15 request ([`REQUEST`]). Even starts are exact: `start(k)`
/// is the last nanosecond at which the area is at most k. Within a wave, which needs a cosine, the area is off by less
/// than 1e-9 of the requests in one period. Starts of a Poisson process are exact to 2^-52 of the whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Never empty, each with a length; in order and without gaps.
    lines: Vec<Line>,
    parts: Vec<Part>,
    spacing: Spacing,
    seed: u64,
    end_ns: u64,
    /// The area below all lines.
    area: i128,
    starts: u64,
}

/// One part as written, which may be many lines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// Unique in its shape.
    pub(crate) name: String,
    /// The word it began with, such as `hold`.
    pub(crate) word: &'static str,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// The value at its beginning and at its end.
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Shape {
    /// How long it lasts.
    #[cfg(test)]
    pub(crate) const fn end_ns(&self) -> u64 {
        self.end_ns
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(crate) const fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// How many starts it has: the area below the rate, rounded up.
    #[cfg(test)]
    pub(crate) const fn starts(&self) -> u64 {
        self.starts
    }

    /// The highest value.
    pub(crate) fn highest(&self) -> f64 {
        self.lines.iter().map(Line::highest).fold(0.0, f64::max)
    }

    /// When the k-th start (from 0) is intended; none if there is no such start.
    #[cfg(test)]
    pub(crate) fn start(&self, k: u64) -> Option<u64> {
        self.start_with(k, &mut Path::default())
    }

    /// The same as `start`, faster for numbers that ascend if the same `path` is passed each time.
    pub(crate) fn start_with(&self, k: u64, path: &mut Path) -> Option<u64> {
        if k >= self.starts {
            return None;
        }
        let area = match self.spacing {
            Spacing::Burst(n) => i128::from(k - k % u64::from(n.get())) * REQUEST,
            Spacing::Even => i128::from(k) * REQUEST,
            Spacing::Poisson => self.area_of(path.position(self.seed, self.starts, k)),
        };
        Some(self.last_at(area))
    }

    /// How many starts are due at a moment: intended then or earlier.
    pub(crate) fn due_by(&self, at: u64) -> u64 {
        let area = self.area_at(at.saturating_add(1).min(self.end_ns));
        // Start k is due if the area right after the moment exceeds k.
        let due = match self.spacing {
            Spacing::Poisson => {
                return poisson::count(self.seed, self.starts, |x| self.area_of(x) < area);
            }
            Spacing::Burst(_) | Spacing::Even => whole(area),
        };
        match self.spacing {
            Spacing::Burst(n) => due.div_ceil(u64::from(n.get())).saturating_mul(u64::from(n.get())),
            Spacing::Even | Spacing::Poisson => due,
        }
        .min(self.starts)
    }

    /// The part that a moment belongs to; the last one for moments after the end.
    pub(crate) fn part_at(&self, at: u64) -> usize {
        self.parts.partition_point(|part| part.begin_ns <= at).saturating_sub(1)
    }

    /// The area at a share of the whole, 0 to 1.
    fn area_of(&self, x: f64) -> i128 {
        ((self.area as f64 * x) as i128).min(self.area - 1)
    }

    /// The area up to a moment.
    fn area_at(&self, at: u64) -> i128 {
        let line = self.line_at(at);
        line.area_before + line.area(at.saturating_sub(line.begin_ns).min(line.length_ns))
    }

    /// The last moment at which the area is at most `area`.
    fn last_at(&self, area: i128) -> u64 {
        let i = self.lines.partition_point(|line| line.area_before <= area).saturating_sub(1);
        let line = &self.lines[i];
        line.begin_ns + line.last_at(area - line.area_before)
    }

    fn line_at(&self, at: u64) -> &Line {
        let i = self.lines.partition_point(|line| line.begin_ns <= at).saturating_sub(1);
        &self.lines[i]
    }
}

/// An area in requests, rounded up.
fn whole(area: i128) -> u64 {
    u64::try_from((area + REQUEST - 1) / REQUEST).unwrap_or(0)
}

#[cfg(test)]
mod tests;
