//! What was asked of a run, as a list with outcomes: verdict, thresholds, checks and gates. The layouts for CI systems
//! print it.

use super::text::measured;
use crate::Report;
use crate::comparison::Condition;
use crate::report::{CheckResult, End, GateState, Grade, ThresholdResult, Verdict};
use crate::threshold::Threshold;
use crate::units::grouped;

/// One thing that was asked of a run.
#[derive(Debug)]
pub(super) struct Case {
    /// The scenario that it concerns; the whole run if none.
    pub(super) scenario: Option<String>,
    pub(super) kind: Kind,
    /// Text of the user: a condition, a check; or `verdict`.
    pub(super) name: String,
    pub(super) outcome: Outcome,
}

/// Kinds of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Check,
    End,
    Gate,
    Part,
    Threshold,
    Verdict,
}

/// What became of a case. The text is the observation, in one line.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The result cannot be used.
    Error(String),
    Failed(String),
    /// Passed, with something that readers should know.
    Noted(String),
    Passed(String),
    /// Not judged.
    Skipped(String),
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::End => "end",
            Self::Gate => "gate",
            Self::Part => "part",
            Self::Threshold => "threshold",
            Self::Verdict => "verdict",
        }
    }
}

impl Outcome {
    pub(super) const fn is_bad(&self) -> bool {
        matches!(self, Self::Error(_) | Self::Failed(_))
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Error(text)
            | Self::Failed(text)
            | Self::Noted(text)
            | Self::Passed(text)
            | Self::Skipped(text) => text,
        }
    }
}

/// The cases of a run: the verdict first, then the parts of its load, thresholds, gates and checks in the order given.
pub(super) fn cases(r: &Report) -> Vec<Case> {
    let mut all = vec![verdict(r)];
    all.extend(r.parts.iter().map(|part| {
        let scenario = part.name.split_once('.').and_then(|(scenario, _)| scenario_of(r, scenario));
        // A part is INVALID by its own figures; the run's verdict is the case that decides.
        let outcome = match told(&part.verdict) {
            (Grade::Valid, text) => Outcome::Passed(text),
            (_, text) => Outcome::Noted(text),
        };
        Case { scenario, kind: Kind::Part, name: part.name.clone(), outcome }
    }));
    if let End::Aborted { condition } = &r.end {
        let text = format!("the run was aborted by --abort-on {condition}");
        let outcome = Outcome::Failed(text);
        all.push(Case { scenario: None, kind: Kind::End, name: condition.clone(), outcome });
    }
    all.extend(r.thresholds.iter().map(|t| {
        let outcome = if t.passed { Outcome::Passed(measured(t)) } else { Outcome::Failed(wanted(t)) };
        let scope = Threshold::parse("", &t.threshold).ok().and_then(|t| t.scope().map(str::to_owned));
        let scenario = scope.and_then(|scope| scenario_of(r, &scope));
        Case { scenario, kind: Kind::Threshold, name: t.threshold.clone(), outcome }
    }));
    all.extend(r.judgement.iter().flat_map(|j| &j.gates).map(|gate| {
        let text = gate.text.clone();
        let outcome = match gate.state {
            GateState::Broken => Outcome::Failed(text),
            GateState::Held => Outcome::Passed(text),
            GateState::Unknown => Outcome::Skipped(text),
        };
        let scope = Condition::of_run(&gate.condition).ok().and_then(|condition| condition.scope);
        let scenario = scope.and_then(|scope| scenario_of(r, &scope));
        Case { scenario, kind: Kind::Gate, name: gate.condition.clone(), outcome }
    }));
    all.extend(r.checks.iter().map(|c| check(None, c.check.clone(), c)));
    for step in &r.steps {
        let scenario = Some(step.scenario.clone()).filter(|name| !name.is_empty());
        let named = |c: &CheckResult| check(scenario.clone(), format!("{}: {}", step.name, c.check), c);
        all.extend(step.checks.iter().map(named));
    }
    all
}

