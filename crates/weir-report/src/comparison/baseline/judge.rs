//! Whether a run differs from earlier ones: pure functions of figures.

use super::super::Interval;
use super::super::condition::{Condition, key};
use super::super::figures::FIGURES;
use super::super::stats::{CORRELATED, correlation, inflation, mean_and_variance};
use super::{Baseline, BaselineRun, RunFigure, figures};
use crate::Report;
use crate::interval::student;
use crate::report::{BaselineUse, FigureChange, GateResult, GateState, Grade, Judgement, Outlook};
use crate::units::{counted, grouped, time};
use std::collections::{BTreeMap, BTreeSet};

/// Fewer runs of a host say too little about how much its runs vary.
pub const RUNS_LEAST: usize = 3;

/// The width of a bucket of a histogram as a share of its value, as a standard deviation of the rounding.
const RESOLUTION: f64 = 1.0 / 1024.0 / 3.464;

/// The figures of a run beside a baseline, and what that means for conditions such as `p99 worse 10%`. `file` is the
/// baseline's name, for messages.
pub fn judge(baseline: &Baseline, file: &str, now: &Report, conditions: &[Condition]) -> Judgement {
    let run = figures(now);
    let alike: Vec<&BaselineRun> = baseline.runs.iter().filter(|run| run.host == now.generator).collect();
    let mut used = BaselineUse {
        file: file.to_owned(),
        runs: alike.len() as u64,
        others: (baseline.runs.len() - alike.len()) as u64,
        unknown: String::new(),
    };
    if alike.len() < RUNS_LEAST {
        used.unknown = format!(
            "not enough to judge: {} of this host and version, at least {RUNS_LEAST} are needed",
            counted(used.runs, "run")
        );
    }
    // The whole run, and each scenario and step that a condition names.
    let scopes = conditions.iter().filter_map(|condition| condition.scope.as_deref());
    let scopes: BTreeSet<Option<&str>> = std::iter::once(None).chain(scopes.map(Some)).collect();
    let mut changes = Vec::new();
    for scope in scopes {
        for figure in FIGURES {
            let name = key(scope, figure);
            let before: Vec<&RunFigure> = alike.iter().filter_map(|run| run.figures.get(&name)).collect();
            let now = run.get(&name);
            changes.extend(now.and_then(|now| change(&name, figure.is_rate(), &before, now)));
        }
    }
    let gates = conditions.iter().map(|condition| gate(condition, &changes, &used, now, &run)).collect();
    Judgement { required: None, baseline: Some(used), changes, gates }
}

/// A condition's result.
fn gate(
    condition: &Condition,
    changes: &[FigureChange],
    used: &BaselineUse,
    now: &Report,
    run: &BTreeMap<String, RunFigure>,
) -> GateResult {
    let of = |state, text: String| GateResult { condition: condition.text.clone(), state, text };
    let name = condition.key();
    // Errors that come quickly would look like an improvement.
    if now.verdict.grade == Grade::Invalid {
        let codes: Vec<&str> = now.verdict.reasons.iter().map(|r| r.code.as_str()).collect();
        return of(GateState::Broken, format!("the result is INVALID: {}", codes.join(", ")));
    }
    if !used.unknown.is_empty() {
        return of(GateState::Unknown, used.unknown.clone());
    }
    if !run.contains_key(&name) {
        let text = format!("{name} was not measured: no response, or too few for this percentile");
        return of(GateState::Broken, text);
    }
    let Some(change) = changes.iter().find(|change| change.figure == name) else {
        let text = format!("not enough to judge: fewer than {RUNS_LEAST} earlier runs have {name}");
        return of(GateState::Unknown, text);
    };
    let is_beyond = change.worse.range.is_some_and(|(low, _)| low > condition.bound);
    let state = if is_beyond { GateState::Broken } else { GateState::Held };
    of(state, format!("{}, baseline {}: {}", change.now_text(), change.before_text(), change.sentence()))
}

