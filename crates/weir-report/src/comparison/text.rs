//! A comparison as text: the verdict, a table of figures with their intervals, and the conditions.

use super::figures::{FIGURES, Figure, Unit};
use super::{CompareEnd, Comparison, ConditionResult, Interval, TargetResult};
use crate::units::{counted, grouped, time};
use std::fmt::Write;

impl Comparison {
    /// The comparison as text.
    pub fn to_text(&self) -> String {
        print(self)
    }
}

fn print(c: &Comparison) -> String {
    let mut out = format!("{}", c.grade);
    let reasons = c.reasons().into_iter();
    let reasons = reasons.map(|(name, code, n)| format!("{name}: {code} in {}", counted(n, "block")));
    let told: Vec<String> = c.unequal_lines().chain(c.one_sided_repeats()).chain(reasons).collect();
    if told.is_empty() {
        out.push('\n');
    }
    for (i, text) in told.into_iter().enumerate() {
        let lead = if i == 0 { "  " } else { "         " };
        let _ = writeln!(out, "{lead}{text}");
    }
    let _ = writeln!(
        out,
        "\n{} of {} (each {}, after {} of warm-up), {}; {}",
        counted(c.rounds, "round"),
        c.order.join(" "),
        time(c.block_ns as f64),
        time(c.warmup_ns as f64),
        counted(c.load.connections, "connection"),
        end(c)
    );
    if let Some(text) = c.repeated_words() {
        let _ = writeln!(out, "{text}");
    }
    out.push('\n');
    out += &columns(&table(c));
    if let Some(target) = c.targets.iter().find(|t| !t.added.is_empty()) {
        let rows =
            FIGURES.iter().filter_map(|f| Some(vec![f.name.to_owned(), signed(*target.added.get(f.name)?)]));
        let head = vec!["added".to_owned(), String::new()];
        let _ = write!(out, "\n{}", columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
    }
    if !c.conditions.is_empty() {
        out.push('\n');
    }
    for (held, text) in conditions(c) {
        let _ = writeln!(out, "{:<6} {text}", if held { "held" } else { "BROKEN" });
    }
    out
}

/// Why it ended.
pub(super) const fn end(c: &Comparison) -> &'static str {
    match c.end {
        CompareEnd::Interrupted => "interrupted",
        CompareEnd::Narrow => "intervals narrow enough",
        CompareEnd::NoResponse => "a target did not answer",
        CompareEnd::Time => "time up",
    }
}

/// Each condition's result, with the measured value.
pub(super) fn conditions(c: &Comparison) -> Vec<(bool, String)> {
    let one = |condition: &ConditionResult| {
        let said = condition.worse.map_or_else(|| NOT_MEASURED.to_owned(), worse);
        (condition.passed, format!("{}: {} is {said}", condition.condition, condition.target))
    };
    c.conditions.iter().map(one).collect()
}

