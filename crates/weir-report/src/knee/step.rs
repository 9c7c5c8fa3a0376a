//! A rate that was tried: whether it held, what broke it, and whose limit it hit.
//!
//! A step counts only with enough responses for its conditions: four responses say nothing about a p99. Refusals and
//! failed checks appear in no latency, so a step must meet more than its conditions. A reason with grade INVALID
//! breaks it. So do errors above the verdict's share, unless a condition sets its own limit.

use crate::report::{Grade, Percentiles, Report, ThresholdResult};
use crate::threshold::Threshold;
use crate::units::time;
use crate::verdict::{self, Side};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One rate that was tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Step {
    /// Planned requests per second.
    pub rate: f64,
    /// Responses in the step.
    pub responses: u64,
    /// Responses per second.
    pub responses_per_s: f64,
    /// Response time.
    pub response: Percentiles,
    /// Share of errors, unexpected statuses, and requests without a response at the end of the step.
    pub failed_share: f64,
    /// The most frequent error text, such as `Connection refused (os error 111)`.
    pub error: Option<String>,
    /// Whether all conditions held and nothing else broke it.
    pub held: bool,
    /// What broke it: conditions, codes of reasons, or `too_few_responses`.
    pub broken_by: Vec<String>,
    /// Whose limit it hit; none if it held.
    pub limit: Option<Limit>,
    /// Each condition; requests without a response count as errors.
    pub thresholds: Vec<ThresholdResult>,
    /// Codes of the reasons against the result.
    pub reasons: Vec<String>,
}

/// Whose limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The generator or its machine could not produce this load; the target may hold more.
    Generator,
    /// The target.
    Target,
}

/// Breaks a step with too few responses for its conditions.
pub(super) const TOO_FEW: &str = "too_few_responses";

impl Step {
    /// The step for a rate, from its report.
    pub fn of(rate: f64, mut report: Report, conditions: &[Threshold]) -> Self {
        let reasons: Vec<String> = report.verdict.reasons.iter().map(|r| r.code.clone()).collect();
        let unfinished = report.counts.unfinished;
        // For conditions on errors as well, a request still in flight at the end is a timeout.
        report.counts.errors.timeout += std::mem::take(&mut report.counts.unfinished);
        let hung = unfinished as f64 / report.finished().max(1) as f64;
        let thresholds: Vec<ThresholdResult> =
            conditions.iter().map(|condition| condition.judge(&report)).collect();
        let mut broken_by: Vec<String> =
            thresholds.iter().filter(|t| !t.passed).map(|t| t.threshold.clone()).collect();
        broken_by.extend(reasons.iter().filter(|code| breaks(code, conditions, hung)).cloned());
        let needed = conditions.iter().map(Threshold::needs).max().unwrap_or_default();
        broken_by.extend((report.counts.responses < needed).then(|| TOO_FEW.to_owned()));
        let held = broken_by.is_empty();
        Self {
            rate,
            responses: report.counts.responses,
            responses_per_s: report.rate(),
            response: Percentiles::of(&report.latency.response),
            failed_share: report.failed_share(),
            error: report.counts.error_texts.iter().max_by_key(|(_, n)| **n).map(|(text, _)| text.clone()),
            limit: (!held).then(|| whose(&report, &reasons, &broken_by, conditions)),
            held,
            broken_by,
            thresholds,
            reasons,
        }
    }

    /// Whether it has enough responses for a p99.
    pub(super) fn knows_p99(&self) -> bool {
        Percentiles::are_known(0.99, self.responses)
    }

    /// Its median for display.
    pub(super) fn p50(&self) -> String {
        self.percentile(0.5, self.response.p50)
    }

    /// Its p99 for display.
    pub(super) fn p99(&self) -> String {
        self.percentile(0.99, self.response.p99)
    }

    /// A percentile for display, if there are enough responses for it.
    pub(super) fn percentile(&self, quantile: f64, ns: u64) -> String {
        let is_known = self.responses > 0 && Percentiles::are_known(quantile, self.responses);
        if is_known { time(ns as f64) } else { "-".to_owned() }
    }

    /// What broke it, then other reasons against it.
    pub(super) fn reasons_shown(&self) -> Vec<&str> {
        let also = self.reasons.iter().filter(|code| !self.broken_by.contains(code));
        self.broken_by.iter().chain(also).map(String::as_str).collect()
    }

    /// Codes of reasons that name the generator.
    pub(super) fn of_generator(&self) -> Vec<&str> {
        let all = self.reasons.iter().map(String::as_str);
        all.filter(|code| verdict::side_of(code) == Side::Generator).collect()
    }
}

