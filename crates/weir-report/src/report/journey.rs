//! The results of a plan with scenarios: a row for each scenario and each named step.

use super::{CheckResult, Counts, Errors, Pace, Percentiles, Report};
use crate::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One scenario. `started = done + broken off + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScenarioStats {
    /// Its name in the plan.
    pub name: String,
    /// Its share of the iterations started, relative to the scenarios with the same `group`.
    pub weight: u32,
    /// Scenarios with the same number share users or a rate, and their weights divide it.
    pub group: u64,
    /// When its iterations begin; with several scenarios in the group, those of the whole group.
    pub pace: Pace,
    /// Users of its group: all of a closed loop, with a rate the most that may exist.
    pub users: u64,
    /// Iterations started.
    pub started: u64,
    /// Iterations in which every step was reached that its conditions let it reach.
    pub done: u64,
    /// Iterations that a step ended early, by that step: an error, a failed keep, or a failed check with `on_failure`.
    pub broken_off: BTreeMap<String, u64>,
    /// Iterations that the end of the run cut.
    pub unfinished: u64,
    /// Iterations that were due under a fixed rate while every user was busy, and that were never started.
    pub not_started: u64,
    /// From the intended start of an iteration to its end, pauses included, for the iterations that were done.
    pub iteration: Histogram,
    /// The data set whose rows ran out, which ended the scenario; none if that did not happen.
    pub data_ended: Option<String>,
    /// Different credentials that its users sent, as far as counted (at most 1,000 for each thread); none if no request
    /// had any. Users that never sent a request are not included.
    pub identities: Option<u64>,
    /// Users that sent at least one request.
    pub users_seen: u64,
    /// Cookies that were dropped because a jar was full or the cookie was too long.
    pub cookies_dropped: u64,
    /// Rows of data sets with `pick: once` that the dry run sent. Each goes out once, so the load did not have them.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub dry_run_rows: u64,
}

impl ScenarioStats {
    /// Iterations that a step ended early.
    pub fn broken(&self) -> u64 {
        self.broken_off.values().sum()
    }
}

/// One named step. `requests = responses + errors + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StepStats {
    /// Its scenario; empty for steps of `setup` and `teardown`.
    pub scenario: String,
    /// Its name. Redirects that it followed are a row of their own, `NAME (redirect)`.
    pub name: String,
    /// The part of the plan that it belongs to: `setup`, `start`, `steps`, `end` or `teardown`.
    pub part: String,
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Of these, with a status outside 200 to 399.
    pub unexpected: u64,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests that ended in an error, by kind.
    pub errors: Errors,
    /// Requests whose response had not arrived when the run ended.
    pub unfinished: u64,
    /// Complete responses in the window of the run, which rates refer to.
    pub in_window: u64,
    /// From the end of the pause before the step to the last byte of the response: waiting for a connection and
    /// opening it included.
    pub response: Histogram,
    /// Bytes sent: heads and bodies.
    pub sent: u64,
    /// Bytes received, of complete and incomplete responses.
    pub received: u64,
    /// Its checks, in the order of the plan.
    pub checks: Vec<CheckResult>,
    /// Its keeps, in the order of the plan.
    pub keeps: Vec<KeepStats>,
    /// What it does.
    #[serde(skip_serializing_if = "StepKind::is_http")]
    pub kind: StepKind,
    /// Complete calls by gRPC code; empty unless it makes calls.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub grpc: BTreeMap<String, u64>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Asks a program. Its lines and times are in no total and no latency of the run.
    Exec,
    /// Makes a gRPC call.
    Grpc,
    /// Sends an HTTP request.
    #[default]
    Http,
    /// Sends or awaits a WebSocket message.
    #[serde(rename = "websocket")]
    WebSocket,
}

impl StepKind {
    const fn is_http(&self) -> bool {
        matches!(self, Self::Http)
    }
}

impl StepStats {
    /// Whether its requests are part of the run's totals: those of setup, teardown and programs are not.
    pub fn is_counted(&self) -> bool {
        !self.scenario.is_empty() && self.kind != StepKind::Exec
    }

    /// Checks that passed and failed.
    pub fn checked(&self) -> (u64, u64) {
        self.checks.iter().fold((0, 0), |(p, f), c| (p + c.passed, f + c.failed))
    }

    /// Keeps that failed.
    pub fn keeps_failed(&self) -> u64 {
        self.keeps.iter().map(|k| k.failed).sum()
    }

    /// Its name with its scenario.
    pub fn full_name(&self) -> String {
        if self.scenario.is_empty() { self.name.clone() } else { format!("{}.{}", self.scenario, self.name) }
    }
}

