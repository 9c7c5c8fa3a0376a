//! The starts of an open loop as they are in effect: the plan's, and the changes that someone made during the run.

use super::{Starts, Way};
use crate::clock::NEVER;

/// The plan's starts up to the first change, then those of each change up to the next one. A value: a change makes
/// another schedule, whose numbers of earlier starts are the same.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    plan: Starts,
    /// In order of time.
    changes: Vec<Change>,
}

/// What is in effect from a moment on.
#[derive(Clone, Copy, Debug)]
struct Change {
    from_ns: u64,
    /// The number of the first start at that moment or later.
    first: u64,
    source: Source,
}

/// Where starts come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// None.
    Nowhere,
    /// The plan's, from its start with this number on.
    Plan(u64),
    /// Evenly spaced, this many per second.
    Rate(f64),
}

impl Schedule {
    pub(crate) const fn of(plan: Starts) -> Self {
        Self { plan, changes: Vec::new() }
    }

    /// When start `k` (from 0) is intended; [`NEVER`] if there is none.
    pub(crate) fn at(&self, k: u64, way: &mut Way) -> u64 {
        let after = self.changes.partition_point(|change| change.first <= k);
        let Some(change) = after.checked_sub(1).and_then(|i| self.changes.get(i)) else {
            return self.plan.at(k, way);
        };
        let k = k - change.first;
        match change.source {
            Source::Nowhere => NEVER,
            Source::Plan(first) => self.plan.at(first.saturating_add(k), way),
            Source::Rate(per_second) => change.from_ns.saturating_add((k as f64 * 1e9 / per_second) as u64),
        }
    }

    /// How many starts are due at a moment.
    pub(crate) fn due_by(&self, at: u64) -> u64 {
        let after = self.changes.partition_point(|change| change.from_ns <= at);
        let Some(change) = after.checked_sub(1).and_then(|i| self.changes.get(i)) else {
            return self.plan.due_by(at);
        };
        let since = match change.source {
            Source::Nowhere => 0,
            Source::Plan(first) => self.plan.due_by(at).saturating_sub(first),
            Source::Rate(per_second) => ((at - change.from_ns) as f64 * per_second / 1e9) as u64 + 1,
        };
        change.first.saturating_add(since)
    }

    /// What is in effect at the end of the changes.
    pub(crate) fn source(&self) -> Source {
        self.changes.last().map_or(Source::Plan(0), |change| change.source)
    }

    /// This schedule with another source from a moment on. Earlier starts stay. A plan goes on where it would be at
    /// that moment.
    pub(crate) fn changed(&self, from_ns: u64, source: Source) -> Self {
        let before = from_ns.checked_sub(1);
        let first = before.map_or(0, |at| self.due_by(at));
        let source = match source {
            Source::Plan(_) => Source::Plan(before.map_or(0, |at| self.plan.due_by(at))),
            other => other,
        };
        let mut changes = self.changes.clone();
        changes.push(Change { from_ns, first, source });
        Self { plan: self.plan.clone(), changes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Rhythm;
    use weir_report::report::Pace;

    const S: u64 = 1_000_000_000;

    fn plan(per_second: f64) -> Schedule {
        match Rhythm::of(&Pace::Rate { per_second }) {
            Rhythm::Open(starts) => Schedule::of(starts),
            Rhythm::Closed(_) => panic!("closed"),
        }
    }

    #[test]
    fn changes_take_over_and_give_back() {
        let whole = plan(10.0);
        let s = whole.changed(2 * S, Source::Rate(100.0)).changed(3 * S, Source::Nowhere);
        let s = s.changed(5 * S, Source::Plan(0));
        let at = |k| s.at(k, &mut Way::default());
        // 20 starts of the plan, 100 of the rate, none for two seconds, then the plan where it is.
        assert_eq!([0, 19, 20, 21, 119].map(at), [0, 1_900_000_000, 2 * S, 2_010_000_000, 2_990_000_000]);
        assert_eq!([120, 121].map(at), [5 * S, 5_100_000_000]);
        assert_eq!(
            [S, 2 * S - 1, 2 * S, 4 * S, 5 * S, 6 * S].map(|t| s.due_by(t)),
            [11, 20, 21, 120, 121, 131]
        );
        assert_eq!((s.source(), whole.source()), (Source::Plan(50), Source::Plan(0)));
        let paused = whole.changed(S, Source::Nowhere);
        assert_eq!(
            (paused.at(9, &mut Way::default()), paused.at(10, &mut Way::default())),
            (900_000_000, NEVER)
        );
    }

    #[test]
    fn a_start_is_due_at_its_moment_after_any_change() {
        let s = plan(7.0).changed(S / 3, Source::Rate(33.3)).changed(S, Source::Rate(0.7));
        for k in 0..60 {
            let at = s.at(k, &mut Way::default());
            assert!(
                s.due_by(at + 1) > k && at.checked_sub(2).is_none_or(|t| s.due_by(t) <= k),
                "{k} at {at}"
            );
        }
    }
}
