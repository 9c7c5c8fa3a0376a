//! Line charts as SVG, coloured by the style sheet. The numbers appear next to the chart as text, and in its
//! label for screen readers.

use crate::html::{Html, each};
use std::fmt::Write;

/// Size of the drawing in its own units. It is stretched to its place on the page.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;

/// A line of a chart.
pub(crate) struct Line<'a> {
    pub(crate) class: &'static str,
    pub(crate) name: &'a str,
    pub(crate) values: Vec<Option<f64>>,
    /// Formats a value.
    pub(crate) say: fn(f64) -> String,
}

/// A chart of lines that share an axis. `step`: seconds between two values; the last value is the present.
pub(crate) fn chart(id: &str, title: &str, step: u64, lines: &[Line<'_>]) -> Html {
    let length = lines.iter().map(|line| line.values.len()).max().unwrap_or(0).saturating_sub(1);
    let seconds = step * length as u64;
    // Round to whole minutes above two minutes.
    let seconds = if seconds < 120 { seconds } else { (seconds + 30) / 60 * 60 };
    let since = format!("{} ago", crate::display::span(seconds));
    let values = || lines.iter().flat_map(|line| line.values.iter().flatten());
    let highest = values().copied().fold(0.0_f64, f64::max);
    let top = ceiling(highest);
    let say = lines.first().map_or(crate::display::rate as fn(f64) -> String, |line| line.say);
    let drawn = each(lines, |line| {
        let (line_path, area) = path(&line.values, top);
        html!(
            "<path class=\"area {}\" d=\"{}\"/><path class=\"line {}\" d=\"{}\"/>",
            line.class,
            area,
            line.class,
            line_path
        )
    });
    let latest = each(lines, |line| {
        let last = line.values.last().copied().flatten();
        let last = last.map_or_else(|| "–".to_owned(), line.say);
        html!(
            "<span class=\"key {}\" data-values=\"{}\"><i aria-hidden=\"true\"></i>{} <b>{}</b></span>",
            line.class,
            data(line),
            line.name,
            last
        )
    });
    html!(
        "<figure class=\"chart\" id=\"{}\" data-step=\"{}\"><figcaption><h2>{}</h2><div class=\"keys-of\">{}</div></figcaption><div class=\"plot\" tabindex=\"0\"><span \
         class=\"top\">{}</span><svg viewBox=\"0 0 600 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}: at most {}\"><path class=\"grid\" \
         d=\"M0 .5H600M0 50H600M0 99.5H600\"/>{}<path class=\"cursor\" d=\"\"/></svg></div><div class=\"ends\"><span>{}</span><b class=\"when\"></b><span>now</span></div>\
         </figure>",
        id,
        step,
        title,
        latest,
        say(top),
        title,
        say(highest),
        drawn,
        since
    )
}

/// The text of each value, for the script.
fn data(line: &Line<'_>) -> String {
    let words = line.values.iter().map(|value| value.map_or_else(|| "–".to_owned(), line.say));
    words.collect::<Vec<_>>().join("|")
}

/// The line, and the area below it. A missing value leaves a gap.
fn path(values: &[Option<f64>], top: f64) -> (String, String) {
    let step = WIDTH / (values.len().max(2) - 1) as f64;
    let (mut line, mut area, mut begun) = (String::new(), String::new(), None);
    for (at, value) in values.iter().enumerate() {
        let x = at as f64 * step;
        let Some(value) = value else {
            close(&mut area, begun.take(), x - step);
            continue;
        };
        let y = HEIGHT - (value / top).clamp(0.0, 1.0) * (HEIGHT - 2.0) - 1.0;
        // A zero-length stroke shows a single point between gaps.
        let _ = match begun {
            None => write!(line, "M{x:.1} {y:.1}h0"),
            Some(_) => write!(line, "L{x:.1} {y:.1}"),
        };
        if begun.is_none() {
            begun = Some(x);
            let _ = write!(area, "M{x:.1} {HEIGHT}");
        }
        let _ = write!(area, "L{x:.1} {y:.1}");
    }
    close(&mut area, begun, WIDTH);
    (line, area)
}

fn close(area: &mut String, begun: Option<f64>, x: f64) {
    if begun.is_some() {
        let _ = write!(area, "L{:.1} {HEIGHT}Z", x.max(0.0));
    }
}

/// The smallest of 1, 2, 5, 10, 20 … that is not less.
fn ceiling(highest: f64) -> f64 {
    if !highest.is_finite() || highest <= 0.0 {
        return 1.0;
    }
    let magnitude = 10_f64.powf(highest.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.iter().map(|step| step * magnitude).find(|step| *step >= highest).unwrap_or(highest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display;

    #[test]
    fn the_axis_ends_at_a_round_number() {
        for (highest, top) in
            [(0.0, 1.0), (f64::NAN, 1.0), (1.0, 1.0), (1.1, 2.0), (612.0, 1000.0), (0.03, 0.05)]
        {
            assert!((ceiling(highest) - top).abs() < 1e-9, "{highest}: {}", ceiling(highest));
        }
    }

    #[test]
    fn a_gap_stays_a_gap() {
        let (line, area) = path(&[Some(1.0), Some(2.0), None, Some(2.0)], 2.0);
        assert_eq!(line, "M0.0 50.0h0L200.0 1.0M600.0 1.0h0");
        assert_eq!(area, "M0.0 100L0.0 50.0L200.0 1.0L200.0 100ZM600.0 100L600.0 1.0L600.0 100Z");
        assert_eq!(path(&[], 1.0), (String::new(), String::new()));
    }

    #[test]
    fn it_is_told_in_words_too() {
        let line = Line {
            class: "requests",
            name: "requests",
            values: vec![Some(3.0), None, Some(7.0)],
            say: display::rate,
        };
        let text = chart("a", "Requests a second", 5, &[line]).into_string();
        assert!(text.contains("aria-label=\"Requests a second: at most 7.0\""), "{text}");
        assert!(text.contains("data-values=\"3.0|–|7.0\"") && text.contains("<b>7.0</b>"), "{text}");
    }
}
