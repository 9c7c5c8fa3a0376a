//! A shape read as a number of users.

use super::course::{Course, Level, ONE};
use super::line::{Curve, Line};
use std::f64::consts::TAU;

impl Course {
    /// How many users there are at a moment; none after the end.
    pub fn users_at(&self, at: u64) -> u64 {
        if at >= self.end_ns {
            return 0;
        }
        let line = self.line_at(at);
        // A user starts when the line reaches its number, as in k6.
        line.level(at - line.begin_ns) / ONE
    }

    /// When user `number` (from 0) may next send, at `at` or later; none if it may not again.
    pub fn user_next(&self, number: u64, at: u64) -> Option<u64> {
        let need = number.saturating_add(1).saturating_mul(ONE);
        let first = self.lines.partition_point(|line| line.begin_ns <= at).saturating_sub(1);
        self.lines[first..].iter().find_map(|line| {
            let from = at.saturating_sub(line.begin_ns);
            line.next_at_least(need, from).map(|t| line.begin_ns + t)
        })
    }

    /// The most users at one moment.
    pub fn users_most(&self) -> u64 {
        let highest = |line: &Line| match line.curve {
            Curve::Count(n) => n,
            Curve::Straight(from, to) => from.max(to) / ONE,
            Curve::Wave { mean, swing, .. } => (mean + swing) / ONE,
        };
        self.lines.iter().map(highest).max().unwrap_or(0)
    }
}

impl Line {
    fn level(&self, t: u64) -> Level {
        level_in(self.curve, self.length_ns, t)
    }

    /// The first of its nanoseconds from `from` on at which the level is at least `need`.
    fn next_at_least(&self, need: Level, from: u64) -> Option<u64> {
        if from >= self.length_ns {
            return None;
        }
        if self.level(from) >= need {
            return Some(from);
        }
        let t = match self.curve {
            Curve::Straight(low, high) if high >= need && high > low => {
                let rise = u128::from(need - low) * u128::from(self.length_ns);
                u64::try_from(rise.div_ceil(u128::from(high - low))).ok()?
            }
            Curve::Wave { mean, swing, every_ns } if mean + swing >= need && swing > 0 => {
                // Where the rising side of the sine reaches it: -1/4 to 1/4 of a period.
                let turn = ((need as f64 - mean as f64) / swing as f64).clamp(-1.0, 1.0).asin() / TAU;
                let into = (turn.rem_euclid(1.0) * every_ns as f64) as u64;
                let period = from / every_ns * every_ns;
                let next = period + into + if period + into < from { every_ns } else { 0 };
                // An arc sine near its end is exact to the square root of a double.
                (next..=next.saturating_add(every_ns / 1_000_000 + 2))
                    .step_by((every_ns / 10_000_000 + 1) as usize)
                    .find(|t| self.level((*t).min(self.length_ns)) >= need)?
            }
            Curve::Count(_) | Curve::Straight(..) | Curve::Wave { .. } => return None,
        };
        (t < self.length_ns).then_some(t.max(from))
    }
}

/// The level of a curve of this length at a moment. A count is a number of users for the whole interval.
pub(super) fn level_in(curve: Curve, length_ns: u64, t: u64) -> Level {
    match curve {
        Curve::Count(n) => n.saturating_mul(ONE),
        Curve::Straight(from, to) => {
            let change = (i128::from(to) - i128::from(from)) * i128::from(t.min(length_ns));
            let at = i128::from(from) + change.div_euclid(i128::from(length_ns.max(1)));
            u64::try_from(at).unwrap_or(0)
        }
        Curve::Wave { mean, swing, every_ns } => {
            let turn = TAU * (t % every_ns) as f64 / every_ns as f64;
            (swing as f64).mul_add(turn.sin(), mean as f64).round() as Level
        }
    }
}