fn check(scenario: Option<String>, name: String, c: &CheckResult) -> Case {
    let text = format!("passed by {} of {} responses", grouped(c.passed), grouped(c.passed + c.failed));
    let outcome = match (c.passed, c.failed) {
        (0, 0) => Outcome::Skipped("no response to check".to_owned()),
        (_, 0) => Outcome::Passed(text),
        _ => Outcome::Failed(text),
    };
    Case { scenario, kind: Kind::Check, name, outcome }
}

/// The scenario that a scope names: itself, or that of the only step with this name.
fn scenario_of(r: &Report, scope: &str) -> Option<String> {
    if r.scenarios.iter().any(|scenario| scenario.name == scope) {
        return Some(scope.to_owned());
    }
    let mut steps = r.steps.iter().filter(|step| step.name == scope || step.full_name() == scope);
    let first = steps.next()?;
    (steps.next().is_none() && !first.scenario.is_empty()).then(|| first.scenario.clone())
}

fn verdict(r: &Report) -> Case {
    let (grade, text) = told(&r.verdict);
    let required = r.judgement.as_ref().and_then(|j| j.required);
    let outcome = match grade {
        Grade::Invalid => Outcome::Error(text),
        _ if required.is_some_and(|required| grade > required) => Outcome::Failed(text),
        Grade::Suspect => Outcome::Noted(text),
        Grade::Valid if r.verdict.reasons.is_empty() => Outcome::Passed(text),
        Grade::Valid => Outcome::Noted(text),
    };
    Case { scenario: None, kind: Kind::Verdict, name: "verdict".to_owned(), outcome }
}

/// A verdict with its reasons, in one line.
fn told(verdict: &Verdict) -> (Grade, String) {
    let reasons: Vec<String> = verdict.reasons.iter().map(|n| format!("{}: {}", n.code, n.text)).collect();
    let grade = verdict.grade;
    (grade, if reasons.is_empty() { grade.to_string() } else { format!("{grade}: {}", reasons.join("; ")) })
}

/// `p99 212.0 ms, wanted < 200ms`.
fn wanted(t: &ThresholdResult) -> String {
    let text = t.threshold.trim();
    let at = text.find(['<', '>', '=', '!']).unwrap_or(text.len());
    let (name, rest) = text.split_at(at);
    let end = rest.find(|c| !['<', '>', '=', '!'].contains(&c)).unwrap_or(rest.len());
    let (order, bound) = rest.split_at(end);
    format!("{} {}, wanted {order} {}", name.trim(), measured(t), bound.trim())
}

/// The name of the run: as given, or its first target.
pub(super) fn title(r: &Report) -> String {
    if !r.plan.name.is_empty() {
        return r.plan.name.clone();
    }
    r.plan.targets.first().map_or_else(|| "weir load".to_owned(), |t| format!("{} {}", t.method, t.url))
}

