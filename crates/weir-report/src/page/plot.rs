//! Plots as SVG text: lines over time or percentile, and bars. They are drawn here and not in the reader's browser,
//! so that a page is complete without a script and looks the same everywhere. Values appear on hover, by CSS alone.
//!
//! *Layout.* `axis` places values, `hover` shows them; this file draws.

mod axis;
mod hover;

pub(crate) use axis::{Axis, round_step};

use std::fmt::Write;

/// Width of a plot in SVG units.
const W: f64 = 520.0;
/// Its height.
const H: f64 = 230.0;
/// Space for labels on the left,
const LEFT: f64 = 62.0;
/// below,
const BELOW: f64 = 28.0;
/// for half a line of text above,
const ABOVE: f64 = 8.0;
/// and for half a label on the right.
const RIGHT: f64 = 24.0;

/// Half a letter's width.
const HALF_LETTER: f64 = 3.3;

/// Number of colors on the page.
const COLOURS: usize = 8;

/// One line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Values on both axes; a missing value interrupts the line.
    pub(crate) points: Vec<(f64, Option<f64>)>,
}

fn x_of(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.place(value) * (W - LEFT - RIGHT)
}

fn y_of(axis: &Axis, value: f64) -> f64 {
    ABOVE + (1.0 - axis.place(value)) * (H - ABOVE - BELOW)
}

/// The frame: grid, labels, and a text alternative.
fn frame(title: &str, x: &Axis, y: &Axis) -> String {
    let mut out = format!("<svg viewBox=\"0 0 {W} {H}\" role=\"img\" aria-label=\"{title}\">");
    for (value, label) in &y.marks {
        let at = y_of(y, *value);
        let (right, label_x, label_y) = (W - RIGHT, LEFT - 6.0, at + 4.0);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\
             <text x=\"{label_x}\" y=\"{label_y:.1}\" text-anchor=\"end\">{label}</text>"
        );
    }
    for (value, label) in &x.marks {
        let (at, bottom) = (x_of(x, *value), H - 8.0);
        out += &mark_below(at, bottom, label);
    }
    out
}

/// A label below a plot, moved left if it would leave the picture.
fn mark_below(at: f64, y: f64, label: &str) -> String {
    if at + label.chars().count() as f64 * HALF_LETTER > W {
        format!("<text x=\"{W}\" y=\"{y}\" text-anchor=\"end\">{label}</text>")
    } else {
        format!("<text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>")
    }
}

/// Additions to the lines of a plot. Texts are HTML.
#[derive(Default)]
pub(crate) struct Marks {
    /// From one value of the horizontal axis to another.
    pub(crate) bands: Vec<(f64, f64, String)>,
    /// At a value of the vertical axis.
    pub(crate) levels: Vec<(f64, String)>,
    /// At a value of the horizontal axis.
    pub(crate) places: Vec<(f64, String)>,
    /// Points without a line: both values, and the color.
    pub(crate) points: Vec<(f64, f64, usize)>,
}

impl Marks {
    fn draw(&self, x: &Axis, y: &Axis) -> String {
        let (right, bottom, top) = (W - RIGHT, H - BELOW, ABOVE + 10.0);
        let mut out = String::new();
        for (from, to, text) in &self.bands {
            let (left, height) = (x_of(x, *from), bottom - ABOVE);
            let width = (x_of(x, *to) - left).max(2.0);
            let _ = write!(
                out,
                "<rect class=\"band\" x=\"{left:.1}\" y=\"{ABOVE}\" width=\"{width:.1}\" height=\"{height}\"/>"
            );
            out += &label(left + width / 2.0, top, text);
        }
        for (value, text) in &self.levels {
            let at = y_of(y, *value);
            let _ = write!(
                out,
                "<path class=\"rule\" d=\"M{LEFT} {at:.1}H{right}\"/><text class=\"mark\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                at - 4.0
            );
        }
        for (value, text) in &self.places {
            let at = x_of(x, *value);
            let _ = write!(out, "<path class=\"rule\" d=\"M{at:.1} {ABOVE}V{bottom}\"/>");
            out += &label(at, top, text);
        }
        for (at, value, class) in &self.points {
            let (cx, cy, class) = (x_of(x, *at), y_of(y, *value), class % COLOURS);
            let _ = write!(out, "<circle class=\"c{class} one\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2.5\"/>");
        }
        out
    }
}