/// How a figure differs from those of earlier runs; `None` without enough of them.
fn change(name: &str, is_rate: bool, before: &[&RunFigure], now: &RunFigure) -> Option<FigureChange> {
    if before.len() < RUNS_LEAST {
        return None;
    }
    let logs: Vec<f64> = before.iter().map(|figure| figure.whole.ln()).collect();
    let within: Vec<f64> = before.iter().filter_map(|figure| variation(&figure.blocks)).collect();
    let own = variation(&now.blocks);
    let blocks: Vec<f64> = now.blocks.iter().map(|value| value.ln()).collect();
    let (center, between) = mean_and_variance(&logs);
    let within = if within.is_empty() { 0.0 } else { within.iter().sum::<f64>() / within.len() as f64 };
    let runs = logs.len() as f64;
    // The variation between runs beyond the noise within each; `between` is the sum of both.
    let beyond = (between - within).max(0.0);
    let variance = beyond + own.unwrap_or(within) + (beyond + within) / runs + RESOLUTION * RESOLUTION;
    let error = variance.sqrt();
    let freedom = logs.len() - 1;
    let difference = now.whole.ln() - center;
    let reach = student(freedom) * error;
    let interval = Interval { value: difference, range: Some((difference - reach, difference + reach)) };
    // As in the conditions of `compare`: of a time the ratio less 1, of a rate 1 less the ratio.
    let worse = interval.map(|log| if is_rate { 1.0 - log.exp() } else { log.exp() - 1.0 });
    let outlook = match worse.range {
        Some((low, _)) if low > 0.0 => Outlook::Worse,
        Some((_, high)) if high < 0.0 => Outlook::Better,
        _ => Outlook::NoDifference,
    };
    let least = reach + student_80(freedom) * error;
    Some(FigureChange {
        figure: name.to_owned(),
        is_rate,
        before: center.exp(),
        now: now.whole,
        worse,
        outlook,
        could_see: if is_rate { 1.0 - (-least).exp() } else { least.exp() - 1.0 },
        correlation: correlation(&blocks).filter(|r| *r > CORRELATED),
    })
}

/// The variance of the mean of a run's blocks, as logarithms; `None` for fewer than two.
fn variation(blocks: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = blocks.iter().map(|value| value.ln()).collect();
    let (_, variance) = mean_and_variance(&logs);
    (logs.len() >= 2).then(|| variance / logs.len() as f64 * inflation(&logs))
}

/// The 80 % quantile of Student's t, by the expansion of Cornish and Fisher; within 2 % from two degrees on.
fn student_80(freedom: usize) -> f64 {
    let n = freedom.max(1) as f64;
    0.8416 + 0.3594 / n + 0.1476 / (n * n)
}

impl FigureChange {
    fn value(&self, value: f64) -> String {
        match self.is_rate {
            true if value < 100.0 => format!("{value:.1}/s"),
            true => format!("{}/s", grouped(value.round() as u64)),
            false => time(value),
        }
    }

    /// The figure of this run.
    pub(crate) fn now_text(&self) -> String {
        format!("{} {}", self.figure, self.value(self.now))
    }

    /// The figure of the earlier runs.
    pub(crate) fn before_text(&self) -> String {
        self.value(self.before)
    }

    /// The change of the figure itself: `+6.0 % (+4.0 to +8.0)`.
    pub(crate) fn change_text(&self) -> String {
        let sign = if self.is_rate { -100.0 } else { 100.0 };
        let change = self.worse.map(|share| share * sign);
        let range =
            change.range.map_or_else(String::new, |(low, high)| format!(" ({low:+.1} to {high:+.1})"));
        format!("{:+.1} %{range}", change.value)
    }

    pub(crate) fn is_worse(&self) -> bool {
        self.outlook == Outlook::Worse
    }

    /// The result: `no difference seen (could have seen 4.0 %)`.
    pub(crate) fn words(&self) -> String {
        let correlated = match self.correlation {
            Some(r) => format!("; neighboring blocks correlate by {r:.2}, which widens the interval"),
            None => String::new(),
        };
        match self.outlook {
            Outlook::Better => format!("better{correlated}"),
            Outlook::NoDifference => {
                format!("no difference seen (could have seen {:.1} %){correlated}", self.could_see * 100.0)
            }
            Outlook::Worse => format!("worse{correlated}"),
        }
    }

    /// The result with its figures, for a line of text.
    pub(crate) fn sentence(&self) -> String {
        format!("{}, {}", self.change_text(), self.words())
    }
}

impl BaselineUse {
    /// What was compared, or why nothing could be.
    pub(crate) fn words(&self) -> String {
        let others = match self.others {
            0 => String::new(),
            n => format!("; {} of other hosts or versions left aside", counted(n, "run")),
        };
        match self.unknown.as_str() {
            "" => format!("compared with {} of this host{others}", counted(self.runs, "run")),
            unknown => format!("{unknown}{others}"),
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// One figure judged alone.
    pub(crate) fn judge_figure(
        baseline: &Baseline,
        condition: &Condition,
        now: &RunFigure,
    ) -> (FigureChange, GateResult) {
        let before: Vec<&RunFigure> = baseline.runs.iter().map(|run| &run.figures["p99"]).collect();
        let change = change("p99", false, &before, now).unwrap();
        let run = [("p99".to_owned(), now.clone())].into();
        let all = [change.clone()];
        let gate = gate(condition, &all, &BaselineUse::default(), &Report::default(), &run);
        (change, gate)
    }
}
