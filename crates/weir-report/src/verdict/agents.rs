//! Reasons of a load from several machines: agents that were lost, that began apart, that differ, or whose counts do
//! not add up.

use super::{LATE_NS, percent};
use crate::Report;
use crate::report::{AgentStats, Pace, StageUnit};
use crate::units::{counted, time};

/// How far apart agents may begin: 10 ms, or one interval of the rate if that is shorter, but never less than the
/// lateness that one generator may have.
const APART_NS: u64 = 10_000_000;

/// How much slower the median of one agent may be than that of another, as a ratio.
const UNEVEN: f64 = 2.0;

/// How far the requests of an agent may be from the mean, with a fixed rate.
const RATE: f64 = 0.02;

/// Fewer requests of an agent say nothing about its rate and its times.
const REQUESTS: f64 = 50.0;

/// Medians that differ by less than this differ by what a scheduler does: 200 µs.
const TIMES_LEAST_NS: u64 = 200_000;

fn named<'a>(agents: impl Iterator<Item = (&'a AgentStats, String)>) -> Option<String> {
    let all: Vec<String> = agents.take(4).map(|(agent, what)| format!("{}: {what}", agent.name)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

pub(super) fn merge_mismatch(r: &Report) -> Option<String> {
    let wrong = r.agents.iter().filter_map(|a| Some((a, a.mismatch.clone()?)));
    named(wrong).map(|told| format!("what agents counted does not add up: {told}"))
}

fn lost(r: &Report, went_on: bool) -> Option<String> {
    let lost = r.agents.iter().filter_map(|agent| {
        let lost = agent.lost.as_ref().filter(|lost| lost.others_went_on == went_on)?;
        Some((agent, format!("lost after {}, {}", counted(lost.seconds, "second"), lost.why)))
    });
    named(lost)
}

pub(super) fn agent_lost(r: &Report) -> Option<String> {
    lost(r, false).map(|told| format!("the run was aborted: {told}"))
}

pub(super) fn agent_lost_and_borne(r: &Report) -> Option<String> {
    lost(r, true).map(|told| format!("the others went on: {told}"))
}

/// One interval of the highest rate.
fn interval_ns(pace: &Pace) -> u64 {
    let rate = match pace {
        Pace::Rate { per_second } => *per_second,
        Pace::Stages { of: StageUnit::Rate, start, stages } => {
            stages.iter().map(|s| s.target).fold(*start, f64::max)
        }
        Pace::Shape { of: StageUnit::Rate, parts, .. } => {
            parts.iter().map(|p| p.from.max(p.to)).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    if rate > 0.0 { (1e9 / rate) as u64 } else { u64::MAX }
}

pub(super) fn agents_apart(r: &Report) -> Option<String> {
    let starts = || r.agents.iter().filter_map(|a| Some((a, a.started_ns?)));
    let (last, apart) = starts().max_by_key(|(_, at)| *at)?;
    let most = interval_ns(&r.plan.pace).clamp(LATE_NS, APART_NS);
    (apart > most).then(|| {
        format!(
            "{} began {} after the first agent, more than {}: their starts are not evenly spaced",
            last.name,
            time(apart as f64),
            time(most as f64)
        )
    })
}

pub(super) fn agents_uneven(r: &Report) -> Option<String> {
    let whole = || r.agents.iter().filter(|a| a.lost.is_none() && a.responses as f64 >= REQUESTS);
    let p50 = |a: &&AgentStats| a.response.p50;
    let (fast, slow) = (whole().min_by_key(p50)?, whole().max_by_key(p50)?);
    let apart = slow.response.p50 - fast.response.p50;
    if apart > TIMES_LEAST_NS && slow.response.p50 as f64 > UNEVEN * fast.response.p50 as f64 {
        return Some(format!(
            "the median response time is {} on {}, {} on {}",
            time(slow.response.p50 as f64),
            slow.name,
            time(fast.response.p50 as f64),
            fast.name
        ));
    }
    if r.plan.pace.is_closed() {
        return None; // machines of different speed send at different rates, as planned
    }
    // An agent with few requests of many is what this is about.
    let there = || r.agents.iter().filter(|a| a.lost.is_none());
    let mean = there().map(|a| a.requests as f64).sum::<f64>() / there().count() as f64;
    if mean < REQUESTS {
        return None;
    }
    let off = |a: &AgentStats| (a.requests as f64 - mean).abs();
    let worst = there().max_by(|a, b| off(a).total_cmp(&off(b)))?;
    (off(worst) > mean * RATE).then(|| {
        format!(
            "{} sent {} of an even share of the requests",
            worst.name,
            percent(worst.requests as f64 / mean)
        )
    })
}

pub(super) fn builds_differ(r: &Report) -> Option<String> {
    let other = r.agents.iter().filter(|a| a.other_build);
    let told = named(other.map(|a| (a, format!("version {}", a.generator.version))));
    told.map(|told| format!("agents of another build than the coordinator: {told}"))
}
