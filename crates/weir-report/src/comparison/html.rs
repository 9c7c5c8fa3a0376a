//! A comparison as an HTML page: verdict, table, ratios with their intervals, rounds, latencies and conditions.

use super::figures::{FIGURES, Figure};
use super::text::{conditions, end, is_too_wide, plain, ratio as written, signed, table};
use super::{Comparison, ComparisonSet};
use crate::page::plot::{self, Axis, Line, Range, round_step};
use crate::page::{
    by_percentile, document, escaped, section, short_time, table as html_table, table_with_words, verdict,
};
use crate::units::{counted, grouped, time};

impl Comparison {
    /// The page, readable offline.
    pub fn to_html(&self) -> String {
        print(self)
    }
}

impl ComparisonSet {
    /// The page, readable offline.
    pub fn to_html(&self) -> String {
        print_set(self)
    }
}

fn print(c: &Comparison) -> String {
    let names: Vec<&str> = c.targets.iter().map(|t| t.name.as_str()).collect();
    document(c.grade, &escaped(&names.join(" and ")), &(sections(c) + &machine(c)))
}

fn print_set(set: &ComparisonSet) -> String {
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
        body += &section("Left out", &table_with_words(&["", "why"], rows));
    }
    let rows = set.versions.iter().map(|(name, version)| [escaped(name), escaped(version)]);
    if !set.versions.is_empty() {
        body += &section("Versions", &table_with_words(&[], rows));
    }
    body += &set.workloads.first().map(|w| machine(&w.comparison)).unwrap_or_default();
    document(set.grade(), &escaped(&set.name), &body)
}

fn sections(c: &Comparison) -> String {
    let reasons = c.reasons().into_iter().map(|(name, code, n)| {
        format!("<code>{}</code>: {} in {}", escaped(code), escaped(name), counted(n, "block"))
    });
    let told = c.unequal_lines().chain(c.one_sided_repeats()).map(|text| escaped(&text));
    let mut out = verdict(c.grade, told.chain(reasons));
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
        // Each interval is below its estimate, so that several targets fit side by side.
        let rows = escaped_all(rows)
            .map(|row| row.into_iter().map(|cell| cell.replace(" (", "<br>(")).collect::<Vec<_>>());
        out += &html_table(&head, rows);
    }
    out += &repeated(c);
    let told = conditions(c);
    if !told.is_empty() {
        let rows = told.iter().map(|(held, text)| {
            let word = if *held { "held" } else { "<span class=\"bad\">broken</span>" };
            [word.to_owned(), escaped(text)]
        });
        out += &format!("<h3>Conditions</h3>{}", table_with_words(&[], rows));
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

/// The blocks that were measured again, with their first figures.
fn repeated(c: &Comparison) -> String {
    let Some(words) = c.repeated_words() else { return String::new() };
    let shown = FIGURES.iter().filter(|f| matches!(f.name, "rate" | "p50" | "p99" | "cost"));
    let shown: Vec<&Figure> = shown.collect();
    let head = ["round", "", "reasons"].into_iter().chain(shown.iter().map(|f| f.name)).chain(["cause"]);
    let head: Vec<&str> = head.collect();
    let rows = c.repeated.iter().map(|block| {
        let mut row =
            vec![block.round.to_string(), escaped(&block.target), escaped(&block.reasons.join(", "))];
        let value = |f: &&Figure| block.figures.get(f.name).map_or_else(|| "-".to_owned(), |v| plain(f, *v));
        row.extend(shown.iter().map(value));
        row.push(escaped(&block.cause));
        row
    });
    let table = table_with_words(&head, rows);
    format!("<h3>Measured again</h3><p>{}.</p>{table}", escaped(&words))
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
            let name = escaped(&format!("{} {}", figure.name, target.name));
            let text = format!("{name}: {}", written(*ratio));
            // On this axis, half is as far from the center as double.
            let bounds =
                ratio.range.filter(|_| !is_too_wide(*ratio)).map(|(low, high)| (low.ln(), high.ln()));
            Some(Range { name, value: ratio.value.ln(), bounds, text, class })
        })
        .collect();
    let x = ratio_axis(&rows)?;
    Some(plot::ranges("Ratios to the first target", &x, 0.0, &rows))
}

