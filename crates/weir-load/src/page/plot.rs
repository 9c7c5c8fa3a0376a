//! Plots as SVG text: lines over time or percentile, and bars. Made here and not in the reader's browser, so that a page is
//! whole without a script and looks the same everywhere.

use std::fmt::Write;

/// Width of a plot in SVG units.
const W: f64 = 520.0;
/// Its height.
const H: f64 = 230.0;
/// Room for labels at its left,
const LEFT: f64 = 62.0;
/// below,
const BELOW: f64 = 28.0;
/// for half a line of text above,
const ABOVE: f64 = 8.0;
/// and for half a label at its right.
const RIGHT: f64 = 24.0;

/// How many colours the page has.
const COLOURS: usize = 8;

/// One line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Values of both axes; where a value is missing, the line is interrupted.
    pub(crate) points: Vec<(f64, Option<f64>)>,
}

/// How an axis places its values.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// An axis: its ends, its scale, and what its values are called.
pub(crate) struct Axis {
    from: f64,
    to: f64,
    scale: Scale,
    /// Where labels stand, and the labels.
    marks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0, with labels at round values, or over decades when the values span more than 30-fold.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone, name: fn(f64) -> String) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let least = values.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        if least.is_finite() && most / least > 30.0 {
            Self::log(least, most, name)
        } else {
            Self::linear(most, name)
        }
    }

    /// From 0 to a round value.
    pub(crate) fn linear(most: f64, name: fn(f64) -> String) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let power = 10f64.powf((most / 5.0).log10().floor());
        // Divided where the power is a fraction: 6 / 10 is 0.6, and 6 × 0.1 is not.
        let value = |n: f64| if power < 1.0 { n / (1.0 / power).round() } else { n * power };
        let step = [1.0, 2.0, 5.0].into_iter().find(|n| most / value(*n) <= 5.0).unwrap_or(10.0);
        let steps = (most / value(step)).ceil();
        let at = |i: u32| value(f64::from(i) * step);
        let marks = (0..=steps as u32).map(|i| (at(i), name(at(i)))).collect();
        Self { from: 0.0, to: value(steps * step), scale: Scale::Linear, marks }
    }

    /// Exactly from one value to another, with labels where they are wanted.
    pub(crate) const fn exact(from: f64, to: f64, marks: Vec<(f64, String)>) -> Self {
        Self { from, to, scale: Scale::Linear, marks }
    }

    /// Over whole decades.
    pub(crate) fn log(least: f64, most: f64, name: fn(f64) -> String) -> Self {
        let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let high = high.max(low + 1);
        let marks = (low..=high).map(|p| (10f64.powi(p), name(10f64.powi(p)))).collect();
        Self { from: 10f64.powi(low), to: 10f64.powi(high), scale: Scale::Log, marks }
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(self.from) / self.from).log10() / (self.to / self.from).log10(),
        };
        at.clamp(0.0, 1.0)
    }
}

fn x_of(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.place(value) * (W - LEFT - RIGHT)
}

fn y_of(axis: &Axis, value: f64) -> f64 {
    ABOVE + (1.0 - axis.place(value)) * (H - ABOVE - BELOW)
}

/// The frame: grid, labels, and a text for those who do not see it.
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
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{label}</text>");
    }
    out
}

/// Lines on one pair of axes, with a legend below. `title` must be plain text.
pub(crate) fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let mut out = frame(title, x, y);
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
        // Few points would be a line that is hard to see, and one would be nothing.
        for (at, value) in line.points.iter().filter(|_| line.points.len() <= 60) {
            if let Some(value) = value {
                let (cx, cy) = (x_of(x, *at), y_of(y, *value));
                let _ = write!(out, "<circle class=\"c{i}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2.5\"/>");
            }
        }
    }
    out += "</svg><p class=\"legend\">";
    for (i, line) in lines.iter().enumerate().map(|(i, line)| (i % COLOURS, line)) {
        let _ = write!(out, "<span><i class=\"c{i}\"></i>{}</span> ", line.name); // where a row may end
    }
    out + "</p>"
}

/// Bars from one value to another with a height each and a text that shows when pointed at.
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

/// What one row of [`ranges`] shows: a name, a value with its lower and upper bound, and a text that shows when pointed at.
pub(crate) struct Range {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) bounds: Option<(f64, f64)>,
    pub(crate) text: String,
    /// Which colour.
    pub(crate) class: usize,
}

/// Values with their bounds below each other, and a line at `mark`: what is on its other side is another matter.
pub(crate) fn ranges(title: &str, x: &Axis, mark: f64, rows: &[Range]) -> String {
    const ROW: f64 = 18.0;
    /// Room for names.
    const NAMES: f64 = 150.0;
    let height = rows.len() as f64 * ROW + BELOW;
    let at = |value: f64| NAMES + x.place(value).clamp(0.0, 1.0) * (W - NAMES - RIGHT);
    let mut out = format!("<svg viewBox=\"0 0 {W} {height}\" role=\"img\" aria-label=\"{title}\">");
    let bottom = height - BELOW;
    for (value, label) in &x.marks {
        let (at, below) = (at(*value), height - 8.0);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{at:.1} 0V{bottom}\"/><text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>"
        );
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

/// One bar cut into shares, with a legend below. Shares of nothing are left out.
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

    fn marks(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn axes_have_round_labels() {
        let plain = |n: f64| n.to_string();
        assert_eq!(marks(&Axis::linear(47.0, plain)), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(marks(&Axis::linear(0.0, plain)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(marks(&Axis::of([3.0, 0.0, 950.0].into_iter(), plain)), ["1", "10", "100", "1000"]);
        assert_eq!(marks(&Axis::of([3.0, 9.0].into_iter(), plain)), ["0", "2", "4", "6", "8", "10"]);
        let log = Axis::log(1.0, 100.0, plain);
        assert_eq!([1.0, 10.0, 100.0, 0.0].map(|v| log.place(v)), [0.0, 0.5, 1.0, 0.0]);
    }

    #[test]
    fn a_missing_value_interrupts_the_line() {
        let (x, y) = (Axis::exact(0.0, 3.0, Vec::new()), Axis::exact(0.0, 1.0, Vec::new()));
        let points = vec![(0.0, Some(0.0)), (1.0, Some(1.0)), (2.0, None), (3.0, Some(1.0))];
        let svg = lines("t", &x, &y, &[Line { name: "a".to_owned(), points }]);
        let path = svg.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(path.matches('L').count(), 1, "{path}");
    }
}
