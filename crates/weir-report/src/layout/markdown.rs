//! `markdown`: a summary for pull requests and GitHub's step summary: the verdict, what failed, the figures with
//! their change, and the reasons.
//!
//! Texts from users and targets are written as HTML with numeric entities, which no rule of Markdown touches.

use super::cases::{Case, Outcome, cases, clean, title};
use super::format::Format;
use crate::report::{FigureChange, Grade, Percentiles, Report};
use crate::units::{counted, grouped, time};
use std::fmt::Write as _;

pub(super) static FORMAT: Format = Format {
    name: "markdown",
    about: "a summary in Markdown: verdict, what failed, figures with their change against the baseline",
    differs: "",
    print,
};

/// GitHub accepts a step summary of at most 1 MiB.
const MOST: usize = 1 << 20;

/// Cases of one outcome that are listed.
const CASES_MOST: usize = 100;

fn print(r: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let sign = match r.verdict.grade {
        Grade::Invalid => "❌",
        Grade::Suspect => "⚠️",
        Grade::Valid => "✅",
    };
    let _ = writeln!(out, "### {sign} {}: {}\n", r.verdict.grade, code(&title(r)));
    let all = cases(r);
    list(&mut out, &all, "❌", Outcome::is_bad);
    list(&mut out, &all, "⏭️", |outcome| matches!(outcome, Outcome::Skipped(_)));
    figures(&mut out, r);
    let good: Vec<&Case> = all.iter().filter(|case| matches!(case.outcome, Outcome::Passed(_))).collect();
    if !good.is_empty() {
        let _ = writeln!(out, "\n<details><summary>{} passed</summary>\n", good.len());
        for case in good.iter().take(CASES_MOST) {
            let _ =
                writeln!(out, "- {} {}: {}", case.kind.name(), code(&case.name), plain(case.outcome.text()));
        }
        out += "\n</details>\n";
    }
    if !r.verdict.reasons.is_empty() {
        out += "\n<details><summary>Reasons of the verdict</summary>\n\n";
        for reason in &r.verdict.reasons {
            let _ = writeln!(out, "- {} ({}): {}", code(&reason.code), reason.grade, plain(&reason.text));
        }
        out += "\n</details>\n";
    }
    out.push('\n');
    if out.len() > MOST {
        let note = "\n\n(cut: a summary holds at most 1 MiB)\n";
        let end = (0..=MOST - note.len()).rev().find(|at| out.is_char_boundary(*at)).unwrap_or(0);
        out.truncate(end);
        out += note;
    }
    out
}

/// The cases with an outcome, one line each.
fn list(out: &mut String, all: &[Case], sign: &str, is: impl Fn(&Outcome) -> bool) {
    let these: Vec<&Case> = all.iter().filter(|case| is(&case.outcome)).collect();
    for case in these.iter().take(CASES_MOST) {
        let _ = writeln!(
            out,
            "- {sign} {} {}: {}",
            case.kind.name(),
            code(&case.name),
            plain(case.outcome.text())
        );
    }
    if these.len() > CASES_MOST {
        let _ = writeln!(out, "- {sign} and {} more", these.len() - CASES_MOST);
    }
    if !these.is_empty() {
        out.push('\n');
    }
}

