//! Parts of HTML pages that reports and comparisons share. Pages are readable offline: no script, no external
//! resources, plots as inline SVG. `plot` draws.

pub(crate) mod plot;

use crate::Histogram;
use crate::report::Grade;
use crate::units::time;
use plot::{Axis, Line};
use std::fmt::Write;

/// A whole page. `title` and `body` are HTML.
pub(crate) fn document(grade: Grade, title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{grade}: {title}</title>\n<style>\n{css}</style></head>\n<body>\n<h1>{title}</h1>\n{body}</body></html>\n",
        css = include_str!("page/page.css"),
    )
}

/// The verdict and the reasons against it, which are HTML.
pub(crate) fn verdict(grade: Grade, reasons: impl IntoIterator<Item = String>) -> String {
    let meaning = match grade {
        Grade::Invalid => "It is not what was asked for: do not quote it.",
        Grade::Suspect => "Something may have distorted it: read the reasons before you quote it.",
        Grade::Valid => "Nothing speaks against this result.",
    };
    let reasons: String = reasons.into_iter().map(|reason| format!("<li>{reason}</li>")).collect();
    let list = if reasons.is_empty() { reasons } else { format!("<ul>{reasons}</ul>") };
    format!("<div class=\"verdict {grade}\"><b>{grade}</b> {meaning}{list}</div>\n")
}

/// A part of a page.
pub(crate) fn section(title: &str, body: &str) -> String {
    format!("<h2>{title}</h2>\n{body}\n")
}

/// A table of figures. Cells are already HTML.
pub(crate) fn table<R: AsRef<[String]>>(head: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    table_of("", head, rows)
}

/// A table whose last column is text, which may wrap.
pub(crate) fn table_with_words<R: AsRef<[String]>>(
    head: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> String {
    table_of(" words", head, rows)
}

fn table_of<R: AsRef<[String]>>(class: &str, head: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut out = format!("<div class=\"wide{class}\"><table>");
    if !head.is_empty() {
        let cells: String = head.iter().map(|cell| format!("<th>{cell}</th>")).collect();
        let _ = write!(out, "<tr>{cells}</tr>"); // writing to a String cannot fail
    }
    for row in rows {
        let cells: String = row.as_ref().iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let _ = write!(out, "<tr>{cells}</tr>");
    }
    out + "</table></div>"
}

/// Escapes text from a peer or a command line.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Latencies by percentile. Names are HTML.
pub(crate) fn by_percentile(histograms: &[(&str, &Histogram)]) -> String {
    // Each additional nine gets the same width.
    let most = histograms.iter().map(|(_, h)| h.count()).max().unwrap_or(0);
    let nines = (most as f64).log10().ceil().clamp(2.0, 6.0);
    let lines: Vec<Line> = histograms
        .iter()
        .map(|(name, h)| Line { name: (*name).to_owned(), points: spectrum(h, nines) })
        .collect();
    let marks = (0..=6).map(f64::from).filter(|at| *at <= nines).map(|at| (at, percentile(at))).collect();
    let x = Axis::exact(0.0, nines, marks, percentile);
    let values = lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, value)| *value));
    plot::lines("Latency by percentile", &x, &Axis::of(values, short_time), &lines)
}

/// A time for an axis: `10 ms` where a table has `10.00 ms`.
pub(crate) fn short_time(ns: f64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// The percentile with this many nines: 99.9 % for 3.
fn percentile(nines: f64) -> String {
    let percent = 100.0 - 100.0 * 10f64.powf(-nines);
    let digits = (nines.ceil() as usize).saturating_sub(2) + usize::from(nines.fract() != 0.0);
    format!("{percent:.digits$} %")
}

/// Latency at positions from 0 to this many nines, as far as there are enough values.
fn spectrum(h: &Histogram, nines: f64) -> Vec<(f64, Option<f64>)> {
    let own = (h.count().max(2) as f64).log10();
    (0..=100)
        .map(|i| f64::from(i) / 100.0 * nines)
        .map(|at| (at, (at <= own).then(|| h.quantile(1.0 - 10f64.powf(-at)) as f64)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        assert_eq!([1e7, 1.5e6, 0.0, 1e9].map(short_time), ["10 ms", "1.5 ms", "0 ns", "1 s"]);
        assert_eq!([0.0, 1.0, 2.0, 3.0, 6.0].map(percentile), ["0 %", "90 %", "99 %", "99.9 %", "99.9999 %"]);
        assert_eq!([0.5, 2.5].map(percentile), ["68.4 %", "99.68 %"]);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    /// Panics unless the page is well-formed, loads nothing, and contains no NaN or infinity.
    pub(crate) fn expect_sound(page: &str) {
        let names = elements(page);
        for banned in ["script", "link", "img", "iframe", "object", "b hi"] {
            assert!(!names.iter().any(|name| name == banned), "{banned}");
        }
        for loads in ["src=", "href=", "url(", "@import"] {
            assert!(!page.contains(loads), "{loads}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "a figure that is none");
    }

    /// Panics unless all elements are closed in order; returns their names.
    fn elements(page: &str) -> Vec<String> {
        let (mut open, mut seen) = (Vec::new(), Vec::new());
        for tag in page.split('<').skip(2) {
            let (tag, _) = tag.split_once('>').expect("a bare < in the page");
            let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap().to_owned();
            if tag.starts_with('/') {
                assert_eq!(open.pop().as_deref(), Some(name.as_str()), "closed out of order");
            } else {
                if !tag.ends_with('/') && !["meta", "br"].contains(&name.as_str()) {
                    open.push(name.clone());
                }
                seen.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?} left open");
        seen
    }
}
