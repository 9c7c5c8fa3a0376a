//! A comparison as one page: the verdict, the table, ratios with their intervals, how rounds went, latencies, and what conditions say.

use super::figures::{FIGURES, Figure};
use super::text::{conditions, end, plain, signed, table};
use super::{Comparison, ComparisonSet};
use crate::page::plot::{self, Axis, Line, Range};
use crate::page::{by_percentile, document, escaped, section, table as html_table, verdict};
use crate::units::{counted, grouped, time};

pub(super) fn print(c: &Comparison) -> String {
    let names: Vec<&str> = c.targets.iter().map(|t| t.name.as_str()).collect();
    document(c.grade, &escaped(&names.join(" and ")), &(sections(c) + &machine(c)))
}

pub(super) fn print_set(set: &ComparisonSet) -> String {
    let mut body = verdict(set.grade(), []);
    if !set.about.is_empty() {
        body += &format!("<p>{}</p>\n", escaped(&set.about));
    }
    for part in &set.workloads {
        body += &section(&escaped(&part.name), &sections(&part.comparison));
        let rows = part.table();
        if let [head, rows @ ..] = rows.as_slice()
            && !rows.is_empty()
        {
            let head: Vec<&str> = head.iter().map(String::as_str).collect();
            body += &format!("<h3>Published, and here</h3>{}", html_table(&head, escaped_all(rows)));
        }
    }
    let rows = set.left_out.iter().map(|l| [escaped(&l.target), escaped(&l.reason)]);
    if !set.left_out.is_empty() {
        body += &section("Left out", &html_table(&["", "why"], rows));
    }
    let rows = set.versions.iter().map(|(name, version)| [escaped(name), escaped(version)]);
    if !set.versions.is_empty() {
        body += &section("Versions", &html_table(&[], rows));
    }
    body += &set.workloads.first().map(|w| machine(&w.comparison)).unwrap_or_default();
    document(set.grade(), &escaped(&set.name), &body)
}

fn sections(c: &Comparison) -> String {
    let reasons = c.reasons().into_iter().map(|(name, code, n)| {
        format!("<code>{}</code>: {} in {}", escaped(code), escaped(name), counted(n, "block"))
    });
    let mut out = verdict(c.grade, reasons);
    out += &format!(
        "<p class=\"dim\">{} of {} (each {}, after {} of warm-up), {}; {}</p>\n",
        counted(c.rounds, "round"),
        escaped(&c.order.join(" ")),
        time(c.block_ns as f64),
        time(c.warmup_ns as f64),
        counted(c.load.connections, "connection"),
        end(c)
    );
    if let [head, rows @ ..] = table(c).as_slice() {
        let head: Vec<String> = head.iter().map(|cell| escaped(cell)).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        out += &html_table(&head, escaped_all(rows));
    }
    let told = conditions(c);
    if !told.is_empty() {
        let rows = told.iter().map(|(held, text)| {
            let word = if *held { "held" } else { "<span class=\"bad\">broken</span>" };
            [word.to_owned(), escaped(text)]
        });
        out += &format!("<h3>Conditions</h3>{}", html_table(&[], rows));
    }
    let mut plots: Vec<(String, String)> = Vec::new();
    plots.extend(ratios(c).map(|svg| ("Ratios to the first, 95 % intervals".to_owned(), svg)));
    plots.extend(added(c).map(|svg| ("What it adds to the first, 95 % intervals".to_owned(), svg)));
    for figure in FIGURES.iter().filter(|f| matches!(f.name, "rate" | "p50" | "p99" | "cost")) {
        plots.extend(rounds(c, figure).map(|svg| (format!("{} by round", figure.name), svg)));
    }
    let names: Vec<String> = c.targets.iter().map(|t| escaped(&t.name)).collect();
    let histograms: Vec<_> =
        names.iter().map(String::as_str).zip(c.targets.iter().map(|t| &t.latency)).collect();
    if histograms.iter().any(|(_, h)| !h.is_empty()) {
        plots.push(("Latency by percentile, all rounds".to_owned(), by_percentile(&histograms)));
    }
    let plots: String = plots.iter().map(|(name, svg)| format!("<div><h3>{name}</h3>{svg}</div>")).collect();
    out + &format!("<div class=\"plots\">{plots}</div>\n")
}

fn escaped_all(rows: &[Vec<String>]) -> impl Iterator<Item = Vec<String>> {
    rows.iter().map(|row| row.iter().map(|cell| escaped(cell)).collect())
}

