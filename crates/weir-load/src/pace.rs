//! When requests begin: a plan's pace as pure functions of time.
//!
//! This module has no clock. For an open loop it computes the intended start of the run's k-th request ([`Starts`]).
//! For a closed loop it says whether a client may send at a moment, and when it may next ([`Users`]). [`mix`] says by
//! weights who is next. `shape` does so for lists of parts. `schedule` is an open loop's starts with the changes made
//! during the run.

mod schedule;

pub(crate) use schedule::{Schedule, Source};

use crate::clock::NEVER;
use std::sync::Arc;
use weir_plan::shape::{Course, Path};
use weir_report::report::{Pace, PartPlan, Stage, StageUnit};

/// A pace in the form that workers query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rhythm {
    /// Each client sends as fast as it can, while it may.
    Closed(Users),
    /// Start times are fixed in advance.
    Open(Starts),
}

impl Rhythm {
    /// The rhythm of a pace without a shape, whose parts alone do not determine it.
    pub(crate) fn of(pace: &Pace) -> Self {
        match pace {
            Pace::AsFastAsPossible | Pace::Replay { .. } | Pace::Shape { .. } => Self::Closed(Users::All),
            Pace::Rate { per_second } => Self::Open(Starts::Lines(vec![Line::endless(*per_second)])),
            Pace::Stages { of: StageUnit::Users, start, stages } => {
                Self::Closed(Users::Lines(Line::all(*start, stages)))
            }
            Pace::Stages { of: StageUnit::Rate, start, stages } => {
                Self::Open(Starts::Lines(Line::all(*start, stages)))
            }
        }
    }

    pub(crate) fn shaped(course: Arc<Course>, of: StageUnit) -> Self {
        match of {
            StageUnit::Rate => Self::Open(Starts::Shape(course)),
            StageUnit::Users => Self::Closed(Users::Shape(course)),
        }
    }

    pub(crate) const fn shape(&self) -> Option<&Arc<Course>> {
        match self {
            Self::Closed(Users::Shape(shape)) | Self::Open(Starts::Shape(shape)) => Some(shape),
            Self::Closed(_) | Self::Open(_) => None,
        }
    }
}

/// A shape in the words of the report; it begins at `begin_ns`.
pub(crate) fn described(course: &Course, of: StageUnit, begin_ns: u64) -> Pace {
    let mut before = 0;
    let parts = course.parts().iter().map(|part| {
        let due = if of == StageUnit::Rate { course.due_by(part.end_ns - 1) } else { 0 };
        PartPlan {
            name: part.name.clone(),
            word: part.word.to_owned(),
            begin_ns: begin_ns.saturating_add(part.begin_ns),
            end_ns: begin_ns.saturating_add(part.end_ns),
            from: part.from,
            to: part.to,
            starts: due - std::mem::replace(&mut before, due),
            ..PartPlan::default()
        }
    });
    Pace::Shape { of, parts: parts.collect(), spacing: course.spacing().to_string(), seed: course.seed() }
}

/// How long all stages or parts take; `None` without them.
pub(crate) fn stages_ns(pace: &Pace) -> Option<u64> {
    match pace {
        Pace::Shape { parts, .. } => Some(parts.last().map_or(0, |part| part.end_ns)),
        Pace::Stages { stages, .. } => Some(stages.iter().map(|s| s.duration_ns).sum()),
        _ => None,
    }
}

/// A value that changes linearly from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    begin_ns: f64,
    length_ns: f64,
    from: f64,
    to: f64,
}

impl Line {
    const fn endless(value: f64) -> Self {
        Self { begin_ns: 0.0, length_ns: f64::INFINITY, from: value, to: value }
    }

    fn all(start: f64, stages: &[Stage]) -> Vec<Self> {
        let (mut begin_ns, mut from) = (0.0, start);
        let mut lines = Vec::new();
        for stage in stages {
            let length_ns = stage.duration_ns as f64;
            lines.push(Self { begin_ns, length_ns, from, to: stage.target });
            begin_ns += length_ns;
            from = stage.target;
        }
        lines
    }

    fn slope(&self) -> f64 {
        if self.length_ns.is_finite() && self.length_ns > 0.0 {
            (self.to - self.from) / self.length_ns
        } else {
            0.0
        }
    }

    /// The area below the line in its first `t` nanoseconds: value × seconds.
    fn area(&self, t: f64) -> f64 {
        (self.from * t + self.slope() * t * t / 2.0) / 1e9
    }

