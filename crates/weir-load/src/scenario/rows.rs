//! Makes the report's rows of scenarios and steps from the threads' counts.

use super::Journey;
use super::tally::{JourneyTally, StepTally};
use crate::grpc::CODES;
use std::collections::{BTreeMap, HashSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use weir_report::report::{CheckResult, KeepStats, Report, ScenarioStats, StepStats};

/// Adds the rows to a report whose other parts are complete.
pub(crate) fn add<'a>(
    report: &mut Report,
    journey: &Journey,
    threads: impl Iterator<Item = &'a JourneyTally> + Clone,
) {
    let mut order: Vec<usize> = Vec::new();
    for row in 0..journey.plan.steps.len() {
        order.push(row);
        order.extend(journey.rows.get(row).and_then(|r| r.redirects));
    }
    let around = journey.around.lock().unwrap_or_else(PoisonError::into_inner);
    report.steps = order
        .into_iter()
        .map(|row| {
            let mut stats = empty(journey, row);
            let own = around.steps.get(row).filter(|_| stats.scenario.is_empty());
            own.into_iter()
                .chain(threads.clone().filter_map(|t| t.steps.get(row)))
                .for_each(|t| merge(&mut stats, t));
            stats
        })
        .collect();
    drop(around);
    report.scenarios = (0..journey.scenarios.len()).map(|s| scenario(journey, s, threads.clone())).collect();
    report.checks = all_checks(&report.steps);
    if journey.makes_calls() {
        let counted = report.steps.iter().filter(|s| s.is_counted());
        report.counts.unexpected = Some(counted.map(|s| s.unexpected).sum());
    }
}

/// Adds the rows of a plan whose load ran as that of one request.
pub(crate) fn add_plain(report: &mut Report, journey: &Journey) {
    let mut step = empty(journey, 0);
    let c = &report.counts;
    (step.requests, step.responses, step.unfinished) = (c.requests, c.responses, c.unfinished);
    step.unexpected = c.responses.saturating_sub(report.expected());
    step.statuses.clone_from(&c.statuses);
    step.errors = c.errors.clone();
    step.in_window = report.rated().responses;
    step.response = report.latency.response.clone();
    (step.sent, step.received) = (report.bytes.sent(), report.bytes.received());
    step.checks.clone_from(&report.checks);
    let mut one = scenario(journey, 0, std::iter::empty());
    (one.started, one.done, one.unfinished, one.not_started) =
        (c.requests, c.responses, c.unfinished, c.unsent);
    if c.errors.total() > 0 {
        one.broken_off.insert(step.name.clone(), c.errors.total());
    }
    one.iteration = report.latency.response.clone();
    (report.steps, report.scenarios) = (vec![step], vec![one]);
}

fn empty(journey: &Journey, row: usize) -> StepStats {
    let Some(row) = journey.rows.get(row) else { return StepStats::default() };
    StepStats {
        scenario: journey.scenario_name(row.scenario),
        name: row.name.clone(),
        part: row.part.to_owned(),
        kind: row.kind,
        checks: row
            .checks
            .iter()
            .map(|c| CheckResult { check: c.clone(), ..CheckResult::default() })
            .collect(),
        keeps: row.keeps.iter().map(|k| KeepStats { name: k.clone(), ..KeepStats::default() }).collect(),
        ..StepStats::default()
    }
}

fn merge(stats: &mut StepStats, t: &StepTally) {
    stats.requests += t.requests;
    stats.responses += t.responses;
    stats.unexpected += t.unexpected;
    t.statuses.iter().for_each(|(status, n)| *stats.statuses.entry(*status).or_default() += n);
    for (code, n) in CODES.iter().zip(t.grpc).filter(|(_, n)| *n > 0) {
        *stats.grpc.entry((*code).to_owned()).or_default() += n;
    }
    stats.errors.add(&t.errors);
    stats.unfinished += t.unfinished;
    stats.in_window += t.in_window;
    stats.response.add(&t.response);
    stats.sent += t.sent;
    stats.received += t.received;
    for (check, (passed, failed)) in stats.checks.iter_mut().zip(&t.checks) {
        check.passed += passed;
        check.failed += failed;
    }
    for (keep, one) in stats.keeps.iter_mut().zip(&t.keeps) {
        keep.taken += one.taken;
        keep.failed += one.failed;
        keep.sample = keep.sample.take().or_else(|| one.sample.clone());
    }
}

fn scenario<'a>(
    journey: &Journey,
    number: usize,
    threads: impl Iterator<Item = &'a JourneyTally>,
) -> ScenarioStats {
    let mut stats = ScenarioStats { name: journey.scenario_name(Some(number)), ..ScenarioStats::default() };
    if let Some((group, plan)) = (0..).zip(&journey.groups).find(|(_, g)| g.scenarios.contains(&number)) {
        let own = journey.plan.scenarios.get(number).map_or(1, |s| s.weight);
        stats.weight = if plan.scenarios.len() > 1 { own.max(1) } else { 1 };
        (stats.group, stats.pace, stats.users) = (group, plan.as_pace.clone(), plan.users as u64);
    }
    let compiled = journey.scenarios.get(number);
    stats.dry_run_rows = compiled.map_or(0, |s| s.rehearsed_rows.load(Ordering::Relaxed));
    let mut identities: HashSet<u64> = HashSet::new();
    for t in threads.filter_map(|t| t.scenarios.get(number)) {
        stats.started += t.started;
        stats.done += t.done;
        for (row, n) in &t.broken_off {
            let name = journey.rows.get(*row).map_or("", |r| r.name.as_str());
            *stats.broken_off.entry(name.to_owned()).or_default() += n;
        }
        stats.unfinished += t.unfinished;
        stats.not_started += t.not_started;
        stats.iteration.add(&t.iteration);
        stats.users_seen += t.users_seen;
        stats.cookies_dropped += t.cookies_dropped;
        stats.data_ended = stats.data_ended.take().or_else(|| t.data_ended.clone());
        identities.extend(&t.identities);
    }
    stats.identities = (!identities.is_empty()).then_some(identities.len() as u64);
    stats
}

/// The same checks of all steps of scenarios together.
fn all_checks(steps: &[StepStats]) -> Vec<CheckResult> {
    let mut all: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for check in steps.iter().filter(|s| !s.scenario.is_empty()).flat_map(|s| &s.checks) {
        let counts = all.entry(&check.check).or_default();
        (counts.0, counts.1) = (counts.0 + check.passed, counts.1 + check.failed);
    }
    let result = |(check, (passed, failed)): (&str, (u64, u64))| CheckResult {
        check: check.to_owned(),
        passed,
        failed,
    };
    all.into_iter().map(result).collect()
}