/// One value that a step keeps of its responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KeepStats {
    /// The name of the value.
    pub name: String,
    /// Responses that had it.
    pub taken: u64,
    /// Responses that should have had it and did not.
    pub failed: u64,
    /// Why the first of them failed, with the beginning of its body. Credentials are `***`.
    pub sample: Option<String>,
}

/// A step in one tick, for outputs that are written during the run. Not part of a saved report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepTick {
    /// Its scenario.
    pub scenario: String,
    /// Its name.
    pub step: String,
    /// Complete responses.
    pub responses: u64,
    /// Of these, unexpected ones.
    pub unexpected: u64,
    /// Errors.
    pub errors: u64,
    /// Response times.
    pub response: Percentiles,
}

impl Report {
    /// Whether the plan has scenarios.
    pub const fn is_journey(&self) -> bool {
        !self.scenarios.is_empty()
    }

    /// The time of all iterations that were done.
    pub fn iterations(&self) -> Histogram {
        let mut all = Histogram::new();
        self.scenarios.iter().for_each(|s| all.add(&s.iteration));
        all
    }

    /// The part of a report that concerns one step or one scenario: its counts, response times, checks and iterations.
    /// `name` is a scenario, a step, or `SCENARIO.STEP`; a step name that several scenarios use covers all of them.
    /// None if the report has neither.
    pub(crate) fn part(&self, name: &str) -> Option<Self> {
        let is_scenario = self.scenarios.iter().any(|s| s.name == name);
        let belongs = |s: &&StepStats| match is_scenario {
            true => s.scenario == name,
            false => s.name == name || s.full_name() == name,
        };
        let steps: Vec<&StepStats> = self.steps.iter().filter(belongs).collect();
        // The time of a program is no latency of a scenario; it is that of its own step.
        let steps: Vec<&StepStats> = match is_scenario {
            true => steps.into_iter().filter(|s| s.kind != StepKind::Exec).collect(),
            false => steps,
        };
        if steps.is_empty() && !is_scenario {
            return self.part_of_shape(name);
        }
        let mut part = Self { duration_ns: self.duration_ns, plan: self.plan.clone(), ..Self::default() };
        part.health.start_lag = self.health.start_lag.clone();
        let mut window = self.rated();
        (window.responses, window.errors, window.sent, window.received) = (0, 0, 0, 0);
        for step in steps {
            part.latency.response.add(&step.response);
            let Counts { requests, responses, statuses, errors, unfinished, grpc, unexpected, .. } =
                &mut part.counts;
            *requests += step.requests;
            *responses += step.responses;
            *unfinished += step.unfinished;
            errors.add(&step.errors);
            step.statuses.iter().for_each(|(status, n)| *statuses.entry(*status).or_default() += n);
            step.grpc.iter().for_each(|(code, n)| *grpc.entry(code.clone()).or_default() += n);
            *unexpected.get_or_insert(0) += step.unexpected;
            part.bytes.sent_head += step.sent;
            part.bytes.received_body += step.received;
            window.responses += step.in_window;
            part.checks.extend(step.checks.iter().cloned());
        }
        part.window = Some(window);
        if is_scenario {
            part.scenarios = self.scenarios.iter().filter(|s| s.name == name).cloned().collect();
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_scenario_or_a_step_of_any_of_them() {
        let step = |scenario: &str, name: &str, ms: u64| {
            let mut step = StepStats {
                scenario: scenario.to_owned(),
                name: name.to_owned(),
                responses: 1,
                statuses: [(200, 1)].into(),
                ..StepStats::default()
            };
            step.response.record(ms * 1_000_000);
            step
        };
        let report = Report {
            scenarios: vec![
                ScenarioStats { name: "browse".to_owned(), done: 3, ..ScenarioStats::default() },
                ScenarioStats { name: "buy".to_owned(), done: 1, ..ScenarioStats::default() },
            ],
            steps: vec![step("browse", "list", 1), step("browse", "item", 2), step("buy", "list", 7)],
            ..Report::default()
        };
        let of = |name: &str| report.part(name).map(|p| (p.counts.responses, p.latency.response.max()));
        assert_eq!(of("browse"), Some((2, 2_000_000)));
        assert_eq!(of("list"), Some((2, 7_000_000)));
        assert_eq!(of("browse.list"), Some((1, 1_000_000)));
        assert_eq!(of("basket"), None);
        assert_eq!(report.part("buy").unwrap().scenarios[0].done, 1);
    }
}
