//! The results of a load whose rate or users have a shape: a row for each part, and the changes made by hand.

use super::{CheckResult, Counts, Latency, Pace, PartPlan, Report, ScenarioStats, Verdict};
use crate::Histogram;
use crate::units::time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One part of a shape. Requests belong to the part of their intended start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartStats {
    /// Its name in the plan.
    pub name: String,
    /// Whether its own figures can be believed.
    pub verdict: Verdict,
    /// Starts that were due in it, with scenarios those of iterations; 0 in a closed loop. With `--control`, those
    /// that the changes left.
    pub planned: u64,
    /// Requests and their outcomes; `unsent` counts starts, as `planned`. `other_length`, `kept_alive`, `messages` and
    /// `error_texts` are known of the whole run only.
    pub counts: Counts,
    /// Service times of its responses.
    pub service: Histogram,
    /// Response times of its responses.
    pub response: Histogram,
    /// How late its starts were where a connection was free.
    pub start_lag: Histogram,
    /// The checks, in the order given.
    pub checks: Vec<CheckResult>,
    /// How the target recovered from it; only for a spike: a `jump` up after which the rate falls at once.
    pub recovery: Option<Recovery>,
    /// With scenarios: the load that it belongs to, as in [`ScenarioStats::group`].
    #[serde(skip_serializing_if = "super::is_zero")]
    pub group: u64,
    /// With scenarios: its iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<PartIterations>,
}

/// The iterations of a part, each by its intended start. Its requests may belong to a later part.
/// `started = done + broken_off + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartIterations {
    /// Iterations started.
    pub started: u64,
    /// Iterations in which every step was reached that its conditions let it reach.
    pub done: u64,
    /// Iterations that a step ended early.
    pub broken_off: u64,
    /// Iterations that the end of the run cut.
    pub unfinished: u64,
    /// From the intended start of an iteration to its end, pauses included, for the iterations that were done.
    pub time: Histogram,
}

/// How a target recovered from a spike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recovery {
    /// The 99th percentile of the response time before the spike: the median of the seconds of the part before it.
    pub before_ns: u64,
    /// From the end of the spike to the end of the first second whose 99th percentile is within 10 % of that. None if
    /// no second was.
    pub after_ns: Option<u64>,
}

/// A change that someone made during the run, on the control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Change {
    /// When it took effect, from the start of measuring.
    pub at_ns: u64,
    /// The command, such as `rate 500/s`.
    pub command: String,
}

impl PartIterations {
    /// Adds those of another thread or run.
    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.done += other.done;
        self.broken_off += other.broken_off;
        self.unfinished += other.unfinished;
        self.time.add(&other.time);
    }
}

impl PartStats {
    /// Responses with a status outside 200 to 399; with gRPC, with a code other than OK.
    pub(crate) fn unexpected(&self) -> u64 {
        let c = &self.counts;
        let expected: u64 = match c.grpc.is_empty() {
            true => c.statuses.iter().filter(|(s, _)| super::is_expected(**s)).map(|(_, n)| n).sum(),
            false => c.grpc.get("OK").copied().unwrap_or(0),
        };
        c.responses.saturating_sub(expected)
    }
}

impl Recovery {
    /// The outcome as a phrase.
    pub(crate) fn told(self) -> String {
        let before = time(self.before_ns as f64);
        match self.after_ns {
            Some(ns) => format!("p99 within 10 % of {before} again after {}", time(ns as f64)),
            None => format!("not recovered: no second had a p99 within 10 % of {before} again"),
        }
    }
}

impl Report {
    /// A part of the run by its name, as a report of its own: its counts, times, checks and thresholds. The name may
    /// lack its scenario where only one part has it.
    pub(crate) fn part_of_shape(&self, name: &str) -> Option<Self> {
        self.part_named(name).map(|i| self.part_at(i))
    }

    fn part_named(&self, name: &str) -> Option<usize> {
        let whole = self.parts.iter().position(|part| part.name == name);
        let ends_so =
            |part: &PartStats| part.name.strip_suffix(name).is_some_and(|before| before.ends_with('.'));
        whole.or_else(|| {
            let mut all = (0..).zip(&self.parts).filter(|(_, part)| ends_so(part));
            let (first, _) = all.next()?;
            all.next().is_none().then_some(first)
        })
    }

    /// The pace that part `i` belongs to.
    fn pace_of_part(&self, i: usize) -> &Pace {
        let group = self.parts.get(i).map_or(0, |part| part.group);
        self.scenarios.iter().find(|s| s.group == group).map_or(&self.plan.pace, |s| &s.pace)
    }

    /// Whether the starts of part `i` were planned: it is of a rate, not of users.
    pub(crate) fn is_part_planned(&self, i: usize) -> bool {
        !self.pace_of_part(i).is_closed()
    }

    /// Part `i` in the plan, and the parts before and after it in the same load.
    pub(crate) fn planned_part(&self, i: usize) -> [Option<&PartPlan>; 3] {
        let Pace::Shape { parts, .. } = self.pace_of_part(i) else { return [None; 3] };
        let group = self.parts.get(i).map(|part| part.group);
        let first = self.parts.iter().position(|part| Some(part.group) == group).unwrap_or(0);
        let at = i.saturating_sub(first);
        [parts.get(at), at.checked_sub(1).and_then(|at| parts.get(at)), parts.get(at + 1)]
    }

    /// Part `i` as a report of its own.
    pub(crate) fn part_at(&self, i: usize) -> Self {
        let part = &self.parts[i];
        let [planned, ..] = self.planned_part(i);
        let length_ns = planned.map_or(0, |p| p.end_ns.saturating_sub(p.begin_ns));
        let mut thresholds = Vec::new();
        for t in &self.thresholds {
            if let Some((name, condition)) = t.threshold.split_once(':')
                && self.part_named(name.trim()) == Some(i)
            {
                thresholds
                    .push(super::ThresholdResult { threshold: condition.trim().to_owned(), ..t.clone() });
            }
        }
        let mut plan = self.plan.clone();
        if self.is_part_planned(i) {
            plan.pace = Pace::Rate { per_second: part.planned as f64 * 1e9 / length_ns.max(1) as f64 };
        }
        let iterations = part.iterations.as_ref().map(|all| ScenarioStats {
            name: part.name.clone(),
            weight: 1,
            pace: plan.pace.clone(),
            users: self.scenarios.iter().find(|s| s.group == part.group).map_or(0, |s| s.users),
            started: all.started,
            done: all.done,
            broken_off: [(String::new(), all.broken_off)].into(),
            unfinished: all.unfinished,
            not_started: part.counts.unsent,
            iteration: all.time.clone(),
            ..ScenarioStats::default()
        });
        Self {
            plan,
            scenarios: iterations.into_iter().collect(),
            end: self.end.clone(),
            duration_ns: length_ns.min(self.duration_ns),
            counts: part.counts.clone(),
            latency: Latency {
                service: part.service.clone(),
                response: part.response.clone(),
                ..Latency::default()
            },
            checks: part.checks.clone(),
            thresholds,
            health: super::Health { start_lag: part.start_lag.clone(), ..super::Health::default() },
            ..Self::default()
        }
    }
}
