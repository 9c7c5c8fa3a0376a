//! `junit`: JUnit XML, valid against the schema of Jenkins' xUnit plugin (`junit-10.xsd`). A test suite for the run,
//! a test case for the verdict, each threshold, gate and check.

use super::cases::{Case, Kind, Outcome, cases, clean, title};
use super::format::Format;
use crate::report::Report;
use std::fmt::Write as _;

pub(super) static FORMAT: Format = Format {
    name: "junit",
    about: "JUnit XML for CI systems: a test case for the verdict, each threshold, gate and check",
    differs: "",
    print,
};

fn print(r: &Report) -> String {
    let all = cases(r);
    let time = seconds(r);
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    // Writing to a String cannot fail.
    let totals = totals(&all.iter().collect::<Vec<_>>()).0;
    let _ = writeln!(out, "<testsuites name=\"weir load\" {totals} time=\"{time}\">");
    let at = super::html::date(r.started_unix_ms).replace(' ', "T");
    let run = title(r);
    let scenarios = r.scenarios.iter().map(|scenario| Some(scenario.name.as_str()));
    for scenario in std::iter::once(None).chain(scenarios) {
        let of_it: Vec<&Case> = all.iter().filter(|case| case.scenario.as_deref() == scenario).collect();
        let (totals, skipped) = self::totals(&of_it);
        let name = escaped(&scenario.map_or_else(|| run.clone(), |name| format!("{run}: {name}")));
        // Some readers ignore a suite without content.
        if of_it.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "  <testsuite name=\"{name}\" {totals} skipped=\"{skipped}\" time=\"{time}\" timestamp=\"{at}\">"
        );
        of_it.iter().for_each(|case| one(&mut out, case, &time));
        out += "  </testsuite>\n";
    }
    out + "</testsuites>\n"
}

/// How many cases there are, as attributes, and how many are skipped.
fn totals(all: &[&Case]) -> (String, usize) {
    let count = |is: fn(&Outcome) -> bool| all.iter().filter(|case| is(&case.outcome)).count();
    let failures = count(|o| matches!(o, Outcome::Failed(_)));
    let errors = count(|o| matches!(o, Outcome::Error(_)));
    let skipped = count(|o| matches!(o, Outcome::Skipped(_)));
    (format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\"", all.len()), skipped)
}

fn one(out: &mut String, case: &Case, time: &str) {
    let (kind, name) = (case.kind.name(), escaped(&case.name));
    // The time of the run stands at the verdict only: CI systems add up the times of all cases.
    let time = if case.kind == Kind::Verdict { time } else { "0.000" };
    let text = escaped(case.outcome.text());
    let _ = write!(out, "    <testcase classname=\"weir.{kind}\" name=\"{name}\" time=\"{time}\"");
    let inside = match &case.outcome {
        Outcome::Error(_) => format!("<error type=\"{kind}\" message=\"{text}\"/>"),
        Outcome::Failed(_) => format!("<failure type=\"{kind}\" message=\"{text}\"/>"),
        Outcome::Noted(_) | Outcome::Passed(_) => format!("<system-out>{text}</system-out>"),
        Outcome::Skipped(_) => format!("<skipped message=\"{text}\"/>"),
    };
    let _ = writeln!(out, ">\n      {inside}\n    </testcase>");
}

/// Seconds with three digits, as the schema wants them.
fn seconds(r: &Report) -> String {
    format!("{:.3}", r.seconds())
}

