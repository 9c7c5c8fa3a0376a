//! Reasons of plans with scenarios: steps that nothing reached, values that responses did not have, shares that were
//! missed, users that are all the same.

use super::{MISSED, percent, share};
use crate::Report;
use crate::report::{End, ScenarioStats, StepStats};
use crate::units::grouped;

/// Share of the keeps of a step that may fail.
pub const KEEPS: f64 = 0.001;

/// Share of the iterations of a scenario that may break off.
pub const BROKEN: f64 = 0.01;

/// How far a scenario's share of the iterations may be from its weight.
pub const WEIGHTS: f64 = 0.01;

/// The step whose keeps failed most, with its share of failed keeps.
fn most_failed(r: &Report) -> Option<(&StepStats, f64)> {
    let of = |s: &StepStats| {
        let all: u64 = s.keeps.iter().map(|k| k.taken + k.failed).sum();
        share(s.keeps_failed(), all)
    };
    r.steps.iter().map(|s| (s, of(s))).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn keeps_text((step, share): (&StepStats, f64)) -> String {
    let failed = step.keeps.iter().max_by_key(|k| k.failed);
    let name = failed.map_or("", |k| k.name.as_str());
    let why = failed.and_then(|k| k.sample.as_deref()).map(|s| format!(" ({s})")).unwrap_or_default();
    format!(
        "{} of the values that `{}` keeps were not in the response, first `{name}`{why}: those iterations ended there",
        percent(share),
        step.full_name()
    )
}

pub(super) fn mostly_failed_keeps(r: &Report) -> Option<String> {
    most_failed(r).filter(|(_, share)| *share > 0.5).map(keeps_text)
}

pub(super) fn failed_keeps(r: &Report) -> Option<String> {
    most_failed(r).filter(|(_, share)| *share > KEEPS && *share <= 0.5).map(keeps_text)
}

/// The scenario whose iterations broke off most, with the share of them.
fn most_broken(r: &Report) -> Option<(&ScenarioStats, f64)> {
    let of = |s: &ScenarioStats| share(s.broken(), s.done + s.broken());
    r.scenarios.iter().map(|s| (s, of(s))).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn broken_text((scenario, share): (&ScenarioStats, f64)) -> String {
    let first = scenario.broken_off.iter().max_by_key(|(_, n)| **n).map_or("", |(step, _)| step.as_str());
    let name = &scenario.name;
    format!(
        "{} of the iterations of `{name}` broke off, most at `{first}`: later steps got less load than the plan says",
        percent(share)
    )
}

pub(super) fn mostly_broken_off(r: &Report) -> Option<String> {
    most_broken(r).filter(|(_, share)| *share > 0.5).map(broken_text)
}

pub(super) fn broken_off(r: &Report) -> Option<String> {
    most_broken(r).filter(|(_, share)| *share > BROKEN && *share <= 0.5).map(broken_text)
}

/// A step that no iteration reached says nothing, and its scenario was not what the plan says.
pub(super) fn unreached_step(r: &Report) -> Option<String> {
    // A redirect may never happen, and an interrupted run may not have come to its end.
    let is_due = |s: &&StepStats| s.requests == 0 && !s.name.ends_with(" (redirect)") && s.part == "steps";
    let names: Vec<String> =
        r.steps.iter().filter(is_due).map(|s| format!("`{}`", s.full_name())).take(5).collect();
    (!names.is_empty() && r.end != End::Interrupted)
        .then(|| format!("no iteration reached {}: its figures are missing", names.join(", ")))
}

/// Iterations were not started in the shares that the weights ask for.
pub(super) fn weights_missed(r: &Report) -> Option<String> {
    r.scenarios.iter().find_map(|one| {
        let group: Vec<&ScenarioStats> = r.scenarios.iter().filter(|s| s.group == one.group).collect();
        let started: u64 = group.iter().map(|s| s.started).sum();
        let weights: u64 = group.iter().map(|s| u64::from(s.weight)).sum();
        let (got, wanted) = (share(one.started, started), share(u64::from(one.weight), weights));
        // The last round may be incomplete, which is more than a hundredth of a short run.
        let whole = one.started.abs_diff((wanted * started as f64) as u64) > group.len() as u64;
        (group.len() > 1 && whole && (got - wanted).abs() > WEIGHTS).then(|| {
            format!(
                "`{}` got {} of the iterations started, but its weight is {}",
                one.name,
                percent(got),
                percent(wanted)
            )
        })
    })
}

/// Iterations that a fixed rate asked for and that found no user.
pub(super) fn iterations_missed(r: &Report) -> Option<String> {
    r.scenarios.iter().find_map(|s| {
        let due: u64 = s.started + s.not_started;
        let missed = share(s.not_started, due);
        (r.end != End::Interrupted && missed > MISSED).then(|| {
            format!(
                "{} of the planned iterations of `{}` were not started: all {} users were busy; raise users_max",
                percent(missed),
                s.name,
                grouped(s.users)
            )
        })
    })
}

/// The rows of a data set that may be used once ran out, as the plan allows.
pub(super) fn data_ended(r: &Report) -> Option<String> {
    let ended = r.scenarios.iter().find_map(|s| Some((s, s.data_ended.as_ref()?)))?;
    let (scenario, data) = ended;
    Some(format!(
        "`{}` ended after {} iterations, when the data set `{data}` had no more rows",
        scenario.name,
        grouped(scenario.started)
    ))
}

/// All users sent the same credentials: a target that caches by user, or limits it, behaves differently for many.
pub(super) fn one_identity(r: &Report) -> Option<String> {
    let same = r.scenarios.iter().find(|s| s.identities == Some(1) && s.users_seen > 1)?;
    Some(format!(
        "all {} users of `{}` sent the same credentials: the target saw one user",
        grouped(same.users_seen),
        same.name
    ))
}