/// The latency that each target adds to the first.
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
    let (from, to) = ends(&rows)?;
    let x =
        Axis::within(from, to, |ns| format!("{}{}", if ns < 0.0 { "-" } else { "" }, short_time(ns.abs())));
    Some(plot::ranges("What is added", &x, 0.0, &rows))
}

/// The range of all rows, extended to include 0; `None` without rows.
fn ends(rows: &[Range]) -> Option<(f64, f64)> {
    let all =
        || rows.iter().flat_map(|r| [Some(r.value), r.bounds.map(|b| b.0), r.bounds.map(|b| b.1)]).flatten();
    let least = all().fold(0.0, f64::min);
    let most = all().fold(0.0, f64::max);
    if rows.is_empty() || !least.is_finite() || !most.is_finite() {
        return None;
    }
    let room = ((most - least) * 0.05).max(1e-9);
    Some((least - room, most + room))
}

/// The logarithms of ratios, with labels at round ratios: always at ×1, far from it at powers of a round number.
fn ratio_axis(rows: &[Range]) -> Option<Axis> {
    // Wide enough for two labels.
    let (from, to) = ends(rows).map(|(from, to)| (from.min(-0.012), to.max(0.012)))?;
    let name = |ln: f64| {
        let text = format!("×{:.3}", ln.exp());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let span = to - from;
    let marks: Vec<f64> = if span > 2f64.ln() {
        // About five labels: 2, 4, 8 …, or 10, 100 …
        let base =
            [2.0, 4.0, 10.0, 100.0, 1e4].into_iter().find(|b| span / f64::ln(*b) <= 6.0).unwrap_or(1e6);
        let step = base.ln();
        ((from / step).ceil() as i32..=(to / step).floor() as i32).map(|i| f64::from(i) * step).collect()
    } else {
        let step = round_step((to.exp() - from.exp()) / 6.0);
        let (first, last) = ((from.exp() / step).ceil() as i32, (to.exp() / step).floor() as i32);
        (first..=last).map(|i| (f64::from(i) * step).ln()).collect()
    };
    Some(Axis::exact(from, to, marks.into_iter().map(|ln| (ln, name(ln))).collect(), name))
}

/// A figure of each target, round by round.
fn rounds(c: &Comparison, figure: &Figure) -> Option<String> {
    let lines: Vec<Line> = c
        .targets
        .iter()
        // A single round, as from a saved report, makes no line.
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
    let x = Axis::exact(1.0, count as f64, marks, |round| format!("round {round}"));
    let name: fn(f64) -> String = if figure.is_rate() { |v| grouped(v.round() as u64) } else { short_time };
    let title = format!("{} by round", figure.name);
    Some(plot::lines(&title, &x, &Axis::linear(most, name), &lines) + &spread(c, figure))
}

/// The means under the plot.
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
    section("The generator", &table_with_words(&[], rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_round_labels() {
        let labels = |values: &[f64]| {
            let row = |v: &f64| Range {
                name: String::new(),
                value: v.ln(),
                bounds: None,
                text: String::new(),
                class: 0,
            };
            let x = ratio_axis(&values.iter().map(row).collect::<Vec<_>>()).unwrap();
            plot::ranges("t", &x, 0.0, &[])
                .split("</text>")
                .filter_map(|part| Some(part.rsplit_once('>')?.1.to_owned()))
                .filter(|label| label.starts_with('×'))
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(&[0.3, 5.2]), ["×0.5", "×1", "×2", "×4"]);
        assert_eq!(labels(&[0.98, 1.03]), ["×0.98", "×0.99", "×1", "×1.01", "×1.02", "×1.03"]);
        assert_eq!(labels(&[1.0]), ["×0.99", "×0.995", "×1", "×1.005", "×1.01"]);
        assert_eq!(labels(&[0.004, 30.0]), ["×0.01", "×0.1", "×1", "×10"]);
        assert!(ratio_axis(&[]).is_none());
    }
}