/// Ratios to the first target, figure by figure.
fn ratios(c: &Comparison) -> Option<String> {
    let rows: Vec<Range> = FIGURES
        .iter()
        .flat_map(|figure| c.targets.iter().enumerate().map(move |(i, target)| (figure, i, target)))
        .filter_map(|(figure, class, target)| {
            let ratio = target.ratios.get(figure.name)?;
            let range =
                ratio.range.map_or_else(String::new, |(low, high)| format!(" ({low:.3} to {high:.3})"));
            let name = escaped(&format!("{} {}", figure.name, target.name));
            let text = format!("{name}: ×{:.3}{range}", ratio.value);
            // Half as much is as far from the mark as twice as much.
            let bounds = ratio.range.map(|(low, high)| (low.ln(), high.ln()));
            Some(Range { name, value: ratio.value.ln(), bounds, text, class })
        })
        .collect();
    let x = axis(&rows, 0.0, |ln| format!("×{:.2}", ln.exp()))?;
    Some(plot::ranges("Ratios to the first target", &x, 0.0, &rows))
}

/// What each target adds to the times of the first.
fn added(c: &Comparison) -> Option<String> {
    let rows: Vec<Range> = FIGURES
        .iter()
        .flat_map(|figure| c.targets.iter().enumerate().map(move |(i, target)| (figure, i, target)))
        .filter_map(|(figure, class, target)| {
            let added = target.added.get(figure.name)?;
            let name = escaped(&format!("{} {}", figure.name, target.name));
            let text = format!("{name}: {}", signed(*added));
            Some(Range { name, value: added.value, bounds: added.range, text, class })
        })
        .collect();
    let x = axis(&rows, 0.0, |ns| format!("{}{}", if ns < 0.0 { "-" } else { "" }, time(ns.abs())))?;
    Some(plot::ranges("What is added", &x, 0.0, &rows))
}

/// An axis that holds all rows and the mark; none without rows.
fn axis(rows: &[Range], mark: f64, name: impl Fn(f64) -> String) -> Option<Axis> {
    let all =
        || rows.iter().flat_map(|r| [Some(r.value), r.bounds.map(|b| b.0), r.bounds.map(|b| b.1)]).flatten();
    let least = all().chain([mark]).fold(f64::INFINITY, f64::min);
    let most = all().chain([mark]).fold(f64::NEG_INFINITY, f64::max);
    if rows.is_empty() || !least.is_finite() || !most.is_finite() {
        return None;
    }
    let room = ((most - least) * 0.05).max(1e-9);
    let (from, to) = (least - room, most + room);
    let marks = (0..=4).map(|i| from + (to - from) * f64::from(i) / 4.0).map(|at| (at, name(at))).collect();
    Some(Axis::exact(from, to, marks))
}

/// A figure of each target, round by round.
fn rounds(c: &Comparison, figure: &Figure) -> Option<String> {
    let lines: Vec<Line> = c
        .targets
        .iter()
        // One round, as of a saved report, is no line.
        .filter_map(|t| Some((t, t.rounds.get(figure.name).filter(|values| values.len() > 1)?)))
        .map(|(t, values)| Line {
            name: escaped(&t.name),
            points: values.iter().enumerate().map(|(i, v)| (i as f64 + 1.0, Some(*v))).collect(),
        })
        .collect();
    let count = lines.iter().map(|line| line.points.len()).max()?;
    let most = lines.iter().flat_map(|l| l.points.iter().filter_map(|(_, v)| *v)).fold(0.0, f64::max);
    let step = count.div_ceil(10);
    let marks = (1..=count).step_by(step).map(|i| (i as f64, i.to_string())).collect();
    let x = Axis::exact(1.0, count as f64, marks);
    let name: fn(f64) -> String = if figure.is_rate() { |v| grouped(v.round() as u64) } else { time };
    let title = format!("{} by round", figure.name);
    Some(plot::lines(&title, &x, &Axis::linear(most, name), &lines) + &spread(c, figure))
}

/// The means below the plot.
fn spread(c: &Comparison, figure: &Figure) -> String {
    let told = c.targets.iter().filter_map(|t| {
        let mean = t.figures.get(figure.name)?;
        Some(format!("<span>{}: {}</span> ", escaped(&t.name), plain(figure, mean.value)))
    });
    format!("<p class=\"legend\">{}</p>", told.collect::<String>())
}

fn machine(c: &Comparison) -> String {
    let g = &c.generator;
    let rows = [["machine".to_owned(), escaped(&g.machine())], ["Weir".to_owned(), escaped(&g.version)]];
    section("The generator", &html_table(&[], rows))
}