/// A text centered at a position, moved to where the plot has room.
fn label(at: f64, y: f64, text: &str) -> String {
    // An escaped mark counts longer than it is, so this is at least enough.
    let half = text.chars().count() as f64 * HALF_LETTER;
    let (x, anchor) = if at - half < LEFT {
        (LEFT + 2.0, "start")
    } else if at + half > W - RIGHT {
        (W - RIGHT - 2.0, "end")
    } else {
        (at, "middle")
    };
    format!("<text class=\"mark\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>")
}

/// Lines on one pair of axes, with a legend below. `title` must be plain text.
pub(crate) fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    marked_lines(title, x, y, lines, &Marks::default())
}

/// Like [`lines`], with marks.
pub(crate) fn marked_lines(title: &str, x: &Axis, y: &Axis, lines: &[Line], marks: &Marks) -> String {
    let mut out = frame(title, x, y) + &marks.draw(x, y);
    for (i, line) in lines.iter().enumerate().map(|(i, line)| (i % COLOURS, line)) {
        let (mut path, mut pen) = (String::new(), 'M');
        for (at, value) in &line.points {
            match value {
                Some(value) => {
                    let _ = write!(path, "{pen}{:.1} {:.1}", x_of(x, *at), y_of(y, *value));
                    pen = 'L';
                }
                None => pen = 'M',
            }
        }
        let _ = write!(out, "<path class=\"line c{i}\" d=\"{path}\"/>");
        // Few points would make a barely visible line, and one point none.
        for (at, value) in line.points.iter().filter(|_| line.points.len() <= 60) {
            if let Some(value) = value {
                let (cx, cy) = (x_of(x, *at), y_of(y, *value));
                let _ = write!(out, "<circle class=\"c{i}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2.5\"/>");
            }
        }
    }
    out += &hover::strips(x, y, lines);
    out += "</svg><p class=\"legend\">";
    for (i, line) in lines.iter().enumerate().map(|(i, line)| (i % COLOURS, line)) {
        let _ = write!(out, "<span><i class=\"c{i}\"></i>{}</span> ", line.name); // a possible line break
    }
    out + "</p>"
}

/// Bars from one value to another, each with a height and a text shown on hover.
pub(crate) fn bars(title: &str, x: &Axis, y: &Axis, bars: &[(f64, f64, f64, String)]) -> String {
    let mut out = frame(title, x, y);
    for (from, to, height, text) in bars {
        let (left, top) = (x_of(x, *from), y_of(y, *height));
        let (width, height) = ((x_of(x, *to) - left - 0.5).max(0.5), y_of(y, y.from) - top);
        let _ = write!(
            out,
            "<rect class=\"c0\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{text}</title></rect>"
        );
    }
    out + "</svg>"
}

/// A row of [`ranges`]: a name, a value with its bounds, and a text shown on hover.
pub(crate) struct Range {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) bounds: Option<(f64, f64)>,
    pub(crate) text: String,
    /// The color.
    pub(crate) class: usize,
}

