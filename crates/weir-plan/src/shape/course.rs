//! A list of parts in the form that answers questions about any moment and any start.

use super::line::{Line, REQUEST};
use super::poisson::{self, Path};
use std::fmt;
use std::num::NonZeroU32;

/// A value: requests per second, or users, in steps of 1/3,600,000. Rates per second, minute and hour are exact with
/// up to three decimals.
pub type Level = u64;

/// One request per second, or one user.
pub(super) const ONE: Level = 3_600_000;

/// The level for a rate per second, or for a number of users.
pub fn level(value: f64) -> Level {
    (value * ONE as f64).round() as Level // a negative value becomes 0
}

/// The value of a level.
pub fn value(level: Level) -> f64 {
    level as f64 / ONE as f64
}

/// How starts lie between the cumulative rate's whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// This many start together, at the even start of the first of them.
    Burst(NonZeroU32),
    /// A start whenever the area below the rate reaches a whole number.
    #[default]
    Even,
    /// Random and independent of each other: a Poisson process, given its number of starts.
    Poisson,
}

impl fmt::Display for Spacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst(n) => write!(f, "burst({n})"),
            Self::Even => f.write_str("even"),
            Self::Poisson => f.write_str("poisson"),
        }
    }
}

/// The parts of a load: when requests or iterations start, or how many users there are.
///
/// Invariant: `start(k)` depends on the parts, the spacing, the seed and k alone. Threads and machines that divide the
/// numbers among themselves agree on every start without talking to each other.
///
/// The area below the rate is an integer, in units of 1/3.6e15 request (`REQUEST`). Even starts are exact: `start(k)`
/// is the last nanosecond at which the area is at most k. Within a wave, which needs a cosine, the area is off by less
/// than 1e-9 of the requests in one period. Starts of a Poisson process are exact to 2^-52 of the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Never empty, each with a length; in order and without gaps.
    pub(super) lines: Vec<Line>,
    pub(super) parts: Vec<Part>,
    pub(super) spacing: Spacing,
    pub(super) seed: u64,
    pub(super) end_ns: u64,
    /// The area below all lines.
    pub(super) area: i128,
    pub(super) starts: u64,
}

/// One part as written, which may be many lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Unique in its shape.
    pub name: String,
    /// The word it began with, such as `hold`.
    pub word: &'static str,
    /// When it begins, from the beginning of the first.
    pub begin_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// The value at its beginning.
    pub from: f64,
    /// The value at its end.
    pub to: f64,
}

impl Course {
    /// How long it lasts.
    pub const fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The seed of [`Spacing::Poisson`].
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// How starts are spaced.
    pub const fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// How many starts it has: the area below the rate, rounded up.
    pub const fn starts(&self) -> u64 {
        self.starts
    }

    /// The highest value: requests per second, or users.
    pub fn highest(&self) -> f64 {
        self.lines.iter().map(Line::highest).fold(0.0, f64::max)
    }

    /// When the k-th start (from 0) is intended; none if there is no such start.
    pub fn start(&self, k: u64) -> Option<u64> {
        self.start_with(k, &mut Path::default())
    }

    /// The same as `start`, faster for numbers that ascend if the same `path` is passed each time.
    pub fn start_with(&self, k: u64, path: &mut Path) -> Option<u64> {
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

    /// The same parts with another spacing. `seed` is for [`Spacing::Poisson`].
    #[must_use]
    pub const fn spaced(mut self, spacing: Spacing, seed: u64) -> Self {
        (self.spacing, self.seed) = (spacing, seed);
        self
    }

    /// How many starts are due at a moment: intended then or earlier.
    pub fn due_by(&self, at: u64) -> u64 {
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
    pub fn part_at(&self, at: u64) -> usize {
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

    pub(super) fn line_at(&self, at: u64) -> &Line {
        let i = self.lines.partition_point(|line| line.begin_ns <= at).saturating_sub(1);
        &self.lines[i]
    }
}

/// An area in requests, rounded up.
pub(super) fn whole(area: i128) -> u64 {
    u64::try_from((area + REQUEST - 1) / REQUEST).unwrap_or(0)
}
