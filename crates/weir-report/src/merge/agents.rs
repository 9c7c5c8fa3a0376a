//! The reports of agents, each of a share of one load, added up to the report of the load.

use super::{add, series, worst};
use crate::report::{AgentStats, End, Generator, LostAgent, Percentiles, PlanAsRun, Report, ThresholdResult};
use crate::{Threshold, verdict};

/// Reasons about how little one agent saw, which says nothing about all of them.
const OF_FEW: [&str; 7] = [
    "data_ended",
    "no_responses",
    "one_identity",
    "short_blocks",
    "too_short",
    "unreached_step",
    "weights_missed",
];

/// What one agent reported, and what its coordinator knows of it.
#[derive(Clone, Debug, Default)]
pub struct AgentPart {
    /// `HOST:PORT`.
    pub name: String,
    /// Its machine and version.
    pub generator: Generator,
    /// Whether its binary is another one than ours.
    pub other_build: bool,
    /// How long after the first agent it began.
    pub started_ns: Option<u64>,
    /// The shortest exchange of clocks with it.
    pub clock_ns: u64,
    /// After how many seconds it was lost, and why.
    pub lost: Option<(u64, String)>,
    /// What does not add up.
    pub mismatch: Option<String>,
    /// Its report; of a lost agent what it told until then.
    pub report: Report,
}

/// Adds up the reports of all agents. `plan` is the whole load; `end` says why it ended early; `goes_on` whether the
/// loss of an agent was to be borne. Thresholds are judged here, once, by the sum.
pub fn merge_agents(
    parts: Vec<AgentPart>,
    plan: &PlanAsRun,
    end: Option<End>,
    goes_on: bool,
    thresholds: &[Threshold],
) -> Report {
    // Nobody went on if nobody was left.
    let goes_on = goes_on && parts.iter().any(|part| part.lost.is_none());
    let mut agents: Vec<AgentStats> = parts.iter().map(|part| stats(part, goes_on)).collect();
    let reports: Vec<Report> = parts.into_iter().map(|part| part.report).collect();
    // A report of an agent that was lost lacks what only its end would have told: the sum begins with a whole one.
    let first = reports.iter().position(|r| !r.threads.is_empty()).unwrap_or(0);
    let Some(mut all) = reports.get(first).cloned() else { return Report::default() };
    for (_, other) in reports.iter().enumerate().filter(|(i, _)| *i != first) {
        add(&mut all, other);
    }
    all.series = series(&reports);
    let threads = all.plan.threads;
    // Names were resolved by the agents, which have the addresses.
    let targets = std::mem::take(&mut all.plan.targets);
    all.plan = PlanAsRun { threads, targets, ..plan.clone() };
    if let Some(end) = end {
        all.end = end;
    } else if let Some(failed) = reports.iter().find(|r| matches!(r.end, End::Failed { .. })) {
        all.end = failed.end.clone();
    } else if let Some(lost) = agents.iter().find(|agent| agent.lost.is_some() && !goes_on) {
        all.end = End::Failed { reason: format!("the agent {} was lost", lost.name) };
    }
    for (agent, report) in agents.iter_mut().zip(&reports) {
        agent.verdict = verdict::judge(report);
    }
    all.merged = reports.len() as u64;
    all.agents = agents;
    all.thresholds = thresholds.iter().map(|t| t.judge(&all)).collect::<Vec<ThresholdResult>>();
    all.judge_parts();
    let mut judged = reports;
    for (report, agent) in judged.iter_mut().zip(&all.agents) {
        report.verdict = agent.verdict.clone();
        report.verdict.reasons.retain(|reason| !OF_FEW.contains(&reason.code.as_str()));
    }
    let names: Vec<String> = all.agents.iter().map(|agent| format!("agent {}", agent.name)).collect();
    all.verdict = worst(verdict::judge(&all), &judged, |i| names.get(i).cloned().unwrap_or_default());
    all
}