/// Whether this reason breaks a step, whatever its conditions say. A result with grade INVALID is not the load that
/// was asked for, and errors above [`verdict::ERRORS`] appear in no latency. A condition that sets its own limit
/// takes precedence.
fn breaks(code: &str, conditions: &[Threshold], hung: f64) -> bool {
    let told = |names: &[&str]| conditions.iter().any(|c| names.contains(&c.name()));
    match code {
        "unfinished" => hung > verdict::ERRORS && !told(&["errors", "failed"]),
        "errors" => !told(&["errors", "failed"]),
        "status_mix" => !told(&["failed"]),
        "failed_checks" => !told(&["checks"]),
        code => verdict::grade_of(code) == Grade::Invalid,
    }
}

/// Whether no response met the conditions: there was none, each failed, or even the fastest was too slow.
pub fn none_meets(report: &Report, conditions: &[Threshold]) -> bool {
    report.counts.responses == 0
        || report.failed_share() >= 1.0
        || conditions.iter().any(|c| c.is_broken_by_the_fastest(report))
}

/// Whose limit it is. The generator is blamed only on evidence, and a shortage is no evidence if the target would
/// have failed anyway.
fn whose(report: &Report, reasons: &[String], broken_by: &[String], conditions: &[Threshold]) -> Limit {
    let sides = |side: Side| reasons.iter().any(|code| verdict::side_of(code) == side);
    // Conditions that depend only on the target, and that no generator can improve.
    let broken: Vec<&Threshold> = conditions.iter().filter(|c| broken_by.contains(&c.text)).collect();
    if sides(Side::Answers)
        || !sides(Side::Generator)
        || broken.iter().any(|c| c.is_broken_by_the_fastest(report))
    {
        return Limit::Target;
    }
    let has_run_out =
        ["out_of_ports", "out_of_descriptors"].iter().any(|code| reasons.iter().any(|r| r == code));
    let had_no_core = report.most_wanted() > verdict::BUSY;
    // The generator was late at times. It is to blame if the times would hold without that and nothing else is
    // violated.
    let was_late = broken.len() == broken_by.len()
        && broken.iter().all(|c| c.holds_without_lateness(report) == Some(true));
    if has_run_out || had_no_core || was_late { Limit::Generator } else { Limit::Target }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Pace, ThreadStats};

    /// A step of 10 s at 1,000/s, all good, after a change.
    fn step(conditions: &[&str], change: impl FnOnce(&mut Report)) -> Step {
        let mut r = Report { duration_ns: 10_000_000_000, ..Report::default() };
        r.plan.pace = Pace::Rate { per_second: 1000.0 };
        (r.counts.requests, r.counts.responses) = (10_000, 10_000);
        r.counts.statuses = [(200, 10_000)].into();
        r.latency.response.record_n(1_000_000, 10_000);
        r.threads = vec![ThreadStats::default()];
        change(&mut r);
        r.verdict = verdict::judge(&r);
        let conditions: Vec<Threshold> =
            conditions.iter().map(|c| Threshold::parse("--find-knee", c).unwrap()).collect();
        Step::of(1000.0, r, &conditions)
    }

    #[test]
    fn what_is_in_no_latency_breaks_a_step_all_the_same() {
        let hang = |n: u64| {
            move |r: &mut Report| {
                r.counts.unfinished = n;
                r.counts.requests += n;
            }
        };
        let answer = |status: u16, n: u64| {
            move |r: &mut Report| r.counts.statuses = [(200, 10_000 - n), (status, n)].into()
        };
        type Change = Box<dyn FnOnce(&mut Report)>;
        let cases: Vec<(&[&str], Change, &[&str])> = vec![
            (&["p99<20ms"], Box::new(|_| ()), &[]),
            (&["p99<20ms", "errors<0.1%"], Box::new(hang(5_000)), &["p99<20ms", "errors<0.1%"]),
            (&["p99<20ms"], Box::new(hang(50)), &["unfinished"]),
            (&["p99<20ms"], Box::new(hang(5)), &[]),
            (&["p99<20ms", "errors<5%"], Box::new(hang(50)), &[]),
            (&["p99.9<20ms", "errors<5%"], Box::new(hang(50)), &["p99.9<20ms"]),
            (&["p99.9<20ms", "errors<5%"], Box::new(|r| r.counts.errors.timeout = 50), &["p99.9<20ms"]),
            (&["max<20ms"], Box::new(hang(5)), &["max<20ms"]),
            (&["p99<20ms"], Box::new(answer(503, 10_000)), &["mostly_refused"]),
            (&["p99<20ms"], Box::new(answer(503, 100)), &["status_mix"]),
            (&["p99<20ms", "failed<5%"], Box::new(answer(503, 100)), &[]),
            (&["p99<20ms"], Box::new(|r| r.counts.failed_checks = 100), &["failed_checks"]),
            (&["p99<20ms"], Box::new(|r| r.counts.errors.reset = 100), &["errors"]),
            (&["p99<20ms", "errors<5%"], Box::new(|r| r.counts.errors.reset = 100), &[]),
            (&["rate>1"], Box::new(|r| r.counts.unsent = 1_000), &["rate_missed"]),
            // Reported, but it breaks nothing.
            (&["p99<20ms"], Box::new(|r| r.counts.other_length = 1), &[]),
        ];
        for (i, (conditions, change, want)) in cases.into_iter().enumerate() {
            let step = step(conditions, change);
            assert_eq!(step.broken_by, want, "{i}: {step:?}");
            assert_eq!(
                (step.held, step.limit.is_none()),
                (want.is_empty(), want.is_empty()),
                "{i}: {step:?}"
            );
        }
    }

    #[test]
    fn a_step_with_too_few_responses_for_what_is_asked_holds_nothing() {
        let few = |n: u64| {
            move |r: &mut Report| {
                (r.counts.requests, r.counts.responses) = (n, n);
                r.counts.statuses = [(200, n)].into();
                r.latency.response = crate::Histogram::new();
                r.latency.response.record_n(1_000_000, n);
            }
        };
        for (condition, n, want) in [
            ("p99<20ms", 4, false),
            ("p99<20ms", 999, false),
            ("p99<20ms", 1_000, true),
            ("p50<20ms", 20, true),
            ("p50<20ms", 19, false),
            ("errors<0.1%", 999, false),
            ("rate>1", 9, false),
        ] {
            let step = step(&[condition], few(n));
            assert_eq!(step.held, want, "{condition} of {n}: {step:?}");
            assert_eq!(step.broken_by.contains(&TOO_FEW.to_owned()), !want, "{step:?}");
        }
    }

    #[test]
    fn a_step_that_the_generator_could_not_make_is_not_the_targets_limit() {
        let busy = |r: &mut Report| r.threads[0].cpu_ns = 9_500_000_000;
        let slow = |r: &mut Report| r.latency.response.record_n(1_000_000_000, 10_000);
        // The generator was busy, but the conditions were met: the step holds.
        assert_eq!(step(&["p99<20ms"], busy).limit, None);
        assert_eq!(step(&["p99<20ms"], slow).limit, Some(Limit::Target));
        let both = step(&["p99<20ms"], |r| {
            busy(r);
            slow(r);
        });
        assert_eq!((both.limit, both.of_generator()), (Some(Limit::Generator), vec!["generator_busy"]));
        let ports = step(&["p99<20ms"], |r| r.health.out_of_ports = 1);
        assert_eq!(
            (ports.limit, &*ports.broken_by),
            (Some(Limit::Generator), &["out_of_ports".to_owned()][..])
        );
        // Starts were late by 3 ms but the target takes 50: the target is to blame, however late the start.
        let late = |r: &mut Report| r.health.start_lag.record_n(3_000_000, 10_000);
        let slow_by = |ms: u64| {
            move |r: &mut Report| {
                late(r);
                r.latency.response = crate::Histogram::new();
                r.latency.response.record_n(ms * 1_000_000, 9_000);
                r.latency.response.record_n(2_000_000, 1_000);
            }
        };
        let blamed = step(&["p99<20ms"], slow_by(50));
        assert!(blamed.reasons.contains(&"late_starts".to_owned()), "{blamed:?}");
        assert_eq!(blamed.limit, Some(Limit::Target));
        assert_eq!(step(&["p99<20ms"], slow_by(24)).limit, Some(Limit::Generator));
        let and_missed = step(&["p99<20ms"], |r| {
            slow_by(24)(r);
            r.counts.unsent = 1_000;
        });
        assert_eq!(and_missed.limit, Some(Limit::Target), "{and_missed:?}");
        // No response is within the limit, which a busy generator does not explain.
        let never = step(&["p99<20ms"], |r| {
            busy(r);
            r.latency.response = crate::Histogram::new();
            r.latency.response.record_n(50_000_000, 10_000);
        });
        assert_eq!(never.limit, Some(Limit::Target));
        // No generator makes a target refuse.
        let refused = step(&["p99<20ms"], |r| {
            busy(r);
            r.counts.statuses = [(503, 10_000)].into();
        });
        assert_eq!(refused.limit, Some(Limit::Target));
    }
}
