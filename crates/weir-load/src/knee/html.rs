//! A search as one page: what was found, latency over rate, each rate that was tried.

use super::{Knee, Step, whole};
use crate::page::plot::{self, Axis, Line};
use crate::page::{document, escaped, section, table, verdict};
use crate::report::Percentiles;
use crate::units::{grouped, time};

pub(super) fn print(knee: &Knee) -> String {
    let steps = knee.by_rate();
    let (grade, reasons) = knee.verdict();
    let title = escaped(&knee.found());
    let mut body = verdict(grade, reasons.into_iter().map(|code| format!("<code>{}</code>", escaped(code))));
    body += &format!("<p class=\"dim\">{}/s in a closed loop</p>\n", whole(knee.closed_rate));
    body += &section("Response time over rate", &over_rate(&steps));
    let rows = steps.iter().map(|s| {
        [
            whole(s.rate),
            whole(s.responses_per_s),
            time(s.response.p50 as f64),
            time(s.response.p99 as f64),
            time(s.response.p999 as f64),
            format!("{:.2} %", s.failed_share * 100.0),
            if s.held { "held".to_owned() } else { "<span class=\"bad\">broken</span>".to_owned() },
            escaped(&s.told().join(" ")),
        ]
    });
    let head = ["rate", "responses/s", "p50", "p99", "p99.9", "failed", "", "reasons"];
    body += &section("Rates", &table(&head, rows));
    document(grade, &title, &body)
}

/// Three percentiles over the rate; where nothing came, the lines are interrupted.
fn over_rate(steps: &[&Step]) -> String {
    let line = |name: &str, of: fn(&Percentiles) -> u64| Line {
        name: name.to_owned(),
        points: steps.iter().map(|s| (s.rate, Some(of(&s.response) as f64).filter(|ns| *ns > 0.0))).collect(),
    };
    let lines = [line("p50", |p| p.p50), line("p99", |p| p.p99), line("p99.9", |p| p.p999)];
    let most = steps.iter().map(|s| s.rate).fold(0.0, f64::max);
    let x = Axis::linear(most, |rate| format!("{}/s", grouped(rate.round() as u64)));
    let values = lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, ns)| *ns));
    plot::lines("Response time over rate", &x, &Axis::of(values, time), &lines)
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
        let invalid = Step { reasons: vec!["no_responses".to_owned()], ..step(1000.0, 0, false) };
        let page = print(&Knee { steps: vec![invalid], ..Knee::default() });
        assert!(page.contains("INVALID") && page.contains("no_responses"), "{page}");
    }
}
