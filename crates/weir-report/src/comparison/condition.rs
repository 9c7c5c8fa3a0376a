//! `p99 worse 5%`: how much worse than the first a target may be.

use super::figures::{Figure, Unit};
use super::{ConditionResult, Interval, TargetResult, figure_names};
use crate::Mistake;

/// One condition.
#[derive(Clone, Debug)]
pub struct Condition {
    /// As written.
    pub text: String,
    /// The scenario or step that it concerns; the whole run if none.
    pub scope: Option<String>,
    /// The figure that it compares.
    pub figure: &'static Figure,
    /// The limit, as a share.
    pub(super) bound: f64,
}

impl Condition {
    /// Parses `p99 worse 5%`. `errors` is not a figure here; use `weir load --threshold`.
    ///
    /// # Errors
    /// The text is not `FIGURE worse PERCENT` with a compared figure.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        Self::read(text, |name| Figure::named(name).map(|figure| (None, figure)))
    }

    /// Parses a condition on a run with steps: also `list.p95 worse 20%`, with the name of a scenario or a step.
    ///
    /// # Errors
    /// As for [`Self::parse`].
    pub fn of_run(text: &str) -> Result<Self, Mistake> {
        Self::read(text, |name| {
            let scoped = |(at, _): (usize, &str)| {
                let (scope, figure) = (name.get(..at)?, Figure::named(name.get(at + 1..)?)?);
                // The cost is that of a process, whatever the step.
                (!scope.is_empty() && figure.name != "cost").then(|| (Some(scope.to_owned()), figure))
            };
            // A figure may hold a dot itself: `list.p99.9`.
            Figure::named(name)
                .map(|figure| (None, figure))
                .or_else(|| name.match_indices('.').find_map(scoped))
        })
    }

    fn read(
        text: &str,
        named: impl Fn(&str) -> Option<(Option<String>, &'static Figure)>,
    ) -> Result<Self, Mistake> {
        let bad = |hint: &str| Mistake::new(&format!("--fail-if {text:?}"), hint);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [name, "worse", bound] = words[..] else {
            return Err(bad("expected FIGURE worse PERCENT, such as 'p99 worse 5%'"));
        };
        let (scope, figure) =
            named(name).ok_or_else(|| bad(&format!("the figures are {}", figure_names())))?;
        let percent = bound.strip_suffix('%').and_then(|p| p.parse::<f64>().ok());
        let bound = percent
            .filter(|p| (0.0..=1000.0).contains(p))
            .ok_or_else(|| bad("expected a share such as 5%"))?;
        Ok(Self { text: text.to_owned(), scope, figure, bound: bound / 100.0 })
    }

    /// The name of its figure in a baseline: `p99`, `list.p99`.
    pub(super) fn key(&self) -> String {
        key(self.scope.as_deref(), self.figure)
    }

    /// Violated if the target is worse by more than the limit, and worse at all with 95 % confidence: noise never
    /// fails it.
    pub fn judge(&self, target: &TargetResult) -> ConditionResult {
        let ratio = target.ratios.get(self.figure.name);
        let worse = ratio.map(|ratio| match self.figure.unit {
            Unit::Rate => ratio.map(|r| 1.0 - r),
            Unit::Cost | Unit::Latency => ratio.map(|r| r - 1.0),
        });
        let broken = |w: Interval| w.value > self.bound && w.range.is_none_or(|(low, _)| low > 0.0);
        ConditionResult {
            condition: self.text.clone(),
            target: target.name.clone(),
            worse,
            passed: worse.is_some_and(|w| !broken(w)),
        }
    }
}

/// The name of a figure in a baseline.
pub(super) fn key(scope: Option<&str>, figure: &Figure) -> String {
    scope.map_or_else(|| figure.name.to_owned(), |scope| format!("{scope}.{}", figure.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_by_more_than_allowed_and_surely_so() {
        let ratio = |value, low, high| Interval { value, range: Some((low, high)) };
        for (text, figure, interval, passed) in [
            ("p99 worse 5%", "p99", ratio(1.06, 1.01, 1.11), false),
            ("p99 worse 5%", "p99", ratio(1.06, 0.98, 1.14), true),
            ("p99 worse 5%", "p99", ratio(1.04, 1.03, 1.05), true),
            ("p99 worse 5%", "p99", ratio(0.5, 0.4, 0.6), true),
            ("rate worse 5%", "rate", ratio(0.94, 0.9, 0.98), false),
            ("rate worse 5%", "rate", ratio(2.0, 1.9, 2.1), true),
            ("cost worse 0%", "cost", Interval { value: 1.01, range: None }, false),
            ("cost worse 1%", "p50", ratio(1.0, 1.0, 1.0), false),
        ] {
            let target =
                TargetResult { ratios: [(figure.to_owned(), interval)].into(), ..TargetResult::default() };
            let result = Condition::parse(text).unwrap().judge(&target);
            assert_eq!(result.passed, passed, "{text}: {result:?}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for bad in [
            "",
            "p99",
            "p99<5%",
            "p98 worse 5%",
            "p99 worse 5",
            "p99 worse x%",
            "p99 better 5%",
            "p99 worse -1%",
        ] {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
    }
}