    /// After how many nanoseconds the area reaches `area`; `None` if it never does.
    fn reaches(&self, area: f64) -> Option<f64> {
        let (a, b, c) = (self.slope() / 2.0, self.from, area * 1e9);
        // a t² + b t = c, in the form that is exact for a = 0 and small a.
        let root = b * b + 4.0 * a * c;
        if root < 0.0 || (c > 0.0 && b + root.sqrt() <= 0.0) {
            return None;
        }
        let t = if c <= 0.0 { 0.0 } else { 2.0 * c / (b + root.sqrt()) };
        (t <= self.length_ns).then_some(t)
    }
}

/// The intended starts of an open loop.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Starts {
    Lines(Vec<Line>),
    Shape(Arc<Course>),
}

/// What makes finding ascending starts cheaper. It never changes the result.
#[derive(Debug, Default)]
pub(crate) struct Way(Path);

impl Starts {
    /// When the run's `k`-th request (from 0) is to start; [`NEVER`] if the plan has no such request.
    pub(crate) fn at(&self, k: u64, way: &mut Way) -> u64 {
        let lines = match self {
            Self::Lines(lines) => lines,
            Self::Shape(shape) => return shape.start_with(k, &mut way.0).unwrap_or(NEVER),
        };
        let mut due = k as f64;
        for line in lines {
            if let Some(t) = line.reaches(due) {
                return (line.begin_ns + t) as u64;
            }
            due -= line.area(line.length_ns);
        }
        NEVER
    }

    /// The highest rate per second.
    pub(crate) fn highest(&self) -> f64 {
        match self {
            Self::Lines(lines) => lines.iter().map(|line| line.from.max(line.to)).fold(0.0, f64::max),
            Self::Shape(shape) => shape.highest(),
        }
    }

    /// How many starts are due at a moment.
    pub(crate) fn due_by(&self, at: u64) -> u64 {
        let lines = match self {
            Self::Lines(lines) => lines,
            Self::Shape(shape) => return shape.due_by(at),
        };
        let mut due = 0.0;
        for line in lines {
            let inside = (at as f64 - line.begin_ns).clamp(0.0, line.length_ns);
            due += line.area(inside);
        }
        // The first is due immediately, not after the first interval.
        due as u64 + u64::from(due > 0.0 || at == 0)
    }
}

/// How many clients of a closed loop may send at a moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Users {
    /// All, always.
    All,
    Lines(Vec<Line>),
    Shape(Arc<Course>),
}

impl Users {
    /// Whether all clients may always send.
    pub(crate) const fn all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// How many of `most` clients may send at a moment.
    pub(crate) fn at(&self, at: u64, most: u64) -> u64 {
        let lines = match self {
            Self::All => return most,
            Self::Lines(lines) => lines,
            Self::Shape(shape) => return shape.users_at(at).min(most),
        };
        let at = at as f64;
        let line = lines.iter().rev().find(|l| at >= l.begin_ns);
        let Some(line) = line else { return 0 };
        let value = line.from + line.slope() * (at - line.begin_ns).min(line.length_ns);
        // Rounded as in k6: a user starts when the line reaches its number.
        ((if line.length_ns > 0.0 { value } else { line.to }) + 1e-9).max(0.0) as u64
    }

    /// When client `number` (from 0) may next send, at `at` or later; [`NEVER`] if it may not again.
    pub(crate) fn next(&self, number: u64, at: u64) -> u64 {
        let lines = match self {
            Self::All => return at,
            Self::Lines(lines) => lines,
            Self::Shape(shape) => return shape.user_next(number, at).unwrap_or(NEVER),
        };
        let need = (number + 1) as f64;
        if self.at(at, u64::MAX) as f64 >= need {
            return at;
        }
        let later = lines.iter().filter(|l| l.begin_ns + l.length_ns >= at as f64);
        for line in later {
            let begin = (at as f64).max(line.begin_ns);
            if line.slope() > 0.0 && line.to >= need {
                let t = line.begin_ns + ((need - line.from) / line.slope()).max(0.0);
                return (t.max(begin)).ceil() as u64;
            }
            if line.from.min(line.to) >= need || (line.length_ns <= 0.0 && line.to >= need) {
                return begin.ceil() as u64;
            }
        }
        NEVER
    }
}

/// Spreads targets over one round: each appears as often as its weight, as evenly as possible (smooth weighted round
/// robin).
pub(crate) fn mix(weights: &[u32]) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |a, b| gcd(a, *b)).max(1);
    let weights: Vec<i64> = weights.iter().map(|w| i64::from(w / divisor)).collect();
    let total: i64 = weights.iter().sum();
    let mut credit = vec![0i64; weights.len()];
    let mut order = Vec::new();
    for _ in 0..total.min(ROUND_MOST) {
        credit.iter_mut().zip(&weights).for_each(|(c, w)| *c += w);
        // The first of the largest.
        let most = credit.iter().enumerate().rev().max_by_key(|(_, c)| **c).map_or(0, |(i, _)| i);
        credit[most] -= total;
        order.push(most as u32);
    }
    order
}