fn figures(out: &mut String, r: &Report) {
    let judgement = r.judgement.as_ref();
    let changes: &[FigureChange] = judgement.map_or(&[], |j| &j.changes);
    let of = |name: &str| changes.iter().find(|change| change.figure == name);
    let p = Percentiles::of(&r.latency.response);
    let times = [
        ("mean", p.mean, 0.0),
        ("p50", p.p50 as f64, 0.5),
        ("p75", p.p75 as f64, 0.75),
        ("p90", p.p90 as f64, 0.9),
        ("p95", p.p95 as f64, 0.95),
        ("p99", p.p99 as f64, 0.99),
        ("p99.9", p.p999 as f64, 0.999),
    ];
    let mut rows = vec![("rate", format!("{}/s", super::text::number(r.rate())))];
    let count = r.latency.response.count();
    let known = times.iter().filter(|(_, _, quantile)| count > 0 && Percentiles::are_known(*quantile, count));
    rows.extend(known.map(|(name, ns, _)| (*name, time(*ns))));
    let cost = r.target_cost.as_ref().filter(|cost| cost.responses > 0);
    rows.extend(cost.map(|cost| ("cost", time(cost.cpu_ns as f64 / cost.responses as f64))));
    if changes.is_empty() {
        out.push_str("| figure | this run |\n|---|---:|\n");
    } else {
        out.push_str("| figure | this run | baseline | change | |\n|---|---:|---:|---:|---|\n");
    }
    // The worst first.
    rows.sort_by(|(a, _), (b, _)| {
        let rank = |name: &str| of(name).map_or(1, |change| u8::from(!change.is_worse()));
        rank(a).cmp(&rank(b))
    });
    for (name, now) in rows {
        let _ = write!(out, "| {name} | {now} |");
        match of(name) {
            Some(change) => {
                let _ = write!(
                    out,
                    " {} | {} | {} |",
                    change.before_text(),
                    change.change_text(),
                    change.words()
                );
            }
            None if !changes.is_empty() => out.push_str(" | | |"),
            None => {}
        }
        out.push('\n');
    }
    let c = &r.counts;
    let _ = writeln!(
        out,
        "\n{}, {}, {:.2} s",
        counted(c.responses, "response"),
        counted(c.errors.total(), "error"),
        r.rated().seconds()
    );
    if let Some(used) = judgement.and_then(|j| j.baseline.as_ref()) {
        let _ = writeln!(out, "\n{}: {}", code(&used.file), plain(&used.words()));
    }
    let statuses: Vec<String> = c.statuses.iter().map(|(s, n)| format!("{s}: {}", grouped(*n))).collect();
    if !statuses.is_empty() {
        let _ = writeln!(out, "\n{}", statuses.join(", "));
    }
}

/// Text as code, on one line.
fn code(text: &str) -> String {
    format!("<code>{}</code>", plain(text))
}

/// Text that no rule of Markdown or HTML applies to.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        match c {
            ' ' | ',' | '.' | '%' | ';' | '/' | '?' | '=' => out.push(c),
            c if c.is_alphanumeric() || !c.is_ascii() => out.push(c),
            c => {
                let _ = write!(out, "&#{};", c as u32);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::cases::testing;
    use super::*;
    use crate::comparison::Interval;
    use crate::report::{BaselineUse, Outlook};

    #[test]
    fn no_text_of_others_is_markdown_or_html() {
        let text = print(&testing::report());
        for bad in ["<b>", "]]>", "|`", "\n::", "[x](y)", "@user", "\u{1b}", "\u{0}", "*_", "**"] {
            assert!(!text.contains(bad), "{bad:?} in {text}");
        }
        assert!(text.starts_with("### ❌ INVALID: <code>a&#60;b&#62;&#93;&#93;&#62;&#38;"), "{text}");
        assert!(
            text.contains("- ❌ threshold <code>p99&#60;200ms</code>: p99 212.0 ms, wanted &#60; 200ms"),
            "{text}"
        );
        let columns = |line: &str| line.matches('|').count();
        assert!(text.lines().filter(|l| l.starts_with('|')).all(|l| columns(l) == 3), "{text}");
    }

    #[test]
    fn figures_stand_beside_the_baseline_the_worst_first() {
        let mut r = testing::report();
        let judgement = r.judgement.get_or_insert_default();
        judgement.baseline =
            Some(BaselineUse { file: "b.json".to_owned(), runs: 5, ..BaselineUse::default() });
        let change = |figure: &str, worse: f64, outlook| FigureChange {
            figure: figure.to_owned(),
            before: 2e8,
            now: 2.12e8,
            worse: Interval { value: worse, range: Some((worse - 0.02, worse + 0.02)) },
            outlook,
            could_see: 0.04,
            ..FigureChange::default()
        };
        judgement.changes =
            vec![change("p50", 0.01, Outlook::NoDifference), change("p99", 0.06, Outlook::Worse)];
        let text = print(&r);
        let rows: Vec<&str> = text.lines().filter(|l| l.starts_with("| p")).collect();
        assert_eq!(rows[0], "| p99 | 212.0 ms | 200.0 ms | +6.0 % (+4.0 to +8.0) | worse |", "{text}");
        assert!(rows[1].ends_with("no difference seen (could have seen 4.0 %) |"), "{text}");
    }

    #[test]
    fn a_long_summary_is_cut() {
        let mut r = testing::report();
        r.verdict.reasons[0].text = "é|".repeat(1 << 20);
        let text = print(&r);
        assert!(text.len() <= MOST && text.ends_with("at most 1 MiB)\n"), "{}", text.len());
    }
}
