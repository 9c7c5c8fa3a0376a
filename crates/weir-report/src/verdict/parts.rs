//! The parts of a shape: their verdicts, and how the target recovered from a spike.

use crate::Report;
use crate::report::{Grade, Reason, Recovery, Tick, Verdict};

/// How far above its value before the spike a percentile may be.
const RECOVERED: f64 = 1.10;

/// Times below this differ by what a scheduler does: 200 µs.
const RECOVERED_LEAST_NS: f64 = 200_000.0;

impl Report {
    /// The verdict and the recovery of part `i`, from everything else in the report.
    pub(crate) fn judged_part(&self, i: usize) -> (Verdict, Option<Recovery>) {
        let part = &self.parts[i];
        let is_idle = part.counts.requests == 0;
        let verdict = match self.ended_data(part.group).filter(|_| is_idle) {
            Some(text) => {
                let reason = Reason { code: "data_ended".to_owned(), grade: Grade::Valid, text };
                Verdict { reasons: vec![reason], ..Verdict::default() }
            }
            None if is_idle && part.planned == 0 => Verdict::default(),
            None => super::of_part(&self.part_at(i)),
        };
        (verdict, self.recovery(i))
    }

    /// Why a group of scenarios had nothing to do in its later parts, if the rows of data sets ended all of them.
    fn ended_data(&self, group: u64) -> Option<String> {
        let of_group = || self.scenarios.iter().filter(|scenario| scenario.group == group);
        let set = of_group().find_map(|scenario| scenario.data_ended.as_ref())?;
        of_group()
            .all(|scenario| scenario.data_ended.is_some())
            .then(|| format!("no iteration began in this part: the data set `{set}` had no more rows"))
    }

    /// Fills in the verdict and the recovery of each part.
    pub fn judge_parts(&mut self) {
        for i in 0..self.parts.len() {
            let (verdict, recovery) = self.judged_part(i);
            (self.parts[i].verdict, self.parts[i].recovery) = (verdict, recovery);
        }
    }