fn stats(part: &AgentPart, goes_on: bool) -> AgentStats {
    let r = &part.report;
    AgentStats {
        name: part.name.clone(),
        generator: part.generator.clone(),
        other_build: part.other_build,
        started_ns: part.started_ns,
        clock_ns: part.clock_ns,
        connections: r.plan.connections,
        requests: r.counts.requests,
        responses: r.counts.responses,
        rate: r.rate(),
        errors: r.counts.errors.clone(),
        response: Percentiles::of(&r.latency.response),
        busiest: r.busiest_thread(),
        verdict: r.verdict.clone(),
        lost: part.lost.as_ref().map(|(seconds, why)| LostAgent {
            seconds: *seconds,
            why: why.clone(),
            others_went_on: goes_on,
        }),
        mismatch: part.mismatch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Grade, Pace};

    fn part(name: &str, times: std::ops::RangeInclusive<u64>) -> AgentPart {
        let mut r = crate::merge::tests::run(100, times);
        r.thresholds.clear();
        r.threads = vec![crate::report::ThreadStats::default()];
        r.window = Some(crate::report::Window {
            length_ns: r.duration_ns,
            responses: r.counts.responses,
            ..Default::default()
        });
        AgentPart { name: name.to_owned(), started_ns: Some(0), report: r, ..AgentPart::default() }
    }

    fn merged(parts: Vec<AgentPart>) -> Report {
        let plan = PlanAsRun { connections: 15, ..parts[0].report.plan.clone() };
        let p99 = Threshold::parse("", "p99<150ms").unwrap();
        merge_agents(parts, &plan, None, true, &[p99])
    }

    fn codes(r: &Report) -> Vec<&str> {
        r.verdict.reasons.iter().map(|reason| reason.code.as_str()).collect()
    }

    #[test]
    fn the_sum_is_judged_and_each_agent_has_its_row() {
        let all = merged(vec![part("a:1", 1..=100), part("b:1", 101..=150), part("c:1", 151..=200)]);
        let whole = crate::merge::tests::run(100, 1..=200);
        assert_eq!(all.latency.response, whole.latency.response, "bucket by bucket");
        assert!(!all.thresholds[0].passed, "no agent alone would have known: {:?}", all.thresholds);
        assert_eq!(all.plan.connections, 15);
        let rows: Vec<_> = all.agents.iter().map(|a| (a.name.as_str(), a.responses)).collect();
        assert_eq!(rows, [("a:1", 100), ("b:1", 50), ("c:1", 50)]);
        assert!(codes(&all).contains(&"agents_uneven"), "medians: {:?}", all.verdict);
    }

    #[test]
    fn what_is_wrong_with_one_is_wrong_with_all() {
        type Case<'a> = (&'a str, Grade, &'a dyn Fn(&mut AgentPart));
        let cases: [Case<'_>; 5] = [
            ("merge_mismatch", Grade::Invalid, &|p| p.mismatch = Some("responses".to_owned())),
            ("agents_apart", Grade::Suspect, &|p| p.started_ns = Some(11_000_000)),
            ("agent_lost", Grade::Suspect, &|p| p.lost = Some((3, "no word".to_owned()))),
            ("builds_differ", Grade::Suspect, &|p| p.other_build = true),
            ("generator_busy", Grade::Suspect, &|p| {
                p.report.threads = vec![crate::report::ThreadStats {
                    cpu_ns: 9_000_000_000,
                    measured_ns: 10_000_000_000,
                    ..Default::default()
                }];
            }),
        ];
        for (code, grade, change) in cases {
            let mut bad = part("b:1", 1..=100);
            change(&mut bad);
            let all = merged(vec![part("a:1", 1..=100), bad]);
            let reason = all.verdict.reasons.iter().find(|reason| reason.code == code);
            assert_eq!(reason.map(|r| r.grade), Some(grade), "{code}: {:?}", all.verdict.reasons);
            assert!(reason.is_some_and(|r| r.text.contains("b:1")), "{code}: {reason:?}");
        }
        let mut lost = part("b:1", 1..=100);
        lost.lost = Some((3, "no word".to_owned()));
        let parts = vec![part("a:1", 1..=100), lost];
        let plan = parts[0].report.plan.clone();
        let all = merge_agents(parts, &plan, None, false, &[]);
        assert_eq!((all.verdict.grade, codes(&all)[0]), (Grade::Invalid, "agent_lost"));
    }

    #[test]
    fn a_rate_is_uneven_from_two_percent_on() {
        for (responses, want) in [(500, false), (492, false), (470, true)] {
            let mut parts = vec![part("a:1", 1..=500), part("b:1", 1..=500)];
            for (part, n) in parts.iter_mut().zip([500, responses]) {
                part.report.plan.pace = Pace::Rate { per_second: 100.0 };
                part.report.counts.requests = n;
            }
            let told = codes(&merged(parts)).contains(&"agents_uneven");
            assert_eq!(told, want, "{responses}");
        }
    }
}
