//! The results of a load whose rate or users have a shape: a row for each part, and the changes made by hand.

use super::{CheckResult, Counts, Latency, Pace, Report, Verdict};
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
    /// Starts that were due in it; 0 in a closed loop. With `--control`, those that the changes left.
    pub planned: u64,
    /// Requests and their outcomes. `other_length`, `kept_alive`, `messages` and `error_texts` are known of the whole
    /// run only.
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
    /// A part of the run by its name, as a report of its own: its counts, times, checks and thresholds.
    pub(crate) fn part_of_shape(&self, name: &str) -> Option<Self> {
        let i = self.parts.iter().position(|part| part.name == name)?;
        Some(self.part_at(i))
    }

    /// Part `i` as a report of its own.
    pub(crate) fn part_at(&self, i: usize) -> Self {
        let part = &self.parts[i];
        let length_ns = match &self.plan.pace {
            Pace::Shape { parts, .. } => parts.get(i).map_or(0, |p| p.end_ns.saturating_sub(p.begin_ns)),
            _ => 0,
        };
        let mut thresholds = Vec::new();
        for t in &self.thresholds {
            if let Some((name, condition)) = t.threshold.split_once(':')
                && name.trim() == part.name
            {
                thresholds
                    .push(super::ThresholdResult { threshold: condition.trim().to_owned(), ..t.clone() });
            }
        }
        let mut plan = self.plan.clone();
        if !plan.pace.is_closed() {
            plan.pace = Pace::Rate { per_second: part.planned as f64 * 1e9 / length_ns.max(1) as f64 };
        }
        Self {
            plan,
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