/// Longest round. Larger weights are approximated in that many places.
const ROUND_MOST: i64 = 65_536;

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn stages(of: StageUnit, start: f64, stages: &[(u64, f64)]) -> Pace {
        let stages = stages.iter().map(|&(s, target)| Stage { duration_ns: s * S, target }).collect();
        Pace::Stages { of, start, stages }
    }

    /// Starts as they are asked for.
    struct Asked(Starts);

    impl Asked {
        fn at(&self, k: u64) -> u64 {
            self.0.at(k, &mut Way::default())
        }

        fn due_by(&self, at: u64) -> u64 {
            self.0.due_by(at)
        }
    }

    fn starts(pace: &Pace) -> Asked {
        match Rhythm::of(pace) {
            Rhythm::Open(starts) => Asked(starts),
            Rhythm::Closed(_) => panic!("closed"),
        }
    }

    fn users(pace: &Pace) -> Users {
        match Rhythm::of(pace) {
            Rhythm::Closed(users) => users,
            Rhythm::Open(_) => panic!("open"),
        }
    }

    #[test]
    fn a_fixed_rate_is_evenly_spaced_for_days() {
        let s = starts(&Pace::Rate { per_second: 5000.0 });
        assert_eq!([0, 1, 5000].map(|k| s.at(k)), [0, 200_000, S]);
        assert_eq!(s.at(5000 * 86_400 * 30), 86_400 * 30 * S);
        assert_eq!((s.due_by(0), s.due_by(S - 1), s.due_by(S + 1)), (1, 5000, 5001));
        assert!((s.0.highest() - 5000.0).abs() < 1e-9);
    }

    #[test]
    fn a_rising_rate_starts_as_many_as_the_area_below_it() {
        // 0 to 100 in 10 s: 500 requests; then 100/s for 5 s: 500 more; then down to 0 in 2 s: 100 more.
        let s = starts(&stages(StageUnit::Rate, 0.0, &[(10, 100.0), (5, 100.0), (2, 0.0)]));
        assert_eq!(s.at(0), 0);
        assert!((s.at(125) as f64 / 1e9 - 5.0).abs() < 1e-6, "{}", s.at(125));
        assert!((s.at(500) as f64 / 1e9 - 10.0).abs() < 1e-6, "{}", s.at(500));
        assert!((s.at(1000) as f64 / 1e9 - 15.0).abs() < 1e-6, "{}", s.at(1000));
        assert!(s.at(1099) < 17 * S && s.at(1101) == NEVER, "{} {}", s.at(1099), s.at(1101));
        let all: Vec<u64> = (0..1100).map(|k| s.at(k)).collect();
        assert!(all.is_sorted());
        assert_eq!(s.due_by(10 * S), 501);
    }

    #[test]
    fn a_jump_is_a_stage_without_length() {
        let s = starts(&stages(StageUnit::Rate, 0.0, &[(0, 10.0), (1, 10.0)]));
        assert_eq!((s.at(0), s.at(5), s.at(11)), (0, S / 2, NEVER));
    }

    #[test]
    fn users_come_and_go_with_the_line() {
        let u = users(&stages(StageUnit::Users, 0.0, &[(10, 10.0), (5, 10.0), (10, 0.0)]));
        assert_eq!([0, 1, 5, 10, 12, 20, 25].map(|s| u.at(s * S, 10)), [0, 1, 5, 10, 10, 5, 0]);
        assert_eq!((u.next(0, 0), u.next(4, 0), u.next(9, 0)), (S, 5 * S, 10 * S));
        assert_eq!((u.next(0, 3 * S), u.next(9, 20 * S), u.next(10, 0)), (3 * S, NEVER, NEVER));
        let again = users(&stages(StageUnit::Users, 5.0, &[(10, 0.0), (10, 10.0)]));
        assert_eq!((again.next(4, 0), again.next(4, 5 * S)), (0, 15 * S));
    }

    #[test]
    fn without_stages_all_may_send() {
        let u = users(&Pace::AsFastAsPossible);
        assert_eq!((u.at(5, 64), u.next(63, 7)), (64, 7));
    }

    #[test]
    fn weights_are_mixed_evenly() {
        for (weights, want) in [
            (&[1][..], &[0][..]),
            (&[1, 1], &[0, 1]),
            (&[10, 20], &[1, 0, 1]),
            (&[3, 1], &[0, 0, 1, 0]),
            (&[5, 1, 1], &[0, 0, 1, 0, 2, 0, 0]),
        ] {
            assert_eq!(mix(weights), want, "{weights:?}");
        }
    }
}
