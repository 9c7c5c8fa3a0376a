//! The parts of a report that a plan divides: steps, loads of several parts, and replays.

use super::super::replay::{Replayed, RouteTally};
use super::super::shared::{Shared, ThreadEnd};
use super::super::tally::PartTally;
use super::due_by;
use crate::grpc::CODES;
use crate::plan::Plan;
use crate::replay::Found;
use crate::scenario::Journey;
use std::sync::atomic::Ordering;
use weir_report::report::{
    CheckResult, LengthPair, PartIterations, PartStats, ReplayStats, ReplayedRoute, Report, StatusPair,
};

/// The parts of a shape, with the counts of all threads.
pub(super) fn parts(plan: &Plan, shared: &Shared, threads: &[(usize, ThreadEnd)]) -> Vec<PartStats> {
    if let Some(journey) = &plan.journey {
        return parts_of_loads(journey, shared, threads);
    }
    let Some(shape) = plan.rhythm.shape() else { return Vec::new() };
    let mut planned_before = 0;
    let all = shape.parts().iter().enumerate().map(|(i, part)| {
        let mut p = PartStats { name: part.name.clone(), checks: no_checks(plan), ..PartStats::default() };
        let planned = due_by(plan, shared, part.end_ns - 1, plan.stop_requests.unwrap_or(u64::MAX));
        p.planned = planned - std::mem::replace(&mut planned_before, planned);
        for (_, thread) in threads {
            p.counts.unsent += thread.unsent_by_part.get(i).copied().unwrap_or(0);
            if let Some(t) = thread.tally.parts.get(i) {
                add_part(&mut p, t);
            }
        }
        p
    });
    all.collect()
}

/// The parts of all loads of scenarios.
fn parts_of_loads(journey: &Journey, shared: &Shared, threads: &[(usize, ThreadEnd)]) -> Vec<PartStats> {
    let last = shared.stop_at.load(Ordering::Relaxed).saturating_sub(1);
    let mut all = Vec::new();
    for (number, (group, course)) in journey.groups.iter().zip(&shared.courses).enumerate() {
        let Some(shape) = group.rhythm.shape() else { continue };
        let mut planned_before = 0;
        for part in shape.parts() {
            let i = all.len();
            let mut p = PartStats { group: number as u64, ..PartStats::default() };
            p.name = journey.parts.get(i).cloned().unwrap_or_default();
            let no_check = |c: &String| CheckResult { check: c.clone(), ..CheckResult::default() };
            p.checks = journey.checks.iter().map(no_check).collect();
            let planned = course.due_by((group.start_at + part.end_ns - 1).min(last));
            let planned = journey.share.part(planned);
            p.planned = planned - std::mem::replace(&mut planned_before, planned);
            let mut iterations = PartIterations::default();
            for (_, thread) in threads {
                p.counts.unsent += thread.unsent_by_part.get(i).copied().unwrap_or(0);
                if let Some(t) = thread.tally.parts.get(i) {
                    add_part(&mut p, t);
                }
                let of_thread = thread.journey.as_ref().and_then(|journey| journey.parts.get(i));
                of_thread.into_iter().for_each(|t| iterations.add(t));
            }
            p.iterations = Some(iterations);
            all.push(p);
        }
    }
    all
}

/// What was read of a recording, with the counts of all threads.
pub(super) fn add_replay(r: &mut Report, found: &Found, threads: &[(usize, ThreadEnd)]) {
    let mut all = Replayed::default();
    threads.iter().filter_map(|(_, t)| t.replayed.as_deref()).for_each(|t| all.add(t));
    let name = |number: usize| found.names.get(number).cloned().unwrap_or_default();
    let some = |status: u16| (status > 0).then_some(status);
    let pair = |((then, now), requests)| StatusPair { then: some(then), now: some(now), requests };
    let route = |(number, t): (usize, &RouteTally)| ReplayedRoute {
        route: name(number),
        requests: t.requests,
        statuses_changed: t.statuses_changed,
        lengths_changed: t.lengths_changed,
        timed: t.timed,
        ln_sum: t.ln_sum,
        ln_squares: t.ln_squares,
    };
    let stats = ReplayStats {
        drift: all.drift,
        statuses: all.statuses.into_iter().map(pair).collect(),
        lengths_compared: all.lengths_compared,
        lengths_changed: all.routes.iter().map(|t| t.lengths_changed).sum(),
        first_lengths: all
            .first_lengths
            .into_iter()
            .map(|(number, pair)| LengthPair { route: name(number as usize), ..pair })
            .collect(),
        then: all.then,
        now: all.now,
        routes: all.routes.iter().enumerate().filter(|(_, t)| t.requests > 0).map(route).collect(),
        ..found.stats.clone()
    };
    if let Some(last) = r.series.ticks.last_mut() {
        last.planned += found.planned.values().sum::<u64>();
    }
    r.counts.unsent = stats.planned.saturating_sub(r.counts.requests);
    r.replay = Some(stats);
}

fn add_part(p: &mut PartStats, t: &PartTally) {
    let c = &mut p.counts;
    c.requests += t.requests;
    c.responses += t.responses;
    c.not_grpc += t.not_grpc;
    c.unfinished += t.unfinished;
    c.failed_checks += t.failed_checks;
    c.errors.add(&t.errors);
    t.statuses.iter().for_each(|(status, n)| *c.statuses.entry(*status).or_default() += n);
    for (code, n) in CODES.iter().zip(t.grpc).filter(|(_, n)| *n > 0) {
        *c.grpc.entry((*code).to_owned()).or_default() += n;
    }
    for (all, (passed, failed)) in p.checks.iter_mut().zip(&t.checks) {
        all.passed += passed;
        all.failed += failed;
    }
    p.service.add(&t.service);
    p.response.add(&t.response);
    p.start_lag.add(&t.start_lag);
}

/// The plan's checks before any response.
pub(super) fn no_checks(plan: &Plan) -> Vec<CheckResult> {
    let checks = plan.checks.iter();
    checks.map(|c| CheckResult { check: c.text.clone(), ..CheckResult::default() }).collect()
}
