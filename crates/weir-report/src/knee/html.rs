//! A search as an HTML page: the result, latency by rate, each rate tried.

use super::{Knee, Step, whole};
use crate::page::plot::{self, Axis, Line, Marks};
use crate::page::{document, escaped, section, short_time, table_with_words, verdict};
use crate::report::Percentiles;
use crate::threshold::Threshold;
use crate::units::grouped;

impl Knee {
    /// The page, with a plot of latency by rate.
    pub fn to_html(&self) -> String {
        print(self)
    }
}

fn print(knee: &Knee) -> String {
    let steps = knee.by_rate();
    let (grade, reasons) = knee.verdict();
    let title = escaped(&knee.found());
    let mut body = verdict(grade, reasons.into_iter().map(|code| format!("<code>{}</code>", escaped(code))));
    body += &format!("<p class=\"dim\">{}/s in a closed loop</p>\n", whole(knee.closed_rate));
    body += &section("Response time over rate", &over_rate(knee, &steps));
    let rows = steps.iter().map(|s| {
        [
            whole(s.rate),
            whole(s.responses_per_s),
            s.p50(),
            s.p99(),
            s.percentile(0.999, s.response.p999),
            format!("{:.2} %", s.failed_share * 100.0),
            if s.held { "held".to_owned() } else { "<span class=\"bad\">broken</span>".to_owned() },
            escaped(&s.reasons_shown().join(" ")),
        ]
    });
    let head = ["rate", "responses/s", "p50", "p99", "p99.9", "failed", "", "reasons"];
    body += &section("Rates", &table_with_words(&head, rows));
    document(grade, &title, &body)
}

/// Percentiles by rate, with the conditions and the result. For a repeated rate, the last try is on the line, because
/// it decided; the others are rings beside it. Lines are interrupted where no response came.
fn over_rate(knee: &Knee, steps: &[&Step]) -> String {
    let known = |of: Of| move |s: &Step| Some(of(&s.response) as f64).filter(|ns| *ns > 0.0);
    let (last, others): (Vec<_>, Vec<_>) = steps
        .iter()
        .enumerate()
        .partition(|(i, s)| steps.get(i + 1).is_none_or(|next| next.rate.total_cmp(&s.rate).is_ne()));
    let (mut lines, mut marks) = (Vec::new(), Marks::default());
    for (class, (name, of)) in PERCENTILES.into_iter().filter(|(name, _)| knee.draws(name)).enumerate() {
        let value = known(of);
        let points = last.iter().map(|(_, s)| (s.rate, value(s))).collect();
        lines.push(Line { name: name.to_owned(), points });
        marks.points.extend(others.iter().filter_map(|(_, s)| Some((s.rate, value(s)?, class))));
    }
    let bounds =
        knee.conditions.iter().filter_map(|c| Some((Threshold::parse("", c).ok()?.time()?, escaped(c))));
    marks.levels.extend(bounds);
    marks.places.extend(knee.rate.map(|rate| (rate, format!("{}/s holds", whole(rate)))));
    let most = steps.iter().map(|s| s.rate).fold(0.0, f64::max);
    let x = Axis::linear(most, |rate| format!("{}/s", grouped(rate.round() as u64)));
    let drawn = lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, ns)| *ns));
    let y = Axis::of(drawn.chain(marks.levels.iter().map(|(ns, _)| *ns)), short_time);
    let plot = plot::marked_lines("Response time over rate", &x, &y, &lines, &marks);
    format!("<div class=\"single\">{plot}</div>")
}

/// A percentile of a step.
type Of = fn(&Percentiles) -> u64;

/// The percentiles that can be drawn.
const PERCENTILES: [(&str, Of); 6] = [
    ("p50", |p| p.p50),
    ("p75", |p| p.p75),
    ("p90", |p| p.p90),
    ("p95", |p| p.p95),
    ("p99", |p| p.p99),
    ("p99.9", |p| p.p999),
];

impl Knee {
    /// Whether a percentile is drawn: the median, the tail, and those in conditions.
    fn draws(&self, name: &str) -> bool {
        let asked = |c: &String| c.split(['<', '>']).next().is_some_and(|metric| metric.trim() == name);
        ["p50", "p99", "p99.9"].contains(&name) || self.conditions.iter().any(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::testing::expect_sound;

    #[test]
    fn a_page_is_sound_with_and_without_steps() {
        let step = |rate: f64, p99: u64, held: bool| Step {
            rate,
            responses_per_s: rate,
            response: Percentiles { p50: p99 / 2, p99, p999: p99 * 2, ..Percentiles::default() },
            held,
            reasons: vec!["late_starts".to_owned()],
            ..Step::default()
        };
        let steps =
            vec![step(2000.0, 90_000_000, false), step(1000.0, 900_000, true), step(3000.0, 0, false)];
        let conditions = vec!["p99<20ms".to_owned()];
        let knee = Knee { rate: Some(1000.0), steps, conditions, ..Knee::default() };
        let page = print(&knee);
        expect_sound(&page);
        assert!(page.contains("1,000/s is the highest rate that holds p99&lt;20ms"), "{page}");
        assert!(
            page.contains("SUSPECT") && page.contains("late_starts") && page.contains("broken"),
            "{page}"
        );
        let order: Vec<_> =
            ["<td>1,000</td>", "<td>2,000</td>", "<td>3,000</td>"].map(|c| page.find(c)).into();
        assert!(order.is_sorted() && order[0].is_some(), "{order:?}");
        expect_sound(&print(&Knee::default()));
        assert!(page.contains("class=\"rule\"") && page.contains(">p99&lt;20ms</text>"), "{page}");
        assert!(page.contains(">1,000/s holds</text>"), "{page}");
        let invalid = Step { reasons: vec!["no_responses".to_owned()], ..step(1000.0, 0, false) };
        let page = print(&Knee { steps: vec![invalid], ..Knee::default() });
        assert!(page.contains("INVALID") && page.contains("no_responses"), "{page}");
    }

    #[test]
    fn a_rate_that_was_tried_again_is_no_scribble() {
        let step = |rate: f64, p99: u64| Step {
            rate,
            response: Percentiles { p50: p99 / 2, p99, ..Percentiles::default() },
            ..Step::default()
        };
        let steps = vec![step(1000.0, 4_000_000), step(2000.0, 90_000_000), step(2000.0, 8_000_000)];
        let knee = Knee { conditions: vec!["p95<20ms".to_owned()], steps, ..Knee::default() };
        let page = print(&knee);
        expect_sound(&page);
        let svg = page.split("<svg").nth(1).unwrap().split("</svg>").next().unwrap();
        let paths: Vec<&str> = svg.split("class=\"line ").skip(1).collect();
        assert_eq!(paths.len(), 4, "p50, p95, p99, p99.9: {svg}");
        let p99 = paths[2].split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(p99.matches(['M', 'L']).count(), 2, "{p99}");
        // The first try of the second rate, p50 and p99.
        assert_eq!(svg.matches(" one\"").count(), 2, "{svg}");
    }
}