/// Text for an attribute or an element. Without `>`, no `]]>` is left.
fn escaped(text: &str) -> String {
    crate::page::escaped(&clean(text)).replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::super::cases::testing;
    use super::*;
    use crate::xml::{Element, parse};

    /// An element, the attributes that it may have, those that it must have, and the elements that it may hold.
    type Rule = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

    /// The rules of `junit-10.xsd` for the elements that we write.
    const RULES: &[Rule] = &[
        ("testsuites", &["name", "time", "tests", "failures", "errors"], &[], &["testsuite"]),
        (
            "testsuite",
            &[
                "name",
                "tests",
                "failures",
                "errors",
                "group",
                "time",
                "skipped",
                "timestamp",
                "hostname",
                "id",
                "package",
                "file",
                "log",
                "url",
                "version",
            ],
            &["name", "tests", "failures", "errors"],
            &["testsuite", "properties", "testcase", "system-out", "system-err"],
        ),
        (
            "testcase",
            &["name", "time", "classname", "group"],
            &["name"],
            &[
                "skipped",
                "error",
                "failure",
                "rerunFailure",
                "rerunError",
                "flakyFailure",
                "flakyError",
                "system-out",
                "system-err",
            ],
        ),
        ("skipped", &["type", "message"], &[], &[]),
        ("error", &["type", "message"], &[], &[]),
        ("failure", &["type", "message"], &[], &[]),
        ("system-out", &[], &[], &[]),
    ];

    fn expect_valid(e: &Element) {
        let (_, may, must, inside) =
            RULES.iter().find(|(name, ..)| *name == e.name).unwrap_or_else(|| panic!("{}", e.name));
        assert!(e.attributes.iter().all(|(name, _)| may.contains(&name.as_str())), "{e:?}");
        assert!(must.iter().all(|name| e.attribute(name).is_some()), "{e:?}");
        for (name, value) in &e.attributes {
            match name.as_str() {
                "tests" | "failures" | "errors" | "skipped" => {
                    assert!(value.parse::<u64>().is_ok(), "{value}")
                }
                // SUREFIRE_TIME: at most three digits after the point.
                "time" => {
                    let (whole, part) = value.split_once('.').unwrap();
                    assert!(whole.parse::<u64>().is_ok() && part.len() == 3, "{value}");
                }
                _ => {}
            }
        }
        for child in &e.children {
            assert!(inside.contains(&child.name.as_str()), "{} in {}", child.name, e.name);
            expect_valid(child);
        }
    }

    #[test]
    fn every_case_is_there_whatever_its_texts_hold() {
        let text = print(&testing::report());
        let root = parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        expect_valid(&root);
        assert!(!text.contains("]]>") && !text.contains('\u{1b}') && !text.contains('\u{0}'), "{text}");
        let suite = &root.children[0];
        let said = |name: &str| suite.attribute(name).unwrap().to_owned();
        assert_eq!(
            ["tests", "failures", "errors", "skipped", "time"].map(said),
            ["9", "4", "1", "1", "12.346"]
        );
        assert_eq!(suite.attribute("name").unwrap(), clean(testing::HOSTILE));
        assert_eq!(suite.attribute("timestamp"), Some("2026-11-21T18:03:54"));
        let inside: Vec<&str> = suite.children.iter().map(|case| case.children[0].name.as_str()).collect();
        assert_eq!(
            inside,
            [
                "error",
                "failure",
                "failure",
                "system-out",
                "failure",
                "system-out",
                "skipped",
                "failure",
                "system-out"
            ]
        );
        let broken = &suite.children[2].children[0];
        assert_eq!(broken.attribute("message"), Some("p99 212.0 ms, wanted < 200ms"));
    }

    #[test]
    fn each_scenario_is_a_suite() {
        use crate::report::{CheckResult, ScenarioStats, StepStats, ThresholdResult};
        let mut r = Report::default();
        for name in ["browse", "buy", "idle"] {
            r.scenarios.push(ScenarioStats { name: name.to_owned(), ..ScenarioStats::default() });
        }
        let check = CheckResult { check: "status=200".to_owned(), passed: 1, failed: 1 };
        r.steps = vec![StepStats {
            scenario: "buy".to_owned(),
            name: "pay".to_owned(),
            checks: vec![check],
            ..StepStats::default()
        }];
        let threshold = |text: &str| ThresholdResult {
            threshold: text.to_owned(),
            measured: Some(2e9),
            ..ThresholdResult::default()
        };
        r.thresholds = ["p99<1s", "pay: p99<1s", "browse: p99<1s"].map(threshold).to_vec();
        let root = parse(&print(&r)).unwrap();
        expect_valid(&root);
        let suites: Vec<_> =
            root.children.iter().map(|s| (s.attribute("name").unwrap(), s.children.len())).collect();
        assert_eq!(suites, [("weir load", 2), ("weir load: browse", 1), ("weir load: buy", 2)]);
        let failed = &root.children[2].children[0].children[0];
        assert_eq!(failed.attribute("message"), Some("pay: p99 2.000 s, wanted < 1s"));
    }

    #[test]
    fn a_run_of_which_nothing_was_asked_has_one_case() {
        let root = parse(&print(&Report::default())).unwrap();
        expect_valid(&root);
        assert_eq!(root.children[0].attribute("tests"), Some("1"));
    }
}