/// Text in which no control character is left, and no character that XML 1.0 forbids. Line ends become blanks.
pub(super) fn clean(text: &str) -> String {
    let clean = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
        c => c,
    };
    text.chars().map(clean).collect()
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::report::{GateResult, Judgement, Reason, TargetPlan};

    /// What a hostile name may hold.
    pub(crate) const HOSTILE: &str =
        "a<b>]]>&\"'|`*_[x](y)#\\\n::error::x\r\n%0A\u{1b}[31m\u{0}\u{ffff}@user =cmd()";

    /// A run with every kind of case, good and bad, whose texts are hostile.
    pub(crate) fn report() -> Report {
        let mut r = Report { duration_ns: 12_345_678_901, ..Report::default() };
        r.started_unix_ms = 1_795_284_234_000;
        r.plan.name = HOSTILE.to_owned();
        r.plan.targets = vec![TargetPlan {
            method: "GET".to_owned(),
            url: format!("http://a/{HOSTILE}"),
            weight: 1,
            ..TargetPlan::default()
        }];
        r.counts.responses = 1_000;
        r.counts.requests = 1_000;
        r.latency.response.record_n(212_000_000, 1_000);
        r.latency.service.record_n(200_000_000, 1_000);
        let reason = |code: &str, grade| Reason { code: code.to_owned(), grade, text: HOSTILE.to_owned() };
        r.verdict.grade = Grade::Invalid;
        r.verdict.reasons = vec![reason("mostly_errors", Grade::Invalid), reason("resumed", Grade::Valid)];
        let threshold = |text: &str, measured, passed| ThresholdResult {
            threshold: text.to_owned(),
            measured: Some(measured),
            passed,
            unanswered: false,
        };
        r.thresholds = vec![threshold("p99<200ms", 212e6, false), threshold("rate>1", 99.0, true)];
        r.checks = vec![
            CheckResult { check: format!("body~{HOSTILE}"), passed: 999, failed: 1 },
            CheckResult { check: "status=200".to_owned(), passed: 1_000, failed: 0 },
        ];
        let gate = |condition: &str, state| GateResult {
            condition: condition.to_owned(),
            state,
            text: HOSTILE.to_owned(),
        };
        r.judgement = Some(Judgement {
            gates: vec![
                gate("p99 worse 10%", GateState::Broken),
                gate("rate worse 10%", GateState::Held),
                gate("p50 worse 10%", GateState::Unknown),
            ],
            ..Judgement::default()
        });
        r.end = End::Aborted { condition: "errors>50%".to_owned() };
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_threshold_says_what_was_wanted() {
        let told = |threshold: &str, measured: Option<f64>| {
            wanted(&ThresholdResult {
                threshold: threshold.to_owned(),
                measured,
                passed: false,
                unanswered: measured.is_none(),
            })
        };
        assert_eq!(told("p99<200ms", Some(212e6)), "p99 212.0 ms, wanted < 200ms");
        assert_eq!(told("checks >= 100%", Some(0.5)), "checks 50.000 %, wanted >= 100%");
        assert_eq!(told("max<1s", None), "max that request had no response, wanted < 1s");
    }

    #[test]
    fn what_no_response_came_to_is_skipped() {
        let check = CheckResult { check: "status=200".to_owned(), ..CheckResult::default() };
        let r = Report { checks: vec![check], ..Report::default() };
        assert!(matches!(cases(&r)[1].outcome, Outcome::Skipped(_)), "{:?}", cases(&r));
    }

    #[test]
    fn a_part_is_a_case_that_tells_and_never_fails() {
        use crate::report::{PartStats, Reason};
        let mut r = Report::default();
        let mut part = PartStats { name: "spike".to_owned(), ..PartStats::default() };
        part.verdict.grade = Grade::Invalid;
        let text = "all users were busy".to_owned();
        part.verdict.reasons = vec![Reason { code: "rate_missed".to_owned(), grade: Grade::Invalid, text }];
        r.parts = vec![PartStats { name: "hold".to_owned(), ..PartStats::default() }, part];
        let all = cases(&r);
        assert!(matches!(&all[1].outcome, Outcome::Passed(text) if text == "VALID"), "{all:?}");
        assert!(
            matches!(&all[2].outcome, Outcome::Noted(text) if text == "INVALID: rate_missed: all users were busy")
        );
        assert_eq!((all[2].kind.name(), all[2].name.as_str()), ("part", "spike"));
    }

    #[test]
    fn a_suspect_result_fails_only_where_a_valid_one_is_required() {
        let mut r = testing::report();
        r.verdict.grade = Grade::Suspect;
        assert!(matches!(cases(&r)[0].outcome, Outcome::Noted(_)));
        r.judgement.get_or_insert_default().required = Some(Grade::Suspect);
        assert!(matches!(cases(&r)[0].outcome, Outcome::Noted(_)));
        r.judgement.get_or_insert_default().required = Some(Grade::Valid);
        assert!(matches!(cases(&r)[0].outcome, Outcome::Failed(_)));
    }
}
