//! `github`: workflow commands of GitHub Actions, an `::error` for each thing that failed and a `::warning` for a
//! SUSPECT result. The runner shows them at the job.

use super::cases::{Kind, Outcome, cases, clean};
use super::format::Format;
use crate::report::{Grade, Report};
use std::fmt::Write as _;

pub(super) static FORMAT: Format = Format {
    name: "github",
    about: "annotations of GitHub Actions: an ::error for each failure, a ::warning for a SUSPECT result",
    differs: "",
    print,
};

fn print(r: &Report) -> String {
    let mut out = String::new();
    for case in cases(r) {
        let word = match (&case.outcome, case.kind) {
            (Outcome::Error(_) | Outcome::Failed(_), _) => "error",
            (Outcome::Noted(_), Kind::Verdict) if r.verdict.grade == Grade::Suspect => "warning",
            (Outcome::Skipped(_), _) => "notice",
            _ => continue,
        };
        let title = property(&format!("weir::{}::{}", case.kind.name(), case.name));
        let _ = writeln!(out, "::{word} title={title}::{}", data(case.outcome.text())); // infallible
    }
    out
}

/// A message. The runner reads a command up to the end of its line.
fn data(text: &str) -> String {
    clean(text).replace('%', "%25")
}

/// A property's value, which also ends at `:` and `,`.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::cases::testing;
    use super::*;

    #[test]
    fn a_line_is_a_command_whatever_the_texts_hold() {
        let text = print(&testing::report());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        for line in &lines {
            let (head, message) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
            let (word, title) = head.split_once(" title=").unwrap();
            assert!(["error", "notice"].contains(&word), "{line}");
            assert!(!title.contains([':', ',']) && !message.contains(['\n', '\r', '\u{1b}']), "{line}");
        }
        assert_eq!(
            lines[2],
            "::error title=weir%3A%3Athreshold%3A%3Ap99<200ms::p99 212.0 ms, wanted < 200ms"
        );
        assert!(lines[5].contains("%25"), "a `%0A` in a text is no line end: {text}");
    }

    #[test]
    fn a_good_run_says_nothing_and_a_suspect_one_warns() {
        assert_eq!(print(&Report::default()), "");
        let mut r = Report::default();
        r.verdict.grade = Grade::Suspect;
        assert_eq!(print(&r), "::warning title=weir%3A%3Averdict%3A%3Averdict::SUSPECT\n");
    }
}