/// Figures in rows, with names in the top row; each target with its ratio to the first.
pub(super) fn table(c: &Comparison) -> Vec<Vec<String>> {
    let mut head = vec![String::new()];
    let first = c.targets.first().map(|t| t.name.clone()).unwrap_or_default();
    for (i, target) in c.targets.iter().enumerate() {
        head.push(target.name.clone());
        if i > 0 {
            head.push(format!("to {first}"));
        }
    }
    let mut rows = vec![head];
    for figure in FIGURES.iter().filter(|f| c.targets.iter().any(|t| t.figures.contains_key(f.name))) {
        let mut row = vec![figure.name.to_owned()];
        for (i, target) in c.targets.iter().enumerate() {
            row.push(target.figures.get(figure.name).map_or_else(|| "-".to_owned(), |f| value(figure, *f)));
            if i > 0 {
                row.push(target.ratios.get(figure.name).map_or_else(|| "-".to_owned(), |r| ratio(*r)));
            }
        }
        rows.push(row);
    }
    let count = |name: &str, of: fn(&TargetResult) -> u64| {
        let cells = c.targets.iter().enumerate().flat_map(|(i, target)| {
            let blank = (i > 0).then(String::new);
            std::iter::once(grouped(of(target))).chain(blank)
        });
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    rows.push(count("responses", |t| t.responses));
    rows.push(count("errors", |t| t.errors));
    rows
}

/// One figure with its unit.
pub(super) fn plain(figure: &Figure, value: f64) -> String {
    match figure.unit {
        Unit::Cost | Unit::Latency => time(value),
        Unit::Rate => format!("{}/s", grouped(value.round() as u64)),
    }
}

/// Replaces an interval that is too wide to be useful.
const TOO_FEW: &str = "too few rounds";

/// Replaces a figure that is missing in some round.
const NOT_MEASURED: &str = "not measured: a round had no response, or too few for this percentile";

/// Largest useful factor between a ratio's bounds: beyond it, even the direction is uncertain.
const RATIO_MOST: f64 = 4.0;

/// Largest useful half-width of an interval, as a share of the estimate.
const SPREAD_MOST: f64 = 1.0;

fn value(figure: &Figure, interval: Interval) -> String {
    let text = plain(figure, interval.value);
    match interval.spread() {
        Some(spread) if spread > SPREAD_MOST => format!("{text} ({TOO_FEW})"),
        Some(spread) => format!("{text} ±{:.1} %", spread * 100.0),
        None => text,
    }
}

/// A ratio with its interval.
pub(super) fn ratio(interval: Interval) -> String {
    let range = match interval.range {
        None => format!(" ({TOO_FEW})"),
        Some(_) if is_too_wide(interval) => format!(" ({TOO_FEW})"),
        Some((low, high)) => format!(" ({low:.3} to {high:.3})"),
    };
    format!("×{:.3}{range}", interval.value)
}

/// Whether a ratio's interval is too wide to be useful.
pub(super) fn is_too_wide(ratio: Interval) -> bool {
    ratio.range.is_some_and(|(low, high)| low <= 0.0 || high / low > RATIO_MOST)
}

/// A difference of times, in nanoseconds.
pub(crate) fn signed(interval: Interval) -> String {
    let one = |ns: f64| format!("{}{}", if ns < 0.0 { "-" } else { "" }, time(ns.abs()));
    let range =
        interval.range.map_or_else(String::new, |(low, high)| format!(" ({} to {})", one(low), one(high)));
    format!("{}{range}", one(interval.value))
}

fn worse(interval: Interval) -> String {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let range = match interval.range {
        None => format!(" ({TOO_FEW})"),
        Some((low, high)) if high - low > 2.0 * SPREAD_MOST => format!(" ({TOO_FEW})"),
        Some((low, high)) => format!(", with 95 % confidence {} to {}", percent(low), percent(high)),
    };
    format!("{} % worse{range}", percent(interval.value))
}

/// Rows in columns: names left-aligned, everything else right-aligned.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|r| r.get(column)).map(|t| t.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, (text, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match i {
                0 => write!(line, "{text:<width$}"),
                _ => write!(line, "  {text:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_says_nothing_is_not_printed() {
        let of = |value, range| Interval { value, range };
        assert_eq!(ratio(of(1.03, Some((0.0, 138_424_634.0)))), "×1.030 (too few rounds)");
        assert_eq!(ratio(of(1.03, Some((0.4, 1.7)))), "×1.030 (too few rounds)");
        assert_eq!(ratio(of(1.03, Some((0.9, 1.2)))), "×1.030 (0.900 to 1.200)");
        assert_eq!(ratio(of(1.03, None)), "×1.030 (too few rounds)");
        let p99 = FIGURES.iter().find(|f| f.name == "p99").unwrap();
        assert_eq!(value(p99, of(2e6, Some((-1e6, 9e6)))), "2.000 ms (too few rounds)");
        assert_eq!(value(p99, of(2e6, Some((1.8e6, 2.2e6)))), "2.000 ms ±10.0 %");
        assert_eq!(worse(of(0.2, None)), "20.0 % worse (too few rounds)");
        assert_eq!(worse(of(0.2, Some((-7.0, 9.0)))), "20.0 % worse (too few rounds)");
        assert_eq!(worse(of(0.2, Some((0.1, 0.3)))), "20.0 % worse, with 95 % confidence 10.0 to 30.0");
    }
}