/// Values with their bounds in rows, and a line at `mark`, which separates two outcomes.
pub(crate) fn ranges(title: &str, x: &Axis, mark: f64, rows: &[Range]) -> String {
    const ROW: f64 = 18.0;
    /// Width for names.
    const NAMES: f64 = 150.0;
    let height = rows.len() as f64 * ROW + BELOW;
    let at = |value: f64| NAMES + x.place(value).clamp(0.0, 1.0) * (W - NAMES - RIGHT);
    let mut out = format!("<svg viewBox=\"0 0 {W} {height}\" role=\"img\" aria-label=\"{title}\">");
    let bottom = height - BELOW;
    for (value, label) in &x.marks {
        let (at, below) = (at(*value), height - 8.0);
        let _ =
            write!(out, "<path class=\"grid\" d=\"M{at:.1} 0V{bottom}\"/>{}", mark_below(at, below, label));
    }
    let _ = write!(out, "<path class=\"line c7\" d=\"M{:.1} 0V{bottom}\"/>", at(mark));
    for (i, row) in rows.iter().enumerate() {
        let y = (i as f64 + 0.5) * ROW;
        let (class, text_y, names) = (row.class % COLOURS, y + 4.0, NAMES - 8.0);
        let _ = write!(
            out,
            "<g><title>{}</title><text x=\"{names}\" y=\"{text_y}\" text-anchor=\"end\">{}</text>",
            row.text, row.name
        );
        if let Some((low, high)) = row.bounds {
            let _ = write!(out, "<path class=\"line c{class}\" d=\"M{:.1} {y}H{:.1}\"/>", at(low), at(high));
        }
        let _ =
            write!(out, "<circle class=\"c{class}\" cx=\"{:.1}\" cy=\"{y}\" r=\"3.5\"/></g>", at(row.value));
    }
    out + "</svg>"
}

/// One bar divided into shares, with a legend below. Zero shares are left out.
pub(crate) fn shares(title: &str, parts: &[(String, f64, String)]) -> String {
    let all: f64 = parts.iter().map(|(_, n, _)| n).sum();
    let mut out = format!("<svg viewBox=\"0 0 {W} 30\" role=\"img\" aria-label=\"{title}\">");
    let (mut left, mut legend) = (0.0, String::new());
    for (i, (name, n, text)) in parts.iter().filter(|(_, n, _)| *n > 0.0).enumerate() {
        let (width, class) = (n / all * W, i % COLOURS);
        let _ = write!(
            out,
            "<rect class=\"c{class}\" x=\"{left:.1}\" y=\"0\" width=\"{width:.1}\" height=\"30\"><title>{name}: {text}</title></rect>"
        );
        let _ = write!(legend, "<span><i class=\"c{class}\"></i>{name}: {text}</span>");
        left += width;
    }
    out + "</svg><p class=\"legend\">" + &legend + "</p>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(n: f64) -> String {
        n.to_string()
    }

    #[test]
    fn a_missing_value_interrupts_the_line() {
        let (x, y) = (Axis::linear(3.0, plain), Axis::linear(1.0, plain));
        let points = vec![(0.0, Some(0.0)), (1.0, Some(1.0)), (2.0, None), (3.0, Some(1.0))];
        let svg = lines("t", &x, &y, &[Line { name: "a".to_owned(), points }]);
        let line = svg.split("class=\"line ").nth(1).unwrap();
        let path = line.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(path.matches('L').count(), 1, "{path}");
    }

    #[test]
    fn marks_are_where_their_values_are() {
        let (x, y) = (Axis::linear(10.0, plain), Axis::linear(10.0, plain));
        let marks = Marks {
            bands: vec![(5.0, 10.0, "stalled".to_owned())],
            levels: vec![(10.0, "p99".to_owned())],
            places: vec![(5.0, "here".to_owned())],
            points: vec![(0.0, 0.0, 9)],
        };
        let svg = marked_lines("t", &x, &y, &[], &marks);
        let middle = LEFT + (W - LEFT - RIGHT) / 2.0;
        for part in [
            format!("<rect class=\"band\" x=\"{middle:.1}\" y=\"8\""),
            format!("<path class=\"rule\" d=\"M{LEFT} {ABOVE:.1}H{}\"/>", W - RIGHT),
            format!("<path class=\"rule\" d=\"M{middle:.1} {ABOVE}V{}\"/>", H - BELOW),
            format!("<circle class=\"c1 one\" cx=\"{LEFT:.1}\" cy=\"{:.1}\"", H - BELOW),
        ] {
            assert!(svg.contains(&part), "{part} in {svg}");
        }
    }

    #[test]
    fn a_label_does_not_leave_the_picture() {
        assert!(mark_below(W - 5.0, 1.0, "99.9999 %").contains("text-anchor=\"end\""));
        assert!(mark_below(W - 50.0, 1.0, "99.9999 %").contains("text-anchor=\"middle\""));
    }
}