    /// How the target recovered from part `i`, if that was a spike.
    fn recovery(&self, i: usize) -> Option<Recovery> {
        let [spike, before, after] = self.planned_part(i);
        let (spike, before, after) = (spike?, before?, after?);
        if spike.word != "jump" || spike.from <= before.to || after.from >= spike.to {
            return None;
        }
        let ticks = &self.series.ticks;
        // Ticks that lie in the part before, but for its first: connections and caches are cold there.
        let inside = |tick: &&Tick| {
            let begin = tick.end_ns.saturating_sub(tick.length_ns);
            begin >= before.begin_ns && tick.end_ns <= before.end_ns + self.series.tick_ns / 10
        };
        let mut p99s: Vec<u64> =
            ticks.iter().filter(inside).filter(|t| t.responses > 0).map(|t| t.response.p99).collect();
        if p99s.len() > 2 {
            p99s.remove(0);
        }
        p99s.sort_unstable();
        let before_ns = *p99s.get(p99s.len() / 2)?;
        let most = (before_ns as f64 * RECOVERED).max(RECOVERED_LEAST_NS);
        // A second that began during the spike still has its requests.
        let since = |tick: &&Tick| {
            tick.end_ns.saturating_sub(tick.length_ns) + self.series.tick_ns / 10 >= spike.end_ns
        };
        // A short rest at the end of the run is no second.
        let is_whole = |tick: &&Tick| tick.length_ns * 2 >= self.series.tick_ns && tick.responses > 0;
        let good = ticks.iter().filter(since).filter(is_whole).find(|t| t.response.p99 as f64 <= most);
        let after_ns = good.map(|tick| tick.end_ns.saturating_sub(spike.end_ns));
        Some(Recovery { before_ns, after_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Pace, PartPlan, PartStats, Percentiles, ScenarioStats, Series, StageUnit};
    use crate::{Threshold, verdict};

    const S: u64 = 1_000_000_000;

    fn part(name: &str, word: &str, begin: u64, end: u64, at: f64) -> PartPlan {
        PartPlan {
            name: name.to_owned(),
            word: word.to_owned(),
            begin_ns: begin * S,
            end_ns: end * S,
            from: at,
            to: at,
            ..PartPlan::default()
        }
    }

    /// Ten seconds at 100/s, a spike of two, then ten seconds more; `p99s` are the seconds' percentiles in ms.
    fn run(p99s: &[u64]) -> Report {
        let mut r = Report { duration_ns: 22 * S, ..Report::default() };
        let parts = vec![
            part("hold", "hold", 0, 10, 100.0),
            part("spike", "jump", 10, 12, 2000.0),
            part("after", "hold", 12, 22, 100.0),
        ];
        r.parts = parts.iter().map(|p| PartStats { name: p.name.clone(), ..PartStats::default() }).collect();
        r.plan.pace = Pace::Shape { of: StageUnit::Rate, parts, spacing: "even".to_owned(), seed: 1 };
        let tick = |(i, p99): (usize, &u64)| Tick {
            end_ns: (i as u64 + 1) * S + 3_000_000,
            length_ns: S,
            responses: 100,
            response: Percentiles { p99: p99 * 1_000_000, ..Percentiles::default() },
            ..Tick::default()
        };
        r.series = Series { tick_ns: S, ticks: p99s.iter().enumerate().map(tick).collect() };
        r
    }

    #[test]
    fn recovery_is_the_time_until_a_second_is_as_before() {
        let mut p99s = vec![10; 10];
        p99s.extend([500, 900, 800, 300, 12, 11, 10]);
        let r = run(&p99s);
        let recovery = r.judged_part(1).1.unwrap();
        assert_eq!(recovery, Recovery { before_ns: 10_000_000, after_ns: Some(4 * S + 3_000_000) });
        assert_eq!((r.judged_part(0).1, r.judged_part(2).1), (None, None));
        p99s.truncate(15);
        assert_eq!(run(&p99s).judged_part(1).1.unwrap().after_ns, None);
    }

    #[test]
    fn a_part_has_its_thresholds_and_its_verdict() {
        let mut r = run(&[10; 22]);
        r.parts[0].counts.responses = 2000;
        r.parts[0].counts.statuses.insert(200, 2000);
        r.parts[0].response.record_n(1_000_000, 2000);
        (r.parts[0].planned, r.parts[0].counts.requests) = (2000, 2000);
        r.parts[1] = PartStats { name: "spike".to_owned(), planned: 100, ..PartStats::default() };
        let c = &mut r.parts[1].counts;
        (c.requests, c.responses, c.unsent) = (80, 70, 20);
        c.statuses.insert(200, 70);
        c.errors.timeout = 10;
        r.parts[1].response.record_n(5_000_000, 70);
        for (text, holds) in [
            ("hold: p99<2ms", true),
            ("spike: p50<6ms", true),
            ("spike: p99<1h", false), // the timeouts
            ("spike: errors<1%", false),
            ("spike: rate>34", true),
            ("after: p99<1h", false), // nothing measured
            ("nowhere: p99<1h", false),
        ] {
            let result = Threshold::parse("", text).unwrap().judge(&r);
            assert_eq!(result.passed, holds, "{text}: {result:?}");
            r.thresholds.push(result);
        }
        r.judge_parts();
        let codes = |i: usize| -> Vec<&str> {
            r.parts[i].verdict.reasons.iter().map(|reason| reason.code.as_str()).collect()
        };
        assert_eq!((codes(0), codes(2)), (vec![], vec![]));
        assert_eq!(codes(1), ["rate_missed", "errors", "too_short"]);
        assert!(verdict::judge(&r).reasons.iter().any(|reason| reason.code == "part_invalid"));
    }

    #[test]
    fn a_part_after_the_end_of_its_data_says_so() {
        let mut r = run(&[10; 22]);
        r.parts[2].planned = 100;
        let codes = |r: &Report| {
            let verdict = r.judged_part(2).0;
            let codes: Vec<String> = verdict.reasons.into_iter().map(|reason| reason.code).collect();
            (verdict.grade, codes)
        };
        assert_eq!(codes(&r), (Grade::Invalid, vec!["no_responses".to_owned()]));
        let ended = |set: Option<&str>| ScenarioStats {
            data_ended: set.map(str::to_owned),
            ..ScenarioStats::default()
        };
        r.scenarios = vec![ended(Some("users")), ended(None)];
        assert_eq!(codes(&r).0, Grade::Invalid, "the other scenario should have gone on");
        r.scenarios.truncate(1);
        assert_eq!(codes(&r), (Grade::Valid, vec!["data_ended".to_owned()]));
        r.parts[2].counts.requests = 3;
        assert_eq!(codes(&r).0, Grade::Invalid);
    }
}
